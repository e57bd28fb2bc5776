r"""Temporal mixtures of von Mises-Fisher distributions: clusters whose means change over time.

.. math:: \mu_{1k} &\sim \mathrm{vMF}(\mu_0, C_0), \quad \mu_{tk} \sim \mathrm{vMF}(\mu_{t-1,k}, C), \quad
          \kappa_k \sim \mathrm{logNormal}(m, \sigma^2), \\
          z_{ti} &\sim \mathrm{Categorical}(\pi_t), \quad x_{ti} \sim \mathrm{vMF}(\mu_{t z_{ti}}, \kappa_{z_{ti}}),

with static weights, :math:`\pi_t = \pi \sim \mathrm{Dirichlet}(\alpha)`, or weights that follow a random walk (see
`temporal_posterior`). A cluster keeps its identity at all times; its mean moves on through times without rows. With
one point of time the model is the Bayesian mixture. The updates are in `temporal_posterior`.

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
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.core.estimator import draw_generator
from arbora.discover.mixture.base import Start
from arbora.discover.mixture.describe import Features, check_count, largest_features, nearest_rows
from arbora.discover.mixture.rows import unit_rows
from arbora.discover.mixture.selection import Halves
from arbora.discover.vmf.bayesian import PRIOR_CONSTRAINTS, BayesianComponents, posterior_log_joint
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.posterior import (
    VMFPosterior,
    VMFPrior,
    left_out_mixture_log_density,
    mixture_log_density,
    posterior_extra,
    posterior_scores,
    sample_predictive,
    update_posterior,
)
from arbora.discover.vmf.temporal_posterior import (
    ChainPosterior,
    ClusterDynamics,
    Vocabulary,
    WeightWalk,
    at_time,
    chain_extra,
    chain_scores,
    cluster_dynamics,
    from_blocks,
    marginal_concentrations,
    share_counts,
    start_walk,
    to_blocks,
    update_chain,
)
from arbora.infer.mixture.loop import MixtureModel, run
from arbora.infer.mixture.statistics import Stats, WeightedRows, log_weights
from arbora.special import bessel_ratio, kappa_mle

# --- Points of time: dates, numbers or bins of them, in ascending order; bins may be empty ------------------


UNITS = ("year", "month", "week", "day")
_CODES = {"year": "Y", "month": "M", "day": "D"}
_MONDAY = np.datetime64("1970-01-05", "D")
_SECOND = "datetime64[s]"


class Timeline(NamedTuple):
    """Points of time: the begin of each (numbers, or dates to the second), and the end of the last."""

    starts: Matrix
    end: Any

    @property
    def is_dates(self) -> bool:
        """Whether times are dates."""
        return bool(self.starts.dtype.kind == "M")


def read_times(times: Any, n_samples: int) -> Matrix:
    """Read a time for each row: float64, or datetime64[s] for dates and texts in the form of ISO 8601."""
    values = np.asarray(times)
    if values.shape != (n_samples,):
        raise ValueError(
            f"times must have one time for each of the {n_samples} rows, got shape {values.shape}."
        )
    if values.dtype.kind == "O" and all(isinstance(time, Real) for time in values):
        values = values.astype(np.float64)  # otherwise they would be read as seconds since 1970
    try:
        read = values.astype(np.float64 if values.dtype.kind in "biuf" else _SECOND)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"times must be numbers, dates, or texts like '1999-12-31' ({error}); pandas.to_datetime converts others."
        ) from None
    missing = np.flatnonzero(~np.isfinite(read))
    if len(missing):
        raise ValueError(
            f"row {missing[0]} has no time, or an infinite one ({len(missing)} rows in all): drop these rows."
        )
    return read


def make_timeline(times: Matrix, bins: Any = None) -> Timeline:
    """Choose points of time for given times.

    `bins` None: every time that occurs is a point. Otherwise a number of bins of equal width; "year", "month", "week"
    or "day"; or edges.
    """
    if bins is None:
        starts = np.unique(times)
        return Timeline(starts, starts[-1])
    if isinstance(bins, str):
        return _calendar(times, bins)
    if np.ndim(bins) == 0:
        first, last = times.min(), times.max()
        if first == last:
            return Timeline(np.array([first]), last)
        # Dates are converted to integer seconds and back.
        edges = np.linspace(_number(first), _number(last), int(bins) + 1).astype(_number(times).dtype)
        return Timeline(edges[:-1].astype(times.dtype), last)
    edges = read_times(bins, len(np.asarray(bins)))
    if edges.dtype != times.dtype:
        raise ValueError(
            "bins and times must both be dates or both be numbers: give edges of the type of times."
        )
    if len(edges) < 2 or not np.all(edges[1:] > edges[:-1]):
        raise ValueError("bins must be at least two edges, each greater than the one before.")
    return Timeline(edges[:-1], edges[-1])


def _calendar(times: Matrix, unit: str) -> Timeline:
    if times.dtype.kind != "M":
        raise ValueError(f"bins={unit!r} needs dates, but times are numbers: give edges or a number of bins.")
    if unit == "week":
        weeks = (times.astype("datetime64[D]") - _MONDAY) // np.timedelta64(7, "D")
        first, last = int(weeks.min()), int(weeks.max())
        edges = (_MONDAY + 7 * np.arange(first, last + 2)).astype(_SECOND)
    else:
        units = times.astype(f"datetime64[{_CODES[unit]}]")
        edges = np.arange(units.min(), units.max() + 2).astype(_SECOND)
    return Timeline(edges[:-1], edges[-1] - np.timedelta64(1, "s"))


def _number(times: Any) -> Any:
    return np.asarray(times).astype(np.int64) if np.asarray(times).dtype.kind == "M" else np.asarray(times)


def points_of(timeline: Timeline, times: Matrix) -> Ints:
    """Return the point of time of each given time: the last that does not begin after it."""
    if (times.dtype.kind == "M") != timeline.is_dates:
        kind = "dates" if timeline.is_dates else "numbers"
        raise ValueError(f"times must be {kind}, like the times of the fit.")
    outside = np.flatnonzero((times < timeline.starts[0]) | (times > timeline.end))
    if len(outside):
        raise ValueError(
            f"the time of row {outside[0]}, {times[outside[0]]}, is not between {timeline.starts[0]} and "
            f"{timeline.end}; for later rows give times='next'."
        )
    return np.searchsorted(timeline.starts, times, side="right") - 1


# --- Prediction and description of a mixture over time. Times are the second argument of its methods --------


NEXT = "next"

Method = TypeVar("Method", bound=Callable[..., Any])

_ROWS = """

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
"""
_TIMES = """        times : array-like of shape (n_samples,), None or "next"
            None: the last point of time. "next": the one after it.
"""


def documented(returns: str, *, times: bool = True, extra: str = "") -> Callable[[Method], Method]:
    """Add the sections on parameters and returns to the docstring of a method."""

    def decorate(method: Method) -> Method:
        sections = _ROWS + (_TIMES if times else "") + extra
        method.__doc__ = (
            f"{method.__doc__ or ''}{sections}\n        Returns\n        -------\n        {returns}\n"
        )
        return method

    return decorate


# --- Temporal mixtures of von Mises-Fisher distributions: clusters whose means change over time -------------


_FLAT_ITERATIONS = 15  # iterations of the start, a mixture without times
_LEARN = "learn"
_FIRST_PERSISTENCE = 0.9  # initial value, if it is learned


def by_time(
    params: ChainPosterior,
    X: sp.csr_array,
    function: Callable[[VMFPosterior, sp.csr_array, Ints], Array],
) -> Array:
    """Apply a function of a Bayesian mixture, its rows and their numbers to the rows of each time.

    X has rows in blocks (see `to_blocks`). The results are in the order of the rows.
    """
    n_times, n_features, _ = params.directions.shape
    plain, points = from_blocks(X, n_features, n_times)
    parts, concentrations = [], marginal_concentrations(params)
    order = np.argsort(points, kind="stable")
    for ids in np.split(order, np.flatnonzero(np.diff(points[order])) + 1):
        parts.append(function(at_time(params, int(points[ids[0]]), concentrations), plain[ids], ids))
    results = np.concatenate(parts)
    out = np.empty_like(results)
    out[order] = results
    return out


class ChainPriorOptions(NamedTuple):
    """Options of the parameter `prior`; None: learned from the data."""

    alpha: float | None = None
    direction: Any = None
    concentration: float | None = None
    log_mean: float | None = None
    log_variance: float | None = None
    persistence: float | str = 0.98


_CHAIN_CONSTRAINTS = {
    **PRIOR_CONSTRAINTS,
    "persistence": [Interval(Real, 0, 1, closed="neither"), StrOptions({_LEARN})],
}


class TemporalVMFMixture(BayesianComponents):
    """Mixture of von Mises-Fisher distributions that changes over time.

    Parameters
    ----------
    n_components : int, "auto", "halves" or "density"
        Number of clusters, or how it is selected; see `VMFMixture`.
    bins : None, int, {"year", "month", "week", "day"} or array-like
        Points of time. None: every time that occurs. Otherwise a number of bins of equal width, a unit of the
        calendar, or edges. Bins may have no rows.
    weights : {"static", "evolving"}
        "static": the weights of clusters are the same at all times. "evolving": they follow a random walk.
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own.
    concentration_posterior : {"grid", "bound", "sample"}
        How the posterior of a concentration is computed; see `BayesianVMFMixture`.
    prior : dict, optional
        Parts of the prior; see `BayesianVMFMixture`. ``alpha`` is for static weights, ``direction`` and
        ``concentration`` are those of the means of the first time. ``persistence`` (default 0.98): expected cosine of
        a mean with the one before it, which determines the concentration C; "learn" learns it from the data, which
        usually gives too low a value, as the papers report.
    init : {"k-means++", "random"} or labels
        The start, without times: rows far from each other, random labels, or an integer label for each row (-1: no
        label).
    n_init, calibration, keep_empty, tol, max_iter, batch_size, n_jobs, random_state, verbose : see `VMFMixture`

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
    density_quantiles_, selection_, n_components_ : see `VMFMixture`
    calibration_temperature_, n_zero_rows_, n_iter_, converged_ : see `VMFMixture`
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

    _options: ClassVar[dict[str, Any]] = {"prior": (ChainPriorOptions, _CHAIN_CONSTRAINTS)}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BayesianComponents._parameter_constraints,
        "bins": [None, Interval(Integral, 1, None, closed="left"), StrOptions(set(UNITS)), "array-like"],
        "weights": [StrOptions({"static", "evolving"})],
    }

    def __init__(
        self,
        n_components: int | str = 8,
        *,
        bins: Any = None,
        weights: str = "static",
        concentration: str = "own",
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
        self.bins = bins
        self.weights = weights
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

    def _place_rows(self, X: sp.csr_array, y: Any, weight: Matrix) -> sp.csr_array:
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

    def _log_prior(self, X: sp.csr_array) -> Array:
        points = from_blocks(X, self.n_features_in_, len(self.times_))[1]
        return np.asarray(log_weights(self.time_weights_[np.minimum(points, len(self.times_) - 1)]))

    def _model(self, rows: WeightedRows) -> MixtureModel:
        is_learned = self._read_options("prior").persistence == _LEARN
        inference = self._inference() if is_learned else self._inference("transition")
        return MixtureModel(chain_scores, partial(update_chain, inference), partial(chain_extra, inference))

    def _start(self, start: Start) -> ChainPosterior:
        """Start from a Bayesian mixture of all rows without times, so that a cluster keeps its identity."""
        n_times, n_features = len(self.times_), self.n_features_in_
        flat = WeightedRows(from_blocks(start.rows.X, n_features, n_times)[0], start.rows.weight)
        params = self._start_components(start._replace(rows=flat))
        inference, persistence = self._inference(), self._read_options("prior").persistence
        extra = partial(posterior_extra, shared=inference.shared)
        model = MixtureModel(posterior_scores, partial(update_posterior, inference), extra)
        schedule = self._schedule(0)._replace(max_iter=_FLAT_ITERATIONS)
        q = run(model, flat, params, schedule, start.engine).params
        cosine = _FIRST_PERSISTENCE if persistence == _LEARN else persistence
        shape = (n_times, start.n_components)
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
        n_transitions = int(self._read_options("prior").persistence == _LEARN and n_times > 1)
        return int(n_times * n_components * (n_features - 1) + n_kappa + n_weights + n_transitions)

    def _log_joint(self, params: ChainPosterior, X: sp.csr_array) -> Array:
        return by_time(params, X, lambda q, rows, ids: posterior_log_joint(q, rows))

    def _log_density(self, params: ChainPosterior, X: sp.csr_array) -> Array:
        return by_time(params, X, lambda q, rows, ids: mixture_log_density(q, rows))

    def _left_out_log_density(
        self, params: ChainPosterior, X: sp.csr_array, weight: Matrix, stats: Stats
    ) -> Array:
        def left_out(q: VMFPosterior, rows: sp.csr_array, ids: Ints) -> Array:
            return left_out_mixture_log_density(q, posterior_log_joint(q, rows), rows, weight[ids])

        return by_time(params, X, left_out)

    # --- rows and their times -------------------------------------------------------------------------------------

    def _checked(self, X: Any, times: Any = None) -> sp.csr_array:
        """Validate rows and their times, and put rows into blocks."""
        checked, n_times = super()._checked(X), len(self.times_)
        if times is None or isinstance(times, str):
            if times not in (None, NEXT):
                raise ValueError(f"times must be one time for each row, None or 'next', got {times!r}.")
            points = np.full(checked.shape[0], n_times - (times is None))
        else:
            points = points_of(Timeline(self.times_, self.time_end_), read_times(times, checked.shape[0]))
        return to_blocks(checked, points, n_times)

    def _point(self, time: Any) -> int:
        """Return the number of a point of time; the last one for None."""
        check_is_fitted(self)
        if time is None:
            return len(self.times_) - 1
        return int(points_of(Timeline(self.times_, self.time_end_), read_times([time], 1))[0])

    # --- prediction -----------------------------------------------------------------------------------------------

    @documented(
        "ndarray of shape (n_samples,)",
        extra="        sample_weight : array-like of shape (n_samples,), optional\n",
    )
    def fit_predict(self, X: Any, times: Any = None, sample_weight: Any = None) -> Ints:
        """Find the clusters and return the cluster of each row."""
        return self.fit(X, times, sample_weight).predict(X, times)

    @documented("ndarray of shape (n_samples,)")
    def predict(self, X: Any, times: Any = None) -> Ints:
        """Return the most probable cluster of each row; -1 for a zero row."""
        return self._labels(self._checked(X, times))

    @documented("ndarray of shape (n_samples,)", times=False)
    def predict_next(self, X: Any) -> Ints:
        """Return the most probable cluster of each row at the next point of time."""
        return self.predict(X, NEXT)

    @documented("ndarray of shape (n_samples, n_components)")
    def predict_proba(self, X: Any, times: Any = None) -> Array:
        """Return the probability of each cluster given the row and its time."""
        return self._probabilities(self._checked(X, times))

    @documented("ndarray of shape (n_samples,)")
    def score_samples(self, X: Any, times: Any = None) -> Array:
        """Return the log-density of each row at its time, with all constants."""
        return self._log_densities(self._checked(X, times))

    @documented("float")
    def score(self, X: Any, times: Any = None) -> float:
        """Return the mean log-density of the rows at their times."""
        return float(self.score_samples(X, times).mean())

    @documented("float", times=False)
    def score_next(self, X: Any) -> float:
        """Return the mean log-density of rows at the next point of time."""
        return self.score(X, NEXT)

    @documented("float")
    def bic(self, X: Any, times: Any = None) -> float:
        """Return the Bayesian information criterion on X; lower is better."""
        scores = self.score_samples(X, times)
        return self._criterion(scores, np.log(len(scores)))

    @documented("float")
    def aic(self, X: Any, times: Any = None) -> float:
        """Return Akaike's information criterion on X; lower is better."""
        return self._criterion(self.score_samples(X, times), 2.0)

    @documented(
        "ndarray of bool, shape (n_samples,)",
        extra="        level : float\n            Share of false alarms, between 0 and 1.\n",
    )
    def is_novel(self, X: Any, times: Any = None, *, level: float = 0.05) -> NDArray[np.bool_]:
        """Return which rows are unlike the training data of their time; a zero row is."""
        return self._are_novel(self._checked(X, times), level)

    def sample(self, n_samples: int = 1, time: Any = None) -> tuple[Array, Ints]:
        """Draw rows from the posterior predictive distribution of a time.

        Parameters
        ----------
        n_samples : int
        time : date, number, None or "next"
            The last point of time by default.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,)
            The cluster of each row.
        """
        check_is_fitted(self)
        params, is_next = self._params(), isinstance(time, str) and time == NEXT
        point = len(self.times_) if is_next else self._point(time)
        q = at_time(params, point, marginal_concentrations(params))
        rng = draw_generator(self.random_state)
        labels = rng.choice(len(q.dirichlet), size=n_samples, p=q.dirichlet / q.dirichlet.sum())
        kappa = KappaPosterior(*(part[labels] for part in q.kappa))
        return sample_predictive(q.directions.T[labels], q.mean_concentrations[labels], kappa, rng), labels

    # --- description ----------------------------------------------------------------------------------------------

    def top_features(self, feature_names: Any = None, n: int = 10, time: Any = None) -> Features:
        """List the largest features of each cluster at a time.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of features in each list.
        time : date or number, optional
            The last point of time by default.

        Returns
        -------
        list of lists of (name, weight)
            One list for each cluster, largest weights first. Only positive weights are listed.
        """
        return largest_features(self, self.means_[self._point(time)], feature_names, n)

    @documented(
        "list of ndarray of int\n            Row numbers for each cluster, nearest first.",
        extra="        n : int\n            Number of rows for each cluster; fewer if the cluster has fewer.\n",
    )
    def representatives(  # type: ignore[override]  # times come second in all methods
        self, X: Any, times: Any = None, n: int = 5
    ) -> list[Ints]:
        """Find the most typical rows of each cluster: those nearest to its mean of their time."""
        check_count(n)
        checked, n_components = self._checked(X, times), self.n_components_
        # The means of all times, in the blocks of the rows.
        blocks = np.zeros((n_components, checked.shape[1]))
        blocks[:, : -len(self.times_) - 1] = self.means_.transpose(1, 0, 2).reshape(n_components, -1)
        return nearest_rows(checked, self._labels(checked), blocks, n)

    def vocabulary(
        self, cluster: int, feature_names: Any = None, n: int = 6, times: Any = None
    ) -> list[Vocabulary]:
        """List the largest features of a cluster at each time.

        Parameters
        ----------
        cluster : int
        feature_names : sequence of n_features names, optional
            By default the column names of the data frame of the fit, or column numbers.
        n : int
            Number of features at each time.
        times : sequence of dates or numbers, optional
            All points of time by default.

        Returns
        -------
        list of Vocabulary
            In the order of time.
        """
        check_is_fitted(self)
        if not 0 <= cluster < self.n_components_:
            raise ValueError(f"cluster must be a number from 0 to {self.n_components_ - 1}, got {cluster}.")
        points = range(len(self.times_)) if times is None else sorted({self._point(time) for time in times})
        listed = largest_features(self, self.means_[list(points), cluster], feature_names, n)
        return [
            Vocabulary(self.times_[t], float(self.counts_[t, cluster]), features)
            for t, features in zip(points, listed, strict=True)
        ]

    def dynamics(self, level: float = 0.1) -> list[ClusterDynamics]:
        """Describe the course of each cluster: its birth, rise, peak, decline and end.

        Parameters
        ----------
        level : float
            Part of its largest share of the rows above which a cluster is alive, between 0 and 1.

        Returns
        -------
        list of ClusterDynamics
            One for each cluster; ``pandas.DataFrame(model.dynamics())`` is a table.
        """
        check_is_fitted(self)
        if not 0 <= level <= 1:
            raise ValueError(
                f"level must be between 0 and 1, got {level}: it is a part of the largest share of a cluster."
            )
        return cluster_dynamics(self.times_, self.counts_, level)
