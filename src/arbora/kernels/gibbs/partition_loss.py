"""Similarity of rows over draws of partitions, and the partition that is nearest to all draws.

For a function f with f(0) = 0, two partitions of n rows with clusters of sizes n_k and n_l that share n_kl rows have
the distance

    sum_k f(n_k) + sum_l f(n_l) - 2 sum_kl f(n_kl).

f(x) = x log(x) / n gives the variation of information, f(x) = x^2 / n^2 Binder's loss: the share of ordered pairs of
rows that are together in one of the partitions only. f is passed as a table.
"""

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.gibbs.normal_wishart import EXACT


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
        for at in range(len(order)):
            i = order[at]
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
