r"""Dirichlet-process mixtures of Gaussians by collapsed Gibbs sampling: a posterior over partitions.

.. math:: y \sim \mathrm{CRP}(\alpha), \quad \Sigma_k \sim \mathrm{InverseWishart}(S, \nu), \quad
          \mu_k \sim N(m, \Sigma_k / r), \quad x_i \sim N(\mu_{y_i}, \Sigma_{y_i}),

with the priors of :math:`\alpha, r, \nu, S` of `normal_wishart` and `sampler`. Features are standardised; m is their
mean, and the scale S is between unit variances and their covariance (`default_scale`), fixed by default:
a cluster that is narrower needs enough rows to show it. :math:`r = 0.01` leaves the means of clusters free. Chains
start from k-means with 20 clusters: a chain that starts from one cluster often stays there, since a useful split of
many rows is rarely proposed.

References
----------
C. E. Rasmussen (2000). The infinite Gaussian mixture model. NIPS.
R. Neal (2000). Markov chain sampling methods for Dirichlet process mixture models. JCGS 9(2).
D. Dahl (2005). Sequentially-allocated merge-split sampler for conjugate and nonconjugate Dirichlet process mixture
models. Technical report.
S. Wade and Z. Ghahramani (2018). Bayesian cluster analysis: point estimation and credible balls. Bayesian Analysis.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from arbora.arrays import Array, Ints, Matrix
from arbora.core.checkpoint import open_checkpoint
from arbora.core.chunks import CHUNK_ROWS, require_memory, split
from arbora.core.estimator import (
    Explorable,
    RowEstimator,
    all_or_nothing,
    draw_generator,
    draw_seed,
    read_options,
    warn_caller,
)
from arbora.core.running import running_checkpoint
from arbora.core.validation import check_features
from arbora.discover.gaussian import partitions
from arbora.discover.gaussian.normal_wishart import FORMS, HyperPrior, n_dimensions, scale_shape
from arbora.discover.gaussian.partitions import (
    RHAT_LIMIT,
    cluster_moments,
    diagnose,
    invariant_summaries,
    row_numbers,
    worst_of,
)
from arbora.discover.gaussian.predictive import (
    Predictive,
    cluster_probabilities,
    draw_rows,
    log_density,
    make_predictive,
)
from arbora.discover.gaussian.sampler import (
    PartitionModel,
    PartitionState,
    start_state,
)
from arbora.discover.mixture.describe import (
    Features,
    below_quantile,
    check_count,
    density_quantiles,
    largest_features,
)
from arbora.engine import ThreadEngine
from arbora.infer.mcmc.chains import (
    SAMPLING_CONSTRAINTS,
    Chains,
    ChainSchedule,
    mean_trace,
    run_chains,
    start_from,
)
from arbora.kernels.gibbs.partitions import count_together, share_rows

_PREDICTIVE_DRAWS = 50  # draws that predictions average over
_LEFT_OUT_ROWS = 5000  # training rows whose left-out densities make the quantiles of `is_novel`


class PriorOptions(NamedTuple):
    """Values of the parameter `prior`."""

    alpha: float | str = "sample"
    r: float | str = 0.01
    nu: float | str | None = None
    S: Any = None


class Sampling(NamedTuple):
    """Values of the parameter `sampling`."""

    n_warmup: int = 100
    n_samples: int = 200
    thin: int = 1
    n_chains: int = 2


_POSITIVE = Interval(Real, 0, None, closed="neither")
_PRIOR_CONSTRAINTS: Mapping[str, Sequence[Any]] = MappingProxyType(
    {
        "alpha": [_POSITIVE, StrOptions({"sample"})],
        "r": [_POSITIVE, StrOptions({"sample"})],
        "nu": [_POSITIVE, StrOptions({"sample"}), None],
        "S": ["array-like", _POSITIVE, StrOptions({"sample"}), None],
        "v": [_POSITIVE],
    }
)


def make_model(
    prior: Any, covariance: str, n_components: int | None, n_moves: int, standardizer: Standardizer, X: Array
) -> tuple[PartitionModel, PartitionState]:
    """Return the model of standardised rows, and a state with the first values of the hyperparameters."""
    p, options = X.shape[1], {"alpha": prior.alpha, "r": prior.r, "nu": prior.nu, "S": prior.S}
    d = n_dimensions(covariance, p)
    sampled = {name for name, value in options.items() if isinstance(value, str)}
    first = {name: value for name, value in options.items() if value is not None and name not in sampled}
    if "nu" in first and first["nu"] <= d - 1:
        raise ValueError(f"nu={prior.nu} must be above {d - 1} for covariance={covariance!r}.")
    scale0 = default_scale(X, covariance)
    scale = check_scale(first["S"], covariance, standardizer) if "S" in first else scale0
    fixed = frozenset(options) - sampled
    model = PartitionModel(
        HyperPrior(np.zeros(p), scale0, covariance, fixed),
        n_components,
        fixed_alpha="alpha" in fixed,
        n_moves=n_moves,
    )
    alpha, r, nu = (
        float(first.get(name, default)) for name, default in (("alpha", 1.0), ("r", 0.01), ("nu", d + 2.0))
    )
    labels = np.zeros(0, np.int64)
    return model, PartitionState(labels, alpha, r, nu, scale, np.zeros((0, 0)), 0.0, 0.0, 0)


def check_memory(X: Array, sampling: Sampling) -> None:
    """Refuse a fit whose rows and draws do not fit into memory."""
    n, p = X.shape
    n_bytes = 8 * n * (2 * p + 8) + 4 * n * sampling.n_chains * sampling.n_samples
    what = f"{sampling.n_chains} chains of {sampling.n_samples} partitions of {n} rows"
    require_memory(n_bytes, what, "Increase thin.")


def _arrays_of(state: PartitionState) -> dict[str, ArrayLike]:
    """Return the arrays that are kept of a draw; labels in the smallest type that all draws of a chain share."""
    dtype = np.uint16 if len(state.labels) < 2**16 else np.uint32
    return {**state._asdict(), "labels": state.labels.astype(dtype)}


def states_of(draws: dict[str, Matrix], n_states: int) -> list[PartitionState]:
    """Return draws of all chains, evenly spaced, as states."""
    flat = {
        name: values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])
        for name, values in draws.items()
    }
    states = [
        PartitionState(**{name: values[s] for name, values in flat.items()})
        for s in partitions.spread(len(flat["labels"]), n_states)
    ]
    return [state._replace(labels=state.labels.astype(np.int64)) for state in states]


# --- Rows and starts of the chains: standardised features, checked parameters, k-means labels ----------------


_KMEANS_ROWS = 20_000  # rows that the centres of a start are found with
_POWER = 0.25  # of the eigenvalues of the covariance in the default scale; chosen among 0, 1/4, 1/2 and 1
_MAX_VALUE = 1e150  # largest entry: squares of larger ones overflow


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
    if largest > _MAX_VALUE:
        raise ValueError(f"X contains {largest:.3g}, whose square overflows: scale the features.")
    return dense


def fit_standardizer(X: Array, by_feature: bool) -> Standardizer:
    """Return means and standard deviations; a constant feature keeps its unit.

    With `by_feature` False all features are divided by the root of their mean variance.
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
    """
    n, p = X.shape
    if covariance == "full":
        m = max(1.0, p * p / n)
        values, vectors = np.linalg.eigh((X.T @ X + m * np.eye(p)) / (n + m))
        scale = (vectors * np.minimum(values, 1.0) ** _POWER) @ vectors.T
        return np.asarray(0.5 * (scale + scale.T))
    variances = np.minimum((np.einsum("ij,ij->j", X, X) + 1) / (n + 1), 1.0)
    return variances[None] if covariance == "diag" else np.array([[variances.mean()]])


def check_scale(S: Any, covariance: str, standardizer: Standardizer) -> Array:
    """Return the scale S of the prior in the units of the model."""
    p = len(standardizer.mean)
    shape = scale_shape(covariance, p)
    scale = np.asarray(S, np.float64)
    expected = {"full": (p, p), "diag": (p,), "spherical": ()}[covariance]
    if scale.shape != expected:
        raise ValueError(
            f"S has the shape {scale.shape}, but covariance={covariance!r} needs {expected}. A number c for all "
            "features is c * np.eye(n_features) for 'full', np.full(n_features, c) for 'diag'."
        )
    unit = standardizer.scale
    if covariance == "full":
        scaled = scale / np.outer(unit, unit)
        valid = np.allclose(scale, scale.T) and np.linalg.eigvalsh(scaled).min() > 0
    elif covariance == "diag":
        scaled = scale / unit**2
        valid = bool(scaled.min() > 0)
    else:
        if np.ptp(unit) > 0:
            raise ValueError("a given S of covariance='spherical' needs standardize=False: it has one unit.")
        scaled = scale / unit[0] ** 2
        valid = bool(scaled > 0)
    if not valid or not np.isfinite(scaled).all():
        raise ValueError("S must be symmetric, positive definite and finite.")
    return np.ascontiguousarray(scaled.reshape(shape))


def start_labels(X: Array, init: Any, n_components: int | None, rng: np.random.Generator) -> Ints:
    """Return the labels that a chain starts from: labels of the rows, or k-means on at most 20,000 rows."""
    if not isinstance(init, Integral):
        labels = np.asarray(init)
        if labels.shape != (len(X),):
            raise ValueError(
                f"init has shape {labels.shape}, but X has {len(X)} rows: give a label for each row."
            )
        names, codes = np.unique(labels, return_inverse=True)
        if n_components is not None and len(names) > n_components:
            raise ValueError(f"init has more than n_components={n_components} labels.")
        return codes.astype(np.int64)
    n_clusters = n_components or int(init)
    rows = X if len(X) <= _KMEANS_ROWS else X[np.sort(rng.choice(len(X), _KMEANS_ROWS, replace=False))]
    model = KMeans(min(n_clusters, len(rows)), n_init=1, max_iter=50, random_state=int(rng.integers(2**31)))
    # With several threads k-means adds in random order, and its last digits differ from run to run.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        labels = model.fit(rows).predict(X)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


# --- The estimator -------------------------------------------------------------------------------------------


class DirichletProcessGaussianMixture(RowEstimator, Explorable, DensityMixin, BaseEstimator):
    """Mixture of Gaussians whose number of clusters is found, with a posterior over partitions.

    Parameters
    ----------
    n_components : int, optional
        Fixes the number of clusters (a symmetric Dirichlet prior with parameter alpha / n_components replaces the
        process; some clusters may stay empty). By default the number is unknown and has a posterior.
    covariance : {"full", "diag", "spherical"}
        Form of the covariances of the clusters.
    prior : dict, optional
        Hyperparameters. "sample" instead of a number: it has a posterior.

        - alpha : float or "sample" (default). Concentration of the process: larger values give more clusters.
        - r : float or "sample", default 0.01. Precision of the means of clusters around the mean of all rows, in
          units of the precision of a cluster.
        - nu : float or "sample". Degrees of freedom of the prior of covariances; above n_features - 1 for "full".
          By default n_features + 2 for "full", else 3.
        - S : array-like, float or "sample". Scale of the prior of covariances; by default a matrix between the
          variances of the features and the covariance of all rows ("full"), the variances of the features ("diag")
          or the mean of these. An array has the form of the covariances: (n_features, n_features), (n_features,) or
          a number (with ``standardize=False``). A scale that is sampled fits densities better, and finds more and
          smaller clusters: a cluster that is not exactly Gaussian is covered by several.
    standardize : bool
        True divides each feature by its standard deviation, False all features by the same number. Units of
        features matter for "spherical", and for the k-means start.
    init : int or array-like of shape (n_samples,), default=20
        Labels that the chains start from. An int is the number of clusters of a k-means start, unless `n_components`
        is given.
    merge_split : int
        Merge and split proposals in each sweep.
    point_estimate : {"vi", "binder", "map"}
        How `labels_` summarises the draws: the partition with the least mean variation of information, or Binder
        loss, from them; or the draw of highest density.
    sampling : dict, optional
        n_warmup (100): sweeps at the start of each chain that are discarded; n_samples (200): draws that each chain
        keeps; thin (1): sweeps for each draw; n_chains (2): chains, which run in parallel.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Point estimate of the partition; clusters are numbered by decreasing size.
    n_clusters_, n_large_clusters_ : int
        Number of clusters of `labels_`, and of those with at least 1% of the rows.
    n_clusters_posterior_, n_large_clusters_posterior_ : dict of "value" and "probability"
        Distribution of these numbers over the draws.
    partitions_ : ndarray of shape (n_chains, n_samples, n_rows)
        Labels of all draws.
    weights_, counts_, means_, covariances_ : ndarray
        Shares, sizes, and posterior means of the means and covariances of the clusters of `labels_`.
    draws_ : dict of ndarray of shape (n_chains, n_samples)
        Quantities that do not depend on the numbering of clusters: log joint density, number of clusters, entropy of
        the partition, share of the largest cluster, hyperparameters.
    rhat_, ess_ : dict of float
        R-hat and effective sample size of each of `draws_`.
    prior_ : dict of float
        Posterior means of the hyperparameters.
    prior_scale_ : ndarray
        Posterior mean of S, in units of `feature_scales_`.
    predictive_ : dict of ndarray
        Components of the predictive density; see `arbora.discover.gaussian.predictive`.
    density_quantiles_ : ndarray
        Quantiles of the log-densities of training rows, each without that row; see `is_novel`.
    feature_means_, feature_scales_ : ndarray of shape (n_features,)
        Standardisation of the features.
    trace_ : Trace
        Log joint density, number of clusters and share of accepted merge-split moves, mean over the chains.
    n_features_in_ : int

    Notes
    -----
    With ``arbora.running(checkpoint=folder)`` the chains are saved from time to time. An interrupted fit resumes
    there with the same draws; the folder is cleared at the end. Without a `random_state` the seed is then 0.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.discover import DirichletProcessGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(m, 1.0, (60, 2)) for m in (-6.0, 0.0, 6.0)])
    >>> model = DirichletProcessGaussianMixture(sampling={"n_warmup": 50, "n_samples": 50}, random_state=0)
    >>> model = model.fit(X)
    >>> model.n_clusters_
    3
    >>> model.predict([[-6.0, -6.0], [6.0, 6.0]]).tolist() == [model.labels_[0], model.labels_[-1]]
    True
    >>> bool(model.similarity_matrix(rows=[0], columns=[1, 179])[0, 0] > 0.9)
    True
    >>> model.is_novel([[0.0, 0.0], [30.0, -30.0]])
    array([False,  True])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "covariance": [StrOptions(set(FORMS))],
        "prior": [dict, None],
        "standardize": ["boolean"],
        "init": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "merge_split": [Interval(Integral, 0, None, closed="left")],
        "point_estimate": [StrOptions({"vi", "binder", "map"})],
        "sampling": [dict, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _prior_options: ClassVar[Any] = PriorOptions

    def __init__(
        self,
        n_components: int | None = None,
        *,
        covariance: str = "full",
        prior: dict[str, Any] | None = None,
        standardize: bool = True,
        init: Any = 20,
        merge_split: int = 10,
        point_estimate: str = "vi",
        sampling: dict[str, int] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.covariance = covariance
        self.prior = prior
        self.standardize = standardize
        self.init = init
        self.merge_split = merge_split
        self.point_estimate = point_estimate
        self.sampling = sampling
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sample the posterior over partitions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Sparse rows are made dense.
        y : ignored

        Returns
        -------
        self
        """
        name = type(self).__name__
        with all_or_nothing(self):
            self._validate_params()
            prior = read_options("prior", self.prior, self._prior_options, _PRIOR_CONSTRAINTS)
            sampling = read_options("sampling", self.sampling, Sampling, SAMPLING_CONSTRAINTS)
            rows = dense_rows(check_features(self, X, reset=True), name)
            check_shape(rows, self.n_components, self.covariance, name)
            check_memory(rows, sampling)
            seed = draw_seed(self.random_state, resumable=running_checkpoint() is not None)
            rng = np.random.default_rng([seed, 0])
            standardizer = fit_standardizer(rows, self.standardize)
            Z = standardizer.rows(rows)
            model, start = self._model(prior, sampling, standardizer, Z, seed)
            labels = [start_labels(Z, self.init, self.n_components, rng) for _ in range(sampling.n_chains)]
            starts = [start_state(model, start, Z, chain_labels, rng) for chain_labels in labels]
            checkpoint = open_checkpoint(self, Z, seed=seed, prior=prior, sampling=sampling)
            chains = run_chains(
                model, Z, ChainSchedule(*sampling), seed, start=start_from(starts), keep=_arrays_of,
                n_jobs=self.n_jobs, verbose=self.verbose, checkpoint=checkpoint,
            )  # fmt: skip
            self._summarise(model, standardizer, Z, chains, rng)
        self._warn_unless_mixed()
        return self

    def _model(
        self, prior: Any, sampling: Sampling, standardizer: Standardizer, X: Array, seed: int
    ) -> tuple[PartitionModel, PartitionState]:
        """Return the model of standardised rows, and a state with the first values of the parameters."""
        return make_model(prior, self.covariance, self.n_components, self.merge_split, standardizer, X)

    def _summarise(
        self,
        model: PartitionModel,
        standardizer: Standardizer,
        X: Array,
        chains: Chains,
        rng: np.random.Generator,
    ) -> None:
        """Compute and assign everything that is learned."""
        n, flat = len(X), chains.draws["labels"].reshape(-1, len(X))
        labels = partitions.point_estimate(flat, self.point_estimate, chains.log_joint.ravel(), rng)
        numbers, large = partitions.cluster_counts(flat)
        states = states_of(chains.draws, _PREDICTIVE_DRAWS)
        sample = np.sort(rng.permutation(n)[:_LEFT_OUT_ROWS])
        predictive, left_out = make_predictive(model, states, X, labels, sample)
        left_out -= np.log(standardizer.scale).sum()
        moments = cluster_moments(model, states, X, labels)
        means = {name: float(np.mean(chains.draws[name])) for name in ("alpha", "r", "nu", "c", "width")}

        self.feature_means_, self.feature_scales_ = standardizer
        self.trace_ = mean_trace(chains.traces)
        self.partitions_ = chains.draws["labels"]
        self.labels_ = labels
        self.n_clusters_ = int(labels.max()) + 1
        self.n_large_clusters_ = int(partitions.cluster_counts(labels[None])[1][0])
        self.n_clusters_posterior_ = partitions.distribution(numbers)
        self.n_large_clusters_posterior_ = partitions.distribution(large)
        self.draws_ = invariant_summaries(chains.draws, chains.log_joint, model)
        self.rhat_, self.ess_ = diagnose(self.draws_)
        self.predictive_ = predictive._asdict()
        self.density_quantiles_ = density_quantiles(left_out, np.ones(len(left_out)))
        self.counts_ = np.bincount(labels)
        self.weights_ = self.counts_ / n
        self.means_ = standardizer.mean + moments.means * standardizer.scale
        self.covariances_ = moments.in_units_of(standardizer.scale)
        self.prior_ = {"margin" if name == "width" else name: mean for name, mean in means.items()}
        self.prior_scale_ = chains.draws["scale"].mean(axis=(0, 1))

    def _warn_unless_mixed(self) -> None:
        name = worst_of(self.rhat_)
        if name is not None and self.rhat_[name] > RHAT_LIMIT:
            warn_caller(
                f"the chains do not agree: R-hat of {name} is {self.rhat_[name]:.3g} (limit: {RHAT_LIMIT}). The "
                "partitions are still useful, but their shares may be wrong. Increase n_warmup and n_samples in "
                "sampling.",
                ConvergenceWarning,
            )

    def fit_predict(self, X: Any, y: Any = None) -> Ints:
        """Sample the posterior and return the point estimate of the partition (`labels_`).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.fit(X).labels_

    # --- the posterior over partitions ----------------------------------------------------------------------------

    def _draws(self) -> Matrix:
        check_is_fitted(self)
        draws: Matrix = np.ascontiguousarray(self.partitions_.reshape(-1, self.partitions_.shape[-1]))
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
        draws = self._draws()
        row_ids, column_ids = (row_numbers(which, draws.shape[1]) for which in (rows, columns))
        require_memory(
            8 * len(row_ids) * len(column_ids),
            f"The similarity of {len(row_ids)} rows with {len(column_ids)}",
            "Ask for some rows and columns, or iterate over similarity_blocks().",
        )
        similarity = np.empty((len(row_ids), len(column_ids)))
        count_together(draws, row_ids, column_ids, similarity)
        return similarity

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
        for part in split(self._draws().shape[1], size=size, even=False):
            yield part, self.similarity_matrix(np.arange(part.start, part.stop))

    def cluster_similarity(self) -> Array:
        """Return the mean similarity of the rows of each pair of clusters of `labels_`.

        Returns
        -------
        ndarray of shape (n_clusters_, n_clusters_)
            On the diagonal, the mean similarity within a cluster.
        """
        draws, K = self._draws(), self.n_clusters_
        tables = share_rows(draws, self.labels_, int(draws.max()) + 1, K)
        together = np.einsum("skl,sml->km", tables, tables, dtype=np.float64) / len(draws)
        return np.asarray(together / np.outer(self.counts_, self.counts_))

    def merge_tree(self) -> Array:
        """Return the tree of merges of the clusters of `labels_`, by their mean similarity.

        Returns
        -------
        ndarray of shape (n_clusters_ - 1, 4)
            A linkage matrix as of `scipy.cluster.hierarchy`. The height of a merge is 1 minus the mean similarity of
            the rows of its two sides: near 0 the posterior does not tell the clusters apart, at 1 they were together
            in no draw.
        """
        check_is_fitted(self)
        if self.n_clusters_ < 2:
            return np.empty((0, 4))
        distances = 1.0 - self.cluster_similarity()
        np.fill_diagonal(distances, 0.0)
        condensed = squareform(np.clip(distances, 0.0, 1.0), checks=False)
        return np.asarray(linkage(condensed, method="average"))

    # --- predictions ----------------------------------------------------------------------------------------------

    def _checked(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = dense_rows(check_features(self, X, reset=False, squares=np.float64), type(self).__name__)
        return Standardizer(self.feature_means_, self.feature_scales_).rows(rows)

    def _predictive(self) -> Predictive:
        return Predictive(**{name: np.asarray(value) for name, value in self.predictive_.items()})

    def _map(self, function: Callable[[Predictive, Array], Array], X: Any) -> Array:
        """Apply a function of the predictive density and standardised rows to chunks of rows."""
        rows, predictive = self._checked(X), self._predictive()
        with ThreadEngine(self.n_jobs) as engine:
            parts = split(len(rows), size=CHUNK_ROWS)
            return np.concatenate(engine.map(lambda part: function(predictive, rows[part]), parts))

    def _margin_rows(self, X: Array) -> Array | None:
        """Return the rows that the projections act on; None without margins."""
        return None

    def predict(self, X: Any) -> Ints:
        """Return the most probable cluster of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbers of the clusters of `labels_`.
        """
        return np.asarray(self.predict_proba(X).argmax(axis=1))

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
            lambda predictive, part: cluster_probabilities(predictive, part, self._margin_rows(part)), X
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
        return np.asarray(self._map(log_density, X) - np.log(self.feature_scales_).sum())

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
        rng, predictive = draw_generator(self.random_state), self._predictive()
        weights = np.exp(predictive.log_weights)
        chosen = rng.choice(len(weights), size=n_samples, p=weights / weights.sum())
        rows = draw_rows(predictive, chosen, self.covariance, rng)
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
        clusters = [np.flatnonzero(labels == k) for k in range(self.n_clusters_)]
        return [members[np.argsort(distances[members], kind="stable")[:n]] for members in clusters]
