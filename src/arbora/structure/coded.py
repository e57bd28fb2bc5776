"""The integer-coded side of a hierarchy: arrays by node id, computed once, read-only.

With ``pa(i)`` the parents of node ``i``, the depth is that of the longest path from a root,

    depth(i) = 0 if pa(i) is empty, else 1 + max over pa(i) of depth(p),

so that in a tree it is the usual one, and in a DAG every parent lies on an earlier level than its children.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from arbora.structure import arrays as _arrays
from arbora.structure import pairs as _pairs
from arbora.structure.arrays import Csr, Ids
from arbora.structure.base import NamedNodes
from arbora.structure.errors import CycleError, StructureError
from arbora.structure.names import counted, freeze

MAX_CLOSURE_BYTES = 2**32
"""Memory that computing `ancestor_matrix` may take, in bytes."""

_BYTES_PER_ENTRY = 36  # measured at most, while the matrix is computed; 5 of them stay


class CodedHierarchy(NamedNodes):
    """A rooted forest or DAG over node ids; see `arbora.structure.Hierarchy` for the part with names."""

    _kind = "hierarchy"

    def __init__(self, names: Iterable[Any], edges: ArrayLike) -> None:
        super().__init__(names, edges)
        # Sorting one number per edge orders edges by (parent, child) and drops repeated ones.
        keys = _arrays.distinct(self.edges[:, 0] * self.n_nodes + self.edges[:, 1])
        coded = np.column_stack(np.divmod(keys, self.n_nodes))
        depth = _arrays.depths(self.n_nodes, coded)
        if depth is None:
            raise CycleError(self.names[_arrays.find_cycle(self.n_nodes, coded)].tolist())
        self.__dict__.update(edges=freeze(coded), depth=freeze(depth))

    depth: Ids
    """Longest path from a root, per node."""

    def _refuse_loop(self, name: object, position: int) -> NoReturn:
        raise StructureError(f"node {name!r} is given as its own parent (edge {position}): remove that edge")

    @cached_property
    def _children(self) -> Csr:
        return Csr(*map(freeze, _arrays.compress(self.n_nodes, self.edges[:, 0], self.edges[:, 1])))

    @cached_property
    def _parents(self) -> Csr:
        return Csr(*map(freeze, _arrays.compress(self.n_nodes, self.edges[:, 1], self.edges[:, 0])))

    @property
    def child_indptr(self) -> Ids:
        """Where the children of each node start in `child_indices`."""
        return self._children.indptr

    @property
    def child_indices(self) -> Ids:
        """Children of node ``i``, ascending: ``child_indices[child_indptr[i]:child_indptr[i + 1]]``."""
        return self._children.indices

    @property
    def parent_indptr(self) -> Ids:
        """Where the parents of each node start in `parent_indices`."""
        return self._parents.indptr

    @property
    def parent_indices(self) -> Ids:
        """Parents of node ``i``, ascending: ``parent_indices[parent_indptr[i]:parent_indptr[i + 1]]``."""
        return self._parents.indices

    @cached_property
    def is_tree(self) -> bool:
        """Whether every node has at most one parent (several roots are allowed)."""
        return bool(np.diff(self.parent_indptr).max() <= 1)

    @cached_property
    def parent(self) -> Ids:
        """Parent of each node, -1 for roots; an error for a DAG that is no tree."""
        self._require_tree()
        parent = np.full(self.n_nodes, -1)
        parent[self.edges[:, 1]] = self.edges[:, 0]
        return freeze(parent)

    def _require_tree(self) -> None:
        if self.is_tree:
            return
        several = np.flatnonzero(np.diff(self.parent_indptr) > 1)
        first = several[0]
        above = self.decode(self.parent_indices[self.parent_indptr[first] : self.parent_indptr[first + 1]])
        listed = ", ".join(map(repr, above[:5].tolist())) + (", ..." if above.size > 5 else "")
        raise StructureError(
            f"a tree is needed, but node {self.names[first]!r} has {above.size} parents ({listed})"
            f"; {counted(several.size, 'node has', 'nodes have')} several parents"
        )

    @cached_property
    def height(self) -> int:
        """Greatest depth; 0 when all nodes are roots."""
        return int(self.depth.max())

    @cached_property
    def root_ids(self) -> Ids:
        """Nodes without parents, ascending."""
        return freeze(np.flatnonzero(np.diff(self.parent_indptr) == 0))

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Whether each node has no children."""
        return freeze(np.diff(self.child_indptr) == 0)

    @cached_property
    def leaf_ids(self) -> Ids:
        """Nodes without children, ascending."""
        return freeze(np.flatnonzero(self.is_leaf))

    @cached_property
    def order(self) -> Ids:
        """All nodes, parents before children: by depth, then by id."""
        return freeze(np.argsort(self.depth, kind="stable"))

    @cached_property
    def levels(self) -> tuple[Ids, ...]:
        """Nodes of depth 0, 1, ..., `height`, each ascending."""
        return _arrays.split_by(self.order, self.depth)

    @cached_property
    def ancestor_matrix(self) -> sparse.csr_array:
        """Boolean ``n_nodes x n_nodes`` CSR: row ``i`` marks ``i`` and all its ancestors.

        Computed when first asked for. Before each level is filled its size is bounded; beyond 4 GiB
        (deep chains: the matrix is quadratic in their length) a MemoryError says so. `close` and
        `most_specific` never need it.
        """
        n_entries = int(self.depth.sum()) + self.n_nodes  # exact for a tree, a lower bound for a DAG
        allowed = MAX_CLOSURE_BYTES // _BYTES_PER_ENTRY
        try:
            if n_entries > allowed:
                raise MemoryError
            indptr, indices = _arrays.ancestor_rows(self._parents, self.levels, allowed)
        except MemoryError:
            raise MemoryError(
                f"the ancestor matrix of {self.n_nodes} nodes needs at least"
                f" {n_entries * _BYTES_PER_ENTRY:.2g} bytes (allowed: {MAX_CLOSURE_BYTES:.2g}):"
                " use close(Y), which does not build it"
            ) from None
        shape = (self.n_nodes, self.n_nodes)
        marks = np.ones(indices.size, dtype=bool)
        # Allowed sizes fit 32-bit indices, and products with them are faster.
        matrix = sparse.csr_array((marks, indices, indptr.astype(np.int32)), shape=shape)
        for array in (matrix.data, matrix.indices, matrix.indptr):
            freeze(array)
        return matrix

    def close(self, Y: Any) -> sparse.csr_array:
        """Close label sets under ancestors.

        Parameters
        ----------
        Y : sparse or dense indicator, n_samples x n_nodes
            Which nodes each sample carries (see `indicator`).

        Returns
        -------
        closed : boolean CSR array
            ``Y`` and every ancestor of its labels.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("root", "c")])
        >>> h.close(h.indicator([["b"], ["c"]])).toarray().astype(int)
        array([[1, 1, 1, 0],
               [1, 0, 0, 1]])
        """
        own = self._check_indicator(Y)
        return sparse.csr_array(own + self._strictly_above(own), dtype=bool)

    def most_specific(self, Y: Any) -> sparse.csr_array:
        """Drop the labels that are ancestors of another label of the same sample: the inverse of `close`.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("root", "c")])
        >>> h.most_specific(h.indicator([["root", "a", "b"], ["root", "c"]])).toarray().astype(int)
        array([[0, 0, 1, 0],
               [0, 0, 0, 1]])
        """
        own = self._check_indicator(Y)
        return sparse.csr_array(own > self._strictly_above(own))

    def _check_indicator(self, Y: Any) -> sparse.csr_array:
        own = sparse.csr_array(Y)
        if own.ndim != 2 or own.shape[1] != self.n_nodes:
            raise StructureError(
                f"the label indicator has shape {own.shape}: it needs one column per node ({self.n_nodes})"
            )
        own = own.astype(bool)
        own.eliminate_zeros()
        return own

    def _strictly_above(self, own: sparse.csr_array) -> sparse.csr_array:
        """Proper ancestors of the labels of each row."""
        steps = [step.tocoo() for step in self._climb(own)[1:]]
        rows = np.concatenate([step.row for step in steps])
        columns = np.concatenate([step.col for step in steps])
        return sparse.csr_array((np.ones(rows.size, dtype=bool), (rows, columns)), shape=own.shape)

    def _climb(self, own: sparse.csr_array) -> list[sparse.csr_array]:
        """Mark what each row reaches by climbing exactly 0, 1, 2, ... edges; the last is empty."""
        ones = np.ones(self.n_edges, dtype=bool)
        shape = (self.n_nodes, self.n_nodes)
        up = sparse.csr_array((ones, self.parent_indices, self.parent_indptr), shape=shape)
        steps = [own, own @ up]
        while steps[-1].nnz:
            steps.append(steps[-1] @ up)
        return steps

    @cached_property
    def _lifting(self) -> tuple[Ids, ...]:
        return _pairs.lifting_tables(self.parent, self.height)

    def lca_ids(self, a: ArrayLike, b: ArrayLike) -> Ids:
        """Lowest common ancestor of pairs of node ids; a node counts as its own ancestor.

        Parameters
        ----------
        a, b : array-like of int
            Node ids, broadcast against each other.

        Returns
        -------
        ids : ndarray of int64
            -1 where there is no common ancestor. In a DAG the deepest common ancestor, and among equally
            deep ones the smallest id; no other common ancestor lies below it.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_parents([-1, 0, 0, 1, 1])
        >>> h.lca_ids([3, 3, 3], [4, 2, 1])
        array([1, 0, 1])
        """
        first, second = self._check_pairs(a, b)
        if self.is_tree:
            found = _pairs.tree_lca(self._lifting, self.depth, first.ravel(), second.ravel())
        else:
            found = _pairs.dag_lca(self.ancestor_matrix, self.depth, first.ravel(), second.ravel())
        return found.reshape(first.shape)

    def distance_ids(self, a: ArrayLike, b: ArrayLike) -> Ids:
        """Edges between pairs of node ids: up to a common ancestor and down again, the shortest such way.

        Parameters
        ----------
        a, b : array-like of int
            Node ids, broadcast against each other.

        Returns
        -------
        distances : ndarray of int64
            -1 where there is no common ancestor.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_parents([-1, 0, 0, 1, 1])
        >>> h.distance_ids(3, [3, 4, 2, 0])
        array([0, 2, 3, 2])
        """
        first, second = self._check_pairs(a, b)
        if self.is_tree:
            meet = self.lca_ids(first, second)
            return np.where(meet < 0, -1, self.depth[first] + self.depth[second] - 2 * self.depth[meet])
        nodes, rows = np.unique(np.concatenate([first.ravel(), second.ravel()]), return_inverse=True)
        start = sparse.csr_array(
            (np.ones(nodes.size, dtype=bool), nodes, np.arange(nodes.size + 1)),
            shape=(nodes.size, self.n_nodes),
        )
        found = _pairs.dag_distance(self._climb(start), rows[: first.size], rows[first.size :])
        return found.reshape(first.shape)

    def _check_pairs(self, a: ArrayLike, b: ArrayLike) -> tuple[Ids, Ids]:
        first, second = np.broadcast_arrays(self._check_ids(a), self._check_ids(b))
        return first, second

    def ancestor_ids(self, node: int) -> Ids:
        """Ids of all proper ancestors of a node, parents before children.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_parents([-1, 0, 1, 1]).ancestor_ids(3)
        array([0, 1])
        """
        return self._reachable(self._parents, node)

    def descendant_ids(self, node: int) -> Ids:
        """Ids of all proper descendants of a node, parents before children.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_parents([-1, 0, 1, 1]).descendant_ids(0)
        array([1, 2, 3])
        """
        return self._reachable(self._children, node)

    def _reachable(self, rows: Csr, node: int) -> Ids:
        start = int(self._check_ids(node))
        reached = csgraph.breadth_first_order(_arrays.as_matrix(rows), start, return_predecessors=False)
        others = np.sort(reached[1:]).astype(np.int64)
        return others[np.argsort(self.depth[others], kind="stable")]

    @cached_property
    def odd_even(self) -> tuple[Ids, Ids]:
        """Ids on even and on odd levels: given the ones, the others are independent of each other.

        An error for a DAG with an edge between levels of the same parity; `colour_groups` always works.
        """
        same = np.flatnonzero((self.depth[self.edges[:, 0]] - self.depth[self.edges[:, 1]]) % 2 == 0)
        if same.size:
            parent, child = self.names[self.edges[same[0]]].tolist()
            raise StructureError(
                f"odd and even levels are not independent: {parent!r} and its child {child!r}"
                " are both on even or both on odd levels: use colour_groups"
            )
        return freeze(np.flatnonzero(self.depth % 2 == 0)), freeze(np.flatnonzero(self.depth % 2))

    @cached_property
    def _colours(self) -> Ids:
        # The parity of the level is the two-colouring of a tree, and needs no search.
        return freeze(self.depth % 2) if self.is_tree else super()._colours

    @cached_property
    def _main_parent(self) -> Ids:
        """The deepest parent of each node (the smallest id among equals), -1 for roots."""
        parents, children = self.edges.T
        # The last write wins, so the preferred parent comes last.
        last = np.lexsort((-parents, self.depth[parents]))
        chosen = np.full(self.n_nodes, -1)
        chosen[children[last]] = parents[last]
        return chosen
