"""`RecursiveSVC` and `RecursiveLogisticRegression`: their parameters, attributes and defaults.

`RecursiveClassifier` (`classifier.py`) has the model, the objective and the steps of `fit`.
"""

from __future__ import annotations

from contextlib import suppress
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from arbora.arrays import Matrix
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

# --- Recursive regularisation: classifiers trained together over a tree, a DAG or a graph of labels ---------
#
# S. Gopal and Y. Yang, Recursive regularization for large-scale classification with hierarchical and graphical
# dependencies (KDD 2013; thesis ch. 3). Classes that are close in the structure get similar weights,
#
#     min_W  regulariser(W) + C sum_l sum_i loss(y_il w_l.x_i),
#
# where the regulariser is the sum over the edges of 1/2 ||w_child - w_parent||^2 (`_linear/coupling.py` has all of
# its forms, and the *coupling* that interpolates between flat training and the published model), the losses are
# those of one-vs-rest, and only classes with documents have a loss. On a structure without edges this is exactly
# the flat model.
#
# The inner nodes are eliminated: given the classes, their weights follow in closed form. The solver works on one
# joint dual over the pairs of documents and classes (`infer/linear/coupled.py`) with a certified duality gap; for
# the logistic loss on dense rows with few features it is Newton's method (`infer/linear/newton.py`). (Erratum: the
# published update of a leaf has `a'.x_i - 1 + y w_parent.x_i`; the gradient is `y w.x_i - 1` with the full weights,
# so that a `y` is missing there.)
#
# The bias is the weight of a constant feature: it is regularised, and shared, like any other weight.
#
# `RecursiveSVC.fit` takes these steps:
#
# 1. `check_training` (`_common/training.py`): parameters, X (`core/validation.py`), labels (`_common/labels.py`)
#    and weights become a `Training`;
# 2. `make_plan` (`plan.py`): couplings become factors (`couple` in `_linear/coupling.py`), `cv` becomes folds
#    (`core/folds.py`);
# 3. `check_fit_memory` (`memory.py`) refuses what does not fit in memory;
# 4. `select` (`search.py`) runs the cross-validation, if there is one, and sets `C_` and `coupling_`;
# 5. `train_joint` (`coupled_training.py`) prepares the rows and runs a solver: `CoupledSolver`
#    (`infer/linear/coupled.py`) visits blocks of classes with the kernels of `kernels/linear/coupled.py`;
# 6. `build_model` and `keep_coupled` (`coupled_training.py`) set `coef_`, `trace_` and `duality_gap_`;
# 7. `learn_decisions` (`_common/held_out.py`) sets `calibration_` and `threshold_`.


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

    def node_weights(self, nodes: Any) -> tuple[Matrix, Matrix]:
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

    def _choose(self, scores: Matrix) -> sp.csr_array:
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


# --- `RecursiveSVC` and `RecursiveLogisticRegression`: their parameters, attributes and defaults ------------


# Standardised measurements need small costs, sparse texts with small classes large ones: the costs chosen in
# benchmarks/RESULTS.md span this range. At equal cost the logistic loss regularises more than the hinge.
DEFAULT_CS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
DEFAULT_LOGISTIC_CS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
DEFAULT_COUPLINGS = (0.0, 0.1, 0.3, 1.0)


class RecursiveSVC(RecursiveClassifier):
    """Support vector machines trained together over a label structure (RR-SVM).

    Parameters
    ----------
    C : float, "auto" or "cv"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" is the choice of
        `OneVsRestSVC`, quickly made for classes without a structure. "cv" chooses among `Cs` by cross-validation. The
        choice is in `C_`.
    loss : {"squared_hinge", "hinge"}
        The squared hinge depends less on C and gives better probabilities; the hinge is the published model.
    structure : Hierarchy or LabelGraph, optional
        Label structure; the labels are names of its nodes. Without one, the model is flat.
    coupling : float, "cv", sequence of floats or dict
        How much neighbouring classes share: 0 is flat training, 1 (with `fade=None`) the published model. One number
        for all inner nodes, one for each depth from the roots down (the last one holds for all deeper nodes), or a
        dict of node names (other nodes have 1). "cv" chooses among `couplings`; the choice is in `coupling_`. For a
        graph: one number in [0, 1].
    fade : float, optional
        The coupling of a node with more than this many classes below it is multiplied by fade / n_classes: thousands
        of classes share little, and sharing makes training slow. None couples all nodes alike, as published.
    tol : float, optional
        Relative duality gap of the joint problem at which training stops. The gap is certified: the objective is at
        most this share above its optimum. None means 0.001 if at least half of the entries of X are not zero
        (measurements), and 0.01 for sparse rows (texts), where finer solutions predict no better.
    max_iter : int
        Maximum number of rounds over all classes (or Newton steps). A `ConvergenceWarning` is issued if they are not
        enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias. A larger value regularises the bias less.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive rows of each class, by name. "balanced" is
        n_samples / (n_classes * n_samples of the class).
    Cs, couplings : sequences
        Candidates of "cv". The default costs are the ladder 1, 3, 10, 30, ... in both directions: the search climbs
        from the cost that fits the length of the rows, and its cost is that of a few fits. So does a search of more
        than eight given candidates, within these. Up to eight given candidates are all tried on all folds, costs in
        rising order until the score has fallen twice in a row, after at least four. A warning is issued if the score
        still rises at the last cost.
    cv : int, None, splitter of scikit-learn or iterable of splits
        Folds of the cross-validation. With an integer (None is 3, the default) the rows of each class are dealt to
        the folds in turn. A splitter or iterable counts by its rows: a checkpoint belongs to them (a splitter that
        shuffles needs a `random_state`), and `arbora.io.save` stores them instead of the splitter, or its number of
        folds if there was no search.
    scoring : {"macro_f1", "micro_f1"}
        Score of the cross-validation; "f1_macro" and "f1_micro" are synonyms. Each row of positive weight counts
        once. With one label per row, candidates are scored by the class with the highest score, whatever
        `close_calls` is.
    calibration : "holdout", "levels", int or None
        How scores become probabilities. "holdout" learns scale and shift on a fifth of the rows, with a coarse model
        of the others; an integer learns them on that many folds (slower, more precise); None: scale 1, no shift.
        "levels", for one label per row over a tree, learns a scale for each level (a nested logit) and predicts the
        most probable class. It is better where new documents are like the training documents, and worse where they
        are not.
    threshold : {"auto", "zero", "global", "rcut", "scut", "instance"} or Threshold
        Multilabel only: where to cut the scores of a row (`arbora.classify.thresholds`). "auto" is the better one of
        "global" and "rcut" on the held-out rows, or "zero" if these have fewer than ten labels or both
        give far too many.
    close_calls : {"path", "class"}
        With one label per row, three or more classes and a `Hierarchy`: how `predict` chooses among classes at least
        half as probable as the most probable one. "path" takes the class whose path from the root has the highest
        expected F1: about as many exact answers, and wrong answers are nearer to the truth. Only rows with several
        such classes take more time than with "class", which takes the most probable class, as `predict_proba` and
        `predict_top_k` rank them. Without a calibration, and with `calibration="levels"`, it is always the first of
        the ranking.
    prune_below : float, optional
        Store the weights as sparse differences of nodes from their parents, without entries whose absolute value is
        not above this: for structures so large that a dense `coef_` does not fit. 0.0 drops only zeros.
    dtype : "float32" or "float64"
        Precision of training and weights.
    warm_start : bool
        Whether to start `fit` from the multipliers of the previous fit, if it had the same documents and labels.
    n_jobs : int, optional
        Number of threads. The result does not depend on it. Blocks of 32 classes are
        trained side by side if the nodes above them share little, as with the default `fade`; with a strong common
        root at most two at a time, and one if there are fewer than 65 blocks.
    engine : None, "threads", "ray" or RayEngine
        Where classes are trained: in this process, or in shards on the workers of a Ray cluster (extra `ray`; "ray"
        starts one on this machine). The optimum is the same. The search of "cv" and `partial_fit` run in this
        process; `warm_start` and `checkpoint` need engine=None.
    random_state : int, RandomState instance or None
        Order in which rows and classes are visited, and the folds.
    checkpoint : path, optional
        Folder where finished blocks of classes, candidates of the cross-validation and held-out fits are saved. An
        interrupted fit resumes from there and ends with the same model; the folder is cleared at the end.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data, sorted (label sets: in the order of the nodes). They are the columns of `predict_proba` and
        `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        For a pruned model sparse, and computed from `differences_` on demand.
    intercept_ : ndarray of shape (n_classes,)
    differences_ : sparse matrix of shape (n_parts, n_features)
        Pruned models only: the parts of the weights.
    sharing_ : sparse matrix of shape (n_parts, n_classes)
        Pruned models only: the share of each class in each part; ``coef_ = sharing_.T @ differences_``.
    C_, coupling_ : the cost and the coupling of the fit
    cv_results_ : dict
        After a cross-validation, for every candidate: "C", "coupling", "mean_score", "std_score", "scores" (by fold,
        nan where it was not tried), "gap" (largest relative duality gap over folds) and "converged" (whether it
        reached the tolerance).
    cv_splits_ : list of pairs of ndarrays
        After a cross-validation with a `cv` that is not a number: rows to train on and rows to test on.
    cv_n_samples_ : int
        Number of rows that were split; a loaded model refuses to use the splits for another number.
    nodes_ : ndarray
        Names of the columns of `predict_node_proba`.
    structure_ : Hierarchy, LabelGraph or None
        The current structure; `partial_fit` may replace it by a larger one.
    hierarchy_ : Hierarchy
        The structure; without one, a root for each class.
    class_nodes_ : ndarray of int
        Node of each class.
    duality_gap_ : float
        Certified relative duality gap.
    trace_ : Trace
        For each round `objective`, `seconds` and the relative duality gap: `gap_estimate`, and in the last row the
        certified `gap` (Newton's method certifies every row).
    calibration_ : ndarray of shape (2,)
        Scale and shift of the scores in the probabilities.
    threshold_ : Threshold or None
    n_iter_ : int
        Number of rounds.
    n_features_in_ : int

    Examples
    --------
    >>> from arbora.classify import RecursiveSVC
    >>> from arbora.structure import Hierarchy
    >>> X = [[2.0, 0.0], [1.5, 0.5], [0.0, 2.0], [0.5, 1.5], [-2.0, -2.0]]
    >>> y = ["animal/cat", "animal/cat", "animal/dog", "animal/dog", "plant"]
    >>> tree = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> model = RecursiveSVC(structure=tree, random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.2]])
    array(['animal/cat'], dtype=object)
    >>> model.duality_gap_ <= 0.01
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RecursiveClassifier._parameter_constraints,
        "loss": [StrOptions({"hinge", "squared_hinge"})],
    }

    def __init__(
        self,
        C: Any = "auto",
        *,
        loss: str = "squared_hinge",
        structure: Hierarchy | LabelGraph | None = None,
        coupling: Any = 0.1,
        fade: float | None = 16.0,
        tol: float | None = None,
        max_iter: int = 200,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        Cs: Any = DEFAULT_CS,
        couplings: Any = DEFAULT_COUPLINGS,
        cv: Any = 3,
        scoring: str = "macro_f1",
        calibration: Any = "holdout",
        threshold: Any = "auto",
        close_calls: str = "path",
        prune_below: float | None = None,
        dtype: str = "float32",
        warm_start: bool = False,
        n_jobs: int | None = None,
        engine: Engine | str | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.structure = structure
        self.coupling = coupling
        self.fade = fade
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.Cs = Cs
        self.couplings = couplings
        self.cv = cv
        self.scoring = scoring
        self.calibration = calibration
        self.threshold = threshold
        self.close_calls = close_calls
        self.prune_below = prune_below
        self.dtype = dtype
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.engine = engine
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    @property
    def _loss(self) -> str:
        return self.loss


class RecursiveLogisticRegression(RecursiveClassifier):
    """Logistic regression trained together over a label structure (RR-LR).

    Parameters
    ----------
    C : float, "auto" or "cv"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" is the choice of
        `OneVsRestLogistic`, "cv" chooses among `Cs`.
    structure : Hierarchy or LabelGraph, optional
        Label structure; the labels are names of its nodes. Without one, the model is flat.
    coupling : float, "cv", sequence of floats or dict
        How much neighbouring classes share: 0 is flat training, 1 (with `fade=None`) the published model.
    fade : float, optional
        Number of classes below a node beyond which its coupling is reduced.
    tol, max_iter
        Relative duality gap (0.01; None chooses as `RecursiveSVC` does) and number of rounds (or Newton steps) at
        which training stops.
    fit_intercept, intercept_scaling
        Whether to learn a bias, and the value of its constant feature.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive rows of each class.
    Cs, couplings, cv, scoring
        Candidates, folds (None is 3, the default) and score of the cross-validation.
    calibration, threshold, close_calls
        How scores become probabilities, sets of labels, and a label if several are about equally probable.
    prune_below, dtype
        How weights are stored: as sparse differences or in full, and in which precision.
    warm_start, n_jobs, engine, random_state, checkpoint, verbose
        How training runs.

        All parameters are those of `RecursiveSVC`, where they are described in full.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data, sorted (label sets: in the order of the nodes). They are the columns of `predict_proba` and
        `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        For a pruned model sparse, and computed from `differences_` on demand.
    intercept_ : ndarray of shape (n_classes,)
    differences_, sharing_, C_, coupling_, cv_results_, cv_splits_, structure_
        As in `RecursiveSVC`.
    nodes_, hierarchy_, class_nodes_, duality_gap_, trace_, calibration_, threshold_, n_iter_, n_features_in_
        As in `RecursiveSVC`.

    Examples
    --------
    >>> from arbora.classify import RecursiveLogisticRegression
    >>> from arbora.structure import Hierarchy
    >>> tree = Hierarchy.from_edges([("low", "a"), ("low", "b"), ("high", "c")])
    >>> X = [[0.0], [1.0], [2.0], [3.0], [8.0], [9.0]]
    >>> y = ["a", "a", "b", "b", "c", "c"]
    >>> model = RecursiveLogisticRegression(C=10.0, structure=tree, random_state=0).fit(X, y)
    >>> model.predict([[0.2], [8.5]])
    array(['a', 'c'], dtype=object)
    """

    def __init__(
        self,
        C: Any = "auto",
        *,
        structure: Hierarchy | LabelGraph | None = None,
        coupling: Any = 0.1,
        fade: float | None = 16.0,
        tol: float | None = 1e-2,
        max_iter: int = 200,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        Cs: Any = DEFAULT_LOGISTIC_CS,
        couplings: Any = DEFAULT_COUPLINGS,
        cv: Any = 3,
        scoring: str = "macro_f1",
        calibration: Any = "holdout",
        threshold: Any = "auto",
        close_calls: str = "path",
        prune_below: float | None = None,
        dtype: str = "float32",
        warm_start: bool = False,
        n_jobs: int | None = None,
        engine: Engine | str | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.structure = structure
        self.coupling = coupling
        self.fade = fade
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.Cs = Cs
        self.couplings = couplings
        self.cv = cv
        self.scoring = scoring
        self.calibration = calibration
        self.threshold = threshold
        self.close_calls = close_calls
        self.prune_below = prune_below
        self.dtype = dtype
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.engine = engine
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    @property
    def _loss(self) -> str:
        return "logistic"
