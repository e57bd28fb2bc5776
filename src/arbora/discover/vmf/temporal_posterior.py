"""Posterior of the temporal von Mises-Fisher mixture: walk of the weights, chains of means, dynamics of clusters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from arbora.arrays import Array, Ints, Matrix
from arbora.discover.vmf.concentration import KappaLikelihood, KappaPosterior, prior_divergence
from arbora.discover.vmf.posterior import (
    Inference,
    VMFPosterior,
    VMFPrior,
    dirichlet_gain,
    empirical_bayes,
    expected_log_weights,
)
from arbora.infer.mixture.statistics import LinearScores, Stats, unit_columns
from arbora.special import bessel_ratio, kappa_mle, vmf_entropy, vmf_log_normalizer

# --- Evolving weights of components: the softmax of a random walk -------------------------------------------
#
# .. math:: \eta_{1k} \sim N(0, \tau^2), \quad \eta_{tk} \sim N(\eta_{t-1,k}, s^2), \quad
#           \pi_t = \mathrm{softmax}(\eta_t).
#
# The factors are :math:`q(\eta_{tk}) = N(m_{tk}, v_{tk})`. The mean of the log-weights has a lower bound (Jensen),
#
# .. math:: E[\log \pi_{tk}] \ge m_{tk} - \log \sum_j \exp(m_{tj} + v_{tj} / 2),
#
# so the bound is concave in m. All m and log v are optimised together by L-BFGS; the variances are learned in closed
# form. The thesis has a Dirichlet draw with parameters softmax(eta) between the walk and the weights. Those
# parameters sum to one: such a draw has nearly all its mass on one component, and ties the weights of neighbours in
# time by no more than one row. It is omitted here.


_MIN_VARIANCE = 1e-4  # lower limit for the variances of the walk, which could shrink to zero
_MAX_STEPS = 30


class WeightWalk(NamedTuple):
    """Means and variances of eta (n_times, n_components), and the variances tau^2 (first) and s^2 (step)."""

    mean: Array
    variance: Array
    first: float
    step: float


def _log_sum(values: Array) -> Array:
    """Return the logarithm of the sum of the exponentials in each row, kept as a column."""
    top = values.max(axis=1, keepdims=True)
    return np.asarray(top + np.log(np.exp(values - top).sum(axis=1, keepdims=True)))


def start_walk(weights: Array, n_times: int) -> WeightWalk:
    """Return a walk with constant weights."""
    eta = np.log(np.maximum(weights, 1e-6))
    mean = np.tile(eta - eta.mean(), (n_times, 1))
    return WeightWalk(mean, np.full(mean.shape, 0.1), 1.0, 0.1)


def walk_log_weights(walk: WeightWalk) -> Array:
    """Return lower bounds of the expected log-weights."""
    return walk.mean - _log_sum(walk.mean + walk.variance / 2)


def walk_weights(walk: WeightWalk) -> Array:
    """Return the weights at the means of eta."""
    return np.exp(walk.mean - _log_sum(walk.mean))


def walk_extra(walk: WeightWalk) -> float:
    """Return minus the divergence of the factors from the random walk."""
    m, v, first, step = walk
    value = (
        0.5 * np.sum(1 + np.log(v))
        - 0.5 * m.shape[1] * np.log(first)
        - np.sum(m[0] ** 2 + v[0]) / (2 * first)
    )
    moved = (m[1:] - m[:-1]) ** 2 + v[1:] + v[:-1]
    return float(value - 0.5 * moved.size * np.log(step) - moved.sum() / (2 * step))


def walk_value(walk: WeightWalk, counts: Array) -> tuple[float, Array, Array]:
    """Return the bound of the walk given counts of rows, and its gradients by the means and by the log-variances."""
    m, v, first, step = walk
    total, share = counts.sum(axis=1, keepdims=True), np.exp(m + v / 2 - _log_sum(m + v / 2))
    value = float(np.sum(counts * walk_log_weights(walk))) + walk_extra(walk)
    pull = (m[1:] - m[:-1]) / step
    by_mean = counts - total * share
    by_mean[0] -= m[0] / first
    by_mean[1:] -= pull
    by_mean[:-1] += pull
    precision = np.zeros_like(v)
    precision[0] += 1 / first
    precision[1:] += 1 / step
    precision[:-1] += 1 / step
    return value, by_mean, 0.5 - 0.5 * v * (total * share + precision)


def update_walk(walk: WeightWalk, counts: Array) -> WeightWalk:
    """Optimise means and variances of eta, then learn the variances of the walk."""
    shape = walk.mean.shape

    def unpack(x: Array) -> WeightWalk:
        m, log_v = x.reshape(2, *shape)
        return walk._replace(mean=m, variance=np.exp(np.clip(log_v, -30.0, 5.0)))

    def negative(x: Array) -> tuple[float, Array]:
        value, *gradient = walk_value(unpack(x), counts)
        return -value, -np.concatenate([part.ravel() for part in gradient])

    here = np.concatenate([walk.mean.ravel(), np.log(walk.variance).ravel()])
    optimum = minimize(negative, here, jac=True, method="L-BFGS-B", options={"maxiter": _MAX_STEPS})
    if optimum.fun <= negative(here)[0]:
        walk = unpack(optimum.x)
    m, v = walk.mean, walk.variance
    first = max(float(np.mean(m[0] ** 2 + v[0])), _MIN_VARIANCE)
    if len(m) == 1:
        return walk._replace(first=first)
    step = max(float(np.mean((m[1:] - m[:-1]) ** 2 + v[1:] + v[:-1])), _MIN_VARIANCE)
    return walk._replace(first=first, step=step)


# --- Variational inference of the temporal von Mises-Fisher mixture: layout, factors, updates, bound --------
#
# With :math:`q(\mu_{tk}) = \mathrm{vMF}(\psi_{tk}, \gamma_{tk})`, :math:`S_{tk}` the sum of the rows of time t
# weighted by their responsibilities, and C the concentration of a mean around the one before it,
#
# .. math:: \gamma_{tk} \psi_{tk} = E[\kappa_k] S_{tk} + C\, E[\mu_{t-1,k}] + C\, E[\mu_{t+1,k}],
#
# without the last term at the last time, and with :math:`C_0 \mu_0` instead of the term before at the first time.
# All components of a time are updated at once: forward in time, then all times together (`smoothed`), then backward.
# :math:`q(\kappa_k)` is computed from :math:`\sum_t n_{tk}` and :math:`\sum_t S_{tk}^\top E[\mu_{tk}]` (the papers
# omit the factor :math:`\kappa` of the latter). Every step maximises the bound over its factors, or is undone.
#
# **Layout.** A row of time t has its features in the t-th of T blocks of columns, and a one in the t-th of T + 1
# further columns. Then the log-joint of rows and components is linear in the row at any time, and the E-step that
# all mixtures share gives the sums and the counts of all times at once.
#
# References
# ----------
# R. Giordano, T. Broderick and M. Jordan (2018). Covariances, robustness, and variational Bayes. JMLR 19.


_MAX_COSINE = 1 - 1e-9
_TURNS = 2  # updates of (means, concentrations) between two E-steps


class ChainPosterior(NamedTuple):
    """Factors of the posterior."""

    directions: Matrix  # (n_times, n_features, n_components)
    mean_concentrations: Array  # (n_times, n_components)
    dirichlet: Array  # parameters of static weights
    kappa: KappaPosterior
    prior: VMFPrior  # its direction and concentration belong to the means of the first time
    transition: float  # concentration of a mean around the one before it
    counts: Array  # (n_times, n_components): sums of responsibilities
    walk: WeightWalk | None  # of evolving weights
    predictive: KappaPosterior  # given means that are as uncertain as `marginal_concentrations`


def to_blocks(X: sp.csr_array, points: Ints, n_times: int) -> sp.csr_array:
    """Put rows into the columns of their time, and add an indicator column for each point of time and the next one.

    Point `n_times` is the next time: its rows use the last block. The shape is (n_samples, n_times * n_features +
    n_times + 1).
    """
    n_samples, n_features = X.shape
    sizes = np.diff(X.indptr)
    shift = np.repeat(np.minimum(points, n_times - 1) * n_features, sizes)
    ends = X.indptr[1:]
    indices = np.insert(X.indices + shift, ends, n_times * n_features + points)
    data = np.insert(X.data, ends, 1.0)
    shape = (n_samples, n_times * n_features + n_times + 1)
    return sp.csr_array((data, indices, X.indptr + np.arange(n_samples + 1)), shape=shape)


def from_blocks(X: sp.csr_array, n_features: int, n_times: int) -> tuple[sp.csr_array, Ints]:
    """Return rows and their points of time: the inverse of `to_blocks`."""
    last = X.indptr[1:] - 1
    points: Any = X.indices[last] - n_times * n_features
    indices = np.delete(X.indices, last) % n_features
    indptr = X.indptr - np.arange(len(X.indptr), dtype=X.indptr.dtype)
    return sp.csr_array((np.delete(X.data, last), indices, indptr), shape=(X.shape[0], n_features)), points


def time_log_weights(q: ChainPosterior) -> Array:
    """Return the expected log-weights (n_times, n_components)."""
    if q.walk is not None:
        return walk_log_weights(q.walk)
    return np.broadcast_to(expected_log_weights(q.dirichlet), q.mean_concentrations.shape)


def share_counts(q: ChainPosterior) -> Array:
    """Return the weights at each time, times the number of rows from which they are estimated."""
    if q.walk is None:
        return np.broadcast_to(q.dirichlet, q.mean_concentrations.shape)
    return np.asarray(walk_weights(q.walk) * (q.counts.sum(axis=1, keepdims=True) + 1.0))


def chain_scores(q: ChainPosterior) -> LinearScores:
    """Return the expected log-joint of rows in blocks and components."""
    n_times, n_features, n_components = q.directions.shape
    slope = (q.kappa.mean * mean_lengths(q)).astype(q.directions.dtype)
    weights = np.zeros((n_times * n_features + n_times + 1, n_components), q.directions.dtype)
    blocks = weights[: n_times * n_features].reshape(q.directions.shape)
    np.multiply(q.directions, slope[:, None], out=blocks)
    weights[n_times * n_features : -1] = time_log_weights(q)
    return LinearScores(weights, q.kappa.log_normalizer)


def mean_lengths(q: ChainPosterior) -> Array:
    """Return the lengths of the expected means (n_times, n_components)."""
    return bessel_ratio(q.directions.shape[1] / 2 - 1, q.mean_concentrations)


class Chain(NamedTuple):
    """Means of all times: directions and expectations (n_times, n_features, n_components), and concentrations."""

    directions: Matrix
    expected: Matrix
    mean_concentrations: Array


class Pulls(NamedTuple):
    """Terms of the means: E[kappa] S of each time, C_0 mu_0 for the first, and C between neighbours."""

    rows: Matrix
    first: Matrix
    transition: float


def sweep(chain: Chain, pulls: Pulls, backward: bool) -> Chain:
    """Update the means of one time after the other, in place."""
    directions, expected, mean_concentrations = chain
    n_times, n_features, _ = directions.shape
    dtype = directions.dtype
    for t in range(n_times - 1, -1, -1) if backward else range(n_times):
        neighbours = expected[t - 1] * dtype.type(pulls.transition) if t else pulls.first
        if t < n_times - 1:
            neighbours = neighbours + expected[t + 1] * dtype.type(pulls.transition)
        directions[t], mean_concentrations[t] = unit_columns(pulls.rows[t] + neighbours, directions[t])
        expected[t] = directions[t] * bessel_ratio(n_features / 2 - 1, mean_concentrations[t]).astype(dtype)
    return chain


def chain_value(chain: Chain, pulls: Pulls) -> float:
    """Return the part of the bound that depends on the means."""
    _, expected, mean_concentrations = chain
    value = np.einsum("tdk,tdk->", pulls.rows, expected, dtype=np.float64)
    value += np.einsum(
        "dk,dk->", np.broadcast_to(pulls.first, expected[0].shape), expected[0], dtype=np.float64
    )
    value += pulls.transition * np.einsum("tdk,tdk->", expected[1:], expected[:-1], dtype=np.float64)
    return float(value + vmf_entropy(mean_concentrations, expected.shape[1]).sum())


def smoothed(chain: Chain, pulls: Pulls) -> Chain | None:
    r"""Solve for the directions of all times at once, given the concentrations of the means; None without a solution.

    With :math:`e_t = E[\mu_t]` the equations of all times are :math:`(\gamma_t / \ell_t) e_t - C e_{t-1} - C e_{t+1}
    = E[\kappa] S_t`: one tridiagonal system for all features of a component.
    """
    directions, expected, mean_concentrations = chain
    n_times, n_features, _ = directions.shape
    dtype, coupling = directions.dtype, pulls.transition
    pivot = mean_concentrations / np.maximum(bessel_ratio(n_features / 2 - 1, mean_concentrations), 1e-300)
    for t in range(1, n_times):
        pivot[t] -= coupling**2 / pivot[t - 1]
        if not np.all(pivot[t] > 0):
            return None
    solution = np.empty_like(expected)
    for t in range(n_times):
        before = solution[t - 1] * (coupling / pivot[t - 1]).astype(dtype) if t else pulls.first
        solution[t] = pulls.rows[t] + before
    for t in range(n_times - 1, -1, -1):
        if t < n_times - 1:
            solution[t] += solution[t + 1] * dtype.type(coupling)
        solution[t] /= pivot[t].astype(dtype)
    lengths = bessel_ratio(n_features / 2 - 1, mean_concentrations).astype(dtype)
    for t in range(n_times):
        solution[t] = unit_columns(solution[t], directions[t])[0]
    return Chain(solution, solution * lengths[:, None], mean_concentrations.copy())


def update_means(chain: Chain, pulls: Pulls) -> Chain:
    """Update the means forward in time, then all at once, then backward; the joint step only if it raises the bound.

    With strong ties between neighbours, steps from one time to the next alone would need very many iterations.
    """
    chain = sweep(chain, pulls, backward=False)
    if len(chain.mean_concentrations) > 1:
        jump = smoothed(chain, pulls)
        if jump is not None:
            jump = sweep(jump, pulls, backward=True)
            if chain_value(jump, pulls) >= chain_value(chain, pulls):
                return jump
    return sweep(chain, pulls, backward=True)


def update_chain(inference: Inference, q: ChainPosterior, stats: Stats) -> ChainPosterior:
    """Update means and concentrations twice, then weights and prior."""
    n_times, n_features, _ = q.directions.shape
    sums = stats.sums[: n_times * n_features].reshape(q.directions.shape)
    dtype, prior, kappa = q.directions.dtype, q.prior, q.kappa
    first = (prior.concentration * prior.direction).astype(dtype)[:, None]
    lengths = mean_lengths(q).astype(dtype)
    chain = Chain(q.directions.copy(), q.directions * lengths[:, None], q.mean_concentrations.copy())

    def posterior(lengths: Array, before: KappaPosterior) -> KappaPosterior:
        pulls = np.sum(lengths * np.einsum("tdk,tdk->tk", sums, chain.directions, dtype=np.float64), axis=0)
        likelihood = KappaLikelihood(stats.counts, pulls, prior.log_mean, prior.log_variance, n_features)
        return inference.posterior(likelihood, before)

    for _ in range(_TURNS):
        chain = update_means(chain, Pulls(sums * kappa.mean.astype(dtype), first, q.transition))
        kappa = posterior(bessel_ratio(n_features / 2 - 1, chain.mean_concentrations), kappa)
    q = q._replace(directions=chain.directions, mean_concentrations=chain.mean_concentrations, kappa=kappa)
    marginal = bessel_ratio(n_features / 2 - 1, marginal_concentrations(q))
    counts = stats.sums[n_times * n_features : -1].astype(np.float64)
    q = q._replace(counts=counts, dirichlet=prior.alpha + stats.counts, predictive=posterior(marginal, kappa))
    return _update_rest(inference, q, chain.expected)


def _update_rest(inference: Inference, q: ChainPosterior, expected: Matrix) -> ChainPosterior:
    """Update the walk of the weights, the prior, and the concentration of transitions, unless they are given.

    The prior of the first means stays that of the start, a mixture without times. Few rows determine the first means:
    a learned prior would become stronger in each iteration and pull all components together.
    """
    if q.walk is not None:
        q = q._replace(walk=update_walk(q.walk, q.counts))
    if "transition" not in inference.fixed and len(expected) > 1:
        cosine = (
            np.einsum("tdk,tdk->", expected[1:], expected[:-1], dtype=np.float64)
            / q.mean_concentrations[1:].size
        )
        transition = float(kappa_mle(np.clip(cosine, 0.0, _MAX_COSINE), expected.shape[1]))
        q = q._replace(transition=transition)
    beginning = VMFPosterior(q.directions[0], q.mean_concentrations[0], q.dirichlet, q.kappa, q.prior)
    fixed = inference.settled if len(expected) == 1 else inference.settled | {"direction", "concentration"}
    return q._replace(prior=empirical_bayes(beginning, fixed))


def chain_extra(inference: Inference, q: ChainPosterior) -> float:
    """Return the bound without the rows: weights, means along time, and concentrations."""
    prior, n_features = q.prior, q.directions.shape[1]
    expected = q.directions * mean_lengths(q).astype(q.directions.dtype)[:, None]
    along = np.asarray(prior.direction.astype(expected.dtype) @ expected[0], dtype=np.float64)
    means = np.sum(vmf_log_normalizer(prior.concentration, n_features) + prior.concentration * along)
    cosine = np.einsum("tdk,tdk->", expected[1:], expected[:-1], dtype=np.float64)
    means += (
        q.mean_concentrations[1:].size * vmf_log_normalizer(q.transition, n_features) + q.transition * cosine
    )
    means += vmf_entropy(q.mean_concentrations, n_features).sum()
    weights = dirichlet_gain(q.dirichlet, prior.alpha) if q.walk is None else walk_extra(q.walk)
    divergence = prior_divergence(q.kappa, prior.log_mean, prior.log_variance)
    return float(weights + means - (divergence[0] if inference.shared else divergence.sum()))


def marginal_concentrations(q: ChainPosterior) -> Array:
    r"""Return concentrations (n_times, n_components) of the means, with the uncertainty of their neighbours.

    A factor treats its neighbours as certain; the stronger the ties, the more overconfident it is. Linear response
    (Giordano, Broderick and Jordan 2018) corrects this: the covariance of the means of a feature is the inverse of
    the matrix M of `smoothed`, not the inverse of its diagonal. So the variance :math:`1 - \ell_t^2` of a mean is
    greater by the factor :math:`M_{tt} (M^{-1})_{tt}`.
    """
    lengths, n_features = mean_lengths(q), q.directions.shape[1]
    diagonal = q.mean_concentrations / np.maximum(lengths, 1e-300)
    forward, backward = diagonal.copy(), diagonal.copy()
    for t in range(1, len(diagonal)):
        forward[t] -= q.transition**2 / np.maximum(forward[t - 1], 1e-300)
        backward[-1 - t] -= q.transition**2 / np.maximum(backward[-t], 1e-300)
    left = forward + backward - diagonal
    solved = (forward > 0).all(axis=0) & (backward > 0).all(axis=0) & (left > 0).all(axis=0)
    factor = np.divide(diagonal, left, out=np.ones_like(left), where=solved & (left > 0))
    variance = np.minimum((1 - lengths**2) * np.maximum(factor, 1.0), 1.0)
    return np.where(factor > 1, kappa_mle(np.sqrt(1 - variance), n_features), q.mean_concentrations)


def at_time(q: ChainPosterior, t: int, mean_concentrations: Array) -> VMFPosterior:
    """Return the mixture at a point of time, with the given concentrations of the means.

    At the next point of time, the means are less certain by one transition.

    The mean of the next time, distributed around an uncertain mean, has no von Mises-Fisher distribution. It is
    approximated by the one with the same expectation, of length A(gamma) A(C).
    """
    now, n_features = min(t, len(q.mean_concentrations) - 1), q.directions.shape[1]
    certainty = mean_concentrations[now]
    if t > now:
        order = n_features / 2 - 1
        certainty = kappa_mle(bessel_ratio(order, certainty) * bessel_ratio(order, q.transition), n_features)
    return VMFPosterior(q.directions[now], certainty, share_counts(q)[now], q.predictive, q.prior)


# --- Dynamics of clusters over time: birth, rise, peak, decline and end, and changes of their features ------


class ClusterDynamics(NamedTuple):
    """The course of a cluster over time.

    Attributes
    ----------
    cluster : int
    rows : float
        Expected number of rows at all times.
    birth : time
        The first point of time at which the share of the cluster reaches `level` times its largest share.
    rise : time or None
        The point of time with rows at which its share grew most.
    peak : time
        The point of time with its largest share.
    decline : time or None
        The point of time with rows at which its share fell most.
    end : time or None
        The last point of time at which its share reaches `level` times its largest share; None if this is the last
        point of time with rows.
    trend : float
        Least-squares slope of its share per point of time.
    share : ndarray of shape (n_times,)
        Its share of the rows at each time; NaN for times without rows.
    """

    cluster: int
    rows: float
    birth: Any
    rise: Any
    peak: Any
    decline: Any
    end: Any
    trend: float
    share: Array


class Vocabulary(NamedTuple):
    """Largest features of a cluster at a time: the time, rows of the cluster, and (name, weight), largest first."""

    time: Any
    rows: float
    features: list[tuple[Any, float]]


def cluster_dynamics(times: Matrix, counts: Array, level: float) -> list[ClusterDynamics]:
    """Describe the course of each cluster, from its rows at each time (n_times, n_components).

    A cluster is alive while its share is at least `level` times its largest share.
    """
    total = counts.sum(axis=1)
    seen = np.flatnonzero(total > 0)
    shares = counts[seen] / total[seen, None]
    courses = []
    for k, share in enumerate(shares.T):
        change, alive = np.diff(share), np.flatnonzero(share >= level * share.max())
        path = np.full(len(times), np.nan)
        path[seen] = share
        seen_times = times[seen]
        courses.append(
            ClusterDynamics(
                k,
                float(counts[:, k].sum()),
                birth=seen_times[alive[0]],
                rise=seen_times[change.argmax() + 1] if change.size and change.max() > 0 else None,
                peak=seen_times[share.argmax()],
                decline=seen_times[change.argmin() + 1] if change.size and change.min() < 0 else None,
                end=None if alive[-1] == len(seen) - 1 else seen_times[alive[-1]],
                trend=float(np.polyfit(seen, share, 1)[0]) if len(seen) > 1 else 0.0,
                share=path,
            )
        )
    return courses
