"""Model folders: a model on disk with everything that is needed to describe it. See ``docs/model_folder.md``."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora._version import __version__
from arbora.arrays import Matrix
from arbora.core.files import HashingWriter, publish_folder, temporary_folder, write_synced
from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.npz import read_arrays
from arbora.io import load, save
from arbora.io.npz import write_npz

# --- The layout of a model folder: its files, its kinds, and the content that goes into it ------------------


FORMAT = "arbora-folder"
FORMAT_VERSION = 1
KINDS = ("classifier", "topics", "topic tree", "topics over time", "groups", "clusters")

INDEX, MODEL = "folder.json", "model"
NODES, DOCUMENTS, ARRAYS = "nodes.json", "documents.jsonl", "arrays.npz"
EVALUATION, TIME, REPORT = "evaluation.json", "time.json", "report.txt"
EXPANSION, PLAN = "expansion.json", "plan.csv"
ENTRIES = {INDEX, MODEL, NODES, DOCUMENTS, ARRAYS, EVALUATION, TIME, REPORT, EXPANSION, PLAN}
FIRST_LINE = re.compile(rb'\{"checksum": "([0-9a-f]{64})",')


class FolderError(ValueError):
    """A path is not a model folder, the folder is damaged, or the path is in use."""


class Content(NamedTuple):
    """The content of a model folder, described in ``docs/model_folder.md``.

    `about` holds the entries of ``folder.json`` that the writer cannot derive: ``name``, ``settings``,
    ``n_documents``, ``has_text``, ``multilabel``, ``notices``.
    """

    kind: str
    about: Mapping[str, Any]
    model: Mapping[str, Any]  # "vectorizer" and "estimator"
    nodes: list[dict[str, Any]]
    documents: list[dict[str, Any]]
    positions: NDArray[np.float32]
    node_positions: NDArray[np.float32]
    report: str
    evaluation: dict[str, Any] | None = None
    time: dict[str, Any] | None = None
    expansion: dict[str, Any] | None = None
    plan: str | None = None  # CSV


def full_about(content: Content) -> dict[str, Any]:
    """Return all entries of ``folder.json``: those given, and those derived from the content."""
    estimator, vectorizer = content.model.get("estimator"), content.model.get("vectorizer")
    return {
        "kind": content.kind,
        "arbora": __version__,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "estimator": type(estimator).__name__ if estimator is not None else None,
        "n_sampled": len(content.documents),
        "n_nodes": len(content.nodes),
        "n_features": getattr(estimator, "n_features_in_", None),
        "has_text": vectorizer is not None,
        **content.about,
    }


# --- Checks of the content of a model folder: checksums protect from damage, these from files that strangers made ---
#
# They cover what the library itself relies on: types, ranges of ids and line numbers, a tree without cycles.
# Whatever else a file contains is shown as text.


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
    _require(
        _all(about.get("notices") or [], lambda notice: isinstance(notice, str)), "a notice is not a text"
    )
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
    done = [parent is None for parent in parents]
    for start in range(len(parents)):
        path: list[int] = []
        seen: set[int] = set()
        node: int | None = start
        while node is not None and not done[node]:
            _require(node not in seen, f"node {node} is its own ancestor")
            seen.add(node)
            path.append(node)
            node = parents[node]
        for node in path:
            done[node] = True


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


def check_positions(name: str, positions: Matrix, n_rows: int) -> NDArray[np.float32]:
    """Check positions on the map and return them."""
    _require(positions.shape == (n_rows, 3) and positions.dtype.kind == "f", f"{name!r} has a wrong shape")
    return positions.astype(np.float32, copy=False)


# --- Write a model folder, completely or not at all ---------------------------------------------------------
#
# A folder is written under a temporary name beside its target and renamed when it is complete: an interruption
# leaves the old folder or none. No pickle is written.


def check_target(path: str | os.PathLike[str]) -> Path:
    """Check, before the long work, that a model folder can be written to a path; return it with links resolved.

    The path must be unused, an empty folder, or a model folder, which will be replaced.

    >>> import tempfile
    >>> check_target(tempfile.gettempdir())
    Traceback (most recent call last):
        ...
    arbora.app.folder.FolderError: ... is not a model folder, and is not empty: ...
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise FolderError(f"{path} is a file: give the path of a folder for the model")
    if target.is_dir():
        entries = {entry.name for entry in target.iterdir()}
        if entries and not _is_ours(target):
            raise FolderError(
                f"{path} is not a model folder, and is not empty: nothing was changed; give a new folder"
            )
        foreign = sorted(entries - ENTRIES)
        if foreign:
            raise FolderError(
                f"{path} is a model folder that also contains {foreign[0]!r}, which would be lost: move that file, "
                "or give another folder"
            )
    above = next(parent for parent in target.parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise FolderError(f"{path} cannot be created: {above} is not a folder that you may write to")
    return target


def _is_ours(folder: Path) -> bool:
    try:
        with open(folder / INDEX, "rb") as file:
            return f'"format": "{FORMAT}"'.encode() in file.read(4096)
    except OSError:
        return False


def write_folder(path: str | os.PathLike[str], content: Content) -> None:
    """Write a model folder, completely or not at all.

    Parameters
    ----------
    path : path
        As for `check_target`; missing parent folders are created.
    content : Content

    Examples
    --------
    >>> import tempfile
    >>> here = tempfile.mkdtemp()
    >>> nothing = np.zeros((0, 3), np.float32)
    >>> write_folder(f"{here}/m", Content("topics", {"name": "none"}, {}, [], [], nothing, nothing, "no topics"))
    >>> sorted(path.name for path in Path(here, "m").iterdir())
    ['arrays.npz', 'documents.jsonl', 'folder.json', 'model', 'nodes.json', 'report.txt']
    """
    if content.kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {content.kind!r}")
    target = check_target(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(target.parent) as new:
        save(dict(content.model), new / MODEL)
        arrays = {"positions": content.positions, "node_positions": content.node_positions}
        arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
        files = {
            NODES: _write_text(new / NODES, [_dump({"nodes": content.nodes})]),
            DOCUMENTS: _write_text(new / DOCUMENTS, map(_dump, content.documents)),
            ARRAYS: _write(new / ARRAYS, lambda writer: write_npz(writer, arrays)),
            REPORT: _write_text(new / REPORT, [content.report]),
        }
        parts = {EVALUATION: content.evaluation, TIME: content.time, EXPANSION: content.expansion}
        for name, part in parts.items():
            if part is not None:
                files[name] = _write_text(new / name, [_dump(part)])
        if content.plan is not None:
            files[PLAN] = _write_text(new / PLAN, content.plan.splitlines())
        _write_index(new / INDEX, content, files)
        publish_folder(new, target)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _write(path: Path, fill: Callable[[HashingWriter], object]) -> dict[str, Any]:
    """Write a file with a function and sync it to disk; return its size and checksum."""
    writer = write_synced(path, fill)
    return {"bytes": writer.n_bytes, "sha256": writer.hasher.hexdigest()}


def _write_text(path: Path, lines: Iterable[str]) -> dict[str, Any]:
    def fill(writer: HashingWriter) -> None:
        for line in lines:
            writer.write(f"{line}\n".encode("utf-8", "replace"))

    return _write(path, fill)


def _write_index(path: Path, content: Content, files: dict[str, dict[str, Any]]) -> None:
    entries = {"format": FORMAT, "version": FORMAT_VERSION, **full_about(content), "files": files}
    lines = [f"{json.dumps(key)}: {_dump(value)}" for key, value in entries.items()]
    body = ",\n".join(lines).encode("utf-8", "replace") + b"\n}\n"
    head = f'{{"checksum": "{hashlib.sha256(body).hexdigest()}",\n'.encode()
    _write(path, lambda writer: writer.write(head + body))


# --- Open a model folder and read its parts. No pickle is read ----------------------------------------------


class Folder:
    """An open model folder; each part is read when it is first used.

    `about` is the content of ``folder.json``; its ``kind`` is one of `KINDS`.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        self.about = about
        self.kind: str = about["kind"]

    def __repr__(self) -> str:
        return f"<Folder {str(self.path)!r}: {self.kind}, {self.about['n_nodes']} nodes>"

    @cached_property
    def nodes(self) -> list[dict[str, Any]]:
        """Nodes of the tree, by id."""
        with reading(self.path / NODES):
            return check_nodes(self._json(NODES)["nodes"], self.about["n_nodes"])

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        """The sample of documents, by line."""
        with reading(self.path / DOCUMENTS):
            # Not splitlines: a text may contain other line separators.
            lines = [json.loads(line) for line in self._bytes(DOCUMENTS).split(b"\n") if line]
            return check_documents(lines, self.about["n_nodes"])

    @property
    def positions(self) -> NDArray[np.float32]:
        """Positions of the documents on the map, (n_sampled, 3)."""
        with reading(self.path / ARRAYS):
            return check_positions("positions", self._arrays["positions"], len(self.documents))

    @property
    def node_positions(self) -> NDArray[np.float32]:
        """Positions of the nodes on the map, (n_nodes, 3); NaN for nodes without documents."""
        with reading(self.path / ARRAYS):
            return check_positions("node_positions", self._arrays["node_positions"], self.about["n_nodes"])

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        """Evaluation of a classifier; None for other models."""
        return self._json(EVALUATION) if EVALUATION in self.about["files"] else None

    @cached_property
    def time(self) -> dict[str, Any] | None:
        """Shares and words of topics by time; None for models without time."""
        return self._json(TIME) if TIME in self.about["files"] else None

    @cached_property
    def expansion(self) -> dict[str, Any] | None:
        """Number of new groups, and what was learned from the known ones; None for other models."""
        return self._json(EXPANSION) if EXPANSION in self.about["files"] else None

    @cached_property
    def plan(self) -> str | None:
        """Where the documents of the pile go, as CSV; None for other models."""
        return self._text(PLAN) if PLAN in self.about["files"] else None

    @cached_property
    def report(self) -> str:
        """The report that the command printed when it made the folder."""
        return self._text(REPORT)

    def load_model(self, mmap: bool = False) -> dict[str, Any]:
        """Load the model: "vectorizer" (None for rows of numbers), "estimator", "feature_names" (may be None)."""
        model = load(self.path / MODEL, mmap=mmap)
        if not isinstance(model, dict):
            raise FolderError(f"{self.path / MODEL} does not hold the model of a model folder")
        return model

    @cached_property
    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        self._bytes(ARRAYS)  # for its checksum
        try:
            return read_arrays(self.path / ARRAYS)
        except DataFormatError as error:
            raise FolderError(str(error)) from error

    def _bytes(self, name: str) -> bytes:
        content = (self.path / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.about["files"][name]["sha256"]:
            raise FolderError(
                f"{self.path / name} is damaged: its checksum differs from {INDEX}; restore it from a copy, or "
                "train the model again"
            )
        return content

    def _json(self, name: str) -> Any:
        with reading(self.path / name):
            value = json.loads(self._bytes(name))
            if not isinstance(value, dict):
                raise ValueError("it is not an object")
            return value

    def _text(self, name: str) -> str:
        with reading(self.path / name):
            return self._bytes(name).decode()


def open_folder(path: str | os.PathLike[str]) -> Folder:
    """Open a model folder.

    Parameters
    ----------
    path : path

    Raises
    ------
    FileNotFoundError
        When nothing is at the path.
    FolderError
        When it is not a model folder, is damaged or incomplete, or was written by a newer version.

    Examples
    --------
    >>> open_folder("/")
    Traceback (most recent call last):
        ...
    arbora.app.folder.FolderError: / is not a model folder: it has no folder.json; ...
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no model folder at {path}")
    if not (folder / INDEX).is_file():
        raise FolderError(
            f"{path} is not a model folder: it has no {INDEX}; `arbora classify train`, `discover` and `expand` "
            "write one"
        )
    content = (folder / INDEX).read_bytes()
    try:
        about = json.loads(content)
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        version = int(about["version"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise FolderError(f"{folder / INDEX} is damaged, or does not belong to a model folder") from error
    if version > FORMAT_VERSION:
        raise FolderError(
            f"{path} was written by Arbora {about.get('arbora')} with format {version}; this Arbora ({__version__}) "
            f"reads up to {FORMAT_VERSION}: upgrade Arbora"
        )
    first, _, body = content.partition(b"\n")
    match = FIRST_LINE.fullmatch(first)
    if match is None or match[1].decode() != hashlib.sha256(body).hexdigest():
        raise FolderError(f"{folder / INDEX} is damaged: its checksum is wrong; train the model again")
    with reading(folder / INDEX):
        check_about(about)
    for name, file in about["files"].items():
        if name not in ENTRIES:  # never a path out of the folder
            raise FolderError(f"{folder / INDEX} names {name!r}, which is not a file of a model folder")
        there = (folder / name).stat().st_size if (folder / name).is_file() else None
        if there != file["bytes"]:
            state = "is missing" if there is None else f"has {there} bytes instead of {file['bytes']}"
            raise FolderError(f"{path} is damaged: {name} {state}; train the model again")
    return Folder(folder, about)
