"""What a hierarchical Bayesian model has learned about its tree: weights of any node, and a table of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.metrics.table import Marked, Table
from arbora.structure import Hierarchy

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


class TreeReport:
    """Mixin for a fitted model with weights of all nodes of `tree_`, inner nodes first, then the classes."""

    structure: Hierarchy | None
    classes_: NDArray[Any]
    nodes_: NDArray[Any]
    hierarchy_: Hierarchy
    tree_: Hierarchy
    class_rows_: NDArray[np.float64]
    precisions_: NDArray[np.float64]
    node_coef_: NDArray[Any]
    node_coef_std_: NDArray[Any]
    node_intercept_: NDArray[Any]
    node_intercept_std_: NDArray[Any]

    @property
    def coef_(self) -> NDArray[Any]:
        """Posterior means of the weights of the classes."""
        return self.node_coef_[-len(self.classes_) :]

    @property
    def intercept_(self) -> NDArray[Any]:
        """Posterior means of the biases of the classes."""
        return self.node_intercept_[-len(self.classes_) :]

    @property
    def coef_std_(self) -> NDArray[Any]:
        """Posterior standard deviations of the weights of the classes."""
        return self.node_coef_std_[-len(self.classes_) :]

    @property
    def intercept_std_(self) -> NDArray[Any]:
        """Posterior standard deviations of the biases of the classes."""
        return self.node_intercept_std_[-len(self.classes_) :]

    def node_weights(self, nodes: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights of any nodes; one without documents has those of the nearest node above that has some.

        Parameters
        ----------
        nodes : sequence of names

        Returns
        -------
        coef : ndarray of shape (n_nodes, n_features)
        intercept : ndarray of shape (n_nodes,)
        """
        check_is_fitted(self)
        rows = np.array([self._row_of(name) for name in nodes], np.int64)
        return self.node_coef_[rows], self.node_intercept_[rows]

    def _row_of(self, name: Any) -> int:
        if self.structure is None:
            known = np.flatnonzero(self.nodes_ == name)
            if not known.size:
                raise ValueError(f"{name!r} is not a class of the model, which has no structure.")
            return int(self.tree_.id_of(int(known[0])))
        for candidate in reversed(self.hierarchy_.path(name)):
            if candidate in self.tree_:
                return int(self.tree_.id_of(candidate))
        return 0  # a root of a forest without documents: what is above is the root of the model

    def node_summary(self) -> Table:
        """Table of the nodes: which families share much, and which nodes stray from their siblings.

        Returns
        -------
        Table
            A row for each node of `tree_` but the root, with columns

            - Node, Parent, Rows (documents at or below it, one with several labels there once for each);
            - Precision: expected, around its parent (M2: geometric mean over the features);
            - Distance: root mean square of the differences of its weights from its parent's;
            - Against siblings: that distance over the median of its siblings' (and its own); marked * above 2;
            - Shared: of an inner node, the share of its children's squared weights that is its own; near 1 the
              family is of one kind, near 0 the children have little in common.
        """
        check_is_fitted(self)
        names = self.tree_.names.astype(object)
        if self.structure is None:
            names = np.array(
                [self.nodes_[name] if name in range(len(self.nodes_)) else name for name in names], object
            )
        return summarise_nodes(self.tree_.parent, names, self.class_rows_, self.precisions_, self.node_coef_)
