"""Memory that the recursive classifiers need, computed before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.classify.decisions import effective_calibration, held_out_share, most_scores
from arbora.classify.recursive.coupling import Coupling
from arbora.classify.thresholds import Threshold
from arbora.classify.training import Training
from arbora.core.chunks import require_memory
from arbora.core.folds import Split
from arbora.engine import ThreadEngine
from arbora.infer.linear.layout import Layout, lay_out
from arbora.infer.linear.newton import suits_newton


class Size(NamedTuple):
    """Size of the rows of a fit."""

    n_samples: int
    n_features: int
    n_bytes: int  # in the working precision
    dense: bool
    dtype: np.dtype[Any]


def size_of(X: sp.csr_array, dtype: Any, n_samples: int | None = None) -> Size:
    """Size of rows, or of `n_samples` similar rows."""
    dtype, n_all = np.dtype(dtype), max(1, X.shape[0])
    n_samples = n_all if n_samples is None else n_samples
    n_bytes = X.indptr.nbytes + X.indices.nbytes + X.nnz * dtype.itemsize
    dense = X.nnz == X.shape[0] * X.shape[1] and bool(X.has_sorted_indices)
    return Size(n_samples, X.shape[1], n_bytes * n_samples // n_all, dense, dtype)


def multiplier_memory(size: Size, n_classes: int, loss: str) -> int:
    """Bytes of the multipliers of a fit; those of a hinge loss are mostly zero and are not counted."""
    if suits_newton(size, n_classes, loss):  # type: ignore[arg-type]  # it has the fields that are read
        return 8 * (size.n_features + 1) * n_classes
    triple = size.dtype.itemsize + 5  # a multiplier with its row and column
    return n_classes * size.n_samples * triple if loss == "logistic" else 0


def weight_memory(size: Size, n_classes: int, dense: bool) -> int:
    """Bytes of the weights of a fit; the size of a pruned model is not known before the fit."""
    return n_classes * (size.n_features + 1) * size.dtype.itemsize if dense else 0


def joint_memory(rows: Size, layout: Layout, loss: str, dense: bool, n_jobs: int, beside: int = 0) -> int:
    """Largest number of bytes of a fit, in addition to its rows: shared parts, blocks in training, weights.

    The sparse parts of a pruned model are not counted. `beside` are bytes that are in use at the same time.
    """
    n_classes, n_block = layout.blocks[-1].stop, max(map(len, layout.blocks))
    size, width = rows.dtype.itemsize, rows.n_features + 1
    pairs, weights = n_block * rows.n_samples, n_block * width * size
    # A visit: costs, multipliers, lists of the pairs that can move, the result; and a copy of the rows.
    visit = pairs * (2 * size + 4 + size + 5) + weights
    visit += 0 if rows.dense else rows.n_bytes
    need = beside + len(layout.shared) * width * size + multiplier_memory(rows, n_classes, loss)
    if suits_newton(rows, n_classes, loss):  # type: ignore[arg-type]  # dense rows, and about six numbers per pair
        need += 8 * rows.n_samples * (width + 6 * n_classes)
    held = pairs * size * (3 if loss == "logistic" else 2)  # costs, multipliers; of all pairs also their sums
    if dense:
        need += weight_memory(rows, n_classes, dense)
        making = held + 2 * weights  # the weights of a block, and a scaled copy
    else:  # parts from sums over rows; then the parts, their sizes, and which are kept
        parts = max(map(len, layout.owned)) * width
        making = max(held + weights + parts * size, parts * (2 * size + 1))
    # Blocks of one wave are visited at the same time; the weights of all blocks are made at the same time.
    side_by_side = min(n_jobs, max(map(len, layout.waves)))
    return need + max(side_by_side * visit, n_jobs * making)


def check_joint_memory(
    rows: Size, layout: Layout, loss: str, dense: bool, n_jobs: int, beside: int = 0, why: str = ""
) -> None:
    """Refuse a fit that does not fit in memory, together with the bytes `beside` that `why` explains."""
    advice = "Use dtype='float32', fewer threads, or fewer features (for text: a larger min_df)"
    if dense:
        advice += ", or prune_below=0.0, which keeps the weights as sparse differences"
    require_memory(
        joint_memory(rows, layout, loss, dense, n_jobs, beside),
        f"Training {layout.blocks[-1].stop} classes together on {rows.n_samples} rows with {rows.n_features} "
        f"features ({rows.dtype.name}, {len(layout.shared)} shared parts, {n_jobs} threads){why}",
        advice + ".",
    )


def search_memory(
    training: Training, layout: Layout, splits: Sequence[Split], dense: bool, n_jobs: int
) -> int:
    """Largest number of bytes of a search: all folds with their multipliers, and one fit with its scores.

    The nonzero multipliers of hinge losses are not counted, as in a fit.
    """
    options, X, n_classes = training.options, training.X, training.positives.shape[1]
    per_row = (X.indptr.nbytes + X.indices.nbytes + X.data.nbytes) / max(1, X.shape[0])
    cast = 0 if X.dtype == options.dtype else X.nnz * options.dtype.itemsize / max(1, X.shape[0])
    seen = [size_of(X, options.dtype, len(inside)) for inside, _ in splits]
    n_outside = [len(outside) for _, outside in splits]
    starts = [multiplier_memory(size, n_classes, options.loss) for size in seen]
    copies = per_row * (sum(n_outside) + sum(size.n_samples for size in seen))
    copies += cast * sum(size.n_samples for size in seen)
    fit = max(joint_memory(size, layout, options.loss, dense, n_jobs) for size in seen)
    scores = 2 * max(n_outside) * n_classes * options.dtype.itemsize
    # A checkpoint holds the multipliers of one fold once more.
    return int(copies) + sum(starts) + max(fit, int(scores), max(starts))


def check_search_memory(
    training: Training, layouts: Sequence[Layout], splits: Sequence[Split], dense: bool, n_jobs: int
) -> None:
    """Refuse a search that does not fit in memory, before anything is trained."""
    need = max(search_memory(training, layout, splits, dense, n_jobs) for layout in layouts)
    require_memory(
        need,
        f"Cross-validation with {len(splits)} folds over {training.positives.shape[1]} classes, "
        f"{training.X.shape[0]} rows and {training.X.shape[1]} features ({training.options.loss} loss), each fold "
        "kept with its multipliers,",
        "Use fewer folds (one is cv=[(rows to train on, rows to judge on)], of few rows if need be), "
        "dtype='float32', or fixed numbers as C and coupling.",
    )


def check_fit_memory(
    estimator: Any,
    training: Training,
    couplings: Sequence[Coupling],
    splits: Sequence[Split],
    threshold: Threshold | None,
    remote: bool,
) -> None:
    """Refuse a search, a fit, or a held-out fit beside it that do not fit in memory.

    Parameters
    ----------
    estimator : RecursiveSVC or RecursiveLogisticRegression
    training : Training
    couplings : sequence of Coupling
        All candidates.
    splits : sequence of pairs of rows
        Folds of the search; empty without one.
    threshold : Threshold or None
        None for one label per row.
    remote : bool
        Whether the fit runs on remote workers, whose memory is not checked here.
    """
    if remote and not splits:
        return
    options, n_classes, dense = training.options, training.positives.shape[1], estimator.prune_below is None
    layouts = [lay_out(coupling.factor) for coupling in couplings]
    n_jobs = ThreadEngine(estimator.n_jobs).n_workers
    if splits:
        check_search_memory(training, layouts, splits, dense, n_jobs)
    if remote:
        return
    whole = size_of(training.X, options.dtype)
    learns = threshold is not None and threshold.learns
    how = effective_calibration(estimator.calibration, threshold)
    n_seen = int(held_out_share(training, how) * whole.n_samples)
    seen = size_of(training.X, options.dtype, n_seen)
    beside = weight_memory(whole, n_classes, dense) + (whole.n_bytes + seen.n_bytes)
    beside += min(most_scores(learns), whole.n_samples * n_classes) * options.dtype.itemsize
    beside += multiplier_memory(
        whole, n_classes, options.loss
    )  # the held-out training starts from a part of them
    beside += multiplier_memory(seen, n_classes, options.loss)
    for layout in layouts:
        check_joint_memory(whole, layout, options.loss, dense, n_jobs)
        if n_seen:
            why = ", beside the weights of all rows, to calibrate (calibration=None needs no such fit),"
            check_joint_memory(seen, layout, options.loss, False, n_jobs, beside, why)  # scores only
