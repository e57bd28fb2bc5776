r"""Precision, recall and F1: per class, micro- and macro-averaged.

With :math:`TP_c` the rows where class ``c`` is both true and predicted, :math:`A_c` those where it is true
and :math:`P_c` those where it is predicted,

.. math::
    F_1(c) = \frac{2\,TP_c}{A_c + P_c}, \qquad
    \text{micro-}F_1 = \frac{2\sum_c TP_c}{\sum_c (A_c + P_c)}, \qquad
    \text{macro-}F_1 = \frac{1}{|C|} \sum_{c \in C} F_1(c)

(Gopal, *Large-scale Structured Learning*, appendix B.1). All three counts are column sums of sparse
indicators, so the cost depends on the number of labels, not of classes.

**Which classes.** ``labels`` if given; else all columns of an indicator matrix; else all labels that occur in
the truth or in the predictions. **Zero division.** A ratio with denominator zero has the value
``zero_division``: 0 (default), 1, or NaN, which leaves the class out of macro-averages. Both rules, and the
resulting values, are those of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from arbora.metrics.labels import to_indicators
from arbora.metrics.table import Table


class ClassCounts(NamedTuple):
    """True positives, true and predicted occurrences; the last axis runs over classes."""

    true_positive: np.ndarray
    actual: np.ndarray
    predicted: np.ndarray


class ClassScores(NamedTuple):
    """Precision, recall and F1 of each class, and the numbers of rows where it is true and predicted."""

    classes: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray
    predicted: np.ndarray


def count_classes(true: sparse.csr_array, pred: sparse.csr_array) -> ClassCounts:
    """Count true positives, true and predicted rows of every column of two boolean CSR indicators.

    Examples
    --------
    >>> true = sparse.csr_array(np.array([[1, 0], [1, 1]], dtype=bool))
    >>> pred = sparse.csr_array(np.array([[1, 1], [0, 1]], dtype=bool))
    >>> count_classes(true, pred).true_positive
    array([1, 1])
    """
    n_classes = true.shape[1]
    return ClassCounts(
        *(
            np.bincount(matrix.indices, minlength=n_classes)
            for matrix in (sparse.csr_array(true.multiply(pred)), true, pred)
        )
    )


def divide(numerator: np.ndarray, denominator: np.ndarray, zero_division: float) -> np.ndarray:
    """``numerator / denominator``, and ``zero_division`` where the denominator is zero.

    Examples
    --------
    >>> divide(np.array([1, 0]), np.array([2, 0]), 1.0)
    array([0.5, 1. ])
    """
    denominator = np.asarray(denominator)
    ratio = np.full(denominator.shape, float(zero_division))
    np.divide(numerator, denominator, out=ratio, where=denominator > 0)
    return ratio


def class_f1(counts: ClassCounts, zero_division: float = 0.0) -> np.ndarray:
    """F1 of every class from its counts.

    Examples
    --------
    >>> class_f1(ClassCounts(np.array([1, 0]), np.array([2, 0]), np.array([1, 0])))
    array([0.66666667, 0.        ])
    """
    return divide(2 * counts.true_positive, counts.actual + counts.predicted, zero_division)


def count_ratios(
    counts: ClassCounts, zero_division: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1 from counts.

    Examples
    --------
    >>> count_ratios(ClassCounts(np.array([1]), np.array([2]), np.array([1])))
    (array([1.]), array([0.5]), array([0.66666667]))
    """
    return (
        divide(counts.true_positive, counts.predicted, zero_division),
        divide(counts.true_positive, counts.actual, zero_division),
        class_f1(counts, zero_division),
    )


def micro_average(counts: ClassCounts, zero_division: float = 0.0) -> np.ndarray:
    """F1 of the counts summed over the last axis."""
    return class_f1(ClassCounts(*(count.sum(axis=-1) for count in counts)), zero_division)


def macro_average(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis, without NaN values; NaN where all values are NaN."""
    known = ~np.isnan(values)
    return divide(np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1), np.nan)


def check_zero_division(zero_division: float) -> None:
    """Refuse values other than 0, 1 and NaN."""
    if not (zero_division in (0, 1) or np.isnan(zero_division)):
        raise ValueError(f"zero_division must be 0, 1 or nan, got {zero_division!r}")


def _count(
    y_true: Any, y_pred: Any, labels: Iterable[Any] | None, zero_division: float
) -> tuple[np.ndarray, ClassCounts]:
    check_zero_division(zero_division)
    read = to_indicators({"y_true": y_true, "y_pred": y_pred}, labels)
    return read.classes, count_classes(*read.matrices)


def micro_f1(
    y_true: Any, y_pred: Any, *, labels: Iterable[Any] | None = None, zero_division: float = 0.0
) -> float:
    """Micro-averaged F1: every decision has the same weight.

    With one label per row and all classes counted, it equals the accuracy.

    Parameters
    ----------
    y_true, y_pred : 1-d array of labels, list of label lists, or 0/1 indicator matrix (dense or sparse)
        Truth and predictions, row by row.
    labels : iterable, optional
        Fixed set of classes to count (of column ids, for indicator matrices).
    zero_division : {0, 1, nan}, default=0
        Value if no label is true and none predicted.

    Returns
    -------
    float

    Examples
    --------
    >>> micro_f1(["cat", "dog", "cow"], ["cat", "cow", "cow"])
    0.666...
    >>> micro_f1([["cat", "dog"], []], [["cat"], ["cow"]])
    0.5
    """
    return float(micro_average(_count(y_true, y_pred, labels, zero_division)[1], zero_division))


def macro_f1(
    y_true: Any, y_pred: Any, *, labels: Iterable[Any] | None = None, zero_division: float = 0.0
) -> float:
    """Macro-averaged F1: every class has the same weight, however rare.

    Parameters
    ----------
    y_true, y_pred : 1-d array of labels, list of label lists, or 0/1 indicator matrix (dense or sparse)
        Truth and predictions, row by row.
    labels : iterable, optional
        Fixed set of classes to average over. By default the average is over the classes that occur in
        ``y_true`` or ``y_pred`` (all columns of indicator matrices), so two systems that predict different
        classes are averaged over different sets. Set ``labels`` to compare systems.
    zero_division : {0, 1, nan}, default=0
        F1 of a class that is neither true nor predicted; NaN leaves it out of the average.

    Returns
    -------
    float

    Examples
    --------
    >>> macro_f1(["cat", "dog", "cow"], ["cat", "cow", "cow"])
    0.555...
    >>> macro_f1(["cat", "dog", "cow"], ["cat", "cow", "cow"], labels=["cat", "dog", "cow", "pig"])
    0.416...
    """
    counts = _count(y_true, y_pred, labels, zero_division)[1]
    return float(macro_average(class_f1(counts, zero_division)))


def precision_recall_f1(
    y_true: Any, y_pred: Any, *, labels: Iterable[Any] | None = None, zero_division: float = 0.0
) -> ClassScores:
    """Precision, recall, F1 and counts of each class.

    Parameters
    ----------
    y_true, y_pred, labels, zero_division
        As in :func:`macro_f1`.

    Returns
    -------
    ClassScores
        Named tuple of arrays ``classes, precision, recall, f1, support, predicted``, one entry per class.

    Examples
    --------
    >>> scores = precision_recall_f1(["cat", "dog", "cow"], ["cat", "cow", "cow"])
    >>> scores.classes
    array(['cat', 'cow', 'dog'], dtype=object)
    >>> scores.precision
    array([1. , 0.5, 0. ])
    """
    classes, counts = _count(y_true, y_pred, labels, zero_division)
    return ClassScores(classes, *count_ratios(counts, zero_division), counts.actual, counts.predicted)


def f1_report(
    y_true: Any, y_pred: Any, *, labels: Iterable[Any] | None = None, zero_division: float = 0.0
) -> Table:
    """Precision, recall and F1 of each class and their averages, as a table.

    Parameters
    ----------
    y_true, y_pred, labels, zero_division
        As in :func:`macro_f1`.

    Returns
    -------
    Table
        One row per class, then ``micro average`` and ``macro average``.

    Examples
    --------
    >>> print(f1_report(["cat", "dog", "cow"], ["cat", "cow", "cow"]))
    Class          Precision  Recall      F1  Support
    -------------  ---------  ------  ------  -------
    cat               100.00  100.00  100.00        1
    cow                50.00  100.00   66.67        1
    dog                 0.00    0.00    0.00        1
    micro average      66.67   66.67   66.67        3
    macro average      50.00   66.67   55.56        3
    """
    classes, counts = _count(y_true, y_pred, labels, zero_division)
    per_class = count_ratios(counts, zero_division)
    pooled = ClassCounts(*(count.sum() for count in counts))
    total = int(pooled.actual)
    micro = map(float, count_ratios(pooled, zero_division))
    macro = map(float, map(macro_average, per_class))
    rows = zip(map(str, classes), *(column.tolist() for column in (*per_class, counts.actual)), strict=True)
    return Table(
        ("Class", "Precision", "Recall", "F1", "Support"),
        (*rows, ("micro average", *micro, total), ("macro average", *macro, total)),
        ("", "percent", "percent", "percent", "d"),
    )
