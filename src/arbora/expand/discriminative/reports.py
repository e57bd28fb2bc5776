"""What a user looks at after a fit: `ClusterReports`, the reports of `DiscriminativeClustering` on any rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Ints, Matrix
from arbora.core.chunks import split
from arbora.core.estimator import warn_caller
from arbora.expand.discriminative.choice import (
    Contingency,
    contingency,
    information_interval,
    log_bayes_factor,
    log_evidence,
)
from arbora.expand.discriminative.cost import cells_of, cost_of_counts, is_sparse
from arbora.expand.discriminative.labels import Labels, code_labels
from arbora.metrics.significance import Interval
from arbora.metrics.table import Table

# --- Profiles of clusters in the original units: means, deviations, and the features that set each cluster apart ---


_BLOCK_ROWS = 8192


class Profile(NamedTuple):
    """Sizes, means and deviations of the clusters."""

    features: list[str]
    sizes: Ints
    means: Matrix  # n_clusters x n_features
    deviations: Matrix
    overall_mean: Matrix
    overall_deviation: Matrix

    @property
    def contrast(self) -> Matrix:
        """How far the mean of a cluster is from that of all rows, in deviations of all rows."""
        scale = np.where(self.overall_deviation > 0, self.overall_deviation, 1.0)
        difference = (self.means - self.overall_mean) / scale
        return np.where((self.overall_deviation > 0) & (self.sizes[:, None] > 0), difference, 0.0)

    def top_features(self, n_features: int = 5) -> list[list[tuple[str, float]]]:
        """Features that set each cluster apart, the strongest first, with the difference in deviations."""
        difference = self.contrast
        order = np.argsort(-np.abs(difference), axis=1, kind="stable")[:, :n_features]
        return [
            [(self.features[j], float(difference[k, j])) for j in columns if difference[k, j] != 0]
            for k, columns in enumerate(order.tolist())
        ]

    def to_table(self, n_features: int | None = 5) -> Table:
        """Return a table with a row for each cluster and feature, those that set it apart most first.

        Parameters
        ----------
        n_features : int or None
            Features of each cluster; None for all.

        Returns
        -------
        Table
        """
        difference = self.contrast
        order = np.argsort(-np.abs(difference), axis=1, kind="stable")[:, :n_features]
        rows = []
        for k, columns in enumerate(order.tolist()):
            for j in columns:
                values = self.means[k, j], self.deviations[k, j], self.overall_mean[j], difference[k, j]
                rows.append((str(k), int(self.sizes[k]), self.features[j], *map(float, values)))
        columns = ("cluster", "rows", "feature", "mean", "deviation", "mean of all", "difference")
        return Table(columns, tuple(rows), ("", ",d", "", ".4g", ".4g", ".4g", "+.2f"))


def profile_clusters(X: Any, cells: Ints, n_clusters: int, features: list[str]) -> Profile:
    """Describe clusters of the rows of a dense or CSR matrix, block by block."""
    centre = np.asarray(X.mean(axis=0), np.float64).ravel()
    sizes = np.bincount(cells, minlength=n_clusters)
    sums, squares = np.zeros((2, n_clusters, X.shape[1]))
    for block in split(X.shape[0], size=_BLOCK_ROWS):
        part, n = X[block], block.stop - block.start
        member = sp.csr_array((np.ones(n), cells[block], np.arange(n + 1)), shape=(n, n_clusters)).T
        if is_sparse(part):
            part = sp.csr_array(part, dtype=np.float64)
            first = (member @ part).toarray()
            second = (member @ part.multiply(part).tocsr()).toarray()
            inside = np.bincount(cells[block], minlength=n_clusters)[:, None]
            sums += first - inside * centre
            squares += second - 2 * first * centre + inside * centre**2
        else:
            deviation = np.asarray(part, np.float64) - centre
            sums += member @ deviation
            squares += member @ deviation**2
    n = np.maximum(sizes, 1)[:, None]
    deviation = sums / n
    deviations = np.sqrt(np.maximum(squares / n - deviation**2, 0.0))
    total = max(int(sizes.sum()), 1)
    overall = np.sqrt(np.maximum(squares.sum(axis=0) / total - (sums.sum(axis=0) / total) ** 2, 0.0))
    overall[overall <= 1e-7 * np.abs(centre)] = 0.0
    return Profile(
        features, sizes, np.where(sizes[:, None] > 0, deviation + centre, np.nan), deviations, centre, overall
    )


# --- What a user looks at after a fit: `ClusterReports`, the reports of `DiscriminativeClustering` on any rows ---


_NAMED = 5  # unseen labels that a warning names


class ClusterReports:
    """Mixin: contingency table, mutual information, evidence, profiles."""

    classes_: Any
    coef_: Matrix
    intercept_: Matrix
    prior_: dict[str, float]
    _rows: Any

    def _counts(self, X: Any, y: Any) -> tuple[Matrix, Labels]:
        """Count labels of new rows, (n_labels, n_clusters); unseen labels get further rows, with a warning."""
        rows, X = self._rows(X)
        known = self.classes_ if isinstance(self.classes_, list) else [self.classes_]
        labels, unseen = code_labels(y, X.shape[0], known)
        fresh = [str(name) for names in unseen for name in names.tolist()]
        if fresh:
            listed = ", ".join(fresh[:_NAMED]) + ", ..." * (len(fresh) > _NAMED)
            warn_caller(
                f"y has {len(fresh)} label{'s' * (len(fresh) > 1)} that fit did not see ({listed}): counted as "
                "further labels with the same prior."
            )
        return cells_of(rows, self.coef_, self.intercept_, labels)[1], labels

    def score(self, X: Any, y: Any) -> float:
        """Log posterior (4.11) of the clusters per labelled row, with the counts of these rows. Greater is better.

        The published tables have minus the sum over all rows. Scores of different numbers of clusters or labels
        cannot be compared; use `log_evidence`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            Labels that `fit` did not see count as further labels, with a warning.

        Returns
        -------
        float
        """
        counts, labels = self._counts(X, y)
        return -cost_of_counts(counts, labels, self.prior_["labels"]) / int(labels.labelled.sum())

    def log_evidence(self, X: Any, y: Any) -> float:
        """Log evidence of the labels given the clusters: (4.11) with its normaliser, summed over the rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_columns)

        Returns
        -------
        float
        """
        return log_evidence(*self._counts(X, y), self.prior_["labels"])

    def log_bayes_factor(self, X: Any, y: Any) -> float:
        """Log Bayes factor of "labels depend on the cluster" against "they do not".

        Give rows that were not used in `fit`: above 0 the clusters tell something about labels of new rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_columns)

        Returns
        -------
        float
        """
        return log_bayes_factor(*self._counts(X, y), self.prior_["labels"])

    def contingency_table(self, X: Any, y: Any, *, variable: int = 0) -> Contingency:
        """Rows by cluster and label, with expected counts, adjusted residuals and Pearson's test.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_columns)
        variable : int
            Column of y.

        Returns
        -------
        Contingency
            Named tuple; ``to_table("counts" | "shares" | "expected" | "residuals")`` makes a table of it.
        """
        return contingency(*self._of_variable(X, y, variable))

    def mutual_information(
        self,
        X: Any,
        y: Any,
        *,
        variable: int = 0,
        level: float = 0.95,
        n_resamples: int = 1000,
        random_state: Any = 0,
    ) -> Interval:
        """Mutual information of clusters and labels in nats, with a bootstrap interval.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_columns)
        variable : int
            Column of y.
        level : float
            Coverage of the interval.
        n_resamples : int
        random_state : int, Generator or None

        Returns
        -------
        Interval
            Named tuple ``value, low, high, samples``.
        """
        counts, _ = self._of_variable(X, y, variable)
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        rng = np.random.default_rng(random_state)
        return information_interval(counts.T, level=level, n_resamples=n_resamples, rng=rng)

    def _of_variable(self, X: Any, y: Any, variable: int) -> tuple[Matrix, Matrix]:
        counts, labels = self._counts(X, y)
        if not 0 <= variable < len(labels.classes):
            raise ValueError(
                f"variable must be a column of y from 0 to {len(labels.classes) - 1}, got {variable}"
            )
        first, last = labels.offsets[variable : variable + 2].tolist()
        return counts[first:last], labels.classes[variable]

    def profile(self, X: Any, *, feature_names: Any = None) -> Profile:
        """Means and deviations of the features in each cluster, in their own units.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        feature_names : sequence of n_features str, optional
            By default the column names of the data frame of `fit`, or numbers.

        Returns
        -------
        Profile
            Named tuple; ``to_table()`` lists for each cluster the features that set it apart most.
        """
        rows, checked = self._rows(X)
        names = feature_names
        if names is None:
            names = getattr(self, "feature_names_in_", range(rows.n_features))
        features = [str(name) for name in names]
        if len(features) != rows.n_features:
            raise ValueError(f"feature_names has {len(features)} names for {rows.n_features} features.")
        cells = cells_of(rows, self.coef_, self.intercept_)[0]
        return profile_clusters(checked, cells, len(self.coef_), features)
