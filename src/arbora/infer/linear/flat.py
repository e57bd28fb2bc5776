"""One-vs-rest training by class-blocked coordinate descent: sweep, polish, certify.

`solve_block` trains a block of one-vs-rest problems that share their rows,

    min_w  1/2 ||w||^2 + sum_i c_i loss(y_i w.x_i)        (one such problem for each column of the block),

and stops when the certified duality gap, summed over the block, is at most `tol` times the primal objective. It
alternates a sweep over rows, for all classes of the block, with sweeps over the pairs (row, class) that can still
move. The sweep estimates the gap for free; the exact gap is computed only when the estimate is small enough.

With a hinge loss few pairs have a multiplier: one in a hundred if classes have few positives. Once the gap is small,
sweeps are replaced by passes that change nothing: they certify the gap of the full problem and list the pairs that
violate it, which are then swept alone. Such a pass takes two thirds of the time of a sweep. With the logistic loss
all pairs have a multiplier; the rows that hold most of the gap are swept alone instead (`LogisticSweeps`).
"""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.checkpoint import Piece
from arbora.infer.linear.coupled import Multipliers
from arbora.infer.linear.rows import (
    MAX_ACTIVE_SWEEPS,
    SPARSE_PENALTY,
    LinearRows,
    LogisticSweeps,
    idle_gap,
    visiting_order,
)
from arbora.kernels import LOSSES, certify_block, sweep_active, sweep_block
from arbora.kernels.linear.accumulate import add_rows
from arbora.kernels.linear.logistic import certify_logistic
from arbora.kernels.triples import from_triples, to_triples

_ACTIVE_WORK = 3.0  # work spent on the active pairs, as a multiple of a full sweep
# Relative gap from which on passes list the pairs that can move; sweeps make larger steps before.
_NEARLY = 0.1
_ENOUGH = {"hinge": 0.2, "squared_hinge": 0.05}  # active sweeps end at this share of the block's mean gap


class BlockSolution(NamedTuple):
    """Weights of a block (bias last), non-zero multipliers, certificate by class, and history.

    The history is a plain array: the histories of all blocks are added up, and saved in checkpoints.
    """

    weights: Matrix
    multipliers: Multipliers
    objectives: Array
    gaps: Array
    history: Array  # n_iter x (objective, gap, seconds)
    converged: bool

    def to_piece(self) -> Piece:
        """Content of a piece of a checkpoint."""
        arrays = self._asdict() | self.multipliers._asdict()
        return Piece({name: arrays[name] for name in _ARRAYS}, {"converged": self.converged})

    @classmethod
    def from_piece(cls, piece: Piece) -> BlockSolution:
        """Inverse of `to_piece`."""
        arrays = dict(piece.arrays)
        multipliers = Multipliers(*(arrays.pop(name) for name in Multipliers._fields))
        return cls(**arrays, multipliers=multipliers, converged=bool(piece.meta["converged"]))


_ARRAYS = ("weights", "objectives", "gaps", "history", *Multipliers._fields)


def _check_problem(rows: LinearRows, cost: Matrix, loss: str, max_iter: int) -> None:
    """Check the arguments: the kernels do not, and would read out of bounds."""
    if loss not in LOSSES:
        raise ValueError(f"loss={loss!r} is not known: choose one of {', '.join(map(repr, LOSSES))}.")
    if cost.ndim != 2 or len(cost) != rows.n_samples:
        raise ValueError(
            f"cost has shape {cost.shape}: it must have one row for each of {rows.n_samples} samples."
        )
    if max_iter < 1:
        raise ValueError(f"max_iter={max_iter}: it must be at least 1.")


def _half_squares(weights: Matrix) -> Array:
    """Return the regulariser of each class, in double precision."""
    return np.asarray(np.einsum("jb,jb->b", weights, weights, dtype=np.float64) / 2)


class _Block:
    """A block in training: weights and multipliers, lists of the pairs that can move, certificate and history."""

    def __init__(self, rows: LinearRows, cost: Matrix, loss: str, tol: float, max_iter: int, seed: int):
        self.rows, self.loss, self.tol, self.max_iter, self.seed = rows, loss, tol, max_iter, seed
        self.cost = np.ascontiguousarray(cost, dtype=rows.dtype)
        n_rows, self.n_block = self.cost.shape
        self.weights = np.zeros((rows.n_features + 1, self.n_block), rows.dtype)
        self.multipliers = np.zeros((n_rows, self.n_block), rows.dtype)
        self.n_active = np.zeros(self.n_block, np.int64)
        self.full_work = n_rows * self.n_block / (1.0 if rows.dense else SPARSE_PENALTY)
        self.losses, self.gaps, self.objectives = (np.zeros(self.n_block) for _ in range(3))
        self.rng, self.history = np.random.default_rng(seed), list[tuple[float, float, float]]()
        self.started, self.gap_ratio, self.n_polished = perf_counter(), 1.0, 0

    @property
    def is_last(self) -> bool:
        """Whether no sweep is left."""
        return len(self.history) >= self.max_iter

    def sweep(self, order: Ints) -> tuple[float, float]:
        """Visit some rows; return the estimated objective and gap, as they were when visited."""
        raise NotImplementedError

    def polish(self, gap: float) -> None:
        """Sweep over what can still move, until its gap is a small share of the given one."""
        raise NotImplementedError

    def certify(self) -> tuple[float, float]:
        """Return the objective and the certified gap."""
        raise NotImplementedError

    def record(self, objective: float, gap: float, *, replace: bool = False) -> None:
        """Add a row to the history, or replace the last one."""
        if replace:
            self.history.pop()
        self.history.append((objective, gap, perf_counter() - self.started))

    def start(self, multipliers: Multipliers) -> None:
        """Start from given multipliers, and sweep over their rows without a record."""
        from_triples(*multipliers, np.arange(self.rows.n_samples), self.multipliers)
        if self.loss != "squared_hinge":
            np.minimum(self.multipliers, np.abs(self.cost), out=self.multipliers)
        alone = np.eye(self.n_block, dtype=self.rows.dtype)
        add_rows(
            *self.rows[:3], self.rows.bias, self.rows.dense, self.cost, self.multipliers, alone, self.weights
        )
        _, gap = self.sweep(self.rng.permutation(np.unique(multipliers.rows)).astype(np.int64))
        self.polish(gap)

    def train(self, listed: bool = False) -> bool:
        """Train to the certified gap; return whether it was reached.

        Once few multipliers still move (`listed`), a pass that certifies and lists pairs replaces the sweep.
        """
        while True:
            if not listed:
                objective, estimate = self.sweep(visiting_order(self.rows.n_samples, self.rng))
                self.record(objective, estimate)
                gap = estimate
            if listed or self.is_last or estimate * self.gap_ratio <= self.tol * objective:
                objective, gap = self.certify()
                self.record(objective, gap, replace=not listed)
                if gap <= self.tol * objective or self.is_last:
                    return gap <= self.tol * objective
                if not listed:
                    self.gap_ratio = max(1.0, gap / max(estimate, TINY))
            few = 0 < self.n_active.sum() <= self.full_work  # their sweeps are cheap
            listed = bool(few) and gap <= _NEARLY * objective
            self.polish(gap)


class _HingeBlock(_Block):
    """A block with a hinge loss: `sweep` and `certify` list the pairs that can move, `polish` sweeps over these."""

    def __init__(self, rows: LinearRows, cost: Matrix, loss: str, tol: float, max_iter: int, seed: int):
        super().__init__(rows, cost, loss, tol, max_iter, seed)
        self.active = np.empty((self.n_block, rows.n_samples), np.int32)
        self.scratch = np.empty(rows.n_features + 1, rows.dtype)

    def sweep(self, order: Ints) -> tuple[float, float]:
        loss, norm, gap = sweep_block(
            *self.rows[:4], self.cost, LOSSES[self.loss], self.rows.bias, self.weights, self.multipliers,
            order, self.active, self.n_active,
        )  # fmt: skip
        return loss + norm, gap

    def polish(self, gap: float) -> None:
        n_pairs = int(self.n_active.sum())
        n_sweeps = min(MAX_ACTIVE_SWEEPS, int(_ACTIVE_WORK * self.full_work / n_pairs)) if n_pairs else 0
        self.n_polished += 1
        if n_sweeps:
            sweep_active(
                *self.rows[:4], self.cost, LOSSES[self.loss], self.rows.bias, self.rows.dense, self.weights,
                self.multipliers, self.active, self.n_active, n_sweeps, _ENOUGH[self.loss] * gap / self.n_block,
                self.seed + self.n_polished, self.scratch,
            )  # fmt: skip

    def certify(self) -> tuple[float, float]:
        certify_block(
            *self.rows[:3], self.cost, LOSSES[self.loss], self.rows.bias, self.weights, self.multipliers,
            self.losses, self.gaps, self.active, self.n_active,
        )  # fmt: skip
        self.objectives = self.losses + _half_squares(self.weights)
        return float(self.objectives.sum()), float(self.gaps.sum())


class _LogisticBlock(_Block):
    """A block with the logistic loss: no multiplier is at a bound, and `polish` sweeps over the rows with the gap."""

    def __init__(self, rows: LinearRows, cost: Matrix, loss: str, tol: float, max_iter: int, seed: int):
        super().__init__(rows, cost, loss, tol, max_iter, seed)
        self.sweeps = LogisticSweeps(rows, self.cost, None, self.weights, self.multipliers)
        self.idle = -1.0

    def sweep(self, order: Ints) -> tuple[float, float]:
        loss, norm, gap = self.sweeps.over_rows(order, self.idle)
        self.idle = idle_gap(gap, loss + norm, self.cost.size, self.cost.dtype)
        return loss + norm, gap

    def polish(self, gap: float) -> None:
        self.sweeps.over_rows_with_the_gap(self.idle)

    def certify(self) -> tuple[float, float]:
        certify_logistic(
            *self.rows[:3], self.cost, self.rows.bias, self.weights, self.multipliers, self.losses, self.gaps
        )
        self.objectives = self.losses + _half_squares(self.weights)
        return float(self.objectives.sum()), float(self.gaps.sum())


def solve_block(
    rows: LinearRows,
    cost: Matrix,
    *,
    loss: str = "hinge",
    tol: float = 1e-3,
    max_iter: int = 1000,
    seed: int = 0,
    start: Multipliers | None = None,
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
    start : Multipliers, optional
        Multipliers to start from, of another cost or of a larger set of rows.

    Returns
    -------
    BlockSolution

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from arbora.infer.linear.rows import prepare_rows
    >>> rows = prepare_rows(sp.csr_array([[1.0], [-1.0]]), np.float64, bias=0.0)
    >>> solution = solve_block(rows, np.array([[1.0], [-1.0]]))  # separable: margin 1 at w = 1
    >>> solution.weights[0], solution.objectives, bool(solution.gaps[0] < 1e-3)
    (array([1.]), array([0.5]), True)
    """
    _check_problem(rows, cost, loss, max_iter)
    block = (_LogisticBlock if loss == "logistic" else _HingeBlock)(rows, cost, loss, tol, max_iter, seed)
    if start is not None:
        block.start(start)
    converged = block.train(listed=start is not None and loss != "logistic")
    nonzero = np.flatnonzero(block.multipliers.any(axis=1))
    multipliers = Multipliers(*to_triples(block.multipliers, block.cost, np.arange(rows.n_samples), nonzero))
    return BlockSolution(
        block.weights, multipliers, block.objectives, block.gaps, np.array(block.history), converged
    )
