"""Flat baselines: one linear classifier for each class, trained in blocks of classes.

For class b, with y_ib = +1 for its documents and -1 for all others,

    min_w  1/2 ||w||^2 + C sum_i loss(y_ib w.x_i),

with the hinge or squared hinge (`OneVsRestSVC`) or the logistic loss (`OneVsRestLogistic`). This is the objective of
LIBLINEAR; the bias is the weight of a constant feature and is regularised. A label structure is optional: it does not
change the weights, but predictions are then available at every node.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from arbora.classify.cost_choice import initial_cost, with_cost
from arbora.classify.estimator import (
    AUTO_COST_CONSTRAINT,
    CHECKPOINT_CONSTRAINT,
    CLASS_WEIGHT_CONSTRAINT,
    LEVELS_CONSTRAINT,
    LINEAR_CONSTRAINTS,
    LinearPredictor,
    NodePredictor,
)
from arbora.classify.flat import fit_one_vs_rest
from arbora.classify.thresholds import THRESHOLD_CONSTRAINT
from arbora.classify.training import (
    check_training,
    drop_weightless_rows,
    positive_sample_weight,
    positive_weights,
)
from arbora.core.estimator import all_or_nothing
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy

_CONSTRAINTS: dict[str, Any] = {
    **LINEAR_CONSTRAINTS,
    "C": AUTO_COST_CONSTRAINT,
    "calibration": LEVELS_CONSTRAINT,
    "class_weight": CLASS_WEIGHT_CONSTRAINT,
    "threshold": THRESHOLD_CONSTRAINT,
    "checkpoint": CHECKPOINT_CONSTRAINT,
}
_NEGATIVES = {"negatives": [StrOptions({"all", "near"})]}


def fit_weighted(
    estimator: OneVsRestSVC | OneVsRestLogistic, X: Any, y: Any, sample_weight: Any, loss: str
) -> None:
    """Check the input, apply `class_weight` and train all classes."""
    training = check_training(
        estimator,
        X,
        y,
        sample_weight,
        loss=loss,
        C=initial_cost(estimator.C),
        resumable=estimator.checkpoint is not None,
    )
    training = drop_weightless_rows(training)
    names = estimator.nodes_[estimator.class_nodes_]
    weights = positive_weights(estimator.class_weight, training, names, estimator.nodes_)
    training = training._replace(positive_weight=weights)
    training = with_cost(estimator, training, ThreadEngine(estimator.n_jobs))
    fit_one_vs_rest(estimator, training, positive_sample_weight(sample_weight, X))


class OneVsRestSVC(LinearPredictor, NodePredictor, ClassifierMixin, BaseEstimator):
    """Linear support vector machines, one for each class, on class-blocked dual coordinate descent.

    Parameters
    ----------
    C : float or "auto"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" starts from 1 over the
        mean squared norm of the rows and chooses among six costs by the likelihood of held-out labels, on a sample
        of rows and classes; the choice is in `C_`.
    loss : {"squared_hinge", "hinge"}
        The squared hinge depends less on C and gives better probabilities; the hinge is the loss of the published
        models.
    structure : Hierarchy, optional
        Label structure; the labels are names of its nodes. `predict_node_proba`, `predict_path` and `predict_backoff`
        then return nodes. The weights do not depend on the structure.
    tol : float
        Relative duality gap at which training stops. The gap is certified: the objective is at most this share above
        its optimum.
    max_iter : int
        Maximum number of sweeps over the data. A `ConvergenceWarning` is issued if they are not enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias. A larger value regularises the bias less.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive rows of each class, by name (with two classes: of the rows of each class).
        "balanced" is n_samples / (n_classes * n_samples of the class).
    calibration : "holdout", "levels", int or None
        How scores become probabilities. "holdout" learns scale and shift on a fifth of the rows, with a coarse model
        of the others; an integer learns them on that many folds (slower, more precise); None: scale 1, no shift.
        "levels", for one label per row over a tree, learns a scale for each level (a nested logit) and predicts the
        most probable class. It is better where new documents are like the training documents, and worse where they
        are not.
    threshold : {"auto", "zero", "global", "rcut", "scut", "instance"} or Threshold
        Multilabel only: where to cut the scores of a row (`arbora.classify.thresholds`). "auto" is the better one of
        "global" and "rcut" on the held-out rows, or "zero" if these have fewer than ten labels or both
        give far too many. All but "zero" are learned on the rows that are held out for the calibration, with models
        as precise as the final one; `calibration=None` then holds out rows as "holdout" does.
    negatives : {"all", "near"}
        "near" trains each block of 32 classes on their positives and a sample of the rows (a sixteenth, at least
        512 and as many as the positives; all rows if there are up to 2,048, or if this is more than half of them).
        With thousands of classes it takes half of the time at best, and is less accurate, by 1 and by 9 points of
        micro-F1 on the two sets measured: compare it with "all" on your data.
        The duality gap is then that of the problem with these rows, not of the full one, and 1% is enough.
        Two exclusive classes are always trained on all rows.
    dtype : "float32" or "float64"
        Precision of training and weights. float32 halves time and memory and is enough for `tol` down to 1e-5.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
        Order in which rows are visited.
    checkpoint : path, optional
        Folder where finished blocks of classes are saved. An interrupted fit resumes from there; the folder is
        cleared at the end.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data, sorted (label sets: in the order of the nodes). They are the columns of `predict_proba` and
        `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        A single row for two classes, as in scikit-learn.
    intercept_ : ndarray of shape (n_classes,)
    C_ : float
        The cost of the fit.
    nodes_ : ndarray
        Names of the columns of `predict_node_proba`.
    hierarchy_ : Hierarchy
        The structure; without one, a root for each class.
    class_nodes_ : ndarray of int
        Node of each class.
    duality_gap_ : float
        Certified relative duality gap over all classes.
    trace_ : Trace
        For each sweep `objective`, `seconds` (of work, over all threads) and the relative duality gap:
        `gap_estimate`, and in the last row the certified `gap`.
    calibration_ : ndarray of shape (2,)
        Scale and shift of the scores in the probabilities.
    threshold_ : Threshold or None
        Cuts the scores of a multilabel model; None for one label per row.
    n_iter_ : int
        Largest number of sweeps of a block of classes.
    n_features_in_ : int

    Examples
    --------
    >>> from arbora.classify import OneVsRestSVC
    >>> from arbora.structure import Hierarchy
    >>> X = [[2.0, 0.0], [1.5, 0.5], [0.0, 2.0], [0.5, 1.5], [-2.0, -2.0]]
    >>> y = ["animal/cat", "animal/cat", "animal/dog", "animal/dog", "plant"]
    >>> tree = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> model = OneVsRestSVC(structure=tree, random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.2]])
    array(['animal/cat'], dtype=object)
    >>> model.predict_path([[2.0, 0.2]])
    [['animal', 'animal/cat']]
    >>> model.predict_backoff([[1.0, 1.0]], threshold=0.8)  # surely an animal, perhaps a cat
    array(['animal'], dtype=object)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_CONSTRAINTS,
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        **_NEGATIVES,
    }

    def __init__(
        self,
        C: Any = "auto",
        *,
        loss: str = "squared_hinge",
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        calibration: Any = "holdout",
        threshold: Any = "auto",
        negatives: str = "all",
        dtype: str = "float32",
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.calibration = calibration
        self.threshold = threshold
        self.negatives = negatives
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OneVsRestSVC:
        """Train all classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label per row, a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes, and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C. Rows of weight 0 only contribute their labels to `classes_`.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            fit_weighted(self, X, y, sample_weight, self.loss)
        return self


class OneVsRestLogistic(LinearPredictor, NodePredictor, ClassifierMixin, BaseEstimator):
    """Logistic regression, one for each class, on class-blocked dual coordinate descent.

    Parameters
    ----------
    C : float or "auto"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" starts from 30 over the
        mean squared norm of the rows (10 if rows may have several labels) and chooses among seven costs by the
        likelihood of held-out labels, on a sample of rows and classes; the choice is in `C_`.
    structure : Hierarchy, optional
        Label structure; the labels are names of its nodes. `predict_node_proba`, `predict_path` and `predict_backoff`
        then return nodes. The weights do not depend on the structure.
    tol : float
        Relative duality gap at which training stops. The gap is certified: the objective is at most this share above
        its optimum.
    max_iter : int
        Maximum number of sweeps over the data. A `ConvergenceWarning` is issued if they are not enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias. A larger value regularises the bias less.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive rows of each class, by name (with two classes: of the rows of each class).
        "balanced" is n_samples / (n_classes * n_samples of the class).
    calibration : "holdout", "levels", int or None
        How scores become probabilities. "holdout" learns scale and shift on a fifth of the rows, with a coarse model
        of the others; an integer learns them on that many folds (slower, more precise); None: scale 1, no shift.
        "levels", for one label per row over a tree, learns a scale for each level (a nested logit) and predicts the
        most probable class. It is better where new documents are like the training documents, and worse where they
        are not.
    threshold : {"auto", "zero", "global", "rcut", "scut", "instance"} or Threshold
        Multilabel only: where to cut the scores of a row (`arbora.classify.thresholds`). "auto" is the better one of
        "global" and "rcut" on the held-out rows, or "zero" if these have fewer than ten labels or both
        give far too many. All but "zero" are learned on the rows that are held out for the calibration, with models
        as precise as the final one; `calibration=None` then holds out rows as "holdout" does.
    negatives : {"all", "near"}
        "near" trains each block of 32 classes on their positives and a sample of the rows (a sixteenth, at least
        512 and as many as the positives; all rows if there are up to 2,048, or if this is more than half of them).
        With thousands of classes it takes a tenth of the time at best, and is less accurate, by 2.5 points of
        micro-F1 on the set measured: compare it with "all" on your data.
        The duality gap is then that of the problem with these rows, not of the full one, and 1% is enough.
        Two exclusive classes are always trained on all rows.
    dtype : "float32" or "float64"
        Precision of training and weights. float32 halves time and memory and is enough for `tol` down to 1e-5.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
        Order in which rows are visited.
    checkpoint : path, optional
        Folder where finished blocks of classes are saved. An interrupted fit resumes from there; the folder is
        cleared at the end.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data, sorted (label sets: in the order of the nodes). They are the columns of `predict_proba` and
        `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        A single row for two classes, as in scikit-learn.
    intercept_ : ndarray of shape (n_classes,)
    C_ : float
        The cost of the fit.
    nodes_ : ndarray
        Names of the columns of `predict_node_proba`.
    hierarchy_ : Hierarchy
        The structure; without one, a root for each class.
    class_nodes_ : ndarray of int
        Node of each class.
    duality_gap_ : float
        Certified relative duality gap over all classes.
    trace_ : Trace
        For each sweep `objective`, `seconds` (of work, over all threads) and the relative duality gap:
        `gap_estimate`, and in the last row the certified `gap`.
    calibration_ : ndarray of shape (2,)
        Scale and shift of the scores in the probabilities.
    threshold_ : Threshold or None
        Cuts the scores of a multilabel model; None for one label per row.
    n_iter_ : int
        Largest number of sweeps of a block of classes.
    n_features_in_ : int

    Examples
    --------
    >>> from arbora.classify import OneVsRestLogistic
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> model = OneVsRestLogistic(C=10.0, random_state=0).fit(X, ["a", "a", "b", "b", "c", "c"])
    >>> model.predict([[0.2], [4.8]])
    array(['a', 'c'], dtype='<U1')
    >>> model.duality_gap_ <= model.tol
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {**_CONSTRAINTS, **_NEGATIVES}

    def __init__(
        self,
        C: Any = "auto",
        *,
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        calibration: Any = "holdout",
        threshold: Any = "auto",
        negatives: str = "all",
        dtype: str = "float32",
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.calibration = calibration
        self.threshold = threshold
        self.negatives = negatives
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OneVsRestLogistic:
        """Train all classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label per row, a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes, and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C. Rows of weight 0 only contribute their labels to `classes_`.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            fit_weighted(self, X, y, sample_weight, "logistic")
        return self
