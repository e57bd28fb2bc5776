"""Bounds of softmax and logistic likelihoods: they hold, they touch, and their parameters are the best."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp

from arbora.infer.tree import bouchard
from arbora.kernels.linear.softmax import tighten_shifts
from support.tree_models import likelihood_bound, problem

SOFTMAX, LOGISTIC = problem(likelihood="softmax"), problem(likelihood="logistic")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.01, 30))
def test_bounds_hold_everywhere(seed, n_classes, scale):
    rng = np.random.default_rng(seed)
    g, b, x = scale * rng.normal(size=n_classes), scale * rng.normal(), scale * rng.random(n_classes)
    assert likelihood_bound(SOFTMAX, g, b, x) <= -logsumexp(g) + 1e-9 * scale
    assert likelihood_bound(LOGISTIC, g, 0.0, x) <= -np.logaddexp(0, g).sum() + 1e-9 * scale


def test_logistic_bound_touches():
    g = np.array([-3.0, 0.5, 8.0])
    assert np.isclose(likelihood_bound(LOGISTIC, g, 0.0, np.abs(g)), -np.logaddexp(0, g).sum())
    local = bouchard.local_step(g[None], np.zeros((1, 3)), None)
    assert np.isclose(local.value[0] - g.sum() / 2, -np.logaddexp(0, g).sum())


@pytest.mark.parametrize("scale", [0.1, 3.0, 50.0])
def test_local_step_finds_the_best_shift(scale):
    rng = np.random.default_rng(0)
    mean, variance = scale * rng.normal(size=(30, 5)), scale * rng.random((30, 5))
    local = bouchard.local_step(mean, variance, mean[:, 0], n_steps=100)

    def value(i, b):
        x = np.sqrt(variance[i] + (mean[i] - b) ** 2)
        return likelihood_bound(SOFTMAX, mean[i], b, x) - bouchard.curvature(x) @ variance[i] / 2

    for i in range(len(mean)):
        best = minimize_scalar(
            lambda b, i=i: -value(i, b),
            bounds=(mean[i].min() - 50, mean[i].max() + 50),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert value(i, local.shift[i]) >= -best.fun - 1e-8
        np.testing.assert_allclose(local.value[i] - mean[i].sum() / 2, value(i, local.shift[i]), rtol=1e-10)


def test_no_step_lowers_the_bound():
    rng = np.random.default_rng(1)
    mean, variance = 20 * rng.normal(size=(200, 4)), rng.random((200, 4))
    shift, last = 100 * rng.normal(size=200), -np.inf
    for _ in range(25):
        local = bouchard.local_step(mean, variance, shift, n_steps=1)
        assert (local.value >= last - 1e-12 * np.abs(local.value)).all()
        shift, last = local.shift, local.value


def test_best_shift_obeys_the_formula():
    rng = np.random.default_rng(2)
    mean, variance = rng.normal(size=(20, 6)), rng.random((20, 6))
    local = bouchard.local_step(mean, variance, np.zeros(20), n_steps=40)
    weight = bouchard.curvature(local.width) / 2
    formula = ((6 / 2 - 1) / 2 + (weight * mean).sum(axis=1)) / weight.sum(axis=1)
    np.testing.assert_allclose(local.shift, formula, atol=1e-9)


def test_curvatures_against_finite_differences():
    mean, variance = np.linspace(-8, 8, 33)[:, None], np.full((33, 1), 0.3)
    h = 1e-3
    f = [bouchard.local_step(mean + k * h, variance, None).value for k in (-1, 0, 1)]
    local = bouchard.local_step(mean, variance, None)
    second = -(f[0] - 2 * f[1] + f[2]) / h**2
    found = bouchard.collapsed_curvature(mean, variance, local)[:, 0]
    np.testing.assert_allclose(found, second, atol=1e-6)
    assert (found <= bouchard.curvature(local.width)[:, 0] + 1e-12).all()
    first = -(f[2] - f[0]) / (2 * h)
    np.testing.assert_allclose(bouchard.curvature(local.width)[:, 0] * mean[:, 0], first, atol=1e-6)


def test_curvature_is_smooth_at_zero():
    x = np.array([0.0, 1e-12, 9.9e-5, 1.01e-4, 1e-3, 800.0])
    with np.errstate(invalid="ignore", divide="ignore"):
        plain = np.where(x < 1e-6, 0.25, np.tanh(x / 2) / (2 * x))
    np.testing.assert_allclose(bouchard.curvature(x), plain, rtol=1e-9)


def test_probabilities_of_the_bound():
    """They sum to one, they are the slope of the bound, and without variance they are sigmoids."""
    rng = np.random.default_rng(4)
    mean, variance = 4 * rng.normal(size=(30, 5)), rng.random((30, 5))
    local = bouchard.local_step(mean, variance, mean[:, 0], n_steps=60)
    proba = bouchard.bound_probabilities(mean, variance, local)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-8)
    h = 1e-5
    for n in range(5):
        step = h * np.eye(5)[n]
        up, down = (bouchard.local_step(mean + s * step, variance, local.shift, 20).value for s in (1, -1))
        np.testing.assert_allclose(0.5 - (up - down) / (2 * h), proba[:, n], atol=1e-6)
    sure = bouchard.local_step(mean, 0 * variance, mean[:, 0], n_steps=60)
    np.testing.assert_allclose(
        bouchard.bound_probabilities(mean, 0 * variance, sure), expit(mean - sure.shift[:, None]), rtol=1e-9
    )


@pytest.mark.parametrize("n_features", [1, 5, 130])
def test_grams_and_quadratic_forms(n_features):
    """More features than fit into one block of pairs, too."""
    rng = np.random.default_rng(3)
    X, weight = rng.normal(size=(40, n_features)), rng.random((40, 3))
    packed = bouchard.weighted_grams(np.ascontiguousarray(X.T), weight)
    full = bouchard.unpack_symmetric(packed, n_features)
    np.testing.assert_allclose(full, np.einsum("ia,ik,ib->kab", X, weight, X), rtol=1e-9, atol=1e-11)
    forms = bouchard.quadratic_forms(np.ascontiguousarray(X.T), bouchard.pack_symmetric(full))
    np.testing.assert_allclose(forms, np.einsum("ia,kab,ib->ik", X, full, X), rtol=1e-9)


def twin_shifts(mean, variance, shift, n_steps):
    """The kernel's steps, all rows at once."""
    slack, low, high = mean.shape[1] / 2 - 1, np.full(len(shift), -np.inf), np.full(len(shift), np.inf)

    def walk(at):
        away = mean - at[:, None]
        width = np.sqrt(variance + away**2)
        c, share = bouchard.curvature(width), variance / width**2
        bend = (share * c + (1 - share) / (4 * np.cosh(width / 2) ** 2)).sum(axis=1)
        value = slack * at - bouchard.log_2cosh_half(width).sum(axis=1)
        return value, slack + (c * away).sum(axis=1), bend, c.sum(axis=1)

    at, best, (value, slope, bend, weight) = shift, shift, walk(shift)
    best_value = value
    for _ in range(n_steps):
        low, high = np.where(slope > 0, at, low), np.where(slope < 0, at, high)
        careful = slope / weight
        new = at + np.clip(slope / bend, -10 * abs(careful), 10 * abs(careful))
        both = np.isfinite(low) & np.isfinite(high)
        middle = np.where(both, (np.where(both, low, 0) + np.where(both, high, 0)) / 2, at + careful)
        at = np.where((low <= new) & (new <= high), new, middle)
        value, slope, bend, weight = walk(at)
        best, best_value = np.where(value > best_value, at, best), np.maximum(value, best_value)
    return best, best_value


@pytest.mark.parametrize("n_classes", [2, 5, 1200])
@pytest.mark.parametrize("n_steps", [0, 1, 3])
def test_shifts_equal_their_twin(n_classes, n_steps):
    rng = np.random.default_rng(n_classes)
    mean, variance = 5 * rng.normal(size=(6, n_classes)), rng.gamma(1.0, size=(6, n_classes))
    shift = rng.normal(size=6)
    found, values = shift.copy(), np.empty(6)
    tighten_shifts(mean, variance, found, n_steps, values)
    want, want_values = twin_shifts(mean, variance, shift, n_steps)
    np.testing.assert_allclose(values, want_values, rtol=1e-12)
    np.testing.assert_allclose(found, want, rtol=1e-6)
