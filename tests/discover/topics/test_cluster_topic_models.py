"""`ClusterTopicModel` and `MaxMarginClusterTopicModel`: landmarks, predictions, bad input, resume, pages."""

import numpy as np
import pytest
import scipy.sparse as sp

import arbora
from arbora.discover import ClusterTopicModel, MaxMarginClusterTopicModel
from arbora.discover.topics import sampler
from arbora.discover.topics.model import read_landmarks
from arbora.discover.topics.sampler import starting_labels, starting_topics

QUICK = {"sampling": {"n_samples": 8, "n_warmup": 8}, "n_fold_in": 12, "random_state": 0}
both = pytest.mark.parametrize("cls", [ClusterTopicModel, MaxMarginClusterTopicModel])


@pytest.fixture(scope="module")
def corpus():
    """Counts of three clusters over six topics of four words, and the cluster of each document."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(6), np.full(4, 0.22)) + 0.005
    clusters = np.kron(np.eye(3), [0.45, 0.45]) + 0.0167
    y = np.arange(150) % 3
    theta = np.array([rng.dirichlet(8 * clusters[k] / clusters[k].sum()) for k in y])
    p = theta @ topics
    X = np.array([rng.multinomial(30, row / row.sum()) for row in p])
    return X, y


@both
def test_finds_clusters_and_topics_from_few_landmarks(cls, corpus):
    X, y = corpus
    landmarks = np.where(np.arange(150) < 9, y, -1)
    model = cls(6, **QUICK).fit(X[:120], landmarks[:120])
    assert np.mean(model.labels_ == y[:120]) > 0.9
    assert np.mean(model.predict(X[120:]) == y[120:]) > 0.9
    assert model.components_.shape == (6, 24)
    for share in (model.components_, model.cluster_topics_, model.label_proba_, model.transform(X[120:])):
        np.testing.assert_allclose(share.sum(axis=1), 1.0)
    words = model.cluster_topics_ @ model.components_
    for k in range(3):  # the words of a cluster are those of its two topics
        assert words[k, 8 * k : 8 * k + 8].sum() > 0.8
    assert model.agreement_ > 0.85
    assert model.rhat_["cluster_sizes"].shape == (3,)
    assert len(model.trace_) == 16
    top = model.top_features([f"w{j}" for j in range(24)], n=4)
    assert len(top) == 6
    assert all(len(words) == 4 and words[0][1] >= words[-1][1] for words in top)


@both
def test_names_of_clusters(cls, corpus):
    X, y = corpus
    names = np.array(["a", "b", "c"], object)[y]
    names[9:] = None
    model = cls(6, **QUICK).fit(sp.csr_matrix(X), names)
    assert model.cluster_labels_.tolist() == ["a", "b", "c"]
    assert set(model.predict(X)) <= {"a", "b", "c"}
    assert (model.labels_[:9] == names[:9]).all()
    proba = model.predict_proba(X)
    assert (model.cluster_labels_[proba.argmax(axis=1)] == model.predict(X)).all()


def test_clusters_without_landmarks_are_found(corpus):
    X, y = corpus
    partial = np.where((np.arange(150) < 9) & (y < 2), y, -1)
    model = ClusterTopicModel(6, 3, **QUICK).fit(X, partial)
    assert model.cluster_labels_.tolist() == [0, 1, 2]
    assert np.mean(model.labels_ == y) > 0.85
    assert np.isnan(model.agreement_)
    assert len(model.chain_parameters_) == 1
    unsupervised = ClusterTopicModel(6, 3, **QUICK).fit(X)
    table = np.zeros((3, 3))
    np.add.at(table, (unsupervised.labels_, y), 1)
    assert table.max(axis=1).sum() > 0.85 * 150
    first = ClusterTopicModel(6, 3, **QUICK).fit(X, np.where(np.arange(150) == 0, 7, -1))
    assert first.cluster_labels_.tolist() == [7, 8, 9]


def test_sampled_concentrations(corpus):
    X, y = corpus
    landmarks = np.where(np.arange(150) < 30, y, -1)
    model = MaxMarginClusterTopicModel(6, prior={"concentrations": "sample"}, **QUICK).fit(X, landmarks)
    assert set(model.hyperparameters_) == {"alpha", "alpha1", "alpha0", "beta", "omega"}
    assert model.hyperparameters_["beta"] != 0.01
    assert model.rhat_["concentrations"].shape == (5,)
    assert model.projections_.shape == (3, 6)
    fixed = MaxMarginClusterTopicModel(6, **QUICK).fit(X, landmarks)
    assert list(fixed.hyperparameters_.values()) == pytest.approx([10, 10, 10, 0.01, 0.1])


def test_predictions_do_not_depend_on_other_rows(corpus):
    X, y = corpus
    model = MaxMarginClusterTopicModel(6, **QUICK).fit(X, np.where(np.arange(150) < 9, y, -1))
    whole = model.predict_proba(X)
    np.testing.assert_array_equal(whole[[7, 3]], model.predict_proba(X[[7, 3]]))
    np.testing.assert_allclose(model.predict_node_proba(X)[:, 1:4], whole)
    nodes = model.predict_node_proba(X)
    leaves = model.leaf_ids_
    np.testing.assert_allclose(nodes[:, leaves].sum(axis=1), 1.0)
    assert model.means_.shape == (model.hierarchy_.n_nodes, 24)


def test_empty_documents_have_the_sizes_of_the_clusters(corpus):
    X, y = corpus
    X = X.copy()
    X[[5, 100]] = 0
    model = MaxMarginClusterTopicModel(6, **QUICK).fit(X, np.where(np.arange(150) < 9, y, -1))
    empty = model.predict_proba(np.zeros((2, 24)))
    expected = np.mean([chain.shares for chain in model.chain_parameters_], axis=0)
    np.testing.assert_allclose(empty, np.tile(expected, (2, 1)))
    assert model.labels_[5] == y[5]  # a landmark
    assert model.labels_[100] == -1
    assert model.n_zero_rows_ == 2
    assert (model.predict(X) == -1).nonzero()[0].tolist() == [5, 100]
    shares = model.transform(np.zeros((1, 24)))
    np.testing.assert_allclose(shares.sum(), 1.0)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[1, -2], [3, 4]], [0, 1], "Negative values"),
        ([[1, 0.5], [3, 4]], [0, 1], "row 0, column 1.*CountVectorizer"),
        ([[1, np.nan], [3, 4]], [0, 1], "NaN in row 0"),
        ([[0, 0], [0, 0]], [0, 1], "no words"),
        ([[1, 2], [3, 4]], [5, -1], "all landmarks in y have the label 5"),
        ([[1, 2], [3, 4]], [0, 1, 2], "one label for each of the 2 rows"),
        ([[1, 2], [3, 4]], np.array([0.5, 1.5]), "groups are integers or strings"),
    ],
)
def test_bad_input_says_what_to_do(X, y, message):
    with pytest.raises(ValueError, match=message):
        ClusterTopicModel(2, **QUICK).fit(X, y)


@both
def test_small_problems_are_fitted(cls):
    """More topics than words, one word, fewer documents than clusters, equal documents."""
    model = cls(9, **QUICK).fit([[3, 1], [0, 2], [1, 1]], [0, 1, -1])
    assert np.isfinite(model.components_).all()
    assert cls(3, 5, **QUICK).fit([[4, 1], [1, 4]]).predict([[4, 1]]).shape == (1,)
    equal = cls(2, **QUICK).fit(np.tile([2, 1, 0], (6, 1)), [0, 1, -1, -1, -1, -1])
    assert np.isfinite(equal.label_proba_).all()
    assert cls(2, 1, **QUICK).fit([[4, 1], [1, 4]]).labels_.tolist() == [0, 0]
    one_word = cls(2, **QUICK).fit([[4], [1]], ["a", "b"])
    assert one_word.labels_.tolist() == ["a", "b"]


def test_fractions_can_be_rounded():
    X = np.array([[3.2, 0.9], [0.4, 2.0], [1.6, 1.1]])
    rounded = ClusterTopicModel(2, fractions="round", **QUICK).fit(X, [0, 1, -1])
    whole = ClusterTopicModel(2, **QUICK).fit(np.rint(X), [0, 1, -1])
    np.testing.assert_array_equal(rounded.components_, whole.components_)
    np.testing.assert_array_equal(rounded.predict_proba(X), whole.predict_proba(np.rint(X)))


@both
def test_an_interrupted_fit_continues_with_the_same_draws(cls, corpus, tmp_path, monkeypatch):
    X, y = corpus
    landmarks = np.where(np.arange(150) < 9, y, -1)
    expected = cls(6, **QUICK).fit(X, landmarks)
    sweep, left = sampler.ClusterTopics.sweep, [35]  # 10 sweeps of a start and 16 of a chain

    def interrupted(self, *args, **options):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return sweep(self, *args, **options)

    model = cls(6, **QUICK)
    monkeypatch.setattr(sampler.ClusterTopics, "sweep", interrupted)
    with pytest.raises(KeyboardInterrupt), arbora.running(checkpoint=tmp_path / "chains"):
        model.fit(X, landmarks)
    assert not hasattr(model, "components_")
    monkeypatch.setattr(sampler.ClusterTopics, "sweep", sweep)
    with arbora.running(checkpoint=tmp_path / "chains"):
        resumed = model.fit(X, landmarks)
    np.testing.assert_array_equal(resumed.components_, expected.components_)
    np.testing.assert_array_equal(resumed.label_proba_, expected.label_proba_)
    np.testing.assert_array_equal(resumed.trace_["objective"], expected.trace_["objective"])
    assert not (tmp_path / "chains").exists()


def test_starts_come_from_the_landmarks(corpus):
    X, y = corpus
    rows, landmarks = sp.csr_array(X.astype(float)), np.where(np.arange(150) < 9, y, -1)
    labels = starting_labels(rows, landmarks, 3, 0)
    assert np.mean(labels == y) > 0.85
    assert (labels[:9] == y[:9]).all()
    rng = np.random.default_rng(0)
    for n_topics in (1, 2, 3, 10):
        topics = starting_topics(labels, np.full(150, 4), n_topics, 3, rng)
        assert topics.shape == (600,)
        assert 0 <= topics.min() <= topics.max() < n_topics


def test_page_shows_clusters_and_their_topics(corpus):
    pytest.importorskip("plotly")
    X, y = corpus
    names = np.array(["sea", "land", "sky"], object)[y]
    landmarks = np.where(np.arange(150) < 9, names, None)
    model = MaxMarginClusterTopicModel(6, **QUICK).fit(X, landmarks)
    from arbora.app.contents.fitted_model import model_content

    words = [f"word{j}" for j in range(24)]
    content = model_content(model, X, names, documents=[f"text {i}" for i in range(150)], words=words)
    assert content.kind == "topic tree"
    nodes = {node["name"]: node for node in content.nodes}
    assert nodes["root"]["size"] == 150
    assert {"sea", "land", "sky"} <= set(nodes)
    assert abs(nodes["sea"]["size"] - 50) < 10
    assert nodes["sea"]["words"][0][0].startswith("word")
    page = model.explore(X, documents=[f"text {i}" for i in range(150)], words=words)
    assert "word1" in page.html
    assert "word1" in model.explore(words=words).html  # without documents


@pytest.mark.parametrize("y", [["sea", "land", None], np.array(["sea", "land", "sea"])])
def test_empty_documents_have_the_label_minus_one_among_strings(y):
    model = ClusterTopicModel(2, **QUICK).fit([[4, 0], [0, 5], [0, 0]], y)
    assert model.predict([[0, 0], [0, 9]]).tolist() == [-1, "land"]
    assert model.labels_.tolist() == ["sea", "land", -1 if y[2] is None else "sea"]


def test_names_of_clusters_without_landmarks_are_not_cut():
    names = read_landmarks(np.array(["a", "b"]), 2, 4).names
    assert names.tolist() == ["a", "b", "cluster 2", "cluster 3"]
