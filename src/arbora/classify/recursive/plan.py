"""Candidates, folds and score of a search, checked before anything is trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from arbora.classify.cost_choice import unit_cost
from arbora.classify.recursive.coupling import Coupling
from arbora.classify.training import Training
from arbora.core.folds import Split, cv_splits


class Plan(NamedTuple):
    """Candidates, folds and score of a search."""

    Cs: Sequence[float]
    couplings: Sequence[Any]
    coupled: Sequence[Coupling]  # factors of these couplings
    splits: Sequence[Split]
    scoring: str
    threshold: Any  # for label sets; None for one label per row
    prune_below: float | None
    extends: bool = False  # whether the costs may go on beyond both ends
    unit: float = 1.0  # cost that fits the length of the rows, where a race begins

    def coupling_of(self, coupling: Any) -> Coupling:
        """Factor of one of the couplings."""
        return next(
            coupled for value, coupled in zip(self.couplings, self.coupled, strict=True) if value is coupling
        )


def check_costs(Cs: Any) -> list[float]:
    """Refuse an empty path, and costs that are not positive finite numbers."""
    costs = np.asarray(Cs)
    numbers = costs.ndim == 1 and costs.size > 0 and costs.dtype.kind in "iuf"
    if not numbers or not ((costs > 0) & (costs < np.inf)).all():
        raise ValueError(f"Cs={Cs!r}: give at least one cost; costs are finite numbers above 0.")
    return list(costs.astype(float).tolist())


def refuse_splits_of_other_rows(cv: Any, kept: Sequence[Split], n_before: int, n_samples: int) -> None:
    """Refuse the splits that a loaded model has in place of its splitter, if the number of rows has changed."""
    if n_samples == n_before or not isinstance(cv, list) or len(cv) != len(kept):
        return
    sides = [(a, b) for given, split in zip(cv, kept, strict=True) for a, b in zip(given, split, strict=True)]
    if all(np.array_equal(a, b) for a, b in sides):
        raise ValueError(
            f"cv holds the splits of the {n_before} rows that this model was fitted on before it was saved, but X "
            f"has {n_samples} rows: set cv again, for instance set_params(cv=3)."
        )


def make_plan(estimator: Any, training: Training, couple_by: Callable[[Any], Coupling]) -> Plan:
    """Check the candidates of the cross-validation; without one, the plan has the given coupling only.

    All couplings are computed here, so that a bad one is refused before anything is trained. A numeric `C` is part of
    the costs already.

    Parameters
    ----------
    estimator : RecursiveSVC or RecursiveLogisticRegression
    training : Training
        With all rows.
    couple_by : callable
        Returns the `Coupling` of a value of the parameter.
    """
    search_C, search_coupling = estimator.C == "cv", isinstance(estimator.coupling, str)
    if not search_C and not search_coupling:
        return Plan([], [estimator.coupling], [couple_by(estimator.coupling)], [], "", None, None)
    Cs = check_costs(estimator.Cs) if search_C else [1.0]
    couplings = list(estimator.couplings) if search_coupling else [estimator.coupling]
    if not couplings:
        raise ValueError("couplings is empty: give at least one, for instance 0.0, which is flat training.")
    if hasattr(estimator, "cv_splits_") and not hasattr(estimator, "_split_by"):  # a loaded model
        n_before = estimator.cv_n_samples_
        refuse_splits_of_other_rows(estimator.cv, estimator.cv_splits_, n_before, training.X.shape[0])
    splits = cv_splits(estimator.cv, training.positives, training.row_cost > 0, training.options.seed)
    threshold = estimator.threshold if estimator._multilabel else None
    coupled = [couple_by(value) for value in couplings]
    default = inspect.signature(type(estimator).__init__).parameters["Cs"].default
    extends = search_C and Cs == list(default)
    unit = unit_cost(training) if search_C else 1.0
    return Plan(
        Cs, couplings, coupled, splits, estimator.scoring, threshold, estimator.prune_below, extends, unit
    )
