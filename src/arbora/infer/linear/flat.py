"""One-vs-rest training by class-blocked coordinate descent: sweep, polish, certify.

`solve_block` trains a block of one-vs-rest problems that share their rows,

    min_w  1/2 ||w||^2 + sum_i c_i loss(y_i w.x_i)        (one such problem for each column of the block),

and stops when the certified duality gap, summed over the block, is at most `tol` times the primal objective. It
alternates a sweep over all rows, for all classes of the block, with sweeps over the pairs (row, class) that can still
move. The sweep estimates the gap for free; the exact gap is computed only when the estimate is small enough.
"""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.kernels import LOSSES, certify_block, sweep_active, sweep_block

BLOCK = 32  # classes trained together: four AVX registers of float32, two cache lines per feature

_ACTIVE_WORK = 3.0  # work spent on the active pairs, as a multiple of a full sweep
SPARSE_PENALTY = 6.0  # a scalar, indirect multiply-add costs about as much as six vectorised ones
MOST_ACTIVE_SWEEPS = 200
_SMALLEST_NORM2 = 1e-30  # its inverse is finite in float32
ENOUGH = 0.2  # sweeps over the active pairs of a class end when its gap is this share of the block's mean gap


def class_blocks(n_classes: int) -> list[range]:
    """Split classes into blocks of nearly equal size, at most BLOCK, for any number of threads.

    Examples
    --------
    >>> class_blocks(40)
    [range(0, 20), range(20, 40)]
    """
    n_blocks = -(-n_classes // BLOCK)
    bounds = np.linspace(0, n_classes, n_blocks + 1).round().astype(int).tolist()
    return [range(first, stop) for first, stop in pairwise(bounds)]


class LinearRows(NamedTuple):
    """Rows prepared for all blocks: CSR arrays, squared norms with the bias feature, and the value of the bias."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    norm2: NDArray[Any]
    bias: Any
    dense: bool
    n_features: int

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.norm2)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""
        return self.data.dtype


class BlockSolution(NamedTuple):
    """Weights of a block (bias last), multipliers, certificate by class, and history.

    The history is a plain array: the histories of all blocks are added up, and saved in checkpoints.
    """

    weights: NDArray[Any]
    multipliers: NDArray[Any]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    history: NDArray[np.float64]  # n_iter x (objective, gap, seconds)
    converged: bool


def prepare_rows(X: sp.csr_array, dtype: Any = np.float32, bias: float = 1.0) -> LinearRows:
    """Cast a CSR matrix to the working precision and compute its squared norms.

    Parameters
    ----------
    X : sparse CSR of shape (n_samples, n_features)
        Without duplicate entries.
    dtype : float32 or float64
    bias : float
        Value of the constant feature that carries the intercept; 0 for none.

    Returns
    -------
    LinearRows

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> prepare_rows(sp.csr_array([[3.0, 4.0]])).norm2
    array([26.], dtype=float32)
    """
    dtype = np.dtype(dtype)
    data = np.ascontiguousarray(X.data, dtype=dtype)
    squares = sp.csr_array((data.astype(np.float64) ** 2, X.indices, X.indptr), shape=X.shape)
    norm2 = np.asarray(squares.sum(axis=1)).ravel() + bias**2
    # The gradient of an empty row without a bias never changes: with a tiny norm, one step reaches the optimum.
    norm2 = np.maximum(norm2, _SMALLEST_NORM2).astype(dtype)
    dense = X.nnz == X.shape[0] * X.shape[1] and bool(X.has_sorted_indices)
    return LinearRows(X.indptr, X.indices, data, norm2, dtype.type(bias), dense, X.shape[1])


def _check_problem(rows: LinearRows, cost: NDArray[Any], loss: str, max_iter: int) -> None:
    """Check the arguments: the kernels do not, and would read out of bounds."""
    if loss not in LOSSES:
        raise ValueError(f"loss={loss!r} is not known: choose one of {', '.join(map(repr, LOSSES))}.")
    if cost.ndim != 2 or len(cost) != rows.n_samples:
        raise ValueError(
            f"cost has shape {cost.shape}: it must have one row for each of {rows.n_samples} samples."
        )
    if max_iter < 1:
        raise ValueError(f"max_iter={max_iter}: it must be at least 1.")


def _half_squares(weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return the regulariser of each class, in double precision."""
    return np.asarray(np.einsum("jb,jb->b", weights, weights, dtype=np.float64) / 2)


def solve_block(
    rows: LinearRows,
    cost: NDArray[Any],
    *,
    loss: str = "hinge",
    tol: float = 1e-3,
    max_iter: int = 1000,
    seed: int = 0,
) -> BlockSolution:
    """Train the classes of one block to a certified duality gap.

    Parameters
    ----------
    rows : LinearRows
        From `prepare_rows`.
    cost : ndarray of shape (n_samples, n_block)
        Sign times cost of each pair; a zero removes the row from the problem of that class.
    loss : {"hinge", "squared_hinge", "logistic"}
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
        Maximum number of sweeps over all rows.
    seed : int
        Seed of the order in which rows are visited; the same for all blocks of a fit.

    Returns
    -------
    BlockSolution

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> rows = prepare_rows(sp.csr_array([[1.0], [-1.0]]), np.float64, bias=0.0)
    >>> solution = solve_block(rows, np.array([[1.0], [-1.0]]))  # separable: margin 1 at w = 1
    >>> solution.weights[0], solution.objectives, bool(solution.gaps[0] < 1e-3)
    (array([1.]), array([0.5]), True)
    """
    _check_problem(rows, cost, loss, max_iter)
    cost = np.ascontiguousarray(cost, dtype=rows.dtype)
    code, n_block = LOSSES[loss], cost.shape[1]
    arrays = rows.indptr, rows.indices, rows.data
    weights = np.zeros((rows.n_features + 1, n_block), rows.dtype)
    multipliers = np.zeros((rows.n_samples, n_block), rows.dtype)
    # A logistic multiplier is never at a bound, so there are no lists of active pairs.
    active = np.empty((n_block, 0 if loss == "logistic" else rows.n_samples), np.int32)
    n_active = np.zeros(n_block, np.int64)
    scratch = np.empty(rows.n_features + 1, rows.dtype)
    losses, gaps, objectives = np.zeros(n_block), np.zeros(n_block), np.zeros(n_block)
    rng = np.random.default_rng(seed)
    full_work = rows.n_samples * n_block / (1.0 if rows.dense else SPARSE_PENALTY)
    history: list[tuple[float, float, float]] = []
    started, gap_ratio, converged = perf_counter(), 1.0, False
    for iteration in range(max_iter):
        order = rng.permutation(rows.n_samples)
        loss_sum, norm, gap = sweep_block(
            *arrays, rows.norm2, cost, code, rows.bias, weights, multipliers, order, active, n_active
        )
        objective = loss_sum + norm
        if gap * gap_ratio <= tol * objective or iteration == max_iter - 1:
            certify_block(*arrays, cost, code, rows.bias, weights, multipliers, losses, gaps)
            estimate, gap = gap, float(gaps.sum())
            objectives = losses + _half_squares(weights)
            objective = float(objectives.sum())
            converged = gap <= tol * objective
            gap_ratio = max(1.0, gap / max(estimate, np.finfo(np.float64).tiny))
        history.append((objective, gap, perf_counter() - started))
        if converged:
            break
        n_pairs = int(n_active.sum())
        n_sweeps = min(MOST_ACTIVE_SWEEPS, int(_ACTIVE_WORK * full_work / n_pairs)) if n_pairs else 0
        if n_sweeps and iteration < max_iter - 1:
            enough = ENOUGH * gap / n_block
            sweep_active(
                *arrays, rows.norm2, cost, code, rows.bias, rows.dense, weights, multipliers,
                active, n_active, n_sweeps, enough, seed + iteration, scratch,
            )  # fmt: skip
    return BlockSolution(weights, multipliers, objectives, gaps, np.array(history), converged)
