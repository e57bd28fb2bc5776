"""A small server: the page of ``arbora explore``, and answers for new documents.

============================  ==========================================================================
``GET /``                     the page, with the view that asks the server
``GET /health``               ``{"status": "ok"}``; needs no token
``POST /api/file``            ``{"model": 0, "text": "..."}``: where a document belongs
``POST /api/batch?model=0``   JSONL in, JSONL out
============================  ==========================================================================

No file is ever read by its name in a request. A server that only this machine can reach answers only to the names of
this machine, so that a page from elsewhere cannot reach it through a name of its own; any other needs a token. Posts
need a content type that pages from elsewhere may not send. Bodies are counted while they are read.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlencode

from arbora.app.batch_answers import Asked, Together
from arbora.app.folder import open_folder
from arbora.explore.page import make_page

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import iterate_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    raise ImportError("the server needs starlette and uvicorn: pip install arbora[serve]") from error

COOKIE = "arbora_token"
_DIGITS = 9  # of the number of a model: more are not read as a number
_JSON = "application/json"
_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Limits(NamedTuple):
    """Largest bodies in bytes: of a document, of a file of documents."""

    document: int = 1_000_000
    batch: int = 50_000_000


class Guard:
    """Lets through who may ask; adds the headers that keep a page from being misused.

    Parameters
    ----------
    app : ASGI application
    token : str or None
        What must be shown: as a bearer token, as the cookie, or once in the address of the page, which sets the
        cookie.
        Without one, requests must name this machine as their host.
    """

    def __init__(self, app: Any, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._answer(Request(scope))(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Any:
        if self.token is None:
            host = request.headers.get("host", "")
            if not is_local(host_name(host)):
                return problem(400, "this server answers to the names of its own machine only")
            return self.app
        if request.url.path == "/health" or self._shown(request):
            return self.app
        given = request.query_params.get("token", "")
        if request.url.path == "/" and request.method == "GET" and same(given, self.token):
            response = RedirectResponse("./", status_code=303)
            response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return response
        return problem(401, "a token is needed: open the address with ?token=... that the server printed")

    def _shown(self, request: Request) -> bool:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same(bearer.strip(), str(self.token)):
            return True
        try:
            cookie = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and same(cookie.value, str(self.token))


def same(given: str, token: str) -> bool:
    """Compare secrets in a time that tells nothing about them."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def host_name(host: str) -> str:
    """Take the port off a ``Host`` header.

    Examples
    --------
    >>> host_name("localhost:8765"), host_name("[::1]:8765")
    ('localhost', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_local(host: str) -> bool:
    """Tell whether a host can be reached from its own machine only.

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
    """Say what is wrong, as JSON."""
    return JSONResponse({"error": message}, status_code=status)


async def read_body(request: Request, limit: int) -> bytes:
    """Read a body that is no longer than it may be; a longer one is not read to its end."""
    if int(request.headers.get("content-length") or 0) > limit:
        raise HTTPException(413, f"the body is larger than {limit:,} bytes")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise HTTPException(413, f"the body is larger than {limit:,} bytes")
        parts.append(part)
    return b"".join(parts)


def check_type(request: Request, *accepted: str) -> None:
    """Refuse other content types: those a form of another page can send are never accepted."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in accepted:
        raise HTTPException(415, f"send {accepted[0]}, not {given or 'a body without a type'}")


class Answers:
    """The requests of the server."""

    def __init__(self, page: str, asked: Sequence[Asked], limits: Limits) -> None:
        self.page, self.asked, self.limits = page.encode(), asked, limits
        self.together = {model: Together(model) for model in asked}

    async def show(self, request: Request) -> Response:
        """Send the page."""
        return HTMLResponse(self.page, headers={"content-security-policy": "frame-ancestors 'none'"})

    async def health(self, request: Request) -> Response:
        """Say that the server is there."""
        return JSONResponse({"status": "ok"})

    async def file(self, request: Request) -> Response:
        """Say where one document belongs."""
        check_type(request, _JSON)
        body = await read_body(request, self.limits.document)
        try:
            wish = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"the body is not JSON: {error}") from None
        if not isinstance(wish, dict) or not isinstance(wish.get("text"), str):
            raise HTTPException(400, "an object with 'text' is needed")
        model = self._model(wish.get("model", 0))
        return JSONResponse(await self.together[model].about(wish["text"]))

    async def batch(self, request: Request) -> Response:
        """Say where many documents belong, line by line."""
        check_type(request, *_LINES)
        number = request.query_params.get("model", "0")
        model = self._model(int(number) if number.isdecimal() and len(number) < _DIGITS else number)
        body = await read_body(request, self.limits.batch)
        # Not splitlines: a text may hold other separators of lines.
        lines: AsyncIterator[bytes] = iterate_in_threadpool(model.about_lines(body.split(b"\n")))
        return StreamingResponse(lines, media_type=_LINES[0])

    def _model(self, number: Any) -> Asked:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self.asked):
            raise HTTPException(404, f"there is no model {number!r}; models are 0 to {len(self.asked) - 1}")
        model = self.asked[number]
        if not model.reads_text:
            raise HTTPException(409, f"{model.name} was made from rows of numbers: it cannot read texts")
        return model


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail)


async def _fail(request: Request, error: Exception) -> Response:
    return problem(500, "the server could not answer; its own output says why")


def make_app(folders: Sequence[Any], *, token: str | None = None, limits: Limits | None = None) -> Any:
    """Make the ASGI application of some model folders.

    Parameters
    ----------
    folders : sequence of path or Folder
    token : str, optional
        What requests must show; without one only requests to this machine by its own names are answered.
    limits : Limits, optional
        Of bodies, in bytes.

    Returns
    -------
    ASGI application
    """
    limits = limits or Limits()
    opened = [open_folder(one) if not hasattr(one, "load_model") else one for one in folders]
    page = make_page(opened, live=limits._asdict())
    answers = Answers(page.html, [Asked(folder) for folder in opened], limits)
    app = Starlette(
        routes=[
            Route("/", answers.show),
            Route("/health", answers.health),
            Route("/api/file", answers.file, methods=["POST"]),
            Route("/api/batch", answers.batch, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _refuse, Exception: _fail},
    )
    return Guard(app, token)


def serve(
    folders: Sequence[Any],
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the page of some model folders until Ctrl-C.

    Parameters
    ----------
    folders : sequence of path or Folder
    host : str
        Address to listen at. Any but those of this machine alone need a token.
    port : int
        0: any that is free.
    token : str, optional
        What a browser must show. It is sent as it is: over the network of others, put a server with TLS in front.
    tell : callable
        Called with the address, the token in it, before the first request is answered.

    Examples
    --------
    >>> serve(["model/"])  # doctest: +SKIP
    """
    if not is_local(host) and not token:
        raise ValueError(f"others can reach {host}: give a --token that a browser must show")
    try:
        listening = socket.create_server((host, port), family=_family(host), backlog=1024)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot listen at {host}, port {port}: {why}; give another port or host") from None
    app = make_app(folders, token=token)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    tell(f"{address}?{urlencode({'token': token})}" if token else address)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False))
    with suppress(KeyboardInterrupt):  # the way to end it
        server.run(sockets=[listening])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
