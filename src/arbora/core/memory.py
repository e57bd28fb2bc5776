"""Estimates of memory, checked before anything is allocated."""

from __future__ import annotations

import os
from pathlib import Path


def available_memory() -> int | None:
    """Return the bytes that can be allocated without swapping, or None if the system does not report them.

    Examples
    --------
    >>> free = available_memory()
    >>> free is None or free > 0
    True
    """
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def require_memory(n_bytes: int, what: str, advice: str) -> None:
    """Raise a MemoryError if an estimate exceeds the free memory.

    Parameters
    ----------
    n_bytes : int
        Estimated need.
    what : str
        What needs the memory, with its sizes.
    advice : str
        What the user can do about it.

    Examples
    --------
    >>> require_memory(1000, "a list", "Use a shorter one.")
    >>> require_memory(10**18, "a long list", "Use a shorter one.")
    Traceback (most recent call last):
    ...
    MemoryError: a long list needs about 9.31e+08 GiB, but only ... GiB are free. Use a shorter one.
    """
    free = available_memory()
    if free is not None and n_bytes > free:
        raise MemoryError(
            f"{what} needs about {n_bytes / 2**30:.3g} GiB, but only {free / 2**30:.3g} GiB are free. {advice}"
        )
