"""Choosing the cost of a unit of loss and the coupling by cross-validation, along warm-started paths.

For each coupling the costs are tried in rising order, every fold from the multipliers it had at the cost before (they
stay feasible). A path ends when the score has fallen twice in a row, but not before four costs were tried: what lies
beyond is costly and rarely better.

Rows of weight 0 are in no fold. F1 counts every other row once, whatever its weight.

With a checkpoint the multipliers of each fold, and then the table of the candidates so far, are saved whenever a
candidate is finished: a search that was cut off goes on with the next one. Multipliers of odd and even candidates
have different names, so that those the table belongs to are there until the next table is.

All folds are taken apart, and keep their multipliers, from the beginning to the end: what that needs is counted
before anything is trained.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv

from arbora.classify._common.coupling import Coupling
from arbora.classify._common.linear_model import linear_scores
from arbora.classify._common.one_vs_rest import Training
from arbora.classify.recursive.coupled_training import (
    Fitted,
    Start,
    build_model,
    joint_memory,
    multiplier_memory,
    pack,
    size_of,
    train_joint,
    unpack,
)
from arbora.classify.thresholds import make_threshold
from arbora.core.checkpoint import Checkpoint
from arbora.core.memory import require_memory
from arbora.core.progress import Progress
from arbora.engine import ThreadEngine
from arbora.infer.linear.flat import LinearRows, prepare_rows
from arbora.infer.linear.layout import Layout
from arbora.metrics import macro_f1, micro_f1

SCORES = {"micro_f1": micro_f1, "macro_f1": macro_f1, "f1_micro": micro_f1, "f1_macro": macro_f1}
COARSE_TOL = 0.03  # candidates are ranked, not kept
DEFAULT_FOLDS = 5  # of cv=None
_FEWEST_TRIED = 4  # costs of a path before it may end
_PIECE = "search"  # of a checkpoint

Split = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows to train on, rows to judge on


class Plan(NamedTuple):
    """What to try, and how to judge it."""

    Cs: Sequence[float]
    couplings: Sequence[Any]
    coupled: Sequence[Coupling]  # what these mean
    splits: Sequence[Split]
    scoring: str
    threshold: Any  # for label sets; None for one label a row
    prune_below: float | None

    def meaning(self, coupling: Any) -> Coupling:
        """Tell what one of the couplings means."""
        return next(
            coupled for value, coupled in zip(self.couplings, self.coupled, strict=True) if value is coupling
        )


class Fold(NamedTuple):
    """What to train on, its rows prepared once for all candidates, and what to judge on."""

    seen: Training
    rows: LinearRows
    unseen: sp.csr_array
    truth: sp.csr_array


class Tried(NamedTuple):
    """A candidate, and its score and relative duality gap on every fold."""

    C: float
    which: int  # number of its coupling in the plan
    scores: list[float]
    gaps: list[float]


def check_costs(Cs: Any) -> list[float]:
    """Refuse costs that are none, and a path without any."""
    costs = np.asarray(Cs)
    numbers = costs.ndim == 1 and costs.size > 0 and costs.dtype.kind in "iuf"
    if not numbers or not ((costs > 0) & (costs < np.inf)).all():
        raise ValueError(f"Cs={Cs!r}: give at least one cost; costs are finite numbers above 0.")
    return costs.astype(float).tolist()


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
    """Rows to train on and rows to judge on, for every fold; rows of weight 0 are in none.

    Parameters
    ----------
    training : Training
    cv : int, None, splitter of scikit-learn or iterable of pairs of rows
        None stands for `DEFAULT_FOLDS`. A splitter is asked to split all rows, those of weight 0 too.
    """
    n_samples, positives = training.X.shape[0], training.positives
    counts = training.row_cost > 0
    cv = DEFAULT_FOLDS if cv is None else cv
    if isinstance(cv, Integral):
        rows = np.flatnonzero(counts)
        if len(rows) < cv:
            raise ValueError(f"cv={cv} folds need at least as many rows, got {len(rows)}.")
        fold = folds(positives[rows], int(cv), training.options.seed)
        return [(rows[fold != f], rows[fold == f]) for f in range(cv)]
    one_each = positives.nnz == n_samples and (np.diff(positives.indptr) == 1).all()
    pairs = check_cv(cv).split(np.arange(n_samples), positives.indices if one_each else None)
    found = [(_row_numbers(seen, counts), _row_numbers(unseen, counts)) for seen, unseen in pairs]
    if not found:
        raise ValueError(
            f"cv={cv!r} gives no splits (a generator gives them once only): give a list of pairs."
        )
    return found


def _row_numbers(rows: Any, counts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows that count as numbers, from numbers or from a mask; refuse what is empty or out of range."""
    rows, n_samples = np.asarray(rows), len(counts)
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
    rows = rows.astype(np.int64)[counts[rows]]
    if not rows.size:
        raise ValueError("cv gives a split with a side on which every row has the sample_weight 0.")
    return rows


def refuse_splits_of_other_rows(cv: Any, kept: Sequence[Split], n_before: int, n_samples: int) -> None:
    """Refuse the splits that a loaded model has in place of its splitter, on rows that they were not made of."""
    if n_samples == n_before or not isinstance(cv, list) or len(cv) != len(kept):
        return
    sides = [(a, b) for given, split in zip(cv, kept, strict=True) for a, b in zip(given, split, strict=True)]
    if all(np.array_equal(a, b) for a, b in sides):
        raise ValueError(
            f"cv holds the splits of the {n_before} rows that this model was fitted on before it was saved, but X "
            f"has {n_samples} rows: set cv anew, for instance set_params(cv=3)."
        )


def search_memory(training: Training, layout: Layout, plan: Plan, n_jobs: int) -> int:
    """Bytes that a search takes at most: all folds with their multipliers, and one fit with its scores.

    Multipliers of the hinge losses that are not zero come on top, as in a fit.
    """
    options, X, n_classes = training.options, training.X, training.positives.shape[1]
    per_row = (X.indptr.nbytes + X.indices.nbytes + X.data.nbytes) / max(1, X.shape[0])
    cast = 0 if X.dtype == options.dtype else X.nnz * options.dtype.itemsize / max(1, X.shape[0])
    seen = [size_of(X, options.dtype, len(inside)) for inside, _ in plan.splits]
    n_outside = [len(outside) for _, outside in plan.splits]
    starts = [multiplier_memory(size, n_classes, options.loss) for size in seen]
    copies = per_row * (sum(n_outside) + sum(size.n_samples for size in seen))
    copies += cast * sum(size.n_samples for size in seen)
    dense = plan.prune_below is None
    fit = max(joint_memory(size, layout, options.loss, dense, n_jobs) for size in seen)
    scores = 2 * max(n_outside) * n_classes * options.dtype.itemsize
    return (
        int(copies) + sum(starts) + max(fit, scores, max(starts))
    )  # of a checkpoint, the starts of a fold again


def check_search_memory(training: Training, layouts: Sequence[Layout], plan: Plan, n_jobs: int) -> None:
    """Refuse a search that cannot fit, before anything is trained."""
    need = max(search_memory(training, layout, plan, n_jobs) for layout in layouts)
    require_memory(
        need,
        f"Cross-validation with {len(plan.splits)} folds over {training.positives.shape[1]} classes, "
        f"{training.X.shape[0]} rows and {training.X.shape[1]} features ({training.options.loss} loss), each fold "
        "kept with its multipliers,",
        "Use fewer folds (one is cv=[(rows to train on, rows to judge on)], of few rows if need be), "
        "dtype='float32', or fixed numbers as C and coupling.",
    )


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
    return len(path) >= _FEWEST_TRIED and means[2] < means[1] < means[0]


def _piece_of(fold: int, n_tried: int) -> str:
    """Name of the multipliers of a fold that a candidate left."""
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
    engine: ThreadEngine,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Try every coupling with rising costs, and judge each pair on every fold.

    Parameters
    ----------
    training : Training
        Its costs are those of C = 1.
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
                del fitted  # before the next one comes
                if checkpoint is not None:
                    checkpoint.save(_piece_of(f, len(tried) + 1), pack(starts[f]))
            path.append(Tried(C, which, scores, gaps))
            tried.append(path[-1])
            if checkpoint is not None:
                checkpoint.save(_PIECE, {}, {"tried": [list(candidate) for candidate in tried]})
            if progress is not None:
                progress.update(C=C, score=float(np.mean(scores)))
    return tabulate(tried, plan.couplings, tol)
