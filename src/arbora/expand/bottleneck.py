"""The information bottleneck: clusters of rows that keep the most information about the features (Klami 7.2).

Counts x_iw of features w in rows i define p(w | i) = x_iw / sum_w x_iw, and p(i) is uniform, given by weights, or the
share of all counts. Hard clusters t(i) maximise

    I(T; W) = sum_tw p(t, w) log [p(t, w) / (p(t) p(w))],         p(t, w) = sum_{i in t} p(i) p(w | i),

the limit beta -> infinity of (7.2). *Sequential* (Slonim, Friedman and Tishby): rows are drawn from their clusters
one at a time, in random order, and put where the information is largest; it never falls. *Agglomerative* (Slonim and
Tishby): from one cluster for each row, the two clusters whose merge loses least are merged until one is left.

All starts of the sequential method run until few rows move; only the best one runs until it converges.

References
----------
N. Tishby, F. Pereira and W. Bialek (1999). The information bottleneck method. Allerton.
N. Slonim and N. Tishby (1999). Agglomerative information bottleneck. NIPS 12.
N. Slonim, N. Friedman and N. Tishby (2002). Unsupervised document classification using sequential information
maximization. SIGIR.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.special import xlogy
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.core.chunks import require_memory
from arbora.core.estimator import RowEstimator, all_or_nothing, draw_seed, warn_caller
from arbora.core.monitor import Monitor, Progress
from arbora.core.validation import check_not_above, check_not_negative, check_rows
from arbora.engine import ThreadEngine
from arbora.kernels.bottleneck import LANES, assign_rows, fill_state, merge_all, sweep

_FEW_MOVES = 0.02  # share of rows that move in a sweep, at which a start is compared with the others
_MAX_COUNT = 1e30


class Counts(NamedTuple):
    """Rows of counts that are scaled to their weights; none is empty."""

    X: sp.csr_array
    row_sum: Array

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return float(self.row_sum.sum())


class Clusters(NamedTuple):
    """Labels of the rows, and the sums that the kernels update."""

    labels: Ints
    state: Matrix  # n_features x 2 padded clusters: weights n_wk, then n_wk log n_wk
    totals: Array  # n_clusters
    sizes: Ints  # n_clusters

    @property
    def weights(self) -> Matrix:
        """Weights n_wk, n_features x n_clusters."""
        return self.state[:, : len(self.totals)]


def weighted(X: sp.csr_array, weight: Matrix) -> Counts:
    """Scale rows to their weights."""
    length = np.asarray(X.sum(axis=1)).ravel()
    data = X.data * np.repeat(weight / np.where(length > 0, length, 1.0), np.diff(X.indptr))
    return Counts(sp.csr_array((data, X.indices, X.indptr), shape=X.shape), weight)


def padded(n_clusters: int) -> int:
    """Return the number of clusters in the state of the kernels."""
    return -(-n_clusters // LANES) * LANES


def make_clusters(counts: Counts, labels: Ints, n_clusters: int) -> Clusters:
    """Add up the rows of each cluster."""
    state = np.empty((counts.X.shape[1], 2 * padded(n_clusters)))
    totals, sizes = np.empty(n_clusters), np.empty(n_clusters, np.int64)
    X = counts.X
    fill_state(X.indptr, X.indices, X.data, counts.row_sum, labels, state, totals, sizes)
    return Clusters(labels, state, totals, sizes)


def information(weights: Matrix) -> float:
    """Mutual information of the rows and columns of a table of weights, in nats."""
    total = weights.sum()
    if total <= 0:
        return 0.0
    by_row, by_column = weights.sum(axis=1), weights.sum(axis=0)
    terms = xlogy(weights, weights).sum() - xlogy(by_row, by_row).sum() - xlogy(by_column, by_column).sum()
    return max(float(terms / total + np.log(total)), 0.0)


def rows_information(counts: Counts) -> float:
    """Information of the single rows about the features, in nats: the upper bound of all clusterings."""
    by_column = np.asarray(counts.X.sum(axis=0)).ravel()
    terms = xlogy(counts.X.data, counts.X.data).sum() - xlogy(counts.row_sum, counts.row_sum).sum()
    return max(float((terms - xlogy(by_column, by_column).sum()) / counts.total + np.log(counts.total)), 0.0)


def run_sweeps(
    counts: Counts, clusters: Clusters, value: float, rng: np.random.Generator, limit: float, monitor: Monitor
) -> float:
    """Sweep until at most the share `limit` of the rows moves; return the information."""
    X, n_rows, last = counts.X, len(clusters.labels), monitor.n_iter >= monitor.max_iter
    while not last:
        order = rng.permutation(n_rows)
        n_moved, gain = sweep(
            X.indptr, X.indices, X.data, counts.row_sum, order, clusters.labels, clusters.state, clusters.totals,
            clusters.sizes,
        )  # fmt: skip
        value += gain / counts.total
        share = n_moved / n_rows
        last = monitor.record(value, change=share, converged=share <= limit)
    return value


class Solution(NamedTuple):
    """Clusters of the rows and the history; merges of the agglomerative method and the information each loses."""

    labels: Ints
    monitor: Monitor
    children: Matrix | None = None
    losses: Matrix | None = None


class Run(NamedTuple):
    """State of one start of the sequential method, which `run_sweeps` continues."""

    clusters: Clusters
    value: float
    rng: np.random.Generator
    monitor: Monitor


def start_run(counts: Counts, n_clusters: int, rng: np.random.Generator, tol: float, max_iter: int) -> Run:
    """Sweep from random clusters of equal size until few rows move."""
    labels = rng.permutation(np.arange(len(counts.row_sum)) % n_clusters)
    clusters = make_clusters(counts, labels, n_clusters)
    monitor = Monitor(tol, max_iter)
    value = information(clusters.weights)
    value = run_sweeps(counts, clusters, value, rng, max(tol, _FEW_MOVES), monitor)
    return Run(clusters, value, rng, monitor)


def cut_tree(children: Matrix, n_clusters: int) -> Ints:
    """Labels after all merges but the last ``n_clusters - 1``, in the order of the first row of each cluster."""
    n_rows = len(children) + 1
    n_merges = n_rows - n_clusters
    joined = children[:n_merges].ravel()
    merged = np.repeat(np.arange(n_rows, n_rows + n_merges), 2)
    shape = (n_rows + n_merges,) * 2
    graph = sp.csr_array((np.ones(len(joined)), (joined, merged)), shape=shape)
    component = connected_components(graph, directed=False)[1][:n_rows]
    _, first, labels = np.unique(component, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[labels]


class InformationBottleneck(RowEstimator, ClusterMixin, BaseEstimator):
    """Clusters of counts that keep as much information about the features as possible.

    Parameters
    ----------
    n_clusters : int
    method : {"sequential", "agglomerative"}
        "sequential" moves rows between clusters, from several random starts; its time is proportional to non-zeros
        times clusters. "agglomerative" merges clusters and returns the whole tree; its time is proportional to rows
        times non-zeros and its memory to the square of the rows, so that it is for small sets.
    row_weight : {"uniform", "length"}
        Weight of a row, besides `sample_weight`: all the same, or the sum of its counts.
    n_init : int
        Number of starts. They run in parallel until few rows move, and the best one is continued.
    tol : float
        Share of rows that move in a sweep at which to stop.
    max_iter : int
        Maximum number of sweeps.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
        First clusters and the order of rows.
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Clusters; -1 for a row without counts.
    mutual_information_ : float
        I(T; W) in nats.
    information_share_ : float
        The same over the information of single rows, which no clustering exceeds.
    feature_proba_ : ndarray of shape (n_clusters, n_features)
        p(w | t).
    cluster_weights_ : ndarray of shape (n_clusters,)
        Weight of the rows of each cluster, the mean weight of a row being 1.
    mean_weight_ : float
        Mean weight of the rows with counts, before it was set to 1.
    n_empty_ : int
        Rows without counts.
    children_ : ndarray of shape (n_rows - 1, 2)
        Merges of "agglomerative", in order: merge s joins these nodes to node n_rows + s. Rows without counts are
        not counted.
    merge_losses_ : ndarray of shape (n_rows - 1,)
        Information that each merge loses, in nats.
    trace_ : Trace
        The objective is the information after each sweep of the best start; it never falls.
    n_iter_, n_features_in_ : int

    Examples
    --------
    >>> from arbora.expand import InformationBottleneck
    >>> X = [[5, 1, 0, 0], [3, 2, 0, 0], [0, 0, 4, 1], [0, 1, 6, 2], [0, 0, 0, 0]]
    >>> model = InformationBottleneck(2, random_state=0).fit(X)
    >>> labels = model.labels_
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3]), int(labels[4])
    (True, -1)
    >>> model.top_features(["cat", "dog", "tree", "leaf"], 1)[labels[0]][0][0]
    'cat'
    """

    _tags: ClassVar[dict[str, Any]] = {"input_tags.positive_only": True}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "method": [StrOptions({"sequential", "agglomerative"})],
        "row_weight": [StrOptions({"uniform", "length"})],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        method: str = "sequential",
        row_weight: str = "uniform",
        n_init: int = 10,
        tol: float = 1e-3,
        max_iter: int = 100,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.row_weight = row_weight
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Counts, or any numbers that are not negative.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            p(i), up to a factor.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            X = self._check(X, reset=True)
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            weight = weight * self._row_weights(X)
            used = np.flatnonzero(weight)
            if len(used) < self.n_clusters:
                raise ValueError(
                    f"{len(used)} rows with counts (n_samples={X.shape[0]}) cannot fill "
                    f"n_clusters={self.n_clusters}: give more rows or fewer clusters."
                )
            mean_weight = float(weight[used].mean())
            counts = weighted(X[used], weight[used] / mean_weight)
            solve = self._merge if self.method == "agglomerative" else self._sweep  # from `n_init` starts
            solution = solve(counts)
            clusters = make_clusters(counts, solution.labels, self.n_clusters)
            of_clusters, of_rows = information(clusters.weights), rows_information(counts)
            for name in ("children_", "merge_losses_"):
                self.__dict__.pop(name, None)  # of an earlier fit
            if solution.children is not None:
                self.children_, self.merge_losses_ = solution.children, solution.losses
            self.mean_weight_, self.cluster_weights_ = mean_weight, clusters.totals
            self.feature_proba_ = np.ascontiguousarray((clusters.weights / clusters.totals).T)
            self.mutual_information_ = of_clusters
            self.information_share_ = of_clusters / of_rows if of_rows > 0 else 1.0
            self.trace_, self.n_iter_ = solution.monitor.trace, solution.monitor.n_iter
            has_counts = self._row_weights(X) > 0
            self.n_empty_ = int(np.sum(~has_counts))
            self.labels_ = np.full(X.shape[0], -1, np.int64)
            self.labels_[used] = solution.labels
            rest = np.flatnonzero(has_counts & (weight == 0))
            if len(rest):
                self.labels_[rest] = self._assign(X[rest])
        return self

    def _check(self, X: Any, *, reset: bool) -> sp.csr_array:
        X = check_rows(self, X, reset=reset)
        check_not_negative(X, type(self).__name__, "Give counts or frequencies")
        check_not_above(X, _MAX_COUNT, "Divide X by a number")
        return sp.csr_array(X, dtype=np.float64)

    def _row_weights(self, X: sp.csr_array) -> Array:
        length = np.asarray(X.sum(axis=1), np.float64).ravel()
        return length if self.row_weight == "length" else np.where(length > 0, 1.0, 0.0)

    def _sweep(self, counts: Counts) -> Solution:
        """Sequential clusters: all starts until few rows move, then the best one."""
        seed = draw_seed(self.random_state)

        def start(number: int) -> Run:
            rng = np.random.default_rng([seed, number])
            return start_run(counts, self.n_clusters, rng, self.tol, self.max_iter)

        with (
            ThreadEngine(self.n_jobs) as engine,
            Progress(self.n_init, type(self).__name__, self.verbose) as progress,
        ):
            runs = engine.map(start, range(self.n_init), progress)
        best = runs[int(np.argmax([run.value for run in runs]))]
        monitor = best.monitor
        if monitor.value > self.tol:
            run_sweeps(counts, best.clusters, best.value, best.rng, self.tol, monitor)
        if monitor.value > self.tol:
            warn_caller(
                f"{type(self).__name__} stopped at max_iter={self.max_iter}: {monitor.value:.2g} of the rows moved "
                f"in the last sweep, more than tol={self.tol:g}. Increase max_iter or tol.",
                ConvergenceWarning,
            )
        return Solution(best.clusters.labels, monitor)

    def _merge(self, counts: Counts) -> Solution:
        """Agglomerative clusters."""
        n_rows, n_features = counts.X.shape
        require_memory(8 * n_rows**2, f"The losses of all pairs of {n_rows} rows", "Use method='sequential'.")
        X, D = counts.X, np.empty((n_rows, n_rows))
        children, losses = merge_all(X.indptr, X.indices, X.data, counts.row_sum, n_features, D)
        losses = losses / counts.total
        monitor = Monitor(self.tol, 1)
        value = rows_information(counts) - float(losses[: n_rows - self.n_clusters].sum())
        monitor.record(value, converged=True)
        return Solution(cut_tree(children, self.n_clusters), monitor, children, losses)

    def _assign(self, X: sp.csr_array) -> Ints:
        length = np.asarray(X.sum(axis=1)).ravel()
        weight = np.ones(X.shape[0]) if self.row_weight == "uniform" else length / self.mean_weight_
        counts = weighted(X, np.where(length > 0, weight, 0.0))
        weights = self.feature_proba_.T * self.cluster_weights_
        width = padded(self.n_clusters)
        state = np.zeros((X.shape[1], 2 * width))
        state[:, : self.n_clusters] = weights
        state[:, width : width + self.n_clusters] = xlogy(weights, weights)
        labels = np.empty(X.shape[0], np.int64)
        Z = counts.X
        assign_rows(Z.indptr, Z.indices, Z.data, counts.row_sum, state, self.cluster_weights_, labels)
        return labels

    def predict(self, X: Any) -> Ints:
        """Return the cluster that loses least information by each row; -1 for a row without counts.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)

        Notes
        -----
        A row of the fit is treated like a new one, so that its cluster may differ from `labels_`, for which the row
        itself was taken out.
        """
        check_is_fitted(self)
        return self._assign(self._check(X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the information, in nats, that the predicted clusters of rows keep about the features of these rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        check_is_fitted(self)
        X = self._check(X, reset=False)
        labels = self._assign(X)
        used = np.flatnonzero(labels >= 0)
        if not len(used):
            return 0.0
        counts = weighted(X[used], self._row_weights(X)[used])
        clusters = make_clusters(counts, labels[used], self.n_clusters)
        return information(clusters.weights)

    def top_features(self, feature_names: Any = None, n: Any = 10) -> list[list[tuple[Any, float]]]:
        """List the features with the most information about each cluster.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of features in each list.

        Returns
        -------
        list of lists of (name, weight)
            One list for each cluster, largest weights first: p(w | t) log(p(w | t) / p(w)), the part of the
            feature in the information of the cluster. Only positive weights are listed.
        """
        check_is_fitted(self)
        n_features = self.feature_proba_.shape[1]
        names = (
            getattr(self, "feature_names_in_", range(n_features)) if feature_names is None else feature_names
        )
        if len(names) != n_features:
            raise ValueError(
                f"feature_names has {len(names)} names, but the model has {n_features} features: give one name for "
                "each feature."
            )
        if not isinstance(n, Integral) or int(n) < 0:
            raise ValueError(f"n must be an integer, 0 or more, got {n!r}.")
        overall = self.cluster_weights_ @ self.feature_proba_ / self.cluster_weights_.sum()
        parts = xlogy(self.feature_proba_, self.feature_proba_) - xlogy(self.feature_proba_, overall)
        order = np.argsort(-parts, axis=1, kind="stable")[:, : int(n)]
        return [
            [(names[w], float(part[w])) for w in top.tolist() if part[w] > 0]
            for part, top in zip(parts, order, strict=True)
        ]
