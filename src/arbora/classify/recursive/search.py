"""Choice of C and the coupling by cross-validation: a search that costs a few fits.

Up to eight given candidates are all tried on all folds: for each coupling the costs in rising order, until the score
has fallen twice in a row, after at least four costs.

The default costs, and more candidates than eight, are searched by coordinate (`run_race`):

1. On the first fold, with the default coupling (or the nearest one), the search climbs from the cost that fits the
   length of the rows (`auto_cost.unit_cost`) to larger costs while the score gains more than noise, or else to
   smaller ones. The ladder of the default costs, 1, 3, 10, 30, ..., goes on in both directions.
2. At the best cost it climbs in the same way to stronger couplings, or else to weaker ones. If the coupling changes,
   it climbs again from this cost.
3. Those of the candidates that are not clearly worse than the best one, at most `FINALISTS`, are tried on the second
   fold, then on the third. After each fold those that are clearly worse are dropped.

Noise is the standard error of a paired comparison on the same held-out rows (`trials.evidence`). A large cost is
expensive and rarely better than the one before: climbing by evidence avoids most of them.

Rows of weight 0 are in no fold. F1 counts every other row once, whatever its weight. The rows of all folds and their
multipliers are in memory during the whole search; `memory.search_memory` counts them before anything is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from arbora.classify.recursive.coupling import Coupling
from arbora.classify.recursive.plan import Plan
from arbora.classify.recursive.trials import COARSE_TOL, MOST_ROUNDS, Pair, Trials, Tried, prepare_folds
from arbora.classify.training import Training
from arbora.core.checkpoint import Checkpoint
from arbora.core.engine import Engine
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress

_FEWEST_TRIED = 4  # costs of a path before it may end
_FEW_CANDIDATES = 8  # that are all tried on all folds
_ROUGH = 0.5  # relative duality gap of a fit whose answers say little
FINALISTS = 3  # candidates of a race that are tried on more than one fold
_DEFAULT_COUPLING = 0.1  # where a race begins
_CLEAR = 1.0  # standard errors by which a candidate is clearly worse
_WORTH = 0.5  # standard errors that a larger cost or coupling must gain,
_LEAST_GAIN = 0.02  # and share of the score, or of what it lacks to 1, whichever is smaller
_MOST_STEPS = 8  # of a climb on the ladder of the default costs


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
    """Cost and coupling with the best mean score among those tried on most folds; the first of equal ones."""
    n_folds = np.isfinite(results["scores"]).sum(axis=1)
    at = int(np.argmax(np.where(n_folds == n_folds.max(), results["mean_score"], -np.inf)))
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


def warn_of_rough_fits(results: dict[str, Any]) -> None:
    """Warn if training ended far from the optimum for most candidates: their order may then be wrong."""
    rough = results["gap"] > _ROUGH
    if 2 * rough.sum() > len(rough):
        warn_caller(
            f"{rough.sum()} of {len(rough)} candidates of the cross-validation were far from their optimum after "
            f"{MOST_ROUNDS} rounds (relative duality gaps up to {results['gap'].max():.2g}): the choice of C and "
            "coupling may be poor. Scale the features, or give smaller Cs.",
            ConvergenceWarning,
        )


def warn_of_end(results: dict[str, Any], plan: Plan) -> None:
    """Warn if the best of three or more costs is the last one, and clearly better than the one before."""
    C, coupling = best_of(results)
    costs = Ladder(plan).Cs
    if C not in (costs[0], costs[-1]) or len(costs) < 3:
        return
    inner = costs[1] if costs[0] == C else costs[-2]
    same = np.array([value is coupling for value in results["coupling"]])
    scores = [results["scores"][same & (results["C"] == cost)] for cost in (C, inner)]
    if not all(map(len, scores)) or not np.nanmean(scores[0] - scores[1]) > 2 * _LEAST_GAIN * np.nanmean(
        scores[1]
    ):
        return
    side, more = ("largest", "larger") if costs[-1] == C else ("smallest", "smaller")
    advice = "scale the features" if plan.extends else f"add {more} ones to Cs, or leave Cs at its default"
    warn_caller(
        f"C='cv' chose the {side} cost, {C:g}, and the score still rose there: a {more} one may be better. To try "
        f"it, {advice}.",
        UserWarning,
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
    if estimator.max_iter <= MOST_ROUNDS:  # otherwise coarse training ended on purpose
        warn_of_open_gaps(estimator.cv_results_, estimator.max_iter)
    else:
        warn_of_rough_fits(estimator.cv_results_)
    C, estimator.coupling_ = best_of(results)
    if estimator.C == "cv":
        estimator.C_ = C
        warn_of_end(results, plan)
    return plan.coupling_of(estimator.coupling_)


def _has_fallen(means: Sequence[float]) -> bool:
    return len(means) >= _FEWEST_TRIED and means[-1] < means[-2] < means[-3]


def follow_path(trials: Trials, which: int) -> None:
    """Try rising costs with one coupling on all folds."""
    means, folds = list[float](), range(len(trials.folds))
    for C in sorted(set(trials.plan.Cs)):
        if _has_fallen(means):
            break
        means.append(trials.score(C, which, folds))


class Ladder:
    """The costs of a plan in rising order; default costs go on beyond both ends.

    Examples
    --------
    >>> plan = Plan([0.1, 1.0], [0.1], [], [], "macro_f1", None, None, unit=0.4)
    >>> given = Ladder(plan)
    >>> given.start, given.beside(1.0, -1), given.beside(1.0, 1)
    (1.0, 0.1, None)
    >>> default = Ladder(plan._replace(extends=True))
    >>> default.start, default.beside(0.3, -1), default.beside(30.0, 1)
    (0.3, 0.1, 100.0)
    """

    def __init__(self, plan: Plan) -> None:
        self.Cs = sorted(set(plan.Cs))
        middle = round(2 * float(np.log10(plan.unit)))
        if plan.extends:
            self.Cs = [_rung(k) for k in range(middle - _MOST_STEPS, middle + _MOST_STEPS + 1)]
        self.start = min(self.Cs, key=lambda C: abs(np.log(C / plan.unit)))

    def beside(self, C: float, step: int) -> float | None:
        """Return the next cost in a direction, or None at an end."""
        at = self.Cs.index(C) + step
        return self.Cs[at] if 0 <= at < len(self.Cs) else None


def _rung(k: int) -> float:
    """Return number k of 1, 3, 10, 30, ..."""
    return float(f"{1 + 2 * (k % 2)}e{k // 2}")


def climb(trials: Trials, start: Pair, beside: Callable[[Pair, int], Pair | None]) -> Pair:
    """Climb on the first fold from a candidate in one direction, or else in the other; return the best one.

    Parameters
    ----------
    trials : Trials
    start : pair
    beside : callable
        Returns the next candidate in a direction (1 or -1), or None at an end.
    """
    best = start
    for step in (1, -1):
        while (tried := beside(best, step)) is not None:
            score = trials.score(*best, [0])
            gain, error = trials.gain(tried, best, [0])
            least = max(_WORTH * error, _LEAST_GAIN * min(score, 1 - score)) if step == 1 else 0.0
            found_nothing = step == 1 and score == gain == 0
            if gain <= least and not found_nothing:
                break
            best = tried
        if best != start:
            break
    return best


def _climb_couplings(trials: Trials, start: Pair) -> Pair:
    """Climb to the best coupling; values that are not numbers have no order and are all tried."""
    couplings = trials.plan.couplings
    order = sorted(
        (w for w, value in enumerate(couplings) if isinstance(value, Real)), key=lambda w: float(couplings[w])
    )

    def beside(pair: Pair, step: int) -> Pair | None:
        at = order.index(pair[1]) + step
        return (pair[0], order[at]) if 0 <= at < len(order) else None

    best = climb(trials, start, beside) if start[1] in order else start
    for which in set(range(len(couplings))) - set(order):
        if trials.score(best[0], which, [0]) > trials.score(*best, [0]):
            best = best[0], which
    return best


def run_race(trials: Trials) -> None:
    """Search cost and coupling by coordinate on the first fold; try the best few candidates on more folds."""
    couplings, ladder = trials.plan.couplings, Ladder(trials.plan)

    def distance(which: int) -> float:
        value = couplings[which]
        return abs(float(value) - _DEFAULT_COUPLING) if isinstance(value, Real) else np.inf

    def beside(pair: Pair, step: int) -> Pair | None:
        C = ladder.beside(pair[0], step)
        return None if C is None else (C, pair[1])

    first = min(range(len(couplings)), key=distance)
    best = climb(trials, (ladder.start, first), beside)
    leading = _climb_couplings(trials, best)
    if leading[1] != best[1]:
        climb(trials, leading, beside)
    run_finals(trials)


def run_finals(trials: Trials) -> None:
    """Try the candidates that are not clearly worse than the best one on further folds, one fold at a time."""
    folds, left = [0], [(one.C, one.which) for one in trials.tried]
    for f in range(1, len(trials.folds) + 1):
        left.sort(key=lambda pair: -trials.score(pair[0], pair[1], folds))
        gains = [trials.gain(pair, left[0], folds) for pair in left]
        close = [pair for pair, (gain, error) in zip(left, gains, strict=True) if gain >= -_CLEAR * error]
        left = close[:FINALISTS]
        if len(left) == 1 or f == len(trials.folds):
            break
        for pair in sorted(left):  # rising costs are warm starts
            trials.score(*pair, [f])
        folds.append(f)


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
    options = training.options
    tol, max_iter = max(options.tol, COARSE_TOL), min(options.max_iter, MOST_ROUNDS)
    coarse = training._replace(options=options._replace(tol=tol, max_iter=max_iter))
    trials = Trials(prepare_folds(coarse, plan.splits), plan, engine, checkpoint, progress)
    if plan.extends or len(set(plan.Cs)) * len(plan.couplings) > _FEW_CANDIDATES:
        run_race(trials)
    else:
        for which in range(len(plan.couplings)):
            follow_path(trials, which)
    return tabulate(trials.tried, plan.couplings, tol)
