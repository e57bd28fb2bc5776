"""The steps of a fit of `ExpandClusters` after the choice: learn the map, count the new groups, cluster."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.expand._cluster.base import Clustering, Pool
from arbora.expand._cluster.choosing import Options, labelled_rows, learn_space
from arbora.expand._cluster.group_model import GroupModel
from arbora.expand._cluster.kmeans import nearest
from arbora.expand._cluster.n_new import NumberOfGroups, estimate_n_new
from arbora.expand._cluster.search import CLUSTERERS, Candidate, learn_map, mapped
from arbora.expand._common.groups import Groups, group_moments
from arbora.expand._common.space import FeatureSpace, to_space
from arbora.expand._common.transform import Labelled

Matrix = NDArray[Any]
_FAR = 0.9  # share of labelled rows that are nearer to their group than rows that may be new
_SURE = 0.9  # probability of pool rows that take part in further rounds


class LearnedMap(NamedTuple):
    """Feature space, map and how rows are mapped."""

    space: FeatureSpace
    L: Matrix
    transform: str

    def map(self, X: Any) -> Matrix:
        """Rows in the learned space."""
        return mapped(self.L, to_space(self.space, X), self.transform)


class Clusters(NamedTuple):
    """A clustering, and the code of every row: known groups, then new ones."""

    found: Clustering
    codes: NDArray[np.int64]


class Expanded(NamedTuple):
    """Result of a fit."""

    learned: LearnedMap
    candidate: Candidate
    model: GroupModel
    codes: NDArray[np.int64]  # of all rows, new groups by falling size
    n_new: int
    estimate: NumberOfGroups | None
    proba: Matrix  # of all rows


def expand(X: Any, groups: Groups, candidate: Candidate, options: Options, seed: int) -> Expanded:
    """Learn the map, count the new groups, cluster; repeat with confident rows for `n_rounds`."""
    space = learn_space(X, groups, candidate.scale, options.n_dims, seed)
    labelled = labelled_rows(X, groups, space, seed)
    learned = LearnedMap(
        space, learn_map(candidate.transform, candidate.strength, labelled), candidate.transform
    )
    Z = learned.map(X)
    rng = np.random.default_rng(seed)
    estimate = count_new(Z, groups, options, rng)
    n_new = estimate.value if isinstance(estimate, NumberOfGroups) else estimate
    clusters = cluster(Z, groups, n_new, candidate, options, rng)
    for _ in range(options.n_rounds if n_new else 0):
        labelled = with_confident(to_space(space, X), Z, groups, clusters, options.pool, seed)
        learned = learned._replace(L=learn_map(candidate.transform, candidate.strength, labelled))
        Z = learned.map(X)
        clusters = cluster(Z, groups, n_new, candidate, options, rng)
    given = estimate if isinstance(estimate, NumberOfGroups) else None
    return summarize(Z, groups.n_groups, learned, candidate, clusters, options.pool, given)


def count_new(Z: Matrix, groups: Groups, options: Options, rng: np.random.Generator) -> NumberOfGroups | int:
    """Return the number of new groups: the one given, or an estimate from the rows that may be new."""
    free = np.flatnonzero(~groups.labelled)
    if options.n_new != "auto" or not len(free):
        return min(int(options.n_new), len(free)) if options.n_new != "auto" else 0
    known, codes = Z[groups.labelled], groups.codes[groups.labelled]
    candidates = free
    if options.pool == "mixed":
        means = group_moments(known, codes, groups.n_groups, np.ones(len(known))).mean
        own = np.sum((known - means[codes]) ** 2, axis=1)
        away = nearest(Z[free], means)[1]
        candidates = free[away > np.quantile(own, _FAR)]
        if len(candidates) < 2 * (1 - _FAR) * len(free) or len(candidates) < 2:
            return NumberOfGroups(0, 0, 1, {"far rows": float(len(candidates))}, {})
    return estimate_n_new(known, codes, groups.n_groups, Z[candidates], rng)


def cluster(
    Z: Matrix,
    groups: Groups,
    n_new: int,
    candidate: Candidate,
    options: Options,
    rng: np.random.Generator,
) -> Clusters:
    """Cluster all rows, or the pool alone."""
    fit = CLUSTERERS[candidate.clusterer]
    if options.pool == "mixed" or not n_new:
        pool = Pool(Z, groups.codes, groups.n_groups, np.ones(len(Z)))
        found = fit(pool, n_new, rng, options.n_init)
        return Clusters(found, found.labels)
    free = np.flatnonzero(~groups.labelled)
    found = fit(Pool(Z[free], np.full(len(free), -1), 0, np.ones(len(free))), n_new, rng, options.n_init)
    codes = groups.codes.copy()
    codes[free] = groups.n_groups + found.labels
    return Clusters(found, codes)


def with_confident(
    F: Matrix, Z: Matrix, groups: Groups, clusters: Clusters, pool: str, seed: int
) -> Labelled:
    """Labelled rows and the pool rows whose cluster is sure, as rows of the feature space F to learn from."""
    sure = np.exp(clusters.found.log_proba(Z).max(axis=1)) >= _SURE
    rows = groups.labelled | (sure & (~groups.labelled if pool == "new" else True))
    codes = np.unique(clusters.codes[rows], return_inverse=True)[1]
    return Labelled(F[rows], codes, int(codes.max()) + 1, np.ones(int(rows.sum())), seed)


def summarize(
    Z: Matrix,
    n_known: int,
    learned: LearnedMap,
    candidate: Candidate,
    clusters: Clusters,
    pool: str,
    estimate: NumberOfGroups | None,
) -> Expanded:
    """Drop empty new groups, order the others by size, and take what predictions need."""
    size = np.bincount(clusters.codes, minlength=n_known)[n_known:]
    order = np.argsort(-size, kind="stable")
    order = order[size[order] > 0]
    rank = np.zeros(max(len(size), 1), np.int64)
    rank[order] = np.arange(len(order))
    codes = np.where(
        clusters.codes < n_known, clusters.codes, n_known + rank[np.maximum(clusters.codes - n_known, 0)]
    )
    moments = group_moments(Z, codes, n_known + len(order), np.ones(len(Z)))
    variance = max(float(np.trace(moments.within)) / Z.shape[1], np.finfo(np.float64).tiny)
    covers_known = pool == "mixed" or not len(size)
    model = GroupModel(clusters.found, covers_known, n_known, order, moments.mean, variance)
    return Expanded(learned, candidate, model, codes, len(order), estimate, model.proba(Z))
