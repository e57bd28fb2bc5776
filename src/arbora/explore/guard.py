"""Access control of the server: tokens, hosts, origins, rates, and security headers of all responses."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any

from h11 import LocalProtocolError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse

from arbora.explore.limits import Limits, Rates
from arbora.explore.request_log import log

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
            except (
                LocalProtocolError
            ):  # the body was not HTTP: the request is refused and the connection closed
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


def is_same_origin(request: Request) -> bool:
    """Return whether a request comes from the page of this server, or from a program, which sends no origin."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is not None:
        return origin.partition("://")[2].lower() == request.headers.get("host", "").lower()
    return site in (None, "same-origin", "none")


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
