"""History of a fit: objective, seconds and other numbers, one row per iteration.

Every fit leaves a :class:`Trace`. The trace measures time itself. When a fit is resumed its clock continues from the
last row, so that `seconds` counts the time of work only.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from time import perf_counter
from typing import Any

import numpy as np

from arbora.arrays import Array

_FIRST_COLUMNS = ("objective", "seconds")
LOG_COLUMNS = ("gap", "gap_estimate", "gain", "change")  # positive values are drawn on a logarithmic axis


class Trace:
    """A table of numbers that grows by one row per iteration.

    The columns ``objective`` and ``seconds`` always exist; others appear when they are first given. A value that was
    not given is NaN. The clock starts when the trace is made. Four names have one meaning in all models:

    - ``gap``: certified relative duality gap;
    - ``gap_estimate``: estimate of it, in iterations that do not compute a certificate;
    - ``gain``: change of the objective per row;
    - ``change``: change of the parameters, or relative norm of the gradient.

    Examples
    --------
    >>> from arbora.core.trace import Trace
    >>> trace = Trace()
    >>> for step in range(3):
    ...     trace.append(objective=10.0 / 2**step, gap=1.0 / 10**step, n_active=5 - step)
    >>> len(trace)
    3
    >>> trace["objective"]
    array([10. ,  5. ,  2.5])
    >>> trace.last["n_active"]
    3.0
    >>> trace.is_monotone("objective", increasing=False)
    True
    """

    def __init__(self) -> None:
        self._columns: dict[str, list[float]] = {name: [] for name in _FIRST_COLUMNS}
        self._n_rows = 0
        self.start()

    def start(self) -> None:
        """Restart the clock from the seconds of the last row.

        Call it when a fit continues with a trace that has rows already. The time in between is not counted.
        """
        seconds = self._columns["seconds"]
        self._zero = perf_counter() - (seconds[-1] if seconds else 0.0)

    @property
    def elapsed(self) -> float:
        """Seconds of work so far, including those before a resume."""
        return perf_counter() - self._zero

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    @property
    def last(self) -> dict[str, float]:
        """The last row as a dict; empty for an empty trace."""
        return {name: values[-1] for name, values in self._columns.items() if values}

    def append(self, objective: float = np.nan, **columns: float) -> None:
        """Add a row: the objective, and any other number under its name. Its seconds are measured here."""
        if "seconds" in columns:
            raise ValueError("the trace measures 'seconds' itself: give your duration another name")
        # Convert all numbers before storing any: a bad value must not leave a row half written.
        row = {name: float(value) for name, value in columns.items()}
        row.update(objective=float(objective), seconds=self.elapsed)
        for name in row:
            if name not in self._columns:
                self._columns[name] = [np.nan] * self._n_rows
        for name, values in self._columns.items():
            values.append(row.get(name, np.nan))
        self._n_rows += 1

    def is_monotone(self, column: str = "objective", *, increasing: bool, tolerance: float = 0.0) -> bool:
        """Return whether a column never moves the wrong way.

        Parameters
        ----------
        column : str
            Name of the column; NaN values are ignored.
        increasing : bool
            True for values that must not fall (a bound), False for values that must not rise (a loss).
        tolerance : float
            Allowed step in the wrong direction, relative to max(1, |value before it|).

        Returns
        -------
        bool
            True for a column with fewer than two values.

        Examples
        --------
        >>> from arbora.core.trace import Trace
        >>> trace = Trace()
        >>> for bound in (-9.0, -4.0, -4.0 - 1e-12):
        ...     trace.append(objective=bound)
        >>> trace.is_monotone(increasing=True), trace.is_monotone(increasing=True, tolerance=1e-9)
        (False, True)
        """
        values = self[column]
        values = values[~np.isnan(values)]
        if not increasing:
            values = -values
        before, after = values[:-1], values[1:]
        # No tolerance at infinite values: infinity minus infinity would be NaN.
        slack = tolerance * np.where(np.isfinite(before), np.maximum(1.0, np.abs(before)), 0.0)
        return bool(np.all(after >= before - slack))

    def to_dict(self) -> dict[str, list[float]]:
        """Return the columns as lists, for a data frame."""
        return {name: list(values) for name, values in self._columns.items()}

    def to_state(self) -> dict[str, Any]:
        """Return the whole content as plain values and arrays, for ``arbora.io``."""
        values = np.array(list(self._columns.values()), dtype=np.float64).reshape(
            len(self._columns), self._n_rows
        )
        return {"columns": list(self._columns), "values": values}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Trace:
        """Make an equal trace from the result of :meth:`to_state`. Its clock continues from the last row."""
        names = [str(name) for name in state["columns"]]
        values = np.asarray(state["values"], dtype=np.float64)
        if values.ndim != 2 or len(values) != len(names) or not {*_FIRST_COLUMNS} <= {*names}:
            raise ValueError(
                f"not the state of a trace: columns {names} with values of shape {values.shape}; expected "
                f"one row of values for each column, and columns {' and '.join(_FIRST_COLUMNS)} among them"
            )
        trace = cls()
        trace._columns = dict(zip(names, values.tolist(), strict=True))
        trace._n_rows = values.shape[1]
        trace.start()
        return trace

    def plot(self, x: str = "seconds") -> Any:
        """Draw all columns with plotly over the column `x`, or over "iteration".

        The figure has one panel for every column with numbers, except the seconds; positive gaps, gains and changes
        have a logarithmic axis.
        """
        try:
            from plotly.graph_objects import Scatter
            from plotly.subplots import make_subplots
        except ImportError as error:
            raise ImportError("Trace.plot needs plotly: pip install arbora[explore]") from error
        horizontal = np.arange(self._n_rows) if x == "iteration" else self[x]
        shown = [name for name in self._columns if name != "seconds" and not np.isnan(self[name]).all()]
        if not shown:
            raise ValueError("the trace is empty: fit the model before plotting")
        figure = make_subplots(rows=len(shown), cols=1, shared_xaxes=True, vertical_spacing=0.12 / len(shown))
        for row, name in enumerate(shown, start=1):
            values = self[name]
            figure.add_trace(Scatter(x=horizontal, y=values, mode="lines+markers", name=name), row=row, col=1)
            log_axis = name in LOG_COLUMNS and bool(np.nanmin(values) > 0)
            figure.update_yaxes(title_text=name, type="log" if log_axis else "linear", row=row, col=1)
        figure.update_xaxes(title_text=x, row=len(shown), col=1)
        figure.update_layout(showlegend=False)
        return figure

    def __len__(self) -> int:
        return self._n_rows

    def __getitem__(self, column: str) -> Array:
        if column not in self._columns:
            near = get_close_matches(str(column), self._columns, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise KeyError(f"the trace has no column {column!r}{hint}; it has {', '.join(self._columns)}")
        return np.array(self._columns[column], dtype=np.float64)

    def __contains__(self, column: object) -> bool:
        return column in self._columns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return self.columns == other.columns and all(
            np.array_equal(self[name], other[name], equal_nan=True) for name in self.columns
        )

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        # The clock of another process is meaningless: only the rows are pickled.
        return self.to_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(Trace.from_state(state).__dict__)

    def __repr__(self) -> str:
        last = ", ".join(f"{name}={value:.6g}" for name, value in self.last.items() if not np.isnan(value))
        rows = f"{self._n_rows} iteration{'s' if self._n_rows != 1 else ''}"
        return f"<Trace: {rows}; last {last}>" if last else f"<Trace: {rows}>"
