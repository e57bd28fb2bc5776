"""Checkpoints: a long fit that was interrupted resumes from its finished pieces.

A checkpoint is a folder. ``checkpoint.json`` holds the fingerprint of the data and parameters of its fit; each piece
is one file::

    one line of JSON (key, fingerprint, meta, names of the arrays)
    the arrays, in the npy format, one after the other
    32 bytes: SHA-256 of everything before

Pieces are written atomically. A damaged piece fails its checksum and counts as missing: its work is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
from numpy.lib import format as npy

from arbora.core.estimator import warn_caller
from arbora.core.files import TEMPORARY_PREFIX, HashingWriter, publish, remove_stray_files, temporary_file

_MARK = "arbora-checkpoint"
_VERSION = 2  # 2: blocks of classes have other sizes
_DIGEST_BYTES = 32
_PIECE_NAME = re.compile(r"(?P<key>.*)-[0-9a-f]{8}\.piece")


class Piece(NamedTuple):
    """Content saved under one key: named arrays, and values that JSON can hold."""

    arrays: dict[str, np.ndarray[Any, Any]]
    meta: dict[str, Any]


class CheckpointError(ValueError):
    """The folder is not a checkpoint of this fit."""


def _piece_name(key: str) -> str:
    # The hash distinguishes keys on file systems that do not distinguish "A" from "a".
    code = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = f"{quote(key, safe='', errors='surrogatepass')}-{code}.piece"
    if not key or len(name) > 250:
        raise ValueError(f"a key must have 1 to about 200 characters, got {len(key)}: {key[:60]!r}")
    return name


def _write_piece(file: BinaryIO, header: dict[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    writer = HashingWriter(file, hashlib.sha256())
    writer.write(json.dumps(header).encode() + b"\n")
    for array in arrays.values():
        npy.write_array(writer, np.asanyarray(array), allow_pickle=False)
    file.write(writer.hasher.digest())


def _checksum_holds(file: BinaryIO) -> bool:
    remaining = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
    hasher = hashlib.sha256()
    while remaining > 0:
        block = file.read(min(remaining, 1 << 20))
        if not block:
            return False
        hasher.update(block)
        remaining -= len(block)
    return file.read() == hasher.digest()


def _read_piece(path: Path, key: str, fingerprint: str) -> Piece | None:
    """Return the piece, or None if the file is damaged or belongs to another key or fit."""
    with open(path, "rb") as file:
        # Verify the checksum before interpreting any byte.
        if not _checksum_holds(file):
            return None
        file.seek(0)
        header = json.loads(file.readline())
        if header["key"] != key or header["fingerprint"] != fingerprint:
            return None
        arrays = {name: npy.read_array(file, allow_pickle=False) for name in header["names"]}
    return Piece(arrays, header["meta"])


class Checkpoint:
    """A folder of finished pieces of one fit.

    Parameters
    ----------
    path : str or path
        The folder; created if missing. One process at a time may use it, with any number of threads.
    fingerprint : str
        From `arbora.core.storage.fingerprint.fingerprint`, of the data and of every parameter that changes the
        result. A folder with another fingerprint is refused.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from arbora.core.storage.checkpoint import Checkpoint
    >>> from arbora.core.storage.fingerprint import fingerprint
    >>> folder = tempfile.TemporaryDirectory()
    >>> name = fingerprint(np.eye(3), {"C": 1.0})
    >>> checkpoint = Checkpoint(folder.name, name)
    >>> checkpoint.save("classes 0-31", {"coef": np.ones(2)}, {"iteration": 7})
    >>> resumed = Checkpoint(folder.name, name)  # in another process, after a crash
    >>> resumed.keys()
    ['classes 0-31']
    >>> arrays, meta = resumed.load("classes 0-31")
    >>> arrays["coef"], meta["iteration"]
    (array([1., 1.]), 7)
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path = Path(path)
        self.fingerprint = fingerprint
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(
                f"{self.path} is a file, but a checkpoint needs a folder: give another path"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        remove_stray_files(self.path)
        self._claim()

    def _claim(self) -> None:
        """Mark the folder as belonging to this fit, or refuse it."""
        mark = self.path / "checkpoint.json"
        if not mark.exists():
            if any(not path.name.startswith(TEMPORARY_PREFIX) for path in self.path.iterdir()):
                raise CheckpointError(
                    f"{self.path} has files but is no checkpoint: nothing was changed; give an empty folder"
                )
            content = {"format": _MARK, "version": _VERSION, "fingerprint": self.fingerprint}
            with temporary_file(self.path) as (file, temporary):
                file.write(json.dumps(content).encode())
                publish(file, temporary, mark)
            return
        try:
            content = json.loads(mark.read_bytes())
            known = content["format"] == _MARK and content["version"] == _VERSION
            owner = content["fingerprint"]
        except (ValueError, TypeError, KeyError):
            known, owner = False, None
        if not known:
            raise CheckpointError(
                f"{mark} is damaged or from another version of Arbora: delete {self.path} to start again"
            )
        if owner != self.fingerprint:
            raise CheckpointError(
                f"the checkpoint in {self.path} belongs to other data or other parameters (fingerprint "
                f"{owner[:12]}..., this fit has {self.fingerprint[:12]}...): resume with the same data "
                "and parameters, give another folder, or delete this one to start again"
            )

    def save(
        self, key: str, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any] | None = None
    ) -> None:
        """Write one piece, atomically replacing the piece that had this key.

        Parameters
        ----------
        key : str
            Name of the piece.
        arrays : dict of str to ndarray
            Arrays of any dtype except object.
        meta : dict, optional
            Values that JSON can hold.

        Notes
        -----
        Threads may save different keys at the same time.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from arbora.core.storage.checkpoint import Checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoint = Checkpoint(folder, "a fit")
        ...     checkpoint.save("sweep", {"counts": np.arange(3)}, {"step": 1})
        ...     checkpoint.save("sweep", {"counts": np.arange(3)}, {"step": 2})
        ...     checkpoint.load("sweep").meta
        {'step': 2}
        """
        for name, array in arrays.items():
            if np.asanyarray(array).dtype.hasobject:
                raise TypeError(
                    f"array {name!r} of piece {key!r} has dtype object: encode it as numbers or as fixed-width "
                    "strings, or put it into meta"
                )
        header = {
            "key": key,
            "fingerprint": self.fingerprint,
            "names": list(arrays),
            "meta": dict(meta or {}),
        }
        target = self.path / _piece_name(key)
        with temporary_file(self.path) as (file, temporary):
            _write_piece(file, header, arrays)
            publish(file, temporary, target)

    def load(self, key: str) -> Piece | None:
        """Read one piece.

        Parameters
        ----------
        key : str
            Name of the piece.

        Returns
        -------
        Piece or None
            None if it was never saved, or if it is damaged (with a warning).

        Examples
        --------
        >>> import tempfile
        >>> from arbora.core.storage.checkpoint import Checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(Checkpoint(folder, "a fit").load("never saved"))
        None
        """
        path = self.path / _piece_name(key)
        try:
            piece = _read_piece(path, key, self.fingerprint)
        except FileNotFoundError:
            return None
        if piece is None:
            warn_caller(
                f"piece {key!r} of the checkpoint in {self.path} is damaged and is ignored: its work is done again"
            )
        return piece

    def keys(self) -> list[str]:
        """Return the keys of the pieces in the folder, sorted; only `load` verifies them.

        Examples
        --------
        >>> import tempfile
        >>> from arbora.core.storage.checkpoint import Checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Checkpoint(folder, "a fit").keys()
        []
        """
        found = (_PIECE_NAME.fullmatch(path.name) for path in self.path.iterdir())
        return sorted(unquote(match["key"], errors="surrogatepass") for match in found if match)

    def clear(self) -> None:
        """Remove all pieces and ``checkpoint.json``, and the folder if nothing else is in it.

        Call it when the fit is done. To save again, make a new checkpoint.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from arbora.core.storage.checkpoint import Checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoint = Checkpoint(Path(folder) / "fit", "a fit")
        ...     checkpoint.clear()
        ...     checkpoint.path.exists()
        False
        """
        for key in self.keys():
            (self.path / _piece_name(key)).unlink(missing_ok=True)
        remove_stray_files(self.path)
        (self.path / "checkpoint.json").unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def __contains__(self, key: str) -> bool:
        return (self.path / _piece_name(key)).exists()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, fingerprint={self.fingerprint[:12]!r}...)"
