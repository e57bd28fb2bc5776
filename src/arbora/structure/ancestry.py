"""Graph algorithms on integer arrays: CSR rows, depths, cycles, ancestors, closures and distances.

A graph is an ``(n_edges, 2)`` array of node ids, or its CSR form (``indptr``, ``indices``). Depths are computed in
one of two ways:

* *pointer doubling* where every node has at most one parent: each node jumps to its parent, then to the 2nd,
  4th, 8th, ... ancestor. This takes ``log2(height)`` vectorised steps, 17 for a chain of 100,000 nodes;
* *peeling* (Kahn's algorithm, one vectorised step per level) where nodes have several parents.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from arbora.arrays import Ints
from arbora.structure.names import freeze


class Csr(NamedTuple):
    """Neighbours of node ``i``: ``indices[indptr[i]:indptr[i + 1]]``."""

    indptr: Ints
    indices: Ints


def compress(n_nodes: int, sources: Ints, targets: Ints) -> Csr:
    """CSR form of the edges ``sources -> targets``; each row keeps the order of its edges."""
    indptr = np.zeros(n_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(sources, minlength=n_nodes), out=indptr[1:])
    return Csr(indptr, targets[np.argsort(sources, kind="stable")])


def distinct(values: Ints) -> Ints:
    """Sorted distinct values; on integers several times faster than ``np.unique``.

    >>> distinct(np.array([3, 1, 3]))
    array([1, 3])
    """
    if values.size < 2:
        return values
    ascending = np.sort(values)
    first = np.ones(ascending.size, dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first]


def ragged_positions(starts: Ints, counts: Ints) -> Ints:
    """Concatenated ranges ``starts[i], ..., starts[i] + counts[i] - 1``.

    >>> ragged_positions(np.array([7, 0]), np.array([3, 2]))
    array([7, 8, 9, 0, 1])
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    return np.arange(total) + np.repeat(starts - ends + counts, counts)


def gather_rows(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Positions of the entries of some CSR rows, and how many each row has."""
    if rows.size == 1:  # fast path for a level of a chain
        positions = np.arange(indptr[rows[0]], indptr[rows[0] + 1])
        return positions, np.array([positions.size])
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    return ragged_positions(starts, counts), counts


def jump_to_end(hop: Ints) -> tuple[Ints, Ints] | None:
    """Follow ``hop`` from every node to its fixed point by pointer doubling.

    Returns the fixed point and the number of hops to it, or None if there is a cycle.

    >>> jump_to_end(np.array([0, 0, 1, 2]))
    (array([0, 0, 0, 0]), array([0, 1, 2, 3]))
    """
    hops = (hop != np.arange(hop.size)).astype(np.int64)
    for _ in range(int(hop.size).bit_length() + 1):
        next_hop = hop[hop]
        if np.array_equal(next_hop, hop):
            return hop, hops
        hops += hops[hop]
        hop = next_hop
    return None


def depths(n_nodes: int, edges: Ints) -> Ints | None:
    """Length of the longest path from a root to each node; None when there is a cycle."""
    n_parents = np.bincount(edges[:, 1], minlength=n_nodes)
    if n_parents.max(initial=0) > 1:
        return _peel(compress(n_nodes, edges[:, 0], edges[:, 1]), n_parents)
    hop = np.arange(n_nodes)
    hop[edges[:, 1]] = edges[:, 0]
    arrived = jump_to_end(hop)
    # Pointers on a cycle of length 2^k end on themselves: then the fixed point has a parent.
    if arrived is None or n_parents[arrived[0]].any():
        return None
    return arrived[1]


def _peel(children: Csr, n_parents: Ints) -> Ints | None:
    waiting = n_parents.copy()
    depth = np.zeros(waiting.size, dtype=np.int64)
    frontier = np.flatnonzero(waiting == 0)
    level = n_done = 0
    while frontier.size:
        depth[frontier] = level
        n_done += frontier.size
        positions, _ = gather_rows(children.indptr, frontier)
        reached = children.indices[positions]
        np.subtract.at(waiting, reached, 1)
        frontier = distinct(reached[waiting[reached] == 0])
        level += 1
    return depth if n_done == waiting.size else None


def find_cycle(n_nodes: int, edges: Ints) -> list[int]:
    """Shortest cycle through the smallest id that lies on a cycle; the first id is repeated at the end."""
    graph = as_matrix(compress(n_nodes, edges[:, 0], edges[:, 1]))
    _, component = csgraph.connected_components(graph, directed=True, connection="strong")
    start = int(np.flatnonzero(np.bincount(component)[component] > 1)[0])
    reached, previous = csgraph.breadth_first_order(graph, start)
    closing = edges[edges[:, 1] == start, 0]
    # Nodes are reached in order of distance, so the first one that closes a cycle closes a shortest one.
    cycle = [start, int(reached[np.isin(reached, closing)][0])]
    while cycle[-1] != start:
        cycle.append(int(previous[cycle[-1]]))
    return cycle[::-1]


def as_matrix(rows: Csr) -> sparse.csr_matrix:
    """Square CSR matrix of ones, in the dtype that ``scipy.sparse.csgraph`` needs."""
    n_nodes = rows.indptr.size - 1
    ones = np.ones(rows.indices.size)
    return sparse.csr_matrix((ones, rows.indices, rows.indptr), shape=(n_nodes, n_nodes))


def split_by(order: Ints, keys: Ints) -> tuple[Ints, ...]:
    """Split ``order``, which is sorted by ``keys[order]``, into one array per key; keys are 0, 1, 2, ..."""
    ends = np.cumsum(np.bincount(keys))
    starts = np.concatenate([[0], ends[:-1]])
    return tuple(order[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))


def ancestor_rows(parents: Csr, levels: Sequence[Ints], max_entries: int) -> tuple[Ints, NDArray[np.int32]]:
    """Sorted ids of each node and all its ancestors, as CSR ``indptr, indices``.

    The row of a node is the union of the rows of its parents, so levels are filled from the top, one gather per
    level. MemoryError is raised before a level is allocated if it could exceed ``max_entries``.
    """
    n_nodes = parents.indptr.size - 1
    start, size = np.zeros((2, n_nodes), dtype=np.int64)
    buffer = np.empty(n_nodes, dtype=np.int32)
    n_filled = 0
    for level in levels:
        positions, n_parents = gather_rows(parents.indptr, level)
        inherited_from = parents.indices[positions]
        if n_filled + level.size + int(size[inherited_from].sum()) > max_entries:
            raise MemoryError(max_entries)
        inherited = buffer[ragged_positions(start[inherited_from], size[inherited_from])]
        place = np.arange(level.size)
        owner = np.repeat(np.repeat(place, n_parents), size[inherited_from])
        # One number per (node, ancestor): sorting it sorts the rows and merges ancestors that parents share.
        entries = distinct(np.concatenate([owner * n_nodes + inherited, place * n_nodes + level]))
        size[level] = np.bincount(entries // n_nodes, minlength=level.size)
        start[level] = n_filled + np.cumsum(size[level]) - size[level]
        if n_filled + entries.size > buffer.size:
            grown = np.empty(max(2 * buffer.size, n_filled + entries.size), dtype=np.int32)
            grown[:n_filled] = buffer[:n_filled]
            buffer = grown
        buffer[n_filled : n_filled + entries.size] = entries % n_nodes
        n_filled += entries.size
    indptr = np.concatenate([[0], np.cumsum(size)])
    return indptr, buffer[ragged_positions(start, size)]


# --- Closure, lowest common ancestors and distances of many pairs at once -----------------------------------
#
# Pairs in a tree use binary lifting: table ``k`` holds the ``2^k``-th ancestor of every node, so a pair costs
# ``log2(height)`` look-ups. In a DAG two nodes may have several lowest common ancestors; the functions return the
# deepest one (the smallest id among equals). No common ancestor lies below it, because it would be deeper.


MAX_CLOSURE_BYTES = 2**32
"""Limit on the memory that `ancestor_matrix` may take while it is computed, in bytes."""

_BYTES_PER_ENTRY = 36  # measured maximum while the matrix is computed; the finished matrix takes 5
_CHUNK_PAIRS = 1 << 16  # pairs whose ancestor rows are compared at a time


def ancestor_matrix(parents: Csr, levels: Sequence[Ints], depth: Ints) -> sparse.csr_array:
    """Boolean CSR matrix that marks each node and all its ancestors; MemoryError if it is too large."""
    n_nodes = depth.size
    n_entries = int(depth.sum()) + n_nodes  # exact for a tree, a lower bound for a DAG
    allowed = MAX_CLOSURE_BYTES // _BYTES_PER_ENTRY
    try:
        if n_entries > allowed:
            raise MemoryError
        indptr, indices = ancestor_rows(parents, levels, allowed)
    except MemoryError:
        raise MemoryError(
            f"the ancestor matrix of {n_nodes} nodes needs at least {n_entries * _BYTES_PER_ENTRY:.2g} bytes"
            f" (allowed: {MAX_CLOSURE_BYTES:.2g}): use close(Y), which does not build it"
        ) from None
    marks = np.ones(indices.size, dtype=bool)
    # Allowed sizes fit 32-bit indices, and products with them are faster.
    matrix = sparse.csr_array((marks, indices, indptr.astype(np.int32)), shape=(n_nodes, n_nodes))
    for array in (matrix.data, matrix.indices, matrix.indptr):
        freeze(array)
    return matrix


def reachable(neighbours: Csr, start: int, depth: Ints) -> Ints:
    """All nodes that ``start`` reaches, without itself, by depth and then by id."""
    reached = csgraph.breadth_first_order(as_matrix(neighbours), start, return_predecessors=False)
    others = np.sort(reached[1:]).astype(np.int64)
    return others[np.argsort(depth[others], kind="stable")]


def strictly_above(parents: Csr, marked: sparse.csr_array) -> sparse.csr_array:
    """Proper ancestors of the nodes marked in each row of ``marked``."""
    steps = [step.tocoo() for step in _climb(parents, marked)[1:]]
    rows = np.concatenate([step.row for step in steps])
    columns = np.concatenate([step.col for step in steps])
    return sparse.csr_array((np.ones(rows.size, dtype=bool), (rows, columns)), shape=marked.shape)


def _climb(parents: Csr, marked: sparse.csr_array) -> list[sparse.csr_array]:
    """Nodes that each row reaches by climbing exactly 0, 1, 2, ... edges; the last entry is empty."""
    n_nodes = parents.indptr.size - 1
    ones = np.ones(parents.indices.size, dtype=bool)
    up = sparse.csr_array((ones, parents.indices, parents.indptr), shape=(n_nodes, n_nodes))
    steps = [marked, marked @ up]
    while steps[-1].nnz:
        steps.append(steps[-1] @ up)
    return steps


def lifting_tables(parent: Ints, height: int) -> tuple[Ints, ...]:
    """``tables[k][i]`` is the ``2^k``-th ancestor of ``i``, or its root when there are fewer."""
    if height == 0:
        return ()
    tables = [np.where(parent < 0, np.arange(parent.size), parent)]
    for _ in range(height.bit_length() - 1):
        tables.append(tables[-1][tables[-1]])
    return tuple(tables)


def tree_lca(tables: Sequence[Ints], depth: Ints, a: Ints, b: Ints) -> Ints:
    """Lowest common ancestor of each pair in a forest; -1 for nodes of different trees."""
    swap = depth[a] < depth[b]
    low, high = np.where(swap, b, a), np.where(swap, a, b)
    gap = depth[low] - depth[high]
    for k, table in enumerate(tables):
        low = np.where((gap >> k) & 1, table[low], low)
    for table in reversed(tables):
        differ = table[low] != table[high]
        low, high = np.where(differ, table[low], low), np.where(differ, table[high], high)
    if not tables:
        return np.where(low == high, low, -1)
    above = np.where(low == high, low, tables[0][low])
    return np.where((low == high) | (above == tables[0][high]), above, -1)


def dag_lca(ancestors: sparse.csr_array, depth: Ints, a: Ints, b: Ints) -> Ints:
    """Deepest common ancestor of each pair (the smallest id among equals); -1 when there is none."""
    n_nodes = depth.size
    ancestor = np.empty(a.size, dtype=np.int64)
    for start in range(0, a.size, _CHUNK_PAIRS):
        chunk = slice(start, start + _CHUNK_PAIRS)
        common = sparse.csr_array(ancestors[a[chunk]].multiply(ancestors[b[chunk]]))
        # One number orders by depth, then by falling id.
        key = depth[common.indices] * n_nodes + (n_nodes - 1 - common.indices)
        best = _reduce_rows(np.maximum, common.indptr, key, empty=-1)
        ancestor[chunk] = np.where(best < 0, -1, n_nodes - 1 - best % n_nodes)
    return ancestor


def dag_distance(parents: Csr, a: Ints, b: Ints) -> Ints:
    """Edges on the shortest way up from ``a`` and down to ``b``; -1 when they share no ancestor."""
    nodes, rows = np.unique(np.concatenate([a, b]), return_inverse=True)
    up = _climb_lengths(parents, nodes)
    a, b = rows[: a.size], rows[a.size :]
    distance = np.empty(a.size, dtype=np.int64)
    for start in range(0, a.size, _CHUNK_PAIRS):
        chunk = slice(start, start + _CHUNK_PAIRS)
        from_a, from_b = up[a[chunk]], up[b[chunk]]
        both = sparse.csr_array((from_a + from_b).multiply(from_a.astype(bool).multiply(from_b.astype(bool))))
        distance[chunk] = _reduce_rows(np.minimum, both.indptr, both.data, empty=1) - 2
    return distance


def _climb_lengths(parents: Csr, nodes: Ints) -> sparse.csr_array:
    """One row per node: 1 + the least number of edges to each of its ancestors and to itself.

    The 1 keeps the zero distance of a node to itself in the sparse matrix.
    """
    n_nodes = parents.indptr.size - 1
    shape = (nodes.size, n_nodes)
    start = sparse.csr_array((np.ones(nodes.size, dtype=bool), nodes, np.arange(nodes.size + 1)), shape=shape)
    steps = [step.tocoo() for step in _climb(parents, start)]
    keys = np.concatenate([step.row.astype(np.int64) * n_nodes + step.col for step in steps])
    climbed = np.repeat(np.arange(1, len(steps) + 1), [step.nnz for step in steps])
    keys, first = np.unique(keys, return_index=True)  # the first occurrence is the shortest climb
    return sparse.csr_array((climbed[first], np.divmod(keys, n_nodes)), shape=shape)


def _reduce_rows(function: np.ufunc, indptr: NDArray[np.integer], values: Ints, empty: int) -> Ints:
    reduced = np.full(indptr.size - 1, empty, dtype=np.int64)
    filled = np.flatnonzero(np.diff(indptr))
    if filled.size:
        reduced[filled] = function.reduceat(values, indptr[filled])
    return reduced
