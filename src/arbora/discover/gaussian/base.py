"""`GaussianPartitionMixture`, the base class of the mixtures of Gaussians that are sampled."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import ThreadpoolController

from arbora.arrays import Array, Ints, Matrix
from arbora.core.checkpoint import Checkpoint, fingerprint
from arbora.core.chunks import require_memory, split
from arbora.core.estimator import Explorable, all_or_nothing, warn_caller
from arbora.core.monitor import Progress
from arbora.core.validation import check_features
from arbora.discover.gaussian import partitions
from arbora.discover.gaussian.normal_wishart import FORMS, HyperPrior, n_dimensions
from arbora.discover.gaussian.partitions import (
    RHAT_LIMIT,
    cluster_moments,
    diagnose,
    invariant_summaries,
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
    Standardizer,
    canonical,
    check_scale,
    check_shape,
    default_scale,
    dense_rows,
    fit_standardizer,
    start_labels,
)
from arbora.discover.mixture.prediction import (
    Features,
    below_quantile,
    check_count,
    density_quantiles,
    draw_seed,
    largest_features,
)
from arbora.engine import ThreadEngine
from arbora.infer.mcmc.chains import Chains, ChainSchedule, mean_trace, sample_chains

# --- What a fitted mixture says: the posterior over partitions, predictions, descriptions of clusters -------


_ROWS_AT_ONCE = 1024


class PartitionEstimates:
    """Mixin: methods of a fitted `GaussianPartitionMixture`."""

    covariance: str
    n_jobs: int | None
    random_state: Any
    labels_: Ints
    n_clusters_: int
    n_features_in_: int
    partitions_: Matrix
    predictive_: dict[str, Matrix]
    density_quantiles_: Array
    means_: Array
    feature_means_: Array
    feature_scales_: Array
    margin_basis_: Array

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
        return partitions.similarity(self._draws(), rows, columns)

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
        yield from partitions.similarity_blocks(self._draws(), size)

    def cluster_similarity(self) -> Array:
        """Return the mean similarity of the rows of each pair of clusters of `labels_`.

        Returns
        -------
        ndarray of shape (n_clusters_, n_clusters_)
            On the diagonal, the mean similarity within a cluster.
        """
        return partitions.cluster_similarity(self._draws(), self.labels_)

    def merge_tree(self) -> Array:
        """Return the tree of merges of the clusters of `labels_`, by their mean similarity.

        Returns
        -------
        ndarray of shape (n_clusters_ - 1, 4)
            A linkage matrix as of `scipy.cluster.hierarchy`. The height of a merge is 1 minus the mean similarity.
        """
        return partitions.merge_tree(self._draws(), self.labels_)

    # --- predictions ----------------------------------------------------------------------------------------------

    def _checked(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = dense_rows(check_features(self, X, reset=False, squares=np.float64), type(self).__name__)
        return Standardizer(self.feature_means_, self.feature_scales_).rows(rows)

    def _map(self, function: Any, X: Array) -> Matrix:
        predictive = Predictive(**{name: np.asarray(value) for name, value in self.predictive_.items()})
        with ThreadEngine(self.n_jobs) as engine:
            parts = split(len(X), size=_ROWS_AT_ONCE)
            return np.concatenate(engine.map(lambda part: function(predictive, X[part]), parts))

    def _margin_rows(self, X: Array) -> Array | None:
        """Return the rows that the projections act on; None if margins do not matter."""
        if np.shape(self.predictive_["projections"])[1] == 0:
            return None
        return X @ self.margin_basis_ if hasattr(self, "margin_basis_") else X

    def predict(self, X: Any) -> Matrix:
        """Return the most probable cluster of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbers of the clusters of `labels_`.
        """
        found: Matrix = self.predict_proba(X).argmax(axis=1)
        return found

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
            lambda predictive, part: cluster_probabilities(predictive, part, self._margin_rows(part)),
            self._checked(X),
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
        found: Array = self._map(log_density, self._checked(X)) - np.log(self.feature_scales_).sum()
        return found

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
        rng = np.random.default_rng(draw_seed(self.random_state))
        predictive = Predictive(**{name: np.asarray(value) for name, value in self.predictive_.items()})
        weights = np.exp(predictive.log_weights)
        chosen = rng.choice(len(weights), size=n_samples, p=weights / weights.sum())
        p = self.n_features_in_
        hp = HyperPrior(np.zeros(p), np.ones((1, 1)), self.covariance)
        rows = draw_rows(predictive, chosen, hp, rng)
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
        found = []
        for k in range(self.n_clusters_):
            members = np.flatnonzero(labels == k)
            found.append(members[np.argsort(distances[members], kind="stable")[:n]])
        return found


# --- `GaussianPartitionMixture`, the base class of the mixtures of Gaussians that are sampled ---------------


_NOT_OF_THE_MODEL = "n_jobs", "verbose", "checkpoint", "random_state"
_PREDICTIVE_DRAWS = 50  # draws that predictions average over
_LEFT_OUT_ROWS = 5000  # training rows whose left-out densities make the quantiles of `is_novel`


class GaussianPartitionMixture(PartitionEstimates, Explorable, DensityMixin, BaseEstimator):
    """Base class: chains over partitions and their summaries."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "covariance": [StrOptions(set(FORMS))],
        "alpha": [Interval(Real, 0, None, closed="neither"), StrOptions({"sample"})],
        "r": [Interval(Real, 0, None, closed="neither"), StrOptions({"sample"})],
        "nu": [Interval(Real, 0, None, closed="neither"), StrOptions({"sample"}), None],
        "S": ["array-like", Interval(Real, 0, None, closed="neither"), StrOptions({"sample"}), None],
        "standardize": ["boolean"],
        "init": [StrOptions({"k-means"}), "array-like"],
        "initial_clusters": [Interval(Integral, 1, None, closed="left")],
        "merge_split": [Interval(Integral, 0, None, closed="left")],
        "point_estimate": [StrOptions({"vi", "binder", "map"})],
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "thin": [Interval(Integral, 1, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "checkpoint": [str, os.PathLike, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        covariance: str = "full",
        alpha: float | str = "sample",
        r: float | str = 0.01,
        nu: float | str | None = None,
        S: Any = None,
        standardize: bool = True,
        init: Any = "k-means",
        initial_clusters: int = 20,
        merge_split: int = 10,
        point_estimate: str = "vi",
        n_warmup: int = 100,
        n_samples: int = 200,
        thin: int = 1,
        n_chains: int = 2,
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.covariance = covariance
        self.alpha = alpha
        self.r = r
        self.nu = nu
        self.S = S
        self.standardize = standardize
        self.init = init
        self.initial_clusters = initial_clusters
        self.merge_split = merge_split
        self.point_estimate = point_estimate
        self.n_warmup = n_warmup
        self.n_samples = n_samples
        self.thin = thin
        self.n_chains = n_chains
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # --- the model of a subclass ----------------------------------------------------------------------------------

    @abstractmethod
    def _extend(
        self, model: PartitionModel, start: PartitionState, X: Array, seed: int
    ) -> tuple[PartitionModel, PartitionState]:
        """Add what a subclass has to the model and to the start of the chains."""

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
        with all_or_nothing(self):
            for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
                delattr(self, name)
            self._validate_params()
            rows = dense_rows(check_features(self, X, reset=True), type(self).__name__)
            check_shape(rows, self.n_components, self.covariance, type(self).__name__)
            self._require_memory(rows.shape)
            resumable = self.checkpoint is not None and self.random_state is None
            seed = 0 if resumable else int(check_random_state(self.random_state).randint(2**31 - 1))
            self._sample(rows, seed)
        self._warn_unless_mixed()
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Matrix:
        """Sample the posterior and return the point estimate of the partition (`labels_`).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        labels: Matrix = self.fit(X).labels_
        return labels

    def _require_memory(self, shape: tuple[int, int]) -> None:
        n, p = shape
        n_bytes = 8 * n * (2 * p + 8) + 4 * n * self.n_chains * self.n_samples
        require_memory(
            n_bytes, f"{self.n_chains} chains of {self.n_samples} partitions of {n} rows", "Increase thin."
        )

    def _sample(self, X: Array, seed: int) -> None:
        """Run the chains and store their summaries."""
        standardizer = fit_standardizer(X, self.standardize)
        self.feature_means_, self.feature_scales_ = standardizer
        Z = standardizer.rows(X)
        rng = np.random.default_rng([seed, 0])
        model, start = self._extend(*self._model(standardizer, Z), Z, seed)
        n_clusters = self.n_components or self.initial_clusters
        starts = [start_labels(Z, self.init, n_clusters, rng) for _ in range(self.n_chains)]
        if self.n_components is not None and max(labels.max() for labels in starts) >= self.n_components:
            raise ValueError(f"init has more than n_components={self.n_components} labels.")
        states = [self._start(model, start, Z, labels, rng) for labels in starts]
        chains = self._run(model, Z, states, seed)
        self._summarise(model, Z, chains, rng)

    def _model(self, standardizer: Standardizer, X: Array) -> tuple[PartitionModel, PartitionState]:
        """Return the model, and a state with the first values of the hyperparameters."""
        p, given = len(standardizer.mean), {"alpha": self.alpha, "r": self.r, "nu": self.nu, "S": self.S}
        d = n_dimensions(self.covariance, p)
        first = {name: value for name, value in given.items() if value is not None and not _is_sampled(value)}
        if "nu" in first and first["nu"] <= d - 1:
            raise ValueError(f"nu={self.nu} must be above {d - 1} for covariance={self.covariance!r}.")
        scale0 = default_scale(X, self.covariance)
        scale = check_scale(first["S"], self.covariance, standardizer) if "S" in first else scale0
        fixed = frozenset(name for name, value in given.items() if not _is_sampled(value))
        model = PartitionModel(
            HyperPrior(np.zeros(p), scale0, self.covariance, fixed),
            self.n_components,
            fixed_alpha="alpha" in fixed,
            n_moves=self.merge_split,
        )
        alpha, r, nu = (
            float(first.get(name, default))
            for name, default in (("alpha", 1.0), ("r", 0.01), ("nu", d + 2.0))
        )
        labels = np.zeros(0, np.int64)
        return model, PartitionState(labels, alpha, r, nu, scale, np.zeros((0, 0)), 0.0, 0.0, 0)

    def _start(
        self, model: PartitionModel, start: PartitionState, X: Array, labels: Ints, rng: np.random.Generator
    ) -> PartitionState:
        """Return the state that a chain starts from."""
        return start._replace(labels=canonical(labels)[0])

    def _run(self, model: PartitionModel, X: Array, starts: list[PartitionState], seed: int) -> Chains:
        schedule = ChainSchedule(self.n_warmup, self.n_samples, self.thin)

        def begin(rng: np.random.Generator) -> PartitionState:
            sequence: Any = rng.bit_generator.seed_seq  # threads may start the chains in any order
            number: int = sequence.spawn_key[-1]
            return starts[number]

        def keep(state: PartitionState) -> dict[str, ArrayLike]:
            return {**state._asdict(), "labels": _compact(state.labels)}

        checkpoint = None
        if self.checkpoint is not None:
            params = {k: v for k, v in self.get_params().items() if k not in _NOT_OF_THE_MODEL}
            checkpoint = Checkpoint(self.checkpoint, fingerprint(type(self).__name__, params, X, seed))
        name, n_sweeps = type(self).__name__, self.n_chains * schedule.n_sweeps
        # One BLAS thread per chain: chains amplify the different rounding of multithreaded sums.
        with (
            ThreadpoolController().limit(limits=1, user_api="blas"),
            Progress(n_sweeps, name, self.verbose) as progress,
            ThreadEngine(self.n_jobs) as engine,
        ):
            sampler: Any = model  # `sample_prior_of` needs more than a generator
            chains = sample_chains(
                sampler, X, schedule, seed, n_chains=self.n_chains, start=begin, keep=keep, engine=engine,
                progress=progress, checkpoint=checkpoint,
            )  # fmt: skip
        if checkpoint is not None:
            checkpoint.clear()
        return chains

    def _summarise(self, model: PartitionModel, X: Array, chains: Chains, rng: np.random.Generator) -> None:
        draws, n = chains.draws, len(X)
        self.trace_ = mean_trace(chains.traces)
        every = range(self.n_warmup + self.thin - 1, len(self.trace_), self.thin)
        log_joint = np.array([trace["objective"][list(every)] for trace in chains.traces])
        self.partitions_ = draws["labels"]
        flat = self.partitions_.reshape(-1, n)
        self.labels_ = partitions.point_estimate(flat, self.point_estimate, log_joint.ravel(), rng)
        numbers, large = partitions.cluster_counts(flat)
        self.n_clusters_ = int(self.labels_.max()) + 1
        self.n_large_clusters_ = int(partitions.cluster_counts(self.labels_[None])[1][0])
        self.n_clusters_posterior_ = partitions.distribution(numbers)
        self.n_large_clusters_posterior_ = partitions.distribution(large)
        self.draws_ = invariant_summaries(draws, log_joint, model)
        self.rhat_, self.ess_ = diagnose(self.draws_)
        states = _states(draws, partitions._spread(len(flat), _PREDICTIVE_DRAWS))
        sample = np.sort(rng.permutation(n)[:_LEFT_OUT_ROWS])
        predictive, left_out = make_predictive(model, states, X, self.labels_, sample)
        self.predictive_ = predictive._asdict()
        if model.margin_basis is not None:
            self.margin_basis_ = model.margin_basis
        left_out -= np.log(self.feature_scales_).sum()
        self.density_quantiles_ = density_quantiles(left_out, np.ones(len(left_out)))
        self.counts_ = np.bincount(self.labels_)
        self.weights_ = self.counts_ / n
        moments = cluster_moments(model, states, X, self.labels_)
        self.means_ = self.feature_means_ + moments.means * self.feature_scales_
        self.covariances_ = moments.in_units_of(self.feature_scales_)
        self.prior_ = {name: float(np.mean(draws[name])) for name in ("alpha", "r", "nu", "c", "width")}
        self.prior_ = {"margin" if k == "width" else k: v for k, v in self.prior_.items()}
        self.prior_scale_ = draws["scale"].mean(axis=(0, 1))

    def _warn_unless_mixed(self) -> None:
        name = worst_of(self.rhat_)
        if name is not None and self.rhat_[name] > RHAT_LIMIT:
            warn_caller(
                f"the chains do not agree: R-hat of {name} is {self.rhat_[name]:.3g} (limit: {RHAT_LIMIT}). The "
                "partitions are still useful, but their shares may be wrong. Increase n_warmup and n_samples.",
                ConvergenceWarning,
            )


def _is_sampled(value: Any) -> bool:
    return isinstance(value, str)


def _compact(labels: Ints) -> Matrix:
    """Return labels in the smallest type that all draws of a chain share."""
    return labels.astype(np.uint16 if len(labels) < 2**16 else np.uint32)


def _states(draws: dict[str, Matrix], positions: Ints) -> list[PartitionState]:
    """Return some draws as states; projections without the padding."""
    flat = {
        name: values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])
        for name, values in draws.items()
    }
    found = []
    for s in positions:
        fields = {name: values[s] for name, values in flat.items()}
        fields["labels"] = fields["labels"].astype(np.int64)
        found.append(PartitionState(**fields))
    return found
