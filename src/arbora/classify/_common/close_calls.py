"""Near-ties between classes, resolved by the tree: several classes are about equally probable, some near each other.

Let P be the class probabilities of a row, and T(c) the class c with its ancestors. If class c is predicted, the
expected F1 of the predicted nodes is

    F(c)  =  sum over c' of P(c') 2 |T(c) and T(c')| / (|T(c)| + |T(c')|).

The classes with paths of one length d are summed together: with P_d(a) the probability of such classes at or below
node a, F(c) = sum over d of 2 / (|T(c)| + d) times the sum of P_d(a) over a in T(c).

The class with the largest F(c) of all would be a cautious answer: often a shallow class, or an improbable one near
many others. Among the classes at least half as probable as the best one, the choice costs hardly any exact answers,
and wrong answers are nearer to the truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

CLOSE = 0.5  # least probability of a candidate, relative to that of the most probable class
_MOST_VALUES = 1 << 20  # probabilities of classes or nodes at a time


def settle_close_calls(log_odds: NDArray[Any], closure: sp.csr_array) -> NDArray[np.int64]:
    """Choose a class for each row: the most probable one, or in a close call the one with the largest F(c).

    Parameters
    ----------
    log_odds : ndarray of shape (n_samples, n_classes)
        Logarithms of the class probabilities, up to a constant for each row.
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
    >>> settle_close_calls(np.log([[0.4, 0.35, 0.25], [0.8, 0.15, 0.05]]), closure)
    array([1, 0])
    """
    best: NDArray[np.int64] = log_odds.argmax(axis=1)
    least = np.take_along_axis(log_odds, best[:, None], axis=1) + np.log(CLOSE)
    close = np.flatnonzero((log_odds >= least).sum(axis=1) > 1)
    closure = sp.csr_array(closure).astype(np.float64)
    step = max(1, _MOST_VALUES // max(closure.shape))
    for first in range(0, len(close), step):
        rows = close[first : first + step]
        best[rows] = _best_paths(log_odds[rows], least[rows], closure)
    return best


def _best_paths(log_odds: NDArray[Any], least: NDArray[Any], closure: sp.csr_array) -> NDArray[np.int64]:
    """Return the class of each row with the largest F(c) among those whose log odds are not below `least`."""
    proba = np.exp(log_odds.astype(np.float64) - log_odds.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    row, column = np.nonzero(log_odds >= least)
    # The nodes of the path of each candidate, one after the other; paths are not empty.
    sizes = np.diff(closure.indptr)
    length = sizes[column]
    ends = np.cumsum(length)
    at = np.arange(ends[-1]) + np.repeat(closure.indptr[column] - (ends - length), length)
    nodes, path_row = closure.indices[at], np.repeat(row, length)
    value = np.zeros(len(row))
    for size in np.unique(sizes).tolist():
        same = np.flatnonzero(sizes == size)
        of_nodes = np.asarray(proba[:, same] @ closure[same])
        value += 2 / (length + size) * np.add.reduceat(of_nodes[path_row, nodes], ends - length)
    order = np.lexsort((column, -proba[row, column], -np.round(value, 12), row))
    return np.asarray(column[order[np.searchsorted(row, np.arange(len(log_odds)))]])
