"""Near-ties between classes, resolved by the tree: several classes are about equally probable, some near each other.

Let P be the class probabilities of a row, and T(c) the class c with its ancestors. If class c is predicted, the
expected F1 of the predicted nodes is

    F(c)  =  sum over c' of P(c') 2 |T(c) and T(c')| / (|T(c)| + |T(c')|).

The classes with paths of one length d are summed together: with P_d(a) the probability of such classes at or below
node a, F(c) = sum over d of 2 / (|T(c)| + d) times the sum of P_d(a) over a in T(c).

The class with the largest F(c) of all would be a cautious answer: often a shallow class, or an improbable one near
many others. Among the classes at least half as probable as the best one, the choice costs hardly any exact answers,
and wrong answers are nearer to the truth.

Probabilities are monotone in the scores. The rows with more than one candidate are therefore found by one cut per row
in the scores, in their own precision; only these rows are converted to probabilities, a part at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.probabilities import (
    Calibration,
    NestedLogit,
    class_log_odds,
    fit_normalized_sigmoid,
    fit_sigmoid,
    fit_softmax_scale,
)
from arbora.classify.thresholds import Threshold, ZeroThreshold, make_threshold
from arbora.classify.training import Targets, Training
from arbora.core.folds import random_splits

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

    Parameters
    ----------
    training : Training
    score : callable
        Trains on part of the rows and returns the scores of some other rows. Its third argument is a key for the
        pieces of a checkpoint.
    calibration : "holdout", "levels", int or None
    threshold : str or Threshold
        Ignored for one label per row.
    targets : Targets
        The labels, and their structure.
    weight : ndarray of shape (n_samples,), optional
        Weights of the rows; by default their costs.
    relative : bool
        Only differences of the scores of a row mean something: their probabilities are a softmax.
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

    Parameters
    ----------
    training : Training
    calibration : "holdout", int or None
        "holdout": one split, with a fifth of the rows held out and coarse training on the others (with few rows: five
        such splits, each row held out once). An integer: that many folds with full training. None: nothing. Nothing
        is held out either if there are fewer rows than five, or than folds.
    n_scores : int
        Number of scores of a row. It limits the number of held-out rows, so that their scores stay small in memory.
    fine : bool
        Whether the scores must be as precise as those of the final model, not just their scale. Then "holdout" trains
        as precisely as the final model (thresholds learned on scores of coarse models were too strict or too lax),
        and more rows are held out.
    enough : int, optional
        Number of rows that "holdout" holds out at most, unless `fine`. A model of nearly all rows has scores like
        those of the final model, and is near it, so that its training is short.
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
    most = _most_rows(n_scores, n_splits, fine)
    limit = most if limit is None else min(most, limit)
    for seen, unseen in random_splits(n_samples, n_splits, seed, limit):
        # The rows of a fold are in order, and the first of them may all be of one class.
        yield training.with_rows(np.sort(seen)), np.random.default_rng(seed).permutation(unseen)[:most]


def held_out_share(training: Training, calibration: Any) -> float:
    """Largest share of the rows that the models of the splits are trained on; 0 where nothing is held out."""
    n_samples = training.X.shape[0]
    if calibration is None or n_samples < max(_MIN_ROWS, calibration if isinstance(calibration, int) else 0):
        return 0.0
    if calibration == "holdout" and n_samples > _FEW_ROWS:
        return 1 - 1 / n_samples  # how many rows are held out depends on the number of classes
    return 1 - 1 / float(_N_FOLDS if calibration == "holdout" else calibration)


def most_scores(fine: bool) -> int:
    """Maximum number of scores of held-out rows."""
    return _MAX_FINE_SCORES if fine else _MAX_SCORES


def _most_rows(n_scores: int, n_splits: int, fine: bool) -> int:
    return max(1, most_scores(fine) // (n_scores * n_splits))


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
    most = _most_rows(parts[0].scores.shape[1], len(parts), fine)
    return HeldOut(
        np.vstack([part.scores[:most] for part in parts]),
        sp.vstack([part.truth[:most] for part in parts], format="csr"),
        np.concatenate([part.weight[:most] for part in parts]),
    )


# --- Near-ties between classes, resolved by the tree ---


# Least probability of a candidate, relative to that of the most probable class. Chosen on the sets of the section
# "Close calls decided by the tree" in benchmarks/RESULTS.md, except LSHTC-small, which was measured once, afterwards.
CLOSE = 0.5
_MAX_VALUES = 1 << 18  # scores, probabilities or nodes of candidates at a time
_MIN_SCORE = -500.0  # calibrated score whose sigmoid is far from underflow, and an exponential
_SLACK = 1e-6  # of a cut, relative to the largest calibrated score: far more than its rounding error


def settle_close_calls(scores: Matrix, calibration: Calibration, closure: sp.csr_array) -> Ints:
    """Choose a class for each row: the most probable one, or in a close call the one with the largest F(c).

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    calibration : Calibration
        Of the scores, to probabilities of exclusive classes.
    closure : sparse matrix of shape (n_classes, n_nodes)
        Marks, for each class, its node and all ancestors.

    Returns
    -------
    ndarray of int of shape (n_samples,)
        Ties in F(c) go to the more probable class, then to the first one.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> closure = sp.csr_array([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0], [1, 0, 1, 0, 1]])  # root, a, b, b/1, b/2
    >>> settle_close_calls(np.log([[0.4, 0.35, 0.25], [0.8, 0.15, 0.05]]), Calibration(1.0), closure)
    array([1, 0])
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
        some = scores[rows]
        row, column = np.nonzero(some >= lowest[rows])
        log_least = class_log_odds(top[rows, 0], calibration) + np.log(CLOSE)
        near = class_log_odds(some[row, column], calibration) >= log_least[row]
        best[rows] = _best_paths(_probabilities(some, top[rows], calibration), row[near], column[near], paths)
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
        same = {int(length): np.flatnonzero(size == length) for length in np.unique(size)}
        below = [(length, columns, sp.csr_array(closure[columns].T)) for length, columns in same.items()]
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
