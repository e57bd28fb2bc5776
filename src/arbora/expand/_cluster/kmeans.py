"""k-means in which labelled rows stay in their groups (Basu, Banerjee and Mooney 2002, constrained k-means).

New centres start by k-means++ among the rows without a label, at distances that count the centres of the known
groups. The iterations are those of `constrained`: memory does not grow with rows x clusters.

Reference
---------
S. Basu, A. Banerjee and R. Mooney (2002). Semi-supervised clustering by seeding. ICML.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.chunks import split
from arbora.core.engine import Engine, SerialEngine
from arbora.expand.clusters.constrained import (
    Pool,
    Problem,
    assign,
    centre_scores,
    cluster_means,
    iterate,
    kmeans_model,
    normalized,
    pose_pool,
    relabelled,
)
from arbora.infer.mixture.loop import MixtureFit, Schedule, best_of, place_rows

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
        scores = np.empty((len(Z), len(self.centres)), Z.dtype)
        offset = np.log(np.maximum(self.size, _TINY) / max(self.size.sum(), _TINY)).astype(Z.dtype)
        for rows in split(len(Z), size=_ROWS_AT_ONCE):
            distance = _relative_distances(Z[rows], self.centres)
            scores[rows] = offset - distance / (2 * max(self.variance, _SMALLEST_VARIANCE))
        return normalized(scores)

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return `log_proba`."""
        return self.log_proba

    def take(self, clusters: NDArray[np.int64]) -> KMeansClustering:
        """Take some of the clusters, in a new order."""
        labels = relabelled(self.labels, clusters, len(self.size))
        return self._replace(labels=labels, centres=self.centres[clusters], size=self.size[clusters])


class Start(NamedTuple):
    """Centres to start from, and the mean squared distance of rows to them."""

    centres: Matrix
    spread: float


def _relative_distances(Z: Matrix, centres: Matrix) -> Matrix:
    """Squared distances to the centres minus the squared length of the row, in the precision of the rows."""
    near = centres.astype(Z.dtype, copy=False)
    return np.asarray(np.sum(near**2, axis=1) - 2 * (Z @ near.T))


def nearest(Z: Matrix, centres: Matrix) -> tuple[NDArray[np.int64], Matrix]:
    """Nearest centre of each row and the squared distance to it.

    Examples
    --------
    >>> import numpy as np
    >>> nearest(np.array([[0.0], [7.0]]), np.array([[1.0], [5.0]]))
    (array([0, 1]), array([1., 4.]))
    """
    labels, distance = np.empty(len(Z), np.int64), np.empty(len(Z), Z.dtype)
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


def known_means(pool: Pool) -> Matrix:
    """Means of the labelled rows of the known groups."""
    fixed = np.flatnonzero(pool.fixed >= 0)
    return cluster_means(pool.Z[fixed], pool.fixed[fixed], pool.row_weight[fixed], pool.n_known)[1]


def draw_start(free: Matrix, weight: Matrix, known: Matrix, n_new: int, rng: np.random.Generator) -> Start:
    """Means of the known groups, then new centres by k-means++ among the rows without a label."""
    chosen = list[Matrix]()
    distance = nearest(free, known)[1] if len(known) else np.ones(len(free), free.dtype)
    squares = np.sum(free**2, axis=1)
    for _ in range(n_new):
        chance = np.cumsum(weight * distance, dtype=np.float64)
        total = float(chance[-1])
        row = (
            int(np.searchsorted(chance, rng.random() * total)) if total > 0 else int(rng.integers(len(free)))
        )
        centre = free[min(row, len(free) - 1)]
        chosen.append(centre)
        away = np.maximum(squares + float(centre @ centre) - 2 * (free @ centre), 0.0)
        distance = np.minimum(distance, away) if len(chosen) + len(known) > 1 else away
    spread = float(weight @ distance) / max(float(weight.sum()), _TINY) if len(free) else 0.0
    return Start(np.vstack([known, *chosen]) if chosen else known, spread)


def seed_centres(pool: Pool, n_new: int, rng: np.random.Generator) -> Matrix:
    """Centres to start from: known groups, then new ones."""
    free = pool.free
    return draw_start(pool.Z[free], pool.row_weight[free], known_means(pool), n_new, rng).centres


def _reseat(pool: Pool, centres: Matrix, counts: Matrix) -> Matrix:
    """Move the centres of empty new clusters to the rows without a label that are farthest from theirs."""
    empty = np.flatnonzero(counts[pool.n_known :] == 0) + pool.n_known
    if not len(empty) or len(pool.free) <= len(empty):
        return centres
    distance = nearest(pool.Z[pool.free], centres.T)[1]
    moved = centres.copy()
    moved[:, empty] = pool.Z[pool.free[np.argsort(distance, kind="stable")[::-1][: len(empty)]]].T
    return moved


def finish_kmeans(
    problem: Problem, fit: MixtureFit, labels: NDArray[np.int64], size: Matrix
) -> KMeansClustering:
    """Clustering of a run."""
    inertia = max(-2 * float(fit.bounds[-1]), 0.0)
    variance = inertia / max(problem.total * len(problem.outer), _TINY)
    return KMeansClustering(labels, -inertia, fit.params.T, size, variance)


def _labels(pool: Pool, centres: Matrix, engine: Engine) -> NDArray[np.int64]:
    found = assign(centre_scores(centres), pool.Z, engine)
    return np.where(pool.fixed >= 0, pool.fixed, found)


def run_starts(
    pool: Pool, starts: list[Start], max_iter: int, tol: float, engine: Engine
) -> KMeansClustering:
    """Lloyd iterations from several starts, in parallel; the lowest inertia is kept."""
    n_clusters = len(starts[0].centres)
    problem = pose_pool(pool, n_clusters - pool.n_known, engine)
    model = kmeans_model(problem, partial(_reseat, pool))
    schedule = Schedule(tol, max_iter, (0.0,))

    def fit(at: int) -> MixtureFit:
        start = starts[at]
        own = schedule._replace(tol=max(tol * start.spread / 2, _TINY))
        return iterate(model, placed, np.asarray(start.centres.T, np.float64), own, engine)

    with place_rows(problem.rows, schedule, n_clusters, engine, ("kmeans", n_clusters)) as rows:
        placed = problem._replace(rows=rows)
        best = best_of(fit, len(starts), engine if rows.remote is None else SerialEngine())
    labels = _labels(pool, best.params, engine)
    size = np.bincount(labels, weights=pool.row_weight, minlength=n_clusters)
    return finish_kmeans(problem, best, labels, size)


def run_kmeans(
    pool: Pool, centres: Matrix, max_iter: int = 100, tol: float = 1e-4, engine: Engine | None = None
) -> KMeansClustering:
    """Lloyd iterations from given centres until the inertia falls by less than `tol` of the first one."""
    spread = float(np.mean(nearest(pool.Z, centres)[1])) if len(pool.Z) else 0.0
    return run_starts(pool, [Start(centres, spread)], max_iter, tol, engine or SerialEngine())


def fit_kmeans(
    pool: Pool,
    n_new: int,
    rng: np.random.Generator,
    n_init: int = 20,
    max_iter: int = 100,
    engine: Engine | None = None,
) -> KMeansClustering:
    """Run from several starts; keep the lowest inertia."""
    free, weight, known = pool.Z[pool.free], pool.row_weight[pool.free], known_means(pool)
    starts = [draw_start(free, weight, known, n_new, rng) for _ in range(n_init if n_new else 1)]
    return run_starts(pool, starts, max_iter, 1e-4, engine or SerialEngine())
