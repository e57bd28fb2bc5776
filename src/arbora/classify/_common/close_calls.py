"""Close calls, decided by the tree: several classes are about equally probable, and some lie near each other.

Let P be the class probabilities of a row, T(c) the class c with its ancestors, and P(a) the probability of a node a:
the sum over the classes at or below it. If class c is predicted, then in expectation

    overlap  =  sum of P(a) over a in T(c)            nodes are right, of |T(c)| predicted and E|T| true ones,
    F(c)     =  2 overlap / (|T(c)| + E|T|),          about the expected hierarchical F1 of the prediction.

The class with the largest F(c) alone would be a cautious one: often a shallow class, or an improbable one near many
others. Among the classes at least half as probable as the best one, it costs hardly any exact answers, and wrong
answers are nearer to the truth.
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
    nodes, sizes = np.asarray(proba @ closure), np.diff(closure.indptr)
    row, column = np.nonzero(log_odds >= least)
    # Sums of node probabilities over the path of each candidate; paths are not empty.
    length = sizes[column]
    ends = np.cumsum(length)
    at = np.arange(ends[-1]) + np.repeat(closure.indptr[column] - (ends - length), length)
    overlap = np.add.reduceat(nodes[np.repeat(row, length), closure.indices[at]], ends - length)
    value = 2 * overlap / (length + (proba @ sizes)[row])
    order = np.lexsort((column, -proba[row, column], -np.round(value, 12), row))
    return np.asarray(column[order[np.searchsorted(row, np.arange(len(log_odds)))]])
