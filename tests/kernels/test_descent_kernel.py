"""The best-first search for the most probable leaf against the probabilities of all leaves."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify.decisions import Calibration
from arbora.classify.estimator import Decisions
from arbora.classify.linear import LinearModel
from arbora.classify.top_down import best_leaves
from arbora.core.engine import SerialEngine
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy

N_FEATURES = 40


def random_tree(rng, n_nodes):
    """Return a tree in which every node but the first hangs under an earlier one."""
    edges = [(str(rng.integers(max(1, i // 2))), str(i)) for i in range(1, n_nodes)]
    return Hierarchy.from_edges(edges)


def random_model(rng, routes, density=0.3):
    shape = Decisions(routes).n_edges, N_FEATURES
    coef = sp.random_array(shape, density=density, rng=rng, dtype=np.float64).tocsc()
    coef.data -= 0.5
    return LinearModel(coef, rng.normal(size=shape[0]))


def all_leaves(X, model, calibration, routes):
    """Leaves with their probabilities, from the scores of all edges."""
    decisions, (scale, shift) = Decisions(routes), calibration
    scores = (X @ model.coef.T.toarray() + model.intercept) * scale + shift
    proba = decisions.reach(np.exp(decisions.log_conditional(scores)))
    leaves = np.flatnonzero(routes.is_leaf)
    return leaves, proba[:, leaves]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])  # flat choices open many nodes, sharp ones few
def test_the_search_finds_the_most_probable_leaf(seed, scale):
    rng = np.random.default_rng(seed)
    routes = random_tree(rng, 60)
    model, calibration = random_model(rng, routes), Calibration(scale, 0.3)
    X = sp.random_array((50, N_FEATURES), density=0.2, rng=rng, dtype=np.float64).tocsr()
    found = best_leaves(X, model, calibration, routes, SerialEngine())
    leaves, proba = all_leaves(X.toarray(), model, calibration, routes)
    np.testing.assert_array_equal(found.leaf, leaves[proba.argmax(axis=1)])
    np.testing.assert_allclose(np.exp(found.log_proba), proba.max(axis=1))
    n_choices = np.sum(~routes.is_leaf)
    assert np.all((found.n_opened >= 1) & (found.n_opened <= n_choices))


def test_sharp_choices_open_one_node_per_level():
    rng = np.random.default_rng(0)
    routes = random_tree(rng, 400)
    model = random_model(rng, routes)
    X = sp.random_array((100, N_FEATURES), density=0.2, rng=rng, dtype=np.float64).tocsr()
    found = best_leaves(X, model, Calibration(1e4), routes, SerialEngine())
    assert np.mean(found.n_opened == routes.depth[found.leaf]) > 0.9


def test_the_result_does_not_depend_on_threads():
    rng = np.random.default_rng(1)
    routes = random_tree(rng, 80)
    model = random_model(rng, routes)
    X = sp.random_array((2000, N_FEATURES), density=0.1, rng=rng, dtype=np.float64).tocsr()
    one, two = (best_leaves(X, model, Calibration(1.0), routes, ThreadEngine(n)) for n in (1, 2))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_row_without_features_and_a_chain_of_only_children():
    routes = Hierarchy.from_edges([("root", "a"), ("a", "b"), ("b", "c"), ("b", "d")])
    coef = sp.csc_array(np.array([[0.0], [0.0], [1.0], [-1.0]]))
    model = LinearModel(coef, np.array([0.0, 0.0, 0.0, 2.0]))
    found = best_leaves(sp.csr_array([[0.0], [5.0]]), model, Calibration(1.0), routes, SerialEngine())
    assert routes.decode(found.leaf).tolist() == ["d", "c"]
    np.testing.assert_allclose(found.log_proba[0], -np.log1p(np.exp(-2.0)))
