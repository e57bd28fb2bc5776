"""Partial labels: which rows carry a group, which are unlabelled, and the statistics of the groups."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from arbora.core.chunks import split

UNLABELLED = -1
_ROWS_AT_ONCE = 4096
Matrix = NDArray[Any]


class Groups(NamedTuple):
    """Group of each row as a position in `classes`, -1 for an unlabelled row."""

    codes: NDArray[np.int64]
    classes: NDArray[Any]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Rows that carry a label."""
        return self.codes >= 0

    @property
    def n_groups(self) -> int:
        """Number of labelled groups."""
        return len(self.classes)


def read_groups(y: Any, n_samples: int, *, require: bool = True) -> Groups:
    """Read labels in which -1, None or NaN means unlabelled.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Integers or strings. In an array of strings only None and NaN mean unlabelled.
    n_samples : int
    require : bool
        Whether at least one row must have a label.

    Returns
    -------
    Groups

    Examples
    --------
    >>> read_groups(["cat", None, "dog", "cat"], 4)
    Groups(codes=array([ 0, -1,  1,  0]), classes=array(['cat', 'dog'], dtype=object))
    >>> read_groups([7, -1, 3], 3)
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
    else:
        labels, missing = _read_objects(labels)
    return _coded(labels, missing, require)


def read_further(y: Any, n_samples: int, known: NDArray[Any]) -> Groups:
    """Read labels of further rows: all may be missing, and they must be of the type of the known ones.

    Examples
    --------
    >>> read_further(None, 2, np.array([0, 1])).codes
    array([-1, -1])
    """
    if y is None:
        return Groups(np.full(n_samples, UNLABELLED, np.int64), known[:0])
    groups = read_groups(y, n_samples, require=False)
    kinds = {_kind(label) for label in [*groups.classes.tolist(), *known.tolist()]}
    if len(kinds) > 1:
        raise ValueError(
            f"y mixes labels of several types ({', '.join(sorted(kinds))}) with those of the fit: use labels of one "
            "type."
        )
    return groups


def _read_objects(labels: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
    """Mark None, NaN and the integer -1; refuse labels of several types."""
    values = labels.tolist()
    missing = np.array(
        [v is None or v != v or (_is_integer(v) and v == UNLABELLED) for v in values], dtype=bool
    )
    kinds = {_kind(v) for v, absent in zip(values, missing.tolist(), strict=True) if not absent}
    if len(kinds) > 1:
        raise ValueError(
            f"y mixes labels of several types ({', '.join(sorted(kinds))}): make all of them strings."
        )
    return labels, missing


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if _is_integer(value):
        return "int"
    return "str" if isinstance(value, str) else type(value).__name__


def _coded(labels: Matrix, missing: NDArray[np.bool_], require: bool) -> Groups:
    codes = np.full(len(labels), UNLABELLED, np.int64)
    known = labels[~missing]
    if not len(known):
        if not require:
            return Groups(codes, known)
        raise ValueError(
            "no row of y carries a label: a transformation is learned from labelled groups. To find groups without "
            "any labels use arbora.discover."
        )
    classes, codes[~missing] = np.unique(known, return_inverse=True)
    if labels.dtype == object and all(_is_integer(v) for v in classes.tolist()):
        classes = classes.astype(np.int64)
    return Groups(codes, classes)


def check_row_weight(sample_weight: Any, X: Any) -> NDArray[np.float64]:
    """Weights of rows as float64; a weight counts like repetitions of a row."""
    weight: NDArray[np.float64] = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    return weight


class GroupMoments(NamedTuple):
    """Weight, mean and pooled within-group covariance of labelled rows."""

    weight: NDArray[np.float64]  # n_groups
    mean: Matrix  # n_groups x n_features
    within: Matrix  # n_features x n_features: mean over all rows of (x - m)(x - m)'


def group_moments(Z: Matrix, codes: NDArray[np.int64], n_groups: int, row_weight: Matrix) -> GroupMoments:
    """Moments of the groups, in double precision; all rows of Z are labelled.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[0.0], [2.0], [5.0], [5.0]])
    >>> group_moments(Z, np.array([0, 0, 1, 1]), 2, np.ones(4))
    GroupMoments(weight=array([2., 2.]), mean=array([[1.],
           [5.]]), within=array([[0.5]]))
    """
    width, tiny = Z.shape[1], np.finfo(np.float64).tiny
    weight = np.bincount(codes, weights=row_weight, minlength=n_groups).astype(np.float64)
    sums, within = np.zeros((n_groups, width)), np.zeros((width, width))
    chunks = split(len(Z), size=_ROWS_AT_ONCE)
    for rows in chunks:
        there = sp.csr_array(
            (row_weight[rows], (codes[rows], np.arange(rows.stop - rows.start))),
            shape=(n_groups, rows.stop - rows.start),
        )
        sums += there @ Z[rows]
    mean = sums / np.maximum(weight, tiny)[:, None]
    near = mean.astype(Z.dtype, copy=False)
    for rows in chunks:
        away = (Z[rows] - near[codes[rows]]) * np.sqrt(row_weight[rows]).astype(Z.dtype)[:, None]
        within += away.T @ away
    return GroupMoments(weight, mean, within / max(float(row_weight.sum()), tiny))


def group_covariances(
    Z: Matrix, codes: NDArray[np.int64], moments: GroupMoments, row_weight: Matrix
) -> NDArray[np.float64]:
    """Covariance of each group, n_groups x n_features x n_features, divided by the weight of the group."""
    n_groups, width = moments.mean.shape
    found = np.empty((n_groups, width, width))
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(n_groups + 1))
    for group in range(n_groups):  # one product of matrices each; groups are few
        rows = order[bounds[group] : bounds[group + 1]]
        away = (Z[rows] - moments.mean[group]) * np.sqrt(row_weight[rows])[:, None]
        found[group] = away.T @ away / max(moments.weight[group], np.finfo(np.float64).tiny)
    return found
