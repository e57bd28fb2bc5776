r"""Variational inference of the Bayesian von Mises-Fisher mixture: factors, updates, bound.

The factors are :math:`q(\pi) = \mathrm{Dir}(\rho)`, :math:`q(\mu_k) = \mathrm{vMF}(\psi_k, \gamma_k)`,
:math:`q(\kappa_k)` (see `concentration`) and :math:`q(z_i)`. With :math:`n_k`, :math:`s_k` the sums of
responsibilities and of rows weighted by them, coordinate ascent is

.. math:: \rho_k = \alpha + n_k, \qquad \gamma_k \psi_k = E[\kappa_k] s_k + C_0 \mu_0, \qquad
          E[\mu_k] = A_D(\gamma_k) \psi_k,

(the papers print :math:`A_D(\kappa)` in the last), :math:`q(\kappa_k)` from :math:`n_k` and :math:`t_k = s_k^\top
E[\mu_k]`, then empirical Bayes: :math:`m, \sigma^2` the moments of :math:`\log \kappa`; :math:`\mu_0, C_0` the
maximum likelihood estimates from the :math:`E[\mu_k]`; :math:`\alpha` the maximum of :math:`-\log B(\alpha) + (\alpha
- 1) \sum_k E[\log \pi_k]`. Given :math:`s_k`, the concentrations of a mean and of its rows depend on each other only
through three numbers, so they are iterated together before the next E-step. A shared concentration has one factor,
computed from the sums of :math:`n_k` and of :math:`t_k`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, psi, softmax

from arbora.arrays import Array, Matrix
from arbora.core.products import csr_matmul
from arbora.discover.vmf.concentration import (
    KappaLikelihood,
    KappaPosterior,
    largest_kappa,
    point_posterior,
    prior_divergence,
)
from arbora.infer.mixture.statistics import (
    LinearScores,
    Stats,
    left_out_parts,
    left_out_shares,
    mixed_columns,
    squared_lengths,
)
from arbora.special import bessel_ratio, kappa_mle, sample_vmf, vmf_entropy, vmf_log_normalizer

CERTAIN = 1e12  # concentration of a mean that a start treats as known
_TURNS = 4  # maximum number of updates of (mean, concentration) between two E-steps
_SETTLED = 1e-6  # relative change of the concentrations at which these updates stop
_MIN_VARIANCE = 1e-6  # lower limit for the prior variance of log(kappa), which could shrink to zero
_LOG_ALPHA = (-14.0, 14.0)


class VMFPrior(NamedTuple):
    """Dirichlet parameter, direction and concentration of the means, mean and variance of log(kappa)."""

    alpha: float
    direction: Matrix
    concentration: float
    log_mean: float
    log_variance: float


class VMFPosterior(NamedTuple):
    """Factors of the posterior."""

    directions: Matrix  # psi (n_features, n_components) of the means
    mean_concentrations: Array  # gamma of the means around these directions: how certain the means are
    dirichlet: Array  # rho of the weights
    kappa: KappaPosterior  # concentrations of the rows around the means
    prior: VMFPrior


class Inference(NamedTuple):
    """How to update the factors."""

    kappa_posterior: Callable[[KappaLikelihood, KappaPosterior], KappaPosterior]
    fixed: frozenset[str]  # parts of the prior that are given
    shared: bool = False  # one concentration for all components
    largest: float = largest_kappa(np.float64)  # largest possible concentration

    @property
    def settled(self) -> frozenset[str]:
        """Parts of the prior that are not learned: the given ones, and the variance of a shared concentration.

        If it were learned from one number, the prior would shrink around it in every iteration and stop its progress.
        """
        return self.fixed | {"log_variance"} if self.shared else self.fixed

    def posterior(self, likelihood: KappaLikelihood, before: KappaPosterior) -> KappaPosterior:
        """Return the posterior of the concentrations, with one entry for each component also if it is shared."""
        likelihood = likelihood._replace(largest=self.largest)
        if not self.shared:
            return self.kappa_posterior(likelihood, before)
        pooled = likelihood._replace(
            counts=likelihood.counts.sum(keepdims=True), pulls=likelihood.pulls.sum(keepdims=True)
        )
        common = self.kappa_posterior(pooled, KappaPosterior(*(value[:1] for value in before)))
        return KappaPosterior(*(np.repeat(value, len(likelihood.counts)) for value in common))


class Products(NamedTuple):
    """Scalar products of the terms of a mean: the sum of rows S, and a vector P, which is `strength` times p.

    `square` is S.S, `along` is S.p and `rest` is P.P.
    """

    square: Array
    along: Array
    rest: Any
    strength: float = 1.0


def expected_log_weights(dirichlet: Array) -> Array:
    """Return the expected logarithms of the weights."""
    return np.asarray(psi(dirichlet) - psi(dirichlet.sum()))


def mean_lengths(q: VMFPosterior) -> Array:
    """Return the lengths of the expected means E[mu_k]."""
    return bessel_ratio(q.directions.shape[0] / 2 - 1, q.mean_concentrations)


def begin_posterior(
    mean_row: Array, total: float, start: Any, fixed: dict[str, Any], inference: Inference
) -> VMFPosterior:
    """Return a posterior with certain means, and an initial prior for the parts that are not in `fixed`.

    `total` is the sum of the weights of all rows, `start` the parameters of a mixture without a prior.
    """
    n_features = len(mean_row)
    direction = mean_row if mean_row.any() else np.eye(1, n_features)[0]
    first = {
        "alpha": 1.0,
        "direction": direction / np.linalg.norm(direction),
        "concentration": 0.0,  # the means are independent until their prior is learned
        "log_mean": float(np.log(start.concentrations).mean()),
        "log_variance": 1.0,
    }
    mean_concentrations = np.full(len(start.weights), CERTAIN)
    dirichlet = total * start.weights + 1.0
    prior = VMFPrior(**{**first, **fixed})
    pulls = dirichlet * bessel_ratio(n_features / 2 - 1, start.concentrations)
    likelihood = KappaLikelihood(dirichlet, pulls, prior.log_mean, prior.log_variance, n_features)
    # A distribution with an entropy, not a point: so the first bound is valid.
    kappa = inference.posterior(likelihood, point_posterior(start.concentrations, n_features))
    return VMFPosterior(start.vectors, mean_concentrations, dirichlet, kappa, prior)


def posterior_scores(q: VMFPosterior) -> LinearScores:
    """Return the expected log-joint of rows and components."""
    slope = q.kappa.mean * mean_lengths(q)
    offset = q.kappa.log_normalizer + expected_log_weights(q.dirichlet)
    return LinearScores(q.directions, offset, scale=slope)


def settle(
    posterior: Callable[[KappaLikelihood, KappaPosterior], KappaPosterior],
    likelihood: KappaLikelihood,
    products: Products,
    kappa: KappaPosterior,
) -> tuple[Array, KappaPosterior]:
    """Iterate the updates of concentrations and means, gamma psi = E[kappa] S + P.

    Return the E[kappa] of the last means, and the posterior of kappa given these means.
    """
    square, along, rest, strength = products
    for _ in range(_TURNS):
        used = kappa.mean
        mean_concentrations = np.sqrt(np.maximum(used**2 * square + 2 * used * strength * along + rest, 0.0))
        pulls = used * square + strength * along
        pulls = np.divide(
            pulls, mean_concentrations, out=np.zeros_like(mean_concentrations), where=mean_concentrations > 0
        )
        pulls = bessel_ratio(likelihood.n_features / 2 - 1, mean_concentrations) * pulls
        kappa = posterior(likelihood._replace(pulls=pulls), kappa)
        if np.all(np.abs(kappa.mean - used) <= _SETTLED * used):
            break
    return used, kappa


def update_posterior(inference: Inference, q: VMFPosterior, stats: Stats) -> VMFPosterior:
    """Update all factors except the assignments, then the prior."""
    sums, counts, prior, c0 = stats.sums, stats.counts, q.prior, q.prior.concentration
    along = np.asarray(prior.direction.astype(sums.dtype) @ sums, dtype=np.float64)  # s_k.mu_0
    likelihood = KappaLikelihood(counts, np.zeros_like(along), prior.log_mean, prior.log_variance, len(sums))
    used, kappa = settle(
        inference.posterior, likelihood, Products(squared_lengths(sums), along, c0**2, c0), q.kappa
    )
    directions, squares = mixed_columns(np.ascontiguousarray(sums), used, c0 * prior.direction)
    mean_concentrations = np.sqrt(squares)
    empty = mean_concentrations == 0
    directions /= np.where(empty, 1.0, mean_concentrations).astype(sums.dtype)
    if empty.any():
        directions[:, empty] = q.directions[:, empty]
    new = VMFPosterior(directions, mean_concentrations, prior.alpha + counts, kappa, prior)
    return new._replace(prior=empirical_bayes(new, inference.settled))


def empirical_bayes(q: VMFPosterior, fixed: frozenset[str]) -> VMFPrior:
    """Return the prior that maximises the bound over all parts that are not fixed."""
    prior = q.prior
    learned: dict[str, Any] = {}
    n_components = len(q.dirichlet)
    if "alpha" not in fixed and n_components > 1:
        learned["alpha"] = best_alpha(float(expected_log_weights(q.dirichlet).sum()), n_components)
    total = np.asarray(q.directions @ mean_lengths(q).astype(q.directions.dtype), dtype=np.float64)
    length = float(np.linalg.norm(total))
    if "direction" not in fixed and length > 0:
        learned["direction"] = total / length
    if "concentration" not in fixed:
        along = float(learned.get("direction", prior.direction) @ total) / n_components
        learned["concentration"] = float(kappa_mle(np.clip(along, 0.0, 1 - 1e-12), len(total)))
    if "log_mean" not in fixed:
        learned["log_mean"] = float(q.kappa.log_mean.mean())
    if "log_variance" not in fixed and len(q.kappa.log_mean) > 1:
        m = learned.get("log_mean", prior.log_mean)
        variance = float(np.mean(q.kappa.log_square - 2 * m * q.kappa.log_mean + m**2))
        learned["log_variance"] = max(variance, _MIN_VARIANCE)
    return prior._replace(**learned)


def best_alpha(log_weights: float, n_components: int) -> float:
    """Return the symmetric Dirichlet parameter with the highest bound, given the sum of the E[log pi_k].

    The derivative decreases from infinity to a limit that is not positive, so it has one root.
    """

    def slope(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        return float(n_components * (psi(n_components * alpha) - psi(alpha)) + log_weights)

    low, high = _LOG_ALPHA
    if slope(low) <= 0:
        return float(np.exp(low))
    if slope(high) >= 0:
        return float(np.exp(high))
    return float(np.exp(brentq(slope, low, high, xtol=1e-12)))


def dirichlet_gain(rho: Array, alpha: float) -> float:
    """Return minus the divergence of Dirichlet(rho) from Dirichlet(alpha), the part of the weights in the bound."""
    log_beta = gammaln(rho).sum() - gammaln(rho.sum())
    log_beta_prior = len(rho) * gammaln(alpha) - gammaln(len(rho) * alpha)
    return float(log_beta - log_beta_prior + (alpha - rho) @ expected_log_weights(rho))


def component_extra(q: VMFPosterior, shared: bool = False) -> float:
    """Return minus the divergences of means and concentrations from their priors (once if shared)."""
    prior, n_features = q.prior, q.directions.shape[0]
    cosine = np.asarray(prior.direction.astype(q.directions.dtype) @ q.directions, dtype=np.float64)
    c0 = prior.concentration
    around = vmf_log_normalizer(c0, n_features) + c0 * mean_lengths(q) * cosine
    means = np.sum(around + vmf_entropy(q.mean_concentrations, n_features))
    kappa = prior_divergence(q.kappa, prior.log_mean, prior.log_variance)
    return float(means - (kappa[0] if shared else kappa.sum()))


def posterior_extra(q: VMFPosterior, shared: bool = False) -> float:
    """Return minus the divergences of all factors from their priors."""
    return dirichlet_gain(q.dirichlet, q.prior.alpha) + component_extra(q, shared)


# --- The posterior predictive distribution of Bayesian von Mises-Fisher mixtures: densities and samples -----
#
# The mean of a component is integrated out exactly,
#
# .. math:: \int \mathrm{vMF}(x \mid \mu, \kappa)\, \mathrm{vMF}(\mu \mid \psi, \gamma)\, d\mu =
#           C(\kappa)\, C(\gamma) / C(\|\kappa x + \gamma \psi\|),
#
# and its concentration by quadrature over a log-normal distribution with the moments of the posterior.


_MAX_KAPPA = largest_kappa(np.float64)  # concentration up to which densities are exact to rounding
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)  # quadrature over log(kappa)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()


def predictive_log_density(
    cosine: Array, mean_concentrations: Array, kappa: KappaPosterior, n_features: int
) -> Array:
    """Return log-densities of rows under components with an uncertain mean and concentration.

    `cosine` holds the cosines of rows and directions; `mean_concentrations` has its shape or is (n_components,).
    """
    log_mean_normalizer = vmf_log_normalizer(mean_concentrations, n_features)
    terms = np.empty((len(_NODES), *cosine.shape))
    for term, node, weight in zip(terms, _NODES, _NODE_WEIGHTS, strict=True):
        k = np.minimum(np.exp(kappa.log_mean + np.sqrt(kappa.log_variance) * node), _MAX_KAPPA)
        # ||k x + gamma psi||, without cancellation for a row in the opposite direction
        length = np.sqrt(
            (k - mean_concentrations) ** 2 + 2 * k * mean_concentrations * np.maximum(1 + cosine, 0.0)
        )
        term[:] = np.log(weight) + vmf_log_normalizer(k, n_features) + log_mean_normalizer
        term -= vmf_log_normalizer(length, n_features)
    return np.asarray(logsumexp(terms, axis=0))


def left_out_log_density(q: VMFPosterior, cosine: Array, part: Array) -> Array:
    """Return log-densities of training rows under components whose means lack the part of the row.

    `cosine` holds the cosines of rows and directions, `part` the weights of rows in components.
    """
    pull = part * q.kappa.mean  # part of the row in gamma_k psi_k
    square = (q.mean_concentrations - pull) ** 2 + 2 * q.mean_concentrations * pull * np.maximum(
        1 - cosine, 0.0
    )
    mean_concentrations = np.sqrt(square)
    left = mean_concentrations > 1e-9 * (q.mean_concentrations + pull)
    rest = np.divide(
        q.mean_concentrations * cosine - pull, mean_concentrations, out=np.zeros_like(cosine), where=left
    )
    return predictive_log_density(np.clip(rest, -1, 1), mean_concentrations, q.kappa, q.directions.shape[0])


def mixture_log_density(q: VMFPosterior, X: sp.csr_array) -> Array:
    """Return the log-densities of rows under the mixture."""
    cosine = csr_matmul(X, q.directions.astype(np.float64, copy=False))
    density = predictive_log_density(cosine, q.mean_concentrations, q.kappa, X.shape[1])
    return np.asarray(logsumexp(density + np.log(q.dirichlet / q.dirichlet.sum()), axis=1))


def left_out_mixture_log_density(q: VMFPosterior, log_joint: Array, X: sp.csr_array, weight: Matrix) -> Array:
    """Return the log-densities of training rows under the mixture without that row.

    `log_joint` of rows and components gives the responsibilities.
    """
    part = left_out_parts(softmax(log_joint, axis=1), weight)
    cosine = csr_matmul(X, q.directions.astype(np.float64, copy=False))
    density = left_out_log_density(q, cosine, part)
    return np.asarray(logsumexp(density + left_out_shares(q.dirichlet, part), axis=1))


def sample_predictive(
    means: Array, mean_concentrations: Array, kappa: KappaPosterior, rng: np.random.Generator
) -> Array:
    """Draw one row from the predictive distribution of each given component."""
    means = sample_vmf(means, mean_concentrations, random_state=rng)
    noise = rng.standard_normal(len(means))
    concentration = np.minimum(np.exp(kappa.log_mean + np.sqrt(kappa.log_variance) * noise), _MAX_KAPPA)
    return sample_vmf(means, concentration, random_state=rng)
