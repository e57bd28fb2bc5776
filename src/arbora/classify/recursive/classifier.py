"""Recursive regularisation: classifiers trained together over a tree, a DAG or a graph of labels.

S. Gopal and Y. Yang, Recursive regularization for large-scale classification with hierarchical and graphical
dependencies (KDD 2013; thesis ch. 3). Classes that are close in the structure get similar weights,

    min_W  regulariser(W) + C sum_l sum_i loss(y_il w_l.x_i),

where the regulariser is the sum over the edges of 1/2 ||w_child - w_parent||^2 (`_linear/coupling.py` has all of its
forms, and the *coupling* that interpolates between flat training and the published model), the losses are those of
one-vs-rest, and only classes with documents have a loss. On a structure without edges this is exactly the flat model.

The inner nodes are eliminated: given the classes, their weights follow in closed form. The solver works on one joint
dual over the pairs of documents and classes (`infer/linear/coupled.py`) with a certified duality gap; for the
logistic loss on dense rows with few features it is Newton's method (`infer/linear/newton.py`). (Erratum: the
published update of a leaf has `a'.x_i - 1 + y w_parent.x_i`; the gradient is `y w.x_i - 1` with the full weights, so
that a `y` is missing there.)

The bias is the weight of a constant feature: it is regularised, and shared, like any other weight.

`RecursiveSVC.fit` takes these steps:

1. `check_training` (`_common/training.py`): parameters, X (`core/validation.py`), labels (`_common/labels.py`)
   and weights become a `Training`;
2. `make_plan` (`plan.py`): couplings become factors (`couple` in `_linear/coupling.py`), `cv` becomes folds
   (`core/folds.py`);
3. `check_fit_memory` (`memory.py`) refuses what does not fit in memory;
4. `select` (`search.py`) runs the cross-validation, if there is one, and sets `C_` and `coupling_`;
5. `train_joint` (`coupled_training.py`) prepares the rows and runs a solver: `CoupledSolver`
   (`infer/linear/coupled.py`) visits blocks of classes with the kernels of `kernels/linear/coupled.py`;
6. `build_model` and `keep_coupled` (`coupled_training.py`) set `coef_`, `trace_` and `duality_gap_`;
7. `learn_decisions` (`_common/held_out.py`) sets `calibration_` and `threshold_`.
"""

from __future__ import annotations

from contextlib import suppress
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from arbora.classify.cost_choice import initial_cost, with_cost
from arbora.classify.decisions import keep_decisions, learn_decisions, settle_close_calls
from arbora.classify.estimator import (
    CHECKPOINT_CONSTRAINT,
    CLASS_WEIGHT_CONSTRAINT,
    LEVELS_CONSTRAINT,
    LINEAR_CONSTRAINTS,
    LinearPredictor,
    NodePredictor,
    one_column,
)
from arbora.classify.linear import LinearModel, PartsModel, as_csr, full_weights, node_weights
from arbora.classify.probabilities import Calibration, NestedLogit
from arbora.classify.recursive.coupling import Coupling, couple
from arbora.classify.recursive.partial_fit import encode_more, learn_more, refuse_unannounced
from arbora.classify.recursive.search import SCORES, make_plan, select
from arbora.classify.recursive.training import (
    Fitted,
    Last,
    Start,
    build_model,
    check_fit_memory,
    initial_multipliers,
    keep_coupled,
    score_rows,
    start_of_rows,
    train_joint,
)
from arbora.classify.thresholds import THRESHOLD_CONSTRAINT, make_threshold
from arbora.classify.training import (
    Training,
    check_training,
    drop_weightless_rows,
    encode_targets,
    open_checkpoint,
    positive_weights,
)
from arbora.core.checkpoint import Checkpoint
from arbora.core.engine import Engine, require_shared_memory
from arbora.core.estimator import all_or_nothing
from arbora.core.monitor import Progress
from arbora.core.validation import check_features, check_squares
from arbora.engine import ENGINE_PARAMETER, ThreadEngine, choose_engine
from arbora.structure import Hierarchy, LabelGraph


class RecursiveClassifier(LinearPredictor, NodePredictor, ClassifierMixin, BaseEstimator):
    """Methods of the two recursive classifiers, which differ in their loss."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto", "cv"})],
        "tol": [Interval(Real, 0, None, closed="neither"), None],
        "calibration": LEVELS_CONSTRAINT,
        "coupling": [Interval(Real, 0, None, closed="left"), StrOptions({"cv"}), "array-like", dict],
        "fade": [Interval(Real, 0, None, closed="neither"), None],
        "class_weight": CLASS_WEIGHT_CONSTRAINT,
        "Cs": ["array-like"],
        "couplings": ["array-like"],
        "cv": ["cv_object"],
        "scoring": [StrOptions(set(SCORES))],
        "threshold": THRESHOLD_CONSTRAINT,
        "close_calls": [StrOptions({"path", "class"})],
        "prune_below": [Interval(Real, 0, None, closed="left"), None],
        "warm_start": ["boolean"],
        "engine": ENGINE_PARAMETER,
        "checkpoint": CHECKPOINT_CONSTRAINT,
    }

    C_: float
    coupling_: Any
    close_calls: str = "class"  # of models that were pickled before they had this parameter

    @property
    def _loss(self) -> str:
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train all classes together.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label per row, a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes, and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C, and on the likelihood of the calibration. The F1 of the cross-validation and of thresholds
            counts every row once. Rows of weight 0 are in no fold and only contribute their labels to `classes_`.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            C = initial_cost(self.C)
            resumable = self.checkpoint is not None
            everything = check_training(self, X, y, sample_weight, loss=self._loss, C=C, resumable=resumable)
            self._refuse_remote()
            training = drop_weightless_rows(everything)
            names = self.nodes_[self.class_nodes_]
            weights = positive_weights(self.class_weight, training, names, self.nodes_)
            training = training._replace(positive_weight=weights)
            everything = everything._replace(positive_weight=weights)
            if self.C == "auto":
                training = with_cost(self, training, ThreadEngine(self.n_jobs))
                everything = everything._replace(row_cost=everything.row_cost * self.C_)
            self.structure_ = self.structure
            plan = make_plan(self, everything, self._couple)
            checkpoint = open_checkpoint(self, everything, cv=plan.splits or None)
            threshold = make_threshold(self.threshold) if self._multilabel else None
            remote = not self._training_engine().shares_memory
            check_fit_memory(self, training, plan.coupled, plan.splits, threshold, remote)
            with ThreadEngine(self.n_jobs) as engine:
                coupling = select(self, everything, plan, engine, checkpoint)
            if self.C == "cv":
                training = training._replace(row_cost=training.row_cost * self.C_)
            multipliers = self._train_and_keep(training, coupling, checkpoint)
            counts = np.diff(sp.csc_array(training.positives).indptr)
            learns = threshold is not None and threshold.learns
            nested = self.calibration == "levels" and not self._multilabel
            tree = NestedLogit(self.hierarchy_, self.class_nodes_, counts) if nested else None
            learned = learn_decisions(
                training,
                lambda seen, X, key: score_rows(
                    self._train(
                        seen,
                        coupling,
                        dense=False,
                        rough=not learns,
                        start=start_of_rows(multipliers, seen),
                        checkpoint=checkpoint,
                        key=key,
                    ),
                    X,
                    self.prune_below,
                ),
                calibration=self.calibration,
                threshold=self.threshold,
                multilabel=self._multilabel,
                tree=tree,
            )
            keep_decisions(self, learned, counts)
            if checkpoint is not None:
                checkpoint.clear()
        return self

    def _train_and_keep(
        self, training: Training, coupling: Coupling, checkpoint: Checkpoint | None
    ) -> Start | None:
        """Train on all rows; return the multipliers, from which held-out training starts."""
        start = None
        if self.warm_start:
            last = getattr(self, "_last", None)
            start = initial_multipliers(last and Last(*last), training, coupling, checkpoint)
        with Progress(None, "rounds", self.verbose) as progress:
            fitted = self._train(
                training,
                coupling,
                dense=self.prune_below is None,
                start=start,
                checkpoint=checkpoint,
                progress=progress,
            )
        keep_coupled(self, fitted, build_model(fitted, self.prune_below), training.options.tol)
        multipliers = fitted.solution.multipliers
        self._last = Last(training.positives, coupling.order, multipliers) if self.warm_start else None
        return multipliers

    def _train(self, training: Training, coupling: Coupling, **more: Any) -> Fitted:
        with self._training_engine() as engine:
            return train_joint(training, coupling, engine, **more)

    def _training_engine(self) -> Engine:
        return choose_engine(self.engine, self.n_jobs)

    def _couple(self, value: Any) -> Coupling:
        return couple(self.structure_ or self.hierarchy_, self.class_nodes_, value, self.fade)

    def _refuse_remote(self) -> None:
        """Refuse parameters that an engine with remote shards does not support."""
        advice = "use engine=None; RayEngine(folder=..., resume=True) resumes a fit that was interrupted"
        for name, value in (("warm_start", self.warm_start), ("checkpoint", self.checkpoint)):
            if value:
                require_shared_memory(self._training_engine(), f"{name}={value!r}", advice)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        structure: Hierarchy | LabelGraph | None = None,
    ) -> Self:
        """Continue training with new documents, also of new classes, without the old documents.

        The weights change as little as the new documents allow: deviations from the current weights are regularised.
        A new class starts where the structure expects it, near its parent.

        The current parameters apply: a `C` or a `coupling` that was set since the last call holds for the new
        documents, and is stored in `C_` and `coupling_`. "auto" and "cv" mean the values that `fit` chose; nothing is
        searched here. The scale of the calibration does not change, but new classes end the calibration by levels of
        the tree; new classes get the median of the learned thresholds.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : labels in the form in which they were given to `fit`
            One document is enough, except in the first call, which is a `fit`.
        classes : array-like, optional
            Classes that y may contain; others are refused. Unlike in scikit-learn, the first call does not need it,
            new classes may come at any time, and a class exists from its first document on.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C.
        structure : Hierarchy or LabelGraph, optional
            A larger structure that contains all classes so far; by default the current one.

        Returns
        -------
        self
        """
        if not hasattr(self, "classes_"):
            if structure is not None:
                raise ValueError("the first call of partial_fit uses the structure of the constructor.")
            if classes is not None:
                refuse_unannounced(encode_targets(y, self.structure), classes)
            return self.fit(X, y, sample_weight)
        with all_or_nothing(self):
            self._validate_params()
            if isinstance(self.class_weight, str):
                raise ValueError(
                    "class_weight='balanced' needs the sizes of all classes, but partial_fit sees one batch: give a "
                    "dict."
                )
            X = check_features(self, X, reset=False)
            check_consistent_length(X, y)
            rows = as_csr(X)
            check_squares(rows, self.dtype)
            structure = self.structure_ if structure is None else structure
            targets = encode_more(y, structure, self.classes_, self.label_kind_)
            if classes is not None:
                refuse_unannounced(targets, classes)
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            self.C_ = self.C_ if isinstance(self.C, str) else self.C
            self.coupling_ = self.coupling_ if isinstance(self.coupling, str) else self.coupling
            learn_more(self, rows, targets, structure, self.C_ * weight)
        return self

    def node_weights(self, nodes: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights of any nodes, also inner ones: the minimiser of the regulariser, given those of the classes.

        Parameters
        ----------
        nodes : sequence of names

        Returns
        -------
        coef : ndarray of shape (n_nodes, n_features)
        intercept : ndarray of shape (n_nodes,)
        """
        check_is_fitted(self)
        if self.structure_ is not None:
            ids = np.asarray(self.structure_.encode(list(nodes)))
        else:
            place = {name: i for i, name in enumerate(self.nodes_.tolist())}
            unknown = [name for name in nodes if name not in place]
            if unknown:
                raise ValueError(f"{unknown[0]!r} is not a class of the model, which has no structure.")
            ids = np.array([place[name] for name in nodes], np.int64)
        coef, intercept = node_weights(
            self._linear_model(),
            self.structure_ or self.hierarchy_,
            self.class_nodes_,
            ids,
            coupling=self.coupling_,
            fade=self.fade,
            dtype=np.dtype(self.dtype),
        )
        return coef, intercept

    def _choose(self, scores: NDArray[Any]) -> sp.csr_array:
        """Columns of the predicted classes: with one label and a tree, close calls are decided by the tree."""
        learned = tuple(self.calibration_) != tuple(Calibration(1.0))  # or the probabilities have no meaning
        if (
            self.close_calls == "class"
            or not learned
            or self._multilabel
            or len(self.classes_) == 2  # `decision_function` has one column, whose sign decides
            or not isinstance(self.structure_, Hierarchy)
        ):
            return super()._choose(scores)
        closure = self.hierarchy_.ancestor_matrix[self.class_nodes_]
        best = settle_close_calls(scores, Calibration(*self.calibration_), closure)
        return one_column(best, scores.shape[1])

    def _linear_model(self) -> LinearModel | PartsModel:
        if "differences_" in self.__dict__:
            return PartsModel(self.differences_, self.intercept_, self.sharing_)
        return LinearModel(self.coef_, self.intercept_)

    def __getattr__(self, name: str) -> Any:
        # A pruned model stores differences; its full weights are computed on demand.
        if name == "coef_" and "differences_" in self.__dict__:
            return full_weights(self.differences_, self.sharing_)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __arbora_params__(self) -> dict[str, Any]:
        """Parameters that `arbora.io.save` stores: a splitter as its splits, or else as its number of folds."""
        params: dict[str, Any] = self.get_params(deep=False)
        if hasattr(self, "cv_splits_") and getattr(self, "_split_by", None) is self.cv:
            params["cv"] = self.cv_splits_
        elif hasattr(self.cv, "get_n_splits"):
            with suppress(TypeError, ValueError):  # some splitters need the rows for this
                params["cv"] = int(self.cv.get_n_splits())
        return params
