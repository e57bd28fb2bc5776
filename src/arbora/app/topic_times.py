"""Topics over time: times of documents, points of time, and what a model folder tells of topics at each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.app.documents import Documents
from arbora.datasets.errors import DataFormatError

N_WORDS = 10
MOST_POINTS = 60  # points of time that can be told apart in a picture
_UNITS = {"year": "Y", "month": "M", "day": "D"}


def read_times(documents: Documents, field: str) -> NDArray[Any]:
    """Read the times of documents: numbers if all of them are, dates otherwise.

    Parameters
    ----------
    documents : Documents
    field : str
        One of their fields.

    Returns
    -------
    ndarray of float64, or of datetime64[s]

    Examples
    --------
    >>> from pathlib import Path
    >>> place = [(Path("x.csv"), 2), (Path("x.csv"), 3)]
    >>> read_times(Documents("x", ["1", "2"], None, place, texts=["", ""], fields={"year": ["1999", 2001]}), "year")
    array([1999., 2001.])
    """
    if field not in documents.fields:
        known = ", ".join(map(repr, documents.fields)) or "none"
        raise ValueError(f"documents of {documents.name} have no field {field!r} (there are: {known})")
    values = documents.fields[field]
    numbers = [_as_number(value) for value in values]
    if all(number is not None for number in numbers):
        return np.array(numbers, dtype=np.float64)
    dates = np.empty(len(values), dtype="datetime64[s]")
    for row, value in enumerate(values):
        try:
            dates[row] = np.datetime64(value.strip().removesuffix("Z") if isinstance(value, str) else "NaT")
        except ValueError:
            dates[row] = np.datetime64("NaT")
        if np.isnat(dates[row]):
            problem = f"{field!r} is {value!r}, which is no number and no date such as 1999-12-31"
            raise DataFormatError(*documents.places[row], problem)
    return dates


def _as_number(value: Any) -> float | None:
    try:
        number = None if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError):
        return None
    return number if number is not None and np.isfinite(number) else None


def choose_bins(times: NDArray[Any], bins: str | int | None = None) -> Any:
    """Choose points of time: what is asked for, or each time that occurs if they are few, or units, or equal bins.

    Examples
    --------
    >>> choose_bins(np.arange(10.0)) is None, choose_bins(np.arange(1000.0))
    (True, 60)
    >>> choose_bins(np.arange("1990-01-01", "1995-01-01", dtype="datetime64[D]").astype("datetime64[s]"))
    'month'
    """
    if bins is not None:
        return bins
    if len(np.unique(times)) <= MOST_POINTS:
        return None
    if times.dtype.kind == "M":
        units = [name for name in ("day", "month", "year") if _span(times, _UNITS[name]) <= MOST_POINTS]
        if units:
            return units[0]
    return MOST_POINTS


def _span(times: NDArray[Any], code: str) -> int:
    low, high = (times.min(), times.max())
    return int((high.astype(f"datetime64[{code}]") - low.astype(f"datetime64[{code}]")).astype(np.int64)) + 1


def point_names(starts: NDArray[Any]) -> list[str]:
    """Names of points of time, as short as tells them apart.

    Examples
    --------
    >>> point_names(np.array([1999.0, 2000.0])), point_names(np.array(["1999-03-01"], "datetime64[s]"))
    (['1999', '2000'], ['1999-03'])
    """
    if starts.dtype.kind != "M":
        return [f"{start:.10g}" for start in starts.tolist()]
    for code in ("Y", "M", "D"):
        short = starts.astype(f"datetime64[{code}]")
        if (short.astype("datetime64[s]") == starts).all():
            return [str(one) for one in short]
    return [str(start) for start in starts]


def points_of(starts: NDArray[Any], times: NDArray[Any]) -> NDArray[np.int64]:
    """Find the point of time of each document, by number.

    Examples
    --------
    >>> points_of(np.array([1999.0, 2001.0]), np.array([2000.5, 2001.0]))
    array([0, 1])
    """
    return np.clip(np.searchsorted(starts, times, side="right") - 1, 0, len(starts) - 1)


def describe_time(
    model: Any, field: str, times: NDArray[Any] | None, nodes: NDArray[np.int64], names: Sequence[str]
) -> dict[str, Any]:
    """Make the content of ``time.json``.

    Parameters
    ----------
    model : fitted TemporalVMFMixture
    field : str
        Name of the field of the times.
    times : ndarray or None
        Of `read_times`. None: documents are counted as the model has.
    nodes : ndarray of int
        Id of the node of each topic.
    names : sequence of str
        Of the columns.

    Returns
    -------
    dict
    """
    starts = model.times_
    if times is None:
        n_documents = np.rint(model.counts_.sum(axis=1))
    else:
        n_documents = np.bincount(points_of(starts, times), minlength=len(starts))
    labels = point_names(starts)
    ends = [*_plain(starts[1:]), *_plain(np.array([model.time_end_]))]
    bins = [
        {"name": name, "start": start, "end": end, "n_documents": int(n)}
        for name, start, end, n in zip(labels, _plain(starts), ends, n_documents, strict=True)
    ]
    lives = model.dynamics()
    words = [
        [
            [[str(word), round(weight, 6)] for word, weight in one.features]
            for one in model.vocabulary(topic, names, n=N_WORDS)
        ]
        for topic in range(len(lives))
    ]
    return {
        "field": field,
        "bins": bins,
        "nodes": nodes.tolist(),
        "shares": [
            [None if np.isnan(share) else round(share, 6) for share in life.share.tolist()] for life in lives
        ],
        "words": words,
        "trends": [_trend(life, starts) for life in lives],
    }


def _plain(starts: NDArray[Any]) -> list[Any]:
    return [str(start) for start in starts] if starts.dtype.kind == "M" else starts.tolist()


def _trend(life: Any, starts: NDArray[Any]) -> dict[str, Any]:
    seen = np.flatnonzero(~np.isnan(life.share))
    share = life.share[seen]
    third = max(1, len(seen) // 3)

    def point(time: Any) -> int:
        return int(np.searchsorted(starts, time))

    return {
        "birth": point(life.birth),
        "peak": point(life.peak),
        "last": int(seen[-1]) if life.end is None else point(life.end),
        "change": round(float(share[-third:].mean() - share[:third].mean()), 6),
    }
