r"""Temporal mixtures of von Mises-Fisher distributions: clusters whose means wander over time.

.. math:: \mu_{1k} &\sim \mathrm{vMF}(\mu_0, C_0), \quad \mu_{tk} \sim \mathrm{vMF}(\mu_{t-1,k}, C), \quad
          \kappa_k \sim \mathrm{logNormal}(m, \sigma^2), \\
          z_{ti} &\sim \mathrm{Categorical}(\pi_t), \quad x_{ti} \sim \mathrm{vMF}(\mu_{t z_{ti}}, \kappa_{z_{ti}}),

with weights that stay, :math:`\pi_t = \pi \sim \mathrm{Dirichlet}(\alpha)`, or wander (see `_weight_walk`). A cluster
is the same one at all times; times without rows are passed over by its mean. One point of time is the Bayesian
mixture. The updates are in `_vmf_chain`.

The papers have one concentration for the first means around :math:`\mu_0` and for each mean around the one before.
One that ties a cluster to its past would then tie all clusters to each other, so here they are two: :math:`C_0` is
learned by a mixture without times, and C is set by the user, as the papers advise: the most likely C is too low.

References
----------
S. Gopal and Y. Yang (2014). Von Mises-Fisher clustering models. ICML.
S. Gopal (2014). Large-scale Structured Learning. PhD thesis, Carnegie Mellon University, section 5.5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.core.progress import Progress
from arbora.discover._mixture.initialization import Init
from arbora.discover._mixture.rows import unit_rows
from arbora.discover.vmf.bayesian import BayesianVMFMixture
from arbora.discover.vmf.concentration import POSTERIORS, KappaPosterior, largest_kappa
from arbora.discover.vmf.posterior import Inference, VMFPosterior, VMFPrior
from arbora.discover.vmf.temporal.dynamics import ClusterLife
from arbora.discover.vmf.temporal.posterior import (
    ChainPosterior,
    at_time,
    chain_extra,
    chain_scores,
    from_blocks,
    marginal_concentrations,
    share_counts,
    to_blocks,
    update_chain,
)
from arbora.discover.vmf.temporal.prediction import TimedQuestions
from arbora.discover.vmf.temporal.timeline import UNITS, make_timeline, points_of, read_times
from arbora.discover.vmf.temporal.weight_walk import WeightWalk, start_walk
from arbora.infer.mixture.loop import MixtureModel, run
from arbora.infer.mixture.statistics import Stats, WeightedRows
from arbora.special import bessel_ratio, kappa_mle

_FLAT_ITERATIONS = 15  # without times, at the start
_LEARN = "learn"
_FIRST_PERSISTENCE = 0.9  # where learning it begins


class TemporalVMFMixture(TimedQuestions, ClusterLife, BayesianVMFMixture):
    """Mixture of von Mises-Fisher distributions that changes over time.

    Parameters
    ----------
    n_components : int or "auto"
        Number of clusters. "auto": the number with the highest density of rows that are held out.
    bins : None, int, {"year", "month", "week", "day"} or array-like
        Points of time. None: every time that occurs. Otherwise bins of equal width, units of the calendar, or edges;
        some of them may have no rows.
    persistence : float or "learn"
        How much clusters stay what they are: the expected cosine of a mean with the one before it, from which the
        concentration C follows. "learn": from the data. That is most often too low, as the papers say.
    weights : {"static", "evolving"}
        Whether the shares of clusters are the same at all times, or follow a random walk.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed; see `BayesianVMFMixture`.
    alpha : float, optional
        Parameter of the Dirichlet prior of weights that are static. None, here and below: learned from the data.
    prior_direction : array-like of shape (n_features,), optional
        Direction that the means of the first time lie around.
    prior_concentration : float, optional
        Concentration of the means of the first time around it.
    prior_log_mean, prior_log_variance : float, optional
        Mean and variance of the logarithms of the concentrations.
    init : {"k-means++", "random"} or labels
        Where to begin, without regard to time: rows far from each other, random labels, or an integer label for each
        row (-1: none).
    initial_concentration, annealing_steps
        Of the start; see `BayesianVMFMixture`.
    n_init : int
        Starts, of which the best is kept; they run in parallel.
    tol : float
        Gain of the bound per row, in nats, below which to stop.
    max_iter : int
        Most iterations, or passes over the data in mini-batches.
    batch_size : int, optional
        Rows in a mini-batch (stochastic variational inference); all rows at once by default.
    dtype : {"float32", "float64"}
        Precision of the fit. A fitted model answers in double precision.
    n_jobs : int, optional
        Threads; the result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    times_ : ndarray of shape (n_times,)
        Where each point of time begins: numbers, or dates to the second.
    time_end_ : scalar
        The last moment of the last one.
    means_ : ndarray of shape (n_times, n_components, n_features)
        Directions of the posterior means.
    mean_concentrations_ : ndarray of shape (n_times, n_components)
        Concentrations of the posteriors of the means: how certain they are.
    concentrations_ : ndarray of shape (n_components,)
        Posterior means of the concentrations of rows.
    kappa_posterior_ : ndarray of shape (5, n_components)
        See `BayesianVMFMixture`.
    predictive_kappa_ : ndarray of shape (5, n_components)
        The same, as answers about rows need it; see the notes.
    transition_concentration_ : float
        Concentration of a mean around the one before it.
    weights_ : ndarray of shape (n_components,)
        Weights at the last time.
    time_weights_ : ndarray of shape (n_times, n_components)
        Weights at each time.
    counts_ : ndarray of shape (n_times, n_components)
        Rows in each cluster at each time, by their probabilities.
    dirichlet_ : ndarray of shape (n_components,)
        Posterior of static weights.
    walk_ : dict
        Means and variances of the walk of evolving weights; empty if they are static.
    prior_ : dict
        `alpha`, `direction`, `concentration`, `log_mean` and `log_variance`, as given or learned.
    lower_bounds_ : ndarray
        Evidence lower bound by iteration, with all its constants.
    trace_ : Trace
    density_quantiles_ : ndarray
        Quantiles of the log-density of training rows, each left out of the model; see `is_novel`.
    n_components_ : int
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int

    Notes
    -----
    Times are the second argument of `fit` and of the questions. Rows without times are taken to be of the last point
    of time, and of the next one with ``times="next"``.

    The factors of the posterior take their neighbours in time as certain. Densities, probabilities and samples are
    those of the predictive distribution with that set right by linear response: means are as uncertain as the whole
    chain is.

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

    _streams: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BayesianVMFMixture._parameter_constraints,
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
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, times: Any = None, sample_weight: Any = None) -> TemporalVMFMixture:
        """Find the clusters and how they change.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_samples,), optional
            Dates (numpy, datetime, or texts like "1999-12-31") or numbers; see `bins`. None: all at one time.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts; a weight of 2 is a row twice.

        Returns
        -------
        self
        """
        return super().fit(X, times, sample_weight)

    def _check_X(self, X: sp.csr_array, weight: NDArray[Any] | None = None) -> sp.csr_array:
        return unit_rows(X, weight)

    def _placed(self, X: sp.csr_array, y: Any) -> sp.csr_array:
        """Put rows into the blocks of their times."""
        if not isinstance(self.init, str) and np.ndim(self.init) != 1:
            raise ValueError("init must be 'k-means++', 'random' or labels: means would be of one time.")
        read = read_times(np.zeros(X.shape[0]) if y is None else y, X.shape[0])
        timeline = make_timeline(read, self.bins)
        self.times_, self.time_end_ = timeline
        return to_blocks(X, points_of(timeline, read), len(self.times_))

    def _how(self) -> Inference:
        given = set(self._given_prior()) | ({"transition"} if self.persistence != _LEARN else set())
        shared, largest = self.concentration == "shared", largest_kappa(self.dtype)
        return Inference(POSTERIORS[self.concentration_posterior], frozenset(given), shared, largest)

    def _model(self, rows: WeightedRows) -> MixtureModel:
        how = self._how()
        return MixtureModel(chain_scores, partial(update_chain, how), partial(chain_extra, how))

    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Any
    ) -> ChainPosterior:
        """Begin with a Bayesian mixture of all rows, so that a cluster is the same one at all times."""
        n_times, n_features = len(self.times_), self.n_features_in_
        flat = WeightedRows(from_blocks(rows.X, n_features, n_times)[0], rows.weight)
        start = super()._begin(flat, init, n_components, rng, engine)
        schedule = self._schedule(0)._replace(max_iter=_FLAT_ITERATIONS)
        q = run(super()._model(flat), flat, start, schedule, engine, Progress(None, "", False)).params
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
        return n_times * n_components * (n_features - 1) + n_kappa + n_weights + n_transitions

    # --- questions about rows, each by the mixture of its time ----------------------------------------------------

    def _by_time(
        self,
        params: ChainPosterior,
        X: sp.csr_array,
        function: Callable[[VMFPosterior, sp.csr_array, Any], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        """Apply a function of a Bayesian mixture, its rows and their numbers to the rows of each time."""
        plain, points = from_blocks(X, self.n_features_in_, len(self.times_))
        parts, mean_concentrations = [], marginal_concentrations(params)
        order = np.argsort(points, kind="stable")
        for ids in np.split(order, np.flatnonzero(np.diff(points[order])) + 1):
            parts.append(function(at_time(params, int(points[ids[0]]), mean_concentrations), plain[ids], ids))
        found = np.concatenate(parts)
        out = np.empty_like(found)
        out[order] = found
        return out

    def _log_joint(self, params: Any, X: sp.csr_array) -> NDArray[np.float64]:
        known = super()._log_joint
        if isinstance(params, VMFPosterior):
            return known(params, X)
        return self._by_time(params, X, lambda q, part, ids: known(q, part))

    def _density(self, params: Any, X: sp.csr_array) -> NDArray[np.float64]:
        known = super()._density
        if isinstance(params, VMFPosterior):
            return known(params, X)
        return self._by_time(params, X, lambda q, part, ids: known(q, part))

    def _left_out(
        self, params: Any, X: sp.csr_array, weight: NDArray[Any], stats: Stats
    ) -> NDArray[np.float64]:
        known = super()._left_out
        return self._by_time(params, X, lambda q, part, ids: known(q, part, weight[ids], stats))

    @property
    def persistence_(self) -> float:
        """Expected cosine of a mean with the one before it."""
        return float(bessel_ratio(self.n_features_in_ / 2 - 1, self.transition_concentration_))
