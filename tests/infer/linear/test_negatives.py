"""Training on the rows that matter: the same optimum and certificate as on all rows, and the scan against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify import OneVsRestSVC
from arbora.classify._common.training import seed_of
from arbora.infer.linear import negatives
from arbora.infer.linear.flat import prepare_rows
from arbora.infer.linear.flat_block import solve_block
from arbora.infer.linear.negatives import Scan, grow, near_rows, nearest_rows, scan_all

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
    slack = np.maximum(1 - margin, 0)
    return (weights**2).sum() / 2 + (np.abs(cost) * (slack if loss == "hinge" else slack**2)).sum()


@HINGES
@pytest.mark.parametrize("bias", [1.0, 0.0])
def test_some_rows_reach_the_certified_optimum_of_all_rows(monkeypatch, loss, bias):
    rows, cost, X = sparse_problem(bias)
    want = solve_block(rows, cost, loss=loss, tol=1e-5)  # few rows: all of them are used
    monkeypatch.setattr(negatives, "_FEW_ROWS", 0)
    monkeypatch.setattr(negatives, "_FEWEST", 50)
    sizes = []
    monkeypatch.setattr(
        "arbora.infer.linear.flat_block.grow", lambda *args: sizes.append(len(args[0])) or grow(*args)
    )
    found = solve_block(rows, cost, loss=loss, tol=1e-4)
    assert sizes
    assert max(sizes) < rows.n_samples
    assert found.converged
    value = objective(X, cost, found.weights, bias, loss)
    assert value == pytest.approx(found.objectives.sum())
    lowest = want.objectives.sum() - want.gaps.sum()
    assert value - found.gaps.sum() <= want.objectives.sum() * (1 + 1e-12)  # a lower bound of the optimum
    assert value <= lowest * (1 + 2e-4)


@HINGES
def test_a_scan_lists_the_rows_with_a_loss(loss):
    rows, _, X = sparse_problem()
    rng = np.random.default_rng(1)
    W = rng.standard_normal((301, 6)) / 2
    W[-1] -= 2
    scores = X @ W[:-1] + W[-1]
    slack = np.maximum(1 + scores, 0)
    want = (slack if loss == "hinge" else slack**2).sum(axis=1)
    scan = scan_all(rows, W, loss)
    np.testing.assert_array_equal(scan.ids, np.flatnonzero(scores.max(axis=1) > -1.1))
    np.testing.assert_allclose(scan.excess, want[scan.ids])
    np.testing.assert_array_equal(scan.violating, np.flatnonzero(want > 0))
    assert 0 < scan.violating.size < scan.ids.size < rows.n_samples


def test_the_strongest_violators_are_added_and_needed_rows_stay(monkeypatch):
    monkeypatch.setattr(negatives, "_FEWEST", 2)
    ids = np.array([2, 5, 7])
    scan = Scan(np.array([5, 10, 11, 12, 13]), np.array([0.0, 1.0, 3.0, 0.0, 2.0]))
    new = grow(ids, np.array([True, False, False]), scan, 100)
    np.testing.assert_array_equal(new, [2, 5, 11, 13])  # 7 is neither needed nor near; two of three are added
    np.testing.assert_array_equal(grow(ids, np.ones(3, bool), scan, 10), np.arange(10))


def test_near_rows_are_the_positives_and_a_sample():
    special = np.array([3, 77_000])
    ids = near_rows(special, 100_000, [0])
    assert np.isin(special, ids).all()
    assert (np.diff(ids) > 0).all()
    assert len(ids) < 10_000
    np.testing.assert_array_equal(near_rows(special, 100_000, [0]), ids)


def test_near_training_solves_the_problem_of_the_near_rows():
    """The weights are those of a fit on these rows; they contain all positives of the block."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 150, 6000)
    X = sp.csr_array(sp.random_array((6000, 200), density=0.03, rng=rng) + sp.csr_array(np.eye(200)[y]))
    params = {"C": 1.0, "tol": 0.01, "calibration": None, "dtype": "float64", "random_state": 0}
    model = OneVsRestSVC(negatives="near", **params).fit(X, y)
    block = range(30)  # of the first of five blocks
    special = np.flatnonzero(np.isin(y, block))
    seed = seed_of(0, resumable=False)
    ids = nearest_rows(special, 6000, seed)
    assert np.isin(special, ids).all()
    assert len(ids) < 3000
    cost = np.where(y[ids, None] == np.arange(30), 1.0, -1.0)
    want = solve_block(prepare_rows(X[ids], np.float64, 1.0), cost, loss="squared_hinge", tol=0.01, seed=seed)
    np.testing.assert_allclose(model.coef_[:30].T, want.weights[:-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept_[:30], want.weights[-1])


def test_near_models_do_not_depend_on_threads_and_small_ones_are_exact():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 150, 6000)
    X = sp.random_array((6000, 200), density=0.03, rng=rng, format="csr") + sp.csr_array(np.eye(200)[y])
    params = {"C": 1.0, "tol": 0.01, "calibration": None, "random_state": 0}
    one, two = (OneVsRestSVC(negatives="near", n_jobs=n, **params).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    exact = OneVsRestSVC(**params).fit(X, y)
    assert not np.array_equal(one.coef_, exact.coef_)
    assert (one.predict(X) == exact.predict(X)).mean() > 0.95
    small = [OneVsRestSVC(negatives=kind, **params).fit(X[:2000], y[:2000]) for kind in ("all", "near")]
    np.testing.assert_array_equal(small[0].coef_, small[1].coef_)
