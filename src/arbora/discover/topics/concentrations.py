"""Concentrations of a cluster topic model: their priors, and their draws given table counts.

Each has an exponential prior with a given mean. Conditional densities are one-dimensional and cheap, because equal
counts are grouped; they are slice sampled on the logarithmic scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from arbora.infer.mcmc.hmc import slice_step

_WIDTH = 1.0  # first guess of the width of the density of a logarithm
_LIMIT = 50.0  # of the logarithms of the concentrations


class Concentrations(NamedTuple):
    """Concentrations of topics in documents, in clusters, in all clusters; of words; and of labels."""

    alpha: float
    alpha1: float
    alpha0: float
    beta: float
    omega: float


def log_prior(now: Concentrations, mean: Concentrations) -> float:
    """Log-density of the logarithms of concentrations with exponential priors."""
    value, scale = np.array(now), np.array(mean)
    return float(np.sum(np.log(value / scale) - value / scale))


def sample_prior(mean: Concentrations, rng: np.random.Generator) -> Concentrations:
    """Draw concentrations from their priors."""
    return Concentrations(*(np.array(mean) * rng.standard_exponential(len(mean))).tolist())


def log_table_density(a: float, n_tables: int, sizes: NDArray[Any], counts: NDArray[Any]) -> float:
    """Log of a^n_tables prod (Gamma(a) / Gamma(a + size))^count: restaurants of customers, and all their tables."""
    return float(n_tables * np.log(a) + counts @ (gammaln(a) - gammaln(a + sizes)))


def log_symmetric_density(a: float, n: int, totals: NDArray[Any], histogram: NDArray[Any]) -> float:
    """Log-density of counts of symmetric Dirichlet-multinomials with n categories.

    `totals` are their numbers of draws, `histogram[m]` is the number of categories with count m, over all of them.
    """
    value = len(totals) * gammaln(n * a) - gammaln(n * a + totals).sum()
    return float(value + histogram @ (gammaln(a + np.arange(len(histogram))) - gammaln(a)))


def draw_concentrations(
    now: Concentrations,
    mean: Concentrations,
    lengths: NDArray[Any],
    tables: NDArray[np.int64],
    upper: NDArray[np.int64],
    histogram: NDArray[np.int64],
    totals: NDArray[np.int64],
    sizes: NDArray[np.int64],
    rng: np.random.Generator,
) -> Concentrations:
    """Draw all concentrations, each given all else but mu and mu_0.

    Parameters
    ----------
    now, mean : Concentrations
        Current values, and means of the priors.
    lengths : ndarray of shape (n_documents,)
    tables, upper : ndarray of shape (n_clusters, n_topics)
        Table counts of the documents of each cluster, and of the clusters.
    histogram : ndarray
        Number of pairs (word, topic) with each count.
    totals : ndarray
        Tokens of each topic; zeros in the padding.
    sizes : ndarray of shape (n_clusters,)
        Documents of each cluster.
    rng : numpy.random.Generator

    Returns
    -------
    Concentrations
    """
    n_topics = tables.shape[1]
    n_words = int(histogram.sum()) // n_topics
    length, with_length = np.unique(lengths, return_counts=True)
    per_cluster, ones = tables.sum(axis=1), np.ones(len(tables))
    base = upper.sum(axis=0)
    n_tables, n_upper = int(tables.sum()), int(upper.sum())
    densities: tuple[Callable[[float], float], ...] = (
        lambda a: log_table_density(a, n_tables, length, with_length),
        lambda a: log_table_density(a, n_upper, per_cluster, ones),
        lambda a: log_symmetric_density(a, n_topics, np.array([n_upper]), np.bincount(base)),
        lambda a: log_symmetric_density(a, n_words, totals[:n_topics], histogram),
        lambda a: log_symmetric_density(a, len(sizes), np.array([sizes.sum()]), np.bincount(sizes)),
    )
    drawn = [
        _draw(value, scale, density, rng) for value, scale, density in zip(now, mean, densities, strict=True)
    ]
    return Concentrations(*drawn)


def _draw(
    value: float, scale: float, log_density: Callable[[float], float], rng: np.random.Generator
) -> float:
    def of_logarithm(log_a: float) -> float:
        if abs(log_a) > _LIMIT:
            return -np.inf
        a = float(np.exp(log_a))
        return log_a - a / scale + log_density(a)

    return float(np.exp(slice_step(of_logarithm, float(np.log(value)), _WIDTH, rng)))
