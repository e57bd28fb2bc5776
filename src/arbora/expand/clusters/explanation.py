"""What the labelled groups taught: features that separate them, and groups that might be split or merged.

The weight of a feature is the length of its column of the whole map, from centred features to the learned space,
times the deviation of the feature: how far rows move in the learned space when it changes by one deviation. A
group is proposed for a split where two clusters of its rows explain them better than one by BIC, and where they are
further apart than the nearest two known groups are. Two groups are proposed for a merge where their means are nearer
than `_NEAR` times the median distance of nearest groups.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.sparsefuncs import mean_variance_axis

from arbora.arrays import TINY, Ints, Matrix
from arbora.expand.clusters.clusterers import fit_kmeans
from arbora.expand.clusters.pool import Pool
from arbora.expand.groups import FeatureSpace, Groups

_NEAR = 0.3
_N_DIRECTIONS = 3
_SHOWN = 3  # rows of each side
_MIN_ROWS = 10  # of a group that may be split


class Split(NamedTuple):
    """A known group with two clusters of rows; `rows` are central rows of each."""

    group: Any
    distance: float
    rows: tuple[list[int], list[int]]


class Merge(NamedTuple):
    """Two known groups whose means nearly coincide; `rows` are the rows of each that are nearest to the other."""

    groups: tuple[Any, Any]
    distance: float
    rows: tuple[list[int], list[int]]


class Explanation(NamedTuple):
    """Weights of the features, leading directions, and proposals for known groups."""

    features: list[tuple[Any, float]]  # by falling weight
    directions: list[list[tuple[Any, float]]]  # leading directions, each with its largest features
    splits: list[Split]
    merges: list[Merge]


def column_variances(X: Any) -> Matrix:
    """Variance of each column of dense or sparse rows."""
    if hasattr(X, "indptr"):
        return np.asarray(mean_variance_axis(X, axis=0)[1])
    return np.asarray(np.var(X, axis=0))


def feature_map(space: FeatureSpace, L: Matrix) -> Matrix:
    """Whole linear map from centred features to the learned space, without the division by lengths."""
    whole = L if space.basis is None else L @ space.basis.T
    whole = whole / space.scale
    return whole if space.gain is None else whole * space.gain


def feature_weights(
    space: FeatureSpace, L: Matrix, deviation: Matrix, names: list[Any], n_shown: int
) -> tuple[list[tuple[Any, float]], list[list[tuple[Any, float]]]]:
    """Features by falling weight, and the leading directions of the map with their largest features."""
    whole = feature_map(space, L) * deviation
    weight = np.linalg.norm(whole, axis=0)
    order = np.argsort(-weight, kind="stable")[:n_shown]
    features = [(names[j], float(weight[j])) for j in order]
    directions = []
    _, _, V = np.linalg.svd(whole, full_matrices=False)
    for direction in V[:_N_DIRECTIONS]:
        direction = direction * np.sign(direction[np.abs(direction).argmax()] or 1.0)
        largest = np.argsort(-np.abs(direction), kind="stable")[:n_shown]
        directions.append([(names[j], float(direction[j])) for j in largest])
    return features, directions


def propose_merges(Z: Matrix, codes: Ints, classes: Matrix, rows: Matrix) -> list[Merge]:
    """Pairs of known groups whose means are nearer to each other than groups usually are."""
    n = len(classes)
    if n < 3:
        return []
    means = np.array([Z[codes == k].mean(axis=0) for k in range(n)])
    D = np.linalg.norm(means[:, None] - means, axis=2)
    np.fill_diagonal(D, np.inf)
    median = float(np.median(D.min(axis=1)))
    merges = []
    for i, j in zip(*np.nonzero(np.triu(_NEAR * median > D)), strict=True):
        sides = []
        for group, other in ((i, j), (j, i)):
            members = np.flatnonzero(codes == group)
            distance = np.linalg.norm(Z[members] - means[other], axis=1)
            sides.append(rows[members[np.argsort(distance)[:_SHOWN]]].tolist())
        merges.append(
            Merge((classes[i], classes[j]), float(D[i, j] / max(median, TINY)), (sides[0], sides[1]))
        )
    return sorted(merges, key=lambda merge: merge.distance)


def propose_splits(
    Z: Matrix, codes: Ints, classes: Matrix, rows: Matrix, rng: np.random.Generator
) -> list[Split]:
    """Known groups whose rows fall into two clusters that are as far apart as known groups are."""
    n = len(classes)
    means = np.array([Z[codes == k].mean(axis=0) for k in range(n)])
    D = np.linalg.norm(means[:, None] - means, axis=2)
    np.fill_diagonal(D, np.inf)
    nearest = float(D.min()) if n > 1 else 0.0
    splits = []
    for k in range(n):
        members = np.flatnonzero(codes == k)
        if len(members) < _MIN_ROWS:
            continue
        pool = Pool(Z[members], np.full(len(members), -1), 0, np.ones(len(members)))
        whole, halves = fit_kmeans(pool, 1, rng, 1), fit_kmeans(pool, 2, rng, 5)
        width = Z.shape[1]
        gain = len(members) * width / 2 * np.log(max(whole.variance, TINY) / max(halves.variance, TINY))
        distance = float(np.linalg.norm(halves.centres[0] - halves.centres[1]))
        if gain > (width + 1) / 2 * np.log(len(members)) and distance > nearest > 0:
            sides = []
            for side in range(2):
                half = members[halves.labels == side]
                from_centre = np.linalg.norm(Z[half] - halves.centres[side], axis=1)
                sides.append(rows[half[np.argsort(from_centre)[:_SHOWN]]].tolist())
            splits.append(Split(classes[k], distance / nearest, (sides[0], sides[1])))
    return sorted(splits, key=lambda split: -split.distance)


def explain_groups(
    X: Any, Z: Matrix, groups: Groups, space: FeatureSpace, L: Matrix, names: list[Any], n_features: int
) -> Explanation:
    """Explain the map L of a feature space, for rows X with the images Z in the learned space."""
    rows = np.flatnonzero(groups.labelled)
    deviation = np.sqrt(column_variances(X[rows]))
    features, directions = feature_weights(space, L, deviation, names, n_features)
    codes = groups.codes[rows]
    return Explanation(
        features,
        directions,
        propose_splits(Z[rows], codes, groups.classes, rows, np.random.default_rng(0)),
        propose_merges(Z[rows], codes, groups.classes, rows),
    )
