r"""Bayesian mixtures of von Mises-Fisher distributions.

.. math:: \pi &\sim \mathrm{Dirichlet}(\alpha), \quad \mu_k \sim \mathrm{vMF}(\mu_0, C_0), \quad
          \kappa_k \sim \mathrm{logNormal}(m, \sigma^2), \\
          z_i &\sim \mathrm{Categorical}(\pi), \quad x_i \sim \mathrm{vMF}(\mu_{z_i}, \kappa_{z_i}).

Components share their prior, and all of it is learned from the data (empirical Bayes) unless it is given. By default
they share their concentration too, :math:`\kappa_k = \kappa`, which finds known classes of texts more often: with one
of its own for each component, the broadest gathers all rows that are rare in theirs. The start is annealed
(`_anneal`), and empties superfluous components. The updates are in `_vmf_posterior`, the posterior of the
concentrations in `_concentration`.

References
----------
S. Gopal and Y. Yang (2014). Von Mises-Fisher clustering models. ICML.
S. Gopal (2014). Large-scale Structured Learning. PhD thesis, Carnegie Mellon University, chapter 5.
"""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.core.engine import require_shared_memory
from arbora.core.products import csr_matmul
from arbora.discover._mixture.base import Mixture
from arbora.discover._mixture.initialization import Init
from arbora.discover._mixture.rows import as_rows, unit_rows_of_file
from arbora.discover.vmf.annealing import anneal, mean_row
from arbora.discover.vmf.concentration import POSTERIORS, KappaPosterior, largest_kappa
from arbora.discover.vmf.gibbs import CollapsedVMF, GibbsState, sample_posterior, warn_of_chains_apart
from arbora.discover.vmf.mixture import VMFParams, left_out_shares, own_parts, start_components
from arbora.discover.vmf.posterior import (
    Inference,
    VMFPosterior,
    VMFPrior,
    begin_posterior,
    left_out_log_density,
    posterior_extra,
    posterior_scores,
    predictive_log_density,
    sample_predictive,
    update_posterior,
)
from arbora.engine import ThreadEngine
from arbora.infer.mcmc.chains import Schedule as Sweeps
from arbora.infer.mixture.loop import MixtureModel
from arbora.infer.mixture.statistics import LinearScores, Stats, WeightedRows

_ANNEALING_STEPS = 25
_ROWS_PER_COMPONENT = 50  # that annealing sees where rows come in mini-batches


class BayesianVMFMixture(Mixture):
    """Bayesian mixture of von Mises-Fisher distributions.

    Parameters
    ----------
    n_components : int or "auto"
        Number of clusters, of which some may end without rows. "auto": the number with the highest density of rows
        that are held out.
    inference : {"variational", "gibbs"}
        How the posterior is found. "gibbs" draws from it, with the means integrated out; chains start at variational
        solutions, from which they take those parts of the prior that are not given.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own. Own concentrations
        describe new rows better, but find known classes less often.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed: by quadrature (exact), as a log-normal distribution under a
        bound, or by Metropolis sampling.
    alpha : float, optional
        Parameter of the Dirichlet prior of the weights. None, here and below: learned from the data.
    prior_direction : array-like of shape (n_features,), optional
        Direction that the means lie around.
    prior_concentration : float, optional
        Concentration of the means around it.
    prior_log_mean, prior_log_variance : float, optional
        Mean and variance of the logarithms of the concentrations.
    init : {"k-means++", "random"}, labels or means
        Where to begin: rows far from each other, random labels, an integer label for each row (-1: none), or a mean
        for each component.
    initial_concentration : float, optional
        Concentration of the start; by default a broad one, at which the rows are half undecided, and, for given
        labels, that of the labels. Random labels start at 10.
    annealing_steps : int, optional
        Iterations of annealing before those that converge; by default 25, and 0 for labels or means that are given.
    n_init : int
        Starts, of which the best is kept; they run in parallel.
    n_chains, n_warmup, n_samples : int
        Of the sampler: chains, which run in parallel, sweeps of each that are thrown away, and sweeps that are kept.
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
    engine : None, "threads", "ray" or RayEngine
        Where rows are counted in each iteration: in this process, or in shards on the workers of a Ray cluster (extra
        `ray`; "ray" is one on this machine). The result is the same for any number of workers; that of this process
        differs from it by rounding.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    means_ : ndarray of shape (n_components, n_features)
        Directions of the posterior means.
    mean_concentrations_ : ndarray of shape (n_components,)
        Concentrations of the posteriors of the means: how certain they are.
    concentrations_ : ndarray of shape (n_components,)
        Posterior means of the concentrations.
    kappa_posterior_ : ndarray of shape (5, n_components)
        Posterior means of kappa, log C(kappa), log(kappa) and its square, and the entropy of log(kappa).
    dirichlet_ : ndarray of shape (n_components,)
        Posterior of the weights.
    weights_ : ndarray of shape (n_components,)
        Their means.
    prior_ : dict
        `alpha`, `direction`, `concentration`, `log_mean` and `log_variance`, as given or learned.
    lower_bounds_ : ndarray
        Evidence lower bound by iteration, with all its constants. With "sample" it is an estimate. Of the
        variational start, if the posterior is sampled.
    trace_ : Trace
        Of the sampler, its objective is the log-density of assignments, concentrations and rows.
    responsibilities_ : ndarray of shape (n_samples, n_components)
        Share of the draws in which a row is in a component, if the posterior is sampled; so are the next two. Rows of
        weight 0, which are in none, have probabilities given the model.
    draws_ : dict
        `log_concentrations` and `counts` of shape (n_chains, n_samples, n_components), `log_joint` without the last.
    rhat_ : dict
        Of the same: above 1.05 the chains do not agree.
    density_quantiles_ : ndarray
        Quantiles of the log-density of training rows, each left out of the model; see `is_novel`.
    selection_ : dict
        Numbers of components tried and their held-out log-densities, if `n_components` is "auto".
    stream_counts_, stream_sums_, seen_weight_ : see `VMFMixture`
    n_components_ : int
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int

    Notes
    -----
    Densities are those of the posterior predictive distribution: the mean directions are integrated out exactly, the
    concentrations by quadrature. Probabilities of components are those of the variational posterior, for new rows as
    for those of the fit: a component without rows, whose predictive density is broad, does not gather outliers.
    Rows are divided by their length; zero rows are refused.

    Examples
    --------
    >>> from arbora.datasets import make_vmf_mixture
    >>> from arbora.discover import BayesianVMFMixture
    >>> data = make_vmf_mixture(300, 5, 3, random_state=0)
    >>> model = BayesianVMFMixture(6, n_init=3, random_state=0).fit(data.X_train)
    >>> model.trace_.is_monotone(increasing=True, tolerance=1e-6)
    True
    """

    _min_features: ClassVar[int] = 2
    _streams: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Mixture._parameter_constraints,
        "inference": [StrOptions({"variational", "gibbs"})],
        "concentration": [StrOptions({"shared", "own"})],
        "concentration_posterior": [StrOptions(set(POSTERIORS))],
        "alpha": [Interval(Real, 0, None, closed="neither"), None],
        "prior_direction": ["array-like", None],
        "prior_concentration": [Interval(Real, 0, None, closed="left"), None],
        "prior_log_mean": [Real, None],
        "prior_log_variance": [Interval(Real, 0, None, closed="neither"), None],
        "initial_concentration": [Interval(Real, 0, None, closed="neither"), None],
        "annealing_steps": [Interval(Integral, 0, None, closed="left"), None],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "n_samples": [Interval(Integral, 4, None, closed="left")],
    }
    inference = "variational"  # of those who inherit without having the parameter

    def __init__(
        self,
        n_components: int | str = 8,
        *,
        inference: str = "variational",
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
        n_chains: int = 2,
        n_warmup: int = 100,
        n_samples: int = 200,
        tol: float = 1e-4,
        max_iter: int = 200,
        batch_size: int | None = None,
        dtype: str = "float32",
        n_jobs: int | None = None,
        engine: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.inference = inference
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
        self.n_chains = n_chains
        self.n_warmup = n_warmup
        self.n_samples = n_samples
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.engine = engine
        self.random_state = random_state
        self.verbose = verbose

    def _given_prior(self) -> dict[str, Any]:
        """Return the parts of the prior that the user fixed."""
        parts = {
            "alpha": self.alpha,
            "direction": self.prior_direction,
            "concentration": self.prior_concentration,
            "log_mean": self.prior_log_mean,
            "log_variance": self.prior_log_variance,
        }
        given = {name: value for name, value in parts.items() if value is not None}
        if "direction" in given:
            direction = np.asarray(given["direction"], dtype=np.float64)
            length = np.linalg.norm(direction)
            if direction.shape != (self.n_features_in_,) or not 0 < length < np.inf:
                raise ValueError(
                    f"prior_direction must be a vector of {self.n_features_in_} numbers that is not zero, got shape "
                    f"{direction.shape} of length {length:g}."
                )
            given["direction"] = direction / length
        return given

    def _check_X(self, X: sp.csr_array, weight: NDArray[Any] | None = None) -> sp.csr_array:
        return unit_rows_of_file(X, weight)

    def _fit(self, X: sp.csr_array, weight: NDArray[Any], seed: int, engine: ThreadEngine) -> None:
        if self.inference == "gibbs" and not np.isin(weight, (0.0, 1.0)).all():
            raise ValueError(
                "inference='gibbs' samples a component for each row: give no weights but 0 and 1."
            )
        if self.inference == "gibbs":
            require_shared_memory(engine, "inference='gibbs'", "use engine=None, or inference='variational'")
        super()._fit(X, weight, seed, engine)
        if self.inference == "gibbs":
            self._sample_posterior(X, weight, seed, engine)

    def _sample_posterior(
        self, X: sp.csr_array, weight: NDArray[Any], seed: int, engine: ThreadEngine
    ) -> None:
        """Run chains from different variational solutions, and leave what they have in common."""
        kept = np.flatnonzero(weight)
        seen = X[kept]
        rows, n_components = as_rows(X, weight, np.dtype(self.dtype)), self.n_components_
        init = self.init if isinstance(self.init, str) else self.means_
        others = [
            self._solve(rows, init, n_components, seed + chain, engine).params
            for chain in range(1, self.n_chains)
        ]
        states = [
            GibbsState(self._log_joint(params, seen).argmax(axis=1), np.array(params.kappa.log_mean))
            for params in (self._params(), *others)
        ]
        prior = VMFPrior(**self.prior_)
        sampler = CollapsedVMF(prior, n_components, seen.shape[0], self.concentration == "shared")
        found = sample_posterior(
            sampler, seen, states, Sweeps(self.n_warmup, self.n_samples), seed, engine.map
        )
        self.trace_, self.draws_, self.rhat_ = found.trace, found.draws, found.rhat
        self._set(found.projection)
        unseen = np.flatnonzero(weight == 0)
        self.responsibilities_ = np.empty((X.shape[0], n_components))
        self.responsibilities_[kept] = found.resp
        self.responsibilities_[unseen] = softmax(self._log_joint(found.projection, X[unseen]), axis=1)
        self._set_quantiles(found.projection, X, weight, engine)
        warn_of_chains_apart(found.rhat)

    def _learn(
        self, X: sp.csr_array, weight: NDArray[Any], total: float | None, engine: ThreadEngine
    ) -> None:
        if self.inference == "gibbs":
            raise ValueError(
                "partial_fit needs inference='variational': chains go over all rows again and again."
            )
        super()._learn(X, weight, total, engine)

    def _how(self) -> Inference:
        fixed = frozenset(self._given_prior())
        largest = largest_kappa(self.dtype)
        return Inference(
            POSTERIORS[self.concentration_posterior], fixed, self.concentration == "shared", largest
        )

    def _model(self, rows: WeightedRows) -> MixtureModel:
        how = self._how()
        return MixtureModel(
            posterior_scores, partial(update_posterior, how), partial(posterior_extra, shared=how.shared)
        )

    def _scores(self, params: VMFPosterior) -> LinearScores:
        return posterior_scores(params)

    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Any
    ) -> VMFPosterior:
        start = start_components(rows, init, n_components, self.initial_concentration, rng, engine)
        start = self._annealed(rows, init, start, rng, engine)
        return begin_posterior(mean_row(rows), rows.total, start, self._given_prior(), self._how())

    def _annealed(
        self, rows: WeightedRows, init: Init, start: VMFParams, rng: np.random.Generator, engine: Any
    ) -> VMFParams:
        steps = self.annealing_steps
        if steps is None:
            steps = _ANNEALING_STEPS if isinstance(init, str) else 0
        if steps == 0 or len(start.weights) == 1:
            return start
        if self.batch_size is not None and self.batch_size < rows.X.shape[0]:
            least = _ROWS_PER_COMPONENT * len(start.weights)
            size = min(max(self.batch_size, least), rows.X.shape[0])
            rows = rows.take(np.sort(rng.choice(rows.X.shape[0], size, replace=False)))
        return anneal(rows, start, steps, rng, engine)

    def _set(self, params: VMFPosterior) -> None:
        means = params.directions.T.astype(np.float64)
        self.means_ = means / np.linalg.norm(means, axis=1, keepdims=True)
        self.mean_concentrations_ = params.mean_concentrations
        self.kappa_posterior_ = np.array(params.kappa)
        self.concentrations_ = params.kappa.mean
        self.dirichlet_ = params.dirichlet
        self.weights_ = params.dirichlet / params.dirichlet.sum()
        self.prior_ = params.prior._asdict()

    def _params(self) -> VMFPosterior:
        kappa = KappaPosterior(*self.kappa_posterior_)
        directions = np.ascontiguousarray(self.means_.T)
        return VMFPosterior(
            directions, self.mean_concentrations_, self.dirichlet_, kappa, VMFPrior(**self.prior_)
        )

    def _n_parameters(self) -> int:
        n_components, n_features = self.means_.shape
        n_kappa = 1 if self.concentration == "shared" else n_components
        return n_components * (n_features - 1) + n_kappa + n_components - 1

    def _density(self, params: VMFPosterior, X: sp.csr_array) -> NDArray[np.float64]:
        cosine = csr_matmul(X, params.directions.astype(np.float64, copy=False))
        density = predictive_log_density(cosine, params.mean_concentrations, params.kappa, X.shape[1])
        return logsumexp(density + np.log(params.dirichlet / params.dirichlet.sum()), axis=1)

    def _left_out(
        self, params: VMFPosterior, X: sp.csr_array, weight: NDArray[Any], stats: Stats
    ) -> NDArray[np.float64]:
        return self._left_out_of(params, self._log_joint(params, X), X, weight)

    def _left_out_of(
        self, params: VMFPosterior, log_joint: NDArray[Any], X: sp.csr_array, weight: NDArray[Any]
    ) -> NDArray[np.float64]:
        part = own_parts(softmax(log_joint, axis=1), weight)
        cosine = csr_matmul(X, params.directions.astype(np.float64, copy=False))
        density = left_out_log_density(params, cosine, part)
        return logsumexp(density + left_out_shares(params.dirichlet, part), axis=1)

    def _draw(self, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
        kappa = KappaPosterior(*self.kappa_posterior_[:, labels])
        return sample_predictive(self.means_[labels], self.mean_concentrations_[labels], kappa, rng)
