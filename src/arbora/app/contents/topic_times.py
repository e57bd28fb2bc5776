"""Topics over time: names of the time bins, and shares, words and trends of topics in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_WORDS = 10


def bin_names(starts: NDArray[Any]) -> list[str]:
    """Return the shortest names that distinguish the time bins.

    Examples
    --------
    >>> bin_names(np.array([1999.0, 2000.0])), bin_names(np.array(["1999-03-01"], "datetime64[s]"))
    (['1999', '2000'], ['1999-03'])
    >>> bin_names(np.array([1790.0, 1793.8333, 1797.6667]))
    ['1790', '1794', '1798']
    """
    if starts.dtype.kind != "M":
        for digits in range(10):
            names = [f"{start:.{digits}f}" for start in starts.tolist()]
            if len(set(names)) == len(names):
                return names
        return [f"{start:.10g}" for start in starts.tolist()]
    for code in ("Y", "M", "D"):
        short = starts.astype(f"datetime64[{code}]")
        if (short.astype("datetime64[s]") == starts).all():
            return [str(one) for one in short]
    return [str(start) for start in starts]


def bin_of(starts: NDArray[Any], times: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of the time bin of each document.

    Examples
    --------
    >>> bin_of(np.array([1999.0, 2001.0]), np.array([2000.5, 2001.0]))
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
        Name of the time field.
    times : ndarray or None
        Times of the documents, see `read_times`; None: the counts of the model are used.
    nodes : ndarray of int
        Id of the node of each topic.
    names : sequence of str
        Names of the columns.

    Returns
    -------
    dict
    """
    starts = model.times_
    if times is None:
        n_documents = np.rint(model.counts_.sum(axis=1))
    else:
        n_documents = np.bincount(bin_of(starts, times), minlength=len(starts))
    labels = bin_names(starts)
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
