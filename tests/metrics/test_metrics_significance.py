"""Tests of significance, bootstrap intervals and the table that reports them."""

import copy
import json
import pickle
from dataclasses import FrozenInstanceError
from functools import partial
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse, stats
from sklearn.metrics import normalized_mutual_info_score

from arbora import metrics
from arbora.metrics.table import Marked, Table, improvement

quick = settings(deadline=None, max_examples=40)  # no deadline: the machine may be busy

triples = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[st.lists(st.sampled_from("abcdef"), min_size=n, max_size=n)] * 3).map(
        lambda lists: tuple(map(np.array, lists))
    )
)
matrix_triples = st.tuples(st.integers(1, 12), st.integers(1, 6)).flatmap(
    lambda shape: st.tuples(*[hnp.arrays(bool, shape)] * 3)
)
ALTERNATIVES = ["two-sided", "greater", "less"]


# Sign test


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@quick
@given(triple=triples)
def test_sign_test_on_rows(alternative, triple):
    y_true, a, b = triple
    right_a, right_b = a == y_true, b == y_true
    wins, losses = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    result = metrics.sign_test(y_true, a, b, alternative=alternative)
    assert (result.statistic, result.n_pairs) == (wins, wins + losses)
    if wins + losses:
        expected = stats.binomtest(wins, wins + losses, alternative=alternative).pvalue
        assert result.p_value == pytest.approx(expected)
    else:
        assert result.p_value == 1.0


@quick
@given(triple=matrix_triples)
def test_sign_test_on_decisions_and_on_rows_of_sets(triple):
    y_true, a, b = triple
    right_a, right_b = a == y_true, b == y_true
    by_decision = metrics.sign_test(y_true, a, b)
    assert by_decision.statistic == (right_a & ~right_b).sum()
    assert by_decision.n_pairs == (a != b).sum()  # where systems differ, exactly one is right
    ahead = right_a.sum(axis=1) - right_b.sum(axis=1)
    by_row = metrics.sign_test(*map(sparse.csr_array, triple), unit="instance")
    assert (by_row.statistic, by_row.n_pairs) == ((ahead > 0).sum(), (ahead != 0).sum())


def test_sign_test_by_enumeration_of_all_outcomes():
    """Under the null every assignment of wins is equally likely: count those at least as extreme."""
    y_true, a, b = [0] * 8, [0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 1, 1, 1, 0, 0]  # 6 wins, 1 loss, 1 tie
    extreme = [max(sum(outcome), 7 - sum(outcome)) >= 6 for outcome in product([0, 1], repeat=7)]
    assert metrics.sign_test(y_true, a, b).p_value == pytest.approx(np.mean(extreme))
    assert metrics.sign_test(y_true, a, b, alternative="greater").p_value == pytest.approx(
        (comb(7, 6) + comb(7, 7)) / 2**7
    )


@quick
@given(triple=triples)
def test_tests_are_antisymmetric(triple):
    y_true, a, b = triple
    for test in (metrics.sign_test, metrics.wilcoxon_test):
        assert test(y_true, a, b).p_value == pytest.approx(test(y_true, b, a).p_value)
        greater = test(y_true, a, b, alternative="greater").p_value
        assert greater == pytest.approx(test(y_true, b, a, alternative="less").p_value)


def test_a_row_wrong_in_both_is_a_tie_for_one_label():
    assert metrics.sign_test(["a"], ["b"], ["c"]).n_pairs == 0
    assert metrics.sign_test([["a"]], [["b"]], [["c"]]).n_pairs == 2  # decisions on b and on c differ


# Wilcoxon and t


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@quick
@given(triple=triples)
def test_wilcoxon_equals_scipy(alternative, triple):
    y_true, a, b = triple
    classes = np.unique(np.concatenate(triple))
    f1_a, f1_b = (metrics.precision_recall_f1(y_true, y, labels=classes).f1 for y in (a, b))
    difference = np.round(f1_a - f1_b, 12)
    result = metrics.wilcoxon_test(y_true, a, b, alternative=alternative)
    assert result.n_pairs == np.count_nonzero(difference)
    if result.n_pairs:
        expected = stats.wilcoxon(difference[difference != 0], alternative=alternative)
        assert result.p_value == pytest.approx(expected.pvalue)
        assert result.statistic == pytest.approx(expected.statistic)
    else:
        assert result.p_value == 1.0


def test_wilcoxon_is_exact_by_enumeration_of_signs():
    rng = np.random.default_rng(0)
    y_true = np.repeat(np.arange(8), np.arange(10, 18))
    a = np.where(rng.random(len(y_true)) < 0.8, y_true, rng.integers(8, size=len(y_true)))
    b = np.where(rng.random(len(y_true)) < 0.5, y_true, rng.integers(8, size=len(y_true)))
    difference = metrics.precision_recall_f1(y_true, a).f1 - metrics.precision_recall_f1(y_true, b).f1
    assert len(set(np.abs(difference).round(12))) == 8  # no ties: the exact distribution applies
    ranks = stats.rankdata(np.abs(difference))
    observed = ranks[difference > 0].sum()
    null = [ranks @ np.array(signs) for signs in product([0, 1], repeat=8)]
    expected = np.mean(np.array(null) >= observed)
    assert metrics.wilcoxon_test(y_true, a, b, alternative="greater").p_value == pytest.approx(expected)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_t_test_equals_scipy(alternative):
    a, b = np.random.default_rng(0).normal([[0.1], [0.0]], size=(2, 12))
    ours, theirs = (
        metrics.paired_t_test(a, b, alternative=alternative),
        stats.ttest_rel(a, b, alternative=alternative),
    )
    assert (ours.statistic, ours.p_value) == pytest.approx((theirs.statistic, theirs.pvalue))


def test_t_test_without_spread():
    assert metrics.paired_t_test([1, 2, 3], [1, 2, 3]).p_value == 1.0
    assert metrics.paired_t_test([2, 3, 4], [1, 2, 3]) == (np.inf, 3, 0.0)
    assert metrics.paired_t_test([1, 2], [2, 3], alternative="greater").p_value == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.paired_t_test([1.0], [2.0]), "at least 2 pairs"),
        (lambda: metrics.paired_t_test([1.0, 2.0], [2.0]), "shapes"),
        (lambda: metrics.paired_t_test([1.0, np.nan], [2.0, 1.0]), "finite"),
        (lambda: metrics.paired_t_test([1.0, 2.0], [2.0, 1.0], alternative="more"), "alternative"),
        (lambda: metrics.sign_test([0], [0], [0, 1]), "y_true has 1 rows but pred_b has 2"),
        (lambda: metrics.sign_test([0], [0], [1], unit="class"), "unit"),
        (lambda: metrics.sign_test([0], [0], [1], alternative="more"), "alternative"),
        (lambda: metrics.wilcoxon_test([0], [0], [1], alternative="more"), "alternative"),
        (lambda: metrics.compare([0], {}), "at least one"),
        (lambda: metrics.compare([0], {"flat": [0]}, baseline="flt"), "did you mean 'flat'"),
        (lambda: metrics.compare([0], {"flat": [0, 1]}), r"predictions\['flat'\] has 2"),
    ],
)
def test_bad_input_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Comparison of systems


def systems(n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    y_true = rng.integers(12, size=n_rows)
    noise = rng.integers(12, size=n_rows)
    return y_true, {
        name: np.where(rng.random(n_rows) < share, y_true, noise)
        for name, share in (("poor", 0.3), ("good", 0.9), ("near", 0.89))
    }


def test_comparison_with_the_best_marks_the_worse():
    y_true, predictions = systems()
    table = metrics.compare(y_true, predictions)
    rows = {row[0]: row for row in table}
    best = rows["good"] if rows["good"][1] > rows["near"][1] else rows["near"]
    assert best[2] is None
    assert best[1].mark == ""
    assert rows["poor"][1].mark == rows["poor"][3].mark == "†"
    for name, y_pred in predictions.items():
        assert rows[name][1] == metrics.micro_f1(y_true, y_pred)
        assert rows[name][3] == metrics.macro_f1(y_true, y_pred, labels=range(12))
    against = metrics.sign_test(y_true, predictions[best[0]], predictions["poor"], alternative="greater")
    assert rows["poor"][2] == against.p_value


def test_comparison_with_a_baseline_is_two_sided():
    y_true, predictions = systems()
    rows = {row[0]: row for row in metrics.compare(y_true, predictions, baseline="poor")}
    assert rows["poor"][2] is rows["poor"][4] is None
    assert rows["good"][2] == metrics.sign_test(y_true, predictions["good"], predictions["poor"]).p_value
    expected = metrics.wilcoxon_test(y_true, predictions["good"], predictions["poor"], labels=range(12))
    assert rows["good"][4] == pytest.approx(expected.p_value)
    assert rows["good"][1].mark == expected.mark == "†"


def test_sign_test_keeps_its_level():
    """Two systems of the same quality: p < 5% in at most about 5% of the data sets."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        right = rng.random((2, 60)) < 0.7
        a, b = np.where(right, 0, 1)
        found += metrics.sign_test(np.zeros(60, int), a, b).p_value < 0.05
    assert found <= stats.binom.ppf(0.999, 300, 0.05)


# Bootstrap


def random_labels(form, seed=0):
    rng = np.random.default_rng(seed)
    if form == "single":
        return [rng.choice(list("abcdefgh"), 30) for _ in range(3)]
    matrices = [rng.random((30, 8)) < 0.15 for _ in range(3)]
    if form == "lists":
        return [[np.flatnonzero(row).tolist() for row in matrix] for matrix in matrices]
    return matrices if form == "dense" else [sparse.csr_matrix(matrix) for matrix in matrices]


@pytest.mark.parametrize("form", ["single", "lists", "dense", "sparse"])
@pytest.mark.parametrize("metric", [metrics.micro_f1, metrics.macro_f1])
@pytest.mark.parametrize("paired", [False, True])
def test_vectorised_bootstrap_is_the_plain_one(form, metric, paired, monkeypatch):
    y_true, y_pred, other = random_labels(form)
    options = {"n_resamples": 25, "random_state": 3, "baseline": other if paired else None}
    plain = metrics.bootstrap_interval(partial(metric), y_true, y_pred, **options)
    fast = metrics.bootstrap_interval(metric, y_true, y_pred, **options)
    np.testing.assert_allclose(fast.samples, plain.samples)
    assert fast[:3] == pytest.approx(plain[:3])
    monkeypatch.setattr("arbora.core.chunks.CHUNK_ENTRIES", 100)  # three resamples at a time
    np.testing.assert_allclose(
        metrics.bootstrap_interval(metric, y_true, y_pred, **options).samples, plain.samples
    )


def test_bootstrap_of_accuracy_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        y_pred = (rng.random(150) >= 0.7).astype(int)  # right with probability 0.7
        interval = metrics.bootstrap_interval(
            metrics.micro_f1, np.zeros(150, int), y_pred, n_resamples=300, level=0.9, random_state=seed
        )
        covered += interval.low <= 0.7 <= interval.high
    assert 0.82 <= covered / 200 <= 0.97


def test_pairing_narrows_the_interval_of_a_difference():
    y_true, predictions = systems()
    worse = predictions["good"].copy()
    worse[:20] = -1
    paired = metrics.bootstrap_interval(
        metrics.micro_f1, y_true, predictions["good"], baseline=worse, random_state=0
    )
    alone = metrics.bootstrap_interval(metrics.micro_f1, y_true, predictions["good"], random_state=0)
    assert paired.low > 0
    assert paired.high - paired.low < alone.high - alone.low


def test_bootstrap_of_any_measure():
    y_true, clusters = np.repeat(list("abc"), 20), np.repeat([0, 1, 2, 0], 15)
    interval = metrics.bootstrap_interval(
        normalized_mutual_info_score, y_true, clusters, n_resamples=50, random_state=0
    )
    assert interval.low <= interval.high
    again = metrics.bootstrap_interval(
        normalized_mutual_info_score, y_true, clusters, n_resamples=50, random_state=0
    )
    np.testing.assert_array_equal(interval.samples, again.samples)


def test_basic_interval_is_the_percentile_interval_reflected():
    y_true, y_pred, _ = random_labels("single")
    percentile, basic = (
        metrics.bootstrap_interval(metrics.macro_f1, y_true, y_pred, method=method, random_state=0)
        for method in ("percentile", "basic")
    )
    assert basic.low + percentile.high == pytest.approx(2 * basic.value)
    assert basic.high + percentile.low == pytest.approx(2 * basic.value)


@pytest.mark.parametrize("options", [{"n_resamples": 0}, {"level": 1.0}, {"level": 0}, {"method": "bca"}])
def test_bad_bootstrap_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        metrics.bootstrap_interval(metrics.micro_f1, [0], [0], **options)


# Table


def thesis_table():
    return Table(
        ("Level", "BSVM", "RR-SVM", "gain"),
        ((2, 0.7143, Marked(0.7250, "*"), improvement(0.7250, 0.7143)), (3, float("nan"), 0.4293, None)),
        ("d", "percent", "percent", "gain"),
        title="Table 3.6",
        note="* p < 5%",
    )


def test_table_prints_aligned():
    lines = str(thesis_table()).splitlines()
    assert lines == [
        "Table 3.6",
        "Level   BSVM  RR-SVM      gain",
        "-----  -----  ------  --------",
        "    2  71.43  72.50*  (+1.50%)",
        "    3      -  42.93          -",
        "* p < 5%",
    ]


def test_table_in_markdown():
    blocks = thesis_table().to_markdown().split("\n\n")
    assert blocks[0] == "**Table 3.6**"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in blocks[1].splitlines()]
    assert rows[0] == ["Level", "BSVM", "RR-SVM", "gain"]
    assert rows[2] == ["2", "71.43", "72.50*", "(+1.50%)"]
    assert len({len(line) for line in blocks[1].splitlines()}) == 1
    assert Table(("a|b",), (("x|y",),)).to_markdown().splitlines()[2] == r"| x\|y |"


def test_table_is_data():
    table = thesis_table()
    assert table.to_dict()["BSVM"][0] == 0.7143
    assert json.loads(json.dumps(table.to_dict()))["RR-SVM"] == [0.725, 0.4293]
    assert len(table) == 2
    assert hash(table) == hash(copy.copy(table))
    with pytest.raises(FrozenInstanceError):
        table.title = "other"
    copied = pickle.loads(pickle.dumps(table))
    assert copied.rows[0][2].mark == "*"


def test_empty_table_prints_its_head():
    assert str(Table(("a", "b"), ())) == "a  b\n-  -"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("a", "a"), ()), "distinct"),
        ((("a", "b"), ((1, 2), (1,))), "row 1 has 1 values for 2 columns"),
        ((("a", "b"), (), ("d",)), "2 columns but 1 formats"),
    ],
)
def test_bad_tables_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Table(*arguments)


def test_unknown_column_is_explained():
    with pytest.raises(KeyError, match="did you mean 'Level'"):
        thesis_table().column("Levle")


@quick
@given(value=st.floats(0, 1), baseline=st.floats(0.01, 1))
def test_improvement_inverts(value, baseline):
    assert baseline * (1 + improvement(value, baseline)) == pytest.approx(value, abs=1e-9)
    assert np.isnan(improvement(value, 0.0))
