"""Matrices in npz files written by `scipy.sparse.save_npz` or `numpy.savez`, with optional labels."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arbora.datasets.base import name_array
from arbora.datasets.errors import DataFormatError

_PARTS = ("data", "indices", "indptr", "shape")
_KNOWN = {*_PARTS, "format", "_is_array", "X", "y", "ids", "feature_names"}


class NpzData(NamedTuple):
    """Rows, labels, row ids and column names (``None`` if absent), and further fields."""

    X: Any  # scipy.sparse.csr_matrix
    y: np.ndarray | None
    ids: list[str] | None
    feature_names: np.ndarray | None
    fields: dict[str, list[Any]]


def read_npz(path: str | Path) -> NpzData:
    """Read a matrix with its labels, ids and feature names.

    Parameters
    ----------
    path : path
        The file must contain an array ``X``, or the arrays of a CSR or CSC matrix (``data``, ``indices``, ``indptr``,
        ``shape``). Optional arrays: ``y`` and ``ids`` with a name or number per row, ``feature_names`` with a name
        per column. Any other array with one entry per row is a field. Object arrays are refused: they need pickle.

    Returns
    -------
    NpzData

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "tiny.npz")
    >>> np.savez(path, X=np.eye(2), y=["a", "b"], year=[1990, 1991])
    >>> data = read_npz(path)
    >>> data.X.shape, data.y.tolist(), data.fields
    ((2, 2), ['a', 'b'], {'year': [1990, 1991]})
    """
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        objects = "allow_pickle" in str(error)
        problem = (
            "it contains objects: save names as np.array(names, dtype=str)" if objects else "it is damaged"
        )
        raise DataFormatError(path, None, f"cannot be read as npz: {problem}") from error
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


def _matrix(path: Path, arrays: dict[str, np.ndarray]) -> Any:
    from scipy import sparse

    if "X" not in arrays and not set(_PARTS) <= set(arrays):
        there = ", ".join(map(repr, arrays)) or "nothing"
        raise DataFormatError(
            path, None, f"it contains {there}: expected 'X', or the arrays of scipy.sparse.save_npz"
        )
    try:
        if "X" in arrays:
            X = sparse.csr_matrix(arrays["X"])
        else:
            data, indices, indptr, shape = (arrays[name] for name in _PARTS)
            make = sparse.csc_matrix if arrays.get("format") == b"csc" else sparse.csr_matrix
            stored = make((data, indices, indptr), shape=tuple(shape.tolist()))
            stored.check_format(full_check=True)
            X = stored.tocsr()
        X = X.astype(np.float32)
    except (ValueError, TypeError) as error:
        raise DataFormatError(path, None, f"the matrix is damaged: {error}") from error
    if not np.isfinite(X.data).all():
        raise DataFormatError(path, None, "the matrix contains values that are not finite")
    return X
