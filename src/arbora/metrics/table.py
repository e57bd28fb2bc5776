"""A small immutable table, the return type of every report of measures.

``column`` and ``to_dict`` return numbers. ``str`` and ``to_markdown`` format them as in the literature: F1 in per
cent with two decimals, gains in parentheses, a mark after a significant result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from arbora.metrics.labels import suggest

_NAMED_FORMATS = {
    "percent": lambda value: f"{100 * value:.2f}",
    "gain": lambda value: f"({100 * value:+.2f}%)",
}


class Marked(float):
    """A float that prints with a mark of significance after it."""

    __slots__ = ("mark",)
    mark: str

    def __new__(cls, value: float, mark: str = "") -> Marked:  # noqa: D102
        number = super().__new__(cls, value)
        number.mark = mark
        return number

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]  # float declares one argument
        return float(self), self.mark


def improvement(value: float, baseline: float) -> float:
    """Relative gain of ``value`` over ``baseline``; NaN if the baseline is zero."""
    return (value - baseline) / baseline if baseline else math.nan


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns, rows of values and a print format for each column.

    Parameters
    ----------
    columns : tuple of str
        Distinct column names.
    rows : tuple of tuples
        One value per column in each row.
    formats : tuple of str, default=()
        Format of each column: ``"percent"`` (0.7143 as 71.43), ``"gain"`` (0.015 as (+1.50%)), any Python
        format specification (``".3f"``, ``",d"``), or ``""`` for ``str``. By default ``""`` for all columns.
    title, note : str, default=""
        Lines printed above and below the table.

    Examples
    --------
    >>> table = Table(("Level", "Macro-F1"), ((1, 1.0), (2, 0.7143)), ("d", "percent"))
    >>> print(table)
    Level  Macro-F1
    -----  --------
        1    100.00
        2     71.43
    >>> table.column("Macro-F1")
    (1.0, 0.7143)
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    formats: tuple[str, ...] = ()
    title: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        # Accept lists and store tuples, so that a table can be shared without a copy.
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "rows", tuple(map(tuple, self.rows)))
        object.__setattr__(self, "formats", tuple(self.formats) or ("",) * len(self.columns))
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"column names must be distinct, got {self.columns}")
        if len(self.formats) != len(self.columns):
            raise ValueError(f"{len(self.columns)} columns but {len(self.formats)} formats")
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} has {len(row)} values for {len(self.columns)} columns")

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def column(self, name: str) -> tuple[Any, ...]:
        """Values of one column, from top to bottom."""
        if name not in self.columns:
            raise KeyError(f"no column {name!r}{suggest(name, self.columns)}; columns are {self.columns}")
        place = self.columns.index(name)
        return tuple(row[place] for row in self.rows)

    def to_dict(self) -> dict[str, list[Any]]:
        """Map column names to lists of values, as ``pandas.DataFrame`` accepts.

        Examples
        --------
        >>> Table(("name", "value"), (("a", 1), ("b", 2))).to_dict()
        {'name': ['a', 'b'], 'value': [1, 2]}
        """
        return {name: list(self.column(name)) for name in self.columns}

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame``; pandas must be installed.

        Examples
        --------
        >>> Table(("name", "value"), (("a", 1), ("b", 2))).to_frame().shape
        (2, 2)
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise ImportError("data frames need pandas: pip install pandas, or use to_dict()") from error
        return pandas.DataFrame(self.to_dict())

    def to_markdown(self) -> str:
        """Format the table in GitHub's Markdown, with aligned cells.

        Examples
        --------
        >>> print(Table(("name", "value"), (("a", 0.5),), ("", "percent")).to_markdown())
        | name | value |
        | :--- | ----: |
        | a    | 50.00 |
        """
        cells = [[cell.replace("|", r"\|") for cell in line] for line in self._cells()]
        sides = self._sides()
        widths = [max(4, *map(len, column)) for column in zip(*cells, strict=True)]
        rule = [
            ":" + "-" * (width - 1) if side == "<" else "-" * (width - 1) + ":"
            for side, width in zip(sides, widths, strict=True)
        ]
        lines = [[f"{cell:{s}{w}}" for cell, s, w in zip(line, sides, widths, strict=True)] for line in cells]
        body = "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])
        return "\n\n".join(filter(None, (self.title and f"**{self.title}**", body, self.note)))

    def __str__(self) -> str:
        cells, sides = self._cells(), self._sides()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [[f"{cell:{s}{w}}" for cell, s, w in zip(line, sides, widths, strict=True)] for line in cells]
        lines.insert(1, ["-" * width for width in widths])
        body = "\n".join("  ".join(line).rstrip() for line in lines)
        return "\n".join(filter(None, (self.title, body, self.note)))

    def _cells(self) -> list[list[str]]:
        body = [list(map(_print_cell, row, self.formats)) for row in self.rows]
        # A mark follows its number; pad the cells without a mark so that the numbers stay aligned.
        for place in range(len(self.columns)):
            room = max((len(getattr(row[place], "mark", "")) for row in self.rows), default=0)
            for line, row in zip(body, self.rows, strict=True):
                line[place] += " " * (room - len(getattr(row[place], "mark", ""))) if room else ""
        return [list(self.columns), *body]

    def _sides(self) -> list[Literal["<", ">"]]:
        return [
            "<" if any(isinstance(value, str) for value in values) else ">"
            for values in (self.column(name) for name in self.columns)
        ]


def _print_cell(value: Any, form: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, str):
        return value
    text = _NAMED_FORMATS[form](value) if form in _NAMED_FORMATS else format(value, form)
    return text + getattr(value, "mark", "")
