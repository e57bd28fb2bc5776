"""Generators: what is drawn agrees with the truth that is handed back."""

import numpy as np
import pytest
from scipy import special, stats

from arbora.datasets import make_hierarchical_text, make_hierarchical_vmf, make_temporal_vmf, make_vmf_mixture
from arbora.datasets.synthetic.text import _distinct_words, zipf
from arbora.structure import Hierarchy


def true_distributions(data):
    h = data.hierarchy
    return np.array([data.truth.word_distribution(h.encode(h.path(h.names[c]))) for c in data.truth.classes])


@pytest.fixture(scope="module")
def text():
    return make_hierarchical_text(
        3000, 800, branching=(3, 2), topic_strength=0.2, mean_length=300, random_state=3
    )


def test_words_follow_the_true_distributions(text):
    P = true_distributions(text)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    for k, leaf in enumerate(text.truth.classes):
        counts = np.asarray(text.X_train[text.y_train == text.hierarchy.names[leaf]].sum(axis=0)).ravel()
        expected = P[k] * counts.sum()
        assert expected.min() > 2  # enough for the chi-squared law over 800 words
        assert stats.chisquare(counts.astype(float), expected).pvalue > 1e-4


def test_classification_by_the_true_distributions_is_right(text):
    P = true_distributions(text)
    scores = text.X_test @ np.log(P).T
    predicted = text.hierarchy.names[text.truth.classes[scores.argmax(axis=1)]]
    assert np.mean(predicted == text.y_test) > 0.98


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.3])
def test_zipf_exponent_of_the_background_at_every_level(exponent):
    data = make_hierarchical_text(
        2000, 5000, branching=3, depth=3, word_exponent=exponent, word_shift=0.0, n_topic_words=10,
        mean_length=150, random_state=0,
    )  # fmt: skip
    not_topic = np.ones(5000, dtype=bool)
    not_topic[data.truth.topic_words.ravel()] = False
    rank = np.flatnonzero(not_topic[:60]) + 1
    top = np.array([data.hierarchy.path(name)[1] for name in data.y_train])
    for rows in (np.ones(len(top), dtype=bool), *(top == name for name in np.unique(top))):
        counts = np.asarray(data.X_train[rows].sum(axis=0)).ravel()[rank - 1]
        slope = np.polyfit(np.log(rank), np.log(counts), 1, w=np.sqrt(counts))[0]
        assert slope == pytest.approx(-exponent, abs=0.05)


def test_nearer_classes_share_more_words(text):
    P, h = true_distributions(text), text.hierarchy
    parent = h.parent[text.truth.classes]
    distance = np.abs(P[:, None] - P[None]).sum(axis=2)
    siblings = (parent[:, None] == parent[None]) & ~np.eye(len(P), dtype=bool)
    assert distance[siblings].max() < distance[parent[:, None] != parent[None]].min()


def test_class_sizes_and_lengths():
    data = make_hierarchical_text(
        20000,
        500,
        n_leaves=100,
        depth=3,
        class_exponent=1.0,
        mean_length=40,
        length_spread=0.5,
        random_state=1,
    )
    sizes = np.sort(np.unique(data.y_train.astype(str), return_counts=True)[1])[::-1]
    assert sizes.size == 100
    slope = np.polyfit(np.log(np.arange(1, 101)), np.log(sizes), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.1)
    lengths = np.asarray(data.X_train.sum(axis=1)).ravel()
    assert lengths.mean() == pytest.approx(40, rel=0.02)
    assert np.log(lengths).std() == pytest.approx(0.5, abs=0.02)
    assert lengths.min() >= 1


@pytest.mark.parametrize(("n_leaves", "depth"), [(1, 1), (7, 2), (50, 4), (1000, 6), (3, 5)])
def test_random_trees_have_the_asked_shape(n_leaves, depth):
    data = make_hierarchical_text(n_leaves + 5, 200, n_leaves=n_leaves, depth=depth, random_state=0)
    h = data.hierarchy
    assert h.is_tree
    assert len(h.leaf_ids) == n_leaves
    assert set(h.depth[h.leaf_ids]) == {depth}
    assert set(data.y_train) == set(h.names[h.leaf_ids])


def test_a_given_tree_with_leaves_at_unequal_depth():
    h = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("b", "c"), ("b", "d"), ("d", "e")])
    data = make_hierarchical_text(400, 300, hierarchy=h, n_test=0, topic_strength=0.4, random_state=0)
    assert set(data.y_train) == {"a", "c", "e"}
    assert data.X_test.shape == (0, 300)
    P = true_distributions(data)
    scores = data.X_train @ np.log(P).T
    assert np.mean(h.names[data.truth.classes[scores.argmax(axis=1)]] == data.y_train) > 0.95


@pytest.mark.parametrize("k", [1, 5, 10])
def test_topic_words_are_distinct_and_even(k):
    words = _distinct_words(4000, k, 20, np.random.default_rng(0))
    assert (np.diff(np.sort(words, axis=1), axis=1) > 0).all()
    assert stats.chisquare(np.bincount(words.ravel(), minlength=20)).pvalue > 1e-4


def test_text_is_reproducible():
    first, second = (make_hierarchical_text(50, 100, random_state=5) for _ in range(2))
    assert (first.X_train != second.X_train).nnz == 0
    assert list(first.y_test) == list(second.y_test)
    other = make_hierarchical_text(50, 100, random_state=6)
    assert (first.X_train != other.X_train).nnz > 0
    assert zipf(3, 1.0).tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 5}, "each of the 9 leaves"),
        ({"topic_strength": 1.0}, "topic_strength"),
        ({"n_topic_words": 200}, "n_topic_words"),
        ({"n_leaves": 3, "branching": 2}, "give one of"),
        ({"depth": 0}, "depth"),
        ({"branching": (2, 0)}, "branching"),
        ({"n_leaves": 0}, "n_leaves"),
        ({"hierarchy": Hierarchy.from_edges([("a", "c"), ("b", "c")])}, "must be a tree"),
    ],
)
def test_text_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        make_hierarchical_text(**{"n_samples": 50, "n_features": 100, **options})


def bessel_ratio(n_features, kappa):
    return special.ive(n_features / 2, kappa) / special.ive(n_features / 2 - 1, kappa)


def test_vmf_mixture_has_its_true_parameters():
    weights, kappa = [0.6, 0.3, 0.1], np.array([30.0, 100.0, 400.0])
    data = make_vmf_mixture(30_000, 6, 3, kappa=kappa, weights=weights, random_state=0)
    truth = data.truth
    assert list(np.unique(data.y_train.astype(str))) == ["c0", "c1", "c2"]
    for k in range(3):
        rows = data.X_train[truth.components == k]
        mean = rows.mean(axis=0)
        assert len(rows) == pytest.approx(30_000 * weights[k], abs=4.5 * np.sqrt(30_000 * weights[k]))
        assert np.linalg.norm(mean) == pytest.approx(bessel_ratio(6, kappa[k]), abs=0.01)
        assert mean @ truth.means[k] / np.linalg.norm(mean) > 0.999
    scores = data.X_train @ (truth.means * kappa[:, None]).T
    log_normaliser = 2 * np.log(kappa) - np.log(special.ive(2, kappa)) - kappa
    assert np.mean((scores + log_normaliser).argmax(axis=1) == truth.components) > 0.95


def test_hierarchical_vmf_means_lie_around_their_parents():
    data = make_hierarchical_vmf(5000, 8, (30, 40), node_kappa=(20.0, 60.0), kappa=500.0, random_state=0)
    h, means = data.hierarchy, data.truth.means
    for depth, kappa in ((1, 20.0), (2, 60.0)):
        nodes = h.levels[depth]
        cosine = np.einsum("ij,ij->i", means[nodes], means[h.parent[nodes]])
        assert abs(cosine.mean() - bessel_ratio(8, kappa)) < 4.5 * cosine.std() / np.sqrt(cosine.size)
    cosines = np.einsum("ij,ij->i", data.X_train, means[data.truth.components])
    assert abs(cosines.mean() - bessel_ratio(8, 500.0)) < 4.5 * cosines.std() / np.sqrt(cosines.size)
    assert (h.names[data.truth.components] == data.y_train).all()
    assert set(data.truth.components) <= set(h.leaf_ids)


def test_temporal_vmf_drifts_as_asked():
    data = make_temporal_vmf(4000, 5, 20, 100, kappa=200.0, drift_kappa=50.0, random_state=0)
    means, time = data.truth.means, data.extra["time"]
    step = np.einsum("tkd,tkd->tk", means[1:], means[:-1]).ravel()
    assert abs(step.mean() - bessel_ratio(5, 50.0)) < 4.5 * step.std() / np.sqrt(step.size)
    cosines = np.einsum("ij,ij->i", data.X_train, means[time, data.truth.components])
    assert abs(cosines.mean() - bessel_ratio(5, 200.0)) < 4.5 * cosines.std() / np.sqrt(cosines.size)
    assert (np.bincount(time) == 40).all()


@pytest.mark.parametrize("make", [make_vmf_mixture, make_hierarchical_vmf, make_temporal_vmf])
def test_vmf_generators_are_reproducible_and_unit_length(make):
    first, second, other = (make(60, random_state=seed) for seed in (1, np.random.default_rng(1), 2))
    np.testing.assert_array_equal(first.X_train, second.X_train)
    assert not np.array_equal(first.X_train, other.X_train)
    np.testing.assert_allclose(np.linalg.norm(first.X_train, axis=1), 1.0)


@pytest.mark.parametrize(
    "options", [{"weights": [0.5, 0.6]}, {"weights": [1.0]}, {"kappa": [1.0, 2.0, 3.0]}, {"kappa": -1.0}]
)
def test_vmf_options_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        make_vmf_mixture(10, 3, 2, **options)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (make_vmf_mixture, {"n_components": 0}, "n_components must be at least 1, got 0"),
        (make_vmf_mixture, {"n_features": 1}, "n_features must be at least 2, got 1"),
        (make_hierarchical_vmf, {"branching": (2, 0)}, "branching must be at least 1, got 0"),
        (make_hierarchical_vmf, {"branching": ()}, "branching must be at least 1, got 0"),
        (make_temporal_vmf, {"n_times": 0}, "n_times must be at least 1, got 0"),
        (make_temporal_vmf, {"n_samples": 0}, "n_samples must be at least 1, got 0"),
    ],
)
def test_vmf_sizes_are_checked(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
