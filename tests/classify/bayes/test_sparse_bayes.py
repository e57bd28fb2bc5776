"""HierarchicalBayesClassifier with sparse differences: the dense model, without its small weights."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from arbora import io
from arbora.classify import HierarchicalBayesClassifier
from arbora.datasets import make_hierarchical_text
from arbora.text import LtcTransformer

DATA = make_hierarchical_text(150, 60, n_leaves=6, depth=2, random_state=0)
LTC = LtcTransformer().fit(DATA.X_train)
X, X_TEST = LTC.transform(DATA.X_train), LTC.transform(DATA.X_test)


def fit(rows=X, y=DATA.y_train, tol=1e-6, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return HierarchicalBayesClassifier(DATA.hierarchy, likelihood="logistic", tol=tol, **options).fit(
            rows, y
        )


@pytest.fixture(scope="module")
def dense():
    return fit()


@pytest.fixture(scope="module")
def sparse():
    return fit(prune_below=0.0)


def test_weights_and_precisions_are_those_of_the_dense_model(dense, sparse):
    scale = np.abs(dense.coef_).max()
    np.testing.assert_allclose(sparse.precisions_, dense.precisions_, rtol=1e-3)
    np.testing.assert_allclose(sparse.coef_.toarray(), dense.coef_, atol=2e-3 * scale)
    np.testing.assert_allclose(sparse.intercept_, dense.intercept_, atol=2e-3 * scale)
    np.testing.assert_allclose(sparse.predict_proba(X_TEST), dense.predict_proba(X_TEST), atol=2e-3)


def test_standard_deviations_are_conditional_on_all_other_weights(sparse, monkeypatch):
    monkeypatch.setattr("arbora.classify.bayes.map.laplace_marginals", lambda *_, **__: None)
    given = fit()
    np.testing.assert_allclose(sparse.coef_std_, given.coef_std_, rtol=0.02)
    means, std = sparse.decision_function(X_TEST, return_std=True)
    want = given.decision_function(X_TEST, return_std=True)
    np.testing.assert_allclose(std, want[1], rtol=0.02)
    np.testing.assert_allclose(means, want[0], atol=0.02 * np.abs(want[0]).max())


def test_averaging_over_the_posterior_lowers_confidence(sparse):
    mean = sparse.predict_proba(X_TEST).max(axis=1)
    try:
        sparse.prediction = "predictive"
        assert (sparse.predict_proba(X_TEST).max(axis=1) < mean).mean() > 0.9
    finally:
        sparse.prediction = "auto"


def test_weights_of_nodes_and_summary(dense, sparse):
    names = dense.hierarchy_.names.tolist()
    scale = np.abs(dense.coef_).max()
    for found, want in zip(sparse.node_weights(names), dense.node_weights(names), strict=True):
        np.testing.assert_allclose(found, want, atol=2e-3 * scale)
    for column in ("Rows", "Precision", "Distance", "Shared"):
        found, want = (np.array(m.node_summary().column(column), float) for m in (sparse, dense))
        np.testing.assert_allclose(found, want, rtol=0.02, atol=1e-4)


def test_pruning_stores_fewer_weights_and_predicts_the_same(sparse):
    model = fit(prune_below=0.02)
    np.testing.assert_allclose(model.precisions_, sparse.precisions_)  # training is exact
    assert model.differences_.nnz < sparse.differences_.nnz
    assert (model.predict(X_TEST) == sparse.predict(X_TEST)).mean() > 0.95


def test_features_that_do_not_occur_have_no_weights():
    wide = sp.csr_array(sp.hstack([sp.csr_array((150, 40)), X, sp.csr_array((150, 100))]))
    model = fit(wide, prune_below=0.0)
    assert not model.coef_[:, list(range(40)) + list(range(100, 200))].nnz
    np.testing.assert_array_equal(model.predict(wide), fit(wide).predict(wide))


def test_dense_rows_several_labels_and_a_saved_model(tmp_path):
    y = [[name] if i % 3 else [name, DATA.y_train[0]] for i, name in enumerate(DATA.y_train.tolist())]
    model = fit(X.toarray(), y, tol=1e-2, prune_below=0.01)
    io.save(model, tmp_path / "model")
    loaded = io.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X_TEST), model.predict_proba(X_TEST))
    np.testing.assert_array_equal(
        loaded.decision_function(X_TEST, return_std=True)[1],
        model.decision_function(X_TEST, return_std=True)[1],
    )


def test_refit_without_pruning_removes_the_sparse_model():
    model = fit(prune_below=0.01)
    model.set_params(prune_below=None).fit(X, DATA.y_train)
    assert not hasattr(model, "differences_")
    assert isinstance(model.coef_, np.ndarray)


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"likelihood": "softmax"}, "independent classes"),
        ({"covariance": "M2"}, "one precision for all weights of a node"),
        ({"inference": "variational"}, "most probable weights"),
    ],
    ids=["softmax", "M2", "variational"],
)
def test_models_without_a_sparse_form_are_refused(options, missing):
    model = HierarchicalBayesClassifier(
        DATA.hierarchy, prune_below=0.01, **({"likelihood": "logistic"} | options)
    )
    with pytest.raises(ValueError, match=rf"prune_below=0\.01 needs {missing}"):
        model.fit(X, DATA.y_train)
