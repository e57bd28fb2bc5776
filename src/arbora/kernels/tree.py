"""Exact solution of Gaussian trees by one pass up and one pass down, for many features in parallel.

Nodes are in topological order, parents first, -1 above a root. For every feature the weights z of the nodes have the
precision matrix T of the tree, z'Tz = sum_n a_n (z_n - z_parent)^2. `solve_classes` solves (T + D) z = r, where r and
the diagonal D are zero except at the nodes of the classes. `hold_classes` and `pull_classes` go the other way: the
classes are fixed, the other nodes are at their conditional means, and T z is the force on the classes.

Arrays of classes have the shape (n_features, n_classes). Sixteen features at a time are transposed to (n_nodes, 16),
which fits into the cache and vectorises the divisions. Precisions are (n_features, n_nodes), or (1, n_nodes) if they
are the same for all features. Nothing is ever subtracted from a precision, since they may differ by many orders of
magnitude.
"""

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST

WIDTH = 16  # features processed together


@nb.njit(**FAST)
def _gather(class_at, R, D, i0, m, b, rest):  # type: ignore[no-untyped-def]
    """Copy the right-hand side and the diagonal of features i0 .. i0 + m - 1, by node."""
    for n in range(len(class_at)):
        c = class_at[n]
        for k in range(m):
            b[n, k] = R[i0 + k, c] if c >= 0 else 0.0
            rest[n, k] = D[i0 + k, c] if c >= 0 else 0.0


@nb.njit(**FAST)
def _solve(parent, precision, i0, m, b, rest):  # type: ignore[no-untyped-def]
    """Eliminate from the leaves up, then substitute from the roots down; b becomes the solution.

    `rest` is the contribution of a node's own diagonal and its children to its precision.
    """
    alike = precision.shape[0] == 1
    for n in range(len(parent) - 1, -1, -1):
        p = parent[n]
        for k in range(m):
            a = precision[0 if alike else i0 + k, n]
            inverse = 1 / (a + rest[n, k])
            if p >= 0:
                b[p, k] += a * inverse * b[n, k]
                rest[p, k] += a * inverse * rest[n, k]
            b[n, k] *= inverse
            rest[n, k] = a * inverse
    for n in range(len(parent)):
        p = parent[n]
        if p >= 0:
            for k in range(m):
                b[n, k] += rest[n, k] * b[p, k]


@nb.njit(**FAST)
def solve_classes(parent, class_at, precision, R, D, first, stop, Z):  # type: ignore[no-untyped-def]
    """Write the weights of the classes that solve (T + D) z = R, for features first .. stop - 1, into Z."""
    b = np.empty((len(parent), WIDTH), Z.dtype)
    rest = np.empty_like(b)
    for i0 in range(first, stop, WIDTH):
        m = min(WIDTH, stop - i0)
        _gather(class_at, R, D, i0, m, b, rest)
        _solve(parent, precision, i0, m, b, rest)
        for n in range(len(parent)):
            c = class_at[n]
            if c >= 0:
                for k in range(m):
                    Z[i0 + k, c] = b[n, k]


@nb.njit(**FAST)
def _hold(parent, class_at, precision, W, i0, m, z, rest):  # type: ignore[no-untyped-def]
    """Write the conditional means of all nodes, given the classes W, into z."""
    alike = precision.shape[0] == 1
    z[:], rest[:] = 0, 0
    for n in range(len(parent) - 1, -1, -1):
        c, p = class_at[n], parent[n]
        for k in range(m):
            a = precision[0 if alike else i0 + k, n]
            if c >= 0:
                z[n, k], up, pull = W[i0 + k, c], a, a * W[i0 + k, c]
            else:
                inverse = 1 / (a + rest[n, k])
                up, pull = a * inverse * rest[n, k], a * inverse * z[n, k]
                z[n, k] *= inverse
                rest[n, k] = a * inverse
            if p >= 0:
                rest[p, k] += up
                z[p, k] += pull
    for n in range(len(parent)):
        p = parent[n]
        if class_at[n] < 0 and p >= 0:
            for k in range(m):
                z[n, k] += rest[n, k] * z[p, k]


@nb.njit(**FAST)
def hold_classes(parent, class_at, precision, W, first, stop, Z):  # type: ignore[no-untyped-def]
    """Write the weights of all nodes, given the classes W, for features first .. stop - 1, into Z, by node."""
    z = np.empty((len(parent), WIDTH), W.dtype)
    rest = np.empty_like(z)
    for i0 in range(first, stop, WIDTH):
        m = min(WIDTH, stop - i0)
        _hold(parent, class_at, precision, W, i0, m, z, rest)
        for n in range(len(parent)):
            for k in range(m):
                Z[n, i0 + k] = z[n, k]


@nb.njit(**FAST)
def pull_classes(parent, class_at, precision, W, first, stop, U):  # type: ignore[no-untyped-def]
    """Write the force on classes at W, T z with all other nodes at their conditional means, into U."""
    alike = precision.shape[0] == 1
    z = np.empty((len(parent), WIDTH), W.dtype)
    rest = np.empty_like(z)
    for i0 in range(first, stop, WIDTH):
        m = min(WIDTH, stop - i0)
        _hold(parent, class_at, precision, W, i0, m, z, rest)
        for n in range(len(parent)):
            c, p = class_at[n], parent[n]
            above = class_at[p] if p >= 0 else -1
            for k in range(m):
                over = z[p, k] if p >= 0 else 0.0
                force = precision[0 if alike else i0 + k, n] * (z[n, k] - over)
                if c >= 0:
                    U[i0 + k, c] = force
                if above >= 0:
                    U[i0 + k, above] -= force


# --- Elimination of a sparse symmetric matrix: its elimination tree, the fill-in, columns of an inverse factor ---
#
# In the elimination tree of a matrix with the factor L, the parent of column j is the first row below the diagonal
# in column j of L. It depends on the pattern of the matrix alone and is found in nearly linear time. Column j of L
# has its entries on the path from j to the root, and column j of the inverse of L fills all of this path.


@nb.njit(**FAST)
def elimination_tree(indptr, indices):  # type: ignore[no-untyped-def]
    """Return the parent of every column of a symmetric matrix that is eliminated in its order; -1 for a root.

    Paths are compressed, so that none is walked twice.
    """
    n = len(indptr) - 1
    parent, shortcut = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    for i in range(n):
        for k in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[k])
            while j >= 0 and j < i:
                ahead = shortcut[j]
                shortcut[j] = i
                if ahead < 0:
                    parent[j] = i
                j = ahead
    return parent


@nb.njit(**FAST)
def postorder(parent):  # type: ignore[no-untyped-def]
    """Return the position of every node of a forest in postorder; a parent must have a higher number."""
    n = len(parent)
    size = np.ones(n, np.int64)
    for j in range(n):
        if parent[j] >= 0:
            size[parent[j]] += size[j]
    position, free = np.empty(n, np.int64), np.empty(n, np.int64)
    free_root = n - 1
    for j in range(n - 1, -1, -1):  # parents before their children; free: last free position below a parent
        p = parent[j]
        position[j] = free[p] if p >= 0 else free_root
        if p >= 0:
            free[p] -= size[j]
        else:
            free_root -= size[j]
        free[j] = position[j] - 1
    return position


@nb.njit(**FAST)
def depths(parent):  # type: ignore[no-untyped-def]
    """Return the number of nodes on the path from each node to its root, inclusive; parents have higher numbers."""
    n = len(parent)
    depth = np.ones(n, np.int64)
    for j in range(n - 1, -1, -1):
        if parent[j] >= 0:
            depth[j] = depth[parent[j]] + 1
    return depth


@nb.njit(**FAST)
def count_factor(indptr, indices, parent):  # type: ignore[no-untyped-def]
    """Count the entries of the factor L with its diagonal: row i has those on the paths from its entries to i."""
    n = len(parent)
    seen_by = np.full(n, -1, np.int64)
    total = n
    for i in range(n):
        seen_by[i] = i
        for k in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[k])
            while j < i and seen_by[j] != i:
                total += 1
                seen_by[j] = i
                j = parent[j]
    return total


@nb.njit(**FAST)
def inverse_columns(indptr, indices, data, parent, columns):  # type: ignore[no-untyped-def]
    """Solve L x = e_c for each of the given columns c, all different; L is unit lower triangular, CSC.

    Column c of the inverse is e_c minus the columns i > c times L_ic, all on the path from c to the root. Nodes are
    visited from the roots down, and the columns of the ancestors of the current node are kept, by depth. The tree is
    in postorder. Returns the arrays of a CSC matrix with sorted rows.
    """
    n, depth = len(parent), depths(parent)
    slot, needed = np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    out_indptr = np.zeros(len(columns) + 1, np.int64)
    for s in range(len(columns)):
        slot[columns[s]] = s
        needed[columns[s]] = True
        out_indptr[s + 1] = out_indptr[s] + depth[columns[s]]
    height = 0
    for j in range(n):
        if needed[j]:
            height = max(height, depth[j])
            if parent[j] >= 0:
                needed[parent[j]] = True
    out_indices = np.empty(out_indptr[-1], np.int32)
    out_data = np.empty(out_indptr[-1], np.float64)
    path = np.empty(height * (height + 1) // 2, np.float64)  # d numbers of an ancestor at depth d, root first
    for j in range(n - 1, -1, -1):
        if not needed[j]:
            continue
        d = depth[j]
        x = path[d * (d - 1) // 2 : d * (d + 1) // 2]
        x[:] = 0.0
        x[d - 1] = 1.0
        for k in range(indptr[j], indptr[j + 1]):
            if indices[k] > j and data[k] != 0:
                e = depth[indices[k]]
                above = path[e * (e - 1) // 2 : e * (e + 1) // 2]
                for t in range(e):
                    x[t] -= data[k] * above[t]
        if slot[j] >= 0:
            entry, i = out_indptr[slot[j]], j
            for t in range(d - 1, -1, -1):
                out_indices[entry], out_data[entry] = i, x[t]
                entry += 1
                i = parent[i]
    return out_indptr, out_indices, out_data
