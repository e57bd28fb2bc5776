"""`DirichletProcessGaussianMixture` and `MaxMarginGaussianMixture`: densities, partitions, input, resume."""

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import arbora
from arbora.core.checkpoint import CheckpointError
from arbora.discover import DirichletProcessGaussianMixture, MaxMarginGaussianMixture
from arbora.discover.gaussian import partitions, sampler
from arbora.discover.gaussian.mixture import PriorOptions, Standardizer, default_scale, make_model
from arbora.discover.gaussian.predictive import Predictive, log_density, make_predictive

MODELS = DirichletProcessGaussianMixture, MaxMarginGaussianMixture
SHORT = {"sampling": {"n_warmup": 20, "n_samples": 20}, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore:the chains do not agree")


def blobs(n=150, p=2, seed=0):
    X, y = make_blobs(n, p, centers=np.arange(3)[:, None] * 8.0 - 8.0 + np.zeros((3, p)), random_state=seed)
    return X * np.arange(1, p + 1), y


@pytest.fixture(scope="module")
def fitted():
    X, y = blobs()
    return DirichletProcessGaussianMixture(**SHORT).fit(X), X, y


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical"])
@pytest.mark.parametrize("model", MODELS)
def test_finds_separate_clusters(model, covariance):
    X, y = blobs()
    fit = model(covariance=covariance, **SHORT).fit(X)
    assert adjusted_rand_score(y, fit.labels_) > 0.95
    assert adjusted_rand_score(y, fit.predict(X)) > 0.95
    shape = {"full": (2, 2), "diag": (2,), "spherical": (2,)}[covariance]
    assert fit.covariances_.shape == (fit.n_clusters_, *shape)
    assert fit.means_.shape == (fit.n_clusters_, 2)
    assert list(fit.counts_) == sorted(fit.counts_, reverse=True)


def test_one_component_with_many_rows_is_the_gaussian_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([1.0, -2.0], [[2.0, 0.9], [0.9, 1.0]], 20_000)
    ours = DirichletProcessGaussianMixture(1, sampling={"n_warmup": 5, "n_samples": 5}, random_state=0).fit(X)
    known = GaussianMixture(1, random_state=0).fit(X)
    new = X[:500]
    np.testing.assert_allclose(ours.score_samples(new), known.score_samples(new), atol=5e-3)
    np.testing.assert_allclose(ours.means_, known.means_, atol=1e-3)
    np.testing.assert_allclose(ours.covariances_, known.covariances_, atol=2e-3)


def test_one_component_is_students_distribution():
    X, _ = blobs(40)
    prior = {"alpha": 1.0, "r": 0.7, "nu": 5.0, "S": np.diag([2.0, 9.0])}
    model = DirichletProcessGaussianMixture(1, prior=prior, **SHORT).fit(X)
    mean, n = X.mean(axis=0), len(X)
    S = np.diag([2.0, 9.0]) + (X - mean).T @ (X - mean)
    df, rn = 5.0 + n - 1, 0.7 + n
    known = multivariate_t(mean, S * (rn + 1) / (rn * df), df).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), known)
    # The density without a row is that of a fit without it, with the mean of the prior kept.
    i, rest = 7, np.delete(X, 7, axis=0)
    moved = rest.mean(axis=0) - mean
    S = np.diag([2.0, 9.0]) + (rest - rest.mean(axis=0)).T @ (rest - rest.mean(axis=0))
    S = S + 0.7 * (n - 1) / (0.7 + n - 1) * np.outer(moved, moved)
    centre, rn, df = mean + moved * (n - 1) / (0.7 + n - 1), 0.7 + n - 1, 5.0 + n - 2
    known = multivariate_t(centre, S * (rn + 1) / (rn * df), df).logpdf(X[i])
    assert _left_out(model, X)[i] == pytest.approx(known)


def _left_out(model, X):
    standardizer = Standardizer(model.feature_means_, model.feature_scales_)
    Z, ids = standardizer.rows(X), np.arange(len(X))
    inner, start = make_model(PriorOptions(**model.prior), "full", 1, 10, standardizer, Z)
    state = start._replace(labels=np.zeros(len(X), np.int64))
    left_out = make_predictive(inner, [state], Z, state.labels, ids)[1]
    return left_out - np.log(model.feature_scales_).sum()


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical"])
@pytest.mark.parametrize("n_components", [None, 4])
def test_densities_integrate_to_one(covariance, n_components):
    X, _ = blobs(60, 1)
    model = DirichletProcessGaussianMixture(n_components, covariance=covariance, **SHORT).fit(X)
    grid = np.sinh(np.linspace(-14, 14, 40_001))[:, None]
    density = np.exp(model.score_samples(grid))
    assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1.0, abs=2e-3)


def test_densities_are_averages_over_draws(fitted):
    model, X, _ = fitted
    whole = Predictive(**model.predictive_)
    rows = (X[:5] - model.feature_means_) / model.feature_scales_
    total = np.zeros(5)
    n_draws = len(whole.starts) - 1
    for s in range(n_draws):
        part = slice(whole.starts[s], whole.starts[s + 1])
        arrays = {name: getattr(whole, name)[part] for name in whole._fields[:7]}
        one = whole._replace(**arrays)
        one = one._replace(log_weights=one.log_weights + np.log(n_draws))
        assert np.exp(one.log_weights).sum() == pytest.approx(1.0)
        total += np.exp(log_density(one, rows)) / n_draws
    np.testing.assert_allclose(
        np.log(total) - np.log(model.feature_scales_).sum(), model.score_samples(X[:5])
    )


def test_probabilities_and_novelty(fitted):
    model, X, _ = fitted
    proba = model.predict_proba(X)
    assert proba.shape == (len(X), model.n_clusters_)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    far = np.array([[1e6, -1e6], [0.0, 0.0]])
    assert np.isfinite(model.predict_proba(far)).all()
    assert model.is_novel(far).tolist() == [True, False]
    new, _ = blobs(600, seed=5)
    assert 0.01 < model.is_novel(new, level=0.1).mean() < 0.3
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        model.is_novel(X, level=2.0)


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical"])
def test_samples_come_from_the_density(covariance):
    X, _ = blobs(90)
    model = DirichletProcessGaussianMixture(covariance=covariance, **SHORT).fit(X)
    drawn, labels = model.sample(4000)
    assert drawn.shape == (4000, 2)
    assert labels.min() >= -1
    assert labels.max() < model.n_clusters_
    # The mean of q / p over draws from p is 1 for any density q that p covers.
    for centre in X[:3]:
        q = multivariate_normal(centre, np.diag([4.0, 16.0])).logpdf(drawn)
        ratio = np.exp(q - model.score_samples(drawn))
        assert ratio.mean() == pytest.approx(1.0, abs=4 * ratio.std() / np.sqrt(len(drawn)))
    known = labels >= 0
    assert np.mean(model.predict(drawn[known]) == labels[known]) > 0.9


def test_similarity_of_rows(fitted):
    model, X, _ = fitted
    whole = model.similarity_matrix()
    draws = model.partitions_.reshape(-1, len(X))
    np.testing.assert_allclose(whole, (draws[:, :, None] == draws[:, None, :]).mean(axis=0))
    np.testing.assert_allclose(
        model.similarity_matrix(rows=[3, -1], columns=[0, 7]), whole[[3, -1]][:, [0, 7]]
    )
    blocks = list(model.similarity_blocks(40))
    np.testing.assert_allclose(np.concatenate([block for _, block in blocks]), whole)
    assert [part.start for part, _ in blocks] == [0, 40, 80, 120]
    with pytest.raises(IndexError, match="numbered from 0 to 149"):
        model.similarity_matrix(rows=[150])
    between = model.cluster_similarity()
    for a in range(model.n_clusters_):
        for b in range(model.n_clusters_):
            pair = whole[np.ix_(model.labels_ == a, model.labels_ == b)]
            assert between[a, b] == pytest.approx(pair.mean())
    tree = model.merge_tree()
    assert tree.shape == (model.n_clusters_ - 1, 4)
    assert (tree[:, 2] >= 0).all()
    assert (tree[:, 2] <= 1).all()


def test_point_estimates():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [20, 15, 5])
    draws = np.array([np.where(rng.random(40) < 0.08, 3, truth) for _ in range(60)]).astype(np.uint16)
    log_joint = rng.random(60)
    for loss in ("vi", "binder"):
        result = partitions.point_estimate(draws, loss, log_joint, rng)
        np.testing.assert_array_equal(result, truth)
        best = partitions.mean_distance(draws, result, loss)
        assert best <= min(partitions.mean_distance(draws, one.astype(np.int64), loss) for one in draws)
    top = partitions.point_estimate(draws, "map", log_joint, rng)
    assert adjusted_rand_score(draws[np.argmax(log_joint)], top) == 1.0


def test_variation_of_information_is_that_of_the_entropies():
    rng = np.random.default_rng(0)
    one, other = rng.integers(4, size=(2, 50))

    def entropy(labels):
        p = np.unique(labels, return_counts=True)[1] / 50
        return -(p * np.log(p)).sum()

    known = 2 * entropy(4 * one + other) - entropy(one) - entropy(other)
    assert partitions.mean_distance(other[None], one) == pytest.approx(known)


def test_numbers_of_clusters_have_distributions(fitted):
    model, X, _ = fitted
    numbers = [len(np.unique(one)) for one in model.partitions_.reshape(-1, len(X))]
    value, counts = np.unique(numbers, return_counts=True)
    np.testing.assert_array_equal(model.n_clusters_posterior_["value"], value)
    np.testing.assert_allclose(model.n_clusters_posterior_["probability"], counts / counts.sum())
    assert model.n_large_clusters_ == np.sum(model.counts_ >= 0.01 * len(X))
    assert model.rhat_.keys() == model.ess_.keys() == model.draws_.keys()
    assert model.draws_["n_clusters"].shape == (2, 20)


def test_a_fixed_number_of_clusters_is_kept():
    X, _ = blobs()
    model = DirichletProcessGaussianMixture(2, **SHORT).fit(X)
    assert model.partitions_.max() == 1
    assert MaxMarginGaussianMixture(3, **SHORT).fit(X).partitions_.max() == 2


def test_hyperparameters_are_fixed_or_sampled():
    X, _ = blobs(60)
    fixed = DirichletProcessGaussianMixture(prior={"alpha": 2.0, "r": 0.5, "nu": 7.0}, **SHORT).fit(X)
    assert (fixed.prior_["alpha"], fixed.prior_["r"], fixed.prior_["nu"]) == (2.0, 0.5, 7.0)
    assert {"alpha", "r", "nu", "log_scale"}.isdisjoint(fixed.draws_)
    np.testing.assert_allclose(
        fixed.prior_scale_, default_scale((X - X.mean(axis=0)) / X.std(axis=0), "full")
    )
    free = DirichletProcessGaussianMixture(prior=dict.fromkeys(("r", "nu", "S"), "sample"), **SHORT).fit(X)
    for name in ("alpha", "r", "nu", "log_scale"):
        assert np.ptp(free.draws_[name]) > 0


def test_no_weight_of_margins_is_the_plain_mixture():
    X, _ = blobs(60)
    plain = DirichletProcessGaussianMixture(**SHORT).fit(X)
    ours = MaxMarginGaussianMixture(c=0.0, margin_features=1, **SHORT).fit(X)
    np.testing.assert_array_equal(plain.partitions_, ours.partitions_)
    np.testing.assert_array_equal(plain.predict_proba(X), ours.predict_proba(X))


def test_margins_on_a_projection():
    X, y = blobs(90, 4)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    by_number = MaxMarginGaussianMixture(margin_features=2, **SHORT).fit(X)
    by_matrix = MaxMarginGaussianMixture(margin_features=by_number.margin_basis_, **SHORT).fit(X)
    np.testing.assert_array_equal(by_number.partitions_, by_matrix.partitions_)
    assert by_number.predictive_["projections"].shape[1] == 2
    assert adjusted_rand_score(y, by_number.predict(X)) > 0.95
    assert (
        adjusted_rand_score(y, MaxMarginGaussianMixture(margin_features=basis, **SHORT).fit(X).labels_) > 0.9
    )
    for wrong in (5, np.eye(3), np.full((4, 1), np.nan)):
        with pytest.raises(ValueError, match="margin_features"):
            MaxMarginGaussianMixture(margin_features=wrong, **SHORT).fit(X)


def test_the_rule_of_the_paper():
    X, _ = blobs()
    first = MaxMarginGaussianMixture(select="heuristic", target_clusters=3, **SHORT).fit(X)
    assert first.selection_["n_clusters"] == 3
    fit = MaxMarginGaussianMixture(select="heuristic", **SHORT).fit(X)
    assert fit.selection_["n_clusters"] == 3
    c = fit.trace_["c"]
    assert np.ptp(c[:20]) > 0 or np.ptp(fit.trace_["margin"][:20]) > 0
    assert np.ptp(c[20:]) == 0  # the draws that are kept come from one distribution
    with pytest.raises(ValueError, match="give target_clusters"):
        MaxMarginGaussianMixture(3, select="heuristic", **SHORT).fit(X)


class Stop(Exception):
    pass


@pytest.mark.parametrize("model", MODELS)
def test_an_interrupted_fit_resumes_to_the_same_chains(model, tmp_path, monkeypatch):
    X, _ = blobs(60)
    expected = model(**SHORT).fit(X)
    sweep, calls = sampler.PartitionModel.sweep, []

    def interrupted(self, *args):
        calls.append(0)
        if len(calls) == 55:
            raise Stop
        return sweep(self, *args)

    monkeypatch.setattr(sampler.PartitionModel, "sweep", interrupted)
    resumable = model(**SHORT)
    with pytest.raises(Stop), arbora.running(checkpoint=tmp_path / "fit"):
        resumable.fit(X)
    assert not hasattr(resumable, "labels_")
    with arbora.running(checkpoint=tmp_path / "fit"):
        with pytest.raises(CheckpointError, match="other data or other parameters"):
            model(prior={"alpha": 3.0}, **SHORT).fit(X)
        resumable.fit(X)
    assert 80 <= len(calls) < 55 + 40  # of 80 sweeps
    np.testing.assert_array_equal(resumable.partitions_, expected.partitions_)
    np.testing.assert_array_equal(resumable.score_samples(X), expected.score_samples(X))
    np.testing.assert_array_equal(resumable.trace_["objective"], expected.trace_["objective"])
    assert not (tmp_path / "fit").exists()


def test_the_mixture_that_the_rule_fits_first_leaves_the_checkpoint_alone(tmp_path):
    X, _ = blobs(60)
    model = MaxMarginGaussianMixture(select="heuristic", **SHORT)
    expected = model.fit(X).partitions_
    with arbora.running(checkpoint=tmp_path / "fit"):
        np.testing.assert_array_equal(model.fit(X).partitions_, expected)
    assert not (tmp_path / "fit").exists()


@pytest.mark.parametrize("model", MODELS)
class TestInput:
    def test_more_features_than_rows(self, model):
        X = np.random.default_rng(0).standard_normal((8, 20))
        with pytest.warns(UserWarning, match="8 rows and 20 features.*floored"):
            fit = model(sampling={"n_warmup": 5, "n_samples": 5}, random_state=0).fit(X)
        assert np.isfinite(fit.score_samples(X)).all()

    def test_constant_columns(self, model):
        X, y = blobs()
        X = np.column_stack([X, np.full(len(X), 1e7)])
        fit = model(prior={"S": "sample"}, **SHORT).fit(X)
        assert adjusted_rand_score(y, fit.labels_) > 0.9
        assert np.isfinite(fit.score_samples(X)).all()

    def test_only_constant_columns(self, model):
        fit = model(**SHORT).fit(np.ones((20, 2)))
        assert fit.n_clusters_ == 1
        assert np.isfinite(fit.score_samples(np.ones((1, 2)))).all()

    def test_duplicated_rows(self, model):
        """Thirty copies of a row: their density stays near that of thirty rows that almost coincide."""
        X, _ = blobs()
        X[:30] = X[0]
        fit = model(prior={"S": "sample"}, **SHORT).fit(X)
        near = X.copy()
        near[:30] += 1e-3 * np.random.default_rng(0).standard_normal((30, 2))
        other = model(prior={"S": "sample"}, **SHORT).fit(near)
        assert np.isfinite(fit.score_samples(X)).all()
        assert abs(fit.score_samples(X).max() - other.score_samples(near).max()) < 8.0
        assert fit.score_samples(X).max() < 20.0

    def test_all_rows_equal_but_one(self, model):
        X = np.zeros((30, 2))
        X[0] = 1.0
        assert np.isfinite(model(**SHORT).fit(X).score_samples(X)).all()

    def test_refused(self, model):
        X, _ = blobs(30)
        with pytest.raises(ValueError, match=r"n_samples=1.*at least 2 rows"):
            model(**SHORT).fit(X[:1])
        X[3, 1] = np.nan
        with pytest.raises(ValueError, match="NaN in row 3, column 1"):
            model(**SHORT).fit(X)
        with pytest.raises(ValueError, match="square overflows"):
            model(**SHORT).fit(np.full((5, 2), 1e200))
        X[3, 1] = 0.0
        with pytest.raises(ValueError, match="cannot fill n_components=31"):
            model(31, **SHORT).fit(X)
        with pytest.raises(ValueError, match=r"nu=0\.5 must be above 1"):
            model(prior={"nu": 0.5}, **SHORT).fit(X)
        with pytest.raises(ValueError, match="S has the shape"):
            model(prior={"S": np.eye(3)}, **SHORT).fit(X)
        with pytest.raises(ValueError, match="positive definite"):
            model(prior={"S": -np.eye(2)}, **SHORT).fit(X)
        with pytest.raises(ValueError, match="prior has no option 'beta'"):
            model(prior={"beta": 1.0}, **SHORT).fit(X)
        with pytest.raises(ValueError, match="'thin' parameter of sampling"):
            model(sampling={"thin": 0}).fit(X)
        with pytest.raises(ValueError, match="a label for each row"):
            model(init=[0, 1], **SHORT).fit(X)
        with pytest.raises(ValueError, match="more than n_components=2"):
            model(2, init=np.arange(30), **SHORT).fit(X)


def test_units_do_not_matter():
    X, _ = blobs(60)
    first = DirichletProcessGaussianMixture(**SHORT).fit(X)
    other = DirichletProcessGaussianMixture(**SHORT).fit(X * [1024.0, 0.25])
    np.testing.assert_array_equal(first.partitions_, other.partitions_)
    np.testing.assert_allclose(
        other.score_samples(X * [1024.0, 0.25]), first.score_samples(X) - np.log(256.0), rtol=1e-9
    )


def test_clusters_in_a_narrow_direction_are_found():
    """Two nearly equal features whose difference tells the clusters apart: their variances are no guide."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    common = rng.standard_normal(200)
    X = np.column_stack([common, common + 0.1 * y + 0.01 * rng.standard_normal(200)])
    fit = DirichletProcessGaussianMixture(prior={"S": np.cov(X.T)}, **SHORT).fit(X)
    assert adjusted_rand_score(y, fit.labels_) > 0.95
    wide = DirichletProcessGaussianMixture(prior={"S": np.diag(X.var(axis=0))}, **SHORT).fit(X)
    assert adjusted_rand_score(y, wide.labels_) < 0.5


def test_default_scale_is_between_unit_variances_and_the_covariance():
    X, _ = blobs(60)
    X = X @ [[1.0, 0.7], [0.0, 2.0]]
    units = X.std(axis=0)
    values, vectors = np.linalg.eigh((60 * np.corrcoef(X.T) + np.eye(2)) / 61)
    assert values[1] > 1.5
    for form, expected in (
        ("full", vectors @ np.diag([values[0] ** 0.25, 1.0]) @ vectors.T),
        ("diag", np.ones((1, 2))),
        ("spherical", np.ones((1, 1))),
    ):
        fit = DirichletProcessGaussianMixture(covariance=form, **SHORT).fit(X)
        np.testing.assert_allclose(fit.prior_scale_, expected)
    np.testing.assert_allclose(fit.feature_scales_, units)


def test_default_scale_of_few_rows_is_not_that_of_the_rows():
    """Eight rows lie in a space of seven dimensions: the prior must not expect all rows there."""
    X = np.random.default_rng(0).standard_normal((8, 20))
    assert np.linalg.eigvalsh(default_scale(X, "full")).min() > 0.8
    assert np.linalg.eigvalsh(default_scale(np.tile(X, (100, 1)), "full")).min() < 0.4


def test_starts_are_given_or_found():
    X, y = blobs(60)
    model = DirichletProcessGaussianMixture(
        init=y, sampling={"n_warmup": 0, "n_samples": 2}, random_state=0
    ).fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.9
    few = DirichletProcessGaussianMixture(**SHORT).fit(np.repeat([[0.0], [1.0]], 5, axis=0))
    assert few.n_clusters_ <= 2


def test_chains_that_disagree_are_reported():
    X = np.random.default_rng(0).standard_normal((100, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = DirichletProcessGaussianMixture(sampling={"n_warmup": 0, "n_samples": 4}, random_state=0).fit(
            X
        )
    worst = max(value for value in model.rhat_.values())
    result = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert bool(result) == (worst > 1.1)
    assert all(w.filename == __file__ for w in result)
    short = DirichletProcessGaussianMixture(sampling={"n_warmup": 0, "n_samples": 2}, random_state=0).fit(X)
    assert np.isnan(list(short.rhat_.values())).all()


def test_descriptions(fitted):
    model, X, _ = fitted
    names = model.top_features(["width", "height"], 1)
    assert len(names) == model.n_clusters_
    for k, rows in enumerate(model.representatives(X, 3)):
        assert (model.predict(X[rows]) == k).all()


def test_similarity_takes_masks(fitted):
    model, X, _ = fitted
    mask = np.arange(len(X)) % 3 == 0
    np.testing.assert_array_equal(
        model.similarity_matrix(rows=mask), model.similarity_matrix(np.flatnonzero(mask))
    )
    with pytest.raises(IndexError, match="one entry for each row"):
        model.similarity_matrix(rows=[True, False])
