r"""Halves of the words of documents: how much a part of a document says about the rest of it.

The features of a row (the words of a text) are divided at random into two halves A and B, each scaled to unit length.
The components of the halves, :math:`z_A` and :math:`z_B`, come from different words of the same document. Components
that describe subjects agree; components that describe accidents of single words do not. This measures two things:

**The number of components.** :math:`M(K) = \mathrm{MI}(z_A; z_B) - E[\mathrm{MI}]`, the mutual information minus the
value that is expected by chance, grows with K as long as components describe subjects, and falls when a component is
too narrow for half of a document. See `selection`.

**The temperature of probabilities.** A text has far fewer degrees of freedom than features, so that posterior
probabilities of a mixture are nearly all 0 or 1. Let :math:`j_{ik}` be the log-joint of half A of document i and
component k, and :math:`p_{ik}(T) \propto e^{j_{ik} / T}`. T is the temperature at which the mean confidence is the
rate of agreement,

.. math:: \frac1n \sum_i \max_k p_{ik}(T) = \frac1n \sum_i [z_{A_i} = z_{B_i}],

for documents that the mixture was not fitted to: a component that half of a document has with probability 0.7 is that
of the other half in about 7 of 10 documents. The most probable component is the same at any T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn.metrics.cluster import expected_mutual_information, mutual_info_score

from arbora.discover.mixture.rows import UnitRows, select_rows
from arbora.discover.mixture.starts import unit_directions

Labels = NDArray[np.int64]

_LEAST_WORDS = 4  # of a row that is divided
_DENSEST = 0.25  # largest share of the entries of X that are not zero; rows of a denser X have no words
_MOST_ROWS = 1500
_HOTTEST = 4096.0


class Halves(NamedTuple):
    """Two halves of the same rows, each of unit length, and the numbers of the rows."""

    A: sp.csr_array
    B: sp.csr_array
    ids: NDArray[np.int64]


def has_words(X: Any) -> bool:
    """Return whether rows are made of words: sparse, not negative, with some features in most rows.

    Examples
    --------
    >>> has_words(sp.csr_array(np.eye(9))), has_words(sp.csr_array(np.kron(np.eye(5), np.ones((3, 5)))))
    (False, True)
    """
    if isinstance(X, UnitRows):  # rows in a file: look at the first ones
        X = X[slice(0, min(X.shape[0], _MOST_ROWS))]
    n_samples, n_features = X.shape
    if X.nnz > _DENSEST * n_samples * n_features or (X.nnz and X.data.min() < 0):
        return False
    return bool(np.median(np.diff(X.indptr)) >= _LEAST_WORDS)


def draw_halves(X: Any, ids: NDArray[np.int64], rng: np.random.Generator, unit: bool = True) -> Halves:
    """Divide the features of rows at random; of at most 1,500 of the given rows, those with at least 4 features.

    Parameters
    ----------
    X : CSR array or rows in a file
    ids : ndarray of int
        Rows to choose from, in random order.
    rng : Generator
    unit : bool
        Scale the halves to unit length.

    Returns
    -------
    Halves
    """
    ids = np.sort(ids[:_MOST_ROWS])
    rows = select_rows(X, ids)
    rows = rows[slice(0, rows.shape[0])] if isinstance(rows, UnitRows) else rows
    enough = np.flatnonzero(np.diff(rows.indptr) >= _LEAST_WORDS)
    rows = rows[enough]
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((rng.random(len(owner)), owner))  # a random order of the features of each row
    rank = np.empty(len(owner), np.int64)
    rank[order] = np.arange(len(owner)) - rows.indptr[owner]
    # Rows with an odd number of features: the larger half is A for some and B for others.
    first = (rank + rng.integers(2, size=rows.shape[0])[owner]) % 2 == 0
    halves = []
    for chosen in (first, ~first):
        indptr = np.append(0, np.cumsum(np.bincount(owner[chosen], minlength=rows.shape[0])))
        half = sp.csr_array((rows.data[chosen], rows.indices[chosen], indptr), shape=rows.shape)
        halves.append(unit_directions(half) if unit else half)
    return Halves(halves[0], halves[1], ids[enough])


def agreement(z_a: Labels, z_b: Labels) -> float:
    """Return the mutual information of two labelings, minus the value that is expected by chance.

    Examples
    --------
    >>> z = np.arange(100) % 2
    >>> round(agreement(z, z), 3), abs(round(agreement(z, np.arange(100) // 2 % 2), 3))
    (0.688, 0.005)
    """
    z_a, z_b = np.unique(z_a, return_inverse=True)[1], np.unique(z_b, return_inverse=True)[1]
    shape = (int(z_a.max()) + 1, int(z_b.max()) + 1)
    table = sp.csr_matrix((np.ones(len(z_a), np.int64), (z_a, z_b)), shape=shape)
    found = mutual_info_score(None, None, contingency=table)
    return float(found - expected_mutual_information(table, len(z_a)))


def matched_temperature(joint: NDArray[np.float64], rate: float) -> float:
    """Return the temperature at which the mean probability of the most probable component is `rate`.

    Parameters
    ----------
    joint : ndarray of shape (n_samples, n_components)
        Log-joint of rows and components.
    rate : float
        Share of the rows for which the most probable component is right.

    Returns
    -------
    float
        From 1 to 4096.

    Examples
    --------
    >>> joint = 40 * np.log([[0.7, 0.3]] * 10)
    >>> round(matched_temperature(joint, 0.7), 3)
    40.0
    """

    def excess(log_temperature: float) -> float:
        return float(softmax(joint / np.exp(log_temperature), axis=1).max(axis=1).mean() - rate)

    low, high = 0.0, np.log(_HOTTEST)
    if excess(low) <= 0:
        return 1.0
    if excess(high) >= 0:
        return _HOTTEST
    return float(np.exp(brentq(excess, low, high, xtol=1e-6)))


def spread(joint: NDArray[np.float64]) -> float:
    """Return the mean distance of the log-joint of the best component from the mean of all components.

    Examples
    --------
    >>> spread(np.array([[0.0, 4.0]]))
    2.0
    """
    return float(np.mean(joint.max(axis=1) - joint.mean(axis=1)))
