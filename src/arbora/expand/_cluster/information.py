"""Clusters of counts, their information about the features, and the steps of the information bottleneck.

`arbora.expand.bottleneck` has the model and its objective.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import xlogy

from arbora.core.monitor import Monitor
from arbora.kernels.bottleneck import LANES, fill_state, sweep

Matrix = NDArray[Any]
_FEW_MOVES = 0.02  # share of rows that move in a sweep, at which a start is compared with the others


class Counts(NamedTuple):
    """Rows of counts that are scaled to their weights; none is empty."""

    X: sp.csr_array
    row_sum: NDArray[np.float64]

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return float(self.row_sum.sum())


class Clusters(NamedTuple):
    """Clusters and what the kernels keep of them."""

    labels: NDArray[np.int64]
    state: Matrix  # n_features x 2 padded clusters: weights n_wk, then n_wk log n_wk
    totals: NDArray[np.float64]  # n_clusters
    sizes: NDArray[np.int64]  # n_clusters

    @property
    def weights(self) -> Matrix:
        """Weights n_wk, n_features x n_clusters."""
        return self.state[:, : len(self.totals)]


def padded(n_clusters: int) -> int:
    """Return the number of clusters in the state of the kernels."""
    return -(-n_clusters // LANES) * LANES


def make_clusters(counts: Counts, labels: NDArray[np.int64], n_clusters: int) -> Clusters:
    """Add up the rows of each cluster."""
    state = np.empty((counts.X.shape[1], 2 * padded(n_clusters)))
    totals, sizes = np.empty(n_clusters), np.empty(n_clusters, np.int64)
    X = counts.X
    fill_state(X.indptr, X.indices, X.data, counts.row_sum, labels, state, totals, sizes)
    return Clusters(labels, state, totals, sizes)


def information(weights: Matrix) -> float:
    """Mutual information of the rows and columns of a table of weights, in nats.

    Examples
    --------
    >>> import numpy as np
    >>> round(information(np.eye(2)), 4), information(np.ones((2, 2)))
    (0.6931, 0.0)
    """
    total = weights.sum()
    if total <= 0:
        return 0.0
    by_row, by_column = weights.sum(axis=1), weights.sum(axis=0)
    terms = xlogy(weights, weights).sum() - xlogy(by_row, by_row).sum() - xlogy(by_column, by_column).sum()
    return max(float(terms / total + np.log(total)), 0.0)


def rows_information(counts: Counts) -> float:
    """Information of the single rows about the features, in nats: the upper bound of all clusterings."""
    by_column = np.asarray(counts.X.sum(axis=0)).ravel()
    terms = xlogy(counts.X.data, counts.X.data).sum() - xlogy(counts.row_sum, counts.row_sum).sum()
    return max(float((terms - xlogy(by_column, by_column).sum()) / counts.total + np.log(counts.total)), 0.0)


def run_sweeps(
    counts: Counts, clusters: Clusters, value: float, rng: np.random.Generator, limit: float, monitor: Monitor
) -> float:
    """Sweep until at most the share `limit` of the rows moves; return the information."""
    X, n_rows, last = counts.X, len(clusters.labels), monitor.n_iter >= monitor.max_iter
    while not last:
        order = rng.permutation(n_rows)
        n_moved, gain = sweep(
            X.indptr, X.indices, X.data, counts.row_sum, order, clusters.labels, clusters.state, clusters.totals,
            clusters.sizes,
        )  # fmt: skip
        value += gain / counts.total
        share = n_moved / n_rows
        last = monitor.record(value, change=share, converged=share <= limit)
    return value


class Run(NamedTuple):
    """A start of the sequential method, and how to go on."""

    clusters: Clusters
    value: float
    rng: np.random.Generator
    monitor: Monitor


def start_run(counts: Counts, n_clusters: int, rng: np.random.Generator, tol: float, max_iter: int) -> Run:
    """Sweep from random clusters of equal size until few rows move."""
    labels = rng.permutation(np.arange(len(counts.row_sum)) % n_clusters)
    clusters = make_clusters(counts, labels, n_clusters)
    monitor = Monitor(tol, max_iter)
    value = information(clusters.weights)
    value = run_sweeps(counts, clusters, value, rng, max(tol, _FEW_MOVES), monitor)
    return Run(clusters, value, rng, monitor)


def cut_tree(children: Matrix, n_clusters: int) -> NDArray[np.int64]:
    """Labels after all merges but the last ``n_clusters - 1``, in the order of the first row of each cluster.

    Examples
    --------
    >>> import numpy as np
    >>> cut_tree(np.array([[1, 3], [0, 2], [4, 5]]), 2)
    array([0, 1, 0, 1])
    """
    n_rows = len(children) + 1
    n_merges = n_rows - n_clusters
    joined = children[:n_merges].ravel()
    merged = np.repeat(np.arange(n_rows, n_rows + n_merges), 2)
    shape = (n_rows + n_merges,) * 2
    graph = sp.csr_array((np.ones(len(joined)), (joined, merged)), shape=shape)
    component = connected_components(graph, directed=False)[1][:n_rows]
    _, first, labels = np.unique(component, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[labels]
