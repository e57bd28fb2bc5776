"""EM and variational inference of mixtures: one loop, whatever the components are.

A mixture whose log-joint of a row and a component is linear in the row, `x.W_k + c_k` (von Mises-Fisher, multinomial,
their Bayesian forms with expectations in the place of parameters), is three pure functions over its own named tuple
of parameters:

    scores(params) -> Scores            W, c and the temperature of the E-step (see `mixture_stats`)
    update(params, Stats) -> params     the M-step: parameters (or factors of the posterior) given the statistics
    extra(params) -> float              what the bound holds besides the rows: log-priors, divergences

Mini-batches follow stepwise EM (Cappé and Moulines 2009), which for conjugate models is stochastic variational
inference (Hoffman et al. 2013): statistics of a batch, scaled to the size of the data, enter a moving average.

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

from arbora.core.progress import Progress
from arbora.core.trace import Trace
from arbora.infer.mixture.statistics import LinearScores, Matrix, Stats, WeightedRows, e_step, local

_TINY = float(np.finfo(np.float64).tiny)
_MOST_FALL = 1.0  # of the bound per unit of weight: more is neither rounding nor the noise of a sampler
_DELAY, _FORGETTING = 1.0, 0.7  # step t of stepwise EM has rate (t + delay)^-forgetting


class MixtureModel(NamedTuple):
    """The three functions that make a mixture."""

    scores: Callable[[Any], LinearScores]
    update: Callable[[Any, Stats], Any]
    extra: Callable[[Any], float]


class Schedule(NamedTuple):
    """How long to go on.

    `tol` is the gain of the bound per unit of weight below which to stop. Iteration t (with mini-batches, pass t over
    the data) has temperature `temperatures[t]`, and the last of them from there on; only then may it stop.
    """

    tol: float
    max_iter: int
    temperatures: Sequence[float] = (1.0,)
    batch_size: int | None = None
    seed: int = 0

    def temperature(self, iteration: int) -> tuple[float, bool]:
        """Temperature of an iteration, and whether it is the last one."""
        settled = iteration >= len(self.temperatures) - 1
        return self.temperatures[-1 if settled else iteration], settled

    def prepare(self, rows: WeightedRows, n_components: int) -> WeightedRows:
        """Return the rows with a table of them, where soft sums over all of them will be made of it."""
        whole = self.batch_size is None and self.temperatures[-1] > 0
        return rows.with_table() if whole and rows.has_room(n_components) else rows


class MixtureFit(NamedTuple):
    """Where a run ended, and how it got there; `bounds` are those at the last temperature."""

    params: Any
    bounds: Matrix
    trace: Trace
    converged: bool
    stats: Stats | None = None  # of all rows, given the parameters at temperature 1, where they are known


def run(
    model: MixtureModel, rows: WeightedRows, params: Any, schedule: Schedule, engine: Any, progress: Progress
) -> MixtureFit:
    """Iterate from starting parameters until the bound gains no more than the tolerance.

    Parameters
    ----------
    model : MixtureModel
    rows : WeightedRows
    params : named tuple
        Where to begin.
    schedule : Schedule
    engine : object with ``map(function, items)`` and ``sum(function, items)``
        Adds up the statistics of the parts.
    progress : Progress

    Returns
    -------
    MixtureFit
        The parameters are those of the last bound. Where the bound falls, by far more than rounding should, those
        before are kept, and the run has not converged.
    """
    if schedule.batch_size is not None and schedule.batch_size < rows.X.shape[0]:
        return _run_batches(model, rows, params, schedule, progress)
    total, trace, converged = max(rows.total, _TINY), Trace(), False
    bounds: list[float] = []
    before = params
    for iteration in range(schedule.max_iter):
        temperature, settled = schedule.temperature(iteration)
        stats, bound = e_step(model.scores(params)._replace(temperature=temperature), rows, engine)
        bound += model.extra(params)
        _require_finite(bound, iteration)
        gain = (bound - bounds[-1]) / total if bounds else np.inf
        trace.append(objective=bound, gap=gain if bounds else np.nan, temperature=temperature)
        progress.update(objective=bound / total)
        if settled and gain < -_MOST_FALL:
            return MixtureFit(before, np.array(bounds), trace, False)
        if settled:
            bounds.append(bound)
            converged = gain < schedule.tol
        if converged or iteration == schedule.max_iter - 1:
            break
        before, params = params, model.update(params, stats)
    known = stats if temperature == 1 else None
    return MixtureFit(params, np.array(bounds), trace, bool(converged), known)


def _require_finite(bound: float, iteration: int) -> None:
    if not np.isfinite(bound):
        raise ValueError(
            f"the bound is {bound} in iteration {iteration}: entries of X times their sample_weight are too large to "
            "be added up in this dtype. Divide X or sample_weight by a number, or take dtype='float64'."
        )


def _run_batches(
    model: MixtureModel, rows: WeightedRows, params: Any, schedule: Schedule, progress: Progress
) -> MixtureFit:
    """Pass over the data in mini-batches; the bound of a pass is that of each batch before it was learned from."""
    rng = np.random.default_rng(schedule.seed)
    n_samples, total = rows.X.shape[0], max(rows.total, _TINY)
    size = schedule.batch_size or n_samples
    trace, average, step, converged = Trace(), None, 0, False
    bounds: list[float] = []
    for iteration in range(schedule.max_iter):
        temperature, settled = schedule.temperature(iteration)
        order, value = rng.permutation(n_samples), 0.0
        for first in range(0, n_samples, size):
            batch = rows.take(np.sort(order[first : first + size]))
            scores = model.scores(params)._replace(temperature=temperature)
            stats, bound = local(scores, batch, slice(0, batch.X.shape[0]))
            average = blend(average, stats, total / max(batch.total, _TINY), step)
            params, value, step = model.update(params, average), value + bound, step + 1
        value += model.extra(params)
        _require_finite(value, iteration)
        gain = (value - bounds[-1]) / total if bounds else np.inf
        trace.append(objective=value, gap=gain if bounds else np.nan, temperature=temperature)
        progress.update(objective=value / total)
        if settled:
            bounds.append(value)
        if gain < schedule.tol:
            converged = True
            break
    return MixtureFit(params, np.array(bounds), trace, converged)


def blend(average: Stats | None, stats: Stats, scale: float, step: int) -> Stats:
    """Let the statistics of a batch, times `scale`, into their moving average, with the rate (step + 1)^-0.7.

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


def best_of(fit: Callable[[int], MixtureFit], n_init: int, engine: Any) -> MixtureFit:
    """Run from several starts, in parallel, and keep the highest bound (of equal ones, the first).

    Parameters
    ----------
    fit : callable
        Given the number of a start, makes it and runs from it.
    n_init : int
    engine : object with ``map(function, items)`` and ``shares_memory``
        Workers elsewhere take one start after the other.

    Returns
    -------
    MixtureFit
    """
    if n_init == 1:  # the threads serve the E-step
        return fit(0)
    solutions = engine.map(fit, range(n_init)) if engine.shares_memory else [fit(k) for k in range(n_init)]
    best: MixtureFit = solutions[int(np.argmax([solution.bounds[-1] for solution in solutions]))]
    return best
