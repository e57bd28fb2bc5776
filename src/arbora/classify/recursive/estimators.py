"""Recursive regularisation: classifiers trained together over a tree, a DAG or a graph of labels.

S. Gopal and Y. Yang, Recursive regularization for large-scale classification with hierarchical and graphical
dependencies (KDD 2013; thesis ch. 3). Classes that are close in the structure get similar weights,

    min_W  regulariser(W) + C sum_l sum_i loss(y_il w_l.x_i),

where the regulariser is the sum over the edges of 1/2 ||w_child - w_parent||^2 (see `_coupling` for all of its forms,
and for the *coupling* that leads from the published model to the flat one), the losses are those of one-vs-rest, and
only the classes that carry documents have a loss. On a structure without edges this is the flat model, exactly.

The inner nodes are eliminated: given the classes their weights follow in closed form, so that what is solved is one
joint dual over the pairs of documents and classes (`infer.linear.coupled`), and its duality gap is certified; for the
logistic loss on dense rows with few features, Newton's method takes over (`infer.linear.coupled_newton`). (Where
the published update of a leaf says `a'.x_i - 1 + y w_parent.x_i`, the gradient is `y w.x_i - 1` with the full
weights: a `y` is missing there.)

The bias is the weight of a constant feature: it is regularised, and shared, like any other weight.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sklearn.utils._param_validation import StrOptions

from arbora.classify.recursive.base import Recursive
from arbora.structure import Hierarchy, LabelGraph

# Standardised measurements want the small costs, sparse texts with small classes the large ones: what is chosen in
# benchmarks/RESULTS.md spans this range. At equal cost the logistic loss regularises more than the hinge.
DEFAULT_CS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
DEFAULT_LOGISTIC_CS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
DEFAULT_COUPLINGS = (0.0, 0.1, 0.3, 1.0)


class RecursiveSVC(Recursive):
    """Support vector machines trained together over a label structure (RR-SVM).

    Parameters
    ----------
    C : float or "cv"
        Cost of a unit of loss: the larger, the closer the fit to the training data. "cv" chooses among `Cs` by
        cross-validation; what was chosen is in `C_`.
    loss : {"hinge", "squared_hinge"}
    structure : Hierarchy or LabelGraph, optional
        Label structure whose nodes the labels name. Without one, the model is the flat one.
    coupling : float, "cv", sequence of floats or dict
        How much classes share with those near them: 0 is flat training, 1 (with `fade=None`) as published. One number
        for all inner nodes, one for each depth from the roots down (the last goes on), or a dict of node names
        (others have 1). "cv" chooses among `couplings`; what was chosen is in `coupling_`. Of a graph: one number in
        [0, 1].
    fade : float, optional
        A node with more than this many classes below it is coupled in proportion fade / n_classes: what thousands
        of classes share is little, and slow to learn. None couples all nodes alike, as published.
    tol : float
        Relative duality gap of the joint problem at which training stops; it is certified, so that the objective is
        at most this share above its optimum.
    max_iter : int
        Most rounds over all classes (or Newton steps); a `ConvergenceWarning` tells when they were not enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias; the larger, the less the bias is regularised.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive documents of each class, by its name; "balanced" is
        n_samples / (n_classes * n_samples of the class).
    Cs, couplings : sequences
        What "cv" tries. A path of costs rises, each from the solution before, and ends when the score has fallen
        twice in a row, four costs or more having been tried.
    cv : int, None, splitter of scikit-learn or iterable of splits
        Folds of the cross-validation; of a number of them (None is 5), documents of a class are dealt out to them in
        turn. All else counts by the rows that it gives: a checkpoint belongs to them (a splitter that shuffles needs
        a `random_state` to give them again), and `arbora.io.save` keeps them instead of the splitter, or its number
        of folds if there was no search.
    scoring : {"macro_f1", "micro_f1"}
        What the cross-validation maximises; "f1_macro" and "f1_micro" mean the same. Rows of positive weight
        count once.
    calibration : "holdout", int or None
        How scores become probabilities: the scale is learned on a fifth of the rows with a coarse model of the
        others, on that many folds in turn (slower, finer), or is 1.
    threshold : {"zero", "global", "rcut", "scut", "instance"} or Threshold
        Where to cut the scores of a row that may carry several labels (`arbora.classify.thresholds`).
    prune_below : float, optional
        Keep the weights as sparse differences of nodes from their parents, without entries whose size is not above
        this: for structures so large that a dense `coef_` would not fit. 0.0 drops nothing but zeros.
    dtype : "float32" or "float64"
        Precision of training and weights.
    warm_start : bool
        Whether to start `fit` from the multipliers of the fit before, if it was of the same documents and labels.
    n_jobs : int, optional
        Threads; the result does not depend on it. Under a root that all classes share, at most two blocks of
        classes are trained at a time, and one where there are fewer than 65 blocks of 32.
    engine : None, "threads", "ray" or RayEngine
        Where classes are trained together: in this process, or in shards on the workers of a Ray cluster (extra
        `ray`; "ray" is one on this machine). The optimum is the same. The search of "cv" and `partial_fit` stay in
        this process; `warm_start` and `checkpoint` are for this process alone.
    random_state : int, RandomState instance or None
        Order in which rows and classes are visited, and the folds.
    checkpoint : path, optional
        Folder where finished blocks of classes, candidates of the cross-validation and held-out fits are kept: a fit
        that was interrupted goes on from there and ends with the same model; the folder is cleared at the end.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        Of a pruned model sparse, and made from `differences_` when it is asked for.
    intercept_ : ndarray of shape (n_classes,)
    differences_ : sparse matrix of shape (n_parts, n_features)
        Of a pruned model: the parts of which the weights of the classes are sums.
    sharing_ : sparse matrix of shape (n_parts, n_classes)
        Of a pruned model: the share of each class in each part.
    C_, coupling_ : the cost and the coupling of the fit
    cv_results_ : dict
        After a cross-validation, of every candidate: "C", "coupling", "mean_score", "std_score", "scores" (by fold),
        "gap" (the largest relative duality gap over folds) and "converged" (whether that is small enough).
    cv_splits_ : list of pairs of ndarrays
        After a cross-validation with a `cv` that is no number: the rows to train on and to judge on.
    cv_n_samples_ : int
        Number of rows that were split so; a loaded model refuses to split another number in the same way.
    nodes_ : ndarray
        Names of the columns of `predict_node_proba`.
    structure_ : Hierarchy, LabelGraph or None
        The structure in force, which `partial_fit` may replace by a larger one.
    hierarchy_ : Hierarchy
        The structure, or one root for each class.
    class_nodes_ : ndarray of int
        Node of each class.
    duality_gap_ : float
        Certified relative duality gap.
    trace_ : Trace
        Objective, relative gap (estimates, the last one exact) and seconds by round.
    calibration_ : ndarray of shape (2,)
        Scale and shift that make probabilities of scores.
    threshold_ : Threshold or None
    n_iter_ : int
        Rounds.
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
    >>> model.duality_gap_ <= model.tol
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Recursive._parameter_constraints,
        "loss": [StrOptions({"hinge", "squared_hinge"})],
    }

    def __init__(
        self,
        C: Any = 1.0,
        *,
        loss: str = "hinge",
        structure: Hierarchy | LabelGraph | None = None,
        coupling: Any = 0.1,
        fade: float | None = 16.0,
        tol: float = 1e-2,
        max_iter: int = 200,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        Cs: Any = DEFAULT_CS,
        couplings: Any = DEFAULT_COUPLINGS,
        cv: int = 3,
        scoring: str = "macro_f1",
        calibration: Any = "holdout",
        threshold: Any = "zero",
        prune_below: float | None = None,
        dtype: str = "float32",
        warm_start: bool = False,
        n_jobs: int | None = None,
        engine: Any = None,
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
        self.prune_below = prune_below
        self.dtype = dtype
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.engine = engine
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    @property
    def _loss_name(self) -> str:
        return self.loss


class RecursiveLogisticRegression(Recursive):
    """Logistic regression trained together over a label structure (RR-LR).

    Parameters
    ----------
    C : float or "cv"
        Cost of a unit of loss: the larger, the closer the fit to the training data. "cv" chooses among `Cs`.
    structure : Hierarchy or LabelGraph, optional
        Label structure whose nodes the labels name. Without one, the model is the flat one.
    coupling : float, "cv", sequence of floats or dict
        How much classes share with those near them: 0 is flat training, 1 (with `fade=None`) as published.
    fade : float, optional
        Number of classes below a node beyond which its coupling fades.
    tol, max_iter
        When to stop: relative duality gap, most rounds (or Newton steps).
    fit_intercept, intercept_scaling
        Whether there is a bias, and how little it is regularised.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive documents of each class.
    Cs, couplings, cv, scoring
        The cross-validation: what it tries, on which folds, and what it maximises.
    calibration, threshold
        How scores become probabilities, and sets of labels.
    prune_below, dtype
        How weights are kept: as sparse differences or in full, and in which precision.
    warm_start, n_jobs, engine, random_state, checkpoint, verbose
        How training goes about it.

        All parameters but `loss` are those of `RecursiveSVC`, where they are described in full.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        Of a pruned model sparse, and made from `differences_` when it is asked for.
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
        C: Any = 1.0,
        *,
        structure: Hierarchy | LabelGraph | None = None,
        coupling: Any = 0.1,
        fade: float | None = 16.0,
        tol: float = 1e-2,
        max_iter: int = 200,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        Cs: Any = DEFAULT_LOGISTIC_CS,
        couplings: Any = DEFAULT_COUPLINGS,
        cv: int = 3,
        scoring: str = "macro_f1",
        calibration: Any = "holdout",
        threshold: Any = "zero",
        prune_below: float | None = None,
        dtype: str = "float32",
        warm_start: bool = False,
        n_jobs: int | None = None,
        engine: Any = None,
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
        self.prune_below = prune_below
        self.dtype = dtype
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.engine = engine
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    @property
    def _loss_name(self) -> str:
        return "logistic"
