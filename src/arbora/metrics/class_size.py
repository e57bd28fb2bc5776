"""F1 of classes grouped by their number of training instances (Table 3.7 of Gopal's thesis).

A hierarchy should help rare classes most. A single macro-average over all classes does not show whether it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arbora.metrics.classification import count_classes
from arbora.metrics.grouped import (
    Average,
    Counted,
    GroupedF1,
    average_groups,
    choose_baseline,
    choose_classes,
    named_arguments,
    side_by_side,
    single_table,
)
from arbora.metrics.labels import Indicators, factorize, read_labels, to_indicators
from arbora.metrics.table import Table

Bins = Sequence[tuple[int, int | None]]

THESIS_BINS: Bins = ((1, 5), (6, 10), (11, 20), (21, 50), (51, 100), (101, None))


def count_training(y_train: Any) -> dict[Any, int]:
    """Count the training rows of each class.

    Parameters
    ----------
    y_train : mapping of class to count, 1-d array of labels, list of label lists, or 0/1 indicator matrix
        A mapping is checked and copied.

    Returns
    -------
    dict

    Examples
    --------
    >>> count_training([["a", "b"], ["a"]])
    {'a': 2, 'b': 1}
    """
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
