"""A start for Newton's method close to the optimum: softmax likelihood, sparse rows, one precision per node.

With the precisions that text has, Newton's method alone takes most of its steps, and thousands of products, on the
way from base rates to the neighbourhood of the optimum. A few sweeps of coordinate ascent in the dual
(`kernels.linear.softmax_tree`) get there at the cost of a few products. They bring the dual within a few per cent of
its optimum; the weights lag behind, and Newton's method ends in a few steps what sweeps would need hundreds for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.infer.tree.blocks import suits_blocks
from arbora.infer.tree.problem import MapProblem, root_means, row_weights, seen_features
from arbora.kernels.linear.softmax_tree import rows_times_covariance, sweep_softmax_tree

_MAX_SWEEPS, _FEWEST_SWEEPS = 30, 3
_STEADY = 0.85  # a sweep with an objective above this multiple of the one before is the last
_MAX_STEPS = 30  # of Newton's method for a row
_ENOUGH, _FINE_ENOUGH = (
    1e-2,
    1e-5,
)  # mass that the last of these steps moves, far from the optimum and near it
_LABEL = 1e-3  # probability of the other classes in the first distributions
_FEATURES_PER_TASK = 4096
_SMALLEST_NORM2 = 1e-30
Matrix = NDArray[Any]


def suits_sweeps(problem: MapProblem) -> bool:
    """Whether the dual gives a start: softmax with one class per row, sparse rows, many features.

    Examples
    --------
    >>> X, Y = sp.csr_array((1, 500)), sp.csr_array([[1.0, 0.0]])
    >>> problem = MapProblem(X, Y, None, np.array([-1, 0, 0]), np.array([1, 2]), np.ones(3))
    >>> suits_sweeps(problem), suits_sweeps(problem._replace(likelihood="logistic"))
    (True, False)
    """
    Y = problem.Y
    return bool(
        problem.likelihood == "softmax"
        and np.ndim(problem.precision) == 1
        and sp.issparse(problem.X)
        and not suits_blocks(len(problem.parent), problem.n_weights)
        and (np.diff(Y.indptr) == 1).all()
        and (Y.data == 1).all()
    )


class TreeSweeps:
    """Coordinate ascent in the dual of a softmax over a tree.

    Parameters
    ----------
    problem : MapProblem
        With one class per row and one precision per node.
    engine : Engine
        For products; sweeps are sequential.
    dtype : dtype
        Working precision.

    Attributes
    ----------
    W : ndarray of shape (n_seen, n_classes)
        Weights of the classes, as deviations from the mean of the roots, for the features that occur.
    L : ndarray of shape (n_samples, n_classes)
        Logarithms of the distributions of the rows.

    Examples
    --------
    >>> from arbora.engine import ThreadEngine
    >>> X, Y = sp.csr_array([[2.0], [-1.0]]), sp.csr_array(np.eye(2))
    >>> problem = MapProblem(X, Y, None, np.array([-1, 0, 0]), np.array([1, 2]), np.ones(3), bias=0.0)
    >>> sweeps = TreeSweeps(problem, ThreadEngine(), np.float64)
    >>> for _ in range(20):
    ...     objective, gap = sweeps.sweep()
    >>> sweeps.W.round(2)
    array([[ 0.5, -0.5]])
    """

    def __init__(self, problem: MapProblem, engine: Engine, dtype: Any = np.float32, seed: int = 0) -> None:
        X, self.seen = seen_features(problem)
        self.X, self.engine, self.dtype = sp.csr_array(X, dtype=dtype), engine, np.dtype(dtype)
        self.labels = np.asarray(problem.Y.indices, np.int64)
        self.cost = row_weights(problem).astype(dtype)
        squares = np.asarray((X.astype(np.float64) ** 2).sum(axis=1)).ravel()
        self.norm2 = np.maximum(squares, _SMALLEST_NORM2).astype(dtype)
        parent, precision = np.asarray(problem.parent, np.int64), np.asarray(problem.precision, np.float64)
        # A node above all roots. A single root moves all scores alike, as it does, and has no variance here.
        self.parent, self.place = np.append(-1, parent + 1), np.asarray(problem.class_node, np.int64) + 1
        variance = np.append(0.0, 1 / precision)
        if (parent < 0).sum() == 1:
            variance[1] = 0.0
        self.variance, self.rng = variance.astype(dtype), np.random.default_rng(seed)
        self.L = self._between(problem.Y.shape[1])
        self.W = self._weights()

    def _between(self, n_classes: int) -> Matrix:
        """First distributions: almost the labels, the rest by the shares of the classes."""
        count = np.bincount(self.labels, weights=self.cost, minlength=n_classes)
        share = (count + 0.5) / (count.sum() + 0.5 * n_classes)
        L = np.empty((len(self.labels), n_classes), self.dtype)
        L[:] = np.log(_LABEL * share)
        L[np.arange(len(L)), self.labels] = np.log(1 - _LABEL + _LABEL * share)[self.labels]
        return L

    def _weights(self) -> Matrix:
        """Weights of the distributions."""
        R = np.exp(self.L)
        R[np.arange(len(R)), self.labels] -= 1
        R *= -self.cost[:, None]
        W = csr_matmul(sp.csr_array(self.X.T), R, self.engine)

        def multiply(rows: slice) -> None:
            rows_times_covariance(self.parent, self.place, self.variance, W, rows.start, rows.stop)

        self.engine.map(multiply, split(len(W), size=_FEATURES_PER_TASK))
        return W

    def sweep(self, enough: float = _FINE_ENOUGH) -> tuple[float, float]:
        """Visit all rows once, in random order; return objective and duality gap, each row before its visit."""
        X, order = self.X, self.rng.permutation(len(self.labels))
        loss, half, gap = sweep_softmax_tree(
            X.indptr, X.indices, X.data, self.norm2, self.cost, self.labels, self.parent, self.place,
            self.variance, self.W, self.L, order, _MAX_STEPS, self.dtype.type(enough),
        )  # fmt: skip
        return loss + half, gap

    def run(self) -> None:
        """Sweep until the objective falls only slowly."""
        before = np.inf
        for number in range(_MAX_SWEEPS):
            objective, _ = self.sweep(_ENOUGH if number < _FEWEST_SWEEPS else _FINE_ENOUGH)
            if number >= _FEWEST_SWEEPS and not objective < _STEADY * before:
                break
            before = objective


def sweep_start(problem: MapProblem, engine: Engine) -> Matrix:
    """Weights (n_nodes, n_weights) near the optimum; only those of the classes are set, others are zero.

    Parameters
    ----------
    problem : MapProblem
        One that `suits_sweeps`.
    engine : Engine
    """
    sweeps = TreeSweeps(problem, engine)
    sweeps.run()
    weights = np.zeros((len(problem.parent), problem.n_weights), sweeps.dtype)
    weights[np.ix_(np.asarray(problem.class_node), sweeps.seen)] = sweeps.W.T
    weights[np.asarray(problem.class_node)] += root_means(problem).astype(sweeps.dtype)
    return weights
