"""Choosing the cost of a unit of loss and the coupling by cross-validation, along warm-started paths.

For each coupling the costs are tried in rising order, every fold from the multipliers it had at the cost before (they
stay feasible). A path ends when the score has fallen twice in a row: what lies beyond is costly and rarely better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from arbora.classify._coupling import Coupling
from arbora.classify._joint import dense_model, parts_model, train_joint
from arbora.classify._linear import linear_scores
from arbora.classify._train import Training
from arbora.classify.thresholds import make_threshold
from arbora.engine import ThreadEngine
from arbora.infer import Progress
from arbora.metrics import macro_f1, micro_f1

SCORES = {"micro_f1": micro_f1, "macro_f1": macro_f1}
COARSE_TOL = 0.03  # candidates are ranked, not kept


class Plan(NamedTuple):
    """What to try, and how to judge it."""

    Cs: Sequence[float]
    couplings: Sequence[Any]
    cv: Any  # a number of folds, a splitter of scikit-learn, or pairs of rows to train and to judge on
    scoring: str
    threshold: Any  # for label sets; None for one label a row
    prune_below: float | None


class Found(NamedTuple):
    """The table of all that were tried, and of each the number of its coupling in the plan."""

    results: dict[str, Any]
    which: NDArray[np.int64]

    @property
    def best(self) -> tuple[float, Any]:
        """Cost and coupling with the best mean score; of equal ones the first."""
        at = int(np.argmax(self.results["mean_score"]))
        return float(self.results["C"][at]), self.results["coupling"][at]


def tabulate(Cs: NDArray[Any], which: NDArray[Any], scores: NDArray[Any], couplings: Sequence[Any]) -> Found:
    """Make the table from the cost, the number of the coupling, and the scores by fold of every candidate."""
    results = {
        "C": Cs,
        "coupling": [couplings[number] for number in which.tolist()],
        "mean_score": scores.mean(axis=1),
        "std_score": scores.std(axis=1),
        "scores": scores,
    }
    return Found(results, which)


def folds(positives: sp.csr_array, n_folds: int, seed: int) -> NDArray[np.int64]:
    """Fold of every row: the documents of a class (of the rarest one, for label sets) are dealt out in turn."""
    rng = np.random.default_rng(seed)
    size = np.asarray(positives.sum(axis=0)).ravel()
    order = rng.permutation(positives.shape[0])
    Y = sp.csr_array(positives[order])
    # A row without labels is a class of its own; among several labels the rarest decides.
    rarest = np.full(len(order), -1)
    filled = np.flatnonzero(np.diff(Y.indptr))
    by_row = np.repeat(np.arange(len(order)), np.diff(Y.indptr))
    ranked = np.lexsort((Y.indices, size[Y.indices], by_row))
    rarest[filled] = Y.indices[ranked][Y.indptr[filled]]
    dealt = np.argsort(rarest, kind="stable")
    fold = np.empty(len(order), np.int64)
    fold[order[dealt]] = np.arange(len(order)) % n_folds
    return fold


def splits(training: Training, cv: Any) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows to train on and rows to judge on, for every fold."""
    n_samples, positives = training.X.shape[0], training.positives
    if isinstance(cv, Integral):
        if n_samples < cv:
            raise ValueError(f"cv={cv} folds need at least as many rows, got {n_samples}.")
        fold = folds(positives, int(cv), training.options.seed)
        return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(cv)]
    one_each = positives.nnz == n_samples and (np.diff(positives.indptr) == 1).all()
    return list(check_cv(cv).split(np.arange(n_samples), positives.indices if one_each else None))


def _judge(scores: NDArray[Any], truth: sp.csr_array, plan: Plan) -> float:
    measure = SCORES[plan.scoring]
    if plan.threshold is None:
        return float(measure(truth.indices, scores.argmax(axis=1)))
    threshold = make_threshold(plan.threshold)
    if threshold.learns:
        threshold.fit(scores, truth.astype(bool), np.ones(scores.shape[1], bool))
    return float(measure(truth.astype(np.int64), threshold.predict(scores).astype(np.int64)))


def search(
    training: Training,
    couple: Callable[[Any], Coupling],
    plan: Plan,
    engine: ThreadEngine,
    progress: Progress | None = None,
) -> Found:
    """Try every coupling with rising costs, and judge each pair on every fold.

    Parameters
    ----------
    training : Training
        Its costs are those of C = 1.
    couple : callable
        Gives the `Coupling` of a value of the parameter of that name.
    plan : Plan
    engine : ThreadEngine
    progress : Progress, optional
    """
    coarse = training.options._replace(tol=max(training.options.tol, COARSE_TOL))
    training = training._replace(options=coarse)
    parts = splits(training, plan.cv)
    rows: list[tuple[float, int, list[float]]] = []
    for number, value in enumerate(plan.couplings):
        coupling = couple(value)
        starts: list[Any] = [None] * len(parts)
        path: list[float] = []
        for C in sorted(plan.Cs):
            if len(path) > 2 and path[-1] < path[-2] < path[-3]:
                break
            scores = []
            for f, (inside, unseen) in enumerate(parts):
                seen = training.with_rows(inside)
                seen = seen._replace(row_cost=seen.row_cost * C)
                dense = plan.prune_below is None
                fitted = train_joint(seen, coupling, engine, dense=dense, start=starts[f])
                starts[f] = fitted.solution.multipliers
                model = (
                    dense_model(fitted) if plan.prune_below is None else parts_model(fitted, plan.prune_below)
                )
                held_out = linear_scores(training.X[unseen], model, engine)
                scores.append(_judge(held_out, training.positives[unseen], plan))
            path.append(float(np.mean(scores)))
            rows.append((float(C), number, scores))
            if progress is not None:
                progress.update(C=C, score=path[-1])
    Cs, which, table = (np.array(column) for column in zip(*rows, strict=True))
    return tabulate(Cs, which, table, plan.couplings)
