"""A joint problem whose blocks live in shards: the solver of `joint`, in several places.

A shard has consecutive blocks of classes: their multipliers and candidates, and of the shared parts those that it
sees. With classes in the order of a tree most of these are seen by no other shard, and never travel. The others
*cross*: every shard that sees one has a copy. In a wave each shard visits its blocks, carries what they changed into
its own parts, and tells what they changed in parts that cross; the sum over shards comes with the next step, to all
alike, so that copies stay equal to the last bit.

A part may be moved by as many blocks of a wave as there are shards (see `layout`), since otherwise all but two of
them would wait for each other below a common root. The optimum is the same; the way to it depends on the number of
shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.infer.linear.coupled import (
    Certificate,
    Costs,
    CoupledSolution,
    CoupledSolver,
    RoundSettings,
    Weights,
)
from arbora.infer.linear.coupled_state import CoupledState, Multipliers, Run
from arbora.infer.linear.flat import LinearRows
from arbora.infer.linear.layout import Layout, coupling_of_wave, lay_out, times_seen
from arbora.infer.linear.row_views import view_all
from arbora.infer.tree_sum import cut_leaves


class Resident(list[Multipliers]):
    """Multipliers that are where they are, in the shards: a start for the same shards."""


class CoupledCommon(NamedTuple):
    """What all shards read."""

    rows: LinearRows
    costs: Costs
    loss: str
    offset: Weights | None


class CoupledShare(NamedTuple):
    """What a shard has."""

    layout: Layout  # of its own blocks; shared parts are those that it sees
    first: int  # number of its first block among all
    crossing: NDArray[np.int64]  # those of its shared parts that other shards see too ...
    ids: NDArray[np.int64]  # ... and their numbers among all that cross, sorted


class SharedChange(NamedTuple):
    """What was added to parts that cross."""

    ids: NDArray[np.int64]  # sorted
    features: NDArray[np.int32]  # those that changed, sorted
    values: NDArray[Any]  # len(ids) x len(features)


def cut_layout(layout: Layout, runs: Sequence[range]) -> list[CoupledShare]:
    """Cut blocks, and the shared parts that they see, into pieces.

    Examples
    --------
    >>> star = sp.csc_array(sp.vstack([sp.csr_array([[1.0] * 40]), sp.eye_array(40)]))  # a root and 40 leaves
    >>> first, second = cut_layout(lay_out(star), [range(0, 1), range(1, 2)])
    >>> first.layout.blocks, second.layout.blocks, second.crossing, second.ids
    ([range(0, 20)], [range(20, 40)], array([0]), array([0]))
    """
    own = [np.unique(np.concatenate([layout.seen[k] for k in run])).astype(np.int64) for run in runs]
    n_seeing = np.bincount(np.concatenate(own), minlength=len(layout.shared))
    number = np.cumsum(n_seeing > 1) - 1
    pieces = []
    for run, parts in zip(runs, own, strict=True):
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
        pieces.append(CoupledShare(part, run.start, np.flatnonzero(crosses), number[parts[crosses]]))
    return pieces


def nothing(dtype: Any) -> SharedChange:
    """No change at all."""
    return SharedChange(np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, 0), dtype))


def add_changes(changes: Sequence[SharedChange]) -> SharedChange:
    """Add up changes of several shards, in their order.

    Examples
    --------
    >>> one = SharedChange(np.array([0, 2]), np.array([5]), np.ones((2, 1)))
    >>> add_changes([one, SharedChange(np.array([2]), np.array([5, 7]), np.ones((1, 2)))])
    SharedChange(ids=array([0, 2]), features=array([5, 7]), values=array([[1., 0.],
           [2., 1.]]))
    """
    ids, features = (np.unique(np.concatenate([change[axis] for change in changes])) for axis in (0, 1))
    values = np.zeros((len(ids), len(features)), changes[0].values.dtype)
    for change in changes:
        at = np.ix_(np.searchsorted(ids, change.ids), np.searchsorted(features, change.features))
        values[at] += change.values
    return SharedChange(ids, features, values)


class CoupledShard(CoupledSolver):
    """The blocks of one shard.

    Parameters
    ----------
    common : CoupledCommon
    piece : CoupledShare
    engine : object with ``map(function, items)``
    """

    def __init__(self, common: CoupledCommon, piece: CoupledShare, engine: Any) -> None:
        self.rows, self.costs, self.loss, self.offset = common
        self.engine, self.everything = engine, view_all(self.rows)
        self.couple(piece)
        self.now = self.start()

    def couple(self, piece: CoupledShare) -> None:
        """Take over other shares of the same blocks."""
        self.piece = piece
        self.set_layout(piece.layout)

    def _follow(
        self,
        wave: Sequence[int],
        old: list[Multipliers],
        new: list[Multipliers],
        shared: NDArray[Any],
    ) -> None:
        """Carry changes into the parts of this shard, and note those of parts that cross, which stay as they are."""
        seen = np.unique(np.concatenate([self.layout.seen[k] for k in wave]))
        moves = np.isin(self.piece.crossing, seen)
        crossing = self.piece.crossing[moves]
        before = shared[crossing]
        shared[crossing] = 0
        super()._follow(wave, old, new, shared)
        values = shared[crossing]
        features = np.flatnonzero(values.any(axis=0)).astype(np.int32)
        self.change = SharedChange(self.piece.ids[moves], features, values[:, features])
        shared[crossing] = before

    def _receive(self, change: SharedChange) -> None:
        rows = self.piece.crossing[np.searchsorted(self.piece.ids, change.ids)]
        self.now.shared[np.ix_(rows, change.features)] += change.values

    def begin(self, multipliers: list[Multipliers] | None) -> SharedChange:
        """Begin from nothing, from given multipliers, or from those that are there."""
        self.change = nothing(self.rows.dtype)
        self.now = self.start(self.now.multipliers if isinstance(multipliers, Resident) else multipliers)
        return self.change

    def rebuild(self) -> SharedChange:
        """Make the shared parts anew; those that cross are zero until all shards have told what they have of them."""
        self._rebuild(self.now)
        return self.change

    def wave(
        self, w: int, full: bool, order: RoundSettings, change: SharedChange, times: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], SharedChange]:
        """Visit the blocks of a wave; `times` counts, for the parts that cross, all of its blocks that see them."""
        self._receive(change)
        blocks = self.layout.waves[w]
        if not len(blocks):
            return np.zeros(3), nothing(self.rows.dtype)
        counts = times_seen(self.layout, blocks)
        counts[self.piece.crossing] = times
        couplings = coupling_of_wave(self.layout, blocks, counts)
        estimates = self._wave(blocks, couplings, Run(None), self.now, full, order, self.piece.first)
        return estimates, self.change

    def certify_own(self, change: SharedChange) -> list[NDArray[np.float64]]:
        """Evaluate the blocks of this shard."""
        self._receive(change)
        return self._certify_blocks(self.now)

    def _solution(self, scale: float = 1.0) -> CoupledSolution:
        certificate = Certificate(scale, 0.0, 0.0)
        return CoupledSolution(self.now.multipliers, self.now.shared, certificate, [], True)

    def weights_of(self, k: int, scale: float) -> NDArray[Any]:
        """Weights of block k of this shard."""
        return self.weights(k, self._solution(scale))

    def parts_of(self, k: int) -> NDArray[Any]:
        """Parts that block k of this shard owns."""
        return self.parts(k, self._solution())

    def shared_of(self, p: int) -> NDArray[Any]:
        """Shared part p of this shard."""
        return self.now.shared[p : p + 1]

    def state(self) -> Any:
        """Return what a shard has to find again when it is restarted."""
        return self.piece, self.now.multipliers, self.now.candidates, self.now.shared

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        piece, multipliers, candidates, shared = state
        self.couple(piece)
        # Arrays of a file cannot be written to, and compiled code would have to be made for them.
        own = [Multipliers(*map(np.array, block)) for block in multipliers]
        self.now = CoupledState(own, [np.array(ids) for ids in candidates], np.array(shared))


class ShardedCoupledSolver(CoupledSolver):
    """A joint problem whose blocks live in the shards of an engine; it is solved, and asked, as any other.

    Parameters
    ----------
    rows, costs, factor, loss, offset
        As in `CoupledSolver`; what is called must be something that the shards can be given.
    engine : object with ``shards(make, common, pieces)``, ``n_shards`` and ``map(function, items)``
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
        self.n_shards = engine.n_shards  # once: a cluster may grow or shrink while its shards stay
        self._cut(factor)
        self.shards = engine.shards(CoupledShard, CoupledCommon(rows, costs, loss, offset), self.pieces)

    def _cut(self, factor: sp.csc_array) -> None:
        self.layout = lay_out(factor, self.n_shards)
        self.runs = cut_leaves(len(self.layout.blocks), self.n_shards)
        self.pieces = cut_layout(self.layout, self.runs)
        # Number of each shared part among those that cross, and behind them for the others.
        n_crossing = 1 + max((int(piece.ids[-1]) for piece in self.pieces if len(piece.ids)), default=-1)
        self.number = np.full(len(self.layout.shared), n_crossing)
        position = {int(part): p for p, part in enumerate(self.layout.shared)}
        self.home: list[tuple[int, int]] = [(0, 0)] * len(position)  # a shard that has the part, and where
        for shard, piece in enumerate(self.pieces):
            places = np.array([position[int(part)] for part in piece.layout.shared], np.int64)
            self.number[places[piece.crossing]] = piece.ids
            for local, p in enumerate(places.tolist()):
                self.home[p] = (shard, local)
        self.n_crossing = n_crossing
        self.pending = nothing(self.rows.dtype)

    def couple(self, factor: sp.csc_array) -> None:
        """Let the classes share parts otherwise; multipliers stay where they are."""
        self._cut(factor)
        self.shards.step("couple", each=[[piece] for piece in self.pieces])

    def _outgoing(self) -> list[SharedChange]:
        """For each shard, what it has not been told of the parts that cross."""
        parts = []
        for piece in self.pieces:
            seen = np.isin(self.pending.ids, piece.ids)
            parts.append(
                SharedChange(self.pending.ids[seen], self.pending.features, self.pending.values[seen])
            )
        return parts

    def start(self, multipliers: list[Multipliers] | None = None) -> CoupledState:
        """Let all shards begin; what there is of a state here is the rounds."""
        each: list[list[Any]] = [[multipliers]] * len(self.runs)
        if multipliers is not None and not isinstance(multipliers, Resident):
            each = [[multipliers[run.start : run.stop]] for run in self.runs]
        self.pending = add_changes(self.shards.step("begin", each=each))
        return CoupledState(Resident(), [], np.empty((0, 0)))

    def _round(self, run: Run, state: CoupledState, full: bool, seed: int) -> NDArray[np.float64]:
        if run.checkpoint is not None:
            raise ValueError("shards keep their own states: a checkpoint is for problems of one process.")
        order, total = self._order_of(state, seed), np.zeros(3)
        for w in self._waves(order):
            seen = np.concatenate([self.layout.seen[k] for k in self.layout.waves[w]])
            times = np.bincount(self.number[seen], minlength=self.n_crossing + 1)
            each = [
                [change, times[piece.ids]]
                for change, piece in zip(self._outgoing(), self.pieces, strict=True)
            ]
            found = self.shards.step("wave", w, full, order, each=each)
            total += np.sum([estimates for estimates, _ in found], axis=0)
            self.pending = add_changes([change for _, change in found])
        return total

    def certify(self, state: CoupledState) -> Certificate:
        """Evaluate the primal objective and the duality gap."""
        self.pending = add_changes(self.shards.step("rebuild"))
        found = self.shards.step("certify_own", each=[[change] for change in self._outgoing()])
        self.pending = nothing(self.rows.dtype)
        return self._best_scale([block for blocks in found for block in blocks])

    def _home(self, k: int) -> tuple[int, int]:
        """Shard of block k, and which of its blocks it is."""
        shard = next(s for s, run in enumerate(self.runs) if k in run)
        return shard, k - self.runs[shard].start

    def weights(self, k: int, solution: CoupledSolution) -> NDArray[Any]:
        """Weights (n_features + 1, n_block) of block k, bias last."""
        shard, local = self._home(k)
        return np.asarray(self.shards.ask(shard, "weights_of", local, solution.certificate.scale))

    def parts(self, k: int, solution: CoupledSolution) -> NDArray[Any]:
        """Parts (n_owned, n_features + 1) that block k owns, bias last."""
        shard, local = self._home(k)
        return np.asarray(self.shards.ask(shard, "parts_of", local))

    def shared_part(self, p: int) -> NDArray[Any]:
        """Shared part p as a row (1, n_features + 1), bias last."""
        shard, local = self.home[p]
        return np.asarray(self.shards.ask(shard, "shared_of", local))

    def close(self) -> None:
        """Let the shards go."""
        self.shards.close()
