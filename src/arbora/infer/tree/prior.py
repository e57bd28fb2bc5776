"""The prior of hierarchical Bayesian logistic regression, with inner nodes eliminated.

    w_root ~ N(m, diag(a_root)^-1),        w_n | w_parent ~ N(w_parent, diag(a_n)^-1)

Only classes have data. Without the other nodes, the weights of the classes have for every feature the covariance K
with K_cd = sum of 1/a_n over the nodes n that are above (or at) both c and d, and 1/2 (W - m) K^-1 (W - m)' is the
minimum of 1/2 sum_n a_n (w_n - w_parent)^2 for given W. K is never formed: products with it, with its inverse, and
with (K^-1 + D)^-1 for a diagonal D are one pass up and one pass down the tree.

Weights of classes are stored by feature, (n_weights, n_classes). A solver should keep W and not K^-1 W:
K multiplies the weights that the classes below a root have in common, and their rounding errors, by the number of
classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.kernels.tree import WIDTH, hold_classes, pull_classes, solve_classes

_FEATURES = 16 * WIDTH  # per task
Matrix = NDArray[Any]


class TreePrior:
    """Products with the covariance of the weights of the classes of a tree, and their inverses.

    Parameters
    ----------
    parent : ndarray of int
        Parent of each node, -1 for roots; parents come before their children.
    class_node : ndarray of int
        Node of each class, all different.
    precision : ndarray of shape (n_nodes,) or (n_nodes, n_weights)
    engine : Engine
    dtype : dtype
        Of the weights.

    Examples
    --------
    A root with two leaves, which are the classes:

    >>> import numpy as np
    >>> from arbora.engine import ThreadEngine
    >>> prior = TreePrior(np.array([-1, 0, 0]), np.array([1, 2]), np.array([1.0, 0.5, 0.5]), ThreadEngine())
    >>> prior.pull(np.array([[3.0, 1.0]]))  # K is [[3, 1], [1, 3]]
    array([[1., 0.]])
    >>> prior.solve(np.array([[1.0, 0.0]]), np.zeros((1, 2)))
    array([[3., 1.]])
    """

    def __init__(
        self,
        parent: NDArray[np.integer[Any]],
        class_node: NDArray[np.integer[Any]],
        precision: Matrix,
        engine: Engine,
        dtype: Any = np.float64,
    ) -> None:
        self.engine = engine
        self.parent, self.class_node = np.asarray(parent, np.int64), np.asarray(class_node, np.int64)
        self.class_at = np.full(len(parent), -1, np.int64)
        self.class_at[class_node] = np.arange(len(class_node))
        self.precision = np.ascontiguousarray(np.atleast_2d(np.asarray(precision).T), dtype)

    def _by_features(self, kernel: Any, n_features: int, *arrays: Any) -> None:
        def task(first: int) -> None:
            stop = min(first + _FEATURES, n_features)
            kernel(self.parent, self.class_at, self.precision, *arrays[:-1], first, stop, arrays[-1])

        self.engine.map(task, range(0, n_features, _FEATURES))

    def solve(self, R: Matrix, D: Matrix) -> Matrix:
        """(K_i^-1 + diag(D_i))^-1 times row i of R, for every feature i."""
        Z = np.empty_like(R)
        self._by_features(solve_classes, len(R), R, D, Z)
        return Z

    def all_nodes(self, W: Matrix) -> Matrix:
        """Weights (n_nodes, n_weights) of all nodes, given those of the classes: conditional means."""
        Z = np.empty((len(self.parent), len(W)), W.dtype)
        self._by_features(hold_classes, len(W), W, Z)
        return Z

    def pull(self, W: Matrix) -> Matrix:
        """Products with the inverse of the covariance, feature by feature."""
        U = np.empty_like(W)
        self._by_features(pull_classes, len(W), W, U)
        return U
