"""The start of Newton's method by dual sweeps over a tree: its step, its dual, its weights, what it saves."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import entr, expit, log_expit, log_softmax

from arbora.classify import HierarchicalBayesClassifier
from arbora.datasets import make_hierarchical_text
from arbora.engine import ThreadEngine
from arbora.infer.tree import map as tree_map
from arbora.infer.tree import map as tree_start
from arbora.infer.tree.dual import TreeDual
from arbora.infer.tree.map import TreeSweeps, solve_map, suits_sweeps, sweep_start
from arbora.infer.tree.problem import MapProblem
from arbora.kernels.linear.trees import (
    balance_logistic,
    balance_tree,
    entropy_row,
    log1p_row,
    rows_times_covariance,
    sigmoid_row,
)
from arbora.text import LtcTransformer
from support.map_problems import CLASS_NODE, PARENT, make, solve

ABOVE = np.append(-1, PARENT + 1)
PLACE = CLASS_NODE + 1
BOTH = pytest.mark.parametrize("likelihood", ["softmax", "logistic"])


def covariance(variance, above=ABOVE):
    """K by its definition: the variances of the nodes above or at both classes."""
    paths = []
    for node in PLACE:
        path = []
        while node >= 0:
            path.append(node)
            node = above[node]
        paths.append(set(path))
    return np.array([[sum(variance[n] for n in a & b) for b in paths] for a in paths])


def dual_value(sweeps):
    """Dual objective and weights by their definition."""
    L = sweeps.L.astype(np.float64)
    P = np.exp(L) if sweeps.softmax else expit(L)
    entropy = entr(P) if sweeps.softmax else entr(P) + entr(expit(-L))
    U = sweeps.X.toarray().T @ ((sweeps.Y.toarray() - P) * sweeps.cost[:, None])
    K = covariance(sweeps.variance, sweeps.parent)
    return sweeps.cost @ entropy.sum(axis=1) - np.sum(U * (U @ K)) / 2, U @ K


def test_products_with_the_covariance():
    rng = np.random.default_rng(0)
    variance = rng.random(len(ABOVE))
    variance[0] = 0
    U = rng.normal(size=(4, 5))
    want = U @ covariance(variance)
    rows_times_covariance(ABOVE, PLACE, variance, U, 0, 4)
    np.testing.assert_allclose(U, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_step_of_a_row_solves_its_equation(dtype, scale):
    rng = np.random.default_rng(1)
    variance = rng.uniform(0.5, 2, len(ABOVE))
    variance[:2] = 0
    h = (3 * rng.normal(size=5)).astype(dtype)
    log_p = log_softmax(rng.normal(size=5)).astype(dtype)
    p, scratch = np.exp(log_p), np.empty((3, len(ABOVE)), dtype)
    balance_tree(
        ABOVE, PLACE, variance.astype(dtype), dtype(scale), h, log_p, p, scratch[0], scratch[1],
        np.empty(5, dtype), scratch[2], np.empty(5, np.int32), 200, dtype(1e-8),
    )  # fmt: skip
    assert p.sum() == pytest.approx(1, abs=1e-5)
    residual = h - log_p - scale * covariance(variance) @ p.astype(np.float64)
    # In single precision, rounding of p counts with the scale.
    assert np.ptp(residual) < (1e-9 if dtype == np.float64 else 1e-5 + 1e-6 * scale) * max(1, scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_step_of_a_row_of_independent_classes_solves_its_equation(dtype, scale):
    rng = np.random.default_rng(1)
    variance = rng.uniform(0.5, 2, len(ABOVE))
    variance[0] = 0
    h, u = (3 * rng.normal(size=5)).astype(dtype), rng.normal(size=5).astype(dtype)
    p, rest, scratch = np.empty(5, dtype), np.empty(5, dtype), np.empty((3, len(ABOVE)), dtype)
    bits = np.empty(5, np.int32)
    sigmoid_row(u, p, rest, bits)
    np.testing.assert_allclose(p, expit(u), rtol=1e-5)
    np.testing.assert_allclose(rest, expit(-u), rtol=1e-5)
    balance_logistic(
        ABOVE, PLACE, variance.astype(dtype), dtype(scale), h, u, p, rest, scratch[0], scratch[1],
        np.empty(5, dtype), scratch[2], bits, 200, dtype(1e-12),
    )  # fmt: skip
    residual = h - u - scale * covariance(variance) @ expit(u.astype(np.float64))
    assert np.abs(residual).max() < (1e-9 if dtype == np.float64 else 1e-4) * max(1, scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_and_entropies_equal_their_definitions(dtype):
    u = np.concatenate([np.linspace(-80, 80, 999), np.linspace(-1, 1, 999), [0]]).astype(dtype)
    p, rest, found = np.empty((3, len(u)), dtype)
    sigmoid_row(u, p, rest, np.empty(len(u), np.int32))
    exact = u.astype(np.float64)
    close = {"rtol": 1e-5, "atol": 0} if dtype == np.float32 else {"rtol": 1e-12, "atol": 0}
    log1p_row(p, rest, found)
    np.testing.assert_allclose(found, np.log1p(np.exp(-np.abs(exact))), **close)
    entropy_row(u, p, rest, found)
    want = -expit(exact) * log_expit(exact) - expit(-exact) * log_expit(-exact)
    np.testing.assert_allclose(found, want, **close)


@BOTH
@pytest.mark.parametrize("parent", [PARENT, np.array([-1, -1, 0, 1, 1, 2, 2, 3, 0])], ids=["tree", "forest"])
def test_sweeps_raise_the_dual_to_the_optimum_of_newtons_method(parent, likelihood):
    problem = make(likelihood, sparse=True, parent=parent, root_mean=0.0)
    sweeps = TreeSweeps(problem, ThreadEngine(1), np.float64)
    values = [dual_value(sweeps)[0]]
    for _ in range(200):
        sweeps.sweep(1e-9)
        values.append(dual_value(sweeps)[0])
    assert (np.diff(values) >= -1e-10).all()
    np.testing.assert_allclose(sweeps.W, dual_value(sweeps)[1], atol=1e-8)  # no drift
    best = solve(problem, tol=1e-12)
    assert values[-1] == pytest.approx(best.objective, rel=1e-5)


@BOTH
@pytest.mark.parametrize("large", [1.0, 1e4])
def test_dual_never_falls_and_bounds_the_objective(large, likelihood):
    problem = make(likelihood, sparse=True, bias=1.0, root_mean=0.0)
    problem = problem._replace(precision=problem.precision / large)
    sweeps = TreeSweeps(problem, ThreadEngine(1), np.float64)
    before = dual_value(sweeps)[0]
    for _ in range(20):
        sweeps.sweep(1e-2)  # coarse steps
        now = dual_value(sweeps)[0]
        assert now >= before - 1e-10 * abs(before)
        before = now
    assert before <= solve(problem, tol=1e-10).objective * (1 + 1e-9)


def text_problem(likelihood="softmax", n=300, d=400, n_classes=12, seed=0):
    """Sparse rows of unit length, vague precisions: the classes are separable."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.03, rng=rng, format="csr")
    X = sp.csr_array(X.multiply(1 / np.maximum(np.sqrt(X.multiply(X).sum(axis=1)), 1e-9)[:, None]))
    labels = (X @ rng.normal(size=(d, n_classes))).argmax(axis=1)
    parent = np.array([-1, 0, 0, 0, *np.repeat([1, 2, 3], n_classes // 3)])
    Y = sp.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, n_classes))
    class_node, precision = np.arange(4, 4 + n_classes), np.full(len(parent), 1e-3)
    return MapProblem(X, Y, None, parent, class_node, precision, likelihood=likelihood)


def correlated_problem(likelihood, n=300, d=1500, n_classes=6, seed=0):
    """Sparse rows that are mixtures of twenty groups of features: the Hessian has many small eigenvalues."""
    rng = np.random.default_rng(seed)
    groups = rng.random((20, d)) * (rng.random((20, d)) < 0.3)
    X = rng.random((n, 20)) ** 4 @ groups + 0.01 * sp.random_array((n, d), density=0.1, rng=rng)
    X[np.median(X) > X] = 0
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    labels = (X @ rng.normal(size=(d, n_classes))).argmax(axis=1)
    problem = text_problem(likelihood, n, d, n_classes)
    Y = sp.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, n_classes))
    return problem._replace(X=sp.csr_array(X), Y=Y)


@BOTH
def test_start_is_near_the_optimum_and_saves_steps(monkeypatch, likelihood):
    problem = text_problem(likelihood)
    assert suits_sweeps(problem)
    found = solve_map(problem, tol=1e-4, engine=ThreadEngine(1))
    at = tree_map.MapObjective(problem, ThreadEngine(1))
    near = at.evaluate(at.start(sweep_start(problem, ThreadEngine(1))[problem.class_node])).objective
    monkeypatch.setattr(tree_map, "suits_sweeps", lambda problem: False)
    plain = solve_map(problem, tol=1e-4, engine=ThreadEngine(1))
    assert found.objective <= plain.objective * 1.01
    assert near < 2 * plain.objective
    assert len(found.trace) < len(plain.trace)


def test_single_precision_finds_the_same_optimum():
    problem = text_problem()
    single, double = (
        solve_map(problem, tol=1e-4, engine=ThreadEngine(1), dtype=dtype)
        for dtype in (np.float32, np.float64)
    )
    assert single.converged
    assert single.weights.dtype == np.float32
    assert single.objective == pytest.approx(double.objective, rel=1e-2)


def test_newton_that_stops_by_the_objective_is_as_good_as_the_certified_dual():
    problem, engine = text_problem("logistic"), ThreadEngine(1)
    found = solve_map(problem, tol=1e-2, engine=engine, dtype=np.float32, by_objective=True)
    dual = TreeDual(problem, engine).solve(problem.precision, tol=1e-2)
    best = solve_map(problem, tol=1e-9, engine=engine).objective
    assert found.converged
    assert found.objective <= min(dual.objective, 1.01 * best) * (1 + 1e-6)


@BOTH
def test_expected_decrease_is_about_what_the_objective_can_fall(likelihood):
    """Within a factor of three where Newton's method may stop, and not too small at its start."""
    problem, engine = text_problem(likelihood), ThreadEngine(1)
    at = tree_map.MapObjective(problem, engine)
    best = solve_map(problem, tol=1e-9, engine=engine).objective
    start = sweep_start(problem, engine)
    for tol in (0.1, 0.01, 0.001):
        found = solve_map(problem, start, tol=tol, engine=engine, by_objective=True)
        point = at.evaluate(at.start(found.weights[problem.class_node]))
        left, expected = point.objective - best, at.expected_decrease(point, at.expand(point).gradient)
        assert left <= 3 * expected <= 3 * tol * point.objective
        assert left <= tol * point.objective
    point = at.evaluate(at.start(start[problem.class_node]))
    assert at.expected_decrease(point, at.expand(point).gradient) >= (point.objective - best) / 2


@BOTH
def test_little_is_left_to_fall_where_features_are_correlated(likelihood):
    """There, the estimate from the gradient alone is several times too small."""
    problem, engine = correlated_problem(likelihood), ThreadEngine(1)
    assert suits_sweeps(problem)
    best = solve_map(problem, tol=1e-7, max_iter=500, engine=engine, by_objective=True).objective
    for tol in (1e-3, 1e-4):
        found = solve_map(problem, tol=tol, engine=engine, by_objective=True)
        assert found.converged
        assert found.objective - best <= 2 * tol * best


def test_infinite_tolerance_returns_the_start_with_its_objective():
    problem, engine = text_problem("logistic"), ThreadEngine(1)
    start = sweep_start(problem, engine)
    found = solve_map(problem, start, tol=np.inf, engine=engine, by_objective=True)
    at = tree_map.MapObjective(problem, engine)
    assert found.converged
    assert not len(found.trace)
    np.testing.assert_array_equal(found.weights[problem.class_node], start[problem.class_node])
    assert found.objective == at.evaluate(at.start(start[problem.class_node])).objective


@BOTH
def test_sweeps_go_on_with_other_precisions(likelihood):
    """Their weights are those of the new covariance at once, and they end at its optimum."""
    problem = make(likelihood, sparse=True, root_mean=0.0)
    other = problem._replace(precision=3 * problem.precision[::-1].copy())
    sweeps = TreeSweeps(problem, ThreadEngine(1), np.float64)
    sweeps.run()
    sweeps.couple(other.precision)
    np.testing.assert_allclose(sweeps.W, dual_value(sweeps)[1], rtol=1e-9, atol=1e-9)
    for _ in range(200):
        sweeps.sweep(1e-12)
    assert dual_value(sweeps)[0] == pytest.approx(solve(other, tol=1e-10).objective, rel=1e-6)


@BOTH
def test_precisions_are_those_of_newtons_method_in_all_rounds(likelihood, monkeypatch):
    data = make_hierarchical_text(200, 400, n_leaves=8, depth=2, random_state=0)
    X = sp.csr_array(LtcTransformer().fit_transform(data.X_train))
    model = HierarchicalBayesClassifier(data.hierarchy, likelihood=likelihood)
    swept = model.fit(X, data.y_train)
    precisions = swept.precisions_
    assert swept.trace_["steps"][0] == 0
    monkeypatch.setattr("arbora.classify.bayes.map._SWEEPS_ALONE", np.inf)
    exact = model.set_params(tol=1e-5).fit(X, data.y_train)
    assert exact.trace_["steps"][0] > 0
    np.testing.assert_allclose(precisions, exact.precisions_, rtol=0.01)


def test_optimum_as_start_takes_no_step():
    problem, engine = text_problem("logistic"), ThreadEngine(1)
    best = solve_map(problem, tol=1e-9, engine=engine)
    again = solve_map(problem, best.weights, tol=1e-2, engine=engine, by_objective=True)
    assert again.converged
    assert not len(again.trace)


@BOTH
def test_same_bits_for_any_number_of_threads(likelihood):
    problem = text_problem(likelihood)
    one, two = (sweep_start(problem, ThreadEngine(n)) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "change",
    [
        {"likelihood": "logistic"},
        {"X": np.ones((40, 4))},
        {"precision": np.ones((9, 5))},
        {"Y": sp.csr_array((40, 5))},
    ],
    ids=["mean", "dense", "by weight", "no labels"],
)
def test_problems_that_do_not_suit_sweeps(change, monkeypatch):
    monkeypatch.setattr(tree_start, "suits_blocks", lambda *sizes: False)
    problem = make(sparse=True)
    assert suits_sweeps(problem)
    assert not suits_sweeps(problem._replace(**change))


@BOTH
def test_classifier_ends_near_the_best_objective_of_its_precisions(likelihood, monkeypatch):
    rounds = []

    def solve_and_note(given, *rest, **options):
        found = solve_map(given, *rest, **options)
        rounds.append((given, found.objective, options["by_objective"]))
        return found

    monkeypatch.setattr("arbora.classify.bayes.map.solve_map", solve_and_note)
    data = make_hierarchical_text(200, 400, n_leaves=8, depth=2, random_state=0)
    X = LtcTransformer().fit_transform(data.X_train)
    HierarchicalBayesClassifier(data.hierarchy, likelihood=likelihood).fit(sp.csr_array(X), data.y_train)
    given, objective, by_objective = rounds[-1]
    assert by_objective
    assert objective <= 1.01 * solve_map(given, tol=1e-8, engine=ThreadEngine(1)).objective
