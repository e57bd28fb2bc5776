"""Dual coordinate descent for logistic classes, each on its own or sharing their weights.

The problem is that of `coordinate`, or of `coupled` with its matrix K, with the logistic loss: a pair of a row and a
class has cost c, multiplier a in (0, c), margin m, and the share of the duality gap

    c log(1 + exp(-m)) + a m + c (s log s + (1 - s) log(1 - s)),        s = a / c.

Every pair has a multiplier, so every sweep evaluates the gap of all pairs: an exponential function and three
logarithms. In single precision they are polynomials without branches, in short loops that compile to SIMD
instructions: with t = min(s, 1 - s) and z = t / (2 - t),

    log(1 + e) = 2 atanh(e / (2 + e)),    log(1 - t) = -2 atanh(z),
    log(2^k f) = k log 2 + 2 atanh((f - 1) / (f + 1)).

Only pairs whose gap is above a limit take a step (Newton's method, `logistic_step`). ``K=None`` means that no class
shares weights with another one: numba then compiles the code for K = I only.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.linear.coordinate import add_to_weights
from arbora.kernels.linear.softmax import exp_row
from arbora.kernels.products import FAST, add_row

NEWTON_STEPS, NEWTON_STOP = 40, 1e-4  # the last step leaves the dual within 1e-9 c of its minimum
_LOG_2 = 0.6931471805599453
_TINY = 1e-37  # a normal number in single precision
_ROOT_HALF_BITS = 0x3F3504F3  # the float32 of sqrt(1/2)


@nb.njit(inline="always", **FAST)
def logistic_step(a, m, c, q, one):  # type: ignore[no-untyped-def]
    """Find the new margin t, root of f(t) = t - m - q (c sigmoid(-t) - a), by Newton's method.

    f is increasing, convex below 0 and concave above, so that Newton's steps become monotone on the side of 0 where
    the root lies. Clipping to that side is the only safeguard needed.
    """
    zero = one - one
    half = one / (one + one)
    positive = q * (c * half - a) + m > zero
    t = max(m, zero) if positive else min(m, zero)
    for _ in range(NEWTON_STEPS):
        s = one / (one + math.exp(t))
        f = t - m - q * (c * s - a)
        step = f / (one + q * c * s * (one - s))
        t = max(t - step, zero) if positive else min(t - step, zero)
        if f * step < NEWTON_STOP:
            break
    return c / (one + math.exp(t))


@nb.njit(inline="always", **FAST)
def logistic_loss_and_gap(a, m, c, one):  # type: ignore[no-untyped-def]
    """Return the logistic loss of one pair and its share of the duality gap."""
    zero = one - one
    value = c * (max(-m, zero) + math.log1p(math.exp(-abs(m))))
    entropy = zero
    if c > zero:
        share = min(max(a / c, zero), one)
        if share > zero:
            entropy += share * math.log(share)
        if share < one:
            entropy += (one - share) * math.log1p(-share)
    return value, value + a * m + c * entropy


@nb.njit(inline="always", **FAST)
def twice_atanh(z):  # type: ignore[no-untyped-def]
    """Return 2 atanh(z) for float32 |z| <= 1/3, by its Taylor series."""
    w = z * z
    c1, c2, c3 = np.float32(2 / 3), np.float32(2 / 5), np.float32(2 / 7)
    c4, c5, c6 = np.float32(2 / 9), np.float32(2 / 11), np.float32(2 / 13)
    return z * (np.float32(2) + w * (c1 + w * (c2 + w * (c3 + w * (c4 + w * (c5 + w * c6))))))


@nb.njit(**FAST)
def _signed(cost, g, m, e):  # type: ignore[no-untyped-def]
    """Write the margins, and minus their absolute values."""
    one = m.dtype.type(1)
    for b in range(len(g)):
        m[b] = math.copysign(one, cost[b]) * g[b]
        e[b] = -abs(m[b])


@nb.njit(**FAST)
def _softplus(m, e):  # type: ignore[no-untyped-def]
    """Replace e = exp(-|m|) by log(1 + exp(-m))."""
    zero, two = np.float32(0), np.float32(2)
    for b in range(len(m)):
        e[b] = max(-m[b], zero) + twice_atanh(e[b] / (two + e[b]))


@nb.njit(**FAST)
def _entropy(cost, A, t, bits, powers):  # type: ignore[no-untyped-def]
    """Write s log s + (1 - s) log(1 - s) of the shares s = A / |cost| into t."""
    one, two, tiny, log_2 = np.float32(1), np.float32(2), np.float32(_TINY), np.float32(_LOG_2)
    fraction = bits.view(np.float32)
    for b in range(len(t)):
        s = A[b] / max(abs(cost[b]), tiny)
        t[b] = max(min(s, one - s), tiny)
    for b in range(len(t)):
        fraction[b] = t[b]
    for b in range(len(t)):
        powers[b] = (bits[b] - np.int32(_ROOT_HALF_BITS)) >> np.int32(23)
        bits[b] -= powers[b] << np.int32(23)
    for b in range(len(t)):
        f = fraction[b]
        log_t = np.float32(powers[b]) * log_2 + twice_atanh((f - one) / (f + one))
        t[b] = t[b] * log_t - (one - t[b]) * twice_atanh(t[b] / (two - t[b]))


@nb.njit(**FAST)
def logistic_gaps(cost, A, g, m, e, t, gaps, bits, powers, sums):  # type: ignore[no-untyped-def]
    """Write the losses of the pairs of a row into e, and their gaps; return the gap of the row.

    Adds loss, multipliers times margins, and gap to `sums`. m, t (working precision), bits and powers (int32) are
    scratch, one number per class.
    """
    one = m.dtype.type(1)
    loss = norm = total = one - one
    if m.itemsize == 8:
        for b in range(len(g)):
            m[b] = math.copysign(one, cost[b]) * g[b]
            e[b], gaps[b] = logistic_loss_and_gap(A[b], m[b], abs(cost[b]), one)
            loss += e[b]
            norm += A[b] * m[b]
            total += gaps[b]
    else:
        _signed(cost, g, m, t)
        exp_row(t, e, bits)
        _softplus(m, e)
        _entropy(cost, A, t, bits, powers)
        for b in range(len(g)):
            gaps[b] = abs(cost[b]) * (e[b] + t[b]) + A[b] * m[b]
            e[b] *= abs(cost[b])
        # A loop that also wrote would be compiled twice, and the addresses of the arrays would choose how it rounds.
        for b in range(len(g)):
            loss += e[b]
            norm += A[b] * m[b]
            total += gaps[b]
    sums[0] += loss
    sums[1] += norm
    sums[2] += total
    return total


@nb.njit(inline="always", **FAST)
def _move_coupled(cost, A, K, q, idle, g, e, gaps, one):  # type: ignore[no-untyped-def]
    """Visit in turn the classes of a row whose gap is above `idle`; return how many weights of a feature change.

    Writes the change of these weights per unit of the row into e.
    """
    zero, moved = one - one, False
    for b in range(len(g)):
        if gaps[b] <= idle:
            continue
        a, y = A[b], math.copysign(one, cost[b])
        new = logistic_step(a, y * g[b], abs(cost[b]), q * K[b, b], one)
        d = (new - a) * y
        if d == zero:
            continue
        if not moved:
            moved = True
            for t in range(len(g)):
                e[t] = zero
        A[b] = new
        p = q * d
        for t in range(len(g)):
            e[t] += K[b, t] * d
            g[t] += K[b, t] * p
    return len(g) if moved else 0


@nb.njit(inline="always", **FAST)
def _move_alone(cost, A, q, idle, g, e, gaps, one):  # type: ignore[no-untyped-def]
    """As `_move_coupled` with K = I."""
    zero, n_moved = one - one, 0
    for b in range(len(g)):
        e[b] = zero
        if gaps[b] > idle:
            a, y = A[b], math.copysign(one, cost[b])
            A[b] = logistic_step(a, y * g[b], abs(cost[b]), q, one)
            e[b] = (A[b] - a) * y
            n_moved += e[b] != zero
    return n_moved


@nb.njit(**FAST)
def sweep_logistic(  # type: ignore[no-untyped-def]
    indptr, indices, data, norm2, cost, bias, K, W, A, rows, idle, row_gaps
):
    """Visit the rows in the given order for all classes of the block, updating W and the multipliers A in place.

    Pairs whose gap is at most `idle` are skipped; a negative number skips none. Writes the gap of each visited row
    into row_gaps, and returns the loss, the regulariser and the gap, all summed over pairs as they were when
    visited.
    """
    n_block, last, dtype = W.shape[1], W.shape[0] - 1, W.dtype
    g, e, gaps = np.empty(n_block, dtype), np.empty(n_block, dtype), np.empty(n_block, dtype)
    m, t = np.empty(n_block, dtype), np.empty(n_block, dtype)
    bits, powers = np.empty(n_block, np.int32), np.empty(n_block, np.int32)
    sums, one = np.zeros(3), dtype.type(1)
    for s in range(len(rows)):
        i = rows[s]
        for b in range(n_block):
            g[b] = bias * W[last, b]
        add_row(indptr, indices, data, i, W, g)
        row_gaps[i] = logistic_gaps(cost[i], A[i], g, m, e, t, gaps, bits, powers, sums)
        if K is None:
            n_moved = _move_alone(cost[i], A[i], norm2[i], idle, g, e, gaps, one)
        else:
            n_moved = _move_coupled(cost[i], A[i], K, norm2[i], idle, g, e, gaps, one)
        if n_moved:
            add_to_weights(indptr, indices, data, i, bias, e, n_moved, W)
    return sums[0], sums[1] / 2, sums[2]


@nb.njit(**FAST)
def certify_logistic(indptr, indices, data, cost, bias, W, A, losses, gaps):  # type: ignore[no-untyped-def]
    """Sum into losses[b] and gaps[b] the loss and the duality gap of each class; return the regulariser."""
    n_block, last, dtype = W.shape[1], W.shape[0] - 1, W.dtype
    g, e, row_gaps = np.empty(n_block, dtype), np.empty(n_block, dtype), np.empty(n_block, dtype)
    m, t = np.empty(n_block, dtype), np.empty(n_block, dtype)
    bits, powers = np.empty(n_block, np.int32), np.empty(n_block, np.int32)
    sums = np.zeros(3)
    losses[:] = 0
    gaps[:] = 0
    for i in range(len(indptr) - 1):
        for b in range(n_block):
            g[b] = bias * W[last, b]
        add_row(indptr, indices, data, i, W, g)
        logistic_gaps(cost[i], A[i], g, m, e, t, row_gaps, bits, powers, sums)
        for b in range(n_block):
            losses[b] += e[b]
            gaps[b] += row_gaps[b]
    return sums[1] / 2


@nb.njit(**FAST)
def couple_pairs(cost, A, K, E):  # type: ignore[no-untyped-def]
    """Write (a_i * y_i)' K, the change of the weights of a block per unit of row i, into E[i]."""
    n_block = A.shape[1]
    for i in range(len(A)):
        e = E[i]
        e[:] = 0
        for b in range(n_block):
            d = math.copysign(A[i, b], cost[i, b])
            for t in range(n_block):
                e[t] += K[b, t] * d


@nb.njit(**FAST)
def add_columns(indptr, indices, data, bias, E, W):  # type: ignore[no-untyped-def]
    """Add sum_i x_i E[i]' to W, feature by feature, from the columns of the rows in CSC format.

    If most rows contribute, this is faster than row by row: W is written in the order of memory.
    """
    last = W.shape[0] - 1
    for j in range(last):
        add_row(indptr, indices, data, j, E, W[j])
    for i in range(len(E)):
        for b in range(W.shape[1]):
            W[last, b] += bias * E[i, b]
