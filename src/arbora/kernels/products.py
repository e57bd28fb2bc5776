"""Products of the rows of a CSR matrix; `arbora.core.products` runs them on threads.

Each row of the result is written by one task and summed in the order of its non-zeros, so the result does not depend
on the number of threads. Each pass over the columns of the dense factor adds four non-zeros, which reads and writes
the accumulators a quarter as often.
"""

from typing import Any

import numpy as np

from arbora.kernels import deferred as nb

FAST: dict[str, Any] = {"fastmath": True, "nogil": True, "cache": True, "error_model": "numpy"}


@nb.njit(inline="always", **FAST)
def add_row(indptr, indices, data, i, W, g):  # type: ignore[no-untyped-def]
    """Add row i of the CSR matrix times W to the accumulators g."""
    n_columns = W.shape[1]
    k, end = indptr[i], indptr[i + 1]
    while k + 3 < end:
        v0, v1, v2, v3 = data[k], data[k + 1], data[k + 2], data[k + 3]
        j0, j1, j2, j3 = indices[k], indices[k + 1], indices[k + 2], indices[k + 3]
        for b in range(n_columns):
            g[b] += v0 * W[j0, b] + v1 * W[j1, b] + v2 * W[j2, b] + v3 * W[j3, b]
        k += 4
    while k < end:
        v, j = data[k], indices[k]
        for b in range(n_columns):
            g[b] += v * W[j, b]
        k += 1


@nb.njit(**FAST)
def csr_rows_times_dense(indptr, indices, data, W, first, stop, out):  # type: ignore[no-untyped-def]
    """Write rows first .. stop - 1 of (CSR matrix) @ W into out."""
    for i in range(first, stop):
        row = out[i]
        row[:] = 0
        add_row(indptr, indices, data, i, W, row)


@nb.njit(**FAST)
def csr_rows_times_sparse(  # type: ignore[no-untyped-def]
    indptr, indices, data, w_indptr, w_indices, w_data, first, stop, out
):
    """Write rows first .. stop - 1 of (CSR matrix) @ (CSR matrix) into the dense out."""
    for i in range(first, stop):
        row = out[i]
        row[:] = 0
        for k in range(indptr[i], indptr[i + 1]):
            v, j = data[k], indices[k]
            for t in range(w_indptr[j], w_indptr[j + 1]):
                row[w_indices[t]] += v * w_data[t]


@nb.njit(**FAST)
def put_block(W, rows, columns, out):  # type: ignore[no-untyped-def]
    """Write entry (j, b) of W into row rows[j] and column columns[b] of out, in the memory order of W."""
    for j in range(W.shape[0]):
        for b in range(W.shape[1]):
            out[rows[j], columns[b]] = W[j, b]


# --- Products of rows with the centres of their groups, for many groups that may overlap --------------------
#
#     c_g = sum_{i in g} x_i,    value_ig = x_i.c_g    for every member i of every group g.
#
# One dense centre is in memory at a time, and only the entries that a group touches are cleared. The cost is
# proportional to the entries of the members, for any number of groups and features.


@nb.njit(**FAST)
def centre_products(  # type: ignore[no-untyped-def]
    indptr, indices, data, member_indptr, member_rows, n_features
):
    """Return x_i.c_g for the members of all groups, in the order of `member_rows`.

    `member_rows[member_indptr[g]:member_indptr[g + 1]]` are the rows of group g, in a CSR matrix of n_features
    columns.
    """
    centre = np.zeros(n_features, np.float64)
    values = np.zeros(len(member_rows), np.float64)
    for g in range(len(member_indptr) - 1):
        first, stop = member_indptr[g], member_indptr[g + 1]
        for m in range(first, stop):
            i = member_rows[m]
            for j in range(indptr[i], indptr[i + 1]):
                centre[indices[j]] += data[j]
        for m in range(first, stop):
            i = member_rows[m]
            for j in range(indptr[i], indptr[i + 1]):
                values[m] += data[j] * centre[indices[j]]
        for m in range(first, stop):
            i = member_rows[m]
            for j in range(indptr[i], indptr[i + 1]):
                centre[indices[j]] = 0.0
    return values
