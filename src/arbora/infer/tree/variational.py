"""Variational inference for classes on the leaves of a tree, with full covariances.

The prior is that of `arbora.infer.tree.gaussian`, the likelihood a softmax over the leaves or independent logistic
losses, bounded as in `arbora.infer.tree.bouchard`. One iteration updates the following, each to raise the lower bound
given the others:

1. the quadratic (G_n, h_n) of every leaf, from the local parameters of all rows;
2. several times in turn, because it takes no pass over the rows: the means of all nodes at once (one elimination of
   the tree), the covariances Psi_n, and the gamma distributions of the precisions;
3. the means, with local parameters that are optimal for them. The bound as a function of the means alone is concave,
   but its curvature may be a small part of that of the quadratics, so that the steps of 2 are much too short. Newton
   steps (`arbora.infer.newton_cg`) with the elimination of 2 as preconditioner replace hundreds of iterations.

Under q the nodes are independent, under the posterior they are not: a child whose parent is uncertain is more
uncertain itself. Marginal covariances of the nodes are therefore reported from the joint Gaussian with the same means
and the precision of the quadratic of all nodes, prior plus bound, at the end of the iterations: `TreeFit.marginals`.
The bound and the updates do not use it.

A softmax does not change when one vector is added to all weights; the shifts b_x absorb it. Step 3 takes this into
account, otherwise the common part of the means would converge slowly. The lower bound contains all constants and
never falls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from arbora.arrays import TINY, Array
from arbora.core.chunks import require_memory, split
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.infer.newton_cg import Expansion, newton_step
from arbora.infer.tree import bouchard
from arbora.infer.tree import gaussian as gaussian_tree
from arbora.infer.tree.blocks import Marginals, TreeBlocks
from arbora.infer.tree.gaussian import Gammas, Root, Tree
from arbora.infer.tree.problem import TreeProblem

# --- Passes over the rows for variational inference in a tree of classes ------------------------------------
#
# Rows are divided into chunks that depend on their number alone, and sums are made in their order, each on one thread
# of the BLAS: the result does not depend on the number of threads. A chunk is made dense, with the bias as its last
# feature, when it is visited, for dense and sparse rows alike.


_ROWS_PER_TASK = 256  # rows whose pairs of features fit into the cache


class Local(NamedTuple):
    """Local parameters of all rows: means and variances of their scores, and shifts b."""

    mean: Array
    variance: Array
    shift: Array


class Quadratic(NamedTuple):
    """Sum over the rows at fixed local parameters: sum_n (-1/2 w'G_n w + h_n.w) + constant bounds the likelihood."""

    grams: Array  # (n_classes, d, d)
    linear: Array  # (n_classes, d)
    constant: float


class RowPasses:
    """The rows in chunks, transposed, with the bias as the last feature."""

    def __init__(self, problem: TreeProblem, engine: Engine) -> None:
        self.X, self.Y, self.weight, self.engine = problem.X, problem.Y, problem.row_weight, engine
        self.bias, self.softmax = problem.bias, problem.likelihood == "softmax"
        self.n_weights, self.chunks = problem.n_weights, split(self.X.shape[0], size=_ROWS_PER_TASK)
        # Linear term of the labels, which never changes: (n_classes, d).
        self.label_sums = self.sum(
            lambda chunk: (
                (self.weight[chunk, None] * (self.Y[chunk].toarray() - 0.5)).T @ self.columns(chunk).T,
            )
        )[0]

    def columns(self, chunk: slice) -> Array:
        """Features of a chunk of rows: (n_weights, n_rows)."""
        X: Any = self.X[chunk]
        out = np.full((self.n_weights, X.shape[0]), self.bias, np.float64)
        out[: X.shape[1]] = (X.toarray() if hasattr(X, "toarray") else X).T
        return out

    def sum(self, function: Callable[[slice], tuple[Any, ...]]) -> list[Any]:
        """Sum the results of a function over the chunks, in their order."""
        return [sum(values) for values in zip(*self.engine.map(function, self.chunks), strict=True)]

    def fill(self, function: Callable[[Array], Array], out: Array) -> Array:
        """Write a function of the features of every chunk into the rows of `out`."""

        def task(chunk: slice) -> None:
            out[chunk] = function(self.columns(chunk))

        self.engine.map(task, self.chunks)
        return out

    def scores(self, weights: Array) -> Array:
        """Products of all rows with the weights (n_classes, d) of the leaves."""
        return self.fill(lambda columns: columns.T @ weights.T, np.empty((self.X.shape[0], len(weights))))

    def variances(self, covariance: Array) -> Array:
        """Variances of all scores."""
        packed = bouchard.pack_symmetric(covariance)
        out = np.empty((self.X.shape[0], len(covariance)))
        return self.fill(lambda columns: bouchard.quadratic_forms(columns, packed), out)

    def tighten(self, local: Local, n_steps: int) -> tuple[Local, float]:
        """Improve the shifts; return them and the bound of the likelihood without the term of the labels."""
        shift = np.empty_like(local.shift)

        def task(chunk: slice) -> tuple[float]:
            step = self._step(local, chunk, n_steps)
            shift[chunk] = step.shift
            return (float(self.weight[chunk] @ step.value),)

        value = self.sum(task)[0]
        return local._replace(shift=shift), value

    def _step(self, local: Local, chunk: slice, n_steps: int) -> bouchard.Local:
        start = local.shift[chunk] if self.softmax else None
        return bouchard.local_step(local.mean[chunk], local.variance[chunk], start, n_steps)

    def quadratic(self, local: Local) -> Quadratic:
        """Sum the quadratic bounds of all rows."""

        def task(chunk: slice) -> tuple[Any, ...]:
            mean, shift = local.mean[chunk], local.shift[chunk]
            step = self._step(local, chunk, 0)
            columns = self.columns(chunk)
            c = self.weight[chunk, None] * bouchard.curvature(step.width)
            # The bound touches -f(x) at the local parameters: subtract the value of the quadratic there.
            inner = c * (local.variance[chunk] + mean * mean - 2 * shift[:, None] * mean) / 2
            constant = float(self.weight[chunk] @ step.value + inner.sum())
            return bouchard.weighted_grams(columns, c), (columns @ (c * shift[:, None])).T, constant

        packed, pull, constant = self.sum(task)
        grams = bouchard.unpack_symmetric(packed, self.n_weights)
        return Quadratic(grams, self.label_sums + pull, constant)

    def slopes(self, local: Local) -> tuple[Array, Array]:
        """Gradient (n_classes, d) of the bound in the weights of the leaves, and the curvature of every score."""
        bend = np.empty_like(local.mean)

        def task(chunk: slice) -> tuple[Array]:
            mean, step, weight = local.mean[chunk], self._step(local, chunk, 0), self.weight[chunk, None]
            bend[chunk] = weight * bouchard.collapsed_curvature(mean, local.variance[chunk], step)
            pull = weight * bouchard.curvature(step.width) * (mean - local.shift[chunk, None])
            return ((self.columns(chunk) @ pull).T,)

        return self.label_sums - self.sum(task)[0], bend

    def curve(self, direction: Array, bend: Array) -> Array:
        """Product of minus the Hessian in the weights of the leaves with a direction (n_classes, d)."""

        def task(chunk: slice) -> tuple[Array]:
            columns, b = self.columns(chunk), bend[chunk]
            change = columns.T @ direction.T
            if self.softmax:  # the optimal shift moves with the scores
                change -= ((b * change).sum(axis=1) / np.maximum(b.sum(axis=1), TINY))[:, None]
            return ((columns @ (b * change)).T,)

        return np.asarray(self.sum(task)[0])


# --- Variational inference for classes on the leaves of a tree, with full covariances -----------------------


_SWEEPS = 3  # updates of the global parameters between two passes over the rows
_FIRST_STEPS = 20  # steps towards the best shifts, from zero
_STEPS = 3  # ... from the shifts of the last iteration
_MAX_NEWTON = 3  # steps in an iteration
_FORCING = 0.1  # residual of a Newton step over its gradient


class TreePosterior(NamedTuple):
    """The parameters of q, bias last in every weight vector."""

    mean: Array  # (n_nodes, n_weights)
    variance: Array  # (n_nodes, n_weights): diagonals of all covariances; those of inner nodes are diagonal
    covariance: Array  # (n_classes, n_weights, n_weights): of the leaves
    gammas: Gammas


class TreeFit(NamedTuple):
    """Posterior, lower bound after each iteration, last relative change of it, and whether that met the tolerance."""

    posterior: TreePosterior
    marginals: Marginals
    lower_bounds: Array
    trace: Trace
    change: float
    converged: bool


class _Global(NamedTuple):
    """Posterior, and the log-determinants of its entropy."""

    posterior: TreePosterior
    log_determinants: float  # sum of log |Psi_n|


class _Point(NamedTuple):
    """Means with their local parameters, and minus the bound up to terms without the means."""

    x: Array
    local: Local
    objective: float


def _differences(tree: Tree, mean: Array, origin: Any) -> Array:
    up = tree.parent
    return mean - np.where((up >= 0)[:, None], mean[up], origin)


def _solve_means(factor: TreeBlocks, tree: Tree, root: Root, linear: Array) -> Array:
    """Means of all nodes: the maximum of the factored quadratic, with linear terms of the leaves."""
    right = np.zeros((tree.n_nodes, linear.shape[1]))
    right[tree.leaves] = linear
    right[~tree.has_parent] += np.multiply(root.precision, root.mean)
    return factor.all_nodes(right)


def _gather(tree: Tree, pull: Array) -> Array:
    """Gradient of the prior's quadratic, given the pull of every node towards its parent."""
    total = pull.copy()
    inside = tree.has_parent
    np.subtract.at(total, tree.parent[inside], pull[inside])
    return total


class _Means:
    """Minus the lower bound as a function of the means alone, at optimal local parameters.

    The means of the inner nodes must begin at their optimum given the leaves. Newton steps keep them there, because
    their part of the problem is quadratic and the preconditioner solves it exactly.
    """

    def __init__(self, rows: RowPasses, tree: Tree, root: Root, precision: Array, factor: TreeBlocks) -> None:
        self.rows, self.tree, self.root, self.precision, self.factor = rows, tree, root, precision, factor

    def evaluate(self, mean: Array, near: Local | _Point, n_steps: int = _STEPS) -> _Point:
        """Improve the local parameters, beginning with those of `near`, and compute the negative bound."""
        local, leaves = near.local if isinstance(near, _Point) else near, mean[self.tree.leaves]
        moved = Local(self.rows.scores(leaves), local.variance, local.shift)
        local, value = self.rows.tighten(moved, n_steps)
        deviation = _differences(self.tree, mean, self.root.mean)
        value += (
            float(np.vdot(self.rows.label_sums, leaves)) - float(np.sum(self.precision * deviation**2)) / 2
        )
        return _Point(mean, local, -value)

    def expand(self, point: _Point) -> Expansion:
        """Gradient and Hessian; the preconditioner is the elimination of the tree with the quadratics."""
        slopes, bend = self.rows.slopes(point.local)
        deviation = _differences(self.tree, point.x, self.root.mean)
        gradient = _gather(self.tree, self.precision * deviation)
        gradient[self.tree.leaves] -= slopes

        def product(direction: Array) -> Array:
            total = _gather(self.tree, self.precision * _differences(self.tree, direction, 0.0))
            total[self.tree.leaves] += self.rows.curve(direction[self.tree.leaves], bend)
            return total

        return Expansion(gradient, product, lambda: self._precondition)

    def _precondition(self, residual: Array) -> Array:
        return _solve_means(
            self.factor, self.tree, Root(0.0, self.root.precision), residual[self.tree.leaves]
        )


def _sweep(problem: TreeProblem, quadratic: Quadratic, gammas: Gammas) -> _Global:
    """Update means and covariances of all nodes, then the precisions."""
    tree, sharing, root = problem.tree, problem.sharing, problem.root
    precision = gaussian_tree.node_precisions(sharing, gammas, root, quadratic.linear.shape[1])
    factor = TreeBlocks(tree.parent, tree.leaves, precision, quadratic.grams)
    mean = _solve_means(factor, tree, root, quadratic.linear)
    covariance, of_leaves = factor.covariances()
    variance = 1 / gaussian_tree.posterior_precisions(tree.parent, precision)
    variance[tree.leaves] = 1.0
    log_determinants = float(np.log(variance).sum() + of_leaves.sum())
    variance[tree.leaves] = np.diagonal(covariance, axis1=1, axis2=2)
    spread = gaussian_tree.squared_deviations(tree, sharing, mean, variance)
    gammas = gaussian_tree.update_gammas(sharing, problem.prior, spread, mean.shape[1])
    posterior = TreePosterior(mean, variance, covariance, gammas)
    return _Global(posterior, log_determinants)


def _prior_bound(problem: TreeProblem, posterior: _Global) -> float:
    """Lower bound without the likelihood."""
    mean, variance, _, gammas = posterior.posterior
    value = gaussian_tree.prior_bound(problem.tree, problem.sharing, gammas, problem.root, mean, variance)
    entropy = gaussian_tree.gaussian_entropy(posterior.log_determinants, mean.size)
    return value + gaussian_tree.gamma_bound(problem.prior, gammas) + entropy


class VariationalTree:
    """The state of q, and the iteration that improves it."""

    def __init__(self, problem: TreeProblem, engine: Engine) -> None:
        self.problem, self.rows = problem, RowPasses(problem, engine)
        shape = problem.Y.shape
        start = Local(np.zeros(shape), np.zeros(shape), np.zeros(shape[0]))
        self.local, _ = self.rows.tighten(start, _FIRST_STEPS)
        self.gammas = problem.prior
        self.posterior: TreePosterior | None = None
        self.bound = -np.inf

    def iterate(self, tol: float) -> float:
        """Update everything once; return the lower bound."""
        problem, tree, root = self.problem, self.problem.tree, self.problem.root
        quadratic = self.rows.quadratic(self.local)
        for _ in range(_SWEEPS):
            swept = _sweep(problem, quadratic, self.gammas)
            self.gammas = swept.posterior.gammas
        precision = gaussian_tree.node_precisions(problem.sharing, self.gammas, root, self.rows.n_weights)
        factor = TreeBlocks(tree.parent, tree.leaves, precision, quadratic.grams)
        mean = _solve_means(factor, tree, root, quadratic.linear)
        variance = self.rows.variances(swept.posterior.covariance)
        means = _Means(self.rows, tree, root, precision, factor)
        point = means.evaluate(mean, self.local._replace(variance=variance))
        for _ in range(_MAX_NEWTON):
            new, decrement = newton_step(
                means, point, means.expand(point), target=0.0, rounding=0.0, forcing=_FORCING
            )
            point = point if new is None else new
            if new is None or decrement <= tol * abs(point.objective):
                break
        self.local = point.local
        self.posterior = swept.posterior._replace(mean=point.x)
        deviation = _differences(tree, point.x, root.mean)
        likelihood = -point.objective + float(np.sum(precision * deviation**2)) / 2
        self.bound = likelihood + _prior_bound(problem, swept._replace(posterior=self.posterior))
        return self.bound

    def marginals(self) -> Marginals:
        """Covariances of single nodes under the joint Gaussian of all of them."""
        problem, tree = self.problem, self.problem.tree
        precision = gaussian_tree.node_precisions(
            problem.sharing, self.gammas, problem.root, self.rows.n_weights
        )
        grams = self.rows.quadratic(self.local).grams
        return TreeBlocks(tree.parent, tree.leaves, precision, grams).marginals()


def require_dense_memory(n_samples: int, n_classes: int, n_nodes: int, n_weights: int) -> None:
    """Raise a MemoryError if full covariances do not fit into memory."""
    require_memory(
        8 * (6 * n_samples * n_classes + (4 * n_classes + 3 * n_nodes) * n_weights**2),
        f"Variational inference for {n_classes} classes on {n_samples} rows with {n_weights} weights per class",
        "Use inference='map', or fewer features.",
    )


def fit_tree(
    problem: TreeProblem,
    engine: Engine,
    *,
    tol: float = 1e-5,
    max_iter: int = 200,
    progress: Progress | None = None,
) -> TreeFit:
    """Iterate until the relative change of the lower bound is at most `tol`."""
    n_samples, n_classes = problem.Y.shape
    require_dense_memory(n_samples, n_classes, problem.tree.n_nodes, problem.n_weights)
    monitor, done, tiny = Monitor(tol, max_iter, progress), False, TINY
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        state = VariationalTree(problem, engine)
        while not done:
            before = state.bound
            gain = state.iterate(tol) - before
            change = gain / max(abs(state.bound), tiny)
            per_row = gain / n_samples if np.isfinite(before) else None
            done = monitor.record(state.bound, gain=per_row, converged=change <= tol)
        marginals = state.marginals()
    assert state.posterior is not None
    bounds = monitor.trace["objective"]
    return TreeFit(state.posterior, marginals, bounds, monitor.trace, change, monitor.converged)
