"""The Bayesian von Mises-Fisher mixture: integrals, enumeration, a bound that never decreases."""

import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp
from sklearn.metrics import adjusted_rand_score

from arbora.datasets import make_vmf_mixture
from arbora.discover import BayesianVMFMixture, VMFMixture
from arbora.discover.vmf.concentration import (
    KappaLikelihood,
    KappaPosterior,
    bound_posterior,
    bounded_log_normalizer,
    grid_posterior,
    point_posterior,
    prior_divergence,
    sample_posterior,
)
from arbora.discover.vmf.mixture import (
    VMFParams,
    critical_temperature,
    held_back_update,
    mean_row,
    vmf_scores,
)
from arbora.discover.vmf.posterior import best_alpha, posterior_extra, predictive_log_density
from arbora.engine import ThreadEngine
from arbora.infer.mixture.statistics import WeightedRows, e_step
from arbora.special import kappa_mle, vmf_log_normalizer, vmf_logpdf

EXACT = {"tol": 5e-7, "max_iter": 300, "random_state": 0}
FIXED = {
    "alpha": 0.7,
    "direction": [1.0, 0.0],
    "concentration": 2.0,
    "log_mean": np.log(4.0),
    "log_variance": 0.5,
}


@pytest.fixture(scope="module")
def data():
    return make_vmf_mixture(200, 4, 3, kappa=[10.0, 20.0, 40.0], random_state=1)


def likelihoods():
    """A few rows and none, few dimensions and many, narrow posteriors and the prior alone."""
    n = np.array([0.0, 2.0, 300.0])
    return [
        KappaLikelihood(n, n * np.array([0.0, 0.4, 0.9]), 3.0, 0.8, n_features) for n_features in (2, 3, 5000)
    ]


@pytest.mark.parametrize("likelihood", likelihoods(), ids=lambda a: f"{a.n_features} dimensions")
def test_quadrature_equals_adaptive_integration(likelihood):
    q = grid_posterior(likelihood, None)
    for k in range(3):
        component = likelihood._replace(counts=likelihood.counts[[k]], pulls=likelihood.pulls[[k]])
        centre, sd = q.log_mean[k], np.sqrt(q.log_variance[k])
        top = component.log_density(np.array([centre]))[0]

        def mean(function, component=component, top=top, centre=centre, sd=sd):
            def integrand(u):
                return function(u) * np.exp(component.log_density(np.array([u]))[0] - top)

            ends = centre - 12 * sd, centre + 12 * sd
            return quad(integrand, *ends, epsabs=0, epsrel=1e-11, limit=200, points=[centre])[0]

        size = mean(lambda u: 1.0)
        assert q.mean[k] == pytest.approx(mean(np.exp) / size, rel=1e-7)
        assert q.log_mean[k] == pytest.approx(mean(lambda u: u) / size, rel=1e-7)
        normalizer = mean(lambda u: vmf_log_normalizer(np.exp(u), likelihood.n_features)) / size
        assert q.log_normalizer[k] == pytest.approx(normalizer, rel=1e-8)
        fit = component.counts[0] * q.log_normalizer[k] + component.pulls[0] * q.mean[k]
        square = (q.log_square[k] - 6.0 * q.log_mean[k] + 9.0) / 1.6
        assert q.entropy[k] == pytest.approx(np.log(size) + top - fit + square, rel=1e-6, abs=1e-6)


def test_the_posterior_of_no_rows_is_the_prior():
    q = grid_posterior(KappaLikelihood(np.zeros(1), np.zeros(1), 2.0, 0.3, 10), None)
    np.testing.assert_allclose([q.log_mean[0], q.log_variance[0]], [2.0, 0.3], rtol=1e-9)
    np.testing.assert_allclose(prior_divergence(q, 2.0, 0.3), 0.0, atol=1e-9)


@pytest.mark.parametrize("n_features", [2, 3, 50, 10_000])
def test_the_bound_of_the_normaliser_is_a_lower_bound(n_features):
    kappa = np.concatenate([[0.0], np.geomspace(1e-3, 1e6, 50)])
    gap = vmf_log_normalizer(kappa, n_features) - bounded_log_normalizer(kappa, n_features)
    assert gap[0] == pytest.approx(0, abs=1e-9)
    assert np.all(gap >= -1e-9)
    assert np.all(np.diff(gap) >= -1e-8)


@pytest.mark.parametrize("likelihood", likelihoods(), ids=lambda a: f"{a.n_features} dimensions")
def test_the_bound_posterior_is_the_best_normal_distribution(likelihood):
    """No other normal law of log(kappa) has a higher bound, and quadrature, without a bound, is above."""
    start = point_posterior(np.full(3, 5.0), likelihood.n_features)

    def value(q):
        fit = likelihood.counts * q.log_normalizer + likelihood.pulls * q.mean
        return fit - prior_divergence(q, likelihood.prior_mean, likelihood.prior_variance)

    q = bound_posterior(likelihood, start)
    assert np.all(value(q) <= value(grid_posterior(likelihood, start)) + 1e-7)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    sd = np.sqrt(q.log_variance)
    for shift, scale in product((-0.1, 0.0, 0.1), (0.9, 1.0, 1.1)):
        u = (q.log_mean + shift * sd)[:, None] + (scale * sd)[:, None] * nodes
        entropy = 0.5 * np.log(2 * np.pi * np.e) + np.log(scale * sd)
        bound = bounded_log_normalizer(np.exp(u), likelihood.n_features)
        other = KappaPosterior(*(a @ weights for a in (np.exp(u), bound, u, u**2)), entropy)
        assert np.all(value(other) <= value(q) + 1e-6)


def test_metropolis_agrees_with_quadrature():
    likelihood = KappaLikelihood(np.array([5.0, 300.0]), np.array([3.0, 250.0]), 3.0, 0.8, 20)
    grid = grid_posterior(likelihood, None)
    drawn = sample_posterior(likelihood, grid)
    sd = np.sqrt(grid.log_variance)
    assert np.all(np.abs(drawn.log_mean - grid.log_mean) < 0.5 * sd)
    np.testing.assert_allclose(np.sqrt(drawn.log_variance), sd, rtol=0.3)
    np.testing.assert_allclose(drawn.entropy, grid.entropy, atol=0.4)


@pytest.mark.parametrize("posterior", ["grid", "bound"])
@pytest.mark.parametrize(("init", "shared"), [("k-means++", True), ("random", False)])
def test_the_bound_never_falls(data, posterior, init, shared):
    options = {
        "concentration_posterior": posterior,
        "init": init,
        "concentration": "shared" if shared else "own",
    }
    model = BayesianVMFMixture(5, **options, **EXACT).fit(data.X_train)
    assert (len(np.unique(model.concentrations_)) == 1) == shared
    steps, size = np.diff(model.lower_bounds_), np.abs(model.lower_bounds_[:-1])
    assert len(steps) > 3
    assert np.all(steps >= -1e-10 * np.maximum(size, 1))


def evidence(X, n_components, shared):
    """Log-evidence under the fixed prior, by all assignments; means in closed form, concentrations by quadrature."""
    n, n_features = X.shape
    alpha, mu0, c0 = FIXED["alpha"], np.array(FIXED["direction"]), FIXED["concentration"]
    m, variance = FIXED["log_mean"], FIXED["log_variance"]
    u = m + np.sqrt(variance) * np.linspace(-9, 9, 401)
    log_prior = -((u - m) ** 2) / (2 * variance) - 0.5 * np.log(2 * np.pi * variance) + np.log(u[1] - u[0])
    kappa = np.exp(u)
    total = []
    for z in product(range(n_components), repeat=n):
        count = np.bincount(z, minlength=n_components)
        value = gammaln(n_components * alpha) - gammaln(n_components * alpha + n)
        value += np.sum(gammaln(alpha + count) - gammaln(alpha))
        fits = []
        for k in range(n_components):
            rows = kappa[:, None] * X[np.array(z) == k].sum(axis=0) + c0 * mu0
            fit = count[k] * vmf_log_normalizer(kappa, n_features) + vmf_log_normalizer(c0, n_features)
            fits.append(fit - vmf_log_normalizer(np.linalg.norm(rows, axis=1), n_features))
        each = [sum(fits)] if shared else fits
        total.append(value + sum(logsumexp(fit + log_prior) for fit in each))
    return logsumexp(total)


@pytest.mark.parametrize(
    ("n_components", "shared", "slack"), [(1, True, 0.2), (2, True, 2.5), (2, False, 2.5)]
)
def test_the_bound_is_below_the_evidence_by_enumeration(n_components, shared, slack):
    """All 2^6 assignments; the factorised posterior loses little of one component, and label switching of two."""
    X = make_vmf_mixture(6, 2, 2, kappa=20.0, random_state=2).X_train
    exact = evidence(X, n_components, shared)
    bounds = {}
    options = {
        "concentration": "shared" if shared else "own",
        "n_init": 2,
        "prior": FIXED,
        **EXACT,
    }
    for posterior in ("grid", "bound"):
        model = BayesianVMFMixture(n_components, concentration_posterior=posterior, **options).fit(X)
        bounds[posterior] = model.lower_bounds_[-1]
    assert exact - slack < bounds["grid"] < exact
    assert bounds["bound"] <= bounds["grid"] + 1e-8


def test_no_factor_and_no_learned_prior_can_be_improved(data):
    model = BayesianVMFMixture(3, concentration="own", **EXACT).fit(data.X_train)
    q = model._params()
    best = posterior_extra(q)
    for name in ("alpha", "concentration", "log_variance"):
        for factor in (0.95, 1.05):
            prior = q.prior._replace(**{name: getattr(q.prior, name) * factor})
            assert posterior_extra(q._replace(prior=prior)) < best, name
    for shift in (-0.05, 0.05):
        prior = q.prior._replace(log_mean=q.prior.log_mean + shift)
        assert posterior_extra(q._replace(prior=prior)) < best
    turned = q.prior.direction + 0.05 * np.roll(q.prior.direction, 1)
    prior = q.prior._replace(direction=turned / np.linalg.norm(turned))
    assert posterior_extra(q._replace(prior=prior)) < best


def test_given_parts_of_the_prior_are_kept(data):
    fixed = {**FIXED, "direction": [0.0, 2.0, 0.0, 0.0]}
    model = BayesianVMFMixture(3, prior=fixed, random_state=0).fit(data.X_train)
    assert model.prior_["alpha"] == 0.7
    assert model.prior_["direction"].tolist() == [0, 1, 0, 0]
    assert model.prior_["concentration"] == 2.0
    assert model.prior_["log_mean"] == np.log(4.0)
    assert model.prior_["log_variance"] == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": {"direction": [1.0, 0.0]}}, r'prior\["direction"\] must be a vector of 4 numbers'),
        ({"prior": {"log_varianc": 1.0}}, "prior has no option 'log_varianc' .did you mean 'log_variance'"),
        ({"prior": {"alpha": 0.0}}, "'alpha' parameter of prior must be"),
        ({"inference": "gibbs", "sampling": {"n_samples": 3}}, "'n_samples' parameter of sampling must be"),
    ],
    ids=str,
)
def test_options_that_are_wrong_are_named(data, options, message):
    with pytest.raises(ValueError, match=message):
        BayesianVMFMixture(3, **options).fit(data.X_train)


def test_alpha_maximises_the_bound():
    n, s = 5, -20.0
    grid = np.geomspace(1e-3, 1e2, 20_001)
    value = gammaln(n * grid) - n * gammaln(grid) + (grid - 1) * s
    assert best_alpha(s, n) == pytest.approx(grid[value.argmax()], rel=1e-3)


def test_the_predictive_density_is_an_average_and_integrates_to_one():
    """On the circle the mean can be integrated out by hand."""
    angle = np.linspace(0, 2 * np.pi, 1441)[:-1]
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    certain = point_posterior(np.array([30.0]), 2)
    density = np.exp(predictive_log_density(circle[:, :1], np.array([5.0]), certain, 2))[:, 0]
    weight = np.exp(vmf_logpdf(circle, np.array([1.0, 0.0]), 5.0)) * 2 * np.pi / 1440
    by_hand = np.exp(vmf_logpdf(circle, circle[::90], 30.0))  # rows: mean directions, columns: where
    np.testing.assert_allclose(density[::90], weight @ by_hand, rtol=1e-9)
    model = BayesianVMFMixture(3, random_state=0).fit(circle[[0, 10, 20, 500, 520, 900, 905]])
    assert np.exp(model.score_samples(circle)).sum() * 2 * np.pi / 1440 == pytest.approx(1, abs=1e-6)


def test_a_certain_prior_gives_the_mixture_without_one(data):
    """Many rows, a flat prior of the means and one known concentration: nothing is left for Bayes to add."""
    X = np.repeat(data.X_train, 50, axis=0)
    start = data.truth.means
    prior = {"alpha": 1.0, "concentration": 0.0, "log_mean": np.log(20.0), "log_variance": 1e-6}
    ours = BayesianVMFMixture(3, init=start, prior=prior, random_state=0).fit(X)
    plain = VMFMixture(3, init=start, random_state=0).fit(X)
    np.testing.assert_allclose(ours.concentrations_, 20.0, rtol=0.05)
    np.testing.assert_allclose(ours.means_, plain.means_, atol=0.05)
    np.testing.assert_allclose(ours.weights_, plain.weights_, atol=0.05)


@pytest.mark.parametrize("posterior", ["grid", "bound", "sample"])
def test_the_truth_is_found(posterior):
    data = make_vmf_mixture(300, 5, 3, kappa=[20.0, 40.0, 80.0], random_state=5)
    options = {"concentration": "own", "n_init": 2, "random_state": 0}
    model = BayesianVMFMixture(3, concentration_posterior=posterior, **options).fit(data.X_train)
    labels = model.predict(data.X_train)
    assert adjusted_rand_score(data.truth.components, labels) > 0.85
    used = np.unique(labels)
    order = [used[np.argmax(model.means_[used] @ mean)] for mean in data.truth.means]
    assert np.min(np.sum(model.means_[order] * data.truth.means, axis=1)) > 0.98
    if posterior == "grid":
        np.testing.assert_allclose(model.concentrations_[order], data.truth.concentrations, rtol=0.4)


def test_samples_follow_the_predictive_distribution(data):
    model = BayesianVMFMixture(3, random_state=0).fit(data.X_train)
    X, labels = model.sample(2000)
    np.testing.assert_allclose(np.bincount(labels, minlength=3) / 2000, model.weights_, atol=0.05)
    assert model.score(X) == pytest.approx(model.score(data.X_train), abs=0.2)
    assert model.is_novel(X).mean() < 0.15
    assert model.is_novel(-data.truth.means.sum(axis=0, keepdims=True)).all()


def test_a_single_cluster_separates_only_below_the_critical_temperature(data):
    """Small deviations of the means from the mean of all rows grow or die out as the theory says."""
    X = sp.csr_array(data.X_train)
    rows, rng = WeightedRows(X, np.ones(len(data.X_train))), np.random.default_rng(0)
    mean = mean_row(rows)
    across = np.eye(4) - np.outer(mean, mean) / (mean @ mean)
    kappa = kappa_mle(np.linalg.norm(mean), 4)
    critical = critical_temperature(rows, rng)
    largest = np.linalg.eigvalsh(across @ np.cov(data.X_train.T, bias=True) @ across)[-1]
    assert critical == pytest.approx(kappa * largest / np.linalg.norm(mean), rel=1e-3)
    start = mean[:, None] / np.linalg.norm(mean) + 1e-6 * rng.standard_normal((4, 3))
    for ratio, grows in ((0.7, True), (1.4, False)):
        params = VMFParams(start, np.linalg.norm(start, axis=0), np.full(3, kappa), np.full(3, 1 / 3))
        spread = []
        for _ in range(12):
            scores = vmf_scores(params)._replace(temperature=ratio * critical)
            stats, _ = e_step(scores, rows, ThreadEngine(1))
            params = held_back_update(mean, 0.0, params, stats)
            spread.append(params.vectors.std(axis=1).sum())
        assert spread[-1] / spread[-2] == pytest.approx(1 / ratio, rel=0.1)
        assert (spread[-1] > spread[3]) == grows


@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_superfluous_components_lose_their_rows(init):
    data = make_vmf_mixture(400, 60, 4, kappa=60.0, random_state=3)
    for seed in range(2):
        model = BayesianVMFMixture(10, init=init, keep_empty=True, random_state=seed).fit(data.X_train)
        labels = model.predict(data.X_train)
        assert len(np.unique(labels)) < 10
        assert adjusted_rand_score(data.truth.components, labels) > 0.9


def test_prior_of_a_shared_concentration_does_not_hold_it_back():
    # Learned from one number, the variance would shrink in every iteration and stop kappa on its way.
    data = make_vmf_mixture(1000, 3, 3, kappa=60.0, random_state=0)
    labels = np.unique(data.y, return_inverse=True)[1]
    # Have random labels, so that the concentration of the start is low
    half = np.arange(len(labels)) % 2 == 0
    labels[half] = np.random.default_rng(0).integers(3, size=half.sum())
    options = {"init": labels, "tol": 1e-9, "max_iter": 1000}
    model = BayesianVMFMixture(3, **options).fit(data.X)
    free = BayesianVMFMixture(3, prior={"log_variance": 1e6}, **options)
    np.testing.assert_allclose(model.concentrations_, free.fit(data.X).concentrations_, rtol=1e-3)
    assert model.prior_["log_variance"] == 1.0


def word_rows(n_samples, n_features, seed):
    """Rows of words whose frequencies fall as in texts, of five topics."""
    rng, frequency = np.random.default_rng(seed), 1 / np.arange(1, n_features + 1)
    words = rng.choice(n_features, size=(n_samples, 40), p=frequency / frequency.sum())
    words[:, :10] = (7 * words[:, :10] + 31 * (np.arange(n_samples) % 5)[:, None]) % n_features
    indptr = np.arange(n_samples + 1) * words.shape[1]
    X = sp.csr_array((np.ones(words.size), words.ravel(), indptr), shape=(n_samples, n_features))
    X.sum_duplicates()
    return X


@pytest.mark.parametrize(
    ("n_features", "posterior"), [(3000, "grid"), (3000, "bound"), (3000, "sample"), (20_000, "grid")]
)
def test_repeated_rows_are_fitted_in_single_precision(n_features, posterior):
    X = word_rows(150, n_features, 0)
    repeated = sp.csr_array(sp.vstack([X, X[[0, 0]]]))
    options = {
        "concentration": "own",
        "keep_empty": True,
        "random_state": 0,
    }  # the others collect the repeated rows
    model = BayesianVMFMixture(20, concentration_posterior=posterior, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the bound must not fall
        model.fit(repeated)
    assert np.all(model.concentrations_ < 2e8)
    test = word_rows(50, n_features, 1)
    single = BayesianVMFMixture(20, **options).fit(X)
    assert model.score(test) == pytest.approx(single.score(test), rel=1e-2)
