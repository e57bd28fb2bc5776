"""Dual coordinate descent for classes that share their weights.

The weights of the classes of a block depend on each other's multipliers through a positive definite matrix K,

    W = W0 + sum_i x_i (a_i * y_i)' K,        min_a  1/2 sum_ij (x_i.x_j) (a_i y_i)' K (a_j y_j) + conjugate(a),

where W0 is the contribution of the classes outside the block. With K = I this is `coordinate.sweep_block`. As there,
a row is read twice: once for the margins of all classes, once to update the weights. In between, the classes of the
row are visited one after the other, each with the margins after the steps of those before it: a step of class b
changes the margin of class t by |x_i|^2 K_bt, which needs no weights. For most rows nothing changes.

`polish_coupled` corresponds to `coordinate.sweep_active`: sweeps over the pairs that can still move, class by class.
The gap and the loss do not depend on K: `certify_scaled` is `coordinate.certify_block` at several scales.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.linear.coordinate import (
    HINGE,
    SETTLED,
    can_move,
    has_work,
    hinge_loss_and_gap,
    hinge_step,
    squared_hinge_step,
)
from arbora.kernels.products import FAST, add_row
from arbora.kernels.random import shuffle

# Visits per feature that cost as much as copying a class out and adding its change to the block
_COPY_COST = 40


@nb.njit(inline="always", **FAST)
def _move_pair(new, cost, A, K, q, b, g, one):  # type: ignore[no-untyped-def]
    """Set the multiplier of class b of a row; update the scores g of the row."""
    d = (new - A[b]) * math.copysign(one, cost[b])
    if d == one - one:
        return False
    A[b] = new
    p = q * d
    for t in range(len(g)):
        g[t] += K[b, t] * p
    return True


@nb.njit(inline="always", **FAST)
def _sweep_hinge_row(loss, cost, A, K, q, g, e, sums, active, n_active, i, one):  # type: ignore[no-untyped-def]
    """Visit in turn the classes of a row that have a multiplier or a margin below one; return whether one moved.

    All other pairs have no loss, no gap and no step. The loss and the gap are those before the steps of the row. The
    change e of the weights, times q, is that of the scores g of the row.
    """
    zero = one - one
    for b in range(len(g)):
        e[b] = g[b]
        a, m = A[b], math.copysign(one, cost[b]) * g[b]
        if a > zero or m < one:
            value, gap = hinge_loss_and_gap(loss, a, m, abs(cost[b]), one)
            sums[0] += value
            sums[1] += a * m
            sums[2] += gap
    moved = False
    for b in range(len(g)):
        a, m, c = A[b], math.copysign(one, cost[b]) * g[b], abs(cost[b])
        if a > zero or m < one:
            curvature = q * K[b, b]
            new = (
                hinge_step(a, m, c, curvature, one)
                if loss == HINGE
                else squared_hinge_step(a, m, c, curvature, one)
            )
            moved |= _move_pair(new, cost, A, K, q, b, g, one)
    for b in range(len(g)):
        e[b] = (g[b] - e[b]) / q
        beyond = math.copysign(one, cost[b]) * g[b] - one
        if (A[b] > zero or beyond < zero) and can_move(loss, A[b], abs(cost[b]), beyond, zero):
            active[b, n_active[b]] = i
            n_active[b] += 1
    return moved


@nb.njit(**FAST)
def sweep_coupled(  # type: ignore[no-untyped-def]
    indptr, indices, data, norm2, cost, loss, bias, K, W, A, rows, active, n_active
):
    """Visit the rows in the given order for all classes of the block, updating W and the multipliers A in place.

    The loss is a hinge; `logistic` has the logistic one. Lists in active[b, :n_active[b]] the rows whose
    multiplier for class b can still move. Returns the loss, the regulariser and the gap, summed over pairs as they
    were when visited: free estimates.
    """
    n_block, last = W.shape[1], W.shape[0] - 1
    g, e = np.empty(n_block, W.dtype), np.empty(n_block, W.dtype)
    sums = np.zeros(3)
    one = W.dtype.type(1)
    n_active[:] = 0
    for s in range(len(rows)):
        i = rows[s]
        for b in range(n_block):
            g[b] = bias * W[last, b]
        add_row(indptr, indices, data, i, W, g)
        if has_work(A[i], cost[i], g, one):
            moved = _sweep_hinge_row(loss, cost[i], A[i], K, norm2[i], g, e, sums, active, n_active, i, one)
        else:  # most rows, once the classes are nearly trained
            continue
        if moved:
            for b in range(n_block):
                W[last, b] += bias * e[b]
            for k in range(indptr[i], indptr[i + 1]):
                v, j = data[k], indices[k]
                for b in range(n_block):
                    W[j, b] += v * e[b]
    return sums[0], sums[1] / 2, sums[2]


@nb.njit(inline="always", **FAST)
def _spread_change(w, b, spread, W):  # type: ignore[no-untyped-def]
    """Add the change of class b, whose new weights are w, to the weights of the block."""
    zero = W.dtype.type(0)
    for j in range(W.shape[0]):
        change = (w[j] - W[j, b]) / spread[b]
        if change != zero:
            for t in range(W.shape[1]):
                W[j, t] += change * spread[t]


@nb.njit(**FAST)
def polish_coupled(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    data,
    norm2,
    cost,
    loss,
    bias,
    dense,
    K,
    W,
    A,
    active,
    n_active,
    n_sweeps,
    enough,
    seed,
    w,
):
    """Sweep up to n_sweeps times over the listed pairs, class by class, in a fresh random order each time.

    As `coordinate.sweep_active`, but the change of a class changes the weights of its whole block: at once if the
    weights are changed in place (they share cache lines), at the end if the class was copied into the scratch w.
    """
    n_block, last = W.shape[1], W.shape[0] - 1
    zero = W.dtype.type(0)
    one = W.dtype.type(1)
    settled = W.dtype.type(SETTLED)
    state = np.uint64(seed)
    mean_length = len(data) / max(1, len(indptr) - 1)
    for b in range(n_block):
        n = n_active[b]
        if n == 0:
            continue
        curvature = K[b, b]
        spread = K[b]
        copied = dense or n * n_sweeps * mean_length > _COPY_COST * last
        if copied:
            for j in range(last + 1):
                w[j] = W[j, b]
        for _ in range(n_sweeps):
            state = shuffle(active[b], n, state)
            n_kept, total_gap = 0, 0.0
            for s in range(n):
                i = active[b, s]
                row, column = data[indptr[i] : indptr[i + 1]], indices[indptr[i] : indptr[i + 1]]
                if dense:
                    m = bias * w[last]
                    for k in range(last):
                        m += row[k] * w[k]
                elif copied:
                    m = bias * w[last]
                    for k in range(len(row)):
                        m += row[k] * w[np.uint64(column[k])]
                else:
                    m = bias * W[last, b]
                    for k in range(len(row)):
                        m += row[k] * W[np.uint64(column[k]), b]
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
                q = norm2[i] * curvature
                new = hinge_step(a, m, c, q, one) if loss == HINGE else squared_hinge_step(a, m, c, q, one)
                d = (new - a) * y
                if d == zero:
                    continue
                A[i, b] = new
                if dense:
                    d *= curvature
                    w[last] += bias * d
                    for k in range(last):
                        w[k] += row[k] * d
                elif copied:
                    d *= curvature
                    w[last] += bias * d
                    for k in range(len(row)):
                        w[np.uint64(column[k])] += row[k] * d
                else:
                    for t in range(n_block):
                        W[last, t] += bias * d * spread[t]
                    for k in range(len(row)):
                        v, feature = row[k] * d, np.uint64(column[k])
                        for t in range(n_block):
                            W[feature, t] += v * spread[t]
            n = n_kept
            if total_gap < enough:
                break
        if copied:
            _spread_change(w, b, spread, W)


@nb.njit(**FAST)
def mark_movable(active, n_active, A, mask):  # type: ignore[no-untyped-def]
    """Set mask[i] for all rows i that are listed or have a multiplier."""
    for b in range(len(n_active)):
        for s in range(n_active[b]):
            mask[active[b, s]] = True
    for i in range(A.shape[0]):
        some = False
        for b in range(A.shape[1]):
            some |= A[i, b] != 0
        mask[i] |= some


@nb.njit(**FAST)
def dot_rows(indptr, indices, data, bias, rows, columns, values, V):  # type: ignore[no-untyped-def]
    """Return the sum of value times the score x_i.V[:, b] over triples (i, b, value)."""
    last, total = len(V) - 1, 0.0
    for s in range(len(rows)):
        i, b = rows[s], columns[s]
        score = bias * V[last, b]
        for k in range(indptr[i], indptr[i + 1]):
            score += data[k] * V[indices[k], b]
        total += values[s] * score
    return total


@nb.njit(**FAST)
def certify_scaled(indptr, indices, data, cost, loss, bias, W, A, scales, losses):  # type: ignore[no-untyped-def]
    """Sum into losses[s] the loss at the weights scales[s] W; return the regulariser and the gap at W itself.

    The scales are at least 1: a pair without a multiplier and with a margin of at least one has no hinge loss.
    """
    n_block, last = W.shape[1], W.shape[0] - 1
    g = np.empty(n_block, W.dtype)
    one = W.dtype.type(1)
    total_norm, total_gap = 0.0, 0.0
    losses[:] = 0
    for i in range(len(indptr) - 1):
        for b in range(n_block):
            g[b] = bias * W[last, b]
        add_row(indptr, indices, data, i, W, g)
        if not has_work(A[i], cost[i], g, one):
            continue
        for b in range(n_block):
            c = abs(cost[i, b])
            m = math.copysign(one, cost[i, b]) * g[b]
            _, gap = hinge_loss_and_gap(loss, A[i, b], m, c, one)
            total_gap += gap
            total_norm += A[i, b] * m
            for s in range(len(scales)):
                value, _ = hinge_loss_and_gap(loss, c - c, scales[s] * m, c, one)
                losses[s] += value
    return total_norm / 2, total_gap
