"""Partial labels: the group of each row, with -1, None or NaN where it is not known."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._missing import is_scalar_nan

from arbora.arrays import Ints, Matrix
from arbora.core.estimator import warn_caller

# --- Missing values among labels and texts ------------------------------------------------------------------


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or the NA of pandas.

    >>> [is_missing(value) for value in (None, float("nan"), "nan", 0)]
    [True, True, False, False]
    """
    # A value can be the NA of pandas only if pandas is imported. Importing it here would cost more than a fit.
    pandas = sys.modules.get("pandas")
    return value is None or is_scalar_nan(value) or value is getattr(pandas, "NA", None)


# --- Partial labels: the group of each row, with -1, None or NaN where it is not known ----------------------


UNLABELLED = -1
_BLANKS = ("-1", "nan", "None", "")  # strings that missing labels become


class Groups(NamedTuple):
    """Group of each row as a position in `classes`, -1 for an unlabelled row."""

    codes: Ints
    classes: Matrix

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Rows that carry a label."""
        return self.codes >= 0

    @property
    def n_groups(self) -> int:
        """Number of labelled groups."""
        return len(self.classes)


def read_groups(y: Any, n_samples: int, *, none_labelled: str) -> Groups:
    """Read labels (integers or strings) in which -1, None or NaN means unlabelled.

    In an array of strings only None and NaN mean unlabelled; a NumPy array of strings can hold neither, so there is a
    warning where it holds "-1", "nan", "None" or "". `none_labelled` is the error message if no row carries a label.
    Empty: this is not an error, and there are no groups.

    >>> read_groups(["cat", None, "dog", "cat"], 4, none_labelled="")
    Groups(codes=array([ 0, -1,  1,  0]), classes=array(['cat', 'dog'], dtype=object))
    >>> read_groups([7, -1, 3], 3, none_labelled="")
    Groups(codes=array([ 1, -1,  0]), classes=array([3, 7]))
    """
    labels = np.asarray(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if labels.ndim != 1 or len(labels) != n_samples:
        raise ValueError(
            f"y must hold one label for each of the {n_samples} rows; its shape is {labels.shape}."
        )
    if labels.dtype.kind == "f":
        missing = np.isnan(labels) | (labels == UNLABELLED)
        whole = labels[~missing]
        if np.any(whole != np.floor(whole)):
            raise ValueError(
                f"y holds the number {whole[whole != np.floor(whole)][0]:g}: groups are integers or strings; "
                "bin measurements before you use them as groups."
            )
        labels = np.where(missing, UNLABELLED, labels).astype(np.int64)
    if labels.dtype.kind in "iu":
        missing = labels == UNLABELLED
    elif labels.dtype.kind in "US":
        missing = np.zeros(n_samples, bool)
        _warn_of_blanks(labels)
    else:
        labels, missing = _read_objects(labels)
    return _coded(labels, missing, none_labelled)


def _warn_of_blanks(labels: Matrix) -> None:
    """Warn of strings that NumPy makes of missing labels, as in ``np.where(known, names, -1)``."""
    for blank in _BLANKS:
        n_rows = int(np.sum(labels == np.asarray(blank, labels.dtype.kind)))
        if n_rows:
            warn_caller(
                f"y holds the string {blank!r} in {n_rows} rows, which is a group of its own. If these rows have no "
                "label, use None in an array of dtype object."
            )


def _read_objects(labels: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
    """Mark None, NaN and the integer -1; refuse labels of several types."""
    values = labels.tolist()
    missing = np.array(
        [v is None or v != v or (_is_integer(v) and v == UNLABELLED) for v in values], dtype=bool
    )
    kinds = {kind_of(v) for v, absent in zip(values, missing.tolist(), strict=True) if not absent}
    if len(kinds) > 1:
        raise ValueError(
            f"y mixes labels of several types ({', '.join(sorted(kinds))}): make all of them strings."
        )
    return labels, missing


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def kind_of(value: Any) -> str:
    """Name of the type of a label; all integers are one type."""
    if _is_integer(value):
        return "int"
    return "str" if isinstance(value, str) else type(value).__name__


def _coded(labels: Matrix, missing: NDArray[np.bool_], none_labelled: str) -> Groups:
    codes = np.full(len(labels), UNLABELLED, np.int64)
    labelled = labels[~missing]
    if not len(labelled):
        if none_labelled:
            raise ValueError(none_labelled)
        return Groups(codes, np.empty(0, np.int64))
    classes, codes[~missing] = np.unique(labelled, return_inverse=True)
    if labels.dtype == object and all(_is_integer(v) for v in classes.tolist()):
        classes = classes.astype(np.int64)
    return Groups(codes, classes)
