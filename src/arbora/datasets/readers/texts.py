"""Texts with labels from JSONL, CSV and folders of text files.

`jsonl_row`, `csv_rows` and `folder_rows` return one text at a time, in constant memory. `read_jsonl`, `read_csv` and
`read_folder` collect all texts.
"""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arbora.datasets.base import ROOT, name_array, path_edges
from arbora.datasets.errors import DataFormatError, did_you_mean
from arbora.datasets.readers.files import MAX_UNPACKED, decode, open_bytes, read_lines

if TYPE_CHECKING:
    from arbora.structure import Hierarchy


class TextData(NamedTuple):
    """Texts, their labels (an object array of names, or a list of lists), and further fields."""

    texts: list[str]
    y: Any
    extra: dict[str, list[Any]]


class FolderData(NamedTuple):
    """Texts of a folder, their labels, the hierarchy of its sub-folders, and the file of each text."""

    texts: list[str]
    y: np.ndarray
    hierarchy: Hierarchy
    files: list[Path]


class Fields(NamedTuple):
    """Names of the fields to read: text, label (``None``: no label), further fields, fields that may be absent."""

    text: tuple[str, ...] = ("text",)
    label: str | None = "label"
    extra: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class TextRow(NamedTuple):
    """One text, its label (a name, a list of names, or ``None``), further fields, and its file and line."""

    text: str
    label: Any
    extra: dict[str, Any]
    path: Path
    line: int | None


def _as_fields(text: str | Sequence[str]) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else tuple(text)


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    known = list(known)
    return f"no {kind} {name!r}{did_you_mean(name, known)}; there are {', '.join(map(repr, known))}"


def _get(record: dict[str, Any], name: str, path: Path, line: int) -> Any:
    try:
        return record[name]
    except KeyError:
        raise DataFormatError(path, line, _unknown("field", name, record)) from None


def _json_labels(value: Any, path: Path, line: int) -> Any:
    """Validate a label: a name, a list of names, or ``None``; whole numbers become strings."""
    if value == "" or (isinstance(value, list) and "" in value):
        raise DataFormatError(path, line, "a label is empty: write null (or an empty list) for no label")
    if isinstance(value, list):
        if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in value):
            raise DataFormatError(path, line, f"a label must be a string or a whole number, got {value!r}")
        return [str(item) for item in value]
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataFormatError(path, line, f"a label must be a string, a whole number or a list, got {value!r}")


def join_labels(labels: list[Any]) -> Any:
    """Object array if every row has at most one name, given as a string; otherwise a list of lists."""
    if any(isinstance(label, list) for label in labels):
        return [label if isinstance(label, list) else [] if label is None else [label] for label in labels]
    return name_array(labels)


def jsonl_row(line: str, path: Path, number: int, fields: Fields) -> TextRow | None:
    """Read one line of JSONL; ``None`` for a blank one.

    Examples
    --------
    >>> jsonl_row('{"text": "a cat", "label": "animal"}', Path("x.jsonl"), 1, Fields())[:2]
    ('a cat', 'animal')
    """
    if not line.strip():
        return None
    try:
        record = json.loads(line.strip())
    except json.JSONDecodeError as error:
        # The line number of the JSON error counts inside this line.
        raise DataFormatError(path, number, f"not valid JSON: {error.msg}, column {error.colno}") from error
    except RecursionError as error:
        raise DataFormatError(path, number, "the JSON is nested too deeply") from error
    except ValueError as error:  # a number with too many digits
        raise DataFormatError(path, number, f"not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise DataFormatError(path, number, f"expected a JSON object, got {line.strip()[:60]!r}")
    parts = [_get(record, name, path, number) for name in fields.text]
    if not all(isinstance(part, str) for part in parts):
        wrong = next(name for name, part in zip(fields.text, parts, strict=True) if not isinstance(part, str))
        raise DataFormatError(path, number, f"the text field {wrong!r} must be a string")
    label = None
    if fields.label is not None and (fields.label in record or fields.label not in fields.optional):
        label = _json_labels(_get(record, fields.label, path, number), path, number)
    extra = {name: _get(record, name, path, number) for name in fields.extra}
    extra |= {name: record[name] for name in fields.optional if name in record and name != fields.label}
    return TextRow("\n".join(parts), label, extra, path, number)


def read_jsonl(
    path: str | Path,
    *,
    text: str | Sequence[str] = "text",
    label: str | None = "label",
    extra: Sequence[str] = (),
    encoding: str = "utf-8-sig",
    max_unpacked: int | None = MAX_UNPACKED,
) -> TextData:
    """Read texts and labels from JSON lines: one object per line.

    Parameters
    ----------
    path : path
        Plain, gzip, xz or bzip2 file. Blank lines are ignored.
    text : str or sequence of str, default="text"
        Field of the text. Several fields are joined by line breaks.
    label : str or None, default="label"
        Field of the label (a string, a whole number or null) or labels (a list). ``None`` reads no labels.
    extra : sequence of str, default=()
        Further fields to keep.
    encoding : str, default="utf-8-sig"
        Encoding of the file.
    max_unpacked : int or None, default=2**32
        Largest size of a compressed file when unpacked, in bytes. ``None``: no limit.

    Returns
    -------
    TextData
        ``texts``; ``y``, an object array of names if every row has one label, else a list of lists;
        ``extra``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import read_jsonl
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.jsonl")
    >>> _ = path.write_text('{"text": "a cat", "labels": ["animal", "pet"]}')
    >>> read_jsonl(path, label="labels")
    TextData(texts=['a cat'], y=[['animal', 'pet']], extra={})
    """
    path = Path(path)
    fields = Fields(_as_fields(text), label, tuple(extra))
    lines = enumerate(read_lines(path, encoding, max_unpacked), start=1)
    rows = [jsonl_row(line, path, n, fields) for n, line in lines]
    kept = [row for row in rows if row is not None]
    if not kept:
        raise DataFormatError(path, None, "the file has no record")
    y = None if label is None else join_labels([row.label for row in kept])
    return TextData(
        [row.text for row in kept], y, {name: [row.extra[name] for row in kept] for name in extra}
    )


# The csv module has one limit on the length of a field for the whole process, 128 kB by default.
_LONGEST_FIELD = 2**31 - 1
_LIMIT_LOCK = threading.RLock()


def _next_record(reader: Iterator[list[str]]) -> list[str] | None:
    """Next record of a ``csv.reader`` with fields of any length; ``None`` at the end of the file.

    The limit is raised for this one record and restored before the record is handed out. Readers that run at
    the same time, in turns or in threads, therefore cannot leave a raised limit behind.
    """
    with _LIMIT_LOCK:
        before = csv.field_size_limit(_LONGEST_FIELD)
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(before)


def _positions(header: list[str], names: Sequence[str], path: Path) -> list[int]:
    for name in names:
        if name not in header:
            raise DataFormatError(path, 1, _unknown("column", name, header))
        if header.count(name) > 1:
            raise DataFormatError(path, 1, f"two columns are called {name!r}")
    return [header.index(name) for name in names]


def csv_records(
    path: str | Path,
    *,
    delimiter: str = ",",
    encoding: str = "utf-8-sig",
    max_unpacked: int | None = MAX_UNPACKED,
) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and all records, each with the number of its last line.

    All records must have as many cells as the header, and there must be at least one.
    """
    path = Path(path)
    width = n_records = 0
    reader = csv.reader(read_lines(path, encoding, max_unpacked), delimiter=delimiter, strict=True)
    try:
        while (cells := _next_record(reader)) is not None:
            if not cells:  # a blank line
                continue
            width = width or len(cells)
            if len(cells) != width:
                raise DataFormatError(path, reader.line_num, f"{len(cells)} cells, the header has {width}")
            n_records += 1
            yield reader.line_num, cells
    except csv.Error as error:
        raise DataFormatError(path, reader.line_num, f"not valid CSV: {error}") from error
    if n_records < 2:
        raise DataFormatError(path, None, "the file has no row after its header")


def csv_rows(
    path: str | Path,
    fields: Fields,
    *,
    label_separator: str | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8-sig",
    max_unpacked: int | None = MAX_UNPACKED,
) -> Iterator[TextRow]:
    """Yield the rows of a CSV file one by one; arguments as in `read_csv`."""
    path = Path(path)
    records = csv_records(path, delimiter=delimiter, encoding=encoding, max_unpacked=max_unpacked)
    _, header = next(records)
    may_lack = [name for name in fields.optional if name in header and name != fields.label]
    label = fields.label if fields.label in header or fields.label not in fields.optional else None
    wanted = [*fields.text, *fields.extra, *may_lack, *([] if label is None else [label])]
    positions = dict(zip(wanted, _positions(header, wanted, path), strict=True))
    for number, cells in records:
        picked = {name: cells[position] for name, position in positions.items()}
        value: Any = None if label is None else picked[label]
        if value is not None and label_separator is not None:
            value = [name.strip() for name in value.split(label_separator) if name.strip()]
        elif value == "":
            if label not in fields.optional:
                raise DataFormatError(
                    path,
                    number,
                    f"the label column {label!r} is empty: add a label, or remove the row",
                )
            value = None
        text = "\n".join(picked[name] for name in fields.text)
        extra = {name: picked[name] for name in (*fields.extra, *may_lack)}
        yield TextRow(text, value, extra, path, number)


def read_csv(
    path: str | Path,
    *,
    text: str | Sequence[str] = "text",
    label: str | None = "label",
    label_separator: str | None = None,
    extra: Sequence[str] = (),
    delimiter: str = ",",
    encoding: str = "utf-8-sig",
    max_unpacked: int | None = MAX_UNPACKED,
) -> TextData:
    r"""Read texts and labels from CSV with a header line.

    Parameters
    ----------
    path : path
        Plain, gzip, xz or bzip2 file.
    text : str or sequence of str, default="text"
        Column of the text. Several columns are joined by line breaks.
    label : str or None, default="label"
        Column of the label. ``None`` reads no labels.
    label_separator : str, optional
        Separator of several labels in one cell; an empty cell then means no label. Without a separator the whole
        cell is one label.
    extra : sequence of str, default=()
        Further columns to keep, as strings.
    delimiter : str, default=","
        Separator of cells; ``"\t"`` for TSV.
    encoding : str, default="utf-8-sig"
        Encoding of the file.
    max_unpacked : int or None, default=2**32
        Largest size of a compressed file when unpacked, in bytes. ``None``: no limit.

    Returns
    -------
    TextData
        ``texts``; ``y``, an object array of names, or a list of lists with ``label_separator``; ``extra``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import read_csv
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.csv")
    >>> _ = path.write_text('text,topic\n"one, two",a;b\nthree,\n')
    >>> read_csv(path, label="topic", label_separator=";")
    TextData(texts=['one, two', 'three'], y=[['a', 'b'], []], extra={})
    """
    fields = Fields(_as_fields(text), label, tuple(extra))
    how: dict[str, Any] = {"delimiter": delimiter, "encoding": encoding, "max_unpacked": max_unpacked}
    rows = list(csv_rows(path, fields, label_separator=label_separator, **how))
    labels = [row.label for row in rows]
    y = None if label is None else labels if label_separator is not None else name_array(labels)
    return TextData(
        [row.text for row in rows], y, {name: [row.extra[name] for row in rows] for name in extra}
    )


def folder_rows(
    folder: str | Path,
    *,
    pattern: str = "*",
    encoding: str = "utf-8",
    max_unpacked: int | None = MAX_UNPACKED,
) -> Iterator[TextRow]:
    """Yield the files of a folder one by one, sorted by path; arguments as in `read_folder`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataFormatError(folder, None, "is not a folder")
    found = sorted(path for path in folder.rglob(pattern) if path.is_file())
    files = [
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise DataFormatError(folder, None, f"has no file that matches {pattern!r}")
    for path in files:
        label = path.parent.relative_to(folder).as_posix()
        if label.split("/")[0] == ROOT:
            raise DataFormatError(
                path, None, f"a sub-folder must not be named {ROOT!r}, the name of the root: rename it"
            )
        with open_bytes(path, max_unpacked) as file:
            text = decode(file.read(), encoding, path, None)
        yield TextRow(text, ROOT if label == "." else label, {}, path, None)


def read_folder(
    folder: str | Path,
    *,
    pattern: str = "*",
    encoding: str = "utf-8",
    max_unpacked: int | None = MAX_UNPACKED,
) -> FolderData:
    """Read a folder of text files; the path of the sub-folder is the label.

    Parameters
    ----------
    folder : path
        Top folder. Files directly in it are labelled ``root``. Hidden files and folders are ignored.
    pattern : str, default="*"
        Files to read, such as ``"*.txt"``. Files may be compressed with gzip, xz or bzip2.
    encoding : str, default="utf-8"
        Encoding of the files.
    max_unpacked : int or None, default=2**32
        Largest size of each compressed file when unpacked, in bytes. ``None``: no limit.

    Returns
    -------
    FolderData
        ``texts``, ``y`` (such as ``"comp/graphics"``), ``hierarchy`` (with the node ``root`` on top), ``files``;
        sorted by path.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import read_folder
    >>> top = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("comp/graphics", "rec"):
    ...     (top / name).mkdir(parents=True)
    ...     _ = (top / name / "1.txt").write_text("about " + name)
    >>> data = read_folder(top)
    >>> data.texts, list(data.y), data.hierarchy.path("comp/graphics")
    (['about comp/graphics', 'about rec'], ['comp/graphics', 'rec'], ['root', 'comp', 'comp/graphics'])
    """
    from arbora.structure import Hierarchy

    rows = list(folder_rows(folder, pattern=pattern, encoding=encoding, max_unpacked=max_unpacked))
    edges = path_edges([row.label for row in rows if row.label != ROOT])
    if not edges:
        raise DataFormatError(folder, None, "has no sub-folder, so there are no labels")
    labels = name_array(row.label for row in rows)
    return FolderData(
        [row.text for row in rows], labels, Hierarchy.from_edges(edges), [row.path for row in rows]
    )
