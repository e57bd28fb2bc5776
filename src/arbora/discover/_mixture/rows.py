"""Rows in the form of the models: directions of unit length, or counts; with weights.

On the sphere only the direction of a row matters, so rows of any length are divided by their length, as users of
cosine similarity expect. A zero row has no direction and is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from arbora.core.validation import check_not_above, check_not_negative, refuse_rows
from arbora.discover._mixture.memory_mapped import UnitRows, is_mapped, iter_chunks, select_rows
from arbora.infer.mixture.statistics import WeightedRows, squared_lengths

_LARGEST = 1e30  # largest count or weight of a row; single precision ends at 3e38


def unit_rows(X: sp.csr_array, weight: NDArray[Any] | None = None) -> sp.csr_array:
    """Divide every row by its length, in double precision. Zero rows are refused, except rows of weight 0."""
    sizes = row_sizes(X)
    _refuse_zero(sizes, weight)
    data = X.data.astype(np.float64)
    for size in sizes:
        data /= np.repeat(size, np.diff(X.indptr))
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def unit_rows_of_file(X: sp.csr_array, weight: NDArray[Any] | None = None) -> sp.csr_array | UnitRows:
    """Like `unit_rows`, but memory-mapped rows stay in their file; see `UnitRows`."""
    if not is_mapped(X):
        return unit_rows(X, weight)
    whole = UnitRows(X, np.ones((2, X.shape[0])))
    sizes = np.hstack([row_sizes(chunk) for _, chunk in iter_chunks(whole)])
    _refuse_zero(sizes, weight)
    return UnitRows(X, sizes)


def row_sizes(X: sp.csr_array) -> NDArray[np.float64]:
    """Return the largest absolute entry of each row, and the length of the row divided by it; (1, 0) for a zero row.

    Division by the largest entry avoids overflow with huge or tiny numbers.

    Examples
    --------
    >>> row_sizes(sp.csr_array([[3.0, 4.0], [0.0, 0.0]]))
    array([[4.  , 1.  ],
           [1.25, 0.  ]])
    """
    owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    largest = np.zeros(X.shape[0])
    np.maximum.at(largest, owner, np.abs(X.data.astype(np.float64)))
    largest[largest == 0] = 1.0
    length = np.sqrt(np.bincount(owner, weights=(X.data / largest[owner]) ** 2, minlength=X.shape[0]))
    return np.array([largest, length])


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


def _refuse_zero(sizes: NDArray[np.float64], weight: NDArray[Any] | None) -> None:
    """Refuse rows without a direction. Zero rows of weight 0 pass, as rows of length 1."""
    zero = sizes[1] == 0
    wrong = zero if weight is None else zero & (weight > 0)
    if wrong.any():
        advice = (
            "A zero row has no direction: drop it, e.g. X[abs(X).sum(axis=1) > 0] (documents that share no word with "
            "the vocabulary)"
        )
        refuse_rows(np.flatnonzero(wrong), "is zero", advice)
    sizes[1, zero] = 1.0
