"""Matrices in npz files written by `scipy.sparse.save_npz` or `numpy.savez`, with optional labels."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from arbora.arrays import Matrix
from arbora.datasets.base import DataFormatError, name_array
from arbora.datasets.readers.files import MAX_UNPACKED, refuse_unpacked

_PARTS = ("data", "indices", "indptr", "shape")
_KNOWN = {*_PARTS, "format", "_is_array", "X", "y", "ids", "feature_names"}


class NpzData(NamedTuple):
    """Rows, labels, row ids and column names (``None`` if absent), and further fields."""

    X: Any  # scipy.sparse.csr_matrix
    y: Matrix | None
    ids: list[str] | None
    feature_names: Matrix | None
    fields: dict[str, list[Any]]


def read_npz(path: str | Path, *, max_unpacked: int | None = MAX_UNPACKED) -> NpzData:
    """Read a matrix with its labels, ids and feature names.

    The file must contain an array ``X``, or the arrays of a CSR or CSC matrix (``data``, ``indices``, ``indptr``,
    ``shape``). Optional arrays: ``y`` and ``ids`` with a name or number per row, ``feature_names`` with a name per
    column. Any other array with one entry per row is a field. Object arrays are refused: they need pickle.
    `max_unpacked` is the largest size of all arrays together, in bytes; None: no limit.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "tiny.npz")
    >>> np.savez(path, X=np.eye(2), y=["a", "b"], year=[1990, 1991])
    >>> data = read_npz(path)
    >>> data.X.shape, data.y.tolist(), data.fields
    ((2, 2), ['a', 'b'], {'year': [1990, 1991]})
    """
    path = Path(path)
    arrays = read_arrays(path, max_unpacked)
    X = _matrix(path, arrays)
    n_samples, n_features = X.shape
    for name, length in (("y", n_samples), ("ids", n_samples), ("feature_names", n_features)):
        if name in arrays and arrays[name].shape != (length,):
            raise DataFormatError(
                path, None, f"{name!r} has shape {arrays[name].shape}, expected ({length},)"
            )
    ids, y, names = (
        None if array is None else [str(value) for value in array.tolist()]
        for array in (arrays.get("ids"), arrays.get("y"), arrays.get("feature_names"))
    )
    fields = {
        name: array.tolist()
        for name, array in arrays.items()
        if name not in _KNOWN and array.shape == (n_samples,)
    }
    return NpzData(
        X, None if y is None else name_array(y), ids, None if names is None else name_array(names), fields
    )


def read_arrays(path: Path, max_unpacked: int | None = MAX_UNPACKED) -> dict[str, Matrix]:
    """Read all arrays of an npz file; their sizes are first compared with the limit and with the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if max_unpacked is not None and sum(member.file_size for member in members) > max_unpacked:
                raise refuse_unpacked(path, max_unpacked)
            return {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}
    except (DataFormatError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except _Objects as error:
        problem = "it contains objects: save names as np.array(names, dtype=str)"
        raise DataFormatError(path, None, f"cannot be read as npz: {problem}") from error
    except Exception as error:  # zipfile and numpy raise many kinds for damaged files
        raise DataFormatError(
            path, None, f"cannot be read as npz: it is damaged ({_short(error)})"
        ) from error


class _Objects(ValueError):
    """An array holds Python objects."""


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Matrix:
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise _Objects(member.filename)
        if file.tell() + math.prod(shape) * dtype.itemsize != member.file_size or min(shape, default=0) < 0:
            raise ValueError(f"{member.filename} has another size than its header says")
    with archive.open(member) as file:
        return np.asarray(npy.read_array(file, allow_pickle=False))


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _matrix(path: Path, arrays: dict[str, Matrix]) -> Any:
    from scipy import sparse

    if "X" not in arrays and not set(_PARTS) <= set(arrays):
        there = ", ".join(map(repr, arrays)) or "nothing"
        raise DataFormatError(
            path, None, f"it contains {there}: expected 'X', or the arrays of scipy.sparse.save_npz"
        )
    try:
        X = _from_parts(arrays) if "X" not in arrays else sparse.csr_matrix(_numbers("X", arrays["X"]))
    except MemoryError:
        raise
    except Exception as error:  # scipy raises many kinds
        raise DataFormatError(path, None, f"the matrix is damaged: {_short(error)}") from error
    if not np.isfinite(X.data).all():
        raise DataFormatError(path, None, "the matrix contains values that are not finite")
    largest = max(X.data.max(initial=0), -X.data.min(initial=0)) if X.dtype != bool else 1
    if largest > np.finfo(np.float32).max:
        limit = np.finfo(np.float32).max
        raise DataFormatError(
            path, None, f"the matrix contains {largest:.3g}, too large a value: above {limit:.3g}"
        )
    return X.astype(np.float32)


def _numbers(name: str, array: Matrix) -> Matrix:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name!r} holds {array.dtype}, not real numbers")
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array


def _from_parts(arrays: dict[str, Matrix]) -> Any:
    """CSR matrix of the arrays of a CSR or CSC matrix; its structure is checked before it is converted."""
    from scipy import sparse

    from arbora.core.validation import structure_problem

    data, indices, indptr, shape = (arrays[name] for name in _PARTS)
    for name in ("indices", "indptr", "shape"):
        if arrays[name].dtype.kind not in "iu" or arrays[name].ndim != 1:
            raise ValueError(f"{name!r} is not a list of whole numbers")
    make = sparse.csc_matrix if arrays.get("format") == b"csc" else sparse.csr_matrix
    n_rows, n_columns = (int(length) for length in shape.tolist())
    stored = make((_numbers("data", data), indices, indptr), shape=(n_rows, n_columns))
    problem = structure_problem(stored)
    if problem is not None:
        raise ValueError(problem)
    return stored.tocsr()
