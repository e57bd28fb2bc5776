"""Sparse-by-dense products that release the GIL, so that an engine of threads can share the rows.

Every row of the result is written by exactly one task and summed in the order of its non-zeros: the result does
not depend on the number of threads. Four non-zeros are folded into each sweep over the columns of the dense
factor, which quarters the traffic of the accumulators.
"""

from typing import Any

import numba as nb
import numpy as np
import scipy.sparse as sp

FAST: dict[str, Any] = {"fastmath": True, "nogil": True, "cache": True, "error_model": "numpy"}

_ROWS_PER_TASK = 2048


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
def put_columns(W, columns, out):  # type: ignore[no-untyped-def]
    """Write column b of W into column columns[b] of out, row by row, as both lie in memory."""
    for j in range(W.shape[0]):
        for b in range(W.shape[1]):
            out[j, columns[b]] = W[j, b]


def csr_matmul_sparse(X: sp.csr_array, W: sp.csr_array, engine: Any = None) -> np.ndarray:
    """Product of two CSR matrices, as a dense array: for weights of which most are zero.

    Parameters
    ----------
    X : sparse CSR of shape (n_samples, n_features)
    W : sparse CSR of shape (n_features, n_columns)
    engine : object with ``map(function, items)``, optional
        Where tasks of a fixed number of rows run; by default in the calling thread.

    Returns
    -------
    ndarray of shape (n_samples, n_columns)

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> csr_matmul_sparse(sp.csr_array([[0.0, 2.0]]), sp.csr_array([[1.0, 0.0], [3.0, 0.0]]))
    array([[6., 0.]])
    """
    if X.shape[1] != W.shape[0]:
        raise ValueError(f"X has {X.shape[1]} columns but W has {W.shape[0]} rows: they must be equal.")
    out = np.empty((X.shape[0], W.shape[1]), W.dtype)
    data = X.data.astype(W.dtype, copy=False)

    def task(first: int) -> None:
        stop = min(first + _ROWS_PER_TASK, X.shape[0])
        csr_rows_times_sparse(X.indptr, X.indices, data, W.indptr, W.indices, W.data, first, stop, out)

    starts = range(0, X.shape[0], _ROWS_PER_TASK)
    if engine is None:
        for first in starts:
            task(first)
    else:
        engine.map(task, starts)
    return out


def csr_matmul(
    X: sp.csr_array, W: np.ndarray, engine: Any = None, out: np.ndarray | None = None
) -> np.ndarray:
    """Product of a CSR matrix and a C-contiguous dense matrix.

    Parameters
    ----------
    X : sparse CSR of shape (n_samples, n_features)
    W : ndarray of shape (n_features, n_columns)
    engine : object with ``map(function, items)``, optional
        Where tasks of a fixed number of rows run; by default in the calling thread.
    out : ndarray of shape (n_samples, n_columns), optional
        Where to write the result; allocated in the dtype of W by default.

    Returns
    -------
    ndarray of shape (n_samples, n_columns)

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> csr_matmul(sp.csr_array([[0.0, 2.0], [0.0, 0.0]]), np.array([[1.0], [3.0]]))
    array([[6.],
           [0.]])
    """
    if not sp.issparse(X) or X.format != "csr" or W.ndim != 2 or W.dtype.kind != "f":
        got = X.format.upper() if sp.issparse(X) else type(X).__name__
        raise ValueError(
            f"X must be CSR and W a matrix of floats: got {got} and {W.ndim} dimensions of {W.dtype}."
        )
    n_samples = X.shape[0]
    if X.shape[1] != W.shape[0]:
        raise ValueError(f"X has {X.shape[1]} columns but W has {W.shape[0]} rows: they must be equal.")
    W = np.ascontiguousarray(W)
    data = X.data.astype(W.dtype, copy=False)
    if out is None:
        out = np.empty((n_samples, W.shape[1]), W.dtype)
    elif out.shape != (n_samples, W.shape[1]):
        raise ValueError(
            f"out has shape {out.shape}, the product {(n_samples, W.shape[1])}: they must be equal."
        )

    def task(first: int) -> None:
        stop = min(first + _ROWS_PER_TASK, n_samples)
        csr_rows_times_dense(X.indptr, X.indices, data, W, first, stop, out)

    starts = range(0, n_samples, _ROWS_PER_TASK)
    if engine is None:
        for first in starts:
            task(first)
    else:
        engine.map(task, starts)
    return out
