r"""Evolving weights of components: the softmax of a random walk.

.. math:: \eta_{1k} \sim N(0, \tau^2), \quad \eta_{tk} \sim N(\eta_{t-1,k}, s^2), \quad
          \pi_t = \mathrm{softmax}(\eta_t).

The factors are :math:`q(\eta_{tk}) = N(m_{tk}, v_{tk})`. The mean of the log-weights has a lower bound (Jensen),

.. math:: E[\log \pi_{tk}] \ge m_{tk} - \log \sum_j \exp(m_{tj} + v_{tj} / 2),

so the bound is concave in m. All m and log v are optimised together by L-BFGS; the variances are learned in closed
form. The thesis has a Dirichlet draw with parameters softmax(eta) between the walk and the weights. Those parameters
sum to one: such a draw has nearly all its mass on one component, and ties the weights of neighbours in time by no
more than one row. It is omitted here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]

_LEAST_VARIANCE = 1e-4  # lower limit for the variances of the walk, which could shrink to zero
_MOST_STEPS = 30


class WeightWalk(NamedTuple):
    """Means and variances of eta (n_times, n_components), and the variances tau^2 (first) and s^2 (step)."""

    mean: Array
    variance: Array
    first: float
    step: float


def _log_sum(values: Array) -> Array:
    """Return the logarithm of the sum of the exponentials in each row, kept as a column."""
    top = values.max(axis=1, keepdims=True)
    return np.asarray(top + np.log(np.exp(values - top).sum(axis=1, keepdims=True)))


def start_walk(weights: Array, n_times: int) -> WeightWalk:
    """Return a walk with constant weights.

    Examples
    --------
    >>> walk_weights(start_walk(np.array([0.25, 0.75]), 2))
    array([[0.25, 0.75],
           [0.25, 0.75]])
    """
    eta = np.log(np.maximum(weights, 1e-6))
    mean = np.tile(eta - eta.mean(), (n_times, 1))
    return WeightWalk(mean, np.full(mean.shape, 0.1), 1.0, 0.1)


def walk_log_weights(walk: WeightWalk) -> Array:
    """Return lower bounds of the expected log-weights."""
    return walk.mean - _log_sum(walk.mean + walk.variance / 2)


def walk_weights(walk: WeightWalk) -> Array:
    """Return the weights at the means of eta."""
    return np.exp(walk.mean - _log_sum(walk.mean))


def walk_extra(walk: WeightWalk) -> float:
    """Return minus the divergence of the factors from the random walk."""
    m, v, first, step = walk
    value = (
        0.5 * np.sum(1 + np.log(v))
        - 0.5 * m.shape[1] * np.log(first)
        - np.sum(m[0] ** 2 + v[0]) / (2 * first)
    )
    moved = (m[1:] - m[:-1]) ** 2 + v[1:] + v[:-1]
    return float(value - 0.5 * moved.size * np.log(step) - moved.sum() / (2 * step))


def walk_value(walk: WeightWalk, counts: Array) -> tuple[float, Array, Array]:
    """Return the bound of the walk given counts of rows, and its gradients by the means and by the log-variances."""
    m, v, first, step = walk
    total, share = counts.sum(axis=1, keepdims=True), np.exp(m + v / 2 - _log_sum(m + v / 2))
    value = float(np.sum(counts * walk_log_weights(walk))) + walk_extra(walk)
    pull = (m[1:] - m[:-1]) / step
    by_mean = counts - total * share
    by_mean[0] -= m[0] / first
    by_mean[1:] -= pull
    by_mean[:-1] += pull
    precision = np.zeros_like(v)
    precision[0] += 1 / first
    precision[1:] += 1 / step
    precision[:-1] += 1 / step
    return value, by_mean, 0.5 - 0.5 * v * (total * share + precision)


def update_walk(walk: WeightWalk, counts: Array) -> WeightWalk:
    """Optimise means and variances of eta, then learn the variances of the walk."""
    shape = walk.mean.shape

    def unpack(x: Array) -> WeightWalk:
        m, log_v = x.reshape(2, *shape)
        return walk._replace(mean=m, variance=np.exp(np.clip(log_v, -30.0, 5.0)))

    def negative(x: Array) -> tuple[float, Array]:
        value, *gradient = walk_value(unpack(x), counts)
        return -value, -np.concatenate([part.ravel() for part in gradient])

    here = np.concatenate([walk.mean.ravel(), np.log(walk.variance).ravel()])
    found = minimize(negative, here, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS})
    if found.fun <= negative(here)[0]:
        walk = unpack(found.x)
    m, v = walk.mean, walk.variance
    first = max(float(np.mean(m[0] ** 2 + v[0])), _LEAST_VARIANCE)
    if len(m) == 1:
        return walk._replace(first=first)
    step = max(float(np.mean((m[1:] - m[:-1]) ** 2 + v[1:] + v[:-1])), _LEAST_VARIANCE)
    return walk._replace(first=first, step=step)
