"""EM and variational inference of mixtures: one E-step, one loop, whatever the components are.

A mixture whose log-joint of a row and a component is linear in the row, `x.W_k + c_k` (von Mises-Fisher, multinomial,
their Bayesian forms with expectations in the place of parameters), is three pure functions over its own named tuple
of parameters:

    scores(params) -> Scores            W, c and the temperature of the E-step
    update(params, Stats) -> params     the M-step: parameters (or factors of the posterior) given the statistics
    extra(params) -> float              what the bound holds besides the rows: log-priors, divergences

`local` gives the statistics and the bound of some rows. Statistics add, so that whole data, parts of it on threads,
and mini-batches share it. The parts depend on the data alone: the result has the same bits for any number of threads.

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
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.infer.progress import Progress
from arbora.infer.trace import Trace
from arbora.kernels.mixture import (
    assign_rows,
    column_squares,
    list_members,
    mix_columns,
    respond_rows,
    sum_members,
)
from arbora.kernels.products import csr_matmul

Matrix = NDArray[Any]

_MOST_PARTS = 64  # parts of the data whose statistics are added up
_NONZEROS_PER_PART = 1 << 17  # of a part whose sums are made elsewhere
MOST_RESPONSIBILITIES = 1 << 26  # numbers that may be in memory at once, 256 MiB in single precision
_NONZEROS_PER_SUM = 16  # a part has at least this many non-zeros for each number in a column of its sums
_NONZEROS_AT_ONCE = 1 << 20  # of rows in a file, that a thread reads at a time
_TINY = float(np.finfo(np.float64).tiny)
_MOST_FALL = 1.0  # of the bound per unit of weight: more is neither rounding nor the noise of a sampler
_FEW = 8  # one responsibility in so many is not zero: sums are made of those alone
_COLUMNS_AT_ONCE = 4  # of sums that are made so
_DELAY, _FORGETTING = 1.0, 0.7  # step t of stepwise EM has rate (t + delay)^-forgetting


class Rows(NamedTuple):
    """Rows of a mixture and their weights, in the working precision; perhaps with the transposed rows.

    X is a CSR array; or rows in a file, with `shape`, `dtype`, `nnz` and `indptr` of a CSR array, of which parts,
    `X[part]`, are CSR arrays in memory.
    """

    X: Any
    weight: Matrix
    transposed: sp.csr_array | None = None

    @property
    def in_memory(self) -> bool:
        """Whether X is a CSR array."""
        return bool(sp.issparse(self.X))

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weight.sum(dtype=np.float64))

    def take(self, ids: NDArray[np.integer[Any]]) -> Rows:
        """Return some of the rows."""
        return Rows(self.X[ids], self.weight[ids])

    def load(self, part: slice) -> tuple[Rows, slice]:
        """Return rows in memory with a part of these among them, and where it is."""
        if self.in_memory:
            return self, part
        return Rows(self.X[part], self.weight[part]), slice(0, part.stop - part.start)

    def has_room(self, n_components: int) -> bool:
        """Whether there may be a matrix of responsibilities of all rows."""
        return self.in_memory and self.X.shape[0] * n_components <= MOST_RESPONSIBILITIES

    def prepared(self, schedule: Schedule, n_components: int) -> Rows:
        """Return the rows with their transpose, where many E-steps over all of them will gain by it."""
        whole = schedule.batch_size is None and schedule.temperatures[-1] > 0
        if not whole or not self.has_room(n_components):
            return self
        return self._replace(transposed=sp.csr_array(self.X.T))


class Scores(NamedTuple):
    """Log-joint of a row x and component k: `scale[k] * x @ weights[:, k] + offset[k]`.

    With a scale, sums of rows can be weights as they are: no pass over them is needed to make them directions.
    """

    weights: Matrix
    offset: Matrix
    temperature: float = 1.0
    scale: Any = 1.0


class Stats(NamedTuple):
    """Sums over rows: responsibilities (n_components,), and rows weighted by them (n_features, n_components)."""

    counts: Matrix
    sums: Matrix


class Model(NamedTuple):
    """The three functions that make a mixture."""

    scores: Callable[[Any], Scores]
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


class Solution(NamedTuple):
    """Where a run ended, and how it got there; `bounds` are those at the last temperature."""

    params: Any
    bounds: Matrix
    trace: Trace
    converged: bool


def parts_of(rows: Rows) -> list[slice]:
    """Cut the rows into parts of about as many non-zeros, few enough that adding their statistics costs little.

    Examples
    --------
    >>> parts_of(Rows(sp.csr_array(np.ones((40, 2))), np.ones(40)))
    [slice(0, 20, None), slice(20, 40, None)]
    """
    n_features, nnz = rows.X.shape[1], rows.X.nnz
    least = _NONZEROS_PER_SUM * max(n_features, 1) if rows.transposed is None else _NONZEROS_PER_PART
    n_parts = int(np.clip(nnz // least, 1, _MOST_PARTS))
    if not rows.in_memory:
        n_parts = max(n_parts, -(-nnz // nonzeros_at_once(n_features)))
    return cut_rows(rows.X.indptr, n_parts)


def nonzeros_at_once(n_features: int) -> int:
    """Non-zeros of a file that a thread reads at a time: no fewer than a column of the sums that they add to has."""
    return max(_NONZEROS_AT_ONCE, n_features)


def cut_rows(indptr: Matrix, n_parts: int) -> list[slice]:
    """Cut the rows of a CSR array into parts of about as many non-zeros.

    Examples
    --------
    >>> cut_rows(np.array([0, 4, 5, 6]), 2)
    [slice(0, 1, None), slice(1, 3, None)]
    """
    ends = np.searchsorted(indptr, int(indptr[-1]) * np.arange(1, n_parts) / n_parts)
    cuts = np.unique(np.concatenate([[0], ends, [len(indptr) - 1]]))
    return [slice(int(first), int(stop)) for first, stop in pairwise(cuts)]


def local(scores: Scores, rows: Rows, part: slice) -> tuple[Stats, float]:
    """Statistics and bound of a part of the rows.

    The largest offset is taken out before single precision sees it: log-normalisers are large, their differences are
    not.

    Examples
    --------
    >>> rows = Rows(sp.csr_array(np.eye(2)), np.ones(2))
    >>> stats, bound = local(Scores(100 * np.eye(2), np.zeros(2)), rows, slice(0, 2))
    >>> stats.counts.round(6), stats.sums.round(6).tolist(), round(bound, 6)
    (array([1., 1.]), [[1.0, 0.0], [0.0, 1.0]], 200.0)
    """
    return _local(_ready(scores, rows.X.dtype), rows, part)


class _Ready(NamedTuple):
    """Scores as the kernels take them, divided by the temperature; `shift` was the largest offset."""

    weights: Matrix
    scale: Matrix
    offset: Matrix
    temperature: float
    shift: float


def _ready(scores: Scores, dtype: Any) -> _Ready:
    shift, temperature = float(np.max(scores.offset)), float(scores.temperature)
    sharpness = 1 / temperature if temperature else 1.0
    offset = ((scores.offset - shift) * sharpness).astype(dtype)
    scale = np.broadcast_to(np.multiply(scores.scale, sharpness), offset.shape).astype(dtype)
    return _Ready(np.ascontiguousarray(scores.weights, dtype), scale, offset, temperature, shift)


def _local(ready: _Ready, rows: Rows, part: slice) -> tuple[Stats, float]:
    rows, part = rows.load(part)
    sums, counts = np.zeros(ready.weights.shape, rows.X.dtype), np.zeros(ready.weights.shape[1])
    value = _walk(assign_rows, ready, rows, part, sums, counts)
    return Stats(counts, sums), value


def _walk(kernel: Any, ready: _Ready, rows: Rows, part: slice, out: Matrix, counts: Matrix) -> float:
    """Let a kernel go over a part of the rows; return the bound."""
    X, (*given, shift) = rows.X, ready
    value = kernel(*(X.indptr, X.indices, X.data, rows.weight), *given, part.start, part.stop, out, counts)
    return float(value) + shift * float(rows.weight[part].sum(dtype=np.float64))


def squared_lengths(sums: Matrix) -> NDArray[np.float64]:
    """Squared lengths of the columns, in double precision.

    Examples
    --------
    >>> squared_lengths(np.array([[3.0, 0.0], [4.0, 1.0]]))
    array([25.,  1.])
    """
    out = np.zeros(sums.shape[1])
    column_squares(np.ascontiguousarray(sums), out)
    return out


def mixed_columns(sums: Matrix, scale: Matrix, shift: Matrix) -> tuple[Matrix, NDArray[np.float64]]:
    """Columns of `sums`, each times its scale, plus one vector; and their squared lengths, in one pass.

    Examples
    --------
    >>> mixed_columns(np.eye(2), np.array([2.0, 3.0]), np.array([1.0, 0.0]))
    (array([[3., 1.],
           [0., 3.]]), array([ 9., 10.]))
    """
    out, squares = np.empty_like(sums), np.zeros(sums.shape[1])
    mix_columns(sums, scale.astype(sums.dtype), shift.astype(sums.dtype), out, squares)
    return out, squares


def e_step(scores: Scores, rows: Rows, engine: Any) -> tuple[Stats, float]:
    """Statistics and bound of all rows, those of its parts added in their order.

    Where there is room for them, parts give responsibilities, and the sums are made of these, each by one thread.
    """
    ready, parts = _ready(scores, rows.X.dtype), parts_of(rows)
    shape = rows.X.shape[0], len(scores.offset)
    if not rows.has_room(shape[1]):
        total: tuple[Stats, float] = engine.sum(partial(_local, ready, rows), parts)
        return total
    resp = np.empty(shape, rows.X.dtype)

    def respond(part: slice) -> tuple[Matrix, float]:
        counts = np.zeros(shape[1])
        return counts, _walk(respond_rows, ready, rows, part, resp, counts)

    counts, bound = engine.sum(respond, parts)
    return Stats(counts, weighted_sums(rows, resp, engine)), bound


def weighted_sums(rows: Rows, resp: Matrix, engine: Any) -> Matrix:
    """Add up rows weighted by responsibilities, to (n_features, n_components): a product, sparse if these are.

    Examples
    --------
    >>> from arbora.engine import ThreadEngine
    >>> rows = Rows(sp.csr_array(np.eye(2)), np.ones(2))
    >>> weighted_sums(rows, np.array([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.5]]), ThreadEngine(1))
    array([[0. , 0. , 0. , 1. ],
           [0. , 0. , 0. , 0.5]])
    """
    X, n_components = rows.X, resp.shape[1]
    lengths = np.count_nonzero(resp, axis=0)
    if lengths.sum() > resp.size / _FEW:
        transposed = sp.csr_array(X.T) if rows.transposed is None else rows.transposed
        return csr_matmul(transposed, resp, engine)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    members, shares = np.empty(starts[-1], np.int64), np.empty(starts[-1], resp.dtype)
    list_members(resp, starts, members, shares)
    sums = np.empty((X.shape[1], n_components), resp.dtype)

    def add(first: int) -> None:
        stop = min(first + _COLUMNS_AT_ONCE, n_components)
        sum_members(X.indptr, X.indices, X.data, starts, members, shares, first, stop, sums)

    engine.map(add, range(0, n_components, _COLUMNS_AT_ONCE))
    return sums


def run(
    model: Model, rows: Rows, params: Any, schedule: Schedule, engine: Any, progress: Progress
) -> Solution:
    """Iterate from starting parameters until the bound gains no more than the tolerance.

    Parameters
    ----------
    model : Model
    rows : Rows
    params : named tuple
        Where to begin.
    schedule : Schedule
    engine : object with ``sum(function, items)``
        Adds up the statistics of the parts.
    progress : Progress

    Returns
    -------
    Solution
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
        gain = (bound - bounds[-1]) / total if bounds else np.inf
        trace.append(objective=bound, gap=gain if bounds else np.nan, temperature=temperature)
        progress.update(objective=bound / total)
        if settled and gain < -_MOST_FALL:
            return Solution(before, np.array(bounds), trace, False)
        if settled:
            bounds.append(bound)
            converged = gain < schedule.tol
        if converged or iteration == schedule.max_iter - 1:
            break
        before, params = params, model.update(params, stats)
    return Solution(params, np.array(bounds), trace, bool(converged))


def _run_batches(model: Model, rows: Rows, params: Any, schedule: Schedule, progress: Progress) -> Solution:
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
        gain = (value - bounds[-1]) / total if bounds else np.inf
        trace.append(objective=value, gap=gain if bounds else np.nan, temperature=temperature)
        progress.update(objective=value / total)
        if settled:
            bounds.append(value)
        if gain < schedule.tol:
            converged = True
            break
    return Solution(params, np.array(bounds), trace, converged)


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


def best_of(fit: Callable[[int], Solution], n_init: int, engine: Any) -> Solution:
    """Run from several starts, in parallel, and keep the highest bound (of equal ones, the first).

    Parameters
    ----------
    fit : callable
        Given the number of a start, makes it and runs from it.
    n_init : int
    engine : object with ``map(function, items)``

    Returns
    -------
    Solution
    """
    if n_init == 1:  # the threads serve the E-step
        return fit(0)
    solutions = engine.map(fit, range(n_init))
    best: Solution = solutions[int(np.argmax([solution.bounds[-1] for solution in solutions]))]
    return best
