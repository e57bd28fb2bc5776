"""What is in a cluster: the features and the rows that stand for it."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.core.explorable import Explorable
from arbora.discover._mixture.memory_mapped import pieces


def check_count(n: Any) -> None:
    """Refuse what is no number of things to list."""
    if not isinstance(n, Integral) or n < 0:
        raise ValueError(f"n must be a whole number, 0 or more, got {n!r}.")


def largest_features(
    estimator: Any, means: NDArray[Any], feature_names: Any, n: int
) -> list[list[tuple[Any, float]]]:
    """List the n largest positive entries of each mean with their names, largest first."""
    n_features = means.shape[1]
    check_count(n)
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", range(n_features))
    if len(feature_names) != n_features:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but the model has {n_features} features."
        )
    count = min(n, n_features)
    listed = []
    for mean in means:
        top = np.argpartition(-mean, count - 1)[:count] if count else np.empty(0, np.int64)
        top = top[np.lexsort((top, -mean[top]))]
        listed.append([(feature_names[j], float(mean[j])) for j in top.tolist() if mean[j] > 0])
    return listed


def nearest_rows(X: Any, labels: NDArray[Any], means: NDArray[Any], n: int) -> list[NDArray[np.int64]]:
    """Find the n rows of each label with the largest cosine to its mean, nearest first."""
    direction, cosine = means / np.linalg.norm(means, axis=1, keepdims=True), np.empty(len(labels))
    for part, piece in pieces(X):
        length = np.sqrt(np.asarray(piece.multiply(piece).sum(axis=1)).ravel())
        for k, mean in enumerate(direction):
            members = np.flatnonzero(labels[part] == k)
            own = np.maximum(length[members], np.finfo(float).tiny)
            cosine[part.start + members] = (piece[members] @ mean) / own
    found = []
    for k in range(len(means)):
        members = np.flatnonzero(labels == k)
        found.append(members[np.argsort(-cosine[members], kind="stable")[:n]])
    return found


class ClusterLook(Explorable):
    """Mixin: what the clusters of a fitted estimator are about, and which rows stand for them."""

    @abstractmethod
    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of each row."""

    @abstractmethod
    def _centres(self) -> NDArray[Any]:
        """Return a mean for each cluster, (n_clusters, n_features)."""

    @abstractmethod
    def _checked(self, X: Any) -> sp.csr_array:
        """Check rows of a fitted estimator and bring them into its form."""

    def top_features(self, feature_names: Any = None, n: int = 10) -> list[list[tuple[Any, float]]]:
        """List the largest features of each mean: what the cluster is about.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or numbers of columns.
        n : int
            How many.

        Returns
        -------
        list of lists of (name, value)
            One list for each cluster, largest first; features that are not positive are left out.
        """
        check_is_fitted(self)
        return largest_features(self, self._centres(), feature_names, n)

    def representatives(self, X: Any, n: int = 5) -> list[NDArray[np.int64]]:
        """Find the rows that stand for each cluster: of those assigned to it, the nearest to its mean.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        n : int
            How many; clusters with fewer rows have fewer.

        Returns
        -------
        list of ndarray of int
            Row numbers for each cluster, nearest first.
        """
        check_count(n)
        labels = self.predict(X)
        return nearest_rows(self._checked(X), labels, self._centres(), n)
