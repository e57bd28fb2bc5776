"""Weights of many linear classifiers: scores by sparse products, signed costs, traces and certificates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from arbora.core.chunks import require_memory
from arbora.core.engine import Engine
from arbora.core.estimator import warn_caller
from arbora.core.products import csr_matmul, csr_matmul_sparse, is_small, small_product
from arbora.core.trace import Trace
from arbora.infer.linear.flat import BlockSolution
from arbora.kernels.linear.accumulate import fill_costs

_SCORES_PER_CHUNK = 1 << 24  # at most 64 MiB of float32 scores at a time


class LinearModel(NamedTuple):
    """Weights of n_classes linear scores. `coef` is sparse, or dense with the features contiguous in memory."""

    coef: Any
    intercept: NDArray[Any]


class PartsModel(NamedTuple):
    """Weights as sparse parts (n_parts x n_features): a class is the sum of parts times its shares in them."""

    parts: sp.csc_array
    intercept: NDArray[Any]
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


def as_csr(X: Any) -> sp.csr_array:
    """Return X as CSR without duplicates. A mostly dense array keeps its zeros, so that all rows have one length."""
    if hasattr(X, "indptr"):
        rows: sp.csr_array = sp.csr_array(X)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        return rows
    n_samples, n_features = X.shape
    if np.count_nonzero(X) < X.size / 2:
        return sp.csr_array(X)
    indices = np.tile(np.arange(n_features, dtype=np.int32), n_samples)
    indptr = np.arange(n_samples + 1, dtype=np.int64) * n_features
    return sp.csr_array((np.ascontiguousarray(X).ravel(), indices, indptr), shape=X.shape)


def signed_costs(
    by_class: sp.csc_array,
    block: range,
    row_cost: NDArray[Any],
    positive_weight: NDArray[Any],
    dtype: Any,
    ids: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
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


def gap_trace(
    objective: NDArray[Any], gap: NDArray[Any], seconds: NDArray[Any], certified: NDArray[np.bool_]
) -> Trace:
    """Make a trace with relative duality gaps, in the column `gap` where certified, else in `gap_estimate`.

    Examples
    --------
    >>> import numpy as np
    >>> trace = gap_trace(np.array([4.0, 2.0]), np.ones(2), np.arange(2.0), np.array([False, True]))
    >>> trace["gap_estimate"], trace["gap"]
    (array([0.25,  nan]), array([nan, 0.5]))
    """
    relative = gap / np.maximum(objective, np.finfo(np.float64).tiny)
    columns = {"objective": objective, "seconds": seconds}
    if not certified.all():
        columns["gap_estimate"] = np.where(certified, np.nan, relative)
    columns["gap"] = np.where(certified, relative, np.nan)
    return Trace.from_state({"columns": list(columns), "values": np.vstack(list(columns.values()))})


def relative_gap(solutions: Sequence[BlockSolution]) -> float:
    """Duality gap of all classes together over their primal objective."""
    objective = sum(float(solution.objectives.sum()) for solution in solutions)
    gap = sum(float(solution.gaps.sum()) for solution in solutions)
    return gap / max(objective, float(np.finfo(np.float64).tiny))


def keep_fit(estimator: Any, model: LinearModel, trace: Trace, gap: float) -> None:
    """Set the weights, the trace and the certified relative gap of an estimator."""
    estimator.coef_, estimator.intercept_ = model
    estimator.trace_, estimator.n_iter_, estimator.duality_gap_ = trace, max(1, len(trace)), gap


def keep_solution(
    estimator: Any, model: LinearModel, solutions: Sequence[BlockSolution], tol: float | None = None
) -> None:
    """Set the fitted attributes of an estimator from the solutions of its blocks; warn if one has not converged.

    `tol` is the relative gap that they were trained to; by default that of the estimator.
    """
    keep_fit(estimator, model, merged_trace(solutions), relative_gap(solutions))
    n_open = sum(not solution.converged for solution in solutions)
    if n_open:
        reached = f"tol={estimator.tol:g}"
        if tol is not None and tol != estimator.tol:
            reached = f"{tol:g} (tol={estimator.tol:g}, and at least {tol:g} for near negatives)"
        warn_caller(
            f"{n_open} of {len(solutions)} blocks of classes stopped at max_iter={estimator.max_iter} before the "
            f"relative duality gap reached {reached}; it is {estimator.duality_gap_:.2g} over all "
            "classes. Increase max_iter, or lower C, or scale the features.",
            ConvergenceWarning,
        )


def linear_scores(X: Any, model: LinearModel | PartsModel, engine: Engine) -> NDArray[Any]:
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

    def __init__(self, X: sp.csr_array, features: NDArray[np.int64], bias: Any) -> None:
        used = features[:-1]
        self.rows = X if np.array_equal(used, np.arange(X.shape[1])) else sp.csr_array(X[:, used])
        self.bias = bias

    def __call__(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Scores (n_samples, n_block) by the weights (n_used + 1, n_block), bias last."""
        return np.asarray(csr_matmul(self.rows, weights[:-1]) + self.bias * weights[-1])


def by_chunks(X: Any, n_columns: int, function: Callable[[Any], Any]) -> list[Any]:
    """Apply a function to chunks of rows, so small that n_columns scores per row stay small in memory."""
    step = max(1, _SCORES_PER_CHUNK // max(1, n_columns))
    return [function(X[first : first + step]) for first in range(0, X.shape[0], step)]
