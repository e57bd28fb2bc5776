"""DiscriminativeClustering: what it finds, its reports, its variants, and what users may do wrong."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln, xlogy
from scipy.stats import chi2_contingency
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, mutual_info_score

from arbora import io
from arbora.core.monitor import Monitor
from arbora.expand import DiscriminativeClustering
from arbora.expand.discriminative import fitting, starts
from arbora.expand.discriminative.choice import information_interval, log_evidence
from arbora.expand.discriminative.cost import Rows, cost_of_counts
from arbora.expand.discriminative.labels import Labels
from arbora.metrics import discriminative_cost

VARIANTS = [
    {"optimizer": "stochastic", "regularizer": None, "max_iter": 60_000},
    *({"optimizer": "cg", "regularizer": name} for name in (None, "vq", "mog", "entropy")),
    *(
        {"optimizer": "annealing", "regularizer": name, "max_iter": 4000}
        for name in (None, "vq", "mog", "entropy")
    ),
]


def toy(n_rows=2000, seed=0, spread=4.0):
    """Figure 6.1: two features, and labels that depend on the second one alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2)) * [spread, 1.0]
    return X, np.where(rng.random(n_rows) < 1 / (1 + np.exp(-3 * X[:, 1])), "up", "down")


def blobs(n_rows=240, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(4, size=n_rows)
    X = 5 * np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])[truth] + rng.normal(size=(n_rows, 2))
    return X, np.where((truth == 0) | (truth == 3), "a", "b"), truth  # opposite corners have the same label


def relevance(model, X):
    """Mutual information of the clusters with the bins of each feature."""
    cells = model.predict(X)
    return [mutual_info_score(np.digitize(X[:, j] / X[:, j].std(), [-1, 0, 1]), cells) for j in (0, 1)]


# --- what it finds -------------------------------------------------------------------------------------------------


def test_ignores_the_irrelevant_feature():
    X, y = toy()
    model = DiscriminativeClustering(4, random_state=0).fit(X, y)
    irrelevant, relevant = relevance(model, X)
    assert relevant > 0.6
    assert irrelevant < 0.1 * relevant
    plain = KMeans(4, n_init=3, random_state=0).fit(X)
    assert model.mutual_information(X, y).value > 3 * mutual_info_score(y, plain.labels_)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v['optimizer']}-{v['regularizer']}")
def test_all_variants_of_the_thesis_find_the_relevant_direction(variant):
    X, y = toy(600, spread=1.0)
    model = DiscriminativeClustering(3, cells="prototype", alpha=0.05, n_init=5, random_state=0, **variant)
    irrelevant, relevant = relevance(model.fit(X, y), X)
    assert relevant > 1.5 * irrelevant
    assert model.mutual_information(X, y).value > 0.2
    assert model.prototypes_.shape == (3, 2)


@pytest.mark.parametrize("regularizer", [None, "l2", "entropy", "vq", "mog"])
@pytest.mark.parametrize("optimizer", ["lbfgs", "cg"])
def test_linear_cells_with_all_regularizers(optimizer, regularizer):
    X, y, truth = blobs()
    model = DiscriminativeClustering(4, optimizer=optimizer, regularizer=regularizer, random_state=0).fit(
        X, y
    )
    assert model.score(X, y) > -0.2 + discriminative_cost(y, truth) / len(y)
    assert model.mutual_information(X, y).value > 0.9 * mutual_info_score(y, truth)


@pytest.mark.parametrize("cells", ["linear", "prototype"])
def test_a_very_strong_distortion_is_k_means(cells):
    X, y, truth = blobs()
    y = np.random.default_rng(0).permutation(y)
    model = DiscriminativeClustering(
        4, cells=cells, regularizer="vq", alpha=1e6, tol=1e-9, init="vq", random_state=0
    ).fit(X, y)
    assert adjusted_rand_score(truth, model.labels_) == pytest.approx(1.0)


def test_entropy_makes_sizes_equal():
    """A strong factor outweighs the labels, of which 90% are in one place."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 1))
    y = (X[:, 0] > 1.3).astype(int)
    sizes = [
        np.bincount(
            DiscriminativeClustering(2, regularizer="entropy", alpha=alpha, random_state=0).fit(X, y).labels_,
            minlength=2,
        )
        for alpha in (0.0, 3.0)
    ]
    assert sizes[0].min() < 100
    assert sizes[1].min() > 250


def test_entropy_factor_is_entropy_for_many_rows():
    """Appendix C: E / N tends to I(C; V) - H(C) + a H(V) - a log N."""
    p = np.array([[0.3, 0.1], [0.05, 0.25], [0.1, 0.2]])  # clusters x labels
    alpha, labels = 0.4, Labels(np.zeros((1, 1), np.int32), [np.arange(2)])
    entropy = lambda q: -float(xlogy(q, q).sum())  # noqa: E731
    information = entropy(p.sum(axis=1)) + entropy(p.sum(axis=0)) - entropy(p)
    errors = []
    for n in (1e3, 1e5, 1e7):
        result = -cost_of_counts(n * p.T, labels, 1.0, alpha) / n
        # N log N - N for each log Gamma: the thesis drops the -N, which is constant, a N in all
        limit = (
            information - entropy(p.sum(axis=0)) + alpha * entropy(p.sum(axis=1)) - alpha * np.log(n) + alpha
        )
        errors.append(abs(result - limit))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-4


def test_rows_without_labels_matter_to_density_models_only():
    X, y, _ = blobs()
    extra = np.random.default_rng(1).normal(size=(100, 2)) * 0.5 + [40, 0]
    extra = np.vstack([extra, 2 * X.mean(axis=0) - extra])  # the mean of all rows stays
    both = np.vstack([X, extra])
    labels = np.append(y, np.full(200, None))
    ids = {"random_state": 0, "scale": None}
    for regularizer in ("l2", "entropy"):
        alone = DiscriminativeClustering(3, regularizer=regularizer, **ids).fit(X, y)
        mixed = DiscriminativeClustering(3, regularizer=regularizer, **ids).fit(both, labels)
        # rounding may number the clusters in another order
        assert adjusted_rand_score(alone.labels_, mixed.labels_[: len(X)]) == 1
        assert len(mixed.labels_) == len(both)
    model = DiscriminativeClustering(3, cells="prototype", regularizer="vq", alpha=100.0, **ids).fit(
        both, labels
    )
    assert len(np.unique(model.labels_[len(X) :])) == 2
    assert np.abs(model.prototypes_ - [40, 0]).sum(axis=1).min() < 1.0


def test_large_sets_start_from_a_sample(monkeypatch):
    X, y, truth = blobs(900)
    whole = DiscriminativeClustering(4, random_state=0).fit(X, y)
    monkeypatch.setattr(fitting, "START_ROWS", 200)
    sampled = DiscriminativeClustering(4, random_state=0).fit(X, y)
    assert sampled.score(X, y) == pytest.approx(whole.score(X, y), abs=0.05)
    assert adjusted_rand_score(truth, sampled.labels_) > 0.9 or sampled.score(X, y) > -0.05


def test_mini_batches_read_a_file(tmp_path):
    X, y, _ = blobs(3000)
    file = np.memmap(tmp_path / "rows", np.float32, "w+", shape=X.shape)
    file[:] = X
    batches = DiscriminativeClustering(4, optimizer="stochastic", max_iter=50_000, random_state=0).fit(
        file, y
    )
    exact = DiscriminativeClustering(4, random_state=0).fit(file, y)
    assert batches.score(X, y) > exact.score(X, y) - 0.05


def test_several_label_columns():
    """Each column has its own direction; clusters of both tell about both."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.column_stack([np.where(X[:, 0] > 0, "x+", "x-"), np.where(X[:, 1] > 0, "y+", "y-")])
    model = DiscriminativeClustering(4, random_state=0).fit(X, y)
    assert [list(names) for names in model.classes_] == [["x+", "x-"], ["y+", "y-"]]
    for variable in (0, 1):
        assert model.mutual_information(X, y, variable=variable).value > 0.4
    first, second = model.predict_label_proba(X)
    np.testing.assert_allclose(first.sum(axis=1), 1.0)
    np.testing.assert_allclose(second.sum(axis=1), 1.0)
    assert (
        model.score(X, y)
        > DiscriminativeClustering(4, random_state=0).fit(X, y[:, [0, 0]]).score(X, y[:, [0, 0]]) - 2
    )
    with pytest.raises(ValueError, match="2"):
        model.score(X, y[:, 0])


# --- choices -------------------------------------------------------------------------------------------------------


def test_number_of_clusters_and_strength_by_held_out_rows():
    X, y, _ = blobs(300)
    model = DiscriminativeClustering(range(1, 8), random_state=0).fit(X, y)
    assert model.n_clusters_ in (3, 4, 5)
    assert model.cv_results_["n_clusters"][0] == 1
    strong = DiscriminativeClustering(3, alpha="cv", random_state=0).fit(X, y)
    assert strong.alpha_ in strong.cv_results_["alpha"]
    assert (
        strong.cv_results_["mean_score"].max()
        == strong.cv_results_["mean_score"][strong.cv_results_["alpha"].index(strong.alpha_)]
    )


def test_permuted_labels_have_no_information():
    X, y, _ = blobs()
    rng = np.random.default_rng(0)
    y = rng.permutation(y)
    X_new, y_new, _ = blobs(seed=1)
    model = DiscriminativeClustering(5, regularizer=None, random_state=0).fit(X, y)
    assert model.log_bayes_factor(X, y) > model.log_bayes_factor(X_new, rng.permutation(y_new))
    assert model.log_bayes_factor(X_new, rng.permutation(y_new)) < 0
    with pytest.warns(UserWarning, match="n_clusters_ is 1"):
        nothing = DiscriminativeClustering(range(1, 5), random_state=0).fit(X, y)
    assert nothing.n_clusters_ == 1
    assert np.all(nothing.predict(X) == 0)


# --- reports -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y = toy(800)
    return DiscriminativeClustering(3, random_state=0).fit(X, y), X, y


def test_score_is_the_hard_cost_per_row(fitted):
    model, X, y = fitted
    expected = discriminative_cost(y, model.predict(X), n_clusters=3) / len(y)
    assert model.score(X, y) == pytest.approx(expected)
    constant = 3 * (gammaln(2) - 2 * gammaln(1))
    assert model.log_evidence(X, y) == pytest.approx(len(y) * expected + constant)


def test_evidence_is_a_probability():
    """The evidences of all label sequences in given clusters add up to 1."""
    cells = np.array([0, 0, 1, 1, 1])
    labels = Labels(np.zeros((1, 1), np.int32), [np.arange(2)])
    total = 0.0
    for number in range(2**5):
        y = np.array([number >> k & 1 for k in range(5)])
        counts = np.zeros((2, 3))
        np.add.at(counts, (y, cells), 1)
        total += np.exp(log_evidence(counts, labels, 0.5))
    assert total == pytest.approx(1.0)


def test_labels_that_fit_did_not_see(fitted):
    model, X, y = fitted
    strange = np.where(np.arange(len(y)) < 5, "sideways", y)
    with pytest.warns(UserWarning, match="sideways"):
        score = model.score(X, strange)
    assert score == pytest.approx(discriminative_cost(strange, model.predict(X), n_clusters=3) / len(y))
    with pytest.warns(UserWarning, match="did not see"):
        assert model.contingency_table(X, strange).classes.tolist() == ["down", "up", "sideways"]


def test_contingency_table(fitted):
    model, X, y = fitted
    result = model.contingency_table(X, y)
    test = chi2_contingency(result.counts, correction=False)
    np.testing.assert_allclose(result.expected, test.expected_freq)
    assert result.p_value == pytest.approx(test.pvalue, rel=1e-6)
    first = (result.counts[0, 0] - result.expected[0, 0]) / np.sqrt(
        result.expected[0, 0]
        * (1 - result.counts[0].mean() * 2 / 800)
        * (1 - result.counts[:, 0].sum() / 800)
    )
    assert result.residuals[0, 0] == pytest.approx(first)
    np.testing.assert_allclose(result.residuals.sum(axis=1), 0, atol=1e-9)  # two labels
    assert result.to_table("shares").to_frame().shape == (3, 4)
    np.testing.assert_allclose(result.shares.sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="residuals"):
        result.to_table("percent")


def test_mutual_information_and_its_interval(fitted):
    model, X, y = fitted
    result = model.mutual_information(X, y)
    assert result.value == pytest.approx(mutual_info_score(y, model.predict(X)))
    assert 0 < result.low < result.value < result.high
    # The interval covers the truth about as often as it says.
    p, rng, inside = np.array([[0.35, 0.15], [0.15, 0.35]]), np.random.default_rng(0), 0
    truth = float((p * np.log(p / 0.25)).sum())
    for _ in range(200):
        table = rng.multinomial(300, p.ravel()).reshape(2, 2)
        first = information_interval(table, level=0.9, n_resamples=200, rng=rng)
        inside += first.low <= truth <= first.high
    assert 160 <= inside <= 195


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_profile_in_original_units(make):
    X, y, _ = blobs()
    X = np.column_stack([1000 + 10 * X, np.full(len(X), 3.0)])
    model = DiscriminativeClustering(2, random_state=0).fit(make(X), y)
    found = model.profile(make(X), feature_names=["income", "age", "same"])
    for k in range(2):
        np.testing.assert_allclose(found.means[k], X[model.labels_ == k].mean(axis=0))
        np.testing.assert_allclose(found.deviations[k], X[model.labels_ == k].std(axis=0), atol=1e-6)
    expected = (found.means - X.mean(axis=0))[:, :2] / X.std(axis=0)[:2]
    np.testing.assert_allclose(found.contrast[:, :2], expected)
    assert np.all(found.contrast[:, 2] == 0)
    assert {name for one in found.top_features() for name, _ in one} == {"income", "age"}
    assert found.to_table(1).to_frame()["cluster"].tolist() == ["0", "1"]


def test_label_probabilities_have_the_prior(fitted):
    model, X, y = fitted
    counts = np.array([[np.sum((model.labels_ == k) & (y == c)) for c in model.classes_] for k in range(3)])
    np.testing.assert_array_equal(model.label_counts_, counts)
    expected = (counts + 1) / (counts.sum(axis=1, keepdims=True) + 2)
    np.testing.assert_allclose(model.predict_label_proba(X), expected[model.predict(X)])


def test_prototypes_are_cells_in_standardised_features(fitted):
    model, X, _ = fitted
    D = (((X[:, None] - model.prototypes_) / model.scale_) ** 2).sum(axis=2)
    np.testing.assert_array_equal(D.argmin(axis=1), model.predict(X))


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * 6, "only one class"),
        ([-1] * 6, "y has no label"),
        ([-1, 1, 1] * 2, "2 rows have no label"),
        ([0.5, 1.5] * 3, "bin measurements"),
        ([1, 2], "6 rows"),
        (None, "requires y"),
    ],
)
def test_bad_labels(y, message):
    with pytest.raises(ValueError, match=message):
        DiscriminativeClustering(2).fit(np.eye(6, 2), y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"optimizer": "annealing"}, "cells='prototype'"),
        ({"cells": "prototype", "optimizer": "annealing"}, "not 'l2'"),
        ({"cells": "prototype", "optimizer": "stochastic"}, "regularizer=None"),
        ({"optimizer": "stochastic", "regularizer": "vq"}, "'entropy'"),
        ({"n_clusters": 9}, "fewer than n_clusters=9"),
        ({"n_clusters": 0}, "n_clusters"),
    ],
)
def test_parameters_that_do_not_go_together(parameters, message):
    with pytest.raises(ValueError, match=message):
        DiscriminativeClustering(**parameters).fit(np.eye(6, 2), ["a", "b"] * 3)


def test_missing_values_are_refused_with_their_place():
    X, y, _ = blobs(20)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3, column 1"):
        DiscriminativeClustering(2).fit(X, y)


def test_hostile_rows_have_a_sound_answer():
    """Constant features, equal rows, a class with one row, as many clusters as rows, huge offsets."""
    rng = np.random.default_rng(0)
    X, y, _ = blobs(60)
    y = y.astype(object)
    y[0] = "alone"
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for rows in (
            np.column_stack([X, np.ones(60)]),
            np.ones((60, 2)),
            1e8 + X,
            rng.choice([0.0, 1.0], (60, 2)),
        ):
            for cells in ("linear", "prototype"):
                model = DiscriminativeClustering(4, cells=cells, random_state=0).fit(rows, y)
                assert np.isfinite(model.score(rows, y))
                assert np.isfinite(model.predict_proba(rows)).all()
        full = DiscriminativeClustering(6, random_state=0).fit(X[:6], ["a", "b"] * 3)
        assert full.labels_.shape == (6,)


def test_float32_and_save(tmp_path):
    X, y, _ = blobs()
    model = DiscriminativeClustering(3, random_state=0).fit(X.astype(np.float32), y)
    exact = DiscriminativeClustering(3, random_state=0).fit(X, y)
    assert model.score(X, y) == pytest.approx(exact.score(X, y), abs=0.02)
    several = DiscriminativeClustering(3, random_state=0).fit(X, np.column_stack([y, y]))
    io.save(several, tmp_path / "model")
    again = io.load(tmp_path / "model")
    assert again.score(X, np.column_stack([y, y])) == several.score(X, np.column_stack([y, y]))


def test_starts_with_few_distinct_rows():
    """Empty clusters of a start get copies of others, or rows."""
    rows = fitting.Rows(np.repeat(np.eye(2), 5, axis=0))
    cells = np.repeat([0, 1], 5)
    assert np.isfinite(starts.gate(rows, cells, 4)).all()
    assert starts.cell_means(rows, cells, 4, np.random.default_rng(0)).shape == (4, 2)


def test_a_measurement_as_label_is_pointed_out():
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.warns(UserWarning, match="bin it first"):
        DiscriminativeClustering(2, random_state=0).fit(X, np.arange(60) // 2)


def test_clusters_without_rows_are_dropped():
    rows = Rows(np.array([[-1.0], [1.0]]))
    W, b = np.array([[-1.0], [0.0], [1.0]]), np.array([0.0, -5.0, 0.0])
    result = fitting.Solution(W, b, None, None, 0.0, Monitor(0.0, 1), [0.0])
    assert fitting.without_empty(result, rows).W.tolist() == [[-1.0], [1.0]]
