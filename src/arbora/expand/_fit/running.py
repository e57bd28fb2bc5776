"""Sums over the rows of the groups so far, which `partial_fit` updates: memory does not grow with rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.expand._fit.group_model import GroupModel
from arbora.expand.clusters.clusterers import FAMILIES, unit_rows
from arbora.expand.clusters.constrained import Sums, pose, sum_rows
from arbora.expand.groups import Groups
from arbora.infer.mixture.statistics import e_step

Matrix = NDArray[Any]
_TINY = float(np.finfo(np.float64).tiny)


class RunningSums(NamedTuple):
    """Counts, sums of rows and of probabilities by group; z z' of the rows of known and of new groups."""

    counts: Matrix  # n_groups
    sums: Matrix  # n_dims x n_groups
    confidence: Matrix  # n_groups: sum of the probabilities of the rows in their group
    known_outer: Matrix  # n_dims x n_dims
    new_outer: Matrix

    @property
    def means(self) -> Matrix:
        """Mean of each group, n_groups x n_dims."""
        return np.asarray((self.sums / np.maximum(self.counts, _TINY)).T)

    @property
    def variance(self) -> float:
        """Variance of a feature around the means of the groups."""
        outer = self.known_outer + self.new_outer
        within = float(np.trace(outer)) - float(np.sum(self.counts * np.sum(self.means**2, axis=1)))
        return max(within / max(float(self.counts.sum()) * len(outer), _TINY), _TINY)


def soft_sums(
    X: Any,
    fixed: NDArray[np.int64],
    weight: Matrix,
    model: GroupModel,
    engine: Engine,
) -> Sums:
    """Add up rows by the clusters of a model: labelled rows (`fixed`) by label, others by responsibility."""
    family = FAMILIES[model.clusterer]
    first = 0 if model.covers_known else model.n_known
    n_clusters = len(model.means) - first
    problem = pose(X, fixed, weight, n_clusters, engine)
    counts, sums = problem.held.counts, problem.held.sums
    if problem.rows.X.shape[0] and n_clusters:
        scores = family.model(problem).scores(family.params(model.clustering))
        stats = e_step(scores._replace(temperature=family.temperature), problem.rows, engine)[0]
        counts, sums = counts + stats.counts, sums + stats.sums
    return Sums(counts, sums, problem.outer)


def running_sums(
    X: Any,
    groups: Groups,
    codes: NDArray[np.int64],
    own: Matrix,
    model: GroupModel,
    engine: Engine,
) -> RunningSums:
    """Add up all rows of a fit; X is in the learned space, in memory or not."""
    n_known, n_groups = model.n_known, len(model.means)
    confidence = np.bincount(codes, own, n_groups)
    if model.unit and isinstance(X, np.ndarray):
        X = unit_rows(X)
    ones = np.ones(X.shape[0], X.dtype)
    if model.clusterer not in FAMILIES:
        known, new = (
            sum_rows(X, codes, ones * part, n_groups, engine) for part in (codes < n_known, codes >= n_known)
        )
        return RunningSums(
            known.counts + new.counts, known.sums + new.sums, confidence, known.outer, new.outer
        )
    if model.covers_known:
        # One covariance for all groups: how the products are shared out between known and new ones does not matter.
        found = soft_sums(X, groups.codes, ones, model, engine)
        return RunningSums(found.counts, found.sums, confidence, found.outer, np.zeros_like(found.outer))
    free = ~groups.labelled
    known = sum_rows(X, groups.codes, ones * ~free, n_known, engine)
    new = soft_sums(X, np.full(len(free), -1), ones * free, model, engine)
    return RunningSums(
        np.concatenate([known.counts, new.counts]),
        np.hstack([known.sums, new.sums]),
        confidence,
        known.outer,
        new.outer,
    )
