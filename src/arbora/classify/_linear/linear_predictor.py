"""Scores and probabilities of the linear classifiers, and the constraints of the parameters that they share."""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.classify._common.calibration import Calibration, class_probabilities
from arbora.classify._common.nested import NestedLogit
from arbora.classify._common.node_predictor import check_X, one_column
from arbora.classify._linear.linear_model import LinearModel, PartsModel, by_chunks, linear_scores
from arbora.classify.training import is_multilabel
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy

LINEAR_CONSTRAINTS: dict[str, Any] = {
    "C": [Interval(Real, 0, None, closed="neither")],
    "structure": "no_validation",  # encode_targets has the better error message
    "tol": [Interval(Real, 0, None, closed="neither")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "fit_intercept": ["boolean"],
    "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
    "calibration": [StrOptions({"holdout"}), Interval(Integral, 2, None, closed="left"), None],
    "dtype": [StrOptions({"float32", "float64"})],
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
AUTO_COST_CONSTRAINT: list[Any] = [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})]
LEVELS_CONSTRAINT: list[Any] = [
    StrOptions({"holdout", "levels"}),
    Interval(Integral, 2, None, closed="left"),
    None,
]
CHECKPOINT_CONSTRAINT: list[Any] = [str, os.PathLike, None]
CLASS_WEIGHT_CONSTRAINT: list[Any] = [StrOptions({"balanced"}), dict, None]

_MOST_VALUES = 1 << 21  # rows times nodes of a calibration over a tree at a time


class LinearPredictor:
    """Mixin for classifiers with `coef_`, `intercept_` and `calibration_`, listed before `NodePredictor`."""

    calibration: Any
    n_jobs: int | None
    classes_: NDArray[Any]
    label_kind_: str
    coef_: Any
    intercept_: NDArray[Any]
    calibration_: NDArray[np.float64]
    hierarchy_: Hierarchy
    class_nodes_: NDArray[np.int64]
    level_calibration_: NDArray[np.float64]  # absent without a tree
    class_counts_: NDArray[np.int64]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def _linear_model(self) -> LinearModel | PartsModel:
        return LinearModel(self.coef_, self.intercept_)

    def _linear_scores(self, X: Any) -> NDArray[Any]:
        return linear_scores(X, self._linear_model(), ThreadEngine(self.n_jobs))

    def _scores(self, X: Any) -> NDArray[Any]:
        """Scores of all classes; the two classes of a binary problem share one classifier."""
        scores = self._linear_scores(X)
        if scores.shape[1] == 1 and not is_multilabel(self.label_kind_):
            return np.hstack([-scores, scores])
        return scores

    def _class_proba(self, X: Any) -> NDArray[Any]:
        if "level_calibration_" in vars(self):
            return np.asarray(np.exp(self._tree_log_proba(X)))
        calibration = Calibration(*self.calibration_)
        return class_probabilities(self._scores(X), calibration, is_multilabel(self.label_kind_))

    def _tree_log_proba(self, X: Any) -> NDArray[Any]:
        tree, scores = NestedLogit(self.hierarchy_, self.class_nodes_, self.class_counts_), self._scores(X)
        step = max(1, _MOST_VALUES // len(tree.parent))
        return np.vstack(
            [
                tree.log_proba(scores[first : first + step], self.level_calibration_)
                for first in range(0, max(1, len(scores)), step)
            ]
        )

    def _predict_columns(self, X: Any) -> sp.csr_array:
        """Columns of the predicted classes; with a calibration over a tree, the most probable ones."""
        if "level_calibration_" not in vars(self):
            found: sp.csr_array = super()._predict_columns(X)  # type: ignore[misc]
            return found
        n_classes = len(self.classes_)
        best = by_chunks(X, n_classes, lambda rows: self._tree_log_proba(rows).argmax(axis=1))
        return one_column(np.concatenate([np.empty(0, np.int64), *best]), n_classes)

    def _ranking_values(self, X: Any) -> NDArray[Any]:
        # Without a calibration the probabilities have no meaning.
        return self._scores(X) if self.calibration is None else self._class_proba(X)

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Score of every class, before close calls are settled (by an estimator with `close_calls="path"`).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; for two classes, (n_samples,) with positive values for the second.
        """
        scores = self._scores(check_X(self, X))
        if len(self.classes_) == 2 and not is_multilabel(self.label_kind_):
            return np.asarray((scores[:, 1] - scores[:, 0]) / 2)
        return scores
