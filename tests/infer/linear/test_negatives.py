"""Training on the pairs that matter, from a start, and on near rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from arbora.classify import OneVsRestLogistic, OneVsRestSVC
from arbora.classify.training import seed_of
from arbora.infer.linear import flat as flat_block
from arbora.infer.linear.coupled import multipliers_of_rows
from arbora.infer.linear.flat import solve_block
from arbora.infer.linear.negatives import nearest_rows
from arbora.infer.linear.rows import class_blocks, prepare_rows

FLAT = pytest.mark.parametrize(
    ("estimator", "loss"), [(OneVsRestSVC, "squared_hinge"), (OneVsRestLogistic, "logistic")]
)
HINGES = pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])


def sparse_problem(bias=1.0, n_rows=1500, n_features=300, n_block=6, seed=0):
    """Rows with few features, of which each class has its own: most negatives share none with the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 40, n_rows)
    own = rng.integers(0, 7, (n_rows, 3)) + 7 * labels[:, None]
    columns = np.hstack([own, rng.integers(0, n_features, (n_rows, 3))])
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
    found = solve_block(rows, cost, loss=loss, tol=1e-4)
    assert len(sweeps) < len(found.history) or not bias  # without a bias, too many pairs violate
    assert found.converged
    value = objective(X, cost, found.weights, bias, loss)
    assert value == pytest.approx(found.objectives.sum())
    lowest = want.objectives.sum() - want.gaps.sum()
    assert value - found.gaps.sum() <= want.objectives.sum() * (1 + 1e-12)  # a lower bound of the optimum
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
    found = solve_block(rows, cost, loss="hinge", tol=1e-4, start=larger.multipliers)
    assert found.converged
    assert (np.abs(found.multipliers.values) <= 2.0).all()
    assert (found.gaps >= 0).all()
    assert objective(X, cost, found.weights, 1.0, "hinge") == pytest.approx(found.objectives.sum())


def test_near_rows_are_the_positives_and_a_sample():
    special = np.array([3, 77_000])
    ids = nearest_rows(special, 100_000, [0])
    assert np.isin(special, ids).all()
    assert (np.diff(ids) > 0).all()
    assert len(ids) < 10_000
    np.testing.assert_array_equal(nearest_rows(special, 100_000, [0]), ids)
    assert not np.array_equal(nearest_rows(special, 100_000, [0, 32]), ids)


@FLAT
def test_near_training_solves_the_problem_of_the_near_rows(estimator, loss):
    """The weights are those of a fit on these rows; they contain all positives of the block."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 150, 6000)
    X = sp.csr_array(sp.random_array((6000, 200), density=0.03, rng=rng) + sp.csr_array(np.eye(200)[y]))
    params = {"C": 1.0, "tol": 0.01, "calibration": None, "dtype": "float64", "random_state": 0}
    model = estimator(negatives="near", **params).fit(X, y)
    block = class_blocks(150)[0]
    n_block = len(block)
    special = np.flatnonzero(np.isin(y, block))
    seed = seed_of(0, resumable=False)
    ids = nearest_rows(special, 6000, [seed, 0])
    assert np.isin(special, ids).all()
    assert len(ids) < 3000
    cost = np.where(y[ids, None] == block, 1.0, -1.0)
    want = solve_block(prepare_rows(X[ids], np.float64, 1.0), cost, loss=loss, tol=0.01, seed=seed)
    np.testing.assert_allclose(model.coef_[:n_block].T, want.weights[:-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept_[:n_block], want.weights[-1])


@FLAT
def test_near_models_do_not_depend_on_threads_and_small_ones_are_exact(estimator, loss):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 150, 6000)
    X = sp.random_array((6000, 200), density=0.03, rng=rng, format="csr") + sp.csr_array(np.eye(200)[y])
    params = {
        "C": 1.0 if loss == "squared_hinge" else 30.0,
        "tol": 0.01,
        "calibration": None,
        "random_state": 0,
    }
    one, two = (estimator(negatives="near", n_jobs=n, **params).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    exact = estimator(**params).fit(X, y)
    assert not np.array_equal(one.coef_, exact.coef_)
    assert (one.predict(X) == exact.predict(X)).mean() > 0.95
    small = [estimator(negatives=kind, **params).fit(X[:2000], y[:2000]) for kind in ("all", "near")]
    np.testing.assert_array_equal(small[0].coef_, small[1].coef_)


@pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic])
def test_near_training_names_the_gap_that_it_missed(estimator):
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 50), density=0.2, rng=rng, format="csr")
    model = estimator(C=100.0, negatives="near", max_iter=1, calibration=None)
    with pytest.warns(ConvergenceWarning, match=r"reached 0\.01 \(tol=0\.001, and at least 0\.01 for near"):
        model.fit(X, rng.integers(0, 3, 300))


@pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic])
def test_two_classes_are_trained_on_all_rows(estimator):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 5)), (rng.random(3000) < 0.1).astype(int)
    X[y == 1] += 0.5
    near, full = (estimator(1.0, negatives=how, random_state=0).fit(X, y) for how in ("near", "all"))
    np.testing.assert_array_equal(near.coef_, full.coef_)
