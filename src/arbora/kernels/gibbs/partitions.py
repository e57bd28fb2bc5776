"""Similarity of rows over draws of partitions, and the partition that is nearest to all draws.

For a function f with f(0) = 0, two partitions of n rows with clusters of sizes n_k and n_l that share n_kl rows have
the distance

    sum_k f(n_k) + sum_l f(n_l) - 2 sum_kl f(n_kl).

f(x) = x log(x) / n gives the variation of information, f(x) = x^2 / n^2 Binder's loss: the share of ordered pairs of
rows that are together in one of the partitions only. f is passed as a table.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.gibbs.normal_wishart import (
    EXACT,
    N_SCRATCH,
    add_row,
    clear_cluster,
    copy_cluster,
    factorize,
    log_student,
    log_weight,
    remove_row,
    restore_scale,
)

# --- Collapsed Gibbs sweeps over the labels of rows: Dirichlet-process and finite mixtures of Gaussians -----
#
# A row leaves its cluster and joins cluster k with probability proportional to n_k t_k(x), or (alpha / K + n_k)
# t_k(x) if the number K of clusters is fixed, and a new one with probability proportional to alpha t_0(x); t is the
# Student density of `normal_wishart`. The margin multiplies these by exp(-2 c h) of `arbora.infer.mcmc.max_margin`,
# for the row itself and, where a cluster opens or closes, for all rows: every row then has one more or one fewer
# competitor.
#
# The projections of new clusters come from a pool of draws from their prior. The projection of a cluster that closes
# takes a random place of the pool, and one that is used is replaced by a new draw (Favaro and Teh 2013, Reuse).
#
# Reference: S. Favaro and Y. W. Teh (2013). MCMC for normalized random measure mixture models. Statistical Science
# 28(3).


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
    for position in range(first, len(order)):
        if not fixed and n_active == n_slots:
            return position
        i = order[position]
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
    i, x, active, n_active, clusters, prior, log_sizes, log_new, fixed, margin, charges, weights, hinge, work
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
        hinge[q] = 0.0
        if n_active > 1:
            hinge[q] = max(0.0, width + (second if q == best else first) - scores[i, k])
        size = log_sizes[clusters.counts[k]] - 2 * c * hinge[q]
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
    weights, hinge, charges = np.empty(n_slots + n_pool), np.empty(n_slots), np.zeros(n_pool)
    losses, stale = np.empty(len(labels)), True
    n_active = list_active(counts, fixed, active)
    for position in range(first, len(order)):
        if not fixed and n_active + n_pool + 1 > n_slots:
            return position
        i = order[position]
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
            weights, hinge, work,
        )  # fmt: skip
        q = draw_index(weights, size, rng)
        if q < n_active:
            k = active[q]
            losses[i] = hinge[q]
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


# --- Sequentially allocated merge-split moves (Dahl 2005) of Gaussian clusters, with or without margins -----
#
# Two rows are drawn. If they share a cluster, a split is proposed: each of the two starts a cluster, and the other
# rows join one of them in random order, with probability proportional to n t(x). If they do not, the merge of their
# clusters is proposed. The move is accepted with the ratio of the posterior to the probability of the allocation. A
# split of a Dirichlet-process mixture draws the projection of the new cluster from its prior, which cancels; with a
# fixed number of clusters it takes one of the clusters without rows.
#
# Reference: D. Dahl (2005). Sequentially-allocated merge-split sampler for conjugate and nonconjugate Dirichlet
# process mixture models. Technical report, Texas A&M University.


@nb.njit(**EXACT)
def log_marginal(clusters, k, prior, table_sums):  # type: ignore[no-untyped-def]
    """Return the log-density of the rows of cluster k; `table_sums[n]` is the sum of table[:n]."""
    n = clusters.counts[k]
    return table_sums[n] + prior.half[0] * prior.logdet - prior.half[n] * clusters.logdets[k]


@nb.njit(**EXACT)
def join_clusters(left, right, target, clusters, prior, work):  # type: ignore[no-untyped-def]
    """Write the statistics of the union of two clusters into a slot; return whether they are reliable.

    S_n + r_n m_n m_n' is the prior's plus the sum of x x', so that these add up; means are taken about the prior's.
    """
    counts, means, factors = clusters.counts, clusters.means, clusters.factors
    p, (rows, columns) = means.shape[1], prior.factor.shape
    r1, r2 = prior.r + counts[left], prior.r + counts[right]
    rn = r1 + counts[right]
    scale = np.zeros((rows, columns))
    if rows > 1:
        part = np.zeros((rows, columns))
        restore_scale(factors[left], scale)
        restore_scale(factors[right], part)
        scale += part
        restore_scale(prior.factor, part)
        scale -= part
    else:
        scale[:] = factors[left] + factors[right] - prior.factor
    for j in range(p):
        a, b = means[left, j] - prior.mean[j], means[right, j] - prior.mean[j]
        work[j] = (r1 * a + r2 * b) / rn
    for j in range(p):
        a, b = means[left, j] - prior.mean[j], means[right, j] - prior.mean[j]
        for i in range(j, p) if rows > 1 else range(j, j + 1):
            a2, b2 = means[left, i] - prior.mean[i], means[right, i] - prior.mean[i]
            term = r1 * a * a2 + r2 * b * b2 - rn * work[j] * work[i]
            if rows > 1:
                scale[j, i] += term
            else:
                scale[0, j if columns == p else 0] += term
    counts[target] = counts[left] + counts[right]
    for j in range(p):
        means[target, j] = prior.mean[j] + work[j]
    if rows > 1:
        logdet = factorize(scale, factors[target], clusters.inverses[target])
    else:
        factors[target] = scale
        clusters.inverses[target] = 1.0 / scale[0]
        logdet = np.sum(np.log(scale[0]))
    clusters.logdets[target] = logdet
    return logdet == logdet


@nb.njit(**EXACT)
def choose_rows(labels, members, rng):  # type: ignore[no-untyped-def]
    """Draw two rows; list the other rows of their clusters in random order. Returns the rows and the length."""
    n = len(labels)
    i, j = rng.integers(0, n), rng.integers(0, n - 1)
    if j >= i:
        j += 1
    size = 0
    for q in range(n):
        if q != i and q != j and (labels[q] == labels[i] or labels[q] == labels[j]):
            members[size] = q
            size += 1
    for q in range(size - 1, 0, -1):
        t = rng.integers(0, q + 1)
        members[q], members[t] = members[t], members[q]
    return i, j, size


@nb.njit(**EXACT)
def allocate(  # type: ignore[no-untyped-def]
    X, i, j, members, size, labels, is_split, slot, clusters, prior, log_sizes, side, rng
):
    """Distribute rows over two clusters in the scratch slots; return the log-probability of the allocation.

    A split draws the side of each member; a merge finds the probability of the sides that the members have.
    """
    work = np.empty(X.shape[1])
    for q in range(2):
        clear_cluster(clusters, slot + q, prior)
        add_row(X[i] if q == 0 else X[j], clusters, slot + q, prior, work)
    total = 0.0
    for q in range(size):
        x = X[members[q]]
        odds = log_sizes[clusters.counts[slot + 1]] + log_student(x, clusters, slot + 1, prior, work)
        odds -= log_sizes[clusters.counts[slot]] + log_student(x, clusters, slot, prior, work)
        log_first = -math.log1p(math.exp(odds)) if odds < 30.0 else -odds
        if is_split:
            side[q] = math.log(rng.random()) >= log_first
        else:
            side[q] = labels[members[q]] == labels[j]
        total += log_first + (odds if side[q] else 0.0)
        add_row(x, clusters, slot + side[q], prior, work)
    return total


@nb.njit(**EXACT)
def free_slot(counts, fixed, rng):  # type: ignore[no-untyped-def]
    """Return a slot without rows, and the number of these; a random one if the number of clusters is fixed."""
    n_free, slot = 0, -1
    for k in range(len(counts) - N_SCRATCH):
        if counts[k] == 0:
            n_free += 1
            if slot < 0 or (fixed and rng.random() * n_free < 1.0):
                slot = k
    return slot, n_free


@nb.njit(**EXACT)
def total_loss(labels, counts, fixed, margin, active, losses):  # type: ignore[no-untyped-def]
    """Return the sum of the losses of all rows."""
    n_active = list_active(counts, fixed, active)
    return fill_losses(labels, margin.scores, active, n_active, margin.width, losses)


@nb.njit(**EXACT)
def log_split_ratio(clusters, slot, joined, prior, table_sums, log_alpha, offset):  # type: ignore[no-untyped-def]
    """Return the log-ratio of the posterior after and before a split, without margins."""
    a, b = clusters.counts[slot], clusters.counts[slot + 1]
    sizes = math.lgamma(a + offset) + math.lgamma(b + offset) - math.lgamma(a + b + offset)
    parts = log_marginal(clusters, slot, prior, table_sums) + log_marginal(
        clusters, slot + 1, prior, table_sums
    )
    return log_alpha + sizes + parts - log_marginal(clusters, joined, prior, table_sums)


@nb.njit(**EXACT)
def relabel(labels, first, j, members, size, side, new):  # type: ignore[no-untyped-def]
    """Give row j and the members of the second side one label, and the other members another."""
    labels[j] = new
    for q in range(size):
        labels[members[q]] = new if side[q] else first


@nb.njit(**EXACT)
def merge_split(  # type: ignore[no-untyped-def]
    X,
    labels,
    clusters,
    prior,
    table_sums,
    log_sizes,
    log_alpha,
    offset,
    fixed,
    n_tries,
    has_margin,
    margin,
    rng,
):
    """Propose `n_tries` moves; return the number of accepted ones.

    `log_alpha` is log(alpha), or -lgamma(alpha / K) if the number K of clusters is fixed; `offset` 0, or alpha / K.
    """
    n, n_slots, counts = len(labels), len(clusters.counts) - N_SCRATCH, clusters.counts
    members, side, work = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(X.shape[1])
    active, losses, accepted = np.empty(n_slots, np.int64), np.empty(n), 0
    first, second, third = n_slots, n_slots + 1, n_slots + 2
    for _ in range(n_tries if n > 1 else 0):
        i, j, size = choose_rows(labels, members, rng)
        left, right = labels[i], labels[j]
        is_split = left == right
        new, n_free = free_slot(counts, fixed, rng)
        if is_split and n_free == 0:
            continue
        log_q = allocate(
            X, i, j, members, size, labels, is_split, first, clusters, prior, log_sizes, side, rng
        )
        if not is_split and not join_clusters(left, right, third, clusters, prior, work):
            clear_cluster(clusters, third, prior)
            for q in range(size + 2):
                row = members[q] if q < size else (i if q == size else j)
                add_row(X[row], clusters, third, prior, work)
        joined = left if is_split else third
        ratio = log_split_ratio(clusters, first, joined, prior, table_sums, log_alpha, offset) - log_q
        if fixed:  # the reverse of a merge finds one more cluster without rows
            ratio += math.log(n_free if is_split else n_free + 1.0)
        target = new if is_split else left
        if not is_split:
            ratio = -ratio
        if has_margin:
            before = total_loss(labels, counts, fixed, margin, active, losses)
            if is_split and not fixed:
                draw_projection(new, margin, rng)
            relabel(labels, left, j, members, size, side if is_split else np.zeros(n, np.int64), target)
            a, b = counts[left], counts[new if is_split else right]
            counts[left], counts[new if is_split else right] = 1, 1 if is_split else 0
            ratio -= 2 * margin.c * (total_loss(labels, counts, fixed, margin, active, losses) - before)
            counts[left], counts[new if is_split else right] = a, b
            relabel(labels, left, j, members, size, side, right)
        if not math.log(rng.random()) < ratio:  # also where the ratio is not a number
            continue
        accepted += 1
        if is_split:
            relabel(labels, left, j, members, size, side, new)
            copy_cluster(clusters, first, left)
            copy_cluster(clusters, second, new)
        else:
            relabel(labels, left, j, members, size, side, left)
            copy_cluster(clusters, third, left)
            clear_cluster(clusters, right, prior)
    return accepted


# --- Similarity of rows over draws of partitions, and the partition that is nearest to all draws ------------


@nb.njit(**EXACT)
def count_together(draws, rows, columns, out):  # type: ignore[no-untyped-def]
    """Write the share of draws (n_draws, n_rows) in which each pair of a row and a column has one label."""
    n_draws = len(draws)
    counts = np.zeros(len(columns), np.int64)
    for a in range(len(rows)):
        counts[:] = 0
        for s in range(n_draws):
            label = draws[s, rows[a]]
            for b in range(len(columns)):
                counts[b] += draws[s, columns[b]] == label
        for b in range(len(columns)):
            out[a, b] = counts[b] / n_draws


@nb.njit(**EXACT)
def share_rows(draws, labels, n_labels, n_clusters):  # type: ignore[no-untyped-def]
    """Return the number of rows that cluster k of `labels` and label l of each draw share (n_draws, K, L)."""
    tables = np.zeros((len(draws), n_clusters, n_labels), np.int64)
    for s in range(len(draws)):
        for i in range(len(labels)):
            tables[s, labels[i], draws[s, i]] += 1
    return tables


@nb.njit(**EXACT)
def expected_distance(draws, labels, n_labels, f):  # type: ignore[no-untyped-def]
    """Return the mean distance of a partition from the draws."""
    K = labels.max() + 1
    table, total = np.zeros((K, n_labels), np.int64), 0.0
    for s in range(len(draws)):
        table[:] = 0
        for i in range(len(labels)):
            table[labels[i], draws[s, i]] += 1
        for k in range(K):
            total += f[table[k].sum()]
            for l in range(n_labels):
                total -= 2 * f[table[k, l]]
        for l in range(n_labels):
            total += f[table[:, l].sum()]
    return total / len(draws)


@nb.njit(**EXACT)
def improve_partition(draws, labels, n_labels, n_clusters, f, order, max_passes):  # type: ignore[no-untyped-def]
    """Move single rows to the cluster, or to a cluster of their own, that lowers the mean distance most.

    Changes `labels`, which have at most `n_clusters` clusters; returns the number of passes until nothing moved.
    """
    n_draws = len(draws)
    tables = share_rows(draws, labels, n_labels, n_clusters)
    sizes = np.zeros(n_clusters, np.int64)
    for i in range(len(labels)):
        sizes[labels[i]] += 1
    joint = np.empty(n_clusters)
    for turn in range(max_passes):
        moved = 0
        for position in range(len(order)):
            i = order[position]
            old = labels[i]
            joint[:] = 0.0
            tables_of_row(tables, draws, i, old, f, joint)
            best, least, empty = old, np.inf, False
            for k in range(n_clusters):
                size = sizes[k] - (k == old)
                if size == 0 and k != old:
                    if empty:
                        continue  # all clusters without rows are the same
                    empty = True
                cost = f[size + 1] - f[size] - 2 * joint[k] / n_draws
                if cost < least - 1e-12 or (k == old and cost <= least + 1e-12):
                    best, least = k, cost
            if best != old:
                moved += 1
                sizes[old] -= 1
                sizes[best] += 1
                labels[i] = best
                for s in range(n_draws):
                    tables[s, old, draws[s, i]] -= 1
                    tables[s, best, draws[s, i]] += 1
        if moved == 0:
            return turn + 1
    return max_passes


@nb.njit(**EXACT)
def tables_of_row(tables, draws, i, old, f, joint):  # type: ignore[no-untyped-def]
    """Add, over the draws, what f grows by in the shared rows when row i joins each cluster."""
    for s in range(len(draws)):
        l = draws[s, i]
        for k in range(len(joint)):
            shared = tables[s, k, l] - (k == old)
            joint[k] += f[shared + 1] - f[shared]
