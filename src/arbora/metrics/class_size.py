"""F1 by the number of training instances of a class: Table 3.7 of Gopal's thesis.

Rare classes are where a hierarchy should help; one macro-average over all classes hides whether it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arbora.metrics.classification import count_classes
from arbora.metrics.grouped import (
    Average,
    Counted,
    GroupedF1,
    average_groups,
    check_systems,
    choose_classes,
    named_arguments,
    side_by_side,
    single_table,
)
from arbora.metrics.labels import Indicators, factorize, read_labels, to_indicators
from arbora.metrics.table import Table

Bins = Sequence[tuple[int, int | None]]

THESIS_BINS: Bins = ((1, 5), (6, 10), (11, 20), (21, 50), (51, 100), (101, None))


class _Sizes(NamedTuple):
    """Names of the bins, score of each system in each bin, number of classes in each bin."""

    bins: list[str]
    scores: list[GroupedF1]
    n_classes: np.ndarray


def count_training(y_train: Any) -> dict[Any, int]:
    """Count the training rows of each class.

    Parameters
    ----------
    y_train : mapping of class to count, 1-d array of labels, list of label lists, or 0/1 indicator matrix
        A mapping is returned as it is, after a check.

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
            raise ValueError(f"training count of class {negative[0]!r} is {y_train[negative[0]]!r}")
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


def _by_size(read: Indicators, y_train: Any, bins: Bins, classes: str) -> _Sizes:
    training = count_training(y_train)
    counts = [count_classes(read.matrices[0], system) for system in read.matrices[1:]]
    counted = choose_classes(counts, classes, "classes")
    sizes = np.fromiter((training.get(name, 0) for name in read.classes.tolist()), np.int64)
    edges = _check_bins(bins)
    if counted.any() and not sizes[counted].any():
        raise ValueError(
            f"no class of the test data, such as {read.classes[counted][0]!r}, is in the training data; "
            "are both given by the same names?"
        )
    # Classes without training data would fall out of the table unseen: give them a row of their own.
    if edges[0][0] > 0 and (counted & (sizes == 0)).any():
        edges.insert(0, (0, 0))
    low, high = np.array(edges).T
    groups = np.searchsorted(low, sizes, side="right") - 1
    groups[(groups < 0) | (sizes > high[groups]) | ~counted] = -1
    return _Sizes(
        [_name_bin(*edge) for edge in edges],
        [average_groups(count, groups, len(edges)) for count in counts],
        np.bincount(groups[groups >= 0], minlength=len(edges)),
    )


def f1_by_class_size(
    y_true: Any, y_pred: Any, y_train: Any, *, bins: Bins = THESIS_BINS, classes: Counted = "seen"
) -> Table:
    """Micro- and macro-F1 of classes grouped by their number of training instances.

    Parameters
    ----------
    y_true, y_pred : 1-d array of labels, list of label lists, or 0/1 indicator matrix (dense or sparse)
        Truth and predictions on test data.
    y_train : labels of the training data in the same form, or mapping of class to count
        Where the sizes of classes come from.
    bins : sequence of (smallest, largest) pairs, default=THESIS_BINS
        Rising and not overlapping; ``None`` as the last largest means no limit. When classes without training
        data are met and no bin holds them, a row ``0`` is put before the others. Classes between two bins
        are left out.
    classes : {"seen", "true", "all"}, default="seen"
        Classes that are averaged: true or predicted in some test row; true in some; or all, for indicator
        matrices all columns.

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
    sizes = _by_size(read, y_train, bins, classes)
    return single_table("# Training instances", sizes.bins, sizes.scores[0], sizes.n_classes, "# Classes")


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
        Which F1 is shown.
    baseline : str, optional
        System that gains are relative to; default: the first.
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
    check_systems(predictions, baseline)
    sizes = _by_size(to_indicators(named_arguments(y_true, predictions)), y_train, bins, classes)
    systems = dict(zip(predictions, sizes.scores, strict=True))
    return side_by_side(
        "# Training instances",
        sizes.bins,
        systems,
        sizes.n_classes,
        "# Classes",
        average=average,
        baseline=baseline,
    )
