"""Questions about rows that have a time: the second argument of each.

The answers are those of the mixture that it is mixed into; rows and times reach its `_checked` as one argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.discover._mixture.prediction import draw_seed
from arbora.discover._mixture.top_features import largest_features
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.posterior import sample_predictive
from arbora.discover.vmf.temporal.posterior import at_time, marginal_concentrations, to_blocks
from arbora.discover.vmf.temporal.timeline import Timeline, points_of, read_times

NEXT = "next"

Method = TypeVar("Method", bound=Callable[..., Any])

_ROWS = """

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
"""
_TIMES = """        times : array-like of shape (n_samples,), None or "next"
            None: the last point of time; "next": the one after it.
"""


class Stamped(NamedTuple):
    """Rows and their times, as one argument."""

    X: Any
    times: Any


def stamped(X: Any, times: Any) -> Stamped:
    """Rows with their times, if they do not have them yet."""
    return X if isinstance(X, Stamped) else Stamped(X, times)


def documented(returns: str, *, times: bool = True, more: str = "") -> Callable[[Method], Method]:
    """Decorate a question: rows, their times and what it returns are added to its docstring."""

    def decorate(method: Method) -> Method:
        sections = _ROWS + (_TIMES if times else "") + more
        method.__doc__ = (
            f"{method.__doc__ or ''}{sections}\n        Returns\n        -------\n        {returns}\n"
        )
        return method

    return decorate


class TimedQuestions:
    """Mixin, before a mixture: its questions, asked of rows at their times."""

    @documented("ndarray of shape (n_samples,)")
    def predict(self, X: Any, times: Any = None) -> NDArray[np.int64]:
        """Return the most probable cluster of each row."""
        return super().predict(stamped(X, times))

    @documented("ndarray of shape (n_samples,)", times=False)
    def predict_next(self, X: Any) -> NDArray[np.int64]:
        """Return the most probable cluster of each row, if rows are of the next point of time."""
        return self.predict(X, NEXT)

    @documented("ndarray of shape (n_samples, n_components)")
    def predict_proba(self, X: Any, times: Any = None) -> NDArray[np.float64]:
        """Return the probability of each cluster given the row and its time."""
        return super().predict_proba(stamped(X, times))

    @documented("ndarray of shape (n_samples,)")
    def score_samples(self, X: Any, times: Any = None) -> NDArray[np.float64]:
        """Return the log-density of each row at its time, with all its constants."""
        return super().score_samples(stamped(X, times))

    @documented("float")
    def score(self, X: Any, times: Any = None) -> float:
        """Return the mean log-density of the rows at their times."""
        return super().score(stamped(X, times))

    @documented("float", times=False)
    def score_next(self, X: Any) -> float:
        """Return the mean log-density of rows of the next point of time."""
        return self.score(X, NEXT)

    @documented("float")
    def bic(self, X: Any, times: Any = None) -> float:
        """Return the Bayesian information criterion on X: the lower, the better."""
        return super().bic(stamped(X, times))

    @documented("float")
    def aic(self, X: Any, times: Any = None) -> float:
        """Return Akaike's information criterion on X: the lower, the better."""
        return super().aic(stamped(X, times))

    @documented(
        "ndarray of bool, shape (n_samples,)",
        more="        level : float\n            Share of false alarms, between 0 and 1.\n",
    )
    def is_novel(self, X: Any, times: Any = None, *, level: float = 0.05) -> NDArray[np.bool_]:
        """Tell which rows are unlike the training data of their time."""
        return super().is_novel(stamped(X, times), level=level)

    @documented(
        "list of ndarray of int\n            Row numbers for each cluster, nearest first.",
        more="        n : int\n            How many; clusters with fewer rows have fewer.\n",
    )
    def representatives(self, X: Any, times: Any = None, n: int = 5) -> list[NDArray[np.int64]]:
        """Find rows that stand for each cluster: of those assigned to it, the nearest to its mean of their time."""
        return super().representatives(stamped(X, times), n)

    @documented(
        "ndarray of shape (n_samples,)",
        more="        sample_weight : array-like of shape (n_samples,), optional\n",
    )
    def fit_predict(self, X: Any, times: Any = None, sample_weight: Any = None) -> NDArray[np.int64]:
        """Find the clusters and return the one of each row."""
        return self.fit(X, times, sample_weight).predict(X, times)

    def top_features(
        self, feature_names: Any = None, n: int = 10, time: Any = None
    ) -> list[list[tuple[Any, float]]]:
        """List the largest features of each mean at a time: what the cluster is about.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or numbers of columns.
        n : int
            How many.
        time : date or number, optional
            The last point of time by default.

        Returns
        -------
        list of lists of (name, value)
            One list for each cluster, largest first; features that are not positive are left out.
        """
        return largest_features(self, self.means_[self._point(time)], feature_names, n)

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
            The cluster that each row was drawn from.
        """
        check_is_fitted(self)
        params, is_next = self._params(), isinstance(time, str) and time == NEXT
        q = at_time(
            params, len(self.times_) if is_next else self._point(time), marginal_concentrations(params)
        )
        rng = np.random.default_rng(draw_seed(self.random_state))
        labels = rng.choice(len(q.dirichlet), size=n_samples, p=q.dirichlet / q.dirichlet.sum())
        kappa = KappaPosterior(*(part[labels] for part in q.kappa))
        return sample_predictive(q.directions.T[labels], q.mean_concentrations[labels], kappa, rng), labels

    # --- rows and their times -------------------------------------------------------------------------------------

    def _checked(self, X: Any) -> sp.csr_array:
        """Check rows with their times, and put them into blocks."""
        X, times = X if isinstance(X, Stamped) else (X, None)
        checked, n_times = super()._checked(X), len(self.times_)
        if times is None or isinstance(times, str):
            if times not in (None, NEXT):
                raise ValueError(f"times must be one for each row, None or 'next', got {times!r}.")
            points = np.full(checked.shape[0], n_times - (times is None))
        else:
            points = points_of(Timeline(self.times_, self.time_end_), read_times(times, checked.shape[0]))
        return to_blocks(checked, points, n_times)

    def _point(self, time: Any) -> int:
        """Return the number of a point of time; of the last one for None."""
        check_is_fitted(self)
        if time is None:
            return len(self.times_) - 1
        return int(points_of(Timeline(self.times_, self.time_end_), read_times([time], 1))[0])

    def _centres(self) -> NDArray[np.float64]:
        """Return the means of all times, in the blocks of the rows."""
        means = np.zeros((self.n_components_, self.means_[:, 0].size + len(self.times_) + 1))
        means[:, : -len(self.times_) - 1] = self.means_.transpose(1, 0, 2).reshape(self.n_components_, -1)
        return means
