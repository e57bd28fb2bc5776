"""Statistics of Gaussian clusters under a normal-inverse-Wishart prior, updated one row at a time.

A cluster of n rows has the mean m_n and the scale S_n of its posterior. Adding a row x changes S_n by the rank-one
term f d d', d = x - m_n, f = r_n / (r_n + 1), r_n = r + n. The scale is kept as S_n = R' D R, R unit upper
triangular, D diagonal, which is updated without square roots (Gill, Golub, Murray and Saunders 1974, method C1).

The shape of the factors tells the form of the covariance: full (p, p), diagonal (1, p), spherical (1, 1). One feature
is treated as diagonal; the other forms then agree with it.

The Student density of a row x given a cluster, with L the change of log|S_n| that the row makes, is

    log t(x) = table[n] - (half[n + 1] - half[n]) log|S_n| - half[n + 1] L,

and the marginal density of the rows of a cluster is the sum of such terms:

    log m = table[0] + ... + table[n - 1] + half[0] log|S| - half[n] log|S_n|.

The tables depend on r, nu and n alone; `arbora.discover.gaussian.normal_wishart.prior_of` computes them.

Reference: P. Gill, G. Golub, W. Murray and M. Saunders (1974). Methods for modifying matrix factorizations.
Mathematics of Computation 28(126).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST

# Without fastmath: NaN and infinity have meaning.
EXACT: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}

N_SCRATCH = 3
_LOST = 1e-10  # a downdate that leaves less than this share of a diagonal has lost its digits


class Clusters(NamedTuple):
    """Statistics of the clusters, one slot each; the last `N_SCRATCH` slots are scratch space."""

    counts: Any  # (n_slots,)
    means: Any  # (n_slots, n_features): m_n
    factors: Any  # (n_slots, a, b): R above the diagonal and D on it; diagonal and spherical: D
    inverses: Any  # (n_slots, b): 1 / D
    logdets: Any  # (n_slots,): sum of the logarithms of D


class Prior(NamedTuple):
    """The statistics of a cluster without rows, and the tables of the densities."""

    mean: Any  # (n_features,)
    factor: Any  # (a, b)
    inverse: Any  # (b,)
    logdet: float
    r: float
    table: Any  # (n_rows + 1,)
    half: Any  # (n_rows + 2,)


@nb.njit(**FAST)
def clear_cluster(clusters, k, prior):  # type: ignore[no-untyped-def]
    """Set slot k to a cluster without rows."""
    clusters.counts[k] = 0
    clusters.means[k] = prior.mean
    clusters.factors[k] = prior.factor
    clusters.inverses[k] = prior.inverse
    clusters.logdets[k] = prior.logdet


@nb.njit(**FAST)
def copy_cluster(clusters, source, target):  # type: ignore[no-untyped-def]
    """Copy one slot to another."""
    clusters.counts[target] = clusters.counts[source]
    clusters.means[target] = clusters.means[source]
    clusters.factors[target] = clusters.factors[source]
    clusters.inverses[target] = clusters.inverses[source]
    clusters.logdets[target] = clusters.logdets[source]


@nb.njit(**FAST)
def log_growth(x, mean, factor, inverse, f, work):  # type: ignore[no-untyped-def]
    """Return the change of log|S_n| that a row makes (f > 0), or that its removal makes (f < 0)."""
    p = len(x)
    rows, columns = factor.shape
    if rows > 1:
        total = 0.0
        for j in range(p):
            work[j] = x[j] - mean[j]
        for j in range(p):
            w = work[j]
            total += w * w * inverse[j]
            for i in range(j + 1, p):
                work[i] -= factor[j, i] * w
        return math.log1p(f * total)
    if columns == p:
        total, product = 0.0, 1.0
        for j in range(p):
            d = x[j] - mean[j]
            product *= 1.0 + f * d * d * inverse[j]
            if product > 1e60 or product < 1e-60:  # few logarithms, and no overflow
                total += math.log(product)
                product = 1.0
        return total + math.log(product)
    total = 0.0
    for j in range(p):
        d = x[j] - mean[j]
        total += d * d
    return math.log1p(f * total * inverse[0])


@nb.njit(**FAST)
def log_student(x, clusters, k, prior, work):  # type: ignore[no-untyped-def]
    """Return the log-density of a row given the rows of cluster k."""
    n = clusters.counts[k]
    rn = prior.r + n
    growth = log_growth(x, clusters.means[k], clusters.factors[k], clusters.inverses[k], rn / (rn + 1), work)
    step = prior.half[n + 1] - prior.half[n]
    return prior.table[n] - step * clusters.logdets[k] - prior.half[n + 1] * growth


@nb.njit(**FAST)
def log_weight(x, clusters, k, prior, log_size, lowest, work):  # type: ignore[no-untyped-def]
    """Return log_size plus the log-density of a row given cluster k, or -1e300 if that is below `lowest`.

    The quadratic form of a full scale is a sum of squares. It is left off as soon as it is too large.
    """
    factor = clusters.factors[k]
    if factor.shape[0] == 1:
        return log_size + log_student(x, clusters, k, prior, work)
    n = clusters.counts[k]
    f, power = 1.0 - 1.0 / (prior.r + n + 1.0), prior.half[n + 1]
    constant = log_size + prior.table[n] - (power - prior.half[n]) * clusters.logdets[k]
    excess = constant - lowest
    if excess < 0.0:
        return -1e300
    most = math.expm1(min(excess / power, 600.0)) / f
    mean, inverse, p = clusters.means[k], clusters.inverses[k], len(x)
    for j in range(p):
        work[j] = x[j] - mean[j]
    total = 0.0
    for j in range(p):
        w = work[j]
        total += w * w * inverse[j]
        if total > most:
            return -1e300
        for i in range(j + 1, p):
            work[i] -= factor[j, i] * w
    return constant - power * math.log1p(f * total)


@nb.njit(**EXACT)
def rank_one(factor, inverse, w, f):  # type: ignore[no-untyped-def]
    """Change S to S + f w w', destroying w; return the change of log|S|, NaN if a downdate lost all digits."""
    p = len(w)
    rows, columns = factor.shape
    change = 0.0
    if rows > 1:
        quadratic, t = 0.0, f
        for j in range(p):
            v, old = w[j], factor[j, j]
            new = old + t * v * v
            if new < _LOST * old:
                return np.nan
            quadratic += v * v * inverse[j]
            beta = t * v / new
            t *= old / new
            for i in range(j + 1, p):
                w[i] -= v * factor[j, i]
                factor[j, i] += beta * w[i]
            factor[j, j] = new
            inverse[j] = 1.0 / new
        return math.log1p(f * quadratic)
    if columns == p:
        for j in range(p):
            old = factor[0, j]
            new = old + f * w[j] * w[j]
            if new < _LOST * old:
                return np.nan
            change += math.log(new / old)
            factor[0, j] = new
            inverse[j] = 1.0 / new
        return change
    total = 0.0
    for j in range(p):
        total += w[j] * w[j]
    old = factor[0, 0]
    new = old + f * total
    if new < _LOST * old:
        return np.nan
    factor[0, 0] = new
    inverse[0] = 1.0 / new
    return math.log(new / old)


@nb.njit(**EXACT)
def add_row(x, clusters, k, prior, work):  # type: ignore[no-untyped-def]
    """Add a row to cluster k."""
    rn, mean = prior.r + clusters.counts[k], clusters.means[k]
    for j in range(len(x)):
        work[j] = x[j] - mean[j]
        mean[j] += work[j] / (rn + 1)
    clusters.logdets[k] += rank_one(clusters.factors[k], clusters.inverses[k], work, rn / (rn + 1))
    clusters.counts[k] += 1


@nb.njit(**EXACT)
def remove_row(X, labels, i, clusters, k, prior, work):  # type: ignore[no-untyped-def]
    """Remove row i from its cluster k; the statistics are computed anew where the downdate fails."""
    if clusters.counts[k] == 1:
        clear_cluster(clusters, k, prior)
        return
    x = X[i]
    rn, mean = prior.r + clusters.counts[k], clusters.means[k]
    for j in range(len(x)):
        work[j] = x[j] - mean[j]
        mean[j] -= work[j] / (rn - 1)
    change = rank_one(clusters.factors[k], clusters.inverses[k], work, -rn / (rn - 1))
    if change == change:  # not NaN
        clusters.logdets[k] += change
        clusters.counts[k] -= 1
        return
    clear_cluster(clusters, k, prior)
    for j in range(len(labels)):
        if labels[j] == k and j != i:
            add_row(X[j], clusters, k, prior, work)


@nb.njit(**EXACT)
def factorize(S, factor, inverse):  # type: ignore[no-untyped-def]
    """Factorise the upper triangle of S as R' D R, destroying it; return log|S|, NaN if it is not positive."""
    logdet = 0.0
    for j in range(len(S)):
        pivot = S[j, j]
        if not pivot > 0.0:
            return np.nan
        logdet += math.log(pivot)
        factor[j, j] = pivot
        inverse[j] = 1.0 / pivot
        for i in range(j + 1, len(S)):
            factor[j, i] = S[j, i] / pivot
        for i in range(j + 1, len(S)):
            for m in range(i, len(S)):
                S[i, m] -= S[j, i] * factor[j, m]
    return logdet


@nb.njit(**EXACT)
def restore_scale(factor, S):  # type: ignore[no-untyped-def]
    """Write the upper triangle of R' D R into S."""
    p = len(S)
    for i in range(p):
        for m in range(i, p):
            total = factor[i, i] * (1.0 if m == i else factor[i, m])
            for j in range(i):
                total += factor[j, i] * factor[j, j] * factor[j, m]
            S[i, m] = total


@nb.njit(**EXACT)
def tabulate_clusters(X, labels, prior, S, clusters):  # type: ignore[no-untyped-def]
    """Compute the statistics of all clusters; S is the scale of the prior: (p, p), (1, p) or (1, 1)."""
    (n, p), n_slots = X.shape, len(clusters.counts)
    rows, columns = prior.factor.shape
    centres, scales = np.zeros((n_slots, p)), np.zeros((n_slots, rows, columns))
    clusters.counts[:] = 0
    for i in range(n):
        clusters.counts[labels[i]] += 1
        for j in range(p):
            centres[labels[i], j] += X[i, j]
    for k in range(n_slots):
        if clusters.counts[k]:
            centres[k] /= clusters.counts[k]
    d = np.empty(p)
    for i in range(n):
        scale = scales[labels[i]]
        for j in range(p):
            d[j] = X[i, j] - centres[labels[i], j]
        add_outer(scale, d, 1.0, rows, columns)
    for k in range(n_slots):
        size = clusters.counts[k]
        if size == 0:
            clear_cluster(clusters, k, prior)
            continue
        rn = prior.r + size
        for j in range(p):
            d[j] = centres[k, j] - prior.mean[j]
            clusters.means[k, j] = prior.mean[j] + d[j] * size / rn
        add_outer(scales[k], d, prior.r * size / rn, rows, columns)
        scales[k] += S
        if rows > 1:
            clusters.logdets[k] = factorize(scales[k], clusters.factors[k], clusters.inverses[k])
        else:
            clusters.factors[k] = scales[k]
            clusters.inverses[k] = 1.0 / scales[k, 0]
            clusters.logdets[k] = np.sum(np.log(scales[k, 0]))


@nb.njit(**FAST)
def add_outer(scale, d, weight, rows, columns):  # type: ignore[no-untyped-def]
    """Add weight d d' to a scale: its upper triangle, its diagonal, or its trace."""
    p = len(d)
    if rows > 1:
        for j in range(p):
            v = weight * d[j]
            for i in range(j, p):
                scale[j, i] += v * d[i]
    elif columns == p:
        for j in range(p):
            scale[0, j] += weight * d[j] * d[j]
    else:
        for j in range(p):
            scale[0, 0] += weight * d[j] * d[j]


@nb.njit(**FAST)
def student_matrix(X, clusters, prior, out):  # type: ignore[no-untyped-def]
    """Write the log-density of every row given every cluster into `out` (n_rows, n_slots)."""
    work = np.empty(X.shape[1])
    for i in range(X.shape[0]):
        for k in range(len(clusters.counts)):
            out[i, k] = log_student(X[i], clusters, k, prior, work)


@nb.njit(**FAST)
def student_components(X, constants, powers, shares, means, factors, out):  # type: ignore[no-untyped-def]
    """Write constant - power log(growth) of every row and component into `out` (n_rows, n_components)."""
    work, inverse = np.empty(X.shape[1]), np.empty(factors.shape[2])
    for k in range(len(constants)):
        for j in range(len(inverse)):
            inverse[j] = 1.0 / factors[k, j if factors.shape[1] > 1 else 0, j]
        for i in range(X.shape[0]):
            growth = log_growth(X[i], means[k], factors[k], inverse, shares[k], work)
            out[i, k] = constants[k] - powers[k] * growth


@nb.njit(**FAST)
def left_out_student(X, labels, clusters, prior, out):  # type: ignore[no-untyped-def]
    """Write the log-density of every row given the other rows of its cluster into `out` (n_rows,)."""
    work = np.empty(X.shape[1])
    for i in range(X.shape[0]):
        k = labels[i]
        n = clusters.counts[k]
        rn = prior.r + n
        # Removal changes log|S_n| by -L, where L is the change by which the row entered.
        growth = -log_growth(
            X[i], clusters.means[k], clusters.factors[k], clusters.inverses[k], -rn / (rn - 1), work
        )
        logdet = clusters.logdets[k] - growth
        out[i] = prior.table[n - 1] - (prior.half[n] - prior.half[n - 1]) * logdet - prior.half[n] * growth
