"""Exact searches for the best place to cut ranked scores, used by the thresholds.

Equal scores are ranked by column, and of equally good cuts the one with fewer labels is chosen, so that results do
not depend on the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify._linear.linear_model import by_chunks


def top_columns(scores: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Columns of the k highest scores of each row, best first; equal scores are ranked by column.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    k : int
        If it exceeds the number of columns, all columns are returned.

    Returns
    -------
    ndarray of int of shape (n_samples, min(k, n_classes))

    Examples
    --------
    >>> import numpy as np
    >>> top_columns(np.array([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0]]), 2)
    array([[1, 2],
           [0, 1]])
    """
    n_samples, n_classes = scores.shape
    if k >= n_classes:
        return np.argsort(-scores, axis=1, kind="stable")
    if k == 0:
        return np.empty((n_samples, 0), np.int64)
    last = np.partition(scores, n_classes - k, axis=1)[:, n_classes - k, None]
    above, level = scores > last, scores == last
    room = k - np.count_nonzero(above, axis=1)
    crowded = np.count_nonzero(level, axis=1) > room
    level[crowded] &= np.cumsum(level[crowded], axis=1) <= room[crowded, None]
    columns = np.nonzero(above | level)[1].reshape(n_samples, k)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def label_ranks(scores: NDArray[Any], Y: sp.csr_array) -> NDArray[np.int64]:
    """Rank of every label in Y among the scores of its row, counted from 0.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> label_ranks(np.array([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0]]), sp.csr_array([[0, 0, 1], [1, 0, 1]]))
    array([1, 0, 2])
    """
    rows, columns = Y.nonzero()

    def ranks(labels: NDArray[np.int64]) -> NDArray[np.int64]:
        own, column = scores[rows[labels]], columns[labels, None]
        value = np.take_along_axis(own, column, axis=1)
        before = np.arange(scores.shape[1]) < column
        return np.asarray(np.count_nonzero((own > value) | ((own == value) & before), axis=1))

    parts = by_chunks(np.arange(len(rows)), scores.shape[1], ranks)
    return np.concatenate([np.empty(0, np.int64), *parts])


def best_cuts(
    scores: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find the thresholds that maximise the F1 of each column, and that F1; the highest of equally good ones.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    rows, columns : ndarrays of int of shape (n_labels,)
        Positions of the labels.

    Returns
    -------
    thresholds, f1 : ndarrays of shape (n_classes,)
        A threshold is half-way between two scores. It is -inf if it is best to choose every row; for a column
        without labels it is inf, and the F1 is 0.

    Examples
    --------
    >>> import numpy as np
    >>> best_cuts(np.array([[3.0], [2.0], [1.0], [0.0]]), np.array([0, 2]), np.array([0, 0]))
    (array([0.5]), array([0.8]))
    """
    n_samples, n_classes = scores.shape
    by_class = np.sort(np.ascontiguousarray(scores.T), axis=1)
    value = scores[rows, columns]
    order = np.lexsort((-value, columns))
    column, value = columns[order], value[order]
    n_labels = np.bincount(column, minlength=n_classes)
    first = np.cumsum(n_labels) - n_labels
    # The best cut is just below the score of a label. Of labels with equal scores, the last counts all hits.
    hits = np.arange(1, len(value) + 1) - first[column]
    start = _first_at_least(by_class, column, value)
    f1 = 2 * hits / (n_samples - start + n_labels[column])
    known = np.flatnonzero(n_labels)
    best = np.lexsort((-f1, column))[first[known]]  # a stable sort: of equal F1 the highest score comes first
    below = np.where(start[best] > 0, by_class[known, start[best] - 1], -np.inf)
    thresholds, best_f1 = np.full(n_classes, np.inf), np.zeros(n_classes)
    thresholds[known], best_f1[known] = _between(below, value[best]), f1[best]
    return thresholds, best_f1


def _first_at_least(ordered: NDArray[Any], line: NDArray[Any], value: NDArray[Any]) -> NDArray[np.int64]:
    """Position of the first number that is at least the value in a line sorted in ascending order.

    One such number must exist.
    """
    low = np.zeros(len(value), np.int64)
    high = np.full(len(value), ordered.shape[1] - 1)
    for _ in range(ordered.shape[1].bit_length()):
        middle = (low + high) // 2
        below = ordered[line, middle] < value
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    return low


def _between(lower: NDArray[Any], upper: NDArray[Any]) -> NDArray[np.float64]:
    """Thresholds in [lower, upper): the middle, or `lower` if the middle is not finite or rounds to `upper`."""
    lower, upper = lower.astype(np.float64), upper.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        middle = lower + (upper - lower) / 2
        return np.asarray(np.where((lower <= middle) & (middle < upper), middle, lower))


def ridge(features: NDArray[Any], target: NDArray[Any], alpha: float) -> tuple[NDArray[Any], float]:
    """Fit a ridge regression on standardised features; return weights of the original features and the intercept."""
    centre, std = features.mean(axis=0), features.std(axis=0)
    std[std <= 1e-12 * np.abs(features).max(axis=0, initial=0.0)] = 1.0  # constant features
    Z = (features - centre) / std
    penalised = Z.T @ Z + alpha * np.eye(Z.shape[1])
    weights = np.linalg.solve(penalised, Z.T @ (target - target.mean())) / std
    return weights, float(target.mean() - weights @ centre)
