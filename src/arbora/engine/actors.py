"""Shards in the actors of a Ray cluster: restarted when they die, and brought back to where they were.

An actor makes its shard from the common data (in the object store of its machine, or in a file that is mapped) and
then takes the steps that it is told, which are numbered. Before a step, and every `checkpoint_every` of them, it
writes its state under a new name and renames that over the old one. The driver keeps the arguments of the steps
since.

When a worker is killed, Ray starts another, which makes the shard again and reads its state. The driver asks it how
far it is and tells it the steps since, which end with the one that was cut off. Steps depend on nothing but state and
arguments: the answers have the same bits as if nothing had happened. A step that was done, but whose answer was lost,
is not taken twice: the last answer is kept. (Ray itself retries nothing: it would not know of the steps before.)
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arbora.engine.mapped import read_object, write_object
from arbora.engine.shards import EngineError, Make, Shards
from arbora.engine.threads import ThreadEngine

_MOST_DEATHS = 3  # of a worker, one after the other, without a step done
_PATIENCE = (
    5  # answers that a worker is dead before it is believed: one that is being restarted may say so too
)
_PAUSE = 0.2  # seconds between two questions whether a worker is back


class Standing(NamedTuple):
    """Where a worker is: its process, its last step, and whether it sees the folder of the run."""

    pid: int
    done: int
    sees_folder: bool


class Answer(NamedTuple):
    """What a step gave, and the last step whose state is safe on the disk."""

    result: Any
    saved: int


class Step(NamedTuple):
    """A step to be taken, and to be taken again if it comes to that."""

    number: int
    name: str
    shared: Any  # reference of the arguments that all shards get
    own: Sequence[Any]


def losses(ray: Any) -> tuple[type[Exception], ...]:
    """Errors which say that a worker, its machine, or what it was sent or answered is gone."""
    names = ("RayActorError", "ObjectLostError", "NodeDiedError", "OutOfMemoryError")
    # OwnerDiedError and ObjectReconstructionFailedError are cases of ObjectLostError.
    return tuple(getattr(ray.exceptions, name) for name in names if hasattr(ray.exceptions, name))


def count_slots(ray: Any, threads: int) -> int:
    """Count the workers of so many threads that the machines of a cluster have room for; one is never on two."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return sum(int(node["Resources"].get("CPU", 0)) // threads for node in alive)


class BehindError(Exception):
    """A worker was told a step before those that come first: it has been restarted."""


class Worker:
    """The actor: a shard, and how far it is.

    Parameters
    ----------
    make : callable
    common : object or Path
        What all shards read; a path is that of a file to be mapped.
    piece : object
    threads : int
        Of the engine that the shard works on.
    path : Path
        Where the state is kept; its folder is that of the run.
    every : int or None
        Steps between two states that are kept; None keeps none.
    """

    def __init__(
        self, make: Make, common: Any, piece: Any, threads: int, path: Path, every: int | None
    ) -> None:
        self.path, self.every = path, every
        common = read_object(common) if isinstance(common, Path) else common
        self.shard = make(common, piece, ThreadEngine(threads))
        self.done, self.answer = 0, None
        if path.exists():
            self.done, state = read_object(path)
            self.shard.restore(state)
        self.saved = self.done

    def standing(self) -> Standing:
        """Tell how far this worker is."""
        return Standing(os.getpid(), self.done, self.path.parent.exists())

    def step(self, number: int, name: str, shared: Sequence[Any], own: Sequence[Any]) -> Any:
        """Take a step, unless it has been taken."""
        if number != self.done:
            if number != self.done + 1:
                raise BehindError(f"step {number} was asked for after step {self.done}")
            if self.every is not None and self.done - self.saved >= self.every:
                write_object(self.path, (self.done, self.shard.state()))
                self.saved = self.done
            result = getattr(self.shard, name)(*shared, *own)
            self.done, self.answer = number, Answer(result, self.saved)
        return self.answer

    def ask(self, number: int, name: str, arguments: Sequence[Any]) -> Any:
        """Answer a question about the state after a step."""
        if number != self.done:
            raise BehindError(f"was asked after step {number}, and is at step {self.done}")
        return getattr(self.shard, name)(*arguments)


def _release(ray: Any, actors: list[Any], folder: Path) -> None:
    if ray.is_initialized():
        for actor in actors:
            ray.kill(actor, no_restart=True)
    shutil.rmtree(folder, ignore_errors=True)


class RayShards(Shards):
    """Shards of which each lives in an actor; made by `RayEngine.shards`.

    Attributes
    ----------
    pids : list of int
        Process of each worker, on its machine.
    n_restarts : int
        How often a worker was found to be another process than before.
    """

    def __init__(self, engine: Any, make: Make, common: Any, pieces: Sequence[Any]) -> None:
        super().__init__(len(pieces))
        self.engine, self.ray = engine, engine.connect()
        self._require_cpus()
        folder = Path(tempfile.mkdtemp(prefix="arbora-run-", dir=engine.folder)).resolve()
        self.actors: list[Any] = []
        self._close = weakref.finalize(self, _release, self.ray, self.actors, folder)
        self.number, self.n_restarts, self._lock = 0, 0, threading.Lock()
        self.log: list[list[Step]] = [[] for _ in pieces]
        self.deaths = [0] * len(pieces)
        if engine.data == "file":
            self.common: Any = folder / "common"
            write_object(self.common, common)
        else:
            self.common = self.ray.put(common)  # held: a worker that is restarted needs it again
        actor = self.ray.remote(Worker).options(
            num_cpus=engine.threads,
            max_restarts=engine.max_restarts,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        for index, piece in enumerate(pieces):
            path = folder / f"shard-{index}"
            self.actors.append(
                actor.remote(make, self.common, piece, engine.threads, path, engine.checkpoint_every)
            )
        self.pids = self._begin(folder)

    def _require_cpus(self) -> None:
        threads, have = self.engine.threads, self.ray.cluster_resources().get("CPU", 0)
        n_slots = count_slots(self.ray, threads)
        if self.n_shards > n_slots:
            raise EngineError(
                f"{self.n_shards} workers with {threads} threads each need {self.n_shards * threads} CPUs, and the "
                f"cluster has {have:g}, with room for {n_slots} such workers on its machines: give RayEngine a "
                "smaller n_shards or threads, or add machines to the cluster."
            )

    def _begin(self, folder: Path) -> list[int]:
        """Wait for all workers; see that they can do what they will have to."""
        found = [actor.standing.remote() for actor in self.actors]
        try:
            standings = self.ray.get(found, timeout=self.engine.timeout)
        except self.ray.exceptions.GetTimeoutError as error:
            self.close()
            raise EngineError(
                f"{self.n_shards} workers did not start within timeout={self.engine.timeout:g} seconds; perhaps "
                "others use the CPUs of the cluster (`ray status` tells), or the data are still on the way."
            ) from error
        except losses(self.ray) as error:
            self.close()
            raise EngineError(f"a worker could not make its shard: {error}") from error
        uses_folder = self.engine.checkpoint_every is not None or self.engine.data == "file"
        if uses_folder and not all(standing.sees_folder for standing in standings):
            self.close()
            raise EngineError(
                f"not all workers see the folder {folder}, which is to keep their states: give RayEngine a folder on "
                "a file system that all machines share, or checkpoint_every=None."
            )
        return [standing.pid for standing in standings]

    def step(self, name: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """Let every shard take one step."""
        if each is not None and len(each) != self.n_shards:
            raise ValueError(f"arguments of {len(each)} shards were given, and there are {self.n_shards}.")
        self.number += 1
        shared = self.ray.put(arguments)
        for index, log in enumerate(self.log):
            log.append(Step(self.number, name, shared, each[index] if each is not None else ()))
        futures = self._send()
        answers: dict[int, Any] = {}
        while futures:
            (ready,), _ = self.ray.wait(list(futures), num_returns=1)
            index = futures.pop(ready)
            try:
                answer = self.ray.get(ready)
            except self.ray.exceptions.RayError as error:
                self._raise_unless_lost(error, index)
                futures[self._resend(index, error)] = index
                continue
            answers[index], self.deaths[index] = answer.result, 0
            self.log[index] = [step for step in self.log[index] if step.number > answer.saved]
        return [answers[index] for index in range(self.n_shards)]

    def ask(self, shard: int, name: str, *arguments: Any) -> Any:
        """Ask one shard for something, by a method that changes nothing."""
        while True:
            try:
                return self.ray.get(self.actors[shard].ask.remote(self.number, name, arguments))
            except self.ray.exceptions.RayError as error:
                self._raise_unless_lost(error, shard)
                with self._lock:  # threads of the driver may ask at the same time
                    self._resend(shard, error)

    def close(self) -> None:
        """End the workers and remove their states."""
        self._close()

    def _send(self) -> dict[Any, int]:
        """Send the last step to all workers."""
        return {self._tell(index, log[-1]): index for index, log in enumerate(self.log)}

    def _tell(self, index: int, step: Step) -> Any:
        return self.actors[index].step.remote(*step)

    def _raise_unless_lost(self, error: Any, index: int) -> None:
        """Pass an error of the shard's own code on; one that says that its worker is gone is no such error."""
        from_task = isinstance(error, self.ray.exceptions.RayTaskError)
        reason = error.cause if from_task else error
        if isinstance(reason, (BehindError, *losses(self.ray))):
            return
        if from_task:
            reason.add_note(f"raised by shard {index} of {self.n_shards}, in step {self.number}")
            raise reason from error
        raise error

    def _resend(self, index: int, error: Exception) -> Any:
        """Bring a worker that was lost to where it was; return the answer of its last step, which is to come."""
        pid, done, _ = self._back(index, error)
        if pid != self.pids[index]:
            self.pids[index] = pid
            self.n_restarts += 1
            self.deaths[index] += 1
        elif isinstance(getattr(error, "cause", error), self.ray.exceptions.ObjectLostError):
            self.deaths[index] += 1  # what is lost again and again will not come back either
        if self.deaths[index] >= _MOST_DEATHS:
            raise EngineError(
                f"worker {index} of {self.n_shards} was lost {_MOST_DEATHS} times in step {self.number} and is given "
                "up. Most often its machine is out of memory: use more shards (n_shards) on more machines, or fewer "
                "threads. Its log is in /tmp/ray/session_latest/logs on its machine."
            ) from error
        steps = [step for step in self.log[index] if step.number > done] or self.log[index][-1:]
        return [self._tell(index, step) for step in steps][-1] if steps else None

    def _back(self, index: int, error: Exception) -> Standing:
        """Wait for a worker to be back."""
        n_dead, deadline = 0, time.monotonic() + self.engine.timeout
        while n_dead < _PATIENCE and time.monotonic() < deadline:
            try:
                left = max(_PAUSE, deadline - time.monotonic())
                return self.ray.get(self.actors[index].standing.remote(), timeout=left)
            except self.ray.exceptions.ActorDiedError as dead:
                n_dead, error = n_dead + 1, dead
            except (*losses(self.ray), self.ray.exceptions.GetTimeoutError) as away:
                error = away
            time.sleep(_PAUSE)
        raise EngineError(
            f"worker {index} of {self.n_shards} died and did not come back"
            + (
                f" (max_restarts={self.engine.max_restarts})"
                if n_dead
                else f" within {self.engine.timeout:g} seconds"
            )
            + f": {error}"
        ) from error
