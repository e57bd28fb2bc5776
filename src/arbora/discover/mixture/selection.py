"""Selection of the number of components, and calibration of the probabilities of components.

- **halves**, for rows that are made of words: mixtures of K = 2, 3, 4, 6, 8, 12, ... components are fitted to a half
  of the rows, at most 2,500. M(K) is the agreement of the components of the two halves of the words of other rows
  (see `word_halves`), of two random divisions, smoothed over neighbouring K by (1/4, 1/2, 1/4). The smallest K with M
  at least 0.8 of its maximum is selected; K is at most max(8, sqrt(N) / 2).
- **density**, for all other rows: the number with the highest density of held-out rows. In rows of words it keeps
  rising with K.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn.metrics.cluster import expected_mutual_information, mutual_info_score

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.discover.mixture.prediction import map_chunks
from arbora.discover.mixture.rows import UnitRows, as_rows, select_rows
from arbora.discover.mixture.starts import unit_directions

if TYPE_CHECKING:
    from arbora.discover.mixture.base import Mixture


# --- Halves of the words of documents: how much a part of a document says about the rest of it --------------
#
# The features of a row (the words of a text) are divided at random into two halves A and B, each scaled to unit
# length. The components of the halves, :math:`z_A` and :math:`z_B`, come from different words of the same document.
# Components that describe subjects agree; components that describe accidents of single words do not. This measures
# two things:
#
# **The number of components.** :math:`M(K) = \mathrm{MI}(z_A; z_B) - E[\mathrm{MI}]`, the mutual information minus
# the value that is expected by chance, grows with K as long as components describe subjects, and falls when a
# component is too narrow for half of a document. See `selection`.
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


_LEAST_WORDS = 4  # of a row that is divided
_DENSEST = 0.25  # largest share of the entries of X that are not zero; rows of a denser X have no words
_MOST_ROWS = 1500
_HOTTEST = 4096.0


class Halves(NamedTuple):
    """Two halves of the same rows, each of unit length, and the numbers of the rows."""

    A: sp.csr_array
    B: sp.csr_array
    ids: Ints


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


def draw_halves(X: Any, ids: Ints, rng: np.random.Generator, unit: bool = True) -> Halves:
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


def agreement(z_a: Ints, z_b: Ints) -> float:
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


def matched_temperature(joint: Array, rate: float) -> float:
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


def spread(joint: Array) -> float:
    """Return the mean distance of the log-joint of the best component from the mean of all components.

    Examples
    --------
    >>> spread(np.array([[0.0, 4.0]]))
    2.0
    """
    return float(np.mean(joint.max(axis=1) - joint.mean(axis=1)))


# --- Selection of the number of components, and calibration of the probabilities of components --------------


_MOST_FITTED = 2500  # rows of the fits whose halves are compared
_CALIBRATION_SHARE = 0.8  # of the rows that a mixture is fitted to for the calibration
_DIVISIONS = 2  # random divisions of the words
_ENOUGH = 0.8  # of the largest agreement of halves
_FEW_COMPONENTS = 8  # that may be selected for any number of rows
_TOLERANCE = 1e-2  # of fits that are only compared
_ANNEALING_STEPS = 8  # of these fits
_PATIENCE = 2  # numbers tried without an improvement before the search narrows down
_HELD_OUT = 0.2  # share of the rows that is held out


class Selection(NamedTuple):
    """Numbers of components that were tried, in order, their scores, the selected one, and the criterion."""

    candidates: Ints
    scores: Array
    best: int
    criterion: str = "density"


def search_components(score: Callable[[int], Array], most: int) -> Selection:
    """Try 1, 2, 3, 4, 6, 8, 12, 16, ... until it no longer helps, then halve the steps around the best.

    The smallest number is selected that is not clearly worse than the best: by no more than one standard error of the
    mean difference over the same rows.

    Parameters
    ----------
    score : callable
        Held-out log-densities of the rows, given a number of components.
    most : int
        Largest number to try.

    Returns
    -------
    Selection

    Examples
    --------
    >>> search_components(lambda k: np.full(3, -abs(k - 7.0)), 100).best
    7
    """
    known: dict[int, Array] = {}

    def best() -> int:
        return max(known, key=lambda k: (known[k].mean(), -k))

    k = 1
    while k <= most:
        known[k] = score(k)
        if len(known) > _PATIENCE and best() <= sorted(known)[-1 - _PATIENCE]:
            break
        k += max(1, 2 ** int(np.log2(k)) // 2)
    while True:
        tried, centre = sorted(known), best()
        at = tried.index(centre)
        around = [(centre + other) // 2 for other in (*tried[max(at - 1, 0) : at], *tried[at + 1 : at + 2])]
        fresh = [k for k in dict.fromkeys(around) if k not in known]
        if not fresh:
            break
        known |= {k: score(k) for k in fresh}
    tried, top = sorted(known), known[best()]

    def enough(k: int) -> bool:
        behind = top - known[k]
        return bool(behind.mean() <= behind.std() / np.sqrt(len(behind)))

    scores = np.array([known[k].mean() for k in tried])
    return Selection(np.array(tried), scores, next(k for k in tried if enough(k)))


def grid(most: int) -> list[int]:
    """Return the numbers of components 2, 3, 4, 6, 8, 12, 16, 24, ... up to `most`.

    Examples
    --------
    >>> grid(20)
    [2, 3, 4, 6, 8, 12, 16]
    """
    found, k = [], 2
    while k <= most:
        found.append(k)
        k += max(1, 2 ** int(np.log2(k)) // 2)
    return found


def search_halves(score: Callable[[int], float], most: int) -> Selection:
    """Return the smallest number of components whose smoothed score is at least 0.8 of the largest.

    The search ends when the score has not risen for two numbers.

    Parameters
    ----------
    score : callable
        Agreement of halves, given a number of components.
    most : int
        Largest number to try.

    Returns
    -------
    Selection
        Its scores are smoothed.

    Examples
    --------
    >>> search_halves(lambda k: min(k, 12) / 12, 100).best
    12
    """
    tried: list[int] = []
    scores: list[float] = []
    for k in grid(most):
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


class HalfFits:
    """Mixtures fitted to a share of the rows, at most 2,500, and halves of the words of the other rows.

    Parameters
    ----------
    mixture : Mixture
    X : CSR array or rows in a file
        Rows without what the layout of the model adds to them.
    weight : ndarray of shape (n_samples,)
    seed : int
    engine : Engine
    share : float
        Share of the rows to fit to.
    """

    def __init__(
        self,
        mixture: Mixture,
        X: Any,
        weight: Matrix,
        seed: int,
        engine: Engine,
        share: float = 0.5,
    ) -> None:
        self.selector, self.seed, self.engine = quick(mixture._selector()), seed, engine
        self.rng = np.random.default_rng([seed, 2])
        order = self.rng.permutation(np.flatnonzero(weight))
        self.fitted, self.others = np.split(order, [min(int(share * len(order)), _MOST_FITTED)])
        self.X, self.weight = X, weight
        fitted = np.sort(self.fitted)
        self.rows = as_rows(select_rows(X, fitted), weight[fitted], np.dtype(mixture.dtype))

    def fit(self, n_components: int) -> Any:
        """Return the parameters of a mixture of the fitted rows."""
        n_components = min(n_components, self.rows.X.shape[0])
        init = (
            "annealed"
            if isinstance(self.selector.init, str) and self.selector.init == "annealed"
            else "k-means++"
        )
        return self.selector._solve(self.rows, init, n_components, self.seed, self.engine).params

    def halves(self, ids: Ints) -> Halves:
        """Divide the words of some rows."""
        return draw_halves(self.X, ids, self.rng, self.selector._unit_rows)


def quick(selector: Mixture) -> Mixture:
    """Return a copy of a mixture for fits that are only compared."""
    fast = copy(selector)
    fast.tol, fast.n_init, fast.verbose, fast.batch_size = max(selector.tol, _TOLERANCE), 1, 0, None
    if hasattr(fast, "annealing_steps"):
        fast.annealing_steps = min(fast.annealing_steps, _ANNEALING_STEPS)
    return fast


def select_by_halves(mixture: Mixture, X: Any, weight: Matrix, seed: int, engine: Engine) -> Selection:
    """Select the number of components of a mixture by the agreement of halves of the words."""
    fits = HalfFits(mixture, X, weight, seed, engine)
    divisions = [fits.halves(fits.others) for _ in range(_DIVISIONS)]
    divisions = [halves for halves in divisions if halves.A.shape[0]]
    n_rows = int(np.count_nonzero(weight))
    most = min(max(_FEW_COMPONENTS, int(np.sqrt(n_rows) / 2)), fits.rows.X.shape[0] // 2)

    def score(n_components: int) -> float:
        params = fits.fit(n_components)
        labels = [
            [fits.selector._log_joint(params, half).argmax(axis=1) for half in halves[:2]]
            for halves in divisions
        ]
        return float(np.mean([agreement(*pair) for pair in labels])) if labels else 0.0

    return search_halves(score, most)


def calibrated_temperature(
    mixture: Mixture, params: Any, X: Any, weight: Matrix, seed: int, engine: Engine
) -> float:
    """Return the temperature of the probabilities of a fitted mixture; 1 for rows that are not made of words.

    It is measured for a mixture with as many components that is fitted to four fifths of the rows (at most 2,500), on
    halves of the words of other rows. If that mixture is of another kind, the temperature is multiplied by the ratio
    of the spreads of the log-joint in the two mixtures.

    Parameters
    ----------
    mixture : Mixture
    params : named tuple
    X : rows in the layout of the model
    weight : ndarray of shape (n_samples,)
    seed : int
    engine : Engine

    Returns
    -------
    float
        At least 1.
    """
    plain = mixture._plain_rows(X)
    if mixture.calibration is None or mixture.n_components_ == 1 or not has_words(plain):
        return 1.0
    fits = HalfFits(mixture, plain, weight, seed, engine, _CALIBRATION_SHARE)
    own, other = fits.halves(fits.fitted), fits.halves(fits.others)
    if not (own.A.shape[0] and other.A.shape[0]):
        return 1.0
    known = fits.fit(mixture.n_components_)
    first, second = (fits.selector._log_joint(known, half) for half in other[:2])
    found = matched_temperature(first, float(np.mean(first.argmax(axis=1) == second.argmax(axis=1))))
    if type(fits.selector) is not type(mixture):
        placed = mixture._log_joint(params, mixture._place_halves(own, X)[0])
        found *= spread(placed) / max(spread(fits.selector._log_joint(known, own.A)), 1e-300)
    return max(1.0, found)


def select_components(mixture: Mixture, X: Any, weight: Matrix, seed: int, engine: Engine) -> Selection:
    """Select the number of components of a mixture by the parameter `selection`."""
    if not isinstance(mixture.init, str):
        raise ValueError(
            "n_components='auto' needs init='k-means++' or 'random': given labels or means fix the number."
        )
    kept = np.flatnonzero(weight)
    if len(kept) < 3:
        raise ValueError(
            f"n_components='auto' holds rows out and needs at least 3 rows, got n_samples={len(kept)}: give more "
            "rows or a number of components."
        )
    plain = mixture._plain_rows(X)
    if mixture.selection == "halves" or (mixture.selection == "auto" and has_words(plain)):
        return select_by_halves(mixture, plain, weight, seed, engine)
    return select_by_density(mixture, X, weight, seed, engine)


def select_by_density(mixture: Mixture, X: Any, weight: Matrix, seed: int, engine: Engine) -> Selection:
    """Select the number of components of a mixture by the density of rows that are held out."""
    order = np.random.default_rng(seed).permutation(np.flatnonzero(weight))
    out, rest = np.split(order, [max(1, int(_HELD_OUT * len(order)))])
    rows = as_rows(select_rows(X, rest), weight[rest], np.dtype(mixture.dtype))
    held_out = select_rows(X, out)

    def score(n_components: int) -> Array:
        params = mixture._solve(rows, mixture.init, n_components, seed, engine).params
        scores = map_chunks(lambda part: mixture._density(params, part), held_out, engine)
        return np.asarray(scores * weight[out] / weight[out].mean())

    return search_components(score, max(1, len(rest) // 2))
