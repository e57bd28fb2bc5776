"""Measures of a score matrix: how many true labels are among the k classes with the highest scores.

``precision_at_k`` is the mean of ``hits / k``. ``r_precision_at_k`` (RP@k) is the mean of ``hits / min(k, R)``,
where ``R`` is the number of true labels of the row; it is 1 for a perfect ranking with any ``R``.
Equal scores are ordered by column, so results do not depend on the sorting algorithm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from arbora.arrays import Matrix
from arbora.core.chunks import split_entries
from arbora.metrics.labels import LabelRows, build_indicator, factorize, read_labels, suggest


def check_scores(scores: ArrayLike, name: str = "scores") -> Matrix:
    """Return scores as a two-dimensional numeric array; refuse NaN."""
    if sparse.issparse(scores):
        raise ValueError(f"{name} is sparse and missing scores cannot be ranked: pass {name}.toarray()")
    array = np.asarray(scores)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a numeric matrix (n_samples, n_classes), got {array.dtype} {array.shape}"
        )
    if 0 in array.shape:
        raise ValueError(f"{name} is empty: its shape is {array.shape}")
    bad = np.isnan(array).any(axis=1)
    if bad.any():
        raise ValueError(f"{name} has NaN in {bad.sum()} of {len(bad)} rows, first in row {np.argmax(bad)}")
    return array


def align_truth(
    y_true: Any, scores: Matrix, classes: Iterable[Any] | None
) -> tuple[sparse.csr_array, Matrix]:
    """Return the truth as an indicator over score columns, and the number of distinct true labels per row.

    A true label without a score column (a class that was not in the training data) counts as a miss.
    """
    n_rows, n_columns = scores.shape
    part = read_labels(y_true, "y_true")
    if len(part.lengths) != n_rows:
        raise ValueError(f"y_true has {len(part.lengths)} rows but scores has {n_rows}")
    if part.n_columns is not None:
        if part.n_columns != n_columns:
            raise ValueError(f"y_true has {part.n_columns} columns but scores has {n_columns}")
        return build_indicator(part.values, part.lengths, n_columns), part.lengths
    labels, (codes,) = factorize([part], ["y_true"])
    all_labels = build_indicator(codes, part.lengths, max(len(labels), 1))
    place = _column_of(labels, part, n_columns, classes)
    truth = build_indicator(place[codes], part.lengths, n_columns)
    return truth, np.diff(all_labels.indptr)


def _column_of(labels: Matrix, part: LabelRows, n_columns: int, classes: Iterable[Any] | None) -> Matrix:
    """Score column of each distinct true label, -1 if it has none."""
    if classes is None:
        numbers = np.asarray(labels)
        if not isinstance(part.values, np.ndarray) or not np.isin(numbers, np.arange(n_columns)).all():
            raise ValueError(
                f"without classes=, y_true must hold column numbers from 0 to {n_columns - 1}; pass "
                "the names of the score columns (classes_ of the classifier) as classes"
            )
        return numbers.astype(np.int64)
    names = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
    column = {name: i for i, name in enumerate(names)}
    if len(names) != n_columns or len(column) < n_columns:
        raise ValueError(
            f"scores has {n_columns} columns but classes has {len(column)} distinct names of {len(names)}"
        )
    place = np.fromiter((column.get(label, -1) for label in labels.tolist()), np.int64, len(labels))
    if len(labels) and (place < 0).all():
        raise ValueError(
            f"no label of y_true is in classes: {labels[0]!r} is unknown{suggest(labels[0], names)}"
        )
    return place


def top_k_mask(scores: Matrix, k: int) -> Matrix:
    """Mark the k highest scores of each row; among equal scores the first columns win.

    >>> top_k_mask(np.array([[0.5, 0.9, 0.5]]), 2)
    array([[ True,  True, False]])
    """
    n_columns = scores.shape[1]
    if k >= n_columns:
        return np.ones(scores.shape, dtype=bool)
    threshold = np.partition(scores, n_columns - k, axis=1)[:, n_columns - k, None]
    above = scores > threshold
    tied = scores == threshold
    room = k - above.sum(axis=1, keepdims=True)
    mask: Matrix = above | (tied & (np.cumsum(tied, axis=1) <= room))
    return mask


def _hits(truth: sparse.csr_array, scores: Matrix, k: int) -> Matrix:
    """Count the true labels among the k best classes of each row."""
    if not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be a positive integer, got {k!r}")
    hits = np.empty(len(scores), dtype=np.int64)
    for chunk in split_entries(*scores.shape):
        chosen = truth[chunk].multiply(top_k_mask(scores[chunk], k))
        hits[chunk] = np.asarray(chosen.sum(axis=1)).ravel()
    return hits


def precision_at_k(y_true: Any, scores: ArrayLike, k: int, *, classes: Iterable[Any] | None = None) -> float:
    """Mean share of true labels among the k classes with the highest scores.

    Parameters
    ----------
    y_true : 1-d array of labels, list of label lists, or 0/1 indicator matrix
        Truth; indicator columns are score columns.
    scores : array of shape (n_samples, n_classes)
        Larger is better.
    k : int
        Number of classes per row. If it exceeds ``n_classes``, the missing places count as wrong.
    classes : iterable, optional
        Names of the score columns (``classes_`` of a classifier). Without it labels are column numbers.

    Returns
    -------
    float

    Examples
    --------
    >>> scores = [[0.9, 0.5, 0.1], [0.2, 0.3, 0.4]]
    >>> precision_at_k([["cat", "dog"], ["cat"]], scores, 2, classes=["cat", "dog", "cow"])
    0.5
    """
    table = check_scores(scores)
    truth, _ = align_truth(y_true, table, classes)
    return float(_hits(truth, table, k).mean() / k)


def r_precision_at_k(
    y_true: Any, scores: ArrayLike, k: int, *, classes: Iterable[Any] | None = None
) -> float:
    """Mean ratio of hits among the k best classes to possible hits, ``min(k, number of true labels)``.

    Rows without true labels are left out.

    Parameters
    ----------
    y_true, scores, k, classes
        As in :func:`precision_at_k`.

    Returns
    -------
    float

    Examples
    --------
    >>> scores = [[0.9, 0.5, 0.1], [0.2, 0.3, 0.4]]
    >>> r_precision_at_k([["cat", "dog"], ["cow"]], scores, 2, classes=["cat", "dog", "cow"])
    1.0
    """
    table = check_scores(scores)
    truth, n_labels = align_truth(y_true, table, classes)
    labelled = n_labels > 0
    if not labelled.any():
        raise ValueError("no row of y_true has a label, so RP@k is undefined")
    possible = np.minimum(k, n_labels[labelled])
    return float((_hits(truth, table, k)[labelled] / possible).mean())
