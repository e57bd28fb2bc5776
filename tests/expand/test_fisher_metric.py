"""The Fisher metric: its definition by finite differences, lengths of lines, classifiers, hostile input."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.tree import DecisionTreeClassifier

from arbora.expand import FisherMetric
from arbora.expand.fisher_metric import all_chords, has_linear_scores, pair_chords

CLASSIFIERS = [
    pytest.param(None, True, id="default"),
    pytest.param(make_pipeline(MaxAbsScaler(), LogisticRegression()), True, id="logistic"),
    pytest.param(LinearDiscriminantAnalysis(), True, id="lda"),
    pytest.param(GaussianNB(var_smoothing=0.5), False, id="bayes"),
]
EVERY = pytest.mark.parametrize(("classifier", "linear"), CLASSIFIERS)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=150)
    return rng.normal(size=(150, 4)) + rng.normal(size=(3, 4))[y], np.array(["a", "b", "c"])[y]


def log_gradients(model, x, step=1e-5):
    """Gradients of log p(c | x) by central differences, n_classes x n_features."""
    log_proba = lambda z: np.log(model.estimator_.predict_proba(z[None])[0])  # noqa: E731
    steps = step * np.eye(len(x))
    return np.array([(log_proba(x + e) - log_proba(x - e)) / (2 * step) for e in steps]).T


@EVERY
def test_information_is_that_of_the_definition(data, classifier, linear):
    """(2.9): the expectation of the outer products of the gradients of log p(c | x)."""
    X, y = data
    model = FisherMetric(classifier).fit(X, y)
    assert has_linear_scores(model.estimator_) == linear
    J = model.fisher_information(X[:4])
    for x, result in zip(X, J, strict=False):
        G = log_gradients(model, x)
        known = G.T @ (model.estimator_.predict_proba(x[None])[0][:, None] * G)
        np.testing.assert_allclose(result, known, rtol=1e-5, atol=1e-6 * np.abs(known).max())


@EVERY
def test_embedding_has_the_information_as_its_metric(data, classifier, linear):
    X, y = data
    model = FisherMetric(classifier).fit(X, y)
    direction = np.random.default_rng(1).normal(size=4)
    moved = model.transform(X[:5] + 1e-4 * direction) - model.transform(X[:5])
    known = np.einsum("p,npq,q->n", direction, model.fisher_information(X[:5]), direction)
    np.testing.assert_allclose(np.sum(moved**2, axis=1) / 1e-8, known, rtol=1e-3)


@EVERY
@pytest.mark.parametrize("rule", ["chord", "tangent"])
def test_lengths_of_lines_are_integrals_of_the_metric(data, classifier, linear, rule):
    X, y = data
    model = FisherMetric(classifier).fit(X, y)
    result = model.pairwise_distances(X[:3], X[3:6], n_points=200, rule=rule)
    shares = (np.arange(400) + 0.5) / 400
    for i in range(3):
        for j in range(3):
            d = X[3 + j] - X[i]
            J = model.fisher_information(X[i] + shares[:, None] * d)
            length = np.mean(np.sqrt(np.einsum("p,npq,q->n", d, J, d)))
            assert result[i, j] == pytest.approx(length, rel=1e-3)


@EVERY
def test_distances_are_symmetric_and_at_least_those_of_the_embedding(data, classifier, linear):
    X, y = data
    model = FisherMetric(classifier).fit(X, y)
    D = model.pairwise_distances(X[:20])
    np.testing.assert_allclose(D, D.T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.diag(D), 0.0, atol=1e-9)
    Z = model.transform(X[:20])
    embedded = np.linalg.norm(Z[:, None] - Z, axis=2)
    assert np.all(embedded - 1e-7 <= D)
    np.testing.assert_allclose(model.pairwise_distances(X[:20], n_points=1), embedded, rtol=1e-5, atol=1e-9)


def test_products_of_matrices_give_the_chords_of_pairs():
    """Also for equal scores, where digits cancel, and for scores whose exponentials underflow."""
    rng = np.random.default_rng(0)
    start, end = rng.normal(size=(6, 3)), rng.normal(size=(5, 3))
    end[0], start[1], end[1] = start[0], [4000.0, 0.0, 0.0], [0.0, 4000.0, 0.0]
    result = all_chords(start, end, 4)
    known = [[pair_chords(start[i], end[j], 4) for j in range(5)] for i in range(6)]
    np.testing.assert_allclose(result, known, rtol=1e-5, atol=1e-12)


def test_lines_see_the_class_between_two_regions_of_one_class():
    """p(c | x) is the same at both ends; on the way it changes twice."""
    x = np.linspace(-1, 1, 201)[:, None]
    model = FisherMetric(GaussianNB()).fit(x, np.abs(x[:, 0]) < 0.5)
    ends = [[-1.0], [1.0]]
    assert np.linalg.norm(np.diff(model.transform(ends), axis=0)) < 0.1
    assert model.pairwise_distances(ends, n_points=4)[0, 1] > 1


def test_chords_measure_a_classifier_without_gradients():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    model = FisherMetric(DecisionTreeClassifier(max_depth=1)).fit(X, X[:, 0] > 0)
    ends = [[-1.0, 0.0], [1.0, 0.0]]
    assert model.pairwise_distances(ends, rule="tangent")[0, 1] == 0
    assert model.pairwise_distances(ends)[0, 1] == pytest.approx(np.sqrt(8))


def test_blocks_do_not_change_distances(data, monkeypatch):
    X, y = data
    for classifier in (None, KNeighborsClassifier(15)):
        model = FisherMetric(classifier).fit(X, y)
        whole = model.pairwise_distances(X[:15], X[:11])
        monkeypatch.setattr("arbora.core.chunks.CHUNK_ENTRIES", 30)
        np.testing.assert_allclose(model.pairwise_distances(X[:15], X[:11]), whole, rtol=1e-9, atol=1e-9)
        monkeypatch.undo()


def test_irrelevant_directions_are_ignored():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = rng.random(400) < 1 / (1 + np.exp(-3 * X[:, 0]))
    model = FisherMetric().fit(X, y)
    along, across = model.pairwise_distances([[0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])[0]
    assert along > 10 * across


def test_sparse_rows_and_rows_without_labels(data):
    X, y = data
    labels = np.where(np.arange(150) % 3 > 0, y.astype(object), None)
    model = FisherMetric(LogisticRegression()).fit(sp.csr_array(X), labels)
    known = FisherMetric(LogisticRegression()).fit(X[labels != None], y[labels != None])  # noqa: E711
    np.testing.assert_allclose(model.transform(sp.csr_array(X)), known.transform(X), rtol=1e-3)
    assert model.get_feature_names_out().tolist() == [f"fishermetric{k}" for k in range(3)]
    np.testing.assert_allclose(
        model.fisher_information(sp.csr_array(X[:2])), model.fisher_information(X[:2]), rtol=1e-9
    )


def test_default_accepts_sparse_rows_after_dense_ones_and_any_origin(data):
    X, y = data
    model = FisherMetric().fit(X, y)
    np.testing.assert_allclose(model.transform(sp.csr_array(X)), model.transform(X), rtol=1e-9)
    moved = FisherMetric().fit(X + 100.0, y)
    np.testing.assert_allclose(moved.transform(X + 100.0), model.transform(X), rtol=1e-3, atol=1e-3)


def test_information_of_too_many_features_is_refused(data, monkeypatch):
    X, y = data
    model = FisherMetric().fit(X, y)
    monkeypatch.setattr("arbora.core.chunks.available_memory", lambda: 100)
    with pytest.raises(MemoryError, match="information matrices of 150 rows and 4 features"):
        model.fisher_information(X)


def test_bad_input(data):
    X, y = data
    with pytest.raises(ValueError, match="y has 1 class, 'a'"):
        FisherMetric().fit(X, ["a"] * 150)
    with pytest.raises(ValueError, match="target y is None"):
        FisherMetric().fit(X, None)
    with pytest.raises(ValueError, match="predict_proba"):
        FisherMetric("logistic").fit(X, y)
    model = FisherMetric().fit(X, y)
    with pytest.raises(ValueError, match="n_points must be an integer, 1 or more, got 0"):
        model.pairwise_distances(X, n_points=0)
    with pytest.raises(ValueError, match="rule must be one of chord, tangent"):
        model.pairwise_distances(X, rule="arc")
    with pytest.raises(ValueError, match="features"):
        model.pairwise_distances(X, X[:, :2])
