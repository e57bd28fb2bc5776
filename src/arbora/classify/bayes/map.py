"""Partial maximum a posteriori inference: the mode of the weights, the distribution of the precisions.

Where a full covariance of the weights is too large, q(w_n) is a Gaussian around the maximum a posteriori weights of
all nodes given the expected precisions, with the diagonal of a Laplace approximation as covariance; q of the
precisions is updated as in variational inference. The two updates alternate, with warm starts of the weights, until
the precisions converge (S. Gopal et al. 2012, section 3.2).

A round is a fixed-point step, not an ascent: there is no bound to monitor. The criterion is the relative change of
the expected precisions, its root mean square. (Not the largest change: in M2 the precision of a weight that no child
needs grows without limit, and this changes nothing.) Plain rounds converge slowly. Anderson's method (1965) mixes the
last few of them, in the logarithms of the precisions, and restarts when a mixed step was no better than the one
before. A mixed step is an extrapolation, and under a vague prior the rounds are far from linear: it stays within
`_MAX_LOG_STEP` of the plain round, a factor of twenty in a precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.bayes.priors import MAX_PRECISION
from arbora.core import chunks as memory
from arbora.core.chunks import require_memory, split
from arbora.core.engine import Engine, missing
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.infer.tree.blocks import Marginals
from arbora.infer.tree.dual import (
    DualPosterior,
    DualSolution,
    SparseTree,
    TreeDual,
    dual_memory,
    paths_up,
    suits_dual,
)
from arbora.infer.tree.gaussian import (
    Gammas,
    Sharing,
    Tree,
    node_precisions,
    squared_deviations,
    update_gammas,
)
from arbora.infer.tree.map import (
    MapSolution,
    TreeSweeps,
    count_numbers,
    laplace_diagonal,
    laplace_marginals,
    newton_memory,
    solve_map,
    suits_single,
    suits_sweeps,
)
from arbora.infer.tree.problem import MapProblem, TreeProblem

# --- Most probable weights for given precisions: Newton's method or the dual, chosen before the fit ---------
#
# Newton's method stores several dense matrices of features by classes and of rows by classes. The dual stores the
# multipliers of the pairs of rows and classes, and makes weights block by block of classes. It is used for
# independent classes with sparse rows if Newton's method would store more than `MAX_NUMBERS` numbers or does not
# fit into memory, if the classes are in shards, and for weights that are stored as sparse differences.


# Numbers that Newton's method may store for sparse independent classes; beyond, the dual is used.
MAX_NUMBERS = 1 << 29
_INNER_STEPS = 100
_SWEEPS_ALONE = 0.03  # change of the precisions above which the weights of sweeps suffice
_MAX_SWEPT = 10  # rounds with such weights
_FIRST_GAP = 0.1  # of the dual while the precisions still change; they hardly depend on it
_SINGLE = 1e-4  # smallest tolerance that single precision reaches for a duality gap


class MapPosterior(NamedTuple):
    """Weights of all nodes with their variances, dense or sparse.

    `marginals` are the marginal covariances of the nodes if features are few; otherwise they hold only the variances
    of each weight given all others.
    """

    mean: Matrix | None  # (n_nodes, n_weights), bias last; None if `sparse` has the weights
    marginals: Marginals | None
    sparse: SparseTree | None = None


class Round(NamedTuple):
    """Objective, expected squared deviations from the parents (n_nodes, 1 or n_weights), steps, and convergence."""

    objective: float
    deviation: Array
    n_steps: int
    converged: bool


class MapSolver(Protocol):
    """Solver of the weights for a series of precisions, each from the solution before."""

    def tolerance(self, change: float, tol: float) -> float:
        """Tolerance for a change of the precisions; never tighter than the last round needs."""

    def solve(self, problem: MapProblem, tol: float) -> Round:
        """Find the weights."""

    def posterior(self) -> MapPosterior:
        """Return the posterior of the last weights."""

    def close(self) -> None:
        """Free remote shards."""


class NewtonSolver:
    """Newton's method, which stops by the gradient, relative to that at zero weights.

    On sparse rows with vague priors all gradients near the optimum are tiny beside that one, and it stops by the
    objective. The precisions hardly depend on the weights there: the variances of the weights are large beside their
    squares. While the precisions change by more than `_SWEEPS_ALONE`, the weights are those of sweeps in the dual
    (`TreeSweeps`), which go on from round to round; Newton's method begins at the last of them.

    `single` begins in single precision; with `retry`, the fit goes on in double precision if rounding stops it.
    """

    needs = ("shares_memory",)  # of the engine

    def __init__(
        self,
        problem: MapProblem,
        tree: Tree,
        sharing: Sharing,
        engine: Engine,
        single: bool,
        retry: bool = True,
    ) -> None:
        self.tree, self.sharing, self.engine = tree, sharing, engine
        self.single, self.retry, self.sparse = single, retry, suits_sweeps(problem)
        self.start: Matrix | None = None
        self.sweeps: TreeSweeps | None = None
        self.n_swept = 0
        self.problem = problem

    def tolerance(self, change: float, tol: float) -> float:
        """Tolerance for a change of the precisions; infinite while sweeps suffice."""
        if not self.sparse:
            return 0.01 * max(min(change, 1.0), tol)
        in_sweeps = self.start is None or self.sweeps is not None
        if in_sweeps and self.n_swept < _MAX_SWEPT and change > max(_SWEEPS_ALONE, tol):
            return np.inf
        return max(min(change, 0.01), tol)

    def solve(self, problem: MapProblem, tol: float) -> Round:
        """Find the weights."""
        if self.single and self.retry and not suits_single(problem):
            self.single = False
        if self.sparse and (self.start is None or self.sweeps is not None):
            self._sweep(problem, last=np.isfinite(tol))
        fit = self._solve(problem, tol)
        if self.single and self.retry and not fit.converged:  # stopped by rounding
            self.single = False
            fit = self._solve(problem, tol)
        self.problem, mean = problem, fit.weights
        self.variance = laplace_diagonal(problem, mean, engine=self.engine)
        deviation = squared_deviations(self.tree, self.sharing, mean, self.variance)
        return Round(fit.objective, deviation, len(fit.trace), fit.converged)

    def _sweep(self, problem: MapProblem, last: bool) -> None:
        """Start from sweeps with the given precisions; free them if they are the last."""
        if self.sweeps is None:
            self.sweeps = TreeSweeps(problem, self.engine)
        else:
            self.sweeps.couple(problem.precision)
        self.sweeps.run()
        self.start, self.n_swept = self.sweeps.weights(), self.n_swept + 1
        if last:
            self.sweeps = None

    def _solve(self, problem: MapProblem, tol: float) -> MapSolution:
        dtype = np.float32 if self.single else np.float64
        fit = solve_map(
            problem,
            self.start,
            tol=tol,
            max_iter=_INNER_STEPS,
            engine=self.engine,
            dtype=dtype,
            by_objective=self.sparse,
        )
        self.start = fit.weights
        return fit

    def posterior(self) -> MapPosterior:
        """Return the posterior of the last weights."""
        assert self.start is not None
        marginals = laplace_marginals(self.problem, self.start, engine=self.engine)
        return MapPosterior(self.start, marginals or Marginals(self.variance))

    def close(self) -> None:
        """Free nothing."""


class DualSolver:
    """Coordinate descent in the dual, to a relative gap.

    `prune_below` is the limit of the differences that are stored; None for a dense matrix of all weights.
    """

    def __init__(self, problem: MapProblem, engine: Engine, dtype: Any, prune_below: float | None) -> None:
        self.dual, self.prune_below = TreeDual(problem, engine, dtype), prune_below
        self.of_solution = DualPosterior(self.dual)
        self.solution: DualSolution | None = None

    def tolerance(self, change: float, tol: float) -> float:
        """Tolerance for a change of the precisions; never tighter than the last round needs."""
        return max(min(change, _FIRST_GAP), tol)

    def solve(self, problem: MapProblem, tol: float) -> Round:
        """Find the weights."""
        start = None if self.solution is None else self.solution.multipliers
        self.solution = None  # its multipliers are replaced block by block
        self.solution = self.dual.solve(problem.precision, start, tol=tol)
        squares, variances = self.of_solution.moments(self.solution)
        parent = np.asarray(problem.parent)
        deviation = np.where(parent >= 0, squares + variances + variances[parent], 0.0)
        return Round(
            self.solution.objective, deviation[:, None], len(self.solution.trace), self.solution.converged
        )

    def posterior(self) -> MapPosterior:
        """Return the posterior of the last weights."""
        assert self.solution is not None
        if self.prune_below is not None:
            return MapPosterior(None, None, self.of_solution.sparse(self.solution, self.prune_below))
        mean = self.dual.weights(self.solution)
        return MapPosterior(mean, Marginals(self.of_solution.variances(self.solution)))

    def close(self) -> None:
        """Free remote shards."""
        self.dual.close()


def _fits(n_bytes: int) -> bool:
    free = memory.available_memory()
    return free is None or n_bytes <= free


def make_solver(
    problem: MapProblem,
    tree: Tree,
    sharing: Sharing,
    engine: Engine,
    tol: float,
    prune_below: float | None = None,
) -> MapSolver:
    """Choose method and precision by the size of the problem; refuse what does not fit into memory.

    Nothing is refused later: double precision is a way out of single precision only if it fits. The problem has the
    first precisions; `tol` is that of the precisions. With `prune_below` the weights are stored as sparse differences
    above this value.
    """
    dtype = np.float32 if tol >= _SINGLE else np.float64
    if prune_below is not None or missing(engine, NewtonSolver.needs):
        return _dual(problem, engine, dtype, prune_below)
    single = tol >= _SINGLE and suits_single(problem)
    in_dual = suits_dual(problem)
    if in_dual and count_numbers(problem, problem.n_weights) > MAX_NUMBERS:
        return _dual(problem, engine, dtype, None)
    double = newton_memory(problem, 8)
    if _fits(double):
        return NewtonSolver(problem, tree, sharing, engine, single)
    if single and _fits(newton_memory(problem, 4)):
        return NewtonSolver(problem, tree, sharing, engine, single, retry=False)
    if in_dual:
        return _dual(problem, engine, dtype, None)
    advice = "Use fewer rows, or fewer features (for text: a larger min_df)"
    if problem.likelihood == "softmax":
        advice += ", or likelihood='logistic', which also takes prune_below"
    require_memory(newton_memory(problem, 4 if single else 8), _what(problem), f"{advice}.")
    return NewtonSolver(problem, tree, sharing, engine, single, retry=False)


def _what(problem: MapProblem) -> str:
    return (
        f"Training {len(problem.class_node)} classes in a tree of {len(problem.parent)} nodes on "
        f"{problem.X.shape[0]} rows with {problem.X.shape[1]} features"
    )


def _dual(problem: MapProblem, engine: Engine, dtype: Any, prune_below: float | None) -> DualSolver:
    """Make the solver in the dual after a check of all of its memory."""
    X = sp.csr_array(problem.X)
    n_seen = int(np.count_nonzero(np.bincount(X.indices, minlength=X.shape[1])))
    # Prepared, by columns, transposed squares, and a copy.
    rows = 4 * X.nnz * (np.dtype(dtype).itemsize + X.indices.itemsize)
    n_bytes = rows + dual_memory(problem, n_seen, np.dtype(dtype).itemsize, engine)
    advice = "Use fewer rows, or fewer features (for text: a larger min_df)"
    if prune_below is None:
        # Weights of the classes and of all nodes, a copy, and variances.
        n_bytes += 8 * problem.n_weights * (2 * len(problem.class_node) + 3 * len(problem.parent))
        advice += ", or prune_below=0.01, which stores the weights as sparse differences"
    require_memory(n_bytes, _what(problem), f"{advice}.")
    return DualSolver(problem, engine, dtype, prune_below)


# --- A fitted tree whose weights are stored as sparse differences of the nodes from their parents -----------


_NODES_PER_CHUNK = 64


def ancestors(parent: Ints, nodes: Ints) -> sp.csr_array:
    """Mark, for each of the nodes, itself and the nodes above it: (len(nodes), n_nodes).

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


def weights_of_nodes(differences: Any, parent: Ints, nodes: Ints) -> sp.csr_array:
    """Weights of some nodes: the sums of the differences at and above them."""
    return sp.csr_array(ancestors(parent, nodes).astype(differences.dtype) @ sp.csr_array(differences))


def squared_norms(differences: Any, parent: Ints) -> tuple[Array, Array]:
    """Squared norms of the differences, and of the weights, of all nodes."""
    rows = sp.csr_array(differences)
    squares = np.asarray(rows.multiply(rows).sum(axis=1), np.float64).ravel()
    of_weights = np.empty(len(parent))
    for chunk in split(len(parent), size=_NODES_PER_CHUNK):
        some = weights_of_nodes(rows, parent, np.arange(chunk.start, chunk.stop))
        of_weights[chunk] = np.asarray(some.multiply(some).sum(axis=1)).ravel()
    return squares, of_weights


# --- Partial maximum a posteriori inference: the mode of the weights, the distribution of the precisions ----


_MEMORY = 5  # number of rounds that are mixed
_RCOND = 1e-8
_MAX_LOG_STEP = 3.0  # largest distance of a mixed step from the plain round: the logarithm of a factor
_LOG_PRECISION = float(np.log(MAX_PRECISION))  # precisions stay between this and its inverse


class MapFit(NamedTuple):
    """Most probable weights with their variances, distributions of the precisions, and history."""

    posterior: MapPosterior
    gammas: Gammas
    trace: Trace
    change: float  # relative change of the precisions in the last round
    converged: bool


def node_scalars(problem: TreeProblem, gammas: Gammas) -> Array:
    """Compute the expected precision of each node: one number, or with M2 one for each weight."""
    if problem.sharing.by_weight:
        return node_precisions(problem.sharing, gammas, problem.root, problem.n_weights)
    return node_precisions(problem.sharing, gammas, problem.root, 1)[:, 0]


class AndersonMixing:
    """Anderson acceleration of a fixed-point iteration x <- g(x), with a memory of some rounds.

    >>> mixing, x = AndersonMixing(3), np.array([1.0, 1.0])
    >>> for _ in range(4):
    ...     x = mixing.next(x, np.array([0.9, -0.5]) * x)  # a linear map with two rates: two rounds suffice
    >>> bool(np.abs(x).max() < 1e-12)
    True
    """

    def __init__(self, memory: int = _MEMORY) -> None:
        self.memory = memory
        self.rounds: list[tuple[Matrix, Matrix]] = []

    def next(self, x: Matrix, image: Matrix) -> Matrix:
        """Next iterate after x, given the image g(x)."""
        step = image - x
        if self.rounds and np.linalg.norm(step) > np.linalg.norm(self.rounds[-1][1]):
            self.rounds.clear()
        self.rounds = [*self.rounds, (image, step)][-self.memory - 1 :]
        images, steps = (np.diff(np.array(values), axis=0) for values in zip(*self.rounds, strict=True))
        if not len(steps):
            return image
        share = np.linalg.lstsq(steps.T, step, rcond=_RCOND)[0]
        extrapolation = share @ images
        if not np.isfinite(extrapolation).all():
            return image
        return np.asarray(image - np.clip(extrapolation, -_MAX_LOG_STEP, _MAX_LOG_STEP))


def fit_partial_map(
    problem: TreeProblem,
    engine: Engine,
    *,
    tol: float,
    max_iter: int,
    prune_below: float | None = None,
    progress: Progress | None = None,
) -> MapFit:
    """Alternate between weights and precisions until the relative change of the expected precisions is at most `tol`.

    The change is its root mean square; the precision of the roots is a single number. With `prune_below`, only
    differences from the parents above this value are stored, as a sparse matrix, and no dense matrix of all weights
    is made. This, and remote shards, need a problem that suits the dual: logistic, with one precision per node.
    """
    tree, sharing, prior, n_weights = problem.tree, problem.sharing, problem.prior, problem.n_weights
    nothing = np.zeros((tree.n_nodes, n_weights if sharing.by_weight else 1))
    shape = update_gammas(sharing, prior, nothing, n_weights).shape
    low, high = np.log(shape) - _LOG_PRECISION, np.log(shape) + _LOG_PRECISION
    rate = np.log(shape) + np.log(prior.rate) - np.log(prior.shape)  # the precisions that the prior expects
    monitor, mixing, change, done = Monitor(tol, max_iter, progress), AndersonMixing(), np.inf, False
    first = problem.given(node_scalars(problem, Gammas(shape, np.exp(rate))))
    inner = make_solver(first, tree, sharing, engine, tol, prune_below)
    try:
        while not done:
            weights_problem = problem.given(node_scalars(problem, Gammas(shape, np.exp(rate))))
            reached = inner.tolerance(change, tol)
            objective, deviation, n_steps, settled = inner.solve(weights_problem, reached)
            gammas = update_gammas(sharing, prior, deviation, n_weights)
            image = np.clip(np.log(gammas.rate), low, high)
            change = float(np.sqrt(np.mean((image - rate) ** 2))) if rate.size else 0.0
            rate = np.clip(mixing.next(rate.ravel(), image.ravel()).reshape(rate.shape), low, high)
            tight = reached <= inner.tolerance(0.0, tol)
            done = monitor.record(objective, change=change, certified=tight, steps=n_steps)
        posterior = inner.posterior()
    finally:
        inner.close()
    return MapFit(posterior, gammas, monitor.trace, change, settled and monitor.converged)
