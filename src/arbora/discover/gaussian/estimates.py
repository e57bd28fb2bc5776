"""What a fitted mixture says: the posterior over partitions, predictions, descriptions of clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.core.chunks import split
from arbora.core.validation import check_features
from arbora.discover.gaussian import partitions
from arbora.discover.gaussian.normal_wishart import HyperPrior
from arbora.discover.gaussian.predictive import Predictive, cluster_probabilities, draw_rows, log_density
from arbora.discover.gaussian.sampler import Standardizer, dense_rows
from arbora.discover.mixture.prediction import (
    Features,
    below_quantile,
    check_count,
    draw_seed,
    largest_features,
)
from arbora.engine import ThreadEngine

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROWS_AT_ONCE = 1024


class PartitionEstimates:
    """Mixin: methods of a fitted `GaussianPartitionMixture`."""

    covariance: str
    n_jobs: int | None
    random_state: Any
    labels_: Ints
    n_clusters_: int
    n_features_in_: int
    partitions_: NDArray[Any]
    predictive_: dict[str, NDArray[Any]]
    density_quantiles_: Array
    means_: Array
    feature_means_: Array
    feature_scales_: Array
    margin_basis_: Array

    # --- the posterior over partitions ----------------------------------------------------------------------------

    def _draws(self) -> NDArray[Any]:
        check_is_fitted(self)
        draws: NDArray[Any] = np.ascontiguousarray(self.partitions_.reshape(-1, self.partitions_.shape[-1]))
        return draws

    def similarity_matrix(self, rows: ArrayLike | None = None, columns: ArrayLike | None = None) -> Array:
        """Return the posterior probability that training rows are in one cluster.

        Parameters
        ----------
        rows, columns : array-like of int or bool, optional
            Numbers of training rows, or masks of them; all of them by default. Nothing else is computed.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
        """
        return partitions.similarity(self._draws(), rows, columns)

    def similarity_blocks(self, size: int = 1000) -> Iterator[tuple[slice, Array]]:
        """Yield the similarity matrix in blocks of rows, when it is too large to be held in memory.

        Parameters
        ----------
        size : int
            Rows in a block.

        Yields
        ------
        part : slice
            The rows of the block.
        block : ndarray of shape (size, n_samples)
        """
        yield from partitions.similarity_blocks(self._draws(), size)

    def cluster_similarity(self) -> Array:
        """Return the mean similarity of the rows of each pair of clusters of `labels_`.

        Returns
        -------
        ndarray of shape (n_clusters_, n_clusters_)
            On the diagonal, the mean similarity within a cluster.
        """
        return partitions.cluster_similarity(self._draws(), self.labels_)

    def merge_tree(self) -> Array:
        """Return the tree of merges of the clusters of `labels_`, by their mean similarity.

        Returns
        -------
        ndarray of shape (n_clusters_ - 1, 4)
            A linkage matrix as of `scipy.cluster.hierarchy`. The height of a merge is 1 minus the mean similarity.
        """
        return partitions.merge_tree(self._draws(), self.labels_)

    # --- predictions ----------------------------------------------------------------------------------------------

    def _checked(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = dense_rows(check_features(self, X, reset=False, squares=np.float64), type(self).__name__)
        return Standardizer(self.feature_means_, self.feature_scales_).rows(rows)

    def _map(self, function: Any, X: Array) -> NDArray[Any]:
        predictive = Predictive(**{name: np.asarray(value) for name, value in self.predictive_.items()})
        with ThreadEngine(self.n_jobs) as engine:
            parts = split(len(X), size=_ROWS_AT_ONCE)
            return np.concatenate(engine.map(lambda part: function(predictive, X[part]), parts))

    def _margin_rows(self, X: Array) -> Array | None:
        """Return the rows that the projections act on; None if margins do not matter."""
        if np.shape(self.predictive_["projections"])[1] == 0:
            return None
        return X @ self.margin_basis_ if hasattr(self, "margin_basis_") else X

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable cluster of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbers of the clusters of `labels_`.
        """
        found: NDArray[Any] = self.predict_proba(X).argmax(axis=1)
        return found

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each cluster given the row, averaged over draws of the partition.

        In a draw, a row that joins a cluster counts for the clusters of `labels_` by their shares of its rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters_)
        """
        return self._map(
            lambda predictive, part: cluster_probabilities(predictive, part, self._margin_rows(part)),
            self._checked(X),
        )

    def score_samples(self, X: Any) -> Array:
        """Return the log predictive density of each row, averaged over draws, with all constants.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        found: Array = self._map(log_density, self._checked(X)) - np.log(self.feature_scales_).sum()
        return found

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density of the rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(self.score_samples(X).mean())

    def is_novel(self, X: Any, *, level: float = 0.05) -> NDArray[np.bool_]:
        """Return which rows are unlike the training data.

        A row is novel if its density is lower than that of a share `level` of the training rows, where each training
        row is scored by the posterior without that row. About this share of new rows from the same source is novel by
        mistake.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        level : float
            Share of false alarms, between 0 and 1.

        Returns
        -------
        ndarray of bool, shape (n_samples,)
        """
        return below_quantile(self.score_samples(X), self.density_quantiles_, level)

    def sample(self, n_samples: int = 1) -> tuple[Array, Ints]:
        """Draw rows from the predictive distribution.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,)
            The cluster of each row; -1 for a row of a cluster that the training rows do not have.
        """
        check_is_fitted(self)
        rng = np.random.default_rng(draw_seed(self.random_state))
        predictive = Predictive(**{name: np.asarray(value) for name, value in self.predictive_.items()})
        weights = np.exp(predictive.log_weights)
        chosen = rng.choice(len(weights), size=n_samples, p=weights / weights.sum())
        p = self.n_features_in_
        hp = HyperPrior(np.zeros(p), np.ones((1, 1)), self.covariance)
        rows = draw_rows(predictive, chosen, hp, rng)
        cumulative = np.cumsum(predictive.members[chosen], axis=1)
        labels = (rng.random((n_samples, 1)) * np.maximum(cumulative[:, -1:], 1e-300) >= cumulative).sum(
            axis=1
        )
        labels = np.where(cumulative[:, -1] > 0, np.minimum(labels, self.n_clusters_ - 1), -1)
        return self.feature_means_ + rows * self.feature_scales_, labels

    # --- description ----------------------------------------------------------------------------------------------

    def top_features(self, feature_names: Any = None, n: int = 10) -> Features:
        """List the features in which each cluster is highest above the mean of all rows, in standard deviations.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of features in each list.

        Returns
        -------
        list of lists of (name, weight)
            One list for each cluster, largest first. Only positive weights are listed.
        """
        check_is_fitted(self)
        return largest_features(
            self, (self.means_ - self.feature_means_) / self.feature_scales_, feature_names, n
        )

    def representatives(self, X: Any, n: int = 5) -> list[Ints]:
        """Find the most typical rows of each cluster: of the rows assigned to it, those nearest to its mean.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        n : int
            Number of rows for each cluster; fewer if the cluster has fewer.

        Returns
        -------
        list of ndarray of int
            Row numbers for each cluster, nearest first (in standardised features).
        """
        n = check_count(n)
        rows, labels = self._checked(X), self.predict(X)
        centres = (self.means_ - self.feature_means_) / self.feature_scales_
        distances = np.sum((rows - centres[labels]) ** 2, axis=1)
        found = []
        for k in range(self.n_clusters_):
            members = np.flatnonzero(labels == k)
            found.append(members[np.argsort(distances[members], kind="stable")[:n]])
        return found
