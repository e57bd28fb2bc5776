"""Training on the pairs that matter, and from a start."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.infer.linear import flat as flat_block
from arbora.infer.linear.coupled import multipliers_of_rows
from arbora.infer.linear.flat import solve_block
from arbora.infer.linear.rows import prepare_rows

HINGES = pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])


def sparse_problem(bias=1.0, n_rows=1500, n_features=300, n_block=6, seed=0):
    """Rows with few features, of which each class has its own: most negatives share none with the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 40, n_rows)
    part = rng.integers(0, 7, (n_rows, 3)) + 7 * labels[:, None]
    columns = np.hstack([part, rng.integers(0, n_features, (n_rows, 3))])
    indptr = np.arange(n_rows + 1) * 6
    X = sp.csr_array((np.full(columns.size, 6**-0.5), columns.ravel(), indptr), shape=(n_rows, n_features))
    X.sum_duplicates()
    cost = np.where(labels[:, None] == np.arange(n_block), 2.0, -1.0)
    return prepare_rows(X, np.float64, bias), cost, X


def objective(X, cost, weights, bias, loss):
    """Primal objective of the full problem in plain NumPy."""
    margin = np.sign(cost) * (X @ weights[:-1] + bias * weights[-1])
    slack = np.maximum(1 - margin, 0) if loss != "logistic" else np.logaddexp(0, -margin)
    return (weights**2).sum() / 2 + (np.abs(cost) * (slack**2 if loss == "squared_hinge" else slack)).sum()


@HINGES
@pytest.mark.parametrize("bias", [1.0, 0.0])
def test_passes_over_listed_pairs_reach_the_certified_optimum(monkeypatch, loss, bias):
    rows, cost, X = sparse_problem(bias)
    monkeypatch.setattr(flat_block, "_NEARLY", 0.0)  # sweeps alone
    want = solve_block(rows, cost, loss=loss, tol=1e-5)
    monkeypatch.setattr(flat_block, "_NEARLY", 0.9)
    sweeps, sweep = [], flat_block.sweep_block
    monkeypatch.setattr(flat_block, "sweep_block", lambda *args: sweeps.append(0) or sweep(*args))
    result = solve_block(rows, cost, loss=loss, tol=1e-4)
    assert len(sweeps) < len(result.history) or not bias  # without a bias, too many pairs violate
    assert result.converged
    value = objective(X, cost, result.weights, bias, loss)
    assert value == pytest.approx(result.objectives.sum())
    lowest = want.objectives.sum() - want.gaps.sum()
    assert value - result.gaps.sum() <= want.objectives.sum() * (1 + 1e-12)  # a lower bound of the optimum
    assert value <= lowest * (1 + 2e-4)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_a_start_from_more_rows_reaches_the_same_optimum_in_fewer_passes(loss):
    rows, cost, X = sparse_problem()
    ids = np.flatnonzero(np.arange(rows.n_samples) % 5)
    everything = solve_block(rows, cost, loss=loss, tol=1e-5)
    some = prepare_rows(X[ids], np.float64, 1.0)
    cold = solve_block(some, cost[ids], loss=loss, tol=1e-4)
    start = multipliers_of_rows(everything.multipliers, ids)
    warm = solve_block(some, cost[ids], loss=loss, tol=1e-4, start=start)
    assert warm.converged
    assert len(warm.history) < len(cold.history)
    assert objective(X[ids], cost[ids], warm.weights, 1.0, loss) == pytest.approx(warm.objectives.sum())
    assert warm.objectives.sum() == pytest.approx(cold.objectives.sum(), rel=1e-4)


def test_a_start_of_a_larger_cost_is_made_feasible():
    rows, cost, X = sparse_problem()
    larger = solve_block(rows, 3 * cost, loss="hinge", tol=1e-4)
    result = solve_block(rows, cost, loss="hinge", tol=1e-4, start=larger.multipliers)
    assert result.converged
    assert (np.abs(result.multipliers.values) <= 2.0).all()
    assert (result.gaps >= 0).all()
    assert objective(X, cost, result.weights, 1.0, "hinge") == pytest.approx(result.objectives.sum())
