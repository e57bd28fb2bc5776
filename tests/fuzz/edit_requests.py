"""Edits of topics, sent to the route ``/api/edits`` of a server with a token."""

from __future__ import annotations

import copy
import json
import random
import warnings
from pathlib import Path
from typing import Any

from arbora.app.folder import open_folder
from arbora.explore.server import make_app
from fuzz.edits import EDITS
from fuzz.mutate import mutate, mutate_json
from fuzz.requests import LIMITS, request, send, serve
from fuzz.target import ACCEPTED, REFUSED, Unclean
from support.topic_folders import topics_folder

TOKEN = "a token of the fuzzer"


def prepare(folder: Path) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    path = topics_folder(folder / "topics", n=8)
    return {"path": path, "app": make_app([path], token=TOKEN, limits=LIMITS), "address": None, "saved": []}


def make_body(state: dict[str, Any], rng: random.Random) -> bytes:
    """Make a request as the page sends it, with some values or bytes changed."""
    edits = copy.deepcopy(rng.choices(EDITS, weights=(4, 2, 1), k=rng.randrange(3)))
    body: Any = {"model": 0, "edits": edits, "save": rng.random() < 0.1, "after": state["saved"]}
    kind = rng.randrange(4)
    for _ in range(kind % 3):
        body = mutate_json(rng, body)
    data = json.dumps(body).encode()
    return mutate(rng, data) if kind == 3 else data


def attack(state: dict[str, Any], rng: random.Random) -> str:
    state["address"] = state["address"] or serve(state["app"])
    body = make_body(state, rng)
    token = TOKEN if rng.random() < 0.95 else mutate(rng, TOKEN.encode()).decode("latin-1")
    data = request("/api/edits", body, f"application/json\r\nAuthorization: Bearer {token}")
    reply = send(state["address"], data, half=rng.random() < 0.03)
    status = reply.split(b" ", 2)[1:2]
    if status and status[0].startswith(b"5"):
        raise Unclean(f"status {status[0].decode()}: {data[:300]!r}")
    if status != [b"200"]:
        return REFUSED
    if token.strip() != TOKEN:
        raise Unclean(f"edits without the token were accepted: {data[:300]!r}")
    found = json.loads(reply.split(b"\r\n\r\n", 1)[1])
    if not found["data"]["nodes"]["name"] or not open_folder(state["path"]).nodes:
        raise Unclean("an edited model has no topics")
    if found["saved"]:
        state["saved"] = json.loads(body)["edits"]
    return ACCEPTED
