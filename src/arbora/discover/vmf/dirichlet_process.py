r"""Dirichlet-process mixtures of von Mises-Fisher distributions: the number of clusters is learned.

.. math:: v_k \sim \mathrm{Beta}(1, \eta), \quad \pi_k = v_k \prod_{j<k} (1 - v_j), \quad z_i \sim
          \mathrm{Categorical}(\pi),

with components as in `arbora.discover.vmf.bayesian`. The posterior is truncated at K components, :math:`v_K = 1`,
with :math:`q(v_k) = \mathrm{Beta}(a_k, b_k)`:

.. math:: a_k = 1 + n_k, \qquad b_k = \eta + \sum_{j>k} n_j, \qquad
          \eta = (K - 1) / {-\sum_{k<K}} E[\log(1 - v_k)],

the last by empirical Bayes. Stick breaking prefers large components first, so components are sorted before each
update; this can only raise the bound. After convergence the components with the most similar means are merged as long
as the bound rises (Hughes and Sudderth 2013): otherwise a cluster that was split in two would stay split.

`partial_fit` keeps the statistics of all batches and adds those of the next, so that memory does not grow. Components
without rows move to the rows of a batch that are farthest from all means, and stay there if that raises the bound.

References
----------
D. Blei and M. Jordan (2006). Variational inference for Dirichlet process mixtures. Bayesian Analysis 1(1).
K. Kurihara, M. Welling and Y. W. Teh (2007). Collapsed variational Dirichlet process mixture models. IJCAI.
M. Hughes and E. Sudderth (2013). Memoized online variational inference for Dirichlet process mixture models. NIPS.
T. Broderick, N. Boyd, A. Wibisono, A. Wilson and M. Jordan (2013). Streaming variational Bayes. NIPS.
"""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln, psi
from sklearn.utils._param_validation import Interval

from arbora.arrays import Array, Matrix
from arbora.core.engine import Engine
from arbora.core.estimator import all_or_nothing
from arbora.core.products import csr_matmul
from arbora.discover.mixture.base import Search, Start
from arbora.discover.mixture.rows import as_rows
from arbora.discover.vmf.bayesian import BayesianComponents
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.posterior import (
    Inference,
    VMFPosterior,
    component_extra,
    expected_log_weights,
    left_out_mixture_log_density,
    mixture_log_density,
    posterior_scores,
    update_posterior,
)
from arbora.engine import ThreadEngine
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, run
from arbora.infer.mixture.statistics import LinearScores, Stats, WeightedRows, e_step, linear_log_joint

# --- Stick-breaking weights of a Dirichlet process, and their variational posterior -------------------------
#
# .. math:: v_k \sim \mathrm{Beta}(1, \eta), \quad \pi_k = v_k \prod_{j<k} (1 - v_j), \qquad
#           q(v_k) = \mathrm{Beta}(a_k, b_k), \quad v_K = 1.


_ETA_RANGE = (1e-3, 1e3)


class Sticks(NamedTuple):
    """Posterior of the stick proportions: parameters of the beta distributions, (2, n_components - 1), and eta."""

    beta: Array
    eta: float


def stick_logs(beta: Array) -> tuple[Array, Array]:
    """Return the expected log(v) and log(1 - v)."""
    total = psi(beta.sum(axis=0))
    return psi(beta[0]) - total, psi(beta[1]) - total


def stick_log_weights(sticks: Sticks) -> Array:
    """Return the expected logarithms of the weights."""
    log_v, log_rest = stick_logs(sticks.beta)
    return np.asarray(np.append(log_v, 0.0) + np.append(0.0, np.cumsum(log_rest)))


def stick_weights(sticks: Sticks) -> Array:
    """Return the expected weights, E[v_k] times the product of 1 - E[v_j] for j < k; the last v is 1."""
    v = sticks.beta[0] / sticks.beta.sum(axis=0)
    return np.asarray(np.append(v, 1.0) * np.append(1.0, np.cumprod(1 - v)))


def update_sticks(sticks: Sticks, counts: Array, learn: bool) -> Sticks:
    """Update the stick proportions given counts in descending order, and eta if `learn`."""
    if len(counts) == 1:
        return sticks
    after = np.append(np.cumsum(counts[::-1])[::-1][1:], 0.0)[:-1]
    beta = np.array([1 + counts[:-1], sticks.eta + after])
    eta = sticks.eta
    if learn:
        eta = float(np.clip(beta.shape[1] / -stick_logs(beta)[1].sum(), *_ETA_RANGE))
    return Sticks(beta, eta)


def stick_extra(sticks: Sticks) -> float:
    """Return minus the divergence of the stick proportions from their prior."""
    a, b = sticks.beta
    log_v, log_rest = stick_logs(sticks.beta)
    return float(np.sum(np.log(sticks.eta) + betaln(a, b) + (1 - a) * log_v + (sticks.eta - b) * log_rest))


# --- Variational inference of the Dirichlet-process mixture: factors, updates, bound, merges and batches ----


_TURNS = 3  # E-steps and updates for each batch of `partial_fit`
MIN_ROWS = 0.5  # number of rows above which a component counts as a cluster
_MERGE_ITERATIONS = 4  # iterations after which a merge must have raised the bound
_MAX_BIRTHS = 3  # new components for each batch of `partial_fit`
_MAX_FAILURES = 3  # consecutive merges without success that end the search


class DPPosterior(NamedTuple):
    """Factors of the posterior, and the statistics from which they were computed."""

    components: VMFPosterior
    sticks: Sticks
    stats: Stats


def dp_scores(params: DPPosterior) -> LinearScores:
    """Return the expected log-joint of rows and components."""
    scores = posterior_scores(params.components)
    dirichlet = params.components.dirichlet
    return scores._replace(
        offset=scores.offset - expected_log_weights(dirichlet) + stick_log_weights(params.sticks)
    )


def dp_update(inference: Inference, learn: bool, params: DPPosterior, stats: Stats) -> DPPosterior:
    """Sort the components, largest first, and update all factors."""
    q, order = params.components, np.argsort(-stats.counts, kind="stable")
    if np.any(np.diff(order) < 0):
        stats = Stats(stats.counts[order], np.ascontiguousarray(stats.sums[:, order]))
        kappa = KappaPosterior(*(value[order] for value in q.kappa))
        q = q._replace(
            directions=np.ascontiguousarray(q.directions[:, order]),
            mean_concentrations=q.mean_concentrations[order],
            kappa=kappa,
        )
    sticks = update_sticks(params.sticks, stats.counts, learn)
    q = update_posterior(inference, q, stats)
    shares = stick_weights(sticks) * (stats.counts.sum() + sticks.eta)
    return DPPosterior(q._replace(dirichlet=shares), sticks, stats)


def dp_extra(shared: bool, params: DPPosterior) -> float:
    """Return minus the divergences of the factors from their priors."""
    return component_extra(params.components, shared) + stick_extra(params.sticks)


def similar_pairs(params: DPPosterior) -> list[tuple[int, int]]:
    """Return pairs of components that have rows, the most similar means first."""
    used = np.flatnonzero(params.stats.counts > MIN_ROWS)
    directions = params.components.directions[:, used]
    first, second = np.triu_indices(len(used), 1)
    cosine = (directions.T @ directions)[first, second]
    order = np.argsort(-cosine, kind="stable")
    return list(zip(used[first[order]].tolist(), used[second[order]].tolist(), strict=True))


def merged_stats(stats: Stats, keep: int, drop: int) -> Stats:
    """Return the statistics after moving the rows of one component to another."""
    counts, sums = stats.counts.copy(), stats.sums.copy()
    counts[keep] += counts[drop]
    sums[:, keep] += sums[:, drop]
    counts[drop], sums[:, drop] = 0.0, 0.0
    return Stats(counts, sums)


def resized(model: MixtureModel, params: DPPosterior, n_components: int) -> DPPosterior:
    """Return the posterior truncated at another number: empty components are appended, or the last ones dropped."""
    q, (counts, sums) = params.components, params.stats
    if n_components == len(counts):
        return params
    n_old, n_new = min(n_components, len(counts)), max(n_components - len(counts), 0)

    def fit(values: Array, fill: float) -> Array:
        return np.append(values[:n_old], np.full(n_new, fill))

    centre = np.repeat(q.prior.direction[:, None], n_new, axis=1).astype(q.directions.dtype)
    components = VMFPosterior(
        np.hstack([q.directions[:, :n_old], centre]),
        fit(q.mean_concentrations, q.prior.concentration),
        fit(q.dirichlet, 1.0),
        KappaPosterior(*(fit(value, float(value[0])) for value in q.kappa)),
        q.prior,
    )
    stats = Stats(fit(counts, 0.0), np.hstack([sums[:, :n_old], np.zeros((len(sums), n_new), sums.dtype)]))
    sticks = Sticks(np.empty((2, n_components - 1)), params.sticks.eta)
    sticks = update_sticks(sticks, stats.counts, learn=False)
    resized: DPPosterior = model.update(DPPosterior(components, sticks, stats), stats)
    return resized


def fit_of_stats(scores: LinearScores, stats: Stats) -> float:
    """Return the bound of rows that are known only by their statistics, up to a constant."""
    along = np.einsum("jk,jk->k", scores.weights, stats.sums, dtype=np.float64)
    return float(stats.counts @ scores.offset + np.sum(scores.scale * along))


def with_births(params: DPPosterior, rows: WeightedRows) -> DPPosterior:
    """Move components without rows to rows that are far from all means, and from each other."""
    empty = np.flatnonzero(params.stats.counts <= MIN_ROWS)
    directions = params.components.directions.copy()
    mean_concentrations = params.components.mean_concentrations.copy()
    used = np.setdiff1d(np.arange(len(mean_concentrations)), empty)
    if not len(used):  # the rows have so little weight that there is no cluster yet
        return params
    nearest = csr_matmul(rows.X, np.ascontiguousarray(directions[:, used], rows.X.dtype)).max(axis=1)
    for k in empty[:_MAX_BIRTHS]:
        seed = rows.X[[int(np.argmin(nearest))]].toarray()[0]
        directions[:, k], mean_concentrations[k] = seed, mean_concentrations[used].max()
        nearest = np.maximum(nearest, rows.X @ seed)
    return params._replace(
        components=params.components._replace(directions=directions, mean_concentrations=mean_concentrations)
    )


def batch_turns(
    model: MixtureModel, params: DPPosterior, earlier: Stats, rows: WeightedRows, engine: Engine
) -> tuple[DPPosterior, float]:
    """Return the posterior after some iterations with a batch, and its bound up to a constant of the earlier rows."""
    stats, _ = e_step(model.scores(params), rows, engine)
    bound = 0.0
    for _ in range(_TURNS):
        both = Stats(earlier.counts + stats.counts, earlier.sums + stats.sums)
        order = np.argsort(-both.counts, kind="stable")
        params = model.update(params, both)
        earlier = Stats(earlier.counts[order], earlier.sums[:, order])  # in the new order of the components
        stats, bound = e_step(model.scores(params), rows, engine)
    return params, bound + fit_of_stats(model.scores(params), earlier) + model.extra(params)


def merged_fit(
    model: MixtureModel, fit: MixtureFit, rows: WeightedRows, schedule: Schedule, engine: Engine
) -> MixtureFit:
    """Merge similar components of a converged fit as long as the bound rises."""
    trial = schedule._replace(max_iter=min(_MERGE_ITERATIONS, schedule.max_iter))
    failures, pairs = 0, similar_pairs(fit.params)
    while pairs and failures < _MAX_FAILURES:
        stats = merged_stats(fit.params.stats, *pairs.pop(0))
        start = model.update(fit.params, stats)
        better = run(model, rows, start, trial, engine)
        if better.bounds[-1] <= fit.bounds[-1]:
            failures += 1
            continue
        better = run(model, rows, better.params, schedule, engine)
        risen = better.bounds[better.bounds > fit.bounds[-1]]
        fit = better._replace(bounds=np.concatenate([fit.bounds, risen]))
        failures, pairs = 0, similar_pairs(fit.params)
    return fit


# --- Dirichlet-process mixtures of von Mises-Fisher distributions: the number of clusters is learned ---------


class DirichletProcessVMFMixture(BayesianComponents):
    """Dirichlet-process mixture of von Mises-Fisher distributions.

    Parameters
    ----------
    n_components : int
        Maximum number of clusters. Components that are not needed are dropped; see `keep_empty`.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed; see `BayesianVMFMixture`.
    prior : dict, optional
        Parts of the prior; see `BayesianVMFMixture`. ``alpha`` is the concentration of the process: larger values
        give more clusters.
    init : {"k-means++", "random"}, labels or means
        The start; see `BayesianVMFMixture`.
    n_init, calibration, keep_empty, tol, max_iter, batch_size, n_jobs, random_state, verbose : see `VMFMixture`

    Attributes
    ----------
    n_clusters_ : int
        Number of components that have rows.
    means_, mean_concentrations_, concentrations_, kappa_posterior_, weights_, prior_ : see `BayesianVMFMixture`
        Components are sorted by the number of their rows. `prior_["alpha"]` is the concentration of the process.
    sticks_ : ndarray of shape (2, n_components - 1)
        Parameters of the beta distributions of the stick proportions.
    counts_ : ndarray of shape (n_components,)
        Number of rows of each component.
    sums_ : ndarray of shape (n_features, n_components)
        Sums of the rows; `partial_fit` adds to both.
    lower_bounds_ : ndarray
        Evidence lower bound in each iteration, with all constants; for each batch of `partial_fit`, up to a constant.
    trace_, density_quantiles_, n_components_, n_iter_, converged_, n_features_in_ : see `BayesianVMFMixture`

    Examples
    --------
    >>> from arbora.datasets import make_vmf_mixture
    >>> from arbora.discover import DirichletProcessVMFMixture
    >>> data = make_vmf_mixture(300, 20, 3, random_state=0)
    >>> model = DirichletProcessVMFMixture(10, random_state=0).fit(data.X_train)
    >>> model.n_clusters_
    3
    """

    _fills_up: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BayesianComponents._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int = 30,
        *,
        concentration: str = "shared",
        concentration_posterior: str = "grid",
        prior: dict[str, Any] | None = None,
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
        self.concentration = concentration
        self.concentration_posterior = concentration_posterior
        self.prior = prior
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

    # --- the model ------------------------------------------------------------------------------------------------

    def _model(self, rows: WeightedRows) -> MixtureModel:
        inference = self._inference("alpha")
        update = partial(dp_update, inference, self._read_options("prior").alpha is None)
        return MixtureModel(dp_scores, update, partial(dp_extra, inference.shared))

    def _start(self, start: Start) -> DPPosterior:
        q = self._start_components(start)
        counts, alpha = q.dirichlet - 1.0, self._read_options("prior").alpha
        eta = 1.0 if alpha is None else float(alpha)
        sticks = update_sticks(Sticks(np.empty((2, len(counts) - 1)), eta), counts, learn=False)
        return DPPosterior(q, sticks, Stats(counts, np.zeros_like(q.directions)))

    def _repair(
        self, rows: WeightedRows, fit: MixtureFit, n_components: int, search: Search, engine: Engine
    ) -> tuple[MixtureFit, int]:
        """Merge similar components first; bounds of batches cannot be compared before and after a merge."""
        if self.batch_size is None or self.batch_size >= rows.X.shape[0]:
            prepared = search.schedule.prepare(rows, n_components)
            fit = merged_fit(self._model(rows), fit, prepared, search.schedule, engine)
        return super()._repair(rows, fit, n_components, search, engine)

    def _set(self, params: DPPosterior) -> None:
        self._set_components(params.components)
        self.prior_["alpha"], self.sticks_ = params.sticks.eta, params.sticks.beta
        self.counts_, self.sums_ = params.stats.counts, params.stats.sums.astype(np.float64)
        self.n_clusters_ = int(np.sum(self.counts_ > MIN_ROWS))

    def _params(self) -> DPPosterior:
        sticks = Sticks(self.sticks_, self.prior_["alpha"])
        return DPPosterior(self._components(), sticks, Stats(self.counts_, self.sums_))

    def _fitted_means(self, params: DPPosterior) -> Matrix:
        return params.components.directions

    def _log_joint(self, params: DPPosterior, X: sp.csr_array) -> Array:
        return linear_log_joint(dp_scores(params), X)

    def _log_density(self, params: DPPosterior, X: sp.csr_array) -> Array:
        return mixture_log_density(params.components, X)

    def _left_out_log_density(
        self, params: DPPosterior, X: sp.csr_array, weight: Matrix, stats: Stats
    ) -> Array:
        return left_out_mixture_log_density(params.components, self._log_joint(params, X), X, weight)

    # --- batches --------------------------------------------------------------------------------------------------

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one more batch.

        The first batch, of at least `n_components` rows, starts the model as `fit` does. Later batches are added to
        it. New clusters can appear as long as there are fewer than `n_components`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        if not hasattr(self, "sticks_"):
            return self.fit(X, y, sample_weight)
        with all_or_nothing(self):
            X, weight, n_zero = self._read(X, sample_weight, reset=False)
            self.n_zero_rows_ = getattr(self, "n_zero_rows_", 0) + n_zero
            rows = as_rows(X, weight, self._precision)
            with ThreadEngine(self.n_jobs) as engine:
                params, bound = self._add_batch(rows, engine)
                self._set(params)
                self.n_components_ = len(self.counts_)
                self.density_quantiles_ = self._left_out_quantiles(params, X, weight, engine)
            self.lower_bounds_ = np.append(self.lower_bounds_, bound)
            return self

    def _add_batch(self, rows: WeightedRows, engine: Engine) -> tuple[DPPosterior, float]:
        """Return the better posterior given earlier batches and a new one: with new clusters, or without."""
        model = self._model(rows)
        params = resized(model, self._params(), max(self.n_components, len(self.counts_)))
        starts = params, with_births(params, rows)
        fits = [batch_turns(model, start, params.stats, rows, engine) for start in starts]
        best, bound = max(fits, key=lambda fit: fit[1])
        used = int(np.sum(best.stats.counts > MIN_ROWS))
        return (best if self.keep_empty or not used else resized(model, best, used)), bound
