"""Mixtures whose rows are in shards: the same bits for any number of them, and no row twice or never."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score

import arbora
from arbora.datasets import make_vmf_mixture
from arbora.discover import (
    BayesianVMFMixture,
    DirichletProcessVMFMixture,
    HierarchicalVMFMixture,
    MultinomialMixture,
    TemporalVMFMixture,
    VMFMixture,
)
from arbora.engine import RayEngine, ThreadEngine
from arbora.infer.mixture import loop as mixture_shards
from arbora.infer.mixture.loop import RowsByShard, Schedule, fingerprint_rows, place_rows
from arbora.infer.mixture.statistics import LinearScores, WeightedRows, e_step, row_chunks


class Elsewhere(ThreadEngine):
    """So many shards in this process."""

    shares_memory, n_shards = False, 1

    def with_shards(self, n_shards):
        self.n_shards = n_shards
        return self


@pytest.fixture(scope="module")
def X():
    return make_vmf_mixture(600, 8, 4, random_state=0).X_train


def in_shards(monkeypatch, model, n_shards, X, **fit):
    with monkeypatch.context() as patch:
        patch.setattr("arbora.discover.mixture.base.engine_for", lambda *_: Elsewhere().with_shards(n_shards))
        return model.fit(X, **fit)


@pytest.mark.parametrize(
    "make",
    [
        lambda: VMFMixture(4, n_init=2, random_state=0),
        lambda: VMFMixture(4, assignments="hard", random_state=0),
        lambda: VMFMixture(4, assignments="annealed", tol=5e-7, random_state=0),
        lambda: BayesianVMFMixture(6, random_state=0),
        lambda: BayesianVMFMixture("auto", tol=0.01, random_state=0),
        lambda: MultinomialMixture(3, random_state=0),
        lambda: HierarchicalVMFMixture((2, 2), tol=0.01, random_state=0),
        lambda: TemporalVMFMixture(4, random_state=0),
        lambda: DirichletProcessVMFMixture(8, tol=0.01, random_state=0),
    ],
    ids=["soft", "hard", "annealed", "bayesian", "auto", "multinomial", "tree", "temporal", "process"],
)
def test_any_number_of_shards_gives_the_same_bits_and_the_model_of_threads(make, X, monkeypatch):
    X = np.abs(X) if isinstance(make(), MultinomialMixture) else X
    weight = np.random.default_rng(0).integers(0, 3, size=len(X)).astype(float)
    here = make().fit(X, sample_weight=weight)
    counts = (1, 3) if here.get_params().get("n_components") == "auto" else (1, 2, 3, 7)
    models = [in_shards(monkeypatch, make(), n, X, sample_weight=weight) for n in counts]
    for model in models[1:]:
        np.testing.assert_array_equal(model.lower_bounds_, models[0].lower_bounds_)
        np.testing.assert_array_equal(model.weights_, models[0].weights_)
        for name in {"means_", "log_probabilities_"} & set(vars(model)):
            np.testing.assert_array_equal(getattr(model, name), getattr(models[0], name))
    # Two starts may end at the same optimum: which of them is the better one is rounding, and so is the order.
    np.testing.assert_allclose(np.sort(models[0].weights_), np.sort(here.weights_), atol=1e-4)
    assert models[0].lower_bounds_[-1] == pytest.approx(here.lower_bounds_[-1], rel=1e-5)
    assert adjusted_rand_score(models[0].predict(X), here.predict(X)) > 0.99


def test_statistics_of_shards_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    rows = WeightedRows(
        sp.random_array((500, 3), density=0.9, format="csr", rng=rng), rng.uniform(0.5, 2, 500)
    )
    scores = LinearScores(rng.standard_normal((3, 5)), rng.standard_normal(5))
    (counts, sums), bound = e_step(scores, rows, ThreadEngine(1))
    with place_rows(rows, Schedule(0.0, 1), 5, Elsewhere().with_shards(3)) as elsewhere:
        (there, its_sums), its_bound = e_step(scores, elsewhere, ThreadEngine(1))
    np.testing.assert_allclose(there, counts, rtol=1e-12)
    np.testing.assert_allclose(its_sums, sums, rtol=1e-10, atol=1e-12)
    assert its_bound == pytest.approx(bound, rel=1e-12)


def test_shards_hold_every_row_once():
    rows = WeightedRows(sp.csr_array(np.random.default_rng(0).random((400, 2))), np.arange(400.0))
    parts = row_chunks(rows)
    assert len(parts) > 5
    pieces = RowsByShard(rows, parts, 3)
    assert len(pieces) == 3
    held = [part for piece in pieces for part in piece.chunks]
    np.testing.assert_array_equal(np.concatenate([part.weight for part in held]), rows.weight)
    np.testing.assert_array_equal(sp.vstack([part.X for part in held]).toarray(), rows.X.toarray())


def test_rows_in_files_are_loaded_chunk_by_chunk(X, monkeypatch, tmp_path):
    X = sp.csr_array(X)
    for name in ("data", "indices", "indptr"):
        np.save(tmp_path / f"{name}.npy", getattr(X, name))
    arrays = tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr"))
    mapped, taken = sp.csr_matrix(arrays, shape=X.shape), []
    load = WeightedRows.load
    monkeypatch.setattr(
        mixture_shards.WeightedRows,
        "load",
        lambda rows, part: taken.append(rows.in_memory) or load(rows, part),
    )
    of_file = in_shards(monkeypatch, VMFMixture(4, random_state=0), 2, mapped)
    assert not all(taken)
    np.testing.assert_allclose(of_file.means_, VMFMixture(4, random_state=0).fit(X).means_, atol=1e-5)


def test_rows_weights_and_settings_identify_a_run(X):
    rows = WeightedRows(sp.csr_array(X), np.ones(len(X)))
    others = [
        rows._replace(weight=np.arange(len(X), dtype=float)),
        rows._replace(X=sp.csr_array(X[::-1])),
        WeightedRows(rows.X[:-1], rows.weight[:-1]),
    ]
    assert len({fingerprint_rows(each) for each in (rows, *others)}) == 4
    assert VMFMixture(4)._settings() != VMFMixture(4, concentration="own")._settings()
    assert VMFMixture(4)._settings() == VMFMixture(4, n_jobs=2, verbose=1)._settings()


def test_options_that_need_all_rows_in_one_process_are_refused(X):
    with arbora.running(engine=RayEngine(n_shards=2)):
        with pytest.raises(ValueError, match=r"inference='gibbs' .*RayEngine\(n_shards=2\).*use threads"):
            BayesianVMFMixture(4, inference="gibbs").fit(X)
        with pytest.raises(ValueError, match=r"batch_size=10 .*RayEngine\(n_shards=2\).*use threads"):
            VMFMixture(4, batch_size=10).fit(X)
