"""Trace and Progress: the history of a fit and its progress bar."""

import copy
import io
import pickle
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbora.core.monitor import Progress
from arbora.core.trace import Trace

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
NAMES = st.text(min_size=1, max_size=5).filter(
    lambda name: name not in ("objective", "gap", "seconds", "self")
)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, st.dictionaries(NAMES, NUMBERS, max_size=3)), max_size=8)


def traced(rows):
    trace = Trace()
    for objective, gap, extra in rows:
        trace.append(objective, gap=gap, **extra)
    return trace


@given(ROWS)
def test_every_number_is_kept_and_missing_ones_are_nan(rows):
    trace = traced(rows)
    assert len(trace) == len(rows)
    np.testing.assert_array_equal(trace["objective"], [row[0] for row in rows])
    for name in {name for row in rows for name in row[2]}:
        np.testing.assert_array_equal(trace[name], [row[2].get(name, np.nan) for row in rows])
    assert {len(values) for values in trace.to_dict().values()} == {len(rows)}
    if rows:
        np.testing.assert_array_equal(list(trace.last.values()), [trace[name][-1] for name in trace.columns])
    else:
        assert trace.last == {}


@given(ROWS)
def test_state_pickle_and_copy_give_an_equal_trace(rows):
    trace = traced(rows)
    for other in (
        Trace.from_state(trace.to_state()),
        pickle.loads(pickle.dumps(trace)),
        copy.deepcopy(trace),
    ):
        assert other == trace
        other.append(1.0)
        assert other != trace
    assert trace != "a trace"


def test_seconds_are_seconds_of_work_and_survive_a_resume(monkeypatch):
    clock = iter([100.0, 103.0, 500.0, 500.0, 502.0, 900.0, 901.0])  # jumps while the program is not running
    monkeypatch.setattr("arbora.core.trace.perf_counter", lambda: next(clock))
    trace = Trace()  # at 100
    trace.append(1.0)  # at 103
    resumed = Trace.from_state(trace.to_state())  # at 500
    resumed.append(0.5)  # at 502
    resumed.start()  # at 900
    resumed.append(0.4)  # at 901
    assert resumed["seconds"].tolist() == [3.0, 5.0, 6.0]


def test_states_with_the_columns_of_older_versions_load():
    state = {"columns": ["objective", "gap", "seconds"], "values": [[2.0, 1.0], [0.5, np.nan], [0.1, 0.2]]}
    trace = Trace.from_state(state)
    assert trace.columns == ("objective", "gap", "seconds")
    trace.append(0.5, gap=0.25)
    np.testing.assert_array_equal(trace["gap"], [0.5, np.nan, 0.25])
    assert trace.is_monotone("seconds", increasing=True)


def test_seconds_are_measured():
    trace = Trace()
    time.sleep(0.02)
    trace.append(1.0)
    assert 0.02 <= trace.last["seconds"] <= trace.elapsed


def test_append_is_cheap():
    trace = Trace()
    started = time.perf_counter()
    for step in range(20_000):
        trace.append(step, gap=1.0, extra=2.0)
    assert (time.perf_counter() - started) / 20_000 < 1e-4


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=10))
def test_monotone_agrees_with_its_definition(values):
    trace = Trace()
    for value in values:
        trace.append(value)
        trace.append(gap=np.nan)  # NaN values are ignored
    rises = all(a <= b for a, b in pairwise(values))
    falls = all(a >= b for a, b in pairwise(values))
    assert trace.is_monotone("objective", increasing=True) == rises
    assert trace.is_monotone("objective", increasing=False) == falls
    assert trace.is_monotone("gap", increasing=True)  # only NaN


@pytest.mark.parametrize(
    ("values", "tolerance", "expected"),
    [
        ([-np.inf, -5.0, -4.0, np.inf, np.inf], 0.0, True),
        ([-np.inf, -5.0, -np.inf], 1e-3, False),
        ([1e6, 1e6 - 0.5], 1e-6, True),
        ([1e6, 1e6 - 2.0], 1e-6, False),
        ([0.0, -1e-9], 1e-8, True),
    ],
)
def test_monotone_with_infinities_and_tolerance(values, tolerance, expected):
    trace = Trace()
    for value in values:
        trace.append(value)
    assert trace.is_monotone(increasing=True, tolerance=tolerance) is expected


def test_invalid_use_raises_a_clear_error():
    trace = Trace()
    with pytest.raises(KeyError, match="did you mean 'objective'"):
        trace["objectiv"]
    with pytest.raises(ValueError, match="measures 'seconds' itself"):
        trace.append(1.0, seconds=3.0)
    with pytest.raises(ValueError, match="could not convert"):
        trace.append(1.0, label="word")
    assert len(trace) == 0
    assert {len(values) for values in trace.to_dict().values()} == {0}
    with pytest.raises(ValueError, match="not the state of a trace"):
        Trace.from_state({"columns": ["a"], "values": np.zeros((2, 3))})
    with pytest.raises(ValueError, match="empty"):
        trace.plot()


def test_repr_shows_the_last_row():
    trace = Trace()
    assert repr(trace) == "<Trace: 0 iterations>"
    trace.append(objective=12.5)
    assert repr(trace).startswith("<Trace: 1 iteration; last objective=12.5, seconds=")
    assert "objective" in trace
    assert "loss" not in trace


def test_plot_shows_every_column_that_has_numbers():
    pytest.importorskip("plotly")
    trace = Trace()
    for step in range(4):
        trace.append(objective=-(2.0**step), gap=10.0**-step, empty=np.nan)
    figure = trace.plot(x="iteration")
    assert [line.name for line in figure.data] == ["objective", "gap"]
    np.testing.assert_array_equal(figure.data[1].y, trace["gap"])
    np.testing.assert_array_equal(figure.data[1].x, [0, 1, 2, 3])
    assert figure.layout.yaxis.type == "linear"
    assert figure.layout.yaxis2.type == "log"
    with pytest.raises(KeyError, match="second"):
        trace.plot(x="second")


def test_plot_without_plotly_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    trace = Trace()
    trace.append(1.0)
    with pytest.raises(ImportError, match=r"pip install arbora\[explore\]"):
        trace.plot()


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize(
    ("verbose", "terminal", "visible"),
    [
        (0, True, False),
        (False, True, False),
        (1, True, True),
        (True, True, True),
        (1, False, False),
        (2, False, True),
    ],
)
def test_a_bar_is_shown_on_terminals_or_when_forced(monkeypatch, verbose, terminal, visible):
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(total=5, label="sweeps", verbose=verbose) as progress:
        for step in range(5):
            progress.update(objective=-float(step), gap=0.125)
    assert progress.visible is visible
    assert progress.n == 5
    shown = stream.getvalue()
    assert bool(shown) is visible
    if visible:
        assert "sweeps" in shown
        assert "5/5" in shown
        assert "objective=-4, gap=0.125" in shown


def test_progress_without_a_standard_error_stream(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(total=2, verbose=2) as progress:
        progress.update()
    assert progress.n == 1
    assert repr(progress) == "<Progress: 1/2>"


def test_progress_counts_right_from_many_threads(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(False))
    progress = Progress(verbose=2)
    threads = [
        threading.Thread(target=lambda: [progress.update(gap=0.1, shift=2.0) for _ in range(300)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    progress.close()
    assert progress.n == 2400
    assert "2400it" in sys.stderr.getvalue()


def test_progress_refuses_a_negative_total_and_closes_after_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(True))
    with pytest.raises(ValueError, match="negative"):
        Progress(-1)
    with pytest.raises(RuntimeError, match="in the loop"), Progress(3) as progress:
        raise RuntimeError("in the loop")
    assert progress._bar.disable  # tqdm marks a closed bar so
