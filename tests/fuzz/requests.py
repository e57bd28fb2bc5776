"""The server: mutated requests, sent as bytes; and the page of hostile texts."""

# ruff: noqa: E501 - tables of odd values
from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from arbora.app.folder import open_folder
from arbora.explore.guard import Limits, listen
from arbora.explore.page import make_page
from arbora.explore.server import make_app, make_server
from fuzz.mutate import mutate
from fuzz.target import ACCEPTED, REFUSED, Unclean
from support.explore_folders import HOSTILE, classifier_folder
from support.serving import trained_folder

BODY = b'{"model": 0, "text": "the laser and the lens"}'
LINES = b'{"id": "a", "text": "cargo port"}\n{"text": "violin"}\nbroken\n'
TIMES = {"header_seconds": 0.2, "idle_seconds": 0.2, "request_seconds": 1.0}
LIMITS = Limits(document=5000, batch=20_000, lines=100, rate=1e9, **TIMES)


def request(path: str, body: bytes, kind: str, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nConnection: close\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


SAMPLES = [
    request("/api/file", BODY, "application/json"),
    request("/api/batch?model=0", LINES, "application/x-ndjson"),
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost:80\r\nConnection: close\r\n\r\n",
    b"POST /api/file HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n2e\r\n" + BODY + b"\r\n0\r\n\r\n",
]


def prepare(folder: Path) -> dict[str, Any]:
    app = make_app([open_folder(trained_folder(folder / "served"))], limits=LIMITS)
    return {"app": app, "address": None, "n": 0}


def serve(app: Any) -> tuple[str, int]:
    """Start the server in a thread, which a forked process does not inherit; return its address."""
    listening = listen("127.0.0.1", 0)
    server = make_server(app, LIMITS)
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    address: tuple[str, int] = listening.getsockname()
    return address


def send(address: tuple[str, int], data: bytes, half: bool = False, ends: bool = False) -> bytes:
    """Send bytes and return the reply; `half` leaves before the reply, `ends` says that nothing more will come."""
    with socket.create_connection(address, timeout=8) as raw:
        try:
            raw.sendall(data)
            if half:
                return b""
            if ends:
                raw.shutdown(socket.SHUT_WR)
            reply = raw.recv(1 << 16)  # a server that says nothing for eight seconds is a finding
        except (BrokenPipeError, ConnectionResetError):
            return b""
        raw.settimeout(0.2)  # an open connection has no end
        with suppress(OSError):
            while more := raw.recv(1 << 16):
                reply += more
        return reply


def attack(state: dict[str, Any], rng: random.Random) -> str:
    state["address"] = state["address"] or serve(state["app"])
    kind = rng.randrange(3)
    if kind == 0:
        data = mutate(rng, rng.choice(SAMPLES))
    elif kind == 1:
        data = request("/api/file", mutate(rng, BODY), "application/json")
    else:
        data = request(
            "/api/batch", mutate(rng, LINES), rng.choice(("application/x-ndjson", "application/jsonl"))
        )
    reply = send(state["address"], data, rng.random() < 0.05, rng.random() < 0.2)
    state["n"] += 1
    if state["n"] % 50 == 0 and b'"ok"' not in send(state["address"], SAMPLES[3]):
        raise Unclean("the server does not answer any more")
    status = reply.split(b" ", 2)[1:2]
    if status and status[0].startswith(b"5"):
        raise Unclean(f"status {status[0].decode()}: {data[:300]!r}")
    return ACCEPTED if status == [b"200"] else REFUSED


class Elements(HTMLParser):
    """Names and attributes of all elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


def elements(html: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = Elements()
    start = html.rindex("<script", 0, html.index("</script>"))
    parser.feed(html if len(html) < 1 << 20 else html[:start] + html[-(1 << 18) :])
    return parser.found


TEXTS = [
    HOSTILE, "</script><script>alert(1)</script>", "<!--<script>", "]]>", "\u2028", "\0", "\ud800", "&lt;", "</style>",
    "javascript:alert(1)", "' onload='x", '" onload="x', "</title>", "\\u003c", "{{x}}", "[[data]]", "[[script]]", "${x}",
    "x" * 5000,
]  # fmt: skip


def prepare_page(folder: Path) -> dict[str, Any]:
    opened = open_folder(classifier_folder(folder / "page", hostile=False))
    return {"folder": opened, "elements": elements(make_page(opened).html)}


def attack_page(state: dict[str, Any], rng: random.Random) -> str:
    folder = open_folder(state["folder"].path)

    def odd() -> str:
        text = rng.choice(TEXTS)
        return (
            mutate(rng, text.encode("utf-8", "replace")).decode("utf-8", "replace")
            if rng.random() < 0.5
            else text
        )

    for _ in range(3):
        node, document = rng.choice(folder.nodes), rng.choice(folder.documents)
        place = rng.choice(
            ((node, "name"), (node, "title"), (document, "text"), (document, "id"), (document, "label"))
        )
        place[0][place[1]] = odd()
        node["words"] = [[odd(), 1.0]]
        node["terms"] = [[odd(), 0.5, 0.1]]
    folder.about["name"] = odd()
    folder.about["notices"] = [odd()]
    title = odd() if rng.random() < 0.5 else None
    found = elements(make_page(folder, title=title).html)
    if found != state["elements"]:
        raise Unclean("a text of the user has become an element of the page")
    return ACCEPTED
