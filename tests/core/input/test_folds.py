"""Folds and held-out rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import StratifiedKFold

from arbora.core.folds import DEFAULT_FOLDS, cv_splits, deal_folds, group_codes, hold_out, stratified_folds


def test_a_share_of_every_class_is_held_out_and_never_all_of_it():
    y = np.array(["a"] * 100 + ["b"] * 4 + ["c"], dtype=object)
    counts = np.zeros(3)
    for seed in range(200):
        marked = hold_out(y, 0.2, np.random.default_rng(seed))
        counts += [marked[y == name].sum() for name in "abc"]
    assert counts[0] == 200 * 20
    assert counts[2] == 0
    assert abs(counts[1] / 200 - 0.8) < 0.15  # 0.8 of a row is rounded at random; 5 standard errors
    assert hold_out(np.array(["a", "a", "b"], object), 0.1, np.random.default_rng(3)).sum() == 1
    assert hold_out([["a"], ["b"], []] * 10, 0.2, np.random.default_rng(0)).sum() == 6


def test_every_fold_has_its_share_of_every_class():
    y = np.random.default_rng(0).integers(5, size=103)
    for folds in (
        deal_folds(group_codes(y), 4, np.random.default_rng(1)),
        stratified_folds(sp.csr_array(np.eye(5)[y]), 4, seed=1),
    ):
        for label in range(5):
            counts = np.bincount(folds[y == label], minlength=4)
            assert counts.max() - counts.min() <= 1
        assert np.ptp(np.bincount(folds)) <= 1


def test_label_sets_are_dealt_by_their_rarest_label():
    Y = sp.csr_array(np.array([[1, 1]] * 6 + [[1, 0]] * 9 + [[0, 0]] * 3))
    folds = stratified_folds(Y, 3, seed=0)
    assert np.bincount(folds[:6]).tolist() == [2, 2, 2]
    assert np.bincount(folds[6:15]).tolist() == [3, 3, 3]


def test_no_cv_is_the_default_number_of_folds():
    Y, counts = sp.csr_array(np.eye(2)[np.arange(12) % 2]), np.arange(12) > 0
    for ours, same in zip(cv_splits(None, Y, counts, 0), cv_splits(DEFAULT_FOLDS, Y, counts, 0), strict=True):
        for left, right in zip(ours, same, strict=True):
            np.testing.assert_array_equal(left, right)
            assert 0 not in left  # it does not count


def test_splitters_split_all_rows_and_drop_those_that_do_not_count():
    y = np.arange(12) % 2
    counts = np.arange(12) != 5
    result = cv_splits(StratifiedKFold(3), sp.csr_array(np.eye(2)[y]), counts, 0)
    for (train, test), (all_train, all_test) in zip(
        result, StratifiedKFold(3).split(np.zeros(12), y), strict=True
    ):
        assert train.tolist() == [row for row in all_train if row != 5]
        assert test.tolist() == [row for row in all_test if row != 5]
    with pytest.raises(ValueError, match="cv=20 folds need at least as many rows, got 11"):
        cv_splits(20, sp.csr_array(np.eye(2)[y]), counts, 0)
