"""The multinomial mixture: enumeration of all count vectors, closed forms, known truth."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln
from scipy.stats import multinomial
from sklearn.metrics import adjusted_rand_score

from arbora.discover import MultinomialMixture

EXACT = {"tol": 1e-10, "max_iter": 1000, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.full(12, 0.3), size=3)
    z = rng.choice(3, p=[0.5, 0.3, 0.2], size=150)
    return np.array([rng.multinomial(25, theta[k]) for k in z]), z, theta


def test_the_bound_never_falls_and_is_likelihood_and_prior(data):
    X, _, _ = data
    model = MultinomialMixture(4, smoothing=0.3, **EXACT).fit(X)
    assert np.all(np.diff(model.lower_bounds_) >= -1e-12 * np.abs(model.lower_bounds_[:-1]))
    log_joint = np.array([multinomial(25, p).logpmf(X) for p in model.means_]).T + np.log(model.weights_)
    scores = np.logaddexp.reduce(log_joint, axis=1)
    np.testing.assert_allclose(model.score_samples(X), scores, rtol=1e-10)
    np.testing.assert_array_equal(model.predict(X), log_joint.argmax(axis=1))
    prior = dirichlet_log_density(model.means_, 1.3).sum()
    assert model.lower_bounds_[-1] == pytest.approx(scores.sum() + prior, rel=1e-10)


def dirichlet_log_density(theta, a):
    n = theta.shape[1]
    return gammaln(n * a) - n * gammaln(a) + (a - 1) * np.log(theta).sum(axis=1)


def test_probabilities_of_all_rows_of_a_length_sum_to_one():
    X = np.array([[3, 1, 0], [2, 2, 0], [0, 1, 4], [0, 0, 3]])
    model = MultinomialMixture(2, random_state=0).fit(X)
    rows = [row for row in product(range(5), repeat=3) if sum(row) == 4]
    assert np.exp(model.score_samples(rows)).sum() == pytest.approx(1, rel=1e-9)


def test_one_component_is_smoothed_shares(data):
    X, _, _ = data
    model = MultinomialMixture(1, smoothing=0.5, tol=1e-9).fit(X)
    total = X.sum(axis=0) + 0.5
    np.testing.assert_allclose(model.means_[0], total / total.sum(), rtol=1e-12)
    left_out = []
    for row in X:  # the density of each row under the shares of the others
        rest = total - row
        left_out.append(multinomial(25, rest / rest.sum()).logpmf(row))
    np.testing.assert_allclose(np.unique(model.density_quantiles_), np.unique(left_out), rtol=1e-9)


def test_the_truth_is_found(data):
    X, z, theta = data
    model = MultinomialMixture(3, n_init=3, random_state=0).fit(sp.csr_array(X))
    assert adjusted_rand_score(z, model.predict(X)) > 0.9
    order = [int(np.argmin(np.abs(model.means_ - p).sum(axis=1))) for p in theta]
    np.testing.assert_allclose(model.means_[order], theta, atol=0.04)


def test_an_empty_row_has_the_probabilities_of_the_weights(data):
    X, _, _ = data
    model = MultinomialMixture(3, random_state=0).fit(np.vstack([X, np.zeros(12)]))
    empty = np.zeros((1, 12))
    np.testing.assert_allclose(model.predict_proba(empty)[0], model.weights_, rtol=1e-9)
    assert model.score_samples(empty)[0] == pytest.approx(0, abs=1e-9)


def test_negative_counts_are_refused_by_row(data):
    X = data[0].astype(float)
    X[4, 2] = -1
    with pytest.raises(ValueError, match=r"contains -1 in row 4, column 2\. Negative .* Give counts"):
        MultinomialMixture(2).fit(X)


def test_samples_have_the_length_and_the_shares(data):
    X, _, _ = data
    model = MultinomialMixture(3, random_state=0).fit(X)
    assert model.mean_length_ == 25
    drawn, labels = model.sample(300)
    assert drawn.shape == (300, 12)
    assert set(drawn.sum(axis=1)) == {25}
    for k in range(3):
        share = drawn[labels == k].sum(axis=0) / (25 * np.sum(labels == k))
        np.testing.assert_allclose(share, model.means_[k], atol=0.03)
    assert model.sample(2, length=7)[0].sum() == 14
    assert model.is_novel(X, level=0.1).mean() < 0.15
    assert model.is_novel(np.roll(X, 5, axis=1)).mean() > 0.5


@pytest.mark.parametrize("batch_size", [None, 50])
def test_counts_and_weights_that_overflow_together_are_refused(data, batch_size):
    X, _, _ = data
    model = MultinomialMixture(3, random_state=0, batch_size=batch_size)
    with (
        np.errstate(all="ignore"),
        pytest.raises(ValueError, match=r"the bound is .* Divide X or sample_weight"),
    ):
        model.fit(X * 1e20, sample_weight=np.full(X.shape[0], 1e20))
