r"""Dirichlet-process mixtures of von Mises-Fisher distributions: the number of clusters is found, not given.

.. math:: v_k \sim \mathrm{Beta}(1, \eta), \quad \pi_k = v_k \prod_{j<k} (1 - v_j), \quad z_i \sim
          \mathrm{Categorical}(\pi),

with components as in `bayesian`. The posterior is truncated at K components, :math:`v_K = 1`, with
:math:`q(v_k) = \mathrm{Beta}(a_k, b_k)`:

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
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.core.engine import Engine
from arbora.core.estimator import all_or_nothing
from arbora.discover.mixture.base import Mixture
from arbora.discover.mixture.prediction import linear_log_joint
from arbora.discover.mixture.rows import as_rows, unit_rows_of_file
from arbora.discover.mixture.starts import Init, left_out_quantiles, solve
from arbora.discover.vmf.bayesian import (
    BAYESIAN_CONSTRAINTS,
    get_posterior,
    inference_of,
    n_mixture_parameters,
    set_posterior,
    start_posterior,
)
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.dirichlet_process.posterior import (
    LEAST_ROWS,
    DPPosterior,
    batch_turns,
    dp_extra,
    dp_scores,
    dp_update,
    merged_fit,
    resized,
    with_births,
)
from arbora.discover.vmf.dirichlet_process.stick_breaking import Sticks, update_sticks
from arbora.discover.vmf.mixture import VMFMixture
from arbora.discover.vmf.posterior import (
    Inference,
    left_out_mixture_log_density,
    mixture_log_density,
    sample_predictive,
)
from arbora.engine import ThreadEngine
from arbora.infer.mixture.loop import MixtureFit, MixtureModel
from arbora.infer.mixture.statistics import Stats, WeightedRows

Array = NDArray[np.float64]


class DirichletProcessVMFMixture(Mixture):
    """Dirichlet-process mixture of von Mises-Fisher distributions.

    Parameters
    ----------
    n_components : int
        Maximum number of clusters. Components that are not needed are dropped; see `keep_empty`.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed; see `BayesianVMFMixture`.
    alpha : float, optional
        Concentration of the process: larger values give more clusters. None, here and below: learned from the data.
    prior_direction : array-like of shape (n_features,), optional
        Direction around which the means are distributed.
    prior_concentration : float, optional
        Concentration of the means around `prior_direction`.
    prior_log_mean, prior_log_variance : float, optional
        Mean and variance of the logarithms of the concentrations.
    init : {"k-means++", "random"}, labels or means
        The start; see `BayesianVMFMixture`.
    initial_concentration : float, optional
        Concentration of the start; see `BayesianVMFMixture`.
    annealing_steps : int, optional
        Iterations of annealing at the start; by default 25, and 0 for given labels or means.
    n_init : int
        Number of starts. They run in parallel, and the best result is kept.
    calibration : {"auto"} or None
        "auto": if X has words, probabilities are tempered, so that the probabilities of the components of one half of
        the words of a document are right for the other half. The most probable component is the same. None: the
        probabilities of the model, which are nearly all 0 or 1 for texts.
    keep_empty : bool
        Keep components that no row is assigned to, and components with the same mean. By default they are dropped and
        merged at the end of `fit`; `n_components_` is the number that is left.
    tol : float
        Stop when the bound gains less than this per row, in nats.
    max_iter : int
        Maximum number of iterations, or of passes over the data with mini-batches.
    batch_size : int, optional
        Rows in a mini-batch (stochastic variational inference); all rows at once by default.
    dtype : {"float32", "float64"}
        Precision of the E-step. Predictions use double precision.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

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

    _min_features: ClassVar[int] = 2
    _fills_up: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Mixture._parameter_constraints,
        **BAYESIAN_CONSTRAINTS,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "concentration": [StrOptions({"shared", "own"})],
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
        calibration: str | None = "auto",
        keep_empty: bool = False,
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
        self.calibration = calibration
        self.keep_empty = keep_empty
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # --- the model ------------------------------------------------------------------------------------------------

    def _check_X(self, X: sp.csr_array) -> Any:
        return unit_rows_of_file(X)

    def _selector(self) -> Mixture:
        return VMFMixture(self.n_components, init="annealed", dtype=self.dtype)

    def _inference(self) -> Inference:
        return inference_of(self, shared=self.concentration == "shared")

    def _model(self, rows: WeightedRows) -> MixtureModel:
        how = self._inference()
        how = how._replace(fixed=how.fixed | {"alpha"})
        update = partial(dp_update, how, self.alpha is None)
        return MixtureModel(dp_scores, update, partial(dp_extra, how.shared))

    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Engine
    ) -> DPPosterior:
        q = start_posterior(self, self._inference(), rows, init, n_components, rng, engine)
        counts = q.dirichlet - 1.0
        eta = 1.0 if self.alpha is None else float(self.alpha)
        sticks = update_sticks(Sticks(np.empty((2, len(counts) - 1)), eta), counts, learn=False)
        return DPPosterior(q, sticks, Stats(counts, np.zeros_like(q.directions)))

    def _solve(
        self, rows: WeightedRows, init: Init, n_components: int, seed: int, engine: Engine
    ) -> MixtureFit:
        found = solve(self, rows, init, n_components, seed, engine)
        if self.batch_size is not None and self.batch_size < rows.X.shape[0]:
            return found  # bounds of batches cannot be compared before and after a merge
        schedule = self._schedule(seed)
        return merged_fit(self._model(rows), found, schedule.prepare(rows, n_components), schedule, engine)

    def _set(self, params: DPPosterior) -> None:
        set_posterior(self, params.components)
        self.prior_["alpha"], self.sticks_ = params.sticks.eta, params.sticks.beta
        self.counts_, self.sums_ = params.stats.counts, params.stats.sums.astype(np.float64)
        self.n_clusters_ = int(np.sum(self.counts_ > LEAST_ROWS))

    def _params(self) -> DPPosterior:
        sticks = Sticks(self.sticks_, self.prior_["alpha"])
        return DPPosterior(get_posterior(self), sticks, Stats(self.counts_, self.sums_))

    def _n_parameters(self) -> int:
        return n_mixture_parameters(self)

    def _fitted_means(self, params: DPPosterior) -> NDArray[Any]:
        return params.components.directions

    def _log_joint(self, params: DPPosterior, X: sp.csr_array) -> Array:
        return linear_log_joint(dp_scores(params), X)

    def _density(self, params: DPPosterior, X: sp.csr_array) -> Array:
        return mixture_log_density(params.components, X)

    def _left_out(self, params: DPPosterior, X: sp.csr_array, weight: NDArray[Any], stats: Stats) -> Array:
        return left_out_mixture_log_density(params.components, self._log_joint(params, X), X, weight)

    def _draw(self, labels: NDArray[np.int64], rng: np.random.Generator) -> Array:
        kappa = KappaPosterior(*self.kappa_posterior_[:, labels])
        return sample_predictive(self.means_[labels], self.mean_concentrations_[labels], kappa, rng)

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
            rows = as_rows(X, weight, np.dtype(self.dtype))
            with ThreadEngine(self.n_jobs) as engine:
                params, bound = self._add_batch(rows, engine)
                self._set(params)
                self.n_components_ = len(self.counts_)
                self.density_quantiles_ = left_out_quantiles(self, params, X, weight, engine)
            self.lower_bounds_ = np.append(self.lower_bounds_, bound)
            return self

    def _add_batch(self, rows: WeightedRows, engine: Engine) -> tuple[DPPosterior, float]:
        """Return the better posterior given the known statistics and a batch: with new clusters, or without."""
        model = self._model(rows)
        params = resized(model, self._params(), max(self.n_components, len(self.counts_)))
        starts = params, with_births(params, rows)
        fits = [batch_turns(model, start, params.stats, rows, engine) for start in starts]
        best, bound = max(fits, key=lambda fit: fit[1])
        used = int(np.sum(best.stats.counts > LEAST_ROWS))
        return (best if self.keep_empty or not used else resized(model, best, used)), bound
