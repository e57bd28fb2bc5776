"""Shards in the actors of a Ray cluster, restarted and restored when they die.

An actor builds its shard from the common data (in the object store of its machine, or in a mapped file) and then
takes numbered steps. Every `checkpoint_every` steps, before a step, it saves its state to an atomic file. The driver
keeps the arguments of the steps since the last saved state.

When a worker is killed, Ray starts another one, which builds the shard again and reads its state. The driver asks for
its last step and sends the steps since, up to the one that was interrupted. Steps depend only on state and arguments,
so the results have the same bits as without the failure. A step whose result was lost on the way is not taken twice:
the worker keeps its last answer. (Ray itself retries nothing: it does not know the earlier steps.)

When the driver dies, the workers die too. With a `journal`, another driver can resume the run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arbora.core.checkpoint import fingerprint
from arbora.core.engine import EngineError, Make, Shards
from arbora.core.files import owner_tag, remove_dead_folders
from arbora.engine.journal import Journal, open_journal, read_object, write_object
from arbora.engine.threads import ThreadEngine

if TYPE_CHECKING:
    from arbora.engine.ray import RayEngine


# --- The actor of a cluster: a shard that takes numbered steps and saves its state --------------------------


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

    `data` holds references to the common data and to the data of this shard, or paths of files to map. They are
    inside a tuple, and the driver keeps them alive: Ray frees plain arguments as soon as the actor exists, and could
    not restart it. `threads` is the number of threads of the shard's engine, `path` the file of the state, in the
    folder of the run, and `every` the number of steps between two saved states; None saves none.
    """

    def __init__(
        self, make: Make, data: tuple[Any, Any], threads: int, path: Path, every: int | None
    ) -> None:
        import ray

        self.path, self.every = path, every
        common, part = (read_object(value) if isinstance(value, Path) else ray.get(value) for value in data)
        self.shard = make(common, part, ThreadEngine(threads))
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

    def step(self, number: int, name: str, shared: Sequence[Any], of_shard: Sequence[Any]) -> Answer:
        """Take a step, or return the answer again if it was the last one taken."""
        if number != self.done or self.answer is None:
            if number != self.done + 1 and self.keeps_state:
                raise BehindError(f"received step {number} after step {self.done}")
            if self.every is not None and self.done - self.saved >= self.every:
                write_object(self.path, (self.done, self.shard.state()))
                self.saved = self.done
            result = getattr(self.shard, name)(*shared, *of_shard)
            self.done, self.answer = number, Answer(result, self.saved if self.keeps_state else number)
        return self.answer

    def ask(self, number: int, name: str, arguments: Sequence[Any]) -> Any:
        """Answer a question about the state after a step."""
        if number != self.done and self.keeps_state:
            raise BehindError(f"received a question after step {number}, but is at step {self.done}")
        return getattr(self.shard, name)(*arguments)


# --- Shards in the actors of a Ray cluster, restarted and restored when they die ----------------------------


_RUN_PREFIX = "arbora-run-"  # of the folder of a run
_MAX_DEATHS = 3  # in a row, of a worker that completes no step in between
_MAX_REPORTS = 5  # reports of death before a worker counts as dead: one that is restarting reports it too
_LOOK_EVERY = 15.0  # seconds between two checks that the workers of a running step are alive
_PAUSE = 0.2  # seconds between two checks whether a worker is back


class ShardStep(NamedTuple):
    """A step of a shard, kept so that it can be repeated."""

    number: int
    name: str
    shared: Any  # reference to the arguments that all shards get
    of_shard: Sequence[Any]


def losses(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors that mean that a worker, its machine, or an argument or result was lost."""
    names = ("RayActorError", "ObjectLostError", "NodeDiedError", "OutOfMemoryError")
    # OwnerDiedError and ObjectReconstructionFailedError are subclasses of ObjectLostError.
    return tuple(getattr(ray.exceptions, name) for name in names if hasattr(ray.exceptions, name))


def count_slots(ray: Any, threads: int) -> int:
    """Count the workers with that many threads that fit on the machines of a cluster, each on one machine."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return sum(int(node["Resources"].get("CPU", 0)) // threads for node in alive)


def _release(ray: Any, actors: list[Any], folder: Path | None) -> None:
    if ray.is_initialized():
        for actor in actors:
            ray.kill(actor, no_restart=True)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


class RayShards(Shards):
    """Shards in actors; made by `RayEngine.shards`.

    Attributes
    ----------
    pids : list of int
        Process id of each worker, on its machine.
    lives : list of str
        Names of the current lives of the workers (see `WorkerStatus`).
    n_restarts : int
        Number of restarts of workers.
    """

    def __init__(self, engine: RayEngine, make: Make, common: Any, parts: Sequence[Any]) -> None:
        super().__init__(len(parts))
        self.engine, self.ray = engine, engine.connect()
        self._require_cpus()
        self.journal: Journal | None = None
        if engine.resume and engine.folder is not None:
            self.journal = open_journal(engine.folder, make, common, parts)
        folder = self.journal.folder if self.journal is not None else self._new_folder()
        self.actors: list[Any] = []
        to_remove = folder if self.journal is None else None
        self._close = weakref.finalize(self, _release, self.ray, self.actors, to_remove)
        self.number, self.n_restarts, self._lock = 0, 0, threading.Lock()
        self.log: list[list[ShardStep]] = [[] for _ in parts]
        self.deaths = [0] * len(parts)
        self._again: list[list[Any]] = [[] for _ in parts]  # repeated steps before the last one
        self.common = self._hand_over(common, folder / "common")
        self.data = [
            (self.common, self._hand_over(part, folder / f"own-{index}")) for index, part in enumerate(parts)
        ]
        actor = self.ray.remote(
            num_cpus=engine.threads,
            max_restarts=engine.max_restarts,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            concurrency_groups={LOOK: 1},
        )(Worker)
        for index, refs in enumerate(self.data):
            path = folder / f"shard-{index}"
            self.actors.append(actor.remote(make, refs, engine.threads, path, engine.checkpoint_every))
        self.pids: list[int] = []
        try:
            statuses = self._begin(folder)
        except BaseException:
            self.close()
            raise
        self.pids, self.begun = [status.pid for status in statuses], [status.done for status in statuses]
        self.lives = [status.life for status in statuses]

    def _hand_over(self, value: Any, path: Path) -> Any:
        """Write data of workers to a file or to the object store; return its path or reference."""
        if self.engine.data != "file":
            return self.ray.put(value)
        write_object(path, value)
        return path

    def _new_folder(self) -> Path:
        if self.engine.folder is not None:
            Path(self.engine.folder).mkdir(parents=True, exist_ok=True)
        parent = Path(self.engine.folder or tempfile.gettempdir())
        remove_dead_folders(parent, _RUN_PREFIX)
        return Path(tempfile.mkdtemp(prefix=_RUN_PREFIX + owner_tag(), dir=parent)).resolve()

    def _require_cpus(self) -> None:
        threads, have = self.engine.threads, self.ray.cluster_resources().get("CPU", 0)
        n_slots = count_slots(self.ray, threads)
        if self.n_shards > n_slots:
            raise EngineError(
                f"{self.n_shards} workers with {threads} threads each need {self.n_shards * threads} CPUs, but the "
                f"cluster has {have:g}, with room for {n_slots} such workers on its machines: give RayEngine a "
                "smaller n_shards or threads, or add machines to the cluster."
            )

    def _begin(self, folder: Path) -> list[WorkerStatus]:
        """Wait for all workers; check that they see the folder and are not ahead of the journal."""
        deadline = time.monotonic() + self.engine.timeout
        statuses = [self._back(index, deadline=deadline) for index in range(self.n_shards)]
        uses_folder = self.engine.checkpoint_every is not None or self.engine.data == "file"
        if uses_folder and not all(status.sees_folder for status in statuses):
            raise EngineError(
                f"not all workers see the folder {folder}, which keeps their states: give RayEngine a folder on a "
                "file system that all machines share, or checkpoint_every=None."
            )
        if self.journal is not None and max(worker.done for worker in statuses) > self.journal.last:
            raise EngineError(
                f"the run in {folder} lacks the results of step {self.journal.last + 1}, which its workers have "
                "taken: files are missing. Delete that folder to start again."
            )
        return statuses

    def step(self, name: str, *arguments: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """Let every shard take one step; in a resumed run, only the shards that have not taken it."""
        if each is not None and len(each) != self.n_shards:
            raise ValueError(f"got arguments for {len(each)} shards, but there are {self.n_shards}.")
        self.number += 1
        recorded, mark = None, ""
        if self.journal is not None:
            mark = fingerprint(name, arguments, each)
            recorded = self.journal.find(self.number, mark)
        waiting = [k for k, begun in enumerate(self.begun) if begun < self.number]
        if waiting:
            shared = self.ray.put(arguments)
            for k in waiting:
                self.log[k].append(ShardStep(self.number, name, shared, each[k] if each is not None else ()))
        answers = self._collect(self._send(waiting))
        if recorded is not None:
            return recorded
        results = [answers[k] for k in range(self.n_shards)]
        if self.journal is not None:
            self.journal.record(self.number, mark, results)
        return results

    def _collect(self, futures: dict[Any, int]) -> dict[int, Any]:
        """Wait for the answers of a step; restore workers that are lost meanwhile."""
        answers: dict[int, Any] = {}
        while futures:
            ready, is_lost = self._first(futures, self.lives)
            index = futures.pop(ready)
            try:
                answer = self._answer(ready, is_lost)
            except (self.ray.exceptions.RayError, BehindError) as error:
                self._raise_unless_lost(error, index)
                futures[self._resend(index, error)] = index
                continue
            answers[index], self.deaths[index], self._again[index] = answer.result, 0, []
            self.log[index] = [step for step in self.log[index] if step.number > answer.saved]
        return answers

    def _first(self, futures: dict[Any, int], lives: Sequence[str]) -> tuple[Any, bool]:
        """Wait for the first answer, or for a lost one. A step may take any time while its worker is alive.

        Ray may report nothing about a call whose worker died. If the worker is in another life than when it was
        called, its answer is lost.
        """
        while True:
            ready, _ = self.ray.wait(
                list(futures), num_returns=1, timeout=min(self.engine.timeout, _LOOK_EVERY)
            )
            if ready:
                return ready[0], False
            for future, index in futures.items():
                if self._back(index).life != lives[index]:
                    return future, True

    def _answer(self, future: Any, is_lost: bool) -> Any:
        if is_lost:
            raise BehindError("the worker was restarted and its answer was lost")
        return self.ray.get(future)

    def ask(self, shard: int, name: str, *arguments: Any) -> Any:
        """Call a method of one shard that does not change its state."""
        path = None
        if self.journal is not None and self.asked_between:
            path = self.journal.answer_path(self.number, fingerprint(shard, name, arguments))
            if path.exists():
                return read_object(path)
        while True:
            lives = list(self.lives)  # another thread may find the restarted worker first
            future = self.actors[shard].ask.remote(self.number, name, arguments)
            _, is_lost = self._first({future: shard}, lives)
            try:
                answer = self._answer(future, is_lost)
            except (self.ray.exceptions.RayError, BehindError) as error:
                self._raise_unless_lost(error, shard)
                with self._lock:  # several threads of the driver may ask at the same time
                    self._resend(shard, error)
                continue
            if path is not None:
                write_object(path, answer)
            return answer

    def close(self) -> None:
        """End the workers and delete their states."""
        self._close()

    def _send(self, workers: Sequence[int]) -> dict[Any, int]:
        """Send the last step to some workers."""
        return {self._tell(index, self.log[index][-1]): index for index in workers}

    def _tell(self, index: int, step: ShardStep) -> Any:
        return self.actors[index].step.remote(*step)

    def _raise_unless_lost(self, error: Any, index: int) -> None:
        """Raise an error of the shard's own code; return if the error means that its worker was lost."""
        from_task = isinstance(error, self.ray.exceptions.RayTaskError)
        reason = error.cause if from_task else error
        if isinstance(reason, (BehindError, *losses(self.ray))):
            return
        if from_task:
            reason.add_note(f"raised by shard {index} of {self.n_shards} in step {self.number}")
            raise reason from error
        raise error

    def _resend(self, index: int, error: Exception) -> Any:
        """Restore a lost worker and send it the missing steps; return the future of the last one."""
        pid, done, _, life = self._back(index, error)
        error = self._reason(index, error)
        if life != self.lives[index]:
            self.pids[index], self.lives[index] = pid, life
            self.n_restarts += 1
            self.deaths[index] += 1
        elif isinstance(getattr(error, "cause", error), self.ray.exceptions.ObjectLostError):
            self.deaths[index] += 1  # an object that is lost repeatedly will not come back
        if self.deaths[index] >= _MAX_DEATHS:
            raise EngineError(
                f"worker {index} of {self.n_shards} was lost {_MAX_DEATHS} times in step {self.number}. Usually its "
                "machine is out of memory: use more shards (n_shards) on more machines, or fewer threads. Its log is "
                "in /tmp/ray/session_latest/logs on its machine."
            ) from error
        steps = [step for step in self.log[index] if step.number > done] or self.log[index][-1:]
        futures = [self._tell(index, step) for step in steps]
        self._again[index] = futures[:-1]
        return futures[-1] if futures else None

    def _reason(self, index: int, error: Exception) -> Exception:
        """Find why a worker is behind: a repeated step before the last one may have failed."""
        for future in self._again[index]:
            if self.ray.wait([future], timeout=0)[0]:
                try:
                    self.ray.get(future)
                except self.ray.exceptions.RayError as earlier:
                    self._raise_unless_lost(earlier, index)
                    return earlier  # type: ignore[no-any-return]
        return error

    def _back(
        self, index: int, error: Exception | None = None, deadline: float | None = None
    ) -> WorkerStatus:
        """Wait until a worker has started or restarted; return its status."""
        n_dead, deadline = 0, deadline or time.monotonic() + self.engine.timeout
        while n_dead < _MAX_REPORTS and (left := deadline - time.monotonic()) > 0:
            look = self.actors[index].status.options(concurrency_group=LOOK).remote()
            try:
                status: WorkerStatus = self.ray.get(look, timeout=left)
                return status
            except self.ray.exceptions.ActorDiedError as dead:
                n_dead, error = n_dead + 1, dead
                if getattr(dead, "actor_init_failed", False):
                    raise EngineError(f"worker {index} could not build its shard: {dead}") from dead
            except (*losses(self.ray), self.ray.exceptions.GetTimeoutError) as failure:
                error = failure
            time.sleep(_PAUSE)
        raise EngineError(self._absence(index, n_dead > 0, error)) from error

    def _absence(self, index: int, is_dead: bool, error: Exception | None) -> str:
        """Describe why a worker is not available."""
        who, timeout = f"worker {index} of {self.n_shards}", f"timeout={self.engine.timeout:g} seconds"
        if is_dead:
            return f"{who} died and was not restarted (max_restarts={self.engine.max_restarts}): {error}"
        if not self.pids:
            return (
                f"{who} did not start within {timeout}; perhaps the CPUs of the cluster are in use (see `ray "
                "status`), or the data are still being sent."
            )
        return f"{who} did not restart within {timeout}: {error} Perhaps no machine has free CPUs (see `ray status`)."
