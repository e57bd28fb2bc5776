"""Truncated Newton method with conjugate gradients, for smooth convex functions.

At a point x with gradient g and Hessian H, a step E solves H E = -g approximately by preconditioned conjugate
gradients. The solution is truncated at a residual of

    ||H E + g|| <= max(forcing ||g||, BELOW_TARGET * target),                                  (forcing rule)

where `target` is the norm of the gradient at which the caller stops: more accuracy than that is wasted. The step is
halved until the objective has fallen enough,

    f(x + t E) <= f(x) + ARMIJO t g.E + rounding,                                              (Armijo)

where `rounding` is the error with which f is computed.

The problem is given as two functions. `evaluate(x, near)` returns a *point*: an object of the problem with fields `x`
and `objective`, and whatever the derivatives need; `near` is the point from which x is reached, for warm starts.
`expand(point)` returns the second-order expansion there: gradient, product with the Hessian, preconditioner. Unknowns
are arrays of any shape and floating type, with the inner product of `numpy.vdot`. To maximise, give the negative.

References
----------
R. S. Dembo, S. C. Eisenstat and T. Steihaug (1982). Inexact Newton methods. SIAM J. Numer. Anal. 19(2).
J. Nocedal and S. Wright (2006). Numerical Optimization, chapter 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from arbora.arrays import Matrix

Map = Callable[[Matrix], Matrix]

FORCING = 0.3  # residual of a step over the gradient
BELOW_TARGET = 0.5  # ... but not below this share of the target
ARMIJO = 1e-4  # share of the linear decrease that a step must achieve
MAX_PRODUCTS = 100  # conjugate gradient steps of a Newton step
MAX_HALVINGS = 30
ROUNDING = 50.0  # error of an objective, in units of the working precision


class Point(Protocol):
    """Where the method stands."""

    @property
    def x(self) -> Matrix:
        """Unknowns."""

    @property
    def objective(self) -> float:
        """Value of the function."""


P = TypeVar("P", bound=Point)


class Expansion(NamedTuple):
    """Gradient and Hessian at a point.

    `preconditioner` is called at most once per step and returns a function that approximates the product with the
    inverse of the Hessian.
    """

    gradient: Matrix
    product: Map
    preconditioner: Callable[[], Map]


class SmoothProblem(Protocol[P]):
    """A smooth convex function."""

    def evaluate(self, x: Matrix, near: P) -> P:
        """Return the point at x; `near` is the point from which x is reached."""

    def expand(self, point: P) -> Expansion:
        """Return gradient and Hessian at a point."""


def rounding_error(point: Point) -> float:
    """Error of the objective at a point, by the precision of its unknowns."""
    return ROUNDING * float(np.finfo(point.x.dtype).eps) * abs(point.objective)


def inner_of_columns(left: Matrix, right: Matrix) -> Matrix:
    """Inner products of the columns of two matrices."""
    return np.asarray(np.einsum("jb,jb->b", left, right))


def conjugate_gradients(
    product: Map,
    right: Matrix,
    precondition: Map,
    enough: float | Matrix,
    max_products: int = MAX_PRODUCTS,
    inner: Callable[[Matrix, Matrix], Any] = np.vdot,
) -> Matrix:
    """Solve A x = right approximately from x = 0, to a residual of norm `enough`; A = `product` is positive definite.

    `precondition` is an approximate product with the inverse of A, symmetric and positive definite. With
    `inner_of_columns`, the columns are independent systems that share the products: each has its own step lengths and
    stops at its own residual, `enough` (n_columns,).

    >>> import numpy as np
    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda x: A @ x, np.array([3.0, 4.0]), lambda r: r, enough=1e-9).round(9)
    array([1., 1.])
    """
    x, residual, along = np.zeros_like(right), right.copy(), np.zeros_like(right)
    previous = np.asarray(np.inf, right.dtype)
    for _ in range(max_products):
        active = inner(residual, residual) > enough**2
        if not np.any(active):
            break
        scaled = precondition(residual)
        now = inner(residual, scaled)
        along *= now / previous
        along += scaled
        curved = product(along)
        size = inner(along, curved)
        active &= size > 0  # otherwise only rounding is left
        length = np.where(active, now / np.where(active, size, 1), 0).astype(right.dtype, copy=False)
        x += length * along
        residual -= length * curved
        previous = np.where(now > 0, now, np.inf).astype(right.dtype, copy=False)
    return x


def newton_step(
    problem: SmoothProblem[P],
    point: P,
    model: Expansion,
    target: float,
    rounding: float,
    forcing: float = FORCING,
) -> tuple[P | None, float]:
    """Take one step; return the new point, or None if the objective cannot fall any more, and the decrement -g.E.

    The decrement is about twice the decrease that the quadratic model expects. `model` is the expansion at the point,
    `target` the norm of the gradient at which the caller stops, `rounding` the error of the objective, and `forcing`
    the residual of the step over the gradient.
    """
    enough = max(forcing * float(np.linalg.norm(model.gradient)), BELOW_TARGET * target)
    step = conjugate_gradients(model.product, -model.gradient, model.preconditioner(), enough)
    slope, length = float(np.vdot(step, model.gradient)), 1.0
    for _ in range(MAX_HALVINGS):
        new = problem.evaluate(point.x + length * step, point)
        if new.objective <= point.objective + rounding + ARMIJO * length * slope:
            return new, -slope
        length /= 2
    return None, -slope


def newton_cg(
    problem: SmoothProblem[P],
    point: P,
    done: Callable[[P, Matrix, float], bool],
    *,
    target: Callable[[P], float] = lambda point: 0.0,
    rounding: Callable[[P], float] = rounding_error,
) -> tuple[P, Matrix]:
    """Take Newton steps until `done`, or until the objective cannot fall any more.

    Returns the last point and its gradient.
    `done` is called with every point, its gradient and the decrement of the step that led there (infinite at the
    first one). It records the iteration and returns whether to stop; usually through a `Monitor`. At a point,
    `target` gives the norm of the gradient at which the caller will stop, 0 for exact steps close to the optimum, and
    `rounding` the error of the objective.
    """
    model = problem.expand(point)
    decrement = np.inf
    while not done(point, model.gradient, decrement):
        new, decrement = newton_step(problem, point, model, target(point), rounding(point))
        if new is None:
            break
        point, model = new, problem.expand(new)
    return point, model.gradient
