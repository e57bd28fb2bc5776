"""k-means in which labelled rows stay in their groups (Basu, Banerjee and Mooney 2002, constrained k-means).

New centres start by k-means++ among the rows without a label, at distances that count the centres of the known
groups. Distances to the centres are products of matrices by chunks of rows: memory does not grow with rows x
clusters.

Reference
---------
S. Basu, A. Banerjee and R. Mooney (2002). Semi-supervised clustering by seeding. ICML.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.chunks import split
from arbora.expand._cluster.base import Pool, cluster_means, normalized

Matrix = NDArray[Any]
_ROWS_AT_ONCE = 4096
_SMALLEST_VARIANCE = 1e-10  # of a feature, in the units of the feature space
_TINY = float(np.finfo(np.float64).tiny)


class KMeansClustering(NamedTuple):
    """Centres with the weights of the clusters and the common variance of a feature."""

    labels: NDArray[np.int64]
    objective: float
    centres: Matrix
    size: Matrix
    variance: float

    def log_proba(self, Z: Matrix) -> Matrix:
        """Posterior of spherical Gaussians of one variance."""
        scores = np.empty((len(Z), len(self.centres)))
        offset = np.log(np.maximum(self.size, _TINY) / self.size.sum())
        for rows in split(len(Z), size=_ROWS_AT_ONCE):
            distance = _relative_distances(Z[rows], self.centres)
            scores[rows] = offset - distance / (2 * max(self.variance, _SMALLEST_VARIANCE))
        return normalized(scores)


def _relative_distances(Z: Matrix, centres: Matrix) -> Matrix:
    """Squared distances to the centres minus the squared length of the row."""
    return np.asarray(np.sum(centres**2, axis=1) - 2 * (Z @ centres.T))


def nearest(Z: Matrix, centres: Matrix) -> tuple[NDArray[np.int64], Matrix]:
    """Nearest centre of each row and the squared distance to it.

    Examples
    --------
    >>> import numpy as np
    >>> nearest(np.array([[0.0], [7.0]]), np.array([[1.0], [5.0]]))
    (array([0, 1]), array([1., 4.]))
    """
    labels, distance = np.empty(len(Z), np.int64), np.empty(len(Z))
    for rows in split(len(Z), size=_ROWS_AT_ONCE):
        D = _relative_distances(Z[rows], centres)
        labels[rows] = D.argmin(axis=1)
        distance[rows] = np.take_along_axis(D, labels[rows, None], axis=1).ravel() + np.sum(
            Z[rows] ** 2, axis=1
        )
    return labels, np.maximum(distance, 0.0)


def mean_scores(Z: Matrix, centres: Matrix, variance: float) -> Matrix:
    """Log-probabilities of centres for rows, under spherical Gaussians of one variance and equal weights."""
    return normalized(-_relative_distances(Z, centres) / (2 * max(variance, _SMALLEST_VARIANCE)))


def seed_centres(pool: Pool, n_new: int, rng: np.random.Generator) -> Matrix:
    """Means of the known groups, then new centres by k-means++ among the rows without a label."""
    fixed = np.flatnonzero(pool.fixed >= 0)
    known = cluster_means(pool.Z[fixed], pool.fixed[fixed], pool.row_weight[fixed], pool.n_known)[1]
    free, chosen = pool.Z[pool.free], list[Matrix]()
    weight = pool.row_weight[pool.free]
    distance = nearest(free, known)[1] if pool.n_known else np.ones(len(free))
    for _ in range(n_new):
        chance = weight * distance
        total = float(chance.sum())
        draw = rng.random() * total if total > 0 else 0.0
        row = int(np.searchsorted(np.cumsum(chance), draw)) if total > 0 else int(rng.integers(len(free)))
        centre = free[min(row, len(free) - 1)]
        chosen.append(centre)
        away = np.maximum(np.sum((free - centre) ** 2, axis=1), 0.0)
        distance = np.minimum(distance, away) if len(chosen) + pool.n_known > 1 else away
    return np.vstack([known, *chosen]) if chosen else known


def run_kmeans(pool: Pool, centres: Matrix, max_iter: int = 100, tol: float = 1e-4) -> KMeansClustering:
    """Lloyd iterations from given centres until few rows move, or the inertia falls by less than `tol`."""
    n_clusters, before = len(centres), np.inf
    held = pool.fixed >= 0
    total = float(pool.row_weight.sum())
    for _ in range(max_iter):
        labels, distance = nearest(pool.Z, centres)
        labels = np.where(held, pool.fixed, labels)
        if held.any():
            away = pool.Z[held] - centres[pool.fixed[held]]
            distance[held] = np.sum(away**2, axis=1)
        inertia = float(pool.row_weight @ distance)
        size, means = cluster_means(pool.Z, labels, pool.row_weight, n_clusters)
        centres = np.where(size[:, None] > 0, means, centres)
        empty = np.flatnonzero(size[pool.n_known :] == 0) + pool.n_known
        if len(empty) and len(pool.free) > len(empty):
            far = pool.free[np.argsort(distance[pool.free])[::-1][: len(empty)]]
            centres[empty] = pool.Z[far]
        elif before - inertia <= tol * inertia:
            break
        before = inertia
    variance = inertia / max(total * pool.Z.shape[1], _TINY)
    return KMeansClustering(labels, -inertia, centres, size, variance)


def fit_kmeans(
    pool: Pool, n_new: int, rng: np.random.Generator, n_init: int = 20, max_iter: int = 100
) -> KMeansClustering:
    """Run from several starts; keep the lowest inertia."""
    runs = (run_kmeans(pool, seed_centres(pool, n_new, rng), max_iter) for _ in range(n_init if n_new else 1))
    return max(runs, key=lambda found: found.objective)
