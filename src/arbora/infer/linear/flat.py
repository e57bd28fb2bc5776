"""Rows and blocks of classes, as all linear solvers use them, and the constants that these share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

BLOCK = 32  # classes trained together: four AVX registers of float32, two cache lines per feature
OCTET = 8  # classes of one AVX register

SPARSE_PENALTY = 6.0  # a scalar, indirect multiply-add costs about as much as six vectorised ones
MOST_ACTIVE_SWEEPS = 200
_RUN = 16  # neighbouring rows visited together, in random order, if there are more than _CACHED_ROWS
_N_ORDERS = 32  # of the rows of a run, which runs have in turn
_CACHED_ROWS = 4096  # rows whose costs and multipliers fit into the cache
_SMALLEST_NORM2 = 1e-30  # its inverse is finite in float32
ENOUGH = 0.2  # sweeps over the active pairs of a class end when its gap is this share of the block's mean gap


def class_blocks(n_classes: int) -> list[range]:
    """Split classes into blocks of at most BLOCK, for any number of threads.

    Sizes are multiples of OCTET, except the last one, and nearly equal: a class of a block of 31 takes the kernels up
    to 1.7 times as long as one of a block of 32.

    Examples
    --------
    >>> class_blocks(40), class_blocks(63)
    ([range(0, 24), range(24, 40)], [range(0, 32), range(32, 63)])
    """
    n_blocks, unit = -(-n_classes // BLOCK), min(OCTET, BLOCK)
    n_units = -(-n_classes // unit)
    sizes = unit * np.diff(np.arange(n_blocks + 1) * n_units // max(1, n_blocks))[::-1]
    bounds = np.minimum(np.cumsum([0, *sizes]), n_classes).tolist()
    return [range(first, stop) for first, stop in pairwise(bounds)]


def visiting_order(n_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random order of the rows; many rows in runs of neighbours, which are read twice as fast.

    Examples
    --------
    >>> import numpy as np
    >>> order = visiting_order(10_000, np.random.default_rng(0))
    >>> np.array_equal(np.sort(order), np.arange(10_000)), np.unique(order[:16] // 16).size
    (True, 1)
    """
    if n_rows <= _CACHED_ROWS:
        return rng.permutation(n_rows)
    first = rng.permutation(-(-n_rows // _RUN)) * _RUN
    within = rng.permuted(np.tile(np.arange(_RUN), (_N_ORDERS, 1)), axis=1)
    order = (first[:, None] + within[np.arange(len(first)) % _N_ORDERS]).ravel()
    return np.asarray(order[order < n_rows], np.int64)


class LinearRows(NamedTuple):
    """Rows prepared for all blocks: CSR arrays, squared norms with the bias feature, and the value of the bias."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    norm2: NDArray[Any]
    bias: Any
    dense: bool
    n_features: int

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.norm2)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""
        return self.data.dtype


def prepare_rows(X: sp.csr_array, dtype: Any = np.float32, bias: float = 1.0) -> LinearRows:
    """Cast a CSR matrix to the working precision and compute its squared norms.

    Parameters
    ----------
    X : sparse CSR of shape (n_samples, n_features)
        Without duplicate entries.
    dtype : float32 or float64
    bias : float
        Value of the constant feature that carries the intercept; 0 for none.

    Returns
    -------
    LinearRows

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> prepare_rows(sp.csr_array([[3.0, 4.0]])).norm2
    array([26.], dtype=float32)
    """
    dtype = np.dtype(dtype)
    data = np.ascontiguousarray(X.data, dtype=dtype)
    squares = sp.csr_array((data.astype(np.float64) ** 2, X.indices, X.indptr), shape=X.shape)
    norm2 = np.asarray(squares.sum(axis=1)).ravel() + bias**2
    # The gradient of an empty row without a bias never changes: with a tiny norm, one step reaches the optimum.
    norm2 = np.maximum(norm2, _SMALLEST_NORM2).astype(dtype)
    dense = X.nnz == X.shape[0] * X.shape[1] and bool(X.has_sorted_indices)
    return LinearRows(X.indptr, X.indices, data, norm2, dtype.type(bias), dense, X.shape[1])
