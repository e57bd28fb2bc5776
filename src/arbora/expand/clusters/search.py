"""Choosing scale, transformation and clusterer together, by hiding known groups and finding them again.

Half of the known groups are hidden in turn. The transformation is learned from the others; the rows of the hidden
ones are clustered, with their true number of clusters, and compared with their labels. A candidate scores the mean
of NMI, ARI and Hungarian accuracy. Candidates with k-means (von Mises-Fisher components for sparse rows) are tried
first; the slower clusterers are tried on the best spaces.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import xlogy

from arbora.arrays import Ints, Matrix
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.expand.clusters.clusterers import Clusterer
from arbora.expand.clusters.pool import Pool
from arbora.expand.clusters.registry import CLUSTERERS, METRICS, Metric, read_clusterers, read_metrics
from arbora.expand.groups import FeatureSpace, Groups
from arbora.expand.transforms.base import (
    MIN_HIDDEN,
    Labelled,
    MetricTransform,
    apply_map,
    hidden_groups,
    hidden_size,
    labelled_rows,
    require_hidden,
    take_groups,
)

SCALES = ("common", "each")
_MAX_ROWS = 2000  # of a fold
_N_FOLDS = 6
_STARTS = 5
_BONUS = 0.05  # for learned maps; chosen on vowel, segment, libras, binaryalphadigs and glass
# Of scores towards those of their kind; chosen with the bonus, and umist, usps, isolet, leaves100.
_SHRINK = 0.5
_BEST_SPACES = 4  # that slower clusterers are tried on


class Candidate(NamedTuple):
    """A combination to score: scale of the features, transformation with its strength, clusterer."""

    scale: str
    metric: Metric
    strength: float
    clusterer: Clusterer

    @property
    def names(self) -> dict[str, Any]:
        """The candidate in words."""
        return self._replace(metric=self.metric.name, clusterer=self.clusterer.name)._asdict()  # type: ignore[arg-type]

    def learn(self, labelled: Labelled) -> Matrix:
        """Map for labelled rows of a feature space, in their precision."""
        L = self.metric.transformer.learn(labelled, self.strength).L
        return L.astype(labelled.Z.dtype, copy=False)


class Choice(NamedTuple):
    """The candidate in use, and the table of the search if there was one: mean score and scores by fold."""

    candidate: Candidate
    results: dict[str, list[Any]] | None = None


def agreement(truth: Ints, labels: Ints) -> float:
    """Mean of NMI, ARI and Hungarian accuracy, for codes 0, 1, ...

    All three come from one table: the functions of scikit-learn check their arguments and count again, which would
    take a third of the time of a fit.
    """
    table = np.zeros((int(truth.max()) + 1, int(labels.max()) + 1))
    np.add.at(table, (truth, labels), 1.0)
    n, of_truth, of_labels = len(truth), table.sum(axis=1), table.sum(axis=0)
    entropy_truth, entropy_labels, joint = (entropy(counts / n) for counts in (of_truth, of_labels, table))
    spread = (entropy_truth + entropy_labels) / 2
    information = max(entropy_truth + entropy_labels - joint, 0.0)
    nmi = information / spread if spread > 0 else 1.0
    pairs, pairs_truth, pairs_labels, all_pairs = (
        float(np.sum(counts * (counts - 1))) for counts in (table, of_truth, of_labels, np.array([n]))
    )
    chance = pairs_truth * pairs_labels / max(all_pairs, 1.0)
    room = (pairs_truth + pairs_labels) / 2 - chance
    ari = (pairs - chance) / room if room > 0 else 1.0
    matched = float(table[linear_sum_assignment(table, maximize=True)].sum()) / n
    return round((nmi + ari + matched) / 3, 12)  # equal scores stay equal: the first candidate wins


def entropy(shares: Matrix) -> float:
    """Entropy of a distribution, in nats."""
    return -float(xlogy(shares, shares).sum())


class Fold(NamedTuple):
    """One set of hidden groups in every scale: what to learn from, what to cluster."""

    shown: dict[str, Labelled]
    pool: dict[str, Labelled]


def make_folds(spaces: dict[str, Labelled], rng: np.random.Generator, n_folds: int = _N_FOLDS) -> list[Fold]:
    """Hide half of the groups in turn; folds have at most `_MAX_ROWS` rows to cluster."""
    first = next(iter(spaces.values()))
    folds = []
    for hidden in hidden_groups(first.n_groups, n_folds, rng):
        rest = np.setdiff1d(np.arange(first.n_groups), hidden)
        pool = {name: take_groups(labelled, hidden) for name, labelled in spaces.items()}
        n_rows = len(next(iter(pool.values())).Z)
        ids = np.sort(rng.permutation(n_rows)[:_MAX_ROWS])
        pool = {
            name: rows._replace(Z=rows.Z[ids], codes=rows.codes[ids], row_weight=rows.row_weight[ids])
            for name, rows in pool.items()
        }
        folds.append(Fold({name: take_groups(labelled, rest) for name, labelled in spaces.items()}, pool))
    return folds


def search(
    spaces: dict[str, Labelled],
    maps: list[tuple[Metric, float]],
    clusterers: list[Clusterer],
    seed: int,
    progress: Progress | None = None,
) -> Choice:
    """Score the candidates and return the best: each is trained on all folds.

    `spaces` holds the labelled rows in every scale, `maps` pairs (metric, strength). The first clusterer is tried
    with every transformation, the others with the best four.
    """
    folds = make_folds(spaces, np.random.default_rng(seed))
    learned: dict[tuple[Any, ...], Matrix] = {}
    results: dict[str, list[Any]] = {name: [] for name in (*Candidate._fields, "mean_score", "scores")}
    mean_scores: dict[Candidate, float] = {}

    def score(candidate: Candidate) -> None:
        scores, transformer = [], candidate.metric.transformer
        for number, fold in enumerate(folds):
            key = (*candidate[:3], number)
            if key not in learned:
                learned[key] = transformer.learn(fold.shown[candidate.scale], candidate.strength).L
            pool = fold.pool[candidate.scale]
            Z = apply_map(learned[key], pool.Z, unit=candidate.metric.unit_rows)
            free = Pool(Z, np.full(len(Z), -1, np.int64), 0, pool.row_weight)
            rng = np.random.default_rng(seed)
            labels = candidate.clusterer.fit(free, pool.n_groups, rng, _STARTS).labels
            scores.append(agreement(pool.codes, labels))
        mean_scores[candidate] = float(np.mean(scores))
        for name, value in candidate.names.items():
            results[name].append(value)
        results["mean_score"].append(mean_scores[candidate])
        results["scores"].append(scores)
        if progress is not None:
            progress.update(score=mean_scores[candidate])

    first = [Candidate(scale, *learner, clusterers[0]) for scale in spaces for learner in maps]
    for candidate in first:
        score(candidate)
    # Slower clusterers may prefer other spaces than k-means: the plain ones are always tried.
    plain = [candidate for candidate in first if is_plain(candidate)]
    best_spaces = sorted(first, key=lambda candidate: -mean_scores[candidate])[:_BEST_SPACES]
    for clusterer in clusterers[1:]:
        for candidate in dict.fromkeys([*best_spaces, *plain]):
            score(candidate._replace(clusterer=clusterer))
    return Choice(best_candidate(mean_scores), results)


def is_plain(candidate: Candidate) -> bool:
    """Whether the transformation is none, or the whitening of the groups at its usual strength."""
    name, strength = candidate.metric.name, candidate.strength
    return name == "identity" or (name == "within" and strength == candidate.metric.strength)


def best_candidate(scores: dict[Candidate, float]) -> Candidate:
    """Candidate with the best score, after scores are shrunk half way to the mean of their kind.

    Few groups can be hidden, so scores are noisy; candidates with the same transformation and clusterer are of one
    kind. A learned map has a bonus: it is tried with half of the groups and used with all of them, so it will do
    better than it was seen to do.

    Examples
    --------
    >>> from arbora.expand.clusters.registry import CLUSTERERS, METRICS
    >>> kmeans, within, fisher = CLUSTERERS["kmeans"], METRICS["within"], METRICS["fisher"]
    >>> steady = [Candidate("common", within, strength, kmeans) for strength in within.strengths]
    >>> lucky = [Candidate(scale, fisher, 0.1, kmeans) for scale in SCALES]
    >>> best_candidate(dict(zip([*steady, *lucky], [0.7, 0.72, 0.7, 0.73, 0.5]))) == steady[1]
    True
    """
    kinds: dict[tuple[Metric, Clusterer], list[float]] = {}
    for candidate, score in scores.items():
        kinds.setdefault((candidate.metric, candidate.clusterer), []).append(score)

    def value(candidate: Candidate) -> float:
        kind = float(np.mean(kinds[candidate.metric, candidate.clusterer]))
        bonus = _BONUS * (candidate.metric.name != "identity")
        return (1 - _SHRINK) * scores[candidate] + _SHRINK * kind + bonus

    return max(scores, key=value)


# --- Parameters of a fit, and the choice of what was left to "auto" -----------------------------------------


class Options(NamedTuple):
    """Parameters of `ExpandClusters` that its fit reads."""

    metric: Any
    clusterer: Any
    n_new: Any
    pool: str
    scale: str
    n_dims: Any
    n_init: int
    n_rounds: int
    filing: str
    verbose: int


def learn_space(X: Any, groups: Groups, metric: Metric, scale: str, n_dims: Any, seed: int) -> FeatureSpace:
    """Feature space of all rows, in one scale."""
    ones = np.ones(X.shape[0])
    return metric.transformer._fit_space(X, groups, ones, n_dims=n_dims, seed=seed, scale=scale)


def labelled_in(X: Any, groups: Groups, space: FeatureSpace, seed: int) -> Labelled:
    """Labelled rows in a feature space, with equal weights."""
    return labelled_rows(X, groups, space, np.ones(X.shape[0]), seed)


def learnable(candidate: Candidate, n_known: int) -> Candidate:
    """Replace a transformation that needs two groups by within-class whitening, with a warning, if there is one."""
    if n_known >= candidate.metric.min_groups:
        return candidate
    warn_caller(
        f"metric={candidate.metric.name!r} learns from at least {candidate.metric.min_groups} labelled groups, and y "
        f"has {n_known}: metric='within' is used. Label more groups."
    )
    within = METRICS["within"]
    return candidate._replace(metric=within, strength=within.strength)


def choice_before(choice: dict[str, Any], metric: Any, clusterer: Any) -> Candidate:
    """Return the candidate of an earlier fit; its names are those of the registry or of the given objects."""
    metrics = METRICS | read_metrics(metric)
    clusterers = CLUSTERERS | read_clusterers(clusterer, sparse=False)
    for name, rows in (("metric", metrics), ("clusterer", clusterers)):
        if choice[name] not in rows:
            raise ValueError(
                f"the model was fitted with the {name} {choice[name]!r}: set it again, or call `fit`."
            )
    row, strength = metrics[choice["metric"]], choice["strength"]
    if row.name not in METRICS and strength not in row.strengths:
        raise ValueError(
            f"the model was fitted with the metric {row.name}({row.transformer._strength}={strength:g}): set it "
            "again, or call `fit`."
        )
    return Candidate(choice["scale"], row, strength, clusterers[choice["clusterer"]])


def choose(X: Any, groups: Groups, options: Options, seed: int) -> Choice:
    """Choose what was left to be chosen, by hiding known groups where there are enough of them."""
    sparse, n_known = hasattr(X, "indptr"), groups.n_groups
    fixed_scale = "common" if options.scale == "auto" else options.scale
    scales = SCALES if options.scale == "auto" and not sparse else (fixed_scale,)
    metrics = list(read_metrics(options.metric).values())
    clusterers = list(read_clusterers(options.clusterer, sparse=sparse).values())
    is_auto = isinstance(options.metric, str) and options.metric == "auto"
    n_shown = n_known - hidden_size(n_known) if is_auto else n_known
    maps = [
        (metric, strength)
        for metric in metrics
        if n_shown >= metric.min_groups
        for strength in metric.strengths
    ]
    if len(scales) * len(maps) * len(clusterers) == 1:
        return Choice(Candidate(scales[0], *maps[0], clusterers[0]))
    if n_known < MIN_HIDDEN:
        if isinstance(options.metric, MetricTransform) and len(metrics[0].strengths) > 1:
            require_hidden(n_known)
        metric = METRICS["within"] if is_auto else metrics[0]
        if is_auto or (isinstance(options.clusterer, str) and options.clusterer == "auto"):
            warn_caller(
                f"y has {n_known} labelled group{'s' * (n_known > 1)}, and a choice by hiding groups takes "
                f"{MIN_HIDDEN}: metric={metric.name!r} and clusterer={clusterers[0].name!r} are used. Label more "
                "groups, or give metric and clusterer."
            )
        return Choice(Candidate(scales[0], metric, metric.strength, clusterers[0]))
    spaces = {
        scale: labelled_in(X, groups, learn_space(X, groups, metrics[0], scale, options.n_dims, seed), seed)
        for scale in scales
    }
    with Progress(None, "candidates", options.verbose) as progress:
        return search(spaces, maps, clusterers, seed, progress)
