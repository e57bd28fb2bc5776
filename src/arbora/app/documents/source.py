"""A file or folder of documents: its format, how to read it, and its texts one by one.

========== ======================================================================================================
format     content
========== ======================================================================================================
folder     text files; the path of the sub-folder, at any depth, is the label
jsonl      one JSON object per line, with fields for the text and the label; ``-`` is the standard input
csv, tsv   a header line, then one row per document
svmlight   ``label,label index:value ...``, indices from 1: rows of numbers, without text
npz        a matrix written by `scipy.sparse.save_npz`, or an array ``X``; optional arrays ``y`` (names), ``ids`` and
           ``feature_names``; further arrays with one entry per row are fields
========== ======================================================================================================

Files may be compressed with gzip, xz or bzip2. `iter_documents` reads texts one by one in constant memory. Errors
name the file, the line and the remedy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from arbora.datasets.errors import DataFormatError
from arbora.datasets.readers.files import MAX_UNPACKED, decode, open_bytes
from arbora.datasets.readers.texts import Fields, TextRow, csv_rows, folder_rows, jsonl_row

FORMATS = ("folder", "jsonl", "csv", "tsv", "svmlight", "npz")
MATRIX_FORMATS = ("svmlight", "npz")
STDIN = "-"
ID = "id"  # field with the name of a document

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npz": "npz",
}
_COMPRESSED = {".gz", ".xz", ".bz2"}


class Source(NamedTuple):
    """A file or folder and how to read it; `make_source` makes one from plain arguments."""

    path: str
    format: str = "auto"
    fields: Fields = Fields()
    label_separator: str | None = None
    pattern: str = "*"
    encoding: str = "utf-8"
    n_features: int | None = None
    max_unpacked: int | None = MAX_UNPACKED


def make_source(
    path: str,
    *,
    format: str = "auto",
    text: Sequence[str] | None = None,
    label: str | None = "label",
    label_separator: str | None = None,
    pattern: str = "*",
    encoding: str = "utf-8",
    labels: str = "required",
    extra: tuple[str, ...] = (),
    n_features: int | None = None,
    max_unpacked: int | None = MAX_UNPACKED,
) -> Source:
    """Describe where documents are and how to read them.

    Parameters
    ----------
    path : str
        File or folder; ``-`` is the standard input.
    format : str
        One of `FORMATS`, or "auto": by the name of the file, then by its content.
    text : sequence of str, optional
        Fields or columns of the text; by default ``text``.
    label : str or None
        Field or column of the label.
    label_separator : str, optional
        CSV: separator of several labels in one cell.
    pattern : str
        Glob of the files of a folder.
    encoding : str
        Encoding of the text.
    labels : {"required", "optional", "ignored"}
        Whether documents must have a label.
    extra : tuple of str
        Further fields that every document must have.
    n_features : int, optional
        svmlight: number of columns.
    max_unpacked : int or None
        Largest size of a compressed file when unpacked, in bytes; None: no limit.

    Returns
    -------
    Source

    Examples
    --------
    >>> make_source("news.csv", text=["title", "body"], labels="ignored").fields
    Fields(text=('title', 'body'), label=None, extra=(), optional=())
    """
    used = None if labels == "ignored" else label
    optional = (used,) if labels == "optional" and used is not None else ()
    fields = Fields(tuple(text or ("text",)), used, extra, optional)
    return Source(path, format, fields, label_separator, pattern, encoding, n_features, max_unpacked)


def guess_format(path: str) -> str:
    """Find the format of a file or folder by its name, or else by its first character.

    Examples
    --------
    >>> guess_format("news.csv.gz"), guess_format("-")
    ('csv', 'jsonl')
    """
    if path == STDIN:
        return "jsonl"
    if Path(path).is_dir():
        return "folder"
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    with open_bytes(path) as file:
        if file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            return "jsonl"
    raise DataFormatError(
        path,
        None,
        f"cannot guess the format from the name: give --format (format=), one of {', '.join(FORMATS)}",
    )


def check_format(source: Source) -> str:
    """Check that a source can be read, and return its format."""
    if source.path != STDIN and not Path(source.path).exists():
        raise FileNotFoundError(f"{source.path}: there is no such file or folder")
    try:
        "".encode(source.encoding)
    except LookupError:
        raise ValueError(
            f"unknown encoding {source.encoding!r}: try 'utf-8', 'latin-1' or 'cp1252'"
        ) from None
    if source.format == "auto":
        return guess_format(source.path)
    if source.format not in FORMATS:
        raise ValueError(f"unknown format {source.format!r}: use one of {', '.join(FORMATS)}")
    return source.format


def iter_documents(source: Source) -> Iterator[TextRow]:
    """Read texts with their labels one by one.

    Parameters
    ----------
    source : Source
        Of a text format: folder, jsonl, csv or tsv.

    Yields
    ------
    TextRow

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "tiny.jsonl")
    >>> _ = path.write_text('{"text": "a cat", "label": "animal"}')
    >>> [row.text for row in iter_documents(Source(str(path)))]
    ['a cat']
    """
    kind = check_format(source)
    if kind == "folder":
        yield from folder_rows(
            source.path, pattern=source.pattern, encoding=source.encoding, max_unpacked=source.max_unpacked
        )
    elif kind in ("csv", "tsv"):
        yield from csv_rows(
            source.path,
            source.fields,
            label_separator=source.label_separator,
            delimiter="\t" if kind == "tsv" else ",",
            encoding=_with_mark(source.encoding),
            max_unpacked=source.max_unpacked,
        )
    elif kind == "jsonl":
        for _, found in jsonl_records(source):
            if isinstance(found, DataFormatError):
                raise found
            yield found
    else:
        raise DataFormatError(source.path, None, f"{kind} holds rows of numbers, but texts are needed here")


def jsonl_records(source: Source) -> Iterator[tuple[int, TextRow | DataFormatError]]:
    r"""Read JSONL from a file or the standard input: the number of each non-blank line, and its document.

    A line that cannot be read gives its error instead, so that the lines after it can still be read.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "tiny.jsonl")
    >>> _ = path.write_text('{"text": "a cat", "label": "animal"}\nbroken')
    >>> [(number, type(found).__name__) for number, found in jsonl_records(Source(str(path)))]
    [(1, 'TextRow'), (2, 'DataFormatError')]
    """
    path = Path("<stdin>" if source.path == STDIN else source.path)
    for number, line in enumerate(_byte_lines(source), start=1):
        try:
            text = decode(line, _with_mark(source.encoding) if number == 1 else source.encoding, path, number)
            row = jsonl_row(text, path, number, source.fields)
        except DataFormatError as error:
            yield number, error
            continue
        if row is not None:
            yield number, row


def _byte_lines(source: Source) -> Iterator[bytes]:
    if source.path == STDIN:
        yield from sys.stdin.buffer
        return
    empty = True
    with open_bytes(source.path, source.max_unpacked) as file:
        for line in file:
            empty = False
            yield line
    if empty:
        raise DataFormatError(source.path, None, "the file is empty")


def _with_mark(encoding: str) -> str:
    return "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
