"""A table of what a hierarchical Bayesian model has learned about its tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.metrics.table import Marked, Table

_STRAYS = 2.0  # distance over the median of the siblings from which on a node is marked


def _squared_distances(parent: NDArray[np.int64], weights: NDArray[Any]) -> NDArray[np.float64]:
    """Squared distance of every node from its parent; of a root from zero."""
    squares = np.empty(len(parent))
    for node, up in enumerate(
        parent.tolist()
    ):  # one node at a time: there may be as many weights as memory holds
        away = weights[node] - weights[up] if up >= 0 else weights[node]
        squares[node] = np.dot(away, away)
    return squares


def _sums_to_parents(parent: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    inside = parent >= 0
    return np.bincount(parent[inside], values[inside], minlength=len(parent))


def against_siblings(parent: NDArray[np.int64], distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of every node over the median of its siblings and itself; NaN for roots and only children.

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
    weights: NDArray[Any],
) -> Table:
    """Make the table of `HierarchicalBayesClassifier.node_summary`; parents come first, classes last."""
    n_nodes = len(parent)
    rows = np.zeros(n_nodes)
    rows[n_nodes - len(class_rows) :] = class_rows
    for node in range(n_nodes - 1, 0, -1):
        if parent[node] >= 0:
            rows[parent[node]] += rows[node]
    squares = _squared_distances(parent, weights)
    distance = np.sqrt(squares / max(weights.shape[1], 1))
    ratio = against_siblings(parent, distance)
    n_children = np.bincount(parent[parent >= 0], minlength=n_nodes)
    own = np.array([np.dot(row, row) for row in weights])
    spread = _sums_to_parents(parent, squares) / np.maximum(n_children, 1)
    shared = np.where(n_children > 0, own / np.maximum(own + spread, np.finfo(float).tiny), np.nan)
    precision = precisions if precisions.ndim == 1 else np.exp(np.log(precisions).mean(axis=1))
    lines = [
        (
            str(names[node]),
            str(names[parent[node]]),
            float(rows[node]),
            float(precision[node]),
            float(distance[node]),
            Marked(ratio[node], "*" if ratio[node] > _STRAYS else ""),
            float(shared[node]),
        )
        for node in np.flatnonzero(parent >= 0).tolist()
    ]
    columns = ("Node", "Parent", "Rows", "Precision", "Distance", "Against siblings", "Shared")
    note = f"* more than {_STRAYS:g} times as far from the parent as half of the siblings"
    return Table(columns, lines, ("", "", ",.0f", ".3g", ".3f", ".2f", ".2f"), note=note)
