"""Hinge losses of triplets (row, target neighbour, impostor) under a metric A, with the weights of the pairs.

Distances are d(i, l) = q_i + q_l - 2 y_i.z_l with Y = Z A and q_i = y_i.z_i: one product for each pair. Pairs of row
i are (i, targets[s]) and (i, impostors[s]) for s in the range of its pointers. A triplet with the slack
s = 1 + d(i, j) - d(i, l) costs

    0 if s <= 0,      s^2 / (2 h) if s <= h,      s - h / 2 above,

the hinge smoothed over the width h, and its multiplier is min(max(s / h, 0), 1).
"""

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST


@nb.njit(inline="always", **FAST)
def distance(Y, Z, q, i, l):  # type: ignore[no-untyped-def]
    """Squared distance of rows i and l; negative if A is indefinite."""
    total = 0.0
    for p in range(Z.shape[1]):
        total += Y[i, p] * Z[l, p]
    return q[i] + q[l] - 2 * total


@nb.njit(**FAST)
def margin_losses(  # type: ignore[no-untyped-def]
    Z, Y, q, share, first_target, targets, first_impostor, impostors, width, push, sums, degree
):
    """Return the smoothed loss, the exact one and the sum of the multipliers, each weighted by `share`.

    Adds to `sums` (n_rows x n_dims) the rows z_l times the weights of the pairs (i, l), and to `degree` the weights
    of the pairs of each row, so that sum_il w_il (z_i - z_l)(z_i - z_l)' = Z' diag(degree) Z - Z' sums - sums' Z. A
    multiplier adds `push * share_i` to the weight of its target pair and subtracts it from that of its impostor.
    With `sums` of no rows only the losses are computed.
    """
    smooth, exact, multipliers = 0.0, 0.0, 0.0
    wanted = len(sums) > 0
    most = 0
    for i in range(len(Z)):
        most = max(most, first_target[i + 1] - first_target[i])
    near, of_target = np.empty(most), np.empty(most)
    for i in range(len(Z)):
        begin, end = first_target[i], first_target[i + 1]
        n_targets = end - begin
        if n_targets == 0:
            continue
        reach = -np.inf
        for t in range(n_targets):
            near[t] = 1.0 + distance(Y, Z, q, i, targets[begin + t])
            of_target[t] = 0.0
            reach = max(reach, near[t])
        for s in range(first_impostor[i], first_impostor[i + 1]):
            l = impostors[s]
            away = distance(Y, Z, q, i, l)
            if away >= reach:
                continue
            on_impostor = 0.0
            for t in range(n_targets):
                slack = near[t] - away
                if slack > 0:
                    exact += share[i] * slack
                    multiplier = min(slack / width, 1.0)
                    smooth += share[i] * multiplier * (slack - multiplier * width / 2)
                    of_target[t] += multiplier
                    on_impostor += multiplier
            if wanted:
                weight = -push * share[i] * on_impostor
                degree[i] += weight
                degree[l] += weight
                for p in range(Z.shape[1]):
                    sums[i, p] += weight * Z[l, p]
        for t in range(n_targets):
            multipliers += share[i] * of_target[t]
            if wanted:
                j, weight = targets[begin + t], push * share[i] * of_target[t]
                degree[i] += weight
                degree[j] += weight
                for p in range(Z.shape[1]):
                    sums[i, p] += weight * Z[j, p]
    return smooth, exact, multipliers
