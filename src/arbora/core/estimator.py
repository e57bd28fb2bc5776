"""What every estimator does: tags, seed, options, "requires y", rollback, `explore`, warnings at the user's line."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    import numpy as np

# --- Tags, and arguments that must be given ------------------------------------------------------------------


class RowEstimator:
    """Mixin, first among the base classes: an estimator of dense or sparse rows.

    `_tags` names further tags of scikit-learn. The tags of all base classes apply, those of the class last.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator, ClassifierMixin
    >>> from sklearn.utils import get_tags
    >>> from arbora.core.estimator import RowEstimator
    >>> class Counts(RowEstimator, ClassifierMixin, BaseEstimator):
    ...     _tags = {"input_tags.positive_only": True}
    >>> get_tags(Counts()).input_tags.sparse, get_tags(Counts()).input_tags.positive_only
    (True, True)
    """

    _tags: ClassVar[Mapping[str, Any]] = {"input_tags.sparse": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        for base in reversed(type(self).__mro__):
            for path, value in vars(base).get("_tags", {}).items():
                group, _, name = path.rpartition(".")
                setattr(getattr(tags, group), name, value)
        return tags


def require_y(estimator: Any, y: Any, purpose: str) -> None:
    """Refuse to fit without y, in the words that scikit-learn expects."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: {purpose}."
        )


# --- The seed, and the only draw from `random_state` -----------------------------------------------------------


def draw_seed(random_state: Any, *, resumable: bool = False) -> int:
    """Draw the seed that determines all randomness of a call.

    A resumable fit (one with a checkpoint) without a `random_state` has the seed 0, so that it can be resumed.
    """
    from sklearn.utils import check_random_state  # here, so that `import arbora` costs nothing

    if random_state is None and resumable:
        return 0
    return int(check_random_state(random_state).randint(2**31 - 1))


def draw_generator(random_state: Any) -> np.random.Generator:
    """Return the generator that is passed to every function that draws."""
    import numpy as np

    return np.random.default_rng(draw_seed(random_state))


# --- Parameters that hold several options ----------------------------------------------------------------------


Options = TypeVar("Options", bound=tuple[Any, ...])


def read_options(
    name: str,
    values: Mapping[str, Any] | None,
    kind: type[Options],
    constraints: Mapping[str, Sequence[Any]] | None = None,
) -> Options:
    """Return the options of a parameter that is a dict: `kind` is a named tuple with all defaults.

    `constraints` of the values are as the `_parameter_constraints` of scikit-learn.

    >>> from typing import NamedTuple
    >>> class Sampling(NamedTuple):
    ...     n_chains: int = 2
    ...     n_warmup: int = 100
    >>> read_options("sampling", {"n_warmup": 10}, Sampling)
    Sampling(n_chains=2, n_warmup=10)
    >>> read_options("sampling", {"warmup": 10}, Sampling)
    Traceback (most recent call last):
    ...
    ValueError: sampling has no option 'warmup' (did you mean 'n_warmup'?): it has n_chains, n_warmup.
    """
    if values is None:
        return kind()
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a dict or None, got {values!r}.")
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    for key in values:
        if key not in fields:
            near = get_close_matches(str(key), fields, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"{name} has no option {key!r}{hint}: it has {', '.join(fields)}.")
    options = kind(**values)
    if constraints is not None:
        from sklearn.utils._param_validation import validate_parameter_constraints

        validate_parameter_constraints(constraints, options._asdict(), name)  # type: ignore[attr-defined]
    return options


def warn_ineffective(estimator: Any, reasons: Mapping[str, str]) -> None:
    """Warn about parameters that were changed and have no effect; `reasons` says why, by the name of a parameter."""
    names = [name for name in reasons if _is_changed(estimator, name)]
    if names:
        parts = "; ".join(f"{name}={getattr(estimator, name)!r} ({reasons[name]})" for name in names)
        warn_caller(f"{type(estimator).__name__}: no effect of {parts}.")


def _is_changed(estimator: Any, name: str) -> bool:
    """Whether a parameter differs from its default; arrays and objects count as changed."""
    default = inspect.signature(type(estimator).__init__).parameters[name].default
    value = getattr(estimator, name)
    return value is not default and not (isinstance(value, str | int | float) and value == default)


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

    >>> from types import SimpleNamespace
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


# Packages between the user's line and the warning: scikit-learn wraps `fit` and calls it in searches and pipelines;
# `contextlib` ends a block.
_SKIPPED = frozenset({"arbora", "sklearn", "joblib", "contextlib"})


def warn_caller(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn with the stack level of the first frame outside Arbora, scikit-learn and joblib.

    In a worker thread no such frame may exist; the warning then points at the bottom of the thread's stack. A message
    that is a warning object has a category of its own.
    """
    level, frame = 2, sys._getframe(1)  # level 1 is this function
    while frame.f_back is not None and _package(frame.f_globals) in _SKIPPED:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
