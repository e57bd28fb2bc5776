"""The engine of a Ray cluster: its settings, and how this process gets in touch with it (the rest is in `actors`)."""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.core.shards import EngineError, Make
from arbora.engine.actors import RayShards, count_slots
from arbora.engine.threads import ThreadEngine

_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
_ANSWER = 10.0  # seconds for an address to answer at all
_reached: dict[str, str | None] = {}  # by which addresses clusters were reached, and their own


def import_ray() -> Any:
    """Import Ray, or say how to get it."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "engine='ray' needs Ray, which is not installed: pip install 'arbora[ray]', or leave engine=None for "
            "threads."
        ) from error
    return ray


def start_here(n_cpus: int, **more: Any) -> None:
    """Start a cluster on this machine, which ends with this process; where all is busy, at the second attempt."""
    ray = import_ray()
    for is_last in (False, True):
        try:
            # "local": else Ray would look for a cluster that was started here, and find what one left that is gone.
            ray.init(address="local", num_cpus=n_cpus, include_dashboard=False, **_QUIET, **more)
            return
        except Exception as error:
            ray.shutdown()
            if is_last:
                raise EngineError(
                    f"Ray could not be started on this machine: {error} Its logs are in "
                    "/tmp/ray/session_latest/logs; engine=None needs no Ray."
                ) from error


def _require_answer(address: str) -> None:
    """Refuse an address at which nobody listens; Ray itself would try for a long time and end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto" and "local" are names that Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
    except OSError as error:
        raise EngineError(
            f"no Ray cluster answers at {address!r} ({error}): start one there with `ray start --head "
            f"--port={port}`, look at its address with `ray status`, or leave address=None to start one "
            "here."
        ) from error


def _where(ray: Any) -> str | None:
    """Address of the cluster to which this process is connected, None if it does not tell."""
    try:
        return str(ray.get_runtime_context().gcs_address)
    except AttributeError:  # a client, behind a proxy
        return None


def _addresses(host: str, own: str) -> set[str]:
    """Addresses that a name stands for; all by which a machine calls itself are its own."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return {host}
    return {own if address == "::1" or address.startswith("127.") else address for address in found}


def _require_same(ray: Any, address: str) -> None:
    """Refuse the address of another cluster than the one to which this process is connected."""
    here = _where(ray)
    host, _, port = address.rpartition(":")
    if here is None or not port.isdigit() or _reached.get(address) == here:
        return  # "auto" and "local" are any cluster
    its_host, _, its_port = here.rpartition(":")
    own = ray.util.get_node_ip_address()
    if port != its_port or not _addresses(host, own) & _addresses(its_host, own):
        raise EngineError(
            f"address={address!r}, but this process is connected to the Ray cluster at {here!r}: leave address=None "
            "to use that one, or leave it with `ray.shutdown()` first."
        )


def _base(array: Any, kind: type) -> Any:
    """Find what an array is a view of, if there is something of that kind."""
    while array is not None and not isinstance(array, kind):
        array = getattr(array, "base", None)
    return array


class RayEngine(ThreadEngine):
    """Keeps the shards of a model on the workers of a Ray cluster; all else runs on threads of this process.

    Parameters
    ----------
    address : str, optional
        Of a running cluster: "auto" for the one of this machine, "host:6379", "ray://host:10001". By default the one
        to which this process is connected, else the one that the variable RAY_ADDRESS names, else a new one on this
        machine, which ends with this process.
    n_shards : int, optional
        Number of workers; by default as many as the CPUs of its machines allow.
    threads : int
        Threads of a worker, and CPUs that it asks the cluster for.
    folder : path, optional
        Where the states of the workers are kept while a fit lasts, in a folder of its own that is removed at the end.
        All machines of the cluster have to see it; the default, a temporary folder of this machine, is for one.
    checkpoint_every : int or None
        Number of steps (waves of blocks, or iterations) between two states that are kept. None keeps none: a worker
        that was restarted takes all steps from the first, of which all arguments are kept.
    resume : bool
        Whether a run can go on after the death of this process: answers and states then stay in `folder`, which is to
        be given, and a fit of the same data with the same settings goes on from there. Remove the folder when you
        have the model.
    data : {"store", "file"}
        How data reach the workers: by the object store of Ray, or by files in `folder` that are mapped into memory
        and need not fit into it.
    weights : path, optional
        Folder for models that are larger than the memory of this process: weights arrive shard by shard in a file
        there, and the model has them mapped into memory. `arbora.io.save` copies them; the file can go then.
    max_restarts : int
        How often a worker may be restarted in all; -1 for any number. One that dies three times without a step
        in between is given up in any case.
    timeout : float
        Seconds to wait for workers to start, or to come back.
    n_jobs : int, optional
        Threads of this process; classifiers put their own `n_jobs` here, if it is not None.

    Examples
    --------
    >>> from arbora.classify import MultinomialLogistic
    >>> engine = RayEngine(address="10.0.0.1:6379", n_shards=64, folder="/shared/scratch")
    >>> MultinomialLogistic(engine=engine)
    MultinomialLogistic(engine=RayEngine(address='10.0.0.1:6379', n_shards=64,
                                         folder='/shared/scratch'))
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
        super().__init__(n_jobs)
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
                f"resume=True with folder={folder!r} and checkpoint_every={checkpoint_every!r}: a run goes on from "
                "the states that its workers keep; give a folder that stays, and a number of steps."
            )
        self.address, self.n_shards_given, self.threads = address, n_shards, threads
        self.folder = None if folder is None else os.fspath(folder)
        self.checkpoint_every, self.resume, self.data = checkpoint_every, bool(resume), data
        self.weights = None if weights is None else os.fspath(weights)
        self.max_restarts, self.timeout = max_restarts, timeout

    def to_state(self) -> dict[str, Any]:
        """Return the settings, which are what `arbora.io` keeps of an engine."""
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

    def with_jobs(self, n_jobs: int | None) -> RayEngine:
        """Return the same engine with another number of threads in this process."""
        return type(self)(**{**self.to_state(), "n_jobs": n_jobs})

    @property
    def n_shards(self) -> int:
        """Number of workers: the one that was given, or as many as the CPUs of the machines allow."""
        if self.n_shards_given is not None:
            return self.n_shards_given
        return max(1, count_slots(self.connect(), self.threads))

    def connect(self) -> Any:
        """Connect this process to the cluster, unless it is; return the module `ray`."""
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
                f"cannot connect to a Ray cluster at {address!r}: {error}. Look at it with `ray status --address="
                f"{address}`; its version of Ray has to be the one here ({ray.__version__}), and if it asks for a "
                "token, RAY_AUTH_MODE=token has to be set here, too, and ~/.ray/auth_token has to hold it."
            ) from error
        _reached[address] = _where(ray)
        return ray

    def shards(self, make: Make, common: Any, pieces: Sequence[Any]) -> RayShards:
        """Make resident shards on the workers.

        Parameters
        ----------
        make : callable
            Makes a shard: ``make(common, piece, engine)``. A function or class of a module that the workers have.
        common : object
            What all shards read and none writes. Its arrays arrive read-only.
        pieces : sequence
            One for each shard.

        Returns
        -------
        RayShards
        """
        return RayShards(self, make, common, pieces)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Give the array for the weights of a model, in memory or in a file of the folder `weights`."""
        if self.weights is None:
            return super().zeros(shape, dtype)
        Path(self.weights).mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="weights-", suffix=".npy", dir=self.weights)
        os.close(descriptor)
        return np.asarray(np.lib.format.open_memmap(name, "w+", dtype, shape))

    def settle(self, weights: NDArray[Any]) -> None:
        """Let the pages of an array that `zeros` gave go; what they hold is on its way to the file."""
        mapped = _base(weights, mmap.mmap)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)

    def discard(self, weights: NDArray[Any]) -> None:
        """Remove the file of an array that `zeros` gave; the array can be used until it is let go."""
        base = _base(weights, np.memmap)
        if base is not None:
            Path(str(base.filename)).unlink(missing_ok=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        RayEngine.__init__(self, **state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RayEngine) and self.to_state() == other.to_state()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        usual = RayEngine().to_state()
        told = {name: value for name, value in self.to_state().items() if value != usual[name]}
        return f"RayEngine({', '.join(f'{name}={value!r}' for name, value in told.items())})"
