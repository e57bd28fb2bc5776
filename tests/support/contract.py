"""What the contract tests need to know of an estimator: a tiny problem, arguments, and what it reduces to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Data(NamedTuple):
    """A tiny problem whose truth is known: items to fit on, what to fit to (if anything), items to predict."""

    X: Any
    y: Any
    X_new: Any
    y_new: Any


class Row(NamedTuple):
    """What the contract tests need to know of an estimator.

    `exact` are the arguments with which two fits of the same problem agree to rounding, for the checks that
    demand it. `reduces(data)` returns what the model should give and what a known model gives, to be compared.
    """

    cls: type
    arguments: dict[str, Any]
    exact: dict[str, Any]
    data: Callable[[], Data]
    reduces: Callable[[Data], tuple[Any, Any]]
    numeric: bool = True  # items are rows of numbers, so that scikit-learn's checks apply
    quick: dict[str, Any] = {}  # arguments for scikit-learn's checks, which fit hundreds of times
    excused: dict[str, str] = {}  # checks of scikit-learn that the model cannot pass, and why
    repeats: bool = False  # a weight of two is a row twice to seven digits, whatever `tol`
    sparse_is_text: bool = False  # sparse rows are divided by their lengths, and not centred: another model

    def make(self, **changes: Any) -> Any:
        return self.cls(**{**self.arguments, **changes})
