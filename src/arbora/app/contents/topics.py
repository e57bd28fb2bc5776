"""The content of a topic model: its tree, words and documents, and its topics over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.app.answers import known_rows, topic_means, topic_probabilities
from arbora.app.contents.nodes import (
    N_WORDS,
    About,
    DocumentTree,
    Subject,
    base_content,
    describe_tree,
    topic_titles,
)
from arbora.app.contents.words import (
    GroupForms,
    Terms,
    forms_of,
    group_forms,
    relevance_terms,
    typical_members,
    typical_words,
)
from arbora.app.documents import Documents
from arbora.app.folder import Content
from arbora.arrays import Array, Ints, Matrix
from arbora.core.estimator import warn_caller
from arbora.datasets.base import ROOT
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

# --- Topics over time: names of the time bins, and shares, words and trends of topics in each of them -------


TIME_WORDS = 10


def bin_names(starts: Matrix) -> list[str]:
    """Return the shortest names that distinguish the time bins.

    >>> bin_names(np.array([1999.0, 2000.0])), bin_names(np.array(["1999-03-01"], "datetime64[s]"))
    (['1999', '2000'], ['1999-03'])
    >>> bin_names(np.array([1790.0, 1793.8333, 1797.6667]))
    ['1790', '1794', '1798']
    """
    if starts.dtype.kind != "M":
        for digits in range(10):
            names = [f"{start:.{digits}f}" for start in starts.tolist()]
            if len(set(names)) == len(names):
                return names
        return [f"{start:.10g}" for start in starts.tolist()]
    for code in ("Y", "M", "D"):
        short = starts.astype(f"datetime64[{code}]")
        if (short.astype("datetime64[s]") == starts).all():
            return [str(start) for start in short]
    return [str(start) for start in starts]


def bin_of(starts: Matrix, times: Matrix) -> Ints:
    """Return the number of the time bin of each document.

    >>> bin_of(np.array([1999.0, 2001.0]), np.array([2000.5, 2001.0]))
    array([0, 1])
    """
    return np.clip(np.searchsorted(starts, times, side="right") - 1, 0, len(starts) - 1)


def describe_time(
    model: Any, field: str, times: Matrix | None, nodes: Ints, names: Sequence[str]
) -> dict[str, Any]:
    """Make the content of ``time.json`` of a fitted TemporalVMFMixture.

    `field` is the name of the time field, `nodes` has the id of the node of each topic, and `names` are those of the
    columns. Without `times` of documents the counts of the model are used.
    """
    starts = model.times_
    if times is None:
        n_documents = np.rint(model.counts_.sum(axis=1))
    else:
        n_documents = np.bincount(bin_of(starts, times), minlength=len(starts))
    labels = bin_names(starts)
    ends = [*_plain(starts[1:]), *_plain(np.array([model.time_end_]))]
    bins = [
        {"name": name, "start": start, "end": end, "n_documents": int(n)}
        for name, start, end, n in zip(labels, _plain(starts), ends, n_documents, strict=True)
    ]
    lives = model.dynamics()
    words = [
        [
            [[str(word), round(weight, 6)] for word, weight in moment.features]
            for moment in model.vocabulary(topic, names, n=TIME_WORDS)
        ]
        for topic in range(len(lives))
    ]
    return {
        "field": field,
        "bins": bins,
        "nodes": nodes.tolist(),
        "shares": [
            [None if np.isnan(share) else round(share, 6) for share in life.share.tolist()] for life in lives
        ],
        "words": words,
        "trends": [_trend(life, starts) for life in lives],
    }


def _plain(starts: Matrix) -> list[Any]:
    return [str(start) for start in starts] if starts.dtype.kind == "M" else starts.tolist()


def _trend(life: Any, starts: Matrix) -> dict[str, Any]:
    seen = np.flatnonzero(~np.isnan(life.share))
    share = life.share[seen]
    third = max(1, len(seen) // 3)

    def point(time: Any) -> int:
        return int(np.searchsorted(starts, time))

    return {
        "birth": point(life.birth),
        "peak": point(life.peak),
        "last": int(seen[-1]) if life.end is None else point(life.end),
        "change": round(float(share[-third:].mean() - share[:third].mean()), 6),
    }


# --- The content of a topic model: its tree, words and documents, and its topics over time ------------------


_TABLE_WORDS = 6
_MAX_DENSITY = 0.5  # largest share of entries that are not zero, in rows whose columns are words
_NAMED = 3  # documents named in a warning


class NodeWords(NamedTuple):
    """Words of each node of a tree, words for the slider of relevance if there are any, and the nodes of topics."""

    words: list[list[tuple[str, float]]]
    terms: list[Terms] | None
    leaves: Ints


class Topics(NamedTuple):
    """Topics in a tree with one root: means and concentrations of nodes, node and probability of rows, leaves."""

    tree: Hierarchy
    means: Matrix
    concentrations: Matrix | None
    node: Ints
    probability: Array
    leaves: Ints


def require_words(documents: Documents, X: Any) -> NDArray[np.bool_]:
    """Return which documents have known words; none is an error."""
    has_words = known_rows(X)
    if not has_words.any():
        raise ValueError(
            f"no document of {documents.name} has a known word: lower min_df, or give longer documents"
        )
    return has_words


def without_empty(documents: Documents, X: Any) -> tuple[Documents, Any, list[str]]:
    """Leave out documents with no known words; return the others, their rows, and notices that name some of them."""
    if known_rows(X).all():
        return documents, X, []
    has_words = require_words(documents, X)
    n_empty = int((~has_words).sum())
    names = ", ".join(documents.ids[row] for row in np.flatnonzero(~has_words)[:_NAMED].tolist())
    names += ", ..." if n_empty > _NAMED else ""
    what, are = ("document", "is") if n_empty == 1 else ("documents", "are")
    notice = f"{n_empty:,} {what} with no known words {are} left out ({names})."
    warn_caller(notice.rstrip("."))
    rows = np.flatnonzero(has_words)
    return documents.take(rows), X[rows], [notice]


def topics_of(estimator: Any, X: Any, times: Any = None) -> Topics:
    """Put the topics of a fitted model into a tree with one root, and the rows into the topics; there may be no rows.

    `times` of the rows are for topics over time.

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
    return Topics(tree, means, kappa, leaves[best], proba[np.arange(len(best)), best], leaves)


def topics_content(
    subject: Subject,
    times: Matrix | None,
    about: About,
    *,
    words: NodeWords | None = None,
    names: Mapping[int, str] | None = None,
) -> Content:
    """Describe a topic model and its documents: flat topics, a tree of topics, or topics over time.

    Topics over time have `times` (float64 or datetime64[s]), and the name of the time field in the setting
    "over_time". `words` are by default typical columns of the rows or, without rows of words, the largest entries of
    the means. `names` are titles that the user gave, by topic number.
    """
    estimator, X, _, columns, _ = subject
    topics = topics_of(estimator, X, times)
    words = words or node_words(topics, X, columns)
    titles = topic_titles(topics.tree, words.words)
    for topic, title in (names or {}).items():
        titles[int(topics.leaves[topic])] = title
    n_rows, ones = X.shape[0], np.ones(X.shape[0], bool)
    members = sp.csr_array((ones, topics.node, np.arange(n_rows + 1)), shape=(n_rows, topics.tree.n_nodes))
    described = describe_tree(
        DocumentTree(topics.tree, X, members),
        words.words,
        titles,
        about,
        centres=topics.means,
    )
    if topics.concentrations is not None:
        for node, kappa in zip(described.nodes, topics.concentrations.tolist(), strict=True):
            node["concentration"] = round(kappa, 3) if np.isfinite(kappa) else None
    if words.terms is not None:
        for node, terms in zip(described.nodes, words.terms, strict=True):
            node["terms"] = terms
    answers = {
        "node": topics.node[described.sampled].tolist(),
        "probability": topics.probability[described.sampled].round(4).tolist(),
    }
    kind = "topic tree" if hasattr(estimator, "hierarchy_") else "topics"
    over_time = None
    if hasattr(estimator, "times_"):
        kind = "topics over time"
        over_time = describe_time(estimator, about.settings["over_time"], times, topics.leaves, columns)
        if times is not None:
            answers["time"] = bin_of(estimator.times_, times[described.sampled]).tolist()
    content = base_content(kind, subject, described, answers, about)
    return content._replace(report=topics_text(described.nodes), time=over_time)


def node_words(topics: Topics, X: Any, columns: Sequence[str]) -> NodeWords:
    """Return words and terms of nodes: typical columns of their rows, or of their means if rows are dense."""
    X = sp.csr_array(X)
    if not X.nnz or X.nnz > _MAX_DENSITY * X.shape[0] * X.shape[1] or X.data.min() < 0:
        return NodeWords([top_words(mean, columns) for mean in topics.means], None, topics.leaves)
    below = topics.tree.close(sp.eye_array(topics.tree.n_nodes, dtype=bool, format="csr")).T
    members = typical_members(X, topics.node, topics.means)
    forms = group_forms(forms_of(None, X, columns, None), members).take(below.astype(np.float64))
    return _words_of_forms(topics, forms)


def topic_words(estimator: Any, forms: GroupForms) -> NodeWords:
    """Return words and terms of nodes, from the words and phrases of the documents of each topic."""
    topics = topics_of(estimator, sp.csr_array((0, estimator.n_features_in_)))
    below = sp.csr_array(topics.tree.ancestor_matrix[topics.leaves].astype(np.float64).T)
    return _words_of_forms(topics, forms.take(below))


def _words_of_forms(topics: Topics, forms: GroupForms) -> NodeWords:
    kin = np.asarray(topics.tree.parent).tolist()
    words = typical_words(forms, N_WORDS, siblings=kin)
    return NodeWords(words, relevance_terms(forms, kin), topics.leaves)


def top_words(mean: Matrix, names: Sequence[str]) -> list[tuple[str, float]]:
    """Return the names of the largest positive entries with their values, largest first.

    >>> top_words(np.array([0.1, 0.0, 0.9]), ["sea", "land", "sky"])
    [('sky', 0.9), ('sea', 0.1)]
    """
    count = min(N_WORDS, len(mean))
    top = np.argpartition(-mean, count - 1)[:count]
    top = top[np.lexsort((top, -mean[top]))]
    return [(str(names[j]), float(mean[j])) for j in top.tolist() if mean[j] > 0]


def topics_text(nodes: list[dict[str, Any]]) -> str:
    """Return a table of topics with their sizes and words, the largest first, children under their parents.

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
            words = ", ".join(word for word, _ in node["words"][:_TABLE_WORDS])
            rows.append(("  " * (node["depth"] - 1) + node["name"], node["size"], node["share"], words))
        waiting += reversed(children.get(node["id"], []))
    return str(Table(("Topic", "Documents", "%", "Words"), tuple(rows), ("", ",d", "percent", "")))
