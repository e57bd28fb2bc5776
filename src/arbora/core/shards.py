"""Resident shards: parts of a model that stay on their worker and take one step after the other.

Some models are too large or too slow for one process. Their state (weights, multipliers) is cut into *shards*. A
shard is built once, from common data that all shards read and none writes, and from data of its own. It then takes
numbered steps, all shards at the same time. Only the arguments and results of steps travel, never the state.

A shard is an object of any class; its methods are its steps. An engine that can lose a worker needs two more methods:
`state()` returns what must be kept (anything that pickle can hold), and `restore(state)` sets it. A step must depend
only on its arguments and the state, and must not change its arguments. Then a shard that died can be built again,
restored to its last state and told the steps since, with the same result to the last bit. A shard whose steps depend
on their arguments alone sets `keeps_state = False`: no steps are kept for it.

`LocalShards` keeps the shards in this process; `arbora.engine.actors` keeps them on a cluster. A solver is written
once, for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

Make = Callable[[Any, Any, Any], Any]  # (common data, own data, engine of the shard) -> shard


class EngineError(RuntimeError):
    """The cluster cannot do what was requested; the message says what to do."""


class Shards(ABC):
    """Shards of one model, in order.

    Attributes
    ----------
    n_shards : int
    asked_between : bool
        Whether `ask` is called between steps, not only after the last one. A resumable run records these answers:
        workers that are ahead cannot give them again.
    """

    def __init__(self, n_shards: int) -> None:
        self.n_shards, self.asked_between = n_shards, False

    @abstractmethod
    def step(self, name: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """Let every shard take one step.

        Parameters
        ----------
        name : str
            Method of the shards to call.
        *arguments
            Arguments that all shards get.
        each : sequence of sequences, optional
            Further arguments, one sequence for each shard.

        Returns
        -------
        list
            Results of the shards, in their order.
        """

    @abstractmethod
    def ask(self, shard: int, name: str, *arguments: Any) -> Any:
        """Call a method of one shard that does not change its state."""

    @abstractmethod
    def close(self) -> None:
        """Free the shards."""

    def __enter__(self) -> Shards:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class LocalShards(Shards):
    """Shards in this process. They take their steps one after the other; threads work inside a shard.

    Parameters
    ----------
    make : callable
        Builds a shard from the common data, its own data, and the engine that it works on.
    common : object
    own : sequence
        Data of each shard.
    engine : Engine

    Examples
    --------
    >>> class Counter:
    ...     def __init__(self, common, own, engine):
    ...         self.total = common + own
    ...     def add(self, n):
    ...         self.total += n
    ...         return self.total
    >>> with LocalShards(Counter, 100, [1, 2], engine=None) as shards:
    ...     shards.step("add", 10), shards.step("add", each=[[5], [6]])
    ([111, 112], [116, 118])
    """

    # The engine is not typed: `arbora.core.engine` imports this module.
    def __init__(self, make: Make, common: Any, own: Sequence[Any], engine: object) -> None:
        super().__init__(len(own))
        self.shards = [make(common, data, engine) for data in own]

    def step(self, name: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """Let every shard take one step."""
        further = each if each is not None else [()] * len(self.shards)
        return [
            getattr(shard, name)(*arguments, *more) for shard, more in zip(self.shards, further, strict=True)
        ]

    def ask(self, shard: int, name: str, *arguments: Any) -> Any:
        """Call a method of one shard that does not change its state."""
        return getattr(self.shards[shard], name)(*arguments)

    def close(self) -> None:
        """Free the shards."""
        self.shards = []
