"""A file or folder of documents: its format, how to read it, and its texts one by one.

========== ======================================================================================================
format     content
========== ======================================================================================================
folder     text, HTML, PDF and Word files; the path of the sub-folder, at any depth, is the label. Files of records
           (the next four formats) give one document for each record
jsonl      one JSON object per line, with fields for the text and the label; ``-`` is the standard input
json       an array of such objects, or an object that holds one array
csv, tsv   a header line, then one row per document; separated by a comma, semicolon, tab or bar
parquet    columns as in csv; needs pandas and pyarrow
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

from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.files import (
    AUTO,
    MAX_UNPACKED,
    TOO_LARGE,
    LineDecoder,
    check_encoding,
    open_bytes,
)
from arbora.datasets.readers.skipped import SkippedRecords, raise_errors
from arbora.datasets.readers.texts.folder import RECORD_SUFFIXES, folder_rows, record_reader, suffix_of
from arbora.datasets.readers.texts.html_text import HTML_CHOICES
from arbora.datasets.readers.texts.json_records import jsonl_lines
from arbora.datasets.readers.texts.records import Fields, Found, Reading, TextRow

FORMATS = ("folder", "jsonl", "json", "csv", "tsv", "parquet", "svmlight", "npz")
MATRIX_FORMATS = ("svmlight", "npz")
STDIN = "-"
ID = "id"  # field with the name of a document

_SUFFIXES = {
    **RECORD_SUFFIXES,
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npz": "npz",
}


class Source(NamedTuple):
    """A file or folder and how to read it; `make_source` makes one from plain arguments."""

    path: str
    format: str = "auto"
    fields: Fields = Fields()
    label_separator: str | None = None
    pattern: str = "*"
    encoding: str = AUTO
    n_features: int | None = None
    max_unpacked: int | None = MAX_UNPACKED
    separator: str = AUTO
    html: str = AUTO
    time: str | None = None
    strict: bool = False
    dedupe: bool = False

    @property
    def how(self) -> Reading:
        """How its files are read."""
        return Reading(self.encoding, self.separator, self.label_separator, self.html, self.max_unpacked)


def make_source(
    path: str,
    *,
    format: str = "auto",
    text: Sequence[str] | None = None,
    label: str | None = "label",
    label_separator: str | None = None,
    pattern: str = "*",
    encoding: str = AUTO,
    separator: str = AUTO,
    html: str = AUTO,
    labels: str = "required",
    extra: tuple[str, ...] = (),
    time: str | None = None,
    n_features: int | None = None,
    max_unpacked: int | None = MAX_UNPACKED,
    strict: bool = False,
    dedupe: bool = False,
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
        Separator of several labels in one string, such as a cell of a CSV file.
    pattern : str
        Glob of the files of a folder.
    encoding : str
        Encoding of the text; "auto": found from the content of each file.
    separator : str
        CSV: separator of cells; "auto": found from the header.
    html : {"auto", "strip", "keep"}
        Strip HTML files and texts that look like HTML, all texts, or none.
    labels : {"required", "optional", "ignored"}
        Whether documents must have a label.
    extra : tuple of str
        Further fields that every document must have.
    time : str, optional
        Field of dates or numbers that every document must have.
    n_features : int, optional
        svmlight: number of columns.
    max_unpacked : int or None
        Largest size of a compressed file when unpacked, in bytes; None: no limit.
    strict : bool
        Whether a record that cannot be read is an error; by default such records are skipped and counted.
    dedupe : bool
        Whether documents with the same words as an earlier document, in the same order, are left out.

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
    extra = extra if time is None or time in extra else (*extra, time)
    fields = Fields(tuple(text or ("text",)), used, extra, optional)
    return Source(
        path,
        format,
        fields,
        label_separator,
        pattern,
        encoding,
        n_features,
        max_unpacked,
        separator,
        html,
        time,
        strict,
        dedupe,
    )


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
    kind = _SUFFIXES.get(suffix_of(path))
    if kind is not None:
        return kind
    with open_bytes(path) as file:
        first = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first in (b"{", b"["):
        return "jsonl" if first == b"{" else "json"
    raise DataFormatError(
        path,
        None,
        f"cannot guess the format from the name: give --format (format=), one of {', '.join(FORMATS)}",
    )


def check_format(source: Source) -> str:
    """Check that a source can be read, and return its format."""
    if source.path != STDIN and not Path(source.path).exists():
        raise FileNotFoundError(f"{source.path}: there is no such file or folder")
    check_encoding(source.encoding)
    if source.html not in HTML_CHOICES:
        raise ValueError(f"unknown value html={source.html!r}: use one of {', '.join(HTML_CHOICES)}")
    if source.separator != AUTO and len(source.separator) != 1:
        raise ValueError(f"the separator of cells must be one character, got {source.separator!r}")
    if source.format == "auto":
        return guess_format(source.path)
    if source.format not in FORMATS:
        raise ValueError(f"unknown format {source.format!r}: use one of {', '.join(FORMATS)}")
    return source.format


def iter_documents(source: Source, skipped: SkippedRecords | None = None) -> Iterator[TextRow]:
    """Read texts with their labels one by one.

    Parameters
    ----------
    source : Source
        Of a text format: folder, jsonl, json, csv, tsv or parquet.
    skipped : SkippedRecords, optional
        Counts the records that cannot be read, which are left out. Without it such a record is an error.

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
    found = iter_found(source)
    yield from raise_errors(found) if skipped is None else skipped.keep(found)


def iter_found(source: Source) -> Iterator[Found]:
    r"""Read texts with their labels one by one; a record that cannot be read gives its error instead.

    An error of the whole file is raised, such as a column that does not exist.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "tiny.jsonl")
    >>> _ = path.write_text('{"text": "a cat", "label": "animal"}\nbroken')
    >>> [type(found).__name__ for found in iter_found(Source(str(path)))]
    ['TextRow', 'DataFormatError']
    """
    kind = check_format(source)
    if kind == "folder":
        yield from folder_rows(source.path, source.how, pattern=source.pattern, fields=source.fields)
        return
    if kind in MATRIX_FORMATS:
        raise DataFormatError(source.path, None, f"{kind} holds rows of numbers, but texts are needed here")
    if source.path == STDIN:
        path = Path("<stdin>")
        yield from jsonl_lines(_stdin_lines(source.encoding, path), path, source.fields, source.how)
        return
    for found in record_reader(kind)(Path(source.path), source.fields, source.how):
        if isinstance(found, DataFormatError) and found.reason == TOO_LARGE:
            raise found
        yield found


def _stdin_lines(encoding: str, path: Path) -> Iterator[tuple[int, str | DataFormatError]]:
    decoder = LineDecoder(encoding, path)
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield number, decoder(line, number)
        except DataFormatError as error:
            yield number, error


def document_id(row: TextRow, source: Source) -> str:
    """Return the id of a document: its field ``id``, its path in the folder, or the number of its line or record.

    Examples
    --------
    >>> document_id(TextRow("a cat", None, {"id": 7}, Path("x.csv"), 2), Source("x.csv"))
    '7'
    """
    name = row.extra.get(ID)
    if name is not None and name != "":
        return str(name)
    number = row.line if row.number is None else row.number
    if source.path != STDIN and Path(source.path).is_dir():
        inside = row.path.relative_to(source.path).as_posix()
        return inside if number is None else f"{inside}:{number}"
    return str(number)
