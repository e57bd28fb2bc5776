"""Rows as the solvers take them, and sweeps over a block of logistic classes.

After the first sweeps, a few per cent of the rows hold nearly all of the gap of a block: those of its classes, and
those close to them. It pays to sweep over these rows several times before all rows are swept again, even more so if
classes share weights: a visit then makes the weights of the block from all multipliers, which costs as much as a
sweep. Every step increases the dual.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Ints, Matrix
from arbora.kernels.linear.logistic import sweep_logistic
from arbora.kernels.triples import take_rows

# --- Rows and blocks of classes, as all linear solvers use them, and the constants that these share ---------


BLOCK = 32  # classes trained together: four AVX registers of float32, two cache lines per feature
OCTET = 8  # classes of one AVX register

SPARSE_PENALTY = 6.0  # a scalar, indirect multiply-add costs about as much as six vectorised ones
MAX_ACTIVE_SWEEPS = 200
_RUN = 16  # neighbouring rows visited together, in random order, if there are more than _CACHED_ROWS
_N_ORDERS = 32  # of the rows of a run, which runs have in turn
_CACHED_ROWS = 4096  # rows whose costs and multipliers fit into the cache
_MIN_NORM2 = 1e-30  # its inverse is finite in float32
ENOUGH = 0.2  # sweeps over the active pairs of a class end when its gap is this share of the block's mean gap


def class_blocks(n_classes: int) -> list[range]:
    """Split classes into blocks of at most BLOCK, for any number of threads.

    Sizes are multiples of OCTET, except the last one, and nearly equal: a class of a block of 31 takes the kernels up
    to 1.7 times as long as one of a block of 32.
    """
    n_blocks, unit = -(-n_classes // BLOCK), min(OCTET, BLOCK)
    n_units = -(-n_classes // unit)
    sizes = unit * np.diff(np.arange(n_blocks + 1) * n_units // max(1, n_blocks))[::-1]
    bounds = np.minimum(np.cumsum([0, *sizes]), n_classes).tolist()
    return [range(first, stop) for first, stop in pairwise(bounds)]


def visiting_order(n_rows: int, rng: np.random.Generator) -> Ints:
    """Return a random order of the rows; many rows in runs of neighbours, which are read twice as fast.

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

    indptr: Matrix
    indices: Matrix
    data: Matrix
    norm2: Matrix
    bias: Any
    dense: bool
    n_features: int
    n_samples: int
    dtype: np.dtype[Any]  # working precision


def prepare_rows(X: sp.csr_array, dtype: Any = np.float32, bias: float = 1.0) -> LinearRows:
    """Cast a CSR matrix to the working precision and compute its squared norms.

    Parameters
    ----------
    X : sparse CSR of shape (n_samples, n_features)
        Without duplicate entries.
    dtype : float32 or float64
    bias : float
        Value of the constant feature that carries the intercept; 0 for none.

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
    norm2 = np.maximum(norm2, _MIN_NORM2).astype(dtype)
    dense = X.nnz == X.shape[0] * X.shape[1] and bool(X.has_sorted_indices)
    return LinearRows(
        X.indptr, X.indices, data, norm2, dtype.type(bias), dense, X.shape[1], X.shape[0], dtype
    )


# --- Subsets of the rows with renumbered features, for work that does not grow with the number of all features ---


_FEW_FEATURES = 4096  # the weights of a block for these fit into the cache


class RowView(NamedTuple):
    """Some rows, with the features that occur in them."""

    ids: Ints
    features: Ints  # the last one is the bias
    rows: LinearRows


def view_all(rows: LinearRows) -> RowView:
    """Return a view of all rows, with all features."""
    return RowView(np.arange(rows.n_samples), np.arange(rows.n_features + 1), rows)


def view_by_frequency(rows: LinearRows) -> RowView:
    """Return a view of all rows with the features that occur, the most frequent ones first.

    The weights of frequent features then lie together in memory, and each row reads them in the order of memory: a
    sweep over rows with 400,000 features takes 0.7 of the time. Dense rows, and rows with few features, stay as they
    are.
    """
    if rows.dense or rows.n_features <= _FEW_FEATURES:
        return view_all(rows)
    counts = np.bincount(rows.indices, minlength=rows.n_features)
    features = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    rank = np.zeros(rows.n_features, rows.indices.dtype)
    rank[features] = np.arange(len(features))
    shape = rows.n_samples, len(features)
    # The data are copied: they may be those of the caller, and are sorted in place.
    ranked = sp.csr_array((rows.data.copy(), rank[rows.indices], rows.indptr), shape=shape)
    ranked.sort_indices()
    view = rows._replace(indices=ranked.indices, data=ranked.data, n_features=len(features))
    return RowView(np.arange(rows.n_samples), np.append(features, rows.n_features), view)


def view_some(rows: LinearRows, ids: Ints) -> RowView:
    """Copy some rows and renumber the features that occur in them."""
    if rows.dense:
        width = rows.n_features
        indptr = np.arange(len(ids) + 1, dtype=rows.indptr.dtype) * width
        data = rows.data.reshape(-1, width)[ids].ravel()
        indices, features = rows.indices[: data.size], np.arange(width)
    else:
        scratch = np.full(rows.n_features, -1, np.int32)
        indptr, indices, data, features = take_rows(rows.indptr, rows.indices, rows.data, ids, scratch)
    shape = len(features), len(ids)
    taken = LinearRows(indptr, indices, data, rows.norm2[ids], rows.bias, rows.dense, *shape, rows.dtype)
    return RowView(ids, np.append(features, rows.n_features), taken)


# --- Sweeps over a block of logistic classes: over all rows, then over the rows that hold the gap -----------


_IDLE = 0.1  # a pair with less than this share of the mean gap is skipped
_MORE_WORK = 3.0  # of the further sweeps together, as a multiple of the first one
_MAX_SWEEPS = 30


def idle_gap(gap: float, objective: float, n_pairs: int, dtype: Any) -> float:
    """Return the gap up to which a pair is skipped, or -1 if gaps are so small that they are mostly rounding errors.

    >>> idle_gap(1.0, 10.0, 100, np.float64), idle_gap(1e-9, 10.0, 100, np.float64)
    (0.001, -1.0)
    """
    if gap <= float(np.sqrt(np.finfo(dtype).eps)) * objective:
        return -1.0
    return _IDLE * gap / max(1, n_pairs)


class LogisticSweeps:
    """Sweeps that update the weights W and multipliers A of a block in place.

    W has the shape (n_features + 1, n_block); A and `cost`, which holds signs times costs, (n_samples, n_block).
    K (n_block, n_block) is how classes share weights (`kernels.linear.coupled`); None if they do not.
    """

    def __init__(self, rows: LinearRows, cost: Matrix, K: Matrix | None, W: Matrix, A: Matrix) -> None:
        self._arrays = *rows[:4], cost, rows.bias, K, W, A
        self._gaps, self._order = np.zeros(rows.n_samples, rows.dtype), np.empty(0, np.int64)

    def _sweep(self, order: Ints, idle: float) -> tuple[float, float, float]:
        return sweep_logistic(*self._arrays, order, self._gaps.dtype.type(idle), self._gaps)  # type: ignore[no-any-return]

    def over_rows(self, order: Ints, idle: float) -> tuple[float, float, float]:
        """Sweep over the rows `order`; pairs with a gap of at most `idle` are skipped.

        The result is loss, regulariser and gap, summed over pairs as they were when visited.
        """
        self._order = order
        return self._sweep(order, idle)

    def over_rows_with_the_gap(self, idle: float) -> None:
        """Sweep over the rows whose gap was above the mean, until most of their gap is closed."""
        gaps = self._gaps[self._order]
        listed = self._order[gaps > gaps.mean(dtype=np.float64)]
        before = float(self._gaps[listed].sum(dtype=np.float64))
        for _ in range(min(_MAX_SWEEPS, int(_MORE_WORK * len(gaps) / max(1, len(listed))))):
            if self._sweep(listed, idle)[2] <= ENOUGH * before:
                break
