"""More documents than memory: rows that stay in their files, and mixtures that learn from batch after batch."""

import threading
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from arbora import io
from arbora.datasets import make_vmf_mixture
from arbora.discover import (
    BayesianVMFMixture,
    DirichletProcessVMFMixture,
    HierarchicalVMFMixture,
    TemporalVMFMixture,
    VMFMixture,
)
from arbora.discover._mixture.memory_mapped import UnitRows, fit_bytes, is_mapped, iter_chunks, select_rows
from arbora.discover._mixture.rows import unit_rows, unit_rows_of_file
from arbora.infer.mixture import loop as mixture
from arbora.infer.mixture import statistics as mixture_stats
from arbora.infer.mixture.loop import blend
from arbora.infer.mixture.statistics import Stats
from arbora.metrics import adjusted_rand_index

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


def test_rows_of_a_file_are_those_in_memory(tmp_path, small_blocks):
    X, _ = sparse_rows(300, 60, 7)
    mapped = sp.csr_array(map_rows(X, tmp_path))
    assert is_mapped(mapped)
    assert not is_mapped(X)
    lazy, known = unit_rows_of_file(mapped), unit_rows(X)
    assert isinstance(lazy, UnitRows)
    assert len(list(iter_chunks(lazy))) > 3
    assert sum(part.stop - part.start for part, _ in iter_chunks(lazy)) == 300
    ids = np.array([5, 250, 17, 17])
    for found, expected in [
        (lazy[40:90], known[40:90]),
        (lazy[ids], known[ids]),
        (select_rows(lazy, ids)[1:3], known[ids[1:3]]),
        (lazy.astype(np.float32)[:9], known[:9].astype(np.float32)),
    ]:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.toarray(), expected.toarray())


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize(
    "model",
    [
        VMFMixture(3, concentration="own", max_iter=8, dtype="float64", random_state=0),
        VMFMixture(3, init="random", assignments="hard", max_iter=8, dtype="float64", random_state=0),
        VMFMixture("auto", max_iter=4, dtype="float64", random_state=0),
        BayesianVMFMixture(4, max_iter=8, dtype="float64", random_state=0),
        BayesianVMFMixture(4, batch_size=64, max_iter=3, dtype="float64", random_state=0),
        DirichletProcessVMFMixture(4, max_iter=8, dtype="float64", random_state=0),
        TemporalVMFMixture(3, max_iter=4, random_state=0),
        HierarchicalVMFMixture(branching=(3,), max_iter=4, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_file_gives_the_same_model_as_memory(tmp_path, small_blocks, model):
    X, _ = sparse_rows(240, 60, 7)
    weight = np.random.default_rng(0).integers(0, 3, 240)
    mapped = map_rows(X, tmp_path)
    known = clone(model).fit(X, sample_weight=weight)
    found = clone(model).fit(mapped, sample_weight=weight)
    np.testing.assert_allclose(found.means_, known.means_, atol=1e-9)
    np.testing.assert_allclose(found.lower_bounds_, known.lower_bounds_, rtol=1e-9)
    np.testing.assert_allclose(found.density_quantiles_, known.density_quantiles_, rtol=1e-7)
    np.testing.assert_allclose(found.score_samples(mapped), known.score_samples(X), rtol=1e-9)
    np.testing.assert_array_equal(found.predict(mapped), known.predict(X))
    first, second = found.representatives(mapped), known.representatives(X)
    assert all(np.array_equal(*pair) for pair in zip(first, second, strict=True))


def test_zero_rows_and_values_that_are_no_numbers_are_found_in_files(tmp_path, small_blocks):
    X, _ = sparse_rows(200, 60, 7)
    X.data[X.indptr[150] : X.indptr[151]] = 0.0
    with pytest.raises(ValueError, match="X is zero in row 150"):
        VMFMixture(2).fit(map_rows(X, tmp_path))
    X.data[X.indptr[150]] = np.nan
    with pytest.raises(ValueError, match="contains NaN in row 150"):
        VMFMixture(2).fit(map_rows(X, tmp_path))


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize(
    "model", [VMFMixture(3), BayesianVMFMixture(3, annealing_steps=2)], ids=lambda model: type(model).__name__
)
def test_a_fit_takes_a_fraction_of_the_file(tmp_path, monkeypatch, model):
    """Of 6 MB; the entries in double precision alone would be 4."""
    X, _ = sparse_rows(10_000, 600, 60)
    mapped, n_bytes = map_rows(X, tmp_path), X.data.nbytes + X.indices.nbytes
    monkeypatch.setattr(mixture_stats, "_NONZEROS_AT_ONCE", 1 << 14)
    model.set_params(max_iter=2, n_jobs=1, random_state=0)
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
    arguments = {"n_components": 4, "inference": "gibbs", "n_warmup": 5, "n_samples": 5, "random_state": 0}
    here = BayesianVMFMixture(**arguments).fit(X, sample_weight=weight)
    there = BayesianVMFMixture(**arguments).fit(map_rows(X, tmp_path), sample_weight=weight)
    assert there.responsibilities_.shape == (600, 4)
    np.testing.assert_allclose(there.responsibilities_.sum(axis=1), 1.0)
    assert adjusted_rand_index(there.responsibilities_.argmax(1), here.responsibilities_.argmax(1)) > 0.95


@pytest.mark.filterwarnings(EARLY)
def test_starts_that_run_side_by_side_are_counted(monkeypatch):
    """Each has matrices and responsibilities of its own; all are made to be there at the same time."""
    X, _ = sparse_rows(3000, 4000, 20)
    estimate = [fit_bytes(X, 40, np.float32, 2, n_runs) for n_runs in (1, 2)]
    together, e_step = threading.Barrier(2), mixture.e_step

    def meet(*arguments):
        found = e_step(*arguments)
        together.wait(timeout=60)
        return found

    model = VMFMixture(40, n_init=2, n_jobs=2, max_iter=2, init="random", random_state=0).fit(X[:100])
    monkeypatch.setattr(mixture, "e_step", meet)
    tracemalloc.start()
    try:
        model.fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert estimate[0] < estimate[1]
    assert peak < estimate[1] < 4 * peak


def test_memory_that_there_is_not_is_refused_before_the_fit(data, monkeypatch):
    monkeypatch.setattr("arbora.core.memory.available_memory", lambda: 1000)
    with pytest.raises(
        MemoryError, match=r"n_components=3 for 600 rows of 8 features needs .* memory-mapped rows"
    ):
        VMFMixture(3).fit(data.X_train)


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize("kind", [VMFMixture, BayesianVMFMixture])
def test_the_first_step_with_all_rows_is_the_update_of_a_fit(data, kind):
    model = kind(4, init=data.truth.means, dtype="float64", tol=0.0, max_iter=2)  # one update and its bound
    known, found = clone(model).fit(data.X_train), clone(model).partial_fit(data.X_train)
    for name in ("means_", "concentrations_", "weights_", "density_quantiles_"):
        np.testing.assert_allclose(getattr(found, name), getattr(known, name), rtol=1e-9, atol=1e-12)
    assert found.lower_bounds_[0] == pytest.approx(known.lower_bounds_[0], rel=1e-12)


def test_steps_blend_statistics_as_robbins_and_monro_ask(data):
    """By hand: the statistics of two batches, and the update that belongs to them."""
    parts = data.X_train[:200], data.X_train[200:500]
    model = VMFMixture(4, init=data.truth.means, dtype="float64").partial_fit(parts[0])
    resp = model.predict_proba(parts[1])
    rate = 2.0**-0.7
    counts = (1 - rate) * model.stream_counts_ + rate * resp.sum(axis=0) / 300
    sums = (1 - rate) * model.stream_sums_ + rate * parts[1].T @ resp / 300
    model.partial_fit(parts[1])
    np.testing.assert_allclose(model.weights_, counts, rtol=1e-9)
    np.testing.assert_allclose(model.means_, (sums / np.linalg.norm(sums, axis=0)).T, rtol=1e-9)
    assert model.seen_weight_ == 500
    one = Stats(np.ones(1), np.ones((1, 1)))
    rates = np.array(
        [blend(Stats(np.zeros(1), np.zeros((1, 1))), one, 1.0, t).counts[0] for t in range(10**4)]
    )
    assert rates[0] == 1
    assert rates.sum() > 30  # grows without end
    assert np.sum(rates**2) < 4  # does not


@pytest.mark.filterwarnings(EARLY)
@pytest.mark.parametrize("kind", [VMFMixture, BayesianVMFMixture])
def test_batches_find_what_all_rows_at_once_find(kind):
    data = make_vmf_mixture(3000, 20, 4, random_state=1)
    X, truth = data.X_train, data.truth.components
    whole = kind(4, random_state=0).fit(X)
    streamed = kind(4, random_state=0)
    for _ in range(3):
        for first in range(0, 3000, 300):
            streamed.partial_fit(X[first : first + 300], total_samples=3000)
    batches = kind(4, batch_size=300, max_iter=3, random_state=0).fit(X)
    for model in (streamed, batches):
        gap = adjusted_rand_index(truth, whole.predict(X)) - adjusted_rand_index(truth, model.predict(X))
        assert gap < 0.02
        assert model.score(X) == pytest.approx(whole.score(X), abs=0.05)
    assert abs(np.mean(streamed.is_novel(X)) - 0.05) < 0.05


def test_a_stream_is_saved_and_ended_by_a_fit(data, tmp_path):
    model = BayesianVMFMixture(4, random_state=0)
    model.partial_fit(data.X_train[:300])
    io.save(model, tmp_path / "model")
    loaded = io.load(tmp_path / "model")
    for each in (model, loaded):
        each.partial_fit(data.X_train[300:])
    np.testing.assert_array_equal(loaded.means_, model.means_)
    assert len(model.trace_) == len(model.lower_bounds_) == model.n_iter_ == 2
    model.fit(data.X_train)
    assert not hasattr(model, "stream_sums_")


def test_what_cannot_stream_says_so(data):
    for kind in (TemporalVMFMixture, HierarchicalVMFMixture):
        assert not hasattr(kind(), "partial_fit")
    with pytest.raises(ValueError, match="'auto' holds rows out"):
        VMFMixture("auto").partial_fit(data.X_train)
    with pytest.raises(ValueError, match="total_samples must be"):
        VMFMixture(2).partial_fit(data.X_train, total_samples=0)
    with pytest.raises(ValueError, match="n_samples=3 rows cannot fill n_components=4"):
        VMFMixture(4).partial_fit(data.X_train[:3])
