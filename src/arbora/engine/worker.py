"""The actor of a cluster: a shard, which takes numbered steps and keeps its state."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arbora.core.shards import Make
from arbora.engine.mapped import read_object, write_object
from arbora.engine.threads import ThreadEngine

LOOK = "look"  # the threads of an actor that answer while a step is taken


class Standing(NamedTuple):
    """Where a worker is: its process, its last step, whether it sees the folder of the run, and its name.

    The name is that of one life of the worker. The number of a process is not: on another machine it may be the same.
    """

    pid: int
    done: int
    sees_folder: bool
    life: str


class Answer(NamedTuple):
    """What a step gave, and the last step whose state is safe on the disk."""

    result: Any
    saved: int


class BehindError(Exception):
    """A worker was told a step before those that come first: it has been restarted."""


class Worker:
    """The actor: a shard, and how far it is.

    Parameters
    ----------
    make : callable
    given : tuple
        References of what all shards read (or the path of a file of it, to be mapped) and of the piece of this one.
        They are inside of a tuple, and the driver holds on to them: Ray lets go of arguments as soon as the actor is
        there, and could not make it again.
    threads : int
        Of the engine that the shard works on.
    path : Path
        Where the state is kept; its folder is that of the run.
    every : int or None
        Steps between two states that are kept; None keeps none.
    """

    def __init__(
        self, make: Make, given: tuple[Any, Any], threads: int, path: Path, every: int | None
    ) -> None:
        import ray

        self.path, self.every = path, every
        common, piece = (read_object(one) if isinstance(one, Path) else ray.get(one) for one in given)
        self.shard = make(common, piece, ThreadEngine(threads))
        self.done, self.life = 0, uuid.uuid4().hex
        self.keeps_state = getattr(self.shard, "keeps_state", True)
        self.answer: Answer | None = None
        if path.exists():
            self.done, state = read_object(path)
            self.shard.restore(state)
        self.saved = self.done

    def standing(self) -> Standing:
        """Tell how far this worker is."""
        return Standing(os.getpid(), self.done, self.path.parent.exists(), self.life)

    def step(self, number: int, name: str, shared: Sequence[Any], own: Sequence[Any]) -> Answer:
        """Take a step, unless it has been taken."""
        if number != self.done or self.answer is None:
            if number != self.done + 1 and self.keeps_state:
                raise BehindError(f"step {number} was asked for after step {self.done}")
            if self.every is not None and self.done - self.saved >= self.every:
                write_object(self.path, (self.done, self.shard.state()))
                self.saved = self.done
            result = getattr(self.shard, name)(*shared, *own)
            self.done, self.answer = number, Answer(result, self.saved if self.keeps_state else number)
        return self.answer

    def ask(self, number: int, name: str, arguments: Sequence[Any]) -> Any:
        """Answer a question about the state after a step."""
        if number != self.done and self.keeps_state:
            raise BehindError(f"was asked after step {number}, and is at step {self.done}")
        return getattr(self.shard, name)(*arguments)
