"""The `Engine` protocol: where a solver runs its work.

Solvers take an `Engine` and never ask which one it is. `arbora.engine` has two implementations, `ThreadEngine` and
`RayEngine`; `SerialEngine` runs everything in the calling thread. All engines keep three guarantees, so that a result
never depends on the number of workers: results come in the order of the items, statistics are added in that order,
and if several items fail, the exception of the first one is raised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from arbora.arrays import Matrix

Item = TypeVar("Item")
Result = TypeVar("Result")


class SupportsUpdate(Protocol):
    """A counter of finished items: `arbora.core.monitor.Progress`, or a tqdm bar."""

    def update(self, n: int = 1) -> object:
        """Count ``n`` more items as done."""


def add(left: Any, right: Any) -> Any:
    """Add two statistics of the same form: numbers, arrays, or (named) tuples and dicts of them, field by field.

    None plus None is None.
    """
    if left is None and right is None:
        return None
    if isinstance(left, tuple):
        fields = [add(a, b) for a, b in zip(left, right, strict=True)]
        return type(left)(*fields) if hasattr(left, "_fields") else tuple(fields)
    if isinstance(left, dict):
        if left.keys() != right.keys():
            raise ValueError(f"cannot add statistics with different keys: {sorted(left)} and {sorted(right)}")
        return {key: add(value, right[key]) for key, value in left.items()}
    return left + right


def add_in_order(results: Iterator[Any]) -> Any:
    """Add up statistics in their order, by `add`; there must be at least one."""
    try:
        total = next(results)
    except StopIteration:
        raise ValueError("there is no item to sum over") from None
    for result in results:
        total = add(total, result)
    return total


class Engine(Protocol):
    """What solvers need of an engine."""

    @property
    def shares_memory(self) -> bool:
        """Whether shards live in this process, so that they can share arrays with it."""

    @property
    def keeps_weights_in_files(self) -> bool:
        """Whether `zeros` returns arrays that are mapped files and need not fit into memory."""

    @property
    def n_workers(self) -> int:
        """Number of items that `map` processes at the same time."""

    def with_jobs(self, n_jobs: int | None) -> Self:
        """Return an engine with the same settings but another number of threads in this process."""

    @property
    def n_shards(self) -> int:
        """Number of shards to cut a model into."""

    def bytes_here(self, n_bytes: int) -> int:
        """Bytes of this process that shards of `n_bytes` take: all of them, or none if they live on workers."""

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None = None,
    ) -> list[Result]:
        """Apply ``function`` to every item; return the results in the order of the items."""

    def imap(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None = None,
        look_ahead: int | None = None,
    ) -> Iterator[Result]:
        """Apply ``function`` lazily; yield the results in the order of the items."""

    def sum(
        self, function: Callable[[Item], Any], items: Iterable[Item], progress: SupportsUpdate | None = None
    ) -> Any:
        """Add up ``function(item)`` in the order of the items, by `add`."""

    def shards(self, make: Make, common: Any, parts: Sequence[Any]) -> Shards:
        """Make one resident shard for each element of ``parts`` (see `arbora.core.engine`)."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Matrix:
        """Return an array of zeros for the weights of a model, in memory or in a mapped file."""

    def settle(self, weights: Matrix) -> None:
        """Release the memory of the pages of ``weights`` that were written, if it is a mapped file."""

    def discard(self, weights: Matrix) -> None:
        """Unlink the backing file of ``weights``, if it has one. The array stays valid until it is freed."""

    def __enter__(self) -> Self:
        """Keep the workers alive between calls until the block ends."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the workers."""


_WORDS = {  # what a method may need of a part, in the words of an error
    "shares_memory": "data and model in this process",
    "is_smooth": "a differentiable loss",
    "finds_modes": "most probable weights (inference='map')",
    "has_independent_classes": "independent classes (likelihood='logistic')",
    "has_node_precisions": "one precision for all weights of a node (covariance 'M1' or 'M3')",
}


def check_needs(method: str, part: Any, needs: Iterable[str], advice: str) -> None:
    """Refuse a part (an engine, a loss) that lacks what a method needs.

    Parameters
    ----------
    method : str
        The method, as the user wrote it: ``"batch_size=10"``, ``"solver='dual'"``.
    needs : iterable of str
        Attributes of the part that must be true.
    advice : str
        What to do instead, as a clause: ``"use threads"``.

    Examples
    --------
    >>> from arbora.engine import RayEngine
    >>> check_needs("batch_size=10", SerialEngine(), ["shares_memory"], "use threads")
    >>> check_needs("batch_size=10", RayEngine(n_shards=2), ["shares_memory"], "use threads")
    Traceback (most recent call last):
    ...
    ValueError: batch_size=10 needs data and model in this process, which RayEngine(n_shards=2) lacks: use threads.
    """
    lacking = missing(part, needs)
    if lacking:
        raise ValueError(f"{method} needs {' and '.join(lacking)}, which {part!r} lacks: {advice}.")


def missing(part: Any, needs: Iterable[str]) -> list[str]:
    """Return what a part lacks, in words; nothing if it meets all needs."""
    return [_WORDS.get(name, name) for name in needs if not getattr(part, name, False)]


class LocalEngine:
    """What the engines of this process share: shards and weights are in its memory."""

    shares_memory = True
    keeps_weights_in_files = False
    n_shards = 1

    def bytes_here(self, n_bytes: int) -> int:
        """Bytes of this process that shards of `n_bytes` take: all of them."""
        return n_bytes

    def shards(self, make: Make, common: Any, parts: Sequence[Any]) -> Shards:
        """Make one resident shard for each element of ``parts``, in this process."""
        return LocalShards(make, common, parts, self)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Matrix:
        """Return an array of zeros for the weights of a model."""
        return np.zeros(shape, dtype)

    def settle(self, weights: Matrix) -> None:
        """Do nothing: the array is in memory."""

    def discard(self, weights: Matrix) -> None:
        """Do nothing: the array is in memory."""


class SerialEngine(LocalEngine):
    """An engine without threads: everything runs in the calling thread."""

    n_workers = 1

    def with_jobs(self, n_jobs: int | None) -> Self:
        """Return this engine: it has no threads."""
        return self

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None = None,
    ) -> list[Result]:
        """Apply ``function`` to every item; return the results in the order of the items."""
        return list(self.imap(function, items, progress))

    def imap(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None = None,
        look_ahead: int | None = None,
    ) -> Iterator[Result]:
        """Apply ``function`` lazily; yield the results in the order of the items."""
        for item in items:
            yield function(item)
            if progress is not None:
                progress.update(1)

    def sum(
        self, function: Callable[[Item], Any], items: Iterable[Item], progress: SupportsUpdate | None = None
    ) -> Any:
        """Add up ``function(item)`` in the order of the items, by `add`."""
        return add_in_order(self.imap(function, items, progress))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


# --- Resident shards: parts of a model that stay on their worker and take one step after the other ----------
#
# Some models are too large or too slow for one process. Their state (weights, multipliers) is cut into *shards*. A
# shard is built once, from common data that all shards read and none writes, and from data of its own. It then takes
# numbered steps, all shards at the same time. Only the arguments and results of steps travel, never the state.
#
# A shard is an object of any class; its methods are its steps. An engine that can lose a worker needs two more
# methods: `state()` returns what must be kept (anything that pickle can hold), and `restore(state)` sets it. A step
# must depend only on its arguments and the state, and must not change its arguments. Then a shard that died can be
# built again, restored to its last state and told the steps since, with the same result to the last bit. A shard
# whose steps depend on their arguments alone sets `keeps_state = False`: no steps are kept for it.
#
# `LocalShards` keeps the shards in this process; `arbora.engine.actors` keeps them on a cluster. A solver is written
# once, for both.


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
        """Call the method `name` of every shard; return the results in the order of the shards.

        All shards get the arguments, and each one those of its sequence in `each`.
        """

    @abstractmethod
    def ask(self, shard: int, name: str, *arguments: Any) -> Any:
        """Call a method of one shard that does not change its state."""

    @abstractmethod
    def close(self) -> None:
        """Free the shards."""

    def only(self) -> Any:
        """Return the shard itself if it is the only one and lives in this process, so that its arrays can be used."""
        return None

    def __enter__(self) -> Shards:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class LocalShards(Shards):
    """Shards in this process. They take their steps one after the other; threads work inside a shard.

    `make` builds a shard from the common data, its own data (one of `parts`), and the engine that it works on.

    >>> class Counter:
    ...     def __init__(self, common, part, engine):
    ...         self.total = common + part
    ...     def add(self, n):
    ...         self.total += n
    ...         return self.total
    >>> with LocalShards(Counter, 100, [1, 2], engine=None) as shards:
    ...     shards.step("add", 10), shards.step("add", each=[[5], [6]])
    ([111, 112], [116, 118])
    """

    def __init__(self, make: Make, common: Any, parts: Sequence[Any], engine: object) -> None:
        super().__init__(len(parts))
        self.shards = [make(common, data, engine) for data in parts]

    def step(self, name: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """Let every shard take one step."""
        of_shards = each if each is not None else [()] * len(self.shards)
        pairs = zip(self.shards, of_shards, strict=True)
        return [getattr(shard, name)(*arguments, *of_shard) for shard, of_shard in pairs]

    def ask(self, shard: int, name: str, *arguments: Any) -> Any:
        """Call a method of one shard that does not change its state."""
        return getattr(self.shards[shard], name)(*arguments)

    def only(self) -> Any:
        """Return the shard itself if it is the only one; None if there are several."""
        return self.shards[0] if len(self.shards) == 1 else None

    def close(self) -> None:
        """Free the shards."""
        self.shards = []
