"""From scores to probabilities: scales recovered from simulations, no row scored that was trained on."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax

from arbora.classify import (
    HierarchicalCostClassifier,
    HierarchicalSVM,
    OneVsRestLogistic,
    OneVsRestSVC,
    TopDownSVC,
)
from arbora.classify.decisions import (
    Calibration,
    class_probabilities,
    fit_normalized_sigmoid,
    fit_scale,
    fit_sigmoid,
    fit_softmax_scale,
    held_out_splits,
    smoothed_targets,
)
from arbora.classify.estimator import Decisions
from arbora.classify.top_down import mark_nodes, train_choices
from arbora.classify.training import Options, Training, check_training
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy

ALL = [OneVsRestSVC, OneVsRestLogistic, TopDownSVC]


@pytest.mark.parametrize("scale", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("n_classes", [2, 5, 60])
def test_the_scale_of_a_softmax_is_recovered(scale, n_classes):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(8_000, n_classes)) * (2 / max(1, scale))
    codes = (scale * scores + rng.gumbel(size=scores.shape)).argmax(axis=1)  # a draw from the softmax
    assert fit_softmax_scale(scores, codes).scale == pytest.approx(scale, rel=0.08, abs=0.03)
    thousandfold = fit_softmax_scale((1000 * scores).astype(np.float32), codes).scale
    assert 1000 * thousandfold == pytest.approx(fit_softmax_scale(scores, codes).scale, rel=1e-3)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (4.0, -2.0), (0.3, 1.0), (2.0, -6.0)])
def test_the_sigmoid_is_recovered(scale, shift):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4_000, 10))
    fitted = fit_sigmoid(scores, rng.random(scores.shape) < expit(scale * scores + shift))
    assert fitted.scale == pytest.approx(scale, rel=0.1)
    assert fitted.shift == pytest.approx(shift, rel=0.1, abs=0.05)


@pytest.mark.parametrize("best", [1e-4, 0.7, 3e4])
def test_the_scale_is_found_over_many_orders(best):
    result = fit_scale(lambda scale: -((np.log(scale) - np.log(best)) ** 2)).scale
    assert result == pytest.approx(best, rel=1e-4)


def test_separable_scores_keep_probabilities_inside():
    """However well one or a hundred held-out rows are classified, they cannot prove certainty."""
    for n_samples in (1, 2, 10, 100):
        scores = np.tile([3.0, -1.0, -2.0], (n_samples, 1))
        fitted = fit_normalized_sigmoid(scores, np.zeros(n_samples, dtype=int))
        top = class_probabilities(scores[:1], fitted, multilabel=False)[0, 0]
        assert 0.5 < top < 1 - 0.5 / (n_samples + 2)
        positive = np.arange(2 * n_samples) % 2 == 0
        sigmoid = fit_sigmoid(np.where(positive, 2.0, -2.0), positive)
        p = class_probabilities(np.array([2.0, -2.0]), sigmoid, multilabel=True)
        np.testing.assert_allclose(p, [(n_samples + 1) / (n_samples + 2), 1 / (n_samples + 2)], rtol=1e-3)


def test_targets_are_a_distribution():
    high, low = smoothed_targets(10, np.array([1, 2, 7]))
    np.testing.assert_allclose(high + np.array([0, 1, 6]) * low, [high, 1, 1])


@pytest.mark.parametrize(
    ("scores", "positive"),
    [
        (np.zeros(50), np.arange(50) < 10),  # nothing to go by
        (np.linspace(-1, 1, 50), np.linspace(-1, 1, 50) < 0),  # the reverse of the truth
        (np.linspace(-1, 1, 50), np.zeros(50, dtype=bool)),
        (np.linspace(-1, 1, 50), np.ones(50, dtype=bool)),
        (np.array([1e8, -1e8, 1e8, -1e8]), np.array([True, False, False, True])),
        (np.array([1e-8, -1e-8, 2e-8, -1e-8]), np.array([True, False, False, True])),
        (np.empty(0), np.empty(0, dtype=bool)),
    ],
    ids=["constant", "reversed", "negatives only", "positives only", "huge", "tiny", "empty"],
)
def test_hopeless_scores_give_finite_rising_probabilities(scores, positive):
    fitted = fit_sigmoid(scores, positive)
    assert fitted.scale > 0
    assert np.isfinite(fitted).all()
    p = class_probabilities(np.append(scores, [np.inf, -np.inf]), fitted, multilabel=True)
    assert not np.isnan(p).any()
    if len(scores) == 50 and 0 < positive.sum() < 50:
        assert p[:-2].mean() == pytest.approx(positive.mean(), abs=0.05)


def test_weights_of_rows_are_rows_given_again_but_for_the_smoothing():
    """Many rows leave next to nothing of the smoothing; zeros leave everything as it was."""
    rng = np.random.default_rng(0)
    scores, times = rng.normal(size=(4000, 3)), rng.integers(0, 4, 4000)
    codes = (2 * scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    again = np.repeat(np.arange(4000), times)
    weighted = fit_softmax_scale(scores, codes, times.astype(float)).scale
    assert weighted == pytest.approx(fit_softmax_scale(scores[again], codes[again]).scale, rel=1e-2)
    assert weighted == pytest.approx(fit_softmax_scale(scores, codes, 1e-6 * times).scale, rel=1e-9)
    positive = rng.random(scores.shape) < expit(3 * scores - 1)
    wide = np.repeat(times[:, None], 3, axis=1)
    result = fit_sigmoid(scores, positive, wide.astype(float))
    np.testing.assert_allclose(result, fit_sigmoid(scores[again], positive[again]), rtol=1e-2)
    counts = times > 0
    np.testing.assert_allclose(
        result, fit_sigmoid(scores[counts], positive[counts], wide[counts].astype(float)), rtol=1e-9
    )


@pytest.mark.parametrize("estimator", [*ALL, HierarchicalCostClassifier, HierarchicalSVM])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_of_weight_zero_are_not_held_out(estimator, n_classes):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % n_classes
    X[:, 0] += y
    weight = np.where(rng.random(60) < 0.4, 0.0, rng.random(60) + 0.5)
    model = estimator(random_state=0)
    among = model.fit(X, y, sample_weight=weight)
    result = among.calibration_, among.predict_proba(X)
    ids = weight > 0
    model.fit(X[ids], y[ids], sample_weight=weight[ids])
    np.testing.assert_allclose(result[0], model.calibration_, rtol=1e-9)
    np.testing.assert_allclose(result[1], model.predict_proba(X), rtol=1e-6)
    model.fit(X[ids], y[ids])
    assert result[0][0] != pytest.approx(model.calibration_[0], rel=1e-6)


def training(n_samples, seed=0):
    X = sp.csr_array(np.arange(n_samples, dtype=float)[:, None] + 1)  # a row is known by its value
    options = Options("hinge", 1e-3, 100, 1.0, np.dtype("float32"), seed)
    return Training(X, sp.csr_array(np.ones((n_samples, 1))), np.ones(n_samples), np.ones(1), options)


@pytest.mark.parametrize("how", ["holdout", 2, 3, 7, None])
@pytest.mark.parametrize("n_samples", [1, 2, 4, 5, 6, 7, 50, 1500])
def test_no_row_is_both_trained_on_and_scored(how, n_samples):
    everything = training(n_samples)
    scored = []
    for seen, rows in held_out_splits(everything, how, 1):
        values = set(seen.X.toarray().ravel().astype(int) - 1)
        assert not values & set(rows.tolist())
        assert len(values) == seen.X.shape[0] == seen.positives.shape[0] == len(seen.row_cost)
        scored += rows.tolist()
    assert len(set(scored)) == len(scored)
    if how is None or n_samples < (5 if how == "holdout" else how):
        assert scored == []
    elif n_samples < 5:
        assert sorted(scored) in ([], list(range(n_samples)))  # so few rows may be too few for folds
    elif how == "holdout" and n_samples > 1000:
        assert len(scored) == n_samples // 5
    else:
        assert sorted(scored) == list(range(n_samples))  # folds score every row once


def test_the_held_out_scores_stay_few_and_depend_on_the_seed():
    ((_, few),) = held_out_splits(training(1500), "holdout", 1 << 22)
    assert len(few) == 2
    ((_, a),) = held_out_splits(training(1500, seed=1), "holdout", 1)
    ((_, b),) = held_out_splits(training(1500, seed=2), "holdout", 1)
    assert set(a) != set(b)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("how", ["holdout", 2, 5, None])
@pytest.mark.parametrize("n_samples", [2, 3, 4, 5, 6])
def test_tiny_collections(estimator, how, n_samples):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n_samples, 2)), np.arange(n_samples) % 2
    for labels in (y, [[int(label)] for label in 2 + y], np.arange(n_samples)):
        model = estimator(calibration=how, random_state=0).fit(X, labels)
        proba = model.predict_node_proba(X)
        assert np.isfinite(proba).all()
        if how is None or n_samples < (5 if how == "holdout" else how):
            assert model.calibration_.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("estimator", ALL)
def test_calibration_does_not_touch_the_weights(estimator):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    plain, calibrated = (estimator(calibration=how, random_state=0).fit(X, y) for how in (None, 3))
    assert plain.calibration_.tolist() == [1.0, 0.0]
    assert calibrated.calibration_.tolist() != [1.0, 0.0]
    difference = plain.coef_ - calibrated.coef_
    assert abs(difference).max() == 0
    np.testing.assert_array_equal(plain.predict(X), calibrated.predict(X))


def calibration_error(confidence, right, n_bins=10):
    """Mean distance of confidence and accuracy over bins of confidence."""
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    weight = np.bincount(bins, minlength=n_bins)
    gap = np.abs(np.bincount(bins, confidence - right, minlength=n_bins))
    return gap[weight > 0].sum() / len(confidence)


def simulated(n_samples, seed, spread=1.5, n_features=30):
    rng = np.random.default_rng(seed)
    group, part = np.random.default_rng(7).normal(size=(2, 6, n_features)) / np.sqrt(n_features) * 3
    centres = group[np.arange(6) // 3] + part
    y = rng.integers(6, size=n_samples)
    return centres[y] + spread * rng.normal(size=(n_samples, n_features)), y


TREE = Hierarchy.from_edges(
    [("r", "a"), ("r", "b"), *[("a", i) for i in range(3)], *[("b", i) for i in (3, 4, 5)]]
)


@pytest.mark.parametrize("how", ["holdout", 5])
@pytest.mark.parametrize(
    ("estimator", "structure"),
    [(OneVsRestSVC, None), (OneVsRestSVC, TREE), (TopDownSVC, None), (TopDownSVC, TREE)],
)
def test_calibrated_confidence_is_accuracy(estimator, structure, how):
    X, y = simulated(3000, seed=0)
    Z, truth = simulated(6000, seed=1)
    errors = {}
    for calibration in (how, None):
        model = estimator(structure=structure, calibration=calibration, random_state=0).fit(X, y)
        proba = model.predict_proba(Z)
        best = proba.argmax(axis=1)
        errors[calibration] = calibration_error(proba.max(axis=1), model.classes_[best] == truth)
    assert errors[how] < 0.05
    if not (estimator is TopDownSVC and structure is TREE):  # where one scale serves unlike choices
        assert errors[how] < errors[None] / 2


@pytest.mark.parametrize("how", ["holdout", 5])
@pytest.mark.parametrize("estimator", ALL)
def test_calibrated_labels_hold_as_often_as_they_say(estimator, how):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20))
    W = np.random.default_rng(1).normal(size=(20, 5)) * 1.5

    def draw(rows):
        return (rng.random((len(rows), 5)) < expit(rows @ W - 1)).astype(int)

    Z = rng.normal(size=(6000, 20))
    Y = draw(Z)
    errors = {}
    labels = draw(X)
    for calibration in (how, None):
        model = estimator(calibration=calibration, random_state=0).fit(X, labels)
        errors[calibration] = calibration_error(model.predict_proba(Z).ravel(), Y.ravel())
    assert errors[how] < 0.04
    if estimator is not OneVsRestLogistic:  # which is calibrated from birth
        assert errors[how] < errors[None] / 2


def test_the_scale_of_top_down_choices_is_that_of_the_true_paths():
    """Against a slow likelihood over the choices that held-out documents pass, and no others."""
    paths = {
        "a1": ["r", "a"],
        "a2": ["r", "a"],
        "b1": ["r", "b"],
        "b2": ["r", "b"],
        "b3": ["r", "b"],
        "c": ["r"],
    }
    tree = Hierarchy.from_edges(
        [("r", "a"), ("r", "b"), ("r", "c"), *[(paths[n][-1], n) for n in paths if n != "c"]]
    )
    rng = np.random.default_rng(0)
    y = np.array(list(paths), dtype=object)[np.arange(36) % 6]
    X = rng.normal(size=(6, 4))[np.arange(36) % 6] + 0.5 * rng.normal(size=(36, 4))
    model = TopDownSVC(1.0, loss="hinge", structure=tree, tol=1e-7, random_state=0).fit(X, y)
    decisions = Decisions(model.routes_)
    training, _ = check_training(model, X, y, None, loss="hinge")
    over_nodes = mark_nodes(training, model.routes_, model.class_leaves_, decisions.root)
    rows, scores = [], []
    for seen, unseen in held_out_splits(over_nodes, "holdout", decisions.n_edges):
        weights = train_choices(seen, decisions, True, ThreadEngine(1)).model
        rows += unseen.tolist()
        scores.append(X[unseen] @ weights.coef.toarray().T + weights.intercept)
    scores = np.vstack(scores)
    edges = [tuple(model.routes_.decode(edge)) for edge in model.routes_.edges]
    choices = [(row, node) for row in range(len(rows)) for node in paths[y[rows[row]]]]

    def slow(log_scale):
        total = 0.0
        for row, node in choices:
            part = [i for i, (parent, _) in enumerate(edges) if parent == node]
            taken = [edges[i][1] in (*paths[y[rows[row]]], y[rows[row]]) for i in part]
            target = np.where(taken, 1 - 1 / (len(choices) + 2), 1 / (len(choices) + 2) / (len(part) - 1))
            total += target @ np.log(softmax(np.exp(log_scale) * scores[row, part]))
        return -total

    best = minimize_scalar(slow, bounds=(-5, 5), method="bounded", options={"xatol": 1e-6})
    assert model.calibration_[0] == pytest.approx(np.exp(best.x), rel=1e-3)


def test_probabilities_survive_huge_scores():
    scores = np.array([[1e30, -1e30, 0.0], [1e5, 1e5, -1e5]])
    fitted = fit_normalized_sigmoid(scores, np.array([0, 1]))
    p = class_probabilities(scores, fitted, multilabel=False)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert p.argmax(axis=1).tolist() == [0, 0]
    assert np.isfinite(p).all()
    assert p[1, 0] == p[1, 1]


@pytest.mark.parametrize(("scale", "shift"), [(2.0, -20.0), (3.0, 0.0), (4.0, 3.0)])
def test_normalized_sigmoids_are_recovered_and_include_the_softmax(scale, shift):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 8)) - 0.5
    true = Calibration(scale, shift)
    log_p = np.log(class_probabilities(scores, true, multilabel=False))
    if shift == -20.0:
        np.testing.assert_allclose(log_p, log_softmax(scale * scores, axis=1), atol=1e-5)
    codes = (log_p + rng.gumbel(size=scores.shape)).argmax(axis=1)
    fitted = fit_normalized_sigmoid(scores, codes)
    assert fitted.scale == pytest.approx(scale, rel=0.06)
    if shift > -20.0:
        assert fitted.shift == pytest.approx(shift, abs=0.3)
    result = np.log(class_probabilities(scores, fitted, multilabel=False))
    rows = np.arange(len(codes))
    assert result[rows, codes].mean() >= log_p[rows, codes].mean() - 1e-4


def test_one_extreme_row_does_not_give_sigmoids_that_are_worse_than_a_softmax():
    rng = np.random.default_rng(0)
    scores, codes = rng.normal(size=(400, 5)), rng.integers(5, size=400)
    scores[np.arange(400), codes] += 2
    scores[0, codes[0]] = -500.0
    fitted, plain = fit_normalized_sigmoid(scores, codes), fit_softmax_scale(scores, codes)
    losses = [
        -np.log(np.maximum(class_probabilities(scores, first, False)[np.arange(400), codes], 1e-300)).mean()
        for first in (fitted, plain)
    ]
    assert losses[0] <= losses[1] + 1e-3


def test_rows_without_weight_do_not_count_in_the_sample_of_a_calibration():
    rng = np.random.default_rng(0)
    scores, codes = rng.normal(size=(4000, 600)).astype(np.float32), rng.integers(600, size=4000)
    scores[np.arange(4000), codes] += 3
    weight = np.tile([1.0, 0.0], 2000)
    fitted = fit_normalized_sigmoid(scores, codes, weight)
    only = fit_normalized_sigmoid(scores[::2], codes[::2])
    assert fitted.scale == pytest.approx(only.scale, rel=1e-3)
    assert fitted.shift == pytest.approx(only.shift, rel=1e-2, abs=1e-2)
