"""The temporal von Mises-Fisher mixture: known cases, a bound that never falls, times of all kinds."""

import datetime

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import check_grad
from sklearn.metrics import adjusted_rand_score

from arbora.datasets import make_temporal_vmf
from arbora.discover import BayesianVMFMixture, TemporalVMFMixture
from arbora.discover.vmf.temporal import make_timeline, points_of, read_times
from arbora.discover.vmf.temporal_posterior import (
    Chain,
    Pulls,
    WeightWalk,
    chain_value,
    from_blocks,
    marginal_concentrations,
    smoothed,
    start_walk,
    sweep,
    to_blocks,
    update_walk,
    walk_extra,
    walk_value,
)
from arbora.special import bessel_ratio, sample_vmf

EXACT = {"tol": 5e-7, "max_iter": 100, "random_state": 0}
EARLY = "ignore::sklearn.exceptions.ConvergenceWarning"


@pytest.fixture(scope="module")
def data():
    return make_temporal_vmf(400, 8, 3, 6, kappa=[40.0, 60.0, 90.0], drift_kappa=80.0, random_state=2)


@pytest.fixture(scope="module")
def times(data):
    return data.extra["time"]


@pytest.fixture(scope="module")
def fitted(data, times):
    return TemporalVMFMixture(3, prior={"persistence": 0.95}, tol=1e-3, random_state=0).fit(
        data.X_train, times
    )


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": "evolving"},
        {"prior": {"persistence": "learn"}},
        {"concentration": "shared", "init": "random"},
    ],
    ids=str,
)
def test_the_bound_never_falls(data, times, options):
    model = TemporalVMFMixture(3, **{**EXACT, "max_iter": 8}, **options).fit(data.X_train, times)
    bounds = model.lower_bounds_
    assert len(bounds) > 3
    assert np.all(np.diff(bounds) >= -1e-10 * np.abs(bounds[:-1]))


@pytest.mark.filterwarnings(EARLY)
def test_one_point_of_time_is_the_bayesian_mixture(data):
    make = {**EXACT, "tol": 1e-12, "prior": {"alpha": 1.0}}
    timed = TemporalVMFMixture(3, **make).fit(data.X_train, np.full(400, 1999))
    flat = BayesianVMFMixture(3, concentration="own", **make).fit(data.X_train)
    np.testing.assert_allclose(timed.lower_bounds_[-1], flat.lower_bounds_[-1], rtol=1e-8)
    np.testing.assert_allclose(timed.means_[0], flat.means_, atol=1e-5)
    np.testing.assert_allclose(timed.concentrations_, flat.concentrations_, rtol=1e-4)
    np.testing.assert_allclose(timed.score_samples(data.X_train), flat.score_samples(data.X_train), atol=1e-4)
    np.testing.assert_array_equal(timed.predict(data.X_train), flat.predict(data.X_train))
    n_features, criterion = (
        data.X_train.shape[1],
        flat.aic(data.X_train) + 2 * flat.score_samples(data.X_train).sum(),
    )
    assert criterion == pytest.approx(2 * (3 * (n_features - 1) + 3 + 2))
    assert timed.aic(data.X_train) + 2 * timed.score_samples(data.X_train).sum() == pytest.approx(criterion)


def test_the_truth_is_recovered(data, times, fitted):
    assert adjusted_rand_score(data.truth.components, fitted.predict(data.X_train, times)) > 0.95
    match = (fitted.means_[0] @ data.truth.means[0].T).argmax(axis=1)
    assert sorted(match) == [0, 1, 2]
    cosine = np.einsum("tkd,tkd->tk", fitted.means_, data.truth.means[:, match])
    assert cosine.min() > 0.9  # the same clusters at all times
    still = BayesianVMFMixture(3, concentration="own", random_state=0).fit(data.X_train)
    assert fitted.score(data.X_train, times) > still.score(data.X_train) + 0.1


def test_the_next_time_is_predicted():
    data = make_temporal_vmf(1200, 8, 3, 6, kappa=60.0, drift_kappa=150.0, random_state=2)
    past = data.extra["time"] < 5
    X, new = data.X_train[past], data.X_train[~past]
    model = TemporalVMFMixture(3, prior={"persistence": 0.97}, random_state=0).fit(
        X, data.extra["time"][past]
    )
    still = BayesianVMFMixture(3, concentration="own", random_state=0).fit(X)
    assert model.score_next(new) > still.score(new) + 0.1
    assert adjusted_rand_score(data.truth.components[~past], model.predict_next(new)) > 0.9
    assert model.score(new, "next") == model.score_next(new)


def test_times_without_rows_interpolate_the_means(data, times):
    seen = (times != 2) & (times != 3)
    edges = np.arange(-1, 8)  # the first and the last have no rows either
    model = TemporalVMFMixture(3, bins=edges, prior={"persistence": 0.9}, random_state=0).fit(
        data.X_train[seen], times[seen]
    )
    assert model.means_.shape[0] == 8
    np.testing.assert_allclose(model.counts_.sum(axis=1)[[0, 3, 4, 7]], 0)
    rest = model.means_[[2, 3, 4, 5]]
    cosine = np.einsum("tkd,ukd->tuk", rest, rest)
    assert np.all(cosine[0, 1] > cosine[0, 3])  # on the way from the one before to the one after
    mean_concentrations = marginal_concentrations(model._params())
    assert np.all(mean_concentrations[3] < mean_concentrations[2])  # and less certain
    assert np.isnan(model.dynamics()[0].share[3])


def test_a_single_component(data, times):
    model = TemporalVMFMixture(1, weights="evolving", random_state=0).fit(data.X_train, times)
    np.testing.assert_allclose(model.time_weights_, 1.0)
    assert set(model.predict(data.X_train, times)) == {0}


@pytest.mark.filterwarnings(EARLY)
def test_rotation_changes_nothing(data, times):
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    make = {**EXACT, "max_iter": 5, "tol": 0.0}
    model = TemporalVMFMixture(3, **make).fit(data.X_train, times)
    turned = TemporalVMFMixture(3, **make).fit(data.X_train @ rotation, times)
    np.testing.assert_allclose(model.means_ @ rotation, turned.means_, atol=1e-6)
    np.testing.assert_allclose(model.lower_bounds_, turned.lower_bounds_, rtol=1e-8)


def test_rows_of_another_width_are_refused(data, fitted):
    for question in (fitted.predict, fitted.score, fitted.score_samples, fitted.predict_proba):
        with pytest.raises(ValueError, match="7 features"):
            question(data.X_train[:, :7])


def test_from_blocks_inverts_to_blocks():
    X = sp.random_array((9, 5), density=0.4, rng=np.random.default_rng(0), format="csr")
    points = np.array([0, 3, 1, 2, 2, 0, 1, 3, 0])
    blocks = to_blocks(X, points, 3)
    assert blocks.has_canonical_format
    plain, back = from_blocks(blocks, 5, 3)
    np.testing.assert_array_equal(plain.toarray(), X.toarray())
    np.testing.assert_array_equal(back, points)


def chain_of(n_times, coupling, seed=0):
    rng = np.random.default_rng(seed)
    shape = (n_times, 6, 2)
    directions = (
        sample_vmf(np.eye(6)[0], 5.0, n_times * 2, rng).reshape(n_times, 2, 6).transpose(0, 2, 1).copy()
    )
    mean_concentrations = np.full((n_times, 2), 20.0)
    pulls = Pulls(10 * rng.standard_normal(shape), 2 * np.eye(6)[0][:, None], coupling)
    return Chain(
        directions, directions * bessel_ratio(2.0, mean_concentrations)[:, None], mean_concentrations
    ), pulls


def test_sweeps_converge_to_the_joint_solution_of_all_times():
    chain, pulls = chain_of(5, 30.0)
    values = [chain_value(chain, pulls)]
    for turn in range(400):
        chain = sweep(chain, pulls, backward=bool(turn % 2))
        values.append(chain_value(chain, pulls))
    assert np.all(np.diff(values) >= -1e-9)
    jump = smoothed(chain, pulls)
    np.testing.assert_allclose(jump.directions, chain.directions, atol=1e-6)
    rng = np.random.default_rng(1)
    for _ in range(20):
        natural = chain.directions * chain.mean_concentrations[:, None] + 0.5 * rng.standard_normal(
            chain.directions.shape
        )
        mean_concentrations = np.linalg.norm(natural, axis=1)
        directions = natural / mean_concentrations[:, None]
        other = Chain(
            directions, directions * bessel_ratio(2.0, mean_concentrations)[:, None], mean_concentrations
        )
        assert chain_value(other, pulls) < values[-1]


def test_linear_response_is_the_covariance_of_a_gaussian_chain(fitted):
    """Inverse of the whole matrix, formed densely."""
    q = fitted._params()
    lengths = bessel_ratio(3.0, q.mean_concentrations)
    for k in range(3):
        matrix = np.diag(q.mean_concentrations[:, k] / lengths[:, k])
        off = np.arange(len(matrix) - 1)
        matrix[off, off + 1] = matrix[off + 1, off] = -q.transition
        variance = (1 - lengths[:, k] ** 2) * np.diag(matrix) * np.diag(np.linalg.inv(matrix))
        lengths_of_chain = bessel_ratio(3.0, marginal_concentrations(q)[:, k])
        np.testing.assert_allclose(lengths_of_chain, np.sqrt(1 - variance), rtol=1e-8)


def test_the_gradient_of_the_walk_is_exact_and_updates_raise_its_bound():
    rng = np.random.default_rng(0)
    counts = rng.poisson(5.0, (4, 3)).astype(float)
    counts[2] = 0
    walk = WeightWalk(rng.standard_normal((4, 3)), rng.random((4, 3)) + 0.1, 0.7, 0.3)

    def value(x):
        m, log_v = x.reshape(2, 4, 3)
        return walk_value(walk._replace(mean=m, variance=np.exp(log_v)), counts)

    x = np.concatenate([walk.mean.ravel(), np.log(walk.variance).ravel()])
    error = check_grad(lambda x: value(x)[0], lambda x: np.concatenate([a.ravel() for a in value(x)[1:]]), x)
    assert error < 1e-4
    values = []
    walk = start_walk(np.full(3, 1 / 3), 4)
    for _ in range(10):
        walk = update_walk(walk, counts)
        values.append(walk_value(walk, counts)[0])
    assert np.all(np.diff(values) >= -1e-9)


def test_the_divergence_of_the_walk_is_that_of_normal_distributions():
    """A walk whose factors are its prior at the first time: the divergence is that of normal laws."""
    walk = WeightWalk(np.zeros((1, 3)), np.full((1, 3), 0.7), 0.7, 1.0)
    assert walk_extra(walk) == pytest.approx(0.0, abs=1e-12)
    shifted = walk._replace(mean=np.array([[1.0, 0.0, 0.0]]))
    assert walk_extra(shifted) == pytest.approx(-1 / 1.4)


def test_evolving_weights_follow_the_shares(data, times):
    share = np.where(times[:, None] < 3, [0.8, 0.1, 0.1], [0.1, 0.1, 0.8])
    drawn = np.random.default_rng(0).random(400) < share[np.arange(400), data.truth.components]
    model = TemporalVMFMixture(3, weights="evolving", prior={"persistence": 0.9}, random_state=0)
    model.fit(data.X_train[drawn], times[drawn])
    early, late = model.time_weights_[0].argmax(), model.time_weights_[-1].argmax()
    assert early != late
    assert model.time_weights_[0, early] > 0.5 < model.time_weights_[-1, late]
    lives = {life.cluster: life for life in model.dynamics()}
    assert lives[late].rise == 3 == lives[early].decline
    assert lives[late].trend > 0 > lives[early].trend
    assert lives[early].birth == 0
    assert lives[late].end is None


@pytest.mark.parametrize(
    ("values", "bins", "points"),
    [
        ([3, 1, 3, 9], None, [1, 0, 1, 2]),
        ([0.0, 1.0, 5.0, 10.0], 5, [0, 0, 2, 4]),
        ([0.0, 1.0, 5.0, 9.0], [0, 4, 6, 10], [0, 0, 1, 2]),
        (["1999-11-30", "1999-12-01", "2000-03-01", "2000-03-31T23:59:59"], "month", [0, 1, 4, 4]),
        (["1999-12-31", "2000-01-01", "2002", "2000"], "year", [0, 1, 3, 1]),
        (
            np.array(["2024-01-07", "2024-01-08", "2024-01-14", "2024-01-15"], "datetime64[D]"),
            "week",
            [0, 1, 1, 2],
        ),
        ([datetime.date(2020, 1, i) for i in (1, 2, 2, 5)], "day", [0, 1, 1, 4]),
        (["2020-01-01", "2020-01-11", "2020-01-20", "2020-01-31"], 3, [0, 1, 1, 2]),
        (
            ["2020-01-01", "2020-01-11", "2020-01-20", "2020-01-31"],
            ["2020", "2020-01-15", "2020-02"],
            [0, 0, 1, 1],
        ),
        ([7, 7, 7, 7], 4, [0, 0, 0, 0]),
    ],
    ids=str,
)
def test_times_of_all_kinds(values, bins, points):
    times = read_times(values, 4)
    timeline = make_timeline(times, bins)
    np.testing.assert_array_equal(points_of(timeline, times), points)
    assert np.all(timeline.starts[1:] > timeline.starts[:-1])


@pytest.mark.parametrize(
    ("times", "bins", "message"),
    [
        ([1, 2], None, "one time for each"),
        (["yesterday"] * 4, None, "1999-12-31"),
        ([1.0, np.nan, 2.0, 3.0], None, "row 1 has no time"),
        ([1.0, 2.0, np.inf, 3.0], 2, "row 2 has no time, or an infinite one"),
        ([1, 2, 3, 4], "year", "needs dates"),
        ([1, 2, 3, 4], [3, 1], "greater than the one before"),
        ([1, 2, 3, 4], [2, 5], "not between"),
        ([1, 2, 3, 4], ["1999", "2000"], "both be dates or both be numbers"),
    ],
    ids=str,
)
def test_bad_times_are_refused(times, bins, message):
    with pytest.raises(ValueError, match=message):
        TemporalVMFMixture(1, bins=bins).fit(np.eye(4), times)


def test_predictions_and_descriptions_by_time(data, times, fitted):
    with pytest.raises(ValueError, match="next"):
        fitted.predict(data.X_train[:1], [99])
    with pytest.raises(ValueError, match="like the times of the fit"):
        fitted.predict(data.X_train[:1], ["1999"])
    words = [f"w{j}" for j in range(8)]
    table = fitted.vocabulary(1, words, n=2, times=[0, 5])
    assert [entry.time for entry in table] == [0, 5]
    assert table[1].features[0][0] == words[fitted.means_[5, 1].argmax()]
    assert fitted.top_features(words, n=1, time=0)[1][0] == fitted.vocabulary(1, words, n=1)[0].features[0]
    with pytest.raises(ValueError, match="cluster"):
        fitted.vocabulary(3)
    X, labels = fitted.sample(200, time=0)
    assert np.mean(fitted.predict(X, np.zeros(200)) == labels) > 0.9
    assert fitted.is_novel(X, np.zeros(200)).mean() < 0.2
    assert fitted.is_novel(-fitted.means_[-1]).all()
    for k, ids in enumerate(fitted.representatives(data.X_train, times, n=3)):
        assert set(fitted.predict(data.X_train[ids], times[ids])) == {k}
    X = data.X_train
    total, (n_times, n_components, n_features) = fitted.score_samples(X, times).sum(), fitted.means_.shape
    n_parameters = n_times * n_components * (n_features - 1) + 2 * n_components - 1
    assert fitted.aic(X, times) == pytest.approx(2 * n_parameters - 2 * total)
    assert fitted.bic(X, times) == pytest.approx(n_parameters * np.log(len(X)) - 2 * total)
    late = fitted.predict_proba(data.X_train, np.full(400, 5))
    np.testing.assert_allclose(fitted.predict_proba(data.X_train), late)


def test_many_dimensions_and_sparse_rows():
    """Documents over 20,000 words, of two groups whose words change: no collapse, the same clusters throughout."""
    rng = np.random.default_rng(0)
    n, n_words = 200, 20_000
    group, time = np.arange(n) % 2, np.arange(n) // 50
    words = rng.integers(0, 200, (n, 40)) + 5000 * group[:, None] + 40 * time[:, None]
    columns = np.concatenate([words, rng.integers(0, n_words, (n, 40))], axis=1).ravel()
    X = sp.csr_array((np.ones(len(columns)), (np.repeat(np.arange(n), 80), columns)), shape=(n, n_words))
    model = TemporalVMFMixture(2, prior={"persistence": 0.9}, tol=0.01, random_state=0).fit(X, time)
    assert adjusted_rand_score(group, model.predict(X, time)) > 0.95
