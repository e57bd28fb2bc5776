"""Small kernels of a visit of a block, against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.kernels.linear.accumulate import count_walks, fill_costs
from arbora.kernels.linear.coupled import mark_movable
from arbora.kernels.triples import to_triples


@pytest.mark.parametrize("some", [False, True], ids=["all rows", "some rows"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_costs_equal_numpy(dtype, some):
    rng = np.random.default_rng(0)
    positives = sp.random_array((50, 7), density=0.2, rng=rng, format="csc")
    row_cost, weight = rng.random(50), rng.random(7)
    ids = np.flatnonzero(rng.random(50) < 0.4) if some else np.arange(50)
    out = np.empty((len(ids), 4), dtype)
    fill_costs(positives.indptr, positives.indices, 2, row_cost, weight, ids, out)
    want = np.where(positives.toarray() > 0, row_cost[:, None] * weight, -row_cost[:, None])[ids, 2:6]
    np.testing.assert_allclose(out, want.astype(dtype), rtol=1e-6)


def test_walks_are_counted():
    rng = np.random.default_rng(0)
    indptr = np.cumsum([0, *rng.integers(0, 5, 20)])
    pairs = sorted(
        (int(i), int(g)) for i, g in zip(rng.integers(0, 20, 60), rng.integers(0, 3, 60), strict=True)
    )
    rows, group = np.array(pairs).T
    length = np.diff(indptr)
    once, each = count_walks(indptr, rows, group)
    assert once == length[np.unique(rows)].sum()
    assert each == sum(length[i] for i, _ in set(pairs))


def test_rows_that_are_listed_or_have_a_multiplier_are_marked():
    active, n_active, mask = np.array([[3, 1, 9], [0, 4, 9]], np.int32), np.array([2, 1]), np.zeros(6, bool)
    A = np.zeros((6, 2))
    A[5, 1] = 0.5
    mark_movable(active, n_active, A, mask)
    assert np.flatnonzero(mask).tolist() == [0, 1, 3, 5]


@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_triples_are_the_non_zeros(density):
    rng = np.random.default_rng(0)
    A = rng.random((30, 5)) * (rng.random((30, 5)) < density)
    sign, ids = np.copysign(1.0, rng.standard_normal((30, 5))), np.arange(30) * 2
    A[4] = 0
    rows, columns, values = to_triples(A, sign, ids, np.delete(np.arange(30), 4))
    at = np.nonzero(A)
    np.testing.assert_array_equal(rows, ids[at[0]])
    np.testing.assert_array_equal(columns, at[1])
    np.testing.assert_array_equal(values, (A * sign)[at])
