"""Summaries of chains over partitions: invariant quantities, their R-hat, and the moments of clusters.

Numbers of clusters differ between draws and chains, so only quantities that do not depend on them are compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.discover.gaussian import partitions
from arbora.discover.gaussian.normal_wishart import prior_of, scales_of, tabulate
from arbora.discover.gaussian.sampler import PartitionModel, PartitionState
from arbora.infer.mcmc.diagnostics import ess_bulk, rhat

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

RHAT_LIMIT = 1.1
_FEWEST = 4  # draws of a chain that R-hat needs


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
    draws: dict[str, NDArray[Any]], log_joint: Array, model: PartitionModel
) -> dict[str, Array]:
    """Return the quantities of each draw that do not depend on the numbers of the clusters, (n_chains, n_draws)."""
    labels = draws["labels"]
    shape, flat = labels.shape[:2], labels.reshape(-1, labels.shape[-1])
    numbers, large = partitions.cluster_counts(flat)
    found: dict[str, NDArray[Any]] = {
        "log_joint": log_joint,
        "n_clusters": numbers,
        "n_large_clusters": large,
        "entropy": partitions.partition_entropies(flat),
        "largest_share": np.array([np.bincount(one).max() for one in flat]) / flat.shape[1],
    }
    fixed = set(model.hyper_prior.fixed) | ({"alpha"} if model.fixed_alpha else set())
    found |= {name: draws[name] for name in ("alpha", "r", "nu") if name not in fixed}
    if "S" not in fixed:
        scales = draws["scale"].reshape(-1, *draws["scale"].shape[2:])
        found["log_scale"] = np.array([model.hyper_prior.logdet(scale) for scale in scales])
    return {name: np.asarray(values, np.float64).reshape(shape) for name, values in found.items()}


def diagnose(summaries: dict[str, Array]) -> tuple[dict[str, float], dict[str, float]]:
    """Return R-hat and effective sample size of each summary; NaN for chains of fewer than 4 draws."""
    if next(iter(summaries.values())).shape[1] < _FEWEST:
        nothing = dict.fromkeys(summaries, float("nan"))
        return nothing, dict(nothing)
    return (
        {name: float(rhat(values)) for name, values in summaries.items()},
        {name: float(ess_bulk(values)) for name, values in summaries.items()},
    )


def worst_of(rhats: dict[str, float]) -> str | None:
    """Return the summary of largest R-hat; None if there is none."""
    known = {name: value for name, value in rhats.items() if not np.isnan(value)}
    return max(known, key=lambda name: known[name]) if known else None


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
