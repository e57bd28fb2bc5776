"""Files that are either the old one or the new one, never half of each.

A file is written under a temporary name in the folder where it is going to live, forced to the disk, and
renamed over the old one: the one change that file systems make atomically.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

TEMPORARY_PREFIX = ".arbora-tmp-"

# Files that this process is writing at this moment: these are not stray.
_under_way: set[Path] = set()
_lock = threading.Lock()


def _read_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


UMASK = _read_umask()  # once: it can only be read by changing it, for all threads


class Hasher(Protocol):
    """The part of a hashlib object that writers need."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Hash more bytes."""

    def digest(self) -> bytes:
        """Return the hash as bytes."""

    def hexdigest(self) -> str:
        """Return the hash as text."""


class HashingWriter:
    """A write-only stream that hashes what passes through it.

    It cannot seek, which makes writers of archives write each byte once and in order.

    Parameters
    ----------
    file : binary file
        Where the bytes go.
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
        """Pass a flush on."""
        self.file.flush()


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk (where the system can do so)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def temporary_file(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a temporary file in ``folder``; it is gone after the block unless it was renamed.

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
    with _lock:  # no other thread may take the new file for a stray one before it is noted
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
    """Force ``file`` to the disk and give it its real name, replacing what had that name before."""
    temporary.chmod(0o666 & ~UMASK)  # temporary files are for their owner alone
    file.flush()
    os.fsync(file.fileno())
    file.close()  # some systems do not rename open files
    os.replace(temporary, target)
    sync_folder(target.parent)


def remove_stray_files(folder: Path) -> None:
    """Remove temporary files of writers that died; at most one process may write into ``folder``."""
    with _lock:
        for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
            if path not in _under_way:
                with suppress(OSError):
                    path.unlink()
