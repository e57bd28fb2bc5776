"""Products of rows with the centres of their groups, for many groups that may overlap.

    c_g = sum_{i in g} x_i,    value_ig = x_i.c_g    for every member i of every group g.

One dense centre is in memory at a time, and only the entries that a group touches are cleared. The cost is
proportional to the entries of the members, for any number of groups and features.
"""

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST


@nb.njit(**FAST)
def centre_products(  # type: ignore[no-untyped-def]
    indptr, indices, data, member_indptr, member_rows, n_features
):
    """Return x_i.c_g for the members of all groups, in the order of `member_rows`.

    `member_rows[member_indptr[g]:member_indptr[g + 1]]` are the rows of group g, in a CSR matrix of n_features
    columns.
    """
    centre = np.zeros(n_features, np.float64)
    values = np.zeros(len(member_rows), np.float64)
    for g in range(len(member_indptr) - 1):
        first, stop = member_indptr[g], member_indptr[g + 1]
        for m in range(first, stop):
            i = member_rows[m]
            for j in range(indptr[i], indptr[i + 1]):
                centre[indices[j]] += data[j]
        for m in range(first, stop):
            i = member_rows[m]
            for j in range(indptr[i], indptr[i + 1]):
                values[m] += data[j] * centre[indices[j]]
        for m in range(first, stop):
            i = member_rows[m]
            for j in range(indptr[i], indptr[i + 1]):
                centre[indices[j]] = 0.0
    return values
