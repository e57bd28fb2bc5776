"""Coupled problems whose blocks are in shards: the solver of `coupled` on several workers.

A shard holds consecutive blocks of classes: their multipliers and candidates, and the shared parts that they see.
With classes in the order of a tree, most of these parts are seen by no other shard and never travel. The others
*cross*: every shard that sees one has a copy. In a wave each shard visits its blocks, adds their changes to its own
parts, and returns their changes of the crossing parts. The sum over the shards is sent to all of them with the next
step, so that the copies stay equal to the last bit.

As many blocks of a wave as there are shards may change the same part (see `layout`); otherwise, below a common root,
all but two of them would wait for each other. The optimum is the same, but the path to it depends on the number of
shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine, missing
from arbora.core.trace import Trace
from arbora.infer.linear.coupled import (
    Certificate,
    Costs,
    CoupledSolution,
    CoupledSolver,
    CoupledState,
    Multipliers,
    RoundPieces,
    RoundSettings,
    Store,
    Weights,
)
from arbora.infer.linear.layout import Layout, coupling_of_wave, lay_out, times_seen
from arbora.infer.linear.rows import LinearRows, view_all
from arbora.infer.tree_sum import cut_leaves


class Resident(list[Multipliers]):
    """Stands for the multipliers that the shards hold: a start for the same shards."""


class CoupledCommon(NamedTuple):
    """Data that all shards read."""

    rows: LinearRows
    costs: Costs
    loss: str
    offset: Weights | None


class ShardLayout(NamedTuple):
    """The blocks and parts of a shard."""

    layout: Layout  # of its own blocks; its shared parts are those that they see
    first: int  # number of its first block among all
    crossing: Ints  # those of its shared parts that other shards see too ...
    ids: Ints  # ... and their numbers among all crossing parts, sorted


class SharedChange(NamedTuple):
    """A change of crossing parts."""

    ids: Ints  # sorted
    features: NDArray[np.int32]  # that changed, sorted
    values: Matrix  # len(ids) x len(features)


def cut_layout(layout: Layout, runs: Sequence[range]) -> list[ShardLayout]:
    """Cut blocks, and the shared parts that they see, into shards."""
    parts_of_runs = [
        np.unique(np.concatenate([layout.seen[k] for k in run])).astype(np.int64) for run in runs
    ]
    n_seeing = np.bincount(np.concatenate(parts_of_runs), minlength=len(layout.shared))
    number = np.cumsum(n_seeing > 1) - 1
    shards = []
    for run, parts in zip(runs, parts_of_runs, strict=True):
        here = slice(run.start, run.stop)
        crosses = n_seeing[parts] > 1
        part = Layout(
            layout.blocks[here],
            layout.owned[here],
            layout.shares[here],
            layout.local[here],
            [np.searchsorted(parts, seen) for seen in layout.seen[here]],
            layout.mix[here],
            layout.shared[parts],
            [wave[(wave >= run.start) & (wave < run.stop)] - run.start for wave in layout.waves],
        )
        shards.append(ShardLayout(part, run.start, np.flatnonzero(crosses), number[parts[crosses]]))
    return shards


def nothing(dtype: Any) -> SharedChange:
    """Return an empty change."""
    return SharedChange(np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, 0), dtype))


def add_changes(changes: Sequence[SharedChange]) -> SharedChange:
    """Add up the changes of several shards, in their order.

    >>> change = SharedChange(np.array([0, 2]), np.array([5]), np.ones((2, 1)))
    >>> add_changes([change, SharedChange(np.array([2]), np.array([5, 7]), np.ones((1, 2)))])
    SharedChange(ids=array([0, 2]), features=array([5, 7]), values=array([[1., 0.],
           [2., 1.]]))
    """
    ids, features = (np.unique(np.concatenate([change[axis] for change in changes])) for axis in (0, 1))
    values = np.zeros((len(ids), len(features)), changes[0].values.dtype)
    for change in changes:
        entries = np.ix_(np.searchsorted(ids, change.ids), np.searchsorted(features, change.features))
        values[entries] += change.values
    return SharedChange(ids, features, values)


class CoupledShard(CoupledSolver):
    """The blocks of one shard."""

    def __init__(self, common: CoupledCommon, piece: ShardLayout, engine: Engine) -> None:
        self.rows, self.costs, self.loss, self.offset = common
        self.engine, self.all_rows = engine, view_all(self.rows)
        self.lay_out(piece)
        self.now = self.start()

    def lay_out(self, piece: ShardLayout) -> None:
        """Set the shares of the same blocks in the parts."""
        self.piece = piece
        self.set_layout(piece.layout)

    def _update_shared(
        self,
        wave: Sequence[int],
        old: list[Multipliers],
        new: list[Multipliers],
        shared: Matrix,
    ) -> None:
        """Update the parts of this shard; store the change of crossing parts, which stay unchanged, in `change`."""
        seen = np.unique(np.concatenate([self.layout.seen[k] for k in wave]))
        moves = np.isin(self.piece.crossing, seen)
        crossing = self.piece.crossing[moves]
        before = shared[crossing]
        shared[crossing] = 0
        super()._update_shared(wave, old, new, shared)
        values = shared[crossing]
        features = np.flatnonzero(values.any(axis=0)).astype(np.int32)
        self.change = SharedChange(self.piece.ids[moves], features, values[:, features])
        shared[crossing] = before

    def _receive(self, change: SharedChange) -> None:
        rows = self.piece.crossing[np.searchsorted(self.piece.ids, change.ids)]
        self.now.shared[np.ix_(rows, change.features)] += change.values

    def begin(self, multipliers: list[Multipliers] | None) -> SharedChange:
        """Start from zeros, from given multipliers, or from those of the last fit (`Resident`)."""
        self.change = nothing(self.rows.dtype)
        self.now = self.start(self.now.multipliers if isinstance(multipliers, Resident) else multipliers)
        return self.change

    def rebuild(self) -> SharedChange:
        """Recompute the shared parts; crossing ones stay zero until the changes of all shards arrive."""
        self._rebuild(self.now)
        return self.change

    def wave(
        self, w: int, full: bool, settings: RoundSettings, change: SharedChange, times: Ints
    ) -> tuple[Array, SharedChange]:
        """Visit the blocks of a wave; `times` counts, by crossing part, the blocks of all shards that see it."""
        self._receive(change)
        blocks = self.layout.waves[w]
        if not len(blocks):
            return np.zeros(3), nothing(self.rows.dtype)
        counts = times_seen(self.layout, blocks)
        counts[self.piece.crossing] = times
        couplings = coupling_of_wave(self.layout, blocks, counts)
        pieces = RoundPieces(None)
        estimates = self._wave(blocks, couplings, pieces, self.now, full, settings, self.piece.first)
        return estimates, self.change

    def certify_own(self, change: SharedChange) -> list[Array]:
        """Evaluate the blocks of this shard."""
        self._receive(change)
        return self._certify_blocks(self.now)

    def _solution(self, scale: float = 1.0) -> CoupledSolution:
        certificate = Certificate(scale, 0.0, 0.0)
        return CoupledSolution(self.now.multipliers, self.now.shared, certificate, Trace(), True)

    def weights_of(self, k: int, scale: float) -> Matrix:
        """Return the weights of block k of this shard."""
        return self.weights(k, self._solution(scale))

    def parts_of(self, k: int) -> Matrix:
        """Return the parts that only block k of this shard sees."""
        return self.parts(k, self._solution())

    def shared_of(self, p: int) -> Matrix:
        """Return shared part p of this shard."""
        return self.now.shared[p : p + 1]

    def state(self) -> Any:
        """Return the state that a restarted shard needs."""
        return self.piece, self.now.multipliers, self.now.candidates, self.now.shared

    def restore(self, state: Any) -> None:
        """Restore a state."""
        layout, multipliers, candidates, shared = state
        self.lay_out(layout)
        # Arrays of a mapped file are read-only, and the kernels would be compiled again for them.
        blocks = [Multipliers(*map(np.array, block)) for block in multipliers]
        self.now = CoupledState(blocks, [np.array(ids) for ids in candidates], np.array(shared))


class ShardedCoupledSolver(CoupledSolver):
    """Solver of a coupled problem whose blocks are in the shards of an engine, used like `CoupledSolver`.

    `costs` and `offset` must be picklable. `asked_between`: weights are asked for between solutions, not only after
    the last one.
    """

    needs = ()

    def __init__(
        self,
        rows: LinearRows,
        costs: Costs,
        factor: sp.csc_array,
        loss: str,
        engine: Engine,
        offset: Weights | None = None,
        asked_between: bool = False,
    ) -> None:
        self.rows, self.costs, self.loss, self.engine, self.offset = rows, costs, loss, engine, offset
        self.n_shards = engine.n_shards  # read once: a cluster may grow or shrink while its shards stay
        self._cut(factor)
        self.shards = engine.shards(CoupledShard, CoupledCommon(rows, costs, loss, offset), self.layouts)
        self.shards.asked_between = asked_between

    def _cut(self, factor: sp.csc_array) -> None:
        self.layout = lay_out(factor, self.n_shards)
        self.runs = cut_leaves(len(self.layout.blocks), self.n_shards)
        self.layouts = cut_layout(self.layout, self.runs)
        # Number of each shared part among the crossing ones; all others have the next number.
        n_crossing = 1 + max((int(piece.ids[-1]) for piece in self.layouts if len(piece.ids)), default=-1)
        self.number = np.full(len(self.layout.shared), n_crossing)
        position = {int(part): p for p, part in enumerate(self.layout.shared)}
        self.home: list[tuple[int, int]] = [(0, 0)] * len(position)  # a shard with the part, its number there
        for shard, piece in enumerate(self.layouts):
            places = np.array([position[int(part)] for part in piece.layout.shared], np.int64)
            self.number[places[piece.crossing]] = piece.ids
            for local, p in enumerate(places.tolist()):
                self.home[p] = (shard, local)
        self.n_crossing = n_crossing
        self.pending = nothing(self.rows.dtype)

    def couple(self, factor: sp.csc_array) -> None:
        """Change the shares of the classes in the parts; the multipliers stay in the shards."""
        self._cut(factor)
        self.shards.step("lay_out", each=[[piece] for piece in self.layouts])

    def _outgoing(self) -> list[SharedChange]:
        """Return, for each shard, the pending change of its crossing parts."""
        parts = []
        for piece in self.layouts:
            seen = np.isin(self.pending.ids, piece.ids)
            parts.append(
                SharedChange(self.pending.ids[seen], self.pending.features, self.pending.values[seen])
            )
        return parts

    def start(self, multipliers: list[Multipliers] | None = None) -> CoupledState:
        """Start all shards; the state in this process counts the rounds only."""
        each: list[list[Any]] = [[multipliers]] * len(self.runs)
        if multipliers is not None and not isinstance(multipliers, Resident):
            each = [[multipliers[run.start : run.stop]] for run in self.runs]
        self.pending = add_changes(self.shards.step("begin", each=each))
        return CoupledState(Resident(), [], np.empty((0, 0)))

    def _round(self, pieces: RoundPieces, state: CoupledState, full: bool, seed: int) -> Array:
        if pieces.checkpoint is not None:
            raise ValueError("a checkpoint needs a solver in one process: shards save their own states.")
        settings, total = self._settings(state, seed), np.zeros(3)
        for w in self._waves(settings):
            seen = np.concatenate([self.layout.seen[k] for k in self.layout.waves[w]])
            times = np.bincount(self.number[seen], minlength=self.n_crossing + 1)
            each = [
                [change, times[piece.ids]]
                for change, piece in zip(self._outgoing(), self.layouts, strict=True)
            ]
            answers = self.shards.step("wave", w, full, settings, each=each)
            total += np.sum([estimates for estimates, _ in answers], axis=0)
            self.pending = add_changes([change for _, change in answers])
        return total

    def certify(self, state: CoupledState, store: Store | None = None) -> Certificate:
        """Evaluate the primal objective and the duality gap; the weights stay in the shards."""
        assert store is None
        self.pending = add_changes(self.shards.step("rebuild"))
        answers = self.shards.step("certify_own", each=[[change] for change in self._outgoing()])
        self.pending = nothing(self.rows.dtype)
        return self._best_scale([block for blocks in answers for block in blocks])

    def _home(self, k: int) -> tuple[int, int]:
        """Return the shard of block k, and the number of the block there."""
        shard = next(s for s, run in enumerate(self.runs) if k in run)
        return shard, k - self.runs[shard].start

    def weights(self, k: int, solution: CoupledSolution) -> Matrix:
        """Return the weights (n_features + 1, n_block) of block k, bias last."""
        shard, local = self._home(k)
        return np.asarray(self.shards.ask(shard, "weights_of", local, solution.certificate.scale))

    def parts(self, k: int, solution: CoupledSolution) -> Matrix:
        """Return the parts (n_owned, n_features + 1) that only block k sees, bias last."""
        shard, local = self._home(k)
        return np.asarray(self.shards.ask(shard, "parts_of", local))

    def shared_part(self, p: int) -> Matrix:
        """Return shared part p as a row (1, n_features + 1), bias last."""
        shard, local = self.home[p]
        return np.asarray(self.shards.ask(shard, "shared_of", local))

    def close(self) -> None:
        """Free the shards."""
        self.shards.close()


def coupled_solver(
    rows: LinearRows,
    costs: Costs,
    factor: sp.csc_array,
    loss: str,
    engine: Engine,
    offset: Weights | None = None,
    asked_between: bool = False,
) -> CoupledSolver:
    """Return the solver whose needs an engine meets: in this process, or in shards."""
    if missing(engine, CoupledSolver.needs):
        return ShardedCoupledSolver(rows, costs, factor, loss, engine, offset, asked_between)
    return CoupledSolver(rows, costs, factor, loss, engine, offset)
