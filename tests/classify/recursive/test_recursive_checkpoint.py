"""Recursive fits that are killed: continued in another process they end with the same bits."""

import os
import signal
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold

from arbora import running
from arbora.classify import RecursiveLogisticRegression, RecursiveSVC
from arbora.core.checkpoint import Checkpoint, CheckpointError
from arbora.structure import Hierarchy

pytestmark = [
    pytest.mark.filterwarnings("ignore:training stopped"),
    pytest.mark.filterwarnings("ignore:.*candidates of the cross-validation"),
]

N_CLASSES = 70
TREE = Hierarchy.from_edges(
    [("r", f"g{i}") for i in range(4)] + [(f"g{i % 4}", f"c{i}") for i in range(N_CLASSES)]
)
FEW = {"max_iter": 9, "tol": 1e-6}  # all of them are used, over all rows and over some
CASES = {
    "hinge": (RecursiveSVC, FEW),
    "squared": (RecursiveSVC, {**FEW, "loss": "squared_hinge", "prune_below": 0.0}),
    "logistic": (RecursiveLogisticRegression, {**FEW, "max_iter": 3}),
    "search": (
        RecursiveSVC,
        {
            **FEW,
            "C": "cv",
            "coupling": "cv",
            "search": {"costs": [0.1, 1.0], "couplings": np.array([0, 1]), "cv": 2},
        },
    ),
    "newton search": (
        RecursiveLogisticRegression,
        {
            "C": "cv",
            "search": {"costs": [0.1, 1.0], "cv": KFold(2, shuffle=True, random_state=0)},
            "tol": 1e-6,
        },
    ),
    "calibrated": (RecursiveSVC, {**FEW, "calibration": 2}),
}
# Saves before the end: of what a round begins with, of blocks, in rounds over all rows and over some.
MOMENTS = [
    *(("hinge", k, n_jobs) for k in (0, 1, 2, 4, 6, 9, 15, 22, 30, 35) for n_jobs in (1, 2)),
    *(("squared", k, 2) for k in (3, 17)),
    *(("logistic", k, 2) for k in (5, 9)),
    *(("search", k, 1) for k in (0, 1, 2, 3, 5, 6, 11, 13)),
    *(("newton search", k, 2) for k in (1, 3, 5, 7)),
    *(("calibrated", k, 1) for k in (20, 36, 50, 72, 90)),
]


def problem():
    rng = np.random.default_rng(0)
    y = np.arange(3 * N_CLASSES) % N_CLASSES
    X = rng.normal(size=(N_CLASSES, 12))[y] + rng.normal(size=(len(y), 12))
    return sp.csr_array(X * (rng.random(X.shape) < 0.5)), np.array([f"c{i}" for i in y], dtype=object)


X, Y = problem()
DENSE = X.toarray() + 1.0


def make(case, **options):
    estimator, params = CASES[case]
    return estimator(**{"structure": TREE, "calibration": None, "random_state": 0, **params, **options})


def rows(case):
    return DENSE if case.startswith("newton") else X


def fit(case, checkpoint, n_jobs=1, **params):
    with running(checkpoint=checkpoint):
        return make(case, n_jobs=n_jobs, **params).fit(rows(case), Y)


@cache
def reference(case):
    return make(case).fit(rows(case), Y)


def stop_at(patch, k):
    """Raise, or do whatever is wanted, instead of save number k; return the keys saved so far."""
    save, saves = Checkpoint.save, []

    def counted(self, key, *args, **kwargs):
        if len(saves) == k:
            raise KeyboardInterrupt
        saves.append(key)
        save(self, key, *args, **kwargs)

    patch.setattr(Checkpoint, "save", counted)
    patch.setattr("arbora.core.monitor._SAVE_SHARE", 0.0)  # Newton's method saves after every step
    return saves


def assert_same(model, reference):
    left, right = (sp.csr_array(result.coef_).toarray() for result in (model, reference))
    np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(model.intercept_, reference.intercept_)
    assert (model.C_, model.coupling_) == (reference.C_, reference.coupling_)
    assert model.duality_gap_ == reference.duality_gap_
    np.testing.assert_array_equal(model.calibration_, reference.calibration_)
    for column in ("objective", "gap"):
        np.testing.assert_array_equal(model.trace_[column], reference.trace_[column])
    if hasattr(reference, "cv_results_"):
        assert model.cv_results_["coupling"] == reference.cv_results_["coupling"]
        for column in ("C", "scores", "gap", "converged"):
            np.testing.assert_array_equal(model.cv_results_[column], reference.cv_results_[column])


@pytest.mark.parametrize(("case", "k", "n_jobs"), MOMENTS)
def test_an_interrupted_fit_ends_with_the_same_bits(case, k, n_jobs, tmp_path, monkeypatch):
    folder = tmp_path / "fit"
    with monkeypatch.context() as patch:
        stop_at(patch, k)
        with pytest.raises(KeyboardInterrupt):
            fit(case, folder, n_jobs)
    ids = {path.name for path in folder.glob("*.piece")}
    assert len(ids) <= k
    with monkeypatch.context() as patch:
        again = stop_at(patch, None)
        resumed = fit(case, folder, 3 - n_jobs)
    assert_same(resumed, reference(case))
    assert not folder.exists()
    if "search" in case:  # what was paid for is not done again
        n_candidates = len(reference(case).cv_results_["C"])
        saves = 3  # of a candidate: the multipliers of two folds, and the table
        assert again.count("search") == max(0, n_candidates - k // saves)


def test_nothing_is_visited_twice(tmp_path, monkeypatch):
    saves = stop_at(monkeypatch, None)
    fit("hinge", tmp_path / "whole")
    visits = [key for key in saves if key.startswith("block")]
    assert len(visits) == 3 * 9
    assert len(set(visits)) == 6  # three blocks, odd and even rounds: the folder does not grow
    with monkeypatch.context() as patch:
        stop_at(patch, 14)
        with pytest.raises(KeyboardInterrupt):
            fit("hinge", tmp_path / "part")
    saves.clear()
    fit("hinge", tmp_path / "part", 1)
    assert [key for key in saves if key.startswith("block")] == visits[10:]


def test_held_out_fits_are_not_done_twice(tmp_path, monkeypatch):
    saves = stop_at(monkeypatch, None)
    fit("calibrated", tmp_path / "whole")
    visits = [key for key in saves if "block" in key]
    assert [key.partition("block")[0] for key in visits] == 27 * [""] + 27 * ["held-out-0-"] + 27 * [
        "held-out-1-"
    ]
    with monkeypatch.context() as patch:
        done = stop_at(patch, 85)
        with pytest.raises(KeyboardInterrupt):
            fit("calibrated", tmp_path / "part")
    saves.clear()
    fit("calibrated", tmp_path / "part", 1)
    assert [key for key in saves if "block" in key] == visits[sum("block" in key for key in done) :]


DIES = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {here!r})
from arbora.core.checkpoint import Checkpoint
import test_recursive_checkpoint as t

save, saves = Checkpoint.save, []

def deadly(self, key, *args, **kwargs):
    if len(saves) == {k}:
        os.kill(os.getpid(), signal.SIGKILL)
    saves.append(key)
    save(self, key, *args, **kwargs)

Checkpoint.save = deadly
t.fit({case!r}, {folder!r}, {n_jobs})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize(("case", "k"), [("hinge", 10), ("search", 7), ("calibrated", 60)])
def test_a_killed_fit_ends_with_the_same_bits(case, k, tmp_path):
    folder = tmp_path / "fit"
    code = DIES.format(here=os.path.dirname(__file__), case=case, folder=str(folder), k=k, n_jobs=2)
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()
    assert_same(fit(case, folder, 1), reference(case))


def test_another_fit_is_refused_the_folder(tmp_path, monkeypatch):
    save = Checkpoint.save

    def fails(self, key, *args, **kwargs):
        save(self, key, *args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", fails)
        with pytest.raises(KeyboardInterrupt):
            fit("hinge", tmp_path / "fit")
    for change in ({"coupling": 0.9}, {"C": 2.0}, {"prune_below": 0.1}, {"tol": 1e-5}):
        with pytest.raises(CheckpointError, match="other data or other parameters"):
            fit("hinge", tmp_path / "fit", **change)
