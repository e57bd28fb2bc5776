"""One text with its label: the fields to read, how to read them, and the check of a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arbora.datasets.base import DataFormatError, did_you_mean, name_array
from arbora.datasets.readers.files import AUTO, MAX_UNPACKED
from arbora.datasets.readers.texts.html_text import AS_IS, clean_html

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
    """How files are read.

    Attributes
    ----------
    encoding : str
        Encoding of the text; "auto": found from the content.
    separator : str
        Separator of the cells of delimited files; "auto": found from the header.
    label_separator : str or None
        Separator of several labels in one string; None: a string is one label.
    html : {"auto", "strip", "keep"}
        Which texts are stripped of HTML, see `clean_html`.
    max_unpacked : int or None
        Largest size of a compressed file when unpacked, in bytes; None: no limit.
    """

    encoding: str = AUTO
    separator: str = AUTO
    label_separator: str | None = None
    html: str = AS_IS
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


Found = TextRow | DataFormatError  # a record, or why it cannot be read


def as_fields(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (text,) if isinstance(text, str) else tuple(text)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Write that a field or column does not exist, with the names of those that do, and what to do.

    Examples
    --------
    >>> unknown_name("column", "text", ["title", "body"])
    "no column 'text'; there are 'title', 'body': give the name of yours, --text NAME (text='NAME')"
    """
    known = list(known)
    near = did_you_mean(name, known)
    mine = not near and name in ("text", "label")
    advice = f": give the name of yours, --{name} NAME ({name}='NAME')" if mine else ""
    return f"no {kind} {name!r}{near}; there are {', '.join(map(repr, known[:20]))}{advice}"


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

    Examples
    --------
    >>> read_record({"text": "a cat", "label": 3}, Fields(), Reading(), Path("x.jsonl"), 1)[:2]
    ('a cat', '3')
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
    given = [(name, part) for name, part in parts if part is not None]
    for name, part in given or parts:
        if not isinstance(part, str):
            value = "null" if part is None else type(part).__name__
            raise RecordError(f"the text field {name!r} must be a string, got {value}", NO_TEXT)
    text = "\n".join(part for _, part in given)
    if not text.isascii():  # half of a pair of surrogates cannot be written to a file
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return clean_html(text, how.html)


def read_label(value: Any, separator: str | None = None, may_lack: bool = False) -> Any:
    """Check a label: a name, a list of names, or ``None``; whole numbers become strings.

    Examples
    --------
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
