"""One-vs-rest training by class-blocked coordinate descent: sweep, polish, certify.

`solve_block` trains a block of one-vs-rest problems that share their rows,

    min_w  1/2 ||w||^2 + sum_i c_i loss(y_i w.x_i)        (one such problem for each column of the block),

and stops when the certified duality gap, summed over the block, is at most `tol` times the primal objective. It
alternates a sweep over rows, for all classes of the block, with sweeps over the pairs (row, class) that can still
move. The sweep estimates the gap for free; the exact gap is computed only when the estimate is small enough.

With a hinge loss the block is trained on the rows that matter (`negatives`), and a scan of all rows completes the
gap and finds the rows that were missing. The logistic loss needs all rows.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.infer.linear.flat import ENOUGH, MOST_ACTIVE_SWEEPS, SPARSE_PENALTY, LinearRows, visiting_order
from arbora.infer.linear.negatives import Ids, Scan, among, grow, near_rows, scan_all
from arbora.infer.linear.row_views import RowView, view_all, view_some
from arbora.kernels import LOSSES, certify_block, sweep_active, sweep_block

_ACTIVE_WORK = 3.0  # work spent on the active pairs, as a multiple of a full sweep
_WORTH = 0.1  # training on some rows ends at this share of the last certified gap of all rows
_TINY = float(np.finfo(np.float64).tiny)


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


class _Part(NamedTuple):
    """Some rows, and the costs, multipliers and weights of the block on them."""

    view: RowView
    cost: NDArray[Any]
    A: NDArray[Any]
    W: NDArray[Any]


class _Block:
    """A block in training: weights and multipliers of all rows, certificate and history."""

    def __init__(self, rows: LinearRows, cost: NDArray[Any], loss: str, tol: float, max_iter: int, seed: int):
        self.rows, self.loss, self.tol, self.max_iter, self.seed = rows, loss, tol, max_iter, seed
        self.cost = np.ascontiguousarray(cost, dtype=rows.dtype)
        self.n_block = cost.shape[1]
        self.weights = np.zeros((rows.n_features + 1, self.n_block), rows.dtype)
        self.multipliers = np.zeros((rows.n_samples, self.n_block), rows.dtype)
        self.positive = np.asarray((self.cost >= 0).any(axis=1))
        self.smallest_cost = float(np.abs(self.cost).min(initial=0.0 if not self.cost.size else np.inf))
        self.losses, self.gaps, self.objectives = (np.zeros(self.n_block) for _ in range(3))
        self.rng, self.history = np.random.default_rng(seed), list[tuple[float, float, float]]()
        self.started, self.relative_gap, self.gap_ratio = perf_counter(), 1.0, 1.0

    @property
    def is_last(self) -> bool:
        """Whether no sweep is left."""
        return len(self.history) >= self.max_iter

    def first_rows(self) -> Ids:
        """Return the rows to begin with."""
        if self.loss == "logistic":
            return np.arange(self.rows.n_samples)
        return near_rows(np.flatnonzero(self.positive), self.rows.n_samples, [self.seed])

    def gather(self, ids: Ids) -> _Part:
        """Return some rows with their costs, multipliers and weights; all rows are not copied."""
        if len(ids) == self.rows.n_samples:
            return _Part(view_all(self.rows), self.cost, self.multipliers, self.weights)
        view = view_some(self.rows, ids)
        return _Part(view, self.cost[ids], self.multipliers[ids], self.weights[view.features])

    def train(self, part: _Part) -> None:
        """Sweep over some rows until their estimated gap is small enough for a certificate."""
        view, cost, A, W = part
        rows, code, n_block = view.rows, LOSSES[self.loss], self.n_block
        # A logistic multiplier is never at a bound, so there are no lists of active pairs.
        active = np.empty((n_block, 0 if self.loss == "logistic" else rows.n_samples), np.int32)
        n_active, scratch = np.zeros(n_block, np.int64), np.empty(rows.n_features + 1, rows.dtype)
        full_work = rows.n_samples * n_block / (1.0 if rows.dense else SPARSE_PENALTY)
        everything = rows.n_samples == self.rows.n_samples
        target = self.tol / self.gap_ratio if everything else max(self.tol, _WORTH * self.relative_gap)
        while True:
            order = visiting_order(rows.n_samples, self.rng)
            loss, norm, gap = sweep_block(
                *rows[:4], cost, code, rows.bias, W, A, order, active, n_active
            )  # fmt: skip
            self.history.append((loss + norm, gap, perf_counter() - self.started))
            done = self.is_last or gap <= target * (loss + norm)
            if done and (everything or self.is_last):
                break
            n_pairs = int(n_active.sum())
            n_sweeps = min(MOST_ACTIVE_SWEEPS, int(_ACTIVE_WORK * full_work / n_pairs)) if n_pairs else 0
            if n_sweeps:
                sweep_active(
                    *rows[:4], cost, code, rows.bias, rows.dense, W, A, active, n_active, n_sweeps,
                    ENOUGH * gap / n_block, self.seed + len(self.history), scratch,
                )  # fmt: skip
            if done:
                break
        if not everything:
            self.multipliers[view.ids], self.weights[view.features] = A, W

    def scan(self, part: _Part) -> tuple[Scan, Ids]:
        """Scan all rows; return the result, and the rows with a loss that were not trained."""
        found = scan_all(self.rows, self.weights, self.loss)
        missing = found.violating
        return found, missing[~among(missing, part.view.ids)]

    def is_hopeless(self, scan: Scan, missing: Ids) -> bool:
        """Whether the losses of the rows that were not trained are above the tolerance; note the gap then."""
        excess = self.smallest_cost * float(scan.excess[among(scan.ids, missing)].sum(dtype=np.float64))
        objective, gap, _ = self.history[-1]
        hopeless = not self.is_last and excess > self.tol * (objective + excess)
        if hopeless:
            self.note(objective + excess, gap + excess)
        return hopeless

    def note(self, objective: float, gap: float) -> None:
        """Replace the estimates of the last sweep."""
        self.relative_gap = gap / max(objective, _TINY)
        self.history[-1] = objective, gap, perf_counter() - self.started

    def certify(self, parts: list[_Part]) -> None:
        """Evaluate objectives and gaps, given all rows that have a multiplier or a loss."""
        self.losses[:] = self.gaps[:] = 0
        for view, cost, A, W in parts:
            losses, gaps = np.zeros(self.n_block), np.zeros(self.n_block)
            certify_block(
                *view.rows[:3], cost, LOSSES[self.loss], self.rows.bias, W, A, losses, gaps
            )  # fmt: skip
            self.losses += losses
            self.gaps += gaps
        self.objectives = self.losses + _half_squares(self.weights)
        gap = float(self.gaps.sum())
        self.gap_ratio = max(1.0, gap / max(self.history[-1][1], _TINY))
        self.note(float(self.objectives.sum()), gap)


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
        Maximum number of sweeps.
    seed : int
        Seed of the order in which rows are visited; the same for all blocks of a fit.

    Returns
    -------
    BlockSolution

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from arbora.infer.linear.flat import prepare_rows
    >>> rows = prepare_rows(sp.csr_array([[1.0], [-1.0]]), np.float64, bias=0.0)
    >>> solution = solve_block(rows, np.array([[1.0], [-1.0]]))  # separable: margin 1 at w = 1
    >>> solution.weights[0], solution.objectives, bool(solution.gaps[0] < 1e-3)
    (array([1.]), array([0.5]), True)
    """
    _check_problem(rows, cost, loss, max_iter)
    block = _Block(rows, cost, loss, tol, max_iter, seed)
    ids = block.first_rows()
    while True:
        part = block.gather(ids)
        block.train(part)
        if len(ids) == rows.n_samples:
            block.certify([part])
        else:
            scan, missing = block.scan(part)
            if not block.is_hopeless(scan, missing):
                block.certify([part, *([block.gather(missing)] if missing.size else [])])
            needed = block.positive[ids] | np.asarray(part.A.any(axis=1))
            ids = grow(ids, needed, scan, rows.n_samples)
        converged = block.relative_gap <= tol
        if converged or block.is_last:
            break
    return BlockSolution(
        block.weights, block.multipliers, block.objectives, block.gaps, np.array(block.history), converged
    )
