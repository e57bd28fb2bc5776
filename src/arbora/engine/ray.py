"""The engine of a Ray cluster: its settings and its connection; the workers are in `actors`."""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from arbora.arrays import Matrix
from arbora.core.engine import Engine, EngineError, Make, Shards, SupportsUpdate, check_needs
from arbora.core.running import running_engine
from arbora.engine.actors import RayShards, count_slots
from arbora.engine.threads import ThreadEngine

Item = TypeVar("Item")
Result = TypeVar("Result")

_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
_ANSWER = 10.0  # seconds to wait for an address to answer
# Addresses by which clusters were reached, and the clusters' own addresses.
_reached: dict[str, str | None] = {}


def import_ray() -> Any:
    """Import Ray, or explain how to install it."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "engine='ray' needs Ray, which is not installed: pip install 'arbora[ray]', or use threads."
        ) from error
    return ray


def start_here(n_cpus: int, **options: Any) -> None:
    """Start a cluster on this machine that ends with this process; on a busy machine, at the second attempt."""
    ray = import_ray()
    for is_last in (False, True):
        try:
            # "local": otherwise Ray looks for a running cluster, and may find the remains of a dead one.
            ray.init(address="local", num_cpus=n_cpus, include_dashboard=False, **_QUIET, **options)
            return
        except Exception as error:
            ray.shutdown()
            if is_last:
                raise EngineError(
                    f"could not start Ray on this machine: {error} Its logs are in "
                    "/tmp/ray/session_latest/logs; engine='threads' needs no Ray."
                ) from error


def _require_answer(address: str) -> None:
    """Refuse an address where no cluster listens; Ray itself would retry for a long time and end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto" and "local" are names that Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
    except OSError as error:
        raise EngineError(
            f"no Ray cluster answers at {address!r} ({error}): start one there with `ray start --head "
            f"--port={port}`, check its address with `ray status`, or use address=None to start one here."
        ) from error


def _where(ray: Any) -> str | None:
    """Return the address of the cluster that this process is connected to, or None if unknown."""
    try:
        return str(ray.get_runtime_context().gcs_address)
    except AttributeError:  # a client, behind a proxy
        return None


def _addresses(host: str, here: str) -> set[str]:
    """Resolve a host name; loopback addresses become the address of this machine."""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return {host}
    return {here if address == "::1" or address.startswith("127.") else address for address in addresses}


def _require_same(ray: Any, address: str) -> None:
    """Refuse an address if this process is connected to another cluster."""
    here = _where(ray)
    host, _, port = address.rpartition(":")
    if here is None or not port.isdigit() or _reached.get(address) == here:
        return  # "auto" and "local" are any cluster
    its_host, _, its_port = here.rpartition(":")
    address_here = ray.util.get_node_ip_address()
    if port != its_port or not _addresses(host, address_here) & _addresses(its_host, address_here):
        raise EngineError(
            f"address={address!r}, but this process is connected to the Ray cluster at {here!r}: use address=None to "
            "use that cluster, or disconnect with `ray.shutdown()` first."
        )


def _base(array: Any, kind: type) -> Any:
    """Find the object of a type that an array is a view of, or None."""
    while array is not None and not isinstance(array, kind):
        array = getattr(array, "base", None)
    return array


class RayEngine:
    """Engine that keeps the shards of a model on the workers of a Ray cluster; `map` uses threads of this process.

    Parameters
    ----------
    address : str, optional
        Address of a running cluster: "auto" for the one of this machine, "host:6379", "ray://host:10001". Default:
        the cluster that this process is connected to, else that of the variable RAY_ADDRESS, else a new one on this
        machine that ends with this process.
    n_shards : int, optional
        Number of workers. Default: as many as the CPUs of the machines allow.
    threads : int
        Threads of a worker, and CPUs that it requests.
    folder : path, optional
        Folder for the states of the workers during a fit, in a subfolder that is deleted at the end. All machines of
        the cluster must see it. Default: a temporary folder, which suits a cluster on one machine.
    checkpoint_every : int or None
        Number of steps (waves of blocks, or iterations) between two saved states. None saves none: a restarted worker
        then repeats all steps, and the driver keeps the arguments of all of them.
    resume : bool
        Whether a run can be resumed after the death of this process. Results and states then stay in `folder`, which
        is required, and a fit of the same data with the same settings resumes there. Delete the folder when you have
        the model.
    data : {"store", "file"}
        How data reach the workers: through the object store of Ray, or through mapped files in `folder`, which need
        not fit into memory.
    weights : path, optional
        Folder for models that are larger than the memory of this process. Weights arrive shard by shard in a file
        there, and the model maps it. `arbora.io.save` copies the weights; then the file can be deleted.
    max_restarts : int
        Most restarts of a worker; -1 means any number. A worker that dies three times without completing a step ends
        the fit in any case.
    timeout : float
        Seconds to wait for workers to start or restart.
    n_jobs : int, optional
        Threads of this process; an estimator's `n_jobs`, if not None, takes precedence.

    Examples
    --------
    >>> RayEngine(address="10.0.0.1:6379", n_shards=64, folder="/shared/scratch")
    RayEngine(address='10.0.0.1:6379', n_shards=64, folder='/shared/scratch')
    """

    shares_memory = False

    def __init__(
        self,
        address: str | None = None,
        *,
        n_shards: int | None = None,
        threads: int = 1,
        folder: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = 10,
        resume: bool = False,
        data: str = "store",
        weights: str | os.PathLike[str] | None = None,
        max_restarts: int = -1,
        timeout: float = 300.0,
        n_jobs: int | None = None,
    ) -> None:
        for name, value, least in (
            ("n_shards", n_shards, 1),
            ("threads", threads, 1),
            ("checkpoint_every", checkpoint_every, 1),
            ("max_restarts", max_restarts, -1),
        ):
            if value is not None and not (isinstance(value, int) and value >= least):
                raise ValueError(f"{name}={value!r}: give a whole number of at least {least}.")
        if data not in ("store", "file"):
            raise ValueError(f"data={data!r}: choose 'store' or 'file'.")
        if resume and (folder is None or checkpoint_every is None):
            raise ValueError(
                f"resume=True with folder={folder!r} and checkpoint_every={checkpoint_every!r}: a run resumes from "
                "the saved states of its workers; give a permanent folder and a number of steps."
            )
        self.address, self.n_shards_given, self.threads = address, n_shards, threads
        self.folder = None if folder is None else os.fspath(folder)
        self.checkpoint_every, self.resume, self.data = checkpoint_every, bool(resume), data
        self.weights = None if weights is None else os.fspath(weights)
        self.max_restarts, self.timeout, self.n_jobs = max_restarts, timeout, n_jobs
        self._threads = ThreadEngine(n_jobs)

    def to_state(self) -> dict[str, Any]:
        """Return the settings, which `arbora.io` saves."""
        return {
            "address": self.address,
            "n_shards": self.n_shards_given,
            "threads": self.threads,
            "folder": self.folder,
            "checkpoint_every": self.checkpoint_every,
            "resume": self.resume,
            "data": self.data,
            "weights": self.weights,
            "max_restarts": self.max_restarts,
            "timeout": self.timeout,
            "n_jobs": self.n_jobs,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Make an engine from its settings."""
        return cls(**state)

    def with_jobs(self, n_jobs: int | None) -> Self:
        """Return an engine with the same settings but another number of threads in this process."""
        return type(self)(**{**self.to_state(), "n_jobs": n_jobs})

    @property
    def keeps_weights_in_files(self) -> bool:
        """Whether `zeros` returns arrays that are mapped files."""
        return self.weights is not None

    @property
    def n_workers(self) -> int:
        """Number of threads of this process."""
        return self._threads.n_workers

    @property
    def n_shards(self) -> int:
        """Number of workers: the given one, or as many as the CPUs of the machines allow."""
        if self.n_shards_given is not None:
            return self.n_shards_given
        return max(1, count_slots(self.connect(), self.threads))

    def bytes_here(self, n_bytes: int) -> int:
        """Bytes of this process that shards of `n_bytes` take: none, they live on the workers."""
        return 0

    def connect(self) -> Any:
        """Connect this process to the cluster if necessary; return the module `ray`."""
        ray = import_ray()
        if ray.is_initialized():
            if self.address is not None:
                _require_same(ray, self.address)
            return ray
        address = self.address or os.environ.get("RAY_ADDRESS")
        if address is None:
            n_cpus = max(os.cpu_count() or 1, self.threads * (self.n_shards_given or 1))
            start_here(n_cpus)
            return ray
        _require_answer(address)
        try:
            ray.init(address=address, **_QUIET)
        except (Exception, SystemExit) as error:
            raise EngineError(
                f"cannot connect to a Ray cluster at {address!r}: {error}. Check it with `ray status --address="
                f"{address}`. Its version of Ray must equal the one here ({ray.__version__}). If it asks for a "
                "token, set RAY_AUTH_MODE=token here and put the token into ~/.ray/auth_token."
            ) from error
        _reached[address] = _where(ray)
        return ray

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None = None,
    ) -> list[Result]:
        """Apply ``function`` to every item on threads of this process; see `ThreadEngine.map`."""
        return self._threads.map(function, items, progress)

    def imap(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        progress: SupportsUpdate | None = None,
        look_ahead: int | None = None,
    ) -> Iterator[Result]:
        """Apply ``function`` lazily on threads of this process; see `ThreadEngine.imap`."""
        return self._threads.imap(function, items, progress, look_ahead)

    def sum(
        self, function: Callable[[Item], Any], items: Iterable[Item], progress: SupportsUpdate | None = None
    ) -> Any:
        """Add up ``function(item)`` on threads of this process; see `ThreadEngine.sum`."""
        return self._threads.sum(function, items, progress)

    def shards(self, make: Make, common: Any, parts: Sequence[Any]) -> Shards:
        """Make resident shards on the workers.

        Parameters
        ----------
        make : callable
            Builds a shard: ``make(common, own_data, engine)``. A function or class of a module that the workers have.
        common : object
            Data that all shards read and none writes. Its arrays arrive read-only.
        own : sequence
            Data of each shard.

        Returns
        -------
        RayShards
        """
        return RayShards(self, make, common, parts)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Matrix:
        """Return an array of zeros for the weights of a model, in memory or in a file of the folder `weights`."""
        if self.weights is None:
            return np.zeros(shape, dtype)
        Path(self.weights).mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="weights-", suffix=".npy", dir=self.weights)
        os.close(descriptor)
        return np.asarray(np.lib.format.open_memmap(name, "w+", dtype, shape))

    def settle(self, weights: Matrix) -> None:
        """Release the memory of the written pages of an array from `zeros`; the system writes them to the file."""
        mapped = _base(weights, mmap.mmap)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)

    def discard(self, weights: Matrix) -> None:
        """Unlink the file of an array from `zeros`. The array stays valid until it is freed."""
        base = _base(weights, np.memmap)
        if base is not None:
            Path(str(base.filename)).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self._threads.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.__exit__(kind, error, traceback)

    def __getstate__(self) -> dict[str, Any]:
        return self.to_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RayEngine) and self.to_state() == other.to_state()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        default = RayEngine().to_state()
        changed = {name: value for name, value in self.to_state().items() if value != default[name]}
        return f"RayEngine({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


# --- The engine of a fit ------------------------------------------------------------------------------------


def engine_for(
    n_jobs: int | None, method: str, needs: Iterable[str] = (), advice: str = "use threads"
) -> Engine:
    """Return the engine of a fit: that of the block ``with arbora.running(engine=...)``, or threads.

    Parameters
    ----------
    n_jobs : int, optional
        Number of threads in this process. None keeps the number of a given engine.
    method : str
        The method that will run, in the user's words: the name of the estimator, or ``"solver='dual'"``.
    needs : iterable of str
        Attributes of the engine that the method needs (see `arbora.core.engine.check_needs`).
    advice : str
        What to do if the engine lacks them.

    Examples
    --------
    >>> import arbora
    >>> from arbora.engine import engine_for
    >>> engine_for(2, "VMFMixture")
    ThreadEngine(n_jobs=2)
    >>> with arbora.running(engine="ray"):
    ...     engine_for(2, "VMFMixture")
    RayEngine(n_jobs=2)
    """
    setting = running_engine()
    engine: Engine = ThreadEngine(n_jobs)
    if setting == "ray":
        engine = RayEngine(n_jobs=n_jobs)
    elif hasattr(setting, "shards"):
        engine = setting if n_jobs is None else setting.with_jobs(n_jobs)
    elif setting not in (None, "threads"):
        raise ValueError(f"engine={setting!r}: give 'threads', 'ray' or an engine of arbora.engine.")
    check_needs(method, engine, needs, advice)
    return engine
