"""Clusterers in which labelled rows stay in their groups: k-means, two mixtures, spectral clustering.

The components of k-means and of the mixtures give a row a score that is linear in it. Labelled rows have a fixed
component: their counts and sums never change and are added to those of the E-step, which sees the other rows alone.
Each model is three functions (scores, update, extra) over sums. Therefore whole data, chunks in threads and rows that
are mapped on request share the loop of `arbora.infer.mixture`, and further rows can be added later.

    k-means                  x.c - |c|^2 / 2                        at temperature 0
    Gaussian, one S          x.S^-1 m - m' S^-1 m / 2 + log w
    von Mises-Fisher, one k  k x.m + log w                          rows of unit length

The bound is -inertia / 2, or the log-likelihood of all rows in which that of a labelled row is the log-joint with its
group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import eigsh

from arbora.arrays import TINY, Ints, Matrix
from arbora.core.chunks import split
from arbora.core.engine import Engine, SerialEngine
from arbora.expand.clusters.neighbours import (
    N_NEIGHBORS,
    NeighbourClustering,
    Neighbours,
    neighbour_graph,
    votes_of,
)
from arbora.expand.clusters.pool import (
    Clustering,
    Pool,
    Problem,
    cluster_means,
    normalized,
    pose_pool,
    relabelled,
)
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, best_of, run
from arbora.infer.mixture.statistics import (
    LinearScores,
    Stats,
    WeightedRows,
    block_scores,
    blocks,
    dense_chunks,
    e_step,
    kernel_scores,
)
from arbora.special import kappa_mle, vmf_log_normalizer

# --- Models: scores, update and extra over sums of rows ----------------------------------------------------


_SHRINKAGE = 0.05  # of the common covariance towards its mean variance


def _both(held: Stats, stats: Stats) -> tuple[Matrix, Matrix]:
    return held.counts + stats.counts, held.sums + stats.sums


# --- k-means -------------------------------------------------------------------------------------------------------


def centre_scores(centres: Matrix) -> LinearScores:
    """Half the squared length of a row minus half its squared distance to the centres (n_dims, n_clusters)."""
    return LinearScores(centres, -0.5 * np.sum(centres**2, axis=0), 0.0)


def kmeans_model(problem: Problem, reseat: Callable[[Matrix, Matrix], Matrix] | None = None) -> MixtureModel:
    """Constrained k-means; `reseat` moves the centres of empty clusters, given centres and counts."""
    held, squares = problem.held, float(np.trace(problem.outer))

    def update(centres: Matrix, stats: Stats) -> Matrix:
        counts, sums = _both(held, stats)
        moved = np.where(counts > 0, sums / np.maximum(counts, TINY), centres)
        return moved if reseat is None or np.all(counts > 0) else reseat(moved, counts)

    def extra(centres: Matrix) -> float:
        at_labels = float(np.vdot(held.sums, centres)) - float(held.counts @ np.sum(centres**2, axis=0)) / 2
        return at_labels - squares / 2

    return MixtureModel(centre_scores, update, extra)


# --- Gaussians with one covariance ---------------------------------------------------------------------------------


class Gaussians(NamedTuple):
    """Means (n_dims, n_clusters), logarithms of the weights, and the common covariance."""

    means: Matrix
    log_weights: Matrix
    covariance: Matrix


def gaussian_scores(params: Gaussians) -> LinearScores:
    """Log-joint of rows and components without what all components share."""
    towards = cho_solve(cho_factor(params.covariance), params.means)
    return LinearScores(towards, params.log_weights - np.sum(params.means * towards, axis=0) / 2)


def gaussian_model(problem: Problem) -> MixtureModel:
    """Gaussians with one covariance, shrunk towards its mean variance."""
    held, total, width = problem.held, max(problem.total, TINY), len(problem.outer)

    def update(_: Gaussians | None, stats: Stats) -> Gaussians:
        counts, sums = _both(held, stats)
        counts = np.maximum(counts, TINY)
        means = sums / counts
        covariance = (problem.outer - (counts * means) @ means.T) / total
        level = max(float(np.trace(covariance)) / width, TINY)
        shrunk = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * level * np.eye(width)
        return Gaussians(means, np.log(counts / total), (shrunk + shrunk.T) / 2)

    def extra(params: Gaussians) -> float:
        factor, linear = cho_factor(params.covariance), gaussian_scores(params)
        at_labels = float(np.vdot(held.sums, linear.weights) + held.counts @ linear.offset)
        log_det = 2 * float(np.log(np.diag(factor[0])).sum())
        squares = float(np.trace(cho_solve(factor, problem.outer)))
        return at_labels - squares / 2 - total * (log_det + width * float(np.log(2 * np.pi))) / 2

    return MixtureModel(gaussian_scores, update, extra)


# --- von Mises-Fisher components with one concentration -------------------------------------------------------------


class Directions(NamedTuple):
    """Mean directions (n_dims, n_clusters), logarithms of the weights, and the common concentration."""

    directions: Matrix
    log_weights: Matrix
    kappa: float


def direction_scores(params: Directions) -> LinearScores:
    """Log-joint of unit rows and components without the normaliser."""
    return LinearScores(params.kappa * params.directions, params.log_weights)


def direction_model(problem: Problem) -> MixtureModel:
    """Von Mises-Fisher components; all rows have unit length."""
    held, total = problem.held, max(problem.total, TINY)
    width = max(len(problem.outer), 2)  # on a line, as on a circle

    def update(_: Directions | None, stats: Stats) -> Directions:
        counts, sums = _both(held, stats)
        length = np.linalg.norm(sums, axis=0)
        kappa = float(kappa_mle(min(float(length.sum()) / total, 1 - 1e-9), width))
        directions = sums / np.maximum(length, TINY)
        return Directions(directions, np.log(np.maximum(counts, TINY) / total), kappa)

    def extra(params: Directions) -> float:
        at_labels = params.kappa * float(np.vdot(held.sums, params.directions))
        at_labels += float(held.counts @ params.log_weights)
        return at_labels + total * float(vmf_log_normalizer(params.kappa, width))

    return MixtureModel(direction_scores, update, extra)


# --- the loop ------------------------------------------------------------------------------------------------------


def iterate(
    model: MixtureModel, problem: Problem, params: Any, schedule: Schedule, engine: Engine
) -> MixtureFit:
    """Run the loop; where all rows have labels there is nothing to iterate."""
    if problem.rows.X.shape[0]:
        return run(model, problem.rows, params, schedule, engine)
    none = Stats(np.zeros_like(problem.held.counts), np.zeros_like(problem.held.sums))
    params = model.update(params, none)
    fit = run(model, _empty(problem), params, schedule._replace(max_iter=1), engine)
    return fit


def _empty(problem: Problem) -> WeightedRows:
    """One row of weight 0."""
    return WeightedRows(np.zeros((1, len(problem.outer))), np.zeros(1))


def assign(scores: LinearScores, X: Any, engine: Engine) -> Ints:
    """Best component of each row."""
    prepared = kernel_scores(scores, X.dtype)

    def best(chunk: slice) -> Ints:
        parts = [
            block_scores(X[block], prepared.weights, prepared.scale, prepared.offset).argmax(axis=1)
            for block in blocks(chunk)
        ]
        return np.concatenate(parts)

    if not X.shape[0]:
        return np.zeros(0, np.int64)
    return np.concatenate(engine.map(best, dense_chunks(X.shape[0])))


# --- k-means in which labelled rows stay in their groups (Basu, Banerjee and Mooney 2002, constrained k-means) ---
#
# New centres start by k-means++ among the rows without a label, at distances that count the centres of the known
# groups. The iterations are those of the models above: memory does not grow with rows x clusters.
#
# Reference
# ---------
# S. Basu, A. Banerjee and R. Mooney (2002). Semi-supervised clustering by seeding. ICML.


_ROWS_AT_ONCE = 4096
_MIN_VARIANCE = 1e-10  # of a feature, in the units of the feature space


class KMeansClustering(NamedTuple):
    """Centres with the weights of the clusters and the common variance of a feature."""

    labels: Ints
    objective: float
    centres: Matrix
    size: Matrix
    variance: float

    def log_proba(self, Z: Matrix) -> Matrix:
        """Posterior of spherical Gaussians of one variance."""
        scores = np.empty((len(Z), len(self.centres)), Z.dtype)
        offset = np.log(np.maximum(self.size, TINY) / max(self.size.sum(), TINY)).astype(Z.dtype)
        for rows in split(len(Z), size=_ROWS_AT_ONCE):
            distance = _relative_distances(Z[rows], self.centres)
            scores[rows] = offset - distance / (2 * max(self.variance, _MIN_VARIANCE))
        return normalized(scores)

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return `log_proba`."""
        return self.log_proba

    def take(self, clusters: Ints) -> KMeansClustering:
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


def nearest(Z: Matrix, centres: Matrix) -> tuple[Ints, Matrix]:
    """Nearest centre of each row and the squared distance to it."""
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
    return normalized(-_relative_distances(Z, centres) / (2 * max(variance, _MIN_VARIANCE)))


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
        from_centre = np.maximum(squares + float(centre @ centre) - 2 * (free @ centre), 0.0)
        distance = np.minimum(distance, from_centre) if len(chosen) + len(known) > 1 else from_centre
    spread = float(weight @ distance) / max(float(weight.sum()), TINY) if len(free) else 0.0
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


def finish_kmeans(problem: Problem, fit: MixtureFit, labels: Ints, size: Matrix) -> KMeansClustering:
    """Clustering of a run."""
    inertia = max(-2 * float(fit.bounds[-1]), 0.0)
    variance = inertia / max(problem.total * len(problem.outer), TINY)
    return KMeansClustering(labels, -inertia, fit.params.T, size, variance)


def _labels(pool: Pool, centres: Matrix, engine: Engine) -> Ints:
    nearest_centre = assign(centre_scores(centres), pool.Z, engine)
    return np.where(pool.fixed >= 0, pool.fixed, nearest_centre)


def run_starts(
    pool: Pool, starts: list[Start], max_iter: int, tol: float, engine: Engine
) -> KMeansClustering:
    """Lloyd iterations from several starts, in parallel; the lowest inertia is kept."""
    n_clusters = len(starts[0].centres)
    problem = pose_pool(pool, n_clusters - pool.n_known, engine)
    model = kmeans_model(problem, partial(_reseat, pool))
    schedule = Schedule(tol, max_iter, (0.0,))

    prepared = problem._replace(rows=schedule.prepare(problem.rows, n_clusters))

    def fit(number: int) -> MixtureFit:
        start = starts[number]
        by_spread = schedule._replace(tol=max(tol * start.spread / 2, TINY))
        return iterate(model, prepared, np.asarray(start.centres.T, np.float64), by_spread, engine)

    best = best_of(fit, len(starts), engine)
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


# --- Mixtures in which labelled rows stay in their groups: Gaussian and von Mises-Fisher --------------------
#
# Gaussian components share one covariance, von Mises-Fisher components one concentration. Both start from
# constrained k-means and take EM steps; responsibilities of labelled rows are fixed. What known
# groups look like carries over to new ones through what is shared.


class GaussianClustering(NamedTuple):
    """Gaussians with one covariance."""

    labels: Ints
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

    def take(self, clusters: Ints) -> GaussianClustering:
        """Take some of the components, in a new order."""
        labels = relabelled(self.labels, clusters, len(self.means))
        return self._replace(
            labels=labels, means=self.means[clusters], log_weights=self.log_weights[clusters]
        )


class SphericalClustering(NamedTuple):
    """Von Mises-Fisher components with one concentration."""

    labels: Ints
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

    def take(self, clusters: Ints) -> SphericalClustering:
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
) -> tuple[MixtureFit, Ints]:
    """EM from the clusters of k-means; return the run and the labels of all rows."""
    n_clusters = len(start.centres)
    problem = pose_pool(pool, n_clusters - pool.n_known, engine)
    model = make(problem)
    rows = schedule.prepare(problem.rows, n_clusters)
    stats = Stats(np.zeros(n_clusters), np.zeros(problem.held.sums.shape))
    if rows.X.shape[0]:
        stats = e_step(centre_scores(start.centres.T), rows, engine)[0]
    fit = iterate(model, problem._replace(rows=rows), model.update(None, stats), schedule, engine)
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


# --- Spectral clustering of a nearest-neighbour graph, with known groups (Ng, Jordan and Weiss 2001) --------
#
# Rows are linked to their nearest ones; the leading eigenvectors of the normalised adjacency matrix, with rows of
# unit length, are clustered by constrained k-means. New rows get the clusters of their nearest fitted rows.
#
# Reference
# ---------
# A. Ng, M. Jordan and Y. Weiss (2001). On spectral clustering: analysis and an algorithm. NIPS.


def leading_eigenvectors(graph: sp.csr_array, n_dims: int, seed: int) -> tuple[Matrix, Matrix]:
    """Largest eigenvalues of the normalised adjacency matrix, falling, and their eigenvectors as columns."""
    degree = np.maximum(np.asarray(graph.sum(axis=1)).ravel(), TINY)
    root = 1 / np.sqrt(degree)
    matrix: Any = sp.csr_array(graph.multiply(root[:, None]).multiply(root[None, :]))
    n = graph.shape[0]
    if n_dims >= n - 1 or n < 50:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        start = np.random.default_rng(seed).random(n)
        call: Any = eigsh
        values, vectors = call(matrix, k=n_dims, which="LA", v0=start, tol=1e-6)
    order = np.argsort(-values)[:n_dims]
    return np.asarray(values)[order], np.asarray(vectors)[:, order]


def embed(graph: sp.csr_array, n_dims: int, seed: int) -> Matrix:
    """Leading eigenvectors of the normalised adjacency matrix, rows of unit length."""
    return unit_rows(leading_eigenvectors(graph, n_dims, seed)[1])


def fit_spectral(
    pool: Pool,
    n_new: int,
    rng: np.random.Generator,
    n_init: int = 20,
    n_neighbors: int = N_NEIGHBORS,
    engine: Engine | None = None,
) -> NeighbourClustering:
    """Cluster the rows of the pool by their neighbour graph."""
    seed = int(rng.integers(2**31 - 1))
    neighbours = Neighbours(pool.Z, seed)
    n_clusters = pool.n_known + n_new
    embedding = embed(neighbour_graph(neighbours, n_neighbors), n_clusters, seed)
    clustering = fit_kmeans(pool._replace(Z=embedding), n_new, rng, n_init, engine=engine)
    return by_neighbours(pool, clustering.labels, n_new, n_neighbors, seed)


def by_neighbours(
    pool: Pool, labels: Ints, n_new: int, n_neighbors: int = N_NEIGHBORS, seed: int = 0
) -> NeighbourClustering:
    """Clustering in which further rows ask their neighbours among the rows of the pool."""
    votes = votes_of(pool.fixed, pool.Z.dtype)
    return NeighbourClustering(labels, np.nan, pool.Z, pool.n_known + n_new, n_neighbors, seed, votes)


# --- What the registry says of a clusterer ----------------------------------------------------------------------


NO_LABELS: Ints = np.zeros(0, np.int64)


class Family(NamedTuple):
    """How a clusterer is made of sums over rows.

    `params` reads the parameters of a fitted clustering; `make` builds a clustering of parameters, counts, the mean
    squared distance of a feature from the means, and the objective.
    """

    model: Callable[[Problem], MixtureModel]
    params: Callable[[Any], Any]
    make: Callable[[Any, Matrix, float, float], Clustering]
    temperature: float
    unit: bool  # whether rows are divided by their lengths


class Clusterer(NamedTuple):
    """A clusterer under a name.

    Attributes
    ----------
    name : str
    fit : callable
        ``fit(pool, n_new, rng, n_init, engine=engine)`` clusters the rows ``pool.Z``. Labelled rows (``pool.fixed``
        >= 0) stay in their groups 0 ... ``pool.n_known`` - 1; the other rows join them or one of `n_new` further
        clusters. Returns an object with the cluster of each row as ``labels``: integers from 0 to
        ``pool.n_known + n_new`` - 1.
    family : Family, optional
        For clusters that are made of sums over rows. Without it a clustering is known by its labels: other rows get
        the clusters of their nearest neighbours.
    auto_dense, auto_sparse : bool
        Whether "auto" tries it for dense and for sparse rows.
    """

    name: str
    fit: Callable[..., Any]
    family: Family | None = None
    auto_dense: bool = False
    auto_sparse: bool = False

    def prepare(self, Z: Matrix) -> Matrix:
        """Rows of the learned space as the clusterer takes them: of unit length for directions."""
        return unit_rows(Z) if self.unit else Z

    @property
    def unit(self) -> bool:
        """Whether rows are divided by their lengths."""
        return self.family is not None and self.family.unit


def read_labels(name: str, values: Any, pool: Pool, n_new: int) -> Ints:
    """Check the labels of a clusterer of a user; labelled rows stay in their groups."""
    labels, n_rows, n_clusters = np.asarray(values), len(pool.Z), pool.n_known + n_new
    if labels.shape != (n_rows,):
        raise ValueError(
            f"the clusterer {name!r} returned labels of shape {labels.shape}: return one label for each of the "
            f"{n_rows} rows of pool.Z."
        )
    wanted = f"return integers from 0 to pool.n_known + n_new - 1 = {n_clusters - 1}."
    if labels.dtype.kind not in "iu":
        raise ValueError(f"the clusterer {name!r} returned labels of type {labels.dtype}: {wanted}")
    codes: Ints = np.where(pool.fixed >= 0, pool.fixed, labels.astype(np.int64))
    outside = codes[(codes < 0) | (codes >= n_clusters)]
    if len(outside):
        raise ValueError(f"the clusterer {name!r} returned the label {outside[0]}: {wanted}")
    return codes


def by_labels(name: str, fit: Callable[..., Any]) -> Callable[..., NeighbourClustering]:
    """Fit a clusterer of a user, of which the labels are known; other rows ask their neighbours."""

    def fit_labels(
        pool: Pool, n_new: int, rng: np.random.Generator, n_init: int, engine: Engine | None = None
    ) -> NeighbourClustering:
        labels = fit(pool, n_new, rng, n_init, engine=engine).labels
        return by_neighbours(pool, read_labels(name, labels, pool, n_new), n_new)

    return fit_labels


# Named functions: a `Family` can be pickled.


def kmeans_params(clustering: KMeansClustering) -> Matrix:
    """Centres (n_dims, n_clusters) of k-means, in double precision."""
    return np.asarray(clustering.centres.T, np.float64)


def make_kmeans(centres: Matrix, counts: Matrix, variance: float, value: float) -> KMeansClustering:
    """k-means of centres (n_dims, n_clusters)."""
    return KMeansClustering(NO_LABELS, value, centres.T, counts, variance)


def gaussian_params(clustering: GaussianClustering) -> Gaussians:
    """Parameters of a Gaussian clustering."""
    return Gaussians(clustering.means.T, clustering.log_weights, clustering.covariance)


def make_gaussians(params: Gaussians, counts: Matrix, variance: float, value: float) -> GaussianClustering:
    """Gaussian clustering of parameters."""
    return GaussianClustering(NO_LABELS, value, params.means.T, params.log_weights, params.covariance)


def direction_params(clustering: SphericalClustering) -> Directions:
    """Parameters of von Mises-Fisher components."""
    return Directions(clustering.directions.T, clustering.log_weights, clustering.kappa)


def make_directions(params: Directions, counts: Matrix, variance: float, value: float) -> SphericalClustering:
    """Von Mises-Fisher components of parameters."""
    return SphericalClustering(NO_LABELS, value, params.directions.T, params.log_weights, params.kappa)


KMEANS = Family(kmeans_model, kmeans_params, make_kmeans, 0.0, False)
GAUSSIANS = Family(gaussian_model, gaussian_params, make_gaussians, 1.0, False)
DIRECTIONS = Family(direction_model, direction_params, make_directions, 1.0, True)


def made_of_sums(family: Family, counts: Matrix, sums: Matrix, outer: Matrix) -> Clustering:
    """Clustering of sums over rows: one M-step."""
    none = WeightedRows(np.zeros((0, len(outer))), np.zeros(0))
    held = Stats(np.zeros_like(counts), np.zeros_like(sums))
    model = family.model(Problem(none, held, outer, float(counts.sum())))
    means = sums / np.maximum(counts, TINY)
    within = float(np.trace(outer)) - float(np.sum(counts * np.sum(means**2, axis=0)))
    variance = max(within, 0.0) / max(float(counts.sum()) * len(outer), TINY)
    return family.make(model.update(means, Stats(counts, sums)), counts, variance, np.nan)
