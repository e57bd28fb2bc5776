"""Clusterers that are made of sums over rows: k-means, Gaussians with one covariance, von Mises-Fisher components.

They can be refined by passes over rows that are not in memory, and updated with further rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.expand._cluster.kmeans import KMeansClustering
from arbora.expand._cluster.mixture import GaussianClustering, SphericalClustering, unit_rows
from arbora.expand.clusters.constrained import (
    Clustering,
    Directions,
    Gaussians,
    Pool,
    Problem,
    direction_model,
    gaussian_model,
    kmeans_model,
)
from arbora.expand.clusters.neighbours import file_rows
from arbora.infer.mixture.loop import MixtureModel
from arbora.infer.mixture.statistics import Stats, WeightedRows

Matrix = NDArray[Any]
NO_LABELS: NDArray[np.int64] = np.zeros(0, np.int64)
_TINY = float(np.finfo(np.float64).tiny)


class Family(NamedTuple):
    """How a clusterer is made of sums.

    `params` reads the parameters of a fitted clustering; `make` builds a clustering of parameters, counts, the mean
    squared distance of a feature from the means, and the objective.
    """

    model: Callable[[Problem], MixtureModel]
    params: Callable[[Any], Any]
    make: Callable[[Any, Matrix, float, float], Clustering]
    temperature: float
    unit: bool


FAMILIES = {
    "kmeans": Family(
        kmeans_model,
        lambda found: np.asarray(found.centres.T, np.float64),
        lambda centres, counts, variance, value: KMeansClustering(
            NO_LABELS, value, centres.T, counts, variance
        ),
        0.0,
        False,
    ),
    "gaussian": Family(
        gaussian_model,
        lambda found: Gaussians(found.means.T, found.log_weights, found.covariance),
        lambda params, counts, variance, value: GaussianClustering(
            NO_LABELS, value, params.means.T, params.log_weights, params.covariance
        ),
        1.0,
        False,
    ),
    "vmf": Family(
        direction_model,
        lambda found: Directions(found.directions.T, found.log_weights, found.kappa),
        lambda params, counts, variance, value: SphericalClustering(
            NO_LABELS, value, params.directions.T, params.log_weights, params.kappa
        ),
        1.0,
        True,
    ),
}


def made_of_sums(family: Family, counts: Matrix, sums: Matrix, outer: Matrix) -> Clustering:
    """Clustering of sums over rows: one M-step."""
    none = WeightedRows(np.zeros((0, len(outer))), np.zeros(0))
    held = Stats(np.zeros_like(counts), np.zeros_like(sums))
    model = family.model(Problem(none, held, outer, float(counts.sum())))
    means = sums / np.maximum(counts, _TINY)
    within = float(np.trace(outer)) - float(np.sum(counts * np.sum(means**2, axis=0)))
    variance = max(within, 0.0) / max(float(counts.sum()) * len(outer), _TINY)
    return family.make(model.update(means, Stats(counts, sums)), counts, variance, np.nan)


def filed(pool: Pool, found: Clustering, n_new: int, clusterer: str, seed: int) -> Clustering:
    """Rows of the pool by the votes of their neighbours, after the clusters of a clusterer."""
    family = FAMILIES.get(clusterer)
    if family is not None and family.unit:
        pool = pool._replace(Z=unit_rows(pool.Z))
    return file_rows(pool, found.labels, pool.n_known + n_new, seed)
