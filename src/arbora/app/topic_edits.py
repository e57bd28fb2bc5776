"""Edits of the topics of a fitted model: merge and split. `EditedTopics` is a model with edits.

An edit changes the columns of the probabilities of topics. A merge adds columns up; a split divides a column by the
probabilities of a mixture that was fitted to the documents of the topic. Edits are applied one after the other, so
that the last one can be undone. The model below them is never changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from arbora.app.answers import known_rows, topic_means
from arbora.arrays import TINY, Array, Matrix
from arbora.core.estimator import Explorable
from arbora.discover.vmf.temporal import TemporalVMFMixture
from arbora.structure import Hierarchy

_ROOT = "root"

# --- Edits as data: the lists that the page exports ---------------------------------------------------------
#
# A file of edits is JSON, ``{"format": "arbora-edits", "version": 1, "edits": [...]}``. An edit is one of
#
# - ``{"edit": "rename", "topic": 3, "title": "Banks"}``,
# - ``{"edit": "merge", "topics": [3, 5]}``,
# - ``{"edit": "split", "topic": 2, "n_topics": 2}``,
#
# with the numbers that topics have when the edit is applied, after the edits before it.


FORMAT, VERSION = "arbora-edits", 1
MAX_EDITS = 1_000
MAX_PARTS = 50  # of a split
_MAX_TITLE = 200  # characters
_FIELDS = {"rename": {"topic", "title"}, "merge": {"topics"}, "split": {"topic", "n_topics"}}


def check_edits(edits: Any) -> list[dict[str, Any]]:
    """Check that a value is a list of edits, or the content of a file of edits; return the list.

    >>> check_edits([{"edit": "merge", "topics": [0, 1]}])
    [{'edit': 'merge', 'topics': [0, 1]}]
    >>> check_edits([{"edit": "burn", "topic": 1}])
    Traceback (most recent call last):
        ...
    ValueError: edit 1 must be one of rename, merge, split, got 'burn'
    """
    if isinstance(edits, dict):
        if edits.get("format") != FORMAT or edits.get("version") != VERSION:
            raise ValueError(f"a file of edits has the format {FORMAT!r} and the version {VERSION}")
        edits = edits.get("edits")
    if not isinstance(edits, list) or len(edits) > MAX_EDITS:
        raise ValueError(f"edits are a list of at most {MAX_EDITS:,} objects")
    for place, edit in enumerate(edits, start=1):
        kind = edit.get("edit") if isinstance(edit, dict) else None
        if not isinstance(kind, str) or kind not in _FIELDS:
            raise ValueError(f"edit {place} must be one of {', '.join(_FIELDS)}, got {kind!r}")
        if set(edit) != {"edit", *_FIELDS[kind]}:
            raise ValueError(
                f"edit {place}, {kind}, needs {' and '.join(sorted(_FIELDS[kind]))}, nothing else"
            )
        if not isinstance(edit.get("topics", []), list):
            raise ValueError(f"edit {place}, {kind}: topics are a list of numbers")
        numbers = [*edit.get("topics", []), *(edit[key] for key in ("topic", "n_topics") if key in edit)]
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
            raise ValueError(f"edit {place}: topics are whole numbers")
        if kind == "rename" and not (isinstance(edit["title"], str) and len(edit["title"]) <= _MAX_TITLE):
            raise ValueError(f"edit {place}: a title is a text of at most {_MAX_TITLE} characters")
        if kind == "split" and not 2 <= edit["n_topics"] <= MAX_PARTS:
            raise ValueError(f"edit {place}: a topic is split into 2 to {MAX_PARTS} topics")
    return edits


def read_edits(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read a file of edits."""
    try:
        return check_edits(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a file of edits: {error}") from error


# --- Edits of a fitted model --------------------------------------------------------------------------------


class Merge(NamedTuple):
    """Some topics become one, at the place of the first of them."""

    topics: tuple[int, ...]


class Split(NamedTuple):
    """A topic becomes the components of a mixture, at its place."""

    topic: int
    mixture: Any


class Leaf(NamedTuple):
    """A topic: its path of names from the root, its direction, and its weight."""

    path: tuple[str, ...]
    mean: Array
    weight: float


def columns_after(edit: Merge | Split, n_topics: int) -> list[list[int]]:
    """Return, for each topic after an edit, the topics before it that it comes from.

    >>> columns_after(Merge((0, 2)), 4)
    [[0, 2], [1], [3]]
    """
    if isinstance(edit, Merge):
        first, others = edit.topics[0], set(edit.topics[1:])
        return [list(edit.topics) if k == first else [k] for k in range(n_topics) if k not in others]
    n_parts = len(edit.mixture.weights_)
    return [[k] for k in range(n_topics) for _ in range(n_parts if k == edit.topic else 1)]


def edit_sums(values: Any, edits: Sequence[Merge | Split], parts: Sequence[Any]) -> sp.csr_array:
    """Apply edits to a matrix with one row for each topic: rows of merged topics are added up.

    `parts` has, for each split, the matrix of the rows of its topics.
    """
    rows, split_rows = sp.csr_array(values), iter(parts)
    for edit in edits:
        if isinstance(edit, Merge):
            groups = columns_after(edit, rows.shape[0])
            owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
            adding = (np.ones(len(owner)), (owner, np.concatenate(groups)))
            rows = sp.csr_array(sp.csr_array(adding, shape=(len(groups), rows.shape[0])) @ rows)
        else:
            above, below = rows[: edit.topic], rows[edit.topic + 1 :]
            rows = sp.csr_array(sp.vstack([above, sp.csr_array(next(split_rows)), below], format="csr"))
    return rows


def edit_leaves(leaves: Sequence[Leaf], edits: Sequence[Merge | Split]) -> list[Leaf]:
    """Apply edits to topics."""
    leaves = list(leaves)
    for edit in edits:
        if isinstance(edit, Merge):
            leaves = [_merged([leaves[k] for k in group]) for group in columns_after(edit, len(leaves))]
        else:
            leaf, k = leaves[edit.topic], edit.topic
            new = [
                Leaf((*leaf.path, f"{leaf.path[-1]}/{i}"), mean, leaf.weight * float(share))
                for i, (mean, share) in enumerate(
                    zip(edit.mixture.means_, edit.mixture.weights_, strict=True)
                )
            ]
            leaves[k : k + 1] = new
    return leaves


def _merged(leaves: list[Leaf]) -> Leaf:
    if len(leaves) == 1:
        return leaves[0]
    return Leaf(leaves[0].path, _mean(leaves), sum(leaf.weight for leaf in leaves))


def _mean(leaves: Sequence[Leaf]) -> Array:
    total = np.sum([max(leaf.weight, 1e-12) * leaf.mean for leaf in leaves], axis=0)
    return np.asarray(total / max(float(np.linalg.norm(total)), TINY))


def closest_merges(leaves: Sequence[Leaf], n_topics: int) -> list[Merge]:
    """Return merges of the closest pairs, until `n_topics` are left.

    The distance of two topics with weights a and b is a b / (a + b) (1 - cosine), as in Ward's method.

    >>> corners = [Leaf(("root", str(i)), mean, 1.0) for i, mean in enumerate(np.eye(3)[[0, 1, 1]])]
    >>> closest_merges(corners, 2)
    [Merge(topics=(1, 2))]
    """
    merges, rest = [], list(leaves)
    while len(rest) > n_topics:
        means = np.array([leaf.mean / max(float(np.linalg.norm(leaf.mean)), 1e-300) for leaf in rest])
        weight = np.maximum([leaf.weight for leaf in rest], 1e-12)
        cost = np.multiply.outer(weight, weight) / np.add.outer(weight, weight) * (1 - means @ means.T)
        cost[np.tril_indices(len(rest))] = np.inf
        first, second = divmod(int(cost.argmin()), len(rest))
        merges.append(Merge((first, second)))
        rest = edit_leaves(rest, merges[-1:])
    return merges


def leaves_of(estimator: Any) -> list[Leaf]:
    """Return the topics of a fitted mixture or k-means."""
    means = topic_means(estimator)
    if hasattr(estimator, "hierarchy_"):
        names, tree = estimator.nodes_[estimator.leaf_ids_].tolist(), estimator.hierarchy_
        weights = estimator.weights_[estimator.leaf_ids_]
        paths = [tuple(map(str, tree.path(name))) for name in names]
        means = means[estimator.leaf_ids_]
    else:
        weights = getattr(estimator, "weights_", np.ones(len(means)) / len(means))
        paths = [(_ROOT, str(k)) for k in range(len(means))]
    return [Leaf(path, mean, float(w)) for path, mean, w in zip(paths, means, weights, strict=True)]


class EditedTopics(Explorable, BaseEstimator):
    """A fitted mixture or k-means with edits (`Merge`, `Split`) of its components, which are topics.

    `fit` sets ``means_`` and ``weights_`` of the topics, or of all nodes of a tree, and ``n_components_``; of a tree
    also ``hierarchy_``, ``nodes_`` and ``leaf_ids_``, as `arbora.discover.HierarchicalVMFMixture` has them; of topics
    over time also ``times_``, ``time_end_`` and ``counts_``, and ``means_`` of each time, as
    `arbora.discover.TemporalVMFMixture`.
    """

    def __init__(self, estimator: Any = None, edits: Any = ()) -> None:
        self.estimator = estimator
        self.edits = edits

    def fit(self, X: Any = None, y: Any = None) -> EditedTopics:
        """Apply the edits; X and y are ignored."""
        base, leaves = self.estimator, edit_leaves(leaves_of(self.estimator), self.edits)
        self.n_features_in_, self.n_components_ = base.n_features_in_, len(leaves)
        self.means_ = np.array([leaf.mean for leaf in leaves])
        self.weights_ = np.array([leaf.weight for leaf in leaves])
        if hasattr(base, "hierarchy_"):
            self._set_tree(leaves)
        if hasattr(base, "times_"):
            self._set_times(base)
        return self

    def _set_tree(self, leaves: list[Leaf]) -> None:
        edges = {pair: None for leaf in leaves for pair in zip(leaf.path, leaf.path[1:], strict=False)}
        self.hierarchy_ = Hierarchy.from_edges(list(edges), nodes=[leaves[0].path[0]])
        self.nodes_ = self.hierarchy_.names.copy()
        self.leaf_ids_ = self.hierarchy_.encode([leaf.path[-1] for leaf in leaves])
        below = [[leaf for leaf in leaves if name in leaf.path] for name in self.nodes_.tolist()]
        self.means_ = np.array([_mean(group) for group in below])
        self.weights_ = np.array([sum(leaf.weight for leaf in group) for group in below])

    def _set_times(self, base: Any) -> None:
        self.times_, self.time_end_ = base.times_, base.time_end_
        counts, means = base.counts_, base.means_
        for edit in self.edits:
            groups = columns_after(edit, counts.shape[1])
            sums = [np.einsum("tk,tkd->td", counts[:, g] + 1e-12, means[:, g]) for g in groups]
            counts = np.column_stack([counts[:, group].sum(axis=1) for group in groups])
            means = np.stack(sums, axis=1)
            means /= np.linalg.norm(means, axis=2, keepdims=True)
        self.counts_, self.means_ = counts, means

    def predict_proba(self, X: Any, times: Any = None) -> Array:
        """Return the probability of each topic given the row."""
        check_is_fitted(self)
        base = self.estimator
        if hasattr(base, "predict_proba"):
            proba = base.predict_proba(X) if times is None else base.predict_proba(X, times)
        else:
            proba = np.eye(base.n_clusters)[np.maximum(base.predict(X), 0)]
        for edit in self.edits:
            if isinstance(edit, Merge):
                groups = columns_after(edit, proba.shape[1])
                proba = np.column_stack([proba[:, group].sum(axis=1) for group in groups])
            else:
                parts = proba[:, [edit.topic]] * edit.mixture.predict_proba(X)
                proba = np.hstack([proba[:, : edit.topic], parts, proba[:, edit.topic + 1 :]])
        return np.asarray(proba)

    def predict(self, X: Any, times: Any = None) -> Matrix:
        """Return the most probable topic of each row; -1 for a zero row."""
        best = self.predict_proba(X, times).argmax(axis=1)
        return np.where(known_rows(X), best, -1)

    def is_novel(self, X: Any, *, level: float = 0.05) -> NDArray[np.bool_]:
        """Return which rows are unlike the training data."""
        return np.asarray(self.estimator.is_novel(X, level=level))

    def __getattr__(self, name: str) -> Any:
        """Methods of trees and of topics over time exist only if the model below has them."""
        if name == "predict_node_proba" and "hierarchy_" in vars(self):
            return self._node_proba
        if name in ("dynamics", "vocabulary", "_point") and "times_" in vars(self):
            return getattr(TemporalVMFMixture, name).__get__(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _node_proba(self, X: Any) -> Array:
        closure = self.hierarchy_.ancestor_matrix[self.leaf_ids_].astype(np.float64)
        return np.asarray(np.minimum(self.predict_proba(X) @ closure, 1.0))
