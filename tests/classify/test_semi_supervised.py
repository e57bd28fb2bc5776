"""`SemiSupervisedSVC`: labels of the pool, class shares, bad input."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from arbora.classify import OneVsRestSVC, SemiSupervisedSVC
from arbora.classify.semi_supervised import match_shares, shares_to_counts, unlabelled_rows

EXACT = {"calibration": None, "tol": 9e-7, "max_iter": 20_000, "random_state": 0}


@pytest.fixture(scope="module")
def clouds():
    """Three clouds whose labelled rows are few and lie at their edges."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    centres = np.array([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 3.0]])
    X = np.hstack([centres[y] + rng.standard_normal((300, 3)), rng.standard_normal((300, 20))])
    labels = np.where(np.arange(300) < 12, y, -1)
    return X, y, labels


def test_the_pool_helps(clouds):
    X, y, labels = clouds
    pool = labels < 0
    flat = OneVsRestSVC(1.0, loss="hinge", random_state=0).fit(X[~pool], y[~pool])
    ours = SemiSupervisedSVC(random_state=0).fit(X, labels)
    assert ours.score(X[pool], y[pool]) > flat.score(X[pool], y[pool])
    assert (ours.transduction_[~pool] == y[~pool]).all()
    assert len(ours.n_changed_) == 3
    assert ours.n_changed_[0] == pool.sum()
    np.testing.assert_allclose(ours.pool_shares_.sum(), 1.0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rounds_are_weighted_trainings(clouds, n_classes):
    """Every round is a flat model of all rows, with the labels of the round before and weights of the pool."""
    X, y, labels = clouds
    keep = y < n_classes
    X, labels = X[keep], labels[keep]
    reference = labels >= 0
    model = OneVsRestSVC(1.0, loss="hinge", **EXACT).fit(X[reference], labels[reference])
    for weight in (0.01, 0.1, 0.5):
        guess = np.where(reference, labels, model.predict(X))
        model = OneVsRestSVC(1.0, loss="hinge", **EXACT).fit(X, guess, np.where(reference, 1.0, weight))
    ours = SemiSupervisedSVC(**EXACT).fit(X, labels)
    np.testing.assert_allclose(ours.coef_, model.coef_, atol=2e-3 * np.abs(model.coef_).max())
    assert (ours.transduction_ == guess).all()


def test_without_a_pool_it_is_the_flat_model(clouds):
    X, y, _ = clouds
    ours = SemiSupervisedSVC(C=0.3, random_state=0).fit(X, y)
    flat = OneVsRestSVC(C=0.3, loss="hinge", random_state=0).fit(X, y)
    np.testing.assert_array_equal(ours.coef_, flat.coef_)
    np.testing.assert_array_equal(ours.predict_proba(X), flat.predict_proba(X))
    assert np.isnan(ours.pool_shares_).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_class_shares_are_kept(clouds, n_classes):
    X, y, labels = clouds
    keep = y < n_classes
    X, labels = X[keep], labels[keep]
    shares = np.array([0.7, 0.2, 0.1])[:n_classes]
    model = SemiSupervisedSVC(class_shares=shares, random_state=0).fit(X, labels)
    n_pool = int((labels < 0).sum())
    np.testing.assert_array_equal(
        np.bincount(model.transduction_[labels < 0], minlength=n_classes), shares_to_counts(shares, n_pool)
    )


@pytest.mark.parametrize("seed", range(4))
def test_shares_are_matched_with_the_largest_sum_of_scores(seed):
    rng = np.random.default_rng(seed)
    scores, shares = rng.standard_normal((40, 4)), rng.dirichlet(np.ones(4))
    counts = shares_to_counts(shares, 40)
    labels = match_shares(scores, shares)
    np.testing.assert_array_equal(np.bincount(labels, minlength=4), counts)
    rows, places = linear_sum_assignment(-np.repeat(scores, counts, axis=1))
    best = np.repeat(scores, counts, axis=1)[rows, places].sum()
    assert scores[np.arange(40), labels].sum() >= best - 0.02 * abs(best)


def test_equal_rows_share_out():
    labels = match_shares(np.zeros((7, 3)), np.array([1.0, 1.0, 5.0]))
    np.testing.assert_array_equal(np.bincount(labels, minlength=3), [1, 1, 5])


def test_forms_of_labels(clouds):
    X, y, labels = clouds
    expected = SemiSupervisedSVC(random_state=0).fit(X, labels)
    names = np.array(["a", "b", "c"], object)[y]
    names[labels < 0] = None
    named = SemiSupervisedSVC(random_state=0).fit(sp.csr_matrix(X), names.tolist())
    assert named.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(named.transduction_ == "b", expected.transduction_ == 1)
    floats = np.where(labels < 0, np.nan, labels)
    model = SemiSupervisedSVC(random_state=0).fit(X, floats)
    np.testing.assert_array_equal(model.transduction_, expected.transduction_)
    assert unlabelled_rows(np.array([True, False])).tolist() == [False, False]
    proba = expected.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-6)
    assert (expected.classes_[proba.argmax(axis=1)] == expected.predict(X)).all()


def test_names_of_columns_are_kept(clouds):
    pandas = pytest.importorskip("pandas")
    X, _, labels = clouds
    frame = pandas.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    model = SemiSupervisedSVC(random_state=0).fit(frame, labels)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_array_equal(
        model.predict(frame), SemiSupervisedSVC(random_state=0).fit(X, labels).predict(X)
    )


@pytest.mark.parametrize(
    ("change", "y", "message"),
    [
        ({}, [-1, -1, -1], "no row of y carries a label"),
        ({}, [1, -1, -1], "only one class"),
        ({}, [[1], [0, 1], [0]], "one class per row"),
        ({"class_shares": [1.0]}, [0, 1, -1], "a share for each of the 2 classes"),
        ({"class_shares": [-1.0, 2.0]}, [0, 1, -1], "none negative"),
        ({"pool_weights": ()}, [0, 1, -1], "one positive number"),
        ({"pool_weights": (0.0, 0.5)}, [0, 1, -1], "one positive number"),
    ],
)
def test_bad_input_says_what_to_do(change, y, message):
    model = SemiSupervisedSVC(**change)
    with pytest.raises(ValueError, match=message):
        model.fit([[0.0], [1.0], [2.0]], y)
    assert not hasattr(clone(model), "coef_")
    assert not hasattr(model, "coef_")


def test_weights_of_pool_rows(clouds):
    """A pool row of weight 0 does not change the weights."""
    X, _, labels = clouds
    weight = np.where(np.arange(300) < 200, 1.0, 0.0)
    ours = SemiSupervisedSVC(**EXACT).fit(X, labels, weight)
    fewer = SemiSupervisedSVC(**EXACT).fit(X[:200], labels[:200])
    np.testing.assert_allclose(ours.coef_, fewer.coef_, atol=2e-3 * np.abs(fewer.coef_).max())
