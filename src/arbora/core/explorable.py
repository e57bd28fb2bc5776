"""The `explore` method of fitted models.

Models do not import the packages above them. The top-level package sets the function that shows a model
(`set_viewer`); it imports `arbora.explore` when it is first called, so that a model costs nothing where nobody looks
at it.
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
        """Show the model: the page of ``arbora explore``, in a frame of the notebook.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), optional
            Rows to be looked at. Without them the page has the structure and its words alone.
        y : labels, optional
            Classifiers: as for `fit`; the page then tells how well the model does on these rows, which it should not
            have been trained on. Topics: a label to be shown with each row.
        documents : sequence of n_samples str, optional
            The texts that the rows come from.
        words : sequence of n_features names, optional
            Of the columns, such as ``vectorizer.get_feature_names_out()``.
        times : array-like of shape (n_samples,), optional
            Topics over time: the times of the rows.
        baseline : fitted classifier, optional
            With y: a flat model, to see where the hierarchy helped.
        name : str, optional
            What to call it; by default the name of the class.
        height : int
            Of the frame, in pixels.

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
