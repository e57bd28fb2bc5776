"""Lowest common ancestors and distances of many pairs of nodes at once.

In a tree, by binary lifting: table ``k`` holds the ``2^k``-th ancestor of every node, so that a pair costs
``log2(height)`` look-ups. In a DAG two nodes may have several lowest common ancestors; the one of greatest
depth is taken (the smallest id among equals): no common ancestor lies below it, since that would be deeper.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from arbora.structure.arrays import Ids

_CHUNK = 1 << 16  # pairs whose ancestor rows are compared at a time


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


def dag_distance(steps: Sequence[sparse.csr_array], a: Ids, b: Ids) -> Ids:
    """Edges on the shortest way up from one node and down to the other; -1 when they share no ancestor.

    ``steps[k]`` marks what row ``i`` reaches by climbing exactly ``k`` edges; ``a`` and ``b`` are rows.
    """
    n_rows, n_nodes = steps[0].shape
    entries = [step.tocoo() for step in steps]
    keys = np.concatenate([step.row.astype(np.int64) * n_nodes + step.col for step in entries])
    climbed = np.repeat(np.arange(1, len(entries) + 1), [step.nnz for step in entries])
    keys, first = np.unique(keys, return_index=True)  # the first occurrence is the shortest climb
    up = sparse.csr_array((climbed[first], np.divmod(keys, n_nodes)), shape=(n_rows, n_nodes))
    found = np.empty(a.size, dtype=np.int64)
    for start in range(0, a.size, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        from_a, from_b = up[a[chunk]], up[b[chunk]]
        both = sparse.csr_array((from_a + from_b).multiply(from_a.astype(bool).multiply(from_b.astype(bool))))
        # Stored climbs are one too long, so that zero climbed edges are not lost in a sparse matrix.
        found[chunk] = _reduce_rows(np.minimum, both.indptr, both.data, empty=1) - 2
    return found


def _reduce_rows(
    function: np.ufunc, indptr: NDArray[np.integer], values: NDArray[np.int64], empty: int
) -> Ids:
    reduced = np.full(indptr.size - 1, empty, dtype=np.int64)
    filled = np.flatnonzero(np.diff(indptr))
    if filled.size:
        reduced[filled] = function.reduceat(values, indptr[filled])
    return reduced
