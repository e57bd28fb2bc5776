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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from arbora.arrays import Matrix
from arbora.metrics.labels import Indicators, factorize, read_labels, suggest, to_indicators
from arbora.metrics.table import Table, improvement


class ClassCounts(NamedTuple):
    """True positives, true and predicted occurrences; the last axis runs over classes."""

    true_positive: Matrix
    actual: Matrix
    predicted: Matrix


class ClassScores(NamedTuple):
    """Precision, recall and F1 of each class, and the numbers of rows where it is true and predicted."""

    classes: Matrix
    precision: Matrix
    recall: Matrix
    f1: Matrix
    support: Matrix
    predicted: Matrix


def count_classes(true: sparse.csr_array, pred: sparse.csr_array) -> ClassCounts:
    """Count true positives, true and predicted rows of every column of two boolean CSR indicators."""
    n_classes = true.shape[1]
    return ClassCounts(
        *(
            np.bincount(matrix.indices, minlength=n_classes)
            for matrix in (sparse.csr_array(true.multiply(pred)), true, pred)
        )
    )


def divide(numerator: Matrix, denominator: Matrix, zero_division: float) -> Matrix:
    """``numerator / denominator``, and ``zero_division`` where the denominator is zero."""
    denominator = np.asarray(denominator)
    ratio = np.full(denominator.shape, float(zero_division))
    np.divide(numerator, denominator, out=ratio, where=denominator > 0)
    return ratio


def class_f1(counts: ClassCounts, zero_division: float = 0.0) -> Matrix:
    """F1 of every class from its counts."""
    return divide(2 * counts.true_positive, counts.actual + counts.predicted, zero_division)


def count_ratios(counts: ClassCounts, zero_division: float = 0.0) -> tuple[Matrix, Matrix, Matrix]:
    """Precision, recall and F1 from counts."""
    return (
        divide(counts.true_positive, counts.predicted, zero_division),
        divide(counts.true_positive, counts.actual, zero_division),
        class_f1(counts, zero_division),
    )


def micro_average(counts: ClassCounts, zero_division: float = 0.0) -> Matrix:
    """F1 of the counts summed over the last axis."""
    return class_f1(ClassCounts(*(count.sum(axis=-1) for count in counts)), zero_division)


def macro_average(values: Matrix) -> Matrix:
    """Mean over the last axis, without NaN values; NaN where all values are NaN."""
    has_value = ~np.isnan(values)
    return divide(np.where(has_value, values, 0.0).sum(axis=-1), has_value.sum(axis=-1), np.nan)


def check_zero_division(zero_division: float) -> None:
    """Refuse values other than 0, 1 and NaN."""
    if not (zero_division in (0, 1) or np.isnan(zero_division)):
        raise ValueError(f"zero_division must be 0, 1 or nan, got {zero_division!r}")


def _count(
    y_true: Any, y_pred: Any, labels: Iterable[Any] | None, zero_division: float
) -> tuple[Matrix, ClassCounts]:
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


# --- F1 averaged within groups of classes, for one system or for several side by side -----------------------
#
# Used for F1 by level of a hierarchy and by class size.


Average = Literal["macro", "micro"]
Counted = Literal["seen", "true", "all"]


class GroupedF1(NamedTuple):
    """Micro- and macro-F1 by system and group (NaN for a group without classes), and classes in each group."""

    micro: Matrix
    macro: Matrix
    n_classes: Matrix


def choose_classes(counts: Sequence[ClassCounts], counted: str, name: str) -> Matrix:
    """Mark the classes to average over, the same ones for all systems.

    ``"seen"``: true or predicted by any system; ``"true"``: true at least once; ``"all"``: every class.
    ``name`` is the name of the option in error messages.
    """
    true: Matrix = counts[0].actual > 0
    if counted == "seen":
        return np.asarray(np.any([true, *(count.predicted > 0 for count in counts)], axis=0))
    if counted == "true":
        return true
    if counted == "all":
        return np.ones_like(true)
    raise ValueError(f"{name} must be 'seen', 'true' or 'all', got {counted!r}")


def average_groups(counts: Sequence[ClassCounts], groups: Matrix, n_groups: int) -> GroupedF1:
    """Average the F1 of each system within each group; classes with a negative group are left out."""
    inside = groups >= 0
    place = groups[inside]

    def total(values: Matrix) -> Matrix:
        return np.bincount(place, weights=values[inside], minlength=n_groups)

    n_classes = np.bincount(place, minlength=n_groups)
    micro = np.array([class_f1(ClassCounts(*map(total, count))) for count in counts])
    macro = np.array([divide(total(class_f1(count)), n_classes, np.nan) for count in counts])
    return GroupedF1(np.where(n_classes > 0, micro, np.nan), macro, n_classes)


def single_table(head: str, keys: Sequence[Any], scores: GroupedF1, size_name: str) -> Table:
    """Tabulate one system: group, micro-F1, macro-F1, number of classes."""
    columns = (scores.micro[0], scores.macro[0], scores.n_classes)
    return Table(
        (head, "Micro-F1", "Macro-F1", size_name),
        tuple(zip(keys, *(column.tolist() for column in columns), strict=True)),
        ("", "percent", "percent", "d"),
    )


def side_by_side(
    head: str,
    keys: Sequence[Any],
    names: Sequence[str],
    scores: GroupedF1,
    size_name: str,
    *,
    average: Average,
    baseline: str,
) -> Table:
    """Tabulate several systems: group, score of each, gain of each over the baseline, number of classes."""
    if average not in ("macro", "micro"):
        raise ValueError(f"average must be 'macro' or 'micro', got {average!r}")
    by_system = dict(zip(names, getattr(scores, average).tolist(), strict=True))
    columns, formats, values = [head], [""], [list(keys)]
    for name, score in by_system.items():
        columns.append(f"{name} {average.capitalize()}-F1")
        formats.append("percent")
        values.append(score)
        if name != baseline:
            columns.append(f"{name} gain")
            formats.append("gain")
            values.append(list(map(improvement, score, by_system[baseline])))
    return Table(
        (*columns, size_name),
        tuple(zip(*values, scores.n_classes.tolist(), strict=True)),
        (*formats, "d"),
        note=f"gain: relative to {baseline}" if len(names) > 1 else "",
    )


def choose_baseline(systems: Mapping[str, Any], baseline: str | None) -> str:
    """Return the name of the baseline (by default the first system) after checking that it exists."""
    if not systems:
        raise ValueError("predictions is empty: give at least one named system")
    names = list(systems)
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline {baseline!r} is not among the predictions{suggest(baseline, names)}")
    return names[0] if baseline is None else baseline


def named_arguments(y_true: Any, predictions: Mapping[str, Any]) -> dict[str, Any]:
    """Map the names that error messages use to truth and predictions."""
    return {"y_true": y_true, **{f"predictions[{name!r}]": y for name, y in predictions.items()}}


# --- F1 of classes grouped by their number of training instances (Table 3.7 of Gopal's thesis) --------------
#
# A hierarchy should help rare classes most. A single macro-average over all classes does not show whether it does.


Bins = Sequence[tuple[int, int | None]]

THESIS_BINS: Bins = ((1, 5), (6, 10), (11, 20), (21, 50), (51, 100), (101, None))


def count_training(y_train: Any) -> dict[Any, int]:
    """Count the training rows of each class; a mapping of class to count is checked and copied."""
    if isinstance(y_train, Mapping):
        negative = [name for name, count in y_train.items() if not count >= 0]
        if negative:
            raise ValueError(
                f"the training count of class {negative[0]!r} is {y_train[negative[0]]!r}: it must be at least 0"
            )
        return dict(y_train)
    part = read_labels(y_train, "y_train")
    if part.n_columns is not None:
        return dict(enumerate(np.bincount(part.values, minlength=part.n_columns).tolist()))
    classes, (codes,) = factorize([part], ["y_train"])
    return dict(zip(classes.tolist(), np.bincount(codes, minlength=len(classes)).tolist(), strict=True))


def _check_bins(bins: Bins) -> list[tuple[int, float]]:
    try:
        closed = [(low, np.inf if high is None else high) for low, high in bins]
    except TypeError:
        raise ValueError(
            f"bins must be (smallest, largest) pairs such as (1, 5), (6, None), got {bins!r}"
        ) from None
    if not closed:
        raise ValueError("bins is empty: give (smallest, largest) pairs such as (1, 5)")
    for (low, high), (following, _) in zip(closed, [*closed[1:], (np.inf, np.inf)], strict=True):
        if not 0 <= low <= high or (high >= following and following < np.inf):
            raise ValueError(
                f"bins must be rising (smallest, largest) pairs that do not overlap, got {tuple(bins)}"
            )
    return closed


def _name_bin(low: int, high: float) -> str:
    if np.isinf(high):
        return f"> {low - 1}"
    return str(low) if low == high else f"{low}-{int(high)}"


def _by_size(read: Indicators, y_train: Any, bins: Bins, classes: str) -> tuple[list[str], GroupedF1]:
    """Names of the bins and the F1 of each system in each bin."""
    training = count_training(y_train)
    counts = [count_classes(read.matrices[0], system) for system in read.matrices[1:]]
    counted = choose_classes(counts, classes, "classes")
    sizes = np.fromiter((training.get(name, 0) for name in read.classes.tolist()), np.int64)
    edges = _check_bins(bins)
    if counted.any() and not sizes[counted].any():
        raise ValueError(
            f"no class of the test data, such as {read.classes[counted][0]!r}, is in the training data: "
            "use the same class names in both"
        )
    # Classes without training data get their own row; otherwise the table would omit them.
    if edges[0][0] > 0 and (counted & (sizes == 0)).any():
        edges.insert(0, (0, 0))
    low, high = np.array(edges).T
    groups = np.searchsorted(low, sizes, side="right") - 1
    groups[(groups < 0) | (sizes > high[groups]) | ~counted] = -1
    return [_name_bin(*edge) for edge in edges], average_groups(counts, groups, len(edges))


def f1_by_class_size(
    y_true: Any, y_pred: Any, y_train: Any, *, bins: Bins = THESIS_BINS, classes: Counted = "seen"
) -> Table:
    """Micro- and macro-F1 of classes grouped by their number of training instances.

    Parameters
    ----------
    y_true, y_pred : 1-d array of labels, list of label lists, or 0/1 indicator matrix (dense or sparse)
        Truth and predictions on test data.
    y_train : labels of the training data in the same form, or mapping of class to count
        Training data, from which class sizes are counted.
    bins : sequence of (smallest, largest) pairs, default=THESIS_BINS
        Increasing pairs that do not overlap. ``None`` as the last ``largest`` means no limit. If some classes
        have no training data and no bin contains 0, a first row ``0`` is added. Classes between two bins are
        left out.
    classes : {"seen", "true", "all"}, default="seen"
        Classes to average: those true or predicted in some test row, those true in some row, or all (all
        columns of indicator matrices).

    Returns
    -------
    Table
        Columns ``# Training instances, Micro-F1, Macro-F1, # Classes``.

    Examples
    --------
    >>> train = ["cat"] * 8 + ["dog"] * 3 + ["cow"]
    >>> print(f1_by_class_size(["cat", "dog", "cow"], ["cat", "dog", "dog"], train, bins=[(1, 5), (6, None)]))
    # Training instances  Micro-F1  Macro-F1  # Classes
    --------------------  --------  --------  ---------
    1-5                      50.00     33.33          2
    > 5                     100.00    100.00          1
    """
    read = to_indicators({"y_true": y_true, "y_pred": y_pred})
    names, scores = _by_size(read, y_train, bins, classes)
    return single_table("# Training instances", names, scores, "# Classes")


def compare_by_class_size(
    y_true: Any,
    predictions: Mapping[str, Any],
    y_train: Any,
    *,
    bins: Bins = THESIS_BINS,
    average: Average = "macro",
    baseline: str | None = None,
    classes: Counted = "seen",
) -> Table:
    """F1 by class size of several systems, with gains over a baseline, as in Table 3.7 of the thesis.

    Parameters
    ----------
    y_true, y_train, bins
        As in :func:`f1_by_class_size`.
    predictions : mapping of str to labels
        Name of each system and its predictions.
    average : {"macro", "micro"}, default="macro"
        Which F1 to show.
    baseline : str, optional
        System that gains are relative to; by default the first.
    classes : {"seen", "true", "all"}, default="seen"
        As in :func:`f1_by_class_size`, but seen in the truth or in **any** prediction.

    Returns
    -------
    Table

    Examples
    --------
    >>> train, truth = {"cat": 8, "dog": 3, "cow": 1}, ["cat", "dog", "cow"]
    >>> systems = {"flat": ["cat", "dog", "dog"], "tree": truth}
    >>> print(compare_by_class_size(truth, systems, train, bins=[(1, 5), (6, None)]))
    # Training instances  flat Macro-F1  tree Macro-F1   tree gain  # Classes
    --------------------  -------------  -------------  ----------  ---------
    1-5                           33.33         100.00  (+200.00%)          2
    > 5                          100.00         100.00    (+0.00%)          1
    gain: relative to flat
    """
    baseline = choose_baseline(predictions, baseline)
    read = to_indicators(named_arguments(y_true, predictions))
    names, scores = _by_size(read, y_train, bins, classes)
    return side_by_side(
        "# Training instances",
        names,
        list(predictions),
        scores,
        "# Classes",
        average=average,
        baseline=baseline,
    )
