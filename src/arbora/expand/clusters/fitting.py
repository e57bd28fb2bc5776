"""The steps of a fit of `ExpandClusters` after the choice: learn the map, count the new groups, cluster, all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize_scalar

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.expand.clusters.clusterers import (
    NO_LABELS,
    Clusterer,
    Family,
    assign,
    centre_scores,
    iterate,
    mean_scores,
    nearest,
)
from arbora.expand.clusters.group_model import (
    GroupModel,
    LearnedMap,
    MappedRows,
    RunningSums,
    by_blocks,
    own_probability,
    running_sums,
)
from arbora.expand.clusters.n_new import NumberOfGroups, estimate_n_new
from arbora.expand.clusters.neighbours import file_rows
from arbora.expand.clusters.pool import Clustering, Pool, normalized, pose
from arbora.expand.clusters.registry import family_of
from arbora.expand.clusters.search import Candidate, Options, labelled_in, learn_space
from arbora.expand.groups import MAX_DIMS, REDUCED_DIMS, Groups, group_moments, to_space
from arbora.expand.transforms.base import Labelled, apply_map
from arbora.infer.mixture.loop import Schedule

# --- Honest probabilities: temperatures that are found by hiding labels -------------------------------------
#
# The posterior of a clustering is that of its model: it ignores that clusters may be wrong. Some known groups are
# hidden, and some rows of the others; the map is learned from the rest, the hidden rows are clustered, and the
# groups are matched with clusters (Hungarian). The temperature T of p^(1/T) maximises the mean log-probability of
# the true group of the hidden rows. Rows whose best group is known and rows whose best group is new have their own
# temperatures: known groups are found far more reliably. A temperature does not change the most probable group.
#
# Votes of ten neighbours are coarse: a row in the middle of a group and one at its border may both have all ten.
# Where rows are filed by neighbours, the distances to the means of the groups join the logarithms of the votes, with
# the weight, of those in `MEAN_WEIGHTS`, that gives the hidden rows the highest probability at its best temperature.


_N_FOLDS = 4
_STARTS = 5
_MAX_ROWS = 3000
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 0.2, 200.0
MEAN_WEIGHTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)


class HiddenRows(NamedTuple):
    """Log-probabilities of hidden rows, the columns of their true groups, and scores by the means of the groups."""

    log_proba: Matrix
    truth: Ints
    n_known: int
    by_means: Matrix | None = None

    def with_means(self, weight: float) -> HiddenRows:
        """Hidden rows whose log-probabilities include the scores by the means, with a weight."""
        if not weight or self.by_means is None:
            return self
        return self._replace(log_proba=self.log_proba + weight * self.by_means)


class Calibrated(NamedTuple):
    """Temperatures, weight of the means, and the sum of the log-probabilities that they give to the hidden rows."""

    temperature: tuple[float, float]  # of rows whose best group is known, and new
    mean_weight: float
    value: float


def temperature_of(log_proba: list[Matrix], truth: list[Ints]) -> tuple[float, float]:
    """Temperature that maximises the log-probability of the true groups of several folds, and that sum.

    Examples
    --------
    Probabilities 0.99 that are right in three of four cases:

    >>> import numpy as np
    >>> p = np.log(np.tile([0.99, 0.01], (4, 1)))
    >>> T, _ = temperature_of([p], [np.array([0, 0, 0, 1])])
    >>> np.exp(normalized(p / T))[0].round(3)
    array([0.75, 0.25])
    """
    if not sum(map(len, truth)):
        return 1.0, 0.0

    def loss(log_temperature: float) -> float:
        return -sum(
            float(
                np.take_along_axis(normalized(scores / np.exp(log_temperature)), codes[:, None], axis=1).sum()
            )
            for scores, codes in zip(log_proba, truth, strict=True)
            if len(codes)
        )

    result: Any = minimize_scalar(
        loss, bounds=(np.log(_MIN_TEMPERATURE), np.log(_MAX_TEMPERATURE)), method="bounded"
    )
    return float(np.exp(result.x)), -float(result.fun)


def calibrate_folds(folds: list[HiddenRows], mean_weight: float = 0.0) -> Calibrated:
    """Temperatures of rows whose best group is known, and new, for one weight of the means."""
    folds = [fold.with_means(mean_weight) for fold in folds]
    parts = []
    for new in (False, True):
        rows = [(fold.log_proba.argmax(axis=1) >= fold.n_known) == new for fold in folds]
        parts.append(
            temperature_of(
                [fold.log_proba[ids] for fold, ids in zip(folds, rows, strict=True)],
                [fold.truth[ids] for fold, ids in zip(folds, rows, strict=True)],
            )
        )
    (known, of_known), (new_one, of_new) = parts
    return Calibrated((known, new_one), mean_weight, of_known + of_new)


def match_columns(truth: Ints, clusters: Ints, n_true: int, n_found: int) -> Ints:
    """Cluster of each true group by Hungarian matching; -1 for groups without one.

    Examples
    --------
    >>> match_columns(np.array([0, 0, 1]), np.array([1, 1, 0]), 2, 2)
    array([1, 0])
    """
    overlap = np.zeros((n_true, n_found))
    np.add.at(overlap, (truth, clusters), 1.0)
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    match = np.full(n_true, -1, np.int64)
    match[rows] = columns
    return match


def hide(
    labelled: Labelled, n_hidden: int, share: float, rng: np.random.Generator
) -> tuple[Ints, NDArray[np.bool_]]:
    """Draw groups to hide, and rows to hide: theirs and a share of the others, but never all of a group."""
    hidden = np.sort(rng.permutation(labelled.n_groups)[:n_hidden])
    rows = np.isin(labelled.codes, hidden) | (rng.random(len(labelled.codes)) < share)
    order = rng.permutation(len(labelled.codes))
    first = order[np.unique(labelled.codes[order], return_index=True)[1]]
    rows[first[~np.isin(labelled.codes[first], hidden)]] = False
    return hidden, rows


def _folds(
    labelled: Labelled, candidate: Candidate, pool: str, n_new: int, filing: str, rng: np.random.Generator
) -> Iterator[HiddenRows]:
    n_groups = labelled.n_groups
    fewest = candidate.metric.min_groups  # that must stay shown
    n_hidden = 0
    if n_new:
        share_new = n_new / (n_new + n_groups)
        n_hidden = int(np.clip(round(share_new * n_groups), 1, max(n_groups - fewest, 0)))
    if pool == "new" and not n_hidden:
        return
    for _ in range(_N_FOLDS):
        hidden, free = hide(labelled, n_hidden, 0.5 if pool == "mixed" else 0.0, rng)
        if free.sum() <= n_hidden:
            continue
        shown = np.setdiff1d(np.arange(n_groups), hidden)
        code = np.full(n_groups, -1, np.int64)
        code[shown] = np.arange(len(shown))
        shown_codes = code[labelled.codes]
        base = Labelled(
            labelled.Z[~free], shown_codes[~free], len(shown), labelled.row_weight[~free], labelled.seed
        )
        Z = apply_map(candidate.learn(base), labelled.Z, unit=candidate.metric.unit_rows)
        yield _clustered(
            Z, np.where(free, -1, shown_codes), labelled.codes, code, n_hidden, candidate, pool, filing, rng
        )


def _clustered(
    Z: Matrix,
    fixed: Ints,
    codes: Ints,
    code: Ints,
    n_hidden: int,
    candidate: Candidate,
    pool: str,
    filing: str,
    rng: np.random.Generator,
) -> HiddenRows:
    """Cluster hidden rows; `code` numbers the groups that are shown, and is -1 for those that are hidden."""
    free, n_shown = np.flatnonzero(fixed < 0), int(code.max()) + 1
    clusterer = candidate.clusterer
    covers_known = pool == "mixed" or not n_hidden
    cluster_codes = fixed.copy()
    if covers_known:
        rows = Pool(Z, fixed, n_shown, np.ones(len(Z)))
        clustering = clusterer.fit(rows, n_hidden, rng, _STARTS)
        if filing == "neighbours":
            clustering = _filed(rows, clustering, n_hidden, clusterer, 0)
        cluster_codes = clustering.labels
    else:
        rows = Pool(Z[free], np.full(len(free), -1), 0, np.ones(len(free)))
        clustering = clusterer.fit(rows, n_hidden, rng, _STARTS)
        cluster_codes[free] = n_shown + clustering.labels
    Z = clusterer.prepare(Z)
    moments = group_moments(Z, cluster_codes, n_shown + n_hidden, np.ones(len(Z)))
    variance = max(float(np.trace(moments.within)) / Z.shape[1], np.finfo(np.float64).tiny)
    model = GroupModel(
        clustering, covers_known, n_shown, moments.mean, variance, clusterer.unit, clusterer.name
    )
    columns = code.copy()
    new = free[code[codes[free]] < 0]
    if len(new):
        hidden = np.flatnonzero(code < 0)
        is_new = cluster_codes[new] >= n_shown
        truth = np.searchsorted(hidden, codes[new])
        match = match_columns(truth[is_new], cluster_codes[new][is_new] - n_shown, len(hidden), n_hidden)
        columns[hidden] = np.where(match >= 0, n_shown + match, -1)
    target = columns[codes[free]]
    matched = target >= 0
    matched_rows = Z[free[matched]]
    by_means = (
        mean_scores(matched_rows, model.means, variance) if covers_known and filing == "neighbours" else None
    )
    return HiddenRows(
        np.asarray(model.scorer()(matched_rows), np.float64), target[matched], n_shown, by_means
    )


def calibrate(labelled: Labelled, candidate: Candidate, pool: str, n_new: int, filing: str) -> Calibrated:
    """Temperatures and weight of the means for a choice; 1 and 0 where nothing can be hidden."""
    rng = np.random.default_rng(labelled.seed)
    if len(labelled.Z) > _MAX_ROWS:
        ids = np.sort(rng.permutation(len(labelled.Z))[:_MAX_ROWS])
        codes, numbers = np.unique(labelled.codes[ids], return_inverse=True)
        labelled = Labelled(labelled.Z[ids], numbers, len(codes), labelled.row_weight[ids], labelled.seed)
    if labelled.n_groups < 2:
        return Calibrated((1.0, 1.0), 0.0, 0.0)
    folds = list(_folds(labelled, candidate, pool, n_new, filing, rng))
    weights = MEAN_WEIGHTS if folds and folds[0].by_means is not None else (0.0,)
    return max((calibrate_folds(folds, weight) for weight in weights), key=lambda fit: fit.value)


# --- The steps of a fit of `ExpandClusters` after the choice: learn the map, count the new groups, cluster ---


_FAR = 0.9  # share of labelled rows that are nearer to their group than rows that may be new
_BEYOND = 1.5  # squared distance, in units of the largest one of a labelled row, that is clearly outside
_SURE = 0.9  # probability of pool rows that take part in further rounds


class Clusters(NamedTuple):
    """A clustering, and the code of every row: known groups, then new ones."""

    clustering: Clustering
    codes: Ints
    clusterer: str  # "neighbours" after filing


class Expanded(NamedTuple):
    """Result of a fit."""

    learned: LearnedMap
    candidate: Candidate
    model: GroupModel
    running: RunningSums
    codes: Ints  # of all rows, new groups by falling size
    probability: Array  # of the group of each row
    estimate: NumberOfGroups | None


def expand(
    X: Any, groups: Groups, candidate: Candidate, options: Options, seed: int, engine: Engine
) -> Expanded:
    """Learn the map, count the new groups, cluster; repeat with confident rows for `n_rounds`."""
    space = learn_space(X, groups, candidate.metric, candidate.scale, options.n_dims, seed)
    labelled = labelled_in(X, groups, space, seed)
    learned = LearnedMap(space, candidate.learn(labelled), candidate.metric.unit_rows)
    Z = learned.map(X)
    rng = np.random.default_rng(seed)
    estimate = count_new(Z, groups, options, rng)
    n_new = estimate.value if isinstance(estimate, NumberOfGroups) else estimate
    clusters = cluster(Z, groups, n_new, candidate, options, rng, engine)
    for _ in range(options.n_rounds if n_new else 0):
        labelled = with_confident(
            to_space(space, X), candidate.clusterer.prepare(Z), groups, clusters, options.pool, seed
        )
        learned = learned._replace(L=candidate.learn(labelled))
        Z = learned.map(X)
        clusters = cluster(Z, groups, n_new, candidate, options, rng, engine)
    model, codes = summarize(Z, groups.n_groups, candidate, clusters, options.pool)
    honest = calibrate(labelled_in(X, groups, space, seed), candidate, options.pool, n_new, options.filing)
    model = model._replace(temperature=honest.temperature, mean_weight=honest.mean_weight)
    probability = own_probability(model, Z, codes, engine)
    running = running_sums(Z, groups, codes, probability, model, engine)
    estimate_only = estimate if isinstance(estimate, NumberOfGroups) else None
    return Expanded(learned, candidate, model, running, codes, probability, estimate_only)


def count_new(Z: Matrix, groups: Groups, options: Options, rng: np.random.Generator) -> NumberOfGroups | int:
    """Return the number of new groups: the one given, or an estimate from the rows that may be new."""
    free = np.flatnonzero(~groups.labelled)
    if options.n_new != "auto" or not len(free):
        return min(int(options.n_new), len(free)) if options.n_new != "auto" else 0
    known, codes = Z[groups.labelled], groups.codes[groups.labelled]
    candidates = free
    if options.pool == "mixed":
        means = group_moments(known, codes, groups.n_groups, np.ones(len(known))).mean
        own_distance = np.sum((known - means[codes]) ** 2, axis=1)
        distance = nearest(Z[free], means)[1]
        candidates = free[far_rows(own_distance, distance)]
        if len(candidates) < 2:
            return NumberOfGroups(
                0, 0, 1, {"far rows": float(np.sum(distance > np.quantile(own_distance, _FAR)))}, {}
            )
    return estimate_n_new(known, codes, groups.n_groups, Z[candidates], rng)


def far_rows(own_distance: Matrix, distance: Matrix) -> NDArray[np.bool_]:
    """Find the rows of a mixed pool that may be new, by squared distances to the nearest known group.

    The distances of labelled rows from their own groups (`own_distance`) tell how many rows are far by chance. A
    tenth of them is farther than the .9 quantile: at least twice as many far rows must be there. A few new rows far
    away from all groups are seen beyond a distance that labelled rows hardly ever have.

    Examples
    --------
    >>> own = np.linspace(0.0, 1.0, 200)
    >>> int(far_rows(own, own).sum()), int(far_rows(own, np.append(own, np.full(12, 9.0))).sum())
    (0, 12)
    """
    near = np.asarray(distance > np.quantile(own_distance, _FAR))
    if near.sum() >= 2 * (1 - _FAR) * len(distance):
        return near
    beyond = np.asarray(distance > _BEYOND * own_distance.max(initial=0.0))
    chance = len(distance) / (len(own_distance) + 1)
    return beyond if beyond.sum() > chance + 3 * np.sqrt(chance) + 1 else np.zeros(len(distance), bool)


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
    clusterer = candidate.clusterer
    if options.pool == "mixed" or not n_new:
        pool = Pool(Z, groups.codes, groups.n_groups, np.ones(len(Z)))
        clustering = clusterer.fit(pool, n_new, rng, options.n_init, engine=engine)
        if options.filing == "neighbours":
            clustering = _filed(pool, clustering, n_new, clusterer, int(rng.integers(2**31 - 1)))
            return Clusters(clustering, clustering.labels, "neighbours")
        return Clusters(clustering, clustering.labels, clusterer.name)
    free = np.flatnonzero(~groups.labelled)
    pool = Pool(Z[free], np.full(len(free), -1), 0, np.ones(len(free)))
    clustering = clusterer.fit(pool, n_new, rng, options.n_init, engine=engine)
    codes = groups.codes.copy()
    codes[free] = groups.n_groups + clustering.labels
    return Clusters(clustering, codes, clusterer.name)


def _filed(pool: Pool, clustering: Clustering, n_new: int, clusterer: Clusterer, seed: int) -> Clustering:
    """Rows of the pool by the votes of their neighbours, after the clusters of a clusterer."""
    pool = pool._replace(Z=clusterer.prepare(pool.Z))
    return file_rows(pool, clustering.labels, pool.n_known + n_new, seed)


def with_confident(
    F: Matrix, Z: Matrix, groups: Groups, clusters: Clusters, pool: str, seed: int
) -> Labelled:
    """Labelled rows and the pool rows whose cluster is sure, as rows of the feature space F to learn from."""
    sure = np.exp(clusters.clustering.log_proba(Z).max(axis=1)) >= _SURE
    rows = groups.labelled | (sure & (~groups.labelled if pool == "new" else True))
    codes = np.unique(clusters.codes[rows], return_inverse=True)[1]
    return Labelled(F[rows], codes, int(codes.max()) + 1, np.ones(int(rows.sum())), seed)


def ordered(codes: Ints, n_known: int, n_groups: int) -> Ints:
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
) -> tuple[GroupModel, Ints]:
    """Drop empty new groups, order the others by size; return the model of the groups and the codes of the rows."""
    n_groups = max(int(clusters.codes.max(initial=-1)) + 1, n_known)
    order = ordered(clusters.codes, n_known, n_groups)
    code = np.zeros(n_groups, np.int64)
    code[order] = np.arange(len(order))
    codes = code[clusters.codes]
    clusterer = candidate.clusterer
    covers_known = pool == "mixed" or len(order) == n_known
    clustering = clusters.clustering.take(order if covers_known else order[n_known:] - n_known)
    if family_of(clusters.clusterer) is not None:
        clustering = clustering._replace(labels=NO_LABELS)  # type: ignore[attr-defined]
    moments = group_moments(clusterer.prepare(Z), codes, len(order), np.ones(len(Z)))
    variance = max(float(np.trace(moments.within)) / Z.shape[1], np.finfo(np.float64).tiny)
    model = GroupModel(
        clustering, covers_known, n_known, moments.mean, variance, clusterer.unit, clusters.clusterer
    )
    return model, codes


# --- Large collections: learn from a sample, then pass over all rows with bounded memory --------------------
#
# Scale, transformation, clusterer, map, temperature and number of new groups come from a sample of the rows; so do
# the starts of the clusters. Passes of EM over all rows follow: rows are mapped block by block, and the sums of the
# blocks are added, so that a pass gives the bits of one over rows in memory. Rows are not filed by their neighbours.
# A neighbour graph is not made of sums: spectral clusters stay those of a sample of at most 20,000 rows, and other
# rows ask their neighbours in it.


MAX_FIT_ROWS = 100_000  # of a fit that is not done in batches
MAX_ENTRIES = 20_000_000  # of its rows in the feature space
SAMPLE = 50_000  # rows of the sample
MAX_PASSES = 20
_TOLERANCE = 1e-4  # gain of a pass: of the variance for k-means, per row for mixtures


def sample_size(batch_size: Any, n_rows: int, n_features: int, n_dims: Any) -> int | None:
    """Return the size of the sample, or None where all rows are fitted at once.

    Examples
    --------
    >>> sample_size("auto", 5000, 30, "auto"), sample_size("auto", 10**6, 30, "auto")
    (None, 50000)
    >>> sample_size(1000, 5000, 30, "auto"), sample_size(None, 10**9, 30, "auto")
    (1000, None)
    """
    if batch_size is None:
        return None
    if batch_size != "auto":
        return int(batch_size) if n_rows > batch_size else None
    width = n_features if n_features <= MAX_DIMS else REDUCED_DIMS
    width = n_features if n_dims is None else width if n_dims == "auto" else int(n_dims)
    if n_rows <= MAX_FIT_ROWS and n_rows * width <= MAX_ENTRIES:
        return None
    return min(SAMPLE, max(1000, MAX_ENTRIES // width), n_rows)


def draw_sample(groups: Groups, size: int, rng: np.random.Generator) -> Ints:
    """Rows of a sample: labelled ones as evenly from the groups as they allow, at most half, and rows of the pool.

    Each group keeps at least one labelled row.
    """
    free = np.flatnonzero(~groups.labelled)
    budget = size - min(len(free), size - size // 2)
    size_of = np.bincount(groups.codes[groups.labelled], minlength=groups.n_groups)
    limits = np.arange(1, int(size_of.max()) + 1)
    sizes = np.sort(size_of)
    taken = np.concatenate([[0], np.cumsum(sizes)])
    below = np.searchsorted(sizes, limits)  # groups that are smaller than `limits`
    fits = taken[below] + (len(sizes) - below) * limits <= budget
    cap = int(limits[fits][-1]) if fits.any() else 1
    chosen = []
    for group in range(groups.n_groups):
        rows = np.flatnonzero(groups.codes == group)
        chosen.append(rows if len(rows) <= cap else rng.choice(rows, cap, replace=False))
    labelled = np.concatenate(chosen)
    n_free = max(size - len(labelled), min(len(free), 1))
    return np.sort(np.concatenate([labelled, rng.choice(free, min(n_free, len(free)), replace=False)]))


class Sample(NamedTuple):
    """Rows that a fit learns from: all, or some of them."""

    X: Any
    groups: Groups
    is_all: bool


def take_sample(X: Any, groups: Groups, size: int | None, seed: int) -> Sample:
    """Take a sample of the rows; all of them without a size."""
    if size is None:
        return Sample(X, groups, True)
    rows = draw_sample(groups, size, np.random.default_rng(seed))
    return Sample(X[rows], Groups(groups.codes[rows], groups.classes), False)


def refine(result: Expanded, X: Any, groups: Groups, engine: Engine) -> Expanded:
    """Go on from the fit of a sample with all rows."""
    model = result.model
    rows = MappedRows(X, result.learned, model.unit)
    family = family_of(model.clusterer)
    if family is not None and (model.covers_known or model.n_new):
        model = model._replace(clustering=_passes(family, model, rows, groups, engine))
    codes = _assign(model, rows, groups, engine)
    order = ordered(codes, model.n_known, len(model.means))
    code = np.zeros(len(model.means), np.int64)
    code[order] = np.arange(len(order))
    codes = code[codes]
    own_order = order if model.covers_known else order[model.n_known :] - model.n_known  # of the clusterer
    model = model._replace(clustering=model.clustering.take(own_order), means=model.means[order])
    probability = own_probability(model, rows, codes, engine)
    running = running_sums(rows, groups, codes, probability, model, engine)
    model = with_means(model, running)
    return result._replace(model=model, running=running, codes=codes, probability=probability)


def with_means(model: GroupModel, running: RunningSums) -> GroupModel:
    """Model with the means and the variance of all rows so far."""
    return model._replace(means=running.means, variance=running.variance)


def _passes(family: Family, model: GroupModel, rows: MappedRows, groups: Groups, engine: Engine) -> Any:
    """EM over all rows from the clusters of the sample."""
    free = ~groups.labelled
    weight = np.ones(rows.shape[0], rows.dtype)
    n_clusters = len(model.means)
    if model.covers_known:
        problem = pose(rows, groups.codes, weight, n_clusters, engine)
    else:
        n_clusters -= model.n_known
        problem = pose(rows, np.full(len(free), -1), weight * free, n_clusters, engine)
    spread = model.variance * rows.shape[1] / 2 if family.temperature == 0 else 1.0
    schedule = Schedule(_TOLERANCE * spread, MAX_PASSES, (family.temperature,))
    prepared = problem._replace(rows=schedule.prepare(problem.rows, n_clusters))
    fit = iterate(family.model(problem), prepared, family.params(model.clustering), schedule, engine)
    counts = np.zeros(n_clusters) if fit.stats is None else fit.stats.counts + problem.held.counts
    if family.temperature == 0:
        counts = _count(model, fit.params, rows, groups, engine)
    bound = float(fit.bounds[-1])
    variance = max(-2 * bound, 0.0) / max(problem.total * rows.shape[1], 1.0)
    return family.make(fit.params, counts, variance, bound)


def _count(model: GroupModel, centres: Matrix, rows: MappedRows, groups: Groups, engine: Engine) -> Matrix:
    """Rows of the clusters of k-means."""
    labels = assign(centre_scores(centres), rows, engine)
    if model.covers_known:
        labels = np.where(groups.labelled, groups.codes, labels)
    else:
        labels = labels[~groups.labelled]
    return np.bincount(labels, minlength=centres.shape[1]).astype(np.float64)


def _assign(model: GroupModel, rows: MappedRows, groups: Groups, engine: Engine) -> Ints:
    """Group of each row: its label, or the most probable one (of the new ones, where the pool has no others)."""
    score, codes, first = model.scorer(), groups.codes.copy(), model.first

    def work(block: slice, Z: Matrix) -> None:
        best = first + score(Z)[:, first:].argmax(axis=1)
        codes[block] = np.where(codes[block] >= 0, codes[block], best)

    by_blocks(rows, work, engine)
    return codes
