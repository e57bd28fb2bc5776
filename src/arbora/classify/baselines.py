"""Flat baselines: one linear classifier for each class, trained in blocks of classes.

For class b, with y_ib = +1 for its documents and -1 for all others,

    min_w  1/2 ||w||^2 + C sum_i loss(y_ib w.x_i),

with the hinge or squared hinge (`OneVsRestSVC`) or the logistic loss (`OneVsRestLogistic`): the objective of
LIBLINEAR, its bias included, which is the weight of a constant feature and so is regularised. A label structure is
optional here: it does not change the weights, but predictions can then be read off at every node.
"""

from __future__ import annotations

from difflib import get_close_matches
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight

from arbora.classify._common.linear_classifier import LinearClassifier
from arbora.classify._common.one_vs_rest import Training, train_one_vs_rest
from arbora.classify.thresholds import THRESHOLD_CONSTRAINT
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.infer.linear.flat import class_blocks
from arbora.structure import Hierarchy


class OneVsRest(LinearClassifier):
    """The fit that the flat classifiers share."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LinearClassifier._parameter_constraints,
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "threshold": THRESHOLD_CONSTRAINT,
    }

    def _fit(self, X: Any, y: Any, sample_weight: Any, loss: str) -> Any:
        training = self._check_fit(X, y, sample_weight, loss)
        training = training._replace(positive_weight=self._positive_weight(training))
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if len(self.classes_) == 2 and not self._multilabel:
            # Two exclusive classes share one classifier: the first is the second with its sign changed. The weight
            # of each class is then on its own rows, the negatives included.
            by_row = training.positives @ training.positive_weight
            training = training._replace(row_cost=training.row_cost * by_row, positive_weight=np.ones(2))
            training = training.with_columns(slice(1, None))
        checkpoint = self._checkpoint(training)
        n_blocks = len(class_blocks(training.positives.shape[1]))
        with Progress(n_blocks, "blocks of classes", self.verbose) as progress:
            trained = train_one_vs_rest(training, self._engine(), checkpoint, progress)
        self._keep(trained.model, trained.solutions)
        self._learn_decisions(
            training,
            lambda seen, key: train_one_vs_rest(seen, self._engine(), checkpoint, key=key).model,
            weight[weight > 0],  # the costs of rows may have factors of their classes
        )
        if checkpoint is not None:
            checkpoint.clear()
        return self

    def _positive_weight(self, training: Training) -> NDArray[np.float64]:
        """Weights of the positives of each class, as LIBLINEAR applies `class_weight` in one-vs-rest."""
        if isinstance(self.class_weight, dict):
            self._check_class_weight(self.class_weight)
            return np.array(
                [self.class_weight.get(name, 1.0) for name in self.nodes_[self.class_nodes_].tolist()]
            )
        if self.class_weight is None:
            return training.positive_weight
        counts = np.asarray(training.positives.sum(axis=0)).ravel()
        return training.positives.shape[0] / (len(counts) * np.maximum(counts, 1))

    def _check_class_weight(self, class_weight: dict[Any, Any]) -> None:
        """Refuse names that nothing has, and weights that would turn the sign of a loss."""
        known = set(self.nodes_.tolist())
        for name, weight in class_weight.items():
            if name not in known:
                near = get_close_matches(str(name), map(str, known), n=1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise ValueError(f"class_weight names {name!r}, which is neither a class nor a node{hint}.")
            if not (isinstance(weight, Real) and 0 <= weight < np.inf):
                raise ValueError(
                    f"class_weight gives {name!r} the weight {weight!r}: weights are finite numbers, 0 or more."
                )


class OneVsRestSVC(OneVsRest):
    """Linear support vector machines, one for each class, on class-blocked dual coordinate descent.

    Parameters
    ----------
    C : float
        Cost of a unit of loss: the larger, the closer the fit to the training data.
    loss : {"hinge", "squared_hinge"}
    structure : Hierarchy, optional
        Label structure whose nodes the labels name. `predict_node_proba`, `predict_path` and `predict_backoff`
        then return nodes; the weights do not depend on the structure.
    tol : float
        Relative duality gap at which training stops; it is certified, so that the objective is at most this
        share above its optimum.
    max_iter : int
        Most sweeps over the data; a `ConvergenceWarning` tells when they were not enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias; the larger, the less the bias is regularised.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive documents of each class (of two classes: of the documents of each),
        by its name; "balanced" is n_samples / (n_classes * n_samples of the class).
    calibration : "holdout", int or None
        How scores become probabilities: the scale is learned on a fifth of the rows with a coarse model of the
        others, on that many folds in turn (slower, finer), or is 1.
    threshold : {"zero", "global", "rcut", "scut", "instance"} or Threshold
        Where to cut the scores of a row that may carry several labels (`arbora.classify.thresholds`). All but
        "zero" are learned on the rows that are held out for the calibration, by models as fine as the final one;
        with `calibration=None`, as if it were "holdout". Models of one label a row ignore it.
    dtype : "float32" or "float64"
        Precision of training and weights; float32 halves time and memory and suffices for `tol` down to 1e-5.
    n_jobs : int, optional
        Threads; the result does not depend on it.
    random_state : int, RandomState instance or None
        Order in which rows are visited.
    checkpoint : path, optional
        Folder where finished blocks of classes are kept: a fit that was interrupted goes on from there, and the
        folder is cleared at the end.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        One row only when there are two classes, as everywhere in scikit-learn.
    intercept_ : ndarray of shape (n_classes,)
    nodes_ : ndarray
        Names of the columns of `predict_node_proba`.
    hierarchy_ : Hierarchy
        The structure, or one root for each class.
    class_nodes_ : ndarray of int
        Node of each class.
    duality_gap_ : float
        Certified relative duality gap over all classes.
    trace_ : Trace
        Objective, relative gap (estimates, the last one exact) and seconds of work by sweep.
    calibration_ : ndarray of shape (2,)
        Scale and shift that make probabilities of scores.
    threshold_ : Threshold or None
        What `predict` cuts the scores of several labels with; None for one label a row.
    n_iter_ : int
        Most sweeps that a block of classes took.
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
        **OneVsRest._parameter_constraints,
        "loss": [StrOptions({"hinge", "squared_hinge"})],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "hinge",
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        calibration: Any = "holdout",
        threshold: Any = "zero",
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
        y : one label a row, a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C; rows of weight 0 only say which classes there are.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            return self._fit(X, y, sample_weight, self.loss)


class OneVsRestLogistic(OneVsRest):
    """Logistic regression, one for each class, on class-blocked dual coordinate descent.

    Parameters
    ----------
    C : float
        Cost of a unit of loss: the larger, the closer the fit to the training data.
    structure : Hierarchy, optional
        Label structure whose nodes the labels name. `predict_node_proba`, `predict_path` and `predict_backoff`
        then return nodes; the weights do not depend on the structure.
    tol : float
        Relative duality gap at which training stops; it is certified, so that the objective is at most this
        share above its optimum.
    max_iter : int
        Most sweeps over the data; a `ConvergenceWarning` tells when they were not enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias; the larger, the less the bias is regularised.
    class_weight : dict, "balanced" or None
        Factors on the cost of the positive documents of each class (of two classes: of the documents of each),
        by its name; "balanced" is n_samples / (n_classes * n_samples of the class).
    calibration : "holdout", int or None
        How scores become probabilities: the scale is learned on a fifth of the rows with a coarse model of the
        others, on that many folds in turn (slower, finer), or is 1.
    threshold : {"zero", "global", "rcut", "scut", "instance"} or Threshold
        Where to cut the scores of a row that may carry several labels (`arbora.classify.thresholds`). All but
        "zero" are learned on the rows that are held out for the calibration, by models as fine as the final one;
        with `calibration=None`, as if it were "holdout". Models of one label a row ignore it.
    dtype : "float32" or "float64"
        Precision of training and weights; float32 halves time and memory and suffices for `tol` down to 1e-5.
    n_jobs : int, optional
        Threads; the result does not depend on it.
    random_state : int, RandomState instance or None
        Order in which rows are visited.
    checkpoint : path, optional
        Folder where finished blocks of classes are kept: a fit that was interrupted goes on from there, and the
        folder is cleared at the end.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        One row only when there are two classes, as everywhere in scikit-learn.
    intercept_ : ndarray of shape (n_classes,)
    nodes_ : ndarray
        Names of the columns of `predict_node_proba`.
    hierarchy_ : Hierarchy
        The structure, or one root for each class.
    class_nodes_ : ndarray of int
        Node of each class.
    duality_gap_ : float
        Certified relative duality gap over all classes.
    trace_ : Trace
        Objective, relative gap (estimates, the last one exact) and seconds of work by sweep.
    calibration_ : ndarray of shape (2,)
        Scale and shift that make probabilities of scores.
    threshold_ : Threshold or None
        What `predict` cuts the scores of several labels with; None for one label a row.
    n_iter_ : int
        Most sweeps that a block of classes took.
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

    def __init__(
        self,
        C: float = 1.0,
        *,
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        calibration: Any = "holdout",
        threshold: Any = "zero",
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
        y : one label a row, a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C; rows of weight 0 only say which classes there are.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            return self._fit(X, y, sample_weight, "logistic")
