"""The truncated Newton method: exact on quadratics, agreement with scipy, derivatives, monotone objective."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from arbora.infer.newton_cg import Expansion, conjugate_gradients, newton_cg, newton_step


class Here(NamedTuple):
    x: np.ndarray
    objective: float


class Quadratic:
    """1/2 x'A x - b.x, counting products with A."""

    def __init__(self, A, b, precondition=lambda r: r):
        self.A, self.b, self.precondition, self.n_products = A, b, precondition, 0

    def evaluate(self, x, near=None):
        return Here(x, float(x @ self.A @ x / 2 - self.b @ x))

    def product(self, x):
        self.n_products += 1
        return self.A @ x

    def expand(self, point):
        return Expansion(self.A @ point.x - self.b, self.product, lambda: self.precondition)


class Logistic:
    """Logistic regression with a ridge; unknowns are a column, to see that shapes are kept."""

    def __init__(self, seed=0, scale=1.0, dtype=np.float64, scaled=False):
        rng = np.random.default_rng(seed)
        self.X = (rng.normal(size=(60, 6)) * np.exp(rng.normal(size=6)) * scale).astype(dtype)
        self.y = np.where(rng.random(60) < expit(self.X @ rng.normal(size=6)), 1, -1).astype(dtype)
        self.scaled, self.objectives = scaled, []

    def evaluate(self, x, near=None):
        value = float(np.vdot(x, x)) / 2 + float(np.logaddexp(0, -self.y * (self.X @ x)[:, 0]).sum())
        self.objectives.append(value)
        return Here(x, value)

    def gradient(self, x):
        return x - self.X.T @ (self.y * expit(-self.y * (self.X @ x)[:, 0]))[:, None]

    def expand(self, point):
        p = expit((self.X @ point.x)[:, 0])
        h = (p * (1 - p))[:, None]
        diagonal = 1 + (self.X**2).T @ h if self.scaled else np.ones_like(point.x)
        product = lambda E: E + self.X.T @ (h * (self.X @ E))  # noqa: E731
        return Expansion(self.gradient(point.x), product, lambda: lambda R: R / diagonal)

    def solve(self, tol=1e-9, **options):
        n_steps = []

        def done(point, gradient, decrement):
            n_steps.append(decrement)
            return np.linalg.norm(gradient) <= tol or len(n_steps) > 100

        start = self.evaluate(np.zeros((6, 1), self.X.dtype))
        return *newton_cg(self, start, done, target=lambda point: tol, **options), n_steps


def random_spd(n, seed):
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]
    return Q @ np.diag(np.linspace(1, 50, n)) @ Q.T


@given(st.integers(1, 8), st.integers(0, 100))
def test_conjugate_gradients_solve_a_system_of_size_n_in_n_steps(n, seed):
    A, b = random_spd(n, seed), np.random.default_rng(seed + 1).normal(size=n)
    n_products = []

    def product(x):
        n_products.append(1)
        return A @ x

    x = conjugate_gradients(product, b, lambda r: r, enough=1e-8 * np.linalg.norm(b))
    np.testing.assert_allclose(A @ x, b, atol=1e-6)
    assert len(n_products) <= n


def test_conjugate_gradients_stop_at_the_residual_and_at_the_number_of_products():
    A, b = random_spd(20, 0), np.ones(20)
    for share in (0.5, 0.1, 1e-3):
        x = conjugate_gradients(lambda x: A @ x, b, lambda r: r, enough=share * np.linalg.norm(b))
        assert np.linalg.norm(A @ x - b) <= share * np.linalg.norm(b)
    np.testing.assert_array_equal(conjugate_gradients(lambda x: A @ x, b, lambda r: r, np.inf), 0)
    one = conjugate_gradients(lambda x: A @ x, b, lambda r: r, 0.0, max_products=1)
    np.testing.assert_allclose(one, b * (b @ b) / (b @ A @ b))  # steepest descent


def test_one_step_to_the_exact_minimum_of_a_quadratic():
    A, b = random_spd(6, 2), np.arange(6.0)
    problem = Quadratic(A, b)
    point = problem.evaluate(np.full(6, 3.0))
    new, decrement = newton_step(problem, point, problem.expand(point), 0.0, 0.0, forcing=1e-12)
    np.testing.assert_allclose(new.x, np.linalg.solve(A, b), atol=1e-9)
    assert decrement == pytest.approx(2 * (point.objective - new.objective), rel=1e-9)
    assert problem.n_products <= 7


@pytest.mark.parametrize("method", ["trust-ncg", "Newton-CG"])
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "preconditioned"])
def test_logistic_regression_agrees_with_scipy(method, scaled):
    problem = Logistic(seed=3, scaled=scaled)
    point, gradient, _ = problem.solve()

    def flat(function):
        return lambda x: function(x[:, None])

    theirs = minimize(
        flat(lambda x: problem.evaluate(x).objective),
        np.zeros(6),
        jac=flat(lambda x: problem.gradient(x)[:, 0]),
        hessp=lambda x, e: problem.expand(Here(x[:, None], 0.0)).product(e[:, None])[:, 0],
        method=method,
        options={"gtol": 1e-9} if method == "trust-ncg" else {"xtol": 1e-10},
    )
    assert np.linalg.norm(gradient) <= 1e-9
    assert point.objective == pytest.approx(theirs.fun, rel=1e-12)
    np.testing.assert_allclose(point.x[:, 0], theirs.x, atol=1e-6)


def test_preconditioner_changes_the_path_and_not_the_optimum():
    plain, scaled = Logistic(seed=4, scale=5.0), Logistic(seed=4, scale=5.0, scaled=True)
    (one, _, first), (two, _, second) = plain.solve(), scaled.solve()
    assert first != second
    np.testing.assert_allclose(one.x, two.x, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_objective_never_rises(scale):
    problem, values = Logistic(seed=5, scale=scale), []

    def done(point, gradient, decrement):
        values.append(point.objective)
        return np.linalg.norm(gradient) <= 1e-8 or len(values) > 100

    newton_cg(problem, problem.evaluate(np.full((6, 1), 3.0)), done, rounding=lambda point: 0.0)
    assert (np.diff(values) <= 0).all()


def test_derivatives_are_those_of_the_objective():
    problem, rng, h = Logistic(seed=6), np.random.default_rng(0), 1e-6
    x, E = rng.normal(size=(2, 6, 1))
    at = problem.expand(Here(x, 0.0))
    slope = (problem.evaluate(x + h * E).objective - problem.evaluate(x - h * E).objective) / (2 * h)
    assert np.vdot(at.gradient, E) == pytest.approx(slope, rel=1e-6)
    difference = (problem.gradient(x + h * E) - problem.gradient(x - h * E)) / (2 * h)
    np.testing.assert_allclose(at.product(E), difference, atol=1e-5)


def test_stops_where_the_objective_cannot_fall():
    problem = Logistic(seed=7)
    best, _, _ = problem.solve()
    never = lambda point, gradient, decrement: False  # noqa: E731
    point, _ = newton_cg(problem, best, never, rounding=lambda point: -1e-9)  # asks for more than there is
    np.testing.assert_array_equal(point.x, best.x)
    assert newton_step(problem, best, problem.expand(best), 0.0, -1.0)[0] is None


def test_single_precision_stays_single_and_reaches_its_rounding():
    problem = Logistic(seed=8, dtype=np.float32)
    point, gradient, steps = problem.solve(tol=1e-3)
    assert point.x.dtype == gradient.dtype == np.float32
    assert len(steps) < 30
    assert point.objective == pytest.approx(Logistic(seed=8).solve()[0].objective, rel=1e-4)


def test_a_step_that_is_too_long_is_halved():
    problem = Logistic(seed=9)
    point = problem.evaluate(np.zeros((6, 1)))
    at = problem.expand(point)
    flat = at._replace(product=lambda E: 1e-3 * E)  # pretends a curvature that is far too small
    new, _ = newton_step(problem, point, flat, 0.0, 0.0)
    assert new.objective < point.objective
    assert len(problem.objectives) > 3
