"""Labels of one or several auxiliary variables as codes, and tables of counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.arrays import Ints, Matrix
from arbora.expand.groups import Groups, read_groups


class Labels(NamedTuple):
    """Codes (n_rows, n_variables); those of a variable start at its offset, -1 is a missing label."""

    codes: NDArray[np.int32]
    classes: list[Matrix]  # of each variable

    @property
    def n_classes(self) -> int:
        """Classes of all variables together."""
        return sum(map(len, self.classes))

    @property
    def offsets(self) -> Ints:
        """First code of each variable, and the end of the last one."""
        return np.concatenate([[0], np.cumsum([len(names) for names in self.classes])]).astype(np.int64)

    @property
    def variable(self) -> Ints:
        """Variable of each code."""
        return np.repeat(np.arange(len(self.classes)), [len(names) for names in self.classes])

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Rows with at least one label."""
        return np.asarray((self.codes >= 0).any(axis=1))

    def take(self, rows: Any) -> Labels:
        """Labels of some rows."""
        return self._replace(codes=np.ascontiguousarray(self.codes[rows]))

    def strata(self) -> Ints:
        """Group of each row by which folds are made: its first label."""
        return np.asarray(self.codes[:, 0], np.int64)


def read_labels(y: Any, n_rows: int, name: str) -> Labels:
    """Read one label per row, or one for each of several variables; -1, None and NaN mark missing ones.

    `name` is that of the estimator, for errors.

    Examples
    --------
    >>> read_labels([["a", "x"], ["b", None], ["a", "y"]], 3, "model").codes
    array([[ 0,  2],
           [ 1, -1],
           [ 0,  3]], dtype=int32)
    """
    columns = columns_of(y, n_rows)
    read = [_read(column, n_rows, number, len(columns), name) for number, column in enumerate(columns)]
    start = np.concatenate([[0], np.cumsum([groups.n_groups for groups in read])[:-1]]).astype(np.int64)
    codes = [
        np.where(groups.codes >= 0, groups.codes + first, -1)
        for groups, first in zip(read, start, strict=True)
    ]
    return Labels(
        np.ascontiguousarray(np.stack(codes, axis=1), np.int32), [groups.classes for groups in read]
    )


def columns_of(y: Any, n_rows: int) -> list[Any]:
    """Columns of y: one for a vector, several for a matrix or data frame."""
    if hasattr(y, "tocsr"):
        raise ValueError(
            "y is a sparse matrix: give an array with one label per row, or a column per variable."
        )
    if isinstance(y, list | tuple):
        rows = np.empty(len(y), object)
        rows[:] = y
        lengths = {len(row) for row in y if isinstance(row, list | tuple | np.ndarray)}
        nested = len(lengths) == 1 and all(isinstance(row, list | tuple | np.ndarray) for row in y)
        y = np.array([list(row) for row in y], object) if nested else rows
    shape = np.shape(y)
    if len(shape) != 2 or shape[1] == 1:
        return [_plain(y)]
    if shape[0] != n_rows:
        raise ValueError(f"y has {shape[0]} rows for {n_rows} rows of X: give one per row.")
    if hasattr(y, "iloc"):
        return [_plain(y.iloc[:, column]) for column in range(shape[1])]
    return [_plain(np.asarray(y)[:, column]) for column in range(shape[1])]


def _plain(column: Any) -> Any:
    column = np.asarray(column)
    if column.dtype == object and column.ndim == 1:
        numbers = np.asarray(column.tolist(), None if len(column) else object)
        column = numbers if numbers.dtype.kind in "biuf" else column
    if column.dtype == object:
        return column.tolist() if column.ndim == 1 else column
    return column.astype(np.int64) if column.dtype == bool else column


def _read(column: Any, n_rows: int, number: int, n_columns: int, name: str) -> Groups:
    where = "y" if n_columns == 1 else f"column {number} of y"
    groups = read_groups(column, n_rows, require=False)
    if not groups.n_groups:
        raise ValueError(
            f"{where} has no label (-1, None and NaN mark rows without one): {name} needs at least two classes. To "
            "cluster without labels use scikit-learn's KMeans."
        )
    if groups.n_groups < 2:
        missing = int((groups.codes < 0).sum())
        hint = f" {missing} rows have no label (-1, None or NaN)." if missing else ""
        raise ValueError(
            f"{where} has only one class ({groups.classes.tolist()[0]!r}), so that clusters cannot explain it: "
            f"{name} needs at least two classes.{hint} To cluster without labels use scikit-learn's KMeans."
        )
    return groups


def code_labels(y: Any, n_rows: int, known: list[Matrix]) -> tuple[Labels, list[Matrix]]:
    """Code labels by known classes; unseen ones become further classes, which are returned for each variable."""
    columns = columns_of(y, n_rows)
    if len(columns) != len(known):
        raise ValueError(f"y has {len(columns)} columns, but the model was fitted to {len(known)}.")
    codes, classes, unseen, start = [], [], [], 0
    for column, names in zip(columns, known, strict=True):
        groups = read_groups(column, n_rows, require=False)
        place = {name: code for code, name in enumerate(names.tolist())}
        fresh = [name for name in groups.classes.tolist() if name not in place]
        place |= {name: len(place) + extra for extra, name in enumerate(fresh)}
        code_of = np.array([start + place[name] for name in groups.classes.tolist()], np.int64)
        if len(code_of):
            codes.append(np.where(groups.codes >= 0, code_of[np.maximum(groups.codes, 0)], -1))
        else:
            codes.append(groups.codes)
        unseen.append(np.array(fresh))
        classes.append(np.concatenate([names, unseen[-1]]) if fresh else names)
        start += len(place)
    if all((column_codes < 0).all() for column_codes in codes):
        raise ValueError(
            "y has no label (-1, None and NaN mark rows without one): give labels to compare with."
        )
    return Labels(np.ascontiguousarray(np.stack(codes, axis=1), np.int32), classes), unseen
