"""Mixtures in which labelled rows stay in their groups: Gaussian and von Mises-Fisher.

Gaussian components share one covariance, von Mises-Fisher components one concentration.

Both start from constrained k-means and take EM steps; responsibilities of labelled rows are fixed. The Gaussians
share one covariance, which the labelled rows begin: what known groups look like carries over to new ones. It is
shrunk towards its mean variance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from arbora.expand._cluster.base import Pool, normalized
from arbora.expand._cluster.kmeans import fit_kmeans
from arbora.special import kappa_mle, vmf_log_normalizer

Matrix = NDArray[Any]
_SHRINKAGE = 0.05
_TINY = float(np.finfo(np.float64).tiny)


class GaussianClustering(NamedTuple):
    """Gaussians with one covariance."""

    labels: NDArray[np.int64]
    objective: float
    means: Matrix
    log_weights: Matrix
    covariance: Matrix

    def log_proba(self, Z: Matrix) -> Matrix:
        """Posterior of the components."""
        return normalized(self.scores(Z))

    def scores(self, Z: Matrix) -> Matrix:
        """Log-joint of rows and components, up to terms without the component."""
        factor = cho_factor(self.covariance)
        towards = cho_solve(factor, self.means.T)
        return np.asarray(self.log_weights + Z @ towards - np.einsum("kp,pk->k", self.means, towards) / 2)


def _held(pool: Pool, log_proba: Matrix) -> Matrix:
    """Responsibilities, with labelled rows in their groups."""
    R = np.exp(log_proba)
    held = np.flatnonzero(pool.fixed >= 0)
    R[held] = 0.0
    R[held, pool.fixed[held]] = 1.0
    return R


def fit_gaussian(
    pool: Pool, n_new: int, rng: np.random.Generator, n_init: int = 20, max_iter: int = 100, tol: float = 1e-4
) -> GaussianClustering:
    """EM from constrained k-means until the likelihood gains less than `tol` a row."""
    start = fit_kmeans(pool, n_new, rng, n_init)
    n_clusters, width = len(start.centres), pool.Z.shape[1]
    total = float(pool.row_weight.sum())
    R = np.zeros((len(pool.Z), n_clusters))
    R[np.arange(len(R)), start.labels] = 1.0
    before, found = -np.inf, None
    for _ in range(max_iter):
        weighted = R * pool.row_weight[:, None]
        size = np.maximum(weighted.sum(axis=0), _TINY)
        means = (weighted.T @ pool.Z) / size[:, None]
        scatter = pool.Z.T @ (pool.row_weight[:, None] * pool.Z) - means.T @ (size[:, None] * means)
        covariance = scatter / total
        level = max(float(np.trace(covariance)) / width, _TINY)
        covariance = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * level * np.eye(width)
        found = GaussianClustering(start.labels, -np.inf, means, np.log(size / total), covariance)
        scores = found.scores(pool.Z)
        log_proba = normalized(scores)
        factor = cho_factor(covariance)
        fit = (scores - log_proba)[:, 0] - np.einsum("np,pn->n", pool.Z, cho_solve(factor, pool.Z.T)) / 2
        log_det = 2 * float(np.log(np.diag(factor[0])).sum())
        value = float(pool.row_weight @ fit) - total * (log_det + width * np.log(2 * np.pi)) / 2
        R = _held(pool, log_proba)
        found = found._replace(labels=R.argmax(axis=1), objective=value)
        if value - before <= tol * total:
            break
        before = value
    assert found is not None
    return found


class SphericalClustering(NamedTuple):
    """Von Mises-Fisher components with one concentration."""

    labels: NDArray[np.int64]
    objective: float
    directions: Matrix
    log_weights: Matrix
    kappa: float

    def log_proba(self, Z: Matrix) -> Matrix:
        """Posterior of the components."""
        return normalized(self.log_weights + self.kappa * (unit_rows(Z) @ self.directions.T))


def unit_rows(Z: Matrix) -> Matrix:
    """Rows of unit length; a zero row stays zero."""
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(length > 0, length, 1.0))


def fit_spherical(
    pool: Pool, n_new: int, rng: np.random.Generator, n_init: int = 20, max_iter: int = 100, tol: float = 1e-4
) -> SphericalClustering:
    """EM of von Mises-Fisher components with one concentration, from constrained k-means on the sphere."""
    pool = pool._replace(Z=unit_rows(pool.Z))
    start = fit_kmeans(pool, n_new, rng, n_init)
    n_clusters, width = len(start.centres), max(pool.Z.shape[1], 2)  # on a line, as on a circle
    total = float(pool.row_weight.sum())
    R = np.zeros((len(pool.Z), n_clusters))
    R[np.arange(len(R)), start.labels] = 1.0
    before, found = -np.inf, None
    for _ in range(max_iter):
        weighted = R * pool.row_weight[:, None]
        size = np.maximum(weighted.sum(axis=0), _TINY)
        sums = weighted.T @ pool.Z
        length = np.linalg.norm(sums, axis=1)
        directions = sums / np.maximum(length, _TINY)[:, None]
        kappa = float(kappa_mle(min(float(length.sum()) / total, 1 - 1e-9), width))
        found = SphericalClustering(start.labels, -np.inf, directions, np.log(size / total), kappa)
        scores = found.log_weights + kappa * (pool.Z @ directions.T)
        log_proba = normalized(scores)
        value = float(pool.row_weight @ (scores - log_proba)[:, 0]) + total * float(
            vmf_log_normalizer(kappa, width)
        )
        R = _held(pool, log_proba)
        found = found._replace(labels=R.argmax(axis=1), objective=value)
        if value - before <= tol * total:
            break
        before = value
    assert found is not None
    return found
