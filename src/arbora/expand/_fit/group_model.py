"""Probabilities of known and new groups, and rows that are mapped on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.expand._cluster.search import mapped
from arbora.expand.clusters.clusterers import mean_scores, unit_rows
from arbora.expand.clusters.constrained import Clustering, normalized
from arbora.expand.groups import FeatureSpace, to_space
from arbora.infer.mixture.statistics import blocks, dense_chunks

Matrix = NDArray[Any]


class LearnedMap(NamedTuple):
    """Feature space, map and how rows are mapped."""

    space: FeatureSpace
    L: Matrix
    transform: str

    def map(self, X: Any) -> Matrix:
        """Rows in the learned space."""
        return mapped(self.L, to_space(self.space, X), self.transform)


class MappedRows:
    """Rows of the learned space, mapped when they are asked for: X stays where it is, in memory or in a file.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features)
    learned : LearnedMap
    unit : bool
        Whether mapped rows are divided by their lengths.
    """

    dense = True

    def __init__(self, X: Any, learned: LearnedMap, unit: bool) -> None:
        self.X, self.learned, self.unit = X, learned, unit
        self.shape = int(X.shape[0]), len(learned.L)
        self.dtype = learned.L.dtype

    @property
    def about(self) -> Any:
        """What identifies the rows: the map and a few of them."""
        some = np.linspace(0, self.shape[0] - 1, 64).astype(np.int64)
        return self.learned.L, self[np.unique(some)]

    def __getitem__(self, rows: Any) -> Matrix:
        Z = self.learned.map(self.X[rows])
        return unit_rows(Z) if self.unit else Z


def tempered(scores: Matrix, temperature: tuple[float, float], n_known: int) -> Matrix:
    """Normalised log-probabilities, divided by the temperature of the kind of the best group: known or new.

    Examples
    --------
    >>> scores = np.log([[0.9, 0.1], [0.1, 0.9]])
    >>> np.exp(tempered(scores, (1.0, 2.0), 1)).round(2)
    array([[0.9 , 0.1 ],
           [0.25, 0.75]])
    """
    known, new = temperature
    if known == new:
        return normalized(scores / known)
    by_row = np.where(scores.argmax(axis=1) < n_known, known, new)
    return normalized(scores / by_row[:, None])


class GroupModel(NamedTuple):
    """A clustering of all groups, or of the new ones alone; clusters are in the order of the groups."""

    clustering: Clustering
    covers_known: bool  # whether the clusters include the known groups
    n_known: int
    means: Matrix  # of all groups
    variance: float  # of a feature around the means
    unit: bool  # whether rows are divided by their lengths
    clusterer: str  # name of the clusterer; "neighbours" after filing
    temperature: tuple[float, float] = (1.0, 1.0)  # of rows whose best group is known, and new
    mean_weight: float = 0.0  # of the distances to the means of the groups, beside the votes of neighbours

    @property
    def n_new(self) -> int:
        """New groups."""
        return len(self.means) - self.n_known

    @property
    def first(self) -> int:
        """First group that rows of the pool may join."""
        return 0 if self.covers_known or not self.n_new else self.n_known

    def scorer(self) -> Callable[[Matrix], Matrix]:
        """Return a function that gives log-probabilities (n_rows, n_groups): known groups, then new ones."""
        n_known = self.n_known
        score = self.clustering.scorer() if self.covers_known or self.n_new else None

        def log_proba(Z: Matrix) -> Matrix:
            Z = unit_rows(Z) if self.unit else Z
            if self.covers_known and score is not None:
                found = score(Z)
                if self.mean_weight:
                    found = found + self.mean_weight * mean_scores(Z, self.means, self.variance)
            else:
                # The clusterer knows the new groups only. Known and new ones compete by the distance to their means.
                found = mean_scores(Z, self.means, self.variance)
                if score is not None:
                    share = np.logaddexp.reduce(found[:, n_known:], axis=1, keepdims=True)
                    found = np.hstack([found[:, :n_known], share + score(Z)])
            return tempered(found, self.temperature, n_known).astype(Z.dtype, copy=False)

        return log_proba

    def proba(self, Z: Matrix) -> Matrix:
        """Probabilities of the groups for rows of the learned space."""
        score, found = self.scorer(), np.empty((len(Z), len(self.means)), Z.dtype)
        for block in blocks(slice(0, len(Z))):
            found[block] = np.exp(score(Z[block]))
        return found


def by_blocks(X: Any, work: Callable[[slice, Matrix], Any], engine: Engine) -> None:
    """Call `work` with blocks of rows, in memory or not, on the threads of an engine."""

    def go(chunk: slice) -> None:
        for block in blocks(chunk):
            work(block, X[block])

    if X.shape[0]:
        engine.map(go, dense_chunks(X.shape[0]))


def own_probability(
    model: GroupModel, X: Any, codes: NDArray[np.int64], engine: Engine
) -> NDArray[np.float64]:
    """Probability of the group that each row is in."""
    score, own = model.scorer(), np.empty(X.shape[0])

    def work(block: slice, Z: Matrix) -> None:
        own[block] = np.exp(np.take_along_axis(score(Z), codes[block, None], axis=1)[:, 0])

    by_blocks(X, work, engine)
    return own
