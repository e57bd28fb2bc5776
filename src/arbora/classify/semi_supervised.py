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

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.decisions import learn_decisions
from arbora.classify.estimator import LINEAR_CONSTRAINTS, LinearPredictor
from arbora.classify.linear import linear_scores, train_one_vs_rest
from arbora.classify.training import Targets, Training, as_csr, check_training, drop_weightless_rows
from arbora.core.estimator import all_or_nothing, require_y
from arbora.core.labels import UNLABELLED
from arbora.core.monitor import Progress
from arbora.core.validation import check_features, check_squares
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy


class Problem(NamedTuple):
    """Labelled rows, with the costs of C = 1; their labels; the other rows, their costs, and which rows they are."""

    labelled: Training
    targets: Targets
    pool: sp.csr_array
    cost: Array
    missing: NDArray[np.bool_]

    def all_codes(self, codes: Ints) -> Ints:
        """Classes of all rows, from those of the pool."""
        every = np.empty(len(self.missing), np.int64)
        every[~self.missing] = self.labelled.positives.indices
        every[self.missing] = codes
        return every


_MAX_PASSES = 100  # over the classes, in `match_shares`


def unlabelled_rows(y: Any) -> NDArray[np.bool_]:
    """Mark the rows whose label is -1, None or NaN."""
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

    >>> shares_to_counts(np.array([0.5, 0.25, 0.25]), 5)
    array([3, 1, 1])
    """
    exact = shares / shares.sum() * n
    counts: Ints = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    counts[order[: n - counts.sum()]] += 1
    return counts


def match_shares(scores: Array, shares: Array) -> Ints:
    """Assign a class to every row, so that the classes have the shares `shares` and the sum of the scores is large.

    Every class has an offset (its dual variable in the assignment problem), and rows take the class with the largest
    score plus offset. The offsets are set one class after the other, each so that its class has its number of rows.
    If rows remain that cannot be divided so (ties), the classes that are too large give their least certain rows to
    those that are too small.
    """
    n, n_classes = scores.shape
    sizes = shares_to_counts(shares, n)
    shifted = scores.astype(np.float64)
    for _ in range(_MAX_PASSES):
        labels: Ints = shifted.argmax(axis=1)
        if np.array_equal(np.bincount(labels, minlength=n_classes), sizes):
            return labels
        for k in range(n_classes):
            lead = shifted[:, k] - np.delete(shifted, k, axis=1).max(axis=1)
            ranked = np.sort(lead)[::-1]
            first, last = ranked[max(sizes[k] - 1, 0)], ranked[min(sizes[k], n - 1)]
            cut = first - 1.0 if sizes[k] == n else last + 1.0 if sizes[k] == 0 else (first + last) / 2
            shifted[:, k] -= cut
    return _repaired(shifted, sizes)


def _repaired(shifted: Array, sizes: Ints) -> Ints:
    """Move the least certain rows of classes that are too large to the best class that is too small."""
    labels: Ints = shifted.argmax(axis=1)
    counts = np.bincount(labels, minlength=len(sizes))
    for k in np.flatnonzero(counts > sizes).tolist():
        members = np.flatnonzero(labels == k)
        certain = shifted[members, k] - np.delete(shifted[members], k, axis=1).max(axis=1)
        for row in members[np.argsort(certain, kind="stable")][: counts[k] - sizes[k]].tolist():
            room = np.flatnonzero(counts < sizes)
            labels[row] = room[shifted[row, room].argmax()]
            counts[labels[row]] += 1
    return labels


class SemiSupervisedSVC(LinearPredictor, ClassifierMixin, BaseEstimator):
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
    calibration : "holdout", int or None
        How scores become probabilities; see `OneVsRestSVC`. Only labelled rows are held out. With few of them the
        probabilities are rough.
    tol, max_iter, fit_intercept, n_jobs, random_state, verbose
        As in `OneVsRestSVC`.

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

    _tags: ClassVar[Mapping[str, Any]] = {"classifier_tags.multi_label": False}
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
        calibration: Any = "holdout",
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
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

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

        Notes
        -----
        A model of the labelled rows is trained first, then one of all rows in each round (the last one is kept), and
        for the calibration one of all rows but the labelled ones that are held out (one for each fold).
        """
        with all_or_nothing(self):
            engine = ThreadEngine(self.n_jobs)
            problem = self._read(X, y, sample_weight)
            n_classes, labelled = len(problem.targets.classes), problem.labelled
            rounds, shares = self._check_rounds(problem.targets.classes)
            use = labelled.row_cost > 0  # rows of weight 0 only contribute their labels
            labelled = drop_weightless_rows(labelled).with_cost(self.C)
            if n_classes == 2:  # the first class is the second with its sign changed
                labelled = labelled.with_columns(slice(1, None))
            rounds = rounds if len(problem.cost) else []
            codes, factor, changed = np.full(len(problem.cost), -1, np.int64), 0.0, []
            with Progress(len(rounds) + 1, "rounds", self.verbose) as progress:
                trained = train_one_vs_rest(labelled, engine)
                progress.update()
                for factor in rounds:
                    before, scores = codes, _both_signs(linear_scores(problem.pool, trained.model, engine))
                    codes = scores.argmax(axis=1) if shares is None else match_shares(scores, shares)
                    changed.append(int(np.sum(before != codes)))
                    trained = train_one_vs_rest(_joined(labelled, problem, codes, factor), engine)
                    progress.update()

            def score(part: Training, X: sp.csr_array, key: str) -> Matrix:
                """Scores of labelled rows by a model of `part` and the pool, with its last classes."""
                model = train_one_vs_rest(_joined(part, problem, codes, factor), engine).model
                return linear_scores(X, model, engine)

            decisions = learn_decisions(
                labelled,
                score,
                calibration=self.calibration,
                threshold=None,
                targets=problem.targets,
                weight=problem.labelled.row_cost[use],
            )
            self._remember(problem.targets, trained.model, trained.trace, trained.gap, decisions)
            self.transduction_ = problem.targets.classes[problem.all_codes(codes)]
            self.n_changed_ = np.array(changed, np.int64)
            count = np.bincount(codes, minlength=n_classes) if len(codes) else np.nan
            self.pool_shares_ = np.full(n_classes, count / max(len(codes), 1))
            trained.warn_if_open(labelled.options)
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        """Check the input, and divide the rows."""
        self._validate_params()
        require_y(self, y, "give -1 where there is no label")
        name, features = type(self).__name__, check_features(self, X, reset=True)
        check_consistent_length(features, y)
        missing = unlabelled_rows(y)
        if missing.all():
            raise ValueError(
                f"no row of y carries a label: {name} needs labels of at least two classes. To find groups without "
                "any labels use arbora.discover."
            )
        weight = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
        labelled, rest = np.flatnonzero(~missing), np.flatnonzero(missing)
        if len(rest):
            labels = np.asarray(y)[labelled] if np.asarray(y).dtype.kind in "iu" else _take(y, labelled)
            training, targets = check_training(
                self, features[labelled], labels, weight[labelled], loss=self.loss
            )
            # Again, for the names of the columns, which arrays do not have.
            features = check_features(self, X, reset=True)
        else:
            training, targets = check_training(self, X, y, weight, loss=self.loss)
        if targets.multilabel:
            raise ValueError(
                f"{name} needs one class per row, but y holds label sets: give one label per row."
            )
        pool, cost = as_csr(features[rest]), self.C * weight[rest]
        check_squares(pool, training.options.dtype)
        return Problem(training, targets, pool, cost, missing)

    def _check_rounds(self, classes: Matrix) -> tuple[list[float], Array | None]:
        """Check the pool weights and the shares of the classes."""
        rounds = np.asarray(self.pool_weights, dtype=np.float64)
        if rounds.ndim != 1 or not len(rounds) or not np.isfinite(rounds).all() or rounds.min() <= 0:
            raise ValueError(
                f"pool_weights={self.pool_weights!r}: give one positive number for each round of training."
            )
        if self.class_shares is None:
            return rounds.tolist(), None
        shares = np.asarray(self.class_shares, dtype=np.float64)
        fits = shares.shape == (len(classes),) and bool(np.isfinite(shares).all())
        if not fits or shares.min() < 0 or not shares.any():
            raise ValueError(
                f"class_shares={self.class_shares!r}: give a share for each of the {len(classes)} classes "
                f"({', '.join(map(str, classes.tolist()[:5]))}, ...), none negative and not all zero."
            )
        return rounds.tolist(), shares


def _both_signs(scores: Matrix) -> Array:
    """Scores of two classes that share a classifier, or of more."""
    scores = np.asarray(scores, np.float64)
    return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores


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
