"""A run that can outlive its driver: what its shards answered, in a folder, beside the states of its workers.

A fit is deterministic: from the same data and settings, and given the same answers, a driver asks for the same steps.
So a driver that takes a run up needs no state of its own. It begins at the beginning; what the run has answered comes
from the journal, and a worker takes only those steps that are behind its last state. The answers of a step are kept
before the next one is sent, and states are written in the next one: no state is ahead of the journal.

A run is known by its common data, and every step by its arguments: another fit is never taken for the one that died.
Whoever takes up a run renames its folder: workers of the old driver that are not dead yet cannot write there any
more.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.core.shards import EngineError, Make
from arbora.engine.mapped import read_object, write_object

_LENGTH = 16  # bytes of a fingerprint


def fingerprint(*values: Any) -> str:
    """Name of what values hold, wherever they came from.

    Examples
    --------
    >>> import numpy as np
    >>> read_only = np.frombuffer(np.ones(3).tobytes())
    >>> fingerprint("a", read_only) == fingerprint("a", np.ones(3)) != fingerprint("a", np.zeros(3))
    True
    """
    digest = hashlib.blake2b(digest_size=_LENGTH)
    _feed(digest, values)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Add a value to a digest.

    A pickle would not do: it tells which of equal things are one object, and what may be written to.
    """
    kind = type(value).__qualname__
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(f"array {value.dtype.str} {value.shape};".encode())
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    elif sp.issparse(value):
        given: Any = value
        whole = given if given.format in ("csr", "csc") else given.tocsr()
        _feed(digest, (whole.format, whole.shape, whole.data, whole.indices, whole.indptr))
    elif isinstance(value, FunctionType | type):
        digest.update(f"{value.__module__}.{value.__qualname__};".encode())
    elif isinstance(value, list | tuple):
        digest.update(f"{kind} {len(value)};".encode())
        for one in value:
            _feed(digest, one)
    elif isinstance(value, dict) or hasattr(value, "__dict__"):
        items = value if isinstance(value, dict) else vars(value)
        _feed(digest, (kind, sorted(map(str, items)), *(items[name] for name in sorted(items, key=str))))
    else:
        told = pickle.dumps(value, protocol=4)
        digest.update(f"{kind} {len(told)};".encode() + told)


class Journal:
    """What a run has answered.

    Parameters
    ----------
    folder : Path
        Of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.last = folder, 0  # the last step whose answers are here
        while self._path(self.last + 1).exists():
            self.last += 1

    def _path(self, number: int) -> Path:
        return self.folder / f"step-{number}"

    def find(self, number: int, mark: str) -> list[Any] | None:
        """Answers of a step, None if it was not taken; `mark` is the fingerprint of what is asked."""
        if number > self.last:
            return None
        known, answers = read_object(self._path(number))
        if known != mark:
            raise EngineError(
                f"step {number} is not that of the run in {self.folder}: this fit is another one than that which it "
                "is to go on from. Give the same parameters, with a number as random_state and the same version of "
                "arbora; or remove that folder, to begin anew."
            )
        return list(answers)

    def keep(self, number: int, mark: str, answers: Sequence[Any]) -> None:
        """Keep the answers of the next step."""
        write_object(self._path(number), (mark, list(answers)))
        self.last = number

    def answer(self, number: int, mark: str) -> Path:
        """Where the answer to a question after a step is, or is to be."""
        return self.folder / f"answer-{number}-{mark}"


def open_journal(folder: str | os.PathLike[str], make: Make, common: Any, pieces: Sequence[Any]) -> Journal:
    """Take up the run of such shards that a folder holds, or begin one there.

    Parameters
    ----------
    folder : path
        Of any number of runs.
    make, common, pieces
        As in `RayEngine.shards`.

    Returns
    -------
    Journal
    """
    name = f"run-{fingerprint(make, common)}"
    found = sorted(
        Path(folder).resolve().glob(f"{name}-*"), key=lambda path: int(path.name.rpartition("-")[2])
    )
    about = len(pieces), fingerprint(pieces)
    if not found:
        run = Path(folder).resolve() / f"{name}-1"
        run.mkdir(parents=True)
        write_object(run / "about", about)
        return Journal(run)
    n_shards, of_pieces = read_object(found[-1] / "about")
    if (n_shards, of_pieces) != about:
        raise EngineError(
            f"the run in {found[-1]} has {n_shards} shards, and this fit {len(pieces)}, or others: give "
            f"RayEngine(n_shards={n_shards}) and the same parameters to go on with it, or remove that folder to "
            "begin anew."
        )
    run = found[-1].with_name(f"{name}-{int(found[-1].name.rpartition('-')[2]) + 1}")
    try:
        found[-1].rename(run)
    except OSError as error:
        raise EngineError(
            f"the run in {found[-1]} cannot be taken up ({error}): perhaps another process does so now."
        ) from error
    return Journal(run)
