"""Parameters of a fit, and the choice of what was left to "auto"."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.expand._cluster.search import ALONE, SCALES, SHRINKAGES, Candidate, candidate_maps, search
from arbora.expand.groups import FeatureSpace, Groups, fit_space, to_space
from arbora.expand.transforms.base import Labelled, hidden_size

Matrix = NDArray[Any]
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
