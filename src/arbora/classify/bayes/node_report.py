"""Reports on the nodes of a fitted hierarchical Bayesian model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.metrics.table import Marked, Table
from arbora.structure import Hierarchy

Array = NDArray[np.float64]

_MARK_ABOVE = 2.0  # a node is marked if its distance over the median of its siblings exceeds this


def fitted_ancestor(tree: Hierarchy, hierarchy: Hierarchy, name: Any) -> int:
    """Id in the fitted tree of a node of the structure, or of its nearest ancestor that was fitted.

    Examples
    --------
    >>> tree, hierarchy = Hierarchy.from_paths(["a/b"]), Hierarchy.from_paths(["a/b", "a/c"])
    >>> tree.names[fitted_ancestor(tree, hierarchy, "a/c")]
    'a'
    """
    for candidate in reversed(hierarchy.path(name)):
        if candidate in tree:
            return int(tree.id_of(candidate))
    return 0  # a tree of a forest without documents: the root of the model


def ids_of_nodes(estimator: Any, nodes: Any) -> NDArray[np.int64]:
    """Ids in the fitted tree of nodes of the structure, or of their nearest ancestors that were fitted."""
    tree = estimator.tree_
    if estimator.structure is not None:
        return np.array([fitted_ancestor(tree, estimator.hierarchy_, name) for name in nodes], np.int64)
    column = {name: i for i, name in enumerate(estimator.nodes_.tolist())}
    unknown = [name for name in nodes if name not in column]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a class of the model, which has no structure.")
    return np.array([tree.id_of(column[name]) for name in nodes], np.int64)


def node_names(estimator: Any) -> NDArray[Any]:
    """Names of the nodes of the fitted tree; without a structure, the leaves have the names of the classes."""
    names = estimator.tree_.names.astype(object)
    if estimator.structure is not None:
        return np.asarray(names)
    known = range(len(estimator.nodes_))
    return np.array([estimator.nodes_[name] if name in known else name for name in names], object)


def squared_norms(parent: NDArray[np.int64], weights: NDArray[Any]) -> tuple[Array, Array]:
    """Squared distance of every node from its parent, of a root from zero; and squared norm of its weights."""
    squares = np.empty(len(parent))
    for node, up in enumerate(parent.tolist()):  # one node at a time, because the weights may fill the memory
        difference = weights[node] - weights[up] if up >= 0 else weights[node]
        squares[node] = np.dot(difference, difference)
    return squares, np.array([np.dot(row, row) for row in weights])


def _sums_to_parents(parent: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    inside = parent >= 0
    return np.asarray(np.bincount(parent[inside], values[inside], minlength=len(parent)), np.float64)


def against_siblings(parent: NDArray[np.int64], distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of every node over the median of its family (siblings and itself); NaN for roots and only children.

    Examples
    --------
    >>> against_siblings(np.array([-1, 0, 0, 0]), np.array([0.0, 1.0, 1.0, 3.0]))
    array([nan,  1.,  1.,  3.])
    """
    ratio = np.full(len(parent), np.nan)
    order = np.argsort(parent, kind="stable")
    for family in np.split(order, np.flatnonzero(np.diff(parent[order])) + 1):
        if parent[family[0]] >= 0 and len(family) > 1:
            ratio[family] = distance[family] / max(float(np.median(distance[family])), np.finfo(float).tiny)
    return ratio


def summarise_nodes(
    parent: NDArray[np.int64],
    names: NDArray[Any],
    class_rows: NDArray[np.float64],
    precisions: NDArray[np.float64],
    norms: tuple[Array, Array],
    n_features: int,
) -> Table:
    """Make the table of `HierarchicalBayesClassifier.node_summary`.

    Parents come before their children, and the classes come last. `norms` are those of `squared_norms`.
    """
    n_nodes = len(parent)
    rows = np.zeros(n_nodes)
    rows[n_nodes - len(class_rows) :] = class_rows
    for node in range(n_nodes - 1, 0, -1):
        if parent[node] >= 0:
            rows[parent[node]] += rows[node]
    squares, own = norms
    distance = np.sqrt(squares / max(n_features, 1))
    ratio = against_siblings(parent, distance)
    n_children = np.bincount(parent[parent >= 0], minlength=n_nodes)
    of_children = _sums_to_parents(parent, squares) / np.maximum(n_children, 1)
    shared = np.where(n_children > 0, own / np.maximum(own + of_children, np.finfo(float).tiny), np.nan)
    precision = precisions if precisions.ndim == 1 else np.exp(np.log(precisions).mean(axis=1))
    lines = [
        (
            str(names[node]),
            str(names[parent[node]]),
            float(rows[node]),
            float(precision[node]),
            float(distance[node]),
            Marked(ratio[node], "*" if ratio[node] > _MARK_ABOVE else ""),
            float(shared[node]),
        )
        for node in np.flatnonzero(parent >= 0).tolist()
    ]
    columns = ("Node", "Parent", "Rows", "Precision", "Distance", "Against siblings", "Shared")
    note = f"* more than {_MARK_ABOVE:g} times the median distance of the siblings"
    return Table(columns, tuple(lines), ("", "", ",.0f", ".3g", ".3f", ".2f", ".2f"), note=note)
