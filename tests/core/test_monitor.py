"""Monitor: which criterion stops a loop, what goes into its trace, and how it is resumed."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbora.core.checkpoint import Checkpoint
from arbora.core.monitor import Monitor, Progress

POSITIVE = st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(POSITIVE, st.floats(0, 1e6)), min_size=1, max_size=8))
def test_gap_is_counted_from_the_highest_lower_bound(rows):
    monitor, bounds = Monitor(tol=-1.0, max_iter=100), []
    for objective, gap in rows:
        monitor.record(objective, gap=gap)
        bounds.append(objective - gap)
        expected = min(gap, max(objective - max(bounds), monitor.rounding * objective))
        assert monitor.bound == max(bounds)
        assert monitor.gap == expected
        assert monitor.trace.last["gap"] == monitor.value == expected / objective
    assert monitor.criterion == "gap"
    assert not monitor.converged


@pytest.mark.parametrize(
    ("given", "criterion", "converged"),
    [
        ({"gap": 1.0}, "gap", True),
        ({"gap": 1.1}, "gap", False),
        ({"gap": 2.0, "gain": 0.0, "change": 0.0}, "gap", False),
        ({"gap": np.nan, "change": 0.1}, "change", True),
        ({"gain": 0.1, "change": 0.0}, "gain", False),  # a gain must be below the tolerance
        ({"gain": 0.09, "change": 1.0}, "gain", True),
        ({"gain": None, "change": None}, None, False),
        ({"gap": 5.0, "converged": True}, "gap", True),
        ({"gap": 0.5, "certified": False}, "gap", False),
        ({"gap": 0.5, "certified": False, "converged": True}, "gap", False),
    ],
)
def test_the_first_criterion_that_is_given_is_compared_with_the_tolerance(given, criterion, converged):
    monitor = Monitor(tol=0.1, max_iter=10)
    assert monitor.record(10.0, **given) is converged
    assert monitor.criterion == criterion
    assert monitor.converged is converged


def test_columns_appear_when_they_are_given_and_estimates_are_no_certificates():
    monitor = Monitor(tol=0.0, max_iter=10)
    monitor.record(10.0, n_active=3)
    assert monitor.trace.columns == ("objective", "seconds", "n_active")
    monitor.record(8.0, gap=4.0, certified=False)
    assert monitor.bound == -np.inf
    assert "gap" not in monitor.trace
    monitor.record(8.0, gap=2.0, change=0.5)
    np.testing.assert_array_equal(monitor.trace["gap_estimate"], [np.nan, 0.5, np.nan])
    np.testing.assert_array_equal(monitor.trace["gap"], [np.nan, np.nan, 0.25])
    np.testing.assert_array_equal(monitor.trace["change"], [np.nan, np.nan, 0.5])
    assert monitor.objective == 8.0


def test_a_loop_ends_after_max_iter_iterations():
    monitor, done = Monitor(tol=0.0, max_iter=3), False
    is_last = []
    while not done:
        is_last.append(monitor.is_last)
        done = monitor.record(1.0, gap=1.0)
    assert monitor.n_iter == 3
    assert is_last == [False, False, True]
    assert not monitor.converged


def test_single_precision_limits_the_gap():
    double, single = Monitor(0.0, 2), Monitor(0.0, 2, dtype=np.float32)
    for monitor in (double, single):
        monitor.record(10.0, gap=1e-9)
        monitor.record(10.0, gap=1.0)  # counted from the first bound, up to rounding
    assert double.gap == pytest.approx(1e-9)
    assert single.gap == pytest.approx(10 * np.finfo(np.float32).eps * 10)


def test_progress_shows_objective_and_criterion(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with Progress(2, "steps", verbose=2) as progress:
        monitor = Monitor(0.0, 2, progress)
        monitor.record(4.0, gain=0.5)
        monitor.record(3.0, change=0.25)
    assert progress.n == 2
    assert "objective=3" in stream.getvalue()
    assert "change=0.25" in stream.getvalue()


def test_a_resumed_loop_continues_history_bound_and_clock(tmp_path):
    first = Monitor(1e-3, 10, checkpoint=Checkpoint(tmp_path, "fit"))
    assert first.resume("loop") is None
    first.record(10.0, gap=3.0)
    first.record(9.0, gap=4.0, certified=False)
    first.keep("loop", {"Z": np.arange(3.0)}, step=7)
    second = Monitor(1e-3, 10, checkpoint=Checkpoint(tmp_path, "fit"))
    arrays, meta = second.resume("loop")
    np.testing.assert_array_equal(arrays["Z"], np.arange(3.0))
    assert meta == {"step": 7}
    assert second.trace == first.trace
    for monitor in (first, second):
        monitor.record(8.0, gap=2.0)
    assert second.bound == first.bound == 7.0
    assert second.trace.is_monotone("seconds", increasing=True)
    np.testing.assert_array_equal(second.trace["gap"], first.trace["gap"])


def test_the_state_is_plain_json():
    monitor = Monitor(0.0, 5)
    monitor.record(1.0)
    monitor.record(1.0, gap=0.5)
    other = Monitor(0.0, 5)
    other.restore(json.loads(json.dumps(monitor.to_state())))
    assert other.trace == monitor.trace
    assert other.bound == monitor.bound


def test_nothing_is_kept_without_a_checkpoint():
    monitor = Monitor(0.0, 5)
    monitor.keep("loop", {})
    assert monitor.resume("loop") is None


def test_states_are_not_saved_too_often(monkeypatch):
    saved = []
    checkpoint = type("Saved", (), {"save": lambda self, *args: saved.append(args)})()
    clock = iter([0.0, 1.0, 5.0, 30.0, 31.0])  # begin and end of each save; the second call comes too early
    monkeypatch.setattr("arbora.core.monitor.perf_counter", lambda: next(clock))
    monitor = Monitor(0.1, 10, checkpoint=checkpoint)
    for _ in range(3):
        monitor.keep("loop", {})
    assert len(saved) == 2
