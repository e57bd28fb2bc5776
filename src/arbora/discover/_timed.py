"""Questions about rows that have a time: the second argument of each.

The answers are those of the mixture that it is mixed into; rows and times reach its `_checked` as one argument.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NEXT = "next"


class Stamped(NamedTuple):
    """Rows and their times, as one argument."""

    X: Any
    times: Any


class TimedQuestions:
    """Mixin, before a mixture: its questions, asked of rows at their times."""

    def predict(self, X: Any, times: Any = None) -> NDArray[np.int64]:
        """Return the most probable cluster of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), None or "next"
            None: the last point of time; "next": the one after it.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return super().predict(Stamped(X, times))

    def predict_next(self, X: Any) -> NDArray[np.int64]:
        """Return the most probable cluster of each row, if rows are of the next point of time.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.predict(X, NEXT)

    def predict_proba(self, X: Any, times: Any = None) -> NDArray[np.float64]:
        """Return the probability of each cluster given the row and its time.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), None or "next"

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        return super().predict_proba(Stamped(X, times))

    def score_samples(self, X: Any, times: Any = None) -> NDArray[np.float64]:
        """Return the log-density of each row at its time, with all its constants.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), None or "next"

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return super().score_samples(X if isinstance(X, Stamped) else Stamped(X, times))

    def score(self, X: Any, times: Any = None) -> float:
        """Return the mean log-density of the rows at their times.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), None or "next"

        Returns
        -------
        float
        """
        return super().score(Stamped(X, times))

    def score_next(self, X: Any) -> float:
        """Return the mean log-density of rows of the next point of time.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        float
        """
        return self.score(X, NEXT)

    def bic(self, X: Any, times: Any = None) -> float:
        """Return the Bayesian information criterion on X: the lower, the better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), None or "next"

        Returns
        -------
        float
        """
        return super().bic(Stamped(X, times))

    def aic(self, X: Any, times: Any = None) -> float:
        """Return Akaike's information criterion on X: the lower, the better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), None or "next"

        Returns
        -------
        float
        """
        return super().aic(Stamped(X, times))

    def is_novel(self, X: Any, times: Any = None, level: float = 0.05) -> NDArray[np.bool_]:
        """Tell which rows are unlike the training data of their time.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), None or "next"
        level : float
            Share of false alarms, between 0 and 1.

        Returns
        -------
        ndarray of bool, shape (n_samples,)
        """
        return super().is_novel(Stamped(X, times), level)
