"""Dual coordinate descent for large-margin choices among classes that share parts of their weights.

Class y has the score f_y(x) = sum_a P_ya v_a.x: a row of the sparse matrix P holds the shares of the class in the
parts a (the nodes on its path). In choice t, row i has the right class r_t among the classes first_t .. stop_t - 1,

    min_V  1/2 sum_a ||v_a||^2 + sum_t c_t max_y [D(r_t, y) + f_y(x_i) - f_{r_t}(x_i)],
    D(r, y) = mu / 2 ||P_r - P_y||^2 + u 1[y != r],

and its dual has one multiplier for each class of each choice, m_ty >= 0 with sum_y m_ty = c_t (the right class has
the remainder), v_a = sum_ty m_ty (P_{r_t} - P_y)_a x_i. With g_ty = D(r_t, y) + f_y(x_i) the duality gap is

    sum_t sum_y m_ty (max_y' g_ty' - g_ty),

with non-negative summands. Moving mass from class k to class l of a choice is a quadratic in one variable with
curvature ||x_i||^2 ||P_k - P_l||^2. Since D is itself a distance between rows of P, it is free: up to a constant,
g_y = sum_a P_ya (v_a.x - mu P_ra) + mu / 2 ||P_y||^2 + u 1[y != r].

V has the shape (n_features + 1, n_parts): one pass over a row gives its products with all parts, and the scores of
all classes follow without reading V again (`sweep_paths`). For each choice only the classes with mass are listed, a
few of thousands; `sweep_listed` visits the parts of those alone.
"""

from typing import Any, NamedTuple

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST, add_row
from arbora.kernels.random import shuffle

_MAX_SCANS = 8  # scans over all classes for the worst violator in one visit
_MAX_STEPS = 50  # moves of mass between two scans
_SETTLED = 0.01  # sweep_listed drops a row whose gap is below this share of the mean
_ROW_GOAL = 0.1  # a visit ends when the gap has fallen to this share of its start


class Paths(NamedTuple):
    """Rows of P in CSR form with sorted parts, and the constants of the margins: mu, u and mu / 2 ||P_y||^2.

    Two values of g whose difference is at most `noise` times their size count as equal: a step of that size may not
    change rounded sums, and would be repeated forever.
    """

    indptr: Any
    parts: Any
    values: Any
    offset: Any
    mu: Any
    unit: Any
    noise: Any


class Choices(NamedTuple):
    """The choices of row i are numbers indptr[i] .. indptr[i + 1] - 1."""

    indptr: Any
    right: Any
    first: Any
    stop: Any
    cost: Any


class Masses(NamedTuple):
    """Classes with mass in each choice t, the right one first; there are count[t] of them."""

    classes: Any
    values: Any
    count: Any


@nb.njit(**FAST)
def _along(paths, y, z):  # type: ignore[no-untyped-def]
    """Return the sum of z over the parts of class y plus its term of the margin."""
    total = paths.offset[y]
    for k in range(paths.indptr[y], paths.indptr[y + 1]):
        total += paths.values[k] * z[paths.parts[k]]
    return total


@nb.njit(**FAST)
def _spread(paths, y, t, z):  # type: ignore[no-untyped-def]
    """Add t to z at the parts of class y."""
    for k in range(paths.indptr[y], paths.indptr[y + 1]):
        z[paths.parts[k]] += t * paths.values[k]


@nb.njit(**FAST)
def _apart(paths, l, m):  # type: ignore[no-untyped-def]
    """Return the squared distance of two rows of P."""
    total = paths.values.dtype.type(0)
    i, end_i = paths.indptr[l], paths.indptr[l + 1]
    j, end_j = paths.indptr[m], paths.indptr[m + 1]
    while i < end_i or j < end_j:
        if j == end_j or (i < end_i and paths.parts[i] < paths.parts[j]):
            difference = paths.values[i]
            i += 1
        elif i == end_i or paths.parts[j] < paths.parts[i]:
            difference = paths.values[j]
            j += 1
        else:
            difference = paths.values[i] - paths.values[j]
            i += 1
            j += 1
        total += difference * difference
    return total


@nb.njit(**FAST)
def _look(paths, choices, t, z):  # type: ignore[no-untyped-def]
    """Find the class of choice t with the largest g; z is shifted by the right class."""
    right = choices.right[t]
    best, top = right, _along(paths, right, z)
    for y in range(choices.first[t], choices.stop[t]):
        if y != right:
            g = _along(paths, y, z) + paths.unit
            if g > top:
                best, top = y, g
    return best, top


@nb.njit(**FAST)
def _list_gap(paths, masses, t, z, top):  # type: ignore[no-untyped-def]
    """Return the gap of choice t, given its largest g; no summand is negative, despite rounding."""
    zero = masses.values.dtype.type(0)
    gap = masses.values[t, 0] * max(top - _along(paths, masses.classes[t, 0], z), zero)
    for r in range(1, masses.count[t]):
        gap += masses.values[t, r] * max(top - _along(paths, masses.classes[t, r], z) - paths.unit, zero)
    return gap


@nb.njit(**FAST)
def _settle(paths, masses, t, q, goal, z, d, g):  # type: ignore[no-untyped-def]
    """Move mass among the listed classes of choice t until their gap is below the goal.

    Each step moves mass to the class with the largest g from the class that gains most. z is updated, and d sums the
    changes of the parts in units of the row.
    """
    classes, values, n = masses.classes[t], masses.values[t], masses.count[t]
    tiny = g.dtype.type(1e-30)
    for _ in range(_MAX_STEPS):
        to = 0
        for r in range(n):
            g[r] = _along(paths, classes[r], z)
            if r > 0:
                g[r] += paths.unit
            if g[r] > g[to]:
                to = r
        gap, most, source, step = g.dtype.type(0), g.dtype.type(0), to, g.dtype.type(0)
        for r in range(n):
            rise = g[to] - g[r]
            gap += values[r] * rise
            if values[r] > 0 and rise > paths.noise * (abs(g[to]) + abs(g[r])):
                curvature = max(q * _apart(paths, classes[r], classes[to]), tiny)
                move = min(values[r], rise / curvature)
                gain = move * (rise - move * curvature / 2)
                if gain > most:
                    most, source, step = gain, r, move
        if gap <= goal or source == to:
            return
        values[source] -= step
        values[to] += step
        _spread(paths, classes[source], step * q, z)
        _spread(paths, classes[to], -step * q, z)
        _spread(paths, classes[source], step, d)
        _spread(paths, classes[to], -step, d)


@nb.njit(**FAST)
def _forget_empty(masses, t):  # type: ignore[no-untyped-def]
    """Remove the classes without mass, except the right one, from the list of choice t."""
    n_kept = 1
    for r in range(1, masses.count[t]):
        if masses.values[t, r] > 0:
            masses.classes[t, n_kept] = masses.classes[t, r]
            masses.values[t, n_kept] = masses.values[t, r]
            n_kept += 1
    masses.count[t] = n_kept


@nb.njit(**FAST)
def _list_class(masses, t, y):  # type: ignore[no-untyped-def]
    """Add class y to the list of choice t if it is missing; return whether it is listed now."""
    n = masses.count[t]
    for r in range(n):
        if masses.classes[t, r] == y:
            return True
    if n == masses.classes.shape[1]:
        return False
    masses.classes[t, n] = y
    masses.values[t, n] = 0
    masses.count[t] = n + 1
    return True


@nb.njit(**FAST)
def _add_to_weights(indptr, indices, data, bias, i, V, d, used, n_used):  # type: ignore[no-untyped-def]
    """Add row i times d to V, at the used parts where d is not zero, and clear d."""
    n_changed, last = 0, V.shape[0] - 1
    for u in range(n_used):
        if d[used[u]] != 0:
            used[n_changed] = used[u]
            n_changed += 1
    if n_changed == 0:
        return
    for k in range(indptr[i], indptr[i + 1]):
        v, j = data[k], indices[k]
        for u in range(n_changed):
            V[j, used[u]] += v * d[used[u]]
    for u in range(n_changed):
        V[last, used[u]] += bias * d[used[u]]
        d[used[u]] = 0


@nb.njit(**FAST)
def sweep_paths(indptr, indices, data, norm2, bias, V, paths, choices, masses, order):  # type: ignore[no-untyped-def]
    """Visit the rows in the given order; change V and the masses in place.

    Returns the loss and the gap, summed over choices as they were when visited, and whether a list was too short for
    a new class.
    """
    n_parts, last = V.shape[1], V.shape[0] - 1
    z, d = np.empty(n_parts, V.dtype), np.zeros(n_parts, V.dtype)
    g, used = np.empty(masses.classes.shape[1], V.dtype), np.empty(n_parts, np.int64)
    loss, total_gap, too_short = 0.0, 0.0, False
    for s in range(len(order)):
        i = order[s]
        for a in range(n_parts):
            z[a] = bias * V[last, a]
        add_row(indptr, indices, data, i, V, z)
        for t in range(choices.indptr[i], choices.indptr[i + 1]):
            if choices.cost[t] <= 0:
                continue
            right = choices.right[t]
            _spread(paths, right, -paths.mu, z)
            _forget_empty(masses, t)
            goal = V.dtype.type(0)
            for scan in range(_MAX_SCANS):
                best, top = _look(paths, choices, t, z)
                gap = _list_gap(paths, masses, t, z, top)
                if scan == 0:
                    loss += choices.cost[t] * (top - _along(paths, right, z))
                    total_gap += gap
                    goal = gap * V.dtype.type(_ROW_GOAL)
                if gap <= goal:
                    break
                if not _list_class(masses, t, best):
                    too_short = True
                _settle(paths, masses, t, norm2[i], goal / 2, z, d, g)
            _spread(paths, right, paths.mu, z)
        for a in range(n_parts):
            used[a] = a
        _add_to_weights(indptr, indices, data, bias, i, V, d, used, n_parts)
    return loss, total_gap, too_short


@nb.njit(**FAST)
def _gather(indptr, indices, data, bias, i, V, paths, choices, masses, z, used, seen, stamp):  # type: ignore[no-untyped-def]
    """Multiply row i by the parts of the listed classes of its choices; list these parts, return their number."""
    n_used, last = 0, V.shape[0] - 1
    for t in range(choices.indptr[i], choices.indptr[i + 1]):
        for r in range(masses.count[t] if masses.count[t] > 1 else 0):
            y = masses.classes[t, r]
            for k in range(paths.indptr[y], paths.indptr[y + 1]):
                a = paths.parts[k]
                if seen[a] != stamp:
                    seen[a] = stamp
                    used[n_used] = a
                    z[a] = bias * V[last, a]
                    n_used += 1
    for k in range(indptr[i], indptr[i + 1]):
        v, j = data[k], indices[k]
        for u in range(n_used):
            z[used[u]] += v * V[j, used[u]]
    return n_used


@nb.njit(**FAST)
def sweep_listed(  # type: ignore[no-untyped-def]
    indptr, indices, data, norm2, bias, V, paths, choices, masses, rows, n_sweeps, enough, seed
):
    """Sweep up to n_sweeps times over the rows, moving mass among the listed classes of their choices only.

    Each sweep has a new random order and drops rows whose gap over their lists is small. The sweeps end when the gap
    of all rows, as they were when last visited, falls below `enough`. `rows` is reordered.
    """
    n_parts, n, left = V.shape[1], len(rows), 0.0
    z, d = np.zeros(n_parts, V.dtype), np.zeros(n_parts, V.dtype)
    g, used = np.empty(masses.classes.shape[1], V.dtype), np.empty(n_parts, np.int64)
    seen, gaps = np.full(n_parts, -1), np.zeros(n, V.dtype)
    state = np.uint64(seed)
    for sweep in range(n_sweeps):
        total = 0.0
        state = shuffle(rows, n, state)
        for s in range(n):
            i = rows[s]
            n_used = _gather(
                indptr,
                indices,
                data,
                bias,
                i,
                V,
                paths,
                choices,
                masses,
                z,
                used,
                seen,
                sweep * len(rows) + s,
            )
            gaps[s] = 0
            for t in range(choices.indptr[i], choices.indptr[i + 1]):
                if masses.count[t] < 2:
                    continue
                right = choices.right[t]
                _spread(paths, right, -paths.mu, z)
                top = _along(paths, right, z)
                for r in range(1, masses.count[t]):
                    top = max(top, _along(paths, masses.classes[t, r], z) + paths.unit)
                gap = _list_gap(paths, masses, t, z, top)
                gaps[s] += gap
                _settle(paths, masses, t, norm2[i], gap * V.dtype.type(_ROW_GOAL), z, d, g)
                _spread(paths, right, paths.mu, z)
            total += gaps[s]
            _add_to_weights(indptr, indices, data, bias, i, V, d, used, n_used)
        if total + left <= enough:
            break
        n_kept = 0
        for s in range(n):
            if gaps[s] > _SETTLED * total / n:
                rows[n_kept] = rows[s]
                n_kept += 1
            else:
                left += gaps[s]
        n = n_kept


@nb.njit(**FAST)
def certify_paths(indptr, indices, data, bias, V, paths, choices, masses):  # type: ignore[no-untyped-def]
    """Return the loss and the gap of all choices at the current V and masses."""
    n_parts, last = V.shape[1], V.shape[0] - 1
    z = np.empty(n_parts, V.dtype)
    loss, gap = 0.0, 0.0
    for i in range(len(indptr) - 1):
        for a in range(n_parts):
            z[a] = bias * V[last, a]
        add_row(indptr, indices, data, i, V, z)
        for t in range(choices.indptr[i], choices.indptr[i + 1]):
            right = choices.right[t]
            _spread(paths, right, -paths.mu, z)
            _, top = _look(paths, choices, t, z)
            loss += choices.cost[t] * (top - _along(paths, right, z))
            gap += _list_gap(paths, masses, t, z, top)
            _spread(paths, right, paths.mu, z)
    return loss, gap
