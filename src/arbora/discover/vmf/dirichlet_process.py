r"""Dirichlet-process mixtures of von Mises-Fisher distributions: the number of clusters is found, not given.

.. math:: v_k \sim \mathrm{Beta}(1, \eta), \quad \pi_k = v_k \prod_{j<k} (1 - v_j), \quad z_i \sim
          \mathrm{Categorical}(\pi),

components as in `bayesian_vmf`. The posterior is truncated at K components, :math:`v_K = 1`, with
:math:`q(v_k) = \mathrm{Beta}(a_k, b_k)`:

.. math:: a_k = 1 + n_k, \qquad b_k = \eta + \sum_{j>k} n_j, \qquad
          \eta = (K - 1) / {-\sum_{k<K}} E[\log(1 - v_k)],

the last by empirical Bayes. Sticks prefer large components first; these are sorted before each update, which can only
raise the bound. Where iterations end, the components with the most similar means are merged as long as the bound
rises (Hughes and Sudderth 2013): a cluster that was cut in two has no other way back.

Streams are learned from batch by batch: statistics of what was seen stay, those of a batch are added, so that memory
does not grow. Components without rows are put on the rows of a batch that are farthest from all means, and stay there
if that raises the bound.

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
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from arbora.core.products import csr_matmul
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.discover._mixture.initialization import Init
from arbora.discover._mixture.rows import as_rows
from arbora.discover.vmf.bayesian import BayesianVMFMixture
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.posterior import (
    Inference,
    VMFPosterior,
    component_extra,
    expected_log_weights,
    posterior_scores,
    update_posterior,
)
from arbora.discover.vmf.stick_breaking import (
    Sticks,
    stick_extra,
    stick_log_weights,
    stick_weights,
    update_sticks,
)
from arbora.engine import ThreadEngine
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, run
from arbora.infer.mixture.statistics import LinearScores, Stats, WeightedRows, e_step

Array = NDArray[np.float64]

_TURNS = 3  # of E-step and update with a batch of a stream
_USED = 0.5  # rows that make a component a cluster
_MERGE_ITERATIONS = 4  # after which a merge has to pay
_MOST_BIRTHS = 3  # in a batch of a stream
_MOST_FAILURES = 3  # merges in a row that did not


class DPPosterior(NamedTuple):
    """Factors of the posterior, and the statistics that they were made of."""

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


def dp_update(how: Inference, learn: bool, params: DPPosterior, stats: Stats) -> DPPosterior:
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
    q = update_posterior(how, q, stats)
    shares = stick_weights(sticks) * (stats.counts.sum() + sticks.eta)
    return DPPosterior(q._replace(dirichlet=shares), sticks, stats)


def dp_extra(shared: bool, params: DPPosterior) -> float:
    """Minus the divergences of the factors from their priors."""
    return component_extra(params.components, shared) + stick_extra(params.sticks)


def similar_pairs(params: DPPosterior) -> list[tuple[int, int]]:
    """Pairs of components that have rows, the most similar means first."""
    used = np.flatnonzero(params.stats.counts > _USED)
    directions = params.components.directions[:, used]
    first, second = np.triu_indices(len(used), 1)
    cosine = (directions.T @ directions)[first, second]
    order = np.argsort(-cosine, kind="stable")
    return list(zip(used[first[order]].tolist(), used[second[order]].tolist(), strict=True))


def merged_stats(stats: Stats, keep: int, drop: int) -> Stats:
    """Statistics with the rows of one component given to another."""
    counts, sums = stats.counts.copy(), stats.sums.copy()
    counts[keep] += counts[drop]
    sums[:, keep] += sums[:, drop]
    counts[drop], sums[:, drop] = 0.0, 0.0
    return Stats(counts, sums)


def known_fit(scores: LinearScores, known: Stats) -> float:
    """Bound of rows of which only the statistics are left, up to a constant."""
    along = np.einsum("jk,jk->k", scores.weights, known.sums, dtype=np.float64)
    return float(known.counts @ scores.offset + np.sum(scores.scale * along))


def born(params: DPPosterior, rows: WeightedRows) -> DPPosterior:
    """Put components without rows on rows that are far from all means, and from each other."""
    empty = np.flatnonzero(params.stats.counts <= _USED)
    directions, mean_concentrations = (
        params.components.directions.copy(),
        params.components.mean_concentrations.copy(),
    )
    used = np.setdiff1d(np.arange(len(mean_concentrations)), empty)
    if not len(used):  # rows of so little weight that there is no cluster yet
        return params
    nearest = csr_matmul(rows.X, np.ascontiguousarray(directions[:, used], rows.X.dtype)).max(axis=1)
    for k in empty[:_MOST_BIRTHS]:
        seed = rows.X[[int(np.argmin(nearest))]].toarray()[0]
        directions[:, k], mean_concentrations[k] = seed, mean_concentrations[used].max()
        nearest = np.maximum(nearest, rows.X @ seed)
    return params._replace(
        components=params.components._replace(directions=directions, mean_concentrations=mean_concentrations)
    )


def batch_turns(
    model: MixtureModel, params: DPPosterior, known: Stats, rows: WeightedRows, engine: Any
) -> tuple[DPPosterior, float]:
    """Posterior after some turns with a batch, and its bound up to a constant of what was known."""
    stats, _ = e_step(model.scores(params), rows, engine)
    bound = 0.0
    for _ in range(_TURNS):
        both = Stats(known.counts + stats.counts, known.sums + stats.sums)
        order = np.argsort(-both.counts, kind="stable")
        params = model.update(params, both)
        known = Stats(known.counts[order], known.sums[:, order])  # as the components are now
        stats, bound = e_step(model.scores(params), rows, engine)
    return params, bound + known_fit(model.scores(params), known) + model.extra(params)


class DirichletProcessVMFMixture(BayesianVMFMixture):
    """Dirichlet-process mixture of von Mises-Fisher distributions.

    Parameters
    ----------
    n_components : int
        Most clusters there can be; those that are not needed have no rows.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed; see `BayesianVMFMixture`.
    alpha : float, optional
        Concentration of the process: the larger, the more clusters. None, here and below: learned from the data.
    prior_direction : array-like of shape (n_features,), optional
        Direction that the means lie around.
    prior_concentration : float, optional
        Concentration of the means around it.
    prior_log_mean, prior_log_variance : float, optional
        Mean and variance of the logarithms of the concentrations.
    init : {"k-means++", "random"}, labels or means
        Where to begin.
    initial_concentration : float, optional
        Concentration of the start; see `BayesianVMFMixture`.
    annealing_steps : int, optional
        Iterations of annealing before those that converge; by default 25, and 0 for labels or means that are given.
    n_init : int
        Starts, of which the best is kept; they run in parallel.
    tol : float
        Gain of the bound per row, in nats, below which to stop.
    max_iter : int
        Most iterations, or passes over the data in mini-batches.
    batch_size : int, optional
        Rows in a mini-batch (stochastic variational inference); all rows at once by default.
    dtype : {"float32", "float64"}
        Precision of the E-step. A fitted model answers in double precision.
    n_jobs : int, optional
        Threads; the result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    n_clusters_ : int
        Components that have rows.
    means_, mean_concentrations_, concentrations_, kappa_posterior_, weights_, prior_ : see `BayesianVMFMixture`
        Components are sorted by the number of their rows. `prior_["alpha"]` is the concentration of the process.
    sticks_ : ndarray of shape (2, n_components - 1)
        Posterior of the pieces of the stick.
    counts_ : ndarray of shape (n_components,)
        Rows of each component.
    sums_ : ndarray of shape (n_features, n_components)
        Their sums; `partial_fit` adds to both.
    lower_bounds_ : ndarray
        Evidence lower bound by iteration, with all its constants; of a stream, up to a constant, by batch.
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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BayesianVMFMixture._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int = 30,
        *,
        concentration: str = "shared",
        concentration_posterior: str = "grid",
        alpha: float | None = None,
        prior_direction: Any = None,
        prior_concentration: float | None = None,
        prior_log_mean: float | None = None,
        prior_log_variance: float | None = None,
        init: Any = "k-means++",
        initial_concentration: float | None = None,
        annealing_steps: int | None = None,
        n_init: int = 1,
        tol: float = 1e-4,
        max_iter: int = 200,
        batch_size: int | None = None,
        dtype: str = "float32",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.concentration = concentration
        self.concentration_posterior = concentration_posterior
        self.alpha = alpha
        self.prior_direction = prior_direction
        self.prior_concentration = prior_concentration
        self.prior_log_mean = prior_log_mean
        self.prior_log_variance = prior_log_variance
        self.init = init
        self.initial_concentration = initial_concentration
        self.annealing_steps = annealing_steps
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _model(self, rows: WeightedRows) -> MixtureModel:
        how = self._how()
        how = how._replace(fixed=how.fixed | {"alpha"})
        update = partial(dp_update, how, self.alpha is None)
        return MixtureModel(dp_scores, update, partial(dp_extra, how.shared))

    def _solve(
        self, rows: WeightedRows, init: Init, n_components: int, seed: int, engine: ThreadEngine
    ) -> MixtureFit:
        found = super()._solve(rows, init, n_components, seed, engine)
        if self.batch_size is not None and self.batch_size < rows.X.shape[0]:
            return found  # its bounds are of batches, and no measure of a merge
        model, schedule = self._model(rows), self._schedule(seed)
        rows = schedule.prepare(rows, n_components)
        trial = schedule._replace(max_iter=min(_MERGE_ITERATIONS, schedule.max_iter))
        failures, pairs = 0, similar_pairs(found.params)
        while pairs and failures < _MOST_FAILURES:
            stats = merged_stats(found.params.stats, *pairs.pop(0))
            start = model.update(found.params, stats)
            better = run(model, rows, start, trial, engine, Progress(verbose=0))
            if better.bounds[-1] <= found.bounds[-1]:
                failures += 1
                continue
            better = run(model, rows, better.params, schedule, engine, Progress(verbose=0))
            risen = better.bounds[better.bounds > found.bounds[-1]]
            found = better._replace(bounds=np.concatenate([found.bounds, risen]))
            failures, pairs = 0, similar_pairs(found.params)
        return found

    def _scores(self, params: DPPosterior) -> LinearScores:
        return dp_scores(params)

    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Any
    ) -> DPPosterior:
        q = super()._begin(rows, init, n_components, rng, engine)
        counts = q.dirichlet - 1.0
        eta = 1.0 if self.alpha is None else float(self.alpha)
        sticks = update_sticks(Sticks(np.empty((2, len(counts) - 1)), eta), counts, learn=False)
        return DPPosterior(q, sticks, Stats(counts, np.zeros_like(q.directions)))

    def _set(self, params: DPPosterior) -> None:
        super()._set(params.components)
        self.prior_["alpha"], self.sticks_ = params.sticks.eta, params.sticks.beta
        self.counts_, self.sums_ = params.stats.counts, params.stats.sums.astype(np.float64)
        self.n_clusters_ = int(np.sum(self.counts_ > _USED))

    def _params(self) -> DPPosterior:
        sticks = Sticks(self.sticks_, self.prior_["alpha"])
        return DPPosterior(super()._params(), sticks, Stats(self.counts_, self.sums_))

    def _density(self, params: DPPosterior, X: sp.csr_array) -> Array:
        return super()._density(params.components, X)

    def _left_out(self, params: DPPosterior, X: sp.csr_array, weight: NDArray[Any], stats: Stats) -> Array:
        return self._left_out_of(params.components, self._log_joint(params, X), X, weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DirichletProcessVMFMixture:
        """Learn from one more batch of a stream.

        The first batch, of at least `n_components` rows, starts the model as `fit` would. Later ones are added to
        what is known; clusters may appear as long as there are components without rows.

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
            X, weight = self._read(X, sample_weight, reset=False)
            rows = as_rows(X, weight, np.dtype(self.dtype))
            with ThreadEngine(self.n_jobs) as engine:
                params, bound = self._add_batch(rows, engine)
                self._set(params)
                self._set_quantiles(params, X, weight, engine)
            self.lower_bounds_ = np.append(self.lower_bounds_, bound)
            return self

    def _add_batch(self, rows: WeightedRows, engine: ThreadEngine) -> tuple[DPPosterior, float]:
        """Posterior given what was known and a batch: with new clusters, or without if they do not pay."""
        model, params = self._model(rows), self._params()
        ways = [
            batch_turns(model, start, params.stats, rows, engine) for start in (params, born(params, rows))
        ]
        return max(ways, key=lambda way: way[1])
