"""Look at a fitted model from Python: rows instead of files, a page instead of a folder.

``model.explore(X, y, documents=texts, words=names)`` ends here. The page is that of ``arbora explore``; nothing is
written to the disk.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_is_fitted

from arbora.app.answers import file_rows, known_rows, names_of
from arbora.app.contents import (
    Subject,
    as_text,
    classifier_content,
    topics_content,
    tree_to_show,
    without_empty,
)
from arbora.app.documents import Documents
from arbora.app.evaluation import Trial
from arbora.app.folder import Content, full_about
from arbora.datasets.errors import did_you_mean
from arbora.explore.page import Page, make_page
from arbora.structure import Hierarchy

_NO_ROWS = "No documents were given: the page shows the structure and its words, and no sizes."
_NO_NAMES = "X does not have valid feature names"  # rows are given on as a matrix, whatever they came as


def look_at(
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
) -> Page:
    """Make the page of a fitted classifier, mixture or k-means; ``model.explore(...)`` is the same.

    Parameters
    ----------
    model : fitted estimator of this package
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        Rows to be looked at.
    y : labels, optional
        Classifiers: as for `fit`; the page then has the view of quality, measured on these rows. Topics: a label to
        be shown with each row.
    documents : sequence of n_samples str, optional
        The texts that the rows come from.
    words : sequence of n_features names, optional
        Of the columns; by default the column names of the data frame of the fit, or numbers.
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
    Page
        Displayed by notebooks; `save` puts it into a file.

    Examples
    --------
    >>> from arbora.classify import OneVsRestSVC
    >>> model = OneVsRestSVC(random_state=0).fit([[1.0, 0.0], [0.0, 1.0]], ["sea", "land"])
    >>> page = look_at(model, [[0.9, 0.1]], documents=["fish in a tree"], words=["fish", "tree"])
    >>> page.html[:15]
    '<!doctype html>'
    """
    content = seen_in(
        model, X, y, documents=documents, words=words, times=times, baseline=baseline, name=name
    )
    page = make_page([content])
    page.height = height
    return page


def seen_in(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    documents: Sequence[str] | None = None,
    words: Sequence[str] | None = None,
    times: Any = None,
    baseline: Any = None,
    name: str | None = None,
) -> Content:
    """Gather what is to be seen of a fitted model; arguments as in `look_at`.

    Returns
    -------
    Content
        With the parts of a model folder that has been opened: `about`, `nodes`, `documents`, `time`, ...

    Examples
    --------
    >>> from arbora.discover import SphericalKMeans
    >>> model = SphericalKMeans(2, random_state=0).fit([[1.0, 0.1], [0.1, 1.0]])
    >>> sorted(node["title"] for node in seen_in(model, words=["fish", "tree"]).nodes)
    ['all documents', 'fish, tree', 'tree, fish']
    """
    check_is_fitted(model)
    rows = _rows(model, X)
    given = {"y": y, "documents": documents, "times": times}
    _check_lengths(rows.shape[0], given, with_rows=X is not None)
    names = _column_names(model, words)
    title = type(model).__name__ if name is None else name
    ids = [str(number) for number in range(1, rows.shape[0] + 1)]
    texts = None if documents is None else [str(text) for text in documents]
    read = Documents(
        title, ids, None, [(Path(title), None)] * len(ids), texts=texts, X=rows, feature_names=np.array(names)
    )
    subject = Subject(model, rows, read, names)
    notices = [_NO_ROWS] if X is None else []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_NO_NAMES)
        if hasattr(model, "classes_"):
            _refuse("times", times, "topics over time")
            content = _look_at_classes(subject, y, baseline, notices)
        else:
            _refuse("baseline", baseline, "classifiers")
            content = _look_at_topics(subject, y, times, notices)
    return content._replace(about=full_about(content))


def _rows(model: Any, X: Any) -> sp.csr_array:
    if X is None:
        return sp.csr_array((0, model.n_features_in_))
    rows = sp.csr_array(check_array(X, accept_sparse="csr", estimator=model, input_name="X"))
    if rows.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} columns, but the model has {model.n_features_in_}: give rows as to fit."
        )
    return rows


def _check_lengths(n_rows: int, given: dict[str, Any], *, with_rows: bool) -> None:
    for what, values in given.items():
        if values is None:
            continue
        if not with_rows:
            raise ValueError(f"{what} needs X: give the rows too, as to predict.")
        length = values.shape[0] if hasattr(values, "shape") else len(values)
        if length != n_rows:
            raise ValueError(f"{what} has {length} entries for {n_rows} rows of X: give one a row.")


def _refuse(what: str, value: Any, kind: str) -> None:
    if value is not None:
        raise ValueError(f"{what} is for {kind}.")


def _column_names(model: Any, words: Any) -> list[str]:
    if words is None:
        words = getattr(model, "feature_names_in_", range(model.n_features_in_))
    names = [str(word) for word in words]
    if len(names) != model.n_features_in_:
        raise ValueError(f"words has {len(names)} names, but the model has {model.n_features_in_} columns.")
    return names


def tree_of(model: Any) -> Hierarchy:
    """Structure of a fitted classifier as it is shown: names are strings, flat labels hang under one root.

    Examples
    --------
    >>> from arbora.classify import OneVsRestSVC
    >>> tree_of(OneVsRestSVC(random_state=0).fit([[1.0], [0.0]], [7, 8])).path("8")
    ['root', '8']
    """
    tree, names = model.hierarchy_, [str(name) for name in model.nodes_.tolist()]
    if not len(tree.edges):
        return tree_to_show(None, names)
    if names == tree.names.tolist():
        return tree
    return Hierarchy.from_edges([(names[a], names[b]) for a, b in tree.edges.tolist()], nodes=names)


def _look_at_classes(subject: Subject, y: Any, baseline: Any, notices: list[str]) -> Content:
    model, X, documents, _, _ = subject
    tree, trial, labels = tree_of(model), None, None
    if y is None:
        _refuse("baseline", baseline, "rows with labels: give y too")
    else:
        labels = as_text(names_of(model, y))
        _check_labels(labels, tree)
        filing = file_rows(model, X)
        filing = filing._replace(labels=as_text(filing.labels), likeliest=as_text(filing.likeliest))
        other = None if baseline is None else as_text(names_of(baseline, baseline.predict(X)))
        trial = Trial(labels, filing, other, np.arange(len(labels)), None, "given")
    subject = subject._replace(documents=_labelled(documents, labels))
    return classifier_content(subject, tree, trial, settings={}, notices=notices)


def _check_labels(labels: list[Any], tree: Hierarchy) -> None:
    for row, one in enumerate(labels):
        for name in one if isinstance(one, list) else [one]:
            if name not in tree:
                near = did_you_mean(name, map(str, tree.names))
                raise ValueError(f"label {name!r} of row {row} of y is not a node of the model{near}")


def _labelled(documents: Documents, labels: list[Any] | None) -> Documents:
    if labels is not None and not any(isinstance(one, list) for one in labels):
        labels = np.array(labels, object)
    return Documents(**{**vars(documents), "y": labels})


def _look_at_topics(subject: Subject, y: Any, times: Any, notices: list[str]) -> Content:
    model, X, documents, _, _ = subject
    stamps = None
    if times is not None:
        if not hasattr(model, "times_"):
            raise ValueError("times are for topics over time, and this model knows none.")
        stamps = _stamps(times)[known_rows(X)]
    documents = _labelled(documents, None if y is None else as_text(np.asarray(y, object).tolist()))
    documents, X, left_out = without_empty(documents, X)
    subject = subject._replace(X=X, documents=documents)
    return topics_content(subject, stamps, settings={"over_time": "time"}, notices=[*notices, *left_out])


def _stamps(times: Any) -> NDArray[Any]:
    given = np.asarray(times)
    return given.astype(np.float64 if given.dtype.kind in "biuf" else "datetime64[s]")
