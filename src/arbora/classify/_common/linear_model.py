"""Training and applying many linear classifiers: blocks of classes on an engine, scores by sparse products."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from arbora.core.memory import require_memory
from arbora.core.products import csr_matmul, csr_matmul_sparse
from arbora.core.trace import Trace
from arbora.engine import ThreadEngine
from arbora.infer.linear.flat import BlockSolution

_SCORES_PER_CHUNK = 1 << 24  # at most 64 MiB of float32 scores at a time where all of them are not needed


class LinearModel(NamedTuple):
    """Weights of n_classes linear scores; `coef` is dense with its features contiguous in memory, or sparse."""

    coef: Any
    intercept: NDArray[Any]


class PartsModel(NamedTuple):
    """Weights as sparse parts (n_parts x n_features) of which a class adds up those that it has a share in."""

    parts: sp.csc_array
    intercept: NDArray[Any]
    sharing: sp.csc_array  # n_parts x n_classes


def full_weights(parts: Any, sharing: Any) -> sp.csr_array:
    """Add up the parts of each class, as a sparse matrix (n_classes x n_features)."""
    entries = int(np.diff(sp.csr_array(parts).indptr) @ np.diff(sp.csr_array(sharing).indptr))
    require_memory(
        12 * entries,
        f"coef_ of {sharing.shape[1]} classes, as a sparse matrix with up to {entries} entries,",
        "Use differences_ and sharing_, whose product it is.",
    )
    return sp.csr_array(sharing.T @ parts)


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
    positives: sp.csc_array,
    row_cost: NDArray[Any],
    positive_weight: NDArray[Any],
    dtype: Any,
    ids: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Sign times cost of every (row, class): row_cost for negatives, times the class's weight for positives.

    With `ids`, sorted, of these rows only.
    """
    n_block, rows = positives.shape[1], positives.indices
    column = np.repeat(np.arange(n_block), np.diff(positives.indptr))
    at = rows
    if ids is not None and len(ids) < len(row_cost):
        at = np.searchsorted(ids, rows)
        here = at < len(ids)
        here[here] = ids[at[here]] == rows[here]
        at, rows, column = at[here], rows[here], column[here]
        negative = -row_cost[ids].astype(dtype)
    else:
        negative = -row_cost.astype(dtype)
    cost = np.repeat(negative[:, None], n_block, axis=1)
    cost[at, column] = row_cost[rows] * positive_weight[column]
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


def linear_scores(X: Any, model: LinearModel | PartsModel, engine: ThreadEngine) -> NDArray[Any]:
    """Compute the scores of all classes: X @ coef.T, shared out if the model has parts, plus the intercept."""
    coef, intercept, *sharing = model
    if sp.issparse(coef):
        # Feature by feature: the weights of the features that do not occur in X are never touched.
        scores = csr_matmul_sparse(as_csr(X), sp.csr_array(sp.csc_array(coef).T), engine)
    elif sp.issparse(X):
        scores = csr_matmul(sp.csr_array(X), coef.T, engine)  # C-contiguous by construction
    else:
        scores = np.asarray(X, dtype=coef.dtype) @ coef.T
    if sharing:
        scores = (sp.csr_array(sharing[0].T) @ scores.T).T
    return np.asarray(scores + intercept)


def by_chunks(X: Any, n_columns: int, function: Callable[[Any], Any]) -> list[Any]:
    """Apply a function to runs of rows of X so short that n_columns scores a row stay small in memory."""
    step = max(1, _SCORES_PER_CHUNK // max(1, n_columns))
    return [function(X[first : first + step]) for first in range(0, X.shape[0], step)]
