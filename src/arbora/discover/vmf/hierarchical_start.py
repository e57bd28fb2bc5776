"""Starts of a tree of clusters: bottom-up, top-down or random.

- **bottom-up**: find a cluster for each leaf without the tree; then, from the root down, distribute the clusters of a
  node over its children, so that the clusters of one child are similar. Each child gets as many clusters as it has
  leaves: k-means with given sizes, an assignment problem in each step, from several starts.
- **top-down**: split the rows of a node among its children by spherical k-means, from the root down.
- **random**: random labels.

Seeds (directions for some nodes) are initial centres of these splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from arbora.arrays import Array, Ints, Matrix
from arbora.core.products import csr_matmul
from arbora.discover.kmeans import split_rows
from arbora.discover.mixture.starts import label_sums, plus_plus
from arbora.discover.vmf.hierarchical_posterior import unit_vectors
from arbora.infer.mixture.statistics import WeightedRows
from arbora.structure import Hierarchy

_SPLIT_ITERATIONS = 20  # of k-means at a node, which need not converge for a start
_ARRANGEMENTS = 20  # starts of k-means with given sizes; the items are few clusters
_PINNED = 4.0  # larger than any difference of two cosines


class Seeds(NamedTuple):
    """Nodes with seeds, and a unit vector for each (n_seeds, n_features)."""

    nodes: Ints
    directions: Array


def random_leaves(rows: WeightedRows, tree: Hierarchy, seeds: Seeds, rng: np.random.Generator) -> Matrix:
    """Return directions of the leaves (n_leaves, n_features), from random labels of the rows."""
    n_leaves = len(tree.leaf_ids)
    labels = rng.permutation(np.arange(rows.X.shape[0]) % n_leaves)
    return _directions(label_sums(rows, labels, n_leaves), tree, seeds, rows.X.dtype)


def scattered_leaves(rows: WeightedRows, tree: Hierarchy, seeds: Seeds, rng: np.random.Generator) -> Matrix:
    """Return directions of the leaves (n_leaves, n_features): seeds, and rows far from each other."""
    pinned = _pinned(tree.leaf_ids, seeds)
    return _directions(_centres(rows, len(tree.leaf_ids), pinned, rng), tree, seeds, rows.X.dtype)


def split_leaves(rows: WeightedRows, tree: Hierarchy, seeds: Seeds, rng: np.random.Generator) -> Matrix:
    """Return directions of the leaves (n_leaves, n_features), by splits of the rows from the root down."""
    n_samples, n_features = rows.X.shape
    means = np.zeros((tree.n_nodes, n_features))
    members = {int(root): np.arange(n_samples) for root in tree.root_ids}
    for node in tree.order.tolist():
        ids = members.pop(node)
        means[node] = np.asarray(rows.X[ids].T @ rows.weight[ids]) if len(ids) else means[tree.parent[node]]
        children = tree.child_indices[tree.child_indptr[node] : tree.child_indptr[node + 1]]
        if len(children):
            labels = _split(rows.take(ids), len(children), _pinned(children, seeds), rng)
            members |= {int(child): ids[labels == k] for k, child in enumerate(children)}
    return _directions(means[tree.leaf_ids], tree, seeds, rows.X.dtype)


def arrange(tree: Hierarchy, directions: Matrix, seeds: Seeds, rng: np.random.Generator) -> Ints:
    """Return the cluster of each leaf of a tree with one root, so that clusters under one node are similar.

    Row k of `directions` is the direction of cluster k. Clusters of leaves with seeds stay there.
    """
    place = np.full(tree.n_nodes, -1)
    place[tree.leaf_ids] = np.arange(len(tree.leaf_ids))
    # Number of leaves at or below each node.
    below = np.asarray(tree.ancestor_matrix[tree.leaf_ids].sum(axis=0)).ravel()
    pinned = place[np.intersect1d(seeds.nodes, tree.leaf_ids)]
    clusters = np.empty(len(tree.leaf_ids), np.int64)
    members = {int(tree.root_ids[0]): np.arange(len(tree.leaf_ids))}
    for node in tree.order.tolist():
        ids = members.pop(node)
        children = tree.child_indices[tree.child_indptr[node] : tree.child_indptr[node + 1]]
        if not len(children):
            clusters[place[node]] = ids[0]
            continue
        under = tree.ancestor_matrix[tree.leaf_ids[ids]][:, children].toarray()
        bonus = _PINNED * under * np.isin(ids, pinned)[:, None]
        labels = _share(directions[ids], below[children], _pinned(children, seeds), bonus, rng)
        members |= {int(child): ids[labels == k] for k, child in enumerate(children)}
    return clusters


def _share(
    items: Matrix,
    sizes: Ints,
    pinned: Mapping[int, Array],
    bonus: Array,
    rng: np.random.Generator,
) -> Ints:
    """Return labels of items by spherical k-means with given cluster sizes, the best of several starts."""
    items = np.asarray(items, dtype=np.float64)
    if len(sizes) == 1:
        return np.zeros(len(items), np.int64)

    def similarity(labels: Ints) -> float:
        sums = np.array([items[labels == k].sum(axis=0) for k in range(len(sizes))])
        return float(np.linalg.norm(sums, axis=1).sum())

    starts = (_share_once(items, sizes, pinned, bonus, rng) for _ in range(_ARRANGEMENTS))
    return max(starts, key=similarity)


def _share_once(
    items: Array,
    sizes: Ints,
    pinned: Mapping[int, Array],
    bonus: Array,
    rng: np.random.Generator,
) -> Ints:
    """Return labels of items by spherical k-means with given cluster sizes, from one start."""
    n_clusters, slots = len(sizes), np.repeat(np.arange(len(sizes)), sizes)
    centres = _centres(WeightedRows(sp.csr_array(items), np.ones(len(items))), n_clusters, pinned, rng)
    labels = np.full(len(items), -1)
    for _ in range(_SPLIT_ITERATIONS):
        gain = items @ centres.T + bonus
        chosen = slots[linear_sum_assignment(gain[:, slots], maximize=True)[1]]
        if np.array_equal(chosen, labels):
            break
        labels = chosen
        sums = np.array([items[labels == k].sum(axis=0) for k in range(n_clusters)])
        for k, seed in pinned.items():
            sums[k] += seed
        centres = unit_vectors(sums, centres)[0]
    return labels


def _pinned(nodes: Ints, seeds: Seeds) -> dict[int, Array]:
    """Return the seeds of nodes, by position in `nodes`."""
    place = {int(node): k for k, node in enumerate(nodes)}
    return {
        place[node]: seed
        for node, seed in zip(seeds.nodes.tolist(), seeds.directions, strict=True)
        if node in place
    }


def _centres(
    rows: WeightedRows, n_clusters: int, pinned: Mapping[int, Array], rng: np.random.Generator
) -> Array:
    """Return pinned centres, and rows that are far from them and from each other as the other centres."""
    free = [k for k in range(n_clusters) if k not in pinned]
    centres, weight = np.zeros((n_clusters, rows.X.shape[1])), rows.weight
    if pinned:
        centres[list(pinned)] = list(pinned.values())
        cosine = csr_matmul(rows.X, np.ascontiguousarray(centres[list(pinned)].T, rows.X.dtype))
        weight = weight * np.maximum(1 - cosine.max(axis=1), 1e-6)
    if free:
        centres[free] = rows.X[plus_plus(WeightedRows(rows.X, weight), len(free), rng)].toarray()
    return centres


def _split(
    rows: WeightedRows, n_clusters: int, pinned: Mapping[int, Array], rng: np.random.Generator
) -> Ints:
    """Return the cluster of each row, by k-means from pinned centres and from rows far from them."""
    n_samples = rows.X.shape[0]
    if n_samples < n_clusters or n_clusters == 1:
        # One row for each child, those with seeds first.
        order = np.array([*pinned, *set(range(n_clusters)).difference(pinned)], np.int64)
        return np.asarray(order[np.arange(n_samples) % n_clusters])
    return split_rows(rows, _centres(rows, n_clusters, pinned, rng), _SPLIT_ITERATIONS)


def _directions(sums: Array, tree: Hierarchy, seeds: Seeds, dtype: Any) -> Matrix:
    """Return directions of leaves; a leaf with a seed has the direction of the seed."""
    axis = np.zeros_like(sums)
    axis[:, 0] = 1  # for rows that cancel
    directions, _ = unit_vectors(sums, axis)
    for k, seed in _pinned(tree.leaf_ids, seeds).items():
        directions[k] = seed
    return directions.astype(dtype)


def find_seeds(seeds: Any, structure: Hierarchy, X: sp.csr_array, feature_names: Any) -> Seeds:
    """Compute directions from the parameter `seeds`, in the order of the node ids.

    It maps nodes to words (names of columns, in `feature_names`), row numbers or vectors; or it has the name of a
    node for each row, None for a row without a label; or it is None. X has unit rows.
    """
    if feature_names is not None and len(feature_names) != X.shape[1]:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but X has {X.shape[1]} features: give one for each."
        )
    if seeds is None:
        seeds = {}
    elif not isinstance(seeds, Mapping):
        seeds = _labelled(seeds, X.shape[0])
    nodes = structure.encode(list(seeds))
    order = np.argsort(nodes)
    names = list(seeds)
    directions = np.zeros((len(names), X.shape[1]))
    for place, j in enumerate(order.tolist()):
        vector = _vector(names[j], seeds[names[j]], X, feature_names)
        length = np.linalg.norm(vector)
        if not 0 < length < np.inf:
            raise ValueError(
                f"the seed of node {names[j]!r} is zero or not finite: give words or rows that are not empty."
            )
        directions[place] = vector / length
    return Seeds(nodes[order], directions)


def _labelled(labels: Any, n_samples: int) -> dict[Any, Ints]:
    names = np.asarray(labels, dtype=object)
    if names.shape != (n_samples,):
        raise ValueError(
            f"seeds must be a mapping of nodes, or {n_samples} labels (None for a row without one), got an array of "
            f"shape {names.shape}."
        )
    rows: dict[Any, list[int]] = {}
    for i, label in enumerate(names.tolist()):
        if label is not None:
            rows.setdefault(label, []).append(i)
    return {label: np.array(ids) for label, ids in rows.items()}


def _vector(name: Any, seed: Any, X: sp.csr_array, feature_names: Any) -> Array:
    """Return the sum of the rows, words or vectors of a seed."""
    n_samples, n_features = X.shape
    dense = seed.toarray() if hasattr(seed, "toarray") else [seed] if isinstance(seed, str) else seed
    values = np.asarray(dense)
    if values.dtype.kind in "UO":
        if feature_names is None:
            raise ValueError(
                f"the seed of node {name!r} has words: give the words of the columns as feature_names."
            )
        place = {word: j for j, word in enumerate(feature_names)}
        unknown = [word for word in values.tolist() if word not in place]
        if unknown:
            raise ValueError(
                f"the seed of node {name!r} has the word {unknown[0]!r}, which is not in feature_names."
            )
        return np.bincount([place[word] for word in values.tolist()], minlength=n_features).astype(np.float64)
    if values.dtype.kind in "iu" and values.ndim == 1:
        if values.size == 0 or values.min() < 0 or values.max() >= n_samples:
            raise ValueError(
                f"the seed of node {name!r} has row numbers that are not between 0 and {n_samples - 1}."
            )
        return np.asarray(X[values].sum(axis=0), dtype=np.float64).ravel()
    if values.shape[-1:] != (n_features,) or values.ndim > 2:
        raise ValueError(
            f"the seed of node {name!r} must be words, row numbers, or vectors of {n_features} features; got "
            f"shape {values.shape}."
        )
    return np.asarray(np.atleast_2d(values).sum(axis=0), dtype=np.float64)
