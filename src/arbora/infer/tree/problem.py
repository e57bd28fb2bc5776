"""The problem of hierarchical Bayesian logistic regression: rows with labels, a tree, and the prior of the weights.

The modules of this package:

    problem       the problem: `TreeProblem` with unknown precisions, `MapProblem` with given ones; the prior of the
                  classes alone, with inner nodes eliminated feature by feature
    gaussian      the prior: Gaussians around the parent, gamma distributions of the precisions, their bounds
    bouchard      quadratic bounds of the likelihoods under Gaussian scores
    blocks        elimination of the tree with a block of features at every node, for few features
    variational   the bounds, summed over the rows; variational inference by coordinate ascent over all factors of q
    map           maximum a posteriori weights by Newton's method, from sweeps in the dual for sparse rows; Laplace
                  variances
    dual          the same by dual coordinate descent: logistic likelihood, sparse rows, very many classes or
                  features; moments, variances and sparse weights of its solution, block by block

`arbora.infer.likelihood` has the likelihoods themselves, with two derivatives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.infer.tree.gaussian import Gammas, Root, Sharing, Tree
from arbora.kernels.tree import WIDTH, hold_classes, pull_classes, solve_classes


def _n_weights(X: Any, bias: float) -> int:
    return int(X.shape[1]) + (bias != 0)


class MapProblem(NamedTuple):
    """Rows with labels, a tree, and precisions. Classes may be on inner nodes.

    `precision` is that of the weights of a node around those of its parent, and of a root around `root_mean`.
    """

    X: Any  # CSR or dense, (n_samples, n_features), without a column for the bias
    Y: sp.csr_array  # (n_samples, n_classes), 1 where a row has a class; one per row for "softmax", usually
    row_weight: Matrix | None
    parent: NDArray[np.integer[Any]]  # -1 for roots; parents come before their children
    class_node: NDArray[np.integer[Any]]  # node of each class: leaves or inner nodes, all different
    precision: Matrix  # (n_nodes,) or (n_nodes, n_weights)
    root_mean: Any = 0.0  # a number or one for each weight
    likelihood: str = "softmax"  # or "logistic"
    bias: float = 1.0  # value of a constant feature, the last one, which adds a weight; 0 for none

    @property
    def n_weights(self) -> int:
        """Number of weights of a node: one per feature, and that of the bias."""
        return _n_weights(self.X, self.bias)


class TreeProblem(NamedTuple):
    """Rows, labels and prior.

    `X` is a CSR or dense matrix without the bias, whose value is `bias` (0 for none); `Y` a CSR indicator of shape
    (n_samples, n_classes), classes in the order of `tree.leaves`.
    """

    X: Any
    Y: sp.csr_array
    row_weight: Array
    tree: Tree
    sharing: Sharing
    prior: Gammas
    root: Root = Root()
    likelihood: str = "softmax"
    bias: float = 1.0

    @property
    def n_weights(self) -> int:
        """Number of weights of a node: one per feature, and that of the bias."""
        return _n_weights(self.X, self.bias)

    def given(self, precision: Array) -> MapProblem:
        """Return the problem of the weights for given precisions of the nodes."""
        X, Y, row_weight, tree, *_ = self
        return MapProblem(
            X, Y, row_weight, tree.parent, tree.leaves, precision, self.root.mean, self.likelihood, self.bias
        )


def check_problem(problem: MapProblem) -> None:
    """Raise a ValueError if the fields of a problem do not fit together."""
    n_nodes, n_weights = len(problem.parent), problem.n_weights
    parent, class_node = np.asarray(problem.parent), np.asarray(problem.class_node)
    precision = np.asarray(problem.precision)
    if problem.likelihood not in ("softmax", "logistic"):
        raise ValueError(f"likelihood={problem.likelihood!r}: use 'softmax' or 'logistic'.")
    if precision.shape not in [(n_nodes,), (n_nodes, n_weights)]:
        raise ValueError(
            f"precision has shape {precision.shape}: it must be ({n_nodes},) or ({n_nodes}, {n_weights}), "
            "one for each node, or for each node and weight."
        )
    if not ((precision > 0) & np.isfinite(precision)).all():
        raise ValueError("precisions must be positive and finite.")
    if ((parent >= np.arange(n_nodes)) | (parent < -1)).any():
        raise ValueError("parent must be in topological order: parents before their children, -1 for roots.")
    if len(np.unique(class_node)) != len(class_node) or not np.isin(class_node, np.arange(n_nodes)).all():
        raise ValueError("class_node must name a different node for each class.")
    if problem.Y.shape != (problem.X.shape[0], len(class_node)):
        raise ValueError(
            f"Y has shape {problem.Y.shape}: it must be ({problem.X.shape[0]}, {len(class_node)}), "
            "one row for each row of X and one column for each class."
        )


def seen_features(problem: MapProblem) -> tuple[Any, Ints]:
    """Columns of the features that occur, including the bias, and their indices; all columns of dense rows."""
    X, n_samples, sparse = problem.X, problem.X.shape[0], sp.issparse(problem.X)
    column = np.full((n_samples, 1 if problem.bias else 0), problem.bias, X.dtype)
    if not sparse:
        return np.hstack([X, column]), np.arange(problem.n_weights)
    X = sp.hstack([X, sp.csr_array(column)], format="csr")
    seen = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
    return X[:, seen], seen


def root_means(problem: MapProblem) -> Matrix:
    """Prior mean of every weight of the roots."""
    return np.broadcast_to(np.asarray(problem.root_mean, np.float64), problem.n_weights)


def row_weights(problem: MapProblem) -> Matrix:
    """Weight of every row; ones by default."""
    return np.ones(problem.X.shape[0]) if problem.row_weight is None else np.asarray(problem.row_weight)


def base_rates(problem: MapProblem) -> Matrix | None:
    """Weights of all nodes: zero, with biases that reproduce the shares of the classes; None without a bias.

    With many classes this start saves several Newton steps compared with zero weights.
    """
    if not problem.bias:
        return None
    weight = row_weights(problem)
    share = (weight @ problem.Y + 0.5) / (weight.sum() + 1.0)
    scores = np.log(share) - (np.log1p(-share) if problem.likelihood == "logistic" else np.log(share).mean())
    weights = np.zeros((len(problem.parent), problem.n_weights))
    weights[np.asarray(problem.class_node), -1] = scores / problem.bias
    return weights


# --- The prior of hierarchical Bayesian logistic regression, with inner nodes eliminated --------------------
#
#     w_root ~ N(m, diag(a_root)^-1),        w_n | w_parent ~ N(w_parent, diag(a_n)^-1)
#
# Only classes have data. Without the other nodes, the weights of the classes have for every feature the covariance K
# with K_cd = sum of 1/a_n over the nodes n that are above (or at) both c and d, and 1/2 (W - m) K^-1 (W - m)' is the
# minimum of 1/2 sum_n a_n (w_n - w_parent)^2 for given W. K is never formed: products with it, with its inverse, and
# with (K^-1 + D)^-1 for a diagonal D are one pass up and one pass down the tree.
#
# Weights of classes are stored by feature, (n_weights, n_classes). A solver should keep W and not K^-1 W:
# K multiplies the weights that the classes below a root have in common, and their rounding errors, by the number of
# classes.


_FEATURES = 16 * WIDTH  # per task


class TreePrior:
    """Products with the covariance of the weights of the classes of a tree, and their inverses.

    `parent`, `class_node` and `precision` are those of a `MapProblem`. For a root with two leaves, which are the
    classes:

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
