"""Choice of C and the coupling by cross-validation: a search that costs a few fits.

Up to eight given candidates are all tried on all folds: for each coupling the costs in rising order, until the score
has fallen twice in a row, after at least four costs.

The default costs, and more candidates than eight, are searched by coordinate (`run_race`):

1. On the first fold, with the default coupling (or the nearest one), the search climbs from the cost that fits the
   length of the rows (`cost_choice.unit_cost`) to larger costs while the score gains more than noise, or else to
   smaller ones. The ladder of the default costs, 1, 3, 10, 30, ..., goes on in both directions.
2. At the best cost it climbs in the same way to stronger couplings, or else to weaker ones. If the coupling changes,
   it climbs again from this cost.
3. Those of the candidates that are not clearly worse than the best one, at most `FINALISTS`, are tried on the second
   fold, then on the third. After each fold those that are clearly worse are dropped.

Noise is the standard error of a paired comparison on the same held-out rows (`evidence`). A large cost is
expensive and rarely better than the one before: climbing by evidence avoids most of them.

Rows of weight 0 are in no fold. F1 counts every other row once, whatever its weight. The rows of all folds and their
multipliers are in memory during the whole search; `training.search_memory` counts them before anything is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions

from arbora.arrays import Array, Matrix
from arbora.classify.cost_choice import unit_cost
from arbora.classify.linear import linear_scores
from arbora.classify.recursive.coupling import DEFAULT_COUPLING, Coupling, read_coupling
from arbora.classify.recursive.training import Fitted, Start, build_model, pack, train_joint, unpack
from arbora.classify.thresholds import make_threshold
from arbora.classify.training import Training
from arbora.core.checkpoint import Checkpoint
from arbora.core.engine import Engine
from arbora.core.estimator import warn_caller
from arbora.core.folds import Split, cv_splits
from arbora.core.monitor import Progress
from arbora.infer.linear.rows import LinearRows, prepare_rows
from arbora.metrics import macro_f1, micro_f1

# --- Candidates, folds and score of a search, checked before anything is trained ----------------------------


SCORES = {"micro_f1": micro_f1, "macro_f1": macro_f1, "f1_micro": micro_f1, "f1_macro": macro_f1}


class Search(NamedTuple):
    """Options of the parameter `search`."""

    costs: Any = None  # None: the ladder 1, 3, 10, 30, ... in both directions
    couplings: Any = (0.0, 0.1, 0.3, 1.0)
    cv: Any = 3
    scoring: str = "macro_f1"


SEARCH_CONSTRAINTS: dict[str, list[Any]] = {
    "costs": ["array-like", None],
    "couplings": ["array-like"],
    "cv": ["cv_object"],
    "scoring": [StrOptions(set(SCORES))],
}


class Plan(NamedTuple):
    """Candidates, folds and score of a search."""

    Cs: Sequence[float]  # empty for the default ladder, and where the one cost is not known yet
    couplings: Sequence[Any]
    coupled: Sequence[Coupling]  # factors of these couplings
    fade: float | None  # of these couplings
    splits: Sequence[Split]
    scoring: str
    threshold: Any  # for label sets; None for one label per row
    prune_below: float | None
    extends: bool = False  # whether the costs may go on beyond both ends
    unit: float = 1.0  # cost that fits the length of the rows, where a race begins

    def identity(self) -> tuple[Any, ...]:
        """Return what the result of the search depends on."""
        return self.Cs, self.couplings, self.splits, self.scoring


def check_costs(values: Any) -> list[float]:
    """Refuse an empty path, and costs that are not positive finite numbers."""
    costs = np.asarray(values)
    numbers = costs.ndim == 1 and costs.size > 0 and costs.dtype.kind in "iuf"
    if not numbers or not ((costs > 0) & (costs < np.inf)).all():
        raise ValueError(f"costs={values!r} of search: give at least one; costs are finite numbers above 0.")
    return list(costs.astype(float).tolist())


def refuse_splits_of_other_rows(cv: Any, splits: Sequence[Split], n_before: int, n_samples: int) -> None:
    """Refuse the splits that a loaded model has in place of its splitter, if the number of rows has changed."""
    if n_samples == n_before or not isinstance(cv, list) or len(cv) != len(splits):
        return
    sides = [(a, b) for pair, split in zip(cv, splits, strict=True) for a, b in zip(pair, split, strict=True)]
    if all(np.array_equal(a, b) for a, b in sides):
        raise ValueError(
            f"cv of search holds the splits of the {n_before} rows that this model was fitted on before it was "
            f"saved, but X has {n_samples} rows: set it again, for instance set_params(search={{'cv': 3}})."
        )


def make_plan(
    C: Any,
    coupling: Any,
    search: Search,
    training: Training,
    couple_by: Callable[[Any, float | None], Coupling],
    *,
    threshold: Any,
    prune_below: float | None,
) -> Plan:
    """Check the candidates of the cross-validation; without one, the plan has the given cost and coupling only.

    All couplings are computed here, so that a bad one is refused before anything is trained. `training` has all rows
    and the costs of C = 1; `couple_by` returns the `Coupling` of a coupling and a fade; `threshold` is None for one
    label per row.
    """
    value, fade = read_coupling(coupling)
    is_searched = isinstance(coupling, str)
    couplings = list(search.couplings) if is_searched else [value]
    if not couplings:
        raise ValueError("couplings is empty: give at least one, for instance 0.0, which is flat training.")
    extends = C == "cv" and search.costs is None
    Cs = [] if extends or C == "auto" else check_costs(search.costs) if C == "cv" else [float(C)]
    coupled = [couple_by(value, fade) for value in couplings]
    plan = Plan(Cs, couplings, coupled, fade, [], search.scoring, threshold, prune_below, extends)
    if C != "cv" and not is_searched:
        return plan
    splits = cv_splits(search.cv, training.positives, training.row_cost > 0, training.options.seed)
    return plan._replace(splits=splits, unit=unit_cost(training) if C == "cv" else 1.0)


# --- Candidates of a search: trained on folds along warm-started paths, judged on the other rows, and kept ---
#
# A fold starts from the multipliers of its last candidate, which are feasible for a larger cost and a good start for
# another coupling. Candidates are ranked, not kept: training ends at a relative gap of `COARSE_TOL`, or after
# `MAX_ROUNDS` rounds. More rounds with a large cost mostly fit the training rows more closely and hardly change the
# answers; where gaps stay so large that they may, the search warns (`warn_of_rough_fits`).
#
# The `evidence` of a candidate on a fold is what a paired comparison needs: the F1 of every class (macro-F1), or the
# share of every row in the score (micro-F1).
#
# With a checkpoint, the multipliers of each fold and then the table of the scores are saved after each candidate; an
# interrupted search repeats its decisions from the table and resumes with the next one. A fold has two names for its
# multipliers in turn, so that those that belong to the last table exist until the next table is saved.


COARSE_TOL = 0.1
MAX_ROUNDS = 30
_MAX_FALL = 10.0  # multipliers of a cost up to this many times as large are a good start
_PIECE = "search"  # name in the checkpoint

Pair = tuple[float, int]  # a cost, and the index of a coupling in the plan


class Fold(NamedTuple):
    """Training rows, prepared once for all candidates, and test rows."""

    seen: Training
    rows: LinearRows
    unseen: sp.csr_array
    truth: sp.csr_array


class Tried(NamedTuple):
    """A candidate, and its score and relative duality gap on every fold; nan on folds where it was not tried."""

    C: float
    coupling_id: int  # index of its coupling in the plan
    scores: list[float]
    gaps: list[float]


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
    return train_joint(
        fold.seen.with_cost(C), coupling, engine, rows=fold.rows, dense=plan.prune_below is None, start=start
    )


class Judged(NamedTuple):
    """Score of a candidate on a fold, and the values whose mean it is: of classes, or of rows."""

    score: float
    values: Array


def evidence(truth: sp.csr_array, answers: sp.csr_array, macro: bool) -> Array:
    """Return the F1 of every class, or the linearised share of every row in the micro-F1, whose mean it is.

    `truth` and `answers` (n_rows x n_classes) indicate the true and the predicted labels.
    """
    axis = 0 if macro else 1
    true, predicted = truth.astype(np.float64), answers.astype(np.float64)
    hits = np.asarray(true.multiply(predicted).sum(axis=axis))
    sizes = np.asarray(true.sum(axis=axis) + predicted.sum(axis=axis))
    if macro:
        return np.asarray(2 * hits / np.maximum(sizes, 1))
    total = max(1.0, float(sizes.sum()))
    f1 = 2 * float(hits.sum()) / total
    return np.asarray(f1 + len(sizes) * (2 * hits - f1 * sizes) / total)


def standard_error(a: Array, b: Array) -> float:
    """Return the standard error of the difference of two means over the same classes or rows."""
    return float(np.std(a - b) / np.sqrt(max(1, len(a) - 1)))


def _judge_fold(fold: Fold, fitted: Fitted, plan: Plan, engine: Engine) -> Judged:
    scores = linear_scores(fold.unseen, build_model(fitted, plan.prune_below), engine)
    return _judge(scores, fold.truth, plan)


def _judge(scores: Matrix, truth: sp.csr_array, plan: Plan) -> Judged:
    measure = SCORES[plan.scoring]
    if plan.threshold is None:
        answer = scores.argmax(axis=1)
        answers = sp.csr_array((np.ones(len(answer)), answer, np.arange(len(answer) + 1)), shape=truth.shape)
        if measure is macro_f1:  # over the classes of the fold, the same for all candidates
            present = np.unique(truth.indices)
            values = evidence(truth[:, present], answers[:, present], macro=True)
            return Judged(float(values.mean()) if len(values) else 0.0, values)
        score = float(measure(truth.indices, answer))
    else:
        threshold = make_threshold(plan.threshold)
        if threshold.learns:
            threshold.fit(scores, truth.astype(bool), np.ones(scores.shape[1], bool))
        answers = threshold.predict(scores).astype(np.int64)
        score = float(measure(truth.astype(np.int64), answers))
    return Judged(score, evidence(truth, answers, measure is macro_f1))


class Trials:
    """Candidates and their scores; trains each candidate once, warm-started, and saves it in the checkpoint."""

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
        # Cost and coupling of the last multipliers of each fold.
        self.last: list[tuple[float, int] | None] = [None] * len(folds)
        self.counts = [0] * len(folds)
        self.starts: list[Start | None] = [None] * len(folds)
        self.values: dict[tuple[int, int], Array] = {}  # evidence by candidate and fold
        self._resume()

    def _piece_of(self, fold: int, count: int) -> str:
        return f"{_PIECE}-{fold}-{count % 2}"

    def _resume(self) -> None:
        piece = self.checkpoint.load(_PIECE) if self.checkpoint is not None else None
        if self.checkpoint is None or piece is None:
            return
        self.tried = [Tried(*columns) for columns in piece.meta["tried"]]
        self.counts = list(piece.meta["counts"])
        for name, values in piece.arrays.items():
            number, f = map(int, name.split("-"))
            self.values[number, f] = values
        self.last = [last and (float(last[0]), int(last[1])) for last in piece.meta["last"]]
        for f, count in enumerate(self.counts):
            stored = self.checkpoint.load(self._piece_of(f, count)) if count else None
            self.starts[f] = None if stored is None else unpack(stored.arrays)

    def _save(self) -> None:
        if self.checkpoint is not None:
            meta = {
                "tried": [list(candidate) for candidate in self.tried],
                "counts": self.counts,
                "last": self.last,
            }
            values = {f"{number}-{f}": values for (number, f), values in self.values.items()}
            self.checkpoint.save(_PIECE, values, meta)

    def _find(self, C: float, coupling_id: int) -> int:
        """Position of a candidate in the table; a new one is added."""
        for number, candidate in enumerate(self.tried):
            if (candidate.C, candidate.coupling_id) == (C, coupling_id):
                return number
        nothing = [float("nan")] * len(self.folds)
        self.tried.append(Tried(C, coupling_id, nothing, list(nothing)))
        return len(self.tried) - 1

    def _start_of(self, f: int, C: float, coupling_id: int) -> Start | None:
        """Return the last multipliers of a fold, unless they belong to a much larger cost."""
        last = self.last[f]
        good = last is not None and last[0] <= C * _MAX_FALL and (last[0] <= C or coupling_id != last[1])
        return self.starts[f] if good else None

    def score(self, C: float, coupling_id: int, folds: Sequence[int]) -> float:
        """Return the mean score of a candidate on some folds; train where that was not done before."""
        number = self._find(C, coupling_id)
        candidate = self.tried[number]
        missing = [f for f in folds if np.isnan(candidate.scores[f])]
        counts = list(self.counts)
        for f in missing:
            start = self._start_of(f, C, coupling_id)
            fitted = _train_fold(
                self.folds[f], C, self.plan.coupled[coupling_id], self.plan, self.engine, start
            )
            self.starts[f] = fitted.solution.multipliers
            candidate.gaps[f] = float(fitted.relative_gap)
            candidate.scores[f], self.values[number, f] = _judge_fold(
                self.folds[f], fitted, self.plan, self.engine
            )
            del fitted  # frees memory before the next fold
            counts[f] += 1
            if self.checkpoint is not None:
                self.checkpoint.save(self._piece_of(f, counts[f]), pack(self.starts[f]))
            self.last[f] = C, coupling_id
        mean = float(np.mean([candidate.scores[f] for f in folds]))
        if missing:
            self.counts = counts
            self._save()
            if self.progress is not None:
                self.progress.update(C=C, score=mean)
        return mean

    def gain(self, pair: Pair, other: Pair, folds: Sequence[int]) -> tuple[float, float]:
        """Return the mean gain of one candidate over another on some folds, and its standard error."""
        gain = self.score(*pair, folds) - self.score(*other, folds)
        a, b = self._find(*pair), self._find(*other)
        errors = [standard_error(self.values[a, f], self.values[b, f]) for f in folds]
        return gain, float(np.linalg.norm(errors) / len(errors))


# --- Choice of C and the coupling by cross-validation: a search that costs a few fits -----------------------


_MIN_TRIED = 4  # costs of a path before it may end
_FEW_CANDIDATES = 8  # that are all tried on all folds
_ROUGH = 0.5  # relative duality gap of a fit whose answers say little
FINALISTS = 3  # candidates of a race that are tried on more than one fold
_CLEAR = 1.0  # standard errors by which a candidate is clearly worse
_WORTH = 0.5  # standard errors that a larger cost or coupling must gain,
_MIN_GAIN = 0.02  # and share of the score, or of what it lacks to 1, whichever is smaller
_MAX_STEPS = 8  # of a climb on the ladder of the default costs


def tabulate(tried: Sequence[Tried], couplings: Sequence[Any], tol: float) -> dict[str, Any]:
    """Table of all candidates, with the largest gap over folds; `tol` is the tolerance of these gaps."""
    Cs, coupling_ids, scores, gaps = (np.array(column) for column in zip(*tried, strict=True))
    return {
        "C": Cs,
        "coupling": [couplings[number] for number in coupling_ids.tolist()],
        "mean_score": np.nanmean(scores, axis=1),
        "std_score": np.nanstd(scores, axis=1),
        "scores": scores,
        "gap": np.nanmax(gaps, axis=1),
        "converged": np.nanmax(gaps, axis=1) <= tol,
    }


def best_of(results: dict[str, Any]) -> tuple[float, Any]:
    """Cost and coupling with the best mean score among those tried on most folds; the first of equal ones."""
    n_folds = np.isfinite(results["scores"]).sum(axis=1)
    best = int(np.argmax(np.where(n_folds == n_folds.max(), results["mean_score"], -np.inf)))
    return float(results["C"][best]), results["coupling"][best]


def warn_of_open_gaps(results: dict[str, Any], max_iter: int) -> None:
    """Warn once, with the candidates that have not converged."""
    still_open = np.flatnonzero(~results["converged"])
    if still_open.size:
        names = [f"C={results['C'][k]:g} with coupling={results['coupling'][k]}" for k in still_open[:5]]
        others = f" and {still_open.size - 5} more" if still_open.size > 5 else ""
        warn_caller(
            f"{still_open.size} of {len(results['C'])} candidates of the cross-validation reached "
            f"max_iter={max_iter} rounds on a fold, with relative duality gaps up to {results['gap'].max():.2g}: "
            f"{', '.join(names)}{others}. Their scores may be off: increase max_iter, or leave out the "
            "largest costs.",
            ConvergenceWarning,
        )


def warn_of_rough_fits(results: dict[str, Any]) -> None:
    """Warn if training ended far from the optimum for most candidates: their order may then be wrong."""
    is_far = results["gap"] > _ROUGH
    if 2 * is_far.sum() > len(is_far):
        warn_caller(
            f"{is_far.sum()} of {len(is_far)} candidates of the cross-validation were far from their optimum after "
            f"{MAX_ROUNDS} rounds (relative duality gaps up to {results['gap'].max():.2g}): the choice of C and "
            "coupling may be poor. Scale the features, or give smaller costs.",
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
    if not all(map(len, scores)) or not np.nanmean(scores[0] - scores[1]) > 2 * _MIN_GAIN * np.nanmean(
        scores[1]
    ):
        return
    side, comparative = ("largest", "larger") if costs[-1] == C else ("smallest", "smaller")
    advice = (
        "scale the features" if plan.extends else f"add {comparative} ones to the costs, or leave them out"
    )
    warn_caller(
        f"C='cv' chose the {side} cost, {C:g}, and the score still rose there: a {comparative} one may be "
        f"better. To try it, {advice}.",
        UserWarning,
    )


class Choice(NamedTuple):
    """Cost and coupling of the model, and the table of the search (None without one)."""

    C: float
    value: Any  # of the coupling
    coupling: Coupling
    results: dict[str, Any] | None


def choose(
    training: Training, plan: Plan, engine: Engine, checkpoint: Checkpoint | None, verbose: int
) -> Choice:
    """Choose a cost and a coupling by cross-validation, if the plan has folds; else return those of the plan."""
    if not plan.splits:
        return Choice(plan.Cs[0], plan.couplings[0], plan.coupled[0], None)
    with Progress(None, "candidates", verbose) as progress:
        results = search(training, plan, engine, checkpoint, progress)
    if training.options.max_iter <= MAX_ROUNDS:  # otherwise coarse training ended on purpose
        warn_of_open_gaps(results, training.options.max_iter)
    else:
        warn_of_rough_fits(results)
    warn_of_end(results, plan)
    C, value = best_of(results)
    coupling_id = next(number for number, candidate in enumerate(plan.couplings) if candidate is value)
    return Choice(C, value, plan.coupled[coupling_id], results)


def _has_fallen(means: Sequence[float]) -> bool:
    return len(means) >= _MIN_TRIED and means[-1] < means[-2] < means[-3]


def follow_path(trials: Trials, coupling_id: int) -> None:
    """Try rising costs with one coupling on all folds."""
    means, folds = list[float](), range(len(trials.folds))
    for C in sorted(set(trials.plan.Cs)):
        if _has_fallen(means):
            break
        means.append(trials.score(C, coupling_id, folds))


class Ladder:
    """The costs of a plan in rising order; default costs go on beyond both ends.

    >>> plan = Plan([0.1, 1.0], [0.1], [], None, [], "macro_f1", None, None, unit=0.4)
    >>> ladder = Ladder(plan)
    >>> ladder.start, ladder.beside(1.0, -1), ladder.beside(1.0, 1)
    (1.0, 0.1, None)
    >>> default = Ladder(plan._replace(extends=True))
    >>> default.start, default.beside(0.3, -1), default.beside(30.0, 1)
    (0.3, 0.1, 100.0)
    """

    def __init__(self, plan: Plan) -> None:
        self.Cs = sorted(set(plan.Cs))
        middle = round(2 * float(np.log10(plan.unit)))
        if plan.extends:
            self.Cs = [_rung(k) for k in range(middle - _MAX_STEPS, middle + _MAX_STEPS + 1)]
        self.start = min(self.Cs, key=lambda C: abs(np.log(C / plan.unit)))

    def beside(self, C: float, step: int) -> float | None:
        """Return the next cost in a direction, or None at an end."""
        place = self.Cs.index(C) + step
        return self.Cs[place] if 0 <= place < len(self.Cs) else None


def _rung(k: int) -> float:
    """Return number k of 1, 3, 10, 30, ..."""
    return float(f"{1 + 2 * (k % 2)}e{k // 2}")


def climb(trials: Trials, start: Pair, beside: Callable[[Pair, int], Pair | None]) -> Pair:
    """Climb on the first fold from `start` in one direction, or else in the other; return the best candidate.

    `beside` returns the next candidate in a direction (1 or -1), or None at an end.
    """
    best = start
    for step in (1, -1):
        while (tried := beside(best, step)) is not None:
            score = trials.score(*best, [0])
            gain, error = trials.gain(tried, best, [0])
            least = max(_WORTH * error, _MIN_GAIN * min(score, 1 - score)) if step == 1 else 0.0
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
        place = order.index(pair[1]) + step
        return (pair[0], order[place]) if 0 <= place < len(order) else None

    best = climb(trials, start, beside) if start[1] in order else start
    for coupling_id in set(range(len(couplings))) - set(order):
        if trials.score(best[0], coupling_id, [0]) > trials.score(*best, [0]):
            best = best[0], coupling_id
    return best


def run_race(trials: Trials) -> None:
    """Search cost and coupling by coordinate on the first fold; try the best few candidates on more folds."""
    couplings, ladder = trials.plan.couplings, Ladder(trials.plan)

    def distance(coupling_id: int) -> float:
        value = couplings[coupling_id]
        return abs(float(value) - DEFAULT_COUPLING) if isinstance(value, Real) else np.inf

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
    folds, left = [0], [(candidate.C, candidate.coupling_id) for candidate in trials.tried]
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
    """Try few candidates on every fold, or run a race among many; return the table of `tabulate`.

    `training` has all rows and the costs of C = 1. Finished candidates are saved in the checkpoint and loaded from
    it.
    """
    options = training.options
    tol, max_iter = max(options.tol, COARSE_TOL), min(options.max_iter, MAX_ROUNDS)
    coarse = training._replace(options=options._replace(tol=tol, max_iter=max_iter))
    trials = Trials(prepare_folds(coarse, plan.splits), plan, engine, checkpoint, progress)
    if plan.extends or len(set(plan.Cs)) * len(plan.couplings) > _FEW_CANDIDATES:
        run_race(trials)
    else:
        for coupling_id in range(len(plan.couplings)):
            follow_path(trials, coupling_id)
    return tabulate(trials.tried, plan.couplings, tol)
