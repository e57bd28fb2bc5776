"""The E-step of a mixture: statistics and bound of rows, whatever the components are.

The log-joint of a row and a component is linear in the row, `x.W_k + c_k`. `local` gives the statistics of some rows,
`e_step` those of all. Statistics add, so that whole data, parts of it on threads or on the workers of a cluster, and
mini-batches share them. The parts depend on the data alone: the result has the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.kernels.mixture import (
    assign_rows,
    column_squares,
    list_members,
    mix_columns,
    respond_rows,
    sum_members,
    sum_shares,
)

Matrix = NDArray[Any]

_MOST_PARTS = 64  # parts of the data whose statistics are added up, of large data perhaps more
_MOST_ADDENDS = 1 << 16  # rows of a part whose statistics are added in single precision
_NONZEROS_PER_PART = 1 << 17  # of a part that gives responsibilities alone
MOST_RESPONSIBILITIES = 1 << 26  # numbers that may be in memory at once, 256 MiB in single precision
_NONZEROS_PER_SUM = 16  # a part has at least this many non-zeros for each number in a column of its sums
_NONZEROS_AT_ONCE = 1 << 20  # of rows in a file, that a thread reads at a time
_MANY_FEATURES = 1 << 12  # whose scores do not fit the cache of a core
_FEW = 8  # at most one responsibility in so many is not zero: sums are made of those alone
_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 8, 2048  # of sums, that a thread makes at a time


class Table(NamedTuple):
    """Rows as many E-steps over all of them are best made with: in memory, by features in `order`, and transposed.

    Of many features, the most frequent come first: what scores are read for most is close together in memory.
    """

    X: sp.csr_array
    transposed: sp.csr_array
    order: NDArray[np.int64]


class WeightedRows(NamedTuple):
    """Rows of a mixture and their weights, in the working precision.

    Perhaps with a table of them; and, if they live `elsewhere` too, with a function that has them counted there.

    X is a CSR array; or rows in a file, with `shape`, `dtype`, `nnz` and `indptr` of a CSR array, of which parts,
    `X[part]`, are CSR arrays in memory.
    """

    X: Any
    weight: Matrix
    table: Table | None = None
    elsewhere: Callable[[Ready], tuple[Stats, float]] | None = None

    @property
    def in_memory(self) -> bool:
        """Whether X is a CSR array."""
        return bool(sp.issparse(self.X))

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weight.sum(dtype=np.float64))

    def take(self, ids: NDArray[np.integer[Any]]) -> WeightedRows:
        """Return some of the rows."""
        return WeightedRows(self.X[ids], self.weight[ids])

    def load(self, part: slice) -> tuple[WeightedRows, slice]:
        """Return rows in memory with a part of these among them, and where it is."""
        if self.in_memory:
            return self, part
        return WeightedRows(self.X[part], self.weight[part]), slice(0, part.stop - part.start)

    def has_room(self, n_components: int) -> bool:
        """Whether there may be a matrix of responsibilities of all rows."""
        return self.in_memory and self.X.shape[0] * n_components <= MOST_RESPONSIBILITIES

    def with_table(self) -> WeightedRows:
        """Return the rows with a table of them."""
        X, n_features = self.X, self.X.shape[1]
        order = np.arange(n_features)
        if n_features > _MANY_FEATURES:
            order = np.argsort(-np.bincount(X.indices, minlength=n_features), kind="stable")
            place = np.empty(n_features, X.indices.dtype)
            place[order] = np.arange(n_features)
            X = sp.csr_array((X.data, place[X.indices], X.indptr), shape=X.shape)
        transposed = sp.csr_array(X.T)
        if X is not self.X:
            X = sp.csr_array(transposed.T)  # with indices in order again
        return self._replace(table=Table(X, transposed, order))


class LinearScores(NamedTuple):
    """Log-joint of a row x and component k: `scale[k] * x @ weights[:, k] + offset[k]`.

    With a scale, sums of rows can be weights as they are: no pass over them is needed to make them directions.
    """

    weights: Matrix
    offset: Matrix
    temperature: float = 1.0
    scale: Any = 1.0


class Stats(NamedTuple):
    """Sums over rows: responsibilities (n_components,), and rows weighted by them (n_features, n_components)."""

    counts: Matrix
    sums: Matrix


def parts_of(rows: WeightedRows, least: int | None = None) -> list[slice]:
    """Cut the rows into parts of about as many non-zeros, and no fewer than `least`.

    By default there are few enough of them that adding their statistics costs little.

    Examples
    --------
    >>> parts_of(WeightedRows(sp.csr_array(np.ones((40, 2))), np.ones(40)))
    [slice(0, 20, None), slice(20, 40, None)]
    """
    (n_samples, n_features), nnz = rows.X.shape, rows.X.nnz
    n_parts = nnz // (least or _NONZEROS_PER_SUM * max(n_features, 1))
    # More than enough for threads only so that no part adds up too many numbers, where that costs little.
    n_parts = max(1, min(n_parts, _MOST_PARTS), min(n_samples // _MOST_ADDENDS, nnz // max(n_features, 1)))
    if not rows.in_memory:
        n_parts = max(n_parts, -(-nnz // nonzeros_at_once(n_features)))
    return cut_rows(rows.X.indptr, n_parts)


def nonzeros_at_once(n_features: int) -> int:
    """Non-zeros of a file that a thread reads at a time: no fewer than a column of the sums that they add to has."""
    return max(_NONZEROS_AT_ONCE, n_features)


def cut_rows(indptr: Matrix, n_parts: int) -> list[slice]:
    """Cut the rows of a CSR array into parts of about as many non-zeros.

    Examples
    --------
    >>> cut_rows(np.array([0, 4, 5, 6]), 2)
    [slice(0, 1, None), slice(1, 3, None)]
    """
    ends = np.searchsorted(indptr, int(indptr[-1]) * np.arange(1, n_parts) / n_parts)
    cuts = np.unique(np.concatenate([[0], ends, [len(indptr) - 1]]))
    return [slice(int(first), int(stop)) for first, stop in pairwise(cuts)]


def local(scores: LinearScores, rows: WeightedRows, part: slice) -> tuple[Stats, float]:
    """Statistics and bound of a part of the rows.

    The largest offset is taken out before single precision sees it: log-normalisers are large, their differences are
    not.

    Examples
    --------
    >>> rows = WeightedRows(sp.csr_array(np.eye(2)), np.ones(2))
    >>> stats, bound = local(LinearScores(100 * np.eye(2), np.zeros(2)), rows, slice(0, 2))
    >>> stats.counts.round(6), stats.sums.round(6).tolist(), round(bound, 6)
    (array([1., 1.]), [[1.0, 0.0], [0.0, 1.0]], 200.0)
    """
    return _local(_ready(scores, rows.X.dtype), rows, part)


class Ready(NamedTuple):
    """Scores as the kernels take them, divided by the temperature; `shift` was the largest offset."""

    weights: Matrix
    scale: Matrix
    offset: Matrix
    temperature: float
    shift: float


def _ready(scores: LinearScores, dtype: Any) -> Ready:
    shift, temperature = float(np.max(scores.offset)), float(scores.temperature)
    sharpness = 1 / temperature if temperature else 1.0
    offset = ((scores.offset - shift) * sharpness).astype(dtype)
    scale = np.broadcast_to(np.multiply(scores.scale, sharpness), offset.shape).astype(dtype)
    return Ready(np.ascontiguousarray(scores.weights, dtype), scale, offset, temperature, shift)


def _local(ready: Ready, rows: WeightedRows, part: slice) -> tuple[Stats, float]:
    rows, part = rows.load(part)
    sums, counts = np.zeros(ready.weights.shape, rows.X.dtype), np.zeros(ready.weights.shape[1])
    value = _walk(assign_rows, ready, rows, part, sums, counts)
    return Stats(counts, sums), value


def _walk(kernel: Any, ready: Ready, rows: WeightedRows, part: slice, out: Matrix, counts: Matrix) -> float:
    """Let a kernel go over a part of the rows; return the bound."""
    X, (*given, shift) = rows.X, ready
    value = kernel(*(X.indptr, X.indices, X.data, rows.weight), *given, part.start, part.stop, out, counts)
    return float(value) + shift * float(rows.weight[part].sum(dtype=np.float64))


def squared_lengths(sums: Matrix) -> NDArray[np.float64]:
    """Squared lengths of the columns, in double precision.

    Examples
    --------
    >>> squared_lengths(np.array([[3.0, 0.0], [4.0, 1.0]]))
    array([25.,  1.])
    """
    out = np.zeros(sums.shape[1])
    column_squares(np.ascontiguousarray(sums), out)
    return out


def mixed_columns(sums: Matrix, scale: Matrix, shift: Matrix) -> tuple[Matrix, NDArray[np.float64]]:
    """Columns of `sums`, each times its scale, plus one vector; and their squared lengths, in one pass.

    Examples
    --------
    >>> mixed_columns(np.eye(2), np.array([2.0, 3.0]), np.array([1.0, 0.0]))
    (array([[3., 1.],
           [0., 3.]]), array([ 9., 10.]))
    """
    out, squares = np.empty_like(sums), np.zeros(sums.shape[1])
    mix_columns(sums, scale.astype(sums.dtype), shift.astype(sums.dtype), out, squares)
    return out, squares


def e_step(scores: LinearScores, rows: WeightedRows, engine: Any) -> tuple[Stats, float]:
    """Statistics and bound of all rows, those of its parts added in their order.

    With a table of the rows, parts give responsibilities, and the sums are made of these, each by one thread.
    """
    ready = _ready(scores, rows.X.dtype)
    return statistics(ready, rows, engine) if rows.elsewhere is None else rows.elsewhere(ready)


def statistics(ready: Ready, rows: WeightedRows, engine: Any) -> tuple[Stats, float]:
    """Statistics and bound of rows that are here."""
    n_components = len(ready.offset)
    if rows.table is None or ready.temperature == 0:
        total: tuple[Stats, float] = engine.sum(partial(_local, ready, rows), parts_of(rows))
        return total
    resp = np.empty((rows.X.shape[0], n_components), rows.X.dtype)
    in_order = ready._replace(weights=np.take(ready.weights, rows.table.order, axis=0))
    seen = WeightedRows(rows.table.X, rows.weight)

    def respond(part: slice) -> tuple[Matrix, float]:
        counts = np.zeros((2, n_components))
        return counts, _walk(respond_rows, in_order, seen, part, resp, counts)

    (counts, lengths), bound = engine.sum(respond, parts_of(rows, _NONZEROS_PER_PART))
    return Stats(counts, weighted_sums(rows.table, resp, lengths.astype(np.int64), engine)), bound


def weighted_sums(table: Table, resp: Matrix, lengths: NDArray[np.int64], engine: Any) -> Matrix:
    """Add up rows weighted by responsibilities, to (n_features, n_components): a product, sparse if these are.

    Parameters
    ----------
    table : Table
    resp : ndarray of shape (n_samples, n_components)
    lengths : ndarray of shape (n_components,)
        How many responsibilities of each component are not zero.
    engine : object with ``map(function, items)``

    Examples
    --------
    >>> from arbora.engine import ThreadEngine
    >>> table = WeightedRows(sp.csr_array([[1.0, 0.0], [1.0, 1.0]]), np.ones(2)).with_table().table
    >>> weighted_sums(table, np.array([[0.5], [0.25]]), np.array([2]), ThreadEngine(1))
    array([[0.75],
           [0.25]])
    """
    (X, transposed, order), n_components = table, resp.shape[1]
    n_features = len(order)
    sums = np.empty((n_features, n_components), resp.dtype)
    if lengths.sum() > resp.size / _FEW:

        def share(first: int) -> None:
            part = first, min(first + _ROWS_AT_ONCE, n_features)
            sum_shares(transposed.indptr, transposed.indices, transposed.data, resp, *part, order, sums)

        engine.map(share, range(0, n_features, _ROWS_AT_ONCE))
        return sums
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # Zeros: a responsibility that is no number is counted, and not listed.
    members, shares = np.zeros(starts[-1], np.int32), np.zeros(starts[-1], resp.dtype)
    list_members(resp, starts, members, shares)

    def add(first: int) -> None:
        part = first, min(first + _COLUMNS_AT_ONCE, n_components)
        sum_members(X.indptr, X.indices, X.data, starts, members, shares, *part, order, sums)

    engine.map(add, range(0, n_components, _COLUMNS_AT_ONCE))
    return sums
