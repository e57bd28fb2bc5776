"""Columns of strings to numbers: numeric columns with missing values, nominal columns as indicators."""

from collections.abc import Sequence

import numpy as np

from arbora.datasets.base import did_you_mean


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


def number_column(cells: Sequence[str], missing: str, largest: float = np.inf) -> np.ndarray:
    """Parse ``cells`` to a column of shape (n_rows, 1); cells equal to ``missing`` become NaN."""
    values = np.array([np.nan if cell == missing else _number(cell) for cell in cells])
    for row in np.flatnonzero(~(np.isfinite(values) & (np.abs(values) <= largest))).tolist():
        if cells[row] != missing:
            problem = "too large a number" if np.isfinite(values[row]) else "not a finite number"
            raise ColumnError(row, f"{cells[row][:60]!r} is {problem}")
    return values[:, None]


def indicator_columns(cells: Sequence[str], values: Sequence[str], missing: str) -> np.ndarray:
    """One 0/1 column for each of ``values``; a cell equal to ``missing`` gives a zero row."""
    position = {value: column for column, value in enumerate(values)}
    position.setdefault(missing, len(values))
    codes = np.array([position.get(cell, -1) for cell in cells])
    unknown = np.flatnonzero(codes < 0)
    if unknown.size:
        row = int(unknown[0])
        raise ColumnError(row, f"{cells[row]!r} is not one of its values{did_you_mean(cells[row], values)}")
    return np.asarray(codes[:, None] == np.arange(len(values)), dtype=np.float64)
