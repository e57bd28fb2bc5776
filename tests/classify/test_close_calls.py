"""Close calls decided by the tree: the rule against its twin, and when it applies."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax

from arbora.classify import RecursiveLogisticRegression, RecursiveSVC
from arbora.classify.decisions import CLOSE, Calibration, class_log_odds, settle_close_calls
from arbora.structure import Hierarchy, LabelGraph

TREE = Hierarchy.from_paths(["a/1", "a/2", "a/3", "b/1/x", "b/1/y", "b/2", "c"])
LEAVES = TREE.leaves()
SOFTMAX = Calibration(1.0)


def random_closure(rng, n_classes):
    nodes = np.arange(n_classes) + 8
    closure = rng.random((n_classes, n_classes + 8)) < 0.3
    closure[np.arange(n_classes), nodes] = True
    return sp.csr_array(closure)


def twin(log_odds, closure):
    """Expected F1 of the nodes, class by class."""
    best = []
    for proba in softmax(log_odds, axis=1):
        sizes = closure.sum(axis=1)
        values = []
        for c, part in enumerate(proba):
            shared = np.array([(closure[c] & closure[other]).sum() for other in range(len(proba))])
            value = proba @ (2 * shared / (sizes[c] + sizes))
            values.append(value if part >= CLOSE * proba.max() else -1.0)
        best.append(np.lexsort((-proba, -np.round(values, 12)))[0])
    return np.array(best)


@pytest.mark.parametrize("most_values", [1, 40, 1 << 20])
def test_equals_its_twin(monkeypatch, most_values):
    monkeypatch.setattr("arbora.classify.decisions._MAX_VALUES", most_values)
    rng = np.random.default_rng(0)
    log_odds, closure = rng.normal(size=(60, 9)), random_closure(rng, 9)
    log_odds[0] = 0.0  # all alike
    result = settle_close_calls(log_odds, SOFTMAX, closure)
    np.testing.assert_array_equal(result, twin(log_odds, closure.toarray()))
    assert (result != log_odds.argmax(axis=1)).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "calibration",
    [
        Calibration(1e-5),
        Calibration(3.0),
        Calibration(1e5),
        Calibration(3.0, -20.0),
        Calibration(3.0, 1e-3),
        Calibration(3.0, 20.0),  # nearly all classes are certain
        Calibration(100.0, 20.0),  # some sigmoids are 1 in double precision
        Calibration(1e-5, -3.0),
        Calibration(1.0, -1e3),  # all sigmoids are 0 in double precision
        Calibration(1e4, -3.0),  # ... in some rows
    ],
)
def test_calibrated_scores_equal_their_twin(calibration, dtype):
    rng = np.random.default_rng(0)
    scores, closure = rng.normal(size=(60, 9)).astype(dtype), random_closure(rng, 9)
    scores[:20] /= 100
    scores[20:30, 3] = scores[20:30].max(axis=1) - np.log(2) / calibration.scale  # next to the limit
    result = settle_close_calls(scores, calibration, closure)
    np.testing.assert_array_equal(result, twin(class_log_odds(scores, calibration), closure.toarray()))


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_memory_is_less_than_that_of_the_scores(monkeypatch, spread):
    """Whether all classes of all rows are candidates, or few rows are close."""
    monkeypatch.setattr("arbora.classify.decisions._MAX_VALUES", 1 << 14)
    classes = np.arange(400)
    path = np.stack([np.zeros(400, int), 1 + classes // 20, 21 + classes], axis=1)
    closure = sp.csr_array((np.ones(1200, bool), path.ravel(), np.arange(0, 1201, 3)))
    scores = spread * np.random.default_rng(0).normal(size=(3000, 400)).astype(np.float32)
    tracemalloc.start()
    settle_close_calls(scores, Calibration(9.0, 3.0), closure)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < scores.nbytes


def test_classes_that_share_nothing_are_chosen_by_their_probability():
    closure = sp.csr_array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])  # a, b/1, c
    log_odds = np.log([[0.4, 0.35, 0.25], [0.3, 0.4, 0.3]])
    np.testing.assert_array_equal(settle_close_calls(log_odds, SOFTMAX, closure), [0, 1])


@pytest.mark.parametrize("estimator", [RecursiveSVC, RecursiveLogisticRegression])
def test_two_classes_follow_the_decision_function(estimator):
    X, y = noisy_rows()
    y = np.where(np.char.startswith(y.astype(str), "a"), "c", "b/1/x")
    model = estimator(structure=TREE, random_state=0).fit(X, y)
    np.testing.assert_array_equal(
        model.predict(X), model.classes_[(model.decision_function(X) > 0).astype(int)]
    )


def test_clear_calls_stay():
    rng = np.random.default_rng(1)
    log_odds = 50 * rng.permuted(np.tile(np.arange(9.0), (20, 1)), axis=1)
    result = settle_close_calls(log_odds, SOFTMAX, random_closure(rng, 9))
    np.testing.assert_array_equal(result, log_odds.argmax(axis=1))
    assert settle_close_calls(log_odds[:0], SOFTMAX, random_closure(rng, 9)).shape == (0,)


def noisy_rows(n=400, seed=0):
    """Rows that tell the branch of a class well, and the class badly."""
    rng = np.random.default_rng(seed)
    centres = {name: rng.normal(size=6) for name in TREE.names}
    y = rng.choice(LEAVES, n)
    X = np.array([sum(centres[node] for node in TREE.path(name)) for name in y])
    return X + 3 * rng.normal(size=X.shape), y


@pytest.mark.parametrize("estimator", [RecursiveSVC, RecursiveLogisticRegression])
def test_the_tree_decides_close_calls_only(estimator):
    X, y = noisy_rows()
    model = estimator(structure=TREE, random_state=0).fit(X, y)
    proba = model.predict_proba(X)
    result = model.predict(X)
    part = proba[np.arange(len(X)), np.searchsorted(model.classes_.astype(str), result.astype(str))]
    first = model.classes_[proba.argmax(axis=1)]
    assert (result != first).any()
    assert (part >= CLOSE * proba.max(axis=1) * (1 - 1e-6)).all()
    assert [path[-1] for path in model.predict_path(X)] == result.tolist()
    np.testing.assert_array_equal(model.predict_top_k(X, 1)[0].ravel(), first)


@pytest.mark.parametrize(
    "params",
    [
        {"calibration": None},
        {"structure": None},
        {"structure": LabelGraph.from_edges([(name, "c") for name in LEAVES[:-1]])},
    ],
)
def test_no_tree_or_no_probabilities(params):
    X, y = noisy_rows()
    model = RecursiveSVC(**{"structure": TREE, "random_state": 0} | params).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.decision_function(X).argmax(axis=1)])


def test_too_few_rows_for_a_calibration():
    X, y = np.eye(3), ["a/1", "a/2", "c"]
    model = RecursiveSVC(structure=TREE, random_state=0).fit(X, y)
    assert model.predict(X).tolist() == y
