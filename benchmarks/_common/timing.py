"""Wall-clock timing of functions."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one call, after garbage collection."""
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def best_of(turns: int, contestants: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of the best turn of each contestant; they alternate, and a first turn is not counted."""
    seconds = dict.fromkeys(contestants, float("inf"))
    for turn in range(turns + 1):
        for name, work in contestants.items():
            start = time.perf_counter()
            work()
            if turn:
                seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds
