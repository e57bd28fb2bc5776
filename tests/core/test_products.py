"""Sparse products against scipy."""

import numpy as np
import pytest
import scipy.sparse as sp

from arbora.core.products import csr_matmul, csr_matmul_sparse, is_small, small_product
from arbora.engine import ThreadEngine

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def random_csr(shape, density, dtype, index_dtype=np.int32, seed=0):
    X = sp.random_array(shape, density=density, format="csr", rng=np.random.default_rng(seed), dtype=dtype)
    X.indices, X.indptr = X.indices.astype(index_dtype), X.indptr.astype(index_dtype)
    return X


@DTYPES
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("n_columns", [1, 33])
@pytest.mark.parametrize(
    ("shape", "density"),
    [
        ((50, 30), 0.1),
        ((50, 30), 1.0),
        ((1, 30), 0.5),
        ((50, 1), 0.5),
        ((50, 30), 0.0),
        ((0, 5), 0.0),
        ((4, 0), 0.0),
    ],
)
def test_product_equals_scipy(dtype, index_dtype, n_columns, shape, density):
    X = random_csr(shape, density, dtype, index_dtype)
    W = np.random.default_rng(1).standard_normal((shape[1], n_columns)).astype(dtype)
    product = csr_matmul(X, W)
    assert product.dtype == dtype
    np.testing.assert_allclose(product, X.astype(float) @ W.astype(float), atol=50 * np.finfo(dtype).eps)


def test_product_with_rows_of_every_length_and_unsorted_indices():
    """Rows of 0 to 12 entries pass through the loop over fours and its remainder."""
    rng = np.random.default_rng(0)
    indices = [rng.permutation(12)[:length] for length in range(13)]
    indptr = np.cumsum([0, *map(len, indices)])
    X = sp.csr_array((rng.standard_normal(indptr[-1]), np.concatenate(indices), indptr), shape=(13, 12))
    assert not X.has_sorted_indices
    W = rng.standard_normal((12, 5))
    np.testing.assert_allclose(csr_matmul(X, W), X.toarray() @ W, atol=1e-14)


@DTYPES
def test_product_does_not_depend_on_threads(dtype):
    X = random_csr((5000, 40), 0.2, dtype)  # three chunks of rows
    W = np.random.default_rng(1).standard_normal((40, 17)).astype(dtype)
    alone = csr_matmul(X, W)
    for n_jobs in (1, 2):
        np.testing.assert_array_equal(csr_matmul(X, W, ThreadEngine(n_jobs)), alone)


def test_product_accepts_strided_weights_and_writes_into_out():
    X = random_csr((20, 6), 0.5, np.float64)
    W = np.random.default_rng(1).standard_normal((8, 12)).T[::2]
    out = np.full((20, 8), np.nan)
    assert csr_matmul(X, W, out=out) is out
    np.testing.assert_allclose(out, X @ W, atol=1e-14)


def test_product_works_in_the_precision_of_the_weights():
    X = random_csr((20, 6), 0.5, np.float64)
    assert csr_matmul(X, np.ones((6, 2), np.float32)).dtype == np.float32
    counts = sp.csr_array(np.array([[0, 3], [1, 0]]))
    np.testing.assert_array_equal(csr_matmul(counts, np.array([[0.5], [2.0]])), [[6.0], [0.5]])


@pytest.mark.parametrize(
    ("X", "W", "out", "message"),
    [
        (sp.csr_array((3, 4)), np.ones((5, 2)), None, "X has 4 columns but W has 5 rows"),
        (sp.csc_array((3, 4)), np.ones((4, 2)), None, "got CSC"),
        (sp.csr_array((3, 4)), np.ones(4), None, "1 dimensions"),
        (sp.csr_array((3, 4)), np.ones((4, 2), int), None, "int64"),
        (
            sp.csr_array((3, 4)),
            np.ones((4, 2)),
            np.empty((2, 2)),
            r"out has shape \(2, 2\), but the product has shape \(3, 2\)",
        ),
    ],
)
def test_product_refuses_shapes_and_types_that_do_not_fit(X, W, out, message):
    with pytest.raises(ValueError, match=message):
        csr_matmul(X, W, out=out)


@DTYPES
def test_sparse_product_equals_scipy_for_any_number_of_threads(dtype):
    X, W = random_csr((5000, 40), 0.2, dtype), random_csr((40, 17), 0.3, dtype, seed=1)
    product = csr_matmul_sparse(X, W)
    np.testing.assert_allclose(product, (X @ W).toarray(), rtol=50 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(csr_matmul_sparse(X, W, ThreadEngine(2)), product)


@DTYPES
def test_small_products_agree_with_the_kernels(dtype):
    X = random_csr((20, 30), 0.3, np.float64)
    W = np.random.default_rng(1).standard_normal((30, 7)).astype(dtype)
    W[np.abs(W) < 0.5] = 0
    tolerance = {"atol": 50 * np.finfo(dtype).eps}
    for small, large in (
        (small_product(X, W), csr_matmul(X, W)),
        (small_product(X, sp.csr_array(W)), csr_matmul_sparse(X, sp.csr_array(W))),
    ):
        assert small.dtype == dtype
        np.testing.assert_allclose(small, large, **tolerance)
    with pytest.raises(ValueError, match="X has 30 columns but W has 7 rows"):
        small_product(X, W.T)


def test_a_product_is_small_by_its_size_alone():
    X = random_csr((20, 30), 0.3, np.float64)
    assert is_small(X, 1000)
    assert not is_small(X, 10**6)
    assert not is_small(random_csr((100, 30), 0.3, np.float64), 1)
