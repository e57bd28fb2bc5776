"""Mixtures of memory-mapped rows: the same model as in memory, in a fraction of the memory."""

import threading
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from arbora.datasets import make_vmf_mixture
from arbora.discover import (
    BayesianVMFMixture,
    DirichletProcessVMFMixture,
    HierarchicalVMFMixture,
    TemporalVMFMixture,
    VMFMixture,
)
from arbora.discover.mixture.rows import (
    UnitRows,
    fit_bytes,
    is_mapped,
    iter_chunks,
    select_rows,
    unit_rows,
    unit_rows_of_file,
)
from arbora.infer.mixture import loop as mixture
from arbora.infer.mixture import statistics as mixture_stats

EARLY = "ignore::sklearn.exceptions.ConvergenceWarning"


def map_rows(X, folder):
    """Write the arrays of a CSR matrix to files and return the matrix of the mapped files."""
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(X, name))
    parts = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
    return sp.csr_matrix(tuple(parts), shape=X.shape)


def sparse_rows(n_samples, n_features, per_row, seed=0, dtype=np.float64):
    """Rows of a few words, each word from one of three ranges of the vocabulary."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(3, size=n_samples)
    width = n_features // 3
    words = np.sort(rng.integers(width, size=(n_samples, per_row)) + (topic * width)[:, None], axis=1)
    indptr = np.arange(0, n_samples * per_row + 1, per_row)
    data = rng.integers(1, 9, size=words.size).astype(dtype)
    X = sp.csr_array(
        (data, words.ravel().astype(np.int32), indptr.astype(np.int32)), shape=(n_samples, n_features)
    )
    X.sum_duplicates()
    return X, topic


@pytest.fixture
def small_blocks(monkeypatch):
    """Let files be read a few rows at a time."""
    monkeypatch.setattr(mixture_stats, "_NONZEROS_AT_ONCE", 1 << 9)


@pytest.fixture(scope="module")
def data():
    return make_vmf_mixture(600, 8, 4, random_state=0)


def test_rows_in_a_file_equal_rows_in_memory(tmp_path, small_blocks):
    X, _ = sparse_rows(300, 60, 7)
    mapped = sp.csr_array(map_rows(X, tmp_path))
    assert is_mapped(mapped)
    assert not is_mapped(X)
    lazy, in_memory = unit_rows_of_file(mapped), unit_rows(X)
    assert isinstance(lazy, UnitRows)
    assert len(list(iter_chunks(lazy))) > 3
    assert sum(part.stop - part.start for part, _ in iter_chunks(lazy)) == 300
    ids = np.array([5, 250, 17, 17])
    for from_file, expected in [
        (lazy[40:90], in_memory[40:90]),
        (lazy[ids], in_memory[ids]),
        (select_rows(lazy, ids)[1:3], in_memory[ids[1:3]]),
        (lazy.astype(np.float32)[:9], in_memory[:9].astype(np.float32)),
    ]:
        assert from_file.dtype == expected.dtype
        np.testing.assert_array_equal(from_file.toarray(), expected.toarray())


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize(
    "model",
    [
        VMFMixture(3, concentration="own", max_iter=8, tol=5e-7, random_state=0),
        VMFMixture(3, init="random", assignments="hard", max_iter=8, tol=5e-7, random_state=0),
        VMFMixture("auto", max_iter=4, tol=5e-7, random_state=0),
        BayesianVMFMixture(4, max_iter=8, tol=5e-7, random_state=0),
        BayesianVMFMixture(4, batch_size=64, max_iter=3, tol=5e-7, random_state=0),
        DirichletProcessVMFMixture(4, max_iter=8, tol=5e-7, random_state=0),
        TemporalVMFMixture(3, max_iter=4, random_state=0),
        HierarchicalVMFMixture((3,), max_iter=4, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_file_gives_the_same_model_as_memory(tmp_path, small_blocks, model):
    X, _ = sparse_rows(240, 60, 7)
    weight = np.random.default_rng(0).integers(0, 3, 240)
    mapped = map_rows(X, tmp_path)
    in_memory = clone(model).fit(X, sample_weight=weight)
    from_file = clone(model).fit(mapped, sample_weight=weight)
    np.testing.assert_allclose(from_file.means_, in_memory.means_, atol=1e-9)
    np.testing.assert_allclose(from_file.lower_bounds_, in_memory.lower_bounds_, rtol=1e-9)
    np.testing.assert_allclose(from_file.density_quantiles_, in_memory.density_quantiles_, rtol=1e-7)
    np.testing.assert_allclose(from_file.score_samples(mapped), in_memory.score_samples(X), rtol=1e-9)
    np.testing.assert_array_equal(from_file.predict(mapped), in_memory.predict(X))
    first, second = from_file.representatives(mapped), in_memory.representatives(X)
    assert all(np.array_equal(*pair) for pair in zip(first, second, strict=True))


def test_zero_rows_in_files_are_left_out_and_nan_is_refused_by_row(tmp_path, small_blocks):
    X, _ = sparse_rows(200, 60, 7)
    X.data[X.indptr[150] : X.indptr[151]] = 0.0
    model = VMFMixture(2, random_state=0).fit(map_rows(X, tmp_path))
    assert model.n_zero_rows_ == 1
    assert np.flatnonzero(model.predict(map_rows(X, tmp_path)) == -1).tolist() == [150]
    X.data[X.indptr[150]] = np.nan
    with pytest.raises(ValueError, match="contains NaN in row 150"):
        VMFMixture(2).fit(map_rows(X, tmp_path))


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize(
    "model", [VMFMixture(3), BayesianVMFMixture(3)], ids=lambda model: type(model).__name__
)
def test_a_fit_takes_a_fraction_of_the_file(tmp_path, monkeypatch, model):
    """Of 6 MB; the entries in double precision alone would be 4."""
    X, _ = sparse_rows(10_000, 600, 60)
    mapped, n_bytes = map_rows(X, tmp_path), X.data.nbytes + X.indices.nbytes
    monkeypatch.setattr(mixture_stats, "_NONZEROS_AT_ONCE", 1 << 14)
    model.set_params(max_iter=2, n_jobs=1, random_state=0, calibration=None)  # which has 4,000 rows in memory
    model.fit(mapped[:100])  # kernels are compiled
    estimate = fit_bytes(unit_rows_of_file(sp.csr_array(mapped)), 3, np.float32, 1)
    tracemalloc.start()
    try:
        model.fit(mapped).predict(mapped)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.4 * n_bytes
    assert peak < estimate < 4 * peak


@pytest.mark.filterwarnings(EARLY)
def test_rows_in_files_are_sampled_too(data, tmp_path):
    X, weight = sp.csr_array(data.X_train), np.ones(600)
    weight[::50] = 0
    arguments = {"n_components": 4, "inference": "gibbs", "random_state": 0}
    arguments["sampling"] = {"n_warmup": 5, "n_samples": 5}
    here = BayesianVMFMixture(**arguments).fit(X, sample_weight=weight)
    there = BayesianVMFMixture(**arguments).fit(map_rows(X, tmp_path), sample_weight=weight)
    assert there.responsibilities_.shape == (600, 4)
    np.testing.assert_allclose(there.responsibilities_.sum(axis=1), 1.0)
    assert adjusted_rand_score(there.responsibilities_.argmax(1), here.responsibilities_.argmax(1)) > 0.95


@pytest.mark.filterwarnings(EARLY)
def test_the_memory_estimate_counts_parallel_starts(monkeypatch):
    """Each has matrices and responsibilities of its own; all are made to be there at the same time."""
    X, _ = sparse_rows(3000, 4000, 20)
    estimate = [fit_bytes(X, 40, np.float32, 2, n_runs) for n_runs in (1, 2)]
    together, e_step = threading.Barrier(2), mixture.e_step

    def meet(*arguments):
        from_file = e_step(*arguments)
        together.wait(timeout=60)
        return from_file

    options = {"n_init": 2, "n_jobs": 2, "max_iter": 2, "init": "random", "random_state": 0}
    model = VMFMixture(40, calibration=None, **options).fit(X[:100])
    monkeypatch.setattr(mixture, "e_step", meet)
    tracemalloc.start()
    try:
        model.fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert estimate[0] < estimate[1]
    assert peak < estimate[1] < 4 * peak


def test_a_fit_that_exceeds_memory_is_refused_before_it_starts(data, monkeypatch):
    monkeypatch.setattr("arbora.core.chunks.available_memory", lambda: 1000)
    with pytest.raises(
        MemoryError, match=r"n_components=3 for 600 rows of 8 features needs .* memory-mapped rows"
    ):
        VMFMixture(3).fit(data.X_train)
