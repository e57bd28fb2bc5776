"""How much two threads could gain at most: from the processor times of the tasks of a fit with one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from arbora.engine import ThreadEngine


def balance_of_two(fit: Callable[[], Any]) -> float:
    """Run a fit with one thread; return its time over that of two threads without any contention.

    The tasks of each parallel map are dealt in their order to the thread that is free first; all else is serial.
    """
    original, inside = ThreadEngine.map, 0
    serial = shared = 0.0

    def timed_map(self: Any, task: Any, items: Any, *args: Any, **options: Any) -> Any:
        nonlocal inside, serial, shared
        if inside:  # a map inside a task runs in its thread
            return original(self, task, items, *args, **options)
        spent: list[float] = []

        def timed(item: Any) -> Any:
            nonlocal inside
            start, inside = time.process_time(), inside + 1
            try:
                return task(item)
            finally:
                inside -= 1
                spent.append(time.process_time() - start)

        result = original(self, timed, items, *args, **options)
        busy = [0.0, 0.0]
        for seconds in spent:
            busy[busy.index(min(busy))] += seconds
        serial, shared = serial + sum(spent), shared + max(busy)
        return result

    with mock.patch.object(ThreadEngine, "map", timed_map):
        start = time.process_time()
        fit()
        total = time.process_time() - start
    return total / (total - serial + shared)
