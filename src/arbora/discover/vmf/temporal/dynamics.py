"""The life of clusters over time: their birth, rise and decline, and how what they are about changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.discover._mixture.top_features import largest_features


class ClusterDynamics(NamedTuple):
    """The life of a cluster.

    Attributes
    ----------
    cluster : int
    rows : float
        Rows in all, by their probabilities.
    birth : time
        The first point of time at which its share of the rows is a part `level` of its greatest share.
    rise : time or None
        When its share grew most from one point of time with rows to the next.
    peak : time
        When its share was the greatest.
    decline : time or None
        When its share fell most.
    end : time or None
        The last point of time at which its share is a part `level` of the greatest; None if that is the last with
        rows: it is still alive.
    trend : float
        Slope of its share by point of time, by least squares.
    share : ndarray of shape (n_times,)
        Its share of the rows of each time; NaN for times without rows.
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
    """What a cluster is about at a time: the time, rows of the cluster then, and (name, value), largest first."""

    time: Any
    rows: float
    features: list[tuple[Any, float]]


class ClusterLife:
    """Mixin for fitted mixtures with `times_`, `counts_` and `means_` by time, and `n_components_`."""

    times_: NDArray[Any]
    counts_: NDArray[np.float64]
    means_: NDArray[np.float64]
    n_components_: int

    def vocabulary(
        self, cluster: int, feature_names: Any = None, n: int = 6, times: Any = None
    ) -> list[Vocabulary]:
        """List the largest features of a cluster at each time: how what it is about changes.

        Parameters
        ----------
        cluster : int
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or numbers of columns.
        n : int
            How many.
        times : sequence of dates or numbers, optional
            All points of time by default.

        Returns
        -------
        list of Vocabulary
            In order of time.
        """
        check_is_fitted(self)
        if not 0 <= cluster < self.n_components_:
            raise ValueError(f"cluster must be a number from 0 to {self.n_components_ - 1}, got {cluster}.")
        points = range(len(self.times_)) if times is None else sorted({self._point(time) for time in times})
        listed = largest_features(self, self.means_[list(points), cluster], feature_names, n)
        return [
            Vocabulary(self.times_[t], float(self.counts_[t, cluster]), features)
            for t, features in zip(points, listed, strict=True)
        ]

    def dynamics(self, level: float = 0.1) -> list[ClusterDynamics]:
        """Tell the life of each cluster: its birth, rise, peak, decline and end.

        Parameters
        ----------
        level : float
            Part of its greatest share of the rows from which a cluster is alive.

        Returns
        -------
        list of ClusterDynamics
            One for each cluster; ``pandas.DataFrame(model.dynamics())`` is a table.
        """
        check_is_fitted(self)
        if not 0 <= level <= 1:
            raise ValueError(
                f"level must lie between 0 and 1, got {level}: it is a part of the greatest share."
            )
        total = self.counts_.sum(axis=1)
        seen = np.flatnonzero(total > 0)
        shares = self.counts_[seen] / total[seen, None]
        return [self._life(k, seen, shares[:, k], level) for k in range(self.n_components_)]

    def _life(
        self, cluster: int, seen: NDArray[np.int64], share: NDArray[np.float64], level: float
    ) -> ClusterDynamics:
        times, change = self.times_[seen], np.diff(share)
        alive = np.flatnonzero(share >= level * share.max())
        path = np.full(len(self.times_), np.nan)
        path[seen] = share
        return ClusterDynamics(
            cluster,
            float(self.counts_[:, cluster].sum()),
            birth=times[alive[0]],
            rise=times[change.argmax() + 1] if change.size and change.max() > 0 else None,
            peak=times[share.argmax()],
            decline=times[change.argmin() + 1] if change.size and change.min() < 0 else None,
            end=None if alive[-1] == len(seen) - 1 else times[alive[-1]],
            trend=float(np.polyfit(seen, share, 1)[0]) if len(seen) > 1 else 0.0,
            share=path,
        )
