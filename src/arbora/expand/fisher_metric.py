"""The Fisher information metric of a classifier: distances count changes of p(c | x) and nothing else (Klami 2.3).

    J(x) = sum_c p(c | x) grad log p(c | x) grad log p(c | x)',                                        (2.9)
    KL(p(. | x), p(. | x + dx)) = 1/2 dx' J(x) dx + ...                                                (2.8)

The embedding f(x) = 2 sqrt(p(. | x)) has Jacobian D with D'D = J(x): its Euclidean distances are exact for near rows,
and it maps all rows to a sphere of radius 2. Distances of far rows in the embedding are chords of that sphere: two
regions of one class coincide. `pairwise_distances` measures along the straight line between two rows of the original
space instead, in `n_points` segments:

    chord    sum_t ||f(z_t) - f(z_{t-1})||,                    z_t on the line, t = 0 ... T;
    tangent  sum_t sqrt(d' J(m_t) d),    d = (y - x) / T,      m_t the middle of segment t.

Both tend to the length of the line in the metric. The tangent is the form of the thesis, which evaluates J at the
start of a segment; the middle is symmetric in x and y. A confident classifier has J near zero away from its
boundaries, and a tangent may step over one; the chord cannot, therefore it is the default.

For a classifier with linear scores s(x) and p = softmax(s), the line is a line of scores, and d' J d is the variance
of the slopes s(d) under p: no gradient by features is needed. Others use finite differences.

Erratum of the thesis: (2.8) lacks the factor 1/2.
"""

from __future__ import annotations

from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Matrix
from arbora.classify import MultinomialLogistic
from arbora.core import chunks
from arbora.core.chunks import require_memory, split, split_entries
from arbora.core.estimator import RowEstimator, all_or_nothing, require_y
from arbora.core.validation import check_features
from arbora.expand.groups import read_groups

_STEP = 1e-4  # of finite differences: share of a feature's deviation, or of a segment
_SHORT = 1e-2  # length of a line below which products of matrices lose digits
_RULES = ("chord", "tangent")
_AFFINE_STEPS = (StandardScaler, MaxAbsScaler)


def has_linear_scores(classifier: Any) -> bool:
    """Whether the probabilities are a softmax of scores that are affine in the features."""
    if isinstance(classifier, Pipeline):
        *before, (_, last) = classifier.steps
        return all(isinstance(step, _AFFINE_STEPS) for _, step in before) and has_linear_scores(last)
    if isinstance(classifier, LogisticRegression):
        return classifier.solver != "liblinear" or len(classifier.classes_) == 2
    return isinstance(classifier, MultinomialLogistic | LinearDiscriminantAnalysis)


def embed(proba: Matrix) -> Matrix:
    """Map probabilities to the sphere of radius 2: 2 sqrt(p)."""
    return np.asarray(2 * np.sqrt(np.maximum(proba, 0.0)))


def two_columns(scores: Matrix) -> Matrix:
    """Scores of all classes; the scores of two classes may come as one column of log-odds."""
    return np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores


def chord_length(points: list[Matrix]) -> Matrix:
    """Length of the polygon through embedded points, each of shape (..., n_classes)."""
    steps = [np.sqrt(np.sum((after - before) ** 2, axis=-1)) for before, after in pairwise(points)]
    return np.asarray(sum(steps))


def pair_chords(start: Matrix, end: Matrix, n_points: int) -> Matrix:
    """Chord lengths of the lines between linear scores, row by row."""
    shares = (t / n_points for t in range(n_points + 1))
    return chord_length([embed(softmax((1 - t) * start + t * end, axis=-1)) for t in shares])


def all_chords(start: Matrix, end: Matrix, n_points: int) -> Matrix:
    """Chord lengths of the lines from all rows of `start` to all rows of `end`, linear scores of classes.

    The unnormalised probabilities on a line are products, exp((1 - t) s_i) exp(t s_j), so that all inner products
    of neighbouring points are products of matrices. Short lines lose digits there and are computed one by one.
    """
    start, end = start - start.max(axis=1, keepdims=True), end - end.max(axis=1, keepdims=True)
    total = np.zeros((len(start), len(end)))
    near_left, near_right = np.exp(start / 2), np.ones_like(end)
    norm_before = np.exp(start).sum(axis=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        for t in range(1, n_points + 1):
            left = np.exp((1 - t / n_points) / 2 * start)
            right = np.exp(t / n_points / 2 * end)
            norm = (left**2) @ (right**2).T
            cosine = (left * near_left) @ (right * near_right).T / np.sqrt(norm * norm_before)
            total += np.sqrt(8 * np.maximum(1 - cosine, 0.0))
            near_left, near_right, norm_before = left, right, norm
    rows, columns = np.nonzero(~(total > _SHORT))  # also where all products underflow
    for pairs in split_entries(len(rows), start.shape[1]):
        i, j = rows[pairs], columns[pairs]
        total[i, j] = pair_chords(start[i], end[j], n_points)
    return total


def all_tangents(start: Matrix, end: Matrix, n_points: int) -> Matrix:
    """Tangent lengths of the lines from all rows of `start` to all rows of `end`, linear scores of classes."""
    origin, slope = start[:, None, :], end[None, :, :] - start[:, None, :]
    total = np.zeros(slope.shape[:2])
    for t in range(n_points):
        proba = softmax(origin + (t + 0.5) / n_points * slope, axis=-1)
        mean = np.sum(proba * slope, axis=-1, keepdims=True)
        total += np.sqrt(np.sum(proba * (slope - mean) ** 2, axis=-1))  # sqrt of d' J d, times T
    return total / n_points


class FisherMetric(RowEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embed rows such that Euclidean distances count changes of the label distribution.

    The embedding ``2 sqrt(p(c | x))`` of a probabilistic classifier has the Fisher information of the labels as its
    metric. Directions in which the labels do not change are ignored. Any method that uses Euclidean distances works
    on the embedded rows.

    Parameters
    ----------
    estimator : classifier with predict_proba, optional
        Estimates p(c | x). By default multinomial logistic regression, on standardised features if rows are dense.
    C : float
        Cost of a unit of loss in the default classifier. A smaller value gives less extreme probabilities, and a
        smoother metric.

    Attributes
    ----------
    estimator_ : classifier
    classes_ : ndarray
        The columns of the embedding.
    feature_scale_ : ndarray of shape (n_features,)
        Deviations of the features, in units of which finite differences are taken.
    n_features_in_ : int

    Examples
    --------
    The label depends on the first feature alone:

    >>> import numpy as np
    >>> from arbora.expand import FisherMetric
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> metric = FisherMetric().fit(X, X[:, 0] + 0.5 * rng.normal(size=300) > 0)
    >>> J = metric.fisher_information([[0.0, 0.0]])[0]
    >>> bool(J[0, 0] > 100 * J[1, 1])
    True
    >>> metric.transform(X).shape
    (300, 2)
    """

    _tags: ClassVar[dict[str, Any]] = {"target_tags.required": True}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [HasMethods(["fit", "predict_proba"]), None],
        "C": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, estimator: Any = None, *, C: float = 1.0) -> None:
        self.estimator = estimator
        self.C = C

    def fit(self, X: Any, y: Any) -> Self:
        """Train the classifier on the labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels as integers or strings. -1, None and NaN mark rows without a label, which are not used.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            require_y(self, y, "it learns from labels")
            X = check_features(self, X, reset=True)
            groups = read_groups(y, X.shape[0])
            if groups.n_groups < 2:
                raise ValueError(
                    f"y has 1 class, {groups.classes.tolist()[0]!r}: a metric of label changes needs at least two."
                )
            X, codes = X[groups.labelled], groups.codes[groups.labelled]
            self.estimator_ = self._make(X).fit(X, groups.classes[codes])
            self.classes_ = np.asarray(self.estimator_.classes_)
            self.feature_scale_ = _deviations(X)
        return self

    def _make(self, X: Any) -> Any:
        if self.estimator is not None:
            return clone(self.estimator)
        classifier = MultinomialLogistic(self.C, tol=1e-7)
        return classifier if sp.issparse(X) else make_pipeline(StandardScaler(), classifier)

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        X = check_features(self, X, reset=False, squares=np.float64)
        centred = self.estimator is None and isinstance(self.estimator_, Pipeline)
        return _dense(X) if centred else X

    def transform(self, X: Any) -> Matrix:
        """Map rows to ``2 sqrt(p(c | x))``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._embed(self._checked(X))

    def _embed(self, X: Any) -> Matrix:
        return embed(np.asarray(self.estimator_.predict_proba(X)))

    def _scores(self, X: Any) -> Matrix:
        """Linear scores of all classes."""
        return two_columns(np.asarray(self.estimator_.decision_function(X), np.float64))

    def fisher_information(self, X: Any) -> Matrix:
        """Return the matrices J(x) of (2.9): how the labels change with each pair of features, near each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features, n_features)
        """
        X = self._checked(X)
        n_rows, n_features = X.shape
        require_memory(
            8 * n_rows * n_features * (n_features + 2 * len(self.classes_)),
            f"The information matrices of {n_rows} rows and {n_features} features",
            "Give fewer rows, or reduce the features first.",
        )
        rows = _dense(X)
        D = self._linear_jacobian(rows) if has_linear_scores(self.estimator_) else self._jacobian(rows)
        return np.asarray(np.swapaxes(D, 1, 2) @ D)

    def _linear_jacobian(self, rows: Matrix) -> Matrix:
        """Return the derivatives (n_rows, n_classes, n_features) of the embedding: sqrt(p_c) (w_c - sum p w)."""
        # Scores are affine: their values at the unit vectors give the weights, through all steps of a pipeline.
        origin = self._scores(np.zeros((1, rows.shape[1])))
        weights = (self._scores(np.diag(self.feature_scale_)) - origin).T / self.feature_scale_
        proba = np.asarray(self.estimator_.predict_proba(rows))
        contrast = weights[None] - (proba @ weights)[:, None, :]
        return np.asarray(np.sqrt(proba)[:, :, None] * contrast)

    def _jacobian(self, rows: Matrix) -> Matrix:
        """Return the derivatives of the embedding by central differences."""
        columns = []
        for j, step in enumerate((_STEP * self.feature_scale_).tolist()):
            ahead, behind = rows.copy(), rows.copy()
            ahead[:, j] += step
            behind[:, j] -= step
            columns.append((self._embed(ahead) - self._embed(behind)) / (2 * step))
        return np.stack(columns, axis=2)

    def pairwise_distances(self, X: Any, Y: Any = None, n_points: Any = 3, rule: str = "chord") -> Matrix:
        """Distances along straight lines of the original space, in the learned metric.

        The embedding identifies all rows with the same label distribution. A straight line between two rows sees
        what lies between them: regions of one class that are separated by another class are far apart.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        Y : array-like or sparse matrix of shape (n_other, n_features), optional
            By default X.
        n_points : int
            Segments of a line.
        rule : {"chord", "tangent"}
            Length of a segment: the distance of its embedded ends, or the local metric in its middle.

        Returns
        -------
        ndarray of shape (n_samples, n_other)
            With 1 chord, the distances of the embedded rows.

        Notes
        -----
        Pairs are processed in blocks. A classifier without linear scores is evaluated at n_points - 1 inner points
        (chord) or at 2 n_points (tangent) of every pair.
        """
        if not isinstance(n_points, Integral) or int(n_points) < 1:
            raise ValueError(f"n_points must be an integer, 1 or more, got {n_points!r}.")
        if rule not in _RULES:
            raise ValueError(f"rule must be one of {', '.join(_RULES)}; got {rule!r}.")
        X = self._checked(X)
        Y = X if Y is None else self._checked(Y)
        linear = has_linear_scores(self.estimator_)
        start, end = (self._scores(X), self._scores(Y)) if linear else (_dense(X), _dense(Y))
        of_scores = all_chords if rule == "chord" else all_tangents
        distances = np.empty((X.shape[0], Y.shape[0]))
        width = max(start.shape[1], len(self.classes_))
        for right in split_entries(len(end), width):
            n_left = max(1, chunks.CHUNK_ENTRIES // (width * (right.stop - right.start)))
            for left in split(len(start), size=n_left):
                lines = start[left], end[right], int(n_points)
                distances[left, right] = of_scores(*lines) if linear else self._line_lengths(*lines, rule)
        return distances

    def _line_lengths(self, start: Matrix, end: Matrix, n_points: int, rule: str) -> Matrix:
        """Lengths of the lines between all pairs of rows, by values of the classifier on the lines."""
        slope = end[None] - start[:, None]
        shape = slope.shape[:2]

        def embedded(share: float) -> Matrix:
            points = (start[:, None] + share * slope).reshape(-1, start.shape[1])
            return self._embed(points).reshape(*shape, -1)

        if rule == "chord":
            inner = [embedded(t / n_points) for t in range(1, n_points)]
            return chord_length([self._embed(start)[:, None], *inner, self._embed(end)[None]])
        total, step = np.zeros(shape), _STEP / n_points
        for t in range(n_points):
            middle = (t + 0.5) / n_points
            total += chord_length([embedded(middle - step), embedded(middle + step)]) / (2 * step * n_points)
        return total

    @property
    def _n_features_out(self) -> int:
        return len(self.classes_)


def _dense(X: Any) -> Matrix:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64)


def _deviations(X: Any) -> Matrix:
    """Return the standard deviations of the features; 1 for a constant one."""
    if hasattr(X, "indptr"):
        mean = np.asarray(X.mean(axis=0)).ravel()
        square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    else:
        deviation = np.asarray(X, np.float64).std(axis=0)
    return np.where(deviation > 0, deviation, 1.0)
