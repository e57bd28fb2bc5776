"""Flat baselines: one linear classifier for each class, trained in blocks of classes.

For class b, with y_ib = +1 for its documents and -1 for all others,

    min_w  1/2 ||w||^2 + C sum_i loss(y_ib w.x_i),

with the hinge or squared hinge (`OneVsRestSVC`) or the logistic loss (`OneVsRestLogistic`). This is the objective of
LIBLINEAR; the bias is the weight of a constant feature and is regularised. A label structure is optional: it does not
change the weights, but predictions are then available at every node.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from arbora.arrays import Matrix
from arbora.classify.cost_choice import choose_cost
from arbora.classify.decisions import learn_decisions
from arbora.classify.estimator import (
    AUTO_COST_CONSTRAINT,
    LEVELS_CONSTRAINT,
    LINEAR_CONSTRAINTS,
    LinearPredictor,
)
from arbora.classify.linear import score_one_vs_rest, train_one_vs_rest
from arbora.classify.training import Training, check_training, drop_weightless_rows, positive_weights
from arbora.core.checkpoint import open_checkpoint
from arbora.core.estimator import all_or_nothing
from arbora.core.monitor import Progress
from arbora.core.running import running_checkpoint
from arbora.engine import ThreadEngine
from arbora.infer.linear.rows import class_blocks
from arbora.structure import Hierarchy


class OneVsRestClassifier(LinearPredictor, ClassifierMixin, BaseEstimator):
    """The fit of the two flat classifiers, which differ in their loss."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "C": AUTO_COST_CONSTRAINT,
        "calibration": LEVELS_CONSTRAINT,
    }

    C: Any
    class_weight: Any
    threshold: Any
    verbose: int

    @property
    def _loss(self) -> str:
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
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

        Notes
        -----
        Three kinds of models are trained, each with a linear classifier for every class: small ones to choose the
        cost (``C="auto"``), on a sample of rows and classes; the model, on all rows; and one without the held-out
        rows (one for each fold), for calibration and threshold, whose weights are not kept.
        """
        with all_or_nothing(self):
            engine = ThreadEngine(self.n_jobs)
            resumable = running_checkpoint() is not None
            rows, targets = check_training(self, X, y, sample_weight, loss=self._loss, resumable=resumable)
            rows = drop_weightless_rows(rows)
            rows = rows._replace(positive_weight=positive_weights(self.class_weight, rows, targets))
            C = choose_cost(rows, engine) if self.C == "auto" else float(self.C)
            problem = share_classifier(rows.with_cost(C))
            data = problem.X, problem.positives, problem.row_cost
            checkpoint = open_checkpoint(self, *data, seed=problem.options.seed)
            n_blocks = len(class_blocks(problem.positives.shape[1]))
            with Progress(n_blocks, "blocks of classes", self.verbose) as progress:
                trained = train_one_vs_rest(problem, engine, checkpoint, progress)

            def score(part: Training, X: sp.csr_array, key: str) -> Matrix:
                """Scores of other rows by a model of `part`, which starts from that of all rows."""
                return score_one_vs_rest(part, X, engine, checkpoint, key, trained.solutions)

            decisions = learn_decisions(
                problem,
                score,
                calibration=self.calibration,
                threshold=self.threshold,
                targets=targets,
                weight=rows.row_cost,
            )
            self.C_ = C
            self._remember(targets, trained.model, trained.trace, trained.gap, decisions)
            trained.warn_if_open(problem.options)
            if checkpoint is not None:
                checkpoint.clear()
        return self


def share_classifier(training: Training) -> Training:
    """Let two exclusive classes share one classifier: the first is the second with its sign changed.

    The weight of each class then applies to its own rows, the negatives included.
    """
    if training.multilabel or training.positives.shape[1] != 2:
        return training
    by_row = training.positives @ training.positive_weight
    shared = training._replace(row_cost=training.row_cost * by_row, positive_weight=np.ones(2))
    return shared.with_columns(slice(1, None))


class OneVsRestSVC(OneVsRestClassifier):
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
        its optimum. Below 1e-6, training and weights are in double precision, else in single precision.
    max_iter : int
        Maximum number of sweeps over the data. A `ConvergenceWarning` is issued if they are not enough.
    fit_intercept : bool
        Whether to learn a bias.
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
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
        Order in which rows are visited.
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
        **OneVsRestClassifier._parameter_constraints,
        "loss": [StrOptions({"hinge", "squared_hinge"})],
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
        class_weight: Any = None,
        calibration: Any = "holdout",
        threshold: Any = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.calibration = calibration
        self.threshold = threshold
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _loss(self) -> str:
        return self.loss


class OneVsRestLogistic(OneVsRestClassifier):
    """Logistic regression, one for each class, on class-blocked dual coordinate descent.

    Parameters
    ----------
    C : float or "auto"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" starts from 30 over the
        mean squared norm of the rows (10 if rows may have several labels) and chooses among seven costs by the
        likelihood of held-out labels, on a sample of rows and classes; the choice is in `C_`.
    structure, tol, max_iter, fit_intercept, class_weight, calibration, threshold, n_jobs, random_state, verbose
        As in `OneVsRestSVC`.

    Attributes
    ----------
    classes_, coef_, intercept_, C_, nodes_, hierarchy_, class_nodes_, calibration_, threshold_, n_features_in_
        As in `OneVsRestSVC`.
    duality_gap_, trace_, n_iter_
        As in `OneVsRestSVC`.

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
        C: Any = "auto",
        *,
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        class_weight: Any = None,
        calibration: Any = "holdout",
        threshold: Any = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.calibration = calibration
        self.threshold = threshold
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _loss(self) -> str:
        return "logistic"
