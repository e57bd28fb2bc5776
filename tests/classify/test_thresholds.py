"""Thresholds: comparison with enumeration of all cuts, invariances, edge cases."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from arbora import io
from arbora.classify import linear as linear_model
from arbora.classify.thresholds import (
    GlobalCut,
    InstanceCut,
    RCut,
    SCut,
    Threshold,
    ZeroThreshold,
    label_ranks,
    make_threshold,
    top_columns,
)

MANY = settings(max_examples=80, deadline=None)
LEARNED = [GlobalCut(), RCut(), SCut(), InstanceCut()]
EVERY = [ZeroThreshold(), RCut(2), *LEARNED]

by_name = pytest.mark.parametrize("threshold", EVERY, ids=str)


@st.composite
def problems(draw):
    """Scores with many ties, and labels."""
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 5)))
    scores = draw(arrays(draw(st.sampled_from([np.float32, np.float64])), shape, elements=st.integers(-3, 3)))
    return scores, draw(arrays(bool, shape))


def simulated(n_samples=300, n_classes=8, seed=0):
    rng = np.random.default_rng(seed)
    Y = rng.random((n_samples, n_classes)) < np.linspace(0.05, 0.5, n_classes)
    return rng.normal(size=Y.shape) + 1.5 * Y, Y


def f1(chosen, truth):
    """F1 over all that is given, 0 where nothing is chosen or true."""
    return 2 * (chosen & truth).sum() / max(1, chosen.sum() + truth.sum())


def slow_top(row, k):
    return sorted(range(len(row)), key=lambda column: (-row[column], column))[:k]


@MANY
@given(problems(), st.integers(0, 6))
def test_the_best_columns_and_ranks_are_those_of_a_full_sort(problem, k):
    scores, truth = problem
    full = [slow_top(row, scores.shape[1]) for row in scores]
    assert top_columns(scores, k).tolist() == [order[:k] for order in full]
    expected = [full[row].index(column) for row, column in np.argwhere(truth)]
    assert label_ranks(scores, sp.csr_array(truth)).tolist() == expected


@MANY
@given(problems())
def test_scut_reaches_the_best_f1_of_every_class(problem):
    scores, truth = problem
    chosen = SCut(fbr=0.0).fit(scores, truth).predict(scores).toarray()
    for column in range(scores.shape[1]):
        part, labels = scores[:, column], truth[:, column]
        cuts = [part > t for t in [-np.inf, *part]]
        best = max(f1(cut, labels) for cut in cuts)
        assert f1(chosen[:, column], labels) == pytest.approx(best)
        fewest = min(cut.sum() for cut in cuts if f1(cut, labels) == pytest.approx(best))
        assert chosen[:, column].sum() == fewest  # of equally good cuts the highest


@MANY
@given(problems())
def test_the_global_cut_reaches_the_best_micro_f1(problem):
    scores, truth = problem
    chosen = GlobalCut().fit(scores, truth).predict(scores).toarray()
    best = max(f1(scores > t, truth) for t in [-np.inf, *scores.ravel()])
    assert f1(chosen, truth) == pytest.approx(best)


@MANY
@given(problems())
def test_rcut_learns_the_best_number_of_labels(problem):
    scores, truth = problem
    result = RCut().fit(scores, truth)
    by_r = {r: f1(RCut(r).predict(scores).toarray(), truth) for r in range(1, scores.shape[1] + 1)}
    assert by_r[result.r_] == pytest.approx(max(by_r.values()))
    assert result.r_ == min(r for r in by_r if by_r[r] == pytest.approx(max(by_r.values())))
    assert (result.predict(scores).sum(axis=1) == result.r_).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_the_instance_cut_is_a_ridge_regression_of_the_number_of_labels(alpha, dtype):
    scores, truth = simulated()
    scores = scores.astype(dtype)
    ranked = -np.sort(-scores.astype(np.float64), axis=1)[:, :5]
    reference = make_pipeline(StandardScaler(), Ridge(alpha)).fit(ranked, truth.sum(axis=1))
    result = InstanceCut(n_scores=5, alpha=alpha).fit(scores, truth)
    counts = reference.predict(ranked)
    np.testing.assert_allclose(ranked @ result.coef_ + result.intercept_, counts, atol=1e-6)
    assert len(set(np.rint(counts))) > 2
    chosen = result.predict(scores).toarray()
    for row, count in enumerate(np.rint(counts).astype(int)):
        assert np.flatnonzero(chosen[row]).tolist() == sorted(slow_top(scores[row], count))


def test_the_instance_cut_finds_the_gap_that_tells_the_number_of_labels():
    """All labels of a row score about 1, all others about -1: the number is the sum of the scores, up to a scale."""
    rng = np.random.default_rng(0)
    truth = np.arange(6) < rng.integers(0, 6, size=400)[:, None]
    truth = rng.permuted(truth, axis=1)
    scores = np.where(truth, 1.0, -1.0) + 0.1 * rng.normal(size=truth.shape)
    cut = InstanceCut(alpha=1e-3).fit(scores[:200], truth[:200])
    assert (cut.predict(scores[200:]).toarray() == truth[200:]).all()
    fixed = RCut().fit(scores[:200], truth[:200]).predict(scores[200:]).toarray()
    assert (fixed == truth[200:]).all(axis=1).mean() < 0.5  # no one number fits


@pytest.mark.parametrize(
    "transform", [np.exp, np.cbrt, lambda s: 1e6 * s - 3, lambda s: np.where(s > 0, np.inf, s)]
)
def test_only_the_order_of_scores_matters(transform):
    scores, truth = simulated()
    scores = np.where(scores > 2, 2, scores)
    bent = transform(scores)
    if np.isinf(bent).any():  # a map that is not strict: as if those scores had tied from the start
        scores = np.where(scores > 0, 1.0, scores)
    for threshold in (SCut(), SCut(0.5), RCut(), RCut(3), GlobalCut()):
        first, other = (clone(threshold).fit(s, truth).predict(s) for s in (scores, bent))
        assert (first != other).nnz == 0


def test_scale_of_each_class_and_of_each_row_does_not_matter():
    """SCut does not compare classes, and RCut does not compare rows."""
    scores, truth = simulated()
    rng = np.random.default_rng(1)
    by_class = scores * rng.uniform(0.1, 10, scores.shape[1]) + rng.normal(size=scores.shape[1])
    assert (
        SCut().fit(scores, truth).predict(scores) != SCut().fit(by_class, truth).predict(by_class)
    ).nnz == 0
    by_row = scores * rng.uniform(0.1, 10, (len(scores), 1)) + rng.normal(size=(len(scores), 1))
    assert (RCut().fit(scores, truth).predict(scores) != RCut().fit(by_row, truth).predict(by_row)).nnz == 0


def test_the_instance_cut_is_invariant_to_scale_and_shift():
    scores, truth = simulated()
    first, other = (InstanceCut().fit(s, truth).predict(s) for s in (scores, 1000 * scores + 7))
    assert (first != other).nnz == 0


@by_name
def test_invariant_to_the_order_of_rows_and_classes(threshold):
    scores, truth = simulated()
    rng = np.random.default_rng(2)
    rows, columns = rng.permutation(len(scores)), rng.permutation(scores.shape[1])
    plain = clone(threshold).fit(scores, truth).predict(scores).toarray()
    moved_scores = scores[rows][:, columns]
    moved = clone(threshold).fit(moved_scores, truth[rows][:, columns]).predict(moved_scores).toarray()
    assert (moved == plain[rows][:, columns]).all()


@by_name
def test_chunks_do_not_change_the_result(threshold, monkeypatch):
    scores, truth = simulated(60)
    whole = clone(threshold).fit(scores, truth)
    monkeypatch.setattr(linear_model, "_SCORES_PER_CHUNK", 3 * scores.shape[1])
    parts = clone(threshold).fit(scores, truth)
    assert (whole.predict(scores) != parts.predict(scores)).nnz == 0


@by_name
@pytest.mark.parametrize(
    ("scores", "truth"),
    [
        (np.zeros((5, 3)), np.eye(5, 3)),
        (np.zeros((5, 3)), np.zeros((5, 3))),
        (np.arange(15.0).reshape(5, 3), np.zeros((5, 3))),
        (np.arange(15.0).reshape(5, 3), np.ones((5, 3))),
        (np.arange(4.0).reshape(4, 1), [[0], [1], [0], [1]]),
        (np.array([[2.0, -1.0, 0.5]]), [[0, 0, 0]]),
        (np.full((4, 2), -7.0, np.float32), [[1, 0]] * 4),
    ],
    ids=["constant", "constant, no labels", "no labels", "all labels", "one class", "one row", "one label"],
)
def test_edge_cases_give_sets_over_the_classes(threshold, scores, truth):
    result = clone(threshold).fit(scores, truth)
    chosen = result.predict(scores)
    assert chosen.shape == scores.shape
    assert chosen.dtype == bool
    assert chosen.has_sorted_indices
    assert chosen.data.all()
    assert result.predict(scores[:0]).shape == (0, scores.shape[1])
    if isinstance(threshold, SCut | GlobalCut | InstanceCut) and not np.any(truth):
        assert chosen.nnz == 0


def test_a_row_may_get_no_label_and_a_row_of_ties_the_first():
    cut = InstanceCut(alpha=0.01).fit([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]], [[1, 1], [0, 0], [1, 0]])
    assert cut.predict([[-1.0, -1.1], [0.0, 0.0]]).toarray().tolist() == [[False, False], [True, False]]


def test_of_equally_good_cuts_the_one_with_fewer_labels_is_taken():
    scores, truth = (
        [[4.0], [3.0], [2.0], [1.0]],
        [[1], [0], [0], [1]],
    )  # F1 is 2/3 with the first row and with all
    assert SCut(fbr=0).fit(scores, truth).thresholds_.tolist() == [3.5]
    assert GlobalCut().fit(scores, truth).threshold_ == 3.5


def test_weak_classes_fall_back():
    scores = np.column_stack([[4.0, 3, 2, 1, 0], [4.0, 3, 2, 1, 0], [4.0, 3, 2, 1, 0]])
    truth = np.column_stack([[1, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    for fbr, expected in [(0.0, [2.5, -np.inf, np.inf]), (0.5, [2.5, 4.0, np.inf])]:
        assert SCut(fbr).fit(scores, truth).thresholds_.tolist() == expected
    assert SCut(0.5, "never").fit(scores, truth).thresholds_.tolist() == [2.5, np.inf, np.inf]
    reference = SCut(0.5).fit(scores, truth, with_data=[True, True, True])
    assert reference.thresholds_.tolist() == [2.5, 4.0, 4.0]
    assert reference.predict([[9.0, 4.0, 4.5]]).toarray().tolist() == [[True, False, True]]
    unknown = SCut(0.5).fit(scores, truth, with_data=[False, True, False])
    assert unknown.thresholds_.tolist() == [np.inf, 4.0, np.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.1, 1e30, -1e-30, 16777216.0])
def test_a_threshold_separates_adjacent_floats(dtype, value):
    low = dtype(value)
    scores = np.array([[np.nextafter(low, dtype(np.inf))], [low]])
    for threshold in (SCut(), GlobalCut()):
        assert threshold.fit(scores, [[1], [0]]).predict(scores).toarray().tolist() == [[True], [False]]


def test_infinite_scores_are_refused_by_the_regression_only():
    scores = np.array([[np.inf, 1.0], [-np.inf, 0.0], [2.0, -np.inf]])
    truth = np.array([[1, 1], [0, 0], [0, 0]])
    for threshold in (SCut(), GlobalCut(), RCut()):
        result = threshold.fit(scores, truth)
        assert result.predict(scores[:1]).toarray().all()
    with pytest.raises(ValueError, match="infinite"):
        InstanceCut().fit(scores, truth)


@pytest.mark.parametrize(
    "wrap", [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array, lambda Y: Y.tolist()]
)
def test_labels_in_any_form(wrap):
    scores, truth = simulated()
    stored_zero = sp.csr_array(truth.astype(int))
    stored_zero.data[:5] = 0
    for labels in (truth, stored_zero.toarray()):
        expected = SCut().fit(scores, labels.astype(bool)).thresholds_
        assert (SCut().fit(scores, wrap(labels.astype(int))).thresholds_ == expected).all()
    assert (SCut().fit(scores, stored_zero).thresholds_ == expected).all()
    assert stored_zero.nnz == truth.sum()  # what was given is left alone


@by_name
def test_saved_and_loaded(threshold, tmp_path):
    scores, truth = simulated()
    fitted = clone(threshold).fit(scores, truth)
    io.save(fitted, tmp_path / "threshold")
    loaded = io.load(tmp_path / "threshold")
    assert type(loaded) is type(threshold)
    assert loaded.get_params() == threshold.get_params()
    assert (loaded.predict(scores) != fitted.predict(scores)).nnz == 0


@pytest.mark.parametrize(
    ("threshold", "call", "message"),
    [
        (SCut(), ([[1.0, np.nan]], [[0, 1]]), "row 0, class 1 is NaN"),
        (SCut(), ([1.0, 2.0], [0, 1]), "n_samples, n_classes"),
        (SCut(), ([[1.0, 2.0]], [[0, 1, 1]]), "shape"),
        (SCut(), ([[1.0, 2.0]], [[0, 2]]), "zeros and ones"),
        (SCut(), (np.empty((0, 2)), np.empty((0, 2))), "at least one row"),
        (SCut(), ([[1.0, 2.0]], [[0, 1]], [True]), "one value per class"),
        (SCut(fbr=2), ([[1.0]], [[1]]), "fbr"),
        (SCut(fallback="lowest"), ([[1.0]], [[1]]), "fallback"),
        (RCut(0), ([[1.0]], [[1]]), "'r'"),
        (InstanceCut(alpha=0), ([[1.0]], [[1]]), "alpha"),
    ],
)
def test_bad_input_is_refused_with_the_reason(threshold, call, message):
    with pytest.raises(ValueError, match=message):
        threshold.fit(*call)


@pytest.mark.parametrize("threshold", LEARNED, ids=str)
def test_predict_refuses_unfitted_thresholds_and_other_classes(threshold):
    with pytest.raises(NotFittedError):
        clone(threshold).predict([[1.0]])
    fitted = clone(threshold).fit([[1.0, 2.0], [0.0, 0.0]], [[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="3 columns, but the threshold was fitted on 2"):
        fitted.predict([[1.0, 2.0, 3.0]])


def test_names_and_objects_make_thresholds():
    made = {name: make_threshold(name) for name in ("zero", "global", "rcut", "scut", "instance")}
    assert [type(threshold) for threshold in made.values()] == [
        ZeroThreshold,
        GlobalCut,
        RCut,
        SCut,
        InstanceCut,
    ]
    assert all(isinstance(threshold, Threshold) for threshold in made.values())
    given_one = RCut(3)
    assert make_threshold(given_one) is not given_one
    assert make_threshold(given_one).r == 3
    for wrong in ("s-cut", None, 0.5):
        with pytest.raises(ValueError, match="'scut'"):
            make_threshold(wrong)
    with pytest.raises(ValueError, match="'r'"):
        make_threshold(RCut(-1))


def test_each_is_the_best_at_its_own_measure():
    """Enumeration over all pairs of a small grid: no other pair of class thresholds has a higher macro-F1."""
    scores, truth = simulated(30, 2, seed=3)
    result = SCut(fbr=0).fit(scores, truth).predict(scores).toarray()
    macro = np.mean([f1(result[:, c], truth[:, c]) for c in range(2)])
    grid = itertools.product(*scores.T)
    assert (
        macro >= max(np.mean([f1(scores[:, c] > t[c], truth[:, c]) for c in range(2)]) for t in grid) - 1e-12
    )
