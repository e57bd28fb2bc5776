"""Class-blocked dual coordinate descent for linear classifiers.

For each class b of a block, with costs c_ib >= 0 and signs y_ib, the problem is

    min_w  1/2 ||w - w0||^2 + sum_i c_ib loss(y_ib w.x_i),        w = w0 + sum_i a_ib y_ib x_i,

and coordinate a_ib of its dual is minimised in closed form (hinge, squared hinge; `logistic` has the logistic loss).
The offset w0, a parent's weights, enters only through the initial W: neither the steps nor the gap

    P(w) - D(a) = sum_i [c_ib loss(m_ib) + conjugate(a_ib) + a_ib m_ib],     m_ib = y_ib w.x_i,

mention it, and every summand is non-negative.

The weights of a block are adjacent in memory, W of shape (n_features + 1, n_block), so that one pass over a sparse
row serves all its classes with SIMD (`sweep_block`). The sweep also lists the pairs (i, b) that are not settled at
a bound. `sweep_active` then visits only those, class by class: after a few sweeps they are a few per
cent of all pairs. Sign and cost are one array, cost = y * c: a zero removes the row from the problem of that class.

The bias is an additional feature with the constant value `bias`, hence regularised; ``bias=0`` means no intercept.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST, add_row
from arbora.kernels.random import shuffle

HINGE, SQUARED_HINGE, LOGISTIC = 0, 1, 2
LOSSES = {"hinge": HINGE, "squared_hinge": SQUARED_HINGE, "logistic": LOGISTIC}

_COPY_COST = 8  # visits per feature that cost as much as copying the weights of a class out and back
_FEW_MOVED = 4  # classes of a row that moved, up to which their weights are changed one class after the other
SETTLED = 0.1  # sweep_active drops a pair whose gradient points this far beyond its bound


@nb.njit(inline="always", **FAST)
def hinge_step(a, m, c, q, one):  # type: ignore[no-untyped-def]
    """Minimise the dual along one coordinate: multiplier a, margin m, cost c, squared norm q of the row.

    `one` sets the working precision of the arithmetic, here and below.
    """
    return min(max(a - (m - one) / q, one - one), c)


@nb.njit(inline="always", **FAST)
def squared_hinge_step(a, m, c, q, one):  # type: ignore[no-untyped-def]
    """Minimise the dual along one coordinate; a pair without cost has no multiplier."""
    zero = one - one
    return max(a - (m - one + a / (c + c)) / (q + one / (c + c)), zero) if c > zero else zero


@nb.njit(inline="always", **FAST)
def hinge_loss_and_gap(loss, a, m, c, one):  # type: ignore[no-untyped-def]
    """Return the hinge or squared hinge loss of one pair and its share of the duality gap."""
    zero = one - one
    slack = max(one - m, zero)
    if loss == HINGE:
        value = c * slack
        return value, value + a * (m - one)
    value = c * slack * slack
    return value, value + a * (m - one) + (a * a / ((one + one) * (c + c)) if c > zero else zero)


@nb.njit(inline="always", **FAST)
def has_work(A, cost, g, one):  # type: ignore[no-untyped-def]
    """Whether some class of a row has a multiplier or a margin below one (hinge losses); free of branches."""
    most = one - one
    for b in range(len(g)):
        most = max(most, max(A[b], one - math.copysign(one, cost[b]) * g[b]))
    return most > one - one


@nb.njit(inline="always", **FAST)
def can_move(loss, a, c, beyond, zero):  # type: ignore[no-untyped-def]
    """Whether a multiplier is not settled at a bound; `beyond` is its margin minus one (hinge losses)."""
    below = a < c or (loss == SQUARED_HINGE and c > zero)
    return (a > zero or beyond < zero) and (below or beyond > zero)


@nb.njit(inline="always", **FAST)
def _sweep_hinge_row(loss, A, cost, q, g, d, sums, active, n_active, i, one):  # type: ignore[no-untyped-def]
    """Visit the classes of a row that have a multiplier or a margin below one; return how many of them moved.

    All other pairs have no loss, no gap and no step. The changes of the weights are written into d.
    """
    zero = one - one
    n_moved = 0
    for b in range(len(g)):
        d[b] = zero
        a, y = A[b], math.copysign(one, cost[b])
        m = y * g[b]
        if a == zero and m >= one:
            continue
        c = abs(cost[b])
        value, gap = hinge_loss_and_gap(loss, a, m, c, one)
        sums[0] += value
        sums[1] += a * m
        sums[2] += gap
        new = hinge_step(a, m, c, q, one) if loss == HINGE else squared_hinge_step(a, m, c, q, one)
        if new != a:
            A[b] = new
            d[b] = (new - a) * y
            n_moved += 1
        if can_move(loss, new, c, m - one, zero):
            active[b, n_active[b]] = i
            n_active[b] += 1
    return n_moved


@nb.njit(inline="always", **FAST)
def add_to_weights(indptr, indices, data, i, bias, d, n_moved, W):  # type: ignore[no-untyped-def]
    """Add row i times the changes d to the weights; only the columns that changed, if they are few."""
    n_block, last = W.shape[1], W.shape[0] - 1
    if n_moved > _FEW_MOVED:
        for b in range(n_block):
            W[last, b] += bias * d[b]
        for k in range(indptr[i], indptr[i + 1]):
            v, j = data[k], indices[k]
            for b in range(n_block):
                W[j, b] += v * d[b]
    else:
        for b in range(n_block):
            if d[b] != 0:
                W[last, b] += bias * d[b]
                for k in range(indptr[i], indptr[i + 1]):
                    W[indices[k], b] += data[k] * d[b]


@nb.njit(**FAST)
def sweep_block(  # type: ignore[no-untyped-def]
    indptr, indices, data, norm2, cost, loss, bias, W, A, rows, active, n_active
):
    """Visit the rows in the given order for all classes of the block, updating W and the multipliers A in place.

    Lists in active[b, :n_active[b]] the rows whose multiplier for class b can still move. Returns the loss, the
    regulariser and the gap, summed over pairs as they were when visited: free estimates.
    """
    n_block, last = W.shape[1], W.shape[0] - 1
    g, d, sums = np.empty(n_block, W.dtype), np.empty(n_block, W.dtype), np.zeros(3)
    one = W.dtype.type(1)
    n_active[:] = 0
    for s in range(len(rows)):
        i = rows[s]
        for b in range(n_block):
            g[b] = bias * W[last, b]
        add_row(indptr, indices, data, i, W, g)
        if not has_work(A[i], cost[i], g, one):  # most rows, once the classes are nearly trained
            continue
        n_moved = _sweep_hinge_row(loss, A[i], cost[i], norm2[i], g, d, sums, active, n_active, i, one)
        if n_moved:
            add_to_weights(indptr, indices, data, i, bias, d, n_moved, W)
    return sums[0], sums[1] / 2, sums[2]


@nb.njit(**FAST)
def sweep_active(  # type: ignore[no-untyped-def]
    indptr, indices, data, norm2, cost, loss, bias, dense, W, A, active, n_active, n_sweeps, enough, seed, w
):
    """Sweep up to n_sweeps times over the listed pairs, class by class, in a fresh random order each time.

    A class ends when its gap over the listed rows falls below `enough`. `dense` means that every row holds all
    features in order, so that the dot products run over contiguous memory. The weights of the class are copied into
    the scratch array `w`, unless so few pairs are listed that changing them in place, n_block apart, is faster.
    """
    last = W.shape[0] - 1
    zero = W.dtype.type(0)
    one = W.dtype.type(1)
    settled = W.dtype.type(SETTLED)
    state = np.uint64(seed)
    n_block, flat = W.shape[1], W.reshape(-1)  # ravel would copy a strided W; reshape raises an error
    mean_length = len(data) / max(1, len(indptr) - 1)
    for b in range(n_block):
        n = n_active[b]
        if n == 0:
            continue
        copied = dense or n * n_sweeps * mean_length > _COPY_COST * last
        if copied:
            for j in range(last + 1):
                w[j] = W[j, b]
        # Unsigned indices need no check for negative values.
        v = w if copied else flat
        stride, offset = (np.uint64(1), np.uint64(0)) if copied else (np.uint64(n_block), np.uint64(b))
        at_bias = np.uint64(last) * stride + offset
        for _ in range(n_sweeps):
            state = shuffle(active[b], n, state)
            n_kept, total_gap = 0, 0.0
            for s in range(n):
                i = active[b, s]
                row, column = data[indptr[i] : indptr[i + 1]], indices[indptr[i] : indptr[i + 1]]
                m = bias * v[at_bias]
                if dense:
                    for k in range(last):
                        m += row[k] * v[k]
                else:
                    for k in range(len(row)):
                        m += row[k] * v[np.uint64(column[k]) * stride + offset]
                c, a = abs(cost[i, b]), A[i, b]
                y = math.copysign(one, cost[i, b])
                m *= y
                _, gap = hinge_loss_and_gap(loss, a, m, c, one)
                total_gap += gap
                beyond = m - one
                if (a == zero and beyond > settled) or (loss == HINGE and a == c and beyond < -settled):
                    continue
                active[b, n_kept] = i
                n_kept += 1
                q = norm2[i]
                new = hinge_step(a, m, c, q, one) if loss == HINGE else squared_hinge_step(a, m, c, q, one)
                d = (new - a) * y
                if d != zero:
                    A[i, b] = new
                    v[at_bias] += bias * d
                    if dense:
                        for k in range(last):
                            v[k] += row[k] * d
                    else:
                        for k in range(len(row)):
                            v[np.uint64(column[k]) * stride + offset] += row[k] * d
            n = n_kept
            if total_gap < enough:
                break
        if copied:
            for j in range(last + 1):
                W[j, b] = w[j]


@nb.njit(**FAST)
def certify_block(  # type: ignore[no-untyped-def]
    indptr, indices, data, cost, loss, bias, W, A, losses, gaps, active, n_active
):
    """Sum into losses[b] and gaps[b] the loss and the duality gap of each class at the current W and A.

    Lists in active[b, :n_active[b]] the rows whose multiplier for class b can still move.
    """
    n_block, last = W.shape[1], W.shape[0] - 1
    g = np.empty(n_block, W.dtype)
    zero, one = W.dtype.type(0), W.dtype.type(1)
    losses[:] = 0
    gaps[:] = 0
    n_active[:] = 0
    for i in range(len(indptr) - 1):
        for b in range(n_block):
            g[b] = bias * W[last, b]
        add_row(indptr, indices, data, i, W, g)
        if has_work(A[i], cost[i], g, one):  # other rows have no loss and no gap
            for b in range(n_block):
                c, a = abs(cost[i, b]), A[i, b]
                m = math.copysign(one, cost[i, b]) * g[b]
                if a == zero and m >= one:
                    continue
                value, gap = hinge_loss_and_gap(loss, a, m, c, one)
                losses[b] += value
                gaps[b] += gap
                if can_move(loss, a, c, m - one, zero):
                    active[b, n_active[b]] = i
                    n_active[b] += 1
