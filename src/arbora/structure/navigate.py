"""Walking and printing a hierarchy: names in, names out."""

from typing import Any

import numpy as np

from arbora.structure import render as _render
from arbora.structure.arrays import Ids
from arbora.structure.coded import CodedHierarchy
from arbora.structure.names import counted


class NavigableHierarchy(CodedHierarchy):
    """The named side of a hierarchy; `arbora.structure.Hierarchy` adds how to make and reshape one."""

    def children(self, name: Any) -> list[Any]:
        """Names of the children of a node, by id.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("a", "c")]).children("a")
        ['b', 'c']
        """
        node = self.id_of(name)
        return self._named(self.child_indices[self.child_indptr[node] : self.child_indptr[node + 1]])

    def parents(self, name: Any) -> list[Any]:
        """Names of the parents of a node, by id; none for a root, several only in a DAG.

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
        """Names of all proper descendants of a node, nearest level first.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("b", "c")]).descendants("a")
        ['b', 'c']
        """
        return self._named(self.descendant_ids(self.id_of(name)))

    def leaves(self, name: Any = None) -> list[Any]:
        """Names of the leaves, all or those at or below a node, by id.

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

        In a DAG a longest path: from a node to its deepest parent (the smallest id among equals), so that
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
        """Name of the lowest common ancestor of two nodes, None when there is none (see `lca_ids`).

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/os/linux", "comp/graphics"]).lowest_common_ancestor(
        ...     "comp/os/linux", "comp/graphics")
        'comp'
        """
        found = int(self.lca_ids(self.id_of(a), self.id_of(b)))
        return None if found < 0 else self.names[found]

    def distance(self, a: Any, b: Any) -> int | None:
        """Edges from one node up to a common ancestor and down to the other, None when there is none.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/os/linux", "comp/ai"]).distance("comp/os/linux", "comp/ai")
        3
        """
        found = int(self.distance_ids(self.id_of(a), self.id_of(b)))
        return None if found < 0 else found

    def _named(self, ids: Ids) -> list[Any]:
        return list(self.names[ids].tolist())

    def format_tree(
        self, max_depth: int | None = None, max_children: int | None = None, counts: Any = None
    ) -> str:
        """Draw the hierarchy as text.

        Parameters
        ----------
        max_depth : int, optional
            Deepest level that is shown.
        max_children : int, optional
            Children shown of each node (and roots of the forest).
        counts : mapping of names, or array of shape (n_nodes,), optional
            A number to print behind the names, of documents say.

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
        lines = _render.tree_lines(self.names, self._children, self.root_ids, max_depth, max_children, counts)
        return "\n".join(lines)

    def __repr__(self) -> str:
        kind = "DAG" if not self.is_tree else "tree" if self.root_ids.size == 1 else "forest"
        nodes = counted(self.n_nodes, "node", "nodes")
        leaves = counted(self.leaf_ids.size, "leaf", "leaves")
        return f"Hierarchy({kind}, {nodes}, {leaves}, height {self.height})"

    def __str__(self) -> str:
        return f"{self!r}\n{self.format_tree(max_depth=2, max_children=4)}"
