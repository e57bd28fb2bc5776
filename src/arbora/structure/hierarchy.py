"""`Hierarchy`: a tree, a forest or a DAG of named classes."""

from collections.abc import Iterable, Mapping
from typing import Any

from arbora.structure import _build
from arbora.structure._coded import CodedHierarchy


class Hierarchy(CodedHierarchy):
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
