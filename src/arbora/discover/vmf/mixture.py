r"""Mixtures of von Mises-Fisher distributions by EM: clusters of directions.

.. math:: p(x) = \sum_k \pi_k\, C_D(\kappa_k) \exp(\kappa_k \mu_k^\top x), \qquad \|x\| = \|\mu_k\| = 1.

The E-step gives responsibilities :math:`r_{ik} \propto (\pi_k C_D(\kappa_k) e^{\kappa_k \mu_k^\top x_i})^{1/T}`,
with a temperature T that is 1 (soft), 0 (hard) or falls to 1 (annealed: Ueda and Nakano 1998). With :math:`n_k =
\sum_i r_{ik}` and :math:`s_k = \sum_i r_{ik} x_i`, the M-step is

.. math:: \pi_k = n_k / n, \qquad \mu_k = s_k / \|s_k\|, \qquad A_D(\kappa_k) = \|s_k\| / (n_k + n_0),

or, for a concentration that all components share, :math:`A_D(\kappa) = \sum_k \|s_k\| / (n + n_0)`. The :math:`n_0`
rows without a direction (``prior_rows``) are a prior, :math:`C_D(\kappa)^{n_0}`: without them a component of equal
rows would have an infinite concentration. The thesis prints the reciprocal of :math:`\pi_k`, and its supplement
omits n.

References
----------
A. Banerjee, I. Dhillon, J. Ghosh and S. Sra (2005). Clustering on the unit hypersphere using von Mises-Fisher
distributions. Journal of Machine Learning Research 6.
S. Gopal (2014). Large-scale Structured Learning. PhD thesis, Carnegie Mellon University, chapter 5.
"""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.core.products import csr_matmul
from arbora.discover._mixture.base import Mixture
from arbora.discover._mixture.initialization import Init, starting_sums
from arbora.discover._mixture.rows import unit_columns, unit_rows_of_file
from arbora.discover.vmf.concentration import largest_kappa
from arbora.infer.mixture.loop import MixtureModel, Schedule
from arbora.infer.mixture.statistics import LinearScores, Stats, WeightedRows, squared_lengths
from arbora.special import kappa_mle, sample_vmf, vmf_log_normalizer

_LOG_TINY = -690.0  # logarithm of a weight that is zero; the kernels know no infinity
_RANDOM_START = 10.0  # concentration to begin with from random labels
LEAST_START = 1e-3  # concentration to begin with where rows of a label cancel: it has a logarithm
_LOOK = 1000  # rows by which the broad start is found


class VMFParams(NamedTuple):
    """Vectors along the means (n_features, n_components), their lengths; concentrations and weights."""

    vectors: NDArray[Any]
    lengths: NDArray[np.float64]
    concentrations: NDArray[np.float64]
    weights: NDArray[np.float64]


def log_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of the weights, finite for those that are zero."""
    return np.log(weights, out=np.full_like(weights, _LOG_TINY), where=weights > 0)


def vmf_scores(params: VMFParams) -> LinearScores:
    """Log-joint of rows and components."""
    n_features = params.vectors.shape[0]
    offset = vmf_log_normalizer(params.concentrations, n_features) + log_weights(params.weights)
    return LinearScores(params.vectors, offset, scale=params.concentrations / params.lengths)


def vmf_update(shared: bool, prior_rows: float, params: VMFParams, stats: Stats) -> VMFParams:
    """M-step. A component without rows keeps its direction."""
    sums, counts = stats.sums, stats.counts
    length = np.sqrt(squared_lengths(sums))
    n_features, total = len(sums), counts.sum()
    if shared:
        resultant = np.full_like(counts, length.sum() / (total + prior_rows))
    else:
        n_rows = counts + prior_rows
        resultant = np.divide(length, n_rows, out=np.zeros_like(length), where=n_rows > 0)
    concentrations = np.minimum(kappa_mle(np.minimum(resultant, 1.0), n_features), largest_kappa(sums.dtype))
    empty = length == 0
    if empty.any():
        sums, length = sums.copy(), np.where(empty, params.lengths, length)
        sums[:, empty] = params.vectors[:, empty]
    return VMFParams(sums, length, concentrations, counts / total)


def vmf_extra(shared: bool, prior_rows: float, params: VMFParams) -> float:
    """Log-prior of the concentrations, zero for a uniform distribution."""
    kappa, n_features = params.concentrations, params.vectors.shape[0]
    log_prior = vmf_log_normalizer(kappa, n_features) - vmf_log_normalizer(0.0, n_features)
    return float(prior_rows * (log_prior[0] if shared else log_prior.sum()))


def broad_concentration(rows: WeightedRows, directions: NDArray[Any], rng: np.random.Generator) -> float:
    """Concentration at which rows are half undecided: their responsibilities have half the entropy of a draw of lots.

    A start as broad as that lets rows find better components than the seeds they happen to be near to. In 20,000
    dimensions a concentration of 10, as broad as they come in three, would tell no components apart at all.
    """
    n_components = directions.shape[1]
    if n_components == 1:
        return 1.0
    ids = rng.choice(rows.X.shape[0], size=min(_LOOK, rows.X.shape[0]), replace=False)
    cosine = csr_matmul(rows.take(np.sort(ids)).X, directions).astype(np.float64)

    def excess(log_kappa: float) -> float:
        p = softmax(np.exp(log_kappa) * cosine, axis=1)
        entropy = -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1).mean()
        return float(entropy - 0.5 * np.log(n_components))

    low, high = np.log(1e-3), np.log(1e8)
    if excess(high) > 0:  # rows and means that no concentration tells apart
        return 1.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-3)))


def start_components(
    rows: WeightedRows,
    init: Init,
    n_components: int,
    kappa: float | None,
    rng: np.random.Generator,
    engine: Any,
) -> VMFParams:
    """Components to start from; where no concentration is given, a broad one, or that of the given labels.

    Random labels have means that hardly differ, and a high concentration would only tell which row is in which: they
    start at 10, as the papers advise.
    """
    sums = np.ascontiguousarray(starting_sums(rows, init, n_components, rng, engine).T).astype(rows.X.dtype)
    axis = np.zeros_like(sums)
    axis[0] = 1  # for rows that cancel
    directions, length = unit_columns(sums, axis)
    if kappa is None and isinstance(init, str) and init == "random":
        kappa = _RANDOM_START
    elif kappa is None and not isinstance(init, str) and init.ndim == 1:
        labelled = rows.weight[init >= 0].sum(dtype=np.float64)
        kappa = float(kappa_mle(min(length.sum() / (labelled + 1.0), 1.0), len(sums)))
        kappa = max(kappa, LEAST_START)
    elif kappa is None:
        kappa = broad_concentration(rows, directions, rng)
    one = np.ones(n_components)
    return VMFParams(directions, one, np.full(n_components, kappa), one / n_components)


def left_out_shares(counts: NDArray[np.float64], part: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of the shares of components, without each row's own `part` in them (n_samples, n_components)."""
    rest = np.maximum(counts - part, 1e-300)
    return np.log(rest) - np.log(rest.sum(axis=1, keepdims=True))


def own_parts(resp: NDArray[np.float64], weight: NDArray[Any]) -> NDArray[np.float64]:
    """Parts of rows in components that leaving one out takes away: a row of weight 2 is there once more."""
    return resp * np.minimum(weight, 1.0)[:, None]


def left_out_cosines(
    X: sp.csr_array, weight: NDArray[Any], resp: NDArray[np.float64], stats: Stats
) -> NDArray[np.float64]:
    """Cosines of rows to the means, each mean without the part of it that the row itself is.

    With s the sum of a component and a the weight of x in it, ``x.(s - a x) / ||s - a x||``; zero where nothing is
    left.
    """
    dot = csr_matmul(X, np.ascontiguousarray(stats.sums, np.float64))
    square = squared_lengths(stats.sums)
    part = own_parts(resp, weight)
    rest = np.maximum(square - 2 * part * dot + part**2, 0.0)
    left = rest > 1e-12 * (square + part**2)
    return np.divide(dot - part, np.sqrt(rest), out=np.zeros_like(dot), where=left)


class VMFMixture(Mixture):
    """Mixture of von Mises-Fisher distributions, fitted by EM.

    Parameters
    ----------
    n_components : int or "auto"
        Number of clusters. "auto": the number with the highest density of rows that are held out.
    concentration : {"shared", "own"}
        Whether all components have one concentration, or each its own.
    assignments : {"soft", "hard", "annealed"}
        "soft": EM. "hard": every row belongs to its best component alone. "annealed": EM whose responsibilities are
        smoothed by a temperature that falls from `temperature` to 1 in `annealing_steps` iterations; it depends less
        on its start.
    temperature : float, optional
        Where annealing begins; by default the square root of the number of features, since log-densities differ the
        more the more features there are. Too high a temperature makes all components one, and they stay so.
    annealing_steps : int
        Iterations of annealing, before those that converge.
    init : {"k-means++", "random"}, labels or means
        Where to begin: rows far from each other, random labels, an integer label for each row (-1: none), or a mean
        for each component.
    initial_concentration : float, optional
        Concentration of the start; by default a broad one, at which the rows are half undecided, and, for given
        labels, that of the labels. Random labels start at 10.
    prior_rows : float
        Rows without any direction that every concentration is estimated with; they keep it in bounds. 0 for maximum
        likelihood, where components of equal rows have the concentration 1e8 (1e10 in double precision).
    n_init : int
        Starts, of which the best is kept; they run in parallel.
    tol : float
        Gain of the log-likelihood of a row, in nats, below which to stop.
    max_iter : int
        Most iterations, or passes over the data in mini-batches.
    batch_size : int, optional
        Rows in a mini-batch (stepwise EM); all rows at once by default.
    dtype : {"float32", "float64"}
        Precision of the E-step. float32 is exact enough for concentrations up to about 1e5. A fitted model answers in
        double precision.
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
        Mean directions, of unit length.
    concentrations_ : ndarray of shape (n_components,)
    weights_ : ndarray of shape (n_components,)
    lower_bounds_ : ndarray
        Log-likelihood (with the prior of the concentrations) by iteration, at temperature 1; of hard assignments,
        that of rows with their components.
    trace_ : Trace
    density_quantiles_ : ndarray
        Quantiles of the log-density of training rows, each left out of the model; see `is_novel`.
    selection_ : dict
        Numbers of components tried and their held-out log-densities, if `n_components` is "auto".
    stream_counts_, stream_sums_ : ndarray of shape (n_components,) and (n_features, n_components)
        Statistics of a row, averaged over the batches of `partial_fit`.
    seen_weight_ : float
        Rows in these batches.
    n_components_ : int
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int

    Notes
    -----
    Rows are divided by their length: only directions matter. Zero rows are refused. Densities are with respect to the
    surface of the unit sphere, so that in high dimensions their logarithms are large positive numbers.

    Examples
    --------
    >>> from arbora.datasets import make_vmf_mixture
    >>> from arbora.discover import VMFMixture
    >>> data = make_vmf_mixture(300, 5, 3, random_state=0)
    >>> model = VMFMixture(3, random_state=0).fit(data.X_train)
    >>> model.means_.shape, bool(abs(model.concentrations_[0] - 25) < 3)
    ((3, 5), True)
    >>> far = -data.truth.means.sum(axis=0)
    >>> model.is_novel([data.truth.means[0], far]).tolist()
    [False, True]
    """

    _min_features: ClassVar[int] = 2
    _streams: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Mixture._parameter_constraints,
        "concentration": [StrOptions({"shared", "own"})],
        "assignments": [StrOptions({"soft", "hard", "annealed"})],
        "temperature": [Interval(Real, 1, None, closed="left"), None],
        "annealing_steps": [Interval(Integral, 1, None, closed="left")],
        "initial_concentration": [Interval(Real, 0, None, closed="neither"), None],
        "prior_rows": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int | str = 8,
        *,
        concentration: str = "shared",
        assignments: str = "soft",
        temperature: float | None = None,
        annealing_steps: int = 20,
        init: Any = "k-means++",
        initial_concentration: float | None = None,
        prior_rows: float = 0.01,
        n_init: int = 1,
        tol: float = 1e-3,
        max_iter: int = 200,
        batch_size: int | None = None,
        dtype: str = "float32",
        n_jobs: int | None = None,
        engine: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.concentration = concentration
        self.assignments = assignments
        self.temperature = temperature
        self.annealing_steps = annealing_steps
        self.init = init
        self.initial_concentration = initial_concentration
        self.prior_rows = prior_rows
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.engine = engine
        self.random_state = random_state
        self.verbose = verbose

    def _check_X(self, X: sp.csr_array, weight: NDArray[Any] | None = None) -> sp.csr_array:
        return unit_rows_of_file(X, weight)

    def _schedule(self, seed: int) -> Schedule:
        schedule = super()._schedule(seed)
        if self.assignments == "hard":
            return schedule._replace(temperatures=(0.0,))
        if self.assignments == "annealed":
            hottest = np.sqrt(self.n_features_in_) if self.temperature is None else self.temperature
            steps = min(self.annealing_steps + 1, self.max_iter)
            return schedule._replace(temperatures=np.geomspace(1.0, hottest, steps)[::-1].tolist())
        return schedule

    def _model(self, rows: WeightedRows) -> MixtureModel:
        shared = self.concentration == "shared"
        update = partial(vmf_update, shared, self.prior_rows)
        return MixtureModel(vmf_scores, update, partial(vmf_extra, shared, self.prior_rows))

    def _scores(self, params: VMFParams) -> LinearScores:
        return vmf_scores(params)

    def _begin(
        self, rows: WeightedRows, init: Init, n_components: int, rng: np.random.Generator, engine: Any
    ) -> VMFParams:
        return start_components(rows, init, n_components, self.initial_concentration, rng, engine)

    def _set(self, params: VMFParams) -> None:
        means = params.vectors.T.astype(np.float64)
        self.means_ = means / np.linalg.norm(means, axis=1, keepdims=True)
        self.concentrations_, self.weights_ = params.concentrations, params.weights

    def _params(self) -> VMFParams:
        one = np.ones(len(self.means_))
        return VMFParams(np.ascontiguousarray(self.means_.T), one, self.concentrations_, self.weights_)

    def _n_parameters(self) -> int:
        n_components, n_features = self.means_.shape
        n_kappa = 1 if self.concentration == "shared" else n_components
        return n_components * (n_features - 1) + n_kappa + n_components - 1

    def _left_out(
        self, params: VMFParams, X: sp.csr_array, weight: NDArray[Any], stats: Stats
    ) -> NDArray[np.float64]:
        resp = softmax(self._log_joint(params, X), axis=1)
        cosine = left_out_cosines(X, weight, resp, stats)
        log_share = left_out_shares(stats.counts, own_parts(resp, weight))
        log_normalizer = vmf_log_normalizer(params.concentrations, X.shape[1])
        return logsumexp(params.concentrations * cosine + log_normalizer + log_share, axis=1)

    def _draw(self, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
        return sample_vmf(self.means_[labels], self.concentrations_[labels], random_state=rng)
