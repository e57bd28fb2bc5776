"""Products of sparse rows with dense or sparse matrices, with chunks of rows on the workers of an engine.

The kernels of `arbora.kernels.products` write each row of the result once and add up its non-zeros in order, so the
result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Matrix
from arbora.core.chunks import CHUNK_ROWS, split
from arbora.core.engine import Engine, SerialEngine
from arbora.kernels.products import csr_rows_times_dense, csr_rows_times_sparse

_SMALL_ROWS = 32  # a product of so few rows takes less time than loading a compiled kernel
_SMALL_OPERATIONS = 1 << 22


def csr_matmul(X: sp.csr_array, W: Matrix, engine: Engine | None = None, out: Matrix | None = None) -> Matrix:
    """Multiply a CSR matrix by a C-contiguous dense matrix, in the precision of W; by default in this thread.

    `out` (n_samples, n_columns) receives the result; None makes a new array.
    """
    if not sp.issparse(X) or X.format != "csr" or W.ndim != 2 or W.dtype.kind != "f":
        got = X.format.upper() if sp.issparse(X) else type(X).__name__
        raise ValueError(
            f"X must be a CSR matrix and W a 2-D array of floats: got {got} and {W.ndim} dimensions of {W.dtype}."
        )
    _require_match(X, W)
    shape = X.shape[0], W.shape[1]
    W = np.ascontiguousarray(W)
    data = X.data.astype(W.dtype, copy=False)
    result = np.empty(shape, W.dtype) if out is None else out
    if result.shape != shape:
        raise ValueError(f"out has shape {result.shape}, but the product has shape {shape}.")

    def multiply(chunk: slice) -> None:
        csr_rows_times_dense(X.indptr, X.indices, data, W, chunk.start, chunk.stop, result)

    (engine or SerialEngine()).map(multiply, split(shape[0], size=CHUNK_ROWS, even=False))
    return result


def csr_matmul_sparse(X: sp.csr_array, W: sp.csr_array, engine: Engine | None = None) -> Matrix:
    """Multiply two CSR matrices into a dense array, for weights that are mostly zero; by default in this thread."""
    _require_match(X, W)
    result = np.empty((X.shape[0], W.shape[1]), W.dtype)
    data = X.data.astype(W.dtype, copy=False)

    def multiply(chunk: slice) -> None:
        arrays = X.indptr, X.indices, data, W.indptr, W.indices, W.data
        csr_rows_times_sparse(*arrays, chunk.start, chunk.stop, result)

    (engine or SerialEngine()).map(multiply, split(X.shape[0], size=CHUNK_ROWS, even=False))
    return result


def is_small(X: Any, n_columns: int) -> bool:
    """Whether a product of sparse rows is so small that SciPy is faster than loading a compiled kernel.

    Loading a kernel from the cache takes 0.2 s in a new process. The rule depends on the product alone, so that equal
    calls give equal bits in every process. Products by SciPy and by the kernels agree up to rounding.
    """
    return bool(X.shape[0] <= _SMALL_ROWS and X.nnz * n_columns <= _SMALL_OPERATIONS)


def small_product(X: sp.csr_array, W: Any) -> Matrix:
    """Multiply a few sparse rows by a dense or sparse matrix with SciPy, in the precision of W."""
    _require_match(X, W)
    product: Any = X.astype(W.dtype, copy=False) @ W
    return np.asarray(product.toarray() if hasattr(product, "toarray") else product)


def _require_match(X: Any, W: Any) -> None:
    if X.shape[1] != W.shape[0]:
        raise ValueError(f"X has {X.shape[1]} columns but W has {W.shape[0]} rows: they must be equal.")
