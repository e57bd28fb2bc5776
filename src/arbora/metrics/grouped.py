"""F1 averaged within groups of classes, for one system or for several side by side.

Used for F1 by level of a hierarchy and by class size.
"""

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
    """Micro- and macro-F1 by system and group (NaN for a group without classes), and classes in each group."""

    micro: np.ndarray
    macro: np.ndarray
    n_classes: np.ndarray


def choose_classes(counts: Sequence[ClassCounts], counted: str, name: str) -> np.ndarray:
    """Mark the classes to average over, the same ones for all systems.

    ``"seen"``: true or predicted by any system; ``"true"``: true at least once; ``"all"``: every class.
    ``name`` is the name of the option in error messages.
    """
    true: np.ndarray = counts[0].actual > 0
    if counted == "seen":
        return np.asarray(np.any([true, *(count.predicted > 0 for count in counts)], axis=0))
    if counted == "true":
        return true
    if counted == "all":
        return np.ones_like(true)
    raise ValueError(f"{name} must be 'seen', 'true' or 'all', got {counted!r}")


def average_groups(counts: Sequence[ClassCounts], groups: np.ndarray, n_groups: int) -> GroupedF1:
    """Average the F1 of each system within each group; classes with a negative group are left out.

    Examples
    --------
    >>> counts = ClassCounts(np.array([1, 1, 0]), np.array([1, 2, 1]), np.array([1, 1, 0]))
    >>> average_groups([counts], np.array([0, 1, 1]), 2).macro
    array([[1.        , 0.33333333]])
    """
    inside = groups >= 0
    place = groups[inside]

    def total(values: np.ndarray) -> np.ndarray:
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
