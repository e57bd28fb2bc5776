"""One-vs-rest training of any number of classes: blocks on an engine, certified, resumable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify._common.linear_model import LinearModel, signed_costs
from arbora.core.checkpoint import Checkpoint
from arbora.core.memory import require_memory
from arbora.core.progress import Progress
from arbora.engine import ThreadEngine
from arbora.infer.linear.flat import BLOCK, BlockSolution, class_blocks, prepare_rows, solve_block


class Options(NamedTuple):
    """What the solver needs to know beside the data."""

    loss: str
    tol: float
    max_iter: int
    bias: float
    dtype: Any
    seed: int


class Training(NamedTuple):
    """Checked input of a fit: rows, the classes they carry, what a unit of loss costs."""

    X: sp.csr_array
    positives: sp.csr_array  # n_samples x n_classes
    row_cost: NDArray[Any]  # C times the weight of the row
    positive_weight: NDArray[Any]  # factor on the cost of the positives of each class
    options: Options
    # Factors on the costs of the pairs of a block, n_samples x n_block, from the positives of *all* classes (so not
    # to be joined with `with_columns`) and the columns of the block.
    pair_weight: Callable[[sp.csr_array, slice], NDArray[Any]] | None = None

    def with_columns(self, columns: slice) -> Training:
        """Keep some of the classes."""
        return self._replace(
            positives=self.positives[:, columns], positive_weight=self.positive_weight[columns]
        )

    def with_rows(self, rows: NDArray[Any]) -> Training:
        """Keep some of the rows."""
        return self._replace(X=self.X[rows], positives=self.positives[rows], row_cost=self.row_cost[rows])


class Trained(NamedTuple):
    """Weights, and what is left of the block solutions: certificates and histories."""

    model: LinearModel
    solutions: list[BlockSolution]


def check_memory(shape: tuple[int, int], n_classes: int, dtype: Any, n_jobs: int) -> None:
    """Refuse a fit whose weights and block arrays cannot fit."""
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


def train_one_vs_rest(
    training: Training,
    engine: ThreadEngine,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    key: str = "",
) -> Trained:
    """Train one linear classifier for each column of `positives`.

    Parameters
    ----------
    training : Training
    engine : ThreadEngine
    checkpoint : Checkpoint, optional
        Finished blocks are kept there, and taken from there.
    progress : Progress, optional
    key : str
        Put before the names of the blocks in the checkpoint, where several trainings share one.

    Returns
    -------
    Trained
    """
    options = training.options
    check_memory(training.X.shape, training.positives.shape[1], options.dtype, engine.n_workers)
    rows = prepare_rows(training.X, options.dtype, options.bias)
    by_class = sp.csc_array(training.positives)
    n_classes = by_class.shape[1]
    weights = np.empty((rows.n_features + 1, n_classes), rows.dtype)

    def train_block(block: range) -> BlockSolution:
        columns = slice(block.start, block.stop)
        piece = checkpoint.load(f"{key}block-{block.start}") if checkpoint is not None else None
        if piece is None:
            cost = signed_costs(
                by_class[:, columns], training.row_cost, training.positive_weight[columns], rows.dtype
            )
            if training.pair_weight is not None:
                cost *= training.pair_weight(training.positives, columns)
            solution = solve_block(
                rows, cost, loss=options.loss, tol=options.tol, max_iter=options.max_iter, seed=options.seed
            )
            # What is kept of a block must not grow with the samples.
            solution = solution._replace(multipliers=np.empty(0))
            if checkpoint is not None:
                fields = solution._asdict()
                converged = fields.pop("converged")
                checkpoint.save(f"{key}block-{block.start}", fields, {"converged": converged})
        else:
            solution = BlockSolution(**piece.arrays, converged=bool(piece.meta["converged"]))
        weights[:, columns] = solution.weights
        return solution._replace(weights=np.empty(0))

    solutions = engine.map(train_block, class_blocks(n_classes), progress=progress)
    model = LinearModel(weights[:-1].T, weights[-1] * rows.bias)
    return Trained(model, solutions)
