r"""Temporal mixtures of von Mises-Fisher distributions: clusters whose means change over time.

.. math:: \mu_{1k} &\sim \mathrm{vMF}(\mu_0, C_0), \quad \mu_{tk} \sim \mathrm{vMF}(\mu_{t-1,k}, C), \quad
          \kappa_k \sim \mathrm{logNormal}(m, \sigma^2), \\
          z_{ti} &\sim \mathrm{Categorical}(\pi_t), \quad x_{ti} \sim \mathrm{vMF}(\mu_{t z_{ti}}, \kappa_{z_{ti}}),

with static weights, :math:`\pi_t = \pi \sim \mathrm{Dirichlet}(\alpha)`, or weights that follow a random walk (see
`weight_walk`). A cluster keeps its identity at all times; its mean moves on through times without rows. With one
point of time the model is the Bayesian mixture. The updates are in `posterior`.

The papers use one concentration for the first means around :math:`\mu_0` and for each mean around the one before. A
concentration that ties a cluster to its past would then tie all clusters to each other, so here there are two:
:math:`C_0` is learned by a mixture without times, and C is set by the user, as the papers advise: the most likely C
is too low.

References
----------
S. Gopal and Y. Yang (2014). Von Mises-Fisher clustering models. ICML.
S. Gopal (2014). Large-scale Structured Learning. PhD thesis, Carnegie Mellon University, section 5.5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.core.engine import Engine
from arbora.discover.mixture.base import Mixture
from arbora.discover.mixture.prediction import log_weights
from arbora.discover.mixture.rows import unit_rows
from arbora.discover.mixture.selection import Halves
from arbora.discover.mixture.starts import Init
from arbora.discover.vmf.bayesian import (
    BAYESIAN_CONSTRAINTS,
    inference_of,
    posterior_log_joint,
    start_posterior,
)
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.mixture import VMFMixture
from arbora.discover.vmf.posterior import (
    Inference,
    VMFPosterior,
    VMFPrior,
    left_out_mixture_log_density,
    mixture_log_density,
    posterior_extra,
    posterior_scores,
    update_posterior,
)
from arbora.discover.vmf.temporal.prediction import TimedPredictionMixture
from arbora.discover.vmf.temporal.timeline import UNITS, make_timeline, points_of, read_times
from arbora.discover.vmf.temporal_posterior import (
    ChainPosterior,
    WeightWalk,
    at_time,
    chain_extra,
    chain_scores,
    from_blocks,
    marginal_concentrations,
    share_counts,
    start_walk,
    to_blocks,
    update_chain,
)
from arbora.infer.mixture.loop import MixtureModel, run
from arbora.infer.mixture.statistics import Stats, WeightedRows
from arbora.special import bessel_ratio, kappa_mle

_FLAT_ITERATIONS = 15  # iterations of the start, a mixture without times
_LEARN = "learn"
_FIRST_PERSISTENCE = 0.9  # initial value, if it is learned


def by_time(
    params: ChainPosterior,
    X: sp.csr_array,
    function: Callable[[VMFPosterior, sp.csr_array, NDArray[np.int64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Apply a function of a Bayesian mixture, its rows and their numbers to the rows of each time.

    Parameters
    ----------
    params : ChainPosterior
    X : CSR array
        Rows in blocks; see `to_blocks`.
    function : callable

    Returns
    -------
    ndarray of shape (n_samples, ...)
        The results, in the order of the rows.
    """
    n_times, n_features, _ = params.directions.shape
    plain, points = from_blocks(X, n_features, n_times)
    parts, concentrations = [], marginal_concentrations(params)
    order = np.argsort(points, kind="stable")
    for ids in np.split(order, np.flatnonzero(np.diff(points[order])) + 1):
        parts.append(function(at_time(params, int(points[ids[0]]), concentrations), plain[ids], ids))
    found = np.concatenate(parts)
    out = np.empty_like(found)
    out[order] = found
    return out


class TemporalVMFMixture(TimedPredictionMixture):
    """Mixture of von Mises-Fisher distributions that changes over time.

    Parameters
    ----------
    n_components : int or "auto"
        Number of clusters. "auto": see `selection`.
    bins : None, int, {"year", "month", "week", "day"} or array-like
        Points of time. None: every time that occurs. Otherwise a number of bins of equal width, a unit of the
        calendar, or edges. Bins may have no rows.
    persistence : float or "learn"
        Expected cosine of a mean with the one before it, which determines the concentration C. "learn": learned from
        the data. The learned value is usually too low, as the papers report.
    weights : {"static", "evolving"}
        "static": the weights of clusters are the same at all times. "evolving": they follow a random walk.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed; see `BayesianVMFMixture`.
    alpha : float, optional
        Parameter of the Dirichlet prior of static weights. None, here and below: learned from the data.
    prior_direction : array-like of shape (n_features,), optional
        Direction around which the means of the first time are distributed.
    prior_concentration : float, optional
        Concentration of the means of the first time around `prior_direction`.
    prior_log_mean, prior_log_variance : float, optional
        Mean and variance of the logarithms of the concentrations.
    init : {"k-means++", "random"} or labels
        The start, without times: rows far from each other, random labels, or an integer label for each row (-1: no
        label).
    initial_concentration, annealing_steps
        Parameters of the start; see `BayesianVMFMixture`.
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
    tol : float
        Stop when the bound gains less than this per row, in nats.
    max_iter : int
        Maximum number of iterations, or of passes over the data with mini-batches.
    batch_size : int, optional
        Rows in a mini-batch (stochastic variational inference); all rows at once by default.
    dtype : {"float32", "float64"}
        Precision of the fit. Predictions use double precision.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

    Attributes
    ----------
    times_ : ndarray of shape (n_times,)
        Begin of each point of time: numbers, or dates to the second.
    time_end_ : scalar
        End of the last point of time.
    means_ : ndarray of shape (n_times, n_components, n_features)
        Directions of the posterior means.
    mean_concentrations_ : ndarray of shape (n_times, n_components)
        Concentrations of the posteriors of the means: how certain the means are.
    concentrations_ : ndarray of shape (n_components,)
        Posterior means of the concentrations of rows.
    kappa_posterior_ : ndarray of shape (5, n_components)
        See `BayesianVMFMixture`.
    predictive_kappa_ : ndarray of shape (5, n_components)
        The same for predictions; see the notes.
    transition_concentration_ : float
        Concentration of a mean around the one before it.
    weights_ : ndarray of shape (n_components,)
        Weights at the last time.
    time_weights_ : ndarray of shape (n_times, n_components)
        Weights at each time.
    counts_ : ndarray of shape (n_times, n_components)
        Expected number of rows in each cluster at each time.
    dirichlet_ : ndarray of shape (n_components,)
        Parameters of the posterior of static weights.
    walk_ : dict
        Means and variances of the random walk of evolving weights; empty for static weights.
    prior_ : dict
        `alpha`, `direction`, `concentration`, `log_mean` and `log_variance`, as given or learned.
    lower_bounds_ : ndarray
        Evidence lower bound in each iteration, with all constants.
    trace_ : Trace
    density_quantiles_ : ndarray
        Quantiles of the log-densities of training rows, each under the model without that row; see `is_novel`.
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
    Times are the second argument of `fit` and of the other methods. Rows without times belong to the last point of
    time, and to the next one with ``times="next"``.

    The factors of the posterior treat their neighbours in time as certain. Densities, probabilities and samples are
    those of the predictive distribution with a correction by linear response: means are as uncertain as in the whole
    chain.

    Examples
    --------
    >>> from arbora.datasets import make_temporal_vmf
    >>> from arbora.discover import TemporalVMFMixture
    >>> data = make_temporal_vmf(600, 6, 3, 5, random_state=0)
    >>> model = TemporalVMFMixture(3, n_init=3, random_state=0).fit(data.X_train, data.extra["time"])
    >>> model.means_.shape
    (5, 3, 6)
    >>> model.predict(data.X_train, data.extra["time"]).shape, model.predict_next(data.X_train[:2]).shape
    ((600,), (2,))
    """

    _min_features: ClassVar[int] = 2
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **TimedPredictionMixture._parameter_constraints,
        **BAYESIAN_CONSTRAINTS,
        "concentration": [StrOptions({"shared", "own"})],
        "bins": [None, Interval(Integral, 1, None, closed="left"), StrOptions(set(UNITS)), "array-like"],
        "persistence": [Interval(Real, 0, 1, closed="neither"), StrOptions({_LEARN})],
        "weights": [StrOptions({"static", "evolving"})],
    }

    def __init__(
        self,
        n_components: int | str = 8,
        *,
        bins: Any = None,
        persistence: float | str = 0.98,
        weights: str = "static",
        concentration: str = "own",
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
        tol: float = 1e-4,
        max_iter: int = 200,
        batch_size: int | None = None,
        dtype: str = "float32",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.bins = bins
        self.persistence = persistence
        self.weights = weights
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
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, times: Any = None, sample_weight: Any = None) -> Self:
        """Find the clusters and how they change.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), optional
            Dates (numpy, datetime, or texts like "1999-12-31") or numbers; see `bins`. None: one time for all rows.
        sample_weight : array-like of shape (n_samples,), optional
            Number of times that each row counts; a weight of 2 is the same row twice.

        Returns
        -------
        self
        """
        return super().fit(X, times, sample_weight)

    @property
    def persistence_(self) -> float:
        """Expected cosine of a mean with the one before it."""
        return float(bessel_ratio(self.n_features_in_ / 2 - 1, self.transition_concentration_))

    # --- the model ------------------------------------------------------------------------------------------------

    def _check_X(self, X: sp.csr_array) -> sp.csr_array:
        return unit_rows(X)

    def _place_rows(self, X: sp.csr_array, y: Any) -> sp.csr_array:
        """Put rows into the blocks of their times."""
        if not isinstance(self.init, str) and np.ndim(self.init) != 1:
            raise ValueError(
                "init must be 'k-means++', 'random' or labels: means of one time cannot start all times."
            )
        read = read_times(np.zeros(X.shape[0]) if y is None else y, X.shape[0])
        timeline = make_timeline(read, self.bins)
        self.times_, self.time_end_ = timeline
        return to_blocks(X, points_of(timeline, read), len(self.times_))

    def _plain_rows(self, X: sp.csr_array) -> sp.csr_array:
        return from_blocks(X, self.n_features_in_, len(self.times_))[0]

    def _place_halves(self, halves: Halves, X: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
        points = from_blocks(X[halves.ids], self.n_features_in_, len(self.times_))[1]
        A, B = (to_blocks(half, points, len(self.times_)) for half in halves[:2])
        return A, B

    def _zero_rows(self, X: sp.csr_array) -> NDArray[np.bool_]:
        return super()._zero_rows(self._plain_rows(X))

    def _log_prior(self, X: sp.csr_array) -> NDArray[np.float64]:
        points = from_blocks(X, self.n_features_in_, len(self.times_))[1]
        return np.asarray(log_weights(self.time_weights_[np.minimum(points, len(self.times_) - 1)]))

    def _selector(self) -> Mixture:
        return VMFMixture(self.n_components, init="annealed", dtype=self.dtype)

    def _inference(self) -> Inference:
        fixed = frozenset() if self.persistence == _LEARN else frozenset({"transition"})
        return inference_of(self, shared=self.concentration == "shared", fixed=fixed)

    def _model(self, rows: WeightedRows) -> MixtureModel:
        how = self._inference()
        return MixtureModel(chain_scores, partial(update_chain, how), partial(chain_extra, how))

    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Engine
    ) -> ChainPosterior:
        """Start from a Bayesian mixture of all rows without times, so that a cluster keeps its identity."""
        n_times, n_features = len(self.times_), self.n_features_in_
        flat = WeightedRows(from_blocks(rows.X, n_features, n_times)[0], rows.weight)
        how = self._inference()
        start = start_posterior(self, how, flat, init, n_components, rng, engine)
        extra = partial(posterior_extra, shared=how.shared)
        model = MixtureModel(posterior_scores, partial(update_posterior, how), extra)
        schedule = self._schedule(0)._replace(max_iter=_FLAT_ITERATIONS)
        q = run(model, flat, start, schedule, engine).params
        cosine = _FIRST_PERSISTENCE if self.persistence == _LEARN else self.persistence
        shape = (n_times, n_components)
        return ChainPosterior(
            directions=np.repeat(q.directions[None], n_times, axis=0),
            mean_concentrations=np.broadcast_to(q.mean_concentrations, shape).copy(),
            dirichlet=q.dirichlet,
            kappa=q.kappa,
            prior=q.prior,
            transition=float(kappa_mle(cosine, n_features)),
            counts=np.zeros(shape),
            walk=start_walk(q.dirichlet / q.dirichlet.sum(), n_times) if self.weights == "evolving" else None,
            predictive=q.kappa,
        )

    def _set(self, params: ChainPosterior) -> None:
        means = params.directions.transpose(0, 2, 1).astype(np.float64)
        self.means_ = means / np.linalg.norm(means, axis=2, keepdims=True)
        self.mean_concentrations_ = params.mean_concentrations
        self.kappa_posterior_ = np.array(params.kappa)
        self.predictive_kappa_ = np.array(params.predictive)
        self.concentrations_ = params.kappa.mean
        self.transition_concentration_ = params.transition
        self.dirichlet_, self.counts_ = params.dirichlet, params.counts
        self.walk_ = {} if params.walk is None else params.walk._asdict()
        shares = share_counts(params)
        self.time_weights_ = shares / shares.sum(axis=1, keepdims=True)
        self.weights_ = self.time_weights_[-1]
        self.prior_ = params.prior._asdict()

    def _params(self) -> ChainPosterior:
        return ChainPosterior(
            directions=np.ascontiguousarray(self.means_.transpose(0, 2, 1)),
            mean_concentrations=self.mean_concentrations_,
            dirichlet=self.dirichlet_,
            kappa=KappaPosterior(*self.kappa_posterior_),
            prior=VMFPrior(**self.prior_),
            transition=self.transition_concentration_,
            counts=self.counts_,
            walk=WeightWalk(**self.walk_) if self.walk_ else None,
            predictive=KappaPosterior(*self.predictive_kappa_),
        )

    def _n_parameters(self) -> int:
        n_times, n_components, n_features = self.means_.shape
        n_kappa = 1 if self.concentration == "shared" else n_components
        n_weights = (n_times if self.walk_ else 1) * (n_components - 1)
        n_transitions = int(self.persistence == _LEARN and n_times > 1)
        return int(n_times * n_components * (n_features - 1) + n_kappa + n_weights + n_transitions)

    def _log_joint(self, params: ChainPosterior, X: sp.csr_array) -> NDArray[np.float64]:
        return by_time(params, X, lambda q, rows, ids: posterior_log_joint(q, rows))

    def _density(self, params: ChainPosterior, X: sp.csr_array) -> NDArray[np.float64]:
        return by_time(params, X, lambda q, rows, ids: mixture_log_density(q, rows))

    def _left_out(
        self, params: ChainPosterior, X: sp.csr_array, weight: NDArray[Any], stats: Stats
    ) -> NDArray[np.float64]:
        def left_out(q: VMFPosterior, rows: sp.csr_array, ids: NDArray[np.int64]) -> NDArray[np.float64]:
            return left_out_mixture_log_density(q, posterior_log_joint(q, rows), rows, weight[ids])

        return by_time(params, X, left_out)
