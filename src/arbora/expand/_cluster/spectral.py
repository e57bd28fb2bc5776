"""Spectral clustering of a nearest-neighbour graph, with known groups (Ng, Jordan and Weiss 2001).

Rows are linked to their nearest ones; the leading eigenvectors of the normalised adjacency matrix, with rows of unit
length, are clustered by constrained k-means. New rows get the clusters of their nearest fitted rows.

Reference
---------
A. Ng, M. Jordan and Y. Weiss (2001). On spectral clustering: analysis and an algorithm. NIPS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh

from arbora.core.engine import Engine
from arbora.expand._cluster.kmeans import fit_kmeans
from arbora.expand._cluster.mixture import unit_rows
from arbora.expand.clusters.constrained import Pool
from arbora.expand.clusters.neighbours import (
    N_NEIGHBORS,
    NeighbourClustering,
    Neighbours,
    neighbour_graph,
    votes_of,
)

Matrix = NDArray[Any]
_TINY = float(np.finfo(np.float64).tiny)


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
) -> NeighbourClustering:
    """Cluster the rows of the pool by their neighbour graph."""
    seed = int(rng.integers(2**31 - 1))
    neighbours = Neighbours(pool.Z, seed)
    n_clusters = pool.n_known + n_new
    embedding = embed(neighbour_graph(neighbours, n_neighbors), n_clusters, seed)
    found = fit_kmeans(pool._replace(Z=embedding), n_new, rng, n_init, engine=engine)
    return NeighbourClustering(
        found.labels,
        found.objective,
        pool.Z,
        n_clusters,
        n_neighbors,
        seed,
        votes_of(pool.fixed, pool.Z.dtype),
    )
