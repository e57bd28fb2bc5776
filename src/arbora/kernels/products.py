"""Products of the rows of a CSR matrix; `arbora.core.products` runs them on threads.

Each row of the result is written by one task and summed in the order of its non-zeros, so the result does not depend
on the number of threads. Each pass over the columns of the dense factor adds four non-zeros, which reads and writes
the accumulators a quarter as often.
"""

from typing import Any

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
