"""Hamiltonian Monte Carlo: a step with a Metropolis correction, and a step size adapted by dual averaging.

To sample exp(-U(z)), a momentum r ~ N(0, I) is drawn and the pair moves along dz/dt = r, dr/dt = -U'(z) by leapfrog
steps, which preserve volume and are reversible. The end point is accepted with probability min(1, exp(H - H')), H =
U(z) + ||r||^2 / 2, which corrects the error of the steps exactly (Duane et al. 1987, Neal 2011). The variables should
be scaled so that U is about ||z||^2 / 2; a trajectory of a quarter of a period, pi/2, then decorrelates best.

In the warm-up, dual averaging (Hoffman and Gelman 2014, section 3.2) adapts the step size to a target of the mean
acceptance probability.

References
----------
R. M. Neal (2011). MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo, ch. 5.
M. D. Hoffman and A. Gelman (2014). The No-U-Turn sampler. JMLR 15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from arbora.arrays import Array

ValueAndGradient = Callable[[Array], tuple[float, Array]]

_SHRINKAGE, _DELAY, _FORGETTING = 0.05, 10.0, 0.75  # gamma, t_0 and kappa of Hoffman and Gelman


class StepSize(NamedTuple):
    """State of dual averaging; use `size` while adapting and `averaged` afterwards."""

    size: float
    averaged: float
    centre: float  # logarithm that sizes shrink to
    error: float = 0.0  # running mean of target minus acceptance
    n_updates: int = 0


class Move(NamedTuple):
    """The result of a step of Hamiltonian Monte Carlo."""

    position: Array
    acceptance: float  # acceptance probability of the end point
    accepted: bool


def start_step_size(size: float) -> StepSize:
    """Start dual averaging near a step size."""
    return StepSize(size, size, float(np.log(10 * size)))


def update_step_size(step: StepSize, acceptance: float, target: float = 0.8) -> StepSize:
    """Adapt the step size after a step with that acceptance probability; `target` is the mean to reach."""
    n = step.n_updates + 1
    share = 1 / (n + _DELAY)
    error = (1 - share) * step.error + share * (target - acceptance)
    log_size = step.centre - np.sqrt(n) / _SHRINKAGE * error
    weight = n**-_FORGETTING
    log_averaged = weight * log_size + (1 - weight) * np.log(step.averaged)
    return StepSize(float(np.exp(log_size)), float(np.exp(log_averaged)), step.centre, error, n)


def hamiltonian_step(
    potential: ValueAndGradient, position: Array, size: float, n_steps: int, rng: np.random.Generator
) -> Move:
    """Take `n_steps` leapfrog steps and accept their end point or not; exp(-potential) stays invariant.

    The potential returns value and gradient of the negative log-density. Neither needs to be finite far away;
    overflow is ignored. `size` and `n_steps` must not depend on the position.
    """
    value, gradient = potential(position)
    momentum = rng.standard_normal(position.shape)
    threshold = rng.standard_exponential()  # -log of a uniform number
    start = energy = value + 0.5 * float(np.vdot(momentum, momentum))
    moved = position
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(n_steps):
            momentum = momentum - 0.5 * size * gradient
            moved = moved + size * momentum
            value, gradient = potential(moved)
            if not np.isfinite(value):  # the trajectory is rejected from both ends
                return Move(position, 0.0, False)
            momentum = momentum - 0.5 * size * gradient
        energy = value + 0.5 * float(np.vdot(momentum, momentum))
    accepted = bool(energy - start < threshold)
    return Move(moved if accepted else position, float(np.exp(min(0.0, start - energy))), accepted)


# --- Slice sampling of a single number: exact, without a step size to tune (Neal 2003) ----------------------
#
# A level is drawn uniformly below the density at the current value. An interval around the value is widened until the
# density at both ends is below the level. Then points are drawn from it until the density at one is above the level;
# each point that is rejected becomes an end of the interval.
#
# References
# ----------
# R. M. Neal (2003). Slice sampling. Annals of Statistics 31(3).


_MAX_WIDENINGS = 50


def slice_step(
    log_density: Callable[[float], float], value: float, width: float, rng: np.random.Generator
) -> float:
    """Take a step that leaves the density of a number invariant.

    `log_density` is known up to a constant, minus infinity where the density is zero; `value` has a positive density.
    `width` is a first guess of the width of the density; a bad guess costs evaluations but not exactness.
    """
    level = log_density(value) - rng.standard_exponential()
    low = value - width * rng.random()
    high = low + width
    # The number of widenings is split at random between the sides; otherwise the step would not be reversible.
    left = int(rng.integers(_MAX_WIDENINGS))
    right = _MAX_WIDENINGS - 1 - left
    while left > 0 and log_density(low) > level:
        low, left = low - width, left - 1
    while right > 0 and log_density(high) > level:
        high, right = high + width, right - 1
    while True:
        moved = float(rng.uniform(low, high))
        if log_density(moved) > level:
            return moved
        if moved == value:  # the interval has shrunk to rounding error
            return value
        low, high = (moved, high) if moved < value else (low, moved)
