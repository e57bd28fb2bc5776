"""Training and applying many linear classifiers: blocks of classes on an engine, scores by sparse products."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from arbora.engine import ThreadEngine
from arbora.infer import Trace
from arbora.infer.dual import BLOCK, BlockSolution, class_blocks
from arbora.kernels import csr_matmul

_SCORES_PER_CHUNK = 1 << 24  # at most 64 MiB of float32 scores at a time where all of them are not needed
_WEIGHTS_PER_CHUNK = 1 << 25  # at most 128 MiB of float32 weights of a sparse model unfolded


class LinearModel(NamedTuple):
    """Weights of n_classes linear scores; `coef` is dense with its features contiguous in memory, or sparse."""

    coef: Any
    intercept: NDArray[Any]


def as_csr(X: Any) -> sp.csr_array:
    """Return X as CSR without duplicates; a mostly dense array keeps its zeros, so that all rows are alike."""
    if sp.issparse(X):
        X = sp.csr_array(X)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X
    n_samples, n_features = X.shape
    if np.count_nonzero(X) < X.size / 2:
        return sp.csr_array(X)
    indices = np.tile(np.arange(n_features, dtype=np.int32), n_samples)
    indptr = np.arange(n_samples + 1, dtype=np.int64) * n_features
    return sp.csr_array((np.ascontiguousarray(X).ravel(), indices, indptr), shape=X.shape)


def signed_costs(
    positives: sp.csc_array, row_cost: NDArray[Any], positive_weight: NDArray[Any], dtype: Any
) -> NDArray[Any]:
    """Sign times cost of every (row, class): row_cost for negatives, times the class's weight for positives."""
    n_block = positives.shape[1]
    cost = np.repeat(-row_cost.astype(dtype)[:, None], n_block, axis=1)
    column = np.repeat(np.arange(n_block), np.diff(positives.indptr))
    rows = positives.indices
    cost[rows, column] = row_cost[rows] * positive_weight[column]
    return cost


def merged_trace(solutions: Sequence[BlockSolution]) -> Trace:
    """Sum the estimates of the blocks iteration by iteration; a block that has ended keeps its last values.

    The seconds are those of all blocks together: work, not waiting.
    """
    length = max((len(solution.history) for solution in solutions), default=0)
    total = np.zeros((length, 3))
    for solution in solutions:
        history = solution.history
        total[: len(history)] += history
        total[len(history) :] += history[-1]
    objective = total[:, 0]
    relative = total[:, 1] / np.maximum(objective, np.finfo(np.float64).tiny)
    values = np.vstack([objective, relative, total[:, 2]])
    return Trace.from_state({"columns": ["objective", "gap", "seconds"], "values": values})


def relative_gap(solutions: Sequence[BlockSolution]) -> float:
    """Duality gap of all classes together over their primal objective."""
    objective = sum(float(solution.objectives.sum()) for solution in solutions)
    gap = sum(float(solution.gaps.sum()) for solution in solutions)
    return gap / max(objective, np.finfo(np.float64).tiny)


def warn_unless_converged(solutions: Sequence[BlockSolution], tol: float, max_iter: int) -> None:
    """Warn with the gap that was reached and what to do."""
    n_open = sum(not solution.converged for solution in solutions)
    if n_open:
        warnings.warn(
            f"{n_open} of {len(solutions)} blocks of classes stopped at max_iter={max_iter} before the relative "
            f"duality gap reached tol={tol:g}; it is {relative_gap(solutions):.2g} over all classes. "
            "Increase max_iter, or lower C, or scale the features.",
            ConvergenceWarning,
            stacklevel=4,
        )


def linear_scores(X: Any, model: LinearModel, engine: ThreadEngine) -> NDArray[Any]:
    """Compute X @ coef.T + intercept; a sparse coef is unfolded a few classes, and the features of X, at a time."""
    coef, intercept = model
    if not sp.issparse(coef):
        weights = coef.T  # C-contiguous by construction: (n_features, n_classes)
        if sp.issparse(X):
            return csr_matmul(sp.csr_array(X), weights, engine) + intercept
        return np.asarray(X, dtype=weights.dtype) @ weights + intercept
    X = as_csr(X)
    scores = np.empty((X.shape[0], coef.shape[0]), coef.dtype)
    used, local = np.unique(X.indices, return_inverse=True)  # one document needs the weights of few features
    if len(used) < X.shape[1]:
        coef = sp.csc_array(coef)[:, used]
        indices = local.astype(X.indices.dtype)
        X = sp.csr_array((X.data, indices, X.indptr), shape=(X.shape[0], len(used)))
    coef = sp.csr_array(coef)
    step = max(BLOCK, _WEIGHTS_PER_CHUNK // max(1, coef.shape[1]))
    for first in range(0, coef.shape[0], step):
        part = coef[first : first + step]
        scores[:, first : first + step] = csr_matmul(X, np.ascontiguousarray(part.toarray().T), engine)
    scores += intercept
    return scores


def by_chunks(X: Any, n_columns: int, function: Callable[[Any], Any]) -> list[Any]:
    """Apply a function to runs of rows of X so short that n_columns scores a row stay small in memory."""
    step = max(1, _SCORES_PER_CHUNK // max(1, n_columns))
    return [function(X[first : first + step]) for first in range(0, X.shape[0], step)]
