"""Open a model folder and read its parts. No pickle is read."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora._version import __version__
from arbora.app.folder.checks import check_about, check_documents, check_nodes, check_positions, reading
from arbora.app.folder.layout import (
    ARRAYS,
    DOCUMENTS,
    ENTRIES,
    EVALUATION,
    EXPANSION,
    FIRST_LINE,
    FORMAT,
    FORMAT_VERSION,
    INDEX,
    MODEL,
    NODES,
    PLAN,
    REPORT,
    TIME,
    FolderError,
)
from arbora.datasets.base import DataFormatError
from arbora.datasets.readers.npz import read_arrays
from arbora.io import load


class Folder:
    """An open model folder; each part is read when it is first used.

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
    arbora.app.folder.layout.FolderError: / is not a model folder: it has no folder.json; ...
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
