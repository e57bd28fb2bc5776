"""Classifiers that learn where to cut their scores, and the k likeliest classes of a row."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import f1_score, roc_auc_score

from arbora import io
from arbora.classify import OneVsRestLogistic, OneVsRestSVC, TopDownSVC
from arbora.classify import linear as _linear
from arbora.classify import linear as one_vs_rest
from arbora.classify.thresholds import InstanceCut, RCut, SCut, Threshold
from arbora.structure import Hierarchy

NAMES = ["zero", "global", "rcut", "scut", "instance"]
LEARNED = NAMES[1:]
TREE = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")])
LEAVES = np.array(["a1", "a2", "b1", "b2"], dtype=object)

flat = pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic])


def rare_labels(n_samples, seed=0, n_classes=6, noise=0.7):
    """Labels that one row in ten carries; the more noise, the fewer scores are positive."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n_samples, n_classes)) < 0.1
    directions = np.random.default_rng(9).normal(size=(n_classes, 15)) / 4
    return Y @ directions * 3 + rng.normal(size=(n_samples, 15)) * noise, Y.astype(int)


def draw_sets(n_samples, seed=0):
    X, Y = rare_labels(n_samples, seed, n_classes=4)
    return X, [LEAVES[row > 0].tolist() for row in Y]


class Spy(Threshold):
    """A threshold of a user's own that keeps what it was fitted on."""

    def _learn(self, scores, Y, with_data):
        self.scores_, self.Y_, self.with_data_ = scores, Y.toarray(), with_data

    def _choose(self, scores):
        return sp.csr_array(scores > -np.inf)


@flat
@pytest.mark.parametrize("threshold", NAMES)
@pytest.mark.parametrize("calibration", ["holdout", 3])
def test_predict_cuts_the_scores_and_nothing_else_changes(estimator, threshold, calibration):
    X, Y = rare_labels(400)
    options = {"calibration": calibration, "random_state": 0}
    plain = estimator(**options).fit(X, Y)
    model = estimator(threshold=threshold, **options).fit(X, Y)
    assert (model.coef_ == plain.coef_).all()
    if calibration == 3:  # a hold-out for the calibration alone is coarser
        assert (model.calibration_ == plain.calibration_).all()
    expected = model.threshold_.predict(model.decision_function(X)).toarray()
    assert (model.predict(X) == expected).all()
    if threshold == "zero":
        assert (model.predict(X) == (model.decision_function(X) > 0)).all()


@pytest.mark.parametrize("calibration", ["holdout", 4])
def test_the_held_out_models_of_the_calibration_serve_the_threshold(calibration, monkeypatch):
    X, Y = rare_labels(300)
    calls = []
    train = one_vs_rest._train_blocks

    def counted(*args, **kwargs):
        calls.append(args[0].X.shape[0])
        return train(*args, **kwargs)

    monkeypatch.setattr(one_vs_rest, "_train_blocks", counted)
    for threshold in ("zero", "scut"):
        OneVsRestSVC(1.0, threshold=threshold, calibration=calibration, random_state=0).fit(X, Y)
    half = len(calls) // 2
    assert calls[:half] == calls[half:]
    assert half == 1 + (5 if calibration == "holdout" else 4)


@flat
@pytest.mark.parametrize("calibration", ["holdout", 3, None])
def test_thresholds_are_learned_on_rows_that_were_not_trained_on(estimator, calibration):
    """With labels that mean nothing, a model knows its own rows and no others."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(200, 150)), (rng.random((200, 3)) < 0.3).astype(int)
    model = estimator(C=10.0, threshold=Spy(), calibration=calibration, random_state=0).fit(X, Y)
    assert roc_auc_score(Y, model.decision_function(X)) > 0.95
    assert roc_auc_score(model.threshold_.Y_, model.threshold_.scores_) < 0.65
    assert sorted(map(tuple, model.threshold_.Y_)) == sorted(map(tuple, Y))  # each row once
    if calibration is None:
        assert model.calibration_.tolist() == [1.0, 0.0]


@flat
@pytest.mark.parametrize("threshold", LEARNED)
def test_learned_thresholds_find_rare_labels(estimator, threshold):
    (X, Y), (X_new, Y_new) = rare_labels(1500, noise=2.0), rare_labels(3000, seed=1, noise=2.0)
    result = {
        name: estimator(C=0.1, threshold=name, random_state=0).fit(X, Y).predict(X_new)
        for name in ("zero", threshold)
    }
    scores = {
        name: f1_score(Y_new, chosen, average="micro", zero_division=0) for name, chosen in result.items()
    }
    assert scores[threshold] > scores["zero"] + 0.05


@flat
@pytest.mark.parametrize("threshold", LEARNED)
def test_one_label_a_row_ignores_it(estimator, threshold):
    X, Y = rare_labels(120)
    y = Y.argmax(axis=1)
    plain, model = (estimator(threshold=name, random_state=0).fit(X, y) for name in ("zero", threshold))
    assert (plain.predict(X) == model.predict(X)).all()
    assert model.threshold_ is None
    again = estimator(threshold=threshold, random_state=0).fit(X, Y).fit(X, y)
    assert again.threshold_ is None


def test_too_few_rows_to_learn_from():
    X, labels = np.eye(4), [[0], [1], [0, 1], []]
    with pytest.raises(ValueError, match="too few rows for that"):
        OneVsRestSVC(threshold="scut").fit(X, labels)
    for threshold in ("zero", RCut(1)):
        result = OneVsRestSVC(threshold=threshold).fit(X, labels).predict(X)
        assert len(result) == 4
    assert [len(labels) for labels in result] == [1, 1, 1, 1]


@pytest.mark.parametrize("threshold", ["global", "scut"])
@pytest.mark.parametrize("calibration", ["holdout", 3])
def test_a_class_without_documents_is_never_predicted(threshold, calibration):
    X, Y = rare_labels(300)
    Y[:, 2] = 0
    model = OneVsRestSVC(threshold=threshold, calibration=calibration, random_state=0).fit(X, Y)
    result = model.predict(rare_labels(2000, seed=1)[0])
    assert result[:, 2].sum() == 0
    assert (np.delete(result, 2, axis=1).sum(axis=0) > 0).all()


def test_a_class_that_no_held_out_row_carries_falls_back():
    X, Y = rare_labels(1500)
    Y[:, 0] = 0
    Y[:2, 0] = 1  # two rows of 1,500: chance may hold out neither
    models = [OneVsRestSVC(threshold=Spy(), random_state=seed).fit(X, Y) for seed in range(5)]
    unseen = [model.threshold_ for model in models if not model.threshold_.Y_[:, 0].any()]
    assert unseen
    for spy in unseen:
        assert spy.with_data_.all()
        cut = SCut().fit(spy.scores_, spy.Y_, spy.with_data_)
        assert cut.thresholds_[0] == spy.scores_[:, 0].max()


@pytest.mark.parametrize("threshold", ["scut", "instance", SCut(0.3, "never"), InstanceCut(n_scores=3)])
def test_with_a_structure_and_label_sets(threshold, tmp_path):
    X, sets = draw_sets(300)
    models = [
        OneVsRestSVC(structure=TREE, threshold=threshold, random_state=0, n_jobs=n).fit(X, sets)
        for n in (1, 2)
    ]
    result = models[0].predict(X)
    assert result == models[1].predict(X)
    assert {label for labels in result for label in labels} <= set(LEAVES)
    assert [[path[-1] for path in paths] for paths in models[0].predict_path(X)] == result
    io.save(models[0], tmp_path / "model")
    loaded = io.load(tmp_path / "model", mmap=True)
    assert loaded.predict(X) == result
    assert str(loaded.threshold) == str(threshold)
    assert clone(loaded).fit(X, sets).predict(X) == result


def test_a_threshold_is_a_parameter_like_others():
    model = OneVsRestSVC(threshold=SCut())
    model.set_params(threshold__fbr=0.7)
    X, Y = rare_labels(60)
    assert model.fit(X, Y).threshold_.fbr == 0.7
    assert model.threshold_ is not model.threshold
    assert not hasattr(model.threshold, "thresholds_")
    for wrong in ("topk", 0.5, None, SCut):
        with pytest.raises(ValueError, match="'threshold' parameter"):
            OneVsRestSVC(threshold=wrong).fit(X, Y)


# The k likeliest classes


def singles(n_samples=150, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(4, size=n_samples)
    X = np.random.default_rng(7).normal(size=(4, 5))[codes] + rng.normal(size=(n_samples, 5))
    return X, LEAVES[codes]


@pytest.mark.parametrize("estimator", [OneVsRestSVC, OneVsRestLogistic, TopDownSVC])
@pytest.mark.parametrize("calibration", ["holdout", None])
@pytest.mark.parametrize("draw", [singles, draw_sets])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_top_k_is_the_head_of_a_full_sort(estimator, calibration, draw, k, monkeypatch):
    X, y = draw(150)
    model = estimator(structure=TREE, calibration=calibration, random_state=0).fit(X, y)
    if calibration is None:
        values = model.decision_function(X)
    else:
        values = model.predict_proba(X)
    labels, result = model.predict_top_k(X, k)
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    assert labels.shape == result.shape == (150, k)
    assert labels.dtype == object
    np.testing.assert_allclose(result, np.take_along_axis(values, order, axis=1), rtol=1e-12, atol=1e-12)
    assert (labels == model.classes_[order]).all()
    assert (np.diff(result, axis=1) <= 0).all()
    monkeypatch.setattr(_linear, "_SCORES_PER_CHUNK", 4 * 7)
    again, values = model.predict_top_k(X, k)
    assert (again == labels).all()
    # Small products are summed in another order
    np.testing.assert_allclose(values, result, rtol=1e-5, atol=1e-7)


@flat
def test_the_likeliest_class_is_the_predicted_one(estimator):
    X, y = singles()
    for labels in (y, y == "a1", np.unique(y, return_inverse=True)[1]):
        model = estimator(random_state=0).fit(X, labels)
        best, proba = model.predict_top_k(X, 1)
        assert (best[:, 0] == model.predict(X)).all()
        np.testing.assert_allclose(proba[:, 0], model.predict_proba(X).max(axis=1))


def test_equally_likely_classes_come_in_the_order_of_the_classes():
    X, Y = rare_labels(60)
    model = OneVsRestSVC(random_state=0).fit(X, Y)
    model.coef_[:], model.intercept_[:] = 0.0, [0, 1, 0, 1, 0, 0]
    labels, _ = model.predict_top_k(X[:2], 4)
    assert labels.tolist() == [[1, 3, 0, 2]] * 2


def test_a_wrong_k_is_refused():
    X, y = singles()
    model = OneVsRestSVC(random_state=0).fit(X, y)
    for k in (0, 5, -1, 1.5, "2", None):
        with pytest.raises(ValueError, match="from 1 to the number of classes, 4"):
            model.predict_top_k(X, k)


@pytest.mark.parametrize(("n_rows", "n_positive"), [(20, 1), (20, 5), (200, 2), (1500, 5)])
def test_few_labels_that_rows_do_not_explain_are_not_given_to_all_rows(n_rows, n_positive):
    """Micro-F1 of pure noise is best if all rows get all labels."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n_rows, 6)), np.zeros((n_rows, 3), int)
    for column in range(3):
        Y[rng.permutation(n_rows)[:n_positive], column] = 1
    model = OneVsRestSVC(random_state=0).fit(X, Y)
    share = model.predict(rng.standard_normal((400, 6))).mean()
    assert share <= 3 * n_positive / n_rows + 0.05


def test_a_rare_label_that_rows_explain_is_found():
    rng = np.random.default_rng(0)
    groups = np.r_[np.repeat([0, 1], 40), 2, 2]  # two rows have the third label
    X = np.eye(3)[groups] * 4 + rng.standard_normal((len(groups), 3)) * 0.3
    Y = np.eye(3, dtype=int)[groups]
    model = OneVsRestSVC(random_state=0).fit(X, Y)
    assert model.predict([[0.0, 0.0, 4.0], [4.0, 0.0, 0.0]]).tolist() == [[0, 0, 1], [1, 0, 0]]
