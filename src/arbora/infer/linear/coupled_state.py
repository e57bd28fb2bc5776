"""Where a joint fit stands, and how it is taken up again after it was cut off.

A fit goes in rounds; a round visits every block of classes once. The shared parts are saved when a round begins,
the multipliers of a block when it has been visited. Pieces of odd and even rounds have different names, so that
what a round began with is there until the next one has begun: cut off at any moment, the fit continues in the round
in which it was, without the visits already paid, and ends with the same bits.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.checkpoint import Checkpoint

_MOST_RESTRICTED = 10  # rounds over the candidates between two over all rows
_WORTH = 0.2  # restricted rounds end when the gap has fallen to this share of what it was over all rows
_BELOW_TOL = 0.6  # ... or to this share of the tolerance


class Multipliers(NamedTuple):
    """Multipliers of a block that are not zero, each with the sign of its pair (a * y), sorted by row."""

    rows: NDArray[Any]
    columns: NDArray[Any]
    values: NDArray[Any]


class Visit(NamedTuple):
    """What a visit of a block leaves: multipliers, and the loss, regulariser and gap met on the way."""

    multipliers: Multipliers
    candidates: NDArray[np.int64]  # rows with a multiplier, or a pair that may get one soon
    estimates: tuple[float, float, float]


def no_multipliers(dtype: Any) -> Multipliers:
    """Multipliers of a block that was never visited."""
    return Multipliers(np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, dtype))


class Round(NamedTuple):
    """What a round leaves in the history: objective, gap, seconds, and whether it went over all rows."""

    objective: float
    gap: float
    seconds: float
    full: bool


@dataclass
class CoupledState:
    """Multipliers and candidates of every block, the shared parts, and the rounds so far."""

    multipliers: list[Multipliers]
    candidates: list[NDArray[np.int64]]
    shared: NDArray[Any]
    history: list[Round] = field(default_factory=list)
    optimism: float = 0.4  # a visit closes much of the gap that it meets: certified over estimated

    def next_is_full(self, tol: float) -> bool:
        """Whether the next round goes over all rows, or over the candidates alone, which are few.

        Rounds over the candidates follow each other while they are worth it: until they have closed most of the
        gap of the last full round, or enough of it for the tolerance. It takes a full round to see what is left.
        """
        n_restricted = 0
        while n_restricted < len(self.history) and not self.history[-1 - n_restricted].full:
            n_restricted += 1
        if n_restricted == len(self.history):
            return True
        if not n_restricted:
            return False
        last, full = self.history[-1], self.history[-1 - n_restricted]
        enough = max(_WORTH * full.gap, _BELOW_TOL * tol * last.objective)
        return bool(n_restricted >= _MOST_RESTRICTED or last.gap <= enough)


class Run:
    """The pieces of a fit in a checkpoint; without a checkpoint, nothing is kept.

    Parameters
    ----------
    checkpoint : Checkpoint or None
    key : str
        Put before the names of the pieces.
    """

    def __init__(self, checkpoint: Checkpoint | None, key: str = "") -> None:
        self.checkpoint, self.key = checkpoint, key

    def _name(self, what: str, iteration: int) -> str:
        return f"{self.key}{what}-{iteration % 2}"

    def begin(self, state: CoupledState) -> None:
        """Save what the round that begins now begins with; the multipliers were saved by the last one."""
        if self.checkpoint is not None:
            iteration = len(state.history)
            meta = {"iteration": iteration, "history": state.history, "optimism": state.optimism}
            self.checkpoint.save(self._name("shared", iteration), {"shared": state.shared}, meta)

    def save(self, k: int, iteration: int, visit: Visit) -> None:
        """Save what a visit left."""
        if self.checkpoint is not None:
            arrays = {**visit.multipliers._asdict(), "candidates": visit.candidates}
            meta = {"iteration": iteration, "estimates": visit.estimates}
            self.checkpoint.save(self._name(f"block-{k}", iteration), arrays, meta)

    def load(self, k: int, iteration: int) -> Visit | None:
        """Return what the visit of block k in that round left, if it took place before the fit was cut off."""
        piece = self.checkpoint.load(self._name(f"block-{k}", iteration)) if self.checkpoint else None
        if piece is None or piece.meta["iteration"] != iteration:
            return None
        candidates = piece.arrays.pop("candidates")
        return Visit(Multipliers(**piece.arrays), candidates, tuple(piece.meta["estimates"]))

    def resume(self, state: CoupledState) -> None:
        """Bring a fresh state to the last round that was begun and of which everything is there."""
        if self.checkpoint is None:
            return
        parities = [p for p in (0, 1) if self._name("block-0", p) in self.checkpoint]
        pieces = {p: self.checkpoint.load(self._name("shared", p)) for p in (0, 1)}
        begun = [piece for piece in pieces.values() if piece is not None]
        lost = [self._name("shared", p) for p in parities if pieces[p] is None]
        for piece in sorted(begun, key=lambda p: -p.meta["iteration"]):
            iteration = piece.meta["iteration"]
            visits = [self.load(k, iteration - 1) for k in range(len(state.multipliers))] if iteration else []
            known = [visit for visit in visits if visit is not None]
            if len(known) == len(visits):
                state.multipliers[: len(known)] = [visit.multipliers for visit in known]
                state.candidates[: len(known)] = [visit.candidates for visit in known]
                state.shared = piece.arrays["shared"]
                state.history = [Round(*entry) for entry in piece.meta["history"]]
                state.optimism = piece.meta["optimism"]
                break
            lost += [
                self._name(f"block-{k}", iteration - 1) for k, visit in enumerate(visits) if visit is None
            ]
        if lost:
            self._warn(lost, len(state.history))

    def _warn(self, lost: list[str], n_rounds: int) -> None:
        assert self.checkpoint is not None
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        warnings.warn(
            f"the checkpoint in {self.checkpoint.path} is not whole: {lost[0]!r}{more} cannot be read. The fit goes "
            + (f"on from round {n_rounds + 1}." if n_rounds else "back to its beginning."),
            UserWarning,
            stacklevel=4,
        )
