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

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.infer.mixture.statistics import LinearScores, Matrix, Stats, WeightedRows, e_step, local

_TINY = float(np.finfo(np.float64).tiny)
_MOST_FALL = (
    1.0  # of the bound per unit of weight; a larger fall is neither rounding nor the noise of a sampler
)
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

    Parameters
    ----------
    model : MixtureModel
    rows : WeightedRows
    params : named tuple
        Starting point.
    schedule : Schedule
    engine : Engine
    progress : Progress, optional

    Returns
    -------
    MixtureFit
        The parameters are those of the last bound. If the bound falls by far more than rounding explains, the
        parameters before the fall are returned, and the run has not converged.
    """
    monitor = Monitor(schedule.tol, schedule.max_iter, progress)
    if schedule.batch_size is not None and schedule.batch_size < rows.X.shape[0]:
        return _run_batches(model, rows, params, schedule, monitor)
    total, before, done = max(rows.total, _TINY), params, False
    bounds: list[float] = []
    while not done:
        temperature, settled = schedule.temperature(monitor.n_iter)
        stats, bound = e_step(model.scores(params)._replace(temperature=temperature), rows, engine)
        bound += model.extra(params)
        _require_finite(bound, monitor.n_iter)
        gain = (bound - bounds[-1]) / total if bounds else None
        fell = settled and gain is not None and gain < -_MOST_FALL
        verdict = False if fell else None
        done = monitor.record(bound, gain=gain, certified=settled, converged=verdict, temperature=temperature)
        if fell:
            return MixtureFit(before, np.array(bounds), monitor.trace, False)
        if settled:
            bounds.append(bound)
        if not done:
            before, params = params, model.update(params, stats)
    known = stats if temperature == 1 else None
    return MixtureFit(params, np.array(bounds), monitor.trace, monitor.converged, known)


def _require_finite(bound: float, iteration: int) -> None:
    if not np.isfinite(bound):
        raise ValueError(
            f"the bound is {bound} in iteration {iteration}: entries of X times their sample_weight overflow in this "
            "dtype. Divide X or sample_weight by a constant, or use dtype='float64'."
        )


def _run_batches(
    model: MixtureModel, rows: WeightedRows, params: Any, schedule: Schedule, monitor: Monitor
) -> MixtureFit:
    """Pass over the data in mini-batches; the bound of a pass adds up those of the batches before each update."""
    rng = np.random.default_rng(schedule.seed)
    n_samples, total = rows.X.shape[0], max(rows.total, _TINY)
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
            average = blend(average, stats, total / max(batch.total, _TINY), step)
            params, value, step = model.update(params, average), value + bound, step + 1
        value += model.extra(params)
        _require_finite(value, monitor.n_iter)
        gain = (value - bounds[-1]) / total if bounds else None
        done = monitor.record(value, gain=gain, certified=settled, temperature=temperature)
        if settled:
            bounds.append(value)
    return MixtureFit(params, np.array(bounds), monitor.trace, monitor.converged)


def blend(average: Stats | None, stats: Stats, scale: float, step: int) -> Stats:
    """Blend the statistics of a batch, times `scale`, into their moving average, with the rate (step + 1)^-0.7.

    Examples
    --------
    >>> ones = Stats(np.ones(1), np.ones((1, 1)))
    >>> blend(Stats(np.zeros(1), np.zeros((1, 1))), ones, 10.0, step=1).counts.round(3)
    array([6.156])
    """
    if average is None:
        return Stats(stats.counts * scale, stats.sums * scale)
    rate = (step + _DELAY) ** -_FORGETTING
    return Stats(
        (1 - rate) * average.counts + rate * scale * stats.counts,
        (1 - rate) * average.sums + rate * scale * stats.sums,
    )


def best_of(fit: Callable[[int], MixtureFit], n_init: int, engine: Engine) -> MixtureFit:
    """Run from several starts and return the fit with the highest bound (of equal ones, the first).

    Parameters
    ----------
    fit : callable
        Given the number of a start, makes it and runs from it.
    n_init : int
    engine : Engine
        Runs several starts at the same time. A single start runs in the calling thread, so that its E-steps can use
        the threads.

    Returns
    -------
    MixtureFit
    """
    if n_init == 1:
        return fit(0)
    fits = engine.map(fit, range(n_init))
    return fits[int(np.argmax([found.bounds[-1] for found in fits]))]
