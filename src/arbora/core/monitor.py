"""Convergence, history, progress and resume of an iterative method, in one place.

Every loop of the library has a :class:`Monitor`. After each iteration it calls :meth:`Monitor.record`, which adds a
row to the :class:`~arbora.core.trace.Trace`, updates the progress bar, and returns whether to stop.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike
from tqdm import tqdm

from arbora.arrays import TINY, Matrix
from arbora.core.checkpoint import Checkpoint, Piece
from arbora.core.trace import Trace

Item = TypeVar("Item")

# --- A progress bar with the remaining time -----------------------------------------------------------------
#
# A bar is drawn on a terminal only, so that log files and test runs stay clean; ``verbose=2`` always draws it.


class Progress:
    """Counter of finished steps, shown as a bar with the remaining time and the latest objective and gap.

    Parameters
    ----------
    total : int, optional
        Number of steps. Default: unknown; the bar shows the count and the speed.
    label : str
        Name of the work, at the left of the bar.
    verbose : int or bool
        0: no bar. 1: a bar if the standard error stream is a terminal. 2 or more: always a bar.

    Notes
    -----
    Any thread may call `update`. Leaving the ``with`` block, also by an error, or calling `close` ends the bar.

    Examples
    --------
    >>> from arbora.core.monitor import Progress
    >>> with Progress(total=3, label="sweeps", verbose=1) as progress:
    ...     for sweep in range(3):
    ...         progress.update(objective=-1.5 * sweep, gap=0.1)
    >>> progress.n
    3
    """

    def __init__(self, total: int | None = None, label: str = "", verbose: int | bool = 1) -> None:
        if total is not None and total < 0:
            raise ValueError(f"total must not be negative, got {total}")
        self.total = total
        self.label = label
        self.n = 0
        self._lock = threading.Lock()
        self._shown: dict[str, float] = {}
        # Outside a terminal each redrawing is a new line, so redraw rarely there.
        terminal = sys.stderr is not None and sys.stderr.isatty()
        visible = sys.stderr is not None and (verbose >= 2 or (verbose >= 1 and terminal))
        self._bar: tqdm[Any] | None = None
        if visible:
            interval = 0.1 if terminal else 10.0
            self._bar = tqdm(total=total, desc=label or None, mininterval=interval, dynamic_ncols=True)

    @property
    def visible(self) -> bool:
        """Whether a bar is drawn."""
        return self._bar is not None

    def update(
        self, n: int = 1, *, objective: float | None = None, gap: float | None = None, **extra: float
    ) -> None:
        """Count ``n`` more steps as done, and show the latest numbers at the right of the bar."""
        numbers = {"objective": objective, "gap": gap, **extra}
        with self._lock:
            self.n += n
            self._shown.update({name: value for name, value in numbers.items() if value is not None})
            if self._bar is not None:
                if self._shown:
                    text = ", ".join(f"{name}={value:.4g}" for name, value in self._shown.items())
                    self._bar.set_postfix_str(text, refresh=False)
                self._bar.update(n)

    def close(self) -> None:
        """Draw the bar for the last time."""
        with self._lock:
            if self._bar is not None:
                self._bar.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Progress: {self.label + ' ' if self.label else ''}{self.n}/{self.total or '?'}>"


def with_progress(
    items: Iterable[Item], label: str, total: int | None = None, verbose: int | bool = 1
) -> Iterator[Item]:
    """Yield items, and count them on a progress bar."""
    with Progress(total, label, verbose) as progress:
        for item in items:
            yield item
            progress.update()


# --- Convergence, history, progress and resume of an iterative method, in one place -------------------------


_ROUNDING = 10.0  # error of an objective, in units of the working precision
_SAVE_SHARE = 20.0  # seconds between two saved states, in units of the seconds that one takes


class Monitor:
    """Decide when a loop stops, keep its history, show its progress, save and restore its state.

    The first of `gap`, `gain` and `change` that an iteration gives is the criterion:

    - `gap`, a duality gap: stop when gap / objective <= tol. The gap is counted from the highest lower bound
      (objective - gap) of all certified iterations.
    - `gain`, the change of the objective per row: stop when gain < tol.
    - `change`, of the parameters or a relative gradient norm: stop when change <= tol.

    A loop that gives none of them runs for `max_iter` iterations.

    Parameters
    ----------
    tol : float
        Tolerance of the criterion.
    max_iter : int
        Maximum number of iterations, including those before a resume.
    progress : Progress, optional
        Counts the iterations.
    checkpoint : Checkpoint, optional
        Where :meth:`keep` saves states.
    dtype : dtype
        Precision in which objectives are computed. A gap is never reported smaller than the rounding error of the
        objective, unless the loop itself gives a smaller one.

    Attributes
    ----------
    trace : Trace
        One row per iteration: `objective` and `seconds`; `gap` (certified relative duality gap), `gap_estimate`
        (relative gap that is not certified), `gain` and `change` where they were given.
    converged : bool
        Whether the last iteration met the tolerance.
    criterion : {"gap", "gain", "change"} or None
        What was compared with `tol` in the last iteration.
    value : float
        Value of that criterion; NaN before the first iteration and where there is none.
    gap : float
        Absolute duality gap of the last iteration; NaN where there is none.
    bound : float
        Highest certified lower bound on the optimum.

    Examples
    --------
    >>> from arbora.core.monitor import Monitor
    >>> monitor = Monitor(tol=0.1, max_iter=2)
    >>> monitor.record(10.0, gap=2.0), monitor.record(9.0, gap=5.0)  # the optimum is at least 8
    (False, True)
    >>> monitor.trace["gap"].round(3), monitor.bound, monitor.converged
    (array([0.2  , 0.111]), 8.0, False)

    A loop that maximises a bound:

    >>> monitor, bounds, done = Monitor(tol=1e-3, max_iter=100), [-5.0], False
    >>> while not done:
    ...     bounds.append(bounds[-1] / 2)
    ...     done = monitor.record(bounds[-1], gain=bounds[-1] - bounds[-2])
    >>> monitor.n_iter, monitor.converged, monitor.criterion
    (13, True, 'gain')
    """

    def __init__(
        self,
        tol: float,
        max_iter: int,
        progress: Progress | None = None,
        checkpoint: Checkpoint | None = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.tol, self.max_iter, self.progress, self.checkpoint = tol, max_iter, progress, checkpoint
        self.rounding = _ROUNDING * float(np.finfo(np.dtype(dtype)).eps)
        self.trace, self.bound, self.converged = Trace(), -np.inf, False
        self.criterion: str | None = None
        self.value = self.gap = np.nan
        self._saved_at, self._saving = 0.0, 0.0  # end of the last save, and how long it took

    @property
    def n_iter(self) -> int:
        """Number of iterations so far."""
        return len(self.trace)

    @property
    def is_last(self) -> bool:
        """Whether `max_iter` allows only one more iteration."""
        return self.n_iter >= self.max_iter - 1

    @property
    def done(self) -> bool:
        """Whether the loop has converged or `max_iter` is reached, also after a resume."""
        return self.converged or self.n_iter >= self.max_iter

    @property
    def objective(self) -> float:
        """Objective of the last iteration; NaN before the first one."""
        return self.trace.last.get("objective", np.nan)

    def record(
        self,
        objective: float,
        *,
        gap: float | None = None,
        gain: float | None = None,
        change: float | None = None,
        certified: bool = True,
        converged: bool | None = None,
        **extra: float,
    ) -> bool:
        """Add an iteration and return whether it is the last one.

        Parameters
        ----------
        gap : float, optional
            Absolute duality gap. None or NaN where there is none.
        gain : float, optional
            Change of the objective per row (or unit of weight). None in the first iteration.
        change : float, optional
            Change of the parameters, or norm of the gradient, relative to a scale that the loop chooses.
        certified : bool
            False where this iteration must not stop the loop: its gap is an estimate (it goes to the column
            `gap_estimate`), or a schedule has not ended yet.
        converged : bool, optional
            Replaces the comparison with `tol`, for a loop with another rule.
        **extra : float
            Further columns of the trace.

        Returns
        -------
        bool
            True if the loop has converged or `max_iter` is reached.
        """
        criteria = {"gap": gap, "gain": gain, "change": change}
        columns = {
            name: float(value)
            for name, value in criteria.items()
            if value is not None and not np.isnan(value)
        }
        self.gap = columns.get("gap", np.nan)
        if "gap" in columns:
            columns["gap"] = self._relative_gap(float(objective), certified)
        self.criterion = next(iter(columns), None)
        self.value = columns[self.criterion] if self.criterion is not None else np.nan
        met = self.value < self.tol if self.criterion == "gain" else self.value <= self.tol
        self.converged = bool(certified and (met if converged is None else converged))
        if "gap" in columns and not certified:
            columns["gap_estimate"] = columns.pop("gap")
        self.trace.append(objective, **columns, **extra)
        if self.progress is not None:
            shown: dict[str, Any] = {} if self.criterion is None else {self.criterion: self.value}
            self.progress.update(objective=float(objective), **shown)
        return self.done

    def _relative_gap(self, objective: float, certified: bool) -> float:
        """Count the gap from the highest lower bound; return it relative to the objective."""
        if certified:
            self.bound = max(self.bound, objective - self.gap)
            self.gap = min(self.gap, max(objective - self.bound, self.rounding * abs(objective)))
        return self.gap / max(objective, TINY)

    def to_state(self) -> dict[str, Any]:
        """Return history and certificate as values that JSON can hold."""
        certificate = {"bound": self.bound, "gap": self.gap, "converged": self.converged}
        return {"trace": self.trace.to_dict(), **certificate}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`to_state` returned. The clock continues from the last row."""
        columns = state["trace"]
        self.trace = Trace.from_state({"columns": list(columns), "values": list(columns.values())})
        self.bound, self.gap, self.converged = state["bound"], state["gap"], state["converged"]

    @property
    def is_due(self) -> bool:
        """Whether :meth:`keep` would save: there is a checkpoint, and the last save is long enough ago."""
        return self.checkpoint is not None and self._is_due_at(perf_counter())

    def _is_due_at(self, now: float) -> bool:
        return now - self._saved_at >= _SAVE_SHARE * self._saving

    def keep(self, name: str, arrays: dict[str, Matrix], **meta: Any) -> None:
        """Save the state of a loop, with the history, as the piece `name` of the checkpoint.

        Nothing is saved without a checkpoint, nor when the last save is so recent that saving would take more than a
        twentieth of the time.
        """
        now = perf_counter()
        if self.checkpoint is None or not self._is_due_at(now):
            return
        self.checkpoint.save(name, arrays, {"monitor": self.to_state(), "own": meta})
        self._saved_at = perf_counter()
        self._saving = self._saved_at - now

    def resume(self, name: str) -> Piece | None:
        """Return the arrays and values that :meth:`keep` saved, and restore the history; None if there are none."""
        piece = self.checkpoint.load(name) if self.checkpoint is not None else None
        if piece is None:
            return None
        self.restore(piece.meta["monitor"])
        return Piece(piece.arrays, piece.meta["own"])
