"""Rows and starts of the samplers: standardised features, checked parameters, k-means labels."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from arbora.core.chunks import require_memory
from arbora.core.estimator import warn_caller
from arbora.discover.gaussian.normal_wishart import scale_shape

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_KMEANS_ROWS = 20_000  # rows that the centres of a start are found with
_POWER = 0.25  # of the eigenvalues of the covariance in the default scale; chosen among 0, 1/4, 1/2 and 1
_LARGEST = 1e150  # largest entry: squares of larger ones overflow


class Standardizer(NamedTuple):
    """Means and scales of the features: rows of the model are (x - mean) / scale."""

    mean: Array
    scale: Array

    def rows(self, X: Array) -> Array:
        """Return rows in the units of the model."""
        return np.ascontiguousarray((X - self.mean) / self.scale)


def dense_rows(X: Any, name: str) -> Array:
    """Return a validated feature matrix as a dense array of float64."""
    if hasattr(X, "toarray"):
        n_bytes = 8 * X.shape[0] * X.shape[1]
        require_memory(n_bytes, f"{name} on dense rows", "Use fewer features (TruncatedSVD).")
        X = X.toarray()
    dense: Array = np.ascontiguousarray(X, dtype=np.float64)
    largest = float(np.abs(dense).max(initial=0.0))
    if largest > _LARGEST:
        raise ValueError(f"X contains {largest:.3g}, whose square overflows: scale the features.")
    return dense


def fit_standardizer(X: Array, by_feature: bool) -> Standardizer:
    """Return means and standard deviations; a constant feature keeps its unit.

    With `by_feature` False all features are divided by the root of their mean variance.

    Examples
    --------
    >>> fit_standardizer(np.array([[0.0, 5.0], [2.0, 5.0]]), by_feature=True)
    Standardizer(mean=array([1., 5.]), scale=array([1., 1.]))
    """
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    noise = 1e-12 * np.abs(X).max(axis=0, initial=0.0)  # a constant column has a deviation of rounding errors
    constant = deviation <= noise
    if not by_feature:
        total = float(np.sqrt(np.mean(np.where(constant, 0.0, deviation) ** 2)))
        return Standardizer(mean, np.full(X.shape[1], total if total > 0 else 1.0))
    return Standardizer(mean, np.where(constant, 1.0, deviation))


def check_shape(X: Array, n_components: int | None, covariance: str, name: str) -> None:
    """Refuse too few rows; warn if full covariances have more directions than rows."""
    n, p = X.shape
    if n < 2:
        raise ValueError(f"Found array with n_samples={n}, but {name} needs at least 2 rows.")
    if n_components is not None and n < n_components:
        raise ValueError(
            f"n_samples={n} rows cannot fill n_components={n_components}: give more rows or fewer components."
        )
    if covariance == "full" and n <= p:
        warn_caller(
            f"X has {n} rows and {p} features: full covariances are decided by the prior, whose scale is floored at "
            f"{p * p / (n * n + p * p):.2g} of the variances. Use covariance='diag', or fewer features (PCA)."
        )


def default_scale(X: Array, covariance: str) -> Array:
    r"""Return the scale S_0 of the prior for rows in the units of the model.

    It has the eigenvectors of the covariance of all rows and m more rows of unit variances,
    :math:`(X^\top X + m I) / (n + m)` with :math:`m = \max(1, p^2 / n)`, and the eigenvalues
    :math:`\min(\lambda, 1)^{1/4}`. Nearly collinear features are narrow together, so that clusters are expected to be
    narrow there too; the power says how much of that is believed (0: unit variances, 1: the covariance). Where the
    variance is large rows are spread by the clusters, which says nothing about the width of one. It is diagonal for
    the diagonal form and the mean of that for the spherical form, both with m = 1.

    Examples
    --------
    >>> default_scale(np.array([[-1.0, 0.0], [1.0, 0.0]]), "full").round(2)
    array([[1.  , 0.  ],
           [0.  , 0.84]])
    >>> default_scale(np.array([[-1.0, -1.0], [1.0, 1.0]]), "full").round(2)
    array([[0.92, 0.08],
           [0.08, 0.92]])
    >>> default_scale(np.array([[-1.0, 0.0], [1.0, 0.0]]), "spherical").round(2)
    array([[0.67]])
    """
    n, p = X.shape
    if covariance == "full":
        more = max(1.0, p * p / n)
        values, vectors = np.linalg.eigh((X.T @ X + more * np.eye(p)) / (n + more))
        scale = (vectors * np.minimum(values, 1.0) ** _POWER) @ vectors.T
        return np.asarray(0.5 * (scale + scale.T))
    variances = np.minimum((np.einsum("ij,ij->j", X, X) + 1) / (n + 1), 1.0)
    return variances[None] if covariance == "diag" else np.array([[variances.mean()]])


def check_scale(S: Any, covariance: str, standardizer: Standardizer) -> Array:
    """Return a given scale of the prior, in the units of the model."""
    p = len(standardizer.mean)
    shape = scale_shape(covariance, p)
    given = np.asarray(S, np.float64)
    expected = {"full": (p, p), "diag": (p,), "spherical": ()}[covariance]
    if given.shape != expected:
        raise ValueError(
            f"S has the shape {given.shape}, but covariance={covariance!r} needs {expected}. A number c for all "
            "features is c * np.eye(n_features) for 'full', np.full(n_features, c) for 'diag'."
        )
    unit = standardizer.scale
    if covariance == "full":
        scaled = given / np.outer(unit, unit)
        valid = np.allclose(given, given.T) and np.linalg.eigvalsh(scaled).min() > 0
    elif covariance == "diag":
        scaled = given / unit**2
        valid = bool(scaled.min() > 0)
    else:
        if np.ptp(unit) > 0:
            raise ValueError("a given S of covariance='spherical' needs standardize=False: it has one unit.")
        scaled = given / unit[0] ** 2
        valid = bool(scaled > 0)
    if not valid or not np.isfinite(scaled).all():
        raise ValueError("S must be symmetric, positive definite and finite.")
    return np.ascontiguousarray(scaled.reshape(shape))


def start_labels(X: Array, init: Any, n_clusters: int, rng: np.random.Generator) -> Ints:
    """Return the labels that a chain starts from: given ones, or k-means on at most 20,000 rows."""
    if not isinstance(init, str):
        labels = np.asarray(init)
        if labels.shape != (len(X),):
            raise ValueError(
                f"init has shape {labels.shape}, but X has {len(X)} rows: give a label for each row."
            )
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)
    rows = X if len(X) <= _KMEANS_ROWS else X[np.sort(rng.choice(len(X), _KMEANS_ROWS, replace=False))]
    model = KMeans(min(n_clusters, len(rows)), n_init=1, max_iter=50, random_state=int(rng.integers(2**31)))
    # With several threads k-means adds in random order, and its last digits differ from run to run.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        labels = model.fit(rows).predict(X)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
