"""EM of the mixture of rows and labels (MDA2); `arbora.expand.mixture_discriminant` has the model and objective Q.

Statistics add over rows. All clusters share one covariance, so that the scatter of the rows follows from their second
moments, which no step changes, and the sums of each cluster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import xlogy

from arbora.core.chunks import split
from arbora.core.monitor import Monitor
from arbora.expand.clusters.clusterers import run_kmeans, seed_centres
from arbora.expand.clusters.constrained import Pool, one_hot

Matrix = NDArray[Any]
_ROWS_AT_ONCE = 8192
_START_ITERATIONS = 20  # of k-means
_TINY = float(np.finfo(np.float64).tiny)


class Rows(NamedTuple):
    """Rows of the feature space, their labels (-1: none), and the second moments of all rows."""

    Z: Matrix
    codes: NDArray[np.int64]
    n_classes: int
    outer: Matrix  # n_dims x n_dims: sum of z z'


class Prior(NamedTuple):
    """Smoothing of the label shares; inverse Wishart prior of the covariance, worth `weight` rows."""

    smoothing: float
    weight: float
    scale: Matrix
    floor: float
    variance: float | None  # fixed variance of the spherical model


class DiscriminantMixture(NamedTuple):
    """Parameters of the model."""

    weights: Matrix  # n_clusters
    label_proba: Matrix  # n_clusters x n_classes
    means: Matrix  # n_clusters x n_dims
    covariance: Matrix  # n_dims x n_dims

    def scores(self, Z: Matrix) -> Matrix:
        """Log-joint of rows and components, without the label."""
        variances = np.diag(self.covariance)
        if np.count_nonzero(self.covariance) == len(variances):
            rows, means = Z / np.sqrt(variances), self.means / np.sqrt(variances)
            log_det = float(np.log(variances).sum())
        else:
            L = np.linalg.cholesky(self.covariance)
            rows, means = solve_triangular(L, Z.T, lower=True).T, np.linalg.solve(L, self.means.T).T
            log_det = 2 * float(np.log(np.diag(L)).sum())
        squares = np.sum(rows**2, axis=1)[:, None] + np.sum(means**2, axis=1) - 2 * rows @ means.T
        constant = log_det + Z.shape[1] * np.log(2 * np.pi)
        return np.asarray(_log(self.weights) - (np.maximum(squares, 0.0) + constant) / 2)


class Stats(NamedTuple):
    """Sums over the rows; they add."""

    size: Matrix  # n_clusters
    sums: Matrix  # n_clusters x n_dims
    labels: Matrix  # n_clusters x n_classes


def _log(values: Matrix) -> Matrix:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _sums(R: Matrix, Z: Matrix, codes: NDArray[np.int64], n_classes: int) -> Stats:
    known = codes >= 0
    counts = one_hot(codes[known], np.ones(int(known.sum())), n_classes) @ R[known]
    return Stats(R.sum(axis=0), R.T @ Z, np.asarray(counts).T)


def e_step(model: DiscriminantMixture, rows: Rows) -> tuple[Stats, float]:
    """Statistics given the parameters, and the log-likelihood."""
    # Row -1 of the table, of zeros, is that of a row without a label.
    table = np.vstack([_log(model.label_proba).T, np.zeros(len(model.means))])
    parts, value = [], 0.0
    for chunk in split(len(rows.Z), size=_ROWS_AT_ONCE):
        scores = model.scores(rows.Z[chunk]) + table[rows.codes[chunk]]
        top = scores.max(axis=1, keepdims=True)
        R = np.exp(scores - top)
        total = R.sum(axis=1, keepdims=True)
        value += float(np.sum(top + np.log(total)))
        R /= total
        parts.append(_sums(R, rows.Z[chunk], rows.codes[chunk], rows.n_classes))
    return Stats(*(np.sum(field, axis=0) for field in zip(*parts, strict=True))), value


def m_step(stats: Stats, rows: Rows, prior: Prior, covariance: str) -> DiscriminantMixture:
    """Parameters that maximise Q given the statistics."""
    n_rows, n_dims = rows.Z.shape
    size = np.maximum(stats.size, _TINY)
    means = stats.sums / size[:, None]
    counts = stats.labels + prior.smoothing
    total = counts.sum(axis=1, keepdims=True)
    even = np.full_like(counts, 1 / rows.n_classes)
    label_proba = np.where(total > 0, counts / np.maximum(total, _TINY), even)
    scatter = rows.outer - means.T @ stats.sums + prior.weight * prior.scale
    full = (scatter + scatter.T) / (2 * (n_rows + prior.weight))
    return DiscriminantMixture(
        stats.size / n_rows, label_proba, means, _shaped(full, covariance, prior, n_dims)
    )


def _shaped(full: Matrix, covariance: str, prior: Prior, n_dims: int) -> Matrix:
    """Best covariance of a shape; variances stay above the floor."""
    if covariance == "full":
        values, vectors = np.linalg.eigh(full)
        if values[0] < prior.floor:
            full = (vectors * np.maximum(values, prior.floor)) @ vectors.T
        return full
    if covariance == "diagonal":
        return np.diag(np.maximum(np.diag(full), prior.floor))
    variance = float(np.trace(full)) / n_dims if prior.variance is None else prior.variance
    return max(variance, prior.floor) * np.eye(n_dims)


def objective(model: DiscriminantMixture, log_likelihood: float, prior: Prior) -> float:
    """Q: the log-likelihood plus the logarithms of the priors."""
    of_labels = float(xlogy(prior.smoothing, model.label_proba).sum())
    log_det = float(np.linalg.slogdet(model.covariance)[1])
    trace = float(np.trace(np.linalg.solve(model.covariance, prior.scale)))
    return log_likelihood + of_labels - prior.weight * (log_det + trace) / 2


def run_em(
    start: Stats, rows: Rows, prior: Prior, covariance: str, tol: float, max_iter: int
) -> tuple[DiscriminantMixture, Monitor]:
    """EM from the statistics of a start."""
    monitor, stats, before, last = Monitor(tol, max_iter), start, np.nan, False
    while not last:
        model = m_step(stats, rows, prior, covariance)
        stats, likelihood = e_step(model, rows)
        value = objective(model, likelihood, prior)
        last = monitor.record(value, gain=(value - before) / len(rows.Z))
        before = value
    return model, monitor


def start_stats(rows: Rows, n_clusters: int, with_labels: bool, rng: np.random.Generator) -> Stats:
    """Statistics of a few iterations of k-means, of rows alone or of rows with their labels."""
    Z = rows.Z
    if with_labels:
        onehot = np.vstack([np.eye(rows.n_classes), np.zeros(rows.n_classes)])[rows.codes]
        # Labels count as much as all features together.
        factor = np.sqrt(Z.var(axis=0).sum() / max(float(onehot.var(axis=0).sum()), _TINY**0.25))
        Z = np.hstack([Z, factor * onehot])
    pool = Pool(Z, np.full(len(Z), -1, np.int64), 0, np.ones(len(Z)))
    found = run_kmeans(pool, seed_centres(pool, n_clusters, rng), _START_ITERATIONS)
    return label_stats(rows, found.labels, n_clusters)


def label_stats(rows: Rows, labels: NDArray[np.int64], n_clusters: int) -> Stats:
    """Statistics of given clusters; a row of cluster -1 belongs to all of them."""
    R = np.full((len(rows.Z), n_clusters), 1 / n_clusters)
    R[labels >= 0] = np.eye(n_clusters)[labels[labels >= 0]]
    return _sums(R, rows.Z, rows.codes, rows.n_classes)
