"""Most probable weights for given precisions: Newton's method or the dual, chosen before the fit.

Newton's method stores several dense matrices of features by classes and of rows by classes. The dual stores the
multipliers of the pairs of rows and classes, and makes weights block by block of classes. It is used for independent
classes with sparse rows if Newton's method would store more than `MOST_NUMBERS` numbers or does not fit into memory,
if the classes are in shards, and for weights that are stored as sparse differences.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core import chunks as memory
from arbora.core.chunks import require_memory
from arbora.core.engine import Engine
from arbora.infer.tree.blocks import Marginals
from arbora.infer.tree.dual import DualPosterior, DualSolution, SparseTree, TreeDual, dual_memory, suits_dual
from arbora.infer.tree.gaussian import Sharing, Tree, squared_deviations
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
from arbora.infer.tree.problem import MapProblem

MOST_NUMBERS = (
    1 << 29
)  # that Newton's method may store for sparse independent classes; beyond, the dual is used
_INNER_STEPS = 100
_SWEEPS_ALONE = 0.03  # change of the precisions above which the weights of sweeps suffice
_MOST_SWEPT = 10  # rounds with such weights
_FIRST_GAP = 0.1  # of the dual while the precisions still change; they hardly depend on it
_SINGLE = 1e-4  # smallest tolerance that single precision reaches for a duality gap


class MapPosterior(NamedTuple):
    """Weights of all nodes with their variances, dense or sparse.

    `marginals` are the marginal covariances of the nodes if features are few; otherwise they hold only the variances
    of each weight given all others.
    """

    mean: NDArray[Any] | None  # (n_nodes, n_weights), bias last; None if `sparse` has the weights
    marginals: Marginals | None
    sparse: SparseTree | None = None


class Round(NamedTuple):
    """Objective, expected squared deviations from the parents (n_nodes, 1 or n_weights), steps, and convergence."""

    objective: float
    deviation: NDArray[np.float64]
    n_steps: int
    converged: bool


class MapSolver(Protocol):
    """Solver of the weights for a series of precisions, each from the solution before."""

    def tolerance(self, change: float, tol: float) -> float:
        """Tolerance for a change of the precisions; never tighter than the last round needs."""

    def solve(self, given: MapProblem, tol: float) -> Round:
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
    (`infer.tree.start`), which go on from round to round; Newton's method begins at the last of them.

    Parameters
    ----------
    problem : MapProblem
    tree, sharing
        See `infer.tree.gaussian`.
    engine : Engine
    single : bool
        Whether to begin in single precision.
    retry : bool
        Whether to go on in double precision if rounding stops single precision.
    """

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
        self.start: NDArray[Any] | None = None
        self.sweeps: TreeSweeps | None = None
        self.n_swept = 0
        self.given = problem

    def tolerance(self, change: float, tol: float) -> float:
        """Tolerance for a change of the precisions; infinite while sweeps suffice."""
        if not self.sparse:
            return 0.01 * max(min(change, 1.0), tol)
        in_sweeps = self.start is None or self.sweeps is not None
        if in_sweeps and self.n_swept < _MOST_SWEPT and change > max(_SWEEPS_ALONE, tol):
            return np.inf
        return max(min(change, 0.01), tol)

    def solve(self, given: MapProblem, tol: float) -> Round:
        """Find the weights."""
        if self.single and self.retry and not suits_single(given):
            self.single = False
        if self.sparse and (self.start is None or self.sweeps is not None):
            self._sweep(given, last=np.isfinite(tol))
        found = self._solve(given, tol)
        if self.single and self.retry and not found.converged:  # stopped by rounding
            self.single = False
            found = self._solve(given, tol)
        self.given, mean = given, found.weights
        self.variance = laplace_diagonal(given, mean, engine=self.engine)
        deviation = squared_deviations(self.tree, self.sharing, mean, self.variance)
        return Round(found.objective, deviation, len(found.trace), found.converged)

    def _sweep(self, given: MapProblem, last: bool) -> None:
        """Start from sweeps with the given precisions; free them if they are the last."""
        if self.sweeps is None:
            self.sweeps = TreeSweeps(given, self.engine)
        else:
            self.sweeps.couple(given.precision)
        self.sweeps.run()
        self.start, self.n_swept = self.sweeps.weights(), self.n_swept + 1
        if last:
            self.sweeps = None

    def _solve(self, given: MapProblem, tol: float) -> MapSolution:
        dtype = np.float32 if self.single else np.float64
        found = solve_map(
            given,
            self.start,
            tol=tol,
            max_iter=_INNER_STEPS,
            engine=self.engine,
            dtype=dtype,
            by_objective=self.sparse,
        )
        self.start = found.weights
        return found

    def posterior(self) -> MapPosterior:
        """Return the posterior of the last weights."""
        assert self.start is not None
        marginals = laplace_marginals(self.given, self.start, engine=self.engine)
        return MapPosterior(self.start, marginals or Marginals(self.variance))

    def close(self) -> None:
        """Free nothing."""


class DualSolver:
    """Coordinate descent in the dual, to a relative gap.

    Parameters
    ----------
    problem : MapProblem
    engine : Engine
    dtype : dtype
        Working precision.
    prune_below : float or None
        Limit of the differences that are stored; None for a dense matrix of all weights.
    """

    def __init__(self, problem: MapProblem, engine: Engine, dtype: Any, prune_below: float | None) -> None:
        self.dual, self.prune_below = TreeDual(problem, engine, dtype), prune_below
        self.of_solution = DualPosterior(self.dual)
        self.found: DualSolution | None = None

    def tolerance(self, change: float, tol: float) -> float:
        """Tolerance for a change of the precisions; never tighter than the last round needs."""
        return max(min(change, _FIRST_GAP), tol)

    def solve(self, given: MapProblem, tol: float) -> Round:
        """Find the weights."""
        start = None if self.found is None else self.found.multipliers
        self.found = None  # its multipliers are replaced block by block
        self.found = self.dual.solve(given.precision, start, tol=tol)
        squares, variances = self.of_solution.moments(self.found)
        parent = np.asarray(given.parent)
        deviation = np.where(parent >= 0, squares + variances + variances[parent], 0.0)
        return Round(self.found.objective, deviation[:, None], len(self.found.trace), self.found.converged)

    def posterior(self) -> MapPosterior:
        """Return the posterior of the last weights."""
        assert self.found is not None
        if self.prune_below is not None:
            return MapPosterior(None, None, self.of_solution.sparse(self.found, self.prune_below))
        mean = self.dual.weights(self.found)
        return MapPosterior(mean, Marginals(self.of_solution.variances(self.found)))

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

    Nothing is refused later: double precision is a way out of single precision only if it fits.

    Parameters
    ----------
    problem : MapProblem
        With the first precisions.
    tree, sharing
        See `infer.tree.gaussian`.
    engine : Engine
    tol : float
        Of the precisions.
    prune_below : float, optional
        Store the weights as sparse differences above this value.
    """
    dtype = np.float32 if tol >= _SINGLE else np.float64
    if prune_below is not None or not engine.shares_memory:
        return _dual(problem, engine, dtype, prune_below)
    single = tol >= _SINGLE and suits_single(problem)
    in_dual = suits_dual(problem)
    if in_dual and count_numbers(problem, problem.n_weights) > MOST_NUMBERS:
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
