"""Hierarchical multi-label ARFF, the format of the Clus system.

The class attribute is ``@attribute class hierarchical a,a/b,c``: paths of a tree, or ``parent/child`` pairs of a DAG.
In a DAG the labels of rows are node names without the parent. The last value of a row is its labels, joined by ``@``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from arbora.arrays import Matrix
from arbora.datasets.base import ROOT, DataFormatError, did_you_mean, name_array, path_edges
from arbora.datasets.readers.files import MAX_UNPACKED, TextLines

if TYPE_CHECKING:
    from arbora.structure import Hierarchy


# --- Columns of strings to numbers: numeric columns with missing values, nominal columns as indicators ------


class ColumnError(ValueError):
    """A cell is not valid for its column; ``row`` is the index of the first such cell."""

    def __init__(self, row: int, problem: str) -> None:
        self.row = row
        super().__init__(problem)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.inf  # treated like a number that is too large


def number_column(cells: Sequence[str], missing: str, largest: float = np.inf) -> Matrix:
    """Parse ``cells`` to a column of shape (n_rows, 1); cells equal to ``missing`` become NaN."""
    values = np.array([np.nan if cell == missing else _number(cell) for cell in cells])
    for row in np.flatnonzero(~(np.isfinite(values) & (np.abs(values) <= largest))).tolist():
        if cells[row] != missing:
            problem = "too large a number" if np.isfinite(values[row]) else "not a finite number"
            raise ColumnError(row, f"{cells[row][:60]!r} is {problem}")
    return values[:, None]


def indicator_columns(cells: Sequence[str], values: Sequence[str], missing: str) -> Matrix:
    """One 0/1 column for each of ``values``; a cell equal to ``missing`` gives a zero row."""
    position = {value: column for column, value in enumerate(values)}
    position.setdefault(missing, len(values))
    codes = np.array([position.get(cell, -1) for cell in cells])
    unknown = np.flatnonzero(codes < 0)
    if unknown.size:
        row = int(unknown[0])
        raise ColumnError(row, f"{cells[row]!r} is not one of its values{did_you_mean(cells[row], values)}")
    return np.asarray(codes[:, None] == np.arange(len(values)), dtype=np.float64)


# --- Hierarchical multi-label ARFF, the format of the Clus system -------------------------------------------


_ATTRIBUTE = re.compile(r"@attribute\s+('[^']*'|\"[^\"]*\"|\S+)\s+(.*)", re.IGNORECASE)


class HmcData(NamedTuple):
    """Dense rows, label names of each row, column names and label hierarchy of one HMC ARFF file."""

    X: Matrix
    labels: list[list[str]]
    feature_names: Matrix
    hierarchy: Hierarchy


class _Attribute(NamedTuple):
    """A feature column: its name, and its values if it is nominal (``None`` if it is numeric)."""

    name: str
    values: tuple[str, ...] | None


class _Header(NamedTuple):
    features: list[_Attribute]
    classes: list[str]


def _unquote(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _cells(path: Path, line: int, text: str) -> list[str]:
    """Values separated by commas, some of them quoted."""
    try:
        return next(csv.reader([text], quotechar="'", skipinitialspace=True), [])
    except csv.Error as error:
        raise DataFormatError(path, line, f"not a row of values: {error}") from error


def _parse_type(path: Path, line: int, name: str, kind: str) -> _Attribute:
    if kind.startswith("{") and kind.endswith("}"):
        values = tuple(_unquote(value) for value in _cells(path, line, kind[1:-1]))
        # {0,1} is numeric; other nominal attributes get one indicator column per value
        return _Attribute(name, None if set(values) <= {"0", "1"} else values)
    if kind.lower().split(None, 1)[:1] in (["numeric"], ["real"], ["integer"]):
        return _Attribute(name, None)
    raise DataFormatError(
        path, line, f"attribute {name!r} has type {kind!r}; supported are numeric, {{a,b}} and hierarchical"
    )


def _read_header(path: Path, lines: Iterator[tuple[int, str]]) -> _Header:
    """Attributes up to ``@data``; the hierarchical class attribute must be the last."""
    features: list[_Attribute] = []
    classes: list[str] | None = None
    for number, raw in lines:
        line = raw.strip()
        lower = line.lower()
        if not line or line.startswith("%") or lower.startswith("@relation"):
            continue
        if lower.startswith("@data"):
            if classes is None:
                raise DataFormatError(path, number, "no '@attribute class hierarchical ...' before @data")
            return _Header(features, classes)
        match = _ATTRIBUTE.fullmatch(line)
        if match is None:
            raise DataFormatError(path, number, f"expected @relation, @attribute or @data, got {line[:60]!r}")
        if classes is not None:
            raise DataFormatError(path, number, "the hierarchical class attribute must be the last attribute")
        name, kind = _unquote(match[1]), match[2].strip()
        if kind.lower().startswith("hierarchical"):
            classes = [part.strip() for part in kind[len("hierarchical") :].split(",") if part.strip()]
            if not classes:
                raise DataFormatError(path, number, "the class attribute lists no class")
        else:
            features.append(_parse_type(path, number, name, kind))
    raise DataFormatError(path, None, "the file has no @data line")


def _read_rows(path: Path, lines: Iterator[tuple[int, str]], width: int) -> tuple[list[list[str]], list[int]]:
    """Cells of each data row, and its line number."""
    rows, numbers = [], []
    for number, raw in lines:
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        if line.startswith("{"):
            raise DataFormatError(
                path, number, "sparse ARFF rows are not supported: write the row with all its values"
            )
        cells = _cells(path, number, line)
        if len(cells) != width:
            raise DataFormatError(path, number, f"{len(cells)} values where {width} attributes are declared")
        rows.append(cells)
        numbers.append(number)
    if not rows:
        raise DataFormatError(path, None, "there is no row after @data")
    return rows, numbers


def _column(path: Path, attribute: _Attribute, cells: Sequence[str], numbers: list[int]) -> Matrix:
    """One numeric column, or one indicator column per nominal value; missing is NaN or all zero."""
    try:
        if attribute.values is None:
            return number_column(cells, missing="?", largest=float(np.finfo(np.float32).max))
        return indicator_columns(cells, attribute.values, missing="?")
    except ColumnError as error:
        problem = f"attribute {attribute.name!r}: {error}"
        raise DataFormatError(path, numbers[error.row], problem) from None


def class_edges(classes: list[str], structure: Literal["tree", "dag"]) -> list[tuple[str, str]]:
    """Parent-child pairs of the classes of the header, below one node ``root``."""
    if structure == "dag":
        pairs = [tuple(name.rsplit("/", 1)) if "/" in name else (ROOT, name) for name in classes]
        edges = dict.fromkeys((parent, child) for parent, child in pairs)
        children = {child for _, child in edges}
        tops = dict.fromkeys(parent for parent, _ in edges if parent not in children and parent != ROOT)
        return [(ROOT, top) for top in tops] + list(edges)
    return path_edges(classes)


def read_hmc_arff(
    path: str | Path,
    *,
    structure: Literal["tree", "dag"] = "tree",
    encoding: str = "utf-8-sig",
    max_unpacked: int | None = MAX_UNPACKED,
) -> HmcData:
    """Read hierarchical multi-label ARFF (Clus style).

    Parameters
    ----------
    path : path
        Plain, gzip, xz or bzip2 file.
    structure : {"tree", "dag"}, default="tree"
        Meaning of the class attribute: full paths ``a/b/c`` of a tree, or ``parent/child`` pairs of a DAG. The file
        does not distinguish the two.
    encoding : str, default="utf-8-sig"
        Encoding of the file.
    max_unpacked : int or None, default=2**32
        Largest size of a compressed file when unpacked, in bytes. ``None``: no limit.

    Returns
    -------
    HmcData
        ``X`` (float32; missing numbers are NaN; a nominal attribute has one 0/1 column per value, all zero if
        missing; an attribute ``{0,1}`` is numeric), ``labels``, ``feature_names``, ``hierarchy`` (with the node
        ``root`` on top).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import read_hmc_arff
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.arff")
    >>> _ = path.write_text('''@RELATION tiny
    ... @ATTRIBUTE size numeric
    ... @ATTRIBUTE colour {red,green}
    ... @ATTRIBUTE class hierarchical 1,1/2,3
    ... @DATA
    ... 0.5,red,1/2@3
    ... ?,green,1
    ... ''')
    >>> data = read_hmc_arff(path)
    >>> data.labels, list(data.feature_names)
    ([['1/2', '3'], ['1']], ['size', 'colour=red', 'colour=green'])
    >>> data.hierarchy.path("1/2")
    ['root', '1', '1/2']
    """
    from arbora.structure import Hierarchy

    if structure not in ("tree", "dag"):
        raise ValueError(f"structure must be 'tree' or 'dag', got {structure!r}")
    path = Path(path)
    lines = enumerate(TextLines(path, encoding, max_unpacked), start=1)
    header = _read_header(path, lines)
    try:
        hierarchy = Hierarchy.from_edges(class_edges(header.classes, structure))
    except ValueError as error:
        problem = f"the classes of the header do not make a {structure} under {ROOT!r}: {error}"
        raise DataFormatError(path, None, problem) from error
    rows, numbers = _read_rows(path, lines, len(header.features) + 1)
    class_names = set(hierarchy.names)
    labels = [row[-1].split("@") for row in rows]
    for number, names in zip(numbers, labels, strict=True):
        for name in names:
            if name not in class_names:
                problem = f"label {name!r} is not a class of the header{did_you_mean(name, header.classes)}"
                raise DataFormatError(path, number, problem)
    columns = [
        _column(path, attribute, [cell.strip() for cell in cells], numbers)
        # The last cells are the classes
        for attribute, cells in zip(header.features, zip(*rows, strict=True), strict=False)
    ]
    names = [a.name if v is None else f"{a.name}={v}" for a in header.features for v in a.values or (None,)]
    X = np.hstack(columns) if columns else np.empty((len(rows), 0))
    return HmcData(X.astype(np.float32), labels, name_array(names), hierarchy)
