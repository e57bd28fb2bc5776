"""What the linear classifiers share as estimators: parameters, checks of input, scores and probabilities."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
)

from arbora.classify._common.calibration import (
    Calibration,
    class_probabilities,
    fit_sigmoid,
    fit_softmax_scale,
)
from arbora.classify._common.held_out import HeldOut, held_out_scores, stacked
from arbora.classify._common.labels import encode_targets
from arbora.classify._common.linear_model import (
    LinearModel,
    as_csr,
    linear_scores,
    merged_trace,
    relative_gap,
    warn_unless_converged,
)
from arbora.classify._common.node_predictor import NodePredictor
from arbora.classify._common.one_vs_rest import Options, Training
from arbora.classify.thresholds import Threshold, make_threshold
from arbora.core.checkpoint import Checkpoint
from arbora.core.fingerprint import fingerprint
from arbora.core.validation import check_features
from arbora.engine import ENGINE_PARAMETER, ThreadEngine, choose_engine
from arbora.infer.linear.flat import BlockSolution

_NOT_PART_OF_THE_MODEL = (
    "n_jobs",
    "engine",
    "verbose",
    "checkpoint",
)  # parameters that do not change the result


def refuse_overflow(X: sp.csr_array, dtype: np.dtype[Any]) -> None:
    """Refuse features whose squared norm is infinite in the working precision."""
    largest = max(X.data.max(initial=0.0), -X.data.min(initial=0.0))
    if largest > np.sqrt(np.finfo(dtype).max / max(1, X.shape[1])):
        raise ValueError(
            f"X holds a value as large as {largest:.2g}, whose square overflows in {dtype.name}: scale the features"
            + (" or use dtype='float64'." if dtype == np.float32 else ".")
        )


def without_weightless(training: Training) -> Training:
    """Leave out rows of weight 0, so that neither folds nor held-out parts see them."""
    counts = training.row_cost > 0
    return training if counts.all() else training.with_rows(np.flatnonzero(counts))


class LinearClassifier(NodePredictor, ClassifierMixin, BaseEstimator):
    """Base of the linear classifiers: `fit` of a subclass leaves `coef_`, `intercept_`, `calibration_`."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "structure": "no_validation",  # encode_targets says it better than a list of accepted types
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "calibration": [StrOptions({"holdout"}), Interval(Integral, 2, None, closed="left"), None],
        "dtype": [StrOptions({"float32", "float64"})],
        "n_jobs": [Integral, None],
        "engine": ENGINE_PARAMETER,
        "random_state": ["random_state"],
        "checkpoint": [str, os.PathLike, None],
        "verbose": ["verbose"],
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def _check_fit(self, X: Any, y: Any, sample_weight: Any, loss: str) -> Training:
        """Check parameters and data, remember the labels, and leave out the rows that count for nothing."""
        return without_weightless(self._check_all(X, y, sample_weight, loss))

    def _check_all(self, X: Any, y: Any, sample_weight: Any, loss: str) -> Training:
        """Check parameters and data, and remember the labels; rows of weight 0 are still there."""
        self._validate_params()
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it learns from labels."
            )
        X = check_features(self, X, reset=True)
        check_consistent_length(X, y)
        targets = encode_targets(y, self.structure)
        self._remember_targets(targets)
        self.sparse_labels_ = sp.issparse(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        options = Options(
            loss=loss,
            tol=self.tol,
            max_iter=self.max_iter,
            bias=self.intercept_scaling if self.fit_intercept else 0.0,
            dtype=np.dtype(self.dtype),
            seed=self._seed(),
        )
        positives, X = targets.indicator, as_csr(X)
        refuse_overflow(X, options.dtype)
        cost = (
            self.C if isinstance(self.C, Real) else 1.0
        )  # what is chosen by cross-validation multiplies it later
        return Training(X, positives, cost * weight, np.ones(positives.shape[1]), options)

    def _seed(self) -> int:
        if self.random_state is None and self.checkpoint is not None:
            return 0  # a resumed fit must visit the rows in the same order
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _engine(self) -> ThreadEngine:
        """Where all but the training of the model runs: threads of this process."""
        return ThreadEngine(self.n_jobs)

    def _training_engine(self) -> ThreadEngine:
        """Where the model is trained; not every model can be elsewhere than here."""
        return choose_engine(getattr(self, "engine", None), self.n_jobs)

    def _checkpoint(self, training: Training, **instead: Any) -> Checkpoint | None:
        """Open the checkpoint, if there is one; `instead` are values that say better what a parameter means."""
        if self.checkpoint is None:
            return None
        params = {
            name: value for name, value in self.get_params().items() if name not in _NOT_PART_OF_THE_MODEL
        }
        params |= {"random_state": training.options.seed, **instead}
        return Checkpoint(
            self.checkpoint,
            fingerprint(type(self).__name__, params, training.X, training.positives, training.row_cost),
        )

    def _keep(self, model: LinearModel, solutions: list[BlockSolution]) -> None:
        """Leave the weights, their certificate and the way to them; warn if a block was stopped on the way."""
        self.coef_, self.intercept_ = model
        self.n_iter_ = max((len(solution.history) for solution in solutions), default=1)
        self.trace_ = merged_trace(solutions)
        self.duality_gap_ = relative_gap(solutions)
        warn_unless_converged(solutions, self.tol, self.max_iter)

    def _learn_decisions(
        self,
        training: Training,
        train: Callable[[Training, str], LinearModel],
        weight: NDArray[Any] | None = None,
    ) -> None:
        """Leave `calibration_` and `threshold_`, learned on the same scores of rows that `train` has not seen.

        `train` gets what to train on, and a key for its pieces in a checkpoint. `weight` is that of the rows, where
        it is not in proportion to their costs.
        """
        threshold = make_threshold(getattr(self, "threshold", "zero")) if self._multilabel else None
        learns = threshold is not None and threshold.learns
        how = "holdout" if learns and self.calibration is None else self.calibration
        parts = held_out_scores(training, how, train, self._engine(), fine=learns, weight=weight)
        self.calibration_ = np.array(self._fit_calibration(parts))
        if learns:
            self._fit_threshold(threshold, parts, np.diff(sp.csc_array(training.positives).indptr) > 0)
        self.threshold_ = threshold

    def _fit_calibration(self, parts: Sequence[HeldOut]) -> Calibration:
        if not parts or self.calibration is None:
            return Calibration(1.0)
        scores, truth, weight = stacked(parts)
        truth = truth.toarray()
        if self._multilabel:
            return fit_sigmoid(scores, truth, np.repeat(weight, truth.shape[1]))
        if scores.shape[1] == 1:
            scores, truth = np.hstack([-scores, scores]), np.hstack([~truth, truth])
        return fit_softmax_scale(scores, truth.argmax(axis=1), weight)

    def _fit_threshold(
        self, threshold: Threshold, parts: Sequence[HeldOut], with_data: NDArray[np.bool_]
    ) -> None:
        if not parts:
            raise ValueError(
                f"threshold={self.threshold!r} is learned on rows that are held out, and y has too few rows to spare "
                "any: give more, or a threshold that learns nothing ('zero', or RCut(r) with a number)."
            )
        scores, truth, _ = stacked(parts, fine=True)
        threshold.fit(scores, truth, with_data)

    def _check_X(self, X: Any) -> Any:
        check_is_fitted(self)
        return check_features(self, X, reset=False)

    def _linear_scores(self, X: Any) -> NDArray[Any]:
        return linear_scores(X, LinearModel(self.coef_, self.intercept_), self._engine())

    def _scores(self, X: Any) -> NDArray[Any]:
        """Scores of all classes; the two classes of a binary problem share one classifier."""
        scores = self._linear_scores(X)
        if scores.shape[1] == 1 and not self._multilabel:
            return np.hstack([-scores, scores])
        return scores

    def _class_proba(self, X: Any) -> NDArray[Any]:
        return class_probabilities(self._scores(X), Calibration(*self.calibration_), self._multilabel)

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Score of every class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; for two classes, (n_samples,) with positive values for the second.
        """
        scores = self._scores(self._check_X(X))
        if len(self.classes_) == 2 and not self._multilabel:
            return (scores[:, 1] - scores[:, 0]) / 2
        return scores
