"""`LabelGraph`: an undirected graph of named classes, with positive weights on its edges."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph

from arbora.arrays import Array, Ints
from arbora.structure import build
from arbora.structure.build import FilePath, naming, read_graph
from arbora.structure.errors import StructureError
from arbora.structure.named_nodes import NamedNodes
from arbora.structure.names import as_list, counted, freeze


class LabelGraph(NamedNodes):
    """An immutable undirected graph of named nodes.

    Parameters
    ----------
    names : sequence of str or int
        Distinct names; their position is the node id.
    edges : array-like of shape (n_edges, 2)
        Node ids. A pair given twice, in either direction, counts once.
    weights : array-like of shape (n_edges,), optional
        Positive; 1 by default. A pair given twice must have the same weight both times.

    Attributes
    ----------
    names : ndarray of object
    edges : ndarray of shape (n_edges, 2)
        Ids ``a < b``, sorted.
    weights : ndarray of shape (n_edges,)

    Examples
    --------
    >>> from arbora.structure import LabelGraph
    >>> g = LabelGraph.from_edges([("a", "b"), ("b", "c"), ("b", "a")], nodes=["a", "b", "c", "alone"])
    >>> g
    LabelGraph(4 nodes, 2 edges, 2 components)
    >>> g.neighbours("b")
    ['a', 'c']
    """

    _kind = "label graph"
    weights: Array

    def __init__(self, names: Iterable[Any], edges: ArrayLike, weights: ArrayLike | None = None) -> None:
        super().__init__(names, edges)
        try:
            values = np.ones(self.n_edges) if weights is None else np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise StructureError(f"weights must be numbers: {error}") from None
        if values.shape != (self.n_edges,):
            raise StructureError(f"weights has shape {values.shape}: give one per edge ({self.n_edges})")
        wrong = np.flatnonzero(~((values > 0) & np.isfinite(values)))
        if wrong.size:
            raise StructureError(
                f"the weight of edge {wrong[0]} is {values[wrong[0]]}: it must be positive and finite"
            )
        # One number per pair a < b: sorting it finds pairs that are given twice, in either direction.
        low, high = self.edges.min(axis=1, initial=self.n_nodes), self.edges.max(axis=1, initial=-1)
        keys = low * self.n_nodes + high
        order = np.argsort(keys, kind="stable")
        is_first = np.ones(order.size, dtype=bool)
        is_first[1:] = keys[order][1:] != keys[order][:-1]
        places = order[is_first]
        of_pair = places[np.cumsum(is_first) - 1]  # place of the first edge of the same pair
        differ = np.flatnonzero(values[order] != values[of_pair])
        if differ.size:
            first, second = of_pair[differ[0]], order[differ[0]]
            a, b = self.names[self.edges[first]].tolist()
            raise StructureError(
                f"edge {a!r} - {b!r} is given twice, with weights {values[first]} and {values[second]}"
            )
        merged = np.column_stack([low[places], high[places]])
        self.__dict__.update(edges=freeze(merged), weights=freeze(values[places]))

    @classmethod
    def from_edges(
        cls, edges: Any, weights: ArrayLike | None = None, nodes: Iterable[Any] | None = None
    ) -> "LabelGraph":
        """Build from pairs of names.

        Parameters
        ----------
        edges : iterable of pairs, or array of shape (n_edges, 2)
        weights : array-like of shape (n_edges,), optional
        nodes : iterable of names, optional
            Names that get the ids 0, 1, ... in this order; they may be isolated.

        Examples
        --------
        >>> from arbora.structure import LabelGraph
        >>> LabelGraph.from_edges([("a", "b"), ("b", "c")], weights=[1, 3]).adjacency.toarray()
        array([[0., 1., 0.],
               [1., 0., 3.],
               [0., 3., 0.]])
        """
        return cls(*build.code_edges(edges, nodes), weights=weights)

    @classmethod
    def from_networkx(cls, graph: Any, weight: str = "weight") -> "LabelGraph":
        """Build from a ``networkx.Graph``; edges without the attribute ``weight`` have weight 1.

        Examples
        --------
        >>> import networkx as nx
        >>> from arbora.structure import LabelGraph
        >>> LabelGraph.from_networkx(nx.cycle_graph(5))
        LabelGraph(5 nodes, 5 edges, 1 component)
        """
        coded = build.code_networkx(graph, directed=False)
        return cls(*coded, weights=[value for *_, value in graph.edges(data=weight, default=1.0)])

    @classmethod
    def read(cls, path: FilePath, nodes: Iterable[Any] | None = None) -> "LabelGraph":
        r"""Read lines ``a<TAB>b`` or ``a<TAB>b<TAB>weight``; the file may be compressed. All names are strings.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from arbora.structure import LabelGraph
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "graph.tsv")
        ...     _ = file.write_text("jazz\tblues\t12\n")
        ...     LabelGraph.read(file).weights
        array([12.])
        """
        content = read_graph(path)
        with naming(path):
            coded = build.code_flat(content.flat, [] if nodes is None else as_list(nodes))
            return cls(*coded, weights=content.weights)

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """Symmetric ``n_nodes x n_nodes`` CSR array of weights."""
        ends = np.concatenate([self.edges, self.edges[:, ::-1]]).T
        shape = (self.n_nodes, self.n_nodes)
        matrix = sparse.csr_array((np.tile(self.weights, 2), (ends[0], ends[1])), shape=shape)
        matrix.sort_indices()
        for array in (matrix.data, matrix.indices, matrix.indptr):
            freeze(array)
        return matrix

    @cached_property
    def component(self) -> Ints:
        """Connected component of each node, numbered from 0."""
        return freeze(csgraph.connected_components(self.adjacency, directed=False)[1].astype(np.int64))

    def neighbours(self, name: Any) -> list[Any]:
        """Names of the neighbours of a node, in order of id.

        Examples
        --------
        >>> from arbora.structure import LabelGraph
        >>> LabelGraph.from_edges([("jazz", "blues"), ("soul", "blues")]).neighbours("blues")
        ['jazz', 'soul']
        """
        node = self.id_of(name)
        start, end = self.adjacency.indptr[[node, node + 1]]
        return list(self.names[self.adjacency.indices[start:end]].tolist())

    def to_state(self) -> dict[str, Any]:
        """State to rebuild the graph: a dict of JSON scalars, lists and numpy arrays."""
        return {**super().to_state(), "weights": self.weights}

    def __repr__(self) -> str:
        nodes = counted(self.n_nodes, "node", "nodes")
        edges = counted(self.n_edges, "edge", "edges")
        components = counted(int(self.component.max()) + 1, "component", "components")
        return f"LabelGraph({nodes}, {edges}, {components})"
