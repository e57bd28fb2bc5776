"""Large fits of `MultinomialLogistic`: pruned, with little memory."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from arbora import io
from arbora.classify import MultinomialLogistic
from arbora.classify import multinomial as module
from arbora.classify.multinomial import dense_model, design_matrix, pruned_model, pruning_limits
from arbora.engine import ThreadEngine
from arbora.infer.softmax import penalty as multinomial_penalty
from arbora.infer.softmax import solve as multinomial_solve
from arbora.structure import Hierarchy

N_CLASSES = 70  # more than a block of classes
TREE = Hierarchy.from_paths([f"{k % 7}/{k}" for k in range(N_CLASSES)])


def texts(n_samples=210, n_features=120, seed=0):
    """Sparse rows, of which a quarter of the features never occur."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % N_CLASSES
    X = rng.normal(size=(N_CLASSES, n_features))[y] + rng.normal(size=(n_samples, n_features))
    X *= rng.random(X.shape) < 0.3
    X[:, ::4] = 0
    return sp.csr_array(X / np.linalg.norm(X, axis=1, keepdims=True)), np.array([f"{k % 7}/{k}" for k in y])


X, Y = texts()


def make(**params):
    return MultinomialLogistic(**{"C": 10.0, "max_iter": 500, "random_state": 0, **params})


@pytest.mark.parametrize("params", [{}, {"solver": "lc"}, {"structure": TREE}, {"fit_intercept": False}])
def test_pruned_model_keeps_the_large_weights(params, tmp_path):
    dense, model = make(**params).fit(X, Y), make(prune_below=0.05, **params).fit(X, Y)
    expected = np.where(np.abs(dense.coef_) > 0.05, dense.coef_, 0)
    assert 0 < model.coef_.nnz < 0.9 * dense.coef_.size
    np.testing.assert_array_equal(model.coef_.toarray(), expected)
    np.testing.assert_array_equal(model.intercept_, dense.intercept_)
    np.testing.assert_allclose(model.decision_function(X), X @ expected.T + dense.intercept_, atol=1e-5)
    everything = make(prune_below=0.0, **params).fit(X, Y)
    np.testing.assert_allclose(everything.predict_proba(X), dense.predict_proba(X), atol=1e-6)
    if params.get("structure") is not None:
        some = ["3", "3/10"]
        np.testing.assert_allclose(everything.node_weights(some)[0], dense.node_weights(some)[0], atol=1e-6)
    io.save(model, tmp_path / "model")
    for mmap in (False, True):
        again = io.load(tmp_path / "model", mmap=mmap)
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("bias", [0.0, 2.0])
@pytest.mark.parametrize("seen", [[], [2], [0, 1], [1, 3, 4, 5], list(range(7))])
@pytest.mark.parametrize("at_once", [1, 1000])
@pytest.mark.parametrize("position", [None, [2, 0, 1]])
def test_trained_weights_are_expanded_to_all_features(bias, seen, at_once, position, monkeypatch):
    monkeypatch.setattr(module, "_WEIGHTS_PER_CHUNK", at_once)
    n_features, seen = 7, np.array(seen, np.int64)
    W = np.arange(1.0, 1 + 3 * (len(seen) + bool(bias))).reshape(-1, 3)
    columns = slice(None) if position is None else position
    known = np.zeros((n_features, 3))
    known[seen] = W[: len(seen), columns]
    intercept = bias * W[-1, columns] if bias else np.zeros(3)
    below = pruning_limits(len(W), 5.0, bias, W.dtype)
    sparse = pruned_model(W, seen, n_features, bias, below, position)
    np.testing.assert_array_equal(sparse.coef.toarray(), np.where(known > 5, known, 0).T)
    np.testing.assert_array_equal(sparse.intercept, intercept)
    model = dense_model(W, seen, n_features, bias, ThreadEngine(), position)
    np.testing.assert_array_equal(model.coef, known.T)
    np.testing.assert_array_equal(model.intercept, intercept)
    assert model.coef.T.flags.c_contiguous


@pytest.mark.parametrize("n_missing", [10, 100])
def test_all_features_are_trained_if_most_occur(n_missing):
    rows = sp.csr_array(sp.hstack([X[:, 1::2], sp.csr_array((X.shape[0], n_missing))]))
    trained, seen = design_matrix(rows, 1.0, np.float32)
    occur = (abs(rows).sum(axis=0) > 0).sum()
    assert trained.shape[1] - 1 == len(seen) == (rows.shape[1] if n_missing == 10 else occur)
    model, plain = (
        make(tol=9e-7).fit(rows, Y),
        make(tol=9e-7).fit(X[:, 1::2], Y),
    )
    assert model.objective_ == pytest.approx(plain.objective_, rel=2e-6)
    assert not model.coef_[:, -n_missing:].any()


@pytest.mark.parametrize("over_a_tree", [False, True])
@pytest.mark.parametrize("more", [{}, {"prune_below": 0.5}, {"fit_intercept": False}])
def test_lc_needs_no_more_memory_than_estimated(over_a_tree, more, monkeypatch):
    """The weights are never in memory twice, with or without a structure."""
    monkeypatch.setattr(module, "_WEIGHTS_PER_CHUNK", 100_000)
    monkeypatch.setattr(multinomial_penalty, "_NUMBERS_PER_CHUNK", 100_000)
    names = np.array([f"{k % 8}/{k}" for k in range(1500)])
    rows = sp.random_array((1500, 3000), density=0.005, rng=np.random.default_rng(0), format="csr")
    structure = Hierarchy.from_paths(names.tolist()) if over_a_tree else None
    counted = []
    monkeypatch.setattr(multinomial_solve, "require_memory", lambda n_bytes, *_: counted.append(n_bytes))
    model = make(solver="lc", max_iter=1, structure=structure, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows[:300], names[:300])  # compiles
        tracemalloc.start()
        try:
            model.fit(rows, names)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    weights = 4 * 1500 * 3000
    assert weights < peak < counted[-1] + 100 * rows.nnz + 1_000_000  # the rows come on top
    assert counted[-1] < 2 * weights  # a second copy would be seen


def test_dense_weights_beyond_memory_are_refused_before_training(monkeypatch):
    def refuse(n_bytes, what, advice):
        if "dense weights" in what:
            raise MemoryError(f"{n_bytes} {advice}")

    monkeypatch.setattr(module, "require_memory", refuse)
    with pytest.raises(MemoryError, match=f"{(120 + 1) * N_CLASSES * 4} .*prune_below"):
        make().fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(prune_below=0.1).fit(X, Y)
