"""`Hierarchy`: a tree, a forest or a DAG of named classes."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from arbora.structure import build as _build
from arbora.structure import read as _read
from arbora.structure import reshape as _reshape
from arbora.structure.graph import LabelGraph
from arbora.structure.names import as_list
from arbora.structure.navigate import NavigableHierarchy


class Reshaped(NamedTuple):
    """A new hierarchy, and where the names that changed went.

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> h, moved = Hierarchy.from_paths(["comp/os"]).spawn_leaves(["comp"])
    >>> moved
    {'comp': 'comp/*'}
    """

    hierarchy: "Hierarchy"
    mapping: dict[Any, Any]


class Hierarchy(NavigableHierarchy):
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
        The usual ways to build one.

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> h = Hierarchy.from_paths(["comp/graphics", "comp/sys/mac", "rec/autos"])
    >>> h.n_nodes, h.height, h.is_tree
    (6, 2, True)
    """

    @classmethod
    def from_edges(cls, edges: Any, nodes: Iterable[Any] | None = None) -> "Hierarchy":
        """Build from (parent, child) pairs of names.

        Parameters
        ----------
        edges : iterable of pairs, or array of shape (n_edges, 2)
            Strings or integers. A repeated edge counts once.
        nodes : iterable of names, optional
            These get the ids 0, 1, ... in this order, and may be isolated; other names follow in order of
            first appearance.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("root", "a"), ("root", "b")]).names
        array(['root', 'a', 'b'], dtype=object)
        >>> Hierarchy.from_edges([(7, 3)], nodes=[3, 5]).parent
        array([ 2, -1, -1])
        """
        return cls(*_build.code_edges(edges, nodes))

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
        return cls(*_build.code_parents(parents, names))

    @classmethod
    def from_paths(cls, paths: Iterable[Any], sep: str = "/") -> "Hierarchy":
        """Build a forest from full paths; each prefix of a path is a node, named by the whole prefix.

        The same last component under two parents is two nodes. Repeated paths (a column of labels, say) are
        allowed.

        Parameters
        ----------
        paths : iterable of str, or of tuples of components
        sep : str
            What separates the components of a string, and joins those of a tuple.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/sys/hardware", ("rec", "hardware")]).names
        array(['comp', 'comp/sys', 'comp/sys/hardware', 'rec', 'rec/hardware'], dtype=object)
        """
        return cls(*_build.code_paths(paths, sep))

    @classmethod
    def from_dict(cls, tree: Mapping[Any, Any], sep: str = "/") -> "Hierarchy":
        """Build a forest from nested dicts and lists.

        A name that occurs once is kept as it is; one that occurs several times is replaced by its path from
        the top, joined by ``sep``.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_dict({"comp": ["misc", "os"], "rec": {"misc": None}}).names
        array(['comp', 'rec', 'comp/misc', 'os', 'rec/misc'], dtype=object)
        """
        return cls(*_build.code_dict(tree, sep))

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
        return cls(*_build.code_networkx(graph, directed=True))

    @classmethod
    def read(
        cls, path: _read.FilePath, format: str = "auto", nodes: Iterable[Any] | None = None
    ) -> "Hierarchy":
        r"""Read a file of edges, plain or compressed (gzip, xz, bzip2). Names are strings.

        Parameters
        ----------
        path : str or path-like
        format : {"auto", "tsv", "pairs", "paths", "rcv1"}
            ``tsv``: lines parent<TAB>child. ``pairs``: two names separated by blanks (LSHTC). ``paths``: the
            nodes from the root to a leaf, separated by blanks (LSHTC). ``rcv1``: lines of ``topics.hier``.
            ``auto`` decides by the first line.
        nodes : iterable of names, optional
            These get the ids 0, 1, ... in this order.

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
        content = _read.read_hierarchy(path, format)
        with _read.naming(path):
            return cls(*_build.code_flat(content.flat, content.nodes if nodes is None else as_list(nodes)))

    def subtree(self, name: Any) -> "Hierarchy":
        """Return the hierarchy of a node and its descendants, in the order of their ids.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/os/linux", "rec"]).subtree("comp/os").names
        array(['comp/os', 'comp/os/linux'], dtype=object)
        """
        node = self.id_of(name)
        kept = np.zeros(self.n_nodes, dtype=bool)
        kept[self.descendant_ids(node)] = kept[node] = True
        return Hierarchy(*_reshape.restrict(self.names, self.edges, kept))

    def collapse_chains(self, keep: Iterable[Any] = ()) -> Reshaped:
        """Remove nodes with exactly one child; the lowest name of each chain survives.

        A node that is removed is replaced by its only child, which takes over its parents. This holds
        for roots too.

        Parameters
        ----------
        keep : iterable of names
            Nodes that stay whatever the number of their children; list those that carry labels.

        Returns
        -------
        hierarchy : Hierarchy
        mapping : dict
            Removed name to the name that stands for it.

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
        coded, mapping = _reshape.collapse_chains(self.names, self.edges, self.encode(keep))
        return Reshaped(Hierarchy(*coded), mapping)

    def spawn_leaves(self, nodes: Iterable[Any], suffix: str = "/*") -> Reshaped:
        """Give internal nodes a leaf of their own, for data that sits on them.

        Parameters
        ----------
        nodes : iterable of names
            Nodes that carry data. Leaves among them need nothing and are left alone.
        suffix : str
            The new leaf of node ``n`` is called ``n`` + suffix.

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
        coded, mapping = _reshape.spawn_leaves(self.names, self.edges, internal, suffix)
        return Reshaped(Hierarchy(*coded), mapping)

    def join_roots(self, name: Any = "root") -> "Hierarchy":
        """Put one new root above all roots; with a single root already, return the hierarchy as it is.

        Old nodes keep their ids, the new root comes last.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/os", "rec"]).join_roots().path("comp/os")
        ['root', 'comp', 'comp/os']
        """
        if self.root_ids.size == 1:
            return self
        return Hierarchy(*_reshape.join_roots(self.names, self.edges, self.root_ids, name))

    def with_edges(self, new_edges: Any, nodes: Iterable[Any] = ()) -> "Hierarchy":
        """Add (parent, child) pairs and nodes; old nodes keep their ids, new ones follow.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b")]).with_edges([("b", "c")]).names
        array(['a', 'b', 'c'], dtype=object)
        """
        return Hierarchy(*_reshape.extend(self.names, self.edges, new_edges, nodes))

    def to_graph(self) -> LabelGraph:
        """Forget the direction of the edges.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("a", "c")]).to_graph()
        LabelGraph(3 nodes, 2 edges, 1 component)
        """
        return LabelGraph(self.names, self.edges)

    def to_dict(self) -> dict[Any, Any]:
        """Nested dicts of names, a leaf an empty dict; an error for a DAG that is no tree.

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
