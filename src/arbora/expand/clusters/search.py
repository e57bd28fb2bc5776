"""Choosing scale, transformation and clusterer together, by hiding known groups and finding them again.

Half of the known groups are hidden in turn. The transformation is learned from the others; the rows of the hidden
ones are clustered, with their true number of clusters, and compared with their labels. A candidate scores the mean
of NMI, ARI and Hungarian accuracy. Candidates with k-means are tried first; the slower clusterers are tried on the
best spaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from arbora.arrays import Ints, Matrix
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.expand.clusters.clusterers import fit_gaussian, fit_kmeans, fit_spectral, fit_spherical
from arbora.expand.clusters.constrained import Clustering, Pool
from arbora.expand.groups import FeatureSpace, Groups, fit_space, group_moments, to_space
from arbora.expand.transforms.base import Labelled, hidden_groups, hidden_size, take_groups
from arbora.expand.transforms.fisher import between_groups, discriminants
from arbora.expand.transforms.gaussian import learn_gaussian
from arbora.expand.transforms.separability import learn_separability
from arbora.expand.transforms.spherical import learn_spherical, unit
from arbora.expand.transforms.within_class import whitening
from arbora.metrics import hungarian_accuracy

CLUSTERERS: dict[str, Callable[..., Clustering]] = {
    "kmeans": fit_kmeans,
    "gaussian": fit_gaussian,
    "vmf": fit_spherical,
    "spectral": fit_spectral,
}
SCALES = ("common", "each")
ALONE = ("identity", "within")  # transformations that learn from a single group
SHRINKAGES = (0.01, 0.1, 0.3)
_MOST_ROWS = 2000  # of a fold
_N_FOLDS = 6
_STARTS = 5
_BONUS = 0.05  # for learned maps; chosen on vowel, segment, libras, binaryalphadigs and glass
_SHRINK = (
    0.5  # of scores towards those of their kind; chosen with the bonus, and umist, usps, isolet, leaves100
)
_BEST_SPACES = 4  # that slower clusterers are tried on


class Candidate(NamedTuple):
    """What is tried: scale of the features, transformation with its strength, clusterer."""

    scale: str
    transform: str
    strength: float
    clusterer: str


class Choice(NamedTuple):
    """The best candidate, and the table of all: mean score and scores by fold."""

    best: Candidate
    results: dict[str, list[Any]]


def learn_map(name: str, strength: float, labelled: Labelled) -> Matrix:
    """Map of a transformation by name, for labelled rows of a feature space.

    Examples
    --------
    >>> import numpy as np
    >>> labelled = Labelled(np.eye(2), np.array([0, 1]), 2, np.ones(2), 0)
    >>> learn_map("identity", 0.0, labelled)
    array([[1., 0.],
           [0., 1.]])
    """
    width = labelled.Z.shape[1]
    if name == "identity":
        return np.eye(width)
    if name == "gaussian":
        return learn_gaussian(labelled, strength, tol=1e-3, max_iter=200).L
    if name == "separability":
        return learn_separability(labelled, strength, tol=1e-2)[0].L
    if name == "spherical":
        return learn_spherical(labelled, strength, tol=1e-3).L
    moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
    if name == "within":
        return whitening(moments.within, strength)
    n_components = min(labelled.n_groups - 1, width)
    return discriminants(between_groups(moments), moments.within, strength, n_components)


def candidate_maps(names: tuple[str, ...], n_shown: int) -> list[tuple[str, float]]:
    """List transformations with their strengths; those that need two groups to learn from are left out."""
    strengths = {
        "identity": (0.0,),
        "within": SHRINKAGES,
        "gaussian": (1e-3,),
        "separability": (2.0,),
        "spherical": (1e-2,),
        "fisher": (0.1,),
    }
    return [(name, s) for name in names if n_shown > 1 or name in ALONE for s in strengths[name]]


def mapped(L: Matrix, Z: Matrix, name: str) -> Matrix:
    """Rows of the feature space after a map."""
    return unit(Z @ L.T)[0] if name == "spherical" else np.asarray(Z @ L.T)


def agreement(truth: Ints, found: Ints) -> float:
    """Mean of NMI, ARI and Hungarian accuracy."""
    measures = (normalized_mutual_info_score, adjusted_rand_score, hungarian_accuracy)
    return float(np.mean([measure(truth, found) for measure in measures]))


class Fold(NamedTuple):
    """One set of hidden groups in every scale: what to learn from, what to cluster."""

    shown: dict[str, Labelled]
    pool: dict[str, Labelled]


def make_folds(spaces: dict[str, Labelled], rng: np.random.Generator, n_folds: int = _N_FOLDS) -> list[Fold]:
    """Hide half of the groups in turn; folds have at most `_MOST_ROWS` rows to cluster."""
    first = next(iter(spaces.values()))
    folds = []
    for hidden in hidden_groups(first.n_groups, n_folds, rng):
        rest = np.setdiff1d(np.arange(first.n_groups), hidden)
        pool = {name: take_groups(labelled, hidden) for name, labelled in spaces.items()}
        n_rows = len(next(iter(pool.values())).Z)
        kept = np.sort(rng.permutation(n_rows)[:_MOST_ROWS])
        pool = {
            name: one._replace(Z=one.Z[kept], codes=one.codes[kept], row_weight=one.row_weight[kept])
            for name, one in pool.items()
        }
        folds.append(Fold({name: take_groups(labelled, rest) for name, labelled in spaces.items()}, pool))
    return folds


def search(
    spaces: dict[str, Labelled],
    transforms: list[tuple[str, float]],
    clusterers: tuple[str, ...],
    seed: int,
    tell: Callable[[Candidate, float], None] | None = None,
) -> Choice:
    """Score the candidates and return the best.

    Parameters
    ----------
    spaces : dict of str to Labelled
        Labelled rows in every scale that is tried.
    transforms : list of (name, strength)
    clusterers : tuple of names
        The first is tried with every transformation, the others with the best four.
    seed : int
    tell : callable, optional
        Called with every candidate and its score.
    """
    folds = make_folds(spaces, np.random.default_rng(seed))
    maps: dict[tuple[str, str, float, int], Matrix] = {}
    results: dict[str, list[Any]] = {name: [] for name in (*Candidate._fields, "mean_score", "scores")}

    def score(candidate: Candidate) -> float:
        scores = []
        for number, fold in enumerate(folds):
            key = (candidate.scale, candidate.transform, candidate.strength, number)
            if key not in maps:
                maps[key] = learn_map(candidate.transform, candidate.strength, fold.shown[candidate.scale])
            pool = fold.pool[candidate.scale]
            Z = mapped(maps[key], pool.Z, candidate.transform)
            free = Pool(Z, np.full(len(Z), -1, np.int64), 0, pool.row_weight)
            rng = np.random.default_rng(seed)
            found = CLUSTERERS[candidate.clusterer](free, pool.n_groups, rng, _STARTS)
            scores.append(agreement(pool.codes, found.labels))
        mean = float(np.mean(scores))
        for name, value in zip(Candidate._fields, candidate, strict=True):
            results[name].append(value)
        results["mean_score"].append(mean)
        results["scores"].append(scores)
        if tell is not None:
            tell(candidate, mean)
        return mean

    first = [Candidate(scale, name, s, clusterers[0]) for scale in spaces for name, s in transforms]
    found = {candidate: score(candidate) for candidate in first}
    # Slower clusterers may prefer other spaces than k-means: the plain ones are always tried.
    plain = [one for one in first if one.transform == "identity" or one[1:3] == ("within", SHRINKAGES[1])]
    best_spaces = sorted(first, key=lambda candidate: -found[candidate])[:_BEST_SPACES]
    for clusterer in clusterers[1:]:
        for candidate in dict.fromkeys([*best_spaces, *plain]):
            other = candidate._replace(clusterer=clusterer)
            found[other] = score(other)
    return Choice(best_candidate(found), results)


def best_candidate(found: dict[Candidate, float]) -> Candidate:
    """Candidate with the best score, after scores are shrunk half way to the mean of their kind.

    Few groups can be hidden, so scores are noisy; candidates with the same transformation and clusterer are of one
    kind. A learned map has a bonus: it is tried with half of the groups and used with all of them, so it will do
    better than it was seen to do.

    Examples
    --------
    >>> steady = [Candidate("common", "within", s, "kmeans") for s in SHRINKAGES]
    >>> lucky = [Candidate(scale, "fisher", 0.1, "kmeans") for scale in SCALES]
    >>> best_candidate(dict(zip([*steady, *lucky], [0.7, 0.72, 0.7, 0.73, 0.5]))) == steady[1]
    True
    """
    kinds: dict[tuple[str, str], list[float]] = {}
    for one, score in found.items():
        kinds.setdefault((one.transform, one.clusterer), []).append(score)

    def value(one: Candidate) -> float:
        kind = float(np.mean(kinds[one.transform, one.clusterer]))
        return (1 - _SHRINK) * found[one] + _SHRINK * kind + _BONUS * (one.transform != "identity")

    return max(found, key=value)


# --- Parameters of a fit, and the choice of what was left to "auto" -----------------------------------------


TRANSFORMS = ("identity", "within", "gaussian", "separability", "fisher", "spherical")
_AUTO_TRANSFORMS = ("identity", "within", "gaussian", "fisher")
_AUTO_CLUSTERERS = ("kmeans", "spectral")
_STRENGTH = {"gaussian": 1e-3, "separability": 2.0, "fisher": 0.1, "spherical": 1e-2, "within": SHRINKAGES[1]}
_FEWEST_HIDDEN = 3  # known groups that a search needs


class Options(NamedTuple):
    """Parameters of `ExpandClusters` that its fit reads."""

    transform: str
    clusterer: str
    n_new: Any
    pool: str
    scale: str
    n_dims: Any
    n_init: int
    n_rounds: int
    filing: str
    batch_size: Any
    verbose: int


class Chosen(NamedTuple):
    """Candidate in use, and the table of the search if there was one."""

    candidate: Candidate
    results: dict[str, list[Any]] | None = None


def learn_space(X: Any, groups: Groups, scale: str, n_dims: Any, seed: int) -> FeatureSpace:
    """Feature space of all rows, in one scale."""
    return fit_space(X, groups, np.ones(X.shape[0]), n_dims=n_dims, seed=seed, scale=scale)


def labelled_rows(X: Any, groups: Groups, space: FeatureSpace, seed: int) -> Labelled:
    """Labelled rows in a feature space."""
    rows = groups.labelled
    Z = to_space(space, X[rows])
    return Labelled(Z, groups.codes[rows], groups.n_groups, np.ones(len(Z)), seed)


def learnable(candidate: Candidate, n_known: int) -> Candidate:
    """Replace a transformation that needs two groups by within-class whitening, with a warning, if there is one."""
    if n_known > 1 or candidate.transform in ALONE:
        return candidate
    warn_caller(
        f"transform={candidate.transform!r} learns from at least 2 labelled groups, and y has 1: "
        "transform='within' is used. Label more groups."
    )
    return candidate._replace(transform="within", strength=_STRENGTH["within"])


def choose(X: Any, groups: Groups, options: Options, seed: int) -> Chosen:
    """Choose what was left to be chosen, by hiding known groups where there are enough of them."""
    sparse = hasattr(X, "indptr")
    fixed_scale = "common" if options.scale == "auto" else options.scale
    scales = SCALES if options.scale == "auto" and not sparse else (fixed_scale,)
    names = _AUTO_TRANSFORMS if options.transform == "auto" else (options.transform,)
    clusterers = _AUTO_CLUSTERERS if options.clusterer == "auto" else (options.clusterer,)
    if options.clusterer == "auto" and sparse:
        clusterers = ("vmf", "spectral")
    n_known = groups.n_groups
    maps = candidate_maps(names, n_known - hidden_size(n_known) if options.transform == "auto" else n_known)
    if len(scales) * len(maps) * len(clusterers) == 1:
        return Chosen(Candidate(scales[0], *maps[0], clusterers[0]))
    if n_known < _FEWEST_HIDDEN:
        name = "within" if options.transform == "auto" else options.transform
        if "auto" in (options.transform, options.clusterer):
            warn_caller(
                f"y has {n_known} labelled group{'s' * (n_known > 1)}, and a choice by hiding groups takes "
                f"{_FEWEST_HIDDEN}: transform={name!r} and clusterer={clusterers[0]!r} are used. Label more "
                "groups, or give transform and clusterer."
            )
        return Chosen(Candidate(scales[0], name, _STRENGTH.get(name, 0.0), clusterers[0]))
    spaces = {
        scale: labelled_rows(X, groups, learn_space(X, groups, scale, options.n_dims, seed), seed)
        for scale in scales
    }
    with Progress(None, "candidates", options.verbose) as progress:
        found = search(spaces, maps, clusterers, seed, lambda _, score: progress.update(score=score))
    return Chosen(found.best, found.results)
