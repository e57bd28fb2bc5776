"""The Dirichlet-process mixture: sticks in closed form, a bound that never falls, clusters found, streams."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta as beta_law
from sklearn.metrics import adjusted_rand_score

from arbora.datasets import make_vmf_mixture
from arbora.discover import DirichletProcessVMFMixture
from arbora.discover.vmf.dirichlet_process import (
    Sticks,
    stick_extra,
    stick_log_weights,
    stick_weights,
    update_sticks,
)


@pytest.fixture(scope="module")
def data():
    return make_vmf_mixture(240, 12, 4, kappa=60.0, random_state=1)


def test_stick_moments_equal_those_of_draws_and_the_divergence_an_integral():
    sticks = Sticks(np.array([[3.0, 1.5], [2.0, 4.0]]), 0.7)
    rng = np.random.default_rng(0)
    v = np.column_stack([rng.beta(*sticks.beta, size=(200_000, 2)), np.ones(200_000)])
    pi = v * np.column_stack([np.ones(200_000), np.cumprod(1 - v[:, :-1], axis=1)])
    np.testing.assert_allclose(stick_weights(sticks), pi.mean(axis=0), atol=0.005)
    np.testing.assert_allclose(stick_log_weights(sticks), np.log(pi).mean(axis=0), atol=0.02)
    divergence = 0.0
    for a, b in sticks.beta.T:
        law, prior = beta_law(a, b), beta_law(1, sticks.eta)
        divergence += quad(lambda x, q=law, p=prior: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), 0, 1)[0]
    assert stick_extra(sticks) == pytest.approx(-divergence, rel=1e-5)


def test_the_stick_posterior_is_optimal():
    counts = np.array([40.0, 25.0, 3.0, 0.0])

    def bound(sticks):
        return counts @ stick_log_weights(sticks) + stick_extra(sticks)

    best = Sticks(np.ones((2, 3)), 1.0)
    for _ in range(200):
        best = update_sticks(best, counts, learn=True)
    rng = np.random.default_rng(0)
    for _ in range(30):
        beta = best.beta * np.exp(0.05 * rng.standard_normal(best.beta.shape))
        assert bound(Sticks(beta, best.eta * np.exp(0.05 * rng.standard_normal()))) < bound(best)
    assert bound(update_sticks(best, counts, learn=False)) >= bound(best) - 1e-9
    # largest first: any other order has a lower bound
    turned = update_sticks(best, counts[::-1], learn=False)
    assert counts[::-1] @ stick_log_weights(turned) + stick_extra(turned) < bound(best)


@pytest.mark.parametrize("shared", [True, False])
def test_the_bound_never_falls_and_components_are_sorted(data, shared):
    options = {
        "concentration": "shared" if shared else "own",
        "tol": 5e-7,
        "keep_empty": True,
    }
    model = DirichletProcessVMFMixture(8, init="random", **options, random_state=0).fit(data.X_train)
    assert len(model.lower_bounds_) > 3
    assert np.all(np.diff(model.lower_bounds_) >= -1e-9 * np.abs(model.lower_bounds_[:-1]))
    assert np.all(np.diff(model.counts_) <= 0)
    assert model.weights_.sum() == pytest.approx(1)


@pytest.mark.parametrize("n_components", [6, 15])
def test_the_number_of_clusters_is_that_of_the_truth(data, n_components):
    model = DirichletProcessVMFMixture(n_components, random_state=0).fit(data.X_train)
    assert model.n_clusters_ == 4
    assert adjusted_rand_score(data.truth.components, model.predict(data.X_train)) > 0.95


def test_batches_give_the_clusters_of_all_rows_at_once(data):
    """A cluster that the first batch has no rows of appears later."""
    late = data.truth.components == 3
    early = np.flatnonzero(~late)
    stream = DirichletProcessVMFMixture(8, random_state=0)
    for rows in (*np.array_split(early, 3), np.flatnonzero(late)):
        stream.partial_fit(data.X_train[rows])
    assert stream.counts_.sum() == pytest.approx(240, rel=1e-4)
    labels = stream.predict(data.X_train)
    assert adjusted_rand_score(data.truth.components, labels) > 0.9
    assert not set(labels[late].tolist()) & set(labels[~late].tolist())
    whole = DirichletProcessVMFMixture(8, random_state=0).fit(data.X_train)
    assert stream.score(data.X_train) == pytest.approx(whole.score(data.X_train), abs=0.2)
    with pytest.raises(ValueError, match="features"):
        stream.partial_fit(data.X_train[:, :5])
