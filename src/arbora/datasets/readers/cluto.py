"""Matrices of the CLUTO clustering toolkit with their companion files.

A sparse ``.mat`` file starts with ``n_rows n_cols n_nonzeros``; each row is ``column value column value ...`` with
columns counted from 1. A dense file starts with ``n_rows n_cols`` and lists all values of each row. Optional
companion files have one entry per line: ``.rlabel`` (row names), ``.rclass`` (classes), ``.clabel`` (column names).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arbora.arrays import Matrix
from arbora.datasets.base import DataFormatError, name_array
from arbora.datasets.readers.files import MAX_UNPACKED, TextLines, read_chunks

_PACKED = (".gz", ".xz", ".bz2")
_MAX_VALUE = float(np.finfo(np.float32).max)  # of a value
_DIGITS = 18  # of a count: it fits in 64 bits


class ClutoData(NamedTuple):
    """A CLUTO matrix (CSR or dense) and the content of its companion files; ``None`` for an absent file."""

    X: Any
    classes: Matrix | None
    row_names: Matrix | None
    column_names: Matrix | None


def _numbers(path: Path, lines: list[bytes], first: int) -> Matrix:
    """All numbers of some lines, concatenated; ``first`` is the number of the first line."""
    try:
        numbers = np.array(b" ".join(lines).split(), dtype=np.float64)
    except ValueError:
        numbers = np.array([np.nan])
    if np.abs(numbers).max(initial=0.0) <= _MAX_VALUE:  # False if one is NaN
        return numbers
    for number, line in enumerate(lines, start=first):
        for token in line.split():
            shown = token[:60].decode("utf-8", "replace")
            try:
                size = abs(float(token))
            except ValueError:
                size = float("nan")
            if not np.isfinite(size):
                raise DataFormatError(path, number, f"{shown!r} is not a finite number")
            if size > _MAX_VALUE:
                raise DataFormatError(
                    path, number, f"{shown!r} is too large a number, above {_MAX_VALUE:.3g}"
                )
    return numbers


def _header(path: Path, line: bytes) -> list[int]:
    parts = line.split()
    if len(parts) not in (2, 3) or not all(part.isdigit() and len(part) <= _DIGITS for part in parts):
        shown = line[:60].decode("utf-8", "replace").strip()
        raise DataFormatError(
            path, 1, f"expected 'n_rows n_cols' or 'n_rows n_cols n_nonzeros', got {shown!r}"
        )
    return [int(part) for part in parts]


def _first(bad: Matrix, row: Matrix) -> int | None:
    """Line number of the first marked entry, given the row of each; rows start at line 2."""
    where = np.flatnonzero(bad)
    return int(row[where[0]]) + 2 if where.size else None


def _sparse(path: Path, lines: list[bytes], n_cols: int, n_nonzeros: int) -> Any:
    from scipy import sparse

    counts = np.array([len(line.split()) for line in lines], dtype=np.int64)
    odd = _first(counts % 2 == 1, np.arange(counts.size))
    if odd is not None:
        raise DataFormatError(path, odd, "an odd number of values, expected 'column value' pairs")
    numbers = _numbers(path, lines, first=2)
    columns, values = numbers[0::2], numbers[1::2]
    row = np.repeat(np.arange(counts.size), counts // 2)
    wrong = _first((columns < 1) | (columns > n_cols) | (columns % 1 != 0), row)
    if wrong is not None:
        raise DataFormatError(path, wrong, f"a column number is not between 1 and {n_cols}")
    if values.size != n_nonzeros:
        raise DataFormatError(
            path, 1, f"the first line declares {n_nonzeros} values, the file has {values.size}"
        )
    indptr = np.concatenate([[0], np.cumsum(counts // 2)])
    X = sparse.csr_matrix(
        (values.astype(np.float32), columns.astype(np.int64) - 1, indptr), (counts.size, n_cols)
    )
    X.sort_indices()
    twice = _first((np.diff(X.indices) == 0) & (np.diff(row) == 0), row[1:])
    if twice is not None:
        raise DataFormatError(path, twice, "a column is given twice")
    return X


def _dense(path: Path, lines: list[bytes], n_cols: int) -> Matrix:
    counts = np.array([len(line.split()) for line in lines])
    wrong = _first(counts != n_cols, np.arange(counts.size))
    if wrong is not None:
        raise DataFormatError(path, wrong, f"{counts[wrong - 2]} values, expected {n_cols}")
    return _numbers(path, lines, first=2).reshape(len(lines), n_cols).astype(np.float32)


def _companion(
    path: Path, suffix: str, length: int, encoding: str, max_unpacked: int | None
) -> Matrix | None:
    """Entries of ``matrix.mat.rclass`` or ``matrix.rclass`` (also compressed), if one of them exists."""
    plain = path.with_suffix("") if path.suffix in _PACKED else path
    stems = [str(plain)] + ([str(plain.with_suffix(""))] if plain.suffix == ".mat" else [])
    for candidate in (Path(stem + suffix + packed) for stem in stems for packed in ("", *_PACKED)):
        if candidate.exists():
            names = name_array(line.rstrip("\r\n") for line in TextLines(candidate, encoding, max_unpacked))
            if names.size != length:
                raise DataFormatError(candidate, None, f"{names.size} lines, but the matrix has {length}")
            return names
    return None


def read_cluto(
    path: str | Path, *, encoding: str = "utf-8-sig", max_unpacked: int | None = MAX_UNPACKED
) -> ClutoData:
    r"""Read a CLUTO ``.mat`` file, sparse or dense, with its ``.rclass``, ``.rlabel`` and ``.clabel``.

    Parameters
    ----------
    path : path
        The matrix, plain or compressed. Companion files are in the same folder (``x.mat.rclass`` or ``x.rclass``).
    encoding : str, default="utf-8-sig"
        Encoding of the companion files.
    max_unpacked : int or None, default=2**32
        Largest size of each compressed file when unpacked, in bytes. ``None``: no limit.

    Returns
    -------
    ClutoData
        ``X`` (float32; CSR or dense like the file), ``classes``, ``row_names``, ``column_names``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import read_cluto
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.mat")
    >>> _ = path.write_text("2 3 3\n1 2 3 1\n2 5\n")
    >>> _ = path.with_suffix(".mat.rclass").write_text("sport\nscience\n")
    >>> data = read_cluto(path)
    >>> data.X.toarray().tolist(), list(data.classes)
    ([[2.0, 0.0, 1.0], [0.0, 5.0, 0.0]], ['sport', 'science'])
    """
    path = Path(path)
    lines = [line for chunk in read_chunks(path, max_unpacked=max_unpacked) for line in chunk]
    n_rows, n_cols, *n_nonzeros = _header(path, lines[0])
    body = lines[1:]
    while len(body) > n_rows and not body[-1].strip():
        body.pop()
    if len(body) != n_rows:
        raise DataFormatError(path, 1, f"the first line declares {n_rows} rows, the file has {len(body)}")
    X = _sparse(path, body, n_cols, n_nonzeros[0]) if n_nonzeros else _dense(path, body, n_cols)
    return ClutoData(
        X,
        _companion(path, ".rclass", n_rows, encoding, max_unpacked),
        _companion(path, ".rlabel", n_rows, encoding, max_unpacked),
        _companion(path, ".clabel", n_cols, encoding, max_unpacked),
    )
