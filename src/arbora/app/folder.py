"""The model folder on the disk: a model and all that is needed to look at it.

``docs/model_folder.md`` says what is in it. A folder is written under a temporary name beside its place and renamed
when it is whole, so that whatever interrupts the work leaves the old folder or none. No pickle is written or read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora._version import __version__
from arbora.core.files import HashingWriter, publish_folder, temporary_folder, write_synced
from arbora.io import load, save
from arbora.io.npz import write_npz

FORMAT_VERSION = 1
KINDS = ("classifier", "topics", "topic tree", "topics over time")

_FORMAT = "arbora-folder"
_INDEX, _MODEL = "folder.json", "model"
_NODES, _DOCUMENTS, _ARRAYS = "nodes.json", "documents.jsonl", "arrays.npz"
_EVALUATION, _TIME, _REPORT = "evaluation.json", "time.json", "report.txt"
_ENTRIES = {_INDEX, _MODEL, _NODES, _DOCUMENTS, _ARRAYS, _EVALUATION, _TIME, _REPORT}
_FIRST_LINE = re.compile(rb'\{"checksum": "([0-9a-f]{64})",')


class FolderError(ValueError):
    """A folder is not a model folder, is damaged, or is in the way."""


class Content(NamedTuple):
    """What goes into a folder; see `docs/model_folder.md` for the parts.

    `about` joins the entries of ``folder.json`` that the writer does not know by itself: ``name``, ``settings``,
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


def check_target(path: str | os.PathLike[str]) -> Path:
    """Make sure, before any work is done, that a folder can be written to a path.

    Parameters
    ----------
    path : path
        May be free, an empty folder, or a model folder, which will be replaced.

    Returns
    -------
    Path
        The path without links.

    Examples
    --------
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
                f"{path} is not a model folder, and is not empty: nothing was touched; give a new folder"
            )
        foreign = sorted(entries - _ENTRIES)
        if foreign:
            raise FolderError(
                f"{path} is a model folder that also holds {foreign[0]!r}, which would be lost: move it away, or "
                "give another folder"
            )
    above = next(parent for parent in target.parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise FolderError(f"{path} cannot be made: {above} is not a folder that you may write to")
    return target


def _is_ours(folder: Path) -> bool:
    try:
        with open(folder / _INDEX, "rb") as file:
            return f'"format": "{_FORMAT}"'.encode() in file.read(4096)
    except OSError:
        return False


def write_folder(path: str | os.PathLike[str], content: Content) -> None:
    """Write a model folder, whole or not at all.

    Parameters
    ----------
    path : path
        As for `check_target`; folders above it are made.
    content : Content

    Examples
    --------
    >>> import tempfile
    >>> here = tempfile.mkdtemp()
    >>> nothing = np.zeros((0, 3), np.float32)
    >>> write_folder(f"{here}/m", Content("topics", {"name": "none"}, {}, [], [], nothing, nothing, "no topics"))
    >>> open_folder(f"{here}/m").about["name"]
    'none'
    """
    if content.kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {content.kind!r}")
    target = check_target(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(target.parent) as new:
        save(dict(content.model), new / _MODEL)
        arrays = {"positions": content.positions, "node_positions": content.node_positions}
        arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
        files = {
            _NODES: _write_text(new / _NODES, [_dump({"nodes": content.nodes})]),
            _DOCUMENTS: _write_text(new / _DOCUMENTS, map(_dump, content.documents)),
            _ARRAYS: _write(new / _ARRAYS, lambda writer: write_npz(writer, arrays)),
            _REPORT: _write_text(new / _REPORT, [content.report]),
        }
        for name, part in ((_EVALUATION, content.evaluation), (_TIME, content.time)):
            if part is not None:
                files[name] = _write_text(new / name, [_dump(part)])
        _write_index(new / _INDEX, content, files)
        publish_folder(new, target)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _write(path: Path, fill: Callable[[HashingWriter], object]) -> dict[str, Any]:
    """Write a file with a function and force it to the disk; return its size and checksum."""
    writer = write_synced(path, fill)
    return {"bytes": writer.n_bytes, "sha256": writer.hasher.hexdigest()}


def _write_text(path: Path, lines: Iterable[str]) -> dict[str, Any]:
    def fill(writer: HashingWriter) -> None:
        for line in lines:
            writer.write(f"{line}\n".encode("utf-8", "replace"))

    return _write(path, fill)


def full_about(content: Content) -> dict[str, Any]:
    """Tell all about a content: what it knows by itself, and what can be told from its parts.

    Examples
    --------
    >>> nothing = np.zeros((0, 3), np.float32)
    >>> full_about(Content("topics", {"name": "none"}, {}, [], [], nothing, nothing, ""))["n_nodes"]
    0
    """
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


def _write_index(path: Path, content: Content, files: dict[str, dict[str, Any]]) -> None:
    entries = {"format": _FORMAT, "version": FORMAT_VERSION, **full_about(content), "files": files}
    lines = [f"{json.dumps(key)}: {_dump(value)}" for key, value in entries.items()]
    body = ",\n".join(lines).encode("utf-8", "replace") + b"\n}\n"
    head = f'{{"checksum": "{hashlib.sha256(body).hexdigest()}",\n'.encode()
    _write(path, lambda writer: writer.write(head + body))


class Folder:
    """A model folder that was opened; its parts are read when they are first asked for.

    Attributes
    ----------
    path : Path
    about : dict
        Content of ``folder.json``.
    kind : str
        One of `KINDS`.
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
        nodes: list[dict[str, Any]] = self._json(_NODES)["nodes"]
        return nodes

    @cached_property
    def documents(self) -> list[dict[str, Any]]:
        """The sample of documents, by line."""
        # Not splitlines: a text may hold other separators of lines.
        return [json.loads(line) for line in self._bytes(_DOCUMENTS).split(b"\n") if line]

    @property
    def positions(self) -> NDArray[np.float32]:
        """Positions of the documents on the map, (n_sampled, 3)."""
        return self._arrays["positions"]

    @property
    def node_positions(self) -> NDArray[np.float32]:
        """Positions of the nodes on the map, (n_nodes, 3); NaN for nodes without documents."""
        return self._arrays["node_positions"]

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        """How well a classifier does; None for other models."""
        return self._json(_EVALUATION) if _EVALUATION in self.about["files"] else None

    @cached_property
    def time(self) -> dict[str, Any] | None:
        """Shares and words by time; None for models without it."""
        return self._json(_TIME) if _TIME in self.about["files"] else None

    @cached_property
    def report(self) -> str:
        """What the command printed when it had made the folder."""
        return self._bytes(_REPORT).decode()

    def load_model(self, mmap: bool = False) -> dict[str, Any]:
        """Load the model: "vectorizer" (None for rows of numbers) and "estimator"."""
        model: dict[str, Any] = load(self.path / _MODEL, mmap=mmap)
        return model

    @cached_property
    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        self._bytes(_ARRAYS)  # for its checksum
        with np.load(self.path / _ARRAYS, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    def _bytes(self, name: str) -> bytes:
        content = (self.path / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.about["files"][name]["sha256"]:
            raise FolderError(
                f"{self.path / name} is damaged: its checksum is not that of {_INDEX}; restore it from a copy, or "
                "make the model again"
            )
        return content

    def _json(self, name: str) -> Any:
        return json.loads(self._bytes(name))


def open_folder(path: str | os.PathLike[str]) -> Folder:
    """Open a model folder.

    Parameters
    ----------
    path : path

    Returns
    -------
    Folder

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
    if not (folder / _INDEX).is_file():
        raise FolderError(
            f"{path} is not a model folder: it has no {_INDEX}; `arbora classify train` and `discover` make one"
        )
    content = (folder / _INDEX).read_bytes()
    try:
        about = json.loads(content)
        if about["format"] != _FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        version = int(about["version"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FolderError(f"{folder / _INDEX} is damaged, or is not that of a model folder") from error
    if version > FORMAT_VERSION:
        raise FolderError(
            f"{path} was written by Arbora {about.get('arbora')} with format {version}; this Arbora ({__version__}) "
            f"reads up to {FORMAT_VERSION}: upgrade Arbora"
        )
    first, _, body = content.partition(b"\n")
    match = _FIRST_LINE.fullmatch(first)
    if match is None or match[1].decode() != hashlib.sha256(body).hexdigest():
        raise FolderError(f"{folder / _INDEX} is damaged: its checksum is wrong; make the model again")
    for name, file in about["files"].items():
        if name not in _ENTRIES:  # never a path out of the folder
            raise FolderError(f"{folder / _INDEX} names {name!r}, which is no file of a model folder")
        there = (folder / name).stat().st_size if (folder / name).is_file() else None
        if there != file["bytes"]:
            state = "is missing" if there is None else f"has {there} bytes instead of {file['bytes']}"
            raise FolderError(f"{path} is damaged: {name} {state}; make the model again")
    return Folder(folder, about)
