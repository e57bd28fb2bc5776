"""Write a model folder, completely or not at all.

A folder is written under a temporary name beside its target and renamed when it is complete: an interruption leaves
the old folder or none. No pickle is written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from arbora.app.folder.layout import (
    ARRAYS,
    DOCUMENTS,
    ENTRIES,
    EVALUATION,
    EXPANSION,
    FORMAT,
    FORMAT_VERSION,
    INDEX,
    KINDS,
    MODEL,
    NODES,
    PLAN,
    REPORT,
    TIME,
    Content,
    FolderError,
    full_about,
)
from arbora.core.files import HashingWriter, publish_folder, temporary_folder, write_synced
from arbora.io import save
from arbora.io.npz import write_npz


def check_target(path: str | os.PathLike[str]) -> Path:
    """Check, before the long work, that a model folder can be written to a path.

    Parameters
    ----------
    path : path
        Unused, an empty folder, or a model folder, which will be replaced.

    Returns
    -------
    Path
        The path with links resolved.

    Examples
    --------
    >>> import tempfile
    >>> check_target(tempfile.gettempdir())
    Traceback (most recent call last):
        ...
    arbora.app.folder.layout.FolderError: ... is not a model folder, and is not empty: ...
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
