"""Spherical k-means: clusters of directions, each around the mean direction of its rows.

    max  sum_i a_i max_k x_i.c_k,      ||x_i|| = ||c_k|| = 1

It is the limit of a von Mises-Fisher mixture with equal weights and one shared concentration that grows without
bound, and has no density. Mini-batches are stepwise: the sums of a batch enter a moving average of the sums of all
rows.

References
----------
I. Dhillon and D. Modha (2001). Concept decompositions for large sparse text data using clustering. Machine Learning
42.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine, SerialEngine
from arbora.core.estimator import Explorable, RowEstimator, all_or_nothing, draw_seed, warn_caller
from arbora.core.monitor import Progress
from arbora.core.products import csr_matmul
from arbora.core.validation import check_rows, precision_for
from arbora.discover.mixture.describe import UNKNOWN, Described
from arbora.discover.mixture.rows import as_rows, check_weight, refuse_few, unit_rows, zero_rows
from arbora.discover.mixture.starts import (
    RUN_CONSTRAINTS,
    Init,
    check_init,
    starting_sums,
    warn_unless_converged,
)
from arbora.engine import ThreadEngine
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, best_of, run
from arbora.infer.mixture.statistics import LinearScores, Stats, WeightedRows, unit_columns

_MAX_REPAIRS = 10  # times that empty clusters are moved
_SPLIT_TOLERANCE = 1e-5  # of `split_rows`, the default of `SphericalKMeans`


def centre_scores(centres: Matrix) -> LinearScores:
    """Return cosines as scores; at temperature 0 only the largest one of a row counts."""
    return LinearScores(centres, np.zeros(centres.shape[1]), 0.0)


def centre_update(centres: Matrix, stats: Stats) -> Matrix:
    """Return the mean directions of the clusters, c_k = s_k / ||s_k||; a cluster without rows keeps its centre."""
    return unit_columns(stats.sums, centres)[0]


def no_extra(centres: Matrix) -> float:
    """Return 0: the objective has no term besides the rows."""
    return 0.0


def start_centres(
    rows: WeightedRows, init: Init, n_clusters: int, rng: np.random.Generator, engine: Engine
) -> Matrix:
    """Return centres (n_features, n_clusters) to start from."""
    sums = np.ascontiguousarray(starting_sums(rows, init, n_clusters, rng, engine).T)
    axes = np.eye(*sums.shape, dtype=rows.X.dtype)
    return unit_columns(sums.astype(rows.X.dtype), axes)[0]


def run_k_means(
    rows: WeightedRows,
    centres: Matrix,
    schedule: Schedule,
    engine: Engine,
    progress: Progress | None = None,
) -> MixtureFit:
    """Run k-means. Empty clusters move to the rows that are farthest from their centres; then it runs again."""
    model = MixtureModel(centre_scores, centre_update, no_extra)
    fit = run(model, rows, centres, schedule, engine, progress)
    for _ in range(_MAX_REPAIRS):
        centres = fit.params
        cosine = csr_matmul(rows.X, centres, engine)
        empty = np.setdiff1d(np.arange(centres.shape[1]), cosine.argmax(axis=1))
        far = np.argsort(cosine.max(axis=1), kind="stable")[: len(empty)]
        empty = empty[cosine[far].max(axis=1) < 1 - 8 * np.finfo(rows.X.dtype).eps]
        if not len(empty):
            break
        centres = centres.copy()
        centres[:, empty] = rows.X[far[: len(empty)]].toarray().T
        fit = run(model, rows, centres, schedule, engine, progress)
    return fit


def final_centres(fit: MixtureFit) -> Array:
    """Return the centres of a fit (n_clusters, n_features), in double precision."""
    centres = fit.params.T.astype(np.float64)
    return np.asarray(centres / np.linalg.norm(centres, axis=1, keepdims=True))


def cosines(X: sp.csr_array, centres: Array, engine: Engine) -> Array:
    """Return the cosines of unit rows and centres."""
    return csr_matmul(X, np.ascontiguousarray(centres.T), engine)


def split_rows(rows: WeightedRows, centres: Matrix, max_iter: int) -> Ints:
    """Return the clusters of rows, starting from centres, without warnings; -1 for rows of zeros."""
    X, engine = unit_rows(sp.csr_array(rows.X)), SerialEngine()
    weight, _ = check_weight(rows.weight, X)
    nonzero = as_rows(X, weight, rows.X.dtype)
    start = start_centres(nonzero, centres, len(centres), np.random.default_rng(0), engine)
    fit = run_k_means(nonzero, start, Schedule(_SPLIT_TOLERANCE, max_iter, (0.0,)), engine)
    labels = cosines(X, final_centres(fit), engine).argmax(axis=1)
    return np.where(zero_rows(X), UNKNOWN, labels)


class SphericalKMeans(RowEstimator, Described, Explorable, ClusterMixin, TransformerMixin, BaseEstimator):
    """k-means by cosine similarity.

    Parameters
    ----------
    n_clusters : int
    init : {"k-means++", "random"}, labels or centres
        The start: rows far from each other, random labels, an integer label for each row (-1: no label), or a centre
        for each cluster.
    n_init : int
        Number of starts. They run in parallel, and the best result is used.
    tol : float
        Stop when the mean cosine gains less than this in an iteration. Below 1e-6 the fit computes in double
        precision.
    max_iter : int
        Maximum number of iterations, or of passes over the data with mini-batches.
    batch_size : int, optional
        Rows in a mini-batch; all rows at once by default.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centres of unit length.
    labels_ : ndarray of shape (n_samples,)
    inertia_ : float
        Sum of the cosine distances (1 - cosine) of rows from their centres.
    trace_ : Trace
        The objective is the sum of the cosines.
    n_zero_rows_ : int
        Number of zero rows of the fit.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    Rows are divided by their length. A zero row takes no part in the fit, and has the label -1. A cluster that loses
    all its rows moves to the row that is farthest from its centre.

    Examples
    --------
    >>> from arbora.discover import SphericalKMeans
    >>> X = [[1.0, 0.1], [5.0, 0.0], [0.1, 2.0], [0.0, 1.0]]
    >>> model = SphericalKMeans(2, random_state=0).fit(X)
    >>> bool(model.labels_[0] == model.labels_[1] != model.labels_[2] == model.labels_[3])
    True
    """

    _means: ClassVar[str] = "cluster_centers_"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        **RUN_CONSTRAINTS,
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int = 1,
        tol: float = 1e-5,
        max_iter: int = 300,
        batch_size: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the clusters: k-means from each of `n_init` starts, of which the best is used.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Number of times that each row counts.

        Returns
        -------
        self
        """
        with all_or_nothing(self), ThreadEngine(self.n_jobs) as engine:
            self._validate_params()
            X = unit_rows(check_rows(self, X, reset=True, min_features=2))
            weight, self.n_zero_rows_ = check_weight(sample_weight, X)
            rows = as_rows(X, weight, precision_for(self.tol))
            refuse_few(rows, self.n_clusters, "n_clusters")
            init = check_init(self.init, weight, X.shape[1], self.n_clusters)
            fit = self._solve(rows, init, draw_seed(self.random_state), engine)
            centres = final_centres(fit)
            cosine = cosines(X, centres, engine)
            self.cluster_centers_, self.trace_, self.n_iter_ = centres, fit.trace, len(fit.trace)
            self.labels_ = np.where(zero_rows(X), UNKNOWN, cosine.argmax(axis=1))
            self.inertia_ = float(weight @ (1.0 - cosine.max(axis=1)))
            n_filled = len(np.unique(self.labels_[weight > 0]))
            if n_filled < self.n_clusters:
                warn_caller(
                    f"only {n_filled} of n_clusters={self.n_clusters} have rows: X has too few different directions. "
                    "Decrease n_clusters.",
                    ConvergenceWarning,
                )
            warn_unless_converged(type(self).__name__, fit, self.tol, self.max_iter)
            return self

    def _solve(self, rows: WeightedRows, init: Init, seed: int, engine: Engine) -> MixtureFit:
        """Return the run with the highest objective of several starts; given labels or centres are one start."""
        n_init = self.n_init if isinstance(init, str) else 1

        def fit(start: int) -> MixtureFit:
            rng = np.random.default_rng([seed, start])
            centres = start_centres(rows, init, self.n_clusters, rng, engine)
            schedule = Schedule(self.tol, self.max_iter, (0.0,), self.batch_size, seed + start)
            with Progress(None, f"start {start + 1} of {n_init}", self.verbose) as progress:
                return run_k_means(rows, centres, schedule, engine, progress)

        return best_of(fit, n_init, engine)

    def _checked(self, X: Any) -> sp.csr_array:
        check_is_fitted(self)
        return unit_rows(check_rows(self, X, reset=False))

    def transform(self, X: Any) -> Array:
        """Return the cosines of rows and centres.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
        """
        return cosines(self._checked(X), self.cluster_centers_, ThreadEngine(self.n_jobs))

    def predict(self, X: Any) -> Ints:
        """Return the cluster of each row; -1 for a zero row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._labels(self._checked(X))

    def _labels(self, X: sp.csr_array) -> Ints:
        """Return the cluster of each unit row; -1 for a zero row."""
        nearest = cosines(X, self.cluster_centers_, ThreadEngine(self.n_jobs)).argmax(axis=1)
        return np.where(zero_rows(X), UNKNOWN, nearest)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the sum of the cosine distances of rows from their centres.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(np.sum(self.transform(X).max(axis=1) - 1.0))
