"""Access control of the server: tokens, hosts, origins, rates, and security headers of all responses."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import re
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple

from h11 import LocalProtocolError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

# --- Limits of the server: sizes, numbers, rates and times --------------------------------------------------


_MAX_CLIENTS = 10_000  # addresses whose rates are remembered


class Limits(NamedTuple):
    """Limits of the server. A request that exceeds one is refused with a message that names it."""

    document: int = 1_000_000  # bytes of the body of a request for one document
    batch: int = 50_000_000  # bytes of the body of a batch
    lines: int = 100_000  # lines of a batch
    batches: int = 4  # batches that are answered at the same time
    waiting: int = 4096  # documents that wait for their answer
    connections: int = 1000  # open connections
    rate: float = 1000.0  # requests per second of one address, on average; twice as many at once
    header_seconds: float = 10.0  # until the head of a request is complete
    idle_seconds: float = 30.0  # pause of a client within a request, or while it receives an answer
    request_seconds: float = 300.0  # until a request is complete


class Rates:
    """Requests of each address: a token bucket that holds two seconds of the rate.

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
        if len(self._left) > _MAX_CLIENTS:
            del self._left[next(iter(self._left))]
        return allowed


# --- The log of the server: one JSON object per line --------------------------------------------------------
#
# Every line has "time", "level" and "event". Events: ``request`` (only with ``--log``: client, method, path, status,
# milliseconds), ``disconnected`` (a client went away before its answer), ``timed out``, ``refused`` (a limit),
# ``server`` (messages of uvicorn) and ``failed`` (with the traceback). Texts of documents, tokens and query strings
# are never logged.


LOG = logging.getLogger("arbora.server")
_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": when, "level": _LEVELS.get(record.levelno, "error")}
        fields = getattr(record, "fields", None)
        if fields is None:  # a message of uvicorn
            line |= {"event": "server", "message": record.getMessage().strip()}
        else:
            line |= {"event": record.getMessage(), **fields}
        if record.exc_info:
            line |= {"event": "failed", "traceback": self.formatException(record.exc_info)}
        return json.dumps(line)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    LOG.log(level, event, extra={"fields": fields})


def start_log(requests: bool) -> None:
    """Send the log to the error stream; with `requests`, every request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (
        (LOG.name, logging.DEBUG if requests else logging.INFO),
        ("uvicorn.error", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


# --- Access control of the server: tokens, hosts, origins, rates, and security headers of all responses -----


COOKIE = "arbora_token"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::(\d{1,5}))?")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """Middleware: checks that a request is allowed, and adds security headers to the response.

    Requests must send the token as a bearer token, as the cookie, or once in the URL of the page, which sets the
    cookie. Without a token, the ``Host`` of a request must be a loopback name.
    """

    def __init__(self, app: Any, token: str | None, limits: Limits) -> None:
        self.app, self.token = app, token
        self._rates = Rates(limits.rate)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request, or reject it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        started, status, gone = time.monotonic(), 0, False
        client = scope["client"][0] if scope.get("client") else ""

        async def send_guarded(message: Any) -> None:
            nonlocal status, gone
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            if gone:
                return
            try:
                await send(message)
            # The body was not HTTP: the request is refused and the connection closed
            except LocalProtocolError:
                gone = True
                log("disconnected", client=client, path=scope["path"])

        await self._answer(Request(scope), client)(scope, receive, send_guarded)
        milliseconds = round(1000 * (time.monotonic() - started), 1)
        about = {"method": scope["method"], "path": scope["path"], "status": status}
        log("request", logging.DEBUG, client=client, **about, milliseconds=milliseconds)

    def _answer(self, request: Request, client: str) -> Any:
        if request.method not in ("GET", "HEAD") and not is_same_origin(request):
            return problem(403, "requests from other pages are refused")
        if not self._rates.allow(client):
            return busy(429, f"more than {self._rates.rate:g} requests per second: send fewer (limit rate)")
        host = host_name(request.headers.getlist("host"))
        if host is None:
            return problem(400, "the Host of the request is not the name of a host with an optional port")
        if self.token is None:
            if not is_local(host):
                return problem(400, "this server accepts only requests to localhost or a loopback address")
            return self.app
        if request.url.path == "/health" or self._has_token(request):
            return self.app
        sent = request.query_params.get("token", "")
        if request.url.path == "/" and request.method == "GET" and same(sent, self.token):
            response = RedirectResponse("./", status_code=303)
            response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return response
        return problem(401, "a token is needed: open the URL with ?token=... that the server printed")

    def _has_token(self, request: Request) -> bool:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same(bearer.strip(), str(self.token)):
            return True
        try:
            cookie = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and same(cookie.value, str(self.token))


def same(sent: str, token: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(sent.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def is_same_origin(request: Request) -> bool:
    """Return whether a request comes from the page of this server, or from a program, which sends no origin."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is not None:
        return origin.partition("://")[2].lower() == request.headers.get("host", "").lower()
    return site in (None, "same-origin", "none")


def host_name(hosts: Sequence[str]) -> str | None:
    """Return the host of the ``Host`` headers, without the port; None if there is not exactly one, or it is odd.

    >>> host_name(["localhost:8765"]), host_name(["[::1]:8765"]), host_name(["localhost:evil"]), host_name([])
    ('localhost', '::1', None, None)
    """
    match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None or (match[3] is not None and not 0 < int(match[3]) < 1 << 16):
        return None
    return (match[1] or match[2]).lower()


def is_local(host: str) -> bool:
    """Return whether a host is a loopback name or address.

    >>> is_local("127.0.0.1"), is_local("0.0.0.0"), is_local("example.org")
    (True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def problem(status: int, message: str) -> JSONResponse:
    """Make a JSON response with an error message."""
    return JSONResponse({"error": message}, status_code=status)


def busy(status: int, message: str) -> JSONResponse:
    """Make a response that asks the client to try again in a second."""
    log("refused", status=status, reason=message)
    return JSONResponse({"error": message}, status_code=status, headers={"retry-after": "1"})


# --- Connections of the server: small packets are sent at once, and slow clients are disconnected -----------
#
# uvicorn sends the head and the body of an answer separately. Without TCP_NODELAY the second packet waits for the
# acknowledgement of the first, about 40 ms. uvicorn also waits forever for a client that sends nothing, or one byte
# a minute; the watch of a connection closes it when a limit is exceeded.


_LOOKS = 8  # of the watch within the shortest limit


def listen(host: str, port: int) -> socket.socket:
    """Make a listening socket; ValueError if the address cannot be used."""
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
