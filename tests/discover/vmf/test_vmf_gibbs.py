"""The collapsed sampler of the Bayesian von Mises-Fisher mixture: a NumPy twin, Geweke's test, enumeration."""

import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from arbora.core.engine import SerialEngine
from arbora.datasets import make_vmf_mixture
from arbora.discover import BayesianVMFMixture
from arbora.discover.vmf.gibbs import CollapsedVMF, GibbsState, align, sample_posterior, sweep_labels
from arbora.discover.vmf.posterior import VMFPrior
from arbora.infer.mcmc.chains import ChainSchedule
from arbora.infer.mcmc.diagnostics import geweke_test
from arbora.special import sample_vmf

PRIOR = VMFPrior(0.8, np.array([1.0, 0.0, 0.0]), 2.0, np.log(4.0), 0.5)


@pytest.mark.parametrize("shared", [False, True])
def test_prior_likelihood_and_sweep_belong_to_one_model(shared):
    model = CollapsedVMF(PRIOR, 2, 5, shared, step=1.0)

    def statistics(state, X):
        counts, sums = model.statistics(state, X)
        square, along = model.norms(sums)
        pull = np.exp(state.log_kappa) @ np.sqrt(square)
        return [
            counts @ counts, state.log_kappa[0], state.log_kappa[1] ** 2, square.sum(), along.sum(), pull,
            model.log_joint(state, X),
        ]  # fmt: skip

    result = geweke_test(model, statistics, np.random.default_rng(0), n_direct=500, n_sweeps=200, n_chains=3)
    assert result.p_value > 0.01
    assert result.effective_sample_size.min() > 50


def test_assignments_have_the_distribution_of_the_joint_density():
    """Given the concentrations, all 3^4 assignments; the shares of many sweeps are theirs."""
    rng = np.random.default_rng(1)
    model = CollapsedVMF(PRIOR, 3, 4)
    X = model.sample_data(model.sample_prior(rng), rng)
    u = np.log([2.0, 5.0, 9.0])
    every = list(product(range(3), repeat=4))
    log_p = np.array([model.log_joint(GibbsState(np.array(z), u), X) for z in every])
    p = np.exp(log_p - logsumexp(log_p))
    place = {z: number for number, z in enumerate(every)}
    seen, labels = np.zeros(len(every)), np.zeros(4, dtype=np.int64)
    counts, sums = model.statistics(GibbsState(labels, u), X)
    square, along = model.norms(sums)
    for _ in range(6000):
        sweep_labels(
            *(X.indptr, X.indices, X.data, rng.permutation(4), rng.random(4), labels, counts, sums),
            *(square, along, PRIOR.direction, np.exp(u), PRIOR.alpha, PRIOR.concentration),
        )
        seen[place[tuple(labels.tolist())]] += 1
    fresh = model.statistics(GibbsState(labels, u), X)
    np.testing.assert_allclose(sums, fresh[1], atol=1e-9)
    np.testing.assert_allclose([square, along], model.norms(sums), atol=1e-8)
    assert np.abs(seen / seen.sum() - p).sum() < 0.15  # twice the total variation


def test_align_maximises_the_agreement_of_labels():
    rng = np.random.default_rng(0)
    reference = rng.integers(6, size=200)
    shuffle = rng.permutation(6)
    names = align(shuffle[reference], reference, 6)
    np.testing.assert_array_equal(names[shuffle], np.arange(6))


def test_chains_start_at_their_own_states_in_any_thread_order():
    rng = np.random.default_rng(0)
    X = sp.csr_array(sample_vmf(np.eye(3)[rng.integers(3, size=30)], 20.0, random_state=rng))
    states = [GibbsState(rng.integers(3, size=30), np.full(3, 2.0)) for _ in range(3)]

    class Backwards(SerialEngine):
        def map(self, function, items, progress=None):
            return [function(item) for item in reversed(list(items))][::-1]

    sampler = CollapsedVMF(PRIOR, 3, 30)
    forward, other = (
        sample_posterior(sampler, X, states, ChainSchedule(2, 4), 0, engine)
        for engine in (SerialEngine(), Backwards())
    )
    np.testing.assert_array_equal(forward.draws["log_joint"], other.draws["log_joint"])


@pytest.fixture(scope="module")
def sampled():
    data = make_vmf_mixture(150, 4, 3, kappa=40.0, random_state=0)
    options = {"concentration": "own", "random_state": 0}
    sampling = {"n_warmup": 50, "n_samples": 100}
    fitted = BayesianVMFMixture(3, inference="gibbs", sampling=sampling, **options).fit(data.X_train)
    return data, fitted, BayesianVMFMixture(3, **options).fit(data.X_train)


def test_draws_agree_with_the_variational_posterior(sampled):
    data, gibbs, variational = sampled
    assert max(np.max(value) for value in gibbs.rhat_.values()) < 1.05
    np.testing.assert_allclose(gibbs.means_, variational.means_, atol=0.02)
    np.testing.assert_allclose(gibbs.weights_, variational.weights_, atol=0.03)
    sd = gibbs.draws_["log_concentrations"].std(axis=(0, 1))
    assert np.all(np.abs(np.log(gibbs.concentrations_ / variational.concentrations_)) < sd)
    assert gibbs.score(data.X_train) == pytest.approx(variational.score(data.X_train), abs=0.05)


def test_attributes_of_the_sampler(sampled):
    data, gibbs, _ = sampled
    assert gibbs.draws_["counts"].shape == (2, 100, 3)
    np.testing.assert_allclose(gibbs.draws_["counts"].sum(axis=-1), 150)
    np.testing.assert_allclose(gibbs.responsibilities_.sum(axis=1), 1.0)
    assert len(gibbs.trace_) == 150
    labels = gibbs.responsibilities_.argmax(axis=1)
    assert adjusted_rand_score(data.truth.components, labels) > 0.9
    assert (labels == gibbs.predict(data.X_train)).mean() > 0.95


def test_rows_of_weight_zero_have_responsibilities(sampled):
    data, weight = sampled[0], np.ones(150)
    weight[::10] = 0
    model = BayesianVMFMixture(
        3, inference="gibbs", sampling={"n_warmup": 20, "n_samples": 20}, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X_train, sample_weight=weight)
    assert model.responsibilities_.shape == (150, 3)
    np.testing.assert_allclose(model.responsibilities_.sum(axis=1), 1.0)
    assert adjusted_rand_score(data.truth.components, model.responsibilities_.argmax(axis=1)) > 0.9


def test_weights_other_than_zero_and_one_are_refused(sampled, monkeypatch):
    data = sampled[0]
    monkeypatch.setattr(BayesianVMFMixture, "_solve", None)  # before anything is fitted
    with pytest.raises(ValueError, match="no weights but 0 and 1"):
        BayesianVMFMixture(2, inference="gibbs", sampling={"n_samples": 4}).fit(
            sp.csr_array(data.X_train), sample_weight=np.full(150, 2.0)
        )
