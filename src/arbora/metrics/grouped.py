"""F1 averaged within groups of classes, several systems side by side: the shape of both thesis tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from arbora.metrics.classification import ClassCounts, class_f1, divide
from arbora.metrics.labels import suggest
from arbora.metrics.table import Table, improvement

Average = Literal["macro", "micro"]
Counted = Literal["seen", "true", "all"]


class GroupedF1(NamedTuple):
    """Micro- and macro-F1 of each group (NaN for a group without classes)."""

    micro: np.ndarray
    macro: np.ndarray


def choose_classes(counts: Sequence[ClassCounts], counted: str, name: str) -> np.ndarray:
    """Classes to average over, the same for all systems.

    ``"seen"``: true or predicted by any system; ``"true"``: true at least once; ``"all"``: every class.
    """
    true = counts[0].actual > 0
    if counted == "seen":
        return np.logical_or.reduce([true, *(count.predicted > 0 for count in counts)])
    if counted == "true":
        return true
    if counted == "all":
        return np.ones_like(true)
    raise ValueError(f"{name} must be 'seen', 'true' or 'all', got {counted!r}")


def average_groups(counts: ClassCounts, groups: np.ndarray, n_groups: int) -> GroupedF1:
    """Micro- and macro-F1 within each group; classes with a negative group are left out.

    Examples
    --------
    >>> counts = ClassCounts(np.array([1, 1, 0]), np.array([1, 2, 1]), np.array([1, 1, 0]))
    >>> average_groups(counts, np.array([0, 1, 1]), 2).macro
    array([1.        , 0.33333333])
    """
    inside = groups >= 0
    place = groups[inside]

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, weights=values[inside], minlength=n_groups)

    size = np.bincount(place, minlength=n_groups)
    micro = class_f1(ClassCounts(*map(total, counts)))
    return GroupedF1(
        np.where(size > 0, micro, np.nan),
        divide(total(class_f1(counts)), size, np.nan),
    )


def single_table(
    head: str, keys: Sequence[Any], scores: GroupedF1, sizes: np.ndarray, size_name: str
) -> Table:
    """One system: key, micro-F1, macro-F1, number of classes."""
    return Table(
        (head, "Micro-F1", "Macro-F1", size_name),
        tuple(zip(keys, scores.micro.tolist(), scores.macro.tolist(), sizes.tolist(), strict=True)),
        ("", "percent", "percent", "d"),
    )


def side_by_side(
    head: str,
    keys: Sequence[Any],
    systems: Mapping[str, GroupedF1],
    sizes: np.ndarray,
    size_name: str,
    *,
    average: Average,
    baseline: str | None,
) -> Table:
    """Several systems: key, score of each, gain of each over the baseline, number of classes."""
    base = check_systems(systems, baseline)
    if average not in ("macro", "micro"):
        raise ValueError(f"average must be 'macro' or 'micro', got {average!r}")
    measure = f"{average.capitalize()}-F1"
    reference = getattr(systems[base], average).tolist()
    columns, formats, values = [head], [""], [list(keys)]
    for name, scores in systems.items():
        score = getattr(scores, average).tolist()
        columns.append(f"{name} {measure}")
        formats.append("percent")
        values.append(score)
        if name != base:
            columns.append(f"{name} gain")
            formats.append("gain")
            values.append(list(map(improvement, score, reference)))
    return Table(
        (*columns, size_name),
        tuple(zip(*values, sizes.tolist(), strict=True)),
        (*formats, "d"),
        note=f"gain: relative to {base}" if len(systems) > 1 else "",
    )


def check_systems(systems: Mapping[str, Any], baseline: str | None) -> str:
    """Name of the baseline (the first system by default), after checking that it exists."""
    if not systems:
        raise ValueError("predictions is empty: give at least one named system")
    names = list(systems)
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline {baseline!r} is not among the predictions{suggest(baseline, names)}")
    return names[0] if baseline is None else baseline


def named_arguments(y_true: Any, predictions: Mapping[str, Any]) -> dict[str, Any]:
    """Truth and predictions under the names that error messages use."""
    return {"y_true": y_true, **{f"predictions[{name!r}]": y for name, y in predictions.items()}}
