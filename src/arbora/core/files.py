"""Atomic files and folders: a reader sees the old content or the new, never a mixture.

A file is written under a temporary name in its final folder, forced to the disk, and renamed over the old one; file
systems rename atomically.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

TEMPORARY_PREFIX = ".arbora-tmp-"

# Files that this process is writing now; they are not stray.
_under_way: set[Path] = set()
_lock = threading.Lock()


def _read_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


UMASK = _read_umask()  # read once: reading changes it for a moment, for all threads


class Hasher(Protocol):
    """The methods of a hashlib object that writers need."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Hash more bytes."""

    def digest(self) -> bytes:
        """Return the hash as bytes."""

    def hexdigest(self) -> str:
        """Return the hash as text."""


class HashingWriter:
    """A write-only stream that hashes everything written.

    It cannot seek, so archive writers write each byte once and in order.

    Parameters
    ----------
    file : binary file
        Receives the bytes.
    hasher : hashlib object
        Updated with every byte.

    Examples
    --------
    >>> import hashlib, io
    >>> from arbora.core.files import HashingWriter
    >>> target = io.BytesIO()
    >>> writer = HashingWriter(target, hashlib.sha256())
    >>> writer.write(b"abc")
    3
    >>> writer.hasher.hexdigest() == hashlib.sha256(target.getvalue()).hexdigest()
    True
    """

    def __init__(self, file: BinaryIO, hasher: Hasher) -> None:
        self.file = file
        self.hasher = hasher
        self.n_bytes = 0

    def write(self, data: bytes) -> int:
        """Write bytes and hash them."""
        self.hasher.update(data)
        self.n_bytes += len(data)
        return self.file.write(data)

    def flush(self) -> None:
        """Flush the file."""
        self.file.flush()


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, on systems that can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def temporary_file(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a temporary file in ``folder``; the block ends with removing it, unless it was published.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from arbora.core.files import publish, temporary_file
    >>> with tempfile.TemporaryDirectory() as name, temporary_file(Path(name)) as (file, path):
    ...     _ = file.write(b"done")
    ...     publish(file, path, Path(name) / "result")
    ...     (Path(name) / "result").read_bytes()
    b'done'
    """
    with _lock:  # another thread must not see the new file as stray before it is registered
        descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=folder)
        path = Path(name)
        _under_way.add(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, path
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        with _lock:
            _under_way.discard(path)


def publish(file: BinaryIO, temporary: Path, target: Path) -> None:
    """Force ``file`` to the disk and rename it to ``target``, replacing an old file of that name."""
    temporary.chmod(0o666 & ~UMASK)  # temporary files are readable by their owner only
    file.flush()
    os.fsync(file.fileno())
    file.close()  # some systems cannot rename open files
    os.replace(temporary, target)
    sync_folder(target.parent)


def remove_stray_files(folder: Path) -> None:
    """Remove temporary files of writers that died; only one process at a time may write into ``folder``."""
    with _lock:
        for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
            if path not in _under_way:
                with suppress(OSError):
                    path.unlink()


def write_synced(path: Path, fill: Callable[[HashingWriter], object]) -> HashingWriter:
    """Write a new file with a function and force it to the disk; return the writer, which has its size and hash."""
    with open(path, "wb") as file:
        writer = HashingWriter(file, hashlib.sha256())
        fill(writer)
        file.flush()
        os.fsync(file.fileno())
    return writer


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Make a temporary folder in ``parent``; the block ends with removing it, unless it was published."""
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=parent))
    folder.chmod(0o777 & ~UMASK)  # mkdtemp makes it readable by its owner only
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish_folder(temporary: Path, target: Path) -> None:
    """Rename a folder to ``target``; an old folder there is moved aside first, and back if the renaming fails."""
    sync_folder(temporary)
    if target.exists():
        with temporary_folder(target.parent) as aside:
            os.rename(target, aside / "old")
            try:
                os.rename(temporary, target)
            except BaseException:
                os.rename(aside / "old", target)
                raise
    else:
        os.rename(temporary, target)
    sync_folder(target.parent)
