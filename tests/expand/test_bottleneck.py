"""The information bottleneck: brute force, an objective that never falls, the tree, hostile input."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

from arbora.expand import InformationBottleneck
from arbora.expand.bottleneck import cut_tree, information


def documents(n_rows=120, n_topics=4, n_features=60, length=25, seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_features, 0.1), size=n_topics)
    y = rng.integers(n_topics, size=n_rows)
    return np.array([rng.multinomial(length, topics[k]) for k in y], dtype=float), y


def definition(X, labels, weight=None):
    """I(T; W) from the table of joint probabilities."""
    weight = np.ones(len(X)) if weight is None else weight
    p = X / X.sum(axis=1, keepdims=True) * (weight / weight.sum())[:, None]
    joint = np.array([p[labels == k].sum(axis=0) for k in np.unique(labels)])
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    return np.sum(joint[joint > 0] * np.log(joint[joint > 0] / outer[joint > 0]))


def test_information_of_a_table():
    table = np.random.default_rng(0).integers(0, 9, size=(4, 5))
    rows, columns = np.repeat(np.indices((4, 5)).reshape(2, -1), table.ravel(), axis=1)
    assert information(table.astype(float)) == pytest.approx(mutual_info_score(rows, columns), rel=1e-12)


def test_best_of_all_clusterings():
    """Nine rows, two clusters: all 255 clusterings."""
    X, _ = documents(9, 3, 12, 8)
    best = max(definition(X, np.array((0, *rest))) for rest in product((0, 1), repeat=8) if any(rest))
    model = InformationBottleneck(2, n_init=20, tol=0.0, random_state=0).fit(X)
    assert model.mutual_information_ == pytest.approx(best, rel=1e-12)
    assert definition(X, model.labels_) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("row_weight", ["uniform", "length"])
def test_objective_never_falls_and_is_that_of_the_definition(row_weight):
    X, _ = documents()
    rng = np.random.default_rng(1)
    sample_weight = rng.random(120) + 0.1
    model = InformationBottleneck(5, row_weight=row_weight, tol=0.0, n_init=1, random_state=0)
    model.fit(X, sample_weight=sample_weight)
    objective = model.trace_["objective"]
    assert len(objective) > 2
    assert np.all(np.diff(objective) >= -1e-12)
    weight = sample_weight * (X.sum(axis=1) if row_weight == "length" else 1.0)
    assert definition(X, model.labels_, weight) == pytest.approx(objective[-1], rel=1e-9)
    assert model.mutual_information_ == pytest.approx(objective[-1], rel=1e-9)
    assert 0 < model.information_share_ < 1


def test_no_single_move_improves_the_end():
    X, _ = documents(40, 3, 20)
    model = InformationBottleneck(3, tol=0.0, random_state=0).fit(X)
    for i in range(40):
        for k in range(3):
            moved = model.labels_.copy()
            moved[i] = k
            assert definition(X, moved) <= model.mutual_information_ + 1e-12


def test_finds_topics():
    X, y = documents(300, 4, 80, 30)
    for method in ("sequential", "agglomerative"):
        model = InformationBottleneck(4, method=method, random_state=0).fit(X)
        assert normalized_mutual_info_score(y, model.labels_) > 0.9
        new, y_new = X[:50] + 1, y[:50]
        assert normalized_mutual_info_score(y_new, model.predict(new)) > 0.8
        assert model.score(X) == pytest.approx(model.mutual_information_, rel=0.02)


def test_sparse_counts_with_any_index_type():
    X, _ = documents()
    known = InformationBottleneck(4, random_state=0).fit(X)
    rows = sp.csr_matrix(X)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    for Z in (sp.csr_array(X), sp.csc_array(X), sp.coo_array(X), rows, X.astype(np.float32), X.astype(int)):
        np.testing.assert_array_equal(InformationBottleneck(4, random_state=0).fit(Z).labels_, known.labels_)


def test_scale_of_counts_does_not_matter():
    X, _ = documents()
    rng = np.random.default_rng(0)
    known = InformationBottleneck(4, random_state=0).fit(X)
    scaled = InformationBottleneck(4, random_state=0).fit(X * np.exp(rng.normal(size=(120, 1)) * 20))
    np.testing.assert_array_equal(scaled.labels_, known.labels_)
    assert scaled.mutual_information_ == pytest.approx(known.mutual_information_, rel=1e-9)


def test_tree_of_merges():
    X, _ = documents(50, 3, 20)
    model = InformationBottleneck(3, method="agglomerative").fit(X)
    assert model.children_.shape == (49, 2)
    np.testing.assert_array_equal(np.sort(model.children_.ravel()), np.arange(98))
    # All merges together lose the information of the rows.
    assert model.merge_losses_.sum() == pytest.approx(definition(X, np.arange(50)), rel=1e-9)
    for n_clusters in (1, 2, 7, 50):
        labels = cut_tree(model.children_, n_clusters)
        assert len(np.unique(labels)) == n_clusters
        lost = model.merge_losses_[: 50 - n_clusters].sum()
        assert definition(X, labels) == pytest.approx(model.merge_losses_.sum() - lost, rel=1e-9, abs=1e-12)
    np.testing.assert_array_equal(cut_tree(model.children_, 3), model.labels_)


def test_empty_rows_and_rows_without_weight():
    X, _ = documents(40, 3, 20)
    X[[3, 17]] = 0.0
    for method in ("sequential", "agglomerative"):
        model = InformationBottleneck(3, method=method, random_state=0).fit(X)
        assert model.n_empty_ == 2
        np.testing.assert_array_equal(np.flatnonzero(model.labels_ < 0), [3, 17])
        np.testing.assert_array_equal(np.flatnonzero(model.predict(X) < 0), [3, 17])
    weight = np.ones(40)
    weight[:5] = 0.0
    model = InformationBottleneck(3, random_state=0).fit(X, sample_weight=weight)
    known = InformationBottleneck(3, random_state=0).fit(X[5:])
    np.testing.assert_array_equal(model.labels_[5:], known.labels_)
    np.testing.assert_array_equal(model.labels_[:5], known.predict(X[:5]))
    assert model.n_empty_ == 2


def test_top_features():
    X = np.array([[9.0, 1, 0], [8, 2, 0], [0, 1, 9], [0, 2, 7]])
    model = InformationBottleneck(2, random_state=0).fit(X)
    top = model.top_features(["cat", "and", "tree"], 2)
    assert [features[0][0] for features in np.array(top, dtype=object)[model.labels_[[0, 2]]].tolist()] == [
        "cat", "tree"
    ]  # fmt: skip
    parts = [weight for features in model.top_features(n=3) for _, weight in features]
    assert all(weight > 0 for weight in parts)
    with pytest.raises(ValueError, match="feature_names has 1 names, but the model has 3 features"):
        model.top_features(["cat"])


def test_one_cluster_and_equal_rows():
    X, _ = documents(20, 2, 10)
    assert InformationBottleneck(1).fit(X).mutual_information_ == pytest.approx(0.0, abs=1e-12)
    equal = InformationBottleneck(3, random_state=0).fit(np.ones((10, 4)))
    assert equal.mutual_information_ == pytest.approx(0.0, abs=1e-12)
    assert len(np.unique(equal.labels_)) == 3


def test_bad_input():
    with pytest.raises(ValueError, match="2 rows with counts \\(n_samples=3\\) cannot fill n_clusters=3"):
        InformationBottleneck(3).fit([[1, 0], [0, 1], [0, 0]])
    with pytest.raises(ValueError, match="contains -1 in row 1"):
        InformationBottleneck(2).fit([[1, 0], [0, -1], [2, 0]])
    with pytest.raises(ValueError, match="contains NaN"):
        InformationBottleneck(2).fit([[1, np.nan], [0, 1], [2, 0]])
    with pytest.raises(ValueError, match="method"):
        InformationBottleneck(2, method="soft").fit([[1, 0], [0, 1]])
