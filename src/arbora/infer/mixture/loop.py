"""The loop of EM and variational inference for mixtures, independent of the components.

A mixture whose log-joint of a row and a component is linear in the row, `x.W_k + c_k` (von Mises-Fisher, multinomial,
and their Bayesian forms with expectations in place of parameters), is three pure functions over its own named tuple
of parameters:

    scores(params) -> LinearScores      W, c and the temperature of the E-step (see `statistics`)
    update(params, Stats) -> params     the M-step: parameters (or factors of the posterior) given the statistics
    extra(params) -> float              terms of the bound that do not depend on the rows: log-priors, divergences

Mini-batches follow stepwise EM (Cappé and Moulines 2009), which for conjugate models is stochastic variational
inference (Hoffman et al. 2013): the statistics of a batch, scaled to the size of the data, enter a moving average.

References
----------
O. Cappé and E. Moulines (2009). On-line expectation-maximization algorithm for latent data models. JRSS B 71(3).
M. Hoffman, D. Blei, C. Wang and J. Paisley (2013). Stochastic variational inference. JMLR 14.
N. Ueda and R. Nakano (1998). Deterministic annealing EM algorithm. Neural Networks 11(2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from arbora.arrays import TINY, Matrix
from arbora.core.checkpoint import fingerprint
from arbora.core.chunks import split
from arbora.core.engine import Engine, Shards
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.infer.mixture.statistics import (
    KernelScores,
    LinearScores,
    Stats,
    WeightedRows,
    e_step,
    local,
    row_chunks,
    statistics,
)
from arbora.infer.tree_sum import add_leaves, add_nodes, cut_leaves, largest_nodes

# Fall of the bound per unit of weight; a larger one is neither rounding nor the noise of a sampler.
_MAX_FALL = 1.0
_DELAY, _FORGETTING = 1.0, 0.7  # step t of stepwise EM has rate (t + delay)^-forgetting


class MixtureModel(NamedTuple):
    """The three functions of a mixture."""

    scores: Callable[[Any], LinearScores]
    update: Callable[[Any, Stats], Any]
    extra: Callable[[Any], float]


class Schedule(NamedTuple):
    """Temperatures, batches and the stopping rule.

    `tol` is the gain of the bound per unit of weight below which to stop. Iteration t (with mini-batches, pass t over
    the data) has temperature `temperatures[t]`; later iterations have the last one. Only these may stop the loop.
    """

    tol: float
    max_iter: int
    temperatures: Sequence[float] = (1.0,)
    batch_size: int | None = None
    seed: int = 0

    def temperature(self, iteration: int) -> tuple[float, bool]:
        """Return the temperature of an iteration, and whether it is the last one of the schedule."""
        settled = iteration >= len(self.temperatures) - 1
        return self.temperatures[-1 if settled else iteration], settled

    def prepare(self, rows: WeightedRows, n_components: int) -> WeightedRows:
        """Return the rows with a table of them, if soft sums over all rows will use it."""
        whole = self.batch_size is None and self.temperatures[-1] > 0
        return rows.with_table() if whole and rows.has_room(n_components) else rows


class MixtureFit(NamedTuple):
    """The result of a run; `bounds` are those at the last temperature."""

    params: Any
    bounds: Matrix
    trace: Trace  # objective, gain, temperature, seconds
    converged: bool
    stats: Stats | None = None  # of all rows, given the parameters at temperature 1, if they are known


def run(
    model: MixtureModel,
    rows: WeightedRows,
    params: Any,
    schedule: Schedule,
    engine: Engine,
    progress: Progress | None = None,
) -> MixtureFit:
    """Iterate from given parameters until the bound gains no more than the tolerance.

    The parameters of the result are those of its last bound. If the bound falls by far more than rounding explains,
    the parameters before the fall are returned, and the run has not converged.
    """
    monitor = Monitor(schedule.tol, schedule.max_iter, progress)
    if schedule.batch_size is not None and schedule.batch_size < rows.X.shape[0]:
        return _run_batches(model, rows, params, schedule, monitor)
    total, before, done = max(rows.total, TINY), params, False
    bounds: list[float] = []
    while not done:
        temperature, settled = schedule.temperature(monitor.n_iter)
        stats, bound = e_step(model.scores(params)._replace(temperature=temperature), rows, engine)
        bound += model.extra(params)
        _require_finite(bound, monitor.n_iter)
        gain = (bound - bounds[-1]) / total if bounds else None
        fell = settled and gain is not None and gain < -_MAX_FALL
        verdict = False if fell else None
        done = monitor.record(bound, gain=gain, certified=settled, converged=verdict, temperature=temperature)
        if fell:
            return MixtureFit(before, np.array(bounds), monitor.trace, False)
        if settled:
            bounds.append(bound)
        if not done:
            before, params = params, model.update(params, stats)
    last_stats = stats if temperature == 1 else None
    return MixtureFit(params, np.array(bounds), monitor.trace, monitor.converged, last_stats)


def _require_finite(bound: float, iteration: int) -> None:
    if not np.isfinite(bound):
        raise ValueError(
            f"the bound is {bound} in iteration {iteration}: entries of X times their sample_weight overflow. Divide "
            "X or sample_weight by a constant, or use a tol below 1e-6, which computes in double precision."
        )


def _run_batches(
    model: MixtureModel, rows: WeightedRows, params: Any, schedule: Schedule, monitor: Monitor
) -> MixtureFit:
    """Pass over the data in mini-batches; the bound of a pass adds up those of the batches before each update."""
    rng = np.random.default_rng(schedule.seed)
    n_samples, total = rows.X.shape[0], max(rows.total, TINY)
    batches = split(n_samples, size=schedule.batch_size or n_samples, even=False)
    average, step, done = None, 0, False
    bounds: list[float] = []
    while not done:
        temperature, settled = schedule.temperature(monitor.n_iter)
        order, value = rng.permutation(n_samples), 0.0
        for chunk in batches:
            batch = rows.take(np.sort(order[chunk]))
            scores = model.scores(params)._replace(temperature=temperature)
            stats, bound = local(scores, batch, slice(0, batch.X.shape[0]))
            average = blend(average, stats, total / max(batch.total, TINY), step)
            params, value, step = model.update(params, average), value + bound, step + 1
        value += model.extra(params)
        _require_finite(value, monitor.n_iter)
        gain = (value - bounds[-1]) / total if bounds else None
        done = monitor.record(value, gain=gain, certified=settled, temperature=temperature)
        if settled:
            bounds.append(value)
    return MixtureFit(params, np.array(bounds), monitor.trace, monitor.converged)


def blend(average: Stats | None, stats: Stats, scale: float, step: int) -> Stats:
    """Blend the statistics of a batch, times `scale`, into their moving average, with the rate (step + 1)^-0.7."""
    if average is None:
        return Stats(stats.counts * scale, stats.sums * scale)
    rate = (step + _DELAY) ** -_FORGETTING
    return Stats(
        (1 - rate) * average.counts + rate * scale * stats.counts,
        (1 - rate) * average.sums + rate * scale * stats.sums,
    )


def best_of(fit: Callable[[int], MixtureFit], n_init: int, engine: Engine) -> MixtureFit:
    """Run from several starts and return the fit with the highest bound (of equal ones, the first).

    `fit` makes the start of that number and runs from it. A single start runs in the calling thread, so that its
    E-steps can use the threads of the engine.
    """
    if n_init == 1:
        return fit(0)
    fits = engine.map(fit, range(n_init))
    return fits[int(np.argmax([result.bounds[-1] for result in fits]))]


# --- Rows of a mixture in shards: only parameters and sums travel, never rows -------------------------------
#
# An iteration sends the scores to all shards, `n_features x n_components` numbers. Each shard returns as many for
# 2, 4, 8, ... shards, and a few times as many otherwise. The sums of chunks are added along a fixed binary tree
# over the chunks (`arbora.infer.tree_sum`), which depends on the data alone: the result has the same bits for any
# number of shards. Without shards the sums are added in another order and differ by rounding.


Counted = tuple[Stats, float]

_NONZEROS_PER_SUM = 4  # least number of non-zeros of a chunk for each number in a column of its sums


def add_in_place(left: Counted, right: Counted) -> Counted:
    """Add the statistics and bounds of two chunks; overwrites the sums of the left one."""
    (counts, sums), bound = left
    sums += right[0].sums
    return Stats(counts + right[0].counts, sums), bound + right[1]


def _add(left: Counted, right: Counted) -> Counted:
    """Add the statistics and bounds of two chunks."""
    (counts, sums), bound = left
    return Stats(counts + right[0].counts, sums + right[0].sums), bound + right[1]


class MixtureCommon(NamedTuple):
    """Data that all shards read."""

    n_chunks: int
    n_components: int
    schedule: Schedule
    run: tuple[Any, ...]  # identifies this run among others in the same folder


class ShardRows(NamedTuple):
    """Rows of a shard: the numbers of its chunks, and the rows of each."""

    numbers: range
    chunks: list[WeightedRows]


class RowsByShard(Sequence[ShardRows]):
    """The rows of each shard, loaded on access, so that rows in a file are in memory for one shard at a time."""

    def __init__(self, rows: WeightedRows, chunks: list[slice], n_shards: int) -> None:
        self.rows, self.chunks, self.shards = rows, chunks, cut_leaves(len(chunks), n_shards)

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, index: Any) -> Any:
        numbers = self.shards[index]
        rows = [self.rows.load(self.chunks[k]) for k in numbers]
        return ShardRows(numbers, [WeightedRows(held.X[chunk], held.weight[chunk]) for held, chunk in rows])


class RowShard:
    """Consecutive chunks of the rows."""

    keeps_state = False

    def __init__(self, common: MixtureCommon, part: ShardRows, engine: Engine) -> None:
        self.all_chunks, self.numbers, self.engine = range(common.n_chunks), part.numbers, engine
        self.chunks = [common.schedule.prepare(rows, common.n_components) for rows in part.chunks]

    def count(self, scores: KernelScores) -> list[tuple[range, Counted]]:
        """Return the statistics and bounds of the largest nodes of the tree that this shard holds."""
        counted = (statistics(scores, rows, self.engine) for rows in self.chunks)
        nodes = largest_nodes(self.all_chunks, self.numbers)
        return [(node, add_leaves(node, counted, add_in_place)) for node in nodes]

    def state(self) -> None:
        """Return the state: none, since the rows never change."""

    def restore(self, state: None) -> None:
        """Restore nothing."""


def count_all(shards: Shards, n_chunks: int, scores: KernelScores) -> Counted:
    """Compute the statistics and the bound of the rows in all shards."""
    nodes = dict(chain.from_iterable(shards.step("count", scores)))
    stats, bound = add_nodes(range(n_chunks), nodes, _add)
    # Arrays from a cluster are read-only.
    return Stats(stats.counts, np.require(stats.sums, requirements="W")), bound


def fingerprint_rows(rows: WeightedRows) -> str:
    """Return the fingerprint of rows and weights.

    Rows in a file count by their lengths, dense rows that are made on request by what they say `about` themselves.
    """
    if rows.in_memory:
        return fingerprint(rows.weight, rows.X)
    about = rows.X.about if rows.is_dense else rows.X.indptr
    return fingerprint(rows.weight, (rows.X.shape, about))


@contextmanager
def place_rows(
    rows: WeightedRows, schedule: Schedule, n_components: int, engine: Engine, about: Any = None
) -> Iterator[WeightedRows]:
    """Prepare rows for a run: with a table in this process, or in the shards of a remote engine.

    `about` are settings of the model, which identify the run.
    """
    if engine.shares_memory:
        yield schedule.prepare(rows, n_components)
        return
    chunks = row_chunks(rows, _NONZEROS_PER_SUM * rows.X.shape[1])
    common = MixtureCommon(len(chunks), n_components, schedule, (about, fingerprint_rows(rows)))
    with engine.shards(RowShard, common, RowsByShard(rows, chunks, engine.n_shards)) as shards:
        yield rows._replace(remote=partial(count_all, shards, len(chunks)))
