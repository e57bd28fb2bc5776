"""Passes over rows of discriminative clustering: softmax and counts, the gradient of the scores, hard cells, steps.

`codes` has a column for each auxiliary variable. An entry is the row of `counts` (all classes of all variables, one
after another) that the label of the row belongs to, or -1 for a row without a label.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.linear.softmax import exp_row
from arbora.kernels.products import FAST


@nb.njit(**FAST)
def softmax_counts(S, codes, counts):  # type: ignore[no-untyped-def]
    """Replace scores by memberships and add them to `counts` (n_classes, n_clusters).

    Returns the sums over rows of the largest score and of log sum_j exp(s_j).
    """
    n_rows, n_clusters = S.shape
    bits = np.empty(n_clusters, np.int32)
    tops, norms = 0.0, 0.0
    for i in range(n_rows):
        s = S[i]
        top = s[0]
        for j in range(1, n_clusters):
            top = max(top, s[j])
        for j in range(n_clusters):
            s[j] -= top
        exp_row(s, s, bits)
        total = s[0]
        for j in range(1, n_clusters):
            total += s[j]
        inverse = 1 / total
        for j in range(n_clusters):
            s[j] *= inverse
        tops += top
        norms += top + math.log(total)
        for m in range(codes.shape[1]):
            c = codes[i, m]
            if c >= 0:
                for j in range(n_clusters):
                    counts[c, j] += s[j]
    return tops, norms


@nb.njit(**FAST)
def score_gradient(Y, codes, L, extra, hard):  # type: ignore[no-untyped-def]
    """Replace memberships y by y (v - <y, v>), v = sum of L over the labels of the row + the row of `extra`.

    `extra` may have no rows. `hard` is added at the largest membership of each row.
    """
    n_rows, n_clusters = Y.shape
    v = np.empty(n_clusters, np.float64)
    with_extra = extra.shape[0] > 0
    for i in range(n_rows):
        y = Y[i]
        best = 0
        if hard != 0.0:
            for j in range(1, n_clusters):
                if y[j] > y[best]:
                    best = j
        for j in range(n_clusters):
            v[j] = 0.0
        if with_extra:
            for j in range(n_clusters):
                v[j] = extra[i, j]
        for m in range(codes.shape[1]):
            c = codes[i, m]
            if c >= 0:
                for j in range(n_clusters):
                    v[j] += L[c, j]
        mean = 0.0
        for j in range(n_clusters):
            mean += y[j] * v[j]
        for j in range(n_clusters):
            y[j] = y[j] * (v[j] - mean)
        y[best] += hard


@nb.njit(**FAST)
def count_cells(S, codes, counts, cells):  # type: ignore[no-untyped-def]
    """Write the cell with the largest score of each row; count its labels in `counts` (n_classes, n_clusters)."""
    for i in range(S.shape[0]):
        best = 0
        for j in range(1, S.shape[1]):
            if S[i, j] > S[i, best]:
                best = j
        cells[i] = best
        for m in range(codes.shape[1]):
            c = codes[i, m]
            if c >= 0:
                counts[c, best] += 1


@nb.njit(**FAST)
def _hard_energy(Z, codes, M, n, sizes, log_gamma, log_total, variable, kind, strength, log_rho, parts):  # type: ignore[no-untyped-def]
    """Hard cost of prototypes M with its regulariser; `parts` receives sums of responsibilities (kind 3)."""
    n_rows, width = Z.shape
    n_clusters = M.shape[0]
    n[:] = 0
    sizes[:] = 0
    parts[:] = 0.0
    penalty = 0.0
    squares = np.empty(n_clusters, np.float64)
    for i in range(n_rows):
        best = 0
        for j in range(n_clusters):
            total = 0.0
            for k in range(width):
                difference = Z[i, k] - M[j, k]
                total += difference * difference
            squares[j] = total
            if total < squares[best]:
                best = j
        for m in range(codes.shape[1]):
            c = codes[i, m]
            if c >= 0:
                n[c, best] += 1
                sizes[variable[c], best] += 1
        if kind == 2:
            penalty += strength * squares[best]
        elif kind == 3:
            top = -np.inf
            for j in range(n_clusters):
                squares[j] = log_rho[j] - strength * squares[j]
                top = max(top, squares[j])
            total = 0.0
            for j in range(n_clusters):
                squares[j] = math.exp(squares[j] - top)
                total += squares[j]
            for j in range(n_clusters):
                parts[j] += squares[j] / total
            penalty -= top + math.log(total)
    energy = penalty
    weight = 1.0 + strength if kind == 1 else 1.0
    for v in range(sizes.shape[0]):
        for j in range(n_clusters):
            energy += weight * log_total[v, sizes[v, j]]
    for c in range(n.shape[0]):
        for j in range(n_clusters):
            energy -= log_gamma[n[c, j]]
    return energy


@nb.njit(**FAST)
def anneal(  # type: ignore[no-untyped-def]
    Z, codes, M, log_gamma, log_total, variable, kind, strength, width, n_trial, steps, temperature, rng
):
    """Anneal prototypes M, in place, by (4.15) to (4.17).

    `kind` of the regulariser: 0 none, 1 entropy, 2 distortion, 3 mixture of Gaussians. `steps` are those of this
    call. A temperature of 0 or less means a trial run at temperature 1; it returns the mean increase of the energy
    from step `n_trial` on. Otherwise the best energy is returned, and M is the best.
    """
    n_clusters, n_features = M.shape
    n = np.zeros((variable.shape[0], n_clusters), np.int64)
    sizes = np.zeros((log_total.shape[0], n_clusters), np.int64)
    log_rho = np.full(n_clusters, -math.log(n_clusters))
    parts, candidate, best = np.zeros(n_clusters), M.copy(), M.copy()
    energy = _hard_energy(
        Z, codes, M, n, sizes, log_gamma, log_total, variable, kind, strength, log_rho, parts
    )
    lowest, risen, n_risen = energy, 0.0, 0
    trial = temperature <= 0
    for t in range(1, steps + 1):
        deviation = width * math.sqrt(math.sqrt(1.0 / (math.log(t) + 10.0)) / 2)  # (4.15), (4.16)
        for j in range(n_clusters):
            for k in range(n_features):
                candidate[j, k] = M[j, k] + deviation * rng.standard_normal()
        last_energy = _hard_energy(
            Z, codes, candidate, n, sizes, log_gamma, log_total, variable, kind, strength, log_rho, parts
        )
        rise = last_energy - energy
        if trial and rise > 0 and t > n_trial:
            risen += rise
            n_risen += 1
        now = 1.0 if trial else temperature * (1.0 - t / (steps + 1.0))  # (4.17)
        if rise <= 0 or rng.random() < math.exp(-rise / now):
            energy = last_energy
            M[:] = candidate
            if kind == 3:
                for j in range(n_clusters):  # (5.8)
                    log_rho[j] = math.log(max(parts[j] / Z.shape[0], 1e-12))
            if energy < lowest:
                lowest = energy
                best[:] = M
    if trial:
        return risen / max(n_risen, 1)
    M[:] = best
    return lowest


@nb.njit(**FAST)
def adapt(Z, codes, M, gamma, inverse_width, rate, first, n_steps, rng):  # type: ignore[no-untyped-def]
    """Stochastic steps (4.4), (4.5) on prototypes M and log-weights gamma (n_classes, n_clusters), in place.

    The rate falls linearly from `rate` at step 0 to zero at step `n_steps`; this call makes the steps from `first`
    to the end of its rows: the rows of Z are visited in order. Rows without a label are skipped.
    """
    n_clusters, n_features = M.shape
    n_classes = gamma.shape[0]
    y, norm = np.empty(n_clusters), np.empty(n_clusters)
    for j in range(n_clusters):
        top = -np.inf
        for c in range(n_classes):
            top = max(top, gamma[c, j])
        total = 0.0
        for c in range(n_classes):
            gamma[c, j] -= top
            total += math.exp(gamma[c, j])
        norm[j] = math.log(total)
    pair = np.empty(2, np.int64)
    for i in range(Z.shape[0]):
        c = codes[i, 0]
        if c < 0:
            continue
        alpha = rate * (1.0 - (first + i) / n_steps)
        top = -np.inf
        for j in range(n_clusters):
            total = 0.0
            for k in range(n_features):
                difference = Z[i, k] - M[j, k]
                total += difference * difference
            y[j] = -total * inverse_width
            top = max(top, y[j])
        total = 0.0
        for j in range(n_clusters):
            y[j] = math.exp(y[j] - top)
            total += y[j]
        for r in range(2):
            left, j = rng.random() * total, 0
            while j < n_clusters - 1 and left > y[j]:
                left -= y[j]
                j += 1
            pair[r] = j
        j, k2 = pair[0], pair[1]
        if j != k2:
            ratio = (gamma[c, k2] - norm[k2]) - (gamma[c, j] - norm[j])
            step = alpha * ratio
            for k in range(n_features):
                M[j, k] -= step * (Z[i, k] - M[j, k])
                M[k2, k] += step * (Z[i, k] - M[k2, k])
        for r in range(2):
            j = pair[r]
            total = 0.0
            for a in range(n_classes):
                gamma[a, j] -= alpha * (math.exp(gamma[a, j] - norm[j]) - (1.0 if a == c else 0.0))
                total += math.exp(gamma[a, j])
            norm[j] = math.log(total)


# --- Hinge losses of triplets (row, target neighbour, impostor) under a metric A, with the weights of the pairs ---
#
# Distances are d(i, l) = q_i + q_l - 2 y_i.z_l with Y = Z A and q_i = y_i.z_i: one product for each pair. Pairs of
# row i are (i, targets[s]) and (i, impostors[s]) for s in the range of its pointers. A triplet with the slack s = 1
# + d(i, j) - d(i, l) costs
#
#     0 if s <= 0,      s^2 / (2 h) if s <= h,      s - h / 2 above,
#
# the hinge smoothed over the width h, and its multiplier is min(max(s / h, 0), 1).


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
            squared_distance = distance(Y, Z, q, i, l)
            if squared_distance >= reach:
                continue
            on_impostor = 0.0
            for t in range(n_targets):
                slack = near[t] - squared_distance
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
