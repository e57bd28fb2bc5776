r"""Updates that means with a neighbourhood share: nodes of a tree, points of time.

A mean has what lies around it (N pieces with the sum S, seen with its concentration :math:`\kappa`) and what its
neighbours say of it (a vector P). Then :math:`\gamma \psi = E[\kappa] S + P`. Given S and P, the mean and its
concentration depend on each other through :math:`\|S\|^2, S^\top P` and :math:`\|P\|^2` alone, and are iterated
with each other at no cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from arbora.discover._concentration import KappaLikelihood, KappaPosterior
from arbora.discover._vmf_posterior import Inference, expected_log_weights
from arbora.special import bessel_ratio

Array = NDArray[np.float64]

_TURNS = 4  # of (mean, concentration), at most
_SETTLED = 1e-6  # relative change of the concentrations that ends them


class Links(NamedTuple):
    """What lies around means, S, and what their neighbours say of them, P: both (n_means, n_features)."""

    around: NDArray[Any]
    above: NDArray[Any]


class Settled(NamedTuple):
    """Means and concentrations that fit each other."""

    directions: NDArray[Any]
    spreads: Array
    kappa: KappaPosterior


def row_products(left: NDArray[Any], right: NDArray[Any]) -> Array:
    """Scalar products of the rows of two matrices, in double precision.

    Examples
    --------
    >>> row_products(np.eye(2), np.array([[2.0, 1.0], [0.0, 3.0]]))
    array([2., 3.])
    """
    return np.einsum("nd,nd->n", left, right, dtype=np.float64)


def unit_vectors(vectors: NDArray[Any], before: NDArray[Any]) -> tuple[NDArray[Any], Array]:
    """Divide rows by their lengths, which are returned too; a row of zeros becomes that of `before`.

    Examples
    --------
    >>> unit_vectors(np.array([[0.0, 4.0], [0.0, 0.0]]), np.eye(2))
    (array([[0., 1.],
           [0., 1.]]), array([4., 0.]))
    """
    lengths = np.sqrt(row_products(vectors, vectors))
    empty = lengths == 0
    directions = vectors / np.where(empty, 1.0, lengths).astype(vectors.dtype)[:, None]
    directions[empty] = before[empty]
    return directions, lengths


def joint_update(
    how: Inference,
    likelihood: KappaLikelihood,
    links: Links,
    kappa: KappaPosterior,
    free: NDArray[np.bool_],
    before: NDArray[Any],
) -> Settled:
    """Update means and their concentrations, given all others.

    Parameters
    ----------
    how : Inference
    likelihood : KappaLikelihood
        Numbers N of what lies around each mean, and the prior of the concentrations; its pulls are found here.
    links : Links
    kappa : KappaPosterior
        Where the concentrations are.
    free : ndarray of bool, shape (n_means,)
        Those that are updated; others are given.
    before : ndarray of shape (n_means, n_features)
        Directions that stay where nothing pulls.

    Returns
    -------
    Settled
    """
    around, above = links
    square, along = row_products(around, around), row_products(around, above)
    rest = row_products(above, above)
    for _ in range(_TURNS):
        used = kappa.mean
        spreads = np.sqrt(np.maximum(used**2 * square + 2 * used * along + rest, 0.0))
        pull = np.divide(used * square + along, spreads, out=np.zeros_like(spreads), where=spreads > 0)
        pulls = bessel_ratio(likelihood.n_features / 2 - 1, spreads) * pull
        found = how.kappa_posterior(likelihood._replace(pulls=pulls), kappa)
        kappa = KappaPosterior(*(np.where(free, new, old) for new, old in zip(found, kappa, strict=True)))
        if np.all(np.abs(kappa.mean - used) <= _SETTLED * used):
            break
    directions, spreads = unit_vectors(around * used.astype(around.dtype)[:, None] + above, before)
    return Settled(directions, spreads, kappa)


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
