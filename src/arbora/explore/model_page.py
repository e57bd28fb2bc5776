"""The page of a fitted model in memory: what ``model.explore(...)`` returns. Nothing is written to disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arbora.app.contents.fitted_model import model_content
from arbora.explore.page import Page, make_page


def show_model(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    documents: Sequence[str] | None = None,
    words: Sequence[str] | None = None,
    times: Any = None,
    baseline: Any = None,
    name: str | None = None,
    height: int = 760,
    layout: str = "neighbours",
) -> Page:
    """Make the page of a fitted classifier, mixture or k-means; ``model.explore(...)`` does the same.

    Parameters
    ----------
    model : fitted estimator of this package
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        Rows to show.
    y : labels, optional
        Classifiers: as for `fit`; the page then shows the quality on these rows. Topics: a label to show with each
        row.
    documents : sequence of n_samples str, optional
        Texts of the rows.
    words : sequence of n_features names, optional
        Names of the columns; by default the column names of the data frame of the fit, or numbers.
    times : array-like of shape (n_samples,), optional
        Topics over time: times of the rows.
    baseline : fitted classifier, optional
        With y: a flat model, to show where the hierarchy helps.
    name : str, optional
        Name of the model; by default the name of its class.
    height : int
        Height of the frame in pixels.
    layout : {"neighbours", "linear"}
        Map of the rows: similar rows near each other (needs openTSNE), or a linear projection.

    Returns
    -------
    Page
        Notebooks display it; `save` writes it to a file.

    Examples
    --------
    >>> from arbora.classify import OneVsRestSVC
    >>> model = OneVsRestSVC(random_state=0).fit([[1.0, 0.0], [0.0, 1.0]], ["sea", "land"])
    >>> page = show_model(model, [[0.9, 0.1]], documents=["fish in a tree"], words=["fish", "tree"])
    >>> page.html[:15]
    '<!doctype html>'
    """
    content = model_content(
        model,
        X,
        y,
        documents=documents,
        words=words,
        times=times,
        baseline=baseline,
        name=name,
        layout=layout,
    )
    page = make_page([content])
    page.height = height
    return page
