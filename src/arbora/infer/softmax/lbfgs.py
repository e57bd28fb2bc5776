"""Multinomial logistic regression by L-BFGS: the reference that the other solvers are compared with.

The implementation is that of scipy, in double precision, on the problem of `multinomial`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from arbora.infer.softmax.problem import (
    Matrix,
    Monitor,
    Objective,
    SoftmaxProblem,
    Solution,
    certify,
    gradient_scale,
)

PAIRS = 10  # of steps and gradients that are remembered
_MOST_SEARCHES = 50


def solve_lbfgs(problem: SoftmaxProblem, monitor: Monitor, engine: Any = None) -> Solution:
    """Minimise by L-BFGS.

    Parameters
    ----------
    problem : SoftmaxProblem
    monitor : Monitor
    engine : object with ``map(function, items)``, optional

    Examples
    --------
    >>> import numpy as np
    >>> problem = SoftmaxProblem(np.array([[1.0], [-1.0]]), np.array([0, 1]), np.ones(2), 2)
    >>> solution = solve_lbfgs(problem, Monitor(tol=1e-9, max_iter=100))
    >>> solution.Z.round(3), solution.converged
    (array([[ 0.521, -0.521]]), True)
    """
    problem = problem._replace(X=problem.X.astype(np.float64), cost=problem.cost.astype(np.float64))
    objective, shape = Objective(problem, engine), problem.shape
    last: dict[str, Any] = {}

    def value_and_gradient(z: Matrix) -> tuple[float, Matrix]:
        point = objective.evaluate(z.reshape(shape))
        last["gradient"] = objective.gradient(point)
        return point.objective, last["gradient"].ravel()

    def note(intermediate_result: Any) -> None:  # the line search ended at the point it evaluated last
        if monitor.record(float(intermediate_result.fun), *certify(objective, last["gradient"])):
            raise StopIteration

    with ThreadpoolController().limit(limits=1, user_api="blas"):
        if problem.free_bias:
            monitor.scale = gradient_scale(objective)
        options: Any = {"maxiter": monitor.max_iter, "maxcor": PAIRS, "maxls": _MOST_SEARCHES, "gtol": 0.0}
        options |= {"ftol": 0.0, "maxfun": 100 * monitor.max_iter}
        found = minimize(
            value_and_gradient,
            np.zeros(shape).ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=note,
            options=options,
        )
    if not len(monitor.trace):  # there was nothing to improve
        value, gradient = value_and_gradient(found.x)
        monitor.record(value, *certify(objective, gradient.reshape(shape)))
    return monitor.solution(found.x.reshape(shape))
