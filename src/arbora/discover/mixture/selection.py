"""Selection of the number of components, and calibration of the probabilities of components.

- **halves**, for rows that are made of words: mixtures of K = 2, 3, 4, 6, 8, 12, ... components are fitted to a half
  of the rows, at most 2,500. M(K) is the agreement of the components of the two halves of the words of other rows
  (see below), of two random divisions, smoothed over neighbouring K by (1/4, 1/2, 1/4). The smallest K with M
  at least 0.8 of its maximum is selected; K is at most max(8, sqrt(N) / 2).
- **density**, for all other rows: the number with the highest density of held-out rows. In rows of words it keeps
  rising with K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn.metrics.cluster import expected_mutual_information, mutual_info_score

from arbora.arrays import Array, Ints, Matrix
from arbora.discover.mixture.rows import UnitRows, as_rows, select_rows
from arbora.discover.mixture.starts import unit_directions
from arbora.infer.mixture.statistics import WeightedRows

# --- Halves of the words of documents: how much a part of a document says about the rest of it --------------
#
# The features of a row (the words of a text) are divided at random into two halves A and B, each scaled to unit
# length. The components of the halves, :math:`z_A` and :math:`z_B`, come from different words of the same document.
# Components that describe subjects agree; components that describe accidents of single words do not. This measures
# two things:
#
# **The number of components.** :math:`M(K) = \mathrm{MI}(z_A; z_B) - E[\mathrm{MI}]`, the mutual information minus
# the value that is expected by chance, grows with K as long as components describe subjects, and falls when a
# component is too narrow for half of a document.
#
# **The temperature of probabilities.** A text has far fewer degrees of freedom than features, so that posterior
# probabilities of a mixture are nearly all 0 or 1. Let :math:`j_{ik}` be the log-joint of half A of document i and
# component k, and :math:`p_{ik}(T) \propto e^{j_{ik} / T}`. T is the temperature at which the mean confidence is the
# rate of agreement,
#
# .. math:: \frac1n \sum_i \max_k p_{ik}(T) = \frac1n \sum_i [z_{A_i} = z_{B_i}],
#
# for documents that the mixture was not fitted to: a component that half of a document has with probability 0.7 is
# that of the other half in about 7 of 10 documents. The most probable component is the same at any T.


_MIN_WORDS = 4  # of a row that is divided
_MAX_DENSITY = 0.25  # largest share of the entries of X that are not zero; rows of a denser X have no words
_MAX_ROWS = 1500
_MAX_TEMPERATURE = 4096.0


class Halves(NamedTuple):
    """Two halves of the same rows, each of unit length, and the numbers of the rows."""

    A: sp.csr_array
    B: sp.csr_array
    ids: Ints


def has_words(X: Any) -> bool:
    """Return whether rows are made of words: sparse, not negative, with some features in most rows."""
    if isinstance(X, UnitRows):  # rows in a file: look at the first ones
        X = X[slice(0, min(X.shape[0], _MAX_ROWS))]
    n_samples, n_features = X.shape
    if X.nnz > _MAX_DENSITY * n_samples * n_features or (X.nnz and X.data.min() < 0):
        return False
    return bool(np.median(np.diff(X.indptr)) >= _MIN_WORDS)


def draw_halves(X: Any, ids: Ints, rng: np.random.Generator, unit: bool = True) -> Halves:
    """Divide the features of rows at random; of the first 1,500 `ids`, the rows with at least 4 features.

    `ids` are in random order. With `unit`, the halves are scaled to unit length.
    """
    ids = np.sort(ids[:_MAX_ROWS])
    rows = select_rows(X, ids)
    rows = rows[slice(0, rows.shape[0])] if isinstance(rows, UnitRows) else rows
    enough = np.flatnonzero(np.diff(rows.indptr) >= _MIN_WORDS)
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


def agreement(z_a: Ints, z_b: Ints) -> float:
    """Return the mutual information of two labelings, minus the value that is expected by chance."""
    z_a, z_b = np.unique(z_a, return_inverse=True)[1], np.unique(z_b, return_inverse=True)[1]
    shape = (int(z_a.max()) + 1, int(z_b.max()) + 1)
    table = sp.csr_matrix((np.ones(len(z_a), np.int64), (z_a, z_b)), shape=shape)
    information = mutual_info_score(None, None, contingency=table)
    return float(information - expected_mutual_information(table, len(z_a)))


def matched_temperature(joint: Array, rate: float) -> float:
    """Return the temperature from 1 to 4096 at which the most probable component has the mean probability `rate`.

    `joint` is the log-joint of rows and components; `rate` is the share of rows whose most probable component is
    right.
    """

    def excess(log_temperature: float) -> float:
        return float(softmax(joint / np.exp(log_temperature), axis=1).max(axis=1).mean() - rate)

    low, high = 0.0, np.log(_MAX_TEMPERATURE)
    if excess(low) <= 0:
        return 1.0
    if excess(high) >= 0:
        return _MAX_TEMPERATURE
    return float(np.exp(brentq(excess, low, high, xtol=1e-6)))


def spread(joint: Array) -> float:
    """Return the mean distance of the log-joint of the best component from the mean of all components.

    Examples
    --------
    >>> spread(np.array([[0.0, 4.0]]))
    2.0
    """
    return float(np.mean(joint.max(axis=1) - joint.mean(axis=1)))


# --- Selection of the number of components, and calibration of the probabilities of components --------------


_MAX_FITTED = 2500  # rows of the fits whose halves are compared
CALIBRATION_SHARE = 0.8  # of the rows that a mixture is fitted to for the calibration
N_DIVISIONS = 2  # random divisions of the words
_ENOUGH = 0.8  # of the largest agreement of halves
_FEW_COMPONENTS = 8  # that may be selected for any number of rows
_PATIENCE = 2  # numbers tried without an improvement before the search narrows down
_HELD_OUT = 0.2  # share of the rows that is held out


class Selection(NamedTuple):
    """Numbers of components that were tried, in order, their scores, the selected one, and the criterion."""

    candidates: Ints
    scores: Array
    best: int
    criterion: str = "density"

    def as_dict(self) -> dict[str, Any]:
        """Return what users see: the numbers, their scores and the criterion."""
        return {"n_components": self.candidates, "score": self.scores, "criterion": self.criterion}


def search_components(score: Callable[[int], Array], max_components: int) -> Selection:
    """Try 1, 2, 3, 4, 6, 8, 12, 16, ... until it no longer helps, then halve the steps around the best.

    `score(k)` returns held-out log-densities of the rows. The smallest number up to `max_components` is selected that
    is not clearly worse than the best: by no more than one standard error of the mean difference over the same rows.
    """
    scores: dict[int, Array] = {}

    def best() -> int:
        return max(scores, key=lambda k: (scores[k].mean(), -k))

    k = 1
    while k <= max_components:
        scores[k] = score(k)
        if len(scores) > _PATIENCE and best() <= sorted(scores)[-1 - _PATIENCE]:
            break
        k += max(1, 2 ** int(np.log2(k)) // 2)
    while True:
        tried, centre = sorted(scores), best()
        place = tried.index(centre)
        neighbours = (*tried[max(place - 1, 0) : place], *tried[place + 1 : place + 2])
        around = [(centre + other) // 2 for other in neighbours]
        fresh = [k for k in dict.fromkeys(around) if k not in scores]
        if not fresh:
            break
        scores |= {k: score(k) for k in fresh}
    tried, top = sorted(scores), scores[best()]

    def enough(k: int) -> bool:
        behind = top - scores[k]
        return bool(behind.mean() <= behind.std() / np.sqrt(len(behind)))

    means = np.array([scores[k].mean() for k in tried])
    return Selection(np.array(tried), means, next(k for k in tried if enough(k)))


def grid(max_components: int) -> list[int]:
    """Return the numbers of components 2, 3, 4, 6, 8, 12, 16, 24, ... up to `max_components`."""
    numbers, k = [], 2
    while k <= max_components:
        numbers.append(k)
        k += max(1, 2 ** int(np.log2(k)) // 2)
    return numbers


def search_halves(score: Callable[[int], float], max_components: int) -> Selection:
    """Return the smallest number of components whose smoothed score is at least 0.8 of the largest.

    `score(k)` is the agreement of halves. The search ends at `max_components`, or when the score has not risen
    for two numbers. The scores of the selection are smoothed.
    """
    tried: list[int] = []
    scores: list[float] = []
    for k in grid(max_components):
        tried.append(k)
        scores.append(score(k))
        if len(scores) > _PATIENCE and max(scores[-_PATIENCE:]) <= max(scores[:-_PATIENCE]):
            break
    if not tried:
        return Selection(np.array([1]), np.zeros(1), 1, "halves")
    around = np.pad(np.array(scores), 1, mode="edge")
    smooth = (around[:-2] + 2 * around[1:-1] + around[2:]) / 4
    if smooth.max() <= 0:  # no number of components describes more than chance
        return Selection(np.array(tried), smooth, tried[0], "halves")
    enough = smooth >= _ENOUGH * smooth.max()
    return Selection(np.array(tried), smooth, tried[int(np.argmax(enough))], "halves")


class Parts(NamedTuple):
    """Rows to fit to in working precision, and the numbers of these and of the other rows, in random order."""

    rows: WeightedRows
    fitted: Ints
    others: Ints


def divide_rows(X: Any, weight: Matrix, share: float, dtype: Any, rng: np.random.Generator) -> Parts:
    """Draw a share of the rows of positive weight, at most 2,500, for a fit whose halves are compared."""
    order = rng.permutation(np.flatnonzero(weight))
    fitted, others = np.split(order, [min(int(share * len(order)), _MAX_FITTED)])
    ids = np.sort(fitted)
    return Parts(as_rows(select_rows(X, ids), weight[ids], dtype), fitted, others)


def hold_out_rows(X: Any, weight: Matrix, dtype: Any, rng: np.random.Generator) -> Parts:
    """Draw a fifth of the rows of positive weight whose density is compared; the rest is fitted to."""
    order = rng.permutation(np.flatnonzero(weight))
    others, fitted = np.split(order, [max(1, int(_HELD_OUT * len(order)))])
    return Parts(as_rows(select_rows(X, fitted), weight[fitted], dtype), fitted, others)


def max_by_halves(n_rows: int, n_fitted: int) -> int:
    """Return the largest number of components to try for rows of words."""
    return min(max(_FEW_COMPONENTS, int(np.sqrt(n_rows) / 2)), n_fitted // 2)


def agreement_rate(first: Array, second: Array) -> float:
    """Return the share of rows whose most probable component is the same in two log-joints."""
    return float(np.mean(first.argmax(axis=1) == second.argmax(axis=1)))
