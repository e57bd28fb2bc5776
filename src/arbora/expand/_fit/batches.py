"""Large collections: learn from a sample, then pass over all rows with bounded memory.

Scale, transformation, clusterer, map, temperature and number of new groups come from a sample of the rows; so do the
starts of the clusters. Passes of EM over all rows follow: rows are mapped block by block, and the sums of the blocks
are added, so that a pass gives the bits of one over rows in memory. Rows are not filed by their neighbours. A
neighbour graph is not made of sums: spectral clusters stay those of a sample of at most 20,000 rows, and other rows
ask their neighbours in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.engine import ThreadEngine
from arbora.expand.clusters.clusterers import FAMILIES, Family
from arbora.expand.clusters.constrained import assign, centre_scores, iterate, pose
from arbora.expand.clusters.fitting import Expanded, expand, ordered
from arbora.expand.clusters.group_model import (
    GroupModel,
    MappedRows,
    RunningSums,
    by_blocks,
    own_probability,
    running_sums,
)
from arbora.expand.clusters.neighbours import MOST_EXACT
from arbora.expand.clusters.search import Candidate, Chosen, Options, choose, learnable
from arbora.expand.groups import MOST_DIMS, REDUCED_DIMS, Groups
from arbora.infer.mixture.loop import Schedule, place_rows

Matrix = NDArray[Any]
MOST_ROWS = 100_000  # of a fit that is not done in batches
MOST_ENTRIES = 20_000_000  # of its rows in the feature space
SAMPLE = 50_000  # rows of the sample
MOST_PASSES = 20
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
    width = n_features if n_features <= MOST_DIMS else REDUCED_DIMS
    width = n_features if n_dims is None else width if n_dims == "auto" else int(n_dims)
    if n_rows <= MOST_ROWS and n_rows * width <= MOST_ENTRIES:
        return None
    return min(SAMPLE, max(1000, MOST_ENTRIES // width), n_rows)


def draw_sample(groups: Groups, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of a sample: labelled ones as evenly from the groups as they allow, at most half, and rows of the pool.

    Each group keeps at least one labelled row.

    Examples
    --------
    >>> codes = np.array([0] * 50 + [1] * 3 + [-1] * 100)
    >>> rows = draw_sample(Groups(codes, np.arange(2)), 20, np.random.default_rng(0))
    >>> np.unique(codes[rows], return_counts=True)
    (array([-1,  0,  1]), array([10,  7,  3]))
    """
    free = np.flatnonzero(~groups.labelled)
    budget = size - min(len(free), size - size // 2)
    size_of = np.bincount(groups.codes[groups.labelled], minlength=groups.n_groups)
    most = np.arange(1, int(size_of.max()) + 1)
    kept = np.sort(size_of)
    taken = np.concatenate([[0], np.cumsum(kept)])
    below = np.searchsorted(kept, most)  # groups that are smaller than `most`
    fits = taken[below] + (len(kept) - below) * most <= budget
    cap = int(most[fits][-1]) if fits.any() else 1
    chosen = []
    for group in range(groups.n_groups):
        rows = np.flatnonzero(groups.codes == group)
        chosen.append(rows if len(rows) <= cap else rng.choice(rows, cap, replace=False))
    labelled = np.concatenate(chosen)
    room = max(size - len(labelled), min(len(free), 1))
    return np.sort(np.concatenate([labelled, rng.choice(free, min(room, len(free)), replace=False)]))


def fit_groups(
    X: Any, groups: Groups, candidate: Candidate | None, options: Options, seed: int, engine: Engine
) -> tuple[Expanded, Chosen]:
    """Choose, unless a candidate is given, and fit: all rows at once, or in batches after a sample."""
    size = sample_size(options.batch_size, X.shape[0], X.shape[1], options.n_dims)
    some_X, some = X, groups
    if size is not None:
        rows = draw_sample(groups, size, np.random.default_rng(seed))
        some_X, some = X[rows], Groups(groups.codes[rows], groups.classes)
        options = options._replace(filing="clusters")
    chosen = Chosen(candidate) if candidate is not None else choose(some_X, some, options, seed)
    chosen = chosen._replace(candidate=learnable(chosen.candidate, groups.n_groups))
    if size is not None and chosen.candidate.clusterer == "spectral" and size > MOST_EXACT:
        rows = draw_sample(groups, MOST_EXACT, np.random.default_rng(seed))
        some_X, some = X[rows], Groups(groups.codes[rows], groups.classes)
    here = engine if size is None or engine.shares_memory else ThreadEngine(engine.n_workers)
    found = expand(some_X, some, chosen.candidate, options, seed, here)
    return (found if size is None else refine(found, X, groups, engine)), chosen


def refine(found: Expanded, X: Any, groups: Groups, engine: Engine) -> Expanded:
    """Go on from the fit of a sample with all rows."""
    model = found.model
    rows = MappedRows(X, found.learned, model.unit)
    if model.clusterer in FAMILIES and (model.covers_known or model.n_new):
        model = model._replace(clustering=_passes(FAMILIES[model.clusterer], model, rows, groups, engine))
    codes = _assign(model, rows, groups, engine)
    order = ordered(codes, model.n_known, len(model.means))
    code = np.zeros(len(model.means), np.int64)
    code[order] = np.arange(len(order))
    codes = code[codes]
    own_order = order if model.covers_known else order[model.n_known :] - model.n_known  # of the clusterer
    model = model._replace(clustering=model.clustering.take(own_order), means=model.means[order])
    own = own_probability(model, rows, codes, engine)
    running = running_sums(rows, groups, codes, own, model, engine)
    model = with_means(model, running)
    return found._replace(model=model, running=running, codes=codes, own=own)


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
    schedule = Schedule(_TOLERANCE * spread, MOST_PASSES, (family.temperature,))
    about = (family.model.__name__, n_clusters)
    with place_rows(problem.rows, schedule, n_clusters, engine, about) as placed:
        fit = iterate(
            family.model(problem),
            problem._replace(rows=placed),
            family.params(model.clustering),
            schedule,
            engine,
        )
    counts = np.zeros(n_clusters) if fit.stats is None else fit.stats.counts + problem.held.counts
    if family.temperature == 0:
        counts = _count(model, fit.params, rows, groups, engine)
    bound = float(fit.bounds[-1])
    variance = max(-2 * bound, 0.0) / max(problem.total * rows.shape[1], 1.0)
    return family.make(fit.params, counts, variance, bound)


def _count(model: GroupModel, centres: Matrix, rows: MappedRows, groups: Groups, engine: Engine) -> Matrix:
    """Rows of the clusters of k-means."""
    found = assign(centre_scores(centres), rows, engine)
    if model.covers_known:
        found = np.where(groups.labelled, groups.codes, found)
    else:
        found = found[~groups.labelled]
    return np.bincount(found, minlength=centres.shape[1]).astype(np.float64)


def _assign(model: GroupModel, rows: MappedRows, groups: Groups, engine: Engine) -> NDArray[np.int64]:
    """Group of each row: its label, or the most probable one (of the new ones, where the pool has no others)."""
    score, codes, first = model.scorer(), groups.codes.copy(), model.first

    def work(block: slice, Z: Matrix) -> None:
        best = first + score(Z)[:, first:].argmax(axis=1)
        codes[block] = np.where(codes[block] >= 0, codes[block], best)

    by_blocks(rows, work, engine)
    return codes
