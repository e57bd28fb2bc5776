"""Edits of topics, as a page sends them to the server."""

from __future__ import annotations

import copy
import random
import warnings
from pathlib import Path
from typing import Any

from arbora.app.folder import open_folder
from arbora.explore.server import TopicEditor
from fuzz.mutate import mutate_json
from fuzz.target import ACCEPTED, REFUSED, Unclean
from support.topic_folders import topics_folder

EDITS: list[dict[str, Any]] = [
    {"edit": "rename", "topic": 0, "title": "Banks"},
    {"edit": "merge", "topics": [0, 1]},
    {"edit": "split", "topic": 1, "n_topics": 2},
]


def prepare(folder: Path) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    opened = open_folder(topics_folder(folder / "topics"))
    return {"path": opened.path, "editor": TopicEditor(opened)}


def attack(state: dict[str, Any], rng: random.Random) -> str:
    edits: Any = copy.deepcopy(rng.choices(EDITS, weights=(3, 2, 1), k=rng.randrange(4)))
    for _ in range(rng.randrange(3)):
        edits = mutate_json(rng, edits)
    try:
        save = rng.random() < 0.05
        data = state["editor"].edit(edits, save=save)
        if not data["nodes"] or (save and not open_folder(state["path"]).nodes):
            raise Unclean("an edited model has no topics")
        return ACCEPTED
    except (ValueError, TypeError):
        return REFUSED
