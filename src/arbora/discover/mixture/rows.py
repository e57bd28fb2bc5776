"""Rows in the form of the models: directions of unit length, or counts; with weights.

On the sphere only the direction of a row matters, so rows of any length are divided by their length, as users of
cosine similarity expect. A zero row has no direction: it stays zero, takes no part in a fit, and is predicted by the
weights of the components alone.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from arbora.arrays import Array, Ints, Matrix
from arbora.core.chunks import require_memory, split
from arbora.core.engine import Engine
from arbora.core.validation import check_not_above, check_not_negative
from arbora.infer.mixture.statistics import MAX_RESPONSIBILITIES, WeightedRows, file_chunks, nonzeros_at_once

# --- Rows of unit length in files larger than memory: they are read and scaled one chunk at a time ----------
#
# A CSR array whose `data` is memory-mapped (``np.load(..., mmap_mode="r")``) is never copied as a whole. Only a few
# numbers for each row stay in memory. Code that passes over all rows iterates over `iter_chunks`, which is a single
# item for rows in memory. The memory that a fit needs is estimated before it starts (`require_fit`).


_ROWS_AT_ONCE = 4096  # rows whose scores are in memory at the same time
_BYTES_PER_ENTRY = 40  # of a chunk that is read: in double and in working precision, sizes, indices
_MATRICES = 8  # arrays of n_features x n_components of a run, beside one for each thread
_NUMBERS_PER_ROW = 8  # sizes, weights, densities
_NUMBERS_PER_SCORE = 12  # for each row and component, if concentrations are integrated out


def is_mapped(X: sp.csr_array) -> bool:
    """Return whether the entries of a CSR array are memory-mapped."""
    base: Any = X.data
    while base is not None:
        if isinstance(base, np.memmap | mmap.mmap):
            return True
        base = getattr(base, "obj", None) if isinstance(base, memoryview) else getattr(base, "base", None)
    return False


class UnitRows:
    """Rows of a memory-mapped CSR array, scaled to unit length when they are read: ``rows[part]`` is a CSR array.

    `sizes` has two rows: the largest entry of each row of X, and the length of the row divided by it. Two steps avoid
    overflow. `ids` selects rows of X, and `dtype` is the type of the entries of ``rows[part]``.
    """

    def __init__(
        self,
        X: sp.csr_array,
        sizes: Array,
        ids: Ints | None = None,
        dtype: Any = np.float64,
    ) -> None:
        self._X, self._sizes, self._ids, self.dtype = X, sizes, ids, np.dtype(dtype)
        self.shape = (X.shape[0] if ids is None else len(ids), X.shape[1])
        counts = np.diff(X.indptr) if ids is None else np.diff(X.indptr)[ids]
        self.indptr = X.indptr if ids is None else np.append(0, np.cumsum(counts, dtype=np.int64))
        self.nnz = int(self.indptr[-1])

    def __getitem__(self, rows: slice | NDArray[np.integer[Any]]) -> sp.csr_array:
        ids: Any = rows if self._ids is None else self._ids[rows]
        part = self._X[ids]
        data = part.data.astype(np.float64)
        for size in self._sizes:
            data /= np.repeat(size[ids], np.diff(part.indptr))
        # Copy the indices: numba would compile the kernels again for a read-only view of the file.
        arrays = (data.astype(self.dtype, copy=False), np.array(part.indices), np.array(part.indptr))
        return sp.csr_array(arrays, shape=part.shape)

    def select(self, ids: Ints) -> UnitRows:
        """Select rows without reading them."""
        return UnitRows(self._X, self._sizes, ids if self._ids is None else self._ids[ids], self.dtype)

    def astype(self, dtype: Any, copy: bool = False) -> UnitRows:
        """Return the same rows with another type of entries."""
        return UnitRows(self._X, self._sizes, self._ids, dtype)


def select_rows(X: Any, ids: Ints) -> Any:
    """Return some rows of X; rows in a file stay there."""
    return X.select(ids) if isinstance(X, UnitRows) else X[ids]


def iter_chunks(X: Any) -> Iterator[tuple[slice, sp.csr_array]]:
    """Yield chunks of X with their rows; X itself as one chunk if it is in memory."""
    if not isinstance(X, UnitRows):
        yield slice(0, X.shape[0]), X
        return
    for part in file_chunks(X):
        yield part, X[part]


def chunks(X: Any) -> list[slice]:
    """Split X into chunks whose scores fit into memory; for rows in a file, whose entries fit too."""
    if not isinstance(X, UnitRows):
        return split(X.shape[0], size=_ROWS_AT_ONCE)
    parts = file_chunks(X)
    return [
        slice(part.start + chunk.start, part.start + chunk.stop)
        for part in parts
        for chunk in split(part.stop - part.start, size=_ROWS_AT_ONCE)
    ]


def map_chunks(function: Callable[[sp.csr_array], Matrix], X: Any, engine: Engine) -> Matrix:
    """Apply a function to chunks of rows and concatenate the results, so that the scores of all rows never exist."""
    return np.concatenate(engine.map(lambda part: function(X[part]), chunks(X)))


def fit_bytes(X: Any, n_components: int, dtype: Any, n_threads: int, n_runs: int = 1) -> int:
    """Estimate the bytes that a fit needs beside X; `n_runs` starts run at the same time."""
    (n_samples, n_features), itemsize = X.shape, np.dtype(dtype).itemsize
    matrices = n_features * n_components * (_MATRICES * n_runs + n_threads) * (itemsize + 4)
    scores = n_threads * min(_ROWS_AT_ONCE, n_samples) * n_components * 8 * _NUMBERS_PER_SCORE
    n_trials = int(2 + np.log(n_components))  # of k-means++, which holds two arrays of distances
    by_row = 8 * n_samples * (_NUMBERS_PER_ROW + 2 * n_trials * n_runs)
    if isinstance(X, UnitRows):
        at_once = min(nonzeros_at_once(n_features), X.nnz)
        return int(matrices + by_row + scores + n_threads * at_once * _BYTES_PER_ENTRY)
    has_table = n_samples * n_components <= MAX_RESPONSIBILITIES
    # Rows in working precision; reordered and transposed, if there is a table; in double precision, for quantiles.
    copies = X.nnz * (itemsize + 2 * (itemsize + 4) * has_table + 12)
    # Responsibilities and, if few are not zero, a list of the others: at most an eighth of them, 4 bytes more each.
    responsibilities = n_runs * n_samples * n_components * has_table * (itemsize + (itemsize + 4) // 8)
    return int(matrices + copies + by_row + max(scores, responsibilities))


def require_fit(rows: WeightedRows, n_components: int, n_threads: int, n_init: int = 1) -> None:
    """Refuse a fit of more components than rows, or one that would not fit into memory; starts run in parallel."""
    refuse_few(rows, n_components)
    X, advice = rows.X, "Decrease n_components or n_jobs"
    if not isinstance(X, UnitRows):
        advice += ", or give memory-mapped rows (see docs/discover.md)"
    what = f"A mixture of n_components={n_components} for {X.shape[0]} rows of {X.shape[1]} features"
    n_bytes = fit_bytes(X, n_components, X.dtype, n_threads, min(n_init, n_threads))
    require_memory(n_bytes, what, f"{advice}.")


# --- Rows in the form of the models: directions of unit length, or counts; with weights ---------------------


_MAX_VALUE = 1e30  # largest count or weight of a row; single precision ends at 3e38


def unit_rows(X: sp.csr_array) -> sp.csr_array:
    """Divide every row by its length, in double precision; zero rows stay zero."""
    sizes = _divisors(row_sizes(X))
    data = X.data.astype(np.float64)
    for size in sizes:
        data /= np.repeat(size, np.diff(X.indptr))
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def unit_rows_of_file(X: sp.csr_array) -> sp.csr_array | UnitRows:
    """Like `unit_rows`, but memory-mapped rows stay in their file; see `UnitRows`."""
    if not is_mapped(X):
        return unit_rows(X)
    whole = UnitRows(X, np.ones((2, X.shape[0])))
    sizes = np.hstack([row_sizes(chunk) for _, chunk in iter_chunks(whole)])
    return UnitRows(X, _divisors(sizes))


def zero_rows(X: Any) -> NDArray[np.bool_]:
    """Return which rows have no entry other than zero."""
    filled = [combine_rows(np.logical_or, chunk.data != 0, chunk.indptr) for _, chunk in iter_chunks(X)]
    return ~np.concatenate(filled)


def combine_rows(combine: np.ufunc, entries: Matrix, indptr: Matrix) -> Matrix:
    """Reduce the entries of each row of a CSR matrix; rows without entries get 0."""
    reduced = np.zeros(len(indptr) - 1, dtype=entries.dtype)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        reduced[filled] = combine.reduceat(entries[: indptr[-1]], indptr[filled])
    return reduced


def row_sizes(X: sp.csr_array) -> Array:
    """Return the largest absolute entry of each row, and the length of the row divided by it; (1, 0) for a zero row.

    Division by the largest entry avoids overflow with huge or tiny numbers.
    """
    largest = combine_rows(np.maximum, np.abs(X.data.astype(np.float64)), X.indptr)
    largest[largest == 0] = 1.0
    relative = X.data / np.repeat(largest, np.diff(X.indptr))
    return np.array([largest, np.sqrt(combine_rows(np.add, relative * relative, X.indptr))])


def count_rows(X: sp.csr_array) -> sp.csr_array:
    """Refuse entries that are negative, or too large for single precision. A row of zeros is an empty document."""
    check_not_negative(X, "MultinomialMixture", "Give counts or frequencies")
    check_not_above(X, _MAX_VALUE, "Divide X by a number: larger values cannot be summed in single precision")
    return X


def check_weight(sample_weight: Any, X: Any) -> tuple[Array, int]:
    """Validate the weights of rows; return them, 0 for zero rows, which take no part in a fit, and their number."""
    weight: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("all rows have weight 0: give at least one row a positive weight.")
    low, high = weight[weight > 0].min(), weight.max()
    if low < 1 / _MAX_VALUE or high > _MAX_VALUE:
        raise ValueError(
            f"sample_weight contains {low if low < 1 / _MAX_VALUE else high:g}, but a weight is a number of rows: "
            f"give 0, or numbers between {1 / _MAX_VALUE:g} and {_MAX_VALUE:g}."
        )
    zero = zero_rows(X) & (weight > 0)
    if zero.any():
        weight = np.where(zero, 0.0, weight)
        if not weight.any():
            raise ValueError(
                "all rows of X are zero: no row has a feature (documents that share no word with the vocabulary); "
                "give rows with at least one non-zero entry."
            )
    return weight, int(zero.sum())


def refuse_few(rows: WeightedRows, n_components: int, name: str = "n_components") -> None:
    """Refuse more components than rows."""
    n_samples = rows.X.shape[0]
    if n_samples < n_components:
        raise ValueError(
            f"n_samples={n_samples} rows cannot fill {name}={n_components}: give more rows or fewer components (rows "
            "of weight 0 do not count)."
        )


def as_rows(X: Any, weight: Matrix, dtype: Any) -> WeightedRows:
    """Return the rows of positive weight, in the working precision."""
    if not weight.all():
        ids = np.flatnonzero(weight)
        X, weight = select_rows(X, ids), weight[ids]
    return WeightedRows(X.astype(dtype, copy=False), weight.astype(dtype, copy=False))


def _divisors(sizes: Array) -> Array:
    """Return the sizes of rows as divisors: 1 for a zero row."""
    sizes[1, sizes[1] == 0] = 1.0
    return sizes
