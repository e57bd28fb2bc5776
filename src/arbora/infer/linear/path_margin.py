"""The loop around the dual coordinate descent over paths: sweep, polish, certify.

`solve_paths` trains large-margin choices among classes that share parts of their weights
(`kernels.linear.path_margin` states the problem and its dual) and stops when the certified duality gap is at most
`tol` times the primal objective. A sweep over all rows scans all classes and lists those that get mass; sweeps over
the listed classes follow, at a fraction of the cost. The sweep estimates the gap for free. For the certificate the
weights are recomputed from the multipliers, which removes accumulated rounding errors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.arrays import TINY, Matrix
from arbora.core.chunks import split
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.infer.linear.rows import LinearRows
from arbora.kernels.linear.path_margin import Choices, Masses, Paths, certify_paths, sweep_listed, sweep_paths

FIRST_CAPACITY = 16  # initial number of classes that may have mass in one choice
_MAX_LISTED_SWEEPS = 50
_LISTED_ENOUGH = 0.2  # sweeps over the listed classes end when their gap is this share of the whole gap
_FIRST_SHARE = 0.3  # assumed ratio of the gap after a sweep to its estimate, until a certificate measures it
_PARTS_AT_ONCE = 256  # columns of the weights that are computed from the multipliers at a time
_ROUNDINGS = 4  # error of a score in units in the last place


class PathState(NamedTuple):
    """Weights of the parts, and their multipliers."""

    weights: Matrix  # (n_features + 1) x n_parts
    masses: Masses


class PathSolution(NamedTuple):
    """Weights of the parts, bias last, multipliers, certificate and history."""

    weights: Matrix  # (n_features + 1) x n_parts
    masses: Masses
    objective: float
    gap: float  # absolute duality gap
    trace: Trace
    converged: bool


def as_paths(P: sp.csr_array, mu: float, unit: float, dtype: Any) -> Paths:
    """Prepare P for the kernels, for margins of mu / 2 ||P_r - P_y||^2 + unit."""
    dtype = np.dtype(dtype)
    offset = mu / 2 * np.asarray(P.multiply(P).sum(axis=1)).ravel()
    indptr, parts = P.indptr.astype(np.int64), P.indices.astype(np.int32)
    scalars = (dtype.type(value) for value in (mu, unit, _ROUNDINGS * np.finfo(dtype).eps))
    return Paths(indptr, parts, P.data.astype(dtype), offset.astype(dtype), *scalars)


def start(rows: LinearRows, n_parts: int, choices: Choices) -> PathState:
    """Return zero weights, with all mass on the right class of each choice."""
    n_choices = len(choices.right)
    masses = Masses(
        np.zeros((n_choices, FIRST_CAPACITY), np.int32),
        np.zeros((n_choices, FIRST_CAPACITY), rows.dtype),
        np.ones(n_choices, np.int32),
    )
    masses.classes[:, 0], masses.values[:, 0] = choices.right, choices.cost
    return PathState(np.zeros((rows.n_features + 1, n_parts), rows.dtype), masses)


def csr_arrays(rows: LinearRows) -> tuple[Matrix, Matrix, Matrix]:
    """Return the CSR arrays of the rows with 64-bit pointers, so that the kernels are compiled once."""
    return rows.indptr.astype(np.int64, copy=False), rows.indices, rows.data


def weights_of(rows: LinearRows, P: sp.csr_array, choices: Choices, masses: Masses) -> Matrix:
    """Compute the weights of the multipliers in double precision: sum_ty m_ty (P_r - P_y)' x_i."""
    listed = np.arange(masses.classes.shape[1]) < masses.count[:, None]
    listed[:, 0] = False
    choice, _ = np.nonzero(listed)
    row_of = np.repeat(np.arange(rows.n_samples), np.diff(choices.indptr))[choice]
    mass = masses.values[listed].astype(np.float64)
    coordinates = (
        np.concatenate([row_of, row_of]),
        np.concatenate([choices.right[choice], masses.classes[listed]]),
    )
    by_class = sp.csr_array((np.concatenate([mass, -mass]), coordinates), shape=(rows.n_samples, P.shape[0]))
    by_part = sp.csc_array(by_class @ P)
    shape = (rows.n_features, rows.n_samples)
    transposed = sp.csc_array((rows.data.astype(np.float64), rows.indices, rows.indptr), shape=shape)
    weights = np.empty((rows.n_features + 1, P.shape[1]), rows.dtype)
    for parts in split(P.shape[1], size=_PARTS_AT_ONCE, even=False):
        sums = by_part[:, parts].toarray()
        weights[:-1, parts] = transposed @ sums
        weights[-1, parts] = rows.bias * sums.sum(axis=0)
    return weights


def improve(
    rows: LinearRows, paths: Paths, choices: Choices, state: PathState, rng: np.random.Generator
) -> tuple[PathState, float, float]:
    """Sweep over all rows, then over the classes with mass; return the loss and the gap that the sweep estimated."""
    weights, masses = state
    arrays = *csr_arrays(rows), rows.norm2, rows.bias, weights, paths, choices
    loss, gap, too_short = sweep_paths(*arrays, masses, rng.permutation(rows.n_samples))
    moving = np.unique(np.repeat(np.arange(rows.n_samples), np.diff(choices.indptr))[masses.count > 1])
    enough, listed_seed = _LISTED_ENOUGH * gap, int(rng.integers(2**31))
    sweep_listed(*arrays, masses, moving, _MAX_LISTED_SWEEPS, enough, listed_seed)
    if too_short:
        room = ((0, 0), (0, masses.classes.shape[1]))
        masses = masses._replace(classes=np.pad(masses.classes, room), values=np.pad(masses.values, room))
    return PathState(weights, masses), loss, gap


def certify(
    rows: LinearRows, P: sp.csr_array, paths: Paths, choices: Choices, masses: Masses
) -> tuple[Any, ...]:
    """Return the weights of the multipliers, and their loss and gap."""
    weights = weights_of(rows, P, choices, masses)
    loss, gap = certify_paths(*csr_arrays(rows), rows.bias, weights, paths, choices, masses)
    return weights, loss, gap


def half_square(weights: Matrix) -> float:
    """Return the regulariser, in double precision."""
    return float(np.einsum("ja,ja->", weights, weights, dtype=np.float64) / 2)


def solve_paths(
    rows: LinearRows,
    P: sp.csr_array,
    choices: Choices,
    *,
    mu: float = 0.0,
    unit: float = 1.0,
    tol: float = 1e-3,
    max_iter: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> PathSolution:
    """Solve all choices jointly to a certified relative duality gap of at most `tol`.

    P (n_classes x n_parts) has sorted indices; the margins are mu / 2 ||P_r - P_y||^2 + unit for y != r. The costs of
    the choices have the precision of the rows. `max_iter` counts sweeps over all rows; `seed` is that of their order.
    """
    paths = as_paths(P, mu, unit, rows.dtype)
    state, rng = start(rows, P.shape[1], choices), np.random.default_rng(seed)
    monitor, share, done = Monitor(tol, max_iter, progress), _FIRST_SHARE, False
    while not done:
        state, loss, gap = improve(rows, paths, choices, state, rng)
        objective = loss + half_square(state.weights)
        certified = gap * share <= tol * objective or monitor.is_last
        if certified:
            estimate = gap
            weights, loss, gap = certify(rows, P, paths, choices, state.masses)
            state, objective = PathState(weights, state.masses), loss + half_square(weights)
            share = gap / max(estimate, TINY)
        done = monitor.record(objective, gap=gap, certified=certified, converged=gap <= tol * objective)
    return PathSolution(*state, objective, gap, monitor.trace, monitor.converged)
