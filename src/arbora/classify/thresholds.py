"""From scores to label sets, where an item may carry any number of labels.

A classifier ranks the classes of an item by a score; a threshold says how far down the ranking its labels reach.
With scores s_ic of item i and class c, and labels y_ic in {0, 1} of items that the scores were not trained on:

    ZeroThreshold   s_ic > 0: the decision that the losses of one-vs-rest aim at, nothing learned
    GlobalCut       s_ic > t, one t for all classes that maximises micro-F1
    RCut            the r best classes of every item, r given or the one that maximises micro-F1
    SCut            s_ic > t_c, each t_c maximises the F1 of its class
    InstanceCut     the k_i best classes of item i, k_i = round(b + sum_j w_j s_i(j)) with s_i(1) >= s_i(2) >= ...

RCut and SCut, with the fall-back `fbr` against thresholds of tiny classes that fit noise, are those of Y. Yang, A
study of thresholding strategies for text categorization (SIGIR 2001). The instance-based cut-off was used by S. Gopal
and Y. Yang, Multilabel classification with meta-level features (SIGIR 2010). A. Elisseeff and J. Weston, A kernel
method for multi-labelled classification (NIPS 2001), regress the threshold of an item on its scores; L. Tang, S.
Rajan and V. K. Narayanan, MetaLabeler (WWW 2009), predict its number of labels. Here the number is regressed on the
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

from arbora.classify._common.cuts import best_cuts, label_ranks, ridge, top_columns
from arbora.classify._common.linear_model import by_chunks


def _as_sets(columns: NDArray[np.int64], counts: NDArray[np.int64], n_classes: int) -> sp.csr_array:
    """CSR matrix of the first columns of each row, as many as its count."""
    indices = columns[np.arange(columns.shape[1]) < counts[:, None]]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    found = sp.csr_array((np.ones(indices.size, bool), indices, indptr), shape=(len(counts), n_classes))
    found.sort_indices()
    return found


def _check_scores(scores: Any) -> NDArray[Any]:
    scores = np.asarray(scores)
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    if scores.ndim != 2 or not scores.shape[1]:
        raise ValueError(
            f"scores must have a row for each item and a column for each class, got the shape {scores.shape}."
        )
    if np.isnan(scores).any():
        row, column = np.argwhere(np.isnan(scores))[0]
        raise ValueError(
            f"the score of row {row}, class {column} is not a number (NaN): it cannot be ranked."
        )
    return scores


def _check_labels(Y: Any, shape: tuple[int, ...]) -> sp.csr_array:
    Y = sp.csr_array(Y, copy=True)
    Y.sum_duplicates()
    if Y.shape != shape:
        raise ValueError(f"Y has the shape {Y.shape}, the scores have {shape}: both need a column a class.")
    if not np.isin(Y.data, (0, 1)).all():
        raise ValueError("Y must be an indicator of labels: zeros and ones only.")
    Y.eliminate_zeros()
    return Y.astype(bool)


class Threshold(BaseEstimator):
    """Base of the thresholds: `fit(scores, Y)` on items that the scores were not trained on, then `predict(scores)`.

    A threshold of your own derives from this class and defines `_learn(scores, Y, with_data)` and `_choose(scores)`.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    @property
    def learns(self) -> bool:
        """Whether `fit` must come before `predict`."""
        return True

    def fit(self, scores: Any, Y: Any, with_data: Any = None) -> Self:
        """Learn where to cut.

        Parameters
        ----------
        scores : array-like of shape (n_samples, n_classes)
            Higher is likelier. They should come from a model that was not trained on these rows: scores of
            training rows are too good, and a threshold learned from them too strict or too lax for new ones.
        Y : array-like or sparse matrix of shape (n_samples, n_classes)
            1 where the row carries the label.
        with_data : array-like of bool of shape (n_classes,), optional
            Classes that the model was trained to know, whether or not one of these rows carries them. By default
            those with a label in Y. Only `SCut` asks.

        Returns
        -------
        self
        """
        self._validate_params()
        scores = _check_scores(scores)
        if not len(scores):
            raise ValueError("there are no scores to learn a threshold from: give at least one row.")
        Y = _check_labels(Y, scores.shape)
        if with_data is None:
            with_data = np.bincount(Y.indices, minlength=scores.shape[1]) > 0
        with_data = np.asarray(with_data, bool)
        if with_data.shape != scores.shape[1:]:
            raise ValueError(f"with_data has the shape {with_data.shape}: it needs one value a class.")
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
                f"the scores have {scores.shape[1]} columns, but the threshold was fitted on {expected} classes."
            )
        parts = by_chunks(scores, scores.shape[1], self._choose)
        return sp.vstack(parts, format="csr") if parts else sp.csr_array(scores.shape, dtype=bool)

    def _learn(self, scores: NDArray[Any], Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        raise NotImplementedError

    def _choose(self, scores: NDArray[Any]) -> sp.csr_array:
        raise NotImplementedError


class ZeroThreshold(Threshold):
    """Labels with a positive score.

    Examples
    --------
    >>> from arbora.classify.thresholds import ZeroThreshold
    >>> ZeroThreshold().predict([[0.5, -1.0], [-2.0, -1.0]]).toarray()
    array([[ True, False],
           [False, False]])
    """

    @property
    def learns(self) -> bool:
        """Nothing is learned."""
        return False

    def _learn(self, scores: NDArray[Any], Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        pass

    def _choose(self, scores: NDArray[Any]) -> sp.csr_array:
        return sp.csr_array(scores > 0)


class GlobalCut(Threshold):
    """Labels with a score above one threshold, the same for all classes and items: the one of the best micro-F1.

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

    def _learn(self, scores: NDArray[Any], Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        rows, columns = Y.nonzero()
        position = rows.astype(np.int64) * scores.shape[1] + columns
        thresholds, _ = best_cuts(
            scores.reshape(-1, 1), position, np.zeros_like(position)
        )  # one class of all
        self.threshold_ = float(thresholds[0])

    def _choose(self, scores: NDArray[Any]) -> sp.csr_array:
        # A Python float would be rounded to the precision of the scores, and could then equal one of them.
        return sp.csr_array(scores > np.float64(self.threshold_))


class RCut(Threshold):
    """The r best classes of every item.

    Parameters
    ----------
    r : int or None
        How many; None learns the number of the best micro-F1 (of equally good ones the smallest).

    Attributes
    ----------
    r_ : int
        The number in use, after a fit.

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
        """Whether r is to be learned."""
        return self.r is None

    def _learn(self, scores: NDArray[Any], Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        if self.r is not None:
            self.r_ = int(self.r)
            return
        n_samples, n_classes = scores.shape
        ranks = label_ranks(scores, Y)
        hits = np.cumsum(np.bincount(ranks, minlength=n_classes))
        f1 = 2 * hits / (n_samples * np.arange(1, n_classes + 1) + ranks.size)
        self.r_ = int(f1.argmax()) + 1

    def _choose(self, scores: NDArray[Any]) -> sp.csr_array:
        columns = top_columns(scores, int(self.r_ if self.r is None else self.r))
        return _as_sets(columns, np.full(len(scores), columns.shape[1]), scores.shape[1])


class SCut(Threshold):
    """Labels with a score above the threshold of their class, each the one of the best F1 of its class.

    The threshold of a class with a handful of labels fits noise: if one of 10,000 rows carries it and ranks last, the
    best F1 is that of choosing every row. Where the best F1 is below `fbr`, the fall-back decides instead.

    Parameters
    ----------
    fbr : float in [0, 1]
        F1 below which a class falls back.
    fallback : "highest" or "never"
        Threshold that such a class gets: the highest score that it had on any row (Yang's fbr.1), so that only items
        that beat all those rows get the label; or infinity (fbr.0), so that none does.

    Attributes
    ----------
    thresholds_ : ndarray of shape (n_classes,)
        -inf where every row is chosen, inf where none is. A class without labels in Y is never chosen, unless
        `with_data` of `fit` says that the model knows it: then it falls back.

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

    def _learn(self, scores: NDArray[Any], Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        thresholds, f1 = best_cuts(scores, *Y.nonzero())
        weak = (f1 < self.fbr) | (f1 == 0)
        thresholds[weak] = scores.max(axis=0)[weak] if self.fallback == "highest" else np.inf
        thresholds[~with_data] = np.inf
        self.thresholds_ = thresholds

    def _choose(self, scores: NDArray[Any]) -> sp.csr_array:
        return sp.csr_array(scores > self.thresholds_)


class InstanceCut(Threshold):
    """The k best classes of an item, k by a ridge regression of the number of labels on its highest scores.

    Parameters
    ----------
    n_scores : int
        How many of the highest scores, in order, the regression sees.
    alpha : float
        Strength of the ridge penalty on the weights of the standardised scores.

    Attributes
    ----------
    coef_ : ndarray of shape (min(n_scores, n_classes),)
        Weights of the highest score, the second, ...
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

    def _learn(self, scores: NDArray[Any], Y: sp.csr_array, with_data: NDArray[np.bool_]) -> None:
        parts = by_chunks(scores, scores.shape[1], lambda rows: self._features(rows)[1])
        n_labels = np.asarray(Y.sum(axis=1), np.float64).ravel()
        self.coef_, self.intercept_ = ridge(np.vstack(parts), n_labels, self.alpha)

    def _features(self, scores: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        columns = top_columns(scores, self.n_scores)
        features = np.take_along_axis(scores, columns, axis=1).astype(np.float64)
        if not np.isfinite(features).all():
            raise ValueError("a score is infinite: InstanceCut needs finite ones; use RCut or SCut.")
        return columns, features

    def _choose(self, scores: NDArray[Any]) -> sp.csr_array:
        columns, features = self._features(scores)
        # Not a product of matrices, whose rounding may depend on how many rows there are.
        features = features[:, : len(self.coef_)]  # a model that has grown has more classes now
        counts = np.rint(np.einsum("ij,j->i", features, self.coef_) + self.intercept_)
        counts = counts.clip(0, scores.shape[1]).astype(np.int64)
        if (most := counts.max(initial=0)) > columns.shape[1]:
            columns = top_columns(scores, int(most))
        return _as_sets(columns, counts, scores.shape[1])


_BY_NAME: dict[str, type[Threshold]] = {
    "zero": ZeroThreshold,
    "global": GlobalCut,
    "rcut": RCut,
    "scut": SCut,
    "instance": InstanceCut,
}

# What estimators accept as their parameter `threshold`.
THRESHOLD_CONSTRAINT = [StrOptions(set(_BY_NAME)), Threshold]


def make_threshold(threshold: str | Threshold) -> Threshold:
    """Make a new threshold of a name, or of one with the parameters you want.

    Parameters
    ----------
    threshold : {"zero", "global", "rcut", "scut", "instance"} or Threshold

    Returns
    -------
    Threshold
        Not fitted.

    Examples
    --------
    >>> from arbora.classify.thresholds import RCut, make_threshold
    >>> make_threshold("scut"), make_threshold(RCut(3))
    (SCut(), RCut(r=3))
    """
    if isinstance(threshold, Threshold):
        made: Threshold = clone(threshold)
    elif isinstance(threshold, str) and threshold in _BY_NAME:
        made = _BY_NAME[threshold]()
    else:
        names = ", ".join(map(repr, _BY_NAME))
        raise ValueError(f"threshold must be one of {names} or a Threshold object, got {threshold!r}.")
    made._validate_params()
    return made
