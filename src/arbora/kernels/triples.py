"""Sparse multipliers as triples (row, column, value) sorted by row, and subsets of the rows of a CSR matrix."""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST


@nb.njit(**FAST)
def to_triples(A, cost, ids, places):  # type: ignore[no-untyped-def]
    """Collect the non-zeros of A, each with the sign of its cost; row i of A is row ids[i] of all rows.

    Only the rows `places` of A, in rising order, may have non-zeros.
    """
    n_block = A.shape[1]
    count = 0
    for s in range(len(places)):
        i = places[s]
        for b in range(n_block):
            count += A[i, b] != 0
    rows, columns = np.empty(count, np.int32), np.empty(count, np.int8)
    values = np.empty(count, A.dtype)
    n_entries = 0
    for s in range(len(places)):
        i = places[s]
        for b in range(n_block):
            if A[i, b] != 0:
                rows[n_entries], columns[n_entries] = ids[i], b
                values[n_entries] = math.copysign(A[i, b], cost[i, b])
                n_entries += 1
    return rows, columns, values


@nb.njit(**FAST)
def from_triples(rows, columns, values, ids, A):  # type: ignore[no-untyped-def]
    """Write the absolute values into A, whose rows are the sorted rows `ids`, which include those of the triples."""
    i = 0
    for s in range(len(rows)):
        while ids[i] < rows[s]:
            i += 1
        A[i, columns[s]] = abs(values[s])


@nb.njit(**FAST)
def subtract_triples(rows, columns, values, old_rows, old_columns, old_values):  # type: ignore[no-untyped-def]
    """Return the triples of (new - old), both sorted by row and then by column."""
    n, m = len(rows), len(old_rows)
    out_rows, out_columns = np.empty(n + m, np.int32), np.empty(n + m, np.int8)
    out_values = np.empty(n + m, values.dtype)
    s = t = n_entries = 0
    while s < n or t < m:
        new_first = t == m or (
            s < n and (rows[s] < old_rows[t] or (rows[s] == old_rows[t] and columns[s] < old_columns[t]))
        )
        if new_first:
            i, b, v = rows[s], columns[s], values[s]
            s += 1
        elif s < n and rows[s] == old_rows[t] and columns[s] == old_columns[t]:
            i, b, v = rows[s], columns[s], values[s] - old_values[t]
            s += 1
            t += 1
        else:
            i, b, v = old_rows[t], old_columns[t], -old_values[t]
            t += 1
        if v != 0:
            out_rows[n_entries], out_columns[n_entries], out_values[n_entries] = i, b, v
            n_entries += 1
    return out_rows[:n_entries], out_columns[:n_entries], out_values[:n_entries]


@nb.njit(**FAST)
def take_rows(indptr, indices, data, ids, place):  # type: ignore[no-untyped-def]
    """Copy rows of a CSR matrix and renumber the features that occur in them, in the order of their ids.

    `place` is a scratch array with one negative number per feature; it is restored. Returns indptr, indices and data
    of the rows, and the features.
    """
    out_indptr = np.zeros(len(ids) + 1, indptr.dtype)
    for s in range(len(ids)):
        i = ids[s]
        out_indptr[s + 1] = out_indptr[s] + indptr[i + 1] - indptr[i]
    out_indices = np.empty(out_indptr[-1], indices.dtype)
    out_data = np.empty(out_indptr[-1], data.dtype)
    n_entries = 0
    for s in range(len(ids)):
        for k in range(indptr[ids[s]], indptr[ids[s] + 1]):
            out_indices[n_entries], out_data[n_entries] = indices[k], data[k]
            place[indices[k]] = 0
            n_entries += 1
    n_used = 0
    for j in range(len(place)):
        if place[j] == 0:
            place[j] = n_used
            n_used += 1
    features = np.empty(n_used, np.int64)
    for k in range(len(out_indices)):
        j = out_indices[k]
        features[place[j]] = j
        out_indices[k] = place[j]
    for s in range(n_used):
        place[features[s]] = -1
    return out_indptr, out_indices, out_data, features
