r"""Mixtures of multinomial distributions by EM: clusters of counts.

.. math:: p(x) = \frac{\Gamma(\sum_j x_j + 1)}{\prod_j \Gamma(x_j + 1)} \sum_k \pi_k \prod_j \theta_{kj}^{x_j},
          \qquad \theta_k \sim \mathrm{Dirichlet}(1 + a),

the density of a row given its length. The M-step is :math:`\theta_{kj} = (s_{kj} + a) / \sum_j (s_{kj} + a)` with
:math:`s_k = \sum_i r_{ik} x_i`, the mode of the posterior. Scores are relative to the mean of :math:`\log
\theta_{kj}` over the components. This changes no responsibility and keeps scores small in single precision.

References
----------
K. Nigam, A. McCallum, S. Thrun and T. Mitchell (2000). Text classification from labeled and unlabeled documents using
EM. Machine Learning 39.
"""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp, softmax
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.estimator import draw_generator
from arbora.discover.mixture.base import Mixture, Start
from arbora.discover.mixture.rows import count_rows
from arbora.discover.mixture.starts import label_sums, starting_sums
from arbora.infer.mixture.loop import MixtureModel
from arbora.infer.mixture.statistics import (
    LinearScores,
    Stats,
    WeightedRows,
    left_out_parts,
    left_out_shares,
    linear_log_joint,
    log_weights,
)

_MIN_PART = 1e-6  # smallest part of a row in a component that is removed when the row is left out


class MultinomialParams(NamedTuple):
    """Log-probabilities of the features (n_features, n_components), and weights of the components."""

    log_theta: Array
    weights: Array


def relative_scores(params: MultinomialParams) -> LinearScores:
    """Return scores x.w_k + log(pi_k), where w_k is log(theta_k) minus its mean over the components."""
    centred = params.log_theta - params.log_theta.mean(axis=1, keepdims=True)
    return LinearScores(centred, log_weights(params.weights))


def multinomial_update(smoothing: float, params: Any, stats: Stats) -> MultinomialParams:
    """Return the M-step: theta_kj = (s_kj + a) / sum_j (s_kj + a), and pi_k = n_k / n."""
    sums = stats.sums + smoothing
    log_theta = np.log(sums, dtype=np.float64) - np.log(sums.sum(axis=0, dtype=np.float64))
    return MultinomialParams(log_theta, stats.counts / stats.counts.sum())


def multinomial_extra(smoothing: float, totals: Array, constant: float, params: MultinomialParams) -> float:
    """Return the terms of the bound without responsibilities: those that all components share, and the log-prior.

    `totals` is the weighted sum of all rows, `constant` that of the logarithms of their coefficients.
    """
    n_features, n_components = params.log_theta.shape
    log_volume = gammaln(n_features * (1 + smoothing)) - n_features * gammaln(1 + smoothing)
    log_prior = n_components * log_volume + smoothing * params.log_theta.sum()
    return float(totals @ params.log_theta.mean(axis=1) + constant + log_prior)


def log_coefficients(X: sp.csr_array) -> Array:
    """Return the log-coefficients of the rows, log Gamma(sum_j x_j + 1) - sum_j log Gamma(x_j + 1)."""
    owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    data = X.data.astype(np.float64)
    length = np.bincount(owner, weights=data, minlength=X.shape[0])
    return gammaln(length + 1) - np.bincount(owner, weights=gammaln(data + 1), minlength=X.shape[0])


def left_out_joint(
    params: MultinomialParams,
    joint: Array,
    X: sp.csr_array,
    weight: Matrix,
    stats: Stats,
    smoothing: float,
) -> Array:
    """Return the log-joint of training rows and components, where each component lacks the part of the row.

    `joint` is the log-joint given the parameters; it is overwritten. `stats` are the statistics of all training rows.
    """
    parts = left_out_parts(softmax(joint, axis=1), weight)
    total, extra = stats.sums.sum(axis=0), smoothing * X.shape[1]
    log_share = left_out_shares(stats.counts, parts)
    joint += log_share - log_weights(params.weights)
    for k in range(joint.shape[1]):
        ids = np.flatnonzero(parts[:, k] > _MIN_PART)
        rows, part = X[ids], parts[ids, k]
        length = np.asarray(rows.sum(axis=1)).ravel()
        removed = np.repeat(part, np.diff(rows.indptr)) * rows.data
        rest = np.maximum(stats.sums[rows.indices, k] - removed, 0.0) + smoothing
        rows.data = rows.data * np.log(rest)
        remaining = np.maximum(total[k] - part * length, 0.0) + extra
        log_density = np.asarray(rows.sum(axis=1)).ravel() - length * np.log(remaining)
        joint[ids, k] = log_density + log_share[ids, k]
    return joint


class MultinomialMixture(Mixture):
    """Mixture of multinomial distributions with a Dirichlet prior, fitted by EM.

    Parameters
    ----------
    n_components : int, "auto", "halves" or "density"
        Number of clusters, or how it is selected; see `VMFMixture`.
    smoothing : float
        Count that is added to every feature of every component: the prior is Dirichlet(1 + smoothing). With a smaller
        value, fits of short texts from random starts stay near their start. Counts in other units need another value.
    init : {"k-means++", "random"}, labels or means
        The start: rows far from each other (by cosine), each mixed with the mean of all rows; random labels; an
        integer label for each row (-1: no label); or the probabilities of the features in each component.
    n_init, calibration, keep_empty, tol, max_iter, batch_size, n_jobs, random_state, verbose : see `VMFMixture`

    Attributes
    ----------
    means_ : ndarray of shape (n_components, n_features)
        Probabilities of the features.
    weights_ : ndarray of shape (n_components,)
    mean_length_ : float
        Mean sum of the training rows.
    lower_bounds_ : ndarray
        Log-likelihood plus log-prior in each iteration.
    trace_ : Trace
    density_quantiles_, selection_, n_components_ : see `VMFMixture`
    calibration_temperature_, n_zero_rows_, n_iter_, converged_ : see `VMFMixture`
    n_features_in_ : int

    Notes
    -----
    Densities are densities of a row given its length. Values need not be integers. A row of zeros is an empty
    document: it takes no part in the fit, its density is 1, its components are as probable as their weights, and its
    label is -1.

    Examples
    --------
    >>> from arbora.discover import MultinomialMixture
    >>> X = [[5, 1, 0, 0], [3, 2, 0, 0], [0, 0, 4, 1], [0, 1, 6, 2]]
    >>> model = MultinomialMixture(2, random_state=0).fit(X)
    >>> labels = model.predict(X)
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """

    _unit_rows: ClassVar[bool] = False
    _tags: ClassVar[dict[str, Any]] = {"input_tags.positive_only": True}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Mixture._parameter_constraints,
        "smoothing": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_components: int | str = 8,
        *,
        smoothing: float = 1.0,
        init: Any = "k-means++",
        n_init: int = 1,
        calibration: str | None = "auto",
        keep_empty: bool = False,
        tol: float = 1e-4,
        max_iter: int = 200,
        batch_size: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.smoothing = smoothing
        self.init = init
        self.n_init = n_init
        self.calibration = calibration
        self.keep_empty = keep_empty
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_X(self, X: sp.csr_array) -> sp.csr_array:
        return count_rows(X).astype(np.float64, copy=False)

    def _model(self, rows: WeightedRows) -> MixtureModel:
        weight = rows.weight.astype(np.float64)
        totals = np.asarray(rows.X.T @ weight, dtype=np.float64)
        constant = float(weight @ log_coefficients(rows.X))
        extra = partial(multinomial_extra, self.smoothing, totals, constant)
        return MixtureModel(relative_scores, partial(multinomial_update, self.smoothing), extra)

    def _log_joint(self, params: MultinomialParams, X: sp.csr_array) -> Array:
        return linear_log_joint(LinearScores(params.log_theta, log_weights(params.weights)), X)

    def _log_density(self, params: MultinomialParams, X: sp.csr_array) -> Array:
        density: Array = logsumexp(self._log_joint(params, X), axis=1)
        return density + log_coefficients(X)

    def _start(self, start: Start) -> MultinomialParams:
        rows, init, n_components, _, rng, engine = start
        sums = starting_sums(rows, init, n_components, rng, engine, spherical=False)
        if (isinstance(init, str) and init == "k-means++") or (not isinstance(init, str) and init.ndim == 2):
            total = label_sums(rows, np.zeros(rows.X.shape[0], np.int64), 1)
            size = np.maximum(sums.sum(axis=1, keepdims=True), TINY)
            # A single row has few features: half of the start comes from the mean of all rows.
            background = total / max(total.sum(), TINY)
            sums = rows.total / n_components * (sums / size + background)
        return multinomial_update(self.smoothing, None, Stats(np.ones(n_components), sums.T))

    def _set(self, params: MultinomialParams) -> None:
        self.means_, self.weights_ = np.exp(params.log_theta.T), params.weights

    def _params(self) -> MultinomialParams:
        return MultinomialParams(np.log(np.ascontiguousarray(self.means_.T)), self.weights_)

    def _complete(self, X: sp.csr_array, weight: Matrix, seed: int, engine: Engine) -> None:
        self.mean_length_ = float(weight @ np.asarray(X.sum(axis=1)).ravel() / weight.sum())

    def _zero_density(self) -> float:
        return 0.0  # an empty document is the only row of its length

    def _n_parameters(self) -> int:
        n_components, n_features = self.means_.shape
        return int(n_components * (n_features - 1) + n_components - 1)

    def _left_out_log_density(
        self, params: MultinomialParams, X: sp.csr_array, weight: Matrix, stats: Stats
    ) -> Array:
        joint = left_out_joint(params, self._log_joint(params, X), X, weight, stats, self.smoothing)
        density: Array = logsumexp(joint, axis=1)
        return density + log_coefficients(X)

    def sample(self, n_samples: int = 1, length: int | None = None) -> tuple[sp.csr_array, Ints]:
        """Draw rows from the mixture.

        Parameters
        ----------
        n_samples : int
        length : int, optional
            Sum of each row; by default the mean length of the training rows.

        Returns
        -------
        X : CSR array of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,)
            The component of each row, in ascending order.
        """
        check_is_fitted(self)
        rng = draw_generator(self.random_state)
        count = rng.multinomial(n_samples, self.weights_ / self.weights_.sum())
        size = max(1, round(self.mean_length_)) if length is None else length
        theta = self.means_ / self.means_.sum(axis=1, keepdims=True)
        drawn = [
            sp.csr_array(rng.multinomial(size, p, size=n)) for p, n in zip(theta, count, strict=True) if n
        ]
        labels = np.repeat(np.arange(len(count)), count)
        if not drawn:
            return sp.csr_array((0, theta.shape[1])), labels
        return sp.csr_array(sp.vstack(drawn, format="csr")), labels
