"""Semi-supervised linear support vector machine (S3VM): labelled rows and a pool of rows without labels.

The model alternates between the labels of the pool and the weights of the classes of

    min_W  sum_k 1/2 ||w_k||^2 + C sum_{i labelled} loss(y_ik w_k.x_i) + p C sum_{j in the pool} loss(y_jk w_k.x_j),

one-vs-rest, with y_jk = 1 for the class that the pool row j is given and -1 for the others. It starts from the
labelled rows alone. Then the pool weight p takes the values 0.01, 0.1 and 0.5; before each of them, the classes of
the pool rows are those with the largest scores (under given class shares, those with the largest sum of scores), and
the weights are trained anew. It stops there: in more rounds, mistakes in the pool confirm themselves.

References
----------
T. Joachims (1999). Transductive inference for text classification using support vector machines. ICML.
V. Sindhwani and S. Keerthi (2006). Large scale semi-supervised linear SVMs. SIGIR.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from arbora.arrays import Array, Ints
from arbora.classify.decisions import learn_decisions
from arbora.classify.estimator import LINEAR_CONSTRAINTS, LinearPredictor, NodePredictor
from arbora.classify.flat import Trained, train_one_vs_rest
from arbora.classify.linear import as_csr, keep_solution, linear_scores
from arbora.classify.training import Training, check_training
from arbora.core.engine import Engine
from arbora.core.estimator import all_or_nothing
from arbora.core.labels import UNLABELLED
from arbora.core.monitor import Progress
from arbora.core.validation import check_features, check_squares
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy


class Problem(NamedTuple):
    """Labelled rows; rows without labels and their costs; weights of labelled rows; which rows have no label."""

    labelled: Training
    pool: sp.csr_array
    cost: Array
    weight: Array
    missing: NDArray[np.bool_]


_MOST_PASSES = 100  # over the classes, in `match_shares`


def unlabelled_rows(y: Any) -> NDArray[np.bool_]:
    """Mark the rows whose label is -1, None or NaN.

    Examples
    --------
    >>> unlabelled_rows(["a", None, "b"]), unlabelled_rows([1, -1, 2])
    (array([False,  True, False]), array([False,  True, False]))
    """
    labels = np.asarray(y, dtype=object)
    if labels.ndim != 1:
        return np.zeros(len(labels), bool)
    missing = [
        label is None
        or (isinstance(label, int | float | np.number) and (label != label or label == UNLABELLED))
        for label in labels.tolist()
    ]
    return np.array(missing, bool)


def shares_to_counts(shares: Array, n: int) -> Ints:
    """Round shares of n rows to whole numbers with the sum n, by largest remainders.

    Examples
    --------
    >>> shares_to_counts(np.array([0.5, 0.25, 0.25]), 5)
    array([3, 1, 1])
    """
    exact = shares / shares.sum() * n
    counts: Ints = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    counts[order[: n - counts.sum()]] += 1
    return counts


def match_shares(scores: Array, shares: Array) -> Ints:
    """Give every row a class, so that the classes have given shares and the sum of the scores is large.

    Every class has an offset (its dual variable in the assignment problem), and rows take the class with the largest
    score plus offset. The offsets are set one class after the other, each so that its class has its number of rows.
    If rows remain that cannot be divided so (ties), the classes that are too large give their least certain rows to
    those that are too small.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    shares : ndarray of shape (n_classes,)

    Returns
    -------
    ndarray of shape (n_samples,)

    Examples
    --------
    >>> match_shares(np.array([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]]), np.array([0.5, 0.5]))
    array([0, 0, 1, 1])
    """
    n, n_classes = scores.shape
    wanted = shares_to_counts(shares, n)
    moved = scores.astype(np.float64)
    for _ in range(_MOST_PASSES):
        labels: Ints = moved.argmax(axis=1)
        if np.array_equal(np.bincount(labels, minlength=n_classes), wanted):
            return labels
        for k in range(n_classes):
            lead = moved[:, k] - np.delete(moved, k, axis=1).max(axis=1)
            ranked = np.sort(lead)[::-1]
            first, last = ranked[max(wanted[k] - 1, 0)], ranked[min(wanted[k], n - 1)]
            cut = first - 1.0 if wanted[k] == n else last + 1.0 if wanted[k] == 0 else (first + last) / 2
            moved[:, k] -= cut
    return _repaired(moved, wanted)


def _repaired(moved: Array, wanted: Ints) -> Ints:
    """Move the least certain rows of classes that are too large to the best class that is too small."""
    labels: Ints = moved.argmax(axis=1)
    counts = np.bincount(labels, minlength=len(wanted))
    for k in np.flatnonzero(counts > wanted).tolist():
        own = np.flatnonzero(labels == k)
        certain = moved[own, k] - np.delete(moved[own], k, axis=1).max(axis=1)
        for row in own[np.argsort(certain, kind="stable")][: counts[k] - wanted[k]].tolist():
            room = np.flatnonzero(counts < wanted)
            labels[row] = room[moved[row, room].argmax()]
            counts[labels[row]] += 1
    return labels


class SemiSupervisedSVC(LinearPredictor, NodePredictor, ClassifierMixin, BaseEstimator):
    """Linear support vector machines that also learn from rows without labels (S3VM).

    Parameters
    ----------
    C : float
        Cost of a unit of loss of a labelled row.
    loss : {"hinge", "squared_hinge"}
    pool_weights : tuple of float
        Costs of the rows without labels, relative to those of labelled rows, in the rounds of training.
    class_shares : array-like of shape (n_classes,), optional
        Shares of the classes among the rows without labels, in the order of the sorted labels. By default they are
        free.
    structure : Hierarchy, optional
        Label structure; the labels are names of its nodes. The weights do not depend on it.
    tol : float
        Relative duality gap at which each training stops.
    max_iter : int
        Maximum number of sweeps over the data. A `ConvergenceWarning` is issued if they are not enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias. A larger value regularises the bias less.
    calibration : "holdout", int or None
        How scores become probabilities; see `OneVsRestSVC`. Only labelled rows are held out. With few of them the
        probabilities are rough.
    dtype : "float32" or "float64"
        Precision of training and weights.
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
        Order in which rows are visited.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        The labels in y, sorted.
    coef_ : ndarray of shape (n_classes, n_features)
        A single row for two classes, as in scikit-learn.
    intercept_ : ndarray of shape (n_classes,)
    transduction_ : ndarray of shape (n_samples,)
        Labels of all training rows: those given, and those of the last round.
    pool_shares_ : ndarray of shape (n_classes,)
        Shares of the classes in the last round among the rows without labels; NaN without such rows.
    n_changed_ : ndarray of shape (n_rounds,)
        Number of rows without labels whose class changed before each round; all of them before the first.
    duality_gap_, trace_, n_iter_
        Of the last training; see `OneVsRestSVC`.
    nodes_, hierarchy_, class_nodes_, calibration_, n_features_in_
        As in `OneVsRestSVC`.

    Notes
    -----
    A row is without a label if y is -1, None or NaN there, so -1 cannot be a class. If every row has a label, the
    model is `OneVsRestSVC`.

    Examples
    --------
    >>> from arbora.classify import SemiSupervisedSVC
    >>> X = [[2.0, 0.1], [1.5, 0.5], [1.8, 0.3], [0.0, 2.0], [0.5, 1.5], [0.3, 1.9]]
    >>> model = SemiSupervisedSVC(random_state=0).fit(X, ["cat", None, None, "dog", None, None])
    >>> model.transduction_.tolist()
    ['cat', 'cat', 'cat', 'dog', 'dog', 'dog']
    >>> model.predict([[3.0, 0.0]])
    array(['cat'], dtype='<U3')
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        "pool_weights": [tuple, list, np.ndarray],
        "class_shares": ["array-like", None],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "hinge",
        pool_weights: Any = (0.01, 0.1, 0.5),
        class_shares: Any = None,
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        calibration: Any = "holdout",
        dtype: str = "float32",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.pool_weights = pool_weights
        self.class_shares = class_shares
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.calibration = calibration
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = False
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SemiSupervisedSVC:
        """Train on labelled rows, then on all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; -1, None or NaN for a row without a label.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C. Labelled rows of weight 0 only contribute their labels to `classes_`.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            problem = self._read(X, y, sample_weight)
            rounds, shares = self._check_rounds()
            with ThreadEngine(self.n_jobs) as engine:
                self._solve(problem, rounds, shares, engine)
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        """Check the input, and divide the rows."""
        name = type(self).__name__
        if y is None:
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None: give -1 where there is no label."
            )
        features = check_features(self, X, reset=True)
        check_consistent_length(features, y)
        missing = unlabelled_rows(y)
        if missing.all():
            raise ValueError(
                f"no row of y carries a label: {name} needs labels of at least two classes. To find groups without "
                "any labels use arbora.discover."
            )
        weight = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
        known, rest = np.flatnonzero(~missing), np.flatnonzero(missing)
        if len(rest):
            given = np.asarray(y)[known] if np.asarray(y).dtype.kind in "iu" else _take(y, known)
            training = check_training(self, features[known], given, weight[known], loss=self.loss, C=self.C)
            features = check_features(
                self, X, reset=True
            )  # the names of the columns, which arrays do not have
        else:
            training = check_training(self, X, y, weight, loss=self.loss, C=self.C)
        if self._multilabel:
            raise ValueError(
                f"{name} needs one class per row, but y holds label sets: give one label per row."
            )
        rows, cost = as_csr(features[rest]), self.C * weight[rest]
        check_squares(rows, training.options.dtype)
        return Problem(training, rows, cost, weight[known], missing)

    def _check_rounds(self) -> tuple[list[float], Array | None]:
        """Check the pool weights and the shares of the classes."""
        rounds = np.asarray(self.pool_weights, dtype=np.float64)
        if rounds.ndim != 1 or not len(rounds) or not np.isfinite(rounds).all() or rounds.min() <= 0:
            raise ValueError(
                f"pool_weights={self.pool_weights!r}: give one positive number for each round of training."
            )
        if self.class_shares is None:
            return rounds.tolist(), None
        shares = np.asarray(self.class_shares, dtype=np.float64)
        n_classes = len(self.classes_)
        if (
            shares.shape != (n_classes,)
            or not np.isfinite(shares).all()
            or shares.min() < 0
            or not shares.any()
        ):
            raise ValueError(
                f"class_shares={self.class_shares!r}: give a share for each of the {n_classes} classes "
                f"({', '.join(map(str, self.classes_.tolist()[:5]))}, ...), none negative and not all zero."
            )
        return rounds.tolist(), shares

    def _solve(self, problem: Problem, rounds: list[float], shares: Array | None, engine: Engine) -> None:
        """Train in rounds and set the fitted attributes."""
        labelled = problem.labelled
        use = labelled.row_cost > 0
        if not use.all():  # rows of weight 0 only contribute their labels
            labelled = labelled.with_rows(np.flatnonzero(use))
        if len(self.classes_) == 2:  # the first class is the second with its sign changed
            labelled = labelled.with_columns(slice(1, None))
        rounds = rounds if len(problem.cost) else []
        codes, factor, changed = np.full(len(problem.cost), -1, np.int64), 0.0, []

        def train(rows: Training) -> Trained:  # with the current classes of the pool
            return train_one_vs_rest(_joined(rows, problem, codes, factor), engine)

        with Progress(len(rounds) + 1, "rounds", self.verbose) as progress:
            trained = train(labelled)
            progress.update()
            for factor in rounds:  # noqa: B007  (used by train)
                scores = np.asarray(linear_scores(problem.pool, trained.model, engine), np.float64)
                scores = np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores
                before, codes = (
                    codes,
                    scores.argmax(axis=1) if shares is None else match_shares(scores, shares),
                )
                changed.append(int(np.sum(before != codes)))
                trained = train(labelled)
                progress.update()
        keep_solution(self, trained.model, trained.solutions)
        self.calibration_, self.threshold_, _ = learn_decisions(
            labelled,
            lambda seen, X, key: linear_scores(X, train(seen).model, engine),
            calibration=self.calibration,
            threshold="zero",
            multilabel=False,
            weight=problem.weight[use],
        )
        self._keep_pool(problem, codes, changed)

    def _keep_pool(self, problem: Problem, codes: Ints, changed: list[int]) -> None:
        every = np.empty(len(problem.missing), np.int64)
        every[~problem.missing] = problem.labelled.positives.indices
        every[problem.missing] = codes
        self.transduction_ = self.classes_[every]
        self.n_changed_ = np.array(changed, np.int64)
        count = np.bincount(codes, minlength=len(self.classes_)) if len(codes) else np.nan
        self.pool_shares_ = np.full(len(self.classes_), count / max(len(codes), 1))


def _take(y: Any, rows: Ints) -> Any:
    """Return the labels of some rows, without the type that the missing ones forced on them."""
    values = np.asarray(y, dtype=object)[rows].tolist()
    if all(isinstance(value, Real) and float(value).is_integer() for value in values):
        return np.array(values).astype(np.int64)
    return values


def _joined(labelled: Training, problem: Problem, codes: Ints, factor: float) -> Training:
    """Append the rows of the pool, with their current classes and costs, to labelled rows."""
    if factor == 0.0 or not len(codes):
        return labelled
    n_columns = labelled.positives.shape[1]
    marks = sp.csr_array(codes[:, None] == np.arange(n_columns) + (n_columns == 1))
    return labelled._replace(
        X=sp.csr_array(sp.vstack([labelled.X, problem.pool], format="csr")),
        positives=sp.csr_array(sp.vstack([labelled.positives, marks], format="csr")),
        row_cost=np.concatenate([labelled.row_cost, factor * problem.cost]),
    )
