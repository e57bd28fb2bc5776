"""Quadratic bounds of the softmax and of the logistic likelihood under Gaussian scores.

Bouchard (2007) bounds the normaliser of a softmax over n_classes scores g_n, for any b and any x_n >= 0, by

    log sum_n e^{g_n} <= b + sum_n [(g_n - b - x_n)/2 + l(x_n) ((g_n - b)^2 - x_n^2) + log(1 + e^{x_n})],
    l(x) = (sigmoid(x) - 1/2) / (2 x)

(**erratum**: (A.5) of S. Gopal's thesis (2014) prints log(1 + x^2) for the last term once). Each term is Jaakkola and
Jordan's bound of log(1 + e^{g_n - b}): with b = 0, and without the leading b, it bounds independent logistic losses.

For scores with means m_n and variances v_n the expected bound is smallest at

    x_n^2 = v_n + (m_n - b)^2                  (**erratum**: the papers print diag(tau/nu) for the covariance in v_n)
    b = ((n_classes/2 - 1)/2 + sum_n l(x_n) m_n) / sum_n l(x_n)

With this x the bound is, for f(x) = log(2 cosh(x/2)) and y the indicator of the label,

    E log p(y | g) >= sum_n (y_n - 1/2) m_n - (1 - n_classes/2) b - sum_n f(x_n),

a concave function of b. `local_step` maximises it by Newton steps inside a shrinking interval. All functions work on
arrays of rows x classes.

In the weights of a class the bound is the quadratic -1/2 w'Gw + h.w with

    G = sum_x 2 l(x_xn) x x',        h = sum_x (y_n - 1/2 + 2 l b) x.

`weighted_grams` and `quadratic_forms` compute all G, and all v_n = x'Psi_n x, by one product with the pairs of
features. This takes half the multiplications of one product per class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from arbora.arrays import TINY, Array
from arbora.kernels.linear.softmax import tighten_shifts

_SMALL = 1e-4  # below this the series of l(x) is exact
_MAX_PAIRS = 1 << 13


class Local(NamedTuple):
    """Local parameters of some rows: b, x, and the value of the bound without its linear term."""

    shift: Array  # (n_rows,)
    width: Array  # (n_rows, n_classes)
    value: Array  # (n_rows,)


def curvature(width: Array) -> Array:
    """Twice l(x): the curvature of the bound."""
    safe = np.maximum(width, _SMALL)
    return np.asarray(np.where(width < _SMALL, 0.25 - width**2 / 48, np.tanh(safe / 2) / (2 * safe)))


def log_2cosh_half(width: Array) -> Array:
    """Compute f(x) = log(2 cosh(x/2)) for x >= 0."""
    return np.asarray(width / 2 + np.log1p(np.exp(-width)))


def optimal_width(mean: Array, variance: Array, shift: Array) -> Array:
    """Return the x of the tightest bound for scores with given means and variances."""
    return np.sqrt(variance + (mean - shift[:, None]) ** 2)


def collapsed_curvature(mean: Array, variance: Array, local: Local) -> Array:
    """Second derivative of the bound by the mean, at the optimal x of every mean: at most `curvature`."""
    x2 = np.maximum(local.width**2, TINY)
    e = np.exp(-local.width)
    share = np.minimum(variance / x2, 1.0)
    return np.asarray(
        np.where(x2 < _SMALL**2, 0.25, share * curvature(local.width) + (1 - share) * e / (1 + e) ** 2)
    )


def local_step(mean: Array, variance: Array, shift: Array | None, n_steps: int = 3) -> Local:
    """Best local parameters for scores with given means and variances (n_rows, n_classes).

    `shift` (n_rows,) is where to start; None for the logistic likelihood, which has no shift. None of at most
    `n_steps` steps towards the best shift lowers the bound.
    """
    if shift is None:
        zero = np.zeros(len(mean))
        width = optimal_width(mean, variance, zero)
        return Local(zero, width, -log_2cosh_half(width).sum(axis=1))
    best, value = np.array(shift, np.float64), np.empty(len(mean))
    tighten_shifts(mean, variance, best, n_steps, value)
    return Local(best, optimal_width(mean, variance, best), value)


def bound_probabilities(mean: Array, variance: Array, local: Local) -> Array:
    """Probabilities of the classes that the bound implies: 1/2 + 2 l(x_n) (m_n - b).

    In the gradient of the bound they take the place of the softmax probabilities in that of the likelihood. At the
    best b they sum to 1.
    """
    x, distance = np.maximum(local.width, TINY), mean - local.shift[:, None]
    # The smaller of p and 1 - p, without the cancellation of the formula above.
    tail = variance / (2 * x * np.maximum(x + np.abs(distance), TINY))
    small = np.exp(-x) / (1 + np.exp(-x)) + np.tanh(x / 2) * np.where(local.width > 0, tail, 0.0)
    return np.asarray(np.where(distance > 0, 1 - small, small))


def _pair_blocks(n_features: int) -> Iterator[tuple[int, int, slice]]:
    """Divide the first features into runs; yield them with the place of their pairs (i, j >= i) in packed order."""
    first, start = 0, 0
    while first < n_features:
        stop, size = first, 0
        while stop < n_features and (stop == first or size + n_features - stop <= _MAX_PAIRS):
            size += n_features - stop
            stop += 1
        yield first, stop, slice(start, start + size)
        first, start = stop, start + size


def _pair_products(columns: Array, first: int, stop: int) -> Array:
    """Products of the features first .. stop - 1 with themselves and all later ones: (n_pairs, n_rows)."""
    n_features = len(columns)
    products = np.empty((sum(n_features - i for i in range(first, stop)), columns.shape[1]))
    start = 0
    for i in range(first, stop):
        np.multiply(columns[i], columns[i:], out=products[start : start + n_features - i])
        start += n_features - i
    return products


def weighted_grams(columns: Array, weight: Array) -> Array:
    """Compute X' diag(weight_n) X for every class n, as upper triangles, packed row by row.

    `columns` (n_features, n_rows) is X', `weight` is (n_rows, n_classes), the result (n_features (n_features + 1) /
    2, n_classes).
    """
    n_features = len(columns)
    packed = np.empty((n_features * (n_features + 1) // 2, weight.shape[1]))
    for first, stop, place in _pair_blocks(n_features):
        np.matmul(_pair_products(columns, first, stop), weight, out=packed[place])
    return packed


def quadratic_forms(columns: Array, packed: Array) -> Array:
    """Compute x'Psi_n x for every row and class, Psi_n packed by `pack_symmetric`: (n_rows, n_classes)."""
    total = np.zeros((columns.shape[1], packed.shape[1]))
    for first, stop, place in _pair_blocks(len(columns)):
        total += _pair_products(columns, first, stop).T @ packed[place]
    return np.maximum(total, 0.0)


def unpack_symmetric(packed: Array, n_features: int) -> Array:
    """Full matrices (n_classes, n_features, n_features) of packed upper triangles."""
    i, j = np.triu_indices(n_features)
    full = np.empty((packed.shape[1], n_features, n_features))
    full[:, i, j] = full[:, j, i] = packed.T
    return full


def pack_symmetric(matrices: Array) -> Array:
    """Upper triangles with doubled off-diagonals, one column per matrix, so that x'Ax is a product with the pairs."""
    i, j = np.triu_indices(matrices.shape[1])
    return np.ascontiguousarray((matrices[:, i, j] * np.where(i == j, 1.0, 2.0)).T)
