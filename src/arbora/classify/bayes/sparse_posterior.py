"""A fitted tree whose weights are stored as sparse differences of the nodes from their parents."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify.linear import PartsModel
from arbora.core.chunks import require_memory, split
from arbora.infer.tree.dual import SparseTree, paths_up

_NODES_AT_A_TIME = 64

Array = NDArray[np.float64]


def ancestors(parent: NDArray[np.int64], nodes: NDArray[np.int64]) -> sp.csr_array:
    """Mark, for each of the nodes, itself and the nodes above it: (len(nodes), n_nodes).

    Examples
    --------
    >>> ancestors(np.array([-1, 0, 0]), np.array([1, 2])).toarray()
    array([[1., 1., 0.],
           [1., 0., 1.]])
    """
    paths = paths_up(parent, nodes)
    steps, place = np.nonzero(paths >= 0)
    entries = np.ones(len(steps)), (place, paths[steps, place])
    return sp.csr_array(entries, shape=(len(nodes), len(parent)))


class ScoreVariances(NamedTuple):
    """Variances of the weights of the classes: a common one of all weights, minus sparse reductions; biases apart."""

    common: Array  # (n_classes,)
    reductions: sp.csr_array  # (n_classes, n_features)
    bias: Array  # (n_classes,)

    def of_scores(self, X: Any) -> Array:
        """Variance of the score of every class, for every row."""
        squares = sp.csr_array(X)
        squares = squares.multiply(squares).tocsr()
        total = np.asarray(squares.sum(axis=1), np.float64).reshape(-1, 1)
        reduced = (squares @ self.reductions.T).toarray()
        return np.asarray(np.maximum(total * self.common - reduced, 0.0) + self.bias)

    def std(self) -> Array:
        """Compute the standard deviations (n_classes, n_features) as a dense matrix."""
        n_classes, n_features = self.reductions.shape
        require_memory(
            16 * n_classes * n_features,
            f"coef_std_ of {n_classes} classes and {n_features} features, as a dense matrix,",
            "Use decision_function(X, return_std=True), which does not need it.",
        )
        return np.asarray(np.sqrt(self.common[:, None] - self.reductions.toarray()))


def keep_sparse(
    estimator: Any, found: SparseTree, parent: NDArray[np.int64], leaves: NDArray[np.int64]
) -> None:
    """Set the attributes of a classifier whose weights are sparse differences."""
    every = ancestors(parent, np.arange(len(parent)))
    estimator.differences_ = sp.csc_array(found.differences)
    estimator.sharing_ = sp.csc_array(every[leaves].T, dtype=found.differences.dtype)
    estimator.node_intercept_ = every @ found.bias
    estimator.node_intercept_std_ = np.sqrt(found.bias_variance)
    estimator.node_variances_, estimator.variance_reductions_ = found.variance, found.reductions


def parts_model(estimator: Any) -> PartsModel:
    """Weights of the classes, for scores."""
    return PartsModel(estimator.differences_, estimator.intercept_, estimator.sharing_)


def class_variances(estimator: Any) -> ScoreVariances:
    """Variances of the weights of the classes."""
    n_classes = len(estimator.classes_)
    common = estimator.node_variances_[-n_classes:]
    bias = estimator.node_intercept_std_[-n_classes:] ** 2
    return ScoreVariances(common, estimator.variance_reductions_, bias)


def weights_of_nodes(differences: Any, parent: NDArray[np.int64], nodes: NDArray[np.int64]) -> sp.csr_array:
    """Weights of some nodes: the sums of the differences at and above them."""
    return sp.csr_array(ancestors(parent, nodes).astype(differences.dtype) @ sp.csr_array(differences))


def squared_norms(differences: Any, parent: NDArray[np.int64]) -> tuple[Array, Array]:
    """Squared norms of the differences, and of the weights, of all nodes."""
    rows = sp.csr_array(differences)
    squares = np.asarray(rows.multiply(rows).sum(axis=1), np.float64).ravel()
    own = np.empty(len(parent))
    for chunk in split(len(parent), size=_NODES_AT_A_TIME):
        some = weights_of_nodes(rows, parent, np.arange(chunk.start, chunk.stop))
        own[chunk] = np.asarray(some.multiply(some).sum(axis=1)).ravel()
    return squares, own
