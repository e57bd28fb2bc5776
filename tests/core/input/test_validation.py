"""Validation of feature matrices: what is refused, where the error points, and what is left as it is."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from arbora.classify import OneVsRestSVC
from arbora.core.validation import check_features, check_not_above, check_not_negative, check_rows
from arbora.discover import VMFMixture
from arbora.text import LtcTransformer

CONTAINERS = [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array]


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_values_that_are_not_finite_are_reported_by_row_and_column(container, value, word):
    X = np.eye(9)
    X[4, 2], X[[6, 7, 8], 0] = value, np.nan
    message = rf"X contains {word} in row 4, column 2 \(wrong rows: 4, 6, 7, 8\)\. BaseEstimator needs finite"
    for check in (check_features, check_rows):
        with pytest.raises(ValueError, match=message):
            check(BaseEstimator(), container(X), reset=True)


def test_all_estimators_report_alike():
    X = np.eye(6)
    X[3, 5] = np.nan
    for model in (OneVsRestSVC(), VMFMixture(2), LtcTransformer()):
        name = type(model).__name__
        with pytest.raises(ValueError, match=rf"X contains NaN in row 3, column 5\. {name} needs finite"):
            model.fit(X, np.arange(6) % 2)


def test_entries_are_found_in_every_chunk(monkeypatch):
    monkeypatch.setattr("arbora.core.chunks.CHUNK_ENTRIES", 7)
    X = np.ones((30, 3))
    X[[2, 13, 29], 1] = np.inf
    for rows in (X, sp.csr_array(X)):
        with pytest.raises(ValueError, match=r"infinity in row 2, column 1 \(wrong rows: 2, 13, 29\)"):
            check_features(BaseEstimator(), rows, reset=True)


def test_long_lists_of_rows_are_cut_short():
    with pytest.raises(ValueError, match="wrong rows: 0, 1, 2, 3, 4 and 15 more"):
        check_rows(BaseEstimator(), np.full((20, 2), np.nan), reset=True)


def test_finite_values_whose_sum_overflows_pass():
    X = np.full((4, 2), 1e308)
    np.testing.assert_array_equal(check_features(BaseEstimator(), X, reset=True), X)


def damage(name, place, value):
    X = sp.csr_array(np.eye(4))
    getattr(X, name)[place] = value
    return X


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (damage("indices", 1, 4), "entry in column 4"),
        (damage("indices", 1, -1), "entry in column -1"),
        (damage("indices", 1, 99).T, "entry in row 99"),
        (damage("indptr", 2, 0), "indptr has 5 entries that do not rise"),
        (damage("indptr", 4, 9), "indptr ends at 9, beyond its 4 indices"),
    ],
)
def test_index_arrays_that_point_outside_are_refused(X, message):
    for check in (check_features, check_rows):
        with pytest.raises(ValueError, match=f"X is damaged.*{message}"):
            check(BaseEstimator(), X, reset=True)


def test_the_number_of_features_is_set_once_and_compared_afterwards():
    model = BaseEstimator()
    check_rows(model, np.eye(3), reset=True)
    with pytest.raises(ValueError, match="2 features, but BaseEstimator is expecting 3"):
        check_rows(model, np.eye(2), reset=False)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        check_rows(model, np.ones((3, 1)), reset=True, min_features=2)


def test_rows_are_canonical_and_the_input_is_left_alone():
    X = sp.csr_array((np.ones(3), np.array([1, 0, 1]), np.array([0, 3, 3])), shape=(2, 2))
    result = check_rows(BaseEstimator(), X, reset=True)
    assert result.has_canonical_format
    np.testing.assert_array_equal(result.toarray(), [[1.0, 2.0], [0.0, 0.0]])
    assert X.indices.tolist() == [1, 0, 1]


def test_canonical_rows_are_not_copied():
    X = sp.csr_array(np.eye(3, dtype=np.float32))
    result = check_rows(BaseEstimator(), X, reset=True)
    assert np.shares_memory(result.data, X.data)
    assert np.shares_memory(result.indices, X.indices)


def test_rules_of_sign_and_size_name_the_entry():
    X = sp.csr_array([[0.0, 2.0], [-3.0, 1e40]])
    with pytest.raises(
        ValueError, match=r"contains -3 in row 1, column 0\. Negative values in data .* Use counts\."
    ):
        check_not_negative(X, "Counter", "Use counts")
    with pytest.raises(ValueError, match=r"contains 1e\+40, above 1e\+30, in row 1, column 1\. Divide X\."):
        check_not_above(X, 1e30, "Divide X")
