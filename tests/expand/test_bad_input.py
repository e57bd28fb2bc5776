"""What users may give to the estimators of `arbora.expand`: an error that says what to do, or a sound answer."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from arbora import expand

# Random rows: new groups are often empty.
pytestmark = pytest.mark.filterwarnings("ignore:n_new=:UserWarning")

TRANSFORMERS = [name for name in expand.__all__ if name.endswith("Transform")]
CLUSTERERS = ["ExpandClusters", "BayesianPriorMixture"]
TWO_GROUPS = {  # what cannot learn from a single group
    "FisherTransform",
    "GaussianTransform",
    "PairwiseFisherTransform",
    "GammaTransform",
    "LargeMarginTransform",
    "MaxMarginTransform",
    "SeparabilityTransform",
    "SphericalTransform",
}
ARGUMENTS = {
    "ExpandClusters": {"n_new": 2, "n_init": 3},
    "BayesianPriorMixture": {"n_new": 2, "n_init": 3},
    "LargeMarginTransform": {"max_iter": 50},
    "MaxMarginTransform": {"max_iter": 5},
}


def make(name):
    return getattr(expand, name)(**ARGUMENTS.get(name, {}), random_state=0)


def rows(n=40, n_features=4, seed=0):
    """Non-negative rows, which every model takes."""
    return np.abs(np.random.default_rng(seed).normal(size=(n, n_features))) + 0.1


def answer(name, X, y):
    """Fit, and return what the model says about rows it has not seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(name).fit(X, y)
    others = X[:7] + 0.01
    return model.predict_proba(others) if name in CLUSTERERS else model.transform(others)


HALF = np.where(np.arange(40) % 2 == 0, np.arange(40) // 2 % 4, -1)
CASES = {
    "groups of one row": (rows(), np.where(np.arange(40) < 4, np.arange(40), -1)),
    "one group of one row": (rows(), np.where(np.arange(40) == 39, 7, HALF)),
    "all rows labelled": (rows(), np.arange(40) % 4),
    "constant features": (np.column_stack([rows(), np.full(40, 3.0), np.zeros(40)]), HALF),
    "only constant features": (np.full((40, 3), 2.0), HALF),
    "duplicated rows": (np.repeat(rows(5), 8, axis=0), HALF),
    "10,000 features and 50 rows": (rows(50, 10_000), np.where(np.arange(50) < 30, np.arange(50) % 4, -1)),
    "one feature": (rows(40, 1), HALF),
    "names with missing ones": (rows(), [None if k < 0 else "abcd"[k] for k in HALF]),
    "numbers with NaN": (rows(), np.where(HALF < 0, np.nan, HALF)),
    "tiny numbers": (1e-12 * rows(), HALF),
    "large numbers": (1e12 * rows(), HALF),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [*TRANSFORMERS, *CLUSTERERS])
def test_sound_answers(name, case):
    X, y = CASES[case]
    if name == "GammaTransform" and X.shape[1] > 2000:
        with pytest.raises(ValueError, match="select features"):
            make(name).fit(X, y)
        return
    result = answer(name, X, y)
    assert result.shape[0] == 7
    assert np.isfinite(result).all()
    if name in CLUSTERERS:
        np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("name", [*TRANSFORMERS, *CLUSTERERS])
def test_one_known_group(name):
    X, y = rows(), np.where(np.arange(40) < 20, 5, -1)
    if name in TWO_GROUPS:
        with pytest.raises(ValueError, match=r"at least \d labelled groups.*WithinClassTransform"):
            make(name).fit(X, y)
        return
    if name == "ExpandClusters":
        with pytest.warns(UserWarning, match="Label more groups"):
            model = make(name).fit(X, y)
        assert set(model.labels_[y == 5]) == {5}
    assert np.isfinite(answer(name, X, y)).all()


WRONG = {
    "none labelled": (rows(), [-1] * 40, r"arbora\.discover"),
    "no labels": (rows(), None, "requires y to be passed"),
    "NaN": (np.where(np.eye(40, 4) > 0, np.nan, rows()), HALF, "NaN in row 0, column 0"),
    "infinity": (np.where(np.eye(40, 4) > 0, np.inf, rows()), HALF, "infinity in row 0"),
    "labels of mixed types": (rows(), [3, "three", *[None] * 38], "mixes labels of several types"),
    "measurements as labels": (rows(), np.linspace(0, 1, 40), "bin measurements"),
    "too few labels": (rows(), [0, 1, 2], "one label for each of the 40 rows"),
    "no rows": (np.zeros((0, 3)), [], "minimum of 1 is required"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("name", [*TRANSFORMERS, *CLUSTERERS])
def test_errors_say_what_to_do(name, case):
    X, y, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        make(name).fit(X, y)


@pytest.mark.parametrize("name", [*TRANSFORMERS, *CLUSTERERS])
def test_a_failed_fit_leaves_the_earlier_one(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(name).fit(rows(), HALF)
    ask = model.predict_proba if name in CLUSTERERS else model.transform
    before = ask(rows())
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((40, 4), np.nan), HALF)
    np.testing.assert_array_equal(ask(rows()), before)


def test_labelled_rows_keep_their_groups_whatever_the_rows():
    for X, y in CASES.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = expand.ExpandClusters("within", "kmeans", scale="common", n_new=2, random_state=0).fit(
                X, y
            )
        ids = np.array([not (label is None or label != label or label == -1) for label in list(y)])
        assert [str(label) for label in model.labels_[ids]] == [
            str(label if isinstance(label, str) else int(label)) for label in np.asarray(y, object)[ids]
        ]


def test_partial_fit_takes_odd_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make("ExpandClusters").fit(rows(), HALF)
    for X, y in ((rows(1), None), (rows(3), [0, 0, 1]), (np.repeat(rows(1), 9, axis=0), [-1] * 9)):
        assert np.isfinite(model.partial_fit(X, y).predict_proba(rows())).all()
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((2, 4), np.nan))
    assert np.isfinite(model.predict_proba(rows())).all()


@pytest.mark.parametrize(
    "metric", ["gaussian", "separability", "fisher", "spherical", expand.LargeMarginTransform()]
)
def test_one_group_falls_back_to_whitening(metric):
    y = np.where(np.arange(40) < 10, 0, -1)
    model = expand.ExpandClusters(metric, "kmeans", scale="common", n_new=2, n_init=3, random_state=0)
    with pytest.warns(UserWarning, match="at least 2 labelled groups"):
        model.fit(rows(), y)
    assert model.choice_["metric"] == "within"


def test_warning_names_what_is_used():
    y = np.where(np.arange(40) < 10, 0, -1)
    with pytest.warns(UserWarning, match="1 labelled group, .*metric='identity' and clusterer='kmeans'"):
        expand.ExpandClusters("identity", n_new=1, n_init=3, random_state=0).fit(rows(), y)


def test_dropped_groups_are_reported():
    model = expand.ExpandClusters("within", "kmeans", scale="common", n_new=3, n_init=3, random_state=0)
    with pytest.warns(UserWarning, match="n_new=3, but 0 new groups have rows"):
        model.fit(rows(), np.arange(40) % 4)
    assert model.n_new_range_ == (0, 0)


def test_range_holds_the_number_after_groups_are_dropped():
    """Scattered rows look new at first; then they are filed into known groups by their neighbours."""
    rng, X = np.random.default_rng(0), 50 + rows(120, 3)
    y = np.where(rng.random(120) < 0.5, np.repeat(np.arange(3), 40), -1)
    X[:, 0] += 9 * np.repeat(np.arange(3), 40)
    X[y < 0] += rng.normal(size=(int(np.sum(y < 0)), 3)) * 3
    model = expand.ExpandClusters("within", "kmeans", scale="common", n_init=3, random_state=0).fit(X, y)
    low, high = model.n_new_range_
    assert model.n_new_ < model.n_new_estimate_.low
    assert low <= model.n_new_ <= high


def test_wrong_lengths_of_further_arguments():
    model = expand.ExpandClusters("within", "kmeans", scale="common", n_new=2, n_init=3, random_state=0)
    model.fit(rows(), HALF)
    with pytest.raises(ValueError, match="feature_names has 2 names, and X has 4 features"):
        model.explain(rows(), HALF, feature_names=["a", "b"])
    with pytest.raises(ValueError, match="one value for each of the 40 rows"):
        model.partial_fit(rows(), HALF, seen=[True, False])


@pytest.mark.parametrize("blank", ["-1", "nan", "None", ""])
def test_strings_of_missing_labels_are_reported(blank):
    y = np.where(HALF < 0, blank, np.array(list("abcd"))[HALF])
    with pytest.warns(UserWarning, match=f"y holds the string '{blank}' in 20 rows"):
        expand.WithinClassTransform().fit(rows(), y)


def test_labels_in_a_sparse_matrix_are_refused():
    X, y = np.random.default_rng(0).random((12, 3)), sp.csr_array(np.eye(3)[np.arange(12) % 3])
    with pytest.raises(ValueError, match="sparse matrix: give an array with one label per row"):
        expand.DiscriminativeClustering(2, random_state=0).fit(X, y)
