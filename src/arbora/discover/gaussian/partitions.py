"""The posterior over partitions: a point estimate, the number of clusters, diagnostics, moments of clusters.

The point estimate minimises the mean distance from the draws: the variation of information (Wade and Ghahramani
2018) or Binder's loss. The draws themselves are the first candidates; then single rows move between clusters as long
as the mean distance falls.

Reference: S. Wade and Z. Ghahramani (2018). Bayesian cluster analysis: point estimation and credible balls. Bayesian
Analysis 13(2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arbora.arrays import Array, Ints, Matrix
from arbora.discover.gaussian.normal_wishart import prior_of, scales_of, tabulate
from arbora.discover.gaussian.sampler import PartitionModel, PartitionState
from arbora.infer.mcmc.diagnostics import ess_bulk, rhat
from arbora.kernels.gibbs.partitions import expected_distance, improve_partition

LARGE_SHARE = 0.01  # of the rows: smaller clusters count as outliers
_MAX_CANDIDATES = 60  # draws that are compared as point estimates
_MAX_DRAWS = 200  # draws that a candidate is compared with
_MAX_PASSES = 30
_SPARE_CLUSTERS = 2  # clusters that a point estimate may have beside those of its start


def row_numbers(which: ArrayLike | None, n: int) -> Ints:
    """Return row numbers, from 0 on, from row numbers, a mask of n rows, or None for all."""
    ids = np.arange(n) if which is None else np.asarray(which)
    if ids.dtype == bool:
        if ids.shape != (n,):
            raise IndexError(f"a mask needs the shape ({n},), one entry for each row; it has {ids.shape}")
        return np.flatnonzero(ids)
    if len(ids) and not -n <= ids.min() <= ids.max() < n:
        raise IndexError(f"rows are numbered from 0 to {n - 1}, got {ids.min()} to {ids.max()}")
    return ids.astype(np.int64).ravel() % n


def distance_table(n: int, loss: str) -> Array:
    """Return f of `arbora.kernels.gibbs.partitions` for 0, ..., n: of the losses "vi" (in nats) and "binder"."""
    x = np.arange(n + 1, dtype=np.float64)
    if loss == "binder":
        return x**2 / n**2
    return np.multiply(x, np.log(np.maximum(x, 1.0))) / n


def mean_distance(draws: Matrix, labels: Ints, loss: str = "vi") -> float:
    """Return the mean distance of a partition from draws of partitions (n_draws, n_samples)."""
    f = distance_table(draws.shape[1], loss)
    value: float = expected_distance(draws, labels, int(draws.max()) + 1, f)
    return value


def point_estimate(draws: Matrix, loss: str, log_joint: Array, rng: np.random.Generator) -> Ints:
    """Return one partition for draws (n_draws, n_samples), with labels by decreasing size of the clusters.

    The loss is "vi", "binder" or "map" (the draw of the highest `log_joint`). `rng` draws the order in which rows
    move.
    """
    if loss == "map":
        return by_size(draws[int(np.argmax(log_joint))].astype(np.int64))
    draws = np.ascontiguousarray(draws[spread(len(draws), _MAX_DRAWS)])
    n_draws, n = draws.shape
    f, n_labels = distance_table(n, loss), int(draws.max()) + 1
    candidates = draws[spread(n_draws, _MAX_CANDIDATES)]
    costs = [expected_distance(draws, labels.astype(np.int64), n_labels, f) for labels in candidates]
    best = by_size(candidates[int(np.argmin(costs))].astype(np.int64))
    improve_partition(
        draws, best, n_labels, int(best.max()) + 1 + _SPARE_CLUSTERS, f, rng.permutation(n), _MAX_PASSES
    )
    return by_size(best)


def spread(n: int, size: int) -> Ints:
    """Return at most `size` positions of n, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, size)).astype(np.int64))


def by_size(labels: Ints) -> Ints:
    """Renumber clusters by decreasing size; equal ones by their first rows.

    Examples
    --------
    >>> by_size(np.array([3, 1, 1, 7]))
    array([1, 0, 0, 2])
    """
    _, first, codes, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), np.int64)
    rank[np.lexsort((first, -counts))] = np.arange(len(counts))
    return rank[codes]


def cluster_counts(draws: Matrix) -> tuple[Ints, Ints]:
    """Return the number of clusters of each draw, and of those with at least 1% of the rows.

    Examples
    --------
    >>> cluster_counts(np.array([[0, 0, 1], [0, 0, 0]]))
    (array([2, 1]), array([2, 1]))
    """
    n, width = draws.shape[1], int(draws.max()) + 1
    sizes = np.array([np.bincount(labels, minlength=width) for labels in draws])
    return (sizes > 0).sum(axis=1), (sizes >= max(1.0, LARGE_SHARE * n)).sum(axis=1)


def partition_entropies(draws: Matrix) -> Array:
    """Return the entropy of the cluster sizes of each draw, in nats."""
    shares = np.array([np.bincount(labels, minlength=int(draws.max()) + 1) for labels in draws])
    shares = shares / draws.shape[1]
    return np.asarray(-np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1))


def distribution(values: Ints) -> dict[str, Matrix]:
    """Return the distinct values, sorted, and their shares, as `value` and `probability`.

    Examples
    --------
    >>> distribution(np.array([3, 3, 4, 3]))
    {'value': array([3, 4]), 'probability': array([0.75, 0.25])}
    """
    value, counts = np.unique(values, return_counts=True)
    return {"value": value, "probability": counts / counts.sum()}


# --- Summaries of chains over partitions: invariant quantities, their R-hat, and the moments of clusters ----
#
# Numbers of clusters differ between draws and chains, so only quantities that do not depend on them are compared.


RHAT_LIMIT = 1.1
_MIN_DRAWS = 4  # draws of a chain that R-hat needs


class Moments(NamedTuple):
    """Posterior means of the means and covariances of clusters; covariances (K, p, p), (K, 1, p) or (K, 1, 1)."""

    means: Array
    covariances: Array

    def in_units_of(self, scales: Array) -> Array:
        """Return the covariances in the units of the features: (K, p, p), (K, p) or, with one unit, (K,)."""
        rows, columns = self.covariances.shape[1:]
        if rows > 1 or (columns == 1 and len(scales) == 1):
            return np.asarray(self.covariances * np.outer(scales, scales))
        if columns == len(scales) or np.ptp(scales) > 0:
            return np.asarray(self.covariances[:, 0] * scales**2)
        return np.asarray(self.covariances[:, 0, 0] * scales[0] ** 2)


def invariant_summaries(
    draws: dict[str, Matrix], log_joint: Array, model: PartitionModel
) -> dict[str, Array]:
    """Return the quantities of each draw that do not depend on the numbers of the clusters, (n_chains, n_draws)."""
    labels = draws["labels"]
    shape, flat = labels.shape[:2], labels.reshape(-1, labels.shape[-1])
    numbers, large = cluster_counts(flat)
    summaries: dict[str, Matrix] = {
        "log_joint": log_joint,
        "n_clusters": numbers,
        "n_large_clusters": large,
        "entropy": partition_entropies(flat),
        "largest_share": np.array([np.bincount(labels).max() for labels in flat]) / flat.shape[1],
    }
    fixed = set(model.hyper_prior.fixed) | ({"alpha"} if model.fixed_alpha else set())
    summaries |= {name: draws[name] for name in ("alpha", "r", "nu") if name not in fixed}
    if "S" not in fixed:
        scales = draws["scale"].reshape(-1, *draws["scale"].shape[2:])
        summaries["log_scale"] = np.array([model.hyper_prior.logdet(scale) for scale in scales])
    return {name: np.asarray(values, np.float64).reshape(shape) for name, values in summaries.items()}


def diagnose(summaries: dict[str, Array]) -> tuple[dict[str, float], dict[str, float]]:
    """Return R-hat and effective sample size of each summary; NaN for chains of fewer than 4 draws."""
    if next(iter(summaries.values())).shape[1] < _MIN_DRAWS:
        nothing = dict.fromkeys(summaries, float("nan"))
        return nothing, dict(nothing)
    return (
        {name: float(rhat(values)) for name, values in summaries.items()},
        {name: float(ess_bulk(values)) for name, values in summaries.items()},
    )


def worst_of(rhats: dict[str, float]) -> str | None:
    """Return the summary of largest R-hat; None if there is none."""
    numbers = {name: value for name, value in rhats.items() if not np.isnan(value)}
    return max(numbers, key=lambda name: numbers[name]) if numbers else None


def cluster_moments(model: PartitionModel, states: list[PartitionState], X: Array, labels: Ints) -> Moments:
    """Return posterior means of means and covariances of the clusters of an estimate, given its labels.

    The hyperparameters are averaged over the draws. A covariance whose mean is infinite has that of its mode.
    """
    hp, K, p = model.hyper_prior, int(labels.max()) + 1, X.shape[1]
    counts = np.bincount(labels)
    total_means = np.zeros((K, p))
    total: Any = 0.0
    for state in states:
        prior = prior_of(state.hyper, hp.mean, hp.covariance, len(X))
        clusters = tabulate(X, labels, K, prior, state.scale)
        df = state.nu + counts * (p if hp.covariance == "spherical" else 1.0)
        mean_df = df - hp.d - 1
        divisor = np.where(mean_df > 0, mean_df, df + hp.d + 1)
        total_means += clusters.means[:K]
        total = total + scales_of(clusters, np.arange(K)) / divisor[:, None, None]
    return Moments(total_means / len(states), total / len(states))
