"""The E-step of a mixture: statistics and bound of the rows, for any kind of components.

The log-joint of a row and a component is linear in the row, `x.W_k + c_k`. `local` returns the statistics of some
rows, `e_step` those of all. Statistics add, so that whole data, chunks on threads or on the workers of a cluster, and
mini-batches share them. The chunks depend on the data alone: the result has the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import Array, Ints, Matrix
from arbora.core.chunks import split, split_nonzeros
from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.kernels.mixture import (
    assign_rows,
    column_squares,
    list_members,
    mix_columns,
    respond_rows,
    sum_members,
    sum_shares,
)

# --- The E-step for dense rows: products of matrices over blocks of rows that stay in the cache -------------
#
# Rows are an array, or an object whose slices are arrays: it has `shape`, `dtype`, `dense = True` and `about`,
# which identifies it, and makes its rows on request (rows of a file, rows after a map). Blocks are computed in the
# precision of the rows and added in double precision.


ROWS_AT_ONCE = 4096
_MAX_CHUNKS = 64


class Counted(NamedTuple):
    """Sums over rows: responsibilities, rows weighted by them (n_features, n_components), value of the bound."""

    counts: Matrix
    sums: Matrix
    value: float


def is_dense(X: Any) -> bool:
    """Return whether rows are dense: an array, or an object that makes arrays."""
    return isinstance(X, np.ndarray) or bool(getattr(X, "dense", False))


def dense_chunks(n_rows: int) -> list[slice]:
    """Cut dense rows into at most 64 chunks for threads or shards; the cut depends on their number alone."""
    return split(n_rows, max(1, min(_MAX_CHUNKS, n_rows // ROWS_AT_ONCE)))


def blocks(chunk: slice) -> list[slice]:
    """Cut a chunk into blocks of at most `ROWS_AT_ONCE` rows."""
    return [
        slice(chunk.start + part.start, chunk.start + part.stop)
        for part in split(chunk.stop - chunk.start, size=ROWS_AT_ONCE)
    ]


def block_scores(Z: Matrix, weights: Matrix, scale: Matrix, offset: Matrix) -> Matrix:
    """Scores (n_rows, n_components) of rows in memory."""
    S = Z @ weights
    if np.any(scale != 1):
        S *= scale
    S += offset
    return np.asarray(S)


def share_block(S: Matrix, weight: Matrix) -> tuple[Matrix, Matrix]:
    """Replace scores by responsibilities times weights; return them and the log-sum-exp of each row."""
    top = S.max(axis=1)
    S -= top[:, None]
    np.exp(S, out=S)
    total = S.sum(axis=1)
    S *= (weight / total)[:, None]
    return S, top + np.log(total)


def count_dense(
    X: Any,
    weight: Matrix,
    chunk: slice,
    weights: Matrix,
    scale: Matrix,
    offset: Matrix,
    temperature: float,
) -> Counted:
    """Statistics of a chunk of dense rows; the scores are divided by the temperature if it is not 0.

    At temperature 0 only the best component of a row counts, of equal ones the first.
    """
    n_components = weights.shape[1]
    counts, sums, value = np.zeros(n_components), np.zeros((X.shape[1], n_components)), 0.0
    for block in blocks(chunk):
        Z, row_weight = X[block], weight[block]
        S = block_scores(Z, weights, scale, offset)
        if temperature == 0:
            best = S.argmax(axis=1)
            cells = np.arange(len(S)), best
            value += float(row_weight @ S[cells])
            S[:] = 0
            S[cells] = row_weight
            counts += np.bincount(best, row_weight, n_components)
        else:
            S, total = share_block(S, row_weight)
            value += temperature * float(row_weight @ total)
            counts += S.sum(axis=0)
        sums += Z.T @ S
    return Counted(counts, sums, value)


# --- The E-step of a mixture: statistics and bound of the rows, for any kind of components ------------------


_MAX_ADDENDS = 1 << 16  # rows of a chunk whose statistics are added in single precision
_NONZEROS_PER_CHUNK = 1 << 17  # of a chunk that computes responsibilities only
MAX_RESPONSIBILITIES = 1 << 26  # numbers in memory at a time, 256 MiB in single precision
_NONZEROS_PER_SUM = 16  # least number of non-zeros of a chunk for each number in a column of its sums
_NONZEROS_AT_ONCE = 1 << 20  # that a thread reads from a file at a time
_MANY_FEATURES = 1 << 12  # whose scores do not fit into the cache of a core
_FEW = 8  # sums use only the non-zero responsibilities if at most one in this many is not zero
_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 8, 2048  # of the sums, computed by a thread at a time


class RowTable(NamedTuple):
    """Rows prepared for many E-steps over all of them: in memory, with features in `order`, and transposed.

    With many features the most frequent ones come first, so that the scores that are read most often are close
    together in memory.
    """

    X: sp.csr_array
    transposed: sp.csr_array
    order: Ints


class WeightedRows(NamedTuple):
    """Rows of a mixture and their weights, in the working precision.

    X is a CSR array, or an object for rows in a file: it has `shape`, `dtype`, `nnz` and `indptr` of a CSR array, and
    `X[chunk]` is a CSR array in memory. Dense rows: see above. `table` holds the rows prepared for
    many E-steps. `remote` computes the statistics of rows that are also on the workers of a cluster.
    """

    X: Any
    weight: Matrix
    table: RowTable | None = None
    remote: Callable[[KernelScores], tuple[Stats, float]] | None = None

    @property
    def in_memory(self) -> bool:
        """Whether X is a CSR array or an array."""
        return bool(sp.issparse(self.X)) or isinstance(self.X, np.ndarray)

    @property
    def is_dense(self) -> bool:
        """Whether X is an array, or an object that makes arrays."""
        return is_dense(self.X)

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weight.sum(dtype=np.float64))

    def take(self, ids: NDArray[np.integer[Any]]) -> WeightedRows:
        """Return some of the rows."""
        return WeightedRows(self.X[ids], self.weight[ids])

    def load(self, chunk: slice) -> tuple[WeightedRows, slice]:
        """Return rows in memory that contain a chunk of these, and its position among them."""
        if self.in_memory:
            return self, chunk
        return WeightedRows(self.X[chunk], self.weight[chunk]), slice(0, chunk.stop - chunk.start)

    def has_room(self, n_components: int) -> bool:
        """Whether rows are sparse, and a matrix of the responsibilities of all rows fits into memory."""
        return self.in_memory and not self.is_dense and self.X.shape[0] * n_components <= MAX_RESPONSIBILITIES

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
            X = sp.csr_array(transposed.T)  # with sorted indices again
        return self._replace(table=RowTable(X, transposed, order))


class LinearScores(NamedTuple):
    """Log-joint of a row x and component k: `scale[k] * x @ weights[:, k] + offset[k]`.

    With a scale, sums of rows can serve as weights without a pass over them to normalise them.
    """

    weights: Matrix
    offset: Matrix
    temperature: float = 1.0
    scale: Any = 1.0


_LOG_ZERO = -690.0  # logarithm of a weight of zero; the kernels cannot handle infinity


def log_weights(weights: Array) -> Array:
    """Return the logarithms of weights, -690 for a weight of zero.

    Examples
    --------
    >>> log_weights(np.array([1.0, 0.0]))
    array([   0., -690.])
    """
    return np.log(weights, out=np.full_like(weights, _LOG_ZERO), where=weights > 0)


def linear_log_joint(scores: LinearScores, X: sp.csr_array) -> Array:
    """Return the log-joint of rows and components (n_samples, n_components), in double precision."""
    joint: Array = csr_matmul(X, scores.weights.astype(np.float64, copy=False))
    return np.asarray(joint * scores.scale + scores.offset)


def left_out_parts(resp: Array, weight: Matrix) -> Array:
    """Return the parts of rows in components that leaving a row out removes: a row of weight 2 remains once."""
    parts: Array = resp * np.minimum(weight, 1.0)[:, None]
    return parts


def left_out_shares(counts: Array, parts: Array) -> Array:
    """Return log-shares of the components (n_samples, n_components), for each row without its part in them."""
    rest = np.maximum(counts - parts, 1e-300)
    shares: Array = np.log(rest) - np.log(rest.sum(axis=1, keepdims=True))
    return shares


class Stats(NamedTuple):
    """Sums over rows: responsibilities (n_components,), and rows weighted by them (n_features, n_components)."""

    counts: Matrix
    sums: Matrix


def row_chunks(rows: WeightedRows, min_nonzeros: int | None = None) -> list[slice]:
    """Cut the rows into chunks of about the same number of non-zeros, at least `min_nonzeros`.

    By default there are few enough chunks that adding their statistics costs little.
    """
    if rows.is_dense:
        return dense_chunks(rows.X.shape[0])
    (n_samples, n_features), nnz = rows.X.shape, rows.X.nnz
    n_chunks = nnz // (min_nonzeros or _NONZEROS_PER_SUM * max(n_features, 1))
    # Threads need no more chunks, but a chunk must not add up too many numbers where more chunks cost little.
    n_chunks = max(1, min(n_chunks, _MAX_CHUNKS), min(n_samples // _MAX_ADDENDS, nnz // max(n_features, 1)))
    if rows.in_memory:
        return split_nonzeros(rows.X.indptr, n_chunks)
    return file_chunks(rows.X, n_chunks)


def nonzeros_at_once(n_features: int) -> int:
    """Return how many non-zeros a thread reads from a file at a time: at least as many as a column of sums has."""
    return max(_NONZEROS_AT_ONCE, n_features)


def file_chunks(X: Any, min_chunks: int = 1) -> list[slice]:
    """Cut rows in a file into chunks that a thread reads at a time; make at least `min_chunks`."""
    return split_nonzeros(X.indptr, max(min_chunks, -(-X.nnz // nonzeros_at_once(X.shape[1]))))


class KernelScores(NamedTuple):
    """Scores in the form that the kernels take, divided by the temperature; `shift` was the largest offset.

    The shift is subtracted before the conversion to single precision: log-normalisers are large, but their
    differences are not.
    """

    weights: Matrix
    scale: Matrix
    offset: Matrix
    temperature: float
    shift: float


def kernel_scores(scores: LinearScores, dtype: Any) -> KernelScores:
    """Convert scores to the form that the kernels take."""
    shift, temperature = float(np.max(scores.offset)), float(scores.temperature)
    sharpness = 1 / temperature if temperature else 1.0
    offset = ((scores.offset - shift) * sharpness).astype(dtype)
    scale = np.broadcast_to(np.multiply(scores.scale, sharpness), offset.shape).astype(dtype)
    return KernelScores(np.ascontiguousarray(scores.weights, dtype), scale, offset, temperature, shift)


def local(scores: LinearScores, rows: WeightedRows, chunk: slice) -> tuple[Stats, float]:
    """Compute the statistics and the bound of a chunk of the rows."""
    return _local(kernel_scores(scores, rows.X.dtype), rows, chunk)


def _local(scores: KernelScores, rows: WeightedRows, chunk: slice) -> tuple[Stats, float]:
    if rows.is_dense:
        counts, sums, value = count_dense(
            rows.X, rows.weight, chunk, scores.weights, scores.scale, scores.offset, scores.temperature
        )
        return Stats(counts, sums), value + scores.shift * float(rows.weight[chunk].sum(dtype=np.float64))
    rows, chunk = rows.load(chunk)
    sums, counts = np.zeros(scores.weights.shape, rows.X.dtype), np.zeros(scores.weights.shape[1])
    value = _walk(assign_rows, scores, rows, chunk, sums, counts)
    return Stats(counts, sums), value


def _walk(
    kernel: Any, scores: KernelScores, rows: WeightedRows, chunk: slice, out: Matrix, counts: Matrix
) -> float:
    """Run a kernel over a chunk of the rows; return the bound."""
    X, (*arrays, shift) = rows.X, scores
    value = kernel(*(X.indptr, X.indices, X.data, rows.weight), *arrays, chunk.start, chunk.stop, out, counts)
    return float(value) + shift * float(rows.weight[chunk].sum(dtype=np.float64))


def squared_lengths(sums: Matrix) -> Array:
    """Return the squared lengths of the columns, in double precision."""
    out = np.zeros(sums.shape[1])
    column_squares(np.ascontiguousarray(sums), out)
    return out


def unit_columns(sums: Matrix, before: Matrix) -> tuple[Matrix, Array]:
    """Divide the columns of `sums` by their lengths and return both; a zero column becomes that of `before`."""
    length = np.sqrt(squared_lengths(sums))
    empty = length == 0
    directions = sums / np.where(empty, 1.0, length).astype(sums.dtype)
    if empty.any():
        directions[:, empty] = before[:, empty]
    return directions, length


def mixed_columns(sums: Matrix, scale: Matrix, shift: Matrix) -> tuple[Matrix, Array]:
    """Multiply each column of `sums` by its scale and add one vector; return it with the squared lengths."""
    out, squares = np.empty_like(sums), np.zeros(sums.shape[1])
    mix_columns(sums, scale.astype(sums.dtype), shift.astype(sums.dtype), out, squares)
    return out, squares


def e_step(scores: LinearScores, rows: WeightedRows, engine: Engine) -> tuple[Stats, float]:
    """Compute the statistics and the bound of all rows, those of the chunks added in their order."""
    prepared = kernel_scores(scores, rows.X.dtype)
    return statistics(prepared, rows, engine) if rows.remote is None else rows.remote(prepared)


def statistics(scores: KernelScores, rows: WeightedRows, engine: Engine) -> tuple[Stats, float]:
    """Compute the statistics and the bound of rows in this process.

    With a table of the rows, chunks compute responsibilities, and the sums are products with these.
    """
    n_components = len(scores.offset)
    if rows.table is None or scores.temperature == 0:
        total: tuple[Stats, float] = engine.sum(partial(_local, scores, rows), row_chunks(rows))
        return total
    resp = np.empty((rows.X.shape[0], n_components), rows.X.dtype)
    in_order = scores._replace(weights=np.take(scores.weights, rows.table.order, axis=0))
    seen = WeightedRows(rows.table.X, rows.weight)

    def respond(chunk: slice) -> tuple[Matrix, float]:
        counts = np.zeros((2, n_components))
        return counts, _walk(respond_rows, in_order, seen, chunk, resp, counts)

    (counts, lengths), bound = engine.sum(respond, row_chunks(rows, _NONZEROS_PER_CHUNK))
    return Stats(counts, weighted_sums(rows.table, resp, lengths.astype(np.int64), engine)), bound


def weighted_sums(table: RowTable, resp: Matrix, lengths: Ints, engine: Engine) -> Matrix:
    """Add up rows weighted by responsibilities, to (n_features, n_components): a product, sparse if these are.

    `lengths` are the numbers of non-zero responsibilities of each component.
    """
    (X, transposed, order), n_components = table, resp.shape[1]
    n_features = len(order)
    sums = np.empty((n_features, n_components), resp.dtype)
    if lengths.sum() > resp.size / _FEW:

        def multiply(chunk: slice) -> None:
            arrays = transposed.indptr, transposed.indices, transposed.data, resp
            sum_shares(*arrays, chunk.start, chunk.stop, order, sums)

        engine.map(multiply, split(n_features, size=_ROWS_AT_ONCE, even=False))
        return sums
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # Zeros, not empty: NaN responsibilities are counted but not listed.
    members, shares = np.zeros(starts[-1], np.int32), np.zeros(starts[-1], resp.dtype)
    list_members(resp, starts, members, shares)

    def add(columns: slice) -> None:
        arrays = X.indptr, X.indices, X.data, starts, members, shares
        sum_members(*arrays, columns.start, columns.stop, order, sums)

    engine.map(add, split(n_components, size=_COLUMNS_AT_ONCE, even=False))
    return sums
