"""What surrounds the joint solver: costs by block and row, memory told beforehand against memory used, flags."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify.linear import LinearModel, PartsModel
from arbora.classify.recursive import training as _joint
from arbora.classify.recursive.coupling import couple
from arbora.classify.recursive.training import block_costs, build_model, joint_memory, train_joint
from arbora.classify.training import Options, Training
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy


def problem(n_classes=64, n_samples=300, n_features=2000, density=0.02, loss="hinge", max_iter=3, tol=0.1):
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges(
        [("r", f"g{i}") for i in range(8)]
        + [(f"g{i * 8 // n_classes}", f"c{i:04d}") for i in range(n_classes)]
    )
    X = sp.csr_array(sp.random_array((n_samples, n_features), density=density, rng=rng, dtype=np.float32))
    positives = sp.csr_array(np.eye(n_classes)[np.arange(n_samples) % n_classes])
    options = Options(loss, tol, max_iter, 1.0, np.dtype(np.float32), 0)
    cost, weight = rng.random(n_samples) + 0.1, rng.random(n_classes) + 1.0
    return Training(X, positives, cost, weight, options), couple(tree, tree.leaf_ids, 0.5)


@pytest.mark.parametrize("ids", [[], [3], [0, 7, 64, 299], range(1, 300), range(300)])
def test_costs_of_some_rows_are_rows_of_all_costs(ids):
    training, _ = problem()
    order = np.random.default_rng(1).permutation(64)
    positive = training.positives.toarray()[:, order] > 0
    want = np.where(positive, training.positive_weight[order], -1.0) * training.row_cost[:, None]
    ids = np.array(ids, np.int64)
    result = block_costs(training, order)(range(10, 40), ids)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, want[ids, 10:40].astype(np.float32))


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("prune_below", [None, 1e9], ids=["dense", "pruned"])
@pytest.mark.parametrize(
    "sizes",
    [
        {"n_features": 20_000, "density": 0.002},
        {"n_samples": 4000, "n_features": 500},
        {"n_samples": 1000, "n_features": 2000, "loss": "logistic"},
    ],
    ids=["features", "rows", "logistic"],
)
def test_memory_that_is_told_is_memory_that_is_used(sizes, prune_below, n_jobs, monkeypatch):
    """All entries are pruned: how many others would keep nobody knows beforehand."""
    training, coupling = problem(**sizes)
    told, engine, dense = [], ThreadEngine(n_jobs), prune_below is None
    monkeypatch.setattr(_joint, "check_joint_memory", lambda *params: told.append(joint_memory(*params)))

    def train():
        return build_model(train_joint(training, coupling, engine, dense=dense), prune_below)

    train()  # what is compiled, or imported, on the way is no part of it
    tracemalloc.start()
    try:
        train()
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Threads need not be at their peaks at the same time.
    assert 0.85 < told[-1] / used < (1.4 if n_jobs == 1 else 2.2)


def test_rounds_that_run_out_are_flagged():
    for max_iter, tol, converged in ((1, 1e-6, False), (500, 0.1, True)):
        fitted = train_joint(*problem(max_iter=max_iter, tol=tol), ThreadEngine())
        assert fitted.converged is converged
        assert (fitted.relative_gap <= tol) is converged


def test_models_dense_and_in_parts_have_the_same_weights():
    fitted = train_joint(*problem(n_features=50), ThreadEngine())
    dense, parts = build_model(fitted, None), build_model(fitted, 0.0)
    assert isinstance(dense, LinearModel)
    assert isinstance(parts, PartsModel)
    np.testing.assert_allclose((parts.sharing.T @ parts.parts).toarray(), dense.coef, atol=1e-5)
    np.testing.assert_allclose(parts.intercept, dense.intercept, atol=1e-5)
