"""Collapsed Gibbs sweeps over the labels of rows: Dirichlet-process and finite mixtures of Gaussians.

A row leaves its cluster and joins cluster k with probability proportional to n_k t_k(x), or (alpha / K + n_k) t_k(x)
if the number K of clusters is fixed, and a new one with probability proportional to alpha t_0(x); t is the Student
density of `normal_wishart`. The margin multiplies these by exp(-2 c h) of `arbora.infer.mcmc.max_margin`, for the row
itself and, where a cluster opens or closes, for all rows: every row then has one more or one fewer competitor.

The projections of new clusters come from a pool of draws from their prior. The projection of a cluster that closes
takes a random place of the pool, and one that is used is replaced by a new draw (Favaro and Teh 2013, Reuse).

Reference: S. Favaro and Y. W. Teh (2013). MCMC for normalized random measure mixture models. Statistical Science
28(3).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.gibbs.normal_wishart import (
    EXACT,
    N_SCRATCH,
    add_row,
    copy_cluster,
    log_weight,
    remove_row,
)

NEGLIGIBLE = -40.0  # log of a probability below rounding error


class MarginSlots(NamedTuple):
    """Projections of the slots and the scores of rows: arrays that the sweeps change."""

    rows: Any  # (n_rows, n_margin_features)
    projections: Any  # (n_slots, n_margin_features)
    scores: Any  # (n_rows, n_slots)
    pool: Any  # (n_pool,): slots of the projections for new clusters
    c: float
    width: float
    deviation: float  # standard deviation of the prior of projections


@nb.njit(**EXACT)
def draw_index(log_weights, size, rng):  # type: ignore[no-untyped-def]
    """Draw a position with probability proportional to exp(log_weights[:size]), which are destroyed."""
    largest = -np.inf
    for q in range(size):
        largest = max(largest, log_weights[q])
    total, last = 0.0, 0
    for q in range(size):
        gap = log_weights[q] - largest
        if gap > NEGLIGIBLE:
            log_weights[q] = math.exp(gap)
            total += log_weights[q]
            last = q
        else:
            log_weights[q] = 0.0
    u = rng.random() * total
    for q in range(last):
        u -= log_weights[q]
        if u < 0.0:
            return q
    return last


@nb.njit(**EXACT)
def list_active(counts, fixed, active):  # type: ignore[no-untyped-def]
    """List the slots of clusters that exist: those with rows, or all if their number is fixed; return how many."""
    n_active = 0
    for k in range(len(counts) - N_SCRATCH):
        if fixed or counts[k] > 0:
            active[n_active] = k
            n_active += 1
    return n_active


@nb.njit(**EXACT)
def drop(active, n_active, k):  # type: ignore[no-untyped-def]
    """Remove slot k from the list; return its new length."""
    for q in range(n_active):
        if active[q] == k:
            active[q] = active[n_active - 1]
            break
    return n_active - 1


@nb.njit(**EXACT)
def sweep_labels(  # type: ignore[no-untyped-def]
    X, order, first, labels, clusters, prior, log_sizes, log_alpha, empty, fixed, rng
):
    """Draw the labels of the rows order[first:], one after the other.

    `log_sizes[n]` is the log-weight of a cluster of n rows, `empty[i]` the log-density of row i in a new cluster.
    Returns the position in `order` at which no slot was left for a new cluster, or the number of rows.
    """
    n_slots = len(clusters.counts) - N_SCRATCH
    spare, counts = n_slots, clusters.counts
    active, weights, work = np.empty(n_slots, np.int64), np.empty(n_slots + 1), np.empty(X.shape[1])
    n_active = list_active(counts, fixed, active)
    for at in range(first, len(order)):
        if not fixed and n_active == n_slots:
            return at
        i = order[at]
        x, old = X[i], labels[i]
        copy_cluster(clusters, old, spare)
        remove_row(X, labels, i, clusters, old, prior, work)
        if not fixed and counts[old] == 0:
            n_active = drop(active, n_active, old)
        size, lowest = n_active, -1e300
        if not fixed:
            weights[size] = log_alpha + empty[i]
            lowest = weights[size] + NEGLIGIBLE
            size += 1
        lowest = max(lowest, log_weight(
            x, clusters, old, prior, log_sizes[counts[old]], lowest, work) + NEGLIGIBLE)  # fmt: skip
        for q in range(n_active):
            k = active[q]
            weights[q] = log_weight(x, clusters, k, prior, log_sizes[counts[k]], lowest, work)
            lowest = max(lowest, weights[q] + NEGLIGIBLE)
        q = draw_index(weights, size, rng)
        if q == n_active:
            k = old
            if counts[k] > 0:
                k = 0
                while counts[k] > 0:
                    k += 1
            active[n_active] = k
            n_active += 1
        else:
            k = active[q]
        labels[i] = k
        if k == old:
            copy_cluster(clusters, spare, k)
        else:
            add_row(x, clusters, k, prior, work)
    return len(order)


@nb.njit(**EXACT)
def fill_losses(labels, scores, active, n_active, width, losses):  # type: ignore[no-untyped-def]
    """Write the loss of every row among the active clusters; return their sum."""
    total = 0.0
    for j in range(len(labels)):
        losses[j] = 0.0
        if n_active > 1:
            best = -np.inf
            for q in range(n_active):
                k = active[q]
                if k != labels[j] and scores[j, k] > best:
                    best = scores[j, k]
            losses[j] = max(0.0, width + best - scores[j, labels[j]])
        total += losses[j]
    return total


@nb.njit(**EXACT)
def fill_charges(labels, losses, skipped, margin, charges):  # type: ignore[no-untyped-def]
    """Write what the losses of all rows but one would grow by if a projection of the pool opened a cluster."""
    for a in range(len(charges)):
        total, k = 0.0, margin.pool[a]
        for j in range(len(labels)):
            if j != skipped:
                z = margin.width + margin.scores[j, k] - margin.scores[j, labels[j]]
                if z > losses[j]:
                    total += z - losses[j]
        charges[a] = 2 * margin.c * total


@nb.njit(**EXACT)
def charge_row(i, label, loss, sign, margin, charges):  # type: ignore[no-untyped-def]
    """Add the part of one row to the charges, or subtract it."""
    for a in range(len(charges)):
        z = margin.width + margin.scores[i, margin.pool[a]] - margin.scores[i, label]
        if z > loss:
            charges[a] += sign * 2 * margin.c * (z - loss)


@nb.njit(**EXACT)
def draw_projection(k, margin, rng):  # type: ignore[no-untyped-def]
    """Give slot k a projection from the prior, and its scores."""
    for j in range(margin.rows.shape[1]):
        margin.projections[k, j] = margin.deviation * rng.standard_normal()
    for i in range(margin.rows.shape[0]):
        score = 0.0
        for j in range(margin.rows.shape[1]):
            score += margin.rows[i, j] * margin.projections[k, j]
        margin.scores[i, k] = score


@nb.njit(**EXACT)
def weigh(  # type: ignore[no-untyped-def]
    i, x, active, n_active, clusters, prior, log_sizes, log_new, fixed, margin, charges, weights, own, work
):
    """Write the log-weights of the active clusters and of the pool, and the losses that row i would have."""
    scores, c, width = margin.scores, margin.c, margin.width
    first, second, best = -np.inf, -np.inf, -1
    for q in range(n_active):
        g = scores[i, active[q]]
        if g > first:
            first, second, best = g, first, q
        elif g > second:
            second = g
    lowest = -1e300
    for a in range(0 if fixed else len(margin.pool)):
        loss = max(0.0, width + first - scores[i, margin.pool[a]]) if n_active > 0 else 0.0
        weights[n_active + a] = log_new - 2 * c * loss - charges[a]
        lowest = max(lowest, weights[n_active + a] + NEGLIGIBLE)
    for q in range(n_active):
        k = active[q]
        own[q] = 0.0
        if n_active > 1:
            own[q] = max(0.0, width + (second if q == best else first) - scores[i, k])
        size = log_sizes[clusters.counts[k]] - 2 * c * own[q]
        weights[q] = log_weight(x, clusters, k, prior, size, lowest, work)
        lowest = max(lowest, weights[q] + NEGLIGIBLE)
    return n_active if fixed else n_active + len(margin.pool)


@nb.njit(**EXACT)
def replace_in_pool(a, counts, margin, rng):  # type: ignore[no-untyped-def]
    """Give place a of the pool, whose projection was used, a new one in a slot that is not in use."""
    free, taken = -1, True
    while taken:
        free += 1
        taken = counts[free] > 0
        for b in range(len(margin.pool)):
            taken = taken or margin.pool[b] == free
    margin.pool[a] = free
    draw_projection(free, margin, rng)


@nb.njit(**EXACT)
def sweep_labels_margin(  # type: ignore[no-untyped-def]
    X, order, first, labels, clusters, prior, log_sizes, log_new, empty, fixed, margin, rng
):
    """Like `sweep_labels`, with margins; `log_new` is log(alpha / n_pool)."""
    n_slots, n_pool = len(clusters.counts) - N_SCRATCH, len(margin.pool)
    spare, counts = n_slots, clusters.counts
    active, work = np.empty(n_slots, np.int64), np.empty(X.shape[1])
    weights, own, charges = np.empty(n_slots + n_pool), np.empty(n_slots), np.zeros(n_pool)
    losses, stale = np.empty(len(labels)), True
    n_active = list_active(counts, fixed, active)
    for at in range(first, len(order)):
        if not fixed and n_active + n_pool + 1 > n_slots:
            return at
        i = order[at]
        x, old = X[i], labels[i]
        copy_cluster(clusters, old, spare)
        remove_row(X, labels, i, clusters, old, prior, work)
        if not fixed:
            if counts[old] == 0:
                n_active = drop(active, n_active, old)
                margin.pool[rng.integers(0, n_pool)] = old
                stale = True
            if stale:
                fill_losses(labels, margin.scores, active, n_active, margin.width, losses)
                fill_charges(labels, losses, i, margin, charges)
                stale = False
            else:
                charge_row(i, old, losses[i], -1.0, margin, charges)
        size = weigh(
            i, x, active, n_active, clusters, prior, log_sizes, log_new + empty[i], fixed, margin, charges,
            weights, own, work,
        )  # fmt: skip
        q = draw_index(weights, size, rng)
        if q < n_active:
            k = active[q]
            losses[i] = own[q]
            if not fixed:
                charge_row(i, k, losses[i], 1.0, margin, charges)
        else:
            k = margin.pool[q - n_active]
            active[n_active] = k
            n_active += 1
            stale = True
        labels[i] = k
        if k == old:
            copy_cluster(clusters, spare, k)
        else:
            add_row(x, clusters, k, prior, work)
        if q >= size - n_pool and not fixed:
            replace_in_pool(q - (size - n_pool), counts, margin, rng)
    return len(order)
