"""Probabilities of known and new groups, and rows that are mapped on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.validation import check_features
from arbora.engine import ThreadEngine
from arbora.expand.clusters.clusterers import mean_scores, unit_rows
from arbora.expand.clusters.pool import Clustering, Sums, normalized, pose, sum_rows
from arbora.expand.clusters.registry import family_of
from arbora.expand.groups import FeatureSpace, Groups, to_space
from arbora.expand.transforms.base import apply_map
from arbora.infer.mixture.statistics import blocks, dense_chunks, e_step


class LearnedMap(NamedTuple):
    """Feature space, map, and whether mapped rows are divided by their lengths."""

    space: FeatureSpace
    L: Matrix
    unit: bool

    def map(self, X: Any) -> Matrix:
        """Rows in the learned space."""
        return apply_map(self.L, to_space(self.space, X), unit=self.unit)


class MappedRows:
    """Rows of the learned space, mapped on request: X (dense or CSR) stays in memory or in its file.

    With `unit`, mapped rows are divided by their lengths.
    """

    dense = True

    def __init__(self, X: Any, learned: LearnedMap, unit: bool) -> None:
        self.X, self.learned, self.unit = X, learned, unit
        self.shape = int(X.shape[0]), len(learned.L)
        self.dtype = learned.L.dtype

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
    # Name in the registry; "neighbours" after filing: probabilities are votes, without components
    clusterer: str
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
                scores = score(Z)
                if self.mean_weight:
                    scores = scores + self.mean_weight * mean_scores(Z, self.means, self.variance)
            else:
                # The clusterer knows the new groups only. Known and new ones compete by the distance to their means.
                scores = mean_scores(Z, self.means, self.variance)
                if score is not None:
                    share = np.logaddexp.reduce(scores[:, n_known:], axis=1, keepdims=True)
                    scores = np.hstack([scores[:, :n_known], share + score(Z)])
            return tempered(scores, self.temperature, n_known).astype(Z.dtype, copy=False)

        return log_proba

    def proba(self, Z: Matrix) -> Matrix:
        """Probabilities of the groups for rows of the learned space."""
        score, proba = self.scorer(), np.empty((len(Z), len(self.means)), Z.dtype)
        for block in blocks(slice(0, len(Z))):
            proba[block] = np.exp(score(Z[block]))
        return proba


def by_blocks(X: Any, work: Callable[[slice, Matrix], Any], engine: Engine) -> None:
    """Call `work` with blocks of rows, in memory or not, on the threads of an engine."""

    def go(chunk: slice) -> None:
        for block in blocks(chunk):
            work(block, X[block])

    if X.shape[0]:
        engine.map(go, dense_chunks(X.shape[0]))


def own_probability(model: GroupModel, X: Any, codes: Ints, engine: Engine) -> Array:
    """Probability of the group that each row is in."""
    score, probability = model.scorer(), np.empty(X.shape[0])

    def work(block: slice, Z: Matrix) -> None:
        probability[block] = np.exp(np.take_along_axis(score(Z), codes[block, None], axis=1)[:, 0])

    by_blocks(X, work, engine)
    return probability


# --- Sums over the rows of the groups so far, which `partial_fit` updates: memory does not grow with rows ---


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
        return np.asarray((self.sums / np.maximum(self.counts, TINY)).T)

    @property
    def variance(self) -> float:
        """Variance of a feature around the means of the groups."""
        outer = self.known_outer + self.new_outer
        within = float(np.trace(outer)) - float(np.sum(self.counts * np.sum(self.means**2, axis=1)))
        return max(within / max(float(self.counts.sum()) * len(outer), TINY), TINY)


def soft_sums(
    X: Any,
    fixed: Ints,
    weight: Matrix,
    model: GroupModel,
    engine: Engine,
) -> Sums:
    """Add up rows by the clusters of a model: labelled rows (`fixed`) by label, others by responsibility."""
    family = family_of(model.clusterer)
    assert family is not None
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
    codes: Ints,
    probability: Matrix,
    model: GroupModel,
    engine: Engine,
) -> RunningSums:
    """Add up all rows of a fit; X is in the learned space, in memory or not."""
    n_known, n_groups = model.n_known, len(model.means)
    confidence = np.bincount(codes, probability, n_groups)
    if model.unit and isinstance(X, np.ndarray):
        X = unit_rows(X)
    ones = np.ones(X.shape[0], X.dtype)
    if family_of(model.clusterer) is None:
        known, new = (
            sum_rows(X, codes, ones * part, n_groups, engine) for part in (codes < n_known, codes >= n_known)
        )
        return RunningSums(
            known.counts + new.counts, known.sums + new.sums, confidence, known.outer, new.outer
        )
    if model.covers_known:
        # One covariance for all groups: how the products are shared out between known and new ones does not matter.
        sums = soft_sums(X, groups.codes, ones, model, engine)
        return RunningSums(sums.counts, sums.sums, confidence, sums.outer, np.zeros_like(sums.outer))
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


# --- What a fitted `ExpandClusters` says about rows, in blocks: memory holds the answers, never all mapped rows ---


class GroupPredictor:
    """Mixin: predictions of known and new groups."""

    space_: FeatureSpace
    components_: Matrix
    on_sphere_: bool
    group_model_: GroupModel
    classes_: Matrix
    known_classes_: Matrix
    n_new_: int
    n_jobs: int | None

    def _rows(self, X: Any, unit: bool = False) -> MappedRows:
        """Rows of the learned space, mapped on request."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False, squares=np.float64)
        return MappedRows(X, LearnedMap(self.space_, self.components_, self.on_sphere_), unit)

    def transform_rows(self, X: Any) -> Matrix:
        """Map rows to the learned space.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        return self._rows(X)[:]

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities of the groups, known and new.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_groups)
            Columns in the order of `classes_`.
        """
        rows = self._rows(X)
        proba = np.empty((rows.shape[0], len(self.classes_)), rows.dtype)
        self._score(rows, lambda block, log_proba: proba.__setitem__(block, np.exp(log_proba)))
        return proba

    def _score(self, rows: MappedRows, work: Callable[[slice, Matrix], None]) -> None:
        """Call `work` with the log-probabilities of blocks of rows."""
        score = self.group_model_.scorer()
        by_blocks(rows, lambda block, Z: work(block, score(Z)), ThreadEngine(self.n_jobs))

    def _best(self, rows: MappedRows, columns: slice) -> Ints:
        """Most probable one of some groups, without the probabilities of all rows in memory."""
        best = np.empty(rows.shape[0], np.int64)
        self._score(rows, lambda block, scores: best.__setitem__(block, scores[:, columns].argmax(axis=1)))
        return best

    def predict(self, X: Any, among: str = "all") -> Matrix:
        """Group of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        among : {"all", "known", "new"}
            Groups to choose from.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if among not in ("all", "known", "new"):
            raise ValueError(f"among must be 'all', 'known' or 'new'; got {among!r}.")
        rows, n_known = self._rows(X), len(self.known_classes_)
        if among == "new" and not self.n_new_:
            raise ValueError("the model has no new groups: nothing can be predicted among them.")
        columns = {"all": slice(None), "known": slice(n_known), "new": slice(n_known, None)}[among]
        return np.asarray(self.classes_[columns][self._best(rows, columns)])

    def is_new(self, X: Any) -> NDArray[np.bool_]:
        """Whether rows belong to new groups.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of bool of shape (n_samples,)
            True where the new groups together are more probable than the known ones.
        """
        rows, n_known = self._rows(X), len(self.known_classes_)
        new = np.empty(rows.shape[0], bool)

        def work(block: slice, log_proba: Matrix) -> None:
            proba = np.exp(log_proba)
            new[block] = proba[:, n_known:].sum(axis=1) > proba[:, :n_known].sum(axis=1)

        self._score(rows, work)
        return new
