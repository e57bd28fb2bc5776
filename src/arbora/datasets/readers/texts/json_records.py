"""Records of JSON: one object per line (JSONL), an array of objects, or an object that holds one array.

JSONL is read line by line, in constant memory. A JSON array is read into memory as text and parsed one record at a
time. After a syntax error inside an array nothing tells where the next record begins: the rest is skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.files import BINARY, TextLines, binary_kind, decode, open_bytes
from arbora.datasets.readers.texts.records import Fields, Found, Reading, TextRow, read_record

BAD_JSON = "not valid JSON"
NO_OBJECT = "not a JSON object"
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def _parse(text: str, path: Path, line: int, start: int = 0) -> tuple[Any, int]:
    """Parse the JSON value at a position; return it with the position after it."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        at = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} of the file"
        raise DataFormatError(path, line, f"{BAD_JSON}: {error.msg}, {at}", BAD_JSON) from error
    except RecursionError as error:
        raise DataFormatError(path, line, "the JSON is nested too deeply", BAD_JSON) from error
    except ValueError as error:  # a number with too many digits
        raise DataFormatError(path, line, f"{BAD_JSON}: {error}", BAD_JSON) from error
    return value, end


def jsonl_row(
    line: str, path: Path, number: int, fields: Fields, how: Reading | None = None
) -> TextRow | None:
    """Read one line of JSONL; ``None`` for a blank one.

    Examples
    --------
    >>> jsonl_row('{"text": "a cat", "label": "animal"}', Path("x.jsonl"), 1, Fields())[:2]
    ('a cat', 'animal')
    """
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


def jsonl_lines(lines: Iterable[Any], path: Path, fields: Fields, how: Reading) -> Iterator[Found]:
    """Read lines of JSONL, given with their numbers; a line that is an error is returned as it is."""
    for number, line in lines:
        try:
            found = line if isinstance(line, DataFormatError) else jsonl_row(line, path, number, fields, how)
        except DataFormatError as error:
            found = error
        if found is not None:
            yield found


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


def jsonl_records(path: str | Path, fields: Fields, how: Reading) -> Iterator[Found]:
    """Yield the records of a JSONL file, or for each that cannot be read its error."""
    lines = TextLines(path, how.encoding, how.max_unpacked)
    yield from jsonl_lines(numbered_lines(lines), Path(path), fields, how)


def json_records(path: str | Path, fields: Fields, how: Reading) -> Iterator[Found]:
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
    lists = [name for name, one in value.items() if isinstance(one, list) and any(map(_is_record, one))]
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
    found = _SPACE.match(text, start)
    return start if found is None else found.end()


def _array(text: str, start: int, path: Path, fields: Fields, how: Reading) -> Iterator[Found]:
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
) -> Found:
    if not isinstance(record, dict):
        return DataFormatError(path, line, f"record {number} is not a JSON object", NO_OBJECT)
    try:
        return read_record(record, fields, how, path, line, 1 if number is None else number)
    except DataFormatError as error:
        return error
