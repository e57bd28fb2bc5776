"""From scores to answers: calibrated probabilities, thresholds from held-out rows, near-ties between classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit, logit, softmax

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.nested import NestedLogit
from arbora.classify.thresholds import Threshold, ZeroThreshold, make_threshold
from arbora.classify.training import Targets, Training, n_effective
from arbora.core.folds import random_splits

# --- Calibrate scores to probabilities with two parameters --------------------------------------------------
#
# Multilabel: ``p(class | x) = sigmoid(scale * score + shift)`` with the same parameters for all classes. Single
# label: the same sigmoids, divided by their sum. With a low shift, these are ``softmax(scale * scores)``, which is
# stored as a shift of 0; a higher one makes all classes with a high score equally probable, as is right for
# classifiers that were trained one against the rest. More parameters cannot be learned from thousands of classes
# with a few documents each. With row weights, the likelihood is weighted, and the smoothing of the targets uses the
# effective number of rows (Kish: the square of the sum of the weights over the sum of their squares).
#
# The scores must come from models that were not trained on the same rows (see `held_out_splits`). The leave-one-out
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
    """Maximise a log-likelihood that is concave in the scale of the scores, hence unimodal in its logarithm."""
    best = minimize_scalar(
        lambda log_scale: -mean_log_likelihood(float(np.exp(log_scale))),
        bounds=(-_MAX_LOG_SCALE, _MAX_LOG_SCALE),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return Calibration(float(np.exp(best.x)))


def fit_softmax_scale(
    scores: Matrix,
    codes: Matrix,
    weight: Matrix | None = None,
    targets: tuple[float, float] | None = None,
) -> Calibration:
    """Maximise the likelihood of the true classes, the columns `codes` of the scores, over the scale of a softmax.

    The targets are smoothed as if one additional row belonged to another class, so that a few rows that are all
    classified correctly do not give probabilities of 1. `targets` are the smoothed targets of the true class and of
    each other one, if the rows are a sample.
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

    >>> scores = np.tile([1.0, 0.0, 0.0], (4000, 1))
    >>> scores[::2, 1] = 1.0  # two classes fit every second row
    >>> fit = fit_normalized_sigmoid(scores, np.tile([0, 0, 1, 2], 1000))
    >>> class_probabilities(scores[:2], fit, False).round(1)
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
    softmax_fit = fit_softmax_scale(scores, codes, weight, (high, low))
    s, codes, share = scores[ids].astype(np.float32), codes[ids], weight[ids] / weight[ids].sum()
    rows = np.arange(ids.size)
    n_cached = max(1, _CACHED // s.shape[1])
    parts = [slice(first, first + n_cached) for first in range(0, ids.size, n_cached)]

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

    max_shift = _MAX_SHIFT / _SHIFT_UNIT
    bounds = [(-_MAX_LOG_SCALE, _MAX_LOG_SCALE), (-max_shift, max_shift)]
    start = np.array([np.log(softmax_fit.scale), 1e-3])
    best = minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-6})
    if not best.fun < softmax_objective(softmax_fit.scale):
        return softmax_fit
    return Calibration(float(np.exp(best.x[0])), float(_SHIFT_UNIT * best.x[1]))


def smoothed_targets(n_choices: float, n_ways: Any) -> tuple[Any, Any]:
    """Target probabilities of the observed outcome and of each of the other n_ways - 1, after n_choices choices.

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


# --- Held-out rows: scores by models that were not trained on them, for calibration and for thresholds ------


_COARSE_TOL = 0.05  # the scale of the scores converges long before the weights do
_MAX_SCORES = 1 << 23
_HELD_OUT_ROWS = 1_000  # to fit one or two parameters
_MAX_FINE_SCORES = 1 << 26  # a threshold for each class needs all labels that it can get: 256 MiB of float32
_FEW_ROWS = 1000  # a fifth of fewer rows is too little to learn from, and five folds of them are quick
_N_FOLDS = 5
_MIN_ROWS = 5  # fewer rows cannot spare a fifth
_MIN_LABELS = 10  # of held-out rows: fewer cannot place a threshold
_MAX_LABELS = 3.0  # that a learned threshold may give, in the labels that there are

Score = Callable[[Training, sp.csr_array, str], Matrix]


class HeldOut(NamedTuple):
    """Scores of rows by a model that was not trained on them, the labels of the rows, and their weights."""

    scores: Matrix
    truth: sp.csr_array
    weight: Matrix


class LearnedDecisions(NamedTuple):
    """Scale and shift of the scores, the threshold of a multilabel model, and the calibration over a tree."""

    calibration: Array
    threshold: Threshold | None
    levels: Array | None = None  # of a `NestedLogit`; None: one scale for all classes
    class_counts: Ints | None = None  # number of rows of each class, which the `NestedLogit` needs


def effective_calibration(calibration: Any, threshold: Threshold | None) -> Any:
    """How rows are held out: a threshold that is learned needs them even with `calibration=None`."""
    if calibration == "levels" or (calibration is None and threshold is not None and threshold.learns):
        return "holdout"
    return calibration


def learn_decisions(
    training: Training,
    score: Score,
    *,
    calibration: Any,
    threshold: Any,
    targets: Targets,
    weight: Matrix | None = None,
    relative: bool = False,
) -> LearnedDecisions:
    """Learn how scores become probabilities and label sets, on the same held-out scores.

    `score` trains on part of the rows and returns the scores of some other rows; its third argument is a key for the
    pieces of a checkpoint. `threshold` is ignored for one label per row. `weight` are the weights of the rows; by
    default their costs. `relative`: only differences of the scores of a row mean something, so that their
    probabilities are a softmax.
    """
    multilabel, class_counts = training.multilabel, np.diff(sp.csc_array(training.positives).indptr)
    tree = None
    if calibration == "levels" and not multilabel and len(class_counts) > 1:
        tree = NestedLogit(targets.hierarchy, targets.class_nodes, class_counts)
    cut = make_threshold(threshold) if multilabel else None
    learns = cut is not None and cut.learns
    held_out = effective_calibration(calibration, cut)
    enough = None if tree is not None else _HELD_OUT_ROWS  # a tree has more parameters
    parts = held_out_scores(training, held_out, score, fine=learns, enough=enough, weight=weight)
    scale, levels = Calibration(1.0), None
    if parts and calibration is not None:
        scale = fit_calibration(parts, multilabel, relative)
        if tree is not None and tree.n_levels > 1:
            levels = fit_tree(parts, tree)
    if cut is not None and learns:
        if isinstance(threshold, str) and threshold == "auto":
            return LearnedDecisions(np.array(scale), best_threshold(parts, training))
        if not parts:
            raise ValueError(
                f"threshold={threshold!r} is learned on held-out rows, and y has too few rows for that: give more "
                "rows, or a threshold that learns nothing ('zero', or RCut(r) with a number)."
            )
        scores, truth, _ = stacked(parts, fine=True)
        cut.fit(scores, truth, class_counts > 0)
    return LearnedDecisions(np.array(scale), cut, levels, class_counts)


def best_threshold(parts: Sequence[HeldOut], training: Training) -> Threshold:
    """Fit one threshold for all scores, and one number of labels for all rows; keep the better one.

    A common threshold is better where the scores of all rows have one scale, as for texts of unit length, the number
    of labels where they do not. Both have a single parameter that all classes share, so that the rows that they were
    learned on can judge them, and a class with one or two labels has no threshold of its own to overfit.

    The cut is at zero, where the losses have it, if there is too little to learn from: no held-out rows, or fewer
    than ten labels in them. Where scores say nothing about labels, micro-F1 is best if all rows get all labels; a cut
    that gives more than three times as many labels as the rows have is therefore not used.
    """
    if not parts:
        return ZeroThreshold()
    scores, truth, _ = stacked(parts, fine=True)
    n_true = truth.nnz
    if n_true < _MIN_LABELS:
        return ZeroThreshold()
    has_rows = np.diff(sp.csc_array(training.positives).indptr) > 0
    best: Threshold = ZeroThreshold()
    highest = -1.0
    for name in ("global", "rcut"):
        cut = make_threshold(name).fit(scores, truth, has_rows)
        answers = cut.predict(scores)
        micro_f1 = 2 * answers.multiply(truth).nnz / (answers.nnz + n_true)
        if micro_f1 > highest and answers.nnz <= _MAX_LABELS * n_true:
            best, highest = cut, micro_f1
    return best


def fit_calibration(parts: Sequence[HeldOut], multilabel: bool, relative: bool = False) -> Calibration:
    """Fit the calibration of classes to held-out scores."""
    scores, labels, weight = stacked(parts)
    truth: NDArray[np.bool_] = labels.toarray()
    if multilabel:
        return fit_sigmoid(scores, truth, np.repeat(weight, truth.shape[1]))
    if scores.shape[1] == 2:
        relative = True  # `decision_function` is the difference: with a softmax, probabilities rise with it
    elif scores.shape[1] == 1:  # two classes that share a classifier
        scores, truth = np.hstack([-scores, scores]), np.hstack([~truth, truth])
    fit = fit_softmax_scale if relative else fit_normalized_sigmoid
    return fit(scores, truth.argmax(axis=1), weight)


def fit_tree(parts: Sequence[HeldOut], tree: NestedLogit) -> Array | None:
    """Fit the calibration over a tree to held-out scores; None if no row has a class."""
    scores, labels, weight = stacked(parts)
    labelled = np.flatnonzero(np.diff(labels.indptr))
    if not labelled.size:
        return None
    scores, codes = scores[labelled], labels.indices[labels.indptr[labelled]].astype(np.int64)
    start = fit_softmax_scale(scores, codes, weight[labelled]).scale
    return tree.fit(scores, codes, weight[labelled], start)


def held_out_splits(
    training: Training,
    calibration: Any,
    n_scores: int,
    *,
    fine: bool = False,
    enough: int | None = _HELD_OUT_ROWS,
) -> Iterator[tuple[Training, Ints]]:
    """Yield what to train on and which rows to score then.

    `calibration="holdout"` is one split, with a fifth of the rows held out and coarse training on the others (with
    few rows: five such splits, each row held out once); an integer that many folds with full training; None nothing.
    Nothing is held out either if there are fewer rows than five, or than folds.

    The number of scores of a row, `n_scores`, limits the number of held-out rows, so that their scores stay small in
    memory. `fine` scores must be as precise as those of the final model, not just their scale: "holdout" then trains
    as precisely as the final model (thresholds learned on scores of coarse models were too strict or too lax) and
    holds out more rows. Else it holds out at most `enough` rows: a model of nearly all rows has scores like those of
    the final model, and is near it, so that its training is short.
    """
    n_samples = training.X.shape[0]
    if not held_out_share(training, calibration):
        return
    seed, limit, n_splits = training.options.seed, None, calibration
    if calibration == "holdout":
        if not fine:
            coarse = max(training.options.tol, _COARSE_TOL)
            training, limit = training._replace(options=training.options._replace(tol=coarse)), enough
        n_splits = _N_FOLDS if n_samples <= _FEW_ROWS else 1
    max_rows = _max_rows(n_scores, n_splits, fine)
    limit = max_rows if limit is None else min(max_rows, limit)
    for seen, unseen in random_splits(n_samples, n_splits, seed, limit):
        # The rows of a fold are in order, and the first of them may all be of one class.
        yield training.with_rows(np.sort(seen)), np.random.default_rng(seed).permutation(unseen)[:max_rows]


def held_out_share(training: Training, calibration: Any) -> float:
    """Largest share of the rows that the models of the splits are trained on; 0 where nothing is held out."""
    n_samples = training.X.shape[0]
    if calibration is None or n_samples < max(_MIN_ROWS, calibration if isinstance(calibration, int) else 0):
        return 0.0
    if calibration == "holdout" and n_samples > _FEW_ROWS:
        return 1 - 1 / n_samples  # how many rows are held out depends on the number of classes
    return 1 - 1 / float(_N_FOLDS if calibration == "holdout" else calibration)


def max_scores(fine: bool) -> int:
    """Maximum number of scores of held-out rows."""
    return _MAX_FINE_SCORES if fine else _MAX_SCORES


def _max_rows(n_scores: int, n_splits: int, fine: bool) -> int:
    return max(1, max_scores(fine) // (n_scores * n_splits))


def held_out_scores(
    training: Training,
    calibration: Any,
    score: Score,
    *,
    fine: bool = False,
    enough: int | None = _HELD_OUT_ROWS,
    n_scores: int | None = None,
    weight: Matrix | None = None,
) -> list[HeldOut]:
    """Score the held-out rows of each split with a model of the others.

    A row has a score for each column of `positives` by default, and its cost as weight.
    """
    parts = []
    weight = training.row_cost if weight is None else weight
    n_scores = n_scores or training.positives.shape[1]
    for number, (seen, rows) in enumerate(
        held_out_splits(training, calibration, n_scores, fine=fine, enough=enough)
    ):
        scores = score(seen, training.X[rows], f"held-out-{number}-")
        parts.append(HeldOut(scores, training.positives[rows].astype(bool), weight[rows]))
    return parts


def stacked(parts: Sequence[HeldOut], fine: bool = False) -> HeldOut:
    """Stack the splits: all of their rows, or the first of each, which are enough to fit a scale."""
    max_rows = _max_rows(parts[0].scores.shape[1], len(parts), fine)
    return HeldOut(
        np.vstack([part.scores[:max_rows] for part in parts]),
        sp.vstack([part.truth[:max_rows] for part in parts], format="csr"),
        np.concatenate([part.weight[:max_rows] for part in parts]),
    )


# --- Near-ties between classes, resolved by the tree ---
#
# Several classes are about equally probable, some of them near each other.
#
# Let P be the class probabilities of a row, and T(c) the class c with its ancestors. If class c is predicted, the
# expected F1 of the predicted nodes is
#
#     F(c)  =  sum over c' of P(c') 2 |T(c) and T(c')| / (|T(c)| + |T(c')|).
#
# The classes with paths of one length d are summed together: with P_d(a) the probability of such classes at or
# below node a, F(c) = sum over d of 2 / (|T(c)| + d) times the sum of P_d(a) over a in T(c).
#
# The class with the largest F(c) of all would be a cautious answer: often a shallow class, or an improbable one
# near many others. Among the classes at least half as probable as the best one, the choice costs hardly any exact
# answers, and wrong answers are nearer to the truth.
#
# Probabilities are monotone in the scores. The rows with more than one candidate are therefore found by one cut per
# row in the scores, in their own precision; only these rows are converted to probabilities, a part at a time.


# Least probability of a candidate, relative to that of the most probable class. Chosen on the sets of the section
# "Close calls decided by the tree" in benchmarks/RESULTS.md, except LSHTC-small, which was measured once, afterwards.
CLOSE = 0.5
_MAX_VALUES = 1 << 18  # scores, probabilities or nodes of candidates at a time
_MIN_SCORE = -500.0  # calibrated score whose sigmoid is far from underflow, and an exponential
_SLACK = 1e-6  # of a cut, relative to the largest calibrated score: far more than its rounding error


def settle_close_calls(scores: Matrix, calibration: Calibration, closure: sp.csr_array) -> Ints:
    """Choose a class for each row: the most probable one, or in a close call the one with the largest F(c).

    `calibration` gives probabilities of exclusive classes; `closure` (n_classes x n_nodes) marks the node of each
    class and all its ancestors. Ties in F(c) go to the more probable class, then to the first one.
    """
    best: Ints = scores.argmax(axis=1)
    top = np.take_along_axis(scores, best[:, None], axis=1)
    lowest = _lowest_scores(top, calibration)
    n_near = _count_above(scores, lowest)
    close = np.flatnonzero(n_near > 1)
    if not close.size:
        return best
    paths = Paths.of(closure)
    work = np.cumsum(np.maximum(max(closure.shape), n_near[close] * int(paths.size.max())))
    for rows in np.split(close, np.flatnonzero(np.diff(work // _MAX_VALUES)) + 1):
        row_scores = scores[rows]
        row, column = np.nonzero(row_scores >= lowest[rows])
        log_least = class_log_odds(top[rows, 0], calibration) + np.log(CLOSE)
        near = class_log_odds(row_scores[row, column], calibration) >= log_least[row]
        best[rows] = _best_paths(
            _probabilities(row_scores, top[rows], calibration), row[near], column[near], paths
        )
    return best


class Paths(NamedTuple):
    """Paths of the classes, and by their length: the length, the classes, and the classes below each node."""

    closure: sp.csr_array
    size: Matrix  # length of each path
    of_size: list[tuple[int, Ints, sp.csr_array]]

    @classmethod
    def of(cls, closure: sp.csr_array) -> Paths:
        """Split by the length of the paths."""
        closure = sp.csr_array(closure).astype(np.float64)
        size = np.diff(closure.indptr)
        ids = {int(length): np.flatnonzero(size == length) for length in np.unique(size)}
        below = [(length, columns, sp.csr_array(closure[columns].T)) for length, columns in ids.items()]
        return cls(closure, size, below)


def _lowest_scores(top: Matrix, calibration: Calibration) -> Matrix:
    """Scores that no candidate is below, given the best score of each row; they are slightly too low."""
    log_least = class_log_odds(top, calibration) + np.log(CLOSE)
    # The inverse of the logarithm of a sigmoid; without a shift, the scores are those of a softmax.
    calibrated = log_least if calibration.shift == 0 else log_least - np.log(-np.expm1(log_least))
    size = np.maximum(1, np.maximum(np.abs(calibrated), abs(calibration.shift)))
    lowest = (calibrated - _SLACK * size - calibration.shift) / calibration.scale
    return np.asarray(np.nextafter(lowest.astype(top.dtype), top.dtype.type(-np.inf)))


def _count_above(scores: Matrix, lowest: Matrix) -> Ints:
    """Count the scores of each row that are not below a cut."""
    step = max(1, _MAX_VALUES // max(1, scores.shape[1]))
    counts = np.empty(len(scores), np.int64)
    for first in range(0, len(scores), step):
        part = slice(first, first + step)
        counts[part] = np.count_nonzero(scores[part] >= lowest[part], axis=1)
    return counts


def _probabilities(scores: Matrix, top: Matrix, calibration: Calibration) -> Matrix:
    """Probabilities of the classes as `class_probabilities` has them, with one exponential for each."""
    if calibration.shift == 0:
        proba = calibration.scale * (scores.astype(np.float64) - top)
        np.exp(proba, out=proba)
    else:
        proba = calibration.scale * scores.astype(np.float64) + calibration.shift
        # Sigmoids so small are exponentials: a shift that keeps the largest one from underflow changes no ratio.
        proba += np.maximum(0, _MIN_SCORE - (calibration.scale * top.astype(np.float64) + calibration.shift))
        expit(proba, out=proba)
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def _best_paths(proba: Matrix, row: Ints, column: Ints, paths: Paths) -> Ints:
    """Return the candidate of each row with the largest F(c); `row` and `column` are those of the candidates."""
    # The nodes of the path of each candidate, one after the other; paths are not empty.
    length, closure = paths.size[column], paths.closure
    ends = np.cumsum(length)
    entries = np.arange(ends[-1]) + np.repeat(closure.indptr[column] - (ends - length), length)
    nodes, path_row = closure.indices[entries], np.repeat(row, length)
    value = np.zeros(len(row))
    for size, same, below in paths.of_size:
        of_nodes = np.asarray(below @ proba.T[same])
        value += 2 / (length + size) * np.add.reduceat(of_nodes[nodes, path_row], ends - length)
    value, chance = np.round(value, 12), proba[row, column]
    starts = np.searchsorted(row, np.arange(len(proba)))
    chance[value < np.maximum.reduceat(value, starts)[row]] = -1.0
    winners = np.flatnonzero(chance == np.maximum.reduceat(chance, starts)[row])
    return np.asarray(column[winners[np.searchsorted(row[winners], np.arange(len(proba)))]])
