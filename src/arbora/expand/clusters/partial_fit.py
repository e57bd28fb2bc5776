"""Further rows and labels after a fit, with bounded memory: the step of `partial_fit`.

The map, the choice and the temperature stay. Each group is its sums (`running`): labelled rows are added to the group
of their label, rows of the pool to the groups that the model gives them. A label that was never seen takes over the
new group that most of its rows are in (Hungarian matching over all such labels), or starts a known group. Rows that
were counted before (`seen`) and now have a label move from the group the model gives them to that of the label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.expand.clusters.clusterers import made_of_sums
from arbora.expand.clusters.group_model import (
    GroupModel,
    MappedRows,
    RunningSums,
    by_blocks,
    own_probability,
    soft_sums,
)
from arbora.expand.clusters.neighbours import POOL_VOTE, NeighbourClustering
from arbora.expand.clusters.pool import Clustering, one_hot
from arbora.expand.clusters.registry import family_of
from arbora.expand.groups import Groups

# --- Further rows and labels after a fit, with bounded memory: the step of `partial_fit` --------------------


MAX_GRAPH_ROWS = 20_000  # of a neighbour graph that further rows are added to


class Naming(NamedTuple):
    """Where the groups go: the old column of each, -1 for a group that starts; the known ones come first."""

    names: list[Any]
    columns: Ints
    n_known: int


class Updated(NamedTuple):
    """A model after further rows."""

    model: GroupModel
    running: RunningSums
    codes: Ints  # of the further rows
    probability: Array  # of the group of each
    naming: Naming


def best_groups(model: GroupModel, X: Any, engine: Engine, first: int = 0) -> Ints:
    """Most probable group of each row, among those from `first` on."""
    score, codes = model.scorer(), np.empty(X.shape[0], np.int64)

    def work(block: slice, Z: Matrix) -> None:
        codes[block] = first + score(Z)[:, first:].argmax(axis=1)

    by_blocks(X, work, engine)
    return codes


def name_groups(names: list[Any], n_known: int, labels: Groups, predicted: Ints) -> Naming:
    """Decide which groups the labels of further rows name.

    `names` lists all groups, known ones first; `predicted` has the groups that the model gives to the rows.
    """
    fresh = [k for k, name in enumerate(labels.classes.tolist()) if name not in names]
    named = {names.index(name): name for name in labels.classes.tolist() if name in names[n_known:]}
    open_groups = [column for column in range(n_known, len(names)) if column not in named]
    overlap = np.array(
        [[np.sum((labels.codes == k) & (predicted == column)) for column in open_groups] for k in fresh]
    ).reshape(len(fresh), len(open_groups))
    started = {k: labels.classes.tolist()[k] for k in fresh}
    for label, group in zip(*linear_sum_assignment(overlap, maximize=True), strict=True):
        if 2 * overlap[label, group] > np.sum(labels.codes == fresh[label]):
            named[open_groups[group]] = started.pop(fresh[label])
    others = [column for column in range(n_known, len(names)) if column not in named]
    known = [*range(n_known), *sorted(named), *[-1] * len(started)]
    new_names = [*names[:n_known], *[named[column] for column in sorted(named)], *started.values()]
    return Naming(
        [*new_names, *[names[column] for column in others]], np.array([*known, *others]), len(known)
    )


def rearranged(running: RunningSums, naming: Naming, n_known: int, covers_known: bool) -> RunningSums:
    """Bring sums into the order of the groups after naming; products of rows follow groups that became known."""
    is_old, columns = naming.columns >= 0, naming.columns
    counts, sums, confidence = (
        np.where(is_old, running.counts[columns], 0.0),
        np.where(is_old, running.sums[:, columns], 0.0),
        np.where(is_old, running.confidence[columns], 0.0),
    )
    known_outer, new_outer = running.known_outer, running.new_outer
    became_known = columns[: naming.n_known][columns[: naming.n_known] >= n_known]
    if not covers_known and len(became_known):
        # All groups share one covariance: that of the new ones stands for the rows that leave them.
        count, means = running.counts, running.means
        new = np.arange(n_known, len(count))
        within = new_outer - (count[new] * means[new].T) @ means[new]
        moved = (count[became_known] * means[became_known].T) @ means[became_known]
        moved += within * (count[became_known].sum() / max(count[new].sum(), TINY))
        known_outer, new_outer = known_outer + moved, new_outer - moved
    return RunningSums(counts, sums, confidence, known_outer, new_outer)


def added(
    running: RunningSums, Z: Matrix, codes: Ints, n_known: int, probability: Matrix, sign: float = 1.0
) -> RunningSums:
    """Add some rows to the sums of their groups, or take them away."""
    n_groups, Z = len(running.counts), np.asarray(Z, np.float64)
    known = codes < n_known
    return RunningSums(
        np.maximum(running.counts + sign * np.bincount(codes, minlength=n_groups), 0.0),
        running.sums + sign * np.asarray(one_hot(codes, np.ones(len(codes)), n_groups) @ Z).T,
        np.maximum(running.confidence + sign * np.bincount(codes, probability, n_groups), 0.0),
        running.known_outer + sign * Z[known].T @ Z[known],
        running.new_outer + sign * Z[~known].T @ Z[~known],
    )


def rebuilt(model: GroupModel, running: RunningSums, n_known: int) -> GroupModel:
    """Model of the groups from their sums."""
    first = 0 if model.covers_known else n_known
    clustering = model.clustering
    family = family_of(model.clusterer)
    if family is not None and first < len(running.counts):
        outer = running.new_outer if first else running.known_outer + running.new_outer
        clustering = made_of_sums(family, running.counts[first:], running.sums[:, first:], outer)
    return model._replace(
        clustering=clustering, n_known=n_known, means=running.means, variance=running.variance
    )


def _renumbered(model: GroupModel, naming: Naming) -> GroupModel:
    """Clusters of neighbours after naming: labels of rows follow the groups; a model of new ones loses known ones."""
    clustering, first = model.clustering, 0 if model.covers_known else naming.n_known
    assert isinstance(clustering, NeighbourClustering)
    place = np.full(len(model.means) + 1, -1, np.int64)
    place[naming.columns[naming.columns >= 0]] = np.flatnonzero(naming.columns >= 0)
    offset = 0 if model.covers_known else model.n_known
    labels = place[np.where(clustering.labels >= 0, clustering.labels + offset, -1)] - first
    is_used = labels >= 0
    return model._replace(
        clustering=clustering._replace(
            labels=labels[is_used],
            Z=clustering.Z[is_used],
            votes=clustering.votes[is_used],
            n_clusters=len(naming.names) - first,
        )
    )


def _with_rows(
    clustering: Clustering, Z: Matrix, codes: Ints, votes: Matrix, rng: np.random.Generator
) -> NeighbourClustering:
    """Clusters of neighbours with further rows; above `MAX_GRAPH_ROWS` random rows are dropped."""
    assert isinstance(clustering, NeighbourClustering)
    rows, labels = (
        np.vstack([clustering.Z, Z.astype(clustering.Z.dtype)]),
        np.concatenate([clustering.labels, codes]),
    )
    votes = np.concatenate([clustering.votes, votes.astype(clustering.votes.dtype)])
    if len(rows) > max(MAX_GRAPH_ROWS, len(clustering.Z)):
        ids = np.sort(rng.permutation(len(rows))[: max(MAX_GRAPH_ROWS, len(clustering.Z))])
        rows, labels, votes = rows[ids], labels[ids], votes[ids]
    return clustering._replace(Z=rows, labels=labels, votes=votes)


class _Rows:
    """Some of the mapped rows."""

    dense = True

    def __init__(self, rows: MappedRows, ids: Ints) -> None:
        self.rows, self.ids, self.shape, self.dtype = rows, ids, (len(ids), rows.shape[1]), rows.dtype

    def __getitem__(self, block: slice) -> Matrix:
        return self.rows[self.ids[block]]


def update_groups(
    model: GroupModel,
    running: RunningSums,
    names: list[Any],
    rows: MappedRows,
    labels: Groups,
    seen: NDArray[np.bool_],
    rng: np.random.Generator,
    engine: Engine,
) -> Updated:
    """Add rows and labels to a model."""
    n_before, by_neighbours = model.n_known, family_of(model.clusterer) is None
    predicted = best_groups(model, rows, engine)
    naming = name_groups(names, n_before, labels, predicted)
    n_known, n_groups = naming.n_known, len(naming.names)
    running = rearranged(running, naming, n_before, model.covers_known)
    if by_neighbours:
        model = _renumbered(model, naming)
    held = labels.labelled
    column = np.array([naming.names.index(name) for name in labels.classes.tolist()], np.int64)
    codes = np.full(len(held), -1, np.int64)
    codes[held] = column[labels.codes[held]]
    Z, ones = rows[np.flatnonzero(held)], np.ones(int(held.sum()))
    moved = held & seen
    if moved.any():
        place = np.zeros(len(names), np.int64)
        place[naming.columns[naming.columns >= 0]] = np.flatnonzero(naming.columns >= 0)
        before = place[predicted[moved]]
        running = added(running, rows[np.flatnonzero(moved)], before, n_known, ones[: len(before)], -1.0)
    running = added(running, Z, codes[held], n_known, ones)
    model = rebuilt(model, running, n_known)
    first = model.first
    free = np.flatnonzero(~held & ~seen)
    codes[~held] = best_groups(model, _Rows(rows, np.flatnonzero(~held)), engine, first)
    if by_neighbours and (model.covers_known or model.n_new):
        inside = (held | ~seen) & (codes >= first)
        votes = np.where(held, 1.0, POOL_VOTE)[inside]
        grown = _with_rows(model.clustering, rows[np.flatnonzero(inside)], codes[inside] - first, votes, rng)
        model = model._replace(clustering=grown)
    if by_neighbours or not (model.covers_known or model.n_new):
        running = added(running, rows[free], codes[free], n_known, np.zeros(len(free)))
    elif len(free):
        sums = soft_sums(rows[free], np.full(len(free), -1), np.ones(len(free)), model, engine)
        counts, total = running.counts.copy(), running.sums.copy()
        counts[first:] += sums.counts
        total[:, first:] += sums.sums
        kind = "new_outer" if first else "known_outer"
        running = running._replace(counts=counts, sums=total, **{kind: getattr(running, kind) + sums.outer})
    model = rebuilt(model, running, n_known)
    probability = own_probability(model, rows, codes, engine)
    confidence = running.confidence + np.bincount(codes[free], probability[free], n_groups)
    return Updated(model, running._replace(confidence=confidence), codes, probability, naming)
