"""Interrupted fits: resumed they give the same weights bit by bit, and nothing is trained twice."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from arbora import running
from arbora.classify import OneVsRestLogistic, OneVsRestSVC
from arbora.classify import linear as _train
from arbora.core.checkpoint import CheckpointError
from arbora.structure import Hierarchy

TREE = Hierarchy.from_edges(
    [("r", f"g{i}") for i in range(4)] + [(f"g{i}", 17 * i + j) for i in range(4) for j in range(17)]
)
CASES = {
    "flat": (OneVsRestSVC, {"loss": "hinge"}, 3),
    "squared": (OneVsRestSVC, {"loss": "squared_hinge", "structure": TREE}, 3),
    "logistic": (OneVsRestLogistic, {}, 3),
}
EVERY = pytest.mark.parametrize(("estimator", "params", "n_pieces"), CASES.values(), ids=CASES.keys())


def problem():
    rng = np.random.default_rng(0)
    y = np.arange(204) % 68
    X = rng.normal(size=(68, 12))[y] + rng.normal(size=(204, 12))
    return sp.csr_array(X * (rng.random(X.shape) < 0.5)), y


X, Y = problem()


def make(estimator, params, **options):
    # A given cost: the search of "auto" trains blocks of its own, which are not saved.
    return estimator(**{"C": 1.0, "calibration": None, "random_state": 0, **params, **options})


def fit(model, folder, X=X, y=Y, sample_weight=None):
    with running(checkpoint=folder):
        return model.fit(X, y, sample_weight)


def counting(monkeypatch, stop_at=None, error=KeyboardInterrupt):
    """Count the blocks that are trained, and interrupt before one of them."""
    calls = []
    solve = _train.solve_block

    def counted(*args, **kwargs):
        if len(calls) == stop_at:
            raise error
        calls.append(1)
        return solve(*args, **kwargs)

    monkeypatch.setattr(_train, "solve_block", counted)
    return calls


def dense(model):
    return model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_


def assert_same(model, reference):
    np.testing.assert_array_equal(dense(model), dense(reference))
    np.testing.assert_array_equal(model.intercept_, reference.intercept_)
    np.testing.assert_array_equal(model.calibration_, reference.calibration_)
    assert model.duality_gap_ == reference.duality_gap_
    assert model.n_iter_ == reference.n_iter_
    for column in ("objective", "gap"):
        np.testing.assert_array_equal(model.trace_[column], reference.trace_[column])


@EVERY
@pytest.mark.parametrize("stop_at", [0, 1, 2])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupted_fit_goes_on(estimator, params, n_pieces, stop_at, n_jobs, tmp_path, monkeypatch):
    reference = make(estimator, params).fit(X, Y)
    folder = tmp_path / "fit"
    with monkeypatch.context() as patch:
        trained = counting(patch, stop_at)
        with pytest.raises(KeyboardInterrupt):
            fit(make(estimator, params, n_jobs=1), folder)
    assert len(trained) == stop_at
    assert len(list(folder.glob("*.piece"))) == stop_at
    with monkeypatch.context() as patch:
        trained = counting(patch)
        # Threads and verbosity are no part of the model: another number of them may resume.
        resumed = fit(make(estimator, params, n_jobs=n_jobs), str(folder))
    assert len(trained) == n_pieces - stop_at
    assert not folder.exists()
    assert_same(resumed, reference)


@EVERY
def test_an_error_in_a_thread_loses_nothing(estimator, params, n_pieces, tmp_path, monkeypatch):
    folder = tmp_path / "fit"
    with monkeypatch.context() as patch:
        counting(patch, 2, RuntimeError("the machine is on fire"))
        with pytest.raises(RuntimeError, match="on fire"):
            fit(make(estimator, params, n_jobs=2), folder)
    ids = len(list(folder.glob("*.piece")))
    assert ids >= 1
    with monkeypatch.context() as patch:
        trained = counting(patch)
        resumed = fit(make(estimator, params, n_jobs=2), folder)
    assert len(trained) == n_pieces - ids
    assert_same(resumed, make(estimator, params).fit(X, Y))


@EVERY
def test_an_interrupted_calibration_goes_on(estimator, params, n_pieces, tmp_path, monkeypatch):
    folder = tmp_path / "fit"
    with monkeypatch.context() as patch:
        everything = counting(patch)
        reference = make(estimator, params, calibration="holdout").fit(X, Y)
    with monkeypatch.context() as patch:
        counting(patch, n_pieces + 1)
        with pytest.raises(KeyboardInterrupt):
            fit(make(estimator, params, calibration="holdout"), folder)
    assert len(list(folder.glob("*.piece"))) == n_pieces + 1
    with monkeypatch.context() as patch:
        trained = counting(patch)
        resumed = fit(make(estimator, params, calibration="holdout"), folder)
    assert len(trained) == len(everything) - n_pieces - 1  # what was left of the calibration
    assert_same(resumed, reference)


KILLED = """
import os, signal, sys
sys.path.insert(0, {here!r})
from arbora.classify import linear as _train
import test_classify_checkpoint as t

estimator, params, _ = t.CASES[{case!r}]
solve, calls = _train.solve_block, []

def deadly(*args, **kwargs):
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(1)
    return solve(*args, **kwargs)

_train.solve_block = deadly
t.fit(t.make(estimator, params), {folder!r})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("case", ["flat", "logistic"])
def test_a_killed_fit_goes_on_in_another_process(case, tmp_path, monkeypatch):
    folder = tmp_path / "fit"
    code = KILLED.format(here=os.path.dirname(__file__), case=case, folder=str(folder))
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()
    estimator, params, n_pieces = CASES[case]
    with monkeypatch.context() as patch:
        trained = counting(patch)
        resumed = fit(make(estimator, params), folder)
    assert len(trained) == n_pieces - 2
    assert not folder.exists()
    assert_same(resumed, make(estimator, params).fit(X, Y))


@EVERY
def test_a_damaged_piece_is_trained_again(estimator, params, n_pieces, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        counting(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            fit(make(estimator, params), tmp_path)
    piece = sorted(tmp_path.glob("*.piece"))[0]
    content = bytearray(piece.read_bytes())
    content[len(content) // 2] ^= 1
    piece.write_bytes(content)
    with monkeypatch.context() as patch:
        trained = counting(patch)
        with pytest.warns(UserWarning, match="damaged"):
            resumed = fit(make(estimator, params), tmp_path)
    assert len(trained) == n_pieces - 1
    assert_same(resumed, make(estimator, params).fit(X, Y))


def change_one(values):
    values = values.copy()
    values[:1] += 1
    return values


@EVERY
@pytest.mark.parametrize(
    "change",
    [
        {"C": 2.0},
        {"tol": 1e-4},
        {"random_state": 1},
        {"fit_intercept": False},
        {"X": 2 * X},
        {"y": change_one(Y)},
        {"sample_weight": np.arange(1.0, len(Y) + 1)},
        {"structure": Hierarchy.from_edges([("r", i) for i in range(69)])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_fit_is_refused_the_folder(estimator, params, n_pieces, change, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        counting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            fit(make(estimator, params), tmp_path)
    data = {"X": X, "y": Y, "sample_weight": None}
    data |= {key: value for key, value in change.items() if key in data}
    other = {key: value for key, value in change.items() if key not in data}
    with pytest.raises(CheckpointError, match="other data or other parameters"):
        fit(make(estimator, {**params, **other}), tmp_path, **data)
    assert len(list(tmp_path.glob("*.piece"))) == 1  # refused, not destroyed


@EVERY
def test_without_a_seed_a_resumed_fit_still_visits_rows_in_the_same_order(
    estimator, params, n_pieces, tmp_path, monkeypatch
):
    free = {**params, "random_state": None}
    whole = fit(make(estimator, free), tmp_path / "whole")
    with monkeypatch.context() as patch:
        counting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            fit(make(estimator, free), tmp_path / "part")
    assert_same(fit(make(estimator, free), tmp_path / "part"), whole)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match="nothing was changed"):
        fit(OneVsRestSVC(), tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
