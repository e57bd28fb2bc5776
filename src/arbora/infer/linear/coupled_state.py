"""The state of a coupled fit, and its pieces in a checkpoint.

A fit proceeds in rounds; a round visits every block of classes once. The shared parts are saved when a round starts,
the multipliers of a block when it has been visited. Pieces of odd and even rounds have different names, so that the
start of a round stays available until the next round has started. An interrupted fit continues in its last round,
without repeating finished visits, and ends with the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.checkpoint import Checkpoint
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Monitor

_MOST_RESTRICTED = 10  # rounds over the candidates between two over all rows
_WORTH = 0.2  # restricted rounds end when the gap has fallen to this share of that of the last full round
_BELOW_TOL = 0.6  # ... or to this share of the tolerance
_NARROW_RATIO = 0.7  # of certified to estimated gap, in rounds over the rows with given multipliers
_EARLY = 0.7  # share of the tolerance below which the gap of a restricted round is worth a certificate,
_FINE = 0.02  # if the tolerance is at most this: a coarse solution that never met all rows predicts worse


class Multipliers(NamedTuple):
    """Non-zero multipliers of a block, each with the sign of its pair (a * y), sorted by row."""

    rows: NDArray[Any]
    columns: NDArray[Any]
    values: NDArray[Any]


def multipliers_of_rows(multipliers: Multipliers, ids: NDArray[np.int64]) -> Multipliers:
    """Keep the multipliers of some sorted rows, which get the numbers 0, 1, ...

    Examples
    --------
    >>> given = Multipliers(np.array([2, 5, 7]), np.array([0, 1, 0]), np.array([0.5, -1.0, 2.0]))
    >>> multipliers_of_rows(given, np.array([5, 6, 7])).rows
    array([0, 2])
    """
    at = np.searchsorted(ids, multipliers.rows)
    here = at < len(ids)
    here[here] = ids[at[here]] == multipliers.rows[here]
    return Multipliers(
        at[here].astype(multipliers.rows.dtype), multipliers.columns[here], multipliers.values[here]
    )


class Visit(NamedTuple):
    """The result of a visit of a block: multipliers, and the loss, regulariser and gap estimated on the way."""

    multipliers: Multipliers
    candidates: NDArray[np.int64]  # rows with a multiplier, or a pair that may get one soon
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
    candidates: list[NDArray[np.int64]]
    shared: NDArray[Any]
    gap_ratio: float = (
        0.4  # ratio of certified to estimated gap: a visit closes much of the gap that it meets
    )
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
        self.n_restricted = 0 if full else _MOST_RESTRICTED if certified else self.n_restricted + 1
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
        return bool(self.n_restricted >= _MOST_RESTRICTED or self.gap <= enough)

    def decisions(self) -> dict[str, float]:
        """Return the values that decide about the next round, for a checkpoint."""
        names = ("gap_ratio", "n_rounds", "n_restricted", "full_gap", "gap", "objective")
        return {name: getattr(self, name) for name in names}


class RoundPieces:
    """The pieces of a fit in a checkpoint; without a checkpoint nothing is saved.

    Parameters
    ----------
    checkpoint : Checkpoint or None
    key : str
        Prefix of the names of the pieces.
    """

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
            known = [visit for visit in visits if visit is not None]
            if len(known) == len(visits):
                state.multipliers[: len(known)] = [visit.multipliers for visit in known]
                state.candidates[: len(known)] = [visit.candidates for visit in known]
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
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        resumed = f"resumes at round {n_rounds + 1}" if n_rounds else "starts again"
        warn_caller(
            f"the checkpoint in {self.checkpoint.path} is incomplete: cannot read {lost[0]!r}{more}. The fit "
            f"{resumed}."
        )
