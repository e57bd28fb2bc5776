r"""Stick-breaking weights of a Dirichlet process, and their variational posterior.

.. math:: v_k \sim \mathrm{Beta}(1, \eta), \quad \pi_k = v_k \prod_{j<k} (1 - v_j), \qquad
          q(v_k) = \mathrm{Beta}(a_k, b_k), \quad v_K = 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, psi

Array = NDArray[np.float64]

_ETA_RANGE = (1e-3, 1e3)


class Sticks(NamedTuple):
    """Posterior of the stick proportions: parameters of the beta distributions, (2, n_components - 1), and eta."""

    beta: Array
    eta: float


def stick_logs(beta: Array) -> tuple[Array, Array]:
    """Return the expected log(v) and log(1 - v)."""
    total = psi(beta.sum(axis=0))
    return psi(beta[0]) - total, psi(beta[1]) - total


def stick_log_weights(sticks: Sticks) -> Array:
    """Return the expected logarithms of the weights."""
    log_v, log_rest = stick_logs(sticks.beta)
    return np.asarray(np.append(log_v, 0.0) + np.append(0.0, np.cumsum(log_rest)))


def stick_weights(sticks: Sticks) -> Array:
    """Return the expected weights.

    Examples
    --------
    >>> stick_weights(Sticks(np.array([[2.0, 1.0], [2.0, 3.0]]), 1.0))
    array([0.5  , 0.125, 0.375])
    """
    v = sticks.beta[0] / sticks.beta.sum(axis=0)
    return np.asarray(np.append(v, 1.0) * np.append(1.0, np.cumprod(1 - v)))


def update_sticks(sticks: Sticks, counts: Array, learn: bool) -> Sticks:
    """Update the stick proportions given counts in descending order, and eta if `learn`."""
    if len(counts) == 1:
        return sticks
    after = np.append(np.cumsum(counts[::-1])[::-1][1:], 0.0)[:-1]
    beta = np.array([1 + counts[:-1], sticks.eta + after])
    eta = sticks.eta
    if learn:
        eta = float(np.clip(beta.shape[1] / -stick_logs(beta)[1].sum(), *_ETA_RANGE))
    return Sticks(beta, eta)


def stick_extra(sticks: Sticks) -> float:
    """Return minus the divergence of the stick proportions from their prior."""
    a, b = sticks.beta
    log_v, log_rest = stick_logs(sticks.beta)
    return float(np.sum(np.log(sticks.eta) + betaln(a, b) + (1 - a) * log_v + (sticks.eta - b) * log_rest))
