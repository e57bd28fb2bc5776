"""Accelerated proximal gradient for composite problems: a smooth convex part plus one with a cheap prox.

Minimises F(A) = f(A) + h(A), where f has a gradient and h a proximal map

    prox(B, step) = argmin_A  h(A) + ||A - B||^2 / (2 step).

The method is FISTA (Beck and Teboulle 2009) with backtracking, steps that grow again by `_GROWTH` after each success,
and adaptive restart of the momentum (O'Donoghue and Candes 2015). The momentum is (b_t - 1) / b_{t+1}. Where the
caller supplies a dual bound, the fit stops on a certified duality gap; otherwise it stops when the proximal step is
short relative to the iterate.

References
----------
A. Beck and M. Teboulle (2009). A fast iterative shrinkage-thresholding algorithm for linear inverse problems.
SIAM Journal on Imaging Sciences 2(1).
B. O'Donoghue and E. Candes (2015). Adaptive restart for accelerated gradient schemes. Foundations of Computational
Mathematics 15(3).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from arbora.arrays import TINY, Matrix
from arbora.core.monitor import Monitor

_GROWTH = 1.3  # of the step after a success
_STRIDE = 8.0  # of the search for the first step
_LONGEST = 1e6  # first step at which that search ends
_CLEAR = 100.0  # times the rounding error: what the test of a step must exceed for the step to grow
_SHORTEST = 1e-30  # step at which backtracking gives up
_EVERY = 5  # iterations between two certificates


class CompositeProblem(Protocol):
    """A smooth convex function plus one with a proximal map."""

    def value(self, A: Matrix) -> float:
        """Smooth part f(A)."""

    def value_and_gradient(self, A: Matrix) -> tuple[float, Matrix]:
        """Smooth part with its gradient."""

    def penalty(self, A: Matrix) -> float:
        """Other part h(A), at points that `prox` returns."""

    def prox(self, B: Matrix, step: float) -> Matrix:
        """Proximal map of ``step * h``."""

    def gap(self, A: Matrix) -> float:
        """Bound on F(A) - min F; NaN where there is none."""


class CompositeSolution(NamedTuple):
    """Minimiser, objective, absolute duality gap (NaN where there is none) and whether the tolerance was met."""

    A: Matrix
    objective: float
    gap: float
    converged: bool


def minimize_composite(
    problem: CompositeProblem, start: Matrix, monitor: Monitor, *, step: float = 1.0
) -> CompositeSolution:
    """Minimise a composite function from a point where the penalty is finite.

    `monitor` says when to stop: at a relative duality gap of `monitor.tol`, or, where the problem has no dual bound,
    at a relative proximal step of that size. `step` is the first step length; it adapts.
    """
    A = H = start
    momentum, last = 1.0, False
    objective = gap = np.nan
    while not last:
        value, gradient = problem.value_and_gradient(H)
        if monitor.n_iter == 0:
            step = _first_step(problem, H, value, gradient, step)
        previous = H
        new, new_value, step = _proximal_step(problem, H, value, gradient, step)
        change = float(np.linalg.norm(new - H)) / max(float(np.linalg.norm(new)), TINY)
        if float(np.vdot(H - new, new - A)) > 0:  # the momentum points uphill
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        H = new + (momentum - 1) / following * (new - A)
        # Near the optimum rounding hides the curvature: a step that passed no real test must not grow.
        grows = float(np.vdot(new - previous, new - previous)) / (2 * step) > _CLEAR * _rounding(value)
        A, momentum, step = new, following, step * (_GROWTH if grows else 1.0)
        objective = new_value + problem.penalty(A)
        certify = (monitor.n_iter + 1) % _EVERY == 0 or change <= monitor.tol or monitor.is_last
        gap = problem.gap(A) if certify else np.nan
        last = monitor.record(objective, gap=gap, change=change, certified=certify)
    return CompositeSolution(A, objective, gap, monitor.converged)


def _rounding(value: float) -> float:
    """Error of a value by rounding."""
    return 10 * float(np.finfo(np.float64).eps) * max(abs(value), TINY)


def _first_step(problem: CompositeProblem, H: Matrix, value: float, gradient: Matrix, step: float) -> float:
    """Lengthen the first step while the quadratic model bounds the smooth part; growth alone is slow."""
    while step < _LONGEST:
        longer = step * _STRIDE
        new = problem.prox(H - longer * gradient, longer)
        move = new - H
        bound = value + float(np.vdot(gradient, move)) + float(np.vdot(move, move)) / (2 * longer)
        if not problem.value(new) <= bound:
            break
        step = longer
    return step


def _proximal_step(
    problem: CompositeProblem, H: Matrix, value: float, gradient: Matrix, step: float
) -> tuple[Matrix, float, float]:
    """Shorten the step until the quadratic model bounds the smooth part; return the point, its value and the step."""
    rounding = _rounding(value)
    while True:
        new = problem.prox(H - step * gradient, step)
        move = new - H
        bound = value + float(np.vdot(gradient, move)) + float(np.vdot(move, move)) / (2 * step)
        new_value = problem.value(new)
        if new_value <= bound + rounding or step < _SHORTEST:
            return new, new_value, step
        step /= 2
