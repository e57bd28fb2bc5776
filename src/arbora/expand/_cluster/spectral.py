"""Spectral clustering of a nearest-neighbour graph, with known groups (Ng, Jordan and Weiss 2001).

Rows are linked to their nearest ones; the leading eigenvectors of the normalised adjacency matrix, with rows of unit
length, are clustered by constrained k-means. New rows get the clusters of their nearest fitted rows. Up to
`MOST_EXACT` rows neighbours are exact; above, rows are searched in the cells of a coarse k-means that are nearest to
them.

Reference
---------
A. Ng, M. Jordan and Y. Weiss (2001). On spectral clustering: analysis and an algorithm. NIPS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh
from sklearn.cluster import MiniBatchKMeans
from sklearn.neighbors import NearestNeighbors

from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.expand._cluster.base import Pool, relabelled
from arbora.expand._cluster.kmeans import fit_kmeans
from arbora.expand._cluster.mixture import unit_rows

Matrix = NDArray[Any]
MOST_EXACT = 20_000
N_NEIGHBORS = 10
_PROBED_CELLS = 8
_ROWS_AT_ONCE = 2048
_SMOOTHING = 0.1  # added to the votes of every cluster
_TINY = float(np.finfo(np.float64).tiny)


class Neighbours:
    """Nearest rows of a set, exact or by the cells of a coarse k-means.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_dims)
    seed : int

    Examples
    --------
    >>> import numpy as np
    >>> Neighbours(np.array([[0.0], [1.0], [5.0]]), seed=0).find(np.array([[4.0]]), 2)
    array([[2, 1]])
    """

    def __init__(self, Z: Matrix, seed: int) -> None:
        self.Z, self.exact = Z, len(Z) <= MOST_EXACT
        if self.exact:
            self.index = NearestNeighbors().fit(Z)
        else:
            n_cells = int(np.sqrt(len(Z)))
            self.cells = MiniBatchKMeans(n_cells, n_init=1, random_state=seed, batch_size=8192).fit(Z)
            self.order = np.argsort(self.cells.labels_, kind="stable")
            self.bounds = np.searchsorted(self.cells.labels_[self.order], np.arange(n_cells + 1))

    def find(self, Z: Matrix, k: int) -> NDArray[np.int64]:
        """Numbers of the k nearest rows, nearest first."""
        k = min(k, len(self.Z))
        if self.exact:
            found: NDArray[np.int64] = self.index.kneighbors(Z, k, return_distance=False)
            return found
        return np.vstack([self._probe(Z[rows], k) for rows in split(len(Z), size=_ROWS_AT_ONCE)])

    def _probe(self, Z: Matrix, k: int) -> NDArray[np.int64]:
        distance = self.cells.transform(Z)
        near = np.argpartition(distance, _PROBED_CELLS, axis=1)[:, :_PROBED_CELLS]
        best = np.full((len(Z), k), -1, np.int64)
        best_distance = np.full((len(Z), k), np.inf)
        for cell in np.unique(near):  # rows that probe one cell share a product of matrices
            rows = np.flatnonzero((near == cell).any(axis=1))
            members = self.order[self.bounds[cell] : self.bounds[cell + 1]]
            if not len(members):
                continue
            there = self.Z[members]
            D = np.sum(there**2, axis=1) - 2 * Z[rows] @ there.T
            both = np.hstack([best_distance[rows], D])
            ids = np.hstack([best[rows], np.broadcast_to(members, D.shape)])
            kept = np.argpartition(both, k - 1, axis=1)[:, :k]
            best_distance[rows] = np.take_along_axis(both, kept, axis=1)
            best[rows] = np.take_along_axis(ids, kept, axis=1)
        order = np.argsort(best_distance, axis=1)
        return np.take_along_axis(best, order, axis=1)


class SpectralClustering(NamedTuple):
    """Fitted rows with their clusters; new rows ask their neighbours."""

    labels: NDArray[np.int64]
    objective: float
    Z: Matrix
    n_clusters: int
    n_neighbors: int
    seed: int

    def log_proba(self, Z: Matrix) -> Matrix:
        """Smoothed shares of the clusters among the nearest fitted rows."""
        return self.scorer()(Z)

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return `log_proba`, with the index of the fitted rows made once."""
        neighbours = Neighbours(self.Z, self.seed)

        def log_proba(Z: Matrix) -> Matrix:
            near = self.labels[neighbours.find(Z, self.n_neighbors)]
            votes = np.full((len(Z), self.n_clusters + 1), _SMOOTHING, Z.dtype)
            np.add.at(
                votes, (np.arange(len(Z))[:, None], near), 1.0
            )  # -1, a dropped cluster, is the last column
            votes = votes[:, :-1]
            return np.asarray(np.log(votes / votes.sum(axis=1, keepdims=True)))

        return log_proba

    def take(self, clusters: NDArray[np.int64]) -> SpectralClustering:
        """Take some of the clusters, in a new order."""
        labels = relabelled(self.labels, clusters, self.n_clusters)
        return self._replace(labels=labels, n_clusters=len(clusters))


def neighbour_graph(neighbours: Neighbours, k: int) -> sp.csr_array:
    """Symmetric graph that links rows to their k nearest others: weight 1 where both are near, else 1/2."""
    n = len(neighbours.Z)
    found = neighbours.find(neighbours.Z, min(k + 1, n))
    rows = np.repeat(np.arange(n), found.shape[1])
    columns = found.ravel()
    kept = (columns != rows) & (columns >= 0)
    links = sp.csr_array((np.ones(int(kept.sum())), (rows[kept], columns[kept])), shape=(n, n))
    return sp.csr_array((links + links.T) / 2)


def leading_eigenvectors(graph: sp.csr_array, n_dims: int, seed: int) -> tuple[Matrix, Matrix]:
    """Largest eigenvalues of the normalised adjacency matrix, falling, and their eigenvectors as columns."""
    degree = np.maximum(np.asarray(graph.sum(axis=1)).ravel(), _TINY)
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
) -> SpectralClustering:
    """Cluster the rows of the pool by their neighbour graph."""
    seed = int(rng.integers(2**31 - 1))
    neighbours = Neighbours(pool.Z, seed)
    n_clusters = pool.n_known + n_new
    embedding = embed(neighbour_graph(neighbours, n_neighbors), n_clusters, seed)
    found = fit_kmeans(pool._replace(Z=embedding), n_new, rng, n_init, engine=engine)
    return SpectralClustering(found.labels, found.objective, pool.Z, n_clusters, n_neighbors, seed)
