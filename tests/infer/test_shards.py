"""Resident shards in this process: order, arguments, results that do not depend on how a model is cut."""

import os
import pickle
import sys
from contextlib import nullcontext
from threading import Lock
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from arbora import running
from arbora.classify import (
    HierarchicalBayesClassifier,
    MultinomialLogistic,
    RecursiveLogisticRegression,
    RecursiveSVC,
)
from arbora.classify.recursive.coupling import couple
from arbora.core.checkpoint import fingerprint
from arbora.core.monitor import Monitor
from arbora.engine import EngineError, RayEngine, ThreadEngine, engine_for
from arbora.engine import ray as ray_module
from arbora.engine.actors import BehindError, RayShards, ShardStep, Worker, WorkerStatus, count_slots
from arbora.engine.journal import open_journal, read_object, write_object
from arbora.infer.linear.layout import lay_out
from arbora.infer.linear.rows import prepare_rows
from arbora.infer.linear.shards import ShardedCoupledSolver, cut_layout
from arbora.infer.softmax import penalty as multinomial_penalty
from arbora.infer.softmax import shards as multinomial_shards
from arbora.infer.softmax.lc import prepare
from arbora.infer.softmax.penalty import CrossingParts, Penalty, ShardParts, split_factor
from arbora.infer.softmax.problem import SoftmaxProblem, squares
from arbora.infer.softmax.shards import solve_lc
from arbora.infer.tree_sum import add_leaves, add_nodes, cut_leaves, largest_nodes
from arbora.structure import Hierarchy, LabelGraph
from support.multinomial_problems import random_problem


class Cut(ThreadEngine):
    """Threads, but with a model cut into several shards."""

    n_shards = 1
    weights = None

    def __init__(self, n_shards, n_jobs=1, shares_memory=True):
        super().__init__(n_jobs)
        self.n_shards, self.shares_memory = n_shards, shares_memory


def test_lc_has_the_same_bits_for_any_number_of_shards(monkeypatch):
    monkeypatch.setattr(multinomial_shards, "BLOCK", 2)
    monkeypatch.setattr(multinomial_shards, "_WEIGHTS_PER_STEP", 1)
    problem = random_problem(n_classes=11, dtype=np.float32)
    found = []
    for engine in (Cut(1), Cut(1, 2), Cut(2), Cut(3), Cut(4, 2), Cut(50)):
        monitor = Monitor(1e-3, 100, dtype=np.float32)
        found.append((solve_lc(problem, monitor, engine).Z, monitor.trace["objective"]))
    for Z, objectives in found[1:]:
        np.testing.assert_array_equal(Z, found[0][0])
        np.testing.assert_array_equal(objectives, found[0][1])


def many_classes(n_samples=300, n_features=40, seed=0):
    """Sparse documents of 120 classes, twelve below each of ten nodes, five of these below each of two."""
    rng = np.random.default_rng(seed)
    names = [
        f"{top}/{top}{middle}/{top}{middle}.{leaf}"
        for top in "ab"
        for middle in range(5)
        for leaf in range(12)
    ]
    y = np.concatenate([np.arange(len(names)), rng.integers(len(names), size=n_samples - len(names))])
    means = rng.normal(size=(len(names), n_features)) + np.repeat(
        rng.normal(size=(10, n_features)), 12, axis=0
    )
    X = (means[y] + rng.normal(size=(n_samples, n_features))) * (rng.random((n_samples, n_features)) < 0.4)
    return sp.csr_array(X), np.array(names, dtype=object)[y], Hierarchy.from_paths(names)


@pytest.fixture
def elsewhere(monkeypatch):
    """Train as on a cluster, with shards in this process."""

    def train(model, n_shards, X, y):
        try:
            with running(engine=Cut(n_shards, shares_memory=False)):
                return model.fit(X, y)
        finally:
            monkeypatch.undo()

    return train


RECURSIVE = {"tol": 1e-4, "max_iter": 2000, "calibration": None, "random_state": 0}


@pytest.mark.parametrize(
    "make",
    [
        lambda tree: RecursiveSVC(structure=tree, coupling=1.0, loss="squared_hinge", **RECURSIVE),
        lambda tree: RecursiveSVC(
            structure=tree, coupling=1.0, prune_below=0.0, **{**RECURSIVE, "tol": 5e-3}
        ),
        lambda tree: RecursiveLogisticRegression(structure=tree, coupling=1.0, **RECURSIVE),
        lambda tree: RecursiveLogisticRegression(coupling=0.0, **RECURSIVE),
    ],
    ids=["squared hinge", "hinge, pruned", "logistic", "flat"],
)
def test_classes_that_share_parts_have_the_same_optimum_in_any_shards(make, elsewhere):
    X, y, tree = many_classes()
    here = make(tree).fit(X, y)
    there = elsewhere(make(tree), 3, X, y)
    assert max(here.duality_gap_, there.duality_gap_) <= here.tol
    assert there.trace_["objective"][-1] == pytest.approx(here.trace_["objective"][-1], rel=here.tol)
    # The penalty is half the square of the parts: those of two points within a gap g differ by 2 sqrt(2 g) at most.
    factor, _ = couple(here.structure_ or here.hierarchy_, here.class_nodes_, here.coupling_, here.fade_)
    most = 2 * np.sqrt(2 * here.tol * here.trace_["objective"][-1]) * np.linalg.norm(factor.toarray(), 2)
    difference = there.coef_ - here.coef_
    assert np.linalg.norm(difference.toarray() if sp.issparse(difference) else difference) < most
    assert np.mean(there.predict(X) == here.predict(X)) > 0.97


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_pruned_softmax_weights_come_from_shards_as_a_sparse_matrix(fit_intercept, elsewhere, monkeypatch):
    X, y, _ = many_classes()
    X = sp.csr_array(sp.hstack([sp.csr_array((X.shape[0], 1)), X]))  # a feature that no document has
    params = {"solver": "lc", "fit_intercept": fit_intercept, "tol": 1e-2}
    here = MultinomialLogistic(**params).fit(X, y)
    monkeypatch.setattr(multinomial_shards, "_WEIGHTS_PER_STEP", 1000)
    there = elsewhere(MultinomialLogistic(prune_below=0.05, **params), 2, X, y)
    assert 0 < there.coef_.nnz < here.coef_.size
    np.testing.assert_array_equal(there.coef_.toarray(), np.where(np.abs(here.coef_) > 0.05, here.coef_, 0))
    np.testing.assert_array_equal(there.intercept_, here.intercept_)


def random_tree_factor(n_classes=60, n_inner=40, seed=0):
    """A deep random tree with a few classes below some nodes, in the order of the tree."""
    rng = np.random.default_rng(seed)
    parents = [(f"n{rng.integers(i)}", f"n{i}") for i in range(1, n_inner)]
    edges = parents + [(f"n{rng.integers(n_inner)}", f"c{k}") for k in range(n_classes)]
    tree = Hierarchy.from_edges(edges)
    return couple(tree, np.asarray(tree.encode([f"c{k}" for k in range(n_classes)])), 0.7, None).factor


@pytest.mark.parametrize("cuts", [[], [31], [2, 3, 30, 59]])
@pytest.mark.parametrize("make_factor", [random_tree_factor, lambda: sp.csr_array(np.eye(60) + 0.3)])
@pytest.mark.parametrize("max_density", [0.0, 2.0])
def test_shared_parts_are_eliminated_shard_by_shard(cuts, make_factor, max_density, monkeypatch):
    """Penalty, where it pulls, and the gradient by all parts, as the covariance of the classes has them."""
    monkeypatch.setattr(multinomial_penalty, "_MAX_DENSITY", max_density)
    rng, factor = np.random.default_rng(1), make_factor()
    K = (factor.T @ factor).toarray()
    problem = SoftmaxProblem(np.ones((1, 5)), np.array([0]), np.ones(1), 60, sp.csr_array(factor))
    penalty = Penalty(problem)
    W, G = rng.normal(size=(2, 5, 60))
    pieces = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, 60], strict=True)]
    seen = [ShardParts(penalty, piece) for piece in pieces]
    crossing, local, told = CrossingParts(penalty, pieces), [], []
    for parts, piece in zip(seen, pieces, strict=True):
        B, H = np.zeros((2, parts.n_seen, 5))
        half = (piece.stop - piece.start) // 2
        for columns in (slice(0, half), slice(half, piece.stop - piece.start)):
            parts.add(B, H, columns, W[:, piece][:, columns], G[:, piece][:, columns])
        one, tied = parts.eliminate(B, H)
        local.append(one)
        told.append(tied)
    U, of_shared, square = crossing.solve(told)
    own = sum(penalty.value(W[:, piece], piece) for piece in pieces)
    assert own + of_shared == pytest.approx(np.trace(W @ np.linalg.solve(K, W.T)) / 2)
    square += sum(squares(G[:, piece] / np.sqrt(penalty.strength(piece))) for piece in pieces)
    assert square == pytest.approx(np.trace(G @ K @ G.T))
    common = W @ penalty.centre
    precision = np.linalg.inv(K)
    np.testing.assert_allclose(common, W @ precision.sum(axis=0) / precision.sum())
    for parts, piece, one, other in zip(seen, pieces, local, U, strict=True):
        V = parts.pulls(parts.seen_weights(one, other, common), slice(0, piece.stop - piece.start))
        pull = ((W - common[:, None])[:, piece] - V) * penalty.strength(piece)
        np.testing.assert_allclose(pull, ((W - common[:, None]) @ precision)[:, piece], atol=1e-9)


def test_a_run_over_a_large_tree_has_a_fingerprint():
    """What shards have in common is told apart by its fingerprint, whatever solves for the shared parts."""
    factor = random_tree_factor(n_classes=300, n_inner=200)
    X = sp.random_array((50, 5), density=0.5, rng=np.random.default_rng(0), format="csr")
    problem = SoftmaxProblem(X, np.arange(50), np.ones(50), 300, sp.csr_array(factor))
    assert split_factor(factor).factor.shape[0] > 50
    common = multinomial_shards.Common(prepare(problem), Penalty(problem), multinomial_shards.LC, 300)
    assert fingerprint(common) == fingerprint(pickle.loads(pickle.dumps(common)))
    other = common._replace(penalty=Penalty(problem._replace(factor=sp.csr_array(2 * factor))))
    assert fingerprint(common) != fingerprint(other)


def test_few_parts_of_a_tree_are_seen_by_several_shards():
    _, y, tree = many_classes()
    factor, _ = couple(tree, np.asarray(tree.encode(np.unique(y).tolist())), 1.0, None)
    problem = SoftmaxProblem(np.ones((1, 1)), np.array([0]), np.ones(1), 120, sp.csr_array(factor))
    assert split_factor(factor).factor.shape[0] == 12  # two below the root that all share, five below each
    halves = [slice(0, 60), slice(60, 120)]
    assert len(CrossingParts(Penalty(problem), halves).ids) == 0  # a and b have nothing in common
    thirds = [slice(0, 40), slice(40, 80), slice(80, 120)]
    assert len(CrossingParts(Penalty(problem), thirds).ids) == 4  # a, b, and one below each


@pytest.mark.parametrize(("n_shards", "params"), [(2, {}), (3, {"prune_below": 0.0})])
def test_softmax_over_a_tree_has_the_same_optimum_in_any_shards(n_shards, params, elsewhere, monkeypatch):
    X, y, tree = many_classes()
    params = {"structure": tree, "coupling": 1.0, "solver": "lc", "tol": 1e-3, **params}
    here = MultinomialLogistic(**params).fit(X, y)
    monkeypatch.setattr(multinomial_shards, "BLOCK", 16)  # `elsewhere` undoes it
    there = elsewhere(MultinomialLogistic(**params), n_shards, X, y)
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-3)
    assert there.n_iter_ < there.max_iter
    np.testing.assert_array_equal(there.classes_, here.classes_)
    assert np.mean(there.predict(X) == here.predict(X)) > 0.97


def test_bayesian_precisions_are_the_same_in_shards(elsewhere):
    X, y, tree = many_classes(n_samples=200, n_features=400)
    arguments = {"structure": tree, "likelihood": "logistic", "tol": 1e-4}
    here = HierarchicalBayesClassifier(**arguments).fit(X, y)
    there = elsewhere(HierarchicalBayesClassifier(**arguments), 2, X, y)
    np.testing.assert_allclose(there.precisions_, here.precisions_, rtol=3e-3)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=0.02)


def test_parts_that_one_shard_sees_do_not_cross():
    _, y, tree = many_classes()
    factor, _ = couple(tree, np.asarray(tree.encode(np.unique(y).tolist())), 1.0, None)
    layout = lay_out(factor)
    runs = cut_leaves(len(layout.blocks), 2)
    pieces = cut_layout(layout, runs)
    both = set(pieces[0].layout.shared) & set(pieces[1].layout.shared)
    assert any(len(both) < len(piece.layout.shared) for piece in pieces)
    for piece in pieces:
        assert set(piece.layout.shared[piece.crossing]) == both
        for k, block in enumerate(piece.layout.blocks):
            first = piece.first + k
            assert layout.blocks[first] == block
            np.testing.assert_array_equal(
                piece.layout.shared[piece.layout.seen[k]], layout.shared[layout.seen[first]]
            )


def test_options_that_do_not_work_in_shards_are_refused(tmp_path):
    with (
        running(engine="ray", checkpoint=tmp_path),
        pytest.raises(ValueError, match="a checkpoint needs data"),
    ):
        RecursiveSVC().fit(np.eye(4), list("aabb"))
    with running(engine="ray"), pytest.raises(ValueError, match="likelihood='logistic'"):
        HierarchicalBayesClassifier().fit(np.eye(4), list("aabb"))


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 12, 13])
@pytest.mark.parametrize("n_shards", [1, 2, 3, 4, 20])
def test_nodes_of_all_shards_add_up_to_the_tree(n_blocks, n_shards):
    whole, pieces = range(n_blocks), cut_leaves(n_blocks, n_shards)
    assert [k for piece in pieces for k in piece] == list(whole)

    def add(left, right):
        return f"({left}+{right})"

    known = {}
    for piece in pieces:
        leaves = map(str, piece)
        known |= {node: add_leaves(node, leaves, add) for node in largest_nodes(whole, piece)}
        assert next(leaves, None) is None
    if n_shards in (1, 2, 4) and n_blocks >= n_shards:
        assert len(known) == n_shards  # one message of each shard

    assert add_nodes(whole, known, add) == add_leaves(whole, map(str, whole), add)


def test_object_files_are_mapped_and_replaced_atomically(tmp_path):
    path, value = tmp_path / "piece", {"x": np.arange(5, dtype=np.float32), "n": 3, "none": np.empty((0, 2))}
    write_object(path, "before")
    n_bytes = write_object(path, value)
    found = read_object(path)
    np.testing.assert_array_equal(found["x"], value["x"])
    assert found["n"] == 3
    assert found["none"].shape == (0, 2)
    assert found["x"].ctypes.data % 64 == 0
    assert not found["x"].flags.writeable
    assert os.path.getsize(path) == n_bytes
    with pytest.raises(TypeError):
        write_object(path, (np.ones(3), (k for k in range(3))))
    np.testing.assert_array_equal(read_object(path)["x"], value["x"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["piece"]


def test_fingerprints_depend_on_values_and_not_on_memory(tmp_path):
    rows = sp.random_array((20, 9), density=0.3, format="csr", rng=np.random.default_rng(0))
    value = {
        "rows": rows,
        "parts": [np.arange(3.0), ShardStep(1, "add", None, ())],
        "f": np.exp,
        "of": range(3),
    }
    write_object(tmp_path / "value", value)
    assert fingerprint(read_object(tmp_path / "value")) == fingerprint(value)
    for name, other in (
        ("rows", rows * 2),
        ("rows", sp.csc_array(rows)),
        ("parts", [np.arange(3.0), ShardStep(2, "add", None, ())]),
        ("parts", [np.arange(3.0)[:, None], ShardStep(1, "add", None, ())]),
        ("parts", [np.arange(3, dtype=np.float32), ShardStep(1, "add", None, ())]),
        ("f", np.log),
        ("of", range(4)),
    ):
        assert fingerprint({**value, name: other}) != fingerprint(value)


def test_a_journal_is_resumed_by_one_driver_at_a_time(tmp_path):
    first = open_journal(tmp_path, Cut, np.ones(3), [1, 2])
    assert first.find(1, "a") is None
    first.record(1, "a", [np.ones(2), None])
    second = open_journal(tmp_path, Cut, np.ones(3), [1, 2])
    assert not first.folder.exists()  # what is left of the first driver cannot write there
    with pytest.raises(FileNotFoundError):
        first.record(2, "b", [])
    np.testing.assert_array_equal(second.find(1, "a")[0], np.ones(2))
    assert second.find(2, "b") is None
    with pytest.raises(EngineError, match="step 1 differs from the run"):
        second.find(1, "b")
    with pytest.raises(EngineError, match=r"has 2 shards, but this fit has 3.*n_shards=2"):
        open_journal(tmp_path, Cut, np.ones(3), [1, 2, 3])
    assert open_journal(tmp_path, Cut, np.zeros(3), [1, 2]).last == 0  # other data are another run
    assert second.folder.exists()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is measured on Linux")
def test_weights_in_a_file_need_little_memory(tmp_path):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    engine, chunk = RayEngine(weights=tmp_path), 1 << 20
    weights, before, most = engine.zeros((1 << 24,), np.float32), resident(), 0
    for first in range(0, len(weights), chunk):
        weights[first : first + chunk] = first
        most = max(most, resident() - before)
        engine.settle(weights)
    assert most < weights.nbytes / 4
    np.testing.assert_array_equal(
        np.load(next(tmp_path.iterdir()))[::chunk], np.arange(0, len(weights), chunk)
    )


def test_an_engine_is_saved_as_its_settings(tmp_path):
    engine = RayEngine("host:1", n_shards=3, threads=2, folder=tmp_path, checkpoint_every=None, n_jobs=4)
    assert pickle.loads(pickle.dumps(engine)) == engine != RayEngine()
    assert eval(repr(engine)) == engine
    with running(engine=engine):
        assert engine_for(7, "a fit") == RayEngine.from_state({**engine.to_state(), "n_jobs": 7})
        assert engine_for(None, "a fit") == engine
    with running(engine=ThreadEngine(4)):
        assert engine_for(None, "a fit").n_jobs == 4
    assert engine.n_shards == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_shards": 0},
        {"threads": 1.5},
        {"checkpoint_every": 0},
        {"data": "path"},
        {"max_restarts": -2},
        {"resume": True},
        {"resume": True, "folder": "here", "checkpoint_every": None},
    ],
)
def test_invalid_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RayEngine(**wrong)


def test_unsupported_models_are_refused_before_a_cluster_starts():
    X, y = np.eye(4), list("abcd")
    with running(engine="ray"), pytest.raises(ValueError, match="solver='lc'"):
        MultinomialLogistic(solver="admm").fit(X, y)
    graph = LabelGraph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
    dag = Hierarchy.from_edges([("p", "a"), ("q", "a"), ("p", "b"), ("q", "c"), ("q", "d")])
    for structure in (graph, dag):
        with (
            running(engine="ray"),
            pytest.raises(ValueError, match=r"a DAG or label graph.* use a tree, threads"),
        ):
            MultinomialLogistic(structure=structure).fit(X, y)
    with pytest.raises(ValueError, match="engine='dask'"), running(engine="dask"):
        MultinomialLogistic().fit(X, y)


def test_without_ray_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with running(engine="ray"), pytest.raises(ImportError, match=r"pip install 'arbora\[ray\]'"):
        MultinomialLogistic().fit(np.eye(4), list("abcd"))


def test_a_worker_that_keeps_dying_ends_the_fit():
    shards = object.__new__(RayShards)
    shards.ray = SimpleNamespace(exceptions=SimpleNamespace(ObjectLostError=KeyError))
    shards.n_shards, shards.number, shards.n_restarts, shards.pids, shards.deaths = 2, 7, 0, [1, 2], [0, 0]
    shards.lives, shards._again = ["1", "2"], [[], []]
    shards.log, pids = (
        [[], [ShardStep(6, "add", None, ()), ShardStep(7, "add", None, ())]],
        iter([3, 3, 4, 5]),
    )
    shards._back = lambda index, error: WorkerStatus(1, 5, True, str(next(pids)))
    shards._reason = lambda index, error: error
    shards._tell = lambda index, step: step.number
    assert [shards._resend(1, OSError("gone")) for _ in range(3)] == [
        7,
        7,
        7,
    ]  # out of sight once, dead twice
    assert shards.n_restarts == 2
    with pytest.raises(EngineError, match=r"worker 1 of 2 was lost 3 times in step 7.*out of memory"):
        shards._resend(1, OSError("gone"))


def test_answers_that_are_lost_repeatedly_end_the_fit():
    shards = object.__new__(RayShards)
    shards.ray = SimpleNamespace(exceptions=SimpleNamespace(ObjectLostError=KeyError))
    shards.n_shards, shards.number, shards.n_restarts, shards.pids, shards.deaths = 1, 7, 0, [1], [0]
    shards.log, shards._tell = [[ShardStep(7, "add", None, ())]], lambda index, step: step.number
    shards.lives, shards._again = ["1"], [[]]
    shards._back = lambda index, error: WorkerStatus(1, 7, True, "1")
    assert [shards._resend(0, KeyError("gone")) for _ in range(2)] == [7, 7]  # the answer is asked for again
    with pytest.raises(EngineError, match="worker 0 of 1 was lost 3 times"):
        shards._resend(0, KeyError("gone"))
    assert shards.n_restarts == 0


class Call:
    """A call of a worker in a cluster that is none: it answers, fails, or is never heard of again."""

    def __init__(self, answer=None, error=None, is_lost=False):
        self.answer, self.error, self.is_lost = answer, error, is_lost


def pretended_shards(**attributes):
    """One shard of a cluster that is none, its worker in life "new"."""
    kinds = {kind: type(kind, (Exception,), {}) for kind in LOST}
    task_error = type("RayTaskError", (Exception,), {"cause": None})
    errors = SimpleNamespace(**kinds, RayTaskError=task_error, RayError=Exception)

    def get(call):
        if call.error is not None:
            raise call.error
        return call.answer

    def wait(calls, timeout, num_returns=1):
        return [call for call in calls if not call.is_lost][:num_returns], []

    shards = object.__new__(RayShards)
    shards.ray, shards.engine = (
        SimpleNamespace(exceptions=errors, get=get, wait=wait),
        SimpleNamespace(timeout=1),
    )
    shards.n_shards, shards.number, shards.n_restarts, shards.deaths, shards.journal = 1, 7, 0, [0], None
    shards.log, shards.pids, shards.lives = (
        [[ShardStep(6, "add", None, ()), ShardStep(7, "add", None, ())]],
        [1],
        ["new"],
    )
    shards._lock, shards._again, shards.begun, shards.asked_between = Lock(), [[]], [6], False
    shards._back = lambda index, error=None: WorkerStatus(1, 5, True, "new")
    vars(shards).update(attributes)
    return shards


def test_the_error_of_a_repeated_step_is_raised():
    """Else the worker would be behind for ever: told step after step, of which the first one fails."""
    shards = pretended_shards()

    def tell(index, step):
        error = shards.ray.exceptions.RayTaskError()
        error.cause = OSError("disk full") if step.number == 6 else BehindError("step 7 after step 5")
        return Call(error=error)

    shards._tell = tell
    with pytest.raises(OSError, match="disk full"):
        shards._collect({shards._resend(0, BehindError()): 0})


def test_a_question_is_asked_again_where_another_thread_found_the_new_worker():
    calls = iter([Call(is_lost=True), Call("answer")])

    def ask(number, name, arguments):
        shards.lives = ["new"]  # what another thread does meanwhile
        return next(calls)

    actor = SimpleNamespace(ask=SimpleNamespace(remote=ask))
    shards = pretended_shards(lives=["old"], actors=[actor], _tell=lambda index, step: Call())
    assert shards.ask(0, "weights") == "answer"


def test_a_shard_without_a_state_takes_any_step():
    worker = object.__new__(Worker)
    worker.shard = SimpleNamespace(add=lambda a, b: a + b)
    worker.done, worker.saved, worker.every, worker.answer, worker.keeps_state = 0, 0, None, None, False
    assert worker.step(7, "add", (1,), (2,)) == (3, 7)  # safe: there is nothing to be lost
    worker.done, worker.answer, worker.keeps_state = 0, None, True
    with pytest.raises(BehindError, match="step 7"):
        worker.step(7, "add", (1,), (2,))


LOST = ("RayActorError", "ObjectLostError", "NodeDiedError", "OutOfMemoryError")


@pytest.mark.parametrize("by_task", [False, True])
@pytest.mark.parametrize("name", LOST)
def test_losses_of_a_cluster_are_recovered(name, by_task):
    """A lost worker, machine or object is no error of the shard, be it told directly or by a task."""
    kinds = {kind: type(kind, (Exception,), {}) for kind in (*LOST, "RayTaskError", "Other")}
    shards = object.__new__(RayShards)
    shards.ray, shards.n_shards, shards.number = SimpleNamespace(exceptions=SimpleNamespace(**kinds)), 1, 1
    for kind in (name, "Other"):
        error = kinds[kind]()
        if by_task:
            error, cause = kinds["RayTaskError"](), error
            error.cause = cause
        with nullcontext() if kind == name else pytest.raises(kinds["Other"]):
            shards._raise_unless_lost(error, 0)


def test_workers_are_counted_per_machine():
    nodes = [(True, {"CPU": 3.0}), (True, {"CPU": 2.0}), (True, {}), (False, {"CPU": 8.0})]
    ray = SimpleNamespace(nodes=lambda: [{"Alive": alive, "Resources": has} for alive, has in nodes])
    assert [count_slots(ray, threads) for threads in (1, 2, 3, 4)] == [5, 2, 1, 0]


def test_the_number_of_shards_is_read_once():
    """A cluster that grows between two rounds has the same shards."""

    class Growing(ThreadEngine):
        asked, shares_memory = 0, False

        @property
        def n_shards(self):
            self.asked += 1
            return 1 + self.asked

    X, y, tree = many_classes()
    factor, _ = couple(tree, np.asarray(tree.encode(np.unique(y).tolist())), 1.0, None)
    rows = prepare_rows(X, np.dtype(np.float32), 1.0)
    joint = ShardedCoupledSolver(
        rows, lambda block, ids: np.ones((len(ids), len(block))), factor, "hinge", Growing()
    )
    joint.couple(factor)
    assert len(joint.layouts) == joint.shards.n_shards == 2


class Filing(RayEngine):
    """Puts weights into files as on a cluster, with shards in this process."""

    shards = ThreadEngine.shards


@pytest.mark.parametrize(
    "model",
    [
        RecursiveSVC(tol=0.1, calibration="holdout", random_state=0),
        MultinomialLogistic(tol=0.1),
        MultinomialLogistic(tol=0.1, fit_intercept=False),
    ],
)
def test_only_the_weights_of_the_model_stay_in_a_file(model, tmp_path):
    X, y, _ = many_classes()
    X = sp.csr_array(sp.hstack([X, sp.csr_array((X.shape[0], 1))]))  # a feature that no document has
    with running(engine=Filing(n_shards=2, weights=tmp_path)):
        model = clone(model).fit(X, y)
    (path,) = tmp_path.iterdir()
    np.testing.assert_array_equal(np.load(path)[:-1].T, model.coef_)


def test_an_address_that_does_not_answer_is_refused_at_once():
    with pytest.raises(EngineError, match="ray start --head"):
        ray_module._require_answer("127.0.0.1:1")
