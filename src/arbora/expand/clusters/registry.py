"""The transformations and the clusterers that `ExpandClusters` knows by name: one row each.

The names that its parameters accept, what "auto" tries, the strengths of a search and the tables of the documentation
derive from these rows. To add a transformation or a clusterer, add a row; to use one once, give the object itself:

    ExpandClusters(metric=GaussianTransform("cv"), clusterer=Clusterer("mine", fit_mine))
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from arbora.core.monitor import Progress
from arbora.expand.clusters.clusterers import (
    DIRECTIONS,
    GAUSSIANS,
    KMEANS,
    Clusterer,
    Family,
    by_labels,
    fit_gaussian,
    fit_kmeans,
    fit_spectral,
    fit_spherical,
)
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform
from arbora.expand.transforms.fisher import FisherTransform
from arbora.expand.transforms.gaussian import GaussianTransform
from arbora.expand.transforms.separability import SeparabilityTransform
from arbora.expand.transforms.spherical import SphericalTransform
from arbora.expand.transforms.within_class import WithinClassTransform

# --- Transformations ----------------------------------------------------------------------------------------------


class Metric(NamedTuple):
    """A transformation under a name; `as_metric` makes a row of a transformer."""

    name: str
    transformer: MetricTransform
    auto: bool  # whether "auto" tries it
    strengths: tuple[float, ...]  # that a search tries
    strength: float  # without a search
    min_groups: int  # that must be labelled
    unit_rows: bool  # whether mapped rows are divided by their lengths


def as_metric(name: str, transformer: MetricTransform, *, auto: bool = False) -> Metric:
    """Read the rest of a row from a transformer: the default strength is that of its class."""
    strengths, default = transformer._read_strengths(), transformer._default_strength()
    strength = strengths[0] if len(strengths) == 1 else default
    return Metric(
        name, transformer, auto, tuple(strengths), strength, transformer._min_groups, transformer._unit_rows
    )


class IdentityTransform(MetricTransform):
    """The feature space as it is."""

    _min_groups, _learns_in_single = 1, True

    def __init__(self, *, n_dims: Any = "auto", random_state: Any = None) -> None:
        self.n_dims = n_dims
        self.random_state = random_state

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        return Learned(np.eye(labelled.Z.shape[1]))


METRICS = {
    row.name: row
    for row in (
        as_metric("identity", IdentityTransform(), auto=True),
        as_metric("within", WithinClassTransform([0.01, 0.1, 0.3]), auto=True),
        as_metric("gaussian", GaussianTransform(tol=1e-3, max_iter=200), auto=True),
        as_metric("separability", SeparabilityTransform(tol=1e-2)),
        as_metric("fisher", FisherTransform(), auto=True),
        as_metric("spherical", SphericalTransform(tol=1e-3)),
    )
}


def read_metrics(metric: str | MetricTransform) -> dict[str, Metric]:
    """Return the rows that the parameter `metric` asks for, by name."""
    if isinstance(metric, MetricTransform):
        name = type(metric).__name__
        return {name: as_metric(name, metric)}
    return {name: row for name, row in METRICS.items() if (row.auto if metric == "auto" else name == metric)}


# --- Clusterers ---------------------------------------------------------------------------------------------------


CLUSTERERS = {
    row.name: row
    for row in (
        Clusterer("kmeans", fit_kmeans, KMEANS, auto_dense=True),
        Clusterer("gaussian", fit_gaussian, GAUSSIANS),
        Clusterer("vmf", fit_spherical, DIRECTIONS, auto_sparse=True),
        Clusterer("spectral", fit_spectral, auto_dense=True, auto_sparse=True),
    )
}


def read_clusterers(clusterer: str | Clusterer, *, sparse: bool) -> dict[str, Clusterer]:
    """Return the rows that the parameter `clusterer` asks for, by name."""
    if isinstance(clusterer, Clusterer):
        if CLUSTERERS.get(clusterer.name, clusterer) != clusterer:
            raise ValueError(
                f"the clusterer {clusterer.name!r} of arbora has this name: give yours another name."
            )
        if clusterer.name in CLUSTERERS:
            return {clusterer.name: clusterer}
        if not callable(clusterer.fit):
            raise TypeError(
                f"the clusterer {clusterer.name!r} has fit={clusterer.fit!r}: give a function "
                "fit(pool, n_new, rng, n_init, engine=None) that returns an object with labels."
            )
        return {clusterer.name: clusterer._replace(fit=by_labels(clusterer.name, clusterer.fit))}
    if clusterer == "auto":
        return {
            name: row for name, row in CLUSTERERS.items() if (row.auto_sparse if sparse else row.auto_dense)
        }
    return {clusterer: CLUSTERERS[clusterer]}


def family_of(name: str) -> Family | None:
    """Return how the clusters of a fitted model are made of sums; None for those of neighbours."""
    row = CLUSTERERS.get(name)
    return None if row is None else row.family
