"""Slice sampling of a single number: exact, without a step size to tune (Neal 2003).

A level is drawn uniformly below the density at the current value. An interval around the value is widened until the
density at both ends is below the level. Then points are drawn from it until the density at one is above the level;
each point that is rejected becomes an end of the interval.

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
    """Take a step that leaves the density of a number invariant.

    Parameters
    ----------
    log_density : callable
        Log-density up to a constant; minus infinity where the density is zero.
    value : float
        The current value, where the density is positive.
    width : float
        First guess of the width of the density; a bad guess costs evaluations but not exactness.
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
    # The number of widenings is split at random between the sides; otherwise the step would not be reversible.
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
        if moved == value:  # the interval has shrunk to rounding error
            return value
        low, high = (moved, high) if moved < value else (low, moved)
