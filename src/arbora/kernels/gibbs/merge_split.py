"""Sequentially allocated merge-split moves (Dahl 2005) of Gaussian clusters, with or without margins.

Two rows are drawn. If they share a cluster, a split is proposed: each of the two starts a cluster, and the other rows
join one of them in random order, with probability proportional to n t(x). If they do not, the merge of their clusters
is proposed. The move is accepted with the ratio of the posterior to the probability of the allocation. A split of a
Dirichlet-process mixture draws the projection of the new cluster from its prior, which cancels; with a fixed number
of clusters it takes one of the clusters without rows.

Reference: D. Dahl (2005). Sequentially-allocated merge-split sampler for conjugate and nonconjugate Dirichlet process
mixture models. Technical report, Texas A&M University.
"""

import math

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
    restore_scale,
)
from arbora.kernels.gibbs.partition_gibbs import draw_projection, fill_losses, list_active


@nb.njit(**EXACT)
def log_marginal(clusters, k, prior, table_sums):  # type: ignore[no-untyped-def]
    """Return the log-density of the rows of cluster k; `table_sums[n]` is the sum of table[:n]."""
    n = clusters.counts[k]
    return table_sums[n] + prior.half[0] * prior.logdet - prior.half[n] * clusters.logdets[k]


@nb.njit(**EXACT)
def join_clusters(one, other, target, clusters, prior, work):  # type: ignore[no-untyped-def]
    """Write the statistics of the union of two clusters into a slot; return whether they are reliable.

    S_n + r_n m_n m_n' is the prior's plus the sum of x x', so that these add up; means are taken about the prior's.
    """
    counts, means, factors = clusters.counts, clusters.means, clusters.factors
    p, (rows, columns) = means.shape[1], prior.factor.shape
    r1, r2 = prior.r + counts[one], prior.r + counts[other]
    rn = r1 + counts[other]
    scale = np.zeros((rows, columns))
    if rows > 1:
        part = np.zeros((rows, columns))
        restore_scale(factors[one], scale)
        restore_scale(factors[other], part)
        scale += part
        restore_scale(prior.factor, part)
        scale -= part
    else:
        scale[:] = factors[one] + factors[other] - prior.factor
    for j in range(p):
        a, b = means[one, j] - prior.mean[j], means[other, j] - prior.mean[j]
        work[j] = (r1 * a + r2 * b) / rn
    for j in range(p):
        a, b = means[one, j] - prior.mean[j], means[other, j] - prior.mean[j]
        for i in range(j, p) if rows > 1 else range(j, j + 1):
            a2, b2 = means[one, i] - prior.mean[i], means[other, i] - prior.mean[i]
            term = r1 * a * a2 + r2 * b * b2 - rn * work[j] * work[i]
            if rows > 1:
                scale[j, i] += term
            else:
                scale[0, j if columns == p else 0] += term
    counts[target] = counts[one] + counts[other]
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
    n_free, found = 0, -1
    for k in range(len(counts) - N_SCRATCH):
        if counts[k] == 0:
            n_free += 1
            if found < 0 or (fixed and rng.random() * n_free < 1.0):
                found = k
    return found, n_free


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
def relabel(labels, kept, j, members, size, side, new):  # type: ignore[no-untyped-def]
    """Give row j and the members of the second side one label, and the other members another."""
    labels[j] = new
    for q in range(size):
        labels[members[q]] = new if side[q] else kept


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
        one, other = labels[i], labels[j]
        is_split = one == other
        new, n_free = free_slot(counts, fixed, rng)
        if is_split and n_free == 0:
            continue
        log_q = allocate(
            X, i, j, members, size, labels, is_split, first, clusters, prior, log_sizes, side, rng
        )
        if not is_split and not join_clusters(one, other, third, clusters, prior, work):
            clear_cluster(clusters, third, prior)
            for q in range(size + 2):
                row = members[q] if q < size else (i if q == size else j)
                add_row(X[row], clusters, third, prior, work)
        joined = one if is_split else third
        ratio = log_split_ratio(clusters, first, joined, prior, table_sums, log_alpha, offset) - log_q
        if fixed:  # the reverse of a merge finds one more cluster without rows
            ratio += math.log(n_free if is_split else n_free + 1.0)
        target = new if is_split else one
        if not is_split:
            ratio = -ratio
        if has_margin:
            before = total_loss(labels, counts, fixed, margin, active, losses)
            if is_split and not fixed:
                draw_projection(new, margin, rng)
            relabel(labels, one, j, members, size, side if is_split else np.zeros(n, np.int64), target)
            a, b = counts[one], counts[new if is_split else other]
            counts[one], counts[new if is_split else other] = 1, 1 if is_split else 0
            ratio -= 2 * margin.c * (total_loss(labels, counts, fixed, margin, active, losses) - before)
            counts[one], counts[new if is_split else other] = a, b
            relabel(labels, one, j, members, size, side, other)
        if not math.log(rng.random()) < ratio:  # also where the ratio is not a number
            continue
        accepted += 1
        if is_split:
            relabel(labels, one, j, members, size, side, new)
            copy_cluster(clusters, first, one)
            copy_cluster(clusters, second, new)
        else:
            relabel(labels, one, j, members, size, side, one)
            copy_cluster(clusters, third, one)
            clear_cluster(clusters, other, prior)
    return accepted
