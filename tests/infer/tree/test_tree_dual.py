"""Weights of a tree by dual coordinate descent: Newton's optimum, certified gaps, warm starts, memory."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify import HierarchicalBayesClassifier
from arbora.core import chunks as memory
from arbora.datasets import make_hierarchical_text
from arbora.engine import ThreadEngine
from arbora.infer.tree import dual as tree_dual
from arbora.infer.tree.dual import TreeDual, order_of_tree, paths_up, suits_dual
from arbora.text import LtcTransformer
from support.map_problems import CLASS_NODE, PARENT, make, solve


@pytest.mark.parametrize("bias", [1.3, 0.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_optimum_is_that_of_newtons_method(bias, seed):
    problem = make("logistic", sparse=True, bias=bias, seed=seed)
    want = solve(problem, tol=1e-12)
    dual = TreeDual(problem, ThreadEngine(1))
    found = dual.solve(problem.precision, tol=1e-12, max_iter=5000)
    assert found.converged
    assert 0 <= found.gap <= 1e-12
    np.testing.assert_allclose(dual.weights(found), want.weights, atol=1e-5)
    np.testing.assert_allclose(found.objective, want.objective, rtol=1e-10)


def test_objective_is_at_most_the_gap_above_the_optimum():
    problem = make("logistic", sparse=True, root_mean=0.0)
    best = solve(problem, tol=1e-12).objective
    found = TreeDual(problem, ThreadEngine(1)).solve(problem.precision, tol=0.1)
    assert best < found.objective <= best * (1 + 1e-10) / (1 - found.gap)


def test_starting_from_other_precisions_ends_at_the_same_weights():
    problem = make("logistic", sparse=True)
    dual = TreeDual(problem, ThreadEngine(1))
    other = dual.solve(problem.precision * 3, tol=1e-6)
    found = dual.solve(problem.precision, other.multipliers, tol=1e-12, max_iter=5000)
    np.testing.assert_allclose(dual.weights(found), solve(problem, tol=1e-12).weights, atol=1e-5)


def test_a_restart_never_lowers_the_dual_and_holds_no_second_copy():
    problem = make("logistic", sparse=True)
    dual = TreeDual(problem, ThreadEngine(1))
    start, bound = None, -np.inf
    for tol in (0.5, 0.1, 1e-2, 1e-4, 1e-8):
        found = dual.solve(problem.precision, start, tol=tol)
        value = found.objective * (1 - found.gap)
        assert value >= bound - 1e-9 * abs(value)
        assert start is None or found.multipliers is start  # replaced block by block
        start, bound = found.multipliers, value


def test_result_does_not_depend_on_the_number_of_threads():
    problem = make("logistic", sparse=True)
    duals = [TreeDual(problem, ThreadEngine(n)) for n in (1, 2)]
    one, two = (dual.weights(dual.solve(problem.precision)) for dual in duals)
    np.testing.assert_array_equal(one, two)


def test_paths_and_order():
    paths = paths_up(PARENT, CLASS_NODE)
    for c, node in enumerate(CLASS_NODE):
        path = [node]
        while PARENT[path[-1]] >= 0:
            path.append(PARENT[path[-1]])
        assert paths[:, c].tolist() == path + [-1] * (len(paths) - len(path))
    order = order_of_tree(paths)
    for node in range(len(PARENT)):  # the classes below any node are neighbours
        places = np.flatnonzero((paths[:, order] == node).any(axis=0))
        assert not places.size or places[-1] - places[0] == len(places) - 1


@pytest.mark.parametrize(
    "change",
    [{"likelihood": "softmax"}, {"X": np.ones((40, 4))}, {"precision": np.ones((9, 5))}],
    ids=["softmax", "dense", "by weight"],
)
def test_problems_that_do_not_suit_the_dual(change, monkeypatch):
    monkeypatch.setattr(tree_dual, "suits_blocks", lambda *sizes: False)
    problem = make("logistic", sparse=True)
    assert suits_dual(problem)
    assert not suits_dual(problem._replace(**change))


def test_memory_is_checked_before_training(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="5 classes in a tree of 9 nodes"):
        TreeDual(make("logistic", sparse=True), ThreadEngine(1))


def test_classifier_finds_the_same_model_with_dual_and_newton(monkeypatch):
    data = make_hierarchical_text(150, 60, n_leaves=6, depth=2, random_state=0)
    X = LtcTransformer().fit_transform(data.X_train)
    model = HierarchicalBayesClassifier(data.hierarchy, likelihood="logistic", tol=1e-6)
    by_newton = model.fit(X, data.y_train).coef_.copy()
    monkeypatch.setattr(tree_dual, "suits_blocks", lambda *sizes: False)
    monkeypatch.setattr("arbora.classify.bayes.map.MAX_NUMBERS", 0)
    used = []
    monkeypatch.setattr(
        "arbora.classify.bayes.map.TreeDual", lambda *given: used.append(1) or TreeDual(*given[:2])
    )
    by_dual = model.fit(sp.csr_array(X), data.y_train).coef_
    assert used
    np.testing.assert_allclose(by_dual, by_newton, atol=2e-3 * np.abs(by_newton).max())
