"""The `Engine` protocol: where a solver runs its work.

Solvers take an `Engine` and never ask which one it is. `arbora.engine` has two implementations, `ThreadEngine` and
`RayEngine`; `SerialEngine` runs everything in the calling thread. Three promises hold for all of them: results come
in the order of the items, statistics are added in that order, and of several failing items the first one is reported.
So a result never depends on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from arbora.core.shards import LocalShards, Make, Shards

Item = TypeVar("Item")
Result = TypeVar("Result")


class SupportsUpdate(Protocol):
    """Anything that can be told that one more item is done: ``arbora.core.progress.Progress``, a tqdm bar."""

    def update(self, n: int = 1) -> object:
        """Count ``n`` more items as done."""


def add(left: Any, right: Any) -> Any:
    """Add two statistics: numbers, arrays, or (named) tuples and dicts of them, field by field.

    Parameters
    ----------
    left, right : number, array, tuple, dict or None
        Two statistics of the same form; None adds to None.

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
            raise ValueError(
                f"statistics with other keys cannot be added: {sorted(left)} and {sorted(right)}"
            )
        return {key: add(value, right[key]) for key, value in left.items()}
    return left + right


class Engine(Protocol):
    """What solvers need of an engine."""

    @property
    def shares_memory(self) -> bool:
        """Whether shards live in this process, so that they can share arrays with it."""

    @property
    def n_workers(self) -> int:
        """Number of items that `map` processes at the same time."""

    @property
    def n_shards(self) -> int:
        """Number of shards into which a model is best cut."""

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

    def shards(self, make: Make, common: Any, pieces: Sequence[Any]) -> Shards:
        """Make one resident shard for each piece (see `arbora.core.shards`)."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array of zeros for the weights of a model, in memory or in a mapped file."""

    def settle(self, weights: NDArray[Any]) -> None:
        """Release the memory of the pages of `weights` that were written, if it is a mapped file."""

    def discard(self, weights: NDArray[Any]) -> None:
        """Unlink the backing file of `weights`, if it has one. The array stays valid until it is freed."""


class SerialEngine:
    """An engine without threads: everything runs in the calling thread.

    Examples
    --------
    >>> from arbora.core.engine import SerialEngine
    >>> SerialEngine().map(abs, [-3, 2])
    [3, 2]
    """

    shares_memory = True
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
        results = self.imap(function, items, progress)
        try:
            total = next(results)
        except StopIteration:
            raise ValueError("there is no item to sum over") from None
        for result in results:
            total = add(total, result)
        return total

    def shards(self, make: Make, common: Any, pieces: Sequence[Any]) -> Shards:
        """Make one resident shard for each piece, in this process."""
        return LocalShards(make, common, pieces, self)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array of zeros."""
        return np.zeros(shape, dtype)

    def settle(self, weights: NDArray[Any]) -> None:
        """Do nothing: the array is in memory."""

    def discard(self, weights: NDArray[Any]) -> None:
        """Do nothing: the array is in memory."""
