"""Checks of the content of a model folder: checksums protect from damage, these from files that strangers made.

They cover what the library itself relies on: types, ranges of ids and line numbers, a tree without cycles. Whatever
else a file contains is shown as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.app.folder.layout import KINDS, FolderError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error of content into a FolderError that names the file."""
    try:
        yield
    except FolderError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"[:200]
        raise FolderError(f"{path} does not have the content of a model folder ({problem})") from error


def _require(good: bool, what: str) -> None:
    if not good:
        raise ValueError(what)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float)


def _all(values: Any, good: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(good, values))


def check_about(about: dict[str, Any]) -> None:
    """Check ``folder.json``."""
    _require(about["kind"] in KINDS, f"unknown kind {about['kind']!r}")
    _require(_is_whole(about["n_nodes"]) and about["n_nodes"] >= 0, "n_nodes is not a number")
    _require(isinstance(about["name"], str), "the name is not a text")
    _require(_all(about.get("notices") or [], lambda one: isinstance(one, str)), "a notice is not a text")
    for name, file in about["files"].items():
        sound = _is_whole(file["bytes"]) and isinstance(file["sha256"], str)
        _require(sound, f"the size or checksum of {name!r} is missing")


def check_nodes(nodes: Any, n_nodes: int) -> list[dict[str, Any]]:
    """Check the nodes of the tree and return them."""
    _require(_all(nodes, lambda node: isinstance(node, dict)), "the nodes are not a list of objects")
    _require(len(nodes) == n_nodes, f"there are {len(nodes)} nodes instead of {n_nodes}")
    for number, node in enumerate(nodes):
        parent, lists = node["parent"], [node.get(name, []) for name in ("documents", "borderline")]
        sound = isinstance(node["name"], str) and isinstance(node["title"], str)
        sound = sound and (parent is None or (_is_whole(parent) and 0 <= parent < n_nodes))
        sound = sound and all(_all(lines, _is_whole) for lines in lists) and _all(node["words"], _is_word)
        sound = sound and all(_is_number(node[name]) for name in ("size", "own"))
        _require(sound, f"node {number} is not a node")
    _check_cycles([node["parent"] for node in nodes])
    _require(len({node["name"] for node in nodes}) == n_nodes, "two nodes have one name")
    return list(nodes)


def _is_word(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and _is_number(value[1])


def _check_cycles(parents: Sequence[int | None]) -> None:
    known = [parent is None for parent in parents]
    for start in range(len(parents)):
        path: list[int] = []
        seen: set[int] = set()
        at: int | None = start
        while at is not None and not known[at]:
            _require(at not in seen, f"node {at} is its own ancestor")
            seen.add(at)
            path.append(at)
            at = parents[at]
        for node in path:
            known[node] = True


def check_documents(documents: list[Any], n_nodes: int) -> list[dict[str, Any]]:
    """Check the sample of documents and return it."""

    def is_node(value: Any) -> bool:
        return _is_whole(value) and -1 <= value < n_nodes

    for line, document in enumerate(documents):
        _require(isinstance(document, dict), f"line {line} is not an object")
        node = document.get("node")
        sound = isinstance(document["id"], str) and isinstance(document["text"], str)
        sound = sound and (node is None or is_node(node) or _all(node, is_node))
        _require(sound, f"line {line} is not a document")
    return documents


def check_positions(name: str, positions: NDArray[Any], n_rows: int) -> NDArray[np.float32]:
    """Check positions on the map and return them."""
    _require(positions.shape == (n_rows, 3) and positions.dtype.kind == "f", f"{name!r} has a wrong shape")
    return positions.astype(np.float32, copy=False)
