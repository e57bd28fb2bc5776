"""Newton's method for coupled logistic classes: generic solvers, certificates by definition, resume, estimator."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from arbora.classify import RecursiveLogisticRegression
from arbora.classify.recursive import training as _joint
from arbora.classify.recursive.coupling import couple
from arbora.core import monitor as monitoring
from arbora.core.checkpoint import Checkpoint
from arbora.core.monitor import Monitor
from arbora.engine import ThreadEngine
from arbora.infer.linear import newton
from arbora.infer.linear.coupled import CoupledSolver
from arbora.infer.linear.newton import CoupledNewton, suits_newton
from arbora.infer.linear.rows import prepare_rows
from arbora.structure import Hierarchy, LabelGraph
from support.linear_problems import conjugate, loss_value, random_problem

TREE = Hierarchy.from_edges(
    [("root", "a"), ("root", "b"), ("a", "0"), ("a", "1"), ("a", "2"), ("b", "3"), ("b", "4")]
)
DAG = Hierarchy.from_edges([*((p, n) for p, n in zip("aaabbb", "012234", strict=True)), ("root", "a")])
GRAPH = LabelGraph.from_edges([("0", "1"), ("1", "2"), ("3", "4")], nodes=list("01234"))
STRUCTURES = pytest.mark.parametrize("structure", [TREE, DAG, GRAPH], ids=["tree", "dag", "graph"])


def factor_of(structure, coupling=0.8):
    return couple(structure, structure.encode(list("01234")), coupling).factor


def make(problem, factor, solver=CoupledNewton, offset=None, n_jobs=1):
    """A problem for either solver, costs by block."""
    rows = prepare_rows(problem.X, problem.X.dtype, problem.bias)

    def costs(block, ids):
        return problem.cost[ids, block.start : block.stop]

    def from_weights(block):
        return offset[:, block.start : block.stop]

    loss = ("logistic",) if solver is CoupledSolver else ()
    engine = ThreadEngine(n_jobs)
    return solver(rows, costs, factor, *loss, engine, None if offset is None else from_weights)


def dense_problem(seed=0, **options):
    return random_problem(seed, **{"n_block": 5, "density": 1.0, **options})


def primal(W, problem, K, offset=0.0):
    """Objective and gradient by their definitions."""
    y, c, D = np.copysign(1.0, problem.cost), np.abs(problem.cost), W - offset
    m = y * (problem.design @ W)
    value = np.vdot(D, np.linalg.solve(K, D.T).T) / 2 + (c * loss_value("logistic", m)).sum()
    return value, np.linalg.solve(K, D.T).T - problem.design.T @ (c * y * expit(-m))


def generic_optimum(problem, K, offset=0.0):
    shape = (problem.design.shape[1], len(K))

    def flat(w):
        value, gradient = primal(w.reshape(shape), problem, K, offset)
        return value, gradient.ravel()

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9}
    result = minimize(flat, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    return result.x.reshape(shape), result.fun


def dense(coef):
    return coef.toarray() if sp.issparse(coef) else coef.copy()


@STRUCTURES
@pytest.mark.parametrize("bias", [0.0, 2.5])
@pytest.mark.parametrize("with_offset", [False, True])
def test_optimum_is_that_of_a_generic_solver(structure, bias, with_offset):
    problem, factor = dense_problem(1, bias=bias), factor_of(structure)
    K = (factor.T @ factor).toarray()
    offset = np.random.default_rng(5).standard_normal((8, 5)) if with_offset else None
    want, value = generic_optimum(problem, K, 0.0 if offset is None else offset)
    solver = make(problem, factor, offset=offset)
    solution = solver.solve(tol=1e-14, max_iter=50)
    assert solution.converged
    np.testing.assert_allclose(solution.certificate.objective, value, rtol=1e-10)
    np.testing.assert_allclose(solver.weights(0, solution), want, atol=1e-5)


@STRUCTURES
def test_agrees_with_coordinate_descent(structure):
    problem, factor = dense_problem(2), factor_of(structure)
    solver, other = make(problem, factor), make(problem, factor, CoupledSolver)
    mine, theirs = solver.solve(tol=1e-12), other.solve(tol=1e-10, max_iter=5000)
    assert theirs.converged
    np.testing.assert_allclose(solver.weights(0, mine), other.weights(0, theirs), atol=1e-3)
    np.testing.assert_allclose(solver.parts(0, mine), other.parts(0, theirs), atol=1e-3)


def test_many_blocks_have_their_weights_and_shared_parts():
    """More classes than a block holds: what blocks share is kept once, and parts add up to weights."""
    problem = dense_problem(3, n_block=40, n_samples=60)
    star = sp.csc_array(sp.vstack([sp.csr_array(np.ones((1, 40))), sp.eye_array(40)]))
    solver = make(problem, star)
    solution = solver.solve(tol=1e-14)
    layout, W = solver.layout, np.hstack([solver.weights(k, solution) for k in range(2)])
    assert len(layout.blocks) == 2
    assert solution.shared.shape == (1, 8)
    want, _ = generic_optimum(problem, (star.T @ star).toarray())
    np.testing.assert_allclose(W, want, atol=1e-4)
    # The part of a leaf is the sum of its own multipliers.
    part = [solver.parts(k, solution) for k in range(2)]
    np.testing.assert_allclose(np.vstack(part) + solution.shared, W.T, atol=1e-10)


@pytest.mark.parametrize("with_offset", [False, True])
def test_gap_is_the_distance_of_primal_and_dual(with_offset):
    """After one step there is one dual point: the gap from its definition, the conjugate written out."""
    problem, factor = dense_problem(4), factor_of(TREE)
    K = (factor.T @ factor).toarray()
    offset = np.random.default_rng(6).standard_normal((8, 5)) if with_offset else None
    solver = make(problem, factor, offset=offset)
    solution = solver.solve(tol=1e-3, max_iter=1)
    W, base = solver.weights(0, solution), 0.0 if offset is None else offset
    y, c = np.copysign(1.0, problem.cost), np.abs(problem.cost)
    a = c * expit(-y * (problem.design @ W))
    U = problem.design.T @ (a * y)
    dual = -conjugate("logistic", a, c).sum() - np.vdot(U @ K, U) / 2 - np.vdot(U, np.zeros_like(U) + base)
    objective = primal(W, problem, K, base)[0]
    np.testing.assert_allclose(solution.certificate.objective, objective, rtol=1e-10)
    np.testing.assert_allclose(solution.certificate.gap, objective - dual, rtol=1e-8)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_gap_bounds_the_error_after_every_step(C):
    problem = dense_problem(7)
    problem = problem._replace(cost=C * problem.cost)
    solver = make(problem, factor_of(GRAPH))
    optimum = solver.solve(tol=1e-14).certificate.objective
    solution = solver.solve(tol=1e-6)
    error = solution.trace["objective"] - optimum
    gaps = solution.trace["gap"] * solution.trace["objective"]
    assert (gaps >= 0).all()
    assert (gaps >= error - 1e-9 * optimum).all()
    assert (np.diff(error) <= 1e-12 * optimum).all()  # the objective never rises
    assert solution.converged
    assert gaps[-1] <= 1e-6 * solution.certificate.objective


def test_curvature_is_the_slope_of_the_gradient():
    solver = make(dense_problem(13), factor_of(DAG))
    solver._prepare()
    Z, E = np.random.default_rng(14).standard_normal((2, 8, 5))
    ahead, behind = solver.evaluate(Z + 1e-5 * E), solver.evaluate(Z - 1e-5 * E)
    slope = (ahead.gradient - behind.gradient) / 2e-5
    np.testing.assert_allclose(solver.hessian_product(solver.evaluate(Z).curvature, E), slope, atol=1e-6)


def test_preconditioner_is_the_inverse_for_equal_curvatures():
    solver, rng = make(dense_problem(15), factor_of(GRAPH)), np.random.default_rng(16)
    solver._prepare()
    curvature, E = np.outer(np.ones(40), rng.random(5)), rng.standard_normal((8, 5))
    np.testing.assert_allclose(
        solver.preconditioner(curvature)(solver.hessian_product(curvature, E)), E, atol=1e-10
    )


def test_number_of_threads_changes_no_bit(monkeypatch):
    monkeypatch.setattr(newton, "_CHUNK", 16)
    problem, factor = dense_problem(8, n_samples=300), factor_of(TREE)
    first, two = (make(problem, factor, n_jobs=n).solve(tol=1e-8) for n in (1, 2))
    np.testing.assert_array_equal(first.multipliers, two.multipliers)
    np.testing.assert_array_equal(first.trace["gap"], two.trace["gap"])


def test_interrupted_fit_resumes_to_the_same_bits(tmp_path, monkeypatch):
    class Cut(Exception):
        pass

    class Cutting:
        n = 0

        def update(self, **shown):
            self.n += 1
            if self.n == 3:
                raise Cut

    monkeypatch.setattr(monitoring, "_SAVE_SHARE", 0.0)  # save after every step
    problem, factor = dense_problem(9), factor_of(TREE)
    whole = make(problem, factor).solve(tol=1e-10)
    assert len(whole.trace) > 3
    checkpoint = Checkpoint(tmp_path / "fit", "a fit")
    with pytest.raises(Cut):
        make(problem, factor).solve(tol=1e-10, checkpoint=checkpoint, progress=Cutting())
    resumed = make(problem, factor).solve(tol=1e-10, checkpoint=checkpoint)
    np.testing.assert_array_equal(resumed.multipliers, whole.multipliers)
    assert len(resumed.trace) == len(whole.trace)
    # A finished fit takes no further step
    again = make(problem, factor).solve(tol=1e-10, checkpoint=checkpoint)
    assert again.trace == resumed.trace
    assert again.certificate == resumed.certificate


def test_failed_fit_frees_its_arrays(monkeypatch):
    def fails(*params):
        raise MemoryError

    solver = make(dense_problem(9), factor_of(TREE))
    before = set(vars(solver))
    for what in ("_sum", "evaluate"):  # while the arrays are made, and while they are used
        with monkeypatch.context() as patch:
            patch.setattr(CoupledNewton, what, fails)
            with pytest.raises(MemoryError):
                solver.solve()
        assert set(vars(solver)) == before
    assert solver.solve(tol=1e-6).converged


def test_gap_is_counted_from_the_best_bound_before_a_resume(tmp_path):
    """A bound close to the optimum that was found before an interrupt is used after the resume."""
    problem, factor = dense_problem(9), factor_of(TREE)
    bound = make(problem, factor).solve(tol=1e-14).certificate.objective * (1 - 1e-9)
    checkpoint = Checkpoint(tmp_path / "fit", "a fit")
    before = Monitor(1e-9, 2, checkpoint=checkpoint)
    before.record(1e3, gap=1e3 - bound)
    before.keep("newton", {"Z": np.zeros((8, 5))})
    certificate = make(problem, factor).solve(tol=1e-9, max_iter=2, checkpoint=checkpoint).certificate
    assert certificate.gap == pytest.approx(certificate.objective - bound, rel=1e-6)
    assert certificate.gap < make(problem, factor).solve(tol=1e-9, max_iter=1).certificate.gap


def test_warm_start_from_another_solution():
    problem, factor = dense_problem(10), factor_of(TREE)
    cold = make(problem, factor).solve(tol=1e-8)
    assert len(cold.trace) > 2
    warm = make(problem, factor).solve(tol=1e-8, multipliers=cold.multipliers)
    assert len(warm.trace) == 1
    other = factor_of(DAG)
    moved = make(problem, other).solve(tol=1e-12, multipliers=cold.multipliers)
    want = make(problem, other).solve(tol=1e-12)
    np.testing.assert_allclose(moved.certificate.objective, want.certificate.objective, rtol=1e-10)


def test_zero_costs_huge_features_and_a_singular_covariance():
    problem = dense_problem(11)
    nothing = make(problem._replace(cost=np.zeros_like(problem.cost)), factor_of(TREE)).solve(tol=1e-3)
    assert nothing.converged
    assert not nothing.multipliers.any()
    huge = problem._replace(X=sp.csr_array(problem.X * 1e6))
    assert make(huge, factor_of(TREE)).solve(tol=1e-6).converged
    one_part = sp.csc_array(np.ones((1, 5)))  # all classes have the same weights: K is singular
    solver, other = make(problem, one_part), make(problem, one_part, CoupledSolver)
    solution, theirs = solver.solve(tol=1e-8), other.solve(tol=1e-6, max_iter=2000)
    np.testing.assert_allclose(solution.certificate.objective, theirs.certificate.objective, rtol=1e-5)
    W = solver.weights(0, solution)
    np.testing.assert_allclose(W, W[:, :1] * np.ones(5), atol=1e-12)


def test_sparse_rows_are_refused():
    with pytest.raises(ValueError, match=re.escape("the rows are sparse")):
        make(random_problem(0, n_block=5), factor_of(TREE))


def test_choice_of_newton_depends_on_sizes():
    rows = prepare_rows(sp.csr_array(np.ones((4, 3))))
    assert suits_newton(rows, 5, "logistic")
    assert not suits_newton(rows, newton.MAX_CLASSES + 1, "logistic")
    assert not suits_newton(prepare_rows(sp.csr_array(np.ones((1001, 1001)))), 5, "logistic")
    assert not suits_newton(rows._replace(n_samples=newton.MAX_NUMBERS // 8 + 1), 5, "logistic")
    assert not suits_newton(rows._replace(dense=False), 5, "logistic")
    assert not suits_newton(prepare_rows(sp.csr_array(np.ones((3, 4)))), 5, "logistic")
    assert not suits_newton(rows, 5, "squared_hinge")


# --- through the estimator -----------------------------------------------------------------------------------------


@pytest.fixture
def data():
    rng = np.random.default_rng(12)
    y = rng.integers(5, size=120)
    X = rng.standard_normal((5, 6))[y] + rng.standard_normal((120, 6))
    return X, y.astype(str)


def model(**options):
    settings = {
        "C": 1.0,
        "structure": TREE,
        "tol": 1e-10,
        "max_iter": 5000,
        "calibration": None,
    }
    return RecursiveLogisticRegression(**{**settings, **options})


@STRUCTURES
@pytest.mark.parametrize("prune_below", [None, 0.0])
def test_estimator_gives_what_coordinate_descent_gives(data, structure, prune_below, monkeypatch):
    X, y = data

    def train():
        fitted = model(structure=structure, prune_below=prune_below, coupling=0.7, tol=1e-8).fit(
            X[:100], y[:100]
        )
        first = dense(fitted.coef_), fitted.intercept_.copy()
        fitted.partial_fit(X[100:], y[100:])  # from an offset
        return fitted.n_iter_, *first, dense(fitted.coef_), fitted.intercept_

    steps, *mine = train()
    monkeypatch.setattr(_joint, "suits_newton", lambda *sizes: False)
    rounds, *theirs = train()
    assert steps < rounds
    for single, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(single, other, atol=2e-3)


def test_weight_two_equals_a_repeated_row_and_weight_zero_no_row(data):
    X, y = data
    weight = np.ones(len(y))
    weight[:10], weight[10:20] = 2.0, 0.0
    rows = np.r_[:10, :10, 20 : len(y)]
    weighted = model(tol=1e-12).fit(X, y, sample_weight=weight)
    repeated = model(tol=1e-12).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5)


def test_path_of_costs(data):
    X, y = data
    search = {"costs": [0.1, 1.0], "couplings": [0.0, 1.0], "cv": 2}
    searched = model(C="cv", coupling="cv", search=search, tol=1e-3).fit(X, y)
    np.testing.assert_allclose(
        searched.coef_, model(C=searched.C_, coupling=searched.coupling_, tol=1e-3).fit(X, y).coef_
    )


def test_reaching_max_iter_warns(data):
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        fitted = model(max_iter=2).fit(*data)
    assert fitted.n_iter_ == 2
    assert fitted.duality_gap_ > 1e-10
