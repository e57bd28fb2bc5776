"""Selection of the number of components: the number with the highest density of held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.discover._mixture.memory_mapped import select_rows
from arbora.discover._mixture.prediction import map_chunks
from arbora.discover._mixture.rows import as_rows

if TYPE_CHECKING:
    from arbora.discover._mixture.base import Mixture

_PATIENCE = 2  # numbers tried without an improvement before the search narrows down
_HELD_OUT = 0.2  # share of the rows that is held out


class Selection(NamedTuple):
    """Numbers of components that were tried, in order, their mean held-out log-densities, and the selected one."""

    candidates: NDArray[np.int64]
    scores: NDArray[np.float64]
    best: int


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


def select_components(mixture: Mixture, X: Any, weight: NDArray[Any], seed: int, engine: Engine) -> Selection:
    """Select the number of components of a mixture by the density of rows that are held out."""
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
    order = np.random.default_rng(seed).permutation(kept)
    out, rest = np.split(order, [max(1, int(_HELD_OUT * len(order)))])
    rows = as_rows(select_rows(X, rest), weight[rest], np.dtype(mixture.dtype))
    held_out = select_rows(X, out)

    def score(n_components: int) -> NDArray[np.float64]:
        params = mixture._solve(rows, mixture.init, n_components, seed, engine).params
        scores = map_chunks(lambda part: mixture._density(params, part), held_out, engine)
        return np.asarray(scores * weight[out] / weight[out].mean())

    return search_components(score, max(1, len(rest) // 2))
