"""Diagnostics of Markov chains: R-hat, effective sample size, and Geweke's test of a sampler.

R-hat and the effective sample sizes are those of Vehtari et al. (2021). Every chain is split in half, and draws are
replaced by normal scores of their ranks z = Phi^-1((rank - 3/8) / (n + 1/4)) over all chains, which is robust to
heavy tails. With W the mean variance within the m half-chains of n draws and B/n the variance of their means,

    R-hat^2 = ((n - 1)/n W + B/n) / W,        ESS = m n / (1 + 2 sum_t rho_t),

rho_t the autocorrelation at lag t over all chains, summed up to the end of Geyer's monotone sequence of pairs. R-hat
is the larger of that of the draws and that of their distances from the median, since chains may agree in location but
not in spread.

Geweke (2004), "getting it right": the joint distribution of parameters and data can be simulated in two ways. The
direct simulation draws parameters from the prior, then data given them. The successive simulation alternates a sweep
of the sampler given the data with new data given the parameters. If prior, likelihood and sweep belong to the same
model, both have the same distribution; an error in any of them shows as a difference.

References
----------
A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Buerkner (2021). Rank-normalization, folding, and
localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2).
C. J. Geyer (1992). Practical Markov chain Monte Carlo. Statistical Science 7(4).
J. Geweke (2004). Getting it right: joint distribution tests of posterior simulators. JASA 99(467).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import norm, rankdata

from arbora.arrays import Array
from arbora.infer.mcmc.chains import SamplerModel

_MIN_DRAWS = 4  # draws of a chain: halves of fewer draws have no variance


class GewekeResult(NamedTuple):
    """Result of Geweke's test."""

    location: Array  # z-score of each statistic: difference between the two simulations
    spread: Array  # z-score of each statistic's distance from its median
    effective_sample_size: Array  # of each statistic in the successive simulation
    p_value: float  # of the largest z-score, corrected for their number


def rhat(draws: ArrayLike) -> Array:
    """Rank-normalised split R-hat: 1 when the chains agree, above about 1.01 to 1.05 when they do not.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws, ...)
        At least 4 draws a chain; every further axis is another quantity.

    Returns
    -------
    ndarray of shape (...)
        1 for a quantity that never changes; NaN for one that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.infer.mcmc.diagnostics import rhat
    >>> x = np.random.default_rng(0).standard_normal((2, 500))
    >>> bool(rhat(x) < 1.01), bool(rhat(x + [[0.0], [1.0]]) > 1.1)
    (True, True)
    """
    halves, shape = _halves(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_basic_rhat(_normal_scores(halves)), _basic_rhat(_normal_scores(folded))).reshape(shape)


def ess_bulk(draws: ArrayLike) -> Array:
    """Return the effective sample size for the middle of a distribution: means and medians.

    `draws` has shape (n_chains, n_draws, ...), with at least 4 draws a chain. NaN for a quantity that is not finite.
    """
    halves, shape = _halves(draws)
    return _basic_ess(_normal_scores(halves)).reshape(shape)


def ess_tail(draws: ArrayLike) -> Array:
    """Return the effective sample size for the tails: the smaller of those of the 5% and the 95% quantile.

    See `ess_bulk`.
    """
    halves, shape = _halves(draws)
    finite = np.isfinite(halves).all(axis=(0, 1))
    cuts = np.quantile(np.where(finite, halves, 0.0), (0.05, 0.95), axis=(0, 1))
    sizes = [_basic_ess((halves <= cut).astype(np.float64)) for cut in cuts]
    return np.where(finite, np.minimum(*sizes), np.nan).reshape(shape)


def geweke_test(
    model: SamplerModel[Any, Any],
    statistics: Callable[[Any, Any], ArrayLike],
    rng: np.random.Generator,
    *,
    n_direct: int = 4000,
    n_sweeps: int = 1000,
    n_chains: int = 4,
    thin: int = 1,
) -> GewekeResult:
    """Compare the two simulations of the joint distribution of parameters and data (Geweke 2004).

    Parameters
    ----------
    model : SamplerModel
        With `sample_prior`, `sample_data` and the `sweep` to test, which must not adapt.
    statistics : callable
        `statistics(state, data)` returns the numbers to compare, as a 1-D array. Means of parameters alone may miss
        an error: include squares, logarithms of scales, products with the data, the log joint density.
    n_direct : int
        Independent draws from prior and likelihood.
    n_sweeps : int
        Sweeps of each successive chain, each followed by new data.
    n_chains : int
        Number of chains; each starts with a draw from the prior, so that no burn-in is needed.
    thin : int
        Evaluate `statistics` after every `thin` sweeps, if it is expensive.

    Returns
    -------
    GewekeResult
        A small `p_value` (below 0.001, say) means an error in the sampler, the prior or the likelihood.

    Notes
    -----
    Statistics are compared by the normal scores of their ranks over both simulations, in location and in spread
    (distance from the median). The variance of a mean over the chains is corrected by the effective sample size. If
    that is small (below some hundreds), the test has little power: use more sweeps.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> import numpy as np
    >>> from arbora.infer.mcmc.diagnostics import geweke_test
    >>> class Mean(NamedTuple):
    ...     mu: float
    >>> class Normal:  # mu ~ N(0, 1), x ~ N(mu, 1)
    ...     def __init__(self, variance=0.5):
    ...         self.variance = variance
    ...     def sample_prior(self, rng):
    ...         return Mean(rng.standard_normal())
    ...     def sample_data(self, state, rng):
    ...         return state.mu + rng.standard_normal()
    ...     def log_joint(self, state, data):
    ...         return -0.5 * (state.mu**2 + (data - state.mu) ** 2)
    ...     def sweep(self, state, data, rng):
    ...         return Mean(rng.normal(data / 2, self.variance**0.5)), {}
    >>> both = lambda state, data: [state.mu, data]
    >>> geweke_test(Normal(), both, np.random.default_rng(0)).p_value > 0.01
    True
    >>> geweke_test(Normal(variance=1.0), both, np.random.default_rng(0)).p_value > 0.01
    False
    """
    direct = []
    for _ in range(n_direct):
        state = model.sample_prior(rng)
        direct.append(np.asarray(statistics(state, model.sample_data(state, rng)), np.float64))
    turns = np.empty((n_chains, n_sweeps // thin, len(direct[0])))
    for chain in turns:
        state = model.sample_prior(rng)
        for sweep in range(n_sweeps // thin * thin):
            state, _ = model.sweep(state, model.sample_data(state, rng), rng)
            if (sweep + 1) % thin == 0:
                chain[sweep // thin] = statistics(state, model.sample_data(state, rng))
    return compare_simulations(np.array(direct), turns)


def compare_simulations(independent: ArrayLike, chains: ArrayLike) -> GewekeResult:
    """Test whether chains (n_chains, n_draws, n_statistics) have the same distribution as independent draws.

    If they have, chains are stationary from their first draw on.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.infer.mcmc.diagnostics import compare_simulations
    >>> rng = np.random.default_rng(0)
    >>> draws, chains = rng.standard_normal((1000, 2)), rng.standard_normal((2, 500, 2))
    >>> compare_simulations(draws, chains).p_value > 0.01
    True
    >>> compare_simulations(draws, 1.2 * chains).p_value > 0.01  # the same mean, another spread
    False
    """
    draws, successive = np.asarray(independent, np.float64), np.asarray(chains, np.float64)
    pooled = np.concatenate([draws, successive.reshape(-1, draws.shape[1])])
    if not np.isfinite(pooled).all():
        bad = np.flatnonzero(~np.isfinite(pooled).all(axis=0)).tolist()
        raise ValueError(f"the statistics {bad} are not always finite: one of the simulations is wrong")
    scores = []
    for values in (pooled, np.abs(pooled - np.median(pooled, axis=0))):
        normal = _normal_scores(values[None])[0]
        left, right = normal[: len(draws)], normal[len(draws) :].reshape(successive.shape)
        size = _basic_ess(_halves(right)[0])
        variance = left.var(axis=0) / len(left) + right.var(axis=(0, 1)) / size
        gap = right.mean(axis=(0, 1)) - left.mean(axis=0)
        # Statistics without variance are either equal or certainly different.
        certain = np.where(gap == 0, 0.0, np.copysign(np.inf, gap))
        scores.append(np.divide(gap, np.sqrt(variance), where=variance > 0, out=certain))
    worst = np.abs(scores).max()
    p_value = min(1.0, 2 * float(norm.sf(worst)) * np.size(scores))
    return GewekeResult(scores[0], scores[1], _basic_ess(_halves(successive)[0]), p_value)


def _halves(draws: ArrayLike) -> tuple[Array, tuple[int, ...]]:
    """Split every chain in two: shape (2 n_chains, n_draws // 2, n_quantities); and the shape of the quantities."""
    x = np.asarray(draws, dtype=np.float64)
    if x.ndim < 2 or x.shape[1] < _MIN_DRAWS:
        raise ValueError(
            f"draws must have shape (n_chains, n_draws, ...) with at least {_MIN_DRAWS} draws, got {x.shape}"
        )
    n_half = x.shape[1] // 2
    flat = x.reshape(*x.shape[:2], -1)
    return np.concatenate([flat[:, :n_half], flat[:, -n_half:]]), x.shape[2:]


def _normal_scores(x: Array) -> Array:
    """Replace values by normal scores of their ranks over the first two axes; NaN where one is not finite."""
    flat = x.reshape(-1, x.shape[-1])
    ranks = rankdata(flat, axis=0)
    z = ndtri((ranks - 0.375) / (len(flat) + 0.25))
    return np.where(np.isfinite(flat).all(axis=0), z, np.nan).reshape(x.shape)


def _basic_rhat(x: Array) -> Array:
    n = x.shape[1]
    within = x.var(axis=1, ddof=1).mean(axis=0)
    between = x.mean(axis=1).var(axis=0, ddof=1)
    total = (n - 1) / n * within + between
    ratio = np.divide(total, within, where=within > 0, out=np.where(total > 0, np.inf, 1.0))
    return np.sqrt(np.where(np.isnan(within), np.nan, ratio))


def _basic_ess(x: Array) -> Array:
    """Effective sample size of the mean of chains of shape (n_chains, n_draws, n_quantities)."""
    n_chains, n, _ = x.shape
    autocovariance = _autocovariance(x).mean(axis=0)
    within = autocovariance[0] * n / (n - 1)
    total = (n - 1) / n * within + (x.mean(axis=1).var(axis=0, ddof=1) if n_chains > 1 else 0.0)
    moves = total > 0
    rho = 1 - np.divide(within - autocovariance, total, where=moves, out=np.ones_like(autocovariance))
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(n // 2, 2, -1).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    monotone = np.minimum.accumulate(np.where(positive, pairs, 0.0), axis=0)
    n_all = n_chains * n
    # Antithetic chains are better than independent draws, but estimates from short chains overstate by how much.
    sum_rho = np.maximum(2 * monotone.sum(axis=0) - 1, 1 / np.log10(max(n_all, 2)))
    return np.where(np.isnan(total), np.nan, np.where(moves, n_all / sum_rho, n_all))


def _autocovariance(x: Array) -> Array:
    """Biased autocovariance of each chain at all lags, by the fast Fourier transform along the second axis."""
    n = x.shape[1]
    centred = x - x.mean(axis=1, keepdims=True)
    length = next_fast_len(2 * n, real=True)
    power = np.abs(rfft(centred, length, axis=1)) ** 2
    return np.asarray(irfft(power, length, axis=1)[:, :n] / n)
