"""How many components: the number that gives rows which were held out the highest density."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_PATIENCE = 2  # numbers tried in vain before the search turns back


class Selection(NamedTuple):
    """Numbers of components that were tried, in order, their mean held-out log-densities, and the one to take."""

    candidates: np.ndarray
    scores: np.ndarray
    best: int


def search_components(score: Callable[[int], np.ndarray], most: int) -> Selection:
    """Try 1, 2, 3, 4, 6, 8, 12, 16, ... until it no longer helps, then halve the steps around the best.

    Taken is the smallest number that is not clearly worse than the best: by no more than one standard error of the
    mean difference of the same rows.

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
    known: dict[int, np.ndarray] = {}

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
