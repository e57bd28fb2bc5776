"""Independent logistic classes of a tree, row by row: coordinate ascent in the dual with the exact step of a row.

The problem is that of `sweep_softmax_tree`, with a probability p_ik for every row and class instead of a distribution
for every row,

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
from arbora.kernels.linear.softmax import exp_row, log_softmax_row
from arbora.kernels.products import FAST, add_row

# --- Softmax of the classes of a tree, row by row: coordinate ascent in the dual with the exact step of a row ---
#
# The problem is that of `softmax`, with the covariance K of the weights of the classes given by a tree: K_kl is the
# sum of the variances v_n of the nodes n above (or at) both k and l. The weights themselves are updated,
#
#     W = sum_i c_i x_i (K (e_y - p_i))',
#
# and a visit of row i maximises the dual over p_i exactly, without a diagonal bound of K. With q = c_i ||x_i||^2, the
# maximiser solves
#
#     log p + q K p = s + q K p(old) - nu,        sum_k p_k = 1.
#
# The bound of `softmax` adds up whole families, and its steps are as many times too short. Here Newton's method
# solves for all logarithms and nu together: the linear system is that of a tree, and one pass up and one pass down
# solve it. If a step does not increase the dual it is halved, so the dual never falls.
#
# Nodes are in topological order; node 0 is above all others and has no variance, since it moves all scores alike.
# `place` is the node of each class.


_MAX_INCREASE = 3.0  # largest increase of a logarithm in one Newton step
_VISIBLE = -7.0  # logarithm of a probability whose relative change matters
_MAX_HALVINGS = 4


@nb.njit(**FAST)
def times_covariance(parent, place, v, x, sums, out):  # type: ignore[no-untyped-def]
    """Write K x into out; `sums` is scratch, one number per node."""
    for n in range(len(parent)):
        sums[n] = 0
    for k in range(len(place)):
        sums[place[k]] = x[k]
    for n in range(len(parent) - 1, 0, -1):
        sums[parent[n]] += sums[n]
        sums[n] *= v[n]
    sums[0] = 0
    for n in range(1, len(parent)):
        sums[n] += sums[parent[n]]
    for k in range(len(place)):
        out[k] = sums[place[k]]


@nb.njit(**FAST)
def rows_times_covariance(parent, place, v, U, first, stop):  # type: ignore[no-untyped-def]
    """Replace rows first .. stop - 1 of U by their products with K."""
    sums = np.empty(len(parent), U.dtype)
    for j in range(first, stop):
        times_covariance(parent, place, v, U[j], sums, U[j])


@nb.njit(**FAST)
def eliminate(parent, v, q, pull, push):  # type: ignore[no-untyped-def]
    """Pass up the tree: the mass below a node changes by pull - push times the change of the field above it."""
    one = pull.dtype.type(1)
    for n in range(len(parent) - 1, 0, -1):
        share = one / (one + q * v[n] * push[n])
        pull[n] *= share
        push[n] *= share
        pull[parent[n]] += pull[n]
        push[parent[n]] += push[n]


@nb.njit(**FAST)
def substitute(parent, v, q, pull, push, field):  # type: ignore[no-untyped-def]
    """Pass down the tree: the changes of the fields, given that of node 0."""
    for n in range(1, len(parent)):
        above = field[parent[n]]
        field[n] = above + q * v[n] * (pull[n] - push[n] * above)


@nb.njit(**FAST)
def _normalise(log_p, p):  # type: ignore[no-untyped-def]
    size = p.dtype.type(0)
    for k in range(len(p)):
        size += p[k]
    log_size = p.dtype.type(math.log(size))
    for k in range(len(p)):
        log_p[k] -= log_size
        p[k] /= size


@nb.njit(**FAST)
def balance_tree(parent, place, v, q, h, log_p, p, pull, push, kp, sums, bits, most, enough):  # type: ignore[no-untyped-def]
    """Solve log p + q K p = h - nu, sum p = 1, from the distribution (log_p, p), in place.

    Takes at most `most` steps, and stops when one moves less mass than `enough`. `pull` and `push`, one number per
    node, and `kp` are scratch.
    """
    zero, one, longest = h.dtype.type(0), h.dtype.type(1), h.dtype.type(_MAX_INCREASE)
    tiny = h.dtype.type(1e-30)
    nu = zero
    for _ in range(most):
        times_covariance(parent, place, v, p, sums, kp)
        for n in range(len(parent)):
            pull[n], push[n] = zero, zero
        mass = zero
        for k in range(len(h)):
            kp[k] = h[k] - log_p[k] - q * kp[k] - nu  # the residual
            pull[place[k]], push[place[k]] = p[k] * kp[k], p[k]
            mass += p[k]
        eliminate(parent, v, q, pull, push)
        sums[0] = (pull[0] - (one - mass)) / max(push[0], tiny)
        nu += sums[0]
        substitute(parent, v, q, pull, push, sums)
        moved = zero
        for k in range(len(h)):
            new = min(log_p[k] + min(kp[k] - sums[place[k]], longest), zero)
            step = abs(new - log_p[k])
            moved += (max(p[k], one * math.exp(new)) if new > _VISIBLE else p[k]) * step
            log_p[k] = new
        exp_row(log_p, p, bits)
        if moved < enough:
            break
    _normalise(log_p, p)


@nb.njit(**FAST)
def _softmax_gain(q, g, before, old, log_p, p, change, moved):  # type: ignore[no-untyped-def]
    """Increase of the dual of a row when p replaces `old`; `change` is K (old - p), `moved` the scale of rounding."""
    total, moved[0] = 0.0, 0.0
    for k in range(len(g)):
        d = old[k] - p[k]
        linear, bend, entropy = d * g[k], q * d * change[k] / 2, old[k] * before[k] - p[k] * log_p[k]
        total += entropy - linear - bend
        moved[0] += abs(entropy) + abs(linear) + abs(bend)
    return total


@nb.njit(**FAST)
def sweep_softmax_tree(  # type: ignore[no-untyped-def]
    indptr, indices, data, norm2, cost, labels, parent, place, v, W, L, order, most, enough
):
    """Visit the rows in the given order, updating the weights W and the log-distributions L in place.

    Returns the loss, the regulariser and the gap, summed over rows as they were when visited.
    """
    n_classes, n_nodes, dtype = L.shape[1], len(parent), W.dtype
    g, h, p = np.empty(n_classes, dtype), np.empty(n_classes, dtype), np.empty(n_classes, dtype)
    old, before, change = np.empty(n_classes, dtype), np.empty(n_classes, dtype), np.empty(n_classes, dtype)
    pull, push, sums = np.empty(n_nodes, dtype), np.empty(n_nodes, dtype), np.empty(n_nodes, dtype)
    bits, moved = np.empty(n_classes, np.int32), np.zeros(1)
    rounding = 4.0 * (1.2e-7 if W.itemsize == 4 else 2.2e-16)
    total_loss, total_norm, total_gap = 0.0, 0.0, 0.0
    for i in order:
        c, y, log_p = cost[i], labels[i], L[i]
        q = c * norm2[i]
        g[:] = 0
        add_row(indptr, indices, data, i, W, g)
        exp_row(log_p, old, bits)
        times_covariance(parent, place, v, old, sums, h)
        mean, gap = dtype.type(0), dtype.type(0)
        for k in range(n_classes):
            mean += old[k] * g[k]
        total_norm += c * (g[y] - mean)
        log_softmax_row(g, p, bits)
        for k in range(n_classes):
            gap += old[k] * (log_p[k] - g[k])
            before[k], p[k] = log_p[k], old[k]
            h[k] = g[k] + q * h[k]
        total_loss -= c * g[y]
        total_gap += c * gap
        balance_tree(parent, place, v, q, h, log_p, p, pull, push, change, sums, bits, most, enough)
        for halving in range(_MAX_HALVINGS + 1):
            for k in range(n_classes):
                h[k] = old[k] - p[k]
            times_covariance(parent, place, v, h, sums, change)
            gain = _softmax_gain(q, g, before, old, log_p, p, change, moved)
            if gain >= -rounding * moved[0]:
                break
            for k in range(n_classes):
                log_p[k] = (
                    before[k] + (log_p[k] - before[k]) / 2 if halving < _MAX_HALVINGS - 1 else before[k]
                )
            exp_row(log_p, p, bits)
            _normalise(log_p, p)
        for a in range(indptr[i], indptr[i + 1]):
            x, j = c * data[a], indices[a]
            for k in range(n_classes):
                W[j, k] += x * change[k]
    return total_loss, total_norm / 2, total_gap


# --- Independent logistic classes of a tree, row by row: coordinate ascent in the dual with the exact step of a row
# ---


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
    zero, longest = h.dtype.type(0), h.dtype.type(_MAX_INCREASE)
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
            smaller, larger = min(p[k], rest[k]), max(p[k], rest[k])
            out[k] = twice_atanh(smaller / (two * larger + smaller))


@nb.njit(**FAST)
def entropy_row(u, p, rest, out):  # type: ignore[no-untyped-def]
    """Binary entropies: log(1 + exp(-|u|)) plus the probability of the less probable side times |u|."""
    log1p_row(p, rest, out)
    for k in range(len(u)):
        out[k] += min(p[k], rest[k]) * abs(u[k])


@nb.njit(**FAST)
def _logistic_gain(q, g, old, earlier, p, after, change, moved):  # type: ignore[no-untyped-def]
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
        for halving in range(_MAX_HALVINGS + 1):
            for k in range(n_classes):
                h[k] = old[k] - p[k] if p[k] < 0.5 else rest[k] - old_rest[k]
            times_covariance(parent, place, v, h, sums, change)
            entropy_row(u, p, rest, after)
            if _logistic_gain(q, g, old, earlier, p, after, change, moved) >= -rounding * moved[0]:
                break
            for k in range(n_classes):
                u[k] = before[k] + (u[k] - before[k]) / 2 if halving < _MAX_HALVINGS - 1 else before[k]
            sigmoid_row(u, p, rest, bits)
        for a in range(indptr[i], indptr[i + 1]):
            x, j = c * data[a], indices[a]
            for k in range(n_classes):
                W[j, k] += x * change[k]
    return total_loss, total_norm / 2, total_gap
