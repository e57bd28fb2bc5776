"""Rows of unit length in files that are larger than memory: read, scaled and forgotten, one part after the other.

A CSR array whose `data` lie in a file that is mapped into memory (``np.load(..., mmap_mode="r")``) is never copied as
a whole. What stays in memory are a few numbers for each row. Whoever walks over all rows takes them from `pieces`,
which for rows in memory is one piece.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core.chunks import split
from arbora.core.memory import require_memory
from arbora.infer.mixture.statistics import MOST_RESPONSIBILITIES, file_chunks, nonzeros_at_once

_ROWS_AT_ONCE = 4096  # rows whose scores are in memory at a time
_BYTES_PER_ENTRY = 40  # of a part that is read: in double precision and as it is used, sizes, indices
_MATRICES = 8  # of n_features x n_components that a run has at a time, beside one of each thread
_NUMBERS_PER_ROW = 8  # sizes, weights, densities
_NUMBERS_PER_SCORE = 12  # of a row and a component, where concentrations are integrated out


def is_mapped(X: sp.csr_array) -> bool:
    """Tell whether the entries of a CSR array lie in a file that is mapped into memory."""
    base: Any = X.data
    while base is not None:
        if isinstance(base, np.memmap | mmap.mmap):
            return True
        base = getattr(base, "obj", None) if isinstance(base, memoryview) else getattr(base, "base", None)
    return False


class UnitRows:
    """Rows of a mapped CSR array, divided by their lengths when they are taken: ``rows[part]`` is a CSR array.

    Parameters
    ----------
    X : CSR array of shape (n_rows, n_features)
    sizes : ndarray of shape (2, n_rows)
        Largest entry of each row, and length of the row divided by it: two steps, so that nothing overflows.
    ids : ndarray of int, optional
        Rows of X that are meant; by default all.
    dtype : dtype
        Of what is taken.

    Examples
    --------
    >>> X = sp.csr_array([[3.0, 4.0], [0.0, 2.0]])
    >>> UnitRows(X, np.array([[4.0, 2.0], [1.25, 1.0]]))[1:].toarray()
    array([[0., 1.]])
    """

    def __init__(
        self,
        X: sp.csr_array,
        sizes: NDArray[np.float64],
        ids: NDArray[np.int64] | None = None,
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
        # The indices are copied: they may be a view of the file, read-only, for which kernels would be compiled anew.
        arrays = (data.astype(self.dtype, copy=False), np.array(part.indices), np.array(part.indptr))
        return sp.csr_array(arrays, shape=part.shape)

    def select(self, ids: NDArray[np.int64]) -> UnitRows:
        """Return some of the rows, without reading them."""
        return UnitRows(self._X, self._sizes, ids if self._ids is None else self._ids[ids], self.dtype)

    def astype(self, dtype: Any, copy: bool = False) -> UnitRows:
        """Return the same rows, of another precision when they are taken."""
        return UnitRows(self._X, self._sizes, self._ids, dtype)


def select_rows(X: Any, ids: NDArray[np.int64]) -> Any:
    """Return some rows of X, which stay in their file if that is where they are."""
    return X.select(ids) if isinstance(X, UnitRows) else X[ids]


def pieces(X: Any) -> Iterator[tuple[slice, sp.csr_array]]:
    """Parts of X, one after the other, with their rows; X itself if it is in memory."""
    if not isinstance(X, UnitRows):
        yield slice(0, X.shape[0]), X
        return
    for part in file_chunks(X):
        yield part, X[part]


def chunks(X: Any) -> list[slice]:
    """Cut X into parts of few enough rows that their scores may be in memory; of a file, few enough entries too."""
    if not isinstance(X, UnitRows):
        return split(X.shape[0], size=_ROWS_AT_ONCE)
    parts = file_chunks(X)
    return [
        slice(part.start + piece.start, part.start + piece.stop)
        for part in parts
        for piece in split(part.stop - part.start, size=_ROWS_AT_ONCE)
    ]


def fit_bytes(X: Any, n_components: int, dtype: Any, n_threads: int, n_runs: int = 1) -> int:
    """Estimate the memory that a fit needs beside X, from sizes alone; `n_runs` starts are under way at a time.

    Examples
    --------
    >>> fit_bytes(sp.csr_array((1000, 50)), 10, np.float32, 1)
    1124000
    """
    (n_samples, n_features), itemsize = X.shape, np.dtype(dtype).itemsize
    matrices = n_features * n_components * (_MATRICES * n_runs + n_threads) * (itemsize + 4)
    scores = n_threads * min(_ROWS_AT_ONCE, n_samples) * n_components * 8 * _NUMBERS_PER_SCORE
    n_trials = int(2 + np.log(n_components))  # of k-means++, whose distances are made twice
    by_row = 8 * n_samples * (_NUMBERS_PER_ROW + 2 * n_trials * n_runs)
    if isinstance(X, UnitRows):
        at_once = min(nonzeros_at_once(n_features), X.nnz)
        return matrices + by_row + scores + n_threads * at_once * _BYTES_PER_ENTRY
    has_table = n_samples * n_components <= MOST_RESPONSIBILITIES
    # Rows as they are worked on and, perhaps, in another order and transposed; and in double precision, for the
    # quantiles.
    copies = X.nnz * (itemsize + 2 * (itemsize + 4) * has_table + 12)
    # Responsibilities and, if few are not zero, a list of these: an eighth of them at most, of 4 bytes more.
    responsibilities = n_runs * n_samples * n_components * has_table * (itemsize + (itemsize + 4) // 8)
    return matrices + copies + by_row + max(scores, responsibilities)


def require_fit(X: Any, n_components: int, dtype: Any, n_threads: int, n_init: int = 1) -> None:
    """Refuse a fit that would not fit into memory, before it begins; its starts run on the threads."""
    advice = "Decrease n_components or n_jobs"
    if not isinstance(X, UnitRows):
        advice += ", or give rows that are mapped from files (see docs/discover.md)"
    what = f"A mixture of n_components={n_components} for {X.shape[0]} rows of {X.shape[1]} features"
    n_bytes = fit_bytes(X, n_components, dtype, n_threads, min(n_init, n_threads))
    require_memory(n_bytes, what, f"{advice}.")
