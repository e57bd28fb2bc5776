"""Finished cells of `benchmarks.expand_thesis` and means over them, for tables and verdicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks._common.cells import DONE, Cells
from benchmarks._common.expand_data import SOURCES
from benchmarks._common.expand_methods import GROUPS

NOTICEABLE = 0.01  # difference of NMI that a verdict counts as one


class Found:
    """Finished cells of the main tables: scores by set and method."""

    def __init__(self, cells: Cells, splits: int) -> None:
        self.cells, self.splits = cells, splits
        self.scores: dict[str, dict[str, dict[str, Any]]] = {}
        for name in SOURCES:
            line: dict[str, dict[str, Any]] = {}
            for group in GROUPS:
                for n in range(splits, 0, -1):  # a cell with fewer splits counts until there is a whole one
                    first = cells.kept(f"classes | {name} | {group} | {n}")
                    if first is not None and first["status"] == DONE:
                        line.update(first["methods"])
                        break
            self.scores[name] = line

    def number(self, name: str, method: str, what: str = "nmi") -> float:
        """Mean over the splits."""
        return float(np.mean(self.scores[name][method][what]))

    def complete(self, names: list[str], methods: tuple[str, ...]) -> list[str]:
        """Select the sets for which all of the methods have been measured."""
        return [name for name in names if all(method in self.scores[name] for method in methods)]

    def best(self, name: str, methods: tuple[str, ...]) -> str:
        return max(methods, key=lambda method: self.number(name, method))


def domains(names: list[str]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for name in names:
        result.setdefault(SOURCES[name].domain, []).append(name)
    return result


def gain(result: Found, names: list[str], method: str, what: str = "nmi") -> float:
    return float(np.mean([result.number(n, method, what) - result.number(n, "GM", what) for n in names]))


def measured(result: Found, names: list[str], methods: tuple[str, ...]) -> tuple[str, ...]:
    """Methods that have been measured on all of the sets."""
    return tuple(m for m in methods if all(m in result.scores[n] for n in names))


def ranked(found: Found, names: list[str], methods: tuple[str, ...]) -> str:
    """Mean NMI over the sets that have all methods, best first."""
    usable = found.complete(names, methods)
    if not usable:
        return "not measured"
    means = {m: float(np.mean([found.number(n, m) for n in usable])) for m in methods}
    order = sorted(methods, key=lambda m: -means[m])
    return ", ".join(f"{m} {means[m]:.3f}" for m in order) + f" ({len(usable)} sets)"


def among_best(
    found: Found, names: list[str], wanted: tuple[str, ...], methods: tuple[str, ...]
) -> bool | None:
    """Whether the best method by the mean over sets is one of those wanted."""
    usable = found.complete(names, methods)
    if not usable:
        return None
    means = {m: float(np.mean([found.number(n, m) for n in usable])) for m in methods}
    return max(methods, key=lambda m: means[m]) in wanted


def verdict(holds: bool | None) -> str:
    return {True: "holds", False: "does not hold", None: "not measured"}[holds]
