"""Choice of the method and precision of MAP inference, before the fit and by memory."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify.bayes import map as map_solver
from arbora.classify.bayes.map import DualSolver, NewtonSolver, make_solver
from arbora.core import chunks as memory
from arbora.engine import ThreadEngine
from arbora.infer.tree.gaussian import make_tree, share_precisions
from arbora.infer.tree.map import newton_memory
from arbora.infer.tree.problem import MapProblem

TREE = make_tree([-1, 0, 0, 1, 1], [2, 3, 4])


def problem(likelihood="logistic", n_features=600):
    rng = np.random.default_rng(0)
    X = sp.random_array((60, n_features), density=0.05, rng=rng, format="csr")
    Y = sp.csr_array(np.eye(3)[rng.integers(0, 3, 60)])
    return MapProblem(X, Y, None, TREE.parent, TREE.leaves, np.full(5, 0.1), 0.0, likelihood)


def choose(given, tol=0.01, prune_below=None):
    return make_solver(given, TREE, share_precisions(TREE, "M3"), ThreadEngine(1), tol, prune_below)


def free(monkeypatch, n_bytes):
    monkeypatch.setattr(memory, "available_memory", lambda: n_bytes)


def test_double_precision_is_a_way_out_only_if_it_fits(monkeypatch):
    given = problem("softmax")
    for n_bytes, retry in ((newton_memory(given, 8), True), (newton_memory(given, 4), False)):
        free(monkeypatch, n_bytes)
        solver = choose(given)
        assert isinstance(solver, NewtonSolver)
        assert (solver.single, solver.retry) == (True, retry)


def test_nothing_is_refused_after_the_choice(monkeypatch):
    """Single precision that does not converge must not ask for the memory of double precision."""
    given = problem("softmax")
    free(monkeypatch, newton_memory(given, 4))
    solver = choose(given)
    free(monkeypatch, 0)
    monkeypatch.setattr(map_solver, "_INNER_STEPS", 0)
    assert not solver.solve(given, 1e-9).converged
    assert solver.single


def test_dual_is_used_where_newton_does_not_fit(monkeypatch):
    given = problem(n_features=5000)
    assert isinstance(choose(given), NewtonSolver)
    free(monkeypatch, newton_memory(given, 4) - 1)
    monkeypatch.setattr(map_solver, "require_memory", lambda *_: None)
    monkeypatch.setattr("arbora.infer.tree.dual.require_memory", lambda *_: None)
    assert isinstance(choose(given), DualSolver)


@pytest.mark.parametrize(
    ("given", "prune_below", "advice"),
    [
        (problem("softmax"), None, "prune_below"),
        (problem(), None, "prune_below=0.01"),
        (problem(), 0.01, "larger min_df"),
    ],
    ids=["softmax", "dense", "pruned"],
)
def test_what_does_not_fit_is_refused_before_training(monkeypatch, given, prune_below, advice):
    free(monkeypatch, 1000)
    with pytest.raises(MemoryError, match=f"Training 3 classes in a tree of 5 nodes on 60 rows.*{advice}"):
        choose(given, prune_below=prune_below)


def test_estimates_count_more_than_newtons_matrices():
    """The weights and variances of all nodes, and sweeps for a start, are part of a fit."""
    small, large = problem(n_features=600), problem(n_features=60_000)
    of_nodes = 4 * 5 * (60_000 - 600)
    assert newton_memory(large, 4) - newton_memory(small, 4) >= 3 * of_nodes


def test_pruned_fits_need_no_memory_for_dense_weights(monkeypatch):
    """A million features of a few thousand classes fit, as long as few of them occur."""
    n_classes = 3000
    tree = make_tree(np.append(-1, np.zeros(n_classes, int)), np.arange(1, n_classes + 1))
    X = sp.csr_array((np.ones(40), (np.arange(40), np.arange(40) * 1000)), shape=(40, 1_000_000))
    Y = sp.csr_array((np.ones(40), (np.arange(40), np.arange(40))), shape=(40, n_classes))
    given = MapProblem(X, Y, None, tree.parent, tree.leaves, np.ones(n_classes + 1), 0.0, "logistic")
    free(monkeypatch, 1 << 26)
    sharing = share_precisions(tree, "M3")
    with pytest.raises(MemoryError, match="prune_below"):
        make_solver(given, tree, sharing, ThreadEngine(1), 0.01)
    assert isinstance(make_solver(given, tree, sharing, ThreadEngine(1), 0.01, 0.01), DualSolver)
