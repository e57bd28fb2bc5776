"""The steps of a fit of `ExpandClusters` after the choice: learn the map, count the new groups, cluster."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.expand._fit.calibration import calibrate
from arbora.expand.clusters.clusterers import FAMILIES, NO_LABELS, filed, nearest, unit_rows
from arbora.expand.clusters.constrained import Clustering, Pool
from arbora.expand.clusters.group_model import (
    GroupModel,
    LearnedMap,
    RunningSums,
    own_probability,
    running_sums,
)
from arbora.expand.clusters.n_new import NumberOfGroups, estimate_n_new
from arbora.expand.clusters.search import (
    CLUSTERERS,
    Candidate,
    Options,
    labelled_rows,
    learn_map,
    learn_space,
)
from arbora.expand.groups import Groups, group_moments, to_space
from arbora.expand.transforms.base import Labelled

Matrix = NDArray[Any]
_FAR = 0.9  # share of labelled rows that are nearer to their group than rows that may be new
_BEYOND = 1.5  # squared distance, in units of the largest one of a labelled row, that is clearly outside
_SURE = 0.9  # probability of pool rows that take part in further rounds


class Clusters(NamedTuple):
    """A clustering, and the code of every row: known groups, then new ones."""

    found: Clustering
    codes: NDArray[np.int64]
    clusterer: str  # "neighbours" after filing


class Expanded(NamedTuple):
    """Result of a fit."""

    learned: LearnedMap
    candidate: Candidate
    model: GroupModel
    running: RunningSums
    codes: NDArray[np.int64]  # of all rows, new groups by falling size
    own: NDArray[np.float64]  # probability of the group of each row
    estimate: NumberOfGroups | None

    @property
    def n_new(self) -> int:
        """New groups that have rows."""
        return self.model.n_new


def expand(
    X: Any, groups: Groups, candidate: Candidate, options: Options, seed: int, engine: Engine
) -> Expanded:
    """Learn the map, count the new groups, cluster; repeat with confident rows for `n_rounds`."""
    space = learn_space(X, groups, candidate.scale, options.n_dims, seed)
    labelled = labelled_rows(X, groups, space, seed)
    learned = LearnedMap(space, _learn(candidate, labelled), candidate.transform)
    Z = learned.map(X)
    rng = np.random.default_rng(seed)
    estimate = count_new(Z, groups, options, rng)
    n_new = estimate.value if isinstance(estimate, NumberOfGroups) else estimate
    clusters = cluster(Z, groups, n_new, candidate, options, rng, engine)
    for _ in range(options.n_rounds if n_new else 0):
        labelled = with_confident(
            to_space(space, X), _as_clustered(Z, candidate), groups, clusters, options.pool, seed
        )
        learned = learned._replace(L=_learn(candidate, labelled))
        Z = learned.map(X)
        clusters = cluster(Z, groups, n_new, candidate, options, rng, engine)
    model, codes = summarize(Z, groups.n_groups, candidate, clusters, options.pool)
    known = labelled_rows(X, groups, space, seed)
    honest = calibrate(known, candidate, options.pool, n_new, options.filing)
    model = model._replace(temperature=honest.temperature, mean_weight=honest.mean_weight)
    own = own_probability(model, Z, codes, engine)
    running = running_sums(Z, groups, codes, own, model, engine)
    given = estimate if isinstance(estimate, NumberOfGroups) else None
    return Expanded(learned, candidate, model, running, codes, own, given)


def _learn(candidate: Candidate, labelled: Labelled) -> Matrix:
    """Learn the map, in the precision of the rows."""
    return learn_map(candidate.transform, candidate.strength, labelled).astype(labelled.Z.dtype, copy=False)


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
        candidates = free[far_rows(own, away)]
        if len(candidates) < 2:
            return NumberOfGroups(0, 0, 1, {"far rows": float(np.sum(away > np.quantile(own, _FAR)))}, {})
    return estimate_n_new(known, codes, groups.n_groups, Z[candidates], rng)


def far_rows(own: Matrix, away: Matrix) -> NDArray[np.bool_]:
    """Find the rows of a mixed pool that may be new, by squared distances to the nearest known group.

    The distances of labelled rows from their own groups (`own`) tell how many rows are far by chance. A tenth of them
    is farther than the .9 quantile: at least twice as many far rows must be there. A few new rows far away from all
    groups are seen beyond a distance that labelled rows hardly ever have.

    Examples
    --------
    >>> own = np.linspace(0.0, 1.0, 200)
    >>> int(far_rows(own, own).sum()), int(far_rows(own, np.append(own, np.full(12, 9.0))).sum())
    (0, 12)
    """
    near = np.asarray(away > np.quantile(own, _FAR))
    if near.sum() >= 2 * (1 - _FAR) * len(away):
        return near
    beyond = np.asarray(away > _BEYOND * own.max(initial=0.0))
    chance = len(away) / (len(own) + 1)
    return beyond if beyond.sum() > chance + 3 * np.sqrt(chance) + 1 else np.zeros(len(away), bool)


def cluster(
    Z: Matrix,
    groups: Groups,
    n_new: int,
    candidate: Candidate,
    options: Options,
    rng: np.random.Generator,
    engine: Engine,
) -> Clusters:
    """Cluster all rows, and file those without a label by their neighbours; or cluster the pool alone."""
    name = candidate.clusterer
    fit = CLUSTERERS[name]
    if options.pool == "mixed" or not n_new:
        pool = Pool(Z, groups.codes, groups.n_groups, np.ones(len(Z)))
        found = fit(pool, n_new, rng, options.n_init, engine=engine)
        if options.filing == "neighbours":
            found, name = filed(pool, found, n_new, name, int(rng.integers(2**31 - 1))), "neighbours"
        return Clusters(found, found.labels, name)
    free = np.flatnonzero(~groups.labelled)
    pool = Pool(Z[free], np.full(len(free), -1), 0, np.ones(len(free)))
    found = fit(pool, n_new, rng, options.n_init, engine=engine)
    codes = groups.codes.copy()
    codes[free] = groups.n_groups + found.labels
    return Clusters(found, codes, name)


def _as_clustered(Z: Matrix, candidate: Candidate) -> Matrix:
    """Rows of the learned space as the clusterer takes them: of unit length for von Mises-Fisher components."""
    family = FAMILIES.get(candidate.clusterer)
    return unit_rows(Z) if family is not None and family.unit else Z


def with_confident(
    F: Matrix, Z: Matrix, groups: Groups, clusters: Clusters, pool: str, seed: int
) -> Labelled:
    """Labelled rows and the pool rows whose cluster is sure, as rows of the feature space F to learn from."""
    sure = np.exp(clusters.found.log_proba(Z).max(axis=1)) >= _SURE
    rows = groups.labelled | (sure & (~groups.labelled if pool == "new" else True))
    codes = np.unique(clusters.codes[rows], return_inverse=True)[1]
    return Labelled(F[rows], codes, int(codes.max()) + 1, np.ones(int(rows.sum())), seed)


def ordered(codes: NDArray[np.int64], n_known: int, n_groups: int) -> NDArray[np.int64]:
    """Known groups, then new ones by falling size; empty new ones are dropped.

    Examples
    --------
    >>> ordered(np.array([0, 2, 3, 3]), 1, 4)
    array([0, 3, 2])
    """
    size = np.bincount(codes, minlength=n_groups)[n_known:]
    order = np.argsort(-size, kind="stable")
    return np.concatenate([np.arange(n_known), n_known + order[size[order] > 0]]).astype(np.int64)


def summarize(
    Z: Matrix, n_known: int, candidate: Candidate, clusters: Clusters, pool: str
) -> tuple[GroupModel, NDArray[np.int64]]:
    """Drop empty new groups, order the others by size; return the model of the groups and the codes of the rows."""
    n_groups = max(int(clusters.codes.max(initial=-1)) + 1, n_known)
    order = ordered(clusters.codes, n_known, n_groups)
    code = np.zeros(n_groups, np.int64)
    code[order] = np.arange(len(order))
    codes = code[clusters.codes]
    family = FAMILIES.get(candidate.clusterer)
    by_sums = clusters.clusterer in FAMILIES
    covers_known = pool == "mixed" or len(order) == n_known
    found = clusters.found.take(order if covers_known else order[n_known:] - n_known)
    if by_sums:
        found = found._replace(labels=NO_LABELS)  # type: ignore[attr-defined]
    unit = family is not None and family.unit
    moments = group_moments(unit_rows(Z) if unit else Z, codes, len(order), np.ones(len(Z)))
    variance = max(float(np.trace(moments.within)) / Z.shape[1], np.finfo(np.float64).tiny)
    return GroupModel(found, covers_known, n_known, moments.mean, variance, unit, clusters.clusterer), codes
