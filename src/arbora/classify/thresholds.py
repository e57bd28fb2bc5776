"""Thresholds: choose the label set of each row from the scores of its classes.

Given scores s_ic of row i and class c, and, for learning, labels y_ic in {0, 1} of rows that the scoring model was
not trained on:

    ZeroThreshold   s_ic > 0, the decision rule of one-vs-rest losses; nothing is learned
    GlobalCut       s_ic > t, with one t for all classes that maximises micro-F1
    RCut            the r best classes of every row; r is given or maximises micro-F1
    SCut            s_ic > t_c, where each t_c maximises the F1 of its class
    InstanceCut     the k_i best classes of row i, k_i = round(b + sum_j w_j s_i(j)) with s_i(1) >= s_i(2) >= ...

RCut and SCut, and the fallback `fbr` for small classes whose thresholds overfit, are from Y. Yang, A study of
thresholding strategies for text categorization (SIGIR 2001). S. Gopal and Y. Yang, Multilabel classification with
meta-level features (SIGIR 2010), use an instance-based cut-off. A. Elisseeff and J. Weston, A kernel method for
multi-labelled classification (NIPS 2001), regress the threshold of a row on its scores; L. Tang, S. Rajan and V. K.
Narayanan, MetaLabeler (WWW 2009), predict its number of labels. InstanceCut regresses the number of labels on the
ranked scores.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.linear import by_chunks
from arbora.core.validation import check_structure

# --- Exact searches for the best place to cut ranked scores, used by the thresholds -------------------------
#
# Equal scores are ranked by column, and of equally good cuts the one with fewer labels is chosen, so that results do
# not depend on the machine.


def top_columns(scores: Matrix, k: int) -> Ints:
    """Columns of the k (or all, if there are fewer) highest scores of each row, best first.

    Equal scores are ranked by column.
    """
    n_samples, n_classes = scores.shape
    if k >= n_classes:
        return np.argsort(-scores, axis=1, kind="stable")
    if k == 0:
        return np.empty((n_samples, 0), np.int64)
    last = np.partition(scores, n_classes - k, axis=1)[:, n_classes - k, None]
    above, level = scores > last, scores == last
    room = k - np.count_nonzero(above, axis=1)
    crowded = np.count_nonzero(level, axis=1) > room
    level[crowded] &= np.cumsum(level[crowded], axis=1) <= room[crowded, None]
    columns = np.nonzero(above | level)[1].reshape(n_samples, k)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def label_ranks(scores: Matrix, Y: sp.csr_array) -> Ints:
    """Rank of every label in Y among the scores of its row, counted from 0."""
    rows, columns = Y.nonzero()

    def ranks(labels: Ints) -> Ints:
        row_scores, column = scores[rows[labels]], columns[labels, None]
        value = np.take_along_axis(row_scores, column, axis=1)
        before = np.arange(scores.shape[1]) < column
        return np.asarray(np.count_nonzero((row_scores > value) | ((row_scores == value) & before), axis=1))

    parts = by_chunks(np.arange(len(rows)), scores.shape[1], ranks)
    return np.concatenate([np.empty(0, np.int64), *parts])


def best_cuts(scores: Matrix, rows: Matrix, columns: Matrix) -> tuple[Array, Array]:
    """Find the thresholds that maximise the F1 of each column, and that F1; the highest of equally good ones.

    `rows` and `columns` are the positions of the labels. A threshold is half-way between two scores. It is -inf if it
    is best to choose every row; for a column without labels it is inf, and the F1 is 0.
    """
    n_samples, n_classes = scores.shape
    by_class = np.sort(np.ascontiguousarray(scores.T), axis=1)
    value = scores[rows, columns]
    order = np.lexsort((-value, columns))
    column, value = columns[order], value[order]
    n_labels = np.bincount(column, minlength=n_classes)
    first = np.cumsum(n_labels) - n_labels
    # The best cut is just below the score of a label. Of labels with equal scores, the last counts all hits.
    hits = np.arange(1, len(value) + 1) - first[column]
    start = _first_at_least(by_class, column, value)
    f1 = 2 * hits / (n_samples - start + n_labels[column])
    labelled = np.flatnonzero(n_labels)
    # A stable sort: of equal F1 the highest score comes first
    best = np.lexsort((-f1, column))[first[labelled]]
    below = np.where(start[best] > 0, by_class[labelled, start[best] - 1], -np.inf)
    thresholds, best_f1 = np.full(n_classes, np.inf), np.zeros(n_classes)
    thresholds[labelled], best_f1[labelled] = _between(below, value[best]), f1[best]
    return thresholds, best_f1


def _first_at_least(ordered: Matrix, line: Matrix, value: Matrix) -> Ints:
    """Position of the first number that is at least the value in a line sorted in ascending order.

    One such number must exist.
    """
    low = np.zeros(len(value), np.int64)
    high = np.full(len(value), ordered.shape[1] - 1)
    for _ in range(ordered.shape[1].bit_length()):
        middle = (low + high) // 2
        below = ordered[line, middle] < value
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    return low


def _between(lower: Matrix, upper: Matrix) -> Array:
    """Thresholds in [lower, upper): the middle, or `lower` if the middle is not finite or rounds to `upper`."""
    lower, upper = lower.astype(np.float64), upper.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        middle = lower + (upper - lower) / 2
        return np.asarray(np.where((lower <= middle) & (middle < upper), middle, lower))


def ridge(features: Matrix, target: Matrix, alpha: float) -> tuple[Matrix, float]:
    """Fit a ridge regression on standardised features; return weights of the original features and the intercept."""
    centre, std = features.mean(axis=0), features.std(axis=0)
    std[std <= 1e-12 * np.abs(features).max(axis=0, initial=0.0)] = 1.0  # constant features
    Z = (features - centre) / std
    penalised = Z.T @ Z + alpha * np.eye(Z.shape[1])
    weights = np.linalg.solve(penalised, Z.T @ (target - target.mean())) / std
    return weights, float(target.mean() - weights @ centre)


# --- Thresholds: choose the label set of each row from the scores of its classes ----------------------------


def _as_sets(columns: Ints, counts: Ints, n_classes: int) -> sp.csr_array:
    """Return a CSR matrix that marks the first `counts[i]` of the given columns of each row i."""
    indices = columns[np.arange(columns.shape[1]) < counts[:, None]]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    chosen = sp.csr_array((np.ones(indices.size, bool), indices, indptr), shape=(len(counts), n_classes))
    chosen.sort_indices()
    return chosen


def _check_scores(values: Any) -> Matrix:
    scores: Matrix = np.asarray(values)
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    if scores.ndim != 2 or not scores.shape[1]:
        raise ValueError(
            f"scores must have shape (n_samples, n_classes) with at least one class, got {scores.shape}."
        )
    if np.isnan(scores).any():
        row, column = np.argwhere(np.isnan(scores))[0]
        raise ValueError(f"the score of row {row}, class {column} is NaN: scores must be numbers.")
    return scores


def _check_labels(labels: Any, shape: tuple[int, ...]) -> sp.csr_array:
    check_structure(labels, "Y")
    Y: sp.csr_array = sp.csr_array(labels, copy=True)
    Y.sum_duplicates()
    if Y.shape != shape:
        raise ValueError(f"Y has shape {Y.shape}, but the scores have shape {shape}: they must be equal.")
    if not np.isin(Y.data, (0, 1)).all():
        raise ValueError("Y must be an indicator matrix of zeros and ones.")
    Y.eliminate_zeros()
    return Y.astype(bool)


class Threshold(BaseEstimator):
    """Base class of the thresholds.

    Call `fit(scores, Y)` with rows that the scoring model was not trained on, then `predict(scores)`. To write your
    own threshold, derive from this class and define `_learn(scores, Y, with_data)` and `_choose(scores)`.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    @property
    def learns(self) -> bool:
        """Whether `fit` must be called before `predict`."""
        return True

    def fit(self, scores: Any, Y: Any, with_data: Any = None) -> Self:
        """Learn the threshold.

        Parameters
        ----------
        scores : array-like of shape (n_samples, n_classes)
            A higher score means a likelier class. The scores should come from a model that was not trained on these
            rows: scores of training rows are biased, and so is a threshold learned from them.
        Y : array-like or sparse matrix of shape (n_samples, n_classes)
            1 where the row has the label.
        with_data : array-like of bool of shape (n_classes,), optional
            Classes that the model was trained on, which may be missing in these rows. By default the classes
            with a label in Y. Used by `SCut` only.

        Returns
        -------
        self
        """
        self._validate_params()
        scores = _check_scores(scores)
        if not len(scores):
            raise ValueError("scores has no rows: a threshold is learned from at least one row.")
        Y = _check_labels(Y, scores.shape)
        if with_data is None:
            with_data = np.bincount(Y.indices, minlength=scores.shape[1]) > 0
        with_data = np.asarray(with_data, bool)
        if with_data.shape != scores.shape[1:]:
            raise ValueError(f"with_data has shape {with_data.shape}: it needs one value per class.")
        self.n_classes_ = scores.shape[1]
        self._learn(scores, Y, with_data)
        return self

    def predict(self, scores: Any) -> sp.csr_array:
        """Choose the labels of each row.

        Parameters
        ----------
        scores : array-like of shape (n_samples, n_classes)

        Returns
        -------
        sparse CSR matrix of bool of shape (n_samples, n_classes)
        """
        if self.learns:
            check_is_fitted(self)
        scores = _check_scores(scores)
        expected = getattr(self, "n_classes_", scores.shape[1])
        if scores.shape[1] != expected:
            raise ValueError(
                f"scores has {scores.shape[1]} columns, but the threshold was fitted on {expected} classes."
            )
        chosen = by_chunks(scores, scores.shape[1], self._choose)
        return sp.vstack(chosen, format="csr") if chosen else sp.csr_array(scores.shape, dtype=bool)

    def _learn(self, scores: Matrix, Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        raise NotImplementedError

    def _choose(self, scores: Matrix) -> sp.csr_array:
        raise NotImplementedError


class ZeroThreshold(Threshold):
    """Choose the labels with a positive score.

    Examples
    --------
    >>> from arbora.classify.thresholds import ZeroThreshold
    >>> ZeroThreshold().predict([[0.5, -1.0], [-2.0, -1.0]]).toarray()
    array([[ True, False],
           [False, False]])
    """

    @property
    def learns(self) -> bool:
        """False: there is nothing to learn."""
        return False

    def _learn(self, scores: Matrix, Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        pass

    def _choose(self, scores: Matrix) -> sp.csr_array:
        return sp.csr_array(scores > 0)


class GlobalCut(Threshold):
    """Choose the labels with a score above one threshold for all classes, which maximises micro-F1.

    Attributes
    ----------
    threshold_ : float

    Examples
    --------
    >>> from arbora.classify.thresholds import GlobalCut
    >>> cut = GlobalCut().fit([[3.0, 1.0], [0.0, -2.0]], [[1, 1], [0, 0]])
    >>> cut.threshold_
    0.5
    """

    def _learn(self, scores: Matrix, Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        rows, columns = Y.nonzero()
        position = rows.astype(np.int64) * scores.shape[1] + columns
        # Pool the scores of all classes into one column.
        thresholds, _ = best_cuts(scores.reshape(-1, 1), position, np.zeros_like(position))
        self.threshold_ = float(thresholds[0])

    def _choose(self, scores: Matrix) -> sp.csr_array:
        # A Python float would be rounded to the dtype of the scores and could then equal one of them.
        return sp.csr_array(scores > np.float64(self.threshold_))


class RCut(Threshold):
    """Choose the r best classes of every row.

    Parameters
    ----------
    r : int or None
        Number of classes. None learns the number that maximises micro-F1, the smallest if several do.

    Attributes
    ----------
    r_ : int
        Number of classes after `fit`.

    Examples
    --------
    >>> from arbora.classify.thresholds import RCut
    >>> RCut(1).predict([[0.5, -1.0], [-2.0, -1.0]]).toarray()
    array([[ True, False],
           [False,  True]])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "r": [Interval(Integral, 1, None, closed="left"), None]
    }

    def __init__(self, r: int | None = None) -> None:
        self.r = r

    @property
    def learns(self) -> bool:
        """Whether r is learned."""
        return self.r is None

    def _learn(self, scores: Matrix, Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        if self.r is not None:
            self.r_ = int(self.r)
            return
        n_samples, n_classes = scores.shape
        ranks = label_ranks(scores, Y)
        hits = np.cumsum(np.bincount(ranks, minlength=n_classes))
        f1 = 2 * hits / (n_samples * np.arange(1, n_classes + 1) + ranks.size)
        self.r_ = int(f1.argmax()) + 1

    def _choose(self, scores: Matrix) -> sp.csr_array:
        columns = top_columns(scores, int(self.r_ if self.r is None else self.r))
        return _as_sets(columns, np.full(len(scores), columns.shape[1]), scores.shape[1])


class SCut(Threshold):
    """Choose the labels with a score above the threshold of their class, which maximises the F1 of the class.

    The threshold of a class with few labels overfits: if one of 10,000 rows has the label and ranks last, the best F1
    is reached by choosing every row. A class whose best F1 is below `fbr` uses the fallback instead.

    Parameters
    ----------
    fbr : float in [0, 1]
        F1 below which a class uses the fallback.
    fallback : "highest" or "never"
        Threshold of such a class: its highest score on any row (Yang's fbr.1), so that only rows with a higher score
        get the label; or infinity (fbr.0), so that no row does.

    Attributes
    ----------
    thresholds_ : ndarray of shape (n_classes,)
        -inf if every row is chosen, inf if none is. A class without labels in Y is never chosen; if `with_data`
        marks it, it uses the fallback.

    Examples
    --------
    >>> from arbora.classify.thresholds import SCut
    >>> scores = [[3.0, 0.0], [2.0, 9.0], [1.0, 8.0], [0.0, 7.0]]
    >>> cut = SCut().fit(scores, [[1, 1], [0, 0], [1, 0], [0, 0]])
    >>> cut.thresholds_
    array([ 0.5, -inf])
    >>> SCut(fbr=0.5).fit(scores, [[1, 1], [0, 0], [1, 0], [0, 0]]).thresholds_
    array([0.5, 9. ])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "fbr": [Interval(Real, 0, 1, closed="both")],
        "fallback": [StrOptions({"highest", "never"})],
    }

    def __init__(self, fbr: float = 0.2, fallback: str = "highest") -> None:
        self.fbr = fbr
        self.fallback = fallback

    def _learn(self, scores: Matrix, Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        thresholds, f1 = best_cuts(scores, *Y.nonzero())
        weak = (f1 < self.fbr) | (f1 == 0)
        thresholds[weak] = scores.max(axis=0)[weak] if self.fallback == "highest" else np.inf
        thresholds[~with_data] = np.inf
        self.thresholds_ = thresholds

    def _choose(self, scores: Matrix) -> sp.csr_array:
        return sp.csr_array(scores > self.thresholds_)


class InstanceCut(Threshold):
    """Choose the k best classes of a row, where a ridge regression on its highest scores predicts k.

    Parameters
    ----------
    n_scores : int
        Number of highest scores, in descending order, that are the features of the regression.
    alpha : float
        Strength of the ridge penalty on the weights of the standardised scores.

    Attributes
    ----------
    coef_ : ndarray of shape (min(n_scores, n_classes),)
        Weights of the highest score, the second highest, and so on.
    intercept_ : float

    Examples
    --------
    >>> from arbora.classify.thresholds import InstanceCut
    >>> scores = [[2.0, -2.0], [2.0, 1.9], [-2.0, 2.1], [2.1, 2.0]]
    >>> cut = InstanceCut(alpha=0.01).fit(scores, [[1, 0], [1, 1], [0, 1], [1, 1]])
    >>> cut.predict([[2.0, -1.8], [1.8, 2.0]]).toarray()
    array([[ True, False],
           [ True,  True]])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_scores": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, n_scores: int = 10, alpha: float = 1.0) -> None:
        self.n_scores = n_scores
        self.alpha = alpha

    def _learn(self, scores: Matrix, Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        features = by_chunks(scores, scores.shape[1], lambda rows: self._features(rows)[1])
        n_labels = np.asarray(Y.sum(axis=1), np.float64).ravel()
        self.coef_, self.intercept_ = ridge(np.vstack(features), n_labels, self.alpha)

    def _features(self, scores: Matrix) -> tuple[Ints, Array]:
        columns = top_columns(scores, self.n_scores)
        features = np.take_along_axis(scores, columns, axis=1).astype(np.float64)
        if not np.isfinite(features).all():
            raise ValueError("a score is infinite: InstanceCut needs finite scores. Use RCut or SCut.")
        return columns, features

    def _choose(self, scores: Matrix) -> sp.csr_array:
        columns, features = self._features(scores)
        features = features[:, : len(self.coef_)]  # partial_fit may have added classes
        # einsum, because the rounding of a matrix product may depend on the number of rows.
        counts = np.rint(np.einsum("ij,j->i", features, self.coef_) + self.intercept_)
        counts = counts.clip(0, scores.shape[1]).astype(np.int64)
        if (max_count := counts.max(initial=0)) > columns.shape[1]:
            columns = top_columns(scores, int(max_count))
        return _as_sets(columns, counts, scores.shape[1])


_BY_NAME: dict[str, type[Threshold]] = {
    "auto": GlobalCut,  # where nothing else is known; `decisions.best_threshold` chooses
    "zero": ZeroThreshold,
    "global": GlobalCut,
    "rcut": RCut,
    "scut": SCut,
    "instance": InstanceCut,
}

# Valid values of the parameter `threshold` of estimators.
THRESHOLD_CONSTRAINT = [StrOptions(set(_BY_NAME)), Threshold]


def make_threshold(threshold: str | Threshold) -> Threshold:
    """Make a new threshold, not fitted, from a name or from another threshold.

    "auto" is "global" here; classifiers choose between "global" and "rcut" on held-out rows.
    """
    if isinstance(threshold, Threshold):
        result: Threshold = clone(threshold)
    elif isinstance(threshold, str) and threshold in _BY_NAME:
        result = _BY_NAME[threshold]()
    else:
        names = ", ".join(map(repr, _BY_NAME))
        raise ValueError(f"threshold must be one of {names} or a Threshold object, got {threshold!r}.")
    result._validate_params()
    return result
