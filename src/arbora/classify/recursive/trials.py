"""Candidates of a search: trained on folds along warm-started paths, judged on the other rows, and kept.

A fold starts from the multipliers of its last candidate, which are feasible for a larger cost and a good start for
another coupling. Candidates are ranked, not kept: training ends at a relative gap of `COARSE_TOL`, or after
`MOST_ROUNDS` rounds. More rounds with a large cost mostly fit the training rows more closely and hardly change the
answers; where gaps stay so large that they may, the search warns (`search.warn_of_rough_fits`).

The `evidence` of a candidate on a fold is what a paired comparison needs: the F1 of every class (macro-F1), or the
share of every row in the score (micro-F1).

With a checkpoint, the multipliers of each fold and then the table of the scores are saved after each candidate; an
interrupted search repeats its decisions from the table and resumes with the next one. A fold has two names for its
multipliers in turn, so that those that belong to the last table exist until the next table is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify.linear import linear_scores
from arbora.classify.recursive.coupling import Coupling
from arbora.classify.recursive.plan import Plan
from arbora.classify.recursive.training import Fitted, Start, build_model, pack, train_joint, unpack
from arbora.classify.thresholds import make_threshold
from arbora.classify.training import Training
from arbora.core.checkpoint import Checkpoint
from arbora.core.engine import Engine
from arbora.core.folds import Split
from arbora.core.monitor import Progress
from arbora.infer.linear.rows import LinearRows, prepare_rows
from arbora.metrics import macro_f1, micro_f1

SCORES = {"micro_f1": micro_f1, "macro_f1": macro_f1, "f1_micro": micro_f1, "f1_macro": macro_f1}
COARSE_TOL = 0.1
MOST_ROUNDS = 30
_LARGEST_FALL = 10.0  # multipliers of a cost up to this many times as large are a good start
_PIECE = "search"  # name in the checkpoint

Array = NDArray[np.float64]
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
    which: int  # index of its coupling in the plan
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
    seen = fold.seen._replace(row_cost=fold.seen.row_cost * C)
    return train_joint(seen, coupling, engine, rows=fold.rows, dense=plan.prune_below is None, start=start)


class Judged(NamedTuple):
    """Score of a candidate on a fold, and the values whose mean it is: of classes, or of rows."""

    score: float
    values: Array


def evidence(truth: sp.csr_array, found: sp.csr_array, macro: bool) -> Array:
    """Return the F1 of every class, or the linearised share of every row in the micro-F1, whose mean it is.

    Parameters
    ----------
    truth, found : sparse matrices of shape (n_rows, n_classes)
        Indicators of the true and the predicted labels.
    macro : bool

    Examples
    --------
    >>> truth, found = sp.csr_array([[1, 0], [0, 1]]), sp.csr_array([[1, 0], [1, 0]])
    >>> evidence(truth, found, macro=True).round(2), evidence(truth, found, macro=False)
    (array([0.67, 0.  ]), array([1., 0.]))
    """
    axis = 0 if macro else 1
    true, said = truth.astype(np.float64), found.astype(np.float64)
    hits = np.asarray(true.multiply(said).sum(axis=axis))
    sizes = np.asarray(true.sum(axis=axis) + said.sum(axis=axis))
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


def _judge(scores: NDArray[Any], truth: sp.csr_array, plan: Plan) -> Judged:
    measure = SCORES[plan.scoring]
    if plan.threshold is None:
        answer = scores.argmax(axis=1)
        found = sp.csr_array((np.ones(len(answer)), answer, np.arange(len(answer) + 1)), shape=truth.shape)
        if measure is macro_f1:  # over the classes of the fold, the same for all candidates
            present = np.unique(truth.indices)
            values = evidence(truth[:, present], found[:, present], macro=True)
            return Judged(float(values.mean()) if len(values) else 0.0, values)
        score = float(measure(truth.indices, answer))
    else:
        threshold = make_threshold(plan.threshold)
        if threshold.learns:
            threshold.fit(scores, truth.astype(bool), np.ones(scores.shape[1], bool))
        found = threshold.predict(scores).astype(np.int64)
        score = float(measure(truth.astype(np.int64), found))
    return Judged(score, evidence(truth, found, measure is macro_f1))


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
            at, f = map(int, name.split("-"))
            self.values[at, f] = values
        self.last = [last and (float(last[0]), int(last[1])) for last in piece.meta["last"]]
        for f, count in enumerate(self.counts):
            kept = self.checkpoint.load(self._piece_of(f, count)) if count else None
            self.starts[f] = None if kept is None else unpack(kept.arrays)

    def _save(self) -> None:
        if self.checkpoint is not None:
            meta = {"tried": [list(one) for one in self.tried], "counts": self.counts, "last": self.last}
            values = {f"{at}-{f}": values for (at, f), values in self.values.items()}
            self.checkpoint.save(_PIECE, values, meta)

    def _find(self, C: float, which: int) -> int:
        """Position of a candidate in the table; a new one is added."""
        for at, candidate in enumerate(self.tried):
            if (candidate.C, candidate.which) == (C, which):
                return at
        nothing = [float("nan")] * len(self.folds)
        self.tried.append(Tried(C, which, nothing, list(nothing)))
        return len(self.tried) - 1

    def _start_of(self, f: int, C: float, which: int) -> Start | None:
        """Return the last multipliers of a fold, unless they belong to a much larger cost."""
        last = self.last[f]
        good = last is not None and last[0] <= C * _LARGEST_FALL and (last[0] <= C or which != last[1])
        return self.starts[f] if good else None

    def score(self, C: float, which: int, folds: Sequence[int]) -> float:
        """Return the mean score of a candidate on some folds; train where that was not done before."""
        at = self._find(C, which)
        candidate = self.tried[at]
        missing = [f for f in folds if np.isnan(candidate.scores[f])]
        counts = list(self.counts)
        for f in missing:
            start = self._start_of(f, C, which)
            fitted = _train_fold(self.folds[f], C, self.plan.coupled[which], self.plan, self.engine, start)
            self.starts[f] = fitted.solution.multipliers
            candidate.gaps[f] = float(fitted.relative_gap)
            candidate.scores[f], self.values[at, f] = _judge_fold(
                self.folds[f], fitted, self.plan, self.engine
            )
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

    def gain(self, one: Pair, other: Pair, folds: Sequence[int]) -> tuple[float, float]:
        """Return the mean gain of one candidate over another on some folds, and its standard error."""
        gain = self.score(*one, folds) - self.score(*other, folds)
        a, b = self._find(*one), self._find(*other)
        errors = [standard_error(self.values[a, f], self.values[b, f]) for f in folds]
        return gain, float(np.linalg.norm(errors) / len(errors))
