"""The `explore` method of fitted models.

Models do not import the packages above them. The top-level package sets the function that shows a model
(`set_viewer`). That function imports `arbora.explore` at its first call, so that models which are never shown do not
import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
