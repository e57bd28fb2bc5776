"""Features in the order of their frequency: the same problem, and the same model for the caller."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.classify import OneVsRestSVC, RecursiveSVC
from arbora.infer.linear import rows as row_views
from arbora.infer.linear.rows import prepare_rows, view_by_frequency
from arbora.structure import Hierarchy


def wide_rows(n_rows=120, n_features=5000):
    """Rows in single precision, which are not copied, with six classes and features that do not occur."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, n_rows)
    columns = np.hstack([17 * y[:, None] + [4000, 3], rng.zipf(1.5, (n_rows, 8)) % 4500])
    entries = np.ones(columns.size, np.float32), columns.ravel(), np.arange(n_rows + 1) * 10
    X = sp.csr_array(entries, shape=(n_rows, n_features))
    X.sum_duplicates()
    X.data *= rng.random(X.nnz, np.float32)
    return X, y


def test_frequent_features_come_first_and_rows_are_the_same():
    X, _ = wide_rows()
    before = X.toarray()
    view = view_by_frequency(prepare_rows(X))
    counts = np.bincount(X.indices, minlength=5000)
    assert (np.diff(counts[view.features[:-1]]) <= 0).all()
    assert set(view.features[:-1]) == set(np.flatnonzero(counts))
    assert view.features[-1] == 5000
    indptr, indices, data = view.rows[:3]
    ranked = sp.csr_array((data, indices, indptr), shape=(120, view.rows.n_features))
    assert ranked.has_sorted_indices
    np.testing.assert_array_equal(ranked.toarray(), before[:, view.features[:-1]])
    np.testing.assert_array_equal(X.toarray(), before)  # the rows of the caller are not sorted in place


@pytest.mark.parametrize(
    "model",
    [
        OneVsRestSVC(1.0, tol=9e-7, max_iter=2000, random_state=0),
        RecursiveSVC(1.0, tol=9e-7, max_iter=2000, random_state=0),
        RecursiveSVC(1.0, tol=9e-7, max_iter=2000, random_state=0, prune_below=0.0),
    ],
    ids=["flat", "recursive", "pruned"],
)
def test_models_have_the_features_of_the_caller(model, monkeypatch):
    X, y = wide_rows()
    tree = Hierarchy.from_edges([("root", p) for p in "ab"] + [("ab"[k % 2], k) for k in range(6)])
    model = model.set_params(calibration=None, structure=tree)
    result = model.fit(X, y).decision_function(X)
    monkeypatch.setattr(row_views, "_FEW_FEATURES", 10**6)
    np.testing.assert_allclose(result, model.fit(X, y).decision_function(X), atol=1e-2)
