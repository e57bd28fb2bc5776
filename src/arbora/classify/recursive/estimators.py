"""`RecursiveSVC` and `RecursiveLogisticRegression`: their parameters, attributes and defaults.

`RecursiveClassifier` (`classifier.py`) has the model, the objective and the steps of `fit`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sklearn.utils._param_validation import StrOptions

from arbora.classify.recursive.classifier import RecursiveClassifier
from arbora.core.engine import Engine
from arbora.structure import Hierarchy, LabelGraph

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
