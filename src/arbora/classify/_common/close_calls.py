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

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from arbora.classify.probabilities import Calibration, class_log_odds

# Least probability of a candidate, relative to that of the most probable class. Chosen on the sets of the section
# "Close calls decided by the tree" in benchmarks/RESULTS.md, except LSHTC-small, which was measured once, afterwards.
CLOSE = 0.5
_MOST_VALUES = 1 << 18  # scores, probabilities or nodes of candidates at a time
_SMALLEST = -500.0  # calibrated score whose sigmoid is far from underflow, and an exponential
_SLACK = 1e-6  # of a cut, relative to the largest calibrated score: far more than its rounding error


def settle_close_calls(
    scores: NDArray[Any], calibration: Calibration, closure: sp.csr_array
) -> NDArray[np.int64]:
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
    best: NDArray[np.int64] = scores.argmax(axis=1)
    top = np.take_along_axis(scores, best[:, None], axis=1)
    lowest = _lowest_scores(top, calibration)
    n_near = _count_above(scores, lowest)
    close = np.flatnonzero(n_near > 1)
    if not close.size:
        return best
    paths = Paths.of(closure)
    work = np.cumsum(np.maximum(max(closure.shape), n_near[close] * int(paths.size.max())))
    for rows in np.split(close, np.flatnonzero(np.diff(work // _MOST_VALUES)) + 1):
        some = scores[rows]
        row, column = np.nonzero(some >= lowest[rows])
        log_least = class_log_odds(top[rows, 0], calibration) + np.log(CLOSE)
        near = class_log_odds(some[row, column], calibration) >= log_least[row]
        best[rows] = _best_paths(_probabilities(some, top[rows], calibration), row[near], column[near], paths)
    return best


class Paths(NamedTuple):
    """Paths of the classes, and by their length: the length, the classes, and the classes below each node."""

    closure: sp.csr_array
    size: NDArray[Any]  # length of each path
    of_size: list[tuple[int, NDArray[np.int64], sp.csr_array]]

    @classmethod
    def of(cls, closure: sp.csr_array) -> Paths:
        """Split by the length of the paths."""
        closure = sp.csr_array(closure).astype(np.float64)
        size = np.diff(closure.indptr)
        same = {int(length): np.flatnonzero(size == length) for length in np.unique(size)}
        below = [(length, columns, sp.csr_array(closure[columns].T)) for length, columns in same.items()]
        return cls(closure, size, below)


def _lowest_scores(top: NDArray[Any], calibration: Calibration) -> NDArray[Any]:
    """Scores that no candidate is below, given the best score of each row; they are slightly too low."""
    log_least = class_log_odds(top, calibration) + np.log(CLOSE)
    # The inverse of the logarithm of a sigmoid; without a shift, the scores are those of a softmax.
    calibrated = log_least if calibration.shift == 0 else log_least - np.log(-np.expm1(log_least))
    size = np.maximum(1, np.maximum(np.abs(calibrated), abs(calibration.shift)))
    lowest = (calibrated - _SLACK * size - calibration.shift) / calibration.scale
    return np.asarray(np.nextafter(lowest.astype(top.dtype), top.dtype.type(-np.inf)))


def _count_above(scores: NDArray[Any], lowest: NDArray[Any]) -> NDArray[np.int64]:
    """Count the scores of each row that are not below a cut."""
    step = max(1, _MOST_VALUES // max(1, scores.shape[1]))
    counts = np.empty(len(scores), np.int64)
    for first in range(0, len(scores), step):
        part = slice(first, first + step)
        counts[part] = np.count_nonzero(scores[part] >= lowest[part], axis=1)
    return counts


def _probabilities(scores: NDArray[Any], top: NDArray[Any], calibration: Calibration) -> NDArray[Any]:
    """Probabilities of the classes as `class_probabilities` has them, with one exponential for each."""
    if calibration.shift == 0:
        proba = calibration.scale * (scores.astype(np.float64) - top)
        np.exp(proba, out=proba)
    else:
        proba = calibration.scale * scores.astype(np.float64) + calibration.shift
        # Sigmoids so small are exponentials: a shift that keeps the largest one from underflow changes no ratio.
        proba += np.maximum(0, _SMALLEST - (calibration.scale * top.astype(np.float64) + calibration.shift))
        expit(proba, out=proba)
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def _best_paths(
    proba: NDArray[Any], row: NDArray[np.int64], column: NDArray[np.int64], paths: Paths
) -> NDArray[np.int64]:
    """Return the candidate of each row with the largest F(c); `row` and `column` are those of the candidates."""
    # The nodes of the path of each candidate, one after the other; paths are not empty.
    length, closure = paths.size[column], paths.closure
    ends = np.cumsum(length)
    at = np.arange(ends[-1]) + np.repeat(closure.indptr[column] - (ends - length), length)
    nodes, path_row = closure.indices[at], np.repeat(row, length)
    value = np.zeros(len(row))
    for size, same, below in paths.of_size:
        of_nodes = np.asarray(below @ proba.T[same])
        value += 2 / (length + size) * np.add.reduceat(of_nodes[nodes, path_row], ends - length)
    value, chance = np.round(value, 12), proba[row, column]
    starts = np.searchsorted(row, np.arange(len(proba)))
    chance[value < np.maximum.reduceat(value, starts)[row]] = -1.0
    found = np.flatnonzero(chance == np.maximum.reduceat(chance, starts)[row])
    return np.asarray(column[found[np.searchsorted(row[found], np.arange(len(proba)))]])
