r"""Variational inference of the Bayesian von Mises-Fisher mixture: factors, updates, bound, predictive density.

The factors are :math:`q(\pi) = \mathrm{Dir}(\rho)`, :math:`q(\mu_k) = \mathrm{vMF}(\psi_k, \gamma_k)`,
:math:`q(\kappa_k)` (see `_concentration`) and :math:`q(z_i)`. With :math:`n_k`, :math:`s_k` the sums of
responsibilities and of rows weighted by them, coordinate ascent is

.. math:: \rho_k = \alpha + n_k, \qquad \gamma_k \psi_k = E[\kappa_k] s_k + C_0 \mu_0, \qquad
          E[\mu_k] = A_D(\gamma_k) \psi_k,

(the papers print :math:`A_D(\kappa)` in the last), :math:`q(\kappa_k)` from :math:`n_k` and
:math:`t_k = s_k^\top E[\mu_k]`, then empirical Bayes:
:math:`m, \sigma^2` the moments of :math:`\log \kappa`; :math:`\mu_0, C_0` the maximum likelihood estimates from the
:math:`E[\mu_k]`; :math:`\alpha` the maximum of :math:`-\log B(\alpha) + (\alpha - 1) \sum_k E[\log \pi_k]`. Given
:math:`s_k`, the concentrations of a mean and of its rows depend on each other through three numbers alone, so that
they are iterated with each other before the next look at the data. A concentration that all components share has one
factor, made of the sums of :math:`n_k` and of :math:`t_k`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, psi

from arbora.discover.vmf.concentration import (
    KappaLikelihood,
    KappaPosterior,
    largest_kappa,
    point_posterior,
    prior_divergence,
)
from arbora.infer.mixture.statistics import LinearScores, Stats, mixed_columns, squared_lengths
from arbora.special import bessel_ratio, kappa_mle, sample_vmf, vmf_entropy, vmf_log_normalizer

Array = NDArray[np.float64]

CERTAIN = 1e12  # concentration of a mean that is taken as known, for a start
_TURNS = 4  # of (mean, concentration) between two E-steps, at most
_SETTLED = 1e-6  # relative change of the concentrations that ends them
_LEAST_VARIANCE = 1e-6  # of the prior of log(kappa), which could shrink to a point
_LOG_ALPHA = (-14.0, 14.0)
_LARGEST = largest_kappa(np.float64)  # concentration of which densities are exact to rounding
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)  # of kappa in the predictive density
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()


class VMFPrior(NamedTuple):
    """Dirichlet parameter, direction and concentration of the means, mean and variance of log(kappa)."""

    alpha: float
    direction: NDArray[Any]
    concentration: float
    log_mean: float
    log_variance: float


class VMFPosterior(NamedTuple):
    """Factors of the posterior.

    Attributes
    ----------
    directions : ndarray of shape (n_features, n_components)
        Directions psi_k of the means.
    mean_concentrations : ndarray of shape (n_components,)
        Concentrations gamma_k of the means around these directions: how certain the means are.
    dirichlet : ndarray of shape (n_components,)
        Parameters rho_k of the weights.
    kappa : KappaPosterior
        Concentrations of the rows around the means.
    prior : VMFPrior
    """

    directions: NDArray[Any]
    mean_concentrations: Array
    dirichlet: Array
    kappa: KappaPosterior
    prior: VMFPrior


class Inference(NamedTuple):
    """How to update: the posterior of kappa, parts of the prior that stay, whether there is one kappa, its end."""

    kappa_posterior: Callable[[KappaLikelihood, KappaPosterior], KappaPosterior]
    fixed: frozenset[str]
    shared: bool = False
    largest: float = _LARGEST

    @property
    def settled(self) -> frozenset[str]:
        """Parts of the prior that are not learned: those given, and a variance that one number does not have.

        Learned, the prior of a concentration that all share would shrink around it in every iteration and hold it.
        """
        return self.fixed | {"log_variance"} if self.shared else self.fixed

    def posterior(self, likelihood: KappaLikelihood, before: KappaPosterior) -> KappaPosterior:
        """Posterior of the concentrations, one entry for each component even if they are the same."""
        likelihood = likelihood._replace(largest=self.largest)
        if not self.shared:
            return self.kappa_posterior(likelihood, before)
        pooled = likelihood._replace(
            counts=likelihood.counts.sum(keepdims=True), pulls=likelihood.pulls.sum(keepdims=True)
        )
        one = self.kappa_posterior(pooled, KappaPosterior(*(value[:1] for value in before)))
        return KappaPosterior(*(np.repeat(value, len(likelihood.counts)) for value in one))


class Products(NamedTuple):
    """Scalar products of what acts on a mean: rows with the sum S, and a vector P, `strength` times p.

    `square` is S.S, `along` is S.p and `rest` is P.P.
    """

    square: Array
    along: Array
    rest: Any
    strength: float = 1.0


def expected_log_weights(dirichlet: Array) -> Array:
    """Means of the logarithms of the weights."""
    return np.asarray(psi(dirichlet) - psi(dirichlet.sum()))


def mean_lengths(q: VMFPosterior) -> Array:
    """Lengths of the means E[mu_k]."""
    return bessel_ratio(q.directions.shape[0] / 2 - 1, q.mean_concentrations)


def begin_posterior(
    mean_row: Array, total: float, start: Any, given: dict[str, Any], how: Inference
) -> VMFPosterior:
    """Posterior with certain means, and a prior to begin with where none is given.

    Parameters
    ----------
    mean_row : ndarray of shape (n_features,)
    total : float
        Weight of all rows.
    start : VMFParams
    given : dict
        Parts of the prior that are given.
    how : Inference

    Returns
    -------
    VMFPosterior
    """
    n_features = len(mean_row)
    direction = mean_row if mean_row.any() else np.eye(1, n_features)[0]
    first = {
        "alpha": 1.0,
        "direction": direction / np.linalg.norm(direction),
        "concentration": 0.0,  # the means are free of each other until their prior is learned
        "log_mean": float(np.log(start.concentrations).mean()),
        "log_variance": 1.0,
    }
    mean_concentrations = np.full(len(start.weights), CERTAIN)
    dirichlet = total * start.weights + 1.0
    prior = VMFPrior(**{**first, **given})
    pulls = dirichlet * bessel_ratio(n_features / 2 - 1, start.concentrations)
    likelihood = KappaLikelihood(dirichlet, pulls, prior.log_mean, prior.log_variance, n_features)
    # A law, not a point, which would have no entropy: the first bound is one already.
    kappa = how.posterior(likelihood, point_posterior(start.concentrations, n_features))
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
    """Iterate concentrations with the means that belong to them, gamma psi = E[kappa] S + P.

    Returns E[kappa] as the last means have it, and the posterior of kappa given these means.
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


def update_posterior(how: Inference, q: VMFPosterior, stats: Stats) -> VMFPosterior:
    """One sweep over all factors but that of the assignments, and over the prior."""
    sums, counts, prior, c0 = stats.sums, stats.counts, q.prior, q.prior.concentration
    along = np.asarray(prior.direction.astype(sums.dtype) @ sums, dtype=np.float64)  # s_k.mu_0
    likelihood = KappaLikelihood(counts, np.zeros_like(along), prior.log_mean, prior.log_variance, len(sums))
    used, kappa = settle(
        how.posterior, likelihood, Products(squared_lengths(sums), along, c0**2, c0), q.kappa
    )
    directions, squares = mixed_columns(np.ascontiguousarray(sums), used, c0 * prior.direction)
    mean_concentrations = np.sqrt(squares)
    empty = mean_concentrations == 0
    directions /= np.where(empty, 1.0, mean_concentrations).astype(sums.dtype)
    if empty.any():
        directions[:, empty] = q.directions[:, empty]
    new = VMFPosterior(directions, mean_concentrations, prior.alpha + counts, kappa, prior)
    return new._replace(prior=empirical_bayes(new, how.settled))


def empirical_bayes(q: VMFPosterior, fixed: frozenset[str]) -> VMFPrior:
    """Prior that maximises the bound, in all parts that are not fixed."""
    prior = q.prior
    found: dict[str, Any] = {}
    n_components = len(q.dirichlet)
    if "alpha" not in fixed and n_components > 1:
        found["alpha"] = best_alpha(float(expected_log_weights(q.dirichlet).sum()), n_components)
    total = np.asarray(q.directions @ mean_lengths(q).astype(q.directions.dtype), dtype=np.float64)
    length = float(np.linalg.norm(total))
    if "direction" not in fixed and length > 0:
        found["direction"] = total / length
    if "concentration" not in fixed:
        along = float(found.get("direction", prior.direction) @ total) / n_components
        found["concentration"] = float(kappa_mle(np.clip(along, 0.0, 1 - 1e-12), len(total)))
    if "log_mean" not in fixed:
        found["log_mean"] = float(q.kappa.log_mean.mean())
    if "log_variance" not in fixed and len(q.kappa.log_mean) > 1:
        m = found.get("log_mean", prior.log_mean)
        away = float(np.mean(q.kappa.log_square - 2 * m * q.kappa.log_mean + m**2))
        found["log_variance"] = max(away, _LEAST_VARIANCE)
    return prior._replace(**found)


def best_alpha(log_weights: float, n_components: int) -> float:
    """Symmetric Dirichlet parameter with the highest bound, given the sum of the E[log pi_k].

    The derivative falls from infinity to a limit that is not positive, so that it has one root.

    Examples
    --------
    >>> bool(best_alpha(-30.0, 3) < best_alpha(-4.0, 3))
    True
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
    """Part of the bound that is the weights': minus the divergence of Dirichlet(rho) from Dirichlet(alpha).

    Examples
    --------
    >>> dirichlet_gain(np.full(3, 2.0), 2.0)
    0.0
    """
    log_beta = gammaln(rho).sum() - gammaln(rho.sum())
    log_beta_prior = len(rho) * gammaln(alpha) - gammaln(len(rho) * alpha)
    return float(log_beta - log_beta_prior + (alpha - rho) @ expected_log_weights(rho))


def component_extra(q: VMFPosterior, shared: bool = False) -> float:
    """Minus the divergences of means and concentrations from their priors; a shared concentration has one."""
    prior, n_features = q.prior, q.directions.shape[0]
    cosine = np.asarray(prior.direction.astype(q.directions.dtype) @ q.directions, dtype=np.float64)
    c0 = prior.concentration
    means = vmf_log_normalizer(c0, n_features) + c0 * mean_lengths(q) * cosine
    means = np.sum(means + vmf_entropy(q.mean_concentrations, n_features))
    kappa = prior_divergence(q.kappa, prior.log_mean, prior.log_variance)
    return float(means - (kappa[0] if shared else kappa.sum()))


def posterior_extra(q: VMFPosterior, shared: bool = False) -> float:
    """Minus the divergences of all factors from their priors."""
    return dirichlet_gain(q.dirichlet, q.prior.alpha) + component_extra(q, shared)


def predictive_log_density(
    cosine: Array, mean_concentrations: Array, kappa: KappaPosterior, n_features: int
) -> Array:
    r"""Log-densities of rows under components whose mean and concentration are not known for certain.

    The mean is integrated out exactly,
    :math:`\int vMF(x|\mu, \kappa) vMF(\mu|\psi, \gamma) d\mu = C(\kappa) C(\gamma) / C(\|\kappa x + \gamma
    \psi\|)`; the concentration by quadrature of a log-normal law with the moments of its posterior.

    Parameters
    ----------
    cosine : ndarray of shape (n_samples, n_components)
        Of rows and directions.
    mean_concentrations : ndarray of shape (n_components,) or (n_samples, n_components)
    kappa : KappaPosterior
    n_features : int

    Returns
    -------
    ndarray of shape (n_samples, n_components)
    """
    log_mean_normalizer = vmf_log_normalizer(mean_concentrations, n_features)
    terms = np.empty((len(_NODES), *cosine.shape))
    for term, node, weight in zip(terms, _NODES, _NODE_WEIGHTS, strict=True):
        k = np.minimum(np.exp(kappa.log_mean + np.sqrt(kappa.log_variance) * node), _LARGEST)
        # ||k x + s psi||, without cancellation where the row points the other way
        length = np.sqrt(
            (k - mean_concentrations) ** 2 + 2 * k * mean_concentrations * np.maximum(1 + cosine, 0.0)
        )
        term[:] = np.log(weight) + vmf_log_normalizer(k, n_features) + log_mean_normalizer
        term -= vmf_log_normalizer(length, n_features)
    return np.asarray(logsumexp(terms, axis=0))


def left_out_log_density(q: VMFPosterior, cosine: Array, part: Array) -> Array:
    """Log-densities of training rows under components without the row's own part in their means.

    Parameters
    ----------
    q : VMFPosterior
    cosine, part : ndarray of shape (n_samples, n_components)
        Of rows and directions; weights of rows in components.

    Returns
    -------
    ndarray of shape (n_samples, n_components)
    """
    pull = part * q.kappa.mean  # the row's own part of gamma_k psi_k
    square = (q.mean_concentrations - pull) ** 2 + 2 * q.mean_concentrations * pull * np.maximum(
        1 - cosine, 0.0
    )
    mean_concentrations = np.sqrt(square)
    left = mean_concentrations > 1e-9 * (q.mean_concentrations + pull)
    rest = np.divide(
        q.mean_concentrations * cosine - pull, mean_concentrations, out=np.zeros_like(cosine), where=left
    )
    return predictive_log_density(np.clip(rest, -1, 1), mean_concentrations, q.kappa, q.directions.shape[0])


def sample_predictive(
    means: Array, mean_concentrations: Array, kappa: KappaPosterior, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw a row from the predictive distribution of each component that is given, one entry for each draw."""
    means = sample_vmf(means, mean_concentrations, random_state=rng)
    noise = rng.standard_normal(len(means))
    concentration = np.minimum(np.exp(kappa.log_mean + np.sqrt(kappa.log_variance) * noise), _LARGEST)
    return sample_vmf(means, concentration, random_state=rng)
