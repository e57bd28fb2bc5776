"""Validation of feature matrices, one for all estimators.

`check_features` returns a dense or a CSR matrix, as X was given; `check_rows` always returns a canonical CSR array.
Both take the same steps:

1. **structure**: the index arrays of a sparse matrix must stay inside its shape, because compiled kernels trust them
   (`structure_problem`);
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

from arbora.arrays import Matrix
from arbora.core.chunks import require_memory, split_entries

# --- Check the structure of sparse matrices: the index arrays must stay inside the shape --------------------
#
# Compiled code, of scipy and of Arbora, trusts the index arrays of a matrix. It reads and writes outside its memory
# when they are wrong. scipy does not protect against that: a matrix can be changed after it was made, and
# ``check_format(full_check=True)`` returns early if the last entry of `indptr` is 0. `structure_problem` is the one
# check of the library. Readers, `arbora.io.load` and all estimators call it before anything else touches the matrix.
#
# ============  ==========================================================================================
# CSR, CSC      `indptr` has one entry more than rows (columns), starts at 0, never falls, and ends within
#               `indices` and `data`; all indices are inside the shape
# BSR           the same for blocks; the block size divides the shape
# COO           as many coordinates as values on each axis; all coordinates are inside the shape
# DIA           as many offsets as diagonals
# LIL           as many lists as rows, of indices inside the shape and of as many values
# DOK           keys are inside the shape
# ============  ==========================================================================================
#
# Index arrays must be one-dimensional, of native int32 or int64, and values an array of a plain dtype. The check is
# linear in the number of entries: one pass over the indices, none over the values. It does not detect changes by
# another thread during a call.


_INDEX_TYPES = (np.dtype(np.int32), np.dtype(np.int64))


def structure_problem(X: Any) -> str | None:
    """Describe the first problem in the structure of a sparse matrix; None if it is sound, or X is not sparse.

    >>> X = sp.csr_array(np.eye(2))
    >>> X.indices[1] = 7
    >>> structure_problem(X)
    'it has shape (2, 2), but an entry in column 7'
    """
    if not _is_sparse(X):
        return None
    problem = _CHECKS[X.format](X)
    return None if problem is None else f"it has shape {X.shape}, but {problem}"


def _is_sparse(X: Any) -> bool:
    return bool(sp.issparse(X))


def check_structure(X: Any, name: str = "X") -> None:
    """Refuse a sparse matrix whose index arrays point outside it; scipy accepts such arrays without an error."""
    problem = structure_problem(X)
    if problem is not None:
        raise ValueError(
            f"{name} is damaged: {problem}. Build it again from its entries, with the shape that they need, and do "
            "not change its index arrays."
        )


def _array_problem(name: str, array: Any, types: tuple[np.dtype[Any], ...] = _INDEX_TYPES) -> str | None:
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        return f"its {name} is not an array of one dimension"
    if array.dtype not in types:
        return f"its {name} has dtype {array.dtype}, not int32 or int64"
    return None


def _values_problem(data: Any, n_dimensions: int = 1) -> str | None:
    if not isinstance(data, np.ndarray) or data.ndim != n_dimensions:
        return f"its data is not an array of {n_dimensions} dimension{'s' * (n_dimensions > 1)}"
    if data.dtype.kind not in "biufc":
        return f"its data has dtype {data.dtype}, not a number"
    return None


def _compressed(X: Any) -> str | None:
    shape = X.shape if X.ndim == 2 else (1, *X.shape)
    by_rows = X.format == "csr"
    return _compressed_parts(X, shape if by_rows else shape[::-1], "column" if by_rows else "row")


def _compressed_parts(X: Any, lengths: tuple[int, int], axis: str, n_data: int = 1) -> str | None:
    problem = (
        _array_problem("indptr", X.indptr)
        or _array_problem("indices", X.indices)
        or _values_problem(X.data, n_data)
    )
    if problem:
        return problem
    ends, (n_major, n_minor) = X.indptr, lengths
    if len(ends) != n_major + 1 or ends[0] != 0 or np.any(ends[1:] < ends[:-1]):
        return f"its indptr has {len(ends)} entries that do not rise from 0"
    if ends[-1] > min(len(X.indices), len(X.data)):
        return f"its indptr ends at {ends[-1]}, beyond its {len(X.indices)} indices and {len(X.data)} values"
    return _range_problem(X.indices[: ends[-1]], n_minor, axis)


def _range_problem(indices: Any, length: int, axis: str) -> str | None:
    if not len(indices):
        return None
    # One pass: as an unsigned number, a negative index is larger than any length.
    if indices.view(f"u{indices.itemsize}").max() < length:
        return None
    outside = indices[(indices < 0) | (indices >= length)]
    return f"an entry in {axis} {outside[0]}"


def _blocks(X: Any) -> str | None:
    problem = _values_problem(X.data, 3)
    if problem:
        return problem
    height, width = X.data.shape[1:]
    if min(height, width) < 1 or X.shape[0] % height or X.shape[1] % width:
        return f"blocks of shape {(height, width)}"
    return _compressed_parts(X, (X.shape[0] // height, X.shape[1] // width), "block column", 3)


def _coordinates(X: Any) -> str | None:
    problem = _values_problem(X.data)
    if problem:
        return problem
    if len(X.coords) != len(X.shape):
        return f"coordinates on {len(X.coords)} axes"
    names = (
        ("row", "column")
        if len(X.shape) == 2
        else tuple(f"position of axis {a}" for a in range(len(X.shape)))
    )
    for name, coordinates, length in zip(names, X.coords, X.shape, strict=True):
        problem = _array_problem(f"array of {name}s", coordinates)
        if problem:
            return problem
        if len(coordinates) != len(X.data):
            return f"{len(coordinates)} {name}s for {len(X.data)} values"
        problem = _range_problem(coordinates, length, name)
        if problem:
            return problem
    return None


def _diagonals(X: Any) -> str | None:
    problem = _values_problem(X.data, 2) or _array_problem("offsets", X.offsets)
    if problem is None and len(X.offsets) != len(X.data):
        problem = f"{len(X.offsets)} offsets for {len(X.data)} diagonals"
    return problem


def _lists(X: Any) -> str | None:
    n_rows, n_columns = X.shape
    for name in ("rows", "data"):
        part = getattr(X, name)
        if not isinstance(part, np.ndarray) or part.dtype != object or part.shape != (n_rows,):
            return f"its {name} is not an array of {n_rows} lists"
    for row, (columns, values) in enumerate(zip(X.rows, X.data, strict=True)):
        if not isinstance(columns, list) or not isinstance(values, list) or len(columns) != len(values):
            return f"row {row} does not have a list of columns and one of as many values"
        if not all(isinstance(j, int | np.integer) and 0 <= j < n_columns for j in columns):
            return f"row {row} has an entry in a column outside the shape"
        if not all(isinstance(value, int | float | complex | np.number | np.bool_) for value in values):
            return f"row {row} has an entry that is not a number"
    return None


def _keys(X: Any) -> str | None:
    n_axes = len(X.shape)
    for key in X.keys():  # noqa: SIM118 - iterating over a DOK matrix itself gives its rows
        place = key if isinstance(key, tuple) else (key,)
        whole = len(place) == n_axes and all(isinstance(i, int | np.integer) for i in place)
        if not whole or not all(0 <= i < length for i, length in zip(place, X.shape, strict=True)):
            return f"an entry at {key!r}"
    return None


_CHECKS = {
    "csr": _compressed,
    "csc": _compressed,
    "bsr": _blocks,
    "coo": _coordinates,
    "dia": _diagonals,
    "lil": _lists,
    "dok": _keys,
}


# --- Validation of feature matrices, one for all estimators -------------------------------------------------


Mask = Callable[[Matrix], NDArray[np.bool_]]

_DTYPES = (np.float64, np.float32)
_LISTED = 5  # rows that an error message lists by number
_WIDE = 10_000_000  # rows or columns from which the memory for one number each is counted
_BYTES_PER_COLUMN = 32  # a few vectors of numbers
_BYTES_PER_ROW = 16


def check_features(estimator: Any, X: Any, *, reset: bool, min_features: int = 1, squares: Any = None) -> Any:
    """Check a feature matrix that may stay dense; return it in float64 or float32, sparse rows as a CSR matrix.

    `n_features_in_` of the estimator is set (`reset`, in `fit`) or compared. `min_features` is the smallest number of
    features in `fit`. With `squares`, a dtype, features whose squared norm may overflow in this precision are refused
    (`check_squares`).
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

    The parameters are those of `check_features`. A CSR matrix in canonical format is not copied, so that
    memory-mapped arrays stay in their files.
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
    """Refuse a sparse matrix for whose rows or columns no vector fits in memory: one wrong index can do it."""
    is_sparse: bool = sp.issparse(X)
    if not is_sparse or X.ndim != 2:
        return
    n_rows, n_columns = X.shape
    if reset and n_columns > _WIDE:
        what = f"A fit with {n_columns} features"
        require_memory(n_columns * _BYTES_PER_COLUMN, what, "Is one column index of X too large?")
    if n_rows > _WIDE and X.format != "csr":
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
    """Sum of the squares of all entries, in their precision; infinite or NaN if one of them is not finite."""
    data = (X.data if hasattr(X, "indptr") else X).ravel(order="K")  # no copy of contiguous arrays
    with np.errstate(over="ignore", invalid="ignore"):
        return float(data @ data)


_FINEST_IN_SINGLE = 1e-6  # about ten roundings of single precision


def precision_for(tol: float | None) -> np.dtype[Any]:
    """Return the precision in which a fit computes: single, or double if `tol` asks for more than single resolves.

    Single precision halves the memory and the time of products with rows; its rounding (6e-8 relative) cannot be told
    from progress that is below 1e-6.

    >>> precision_for(1e-4), precision_for(1e-8), precision_for(None)
    (dtype('float32'), dtype('float64'), dtype('float32'))
    """
    return np.dtype(np.float64 if tol is not None and tol < _FINEST_IN_SINGLE else np.float32)


def check_squares(X: Any, dtype: Any) -> None:
    """Refuse features whose squared norm may be infinite in the working precision.

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
            + (
                " or use a tol below 1e-6, which computes in double precision."
                if dtype == np.float32
                else "."
            )
        )


def check_not_negative(X: sp.csr_array, name: str, advice: str) -> None:
    """Refuse negative values in a CSR array."""
    advice = f"Negative values in data are not allowed by {name}. {advice}"
    refuse_entries(X, lambda values: values < 0, lambda value: f"contains {value:g}", advice)


def check_not_above(X: sp.csr_array, largest: float, advice: str) -> None:
    """Refuse values above `largest` in a CSR array."""
    refuse_entries(
        X, lambda values: values > largest, lambda value: f"contains {value:g}, above {largest:g},", advice
    )


def refuse_entries(X: Any, wrong: Mask, what: Callable[[Any], str], advice: str) -> None:
    """Raise an error if any entry is wrong. It has the first one, by row and column, and the rows of all.

    `wrong` marks the wrong ones of an array of entries, `what` describes the first of them ("contains NaN"), and
    `advice` tells what the user can do.
    """
    is_csr = hasattr(X, "indptr")
    values: Matrix = X.data if is_csr else X
    parts = split_entries(len(values), 1 if is_csr else X.shape[1])
    marks = [(part.start, np.argwhere(wrong(values[part]))) for part in parts]
    if not any(len(places) for _, places in marks):
        return
    places = np.concatenate([places + [start, 0][: values.ndim] for start, places in marks])
    first = tuple(places[0].tolist())
    if is_csr:
        rows = np.unique(np.searchsorted(X.indptr, places[:, 0], side="right") - 1)
        column = int(X.indices[first[0]])
    else:
        rows, column = np.unique(places[:, 0]), first[1]
    all_rows = f" (wrong rows: {_listed(rows)})" if len(rows) > 1 else ""
    raise ValueError(f"X {what(values[first])} in row {rows[0]}, column {column}{all_rows}. {advice}.")


def refuse_rows(rows: Matrix, what: str, advice: str) -> NoReturn:
    """Raise an error about whole rows.

    >>> refuse_rows(np.array([3, 17]), "has only zeros", "Drop these rows")
    Traceback (most recent call last):
    ...
    ValueError: X has only zeros in rows 3, 17. Drop these rows.
    """
    raise ValueError(f"X {what} in row{'s' * (len(rows) > 1)} {_listed(rows)}. {advice}.")


def _listed(rows: Matrix) -> str:
    tail = f" and {len(rows) - _LISTED} more" if len(rows) > _LISTED else ""
    return ", ".join(str(row) for row in rows[:_LISTED].tolist()) + tail
