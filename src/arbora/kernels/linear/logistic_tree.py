"""Independent logistic classes of a tree, row by row: coordinate ascent in the dual with the exact step of a row.

The problem is that of `softmax_tree` with a probability p_ik for every row and class, not a distribution per row,

    min_W  P = 1/2 tr(W K^-1 W') + sum_ik c_i (log(1 + exp(s_ik)) - y_ik s_ik),        s_i = W'x_i,
    max_p  D = -1/2 tr(W K^-1 W') + sum_ik c_i H(p_ik),        W = sum_i c_i x_i (K (y_i - p_i))',

where H is the binary entropy; their difference is sum_ik c_i KL(p_ik || sigmoid(s_ik)). Logits u of the probabilities
are stored, so that probabilities near 0 and 1 keep their digits. A visit of row i maximises the dual over p_i,

    u + q K p = s + q K p(old),        p = sigmoid(u),        q = c_i ||x_i||^2,

by Newton's method, with a pass up and a pass down the tree in every step. A step that does not increase the dual is
halved.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.linear.logistic import twice_atanh
from arbora.kernels.linear.softmax import exp_row
from arbora.kernels.linear.softmax_tree import eliminate, substitute, times_covariance
from arbora.kernels.products import FAST, add_row

_LONGEST = 3.0  # largest change of a logit in one Newton step
_MOST_HALVINGS = 4


@nb.njit(**FAST)
def sigmoid_row(u, p, rest, bits):  # type: ignore[no-untyped-def]
    """Write sigmoid(u) and sigmoid(-u) into p and rest."""
    one = u.dtype.type(1)
    for k in range(len(u)):
        p[k] = -abs(u[k])
    exp_row(p, rest, bits)
    for k in range(len(u)):
        near = one / (one + rest[k])
        far = rest[k] * near
        p[k], rest[k] = (near, far) if u[k] > 0 else (far, near)


@nb.njit(**FAST)
def balance_logistic(parent, place, v, q, h, u, p, rest, pull, push, kp, sums, bits, most, enough):  # type: ignore[no-untyped-def]
    """Solve u + q K sigmoid(u) = h from the logits u, in place; p and rest are their sigmoids.

    Takes at most `most` steps, and stops when one moves less mass than `enough`. `pull` and `push`, one number per
    node, and `kp` are scratch.
    """
    zero, longest = h.dtype.type(0), h.dtype.type(_LONGEST)
    for _ in range(most):
        times_covariance(parent, place, v, p, sums, kp)
        for n in range(len(parent)):
            pull[n], push[n] = zero, zero
        for k in range(len(h)):
            kp[k] = h[k] - u[k] - q * kp[k]  # the residual
            push[place[k]] = p[k] * rest[k]
            pull[place[k]] = push[place[k]] * kp[k]
        eliminate(parent, v, q, pull, push)
        sums[0] = zero
        substitute(parent, v, q, pull, push, sums)
        moved = zero
        for k in range(len(h)):
            step = min(max(kp[k] - sums[place[k]], -longest), longest)
            u[k] += step
            moved += p[k] * rest[k] * abs(step)
        sigmoid_row(u, p, rest, bits)
        if moved < enough:
            break


@nb.njit(**FAST)
def log1p_row(p, rest, out):  # type: ignore[no-untyped-def]
    """Write log(1 + exp(-|u|)) into out, for the sigmoids p of u and rest of -u."""
    two = p.dtype.type(2)
    if p.itemsize == 8:
        for k in range(len(p)):
            out[k] = math.log1p(min(p[k], rest[k]) / max(p[k], rest[k]))
    else:
        for k in range(len(p)):
            less, more = min(p[k], rest[k]), max(p[k], rest[k])
            out[k] = twice_atanh(less / (two * more + less))


@nb.njit(**FAST)
def entropy_row(u, p, rest, out):  # type: ignore[no-untyped-def]
    """Binary entropies: log(1 + exp(-|u|)) plus the probability of the less probable side times |u|."""
    log1p_row(p, rest, out)
    for k in range(len(u)):
        out[k] += min(p[k], rest[k]) * abs(u[k])


@nb.njit(**FAST)
def _gain(q, g, old, earlier, p, after, change, moved):  # type: ignore[no-untyped-def]
    """Increase of the dual of a row when p replaces `old`, with their entropies; `change` is K (old - p).

    Writes the scale of rounding into `moved`.
    """
    total, scale = 0.0, 0.0
    for k in range(len(g)):
        d = old[k] - p[k]
        linear, bend = d * g[k], q * d * change[k] / 2
        total += after[k] - earlier[k] - linear - bend
        scale += after[k] + earlier[k] + abs(linear) + abs(bend)
    moved[0] = scale
    return total


@nb.njit(**FAST)
def sweep_logistic_tree(  # type: ignore[no-untyped-def]
    indptr, indices, data, norm2, cost, label_ptr, labels, parent, place, v, W, L, order, most, enough
):
    """Visit the rows in the given order, updating the weights W and the logits L in place.

    The labels of row i are labels[label_ptr[i] : label_ptr[i + 1]]. Returns the loss, the regulariser and the gap,
    summed over rows as they were when visited.
    """
    n_classes, n_nodes, dtype = L.shape[1], len(parent), W.dtype
    g, h, p = np.empty(n_classes, dtype), np.empty(n_classes, dtype), np.empty(n_classes, dtype)
    old, before, change = np.empty(n_classes, dtype), np.empty(n_classes, dtype), np.empty(n_classes, dtype)
    rest, old_rest = np.empty(n_classes, dtype), np.empty(n_classes, dtype)
    earlier, after = np.empty(n_classes, dtype), np.empty(n_classes, dtype)  # entropies
    pull, push, sums = np.empty(n_nodes, dtype), np.empty(n_nodes, dtype), np.empty(n_nodes, dtype)
    bits, moved = np.empty(n_classes, np.int32), np.zeros(1)
    rounding = 4.0 * (1.2e-7 if W.itemsize == 4 else 2.2e-16)
    zero = dtype.type(0)
    total_loss, total_norm, total_gap = 0.0, 0.0, 0.0
    for i in order:
        c, u = cost[i], L[i]
        q = c * norm2[i]
        g[:] = 0
        add_row(indptr, indices, data, i, W, g)
        sigmoid_row(u, old, old_rest, bits)
        sigmoid_row(g, p, rest, bits)
        loss, norm, gap = 0.0, 0.0, 0.0
        entropy_row(u, old, old_rest, earlier)
        log1p_row(p, rest, after)
        for k in range(n_classes):
            soft = max(g[k], zero) + after[k]  # log(1 + exp(g))
            loss += soft
            norm -= old[k] * g[k]
            gap += soft - old[k] * g[k] - earlier[k]
        for a in range(label_ptr[i], label_ptr[i + 1]):
            loss -= g[labels[a]]
            norm += g[labels[a]]
        total_loss += c * loss
        total_norm += c * norm
        total_gap += c * gap
        times_covariance(parent, place, v, old, sums, h)
        for k in range(n_classes):
            h[k] = g[k] + q * h[k]
            before[k], p[k], rest[k] = u[k], old[k], old_rest[k]
        balance_logistic(parent, place, v, q, h, u, p, rest, pull, push, change, sums, bits, most, enough)
        for halving in range(_MOST_HALVINGS + 1):
            for k in range(n_classes):
                h[k] = old[k] - p[k] if p[k] < 0.5 else rest[k] - old_rest[k]
            times_covariance(parent, place, v, h, sums, change)
            entropy_row(u, p, rest, after)
            if _gain(q, g, old, earlier, p, after, change, moved) >= -rounding * moved[0]:
                break
            for k in range(n_classes):
                u[k] = before[k] + (u[k] - before[k]) / 2 if halving < _MOST_HALVINGS - 1 else before[k]
            sigmoid_row(u, p, rest, bits)
        for a in range(indptr[i], indptr[i + 1]):
            x, j = c * data[a], indices[a]
            for k in range(n_classes):
                W[j, k] += x * change[k]
    return total_loss, total_norm / 2, total_gap
