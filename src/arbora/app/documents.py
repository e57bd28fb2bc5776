"""A user's own documents, in whatever form they are: the door of the command line.

========== ======================================================================================================
format     what it is
========== ======================================================================================================
folder     text files; the path of the sub-folder, at any depth, is the label
jsonl      one JSON object a line, with fields for the text and the label; ``-`` is the standard input
csv, tsv   a header line, then a row for each document
svmlight   ``label,label index:value ...``, counted from 1: rows of numbers, without text
npz        a matrix as `scipy.sparse.save_npz` writes it, or an array ``X``; ``y`` (names), ``ids`` and
           ``feature_names`` if they are there, and further arrays of one entry a row as fields
========== ======================================================================================================

Files may be compressed with gzip, xz or bzip2. `iter_documents` gives texts one by one in constant memory,
`read_documents` all of them; errors name the file, the line and what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arbora.datasets.base import ROOT, name_array, path_edges
from arbora.datasets.errors import DataFormatError
from arbora.datasets.readers.files import decode, open_bytes
from arbora.datasets.readers.npz import read_npz
from arbora.datasets.readers.svmlight import read_svmlight
from arbora.datasets.readers.texts import Fields, TextRow, csv_rows, folder_rows, join_labels, jsonl_row

if TYPE_CHECKING:
    from arbora.structure import Hierarchy

FORMATS = ("folder", "jsonl", "csv", "tsv", "svmlight", "npz")
STDIN = "-"
ID = "id"  # field that names a document, where there is one

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
    """Where documents are and how to read them; see `read_documents`."""

    path: str
    format: str = "auto"
    fields: Fields = Fields()
    label_separator: str | None = None
    pattern: str = "*"
    encoding: str = "utf-8"
    n_features: int | None = None


@dataclass(frozen=True)
class Documents:
    """Documents that were read.

    Attributes
    ----------
    name : str
        Name of the file or folder.
    ids : list of str
        Path in the folder, the field ``id``, or the number of the line (of a matrix: of the row, from 1).
    y : ndarray of object, list of list, or None
        A name (or None) a document; lists of names if a document has several; None if nothing has a label.
    texts : list of str or None
        None for rows of numbers.
    X : CSR matrix or None
        None for texts.
    hierarchy : Hierarchy or None
        That of the sub-folders.
    fields : dict of str to list
        Further fields, one entry a document.
    feature_names : ndarray of object or None
        Names of the columns of X.
    places : list of (Path, int or None)
        File and line of each document, for error messages.
    """

    name: str
    ids: list[str]
    y: Any
    places: list[tuple[Path, int | None]]
    texts: list[str] | None = None
    X: Any = None
    hierarchy: Hierarchy | None = None
    fields: dict[str, list[Any]] = field(default_factory=dict)
    feature_names: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def multilabel(self) -> bool:
        """Whether documents carry lists of labels."""
        return isinstance(self.y, list)

    def take(self, rows: Any) -> Documents:
        """Return the documents with these numbers, in this order.

        Examples
        --------
        >>> four = Documents("letters", list("abcd"), None, [(Path("x"), 1)] * 4, texts=list("ABCD"))
        >>> four.take([3, 0]).texts
        ['D', 'A']
        """
        rows = np.asarray(rows, dtype=np.int64).tolist()

        def pick(values: Any) -> Any:
            return None if values is None else [values[row] for row in rows]

        y = self.y[rows] if isinstance(self.y, np.ndarray) else pick(self.y)
        return Documents(
            self.name,
            [self.ids[row] for row in rows],
            y,
            [self.places[row] for row in rows],
            pick(self.texts),
            None if self.X is None else self.X[rows],
            self.hierarchy,
            {name: [values[row] for row in rows] for name, values in self.fields.items()},
            self.feature_names,
        )


def join_documents(first: Documents, second: Documents) -> Documents:
    """Put the documents of one collection behind those of another of the same kind.

    Examples
    --------
    >>> one, two = (Documents(name, [name], None, [(Path("x"), 1)], texts=[name]) for name in "ab")
    >>> join_documents(one, two).ids
    ['a', 'b']
    """
    y = None
    if first.y is not None and second.y is not None:
        y = join_labels([*first.y, *second.y])
    X = None
    if first.X is not None and second.X is not None:
        from scipy import sparse

        X = sparse.vstack([first.X, second.X], format="csr")
    texts = None if first.texts is None or second.texts is None else first.texts + second.texts
    if texts is None and X is None:
        raise ValueError(
            f"{first.name} and {second.name} do not go together: one has texts, the other numbers"
        )
    fields = {
        name: values + second.fields[name] for name, values in first.fields.items() if name in second.fields
    }
    return Documents(
        first.name,
        first.ids + second.ids,
        y,
        first.places + second.places,
        texts,
        X,
        first.hierarchy,
        fields,
        first.feature_names,
    )


def guess_format(path: str) -> str:
    """Tell the format of a file or folder by its name, or else by its first character.

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
        f"the name does not tell its format: say which it is (format=, --format: one of {', '.join(FORMATS)})",
    )


def jsonl_records(source: Source) -> Iterator[tuple[int, TextRow | DataFormatError]]:
    r"""Read JSONL from a file or the standard input: of each line that is not blank its number, and what is in it.

    A line that cannot be read is given as its error, so that the lines after it can still be read.

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
    with open_bytes(source.path) as file:
        for line in file:
            empty = False
            yield line
    if empty:
        raise DataFormatError(source.path, None, "the file is empty")


def _with_mark(encoding: str) -> str:
    return "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding


def iter_documents(source: Source) -> Iterator[TextRow]:
    """Give texts with labels one by one.

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
    kind = _check_format(source)
    if kind == "folder":
        yield from folder_rows(source.path, pattern=source.pattern, encoding=source.encoding)
    elif kind in ("csv", "tsv"):
        yield from csv_rows(
            source.path,
            source.fields,
            label_separator=source.label_separator,
            delimiter="\t" if kind == "tsv" else ",",
            encoding=_with_mark(source.encoding),
        )
    elif kind == "jsonl":
        for _, found in jsonl_records(source):
            if isinstance(found, DataFormatError):
                raise found
            yield found
    else:
        raise DataFormatError(source.path, None, f"{kind} holds rows of numbers, and texts are needed here")


def _check_format(source: Source) -> str:
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


def read_documents(source: Source, each: Callable[[], object] | None = None) -> Documents:
    """Read all documents of a file or folder.

    Parameters
    ----------
    source : Source
        ``path``; ``format``, one of `FORMATS` or "auto" (by name, then by content); ``fields``: those of text and
        label, and what else to keep (``optional`` ones where they are there, the label among them); ``pattern`` of
        file names in a folder; ``encoding``; ``label_separator`` of several labels in one cell of a CSV file;
        ``n_features`` of svmlight.
    each : callable, optional
        Called after each text: for a progress bar.

    Returns
    -------
    Documents

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
    kind = _check_format(source)
    if kind == "svmlight":
        return _read_svmlight(source)
    if kind == "npz":
        return _read_npz(source)
    if ID not in source.fields.optional:
        source = source._replace(fields=source.fields._replace(optional=(*source.fields.optional, ID)))
    rows = []
    for row in iter_documents(source):
        rows.append(row)
        if each is not None:
            each()
    if not rows:
        raise DataFormatError(
            "<stdin>" if source.path == STDIN else source.path, None, "the file has no record"
        )
    if kind == "folder":
        return _from_folder(source.path, rows)
    wanted = [*source.fields.extra, *(name for name in source.fields.optional if name != source.fields.label)]
    fields = {name: [row.extra.get(name) for row in rows] for name in wanted}
    ids = [str(row.line if name is None else name) for row, name in zip(rows, fields.pop(ID), strict=True)]
    return Documents(
        _name_of(source.path),
        ids,
        _labels([row.label for row in rows]),
        [(row.path, row.line) for row in rows],
        [row.text for row in rows],
        fields=fields,
    )


def _name_of(path: str) -> str:
    return "standard input" if path == STDIN else Path(path).resolve().name


def _labels(labels: list[Any]) -> Any:
    return None if all(label is None for label in labels) else join_labels(labels)


def _from_folder(folder: str, rows: Sequence[TextRow]) -> Documents:
    """Documents of a folder; without any sub-folder there are no labels."""
    from arbora.structure import Hierarchy

    edges = path_edges([row.label for row in rows if row.label != ROOT])
    return Documents(
        _name_of(folder),
        [row.path.relative_to(folder).as_posix() for row in rows],
        name_array(row.label for row in rows) if edges else None,
        [(row.path, None) for row in rows],
        [row.text for row in rows],
        hierarchy=Hierarchy.from_edges(edges) if edges else None,
    )


def _read_svmlight(source: Source) -> Documents:
    data = read_svmlight(source.path, n_features=source.n_features, allow_unlabelled=True)
    several = any(len(names) > 1 for names in data.labels)
    labels = data.labels if several else [names[0] if names else None for names in data.labels]
    n_samples = len(labels)
    places: list[tuple[Path, int | None]] = [(Path(source.path), None)] * n_samples
    ids = [str(row + 1) for row in range(n_samples)]
    return Documents(_name_of(source.path), ids, _labels(labels), places, X=data.X)


def _read_npz(source: Source) -> Documents:
    data = read_npz(source.path)
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
