"""Slice sampling of a single number: exact, and without a step size that must be right (Neal 2003).

A level is drawn uniformly under the density at the present value; an interval around the value is widened until both
ends lie below the level; then points are drawn from it until one lies above, and each that does not becomes an end.

References
----------
R. M. Neal (2003). Slice sampling. Annals of Statistics 31(3).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_MOST_WIDENINGS = 50


def slice_step(
    log_density: Callable[[float], float], value: float, width: float, rng: np.random.Generator
) -> float:
    """Move a number such that its density is left invariant.

    Parameters
    ----------
    log_density : callable
        Up to a constant; minus infinity where there is no density.
    value : float
        The present value, where the density is positive.
    width : float
        First guess of how wide the density is; a bad one costs evaluations, not exactness.
    rng : numpy.random.Generator

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, draws = 1.0, []
    >>> for _ in range(4000):  # the exponential distribution
    ...     x = slice_step(lambda x: -x if x > 0 else -np.inf, x, 2.0, rng)
    ...     draws.append(x)
    >>> bool(abs(np.mean(draws) - 1) < 0.1)
    True
    """
    level = log_density(value) - rng.standard_exponential()
    low = value - width * rng.random()
    high = low + width
    # The bound on the widenings is shared out at random, without which the step could not be reversed.
    left = int(rng.integers(_MOST_WIDENINGS))
    right = _MOST_WIDENINGS - 1 - left
    while left > 0 and log_density(low) > level:
        low, left = low - width, left - 1
    while right > 0 and log_density(high) > level:
        high, right = high + width, right - 1
    while True:
        moved = float(rng.uniform(low, high))
        if log_density(moved) > level:
            return moved
        if moved == value:  # the interval has shrunk to rounding
            return value
        low, high = (moved, high) if moved < value else (low, moved)
