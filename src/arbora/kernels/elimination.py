"""Columns of the inverse of a sparse triangular matrix."""

import numba as nb
import numpy as np

from arbora.kernels.products import FAST


@nb.njit(**FAST)
def inverse_columns(indptr, indices, data, columns):  # type: ignore[no-untyped-def]
    """Solve L x = e_c for each of the given columns c; L is unit lower triangular, CSC, its diagonal included.

    The non-zeros of x lie on the way from c to the root of the elimination tree, where the parent of a column is the
    first row below its diagonal. Returns the arrays of a CSC matrix, rows sorted.
    """
    n = len(indptr) - 1
    parent = np.full(n, -1, np.int64)
    for j in range(n):
        for k in range(indptr[j], indptr[j + 1]):
            i = indices[k]
            if i > j and (parent[j] < 0 or i < parent[j]):
                parent[j] = i
    out_indptr = np.zeros(len(columns) + 1, np.int64)
    for s in range(len(columns)):
        length, j = 0, columns[s]
        while j >= 0:
            length += 1
            j = parent[j]
        out_indptr[s + 1] = out_indptr[s] + length
    out_indices = np.empty(out_indptr[-1], np.int64)
    out_data = np.empty(out_indptr[-1], np.float64)
    x = np.zeros(n, np.float64)
    for s in range(len(columns)):
        x[columns[s]] = 1.0
        at, j = out_indptr[s], columns[s]
        while j >= 0:
            v = x[j]
            x[j] = 0.0
            out_indices[at], out_data[at] = j, v
            at += 1
            for k in range(indptr[j], indptr[j + 1]):
                if indices[k] > j:
                    x[indices[k]] -= data[k] * v
            j = parent[j]
    return out_indptr, out_indices, out_data
