"""The engine of threads: ordered map, lazy map and ordered sum on one machine.

Numba kernels that release the GIL run in parallel threads without copying data, so one machine needs no processes.
The guarantees of `arbora.core.engine` hold for every ``n_jobs``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from joblib import effective_n_jobs

from arbora.core.engine import LocalEngine, SupportsUpdate, add_in_order

Item = TypeVar("Item")
Result = TypeVar("Result")

_thread = threading.local()


def _mark_worker() -> None:
    _thread.is_worker = True


def _new_pool(n_workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_workers, thread_name_prefix="arbora", initializer=_mark_worker)


def _in_worker() -> bool:
    return getattr(_thread, "is_worker", False)


class _Run(Generic[Item, Result]):
    """One call of map: applies the function, counts finished items and stops after a failure.

    Items after a failed one are skipped and items before it still run, so that the exception is always the one that a
    plain loop would raise.
    """

    def __init__(self, function: Callable[[Item], Result], progress: SupportsUpdate | None) -> None:
        self.function = function
        self.progress = progress
        self.lock = threading.Lock()
        self.limit = float("inf")

    def stop(self, index: float = -1) -> None:
        with self.lock:
            self.limit = min(self.limit, index)

    def __call__(self, index: int, item: Item) -> Result:
        if index > self.limit:
            return cast(Result, None)  # never used: the caller has left, or stops at the failed item
        try:
            result = self.function(item)
        except BaseException as error:
            self.stop(index)
            error.add_note(f"raised by item {index} of a ThreadEngine call (items are counted from 0)")
            raise
        if self.progress is not None:
            with self.lock:
                self.progress.update(1)
        return result


def _threaded(
    run: _Run[Item, Result], items: Iterable[Item], pool: ThreadPoolExecutor, window: int | None
) -> Generator[Result, None, None]:
    """Yield the results in order, with at most ``window`` items running or waiting to be consumed."""
    pending: deque[Future[Result]] = deque()
    wait_for_running = True
    try:
        for index, item in enumerate(items):
            # Each item gets a copy of the context, so that np.errstate and the like hold in the threads too.
            pending.append(pool.submit(copy_context().run, run, index, item))
            if window is not None and len(pending) >= window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except (KeyboardInterrupt, SystemExit):
        wait_for_running = False  # the user wants to leave now; running items end on their own
        raise
    finally:
        run.stop()
        running = [future for future in pending if not future.cancel()]
        if wait_for_running:
            wait(running)  # after an error no thread may still write into arrays of the caller


def _closing(
    results: Generator[Result, None, None], pool: ThreadPoolExecutor
) -> Generator[Result, None, None]:
    """Shut the pool down when the results are consumed or dropped."""
    try:
        yield from results
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class ThreadEngine(LocalEngine):
    """Engine that applies functions to items on threads, in order.

    Parameters
    ----------
    n_jobs : int, optional
        Number of threads as in joblib: None means 1 unless in a ``joblib.parallel_config`` context, -1 means all
        cores. With 1, everything runs in the calling thread.

    Notes
    -----
    As a context manager, the engine keeps its threads between calls; otherwise each call starts its own. A call made
    inside a worker runs inline, so nested calls can neither deadlock nor oversubscribe the machine. Engines can be
    pickled and copied; threads are not part of them.

    Functions must release the GIL to gain from threads (numba ``nogil=True``, NumPy, SciPy) and must not be numba
    ``parallel=True`` kernels.

    Examples
    --------
    >>> from arbora.engine import ThreadEngine
    >>> ThreadEngine(n_jobs=2).map(abs, [-3, 2, -1])
    [3, 2, 1]
    >>> with ThreadEngine(n_jobs=2) as engine:
    ...     engine.sum(float, ["0.5", "0.25"])
    0.75
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = n_jobs
        self._pool: ThreadPoolExecutor | None = None
        self._depth = 0

    def with_jobs(self, n_jobs: int | None) -> Self:
        """Return an engine with another number of threads."""
        return type(self)(n_jobs)

    @property
    def n_workers(self) -> int:
        """Number of threads that a call would use now.

        Examples
        --------
        >>> import joblib
        >>> from arbora.engine import ThreadEngine
        >>> with joblib.parallel_config("threading", n_jobs=3):
        ...     ThreadEngine().n_workers
        3
        """
        return 1 if _in_worker() else int(effective_n_jobs(self.n_jobs))

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None = None,
    ) -> list[Result]:
        """Apply ``function`` to every item.

        Parameters
        ----------
        function : callable
            Called with one item.
        items : iterable
            Items.
        progress : object with ``update(n)``, optional
            Updated after every item, under a lock.

        Returns
        -------
        list
            Results in the order of the items. The first exception in that order cancels the remaining items and is
            raised with a note of its index.

        Examples
        --------
        >>> from arbora.engine import ThreadEngine
        >>> ThreadEngine(n_jobs=-1).map(len, ["a", "bc"])
        [1, 2]
        """
        return list(self._run(function, items, progress, look_ahead=None))

    def imap(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None = None,
        look_ahead: int | None = None,
    ) -> Iterator[Result]:
        """Apply ``function`` lazily: results in order, items drawn only a little ahead.

        Parameters
        ----------
        function : callable
            Called with one item.
        items : iterable
            Possibly endless; memory is bounded by ``look_ahead`` items and results.
        progress : object with ``update(n)``, optional
            Updated after every item, under a lock.
        look_ahead : int, optional
            Most items that are running or done but not yet consumed. Default: twice the number of threads.

        Returns
        -------
        iterator
            Dropping it early cancels the items that have not started.

        Examples
        --------
        >>> from itertools import count, islice
        >>> from arbora.engine import ThreadEngine
        >>> list(islice(ThreadEngine(n_jobs=2).imap(lambda k: k * k, count()), 4))
        [0, 1, 4, 9]
        """
        if look_ahead is None:
            look_ahead = 2 * self.n_workers
        elif look_ahead < 1:
            raise ValueError(f"look_ahead must be at least 1, got {look_ahead}")
        return self._run(function, items, progress, look_ahead)

    def sum(
        self, function: Callable[[Item], Any], items: Iterable[Item], progress: SupportsUpdate | None = None
    ) -> Any:
        """Add up ``function(item)`` in the order of the items, by `add`.

        Parameters
        ----------
        function : callable
            Returns the statistic of one item: a number, an array, or a (named) tuple or dict of them.
        items : iterable
            At least one item; use chunks of `arbora.core.chunks.split`, which do not depend on ``n_jobs``.
        progress : object with ``update(n)``, optional
            Updated after every item, under a lock.

        Returns
        -------
        object
            The sum, the same to the last bit for any ``n_jobs``.

        Examples
        --------
        >>> import numpy as np
        >>> from arbora.engine import ThreadEngine
        >>> from arbora.core.chunks import split
        >>> x = np.arange(10.0)
        >>> n, total = ThreadEngine(n_jobs=2).sum(lambda rows: (len(x[rows]), x[rows].sum()), split(10, 3))
        >>> n, float(total)
        (10, 45.0)
        """
        return add_in_order(self.imap(function, items, progress))

    def _run(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None,
        look_ahead: int | None,
    ) -> Iterator[Result]:
        run = _Run(function, progress)
        n_workers = self.n_workers
        if n_workers == 1:
            return (run(index, item) for index, item in enumerate(items))
        if self._pool is not None:
            return _threaded(run, items, self._pool, look_ahead)
        pool = _new_pool(n_workers)
        return _closing(_threaded(run, items, pool, look_ahead), pool)

    def __enter__(self) -> Self:
        if self._depth == 0 and self.n_workers > 1:
            self._pool = _new_pool(self.n_workers)
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self._pool is not None:
            pool, self._pool = self._pool, None
            leave_now = isinstance(error, KeyboardInterrupt | SystemExit)
            pool.shutdown(wait=not leave_now, cancel_futures=True)

    def to_state(self) -> dict[str, Any]:
        """Return the settings, which `arbora.io` saves."""
        return {"n_jobs": self.n_jobs}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ThreadEngine:
        """Make an engine from its settings."""
        return cls(**state)

    def __getstate__(self) -> dict[str, Any]:
        return self.to_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"ThreadEngine(n_jobs={self.n_jobs})"
