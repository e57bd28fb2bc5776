"""Posterior of a solution in the dual, block by block: the dense results, without dense matrices."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.engine import ThreadEngine
from arbora.infer.linear import rows as flat
from arbora.infer.tree.dual import MIN_REDUCTION, DualPosterior, TreeDual
from arbora.infer.tree.map import laplace_diagonal
from support.map_problems import PARENT, make, solve


def solved(monkeypatch, bias=1.3, n_jobs=1, block=2, **change):
    """Solve a problem with a feature that never occurs, in blocks of two classes; return also Newton's solution."""
    monkeypatch.setattr(flat, "BLOCK", block)  # so that nodes are shared by blocks
    problem = make("logistic", sparse=True, bias=bias, root_mean=0.0, **change)
    X = sp.csr_array(sp.hstack([problem.X[:, :2], sp.csr_array((40, 1)), problem.X[:, 2:]]))
    problem = problem._replace(X=X)
    want = solve(problem, tol=1e-12).weights
    dual = TreeDual(problem, ThreadEngine(n_jobs))
    found = dual.solve(problem.precision, tol=1e-12, max_iter=5000)
    assert dual.joint.layout.shared.size
    return problem, want, dual, found


@pytest.mark.parametrize("bias", [1.3, 0.0])
def test_moments_are_sums_of_the_dense_matrices(monkeypatch, bias):
    problem, want, dual, found = solved(monkeypatch, bias)
    squares, variances = DualPosterior(dual).moments(found)
    above = np.where(PARENT[:, None] >= 0, want[PARENT], 0.0)
    np.testing.assert_allclose(squares, ((want - above) ** 2).sum(axis=1), atol=1e-4)
    np.testing.assert_allclose(variances, laplace_diagonal(problem, want).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("bias", [1.3, 0.0])
def test_weights_and_variances_are_those_of_newtons_method(monkeypatch, bias):
    problem, want, dual, found = solved(monkeypatch, bias)
    np.testing.assert_allclose(dual.weights(found), want, atol=1e-5)
    np.testing.assert_allclose(
        DualPosterior(dual).variances(found), laplace_diagonal(problem, want), rtol=1e-5
    )


def test_sparse_tree_without_pruning_is_the_dense_one(monkeypatch):
    problem, want, dual, found = solved(monkeypatch)
    sparse = DualPosterior(dual).sparse(found, 0.0)
    weights = np.column_stack([sparse.differences.toarray(), sparse.bias])
    for node, up in enumerate(PARENT):
        weights[node] += weights[up] if up >= 0 else 0.0
    np.testing.assert_allclose(weights, want, atol=1e-5)
    variance = np.column_stack([np.repeat(sparse.variance[:, None], 5, axis=1), sparse.bias_variance])
    variance[problem.class_node, :-1] -= sparse.reductions.toarray()
    np.testing.assert_allclose(variance, laplace_diagonal(problem, want), rtol=2 * MIN_REDUCTION)


def test_pruning_drops_small_differences_only(monkeypatch):
    _, _, dual, found = solved(monkeypatch)
    whole, pruned = (DualPosterior(dual).sparse(found, below).differences.toarray() for below in (0.0, 0.1))
    np.testing.assert_array_equal(pruned, np.where(np.abs(whole) > 0.1, whole, 0.0))
    assert 0 < np.count_nonzero(pruned) < np.count_nonzero(whole)


def test_moments_do_not_depend_on_the_number_of_threads(monkeypatch):
    found = [solved(monkeypatch, n_jobs=n) for n in (1, 2)]
    one, two = (DualPosterior(dual).moments(solution) for _, _, dual, solution in found)
    np.testing.assert_array_equal(one.squares, two.squares)
    np.testing.assert_array_equal(one.variances, two.variances)
