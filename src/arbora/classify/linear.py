"""Many linear classifiers: weights and scores, one-vs-rest training in blocks of classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from arbora.arrays import TINY, Ints, Matrix
from arbora.classify.training import Options, Training, as_csr
from arbora.core.checkpoint import Checkpoint
from arbora.core.chunks import require_memory
from arbora.core.engine import Engine
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.core.products import csr_matmul, csr_matmul_sparse, is_small, small_product
from arbora.core.trace import Trace
from arbora.infer.linear.coupled import Multipliers, multipliers_of_rows, no_multipliers
from arbora.infer.linear.flat import BlockSolution, solve_block
from arbora.infer.linear.rows import BLOCK, LinearRows, class_blocks, prepare_rows, view_by_frequency
from arbora.kernels import put_block
from arbora.kernels.linear.accumulate import fill_costs

# --- Weights of many linear classifiers: scores by sparse products, signed costs ---


_SCORES_PER_CHUNK = 1 << 24  # at most 64 MiB of float32 scores at a time


class LinearModel(NamedTuple):
    """Weights of n_classes linear scores. `coef` is sparse, or dense with the features contiguous in memory."""

    coef: Any
    intercept: Matrix


class PartsModel(NamedTuple):
    """Weights as sparse parts (n_parts x n_features): a class is the sum of parts times its shares in them."""

    parts: sp.csc_array
    intercept: Matrix
    sharing: sp.csc_array  # n_parts x n_classes


def full_weights(parts: Any, sharing: Any) -> sp.csr_array:
    """Weights of all classes from their parts, as a sparse matrix (n_classes x n_features)."""
    entries = int(np.diff(sp.csr_array(parts).indptr) @ np.diff(sp.csr_array(sharing).indptr))
    require_memory(
        12 * entries,
        f"coef_ of {sharing.shape[1]} classes, as a sparse matrix with up to {entries} entries,",
        "Use differences_ and sharing_, whose product it is.",
    )
    return sp.csr_array(sharing.T @ parts)


def signed_costs(
    by_class: sp.csc_array,
    block: range,
    row_cost: Matrix,
    positive_weight: Matrix,
    dtype: Any,
    ids: Ints | None = None,
) -> Matrix:
    """Sign times cost of every (row, class): row_cost for negatives, times the weight of the class for positives.

    `by_class` (n_samples x n_classes) marks the positives, with sorted rows; `ids` are sorted row numbers, or None
    for all rows.
    """
    ids = np.arange(len(row_cost)) if ids is None else ids
    cost = np.empty((len(ids), len(block)), dtype)
    fill_costs(by_class.indptr, by_class.indices, block.start, row_cost, positive_weight, ids, cost)
    return cost


def linear_scores(X: Any, model: LinearModel | PartsModel, engine: Engine) -> Matrix:
    """Scores of all classes: X @ coef.T (or, by parts, X @ parts.T @ sharing) plus the intercept.

    A few rows are multiplied by SciPy, more by compiled kernels: the scores of a row in batches of different sizes
    agree up to rounding in the precision of the weights.
    """
    coef: Any
    coef, intercept, *sharing = model
    if hasattr(coef, "indptr"):
        # By features: the weights of features that do not occur in X are never read.
        rows, by_feature = as_csr(X), sp.csr_array(sp.csc_array(coef).T)
        if is_small(rows, coef.shape[0]):
            scores = small_product(rows, by_feature)
        else:
            scores = csr_matmul_sparse(rows, by_feature, engine)
    elif hasattr(X, "indptr"):
        rows = sp.csr_array(X)
        if is_small(rows, len(coef)):
            scores = small_product(rows, coef.T)
        else:
            scores = csr_matmul(rows, coef.T, engine)  # C-contiguous by construction
    else:
        scores = np.asarray(X, dtype=coef.dtype) @ coef.T
    if sharing:
        scores = (sp.csr_array(sharing[0].T) @ scores.T).T
    return np.asarray(scores + intercept)


class BlockScorer:
    """Scores of some rows, from the weights of one block of classes at a time.

    `features` (n_used + 1) is the number in X of each feature of the weights; the last one is the bias, of value
    `bias`.

    >>> score = BlockScorer(sp.csr_array([[1.0, 2.0, 3.0]]), np.array([2, 0, 3]), 10.0)
    >>> score(np.array([[1.0], [1.0], [0.5]]))  # 3 + 1 + 10 / 2
    array([[9.]])
    """

    def __init__(self, X: sp.csr_array, features: Ints, bias: Any) -> None:
        used = features[:-1]
        self.rows = X if np.array_equal(used, np.arange(X.shape[1])) else sp.csr_array(X[:, used])
        self.bias = bias

    def __call__(self, weights: Matrix) -> Matrix:
        """Scores (n_samples, n_block) by the weights (n_used + 1, n_block), bias last."""
        return np.asarray(csr_matmul(self.rows, weights[:-1]) + self.bias * weights[-1])


def by_chunks(X: Any, n_columns: int, function: Callable[[Any], Any]) -> list[Any]:
    """Apply a function to chunks of rows, so small that n_columns scores per row stay small in memory."""
    step = max(1, _SCORES_PER_CHUNK // max(1, n_columns))
    return [function(X[first : first + step]) for first in range(0, X.shape[0], step)]


# --- One-vs-rest training of any number of classes: blocks on an engine, certified, resumable ---------------


class Trained(NamedTuple):
    """Weights, and the certificates and histories of the blocks."""

    model: LinearModel
    solutions: list[BlockSolution]

    @property
    def trace(self) -> Trace:
        """Histories of the blocks, added up."""
        return merged_trace(self.solutions)

    @property
    def gap(self) -> float:
        """Certified duality gap of all classes together over their primal objective."""
        objective = sum(float(solution.objectives.sum()) for solution in self.solutions)
        gap = sum(float(solution.gaps.sum()) for solution in self.solutions)
        return gap / max(objective, TINY)

    def warn_if_open(self, options: Options) -> None:
        """Warn if a block of classes has not converged."""
        n_open = sum(not solution.converged for solution in self.solutions)
        if n_open:
            warn_caller(
                f"{n_open} of {len(self.solutions)} blocks of classes stopped at max_iter={options.max_iter} before "
                f"the relative duality gap reached tol={options.tol:g}; it is {self.gap:.2g} over all classes. "
                "Increase max_iter, or lower C, or scale the features.",
                ConvergenceWarning,
            )


def warn_open_gap(gap: float, options: Options, lower: str = "C") -> None:
    """Warn that a joint training has not converged."""
    warn_caller(
        f"training stopped at max_iter={options.max_iter} before the relative duality gap reached "
        f"tol={options.tol:g}; it is {gap:.2g}. Increase max_iter, or lower {lower}, or scale the features.",
        ConvergenceWarning,
    )


Store = Callable[[Matrix, slice], None]  # receives the weights of a finished block, and its classes


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
        f"Use {single_precision(dtype)}fewer threads, or fewer features (for text: a larger min_df).",
    )


def single_precision(dtype: Any) -> str:
    """Advice to compute in single precision, for an error message; empty if the fit does already."""
    return "" if np.dtype(dtype) == np.float32 else "a tol of 1e-6 or more (single precision), "


def train_one_vs_rest(
    training: Training,
    engine: Engine,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train one linear classifier for each column of `positives`; the checkpoint saves and loads finished blocks."""
    options, n_classes = training.options, training.positives.shape[1]
    check_memory(training.X.shape, n_classes, options.dtype, engine.n_workers)
    _, features, rows = view_by_frequency(prepare_rows(training.X, options.dtype, options.bias))
    weights = np.zeros((training.X.shape[1] + 1, n_classes), rows.dtype)

    def store(W: Matrix, columns: slice) -> None:
        put_block(W, features, np.arange(columns.start, columns.stop), weights)

    solutions = _train_blocks(training, rows, engine, store, checkpoint, progress)
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

    `key` is the prefix of the names of the blocks in the checkpoint. `start` are solutions for the same classes on
    the rows that those of `training` were taken from (`training.ids`).
    """
    options, n_classes = training.options, training.positives.shape[1]
    _, features, rows = view_by_frequency(prepare_rows(training.X, options.dtype, options.bias))
    score, scores = BlockScorer(X, features, rows.bias), np.empty((X.shape[0], n_classes), rows.dtype)

    def store(W: Matrix, columns: slice) -> None:
        scores[:, columns] = score(W)

    _train_blocks(training, rows, engine, store, checkpoint, key=key, start=start)
    return scores


def _train_blocks(
    training: Training,
    rows: LinearRows,
    engine: Engine,
    store: Store,
    checkpoint: Checkpoint | None,
    progress: Progress | None = None,
    key: str = "",
    start: list[BlockSolution] | None = None,
) -> list[BlockSolution]:
    """Train all blocks on prepared rows; `store` receives the weights of each, which are not returned."""
    options, by_class = training.options, sp.csc_array(training.positives)
    blocks, warm = class_blocks(by_class.shape[1]), dict[int, Multipliers]()
    if start is not None and training.ids is not None:
        for block, solution in zip(blocks, start, strict=True):
            if solution.multipliers.rows.size:
                warm[block.start] = multipliers_of_rows(solution.multipliers, training.ids)

    def solve(block: range) -> BlockSolution:
        cost = signed_costs(by_class, block, training.row_cost, training.positive_weight, rows.dtype)
        if training.pair_weight is not None:
            cost *= training.pair_weight(training.positives, slice(block.start, block.stop))
        solution = solve_block(
            rows,
            cost,
            loss=options.loss,
            tol=options.tol,
            max_iter=options.max_iter,
            seed=options.seed,
            start=warm.get(block.start),
        )
        # The multipliers of a finished block take at most the memory of its weights.
        small = 9 * len(solution.multipliers.rows) <= solution.weights.nbytes
        return solution if small else solution._replace(multipliers=no_multipliers(rows.dtype))

    def train_block(block: range) -> BlockSolution:
        name = f"{key}block-{block.start}"
        piece = checkpoint.load(name) if checkpoint is not None else None
        solution = solve(block) if piece is None else BlockSolution.from_piece(piece)
        if checkpoint is not None and piece is None:
            checkpoint.save(name, *solution.to_piece())
        store(solution.weights, slice(block.start, block.stop))
        return solution._replace(weights=np.empty(0))

    return list(engine.map(train_block, blocks, progress=progress))


def merged_trace(solutions: Sequence[BlockSolution]) -> Trace:
    """Add up the histories of the blocks, iteration by iteration; a block that has ended keeps its last values.

    The seconds are the sum over the blocks: time of work, not of waiting.
    """
    length = max((len(solution.history) for solution in solutions), default=0)
    total = np.zeros((length, 3))
    for solution in solutions:
        history = solution.history
        total[: len(history)] += history
        total[len(history) :] += history[-1]
    objective, gap, seconds = total.T
    return gap_trace(objective, gap, seconds, np.arange(length) == length - 1)


def gap_trace(objective: Matrix, gap: Matrix, seconds: Matrix, certified: NDArray[np.bool_]) -> Trace:
    """Make a trace with relative duality gaps, in the column `gap` where certified, else in `gap_estimate`.

    >>> trace = gap_trace(np.array([4.0, 2.0]), np.ones(2), np.arange(2.0), np.array([False, True]))
    >>> trace["gap_estimate"], trace["gap"]
    (array([0.25,  nan]), array([nan, 0.5]))
    """
    relative = gap / np.maximum(objective, TINY)
    columns = {"objective": objective, "seconds": seconds}
    if not certified.all():
        columns["gap_estimate"] = np.where(certified, np.nan, relative)
    columns["gap"] = np.where(certified, relative, np.nan)
    return Trace.from_state({"columns": list(columns), "values": np.vstack(list(columns.values()))})
