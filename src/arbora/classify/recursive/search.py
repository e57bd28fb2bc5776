"""Choice of C and the coupling by cross-validation, along warm-started paths.

Up to eight candidates are all tried: for each coupling the costs in rising order. Each fold starts from its
multipliers at the cost before, which are still feasible. A path ends when the score has fallen twice in a row, after
at least four costs: larger costs take long and are rarely better. Default costs go on beyond the end of their grid
while the last one is the best.

More candidates run a *race*, which costs about as much as one path on all folds:

1. on the first fold, a path of costs with the default coupling (or the nearest one);
2. on this fold, every other coupling at the best cost, and at the costs beside it if the coupling is the best so far;
3. on all folds, the best `FINALISTS` of these, of which the best is chosen.

Rows of weight 0 are in no fold. F1 counts every other row once, whatever its weight.

With a checkpoint, the multipliers of each fold and then the table of the scores are saved after each candidate; an
interrupted search repeats its decisions from the table and resumes with the next one. A fold has two names for its
multipliers in turn, so that those that belong to the last table exist until the next table is saved.

The rows of all folds and their multipliers are in memory during the whole search; `memory.search_memory` counts them
before anything is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from arbora.classify._common.training import Training
from arbora.classify._linear.coupling import Coupling
from arbora.classify._linear.linear_model import linear_scores
from arbora.classify.recursive.coupled_training import Fitted, Start, build_model, pack, train_joint, unpack
from arbora.classify.recursive.plan import Plan
from arbora.classify.thresholds import make_threshold
from arbora.core.engine import Engine
from arbora.core.input.folds import Split
from arbora.core.progress import Progress
from arbora.core.storage.checkpoint import Checkpoint
from arbora.core.warn_caller import warn_caller
from arbora.infer.linear.flat import LinearRows, prepare_rows
from arbora.metrics import macro_f1, micro_f1

SCORES = {"micro_f1": micro_f1, "macro_f1": macro_f1, "f1_micro": micro_f1, "f1_macro": macro_f1}
COARSE_TOL = 0.03  # candidates are ranked, not kept
_FEWEST_TRIED = 4  # costs of a path before it may end
_FEW_CANDIDATES = 8  # that are all tried on all folds
FINALISTS = 3  # candidates of a race that are tried on all folds
_DEFAULT_COUPLING = 0.1  # where a race begins
_MOST_BEYOND = 4  # costs tried beyond an end of the default grid
_LARGEST_FALL = 10.0  # multipliers of a cost up to this many times as large are a good start
_PIECE = "search"  # name in the checkpoint


class Fold(NamedTuple):
    """Training rows, prepared once for all candidates, and test rows."""

    seen: Training
    rows: LinearRows
    unseen: sp.csr_array
    truth: sp.csr_array


class Tried(NamedTuple):
    """A candidate, and its score and relative duality gap on every fold; nan on folds where it was not tried."""

    C: float
    which: int  # index of its coupling in the plan
    scores: list[float]
    gaps: list[float]


def tabulate(tried: Sequence[Tried], couplings: Sequence[Any], tol: float) -> dict[str, Any]:
    """Table of all candidates, with the largest gap over folds; `tol` is the tolerance of these gaps."""
    Cs, which, scores, gaps = (np.array(column) for column in zip(*tried, strict=True))
    return {
        "C": Cs,
        "coupling": [couplings[number] for number in which.tolist()],
        "mean_score": np.nanmean(scores, axis=1),
        "std_score": np.nanstd(scores, axis=1),
        "scores": scores,
        "gap": np.nanmax(gaps, axis=1),
        "converged": np.nanmax(gaps, axis=1) <= tol,
    }


def best_of(results: dict[str, Any]) -> tuple[float, Any]:
    """Cost and coupling with the best mean score among those tried on all folds; the first of equal ones."""
    complete = np.isfinite(results["scores"]).all(axis=1)
    at = int(np.argmax(np.where(complete, results["mean_score"], -np.inf)))
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


class Trials:
    """Candidates and their scores; trains each candidate once, warm-started, and saves it in the checkpoint.

    Parameters
    ----------
    folds : sequence of Fold
    plan : Plan
    engine : Engine
    checkpoint : Checkpoint, optional
    progress : Progress, optional
    """

    def __init__(
        self,
        folds: Sequence[Fold],
        plan: Plan,
        engine: Engine,
        checkpoint: Checkpoint | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.folds, self.plan, self.engine = folds, plan, engine
        self.checkpoint, self.progress = checkpoint, progress
        self.tried: list[Tried] = []
        self.last: list[tuple[float, int] | None] = [None] * len(
            folds
        )  # cost and coupling of the multipliers
        self.counts = [0] * len(folds)
        self.starts: list[Start | None] = [None] * len(folds)
        self._resume()

    def _piece_of(self, fold: int, count: int) -> str:
        return f"{_PIECE}-{fold}-{count % 2}"

    def _resume(self) -> None:
        piece = self.checkpoint.load(_PIECE) if self.checkpoint is not None else None
        if self.checkpoint is None or piece is None:
            return
        self.tried = [Tried(*columns) for columns in piece.meta["tried"]]
        self.counts = list(piece.meta["counts"])
        self.last = [last and (float(last[0]), int(last[1])) for last in piece.meta["last"]]
        for f, count in enumerate(self.counts):
            kept = self.checkpoint.load(self._piece_of(f, count)) if count else None
            self.starts[f] = None if kept is None else unpack(kept.arrays)

    def _save(self) -> None:
        if self.checkpoint is not None:
            meta = {"tried": [list(one) for one in self.tried], "counts": self.counts, "last": self.last}
            self.checkpoint.save(_PIECE, {}, meta)

    def _find(self, C: float, which: int) -> Tried:
        for candidate in self.tried:
            if (candidate.C, candidate.which) == (C, which):
                return candidate
        nothing = [float("nan")] * len(self.folds)
        self.tried.append(Tried(C, which, nothing, list(nothing)))
        return self.tried[-1]

    def _start_of(self, f: int, C: float, which: int) -> Start | None:
        """Return the last multipliers of a fold, unless they belong to a much larger cost."""
        last = self.last[f]
        good = last is not None and last[0] <= C * _LARGEST_FALL and (last[0] <= C or which != last[1])
        return self.starts[f] if good else None

    def score(self, C: float, which: int, folds: Sequence[int]) -> float:
        """Return the mean score of a candidate on some folds; train where that was not done before."""
        candidate = self._find(C, which)
        missing = [f for f in folds if np.isnan(candidate.scores[f])]
        counts = list(self.counts)
        for f in missing:
            start = self._start_of(f, C, which)
            fitted = _train_fold(self.folds[f], C, self.plan.coupled[which], self.plan, self.engine, start)
            self.starts[f] = fitted.solution.multipliers
            candidate.gaps[f] = float(fitted.relative_gap)
            candidate.scores[f] = _judge_fold(self.folds[f], fitted, self.plan, self.engine)
            del fitted  # frees memory before the next fold
            counts[f] += 1
            if self.checkpoint is not None:
                self.checkpoint.save(self._piece_of(f, counts[f]), pack(self.starts[f]))
            self.last[f] = C, which
        mean = float(np.mean([candidate.scores[f] for f in folds]))
        if missing:
            self.counts = counts
            self._save()
            if self.progress is not None:
                self.progress.update(C=C, score=mean)
        return mean


def _has_fallen(means: Sequence[float]) -> bool:
    return len(means) >= _FEWEST_TRIED and means[-1] < means[-2] < means[-3]


def follow_path(trials: Trials, which: int, folds: Sequence[int]) -> dict[float, float]:
    """Try rising costs with one coupling on some folds; return their mean scores."""
    plan, scores = trials.plan, dict[float, float]()
    Cs = sorted(set(plan.Cs))
    for C in Cs:
        if _has_fallen(list(scores.values())):
            break
        scores[C] = trials.score(C, which, folds)
    for _ in range(_MOST_BEYOND if plan.extends else 0):
        best = max(scores, key=lambda C: (scores[C], -C))
        if best == max(scores) and best >= Cs[-1]:
            C = best * Cs[-1] / Cs[-2]
        elif best == min(scores):
            C = best * Cs[0] / Cs[1]
        else:
            break
        C = float(f"{C:.3g}")
        scores[C] = trials.score(C, which, folds)
    return scores


def _beside(Cs: Sequence[float], C: float) -> list[float]:
    """Costs of a path next to one of them."""
    ordered = sorted(Cs)
    at = ordered.index(C)
    return ordered[max(0, at - 1) : at] + ordered[at + 1 : at + 2]


def run_race(trials: Trials) -> None:
    """Search cost and coupling on the first fold, then try the best few candidates on all folds."""
    couplings = trials.plan.couplings

    def distance(which: int) -> float:
        value = couplings[which]
        return abs(float(value) - _DEFAULT_COUPLING) if isinstance(value, Real) else np.inf

    first, *others = sorted(range(len(couplings)), key=distance)
    path = follow_path(trials, first, [0])
    C = max(path, key=lambda C: (path[C], -C))
    found = {(C, first): score for C, score in path.items()}
    for which in others:
        leading = max(found.values())
        found[C, which] = trials.score(C, which, [0])
        if found[C, which] > leading:
            for other in _beside(list(path), C):
                found[other, which] = trials.score(other, which, [0])
            C = max((c for c, w in found if w == which), key=lambda c: (found[c, which], -c))
    everywhere = range(len(trials.folds))
    for C, which in sorted(found, key=lambda one: -found[one])[:FINALISTS]:
        trials.score(C, which, everywhere)


def search(
    training: Training,
    plan: Plan,
    engine: Engine,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Try few candidates on every fold, or run a race among many.

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
    folds = prepare_folds(training._replace(options=training.options._replace(tol=tol)), plan.splits)
    trials = Trials(folds, plan, engine, checkpoint, progress)
    if len(set(plan.Cs)) * len(plan.couplings) > _FEW_CANDIDATES:
        run_race(trials)
    else:
        for which in range(len(plan.couplings)):
            follow_path(trials, which, range(len(folds)))
    return tabulate(trials.tried, plan.couplings, tol)
