"""Sums of rows times multipliers: the weights of a block of classes, and the changes of the shared parts.

Rows are those of a CSR matrix. If all of their entries are stored (`dense`), features are counted instead of read, so
that the loops over them compile to SIMD instructions.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST

_TILE = 256  # features whose weights, for a block, fit into the first-level cache
_TOGETHER = 4  # dense rows that are added at once: the weights are read and written a quarter as often


@nb.njit(**FAST)
def _add_dense(data, ids, bias, E, W):  # type: ignore[no-untyped-def]
    """Add the sum of x_i e_i over four dense rows to W, and clear their e_i."""
    n_block, last = W.shape[1], W.shape[0] - 1
    first, second, third, fourth = ids[0] * last, ids[1] * last, ids[2] * last, ids[3] * last
    e0, e1, e2, e3 = E[0], E[1], E[2], E[3]
    for k in range(last):
        v0, v1, v2, v3 = data[first + k], data[second + k], data[third + k], data[fourth + k]
        for b in range(n_block):
            W[k, b] += v0 * e0[b] + v1 * e1[b] + v2 * e2[b] + v3 * e3[b]
    for b in range(n_block):
        W[last, b] += bias * (e0[b] + e1[b] + e2[b] + e3[b])
    E[:] = 0


@nb.njit(inline="always", **FAST)
def _add_sparse(indptr, indices, data, bias, i, e, W):  # type: ignore[no-untyped-def]
    """Add x_i e to W, and clear e."""
    n_block, last = W.shape[1], W.shape[0] - 1
    for b in range(n_block):
        W[last, b] += bias * e[b]
    for k in range(indptr[i], indptr[i + 1]):
        v, j = data[k], indices[k]
        for b in range(n_block):
            W[j, b] += v * e[b]
    e[:] = 0


@nb.njit(**FAST)
def add_rows(indptr, indices, data, bias, dense, cost, A, K, W):  # type: ignore[no-untyped-def]
    """Add sum_i x_i (a_i * y_i)' K, the contribution of the multipliers of a block, to its weights W."""
    n_block = W.shape[1]
    E, ids = np.zeros((_TOGETHER, n_block), W.dtype), np.zeros(_TOGETHER, np.int64)
    zero = W.dtype.type(0)
    waiting = 0
    for i in range(len(indptr) - 1):
        e = E[waiting]
        moved = False
        for b in range(n_block):
            if A[i, b] != zero:
                moved = True
                d = math.copysign(A[i, b], cost[i, b])
                for t in range(n_block):
                    e[t] += K[b, t] * d
        if not moved:
            continue
        if dense:
            ids[waiting] = i
            waiting += 1
            if waiting == _TOGETHER:
                _add_dense(data, ids, bias, E, W)
                waiting = 0
        else:
            _add_sparse(indptr, indices, data, bias, i, e, W)
    if waiting > 0:
        _add_dense(data, ids, bias, E, W)


@nb.njit(**FAST)
def add_parts(parts, ids, mix, group, features, W):  # type: ignore[no-untyped-def]
    """Add to W[j, b] the sum over p of parts[ids[p], features[j]] mix[p, group[b]], a tile of features at a time."""
    n_features, n_block = W.shape
    n_groups, start = mix.shape[1], features[0]
    consecutive = features[n_features - 1] - start == n_features - 1  # they are sorted
    sums, values = np.empty((n_groups, _TILE), W.dtype), np.zeros(_TILE, W.dtype)
    for first in range(0, n_features, _TILE):
        n_tile = min(_TILE, n_features - first)
        sums[:] = 0
        for p in range(len(ids)):
            part = parts[ids[p]]
            if consecutive:
                for t in range(n_tile):
                    values[t] = part[start + first + t]
            else:
                for t in range(n_tile):
                    values[t] = part[features[first + t]]
            for s in range(n_groups):
                m = mix[p, s]
                if m != 0:
                    for t in range(_TILE):  # a constant length; what is beyond the tile is not used
                        sums[s, t] += m * values[t]
        for t in range(n_tile):
            for b in range(n_block):
                W[first + t, b] += sums[group[b], t]


@nb.njit(**FAST)
def add_change(  # type: ignore[no-untyped-def]
    indptr, indices, data, bias, rows, columns, change, mix, group, part
):
    """Add to one part the rows x_i times the sum over the changed classes b of change_ib mix[group[b]].

    The changes are triples sorted by row, so that each row is read once.
    """
    last = len(part) - 1
    s, n = 0, len(rows)
    while s < n:
        i = rows[s]
        total = mix[group[columns[s]]] * change[s]
        s += 1
        while s < n and rows[s] == i:
            total += mix[group[columns[s]]] * change[s]
            s += 1
        if total != 0:
            part[last] += bias * total
            for k in range(indptr[i], indptr[i + 1]):
                part[indices[k]] += data[k] * total


@nb.njit(**FAST)
def add_changes(  # type: ignore[no-untyped-def]
    indptr, indices, data, bias, rows, columns, change, mix, group, ids, parts
):
    """Add the changes of a block to the parts `ids`; its groups of classes have the shares mix[p] in part ids[p]."""
    for p in range(len(ids)):
        add_change(indptr, indices, data, bias, rows, columns, change, mix[p], group, parts[ids[p]])


@nb.njit(**FAST)
def count_walks(indptr, rows, group):  # type: ignore[no-untyped-def]
    """Count the entries of the changed rows: each row once, and once for every run of a group in a row."""
    once = each = 0
    for s in range(len(rows)):
        i = rows[s]
        length = indptr[i + 1] - indptr[i]
        is_new = s == 0 or rows[s - 1] != i
        if is_new:
            once += length
        if is_new or group[s] != group[s - 1]:
            each += length
    return once, each


@nb.njit(**FAST)
def gather_changes(  # type: ignore[no-untyped-def]
    indptr, indices, data, bias, rows, columns, change, group, U
):
    """Add to U[s] the rows x_i times the changes of the classes of group s; runs of a group in a row are one walk."""
    last = U.shape[1] - 1
    s, n = 0, len(rows)
    while s < n:
        i, column, d = rows[s], group[columns[s]], change[s]
        s += 1
        while s < n and rows[s] == i and group[columns[s]] == column:
            d += change[s]
            s += 1
        u = U[column]
        u[last] += bias * d
        for k in range(indptr[i], indptr[i + 1]):
            u[indices[k]] += data[k] * d


@nb.njit(**FAST)
def gather_rows(  # type: ignore[no-untyped-def]
    indptr, indices, data, bias, dense, rows, columns, change, group, U
):
    """As `gather_changes` with U transposed, for rows in which most groups change."""
    E, ids = np.zeros((_TOGETHER, U.shape[1]), U.dtype), np.zeros(_TOGETHER, np.int64)
    waiting, s, n = 0, 0, len(rows)
    while s < n:
        i, e = rows[s], E[waiting]
        while s < n and rows[s] == i:
            e[group[columns[s]]] += change[s]
            s += 1
        if dense:
            ids[waiting] = i
            waiting += 1
            if waiting == _TOGETHER:
                _add_dense(data, ids, bias, E, U)
                waiting = 0
        else:
            _add_sparse(indptr, indices, data, bias, i, e, U)
    if waiting > 0:
        _add_dense(data, ids, bias, E, U)


@nb.njit(**FAST)
def add_gathered(U, mix, ids, parts):  # type: ignore[no-untyped-def]
    """Add to parts[ids[p]] the sum over the groups s of mix[p, s] U[s], a tile of features at a time."""
    n_groups, n_features = U.shape
    for first in range(0, n_features, _TILE):
        stop = min(first + _TILE, n_features)
        for p in range(len(ids)):
            part = parts[ids[p]]
            s = 0
            while s + 3 < n_groups:
                m0, m1, m2, m3 = mix[p, s], mix[p, s + 1], mix[p, s + 2], mix[p, s + 3]
                if m0 != 0 or m1 != 0 or m2 != 0 or m3 != 0:
                    u0, u1, u2, u3 = U[s], U[s + 1], U[s + 2], U[s + 3]
                    for j in range(first, stop):
                        part[j] += m0 * u0[j] + m1 * u1[j] + m2 * u2[j] + m3 * u3[j]
                s += 4
            while s < n_groups:
                m, u = mix[p, s], U[s]
                if m != 0:
                    for j in range(first, stop):
                        part[j] += m * u[j]
                s += 1


# --- Signs times costs of the pairs of a block, from the positives of its classes ---------------------------


@nb.njit(inline="always", **FAST)
def _place(ids, i):  # type: ignore[no-untyped-def]
    """Return the number of ids below i; numba takes half a second to compile its `searchsorted`."""
    first, stop = 0, len(ids)
    while first < stop:
        middle = (first + stop) // 2
        if ids[middle] < i:
            first = middle + 1
        else:
            stop = middle
    return first


@nb.njit(**FAST)
def fill_costs(indptr, indices, first, row_cost, weight, ids, out):  # type: ignore[no-untyped-def]
    """Write -row_cost for negatives and row_cost times the weight of the class for positives.

    The positives of class first + b are the sorted rows indices[indptr[first + b] : indptr[first + b + 1]]. Row s of
    `out` is the row ids[s]; `ids` is sorted, and all rows if it has the length of row_cost.
    """
    n, n_block = out.shape
    every = n == len(row_cost)
    for s in range(n):
        c = -row_cost[ids[s]]
        for b in range(n_block):
            out[s, b] = c
    for b in range(n_block):
        for k in range(indptr[first + b], indptr[first + b + 1]):
            i = indices[k]
            s = i if every else _place(ids, i)
            if s < n and ids[s] == i:
                out[s, b] = row_cost[i] * weight[first + b]
