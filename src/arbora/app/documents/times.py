"""Times of documents, and the time bins of a topic model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.app.documents.collection import Documents
from arbora.datasets.base import DataFormatError

MOST_BINS = 60  # more are not readable in a figure
BAD_TIME = "the time is no number and no date"
_UNITS = {"year": "Y", "month": "M", "day": "D"}


def read_times(documents: Documents, field: str) -> NDArray[Any]:
    """Read the times of documents from a field: numbers if all values are numbers, dates otherwise.

    Parameters
    ----------
    documents : Documents
    field : str
        Name of the field.

    Returns
    -------
    ndarray of float64, or of datetime64[s]

    Examples
    --------
    >>> read_times(Documents.from_texts(["a", "b"], fields={"year": ["1999", 2001]}), "year")
    array([1999., 2001.])
    """
    if field not in documents.fields:
        known = ", ".join(map(repr, documents.fields)) or "none"
        raise ValueError(f"documents of {documents.name} have no field {field!r} (there are: {known})")
    values = documents.fields[field]
    numbers = [_as_number(value) for value in values]
    if all(number is not None for number in numbers):
        return np.array(numbers, dtype=np.float64)
    dates = _as_dates(values)
    wrong = np.flatnonzero(np.isnat(dates))
    if wrong.size:
        raise _no_time(documents, field, int(wrong[0]))
    return dates


def drop_bad_times(documents: Documents, field: str) -> Documents:
    """Leave out documents whose time is no number and no date; they are counted in ``documents.skipped``.

    Times are numbers if at least as many values are numbers as are dates, else dates.

    Examples
    --------
    >>> documents = Documents.from_texts(["a", "b"], fields={"day": ["1999-12-31", "yesterday"]})
    >>> drop_bad_times(documents, "day").texts
    ['a']
    """
    if field not in documents.fields:
        return documents
    values = documents.fields[field]
    is_number = np.array([_as_number(value) is not None for value in values], dtype=bool)
    is_date = ~np.isnat(_as_dates(values))
    good = is_number if is_number.sum() >= is_date.sum() else is_date
    if good.all():
        return documents
    errors = [_no_time(documents, field, row) for row in np.flatnonzero(~good).tolist()]
    if not good.any():
        raise errors[0]
    for error in errors:
        documents.skipped.add(error)
    return documents.take(np.flatnonzero(good))


def _no_time(documents: Documents, field: str, row: int) -> DataFormatError:
    value = str(documents.fields[field][row])[:60]
    problem = f"{field!r} is {value!r}, which is no number and no date such as 1999-12-31"
    return DataFormatError(*documents.places[row], problem, BAD_TIME)


def _as_dates(values: list[Any]) -> NDArray[Any]:
    dates = np.empty(len(values), dtype="datetime64[s]")
    for row, value in enumerate(values):
        try:
            dates[row] = np.datetime64(value.strip().removesuffix("Z") if isinstance(value, str) else "NaT")
        except ValueError:
            dates[row] = np.datetime64("NaT")
    return dates


def _as_number(value: Any) -> float | None:
    try:
        number = None if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError):
        return None
    return number if number is not None and np.isfinite(number) else None


def choose_bins(times: NDArray[Any], bins: str | int | None = None) -> str | int | None:
    """Choose the time bins: those given, or one per distinct time if these are few, or calendar units, or equal bins.

    Examples
    --------
    >>> choose_bins(np.arange(10.0)) is None, choose_bins(np.arange(1000.0))
    (True, 60)
    >>> choose_bins(np.arange("1990-01-01", "1995-01-01", dtype="datetime64[D]").astype("datetime64[s]"))
    'month'
    """
    if bins is not None:
        return bins
    if len(np.unique(times)) <= MOST_BINS:
        return None
    if times.dtype.kind == "M":
        units = [name for name in ("day", "month", "year") if _span(times, _UNITS[name]) <= MOST_BINS]
        if units:
            return units[0]
    return MOST_BINS


def _span(times: NDArray[Any], code: str) -> int:
    low, high = (times.min(), times.max())
    return int((high.astype(f"datetime64[{code}]") - low.astype(f"datetime64[{code}]")).astype(np.int64)) + 1
