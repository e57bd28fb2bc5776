"""The thread engine: order, laziness, failures, interruption, nesting, sums that do not depend on n_jobs."""

import pickle
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from arbora.core.chunks import split
from arbora.engine import ThreadEngine

JOBS = [1, 2, 5]


class Stats(NamedTuple):
    count: int
    total: np.ndarray
    extra: dict


@pytest.mark.parametrize("n_jobs", JOBS)
def test_map_keeps_the_order_when_early_items_are_slow(n_jobs):
    def slow_first(item):
        time.sleep(0.02 if item < 2 else 0.0)
        return item * item

    assert ThreadEngine(n_jobs).map(slow_first, range(40)) == [k * k for k in range(40)]
    assert ThreadEngine(n_jobs).map(slow_first, []) == []


def test_map_runs_items_in_parallel():
    # Each of three items waits for the other two: with fewer than three threads the barrier would break.
    barrier = threading.Barrier(3, timeout=10)
    assert sorted(ThreadEngine(3).map(lambda _: barrier.wait(), range(3))) == [0, 1, 2]


def test_one_job_runs_in_the_calling_thread():
    names = set(ThreadEngine(1).map(lambda _: threading.current_thread(), range(5)))
    assert names == {threading.current_thread()}


def test_n_jobs_is_resolved_as_joblib_does():
    assert ThreadEngine().n_workers == 1
    assert ThreadEngine(-1).n_workers == joblib.effective_n_jobs(-1)
    with joblib.parallel_config("threading", n_jobs=3):
        assert ThreadEngine().n_workers == 3
        assert ThreadEngine(2).n_workers == 2
    with pytest.raises(ValueError, match="n_jobs"):
        ThreadEngine(0).map(abs, [1])


@pytest.mark.parametrize("n_jobs", JOBS)
def test_the_first_failure_in_the_order_of_items_is_raised_with_its_index(n_jobs):
    def fail_late_then_early(item):
        if item == 3:
            time.sleep(0.05)  # fails after item 4 has failed already
            raise ValueError("three")
        if item == 4:
            raise KeyError("four")
        return item

    with pytest.raises(ValueError, match="three") as caught:
        ThreadEngine(n_jobs).map(fail_late_then_early, range(10))
    assert any("item 3 " in note for note in caught.value.__notes__)


@pytest.mark.parametrize("n_jobs", JOBS)
def test_a_failure_cancels_the_rest_and_nothing_runs_afterwards(n_jobs):
    done = []

    def work(item):
        if item == 0:
            raise RuntimeError("first")
        time.sleep(0.01)
        done.append(item)

    with pytest.raises(RuntimeError, match="first"):
        ThreadEngine(n_jobs).map(work, range(500))
    after = len(done)
    assert after < 50
    time.sleep(0.05)
    assert len(done) == after


@pytest.mark.parametrize("n_jobs", JOBS)
def test_imap_draws_items_only_a_little_ahead(n_jobs):
    drawn = []

    def endless():
        k = 0
        while True:
            drawn.append(k)
            yield k
            k += 1

    results = ThreadEngine(n_jobs).imap(lambda k: 2 * k, endless(), look_ahead=6)
    assert not drawn  # lazy: nothing runs before the first result is requested
    for k in range(50):
        assert next(results) == 2 * k
        assert len(drawn) <= k + 1 + 6
    results.close()
    with pytest.raises(ValueError, match="look_ahead"):
        ThreadEngine(n_jobs).imap(abs, [], look_ahead=0)


def test_dropping_imap_leaves_no_thread_behind():
    before = set(threading.enumerate())
    results = ThreadEngine(3).imap(abs, range(1000))
    next(results)
    results.close()
    deadline = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def test_an_error_of_the_items_themselves_is_raised():
    def items():
        yield 1
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="the file ends here"):
        ThreadEngine(2).map(abs, items())


def test_a_map_inside_a_worker_runs_inline_without_deadlock():
    with ThreadEngine(2) as engine:

        def outer(item):
            thread = threading.current_thread()
            inner = engine.map(lambda k: (k + item, threading.current_thread() is thread), range(4))
            assert ThreadEngine(7).n_workers == 1
            return inner

        nested = engine.map(outer, range(20))
    assert nested == [[(k + item, True) for k in range(4)] for item in range(20)]


def test_the_context_manager_keeps_its_threads_and_ends_them():
    before = set(threading.enumerate())
    with ThreadEngine(2) as engine, engine:
        first = set(engine.map(lambda _: time.sleep(0.01) or threading.get_ident(), range(8)))
        second = set(engine.map(lambda _: time.sleep(0.01) or threading.get_ident(), range(8)))
        assert first == second
    assert not set(threading.enumerate()) - before
    assert engine.map(abs, [-1]) == [1]  # still usable


def test_an_engine_can_be_pickled_cloned_and_printed():
    with ThreadEngine(2) as engine:
        copy = pickle.loads(pickle.dumps(engine))
        assert clone(engine, safe=False).n_jobs == 2
    assert copy.n_jobs == 2
    assert copy.map(abs, [-1, -2]) == [1, 2]
    assert repr(copy) == "ThreadEngine(n_jobs=2)"


@pytest.mark.parametrize("n_jobs", JOBS)
def test_progress_counts_every_item(n_jobs):
    class Count:
        n = 0

        def update(self, n=1):
            seen = self.n
            time.sleep(0.0005)  # an update that is not atomic: only a lock makes the count right
            self.n = seen + n

    count = Count()
    ThreadEngine(n_jobs).map(abs, range(60), progress=count)
    assert count.n == 60


@pytest.mark.parametrize("n_jobs", JOBS)
def test_the_error_state_of_numpy_applies_in_the_threads(n_jobs):
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        ThreadEngine(n_jobs).map(lambda k: np.ones(2) / np.zeros(2), range(3))


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=60), st.integers(1, 9))
def test_a_sum_has_the_same_bits_for_any_number_of_threads(values, n_parts):
    x = np.array(values)

    def stats(rows):
        return Stats(len(x[rows]), x[rows] @ x[rows, None] * 1e-300, {"sum": x[rows].sum(), "none": None})

    with np.errstate(over="ignore", invalid="ignore"):
        one, four = (ThreadEngine(n_jobs).sum(stats, split(len(x), n_parts)) for n_jobs in (1, 4))
    assert isinstance(four, Stats)
    assert four.count == len(x)
    np.testing.assert_array_equal(one.total, four.total)
    np.testing.assert_array_equal(one.extra["sum"], four.extra["sum"])
    assert four.extra["none"] is None


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_an_interrupt_cancels_items_that_have_not_started():
    script = """
import signal, time
from arbora.engine import ThreadEngine
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it in background jobs
done = []
def work(item):
    if item == 0: print("ready", flush=True)
    time.sleep(0.1)
    done.append(item)
try:
    ThreadEngine(2).map(work, range(1000))
except KeyboardInterrupt:
    print("interrupted", len(done), flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        started = time.monotonic()
        word, count = child.stdout.readline().split()
        child.wait(timeout=10)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert word == "interrupted"
    assert int(count) < 20
    assert time.monotonic() - started < 5
