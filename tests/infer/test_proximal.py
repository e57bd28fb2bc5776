"""Accelerated proximal gradient: known minima, monotone convergence of the objective, certificates."""

import numpy as np
import pytest

from arbora.core.monitor import Monitor
from arbora.infer.proximal import minimize_composite


class Lasso:
    """1/2 ||B a - c||^2 + t ||a||_1, with the dual bound of Kim et al."""

    def __init__(self, B, c, t, bounded=True):
        self.B, self.c, self.t, self.bounded = B, c, t, bounded

    def value(self, a):
        return float(np.sum((self.B @ a - self.c) ** 2)) / 2

    def value_and_gradient(self, a):
        return self.value(a), self.B.T @ (self.B @ a - self.c)

    def penalty(self, a):
        return self.t * float(np.abs(a).sum())

    def prox(self, b, step):
        return np.sign(b) * np.maximum(np.abs(b) - step * self.t, 0)

    def gap(self, a):
        if not self.bounded:
            return np.nan
        residual = self.B @ a - self.c
        nu = residual * min(1.0, self.t / np.abs(self.B.T @ residual).max())
        bound = -float(nu @ nu) / 2 - float(nu @ self.c)
        return self.value(a) + self.penalty(a) - bound


@pytest.fixture
def lasso():
    rng = np.random.default_rng(0)
    return Lasso(rng.normal(size=(30, 12)) * np.geomspace(1, 30, 12), rng.normal(size=30), 2.0)


def test_the_gap_bounds_the_distance_from_the_optimum(lasso):
    exact = minimize_composite(lasso, np.zeros(12), Monitor(1e-10, 5000))
    monitor = Monitor(1e-3, 5000)
    coarse = minimize_composite(lasso, np.zeros(12), monitor)
    assert exact.converged
    assert coarse.converged
    assert 0 <= coarse.objective - exact.objective <= coarse.gap
    assert coarse.gap <= 1e-3 * coarse.objective
    assert monitor.n_iter < 300


def test_optimality_conditions_hold(lasso):
    a = minimize_composite(lasso, np.zeros(12), Monitor(1e-12, 5000)).A
    gradient = lasso.value_and_gradient(a)[1]
    np.testing.assert_allclose(gradient[a != 0], -lasso.t * np.sign(a[a != 0]), atol=1e-5)
    assert np.all(np.abs(gradient[a == 0]) <= lasso.t + 1e-5)


def test_without_a_bound_it_stops_on_the_change(lasso):
    lasso.bounded = False
    monitor = Monitor(1e-10, 5000)
    found = minimize_composite(lasso, np.zeros(12), monitor)
    lasso.bounded = True
    assert monitor.converged
    assert monitor.criterion == "change"
    assert lasso.gap(found.A) <= 1e-6 * found.objective


def test_a_bad_first_step_does_not_matter(lasso):
    results = [
        minimize_composite(lasso, np.zeros(12), Monitor(1e-10, 5000), step=step) for step in (1e-8, 1e8)
    ]
    assert results[0].objective == pytest.approx(results[1].objective, rel=1e-9)
