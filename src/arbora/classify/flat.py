"""One-vs-rest training of any number of classes: blocks on an engine, certified, resumable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Matrix
from arbora.classify.decisions import keep_decisions, learn_decisions
from arbora.classify.linear import BlockScorer, LinearModel, keep_solution, signed_costs
from arbora.classify.probabilities import NestedLogit
from arbora.classify.training import Training, open_checkpoint
from arbora.core.checkpoint import Checkpoint
from arbora.core.chunks import require_memory
from arbora.core.engine import Engine
from arbora.core.monitor import Progress
from arbora.engine import ThreadEngine
from arbora.infer.linear.coupled import Multipliers, multipliers_of_rows, no_multipliers
from arbora.infer.linear.flat import BlockSolution, solve_block
from arbora.infer.linear.negatives import nearest_rows
from arbora.infer.linear.rows import (
    BLOCK,
    LinearRows,
    class_blocks,
    prepare_rows,
    view_all,
    view_by_frequency,
    view_some,
)
from arbora.kernels import put_block

_NEAR_TOL = 0.01  # of training on near negatives, whose gap is not that of the full problem


class Trained(NamedTuple):
    """Weights, and the certificates and histories of the blocks."""

    model: LinearModel
    solutions: list[BlockSolution]


Take = Callable[[Matrix, slice], None]  # receives the weights of a finished block, and its classes


def fit_one_vs_rest(estimator: Any, training: Training, weight: Matrix) -> None:
    """Train the classes of a flat classifier and set its fitted attributes.

    Parameters
    ----------
    estimator : estimator
        With the parameters `calibration`, `threshold`, `n_jobs`, `checkpoint` and `verbose`; its labels are set.
    training : Training
        Without rows of weight 0.
    weight : ndarray of shape (n_samples,)
        Sample weights. The costs of the rows may contain other factors.
    """
    multilabel, engine = estimator._multilabel, ThreadEngine(estimator.n_jobs)
    if len(estimator.classes_) == 2 and not multilabel:
        # Two exclusive classes share one classifier: the first is the second with its sign changed. The weight of
        # each class then applies to its own rows, the negatives included.
        by_row = training.positives @ training.positive_weight
        training = training._replace(row_cost=training.row_cost * by_row, positive_weight=np.ones(2))
        training = training.with_columns(slice(1, None))
        # A sample of the negatives would move the intercept, and there is no other class to compare scores with.
        training = training._replace(options=training.options._replace(near=False))
    checkpoint = open_checkpoint(estimator, training)
    n_blocks = len(class_blocks(training.positives.shape[1]))
    with Progress(n_blocks, "blocks of classes", estimator.verbose) as progress:
        trained = train_one_vs_rest(training, engine, checkpoint, progress)
    keep_solution(estimator, trained.model, trained.solutions, _tolerance(training))
    counts = np.diff(sp.csc_array(training.positives).indptr)
    nested = estimator.calibration == "levels" and not multilabel and len(estimator.classes_) > 2
    learned = learn_decisions(
        training,
        lambda seen, X, key: score_one_vs_rest(seen, X, engine, checkpoint, key, trained.solutions),
        calibration=estimator.calibration,
        threshold=estimator.threshold,
        multilabel=multilabel,
        weight=weight,
        tree=NestedLogit(estimator.hierarchy_, estimator.class_nodes_, counts) if nested else None,
    )
    keep_decisions(estimator, learned, counts)
    if checkpoint is not None:
        checkpoint.clear()


def check_memory(shape: tuple[int, int], n_classes: int, dtype: Any, n_jobs: int) -> None:
    """Refuse a fit whose weights and block arrays do not fit in memory."""
    n_samples, n_features = shape
    size = np.dtype(dtype).itemsize
    weights = n_classes * (n_features + 1) * size
    block = min(BLOCK, n_classes) * (n_samples * (2 * size + 4) + (n_features + 1) * size)
    require_memory(
        weights + n_jobs * block,
        f"Training {n_classes} classes on {n_samples} rows with {n_features} features "
        f"({np.dtype(dtype).name}, {n_jobs} threads)",
        "Use dtype='float32', fewer threads, or fewer features (for text: a larger min_df).",
    )


def _tolerance(training: Training) -> float:
    """Return the relative gap to train to: coarser on near negatives, whose gap is not that of the full problem."""
    tol = training.options.tol
    return max(tol, _NEAR_TOL) if training.options.near else tol


def train_one_vs_rest(
    training: Training,
    engine: Engine,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    key: str = "",
) -> Trained:
    """Train one linear classifier for each column of `positives`.

    Parameters
    ----------
    training : Training
    engine : Engine
    checkpoint : Checkpoint, optional
        Finished blocks are saved there, and loaded from there.
    progress : Progress, optional
    key : str
        Prefix of the names of the blocks in the checkpoint, if several trainings share one.

    Returns
    -------
    Trained
    """
    options, n_classes = training.options, training.positives.shape[1]
    check_memory(training.X.shape, n_classes, options.dtype, engine.n_workers)
    _, features, rows = view_by_frequency(prepare_rows(training.X, options.dtype, options.bias))
    weights = np.zeros((training.X.shape[1] + 1, n_classes), rows.dtype)

    def take(W: Matrix, columns: slice) -> None:
        put_block(W, features, np.arange(columns.start, columns.stop), weights)

    solutions = _train_blocks(training, rows, engine, take, checkpoint, progress, key)
    return Trained(LinearModel(weights[:-1].T, weights[-1] * rows.bias), solutions)


def score_one_vs_rest(
    training: Training,
    X: sp.csr_array,
    engine: Engine,
    checkpoint: Checkpoint | None = None,
    key: str = "",
    start: list[BlockSolution] | None = None,
) -> Matrix:
    """Train as `train_one_vs_rest`, and return the scores of other rows; the weights of a block are not kept.

    `start` are solutions for the same classes on the rows that those of `training` were taken from (`training.ids`).
    """
    options, n_classes = training.options, training.positives.shape[1]
    _, features, rows = view_by_frequency(prepare_rows(training.X, options.dtype, options.bias))
    score, scores = BlockScorer(X, features, rows.bias), np.empty((X.shape[0], n_classes), rows.dtype)

    def take(W: Matrix, columns: slice) -> None:
        scores[:, columns] = score(W)

    _train_blocks(training, rows, engine, take, checkpoint, key=key, start=start)
    return scores


def _train_blocks(
    training: Training,
    rows: LinearRows,
    engine: Engine,
    take: Take,
    checkpoint: Checkpoint | None,
    progress: Progress | None = None,
    key: str = "",
    start: list[BlockSolution] | None = None,
) -> list[BlockSolution]:
    """Train all blocks on prepared rows; `take` receives the weights of each, which are not returned."""
    options, by_class = training.options, sp.csc_array(training.positives)
    tol = _tolerance(training)

    def solve(columns: slice, first: Multipliers | None) -> BlockSolution:
        block, ids = range(columns.start, columns.stop), np.arange(rows.n_samples)
        if options.near:
            positives = np.unique(by_class[:, columns].indices).astype(np.int64)
            ids = nearest_rows(positives, rows.n_samples, [options.seed, columns.start])
        view = view_all(rows) if len(ids) == rows.n_samples else view_some(rows, ids)
        cost = signed_costs(by_class, block, training.row_cost, training.positive_weight, rows.dtype, ids)
        if training.pair_weight is not None:
            factors = training.pair_weight(training.positives, columns)
            cost *= factors if len(ids) == len(factors) else factors[ids]
        solution = solve_block(
            view.rows,
            cost,
            loss=options.loss,
            tol=tol,
            max_iter=options.max_iter,
            seed=options.seed,
            start=first,
        )
        if len(ids) == rows.n_samples:
            # The multipliers of a finished block take at most the memory of its weights.
            small = 9 * len(solution.multipliers.rows) <= solution.weights.nbytes
            return solution if small else solution._replace(multipliers=no_multipliers(rows.dtype))
        weights = np.zeros((rows.n_features + 1, cost.shape[1]), rows.dtype)
        weights[view.features] = solution.weights
        return solution._replace(weights=weights, multipliers=no_multipliers(rows.dtype))

    def train_block(block: range) -> BlockSolution:
        columns = slice(block.start, block.stop)
        piece = checkpoint.load(f"{key}block-{block.start}") if checkpoint is not None else None
        if piece is None or not set(Multipliers._fields) <= set(piece.arrays):
            solution = solve(columns, warm.get(block.start))
            if checkpoint is not None:
                fields = solution._asdict()
                converged = fields.pop("converged")
                fields |= fields.pop("multipliers")._asdict()
                checkpoint.save(f"{key}block-{block.start}", fields, {"converged": converged})
        else:
            fields = dict(piece.arrays)
            multipliers = Multipliers(*(fields.pop(name) for name in Multipliers._fields))
            solution = BlockSolution(
                **fields, multipliers=multipliers, converged=bool(piece.meta["converged"])
            )
        take(solution.weights, columns)
        return solution._replace(weights=np.empty(0))

    blocks = class_blocks(by_class.shape[1])
    warm = dict[int, Multipliers]()
    if start is not None and training.ids is not None:
        for block, solution in zip(blocks, start, strict=True):
            if solution.multipliers.rows.size:
                warm[block.start] = multipliers_of_rows(solution.multipliers, training.ids)
    return list(engine.map(train_block, blocks, progress=progress))
