"""The kernels of coordinate descent against a plain twin that loops over coordinates."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from arbora.infer.linear.rows import prepare_rows
from arbora.kernels import LOSSES, certify_block, sweep_active, sweep_block
from arbora.kernels.linear.coordinate import SETTLED
from arbora.kernels.linear.logistic import sweep_logistic
from support.coordinate_twins import TOLERANCE, best, shuffle, start
from support.linear_problems import Problem, conjugate, loss_value, random_problem

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
ALL_LOSSES = pytest.mark.parametrize("loss", list(LOSSES))
HINGES = pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
BIASES = pytest.mark.parametrize("bias", [0.0, 1.0, 2.5])
DENSITIES = pytest.mark.parametrize("density", [0.4, 1.0])


# --- twins of the coordinate kernels: one coordinate at a time, in double precision ------------------------------


def twin_sweep(problem: Problem, norm2, loss, W, A, rows):
    """Return new W and A, the lists of active rows, and the sums of loss, regulariser and gap when visited."""
    design, W, A = problem.design, W.astype(float), A.astype(float)
    active = [[] for _ in range(A.shape[1])]
    total_loss = total_norm = total_gap = 0.0
    for b, i in np.ndindex(A.shape[1], len(rows)):
        i = rows[i]
        x, c, y, a = design[i], abs(float(problem.cost[i, b])), np.copysign(1.0, problem.cost[i, b]), A[i, b]
        m = y * (x @ W[:, b])
        total_loss += c * loss_value(loss, m)
        total_norm += a * m / 2
        total_gap += c * loss_value(loss, m) + conjugate(loss, a, c) + a * m
        new = best(loss, a, m, c, float(norm2[i]))
        W[:, b] += (new - a) * y * x
        A[i, b] = new
        ceiling = c if loss == "hinge" else math.inf
        at_floor, at_ceiling = new == 0 and m >= 1, new == ceiling and m <= 1
        if c and not at_floor and not at_ceiling:
            active[b].append(i)
    return W, A, active, (total_loss, total_norm, total_gap)


def twin_active(problem: Problem, norm2, loss, W, A, active, n_sweeps, enough, state):
    design, W, A = problem.design, W.astype(float), A.astype(float)
    for b, listed in enumerate(active):
        listed = list(listed)
        for _ in range(n_sweeps):
            state = shuffle(listed, state)
            kept, gap = [], 0.0
            for i in listed:
                c, y, a = abs(float(problem.cost[i, b])), np.copysign(1.0, problem.cost[i, b]), A[i, b]
                m = y * (design[i] @ W[:, b])
                gap += c * loss_value(loss, m) + conjugate(loss, a, c) + a * m
                settled_low = a == 0 and m > 1 + SETTLED
                settled_high = loss == "hinge" and a == c and m < 1 - SETTLED
                if not settled_low and not settled_high:
                    kept.append(i)
                    A[i, b] = best(loss, a, m, c, float(norm2[i]))
                    W[:, b] += (A[i, b] - a) * y * design[i]
            listed = kept
            if gap < enough:
                break
    return W, A


@DTYPES
@HINGES
@BIASES
@DENSITIES
def test_sweep_equals_its_twin(dtype, loss, bias, density):
    problem = random_problem(1, density=density, bias=bias, dtype=dtype)
    rows = prepare_rows(problem.X, dtype, bias)
    W, A = start(problem, loss, dtype)
    order = np.random.default_rng(2).permutation(rows.n_samples)[:-3]  # the rows left out stay as they are
    want_W, want_A, want_active, want_sums = twin_sweep(problem, rows.norm2, loss, W, A, order)
    active = np.full((3, rows.n_samples), -1, np.int32)
    n_active = np.full(3, 7)
    sums = sweep_block(
        *rows[:4], problem.cost, LOSSES[loss], rows.bias, W, A, order, active, n_active
    )  # fmt: skip
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(A, want_A, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(W, want_W, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(sums, want_sums, atol=tolerance, rtol=tolerance)
    assert [active[b, : n_active[b]].tolist() for b in range(3)] == want_active


@DTYPES
@HINGES
@BIASES
@DENSITIES
def test_active_sweeps_equal_their_twin(dtype, loss, bias, density):
    problem = random_problem(2, density=density, bias=bias, dtype=dtype)
    rows = prepare_rows(problem.X, dtype, bias)
    assert rows.dense == (density == 1.0)
    W, A = start(problem, loss, dtype)
    listed = [np.array([], int), np.array([1, 2, 5]), np.arange(40)]  # none, few (changed in place), many
    active, n_active = np.zeros((3, 40), np.int32), np.array([len(rows) for rows in listed])
    for b, members in enumerate(listed):
        active[b, : len(members)] = members
    want_W, want_A = twin_active(problem, rows.norm2, loss, W, A, listed, 3, 1e-3, 9)
    before = W[:, 0].copy()
    sweep_active(
        *rows[:4], problem.cost, LOSSES[loss], rows.bias, rows.dense, W, A,
        active, n_active, 3, 1e-3, 9, np.empty(W.shape[0], dtype),
    )  # fmt: skip
    tolerance = TOLERANCE[dtype] * (10 if dtype == np.float32 else 1)  # three sweeps of rounding
    np.testing.assert_allclose(A, want_A, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(W, want_W, atol=tolerance, rtol=tolerance)
    np.testing.assert_array_equal(W[:, 0], before)


def test_active_sweeps_stop_when_the_gap_is_small_enough():
    problem = random_problem(3)
    rows = prepare_rows(problem.X, np.float64, 1.0)

    def multipliers(n_sweeps, enough):
        W, A = start(problem, "hinge", np.float64)
        active = np.tile(np.arange(40, dtype=np.int32), (3, 1))
        sweep_active(
            *rows[:4], problem.cost, LOSSES["hinge"], rows.bias, rows.dense, W, A,
            active, np.full(3, 40), n_sweeps, enough, 0, np.empty(8),
        )  # fmt: skip
        return A[:, 0]

    np.testing.assert_array_equal(multipliers(5, 1e9), multipliers(1, 0.0))
    assert not np.array_equal(multipliers(5, 0.0), multipliers(1, 0.0))


@DTYPES
@HINGES
@BIASES
@DENSITIES
def test_certificate_equals_its_twin(dtype, loss, bias, density):
    problem = random_problem(4, density=density, bias=bias, dtype=dtype)
    rows = prepare_rows(problem.X, dtype, bias)
    W, A = start(problem, loss, dtype)
    losses, gaps = np.full(3, np.nan), np.full(3, np.nan)
    active = np.empty((3, rows.n_samples), np.int32)
    n_active = np.full(3, -1)
    certify_block(*rows[:3], problem.cost, LOSSES[loss], rows.bias, W, A, losses, gaps, active, n_active)
    c, margin = np.abs(problem.cost).astype(float), np.sign(problem.cost) * (problem.design @ W.astype(float))
    values = c * loss_value(loss, margin)
    np.testing.assert_allclose(losses, values.sum(0), rtol=TOLERANCE[dtype])
    want = values + conjugate(loss, A.astype(float), c) + A * margin
    assert (want > -1e-6).all()  # Fenchel-Young: no pair has a negative share
    np.testing.assert_allclose(gaps, want.sum(0), rtol=TOLERANCE[dtype])
    free = (A > 0) & ((c > A) | (margin > 1) | ((loss == "squared_hinge") & (c > 0)))
    listed = free | ((A == 0) & (margin < 1) & (c > 0))
    for b in range(3):
        np.testing.assert_array_equal(active[b, : n_active[b]], np.flatnonzero(listed[:, b]))


@HINGES
def test_sweep_takes_64_bit_indices(loss):
    problem = random_problem(5)
    rows = prepare_rows(problem.X, np.float64, 1.0)
    wide = rows._replace(indptr=rows.indptr.astype(np.int64), indices=rows.indices.astype(np.int64))
    results = []
    for some in (rows, wide):
        W, A = start(problem, loss, np.float64)
        sweep_block(
            *some[:4], problem.cost, LOSSES[loss], some.bias, W, A, np.arange(40),
            np.empty((3, 40), np.int32), np.zeros(3, np.int64),
        )  # fmt: skip
        results.append((W, A))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


# --- one coordinate --------------------------------------------------------------------------------------------


def step(loss, dtype, a, m, c, q):
    """Let the kernel visit one row of one class, with margin m and squared norm q; return the new multiplier."""
    W, A = np.array([[m], [0.0]], dtype), np.array([[a]], dtype)
    indptr, zero, cost = np.array([0, 1], np.int32), np.zeros(1, np.int32), np.array([[c]], dtype)
    rows = indptr, zero, np.ones(1, dtype), np.array([q], dtype)
    if loss == "logistic":
        sweep_logistic(*rows, cost, dtype(0), None, W, A, zero, dtype(-1), np.empty(1, dtype))
    else:
        listed = np.empty((1, 1), np.int32), np.zeros(1, np.int64)
        sweep_block(*rows, cost, LOSSES[loss], dtype(0), W, A, zero, *listed)
    return float(A[0, 0])


ORDERS = st.floats(-3.0, 4.0)
SHARES = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0), st.floats(-12.0, 0.0).map(lambda e: 10**e)
)


@DTYPES
@ALL_LOSSES
@settings(max_examples=150, deadline=None)
@given(cost_order=ORDERS, norm_order=ORDERS, m=st.floats(-100.0, 100.0), share=SHARES)
@example(cost_order=3.947, norm_order=3.972, m=64.0, share=0.085)  # a margin good to 1e-4 is not enough here
@example(cost_order=4.0, norm_order=4.0, m=-100.0, share=0.0)  # Newton walks 16 units in steps of one
@example(cost_order=4.0, norm_order=4.0, m=100.0, share=1.0)
@example(cost_order=-3.0, norm_order=-3.0, m=100.0, share=0.0)  # the exponential overflows in float32
def test_step_minimises_the_dual_along_its_coordinate(dtype, loss, cost_order, norm_order, m, share):
    c, q, m = (float(dtype(value)) for value in (10.0**cost_order, 10.0**norm_order, m))
    a = min(float(dtype(share * c)), c)

    def objective(new):
        return (new - a) * m + q * (new - a) ** 2 / 2 + float(conjugate(loss, np.float64(new), np.float64(c)))

    new = step(loss, dtype, a, m, c, q)
    ceiling = a + 101 / q if loss == "squared_hinge" else c
    assert 0.0 <= new <= ceiling * (1 + 1e-6)
    found = minimize_scalar(objective, bounds=(0.0, ceiling), method="bounded", options={"xatol": 1e-10 * c})
    eps = np.finfo(dtype).eps
    size = max(abs(new), abs(a), c)
    rounding = 20 * eps * (size * (1 + abs(m)) + q * (new - a) ** 2) + q * (eps * size) ** 2
    newton_error = 1e-9 * c if loss == "logistic" else 0.0
    assert objective(new) <= min(objective(a), found.fun) + rounding + newton_error
