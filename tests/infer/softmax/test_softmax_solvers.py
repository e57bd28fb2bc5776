"""The solvers of multinomial logistic regression, on one objective."""

import tracemalloc
from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from sklearn.linear_model import LogisticRegression

from arbora.core.monitor import Monitor
from arbora.engine import ThreadEngine
from arbora.infer.softmax.dm import solve_dm, tighten
from arbora.infer.softmax.dual import solve_dual
from arbora.infer.softmax.lc import log_total, merge, partial_sums
from arbora.infer.softmax.newton import solve_newton
from arbora.infer.softmax.problem import Objective, SoftmaxProblem, record_gradient
from arbora.infer.softmax.shards import solve_lc
from arbora.infer.softmax.solve import memory_of, solve
from support.multinomial_problems import (
    dual_value,
    objective,
    parts,
    probabilities,
    random_problem,
    random_rows,
    text_problem,
    tree_factor,
)

EXACT = ("auto", "lc", "admm", "lbfgs")


def solved(problem, solver, tol=2e-7, max_iter=2000, n_jobs=1):
    monitor = Monitor(tol, max_iter)
    return solve(problem, solver, monitor, ThreadEngine(n_jobs)), monitor


def generic_optimum(problem):
    """Optimum by L-BFGS of scipy, values by the definition; the gradient is checked by another test."""
    shape = problem.shape
    work = Objective(problem)

    def value_and_gradient(z):
        point = work.evaluate(z.reshape(shape))
        return objective(problem, z.reshape(shape)), work.gradient(point).ravel()

    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 100_000}
    return minimize(
        value_and_gradient, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B", options=options
    )


@pytest.mark.parametrize("factor", [None, tree_factor()], ids=["flat", "tree"])
def test_derivatives_are_those_of_the_objective(factor):
    problem = random_problem(factor=factor)
    work, rng = Objective(problem), np.random.default_rng(1)
    Z, E = rng.normal(size=(2, *problem.shape))
    point, h = work.evaluate(Z), 1e-5
    assert point.objective == pytest.approx(objective(problem, Z), rel=1e-12)
    slope = (objective(problem, Z + h * E) - objective(problem, Z - h * E)) / (2 * h)
    assert np.vdot(work.gradient(point), E) == pytest.approx(slope, rel=1e-6)
    ahead, behind = (work.gradient(work.evaluate(Z + s * h * E)) for s in (1, -1))
    np.testing.assert_allclose(
        work.hessian_product(point, E), (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("factor", [None, tree_factor()], ids=["flat", "tree"])
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 30.0])
def test_gap_of_any_weights_is_half_the_square_of_the_gradient_and_bounds_the_optimum(factor, scale):
    problem = random_problem(factor=factor)
    Z = scale * np.random.default_rng(2).normal(size=problem.shape)
    work = Objective(problem)
    point = work.evaluate(Z)
    monitor = Monitor(tol=0.1, max_iter=1)
    record_gradient(monitor, point.objective, work.gradient(point))
    gap = monitor.gap
    P = np.maximum(probabilities(problem, Z), 1e-300)
    assert gap == pytest.approx(point.objective - dual_value(problem, P), rel=1e-8, abs=1e-8)
    assert gap >= point.objective - generic_optimum(problem).fun >= -1e-9 * point.objective


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("sparse", [True, False])
def test_agrees_with_scikit_learn(solver, sparse):
    problem = random_problem(sparse)
    known = LogisticRegression(fit_intercept=False, tol=1e-12, max_iter=10_000)
    W = known.fit(problem.X, problem.labels, sample_weight=problem.cost).coef_.T
    solution, _ = solved(problem, solver, tol=1e-7)
    best = objective(problem, W)
    assert solution.converged
    assert solution.objective == pytest.approx(best, rel=1e-6)
    assert objective(problem, parts(problem, solution)) == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(solution.Z, W, atol=1e-2)


@pytest.mark.parametrize("solver", EXACT)
def test_structure_agrees_with_a_generic_optimiser(solver):
    problem = random_problem(factor=tree_factor())
    solution, _ = solved(problem, solver)
    assert solution.objective == pytest.approx(generic_optimum(problem).fun, rel=1e-6)
    assert objective(problem, parts(problem, solution)) == pytest.approx(solution.objective, rel=1e-9)


@pytest.mark.parametrize("solver", [*EXACT, "dm"])
@pytest.mark.parametrize("factor", [None, tree_factor()], ids=["flat", "tree"])
def test_reported_gap_is_certified_and_threads_change_nothing(solver, factor):
    problem = random_problem(factor=factor, n_samples=40)
    solution, monitor = solved(problem, solver, tol=1e-3)
    if solver != "dm":
        assert solution.objective == pytest.approx(objective(problem, parts(problem, solution)), rel=1e-9)
        assert solution.objective - solution.gap <= generic_optimum(problem).fun
    assert 0 <= solution.gap <= 1e-3 * solution.objective
    assert (np.diff(monitor.trace["seconds"]) >= 0).all()
    again, _ = solved(problem, solver, tol=1e-3, n_jobs=2)
    np.testing.assert_array_equal(again.Z, solution.Z)


@pytest.mark.parametrize("factor", [None, tree_factor()], ids=["flat", "tree"])
def test_lc_objective_never_rises(factor):
    monitor = Monitor(1e-6, 1000)
    solve_lc(random_problem(factor=factor), monitor, ThreadEngine())
    assert monitor.trace.is_monotone("objective", increasing=False, tolerance=1e-13)


def test_lc_merges_blocks_by_two_numbers_per_row():
    S = np.random.default_rng(0).normal(scale=300, size=(20, 9))
    sums = [partial_sums(S[:, :4]), partial_sums(S[:, 4:5]), partial_sums(S[:, 5:])]
    np.testing.assert_allclose(log_total(reduce(merge, sums)), logsumexp(S, axis=1), rtol=1e-13)


def dm_bound(problem, Z, a):
    S = problem.X @ Z - a[:, None]
    rows = a + np.logaddexp(S, 0).sum(axis=1)
    at_labels = (S + a[:, None])[np.arange(len(S)), problem.labels]
    return 0.5 * (Z**2).sum() + problem.cost @ (rows - at_labels)


def test_dm_minimises_its_bound_which_lies_above_the_softmax():
    problem, monitor = random_problem(n_samples=30, n_features=4), Monitor(1e-8, 1000)
    solution = solve_dm(problem, monitor, ThreadEngine())
    trace = monitor.trace
    assert trace.is_monotone("objective", increasing=False, tolerance=1e-13)
    assert (trace["objective"] > trace["softmax"]).all()
    assert trace.last["softmax"] == pytest.approx(objective(problem, parts(problem, solution)), rel=1e-9)
    n = problem.shape[0] * problem.shape[1]

    def value(x):
        return dm_bound(problem, x[:n].reshape(problem.shape), x[n:])

    start = np.concatenate([solution.Z.ravel(), tighten([problem.X @ solution.Z], np.zeros(30))])
    assert value(start) == pytest.approx(solution.objective, rel=1e-9)
    better = minimize(value, start * 0.9, method="L-BFGS-B", options={"maxfun": 10**5, "ftol": 1e-13})
    assert solution.objective <= better.fun * (1 + 1e-8)
    assert trace.last["softmax"] > solved(problem, "auto")[0].objective * (1 + 1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0, 1e4])
def test_dm_shift_is_the_root(scale):
    S = np.random.default_rng(0).normal(scale=scale, size=(50, 7))
    a = tighten([S[:, :3], S[:, 3:]], np.zeros(50))
    np.testing.assert_allclose(expit(S - a[:, None]).sum(axis=1), 1.0, atol=1e-9)


def test_admm_residuals_go_down():
    _, monitor = solved(random_problem(), "admm", tol=1e-10)
    for name in ("primal", "dual"):
        values = monitor.trace[name]
        assert values[-1] < 1e-3 * values.max()
    assert monitor.trace["rho"].min() > 0


@pytest.mark.parametrize("factor", [None, tree_factor()], ids=["flat", "tree"])
def test_dual_ascends_and_falls_back_to_newton_where_it_is_slow(factor):
    problem = random_problem(factor=factor)
    hard = problem._replace(cost=1e4 * problem.cost)
    monitor = Monitor(1e-6, 1000)
    impatient = solve_dual(hard, monitor, patient=False)
    assert not impatient.converged
    assert len(monitor.trace) < 100
    solution, _ = solved(hard, "auto", tol=1e-8)
    assert solution.objective == pytest.approx(generic_optimum(hard).fun, rel=1e-6)
    assert solve_dual(problem, Monitor(1e-10, 3000)).converged


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [1.0, 1e2, 1e3, 1e4])
def test_dual_needs_few_sweeps_for_any_cost(C, dtype):
    assert solve_dual(text_problem(C, dtype=dtype), Monitor(1e-3, 20, dtype=dtype)).converged


@pytest.mark.parametrize("seed", range(3))
def test_newton_continues_while_the_objective_falls(seed):
    hard = text_problem(1e6, 300, 2000, 60, 60, n_own=1, skew=1.0, seed=seed)
    assert solve_newton(hard, Monitor(1e-3, 100)).converged


@pytest.mark.parametrize("solver", EXACT)
def test_duplicated_rows_are_weights(solver):
    X, labels, cost = random_rows(n_samples=30)
    times = np.random.default_rng(3).integers(1, 4, 30)
    twice = SoftmaxProblem(
        sp.csr_array(np.repeat(X, times, axis=0)), np.repeat(labels, times), np.repeat(cost, times), 5
    )
    weighted = SoftmaxProblem(sp.csr_array(X), labels, cost * times, 5)
    left, right = (solved(problem, solver)[0] for problem in (twice, weighted))
    assert objective(weighted, left.Z) == pytest.approx(right.objective, rel=1e-6)
    assert left.objective == pytest.approx(right.objective, rel=1e-6)


@pytest.mark.parametrize("solver", [*EXACT, "dm"])
@pytest.mark.parametrize("scale", [1e-4, 1e3])
def test_extreme_scales_stay_finite_and_are_certified(solver, scale):
    problem = random_problem(n_samples=30, n_features=4)
    problem = problem._replace(X=problem.X * scale)
    solution, monitor = solved(problem, solver, tol=1e-2, max_iter=100)
    assert np.isfinite(solution.Z).all()
    assert np.isfinite(monitor.trace["objective"]).all()
    if solver in ("auto", "lbfgs"):
        assert solution.converged


@pytest.mark.parametrize("solver", EXACT)
def test_separable_data(solver):
    X = np.repeat(np.eye(3), 4, axis=0) * 2
    problem = SoftmaxProblem(sp.csr_array(X), np.repeat(np.arange(3), 4), np.full(12, 5.0), 3)
    solution, _ = solved(problem, solver, tol=1e-5, max_iter=5000)
    assert solution.converged
    assert (np.argmax(X @ solution.Z, axis=1) == problem.labels).all()
    # By symmetry w_k = a e_k - b (1 - e_k): a problem in two numbers.
    best = minimize(
        lambda v: objective(problem, (v[0] + v[1]) * np.eye(3) - v[1]), [0.1, 0.1], method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 5000},
    )  # fmt: skip
    assert solution.objective == pytest.approx(best.fun, rel=1e-5)


@pytest.mark.parametrize("solver", [*EXACT, "dm"])
def test_a_class_without_rows_has_an_optimum(solver):
    problem = random_problem()._replace(n_classes=7)
    solution, _ = solved(problem, solver)
    assert solution.converged
    if solver != "dm":
        assert solution.objective == pytest.approx(generic_optimum(problem).fun, rel=1e-6)
        P = probabilities(problem, solution.Z)
        np.testing.assert_allclose(P[:, 5], P[:, 6], atol=1e-2)


@pytest.mark.parametrize("solver", [*EXACT, "dm"])
def test_single_precision(solver):
    double, single = (random_problem(dtype=dtype) for dtype in (np.float64, np.float32))
    left, right = (solved(problem, solver, tol=1e-4)[0] for problem in (double, single))
    assert right.converged
    assert right.objective == pytest.approx(left.objective, rel=2e-4)
    assert right.Z.dtype == (np.float64 if solver == "lbfgs" else np.float32)


def test_newton_uses_its_start():
    problem = random_problem(sparse=False)
    cold = Monitor(1e-10, 100)
    best = solve_newton(problem, cold)
    warm = Monitor(1e-10, 100)
    solve_newton(problem, warm, start=best.Z)
    assert len(warm.trace) == 1 < len(cold.trace)


def test_lc_needs_no_more_memory_than_estimated():
    rng = np.random.default_rng(0)
    X = sp.random_array((100, 2000), density=0.005, format="csr", rng=rng)
    problem = SoftmaxProblem(X, rng.integers(0, 1000, 100), np.ones(100), 1000)
    solve_lc(problem, Monitor(0.1, 1), ThreadEngine(1))
    tracemalloc.start()
    solve_lc(problem, Monitor(0.1, 3), ThreadEngine(1))
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 1.25 * memory_of(problem, "lc")  # a second copy of the weights would be 1.6 times that


def test_memory_is_checked_before_training():
    problem = random_problem()
    assert memory_of(problem, "lc") < memory_of(problem, "dm")
    assert memory_of(problem, "lbfgs") > memory_of(problem, "auto")
    huge = SoftmaxProblem(sp.csr_array((10**6, 10**7)), np.zeros(10**6, int), np.ones(10**6), 10**6)
    with pytest.raises(MemoryError, match="1000000 classes"):
        solve(huge, "lc", Monitor(1e-3, 10), ThreadEngine())
