"""MDA2: a bound that never falls, enumeration of the likelihood, reductions, hostile input."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

from arbora.expand import MixtureDiscriminantClustering

SHAPES = pytest.mark.parametrize("covariance", ["spherical", "diagonal", "full"])
SCALINGS = pytest.mark.parametrize("scaling", [None, "each", "within"])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    cluster = rng.integers(4, size=300)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 3)) + 4 * rng.normal(size=(4, 3))[cluster]
    y = np.where(rng.random(300) < 0.9, cluster % 2, 2)
    return X, y, cluster


@SHAPES
@SCALINGS
def test_objective_never_falls(data, covariance, scaling):
    X, y, _ = data
    labels = np.where(np.arange(300) % 4 == 0, -1, y)
    options = {"covariance": covariance, "scaling": scaling, "tol": 1e-8, "random_state": 0, "n_init": 2}
    for more in (
        {},
        {"prior": {"smoothing": 0.0, "weight": 0.0}},
        {"prior": {"weight": 50.0, "smoothing": 5.0}},
    ):
        objective = MixtureDiscriminantClustering(6, **options, **more).fit(X, labels).trace_["objective"]
        assert len(objective) > 3
        assert np.all(np.diff(objective) >= -1e-10 * np.abs(objective[:-1]))


@SHAPES
def test_objective_is_the_likelihood_by_definition(data, covariance):
    """Sum over components, with the label where there is one."""
    X, y, _ = data
    labels = np.where(np.arange(300) % 4 == 0, -1, y)
    options = {"scaling": "each", "prior": {"smoothing": 0.0, "weight": 0.0}, "tol": 1e-9, "max_iter": 2000}
    model = MixtureDiscriminantClustering(3, covariance=covariance, random_state=0, **options).fit(X, labels)
    result = model.parameters_
    Z = model._space_rows(X)
    joint = np.array(
        [
            weight * multivariate_normal(mean, result.covariance).pdf(Z)
            for weight, mean in zip(result.weights, result.means, strict=True)
        ]
    )
    shares = np.array([result.label_proba[:, c] if c >= 0 else np.ones(3) for c in labels])
    known = np.log(np.sum(joint.T * shares, axis=1)).sum()
    assert model.trace_["objective"][-1] == pytest.approx(known, rel=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), (joint / joint.sum(axis=0)).T, rtol=1e-6, atol=1e-9)


def test_memberships_are_marginal_over_the_label(data):
    """p(j | x) = sum_c p(j | x, c) p(c | x); the thesis writes p(c), which differs."""
    X, y, _ = data
    model = MixtureDiscriminantClustering(4, random_state=0).fit(X, y)
    memberships, labels = model.predict_proba(X), model.predict_label_proba(X)
    inputs = memberships[:, :, None] * model.label_proba_[None]
    inputs /= inputs.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.einsum("njc,nc->nj", inputs, labels), memberships, atol=1e-12)
    np.testing.assert_allclose(labels.sum(axis=1), 1.0)
    prior = np.bincount(y) / len(y)
    assert np.abs(np.einsum("njc,c->nj", inputs, prior) - memberships).max() > 1e-3


def test_labels_that_say_nothing_leave_a_gaussian_mixture(data):
    X, _, cluster = data
    exact = {"covariance": "full", "prior": {"smoothing": 0.0, "weight": 0.0}, "tol": 1e-10, "max_iter": 3000}
    model = MixtureDiscriminantClustering(4, scaling="each", init=cluster, **exact).fit(X, np.ones(300, int))
    Z = model._space_rows(X)
    R = np.eye(4)[cluster]
    known = GaussianMixture(
        4, covariance_type="tied", reg_covar=0, tol=1e-12, max_iter=3000,
        means_init=(R.T @ Z) / R.sum(axis=0)[:, None], weights_init=R.mean(axis=0),
        precisions_init=np.linalg.inv((Z - ((R.T @ Z) / R.sum(axis=0)[:, None])[cluster]).T
                                      @ (Z - ((R.T @ Z) / R.sum(axis=0)[:, None])[cluster]) / 300),
    ).fit(Z)  # fmt: skip
    assert model.trace_["objective"][-1] / 300 == pytest.approx(known.score(Z), rel=1e-6)


def test_labels_help_where_rows_alone_do_not():
    """Two clusters side by side: only the label tells where to cut."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(600, 2)) * [1.0, 1.5]
    y = (X[:, 0] > 0).astype(int)
    with_labels = MixtureDiscriminantClustering(2, random_state=0, scaling=None).fit(X, y)
    without = MixtureDiscriminantClustering(2, random_state=0, scaling=None).fit(X, np.zeros(600, int))
    information = [normalized_mutual_info_score(y, model.predict(X)) for model in (with_labels, without)]
    assert information[0] > 0.5 > 0.2 > information[1]


def test_predictions_agree(data):
    X, y, _ = data
    model = MixtureDiscriminantClustering(4, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(X).argmax(axis=1), model.labels_)
    expected = np.log(model.predict_label_proba(X)[np.arange(300), y]).mean()
    assert model.score(X, y) == pytest.approx(expected)
    fixed = MixtureDiscriminantClustering(4, random_state=0, variance=0.7).fit(X, y)
    np.testing.assert_allclose(fixed.parameters_.covariance, 0.7 * np.eye(3))


def test_hostile_rows(data):
    X, y, _ = data
    equal = MixtureDiscriminantClustering(3, random_state=0).fit(np.ones((20, 2)), y[:20])
    assert np.isfinite(equal.predict_proba([[1.0, 1.0], [1e6, 0.0]])).all()
    constant = MixtureDiscriminantClustering(3, random_state=0).fit(np.column_stack([X, np.ones(300)]), y)
    assert np.isfinite(constant.trace_["objective"]).all()
    single = np.where(np.arange(300) == 5, "rare", "common")
    assert MixtureDiscriminantClustering(3, random_state=0).fit(X, single).label_proba_.shape == (3, 2)
    sparse = MixtureDiscriminantClustering(3, n_dims=5, random_state=0).fit(
        sp.random_array((60, 100), density=0.1, rng=np.random.default_rng(0), format="csr"), y[:60]
    )
    assert len(sparse.labels_) == 60


def test_bad_input(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="n_samples=3 rows cannot fill n_clusters=4"):
        MixtureDiscriminantClustering(4).fit(X[:3], y[:3])
    with pytest.raises(ValueError, match="variance=2 fixes the spherical covariance"):
        MixtureDiscriminantClustering(4, variance=2.0, covariance="full").fit(X, y)
    with pytest.raises(ValueError, match="init holds the cluster 9"):
        MixtureDiscriminantClustering(4, init=np.full(300, 9)).fit(X, y)
    with pytest.raises(ValueError, match="init must hold one integer for each of the 300 rows"):
        MixtureDiscriminantClustering(4, init=[0, 1]).fit(X, y)
    with pytest.raises(ValueError, match="contains NaN in row 0"):
        MixtureDiscriminantClustering(4).fit(np.full((9, 2), np.nan), y[:9])
    with pytest.raises(ValueError, match="no row of y carries a label"):
        MixtureDiscriminantClustering(4).fit(X, np.full(300, -1))
    model = MixtureDiscriminantClustering(4, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="label 7, which the fit has not seen"):
        model.score(X, np.where(y == 2, 7, y))
