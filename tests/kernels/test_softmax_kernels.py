"""Kernels of the softmax beside NumPy twins."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import log_softmax, logsumexp, softmax, wrightomega

from arbora.infer.softmax.dual import class_shares
from arbora.kernels.linear.softmax import (
    balance_row,
    certify_softmax,
    exp_row,
    log_softmax_row,
    prox_softmax,
    sweep_softmax,
)
from support.multinomial_problems import dual_value, objective, random_problem, tree_factor

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@DTYPES
@pytest.mark.parametrize("n", [1, 7, 1000])
def test_exp_row(dtype, n):
    x = np.linspace(-86, 20, n).astype(dtype)
    out = np.empty_like(x)
    exp_row(x, out, np.empty(n, np.int32))
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=5e-6 if dtype == np.float32 else 1e-14)


def test_exp_row_goes_to_zero_in_single_precision():
    x = np.array([-88.0, -1e4, -1e30], np.float32)
    out = np.empty_like(x)
    exp_row(x, out, np.empty(3, np.int32))
    assert (out >= 0).all()
    assert (out < 1e-37).all()


@DTYPES
def test_log_softmax_row(dtype):
    g = np.array([1000.0, 1001.0, -500.0], dtype)
    known, norm, p = log_softmax(g), logsumexp(g), np.empty_like(g)
    found = log_softmax_row(g, p, np.empty(3, np.int32))
    assert found == pytest.approx(norm, rel=1e-6)
    np.testing.assert_allclose(g, known, rtol=1e-5)
    np.testing.assert_allclose(p, np.exp(known), atol=1e-6)


def balanced(h, a):
    """Roots by the Wright omega function, with nu by bisection."""
    a = np.broadcast_to(a, h.shape)

    def share(nu):
        return np.real(wrightomega(h - nu + np.log(a))) / a

    top = h.max() + np.log(len(h))
    nu = brentq(lambda nu: share(nu).sum() - 1, top - a.max() - np.log(len(h)) - 60, top + 1, xtol=1e-13)
    return share(nu)


@DTYPES
@pytest.mark.parametrize("a", [1e-3, 1.0, 50.0, 1e3])
@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
def test_balance_row_solves_its_equation(dtype, a, scale):
    rng = np.random.default_rng(0)
    for n in (2, 5, 60):
        h, t = (scale * rng.normal(size=n)).astype(dtype), rng.uniform(1, 3, n).astype(dtype)
        log_p = log_softmax(rng.normal(size=n)).astype(dtype)
        p = np.exp(log_p)
        balance_row(h, dtype(a), t, log_p, p, np.empty(n, np.int32), 100, dtype(1e-7))
        np.testing.assert_allclose(p, balanced(h.astype(float), a * t.astype(float)), atol=1e-5)
        assert p.sum() == pytest.approx(1.0, abs=1e-5)


@DTYPES
@pytest.mark.parametrize("factor", [None, tree_factor()], ids=["flat", "tree"])
def test_sweeps_raise_the_dual_and_keep_the_weights_in_step(dtype, factor):
    problem = random_problem(factor=factor, dtype=dtype)
    *shares, bound = class_shares(problem)
    X, cost, n = problem.X, problem.cost.astype(dtype), len(problem.labels)
    L = np.full((n, problem.n_classes), -np.log(problem.n_classes), dtype)

    def parts():
        U = X.T @ (cost[:, None] * (problem.indicator.toarray() - np.exp(L)))
        return U if factor is None else U @ factor.toarray().T

    Z = np.ascontiguousarray(parts().astype(dtype))
    norm2 = np.asarray((X**2).sum(axis=1)).ravel().astype(dtype)
    arrays, values = (X.indptr, X.indices, X.data), [dual_value(problem, np.exp(L.astype(float)))]
    rows = problem.cost, problem.labels
    for _ in range(4):
        order = np.random.default_rng(0).permutation(n)
        sweep_softmax(*arrays, norm2, cost, rows[1], *shares, bound, Z, L, order, 30, dtype(1e-6))
        values.append(dual_value(problem, np.exp(L.astype(float))))
    assert (np.diff(values) > -1e-5).all()
    np.testing.assert_allclose(Z, parts(), atol=1e-4 if dtype == np.float32 else 1e-10)
    np.testing.assert_allclose(logsumexp(L, axis=1), 0, atol=1e-5)
    loss, gap = certify_softmax(*arrays, cost, rows[1], *shares, Z, L, 0, n)
    value = objective(problem, Z.astype(float))
    assert loss + 0.5 * (Z**2).sum() == pytest.approx(value, rel=1e-5)
    assert gap == pytest.approx(value - values[-1], abs=1e-3 if dtype == np.float32 else 1e-8)


@pytest.mark.parametrize("order", [np.array([], int), np.array([3])], ids=["none", "one"])
def test_sweep_of_few_rows_that_may_be_empty(order):
    problem = random_problem()
    X = sp.csr_array(problem.X.multiply((np.arange(60) != 3)[:, None]))
    *shares, bound = class_shares(problem)
    L = np.full((60, 5), -np.log(5.0))
    Z = np.zeros(problem.shape)
    norm2 = np.maximum(np.asarray((X**2).sum(axis=1)).ravel(), 1e-30)
    arrays = X.indptr, X.indices, X.data, norm2, problem.cost, problem.labels
    sweep_softmax(*arrays, *shares, bound, Z, L, order, 30, 1e-6)
    assert (Z == 0).all()
    np.testing.assert_allclose(L, -np.log(5.0))  # scores of an empty row are 0: all classes alike


@DTYPES
def test_prox_minimises(dtype):
    rng = np.random.default_rng(0)
    S = rng.normal(scale=3, size=(8, 6)).astype(dtype)
    step = rng.uniform(0.1, 20, 8).astype(dtype)
    labels = rng.integers(6, size=8)
    old = softmax(rng.normal(size=(8, 6)), axis=1)
    L, z = np.log(old).astype(dtype), S.copy()
    total = prox_softmax(z, step, L, 0, 8, 100, dtype(1e-7))
    p, E = softmax(z.astype(float), axis=1), np.eye(6)[labels]
    v = S + step[:, None] * (old - E)
    np.testing.assert_allclose(step[:, None] * (p - E) + z - v, 0, atol=2e-4 if dtype == np.float32 else 1e-5)
    np.testing.assert_allclose(np.exp(L), p, atol=1e-5)
    assert total == pytest.approx(((S - z) ** 2).sum(), rel=1e-4)
