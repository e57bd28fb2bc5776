"""The `Engine` protocol: where a solver runs its work.

Solvers take an `Engine` and never ask which one it is. `arbora.engine` has two implementations, `ThreadEngine` and
`RayEngine`; `SerialEngine` runs everything in the calling thread. All engines keep three guarantees, so that a result
never depends on the number of workers: results come in the order of the items, statistics are added in that order,
and if several items fail, the exception of the first one is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from arbora.core.shards import LocalShards, Make, Shards

Item = TypeVar("Item")
Result = TypeVar("Result")


class SupportsUpdate(Protocol):
    """A counter of finished items: `arbora.core.monitor.Progress`, or a tqdm bar."""

    def update(self, n: int = 1) -> object:
        """Count ``n`` more items as done."""


def add(left: Any, right: Any) -> Any:
    """Add two statistics: numbers, arrays, or (named) tuples and dicts of them, field by field.

    Parameters
    ----------
    left, right : number, array, tuple, dict or None
        Two statistics of the same form; None plus None is None.

    Returns
    -------
    object
        A new statistic of that form.

    Examples
    --------
    >>> from arbora.core.engine import add
    >>> add((1, {"n": 2.0}), (10, {"n": 3.0}))
    (11, {'n': 5.0})
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

    @property
    def n_shards(self) -> int:
        """Number of shards to cut a model into."""

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

    def shards(self, make: Make, common: Any, own: Sequence[Any]) -> Shards:
        """Make one resident shard for each element of ``own`` (see `arbora.core.shards`)."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array of zeros for the weights of a model, in memory or in a mapped file."""

    def settle(self, weights: NDArray[Any]) -> None:
        """Release the memory of the pages of ``weights`` that were written, if it is a mapped file."""

    def discard(self, weights: NDArray[Any]) -> None:
        """Unlink the backing file of ``weights``, if it has one. The array stays valid until it is freed."""

    def __enter__(self) -> Self:
        """Keep the workers alive between calls until the block ends."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the workers."""


def require_shared_memory(engine: Engine, option: str, advice: str) -> None:
    """Refuse an option that needs the data and the whole model in this process.

    Parameters
    ----------
    engine : Engine
    option : str
        The option, as the user wrote it: ``"batch_size=10"``.
    advice : str
        What to do instead, as a clause: ``"use engine=None"``.

    Examples
    --------
    >>> from arbora.engine import RayEngine
    >>> require_shared_memory(SerialEngine(), "batch_size=10", "use engine=None")
    >>> require_shared_memory(RayEngine(n_shards=2), "batch_size=10", "use engine=None")
    Traceback (most recent call last):
    ...
    ValueError: batch_size=10 needs data and model in this process, but RayEngine(n_shards=2) keeps them on its
    workers: use engine=None.
    """
    if not engine.shares_memory:
        raise ValueError(
            f"{option} needs data and model in this process, but {engine!r} keeps them on its workers: {advice}."
        )


class SerialEngine:
    """An engine without threads: everything runs in the calling thread.

    Examples
    --------
    >>> from arbora.core.engine import SerialEngine
    >>> SerialEngine().map(abs, [-3, 2])
    [3, 2]
    """

    shares_memory = True
    keeps_weights_in_files = False
    n_workers = 1
    n_shards = 1

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

    def shards(self, make: Make, common: Any, own: Sequence[Any]) -> Shards:
        """Make one resident shard for each element of ``own``, in this process."""
        return LocalShards(make, common, own, self)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array of zeros."""
        return np.zeros(shape, dtype)

    def settle(self, weights: NDArray[Any]) -> None:
        """Do nothing: the array is in memory."""

    def discard(self, weights: NDArray[Any]) -> None:
        """Do nothing: the array is in memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None
