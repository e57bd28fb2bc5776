"""Validation of feature matrices, one for all estimators.

`check_features` returns a dense or a CSR matrix, as X was given; `check_rows` always returns a canonical CSR array.
Both take the same steps:

1. **structure**: the index arrays of a sparse matrix must stay inside its shape, because compiled kernels trust them
   (`arbora.core.input.sparse_structure`);
2. **size**: a shape that alone exceeds the free memory is refused before anything is allocated;
3. **conversion**: scikit-learn's `validate_data` (dimensions, number of features, dtype, CSR);
4. **finiteness**: NaN and infinity are refused.

Models add rules of their own with `check_not_negative`, `check_not_above` and `refuse_rows`.
Every error says what is wrong, where (row and column, or rows), and what to do.
Entries are examined in chunks, so that a memory-mapped matrix is never copied as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from arbora.core.chunks import split
from arbora.core.input.sparse_structure import check_structure
from arbora.core.memory import require_memory

Mask = Callable[[NDArray[Any]], NDArray[np.bool_]]

_DTYPES = (np.float64, np.float32)
_ENTRIES_AT_ONCE = 1 << 20  # entries examined at a time
_LISTED = 5  # rows that an error message lists by number
_MANY = 10_000_000  # rows or columns from which the memory for one number each is counted
_BYTES_PER_COLUMN = 32  # a few vectors of numbers
_BYTES_PER_ROW = 16


def check_features(estimator: Any, X: Any, *, reset: bool, min_features: int = 1, squares: Any = None) -> Any:
    """Check a feature matrix that may stay dense.

    Parameters
    ----------
    estimator : estimator
        Its `n_features_in_` is set (`reset`) or compared.
    X : array-like or sparse matrix of shape (n_samples, n_features)
    reset : bool
        True in `fit`, False afterwards.
    min_features : int
        Smallest number of features in `fit`.
    squares : dtype, optional
        Refuse features whose squared norm may overflow in this precision (`check_squares`).

    Returns
    -------
    ndarray or CSR matrix of float64 or float32

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> check_features(BaseEstimator(), [[1.0, float("nan")]], reset=True)
    Traceback (most recent call last):
    ...
    ValueError: X contains NaN in row 0, column 1. BaseEstimator needs finite numbers: impute ...
    """
    check_structure(X)
    check_size(X, reset)
    X = validate_data(
        estimator,
        X,
        accept_sparse="csr",
        dtype=_DTYPES,
        ensure_all_finite=False,  # checked below, with the row and the column in the error
        ensure_min_features=min_features
        if reset
        else 1,  # later, a wrong number of features has its own error
        reset=reset,
    )
    total = sum_of_squares(X)
    if not np.isfinite(total):  # it may overflow although every value is finite: then look closer
        check_finite(X, type(estimator).__name__)
    if squares is not None and not total <= float(np.finfo(squares).max) / max(1, X.shape[1]):
        check_squares(X, squares)
    return X


def check_rows(estimator: Any, X: Any, *, reset: bool, min_features: int = 1) -> sp.csr_array:
    """Check a feature matrix and return it as a CSR array with sorted indices and no duplicates.

    A CSR matrix in canonical format is not copied, so that memory-mapped arrays stay in their files.

    Parameters
    ----------
    estimator, X, reset, min_features
        See `check_features`.

    Returns
    -------
    CSR array of float64 or float32
    """
    checked = check_features(estimator, X, reset=reset, min_features=min_features)
    rows: sp.csr_array = sp.csr_array(checked)
    if not rows.has_canonical_format:
        n_bytes = rows.data.nbytes + rows.indices.nbytes
        require_memory(n_bytes, "A copy of X with sorted indices", "Store X after X.sum_duplicates().")
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def check_size(X: Any, reset: bool) -> None:
    """Refuse a sparse matrix for whose rows or columns no vector fits in memory: one wrong index can make it so wide.

    Examples
    --------
    >>> check_size(sp.coo_array(([1.0], ([0], [2**55])), shape=(1, 2**60)), True)
    Traceback (most recent call last):
    ...
    MemoryError: A fit with 1152921504606846976 features needs about ... GiB, but only ...
    """
    is_sparse: bool = sp.issparse(X)
    if not is_sparse or X.ndim != 2:
        return
    n_rows, n_columns = X.shape
    if reset and n_columns > _MANY:
        what = f"A fit with {n_columns} features"
        require_memory(n_columns * _BYTES_PER_COLUMN, what, "Is one column index of X too large?")
    if n_rows > _MANY and X.format != "csr":
        what = f"A CSR matrix with {n_rows} rows"
        require_memory(n_rows * _BYTES_PER_ROW, what, "Is one row index of X too large?")


def check_finite(X: Any, name: str) -> None:
    """Refuse NaN and infinity in a dense or CSR matrix; `name` is that of the estimator."""
    refuse_entries(
        X,
        lambda values: ~np.isfinite(values),
        lambda value: f"contains {'NaN' if np.isnan(value) else 'infinity'}",
        f"{name} needs finite numbers: impute the missing values (scikit-learn's SimpleImputer) or drop the rows",
    )


def sum_of_squares(X: Any) -> float:
    """Sum of the squares of all entries, in their precision; infinite or NaN if one of them is not finite.

    Examples
    --------
    >>> sum_of_squares(np.array([[3.0, 4.0]])), sum_of_squares(np.array([[np.nan]]))
    (25.0, nan)
    """
    data = (X.data if hasattr(X, "indptr") else X).ravel(order="K")  # no copy of contiguous arrays
    with np.errstate(over="ignore", invalid="ignore"):
        return float(data @ data)


def check_squares(X: Any, dtype: Any) -> None:
    """Refuse features whose squared norm may be infinite in the working precision.

    Parameters
    ----------
    X : ndarray or CSR matrix
    dtype : float32 or float64

    Examples
    --------
    >>> check_squares(np.array([[1e30]]), np.float32)
    Traceback (most recent call last):
    ...
    ValueError: X holds a value as large as 1e+30, whose square overflows in float32: scale the features ...
    """
    dtype = np.dtype(dtype)
    limit = float(np.finfo(dtype).max) / max(1, X.shape[1])
    if sum_of_squares(X) <= limit:
        return
    data = X.data if hasattr(X, "indptr") else X
    largest = max(data.max(initial=0.0), -data.min(initial=0.0))
    if largest > np.sqrt(limit):
        raise ValueError(
            f"X holds a value as large as {largest:.2g}, whose square overflows in {dtype.name}: scale the features"
            + (" or use dtype='float64'." if dtype == np.float32 else ".")
        )


def check_not_negative(X: sp.csr_array, name: str, advice: str) -> None:
    """Refuse negative values in a CSR array.

    Examples
    --------
    >>> check_not_negative(sp.csr_array([[0.0, 1.0], [-1.0, 0.0]]), "MultinomialMixture", "Give counts")
    Traceback (most recent call last):
    ...
    ValueError: X contains -1 in row 1, column 0. Negative values in data are not allowed by ...
    """
    advice = f"Negative values in data are not allowed by {name}. {advice}"
    refuse_entries(X, lambda values: values < 0, lambda value: f"contains {value:g}", advice)


def check_not_above(X: sp.csr_array, largest: float, advice: str) -> None:
    """Refuse values above `largest` in a CSR array."""
    refuse_entries(
        X, lambda values: values > largest, lambda value: f"contains {value:g}, above {largest:g},", advice
    )


def refuse_entries(X: Any, wrong: Mask, what: Callable[[Any], str], advice: str) -> None:
    """Raise an error if any entry is wrong. It has the first one, by row and column, and the rows of all.

    Parameters
    ----------
    X : ndarray or CSR matrix
    wrong : callable
        Marks the wrong ones of an array of entries.
    what : callable
        Describes the first wrong value: "contains NaN".
    advice : str
        What the user can do.
    """
    is_csr = hasattr(X, "indptr")
    values: NDArray[Any] = X.data if is_csr else X
    size = _ENTRIES_AT_ONCE if is_csr else max(1, _ENTRIES_AT_ONCE // X.shape[1])
    found = [(part.start, np.argwhere(wrong(values[part]))) for part in split(len(values), size=size)]
    if not any(len(places) for _, places in found):
        return
    places = np.concatenate([places + [start, 0][: values.ndim] for start, places in found])
    first = tuple(places[0].tolist())
    if is_csr:
        rows = np.unique(np.searchsorted(X.indptr, places[:, 0], side="right") - 1)
        column = int(X.indices[first[0]])
    else:
        rows, column = np.unique(places[:, 0]), first[1]
    more = f" (wrong rows: {_listed(rows)})" if len(rows) > 1 else ""
    raise ValueError(f"X {what(values[first])} in row {rows[0]}, column {column}{more}. {advice}.")


def refuse_rows(rows: NDArray[Any], what: str, advice: str) -> NoReturn:
    """Raise an error about whole rows.

    Examples
    --------
    >>> refuse_rows(np.array([3, 17]), "has only zeros", "Drop these rows")
    Traceback (most recent call last):
    ...
    ValueError: X has only zeros in rows 3, 17. Drop these rows.
    """
    raise ValueError(f"X {what} in row{'s' * (len(rows) > 1)} {_listed(rows)}. {advice}.")


def _listed(rows: NDArray[Any]) -> str:
    more = f" and {len(rows) - _LISTED} more" if len(rows) > _LISTED else ""
    return ", ".join(str(row) for row in rows[:_LISTED].tolist()) + more
