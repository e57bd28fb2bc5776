r"""The posterior of a concentration, by quadrature, under a bound, or by sampling.

Given n rows whose mean direction is known up to its own posterior, the density of :math:`u = \log \kappa` is

.. math:: q(u) \propto \exp\bigl(n \log C_D(e^u) + t\, e^u - (u - m)^2 / 2\sigma^2\bigr), \qquad
          t = \sum_i r_i\, x_i^\top E[\mu],

a log-normal prior times a likelihood. Models need the means of :math:`\kappa, \log C_D(\kappa), u, u^2` and the
entropy:

- **grid**: quadrature. The grid zooms in on the mass of the density, so the result is exact to rounding even for a
  narrow density.
- **bound**: the best normal distribution of u, with :math:`\log I_\nu` replaced by an upper bound (Turán type; the
  papers print it with wrong signs), with :math:`s = \sqrt{\kappa^2 + \nu^2}`:
  :math:`\log I_\nu(\kappa) \le s + \nu \log\frac{\kappa}{\nu + s} + \nu \log \nu - \nu - \log\Gamma(\nu + 1)`.
  Means are computed by Gauss-Hermite quadrature instead of the delta method, so the objective is a bound.
- **sample**: Metropolis steps in u. The random numbers are the same in each call; otherwise no fit would converge.

All functions take arrays with one entry for each component.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from arbora.arrays import Array
from arbora.special import kappa_mle, vmf_log_normalizer

_POINTS = 129  # points of the grid
_DEPTH = 45.0  # nats below the maximum at which a density counts as zero
_MAX_ZOOMS = 40
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
_MAX_STEPS, _MAX_HALVINGS = 30, 20
_CHAINS, _DRAWS, _BURN_IN = 64, 8, 8  # of the sampler; draws and burn-in are steps of each chain
# Largest concentration, by the bytes of a number: cosines in single precision cannot resolve a larger one.
_MAX_KAPPA = {4: 1e8, 8: 1e10}
_MIN_LOG = -30.0  # logarithm of the smallest concentration


def largest_kappa(dtype: Any) -> float:
    """Return the largest concentration for rows of this dtype."""
    return _MAX_KAPPA[np.dtype(dtype).itemsize]


class KappaPosterior(NamedTuple):
    """Means under q, one entry for each component."""

    mean: Array  # of kappa
    log_normalizer: Array  # of log C_D(kappa), or a lower bound of it
    log_mean: Array  # of u = log(kappa)
    log_square: Array  # of u^2
    entropy: Array  # of u

    @property
    def log_variance(self) -> Array:
        """Variance of log(kappa)."""
        return np.maximum(self.log_square - self.log_mean**2, 0.0)


class KappaLikelihood(NamedTuple):
    """Counts n and pulls t of the components, prior (m, variance) of log(kappa), dimension, largest concentration.

    Above the largest concentration q is zero. Without this limit, the concentration of a component of equal rows
    would diverge, and with it the prior and the concentrations of components without rows.
    """

    counts: Array
    pulls: Array
    prior_mean: float
    prior_variance: float
    n_features: int
    largest: float = _MAX_KAPPA[8]

    @property
    def log_range(self) -> tuple[float, float]:
        """Logarithms of the smallest and the largest concentration."""
        return _MIN_LOG, float(np.log(self.largest))

    def log_density(self, u: Array) -> Array:
        """Return the log-density of u up to a constant; the first axis of u is that of the components."""
        n, t = (np.expand_dims(value, tuple(range(1, u.ndim))) for value in (self.counts, self.pulls))
        kappa = np.exp(u)
        fit = n * vmf_log_normalizer(kappa, self.n_features) + t * kappa
        return fit - (u - self.prior_mean) ** 2 / (2 * self.prior_variance)


def point_posterior(kappa: Array, n_features: int) -> KappaPosterior:
    """Return the posterior of known concentrations, for a start."""
    u = np.log(kappa)
    return KappaPosterior(kappa, vmf_log_normalizer(kappa, n_features), u, u**2, np.zeros_like(u))


def prior_divergence(q: KappaPosterior, mean: float, variance: float) -> Array:
    """Return the Kullback-Leibler divergence of q from the log-normal prior."""
    square = q.log_square - 2 * mean * q.log_mean + mean**2
    return np.asarray(0.5 * np.log(2 * np.pi * variance) + square / (2 * variance) - q.entropy)


def _zoom(likelihood: KappaLikelihood) -> tuple[Array, Array, Array]:
    """Return points of u for each component, their probabilities, and the spacing."""
    n, t = likelihood.counts, likelihood.pulls
    resultant = np.divide(t, n, out=np.zeros_like(t), where=n > 0)
    peak = np.log(np.maximum(kappa_mle(np.clip(resultant, 0.0, 1 - 1e-12), likelihood.n_features), 1e-12))
    centre, width = likelihood.prior_mean, 12 * np.sqrt(likelihood.prior_variance)
    low = np.clip(np.minimum(peak, centre) - width, *likelihood.log_range)
    high = np.clip(np.maximum(peak, centre) + width, *likelihood.log_range)
    unit = np.linspace(0.0, 1.0, _POINTS)
    for _ in range(_MAX_ZOOMS):
        u = low[:, None] + (high - low)[:, None] * unit
        log_density = likelihood.log_density(u)
        log_density -= log_density.max(axis=1, keepdims=True)
        inside = log_density > -_DEPTH
        first = np.maximum(inside.argmax(axis=1) - 1, 0)
        last = np.minimum(_POINTS - inside[:, ::-1].argmax(axis=1), _POINTS - 1)
        if np.all(last - first >= _POINTS // 2):
            break
        low, high = (np.take_along_axis(u, end[:, None], axis=1)[:, 0] for end in (first, last))
    p = np.exp(log_density)
    return u, p / p.sum(axis=1, keepdims=True), (high - low) / (_POINTS - 1)


def _summary(u: Array, p: Array, log_normalizer: Array, entropy: Array) -> KappaPosterior:
    def mean(values: Array) -> Array:
        return np.asarray(np.einsum("kg,kg->k", values, p))

    return KappaPosterior(mean(np.exp(u)), mean(log_normalizer), mean(u), mean(u**2), entropy)


def grid_posterior(likelihood: KappaLikelihood, before: KappaPosterior) -> KappaPosterior:
    """Compute the posterior by quadrature."""
    u, p, spacing = _zoom(likelihood)
    entropy = np.log(spacing) - np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1)
    return _summary(u, p, vmf_log_normalizer(np.exp(u), likelihood.n_features), entropy)


def sample_posterior(likelihood: KappaLikelihood, before: KappaPosterior) -> KappaPosterior:
    """Compute the posterior by Metropolis steps; its entropy is that of a normal distribution of its variance."""
    rng = np.random.default_rng(0)
    grid = grid_posterior(likelihood, before)
    size = len(grid.mean), _CHAINS
    step = 2.4 * np.sqrt(np.maximum(grid.log_variance, 1e-16))[:, None]
    upper = likelihood.log_range[1]
    state = np.minimum(grid.log_mean[:, None] + step * rng.standard_normal(size), upper)
    value = likelihood.log_density(state)
    states = []
    for draw in range(-_BURN_IN, _DRAWS):
        moved = state + step * rng.standard_normal(size)
        moved_value = np.where(moved > upper, -np.inf, likelihood.log_density(moved))
        accept = np.log(rng.random(size)) < moved_value - value
        state, value = np.where(accept, moved, state), np.where(accept, moved_value, value)
        if draw >= 0:
            states.append(state)
    draws = np.concatenate(states, axis=1)
    entropy = 0.5 * np.log(2 * np.pi * np.e * np.maximum(draws.var(axis=1), 1e-32))
    log_normalizer = vmf_log_normalizer(np.exp(draws), likelihood.n_features)
    return _summary(draws, np.full_like(draws, 1 / draws.shape[1]), log_normalizer, entropy)


def bounded_log_normalizer(kappa: Array, n_features: int) -> Array:
    """Return a lower bound of log C_D(kappa), equal to it at 0."""
    v = n_features / 2 - 1
    s = np.sqrt(kappa**2 + v**2)
    growth = v * np.log1p(s / v) if v > 0 else 0.0
    with_v = gammaln(v + 1) - (v + 1) * np.log(2 * np.pi)
    return np.asarray(growth - kappa**2 / np.maximum(s + v, 1e-300) + with_v)


def bound_posterior(likelihood: KappaLikelihood, before: KappaPosterior) -> KappaPosterior:
    """Return the best normal distribution of log(kappa) under the bound, by Newton and fixed-point steps.

    At the optimum E[h'] = 0 and the variance is -1 / E[h''], where h is the bounded log-density. A step that does not
    raise the bound is shortened.
    """
    n, t, m, variance, n_features, _ = likelihood
    v, w = n_features / 2 - 1, _NODE_WEIGHTS

    def points(mean: Array, sd: Array) -> Array:
        return mean[:, None] + sd[:, None] * _NODES

    def value(mean: Array, sd: Array) -> Array:
        u = points(mean, sd)
        kappa = np.exp(u)
        h = n[:, None] * bounded_log_normalizer(kappa, n_features) + t[:, None] * kappa
        return (h - (u - m) ** 2 / (2 * variance)) @ w + np.log(sd)

    def curvature(mean: Array, sd: Array) -> tuple[Array, Array]:
        u = points(mean, sd)
        kappa = np.exp(u)
        s = np.sqrt(kappa**2 + v**2)
        pull = kappa * (t[:, None] - n[:, None] * kappa / (s + v))
        bend = pull - n[:, None] * kappa**2 * v / (s * (s + v))
        return (pull - (u - m) / variance) @ w, np.maximum(1 / variance - bend @ w, 0.1 / variance)

    def ahead(step: Array) -> Array:
        return np.minimum(mean + step, likelihood.log_range[1])

    mean, sd = _bound_start(likelihood, before, value)
    current = value(mean, sd)
    for _ in range(_MAX_STEPS):
        gradient, precision = curvature(mean, sd)
        step, shrink = gradient / precision, -0.5 * np.log(precision) - np.log(sd)
        scale, better = np.ones_like(mean), np.zeros(len(mean), bool)
        for _ in range(_MAX_HALVINGS):
            moved = value(ahead(scale * step), sd * np.exp(scale * shrink))
            better = moved > current
            if better.all():
                break
            scale = np.where(better, scale, scale / 2)
        scale = np.where(better, scale, 0.0)
        mean, sd = ahead(scale * step), sd * np.exp(scale * shrink)
        current = np.where(better, moved, current)
        if not better.any() or np.max(np.abs(scale * step) / sd + np.abs(scale * shrink)) < 1e-8:
            break
    u = points(mean, sd)
    entropy = 0.5 * np.log(2 * np.pi * np.e) + np.log(sd)
    bound = bounded_log_normalizer(np.exp(u), n_features)
    return _summary(u, np.broadcast_to(w, u.shape), bound, entropy)


def _bound_start(
    likelihood: KappaLikelihood, before: KappaPosterior, value: Callable[[Array, Array], Array]
) -> tuple[Array, Array]:
    """Return the previous distribution, so that the bound cannot fall, or that of the grid if it is better."""
    grid = grid_posterior(likelihood, before)
    fresh = grid.log_mean, np.sqrt(np.maximum(grid.log_variance, 1e-16))
    old = before.log_mean, np.sqrt(np.maximum(before.log_variance, 1e-16))
    better = value(*fresh) > value(*old)
    return np.where(better, fresh[0], old[0]), np.where(better, fresh[1], old[1])


POSTERIORS: dict[str, Callable[[KappaLikelihood, KappaPosterior], KappaPosterior]] = {
    "grid": grid_posterior,
    "bound": bound_posterior,
    "sample": sample_posterior,
}
