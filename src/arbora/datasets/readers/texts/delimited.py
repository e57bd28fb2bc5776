"""Records of delimited files (CSV, TSV) with a header line. The separator is found from the header.

The separator is the one of comma, semicolon, tab and bar with which the header has the columns that are asked for;
among several, the one that gives the most columns. A first line ``sep=;``, as spreadsheets write it, names it.
"""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.files import AUTO, TextLines
from arbora.datasets.readers.texts.html_text import clean_html
from arbora.datasets.readers.texts.records import (
    EMPTY_LABEL,
    NO_COLUMN,
    Fields,
    Found,
    Reading,
    TextRow,
    read_label,
    read_record,
    unknown_name,
)

SEPARATORS = (",", ";", "\t", "|")
WRONG_CELLS = "the number of cells is not that of the header"
BAD_CSV = "not valid CSV"
_NAMED = re.compile(r"sep=(.)\s*", re.IGNORECASE)

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


def sniff_separator(header: str, wanted: Sequence[str] = ()) -> str:
    """Find the separator of a header line.

    Parameters
    ----------
    header : str
        The first line.
    wanted : sequence of str
        Columns that it should have.

    Returns
    -------
    str
        A comma if the line has no separator.

    Examples
    --------
    >>> sniff_separator("text;label, if known;id", ["text", "id"])
    ';'
    """

    def merit(separator: str) -> tuple[int, int]:
        try:
            cells = _next_record(csv.reader([header], delimiter=separator)) or []
        except csv.Error:
            cells = []
        return sum(name in cells for name in wanted), len(cells)

    return max(SEPARATORS, key=merit)


def delimited_records(
    path: str | Path, how: Reading, wanted: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]] | DataFormatError]:
    """Yield the header and all records, each with the number of its last line, or the error of a record."""
    path = Path(path)
    lines = TextLines(path, how.encoding, how.max_unpacked)
    header = next(lines)
    separator, named = how.separator, _NAMED.fullmatch(header.rstrip("\r\n"))
    if named is not None and separator in (AUTO, named[1]):
        separator, header = named[1], next(lines, "")
    if separator == AUTO:
        separator = sniff_separator(header, wanted)
    reader = csv.reader(chain([header], lines), delimiter=separator, strict=True)
    width = n_records = 0
    while True:
        try:
            cells = _next_record(reader)
        except csv.Error as error:
            yield DataFormatError(path, lines.number, f"{BAD_CSV}: {error}", BAD_CSV)
            continue
        except DataFormatError as error:
            yield error
            continue
        if cells is None:
            break
        if not cells:  # a blank line
            continue
        n_records += 1
        width = width or len(cells)
        if len(cells) != width:
            problem = f"{len(cells)} cells, the header has {width}"
            yield DataFormatError(path, lines.number, problem, WRONG_CELLS)
        else:
            yield lines.number, cells
    if n_records < 2:
        yield DataFormatError(path, None, "the file has no row after its header")


def csv_records(path: str | Path, how: Reading | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and all records, each with the number of its last line; a broken record is an error."""
    for found in delimited_records(path, how or Reading(separator=",")):
        if isinstance(found, DataFormatError):
            raise found
        yield found


def _positions(header: list[str], names: Sequence[str], path: Path) -> list[int]:
    for name in names:
        if name not in header:
            raise DataFormatError(path, 1, unknown_name("column", name, header), f"{NO_COLUMN}: {name!r}")
        if header.count(name) > 1:
            raise DataFormatError(path, 1, f"two columns are called {name!r}", "two columns have one name")
    return [header.index(name) for name in names]


def csv_rows(path: str | Path, fields: Fields, how: Reading) -> Iterator[Found]:
    """Yield the rows of a delimited file one by one, or for each that cannot be read its error.

    A header without the columns that are asked for is raised as an error.
    """
    path = Path(path)
    needed = [*fields.text, *fields.extra, *([] if fields.label is None else [fields.label])]
    records = delimited_records(path, how, [*needed, *fields.optional])
    found = next(records)
    if isinstance(found, DataFormatError):
        raise found
    header = [name.strip() for name in found[1]]
    may_lack = [name for name in fields.optional if name in header and name != fields.label]
    label = fields.label if fields.label in header or fields.label not in fields.optional else None
    wanted = [*fields.text, *fields.extra, *may_lack, *([] if label is None else [label])]
    positions = dict(zip(wanted, _positions(header, wanted, path), strict=True))
    for one in records:
        if isinstance(one, DataFormatError):
            yield one
            continue
        picked = {name: one[1][position] for name, position in positions.items()}
        value: Any = None if label is None else picked[label]
        if value is not None:
            if how.label_separator is None and not value.strip() and label not in fields.optional:
                problem = f"the label column {label!r} is empty: add a label, or remove the row"
                yield DataFormatError(path, one[0], problem, EMPTY_LABEL)
                continue
            value = read_label(value, how.label_separator, may_lack=True)
        text = clean_html("\n".join(picked[name] for name in fields.text), how.html)
        extra = {name: picked[name] for name in (*fields.extra, *may_lack)}
        yield TextRow(text, value, extra, path, one[0])


# --- Records of Parquet files, through pandas ---------------------------------------------------------------


def parquet_rows(path: str | Path, fields: Fields, how: Reading) -> Iterator[Found]:
    """Yield the rows of a Parquet file, or for each that cannot be read its error."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        pandas = import_module("pandas")
        frame = pandas.read_parquet(path)
    except ImportError as error:
        raise ImportError(
            f"{path}: Parquet files need pandas and pyarrow: pip install pandas pyarrow, or save the file as CSV"
        ) from error
    except Exception as error:  # each engine has its own errors
        problem = str(error).partition("\n")[0][:200]
        raise DataFormatError(
            path, None, f"cannot be read as Parquet: {problem}", "the file is damaged"
        ) from error
    columns = [str(name) for name in frame.columns]
    needed = [*fields.text, *fields.extra, *([] if fields.label is None else [fields.label])]
    for name in needed:
        if name not in columns and name not in fields.optional:
            raise DataFormatError(path, None, unknown_name("column", name, columns), f"{NO_COLUMN}: {name!r}")
    wanted = {name for name in (*needed, *fields.optional) if name in columns}
    frame.columns = columns
    values = [[_plain(value) for value in frame[name].tolist()] for name in sorted(wanted)]
    if not len(frame):
        raise DataFormatError(path, None, "the file has no record")
    for number, cells in enumerate(zip(*values, strict=True), start=1):
        record = dict(zip(sorted(wanted), cells, strict=True))
        try:
            yield read_record(record, fields, how, path, None, number)
        except DataFormatError as error:
            yield error


def _plain(value: Any) -> Any:
    """Missing values are None, arrays are lists, dates are strings."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if hasattr(value, "isoformat"):
        return None if value != value else value.isoformat()  # NaT is not equal to itself
    return None if isinstance(value, float) and value != value else value
