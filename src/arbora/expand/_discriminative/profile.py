"""Profiles of clusters in the original units: means, deviations, and the features that set each cluster apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core.chunks import split
from arbora.expand.discriminative.cost import is_sparse
from arbora.metrics.table import Table

Matrix = NDArray[Any]
_BLOCK_ROWS = 8192


class Profile(NamedTuple):
    """Sizes, means and deviations of the clusters."""

    features: list[str]
    sizes: NDArray[np.int64]
    means: Matrix  # n_clusters x n_features
    deviations: Matrix
    overall_mean: Matrix
    overall_deviation: Matrix

    @property
    def apart(self) -> Matrix:
        """How far the mean of a cluster is from that of all rows, in deviations of all rows."""
        scale = np.where(self.overall_deviation > 0, self.overall_deviation, 1.0)
        away = (self.means - self.overall_mean) / scale
        return np.where((self.overall_deviation > 0) & (self.sizes[:, None] > 0), away, 0.0)

    def top_features(self, n_features: int = 5) -> list[list[tuple[str, float]]]:
        """Features that set each cluster apart, the strongest first, with the difference in deviations."""
        apart = self.apart
        order = np.argsort(-np.abs(apart), axis=1, kind="stable")[:, :n_features]
        return [
            [(self.features[j], float(apart[k, j])) for j in columns if apart[k, j] != 0]
            for k, columns in enumerate(order.tolist())
        ]

    def to_table(self, n_features: int | None = 5) -> Table:
        """Return a table with a row for each cluster and feature, those that set it apart most first.

        Parameters
        ----------
        n_features : int or None
            Features of each cluster; None for all.

        Returns
        -------
        Table
        """
        apart = self.apart
        order = np.argsort(-np.abs(apart), axis=1, kind="stable")[:, :n_features]
        rows = []
        for k, columns in enumerate(order.tolist()):
            for j in columns:
                values = self.means[k, j], self.deviations[k, j], self.overall_mean[j], apart[k, j]
                rows.append((str(k), int(self.sizes[k]), self.features[j], *map(float, values)))
        columns = ("cluster", "rows", "feature", "mean", "deviation", "mean of all", "difference")
        return Table(columns, tuple(rows), ("", ",d", "", ".4g", ".4g", ".4g", "+.2f"))


def profile_clusters(X: Any, cells: NDArray[np.int64], n_clusters: int, features: list[str]) -> Profile:
    """Describe clusters of the rows of a dense or CSR matrix, block by block.

    Examples
    --------
    >>> X = np.array([[1.0, 5.0], [3.0, 5.0], [8.0, 5.0]])
    >>> profile_clusters(X, np.array([0, 0, 1]), 2, ["age", "same"]).means
    array([[2., 5.],
           [8., 5.]])
    """
    centre = np.asarray(X.mean(axis=0), np.float64).ravel()
    sizes = np.bincount(cells, minlength=n_clusters)
    sums, squares = np.zeros((2, n_clusters, X.shape[1]))
    for block in split(X.shape[0], size=_BLOCK_ROWS):
        part, n = X[block], block.stop - block.start
        member = sp.csr_array((np.ones(n), cells[block], np.arange(n + 1)), shape=(n, n_clusters)).T
        if is_sparse(part):
            part = sp.csr_array(part, dtype=np.float64)
            first = (member @ part).toarray()
            second = (member @ part.multiply(part).tocsr()).toarray()
            inside = np.bincount(cells[block], minlength=n_clusters)[:, None]
            sums += first - inside * centre
            squares += second - 2 * first * centre + inside * centre**2
        else:
            away = np.asarray(part, np.float64) - centre
            sums += member @ away
            squares += member @ away**2
    n = np.maximum(sizes, 1)[:, None]
    away = sums / n
    deviations = np.sqrt(np.maximum(squares / n - away**2, 0.0))
    total = max(int(sizes.sum()), 1)
    overall = np.sqrt(np.maximum(squares.sum(axis=0) / total - (sums.sum(axis=0) / total) ** 2, 0.0))
    overall[overall <= 1e-7 * np.abs(centre)] = 0.0
    return Profile(
        features, sizes, np.where(sizes[:, None] > 0, away + centre, np.nan), deviations, centre, overall
    )
