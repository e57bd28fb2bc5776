"""Objects in memory-mapped files: written atomically, read without copies.

An object is pickled (protocol 5) with the bytes of its arrays beside it. Arrays are read as views of the mapped file,
so that all processes of a machine share one copy, and pages that are never read take no memory. These are files of
a run, for the workers of that run; models are saved by `arbora.io`, which needs no pickle.

Layout: the number of buffers, then their lengths (unsigned 64 bit), then the buffers: the pickle, and the arrays
after it. The table and each buffer start at a multiple of 64 bytes.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from pathlib import Path
from typing import Any

from arbora.core.files import publish, temporary_file

_ALIGNMENT = 64


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def write_object(path: str | os.PathLike[str], value: Any) -> int:
    """Write an object, atomically replacing a file of that name.

    Parameters
    ----------
    path : str or path
    value : object
        Anything that pickle can hold.

    Returns
    -------
    int
        Number of bytes.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from arbora.engine.mapped import read_object, write_object
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n_bytes = write_object(f"{folder}/state", {"W": np.arange(3.0)})
    ...     read_object(f"{folder}/state")["W"].sum()
    np.float64(3.0)
    """
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    buffers = [memoryview(head), *(array.raw() for array in arrays)]
    lengths = [buffer.nbytes for buffer in buffers]
    table = struct.pack(f"<{len(buffers) + 1}Q", len(buffers), *lengths)
    target = Path(path)
    with temporary_file(target.parent) as (file, temporary):
        for buffer in (memoryview(table), *buffers):
            file.write(buffer)
            file.write(bytes(-buffer.nbytes % _ALIGNMENT))
        n_bytes = file.tell()
        publish(file, temporary, target)
    return n_bytes


def read_object(path: str | os.PathLike[str]) -> Any:
    """Read an object that `write_object` wrote; its arrays are read-only views of the file."""
    with open(path, "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    (n_buffers,) = struct.unpack_from("<Q", mapped)
    lengths = struct.unpack_from(f"<{n_buffers}Q", mapped, 8)
    buffers, begin = [], _aligned(8 * (n_buffers + 1))
    for length in lengths:
        buffers.append(mapped[begin : begin + length])
        begin += _aligned(length)
    return pickle.loads(buffers[0], buffers=buffers[1:])
