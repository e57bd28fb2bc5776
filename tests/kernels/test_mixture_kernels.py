"""The E-step kernel against a NumPy twin, and the loops around it."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

from arbora.core.monitor import Progress
from arbora.engine import ThreadEngine
from arbora.infer.mixture import statistics as mixture_stats
from arbora.infer.mixture.loop import MixtureModel, Schedule, best_of, run
from arbora.infer.mixture.statistics import (
    LinearScores,
    Stats,
    WeightedRows,
    e_step,
    local,
    mixed_columns,
    row_chunks,
)


def random_rows(n_samples=40, n_features=7, density=0.5, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n_samples, n_features), density=density, format="csr", rng=rng, dtype=np.float64)
    return WeightedRows(X.astype(dtype), rng.uniform(0.5, 2.0, n_samples).astype(dtype))


def random_scores(n_features=7, n_components=5, temperature=1.0, seed=1):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n_features, n_components))
    return LinearScores(
        W, rng.standard_normal(n_components) + 1e5, temperature, rng.uniform(0.5, 2.0, n_components)
    )


def twin(scores, rows):
    """Responsibilities of all rows at once."""
    X, weight = rows.X.toarray().astype(float), rows.weight.astype(float)
    top = scores.offset.max()
    S = X @ scores.weights * scores.scale + (scores.offset - top)
    if scores.temperature == 0:
        value, resp = S.max(axis=1), np.eye(S.shape[1])[S.argmax(axis=1)]
    else:
        value = scores.temperature * logsumexp(S / scores.temperature, axis=1)
        resp = softmax(S / scores.temperature, axis=1)
    resp = resp * weight[:, None]
    return Stats(resp.sum(axis=0), X.T @ resp), weight @ value + top * weight.sum()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("n_samples", "density"), [(40, 0.5), (40, 1.0), (1, 0.7), (6, 0.0)])
def test_statistics_equal_those_of_the_twin(dtype, temperature, n_samples, density):
    """Rows of zeros, single rows and full ones; large offsets cost no precision, for their maximum is taken out."""
    rows, scores = (
        random_rows(n_samples, density=density, dtype=dtype),
        random_scores(temperature=temperature),
    )
    (counts, sums), bound = local(scores, rows, slice(0, n_samples))
    (counts_twin, sums_twin), bound_twin = twin(scores, rows)
    rtol = 1e-4 if dtype == np.float32 else 1e-12
    assert sums.dtype == dtype
    np.testing.assert_allclose(counts, counts_twin, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(sums, sums_twin, rtol=rtol, atol=rtol)
    weight = rows.weight.sum(dtype=float)
    np.testing.assert_allclose(bound - 1e5 * weight, bound_twin - 1e5 * weight, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("many", [0, 100])
def test_table_of_rows_gives_the_same_statistics(dtype, temperature, many, monkeypatch):
    monkeypatch.setattr(mixture_stats, "_MANY_FEATURES", many)
    rows, scores = random_rows(300, dtype=dtype), random_scores(temperature=temperature)
    prepared = Schedule(0.0, 1, (temperature,)).prepare(rows, 5)
    assert prepared.table is not None
    assert np.all(np.diff(np.diff(prepared.table.transposed.indptr)) <= 0) == (many == 0)
    (counts, sums), bound = e_step(scores, prepared, ThreadEngine(2))
    (counts_twin, sums_twin), bound_twin = twin(scores, rows)
    rtol = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(counts, counts_twin, rtol=rtol)
    np.testing.assert_allclose(sums, sums_twin, rtol=rtol)
    assert bound == pytest.approx(bound_twin, rel=1e-7 if dtype == np.float32 else 1e-13)
    assert Schedule(0.0, 1, (0.0,)).prepare(rows, 5).table is None
    assert Schedule(0.0, 1, batch_size=10).prepare(rows, 5).table is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mixed_columns_equal_those_of_the_twin(dtype):
    rng = np.random.default_rng(0)
    S, scale, shift = rng.standard_normal((50, 3)).astype(dtype), rng.random(3), rng.standard_normal(50)
    mixed, squares = mixed_columns(S, scale, shift)
    twin = S * scale + shift[:, None]
    assert mixed.dtype == dtype
    np.testing.assert_allclose(mixed, twin, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(squares, (twin**2).sum(axis=0), rtol=1e-5)


def test_order_of_the_indices_does_not_matter():
    rows, scores = random_rows(), random_scores()
    X = rows.X.copy()
    for i in range(X.shape[0]):
        part = slice(X.indptr[i], X.indptr[i + 1])
        X.indices[part], X.data[part] = X.indices[part][::-1].copy(), X.data[part][::-1].copy()
    one, other = local(scores, rows, slice(0, 40)), local(scores, WeightedRows(X, rows.weight), slice(0, 40))
    np.testing.assert_allclose(one[0].sums, other[0].sums, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("prepared", [False, True])
def test_sparse_responsibilities_give_the_same_statistics(dtype, prepared, monkeypatch):
    """Few are not zero; one component is empty, and one row has no entries."""
    rows, scores = random_rows(300, dtype=dtype), random_scores(n_components=12)
    rows.X.data[rows.X.indptr[7] : rows.X.indptr[8]] = 0
    scores.offset[3] -= 1e6
    scores = scores._replace(weights=1000 * scores.weights)
    (counts_twin, sums_twin), bound_twin = twin(scores, rows)
    assert counts_twin[3] == 0
    monkeypatch.setattr(mixture_stats, "sum_shares", None)  # not by the dense product
    monkeypatch.setattr(mixture_stats, "_MANY_FEATURES", 3)
    rows = rows.with_table() if prepared else rows
    found = [e_step(scores, rows, ThreadEngine(n)) for n in (1, 2)]
    np.testing.assert_array_equal(found[0][0].sums, found[1][0].sums)
    (counts, sums), bound = found[0]
    rtol = 1e-3 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(counts, counts_twin, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(sums, sums_twin, rtol=rtol, atol=rtol)
    assert bound == pytest.approx(bound_twin, rel=1e-6 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_responsibilities_that_are_nothing_become_zero_and_others_stay(dtype):
    eps = float(np.finfo(dtype).eps)
    rows = WeightedRows(sp.csr_array(np.ones((1, 1), dtype)), np.ones(1, dtype)).with_table()
    lowest = np.log(eps**2)
    scores = LinearScores(np.array([[0.0, lowest - 1, lowest + 1]]), np.zeros(3))
    counts = e_step(scores, rows, ThreadEngine(1))[0].counts
    assert counts[1] == 0
    assert counts[2] == pytest.approx(np.e * eps**2, rel=1e-4)


@pytest.mark.parametrize(("n_components", "temperature"), [(1, 1.0), (10, 1.0), (1, 0.0), (10, 0.0)])
def test_sums_of_many_rows_in_single_precision_are_exact_enough(n_components, temperature):
    """A concentration follows from one minus the length of a mean: an error of 1e-4 of the sum would be 10% of it."""
    rng = np.random.default_rng(0)
    centres = np.array(
        [[np.cos(t), np.sin(t), 1.0] for t in 2 * np.pi * np.arange(n_components) / n_components]
    )
    X = centres[np.arange(400_000) % n_components] + 0.03 * rng.standard_normal((400_000, 3))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    weight = np.ones(len(X), np.float32)
    scores = LinearScores(3000 * centres.T, np.zeros(n_components), temperature)
    single = Schedule(0.0, 1, (temperature,)).prepare(WeightedRows(sp.csr_array(X), weight), n_components)
    double = WeightedRows(sp.csr_array(X.astype(float)), weight.astype(float))
    length, exact = (
        np.linalg.norm(e_step(scores, rows, ThreadEngine(1))[0].sums.astype(float), axis=0) / len(X)
        for rows in (single, double)
    )
    np.testing.assert_allclose(length, exact, rtol=1e-6)


def test_parts_cover_the_rows_and_add_up():
    rows, scores = random_rows(400, 3, 0.9), random_scores(3)
    parts = row_chunks(rows)
    assert len(parts) > 4
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == 400
    (counts, sums), bound = e_step(scores, rows, ThreadEngine(2))
    (counts_one, sums_one), bound_one = local(scores, rows, slice(0, 400))
    np.testing.assert_allclose(counts, counts_one, rtol=1e-12)
    np.testing.assert_allclose(sums, sums_one, rtol=1e-12)
    assert bound == pytest.approx(bound_one, rel=1e-12)


def mean_model():
    """One component whose score is minus the squared distance of its weight from the mean of the rows, in effect."""

    def scores(w):
        return LinearScores(2 * w[:, None], np.array([-w @ w]))

    return MixtureModel(scores, lambda w, stats: stats.sums[:, 0] / stats.counts[0], lambda w: 0.0)


def test_run_stops_at_the_optimum_and_keeps_the_parameters_of_the_last_bound():
    rows = random_rows()
    model = mean_model()
    solution = run(model, rows, np.zeros(7), Schedule(1e-9, 50), ThreadEngine(1), Progress(verbose=0))
    best = rows.weight @ rows.X.toarray() / rows.weight.sum()
    assert solution.converged
    assert len(solution.bounds) == 3  # the start, the optimum, and the same again
    np.testing.assert_allclose(solution.params, best, rtol=1e-12)
    np.testing.assert_allclose(solution.bounds[-1], rows.total * best @ best, rtol=1e-12)


def test_mini_batches_come_near_the_optimum():
    rows = random_rows(400)
    schedule = Schedule(0.0, 20, batch_size=40)
    solution = run(mean_model(), rows, np.zeros(7), schedule, ThreadEngine(1), Progress(verbose=0))
    best = rows.weight @ rows.X.toarray() / rows.weight.sum()
    np.testing.assert_allclose(solution.params, best, atol=0.05)


def test_temperatures_follow_the_schedule_and_only_the_last_may_converge():
    rows = random_rows()
    schedule = Schedule(1e-9, 50, (8.0, 4.0, 1.0))
    solution = run(mean_model(), rows, np.zeros(7), schedule, ThreadEngine(1), Progress(verbose=0))
    assert solution.trace["temperature"][:3].tolist() == [8.0, 4.0, 1.0]
    assert len(solution.bounds) == len(solution.trace) - 2


def test_the_best_start_is_kept_whatever_the_threads():
    def fit(start):
        rows = random_rows(seed=start)
        schedule = Schedule(1e-9, 5)
        return run(mean_model(), rows, np.zeros(7), schedule, ThreadEngine(1), Progress(verbose=0))

    bounds = [fit(start).bounds[-1] for start in range(4)]
    for n_jobs in (1, 2):
        assert best_of(fit, 4, ThreadEngine(n_jobs)).bounds[-1] == max(bounds)
