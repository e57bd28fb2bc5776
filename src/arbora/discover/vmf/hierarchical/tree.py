"""Trees of clusters: as a `Hierarchy` with one root, and as the arrays of the updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.structure import Hierarchy

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

_ROOT = "root"


class Tree(NamedTuple):
    """The tree as arrays by node id.

    Attributes
    ----------
    parent : ndarray of shape (n_nodes,)
        -1 for the root.
    levels : tuple of ndarray
        Nodes of each depth.
    leaves : ndarray of shape (n_leaves,)
    children : sparse array of shape (n_nodes, n_nodes)
        1 where the column is a child of the row.
    counts : ndarray of shape (n_nodes,)
        Number of children and seeds of each node.
    seeds : sparse array of shape (n_nodes, n_features)
        Sums of the seeds.
    """

    parent: Ids
    levels: tuple[Ids, ...]
    leaves: Ids
    children: sp.csr_array
    counts: Array
    seeds: sp.csr_array

    @property
    def inner(self) -> NDArray[np.bool_]:
        """Whether each node has children."""
        return np.diff(self.children.indptr) > 0


def regular_tree(branching: Sequence[int]) -> Hierarchy:
    """Return a tree whose nodes at depth d have ``branching[d]`` children, named by their paths: 0, 0/0, 0/1, ...

    Examples
    --------
    >>> regular_tree((2, 2)).leaves()
    ['0/0', '0/1', '1/0', '1/1']
    """
    edges: list[tuple[str, str]] = []
    above = [_ROOT]
    for width in branching:
        level = [(name, f"{i}" if name == _ROOT else f"{name}/{i}") for name in above for i in range(width)]
        edges += level
        above = [child for _, child in level]
    return Hierarchy.from_edges(edges, nodes=[_ROOT])


def pruned_tree(tree: Hierarchy, kept: Sequence[int]) -> tuple[Hierarchy, Ids]:
    """Return a tree with some of the leaves: a node that has lost all children but one is replaced by that child.

    Parameters
    ----------
    tree : Hierarchy
        With one root.
    kept : sequence of int
        Positions in `leaf_ids` of the leaves to keep; at least one.

    Returns
    -------
    tree : Hierarchy
        Nodes are named by their paths, as in `regular_tree`.
    leaves : ndarray of shape (n_kept,)
        For each leaf of the new tree, in the order of its `leaf_ids`, its position among the old leaves.

    Examples
    --------
    >>> tree, leaves = pruned_tree(regular_tree((2, 2)), [0, 3, 2])
    >>> tree.leaves(), leaves
    (['0', '1/0', '1/1'], array([0, 2, 3]))
    """
    place = {int(tree.leaf_ids[k]): k for k in kept}
    edges: list[tuple[str, str]] = []
    leaves: dict[str, int] = {}

    def survivors(node: int) -> list[int]:
        """Return the children of a node in the new tree."""
        children = tree.child_indices[tree.child_indptr[node] : tree.child_indptr[node + 1]].tolist()
        alive = [child for child in children if child in place or survivors(child)]
        if len(alive) == 1 < len(children):
            return survivors(alive[0]) or alive
        return [_only(child) for child in alive]

    def _only(node: int) -> int:
        below = survivors(node)
        return below[0] if len(below) == 1 and below[0] in place else node

    waiting = [(int(tree.root_ids[0]), _ROOT)]
    while waiting:
        node, name = waiting.pop(0)
        if node in place:
            leaves[name] = place[node]
            continue
        below = [
            (child, f"{i}" if name == _ROOT else f"{name}/{i}") for i, child in enumerate(survivors(node))
        ]
        edges += [(name, child) for _, child in below]
        waiting += below
    new = Hierarchy.from_edges(edges, nodes=[_ROOT])
    return new, np.array([leaves[name] for name in new.names[new.leaf_ids].tolist()])


def one_root(structure: Hierarchy) -> Hierarchy:
    """Return the tree, with a new root above several ones."""
    name = _ROOT
    while name in structure:
        name += "*"
    tree = structure.join_roots(name)
    tree.parent  # noqa: B018  raises an error that names the node, if the structure is not a tree
    return tree


def as_tree(structure: Hierarchy, seeds: sp.csr_array, seed_counts: Array, dtype: Any) -> Tree:
    """Return the arrays of a tree with one root and seeds at some nodes."""
    parent, children = np.asarray(structure.parent), structure.child_indices
    ones = np.ones(len(children), dtype)
    matrix = sp.csr_array((ones, children, structure.child_indptr), shape=(len(parent), len(parent)))
    counts = np.diff(structure.child_indptr) + seed_counts
    return Tree(
        parent, structure.levels, structure.leaf_ids, matrix, counts, sp.csr_array(seeds, dtype=dtype)
    )
