"""Resident shards: parts of a model that stay where they are, and are asked to take one step after the other.

Some models are too large, or too slow, for one place. Their state (weights, multipliers) is cut into *shards*. A
shard is made once, from data that all shards read and none writes, and from its *piece*; it then takes numbered
steps, all shards side by side. What travels are the arguments and the results of steps, never the state.

A shard is an object of any class whose methods are its steps. For an engine that can lose a worker it has two methods
more: `state()`, what is to be kept of it (anything that pickle can hold), and `restore(state)`. A step must depend on
nothing but its arguments and the state, and must leave its arguments alone; then a shard that died is made again,
given its last state, told the steps since, and nobody can tell the difference. One whose steps depend on nothing but
their arguments says so (`keeps_state = False`): no step is kept for it to be taken again.

`LocalShards` keeps the shards in this process; `arbora.engine.actors` has those of a cluster. A solver is written
once, for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

Make = Callable[[Any, Any, Any], Any]  # (common data, piece, engine of the shard) -> shard


class EngineError(RuntimeError):
    """The cluster cannot do what it is asked; the message says what to do."""


class Shards(ABC):
    """Shards of one model, in order.

    Attributes
    ----------
    n_shards : int
    asked_between : bool
        Whether shards are asked between steps, not after the last one only. A run that can be taken up keeps these
        answers: workers that are further cannot give them again.
    """

    def __init__(self, n_shards: int) -> None:
        self.n_shards, self.asked_between = n_shards, False

    @abstractmethod
    def step(self, name: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """Let every shard take one step.

        Parameters
        ----------
        name : str
            Of a method of the shards.
        *arguments
            The same for all shards.
        each : sequence of sequences, optional
            Further arguments, for each shard its own.

        Returns
        -------
        list
            What the shards answered, in their order.
        """

    @abstractmethod
    def ask(self, shard: int, name: str, *arguments: Any) -> Any:
        """Ask one shard for something, by a method that changes nothing."""

    @abstractmethod
    def close(self) -> None:
        """Let the shards go."""

    def __enter__(self) -> Shards:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class LocalShards(Shards):
    """Shards in this process. They take their steps one after the other: threads work inside of a shard.

    Parameters
    ----------
    make : callable
        Makes a shard from the common data, its piece, and the engine on which it is to work.
    common : object
    pieces : sequence
        One for each shard.
    engine : ThreadEngine

    Examples
    --------
    >>> class Counter:
    ...     def __init__(self, common, piece, engine):
    ...         self.total = common + piece
    ...     def add(self, n):
    ...         self.total += n
    ...         return self.total
    >>> with LocalShards(Counter, 100, [1, 2], engine=None) as shards:
    ...     shards.step("add", 10), shards.step("add", each=[[5], [6]])
    ([111, 112], [116, 118])
    """

    def __init__(self, make: Make, common: Any, pieces: Sequence[Any], engine: Any) -> None:
        super().__init__(len(pieces))
        self.shards = [make(common, piece, engine) for piece in pieces]

    def step(self, name: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """Let every shard take one step."""
        own = each if each is not None else [()] * len(self.shards)
        return [getattr(shard, name)(*arguments, *more) for shard, more in zip(self.shards, own, strict=True)]

    def ask(self, shard: int, name: str, *arguments: Any) -> Any:
        """Ask one shard for something."""
        return getattr(self.shards[shard], name)(*arguments)

    def close(self) -> None:
        """Let the shards go."""
        self.shards = []
