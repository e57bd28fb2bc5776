"""The solver of a block: its optimum against other packages, its certificate, its invariances; memory."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from arbora.core.chunks import available_memory, require_memory
from arbora.infer.linear.flat import solve_block
from arbora.infer.linear.rows import prepare_rows
from arbora.kernels import LOSSES, sweep_active, sweep_block
from arbora.kernels.linear.logistic import sweep_logistic
from support.linear_problems import Problem, dual, primal, random_problem, weights_of

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
ALL_LOSSES = pytest.mark.parametrize("loss", list(LOSSES))
BIASES = pytest.mark.parametrize("bias", [0.0, 1.0, 2.5])
SEEDS = st.integers(0, 1000)
invariance = settings(max_examples=15, deadline=None)


def solve(problem: Problem, loss="hinge", tol=1e-9, max_iter=5000, dtype=np.float64, **options):
    rows = prepare_rows(problem.X, dtype, problem.bias)
    return solve_block(rows, problem.cost.astype(dtype), loss=loss, tol=tol, max_iter=max_iter, **options)


def assert_same_weights(left, right, left_gaps, right_gaps=0.0):
    """Two near-optimal points of one strongly convex problem are no further apart than their gaps allow."""
    distance = np.sqrt(((left.astype(float) - right) ** 2).sum(0))
    radius = np.sqrt(2 * np.maximum(left_gaps, 0)) + np.sqrt(2 * np.maximum(right_gaps, 0))
    assert (distance <= radius + 1e-6).all(), (distance, radius)  # gaps below 1e-13 are rounding


def assert_same_optimum(one, other):
    """Neither is further from the optimum they share than its gap, in weights and in value."""
    assert_same_weights(one.weights, other.weights, one.gaps, other.gaps)
    difference = np.abs(one.objectives - other.objectives)
    assert (difference <= np.maximum(one.gaps, other.gaps) + 1e-10 * one.objectives).all(), difference


# --- the optimum, found by others ------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@BIASES
@pytest.mark.parametrize("density", [0.4, 1.0])
def test_optimum_equals_lbfgs_on_the_primal(loss, bias, density):
    problem = random_problem(1, density=density, bias=bias)
    solution = solve(problem, loss)
    assert solution.converged
    design = problem.design

    def value_and_gradient(w, cost):
        y, c = np.sign(cost), np.abs(cost)
        margin = y * (design @ w)
        if loss == "logistic":
            values, slopes = np.logaddexp(0, -margin), -expit(-margin)
        else:
            slack = np.maximum(1 - margin, 0)
            values, slopes = slack**2, -2 * slack
        return w @ w / 2 + c @ values, w + design.T @ (c * y * slopes)

    for b in range(problem.cost.shape[1]):
        result = minimize(
            value_and_gradient, np.zeros(design.shape[1]), problem.cost[:, b], jac=True, method="L-BFGS-B",
            options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9},
        )  # fmt: skip
        assert solution.objectives[b] == pytest.approx(result.fun, rel=1e-7)
        np.testing.assert_allclose(solution.weights[:, b], result.x, atol=1e-4)


def liblinear(loss, bias):
    common = {
        "C": 1.0,
        "fit_intercept": bias > 0,
        "intercept_scaling": bias or 1.0,
        "tol": 1e-10,
        "random_state": 0,
    }
    if loss == "logistic":
        return LogisticRegression(solver="liblinear", max_iter=100_000, **common)
    return LinearSVC(loss=loss, dual=True, max_iter=10_000_000, **common)


@ALL_LOSSES
@BIASES
def test_optimum_equals_liblinear(loss, bias):
    """Costs by row, as sample weights; LIBLINEAR regularises its bias feature as we do."""
    problem = random_problem(2, n_samples=60, n_features=6, bias=bias)
    row_cost = np.random.default_rng(0).uniform(0.3, 2.0, 60)
    problem = problem._replace(cost=np.where(problem.cost > 0, 1.0, -1.0) * row_cost[:, None])
    solution = solve(problem, loss)
    assert solution.converged
    for b in range(problem.cost.shape[1]):
        model = liblinear(loss, bias).fit(problem.X, problem.cost[:, b] > 0, sample_weight=row_cost)
        intercept = model.intercept_[0] / bias if bias else 0.0
        theirs = np.append(model.coef_[0], intercept)
        objective = primal(problem, loss, theirs[:, None].repeat(3, 1))[b]
        assert solution.objectives[b] == pytest.approx(objective, rel=1e-7)
        np.testing.assert_allclose(solution.weights[:, b], theirs, atol=1e-4)


def quadratic_program(margins, cost):
    """Minimise 1/2 |w|^2 + cost.slack subject to margins @ w + slack >= 1, slack >= 0; return w and the value."""
    n_samples, n_weights = margins.shape
    G = np.block([[margins, np.eye(n_samples)], [np.zeros((n_samples, n_weights)), np.eye(n_samples)]])
    h = np.repeat([1.0, 0.0], n_samples)
    square, linear = np.repeat([1.0, 0.0], [n_weights, n_samples]), np.append(np.zeros(n_weights), cost)
    result = minimize(
        lambda v: square @ v**2 / 2 + linear @ v,
        np.repeat([0.0, 1.0], [n_weights, n_samples]),
        jac=lambda v: square * v + linear,
        constraints={"type": "ineq", "fun": lambda v: G @ v - h, "jac": lambda v: G},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert (G @ result.x >= h - 1e-9).all()
    return result.x[:n_weights], result.fun


def test_hinge_optimum_equals_a_quadratic_program():
    problem = random_problem(3, n_samples=14, n_features=3, n_block=2, density=1.0)
    solution = solve(problem)
    for b, cost in enumerate(problem.cost.T):
        weights, objective = quadratic_program(np.sign(cost)[:, None] * problem.design, np.abs(cost))
        assert solution.objectives[b] == pytest.approx(objective, rel=1e-7)
        np.testing.assert_allclose(solution.weights[:, b], weights, atol=1e-4)


# --- the certificate -------------------------------------------------------------------------------------------


def dense_multipliers(solution, problem):
    """Multipliers of all pairs."""
    rows, columns, values = solution.multipliers
    A = np.zeros(problem.cost.shape, values.dtype)
    A[rows, columns] = np.abs(values)
    return A


@DTYPES
@ALL_LOSSES
@BIASES
@pytest.mark.parametrize("max_iter", [1, 3, 1000])
def test_certificate_is_primal_minus_dual(dtype, loss, bias, max_iter):
    problem = random_problem(4, bias=bias, dtype=dtype)
    solution = solve(problem, loss, tol=1e-4, max_iter=max_iter, dtype=dtype)
    close = {"rel": 1e-4, "abs": 1e-4} if dtype == np.float32 else {"rel": 1e-9, "abs": 1e-9}
    W, A = solution.weights, dense_multipliers(solution, problem)
    assert W.dtype == A.dtype == dtype
    objectives = primal(problem, loss, W)
    assert solution.objectives == pytest.approx(objectives, rel=close["rel"])
    assert solution.gaps == pytest.approx(objectives - dual(problem, loss, A), **close)
    np.testing.assert_allclose(W, weights_of(problem, A), atol=close["abs"])
    c = np.abs(problem.cost)
    assert (A >= 0).all()
    assert (A[c == 0] == 0).all()
    if loss != "squared_hinge":
        assert (c >= A).all()
    if solution.converged:
        assert solution.gaps.sum() <= 1e-4 * solution.objectives.sum()
        assert solution.history[-1, :2] == pytest.approx([solution.objectives.sum(), solution.gaps.sum()])
    if max_iter == 1000:
        assert solution.converged
    if max_iter == 1:
        assert not solution.converged


@ALL_LOSSES
def test_history_has_a_row_for_each_iteration_and_no_negative_gap(loss):
    problem = random_problem(5, n_samples=100)
    solution = solve(problem, loss, tol=0.0, max_iter=12)
    assert not solution.converged
    assert solution.history.shape == (12, 3)
    objective, gap, seconds = solution.history.T
    assert (gap >= -1e-12 * objective).all()
    assert (np.diff(seconds) >= 0).all()
    done = solve(problem, loss, tol=1e-3)
    assert done.converged
    assert len(done.history) < 100


@ALL_LOSSES
@DTYPES
def test_dual_never_falls(loss, dtype):
    problem = random_problem(6, n_samples=60, dtype=dtype)
    rows = prepare_rows(problem.X, dtype, problem.bias)
    W, A = np.zeros((8, 3), dtype), np.zeros((60, 3), dtype)
    active, n_active = np.empty((3, 60), np.int32), np.zeros(3, np.int64)
    code, rng = LOSSES[loss], np.random.default_rng(0)
    values = [dual(problem, loss, A)]
    for sweep in range(15):
        order = rng.permutation(60)
        if loss == "logistic":
            gaps = np.empty(60, dtype)
            sweep_logistic(*rows[:4], problem.cost, rows.bias, None, W, A, order, dtype(0), gaps)
        else:
            sweep_block(*rows[:4], problem.cost, code, rows.bias, W, A, order, active, n_active)
        values.append(dual(problem, loss, A))
        if loss != "logistic":
            sweep_active(
                *rows[:4], problem.cost, code, rows.bias, rows.dense, W, A,
                active, n_active, 2, 0.0, sweep, np.empty(8, dtype),
            )  # fmt: skip
            values.append(dual(problem, loss, A))
    values = np.array(values)
    assert (values[1] > values[0]).all()
    assert (np.diff(values, axis=0) >= -100 * np.finfo(dtype).eps * np.abs(values[1:])).all()


@ALL_LOSSES
def test_float32_agrees_with_float64_within_their_gaps(loss):
    problem = random_problem(7)
    coarse, fine = solve(problem, loss, tol=1e-4, dtype=np.float32), solve(problem, loss)
    assert coarse.converged
    assert_same_weights(coarse.weights, fine.weights, coarse.gaps + 1e-5, fine.gaps)


def test_same_seed_same_bits_other_seed_same_optimum():
    problem = random_problem(8)
    first, again, other = solve(problem), solve(problem), solve(problem, seed=1)
    np.testing.assert_array_equal(first.weights, again.weights)
    assert not np.array_equal(first.multipliers.values, other.multipliers.values)
    assert_same_optimum(first, other)


# --- invariances -----------------------------------------------------------------------------------------------


@ALL_LOSSES
@invariance
@given(seed=SEEDS, order=st.permutations(range(5)))
def test_permuted_classes_permute_the_weights(loss, seed, order):
    problem = random_problem(seed, n_samples=20, n_block=5)
    first, other = solve(problem, loss), solve(problem._replace(cost=problem.cost[:, order]), loss)
    assert_same_weights(first.weights[:, order], other.weights, first.gaps[order], other.gaps)


@ALL_LOSSES
@invariance
@given(seed=SEEDS, row=st.integers(0, 19))
def test_a_duplicated_row_is_twice_the_cost(loss, seed, row):
    problem = random_problem(seed, n_samples=20)
    twice = problem.cost.copy()
    twice[row] *= 2
    rows = np.append(np.arange(20), row)
    first = solve(problem._replace(X=problem.X[rows], cost=problem.cost[rows]), loss)
    other = solve(problem._replace(cost=twice), loss)
    assert_same_optimum(first, other)


@ALL_LOSSES
@invariance
@given(seed=SEEDS, out=st.sets(st.integers(0, 19), max_size=12))
def test_rows_without_cost_change_nothing(loss, seed, out):
    problem = random_problem(seed, n_samples=20)
    cost = problem.cost.copy()
    cost[list(out)] = 0.0
    ids = np.setdiff1d(np.arange(20), list(out))
    first = solve(problem._replace(cost=cost), loss)
    other = solve(problem._replace(X=problem.X[ids], cost=problem.cost[ids]), loss)
    assert not np.isin(first.multipliers.rows, list(out)).any()
    assert_same_optimum(first, other)


@ALL_LOSSES
@invariance
@given(seed=SEEDS)
def test_doubled_rows_are_fourfold_costs_at_half_the_weights(loss, seed):
    """With v = 2 w: 1/2 |w|^2 + sum c loss(2 w.x) = 1/4 (1/2 |v|^2 + sum 4 c loss(v.x))."""
    problem = random_problem(seed, n_samples=20)
    first = solve(problem._replace(X=problem.X * 2.0, bias=2 * problem.bias), loss)
    other = solve(problem._replace(cost=4 * problem.cost), loss)
    rescaled = first._replace(weights=2 * first.weights, gaps=4 * first.gaps, objectives=4 * first.objectives)
    assert_same_optimum(rescaled, other)


@ALL_LOSSES
def test_storage_of_the_rows_changes_nothing(loss):
    """Unsorted indices and stored zeros; the latter take the path for dense rows."""
    problem = random_problem(9)
    want = solve(problem, loss)
    X = problem.X
    backwards = [np.arange(X.indptr[i], X.indptr[i + 1])[::-1] for i in range(X.shape[0])]
    flip = np.concatenate(backwards)
    unsorted = sp.csr_array((X.data[flip], X.indices[flip], X.indptr), shape=X.shape)
    full = sp.csr_array((X.toarray().ravel(), np.tile(np.arange(7), 40), np.arange(0, 281, 7)), shape=X.shape)
    assert not unsorted.has_sorted_indices
    assert prepare_rows(full).dense
    assert not prepare_rows(X).dense
    for stored in (unsorted, full):
        solution = solve(problem._replace(X=stored), loss)
        assert_same_optimum(solution, want)


# --- small and strange problems --------------------------------------------------------------------------------


@ALL_LOSSES
@DTYPES
def test_no_features_leaves_each_class_its_bias(loss, dtype):
    """An all-zero matrix: with bias 1, one number for each class; n rows of cost 1, all positive."""
    problem = Problem(sp.csr_array((30, 4), dtype=dtype), np.ones((30, 1), dtype), 1.0)
    solution = solve(problem, loss, tol=1e-5, dtype=dtype)
    assert solution.converged
    assert (solution.weights[:-1] == 0).all()
    # w minimises w^2 / 2 + 30 loss(w)
    want = {"hinge": 1.0, "squared_hinge": 60 / 61, "logistic": brentq(lambda w: w - 30 * expit(-w), 0, 9)}[
        loss
    ]
    assert_same_weights(solution.weights[-1:], want, solution.gaps + 1e-6)


@ALL_LOSSES
@DTYPES
@pytest.mark.parametrize("c", [1e-3, 1e4])
def test_empty_rows_without_bias_settle_in_one_sweep(loss, dtype, c):
    """Nothing can be learnt; each multiplier has its optimum at once, whatever the cost."""
    problem = Problem(sp.csr_array((5, 2), dtype=dtype), np.full((5, 2), c, dtype), 0.0)
    solution = solve(problem, loss, tol=1e-6, dtype=dtype)
    assert solution.converged
    assert len(solution.history) <= 2
    assert (solution.weights == 0).all()
    want = {"hinge": c, "squared_hinge": 2 * c, "logistic": c / 2}[loss]
    np.testing.assert_allclose(dense_multipliers(solution, problem), want, rtol=1e-5)


@ALL_LOSSES
def test_one_feature_one_class_equals_a_scalar_search(loss):
    x = np.array([0.5, 1.0, 2.0, -0.7])  # all rows positive
    problem = Problem(sp.csr_array(x[:, None]), np.ones((4, 1)), 0.0)
    solution = solve(problem, loss)
    result = minimize_scalar(
        lambda w: primal(problem, loss, np.array([[w], [0.0]]))[0], bounds=(-3, 3), method="bounded"
    )
    assert solution.objectives[0] == pytest.approx(result.fun, rel=1e-5)
    assert solution.objectives[0] <= result.fun + 1e-8


@ALL_LOSSES
def test_classes_without_cost_and_blocks_without_rows_are_solved_at_zero(loss):
    for n_samples in (3, 0):
        problem = Problem(sp.csr_array((n_samples, 2)), np.zeros((n_samples, 2)), 1.0)
        solution = solve(problem, loss)
        assert solution.converged
        assert (solution.weights == 0).all()
        assert (solution.objectives == 0).all()
        assert (solution.gaps == 0).all()


def test_norms_include_the_bias_and_are_computed_in_double_precision():
    X = sp.csr_array(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    np.testing.assert_array_equal(prepare_rows(X, np.float64, 2.0).norm2, [29.0, 4.0])
    assert (prepare_rows(X, np.float32, 0.0).norm2 > 0).all()
    tiny = prepare_rows(sp.csr_array(np.array([[1e-25]])), np.float32, 0.0)
    assert tiny.norm2[0] > 0  # its square does not exist in float32


def test_costs_of_any_layout_and_type_are_understood():
    problem = random_problem(10)
    cost = np.sign(problem.cost)
    rows = prepare_rows(problem.X, np.float32)
    want = solve_block(rows, cost.astype(np.float32))
    for other in (np.asfortranarray(cost), cost.astype(np.int8)):
        np.testing.assert_array_equal(solve_block(rows, other).weights, want.weights)


@pytest.mark.parametrize(
    ("cost", "options", "message"),
    [
        (np.ones((3, 1)), {}, r"cost has shape \(3, 1\): it must have one row for each of 4 samples"),
        (np.ones(4), {}, r"cost has shape \(4,\)"),
        (
            np.ones((4, 1)),
            {"loss": "hing"},
            "loss='hing' is not known: choose one of 'hinge', 'squared_hinge'",
        ),
        (np.ones((4, 1)), {"max_iter": 0}, "max_iter=0"),
    ],
)
def test_what_does_not_fit_is_refused(cost, options, message):
    rows = prepare_rows(sp.csr_array(np.ones((4, 2))))
    with pytest.raises(ValueError, match=message):
        solve_block(rows, cost, **options)


# --- memory ----------------------------------------------------------------------------------------------------


def test_memory_is_read_from_the_system(monkeypatch):
    text = "MemTotal:        8000 kB\nMemAvailable:    3072 kB\n"
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    assert available_memory() == 3072 * 1024


@pytest.mark.parametrize("answer", ["absent", "MemTotal: 8000 kB\n"])
def test_memory_falls_back_to_what_is_installed(monkeypatch, answer):
    def read_text(self):
        if answer == "absent":
            raise FileNotFoundError(str(self))
        return answer

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert available_memory() == 4_096_000


def test_memory_is_not_checked_where_nobody_tells(monkeypatch):
    def unknown(*_):
        raise OSError("no such thing")

    monkeypatch.setattr(Path, "read_text", unknown)
    monkeypatch.delattr(os, "sysconf")
    assert available_memory() is None
    require_memory(10**30, "The universe", "Take less.")


def test_memory_error_says_what_how_much_and_what_to_do(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda self: f"MemAvailable: {2 * 2**20} kB\n")
    require_memory(2 * 2**30, "As much as there is", "Nothing.")
    with pytest.raises(MemoryError) as caught:
        require_memory(150 * 2**30, "Training 7 classes", "Use fewer features.")
    assert str(caught.value) == (
        "Training 7 classes needs about 150 GiB, but only 2 GiB are free. Use fewer features."
    )
