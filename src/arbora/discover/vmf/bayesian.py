r"""Bayesian mixtures of von Mises-Fisher distributions.

.. math:: \pi &\sim \mathrm{Dirichlet}(\alpha), \quad \mu_k \sim \mathrm{vMF}(\mu_0, C_0), \quad
          \kappa_k \sim \mathrm{logNormal}(m, \sigma^2), \\
          z_i &\sim \mathrm{Categorical}(\pi), \quad x_i \sim \mathrm{vMF}(\mu_{z_i}, \kappa_{z_i}).

Components share their prior. All parts of it that are not given are learned from the data (empirical Bayes). By
default components also share their concentration, :math:`\kappa_k = \kappa`, which finds known classes of texts more
often: with own concentrations, the broadest component collects the rows that are rare in all others. The start is
annealed (`annealing`). The updates are in `posterior`, the posterior of the
concentrations in `concentration`, densities and samples in `predictive`.

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
from scipy.special import softmax
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine, require_shared_memory
from arbora.discover.mixture.base import Mixture, PartialFitMixture
from arbora.discover.mixture.prediction import linear_log_joint
from arbora.discover.mixture.rows import as_rows, unit_rows_of_file
from arbora.discover.mixture.starts import Init, left_out_quantiles
from arbora.discover.vmf.concentration import POSTERIORS, KappaPosterior, largest_kappa
from arbora.discover.vmf.gibbs import CollapsedVMF, GibbsState, sample_posterior, warn_unless_mixed
from arbora.discover.vmf.mixture import ANNEALING_STEPS, VMFMixture, annealed, mean_row, start_components
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
from arbora.infer.mcmc.chains import ChainSchedule
from arbora.infer.mixture.loop import MixtureModel
from arbora.infer.mixture.statistics import Stats, WeightedRows

# --- Functions that all Bayesian von Mises-Fisher mixtures share: parameters of the prior, start, attributes ---
#
# They take the estimator, whose parameters have the same names in all of these mixtures.


BAYESIAN_CONSTRAINTS: dict[str, Any] = {
    "concentration_posterior": [StrOptions(set(POSTERIORS))],
    "alpha": [Interval(Real, 0, None, closed="neither"), None],
    "prior_direction": ["array-like", None],
    "prior_concentration": [Interval(Real, 0, None, closed="left"), None],
    "prior_log_mean": [Real, None],
    "prior_log_variance": [Interval(Real, 0, None, closed="neither"), None],
    "initial_concentration": [Interval(Real, 0, None, closed="neither"), None],
    "annealing_steps": [Interval(Integral, 0, None, closed="left"), None],
}


def given_prior(estimator: Any) -> dict[str, Any]:
    """Return the parts of the prior that the user fixed."""
    parts = {
        "alpha": estimator.alpha,
        "direction": estimator.prior_direction,
        "concentration": estimator.prior_concentration,
        "log_mean": estimator.prior_log_mean,
        "log_variance": estimator.prior_log_variance,
    }
    given = {name: value for name, value in parts.items() if value is not None}
    if "direction" in given:
        n_features = estimator.n_features_in_
        direction = np.asarray(given["direction"], dtype=np.float64)
        length = np.linalg.norm(direction)
        if direction.shape != (n_features,) or not 0 < length < np.inf:
            raise ValueError(
                f"prior_direction must be a vector of {n_features} numbers that is not zero, got shape "
                f"{direction.shape} of length {length:g}."
            )
        given["direction"] = direction / length
    return given


def inference_of(estimator: Any, *, shared: bool, fixed: frozenset[str] = frozenset()) -> Inference:
    """Return how the factors are updated; `fixed` are parts that are not learned, beside the given ones."""
    return Inference(
        POSTERIORS[estimator.concentration_posterior],
        frozenset(given_prior(estimator)) | fixed,
        shared,
        largest_kappa(estimator.dtype),
    )


def annealing_steps(estimator: Any, init: Init) -> int:
    """Return the number of iterations of annealing; by default none for given labels or means."""
    if estimator.annealing_steps is not None:
        return int(estimator.annealing_steps)
    return ANNEALING_STEPS if isinstance(init, str) else 0


def start_posterior(
    estimator: Any,
    how: Inference,
    rows: WeightedRows,
    init: Init,
    n_components: int,
    rng: np.random.Generator,
    engine: Engine,
) -> VMFPosterior:
    """Return a posterior to start from: components of the start, annealed, with the prior."""
    start = start_components(rows, init, n_components, estimator.initial_concentration, rng, engine)
    start = annealed(estimator, rows, start, annealing_steps(estimator, init), rng, engine)
    return begin_posterior(mean_row(rows), rows.total, start, given_prior(estimator), how)


def set_posterior(estimator: Any, q: VMFPosterior) -> None:
    """Store the factors as attributes of the estimator."""
    means = q.directions.T.astype(np.float64)
    estimator.means_ = means / np.linalg.norm(means, axis=1, keepdims=True)
    estimator.mean_concentrations_ = q.mean_concentrations
    estimator.kappa_posterior_ = np.array(q.kappa)
    estimator.concentrations_ = q.kappa.mean
    estimator.dirichlet_ = q.dirichlet
    estimator.weights_ = q.dirichlet / q.dirichlet.sum()
    estimator.prior_ = q.prior._asdict()


def get_posterior(estimator: Any) -> VMFPosterior:
    """Return the factors from the attributes of the estimator."""
    return VMFPosterior(
        np.ascontiguousarray(estimator.means_.T),
        estimator.mean_concentrations_,
        estimator.dirichlet_,
        KappaPosterior(*estimator.kappa_posterior_),
        VMFPrior(**estimator.prior_),
    )


def posterior_log_joint(q: Any, X: sp.csr_array) -> Array:
    """Return the expected log-joint of rows and components."""
    return linear_log_joint(posterior_scores(q), X)


def n_mixture_parameters(estimator: Any) -> int:
    """Return the number of free parameters: means, concentrations and weights."""
    n_components, n_features = estimator.means_.shape
    n_kappa = 1 if estimator.concentration == "shared" else n_components
    return int(n_components * (n_features - 1) + n_kappa + n_components - 1)


# --- Bayesian mixtures of von Mises-Fisher distributions ----------------------------------------------------


class BayesianVMFMixture(PartialFitMixture):
    """Bayesian mixture of von Mises-Fisher distributions.

    Parameters
    ----------
    n_components : int or "auto"
        Number of clusters. "auto": see `selection`.
    inference : {"variational", "gibbs"}
        How the posterior is computed. "gibbs" samples it, with the means integrated out. Its chains start at
        variational solutions, and take from them the parts of the prior that are not given.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own. Own concentrations
        describe new rows better, but find known classes less often.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed: by quadrature (exact), as a log-normal distribution under a
        bound, or by Metropolis sampling.
    alpha : float, optional
        Parameter of the Dirichlet prior of the weights. None, here and below: learned from the data.
    prior_direction : array-like of shape (n_features,), optional
        Direction around which the means are distributed.
    prior_concentration : float, optional
        Concentration of the means around `prior_direction`.
    prior_log_mean, prior_log_variance : float, optional
        Mean and variance of the logarithms of the concentrations.
    init : {"k-means++", "random"}, labels or means
        The start: rows far from each other, random labels, an integer label for each row (-1: no label), or a mean
        for each component.
    initial_concentration : float, optional
        Concentration of the start. By default a broad one, at which responsibilities have half the entropy of a
        uniform distribution; for given labels, the estimate from the labels; for random labels, 10.
    annealing_steps : int, optional
        Iterations of annealing at the start; by default 25, and 0 for given labels or means.
    n_init : int
        Number of starts. They run in parallel, and the best result is kept.
    selection : {"auto", "halves", "density"}
        How "auto" selects the number. "halves": the smallest number at which the components of one half of the words
        of a document tell nearly as much as possible about those of the other half. "density": the number with the
        highest density of held-out rows. "auto": "halves" if X has words (it is sparse and not negative).
    calibration : {"auto"} or None
        "auto": if X has words, probabilities are tempered, so that the probabilities of the components of one half of
        the words of a document are right for the other half. The most probable component is the same. None: the
        probabilities of the model, which are nearly all 0 or 1 for texts.
    keep_empty : bool
        Keep components that no row is assigned to, and components with the same mean. By default they are dropped and
        merged at the end of `fit`; `n_components_` is the number that is left.
    n_chains, n_warmup, n_samples : int
        For `inference="gibbs"`: number of chains, which run in parallel; sweeps of each chain that are discarded;
        sweeps that are kept.
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
    engine : None, "threads", "ray" or RayEngine
        Where the E-step runs: in this process, or on shards of the rows on the workers of a Ray cluster (extra `ray`;
        "ray" starts one on this machine). The result is the same for any number of workers, and equals that of this
        process up to rounding.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

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
    density_quantiles_ : ndarray
        Quantiles of the log-densities of training rows, each under the model without that row; see `is_novel`.
    selection_ : dict
        Numbers of components that were tried, their scores, and the criterion, if `n_components` is "auto".
    stream_counts_, stream_sums_, seen_weight_ : see `VMFMixture`
    n_components_ : int
        Number of components found; see `keep_empty`.
    calibration_temperature_ : float
        Temperature of the probabilities; see `calibration`.
    n_zero_rows_ : int
        Number of zero rows of the fit.
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int

    Notes
    -----
    Densities are those of the posterior predictive distribution: the mean directions are integrated out exactly, the
    concentrations by quadrature. Probabilities of components are those of the variational posterior, for new rows and
    for training rows: a component without rows, whose predictive density is broad, does not attract outliers.
    Rows are divided by their length; a zero row takes no part in the fit.

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
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PartialFitMixture._parameter_constraints,
        **BAYESIAN_CONSTRAINTS,
        "inference": [StrOptions({"variational", "gibbs"})],
        "concentration": [StrOptions({"shared", "own"})],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "n_samples": [Interval(Integral, 4, None, closed="left")],
    }

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
        selection: str = "auto",
        calibration: str | None = "auto",
        keep_empty: bool = False,
        n_chains: int = 2,
        n_warmup: int = 100,
        n_samples: int = 200,
        tol: float = 1e-4,
        max_iter: int = 200,
        batch_size: int | None = None,
        dtype: str = "float32",
        n_jobs: int | None = None,
        engine: Engine | str | None = None,
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
        self.selection = selection
        self.calibration = calibration
        self.keep_empty = keep_empty
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

    def _learn(self, X: Any, weight: Matrix, total_samples: float | None, engine: Engine) -> None:
        if self.inference == "gibbs":
            raise ValueError(
                "partial_fit needs inference='variational': sampling passes over all rows many times."
            )
        super()._learn(X, weight, total_samples, engine)

    # --- the model ------------------------------------------------------------------------------------------------

    def _check_X(self, X: sp.csr_array) -> Any:
        return unit_rows_of_file(X)

    def _selector(self) -> Mixture:
        return VMFMixture(self.n_components, init="annealed", dtype=self.dtype)

    def _inference(self) -> Inference:
        return inference_of(self, shared=self.concentration == "shared")

    def _model(self, rows: WeightedRows) -> MixtureModel:
        how = self._inference()
        extra = partial(posterior_extra, shared=how.shared)
        return MixtureModel(posterior_scores, partial(update_posterior, how), extra)

    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Engine
    ) -> VMFPosterior:
        return start_posterior(self, self._inference(), rows, init, n_components, rng, engine)

    def _set(self, params: VMFPosterior) -> None:
        set_posterior(self, params)

    def _params(self) -> VMFPosterior:
        return get_posterior(self)

    def _n_parameters(self) -> int:
        return n_mixture_parameters(self)

    def _fitted_means(self, params: VMFPosterior) -> Matrix:
        return params.directions

    def _log_joint(self, params: VMFPosterior, X: sp.csr_array) -> Array:
        return posterior_log_joint(params, X)

    def _density(self, params: VMFPosterior, X: sp.csr_array) -> Array:
        return mixture_log_density(params, X)

    def _left_out(self, params: VMFPosterior, X: sp.csr_array, weight: Matrix, stats: Stats) -> Array:
        return left_out_mixture_log_density(params, self._log_joint(params, X), X, weight)

    def _draw(self, labels: Ints, rng: np.random.Generator) -> Array:
        kappa = KappaPosterior(*self.kappa_posterior_[:, labels])
        return sample_predictive(self.means_[labels], self.mean_concentrations_[labels], kappa, rng)

    # --- Gibbs sampling -------------------------------------------------------------------------------------------

    def _fit(self, X: Any, weight: Matrix, seed: int, engine: Engine) -> None:
        if self.inference == "gibbs" and not np.isin(weight, (0.0, 1.0)).all():
            raise ValueError(
                "inference='gibbs' samples one component for each row: give no weights but 0 and 1, or use "
                "inference='variational'."
            )
        if self.inference == "gibbs":
            require_shared_memory(engine, "inference='gibbs'", "use engine=None, or inference='variational'")
        super()._fit(X, weight, seed, engine)
        if self.inference == "gibbs":
            self._sample_posterior(X, weight, seed, engine)

    def _sample_posterior(self, X: Any, weight: Matrix, seed: int, engine: Engine) -> None:
        """Run chains from different variational solutions and store their common posterior."""
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
            sampler, seen, states, ChainSchedule(self.n_warmup, self.n_samples), seed, engine
        )
        self.trace_, self.draws_, self.rhat_ = found.trace, found.draws, found.rhat
        self._set(found.projection)
        unseen = np.flatnonzero(weight == 0)
        self.responsibilities_ = np.empty((X.shape[0], n_components))
        self.responsibilities_[kept] = found.resp
        joint = self._log_joint(found.projection, X[unseen])
        zero = self._zero_rows(X[unseen])
        joint[zero] = self._log_prior(X[unseen[zero]])
        self.responsibilities_[unseen] = softmax(joint, axis=1)
        self.density_quantiles_ = left_out_quantiles(self, found.projection, X, weight, engine)
        warn_unless_mixed(found.rhat)
