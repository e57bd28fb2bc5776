"""A small HTTP server: the page of ``arbora explore``, and answers for new documents.

============================  ==========================================================================
``GET /``                     the page, with a view that files new documents
``GET /health``               ``{"status": "ok"}``; needs no token
``POST /api/file``            ``{"model": 0, "text": "..."}``: where a document belongs
``POST /api/batch?model=0``   JSONL in, JSONL out
============================  ==========================================================================

Security: a request never names a file. A server on a loopback address accepts only requests whose ``Host`` is a
loopback name, which prevents DNS rebinding; any other address needs a token. POST requests need a content type that a
page of another origin cannot send without a preflight. The size of a body is checked while it is read; `Limits` has
all limits. `arbora.explore.connections` disconnects slow clients, `arbora.explore.request_log` writes the log.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlencode

from arbora.app.filing import Filer
from arbora.app.folder import open_folder
from arbora.explore.limits import Limits, Rates
from arbora.explore.page import make_page
from arbora.explore.request_batches import BusyError, RequestBatches
from arbora.explore.request_log import log, start_log

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import iterate_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route

    from arbora.explore.connections import listen, with_limits
except ImportError as error:
    raise ImportError("the server needs starlette and uvicorn: pip install arbora[serve]") from error

COOKIE = "arbora_token"
N_WORDS = 10
_GRACE = 30  # seconds that a stopping server waits for its answers
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::(\d{1,5}))?")
_DIGITS = 9  # a model number with more digits is not converted
_JSON = "application/json"
_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """Middleware: checks that a request is allowed, and adds security headers to the response.

    Parameters
    ----------
    app : ASGI application
    token : str or None
        Requests must send it as a bearer token, as the cookie, or once in the URL of the page, which sets the cookie.
        Without a token, the ``Host`` of a request must be a loopback name.
    limits : Limits
    """

    def __init__(self, app: Any, token: str | None, limits: Limits) -> None:
        self.app, self.token = app, token
        self._rates = Rates(limits.rate)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request, or reject it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        started, status = time.monotonic(), 0
        client = scope["client"][0] if scope.get("client") else ""

        async def send_guarded(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._answer(Request(scope), client)(scope, receive, send_guarded)
        milliseconds = round(1000 * (time.monotonic() - started), 1)
        about = {"method": scope["method"], "path": scope["path"], "status": status}
        log("request", logging.DEBUG, client=client, **about, milliseconds=milliseconds)

    def _answer(self, request: Request, client: str) -> Any:
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
        given = request.query_params.get("token", "")
        if request.url.path == "/" and request.method == "GET" and same(given, self.token):
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


def same(given: str, token: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def host_name(hosts: Sequence[str]) -> str | None:
    """Return the host of the ``Host`` headers, without the port; None if there is not exactly one, or it is odd.

    Examples
    --------
    >>> host_name(["localhost:8765"]), host_name(["[::1]:8765"]), host_name(["localhost:evil"]), host_name([])
    ('localhost', '::1', None, None)
    """
    match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None or (match[3] is not None and not 0 < int(match[3]) < 1 << 16):
        return None
    return (match[1] or match[2]).lower()


def is_local(host: str) -> bool:
    """Return whether a host is a loopback name or address.

    Examples
    --------
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


async def read_body(request: Request, limit: int) -> bytes:
    """Read a body; stop with an error as soon as it exceeds the limit."""
    if int(request.headers.get("content-length") or 0) > limit:
        raise HTTPException(413, f"the body is larger than {limit:,} bytes")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise HTTPException(413, f"the body is larger than {limit:,} bytes")
    return bytes(body)


def check_type(request: Request, *accepted: str) -> None:
    """Reject other content types; types that an HTML form can send are never accepted."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in accepted:
        raise HTTPException(415, f"send {accepted[0]}, not {given or 'a body without a type'}")


class Handlers:
    """The request handlers of the server."""

    def __init__(self, page: str, filers: Sequence[Filer], limits: Limits) -> None:
        self.page, self.filers, self.limits = page.encode(), filers, limits
        self.batches = {filer: RequestBatches(filer, limits.waiting) for filer in filers}
        self.n_batches = 0

    async def show(self, request: Request) -> Response:
        """Send the page."""
        return HTMLResponse(self.page, headers={"content-security-policy": "frame-ancestors 'none'"})

    async def health(self, request: Request) -> Response:
        """Report that the server runs."""
        return JSONResponse({"status": "ok"})

    async def file(self, request: Request) -> Response:
        """File one document."""
        check_type(request, _JSON)
        body = await read_body(request, self.limits.document)
        try:
            request_data = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"the body is not JSON: {error}") from None
        if not isinstance(request_data, dict) or not isinstance(request_data.get("text"), str):
            raise HTTPException(400, "an object with 'text' is needed")
        filer = self._filer(request_data.get("model", 0))
        try:
            return JSONResponse(await self.batches[filer].file(request_data["text"]))
        except BusyError as error:
            return busy(503, f"{error} (limit waiting)")

    async def batch(self, request: Request) -> Response:
        """File many documents, one per line."""
        check_type(request, *_LINES)
        number = request.query_params.get("model", "0")
        filer = self._filer(int(number) if number.isdecimal() and len(number) < _DIGITS else number)
        if self.n_batches >= self.limits.batches:
            return busy(503, f"{self.n_batches} batches are being answered (limit batches)")
        self.n_batches += 1
        try:
            body = await read_body(request, self.limits.batch)
            if body.count(b"\n") > self.limits.lines:
                raise HTTPException(413, f"the batch has more than {self.limits.lines:,} lines (limit lines)")
        finally:
            self.n_batches -= 1  # a response whose client has gone is never begun
        # Not splitlines: a text may contain other line separators.
        lines = filer.file_lines(body.split(b"\n"))
        return BatchResponse(self, iterate_in_threadpool(lines), media_type=_LINES[0])

    def _filer(self, number: Any) -> Filer:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self.filers):
            raise HTTPException(404, f"there is no model {number!r}; models are 0 to {len(self.filers) - 1}")
        filer = self.filers[number]
        if not filer.reads_text:
            raise HTTPException(409, f"{filer.name} was trained on rows of numbers: it cannot read texts")
        return filer


class BatchResponse(StreamingResponse):
    """The answers for a batch, in a stream; the batch counts until its end or until the client has gone."""

    def __init__(self, handlers: Handlers, lines: AsyncIterator[bytes], media_type: str) -> None:
        super().__init__(lines, media_type=media_type)
        self._handlers = handlers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the answers."""
        self._handlers.n_batches += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._handlers.n_batches -= 1


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail)


async def _gone(request: Request, error: Exception) -> Response:
    """Handle a client that disconnected before its request was complete: nothing to answer, one line in the log."""
    log("disconnected", client=request.client.host if request.client else None, path=request.url.path)
    return Response(status_code=499)


async def _fail(request: Request, error: Exception) -> Response:
    return problem(500, "the server failed to answer; see its log")


def make_app(folders: Sequence[Any], *, token: str | None = None, limits: Limits | None = None) -> Any:
    """Make the ASGI application of some model folders.

    Parameters
    ----------
    folders : sequence of path or Folder
    token : str, optional
        Token that requests must send; without one only requests to a loopback name are accepted.
    limits : Limits, optional
        Limits of sizes, numbers and rates.

    Returns
    -------
    ASGI application
    """
    limits = limits or Limits()
    opened = [open_folder(one) if not hasattr(one, "load_model") else one for one in folders]
    page = make_page(opened, live={"document": limits.document, "batch": limits.batch})
    handlers = Handlers(page.html, [Filer(folder, n_words=N_WORDS) for folder in opened], limits)
    app = Starlette(
        routes=[
            Route("/", handlers.show),
            Route("/health", handlers.health),
            Route("/api/file", handlers.file, methods=["POST"]),
            Route("/api/batch", handlers.batch, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _refuse, ClientDisconnect: _gone, Exception: _fail},
    )
    return Guard(app, token, limits)


def make_server(app: Any, limits: Limits | None = None) -> uvicorn.Server:
    """Make the HTTP server of an application; its `run` takes the sockets to listen on.

    Parameters
    ----------
    app : ASGI application
        See `make_app`.
    limits : Limits, optional
        Those of connections and times are used.

    Returns
    -------
    uvicorn.Server
    """
    limits = limits or Limits()
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=with_limits(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=_GRACE,
        )
    )


def serve(
    folders: Sequence[Any],
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    on_start: Callable[[str], None] = print,
    *,
    limits: Limits | None = None,
    log_requests: bool = False,
) -> None:
    """Serve the page of some model folders until Ctrl-C is pressed, or SIGTERM is received.

    Requests that have begun are answered before the server ends, within 30 seconds.

    Parameters
    ----------
    folders : sequence of path or Folder
    host : str
        Address to listen on. An address that is not a loopback address needs a token.
    port : int
        0: any free port.
    token : str, optional
        Token that a browser must send. It is not encrypted: on an untrusted network, put a TLS proxy in front.
    on_start : callable
        Called with the URL, which includes the token, before the first request is answered.
    limits : Limits, optional
        Limits of sizes, numbers, rates and times.
    log_requests : bool
        Log every request, as a line of JSON on the error stream. Problems are always logged there.

    Examples
    --------
    >>> serve(["model/"])  # doctest: +SKIP
    """
    if not is_local(host) and not token:
        raise ValueError(f"other machines can reach {host}: give a --token that a browser must send")
    listening = listen(host, port)
    start_log(log_requests)
    app = make_app(folders, token=token, limits=limits)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    on_start(f"{address}?{urlencode({'token': token})}" if token else address)
    with suppress(KeyboardInterrupt):  # the way to end it
        make_server(app, limits).run(sockets=[listening])
