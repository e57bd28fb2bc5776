"""ExpandClusters: known groups keep their names, new ones are found, and what users may do wrong."""

import itertools
import pickle
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from arbora.expand import (
    BayesianPriorMixture,
    ExpandClusters,
    GammaTransform,
    GaussianTransform,
    InformativeComponents,
    LargeMarginTransform,
)
from arbora.expand.clusters import fitting
from arbora.expand.clusters.clusterers import (
    KMEANS,
    Clusterer,
    fit_gaussian,
    fit_kmeans,
    fit_spectral,
    fit_spherical,
    nearest,
    run_kmeans,
    seed_centres,
)
from arbora.expand.clusters.n_new import RULES, combine, estimate_n_new, regress_on_sizes
from arbora.expand.clusters.neighbours import Neighbours, neighbour_graph
from arbora.expand.clusters.pool import (
    Pool,
)
from arbora.expand.clusters.registry import CLUSTERERS, METRICS
from arbora.expand.clusters.search import agreement
from arbora.io import load, save
from arbora.metrics import expansion_accuracy, hungarian_accuracy
from support.expand_problems import partly_labelled


def mixed(n_known=5, n_new=4, n_each=60, seed=3, labelled=0.5):
    """A pool with rows of known and of new groups."""
    X, y, truth = partly_labelled(n_known, n_new, n_each, seed=seed)
    hidden = np.random.default_rng(seed).random(len(y)) > labelled
    return X, np.where(hidden, -1, y), truth


def pool_of(seed=0, n_known=2):
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(4), 25)
    Z = 8 * rng.normal(size=(4, 3))[truth] + rng.normal(size=(100, 3))
    fixed = np.where((truth < n_known) & (rng.random(100) < 0.5), truth, -1)
    return Pool(Z, fixed, n_known, np.ones(100)), truth


# --- clusterers ----------------------------------------------------------------------------------------------------


def test_nearest_by_definition():
    rng = np.random.default_rng(0)
    Z, centres = rng.normal(size=(50, 3)), rng.normal(size=(7, 3))
    D = np.sum((Z[:, None] - centres) ** 2, axis=2)
    labels, distance = nearest(Z, centres)
    np.testing.assert_array_equal(labels, D.argmin(axis=1))
    np.testing.assert_allclose(distance, D.min(axis=1))


def test_lloyd_never_raises_the_inertia():
    pool, _ = pool_of()
    rng = np.random.default_rng(0)
    centres = seed_centres(pool, 2, rng)
    values = [run_kmeans(pool, centres, max_iter=n, tol=0.0).objective for n in range(1, 8)]
    assert np.all(np.diff(values) >= -1e-9)


@pytest.mark.parametrize("fit", [fit_kmeans, fit_gaussian, fit_spherical, fit_spectral])
def test_clusterers_hold_labelled_rows_and_find_the_others(fit):
    pool, truth = pool_of()
    if fit is fit_spherical:
        pool = pool._replace(Z=pool.Z + 30 * np.eye(4, 3)[truth] - 15)
    result = fit(pool, 2, np.random.default_rng(0), 10)
    held = pool.fixed >= 0
    np.testing.assert_array_equal(result.labels[held], pool.fixed[held])
    assert hungarian_accuracy(truth, result.labels) > 0.95
    proba = np.exp(result.log_proba(pool.Z))
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert np.mean(proba.argmax(axis=1)[~held] == result.labels[~held]) > 0.95


def test_approximate_neighbours_are_nearly_exact(monkeypatch):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3000, 5))
    exact = Neighbours(Z, 0).find(Z[:200], 10)
    monkeypatch.setattr("arbora.expand.clusters.neighbours.MAX_EXACT", 100)
    near = Neighbours(Z, 0).find(Z[:200], 10)
    shared = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact, near, strict=True)])
    assert shared > 0.9
    np.testing.assert_array_equal(near[:, 0], np.arange(200))


def test_filing_lets_labelled_rows_show_the_shape_of_their_group():
    """Two half rings are known, a blob is new: centres cannot tell the rings apart, neighbours can."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 200)
    angle = np.pi * rng.random(600)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    X[truth == 1] = [1.0, 0.3] - X[truth == 1]
    X[truth == 2] = [4.0, 0.0]
    X += 0.08 * rng.normal(size=X.shape)
    y = np.where((truth < 2) & (rng.random(600) < 0.3), truth, -1)
    found = {
        filing: ExpandClusters("identity", "kmeans", n_new=1, filing=filing, random_state=0).fit(X, y)
        for filing in ("neighbours", "clusters")
    }
    right = {
        filing: expansion_accuracy(truth[y < 0], model.labels_[y < 0], [0, 1])
        for filing, model in found.items()
    }
    assert right["neighbours"].known > 0.9 > right["clusters"].known
    assert right["neighbours"].new == 1.0
    np.testing.assert_array_equal(found["neighbours"].labels_[y >= 0], y[y >= 0])
    again = found["neighbours"].predict(X)
    assert np.mean(again == found["neighbours"].labels_) > 0.97


def test_neighbour_graph_is_symmetric_without_loops():
    Z = np.random.default_rng(0).normal(size=(60, 3))
    graph = neighbour_graph(Neighbours(Z, 0), 5).toarray()
    np.testing.assert_array_equal(graph, graph.T)
    assert not np.diag(graph).any()
    assert set(np.unique(graph)) <= {0.0, 0.5, 1.0}


@pytest.mark.parametrize("seed", range(6))
def test_scores_of_a_search_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(1 + seed, size=40), rng.integers(4 if seed else 1, size=40)
    measures = (normalized_mutual_info_score, adjusted_rand_score, hungarian_accuracy)
    assert agreement(truth, labels) == pytest.approx(np.mean([f(truth, labels) for f in measures]))


# --- ExpandClusters ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clusterer", ["kmeans", "gaussian", "spectral"])
def test_new_groups_of_a_pool_of_new_rows(clusterer):
    X, y, truth = partly_labelled(5, 4, 60, seed=3)
    model = ExpandClusters("within", clusterer, n_new=4, pool="new", random_state=0).fit(X, y)
    new = truth >= 5
    np.testing.assert_array_equal(model.labels_[~new], truth[~new])
    assert hungarian_accuracy(truth[new], model.labels_[new]) > (0.8 if clusterer == "spectral" else 0.95)
    assert model.classes_.tolist() == list(range(9))
    assert hungarian_accuracy(truth[new], model.predict(X[new], among="new")) > 0.8
    assert np.mean(model.predict(X) == model.labels_) > 0.9
    assert np.mean(model.is_new(X) == new) > 0.9


def test_mixed_pools_fill_known_groups_and_new_ones():
    X, y, truth = mixed()
    model = ExpandClusters("within", "kmeans", n_new=4, random_state=0).fit(X, y)
    scores = expansion_accuracy(truth[y < 0], model.labels_[y < 0], np.arange(5))
    assert min(scores) > 0.9
    labelled = y >= 0
    np.testing.assert_array_equal(model.labels_[labelled], y[labelled])
    plain = ExpandClusters("identity", "kmeans", n_new=4, random_state=0).fit(X, y)
    assert scores.all > expansion_accuracy(truth[y < 0], plain.labels_[y < 0], np.arange(5)).all + 0.1


def test_auto_beats_the_identity_where_a_feature_is_a_nuisance():
    X, y, truth = partly_labelled(6, 4, 40, seed=3)
    model = ExpandClusters(n_new=4, pool="new", random_state=0).fit(X, y)
    new = truth >= 6
    assert hungarian_accuracy(truth[new], model.labels_[new]) > 0.9
    assert model.choice_["metric"] != "identity"
    assert len(model.cv_results_["mean_score"]) == len(model.cv_results_["clusterer"])


@pytest.mark.filterwarnings("ignore:n_new=2, but")  # neighbours may file all rows of a new group elsewhere
def test_names_are_the_transformers_of_the_registry():
    """A name and its transformer as an object give the same groups; "auto" and the strengths come from the rows."""
    X, y, _ = mixed(n_each=20)
    fixed = {"clusterer": "kmeans", "scale": "common", "n_new": 2, "n_init": 2, "random_state": 0}
    for row in METRICS.values():
        named = ExpandClusters(row.name, **fixed).fit(X, y)
        inputs = ExpandClusters(row.transformer, **fixed).fit(X, y)
        np.testing.assert_array_equal(inputs.predict_proba(X), named.predict_proba(X))
        assert (named.choice_["metric"], inputs.choice_["metric"]) == (
            row.name,
            type(row.transformer).__name__,
        )
        assert named.choice_["strength"] in row.strengths
    every = ExpandClusters(scale="common", n_new=2, n_init=2, random_state=0).fit(X, y)
    assert set(every.cv_results_["metric"]) == {row.name for row in METRICS.values() if row.auto}
    assert set(every.cv_results_["clusterer"]) == {row.name for row in CLUSTERERS.values() if row.auto_dense}


@pytest.mark.filterwarnings("ignore:n_new=2, but")  # neighbours may file all rows of a new group elsewhere
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "metric", [LargeMarginTransform(3, gamma=[0.1, 1.0]), GammaTransform(), InformativeComponents(3)]
)
def test_a_transformer_object_is_the_metric(metric, tmp_path):
    X, y, _ = mixed(n_each=20)
    X = np.abs(X)
    model = ExpandClusters(metric, "kmeans", scale="common", n_new=2, n_init=2, random_state=0).fit(X, y)
    assert not hasattr(metric, "components_")  # the object of the user is not fitted
    scored = len(model.cv_results_["mean_score"]) if hasattr(model, "cv_results_") else 1
    assert scored == len(metric.gamma if isinstance(metric, LargeMarginTransform) else [1])
    assert clone(model).get_params()["metric"] is not metric
    np.testing.assert_array_equal(model.refit(X, y).labels_[y >= 0], y[y >= 0])
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="was fitted with the metric"):
        model.set_params(metric="within").refit(X, y)


class WithLabels(NamedTuple):
    labels: object


def fit_first_feature(pool, n_new, rng, n_init, engine=None):
    """A clusterer of a user: new groups by the first feature."""
    order = np.argsort(np.argsort(pool.Z[:, 0]))
    return WithLabels(pool.n_known + order * n_new // len(order))


@pytest.mark.parametrize(
    ("pool", "filing"), [("new", "clusters"), ("mixed", "clusters"), ("mixed", "neighbours")]
)
def test_a_clusterer_object_needs_labels_only(pool, filing):
    X, y, _ = partly_labelled(4, 3, 30, seed=3)
    mine = Clusterer("first feature", fit_first_feature)
    model = ExpandClusters("within", mine, n_new=3, pool=pool, filing=filing, scale="common", random_state=0)
    clone(model).fit(X, y)
    model.fit(X, y)
    np.testing.assert_array_equal(model.labels_[y >= 0], y[y >= 0])
    assert model.choice_["clusterer"] == "first feature"
    if filing == "clusters":
        first = model.transform_rows(X[y < 0])[:, 0]
        groups = model.labels_[y < 0]
        spans = sorted((first[groups == k].min(), first[groups == k].max()) for k in np.unique(groups))
        assert all(low[1] <= high[0] for low, high in itertools.pairwise(spans))
    assert np.isfinite(model.partial_fit(X[:5] + 0.1, y[:5]).predict_proba(X)).all()
    same = ExpandClusters("within", CLUSTERERS["kmeans"], n_new=3, random_state=0)
    named = ExpandClusters("within", "kmeans", n_new=3, random_state=0)
    np.testing.assert_array_equal(clone(same).fit_predict(X, y), named.fit_predict(X, y))
    with pytest.raises(ValueError, match="give yours another name"):
        ExpandClusters("within", Clusterer("kmeans", fit_first_feature), random_state=0).fit(X, y)


@pytest.mark.parametrize(
    "clusterer",
    [*CLUSTERERS.values(), Clusterer("mine", fit_first_feature, KMEANS)],
    ids=lambda row: row.name,
)
def test_clusterer_objects_are_pickled(clusterer):
    model = pickle.loads(pickle.dumps(ExpandClusters("within", clusterer)))
    assert model.clusterer == clusterer


def test_model_files_name_built_in_clusterers_and_contain_no_code(tmp_path):
    X, y, _ = partly_labelled(3, 2, 20, seed=3)
    options = {"n_new": 2, "pool": "new", "scale": "common", "random_state": 0}
    model = ExpandClusters("within", CLUSTERERS["kmeans"], **options).fit(X, y)
    save(model, tmp_path / "built-in")
    again = load(tmp_path / "built-in")
    assert again.clusterer == "kmeans"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    mine = ExpandClusters("within", Clusterer("mine", fit_first_feature), **options).fit(X, y)
    with pytest.raises(TypeError, match="never contain code; give the name of a built-in clusterer"):
        save(mine, tmp_path / "mine")
    save(mine.set_params(clusterer="kmeans"), tmp_path / "mine")
    np.testing.assert_array_equal(load(tmp_path / "mine").predict_proba(X), mine.predict_proba(X))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            lambda n, n_clusters: np.zeros(n - 1, int),
            r"'mine' returned labels of shape \(\d+,\): return one label for each",
        ),
        (lambda n, n_clusters: np.full(n, 0.5), "'mine' returned labels of type float64"),
        (
            lambda n, n_clusters: np.full(n, n_clusters),
            r"'mine' returned the label (\d+): return .* from 0 to",
        ),
        (lambda n, n_clusters: np.full(n, -1), "'mine' returned the label -1"),
    ],
)
def test_labels_of_a_clusterer_object_are_checked(labels, message):
    X, y, _ = partly_labelled(3, 2, 20, seed=3)

    def fit_mine(pool, n_new, rng, n_init, engine=None):
        return WithLabels(labels(len(pool.Z), pool.n_known + n_new))

    with pytest.raises(ValueError, match=message):
        ExpandClusters("within", Clusterer("mine", fit_mine), n_new=2, scale="common").fit(X, y)


def test_a_clusterer_object_needs_a_function():
    X, y, _ = partly_labelled(3, 2, 20, seed=3)
    with pytest.raises(TypeError, match="'mine' has fit=None: give a function"):
        ExpandClusters("within", Clusterer("mine", None), n_new=2).fit(X, y)


@pytest.mark.parametrize("n_known", [1, 2])
@pytest.mark.parametrize("gamma", [[5.0, 50.0], "cv"])
def test_several_strengths_of_a_transformer_object_need_three_groups(n_known, gamma):
    X, y, _ = partly_labelled(n_known, 2, 20, seed=3)
    with pytest.raises(ValueError, match=r"needs at least 3\. Give the parameter a number"):
        ExpandClusters(GaussianTransform(gamma), "kmeans", n_new=2, random_state=0).fit(X, y)


@pytest.mark.filterwarnings("ignore:n_new=2, but")
@pytest.mark.parametrize("gamma", [5.0, [5.0]])
def test_one_strength_of_a_transformer_object_is_used(gamma):
    X, y, _ = partly_labelled(2, 2, 20, seed=3)
    model = ExpandClusters(GaussianTransform(gamma), "kmeans", n_new=2, random_state=0).fit(X, y)
    assert model.choice_["strength"] == 5.0


@pytest.mark.filterwarnings("ignore:n_new=2, but")
def test_refit_refuses_another_strength():
    X, y, _ = partly_labelled(3, 2, 20, seed=3)
    model = ExpandClusters(GaussianTransform(0.1), "kmeans", n_new=2, scale="common", random_state=0).fit(
        X, y
    )
    with pytest.raises(ValueError, match=r"GaussianTransform\(gamma=0.1\): set it again, or call `fit`"):
        model.set_params(metric=GaussianTransform(5.0)).refit(X, y)
    model.set_params(metric=GaussianTransform([0.1, 5.0])).refit(X, y)
    assert model.choice_["strength"] == 0.1


def test_number_of_new_groups_comes_with_a_range_and_a_curve():
    X, y, _ = partly_labelled(6, 4, 60, seed=3)
    model = ExpandClusters("within", "kmeans", pool="new", random_state=0).fit(X, y)
    low, high = model.n_new_range_
    assert low <= model.n_new_ <= high
    assert 2 <= model.n_new_ <= 8
    estimate = model.n_new_estimate_
    assert tuple(estimate.rules) == RULES
    assert len(estimate.curve["n_new"]) == len(estimate.curve["bic"])


def test_no_new_groups_where_there_are_none():
    X, y, truth = mixed(n_known=5, n_new=0)
    model = ExpandClusters("within", "kmeans", random_state=0).fit(X, y)
    assert model.n_new_ <= 1
    assert np.mean(model.labels_ == truth) > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_estimate_is_near_the_truth_for_separated_groups(seed):
    """The BIC counts separated groups exactly; the other rules move the estimate by at most one."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(12), 50)
    Z = 20 * rng.normal(size=(12, 6))[truth] + rng.normal(size=(600, 6))
    known = truth < 5
    result = estimate_n_new(Z[known], truth[known], 5, Z[~known], rng)
    assert result.rules["bic"] == pytest.approx(7)
    assert abs(result.value - 7) <= 1
    assert result.low <= 7 <= result.high


def test_rules_are_calibrated_on_known_groups():
    """Rules that are off by a constant factor and power, with correlated noise, give the truth back."""
    rng = np.random.default_rng(0)
    sizes = np.log(rng.integers(2, 40, 400))
    mixing = 0.1 * rng.normal(size=(3, 3))
    intercept, slope = np.log([1.0, 3.0, 0.5]), np.array([1.0, 0.5, 1.2])
    answers = intercept + sizes[:, None] * slope + rng.normal(size=(400, 3)) @ mixing
    calibration = regress_on_sizes(sizes, answers)
    np.testing.assert_allclose(calibration.slope, slope, atol=0.05)
    truth = np.log(25.0)
    drawn = [
        combine(calibration, intercept + truth * slope + rng.normal(size=3) @ mixing, np.log(10.0))
        for _ in range(200)
    ]
    means, deviations = np.array(drawn).T
    assert abs(means.mean() - truth) < 0.05
    assert 0.1 < means.std() / deviations.mean() < 1.5


def test_names_of_new_groups():
    X, y, _ = partly_labelled(3, 2, 30)
    named = np.array(["ant", "bee", "new 1"], dtype=object)
    y = np.array([None if code < 0 else named[code] for code in y], dtype=object)
    model = ExpandClusters("within", "kmeans", n_new=2, pool="new", random_state=0).fit(X, y)
    assert model.classes_.tolist() == ["ant", "bee", "new 1", "new 2", "new 3"]
    assert [group.name for group in model.new_groups_] == ["new 2", "new 3"]
    for group in model.new_groups_:
        assert {*group.central, *group.borderline} <= set(np.flatnonzero(model.labels_ == group.name))
        assert 0 < group.confidence <= 1


def test_refit_keeps_the_names_of_groups_that_are_found_again():
    X, y, truth = partly_labelled(4, 4, 50, seed=3)
    model = ExpandClusters("within", "kmeans", n_new=4, random_state=0).fit(X, y)
    before = model.labels_.copy()
    accepted = np.flatnonzero(truth == 5)[:20]
    y2 = y.copy()
    y2[accepted] = 100  # the user names a group
    model.set_params(n_new=3, random_state=1).refit(X, y2)
    for name in model.classes_[5:]:
        rows = model.labels_ == name
        assert np.mean(before[rows] == name) > 0.9


def test_rounds_with_confident_rows_do_no_harm():
    X, y, truth = mixed()
    first, more = (
        ExpandClusters("within", "kmeans", n_new=4, n_rounds=n, random_state=0).fit(X, y) for n in (0, 2)
    )
    scores = [expansion_accuracy(truth, model.labels_, np.arange(5)).all for model in (first, more)]
    assert scores[1] > scores[0] - 0.05


def test_rounds_of_directions_use_unit_rows(monkeypatch):
    """Von Mises-Fisher components take rows of unit length: so must the probabilities of confident rows."""
    taken = []

    def with_confident(F, Z, *more):
        taken.append(np.linalg.norm(Z, axis=1))
        return learn_from(F, Z, *more)

    learn_from = fitting.with_confident
    monkeypatch.setattr(fitting, "with_confident", with_confident)
    X, y, _ = mixed(n_each=20)
    for filing in ("neighbours", "clusters"):
        ExpandClusters(
            "within", "vmf", scale="common", n_new=4, n_init=2, n_rounds=1, filing=filing, random_state=0
        ).fit(X, y)
    assert len(taken) == 2
    np.testing.assert_allclose(np.concatenate(taken), 1.0)


def test_explanation_names_the_nuisance_and_doubtful_groups():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), 60)
    centres = 10 * rng.normal(size=(5, 4))
    centres[1] = centres[0] + 0.3  # nearly the same group twice
    X = centres[truth] + rng.normal(size=(300, 4))
    X[:, 3] = 30 * rng.normal(size=300)  # a nuisance
    X[truth == 4, 0] += np.where(rng.random(60) < 0.5, 60, 0)  # two groups under one name
    model = ExpandClusters("within", "kmeans", n_new=0, random_state=0).fit(X, truth)
    told = model.explain(X, truth, feature_names=["a", "b", "c", "nuisance"])
    assert told.features[-1][0] == "nuisance"
    assert (0, 1) in [merge.groups for merge in told.merges]
    assert 4 in [split.group for split in told.splits]


def test_sparse_rows():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(6), 40)
    rate = rng.gamma(0.05, size=(6, 300))[truth] * 3 + 0.01
    X = sp.csr_array(rng.poisson(rate).astype(float))
    y = np.where(truth < 4, truth, -1)
    model = ExpandClusters(n_new=2, pool="new", random_state=0).fit(X, y)
    assert model.choice_["clusterer"] in ("vmf", "spectral")
    assert hungarian_accuracy(truth[truth >= 4], model.labels_[truth >= 4]) > 0.8


def test_one_known_group_falls_back_with_a_warning():
    X, y, truth = partly_labelled(1, 3, 40)
    with pytest.warns(UserWarning, match="Label more groups"):
        model = ExpandClusters(n_new=3, pool="new", random_state=0).fit(X, y)
    assert hungarian_accuracy(truth[truth > 0], model.labels_[truth > 0]) > 0.9


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_odd_input_gives_a_sound_answer():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 10_000))
    y = np.where(np.arange(50) < 20, np.arange(50) % 4, -1)
    assert len(ExpandClusters(n_new=2, random_state=0).fit(X, y).labels_) == 50  # wide
    X = rng.normal(size=(30, 3))
    all_rows = ExpandClusters("within", "kmeans", random_state=0).fit(X, np.arange(30) % 3)
    assert all_rows.n_new_ == 0  # all rows labelled
    single = ExpandClusters("within", "kmeans", n_new=2, random_state=0).fit(X, [0, 1, 2] + [-1] * 27)
    assert np.isfinite(single.predict_proba(X)).all()  # groups of one row
    same = ExpandClusters("within", "kmeans", n_new=2, random_state=0).fit(
        np.ones((30, 3)), [0, 1, 2] + [-1] * 27
    )
    assert np.isfinite(same.predict_proba(X)).all()
    few = ExpandClusters("within", "kmeans", n_new=9, pool="new", random_state=0).fit(
        X[:5], [0, 0, 1, -1, -1]
    )
    assert few.n_new_ <= 2  # more new groups than rows


def test_nothing_labelled_names_discover():
    with pytest.raises(ValueError, match=r"arbora\.discover"):
        ExpandClusters().fit(np.eye(4), [-1] * 4)
    with pytest.raises(ValueError, match="among must be"):
        ExpandClusters("within", "kmeans", n_new=0).fit(np.eye(4), [0, 0, 1, 1]).predict(
            np.eye(4), among="some"
        )
    with pytest.raises(ValueError, match="NaN"):
        ExpandClusters().fit(np.full((4, 2), np.nan), [0, 0, 1, 1])


# --- BayesianPriorMixture ------------------------------------------------------------------------------------------


def test_prior_mixture_never_falls_and_holds_labelled_rows():
    X, y, truth = mixed(seed=1)
    model = BayesianPriorMixture(4, tol=1e-9, max_iter=300, random_state=0).fit(X, y)
    assert model.trace_.is_monotone(increasing=True, tolerance=1e-9)
    np.testing.assert_array_equal(model.labels_[y >= 0], y[y >= 0])
    assert expansion_accuracy(truth, model.labels_, np.arange(5)).all > 0.8
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_prior_mixture_shrinks_means_towards_their_centre():
    """A group with one row is drawn to the centre of all groups, by its share of the precision."""
    from arbora.expand.prior_mixture import PriorMixture, _Prior, update

    Z = np.array([[10.0], [0.0], [0.0]])
    pool = Pool(Z, np.array([0, 1, 1]), 2, np.ones(3))
    model = PriorMixture(np.zeros((2, 1)), np.eye(1), np.zeros(1), 1.0)
    R = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(update(model, pool, R, _Prior(1.0, np.eye(1))).means, [[5.0], [0.0]])


def test_prior_mixture_keeps_a_pool_of_new_groups_apart():
    """With pool="new" no unlabelled row joins a known group, and the objective still rises."""
    X, y, truth = partly_labelled(n_known=3, n_new=3)
    X[truth == 3] = X[truth == 0]  # a group of the pool that looks like a known one
    model = BayesianPriorMixture(3, pool="new", tol=1e-9, max_iter=300, random_state=0).fit(X, y)
    assert not np.isin(model.labels_[y < 0].astype(str), model.known_classes_.astype(str)).any()
    np.testing.assert_array_equal(model.labels_[y >= 0].astype(str), y[y >= 0].astype(str))
    assert np.all(np.diff(model.trace_["objective"]) > -1e-6)
    mixed = BayesianPriorMixture(2, pool="mixed", random_state=0).fit(X, y)
    assert np.isin(mixed.labels_[y < 0].astype(str), mixed.known_classes_.astype(str)).any()


def test_prior_mixture_with_more_features_than_rows():
    """Groups that are easy to see stay apart: the prior of the means does not shrink to a point."""
    rng = np.random.default_rng(0)
    truth = np.arange(66) % 14
    X = rng.normal(size=(14, 192))[truth] + rng.normal(size=(66, 192)) * np.linspace(0.3, 1.5, 192)
    y = np.where(truth < 7, truth, -1)
    model = BayesianPriorMixture(7, pool="new", tol=1e-9, max_iter=200, random_state=0).fit(X, y)
    assert model.trace_.is_monotone(increasing=True, tolerance=1e-9)
    assert len(np.unique(model.labels_[y < 0])) == 7
    new = y < 0
    same = model.labels_[new][:, None] == model.labels_[new]
    assert np.mean(same == (truth[new][:, None] == truth[new])) > 0.95
