"""`Hierarchy`: a tree, a forest or a DAG of named classes.

Arrays by node id are read-only, each computed on first use. With ``pa(i)`` the parents of node ``i``, the depth of a
node is the length of the longest path from a root,

    depth(i) = 0 if pa(i) is empty, else 1 + max over p in pa(i) of depth(p).

In a tree this is the usual depth. In a DAG it puts every parent on an earlier level than its children.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from arbora.arrays import Ints, Names
from arbora.structure import ancestry, build
from arbora.structure.ancestry import Csr, jump_to_end
from arbora.structure.build import Coded, FilePath, naming, read_hierarchy
from arbora.structure.errors import CycleError, StructureError
from arbora.structure.graph import LabelGraph
from arbora.structure.named_nodes import NamedNodes
from arbora.structure.names import as_list, counted, freeze

# --- A hierarchy drawn as text ------------------------------------------------------------------------------


def tree_lines(
    names: Names, children: Csr, roots: Ints, max_depth: int | None, max_children: int | None, counts: Any
) -> Iterator[str]:
    """Lines of the drawn tree; a node with several parents is expanded at its first occurrence only."""
    suffixes = _suffixes(names, counts)
    shown: set[int] = set()
    # An entry is a node id, or minus the number of omitted siblings. No recursion: chains may be deep.
    stack = [("", "", entry, 0) for entry in _shorten(roots, max_children)]
    while stack:
        prefix, branch, entry, depth = stack.pop()
        if entry < 0:
            yield f"{prefix}{branch}... ({-entry} more)"
            continue
        below = children.indices[children.indptr[entry] : children.indptr[entry + 1]]
        again = below.size > 0 and entry in shown
        shown.add(entry)
        yield f"{prefix}{branch}{names[entry]}{suffixes(entry)}{' (see above)' if again else ''}"
        if again or not below.size:
            continue
        inner = prefix + {"": "", "├── ": "│   ", "└── ": "    "}[branch]
        cut = max_depth is not None and depth >= max_depth
        entries = [-below.size] if cut else _shorten(below, max_children)
        last = ["└── ", *["├── "] * (len(entries) - 1)]
        stack += [(inner, mark, entry, depth + 1) for mark, entry in zip(last, entries, strict=True)]


def _shorten(ids: Ints, max_children: int | None) -> list[int]:
    """Ids in reverse order (for the stack); omitted ids are replaced by minus their number."""
    left_out = 0 if max_children is None else max(ids.size - max_children, 0)
    shown = ids[: ids.size - left_out].tolist()[::-1]
    return [-left_out, *shown] if left_out else shown


def _suffixes(names: Names, counts: Any) -> Any:
    if counts is None:
        return lambda node: ""
    if isinstance(counts, Mapping):
        return lambda node: f" ({counts[names[node]]})" if names[node] in counts else ""
    values = np.asarray(counts)
    if values.shape != names.shape:
        raise StructureError(f"counts has shape {values.shape}: give one number per node ({names.size})")
    return lambda node: f" ({values[node]})"


# --- Names and coded edges of a part of a hierarchy, or with new leaves --------------------------------------


def restrict(names: Names, edges: Ints, mask: NDArray[np.bool_]) -> Coded:
    """Keep some nodes, in their order, and the edges between them."""
    new_id = np.cumsum(mask) - 1
    inside = mask[edges].all(axis=1)
    return Coded(names[mask].tolist(), new_id[edges[inside]])


def append_leaves(edges: Ints, n_nodes: int, parents: Ints) -> Ints:
    """Edges with a new leaf below each of ``parents``; the leaves have the ids n_nodes, n_nodes + 1, ..."""
    new = n_nodes + np.arange(len(parents))
    return np.concatenate([edges, np.column_stack([parents, new])])


# --- `Hierarchy`: a tree, a forest or a DAG of named classes ------------------------------------------------


class Reshaped(NamedTuple):
    """A new hierarchy, and the new name of each node that was renamed or removed.

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> h, moved = Hierarchy.from_paths(["comp/os"]).spawn_leaves(["comp"])
    >>> moved
    {'comp': 'comp/*'}
    """

    hierarchy: "Hierarchy"
    mapping: dict[Any, Any]


class Hierarchy(NamedNodes):
    """An immutable tree, forest or DAG of named nodes.

    Parameters
    ----------
    names : sequence of str or int
        Distinct names; their position is the node id.
    edges : array-like of shape (n_edges, 2)
        Node ids (parent, child). Repeated edges count once.

    See Also
    --------
    Hierarchy.from_edges, Hierarchy.from_parents, Hierarchy.from_paths
        Builders for pairs of names, parent arrays and paths.

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> h = Hierarchy.from_paths(["comp/graphics", "comp/sys/mac", "rec/autos"])
    >>> h.n_nodes, h.height, h.is_tree
    (6, 2, True)
    """

    _kind = "hierarchy"

    depth: Ints
    """Longest path from a root, per node."""

    def __init__(self, names: Iterable[Any], edges: ArrayLike) -> None:
        super().__init__(names, edges)
        # One number per edge: sorting it orders edges by (parent, child) and finds repeated ones.
        keys = ancestry.distinct(self.edges[:, 0] * self.n_nodes + self.edges[:, 1])
        coded = np.column_stack(np.divmod(keys, self.n_nodes))
        depth = ancestry.depths(self.n_nodes, coded)
        if depth is None:
            raise CycleError(self.names[ancestry.find_cycle(self.n_nodes, coded)].tolist())
        self.__dict__.update(edges=freeze(coded), depth=freeze(depth))

    def _refuse_loop(self, name: object, position: int) -> NoReturn:
        raise StructureError(f"node {name!r} is given as its own parent (edge {position}): remove that edge")

    # ---- neighbours ---------------------------------------------------------------------------------

    @cached_property
    def _children(self) -> Csr:
        return Csr(*map(freeze, ancestry.compress(self.n_nodes, self.edges[:, 0], self.edges[:, 1])))

    @cached_property
    def _parents(self) -> Csr:
        return Csr(*map(freeze, ancestry.compress(self.n_nodes, self.edges[:, 1], self.edges[:, 0])))

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
        return ancestry.split_by(self.order, self.depth)

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
        marked = self._check_indicator(Y)
        return sparse.csr_array(marked + ancestry.strictly_above(self._parents, marked), dtype=bool)

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
        marked = self._check_indicator(Y)
        return sparse.csr_array(marked > ancestry.strictly_above(self._parents, marked))

    def _check_indicator(self, Y: Any) -> sparse.csr_array:
        indicator = sparse.csr_array(Y)
        if indicator.ndim != 2 or indicator.shape[1] != self.n_nodes:
            raise StructureError(
                f"the label indicator has shape {indicator.shape}: it needs one column per node ({self.n_nodes})"
            )
        indicator = indicator.astype(bool)
        indicator.eliminate_zeros()
        return indicator

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
            ids = ancestry.tree_lca(self._lifting, self.depth, first.ravel(), second.ravel())
        else:
            ids = ancestry.dag_lca(self.ancestor_matrix, self.depth, first.ravel(), second.ravel())
        return ids.reshape(first.shape)

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

    # ---- build --------------------------------------------------------------------------------------

    @classmethod
    def from_edges(cls, edges: Any, nodes: Iterable[Any] | None = None) -> "Hierarchy":
        """Build from (parent, child) pairs of names.

        Parameters
        ----------
        edges : iterable of pairs, or array of shape (n_edges, 2)
            Strings or integers. A repeated edge counts once.
        nodes : iterable of names, optional
            Names that get the ids 0, 1, ... in this order; they may be isolated. Other names follow in order
            of first appearance.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("root", "a"), ("root", "b")]).names
        array(['root', 'a', 'b'], dtype=object)
        >>> Hierarchy.from_edges([(7, 3)], nodes=[3, 5]).parent
        array([ 2, -1, -1])
        """
        return cls(*build.code_edges(edges, nodes))

    @classmethod
    def from_parents(cls, parents: Any, names: Iterable[Any] | None = None) -> "Hierarchy":
        """Build a tree or forest from the parent of each node.

        Parameters
        ----------
        parents : array-like of int
            ``parents[i]`` is the id of the parent of node ``i``; -1 or ``i`` itself for a root.
        names : sequence of names, optional
            By default the names are the ids.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_parents([-1, 0, 0, 1], names=["root", "a", "b", "c"]).depth
        array([0, 1, 1, 2])
        """
        return cls(*build.code_parents(parents, names))

    @classmethod
    def from_paths(cls, paths: Iterable[Any], sep: str = "/") -> "Hierarchy":
        """Build a forest from full paths; each prefix of a path is a node, named by the whole prefix.

        The same last component under two parents is two nodes. Paths may be repeated, as in a column of labels.

        Parameters
        ----------
        paths : iterable of str, or of tuples of components
        sep : str
            Separator of the components of a string; it also joins the components of a tuple.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/sys/hardware", ("rec", "hardware")]).names
        array(['comp', 'comp/sys', 'comp/sys/hardware', 'rec', 'rec/hardware'], dtype=object)
        """
        return cls(*build.code_paths(paths, sep))

    @classmethod
    def from_dict(cls, tree: Mapping[Any, Any], sep: str = "/") -> "Hierarchy":
        """Build a forest from nested dicts and lists.

        A name that occurs once is kept. A name that occurs several times is replaced by its path from the top,
        joined by ``sep``.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_dict({"comp": ["misc", "os"], "rec": {"misc": None}}).names
        array(['comp', 'rec', 'comp/misc', 'os', 'rec/misc'], dtype=object)
        """
        return cls(*build.code_dict(tree, sep))

    @classmethod
    def from_networkx(cls, graph: Any) -> "Hierarchy":
        """Build from a ``networkx.DiGraph`` whose edges lead from parent to child.

        Examples
        --------
        >>> import networkx as nx
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_networkx(nx.DiGraph([("a", "b"), ("a", "c")])).n_nodes
        3
        """
        return cls(*build.code_networkx(graph, directed=True))

    @classmethod
    def read(cls, path: FilePath, format: str = "auto", nodes: Iterable[Any] | None = None) -> "Hierarchy":
        r"""Read a file of edges, plain or compressed (gzip, xz, bzip2). All names are strings.

        Parameters
        ----------
        path : str or path-like
        format : {"auto", "tsv", "pairs", "paths", "rcv1"}
            ``tsv``: lines parent<TAB>child. ``pairs``: two names separated by blanks (LSHTC). ``paths``: the
            nodes from the root to a leaf, separated by blanks (LSHTC). ``rcv1``: lines of ``topics.hier``.
            ``auto`` decides by the first line.
        nodes : iterable of names, optional
            Names that get the ids 0, 1, ... in this order.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from arbora.structure import Hierarchy
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "cat_hier.txt")
        ...     _ = file.write_text("1 2\n1 3\n3 4\n")
        ...     Hierarchy.read(file)
        Hierarchy(tree, 4 nodes, 2 leaves, height 2)
        """
        content = read_hierarchy(path, format)
        with naming(path):
            return cls(*build.code_flat(content.flat, content.nodes if nodes is None else as_list(nodes)))

    # ---- walk: names in, names out ------------------------------------------------------------------

    def children(self, name: Any) -> list[Any]:
        """Names of the children of a node, in order of id.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("a", "c")]).children("a")
        ['b', 'c']
        """
        node = self.id_of(name)
        return self._named(self.child_indices[self.child_indptr[node] : self.child_indptr[node + 1]])

    def parents(self, name: Any) -> list[Any]:
        """Names of the parents of a node, in order of id: none for a root, several only in a DAG.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "c"), ("b", "c")]).parents("c")
        ['a', 'b']
        """
        node = self.id_of(name)
        return self._named(self.parent_indices[self.parent_indptr[node] : self.parent_indptr[node + 1]])

    def ancestors(self, name: Any) -> list[Any]:
        """Names of all proper ancestors of a node, roots first.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("b", "c")]).ancestors("c")
        ['a', 'b']
        """
        return self._named(self.ancestor_ids(self.id_of(name)))

    def descendants(self, name: Any) -> list[Any]:
        """Names of all proper descendants of a node, in order of depth.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("b", "c")]).descendants("a")
        ['b', 'c']
        """
        return self._named(self.descendant_ids(self.id_of(name)))

    def leaves(self, name: Any = None) -> list[Any]:
        """Names of all leaves, or of the leaves at and below a node, in order of id.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_edges([("a", "b"), ("b", "c"), ("a", "d")])
        >>> h.leaves(), h.leaves("b")
        (['c', 'd'], ['c'])
        """
        if name is None:
            return self._named(self.leaf_ids)
        node = self.id_of(name)
        below = np.sort(np.append(self.descendant_ids(node), node))
        return self._named(below[self.is_leaf[below]])

    def path(self, name: Any) -> list[Any]:
        """Names from a root to the node, both included.

        In a DAG this is a longest path: each step goes to the deepest parent (the smallest id among equals), so
        ``len(path) - 1`` is the depth.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("b", "c")]).path("c")
        ['a', 'b', 'c']
        """
        steps = [self.id_of(name)]
        while (above := int(self._main_parent[steps[-1]])) >= 0:
            steps.append(above)
        return self._named(np.array(steps[::-1]))

    def lowest_common_ancestor(self, a: Any, b: Any) -> Any:
        """Name of the lowest common ancestor of two nodes, or None (see `lca_ids`).

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/os/linux", "comp/graphics"]).lowest_common_ancestor(
        ...     "comp/os/linux", "comp/graphics")
        'comp'
        """
        ancestor = int(self.lca_ids(self.id_of(a), self.id_of(b)))
        return None if ancestor < 0 else self.names[ancestor]

    def distance(self, a: Any, b: Any) -> int | None:
        """Count the edges from one node up to a common ancestor and down to the other, or return None.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/os/linux", "comp/ai"]).distance("comp/os/linux", "comp/ai")
        3
        """
        length = int(self.distance_ids(self.id_of(a), self.id_of(b)))
        return None if length < 0 else length

    def _named(self, ids: Ints) -> list[Any]:
        return list(self.names[ids].tolist())

    # ---- reshape ------------------------------------------------------------------------------------

    def subtree(self, name: Any) -> "Hierarchy":
        """Return the hierarchy of a node and its descendants, in the order of their ids.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/os/linux", "rec"]).subtree("comp/os").names
        array(['comp/os', 'comp/os/linux'], dtype=object)
        """
        node = self.id_of(name)
        mask = np.zeros(self.n_nodes, dtype=bool)
        mask[self.descendant_ids(node)] = mask[node] = True
        return Hierarchy(*restrict(self.names, self.edges, mask))

    def collapse_chains(self, keep: Iterable[Any] = ()) -> Reshaped:
        """Remove nodes with exactly one child; the lowest name of each chain is kept.

        The only child of a removed node inherits its parents. Roots are treated the same way.

        Parameters
        ----------
        keep : iterable of names
            Nodes that are never removed. List the nodes that carry labels.

        Returns
        -------
        hierarchy : Hierarchy
        mapping : dict
            Removed name to the name that replaces it.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("b", "c"), ("root", "d")])
        >>> short, moved = h.collapse_chains()
        >>> short.to_edges(), moved
        ([('root', 'c'), ('root', 'd')], {'a': 'c', 'b': 'c'})
        >>> h.collapse_chains(keep=["b"]).hierarchy.to_edges()
        [('root', 'b'), ('root', 'd'), ('b', 'c')]
        """
        names, edges = self.names, self.edges
        dropped = np.bincount(edges[:, 0], minlength=self.n_nodes) == 1
        dropped[self.encode(keep)] = False
        hop = np.arange(self.n_nodes)
        skipped = edges[dropped[edges[:, 0]]]
        hop[skipped[:, 0]] = skipped[:, 1]
        arrived = jump_to_end(hop)
        assert arrived is not None, "a hierarchy has no cycle"
        survivor, gone = arrived[0], np.flatnonzero(dropped)
        rest = edges[~dropped[edges[:, 0]]]
        moved = np.column_stack([rest[:, 0], survivor[rest[:, 1]]])
        mapping = dict(zip(names[gone].tolist(), names[survivor[gone]].tolist(), strict=True))
        return Reshaped(Hierarchy(*restrict(names, moved, ~dropped)), mapping)

    def spawn_leaves(self, nodes: Iterable[Any], suffix: str = "/*") -> Reshaped:
        """Add a leaf below internal nodes, for data labelled with the internal nodes themselves.

        Parameters
        ----------
        nodes : iterable of names
            Nodes that carry data. Leaves among them are unchanged.
        suffix : str
            The new leaf of node ``n`` is named ``n`` + suffix.

        Returns
        -------
        hierarchy : Hierarchy
            Old nodes keep their ids.
        mapping : dict
            Internal name to the name of its new leaf.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h, moved = Hierarchy.from_paths(["comp/os"]).spawn_leaves(["comp", "comp/os"])
        >>> h.children("comp"), moved
        (['comp/os', 'comp/*'], {'comp': 'comp/*'})
        """
        wanted = np.unique(self.encode(nodes))
        internal = wanted[~self.is_leaf[wanted]]
        mapping = {name: f"{name}{suffix}" for name in self._named(internal)}
        taken = set(self).intersection(mapping.values())
        if taken:
            raise StructureError(f"{min(taken)!r} is a node already: choose another suffix than {suffix!r}")
        edges = append_leaves(self.edges, self.n_nodes, internal)
        return Reshaped(Hierarchy([*self, *mapping.values()], edges), mapping)

    def join_roots(self, name: Any = "root") -> "Hierarchy":
        """Put one new root above all roots. A hierarchy with a single root is returned unchanged.

        Old nodes keep their ids; the new root gets the last id.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/os", "rec"]).join_roots().path("comp/os")
        ['root', 'comp', 'comp/os']
        """
        if self.root_ids.size == 1:
            return self
        if name in self:
            raise StructureError(f"{name!r} is a node already: choose another name for the root")
        above = np.column_stack([np.full(self.root_ids.size, self.n_nodes), self.root_ids])
        return Hierarchy([*self, name], np.concatenate([self.edges, above]))

    def with_edges(self, new_edges: Any, nodes: Iterable[Any] = ()) -> "Hierarchy":
        """Add (parent, child) pairs and nodes; old nodes keep their ids, new ones follow.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b")]).with_edges([("b", "c")]).names
        array(['a', 'b', 'c'], dtype=object)
        """
        new = build.code_edges(new_edges, nodes=dict.fromkeys([*self, *nodes]))
        return Hierarchy(new.names, np.concatenate([self.edges, new.edges]))

    # ---- convert and print --------------------------------------------------------------------------

    def to_graph(self) -> LabelGraph:
        """Return the same nodes and edges as an undirected `LabelGraph`.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("a", "c")]).to_graph()
        LabelGraph(3 nodes, 2 edges, 1 component)
        """
        return LabelGraph(self.names, self.edges)

    def to_dict(self) -> dict[Any, Any]:
        """Nested dicts of names, with an empty dict for a leaf; an error if a node has several parents.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("b", "c")]).to_dict()
        {'a': {'b': {'c': {}}}}
        """
        inside: list[dict[Any, Any]] = [{} for _ in range(self.n_nodes)]
        top: dict[Any, Any] = {}
        for node, above, name in zip(
            self.order, self.parent[self.order], self.names[self.order], strict=True
        ):
            (top if above < 0 else inside[above])[name] = inside[node]
        return top

    def format_tree(
        self, max_depth: int | None = None, max_children: int | None = None, counts: Any = None
    ) -> str:
        """Draw the hierarchy as text.

        Parameters
        ----------
        max_depth : int, optional
            Deepest level that is shown.
        max_children : int, optional
            Number of children shown for each node, and of roots.
        counts : mapping of names, or array of shape (n_nodes,), optional
            Number printed after each name, such as a number of documents.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_edges([("root", "comp"), ("comp", "os"), ("comp", "ai"), ("root", "rec")])
        >>> print(h.format_tree(counts={"os": 12, "rec": 3}))
        root
        ├── comp
        │   ├── os (12)
        │   └── ai
        └── rec (3)
        """
        lines = tree_lines(self.names, self._children, self.root_ids, max_depth, max_children, counts)
        return "\n".join(lines)

    def __repr__(self) -> str:
        kind = "DAG" if not self.is_tree else "tree" if self.root_ids.size == 1 else "forest"
        nodes = counted(self.n_nodes, "node", "nodes")
        leaves = counted(self.leaf_ids.size, "leaf", "leaves")
        return f"Hierarchy({kind}, {nodes}, {leaves}, height {self.height})"

    def __str__(self) -> str:
        return f"{self!r}\n{self.format_tree(max_depth=2, max_children=4)}"
