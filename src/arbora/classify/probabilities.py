"""Probabilities of classes over a tree from their scores, with a scale for each level: a nested logit.

A class c has the score V_c. At an inner node v with children u, in turn from the deepest level up,

    z_u = a_d V_u + b log(n_u / n_v),      p(u | v) = exp(z_u) / Z_v,      V_v = log(Z_v) / a_d,

where d is the depth of v, n_u the number of training documents at or below u, and Z_v the sum over the children. The
probability of a class is the product along its path (McFadden 1978). With one scale a and b = 0 this is the softmax
of a V over all classes. Choices near the root, among sums over many classes, are usually sharper than those at the
leaves, and one scale for all of them is a compromise.

The parameters maximise the likelihood of held-out labels, with a prior of the weight of a few observations around the
softmax. A scale of its own for every inner node, shrunk towards that of its parent, had a higher log loss on further
documents than one for each level, and so had scales fitted level by level. All of them need new documents that are
like the training documents: where they were not (LSHTC-small, trained on descriptions and tested on pages), F1 and
log loss were worse than with one scale, which is therefore the default.

A node of a DAG hangs below its first parent here. Classes at inner nodes are leaves below them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit, logit, softmax

from arbora.arrays import Array, Ints, Matrix
from arbora.structure import Hierarchy

# --- Calibrate scores to probabilities with two parameters --------------------------------------------------
#
# Multilabel: ``p(class | x) = sigmoid(scale * score + shift)`` with the same parameters for all classes. Single
# label: the same sigmoids, divided by their sum. With a low shift, these are ``softmax(scale * scores)``, which is
# stored as a shift of 0; a higher one makes all classes with a high score equally probable, as is right for
# classifiers that were trained one against the rest. More parameters cannot be learned from thousands of classes
# with a few documents each. With row weights, the likelihood is weighted, and the smoothing of the targets uses the
# effective number of rows (Kish: the square of the sum of the weights over the sum of their squares).
#
# The scores must come from models that were not trained on the same rows (see `decisions`). The leave-one-out
# estimate of Jaakkola and Haussler (1999), which subtracts the contribution of a row to its own score, needs no
# second training but is far too pessimistic with many classes: on 20 newsgroups the mean confidence was 0.46 at an
# accuracy of 0.86, and on LSHTC-small it found no signal.


_MAX_LOG_SCALE = 12.0
_SHIFT_UNIT = 5.0  # a change of the shift by this matters as much as one of the logarithm of the scale by 1
_MAX_SHIFT = 20.0  # sigmoids of higher values round to 1
_MAX_PAIRS = 1 << 19  # scores that scale and shift are fitted to, if there are enough rows in them
_ENOUGH_ROWS = 500
_CACHED = 1 << 15  # scores at a time that stay in the cache


class Calibration(NamedTuple):
    """Scale and shift of the scores; for one label, a shift of exactly 0 means a softmax."""

    scale: float
    shift: float = 0.0


def fit_scale(mean_log_likelihood: Callable[[float], float]) -> Calibration:
    """Maximise a log-likelihood that is concave in the scale of the scores, hence unimodal in its logarithm.

    Examples
    --------
    >>> import numpy as np
    >>> round(fit_scale(lambda scale: -((scale - 3.0) ** 2)).scale, 3)
    3.0
    """
    best = minimize_scalar(
        lambda log_scale: -mean_log_likelihood(float(np.exp(log_scale))),
        bounds=(-_MAX_LOG_SCALE, _MAX_LOG_SCALE),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return Calibration(float(np.exp(best.x)))


def n_effective(weight: Matrix) -> float:
    """Effective number of rows: the square of the sum of the weights over the sum of their squares.

    Examples
    --------
    >>> import numpy as np
    >>> n_effective(np.array([2.0, 2.0, 0.0])), n_effective(np.array([1.0, 3.0])), n_effective(np.zeros(2))
    (2.0, 1.6, 0.0)
    """
    total = float(weight.sum())
    return total**2 / float((weight**2).sum()) if total > 0 else 0.0


def fit_softmax_scale(
    scores: Matrix,
    codes: Matrix,
    weight: Matrix | None = None,
    targets: tuple[float, float] | None = None,
) -> Calibration:
    """Maximise the likelihood of the true classes over the scale of a softmax.

    The targets are smoothed as if one additional row belonged to another class, so that a few rows that are all
    classified correctly do not give probabilities of 1.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    codes : ndarray of shape (n_samples,)
        Column of the true class.
    weight : ndarray of shape (n_samples,), optional
    targets : pair of float, optional
        Smoothed targets of the true class and of each other one, if the rows are a sample.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.tile([1.0, 0.0], (4000, 1))
    >>> fitted = fit_softmax_scale(scores, np.repeat([0, 0, 0, 1], 1000))  # three in four: odds of 3
    >>> round(float(np.exp(fitted.scale)), 2)
    3.0
    """
    n_samples, n_classes = scores.shape
    true = scores[np.arange(n_samples), codes].astype(np.float64)
    weight = np.ones(n_samples) if weight is None else weight
    high, low = targets or smoothed_targets(n_effective(weight), n_classes)
    target = (high - low) * true + low * scores.sum(axis=1, dtype=np.float64)
    share = weight / weight.sum()
    top = scores.max(axis=1, keepdims=True)
    centred, scaled = scores - top, np.empty_like(scores)

    def mean_log_likelihood(scale: float) -> float:
        np.multiply(centred, scores.dtype.type(scale), out=scaled)
        log_sum = np.log(np.exp(scaled, out=scaled).sum(axis=1)) + scale * top[:, 0]
        return float(share @ (scale * target - log_sum))

    return fit_scale(mean_log_likelihood)


def fit_normalized_sigmoid(scores: Matrix, codes: Matrix, weight: Matrix | None = None) -> Calibration:
    """Maximise the likelihood of the true classes over scale and shift of sigmoids that are divided by their sum.

    The targets are smoothed as by `fit_softmax_scale`, which gives the result where a softmax is as likely.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.tile([1.0, 0.0, 0.0], (4000, 1))
    >>> scores[::2, 1] = 1.0  # two classes fit every second row
    >>> fitted = fit_normalized_sigmoid(scores, np.tile([0, 0, 1, 2], 1000))
    >>> class_probabilities(scores[:2], fitted, False).round(1)
    array([[0.4, 0.4, 0.1],
           [0.6, 0.2, 0.2]])
    """
    weight = np.ones(len(scores)) if weight is None else weight
    high, low = smoothed_targets(n_effective(weight), scores.shape[1])
    ids = np.flatnonzero(weight > 0)
    n_rows = max(_ENOUGH_ROWS, _MAX_PAIRS // scores.shape[1])
    if ids.size > n_rows:
        ids = ids[np.arange(n_rows) * ids.size // n_rows]
        scores, codes, weight, ids = scores[ids], codes[ids], weight[ids], np.arange(n_rows)
    plain = fit_softmax_scale(scores, codes, weight, (high, low))
    s, codes, share = scores[ids].astype(np.float32), codes[ids], weight[ids] / weight[ids].sum()
    rows = np.arange(ids.size)
    few = max(1, _CACHED // s.shape[1])
    parts = [slice(first, first + few) for first in range(0, ids.size, few)]

    def part_objective(part: slice, scale: float, shift: float) -> Matrix:
        scores, code, weight = s[part], codes[part], share[part]
        row = rows[: len(code)]
        z = np.float32(scale) * scores + np.float32(shift)
        small = np.exp(-np.abs(z))
        logs = np.minimum(z, 0) - np.log(1 + small)  # faster than log1p; the error is below 1e-7
        top = logs.max(axis=1, keepdims=True)
        residual = np.exp(logs - top)
        total = residual.sum(axis=1, dtype=np.float64)
        likely = (high - low) * logs[row, code] + low * logs.sum(axis=1, dtype=np.float64)
        residual /= total.astype(np.float32)[:, None]
        residual -= np.float32(low)
        residual[row, code] -= np.float32(high - low)
        residual *= np.where(z > 0, small, 1) / (1 + small)  # the slope of the logarithm of a sigmoid
        slope = scale * (weight @ np.einsum("ij,ij->i", residual, scores, dtype=np.float64))
        value = weight @ (np.log(total) + top[:, 0] - likely)
        return np.array([value, slope, weight @ residual.sum(axis=1, dtype=np.float64)])

    def objective(theta: Matrix) -> tuple[float, Matrix]:
        scale, shift = float(np.exp(theta[0])), float(_SHIFT_UNIT * theta[1])
        value, slope, shift_slope = np.sum([part_objective(part, scale, shift) for part in parts], axis=0)
        return float(value), np.array([slope, _SHIFT_UNIT * shift_slope])

    def softmax_objective(scale: float) -> float:
        logs = np.float32(scale) * s
        top = logs.max(axis=1, keepdims=True)
        likely = (high - low) * logs[rows, codes] + low * logs.sum(axis=1, dtype=np.float64)
        return float(share @ (np.log(np.exp(logs - top).sum(axis=1, dtype=np.float64)) + top[:, 0] - likely))

    most = _MAX_SHIFT / _SHIFT_UNIT
    bounds = [(-_MAX_LOG_SCALE, _MAX_LOG_SCALE), (-most, most)]
    start = np.array([np.log(plain.scale), 1e-3])
    best = minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-6})
    if not best.fun < softmax_objective(plain.scale):
        return plain
    return Calibration(float(np.exp(best.x[0])), float(_SHIFT_UNIT * best.x[1]))


def smoothed_targets(n_choices: float, n_ways: Any) -> tuple[Any, Any]:
    """Target probabilities of the observed outcome and of each of the other n_ways - 1, after n_choices choices.

    Examples
    --------
    >>> smoothed_targets(8, np.array([2, 3]))
    (0.9, array([0.1 , 0.05]))
    """
    other = 1 / (n_choices + 2)
    return 1 - other, other / np.maximum(n_ways - 1, 1)


def fit_sigmoid(
    scores: Matrix,
    positive: NDArray[np.bool_],
    weight: Matrix | None = None,
    n_steps: int = 50,
) -> Calibration:
    """Fit ``sigmoid(scale * score + shift)`` to all decisions by Newton's method with step halving.

    The targets are smoothed as Platt's, so that the scale stays finite for separable scores. The scale stays
    positive, so that a higher score never has a lower probability. Scores without information, or negatively
    correlated with the truth, get the smallest scale and the share of the positives. `weight` has the shape of the
    scores.

    Examples
    --------
    >>> import numpy as np
    >>> fitted = fit_sigmoid(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([False, True, False, True]))
    >>> bool(fitted.scale > 0)
    True
    """
    s, t = scores.ravel().astype(np.float64), positive.ravel()
    if not t.size:
        return Calibration(1.0)
    weight = np.ones(t.size) if weight is None else weight.ravel().astype(np.float64)
    n_positive, n_negative = n_effective(weight[t]), n_effective(weight[~t])
    t = np.where(t, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    share = weight / weight.sum()
    objective = SigmoidObjective(s, share, np.array([(share * t) @ s, share @ t]))
    constant = float(logit(share @ t))
    theta = np.array([0.0, constant])  # the best constant probability
    value, gradient, hessian = objective(theta)
    for _ in range(n_steps):
        step = np.linalg.solve(hessian + 1e-12 * np.eye(2), gradient)
        while (candidate := objective(theta - step))[0] > value and np.abs(step).max() > 1e-12:
            step /= 2
        theta = theta - step
        decrease, (value, gradient, hessian) = value - candidate[0], candidate
        if decrease <= 1e-12 * abs(value):
            break
    smallest = float(np.exp(-_MAX_LOG_SCALE))
    if theta[0] < smallest:
        return Calibration(smallest, constant)
    return Calibration(float(theta[0]), float(theta[1]))


class SigmoidObjective(NamedTuple):
    """Mean log loss of ``sigmoid(scale * score + shift)`` for targets t: the mean of softplus(z) - t z.

    Attributes
    ----------
    scores, share : ndarray of shape (n_pairs,)
        Scores and normalised weights of the decisions.
    linear : ndarray of shape (2,)
        Weighted means of t s and of t, all that the loss depends on t by.
    """

    scores: Array
    share: Array
    linear: Array

    def __call__(self, theta: Matrix) -> tuple[float, Matrix, Matrix]:
        """Value, gradient and Hessian, in one pass over parts that stay in the cache."""
        ends = range(0, len(self.scores), _CACHED)
        sums = np.sum([self._part(theta, slice(first, first + _CACHED)) for first in ends], axis=0)
        value, slope, shift, *second = sums
        gradient = np.array([slope, shift]) - self.linear
        hessian = np.array([[second[0], second[1]], [second[1], second[2]]])
        return float(value - theta @ self.linear), gradient, hessian

    def _part(self, theta: Matrix, part: slice) -> tuple[float, ...]:
        s, share = self.scores[part], self.share[part]
        z = theta[0] * s + theta[1]
        small = np.exp(-np.abs(z))
        inverse = 1 / (1 + small)  # the larger one of the two probabilities
        value = share @ (np.maximum(z, 0) - np.log(inverse))
        first = share * np.where(z > 0, inverse, small * inverse)
        second = share * small * inverse * inverse
        by_score = second * s
        return value, first @ s, first.sum(), by_score @ s, by_score.sum(), second.sum()


def class_log_odds(scores: Matrix, calibration: Calibration) -> Matrix:
    """Logarithms of the probabilities of exclusive classes, up to a constant for each row."""
    scaled = calibration.scale * scores.astype(np.float64) + calibration.shift
    return np.asarray(scaled if calibration.shift == 0 else log_expit(scaled))


def class_probabilities(scores: Matrix, calibration: Calibration, multilabel: bool) -> Matrix:
    """Compute probabilities from scores: sigmoids, which are divided by their sum unless labels are independent."""
    if multilabel:
        return np.asarray(expit(calibration.scale * scores.astype(np.float64) + calibration.shift))
    return np.asarray(softmax(class_log_odds(scores, calibration), axis=1))


# --- Probabilities of classes over a tree from their scores, with a scale for each level: a nested logit ----


_N_STEPS = 30
_SPREAD = 0.5  # standard deviation of the prior: of log(a) around that of the softmax, and of b
_MAX_VALUES = 1 << 20  # rows times nodes of a fit ...
_MIN_ROWS = 300  # ... but at least so many rows


class Level(NamedTuple):
    """Nodes of one depth, sorted by parent."""

    children: Ints
    parents: Ints  # without repetition
    starts: Ints  # first child of each parent
    segment: Ints  # position in `parents` of the parent of each child
    log_share: Array  # log(n_u / n_v) of the children


class NestedLogit:
    """A tree over classes, for scores with a column for each class.

    Parameters
    ----------
    hierarchy : Hierarchy
    class_nodes : ndarray of int of shape (n_classes,)
    class_counts : ndarray of shape (n_classes,)
        Numbers of training documents (or their weights).
    """

    def __init__(self, hierarchy: Hierarchy, class_nodes: Ints, class_counts: Matrix) -> None:
        n_nodes, top = hierarchy.n_nodes, hierarchy.n_nodes
        parent = np.full(n_nodes, top)
        has = np.diff(hierarchy.parent_indptr) > 0
        parent[has] = hierarchy.parent_indices[hierarchy.parent_indptr[:-1][has]]
        leaves = top + 1 + np.arange(len(class_nodes))  # a leaf for each class, below its node
        self.parent = np.concatenate([parent, [-1], class_nodes])
        self.leaves = leaves
        self.depth = _depths(self.parent)
        count = np.zeros(len(self.parent))
        count[leaves] = np.maximum(class_counts, np.finfo(np.float64).tiny)
        by_depth = np.argsort(-self.depth, kind="stable")
        ends = np.flatnonzero(np.diff(self.depth[by_depth])) + 1
        groups = np.split(by_depth, ends)[:-1]  # without the top
        for nodes in groups:
            np.add.at(count, self.parent[nodes], count[nodes])
        self.levels = [_level(nodes[count[nodes] > 0], self.parent, count) for nodes in groups]

    @property
    def n_levels(self) -> int:
        """Number of levels with choices of their own; 1 is a softmax over all classes."""
        return sum(
            bool((np.diff(level.starts, append=len(level.children)) > 1).any()) for level in self.levels
        )

    def log_proba(self, scores: Matrix, levels: Matrix) -> Array:
        """Logarithms of the class probabilities; row k of `levels` has a and b of the k-th level from below."""
        values = self._values(scores)
        conditional = np.zeros_like(values)
        for level, (a, b) in zip(self.levels, levels, strict=True):
            self._climb(values, level, a, b, conditional)
        for level in self.levels[::-1]:
            conditional[:, level.children] += conditional[:, level.parents[level.segment]]
        return np.asarray(conditional[:, self.leaves])

    def _values(self, scores: Matrix) -> Array:
        values = np.zeros((len(scores), len(self.parent)))
        values[:, self.leaves] = scores
        return values

    def _climb(self, values: Matrix, level: Level, a: float, b: float, conditional: Matrix | None) -> None:
        """Compute the values of the parents of a level, and the conditional log-probabilities of its nodes."""
        z = a * values[:, level.children] + b * level.log_share
        top = np.maximum.reduceat(z, level.starts, axis=1)
        total = top + np.log(np.add.reduceat(np.exp(z - top[:, level.segment]), level.starts, axis=1))
        if conditional is not None:
            conditional[:, level.children] = z - total[:, level.segment]
        values[:, level.parents] = total / a

    def fit(self, scores: Matrix, codes: Ints, weight: Matrix, scale: float) -> Array:
        """Fit the scales of the levels and the exponent of the shares to held-out scores.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_classes)
        codes : ndarray of int of shape (n_samples,)
            Column of the true class.
        weight : ndarray of shape (n_samples,)
        scale : float
            Scale of the softmax over all classes.

        Returns
        -------
        ndarray of shape (n_levels, 2)
            For `log_proba`.
        """
        most = max(_MIN_ROWS, _MAX_VALUES // len(self.parent))
        scores, codes, weight = scores[:most], codes[:most], weight[:most]
        n_rows = max(n_effective(weight), np.finfo(np.float64).tiny)
        weight = weight / max(float(weight.sum()), np.finfo(np.float64).tiny)
        truth = self._paths(codes)

        def objective(theta: Matrix) -> tuple[float, Matrix]:
            value, gradient = self._likelihood(scores, truth, weight, scale * np.exp(theta[:-1]), theta[-1])
            gradient[:-1] *= scale * np.exp(theta[:-1])
            prior = 1 / (_SPREAD**2 * n_rows)
            return prior * float(theta @ theta) / 2 - value, prior * theta - gradient

        start = np.zeros(len(self.levels) + 1)
        solution = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _N_STEPS}).x
        return np.column_stack([scale * np.exp(solution[:-1]), np.full(len(self.levels), solution[-1])])

    def _paths(self, codes: Ints) -> NDArray[np.bool_]:
        """Mark the nodes on the path to the true class of each row."""
        on_path, node = np.zeros((len(codes), len(self.parent)), bool), self.leaves[codes]
        for _ in range(int(self.depth.max()) + 1):
            inside = np.flatnonzero(node >= 0)
            on_path[inside, node[inside]] = True
            node = np.where(node >= 0, self.parent[node], -1)
        return on_path

    def _likelihood(
        self, scores: Matrix, truth: NDArray[np.bool_], weight: Matrix, a: Matrix, b: float
    ) -> tuple[float, Matrix]:
        """Mean log-likelihood of the true paths, and its gradient by the scales and the exponent."""
        values, conditional = self._values(scores), np.zeros((len(scores), len(self.parent)))
        for level, scale in zip(self.levels, a.tolist(), strict=True):
            self._climb(values, level, scale, b, conditional)
        gradient, by_value = np.zeros(len(a) + 1), np.zeros_like(values)
        total = 0.0
        for k in range(len(a) - 1, -1, -1):  # from the top down, by the chain rule
            level, scale = self.levels[k], float(a[k])
            taken = weight[:, None] * truth[:, level.children]
            log_p = conditional[:, level.children]
            total += float(np.sum(taken * log_p))
            of_sum = by_value[:, level.parents] / scale - np.add.reduceat(taken, level.starts, axis=1)
            by_z = taken + np.exp(log_p) * of_sum[:, level.segment]
            gradient[k] = np.sum(by_z * values[:, level.children])
            gradient[k] -= np.sum(by_value[:, level.parents] * values[:, level.parents]) / scale
            gradient[-1] += np.sum(by_z @ level.log_share)
            by_value[:, level.children] = scale * by_z
        return total, gradient


def _depths(parent: Ints) -> Ints:
    """Depth of every node; the top, with parent -1, has 0."""
    depth, above = np.zeros(len(parent), np.int64), parent.copy()
    while (inside := above >= 0).any():
        depth += inside
        above = np.where(inside, parent[above], -1)
    return depth


def _level(nodes: Ints, parent: Ints, count: Array) -> Level:
    children = nodes[np.argsort(parent[nodes], kind="stable")]
    parents, starts, segment = np.unique(parent[children], return_index=True, return_inverse=True)
    log_share = np.log(count[children]) - np.log(count[parent[children]])
    return Level(children, parents, starts, segment, log_share)
