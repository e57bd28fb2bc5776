"""What a fitted `ExpandClusters` says about rows, in blocks: memory holds the answers, never all mapped rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.core.validation import check_features
from arbora.engine import ThreadEngine
from arbora.expand._fit.group_model import GroupModel, LearnedMap, MappedRows, by_blocks
from arbora.expand.groups import FeatureSpace

Matrix = NDArray[Any]


class GroupPredictor:
    """Mixin: predictions of known and new groups."""

    space_: FeatureSpace
    components_: Matrix
    choice_: dict[str, Any]
    group_model_: GroupModel
    classes_: NDArray[Any]
    known_classes_: NDArray[Any]
    n_new_: int
    n_jobs: int | None

    def _rows(self, X: Any, unit: bool = False) -> MappedRows:
        """Rows of the learned space, mapped on request."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False, squares=np.float64)
        return MappedRows(X, LearnedMap(self.space_, self.components_, self.choice_["transform"]), unit)

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

    def _best(self, rows: MappedRows, columns: slice) -> NDArray[np.int64]:
        """Most probable one of some groups, without the probabilities of all rows in memory."""
        best = np.empty(rows.shape[0], np.int64)
        self._score(rows, lambda block, found: best.__setitem__(block, found[:, columns].argmax(axis=1)))
        return best

    def predict(self, X: Any, among: str = "all") -> NDArray[Any]:
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
