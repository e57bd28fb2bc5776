"""A real cluster of two workers on this machine: the results of threads, and workers that are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from arbora import running
from arbora.classify import (
    HierarchicalBayesClassifier,
    MultinomialLogistic,
    RecursiveLogisticRegression,
    RecursiveSVC,
)
from arbora.datasets import make_vmf_mixture
from arbora.discover import VMFMixture
from arbora.engine import EngineError, RayEngine, ThreadEngine, actors
from arbora.engine.ray import start_here
from arbora.infer.softmax import shards as multinomial_shards
from arbora.structure import Hierarchy

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    start_here(2, object_store_memory=80_000_000)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests
    yield
    ray.shutdown()


class Shard:
    """A number, to which steps add; what a worker does when it is told to is up to the test."""

    def __init__(self, common, piece, engine):
        if piece == "bad":
            raise ValueError("a piece that cannot be")
        if piece == "sleep":
            time.sleep(30)
        self.total, self.common, self.engine = piece, common, engine
        if isinstance(piece, Path):
            self.total = 0
            self.die_once(piece)

    def add(self, n, m=0):
        self.total = self.total + n + m
        return self.total

    def fail(self):
        raise ZeroDivisionError("of the shard")

    def die_once(self, path):
        if not os.path.exists(path):
            open(path, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.total

    def sleep(self, seconds):
        time.sleep(seconds)
        return self.total

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def look(self):
        return self.total, float(self.common.sum()), self.common.flags.writeable, self.engine.n_jobs

    def state(self):
        return self.total

    def restore(self, state):
        self.total = state


class TwoShards(ThreadEngine):
    """Two shards in this process."""

    n_shards, shares_memory, weights = 2, False, None


class Killing(RayEngine):
    """Kills the last worker by its process id just after a step was sent out, in these steps; or ends the driver."""

    kill_in: tuple[int, ...] = ()
    end_in, end = 0, None

    def shards(self, make, common, pieces):
        shards = super().shards(make, common, pieces)
        send = shards._send

        def send_and_kill(workers):
            futures = send(workers)
            if shards.number in type(self).kill_in:
                os.kill(shards.pids[-1], signal.SIGKILL)
            if shards.number == type(self).end_in:
                type(self).end()
            return futures

        shards._send = send_and_kill
        Killing.last = shards
        return shards


@pytest.fixture
def kill_in(monkeypatch):
    return lambda *steps: monkeypatch.setattr(Killing, "kill_in", steps)


class Interrupted(Exception):
    """The driver ends in the midst of a run."""


@pytest.fixture
def interrupt_in(monkeypatch):
    def end():
        raise Interrupted

    monkeypatch.setattr(Killing, "end", end)
    return lambda step: monkeypatch.setattr(Killing, "end_in", step)


def fit_on(engine, model, X, y):
    with running(engine=engine):
        return model.fit(X, y)


def in_two_shards(model, X, y):
    """Fit a model in two shards of this process: what a cluster of two workers has to give, to the last bit."""
    return fit_on(TwoShards(), model, X, y)


def test_shards_take_steps_and_raise_their_own_errors(tmp_path):
    engine = RayEngine(n_shards=2, data="file", folder=tmp_path, checkpoint_every=2)
    with engine.shards(Shard, np.ones(1000), [10, 20]) as shards:
        assert shards.step("add", 1) == [11, 21]
        assert shards.step("add", 1, each=[[100], [200]]) == [112, 222]
        assert shards.ask(1, "look") == (222, 1000.0, False, 1)
        with pytest.raises(ZeroDivisionError, match="of the shard"):
            shards.step("fail")
        with pytest.raises(ValueError, match="for 3 shards, but there are 2"):
            shards.step("add", 1, each=[[1]] * 3)
        assert os.listdir(tmp_path)
    assert not os.listdir(tmp_path)


def test_a_killed_worker_is_restored(tmp_path):
    engine = RayEngine(n_shards=2, checkpoint_every=2)
    with engine.shards(Shard, np.ones(3), [0, 100]) as shards:
        for _ in range(5):
            shards.step("add", 1)
        assert [step.number for step in shards.log[0]] == [5]  # steps before are in the state on the disk
        assert shards.step("die_once", each=[[os.devnull], [str(tmp_path / "dead")]]) == [5, 105]
        assert shards.n_restarts == 1
        os.kill(shards.pids[0], signal.SIGKILL)
        assert [shards.ask(k, "look")[0] for k in (0, 1)] == [5, 105]  # a question brings it back too
        assert shards.step("add", 10) == [15, 115]


def test_workers_that_cannot_start_raise_an_error(monkeypatch, tmp_path):
    with pytest.raises(EngineError, match="a piece that cannot be"):
        RayEngine(n_shards=2).shards(Shard, np.ones(3), [0, "bad"])
    with pytest.raises(EngineError, match="need 6 CPUs"):
        RayEngine(threads=3).shards(Shard, np.ones(3), [0, 1])
    with RayEngine(max_restarts=0).shards(Shard, np.ones(3), [0]) as shards:
        monkeypatch.setattr(actors, "_PAUSE", 0.01)
        with pytest.raises(EngineError, match="max_restarts=0"):
            shards.step("die")


def test_a_worker_that_dies_while_it_is_made_is_made_again(tmp_path):
    with RayEngine(n_shards=2).shards(Shard, np.ones(3), [0, tmp_path / "dead"]) as shards:
        assert shards.step("add", 1) == [1, 1]


def test_every_wait_has_a_timeout(monkeypatch):
    with pytest.raises(EngineError, match="worker 0 of 1 did not start within timeout=1 seconds"):
        RayEngine(timeout=1).shards(Shard, np.ones(3), ["sleep"])
    with RayEngine().shards(Shard, np.ones(3), [7]) as shards:
        looked, back = [], shards._back
        monkeypatch.setattr(shards, "_back", lambda index: looked.append(index) or back(index))
        monkeypatch.setattr(actors, "_LOOK_EVERY", 0.1)
        assert shards.step("sleep", 0.5) == [7]  # a worker that says that it is there may take its time
        assert looked

        def gone(index):
            raise EngineError(f"worker {index} is gone")

        monkeypatch.setattr(shards, "_back", gone)
        with pytest.raises(EngineError, match="worker 0 is gone"):
            shards.step("sleep", 0.5)


def test_the_address_of_another_cluster_is_refused():
    here = ray.get_runtime_context().gcs_address
    for address in (None, "auto", here, f"localhost:{here.rpartition(':')[2]}"):
        assert RayEngine(address).n_shards == 2
    for address in ("192.0.2.1:6379", "127.0.0.1:1", "ray://192.0.2.1:10001"):
        with pytest.raises(EngineError, match="is connected to the Ray cluster at"):
            RayEngine(address).connect()


def test_an_answer_of_which_ray_tells_nothing_is_lost_with_its_worker(monkeypatch):
    monkeypatch.setattr(actors, "_LOOK_EVERY", 0.5)
    with RayEngine(n_shards=2, checkpoint_every=2).shards(Shard, np.ones(3), [0, 100]) as shards:
        assert shards.step("add", 1) == [1, 101]
        send, never = shards._send, ray.remote(num_cpus=0)(lambda: time.sleep(120)).remote()

        def send_and_lose(workers):
            futures = {index: future for future, index in send(workers).items()}
            os.kill(shards.pids[1], signal.SIGKILL)
            return {futures[0]: 0, never: 1}

        shards._send = send_and_lose
        assert shards.step("add", 1) == [2, 102]
        shards._send = send
        assert shards.n_restarts == 1
        assert shards.step("add", 1) == [3, 103]
    ray.cancel(never, force=True)


def text_like(n_samples=400, n_features=150, n_classes=150, seed=0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n_samples - n_classes)])
    X = sp.random_array((n_samples, n_features), density=0.05, rng=rng, format="lil")
    X[np.arange(n_samples), y % n_features] = 2.0
    return sp.csr_array(X), y


def test_lc_on_a_cluster_that_loses_a_worker_has_the_bits_of_threads(kill_in, tmp_path):
    X, y = text_like()
    here = MultinomialLogistic(C=3.0, solver="lc", tol=1e-2).fit(X, y)
    kill_in(3)
    engine = Killing(n_shards=2, checkpoint_every=2, data="file", weights=tmp_path)
    there = fit_on(engine, MultinomialLogistic(C=3.0, tol=1e-2), X, y)
    assert Killing.last.n_restarts == 1
    assert len(here.classes_) > 2 * multinomial_shards.BLOCK  # more blocks than shards
    np.testing.assert_array_equal(there.coef_, here.coef_)
    np.testing.assert_array_equal(there.trace_["objective"], here.trace_["objective"])
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]  # where the weights are, mapped
    pruned = fit_on(RayEngine(n_shards=2), MultinomialLogistic(C=3.0, tol=1e-2, prune_below=0.1), X, y)
    np.testing.assert_array_equal(pruned.coef_.toarray(), np.where(np.abs(here.coef_) > 0.1, here.coef_, 0))
    np.testing.assert_array_equal(pruned.intercept_, here.intercept_)


@pytest.fixture(scope="module")
def filed():
    """Documents of 80 classes, eight below each of ten nodes: three blocks of classes."""
    X, y = text_like(n_samples=250, n_classes=80, n_features=300)
    tree = Hierarchy.from_paths([f"{name % 10}/{name}" for name in range(80)])
    return X, [f"{name % 10}/{name}" for name in y], tree


def test_softmax_over_a_tree_on_a_cluster_that_loses_a_worker(filed, kill_in, tmp_path):
    X, y, tree = filed
    arguments = {"structure": tree, "coupling": 1.0, "solver": "lc", "tol": 1e-2}
    here = in_two_shards(MultinomialLogistic(**arguments), X, y)
    kill_in(4)
    engine = Killing(n_shards=2, checkpoint_every=3, folder=tmp_path / "made" / "when needed")
    there = fit_on(engine, MultinomialLogistic(**arguments), X, y)
    assert Killing.last.n_restarts == 1
    assert os.path.isdir(engine.folder)
    np.testing.assert_array_equal(there.coef_, here.coef_)
    np.testing.assert_array_equal(there.trace_["objective"], here.trace_["objective"])
    alone = MultinomialLogistic(**arguments).fit(X, y)
    assert there.objective_ == pytest.approx(alone.objective_, rel=1e-2)


def test_recursive_machines_on_a_cluster_that_loses_a_worker(filed, kill_in):
    X, y, tree = filed
    arguments = {"structure": tree, "tol": 1e-2, "calibration": None, "random_state": 0}
    here = RecursiveSVC(**arguments).fit(X, y)
    cut = in_two_shards(RecursiveSVC(**arguments), X, y)
    kill_in(4)
    there = fit_on(Killing(n_shards=2, checkpoint_every=3), RecursiveSVC(**arguments), X, y)
    assert Killing.last.n_restarts == 1
    np.testing.assert_array_equal(there.coef_, cut.coef_)
    assert there.duality_gap_ == cut.duality_gap_ <= 1e-2
    assert there.trace_["objective"][-1] == pytest.approx(here.trace_["objective"][-1], rel=1e-2)


def test_bayesian_classifier_on_a_cluster_that_loses_a_worker_and_its_driver(
    filed, kill_in, interrupt_in, tmp_path
):
    X, y, tree = filed
    arguments = {"structure": tree, "likelihood": "logistic"}
    here = HierarchicalBayesClassifier(**arguments).fit(X, y)
    cut = in_two_shards(HierarchicalBayesClassifier(**arguments), X, y)
    engine = Killing(n_shards=2, checkpoint_every=3, folder=tmp_path, resume=True)
    kill_in(4)
    interrupt_in(18)  # after weights were asked for, to estimate precisions
    with pytest.raises(Interrupted):
        fit_on(engine, HierarchicalBayesClassifier(**arguments), X, y)
    assert Killing.last.n_restarts == 1
    interrupt_in(0)
    kill_in(17)
    there = fit_on(engine, HierarchicalBayesClassifier(**arguments), X, y)
    assert Killing.last.begun == [15, 15]
    assert Killing.last.n_restarts == 1
    np.testing.assert_allclose(there.coef_, cut.coef_, rtol=1e-6, atol=1e-12)
    assert there.trace_["objective"][-1] == pytest.approx(cut.trace_["objective"][-1], rel=1e-6)
    np.testing.assert_allclose(there.precisions_, here.precisions_, rtol=0.02)
    np.testing.assert_array_equal(there.predict(X), here.predict(X))


def test_other_losses_on_a_cluster_and_a_resumed_run(filed, interrupt_in, tmp_path):
    X, y, tree = filed
    arguments = {"structure": tree, "tol": 1e-2, "calibration": None, "random_state": 0}
    squared = {"loss": "squared_hinge", **arguments}
    there = fit_on(RayEngine(n_shards=2), RecursiveSVC(**squared), X, y)
    np.testing.assert_array_equal(there.coef_, in_two_shards(RecursiveSVC(**squared), X, y).coef_)

    engine = Killing(n_shards=2, checkpoint_every=2, folder=tmp_path, resume=True)
    interrupt_in(6)
    with pytest.raises(Interrupted):
        fit_on(engine, RecursiveLogisticRegression(**arguments), X, y)
    one_shard = RayEngine(n_shards=1, folder=tmp_path, resume=True)
    with pytest.raises(EngineError, match=r"has 2 shards, but this fit has 1.*n_shards=2"):
        fit_on(one_shard, RecursiveLogisticRegression(**arguments), X, y)
    interrupt_in(0)
    there = fit_on(engine, RecursiveLogisticRegression(**arguments), X, y)
    assert Killing.last.begun == [4, 4]
    cut = in_two_shards(RecursiveLogisticRegression(**arguments), X, y)
    np.testing.assert_array_equal(there.coef_, cut.coef_)


@pytest.fixture(scope="module")
def directions():
    """Rows enough for several parts."""
    return make_vmf_mixture(600, 8, 4, random_state=0).X_train


def test_mixture_on_a_cluster_that_loses_a_worker_and_its_driver(directions, kill_in, interrupt_in, tmp_path):
    arguments = {"n_components": 4, "n_init": 2, "random_state": 0}
    with running(engine=RayEngine(n_shards=1, data="file")):
        one = VMFMixture(**arguments).fit(directions)
    engine = Killing(n_shards=2, checkpoint_every=3, folder=tmp_path, resume=True)
    interrupt_in(5)
    with running(engine=engine), pytest.raises(Interrupted):
        VMFMixture(**arguments).fit(directions)
    interrupt_in(0)
    kill_in(7)
    with running(engine=engine):
        there = VMFMixture(**arguments).fit(directions)
    assert Killing.last.begun == [3, 3]
    assert Killing.last.n_restarts == 1
    np.testing.assert_array_equal(there.means_, one.means_)
    np.testing.assert_array_equal(there.lower_bounds_, one.lower_bounds_)
    here = VMFMixture(**arguments).fit(directions)
    np.testing.assert_allclose(np.sort(there.weights_), np.sort(here.weights_), atol=1e-4)


def fit_and_die(folder):
    """What the driver of the next test does: it kills itself in a step."""
    Killing.end_in, Killing.end = 4, lambda: os.kill(os.getpid(), signal.SIGKILL)
    engine = Killing("auto", n_shards=2, checkpoint_every=2, folder=folder, resume=True)
    fit_on(engine, MultinomialLogistic(C=3.0, tol=1e-2), *text_like())


def test_lc_resumes_after_the_death_of_its_driver(tmp_path):
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", f"import test_ray; test_ray.fit_and_die({str(tmp_path)!r})"]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": path}
    ended = subprocess.run(command, env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    X, y = text_like()
    here = MultinomialLogistic(C=3.0, solver="lc", tol=1e-2).fit(X, y)
    engine = Killing(n_shards=2, checkpoint_every=2, folder=tmp_path, resume=True)
    there = fit_on(engine, MultinomialLogistic(C=3.0, tol=1e-2), X, y)
    assert Killing.last.begun == [2, 2]  # the state of step 4 would have been written in step 5
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-6)
    np.testing.assert_array_equal(there.coef_, here.coef_)
