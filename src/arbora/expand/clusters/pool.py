"""What every clusterer of `ExpandClusters` takes and returns, and sums over its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.infer.mixture.statistics import Stats, WeightedRows, blocks, dense_chunks

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
    """Weights of the rows in the clusters, as a sparse matrix of shape (n_clusters, n_rows)."""
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
    """Subtract the log-sum-exp of each row; scores that have overflowed are refused."""
    top = scores.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        row = int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])
        raise ValueError(
            f"Row {row} of X holds values so large that its scores overflow: scale the features."
        )
    return np.asarray(scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True)))


# --- Sums over rows: those of labelled rows never change, and are added to those of the E-step --------------


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
            Z, w, groups = X[block], weight[block].astype(X.dtype, copy=False), codes[block]
            outer += (Z * w[:, None]).T @ Z
            in_group = groups >= 0
            if n_groups and in_group.any():
                counts += np.bincount(groups[in_group], w[in_group], n_groups)
                sums += np.asarray(one_hot(groups[in_group], w[in_group], n_groups) @ Z[in_group]).T
        return Sums(counts, sums, outer)

    width = X.shape[1]
    if not X.shape[0]:
        return Sums(np.zeros(n_groups), np.zeros((width, n_groups)), np.zeros((width, width)))
    total: Sums = engine.sum(add, dense_chunks(X.shape[0]))
    return total


def pose(X: Any, fixed: Ints, weight: Matrix, n_clusters: int, engine: Engine) -> Problem:
    """Make a problem of rows, in memory or not, and the known groups of some of them."""
    free = fixed < 0
    sums = sum_rows(X, fixed, weight, n_clusters, engine)
    rows = WeightedRows(X, np.where(free, weight, 0.0).astype(X.dtype, copy=False))
    if isinstance(X, np.ndarray) and not free.all():
        rows = rows.take(np.flatnonzero(free))
    return Problem(rows, Stats(sums.counts, sums.sums), sums.outer, float(weight.sum()))


def pose_pool(pool: Pool, n_new: int, engine: Engine) -> Problem:
    """Make a problem of a pool."""
    return pose(pool.Z, pool.fixed, pool.row_weight, pool.n_known + n_new, engine)
