"""Multinomial logistic regression by the truncated Newton method.

The problem is that of `arbora.infer.softmax.problem`, the method that of `arbora.infer.newton_cg`, preconditioned
with the diagonal of the Hessian. Dense features are first rotated to be uncorrelated, if they are few: the penalty
does not change, and the Hessian is then close to its diagonal.

`solver="auto"` uses this method for dense rows, and where coordinate ascent in the dual is slow.

Over a tree the objective is that of `arbora.infer.tree.map` with the softmax likelihood and one precision per node.
Both share `newton_cg` and `Likelihood`, but not the unknowns; the docstring of that module has the measurements.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from arbora.arrays import Matrix
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor
from arbora.core.trace import Trace
from arbora.infer.newton_cg import ROUNDING, newton_cg
from arbora.infer.softmax.problem import (
    Objective,
    Point,
    SoftmaxProblem,
    SoftmaxSolution,
    record_gradient,
    solution_of,
)

_MAX_ROTATED = 1000  # features that are rotated
_PATIENCE = 5  # steps without a smaller gradient or objective, after which only rounding is left


def _rotation(problem: SoftmaxProblem) -> Matrix | None:
    """Eigenvectors of X'X, weighted by the costs, for few dense features. None for no rotation."""
    X = problem.X
    if sp.issparse(X) or X.shape[1] > _MAX_ROTATED:
        return None
    return np.ascontiguousarray(np.linalg.eigh((X.T * problem.cost.astype(X.dtype)) @ X)[1])


def _is_stuck(trace: Trace, rounding: float) -> bool:
    """Whether the last steps lowered neither the norm of the gradient nor the objective."""
    values, norms = trace["objective"], trace["gradient_norm"]
    if len(values) <= _PATIENCE + 1:
        return False
    fell = values[1:] < values[:-1] * (1 - rounding)
    smaller = norms[1:-1] < np.fmin.accumulate(norms)[:-2]
    return not (fell[-_PATIENCE:] | smaller[-_PATIENCE:]).any()


def solve_newton(
    problem: SoftmaxProblem,
    monitor: Monitor,
    engine: Engine | None = None,
    start: Matrix | None = None,
) -> SoftmaxSolution:
    """Minimise by Newton's method from `start` (n_weights, n_parts), or from zero if that is better."""
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        rotation = _rotation(problem)
        Z = np.zeros(problem.shape, problem.dtype) if start is None else start
        if rotation is None:
            return solution_of(monitor, _minimise(Objective(problem, engine), monitor, Z))
        rotated = problem._replace(X=problem.X @ rotation)
        Z = _minimise(Objective(rotated, engine), monitor, rotation.T @ Z)
        return solution_of(monitor, rotation @ Z)


def _minimise(objective: Objective, monitor: Monitor, Z: Matrix) -> Matrix:
    problem = objective.problem
    rounding = ROUNDING * float(np.finfo(problem.dtype).eps)
    point = objective.evaluate(Z)
    if point.objective > float(problem.cost.sum()) * np.log(problem.n_classes):
        point = objective.evaluate(np.zeros_like(Z))

    def done(point: Point, gradient: Matrix, decrement: float) -> bool:
        return record_gradient(monitor, point.objective, gradient) or _is_stuck(monitor.trace, rounding)

    def target(point: Point) -> float:
        return float(np.sqrt(2 * monitor.tol * point.objective))  # the norm of a gradient at this gap

    return newton_cg(objective, point, done, target=target)[0].x
