"""What every fitted model can do that knows nothing of pages: show itself.

Models do not import the rooms above them. This one method names the browser and has it imported when it is called,
so that a model costs nothing more where nobody looks at it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_BROWSER = "arbora.explore"


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
        return import_module(_BROWSER).look_at(
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
