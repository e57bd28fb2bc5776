"""Multinomial logistic regression by Newton's method, steps found by conjugate gradients.

The problem is that of `multinomial`. A step solves Hessian E = -gradient to a residual that is a share of the
gradient, preconditioned with the diagonal of the Hessian, and is halved until the objective has fallen enough. Dense
features are turned first so that they are uncorrelated, where they are few: the penalty does not mind, and the
diagonal then says most of what there is to say.

It is what `auto` uses for dense rows and for a free bias, and where coordinate ascent in the dual slows down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from arbora.core.checkpoint import Piece
from arbora.core.monitor import Monitor
from arbora.infer.softmax.problem import (
    Matrix,
    Objective,
    Point,
    SoftmaxProblem,
    SoftmaxSolution,
    gradient_scale,
    record_gradient,
    solution_of,
)

_MOST_PRODUCTS = 100  # conjugate gradient steps of a Newton step
_FORCING = 0.25  # residual of a Newton step over its gradient
_BELOW_TOL = 0.5  # ... but no smaller than what this share of the tolerance asks for
_ARMIJO = 1e-4
_MOST_HALVINGS = 30
_ROUNDING = 50.0  # error of an objective, in units of the working precision
_MOST_TURNED = 1000  # features that are turned
_PATIENCE = 5  # steps without a smaller gradient or objective, after which rounding is all that is left


def _turn(problem: SoftmaxProblem) -> Matrix | None:
    """Find how to turn dense features so that they are uncorrelated; a free bias stays what it is."""
    X = problem.X
    if sp.issparse(X) or X.shape[1] > _MOST_TURNED:
        return None
    n = X.shape[1] - problem.free_bias
    turn = np.eye(X.shape[1], dtype=X.dtype)
    turn[:n, :n] = np.linalg.eigh((X[:, :n].T * problem.cost.astype(X.dtype)) @ X[:, :n])[1]
    return turn


def _direction(objective: Objective, point: Point, gradient: Matrix, enough: float) -> Matrix:
    """Solve for the Newton step by conjugate gradients, to a residual of norm `enough`."""
    diagonal = objective.diagonal(point)
    step, residual = np.zeros_like(gradient), -gradient
    along, previous = np.zeros_like(gradient), np.inf
    for _ in range(_MOST_PRODUCTS):
        if np.linalg.norm(residual) <= enough:
            break
        scaled = residual / diagonal
        now = float(np.vdot(residual, scaled))
        along *= now / previous
        along += scaled
        curved = objective.curve(point, along)
        length = now / float(np.vdot(along, curved))
        step += length * along
        residual -= length * curved
        previous = now
    return step


def _rounding(point: Point) -> float:
    """Error of the objective at a point."""
    return _ROUNDING * float(np.finfo(point.Z.dtype).eps) * point.objective


def _advance(objective: Objective, point: Point, gradient: Matrix, enough: float) -> Point | None:
    """Take a Newton step, halved until the objective has fallen enough; None where it cannot fall any more."""
    norm = float(np.linalg.norm(gradient))
    step = _direction(objective, point, gradient, max(_FORCING * norm, _BELOW_TOL * enough))
    slope, length = float(np.vdot(step, gradient)), 1.0
    for _ in range(_MOST_HALVINGS):
        new = objective.evaluate(point.Z + gradient.dtype.type(length) * step)
        if new.objective <= point.objective + _rounding(point) + _ARMIJO * length * slope:
            return new
        length /= 2
    return None


def solve_newton(
    problem: SoftmaxProblem,
    monitor: Monitor,
    engine: Any = None,
    start: Matrix | None = None,
    kept: Piece | None = None,
) -> SoftmaxSolution:
    """Minimise by Newton's method.

    Parameters
    ----------
    problem : SoftmaxProblem
    monitor : Monitor
    engine : object with ``map(function, items)``, optional
    start : ndarray of shape (n_weights, n_parts), optional
        Where to begin, unless zero is better.
    kept : Piece, optional
        What the monitor gave back of a run that was interrupted: it goes on from there.

    Examples
    --------
    >>> import numpy as np
    >>> problem = SoftmaxProblem(np.array([[1.0], [-1.0]]), np.array([0, 1]), np.ones(2), 2)
    >>> solution = solve_newton(problem, Monitor(tol=1e-9, max_iter=100))
    >>> solution.Z.round(3), solution.converged
    (array([[ 0.521, -0.521]]), True)
    """
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        turn = _turn(problem) if kept is None else kept.arrays.get("turn")
        objective = Objective(problem if turn is None else problem._replace(X=problem.X @ turn), engine)
        scale = gradient_scale(objective)
        Z = np.zeros(problem.shape, problem.dtype) if start is None else start
        Z = _iterate(objective, monitor, Z if turn is None else turn.T @ Z, turn, kept, scale)
        return solution_of(monitor, Z if turn is None else turn @ Z)


def _iterate(
    objective: Objective,
    monitor: Monitor,
    Z: Matrix,
    turn: Matrix | None,
    kept: Piece | None,
    scale: float,
) -> Matrix:
    """Take Newton steps until the monitor is content, or nothing falls any more."""
    point, problem = objective.evaluate(Z if kept is None else kept.arrays["Z"]), objective.problem
    if point.objective > float(problem.cost.sum()) * np.log(problem.n_classes):
        point = objective.evaluate(np.zeros_like(Z))
    gradient = objective.gradient(point)
    smallest, n_idle = (np.inf, 0) if kept is None else (kept.meta["smallest"], kept.meta["n_idle"])
    done = kept is None and record_gradient(monitor, problem, point.objective, gradient, scale)
    while not done:
        here: dict[str, Matrix] = {"Z": point.Z} if turn is None else {"Z": point.Z, "turn": turn}
        monitor.keep("newton", here, smallest=smallest, n_idle=n_idle)
        target = monitor.tol * scale
        if not objective.problem.free_bias:  # the norm of a gradient at this gap
            target = np.sqrt(2 * monitor.tol * point.objective)
        new = _advance(objective, point, gradient, target)
        if new is None:
            break
        norm = monitor.trace.last["gradient_norm"]
        idle = norm >= smallest and new.objective >= point.objective - _rounding(point)
        smallest, n_idle = min(smallest, norm), n_idle + 1 if idle else 0
        if n_idle == _PATIENCE:
            break
        point, gradient = new, objective.gradient(new)
        done = record_gradient(monitor, problem, point.objective, gradient, scale)
    return point.Z
