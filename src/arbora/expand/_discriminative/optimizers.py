"""Optimisers of discriminative clustering: gradient methods, simulated annealing, stochastic steps.

=============  =============================================  ==============================
"lbfgs"        smoothed cost                                   any cells, any regulariser
"cg"           smoothed cost, with restarts (4.3.1)            any cells, any regulariser
"annealing"    hard cost (4.15) to (4.17)                      prototypes, not "l2"
"stochastic"   (4.4), (4.5), one row at a time                 prototypes, one variable, no regulariser
"stochastic"   mini-batches with running counts                linear cells, not "vq" and "mog"
=============  =============================================  ==============================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammaln

from arbora.core.monitor import Monitor
from arbora.expand.discriminative.cost import (
    Problem,
    cells_of,
    cost_of_counts,
    linear_gradient,
    prototype_gradient,
    slopes,
    unpack_linear,
)
from arbora.expand.transforms.base import lbfgs
from arbora.kernels.discriminative import adapt, anneal, score_gradient, softmax_counts

Matrix = NDArray[Any]
BATCH_ROWS = 512
_TRIAL_STEPS, _TRIAL_IGNORED = 5000, 1000  # of the run that sets the temperature (4.3.2)
_RATE = 0.03  # of the first stochastic step
_ADAM_RATE, _ADAM = 0.05, (0.9, 0.99, 1e-8)
_KINDS = {None: 0, "entropy": 1, "vq": 2, "mog": 3}


class Descent(NamedTuple):
    """Flat parameters where an optimiser ended, its objective, and its history."""

    theta: Matrix
    value: float
    monitor: Monitor


def objective_of(problem: Problem, width: float | None) -> Callable[[Matrix], tuple[float, Matrix]]:
    """Objective and gradient of flat parameters: of prototypes with a width, else of linear cells."""
    squares = problem.rows.squares() if problem.regularizer in ("vq", "mog") else 0.0
    if width is None:
        return lambda theta: linear_gradient(theta, problem, squares)
    return lambda theta: prototype_gradient(theta, problem, squares, width)


def descend(
    problem: Problem,
    start: Matrix,
    width: float | None,
    *,
    method: str,
    tol: float,
    max_iter: int,
    progress: Any = None,
) -> Descent:
    """Minimise the smoothed objective by L-BFGS or conjugate gradients, until the gain per row is below `tol`."""
    objective = objective_of(problem, width)
    monitor = Monitor(tol, max_iter, progress)
    state: dict[str, float] = {}
    n_rows = problem.rows.n_rows

    def function(theta: Matrix) -> tuple[float, Matrix]:
        value, gradient = objective(theta)
        state.setdefault("value", value)  # of the start
        return value, gradient

    def follow(intermediate_result: Any) -> None:
        value = float(intermediate_result.fun)
        gain, state["value"] = (state["value"] - value) / n_rows, value
        if monitor.record(value, gain=max(gain, 0.0)):
            raise StopIteration

    if method == "lbfgs":
        found = lbfgs(function, start, max_iter=max_iter, callback=follow, exact=True)
        theta, value = found.x, found.value
    else:
        theta, value = start, np.inf
        call: Any = minimize
        while not monitor.done:
            before = monitor.n_iter
            options = {"maxiter": min(len(start), max_iter - before), "gtol": 0.0}
            ended = call(function, theta, jac=True, method="CG", callback=follow, options=options)
            theta, value = np.asarray(ended.x), float(ended.fun)
            if monitor.n_iter == before:
                break  # the line search finds no lower point
    if not monitor.n_iter:
        monitor.record(value, change=0.0)
    monitor.converged = monitor.converged or monitor.n_iter < max_iter
    return Descent(theta, value, monitor)


def anneal_prototypes(
    problem: Problem, start: Matrix, width: float, rng: np.random.Generator, n_steps: int
) -> Descent:
    """Anneal the hard cost, with the temperature of (4.17) from a trial run."""
    rows, labels = problem.rows, problem.labels
    Z = rows.dense(slice(0, rows.n_rows))
    n_clusters = problem.n_clusters
    M = np.ascontiguousarray(start[: n_clusters * rows.n_features].reshape(n_clusters, -1)).copy()
    steps = np.arange(rows.n_rows + 1)
    log_gamma = gammaln(steps + problem.prior)
    log_total = np.array([gammaln(steps + problem.prior * len(names)) for names in labels.classes])
    shared = (
        log_gamma,
        log_total,
        labels.variable,
        _KINDS[problem.regularizer],
        problem.strength,
        np.sqrt(width),
    )
    monitor = Monitor(0.0, 1)
    n_trial = min(_TRIAL_STEPS, max(n_steps // 4, 2))
    ignored = min(_TRIAL_IGNORED, n_trial // 5)
    rise = anneal(Z, labels.codes, M, *shared, ignored, n_trial, 0.0, rng)
    value = anneal(Z, labels.codes, M, *shared, 0, n_steps, max(rise / 2, 1e-12), rng)
    monitor.record(float(value))
    monitor.converged = True
    return Descent(M.ravel(), float(value), monitor)


def adapt_prototypes(
    problem: Problem, start: Matrix, width: float, rng: np.random.Generator, n_steps: int
) -> Descent:
    """Stochastic steps over rows drawn at random, in batches of bounded memory."""
    rows, labels, n_clusters = problem.rows, problem.labels, problem.n_clusters
    M = np.ascontiguousarray(start.reshape(n_clusters, -1)).copy()
    gamma = np.zeros((labels.n_classes, n_clusters))
    monitor = Monitor(0.0, -(-n_steps // 65_536))
    for first in range(0, n_steps, 65_536):
        drawn = rng.integers(rows.n_rows, size=min(65_536, n_steps - first))
        adapt(rows.dense(drawn), labels.codes[drawn], M, gamma, 1 / width, _RATE, first, n_steps, rng)
        monitor.record(hard_cost(problem, 2 * M, -(M**2).sum(axis=1)))
    monitor.converged = True
    return Descent(M.ravel(), monitor.objective, monitor)


def hard_cost(problem: Problem, W: Matrix, b: Matrix) -> float:
    """Cost (4.11) of the rows of the problem, with the sign of a loss."""
    counts = cells_of(problem.rows, W, b, problem.labels)[1]
    return cost_of_counts(counts, problem.labels, problem.prior, problem.entropy)


def adapt_linear(problem: Problem, start: Matrix, rng: np.random.Generator, n_steps: int) -> Descent:
    """Adam over mini-batches; the counts of all rows are running means of the counts of batches.

    The slopes of the cost need the counts of all rows. They change slowly, so that a running mean replaces them.
    """
    rows, labels = problem.rows, problem.labels
    theta = start.copy()
    W, b = unpack_linear(theta, problem)
    size = min(BATCH_ROWS, rows.n_rows)
    n_batches = max(1, n_steps // size)
    memory = 1 - min(0.5, 5 / n_batches)
    factor = rows.n_rows / size
    m, v = np.zeros((2, *theta.shape))
    first_decay, second_decay, floor = _ADAM
    counts = np.zeros((labels.n_classes, problem.n_clusters))
    scratch = np.zeros_like(counts)
    nothing = np.empty((0, problem.n_clusters), rows.dtype)
    penalty = problem.strength if problem.regularizer == "l2" else 0.0
    monitor = Monitor(0.0, n_batches)
    weight = 0.0
    for batch in range(n_batches):
        chosen = np.sort(
            rng.choice(rows.n_rows, size, replace=False) if size < rows.n_rows else np.arange(size)
        )
        part, codes = rows.take(chosen), labels.codes[chosen]
        whole = slice(0, size)
        S = part.scores(whole, W, b)
        scratch[:] = 0
        softmax_counts(S, codes, scratch)
        counts = memory * counts + (1 - memory) * factor * scratch
        weight = memory * weight + 1 - memory
        score_gradient(S, codes, slopes(counts / weight, problem), nothing, 0.0)
        g = np.column_stack([-factor * part.back(whole, S) + penalty * W, -factor * S.sum(axis=0)]).ravel()
        g /= rows.n_rows
        m = first_decay * m + (1 - first_decay) * g
        v = second_decay * v + (1 - second_decay) * g * g
        step = _ADAM_RATE * (1 - batch / n_batches)
        theta -= (
            step
            * (m / (1 - first_decay ** (batch + 1)))
            / (np.sqrt(v / (1 - second_decay ** (batch + 1))) + floor)
        )
        monitor.record(
            cost_of_counts(counts / weight, labels, problem.prior, problem.entropy)
            + penalty / 2 * float((W**2).sum())
        )
    monitor.converged = True
    return Descent(theta, monitor.objective, monitor)
