"""Multinomial logistic regression by the alternating direction method of multipliers (ADMM).

The scores z_ik = w_k.x_i of the problem of `arbora.infer.softmax.problem` become unknowns with a constraint that ties
them to the weights (S. Gopal 2014, thesis, chapter 4). With scaled multipliers u_i of the rows, an iteration solves

    z_i  minimises  c_i loss(z_i) + rho/2 ||z_i - s_i - u_i||^2,        u_i += s_i - z_i,
    Z    minimises  1/2 ||Z||^2 + rho/2 ||X Z F - z + u||^2.

At the first minimum rho u_i = c_i (p_i - e_y) with p_i = softmax(z_i). Multipliers are stored as log-distributions,
which need no correction when rho changes. The first step handles one row at a time (`kernels.linear.softmax`). The
second is a least-squares problem, the same for all classes, solved by conjugate gradients from the previous weights.

rho is doubled or halved while the primal residual ||s - z|| and the dual residual rho ||F X'(z - z_before)|| are far
apart, during the first `_MAX_CHANGES` iterations. The method stores numbers for all pairs of rows and classes, so it
does not suit problems with many classes.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import ThreadpoolController

from arbora.arrays import Matrix
from arbora.core.chunks import split
from arbora.core.engine import Engine, SerialEngine
from arbora.core.monitor import Monitor
from arbora.infer.newton_cg import conjugate_gradients
from arbora.infer.softmax.problem import (
    Objective,
    SoftmaxProblem,
    SoftmaxSolution,
    record_gradient,
    scores,
    solution_of,
    squares,
)
from arbora.kernels.linear.softmax import prox_softmax

_MAX_CHANGES = 100  # iterations in which rho may change
_MAX_RATIO = 5.0  # of the residuals, beyond which it changes
_MAX_PRODUCTS = 50  # conjugate gradient steps for the weights
_FORCING = 0.03  # final residual of these over the first one
_ROWS_PER_TASK = 512
_MAX_STEPS = 60  # of Newton's method for a row


class _Weights:
    """The least-squares problem of the parts."""

    def __init__(self, objective: Objective, engine: Engine) -> None:
        self.objective, self.engine = objective, engine
        problem = objective.problem
        X = problem.X
        self.sizes = np.asarray((X**2).sum(axis=0)).ravel()[:, None].astype(problem.dtype)

    def scores(self, Z: Matrix) -> Matrix:
        """Scores of all rows."""
        return scores(self.objective.problem.X, self.objective.weights(Z), self.engine)

    def solve(self, Z: Matrix, target: Matrix, S: Matrix, rho: float) -> tuple[Matrix, Matrix]:
        """Improve Z, whose scores are S, towards the scores `target`; return new parts and their scores."""
        residual = self.objective.gather(rho * (target - S))
        residual -= Z
        diagonal = rho * self.sizes + 1
        enough = _FORCING * float(np.linalg.norm(residual))

        def product(E: Matrix) -> Matrix:
            curved = self.objective.gather(rho * self.scores(E))
            curved += E
            return curved

        Z = Z + conjugate_gradients(product, residual, lambda R: R / diagonal, enough, _MAX_PRODUCTS)
        return Z, self.scores(Z)


def _multipliers(problem: SoftmaxProblem, L: Matrix) -> Matrix:
    """Multipliers u times rho: c_i (p_i - e_y)."""
    M = np.exp(L)
    M[np.arange(len(M)), problem.labels] -= 1
    M *= problem.cost[:, None]
    return M


def solve_admm(problem: SoftmaxProblem, monitor: Monitor, engine: Engine | None = None) -> SoftmaxSolution:
    """Minimise by ADMM; the trace gets the columns "primal", "dual" (norms of the residuals) and "rho"."""
    problem = problem._replace(cost=problem.cost.astype(problem.dtype))
    engine = engine if engine is not None else SerialEngine()
    objective = Objective(problem, engine)
    weights = _Weights(objective, engine)
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        return solution_of(monitor, _iterate(problem, monitor, objective, weights, engine))


def _iterate(
    problem: SoftmaxProblem, monitor: Monitor, objective: Objective, weights: _Weights, engine: Engine
) -> Matrix:
    dtype, n_classes = problem.dtype, problem.n_classes
    enough = dtype.type(4 * np.finfo(dtype).eps)
    Z = np.zeros(problem.shape, dtype)
    S = np.zeros((len(problem.labels), n_classes), dtype)
    L = np.full_like(S, -np.log(n_classes))
    # A Python float: a NumPy scalar would promote single precision arrays to double.
    rho, z, done = float(problem.cost.mean() / np.sqrt(n_classes)), S, False
    while not done:
        before, z = z, S.copy()
        step = (problem.cost / rho).astype(dtype)

        def prox(rows: slice, z: Matrix = z, step: Matrix = step) -> float:
            return float(prox_softmax(z, step, L, rows.start, rows.stop, _MAX_STEPS, enough))

        primal = np.sqrt(sum(engine.map(prox, split(len(S), size=_ROWS_PER_TASK))))
        dual = rho * np.sqrt(squares(objective.gather(z - before)))
        Z, S = weights.solve(Z, z - _multipliers(problem, L) / dtype.type(rho), S, rho)
        point = objective.evaluate(Z)
        gradient = objective.gradient(point)
        done = record_gradient(monitor, point.objective, gradient, primal=primal, dual=dual, rho=rho)
        if monitor.n_iter <= _MAX_CHANGES:
            rho *= 2.0 if primal > _MAX_RATIO * dual else 0.5 if dual > _MAX_RATIO * primal else 1.0
    return Z
