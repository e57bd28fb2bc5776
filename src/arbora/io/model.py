"""Save and load models: a folder with a JSON manifest and one npz file of arrays.

::

    manifest.json                 line 1: SHA-256 of all other lines; then format, versions, the arrays file with its
                                  size and SHA-256, and the model
    arrays-<16 hex digits>.npz    all arrays, uncompressed; the name is its SHA-256

`save` writes the arrays under a new name, replaces the manifest, and then removes old arrays: at any time the folder
contains the old model or the new one. No pickle is written or read.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora._version import __version__
from arbora.arrays import Matrix
from arbora.core.files import (
    TEMPORARY_PREFIX,
    HashingWriter,
    locked_folder,
    publish,
    remove_stray_files,
    temporary_file,
)
from arbora.io.encode import Decoder, Encoder, ModelFileError
from arbora.io.npz import view_npz, write_npz

FORMAT_VERSION = 1

_FORMAT = "arbora-model"
_MANIFEST = "manifest.json"
_FIRST_LINE = re.compile(rb'\{"checksum": "([0-9a-f]{64})",')
_ARRAYS_NAME = re.compile(r"arrays-[0-9a-f]{16}\.npz")


class ArraysFile(NamedTuple):
    """The arrays file as the manifest describes it."""

    file: str
    bytes: int
    sha256: str


class Manifest(NamedTuple):
    """Content of a manifest: version of Arbora, arrays file, and the encoded model."""

    arbora: str
    arrays: ArraysFile
    model: Any


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Save a model into a folder.

    Parameters
    ----------
    model : estimator or object
        An object of a registered class (see :func:`arbora.io.register`), or a list, tuple or dict of such.
    path : str or path
        The folder; it is created if it does not exist. An existing model is replaced when the new one is completely
        on disk. A folder with other content is refused. Processes that save to one folder wait for each other.

    Raises
    ------
    TypeError
        If a value cannot be saved; the message names the attribute. Nothing is written.
    ModelFileError
        If the path is used by something else than a model of Arbora.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from arbora.io import load, save
    >>> scaler = StandardScaler().fit(np.arange(6.0).reshape(3, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(scaler, f"{folder}/model")
    ...     load(f"{folder}/model").mean_
    array([2., 3.])
    """
    folder = Path(path)
    encoder = Encoder()
    content = encoder.encode(model, "model")
    with _owned(folder), locked_folder(folder):
        arrays = _write_arrays(folder, encoder.arrays)
        _write_manifest(folder, arrays, content)
        # The new model is complete: remove the files of older ones.
        remove_stray_files(folder)
        for old in folder.glob("arrays-*.npz"):
            if old.name != arrays.file and _ARRAYS_NAME.fullmatch(old.name):
                with suppress(OSError):  # some systems cannot remove mapped files
                    old.unlink()


def load(path: str | os.PathLike[str], mmap: bool = False, verify: bool | None = None) -> Any:
    """Load a model that :func:`save` wrote; its predictions are exactly the same.

    Parameters
    ----------
    path : str or path
        The folder.
    mmap : bool
        Map the arrays read-only instead of reading them: loading is immediate, models may be larger than memory, and
        processes share the memory. The folder must not be moved.
    verify : bool, optional
        Compare the SHA-256 of the arrays with the manifest. This reads the whole file; the default is True without
        ``mmap`` and False with it: damaged values then stay unnoticed. The manifest, the size of the arrays file and
        the index arrays of sparse matrices are always checked, because wrong indices could crash the interpreter.

    Returns
    -------
    object
        The model.

    Raises
    ------
    FileNotFoundError
        If the path does not exist.
    ModelFileError
        If the folder is not a model, is damaged, was written by a newer version, or needs a class that is not
        registered.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from arbora.io import load, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save({"weights": np.ones(3)}, folder)
    ...     load(folder, mmap=True)["weights"].flags.writeable
    False
    """
    folder = Path(path)
    verify = not mmap if verify is None else verify
    manifest = _read_manifest(folder)
    try:
        buffer = _read_arrays(folder, manifest.arrays, mmap)
    except FileNotFoundError:
        # Another process may have saved a new model in between: read its manifest.
        manifest = _read_manifest(folder)
        try:
            buffer = _read_arrays(folder, manifest.arrays, mmap)
        except FileNotFoundError:
            raise ModelFileError(f"{folder} is incomplete: {manifest.arrays.file} is missing") from None
    if verify and hashlib.sha256(buffer.data).hexdigest() != manifest.arrays.sha256:
        raise ModelFileError(
            f"{folder / manifest.arrays.file} is damaged: its checksum differs from the manifest; "
            "restore it from a copy, or train the model again"
        )
    decoder = Decoder(view_npz(folder / manifest.arrays.file, buffer))
    try:
        return decoder.decode(manifest.model)
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {folder}: {error}") from error
    except Exception as error:  # a file can hold anything for any class
        raise ModelFileError(
            f"cannot load {folder}, written by Arbora {manifest.arbora} (this is {__version__}), because "
            f"its content does not fit this version: {error}"
        ) from error


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Create the folder, or check that it is a model; remove a created folder if the save fails."""
    if folder.exists() and not folder.is_dir():
        raise ModelFileError(f"{folder} is a file: give the path of a folder")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if not _is_ours(folder):
        raise ModelFileError(
            f"{folder} has files that are not a model of Arbora: nothing was changed; give an empty or new folder"
        )
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


def _is_ours(folder: Path) -> bool:
    manifest = folder / _MANIFEST
    if manifest.is_file():
        with open(manifest, "rb") as file:
            return f'"format": "{_FORMAT}"'.encode() in file.read(4096)
    # Without a manifest: an empty folder, or the files of an interrupted first save.
    return all(
        _ARRAYS_NAME.fullmatch(entry.name) or entry.name.startswith(TEMPORARY_PREFIX)
        for entry in folder.iterdir()
    )


def _write_arrays(folder: Path, arrays: dict[str, Matrix]) -> ArraysFile:
    with temporary_file(folder) as (file, temporary):
        writer = HashingWriter(file, hashlib.sha256())
        write_npz(writer, arrays)
        sha256 = writer.hasher.hexdigest()
        name = f"arrays-{sha256[:16]}.npz"
        publish(file, temporary, folder / name)
    return ArraysFile(name, writer.n_bytes, sha256)


def _write_manifest(folder: Path, arrays: ArraysFile, content: Any) -> None:
    entries = {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "arbora": __version__,
        "versions": {
            "python": platform.python_version(),
            **{package: version_of(package) for package in ("numpy", "scipy", "scikit-learn")},
        },
        "arrays": arrays._asdict(),
        "model": content,
    }
    lines = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in entries.items()
    )
    body = lines.encode("ascii") + b"\n}\n"
    with temporary_file(folder) as (file, temporary):
        file.write(f'{{"checksum": "{hashlib.sha256(body).hexdigest()}",\n'.encode())
        file.write(body)
        publish(file, temporary, folder / _MANIFEST)


def _read_manifest(folder: Path) -> Manifest:
    path = folder / _MANIFEST
    if not folder.exists():
        raise FileNotFoundError(f"there is no model at {folder}")
    if not path.is_file():
        raise ModelFileError(f"{folder} is not a model of Arbora: it has no {_MANIFEST}")
    content = path.read_bytes()
    try:
        manifest = json.loads(content)
        is_model = manifest["format"] == _FORMAT
        version = int(manifest["version"])
        writer = str(manifest["arbora"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise ModelFileError(f"{path} is damaged, or is not the manifest of a model of Arbora") from error
    if not is_model:
        raise ModelFileError(f"{path} is not the manifest of a model of Arbora")
    # Check the version first: a newer format may compute the checksum differently.
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{folder} was written by Arbora {writer} with format {version}; this Arbora ({__version__}) "
            f"reads up to {FORMAT_VERSION}: upgrade Arbora"
        )
    first, _, body = content.partition(b"\n")
    match = _FIRST_LINE.fullmatch(first)
    if match is None or match[1].decode() != hashlib.sha256(body).hexdigest():
        raise ModelFileError(
            f"{path} is damaged: its checksum is wrong; restore it from a copy, or train the model again"
        )
    try:
        arrays = ArraysFile(**manifest["arrays"])
        if not _ARRAYS_NAME.fullmatch(arrays.file):  # never a path outside the folder
            raise ValueError(f"{arrays.file!r} is not the name of an arrays file")
        return Manifest(writer, arrays, manifest["model"])
    except (ValueError, TypeError, KeyError) as error:
        raise ModelFileError(f"{path} does not describe a model: {error}") from error


def _read_arrays(folder: Path, arrays: ArraysFile, mmap: bool) -> NDArray[np.uint8]:
    path = folder / arrays.file
    size = path.stat().st_size
    if size != arrays.bytes:
        raise ModelFileError(f"{path} is damaged: it has {size} bytes, the manifest says {arrays.bytes}")
    if mmap:
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    return np.fromfile(path, dtype=np.uint8)
