"""The loop around the dual coordinate descent over paths: sweep, polish, certify.

`solve_paths` trains large-margin choices among classes that share parts of their weights (`kernels.path_margin` has
the problem and its dual) and stops when the duality gap is certified to be at most `tol` times the primal objective.
A sweep over all rows looks over all classes and lists those that get mass; sweeps over the listed classes follow, at
a fraction of the cost. The sweep estimates the gap for nothing; for the certificate the weights are made anew from
the multipliers, so that it does not rest on sums that rounding has let drift.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core.progress import Progress
from arbora.infer.linear.flat import BlockSolution, LinearRows
from arbora.kernels.path_margin import Choices, Masses, Paths, certify_paths, sweep_listed, sweep_paths

FIRST_CAPACITY = 16  # classes that may carry mass in one choice, at first
_MOST_LISTED_SWEEPS = 50
_LISTED_ENOUGH = 0.2  # the listed classes are polished until their gap is this share of the whole gap
_FIRST_SHARE = 0.3  # of the gap that a sweep met, what is taken to be left after it, until it is known better
_PARTS_AT_ONCE = 256  # columns of the weights that are made of the multipliers at a time
_ROUNDINGS = 4  # units in the last place that a score is uncertain by
_TINY = np.finfo(np.float64).tiny


class PathState(NamedTuple):
    """Where the solver stands: weights of the parts, and the multipliers they are made of."""

    weights: NDArray[Any]  # (n_features + 1) x n_parts
    masses: Masses


def as_paths(P: sp.csr_array, mu: float, unit: float, dtype: Any) -> Paths:
    """Prepare P for the kernels, for margins of mu / 2 ||P_r - P_y||^2 + unit."""
    dtype = np.dtype(dtype)
    offset = mu / 2 * np.asarray(P.multiply(P).sum(axis=1)).ravel()
    indptr, parts = P.indptr.astype(np.int64), P.indices.astype(np.int32)
    scalars = (dtype.type(value) for value in (mu, unit, _ROUNDINGS * np.finfo(dtype).eps))
    return Paths(indptr, parts, P.data.astype(dtype), offset.astype(dtype), *scalars)


def start(rows: LinearRows, n_parts: int, choices: Choices) -> PathState:
    """Zero weights: all mass on the right class of each choice."""
    n_choices = len(choices.right)
    masses = Masses(
        np.zeros((n_choices, FIRST_CAPACITY), np.int32),
        np.zeros((n_choices, FIRST_CAPACITY), rows.dtype),
        np.ones(n_choices, np.int32),
    )
    masses.classes[:, 0], masses.values[:, 0] = choices.right, choices.cost
    return PathState(np.zeros((rows.n_features + 1, n_parts), rows.dtype), masses)


def csr_arrays(rows: LinearRows) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the arrays of the rows with one type of pointers, so that the kernels are compiled once."""
    return rows.indptr.astype(np.int64, copy=False), rows.indices, rows.data


def weights_of(rows: LinearRows, P: sp.csr_array, choices: Choices, masses: Masses) -> NDArray[Any]:
    """Make the weights of the multipliers anew, in double precision: sum_ty m_ty (P_r - P_y)' x_i."""
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
    for first in range(0, P.shape[1], _PARTS_AT_ONCE):
        block = by_part[:, first : first + _PARTS_AT_ONCE].toarray()
        weights[:-1, first : first + _PARTS_AT_ONCE] = transposed @ block
        weights[-1, first : first + _PARTS_AT_ONCE] = rows.bias * block.sum(axis=0)
    return weights


def improve(
    rows: LinearRows, paths: Paths, choices: Choices, state: PathState, rng: np.random.Generator
) -> tuple[PathState, float, float]:
    """Sweep over all rows, then over the classes that carry mass; return the loss and gap that the sweep met."""
    weights, masses = state
    arrays = *csr_arrays(rows), rows.norm2, rows.bias, weights, paths, choices
    loss, gap, too_short = sweep_paths(*arrays, masses, rng.permutation(rows.n_samples))
    moving = np.unique(np.repeat(np.arange(rows.n_samples), np.diff(choices.indptr))[masses.count > 1])
    enough, listed_seed = _LISTED_ENOUGH * gap, int(rng.integers(2**31))
    sweep_listed(*arrays, masses, moving, _MOST_LISTED_SWEEPS, enough, listed_seed)
    if too_short:
        room = ((0, 0), (0, masses.classes.shape[1]))
        masses = masses._replace(classes=np.pad(masses.classes, room), values=np.pad(masses.values, room))
    return PathState(weights, masses), loss, gap


def certify(
    rows: LinearRows, P: sp.csr_array, paths: Paths, choices: Choices, masses: Masses
) -> tuple[Any, ...]:
    """Return the weights of the multipliers, and the loss and the gap there."""
    weights = weights_of(rows, P, choices, masses)
    loss, gap = certify_paths(*csr_arrays(rows), rows.bias, weights, paths, choices, masses)
    return weights, loss, gap


def half_square(weights: NDArray[Any]) -> float:
    """Regulariser, in double precision."""
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
) -> BlockSolution:
    """Solve all choices jointly to a certified relative duality gap.

    Parameters
    ----------
    rows : LinearRows
        From `prepare_rows`.
    P : sparse CSR of shape (n_classes, n_parts)
        With sorted indices.
    choices : Choices
        Costs in the precision of the rows.
    mu, unit : float
        Margins are mu / 2 ||P_r - P_y||^2 + unit for y != r.
    tol, max_iter, seed
        Relative gap to stop at, most sweeps over all rows, seed of their order.
    progress : Progress, optional

    Returns
    -------
    BlockSolution
        `weights` of the parts, bias last; `multipliers` as the kernels list them.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from arbora.infer.linear.flat import prepare_rows
    >>> rows = prepare_rows(sp.csr_array([[1.0], [-1.0]]), np.float64, bias=0.0)
    >>> both = np.zeros(2, np.int32), np.full(2, 2, np.int32)
    >>> choices = Choices(np.arange(3), np.arange(2, dtype=np.int32), *both, np.ones(2))
    >>> solution = solve_paths(rows, sp.eye_array(2, format="csr"), choices)
    >>> solution.weights[0].round(3), solution.objectives.round(3)
    (array([ 0.5, -0.5]), array([0.25]))
    """
    paths = as_paths(P, mu, unit, rows.dtype)
    state, rng = start(rows, P.shape[1], choices), np.random.default_rng(seed)
    history: list[tuple[float, float, float]] = []
    started, share, converged = perf_counter(), _FIRST_SHARE, False
    for iteration in range(max_iter):
        state, loss, gap = improve(rows, paths, choices, state, rng)
        objective = loss + half_square(state.weights)
        if gap * share <= tol * objective or iteration == max_iter - 1:
            estimate = gap
            weights, loss, gap = certify(rows, P, paths, choices, state.masses)
            state, objective = PathState(weights, state.masses), loss + half_square(weights)
            converged = gap <= tol * objective
            share = gap / max(estimate, _TINY)
        history.append((objective, gap, perf_counter() - started))
        if progress is not None:
            progress.update(objective=objective, gap=gap / max(objective, _TINY))
        if converged:
            break
    values = state.masses.values
    return BlockSolution(
        state.weights, values, np.array([objective]), np.array([gap]), np.array(history), converged
    )
