"""Dual coordinate descent for classes whose weights are sums of shared parts, to a certified duality gap.

With parts v_p and w_l = offset_l + sum_p factor_pl v_p the problem and its dual are

    min_v  1/2 sum_p ||v_p||^2 + sum_il c_il loss(y_il w_l.x_i),
    max_a  -conjugate(a) - 1/2 sum_p ||v_p||^2 - sum_l offset_l.u_l,

    v_p = sum_l factor_pl u_l,   u_l = sum_i a_il y_il x_i.

The classes of a block (see `layout`) are swept together, exactly coupled with each other, given the shared parts;
then the shared parts are updated. Every visit of a block, and of a wave of blocks, increases the dual. Between visits
only the non-zero multipliers and the shared parts are stored, never the weights of all classes.

Near the optimum of a hinge loss most of the margins that matter lie at its kink, and the primal objective at the
weights of the multipliers lags far behind the dual one. Scaling these weights by a factor slightly above one moves
all of these margins past the kink at little cost. The certificate tries a few factors (`SCALES`), each of which is a
valid primal point, and keeps the best one.

A round is resumable: the shared parts are saved when it starts, the multipliers of a block when it has been visited,
and the change of the shared parts is computed from the old and new multipliers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.checkpoint import Checkpoint
from arbora.core.engine import Engine
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.infer.linear.layout import Layout, Sharing, coupling_of_wave, group_classes, lay_out
from arbora.infer.linear.rows import (
    BLOCK,
    ENOUGH,
    MAX_ACTIVE_SWEEPS,
    SPARSE_PENALTY,
    LinearRows,
    LogisticSweeps,
    RowView,
    idle_gap,
    view_all,
    view_some,
    visiting_order,
)
from arbora.kernels import LOSSES
from arbora.kernels.linear.accumulate import (
    add_changes,
    add_gathered,
    add_parts,
    add_rows,
    count_walks,
    gather_changes,
    gather_rows,
)
from arbora.kernels.linear.coupled import (
    certify_scaled,
    dot_rows,
    mark_movable,
    polish_coupled,
    sweep_coupled,
)
from arbora.kernels.linear.logistic import add_columns, certify_logistic, couple_pairs
from arbora.kernels.triples import from_triples, subtract_triples, to_triples

# --- The state of a coupled fit, and its pieces in a checkpoint ---------------------------------------------
#
# A fit proceeds in rounds; a round visits every block of classes once. The shared parts are saved when a round
# starts, the multipliers of a block when it has been visited. Pieces of odd and even rounds have different names,
# so that the start of a round stays available until the next round has started. An interrupted fit continues in its
# last round, without repeating finished visits, and ends with the same bits.


_MAX_RESTRICTED = 10  # rounds over the candidates between two over all rows
_WORTH = 0.2  # restricted rounds end when the gap has fallen to this share of that of the last full round
_BELOW_TOL = 0.6  # ... or to this share of the tolerance
_NARROW_RATIO = 0.7  # of certified to estimated gap, in rounds over the rows with given multipliers
_EARLY = 0.7  # share of the tolerance below which the gap of a restricted round is worth a certificate,
_FINE = 0.02  # if the tolerance is at most this: a coarse solution that never met all rows predicts worse


class Multipliers(NamedTuple):
    """Non-zero multipliers of a block, each with the sign of its pair (a * y), sorted by row."""

    rows: Matrix
    columns: Matrix
    values: Matrix


def multipliers_of_rows(multipliers: Multipliers, ids: Ints) -> Multipliers:
    """Multipliers of the rows `ids` (sorted), which get the numbers 0, 1, ...

    >>> multipliers = Multipliers(np.array([2, 5, 7]), np.array([0, 1, 0]), np.array([0.5, -1.0, 2.0]))
    >>> multipliers_of_rows(multipliers, np.array([5, 6, 7])).rows
    array([0, 2])
    """
    places = np.searchsorted(ids, multipliers.rows)
    here = places < len(ids)
    here[here] = ids[places[here]] == multipliers.rows[here]
    return Multipliers(
        places[here].astype(multipliers.rows.dtype), multipliers.columns[here], multipliers.values[here]
    )


class Visit(NamedTuple):
    """The result of a visit of a block: multipliers, and the loss, regulariser and gap estimated on the way."""

    multipliers: Multipliers
    candidates: Ints  # rows with a multiplier, or a pair that may get one soon
    estimates: tuple[float, float, float]


class Feasible(list[Multipliers]):
    """Multipliers of all blocks within the bounds of the costs. A solver that starts from them changes the list.

    Logistic multipliers take most of the memory of a fit, and a solver does not hold a second copy of them.
    """


def no_multipliers(dtype: Any) -> Multipliers:
    """Return the multipliers of a block that was never visited."""
    return Multipliers(np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, dtype))


@dataclass
class CoupledState:
    """Multipliers and candidates of every block, the shared parts, and what decides about the next round."""

    multipliers: list[Multipliers]
    candidates: list[Ints]
    shared: Matrix
    # Ratio of certified to estimated gap: a visit closes much of the gap that it meets.
    gap_ratio: float = 0.4
    n_rounds: int = 0
    n_restricted: int = 0  # rounds over the candidates since the last one over all rows
    full_gap: float = np.nan  # of the last round over all rows
    gap: float = np.nan  # of the last round
    objective: float = np.nan

    @property
    def has_multipliers(self) -> bool:
        """Whether every block has multipliers, and they are in this process."""
        return bool(self.multipliers) and all(block.rows.size for block in self.multipliers)

    def narrow(self) -> None:
        """Let the candidates be the rows that have a multiplier."""
        self.candidates = [np.unique(block.rows).astype(np.int64) for block in self.multipliers]
        self.gap_ratio = _NARROW_RATIO

    def is_enough(self, gap: float, objective: float, tol: float, *, covers: bool) -> bool:
        """Whether a gap that a round estimated is worth a certificate; `covers`: the round met all that matters.

        A round over the candidates does not meet the pairs that have left the optimum meanwhile. There are few of
        them at the end, and a certificate takes less time than a round over all rows.
        """
        if not covers and tol > _FINE:
            return False
        return bool(gap * (self.gap_ratio if covers else 1 / _EARLY) <= tol * objective)

    def add_round(self, objective: float, gap: float, full: bool, certified: bool) -> None:
        """Note the objective and the gap of a round, which was over all rows (`full`) or over the candidates.

        A certificate that fails after a round over the candidates shows that a round over all rows is needed.
        """
        self.n_rounds, self.objective, self.gap = self.n_rounds + 1, objective, gap
        self.n_restricted = 0 if full else _MAX_RESTRICTED if certified else self.n_restricted + 1
        self.full_gap = gap if full else self.full_gap

    def next_is_full(self, tol: float) -> bool:
        """Whether the next round goes over all rows, not only over the candidates, which are few.

        Restricted rounds repeat until they have closed most of the gap of the last full round, or enough of it for
        the tolerance. Only a full round finds out what is left.
        """
        if not self.n_rounds:
            return True
        if not self.n_restricted:
            return False
        enough = max(_WORTH * self.full_gap, _BELOW_TOL * tol * self.objective)
        return bool(self.n_restricted >= _MAX_RESTRICTED or self.gap <= enough)

    def decisions(self) -> dict[str, float]:
        """Return the values that decide about the next round, for a checkpoint."""
        names = ("gap_ratio", "n_rounds", "n_restricted", "full_gap", "gap", "objective")
        return {name: getattr(self, name) for name in names}


class RoundPieces:
    """The pieces of a fit in a checkpoint, with the prefix `key` in their names; None saves nothing."""

    def __init__(self, checkpoint: Checkpoint | None, key: str = "") -> None:
        self.checkpoint, self.key = checkpoint, key

    def _name(self, what: str, iteration: int) -> str:
        return f"{self.key}{what}-{iteration % 2}"

    def begin(self, state: CoupledState, monitor: Monitor) -> None:
        """Save the start of a round; the multipliers were saved by the round before."""
        if self.checkpoint is not None:
            iteration = state.n_rounds
            meta = {
                "iteration": iteration,
                "decisions": state.decisions(),
                "monitor": monitor.to_state(),
            }
            self.checkpoint.save(self._name("shared", iteration), {"shared": state.shared}, meta)

    def save(self, k: int, iteration: int, visit: Visit) -> None:
        """Save the result of a visit."""
        if self.checkpoint is not None:
            arrays = {**visit.multipliers._asdict(), "candidates": visit.candidates}
            meta = {"iteration": iteration, "estimates": visit.estimates}
            self.checkpoint.save(self._name(f"block-{k}", iteration), arrays, meta)

    def load(self, k: int, iteration: int) -> Visit | None:
        """Return the result of the visit of block k in a round, or None if it was not saved."""
        piece = self.checkpoint.load(self._name(f"block-{k}", iteration)) if self.checkpoint else None
        if piece is None or piece.meta["iteration"] != iteration:
            return None
        candidates = piece.arrays.pop("candidates")
        return Visit(Multipliers(**piece.arrays), candidates, tuple(piece.meta["estimates"]))

    def resume(self, state: CoupledState, monitor: Monitor) -> None:
        """Restore the start of the last round of which every piece is there."""
        if self.checkpoint is None:
            return
        parities = [p for p in (0, 1) if self._name("block-0", p) in self.checkpoint]
        pieces = {p: self.checkpoint.load(self._name("shared", p)) for p in (0, 1)}
        begun = [piece for piece in pieces.values() if piece is not None]
        lost = [self._name("shared", p) for p in parities if pieces[p] is None]
        for piece in sorted(begun, key=lambda p: -p.meta["iteration"]):
            iteration = piece.meta["iteration"]
            visits = [self.load(k, iteration - 1) for k in range(len(state.multipliers))] if iteration else []
            loaded = [visit for visit in visits if visit is not None]
            if len(loaded) == len(visits):
                state.multipliers[: len(loaded)] = [visit.multipliers for visit in loaded]
                state.candidates[: len(loaded)] = [visit.candidates for visit in loaded]
                state.shared = piece.arrays["shared"]
                for name, value in piece.meta["decisions"].items():
                    setattr(state, name, value)
                monitor.restore(piece.meta["monitor"])
                break
            lost += [
                self._name(f"block-{k}", iteration - 1) for k, visit in enumerate(visits) if visit is None
            ]
        if lost:
            self._warn(lost, state.n_rounds)

    def _warn(self, lost: list[str], n_rounds: int) -> None:
        assert self.checkpoint is not None
        others = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        resumed = f"resumes at round {n_rounds + 1}" if n_rounds else "starts again"
        warn_caller(
            f"the checkpoint in {self.checkpoint.path} is incomplete: cannot read {lost[0]!r}{others}. The fit "
            f"{resumed}."
        )


# --- Updates of the parts that classes share, from changes of the multipliers of blocks ---------------------
#
# When the multipliers of the classes of a block (times their signs) change by D, rows by classes, the shared parts
# that the block sees change by mix (D'X). Classes with the same shares in all of these parts form a group, and
# their changes are added up first: in a tree a block of 32 classes has a few groups. The product is computed from
# the left or from the right, whichever costs less:
#
# - (mix D') X walks the changed rows once for every part. Best for long sparse rows and few parts, such as the nodes
#   above the leaves of a tree.
# - mix (D'X) walks them once for every group, into a dense matrix of the block, which is then added to all parts.
#   Best for few features or many parts: in a dense graph a block sees nearly all parts.
#
# The batch of blocks is chosen so that these matrices need no more memory than the weights of the blocks did during
# their visit, and the changes no more than some megabytes. Each part is updated by one thread, blocks in their order,
# so that the sums do not depend on the number of threads.


_RUNS = 2  # of shared parts for each thread, which updates them in parallel with others
_MAX_CHANGES = 1 << 19  # of a batch: at most 4.5 MiB in single precision
_MANY_GROUPS = 8  # of one SIMD instruction
_DENSE_WORK = 0.15  # time of a product that is added to a dense matrix, relative to one of a sparse row

Move = tuple[int, Multipliers, Multipliers]  # a block, its old multipliers and the new ones


def update_shared(
    rows: LinearRows,
    layout: Layout,
    sharing: Sequence[Sharing],
    engine: Engine,
    wave: Sequence[int],
    old: Sequence[Multipliers],
    new: Sequence[Multipliers],
    shared: Matrix,
) -> None:
    """Add the changes of the blocks of a wave to the shared parts, in the order of the blocks."""

    def change(move: Move) -> tuple[Matrix, ...]:
        k, before, after = move
        moved = before.rows.size and layout.seen[k].size
        triples = subtract_triples(*after, *before) if moved else tuple(after)
        mix, group = sharing[k]
        if not gathers(rows, triples[0], group[triples[1]], mix.shape):
            return triples
        return (gathered(rows, triples, group, mix.shape[1]),)

    moves = [move for move in zip(wave, old, new, strict=True) if layout.seen[move[0]].size]
    for batch in _batches(moves, sharing, engine.n_workers * BLOCK):
        changes = engine.map(change, batch)
        blocks = [k for k, _, _ in batch]

        def add(span: tuple[int, int], blocks: list[int] = blocks, changes: Any = changes) -> None:
            for k, change in zip(blocks, changes, strict=True):
                first, stop = np.searchsorted(layout.seen[k], span)
                if first < stop:
                    mix, group = sharing[k]
                    ids, share = layout.seen[k][first:stop], mix[first:stop]
                    if len(change) == 1:
                        add_gathered(*change, share, ids, shared)
                    else:
                        add_changes(*rows[:3], rows.bias, *change, share, group, ids, shared)

        engine.map(add, spans(layout, blocks, _RUNS * engine.n_workers if engine.n_workers > 1 else 1))


def _batches(moves: Sequence[Move], sharing: Sequence[Sharing], max_groups: int) -> Iterator[list[Move]]:
    """Cut the blocks into runs with at most `max_groups` groups together, and few multipliers, or single blocks."""
    batch, n_groups, n_changes = list[Move](), 0, 0
    for move in moves:
        k, before, after = move
        groups, changes = sharing[k].mix.shape[1], len(before.rows) + len(after.rows)
        if batch and (n_groups + groups > max_groups or n_changes + changes > _MAX_CHANGES):
            yield batch
            batch, n_groups, n_changes = [], 0, 0
        batch.append(move)
        n_groups, n_changes = n_groups + groups, n_changes + changes
    if batch:
        yield batch


def gathers(rows: LinearRows, changed: Ints, group: Ints, shape: tuple[int, ...]) -> bool:
    """Whether it is cheaper to gather the changes in a dense matrix, a row for each group, first.

    `changed` and `group` are row and group of each change, sorted by row; `shape` is (n_parts, n_groups).
    """
    n_parts, n_groups = shape
    if n_parts <= 1:
        return False
    once, each = count_walks(rows.indptr, changed, group)
    return bool(each + _DENSE_WORK * n_parts * n_groups * rows.n_features < n_parts * once)


def gathered(rows: LinearRows, triples: Sequence[Matrix], group: Ints, n_groups: int) -> Matrix:
    """Return the sum of the changed rows for each group, times their changes: n_groups x (n_features + 1).

    A loop over all groups compiles to SIMD instructions, and is faster than one over the entries of a row if an
    eighth of the groups change in it.
    """
    once, each = count_walks(rows.indptr, triples[0], group[triples[1]])
    if n_groups >= _MANY_GROUPS and each * _MANY_GROUPS > once * n_groups:
        U = np.zeros((rows.n_features + 1, n_groups), rows.dtype)
        gather_rows(*rows[:3], rows.bias, rows.dense, *triples, group, U)
        return np.ascontiguousarray(U.T)
    U = np.zeros((n_groups, rows.n_features + 1), rows.dtype)
    gather_changes(*rows[:3], rows.bias, *triples, group, U)
    return U


def spans(layout: Layout, blocks: Sequence[int], n_runs: int) -> list[tuple[int, int]]:
    """Cut the shared parts into runs with about the same number of updates from some blocks."""
    n_seen = np.bincount(np.concatenate([layout.seen[k] for k in blocks]), minlength=len(layout.shared))
    ends = np.cumsum(n_seen)
    cuts = np.searchsorted(ends, np.arange(1, n_runs) * (n_seen.sum() / n_runs), side="right")
    return list(pairwise(np.unique([0, *cuts, len(ends)]).tolist()))


# --- Dual coordinate descent for classes whose weights are sums of shared parts, to a certified duality gap ---


# Work on the pairs that can move, as a multiple of a sweep: other blocks may have moved meanwhile.
_ACTIVE_WORK = 1.0
_MAX_GAP_RATIO = 8.0  # largest assumed ratio of certified to estimated gap
_NARROW_TOL = 0.01  # of rounds over the rows with given multipliers
SCALES = (1.0, 1.0025, 1.005, 1.01, 1.015, 1.02, 1.03, 1.05)

Costs = Callable[[range, Ints], Matrix]
Weights = Callable[[range], Matrix]
Store = Callable[[int, Matrix], None]


class Certificate(NamedTuple):
    """Primal objective and duality gap at `scale` times the weights of the multipliers."""

    scale: float
    objective: float
    gap: float


class RoundSettings(NamedTuple):
    """Common settings of the visits of a round: seed, number, and the gap below which a pair is skipped."""

    seed: int
    iteration: int
    idle: float


class CoupledSolution(NamedTuple):
    """Multipliers of all blocks, shared parts, certificate and history."""

    multipliers: list[Multipliers]
    shared: Matrix  # n_shared x (n_features + 1), bias last
    certificate: Certificate
    trace: Trace  # one row per round; `all_rows` is 0 for rounds over the candidates
    converged: bool


class CoupledSolver:
    """Solver of a coupled problem in this process.

    `costs` returns the signs times costs of a range of classes and some rows. `factor` (n_parts x n_classes) holds
    the shares of the classes in the parts. `offset` returns the weights (n_features + 1, n_block) from which the
    deviations of a range of classes are measured; None means zeros.
    """

    needs: ClassVar[tuple[str, ...]] = ("shares_memory",)  # of the engine

    def __init__(
        self,
        rows: LinearRows,
        costs: Costs,
        factor: sp.csc_array,
        loss: str,
        engine: Engine,
        offset: Weights | None = None,
    ) -> None:
        self.rows, self.costs, self.loss, self.engine, self.offset = rows, costs, loss, engine, offset
        self.all_rows = view_all(rows)
        self.set_layout(lay_out(factor))

    def couple(self, factor: sp.csc_array) -> None:
        """Change the shares of the classes in the parts; the classes of each block stay the same."""
        self.set_layout(lay_out(factor))

    def set_layout(self, layout: Layout) -> None:
        """Set the layout, which must have the same blocks as before."""
        self.layout = layout
        dtype = self.rows.dtype
        self.local = [np.asarray(shares, dtype) for shares in layout.local]
        self.sharing = [group_classes(mix, dtype) for mix in layout.mix]

    def _block_arrays(
        self, k: int, view: RowView, multipliers: Multipliers, shared: Matrix
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Return costs, dense multipliers and weights of a block, on the rows and features of a view.

        The view must contain every row that has a multiplier.
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
            self._add_pairs(view, cost, A, self.local[k], W)
        if layout.seen[k].size:
            add_parts(shared, layout.seen[k], *self.sharing[k], view.features, W)
        return cost, A, W

    def _add_pairs(self, view: RowView, cost: Matrix, A: Matrix, K: Matrix, W: Matrix) -> None:
        """Add the contribution of the multipliers A of a block to its weights."""
        if self.loss == "logistic":  # all pairs have a multiplier, and the view has all rows
            E = np.empty_like(A)
            couple_pairs(cost, A, K, E)
            add_columns(*self._columns, self.rows.bias, E, W)
        else:
            add_rows(*view.rows[:3], view.rows.bias, view.rows.dense, cost, A, K, W)

    @cached_property
    def _columns(self) -> tuple[Matrix, Matrix, Matrix]:
        """Return the rows in CSC format."""
        shape = self.rows.n_samples, self.rows.n_features
        columns = sp.csr_array((self.rows.data, self.rows.indices, self.rows.indptr), shape=shape).tocsc()
        return columns.indptr, columns.indices, columns.data

    def _from_offset(self, k: int, multipliers: Multipliers) -> float:
        """Return half the sum of the multipliers times the margins at the offset.

        Half the sum of the multipliers times the margins is the regulariser. If deviations from an offset are
        regularised, the share of the offset must be subtracted.
        """
        if self.offset is None:
            return 0.0
        V = np.ascontiguousarray(self.offset(self.layout.blocks[k]), self.rows.dtype)
        return float(dot_rows(*self.rows[:3], self.rows.bias, *multipliers, V)) / 2

    def weights(self, k: int, solution: CoupledSolution) -> Matrix:
        """Return the weights (n_features + 1, n_block) of block k, bias last."""
        W = self._block_arrays(k, self.all_rows, solution.multipliers[k], solution.shared)[2]
        return np.asarray(W * self.rows.dtype.type(solution.certificate.scale))

    def parts(self, k: int, solution: CoupledSolution) -> Matrix:
        """Return the parts (n_owned, n_features + 1) that only block k sees, bias last."""
        block, dtype = self.layout.blocks[k], self.rows.dtype
        cost = np.ascontiguousarray(self.costs(block, self.all_rows.ids), dtype)
        A = np.zeros(cost.shape, dtype)
        from_triples(*solution.multipliers[k], self.all_rows.ids, A)
        U = np.zeros((self.rows.n_features + 1, len(block)), dtype)
        self._add_pairs(self.all_rows, cost, A, np.eye(len(block), dtype=dtype), U)
        return np.asarray(self.layout.shares[k].astype(dtype) @ U.T)

    def _visit(
        self,
        k: int,
        K: Matrix,
        view: RowView,
        multipliers: Multipliers,
        shared: Matrix,
        seed: list[int],
        idle: float,
    ) -> Visit:
        """Sweep a block once over the rows of a view, then over the pairs that can still move."""
        rows, code = view.rows, LOSSES[self.loss]
        cost, A, W = self._block_arrays(k, view, multipliers, shared)
        K = K.astype(rows.dtype)
        n_block = A.shape[1]
        order = visiting_order(rows.n_samples, np.random.default_rng(seed))
        if self.loss == "logistic":  # a multiplier is never at a bound: there are no lists of active pairs
            sweeps = LogisticSweeps(rows, cost, K, W, A)
            loss, norm, gap = sweeps.over_rows(order, idle)
            sweeps.over_rows_with_the_gap(idle)
            estimates = loss, norm - self._from_offset(k, multipliers), gap
            nonzero = Multipliers(*to_triples(A, cost, view.ids, np.arange(len(A))))
            return Visit(nonzero, view.ids[:0], estimates)
        active = np.empty((n_block, rows.n_samples), np.int32)
        n_active = np.zeros(n_block, np.int64)
        estimates = sweep_coupled(
            *rows[:3], rows.norm2, cost, code, rows.bias, K, W, A, order, active, n_active
        )
        may_move = np.zeros(rows.n_samples, bool)
        mark_movable(active, n_active, A, may_move)
        full_work = rows.n_samples * n_block / (1.0 if rows.dense else SPARSE_PENALTY)
        n_pairs = int(n_active.sum())
        n_sweeps = min(MAX_ACTIVE_SWEEPS, int(_ACTIVE_WORK * full_work / n_pairs)) if n_pairs else 0
        if n_sweeps:
            scratch = np.empty(rows.n_features + 1, rows.dtype)
            polish_coupled(
                *rows[:3], rows.norm2, cost, code, rows.bias, rows.dense, K, W, A,
                active, n_active, n_sweeps, ENOUGH * estimates[2] / n_block, sum(seed), scratch,
            )  # fmt: skip
        loss, norm, gap = estimates
        estimates = loss, norm - self._from_offset(k, multipliers), gap
        nonzero = Multipliers(*to_triples(A, cost, view.ids, np.flatnonzero(may_move)))
        return Visit(nonzero, view.ids[may_move], estimates)

    def _update_shared(
        self, wave: Sequence[int], old: list[Multipliers], new: list[Multipliers], shared: Matrix
    ) -> None:
        """Add the changes of the blocks of a wave to the shared parts."""
        update_shared(self.rows, self.layout, self.sharing, self.engine, wave, old, new, shared)

    def _settings(self, state: CoupledState, seed: int) -> RoundSettings:
        """Return the settings of the next round."""
        idle = -1.0
        if self.loss == "logistic" and state.n_rounds:
            n_pairs = self.rows.n_samples * self.layout.blocks[-1].stop
            idle = idle_gap(state.gap, state.objective, n_pairs, self.rows.dtype)
        return RoundSettings(seed, state.n_rounds, idle)

    def _waves(self, settings: RoundSettings) -> list[int]:
        """Return the waves in the order of a round."""
        rng = np.random.default_rng([settings.seed, settings.iteration])
        return [int(w) for w in rng.permutation(len(self.layout.waves))]

    def _round(self, pieces: RoundPieces, state: CoupledState, full: bool, seed: int) -> Array:
        """Visit every block once; return the estimated loss, regulariser and gap."""
        settings = self._settings(state, seed)
        waves = [self.layout.waves[w] for w in self._waves(settings)]
        total = np.zeros(3)
        for wave in waves:
            total += self._wave(wave, coupling_of_wave(self.layout, wave), pieces, state, full, settings)
        return total

    def _wave(
        self,
        blocks: Ints,
        couplings: list[Matrix],
        pieces: RoundPieces,
        state: CoupledState,
        full: bool,
        settings: RoundSettings,
        first: int = 0,
    ) -> Array:
        """Visit the blocks of a wave and update the shared parts; `first` is the number of block 0 in all shards."""
        seed, iteration, idle = settings

        def visit(item: tuple[int, Matrix]) -> Visit:
            k, K = item
            done = pieces.load(k, iteration)
            if done is None:
                view = self.all_rows if full else view_some(self.rows, state.candidates[k])
                seeds = [seed, iteration, first + k]
                done = self._visit(k, K, view, state.multipliers[k], state.shared, seeds, idle)
                pieces.save(k, iteration, done)
            return done

        wave = blocks.tolist()
        visits = self.engine.map(visit, list(zip(wave, couplings, strict=True)))
        old = [state.multipliers[k] for k in wave]
        self._update_shared(wave, old, [visit.multipliers for visit in visits], state.shared)
        for k, done in zip(wave, visits, strict=True):
            state.multipliers[k], state.candidates[k] = done.multipliers, done.candidates
        return np.asarray(np.sum([done.estimates for done in visits], axis=0))

    def certify(self, state: CoupledState, store: Store | None = None) -> Certificate:
        """Evaluate the primal objective and the duality gap, from the multipliers alone, at the best of a few scales.

        The shared parts are recomputed, which removes accumulated rounding errors. `store` receives the number and
        the weights of every block, before they are scaled.
        """
        self._rebuild(state)
        return self._best_scale(self._certify_blocks(state, store))

    def _rebuild(self, state: CoupledState) -> None:
        """Recompute the shared parts."""
        state.shared[:] = 0
        empty = [no_multipliers(self.rows.dtype)] * len(self.layout.blocks)
        self._update_shared(range(len(empty)), empty, state.multipliers, state.shared)

    @property
    def _scales(self) -> Matrix:
        smooth_or_offset = self.loss != "hinge" or self.offset is not None
        return np.array(SCALES[:1] if smooth_or_offset else SCALES, self.rows.dtype)

    def _certify_blocks(self, state: CoupledState, store: Store | None = None) -> list[Array]:
        """Return the regulariser, the gap, and the losses at all scales, of every block."""
        scales, code, bias = self._scales, LOSSES[self.loss], self.rows.bias

        def certify_one(k: int) -> Array:
            losses = np.zeros(len(scales))
            cost, A, W = self._block_arrays(k, self.all_rows, state.multipliers[k], state.shared)
            if self.loss == "logistic":
                by_class = np.empty((2, cost.shape[1]))
                norm = certify_logistic(*self.rows[:3], cost, bias, W, A, *by_class)
                losses[0], gap = by_class.sum(axis=1)
            else:
                norm, gap = certify_scaled(*self.rows[:3], cost, code, bias, W, A, scales, losses)
            if store is not None:
                store(k, W)
            return np.array([norm - self._from_offset(k, state.multipliers[k]), gap, *losses])

        return list(self.engine.map(certify_one, range(len(self.layout.blocks))))

    def _best_scale(self, blocks: list[Array]) -> Certificate:
        """Add up the blocks and choose the best scale."""
        scales, (norm, gap, *losses) = self._scales, np.sum(blocks, axis=0)
        objectives = scales.astype(np.float64) ** 2 * norm + losses
        best = int(objectives.argmin())
        gap = max(0.0, float(gap + objectives[best] - objectives[0]))
        return Certificate(float(scales[best]), float(objectives[best]), gap)

    def start(self, multipliers: list[Multipliers] | None = None) -> CoupledState:
        """Return the initial state: given multipliers with their shared parts, or zeros."""
        rows, n_blocks = self.rows, len(self.layout.blocks)
        empty = [no_multipliers(rows.dtype)] * n_blocks
        shared = np.zeros((len(self.layout.shared), rows.n_features + 1), rows.dtype)
        if multipliers is not None:
            if not isinstance(multipliers, Feasible):
                multipliers = [self._feasible(k, block) for k, block in enumerate(multipliers)]
            self._update_shared(range(n_blocks), empty, multipliers, shared)
        return CoupledState(multipliers or list(empty), [np.empty(0, np.int64)] * n_blocks, shared)

    def _feasible(self, k: int, multipliers: Multipliers) -> Multipliers:
        """Project multipliers of another cost into the bounds of this one."""
        ids, places = np.unique(multipliers.rows, return_inverse=True)
        cost = np.asarray(self.costs(self.layout.blocks[k], ids.astype(np.int64)), self.rows.dtype)[
            places, multipliers.columns
        ]
        size = np.where(np.sign(cost) == np.sign(multipliers.values), np.abs(multipliers.values), 0)
        if self.loss != "squared_hinge":
            size = np.minimum(size, np.abs(cost))
        nonzero = size > 0
        return Multipliers(
            multipliers.rows[nonzero], multipliers.columns[nonzero], np.copysign(size, cost)[nonzero]
        )

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
        certify: bool = True,
        store: Store | None = None,
    ) -> CoupledSolution:
        """Run rounds over all blocks until the certified relative duality gap is at most `tol`.

        `multipliers` are the start: those of a smaller C are feasible. With `certify=False` the gap that a round
        estimates is enough; if every block then starts from multipliers, rounds of a hinge loss go over their rows
        only, to a relative gap of at most 1%: their dual gap is small long before the margins of these rows have
        settled. `store` receives, at every certificate, the number of each block and its weights, without the scale
        of the certificate: with the last call for a block, those of the solution. `key` is the prefix of the pieces
        in the checkpoint.
        """
        pieces, state = RoundPieces(checkpoint, key), self.start(multipliers)
        narrow = not certify and self.loss != "logistic" and multipliers is not None and state.has_multipliers
        if narrow:
            state.narrow()
            tol = min(tol, _NARROW_TOL)
        monitor = Monitor(tol, max_iter, progress)
        pieces.resume(state, monitor)
        done = False
        while not done:
            full = not narrow and (monitor.is_last or self.loss == "logistic" or state.next_is_full(tol))
            pieces.begin(state, monitor)
            loss, norm, gap = self._round(pieces, state, full, seed)
            objective, certificate = loss + norm, None
            covers = full or narrow
            reached = (covers or certify) and state.is_enough(gap, objective, tol, covers=covers)
            if not certify and (reached or monitor.is_last):
                gap *= state.gap_ratio
                certificate = Certificate(1.0, float(objective), float(gap))
            elif reached or (full and monitor.is_last):
                certificate = self.certify(state, store)
                estimate, gap, objective = gap, certificate.gap, certificate.objective
                if full:  # a far too optimistic estimate delays the next certificate
                    ratio = max(state.gap_ratio, gap / max(estimate, TINY))
                    state.gap_ratio = min(_MAX_GAP_RATIO, ratio)
            state.add_round(float(objective), float(gap), full, certificate is not None)
            done = monitor.record(
                objective,
                gap=gap,
                certified=certificate is not None,
                converged=gap <= tol * objective,
                all_rows=full,
            )
        assert certificate is not None  # the last round has one
        return CoupledSolution(state.multipliers, state.shared, certificate, monitor.trace, monitor.converged)

    def close(self) -> None:
        """Free nothing: all arrays are in this process."""
