r"""Max-margin factors of clusters, and the exact Gibbs step of their projections.

Row i has label y_i among K clusters, cluster k has the projection eta_k ~ N(0, v I) and the score g_ik = eta_k.x_i.
The loss of a row is the hinge of its most violated competitor, and every row multiplies the posterior by

    exp(-2 c h_i),        h_i = max(0, l + max_{k != y_i} g_ik - g_{i,y_i}),        h_i = 0 if K = 1.

The factor is a scale mixture of Gaussians (Polson and Scott 2011):

    exp(-2 c max(0, z)) = integral over lambda > 0 of (2 pi lambda)^(-1/2) exp(-(lambda + c z)^2 / (2 lambda)),

and given z, 1 / lambda has the inverse Gaussian distribution with mean 1 / (c |z|) and shape 1.

One projection is drawn at a time, with fresh lambda. As a function of g_ik the loss is A_i + max(0, z_i), where A_i
does not depend on eta_k:

    y_i = k:   A_i = 0,                                             z_i = a_i - g_ik,   a_i = l + max_{j != k} g_ij
    y_i != k:  A_i = max(0, l + max_{j != y_i, k} g_ij - g_{i,y_i}),  z_i = b_i + g_ik,   b_i = l - g_{i,y_i} - A_i

because max(A, u) = A + max(0, u - A). So eta_k is Gaussian given lambda, with

    precision  I / v + sum_i (c^2 / lambda_i) x_i x_i',
    precision times mean  sum_{y_i = k} c (1 + c a_i / lambda_i) x_i - sum_{y_i != k} c (1 + c b_i / lambda_i) x_i.

The most violated competitor is not a variable of the chain: a chain that samples it, or keeps it between steps, has
another stationary distribution.

References
----------
N. G. Polson and S. L. Scott (2011). Data augmentation for support vector machines. Bayesian Analysis 6(1).
C. Chen, J. Zhu and X. Zhang (2014). Robust Bayesian max-margin clustering. NIPS. Its equation (7) keeps the
competitor as a variable; the conditionals here are those of its equation (6), without that variable.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from arbora.arrays import Array, Ints

# Largest 1 / lambda. Above it the Cholesky factor has no correct digit; the probability of that is below 1e-7.
_MAX_INVERSE = 1e14


class Margin(NamedTuple):
    """Weight `c` of the losses, margin `width` l, and prior variance v of the projections."""

    c: float
    width: float
    variance: float


class GaussianTerms(NamedTuple):
    """Terms of the rows in the conditional of one projection: weights of x x', and factors of x."""

    weight: Array
    linear: Array


def hinge_losses(scores: Array, labels: Ints, width: float) -> Array:
    """Return max(0, width + score of the best other cluster - score of the label) for each row.

    It is 0 for a single cluster.
    """
    if scores.shape[1] == 1:
        return np.zeros(len(scores))
    rows = np.arange(len(scores))
    label_scores, others = scores[rows, labels], scores.copy()
    others[rows, labels] = -np.inf
    losses: Array = np.maximum(0.0, width + others.max(axis=1) - label_scores)
    return losses


def all_hinge_losses(scores: Array, width: float) -> Array:
    """Return the loss of each row for each label it could have, of the shape of the scores."""
    if scores.shape[1] == 1:
        return np.zeros_like(scores)
    best = scores.argmax(axis=1)
    rows = np.arange(len(scores))
    others = scores.copy()
    others[rows, best] = -np.inf
    competitor = np.repeat(scores[rows, best][:, None], scores.shape[1], axis=1)
    competitor[rows, best] = others.max(axis=1)
    return np.maximum(0.0, width + competitor - scores)


def draw_inverse_lambda(u: Array, rng: np.random.Generator) -> Array:
    """Draw 1 / lambda, inverse Gaussian with mean 1 / u and shape 1, for u = c |z| >= 0.

    The method of Michael, Schucany and Haas (1976), written so that it is stable for all u; at u = 0, lambda has the
    chi-squared distribution with one degree of freedom.
    """
    chi = rng.standard_normal(u.shape) ** 2
    root = np.sqrt(chi * (chi + 4.0 * u))
    small = 2.0 / np.maximum(2.0 * u + chi + root, 2.0 / _MAX_INVERSE)
    is_small = rng.random(u.shape) * (1.0 + u * small) < 1.0
    large = np.divide(1.0, u * (u * small), where=~is_small, out=small.copy())
    return np.minimum(large, _MAX_INVERSE)


def gaussian_terms(
    scores: Array, labels: Ints, k: int, margin: Margin, rng: np.random.Generator
) -> GaussianTerms:
    """Draw lambda for the conditional of projection k; return the terms of the rows in its Gaussian."""
    if scores.shape[1] == 1:
        return GaussianTerms(np.zeros(len(scores)), np.zeros(len(scores)))
    c, width, _ = margin
    rows = np.arange(len(scores))
    mine = labels == k
    others = scores.copy()
    others[rows, labels] = -np.inf
    others[:, k] = -np.inf
    best, label_scores = others.max(axis=1), scores[rows, labels]
    fixed = np.maximum(0.0, width + best - label_scores)  # A_i; 0 where no third cluster exists
    offset = np.where(mine, width + best, width - label_scores - fixed)  # a_i, or b_i
    z = np.where(mine, offset - scores[:, k], offset + scores[:, k])
    inverse = draw_inverse_lambda(c * np.abs(z), rng)
    linear = c * (1.0 + c * offset * inverse)
    return GaussianTerms(c * c * inverse, np.where(mine, linear, -linear))


def draw_gaussian(precision: Array, linear: Array, rng: np.random.Generator) -> Array:
    """Draw from the normal distribution with a precision matrix, and precision times mean `linear`."""
    L = np.linalg.cholesky(precision)
    half = solve_triangular(L, linear, lower=True, check_finite=False)
    noise = rng.standard_normal(len(linear))
    return np.asarray(solve_triangular(L, half + noise, lower=True, trans=1, check_finite=False))


def draw_projections(
    projections: Array, X: Array, labels: Ints, margin: Margin, rng: np.random.Generator
) -> Array:
    """Take the exact Gibbs step of all projections (n_clusters, n_features), one after the other.

    They are the eta of the clusters that have rows (of all clusters, if their number is fixed); `labels` are their
    rows.
    """
    drawn = np.array(projections, np.float64)
    scores = X @ drawn.T
    for k in range(len(drawn)):
        terms = gaussian_terms(scores, labels, k, margin, rng)
        precision = X.T @ (X * terms.weight[:, None])
        precision[np.diag_indices_from(precision)] += 1.0 / margin.variance
        drawn[k] = draw_gaussian(precision, X.T @ terms.linear, rng)
        scores[:, k] = X @ drawn[k]
    return drawn
