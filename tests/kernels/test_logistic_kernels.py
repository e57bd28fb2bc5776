"""Kernels of logistic classes, each on its own or coupled, against plain twins."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import xlog1py, xlogy

from arbora.infer.linear.rows import LogisticSweeps, prepare_rows, visiting_order
from arbora.kernels.linear.logistic import (
    add_columns,
    certify_logistic,
    couple_pairs,
    logistic_gaps,
    sweep_logistic,
)
from support.coordinate_twins import TOLERANCE, best, start
from support.linear_problems import random_problem

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
BIASES = pytest.mark.parametrize("bias", [0.0, 2.5])
DENSITIES = pytest.mark.parametrize("density", [0.4, 1.0])


def random_covariance(n, dtype=np.float64, seed=3):
    B = np.random.default_rng(seed).standard_normal((n + 2, n))
    return np.ascontiguousarray(B.T @ B / n + np.eye(n), dtype=dtype)


def twin_gaps(cost, A, m):
    """Losses and gaps of pairs, by their definition."""
    c, A = np.abs(cost).astype(float), A.astype(float)
    share = np.divide(A, c, out=np.zeros_like(A), where=c > 0)
    losses = c * np.logaddexp(0, -m)
    return losses, losses + A * m + c * (xlogy(share, share) + xlog1py(1 - share, -share))


@DTYPES
@pytest.mark.parametrize("spread", [0.3, 5.0, 25.0])
def test_gaps_equal_numpy(dtype, spread):
    """Also of tiny and of saturated multipliers, and of pairs without a cost."""
    rng = np.random.default_rng(0)
    for n in (1, 5, 32):
        cost = (rng.choice([-1, 1], n) * rng.choice([0.0, 0.5, 1.0, 300.0], n)).astype(dtype)
        share = rng.choice([0.0, 1.0, 1e-30, 0.5, np.nan], n)
        share = np.where(np.isnan(share), 1 / (1 + np.exp(spread * rng.standard_normal(n))), share)
        A, g = (np.abs(cost) * share).astype(dtype), (spread * rng.standard_normal(n)).astype(dtype)
        scratch, gaps = [np.empty(n, dtype) for _ in range(3)], np.empty(n, dtype)
        sums = np.full(3, 7.0)
        total = logistic_gaps(cost, A, g, *scratch, gaps, *np.empty((2, n), np.int32), sums)
        m = np.copysign(1.0, cost) * g
        losses, want = twin_gaps(cost, A, m)
        # Relative to the terms of the gap, which cancel; single precision clips exponents at -87.
        scale = losses + np.abs(A * m) + np.abs(want - losses - A * m) + np.abs(cost) * 1e-37
        assert np.all(np.abs(gaps - want) <= (4e-6 if dtype is np.float32 else 1e-14) * scale)
        tolerance = {"rtol": 1e-5 if dtype is np.float32 else 1e-12}
        np.testing.assert_allclose(
            sums - 7, [losses.sum(), (A * m).sum(), gaps.sum()], atol=1e-4, **tolerance
        )
        np.testing.assert_allclose(total, gaps.sum(), atol=1e-6, **tolerance)
        np.testing.assert_allclose(scratch[1], losses, atol=1e-6, **tolerance)


def twin_sweep(problem, norm2, K, W, A, order, idle):
    design, W, A, K = problem.design, W.astype(float), A.astype(float), K.astype(float)
    sums, row_gaps = np.zeros(3), np.full(len(A), np.nan)
    for i in order:
        y, c = np.copysign(1.0, problem.cost[i]), np.abs(problem.cost[i]).astype(float)
        m = y * (design[i] @ W)
        losses, gaps = twin_gaps(problem.cost[i], A[i], m)
        sums += losses.sum(), (A[i] * m).sum() / 2, gaps.sum()
        row_gaps[i] = gaps.sum()
        for b in np.flatnonzero(gaps > idle):  # each class sees the moves of those before it
            new = best("logistic", A[i, b], y[b] * (design[i] @ W[:, b]), c[b], float(norm2[i]) * K[b, b])
            W += np.outer(design[i], (new - A[i, b]) * y[b] * K[b])
            A[i, b] = new
    return W, A, sums, row_gaps


@DTYPES
@BIASES
@DENSITIES
@pytest.mark.parametrize("idle", [-1.0, 0.1])
@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("n_block", [3, 6])  # up to four classes that move are changed one after the other
def test_sweep_equals_its_twin(dtype, bias, density, idle, coupled, n_block):
    problem = random_problem(1, n_block=n_block, density=density, bias=bias, dtype=dtype)
    rows = prepare_rows(problem.X, dtype, bias)
    K = random_covariance(n_block, dtype) if coupled else np.eye(n_block)
    W, A = start(problem, "logistic", dtype)
    order = np.random.default_rng(2).permutation(rows.n_samples)[:-3]  # the rows left out stay as they are
    want_W, want_A, want_sums, want_gaps = twin_sweep(problem, rows.norm2, K, W, A, order, idle)
    gaps = np.full(rows.n_samples, np.nan, dtype)
    given = K if coupled else None
    sums = sweep_logistic(*rows[:4], problem.cost, rows.bias, given, W, A, order, dtype(idle), gaps)
    np.testing.assert_allclose(A, want_A, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(W, want_W, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(sums, want_sums, atol=TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])
    np.testing.assert_allclose(gaps, want_gaps, atol=10 * TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])


@DTYPES
@BIASES
def test_certificate_equals_numpy(dtype, bias):
    problem = random_problem(5, bias=bias, dtype=dtype)
    rows = prepare_rows(problem.X, dtype, bias)
    W, A = start(problem, "logistic", dtype)
    m = np.copysign(1.0, problem.cost) * (problem.design @ W.astype(float))
    losses, gaps = twin_gaps(problem.cost, A, m)
    found, found_gaps = np.full((2, 3), np.nan)
    norm = certify_logistic(*rows[:3], problem.cost, rows.bias, W, A, found, found_gaps)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    np.testing.assert_allclose(norm, (A * m).sum() / 2, **close)
    np.testing.assert_allclose(found, losses.sum(axis=0), **close)
    np.testing.assert_allclose(found_gaps, gaps.sum(axis=0), **close)


def test_sweep_takes_64_bit_indices():
    problem = random_problem(5)
    rows = prepare_rows(problem.X, np.float64, 1.0)
    wide = rows._replace(indptr=rows.indptr.astype(np.int64), indices=rows.indices.astype(np.int64))
    results = []
    for some in (rows, wide):
        W, A = start(problem, "logistic", np.float64)
        sweep_logistic(*some[:4], problem.cost, some.bias, None, W, A, np.arange(40), -1.0, np.empty(40))
        results.append((W, A))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


@DTYPES
@BIASES
@DENSITIES
def test_weights_of_multipliers_equal_numpy(dtype, bias, density):
    problem = random_problem(6, density=density, bias=bias, dtype=dtype)
    rows, K = prepare_rows(problem.X, dtype, bias), random_covariance(3, dtype)
    W, A = start(problem, "logistic", dtype)
    E = np.full_like(A, np.nan)
    couple_pairs(problem.cost, A, K, E)
    signed = np.copysign(A, problem.cost).astype(float)
    np.testing.assert_allclose(E, signed @ K, atol=TOLERANCE[dtype])
    want = W + problem.design.T @ signed @ K
    columns = sp.csc_array(problem.X.astype(dtype))
    add_columns(columns.indptr, columns.indices, columns.data, rows.bias, E, W)
    np.testing.assert_allclose(W, want, atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("coupled", [True, False])
def test_sweeps_over_the_rows_with_the_gap_increase_the_dual(coupled):
    """Further sweeps leave a smaller dual suboptimality than one, and the weights still belong to the multipliers."""
    problem = random_problem(7, n_samples=200, density=0.3, bias=1.0, dtype=np.float64)
    rows, K = prepare_rows(problem.X, np.float64, 1.0), random_covariance(3) if coupled else np.eye(3)
    cost = np.where(problem.cost == 0, 1.0, 50 * problem.cost)
    order = visiting_order(rows.n_samples, np.random.default_rng(0))

    def dual(A):
        share, U = A / np.abs(cost), problem.design.T @ np.copysign(A, cost)
        entropy = np.abs(cost) * (xlogy(share, share) + xlog1py(1 - share, -share))
        return -entropy.sum() - np.trace(U @ K @ U.T) / 2

    W, A = np.zeros((problem.X.shape[1] + 1, 3)), np.zeros_like(cost)
    once_W, once = W.copy(), A.copy()
    given = K if coupled else None
    sweeps = LogisticSweeps(rows, cost, given, W, A)
    single = LogisticSweeps(rows, cost, given, once_W, once)
    for _ in range(3):
        gap = sweeps.over_rows(order, -1.0)[2]
        before = dual(A)
        sweeps.over_rows_with_the_gap(-1.0)
        assert dual(A) > before
        assert gap <= single.over_rows(order, -1.0)[2]
        assert dual(A) > dual(once)
    np.testing.assert_allclose(W, problem.design.T @ np.copysign(A, cost) @ K, atol=1e-9)
