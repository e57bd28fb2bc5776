"""Atomic files and folders: a reader sees the old content or the new, never a mixture.

A file is written under a temporary name in its final folder, forced to the disk, and renamed over the old one; file
systems rename atomically. A folder is exchanged with the old one, atomically on Linux; elsewhere the old one is moved
aside for a moment, and the next run moves it back if the process died in between. Temporary names carry their owner
(`arbora.core.files`): the next run removes what dead processes left.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import shutil
import socket
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, Protocol

# --- The owner of a temporary file or folder: a process, in its name ----------------------------------------
#
# A killed process leaves its temporary files behind. Their names carry a tag, so that the next run can remove them
# when the owner is dead:
#
#     .arbora-tmp-<machine>-<process id>-<start of the process>-<random>
#
# The machine (its name and its process namespace) matters on shared file systems: nothing is known about the
# processes of other machines, so their files stay. The start distinguishes a process from an older one with the
# same id, also before the last boot.


_TAG = re.compile(r"([0-9a-f]{8})-(\d{1,10})-([0-9a-f]{8})-")


def _short(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


@cache
def _machine() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return _short(f"{socket.gethostname()} {namespace}")


def _start_of(process: int) -> str:
    """Boot and start time of a process, hashed; the same text for all if the system does not report them."""
    fields = _read(f"/proc/{process}/stat").rpartition(")")[2].split()  # the name may contain blanks
    start = fields[19] if len(fields) > 19 else ""
    return _short(f"{_read('/proc/sys/kernel/random/boot_id')} {start}")


def owner_tag() -> str:
    """Tag of this process, for the name of a temporary file."""
    return f"{_machine()}-{os.getpid()}-{_start_of(os.getpid())}-"


def owner_is_dead(name: str) -> bool:
    """Whether the owner of a temporary file is known to be dead; False for names without a tag of this machine."""
    match = _TAG.search(name)
    if match is None or match[1] != _machine() or os.name != "posix":
        return False
    process = int(match[2])
    try:
        os.kill(process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # it lives, and belongs to another user
    return _start_of(process) != match[3]


def has_owner(name: str) -> bool:
    """Whether a name carries a tag."""
    return _TAG.search(name) is not None


def remove_dead_folders(parent: Path, prefix: str) -> None:
    """Remove the temporary folders of dead processes in a folder."""
    with suppress(OSError):
        for path in parent.glob(f"{prefix}*"):
            if owner_is_dead(path.name) and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)


# --- Atomic files and folders: a reader sees the old content or the new, never a mixture --------------------


TEMPORARY_PREFIX = ".arbora-tmp-"
_ASIDE_PREFIX = ".arbora-old-"  # an old folder that is being replaced
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2
_HERE = -100  # AT_FDCWD

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
    """A write-only stream that passes everything on to `file` and hashes it with `hasher`, an object of hashlib.

    It cannot seek, so archive writers write each byte once and in order.
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
    """Open a temporary file in ``folder``; the end of the block removes it, unless `publish` has moved it."""
    with _lock:  # another thread must not see the new file as stray before it is registered
        descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX + owner_tag(), dir=folder)
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
    """Remove temporary files of writers that died; those of living processes stay."""
    with _lock:
        for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
            if path not in _under_way and (owner_is_dead(path.name) or not has_owner(path.name)):
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
def locked_folder(folder: Path) -> Iterator[None]:
    """Let one process or thread at a time write into a folder; others wait. Only on systems with ``flock``."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot lock folders
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # this unlocks it


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Make a temporary folder in ``parent``; the block ends with removing it, unless it was published.

    Temporary folders that dead processes left in ``parent`` are removed first.
    """
    clean_up(parent)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX + owner_tag(), dir=parent))
    folder.chmod(0o777 & ~UMASK)  # mkdtemp makes it readable by its owner only
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean_up(parent: Path) -> None:
    """Remove what dead processes left in a folder; move old folders back that they had moved aside."""
    with suppress(OSError):
        for aside in parent.glob(f"{_ASIDE_PREFIX}*"):
            if owner_is_dead(aside.name):
                for old in aside.iterdir():
                    if not (parent / old.name).exists():
                        os.rename(old, parent / old.name)
                shutil.rmtree(aside, ignore_errors=True)
    remove_dead_folders(parent, TEMPORARY_PREFIX)


def publish_folder(temporary: Path, target: Path) -> None:
    """Rename a folder to ``target``; an old folder there is exchanged with it, and removed with the temporary one."""
    sync_folder(temporary)
    try:
        _rename_new(temporary, target)
    except FileExistsError:
        if not _exchange(temporary, target):
            _replace_folder(temporary, target)
    sync_folder(target.parent)


def _rename_new(source: Path, target: Path) -> None:
    """Rename a folder to an unused name, or over an empty folder."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise FileExistsError(error.errno, error.strerror, str(target)) from None
        raise


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders atomically; return False if the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return int(renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE)) == 0


def _replace_folder(temporary: Path, target: Path) -> None:
    """Move the old folder aside and the new one to its place; `clean_up` repairs an interruption."""
    aside = Path(tempfile.mkdtemp(prefix=_ASIDE_PREFIX + owner_tag(), dir=target.parent))
    try:
        os.rename(target, aside / target.name)
        try:
            os.rename(temporary, target)
        except BaseException:
            os.rename(aside / target.name, target)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
