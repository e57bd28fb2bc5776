"""`RecursiveSVC` and `RecursiveLogisticRegression`: classifiers trained together over a tree, a DAG or a graph."""

from __future__ import annotations

from contextlib import suppress
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from arbora.arrays import Matrix
from arbora.classify.cost_choice import choose_cost
from arbora.classify.decisions import Calibration, learn_decisions, settle_close_calls
from arbora.classify.estimator import (
    LEVELS_CONSTRAINT,
    LINEAR_CONSTRAINTS,
    LinearPredictor,
    one_column,
)
from arbora.classify.linear import LinearModel, PartsModel, full_weights, warn_open_gap
from arbora.classify.recursive.coupling import (
    DEFAULT_COUPLING,
    Coupling,
    couple,
    node_weights,
    read_coupling,
)
from arbora.classify.recursive.partial_fit import (
    encode_more,
    extend_threshold,
    refuse_new_meaning,
    refuse_unannounced,
    update,
    with_classes,
)
from arbora.classify.recursive.search import (
    SEARCH_CONSTRAINTS,
    Choice,
    Plan,
    Search,
    choose,
    make_plan,
    refuse_splits_of_other_rows,
)
from arbora.classify.recursive.training import (
    check_fit_memory,
    fit_joint,
    score_rows,
    start_of_rows,
    train_joint,
)
from arbora.classify.thresholds import make_threshold
from arbora.classify.training import (
    Targets,
    Training,
    as_csr,
    check_training,
    drop_weightless_rows,
    encode_targets,
    positive_weights,
    solver_options,
)
from arbora.core.checkpoint import open_checkpoint
from arbora.core.estimator import all_or_nothing, draw_seed, read_options, warn_caller, warn_ineffective
from arbora.core.running import running_checkpoint
from arbora.core.validation import check_features, check_squares
from arbora.engine import ThreadEngine, engine_for
from arbora.structure import Hierarchy, LabelGraph

# --- Recursive regularisation: classifiers trained together over a tree, a DAG or a graph of labels ---------
#
# S. Gopal and Y. Yang, Recursive regularization for large-scale classification with hierarchical and graphical
# dependencies (KDD 2013; thesis ch. 3). Classes that are close in the structure get similar weights,
#
#     min_W  regulariser(W) + C sum_l sum_i loss(y_il w_l.x_i),
#
# where the regulariser is the sum over the edges of 1/2 ||w_child - w_parent||^2 (`coupling.py` has all of
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
# `RecursiveClassifier.fit` has the steps of a fit.

# What an engine without shared memory has instead of a checkpoint.
_ADVICE = "use threads; RayEngine(folder=..., resume=True) resumes a fit that was interrupted"


class RecursiveClassifier(LinearPredictor, ClassifierMixin, BaseEstimator):
    """Methods of the two recursive classifiers, which differ in their loss."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto", "cv"})],
        "tol": [Interval(Real, 0, None, closed="neither"), None],
        "calibration": LEVELS_CONSTRAINT,
        "coupling": [
            Interval(Real, 0, None, closed="left"),
            StrOptions({"cv"}),
            "array-like",
            dict,
        ],
        "search": [dict, None],
        "prune_below": [Interval(Real, 0, None, closed="left"), None],
    }

    C: Any
    coupling: Any
    search: dict[str, Any] | None
    class_weight: Any
    threshold: Any
    prune_below: float | None
    random_state: Any
    verbose: int
    C_: float
    coupling_: Any
    fade_: float | None
    structure_: Hierarchy | LabelGraph | None

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

        Notes
        -----
        Three kinds of models are trained: to choose the cost, small flat ones (``C="auto"``) or one for each fold
        and candidate that is tried (``C="cv"`` or ``coupling="cv"``); the model, on all rows; and one without the
        held-out rows (one for each fold), for calibration and threshold, whose weights are not kept.
        """
        resumable = running_checkpoint() is not None
        needs = ["shares_memory"] if resumable else []
        engines = engine_for(self.n_jobs, "a checkpoint", needs, _ADVICE), ThreadEngine(self.n_jobs)
        with all_or_nothing(self), engines[0] as engine, engines[1] as threads:
            all_rows, targets = check_training(
                self, X, y, sample_weight, loss=self._loss, resumable=resumable
            )
            weights = positive_weights(self.class_weight, all_rows, targets)
            all_rows = all_rows._replace(positive_weight=weights)
            rows = drop_weightless_rows(all_rows)
            cut = make_threshold(self.threshold) if rows.multilabel else None
            plan = self._plan(all_rows, targets)
            check_fit_memory(
                rows,
                plan.coupled,
                plan.splits,
                calibration=self.calibration,
                threshold=cut,
                dense=self.prune_below is None,
                n_jobs=threads.n_workers,
                remote=not engine.shares_memory,
            )
            data, searched = (rows.X, rows.positives, rows.row_cost), plan.splits and plan.identity()
            checkpoint = open_checkpoint(self, *data, seed=rows.options.seed, search=searched)
            if self.C == "auto":
                plan = plan._replace(Cs=[choose_cost(rows, threads)])
            choice = choose(all_rows, plan, threads, checkpoint, self.verbose)
            rows = rows.with_cost(choice.C)
            fit = fit_joint(rows, choice.coupling, engine, self.prune_below, checkpoint, self.verbose)
            # `held_out_splits` sets the tolerance; no gap is certified
            coarse = cut is None or not cut.learns

            def score(part: Training, X: sp.csr_array, key: str) -> Matrix:
                """Scores of other rows by a model of `part`, which starts from that of all rows."""
                start = start_of_rows(fit.multipliers, part)
                joint = train_joint(
                    part, choice.coupling, engine,
                    dense=False, certify=not coarse, start=start, checkpoint=checkpoint, key=key,
                )  # fmt: skip
                return score_rows(joint, X, self.prune_below)

            decisions = learn_decisions(
                rows, score, calibration=self.calibration, threshold=self.threshold, targets=targets
            )
            self._remember(targets, fit.model, fit.trace, fit.gap, decisions)
            self._remember_search(choice, plan, len(all_rows.row_cost))
            self.structure_, self.C_ = self.structure, choice.C
            self.coupling_, self.fade_ = choice.value, plan.fade
            if not fit.converged:
                warn_open_gap(fit.gap, rows.options, lower="C or coupling")
            if checkpoint is not None:
                checkpoint.clear()
        return self

    def _plan(self, rows: Training, targets: Targets) -> Plan:
        """Candidates, folds and score of the search; `rows` are all rows, with the costs of C = 1."""
        search = read_options("search", self.search, Search, SEARCH_CONSTRAINTS)
        searching = "cv" in (self.C, self.coupling if isinstance(self.coupling, str) else None)
        if not searching:
            warn_ineffective(self, {"search": "neither C nor coupling is 'cv'"})
        elif search.costs is not None and self.C != "cv":
            warn_caller(f"{type(self).__name__}: no effect of costs in search (C is not 'cv').")
        elif "couplings" in (self.search or {}) and not isinstance(self.coupling, str):
            warn_caller(f"{type(self).__name__}: no effect of couplings in search (coupling is not 'cv').")
        elif hasattr(self, "cv_splits_") and not hasattr(self, "_split_by"):  # a loaded model
            n_before, n_rows = self.cv_n_samples_, rows.X.shape[0]
            refuse_splits_of_other_rows(search.cv, self.cv_splits_, n_before, n_rows)

        def couple_by(value: Any, fade: float | None) -> Coupling:
            return couple(self.structure or targets.hierarchy, targets.class_nodes, value, fade)

        threshold = self.threshold if targets.multilabel else None
        return make_plan(
            self.C, self.coupling, search, rows, couple_by, threshold=threshold, prune_below=self.prune_below
        )

    def _remember_search(self, choice: Choice, plan: Plan, n_rows: int) -> None:
        self._forget("cv_results_", "cv_splits_", "cv_n_samples_", "_split_by")
        if choice.results is not None:
            self.cv_results_, self._split_by = choice.results, read_options("search", self.search, Search).cv
            if not isinstance(self._split_by, Integral | None):
                self.cv_splits_, self.cv_n_samples_ = plan.splits, n_rows

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
        with all_or_nothing(self), ThreadEngine(self.n_jobs) as threads:
            self._validate_params()
            if isinstance(self.class_weight, str):
                raise ValueError(
                    "class_weight='balanced' needs the sizes of all classes, but partial_fit sees one batch: give a "
                    "dict."
                )
            X = check_features(self, X, reset=False)
            check_consistent_length(X, y)
            rows = as_csr(X)
            options = solver_options(self, self._loss, draw_seed(self.random_state), rows)
            check_squares(rows, options.dtype)
            structure = self.structure_ if structure is None else structure
            targets = encode_more(y, structure, self.classes_, self.label_kind_)
            if classes is not None:
                refuse_unannounced(targets, classes)
            targets, columns = with_classes(targets, self.classes_.tolist())
            if structure is not None:
                old_names = self.nodes_[self.class_nodes_]
                refuse_new_meaning(old_names, targets.nodes[targets.class_nodes[columns]], self.classes_)
            n_classes, is_new = len(targets.classes), len(targets.classes) > len(self.classes_)
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            training = Training(
                rows, targets.indicator, weight, np.ones(n_classes), options, multilabel=targets.multilabel
            )
            factors = positive_weights(self.class_weight, training, targets)
            C = self.C_ if isinstance(self.C, str) else float(self.C)
            coupling, fade = read_coupling(self.coupling)
            if isinstance(self.coupling, str):
                coupling, fade = self.coupling_, self.fade_
            fit = update(
                self._linear_model(),
                training.with_cost(C)._replace(positive_weight=factors),
                targets,
                columns,
                structure or targets.hierarchy,
                threads,
                coupling=coupling,
                fade=fade,
                prune_below=self.prune_below,
            )
            if is_new or structure is not self.structure_:
                self._forget("level_calibration_", "class_counts_")
            if is_new and hasattr(self.threshold_, "n_classes_"):
                self.threshold_ = extend_threshold(self.threshold_, n_classes, columns)
            targets = targets._replace(sparse=self.sparse_labels_)
            self._remember(targets, fit.model, fit.trace, fit.gap)
            self.structure_, self.C_, self.coupling_, self.fade_ = structure, C, coupling, fade
            if not fit.converged:
                warn_open_gap(fit.gap, options, lower="C or coupling")
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
            fade=self.fade_,
            dtype=self._linear_model()[0].dtype,
        )
        return coef, intercept

    def _choose(self, scores: Matrix) -> sp.csr_array:
        """Columns of the predicted classes: with one label and a tree, close calls are decided by the tree."""
        learned = tuple(self.calibration_) != tuple(Calibration(1.0))  # or the probabilities have no meaning
        if (
            not learned
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
        cv = (self.search or {}).get("cv")
        if hasattr(self, "cv_splits_") and getattr(self, "_split_by", None) is cv:
            params["search"] = {**(self.search or {}), "cv": self.cv_splits_}
        elif cv is not None and hasattr(cv, "get_n_splits"):
            with suppress(TypeError, ValueError):  # some splitters need the rows for this
                params["search"] = {**(self.search or {}), "cv": int(cv.get_n_splits())}
        return params


# --- `RecursiveSVC` and `RecursiveLogisticRegression`: their parameters, attributes and defaults ------------


class RecursiveSVC(RecursiveClassifier):
    """Support vector machines trained together over a label structure (RR-SVM).

    Parameters
    ----------
    C : float, "auto" or "cv"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" is the choice of
        `OneVsRestSVC`, quickly made for classes without a structure. "cv" chooses by cross-validation. The choice is
        in `C_`.
    loss : {"squared_hinge", "hinge"}
        The squared hinge depends less on C and gives better probabilities; the hinge is the published model.
    structure : Hierarchy or LabelGraph, optional
        Label structure; the labels are names of its nodes. Without one, the model is flat.
    coupling : float, "cv", sequence of floats or dict, default=0.1
        How much neighbouring classes share: 0 is flat training. One number c holds for all inner nodes, but is
        c * 16 / n for those with n > 16 classes below them: thousands of classes share little, and sharing makes
        training slow. A sequence has a number for each depth from the roots down (the last one holds for all deeper
        nodes), a dict one for each node by name (other nodes have 1); they are used as they are. [1.0] is the
        published model. For a graph: one number in [0, 1]. "cv" chooses one number by cross-validation. The choice is
        in `coupling_`.
    tol : float, optional
        Relative duality gap of the joint problem at which training stops. The gap is certified: the objective is at
        most this share above its optimum. None means 0.001 if at least half of the entries of X are not zero
        (measurements), and 0.01 for sparse rows (texts), where finer solutions predict no better. Below 1e-6,
        training and weights are in double precision, else in single precision.
    max_iter : int
        Maximum number of rounds over all classes (or Newton steps). A `ConvergenceWarning` is issued if they are not
        enough.
    fit_intercept : bool
        Whether to learn a bias.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive rows of each class, by name. "balanced" is
        n_samples / (n_classes * n_samples of the class).
    search : dict, optional
        Options of "cv". "costs" and "couplings" are the candidates. By default the costs are the ladder 1, 3, 10,
        30, ... in both directions: the search climbs from the cost that fits the length of the rows, and takes the
        time of a few fits. So does a search of more than eight given candidates, within these. Up to eight are all
        tried on all folds, costs in rising order until the score has fallen twice in a row, after at least four. A
        warning is issued if the score still rises at the last cost. The default couplings are 0, 0.1, 0.3 and 1.
        "cv" (3, also if it is None) is a number of folds, to which the rows of each class are dealt in turn, or a
        splitter of scikit-learn or an iterable of splits. These count by their rows: a checkpoint belongs to them
        (a splitter that shuffles needs a `random_state`), and `arbora.io.save` stores them instead of the splitter,
        or its number of folds if there was no search.
        "scoring" is "macro_f1" or "micro_f1" ("f1_macro" and "f1_micro" are synonyms). Each row of positive weight
        counts once. With one label per row, candidates are scored by the class with the highest score.
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
    prune_below : float, optional
        Store the weights as sparse differences of nodes from their parents, without entries whose absolute value is
        not above this: for structures so large that a dense `coef_` does not fit. 0.0 drops only zeros.
    n_jobs : int, optional
        Number of threads. The result does not depend on it. Blocks of 32 classes are trained side by side if the
        nodes above them share little, as with the default `coupling`; with a strong common root at most two at a
        time, and one if there are fewer than 65 blocks.
    random_state : int, RandomState instance or None
        Order in which rows and classes are visited, and the folds.
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
    fade_ : float or None
        Number of classes below a node from which on its coupling is reduced; None if it is nowhere.
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

    Notes
    -----
    With one label per row, three or more classes and a `Hierarchy`, `predict` decides between classes that are at
    least half as probable as the most probable one by the tree: it takes the class whose path from the root has the
    highest expected F1. About as many answers are exact, and wrong answers are nearer to the truth. `predict_proba`
    and `predict_top_k` rank by probability alone; without a calibration, and with ``calibration="levels"``, `predict`
    does too.

    ``arbora.running(checkpoint=folder)`` saves finished blocks of classes, candidates of the cross-validation and
    held-out fits. ``arbora.running(engine=...)`` trains in shards on the workers of a Ray cluster, to the same
    optimum; the search of "cv" and `partial_fit` run in this process.

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
        coupling: Any = DEFAULT_COUPLING,
        tol: float | None = None,
        max_iter: int = 200,
        fit_intercept: bool = True,
        class_weight: Any = None,
        search: dict[str, Any] | None = None,
        calibration: Any = "holdout",
        threshold: Any = "auto",
        prune_below: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.structure = structure
        self.coupling = coupling
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.search = search
        self.calibration = calibration
        self.threshold = threshold
        self.prune_below = prune_below
        self.n_jobs = n_jobs
        self.random_state = random_state
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
        `OneVsRestLogistic`, "cv" chooses by cross-validation.
    structure : Hierarchy or LabelGraph, optional
        Label structure; the labels are names of its nodes. Without one, the model is flat.
    coupling : float, "cv", sequence of floats or dict, default=0.1
        How much neighbouring classes share: 0 is flat training, 1 the published model.
    tol, max_iter
        Relative duality gap (0.01; None chooses as `RecursiveSVC` does) and number of rounds (or Newton steps) at
        which training stops.
    fit_intercept, class_weight, search, calibration, threshold, prune_below, n_jobs, random_state, verbose
        As in `RecursiveSVC`, where all parameters are described in full.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data, sorted (label sets: in the order of the nodes). They are the columns of `predict_proba` and
        `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        For a pruned model sparse, and computed from `differences_` on demand.
    intercept_ : ndarray of shape (n_classes,)
    differences_, sharing_, C_, coupling_, fade_, cv_results_, cv_splits_, structure_
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
        coupling: Any = DEFAULT_COUPLING,
        tol: float | None = 1e-2,
        max_iter: int = 200,
        fit_intercept: bool = True,
        class_weight: Any = None,
        search: dict[str, Any] | None = None,
        calibration: Any = "holdout",
        threshold: Any = "auto",
        prune_below: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.structure = structure
        self.coupling = coupling
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.search = search
        self.calibration = calibration
        self.threshold = threshold
        self.prune_below = prune_below
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _loss(self) -> str:
        return "logistic"
