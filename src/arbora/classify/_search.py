"""Choosing the cost of a unit of loss and the coupling by cross-validation, along warm-started paths.

For each coupling the costs are tried in rising order, every fold from the multipliers it had at the cost before (they
stay feasible). A path ends when the score has fallen twice in a row: what lies beyond is costly and rarely better.

With a checkpoint the table of the candidates so far, and the multipliers that the next one starts from, are replaced
together whenever a candidate is finished: a search that was cut off goes on with the next one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv

from arbora.classify._coupling import Coupling
from arbora.classify._joint import Fitted, Start, build_model, pack, train_joint, unpack
from arbora.classify._linear import linear_scores
from arbora.classify._train import Training
from arbora.classify.thresholds import make_threshold
from arbora.engine import ThreadEngine
from arbora.infer import Checkpoint, Progress
from arbora.infer.dual import Rows, prepare_rows
from arbora.metrics import macro_f1, micro_f1

SCORES = {"micro_f1": micro_f1, "macro_f1": macro_f1}
COARSE_TOL = 0.03  # candidates are ranked, not kept
_PIECE = "search"  # of a checkpoint

Split = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows to train on, rows to judge on


class Plan(NamedTuple):
    """What to try, and how to judge it."""

    Cs: Sequence[float]
    couplings: Sequence[Any]
    splits: Sequence[Split]
    scoring: str
    threshold: Any  # for label sets; None for one label a row
    prune_below: float | None


class Fold(NamedTuple):
    """What to train on, its rows prepared once for all candidates, and what to judge on."""

    seen: Training
    rows: Rows
    unseen: sp.csr_array
    truth: sp.csr_array


class Tried(NamedTuple):
    """A candidate, and its score and relative duality gap on every fold."""

    C: float
    which: int  # number of its coupling in the plan
    scores: list[float]
    gaps: list[float]


def tabulate(tried: Sequence[Tried], couplings: Sequence[Any], tol: float) -> dict[str, Any]:
    """Make the table of all candidates; of the gaps, which were to fall to `tol`, it has the largest over folds."""
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
    """Cost and coupling with the best mean score; of equal ones the first."""
    at = int(np.argmax(results["mean_score"]))
    return float(results["C"][at]), results["coupling"][at]


def warn_of_open_gaps(results: dict[str, Any], max_iter: int) -> None:
    """Say once which candidates were judged before their gap was closed."""
    still_open = np.flatnonzero(~results["converged"])
    if still_open.size:
        names = [f"C={results['C'][at]:g} with coupling={results['coupling'][at]}" for at in still_open[:5]]
        more = f" and {still_open.size - 5} more" if still_open.size > 5 else ""
        warnings.warn(
            f"{still_open.size} of {len(results['C'])} candidates of the cross-validation reached "
            f"max_iter={max_iter} rounds on a fold, with relative duality gaps up to {results['gap'].max():.2g}: "
            f"{', '.join(names)}{more}. Their scores may be off: increase max_iter, or leave out the largest Cs.",
            ConvergenceWarning,
            stacklevel=5,
        )


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


def splits(training: Training, cv: Any) -> list[Split]:
    """Rows to train on and rows to judge on, for every fold.

    Parameters
    ----------
    training : Training
    cv : int, splitter of scikit-learn or iterable of pairs of rows
    """
    n_samples, positives = training.X.shape[0], training.positives
    if isinstance(cv, Integral):
        if n_samples < cv:
            raise ValueError(f"cv={cv} folds need at least as many rows, got {n_samples}.")
        fold = folds(positives, int(cv), training.options.seed)
        return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(cv)]
    one_each = positives.nnz == n_samples and (np.diff(positives.indptr) == 1).all()
    pairs = check_cv(cv).split(np.arange(n_samples), positives.indices if one_each else None)
    found = [(_row_numbers(seen, n_samples), _row_numbers(unseen, n_samples)) for seen, unseen in pairs]
    if not found:
        raise ValueError(
            f"cv={cv!r} gives no splits (a generator gives them once only): give a list of pairs."
        )
    return found


def _row_numbers(rows: Any, n_samples: int) -> NDArray[np.int64]:
    """Rows as numbers, from numbers or from a mask; refuse what is empty or out of range."""
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (n_samples,):
        rows = np.flatnonzero(rows)
    if (
        rows.ndim != 1
        or not rows.size
        or rows.dtype.kind not in "iu"
        or rows.min() < 0
        or rows.max() >= n_samples
    ):
        raise ValueError(
            f"cv gives a split that is not a pair of arrays of row numbers from 0 to {n_samples - 1}, each with one "
            "row at least."
        )
    return rows.astype(np.int64)


def prepare_folds(training: Training, parts: Sequence[Split]) -> list[Fold]:
    """Take the rows of every fold apart, once for all candidates."""
    options, prepared = training.options, []
    for inside, outside in parts:
        seen = training.with_rows(inside)
        rows = prepare_rows(seen.X, options.dtype, options.bias)
        prepared.append(Fold(seen, rows, training.X[outside], training.positives[outside]))
    return prepared


def _train_fold(
    fold: Fold, C: float, coupling: Coupling, plan: Plan, engine: ThreadEngine, start: Start | None
) -> Fitted:
    seen = fold.seen._replace(row_cost=fold.seen.row_cost * C)
    return train_joint(seen, coupling, engine, rows=fold.rows, dense=plan.prune_below is None, start=start)


def _judge_fold(fold: Fold, fitted: Fitted, plan: Plan, engine: ThreadEngine) -> float:
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
    return len(means) == 3 and means[2] < means[1] < means[0]


def _keep(checkpoint: Checkpoint | None, tried: Sequence[Tried], starts: Sequence[Start | None]) -> None:
    if checkpoint is not None:
        packed = [(f, name, value) for f, start in enumerate(starts) for name, value in pack(start).items()]
        arrays = {f"{f}.{name}": value for f, name, value in packed}
        checkpoint.save(_PIECE, arrays, {"tried": [list(candidate) for candidate in tried]})


def _resume(checkpoint: Checkpoint | None, n_folds: int) -> tuple[list[Tried], list[Start | None]]:
    piece = checkpoint.load(_PIECE) if checkpoint is not None else None
    if piece is None:
        return [], [None] * n_folds
    by_fold: list[dict[str, NDArray[Any]]] = [{} for _ in range(n_folds)]
    for key, value in piece.arrays.items():
        f, _, name = key.partition(".")
        by_fold[int(f)][name] = value
    return [Tried(*columns) for columns in piece.meta["tried"]], [unpack(arrays) for arrays in by_fold]


def search(
    training: Training,
    couple: Callable[[Any], Coupling],
    plan: Plan,
    engine: ThreadEngine,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Try every coupling with rising costs, and judge each pair on every fold.

    Parameters
    ----------
    training : Training
        Its costs are those of C = 1.
    couple : callable
        Gives the `Coupling` of a value of the parameter of that name.
    plan : Plan
    engine : ThreadEngine
    checkpoint : Checkpoint, optional
        Where finished candidates are kept, and found again.
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
    for which, value in enumerate(plan.couplings):
        path = [candidate for candidate in tried if candidate.which == which]
        coupling = couple(value)
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
            path.append(Tried(C, which, scores, gaps))
            tried.append(path[-1])
            _keep(checkpoint, tried, starts)
            if progress is not None:
                progress.update(C=C, score=float(np.mean(scores)))
    return tabulate(tried, plan.couplings, tol)
