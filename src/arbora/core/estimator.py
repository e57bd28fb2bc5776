"""Warnings that point at the user's line, however deep inside Arbora they are raised."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# --- The `explore` method of fitted models ------------------------------------------------------------------
#
# Models do not import the packages above them. The top-level package sets the function that shows a model
# (`set_viewer`). That function imports `arbora.explore` at its first call, so that models which are never shown do
# not import it.


_viewers: list[Callable[..., Any]] = []


def set_viewer(viewer: Callable[..., Any]) -> None:
    """Set the function that `Explorable.explore` calls with the model and its own arguments."""
    _viewers[:] = [viewer]


class Explorable:
    """Mixin: `explore` shows the fitted model in a notebook."""

    def explore(
        self,
        X: Any = None,
        y: Any = None,
        *,
        documents: Any = None,
        words: Any = None,
        times: Any = None,
        baseline: Any = None,
        name: str | None = None,
        height: int = 760,
    ) -> Any:
        """Show the model as the page of ``arbora explore``, in a frame of the notebook.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), optional
            Rows to show. Without them the page has only the structure and its words.
        y : labels, optional
            Classifiers: labels as for `fit`; the page then reports how well the model predicts these rows, which
            should not be training rows. Topics: a label to show with each row.
        documents : sequence of n_samples str, optional
            Texts of the rows.
        words : sequence of n_features names, optional
            Names of the columns, such as ``vectorizer.get_feature_names_out()``.
        times : array-like of shape (n_samples,), optional
            Topics over time: the times of the rows.
        baseline : fitted classifier, optional
            With y: a flat model, to show where the hierarchy helped.
        name : str, optional
            Title of the page. Default: the name of the class.
        height : int
            Height of the frame in pixels.

        Returns
        -------
        arbora.explore.page.Page
            Notebooks display it; ``page.save("page.html")`` writes it to a file. Needs ``arbora[explore]``.
        """
        return _viewers[0](
            self,
            X,
            y,
            documents=documents,
            words=words,
            times=times,
            baseline=baseline,
            name=name,
            height=height,
        )


# --- Changes to an estimator that are undone if they fail ---------------------------------------------------


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore all attributes of an estimator if the block fails, so that an earlier fit stays usable.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from arbora.core.estimator import all_or_nothing
    >>> model = SimpleNamespace(coef_=1)
    >>> try:
    ...     with all_or_nothing(model):
    ...         model.coef_ = 2
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     model
    namespace(coef_=1)
    """
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


# --- Warnings that point at the user's line, however deep inside Arbora they are raised ---------------------


# Packages between the user's line and the warning: scikit-learn wraps `fit` and calls it in searches and pipelines.
_SKIPPED = frozenset({"arbora", "sklearn", "joblib"})


def warn_caller(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn with the stack level of the first frame outside Arbora, scikit-learn and joblib.

    In a worker thread no such frame may exist; the warning then points at the bottom of the thread's stack.

    Parameters
    ----------
    message : str or Warning
        A warning object has a category of its own.
    category : type of Warning

    Examples
    --------
    >>> import warnings
    >>> from arbora.core.estimator import warn_caller
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_caller("the fit has not converged")
    >>> str(caught[0].message)
    'the fit has not converged'
    """
    level, frame = 2, sys._getframe(1)  # level 1 is this function
    while frame.f_back is not None and _package(frame.f_globals) in _SKIPPED:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
