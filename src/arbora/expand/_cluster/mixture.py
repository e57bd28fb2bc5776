"""Mixtures in which labelled rows stay in their groups: Gaussian and von Mises-Fisher.

Gaussian components share one covariance, von Mises-Fisher components one concentration. Both start from constrained
k-means and take EM steps; responsibilities of labelled rows are fixed (`constrained`). What known groups look like
carries over to new ones through what is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine, SerialEngine
from arbora.expand._cluster.kmeans import KMeansClustering, fit_kmeans
from arbora.expand.clusters.constrained import (
    Directions,
    Gaussians,
    Pool,
    Problem,
    assign,
    centre_scores,
    direction_model,
    direction_scores,
    gaussian_model,
    gaussian_scores,
    iterate,
    normalized,
    pose_pool,
    relabelled,
)
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, place_rows
from arbora.infer.mixture.statistics import LinearScores, Stats, e_step

Matrix = NDArray[Any]


class GaussianClustering(NamedTuple):
    """Gaussians with one covariance."""

    labels: NDArray[np.int64]
    objective: float
    means: Matrix
    log_weights: Matrix
    covariance: Matrix

    def log_proba(self, Z: Matrix) -> Matrix:
        """Posterior of the components."""
        return self.scorer()(Z)

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return `log_proba`, with the covariance factored once."""
        return _posterior(gaussian_scores(Gaussians(self.means.T, self.log_weights, self.covariance)))

    def take(self, clusters: NDArray[np.int64]) -> GaussianClustering:
        """Take some of the components, in a new order."""
        labels = relabelled(self.labels, clusters, len(self.means))
        return self._replace(
            labels=labels, means=self.means[clusters], log_weights=self.log_weights[clusters]
        )


class SphericalClustering(NamedTuple):
    """Von Mises-Fisher components with one concentration."""

    labels: NDArray[np.int64]
    objective: float
    directions: Matrix
    log_weights: Matrix
    kappa: float

    def log_proba(self, Z: Matrix) -> Matrix:
        """Posterior of the components."""
        linear = direction_scores(Directions(self.directions.T, self.log_weights, self.kappa))
        return _posterior(linear)(unit_rows(Z))

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return `log_proba`."""
        return self.log_proba

    def take(self, clusters: NDArray[np.int64]) -> SphericalClustering:
        """Take some of the components, in a new order."""
        labels = relabelled(self.labels, clusters, len(self.directions))
        return self._replace(
            labels=labels, directions=self.directions[clusters], log_weights=self.log_weights[clusters]
        )


def _posterior(linear: LinearScores) -> Callable[[Matrix], Matrix]:
    """Log-probabilities by linear scores, in the precision of the rows."""

    def log_proba(Z: Matrix) -> Matrix:
        weights, offset = linear.weights.astype(Z.dtype), linear.offset.astype(Z.dtype)
        return normalized(Z @ weights + offset)

    return log_proba


def unit_rows(Z: Matrix) -> Matrix:
    """Rows of unit length; a zero row stays zero."""
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(length > 0, length, Z.dtype.type(1)))


def _run_from(
    pool: Pool,
    start: KMeansClustering,
    make: Callable[[Problem], MixtureModel],
    schedule: Schedule,
    engine: Engine,
) -> tuple[MixtureFit, NDArray[np.int64]]:
    """EM from the clusters of k-means; return the run and the labels of all rows."""
    n_clusters = len(start.centres)
    problem = pose_pool(pool, n_clusters - pool.n_known, engine)
    model = make(problem)
    about = (make.__name__, n_clusters)
    with place_rows(problem.rows, schedule, n_clusters, engine, about) as rows:
        placed = problem._replace(rows=rows)
        stats = Stats(np.zeros(n_clusters), np.zeros(problem.held.sums.shape))
        if rows.X.shape[0]:
            stats = e_step(centre_scores(start.centres.T), rows, engine)[0]
        fit = iterate(model, placed, model.update(None, stats), schedule, engine)
    labels = assign(model.scores(fit.params), pool.Z, engine)
    return fit, np.where(pool.fixed >= 0, pool.fixed, labels)


def fit_gaussian(
    pool: Pool,
    n_new: int,
    rng: np.random.Generator,
    n_init: int = 20,
    max_iter: int = 100,
    tol: float = 1e-4,
    engine: Engine | None = None,
) -> GaussianClustering:
    """EM from constrained k-means until the likelihood gains less than `tol` a row."""
    engine = engine or SerialEngine()
    start = fit_kmeans(pool, n_new, rng, n_init, engine=engine)
    fit, labels = _run_from(pool, start, gaussian_model, Schedule(tol, max_iter), engine)
    params: Gaussians = fit.params
    return GaussianClustering(
        labels, float(fit.bounds[-1]), params.means.T, params.log_weights, params.covariance
    )


def fit_spherical(
    pool: Pool,
    n_new: int,
    rng: np.random.Generator,
    n_init: int = 20,
    max_iter: int = 100,
    tol: float = 1e-4,
    engine: Engine | None = None,
) -> SphericalClustering:
    """EM of von Mises-Fisher components with one concentration, from constrained k-means on the sphere."""
    engine = engine or SerialEngine()
    pool = pool._replace(Z=unit_rows(pool.Z))
    start = fit_kmeans(pool, n_new, rng, n_init, engine=engine)
    fit, labels = _run_from(pool, start, direction_model, Schedule(tol, max_iter), engine)
    params: Directions = fit.params
    return SphericalClustering(
        labels, float(fit.bounds[-1]), params.directions.T, params.log_weights, params.kappa
    )
