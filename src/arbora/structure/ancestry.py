"""Ancestors on plain arrays: closure, lowest common ancestors and distances of many pairs at once.

Pairs in a tree use binary lifting: table ``k`` holds the ``2^k``-th ancestor of every node, so a pair costs
``log2(height)`` look-ups. In a DAG two nodes may have several lowest common ancestors; the functions return the
deepest one (the smallest id among equals). No common ancestor lies below it, because it would be deeper.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from arbora.structure.arrays import Csr, Ids, ancestor_rows, as_matrix
from arbora.structure.names import freeze

MAX_CLOSURE_BYTES = 2**32
"""Limit on the memory that `ancestor_matrix` may take while it is computed, in bytes."""

_BYTES_PER_ENTRY = 36  # measured maximum while the matrix is computed; the finished matrix takes 5
_CHUNK = 1 << 16  # pairs whose ancestor rows are compared at a time


def ancestor_matrix(parents: Csr, levels: Sequence[Ids], depth: Ids) -> sparse.csr_array:
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


def reachable(neighbours: Csr, start: int, depth: Ids) -> Ids:
    """All nodes that ``start`` reaches, without itself, by depth and then by id."""
    reached = csgraph.breadth_first_order(as_matrix(neighbours), start, return_predecessors=False)
    others = np.sort(reached[1:]).astype(np.int64)
    return others[np.argsort(depth[others], kind="stable")]


def strictly_above(parents: Csr, own: sparse.csr_array) -> sparse.csr_array:
    """Proper ancestors of the nodes marked in each row of ``own``."""
    steps = [step.tocoo() for step in _climb(parents, own)[1:]]
    rows = np.concatenate([step.row for step in steps])
    columns = np.concatenate([step.col for step in steps])
    return sparse.csr_array((np.ones(rows.size, dtype=bool), (rows, columns)), shape=own.shape)


def _climb(parents: Csr, own: sparse.csr_array) -> list[sparse.csr_array]:
    """Nodes that each row reaches by climbing exactly 0, 1, 2, ... edges; the last entry is empty."""
    n_nodes = parents.indptr.size - 1
    ones = np.ones(parents.indices.size, dtype=bool)
    up = sparse.csr_array((ones, parents.indices, parents.indptr), shape=(n_nodes, n_nodes))
    steps = [own, own @ up]
    while steps[-1].nnz:
        steps.append(steps[-1] @ up)
    return steps


def lifting_tables(parent: Ids, height: int) -> tuple[Ids, ...]:
    """``tables[k][i]`` is the ``2^k``-th ancestor of ``i``, or its root when there are fewer."""
    if height == 0:
        return ()
    tables = [np.where(parent < 0, np.arange(parent.size), parent)]
    for _ in range(height.bit_length() - 1):
        tables.append(tables[-1][tables[-1]])
    return tuple(tables)


def tree_lca(tables: Sequence[Ids], depth: Ids, a: Ids, b: Ids) -> Ids:
    """Lowest common ancestor of each pair in a forest; -1 for nodes of different trees."""
    swap = depth[a] < depth[b]
    low, high = np.where(swap, b, a), np.where(swap, a, b)
    gap = depth[low] - depth[high]
    for k, table in enumerate(tables):
        low = np.where((gap >> k) & 1, table[low], low)
    for table in reversed(tables):
        apart = table[low] != table[high]
        low, high = np.where(apart, table[low], low), np.where(apart, table[high], high)
    if not tables:
        return np.where(low == high, low, -1)
    above = np.where(low == high, low, tables[0][low])
    return np.where((low == high) | (above == tables[0][high]), above, -1)


def dag_lca(ancestors: sparse.csr_array, depth: Ids, a: Ids, b: Ids) -> Ids:
    """Deepest common ancestor of each pair (the smallest id among equals); -1 when there is none."""
    n_nodes = depth.size
    found = np.empty(a.size, dtype=np.int64)
    for start in range(0, a.size, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        common = sparse.csr_array(ancestors[a[chunk]].multiply(ancestors[b[chunk]]))
        # One number orders by depth, then by falling id.
        key = depth[common.indices] * n_nodes + (n_nodes - 1 - common.indices)
        best = _reduce_rows(np.maximum, common.indptr, key, empty=-1)
        found[chunk] = np.where(best < 0, -1, n_nodes - 1 - best % n_nodes)
    return found


def dag_distance(parents: Csr, a: Ids, b: Ids) -> Ids:
    """Edges on the shortest way up from ``a`` and down to ``b``; -1 when they share no ancestor."""
    nodes, rows = np.unique(np.concatenate([a, b]), return_inverse=True)
    up = _climb_lengths(parents, nodes)
    a, b = rows[: a.size], rows[a.size :]
    found = np.empty(a.size, dtype=np.int64)
    for start in range(0, a.size, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        from_a, from_b = up[a[chunk]], up[b[chunk]]
        both = sparse.csr_array((from_a + from_b).multiply(from_a.astype(bool).multiply(from_b.astype(bool))))
        found[chunk] = _reduce_rows(np.minimum, both.indptr, both.data, empty=1) - 2
    return found


def _climb_lengths(parents: Csr, nodes: Ids) -> sparse.csr_array:
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


def _reduce_rows(
    function: np.ufunc, indptr: NDArray[np.integer], values: NDArray[np.int64], empty: int
) -> Ids:
    reduced = np.full(indptr.size - 1, empty, dtype=np.int64)
    filled = np.flatnonzero(np.diff(indptr))
    if filled.size:
        reduced[filled] = function.reduceat(values, indptr[filled])
    return reduced
