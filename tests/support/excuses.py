"""Checks of scikit-learn that an estimator cannot pass, and why: for the contract, and as the table of the docs.

``python -m support.excuses`` in the folder ``tests`` writes the table of ``docs/estimator_checks.md`` again.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import has_fit_parameter

from support.paths import ROOT
from support.registry import REGISTRY

WEIGHTS = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
PAGE = ROOT / "docs/estimator_checks.md"
_HEAD = "| reason | checks | estimators |\n|---|---|---|\n"


def name_of(check: Any) -> str:
    """Name of a check as ``expected_failed_checks`` spells it: the name of its function."""
    check = getattr(check, "__wrapped__", check)
    return str(getattr(check, "func", check).__name__)


def excuses(estimator: BaseEstimator) -> dict[str, str]:
    """Name of each check that the estimator of a row cannot pass, with the reason.

    Two fits of the same problem agree to about their tolerance, and the checks of sample weights ask for 1e-7.
    """
    row = next(row for row in REGISTRY if row.numeric and repr(row.cls(**row.quick)) == repr(estimator))
    tol = getattr(estimator, "tol", 0)
    exact = (
        row.repeats or not has_fit_parameter(estimator, "sample_weight") or (tol is not None and tol < 1e-6)
    )
    return ({} if exact else dict.fromkeys(WEIGHTS, "stops at a finite tolerance")) | row.excused


def table() -> str:
    """Return the excuses of all rows as a Markdown table: a line for each reason and each set of checks."""
    checks: dict[tuple[str, str], set[str]] = {}  # of an estimator and a reason
    for row in REGISTRY:
        if row.numeric:
            estimator = row.cls(**row.quick)
            reasons = excuses(estimator)
            for _, check in estimator_checks_generator(estimator):
                if reason := reasons.get(name_of(check)):
                    checks.setdefault((row.cls.__name__, reason), set()).add(f"`{name_of(check)}`")
    lines: dict[tuple[str, str], list[str]] = {}
    for (name, reason), names in sorted(checks.items()):
        lines.setdefault((reason, ", ".join(sorted(names))), []).append(f"`{name}`")
    return _HEAD + "".join(
        f"| {reason} | {names} | {', '.join(estimators)} |\n" for (reason, names), estimators in lines.items()
    )


def page_with_table() -> str:
    """Return the page with the current table in the place of its table."""
    text = PAGE.read_text(encoding="utf-8")
    return text[: text.index(_HEAD)] + table()


if __name__ == "__main__":
    PAGE.write_text(page_with_table(), encoding="utf-8")
