"""All texts of a file or folder at once: `read_jsonl`, `read_json`, `read_csv`, `read_folder`.

A record that cannot be read is an error, unless `skipped` is given: then it is counted there and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arbora.arrays import Matrix
from arbora.datasets.base import ROOT, DataFormatError, label_names, name_array, path_edges
from arbora.datasets.readers.files import AUTO, MAX_UNPACKED
from arbora.datasets.readers.folder import folder_rows
from arbora.datasets.readers.html_text import AS_IS
from arbora.datasets.readers.records import (
    Fields,
    Reading,
    RowOrError,
    TextRow,
    as_fields,
    csv_rows,
    join_labels,
    json_records,
    jsonl_records,
)
from arbora.datasets.readers.skipped import SkippedRecords, is_readable

if TYPE_CHECKING:
    from arbora.structure import Hierarchy


class TextData(NamedTuple):
    """Texts, their labels (an object array of names, or a list of lists), and further fields."""

    texts: list[str]
    y: Any
    extra: dict[str, list[Any]]

    def __repr__(self) -> str:
        names = "".join(f", {name!r}" for name in self.extra)
        return f"TextData: {describe_texts(self.texts, self.y)}" + (f"; fields {names[2:]}" if names else "")


class FolderData(NamedTuple):
    """Texts of a folder, their labels, the hierarchy of its sub-folders, and the file of each text."""

    texts: list[str]
    y: Matrix
    hierarchy: Hierarchy
    files: list[Path]

    def __repr__(self) -> str:
        return f"FolderData: {describe_texts(self.texts, self.y)}; {self.hierarchy!r}"


def describe_texts(texts: Sequence[str], y: Any) -> str:
    """Describe texts in one line: their number, their labels, and the beginning of the first."""
    parts = [f"{len(texts):,} text{'s' * (len(texts) != 1)}"]
    if y is not None:
        n_labels = len(label_names(y))
        parts[0] += f", {n_labels:,} label{'s' * (n_labels != 1)}"
    if texts:
        first = " ".join(texts[0][:400].split())
        parts.append(f"first: {first if len(first) <= 60 else first[:57] + '...'!r}")
    return "; ".join(parts)


def _collect(
    records: Iterator[RowOrError], path: str | Path, skipped: SkippedRecords | None
) -> list[TextRow]:
    rows = [row for row in records if is_readable(row, skipped)]
    if not rows:
        if skipped is not None and skipped.first is not None:
            raise skipped.first
        raise DataFormatError(path, None, "the file has no record")
    return rows


def read_jsonl(
    path: str | Path,
    *,
    text: str | Sequence[str] = "text",
    label: str | None = "label",
    extra: Sequence[str] = (),
    encoding: str = AUTO,
    html: str = AS_IS,
    max_unpacked: int | None = MAX_UNPACKED,
    skipped: SkippedRecords | None = None,
) -> TextData:
    """Read texts and labels from JSON lines: one object per line.

    Parameters
    ----------
    path : path
        Plain, gzip, xz or bzip2 file. Blank lines are ignored.
    text : str or sequence of str, default="text"
        Field of the text. Several fields are joined by line breaks; those that are null are left out.
    label : str or None, default="label"
        Field of the label (a string, a whole number or null) or labels (a list). ``None`` reads no labels.
    extra : sequence of str, default=()
        Further fields to keep.
    encoding : str, default="auto"
        Encoding of the file; "auto": found from the content.
    html : {"keep", "auto", "strip"}, default="keep"
        Strip no text of HTML, those that look like HTML, or all.
    max_unpacked : int or None, default=2**32
        Largest size of a compressed file when unpacked, in bytes. ``None``: no limit.
    skipped : SkippedRecords, optional
        Counts the records that cannot be read, which are left out. Without it such a record is an error.

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
    >>> data = read_jsonl(path, label="labels")
    >>> data.texts, data.y
    (['a cat'], [['animal', 'pet']])
    >>> data
    TextData: 1 text, 2 labels; first: 'a cat'
    """
    how = Reading(encoding, html=html, max_unpacked=max_unpacked)
    return _text_data(jsonl_records, path, (text, label, extra), how, skipped)


def read_json(
    path: str | Path,
    *,
    text: str | Sequence[str] = "text",
    label: str | None = "label",
    extra: Sequence[str] = (),
    encoding: str = AUTO,
    html: str = AS_IS,
    max_unpacked: int | None = MAX_UNPACKED,
    skipped: SkippedRecords | None = None,
) -> TextData:
    """Read texts and labels from a JSON file: an array of objects, or an object that holds one array of them.

    The text of the file is read into memory; records are parsed one at a time. A file of JSON lines is read as such.

    Parameters
    ----------
    path, text, label, extra, encoding, html, max_unpacked, skipped
        As in `read_jsonl`.

    Returns
    -------
    TextData

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import read_json
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.json")
    >>> _ = path.write_text('{"version": 1, "items": [{"text": "a cat", "label": "pet"}]}')
    >>> read_json(path).texts
    ['a cat']
    """
    how = Reading(encoding, html=html, max_unpacked=max_unpacked)
    return _text_data(json_records, path, (text, label, extra), how, skipped)


def _text_data(
    records: Callable[[str | Path, Fields, Reading], Iterator[RowOrError]],
    path: str | Path,
    names: tuple[str | Sequence[str], str | None, Sequence[str]],
    how: Reading,
    skipped: SkippedRecords | None,
) -> TextData:
    """Read all records of a file; `names` are those of the text, of the label and of further fields."""
    text, label, extra = names
    fields = Fields(as_fields(text), label, tuple(extra))
    rows = _collect(records(path, fields, how), path, skipped)
    labels = [row.label for row in rows]
    y: Any = None
    if fields.label is not None:
        y = labels if how.label_separator is not None else join_labels(labels)
    return TextData(
        [row.text for row in rows], y, {name: [row.extra[name] for row in rows] for name in fields.extra}
    )


def read_csv(
    path: str | Path,
    *,
    text: str | Sequence[str] = "text",
    label: str | None = "label",
    label_separator: str | None = None,
    extra: Sequence[str] = (),
    delimiter: str = AUTO,
    encoding: str = AUTO,
    html: str = AS_IS,
    max_unpacked: int | None = MAX_UNPACKED,
    skipped: SkippedRecords | None = None,
) -> TextData:
    r"""Read texts and labels from CSV with a header line.

    Parameters
    ----------
    path, extra, encoding, html, max_unpacked, skipped
        As in `read_jsonl`; values of `extra` are strings.
    text : str or sequence of str, default="text"
        Column of the text. Several columns are joined by line breaks.
    label : str or None, default="label"
        Column of the label. ``None`` reads no labels.
    label_separator : str, optional
        Separator of several labels in one cell; an empty cell then means no label. Without a separator the whole
        cell is one label.
    delimiter : str, default="auto"
        Separator of cells, such as ``";"`` or ``"\t"``; "auto": found from the header.

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
    >>> data = read_csv(path, label="topic", label_separator=";")
    >>> data.texts, data.y
    (['one, two', 'three'], [['a', 'b'], []])
    """
    how = Reading(encoding, delimiter, label_separator, html, max_unpacked)
    return _text_data(csv_rows, path, (text, label, extra), how, skipped)


def read_folder(
    folder: str | Path,
    *,
    pattern: str = "*",
    encoding: str = AUTO,
    html: str = AUTO,
    max_unpacked: int | None = MAX_UNPACKED,
    skipped: SkippedRecords | None = None,
) -> FolderData:
    """Read a folder of text files; the path of the sub-folder is the label.

    Parameters
    ----------
    folder : path
        Top folder. Files directly in it are labelled ``root``. Hidden files and folders are ignored.
    pattern : str, default="*"
        Files to read, such as ``"*.txt"``. Files may be compressed with gzip, xz or bzip2. PDF and Word files need
        the extra ``files``.
    encoding : str, default="auto"
        Encoding of the files; "auto": found from the content of each.
    html : {"auto", "strip", "keep"}, default="auto"
        Strip HTML files and texts that look like HTML, all texts, or none.
    max_unpacked : int or None, default=2**32
        Largest size of each compressed file when unpacked, in bytes. ``None``: no limit.
    skipped : SkippedRecords, optional
        Counts the files that cannot be read, which are left out. Without it such a file is an error.

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

    how = Reading(encoding, html=html, max_unpacked=max_unpacked)
    rows = _collect(folder_rows(folder, how, pattern=pattern), folder, skipped)
    edges = path_edges([row.label for row in rows if row.label != ROOT])
    if not edges:
        raise DataFormatError(folder, None, "has no sub-folder, so there are no labels")
    labels = name_array(row.label for row in rows)
    return FolderData(
        [row.text for row in rows], labels, Hierarchy.from_edges(edges), [row.path for row in rows]
    )
