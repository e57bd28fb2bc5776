"""The actor of a cluster: a shard that takes numbered steps and saves its state."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arbora.core.engine import Make
from arbora.engine.mapped import read_object, write_object
from arbora.engine.threads import ThreadEngine

LOOK = "look"  # concurrency group of the actor that answers while a step runs


class WorkerStatus(NamedTuple):
    """Status of a worker: its process, its last step, whether it sees the folder of the run, and its life.

    A worker that is restarted starts a new life with a new name. Process ids are not unique across machines.
    """

    pid: int
    done: int
    sees_folder: bool
    life: str


class Answer(NamedTuple):
    """The result of a step, and the last step whose state is on the disk."""

    result: Any
    saved: int


class BehindError(Exception):
    """A worker received a step too early: it was restarted and lacks the steps before."""


class Worker:
    """The actor: a shard, and the number of its last step.

    Parameters
    ----------
    make : callable
    given : tuple
        References to the common data and to the data of this shard, or paths of files to map. They are inside a
        tuple, and the driver keeps them alive: Ray frees plain arguments as soon as the actor exists, and could not
        restart it.
    threads : int
        Number of threads of the shard's engine.
    path : Path
        File of the state; its folder is that of the run.
    every : int or None
        Number of steps between two saved states; None saves none.
    """

    def __init__(
        self, make: Make, given: tuple[Any, Any], threads: int, path: Path, every: int | None
    ) -> None:
        import ray

        self.path, self.every = path, every
        common, own = (read_object(one) if isinstance(one, Path) else ray.get(one) for one in given)
        self.shard = make(common, own, ThreadEngine(threads))
        self.done, self.life = 0, uuid.uuid4().hex
        self.keeps_state = getattr(self.shard, "keeps_state", True)
        self.answer: Answer | None = None
        if path.exists():
            self.done, state = read_object(path)
            self.shard.restore(state)
        self.saved = self.done

    def status(self) -> WorkerStatus:
        """Return the status of this worker."""
        return WorkerStatus(os.getpid(), self.done, self.path.parent.exists(), self.life)

    def step(self, number: int, name: str, shared: Sequence[Any], own: Sequence[Any]) -> Answer:
        """Take a step, or return the answer again if it was the last one taken."""
        if number != self.done or self.answer is None:
            if number != self.done + 1 and self.keeps_state:
                raise BehindError(f"received step {number} after step {self.done}")
            if self.every is not None and self.done - self.saved >= self.every:
                write_object(self.path, (self.done, self.shard.state()))
                self.saved = self.done
            result = getattr(self.shard, name)(*shared, *own)
            self.done, self.answer = number, Answer(result, self.saved if self.keeps_state else number)
        return self.answer

    def ask(self, number: int, name: str, arguments: Sequence[Any]) -> Any:
        """Answer a question about the state after a step."""
        if number != self.done and self.keeps_state:
            raise BehindError(f"received a question after step {number}, but is at step {self.done}")
        return getattr(self.shard, name)(*arguments)
