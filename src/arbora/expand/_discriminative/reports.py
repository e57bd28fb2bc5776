"""What a user looks at after a fit: `ClusterReports`, the reports of `DiscriminativeClustering` on any rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.core.estimator import warn_caller
from arbora.expand._discriminative.profile import Profile, profile_clusters
from arbora.expand.discriminative.choice import (
    Contingency,
    contingency,
    information_interval,
    log_bayes_factor,
    log_evidence,
)
from arbora.expand.discriminative.cost import cells_of, cost_of_counts
from arbora.expand.discriminative.labels import Labels, code_labels
from arbora.metrics.significance import Interval

Matrix = NDArray[Any]
_NAMED = 5  # unseen labels that a warning names


class ClusterReports:
    """Mixin: contingency table, mutual information, evidence, profiles."""

    classes_: Any
    coef_: Matrix
    intercept_: Matrix
    prior: float
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
        return -cost_of_counts(counts, labels, self.prior) / int(labels.labelled.sum())

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
        return log_evidence(*self._counts(X, y), self.prior)

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
        return log_bayes_factor(*self._counts(X, y), self.prior)

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
