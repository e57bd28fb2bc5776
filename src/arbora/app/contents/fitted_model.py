"""The content of a fitted model with rows in memory, for ``model.explore(...)`` and figures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array, check_is_fitted

from arbora.app.answers import known_rows, label_names_of
from arbora.app.contents.classifier import classifier_content
from arbora.app.contents.groups import SURE, Membership, clusters_content, groups_content
from arbora.app.contents.nodes import About, Subject
from arbora.app.contents.positions import LAYOUTS
from arbora.app.contents.topics import topics_content, without_empty
from arbora.app.documents import Documents, as_times
from arbora.app.evaluation import trial_of
from arbora.app.folder import Content, full_about
from arbora.app.labels import as_text, label_sets, tree_of_model
from arbora.core.validation import check_size, check_structure
from arbora.datasets.base import did_you_mean, name_array
from arbora.structure import Hierarchy

_NO_ROWS = "No documents were given: the page shows the structure and its words, without sizes."
_NO_NAMES = "X does not have valid feature names"  # rows of a data frame are passed on as a matrix


def model_content(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    documents: Sequence[str] | None = None,
    words: Sequence[str] | None = None,
    times: Any = None,
    baseline: Any = None,
    name: str | None = None,
    layout: str = LAYOUTS[0],
) -> Content:
    """Describe a fitted model of this package, and rows in memory, with the parts of an open model folder.

    The arguments are those of ``model.explore``. `y` has the labels of a classifier as for `fit`, for an evaluation
    on these rows, a label to show with each row of a topic model, or the labels of the fit of ExpandClusters, with
    its X. `words` are names of the columns, by default those of the data frame of the fit; `times` are those of the
    rows, for topics over time; `baseline` is a flat classifier to compare with; `layout` is that of
    `place_documents`.

    >>> from arbora.discover import SphericalKMeans
    >>> model = SphericalKMeans(2, random_state=0).fit([[1.0, 0.1], [0.1, 1.0]])
    >>> sorted(node["title"] for node in model_content(model, words=["fish", "tree"]).nodes)
    ['all documents', 'fish, tree', 'tree, fish']
    """
    check_is_fitted(model)
    if hasattr(model, "content"):  # a model of raw texts, which are given in the place of X
        raw_texts = documents if X is None else X
        content: Content = model.content(raw_texts, y, times=times, name=name)
        return content._replace(about=full_about(content))
    rows = _rows(model, X)
    arguments = {"y": y, "documents": documents, "times": times}
    _check_lengths(rows.shape[0], arguments, with_rows=X is not None)
    names = _column_names(model, words)
    title = type(model).__name__ if name is None else name
    ids = [str(number) for number in range(1, rows.shape[0] + 1)]
    texts = None if documents is None else [str(text) for text in documents]
    places: list[tuple[Path, int | None]] = [(Path(title), None)] * len(ids)
    collection = Documents(title, ids, None, places, texts=texts, X=rows, feature_names=np.array(names))
    subject = Subject(model, rows, collection, names)
    about = About({"layout": layout}, [_NO_ROWS] if X is None else [])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_NO_NAMES)
        if hasattr(model, "label_counts_"):
            _refuse("times", times, "topics over time")
            _refuse("baseline", baseline, "classifiers")
            content = _clusters(subject, y, about)
        elif hasattr(model, "known_classes_"):
            _refuse("times", times, "topics over time")
            _refuse("baseline", baseline, "classifiers")
            content = _groups(subject, y, about)
        elif hasattr(model, "classes_"):
            _refuse("times", times, "topics over time")
            content = _classifier(subject, y, baseline, about)
        else:
            _refuse("baseline", baseline, "classifiers")
            content = _topics(subject, y, times, about)
    return content._replace(about=full_about(content))


def _rows(model: Any, X: Any) -> sp.csr_array:
    if X is None:
        return sp.csr_array((0, model.n_features_in_))
    check_structure(X)
    check_size(X, False)
    rows = sp.csr_array(check_array(X, accept_sparse="csr", estimator=model, input_name="X"))
    if rows.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} columns, but the model has {model.n_features_in_}: give rows as for fit."
        )
    return rows


def _check_lengths(n_rows: int, arguments: dict[str, Any], *, with_rows: bool) -> None:
    for what, values in arguments.items():
        if values is None:
            continue
        if not with_rows:
            raise ValueError(f"{what} needs X: give the rows too, as for predict.")
        length = values.shape[0] if hasattr(values, "shape") else len(values)
        if length != n_rows:
            raise ValueError(f"{what} has {length} entries for {n_rows} rows of X: give one per row.")


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


def _classifier(subject: Subject, y: Any, baseline: Any, about: About) -> Content:
    model, X, documents, _, _ = subject
    tree, trial, labels = tree_of_model(model), None, None
    if y is None:
        _refuse("baseline", baseline, "rows with labels: give y too")
    else:
        labels = as_text(label_names_of(model, y))
        _check_labels(labels, tree)
        trial = trial_of(model, X, y, baseline)
    subject = subject._replace(documents=_with_labels(documents, labels))
    return classifier_content(subject, tree, trial, about)


def _check_labels(labels: list[Any], tree: Hierarchy) -> None:
    for row, names in enumerate(label_sets(labels)):
        for name in names:
            if name not in tree:
                near = did_you_mean(name, map(str, tree.names))
                raise ValueError(f"label {name!r} of row {row} of y is not a node of the model{near}")


def _with_labels(documents: Documents, labels: list[Any] | None) -> Documents:
    y: Any = labels
    if labels is not None and not any(isinstance(label, list) for label in labels):
        y = np.array(labels, object)
    return Documents(**{**vars(documents), "y": y})


def _topics(subject: Subject, y: Any, times: Any, about: About) -> Content:
    model, X, documents, _, _ = subject
    stamps = None
    if times is not None:
        if not hasattr(model, "times_"):
            raise ValueError("times are for topics over time, but this model has none.")
        stamps = as_times(times)[known_rows(X)]
    documents = _with_labels(documents, None if y is None else as_text(np.asarray(y, object).tolist()))
    documents, X, left_out = without_empty(documents, X)
    subject = subject._replace(X=X, documents=documents)
    settings = {"over_time": "time", **about.settings}
    return topics_content(subject, stamps, About(settings, [*about.notices, *left_out]))


def _clusters(subject: Subject, y: Any, about: About) -> Content:
    labels = None
    if y is not None:
        values = np.asarray(y, object)
        texts = (
            [" / ".join(map(str, names)) for names in values.tolist()]
            if values.ndim == 2
            else values.tolist()
        )
        labels = as_text(texts)
    subject = subject._replace(documents=_with_labels(subject.documents, labels))
    return clusters_content(subject, about)


def _groups(subject: Subject, y: Any, about: About) -> Content:
    model, X, documents, _, _ = subject
    if y is None or X.shape[0] != len(model.labels_):
        raise ValueError(f"{type(model).__name__} is shown with its own rows: give the X and y of the fit.")
    values = np.asarray(y, object).ravel().tolist()
    labels = [None if label is None or label != label or label == -1 else str(label) for label in values]
    documents = Documents(**{**vars(documents), "y": name_array(labels)})
    column_of = {name: column for column, name in enumerate(model.classes_.tolist())}
    columns = [column_of[name] for name in model.labels_.tolist()]
    predicted = model.predict_proba(X)[np.arange(len(columns)), columns]
    probability = np.where([label is None for label in labels], predicted, 1.0)
    filed = Membership(model.labels_, probability, SURE)
    return groups_content(subject._replace(documents=documents), filed, about)
