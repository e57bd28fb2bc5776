"""`SkippedRecords`: what a reader could not read, by reason, with the first place of each."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard, TypeVar

from arbora.datasets.base import DataFormatError

Record = TypeVar("Record")

_MAX_LINES = 20  # of the printed list
_MAX_LENGTH = 240  # characters of a place and its problem


class SkippedReason(NamedTuple):
    """How many records were skipped for a reason, and the error of the first."""

    n_records: int
    first: DataFormatError


class SkippedRecords:
    r"""Records that were skipped: the number of each reason, and the first place.

    Pass an empty one to a reader, which then skips what it cannot read instead of raising an error.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from arbora.datasets import SkippedRecords, read_jsonl
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.jsonl")
    >>> _ = path.write_text('{"text": "a cat", "label": "pet"}\n{"text": null, "label": "pet"}\n')
    >>> skipped = SkippedRecords()
    >>> read_jsonl(path, skipped=skipped).texts
    ['a cat']
    >>> len(skipped), list(skipped.reasons)
    (1, ['the text is not a string'])
    >>> skipped.reasons['the text is not a string'].first.line
    2
    """

    def __init__(self) -> None:
        self.reasons: dict[str, SkippedReason] = {}

    def add(self, error: DataFormatError, count: int = 1) -> None:
        """Count a record that cannot be read."""
        n_before, first = self.reasons.get(error.reason, (0, error))
        self.reasons[error.reason] = SkippedReason(n_before + count, first)

    def update(self, other: SkippedRecords) -> None:
        """Count what another reader has skipped."""
        for reason in other.reasons.values():
            self.add(reason.first, reason.n_records)

    @property
    def first(self) -> DataFormatError | None:
        """Error of the first record that was skipped."""
        return next((reason.first for reason in self.reasons.values()), None)

    def __len__(self) -> int:
        return sum(reason.n_records for reason in self.reasons.values())

    def __str__(self) -> str:
        lines = []
        for reason, count, first in self.rows():
            place = first.removesuffix(f": {reason}")  # the reason is not said twice
            place = place if len(place) <= _MAX_LENGTH else f"{place[:_MAX_LENGTH]}..."
            lines.append(f"{count:,} x {reason} (first: {place})")
        n_left = len(lines) - _MAX_LINES
        return "\n".join([*lines[:_MAX_LINES], *([f"... and {n_left:,} more reasons"] if n_left > 0 else [])])

    def __repr__(self) -> str:
        return f"SkippedRecords({', '.join(f'{reason}: {count}' for reason, count, _ in self.rows())})"

    def rows(self) -> list[tuple[str, int, str]]:
        """Reason, number and first error, the most frequent reason first."""
        ranked = sorted(self.reasons.items(), key=lambda item: -item[1].n_records)
        return [(reason, n_records, str(first)) for reason, (n_records, first) in ranked]

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the reasons as values for JSON."""
        return [{"reason": reason, "count": count, "first": first} for reason, count, first in self.rows()]


def is_readable(record: Record | DataFormatError, skipped: SkippedRecords | None) -> TypeGuard[Record]:
    """Return whether a record is no error; an error is counted, or raised without `skipped`."""
    if not isinstance(record, DataFormatError):
        return True
    if skipped is None:
        raise record
    skipped.add(record)
    return False


class SkippedWarning(UserWarning):
    """Records were skipped; `skipped` says which."""

    def __init__(self, skipped: SkippedRecords, n_read: int, name: str) -> None:
        self.skipped = skipped
        head = f"skipped {len(skipped):,} of {len(skipped) + n_read:,} records of {name}:"
        super().__init__("\n".join([head, *(f"  {line}" for line in str(skipped).splitlines())]))
