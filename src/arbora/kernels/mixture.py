"""The E-step of a mixture whose log-joint is linear in the row: scores, softmax and sums in one pass over the rows.

    s_ik = b_k x_i.W_k + c_k,    r_i = softmax(s_i / T),    counts_k = sum_i a_i r_ik,    sums_k = sum_i a_i r_ik x_i,

with weights a_i of the rows and temperature T. The value is the free energy sum_i a_i T log sum_k exp(s_ik / T):
the log-likelihood for T = 1, and the sum of the largest scores for T = 0 (every row belongs to its best component).
`assign_rows` stores no matrix of responsibilities and reads each row once. `respond_rows` stores it, and the sums
are computed afterwards: by `sum_shares`, a product with the transposed rows, which writes every sum once; or, if
most responsibilities are zero (in high dimensions log-densities differ by so much that most rows have one
component), by `sum_members`, over the rows of each component alone. Both are faster but need the memory. Long sums
in single precision lose digits: both add up short sums, and these in double precision.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.linear.softmax import exp_row
from arbora.kernels.products import FAST, add_row

_ADDENDS = 1024  # numbers added in the working precision before their sum is added in double precision
_FEW = 4  # only non-zero responsibilities are added if at most one in this many is not zero
# Logarithm of the square of the precision, which is negligible beside 1
_LOWEST32, _LOWEST64 = 2 * math.log(np.finfo(np.float32).eps), 2 * math.log(np.finfo(np.float64).eps)


@nb.njit(inline="always", **FAST)
def score_row(indptr, indices, data, i, W, scale, offset, g):  # type: ignore[no-untyped-def]
    """Write the scores of row i into g."""
    g[:] = 0
    add_row(indptr, indices, data, i, W, g)
    for k in range(len(g)):
        g[k] = g[k] * scale[k] + offset[k]


@nb.njit(inline="always", **FAST)
def share_row(g, a, r, bits, counts):  # type: ignore[no-untyped-def]
    """Write a softmax(g) into r and add it to `counts`; return log sum_k exp(g_k). Overwrites g.

    Shares far below the rounding error of the working precision become zero.
    """
    top = g[0]
    for k in range(len(g)):
        top = max(top, g[k])
    lowest = g.dtype.type(_LOWEST32 if g.itemsize == 4 else _LOWEST64)
    n_near = 0
    for k in range(len(g)):
        g[k] -= top
        n_near += g[k] > lowest
    if n_near == 1:
        for k in range(len(g)):
            r[k] = a if g[k] > lowest else g.dtype.type(0)
            counts[k] += r[k]
        return np.float64(top)
    exp_row(g, r, bits)
    size = g.dtype.type(0)
    for k in range(len(g)):
        size += r[k]
    scale = a / size
    for k in range(len(g)):
        r[k] = r[k] * scale if g[k] > lowest else g.dtype.type(0)
        counts[k] += r[k]
    return top + math.log(size)


@nb.njit(**FAST)
def respond_rows(  # type: ignore[no-untyped-def]
    indptr, indices, data, weight, W, scale, offset, temperature, first, stop, resp, counts
):
    """Write weighted responsibilities of rows first .. stop - 1, and return the value.

    Adds them to `counts[0]` and counts the non-zero ones in `counts[1]`. The temperature is positive, and `scale` and
    `offset` are divided by it.
    """
    g, bits = np.empty(W.shape[1], W.dtype), np.empty(W.shape[1], np.int32)
    total = 0.0
    for i in range(first, stop):
        r = resp[i]
        score_row(indptr, indices, data, i, W, scale, offset, g)
        total += np.float64(weight[i]) * temperature * share_row(g, weight[i], r, bits, counts[0])
        for k in range(len(r)):
            counts[1, k] += r[k] != 0
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
    bits, places = np.empty(n_components, np.int32), np.empty(n_components, np.int64)
    total = 0.0
    for i in range(first, stop):
        a = weight[i]
        score_row(indptr, indices, data, i, W, scale, offset, g)
        if temperature == 0:
            top = 0
            for k in range(n_components):
                if g[k] > g[top]:
                    top = k
            total += np.float64(a) * g[top]
            counts[top] += a
            for q in range(indptr[i], indptr[i + 1]):
                sums[indices[q], top] += a * data[q]
            continue
        total += np.float64(a) * temperature * share_row(g, a, r, bits, counts)
        n_places = 0
        for k in range(n_components):
            if r[k] != 0:
                places[n_places] = k
                n_places += 1
        for q in range(indptr[i], indptr[i + 1]):
            v, j = data[q], indices[q]
            if n_places * _FEW > n_components:
                for k in range(n_components):
                    sums[j, k] += v * r[k]
            else:
                for p in range(n_places):
                    sums[j, places[p]] += v * r[places[p]]
    return total


@nb.njit(**FAST)
def sum_shares(indptr, indices, data, resp, first, stop, order, sums):  # type: ignore[no-untyped-def]
    """Write rows `order[first:stop]` of `sums`: the transposed rows, in CSR, times the responsibilities."""
    g, total = np.empty(resp.shape[1], resp.dtype), np.empty(resp.shape[1], np.float64)
    bounds = np.empty(2, indptr.dtype)
    for j in range(first, stop):
        total[:] = 0
        for start in range(indptr[j], indptr[j + 1], _ADDENDS):
            bounds[0], bounds[1] = start, min(start + _ADDENDS, indptr[j + 1])
            g[:] = 0
            add_row(bounds, indices, data, 0, resp, g)
            for k in range(len(g)):
                total[k] += g[k]
        for k in range(len(g)):
            sums[order[j], k] = total[k]


@nb.njit(**FAST)
def list_members(resp, starts, members, shares):  # type: ignore[no-untyped-def]
    """List the rows of each component, with their responsibilities, in order: the non-zeros of `resp` by columns.

    The list of component k starts at `starts[k]`; `members` and `shares` are written.
    """
    place = starts[:-1].copy()
    for i in range(resp.shape[0]):
        for k in range(resp.shape[1]):
            if resp[i, k] != 0:
                members[place[k]] = i
                shares[place[k]] = resp[i, k]
                place[k] += 1


@nb.njit(inline="always", **FAST)
def add_members(indptr, indices, data, members, shares, first, stop, line):  # type: ignore[no-untyped-def]
    """Add members first .. stop - 1 of a list, times their shares, to a line of sums."""
    for t in range(first, stop):
        i, r = members[t], shares[t]
        for q in range(indptr[i], indptr[i + 1]):
            line[np.uint64(indices[q])] += r * data[q]  # unsigned indices need no check for negative values


@nb.njit(**FAST)
def sum_members(  # type: ignore[no-untyped-def]
    indptr, indices, data, starts, members, shares, first, stop, order, sums
):
    """Write columns first .. stop - 1 of `sums`: rows of these components, times their responsibilities.

    Feature j of the rows is row `order[j]` of the sums. The sums of a component are contiguous while rows are added;
    a few components are written back at a time.
    """
    lines = np.zeros((stop - first, sums.shape[0]), sums.dtype)
    for k in range(first, stop):
        line, begin, end = lines[k - first], starts[k], starts[k + 1]
        if end - begin > _ADDENDS:
            total = np.zeros(len(line), np.float64)
            for chunk in range(begin, end, _ADDENDS):
                line[:] = 0
                add_members(indptr, indices, data, members, shares, chunk, min(chunk + _ADDENDS, end), line)
                total += line
            line[:] = total
        else:
            add_members(indptr, indices, data, members, shares, begin, end, line)
    for j in range(sums.shape[0]):
        row = order[j]
        for k in range(first, stop):
            sums[row, k] = lines[k - first, j]


@nb.njit(**FAST)
def column_squares(S, out):  # type: ignore[no-untyped-def]
    """Add the squares in each column of S to out, in double precision, in memory order."""
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
