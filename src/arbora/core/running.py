"""Where fits run: the engine and the checkpoint of a block ``with arbora.running(...)``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from arbora.core.estimator import warn_caller


class Place:
    """Engine and checkpoint of a block, and which of them a fit has used; `outer` is the block around it."""

    def __init__(
        self, engine: Any, checkpoint: str | os.PathLike[str] | None, outer: Place | None = None
    ) -> None:
        self.values = {"engine": engine, "checkpoint": checkpoint}
        self.used: set[str] = set()
        self.outer = outer

    def take(self, name: str) -> Any:
        """Return a value, by default that of the outer block, and note in its block that it was used."""
        if self.values[name] is None and self.outer is not None:
            return self.outer.take(name)
        self.used.add(name)
        return self.values[name]


_place: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def running(*, engine: Any = None, checkpoint: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Run the fits of a block on an engine, or keep their progress in a folder.

    Parameters
    ----------
    engine : "threads", "ray" or an engine of `arbora.engine`, default=None
        None and "threads": threads of this process, as many as the parameter `n_jobs` of the estimator says.
    checkpoint : path, default=None
        Folder for the finished parts of a long fit. After an interruption, the same fit with the same data resumes
        there. One folder belongs to one fit: give each fit a block of its own.

    Notes
    -----
    In nested blocks, what the inner block does not give is that of the outer block. ``engine="threads"`` returns to
    threads.

    Each estimator that has only one of the two says so in its documentation. A block in which no fit used what was
    given ends with a warning. A block holds in the thread that enters it: workers of a search with
    `n_jobs`, and threads that are started within it, do not see it.

    Examples
    --------
    >>> import tempfile
    >>> import arbora
    >>> from arbora.classify import OneVsRestSVC
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], ["a", "b", "c"]
    >>> with tempfile.TemporaryDirectory() as folder, arbora.running(checkpoint=folder):
    ...     model = OneVsRestSVC(calibration=None).fit(X, y)
    """
    if isinstance(engine, type) or (isinstance(engine, str) and engine not in _ENGINES):
        raise ValueError(f"engine={engine!r}: give None, 'threads', 'ray' or an engine of arbora.engine.")
    if checkpoint is not None and (
        not isinstance(checkpoint, str | os.PathLike) or not os.fspath(checkpoint)
    ):
        raise ValueError(f"checkpoint={checkpoint!r}: give the path of a folder, or None.")
    place = Place(engine, checkpoint, _place.get())
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)
    for name, value in place.values.items():
        if not (value is None or value == "threads" or name in place.used):
            warn_caller(f"running({name}={value!r}): no fit of this block uses {_NAMES[name]}.")


_NAMES = {"engine": "an engine", "checkpoint": "a checkpoint"}
_ENGINES = "threads", "ray"


@contextmanager
def outside_blocks() -> Iterator[None]:
    """Run a fit that is a step of another fit: it sees no block, and so leaves the checkpoint of that fit alone."""
    token = _place.set(None)
    try:
        yield
    finally:
        _place.reset(token)


def running_engine() -> Any:
    """Return the engine of the block, as it was given; None outside of a block."""
    place = _place.get()
    return None if place is None else place.take("engine")


def running_checkpoint() -> str | os.PathLike[str] | None:
    """Return the folder of the block's checkpoint; None outside of a block."""
    place = _place.get()
    return None if place is None else place.take("checkpoint")
