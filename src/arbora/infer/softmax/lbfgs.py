"""Multinomial logistic regression by L-BFGS, the reference for the other solvers.

The implementation is that of scipy, in double precision, on the problem of `arbora.infer.softmax.problem`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from arbora.arrays import Matrix
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor
from arbora.infer.softmax.problem import (
    Objective,
    SoftmaxProblem,
    SoftmaxSolution,
    record_gradient,
    solution_of,
)

PAIRS = 10  # steps and gradients that the method stores
_MAX_SEARCHES = 50


def solve_lbfgs(problem: SoftmaxProblem, monitor: Monitor, engine: Engine | None = None) -> SoftmaxSolution:
    """Minimise by L-BFGS."""
    problem = problem._replace(X=problem.X.astype(np.float64), cost=problem.cost.astype(np.float64))
    objective, shape = Objective(problem, engine), problem.shape
    last: dict[str, Any] = {}

    def value_and_gradient(z: Matrix) -> tuple[float, Matrix]:
        point = objective.evaluate(z.reshape(shape))
        last["gradient"] = objective.gradient(point)
        return point.objective, last["gradient"].ravel()

    def note(intermediate_result: Any) -> None:  # the line search ends at the last point it evaluated
        if record_gradient(monitor, float(intermediate_result.fun), last["gradient"]):
            raise StopIteration

    with ThreadpoolController().limit(limits=1, user_api="blas"):
        options: Any = {"maxiter": monitor.max_iter, "maxcor": PAIRS, "maxls": _MAX_SEARCHES, "gtol": 0.0}
        options |= {"ftol": 0.0, "maxfun": 100 * monitor.max_iter}
        result = minimize(
            value_and_gradient,
            np.zeros(shape).ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=note,
            options=options,
        )
    if not monitor.n_iter:  # the start is the optimum
        value, gradient = value_and_gradient(result.x)
        record_gradient(monitor, value, gradient.reshape(shape))
    return solution_of(monitor, result.x.reshape(shape))
