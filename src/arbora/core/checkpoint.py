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
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

from arbora.arrays import Matrix
from arbora.core.chunks import split
from arbora.core.estimator import warn_caller
from arbora.core.files import (
    TEMPORARY_PREFIX,
    Hasher,
    HashingWriter,
    publish,
    remove_stray_files,
    temporary_file,
)
from arbora.core.running import running_checkpoint

# --- The fingerprint of data and parameters: equal for equal content, different for different content -------
#
# Everything is hashed by SHA-256 with a tag for its kind and its length, so that ``["ab"]`` and ``["a", "b"]``
# differ. Large arrays are hashed in place, without a copy. Checkpoints and the journals of clusters use it. (A
# pickle would not do: it also records which equal objects are identical, and which arrays are writable.)


_CHUNK_BYTES = 1 << 24


def fingerprint(*things: Any) -> str:
    """Hash data and parameters into 64 hexadecimal digits.

    Parameters
    ----------
    *things : object
        Arrays, sparse matrices, numbers, strings, None, ranges, slices, paths, types, functions of a module,
        random generators; lists, tuples, sets and dicts of these; estimators (class and parameters), objects with a
        ``to_state`` method, and other objects by their attributes. The order of a dict or set does not matter, and
        NumPy scalars equal Python scalars. Arrays are compared with their dtype, byte for byte.

    Returns
    -------
    str
        The fingerprint.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.core.checkpoint import fingerprint
    >>> X = np.eye(3)
    >>> fingerprint(X, {"C": 1.0, "tol": 0.1}) == fingerprint(X.copy(), {"tol": 0.1, "C": 1.0})
    True
    >>> fingerprint(X, {"C": 1.0}) == fingerprint(X, {"C": 2.0})
    False
    """
    return _digest(things).hex()


def _digest(thing: Any) -> bytes:
    hasher = hashlib.sha256()
    _feed(hasher, thing)
    return hasher.digest()


def _tag(hasher: Hasher, kind: str, content: bytes) -> None:
    hasher.update(f"{kind}:{len(content)}:".encode())
    hasher.update(content)


def _feed(hasher: Hasher, thing: Any) -> None:
    if isinstance(thing, np.generic) and not isinstance(thing, np.void):
        thing = thing.item()
    if thing is None or isinstance(thing, bool | int | float | complex | range | slice):
        _tag(hasher, type(thing).__name__, repr(thing).encode())
    elif isinstance(thing, str):
        _tag(hasher, "str", thing.encode("utf-8", "surrogatepass"))
    elif isinstance(thing, bytes):
        _tag(hasher, "bytes", thing)
    elif isinstance(thing, np.ndarray):
        _feed_array(hasher, thing)
    elif sparse.issparse(thing):
        _feed_sparse(hasher, thing)
    elif isinstance(thing, list | tuple):
        _feed_sequence(hasher, "list" if isinstance(thing, list) else "tuple", thing)
    elif isinstance(thing, set | frozenset):
        _feed_sequence(hasher, "set", sorted(_digest(member) for member in thing))
    elif isinstance(thing, Mapping):
        _feed_sequence(hasher, "dict", sorted(_digest((key, value)) for key, value in thing.items()))
    else:
        _feed_object(hasher, thing)


def _feed_sequence(hasher: Hasher, kind: str, members: Iterable[Any]) -> None:
    members = list(members)
    _tag(hasher, kind, str(len(members)).encode())
    if set(map(type, members)) == {str}:  # a corpus or a vocabulary: hash all texts at once
        _tag(hasher, "lengths", np.fromiter(map(len, members), dtype="<i8").tobytes())
        _feed(hasher, "".join(members))
        return
    for member in members:
        _feed(hasher, member)


def _feed_array(hasher: Hasher, array: Matrix) -> None:
    if array.dtype.hasobject:
        _tag(hasher, "object array", repr(array.shape).encode())
        _feed_sequence(hasher, "members", array.ravel().tolist())
        return
    _tag(hasher, "array", f"{array.dtype.descr}{array.shape}".encode())
    if array.size == 0:
        return
    if array.ndim == 0 or array.flags.c_contiguous:
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return
    # Copied into C order a chunk at a time, so that a transposed matrix needs no second matrix.
    size = max(1, _CHUNK_BYTES * len(array) // array.nbytes) if array.nbytes else len(array)
    for chunk in split(len(array), size=size):
        hasher.update(np.ascontiguousarray(array[chunk]).reshape(-1).view(np.uint8).data)


def _feed_sparse(hasher: Hasher, matrix: Any) -> None:
    if matrix.format not in ("csr", "csc"):
        matrix = matrix.tocsr()
    _tag(hasher, matrix.format, repr(matrix.shape).encode())
    for part in (matrix.indptr, matrix.indices, matrix.data):
        _feed_array(hasher, part)


def _feed_object(hasher: Hasher, thing: Any) -> None:
    kind = thing if isinstance(thing, type) else type(thing)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(thing, type):
        _tag(hasher, "type", name.encode())
    elif isinstance(thing, FunctionType | BuiltinFunctionType | np.ufunc):
        _tag(hasher, "function", _function_name(thing).encode())
    elif isinstance(thing, PathLike):
        _tag(hasher, "path", str(thing).encode())
    elif isinstance(thing, np.dtype):
        _tag(hasher, "dtype", str(thing.descr).encode())
    elif isinstance(thing, np.random.Generator):
        _feed_sequence(hasher, name, [thing.bit_generator.state])
    elif isinstance(thing, np.random.RandomState):
        _feed_sequence(hasher, name, [thing.get_state(legacy=False)])
    elif hasattr(thing, "to_state"):
        _feed_sequence(hasher, name, [thing.to_state()])
    elif hasattr(thing, "get_params"):
        _feed_sequence(hasher, name, [thing.get_params(deep=False)])
    elif hasattr(thing, "__dict__"):
        _feed_sequence(hasher, name, [vars(thing)])
    else:
        raise TypeError(
            f"cannot take a fingerprint of {name}: give arrays, sparse matrices, numbers, strings, containers of "
            "these, estimators, or objects with a to_state method"
        )


def _function_name(function: Any) -> str:
    if isinstance(function, np.ufunc):
        return f"numpy.{function.__name__}"
    name = f"{function.__module__}.{function.__qualname__}"
    # A lambda, a local or a bound function.
    if "<" in name or getattr(function, "__self__", None) is not None:
        raise TypeError(
            f"cannot take a fingerprint of the function {name}: it has no name in a module; define it at the top of "
            "a module"
        )
    return name


# --- Checkpoints: a long fit that was interrupted resumes from its finished pieces --------------------------


_MARK = "arbora-checkpoint"
_VERSION = 2  # 2: blocks of classes have other sizes
_DIGEST_BYTES = 32
_PIECE_NAME = re.compile(r"(?P<key>.*)-[0-9a-f]{8}\.piece")


class Piece(NamedTuple):
    """Content saved under one key: named arrays, and values that JSON can hold."""

    arrays: dict[str, Matrix]
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


def _write_piece(file: BinaryIO, header: dict[str, Any], arrays: Mapping[str, Matrix]) -> None:
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
        From `arbora.core.checkpoint.fingerprint`, of the data and of every parameter that changes the
        result. A folder with another fingerprint is refused.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from arbora.core.checkpoint import Checkpoint
    >>> from arbora.core.checkpoint import fingerprint
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
            is_checkpoint = content["format"] == _MARK and content["version"] == _VERSION
            owner = content["fingerprint"]
        except (ValueError, TypeError, KeyError):
            is_checkpoint, owner = False, None
        if not is_checkpoint:
            raise CheckpointError(
                f"{mark} is damaged or from another version of Arbora: delete {self.path} to start again"
            )
        if owner != self.fingerprint:
            raise CheckpointError(
                f"the checkpoint in {self.path} belongs to other data or other parameters (fingerprint "
                f"{owner[:12]}..., this fit has {self.fingerprint[:12]}...): resume with the same data "
                "and parameters, give another folder, or delete this one to start again"
            )

    def save(self, key: str, arrays: Mapping[str, Matrix], meta: Mapping[str, Any] | None = None) -> None:
        """Write the piece named `key`, atomically replacing the piece that had this key.

        Arrays have any dtype except object; `meta` has values that JSON can hold. Threads may save different keys at
        the same time.
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
        """Read one piece; None if it was never saved, or if it is damaged (with a warning)."""
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
        """Return the keys of the pieces in the folder, sorted; only `load` verifies them."""
        matches = (_PIECE_NAME.fullmatch(path.name) for path in self.path.iterdir())
        return sorted(unquote(match["key"], errors="surrogatepass") for match in matches if match)

    def clear(self) -> None:
        """Remove all pieces and ``checkpoint.json``, and the folder if nothing else is in it.

        Call it when the fit is done. To save again, make a new checkpoint.
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


_NO_EFFECT = {"n_jobs", "verbose", "random_state"}  # on the result; the seed stands for `random_state`


def open_checkpoint(estimator: Any, *data: Any, seed: int, **instead: Any) -> Checkpoint | None:
    """Open the checkpoint of the block ``with arbora.running(checkpoint=...)`` for a fit; None without one.

    Class and parameters of the estimator identify the fit, with the seed and with `data`: everything else that the
    result depends on. The values of `instead` replace the parameters of the same names.
    """
    folder = running_checkpoint()
    if folder is None:
        return None
    params = {
        name: value for name, value in estimator.get_params(deep=False).items() if name not in _NO_EFFECT
    }
    return Checkpoint(folder, fingerprint(type(estimator).__name__, {**params, **instead}, seed, *data))
