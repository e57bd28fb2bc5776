"""Choice of C and the coupling by cross-validation, along warm-started paths.

For each coupling the costs are tried in rising order. Each fold starts from its multipliers at the cost before, which
are still feasible. A path ends when the score has fallen twice in a row, after at least four costs: larger costs take
long and are rarely better.

Rows of weight 0 are in no fold. F1 counts every other row once, whatever its weight.

With a checkpoint, the multipliers of each fold and then the table of the candidates are saved after each candidate;
an interrupted search resumes with the next one. Multipliers of odd and even candidates have different names, so that
those that belong to the last table exist until the next table is saved.

The rows of all folds and their multipliers are in memory during the whole search; `memory.search_memory` counts them
before anything is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from arbora.classify._common.training import Training
from arbora.classify._linear.coupling import Coupling
from arbora.classify._linear.linear_model import linear_scores
from arbora.classify.recursive.coupled_training import Fitted, Start, build_model, pack, train_joint, unpack
from arbora.classify.thresholds import make_threshold
from arbora.core.engine import Engine
from arbora.core.input.folds import Split, cv_splits
from arbora.core.progress import Progress
from arbora.core.storage.checkpoint import Checkpoint
from arbora.core.warn_caller import warn_caller
from arbora.infer.linear.flat import LinearRows, prepare_rows
from arbora.metrics import macro_f1, micro_f1

SCORES = {"micro_f1": micro_f1, "macro_f1": macro_f1, "f1_micro": micro_f1, "f1_macro": macro_f1}
COARSE_TOL = 0.03  # candidates are ranked, not kept
_FEWEST_TRIED = 4  # costs of a path before it may end
_PIECE = "search"  # name in the checkpoint


class Plan(NamedTuple):
    """Candidates, folds and score of a search."""

    Cs: Sequence[float]
    couplings: Sequence[Any]
    coupled: Sequence[Coupling]  # factors of these couplings
    splits: Sequence[Split]
    scoring: str
    threshold: Any  # for label sets; None for one label per row
    prune_below: float | None

    def coupling_of(self, coupling: Any) -> Coupling:
        """Factor of one of the couplings."""
        return next(
            coupled for value, coupled in zip(self.couplings, self.coupled, strict=True) if value is coupling
        )


class Fold(NamedTuple):
    """Training rows, prepared once for all candidates, and test rows."""

    seen: Training
    rows: LinearRows
    unseen: sp.csr_array
    truth: sp.csr_array


class Tried(NamedTuple):
    """A candidate, and its score and relative duality gap on every fold."""

    C: float
    which: int  # index of its coupling in the plan
    scores: list[float]
    gaps: list[float]


def check_costs(Cs: Any) -> list[float]:
    """Refuse an empty path, and costs that are not positive finite numbers."""
    costs = np.asarray(Cs)
    numbers = costs.ndim == 1 and costs.size > 0 and costs.dtype.kind in "iuf"
    if not numbers or not ((costs > 0) & (costs < np.inf)).all():
        raise ValueError(f"Cs={Cs!r}: give at least one cost; costs are finite numbers above 0.")
    return list(costs.astype(float).tolist())


def tabulate(tried: Sequence[Tried], couplings: Sequence[Any], tol: float) -> dict[str, Any]:
    """Table of all candidates, with the largest gap over folds; `tol` is the tolerance of these gaps."""
    Cs, which, scores, gaps = (np.array(column) for column in zip(*tried, strict=True))
    return {
        "C": Cs,
        "coupling": [couplings[number] for number in which.tolist()],
        "mean_score": scores.mean(axis=1),
        "std_score": scores.std(axis=1),
        "scores": scores,
        "gap": gaps.max(axis=1),
        "converged": gaps.max(axis=1) <= tol,
    }


def best_of(results: dict[str, Any]) -> tuple[float, Any]:
    """Cost and coupling with the best mean score; the first of equal ones."""
    at = int(np.argmax(results["mean_score"]))
    return float(results["C"][at]), results["coupling"][at]


def warn_of_open_gaps(results: dict[str, Any], max_iter: int) -> None:
    """Warn once, with the candidates that have not converged."""
    still_open = np.flatnonzero(~results["converged"])
    if still_open.size:
        names = [f"C={results['C'][at]:g} with coupling={results['coupling'][at]}" for at in still_open[:5]]
        more = f" and {still_open.size - 5} more" if still_open.size > 5 else ""
        warn_caller(
            f"{still_open.size} of {len(results['C'])} candidates of the cross-validation reached "
            f"max_iter={max_iter} rounds on a fold, with relative duality gaps up to {results['gap'].max():.2g}: "
            f"{', '.join(names)}{more}. Their scores may be off: increase max_iter, or leave out the largest Cs.",
            ConvergenceWarning,
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
    return Plan(Cs, couplings, coupled, splits, estimator.scoring, threshold, estimator.prune_below)


def select(
    estimator: Any, training: Training, plan: Plan, engine: Engine, checkpoint: Checkpoint | None
) -> Coupling:
    """Set `C_` and `coupling_` of an estimator, by cross-validation if the plan has folds; return the coupling."""
    if estimator.C != "auto":  # which is in C_ already
        estimator.C_ = estimator.C
    estimator.coupling_ = estimator.coupling
    for name in ("cv_results_", "cv_splits_", "cv_n_samples_"):
        estimator.__dict__.pop(name, None)
    if not plan.splits:
        return plan.coupled[0]
    with Progress(None, "candidates", estimator.verbose) as progress:
        results = search(training, plan, engine, checkpoint, progress)
    given = 1.0 if estimator.C == "cv" else estimator.C_  # a given C is part of the costs
    estimator.cv_results_ = {**results, "C": results["C"] * given}
    if not isinstance(estimator.cv, Integral | None):
        estimator.cv_splits_, estimator.cv_n_samples_ = plan.splits, training.X.shape[0]
    estimator._split_by = estimator.cv
    warn_of_open_gaps(estimator.cv_results_, estimator.max_iter)
    C, estimator.coupling_ = best_of(results)
    if estimator.C == "cv":
        estimator.C_ = C
    return plan.coupling_of(estimator.coupling_)


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


def prepare_folds(training: Training, parts: Sequence[Split]) -> list[Fold]:
    """Prepare the rows of every fold, once for all candidates."""
    options, prepared = training.options, []
    for inside, outside in parts:
        seen = training.with_rows(inside)
        rows = prepare_rows(seen.X, options.dtype, options.bias)
        prepared.append(Fold(seen, rows, training.X[outside], training.positives[outside]))
    return prepared


def _train_fold(
    fold: Fold, C: float, coupling: Coupling, plan: Plan, engine: Engine, start: Start | None
) -> Fitted:
    seen = fold.seen._replace(row_cost=fold.seen.row_cost * C)
    return train_joint(seen, coupling, engine, rows=fold.rows, dense=plan.prune_below is None, start=start)


def _judge_fold(fold: Fold, fitted: Fitted, plan: Plan, engine: Engine) -> float:
    scores = linear_scores(fold.unseen, build_model(fitted, plan.prune_below), engine)
    return _judge(scores, fold.truth, plan)


def _judge(scores: NDArray[Any], truth: sp.csr_array, plan: Plan) -> float:
    measure = SCORES[plan.scoring]
    if plan.threshold is None:
        return float(measure(truth.indices, scores.argmax(axis=1)))
    threshold = make_threshold(plan.threshold)
    if threshold.learns:
        threshold.fit(scores, truth.astype(bool), np.ones(scores.shape[1], bool))
    return float(measure(truth.astype(np.int64), threshold.predict(scores).astype(np.int64)))


def _has_fallen(path: Sequence[Tried]) -> bool:
    means = [float(np.mean(candidate.scores)) for candidate in path[-3:]]
    return len(path) >= _FEWEST_TRIED and means[2] < means[1] < means[0]


def _piece_of(fold: int, n_tried: int) -> str:
    """Name of the multipliers of a fold after a candidate."""
    return f"{_PIECE}-{fold}-{n_tried % 2}"


def _resume(checkpoint: Checkpoint | None, n_folds: int) -> tuple[list[Tried], list[Start | None]]:
    piece = checkpoint.load(_PIECE) if checkpoint is not None else None
    if checkpoint is None or piece is None:
        return [], [None] * n_folds
    tried = [Tried(*columns) for columns in piece.meta["tried"]]
    kept = [checkpoint.load(_piece_of(f, len(tried))) for f in range(n_folds)]
    return tried, [None if piece is None else unpack(piece.arrays) for piece in kept]


def search(
    training: Training,
    plan: Plan,
    engine: Engine,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Try every coupling with rising costs, and score each pair on every fold.

    Parameters
    ----------
    training : Training
        With the costs of C = 1.
    plan : Plan
    engine : Engine
    checkpoint : Checkpoint, optional
        Finished candidates are saved there, and loaded from there.
    progress : Progress, optional

    Returns
    -------
    dict
        The table of `tabulate`.
    """
    tol = max(training.options.tol, COARSE_TOL)
    prepared = prepare_folds(training._replace(options=training.options._replace(tol=tol)), plan.splits)
    tried, starts = _resume(checkpoint, len(prepared))
    Cs = sorted(set(plan.Cs))
    for which, coupling in enumerate(plan.coupled):
        path = [candidate for candidate in tried if candidate.which == which]
        if not path:
            starts = [None] * len(prepared)
        for C in Cs[len(path) :]:
            if _has_fallen(path):
                break
            scores, gaps = [], []
            for f, fold in enumerate(prepared):
                fitted = _train_fold(fold, C, coupling, plan, engine, starts[f])
                starts[f] = fitted.solution.multipliers
                gaps.append(float(fitted.relative_gap))
                scores.append(_judge_fold(fold, fitted, plan, engine))
                del fitted  # frees memory before the next fold
                if checkpoint is not None:
                    checkpoint.save(_piece_of(f, len(tried) + 1), pack(starts[f]))
            path.append(Tried(C, which, scores, gaps))
            tried.append(path[-1])
            if checkpoint is not None:
                checkpoint.save(_PIECE, {}, {"tried": [list(candidate) for candidate in tried]})
            if progress is not None:
                progress.update(C=C, score=float(np.mean(scores)))
    return tabulate(tried, plan.couplings, tol)
