"""The owner of a temporary file or folder: a process, in its name.

A killed process leaves its temporary files behind. Their names carry a tag, so that the next run can remove them when
the owner is dead:

    .arbora-tmp-<machine>-<process id>-<start of the process>-<random>

The machine (its name and its process namespace) matters on shared file systems: nothing is known about the processes
of other machines, so their files stay. The start distinguishes a process from an older one with the same id, also
before the last boot.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

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
    """Tag of this process, for the name of a temporary file.

    Examples
    --------
    >>> owner_is_dead(f".arbora-tmp-{owner_tag()}x")
    False
    """
    return f"{_machine()}-{os.getpid()}-{_start_of(os.getpid())}-"


def owner_is_dead(name: str) -> bool:
    """Whether the owner of a temporary file is known to be dead; False for names without a tag of this machine.

    Examples
    --------
    >>> owner_is_dead("anything")
    False
    """
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
