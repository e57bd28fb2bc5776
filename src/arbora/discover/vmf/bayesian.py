r"""Bayesian mixtures of von Mises-Fisher distributions.

.. math:: \pi &\sim \mathrm{Dirichlet}(\alpha), \quad \mu_k \sim \mathrm{vMF}(\mu_0, C_0), \quad
          \kappa_k \sim \mathrm{logNormal}(m, \sigma^2), \\
          z_i &\sim \mathrm{Categorical}(\pi), \quad x_i \sim \mathrm{vMF}(\mu_{z_i}, \kappa_{z_i}).

Components share their prior. All parts of it that are not given are learned from the data (empirical Bayes). By
default components also share their concentration, :math:`\kappa_k = \kappa`, which finds known classes of texts more
often: with own concentrations, the broadest component collects the rows that are rare in all others. The start is
annealed (see `mixture`). The updates, densities and samples are in `posterior`, the posterior of the concentrations
in `concentration`.

References
----------
S. Gopal and Y. Yang (2014). Von Mises-Fisher clustering models. ICML.
S. Gopal (2014). Large-scale Structured Learning. PhD thesis, Carnegie Mellon University, chapter 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.estimator import warn_ineffective
from arbora.discover.mixture.base import Mixture, PartialFitMixture, Start
from arbora.discover.mixture.rows import as_rows
from arbora.discover.vmf.concentration import POSTERIORS, KappaPosterior, largest_kappa
from arbora.discover.vmf.gibbs import CollapsedVMF, GibbsState, sample_posterior, warn_unless_mixed
from arbora.discover.vmf.mixture import (
    Annealing,
    VMFMixture,
    annealed_components,
    held_back_rows,
    mean_row,
    n_vmf_parameters,
)
from arbora.discover.vmf.posterior import (
    Inference,
    VMFPosterior,
    VMFPrior,
    begin_posterior,
    left_out_mixture_log_density,
    mixture_log_density,
    posterior_extra,
    posterior_scores,
    sample_predictive,
    update_posterior,
)
from arbora.infer.mcmc.chains import SAMPLING_CONSTRAINTS, ChainSchedule
from arbora.infer.mixture.loop import MixtureModel
from arbora.infer.mixture.statistics import Stats, WeightedRows, linear_log_joint

# --- The prior as users give it, and what all Bayesian von Mises-Fisher mixtures share ----------------------


class PriorOptions(NamedTuple):
    """Options of the parameter `prior`; None: learned from the data."""

    alpha: float | None = None
    direction: Any = None
    concentration: float | None = None
    log_mean: float | None = None
    log_variance: float | None = None


PRIOR_CONSTRAINTS: dict[str, Any] = {
    "alpha": [Interval(Real, 0, None, closed="neither"), None],
    "direction": ["array-like", None],
    "concentration": [Interval(Real, 0, None, closed="left"), None],
    "log_mean": [Interval(Real, None, None, closed="neither"), None],
    "log_variance": [Interval(Real, 0, None, closed="neither"), None],
}


def fixed_prior(options: Any, n_features: int) -> dict[str, Any]:
    """Return the parts of the prior that the user fixed, by the names of `VMFPrior`."""
    fixed = {name: getattr(options, name) for name in VMFPrior._fields}
    fixed = {name: value for name, value in fixed.items() if value is not None}
    if "direction" in fixed:
        direction = np.asarray(fixed["direction"], dtype=np.float64)
        length = np.linalg.norm(direction)
        if direction.shape != (n_features,) or not 0 < length < np.inf:
            raise ValueError(
                f'prior["direction"] must be a vector of {n_features} numbers that is not zero, got shape '
                f"{direction.shape} of length {length:g}."
            )
        fixed["direction"] = direction / length
    return fixed


class BayesianComponents(Mixture):
    """Base class of the Bayesian von Mises-Fisher mixtures: parameters of the prior, start, components."""

    _min_features: ClassVar[int] = 2
    _annealing_steps: ClassVar[int] = 25
    _options: ClassVar[dict[str, Any]] = {"prior": (PriorOptions, PRIOR_CONSTRAINTS)}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Mixture._parameter_constraints,
        "concentration": [StrOptions({"shared", "own"})],
        "concentration_posterior": [StrOptions(set(POSTERIORS))],
        "prior": [dict, None],
    }

    def _fixed_prior(self) -> dict[str, Any]:
        return fixed_prior(self._read_options("prior"), self.n_features_in_)

    def _small_mixture(self) -> Mixture:
        return VMFMixture(self.n_components, init="annealed", verbose=self.verbose)

    def _inference(self, *fixed: str) -> Inference:
        """Return how the factors are updated; `fixed` are parts that are not learned, beside the given ones."""
        return Inference(
            POSTERIORS[self.concentration_posterior],
            frozenset(self._fixed_prior()).union(fixed),
            self.concentration == "shared",
            largest_kappa(self._precision),
        )

    def _annealing(self, start: Start) -> Annealing:
        """Return how a start is annealed: not at all for given labels or means."""
        held_back = held_back_rows(
            may_be_empty=self.keep_empty or not self._fills_up, is_selected=isinstance(self.n_components, str)
        )
        return Annealing(start.search.annealing_steps if isinstance(start.init, str) else 0, held_back)

    def _start_components(self, start: Start) -> VMFPosterior:
        """Return a posterior to start from: components of the start, annealed, with the prior."""
        rows, params = start.rows, annealed_components(start, self._annealing(start))
        return begin_posterior(mean_row(rows), rows.total, params, self._fixed_prior(), self._inference())

    def _set_components(self, q: VMFPosterior) -> None:
        """Store the factors as attributes."""
        means = q.directions.T.astype(np.float64)
        self.means_ = means / np.linalg.norm(means, axis=1, keepdims=True)
        self.mean_concentrations_ = q.mean_concentrations
        self.kappa_posterior_ = np.array(q.kappa)
        self.concentrations_ = q.kappa.mean
        self.dirichlet_ = q.dirichlet
        self.weights_ = q.dirichlet / q.dirichlet.sum()
        self.prior_ = q.prior._asdict()

    def _components(self) -> VMFPosterior:
        """Return the factors from the attributes."""
        return VMFPosterior(
            np.ascontiguousarray(self.means_.T),
            self.mean_concentrations_,
            self.dirichlet_,
            KappaPosterior(*self.kappa_posterior_),
            VMFPrior(**self.prior_),
        )

    def _n_parameters(self) -> int:
        return n_vmf_parameters(self.means_, self.concentration == "shared")

    def _draw(self, labels: Ints, rng: np.random.Generator) -> Array:
        kappa = KappaPosterior(*self.kappa_posterior_[:, labels])
        return sample_predictive(self.means_[labels], self.mean_concentrations_[labels], kappa, rng)


def posterior_log_joint(q: Any, X: sp.csr_array) -> Array:
    """Return the expected log-joint of rows and components."""
    return linear_log_joint(posterior_scores(q), X)


# --- Bayesian mixtures of von Mises-Fisher distributions ----------------------------------------------------


class Sampling(NamedTuple):
    """Options of the parameter `sampling`: chains, their sweeps before the first draw, and their draws."""

    n_chains: int = 2
    n_warmup: int = 100
    n_samples: int = 200


# R-hat halves each chain and needs two draws in a half.
_SAMPLING_CONSTRAINTS = {**SAMPLING_CONSTRAINTS, "n_samples": [Interval(Integral, 4, None, closed="left")]}


class BayesianVMFMixture(BayesianComponents, PartialFitMixture):
    """Bayesian mixture of von Mises-Fisher distributions.

    Parameters
    ----------
    n_components : int, "auto", "halves" or "density"
        Number of clusters, or how it is selected; see `VMFMixture`.
    inference : {"variational", "gibbs"}
        How the posterior is computed. "gibbs" samples it, with the means integrated out. Its chains start at
        variational solutions, and take from them the parts of the prior that are not given.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own. Own concentrations
        describe new rows better, but find known classes less often.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed: by quadrature (exact), as a log-normal distribution under a
        bound, or by Metropolis sampling.
    prior : dict, optional
        Parts of the prior, by the names in `prior_`; all others are learned from the data. ``alpha``: parameter of
        the Dirichlet prior of the weights. ``direction`` and ``concentration``: direction around which the means are
        distributed, and their concentration around it. ``log_mean`` and ``log_variance``: mean and variance of the
        logarithms of the concentrations.
    init : {"k-means++", "random"}, labels or means
        The start: rows far from each other, random labels, an integer label for each row (-1: no label), or a mean
        for each component. The first two are annealed in 25 iterations.
    sampling : dict, optional
        For `inference="gibbs"`. ``n_chains`` (default 2): number of chains, which run in parallel. ``n_warmup``
        (100): sweeps of each chain that are discarded. ``n_samples`` (200): sweeps that are used.
    n_init, calibration, keep_empty, tol, max_iter, batch_size, n_jobs, random_state, verbose : see `VMFMixture`

    Attributes
    ----------
    means_ : ndarray of shape (n_components, n_features)
        Directions of the posterior means.
    mean_concentrations_ : ndarray of shape (n_components,)
        Concentrations of the posteriors of the means: how certain the means are.
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
        Evidence lower bound in each iteration, with all constants. With `concentration_posterior="sample"` it is an
        estimate. With `inference="gibbs"`, the bounds of the variational start.
    trace_ : Trace
        With `inference="gibbs"`, the objective is the log-density of assignments, concentrations and rows.
    responsibilities_ : ndarray of shape (n_samples, n_components)
        With `inference="gibbs"`, like the next two attributes: share of the draws in which a row is in a component.
        Rows of weight 0 are in no draw; theirs are probabilities given the model.
    draws_ : dict
        `log_concentrations` and `counts` of shape (n_chains, n_samples, n_components), `log_joint` without the last.
    rhat_ : dict
        R-hat of the arrays in `draws_`; the chains disagree if it is above 1.05.
    density_quantiles_, selection_, n_components_, stream_counts_, stream_sums_ : see `VMFMixture`
    seen_weight_, calibration_temperature_, n_zero_rows_, n_iter_, converged_ : see `VMFMixture`
    n_features_in_ : int

    Notes
    -----
    Densities are those of the posterior predictive distribution: the mean directions are integrated out exactly, the
    concentrations by quadrature. Probabilities of components are those of the variational posterior, for new rows and
    for training rows: a component without rows, whose predictive density is broad, does not attract outliers.
    Rows are divided by their length; a zero row takes no part in the fit. Variational inference also runs on the
    workers of a Ray cluster; see `VMFMixture`.

    Examples
    --------
    >>> from arbora.datasets import make_vmf_mixture
    >>> from arbora.discover import BayesianVMFMixture
    >>> data = make_vmf_mixture(300, 5, 3, random_state=0)
    >>> model = BayesianVMFMixture(6, n_init=3, random_state=0).fit(data.X_train)
    >>> model.trace_.is_monotone(increasing=True, tolerance=1e-6)
    True
    """

    _options: ClassVar[dict[str, Any]] = {
        **BayesianComponents._options,
        "sampling": (Sampling, _SAMPLING_CONSTRAINTS),
    }
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BayesianComponents._parameter_constraints,
        "inference": [StrOptions({"variational", "gibbs"})],
        "sampling": [dict, None],
    }

    def __init__(
        self,
        n_components: int | str = 8,
        *,
        inference: str = "variational",
        concentration: str = "shared",
        concentration_posterior: str = "grid",
        prior: dict[str, Any] | None = None,
        init: Any = "k-means++",
        n_init: int = 1,
        calibration: str | None = "auto",
        keep_empty: bool = False,
        sampling: dict[str, Any] | None = None,
        tol: float = 1e-4,
        max_iter: int = 200,
        batch_size: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.inference = inference
        self.concentration = concentration
        self.concentration_posterior = concentration_posterior
        self.prior = prior
        self.init = init
        self.n_init = n_init
        self.calibration = calibration
        self.keep_empty = keep_empty
        self.sampling = sampling
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _require_batches(self) -> None:
        super()._require_batches()
        if self.inference == "gibbs":
            raise ValueError(
                "partial_fit needs inference='variational': sampling passes over all rows many times."
            )

    def _needs(self) -> tuple[str, Iterable[str], str]:
        if self.inference == "gibbs":
            return "inference='gibbs'", ["shares_memory"], "use threads, or inference='variational'"
        return super()._needs()

    # --- the model ------------------------------------------------------------------------------------------------

    def _model(self, rows: WeightedRows) -> MixtureModel:
        inference = self._inference()
        extra = partial(posterior_extra, shared=inference.shared)
        return MixtureModel(posterior_scores, partial(update_posterior, inference), extra)

    def _start(self, start: Start) -> VMFPosterior:
        return self._start_components(start)

    def _set(self, params: VMFPosterior) -> None:
        self._set_components(params)

    def _params(self) -> VMFPosterior:
        return self._components()

    def _fitted_means(self, params: VMFPosterior) -> Matrix:
        return params.directions

    def _log_joint(self, params: VMFPosterior, X: sp.csr_array) -> Array:
        return posterior_log_joint(params, X)

    def _log_density(self, params: VMFPosterior, X: sp.csr_array) -> Array:
        return mixture_log_density(params, X)

    def _left_out_log_density(
        self, params: VMFPosterior, X: sp.csr_array, weight: Matrix, stats: Stats
    ) -> Array:
        return left_out_mixture_log_density(params, self._log_joint(params, X), X, weight)

    # --- Gibbs sampling -------------------------------------------------------------------------------------------

    def _place_rows(self, X: Any, y: Any, weight: Matrix) -> Any:
        if self.inference == "gibbs" and not np.isin(weight, (0.0, 1.0)).all():
            raise ValueError(
                "inference='gibbs' samples one component for each row: give no weights but 0 and 1, or use "
                "inference='variational'."
            )
        return X

    def _complete(self, X: Any, weight: Matrix, seed: int, engine: Engine) -> None:
        """With Gibbs sampling, run chains from different variational solutions and store their common posterior."""
        if self.inference != "gibbs":
            warn_ineffective(self, {"sampling": "inference is not 'gibbs'"})
            return
        options = self._read_options("sampling")
        ids, unseen = np.flatnonzero(weight), np.flatnonzero(weight == 0)
        seen, n_components = X[ids], self.n_components_
        rows = as_rows(X, weight, self._precision)
        init = self.init if isinstance(self.init, str) else self.means_
        others = [
            self._solve(rows, init, n_components, self._search(seed + chain), engine).params
            for chain in range(1, options.n_chains)
        ]
        states = [
            GibbsState(self._log_joint(params, seen).argmax(axis=1), np.array(params.kappa.log_mean))
            for params in (self._params(), *others)
        ]
        prior = VMFPrior(**self.prior_)
        sampler = CollapsedVMF(prior, n_components, seen.shape[0], self.concentration == "shared")
        sweeps = ChainSchedule(options.n_warmup, options.n_samples)
        sampled = sample_posterior(sampler, seen, states, sweeps, seed, engine)
        self.trace_, self.draws_, self.rhat_ = sampled.trace, sampled.draws, sampled.rhat
        self._set(sampled.projection)
        self.responsibilities_ = np.empty((X.shape[0], n_components))
        self.responsibilities_[ids] = sampled.resp
        joint = self._log_joint(sampled.projection, X[unseen])
        zero = self._zero_rows(X[unseen])
        joint[zero] = self._log_prior(X[unseen[zero]])
        self.responsibilities_[unseen] = softmax(joint, axis=1)
        self.density_quantiles_ = self._left_out_quantiles(sampled.projection, X, weight, engine)
        warn_unless_mixed(sampled.rhat)
