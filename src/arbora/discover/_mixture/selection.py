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
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.discover._mixture.prediction import map_chunks
from arbora.discover._mixture.word_halves import (
    Halves,
    agreement,
    draw_halves,
    has_words,
    matched_temperature,
    spread,
)
from arbora.discover.mixture.rows import as_rows, select_rows

if TYPE_CHECKING:
    from arbora.discover._mixture.base import Mixture

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

    candidates: NDArray[np.int64]
    scores: NDArray[np.float64]
    best: int
    criterion: str = "density"


def search_components(score: Callable[[int], NDArray[np.float64]], most: int) -> Selection:
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
    known: dict[int, NDArray[np.float64]] = {}

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
        weight: NDArray[Any],
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

    def halves(self, ids: NDArray[np.int64]) -> Halves:
        """Divide the words of some rows."""
        return draw_halves(self.X, ids, self.rng, self.selector._unit_rows)


def quick(selector: Mixture) -> Mixture:
    """Return a copy of a mixture for fits that are only compared."""
    fast = copy(selector)
    fast.tol, fast.n_init, fast.verbose, fast.batch_size = max(selector.tol, _TOLERANCE), 1, 0, None
    if hasattr(fast, "annealing_steps"):
        fast.annealing_steps = min(fast.annealing_steps, _ANNEALING_STEPS)
    return fast


def select_by_halves(mixture: Mixture, X: Any, weight: NDArray[Any], seed: int, engine: Engine) -> Selection:
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
    mixture: Mixture, params: Any, X: Any, weight: NDArray[Any], seed: int, engine: Engine
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


def select_components(mixture: Mixture, X: Any, weight: NDArray[Any], seed: int, engine: Engine) -> Selection:
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


def select_by_density(mixture: Mixture, X: Any, weight: NDArray[Any], seed: int, engine: Engine) -> Selection:
    """Select the number of components of a mixture by the density of rows that are held out."""
    order = np.random.default_rng(seed).permutation(np.flatnonzero(weight))
    out, rest = np.split(order, [max(1, int(_HELD_OUT * len(order)))])
    rows = as_rows(select_rows(X, rest), weight[rest], np.dtype(mixture.dtype))
    held_out = select_rows(X, out)

    def score(n_components: int) -> NDArray[np.float64]:
        params = mixture._solve(rows, mixture.init, n_components, seed, engine).params
        scores = map_chunks(lambda part: mixture._density(params, part), held_out, engine)
        return np.asarray(scores * weight[out] / weight[out].mean())

    return search_components(score, max(1, len(rest) // 2))
