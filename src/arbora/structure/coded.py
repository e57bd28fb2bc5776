"""`CodedHierarchy`: the arrays of a hierarchy by node id, read-only, each computed on first use.

With ``pa(i)`` the parents of node ``i``, the depth of a node is the length of the longest path from a root,

    depth(i) = 0 if pa(i) is empty, else 1 + max over p in pa(i) of depth(p).

In a tree this is the usual depth. In a DAG it puts every parent on an earlier level than its children.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from arbora.arrays import Ints
from arbora.structure import arrays
from arbora.structure import arrays as ancestry
from arbora.structure.arrays import Csr
from arbora.structure.errors import CycleError, StructureError
from arbora.structure.named_nodes import NamedNodes
from arbora.structure.names import counted, freeze


class CodedHierarchy(NamedNodes):
    """A rooted forest or DAG over node ids; `arbora.structure.Hierarchy` adds the methods that work on names."""

    _kind = "hierarchy"

    depth: Ints
    """Longest path from a root, per node."""

    def __init__(self, names: Iterable[Any], edges: ArrayLike) -> None:
        super().__init__(names, edges)
        # One number per edge: sorting it orders edges by (parent, child) and finds repeated ones.
        keys = arrays.distinct(self.edges[:, 0] * self.n_nodes + self.edges[:, 1])
        coded = np.column_stack(np.divmod(keys, self.n_nodes))
        depth = arrays.depths(self.n_nodes, coded)
        if depth is None:
            raise CycleError(self.names[arrays.find_cycle(self.n_nodes, coded)].tolist())
        self.__dict__.update(edges=freeze(coded), depth=freeze(depth))

    def _refuse_loop(self, name: object, position: int) -> NoReturn:
        raise StructureError(f"node {name!r} is given as its own parent (edge {position}): remove that edge")

    # ---- neighbours ---------------------------------------------------------------------------------

    @cached_property
    def _children(self) -> Csr:
        return Csr(*map(freeze, arrays.compress(self.n_nodes, self.edges[:, 0], self.edges[:, 1])))

    @cached_property
    def _parents(self) -> Csr:
        return Csr(*map(freeze, arrays.compress(self.n_nodes, self.edges[:, 1], self.edges[:, 0])))

    @property
    def child_indptr(self) -> Ints:
        """Start of the children of each node in `child_indices`."""
        return self._children.indptr

    @property
    def child_indices(self) -> Ints:
        """Children of node ``i``, ascending: ``child_indices[child_indptr[i]:child_indptr[i + 1]]``."""
        return self._children.indices

    @property
    def parent_indptr(self) -> Ints:
        """Start of the parents of each node in `parent_indices`."""
        return self._parents.indptr

    @property
    def parent_indices(self) -> Ints:
        """Parents of node ``i``, ascending: ``parent_indices[parent_indptr[i]:parent_indptr[i + 1]]``."""
        return self._parents.indices

    @cached_property
    def parent(self) -> Ints:
        """Parent of each node, -1 for roots; an error if a node has several parents."""
        if not self.is_tree:
            self._refuse_dag()
        parent = np.full(self.n_nodes, -1)
        parent[self.edges[:, 1]] = self.edges[:, 0]
        return freeze(parent)

    def _refuse_dag(self) -> NoReturn:
        several = np.flatnonzero(np.diff(self.parent_indptr) > 1)
        first = several[0]
        above = self.decode(self.parent_indices[self.parent_indptr[first] : self.parent_indptr[first + 1]])
        listed = ", ".join(map(repr, above[:5].tolist())) + (", ..." if above.size > 5 else "")
        raise StructureError(
            f"a tree is needed, but node {self.names[first]!r} has {above.size} parents ({listed})"
            f"; {counted(several.size, 'node has', 'nodes have')} several parents"
        )

    @cached_property
    def _main_parent(self) -> Ints:
        """The deepest parent of each node (the smallest id among equals), -1 for roots."""
        parents, children = self.edges.T
        # The last write wins, so the preferred parent comes last.
        last = np.lexsort((-parents, self.depth[parents]))
        chosen = np.full(self.n_nodes, -1)
        chosen[children[last]] = parents[last]
        return chosen

    # ---- shape --------------------------------------------------------------------------------------

    @cached_property
    def is_tree(self) -> bool:
        """Whether every node has at most one parent (several roots are allowed)."""
        return bool(np.diff(self.parent_indptr).max() <= 1)

    @cached_property
    def height(self) -> int:
        """Greatest depth; 0 when all nodes are roots."""
        return int(self.depth.max())

    @cached_property
    def root_ids(self) -> Ints:
        """Nodes without parents, ascending."""
        return freeze(np.flatnonzero(np.diff(self.parent_indptr) == 0))

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Whether each node has no children."""
        return freeze(np.diff(self.child_indptr) == 0)

    @cached_property
    def leaf_ids(self) -> Ints:
        """Nodes without children, ascending."""
        return freeze(np.flatnonzero(self.is_leaf))

    @cached_property
    def order(self) -> Ints:
        """All nodes, parents before children: by depth, then by id."""
        return freeze(np.argsort(self.depth, kind="stable"))

    @cached_property
    def levels(self) -> tuple[Ints, ...]:
        """Nodes of depth 0, 1, ..., `height`, each ascending."""
        return arrays.split_by(self.order, self.depth)

    # ---- ancestors ----------------------------------------------------------------------------------

    @cached_property
    def ancestor_matrix(self) -> sparse.csr_array:
        """Boolean ``n_nodes x n_nodes`` CSR: row ``i`` marks ``i`` and all its ancestors.

        The size of the matrix is quadratic in the length of a chain. A matrix that would need more than 4 GiB
        raises MemoryError before the memory is taken. `close` and `most_specific` do not need the matrix.
        """
        return ancestry.ancestor_matrix(self._parents, self.levels, self.depth)

    def ancestor_ids(self, node: int) -> Ints:
        """Ids of all proper ancestors of a node, parents before children.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_parents([-1, 0, 1, 1]).ancestor_ids(3)
        array([0, 1])
        """
        return ancestry.reachable(self._parents, int(self._check_ids(node)), self.depth)

    def descendant_ids(self, node: int) -> Ints:
        """Ids of all proper descendants of a node, parents before children.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_parents([-1, 0, 1, 1]).descendant_ids(0)
        array([1, 2, 3])
        """
        return ancestry.reachable(self._children, int(self._check_ids(node)), self.depth)

    def close(self, Y: Any) -> sparse.csr_array:
        """Close label sets under ancestors.

        Parameters
        ----------
        Y : sparse or dense indicator, n_samples x n_nodes
            Nodes of each sample (see `indicator`).

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
        return sparse.csr_array(own + ancestry.strictly_above(self._parents, own), dtype=bool)

    def most_specific(self, Y: Any) -> sparse.csr_array:
        """Drop labels that are ancestors of another label of the same sample: the inverse of `close`.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("root", "c")])
        >>> h.most_specific(h.indicator([["root", "a", "b"], ["root", "c"]])).toarray().astype(int)
        array([[0, 0, 1, 0],
               [0, 0, 0, 1]])
        """
        own = self._check_indicator(Y)
        return sparse.csr_array(own > ancestry.strictly_above(self._parents, own))

    def _check_indicator(self, Y: Any) -> sparse.csr_array:
        own = sparse.csr_array(Y)
        if own.ndim != 2 or own.shape[1] != self.n_nodes:
            raise StructureError(
                f"the label indicator has shape {own.shape}: it needs one column per node ({self.n_nodes})"
            )
        own = own.astype(bool)
        own.eliminate_zeros()
        return own

    # ---- pairs of nodes -----------------------------------------------------------------------------

    @cached_property
    def _lifting(self) -> tuple[Ints, ...]:
        return ancestry.lifting_tables(self.parent, self.height)

    def lca_ids(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Lowest common ancestor of pairs of node ids; a node counts as its own ancestor.

        Parameters
        ----------
        a, b : array-like of int
            Node ids, broadcast against each other.

        Returns
        -------
        ids : ndarray of int64
            -1 where there is no common ancestor. In a DAG the deepest common ancestor (the smallest id among
            equals).

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_parents([-1, 0, 0, 1, 1])
        >>> h.lca_ids([3, 3, 3], [4, 2, 1])
        array([1, 0, 1])
        """
        first, second = self._check_pairs(a, b)
        if self.is_tree:
            found = ancestry.tree_lca(self._lifting, self.depth, first.ravel(), second.ravel())
        else:
            found = ancestry.dag_lca(self.ancestor_matrix, self.depth, first.ravel(), second.ravel())
        return found.reshape(first.shape)

    def distance_ids(self, a: ArrayLike, b: ArrayLike) -> Ints:
        """Count the edges on the shortest way from ``a`` up to a common ancestor and down to ``b``.

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
        return ancestry.dag_distance(self._parents, first.ravel(), second.ravel()).reshape(first.shape)

    def _check_pairs(self, a: ArrayLike, b: ArrayLike) -> tuple[Ints, Ints]:
        first, second = np.broadcast_arrays(self._check_ids(a), self._check_ids(b))
        return first, second
