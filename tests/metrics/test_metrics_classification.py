"""Classification, ranking and calibration measures against scikit-learn and by hand."""

import numpy as np
import pytest
import sklearn.calibration
import sklearn.metrics as skm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from arbora import metrics
from arbora.metrics.ranking import top_k_mask

quick = settings(deadline=None, max_examples=40)  # no deadline: the machine may be busy

NAMES = ["ape", "bee", "cat", "dog", "eel"]
ZERO_DIVISIONS = [0.0, 1.0, np.nan]

single = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[st.lists(st.sampled_from(NAMES), min_size=n, max_size=n)] * 2)
)
multilabel = st.tuples(st.integers(1, 20), st.integers(2, 6)).flatmap(
    lambda shape: st.tuples(*[hnp.arrays(np.int8, shape, elements=st.integers(0, 1))] * 2)
)


def as_lists(matrix, names=(*NAMES, "fox")):
    return [[names[j] for j in np.flatnonzero(row)] for row in matrix]


def sk_f1(y_true, y_pred, average, zero_division, **options):
    return skm.f1_score(y_true, y_pred, average=average, zero_division=zero_division, **options)


@pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
@quick
@given(pair=single)
def test_single_label_equals_sklearn(pair, zero_division):
    y_true, y_pred = pair
    assert metrics.micro_f1(y_true, y_pred, zero_division=zero_division) == pytest.approx(
        sk_f1(y_true, y_pred, "micro", zero_division), nan_ok=True
    )
    assert metrics.macro_f1(y_true, y_pred, zero_division=zero_division) == pytest.approx(
        sk_f1(y_true, y_pred, "macro", zero_division), nan_ok=True
    )
    assert metrics.micro_f1(y_true, y_pred) == pytest.approx(skm.accuracy_score(y_true, y_pred))


@pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:sklearn")
@quick
@given(pair=multilabel)
def test_multilabel_indicators_equal_sklearn(pair, zero_division):
    y_true, y_pred = pair
    for average, ours in (("micro", metrics.micro_f1), ("macro", metrics.macro_f1)):
        expected = sk_f1(y_true, y_pred, average, zero_division)
        for form in (np.asarray, sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
            assert ours(form(y_true), form(y_pred), zero_division=zero_division) == pytest.approx(
                expected, nan_ok=True
            )


@pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
@quick
@given(pair=single)
def test_class_scores_equal_sklearn(pair, zero_division):
    y_true, y_pred = pair
    scores = metrics.precision_recall_f1(y_true, y_pred, zero_division=zero_division)
    expected = skm.precision_recall_fscore_support(y_true, y_pred, zero_division=zero_division)
    np.testing.assert_array_equal(scores.classes, np.unique(y_true + y_pred))
    for ours, theirs in zip(scores[1:5], expected, strict=True):
        np.testing.assert_allclose(ours, theirs)
    np.testing.assert_array_equal(scores.predicted, [y_pred.count(name) for name in scores.classes])


@quick
@given(pair=single, labels=st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
def test_fixed_labels_equal_sklearn(pair, labels):
    y_true, y_pred = pair
    if not set(labels) & set(y_true + y_pred):
        with pytest.raises(ValueError, match="none of the"):
            metrics.macro_f1(y_true, y_pred, labels=labels)
        return
    if not set(labels) & set(y_true):
        return  # scikit-learn refuses labels that are predicted only; ours counts them
    for average, ours in (("micro", metrics.micro_f1), ("macro", metrics.macro_f1)):
        expected = sk_f1(y_true, y_pred, average, 0.0, labels=labels)
        assert ours(y_true, y_pred, labels=labels) == pytest.approx(expected)


@quick
@given(pair=multilabel)
def test_lists_and_indicators_agree(pair):
    y_true, y_pred = pair
    names = [*NAMES, "fox"][: y_true.shape[1]]
    by_list = metrics.precision_recall_f1(as_lists(y_true), as_lists(y_pred), labels=names)
    by_matrix = metrics.precision_recall_f1(y_true, y_pred)
    for ours, theirs in zip(by_list[1:], by_matrix[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # Without labels=, lists average over what occurs: columns neither true nor predicted drop out.
    assert metrics.macro_f1(as_lists(y_true), as_lists(y_pred)) == pytest.approx(
        metrics.macro_f1(y_true, y_pred, zero_division=np.nan), nan_ok=True
    )


@quick
@given(pair=single, seed=st.integers(0, 1000))
def test_invariant_under_permutation_renaming_and_type(pair, seed):
    y_true, y_pred = map(np.array, pair)
    order = np.random.default_rng(seed).permutation(len(y_true))
    rename = dict(zip(NAMES, np.random.default_rng(seed).permutation(5).tolist(), strict=True))
    for measure in (metrics.micro_f1, metrics.macro_f1):
        value = measure(y_true, y_pred)
        assert measure(y_true[order], y_pred[order]) == pytest.approx(value)
        numbers = [[rename[name] for name in y] for y in (y_true, y_pred)]
        assert measure(*numbers) == pytest.approx(value)
        assert measure(y_true.astype(object), [[name] for name in y_pred]) == pytest.approx(value)


def test_repeated_labels_of_a_row_count_once():
    assert metrics.micro_f1([["a", "a", "b"]], [{"a"}]) == metrics.micro_f1([["a", "b"]], [("a",)])


def test_explicit_zeros_of_a_sparse_matrix_are_not_labels():
    stored = sparse.csr_array((np.array([1.0, 0.0]), ([0, 0], [0, 1])), shape=(1, 2))
    assert metrics.micro_f1(stored, np.array([[1, 0]])) == 1.0


def test_a_list_of_lists_is_label_sets_and_an_array_is_an_indicator():
    assert metrics.micro_f1([[0, 1]], [[1, 0]]) == 1.0
    assert metrics.micro_f1(np.array([[0, 1]]), np.array([[1, 0]])) == 0.0
    assert metrics.micro_f1(np.array([[1], [0]]), np.array([[1], [1]])) == pytest.approx(2 / 3)


def test_empty_label_sets():
    assert metrics.micro_f1([[], []], [[], []]) == 0.0
    assert metrics.micro_f1([[], []], [[], []], zero_division=1) == 1.0
    assert np.isnan(metrics.macro_f1([[], []], [[], []]))  # no class at all
    assert metrics.micro_f1([["a"], []], [[], []]) == 0.0


def test_pandas_input():
    pd = pytest.importorskip("pandas")
    y_true, y_pred = ["a", "b", "a"], ["a", "a", "a"]
    for dtype in ("object", "category"):
        series = (pd.Series(y, dtype=dtype) for y in (y_true, y_pred))
        assert metrics.macro_f1(*series) == pytest.approx(0.4)
    frames = (pd.DataFrame({"a": [1, 0], "b": [1, last]}) for last in (0, 1))
    assert metrics.micro_f1(*frames) == pytest.approx(0.8)


def test_report_agrees_with_the_measures():
    y_true, y_pred = ["a", "b", "b", "c"], ["a", "b", "c", "a"]
    report = metrics.f1_report(y_true, y_pred)
    rows = {row[0]: row[1:] for row in report}
    assert rows["micro average"][2] == metrics.micro_f1(y_true, y_pred)
    assert rows["macro average"][2] == metrics.macro_f1(y_true, y_pred)
    assert rows["b"] == (1.0, 0.5, pytest.approx(2 / 3), 2)
    expected = skm.classification_report(y_true, y_pred, output_dict=True, zero_division=0)
    assert rows["macro average"][0] == pytest.approx(expected["macro avg"]["precision"])


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        (["a", "b"], ["a"], "y_true has 2 rows but y_pred has 1"),
        ([], [], "y_true is empty"),
        (np.empty((0, 3)), np.empty((0, 3)), "y_true is empty"),
        (["a"], [1], "y_true holds names, y_pred holds numbers"),
        (["a", None], ["a", "b"], "None at position 1"),
        ([0.0, np.nan], [0, 1], "missing label .nan. at position 1"),
        ([["a"], "b"], ["a", "b"], "row 1 is 'b'"),
        (np.array([[0, 1]]), ["a"], "y_true is an indicator matrix but y_pred holds labels"),
        (np.array([[0, 1]]), np.array([[0, 1, 1]]), "y_true has 2 columns but y_pred has 3"),
        (np.array([[0, 1], [0, 2]]), np.array([[0, 1], [0, 1]]), "row 1 holds 2"),
        (np.array([["a", "b"]]), ["a"], "list of lists"),
        ("abc", ["a"], "wrap a single row"),
        (np.zeros((1, 1, 1)), ["a"], "one or two dimensions"),
        ({"a", "b"}, ["a", "b"], "one or two dimensions"),
        (iter(["a"]), ["a"], "wrap a single row"),
    ],
)
def test_bad_labels_are_explained(y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        metrics.micro_f1(y_true, y_pred)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zero_division": 0.5}, "0, 1 or nan"),
        ({"labels": []}, "distinct and not empty"),
        ({"labels": ["a", "a"]}, "distinct and not empty"),
        ({"labels": [0, 1]}, "none of the 2 labels occurs"),
    ],
)
def test_bad_options_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        metrics.macro_f1(["a", "b"], ["a", "a"], **options)


# Ranking


score_case = st.tuples(st.integers(1, 12), st.integers(1, 7)).flatmap(
    lambda shape: st.tuples(
        hnp.arrays(bool, shape),
        hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    )
)


@quick
@given(case=score_case, k=st.integers(1, 9))
def test_precision_at_k_by_sorting(case, k):
    truth, scores = case
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    hits = np.take_along_axis(truth, order, axis=1).sum(axis=1)
    assert metrics.precision_at_k(truth, scores, k) == pytest.approx((hits / k).mean())
    labelled = truth.any(axis=1)
    if labelled.any():
        expected = (hits / np.minimum(k, np.maximum(truth.sum(axis=1), 1)))[labelled].mean()
        assert metrics.r_precision_at_k(truth, scores, k) == pytest.approx(expected)
        names = [*NAMES, "fox", "gnu"]
        assert metrics.r_precision_at_k(
            as_lists(truth, names), scores, k, classes=names[: truth.shape[1]]
        ) == pytest.approx(expected)
    else:
        with pytest.raises(ValueError, match="undefined"):
            metrics.r_precision_at_k(truth, scores, k)


def test_precision_at_one_is_top_1_accuracy():
    rng = np.random.default_rng(0)
    scores, y_true = rng.normal(size=(200, 6)), rng.integers(6, size=200)
    for k in (1, 3):
        assert metrics.precision_at_k(y_true, scores, k) * k == pytest.approx(
            skm.top_k_accuracy_score(y_true, scores, k=k, labels=range(6))
        )


def test_ranking_in_chunks_equals_ranking_at_once(monkeypatch):
    rng = np.random.default_rng(1)
    truth, scores = rng.random((50, 8)) < 0.3, rng.integers(4, size=(50, 8))
    whole = metrics.precision_at_k(truth, scores, 3)
    monkeypatch.setattr("arbora.core.chunks.CHUNK_ENTRIES", 24)
    assert metrics.precision_at_k(truth, scores, 3) == whole


def test_true_class_without_a_score_counts_as_missed():
    assert metrics.r_precision_at_k([["a", "new"]], [[0.3, 0.1]], 2, classes=["a", "b"]) == 0.5


@quick
@given(scores=hnp.arrays(np.int8, (5, 6), elements=st.integers(0, 3)), k=st.integers(1, 6))
def test_top_k_mask_has_k_per_row(scores, k):
    mask = top_k_mask(scores, k)
    assert (mask.sum(axis=1) == k).all()
    assert all(scores[i][mask[i]].min() >= scores[i][~mask[i]].max(initial=-1) for i in range(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [[0.1, np.nan]], 1), "NaN in 1 of 1 rows, first in row 0"),
        (([0, 1], [[0.1, 0.2]], 1), "y_true has 2 rows but scores has 1"),
        (([2], [[0.1, 0.2]], 1), "column numbers from 0 to 1"),
        ((["a"], [[0.1, 0.2]], 1), "pass the names"),
        (([0], [0.1, 0.2], 1), "numeric matrix"),
        (([0], [[0.1, 0.2]], 0), "positive integer"),
        (([0], sparse.csr_array([[0.1, 0.2]]), 1), "toarray"),
        ((np.array([[1, 0, 0]]), [[0.1, 0.2]], 1), "y_true has 3 columns but scores has 2"),
        (([0], np.empty((1, 0)), 1), "empty"),
    ],
)
def test_bad_scores_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        metrics.precision_at_k(*arguments)


def test_unknown_classes_get_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'graphics'"):
        metrics.precision_at_k(["grafics"], [[0.1, 0.2]], 1, classes=["graphics", "autos"])
    with pytest.raises(ValueError, match="2 columns but classes has 1 distinct"):
        metrics.precision_at_k(["a"], [[0.1, 0.2]], 1, classes=["a", "a"])


# Calibration


@quick
@given(
    case=st.integers(1, 60).flatmap(
        lambda n: st.tuples(
            hnp.arrays(bool, n), hnp.arrays(np.float64, n, elements=st.integers(0, 50).map(lambda i: i / 50))
        )
    ),
    n_bins=st.integers(1, 8),
)
def test_reliability_equals_sklearn(case, n_bins):
    outcome, proba = case
    curve = metrics.reliability_curve(outcome, proba, n_bins=n_bins)
    accuracy, confidence = sklearn.calibration.calibration_curve(
        outcome, proba, n_bins=n_bins, pos_label=True
    )
    np.testing.assert_allclose(curve.accuracy, accuracy)
    np.testing.assert_allclose(curve.confidence, confidence)
    assert curve.n_rows.sum() == len(proba)


def test_calibration_of_the_top_label_by_hand():
    proba = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    y_true = ["cat", "dog", "dog", "dog"]  # hits: yes, no, yes, yes
    curve = metrics.reliability_curve(y_true, proba, classes=["cat", "dog"], n_bins=4)
    np.testing.assert_allclose(curve.confidence, [0.65, 0.85])
    np.testing.assert_allclose(curve.accuracy, [1.0, 0.5])
    ece = metrics.expected_calibration_error(y_true, proba, classes=["cat", "dog"], n_bins=4)
    assert ece == pytest.approx(0.5 * 0.35 + 0.5 * 0.35)


def test_calibrated_draws_have_a_small_error_and_overconfident_ones_do_not():
    rng = np.random.default_rng(0)
    proba = rng.random(20000)
    outcome = rng.random(20000) < proba
    for strategy in ("uniform", "quantile"):
        good = metrics.expected_calibration_error(outcome, proba, strategy=strategy)
        bad = metrics.expected_calibration_error(outcome, (proba > 0.5) * 1.0, strategy=strategy)
        assert good < 0.02
        # A coin of chance p, called with certainty, errs with probability min(p, 1 - p): 1/4 on average.
        assert bad == pytest.approx(0.25, abs=0.02)


def test_quantile_bins_equal_sklearn():
    # No (n - 1) q is an integer here: an edge on a data point would fall to either side by rounding.
    rng = np.random.default_rng(0)
    outcome, proba = rng.random(100) < 0.4, rng.random(100)
    curve = metrics.reliability_curve(outcome, proba, n_bins=5, strategy="quantile")
    expected = sklearn.calibration.calibration_curve(outcome, proba, n_bins=5, strategy="quantile")
    np.testing.assert_allclose(curve.accuracy, expected[0])
    np.testing.assert_allclose(curve.confidence, expected[1])


def test_quantile_bins_hold_equal_numbers():
    curve = metrics.reliability_curve([0, 1] * 50, np.linspace(0.01, 0.2, 100), n_bins=5, strategy="quantile")
    np.testing.assert_array_equal(curve.n_rows, [20] * 5)


@pytest.mark.parametrize(
    ("y_true", "proba", "options", "message"),
    [
        ([0, 1], [0.5, 1.5], {}, "between 0 and 1"),
        ([0, 2], [0.5, 0.5], {}, "must hold 0 and 1"),
        ([0], [0.5, 0.5], {}, "y_true has shape"),
        ([0, 1], [0.5, np.nan], {}, "NaN"),
        ([0, 1], [0.5, 0.5], {"n_bins": 0}, "n_bins"),
        ([0, 1], [0.5, 0.5], {"strategy": "equal"}, "strategy"),
    ],
)
def test_bad_probabilities_are_explained(y_true, proba, options, message):
    with pytest.raises(ValueError, match=message):
        metrics.reliability_curve(y_true, proba, **options)
