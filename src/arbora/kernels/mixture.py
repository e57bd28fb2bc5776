"""The E-step of a mixture whose log-joint is linear in the row: scores, softmax and sums in one walk over the rows.

    s_ik = b_k x_i.W_k + c_k,    r_i = softmax(s_i / T),    counts_k = sum_i a_i r_ik,    sums_k = sum_i a_i r_ik x_i,

with weights a_i of the rows and temperature T. The value is the free energy sum_i a_i T log sum_k exp(s_ik / T): the
log-likelihood where T = 1, and the sum of the largest scores where T = 0 (every row belongs to its best component).
`assign_rows` makes no matrix of responsibilities and reads a row from memory once. `respond_rows` makes it, and the
sums follow: as a product with the transposed rows, which writes every sum once; or, where most responsibilities are
zero (log-densities in high dimensions differ by so much that most rows have one component), as `sum_members`, over
the rows of each component alone. Both are faster, and need the memory.
"""

import math

import numba as nb
import numpy as np

from arbora.kernels.products import FAST, add_row
from arbora.kernels.softmax import exp_row

_LEAST32, _LEAST64 = float(np.finfo(np.float32).eps) ** 2, float(np.finfo(np.float64).eps) ** 2


@nb.njit(inline="always", **FAST)
def score_row(indptr, indices, data, i, W, scale, offset, g):  # type: ignore[no-untyped-def]
    """Write the scores of row i into g."""
    g[:] = 0
    add_row(indptr, indices, data, i, W, g)
    for k in range(len(g)):
        g[k] = g[k] * scale[k] + offset[k]


@nb.njit(inline="always", **FAST)
def best_of_row(g):  # type: ignore[no-untyped-def]
    """Place of the largest of g; of equal ones, the first."""
    top = 0
    for k in range(len(g)):
        if g[k] > g[top]:
            top = k
    return top


@nb.njit(inline="always", **FAST)
def share_row(g, a, r, bits, counts):  # type: ignore[no-untyped-def]
    """Write a softmax(g) into r and add it to `counts`; return log sum_k exp(g_k). g is spoilt.

    What is nothing to the working precision, even beside its own rounding, becomes zero.
    """
    top = g[0]
    for k in range(len(g)):
        top = max(top, g[k])
    for k in range(len(g)):
        g[k] -= top
    exp_row(g, r, bits)
    size = g.dtype.type(0)
    for k in range(len(g)):
        size += r[k]
    scale, least = a / size, g.dtype.type(_LEAST32 if g.itemsize == 4 else _LEAST64)
    for k in range(len(g)):
        r[k] = r[k] * scale if r[k] > least else g.dtype.type(0)
        counts[k] += r[k]
    return top + math.log(size)


@nb.njit(**FAST)
def respond_rows(  # type: ignore[no-untyped-def]
    indptr, indices, data, weight, W, scale, offset, temperature, first, stop, resp, counts
):
    """Write weighted responsibilities of rows first .. stop - 1, add them to `counts`, and return the value.

    `scale` and `offset` are b and c, divided by the temperature if it is not 0.
    """
    g, bits = np.empty(W.shape[1], W.dtype), np.empty(W.shape[1], np.int32)
    total = 0.0
    for i in range(first, stop):
        r = resp[i]
        score_row(indptr, indices, data, i, W, scale, offset, g)
        if temperature == 0:
            top = best_of_row(g)
            r[:] = 0
            r[top] = weight[i]
            counts[top] += weight[i]
            total += np.float64(weight[i]) * g[top]
            continue
        total += np.float64(weight[i]) * temperature * share_row(g, weight[i], r, bits, counts)
    return total


@nb.njit(**FAST)
def assign_rows(  # type: ignore[no-untyped-def]
    indptr, indices, data, weight, W, scale, offset, temperature, first, stop, sums, counts
):
    """Add statistics of rows first .. stop - 1 to `sums` (n_features, n_components) and `counts`; return the value.

    `scale` and `offset` are b and c, divided by the temperature if it is not 0. `data`, `weight`, `W`, `scale`,
    `offset` and `sums` share one precision; `counts` and the value are in double precision.
    """
    n_components = W.shape[1]
    g, r = np.empty(n_components, W.dtype), np.empty(n_components, W.dtype)
    bits = np.empty(n_components, np.int32)
    total = 0.0
    for i in range(first, stop):
        a = weight[i]
        score_row(indptr, indices, data, i, W, scale, offset, g)
        if temperature == 0:
            top = best_of_row(g)
            total += np.float64(a) * g[top]
            counts[top] += a
            for q in range(indptr[i], indptr[i + 1]):
                sums[indices[q], top] += a * data[q]
            continue
        total += np.float64(a) * temperature * share_row(g, a, r, bits, counts)
        for q in range(indptr[i], indptr[i + 1]):
            v, j = data[q], indices[q]
            for k in range(n_components):
                sums[j, k] += v * r[k]
    return total


@nb.njit(**FAST)
def list_members(resp, starts, members, shares):  # type: ignore[no-untyped-def]
    """List the rows of each component, with their responsibilities, in order: the non-zeros of `resp` by columns.

    `starts` (n_components + 1) holds where the list of a component begins; `members` and `shares` are written.
    """
    place = starts[:-1].copy()
    for i in range(resp.shape[0]):
        for k in range(resp.shape[1]):
            if resp[i, k] != 0:
                members[place[k]] = i
                shares[place[k]] = resp[i, k]
                place[k] += 1


@nb.njit(**FAST)
def sum_members(indptr, indices, data, starts, members, shares, first, stop, sums):  # type: ignore[no-untyped-def]
    """Write columns first .. stop - 1 of `sums`: rows of these components, times their responsibilities.

    A component has its sums in one piece while rows are added; a few components are written back at once.
    """
    lines = np.zeros((stop - first, sums.shape[0]), sums.dtype)
    for k in range(first, stop):
        line = lines[k - first]
        for t in range(starts[k], starts[k + 1]):
            i, r = members[t], shares[t]
            for q in range(indptr[i], indptr[i + 1]):
                line[indices[q]] += r * data[q]
    for j in range(sums.shape[0]):
        for k in range(first, stop):
            sums[j, k] = lines[k - first, j]


@nb.njit(**FAST)
def column_squares(S, out):  # type: ignore[no-untyped-def]
    """Add the squares in each column of S to out, in double precision, row by row as they lie in memory."""
    for j in range(S.shape[0]):
        for k in range(S.shape[1]):
            out[k] += np.float64(S[j, k]) * np.float64(S[j, k])


@nb.njit(**FAST)
def mix_columns(S, scale, shift, out, squares):  # type: ignore[no-untyped-def]
    """Write S * scale + shift, one scale for each column and one shift for each row; add the squares of columns."""
    for j in range(S.shape[0]):
        for k in range(S.shape[1]):
            value = S[j, k] * scale[k] + shift[j]
            out[j, k] = value
            squares[k] += np.float64(value) * np.float64(value)
