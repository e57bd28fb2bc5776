"""Sweeps of the sequential information bottleneck, and merges of the agglomerative one.

With n_wk the weight of feature w in cluster k, N_k = sum_w n_wk and phi(z) = z log z, the information of the clusters
about the features is, up to constants and a factor, sum_wk phi(n_wk) - sum_k phi(N_k). A row x of weight r adds to
cluster k

    gain_k = sum_w [phi(n_wk + x_w) - phi(n_wk)] - phi(N_k + r) + phi(N_k).

The table of phi(n_wk) is kept, so that a row costs one logarithm for each of its non-zeros and each cluster.
Logarithms are computed by arithmetic alone, which the compiler turns into vector instructions. Clusters are padded to
a multiple of `LANES` with empty ones, because the loop over the clusters that remain would not use these.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

from arbora.kernels import deferred as nb

# Without reassociation: it would move the multiplication by log 2 in front of the subtraction of the exponent's bias.
OPTIONS: dict[str, Any] = {
    "fastmath": {"contract", "nnan", "nsz"}, "nogil": True, "cache": True, "error_model": "numpy"
}  # fmt: skip
LANES = 8
_TINY = 1e-300
_NO_GAIN = 1e-12  # per unit of weight: smaller gains are rounding
_RESIDUE = 1e-13  # of a weight after a subtraction, relative to what was subtracted


def _bits_of(context, x):  # type: ignore[no-untyped-def]
    """Return the bits of a float64 as an int64."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


def _float_of(context, x):  # type: ignore[no-untyped-def]
    """Return the float64 with the bits of an int64."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


_bits: Any = intrinsic(_bits_of)
_float: Any = intrinsic(_float_of)


@nb.njit(inline="always", **OPTIONS)
def log(x):  # type: ignore[no-untyped-def]
    """Return the natural logarithm of a positive normal number, to about two units in the last place.

    x = 2^e f with f in [sqrt(1/2), sqrt(2)), and log f = 2 artanh((f - 1) / (f + 1)) by its series.
    """
    shifted = _bits(x) + np.int64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    exponent = _float((shifted >> np.int64(52)) | np.int64(0x4330000000000000)) - 4503599627371519.0
    f = _float((shifted & np.int64(0x000FFFFFFFFFFFFF)) + np.int64(0x3FE6A09E667F3BCD))
    s = (f - 1.0) / (f + 1.0)
    z = s * s
    tail = 1 / 15 + z * (1 / 17 + z * (1 / 19 + z * (1 / 21)))
    tail = 1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * (1 / 11 + z * (1 / 13 + z * tail)))))
    return exponent * 0.6931471805599453 + 2.0 * s * (1.0 + z * tail)


@nb.njit(inline="always", **OPTIONS)
def phi(z):  # type: ignore[no-untyped-def]
    """Return z log z; 0 for 0."""
    return z * log(max(z, _TINY))


@nb.njit(**OPTIONS)
def logarithms(x, out):  # type: ignore[no-untyped-def]
    """Write the logarithms of positive numbers, as the sweeps compute them."""
    for i in range(len(x)):
        out[i] = log(x[i])


@nb.njit(**OPTIONS)
def fill_state(indptr, indices, data, row_sum, labels, state, totals, sizes):  # type: ignore[no-untyped-def]
    """Add up the rows of each cluster: state[w] holds n_wk of all clusters (padded), then phi(n_wk)."""
    width = state.shape[1] // 2
    state[:] = 0.0
    totals[:] = 0.0
    sizes[:] = 0
    for i in range(len(labels)):
        k = labels[i]
        totals[k] += row_sum[i]
        sizes[k] += 1
        for q in range(indptr[i], indptr[i + 1]):
            state[indices[q], k] += data[q]
    for w in range(state.shape[0]):
        for k in range(width):
            state[w, width + k] = phi(state[w, k])


@nb.njit(inline="always", **OPTIONS)
def write_gains(indptr, indices, data, i, r, state, totals, gain):  # type: ignore[no-untyped-def]
    """Write the gains of adding row i of weight r to every cluster."""
    width = len(gain)
    for k in range(len(totals)):
        gain[k] = phi(totals[k]) - phi(totals[k] + r)
    for q in range(indptr[i], indptr[i + 1]):
        v, cell = data[q], state[indices[q]]
        for k in range(width):
            gain[k] += phi(cell[k] + v) - cell[width + k]


@nb.njit(**OPTIONS)
def sweep(indptr, indices, data, row_sum, order, labels, state, totals, sizes):  # type: ignore[no-untyped-def]
    """Move each row to the cluster that gains most by it; return the number of moves and the total gain.

    The last row of a cluster stays.
    """
    n_clusters, width = len(totals), state.shape[1] // 2
    gain = np.zeros(width)
    scratch = np.empty(np.max(indptr[1:] - indptr[:-1]))
    n_moved, improvement = 0, 0.0
    for o in range(len(order)):
        i = order[o]
        label, r = labels[i], row_sum[i]
        if sizes[label] == 1:
            continue
        write_gains(indptr, indices, data, i, r, state, totals, gain)
        # The own cluster holds the row already.
        less = max(totals[label] - r, 0.0)
        stay = phi(less) - phi(totals[label])
        start, length = indptr[i], indptr[i + 1] - indptr[i]
        for s in range(length):
            scratch[s] = max(state[indices[start + s], label] - data[start + s], 0.0)
        for s in range(length):  # a loop of its own, for vector instructions
            scratch[s] = phi(scratch[s])
        for s in range(length):
            stay += state[indices[start + s], width + label] - scratch[s]
        gain[label] = stay
        best = label
        for k in range(n_clusters):
            if gain[k] > gain[best]:
                best = k
        if gain[best] - stay <= _NO_GAIN * r:
            continue
        labels[i] = best
        n_moved += 1
        improvement += gain[best] - stay
        sizes[label] -= 1
        sizes[best] += 1
        totals[label] = less
        totals[best] += r
        for q in range(indptr[i], indptr[i + 1]):
            v, cell = data[q], state[indices[q]]
            left = cell[label] - v
            cell[label] = left if left > _RESIDUE * v else 0.0
            cell[best] += v
            cell[width + label] = phi(cell[label])
            cell[width + best] = phi(cell[best])
    return n_moved, improvement


@nb.njit(**OPTIONS)
def assign_rows(indptr, indices, data, row_sum, state, totals, labels):  # type: ignore[no-untyped-def]
    """Write the cluster that gains most by each row; -1 for an empty row."""
    gain = np.zeros(state.shape[1] // 2)
    for i in range(len(labels)):
        labels[i] = -1
        if row_sum[i] > 0:
            write_gains(indptr, indices, data, i, row_sum[i], state, totals, gain)
            labels[i] = np.argmax(gain[: len(totals)])


@nb.njit(inline="always", **OPTIONS)
def merge_loss(indices, data, first, length, totals, a, b, dense):  # type: ignore[no-untyped-def]
    """Return the loss of merging clusters a and b; `dense` holds the weights of a. Only shared features count."""
    loss = phi(totals[a] + totals[b]) - phi(totals[a]) - phi(totals[b])
    for q in range(first[b], first[b] + length[b]):
        u = dense[indices[q]]
        if u > 0:
            v = data[q]
            loss -= phi(u + v) - phi(u) - phi(v)
    return max(loss, 0.0)


@nb.njit(inline="always", **OPTIONS)
def spread(indices, data, first, length, a, dense, sign):  # type: ignore[no-untyped-def]
    """Add the weights of cluster a to the dense vector, or clear them (sign 0)."""
    for q in range(first[a], first[a] + length[a]):
        dense[indices[q]] = dense[indices[q]] * sign + data[q] * sign


@nb.njit(inline="always", **OPTIONS)
def find_nearest(D, alive, a):  # type: ignore[no-untyped-def]
    """Return the living cluster with the smallest loss with a; -1 if there is none."""
    best = -1
    for c in range(len(alive)):
        if alive[c] and c != a and (best < 0 or D[a, c] < D[a, best]):
            best = c
    return best


@nb.njit(**OPTIONS)
def merge_all(indptr, rows_indices, rows_data, totals, n_features, D):  # type: ignore[no-untyped-def]
    """Merge the pair of clusters with the smallest loss until one is left.

    D is scratch of shape (n, n). Returns the nodes that each merge joins (merge s makes node n + s) and the losses.
    Living clusters are sparse rows in a pool of twice the non-zeros; a merged row is appended, and the pool is
    compacted when it is full.
    """
    n, nnz = len(totals), len(rows_data)
    indices, data = np.empty(2 * nnz, rows_indices.dtype), np.empty(2 * nnz)
    indices[:nnz] = rows_indices
    data[:nnz] = rows_data
    first, length = indptr[:-1].astype(np.int64), (indptr[1:] - indptr[:-1]).astype(np.int64)
    totals, used = totals.copy(), nnz
    alive, node = np.ones(n, np.bool_), np.arange(n)
    dense, near = np.zeros(n_features), np.zeros(n, np.int64)
    children, losses = np.empty((n - 1, 2), np.int64), np.empty(n - 1)
    for a in range(n):
        spread(indices, data, first, length, a, dense, 1.0)
        for b in range(a + 1, n):
            D[a, b] = merge_loss(indices, data, first, length, totals, a, b, dense)
            D[b, a] = D[a, b]
        spread(indices, data, first, length, a, dense, 0.0)
    for a in range(n):
        near[a] = find_nearest(D, alive, a)
    for s in range(n - 1):
        a = -1
        for c in range(n):
            if alive[c] and (a < 0 or D[c, near[c]] < D[a, near[a]]):
                a = c
        b = near[a]
        children[s, 0], children[s, 1] = min(node[a], node[b]), max(node[a], node[b])
        losses[s] = D[a, b]
        if used + length[a] + length[b] > 2 * nnz:
            used = compact(indices, data, first, length, alive)
        start = used
        spread(indices, data, first, length, a, dense, 1.0)
        for q in range(first[a], first[a] + length[a]):
            indices[used] = indices[q]
            used += 1
        for q in range(first[b], first[b] + length[b]):
            if dense[indices[q]] == 0:
                indices[used] = indices[q]
                used += 1
        spread(indices, data, first, length, b, dense, 1.0)
        first[a], length[a] = start, used - start
        for q in range(start, used):
            data[q] = dense[indices[q]]
        totals[a] += totals[b]
        node[a], alive[b] = n + s, False
        for c in range(n):
            if alive[c] and c != a:
                D[a, c] = merge_loss(indices, data, first, length, totals, a, c, dense)
                D[c, a] = D[a, c]
        spread(indices, data, first, length, a, dense, 0.0)
        near[a] = find_nearest(D, alive, a)
        for c in range(n):
            if alive[c] and c != a:
                if near[c] == a or near[c] == b:
                    near[c] = find_nearest(D, alive, c)
                elif D[c, a] < D[c, near[c]]:
                    near[c] = a
    return children, losses


@nb.njit(**OPTIONS)
def compact(indices, data, first, length, alive):  # type: ignore[no-untyped-def]
    """Move the living rows of the pool to its front; return where it ends."""
    used = 0
    order = np.argsort(first)
    for o in range(len(order)):
        a = order[o]
        if alive[a]:
            for q in range(length[a]):
                indices[used + q], data[used + q] = indices[first[a] + q], data[first[a] + q]
            first[a] = used
            used += length[a]
    return used
