"""MDA2: a Gaussian mixture of rows and labels together, whose components are the clusters (Klami 3.2.2).

    p(c, x) = sum_j rho_j xi_jc N(x; m_j, Sigma),

label and row being independent given the component j. All components share Sigma, which is s^2 I (the thesis),
diagonal or full. EM maximises

    Q = sum_i log p(c_i, x_i) + a sum_jc log xi_jc - (b/2) (log|Sigma| + tr(Sigma^-1 B)),

where a is the `smoothing` and b the `weight` of the prior, and B the covariance of all rows over the number of
clusters; the prior keeps Sigma away from singular ones. Each step raises Q. Rows without a label add log p(x_i).

A new row has no label, so its memberships are marginal over the label:

    p(j | x) = sum_c p(j | x, c) p(c | x) = rho_j N(x; m_j, Sigma) / p(x),      p(c | x) = sum_j p(j | x) xi_jc.

Errata of the thesis: 3.2.2 marginalises with p(c) instead of p(c | x); the normaliser of (3.6) belongs to
exp(-|x - m|^2 / (2 s^2)), which is the form here.

References
----------
T. Hastie and R. Tibshirani (1996). Discriminant analysis by Gaussian mixtures. JRSS B 58.
A. Klami (2003). Regularized discriminative clustering. Master's thesis, Helsinki University of Technology.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import xlogy
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import TINY, Ints, Matrix
from arbora.core.chunks import split
from arbora.core.estimator import RowEstimator, all_or_nothing, draw_seed, read_options, require_y
from arbora.core.monitor import Monitor
from arbora.core.validation import check_features
from arbora.engine import ThreadEngine
from arbora.expand.clusters.clusterers import run_kmeans, seed_centres
from arbora.expand.clusters.pool import Pool, normalized, one_hot
from arbora.expand.groups import (
    FeatureSpace,
    Groups,
    LabelledClusterer,
    fit_space,
    group_moments,
    read_groups,
    to_space,
)
from arbora.expand.transforms.base import warn_unless_converged
from arbora.expand.transforms.within_class import whitening

# Statistics add over rows. All clusters share one covariance, so that the scatter of the rows follows from their
# second moments, which no step changes, and the sums of each cluster.

_ROWS_AT_ONCE = 8192
_START_ITERATIONS = 20  # of k-means
_SHRINKAGE = 0.1  # of the within-class covariance, as in WithinClassTransform
_MIN_VARIANCE = 1e-10  # in units of the variance of the rows


class Rows(NamedTuple):
    """Rows of the feature space, their labels (-1: none), and the second moments of all rows."""

    Z: Matrix
    codes: Ints
    n_classes: int
    outer: Matrix  # n_dims x n_dims: sum of z z'


class Prior(NamedTuple):
    """Smoothing of the label shares, and the rows that the prior of the covariance is worth."""

    smoothing: float = 0.1
    weight: float = 1.0


class Shape(NamedTuple):
    """Constraints of the covariance: its shape, its inverse Wishart prior, and its bounds."""

    covariance: str
    scale: Matrix  # of the prior
    floor: float  # of variances
    variance: float | None  # fixed variance of the spherical model


class DiscriminantMixture(NamedTuple):
    """Parameters of the model."""

    weights: Matrix  # n_clusters
    label_proba: Matrix  # n_clusters x n_classes
    means: Matrix  # n_clusters x n_dims
    covariance: Matrix  # n_dims x n_dims

    def scores(self, Z: Matrix) -> Matrix:
        """Log-joint of rows and components, without the label."""
        variances = np.diag(self.covariance)
        if np.count_nonzero(self.covariance) == len(variances):
            rows, means = Z / np.sqrt(variances), self.means / np.sqrt(variances)
            log_det = float(np.log(variances).sum())
        else:
            L = np.linalg.cholesky(self.covariance)
            rows, means = solve_triangular(L, Z.T, lower=True).T, np.linalg.solve(L, self.means.T).T
            log_det = 2 * float(np.log(np.diag(L)).sum())
        squares = np.sum(rows**2, axis=1)[:, None] + np.sum(means**2, axis=1) - 2 * rows @ means.T
        constant = log_det + Z.shape[1] * np.log(2 * np.pi)
        return np.asarray(_log(self.weights) - (np.maximum(squares, 0.0) + constant) / 2)


class Stats(NamedTuple):
    """Sums over the rows; they add."""

    size: Matrix  # n_clusters
    sums: Matrix  # n_clusters x n_dims
    labels: Matrix  # n_clusters x n_classes


def _log(values: Matrix) -> Matrix:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _sums(R: Matrix, Z: Matrix, codes: Ints, n_classes: int) -> Stats:
    labelled = codes >= 0
    counts = one_hot(codes[labelled], np.ones(int(labelled.sum())), n_classes) @ R[labelled]
    return Stats(R.sum(axis=0), R.T @ Z, np.asarray(counts).T)


def e_step(model: DiscriminantMixture, rows: Rows) -> tuple[Stats, float]:
    """Statistics given the parameters, and the log-likelihood."""
    # Row -1 of the table, of zeros, is that of a row without a label.
    table = np.vstack([_log(model.label_proba).T, np.zeros(len(model.means))])
    parts, value = [], 0.0
    for chunk in split(len(rows.Z), size=_ROWS_AT_ONCE):
        scores = model.scores(rows.Z[chunk]) + table[rows.codes[chunk]]
        top = scores.max(axis=1, keepdims=True)
        R = np.exp(scores - top)
        total = R.sum(axis=1, keepdims=True)
        value += float(np.sum(top + np.log(total)))
        R /= total
        parts.append(_sums(R, rows.Z[chunk], rows.codes[chunk], rows.n_classes))
    return Stats(*(np.sum(field, axis=0) for field in zip(*parts, strict=True))), value


def m_step(stats: Stats, rows: Rows, prior: Prior, shape: Shape) -> DiscriminantMixture:
    """Parameters that maximise Q given the statistics."""
    n_rows = len(rows.Z)
    size = np.maximum(stats.size, TINY)
    means = stats.sums / size[:, None]
    counts = stats.labels + prior.smoothing
    total = counts.sum(axis=1, keepdims=True)
    even = np.full_like(counts, 1 / rows.n_classes)
    label_proba = np.where(total > 0, counts / np.maximum(total, TINY), even)
    scatter = rows.outer - means.T @ stats.sums + prior.weight * shape.scale
    full = (scatter + scatter.T) / (2 * (n_rows + prior.weight))
    return DiscriminantMixture(stats.size / n_rows, label_proba, means, _shaped(full, shape))


def _shaped(full: Matrix, shape: Shape) -> Matrix:
    """Best covariance of a shape; variances stay above the floor."""
    if shape.covariance == "full":
        values, vectors = np.linalg.eigh(full)
        if values[0] < shape.floor:
            full = (vectors * np.maximum(values, shape.floor)) @ vectors.T
        return full
    if shape.covariance == "diagonal":
        return np.diag(np.maximum(np.diag(full), shape.floor))
    variance = float(np.trace(full)) / len(full) if shape.variance is None else shape.variance
    return max(variance, shape.floor) * np.eye(len(full))


def objective(model: DiscriminantMixture, log_likelihood: float, prior: Prior, shape: Shape) -> float:
    """Q: the log-likelihood plus the logarithms of the priors."""
    of_labels = float(xlogy(prior.smoothing, model.label_proba).sum())
    log_det = float(np.linalg.slogdet(model.covariance)[1])
    trace = float(np.trace(np.linalg.solve(model.covariance, shape.scale)))
    return log_likelihood + of_labels - prior.weight * (log_det + trace) / 2


def run_em(
    start: Stats, rows: Rows, prior: Prior, shape: Shape, tol: float, max_iter: int
) -> tuple[DiscriminantMixture, Monitor]:
    """EM from the statistics of a start."""
    monitor, stats, before, last = Monitor(tol, max_iter), start, np.nan, False
    while not last:
        model = m_step(stats, rows, prior, shape)
        stats, likelihood = e_step(model, rows)
        value = objective(model, likelihood, prior, shape)
        last = monitor.record(value, gain=(value - before) / len(rows.Z))
        before = value
    return model, monitor


def start_stats(rows: Rows, n_clusters: int, with_labels: bool, rng: np.random.Generator) -> Stats:
    """Statistics of a few iterations of k-means, of rows alone or of rows with their labels."""
    Z = rows.Z
    if with_labels:
        onehot = np.vstack([np.eye(rows.n_classes), np.zeros(rows.n_classes)])[rows.codes]
        # Labels count as much as all features together.
        factor = np.sqrt(Z.var(axis=0).sum() / max(float(onehot.var(axis=0).sum()), TINY**0.25))
        Z = np.hstack([Z, factor * onehot])
    pool = Pool(Z, np.full(len(Z), -1, np.int64), 0, np.ones(len(Z)))
    clustering = run_kmeans(pool, seed_centres(pool, n_clusters, rng), _START_ITERATIONS)
    return label_stats(rows, clustering.labels, n_clusters)


def label_stats(rows: Rows, labels: Ints, n_clusters: int) -> Stats:
    """Statistics of given clusters; a row of cluster -1 belongs to all of them."""
    R = np.full((len(rows.Z), n_clusters), 1 / n_clusters)
    R[labels >= 0] = np.eye(n_clusters)[labels[labels >= 0]]
    return _sums(R, rows.Z, rows.codes, rows.n_classes)


_PRIOR_CONSTRAINTS = {name: [Interval(Real, 0, None, closed="left")] for name in Prior._fields}


def within_whitener(X: Any, groups: Groups, space: FeatureSpace) -> Matrix:
    """Whitening of a feature space by the covariance of rows around the mean of their class."""
    Z, codes = to_space(space, X[groups.labelled]), groups.codes[groups.labelled]
    return whitening(group_moments(Z, codes, groups.n_groups, np.ones(len(Z))).within, _SHRINKAGE)


class MixtureDiscriminantClustering(RowEstimator, LabelledClusterer, BaseEstimator):
    """Clusters of rows that share a label distribution: a Gaussian mixture of rows and labels (MDA2).

    Parameters
    ----------
    n_clusters : int
    covariance : {"spherical", "diagonal", "full"}
        Shape of the covariance, which all clusters share.
    scaling : {"within", "each"} or None
        "within": whiten features by the covariance of rows around the mean of their class. "each": divide features
        by their deviations. None: one factor for all features.
    variance : float, optional
        Fixed variance of the spherical covariance, in units of the scaled features. By default EM estimates it.
    prior : dict, optional
        ``"smoothing"``, default .1: count that is added to every class of every cluster. ``"weight"``, default 1:
        rows that the prior of the covariance is worth. Both 0 give maximum likelihood.
    init : "k-means" or labels
        The start: k-means, or an integer cluster for each row (-1: none).
    n_init : int
        Number of starts. They run in parallel, and the best result is kept. Every second one clusters rows together
        with their labels, the others rows alone.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD of wide or sparse rows; see `WithinClassTransform`.
    tol : float
        Gain of the objective per row at which to stop, in nats.
    max_iter : int
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row, found without its label: what `predict` returns.
    classes_ : ndarray
        The values of `y`: the columns of `predict_label_proba` and of `label_proba_`.
    label_proba_ : ndarray of shape (n_clusters, n_classes)
        Share of each class in each cluster.
    weights_ : ndarray of shape (n_clusters,)
    parameters_ : DiscriminantMixture
        Weights, label shares, means and covariance in the scaled feature space.
    space_ : FeatureSpace
    scaling_ : ndarray of shape (n_dims, n_dims) or None
        Whitening of the feature space.
    prior_ : dict
        With all options.
    trace_ : Trace
        The objective never falls.
    n_iter_, n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import MixtureDiscriminantClustering
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2)) + 6 * rng.integers(2, size=(200, 1))
    >>> y = np.where(X[:, 0] > 3, "high", "low")
    >>> model = MixtureDiscriminantClustering(2, random_state=0).fit(X, y)
    >>> model.predict_label_proba([[6.0, 6.0]]).round(1), model.classes_.tolist()
    (array([[1., 0.]]), ['high', 'low'])
    """

    _tags: ClassVar[dict[str, Any]] = {"target_tags.required": True}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "covariance": [StrOptions({"spherical", "diagonal", "full"})],
        "scaling": [StrOptions({"within", "each"}), None],
        "variance": [Interval(Real, 0, None, closed="neither"), None],
        "prior": [dict, None],
        "init": [StrOptions({"k-means"}), "array-like"],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "n_dims": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        covariance: str = "spherical",
        scaling: str | None = "within",
        variance: float | None = None,
        prior: dict[str, float] | None = None,
        init: Any = "k-means",
        n_init: int = 6,
        n_dims: Any = "auto",
        tol: float = 1e-5,
        max_iter: int = 500,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.covariance = covariance
        self.scaling = scaling
        self.variance = variance
        self.prior = prior
        self.init = init
        self.n_init = n_init
        self.n_dims = n_dims
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels as integers or strings. -1, None and NaN mark rows without a label.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            require_y(self, y, "it models labels")
            prior = read_options("prior", self.prior, Prior, _PRIOR_CONSTRAINTS)
            X = check_features(self, X, reset=True)
            self._refuse_pairings(X.shape[0])
            groups, seed = read_groups(y, X.shape[0]), draw_seed(self.random_state)
            scale, ones = "common" if self.scaling is None else "each", np.ones(X.shape[0])
            space = fit_space(X, groups, ones, n_dims=self.n_dims, seed=seed, scale=scale)
            whitener = within_whitener(X, groups, space) if self.scaling == "within" else None
            Z = to_space(space, X) if whitener is None else to_space(space, X) @ whitener.T
            rows = Rows(Z, groups.codes, groups.n_groups, Z.T @ Z)
            model, monitor = self._solve(rows, prior, seed)  # EM from `n_init` starts
            warn_unless_converged(self, monitor.converged)
            self.space_, self.scaling_, self.classes_ = space, whitener, groups.classes
            self.parameters_, self.prior_ = model, prior._asdict()
            self.weights_, self.label_proba_ = model.weights, model.label_proba
            self.trace_, self.n_iter_ = monitor.trace, monitor.n_iter
            self.labels_ = model.scores(rows.Z).argmax(axis=1)
        return self

    def _refuse_pairings(self, n_rows: int) -> None:
        if n_rows < self.n_clusters:
            raise ValueError(
                f"n_samples={n_rows} rows cannot fill n_clusters={self.n_clusters}: give more rows or fewer clusters."
            )
        if self.variance is not None and self.covariance != "spherical":
            raise ValueError(
                f"variance={self.variance:g} fixes the spherical covariance, but covariance={self.covariance!r}: "
                "set covariance='spherical', or variance=None."
            )

    def _solve(self, rows: Rows, prior: Prior, seed: int) -> tuple[DiscriminantMixture, Monitor]:
        """Run EM from all starts, and return the best run."""
        n_rows, n_dims = rows.Z.shape
        mean = rows.Z.mean(axis=0)
        total = rows.outer / n_rows - np.outer(mean, mean)
        floor = _MIN_VARIANCE * max(float(np.trace(total)) / n_dims, TINY**0.25)
        scale = np.diag(np.maximum(np.diag(total), floor)) / self.n_clusters
        shape = Shape(self.covariance, scale, floor, self.variance)

        def fit(start: int) -> tuple[DiscriminantMixture, Monitor]:
            if isinstance(self.init, str):
                rng = np.random.default_rng([seed, start])
                stats = start_stats(rows, self.n_clusters, start % 2 == 1, rng)
            else:
                stats = label_stats(rows, self._given_labels(n_rows), self.n_clusters)
            return run_em(stats, rows, prior, shape, self.tol, self.max_iter)

        with ThreadEngine(self.n_jobs) as engine:
            fits = engine.map(fit, range(self.n_init if isinstance(self.init, str) else 1))
        return fits[int(np.argmax([monitor.objective for _, monitor in fits]))]

    def _given_labels(self, n_rows: int) -> Ints:
        labels = np.asarray(self.init)
        if labels.shape != (n_rows,) or labels.dtype.kind not in "iu":
            raise ValueError(
                f"init must hold one integer for each of the {n_rows} rows; its shape is {labels.shape} and its "
                f"type {labels.dtype}."
            )
        if labels.min() < -1 or labels.max() >= self.n_clusters:
            wrong = labels[(labels < -1) | (labels >= self.n_clusters)][0]
            raise ValueError(
                f"init holds the cluster {wrong}, but clusters are 0 to {self.n_clusters - 1}; -1 is none."
            )
        return labels.astype(np.int64)

    def _space_rows(self, X: Any) -> Matrix:
        check_is_fitted(self)
        Z = to_space(self.space_, check_features(self, X, reset=False, squares=np.float64))
        return Z if self.scaling_ is None else Z @ self.scaling_.T

    def predict(self, X: Any) -> Ints:
        """Most probable cluster of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        Z = self._space_rows(X)
        return np.asarray(self.parameters_.scores(Z).argmax(axis=1))

    def predict_proba(self, X: Any) -> Matrix:
        """Memberships p(j | x) of rows in clusters.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
        """
        Z = self._space_rows(X)
        return np.exp(normalized(self.parameters_.scores(Z)))

    def predict_label_proba(self, X: Any) -> Matrix:
        """Probabilities p(c | x) of the labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        return np.asarray(self.predict_proba(X) @ self.label_proba_)

    def score(self, X: Any, y: Any) -> float:
        """Mean of log p(c | x) over the labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of the fit; -1, None and NaN mark rows without a label.

        Returns
        -------
        float
        """
        proba = self.predict_label_proba(X)
        groups = read_groups(y, len(proba))
        unseen = np.setdiff1d(groups.classes, self.classes_)
        if len(unseen):
            raise ValueError(
                f"y holds the label {unseen.tolist()[0]!r}, which the fit has not seen: leave its rows out, or mark "
                "them with -1."
            )
        column = np.searchsorted(self.classes_, groups.classes)[groups.codes[groups.labelled]]
        rows = np.flatnonzero(groups.labelled)
        return float(np.mean(np.log(np.maximum(proba[rows, column], TINY))))
