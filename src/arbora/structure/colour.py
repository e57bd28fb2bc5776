"""Proper colourings: nodes of one colour share no edge, so a solver may update them at the same time.

A bipartite graph (every forest is one) gets two colours from the parity of a breadth-first search. Any other
graph is coloured greedily, nodes of high degree first (Welsh and Powell 1967); ties are broken by a fixed
scrambling of the ids, never by chance. Nodes that wait for no earlier neighbour are coloured at the same time
(Jones and Plassmann 1993): the result is that of the sequential greedy loop, and scrambling keeps the number
of vectorised steps small.
"""

import numpy as np
from scipy.sparse import csgraph

from arbora.structure.arrays import (
    Csr,
    Ids,
    as_matrix,
    compress,
    depths,
    distinct,
    gather_rows,
    jump_to_end,
    split_by,
)

_SCRAMBLE = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads consecutive ids (Knuth, TAOCP 6.4)


def colouring(n_nodes: int, edges: Ids) -> Ids:
    """Colour of each node: 0, 1, ...; the ends of an edge always differ."""
    if not edges.size:
        return np.zeros(n_nodes, dtype=np.int64)
    parity = _parity(n_nodes, edges)
    differ = parity[edges[:, 0]] != parity[edges[:, 1]]
    return parity if differ.all() else _greedy(n_nodes, edges)


def symmetric(n_nodes: int, edges: Ids) -> Csr:
    """Neighbours of each node of an undirected graph."""
    both = np.concatenate([edges, edges[:, ::-1]])
    return compress(n_nodes, both[:, 0], both[:, 1])


def _parity(n_nodes: int, edges: Ids) -> Ids:
    """Distance modulo 2 from the smallest id of the component."""
    graph = as_matrix(symmetric(n_nodes, edges))
    n_components, component = csgraph.connected_components(graph, directed=False)
    first = np.full(n_components, n_nodes)
    np.minimum.at(first, component, np.arange(n_nodes))
    # One search from an extra node joined to every component, whatever their number.
    hub = np.column_stack([np.full(n_components, n_nodes), first])
    joined = as_matrix(symmetric(n_nodes + 1, np.concatenate([edges, hub])))
    _, previous = csgraph.breadth_first_order(joined, n_nodes)
    hop = previous.astype(np.int64)
    hop[n_nodes] = n_nodes
    arrived = jump_to_end(hop)
    assert arrived is not None, "a breadth-first tree has no cycle"
    return (arrived[1][:n_nodes] - 1) % 2


def _greedy(n_nodes: int, edges: Ids) -> Ids:
    degree = np.bincount(edges.ravel(), minlength=n_nodes)
    scrambled = np.arange(n_nodes, dtype=np.uint64) * _SCRAMBLE
    rank = np.empty(n_nodes, dtype=np.int64)
    rank[np.lexsort((scrambled, -degree))] = np.arange(n_nodes)
    swap = rank[edges[:, 0]] > rank[edges[:, 1]]
    directed = np.where(swap[:, None], edges[:, ::-1], edges)
    wave = depths(n_nodes, directed)
    assert wave is not None, "edges that go up in rank have no cycle"
    earlier = compress(n_nodes, directed[:, 1], directed[:, 0])
    colour = np.zeros(n_nodes, dtype=np.int64)
    for nodes in split_by(np.argsort(wave, kind="stable"), wave):
        colour[nodes] = _smallest_free(colour, earlier, nodes)
    return colour


def _smallest_free(colour: Ids, earlier: Csr, nodes: Ids) -> Ids:
    positions, counts = gather_rows(earlier.indptr, nodes)
    owner = np.repeat(np.arange(nodes.size), counts)
    taken = distinct(owner * colour.size + colour[earlier.indices[positions]])
    owner, used = np.divmod(taken, colour.size)
    per_node = np.bincount(owner, minlength=nodes.size)
    place = np.arange(taken.size) - np.repeat(np.cumsum(per_node) - per_node, per_node)
    # The k-th smallest colour taken equals k exactly as long as no smaller colour is free.
    return np.bincount(owner[used == place], minlength=nodes.size)
