"""What every clusterer of `ExpandClusters` takes and returns.

Clusters 0 ... n_known - 1 are the known groups; those after them are new. Rows with a label (`fixed` >= 0) stay in
their group. Where the pool is known to hold new groups only, the caller passes the pool alone with n_known = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Matrix = NDArray[Any]
_TINY = float(np.finfo(np.float64).tiny)


class Pool(NamedTuple):
    """Rows to cluster.

    `fixed` holds the known group of a row, -1 for a row without a label.
    """

    Z: Matrix  # n_rows x n_dims
    fixed: NDArray[np.int64]
    n_known: int
    row_weight: NDArray[np.float64]

    @property
    def free(self) -> NDArray[np.int64]:
        """Rows without a label."""
        return np.flatnonzero(self.fixed < 0)


class Clustering(Protocol):
    """A fitted clusterer."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Cluster of each row of the pool."""

    @property
    def objective(self) -> float:
        """What is maximised; comparable between the starts of one clusterer."""

    def log_proba(self, Z: Matrix) -> Matrix:
        """Log-probabilities (n_rows, n_clusters) of the clusters for rows of the same space."""

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return `log_proba`, prepared for many calls."""

    def take(self, clusters: NDArray[np.int64]) -> Self:
        """Take some of the clusters, in a new order; rows of the others have the label -1."""


def one_hot(labels: NDArray[np.int64], weight: Matrix, n_clusters: int) -> sp.csr_array:
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


def relabelled(labels: NDArray[np.int64], clusters: NDArray[np.int64], n_before: int) -> NDArray[np.int64]:
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


def cluster_means(
    Z: Matrix, labels: NDArray[np.int64], weight: Matrix, n_clusters: int
) -> tuple[Matrix, Matrix]:
    """Weights and weighted means of the clusters; an empty one has the mean 0."""
    size = np.bincount(labels, weights=weight, minlength=n_clusters)
    sums = np.asarray(one_hot(labels, weight, n_clusters) @ Z)
    return size, sums / np.maximum(size, _TINY)[:, None]


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
