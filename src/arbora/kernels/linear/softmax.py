"""Softmax of many classes, row by row: coordinate ascent in the dual, and its step.

With costs c_i and weights W = Z F (F the shares of the classes in the parts Z, the identity for flat classes), the
problem and its dual, over a distribution p_i for every row, are

    min_Z  P(Z) = 1/2 ||Z||^2 + sum_i c_i (log sum_k exp(s_ik) - s_iy),      s_i = W'x_i,
    max_p  D(p) = -1/2 ||Z||^2 - sum_ik c_i p_ik log p_ik,                   Z = sum_i c_i x_i (F (e_y - p_i))',

and their difference is sum_i c_i KL(p_i || softmax(s_i)), with non-negative summands. A visit of row i maximises
the dual over p_i, with the covariance F'F of the classes replaced by the larger diagonal matrix of its row sums t
(which is equal for flat classes). The maximiser solves, with a_k = c_i ||x_i||^2 t_k,

    log p_k + a_k p_k = s_k + a_k p_k(old) - nu,        sum_k p_k = 1,

for all logarithms and nu together, by Newton's method, with one exponential per class and step. The same equation is
the proximal step of the loss. Distributions are stored as logarithms.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST, add_row

_LOG2_E = 1.4426950408889634
_MIN_EXPONENT = -87.0  # smallest argument of an exponential function in single precision
_ROUND = 12582912.0  # 1.5 * 2^23: added to a small float32, it leaves the nearest integer in the last bits
_ROUND_BITS = 0x4B400000
# Taylor coefficients of 2^f for |f| <= 1/2
_C1, _C2, _C3 = 0.6931471805599453, 0.2402265069591007, 0.05550410866482158
_C4, _C5, _C6 = 0.009618129107628477, 0.0013333558146428443, 0.00015403530393381608


@nb.njit(**FAST)
def exp_row(x, out, bits):  # type: ignore[no-untyped-def]
    """Write exp(x) into out. In float32, x is clipped at -87, and the loops compile to SIMD instructions.

    `bits` is scratch: int32, as long as x.
    """
    if x.itemsize == 8:
        for k in range(len(x)):
            out[k] = math.exp(x[k])
        return
    one, lowest, log2_e, shift = (
        np.float32(1),
        np.float32(_MIN_EXPONENT),
        np.float32(_LOG2_E),
        np.float32(_ROUND),
    )
    c1, c2, c3 = np.float32(_C1), np.float32(_C2), np.float32(_C3)
    c4, c5, c6 = np.float32(_C4), np.float32(_C5), np.float32(_C6)
    power = bits.view(np.float32)
    for k in range(len(x)):
        power[k] = max(np.float32(x[k]), lowest) * log2_e + shift
    for k in range(len(x)):
        n = bits[k] - np.int32(_ROUND_BITS)
        f = max(np.float32(x[k]), lowest) * log2_e - np.float32(n)
        out[k] = one + f * (c1 + f * (c2 + f * (c3 + f * (c4 + f * (c5 + f * c6)))))
        bits[k] = np.int32((n + np.int32(127)) << np.int32(23))  # the float32 of 2^n
    for k in range(len(x)):
        out[k] *= power[k]


@nb.njit(**FAST)
def _sum(x):  # type: ignore[no-untyped-def]
    total = x.dtype.type(0)
    for k in range(len(x)):
        total += x[k]
    return total


@nb.njit(**FAST)
def log_softmax_row(g, e, bits):  # type: ignore[no-untyped-def]
    """Replace the scores g by log-probabilities and write their exponentials into e; return log sum_k exp(g_k)."""
    top = g[0]
    for k in range(len(g)):
        top = max(top, g[k])
    for k in range(len(g)):
        g[k] -= top
    exp_row(g, e, bits)
    size = _sum(e)
    log_size = g.dtype.type(math.log(size))
    for k in range(len(g)):
        g[k] -= log_size
        e[k] /= size
    return top + log_size


@nb.njit(**FAST)
def balance_row(h, a, t, log_p, p, bits, most, enough):  # type: ignore[no-untyped-def]
    """Solve log p + a t p = h - nu, sum p = 1, from the distribution (log_p, p), in place.

    Takes at most `most` steps, and stops when one moves less than a share `enough` of the mass.
    """
    zero, one = h.dtype.type(0), h.dtype.type(1)
    visible = h.dtype.type(math.log(enough))
    nu = zero
    for _ in range(most):
        mass, pull, slack = zero, zero, zero
        for k in range(len(h)):
            b = a * t[k] * p[k]
            d = p[k] / (one + b)
            mass += p[k]
            pull += d * (h[k] - nu - log_p[k] - b)
            slack += d
        nu += (pull + mass - one) / slack
        moved = zero
        for k in range(len(h)):
            b = a * t[k] * p[k]
            step = (h[k] - nu - log_p[k] - b) / (one + b)
            new = min(log_p[k] + step, zero)
            # A class with almost no mass may move more mass than it had.
            moved += one if step > one and new > visible else p[k] * abs(step)
            log_p[k] = new
        exp_row(log_p, p, bits)
        if moved < enough:
            break
    size = _sum(p)
    log_size = h.dtype.type(math.log(size))
    for k in range(len(h)):
        log_p[k] -= log_size
        p[k] /= size


@nb.njit(**FAST)
def _score_row(indptr, indices, data, i, Z, flat, part_ptr, parts, shares, z, g):  # type: ignore[no-untyped-def]
    """Write the scores of row i into g; z is a scratch array for the scores of the parts."""
    if flat:
        g[:] = 0
        add_row(indptr, indices, data, i, Z, g)
        return
    z[:] = 0
    add_row(indptr, indices, data, i, Z, z)
    for k in range(len(g)):
        g[k] = 0
        for q in range(part_ptr[k], part_ptr[k + 1]):
            g[k] += shares[q] * z[parts[q]]


@nb.njit(**FAST)
def sweep_softmax(  # type: ignore[no-untyped-def]
    indptr, indices, data, norm2, cost, labels, part_ptr, parts, shares, t, Z, L, order, most, enough
):
    """Visit the rows in the given order, updating the parts Z and the log-distributions L in place.

    `part_ptr`, `parts` and `shares` list the parts that each class has a share in; empty shares mean flat classes.
    Returns the loss, the regulariser and the gap, summed over rows as they were when visited.
    """
    n_classes, flat = L.shape[1], len(shares) == 0
    g, old, p = np.empty(n_classes, Z.dtype), np.empty(n_classes, Z.dtype), np.empty(n_classes, Z.dtype)
    h, z, bits = np.empty(n_classes, Z.dtype), np.empty(Z.shape[1], Z.dtype), np.empty(n_classes, np.int32)
    total_loss, total_norm, total_gap = 0.0, 0.0, 0.0
    zero, one, top = Z.dtype.type(0), Z.dtype.type(1), t.max()
    for i in order:
        c, y, log_p = cost[i], labels[i], L[i]
        _score_row(indptr, indices, data, i, Z, flat, part_ptr, parts, shares, z, g)
        exp_row(log_p, old, bits)
        total_norm += c * g[y]
        a, gap, mean = c * norm2[i], zero, zero
        for k in range(n_classes):
            mean += old[k] * g[k]
        log_softmax_row(g, p, bits)
        for k in range(n_classes):
            gap += old[k] * (log_p[k] - g[k])
            h[k] = g[k] + a * t[k] * old[k]
            p[k] = old[k]
        total_norm -= c * mean
        total_loss -= c * g[y]
        total_gap += c * gap
        # The residual of the equation of a class after a step is a t_k p_k / 2 times the square of the step.
        balance_row(h, a, t, log_p, p, bits, most, enough / math.sqrt(max(one, a * top)))
        for k in range(n_classes):
            old[k] = c * (old[k] - p[k])
        if flat:
            for q in range(indptr[i], indptr[i + 1]):
                v, j = data[q], indices[q]
                for k in range(n_classes):
                    Z[j, k] += v * old[k]
        else:
            z[:] = 0
            for k in range(n_classes):
                for q in range(part_ptr[k], part_ptr[k + 1]):
                    z[parts[q]] += shares[q] * old[k]
            for q in range(indptr[i], indptr[i + 1]):
                v, j = data[q], indices[q]
                for k in range(len(z)):
                    Z[j, k] += v * z[k]
    return total_loss, total_norm / 2, total_gap


@nb.njit(**FAST)
def certify_softmax(  # type: ignore[no-untyped-def]
    indptr, indices, data, cost, labels, part_ptr, parts, shares, Z, L, first, stop
):
    """Sum the losses, and the duality gap, of rows first .. stop - 1 at the current Z and L."""
    n_classes, flat = L.shape[1], len(shares) == 0
    g, p = np.empty(n_classes, Z.dtype), np.empty(n_classes, Z.dtype)
    z, bits = np.empty(Z.shape[1], Z.dtype), np.empty(n_classes, np.int32)
    total_loss, total_gap = 0.0, 0.0
    for i in range(first, stop):
        _score_row(indptr, indices, data, i, Z, flat, part_ptr, parts, shares, z, g)
        log_softmax_row(g, p, bits)
        exp_row(L[i], p, bits)
        gap = Z.dtype.type(0)
        for k in range(n_classes):
            gap += p[k] * (L[i, k] - g[k])
        total_loss -= cost[i] * g[labels[i]]
        total_gap += cost[i] * gap
    return total_loss, total_gap


@nb.njit(**FAST)
def prox_softmax(S, step, L, first, stop, most, enough):  # type: ignore[no-untyped-def]
    """Replace scores s by minimisers z of step_i loss(z) + 1/2 ||z - v||^2, v = s + step_i (p - e_y), in place.

    L holds the logarithms of p = softmax(z) of the last call, and is updated: z = s + step_i (p - new p).
    Returns the sum of ||s - z||^2 over rows first .. stop - 1.
    """
    n_classes = S.shape[1]
    old, p, h = np.empty(n_classes, S.dtype), np.empty(n_classes, S.dtype), np.empty(n_classes, S.dtype)
    bits, t = np.empty(n_classes, np.int32), np.ones(n_classes, S.dtype)
    total = 0.0
    for i in range(first, stop):
        s, log_p, a = S[i], L[i], step[i]
        exp_row(log_p, old, bits)
        for k in range(n_classes):
            p[k] = old[k]
            h[k] = s[k] + a * old[k]
        balance_row(h, a, t, log_p, p, bits, most, enough)
        moved = S.dtype.type(0)
        for k in range(n_classes):
            change = a * (old[k] - p[k])
            moved += change * change
            s[k] += change
        total += moved
    return total


# --- The best shift of Bouchard's bound, row by row ---------------------------------------------------------
#
# With scores of means m_n and variances v_n and widths x_n = sqrt(v_n + (m_n - b)^2), the bound of a row is, without
# the term of its label (see `arbora.infer.tree.bouchard`),
#
#     (n_classes/2 - 1) b - sum_n log(2 cosh(x_n/2)),
#
# concave in the shift b. One pass over the classes of a row gives its value, slope and curvature, with one
# exponential per class and one logarithm for all of them, that of a product of numbers between 1 and 2.


# Newton's step over the safe one: slope over the curvature with fixed widths, never too long
_MAX_RATIO = 10.0
_SMALL = 1e-4  # below this width the series are exact
_ROUNDING = 1e-15  # relative error of a value
_MAX_FACTORS = 512  # of a product of numbers up to 2, without overflow


@nb.njit(cache=True, nogil=True, inline="always")
def _walk(mean, variance, shift):  # type: ignore[no-untyped-def]
    """Return value, slope, curvature with widths that depend on the shift, and with fixed widths, of one row."""
    n_classes = len(mean)
    half, logs, product = 0.0, 0.0, 1.0
    slope, bend, weight = 0.5 * n_classes - 1.0, 0.0, 0.0
    for n in range(n_classes):
        deviation = mean[n] - shift
        x2 = variance[n] + deviation * deviation
        x = math.sqrt(x2)
        e = math.exp(-x)
        half += x
        product *= 1.0 + e
        if n % _MAX_FACTORS == _MAX_FACTORS - 1:
            logs += math.log(product)
            product = 1.0
        if x < _SMALL:
            c, b = 0.25 - x2 / 48.0, 0.25
        else:
            c = (1.0 - e) / (1.0 + e) / (2.0 * x)
            share = min(variance[n] / x2, 1.0)
            b = share * c + (1.0 - share) * e / ((1.0 + e) * (1.0 + e))
        slope += c * deviation
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
        root, low, high = shift[i], -np.inf, np.inf
        value, slope, bend, weight = _walk(mean[i], variance[i], root)
        best, best_value, flattest = root, value, abs(slope)
        for _ in range(n_steps):
            if slope > 0:
                low = root
            elif slope < 0:
                high = root
            careful = slope / weight
            longest = _MAX_RATIO * abs(careful)
            new = root + min(max(slope / max(bend, tiny), -longest), longest)
            if not (low <= new <= high):
                new = 0.5 * (low + high) if low > -np.inf and high < np.inf else root + careful
            if new == root:
                break
            root = new
            value, slope, bend, weight = _walk(mean[i], variance[i], root)
            # Near the optimum the values differ only by rounding errors, so the slope decides.
            if value > best_value or (abs(slope) < flattest and value >= best_value - _ROUNDING * abs(value)):
                best, best_value, flattest = root, value, abs(slope)
        shift[i], values[i] = best, best_value
