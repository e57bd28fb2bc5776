"""Maximum a posteriori weights of all nodes of a tree of classes, for hierarchical Bayesian logistic regression.

Given precisions a_n of the nodes, the posterior of the weights of **all** nodes is maximised (Gopal, Yang, Bai and
Niculescu-Mizil, 2012; **erratum**: the printed sum runs over the leaves only):

    min_w  -log p(Y | X, w) + 1/2 sum_n (w_n - w_parent)' diag(a_n) (w_n - w_parent),        w_parent(root) = m,

with the likelihoods of `arbora.infer.likelihood`. Nodes without a class are eliminated (`arbora.infer.tree.problem`):
with W the weights of the classes and K their covariance, the prior is 1/2 <W - m, K^-1 (W - m)>. The method is that
of `arbora.infer.newton_cg`; a step solves

    (K^-1 + curvature) E = -gradient.

With few features, the preconditioner is the prior with the blocks of the curvature of each class
(`arbora.infer.tree.blocks`). Otherwise it is the prior with the diagonal D of the curvature, (K_i^-1 + D_i)^-1 for
every feature i. If rows are dense and all features of a node have the same precision, the features are first rotated
to be uncorrelated, and D is the curvature of a class, summed over the rows, times the mean square of a feature.

With the softmax likelihood and one precision per node this is the objective of `MultinomialLogistic` over a tree,
with F_nc = a_n^-1/2 for the nodes n above a class c. `arbora.infer.softmax.newton` minimises it over the parts of all
nodes with a diagonal preconditioner. Both share `newton_cg` and `Likelihood`, but not the unknowns. CPU seconds on
one thread until the objective is within a relative distance of the optimum, here / `softmax.newton`:

    distance                                                   1e-2          1e-3          1e-4          1e-6
    CLEF, 10,000 x 80, 63 classes, first precisions        0.44 / 0.69   0.61 / 1.34   1.33 / 1.87   2.75 / 2.74
    CLEF, 10,000 x 80, 63 classes, learned precisions      0.45 / 0.86   0.64 / 1.52   1.05 / 2.03   2.44 / 3.09
    generated, 1,000 x 80, 60 classes                      0.14 / 0.05   0.21 / 0.05   0.27 / 0.06   0.46 / 0.09
    generated, 2,000 x 300, 60 classes                     0.20 / 0.22   0.27 / 0.26   0.27 / 0.31      - / 0.38
    generated, 3,000 x 5,000 sparse, 100 classes           0.37 / 0.28   0.37 / 0.34   0.59 / 0.68   1.10 / 1.28

At the tolerances of partial MAP this method takes about half the time on CLEF, the data it is meant for. It also
handles a precision for every weight (M2), the logistic likelihood and a mean of the roots. The other method certifies
a duality gap, works in single precision, and takes any label structure. So each keeps its own unknowns.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from threadpoolctl import ThreadpoolController

from arbora.arrays import TINY, Ints, Matrix
from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor, Progress
from arbora.core.products import csr_matmul
from arbora.core.trace import Trace
from arbora.infer.likelihood import Likelihood
from arbora.infer.newton_cg import Expansion, Map, newton_cg
from arbora.infer.tree.blocks import Marginals, TreeBlocks, class_blocks, suits_blocks
from arbora.infer.tree.gaussian import posterior_precisions
from arbora.infer.tree.problem import (
    MapProblem,
    TreePrior,
    base_rates,
    check_problem,
    root_means,
    row_weights,
    seen_features,
)
from arbora.kernels.linear.trees import rows_times_covariance, sweep_logistic_tree, sweep_softmax_tree

# --- A start for Newton's method close to the optimum: sparse rows, one precision per node ------------------
#
# With the precisions that text has, Newton's method alone takes most of its steps on the way from base rates to the
# neighbourhood of the optimum. A few sweeps of coordinate ascent in the dual get there at the cost of a few
# products (`kernels.linear.trees`). The dual is soon near its optimum; the weights lag behind, and Newton's method
# ends in a few steps what sweeps alone do slowly. On the Python documentation (5,644 rows, 9,496 features, 405
# classes, precisions of the prior), objective and processor seconds of one thread:
#
#     softmax                12 sweeps     119.3 in 1.4 s        then 33 products     97.4 in 3.4 s
#     independent classes    17 sweeps     201.4 in 2.0 s        then 88 products    148.9 in 7.8 s
#
# Sweeps may go on with other precisions (`TreeSweeps.couple`), since their probabilities are feasible for any.
# Partial MAP learns the first precisions from them alone. When Newton's method then begins, after 25 sweeps of
# independent classes, it takes 41 products.


_MAX_SWEEPS, _MIN_SWEEPS = 30, 3
_STEADY = 0.99  # a sweep with an objective above this multiple of the one before is the last
_MAX_STEPS = 30  # of Newton's method for a row
_ENOUGH, _FINE_ENOUGH = 1e-2, 1e-4  # mass that the last of these steps moves, in the first sweeps and later
_LABEL = 1e-3  # probability of the other classes in the first distributions
_FEATURES_PER_TASK = 4096
_MIN_NORM2 = 1e-30


def suits_sweeps(problem: MapProblem) -> bool:
    """Whether the dual gives a start: sparse rows, many features, one precision per node.

    A softmax needs one class per row; independent classes need roots with mean zero.
    """
    Y = problem.Y
    one_class = (np.diff(Y.indptr) == 1).all()
    return bool(
        (one_class if problem.likelihood == "softmax" else not np.any(problem.root_mean))
        and np.ndim(problem.precision) == 1
        and sp.issparse(problem.X)
        and not suits_blocks(len(problem.parent), problem.n_weights)
        and (Y.data == 1).all()
    )


class TreeSweeps:
    """Coordinate ascent in the dual of a softmax, or of independent classes, over a tree; see `suits_sweeps`.

    `W` (n_seen, n_classes) holds the weights of the classes, as deviations from the mean of the roots, for the
    features that occur. `L` (n_samples, n_classes) holds the logarithms of the distributions of the rows (softmax),
    or the logits of the probabilities (logistic). Products run on the engine; sweeps are sequential.
    """

    def __init__(self, problem: MapProblem, engine: Engine, dtype: Any = np.float32, seed: int = 0) -> None:
        X, self.seen = seen_features(problem)
        self.X, self.engine, self.dtype = sp.csr_array(X, dtype=dtype), engine, np.dtype(dtype)
        self.softmax, self.Y = problem.likelihood == "softmax", sp.csr_array(problem.Y, dtype=dtype)
        self.cost = row_weights(problem).astype(dtype)
        squares = np.asarray((X.astype(np.float64) ** 2).sum(axis=1)).ravel()
        self.norm2 = np.maximum(squares, _MIN_NORM2).astype(dtype)
        parent, precision = np.asarray(problem.parent, np.int64), np.asarray(problem.precision, np.float64)
        # A node above all roots.
        self.parent, self.place = np.append(-1, parent + 1), np.asarray(problem.class_node, np.int64) + 1
        self.mean, self.rng = root_means(problem).astype(dtype), np.random.default_rng(seed)
        self.n_sweeps, self.objective = 0, np.inf
        self.L = self._between(problem.Y.shape[1])
        self.couple(precision)

    def couple(self, precision: Matrix) -> None:
        """Set the precisions of the nodes. The probabilities stay feasible; the weights are computed anew."""
        variance = np.append(0.0, 1 / np.asarray(precision, np.float64))
        if self.softmax and (self.parent == 0).sum() == 1:
            variance[1] = 0.0  # a single root moves all scores alike
        self.variance = variance.astype(self.dtype)
        self.W = self._weights()

    def _between(self, n_classes: int) -> Matrix:
        """First probabilities: almost the labels, the rest by the shares of the classes."""
        count = np.asarray(self.cost @ self.Y, np.float64)
        share = (count + 0.5) / (self.cost.sum(dtype=np.float64) + 0.5 * n_classes + 0.5)  # below 1
        other, positive = _LABEL * share, 1 - _LABEL + _LABEL * share
        if not self.softmax:
            other, positive = other / (1 - other), positive / (_LABEL * (1 - share))  # odds
        L = np.empty((self.X.shape[0], n_classes), self.dtype)
        L[:] = np.log(other)
        row = np.repeat(np.arange(len(L)), np.diff(self.Y.indptr))
        L[row, self.Y.indices] = np.log(positive)[self.Y.indices]
        return L

    def _weights(self) -> Matrix:
        """Weights of the probabilities."""
        R = np.exp(self.L) if self.softmax else expit(self.L)
        row = np.repeat(np.arange(len(R)), np.diff(self.Y.indptr))
        R[row, self.Y.indices] -= 1
        R *= -self.cost[:, None]
        W = csr_matmul(sp.csr_array(self.X.T), R, self.engine)

        def multiply(rows: slice) -> None:
            rows_times_covariance(self.parent, self.place, self.variance, W, rows.start, rows.stop)

        self.engine.map(multiply, split(len(W), size=_FEATURES_PER_TASK))
        return W

    def sweep(self, enough: float = _FINE_ENOUGH) -> tuple[float, float]:
        """Visit all rows once, in random order; return objective and duality gap, each row before its visit."""
        X, order = self.X, self.rng.permutation(len(self.L))
        rows = X.indptr, X.indices, X.data, self.norm2, self.cost
        tree, settings = (self.parent, self.place, self.variance), (_MAX_STEPS, self.dtype.type(enough))
        if self.softmax:
            loss, half, gap = sweep_softmax_tree(
                *rows, self.Y.indices, *tree, self.W, self.L, order, *settings
            )
        else:
            labels = self.Y.indptr, self.Y.indices
            loss, half, gap = sweep_logistic_tree(*rows, *labels, *tree, self.W, self.L, order, *settings)
        return loss + half, gap

    def run(self) -> None:
        """Sweep until the objective falls only slowly. After earlier sweeps one more may be enough."""
        for _ in range(_MAX_SWEEPS):
            before, early = self.objective, self.n_sweeps < _MIN_SWEEPS
            self.objective, _ = self.sweep(_ENOUGH if early else _FINE_ENOUGH)
            self.n_sweeps += 1
            if not early and not self.objective < _STEADY * before:
                break

    def weights(self) -> Matrix:
        """Weights (n_nodes, n_weights); only those of the classes are set, others are zero."""
        classes = self.place - 1
        weights = np.zeros((len(self.parent) - 1, len(self.mean)), self.dtype)
        weights[np.ix_(classes, self.seen)] = self.W.T
        weights[classes] += self.mean
        return weights


def sweep_start(problem: MapProblem, engine: Engine) -> Matrix:
    """Weights (n_nodes, n_weights) near the optimum; only those of the classes are set, others are zero."""
    sweeps = TreeSweeps(problem, engine)
    sweeps.run()
    return sweeps.weights()


# --- Maximum a posteriori weights of all nodes --------------------------------------------------------------


_MAX_DENSE = 2**26  # numbers in sparse rows that are converted to dense ones, if features are few
_MAX_ROTATED = 1000  # features that are rotated
_MIN_SINGLE = 1e-9  # smallest precision in single precision; its inverse is the largest


class MapSolution(NamedTuple):
    """Weights of all nodes, bias last, objective, norm of its gradient by the weights of the classes, and history."""

    weights: Matrix  # n_nodes x n_weights
    objective: float
    gradient_norm: float
    trace: Trace
    converged: bool


class Point(NamedTuple):
    """Weights x = W of the classes by feature, K^-1 (W - m), objective and probabilities."""

    x: Matrix
    pull: Matrix
    objective: float
    P: Matrix


def count_numbers(problem: MapProblem, n_seen: int) -> int:
    """Numbers that Newton's method stores for `n_seen` features that occur."""
    n_samples, n_classes, n_nodes = problem.X.shape[0], len(problem.class_node), len(problem.parent)
    numbers: int = (3 * n_samples + 11 * n_seen) * n_classes + 2 * n_nodes * problem.n_weights
    if np.ndim(problem.precision) == 2:
        numbers += n_nodes * n_seen
    if not sp.issparse(problem.X):
        numbers += 2 * n_samples * n_seen
    return numbers


def newton_memory(problem: MapProblem, itemsize: int) -> int:
    """Bytes of a fit by Newton's method, with the sweeps before it and the Laplace variances after it."""
    X, n_classes, n_nodes = problem.X, len(problem.class_node), len(problem.parent)
    sparse = sp.issparse(X)
    n_seen = problem.n_weights
    if sparse:
        n_seen = int(np.count_nonzero(np.bincount(X.indices, minlength=X.shape[1]))) + bool(problem.bias)
    of_nodes = n_nodes * problem.n_weights * itemsize
    steps = count_numbers(problem, n_seen) * itemsize
    # Probabilities, their curvature, weights and diagonal, beside the weights and variances of all nodes.
    laplace = (2 * X.shape[0] + 4 * n_seen) * n_classes * itemsize + 3 * of_nodes
    sweeps = 0
    if suits_sweeps(problem):  # in single precision: weights, distributions, a residual, and the result
        sweeps = 4 * ((2 * n_seen + 2 * X.shape[0]) * n_classes + 2 * n_nodes * problem.n_weights)
    rows = 3 * X.nnz * (itemsize + X.indices.itemsize) if sparse else 0
    return int(max(steps + of_nodes, laplace + sweeps) + rows)  # sweeps are freed before the first step


def _is_small(problem: MapProblem, n_weights: int) -> bool:
    """Whether dense rows and a block of features at every node fit into memory."""
    return suits_blocks(len(problem.parent), n_weights) and problem.X.shape[0] * n_weights <= _MAX_DENSE


def suits_single(problem: MapProblem) -> bool:
    """Whether single precision is worth it, and precisions are far from its limits.

    >>> import numpy as np, scipy.sparse as sp
    >>> X, Y = sp.csr_array((1, 500)), sp.csr_array((1, 1))
    >>> problem = MapProblem(X, Y, None, np.array([-1]), np.array([0]), np.ones(1))
    >>> suits_single(problem), suits_single(problem._replace(precision=np.full(1, 1e30)))
    (True, False)
    """
    precision = np.asarray(problem.precision)
    inside = (precision > _MIN_SINGLE) & (precision < 1 / _MIN_SINGLE)
    return sp.issparse(problem.X) and not _is_small(problem, problem.n_weights) and bool(inside.all())


class MapObjective:
    """The objective over the features that occur, with its derivatives and preconditioner, for `newton_cg`."""

    def __init__(self, problem: MapProblem, engine: Engine, dtype: Any = np.float64) -> None:
        X, self.seen = seen_features(problem)
        X, weight = X.astype(dtype), row_weights(problem)
        sparse, self.mean = sp.issparse(X), root_means(problem)[self.seen].astype(dtype)
        precision, total = np.asarray(problem.precision), max(float(weight.sum()), TINY)
        self.rotation = self.products = None
        if _is_small(problem, X.shape[1]):
            X = X.toarray() if sparse else X
            self.products = (X.T * weight) @ X / total
        elif not sparse and precision.ndim == 1 and X.shape[1] <= _MAX_ROTATED:
            spread, self.rotation = np.linalg.eigh((X.T * weight) @ X / total)
            self.spread = np.maximum(spread, 0)
            X, self.mean = X @ self.rotation, self.mean @ self.rotation
        self.mean = self.mean[:, None]
        Y = sp.csr_array(problem.Y).astype(np.float64)
        self.data = Likelihood(X, Y, weight, problem.likelihood == "softmax", engine)
        precision = precision if precision.ndim == 1 else precision[:, self.seen]
        self.prior = TreePrior(problem.parent, problem.class_node, precision, engine, dtype)
        self.last: tuple[Matrix, Map] | None = None  # preconditioner of the last probabilities

    def start(self, weights: Matrix) -> Matrix:
        """Unknowns that stand for weights (n_classes, n_weights) of the classes."""
        W = np.asarray(weights, self.mean.dtype)[:, self.seen].T
        return np.ascontiguousarray(W if self.rotation is None else self.rotation.T @ W)

    def evaluate(self, W: Matrix, near: Point | None = None) -> Point:
        """Objective and probabilities."""
        deviation = W - self.mean
        pull = self.prior.pull(deviation)
        loss, P = self.data.evaluate(W)
        half = float(np.einsum("jc,jc->", pull, deviation, dtype=np.float64)) / 2
        return Point(W, pull, loss + half, P)

    def expand(self, point: Point) -> Expansion:
        """Gradient and Hessian."""
        gradient = point.pull + self.data.gradient(point.P)
        product = partial(self.hessian_product, point)
        return Expansion(gradient, product, partial(self.preconditioner, point.P))

    def hessian_product(self, point: Point, E: Matrix) -> Matrix:
        """Product of the Hessian with a change E of the weights."""
        return self.prior.pull(E) + self.data.curve(point.P, E)

    def expected_decrease(self, point: Point, gradient: Matrix) -> float:
        """Estimate what the objective can still fall: half the square of the gradient in the preconditioner's metric.

        On sparse rows with hardly correlated features it is about the true decrease near the optimum, and larger
        farther away. Where features are correlated it can be many times too small: the diagonal of the Hessian is
        then much larger than its small eigenvalues.
        """
        scaled = self.preconditioner(point.P)(gradient)
        return float(np.einsum("jc,jc->", gradient, scaled, dtype=np.float64)) / 2

    def preconditioner(self, P: Matrix) -> Map:
        """Approximate inverse of the Hessian at probabilities P."""
        if self.last is None or self.last[0] is not P:
            self.last = P, self._preconditioner(P)
        return self.last[1]

    def _preconditioner(self, P: Matrix) -> Map:
        prior = self.prior
        if self.products is not None:
            blocks = class_blocks(self.data.X, self.data.curvature(P), self.products, self.data.engine)
            return TreeBlocks(prior.parent, prior.class_node, prior.precision.T, blocks).solve
        if self.rotation is None:
            diagonal = self.data.diagonal(P)
        else:
            diagonal = np.outer(self.spread, self.data.curvature(P).sum(axis=0))
        return lambda R: prior.solve(R, diagonal)

    def all_weights(self, problem: MapProblem, W: Matrix) -> Matrix:
        """Weights of all nodes and features. Those of features that never occur equal the mean of the roots."""
        seen: Matrix = self.prior.all_nodes(W - self.mean) + self.mean.T
        if self.rotation is not None:
            seen = seen @ self.rotation.T
        if len(self.seen) == problem.n_weights:
            return seen
        weights = np.empty((len(seen), problem.n_weights), seen.dtype)
        weights[:] = root_means(problem)
        weights[:, self.seen] = seen
        return weights


def solve_map(
    problem: MapProblem,
    start: Matrix | None = None,
    *,
    tol: float = 1e-4,
    max_iter: int = 100,
    engine: Engine,
    dtype: Any = np.float64,
    by_objective: bool = False,
    progress: Progress | None = None,
) -> MapSolution:
    """Find the maximum a posteriori weights of all nodes.

    `start` (n_nodes, n_weights) are the weights of another solution, possibly for other precisions; only those of
    classes matter. The fit stops where the norm of the gradient is at most `tol` times its norm where all weights are
    `root_mean`. Single precision needs half the time and memory; see `suits_single`.

    With `by_objective` it stops instead when two estimates of the remaining decrease are at most `tol` times the
    objective: `MapObjective.expected_decrease` and, after the first step, the decrease that the quadratic model
    expected of the last step. Neither is a bound: with strongly correlated features the rest can be several times
    `tol`. With an infinite `tol` no step is taken: the solution is the better one of the start and `root_mean`, with
    its objective.
    """
    check_problem(problem)
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        objective = MapObjective(problem, engine, dtype)
        return _minimise(problem, start, Monitor(tol, max_iter, progress), objective, by_objective)


def _minimise(
    problem: MapProblem, start: Matrix | None, monitor: Monitor, objective: MapObjective, by_objective: bool
) -> MapSolution:
    point = objective.evaluate(np.repeat(objective.mean, len(problem.class_node), axis=1))
    scale = 1.0
    if not by_objective:
        scale = max(float(np.linalg.norm(objective.expand(point).gradient)), TINY)
    if start is None:
        start = sweep_start(problem, objective.prior.engine) if suits_sweeps(problem) else base_rates(problem)
    if start is not None:
        warm = objective.evaluate(objective.start(start[np.asarray(problem.class_node)]))
        point = warm if warm.objective < point.objective else point

    reached = np.inf  # value at the last point

    def change(point: Point, gradient: Matrix, decrement: float) -> float:
        if not by_objective:
            return float(np.linalg.norm(gradient)) / scale
        if np.isinf(monitor.tol):
            return 0.0
        expected = objective.expected_decrease(point, gradient)
        if np.isfinite(decrement):  # it sees the correlations of features, which the preconditioner does not
            expected = max(expected, decrement / 2)
        return expected / max(point.objective, TINY)

    def done(point: Point, gradient: Matrix, decrement: float) -> bool:
        nonlocal reached
        reached = change(point, gradient, decrement)
        if np.isfinite(decrement):  # the start is not an iteration
            return monitor.record(point.objective, change=reached)
        return reached <= monitor.tol

    target = 0.0 if by_objective else monitor.tol * scale
    point, gradient = newton_cg(objective, point, done, target=lambda point: target)
    converged = reached <= monitor.tol
    weights, norm = objective.all_weights(problem, point.x), float(np.linalg.norm(gradient))
    return MapSolution(weights, point.objective, norm, monitor.trace, converged)


def laplace_diagonal(problem: MapProblem, weights: Matrix, *, engine: Engine | None = None) -> Matrix:
    """Variances (n_nodes, n_weights) of the weights, each given all others: a Laplace approximation with a diagonal.

    The inverse of the sum of the precision of a node, those of its children, and, if the node has a class c,
    sum_i r_i x_ij^2 p_ic (1 - p_ic), at the maximum a posteriori weights.
    """
    rows, P, seen = _at_weights(problem, weights, engine)
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        curvature = rows.diagonal(P)
    variance = posterior_precisions(np.asarray(problem.parent), _as_columns(problem)).astype(weights.dtype)
    variance = np.broadcast_to(variance, (len(variance), problem.n_weights)).copy()
    variance[np.ix_(problem.class_node, seen)] += curvature.T
    variance **= -1
    return variance


def laplace_marginals(
    problem: MapProblem, weights: Matrix, *, engine: Engine | None = None
) -> Marginals | None:
    """Marginal covariances of the nodes; None if there are too many features or nodes.

    The posterior of all weights is approximated by a Gaussian with the precision of the tree plus, for a class c, the
    block sum_i r_i p_ic (1 - p_ic) x_i x_i'. With softmax this ignores the terms that couple the classes.
    """
    if not _is_small(problem, problem.n_weights):
        return None
    rows, P, seen = _at_weights(problem, weights, engine)
    X = rows.X.toarray() if rows.sparse else rows.X
    size = len(problem.class_node), problem.n_weights, problem.n_weights
    blocks, nothing = np.zeros(size), np.zeros((len(seen), len(seen)))
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        of_classes = class_blocks(X, rows.curvature(P), nothing, rows.engine, matters=0.0)
        blocks[np.ix_(np.arange(len(blocks)), seen, seen)] = of_classes
        return TreeBlocks(
            np.asarray(problem.parent), np.asarray(problem.class_node), _as_columns(problem), blocks
        ).marginals()


def _as_columns(problem: MapProblem) -> Matrix:
    return np.asarray(problem.precision, np.float64).reshape(len(problem.parent), -1)


def _at_weights(
    problem: MapProblem, weights: Matrix, engine: Engine | None
) -> tuple[Likelihood, Matrix, Ints]:
    """Likelihood over the features that occur, probabilities at the weights, and indices of these features."""
    X, seen = seen_features(problem)
    W = np.ascontiguousarray(weights[problem.class_node][:, seen].T)
    Y = sp.csr_array(problem.Y).astype(np.float64)
    rows = Likelihood(
        X.astype(weights.dtype), Y, row_weights(problem), problem.likelihood == "softmax", engine
    )
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        return rows, rows.evaluate(W)[1], seen
