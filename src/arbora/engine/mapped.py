"""Objects in files that are mapped into memory: written whole or not at all, read without copies.

An object goes through pickle (protocol 5) with the bytes of its arrays beside it. Arrays are read as views of the
mapped file, so that all processes of a machine share one copy, and pages that nobody looks at cost no memory. These
are files of a run, for the workers of that run; models are saved by `arbora.io`, which needs no pickle.

Layout: the number of parts, then their lengths (unsigned 64 bit), then the parts: the pickle, and the buffers behind
it. The table and each part begin at a multiple of 64 bytes.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import tempfile
from pathlib import Path
from typing import Any

_ALIGNMENT = 64


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def write_object(path: str | os.PathLike[str], value: Any) -> int:
    """Write an object; what was under that name is replaced at once or not at all.

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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n_bytes = write_object(f"{folder}/piece", {"W": np.arange(3.0)})
    ...     read_object(f"{folder}/piece")["W"].sum()
    np.float64(3.0)
    """
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    lengths = [part.nbytes for part in parts]
    table = struct.pack(f"<{len(parts) + 1}Q", len(parts), *lengths)
    target = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=".arbora-tmp-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in (memoryview(table), *parts):
                file.write(part)
                file.write(bytes(-part.nbytes % _ALIGNMENT))
            n_bytes = file.tell()
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return n_bytes


def read_object(path: str | os.PathLike[str]) -> Any:
    """Read an object that `write_object` wrote; its arrays are read-only views of the file."""
    with open(path, "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    (n_parts,) = struct.unpack_from("<Q", mapped)
    lengths = struct.unpack_from(f"<{n_parts}Q", mapped, 8)
    parts, begin = [], _aligned(8 * (n_parts + 1))
    for length in lengths:
        parts.append(mapped[begin : begin + length])
        begin += _aligned(length)
    return pickle.loads(parts[0], buffers=parts[1:])
