"""Spherical k-means: clusters of directions, each around the mean direction of its rows.

    max  sum_i a_i max_k x_i.c_k,      ||x_i|| = ||c_k|| = 1

It is what a von Mises-Fisher mixture with equal weights and one shared concentration becomes when that
concentration is large, and has no density. Mini-batches are stepwise: sums of a batch enter a moving average of the
sums of all rows.

References
----------
I. Dhillon and D. Modha (2001). Concept decompositions for large sparse text data using clustering. Machine Learning
42.
"""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from arbora.core.products import csr_matmul
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.core.validation import check_rows
from arbora.discover._mixture.base import RUN_CONSTRAINTS, warn_unless_converged
from arbora.discover._mixture.initialization import Init, check_init, starting_sums
from arbora.discover._mixture.prediction import draw_seed
from arbora.discover._mixture.rows import (
    as_rows,
    check_weight,
    refuse_few,
    unit_columns,
    unit_rows,
)
from arbora.discover._mixture.top_features import ClusterLook
from arbora.engine import ThreadEngine
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, best_of, run
from arbora.infer.mixture.statistics import LinearScores, Stats, WeightedRows

_MOST_REPAIRS = 10  # times that clusters without rows are put elsewhere


def centre_scores(centres: NDArray[Any]) -> LinearScores:
    """Cosines; the temperature of the schedule makes their maximum count."""
    return LinearScores(centres, np.zeros(centres.shape[1]), 0.0)


def centre_update(centres: NDArray[Any], stats: Stats) -> NDArray[Any]:
    """Mean directions of the clusters."""
    return unit_columns(stats.sums, centres)[0]


def no_extra(centres: NDArray[Any]) -> float:
    """Nothing: the objective is that of the rows alone."""
    return 0.0


class SphericalKMeans(ClusterLook, ClusterMixin, TransformerMixin, BaseEstimator):
    """k-means by cosine similarity.

    Parameters
    ----------
    n_clusters : int
    init : {"k-means++", "random"}, labels or centres
        Where to begin: rows far from each other, random labels, an integer label for each row (-1: none), or a
        centre for each cluster.
    n_init : int
        Starts, of which the best is kept; they run in parallel.
    tol : float
        Gain of the mean cosine below which to stop.
    max_iter : int
        Most iterations, or passes over the data in mini-batches.
    batch_size : int, optional
        Rows in a mini-batch; all rows at once by default.
    dtype : {"float32", "float64"}
        Precision of the iterations.
    n_jobs : int, optional
        Threads; the result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Of unit length.
    labels_ : ndarray of shape (n_samples,)
    inertia_ : float
        Sum of the cosine distances (1 - cosine) of rows from their centres.
    trace_ : Trace
        Its objective is the sum of the cosines.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    Rows are divided by their length; zero rows are refused. A cluster that loses all its rows is put on the row
    farthest from its centre.

    Examples
    --------
    >>> from arbora.discover import SphericalKMeans
    >>> X = [[1.0, 0.1], [5.0, 0.0], [0.1, 2.0], [0.0, 1.0]]
    >>> model = SphericalKMeans(2, random_state=0).fit(X)
    >>> bool(model.labels_[0] == model.labels_[1] != model.labels_[2] == model.labels_[3])
    True
    """

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
        dtype: str = "float32",
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
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SphericalKMeans:
        """Find the clusters.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            solution, weight = self._fit(X, sample_weight)
            self._warn(solution, weight)
            return self

    def _fit(self, X: Any, sample_weight: Any) -> tuple[MixtureFit, NDArray[np.float64]]:
        """Find the clusters, without a word; return how, and the weights of the rows."""
        self._validate_params()
        X = check_rows(self, X, reset=True, min_features=2)
        weight = check_weight(sample_weight, X)
        X = unit_rows(X, weight)
        rows = as_rows(X, weight, np.dtype(self.dtype))
        refuse_few(rows, self.n_clusters, "n_clusters")
        init = check_init(self.init, *X.shape, self.n_clusters)
        if not isinstance(init, str) and init.ndim == 1:
            init = init[weight > 0]
        with ThreadEngine(self.n_jobs) as engine:
            solution = self._solve(rows, init, engine)
            self._set(solution, X, weight, engine)
        return solution, weight

    def _solve(self, rows: WeightedRows, init: Init, engine: ThreadEngine) -> MixtureFit:
        seed = draw_seed(self.random_state)
        n_init = self.n_init if isinstance(init, str) else 1

        def fit(start: int) -> MixtureFit:
            rng = np.random.default_rng([seed, start])
            sums = np.ascontiguousarray(starting_sums(rows, init, self.n_clusters, rng, engine).T)
            centres = unit_columns(sums.astype(rows.X.dtype), np.eye(*sums.shape, dtype=rows.X.dtype))[0]
            schedule = Schedule(self.tol, self.max_iter, (0.0,), self.batch_size, seed + start)
            with Progress(None, f"start {start + 1} of {n_init}", self.verbose) as progress:
                return self._run(rows, centres, schedule, engine, progress)

        return best_of(fit, n_init, engine)

    def _run(
        self,
        rows: WeightedRows,
        centres: NDArray[Any],
        schedule: Schedule,
        engine: ThreadEngine,
        progress: Progress,
    ) -> MixtureFit:
        """Run, and again while there are clusters without rows and rows away from their centres to put them on."""
        model = MixtureModel(centre_scores, centre_update, no_extra)
        solution = run(model, rows, centres, schedule, engine, progress)
        for _ in range(_MOST_REPAIRS):
            centres = solution.params
            cosine = csr_matmul(rows.X, centres, engine)
            empty = np.setdiff1d(np.arange(self.n_clusters), cosine.argmax(axis=1))
            far = np.argsort(cosine.max(axis=1), kind="stable")[: len(empty)]
            empty = empty[cosine[far].max(axis=1) < 1 - 8 * np.finfo(rows.X.dtype).eps]
            if not len(empty):
                break
            centres = centres.copy()
            centres[:, empty] = rows.X[far[: len(empty)]].toarray().T
            solution = run(model, rows, centres, schedule, engine, progress)
        return solution

    def _set(self, solution: MixtureFit, X: sp.csr_array, weight: NDArray[Any], engine: ThreadEngine) -> None:
        centres = solution.params.T.astype(np.float64)
        self.cluster_centers_ = centres / np.linalg.norm(centres, axis=1, keepdims=True)
        cosine = self._cosines(X, engine)
        self.labels_ = cosine.argmax(axis=1)
        self.inertia_ = float(weight @ (1.0 - cosine.max(axis=1)))
        self.trace_, self.n_iter_ = solution.trace, len(solution.trace)

    def _warn(self, solution: MixtureFit, weight: NDArray[Any]) -> None:
        found = len(np.unique(self.labels_[weight > 0]))
        if found < self.n_clusters:
            warnings.warn(
                f"only {found} of n_clusters={self.n_clusters} have rows: X has too few different directions. "
                "Decrease n_clusters.",
                ConvergenceWarning,
                stacklevel=3,
            )
        warn_unless_converged(self, solution)

    def _cosines(self, X: sp.csr_array, engine: ThreadEngine | None = None) -> NDArray[np.float64]:
        centres = np.ascontiguousarray(self.cluster_centers_.T)
        return csr_matmul(X, centres, engine or ThreadEngine(self.n_jobs))

    def _centres(self) -> NDArray[np.float64]:
        return self.cluster_centers_

    def _checked(self, X: Any) -> sp.csr_array:
        check_is_fitted(self)
        return unit_rows(check_rows(self, X, reset=False, min_features=2))

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the cosines of rows and centres.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
        """
        return self._cosines(self._checked(X))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.transform(X).argmax(axis=1)

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


def split_rows(rows: WeightedRows, centres: NDArray[Any], max_iter: int) -> NDArray[np.int64]:
    """Clusters of rows, from centres that are given. There are no warnings: filters of them belong to no thread.

    Examples
    --------
    >>> rows = WeightedRows(sp.csr_array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), np.ones(3))
    >>> split_rows(rows, np.eye(2), 5)
    array([0, 1, 1])
    """
    model = SphericalKMeans(len(centres), init=centres, max_iter=max_iter, dtype=rows.X.dtype.name)
    model._fit(rows.X, rows.weight)
    return model.labels_
