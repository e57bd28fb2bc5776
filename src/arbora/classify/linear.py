"""Many linear classifiers: weights and scores, one-vs-rest training in blocks of classes, weights of all features."""

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
from arbora.core.chunks import require_memory, split
from arbora.core.engine import Engine
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.core.products import csr_matmul, csr_matmul_sparse, is_small, small_product
from arbora.core.trace import Trace
from arbora.infer.linear.coupled import Multipliers, multipliers_of_rows, no_multipliers
from arbora.infer.linear.flat import BlockSolution, solve_block
from arbora.infer.linear.rows import BLOCK, LinearRows, class_blocks, prepare_rows, view_by_frequency
from arbora.infer.tree_sum import pruned
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

    Parameters
    ----------
    by_class : sparse CSC of shape (n_samples, n_classes)
        Marks the positives, with sorted rows.
    block : range
        Classes.
    row_cost : ndarray of shape (n_samples,)
    positive_weight : ndarray of shape (n_classes,)
    dtype : dtype
    ids : ndarray of int, optional
        Sorted row numbers, if not all rows are needed.

    Examples
    --------
    >>> positives = sp.csc_array([[1, 0], [0, 1], [0, 0]])
    >>> signed_costs(positives, range(0, 2), np.array([1.0, 2.0, 3.0]), np.array([10.0, 1.0]), np.float64)
    array([[10., -1.],
           [-2.,  2.],
           [-3., -3.]])
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

    Parameters
    ----------
    X : sparse CSR of shape (n_samples, n_features)
    features : ndarray of int of shape (n_used + 1,)
        Number in X of each feature of the weights; the last one is the bias.
    bias : float
        Value of the bias feature.

    Examples
    --------
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
    """Train one linear classifier for each column of `positives`.

    Parameters
    ----------
    training : Training
    engine : Engine
    checkpoint : Checkpoint, optional
        Finished blocks are saved there, and loaded from there.
    progress : Progress, optional

    Returns
    -------
    Trained
    """
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

    Examples
    --------
    >>> import numpy as np
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


# --- Train on the features that occur in X, then expand the weights to all features -------------------------
#
# The weights of very many classes may fill the memory, so they are not copied if that can be avoided:
#
# - if most features occur, all of them are trained, and the weights of the others stay zero;
# - otherwise the weights are copied into a new matrix, whose pages of zeros take no memory;
# - pruned weights become a sparse matrix of the entries that are large enough.


_DENSE_SHARE = 0.5  # share of non-zero entries above which X is made dense
_OCCURRING_SHARE = 0.5  # share of occurring features above which all features are trained
_WEIGHTS_PER_CHUNK = 1 << 24  # weights that are copied at a time


def design_matrix(X: sp.csr_array, bias: float, dtype: Any) -> tuple[Any, Ints]:
    """Select the features to train on and append a constant one for the bias.

    The result is dense if most of its entries are non-zero.

    Returns
    -------
    rows : ndarray or CSR array of shape (n_samples, n_selected) or, with a bias, (n_samples, n_selected + 1)
    selected : ndarray of int of shape (n_selected,)
        Columns of X: the features that occur, or all features if most occur.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> design_matrix(sp.csr_array([[0.0, 3.0]]), 1.0, "float64")
    (array([[3., 1.]]), array([1]))
    """
    selected = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
    if len(selected) > _OCCURRING_SHARE * X.shape[1]:
        selected = np.arange(X.shape[1])
    X = X.astype(dtype) if len(selected) == X.shape[1] else sp.csr_array(X[:, selected]).astype(dtype)
    column = np.full((X.shape[0], 1 if bias else 0), bias, dtype)
    if X.nnz > _DENSE_SHARE * X.shape[0] * max(X.shape[1], 1):
        return np.hstack([X.toarray(), column]), selected
    return sp.csr_array(sp.hstack([X, sp.csr_array(column)], format="csr")), selected


def _chunks(n_rows: int, n_columns: int) -> list[slice]:
    return split(n_rows, size=max(1, _WEIGHTS_PER_CHUNK // max(1, n_columns)))


def needs_no_copy(n_selected: int, n_features: int, bias: float, engine: Engine) -> bool:
    """Whether the trained matrix has the shape of the final weights.

    A file of weights always has a row for the bias.
    """
    return n_selected == n_features and (bias > 0 or not engine.keeps_weights_in_files)


def dense_model(
    W: Matrix,
    selected: Ints,
    n_features: int,
    bias: float,
    engine: Engine,
    position: Ints | None = None,
) -> LinearModel:
    """Expand trained weights to all features, as dense arrays.

    Parameters
    ----------
    W : ndarray of shape (n_selected, n_classes) or, with a bias, (n_selected + 1, n_classes)
        Trained weights, the bias last. They may be overwritten.
    selected : ndarray of int of shape (n_selected,)
        Features of the rows of W.
    n_features : int
    bias : float
        Value of the constant feature; 0 without a bias.
    engine : Engine
    position : ndarray of int of shape (n_classes,), optional
        Column of W of each class; by default the columns are in the order of the classes.

    Returns
    -------
    LinearModel

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.core.engine import SerialEngine
    >>> W = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> dense_model(W, np.array([1, 2]), 3, 10.0, SerialEngine())
    LinearModel(coef=array([[0., 1., 3.],
           [0., 2., 4.]]), intercept=array([50., 60.]))
    """
    target = np.append(selected, n_features) if bias else selected
    chunks = _chunks(len(target), W.shape[1])
    if needs_no_copy(len(selected), n_features, bias, engine):
        for chunk in chunks if position is not None else []:
            W[chunk] = W[chunk][:, position]
            engine.settle(W)
        if not bias:
            return LinearModel(W.T, np.zeros(W.shape[1], W.dtype))
        return LinearModel(W[:-1].T, W[-1] * W.dtype.type(bias))
    weights = engine.zeros((n_features + 1, W.shape[1]), W.dtype)
    for chunk in chunks:
        weights[target[chunk]] = W[chunk] if position is None else W[chunk][:, position]
        engine.settle(W)
        engine.settle(weights)
    engine.discard(W)
    return LinearModel(weights[:-1].T, weights[-1] * weights.dtype.type(bias))


def pruning_limits(n_weights: int, prune_below: float, bias: float, dtype: Any) -> Matrix:
    """Return, for each row of the weights, the absolute value above which entries are kept; 0 for the bias."""
    limits = np.full(n_weights, prune_below, dtype)
    if bias:
        limits[-1] = 0
    return limits


def pruned_model(
    W: Any,
    selected: Ints,
    n_features: int,
    bias: float,
    limits: Matrix,
    position: Ints | None = None,
) -> LinearModel:
    """Expand trained weights to all features, as a sparse matrix of the entries above `limits`.

    Parameters
    ----------
    W : ndarray or CSR array of shape (n_selected, n_classes) or, with a bias, (n_selected + 1, n_classes)
        Trained weights, the bias last. A sparse W is pruned already.
    selected, n_features, bias, position
        As in `dense_model`.
    limits : ndarray of shape (len(W),)
        As `pruning_limits` returns them.

    Returns
    -------
    LinearModel

    Examples
    --------
    >>> import numpy as np
    >>> W = np.array([[1.0, 0.2], [0.3, 4.0], [0.1, 6.0]])
    >>> model = pruned_model(W, np.array([1, 2]), 3, 10.0, np.array([0.5, 0.5, 0.0]))
    >>> model.coef.toarray(), model.intercept
    (array([[0., 1., 0.],
           [0., 0., 4.]]), array([ 1., 60.]))
    """
    if not sp.issparse(W):
        chunks = _chunks(*W.shape) or [slice(0)]
        W = sp.csr_array(sp.vstack([pruned(W[chunk], limits[chunk, None]) for chunk in chunks], format="csr"))
    W = W if position is None else sp.csr_array(W[:, position])
    n_classes, dtype = W.shape[1], W.dtype
    intercept = W[[-1]].toarray().ravel() * dtype.type(bias) if bias else np.zeros(n_classes, dtype)
    indptr = np.zeros(n_features + 1, W.indptr.dtype)
    indptr[selected + 1] = np.diff(W.indptr)[: len(selected)]
    np.cumsum(indptr, out=indptr)
    entries = W.data[: indptr[-1]], W.indices[: indptr[-1]], indptr
    return LinearModel(sp.csc_array(entries, shape=(n_classes, n_features)), intercept)
