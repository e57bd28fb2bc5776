"""The loop of Markov chain Monte Carlo: warm-up, thinning, several chains, trace, progress, checkpoints.

A model is any object with the methods

- ``sweep(state, data, rng)``: a step that leaves the posterior given the data invariant, and numbers to trace;
- ``log_joint(state, data)``: the log-density of parameters and data, including all constants;
- ``sample_prior(rng)`` and ``sample_data(state, rng)``, which `diagnostics.geweke_test` needs.

States are named tuples of arrays. A model that tunes its steps also has ``adapt(state, info, data, step, n_warmup)``,
which returns the model for the next sweep. It is called in the warm-up only: a chain that adapts to its past is not a
Markov chain, and the draws of the warm-up are discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval
from threadpoolctl import ThreadpoolController

from arbora.arrays import Array, Matrix
from arbora.core.checkpoint import Checkpoint
from arbora.core.engine import Engine, SerialEngine
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.engine import ThreadEngine

State = TypeVar("State")
Data = TypeVar("Data")


class SamplerModel(Protocol[State, Data]):
    """A model that can be sampled."""

    def sample_prior(self, rng: np.random.Generator) -> State:
        """Draw parameters from the prior."""

    def sample_data(self, state: State, rng: np.random.Generator) -> Data:
        """Draw data given parameters."""

    def log_joint(self, state: State, data: Data) -> float:
        """Return the log-density of parameters and data."""

    def sweep(self, state: State, data: Data, rng: np.random.Generator) -> tuple[State, Mapping[str, float]]:
        """Take a step that leaves the posterior invariant; return the new parameters and numbers to trace."""


@runtime_checkable
class Adaptive(Protocol):
    """A model that tunes its steps in the warm-up."""

    def adapt(self, state: Any, info: Mapping[str, float], data: Any, step: int, n_warmup: int) -> Any:
        """Return the model for the next sweep, after sweep number `step` (from 0) of `n_warmup`."""


class Chains(NamedTuple):
    """Draws and traces of several chains."""

    draws: dict[str, Matrix]  # by name, of shape (n_chains, n_samples, ...)
    traces: list[Trace]  # one for each chain; warm-up included
    means: dict[str, Array]  # over the draws of a chain, by name, of shape (n_chains, ...)
    log_joint: Array  # of the draws, of shape (n_chains, n_samples)


class Chain(NamedTuple):
    """Draws, means over the draws, and the trace of one chain."""

    draws: dict[str, Matrix]
    means: dict[str, Matrix]
    trace: Trace


class Watch(NamedTuple):
    """Functions of a state: the arrays to keep of a draw, and those to average over draws."""

    keep: Callable[[Any], Mapping[str, ArrayLike]]
    average: Callable[[Any], Mapping[str, ArrayLike]]


class ChainSchedule(NamedTuple):
    """Length and number of the chains: `n_warmup` discarded sweeps, then `n_samples` times `thin` sweeps."""

    n_warmup: int
    n_samples: int
    thin: int = 1
    n_chains: int = 2

    @property
    def n_sweeps(self) -> int:
        """Number of sweeps of a chain."""
        return self.n_warmup + self.n_samples * self.thin


# Values of the parameter `sampling` of estimators, for `core.estimator.read_options`.
SAMPLING_CONSTRAINTS: Mapping[str, Sequence[Any]] = MappingProxyType(
    {
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "thin": [Interval(Integral, 1, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
    }
)


def sample_chains(
    model: SamplerModel[State, Data],
    data: Data,
    schedule: ChainSchedule,
    seed: int,
    *,
    start: Callable[[np.random.Generator], State] | None = None,
    keep: Callable[[State], Mapping[str, ArrayLike]] | None = None,
    average: Callable[[State], Mapping[str, ArrayLike]] | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Chains:
    """Run independent chains.

    Parameters
    ----------
    data : object
        Passed to the model unchanged.
    seed : int
        Each chain has its own random generator, spawned from this seed: the draws depend on nothing else.
    start : callable, optional
        Returns the initial state of a chain. Default: a draw from the prior. R-hat is reliable only if the starts are
        farther apart than the posterior is wide.
    keep : callable, optional
        Returns the arrays to keep of a state, by name. Default: all fields of the named tuple. Arrays whose shape
        differs between states are padded with zeros.
    average : callable, optional
        Returns arrays of a state that are averaged over the draws of a chain instead of being kept: large ones.
    engine : Engine, optional
        Runs several chains at the same time. Default: one after the other.
    progress : Progress, optional
        Counts the sweeps of all chains.
    checkpoint : Checkpoint, optional
        Saves finished chains, and the current state of the others: an interrupted run continues with the same
        draws. A chain of a model that adapts starts again.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> import numpy as np
    >>> from arbora.infer.mcmc.chains import ChainSchedule, sample_chains
    >>> class Mean(NamedTuple):
    ...     mu: float
    >>> class Normal:  # mu ~ N(0, 1), x ~ N(mu, 1): the posterior is N(x/2, 1/2)
    ...     def sample_prior(self, rng):
    ...         return Mean(rng.standard_normal())
    ...     def sample_data(self, state, rng):
    ...         return state.mu + rng.standard_normal()
    ...     def log_joint(self, state, data):
    ...         return -0.5 * (state.mu**2 + (data - state.mu) ** 2) - np.log(2 * np.pi)
    ...     def sweep(self, state, data, rng):
    ...         return Mean(rng.normal(data / 2, 0.5**0.5)), {}
    >>> chains = sample_chains(Normal(), 3.0, ChainSchedule(n_warmup=10, n_samples=1000), seed=0)
    >>> chains.draws["mu"].shape, bool(abs(chains.draws["mu"].mean() - 1.5) < 0.1)
    ((2, 1000), True)
    >>> len(chains.traces[0])
    1010
    """
    seeds = np.random.SeedSequence(seed).spawn(schedule.n_chains)
    begin = start if start is not None else model.sample_prior
    watch = Watch(keep if keep is not None else _all_fields, average if average is not None else _nothing)

    def chain(number: int) -> Chain:
        finished = _load(checkpoint, number)
        if finished is None:
            rng = np.random.default_rng(seeds[number])
            run = _Run(schedule, watch, Monitor(0.0, schedule.n_sweeps, progress, checkpoint), number)
            finished = _sample_chain(model, data, begin, rng, run)
            _save(checkpoint, number, finished)
        elif progress is not None:
            progress.update(schedule.n_sweeps)
        return finished

    draws, means, traces = zip(*(engine or SerialEngine()).map(chain, range(schedule.n_chains)), strict=True)
    draws_of_sweeps = slice(schedule.n_warmup + schedule.thin - 1, None, schedule.thin)
    log_joint = np.array([trace["objective"][draws_of_sweeps] for trace in traces])
    return Chains(_stacked_by_name(draws), list(traces), _stacked_by_name(means), log_joint)


def run_chains(
    model: Any,
    data: Any,
    schedule: ChainSchedule,
    seed: int,
    *,
    keep: Callable[[Any], Mapping[str, ArrayLike]],
    start: Callable[[np.random.Generator], Any] | None = None,
    average: Callable[[Any], Mapping[str, ArrayLike]] | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    checkpoint: Checkpoint | None = None,
) -> Chains:
    """Run the chains of an estimator on threads, with a progress bar; clear the checkpoint at the end."""
    # One BLAS thread per chain: chains amplify the different rounding of multithreaded sums.
    with (
        ThreadpoolController().limit(limits=1, user_api="blas"),
        Progress(schedule.n_chains * schedule.n_sweeps, "sweeps", verbose) as progress,
        ThreadEngine(n_jobs) as engine,
    ):
        chains = sample_chains(
            model, data, schedule, seed, start=start, keep=keep, average=average, engine=engine,
            progress=progress, checkpoint=checkpoint,
        )  # fmt: skip
    if checkpoint is not None:
        checkpoint.clear()
    return chains


def start_from(states: Sequence[State]) -> Callable[[np.random.Generator], State]:
    """Return the `start` of chains that begin in given states, whatever the order in which threads begin them."""

    def start(rng: np.random.Generator) -> State:
        sequence: Any = rng.bit_generator.seed_seq
        number: int = sequence.spawn_key[-1]
        return states[number]

    return start


def mean_trace(traces: list[Trace]) -> Trace:
    """Average the traces of several chains sweep by sweep; the seconds are the sum over all chains."""
    states = [trace.to_state() for trace in traces]
    columns = states[0]["columns"]
    values = np.mean([state["values"] for state in states], axis=0)
    values[columns.index("seconds")] *= len(traces)
    return Trace.from_state({"columns": columns, "values": values})


class _Run(NamedTuple):
    """How one chain runs."""

    schedule: ChainSchedule
    watch: Watch
    monitor: Monitor
    number: int

    @property
    def piece(self) -> str:
        """Name of the unfinished chain in a checkpoint."""
        return f"chain-{self.number}-unfinished"


class _Seen(NamedTuple):
    """What a chain has kept so far: draws, and sums of what is averaged."""

    draws: dict[str, list[Matrix]]
    sums: dict[str, Array]


def _sample_chain(
    model: Any, data: Any, begin: Callable[[np.random.Generator], Any], rng: np.random.Generator, run: _Run
) -> Chain:
    schedule, watch, monitor, state = run.schedule, run.watch, run.monitor, begin(rng)
    seen = _Seen(
        {name: [] for name in watch.keep(state)},
        {name: np.zeros(np.shape(value)) for name, value in watch.average(state).items()},
    )
    adapts = isinstance(model, Adaptive)
    if not adapts:
        state = _resume(run, state, seen, rng)
    for sweep in range(monitor.n_iter, schedule.n_sweeps):
        state, info = model.sweep(state, data, rng)
        if adapts and sweep < schedule.n_warmup:
            model = model.adapt(state, info, data, sweep, schedule.n_warmup)
        monitor.record(model.log_joint(state, data), **info)
        row, rest = divmod(sweep + 1 - schedule.n_warmup, schedule.thin)
        if row > 0 and rest == 0:
            for name, value in watch.keep(state).items():
                seen.draws[name].append(np.array(value))
            for name, value in watch.average(state).items():
                seen.sums[name] += np.asarray(value)
        if not adapts and monitor.is_due:
            _keep(run, state, seen, rng)
    draws = {name: _stacked(values) for name, values in seen.draws.items()}
    means = {name: value / max(schedule.n_samples, 1) for name, value in seen.sums.items()}
    return Chain(draws, means, monitor.trace)


def _stacked(values: Sequence[Matrix]) -> Matrix:
    """Stack arrays; pad them with zeros to a common shape."""
    if len({value.shape for value in values}) <= 1:
        return np.stack(values) if values else np.empty(0)
    shape = np.max([value.shape for value in values], axis=0)
    stacked = np.zeros((len(values), *shape), values[0].dtype)
    for place, value in zip(stacked, values, strict=True):
        place[tuple(slice(size) for size in value.shape)] = value
    return stacked


def _stacked_by_name(chains: Sequence[Mapping[str, Matrix]]) -> dict[str, Matrix]:
    return {name: _stacked([chain[name] for chain in chains]) for name in chains[0]}


def _keep(run: _Run, state: Any, seen: _Seen, rng: np.random.Generator) -> None:
    """Save an unfinished chain."""
    arrays = {f"state-{name}": np.asarray(value) for name, value in state._asdict().items()}
    for name, values in seen.draws.items():
        arrays[f"kept-{name}"] = _stacked(values)
        arrays[f"shape-{name}"] = np.array([value.shape for value in values])
    run.monitor.keep(run.piece, {**arrays, **_prefixed("sums", seen.sums)}, generator=rng.bit_generator.state)


def _resume(run: _Run, state: Any, seen: _Seen, rng: np.random.Generator) -> Any:
    """Continue an unfinished chain: restore its draws, sums, generator and trace; return its state."""
    piece = run.monitor.resume(run.piece)
    if piece is None:
        return state
    arrays = piece.arrays
    for name, values in seen.draws.items():
        shapes = arrays[f"shape-{name}"].astype(np.int64)
        values += [
            value[tuple(slice(size) for size in shape)]
            for value, shape in zip(arrays[f"kept-{name}"], shapes, strict=True)
        ]
    for name, value in seen.sums.items():
        value[...] = arrays[f"sums-{name}"]
    rng.bit_generator.state = piece.meta["generator"]
    if run.monitor.progress is not None:
        run.monitor.progress.update(run.monitor.n_iter)
    fields = {name: arrays[f"state-{name}"] for name in state._fields}
    return type(state)(**{name: value[()] if value.ndim == 0 else value for name, value in fields.items()})


def _all_fields(state: Any) -> Mapping[str, ArrayLike]:
    fields: Mapping[str, ArrayLike] = state._asdict()
    return fields


def _nothing(state: Any) -> Mapping[str, ArrayLike]:
    return {}


def _prefixed(prefix: str, arrays: Mapping[str, Matrix]) -> dict[str, Matrix]:
    return {f"{prefix}-{key}": value for key, value in arrays.items()}


def _save(checkpoint: Checkpoint | None, number: int, chain: Chain) -> None:
    if checkpoint is not None:
        table = chain.trace.to_state()
        arrays = {
            "trace": table["values"],
            **_prefixed("draws", chain.draws),
            **_prefixed("means", chain.means),
        }
        checkpoint.save(f"chain-{number}", arrays, {"columns": table["columns"]})


def _load(checkpoint: Checkpoint | None, number: int) -> Chain | None:
    piece = checkpoint.load(f"chain-{number}") if checkpoint is not None else None
    if piece is None:
        return None
    trace = Trace.from_state({"columns": piece.meta["columns"], "values": piece.arrays["trace"]})
    parts: dict[str, dict[str, Matrix]] = {"draws": {}, "means": {}}
    for name, value in piece.arrays.items():
        kind, dash, key = name.partition("-")
        if dash:
            parts[kind][key] = value
    return Chain(parts["draws"], parts["means"], trace)
