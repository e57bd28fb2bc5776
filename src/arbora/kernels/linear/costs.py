"""Signs times costs of the pairs of a block, from the positives of its classes."""

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST


@nb.njit(inline="always", **FAST)
def _place(ids, i):  # type: ignore[no-untyped-def]
    """Return the number of ids below i; numba takes half a second to compile its `searchsorted`."""
    first, stop = 0, len(ids)
    while first < stop:
        middle = (first + stop) // 2
        if ids[middle] < i:
            first = middle + 1
        else:
            stop = middle
    return first


@nb.njit(**FAST)
def fill_costs(indptr, indices, first, row_cost, weight, ids, out):  # type: ignore[no-untyped-def]
    """Write -row_cost for negatives and row_cost times the weight of the class for positives.

    The positives of class first + b are the sorted rows indices[indptr[first + b] : indptr[first + b + 1]]. Row s of
    `out` is the row ids[s]; `ids` is sorted, and all rows if it has the length of row_cost.
    """
    n, n_block = out.shape
    every = n == len(row_cost)
    for s in range(n):
        c = -row_cost[ids[s]]
        for b in range(n_block):
            out[s, b] = c
    for b in range(n_block):
        for k in range(indptr[first + b], indptr[first + b + 1]):
            i = indices[k]
            s = i if every else _place(ids, i)
            if s < n and ids[s] == i:
                out[s, b] = row_cost[i] * weight[first + b]
