r"""The posterior predictive distribution of Bayesian von Mises-Fisher mixtures: densities and samples.

The mean of a component is integrated out exactly,

.. math:: \int \mathrm{vMF}(x \mid \mu, \kappa)\, \mathrm{vMF}(\mu \mid \psi, \gamma)\, d\mu =
          C(\kappa)\, C(\gamma) / C(\|\kappa x + \gamma \psi\|),

and its concentration by quadrature over a log-normal distribution with the moments of the posterior.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from arbora.core.products import csr_matmul
from arbora.discover.mixture.prediction import left_out_shares, own_parts
from arbora.discover.vmf.concentration import KappaPosterior, largest_kappa
from arbora.discover.vmf.posterior import VMFPosterior
from arbora.special import sample_vmf, vmf_log_normalizer

Array = NDArray[np.float64]

_LARGEST = largest_kappa(np.float64)  # concentration up to which densities are exact to rounding
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)  # quadrature over log(kappa)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()


def predictive_log_density(
    cosine: Array, mean_concentrations: Array, kappa: KappaPosterior, n_features: int
) -> Array:
    """Return log-densities of rows under components with an uncertain mean and concentration.

    Parameters
    ----------
    cosine : ndarray of shape (n_samples, n_components)
        Cosines of rows and directions.
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
        # ||k x + gamma psi||, without cancellation for a row in the opposite direction
        length = np.sqrt(
            (k - mean_concentrations) ** 2 + 2 * k * mean_concentrations * np.maximum(1 + cosine, 0.0)
        )
        term[:] = np.log(weight) + vmf_log_normalizer(k, n_features) + log_mean_normalizer
        term -= vmf_log_normalizer(length, n_features)
    return np.asarray(logsumexp(terms, axis=0))


def left_out_log_density(q: VMFPosterior, cosine: Array, part: Array) -> Array:
    """Return log-densities of training rows under components whose means lack the part of the row.

    Parameters
    ----------
    q : VMFPosterior
    cosine, part : ndarray of shape (n_samples, n_components)
        Cosines of rows and directions; weights of rows in components.

    Returns
    -------
    ndarray of shape (n_samples, n_components)
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


def left_out_mixture_log_density(
    q: VMFPosterior, log_joint: Array, X: sp.csr_array, weight: NDArray[Any]
) -> Array:
    """Return the log-densities of training rows under the mixture without that row.

    Parameters
    ----------
    q : VMFPosterior
    log_joint : ndarray of shape (n_samples, n_components)
        Log-joint of rows and components, which gives the responsibilities.
    X : CSR array of shape (n_samples, n_features)
    weight : ndarray of shape (n_samples,)

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    part = own_parts(softmax(log_joint, axis=1), weight)
    cosine = csr_matmul(X, q.directions.astype(np.float64, copy=False))
    density = left_out_log_density(q, cosine, part)
    return np.asarray(logsumexp(density + left_out_shares(q.dirichlet, part), axis=1))


def sample_predictive(
    means: Array, mean_concentrations: Array, kappa: KappaPosterior, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw one row from the predictive distribution of each given component."""
    means = sample_vmf(means, mean_concentrations, random_state=rng)
    noise = rng.standard_normal(len(means))
    concentration = np.minimum(np.exp(kappa.log_mean + np.sqrt(kappa.log_variance) * noise), _LARGEST)
    return sample_vmf(means, concentration, random_state=rng)
