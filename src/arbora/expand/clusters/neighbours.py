"""Nearest neighbours of rows: exact or approximate, their graph, clusters by their votes.

Up to `MAX_EXACT` rows neighbours are exact; above, rows are searched in the cells of a coarse k-means that are
nearest to them.

**Filing.** A clustering describes a group by one centre, or by a place in an embedding. Labelled groups may have any
shape, and labelled rows show it. `file_rows` goes over the rows without a label in rounds: each joins the group that
has most votes among its neighbours, where a labelled row has one vote and another row `POOL_VOTE`. In a trial on
eight data sets (vowel, segment, usps, binaryalphadigs, libras, glass, vehicle, umist; half of the groups known, half
of their rows labelled) filing raised the Hungarian accuracy of known groups from .62 to .69 and that of new groups
from .556 to .561.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import MiniBatchKMeans
from sklearn.neighbors import NearestNeighbors

from arbora.arrays import Ints, Matrix
from arbora.core.chunks import CHUNK_ROWS, split
from arbora.expand.clusters.pool import Pool, one_hot, relabelled

MAX_EXACT = 20_000
N_NEIGHBORS = 10
POOL_VOTE = 0.7
_PROBED_CELLS = 8
_SMOOTHING = 0.1  # added to the votes of every cluster
_ROUNDS = 5
_OWN = 1e-6  # vote of a row for the group it is in: ties change nothing


class Neighbours:
    """Nearest rows of Z, exact or by the cells of a coarse k-means with the given seed."""

    def __init__(self, Z: Matrix, seed: int) -> None:
        self.Z, self.exact = Z, len(Z) <= MAX_EXACT
        if self.exact:
            self.index = NearestNeighbors().fit(Z)
        else:
            n_cells = int(np.sqrt(len(Z)))
            self.cells = MiniBatchKMeans(n_cells, n_init=1, random_state=seed, batch_size=8192).fit(Z)
            self.order = np.argsort(self.cells.labels_, kind="stable")
            self.bounds = np.searchsorted(self.cells.labels_[self.order], np.arange(n_cells + 1))

    def find(self, Z: Matrix, k: int) -> Ints:
        """Numbers of the k nearest rows, nearest first."""
        k = min(k, len(self.Z))
        if self.exact:
            near: Ints = self.index.kneighbors(Z, k, return_distance=False)
            return near
        return np.vstack([self._probe(Z[rows], k) for rows in split(len(Z), size=CHUNK_ROWS)])

    def _probe(self, Z: Matrix, k: int) -> Ints:
        distance = self.cells.transform(Z)
        near = np.argpartition(distance, _PROBED_CELLS, axis=1)[:, :_PROBED_CELLS]
        best = np.full((len(Z), k), -1, np.int64)
        best_distance = np.full((len(Z), k), np.inf)
        for cell in np.unique(near):  # rows that probe one cell share a product of matrices
            rows = np.flatnonzero((near == cell).any(axis=1))
            members = self.order[self.bounds[cell] : self.bounds[cell + 1]]
            if not len(members):
                continue
            rows_of_cell = self.Z[members]
            D = np.sum(rows_of_cell**2, axis=1) - 2 * Z[rows] @ rows_of_cell.T
            both = np.hstack([best_distance[rows], D])
            ids = np.hstack([best[rows], np.broadcast_to(members, D.shape)])
            order_k = np.argpartition(both, k - 1, axis=1)[:, :k]
            best_distance[rows] = np.take_along_axis(both, order_k, axis=1)
            best[rows] = np.take_along_axis(ids, order_k, axis=1)
        order = np.argsort(best_distance, axis=1)
        return np.take_along_axis(best, order, axis=1)


class NeighbourClustering(NamedTuple):
    """Fitted rows with their clusters and votes; new rows ask their neighbours."""

    labels: Ints
    objective: float
    Z: Matrix
    n_clusters: int
    n_neighbors: int
    seed: int
    votes: Matrix  # of the fitted rows

    def log_proba(self, Z: Matrix) -> Matrix:
        """Smoothed shares of the clusters among the nearest fitted rows."""
        return self.scorer()(Z)

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return `log_proba`, with the index of the fitted rows made once."""
        neighbours = Neighbours(self.Z, self.seed)

        def log_proba(Z: Matrix) -> Matrix:
            near = neighbours.find(Z, self.n_neighbors)
            votes = np.full((len(Z), self.n_clusters + 1), _SMOOTHING, Z.dtype)
            rows = np.arange(len(Z))[:, None]
            # -1, a dropped cluster, is the last
            np.add.at(votes, (rows, self.labels[near]), self.votes[near])
            votes = votes[:, :-1]
            return np.asarray(np.log(votes / votes.sum(axis=1, keepdims=True)))

        return log_proba

    def take(self, clusters: Ints) -> NeighbourClustering:
        """Take some of the clusters, in a new order."""
        labels = relabelled(self.labels, clusters, self.n_clusters)
        return self._replace(labels=labels, n_clusters=len(clusters))


def neighbour_graph(neighbours: Neighbours, k: int) -> sp.csr_array:
    """Symmetric graph that links rows to their k nearest others: weight 1 where both are near, else 1/2."""
    n = len(neighbours.Z)
    near = neighbours.find(neighbours.Z, min(k + 1, n))
    rows = np.repeat(np.arange(n), near.shape[1])
    columns = near.ravel()
    is_link = (columns != rows) & (columns >= 0)
    links = sp.csr_array((np.ones(int(is_link.sum())), (rows[is_link], columns[is_link])), shape=(n, n))
    return sp.csr_array((links + links.T) / 2)


def votes_of(fixed: Ints, dtype: Any) -> Matrix:
    """Votes of rows: 1 for labelled ones, `POOL_VOTE` for the others."""
    return np.where(fixed >= 0, 1.0, POOL_VOTE).astype(dtype)


def file_rows(pool: Pool, labels: Ints, n_clusters: int, seed: int) -> NeighbourClustering:
    """Move rows without a label to the group with most votes among their neighbours, until few move.

    `labels` are the groups of a clusterer; `seed` is that of the coarse k-means behind approximate neighbours.
    """
    n = len(pool.Z)
    graph = neighbour_graph(Neighbours(pool.Z, seed), min(N_NEIGHBORS, max(n // 3, 1)))
    votes, codes = votes_of(pool.fixed, np.float64), labels
    for _ in range(_ROUNDS):
        ballots = sp.csr_array(one_hot(codes, votes, n_clusters).T)
        best = np.empty(n, np.int64)
        for rows in split(n, size=CHUNK_ROWS):
            count = (graph[rows] @ ballots).toarray()
            count[np.arange(len(count)), codes[rows]] += _OWN
            best[rows] = count.argmax(axis=1)
        best = np.where(pool.fixed >= 0, pool.fixed, best)
        if np.array_equal(best, codes):
            break
        codes = best
    return NeighbourClustering(
        codes, np.nan, pool.Z, n_clusters, N_NEIGHBORS, seed, votes.astype(pool.Z.dtype)
    )
