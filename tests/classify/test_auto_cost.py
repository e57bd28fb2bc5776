"""`C="auto"`: in the units of the rows, moved by held-out labels; the learned default threshold."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify import (
    MultinomialLogistic,
    OneVsRestLogistic,
    OneVsRestSVC,
    RecursiveLogisticRegression,
    RecursiveSVC,
    TopDownSVC,
)
from arbora.classify import cost_choice as auto_cost
from arbora.classify.cost_choice import ONE_LABEL, UNITS, mean_squared_norm, unit_cost
from arbora.classify.thresholds import GlobalCut, RCut, ZeroThreshold
from arbora.classify.training import check_training
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy

ALL = [
    OneVsRestSVC,
    OneVsRestLogistic,
    RecursiveSVC,
    RecursiveLogisticRegression,
    TopDownSVC,
    MultinomialLogistic,
]


def blobs(n_samples=300, n_features=10, spread=2.0, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_samples)
    centres = rng.normal(size=(n_classes, n_features))
    return centres[y] + spread * rng.normal(size=(n_samples, n_features)), y


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("sparse", [False, True])
def test_longer_rows_have_a_lower_cost_and_the_same_predictions(estimator, sparse):
    X, y = blobs()
    X = sp.csr_array(X) if sparse else X
    models = [
        estimator(fit_intercept=False, tol=1e-7, random_state=0).fit(factor * X, y) for factor in (1.0, 8.0)
    ]
    assert pytest.approx(models[0].C_ / 64) == models[1].C_
    assert models[0].predict(X).tolist() == models[1].predict(8.0 * X).tolist()


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_given_cost_is_kept(estimator):
    X, y = blobs(80)
    assert estimator(2, random_state=0).fit(X, y).C_ == 2.0


def test_few_rows_get_the_cost_of_the_rule():
    X, y = blobs(40)
    assert (
        pytest.approx(1 / mean_squared_norm(sp.csr_array(X), np.ones(len(X))))
        == OneVsRestSVC(random_state=0).fit(X, y).C_
    )
    zero = OneVsRestSVC(random_state=0).fit(np.zeros((6, 2)), [0, 1] * 3)
    assert UNITS["squared_hinge"] == zero.C_


def test_labels_too_rare_for_the_sample_get_the_cost_of_the_rule():
    X = np.random.default_rng(0).normal(size=(6000, 3))
    Y = np.zeros((6000, 2), int)
    Y[0, 0] = Y[1, 1] = 1
    rule = 1 / mean_squared_norm(sp.csr_array(X), np.ones(len(X)))
    for seed in range(3):  # some samples have neither of these rows
        assert pytest.approx(rule, rel=1e-5) == OneVsRestSVC(random_state=seed, tol=0.1).fit(X, Y).C_


def test_the_sample_keeps_the_rows_of_small_classes(monkeypatch):
    """A tenth of the rows would have one row of each of these classes."""
    monkeypatch.setattr(auto_cost, "_MAX_ROWS", 100)
    monkeypatch.setattr(auto_cost, "_MAX_CLASSES", 5)
    monkeypatch.setattr(auto_cost, "_FEW_CLASSES", 5)
    monkeypatch.setattr(auto_cost, "_FEW_POSITIVES", 8)
    sizes = np.array([300] + [7] * 100)
    y = np.repeat(np.arange(101), sizes)
    X = np.random.default_rng(0).normal(size=(len(y), 3))
    training, _ = check_training(OneVsRestSVC(random_state=0), X, y, None, loss="squared_hinge")
    sample = auto_cost._sampled(training)
    counts = np.sort(sample.positives.sum(axis=0))
    assert counts[:4].tolist() == [7] * 4
    assert sample.X.shape[0] <= 100 + 5 * 8
    assert counts[-1] < 50  # a large class is as large as in a sample of rows


@pytest.mark.parametrize(("size", "n_sampled"), [(2, 128), (20, 48), (100, 32)])
def test_more_classes_are_sampled_if_they_are_small(size, n_sampled):
    """As many as have 960 rows together, within limits."""
    y = np.repeat(np.arange(200), size)
    X = np.random.default_rng(0).normal(size=(len(y), 3))
    training, _ = check_training(OneVsRestSVC(random_state=0), X, y, None, loss="squared_hinge")
    assert auto_cost._sampled(training).positives.shape[1] == n_sampled


def test_classes_that_differ_in_small_features_raise_the_cost():
    X, y = blobs(1500, 5, spread=0.3, n_classes=8)
    rng = np.random.default_rng(1)
    small = np.hstack([0.2 * X, rng.normal(size=(1500, 40))])
    rule = 1 / mean_squared_norm(sp.csr_array(small), np.ones(1500))
    assert 2 * rule < OneVsRestSVC(random_state=0).fit(small, y).C_
    assert 2 * rule > OneVsRestSVC(random_state=0).fit(small, rng.permutation(y)).C_


def test_the_cost_does_not_depend_on_threads_or_weightless_rows():
    X, y = blobs(400)
    alone = RecursiveSVC(random_state=0, n_jobs=1).fit(X, y)
    assert RecursiveSVC(random_state=0, n_jobs=2).fit(X, y).C_ == alone.C_
    weight = np.append(np.ones(400), np.zeros(50))
    options = np.vstack([X, 100 + np.zeros((50, X.shape[1]))]), np.append(y, np.zeros(50, int))
    assert RecursiveSVC(random_state=0).fit(*options, weight).C_ == alone.C_


def test_the_coupling_is_searched_at_the_cost_of_the_rule():
    X, y = blobs(200, n_classes=4)
    tree = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", 0), ("a", 1), ("b", 2), ("b", 3)])
    names = np.array([0, 1, 2, 3], dtype=object)[y]
    model = RecursiveSVC(coupling="cv", structure=tree, random_state=0).fit(X, names)
    assert model.C_ == RecursiveSVC(structure=tree, random_state=0).fit(X, names).C_
    assert set(model.cv_results_["C"]) == {model.C_}


def labelled(n_samples, row_scale):
    rng = np.random.default_rng(0)
    Y = rng.random((n_samples, 6)) < 0.2
    Y[np.arange(n_samples), rng.integers(0, 6, n_samples)] = True
    X = Y @ rng.normal(size=(6, 12)) + 0.8 * rng.normal(size=(n_samples, 12))
    return X * row_scale(rng, n_samples)[:, None], Y.astype(int)


@pytest.mark.parametrize("estimator", [OneVsRestSVC, RecursiveLogisticRegression])
def test_the_default_threshold_is_the_better_one_of_two(estimator):
    X, Y = labelled(400, lambda rng, n: np.ones(n))
    model = estimator(random_state=0).fit(X, Y)
    assert isinstance(model.threshold_, GlobalCut | RCut)
    few = estimator(random_state=0).fit(X[:4], Y[:4])
    assert isinstance(few.threshold_, ZeroThreshold)
    again = estimator(random_state=0, threshold="global").fit(X, Y)
    if isinstance(model.threshold_, GlobalCut):
        assert model.predict(X).tolist() == again.predict(X).tolist()


def test_rows_of_unequal_length_get_a_number_of_labels():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 4, 600)
    X = (np.eye(4)[code] + 0.2 * rng.normal(size=(600, 4))) * np.exp(3 * rng.normal(size=600))[:, None]
    model = OneVsRestSVC(fit_intercept=False, random_state=0).fit(X, np.eye(4, dtype=int)[code])
    assert isinstance(model.threshold_, RCut)


def told(rule, factors, losses, monkeypatch, loss="squared_hinge", n_jobs=1):
    """Factor on the rule that the search chooses if the costs have the given losses; labels have an entropy of 1."""
    by_factor = dict(zip(factors, losses, strict=True))

    def loss_of(sample, cost, splits, engine):
        return by_factor[min(factors, key=lambda factor: abs(np.log(factor * rule / cost)))]

    monkeypatch.setattr(auto_cost, "held_out_loss", loss_of)
    monkeypatch.setattr(auto_cost, "held_out_entropy", lambda sample, splits: 1.0)
    X, y = blobs(300)
    estimator = OneVsRestSVC(random_state=0)
    training, _ = check_training(estimator, X, y, None, loss=loss)
    with ThreadEngine(n_jobs) as engine:
        return auto_cost.choose_cost(training, engine) / rule


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ([0.90, 0.90, 0.900, 0.900, 0.90, 0.90], 1.0),  # no direction
        ([0.90, 0.90, 0.500, 0.499, 0.40, 0.40], 1.0),  # 0.2% more is too little, whatever follows
        ([0.90, 0.90, 0.500, 0.490, 0.48, 0.48], 10.0),  # 2% more, twice
        ([0.90, 0.90, 0.500, 0.490, 0.49, 0.40], 3.0),
        ([0.80, 0.93, 0.950, 0.940, 0.80, 0.80], 0.1),  # little is told, and the better direction is taken
    ],
)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_search_follows_what_the_scores_tell(losses, chosen, n_jobs, monkeypatch):
    X, _ = blobs(300)
    rule = 1 / mean_squared_norm(sp.csr_array(X), np.ones(300))
    result = told(rule, [0.1, 1 / 3, 1.0, 3.0, 10.0, 30.0], losses, monkeypatch, n_jobs=n_jobs)
    assert result == pytest.approx(chosen, rel=1e-4)


@pytest.mark.parametrize(("loss", "chosen"), [("squared_hinge", 30.0), ("hinge", 30.0), ("logistic", 100.0)])
def test_the_logistic_loss_may_go_further_up(loss, chosen, monkeypatch):
    X, _ = blobs(300)
    rule = UNITS[loss] * ONE_LABEL.get(loss, 1.0) / mean_squared_norm(sp.csr_array(X), np.ones(300))
    factors, losses = [1 / 3, 1.0, 3.0, 10.0, 30.0, 100.0], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    assert told(rule, factors, losses, monkeypatch, loss) == pytest.approx(chosen, rel=1e-4)


def test_the_entropy_is_the_loss_of_the_share_of_the_positives():
    X, y = blobs(300)
    training, _ = check_training(OneVsRestSVC(random_state=0), X, y, None, loss="squared_hinge")
    splits = [(np.arange(200), np.arange(200, 300))]
    p = 1 / 3  # one label of three classes
    assert auto_cost.held_out_entropy(training, splits) == pytest.approx(
        -p * np.log(p) - (1 - p) * np.log(1 - p)
    )


def logistic_unit(y, X, weight=None):
    training, _ = check_training(OneVsRestSVC(random_state=0), X, y, weight, loss="logistic")
    return unit_cost(training) * mean_squared_norm(training.X, training.row_cost)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_logistic_search_starts_higher_if_labels_are_one_dimensional(n_classes):
    """Not if they are lists or an indicator, even with one label in every row."""
    X, y = blobs(300, n_classes=n_classes)
    many, first = UNITS["logistic"], UNITS["logistic"] * ONE_LABEL["logistic"]
    assert logistic_unit(y, X) == pytest.approx(first)
    assert logistic_unit([[f"c{label}"] for label in y], X) == pytest.approx(many)
    assert logistic_unit(np.eye(n_classes, dtype=int)[y], X) == pytest.approx(many)


@pytest.mark.parametrize("estimator", [OneVsRestLogistic, RecursiveLogisticRegression])
@pytest.mark.parametrize("weight_of_several", [0.0, 1.0])
def test_label_lists_have_one_unit_whatever_row_has_several_labels(estimator, weight_of_several):
    X, y = blobs(40)  # too few for a search
    labels = [[f"c{label}"] if i % 5 else [] for i, label in enumerate(y)]
    labels[0] = ["c0", "c1"]
    weight = np.append(weight_of_several, np.ones(39))
    C = estimator(random_state=0).fit(X, labels, weight).C_
    assert pytest.approx(UNITS["logistic"]) == C * mean_squared_norm(sp.csr_array(X), weight)
