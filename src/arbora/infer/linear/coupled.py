"""Dual coordinate descent for classes whose weights are sums of shared parts, to a certified duality gap.

With parts v_p and w_l = offset_l + sum_p factor_pl v_p the problem and its dual are

    min_v  1/2 sum_p ||v_p||^2 + sum_il c_il loss(y_il w_l.x_i),
    max_a  -conjugate(a) - 1/2 sum_p ||v_p||^2 - sum_l offset_l.u_l,

    v_p = sum_l factor_pl u_l,   u_l = sum_i a_il y_il x_i.

The classes of a block (see `layout`) are swept together, exactly coupled with each other, given the shared parts;
then the shared parts follow. Every visit increases the dual, waves of blocks too. What is kept between visits are
the multipliers that are not zero, and the shared parts: never the weights of all classes.

Near the optimum of a hinge loss most of the margins that matter lie at its kink, and the primal objective of the
weights that belong to the multipliers lags far behind the dual one. Scaling these weights by a factor slightly above
one moves all of them to the good side for little: the certificate tries a few factors (`SCALES`), any of which is a
legitimate primal point, and the best one is kept.

A round is resumable: the shared parts are saved when it begins, the multipliers of a block when it has been
visited, and what a block changed in the shared parts follows from its old and new multipliers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core.checkpoint import Checkpoint
from arbora.core.progress import Progress
from arbora.infer.linear.coupled_state import CoupledState, Multipliers, Round, Run, Visit, no_multipliers
from arbora.infer.linear.flat import ENOUGH, MOST_ACTIVE_SWEEPS, SPARSE_PENALTY, LinearRows
from arbora.infer.linear.layout import Layout, coupling_of_wave, lay_out
from arbora.infer.linear.row_views import View, view_all, view_some
from arbora.infer.linear.shared_parts import follow
from arbora.kernels import LOSSES
from arbora.kernels.coupled import (
    add_parts,
    add_rows,
    certify_scaled,
    dot_rows,
    polish_coupled,
    sweep_coupled,
)
from arbora.kernels.triples import from_triples, to_triples

_ACTIVE_WORK = 1.0  # on the pairs that can move, as a multiple of a sweep: others may have moved meanwhile
_MOST_OPTIMISM = 8.0  # an estimate is never distrusted more than this
_IDLE = 0.1  # a logistic pair with less than this share of the mean gap stays
SCALES = (1.0, 1.0025, 1.005, 1.01, 1.015, 1.02, 1.03, 1.05)

Costs = Callable[[range, NDArray[np.int64]], NDArray[Any]]
Weights = Callable[[range], NDArray[Any]]


class Certificate(NamedTuple):
    """Primal objective and duality gap at `scale` times the weights of the multipliers."""

    scale: float
    objective: float
    gap: float


class RoundSettings(NamedTuple):
    """What the visits of a round have in common: its seed and number, and the gap below which a pair stays."""

    seed: int
    iteration: int
    idle: float


class CoupledSolution(NamedTuple):
    """Multipliers of all blocks, shared parts, certificate, and the estimates on the way."""

    multipliers: list[Multipliers]
    shared: NDArray[Any]  # n_shared x (n_features + 1), bias last
    certificate: Certificate
    history: list[Round]
    converged: bool


class CoupledSolver:
    """A joint problem: rows, costs by block, how classes share parts, and where work runs.

    Parameters
    ----------
    rows : LinearRows
    costs : callable
        Gives, for a range of classes and some rows, the array of signs times costs.
    factor : sparse matrix of shape (n_parts, n_classes)
    loss : {"hinge", "squared_hinge", "logistic"}
    engine : object with ``map(function, items)``
    offset : callable, optional
        Gives, for a range of classes, the weights (n_features + 1, n_block) from which deviations are counted.

    Examples
    --------
    Two classes that share a parent, one document each:

    >>> import numpy as np, scipy.sparse as sp
    >>> from arbora.engine import ThreadEngine
    >>> from arbora.infer.linear.flat import prepare_rows
    >>> rows = prepare_rows(sp.csr_array(np.eye(2)), np.float64, bias=0.0)
    >>> costs = lambda block, ids: np.array([[1.0, -1.0], [-1.0, 1.0]])[ids, block.start : block.stop]
    >>> parent_and_leaves = sp.csc_array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> joint = CoupledSolver(rows, costs, parent_and_leaves, "hinge", ThreadEngine())
    >>> solution = joint.solve(tol=1e-6, max_iter=100)
    >>> joint.weights(0, solution)[:2].round(3)  # what the classes disagree on is no part of the parent
    array([[ 1., -1.],
           [-1.,  1.]])
    """

    def __init__(
        self,
        rows: LinearRows,
        costs: Costs,
        factor: sp.csc_array,
        loss: str,
        engine: Any,
        offset: Weights | None = None,
    ) -> None:
        self.rows, self.costs, self.loss, self.engine, self.offset = rows, costs, loss, engine, offset
        self.everything = view_all(rows)
        self.set_layout(lay_out(factor))

    def set_layout(self, layout: Layout) -> None:
        """Take over how classes share parts; those of a block stay what they are."""
        self.layout = layout
        self.local, self.mix = (
            [np.asarray(shares, self.rows.dtype) for shares in kind] for kind in (layout.local, layout.mix)
        )

    def _block_arrays(
        self, k: int, view: View, multipliers: Multipliers, shared: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Costs, dense multipliers and weights of a block, on the rows and features of a view.

        The view holds every row that has a multiplier.
        """
        block, layout, dtype = self.layout.blocks[k], self.layout, self.rows.dtype
        cost = np.ascontiguousarray(self.costs(block, view.ids), dtype)
        A = np.zeros(cost.shape, dtype)
        from_triples(*multipliers, view.ids, A)
        if self.offset is None:
            W = np.zeros((len(view.features), len(block)), dtype)
        else:
            W = np.ascontiguousarray(self.offset(block)[view.features], dtype)
        if multipliers.rows.size:
            add_rows(*view.rows[:3], view.rows.bias, cost, A, self.local[k], W)
        if layout.seen[k].size:
            add_parts(shared, layout.seen[k], self.mix[k], view.features, W)
        return cost, A, W

    def _from_offset(self, k: int, multipliers: Multipliers) -> float:
        """Half the sum of the multipliers times the margins at the offset.

        With margins at all of the weights, half this sum is the regulariser: where deviations from an offset are
        what is regularised, its part has to be taken off.
        """
        if self.offset is None:
            return 0.0
        V = np.ascontiguousarray(self.offset(self.layout.blocks[k]), self.rows.dtype)
        return float(dot_rows(*self.rows[:3], self.rows.bias, *multipliers, V)) / 2

    def weights(self, k: int, solution: CoupledSolution) -> NDArray[Any]:
        """Weights (n_features + 1, n_block) of block k, bias last."""
        W = self._block_arrays(k, self.everything, solution.multipliers[k], solution.shared)[2]
        return np.asarray(W * self.rows.dtype.type(solution.certificate.scale))

    def parts(self, k: int, solution: CoupledSolution) -> NDArray[Any]:
        """Parts (n_owned, n_features + 1) that block k owns, bias last."""
        block, dtype = self.layout.blocks[k], self.rows.dtype
        cost = np.ascontiguousarray(self.costs(block, self.everything.ids), dtype)
        A = np.zeros(cost.shape, dtype)
        from_triples(*solution.multipliers[k], self.everything.ids, A)
        U = np.zeros((self.rows.n_features + 1, len(block)), dtype)
        add_rows(*self.rows[:3], self.rows.bias, cost, A, np.eye(len(block), dtype=dtype), U)
        return np.asarray(self.layout.shares[k].astype(dtype) @ U.T)

    def _visit(
        self,
        k: int,
        K: NDArray[Any],
        view: View,
        multipliers: Multipliers,
        shared: NDArray[Any],
        seed: list[int],
        idle: float,
    ) -> Visit:
        """Sweep a block once over the rows of a view, then over the pairs that can still move."""
        rows, code = view.rows, LOSSES[self.loss]
        cost, A, W = self._block_arrays(k, view, multipliers, shared)
        K = K.astype(rows.dtype)
        n_block = A.shape[1]
        order = np.random.default_rng(seed).permutation(rows.n_samples)
        # A logistic multiplier is never at a bound: there are no lists to keep.
        active = np.empty((n_block, 0 if self.loss == "logistic" else rows.n_samples), np.int32)
        n_active = np.zeros(n_block, np.int64)
        estimates = sweep_coupled(
            *rows[:3],
            rows.norm2,
            cost,
            code,
            rows.bias,
            K,
            W,
            A,
            order,
            rows.dtype.type(idle),
            active,
            n_active,
        )
        may_move = np.asarray(A.any(axis=1))
        for b, n in enumerate(n_active.tolist()):
            may_move[active[b, :n]] = True
        full_work = rows.n_samples * n_block / (1.0 if rows.dense else SPARSE_PENALTY)
        n_pairs = int(n_active.sum())
        n_sweeps = min(MOST_ACTIVE_SWEEPS, int(_ACTIVE_WORK * full_work / n_pairs)) if n_pairs else 0
        if n_sweeps:
            scratch = np.empty(rows.n_features + 1, rows.dtype)
            polish_coupled(
                *rows[:3], rows.norm2, cost, code, rows.bias, rows.dense, K, W, A,
                active, n_active, n_sweeps, ENOUGH * estimates[2] / n_block, sum(seed), scratch,
            )  # fmt: skip
        loss, norm, gap = estimates
        estimates = loss, norm - self._from_offset(k, multipliers), gap
        # Of a smooth loss all pairs move in every round: there are no candidates to tell.
        candidates = view.ids[may_move] if self.loss != "logistic" else view.ids[:0]
        return Visit(Multipliers(*to_triples(A, cost, view.ids)), candidates, estimates)

    def _follow(
        self, wave: Sequence[int], old: list[Multipliers], new: list[Multipliers], shared: NDArray[Any]
    ) -> None:
        """Carry the changes of the blocks of a wave into the shared parts."""
        follow(self.rows, self.layout, self.mix, self.engine, wave, old, new, shared)

    def _order_of(self, state: CoupledState, seed: int) -> RoundSettings:
        """Return what the visits of the next round have in common."""
        idle = -1.0
        if self.loss == "logistic" and state.history:
            n_pairs = self.rows.n_samples * self.layout.blocks[-1].stop
            idle = _IDLE * state.history[-1].gap / n_pairs
        return RoundSettings(seed, len(state.history), idle)

    def _waves(self, order: RoundSettings) -> list[int]:
        """Waves in the order of a round."""
        rng = np.random.default_rng([order.seed, order.iteration])
        return [int(w) for w in rng.permutation(len(self.layout.waves))]

    def _round(self, run: Run, state: CoupledState, full: bool, seed: int) -> NDArray[np.float64]:
        """Visit every block once; return the loss, regulariser and gap met on the way."""
        order = self._order_of(state, seed)
        waves = [self.layout.waves[w] for w in self._waves(order)]
        total = np.zeros(3)
        for wave in waves:
            total += self._wave(wave, coupling_of_wave(self.layout, wave), run, state, full, order)
        return total

    def _wave(
        self,
        blocks: NDArray[np.int64],
        couplings: list[NDArray[Any]],
        run: Run,
        state: CoupledState,
        full: bool,
        order: RoundSettings,
        first: int = 0,
    ) -> NDArray[np.float64]:
        """Visit the blocks of a wave and let the shared parts follow; `first` is what block 0 counts as elsewhere."""

        def visit(item: tuple[int, NDArray[Any]]) -> Visit:
            k, K = item
            done = run.load(k, order.iteration)
            if done is None:
                view = self.everything if full else view_some(self.rows, state.candidates[k])
                at = [order.seed, order.iteration, first + k]
                done = self._visit(k, K, view, state.multipliers[k], state.shared, at, order.idle)
                run.save(k, order.iteration, done)
            return done

        wave = blocks.tolist()
        visits = self.engine.map(visit, list(zip(wave, couplings, strict=True)))
        self._follow(
            wave, [state.multipliers[k] for k in wave], [v.multipliers for v in visits], state.shared
        )
        for k, done in zip(wave, visits, strict=True):
            state.multipliers[k], state.candidates[k] = done.multipliers, done.candidates
        return np.asarray(np.sum([done.estimates for done in visits], axis=0))

    def certify(self, state: CoupledState) -> Certificate:
        """Evaluate the primal objective and the duality gap, from the multipliers alone, at the best of a few scales.

        The shared parts are made anew: what they gathered by way of rounding errors is gone.
        """
        self._rebuild(state)
        return self._best_scale(self._certify_blocks(state))

    def _rebuild(self, state: CoupledState) -> None:
        """Make the shared parts anew."""
        state.shared[:] = 0
        empty = [no_multipliers(self.rows.dtype)] * len(self.layout.blocks)
        self._follow(range(len(empty)), empty, state.multipliers, state.shared)

    @property
    def _scales(self) -> NDArray[Any]:
        smooth_or_offset = self.loss != "hinge" or self.offset is not None
        return np.array(SCALES[:1] if smooth_or_offset else SCALES, self.rows.dtype)

    def _certify_blocks(self, state: CoupledState) -> list[NDArray[np.float64]]:
        """Regulariser, gap, and losses at all scales, of every block."""
        scales, code, bias = self._scales, LOSSES[self.loss], self.rows.bias

        def certify_one(k: int) -> NDArray[np.float64]:
            losses = np.zeros(len(scales))
            cost, A, W = self._block_arrays(k, self.everything, state.multipliers[k], state.shared)
            norm, gap = certify_scaled(*self.rows[:3], cost, code, bias, W, A, scales, losses)
            return np.array([norm - self._from_offset(k, state.multipliers[k]), gap, *losses])

        return list(self.engine.map(certify_one, range(len(self.layout.blocks))))

    def _best_scale(self, blocks: list[NDArray[np.float64]]) -> Certificate:
        """Add up the blocks and choose a scale."""
        scales, (norm, gap, *losses) = self._scales, np.sum(blocks, axis=0)
        objectives = scales.astype(np.float64) ** 2 * norm + losses
        best = int(objectives.argmin())
        gap = max(0.0, float(gap + objectives[best] - objectives[0]))
        return Certificate(float(scales[best]), float(objectives[best]), gap)

    def start(self, multipliers: list[Multipliers] | None = None) -> CoupledState:
        """Return the state to begin with: given multipliers, and the shared parts that belong to them, or nothing."""
        rows, n_blocks = self.rows, len(self.layout.blocks)
        empty = [no_multipliers(rows.dtype)] * n_blocks
        shared = np.zeros((len(self.layout.shared), rows.n_features + 1), rows.dtype)
        if multipliers is not None:
            multipliers = [self._feasible(k, given) for k, given in enumerate(multipliers)]
            self._follow(range(n_blocks), empty, multipliers, shared)
        return CoupledState(list(multipliers or empty), [np.empty(0, np.int64)] * n_blocks, shared)

    def _feasible(self, k: int, given: Multipliers) -> Multipliers:
        """Bring multipliers of another cost to where this one lets them be."""
        ids, at = np.unique(given.rows, return_inverse=True)
        cost = np.asarray(self.costs(self.layout.blocks[k], ids.astype(np.int64)), self.rows.dtype)[
            at, given.columns
        ]
        size = np.where(np.sign(cost) == np.sign(given.values), np.abs(given.values), 0)
        if self.loss != "squared_hinge":
            size = np.minimum(size, np.abs(cost))
        kept = size > 0
        return Multipliers(given.rows[kept], given.columns[kept], np.copysign(size, cost)[kept])

    def solve(
        self,
        *,
        tol: float = 1e-2,
        max_iter: int = 200,
        seed: int = 0,
        multipliers: list[Multipliers] | None = None,
        checkpoint: Checkpoint | None = None,
        progress: Progress | None = None,
        key: str = "",
    ) -> CoupledSolution:
        """Visit all blocks, round after round, until the duality gap is certified.

        Parameters
        ----------
        tol : float
            Relative duality gap at which to stop.
        max_iter : int
            Most rounds.
        seed : int
            Of the order in which rows and waves are visited.
        multipliers : list of Multipliers, optional
            Where to begin; those of a smaller C are a good and feasible start.
        checkpoint : Checkpoint, optional
            Where the parts of a round are kept, and found again.
        progress : Progress, optional
        key : str
            Put before the names of the pieces in the checkpoint.
        """
        run, state = Run(checkpoint, key), self.start(multipliers)
        run.resume(state)
        history, tiny = state.history, np.finfo(np.float64).tiny
        started = perf_counter() - (history[-1].seconds if history else 0.0)
        certificate = None
        while certificate is None or (
            certificate.gap > tol * certificate.objective and len(history) < max_iter
        ):
            last = len(history) == max_iter - 1
            full = last or self.loss == "logistic" or state.next_is_full(tol)
            run.begin(state)
            loss, norm, gap = self._round(run, state, full, seed)
            objective = loss + norm
            if full and (gap * state.optimism <= tol * objective or last):
                certificate = self.certify(state)
                estimate, gap, objective = gap, certificate.gap, certificate.objective
                # An estimate that was far too good delays the next certificate, which costs as much as a sweep.
                state.optimism = min(_MOST_OPTIMISM, max(state.optimism, gap / max(estimate, tiny)))
            history.append(Round(objective, gap, perf_counter() - started, full))
            if progress is not None:
                progress.update(objective=objective, gap=gap / max(objective, tiny))
        converged = certificate.gap <= tol * certificate.objective
        return CoupledSolution(state.multipliers, state.shared, certificate, history, converged)
