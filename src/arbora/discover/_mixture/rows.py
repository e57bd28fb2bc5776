"""Rows in the form of the models: directions of unit length, or counts; with weights.

On the sphere only the direction of a row matters, so rows of any length are divided by their length, as users of
cosine similarity expect. A zero row has no direction: it stays zero, takes no part in a fit, and is predicted by the
weights of the components alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from arbora.core.validation import check_not_above, check_not_negative
from arbora.discover._mixture.memory_mapped import UnitRows, is_mapped, iter_chunks, select_rows
from arbora.infer.mixture.statistics import WeightedRows, squared_lengths

_LARGEST = 1e30  # largest count or weight of a row; single precision ends at 3e38


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
    """Return which rows have no entry other than zero.

    Examples
    --------
    >>> zero_rows(sp.csr_array([[0.0, 1.0], [0.0, 0.0]]))
    array([False,  True])
    """
    filled = [combine_rows(np.logical_or, chunk.data != 0, chunk.indptr) for _, chunk in iter_chunks(X)]
    return ~np.concatenate(filled)


def combine_rows(combine: np.ufunc, entries: NDArray[Any], indptr: NDArray[Any]) -> NDArray[Any]:
    """Reduce the entries of each row of a CSR matrix; rows without entries get 0.

    Examples
    --------
    >>> combine_rows(np.add, np.array([3.0, 4.0, 5.0]), np.array([0, 2, 2, 3]))
    array([7., 0., 5.])
    """
    found = np.zeros(len(indptr) - 1, dtype=entries.dtype)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        found[filled] = combine.reduceat(entries[: indptr[-1]], indptr[filled])
    return found


def row_sizes(X: sp.csr_array) -> NDArray[np.float64]:
    """Return the largest absolute entry of each row, and the length of the row divided by it; (1, 0) for a zero row.

    Division by the largest entry avoids overflow with huge or tiny numbers.

    Examples
    --------
    >>> row_sizes(sp.csr_array([[3.0, 4.0], [0.0, 0.0]]))
    array([[4.  , 1.  ],
           [1.25, 0.  ]])
    """
    largest = combine_rows(np.maximum, np.abs(X.data.astype(np.float64)), X.indptr)
    largest[largest == 0] = 1.0
    relative = X.data / np.repeat(largest, np.diff(X.indptr))
    return np.array([largest, np.sqrt(combine_rows(np.add, relative * relative, X.indptr))])


def unit_columns(sums: NDArray[Any], before: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Divide the columns of `sums` by their lengths and return both; a zero column becomes that of `before`."""
    length = np.sqrt(squared_lengths(sums))
    empty = length == 0
    directions = sums / np.where(empty, 1.0, length).astype(sums.dtype)
    if empty.any():
        directions[:, empty] = before[:, empty]
    return directions, length


def count_rows(X: sp.csr_array) -> sp.csr_array:
    """Refuse entries that are negative, or too large for single precision. A row of zeros is an empty document."""
    check_not_negative(X, "MultinomialMixture", "Give counts or frequencies")
    check_not_above(X, _LARGEST, "Divide X by a number: larger values cannot be summed in single precision")
    return X


def check_weight(sample_weight: Any, X: Any) -> NDArray[np.float64]:
    """Validate the weights of rows; at least one must be positive."""
    weight: NDArray[np.float64] = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    if not weight.any():
        raise ValueError("all rows have weight 0: give at least one row a positive weight.")
    low, high = weight[weight > 0].min(), weight.max()
    if low < 1 / _LARGEST or high > _LARGEST:
        raise ValueError(
            f"sample_weight contains {low if low < 1 / _LARGEST else high:g}, but a weight is a number of rows: give "
            f"0, or numbers between {1 / _LARGEST:g} and {_LARGEST:g}."
        )
    return weight


def refuse_few(rows: WeightedRows, n_components: int, name: str = "n_components") -> None:
    """Refuse more components than rows."""
    n_samples = rows.X.shape[0]
    if n_samples < n_components:
        raise ValueError(
            f"n_samples={n_samples} rows cannot fill {name}={n_components}: give more rows or fewer components (rows "
            "of weight 0 do not count)."
        )


def as_rows(X: Any, weight: NDArray[Any], dtype: Any) -> WeightedRows:
    """Return the rows of positive weight, in the working precision."""
    if not weight.all():
        kept = np.flatnonzero(weight)
        X, weight = select_rows(X, kept), weight[kept]
    return WeightedRows(X.astype(dtype, copy=False), weight.astype(dtype, copy=False))


def drop_zero_rows(X: Any, weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Give zero rows the weight 0, which leaves them out of a fit; return the weights and the number of zero rows."""
    zero = zero_rows(X) & (weight > 0)
    if zero.any():
        weight = np.where(zero, 0.0, weight)
        if not weight.any():
            raise ValueError(
                "all rows of X are zero: no row has a feature (documents that share no word with the vocabulary); "
                "give rows with at least one non-zero entry."
            )
    return weight, int(zero.sum())


def _divisors(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sizes of rows as divisors: 1 for a zero row."""
    sizes[1, sizes[1] == 0] = 1.0
    return sizes
