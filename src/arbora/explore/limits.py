"""Limits of the server: sizes, numbers, rates and times."""

from __future__ import annotations

import time
from typing import NamedTuple

_MOST_CLIENTS = 10_000  # addresses whose rates are remembered


class Limits(NamedTuple):
    """Limits of the server. A request that exceeds one is refused with a message that names it.

    Attributes
    ----------
    document : int
        Largest body of a request for one document, in bytes.
    batch : int
        Largest body of a batch, in bytes.
    lines : int
        Most lines of a batch.
    batches : int
        Most batches that are answered at the same time.
    waiting : int
        Most documents that wait for their answer.
    connections : int
        Most open connections.
    rate : float
        Most requests per second of one address, on average; twice as many at once.
    header_seconds : float
        Longest time until the head of a request is complete.
    idle_seconds : float
        Longest pause of a client within a request, or while it receives an answer.
    request_seconds : float
        Longest time until a request is complete.
    """

    document: int = 1_000_000
    batch: int = 50_000_000
    lines: int = 100_000
    batches: int = 4
    waiting: int = 4096
    connections: int = 1000
    rate: float = 1000.0
    header_seconds: float = 10.0
    idle_seconds: float = 30.0
    request_seconds: float = 300.0


class Rates:
    """Requests of each address: a token bucket that holds two seconds of the rate.

    Examples
    --------
    >>> rates = Rates(1.0)
    >>> [rates.allow("127.0.0.1", now=0.0) for _ in range(3)], rates.allow("127.0.0.1", now=1.0)
    ([True, True, False], True)
    """

    def __init__(self, rate: float) -> None:
        self.rate, self._most = rate, max(1.0, 2 * rate)
        self._left: dict[str, tuple[float, float]] = {}  # requests left, and when

    def allow(self, client: str, now: float | None = None) -> bool:
        """Count a request of an address, and return whether it may be answered."""
        now = time.monotonic() if now is None else now
        left, then = self._left.pop(client, (self._most, now))
        left = min(self._most, left + (now - then) * self.rate)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)  # the last used ones are last
        if len(self._left) > _MOST_CLIENTS:
            del self._left[next(iter(self._left))]
        return allowed
