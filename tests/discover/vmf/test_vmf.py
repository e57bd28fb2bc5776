"""The von Mises-Fisher mixture: closed forms, integrals, invariances, known truth."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import special_ortho_group
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from arbora.datasets import make_vmf_mixture
from arbora.discover import (
    BayesianVMFMixture,
    DirichletProcessVMFMixture,
    MultinomialMixture,
    SphericalKMeans,
    VMFMixture,
)
from arbora.special import bessel_ratio, kappa_mle, sample_vmf, vmf_logpdf

EXACT = {"tol": 1e-9, "max_iter": 2000, "random_state": 0}
FEW_STEPS = {**EXACT, "max_iter": 20}  # for what holds at every step, where convergence takes hundreds
BAYESIAN = BayesianVMFMixture, DirichletProcessVMFMixture
EARLY = "ignore::sklearn.exceptions.ConvergenceWarning"


@pytest.fixture(scope="module")
def data():
    return make_vmf_mixture(240, 4, 3, kappa=[10.0, 20.0, 40.0], weights=[0.5, 0.3, 0.2], random_state=1)


@pytest.fixture(scope="module")
def fitted(data):
    return VMFMixture(3, n_init=3, random_state=0).fit(data.X_train)


@pytest.mark.parametrize("concentration", ["shared", "own"])
@pytest.mark.parametrize("assignments", ["soft", "hard", "annealed"])
def test_the_bound_never_falls_and_is_the_log_likelihood(data, concentration, assignments):
    start = np.where(np.arange(240) % 2, data.truth.components, np.arange(240) // 2 % 3)
    options = {"concentration": concentration, "assignments": assignments, "prior_rows": 0.0, "init": start}
    model = VMFMixture(3, **options, **EXACT).fit(data.X_train)
    assert len(model.lower_bounds_) > 3
    assert np.all(np.diff(model.lower_bounds_) >= -1e-12 * np.abs(model.lower_bounds_[:-1]))
    assert len(np.unique(model.concentrations_)) == (1 if concentration == "shared" else 3)
    log_joint = vmf_logpdf(data.X_train, model.means_, model.concentrations_) + np.log(model.weights_)
    value = log_joint.max(axis=1) if assignments == "hard" else np.logaddexp.reduce(log_joint, axis=1)
    assert model.lower_bounds_[-1] == pytest.approx(value.sum(), rel=1e-9)
    np.testing.assert_allclose(model.score_samples(data.X_train), np.logaddexp.reduce(log_joint, axis=1))
    np.testing.assert_array_equal(model.predict(data.X_train), log_joint.argmax(axis=1))


def test_no_parameter_can_be_moved_to_a_higher_likelihood(data):
    model = VMFMixture(3, concentration="own", prior_rows=0.0, **EXACT).fit(data.X_train)

    def value(means, kappa, weights):
        means = means / np.linalg.norm(means, axis=1, keepdims=True)
        log_joint = vmf_logpdf(data.X_train, means, kappa) + np.log(weights / weights.sum())
        return np.logaddexp.reduce(log_joint, axis=1).sum()

    best = value(model.means_, model.concentrations_, model.weights_)
    rng = np.random.default_rng(0)
    for _ in range(20):
        means = model.means_ + 0.01 * rng.standard_normal(model.means_.shape)
        kappa = model.concentrations_ * np.exp(0.01 * rng.standard_normal(3))
        weights = model.weights_ * np.exp(0.01 * rng.standard_normal(3))
        assert value(means, kappa, weights) < best


def test_the_density_integrates_to_one_on_the_circle_and_the_sphere():
    angle = np.linspace(0, 2 * np.pi, 721)[:-1]
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    model = VMFMixture(2, random_state=0).fit(circle[[0, 3, 8, 300, 310, 345]])
    assert np.exp(model.score_samples(circle)).sum() * 2 * np.pi / 720 == pytest.approx(1, abs=1e-9)
    height, height_weight = np.polynomial.legendre.leggauss(80)
    angle, z = (grid.ravel() for grid in np.meshgrid(angle[::6], height))
    radius = np.sqrt(1 - z**2)
    sphere = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), z])
    model = VMFMixture(2, concentration="own", random_state=0).fit(sphere[[0, 3, 8, 3000, 3010, 3145]])
    area = np.repeat(height_weight, 120) * 2 * np.pi / 120
    assert np.exp(model.score_samples(sphere)) @ area == pytest.approx(1, abs=1e-6)


def test_one_component_is_maximum_likelihood(data):
    model = VMFMixture(1, prior_rows=0.0, tol=1e-9).fit(data.X_train)
    mean = data.X_train.mean(axis=0)
    np.testing.assert_allclose(model.means_[0], mean / np.linalg.norm(mean), rtol=1e-12)
    np.testing.assert_allclose(model.concentrations_, kappa_mle(np.linalg.norm(mean), 4), rtol=1e-12)


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize("kind", [VMFMixture, BayesianVMFMixture, DirichletProcessVMFMixture])
def test_a_rotation_rotates_the_means_and_nothing_else(data, kind):
    turn = special_ortho_group.rvs(4, random_state=0)
    labels = np.arange(240) % 3
    options = FEW_STEPS if kind in BAYESIAN else EXACT
    model = kind(3, init=labels, **options).fit(data.X_train)
    other = kind(3, init=labels, **options).fit(data.X_train @ turn.T)
    np.testing.assert_allclose(model.means_ @ turn.T, other.means_, atol=1e-6)
    np.testing.assert_allclose(model.concentrations_, other.concentrations_, rtol=1e-6)
    np.testing.assert_allclose(model.lower_bounds_[-1], other.lower_bounds_[-1], rtol=1e-10)


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize("kind", [VMFMixture, BayesianVMFMixture, SphericalKMeans, MultinomialMixture])
def test_a_weight_of_two_is_a_row_twice_and_one_of_zero_none(data, kind):
    X, labels = np.abs(data.X_train[:60]), np.arange(60) % 3
    weight = np.arange(60) % 4
    options = FEW_STEPS if kind in BAYESIAN else EXACT
    twice = kind(3, init=labels, **options).fit(X, sample_weight=weight)
    repeated = kind(3, init=np.repeat(labels, weight), **options).fit(np.repeat(X, weight, axis=0))
    name = "cluster_centers_" if kind is SphericalKMeans else "means_"
    np.testing.assert_allclose(getattr(twice, name), getattr(repeated, name), atol=1e-6)
    if kind is not SphericalKMeans:
        np.testing.assert_allclose(twice.weights_, repeated.weights_, atol=1e-6)
        # A row that is there twice stays there once when it is left out.
        np.testing.assert_allclose(
            twice.density_quantiles_, repeated.density_quantiles_, rtol=1e-5, atol=1e-5
        )


def test_only_directions_matter(data):
    scale = np.exp(np.random.default_rng(0).uniform(-200, 200, (240, 1)))
    model = VMFMixture(3, random_state=0).fit(data.X_train)
    other = VMFMixture(3, random_state=0).fit(data.X_train * scale)
    np.testing.assert_allclose(model.means_, other.means_, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"init": np.arange(240) % 5}, "labels from 0 to 4"),
        ({"init": np.zeros(240, int)}, "no row of init has label 1"),
        ({"init": np.zeros((3, 4))}, "mean that is zero"),
        ({"init": np.ones((2, 4))}, r"means of shape \(3, 4\); got shape \(2, 4\)"),
        ({"n_components": 500}, "n_samples=240 rows cannot fill n_components=500"),
        ({"n_components": "auto", "init": np.zeros(240, int)}, "'auto' needs"),
    ],
)
def test_bad_starts_are_explained(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        VMFMixture(**{"n_components": 3, **arguments}).fit(data.X_train)


def test_values_that_are_not_finite_are_reported_by_row(data):
    X = data.X_train.copy()
    X[5, 1], X[7, 0] = np.nan, np.inf
    with pytest.raises(ValueError, match=r"contains NaN in row 5, column 1 \(wrong rows: 5, 7\)"):
        VMFMixture(2).fit(X)
    before = VMFMixture(2, random_state=0).fit(data.X_train)
    with pytest.raises(ValueError, match=r"contains NaN in row 5, column 1 \(wrong rows: 5, 7\)"):
        before.fit(X[:, :3])
    assert before.n_features_in_ == 4  # a fit that fails leaves the one before
    before.predict(data.X_train)


@pytest.mark.parametrize(("kind", "n_features"), [(VMFMixture, 10**6), (BayesianVMFMixture, 10**5)])
def test_very_many_dimensions(kind, n_features):
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.integers(0, 50, (20, 12)), n_features - 1 - rng.integers(0, 50, (20, 12))])
    X = sp.csr_array((np.ones(480), (np.repeat(np.arange(40), 12), columns.ravel())), shape=(40, n_features))
    model = kind(2, random_state=0).fit(X)
    labels = model.predict(X)
    assert len(set(labels[:20])) == len(set(labels[20:])) == 1
    assert labels[0] != labels[20]
    assert np.isfinite(model.score(X))
    words = {word for word, _ in model.top_features(n=20)[labels[0]]}
    assert words <= set(range(50))


def test_the_truth_is_found(data, fitted):
    assert adjusted_rand_score(data.truth.components, fitted.predict(data.X_train)) > 0.8
    separate = VMFMixture(3, concentration="own", n_init=3, random_state=0).fit(data.X_train)
    order = [int(np.argmax(separate.means_ @ mean)) for mean in data.truth.means]
    assert np.min(np.sum(separate.means_[order] * data.truth.means, axis=1)) > 0.98
    np.testing.assert_allclose(separate.concentrations_[order], data.truth.concentrations, rtol=0.4)
    np.testing.assert_allclose(separate.weights_[order], data.truth.weights, atol=0.1)


def test_single_precision_and_mini_batches_agree_with_the_exact_fit(data):
    start = data.truth.means
    exact = VMFMixture(3, init=start, **EXACT).fit(data.X_train)
    single = VMFMixture(3, init=start, **{**EXACT, "tol": 1e-6}).fit(data.X_train)
    np.testing.assert_allclose(single.means_, exact.means_, atol=5e-3)
    batches = VMFMixture(3, init=start, batch_size=60, tol=1e-3, random_state=0).fit(data.X_train)
    np.testing.assert_allclose(batches.means_, exact.means_, atol=0.1)
    assert adjusted_rand_score(batches.predict(data.X_train), exact.predict(data.X_train)) > 0.9


def test_the_number_of_components_is_that_of_the_truth():
    data = make_vmf_mixture(240, 4, 3, kappa=60.0, random_state=4)
    model = VMFMixture("auto", n_init=2, random_state=0).fit(data.X_train)
    assert model.n_components_ == len(model.means_) == 3
    tried = model.selection_["n_components"].tolist()
    assert tried[:4] == [1, 2, 3, 4]
    assert np.all(np.diff(model.selection_["score"][:3]) > 0)


def test_novel_rows(data, fitted):
    """New rows of the same source are called novel as often as the level says, others nearly always."""
    rng = np.random.default_rng(0)
    z = rng.choice(3, size=2000, p=data.truth.weights)
    X = sample_vmf(data.truth.means[z], data.truth.concentrations[z], random_state=rng)
    for level in (0.05, 0.2):
        assert fitted.is_novel(X, level=level).mean() == pytest.approx(level, abs=0.05)
    assert fitted.is_novel(-data.truth.means.sum(axis=0, keepdims=True)).all()
    with pytest.raises(ValueError, match="between 0 and 1"):
        fitted.is_novel(X, level=5)


def test_left_out_densities_are_those_of_models_without_the_row():
    """With one component, leaving a row out takes it from the mean; only the concentration stays."""
    X = make_vmf_mixture(12, 3, 1, kappa=5.0, random_state=0).X_train
    model = VMFMixture(1, tol=1e-9).fit(X)
    expected = []
    for i in range(12):
        rest = np.delete(X, i, axis=0).sum(axis=0)
        expected.append(vmf_logpdf(X[i], rest / np.linalg.norm(rest), model.concentrations_[0]))
    np.testing.assert_allclose(np.unique(model.density_quantiles_), np.sort(expected), rtol=1e-9)


def test_samples_come_from_the_mixture(fitted):
    X, labels = fitted.sample(4000)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    np.testing.assert_allclose(np.bincount(labels) / 4000, fitted.weights_, atol=0.03)
    for k in range(3):
        mean = X[labels == k].mean(axis=0)
        expected = bessel_ratio(1.0, fitted.concentrations_[k]) * fitted.means_[k]
        np.testing.assert_allclose(mean, expected, atol=0.05)


def test_criteria_words_and_representatives(data, fitted):
    X = data.X_train
    total = fitted.score_samples(X).sum()
    assert fitted.score(X) == pytest.approx(total / 240)
    n_parameters = 3 * 3 + 1 + 2
    assert fitted.bic(X) == pytest.approx(-2 * total + n_parameters * np.log(240))
    assert fitted.aic(X) == pytest.approx(-2 * total + 2 * n_parameters)
    names = ["a", "b", "c", "d"]
    for mean, words in zip(fitted.means_, fitted.top_features(names, n=2), strict=True):
        assert words == [(names[j], mean[j]) for j in np.argsort(-mean)[:2] if mean[j] > 0]
    with pytest.raises(ValueError, match="2 names, but the model has 4"):
        fitted.top_features(["a", "b"])
    labels = fitted.predict(X)
    for k, rows in enumerate(fitted.representatives(X, 3)):
        members = np.flatnonzero(labels == k)
        np.testing.assert_array_equal(rows, members[np.argsort(-X[members] @ fitted.means_[k])[:3]])


def test_max_iter_warns_at_the_line_of_the_caller(data):
    with pytest.warns(ConvergenceWarning, match="max_iter=2") as caught:
        VMFMixture(3, max_iter=2, tol=1e-12, random_state=0).fit(data.X_train)
    assert caught[0].filename == __file__
