"""Raw texts with labels: JSONL, CSV, and a folder of text files where the folder is the label.

`jsonl_row`, `csv_rows` and `folder_rows` give one text at a time, in constant memory; `read_jsonl`, `read_csv` and
`read_folder` collect them.
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
from arbora.datasets.readers.files import decode, open_bytes, read_lines

if TYPE_CHECKING:
    from arbora.structure import Hierarchy


class TextData(NamedTuple):
    """Texts, their labels (an object array of names, or a list of lists), further fields asked for."""

    texts: list[str]
    y: Any
    extra: dict[str, list[Any]]


class FolderData(NamedTuple):
    """Texts of a folder, their labels, the hierarchy of its sub-folders, and the file each text came from."""

    texts: list[str]
    y: np.ndarray
    hierarchy: Hierarchy
    files: list[Path]


class Fields(NamedTuple):
    """Fields of a record: those of its text, of its label (``None``: not read), further ones, ones it may lack."""

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
    """Check a label: a name, a list of names, or ``None``; numbers become their spelling."""
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
    """Object array when every row has a single name (or none); lists otherwise."""
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
        # Its own line number would count inside this line.
        raise DataFormatError(path, number, f"not valid JSON: {error.msg}, column {error.colno}") from error
    except RecursionError as error:
        raise DataFormatError(path, number, "the JSON is nested too deeply") from error
    except ValueError as error:  # a number of too many digits
        raise DataFormatError(path, number, f"not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise DataFormatError(path, number, f"expected a JSON object, got {line.strip()[:60]!r}")
    parts = [_get(record, name, path, number) for name in fields.text]
    if not all(isinstance(part, str) for part in parts):
        wrong = next(name for name, part in zip(fields.text, parts, strict=True) if not isinstance(part, str))
        raise DataFormatError(path, number, f"the text field {wrong!r} must hold a string")
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
) -> TextData:
    """Read texts and labels from JSON lines: one object a line.

    Parameters
    ----------
    path : path
        Plain, gzip, xz or bzip2 file. Blank lines are passed over.
    text : str or sequence of str, default="text"
        Field of the text, or several, joined by a line break.
    label : str or None, default="label"
        Field of the label (a string, a whole number or null) or labels (a list). ``None`` reads no labels.
    extra : sequence of str, default=()
        Further fields to keep, as they are.
    encoding : str, default="utf-8-sig"
        Encoding of the file.

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
    rows = [jsonl_row(line, path, n, fields) for n, line in enumerate(read_lines(path, encoding), start=1)]
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
    path: str | Path, *, delimiter: str = ",", encoding: str = "utf-8-sig"
) -> Iterator[tuple[int, list[str]]]:
    """Give the header and all records of a file, which must be as wide, each with the line it ends on."""
    path = Path(path)
    width = 0
    reader = csv.reader(read_lines(path, encoding), delimiter=delimiter, strict=True)
    try:
        while (cells := _next_record(reader)) is not None:
            if not cells:  # a blank line
                continue
            width = width or len(cells)
            if len(cells) != width:
                raise DataFormatError(path, reader.line_num, f"{len(cells)} cells, the header has {width}")
            yield reader.line_num, cells
    except csv.Error as error:
        raise DataFormatError(path, reader.line_num, f"not valid CSV: {error}") from error


def read_csv_rows(
    path: str | Path, *, delimiter: str = ",", encoding: str = "utf-8-sig"
) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, further records and the line each of them ends on; all must be as wide as the header."""
    records = list(csv_records(path, delimiter=delimiter, encoding=encoding))
    if len(records) < 2:
        raise DataFormatError(path, None, "the file has no row after its header")
    numbers, cells = zip(*records, strict=True)
    return cells[0], list(cells[1:]), list(numbers[1:])


def csv_rows(
    path: str | Path,
    fields: Fields,
    *,
    label_separator: str | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8-sig",
) -> Iterator[TextRow]:
    """Read the rows of a CSV file one by one; arguments as in `read_csv`."""
    path = Path(path)
    records = csv_records(path, delimiter=delimiter, encoding=encoding)
    _, header = next(records, (1, []))
    may_lack = [name for name in fields.optional if name in header and name != fields.label]
    label = fields.label if fields.label in header or fields.label not in fields.optional else None
    wanted = [*fields.text, *fields.extra, *may_lack, *([] if label is None else [label])]
    positions = dict(zip(wanted, _positions(header, wanted, path), strict=True))
    empty = True
    for number, cells in records:
        empty = False
        picked = {name: cells[position] for name, position in positions.items()}
        value: Any = None if label is None else picked[label]
        if value is not None and label_separator is not None:
            value = [name.strip() for name in value.split(label_separator) if name.strip()]
        elif value == "":
            if label not in fields.optional:
                raise DataFormatError(
                    path,
                    number,
                    f"the label column {label!r} is empty: give the document a label, or leave it out",
                )
            value = None
        text = "\n".join(picked[name] for name in fields.text)
        extra = {name: picked[name] for name in (*fields.extra, *may_lack)}
        yield TextRow(text, value, extra, path, number)
    if empty:
        raise DataFormatError(path, None, "the file has no row after its header")


def read_csv(
    path: str | Path,
    *,
    text: str | Sequence[str] = "text",
    label: str | None = "label",
    label_separator: str | None = None,
    extra: Sequence[str] = (),
    delimiter: str = ",",
    encoding: str = "utf-8-sig",
) -> TextData:
    r"""Read texts and labels from CSV with a header line.

    Parameters
    ----------
    path : path
        Plain, gzip, xz or bzip2 file.
    text : str or sequence of str, default="text"
        Column of the text, or several, joined by a line break.
    label : str or None, default="label"
        Column of the label. ``None`` reads no labels.
    label_separator : str, optional
        What separates several labels in one cell; an empty cell then means no label. Without it a cell is one
        label, spaces and all.
    extra : sequence of str, default=()
        Further columns to keep, as strings.
    delimiter : str, default=","
        What separates cells; ``"\t"`` for TSV.
    encoding : str, default="utf-8-sig"
        Encoding of the file.

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
    rows = list(
        csv_rows(path, fields, label_separator=label_separator, delimiter=delimiter, encoding=encoding)
    )
    labels = [row.label for row in rows]
    y = None if label is None else labels if label_separator is not None else name_array(labels)
    return TextData(
        [row.text for row in rows], y, {name: [row.extra[name] for row in rows] for name in extra}
    )


def folder_rows(folder: str | Path, *, pattern: str = "*", encoding: str = "utf-8") -> Iterator[TextRow]:
    """Read the files of a folder one by one, in the order of their sorted paths; arguments as in `read_folder`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataFormatError(folder, None, "is not a folder")
    found = sorted(path for path in folder.rglob(pattern) if path.is_file())
    files = [
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise DataFormatError(folder, None, f"holds no file that matches {pattern!r}")
    for path in files:
        label = path.parent.relative_to(folder).as_posix()
        if label.split("/")[0] == ROOT:
            raise DataFormatError(
                path, None, f"a folder may not be called {ROOT!r}: it is the name of the top"
            )
        with open_bytes(path) as file:
            text = decode(file.read(), encoding, path, None)
        yield TextRow(text, ROOT if label == "." else label, {}, path, None)


def read_folder(folder: str | Path, *, pattern: str = "*", encoding: str = "utf-8") -> FolderData:
    """Read a folder of text files; the path of the sub-folder, at any depth, is the label.

    Parameters
    ----------
    folder : path
        Top folder. Files directly in it are labelled ``root``. Hidden files and folders are passed over.
    pattern : str, default="*"
        Which files to read, such as ``"*.txt"``. Files may be compressed with gzip, xz or bzip2.
    encoding : str, default="utf-8"
        Encoding of the files.

    Returns
    -------
    FolderData
        ``texts``, ``y`` (``"comp/graphics"``), ``hierarchy`` (a node ``root`` on top), ``files``; in the
        order of the sorted paths.

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

    rows = list(folder_rows(folder, pattern=pattern, encoding=encoding))
    edges = path_edges([row.label for row in rows if row.label != ROOT])
    if not edges:
        raise DataFormatError(folder, None, "has no sub-folder, so there is no label to read")
    labels = name_array(row.label for row in rows)
    return FolderData(
        [row.text for row in rows], labels, Hierarchy.from_edges(edges), [row.path for row in rows]
    )
