"""The journal of a resumable run: the results of its shards, in a folder, beside the states of its workers.

A fit is deterministic: given the same data, settings and results, a driver requests the same steps. So a driver that
resumes a run needs no state of its own. It starts from the beginning and takes the recorded results from the journal;
each worker takes only the steps after its last saved state. The results of a step are recorded before the next step
is sent, and workers save their states in the next step, so no state is ahead of the journal.

A run is identified by the fingerprint of its common data, and each step by that of its arguments: a fit never resumes
the run of another fit. A driver that resumes a run renames its folder, so that workers of the old driver that are
still alive cannot write there any more.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arbora.core.checkpoint import fingerprint
from arbora.core.engine import EngineError, Make
from arbora.core.files import publish, temporary_file

# --- Objects in memory-mapped files: written atomically, read without copies --------------------------------
#
# An object is pickled (protocol 5) with the bytes of its arrays beside it. Arrays are read as views of the mapped
# file, so that all processes of a machine share one copy, and pages that are never read take no memory. These are
# files of a run, for the workers of that run; models are saved by `arbora.io`, which needs no pickle.
#
# Layout: the number of buffers, then their lengths (unsigned 64 bit), then the buffers: the pickle, and the arrays
# after it. The table and each buffer start at a multiple of 64 bytes.


_ALIGNMENT = 64


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def write_object(path: str | os.PathLike[str], value: Any) -> int:
    """Write an object that pickle can hold, atomically replacing a file of that name; return the number of bytes."""
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


# --- The journal of a resumable run: the results of its shards, in a folder, beside the states of its workers ---


class Journal:
    """The recorded results of a run, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.last = folder, 0  # the last recorded step
        while self._path(self.last + 1).exists():
            self.last += 1

    def _path(self, number: int) -> Path:
        return self.folder / f"step-{number}"

    def find(self, number: int, mark: str) -> list[Any] | None:
        """Return the results of a step, or None if it was not taken; `mark` is the fingerprint of its arguments."""
        if number > self.last:
            return None
        recorded, results = read_object(self._path(number))
        if recorded != mark:
            raise EngineError(
                f"step {number} differs from the run in {self.folder}: this is another fit. To resume that run, use "
                "the same parameters, a number as random_state and the same version of arbora; to start again, "
                "delete that folder."
            )
        return list(results)

    def record(self, number: int, mark: str, results: Sequence[Any]) -> None:
        """Record the results of the next step."""
        write_object(self._path(number), (mark, list(results)))
        self.last = number

    def answer_path(self, number: int, mark: str) -> Path:
        """Return the path for the answer to a question after a step."""
        return self.folder / f"answer-{number}-{mark}"


def open_journal(folder: str | os.PathLike[str], make: Make, common: Any, parts: Sequence[Any]) -> Journal:
    """Resume the run of these shards in a folder of any number of runs, or start one there.

    `make`, `common` and `own` are those of `RayEngine.shards`.
    """
    name = f"run-{fingerprint(make, common)}"
    journals = sorted(
        Path(folder).resolve().glob(f"{name}-*"), key=lambda path: int(path.name.rpartition("-")[2])
    )
    about = len(parts), fingerprint(parts)
    if not journals:
        run = Path(folder).resolve() / f"{name}-1"
        run.mkdir(parents=True)
        write_object(run / "about", about)
        return Journal(run)
    n_shards, of_own = read_object(journals[-1] / "about")
    if (n_shards, of_own) != about:
        raise EngineError(
            f"the run in {journals[-1]} has {n_shards} shards, but this fit has {len(parts)}, or others: to resume "
            f"it, use RayEngine(n_shards={n_shards}) and the same parameters; to start again, delete that folder."
        )
    run = journals[-1].with_name(f"{name}-{int(journals[-1].name.rpartition('-')[2]) + 1}")
    try:
        journals[-1].rename(run)
    except OSError as error:
        raise EngineError(
            f"cannot resume the run in {journals[-1]} ({error}): perhaps another process is resuming it."
        ) from error
    return Journal(run)
