"""What a fitted mixture says about rows and components: novelty, the largest features, the most typical rows."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.discover.mixture.rows import iter_chunks

UNKNOWN = -1  # label of a zero row
_LEVELS = np.linspace(0.0, 1.0, 1001)  # levels of the density quantiles that are stored for `is_novel`

Features = list[list[tuple[Any, float]]]


def density_quantiles(densities: Array, weight: Matrix) -> Array:
    """Return quantiles of the log-densities of weighted rows, for `below_quantile`."""
    return np.quantile(densities, _LEVELS, weights=weight, method="inverted_cdf")


def below_quantile(densities: Array, quantiles: Array, level: float) -> NDArray[np.bool_]:
    """Return whether densities are below a quantile of the training data."""
    if not 0 <= level <= 1:
        raise ValueError(f"level must be between 0 and 1, got {level}: it is the share of false alarms.")
    below: NDArray[np.bool_] = densities < np.interp(level, _LEVELS, quantiles)
    return below


def check_count(n: Any) -> int:
    """Return `n` if it is a number of items to list."""
    if not isinstance(n, Integral) or int(n) < 0:
        raise ValueError(f"n must be an integer, 0 or more, got {n!r}.")
    return int(n)


def largest_features(estimator: Any, means: Matrix, feature_names: Any, n: int) -> Features:
    """List name and weight of the n largest positive entries of each mean, largest first.

    Names are `feature_names`, or `feature_names_in_` of the estimator, or the numbers of the features.
    """
    n_features = means.shape[1]
    count = min(check_count(n), n_features)
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", range(n_features))
    if len(feature_names) != n_features:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but the model has {n_features} features: give one name "
            "for each feature."
        )
    listed = []
    for mean in means:
        top = np.argpartition(-mean, count - 1)[:count] if count else np.empty(0, np.int64)
        top = top[np.lexsort((top, -mean[top]))]
        listed.append([(feature_names[j], float(mean[j])) for j in top.tolist() if mean[j] > 0])
    return listed


def nearest_rows(X: Any, labels: Matrix, means: Matrix, n: int) -> list[Ints]:
    """Find the n rows of each label with the largest cosine to its mean, nearest first."""
    direction, cosine = means / np.linalg.norm(means, axis=1, keepdims=True), np.empty(len(labels))
    for part, chunk in iter_chunks(X):
        length = np.sqrt(np.asarray(chunk.multiply(chunk).sum(axis=1)).ravel())
        for k, mean in enumerate(direction):
            members = np.flatnonzero(labels[part] == k)
            cosine[part.start + members] = (chunk[members] @ mean) / np.maximum(length[members], TINY)
    nearest = []
    for k in range(len(means)):
        members = np.flatnonzero(labels == k)
        nearest.append(members[np.argsort(-cosine[members], kind="stable")[:n]])
    return nearest


class Described:
    """Mixin: the largest features and the most typical rows of each component.

    The estimator has `_checked(X)`, rows in the form of the model, and `_labels` of such rows.
    """

    _means: ClassVar[str] = "means_"  # the attribute with the means

    def _checked(self, X: Any) -> Any:
        raise NotImplementedError

    def _labels(self, X: Any) -> Ints:
        raise NotImplementedError

    def top_features(self, feature_names: Any = None, n: int = 10) -> Features:
        """List the largest features of each component.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of features in each list.

        Returns
        -------
        list of lists of (name, weight)
            One list for each component, largest weights first. Only positive weights are listed.
        """
        check_is_fitted(self)
        return largest_features(self, getattr(self, self._means), feature_names, n)

    def representatives(self, X: Any, n: int = 5) -> list[Ints]:
        """Find the most typical rows of each component: of the rows assigned to it, those nearest to its mean.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        n : int
            Number of rows for each component; fewer if the component has fewer.

        Returns
        -------
        list of ndarray of int
            Row numbers for each component, nearest first.
        """
        check_count(n)
        rows = self._checked(X)
        return nearest_rows(rows, self._labels(rows), getattr(self, self._means), n)
