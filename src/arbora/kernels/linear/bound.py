"""The best shift of Bouchard's bound, row by row.

With scores of means m_n and variances v_n and widths x_n = sqrt(v_n + (m_n - b)^2), the bound of a row is, without
the term of its label (see `arbora.infer.tree.bouchard`),

    (n_classes/2 - 1) b - sum_n log(2 cosh(x_n/2)),

concave in the shift b. One pass over the classes of a row gives its value, slope and curvature, with one exponential
per class and one logarithm for all of them, that of a product of numbers between 1 and 2.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb

_LONGEST = 10.0  # Newton's step over the safe one: slope over the curvature with fixed widths, never too long
_SMALL = 1e-4  # below this width the series are exact
_ROUNDING = 1e-15  # relative error of a value
_MOST_FACTORS = 512  # of a product of numbers up to 2, without overflow


@nb.njit(cache=True, nogil=True, inline="always")
def _walk(mean, variance, shift):  # type: ignore[no-untyped-def]
    """Return value, slope, curvature with widths that depend on the shift, and with fixed widths, of one row."""
    n_classes = len(mean)
    half, logs, product = 0.0, 0.0, 1.0
    slope, bend, weight = 0.5 * n_classes - 1.0, 0.0, 0.0
    for n in range(n_classes):
        away = mean[n] - shift
        x2 = variance[n] + away * away
        x = math.sqrt(x2)
        e = math.exp(-x)
        half += x
        product *= 1.0 + e
        if n % _MOST_FACTORS == _MOST_FACTORS - 1:
            logs += math.log(product)
            product = 1.0
        if x < _SMALL:
            c, b = 0.25 - x2 / 48.0, 0.25
        else:
            c = (1.0 - e) / (1.0 + e) / (2.0 * x)
            share = min(variance[n] / x2, 1.0)
            b = share * c + (1.0 - share) * e / ((1.0 + e) * (1.0 + e))
        slope += c * away
        bend += b
        weight += c
    value = (0.5 * n_classes - 1.0) * shift - 0.5 * half - logs - math.log(product)
    return value, slope, bend, weight


@nb.njit(cache=True, nogil=True)
def tighten_shifts(mean, variance, shift, n_steps, values):  # type: ignore[no-untyped-def]
    """Move the shifts of all rows towards the optimum, in place, and write the values of the bound there.

    Newton's steps between shifts known to be too low and too high; a step that lowers the bound is not kept.
    """
    tiny = np.finfo(np.float64).tiny
    for i in range(len(shift)):
        at, low, high = shift[i], -np.inf, np.inf
        value, slope, bend, weight = _walk(mean[i], variance[i], at)
        best, best_value, flattest = at, value, abs(slope)
        for _ in range(n_steps):
            if slope > 0:
                low = at
            elif slope < 0:
                high = at
            careful = slope / weight
            longest = _LONGEST * abs(careful)
            new = at + min(max(slope / max(bend, tiny), -longest), longest)
            if not (low <= new <= high):
                new = 0.5 * (low + high) if low > -np.inf and high < np.inf else at + careful
            if new == at:
                break
            at = new
            value, slope, bend, weight = _walk(mean[i], variance[i], at)
            # Near the optimum the values differ only by rounding errors, so the slope decides.
            if value > best_value or (abs(slope) < flattest and value >= best_value - _ROUNDING * abs(value)):
                best, best_value, flattest = at, value, abs(slope)
        shift[i], values[i] = best, best_value
