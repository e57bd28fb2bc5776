"""Partial labels: which rows carry a group, which are unlabelled, and the statistics of the groups."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from arbora.core import labels as partial_labels
from arbora.core.chunks import split
from arbora.core.labels import UNLABELLED as UNLABELLED
from arbora.core.labels import Groups as Groups
from arbora.core.labels import kind_of

_ROWS_AT_ONCE = 4096
Matrix = NDArray[Any]

_NONE_LABELLED = (
    "no row of y carries a label: a transformation is learned from labelled groups. To find groups without any "
    "labels use arbora.discover."
)


def read_groups(y: Any, n_samples: int, *, require: bool = True) -> Groups:
    """Read labels in which -1, None or NaN means unlabelled; with `require` at least one row must carry a label.

    Examples
    --------
    >>> read_groups([7, -1, 3], 3)
    Groups(codes=array([ 1, -1,  0]), classes=array([3, 7]))
    """
    return partial_labels.read_groups(y, n_samples, none_labelled=_NONE_LABELLED if require else "")


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
    kinds = {kind_of(label) for label in [*groups.classes.tolist(), *known.tolist()]}
    if len(kinds) > 1:
        raise ValueError(
            f"y mixes labels of several types ({', '.join(sorted(kinds))}) with those of the fit: use labels of one "
            "type."
        )
    return groups


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
