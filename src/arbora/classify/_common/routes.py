"""Decisions of a top-down classifier: one score for each edge of the structure, one choice at each node.

All functions work on matrices of edge scores, with the edges of one parent side by side. Loops run over the levels of
the structure, never over rows or nodes.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.structure import Hierarchy
from arbora.structure.hierarchy import append_leaves, restrict


def build_routes(hierarchy: Hierarchy, class_nodes: NDArray[np.int64]) -> tuple[Hierarchy, NDArray[np.int64]]:
    """Build the structure that documents follow from the root to a class.

    An internal node that carries documents of its own gets a leaf for them, several roots get one above them, and
    nodes without documents are left out.

    Returns
    -------
    routes : Hierarchy
        With a single root; every leaf is a class.
    class_leaves : ndarray of int
        Leaf of each class.
    """
    internal = class_nodes[~hierarchy.is_leaf[class_nodes]]
    names, taken = hierarchy.names.tolist(), set(hierarchy)
    for name in hierarchy.decode(internal).tolist():
        names.append(_free_name(f"{name}/*", taken))  # 5 and "5" may both be nodes
        taken.add(names[-1])
    leaves = class_nodes.copy()
    leaves[~hierarchy.is_leaf[class_nodes]] = hierarchy.n_nodes + np.arange(len(internal))
    routes = Hierarchy(names, append_leaves(hierarchy.edges, hierarchy.n_nodes, internal))
    top = _free_name("root", taken)
    routes = routes.join_roots(top)  # old nodes keep their ids
    if routes.n_nodes == 1:  # a single class still needs a root
        routes = routes.with_edges([(top, routes.names[0])])
    seen = np.zeros(routes.n_nodes, dtype=bool)
    seen[routes.ancestor_matrix[leaves].indices] = True
    kept = Hierarchy(*restrict(routes.names, routes.edges, seen))
    return kept, (np.cumsum(seen) - 1)[leaves]


def _free_name(name: str, taken: Container[Any]) -> str:
    while name in taken:
        name += "*"
    return name


class Decisions:
    """Edges sorted by parent; the edges of a parent are a segment."""

    def __init__(self, routes: Hierarchy) -> None:
        self.routes = routes
        n_children = np.diff(routes.child_indptr)
        self.parents = np.flatnonzero(n_children)  # nodes with a choice, one segment each
        self.starts = routes.child_indptr[self.parents]
        self.child = routes.child_indices
        self.parent = np.repeat(np.arange(routes.n_nodes), n_children)
        self.segment = np.repeat(np.arange(len(self.parents)), n_children[self.parents])
        self.root = int(routes.root_ids[0])

    @property
    def n_edges(self) -> int:
        """Number of scores of a document."""
        return len(self.child)

    @cached_property
    def _segment_of(self) -> NDArray[np.int64]:
        """Segment of the choice at each node, -1 for leaves."""
        segment = np.full(self.routes.n_nodes, -1)
        segment[self.parents] = np.arange(len(self.parents))
        return segment

    @cached_property
    def _edges_by_level(self) -> list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """For each level below the root: edges into it sorted by child, starts of each child's run, children."""
        order = np.lexsort((self.child, self.routes.depth[self.child]))
        depth = self.routes.depth[self.child[order]]
        levels = []
        for edges in np.split(order, np.flatnonzero(np.diff(depth)) + 1):
            children, starts = np.unique(self.child[edges], return_index=True)
            levels.append((edges, starts, children))
        return levels

    def choose(self, scores: NDArray[Any]) -> NDArray[np.int64]:
        """Follow the best edge at every node from the root down; return the leaf."""
        best = np.maximum.reduceat(scores, self.starts, axis=1)
        edge = np.where(scores == best[:, self.segment], np.arange(self.n_edges), self.n_edges)
        chosen = self.child[np.minimum.reduceat(edge, self.starts, axis=1)]
        at = np.full(len(scores), self.root)
        rows = np.arange(len(scores))
        for _ in range(self.routes.height):
            segment = self._segment_of[at]
            at = np.where(segment >= 0, chosen[rows, segment], at)
        return at

    def log_conditional(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Logarithm of the softmax over the edges of each parent: the probability of the child given it."""
        shifted = scores - np.maximum.reduceat(scores, self.starts, axis=1)[:, self.segment]
        return shifted - np.log(np.add.reduceat(np.exp(shifted), self.starts, axis=1))[:, self.segment]

    def reach(self, conditional: NDArray[Any], exclusive: bool = True) -> NDArray[Any]:
        """Probability of each node: products along paths.

        In a DAG with exclusive choices, the probabilities of several paths to a node add up; otherwise the paths are
        independent, and the node is reached if any of them is taken.
        """
        proba = np.zeros((len(conditional), self.routes.n_nodes))
        proba[:, self.root] = 1.0
        for edges, starts, children in self._edges_by_level:
            flow = proba[:, self.parent[edges]] * conditional[:, edges]
            if exclusive:
                proba[:, children] = np.add.reduceat(flow, starts, axis=1)
            else:
                proba[:, children] = 1 - np.multiply.reduceat(1 - flow, starts, axis=1)
        return proba

    def weakest(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Smallest score on the path to each node (in a DAG: on the best path); that of the root is infinite."""
        worst = np.full((len(scores), self.routes.n_nodes), np.inf)
        for edges, starts, children in self._edges_by_level:
            flow = np.minimum(worst[:, self.parent[edges]], scores[:, edges])
            worst[:, children] = np.maximum.reduceat(flow, starts, axis=1)
        return worst
