"""BP: Gaussian groups that share a covariance and a prior of their means, by constrained EM (thesis 6.6.1).

    theta_k ~ N(theta_0, s^2 I),      z_i ~ uniform over the groups,      x_i ~ N(theta_{z_i}, Sigma),

where theta_0, s^2 and Sigma are shared by known and new groups: so known groups inform new ones. Labelled rows
have a known z. The means are latent with posteriors q_k = N(m_k, V_k); EM maximises the bound

    Q = sum_i log sum_k exp(E_q log N(x_i; theta_k, Sigma)) / K + sum_k E_q[log N(theta_k; theta_0, s^2 I) - log q_k]
        + log p(Sigma),

with fixed z for labelled rows; p(Sigma) is an inverse Wishart prior, which keeps Sigma away from singular ones. Each
step raises Q. Given responsibilities with sums n_k and weighted sums of rows S_k,

    V_k = (n_k Sigma^-1 + I / s^2)^-1,     m_k = V_k (Sigma^-1 S_k + theta_0 / s^2),

theta_0 = mean of m_k, and Sigma the scatter of the rows around m_k plus n_k V_k. s^2 is the variance of the means at
the start and stays: an s^2 that is learned shrinks to 0 where features are many, and the groups merge.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import TINY, Matrix
from arbora.core.estimator import RowEstimator, all_or_nothing, draw_seed, require_y
from arbora.core.monitor import Monitor
from arbora.core.validation import check_features
from arbora.expand.clusters.clusterers import fit_kmeans
from arbora.expand.clusters.estimator import describe_new_groups, name_new_groups
from arbora.expand.clusters.pool import Pool, cluster_means, normalized
from arbora.expand.groups import LabelledClusterer, fit_space, read_groups, to_space
from arbora.expand.transforms.base import warn_unless_converged

_MIN_SPREAD = 1e-8  # variance of the means, in units of the variance of the rows
_MIN_VARIANCE = 1e-12  # of a feature, in the units of the feature space: rows may be equal


class PriorMixture(NamedTuple):
    """Parameters of the model."""

    means: Matrix  # n_groups x n_dims
    covariance: Matrix
    centre: Matrix
    spread: float  # s^2
    basis: Matrix | None = None  # eigenvectors of all V_k; None before the first step
    uncertainty: Matrix | None = None  # n_groups x n_dims: eigenvalues of V_k

    def traces(self) -> Matrix:
        """tr(Sigma^-1 V_k) of the groups."""
        if self.basis is None or self.uncertainty is None:
            return np.zeros(len(self.means))
        return np.asarray(
            self.uncertainty @ np.sum(self.basis * np.linalg.solve(self.covariance, self.basis), axis=0)
        )

    def prior_terms(self) -> float:
        """E_q[log N(theta_k; theta_0, s^2 I) - log q_k], sum over the groups."""
        distance = float(np.sum((self.means - self.centre) ** 2))
        if self.uncertainty is None:
            return -(distance / self.spread + self.means.size * float(np.log(2 * np.pi * self.spread))) / 2
        ratio = self.uncertainty / self.spread
        return -(distance / self.spread + float(np.sum(ratio - 1 - np.log(ratio)))) / 2

    def scores(self, Z: Matrix) -> Matrix:
        """Return the expected log-densities (n_rows, n_groups) of the rows in the groups."""
        L = np.linalg.cholesky(self.covariance)
        rows, means = np.linalg.solve(L, Z.T).T, np.linalg.solve(L, self.means.T).T
        squares = np.sum(rows**2, axis=1)[:, None] + np.sum(means**2, axis=1) - 2 * rows @ means.T
        log_det = 2 * float(np.log(np.diag(L)).sum())
        return np.asarray(-(squares + self.traces() + log_det + Z.shape[1] * np.log(2 * np.pi)) / 2)


class _Prior(NamedTuple):
    """Inverse Wishart prior of the covariance, worth `weight` rows of covariance `scale`."""

    weight: float
    scale: Matrix


def objective(model: PriorMixture, pool: Pool, prior: _Prior, only_new: bool = False) -> tuple[float, Matrix]:
    """Q and the responsibilities; labelled rows are certain, others may be restricted to new groups."""
    scores = model.scores(pool.Z)
    held = np.flatnonzero(pool.fixed >= 0)
    n_open = scores.shape[1]
    if only_new:
        n_open -= pool.n_known
        scores[np.ix_(pool.free, np.arange(pool.n_known))] = -np.inf
    log_proba = normalized(scores)
    fit = scores[:, -1] - log_proba[:, -1] - np.log(n_open)
    fit[held] = scores[held, pool.fixed[held]]
    R = np.exp(log_proba)
    R[held] = 0.0
    R[held, pool.fixed[held]] = 1.0
    log_det = float(np.linalg.slogdet(model.covariance)[1])
    trace = float(np.trace(np.linalg.solve(model.covariance, prior.scale)))
    of_covariance = -prior.weight * (log_det + trace) / 2
    return float(pool.row_weight @ fit) + model.prior_terms() + of_covariance, R


def update(model: PriorMixture, pool: Pool, R: Matrix, prior: _Prior) -> PriorMixture:
    """One step: posteriors of the means given the shared parameters, then each of those."""
    weighted = R * pool.row_weight[:, None]
    size, sums = weighted.sum(axis=0), weighted.T @ pool.Z
    # In the eigenbasis of the covariance the systems of all groups are diagonal.
    values, V = np.linalg.eigh(model.covariance)
    precision = size[:, None] / values + 1 / model.spread
    right = (sums @ V) / values + (model.centre @ V) / model.spread
    means = (right / precision) @ V.T
    centre = means.mean(axis=0)
    uncertainty = 1 / precision
    outer = pool.Z.T @ (pool.row_weight[:, None] * pool.Z)
    cross = sums.T @ means
    scatter = outer - cross - cross.T + means.T @ (size[:, None] * means) + (V * (size @ uncertainty)) @ V.T
    total = float(pool.row_weight.sum())
    covariance = (scatter + prior.weight * prior.scale) / (total + prior.weight)
    return PriorMixture(means, (covariance + covariance.T) / 2, centre, model.spread, V, uncertainty)


def first_centres(
    pool: Pool, n_new: int, rng: np.random.Generator, n_init: int, only_new: bool
) -> tuple[Matrix, float]:
    """Centres of all groups by constrained k-means, and the variance of a feature around them."""
    if not only_new:
        start = fit_kmeans(pool, n_new, rng, n_init)
        return start.centres, start.variance
    held, free = np.flatnonzero(pool.fixed >= 0), pool.free
    known = cluster_means(pool.Z[held], pool.fixed[held], pool.row_weight[held], pool.n_known)[1]
    alone = Pool(pool.Z[free], np.full(len(free), -1), 0, pool.row_weight[free])
    clustering = fit_kmeans(alone, n_new, rng, n_init)
    distance = np.sum((pool.Z[held] - known[pool.fixed[held]]) ** 2, axis=1)
    around = float(pool.row_weight[held] @ distance) - clustering.objective
    return np.vstack([known, clustering.centres]), around / max(
        float(pool.row_weight.sum()) * known.shape[1], TINY
    )


def fit_prior_mixture(
    pool: Pool,
    n_new: int,
    rng: np.random.Generator,
    *,
    prior_weight: float,
    n_init: int,
    tol: float,
    max_iter: int,
    only_new: bool = False,
) -> tuple[PriorMixture, Matrix, Monitor]:
    """EM from constrained k-means; return the parameters, the responsibilities and the history."""
    only_new = only_new and n_new > 0
    centres, variance = first_centres(pool, n_new, rng, n_init, only_new)
    width = pool.Z.shape[1]
    level = max(variance, _MIN_VARIANCE)
    prior = _Prior(prior_weight, level * np.eye(width))
    centre = centres.mean(axis=0)
    spread = max(float(np.mean((centres - centre) ** 2)), _MIN_SPREAD * level)
    model = PriorMixture(centres, level * np.eye(width), centre, spread)
    total, monitor = float(pool.row_weight.sum()), Monitor(tol, max_iter)
    value, R = objective(model, pool, prior, only_new)
    last = False
    while not last:
        model = update(model, pool, R, prior)
        before, (value, R) = value, objective(model, pool, prior, only_new)
        last = monitor.record(value, gain=(value - before) / total)
    return model, R, monitor


class BayesianPriorMixture(RowEstimator, LabelledClusterer, BaseEstimator):
    """Gaussian groups with a shared covariance and a shared prior of their means (BP).

    Parameters
    ----------
    n_new : int
        Number of new groups.
    pool : {"mixed", "new"}
        "new": unlabelled rows belong to new groups only. Known groups still inform the shared parameters.
    prior_weight : float
        Rows that the prior of the covariance is worth.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD of wide or sparse rows; see `WithinClassTransform`.
    n_init : int
        Starts of the constrained k-means from which EM begins.
    tol : float
        Gain of the objective per row at which to stop.
    max_iter : int
    random_state : int, RandomState instance or None

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Group of each row; labelled rows keep theirs.
    classes_ : ndarray
        Known groups, then new ones.
    known_classes_ : ndarray
    new_groups_ : list of NewGroup
    parameters_ : PriorMixture
        Means, covariance, and centre and spread of the prior, in the feature space.
    space_ : FeatureSpace
    trace_ : Trace
    n_iter_, n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import BayesianPriorMixture
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat(np.arange(4), 30)
    >>> X = 9 * rng.normal(size=(4, 3))[truth] + rng.normal(size=(120, 3))
    >>> model = BayesianPriorMixture(2, random_state=0).fit(X, np.where(truth < 2, truth, -1))
    >>> [group.size for group in model.new_groups_]
    [30, 30]
    """

    _tags: ClassVar[dict[str, Any]] = {"target_tags.required": True}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_new": [Interval(Integral, 0, None, closed="left")],
        "pool": [StrOptions({"mixed", "new"})],
        "prior_weight": [Interval(Real, 0, None, closed="neither")],
        "n_dims": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_new: int = 2,
        *,
        pool: str = "mixed",
        prior_weight: float = 10.0,
        n_dims: Any = "auto",
        n_init: int = 20,
        tol: float = 1e-3,
        max_iter: int = 500,
        random_state: Any = None,
    ) -> None:
        self.n_new = n_new
        self.pool = pool
        self.prior_weight = prior_weight
        self.n_dims = n_dims
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit known and new groups together.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Groups as integers or strings. -1, None and NaN mark rows without a label.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            require_y(self, y, "it learns from groups")
            X = check_features(self, X, reset=True)
            groups = read_groups(y, X.shape[0])
            seed, weight = draw_seed(self.random_state), np.ones(X.shape[0])
            space = fit_space(X, groups, weight, n_dims=self.n_dims, seed=seed)
            pool = Pool(to_space(space, X), groups.codes, groups.n_groups, weight)
            n_new = min(self.n_new, len(pool.free))
            model, R, monitor = fit_prior_mixture(
                pool,
                n_new,
                np.random.default_rng(seed),
                prior_weight=self.prior_weight,
                n_init=self.n_init,
                tol=self.tol,
                max_iter=self.max_iter,
                only_new=self.pool == "new",
            )
            warn_unless_converged(self, monitor.converged)
            self.space_, self.parameters_ = space, model
            self.trace_, self.n_iter_ = monitor.trace, monitor.n_iter
            self.known_classes_ = groups.classes
            self.classes_ = name_new_groups(groups.classes, n_new)
            codes = R.argmax(axis=1)
            self.labels_ = self.classes_[codes]
            self.new_groups_ = describe_new_groups(codes, R.max(axis=1), self.classes_, groups.n_groups)
        return self

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities of the groups.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_groups)
            Columns in the order of `classes_`.
        """
        check_is_fitted(self)
        Z = to_space(self.space_, check_features(self, X, reset=False, squares=np.float64))
        return np.exp(normalized(self.parameters_.scores(Z)))

    def predict(self, X: Any) -> Matrix:
        """Most probable group of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        proba = self.predict_proba(X)
        return np.asarray(self.classes_[proba.argmax(axis=1)])
