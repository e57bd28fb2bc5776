"""Check the structure of sparse matrices: the index arrays must stay inside the shape.

Compiled code, of scipy and of Arbora, trusts the index arrays of a matrix. It reads and writes outside its memory
when they are wrong. scipy does not protect against that: a matrix can be changed after it was made, and
``check_format(full_check=True)`` returns early if the last entry of `indptr` is 0. `structure_problem` is the one
check of the library. Readers, `arbora.io.load` and all estimators call it before anything else touches the matrix.

============  ==========================================================================================
CSR, CSC      `indptr` has one entry more than rows (columns), starts at 0, never falls, and ends within
              `indices` and `data`; all indices are inside the shape
BSR           the same for blocks; the block size divides the shape
COO           as many coordinates as values on each axis; all coordinates are inside the shape
DIA           as many offsets as diagonals
LIL           as many lists as rows, of indices inside the shape and of as many values
DOK           keys are inside the shape
============  ==========================================================================================

Index arrays must be one-dimensional, of native int32 or int64, and values an array of a plain dtype. The check is
linear in the number of entries: one pass over the indices, none over the values. It does not detect changes by
another thread during a call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

_INDEX_TYPES = (np.dtype(np.int32), np.dtype(np.int64))


def structure_problem(X: Any) -> str | None:
    """Describe the first problem in the structure of a sparse matrix; None if it is sound, or X is not sparse.

    Parameters
    ----------
    X : object

    Returns
    -------
    str or None
        Such as "an entry in column 7".

    Examples
    --------
    >>> X = sp.csr_array(np.eye(2))
    >>> structure_problem(X) is None
    True
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
    """Refuse a sparse matrix whose index arrays point outside it; scipy accepts such arrays without an error.

    Examples
    --------
    >>> X = sp.csr_array(np.eye(2))
    >>> X.indices[1] = 7
    >>> check_structure(X)
    Traceback (most recent call last):
    ...
    ValueError: X is damaged: it has shape (2, 2), but an entry in column 7. Build it again from ...
    """
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
