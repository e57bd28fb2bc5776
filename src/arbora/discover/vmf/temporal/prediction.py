"""Prediction and description of a mixture over time. Times are the second argument of its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.discover.mixture.base import Mixture
from arbora.discover.mixture.prediction import (
    Features,
    akaike_criterion,
    are_zero,
    bayesian_criterion,
    below_quantile,
    check_count,
    draw_seed,
    largest_features,
    log_densities,
    most_probable,
    nearest_rows,
    probabilities,
)
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.posterior import sample_predictive
from arbora.discover.vmf.temporal.timeline import Timeline, points_of, read_times
from arbora.discover.vmf.temporal_posterior import (
    ClusterDynamics,
    Vocabulary,
    at_time,
    cluster_dynamics,
    marginal_concentrations,
    to_blocks,
)

NEXT = "next"

Method = TypeVar("Method", bound=Callable[..., Any])

_ROWS = """

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
"""
_TIMES = """        times : array-like of shape (n_samples,), None or "next"
            None: the last point of time. "next": the one after it.
"""


def documented(returns: str, *, times: bool = True, more: str = "") -> Callable[[Method], Method]:
    """Add the sections on parameters and returns to the docstring of a method."""

    def decorate(method: Method) -> Method:
        sections = _ROWS + (_TIMES if times else "") + more
        method.__doc__ = (
            f"{method.__doc__ or ''}{sections}\n        Returns\n        -------\n        {returns}\n"
        )
        return method

    return decorate


class TimedPredictionMixture(Mixture):
    """Base class of mixtures over time; see `TemporalVMFMixture`."""

    # --- rows and their times -------------------------------------------------------------------------------------

    def _checked(self, X: Any, times: Any = None) -> sp.csr_array:
        """Validate rows and their times, and put rows into blocks."""
        checked, n_times = super()._checked(X), len(self.times_)
        if times is None or isinstance(times, str):
            if times not in (None, NEXT):
                raise ValueError(f"times must be one time for each row, None or 'next', got {times!r}.")
            points = np.full(checked.shape[0], n_times - (times is None))
        else:
            points = points_of(Timeline(self.times_, self.time_end_), read_times(times, checked.shape[0]))
        return to_blocks(checked, points, n_times)

    def _point(self, time: Any) -> int:
        """Return the number of a point of time; the last one for None."""
        check_is_fitted(self)
        if time is None:
            return len(self.times_) - 1
        return int(points_of(Timeline(self.times_, self.time_end_), read_times([time], 1))[0])

    # --- prediction -----------------------------------------------------------------------------------------------

    @documented(
        "ndarray of shape (n_samples,)",
        more="        sample_weight : array-like of shape (n_samples,), optional\n",
    )
    def fit_predict(self, X: Any, times: Any = None, sample_weight: Any = None) -> NDArray[np.int64]:
        """Find the clusters and return the cluster of each row."""
        return self.fit(X, times, sample_weight).predict(X, times)

    @documented("ndarray of shape (n_samples,)")
    def predict(self, X: Any, times: Any = None) -> NDArray[np.int64]:
        """Return the most probable cluster of each row; -1 for a zero row."""
        return most_probable(self, self._checked(X, times))

    @documented("ndarray of shape (n_samples,)", times=False)
    def predict_next(self, X: Any) -> NDArray[np.int64]:
        """Return the most probable cluster of each row at the next point of time."""
        return self.predict(X, NEXT)

    @documented("ndarray of shape (n_samples, n_components)")
    def predict_proba(self, X: Any, times: Any = None) -> NDArray[np.float64]:
        """Return the probability of each cluster given the row and its time."""
        return probabilities(self, self._checked(X, times))

    @documented("ndarray of shape (n_samples,)")
    def score_samples(self, X: Any, times: Any = None) -> NDArray[np.float64]:
        """Return the log-density of each row at its time, with all constants."""
        return log_densities(self, self._checked(X, times))

    @documented("float")
    def score(self, X: Any, times: Any = None) -> float:
        """Return the mean log-density of the rows at their times."""
        return float(self.score_samples(X, times).mean())

    @documented("float", times=False)
    def score_next(self, X: Any) -> float:
        """Return the mean log-density of rows at the next point of time."""
        return self.score(X, NEXT)

    @documented("float")
    def bic(self, X: Any, times: Any = None) -> float:
        """Return the Bayesian information criterion on X; lower is better."""
        return bayesian_criterion(self.score_samples(X, times), self._n_parameters())

    @documented("float")
    def aic(self, X: Any, times: Any = None) -> float:
        """Return Akaike's information criterion on X; lower is better."""
        return akaike_criterion(self.score_samples(X, times), self._n_parameters())

    @documented(
        "ndarray of bool, shape (n_samples,)",
        more="        level : float\n            Share of false alarms, between 0 and 1.\n",
    )
    def is_novel(self, X: Any, times: Any = None, *, level: float = 0.05) -> NDArray[np.bool_]:
        """Return which rows are unlike the training data of their time; a zero row is."""
        checked = self._checked(X, times)
        below = below_quantile(log_densities(self, checked), self.density_quantiles_, level)
        return below | are_zero(self, checked)

    def sample(self, n_samples: int = 1, time: Any = None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw rows from the posterior predictive distribution of a time.

        Parameters
        ----------
        n_samples : int
        time : date, number, None or "next"
            The last point of time by default.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,)
            The cluster of each row.
        """
        check_is_fitted(self)
        params, is_next = self._params(), isinstance(time, str) and time == NEXT
        point = len(self.times_) if is_next else self._point(time)
        q = at_time(params, point, marginal_concentrations(params))
        rng = np.random.default_rng(draw_seed(self.random_state))
        labels = rng.choice(len(q.dirichlet), size=n_samples, p=q.dirichlet / q.dirichlet.sum())
        kappa = KappaPosterior(*(part[labels] for part in q.kappa))
        return sample_predictive(q.directions.T[labels], q.mean_concentrations[labels], kappa, rng), labels

    # --- description ----------------------------------------------------------------------------------------------

    def top_features(self, feature_names: Any = None, n: int = 10, time: Any = None) -> Features:
        """List the largest features of each cluster at a time.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of features in each list.
        time : date or number, optional
            The last point of time by default.

        Returns
        -------
        list of lists of (name, weight)
            One list for each cluster, largest weights first. Only positive weights are listed.
        """
        return largest_features(self, self.means_[self._point(time)], feature_names, n)

    @documented(
        "list of ndarray of int\n            Row numbers for each cluster, nearest first.",
        more="        n : int\n            Number of rows for each cluster; fewer if the cluster has fewer.\n",
    )
    def representatives(  # type: ignore[override]  # times come second in all methods
        self, X: Any, times: Any = None, n: int = 5
    ) -> list[NDArray[np.int64]]:
        """Find the most typical rows of each cluster: those nearest to its mean of their time."""
        check_count(n)
        checked, n_components = self._checked(X, times), self.n_components_
        blocks = np.zeros(
            (n_components, checked.shape[1])
        )  # the means of all times, in the blocks of the rows
        blocks[:, : -len(self.times_) - 1] = self.means_.transpose(1, 0, 2).reshape(n_components, -1)
        return nearest_rows(checked, most_probable(self, checked), blocks, n)

    def vocabulary(
        self, cluster: int, feature_names: Any = None, n: int = 6, times: Any = None
    ) -> list[Vocabulary]:
        """List the largest features of a cluster at each time.

        Parameters
        ----------
        cluster : int
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of features at each time.
        times : sequence of dates or numbers, optional
            All points of time by default.

        Returns
        -------
        list of Vocabulary
            In the order of time.
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
        """Describe the course of each cluster: its birth, rise, peak, decline and end.

        Parameters
        ----------
        level : float
            Part of its largest share of the rows above which a cluster is alive, between 0 and 1.

        Returns
        -------
        list of ClusterDynamics
            One for each cluster; ``pandas.DataFrame(model.dynamics())`` is a table.
        """
        check_is_fitted(self)
        if not 0 <= level <= 1:
            raise ValueError(
                f"level must be between 0 and 1, got {level}: it is a part of the largest share of a cluster."
            )
        return cluster_dynamics(self.times_, self.counts_, level)
