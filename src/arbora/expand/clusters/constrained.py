"""Clustering in which labelled rows stay in their groups, by the loop of `arbora.infer.mixture`.

The components of all clusterers give a row a score that is linear in it. Labelled rows have a fixed component: their
counts and sums never change and are added to those of the E-step, which sees the other rows alone. So each model is
three functions (scores, update, extra) over sums, whole data, chunks in threads, shards of a cluster and rows that
are mapped on request share one loop, and further rows can be added later.

    k-means                  x.c - |c|^2 / 2                        at temperature 0
    Gaussian, one S          x.S^-1 m - m' S^-1 m / 2 + log w
    von Mises-Fisher, one k  k x.m + log w                          rows of unit length

The bound is -inertia / 2, or the log-likelihood of all rows in which that of a labelled row is the log-joint with its
group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, run
from arbora.infer.mixture.statistics import (
    LinearScores,
    Stats,
    WeightedRows,
    block_scores,
    blocks,
    dense_chunks,
    kernel_scores,
)
from arbora.special import kappa_mle, vmf_log_normalizer

# --- What every clusterer of `ExpandClusters` takes and returns ---------------------------------------------
#
# Clusters 0 ... n_known - 1 are the known groups; those after them are new. Rows with a label (`fixed` >= 0) stay in
# their group. Where the pool is known to hold new groups only, the caller passes the pool alone with n_known = 0.


class Pool(NamedTuple):
    """Rows to cluster.

    `fixed` holds the known group of a row, -1 for a row without a label.
    """

    Z: Matrix  # n_rows x n_dims
    fixed: Ints
    n_known: int
    row_weight: Array

    @property
    def free(self) -> Ints:
        """Rows without a label."""
        return np.flatnonzero(self.fixed < 0)


class Clustering(Protocol):
    """A fitted clusterer."""

    @property
    def labels(self) -> Ints:
        """Cluster of each row of the pool."""

    @property
    def objective(self) -> float:
        """What is maximised; comparable between the starts of one clusterer."""

    def log_proba(self, Z: Matrix) -> Matrix:
        """Log-probabilities (n_rows, n_clusters) of the clusters for rows of the same space."""

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return `log_proba`, prepared for many calls."""

    def take(self, clusters: Ints) -> Self:
        """Take some of the clusters, in a new order; rows of the others have the label -1."""


def one_hot(labels: Ints, weight: Matrix, n_clusters: int) -> sp.csr_array:
    """Weights of the rows in the clusters, as a sparse matrix of shape (n_clusters, n_rows).

    Examples
    --------
    >>> import numpy as np
    >>> one_hot(np.array([1, 0, 1]), np.ones(3), 2).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.]])
    """
    n = len(labels)
    return sp.csr_array((weight, (labels, np.arange(n))), shape=(n_clusters, n))


def relabelled(labels: Ints, clusters: Ints, n_before: int) -> Ints:
    """Labels after a choice of clusters; -1 for those that were left out.

    Examples
    --------
    >>> import numpy as np
    >>> relabelled(np.array([0, 1, 2]), np.array([2, 0]), 3)
    array([ 1, -1,  0])
    """
    code = np.full(n_before + 1, -1, np.int64)
    code[clusters] = np.arange(len(clusters))
    return code[labels]


def cluster_means(Z: Matrix, labels: Ints, weight: Matrix, n_clusters: int) -> tuple[Matrix, Matrix]:
    """Weights and weighted means of the clusters; an empty one has the mean 0."""
    size = np.bincount(labels, weights=weight, minlength=n_clusters)
    sums = np.asarray(one_hot(labels, weight, n_clusters) @ Z)
    return size, sums / np.maximum(size, TINY)[:, None]


def normalized(scores: Matrix) -> Matrix:
    """Subtract the log-sum-exp of each row; scores that have overflowed are refused.

    Examples
    --------
    >>> np.exp(normalized(np.log([[1.0, 3.0]])))
    array([[0.25, 0.75]])
    """
    top = scores.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        row = int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])
        raise ValueError(
            f"Row {row} of X holds values so large that its scores overflow: scale the features."
        )
    return np.asarray(scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True)))


# --- Clustering in which labelled rows stay in their groups, by the loop of `arbora.infer.mixture` ----------


_SHRINKAGE = 0.05  # of the common covariance towards its mean variance


class Sums(NamedTuple):
    """Sums over rows with a group: counts, rows (n_dims, n_groups), and z z' of all rows together."""

    counts: Matrix
    sums: Matrix
    outer: Matrix

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return float(self.counts.sum())

    @property
    def means(self) -> Matrix:
        """Mean of each group, n_groups x n_dims; an empty group has 0."""
        return (self.sums / np.maximum(self.counts, TINY)).T

    @property
    def within(self) -> Matrix:
        """Scatter of the rows around the means of their groups."""
        return np.asarray(self.outer - self.sums @ self.means)


class Problem(NamedTuple):
    """Rows to cluster, with the sums of the labelled ones."""

    rows: WeightedRows  # without a label, or of weight 0
    held: Stats  # of labelled rows, by cluster
    outer: Matrix  # sum of z z' over all rows
    total: float  # weight of all rows

    @property
    def n_clusters(self) -> int:
        """Known and new groups."""
        return len(self.held.counts)


def sum_rows(X: Any, codes: Ints, weight: Matrix, n_groups: int, engine: Engine) -> Sums:
    """Add up dense rows by group; rows with a negative code count in `outer` alone."""

    def add(chunk: slice) -> Sums:
        width = X.shape[1]
        counts, sums, outer = np.zeros(n_groups), np.zeros((width, n_groups)), np.zeros((width, width))
        for block in blocks(chunk):
            Z, w, own = X[block], weight[block].astype(X.dtype, copy=False), codes[block]
            outer += (Z * w[:, None]).T @ Z
            there = own >= 0
            if n_groups and there.any():
                counts += np.bincount(own[there], w[there], n_groups)
                sums += np.asarray(one_hot(own[there], w[there], n_groups) @ Z[there]).T
        return Sums(counts, sums, outer)

    width = X.shape[1]
    if not X.shape[0]:
        return Sums(np.zeros(n_groups), np.zeros((width, n_groups)), np.zeros((width, width)))
    total: Sums = engine.sum(add, dense_chunks(X.shape[0]))
    return total


def pose(X: Any, fixed: Ints, weight: Matrix, n_clusters: int, engine: Engine) -> Problem:
    """Make a problem of rows, in memory or not, and the known groups of some of them."""
    free = fixed < 0
    found = sum_rows(X, fixed, weight, n_clusters, engine)
    rows = WeightedRows(X, np.where(free, weight, 0.0).astype(X.dtype, copy=False))
    if isinstance(X, np.ndarray) and not free.all():
        rows = rows.take(np.flatnonzero(free))
    return Problem(rows, Stats(found.counts, found.sums), found.outer, float(weight.sum()))


def pose_pool(pool: Pool, n_new: int, engine: Engine) -> Problem:
    """Make a problem of a pool."""
    return pose(pool.Z, pool.fixed, pool.row_weight, pool.n_known + n_new, engine)


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
