"""Records with a text and a label: JSON (JSONL, an array, an object with an array), CSV, TSV and Parquet.

The readers yield one record at a time, or, for a record that cannot be read, its error.
"""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from arbora.datasets.base import DataFormatError, did_you_mean, name_array
from arbora.datasets.readers.files import (
    AUTO,
    BINARY,
    MAX_UNPACKED,
    TextLines,
    binary_kind,
    decode,
    open_bytes,
)
from arbora.datasets.readers.html_text import AS_IS, clean_html
from arbora.datasets.readers.skipped import is_readable

# --- One record: the fields to read, how to read them, and its check ----------------------------------------

NO_TEXT = "the text is not a string"
NO_FIELD = "a field is missing"
NO_COLUMN = "a column is missing"
EMPTY_LABEL = "the label is empty"
BAD_LABEL = "the label is not a name"


class Fields(NamedTuple):
    """Names of the fields to read: text, label (``None``: no label), further fields, fields that may be absent."""

    text: tuple[str, ...] = ("text",)
    label: str | None = "label"
    extra: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class Reading(NamedTuple):
    """How files are read; "auto" is found from the content."""

    encoding: str = AUTO
    separator: str = AUTO  # of the cells of delimited files; "auto": found from the header
    label_separator: str | None = None  # of several labels in one string; None: a string is one label
    html: str = AS_IS  # which texts are stripped of HTML, see `clean_html`
    # largest size of a compressed file when unpacked, in bytes; None: no limit
    max_unpacked: int | None = MAX_UNPACKED


class TextRow(NamedTuple):
    """One text, its label (a name, a list of names, or ``None``), further fields, its file, line and number.

    The number is that of the record in a file where lines do not count the records, else ``None``.
    """

    text: str
    label: Any
    extra: dict[str, Any]
    path: Path
    line: int | None
    number: int | None = None


RowOrError = TextRow | DataFormatError  # a record, or why it cannot be read


def as_fields(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (text,) if isinstance(text, str) else tuple(text)


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """Write that a field or column does not exist, with the names of those that do, and what to do.

    >>> unknown_name("column", "text", ["title", "body"])
    "no column 'text'; there are 'title', 'body': give the name of yours, --text NAME (text='NAME')"
    """
    names = list(names)
    near = did_you_mean(name, names)
    mine = not near and name in ("text", "label")
    advice = f": give the name of yours, --{name} NAME ({name}='NAME')" if mine else ""
    return f"no {kind} {name!r}{near}; there are {', '.join(map(repr, names[:20]))}{advice}"


class RecordError(ValueError):
    """A record cannot be used: the problem, and its reason without names and numbers."""

    def __init__(self, problem: str, reason: str) -> None:
        self.problem, self.reason = problem, reason
        super().__init__(problem)


def read_record(
    record: Mapping[str, Any],
    fields: Fields,
    how: Reading,
    path: Path,
    line: int | None,
    number: int | None = None,
) -> TextRow:
    """Make a row of a record: a mapping of field names to values.

    A missing text is an error. Where the text has several fields, those that are null are left out.
    """
    try:
        text = _text(record, fields, how)
        label = None
        if fields.label is not None and (fields.label in record or fields.label not in fields.optional):
            may_lack = fields.label in fields.optional
            label = read_label(_get(record, fields.label), how.label_separator, may_lack)
        extra = {name: _get(record, name) for name in fields.extra}
    except RecordError as error:
        where = "" if number is None else f"record {number}: "
        raise DataFormatError(path, line, f"{where}{error.problem}", error.reason) from None
    extra |= {name: record[name] for name in fields.optional if name in record and name != fields.label}
    return TextRow(text, label, extra, path, line, number)


def _get(record: Mapping[str, Any], name: str) -> Any:
    try:
        return record[name]
    except KeyError:
        raise RecordError(unknown_name("field", name, map(str, record)), f"{NO_FIELD}: {name!r}") from None


def _text(record: Mapping[str, Any], fields: Fields, how: Reading) -> str:
    parts = [(name, _get(record, name)) for name in fields.text]
    present = [(name, part) for name, part in parts if part is not None]
    for name, part in present or parts:
        if not isinstance(part, str):
            value = "null" if part is None else type(part).__name__
            raise RecordError(f"the text field {name!r} must be a string, got {value}", NO_TEXT)
    text = "\n".join(part for _, part in present)
    if not text.isascii():  # half of a pair of surrogates cannot be written to a file
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return clean_html(text, how.html)


def read_label(value: Any, separator: str | None = None, may_lack: bool = False) -> Any:
    """Check a label: a name, a list of names, or None; whole numbers become strings.

    >>> read_label("a; b", ";"), read_label(7), read_label(["x", 2])
    (['a', 'b'], '7', ['x', '2'])
    """
    if isinstance(value, str) and separator is not None:
        return [name.strip() for name in value.split(separator) if name.strip()]
    if isinstance(value, str) and not value.strip():
        if may_lack:
            return None
        raise RecordError("a label is empty: write null (or an empty list) for no label", EMPTY_LABEL)
    if isinstance(value, list):
        if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in value):
            raise RecordError(f"a label must be a string or a whole number, got {str(value)[:60]}", BAD_LABEL)
        if any(isinstance(item, str) and not item.strip() for item in value):
            raise RecordError("a label is empty: write an empty list for no label", EMPTY_LABEL)
        return [str(item) for item in value]
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise RecordError(f"a label must be a string, a whole number or a list, got {str(value)[:60]}", BAD_LABEL)


def join_labels(labels: list[Any]) -> Any:
    """Object array if every row has at most one name, given as a string; otherwise a list of lists."""
    if any(isinstance(label, list) for label in labels):
        return [label if isinstance(label, list) else [] if label is None else [label] for label in labels]
    return name_array(labels)


# --- Records of JSON: one object per line (JSONL), an array of objects, or an object that holds one array ---
#
# JSONL is read line by line, in constant memory. A JSON array is read into memory as text and parsed one record at a
# time. After a syntax error inside an array nothing tells where the next record begins: the rest is skipped.


BAD_JSON = "not valid JSON"
NO_OBJECT = "not a JSON object"
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def _parse(text: str, path: Path, line: int, start: int = 0) -> tuple[Any, int]:
    """Parse the JSON value at a position; return it with the position after it."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} of the file"
        raise DataFormatError(path, line, f"{BAD_JSON}: {error.msg}, {place}", BAD_JSON) from error
    except RecursionError as error:
        raise DataFormatError(path, line, "the JSON is nested too deeply", BAD_JSON) from error
    except ValueError as error:  # a number with too many digits
        raise DataFormatError(path, line, f"{BAD_JSON}: {error}", BAD_JSON) from error
    return value, end


def jsonl_row(
    line: str, path: Path, number: int, fields: Fields, how: Reading | None = None
) -> TextRow | None:
    """Read one line of JSONL; None for a blank one."""
    line = line.strip()
    if not line:
        return None
    record, end = _parse(line, path, number)
    if end < len(line):
        problem = f"{BAD_JSON}: Extra data, column {end + 1}"
        raise DataFormatError(path, number, problem, BAD_JSON)
    if not isinstance(record, dict):
        raise DataFormatError(path, number, f"expected a JSON object, got {line[:60]!r}", NO_OBJECT)
    return read_record(record, fields, how or Reading(), path, number)


def jsonl_lines(lines: Iterable[Any], path: Path, fields: Fields, how: Reading) -> Iterator[RowOrError]:
    """Read lines of JSONL, given with their numbers; a line that is an error is returned as it is."""
    for number, line in lines:
        try:
            record = line if isinstance(line, DataFormatError) else jsonl_row(line, path, number, fields, how)
        except DataFormatError as error:
            record = error
        if record is not None:
            yield record


def numbered_lines(lines: TextLines) -> Iterator[tuple[int, str | DataFormatError]]:
    """Yield the lines of a file with their numbers; a line that cannot be decoded is given as its error."""
    while True:
        try:
            line: str | DataFormatError = next(lines)
        except StopIteration:
            return
        except DataFormatError as error:
            line = error
        yield lines.number, line


def jsonl_records(path: str | Path, fields: Fields, how: Reading) -> Iterator[RowOrError]:
    """Yield the records of a JSONL file, or for each that cannot be read its error."""
    lines = TextLines(path, how.encoding, how.max_unpacked)
    yield from jsonl_lines(numbered_lines(lines), Path(path), fields, how)


def json_records(path: str | Path, fields: Fields, how: Reading) -> Iterator[RowOrError]:
    """Yield the records of a JSON file: an array, an object with one array, one record, or lines of JSON."""
    path = Path(path)
    if _is_jsonl(path, how):
        yield from jsonl_records(path, fields, how)
        return
    with open_bytes(path, how.max_unpacked) as file:
        data = file.read()
    kind = binary_kind(data[:1024], controls=False)
    if kind is not None:
        raise DataFormatError(path, None, f"is {kind}, not JSON", BINARY)
    text = decode(data, how.encoding, path, None).removeprefix("\ufeff")
    start = _skip_space(text, 0)
    if start == len(text):
        raise DataFormatError(path, None, "the file is empty")
    if text[start] == "[":
        yield from _array(text, start, path, fields, how)
        return
    value, _ = _parse(text, path, 1, start)
    if not isinstance(value, dict):
        raise DataFormatError(path, 1, "expected an array of JSON objects, or one object", NO_OBJECT)
    lists = [name for name, entry in value.items() if isinstance(entry, list) and any(map(_is_record, entry))]
    if all(name in value for name in fields.text) or not lists:
        yield _checked(value, fields, how, path, None, None)
        return
    if len(lists) > 1:
        names = ", ".join(map(repr, lists))
        raise DataFormatError(path, None, f"the object has several arrays of records, {names}: keep one")
    for number, record in enumerate(value[lists[0]], start=1):
        yield _checked(record, fields, how, path, None, number)


def _is_record(value: Any) -> bool:
    return isinstance(value, dict)


def _is_jsonl(path: Path, how: Reading) -> bool:
    """Whether the first line that is not blank is a complete object, and another line follows."""
    lines = (line for _, line in numbered_lines(TextLines(path, how.encoding, how.max_unpacked)))
    first = next((line for line in lines if isinstance(line, DataFormatError) or line.strip()), "")
    if isinstance(first, DataFormatError) or not first.lstrip().startswith("{"):
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return any(isinstance(line, DataFormatError) or line.strip() for line in lines)


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return start if match is None else match.end()


def _array(text: str, start: int, path: Path, fields: Fields, how: Reading) -> Iterator[RowOrError]:
    """Yield the records of an array that begins at a position; one is parsed at a time."""
    number = line = 1
    counted, place = 0, _skip_space(text, start + 1)
    while place < len(text) and text[place] != "]":
        line += text.count("\n", counted, place)
        counted = place
        try:
            record, place = _parse(text, path, line, place)
        except DataFormatError as error:
            yield _rest_skipped(error, number)
            return
        yield _checked(record, fields, how, path, line, number)
        number, place = number + 1, _skip_space(text, place)
        if place < len(text) and text[place] == ",":
            place = _skip_space(text, place + 1)
        elif place < len(text) and text[place] != "]":
            yield _rest_skipped(DataFormatError(path, line, f"{BAD_JSON}: ',' expected", BAD_JSON), number)
            return
    if place >= len(text):
        yield DataFormatError(path, None, "the JSON array is cut short: it has no end", BAD_JSON)


def _rest_skipped(error: DataFormatError, number: int) -> DataFormatError:
    problem = f"record {number}: {error.problem}; the rest of the file cannot be read"
    return DataFormatError(error.path, error.line, problem, f"{BAD_JSON}: the rest of the file is not read")


def _checked(
    record: Any, fields: Fields, how: Reading, path: Path, line: int | None, number: int | None
) -> RowOrError:
    if not isinstance(record, dict):
        return DataFormatError(path, line, f"record {number} is not a JSON object", NO_OBJECT)
    try:
        return read_record(record, fields, how, path, line, 1 if number is None else number)
    except DataFormatError as error:
        return error


# --- Records of delimited files (CSV, TSV) with a header line -----------------------------------------------
#
# The separator is the one of comma, semicolon, tab and bar with which the header has the columns that are asked for;
# among several, the one that gives the most columns. A first line ``sep=;``, as spreadsheets write it, names it.


SEPARATORS = (",", ";", "\t", "|")
WRONG_CELLS = "the number of cells is not that of the header"
BAD_CSV = "not valid CSV"
_NAMED = re.compile(r"sep=(.)\s*", re.IGNORECASE)

# The csv module has one limit on the length of a field for the whole process, 128 kB by default.
_MAX_FIELD = 2**31 - 1
_LIMIT_LOCK = threading.RLock()


def _next_record(reader: Iterator[list[str]]) -> list[str] | None:
    """Next record of a ``csv.reader`` with fields of any length; ``None`` at the end of the file.

    The limit is raised for this one record and restored before the record is handed out. Readers that run at
    the same time, in turns or in threads, therefore cannot leave a raised limit behind.
    """
    with _LIMIT_LOCK:
        before = csv.field_size_limit(_MAX_FIELD)
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(before)


def sniff_separator(header: str, wanted: Sequence[str] = ()) -> str:
    """Find the separator of a header line that should have the columns `wanted`; a comma if it has no separator.

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
    records = delimited_records(path, how or Reading(separator=","))
    return (record for record in records if is_readable(record, None))


def _positions(header: list[str], names: Sequence[str], path: Path) -> list[int]:
    for name in names:
        if name not in header:
            raise DataFormatError(path, 1, unknown_name("column", name, header), f"{NO_COLUMN}: {name!r}")
        if header.count(name) > 1:
            raise DataFormatError(path, 1, f"two columns are called {name!r}", "two columns have one name")
    return [header.index(name) for name in names]


def csv_rows(path: str | Path, fields: Fields, how: Reading) -> Iterator[RowOrError]:
    """Yield the rows of a delimited file one by one, or for each that cannot be read its error.

    A header without the columns that are asked for is raised as an error.
    """
    path = Path(path)
    needed = [*fields.text, *fields.extra, *([] if fields.label is None else [fields.label])]
    records = delimited_records(path, how, [*needed, *fields.optional])
    first = next(records)
    if isinstance(first, DataFormatError):
        raise first
    header = [name.strip() for name in first[1]]
    may_lack = [name for name in fields.optional if name in header and name != fields.label]
    label = fields.label if fields.label in header or fields.label not in fields.optional else None
    wanted = [*fields.text, *fields.extra, *may_lack, *([] if label is None else [label])]
    positions = dict(zip(wanted, _positions(header, wanted, path), strict=True))
    for record in records:
        if isinstance(record, DataFormatError):
            yield record
            continue
        picked = {name: record[1][position] for name, position in positions.items()}
        value: Any = None if label is None else picked[label]
        if value is not None:
            if how.label_separator is None and not value.strip() and label not in fields.optional:
                problem = f"the label column {label!r} is empty: add a label, or remove the row"
                yield DataFormatError(path, record[0], problem, EMPTY_LABEL)
                continue
            value = read_label(value, how.label_separator, may_lack=True)
        text = clean_html("\n".join(picked[name] for name in fields.text), how.html)
        extra = {name: picked[name] for name in (*fields.extra, *may_lack)}
        yield TextRow(text, value, extra, path, record[0])


# --- Records of Parquet files, through pandas ---------------------------------------------------------------


def parquet_rows(path: str | Path, fields: Fields, how: Reading) -> Iterator[RowOrError]:
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
