"""Connections of the server: small packets are sent at once, and slow clients are disconnected.

uvicorn sends the head and the body of an answer separately. Without TCP_NODELAY the second packet waits for the
acknowledgement of the first, about 40 ms. uvicorn also waits forever for a client that sends nothing, or one byte a
minute; the watch of a connection closes it when a limit is exceeded.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from arbora.explore.limits import Limits
from arbora.explore.request_log import log

_LOOKS = 8  # of the watch within the shortest limit


def listen(host: str, port: int) -> socket.socket:
    """Make a listening socket; ValueError if the address cannot be used.

    Examples
    --------
    >>> with listen("127.0.0.1", 0) as listening:
    ...     listening.getsockname()[0]
    '127.0.0.1'
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot listen on {host}, port {port}: {why}; give another port or host") from None
    return listening


class WatchedProtocol(H11Protocol):
    """HTTP/1.1 with time limits; `limits` is set by `with_limits`."""

    limits = Limits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch a connection."""
        super().connection_made(transport)
        opened = transport.get_extra_info("socket")
        if opened is not None:
            with suppress(OSError):
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._began = self._heard = self._written = self.loop.time()
        shortest = min(self.limits.header_seconds, self.limits.idle_seconds, self.limits.request_seconds)
        self._pause = shortest / _LOOKS
        self._look_task = self.loop.call_later(self._pause, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch."""
        self._look_task.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data of the client."""
        self._heard = self.loop.time()
        if self.timeout_keep_alive_task is not None:  # the first bytes of a further request
            self._began = self._heard
        super().data_received(data)

    def pause_writing(self) -> None:
        """Remember since when the client does not read."""
        self._written = self.loop.time()
        super().pause_writing()

    def _exceeded(self) -> str | None:
        """Name of the limit that the client has exceeded."""
        now, cycle, limits = self.loop.time(), self.cycle, self.limits
        if cycle is None or cycle.response_complete:
            if self.timeout_keep_alive_task is None and now - self._began > limits.header_seconds:
                return "header_seconds"
        elif cycle.more_body:
            if now - self._heard > limits.idle_seconds:
                return "idle_seconds"
            if now - self._began > limits.request_seconds:
                return "request_seconds"
        elif self.flow.write_paused and now - self._written > limits.idle_seconds:
            return "idle_seconds"
        return None

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        limit = self._exceeded()
        if limit is None:
            self._look_task = self.loop.call_later(self._pause, self._look)
            return
        log("timed out", client=self.client[0] if self.client else None, limit=limit)
        self.transport.abort()


def with_limits(limits: Limits) -> Any:
    """Return the class of connections with these limits."""
    return type("LimitedProtocol", (WatchedProtocol,), {"limits": limits})
