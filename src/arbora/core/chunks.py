"""Cut a range into consecutive chunks that depend on the data alone, never on the number of threads.

Floating point addition is not associative: statistics summed over other chunks differ in the last bits. A model that
cuts its rows here and adds in order gives the same bits with one thread and with sixty-four.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np

from arbora.arrays import Matrix

CHUNK_ROWS = 2048  # rows of a task: enough to hide the cost of a task, few enough to stay in the cache
CHUNK_ENTRIES = 1 << 20  # numbers of a temporary array: 8 MiB in double precision; larger ones were slower


def split(n: int, n_chunks: int | None = None, *, size: int | None = None, even: bool = True) -> list[slice]:
    """Cut ``range(n)`` into consecutive slices: at most `n_chunks`, or of at most `size` elements. None is empty.

    Lengths differ by at most one, the longer slices first. With `even=False` and `size`, all slices but the last have
    that length, so that they start at its multiples.

    >>> split(10, 3)
    [slice(0, 4, None), slice(4, 7, None), slice(7, 10, None)]
    >>> [chunk.stop - chunk.start for chunk in split(10, size=4)]
    [4, 3, 3]
    >>> [chunk.stop - chunk.start for chunk in split(10, size=4, even=False)]
    [4, 4, 2]
    """
    if (n_chunks is None) == (size is None):
        raise ValueError("give either n_chunks or size: split(n, n_chunks) or split(n, size=...)")
    if n < 0:
        raise ValueError(f"cannot split a range of negative length {n}")
    if size is not None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        if not even:
            return [slice(start, min(start + size, n)) for start in range(0, n, size)]
        n_chunks = -(-n // size)
    assert n_chunks is not None
    if n_chunks < 1 and n > 0:
        raise ValueError(f"n_chunks must be at least 1, got {n_chunks}")
    n_chunks = min(n_chunks, n)
    if n_chunks < 1:
        return []
    length, longer = divmod(n, n_chunks)
    starts = [chunk * length + min(chunk, longer) for chunk in range(n_chunks + 1)]
    return [slice(start, stop) for start, stop in pairwise(starts)]


def split_entries(n: int, width: int) -> list[slice]:
    """Cut ``range(n)`` into slices of at most `CHUNK_ENTRIES` numbers, each element having `width` of them."""
    return split(n, size=max(1, CHUNK_ENTRIES // max(1, width)), even=False)


def split_nonzeros(indptr: Matrix, n_chunks: int) -> list[slice]:
    """Cut the rows of a CSR array into at most ``n_chunks`` chunks with about the same number of non-zeros."""
    ends = np.searchsorted(indptr, int(indptr[-1]) * np.arange(1, n_chunks) / n_chunks)
    cuts = np.unique(np.concatenate([[0], ends, [len(indptr) - 1]]))
    return [slice(int(first), int(stop)) for first, stop in pairwise(cuts)]


# --- Estimates of memory, checked before anything is allocated ----------------------------------------------


def available_memory() -> int | None:
    """Return the bytes that can be allocated without swapping, or None if the system does not report them."""
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

    `what` needs the memory, with its sizes; `advice` tells what the user can do.

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
