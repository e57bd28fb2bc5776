"""ExpandClusters on large collections: single precision, batches, threads, further rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from arbora import expand
from arbora.core.engine import SerialEngine
from arbora.expand import ExpandClusters
from arbora.expand.clusters.clusterers import (
    Gaussians,
    direction_model,
    gaussian_model,
    iterate,
    kmeans_model,
    seed_centres,
    unit_rows,
)
from arbora.expand.clusters.fitting import draw_sample
from arbora.expand.clusters.partial_fit import name_groups
from arbora.expand.clusters.pool import (
    Pool,
    pose_pool,
)
from arbora.expand.groups import Groups, group_moments
from arbora.infer.mixture.loop import Schedule
from arbora.infer.mixture.statistics import LinearScores, WeightedRows, count_dense, e_step
from arbora.metrics import expansion_accuracy, hungarian_accuracy
from support.expand_problems import partly_labelled

FAMILIES = ("kmeans", "gaussian", "vmf")


def mixed(n_each=60, seed=3, n_known=5, n_new=4):
    """A pool with rows of known and of new groups; half of the rows of the known ones have labels."""
    X, y, truth = partly_labelled(n_known, n_new, n_each, seed=seed)
    hidden = np.random.default_rng(seed).random(len(y)) > 0.5
    return X, np.where(hidden, -1, y), truth


def same_columns(first, second):
    """Columns of `second` in the order of those of `first` that agree with them most."""
    return linear_sum_assignment(-first.T.astype(np.float64) @ second)[1]


def small_pool(seed=0):
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(4), 25)
    Z = 4 * rng.normal(size=(4, 3))[truth] + rng.normal(size=(100, 3))
    fixed = np.where((truth < 2) & (rng.random(100) < 0.5), truth, -1)
    return Pool(Z, fixed, 2, rng.random(100) + 0.5)


# --- the E-step of dense rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_dense_rows_give_the_statistics_of_sparse_ones(temperature):
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(5000, 6)), rng.random(5000)
    scores = LinearScores(rng.normal(size=(6, 4)), rng.normal(size=4), temperature, np.array([1, 2, 1, 0.5]))
    (dense, bound), (sparse, known) = (
        e_step(scores, WeightedRows(rows, weight), SerialEngine()) for rows in (X, sp.csr_array(X))
    )
    np.testing.assert_allclose(dense.counts, sparse.counts)
    np.testing.assert_allclose(dense.sums, sparse.sums, atol=1e-9)
    assert bound == pytest.approx(known)


def test_dense_statistics_by_definition():
    rng = np.random.default_rng(0)
    X, weight, W, offset = (
        rng.normal(size=(50, 3)),
        rng.random(50),
        rng.normal(size=(3, 4)),
        rng.normal(size=4),
    )
    S = X @ W + offset
    R = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True) * weight[:, None]
    result = count_dense(X, weight, slice(10, 50), W, np.ones(4), offset, 1.0)
    np.testing.assert_allclose(result.counts, R[10:].sum(axis=0))
    np.testing.assert_allclose(result.sums, X[10:].T @ R[10:])
    assert result.value == pytest.approx(float(weight[10:] @ np.log(np.exp(S[10:]).sum(axis=1))))


@pytest.mark.parametrize("make", [kmeans_model, gaussian_model, direction_model])
def test_constrained_bounds_are_objectives_and_never_fall(make):
    pool = small_pool()
    if make is direction_model:
        pool = pool._replace(Z=unit_rows(pool.Z))
    problem, engine = pose_pool(pool, 2, SerialEngine()), SerialEngine()
    model = make(problem)
    start: object = seed_centres(pool, 2, np.random.default_rng(0)).T
    hard = 0.0 if make is kmeans_model else 1.0
    if hard:
        stats = e_step(kmeans_model(problem).scores(start), problem.rows, engine)[0]
        start = model.update(None, stats)
    fit = iterate(model, problem, start, Schedule(1e-9, 30, (hard,)), engine)
    assert fit.trace.is_monotone(increasing=True, tolerance=1e-9)
    params, held = fit.params, pool.fixed >= 0
    if make is kmeans_model:
        D = np.sum((pool.Z[:, None] - params.T) ** 2, axis=2)
        best = np.where(held, D[np.arange(100), pool.fixed], D.min(axis=1))
        assert fit.bounds[-1] == pytest.approx(-float(pool.row_weight @ best) / 2)
    if make is gaussian_model:
        joint = _log_joint(params, pool.Z)
        mine = np.where(held, joint[np.arange(100), pool.fixed], np.log(np.exp(joint).sum(axis=1)))
        assert fit.bounds[-1] == pytest.approx(float(pool.row_weight @ mine))


def _log_joint(params: Gaussians, Z):
    from scipy.stats import multivariate_normal

    columns = [multivariate_normal(mean, params.covariance).logpdf(Z) for mean in params.means.T]
    return params.log_weights + np.array(columns).T


def test_moments_of_groups_do_not_lose_single_precision():
    rng = np.random.default_rng(0)
    Z, codes = rng.normal(size=(20_000, 3)) + 5, rng.integers(4, size=20_000)
    exact, single = (group_moments(first, codes, 4, np.ones(20_000)) for first in (Z, Z.astype(np.float32)))
    np.testing.assert_allclose(single.mean, exact.mean, rtol=1e-6)
    np.testing.assert_allclose(single.within, exact.within, atol=1e-5)


# --- single precision ----------------------------------------------------------------------------------------------

TRANSFORMERS = [name for name in expand.__all__ if name.endswith("Transform")]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_keep_single_precision(name):
    X, y, _ = partly_labelled(4, 1, 30)
    X = np.abs(X).astype(np.float32) if name == "GammaTransform" else X.astype(np.float32)
    cls = getattr(expand, name)
    single, double = cls(random_state=0).fit(X, y), cls(random_state=0).fit(X.astype(np.float64), y)
    assert single.transform(X).dtype == single.components_.dtype == np.float32
    assert double.transform(X.astype(np.float64)).dtype == np.float64
    # Directions of equal weight may be rotated: the metrics are compared.
    # Rounding of the rows may swap neighbours in LargeMarginTransform.
    close = 0.05 if name == "LargeMarginTransform" else 2e-3
    np.testing.assert_allclose(single.A_, double.A_, atol=close * np.abs(double.A_).max())


@pytest.mark.parametrize("clusterer", [*FAMILIES, "spectral"])
def test_clusters_keep_single_precision(clusterer):
    X, y, _ = mixed()
    models = [
        ExpandClusters("within", clusterer, n_new=4, random_state=0).fit(X.astype(dtype), y)
        for dtype in (np.float32, np.float64)
    ]
    proba = [
        model.predict_proba(X.astype(dtype))
        for model, dtype in zip(models, (np.float32, np.float64), strict=True)
    ]
    assert proba[0].dtype == np.float32
    assert models[0].transform_rows(X.astype(np.float32)).dtype == np.float32
    order = same_columns(*proba)  # rounding may number the new groups in another order
    np.testing.assert_array_equal(order[:5], np.arange(5))  # known groups keep their places
    assert adjusted_rand_score(models[0].labels_, models[1].labels_) > 0.98
    assert np.mean(np.abs(proba[0] - proba[1][:, order]).max(axis=1) < 1e-3) > 0.98


# --- batches -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:n_new=4, but")  # the graph of the sample has gaps
@pytest.mark.parametrize("pool", ["mixed", "new"])
@pytest.mark.parametrize("clusterer", [*FAMILIES, "spectral"])
def test_batches_agree_with_the_whole_fit(clusterer, pool):
    X, y, truth = partly_labelled(5, 4, 150, seed=3) if pool == "new" else mixed(150)
    whole, batches = (
        ExpandClusters("within", clusterer, n_new=4, pool=pool, batch_size=size, random_state=0).fit(X, y)
        for size in (None, 600)
    )
    np.testing.assert_array_equal(batches.labels_[y >= 0], y[y >= 0])
    free = y < 0
    scores = [hungarian_accuracy(truth[free], model.labels_[free]) for model in (whole, batches)]
    # The graph of the sample has gaps
    assert scores[1] > scores[0] - (0.2 if clusterer == "spectral" else 0.02)
    if clusterer != "spectral":
        assert adjusted_rand_score(whole.labels_, batches.labels_) > 0.95
    assert sum(group.size for group in batches.new_groups_) == np.sum(
        np.isin(batches.labels_, batches.classes_[5:])
    )
    assert np.mean(batches.predict(X[free]) == batches.labels_[free]) > 0.95


def test_batches_estimate_the_number_on_the_sample():
    X, y, _ = partly_labelled(6, 4, 200, seed=3)
    whole, batches = (
        ExpandClusters("within", "kmeans", pool="new", batch_size=size, random_state=0).fit(X, y)
        for size in (None, 700)
    )
    assert abs(whole.n_new_ - batches.n_new_) <= 2
    assert batches.n_new_range_[0] <= batches.n_new_ <= batches.n_new_range_[1]


def test_memory_mapped_rows_are_read_in_blocks(tmp_path, monkeypatch):
    X, y, _ = mixed(150)
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    largest = []
    monkeypatch.setattr("arbora.infer.mixture.statistics.ROWS_AT_ONCE", 100)
    real = expand.clusters.group_model.to_space
    monkeypatch.setattr(
        "arbora.expand.clusters.group_model.to_space",
        lambda space, rows: largest.append(len(rows)) or real(space, rows),
    )
    options = {"n_new": 4, "batch_size": 300, "random_state": 0}
    from_file = ExpandClusters("within", "kmeans", **options).fit(mapped, y)
    assert max(largest) <= 300
    in_memory = ExpandClusters("within", "kmeans", **options).fit(X.astype(np.float32), y)
    np.testing.assert_array_equal(from_file.labels_, in_memory.labels_)
    assert isinstance(mapped, np.memmap)


def test_samples_keep_every_group_and_half_of_the_pool():
    rng = np.random.default_rng(0)
    codes = np.concatenate([np.repeat(np.arange(5), [1000, 1, 500, 3, 40]), np.full(2000, -1)])
    rows = draw_sample(Groups(codes, np.arange(5)), 400, rng)
    size = np.bincount(codes[rows] + 1)
    assert len(rows) <= 400
    assert size[0] >= 200
    assert size[2] == 1
    assert size[4] == 3
    assert size[1] == size[3]


@pytest.mark.parametrize("clusterer", ["kmeans", "gaussian"])
def test_threads_give_the_same_bits(clusterer):
    X, y, _ = mixed(1000)
    models = [
        ExpandClusters("within", clusterer, n_new=4, n_init=2, n_jobs=n, batch_size=size, random_state=0).fit(
            X, y
        )
        for n, size in ((1, None), (3, None), (1, 2000), (3, 2000))
    ]
    for first, other in (models[:2], models[2:]):
        np.testing.assert_array_equal(first.predict_proba(X), other.predict_proba(X))
        np.testing.assert_array_equal(first.labels_, other.labels_)


# --- further rows --------------------------------------------------------------------------------------------------


def fitted(clusterer, pool="mixed", seed=0, filing="clusters"):
    X, y, truth = partly_labelled(5, 4, 100, seed=3) if pool == "new" else mixed(100)
    first = np.random.default_rng(seed).random(len(y)) < 0.5
    model = ExpandClusters("within", clusterer, n_new=4, pool=pool, filing=filing, random_state=0)
    model.fit(X[first], y[first])
    return model, (X[first], y[first], truth[first]), (X[~first], y[~first], truth[~first])


@pytest.mark.parametrize(
    ("pool", "filing"), [("mixed", "clusters"), ("mixed", "neighbours"), ("new", "clusters")]
)
@pytest.mark.parametrize("clusterer", [*FAMILIES, "spectral"])
def test_further_rows_join_their_groups(clusterer, pool, filing):
    model, _, (X, y, truth) = fitted(clusterer, pool, filing=filing)
    names, sizes = model.classes_.copy(), {group.name: group.size for group in model.new_groups_}
    before, map_before = model.predict(X), model.components_.copy()
    model.partial_fit(X, y)
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(model.components_, map_before)
    np.testing.assert_array_equal(model.labels_[y >= 0], y[y >= 0])
    assert np.mean(model.labels_[y < 0] == before[y < 0]) > 0.95
    for group in model.new_groups_:
        assert group.size >= sizes[group.name]
    if clusterer in ("kmeans", "gaussian"):
        assert expansion_accuracy(truth[y < 0], model.labels_[y < 0], np.arange(5)).all > 0.9


def test_sums_after_further_rows_are_those_of_all_rows():
    """With all rows labelled there is nothing to estimate: sums of two calls are those of one fit."""
    X, _, truth = partly_labelled(5, 0, 60)
    model = ExpandClusters("identity", "gaussian", n_new=0, filing="clusters", random_state=0)
    model.fit(X[:200], truth[:200])
    model.partial_fit(X[200:], truth[200:])
    Z = model.transform_rows(X)
    moments = group_moments(Z, truth, 5, np.ones(len(Z)))
    np.testing.assert_allclose(model.group_model_.means, moments.mean, atol=1e-9)
    np.testing.assert_allclose(model.group_model_.clustering.means, moments.mean, atol=1e-9)
    level = np.trace(moments.within) / Z.shape[1]
    np.testing.assert_allclose(
        model.group_model_.clustering.covariance, 0.95 * moments.within + 0.05 * level * np.eye(6), atol=1e-9
    )


@pytest.mark.parametrize("pool", ["mixed", "new"])
@pytest.mark.parametrize("clusterer", ["kmeans", "gaussian", "spectral"])
def test_accept_correct_and_go_on(clusterer, pool):
    model, (X, y, _), (X2, y2, _) = fitted(clusterer, pool)
    target = model.new_groups_[0].name
    rows = np.flatnonzero(model.labels_ == target)[:20]
    # Accept: some rows of a new group get a name of the user. The group takes it over, with all of its rows.
    labels = np.full(len(y), -1)
    labels[rows] = 77
    others = [name for name in model.classes_[5:].tolist() if name != target]
    size = model.new_groups_[0].size
    total = model.running_sums_.counts.sum()
    model.partial_fit(X, labels, seen=True)
    assert model.known_classes_.tolist() == [0, 1, 2, 3, 4, 77]
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 77, *others]
    assert model.running_sums_.counts.sum() == pytest.approx(total)  # no row is counted twice
    assert model.running_sums_.counts[5] == pytest.approx(size, abs=0.1 * size)
    # Correct: rows of one more new group move to a group that the user starts with them.
    few = np.flatnonzero(model.predict(X) == 0)[:2]
    labels = np.full(len(y), -1)
    labels[few] = 88
    model.partial_fit(X, labels, seen=True)
    assert 88 in model.known_classes_.tolist()
    assert model.n_new_ == 3
    # Go on with further rows, and from there with a full fit.
    model.partial_fit(X2, y2)
    assert np.isfinite(model.predict_proba(X2)).all()
    both = np.concatenate([np.where(y >= 0, y, -1), y2])
    both[rows] = 77
    model.set_params(n_new=3).refit(np.vstack([X, X2]), both)
    assert set(model.known_classes_.tolist()) == {0, 1, 2, 3, 4, 77}


def test_labels_name_groups_by_hungarian_matching():
    """Two labels want one group: the one with more rows in it gets it, the other starts a group."""
    labels = Groups(np.array([0, 0, 0, 1, 1]), np.array(["x", "y"], dtype=object))
    naming = name_groups(["a", "new 1", "new 2"], 1, labels, np.array([1, 1, 1, 1, 0]))
    assert naming.names == ["a", "x", "y", "new 2"]
    assert naming.columns.tolist() == [0, 1, -1, 2]
    accepted = name_groups(
        ["a", "new 1", "new 2"], 1, Groups(np.array([0]), np.array(["new 2"], dtype=object)), np.array([1])
    )
    assert accepted.names == ["a", "new 2", "new 1"]


def test_all_new_groups_can_be_named():
    model, (X, y, _), _ = fitted("kmeans", "new")
    labels = np.where(y < 0, model.labels_, -1)
    model.partial_fit(X, labels, seen=True)
    assert model.n_new_ == 0
    assert len(model.known_classes_) == 9
    assert np.mean(model.predict(X) == np.where(y < 0, labels, y)) > 0.9
    assert not model.is_new(X).any()


def test_further_labels_must_be_of_the_type_of_the_fit():
    model, (X, _, _), _ = fitted("kmeans")
    with pytest.raises(ValueError, match="several types"):
        model.partial_fit(X[:2], ["ant", "bee"])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2])


def test_partial_fit_without_a_fit_is_a_fit():
    X, y, _ = mixed(30)
    first = ExpandClusters("within", "kmeans", n_new=4, random_state=0).partial_fit(X, y)
    np.testing.assert_array_equal(
        first.labels_, ExpandClusters("within", "kmeans", n_new=4, random_state=0).fit(X, y).labels_
    )


# --- probabilities -------------------------------------------------------------------------------------------------


def test_temperature_leaves_the_most_probable_group():
    X, y, _ = mixed()
    model = ExpandClusters("within", "kmeans", n_new=4, random_state=0).fit(X, y)
    hot = model.group_model_._replace(temperature=(7.0, 7.0)).proba(model.transform_rows(X))
    cold = model.group_model_._replace(temperature=(1.0, 1.0)).proba(model.transform_rows(X))
    np.testing.assert_array_equal(hot.argmax(axis=1), cold.argmax(axis=1))
    assert hot.max(axis=1).mean() < cold.max(axis=1).mean()


def test_overlapping_groups_are_not_claimed_with_confidence():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(10), 60)
    X = 1.3 * rng.normal(size=(10, 8))[truth] + rng.normal(size=(600, 8)) * np.linspace(0.5, 2, 8)
    y = np.where((truth < 6) & (rng.random(600) < 0.5), truth, -1)
    model = ExpandClusters("identity", "kmeans", n_new=4, filing="clusters", random_state=0).fit(X, y)
    free = y < 0
    right = model.labels_[free] == truth[free]
    # Their best group is known
    known = model.group_model_.proba(model.transform_rows(X[free])).argmax(axis=1) < 6
    plain = (
        model.group_model_._replace(temperature=(1.0, 1.0)).proba(model.transform_rows(X[free])).max(axis=1)
    )
    honest = model.predict_proba(X[free]).max(axis=1)
    gap = [abs(p[known].mean() - right[known].mean()) for p in (plain, honest)]
    assert model.temperature_[0] > 1
    assert gap[1] < gap[0]
