"""MAP weights of a tree: optima of a generic solver, finite differences, reductions, extreme input."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from arbora.engine import ThreadEngine
from arbora.infer.tree import map as tree_map
from arbora.infer.tree.blocks import TreeBlocks, class_blocks
from arbora.infer.tree.map import laplace_diagonal, laplace_marginals
from arbora.infer.tree.problem import MapProblem, TreePrior
from support.map_problems import CLASS_NODE, N_FEATURES, PARENT, make, solve


def dense(problem):
    X = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    return np.hstack([X, np.full((len(X), 1), problem.bias)]) if problem.bias else X


def deviations(problem, W):
    parent = np.asarray(problem.parent)[:, None]
    return W - np.where(parent >= 0, W[parent.ravel()], problem.root_mean)


def definition(w, problem):
    """Objective and gradient over all nodes, as the model is written."""
    W = w.reshape(len(problem.parent), -1)
    X, Y, r = dense(problem), problem.Y.toarray(), problem.row_weight[:, None]
    S = X @ W[problem.class_node].T
    if problem.likelihood == "softmax":
        loss = (r * Y * (logsumexp(S, axis=1, keepdims=True) - S)).sum()
        slopes = r * (softmax(S, axis=1) * Y.sum(axis=1, keepdims=True) - Y)
    else:
        loss = (r * (np.logaddexp(0, S) - Y * S)).sum()
        slopes = r * (expit(S) - Y)
    pulls = problem.precision.reshape(len(W), -1) * deviations(problem, W)
    gradient = pulls.copy()
    gradient[problem.class_node] += slopes.T @ X
    child = np.flatnonzero(problem.parent >= 0)
    np.subtract.at(gradient, problem.parent[child], pulls[child])
    return loss + (pulls * deviations(problem, W)).sum() / 2, gradient.ravel()


@pytest.fixture(params=["blocks", "diagonal"])
def path(request, monkeypatch):
    """Both preconditioners; small problems would always take the first."""
    if request.param == "diagonal":
        monkeypatch.setattr(tree_map, "suits_blocks", lambda *sizes: False)


BOTH = pytest.mark.parametrize("likelihood", ["softmax", "logistic"])
PRECISIONS = pytest.mark.parametrize("by_weight", [False, True], ids=["by node", "by weight"])


@pytest.mark.usefixtures("path")
@BOTH
@PRECISIONS
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bias", [1.3, 0.0])
def test_optimum_is_that_of_a_generic_solver(likelihood, by_weight, sparse, bias):
    problem = make(likelihood, by_weight, sparse, bias=bias)
    solution = solve(problem)
    start = np.zeros(solution.weights.size)
    options = {"gtol": 1e-9, "maxiter": 5000}
    generic = minimize(definition, start, (problem,), "BFGS", jac=True, options=options)
    assert solution.converged
    assert solution.weights.shape == (len(PARENT), N_FEATURES + (bias != 0))
    np.testing.assert_allclose(solution.weights.ravel(), generic.x, atol=1e-7)
    value, gradient = definition(solution.weights.ravel(), problem)
    assert solution.objective == pytest.approx(value, rel=1e-12)
    assert solution.gradient_norm == pytest.approx(np.linalg.norm(gradient), abs=1e-10)


@BOTH
@PRECISIONS
def test_derivatives_by_differences(likelihood, by_weight):
    objective = tree_map.MapObjective(make(likelihood, by_weight, sparse=True), ThreadEngine())
    rng = np.random.default_rng(1)
    W, E = rng.normal(size=(2, N_FEATURES + 1, 5))
    point, h = objective.evaluate(W), 1e-5
    ahead, behind = (objective.evaluate(W + sign * h * E) for sign in (1, -1))
    at = objective.expand(point)
    slope = (ahead.objective - behind.objective) / (2 * h)
    assert np.vdot(at.gradient, E) == pytest.approx(slope, rel=1e-7)
    difference = (objective.expand(ahead).gradient - objective.expand(behind).gradient) / (2 * h)
    np.testing.assert_allclose(at.product(E), difference, rtol=1e-6, atol=1e-6)


def tree_precision(parent, a):
    """Precision matrix of all nodes, for one feature."""
    T = np.diag(a)
    for n, p in enumerate(parent):
        if p >= 0:
            T[p, p] += a[n]
            T[[n, p], [p, n]] -= a[n]
    return T


@pytest.mark.parametrize("n_features", [1, 16, 37])
@PRECISIONS
def test_passes_over_the_tree_are_products_with_its_matrices(n_features, by_weight):
    rng = np.random.default_rng(n_features)
    a = np.exp(rng.normal(size=(len(PARENT), n_features)))
    a = a if by_weight else np.repeat(a[:, :1], n_features, axis=1)
    prior = TreePrior(PARENT, CLASS_NODE, a if by_weight else a[:, 0], ThreadEngine())
    R, D = rng.normal(size=(n_features, 5)), rng.random((n_features, 5))
    solved, nodes, pull = prior.solve(R, D), prior.all_nodes(R), prior.pull(R)
    covaried = prior.solve(R, 0 * D)
    close = {"rtol": 1e-12, "atol": 1e-12}
    for i in range(n_features):
        covariance = np.linalg.inv(tree_precision(PARENT, a[:, i]))[:, CLASS_NODE]
        K = covariance[CLASS_NODE]
        np.testing.assert_allclose(covaried[i], K @ R[i], **close)
        np.testing.assert_allclose(nodes[:, i], covariance @ np.linalg.solve(K, R[i]), **close)
        np.testing.assert_allclose(pull[i], np.linalg.solve(K, R[i]), **close)
        M = np.linalg.inv(K) + np.diag(D[i])
        np.testing.assert_allclose(solved[i], np.linalg.solve(M, R[i]), **close)


def test_elimination_with_blocks_is_the_inverse():
    rng = np.random.default_rng(0)
    a, half = np.exp(rng.normal(size=(len(PARENT), 3))), rng.normal(size=(5, 3, 3))
    blocks, R = half @ half.swapaxes(1, 2), rng.normal(size=(3, 5))
    M = np.zeros((5, 3, 5, 3))
    for i in range(3):
        K = np.linalg.inv(tree_precision(PARENT, a[:, i]))[np.ix_(CLASS_NODE, CLASS_NODE)]
        M[:, i, :, i] = np.linalg.inv(K)
    M[np.arange(5), :, np.arange(5)] += blocks
    Z = TreeBlocks(PARENT, CLASS_NODE, a, blocks).solve(R)
    np.testing.assert_allclose(Z.T.ravel(), np.linalg.solve(M.reshape(15, 15), R.T.ravel()))


def test_blocks_of_classes_keep_all_curvature_and_the_rows_that_matter():
    rng = np.random.default_rng(0)
    X, h = rng.normal(size=(50, 3)), np.full((50, 2), 1e-9)
    h[7], h[:, 1] = 0.2, 0.1
    one, even = class_blocks(X, h, X.T @ X / 50, ThreadEngine())
    np.testing.assert_allclose(one, 0.2 * np.outer(X[7], X[7]), atol=1e-6)
    np.testing.assert_allclose(even, 0.1 * X.T @ X)


def test_classes_that_share_nothing_are_multinomial_logistic_regression():
    problem = make(row_weight=np.ones(40), bias=0.0, root_mean=0.0)
    problem = problem._replace(
        parent=np.array([-1] * 4), class_node=np.arange(4), Y=problem.Y[:, :4], precision=np.full(4, 0.5)
    )
    model = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10, max_iter=1000)
    model.fit(problem.X, problem.Y.indices)
    np.testing.assert_allclose(solve(problem).weights, model.coef_, atol=1e-6)


@BOTH
@PRECISIONS
def test_nodes_without_a_class_are_at_their_conditional_means(likelihood, by_weight):
    problem = make(likelihood, by_weight)
    W = solve(problem, tol=1e-3).weights  # already before the optimum
    a = problem.precision.reshape(len(PARENT), -1)
    for n in np.setdiff1d(np.arange(len(PARENT)), CLASS_NODE):
        above = W[PARENT[n]] if PARENT[n] >= 0 else problem.root_mean
        below = np.flatnonzero(n == PARENT)
        mean = (a[n] * above + (a[below] * W[below]).sum(axis=0)) / (a[n] + a[below].sum(axis=0))
        np.testing.assert_allclose(W[n], mean, atol=1e-10)
    np.testing.assert_array_equal(W[8], W[0])


def test_a_chain_of_nodes_is_one_node_whose_variances_add():
    problem = make()
    depth, n = 100, 100 * 5
    chains = np.arange(n) - 5
    chains[:5] = -1
    long = problem._replace(parent=chains, class_node=np.arange(n - 5, n), precision=np.full(n, 1.0 * depth))
    short = problem._replace(parent=np.full(5, -1), class_node=np.arange(5), precision=np.ones(5))
    long_weights = solve(long).weights
    np.testing.assert_allclose(long_weights[-5:], solve(short).weights, atol=1e-8)
    steps = np.diff(long_weights[::5], axis=0)
    np.testing.assert_allclose(steps, np.broadcast_to(steps.mean(axis=0), steps.shape), atol=1e-8)


@BOTH
def test_star_of_many_leaves(likelihood):
    rng = np.random.default_rng(0)
    n_leaves, n_samples = 20_000, 50
    Y = sp.csr_array((np.ones(n_samples), (np.arange(n_samples), rng.integers(0, n_leaves, n_samples))),
                     shape=(n_samples, n_leaves))  # fmt: skip
    star = np.zeros(n_leaves + 1, np.int64)
    star[0] = -1
    problem = MapProblem(
        rng.normal(size=(n_samples, 5)), Y, None, star, np.arange(1, n_leaves + 1), np.ones(n_leaves + 1), 0.0,
        likelihood, 1.0,
    )  # fmt: skip
    solution = solve(problem, tol=1e-4)
    assert solution.converged
    mean = solution.weights.sum(axis=0) - solution.weights[0]
    np.testing.assert_allclose(solution.weights[0], mean / (n_leaves + 1), atol=1e-4)


@pytest.mark.usefixtures("path")
@BOTH
def test_a_feature_that_never_occurs_stays_at_the_mean_of_the_roots(likelihood):
    X = np.insert(make().X, 2, 0.0, axis=1)
    mean = np.arange(6.0) / 10
    W = [
        solve(make(likelihood, X=x, root_mean=mean, precision=np.ones(len(PARENT)))).weights
        for x in (X, sp.csr_array(X))
    ]
    np.testing.assert_allclose(W[1][:, 2], mean[2], rtol=1e-15)
    np.testing.assert_allclose(*W, atol=1e-9)


@pytest.mark.usefixtures("path")
@BOTH
@PRECISIONS
def test_precisions_of_all_magnitudes(likelihood, by_weight):
    problem = make(likelihood, by_weight)
    rng = np.random.default_rng(3)
    problem = problem._replace(precision=10 ** rng.uniform(-8, 8, problem.precision.shape))
    solution = solve(problem, tol=1e-6, max_iter=200)
    assert solution.converged
    zero = np.broadcast_to(problem.root_mean, solution.weights.shape).ravel()
    steps = solution.weights.ravel() - zero
    value, gradient = definition(solution.weights.ravel(), problem)
    assert value < definition(zero, problem)[0]
    # What is left to gain along the way that was gone.
    assert abs(gradient @ steps) < 1e-4 * value


@BOTH
def test_separable_rows(likelihood):
    problem = make(likelihood, X=np.repeat(np.eye(5), 8, axis=0) * 100, root_mean=0.0)
    problem = problem._replace(Y=sp.csr_array(np.repeat(np.eye(5), 8, axis=0)), precision=np.full(9, 1e-6))
    solution = solve(problem, tol=1e-6)
    assert solution.converged
    scores = dense(problem) @ solution.weights[CLASS_NODE].T
    np.testing.assert_array_equal(scores.argmax(axis=1), problem.Y.indices)


@pytest.mark.usefixtures("path")
@BOTH
@PRECISIONS
def test_same_bits_for_any_number_of_threads(likelihood, by_weight):
    problem = make(likelihood, by_weight, seed=5)
    big = problem._replace(
        X=np.tile(problem.X, (60, 1)), Y=sp.vstack([problem.Y] * 60, "csr"), row_weight=None
    )
    for some in (big, big._replace(X=sp.csr_array(big.X))):
        one, two = solve(some, tol=1e-6), solve(some, tol=1e-6, n_jobs=2)
        np.testing.assert_array_equal(one.weights, two.weights)
        assert one.objective == two.objective


@BOTH
def test_a_weight_of_two_is_a_row_twice(likelihood):
    problem = make(likelihood, row_weight=np.repeat([2.0, 1.0], 20))
    twice = np.append(np.arange(40), np.arange(20))
    copies = problem._replace(X=problem.X[twice], Y=problem.Y[twice], row_weight=None)
    np.testing.assert_allclose(solve(problem).weights, solve(copies).weights, atol=1e-9)


@pytest.mark.usefixtures("path")
@BOTH
def test_close_start_saves_steps(likelihood):
    problem = make(likelihood)
    first = solve(problem, tol=1e-6)
    assert len(solve(problem, first.weights, tol=1e-5).trace) == 0
    other = problem._replace(precision=problem.precision * 1.1)
    warm, cold = solve(other, first.weights, tol=1e-6), solve(other, tol=1e-6)
    np.testing.assert_allclose(warm.weights, cold.weights, atol=1e-4)
    assert len(warm.trace) < len(cold.trace)
    far = solve(problem, np.full_like(first.weights, 1e6), tol=1e-6)  # worse than nothing: left aside
    np.testing.assert_allclose(far.weights, first.weights, atol=1e-4)


def test_objective_and_gradient_fall_with_every_step():
    solution = solve(make(), max_iter=3)
    assert not solution.converged
    assert len(solution.trace) == 3
    assert solution.trace.is_monotone("objective", increasing=False)
    assert solution.trace.last["objective"] == solution.objective
    assert (np.diff(solution.trace["change"]) < 0).all()


@BOTH
@PRECISIONS
@pytest.mark.parametrize("sparse", [False, True])
def test_laplace_variances_by_definition(likelihood, by_weight, sparse):
    problem = make(likelihood, by_weight, sparse)
    solution = solve(problem)
    X = dense(problem)
    S = X @ solution.weights[CLASS_NODE].T
    P = softmax(S, axis=1) if likelihood == "softmax" else expit(S)
    a = np.broadcast_to(problem.precision.reshape(len(PARENT), -1), solution.weights.shape)
    expected = a.copy()
    for n, p in enumerate(PARENT):
        if p >= 0:
            expected[p] += a[n]
    expected[CLASS_NODE] += (problem.row_weight[:, None] * P * (1 - P)).T @ X**2
    np.testing.assert_allclose(laplace_diagonal(problem, solution.weights), 1 / expected)
    n, d = a.shape
    precision = np.zeros((n, d, n, d))
    for i in range(d):
        precision[:, i, :, i] = tree_precision(PARENT, a[:, i])
    for c, node in enumerate(CLASS_NODE):
        precision[node, :, node] += (X.T * (problem.row_weight * P[:, c] * (1 - P[:, c]))) @ X
    covariance = np.linalg.inv(precision.reshape(n * d, n * d))
    found = laplace_marginals(problem, solution.weights)
    np.testing.assert_allclose(found.variance.ravel(), np.diag(covariance))
    blocks = covariance.reshape(n, d, n, d)
    np.testing.assert_allclose(found.covariance, [blocks[node, :, node] for node in CLASS_NODE], atol=1e-12)


def test_no_marginals_where_blocks_are_too_large(monkeypatch):
    monkeypatch.setattr(tree_map, "suits_blocks", lambda *_: False)
    assert laplace_marginals(make(), np.zeros((9, 5))) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"likelihood": "probit"}, "use 'softmax' or 'logistic'"),
        ({"precision": np.ones(3)}, "precision has shape (3,)"),
        ({"precision": np.zeros(9)}, "positive and finite"),
        ({"parent": PARENT[::-1]}, "topological order"),
        ({"class_node": np.array([1, 1, 2, 3, 4])}, "a different node for each class"),
        ({"Y": sp.csr_array((40, 3))}, "Y has shape (40, 3)"),
    ],
)
def test_invalid_problems_are_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        solve(make(**change))
