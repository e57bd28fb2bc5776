"""A pass over all rows that only looks for those with a score above a level, for the classes of a block."""

import numba as nb
import numpy as np

from arbora.kernels.products import FAST, add_row


@nb.njit(**FAST)
def scan_rows(indptr, indices, data, bias, W, squared, slack, found, excess):  # type: ignore[no-untyped-def]
    """List in `found` the rows with a score above -1 - slack for some class; return their number.

    `excess` is the sum over the classes of max(0, 1 + score), squared or not: the loss of a listed row of unit cost
    if it is a negative of all classes. The rows that are not listed have none.
    """
    n_block, last = W.shape[1], W.shape[0] - 1
    g = np.empty(n_block, W.dtype)
    zero, one = W.dtype.type(0), W.dtype.type(1)
    count = 0
    for i in range(len(indptr) - 1):
        for b in range(n_block):
            g[b] = bias * W[last, b]
        add_row(indptr, indices, data, i, W, g)
        top = g[0]
        for b in range(n_block):
            top = max(top, g[b])
        if top > -one - slack:
            total = zero
            for b in range(n_block):
                beyond = max(one + g[b], zero)
                total += beyond * beyond if squared else beyond
            found[count], excess[count] = i, total
            count += 1
    return count
