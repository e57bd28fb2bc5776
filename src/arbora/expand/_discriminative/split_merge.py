"""Split-merge: leave a local optimum by merging two cells that say the same and splitting a third one.

A merge of cells i and k changes the hard cost by what their summed counts cost; the best split of a cell is found by
clustering the label distributions of its rows. The most promising exchanges are optimised, and the first one that
lowers the objective is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from arbora.expand._discriminative.optimizers import Descent, descend
from arbora.expand.discriminative.cost import Problem, cells_of, totals, unpack_linear
from arbora.expand.discriminative.starts import cluster_by_divergence, gate, information

Matrix = NDArray[Any]
_FEWEST_ROWS = 10  # of a cell to split
_TRIES = 3  # exchanges that are optimised in a round
_SPLIT_STEPS = 20
_GAIN = 1e-6  # of the objective, relative, that an exchange must have


def column_costs(counts: Matrix, problem: Problem) -> Matrix:
    """Cost of each column of counts (n_classes, ...)."""
    labels, prior = problem.labels, problem.prior
    n0 = prior * np.diff(labels.offsets)
    size = totals(counts, labels.offsets)
    mass = gammaln(size + n0.reshape(-1, *[1] * (counts.ndim - 1))).sum(axis=0)
    return np.asarray((1 + problem.entropy) * mass - gammaln(counts + prior).sum(axis=0))


def improve(
    problem: Problem,
    found: Descent,
    P: Matrix,
    rng: np.random.Generator,
    *,
    rounds: int,
    method: str,
    tol: float,
    max_iter: int,
) -> Descent:
    """Exchange cells of linear cells as long as the objective falls.

    Parameters
    ----------
    problem : Problem
    found : Descent
        Where the optimiser ended.
    P : ndarray of shape (n_rows, n_classes)
        Estimate of p(c|x).
    rng : Generator
    rounds : int
        Largest number of exchanges.
    method, tol, max_iter
        See `descend`.
    """
    n_clusters = problem.n_clusters
    if n_clusters < 3:
        return found
    for _ in range(rounds):
        W, b = unpack_linear(found.theta, problem)
        cells, counts = cells_of(problem.rows, W, b, problem.labels)
        cost = column_costs(counts, problem)
        merged = column_costs(counts[:, :, None] + counts[:, None, :], problem) - cost[:, None] - cost
        gains, halves = _splits(problem, cells, cost, P, rng)
        better = _best_exchange(problem, found, (merged, gains, halves), counts, method, tol, max_iter)
        if better is None:
            break
        found = better
    return found


def _splits(
    problem: Problem, cells: NDArray[np.int64], cost: Matrix, P: Matrix, rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """For each cell: change of the cost by its split (infinite if it has none), half difference of the parts."""
    n_clusters, width = problem.n_clusters, problem.rows.n_features + 1
    gains, halves = np.full(n_clusters, np.inf), np.zeros((n_clusters, width))
    for j in range(n_clusters):
        rows = np.flatnonzero(cells == j)
        if len(rows) < _FEWEST_ROWS:
            continue
        tries = [cluster_by_divergence(P[rows], 2, rng) for _ in range(2)]
        parts = max(tries, key=lambda one: information(P[rows], one, 2))
        if parts.min() == parts.max():
            continue
        inside = problem.take(rows)._replace(n_clusters=2)
        start = gate(inside.rows, parts, 2)
        ended = descend(inside, start, None, method="lbfgs", tol=1e-5, max_iter=_SPLIT_STEPS)
        W, b = unpack_linear(ended.theta, inside)
        gains[j] = column_costs(cells_of(inside.rows, W, b, inside.labels)[1], inside).sum() - cost[j]
        halves[j] = np.append(W[1] - W[0], b[1] - b[0]) / 2
    return gains, halves


def _best_exchange(
    problem: Problem,
    found: Descent,
    plan: tuple[Matrix, Matrix, Matrix],
    counts: Matrix,
    method: str,
    tol: float,
    max_iter: int,
) -> Descent | None:
    """Optimise the most promising exchanges; return the first that lowers the objective."""
    merged, gains, halves = plan
    n_clusters = problem.n_clusters
    i, k = np.triu_indices(n_clusters, 1)
    change = merged[i, k][:, None] + gains  # pairs x split cells
    change[np.arange(len(i)), i] = change[np.arange(len(i)), k] = np.inf
    best_split = change.argmin(axis=1)
    change = change[np.arange(len(i)), best_split]
    sizes = totals(counts, problem.labels.offsets).sum(axis=0) + 1e-9
    for pair in np.argsort(change, kind="stable")[:_TRIES].tolist():
        if not np.isfinite(change[pair]):
            break
        a, c, j = int(i[pair]), int(k[pair]), int(best_split[pair])
        both = found.theta.reshape(n_clusters, -1).copy()
        both[a] = (sizes[a] * both[a] + sizes[c] * both[c]) / (sizes[a] + sizes[c])
        both[c], both[j] = both[j] + halves[j], both[j] - halves[j]
        ended = descend(problem, both.ravel(), None, method=method, tol=tol, max_iter=max_iter)
        if ended.value < found.value - _GAIN * abs(found.value):
            return ended
    return None
