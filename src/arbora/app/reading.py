"""Read all documents of a file or folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arbora.app.documents import Documents, drop_duplicates
from arbora.arrays import Matrix
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.datasets.base import ROOT, DataFormatError, path_edges
from arbora.datasets.readers.files import (
    AUTO,
    MAX_UNPACKED,
    TOO_LARGE,
    LineDecoder,
    check_encoding,
    open_bytes,
)
from arbora.datasets.readers.folder import RECORD_SUFFIXES, folder_rows, record_reader, suffix_of
from arbora.datasets.readers.html_text import HTML_CHOICES
from arbora.datasets.readers.npz import read_npz
from arbora.datasets.readers.records import Fields, Reading, RowOrError, TextRow, join_labels, jsonl_lines
from arbora.datasets.readers.skipped import SkippedRecords, SkippedWarning, is_readable
from arbora.datasets.readers.svmlight import read_svmlight
from arbora.structure import Hierarchy

# --- Times of documents, and the time bins of a topic model -------------------------------------------------


MAX_BINS = 60  # more are not readable in a figure
BAD_TIME = "the time is no number and no date"
_UNITS = {"year": "Y", "month": "M", "day": "D"}


def read_times(documents: Documents, field: str) -> Matrix:
    """Read the times of documents from a field: numbers if all values are numbers, dates otherwise."""
    if field not in documents.fields:
        names = ", ".join(map(repr, documents.fields)) or "none"
        raise ValueError(f"documents of {documents.name} have no field {field!r} (there are: {names})")
    values = documents.fields[field]
    numbers = [_as_number(value) for value in values]
    if all(number is not None for number in numbers):
        return np.array(numbers, dtype=np.float64)
    dates = _as_dates(values)
    wrong = np.flatnonzero(np.isnat(dates))
    if wrong.size:
        raise _no_time(documents, field, int(wrong[0]))
    return dates


def drop_bad_times(documents: Documents, field: str) -> Documents:
    """Leave out documents whose time is no number and no date; they are counted in ``documents.skipped``.

    Times are numbers if at least as many values are numbers as are dates, else dates.

    >>> documents = Documents.from_texts(["a", "b"], fields={"day": ["1999-12-31", "yesterday"]})
    >>> drop_bad_times(documents, "day").texts
    ['a']
    """
    if field not in documents.fields:
        return documents
    values = documents.fields[field]
    is_number = np.array([_as_number(value) is not None for value in values], dtype=bool)
    is_date = ~np.isnat(_as_dates(values))
    good = is_number if is_number.sum() >= is_date.sum() else is_date
    if good.all():
        return documents
    errors = [_no_time(documents, field, row) for row in np.flatnonzero(~good).tolist()]
    if not good.any():
        raise errors[0]
    for error in errors:
        documents.skipped.add(error)
    return documents.take(np.flatnonzero(good))


def _no_time(documents: Documents, field: str, row: int) -> DataFormatError:
    value = str(documents.fields[field][row])[:60]
    problem = f"{field!r} is {value!r}, which is no number and no date such as 1999-12-31"
    return DataFormatError(*documents.places[row], problem, BAD_TIME)


def _as_dates(values: list[Any]) -> Matrix:
    dates = np.empty(len(values), dtype="datetime64[s]")
    for row, value in enumerate(values):
        try:
            dates[row] = np.datetime64(value.strip().removesuffix("Z") if isinstance(value, str) else "NaT")
        except ValueError:
            dates[row] = np.datetime64("NaT")
    return dates


def _as_number(value: Any) -> float | None:
    try:
        number = None if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError):
        return None
    return number if number is not None and np.isfinite(number) else None


def choose_bins(times: Matrix, bins: str | int | None = None) -> str | int | None:
    """Choose the time bins: those given, or one per distinct time if these are few, or calendar units, or equal bins.

    >>> choose_bins(np.arange(10.0)) is None, choose_bins(np.arange(1000.0))
    (True, 60)
    >>> choose_bins(np.arange("1990-01-01", "1995-01-01", dtype="datetime64[D]").astype("datetime64[s]"))
    'month'
    """
    if bins is not None:
        return bins
    if len(np.unique(times)) <= MAX_BINS:
        return None
    if times.dtype.kind == "M":
        units = [name for name in ("day", "month", "year") if _span(times, _UNITS[name]) <= MAX_BINS]
        if units:
            return units[0]
    return MAX_BINS


def _span(times: Matrix, code: str) -> int:
    low, high = (times.min(), times.max())
    return int((high.astype(f"datetime64[{code}]") - low.astype(f"datetime64[{code}]")).astype(np.int64)) + 1


# --- A file or folder of documents: its format, how to read it, and its texts one by one --------------------
#
# ========== ======================================================================================================
# format     content
# ========== ======================================================================================================
# folder     text, HTML, PDF and Word files; the path of the sub-folder, at any depth, is the label. Files of records
#            (the next four formats) give one document for each record
# jsonl      one JSON object per line, with fields for the text and the label; ``-`` is the standard input
# json       an array of such objects, or an object that holds one array
# csv, tsv   a header line, then one row per document; separated by a comma, semicolon, tab or bar
# parquet    columns as in csv; needs pandas and pyarrow
# svmlight   ``label,label index:value ...``, indices from 1: rows of numbers, without text
# npz        a matrix of `scipy.sparse.save_npz`, or an array ``X``; optional arrays ``y`` (names), ``ids`` and
#            ``feature_names``; further arrays with one entry per row are fields
# ========== ======================================================================================================
#
# Files may be compressed with gzip, xz or bzip2. `iter_documents` reads texts one by one in constant memory. Errors
# name the file, the line and the remedy.


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
    """A file or folder and how to read it; `make_source` makes one from plain arguments.

    Attributes
    ----------
    path : str
        File or folder; ``-`` is the standard input.
    format : str
        One of `FORMATS`, or "auto": by the name of the file, then by its content.
    fields : Fields
        Fields or columns to read.
    label_separator : str or None
        Separator of several labels in one string, such as a cell of a CSV file.
    pattern : str
        Glob of the files of a folder.
    encoding : str
        Encoding of the text; "auto": found from the content of each file.
    n_features : int or None
        svmlight: number of columns.
    max_unpacked : int or None
        Largest size of a compressed file when unpacked, in bytes; None: no limit.
    separator : str
        CSV: separator of cells; "auto": found from the header.
    html : {"auto", "strip", "keep"}
        Strip HTML files and texts that look like HTML, all texts, or none.
    time : str or None
        Field of dates or numbers that every document must have.
    strict : bool
        Whether a record that cannot be read is an error; by default such records are skipped and counted.
    dedupe : bool
        Whether documents with the same words as an earlier document, in the same order, are left out.
    """

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
    text: Sequence[str] | None = None,
    label: str | None = "label",
    labels: str = "required",
    extra: tuple[str, ...] = (),
    time: str | None = None,
    **reading: Any,
) -> Source:
    """Describe where documents are and how to read them.

    Parameters
    ----------
    path : str
    text : sequence of str, optional
        Fields or columns of the text; by default ``text``.
    label : str or None
        Field or column of the label.
    labels : {"required", "optional", "ignored"}
        Whether documents must have a label.
    extra : tuple of str
        Further fields that every document must have.
    time : str, optional
    **reading
        See `Source`.

    Examples
    --------
    >>> make_source("news.csv", text=["title", "body"], labels="ignored").fields
    Fields(text=('title', 'body'), label=None, extra=(), optional=())
    """
    used = None if labels == "ignored" else label
    optional = (used,) if labels == "optional" and used is not None else ()
    extra = extra if time is None or time in extra else (*extra, time)
    return Source(path, fields=Fields(tuple(text or ("text",)), used, extra, optional), time=time, **reading)


def guess_format(path: str) -> str:
    """Find the format of a file or folder by its name, or else by its first character.

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
    """Read texts with their labels one by one, from a source of a text format.

    Records that cannot be read are left out and counted in `skipped`; without it such a record is an error.
    """
    return (record for record in iter_rows(source) if is_readable(record, skipped))


def iter_rows(source: Source) -> Iterator[RowOrError]:
    r"""Read texts with their labels one by one; a record that cannot be read gives its error instead.

    An error of the whole file is raised, such as a column that does not exist.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "tiny.jsonl")
    >>> _ = path.write_text('{"text": "a cat", "label": "animal"}\nbroken')
    >>> [type(row).__name__ for row in iter_rows(Source(str(path)))]
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
    for record in record_reader(kind)(Path(source.path), source.fields, source.how):
        if isinstance(record, DataFormatError) and record.reason == TOO_LARGE:
            raise record
        yield record


def _stdin_lines(encoding: str, path: Path) -> Iterator[tuple[int, str | DataFormatError]]:
    decoder = LineDecoder(encoding, path)
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield number, decoder(line, number)
        except DataFormatError as error:
            yield number, error


def document_id(row: TextRow, source: Source) -> str:
    """Return the id of a document: its field ``id``, its path in the folder, or the number of its line or record."""
    name = row.extra.get(ID)
    if name is not None and name != "":
        return str(name)
    number = row.line if row.number is None else row.number
    if source.path != STDIN and Path(source.path).is_dir():
        inside = row.path.relative_to(source.path).as_posix()
        return inside if number is None else f"{inside}:{number}"
    return str(number)


# --- Read all documents of a file or folder -----------------------------------------------------------------


NO_LABEL = "the document has no label"
EMPTY = "the text is empty"
_LINE_FORMATS = ("jsonl", "csv", "tsv")


def read_documents(source: Source, *, verbose: int = 0) -> Documents:
    """Read all documents of a file or folder.

    Records that cannot be read are skipped and counted in ``documents.skipped``, with a `SkippedWarning`. With
    ``source.strict`` the first of them is an error. If no record can be read, that is an error too.

    Parameters
    ----------
    source : Source
        See `make_source`.
    verbose : int
        1: a progress bar on a terminal.

    Examples
    --------
    >>> import tempfile
    >>> top = Path(tempfile.mkdtemp())
    >>> for name in ("sea/fish", "land"):
    ...     (top / name).mkdir(parents=True)
    ...     _ = (top / name / "1.txt").write_text("about " + name)
    >>> documents = read_documents(Source(str(top)))
    >>> documents.ids, documents.y.tolist()
    (['land/1.txt', 'sea/fish/1.txt'], ['land', 'sea/fish'])
    """
    documents = _read(source, verbose)
    _warn_skipped(documents)
    return documents


def _warn_skipped(documents: Documents) -> None:
    if documents.skipped:
        warn_caller(SkippedWarning(documents.skipped, len(documents), documents.name))


def _read(source: Source, verbose: int) -> Documents:
    kind = check_format(source)
    if kind == "svmlight":
        return _read_svmlight(source)
    if kind == "npz":
        return _read_npz(source)
    if ID not in source.fields.optional:
        source = source._replace(fields=source.fields._replace(optional=(*source.fields.optional, ID)))
    skipped = SkippedRecords()
    rows = _read_rows(source, None if source.strict else skipped, verbose)
    if not rows:
        raise _no_record(source, skipped)
    documents = _from_folder(source, rows) if kind == "folder" else _from_records(source, rows)
    documents.skipped.update(skipped)
    if source.time is not None and not source.strict:
        documents = drop_bad_times(documents, source.time)
    return drop_duplicates(documents) if source.dedupe else documents


def _no_record(source: Source, skipped: SkippedRecords) -> DataFormatError:
    first = skipped.first
    if first is None:
        place = "<stdin>" if source.path == STDIN else source.path
        return DataFormatError(place, None, "the file has no record")
    count = f" ({len(skipped):,} records, none can be read)" if len(skipped) > 1 else ""
    return DataFormatError(first.path, first.line, f"{first.problem}{count}", first.reason)


def _from_records(source: Source, rows: Sequence[TextRow]) -> Documents:
    optional = (name for name in source.fields.optional if name not in (source.fields.label, ID))
    return Documents(
        _name_of(source.path),
        [document_id(row, source) for row in rows],
        _labels([row.label for row in rows]),
        [(row.path, row.line) for row in rows],
        [row.text for row in rows],
        fields={name: [row.extra.get(name) for row in rows] for name in (*source.fields.extra, *optional)},
    )


def read_labelled(source: Source, *, verbose: int = 0) -> Documents:
    """Read documents and leave out those without a label or without text; raise an error if none has a label.

    What is left out is counted in ``documents.skipped``, with a `SkippedWarning`. Where documents can have several
    labels, a document without any is kept.

    Parameters
    ----------
    source : Source
    verbose : int
        1: a progress bar on a terminal.
    """
    documents = _read(source, verbose)
    if documents.y is None:
        raise DataFormatError(source.path, None, _no_labels(source))
    keep = np.ones(len(documents), dtype=bool)
    for row, (path, line) in enumerate(documents.places):
        reason = None
        if not isinstance(documents.y, list) and documents.y[row] is None:
            reason = NO_LABEL
        elif documents.texts is not None and not documents.texts[row].strip():
            reason = EMPTY
        if reason is not None:
            keep[row] = False
            documents.skipped.add(DataFormatError(path, line, reason))
    documents = documents if keep.all() else documents.take(np.flatnonzero(keep))
    _warn_skipped(documents)
    if not len(documents):
        raise DataFormatError(source.path, None, "no document has both a text and a label")
    return documents


def _no_labels(source: Source) -> str:
    if Path(source.path).is_dir():
        return "has no sub-folders, so there are no labels: put the files of each label into a folder of that name"
    return "no document has a label: name the field of the labels with --label (label=)"


def _read_rows(source: Source, skipped: SkippedRecords | None, verbose: int) -> list[TextRow]:
    on_terminal = bool(verbose) and sys.stderr is not None and sys.stderr.isatty()
    total = _count_documents(source) if on_terminal else None
    rows = []
    with Progress(total, f"reading {Path(source.path).name}", verbose) as progress:
        for row in iter_documents(source, skipped):
            rows.append(row)
            progress.update()
    return rows


def _count_documents(source: Source) -> int | None:
    """Count documents before they are read, for the progress bar; None where counting is as slow as reading."""
    if source.path == STDIN or not Path(source.path).exists():
        return None
    if Path(source.path).is_dir():
        return sum(len(files) for _, _, files in os.walk(source.path))
    if (guess_format(source.path) if source.format == "auto" else source.format) not in _LINE_FORMATS:
        return None
    with open(source.path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _name_of(path: str) -> str:
    return "standard input" if path == STDIN else Path(path).resolve().name


def _labels(labels: list[Any]) -> Any:
    return None if all(label is None for label in labels) else join_labels(labels)


def _from_folder(source: Source, rows: Sequence[TextRow]) -> Documents:
    """Documents of a folder; without sub-folders there are no labels."""
    documents = _from_records(source, rows)
    names = [
        str(name) for row in rows for name in (row.label if isinstance(row.label, list) else [row.label])
    ]
    edges = path_edges([name for name in names if name != ROOT])
    used = {
        name: values for name, values in documents.fields.items() if any(name in row.extra for row in rows)
    }
    return replace(
        documents,
        y=documents.y if edges else None,
        hierarchy=Hierarchy.from_edges(edges) if edges else None,
        fields=used,
    )


def _read_svmlight(source: Source) -> Documents:
    data = read_svmlight(
        source.path, n_features=source.n_features, allow_unlabelled=True, max_unpacked=source.max_unpacked
    )
    several = any(len(names) > 1 for names in data.labels)
    labels: list[Any] = (
        list(data.labels) if several else [names[0] if names else None for names in data.labels]
    )
    n_samples = len(labels)
    places: list[tuple[Path, int | None]] = [(Path(source.path), None)] * n_samples
    ids = [str(row + 1) for row in range(n_samples)]
    return Documents(_name_of(source.path), ids, _labels(labels), places, X=data.X)


def _read_npz(source: Source) -> Documents:
    data = read_npz(source.path, max_unpacked=source.max_unpacked)
    n_samples = data.X.shape[0]
    return Documents(
        _name_of(source.path),
        [str(row + 1) for row in range(n_samples)] if data.ids is None else data.ids,
        data.y,
        [(Path(source.path), None)] * n_samples,
        X=data.X,
        fields=data.fields,
        feature_names=data.feature_names,
    )
