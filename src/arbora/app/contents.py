"""All that is to be seen of a model and its documents: what goes into a model folder, or straight into a page."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.app.answers import file_rows, known_rows, topic_means, topic_probabilities
from arbora.app.documents import Documents
from arbora.app.evaluation import Trial, evaluate, evaluation_text
from arbora.app.folder import Content
from arbora.app.nodes import (
    N_WORDS,
    SAMPLE,
    Filed,
    Shown,
    describe_documents,
    path_titles,
    show,
    topic_titles,
)
from arbora.app.topic_times import describe_time, points_of
from arbora.classify import words_of_nodes
from arbora.datasets.base import ROOT
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

_SHOWN_WORDS = 6
_NAMED = 3  # documents that are named in a warning


class Subject(NamedTuple):
    """What is looked at: a fitted model, rows, the documents they come from, and readable names of the columns."""

    estimator: Any
    X: Any
    documents: Documents
    names: Sequence[str]
    vectorizer: Any = None


class Topics(NamedTuple):
    """Topics in a tree with one root: means and concentrations of its nodes, node and probability of each row."""

    tree: Hierarchy
    means: NDArray[Any]
    concentrations: NDArray[Any] | None
    node: NDArray[np.int64]
    probability: NDArray[np.float64]


def tree_to_show(structure: Hierarchy | None, labels: Sequence[str]) -> Hierarchy:
    """Structure as it is shown: flat labels hang under one root.

    Examples
    --------
    >>> tree_to_show(None, ["a", "b"]).path("b")
    ['root', 'b']
    """
    if structure is not None:
        return structure
    root = ROOT
    while root in labels:
        root += "*"
    return Hierarchy.from_edges([(root, name) for name in labels])


def classifier_content(
    subject: Subject,
    tree: Hierarchy,
    trial: Trial | None = None,
    *,
    sample: int = SAMPLE,
    settings: Mapping[str, Any],
    notices: Sequence[str] = (),
) -> Content:
    """Gather what is to be seen of a classifier.

    Parameters
    ----------
    subject : Subject
        Documents without labels are counted where the model puts them.
    tree : Hierarchy
        As it is shown; names of nodes and labels are strings.
    trial : Trial, optional
        What was tried, for the evaluation; "documents" are rows of the subject.
    sample : int
        Most documents that are kept to be looked at.
    settings : mapping
        How the model was made.
    notices : sequence of str
        For the user.

    Returns
    -------
    Content
    """
    estimator, X, documents, names, _ = subject
    by_name = dict(zip(map(str, estimator.nodes_), words_of_nodes(estimator, names, N_WORDS), strict=True))
    words = [by_name.get(str(name), []) for name in tree.names]
    labels = documents.y if documents.y is not None else _labels(estimator, X)[0]
    sets = [label if isinstance(label, list) else [label] for label in labels]
    evaluation = None if trial is None else evaluate(trial, tree)
    confusions = [] if evaluation is None else evaluation["confusions"]
    shown = show(
        Filed(tree, X, sp.csr_array(tree.indicator(sets))),
        words,
        path_titles(tree),
        sample=sample,
        always=[row for one in confusions for row in one["documents"]],
        random_state=settings.get("seed", 0),
    )
    for one in confusions:
        one["documents"] = np.searchsorted(shown.sampled, one["documents"]).tolist()
    text = "The model was not evaluated."
    if evaluation is not None:
        text = evaluation_text(evaluation, [str(name) for name in tree.names])
    answers = _answers(subject, tree, trial, shown.sampled)
    content = _content("classifier", subject, shown, answers, settings, notices)
    several = estimator.label_kind_ != "single"
    return content._replace(
        about={**content.about, "multilabel": several}, report=text, evaluation=evaluation
    )


def as_text(labels: Sequence[Any]) -> list[Any]:
    """Labels as strings, as trees that are shown have them.

    Examples
    --------
    >>> as_text([3, [4, 5]])
    ['3', ['4', '5']]
    """
    return [list(map(str, one)) if isinstance(one, list) else str(one) for one in labels]


def _labels(estimator: Any, X: Any) -> tuple[list[Any], list[Any]]:
    """File rows; return labels, by name, and probabilities: one a row, or a list a row."""
    if not X.shape[0]:
        return [], []
    filing = file_rows(estimator, X)
    return as_text(filing.labels), filing.probability


def _answers(
    subject: Subject, tree: Hierarchy, trial: Trial | None, sampled: NDArray[np.int64]
) -> dict[str, list[Any]]:
    """Node and probability of the sampled documents: of tested ones, by the model that had not seen them."""
    tested = np.isin(sampled, [] if trial is None else trial.documents)
    others = sampled[~tested]
    found = dict(
        zip(others.tolist(), zip(*_labels(subject.estimator, subject.X[others]), strict=True), strict=True)
    )
    if trial is not None:
        answers = zip(trial.filing.labels, trial.filing.probability, strict=True)
        found |= dict(zip(trial.documents.tolist(), answers, strict=True))
    given = [found[row] for row in sampled.tolist()]
    return {
        "node": [tree.encode(one).tolist() if isinstance(one, list) else tree.id_of(one) for one, _ in given],
        "probability": [[round(q, 4) for q in p] if isinstance(p, list) else round(p, 4) for _, p in given],
        "seen": (~tested).tolist(),
    }


def _content(
    kind: str,
    subject: Subject,
    shown: Shown,
    answers: Mapping[str, Any],
    settings: Mapping[str, Any],
    notices: Sequence[str],
) -> Content:
    documents = subject.documents
    about = {
        "name": documents.name,
        "settings": dict(settings),
        "n_documents": len(documents),
        "multilabel": False,
        "notices": [*notices, *shown.notices],
    }
    kept = {
        "vectorizer": subject.vectorizer,
        "estimator": subject.estimator,
        "feature_names": None if documents.feature_names is None else list(subject.names),
    }
    return Content(
        kind,
        about,
        kept,
        shown.nodes,
        describe_documents(documents, shown.sampled, answers),
        shown.positions,
        shown.node_positions,
        report="",
    )


def without_empty(documents: Documents, X: Any) -> tuple[Documents, Any, list[str]]:
    """Leave out documents without any word that counts, which point nowhere; say which."""
    known = known_rows(X)
    n_empty = int((~known).sum())
    if not n_empty:
        return documents, X, []
    if n_empty == len(known):
        raise ValueError(
            f"no document of {documents.name} has a word that occurs in another: there are no topics"
        )
    some = ", ".join(documents.ids[row] for row in np.flatnonzero(~known)[:_NAMED].tolist())
    some += ", ..." if n_empty > _NAMED else ""
    what, are = ("document", "is") if n_empty == 1 else ("documents", "are")
    notice = f"{n_empty:,} {what} without any word that counts {are} left out ({some})."
    warnings.warn(notice.rstrip("."), stacklevel=2)
    kept = np.flatnonzero(known)
    return documents.take(kept), X[kept], [notice]


def topics_of(estimator: Any, X: Any, times: Any = None) -> Topics:
    """Put the topics of a fitted model into a tree with one root, and the rows into the topics.

    Parameters
    ----------
    estimator : fitted mixture or k-means
    X : sparse matrix of shape (n_samples, n_features)
        May have no rows.
    times : ndarray of shape (n_samples,), optional
        Of topics over time.

    Returns
    -------
    Topics

    Examples
    --------
    >>> from arbora.discover import SphericalKMeans
    >>> X = np.eye(2)
    >>> topics_of(SphericalKMeans(2, random_state=0).fit(X), X).tree.children("root")
    ['0', '1']
    """
    means = topic_means(estimator)
    proba = topic_probabilities(estimator, X, times) if X.shape[0] else np.empty((0, len(means)))
    kappa = getattr(estimator, "concentrations_", None)
    if hasattr(estimator, "hierarchy_"):
        tree, leaves = estimator.hierarchy_, estimator.leaf_ids_
        proba = proba[:, leaves]
    else:
        names = [str(topic) for topic in range(len(means))]
        tree = Hierarchy.from_edges([(ROOT, name) for name in names], nodes=[ROOT, *names])
        leaves = np.arange(1, len(means) + 1)
        size = np.bincount(proba.argmax(axis=1), minlength=len(means)) if len(proba) else np.ones(len(means))
        means = np.vstack([size @ means / size.sum(), means])
        kappa = None if kappa is None else np.append(np.nan, kappa)
    best = proba.argmax(axis=1)
    return Topics(tree, means, kappa, leaves[best], proba[np.arange(len(best)), best])


def topics_content(
    subject: Subject,
    times: NDArray[Any] | None = None,
    *,
    sample: int = SAMPLE,
    settings: Mapping[str, Any],
    notices: Sequence[str] = (),
) -> Content:
    """Gather what is to be seen of topics: flat, in a tree, or over time.

    Parameters
    ----------
    subject : Subject
    times : ndarray of shape (n_samples,), optional
        Float64 or datetime64[s], for topics over time.
    sample : int
        Most documents that are kept to be looked at.
    settings : mapping
        How the model was made; "over_time" is the name of the field of the times.
    notices : sequence of str
        For the user.

    Returns
    -------
    Content
    """
    estimator, X, _, names, _ = subject
    found = topics_of(estimator, X, times)
    words = [_top(mean, names) for mean in found.means]
    n_rows, ones = X.shape[0], np.ones(X.shape[0], bool)
    at = sp.csr_array((ones, found.node, np.arange(n_rows + 1)), shape=(n_rows, found.tree.n_nodes))
    shown = show(
        Filed(found.tree, X, at),
        words,
        topic_titles(found.tree, words),
        sample=sample,
        centres=found.means,
        random_state=settings.get("seed", 0),
    )
    if found.concentrations is not None:
        for node, kappa in zip(shown.nodes, found.concentrations.tolist(), strict=True):
            node["concentration"] = round(kappa, 3) if np.isfinite(kappa) else None
    answers = {
        "node": found.node[shown.sampled].tolist(),
        "probability": found.probability[shown.sampled].round(4).tolist(),
    }
    kind = "topic tree" if hasattr(estimator, "hierarchy_") else "topics"
    over_time = None
    if hasattr(estimator, "times_"):
        kind = "topics over time"
        topics = np.arange(1, found.tree.n_nodes)
        over_time = describe_time(estimator, settings["over_time"], times, topics, names)
        if times is not None:
            answers["time"] = points_of(estimator.times_, times[shown.sampled]).tolist()
    content = _content(kind, subject, shown, answers, settings, notices)
    return content._replace(report=topics_text(shown.nodes), time=over_time)


def _top(mean: NDArray[Any], names: Sequence[str]) -> list[tuple[str, float]]:
    count = min(N_WORDS, len(mean))
    top = np.argpartition(-mean, count - 1)[:count]
    top = top[np.lexsort((top, -mean[top]))]
    return [(str(names[j]), float(mean[j])) for j in top.tolist() if mean[j] > 0]


def topics_text(nodes: list[dict[str, Any]]) -> str:
    """Table of topics with their sizes and words, the largest first, children under their parents.

    Examples
    --------
    >>> node = {"id": 0, "parent": None, "depth": 0, "name": "root", "size": 2, "share": 1.0, "words": [["sea", 0.5]]}
    >>> print(topics_text([node, node | {"id": 1, "parent": 0, "depth": 1, "name": "0"}]))
    Topic  Documents       %  Words
    -----  ---------  ------  -----
    0              2  100.00  sea
    """
    children: dict[Any, list[dict[str, Any]]] = {}
    for node in sorted(nodes, key=lambda node: (-node["size"], node["id"])):
        children.setdefault(node["parent"], []).append(node)
    rows, waiting = [], list(reversed(children[None]))
    while waiting:
        node = waiting.pop()
        if node["parent"] is not None:
            words = ", ".join(word for word, _ in node["words"][:_SHOWN_WORDS])
            rows.append(("  " * (node["depth"] - 1) + node["name"], node["size"], node["share"], words))
        waiting += reversed(children.get(node["id"], []))
    return str(Table(("Topic", "Documents", "%", "Words"), rows, ("", ",d", "percent", "")))
