r"""Mixtures of von Mises-Fisher distributions by EM: clusters of directions.

.. math:: p(x) = \sum_k \pi_k\, C_D(\kappa_k) \exp(\kappa_k \mu_k^\top x), \qquad \|x\| = \|\mu_k\| = 1.

The E-step gives responsibilities :math:`r_{ik} \propto (\pi_k C_D(\kappa_k) e^{\kappa_k \mu_k^\top x_i})^{1/T}`,
with a temperature T that is 1 (soft), 0 (hard) or decreases to 1 (annealed: Ueda and Nakano 1998). With :math:`n_k =
\sum_i r_{ik}` and :math:`s_k = \sum_i r_{ik} x_i`, the M-step is

.. math:: \pi_k = n_k / n, \qquad \mu_k = s_k / \|s_k\|, \qquad A_D(\kappa_k) = \|s_k\| / (n_k + n_0),

or, for a shared concentration, :math:`A_D(\kappa) = \sum_k \|s_k\| / (n + n_0)`. The :math:`n_0` rows without a
direction (``prior_rows``) are a prior, :math:`C_D(\kappa)^{n_0}`: without them a component of equal rows would have
an infinite concentration. The thesis prints the reciprocal of :math:`\pi_k`, and its supplement omits n.

References
----------
A. Banerjee, I. Dhillon, J. Ghosh and S. Sra (2005). Clustering on the unit hypersphere using von Mises-Fisher
distributions. Journal of Machine Learning Research 6.
S. Gopal (2014). Large-scale Structured Learning. PhD thesis, Carnegie Mellon University, chapter 5.
"""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.discover.mixture.base import PartialFitMixture, Start
from arbora.discover.mixture.rows import iter_chunks
from arbora.discover.mixture.starts import Init, starting_sums
from arbora.discover.vmf.concentration import largest_kappa
from arbora.discover.vmf.posterior import expected_log_weights
from arbora.infer.mixture.loop import MixtureModel, Schedule
from arbora.infer.mixture.statistics import (
    LinearScores,
    Stats,
    WeightedRows,
    e_step,
    left_out_parts,
    left_out_shares,
    linear_log_joint,
    log_weights,
    squared_lengths,
    unit_columns,
)
from arbora.special import kappa_mle, sample_vmf, vmf_log_normalizer

# --- Components of von Mises-Fisher mixtures: parameters, log-joint with rows, and where a fit starts -------


# Initial concentration with random labels, as the papers advise. Their means hardly differ: a high concentration
# would keep every row where it is.
_RANDOM_START = 10.0
MIN_START = 1e-3  # smallest initial concentration, for labels whose rows cancel; it needs a logarithm
_SAMPLE = 1000  # rows from which the broad concentration is estimated


class VMFParams(NamedTuple):
    """Vectors in the direction of the means (n_features, n_components), their lengths, concentrations and weights."""

    vectors: Matrix
    lengths: Array
    concentrations: Array
    weights: Array


def vmf_scores(params: VMFParams) -> LinearScores:
    """Return the log-joint of rows and components."""
    n_features = params.vectors.shape[0]
    offset = vmf_log_normalizer(params.concentrations, n_features) + log_weights(params.weights)
    return LinearScores(params.vectors, offset, scale=params.concentrations / params.lengths)


def broad_concentration(rows: WeightedRows, directions: Matrix, rng: np.random.Generator) -> float:
    """Return the concentration at which responsibilities have half the entropy of a uniform distribution.

    With such a broad start, rows can move to better components than the seeds they happen to be close to. A fixed
    number does not work for all dimensions: 10 is broad in 3 dimensions, but in 20,000 dimensions it gives all
    components the same responsibilities.
    """
    n_components = directions.shape[1]
    if n_components == 1:
        return 1.0
    ids = rng.choice(rows.X.shape[0], size=min(_SAMPLE, rows.X.shape[0]), replace=False)
    cosine = csr_matmul(rows.take(np.sort(ids)).X, directions).astype(np.float64)

    def excess(log_kappa: float) -> float:
        p = softmax(np.exp(log_kappa) * cosine, axis=1)
        entropy = -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1).mean()
        return float(entropy - 0.5 * np.log(n_components))

    low, high = np.log(1e-3), np.log(1e8)
    if excess(high) > 0:  # no concentration separates these rows and means
        return 1.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-3)))


def start_components(
    rows: WeightedRows,
    init: Init,
    n_components: int,
    rng: np.random.Generator,
    engine: Engine,
) -> VMFParams:
    """Return components to start from, with the estimate of their concentration from labels, or with a broad one."""
    sums = np.ascontiguousarray(starting_sums(rows, init, n_components, rng, engine).T).astype(rows.X.dtype)
    axis = np.zeros_like(sums)
    axis[0] = 1  # for rows that cancel
    directions, length = unit_columns(sums, axis)
    if isinstance(init, str) and init == "random":
        kappa = _RANDOM_START
    elif not isinstance(init, str) and init.ndim == 1:
        labelled = rows.weight[init >= 0].sum(dtype=np.float64)
        kappa = float(kappa_mle(min(length.sum() / (labelled + 1.0), 1.0), len(sums)))
        kappa = max(kappa, MIN_START)
    else:
        kappa = broad_concentration(rows, directions, rng)
    ones = np.ones(n_components)
    return VMFParams(directions, ones, np.full(n_components, kappa), ones / n_components)


# --- Deterministic annealing, the start of the Bayesian mixtures; means are pulled towards the mean of all rows ---
#
# The bound of a von Mises-Fisher mixture has many maxima, and in many dimensions its responsibilities are hard from
# the first iteration on, so the start determines the result. Deterministic annealing (Rose 1998) smooths
# responsibilities by a temperature T,
#
# .. math:: r_{ik} \propto \bigl(\pi_k C_D(\kappa) e^{\kappa \mu_k^\top x_i}\bigr)^{1/T},
#
# that decreases to 1. Around a single cluster of all rows, deviations of the means grow if T is below
#
# .. math:: T_c = \kappa \lambda / \bar r,
#
# where :math:`\lambda` is the largest eigenvalue of the covariance of the rows orthogonal to their mean, :math:`\bar
# r` the length of the mean and :math:`\kappa` their concentration. Above it all seeds become equal. Annealing starts
# somewhat below it, which suits any number of features.
#
# Means are :math:`\mu_k \propto s_k + n_0 (1 - 1/T) \mu_0`, with :math:`n_0` additional rows at the mean direction
# of all rows. They slow down components with few rows, so components with many rows grow at their expense. With half
# of the rows of an average component (`EMPTYING`) this empties superfluous components, which suits a number of
# components that is a maximum. If rows follow the model, :math:`T_c` is near 1, and none is emptied. The evidence
# does not do this: rows of texts have far fewer degrees of freedom than dimensions, so splitting a cluster nearly
# always raises it. With a few hundredths (`FILLING`) the components keep rows, as a number of components that was
# asked for demands. A number that was selected is between both (`SORTING`): components that the data do not support
# are left empty. All components share one concentration during annealing; otherwise the broadest component collects
# the rows that are rare in all others.
#
# References
# ----------
# K. Rose (1998). Deterministic annealing for clustering, compression, classification, regression, and related
# optimization problems. Proceedings of the IEEE 86(11).


_BELOW = 0.4  # first temperature, relative to the critical one; 0.3 to 0.5 give the same results
EMPTYING, SORTING, FILLING = 0.5, 0.2, 0.03  # n_0, relative to the rows of an average component
_ROWS_PER_COMPONENT = 50  # rows for annealing, if rows come in mini-batches
_POWER_STEPS = 20
_MAX_RESULTANT = 1 - 1e-9


def mean_row(rows: WeightedRows) -> Array:
    """Return the weighted mean of the rows."""
    total = np.zeros(rows.X.shape[1])
    for part, X in iter_chunks(rows.X):
        total += X.T @ rows.weight[part]
    return total / rows.total


def critical_temperature(rows: WeightedRows, rng: np.random.Generator) -> float:
    """Return the temperature below which a single cluster of all rows separates.

    It is kappa v / l: kappa and l are the concentration and the length of the mean of all rows, v is the largest
    variance of the rows in a direction across that mean.
    """
    mean, weight = mean_row(rows), rows.weight.astype(np.float64) / rows.total
    X = rows.X.astype(np.float64, copy=False)
    length = float(np.linalg.norm(mean))
    centre = mean / max(length, TINY)
    v, value = rng.standard_normal(X.shape[1]), 0.0
    for _ in range(_POWER_STEPS):
        before, v, total = v, np.zeros_like(v), 0.0
        for part, chunk in iter_chunks(X):
            along = (chunk @ before - mean @ before) * weight[part]
            v += chunk.T @ along
            total += along.sum()
        v -= mean * total
        v -= centre * (centre @ v)
        value = float(np.linalg.norm(v))
        if value == 0:  # all rows are equal
            return 0.0
        v /= value
    return float(kappa_mle(min(length, _MAX_RESULTANT), X.shape[1])) * value / max(length, TINY)


def held_back_update(centre: Matrix, n_rows: float, params: VMFParams, stats: Stats) -> VMFParams:
    """Update means with `n_rows` more rows at the centre, one concentration, and weights under a sparse prior."""
    n_features, n_components = stats.sums.shape
    sums = stats.sums + (n_rows * centre).astype(stats.sums.dtype)[:, None]
    directions, _ = unit_columns(sums, params.vectors)
    along = np.einsum("jk,jk->", stats.sums, directions, dtype=np.float64)
    resultant = np.clip(along / stats.counts.sum(), 0.0, _MAX_RESULTANT)
    kappa = np.full(n_components, float(kappa_mle(resultant, n_features)))
    weights = np.exp(expected_log_weights(1 / n_components + stats.counts))
    return VMFParams(directions, np.ones(n_components), kappa, weights)


def anneal(
    rows: WeightedRows,
    start: VMFParams,
    n_steps: int,
    rng: np.random.Generator,
    engine: Engine,
    held_back: float = FILLING,
) -> VMFParams:
    """Anneal the components of a start in `n_steps` iterations; they end with the same concentration.

    Rows at the mean of all rows are added to each component, `held_back` times those of an average component.
    """
    n_components, params = len(start.weights), start
    mean = mean_row(rows)
    centre = mean / max(float(np.linalg.norm(mean)), TINY)
    n_rows = held_back * rows.total / n_components
    hottest = max(1.0, _BELOW * critical_temperature(rows, rng))
    for temperature in np.geomspace(hottest, 1.0, n_steps):
        scores = vmf_scores(params)._replace(temperature=float(temperature))
        stats, _ = e_step(scores, rows, engine)
        params = held_back_update(centre, n_rows * (1 - 1 / temperature), params, stats)
    kappa = np.maximum(params.concentrations, MIN_START)
    return params._replace(weights=params.weights / params.weights.sum(), concentrations=kappa)


class Annealing(NamedTuple):
    """How a start is annealed: iterations, and rows at the mean of all rows (see `anneal`)."""

    n_steps: int
    held_back: float


def annealed_components(start: Start, annealing: Annealing, params: VMFParams | None = None) -> VMFParams:
    """Return annealed components of a start, or of other ones; with mini-batches, a sample of the rows is used."""
    rows, init, n_components, search, rng, engine = start
    if params is None:
        params = start_components(rows, init, n_components, rng, engine)
    if annealing.n_steps == 0 or n_components == 1:
        return params
    n_rows, batch_size = rows.X.shape[0], search.schedule.batch_size
    if batch_size is not None and batch_size < n_rows:
        size = min(max(batch_size, _ROWS_PER_COMPONENT * n_components), n_rows)
        rows = rows.take(np.sort(rng.choice(n_rows, size, replace=False)))
    return anneal(rows, params, annealing.n_steps, rng, engine, annealing.held_back)


def held_back_rows(*, may_be_empty: bool, is_selected: bool) -> float:
    """Return the rows at the mean of all rows: many if components may be empty, few if all have to be filled."""
    if may_be_empty:
        return EMPTYING
    return SORTING if is_selected else FILLING


# --- Mixtures of von Mises-Fisher distributions by EM: clusters of directions -------------------------------


def vmf_update(shared: bool, prior_rows: float, params: VMFParams, stats: Stats) -> VMFParams:
    """Return the M-step. A component without rows keeps its direction."""
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
    """Return the log-prior of the concentrations; it is zero for a uniform distribution."""
    kappa, n_features = params.concentrations, params.vectors.shape[0]
    log_prior = vmf_log_normalizer(kappa, n_features) - vmf_log_normalizer(0.0, n_features)
    return float(prior_rows * (log_prior[0] if shared else log_prior.sum()))


def left_out_cosines(X: sp.csr_array, weight: Matrix, resp: Array, stats: Stats) -> Array:
    """Return cosines of rows and means, where each mean lacks the part of the row.

    With s the sum of a component and a the weight of x in it, the cosine is ``x.(s - a x) / ||s - a x||``, or zero if
    nothing is left.
    """
    dot = csr_matmul(X, np.ascontiguousarray(stats.sums, np.float64))
    square = squared_lengths(stats.sums)
    part = left_out_parts(resp, weight)
    rest = np.maximum(square - 2 * part * dot + part**2, 0.0)
    left = rest > 1e-12 * (square + part**2)
    cosine: Array = np.divide(dot - part, np.sqrt(rest), out=np.zeros_like(dot), where=left)
    return cosine


def n_vmf_parameters(means: Array, shared: bool) -> int:
    """Return the number of free parameters: means, concentrations and weights."""
    n_components, n_features = means.shape
    return int(n_components * (n_features - 1) + (1 if shared else n_components) + n_components - 1)


class VMFMixture(PartialFitMixture):
    """Mixture of von Mises-Fisher distributions, fitted by EM.

    Parameters
    ----------
    n_components : int, "auto", "halves" or "density"
        Number of clusters, or how it is selected. "halves": the smallest number at which the components of one half
        of the words of a document predict nearly as much as possible about those of the other half. "density": the
        number with the highest density of held-out rows. "auto": "halves" if X has words (it is sparse and not
        negative), otherwise "density".
    concentration : {"shared", "own"}
        "shared": all components have the same concentration. "own": each component has its own.
    assignments : {"soft", "hard", "annealed"}
        "soft": EM. "hard": every row belongs to its best component only. "annealed": EM with responsibilities
        smoothed by a temperature that decreases from `temperature` to 1 in 20 iterations. The result then depends
        less on the start.
    temperature : float, optional
        Temperature at the start of annealing; by default the square root of the number of features, because
        differences of log-densities grow with it. With too high a temperature all components become equal, and stay
        so.
    init : {"k-means++", "annealed", "random"}, labels or means
        The start: rows far from each other, such rows after 20 iterations of deterministic annealing, random labels,
        an integer label for each row (-1: no label), or a mean for each component. In texts "annealed" finds better
        clusters, which depend less on the seed. Labels determine the concentration of the start, random ones start at
        10, all others at a broad one: responsibilities have half the entropy of a uniform distribution.
    prior_rows : float
        Number of rows without a direction that are added in the estimate of every concentration, to keep it finite.
        0 is maximum likelihood: a component of equal rows then has the concentration 1e8 (1e10 in double precision).
    n_init : int
        Number of starts. They run in parallel, and the best result is used.
    calibration : {"auto"} or None
        "auto": if X has words, probabilities are tempered, so that the probabilities of the components of one half of
        the words of a document are right for the other half. The most probable component is the same. This fits one
        more mixture, to at most 2,500 rows. None: the probabilities of the model, which are nearly all 0 or 1 for
        texts.
    keep_empty : bool
        Keep components that no row is assigned to, and components with the same mean. By default they are dropped and
        merged at the end of `fit`; `n_components_` is the number that is left.
    tol : float
        Stop when the objective gains less than this per row, in nats. Below 1e-6 the fit computes in double
        precision; single precision is accurate for concentrations up to about 1e5.
    max_iter : int
        Maximum number of iterations, or of passes over the data with mini-batches.
    batch_size : int, optional
        Rows in a mini-batch (stepwise EM); all rows at once by default.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows a progress bar on a terminal, 2 always.

    Attributes
    ----------
    means_ : ndarray of shape (n_components, n_features)
        Mean directions, of unit length.
    concentrations_ : ndarray of shape (n_components,)
    weights_ : ndarray of shape (n_components,)
    lower_bounds_ : ndarray
        Log-likelihood plus log-prior of the concentrations, in each iteration at temperature 1. With hard
        assignments, the log-likelihood of rows and their components.
    trace_ : Trace
    density_quantiles_ : ndarray
        Quantiles of the log-densities of training rows, each under the model without that row; see `is_novel`.
    selection_ : dict
        Numbers of components that were tried, their scores, and the criterion, if `n_components` is a name.
    stream_counts_, stream_sums_ : ndarray of shape (n_components,) and (n_features, n_components)
        Statistics per row, averaged over the batches of `partial_fit`.
    seen_weight_ : float
        Number of rows in these batches.
    n_components_ : int
        Number of components of the model; see `keep_empty`.
    calibration_temperature_ : float
        Temperature of the probabilities; see `calibration`.
    n_zero_rows_ : int
        Number of zero rows of the fit.
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int

    Notes
    -----
    Rows are divided by their length: only directions matter. A zero row takes no part in the fit: `predict`
    gives it the label -1, and `predict_proba` the weights. Densities are with respect to the
    surface of the unit sphere, so in high dimensions their logarithms are large positive numbers. In a block ``with
    arbora.running(engine="ray")``, the E-step runs on shards of the rows on the workers of a Ray cluster. The result
    is the same for any number of workers, and equals that of this process up to rounding.

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
    # With 20,000 features the temperature of assignments falls by a factor of 1.3 in a step.
    _annealing_steps: ClassVar[int] = 20
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PartialFitMixture._parameter_constraints,
        "concentration": [StrOptions({"shared", "own"})],
        "init": [StrOptions({"k-means++", "annealed", "random"}), "array-like"],
        "assignments": [StrOptions({"soft", "hard", "annealed"})],
        "temperature": [Interval(Real, 1, None, closed="left"), None],
        "prior_rows": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int | str = 8,
        *,
        concentration: str = "shared",
        assignments: str = "soft",
        temperature: float | None = None,
        init: Any = "k-means++",
        prior_rows: float = 0.01,
        n_init: int = 1,
        calibration: str | None = "auto",
        keep_empty: bool = False,
        tol: float = 1e-3,
        max_iter: int = 200,
        batch_size: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.concentration = concentration
        self.assignments = assignments
        self.temperature = temperature
        self.init = init
        self.prior_rows = prior_rows
        self.n_init = n_init
        self.calibration = calibration
        self.keep_empty = keep_empty
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _schedule(self, seed: int) -> Schedule:
        schedule = super()._schedule(seed)
        if self.assignments == "hard":
            return schedule._replace(temperatures=(0.0,))
        if self.assignments == "annealed":
            hottest = np.sqrt(self.n_features_in_) if self.temperature is None else self.temperature
            steps = min(self._annealing_steps + 1, self.max_iter)
            return schedule._replace(temperatures=np.geomspace(1.0, hottest, steps)[::-1].tolist())
        return schedule

    def _model(self, rows: WeightedRows) -> MixtureModel:
        shared = self.concentration == "shared"
        update = partial(vmf_update, shared, self.prior_rows)
        return MixtureModel(vmf_scores, update, partial(vmf_extra, shared, self.prior_rows))

    def _log_joint(self, params: VMFParams, X: sp.csr_array) -> Array:
        return linear_log_joint(vmf_scores(params), X)

    def _log_density(self, params: VMFParams, X: sp.csr_array) -> Array:
        density: Array = logsumexp(self._log_joint(params, X), axis=1)
        return density

    def _start(self, start: Start) -> VMFParams:
        steps = (
            start.search.annealing_steps if isinstance(start.init, str) and start.init == "annealed" else 0
        )
        held_back = held_back_rows(
            may_be_empty=self.keep_empty, is_selected=isinstance(self.n_components, str)
        )
        return annealed_components(start, Annealing(steps, held_back))

    def _set(self, params: VMFParams) -> None:
        means = params.vectors.T.astype(np.float64)
        self.means_ = means / np.linalg.norm(means, axis=1, keepdims=True)
        self.concentrations_, self.weights_ = params.concentrations, params.weights

    def _params(self) -> VMFParams:
        ones = np.ones(len(self.means_))
        return VMFParams(np.ascontiguousarray(self.means_.T), ones, self.concentrations_, self.weights_)

    def _n_parameters(self) -> int:
        return n_vmf_parameters(self.means_, self.concentration == "shared")

    def _left_out_log_density(
        self, params: VMFParams, X: sp.csr_array, weight: Matrix, stats: Stats
    ) -> Array:
        resp = softmax(self._log_joint(params, X), axis=1)
        cosine = left_out_cosines(X, weight, resp, stats)
        log_share = left_out_shares(stats.counts, left_out_parts(resp, weight))
        log_normalizer = vmf_log_normalizer(params.concentrations, X.shape[1])
        joint = params.concentrations * cosine + log_normalizer + log_share
        density: Array = logsumexp(joint, axis=1)
        return density

    def _draw(self, labels: Ints, rng: np.random.Generator) -> Array:
        return sample_vmf(self.means_[labels], self.concentrations_[labels], random_state=rng)
