"""Points of time: dates, numbers or bins of them, in ascending order; bins may be empty."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

UNITS = ("year", "month", "week", "day")
_CODES = {"year": "Y", "month": "M", "day": "D"}
_MONDAY = np.datetime64("1970-01-05", "D")
_SECOND = "datetime64[s]"


class Timeline(NamedTuple):
    """Points of time: the begin of each (numbers, or dates to the second), and the end of the last."""

    starts: NDArray[Any]
    end: Any

    @property
    def is_dates(self) -> bool:
        """Whether times are dates."""
        return bool(self.starts.dtype.kind == "M")


def read_times(times: Any, n_samples: int) -> NDArray[Any]:
    """Read a time for each row: float64, or datetime64[s] for dates and texts in the form of ISO 8601.

    Examples
    --------
    >>> read_times(["1999", "2000-02-03"], 2)
    array(['1999-01-01T00:00:00', '2000-02-03T00:00:00'], dtype='datetime64[s]')
    """
    given = np.asarray(times)
    if given.shape != (n_samples,):
        raise ValueError(
            f"times must have one time for each of the {n_samples} rows, got shape {given.shape}."
        )
    if given.dtype.kind == "O" and all(isinstance(time, Real) for time in given):
        given = given.astype(np.float64)  # otherwise they would be read as seconds since 1970
    try:
        read = given.astype(np.float64 if given.dtype.kind in "biuf" else _SECOND)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"times must be numbers, dates, or texts like '1999-12-31' ({error}); pandas.to_datetime converts others."
        ) from None
    missing = np.flatnonzero(~np.isfinite(read))
    if len(missing):
        raise ValueError(
            f"row {missing[0]} has no time, or an infinite one ({len(missing)} rows in all): drop these rows."
        )
    return read


def make_timeline(times: NDArray[Any], bins: Any = None) -> Timeline:
    """Choose points of time for given times.

    Parameters
    ----------
    times : ndarray of shape (n_samples,)
    bins : None, int, str or array-like
        None: every time that occurs is a point. A number of bins of equal width; "year", "month", "week" or "day";
        or edges.

    Returns
    -------
    Timeline

    Examples
    --------
    >>> make_timeline(np.array([1.0, 5.0, 9.0]), 4).starts
    array([1., 3., 5., 7.])
    >>> make_timeline(read_times(["1999-01-05", "1999-04-02"], 2), "month").starts.astype("datetime64[M]")
    array(['1999-01', '1999-02', '1999-03', '1999-04'], dtype='datetime64[M]')
    """
    if bins is None:
        starts = np.unique(times)
        return Timeline(starts, starts[-1])
    if isinstance(bins, str):
        return _calendar(times, bins)
    if np.ndim(bins) == 0:
        first, last = times.min(), times.max()
        if first == last:
            return Timeline(np.array([first]), last)
        # Dates are converted to integer seconds and back.
        edges = np.linspace(_number(first), _number(last), int(bins) + 1).astype(_number(times).dtype)
        return Timeline(edges[:-1].astype(times.dtype), last)
    edges = read_times(bins, len(np.asarray(bins)))
    if edges.dtype != times.dtype:
        raise ValueError(
            "bins and times must both be dates or both be numbers: give edges of the type of times."
        )
    if len(edges) < 2 or not np.all(edges[1:] > edges[:-1]):
        raise ValueError("bins must be at least two edges, each greater than the one before.")
    return Timeline(edges[:-1], edges[-1])


def _calendar(times: NDArray[Any], unit: str) -> Timeline:
    if times.dtype.kind != "M":
        raise ValueError(f"bins={unit!r} needs dates, but times are numbers: give edges or a number of bins.")
    if unit == "week":
        weeks = (times.astype("datetime64[D]") - _MONDAY) // np.timedelta64(7, "D")
        first, last = int(weeks.min()), int(weeks.max())
        edges = (_MONDAY + 7 * np.arange(first, last + 2)).astype(_SECOND)
    else:
        units = times.astype(f"datetime64[{_CODES[unit]}]")
        edges = np.arange(units.min(), units.max() + 2).astype(_SECOND)
    return Timeline(edges[:-1], edges[-1] - np.timedelta64(1, "s"))


def _number(times: Any) -> Any:
    return np.asarray(times).astype(np.int64) if np.asarray(times).dtype.kind == "M" else np.asarray(times)


def points_of(timeline: Timeline, times: NDArray[Any]) -> Ids:
    """Return the point of time of each given time: the last that does not begin after it."""
    if (times.dtype.kind == "M") != timeline.is_dates:
        kind = "dates" if timeline.is_dates else "numbers"
        raise ValueError(f"times must be {kind}, like the times of the fit.")
    outside = np.flatnonzero((times < timeline.starts[0]) | (times > timeline.end))
    if len(outside):
        raise ValueError(
            f"the time of row {outside[0]}, {times[outside[0]]}, is not between {timeline.starts[0]} and "
            f"{timeline.end}; for later rows give times='next'."
        )
    return np.searchsorted(timeline.starts, times, side="right") - 1
