"""Multi-label svmlight text, in the LSHTC style and in the XMLC style.

LSHTC (large-scale hierarchical text classification challenge): ``12, 34 5:1 7:2``, that is labels separated by
commas, then ``index:value`` pairs with indices from 1. XMLC (extreme multi-label repository): a first line
``n_samples n_features n_labels``, then rows with indices from 0 and possibly no label, `` 0:0.5 3:1``.

The parser is vectorised. The features of a chunk of rows become one byte array. Its separators must alternate
between ``:`` and space, which validates all rows at once. Digits are then converted to numbers, one decimal place at
a time for all tokens. If the validation fails, the rows are parsed one by one to find the line of the error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arbora.arrays import Matrix
from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.files import MAX_UNPACKED, decode, open_bytes, read_chunks

_SPACE, _COLON, _DOT, _PLUS, _MINUS, _ZERO = b" :.+-0"
_WHITE = bytes.maketrans(b"\t\r\v\f", b"    ")
_PAIR = re.compile(rb"[0-9]{1,18}:[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_MAX_VALUE = 128  # characters of a value
_TOKENS_AT_ONCE = 1 << 16  # values of any notation that are converted at a time
_DIGITS = 18  # of a count: it fits in 64 bits
_SHOWN = 60  # characters of a wrong token in a message
_EXACT_DIGITS = 15  # a mantissa below 2**53 divided by a power of ten up to 10**22 is rounded correctly


class SvmlightData(NamedTuple):
    """Rows and labels of one svmlight file."""

    X: Any  # scipy.sparse.csr_matrix
    labels: list[list[str]]
    n_labels: int | None = None


class _Chunk(NamedTuple):
    """Parsed lines: concatenated feature indices and values, features per row, labels, line numbers."""

    indices: Matrix
    values: Matrix
    counts: Matrix
    labels: list[list[str]]
    lines: Matrix


def parse_decimals(text: Matrix, starts: Matrix, ends: Matrix) -> tuple[Matrix, Matrix]:
    """Numbers in ``text[starts:ends]``, and a mask of the valid ones.

    Tokens of at most 15 digits with an optional sign and decimal point are converted, correctly rounded. For all
    other tokens (long mantissas, exponents, malformed ones) the mask is False and the number is meaningless.
    """
    mantissa = np.zeros(starts.size, dtype=np.int64)
    decimals = np.zeros(starts.size, dtype=np.int64)
    point = np.zeros(starts.size, dtype=bool)
    sign = text[starts]
    first = starts + ((sign == _MINUS) | (sign == _PLUS))
    length = ends - first
    plain = length > 0
    for place in range(min(_EXACT_DIGITS + 1, int(length.max(initial=0)))):
        active = np.flatnonzero(length > place)
        byte = text[first[active] + place]
        digit = byte.astype(np.int64) - _ZERO
        is_digit = (digit >= 0) & (digit <= 9)
        is_point = (byte == _DOT) & ~point[active]
        plain[active[~(is_digit | is_point)]] = False
        number = active[is_digit]
        mantissa[number] = mantissa[number] * 10 + digit[is_digit]
        decimals[number] += point[number]
        point[active[is_point]] = True
    digits = length - point
    plain &= (digits > 0) & (digits <= _EXACT_DIGITS)
    value = mantissa / 10.0**decimals
    return np.where(sign == _MINUS, -value, value), plain


def _parse_spelled(text: Matrix, starts: Matrix, ends: Matrix) -> Matrix:
    """Numbers in any notation, by C conversion; ValueError if one is malformed or too long."""
    width = int((ends - starts).max())
    if width > _MAX_VALUE:
        raise ValueError("too long")
    if starts.size > _TOKENS_AT_ONCE:  # every token is padded to the longest: a part at a time
        cuts = range(0, starts.size, _TOKENS_AT_ONCE)
        parts = [slice(cut, cut + _TOKENS_AT_ONCE) for cut in cuts]
        return np.concatenate([_parse_spelled(text, starts[part], ends[part]) for part in parts])
    column = np.arange(width)
    inside = column < (ends - starts)[:, None]
    padded = np.where(inside, text[np.minimum(starts[:, None] + column, text.size - 1)], 0).astype(np.uint8)
    if not np.isin(padded, np.frombuffer(b"\0+-.0123456789eE", dtype=np.uint8)).all():
        raise ValueError("not a number")
    return np.ascontiguousarray(padded).view(f"S{width}").ravel().astype(np.float64)


def _parse_pairs(features: list[bytes]) -> tuple[Matrix, Matrix]:
    """Parse the pairs of all rows, concatenated; ValueError if one is malformed."""
    text = np.frombuffer(b" ".join(features) + b" ", dtype=np.uint8)
    separator = (text == _SPACE) | (text == _COLON)
    change = np.flatnonzero(np.diff(separator, prepend=True))
    starts, ends = change[0::2], change[1::2]
    index_end, value_end = ends[0::2], ends[1::2]
    if (
        starts.size % 2
        or np.count_nonzero(text == _COLON) * 2 != starts.size
        or (text[index_end] != _COLON).any()
        or (starts[1::2] != index_end + 1).any()  # "5: 1"
        or (text[value_end] != _SPACE).any()
    ):
        raise ValueError("not index:value pairs")
    indices, plain = parse_decimals(text, starts[0::2], index_end)
    if not plain.all() or (indices % 1 != 0).any() or np.isin(text[starts[0::2]], (_MINUS, _PLUS)).any():
        raise ValueError("not an index")
    values, plain = parse_decimals(text, starts[1::2], value_end)
    odd = np.flatnonzero(~plain)
    if odd.size:
        values[odd] = _parse_spelled(text, starts[1::2][odd], value_end[odd])
    if not np.isfinite(values).all():
        raise ValueError("not finite")
    return indices.astype(np.int64), values


def _first_bad_pair(features: list[bytes]) -> tuple[int, str]:
    """Row and description of the first malformed pair; called only after the fast path has failed."""
    for row, text in enumerate(features):
        for token in text.split():
            shown = repr(token[:_SHOWN].decode("utf-8", "replace")) + "..." * (len(token) > _SHOWN)
            index, _, value = token.partition(b":")
            if not _PAIR.fullmatch(token) or len(index) > _EXACT_DIGITS:
                return row, f"{shown} is not a feature of the form index:value"
            if len(value) > _MAX_VALUE:
                return row, f"the value of {shown} has {len(value)} characters, more than {_MAX_VALUE}"
            if not np.isfinite(float(value)):
                return row, f"the value of {shown} is too large"
    return 0, "not index:value pairs"


def _split_row(line: bytes) -> tuple[bytes, bytes]:
    """Labels and features of one line, as bytes."""
    colon = line.find(b":")
    if colon < 0:
        return line, b""
    space = line.rfind(b" ", 0, colon)
    return line[: space + 1], line[space + 1 :]


def _parse_labels(head: bytes, path: Path, line: int, allow_empty: bool) -> list[str]:
    text = decode(head, "utf-8", path, line).strip()
    if not text:
        if allow_empty:
            return []
        raise DataFormatError(
            path, line, "the row has no label (use allow_unlabelled=True to accept such rows)"
        )
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not name:
            raise DataFormatError(path, line, f"empty label in {text!r}")
        if " " in name:
            raise DataFormatError(path, line, f"labels must be separated by commas, got {name!r}")
    return names


def _parse_chunk(lines: list[bytes], start: int, path: Path, allow_empty: bool, keep_blank: bool) -> _Chunk:
    """Parse a chunk of lines; ``start`` is the number of the first line."""
    rows = [line.partition(b"#")[0].translate(_WHITE) for line in lines]
    numbers = np.arange(start, start + len(rows))
    if not keep_blank:
        ids = [i for i, row in enumerate(rows) if row.strip()]
        rows, numbers = [rows[i] for i in ids], numbers[ids]
    parts = [_split_row(row) for row in rows]
    labels = [
        _parse_labels(head, path, int(n), allow_empty) for (head, _), n in zip(parts, numbers, strict=True)
    ]
    features = [tail for _, tail in parts]
    try:
        indices, values = _parse_pairs(features)
    except ValueError:
        row, problem = _first_bad_pair(features)
        raise DataFormatError(path, int(numbers[row]), problem) from None
    counts = np.array([tail.count(b":") for tail in features], dtype=np.int64)
    return _Chunk(indices, values, counts, labels, numbers)


def _join(chunks: list[_Chunk]) -> _Chunk:
    return _Chunk(
        np.concatenate([chunk.indices for chunk in chunks]),
        np.concatenate([chunk.values for chunk in chunks]),
        np.concatenate([chunk.counts for chunk in chunks]),
        [names for chunk in chunks for names in chunk.labels],
        np.concatenate([chunk.lines for chunk in chunks]),
    )


def _to_csr(data: _Chunk, path: Path, n_features: int | None, base: int, dtype: Any) -> Any:
    """CSR matrix with sorted, distinct column indices; an error names the line."""
    from scipy import sparse

    row = np.repeat(np.arange(data.counts.size), data.counts)

    def check(bad: Matrix, problem: str) -> None:
        where = np.flatnonzero(bad)
        if where.size:
            line = int(data.lines[row[where[0]]])
            raise DataFormatError(path, line, problem.format(index=int(data.indices[where[0]])))

    check(
        data.indices < base,
        "feature index 0, but indices start at 1 (use zero_based=True if they start at 0)",
    )
    if n_features is None:
        n_features = int(data.indices.max(initial=base - 1)) + 1 - base
    check(
        data.indices >= n_features + base,
        f"feature index {{index}} is beyond the {n_features} features",
    )
    indptr = np.concatenate([[0], np.cumsum(data.counts)])
    X = sparse.csr_matrix((data.values, data.indices - base, indptr), shape=(data.counts.size, n_features))
    if not X.has_sorted_indices:
        X.sort_indices()
    repeated = np.flatnonzero((np.diff(X.indices) == 0) & (np.diff(row) == 0))
    if repeated.size:
        line, index = int(data.lines[row[repeated[0]]]), int(X.indices[repeated[0]]) + base
        raise DataFormatError(path, line, f"feature index {index} is given twice")
    if np.issubdtype(dtype, np.floating):
        largest = np.finfo(dtype).max
        problem = f"feature {{index}} has a value above {largest:.3g}, too large for dtype {np.dtype(dtype)}"
        check(np.abs(data.values) > largest, problem)
    return X.astype(dtype)


def read_svmlight(
    path: str | Path,
    *,
    n_features: int | None = None,
    zero_based: bool = False,
    allow_unlabelled: bool = False,
    dtype: Any = np.float32,
    max_unpacked: int | None = MAX_UNPACKED,
) -> SvmlightData:
    r"""Read multi-label svmlight text in the LSHTC style: ``12,34 5:1 7:2`` or ``12, 34 5:1 7:2``.

    Parameters
    ----------
    path : path
        Plain, gzip, xz or bzip2 file. Blank lines and ``# comments`` are ignored.
    n_features : int, optional
        Number of columns; by default the highest index in the file. Set it if several files belong together.
    zero_based : bool, default=False
        Whether indices start at 0.
    allow_unlabelled : bool, default=False
        Accept rows without a label.
    dtype : dtype, default=float32
        Type of the values. A value that is too large for it is an error.
    max_unpacked : int or None, default=2**32
        Largest size of a compressed file when unpacked, in bytes. ``None``: no limit.

    Returns
    -------
    SvmlightData
        ``X`` (CSR) and ``labels`` (a list of names per row).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import read_svmlight
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.svm")
    >>> _ = path.write_text("12, 34 1:1 3:2\n7 2:0.5\n")
    >>> data = read_svmlight(path)
    >>> data.labels, data.X.toarray().tolist()
    ([['12', '34'], ['7']], [[1.0, 0.0, 2.0], [0.0, 0.5, 0.0]])
    """
    path = Path(path)
    chunks, line = [], 1
    for lines in read_chunks(path, max_unpacked=max_unpacked):
        chunks.append(_parse_chunk(lines, line, path, allow_unlabelled, keep_blank=False))
        line += len(lines)
    data = _join(chunks)
    if not data.labels:
        raise DataFormatError(path, None, "the file has no row")
    return SvmlightData(_to_csr(data, path, n_features, 0 if zero_based else 1, dtype), data.labels)


def _read_header(path: Path, max_unpacked: int | None) -> tuple[int, int, int]:
    with open_bytes(path, max_unpacked) as file:
        header = file.readline().split()
    if not header:
        raise DataFormatError(path, 1, "the file is empty, or its first line is")
    if len(header) != 3 or not all(number.isdigit() and len(number) <= _DIGITS for number in header):
        shown = b" ".join(header[:4])[:_SHOWN].decode("utf-8", "replace")
        raise DataFormatError(path, 1, f"expected 'n_samples n_features n_labels', got {shown!r}")
    n_samples, n_features, n_labels = map(int, header)
    return n_samples, n_features, n_labels


def _is_below(name: str, limit: int) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _DIGITS and int(name) < limit


def read_xmlc(
    path: str | Path, *, dtype: Any = np.float32, max_unpacked: int | None = MAX_UNPACKED
) -> SvmlightData:
    r"""Read multi-label svmlight text in the XMLC style: a line of three counts, then 0-based rows.

    A number of rows that differs from the first line, or a feature or label out of range, is an error.

    Parameters
    ----------
    path : path
        Plain, gzip, xz or bzip2 file.
    dtype : dtype, default=float32
        Type of the values. A value that is too large for it is an error.
    max_unpacked : int or None, default=2**32
        Largest size of a compressed file when unpacked, in bytes. ``None``: no limit.

    Returns
    -------
    SvmlightData
        ``X`` (CSR), ``labels`` (a list of label numbers, as strings, per row; it may be empty), ``n_labels``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import read_xmlc
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.txt")
    >>> _ = path.write_text("2 3 9\n8,0 0:0.5\n 2:1\n")
    >>> data = read_xmlc(path)
    >>> data.labels, data.X.shape, data.n_labels
    ([['8', '0'], []], (2, 3), 9)
    """
    path = Path(path)
    n_samples, n_features, n_labels = _read_header(path, max_unpacked)
    chunks, line = [], 1
    for lines in read_chunks(path, max_unpacked=max_unpacked):
        body = lines[1:] if line == 1 else lines
        first = max(line, 2)
        while body and not body[-1].strip() and first - 2 + len(body) > n_samples:
            body.pop()  # blank lines are rows without labels and features, except after the last row
        chunks.append(_parse_chunk(body, first, path, allow_empty=True, keep_blank=True))
        line += len(lines)
    data = _join(chunks)
    if len(data.labels) != n_samples:
        raise DataFormatError(
            path, 1, f"the first line declares {n_samples} rows, the file has {len(data.labels)}"
        )
    for names, number in zip(data.labels, data.lines, strict=True):
        wrong = [name for name in names if not _is_below(name, n_labels)]
        if wrong:
            raise DataFormatError(
                path, int(number), f"label {wrong[0][:_SHOWN]!r} is not a number below {n_labels}"
            )
    return SvmlightData(_to_csr(data, path, n_features, 0, dtype), data.labels, n_labels)
