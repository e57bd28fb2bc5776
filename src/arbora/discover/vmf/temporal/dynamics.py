"""Dynamics of clusters over time: birth, rise, peak, decline and end, and changes of their features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ClusterDynamics(NamedTuple):
    """The course of a cluster over time.

    Attributes
    ----------
    cluster : int
    rows : float
        Expected number of rows at all times.
    birth : time
        The first point of time at which the share of the cluster reaches `level` times its largest share.
    rise : time or None
        The point of time with rows at which its share grew most.
    peak : time
        The point of time with its largest share.
    decline : time or None
        The point of time with rows at which its share fell most.
    end : time or None
        The last point of time at which its share reaches `level` times its largest share; None if this is the last
        point of time with rows.
    trend : float
        Least-squares slope of its share per point of time.
    share : ndarray of shape (n_times,)
        Its share of the rows at each time; NaN for times without rows.
    """

    cluster: int
    rows: float
    birth: Any
    rise: Any
    peak: Any
    decline: Any
    end: Any
    trend: float
    share: NDArray[np.float64]


class Vocabulary(NamedTuple):
    """Largest features of a cluster at a time: the time, rows of the cluster, and (name, weight), largest first."""

    time: Any
    rows: float
    features: list[tuple[Any, float]]


def cluster_dynamics(times: NDArray[Any], counts: NDArray[np.float64], level: float) -> list[ClusterDynamics]:
    """Describe the course of each cluster.

    Parameters
    ----------
    times : ndarray of shape (n_times,)
    counts : ndarray of shape (n_times, n_components)
        Rows of each cluster at each time.
    level : float
        Part of its largest share above which a cluster is alive.

    Returns
    -------
    list of ClusterDynamics

    Examples
    --------
    >>> first, second = cluster_dynamics(np.array([2000, 2001, 2002]), np.array([[9, 1], [5, 5], [0, 9]]), 0.1)
    >>> int(first.peak), int(first.end), int(second.rise), second.end is None
    (2000, 2001, 2002, True)
    """
    total = counts.sum(axis=1)
    seen = np.flatnonzero(total > 0)
    shares = counts[seen] / total[seen, None]
    found = []
    for k, share in enumerate(shares.T):
        change, alive = np.diff(share), np.flatnonzero(share >= level * share.max())
        path = np.full(len(times), np.nan)
        path[seen] = share
        known = times[seen]
        found.append(
            ClusterDynamics(
                k,
                float(counts[:, k].sum()),
                birth=known[alive[0]],
                rise=known[change.argmax() + 1] if change.size and change.max() > 0 else None,
                peak=known[share.argmax()],
                decline=known[change.argmin() + 1] if change.size and change.min() < 0 else None,
                end=None if alive[-1] == len(seen) - 1 else known[alive[-1]],
                trend=float(np.polyfit(seen, share, 1)[0]) if len(seen) > 1 else 0.0,
                share=path,
            )
        )
    return found
