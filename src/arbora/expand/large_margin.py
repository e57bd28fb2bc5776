"""Large margin nearest neighbours (LMNN): a row's target neighbours are nearer than rows of other groups by a margin.

Weinberger and Saul (2009) minimise over A >= 0, with k target neighbours j of each row i (fixed, the nearest rows of
its group) and impostors l of other groups,

    (1 - mu) sum_{i,j} d_A(i, j) + mu sum_{i,j} sum_l max(0, 1 + d_A(i, j) - d_A(i, l)),

here as a mean over the rows. The gradient is X'Lap(w)X, where w adds the weights of the pairs: one sparse product.
The impostors that are near violation are found again every few iterations (active sets): between two searches only
they are looked at. Solved by projected gradient with an adaptive step. The problem is convex; its solution is
certified by the change of A alone.

Reference
---------
K. Weinberger and L. Saul (2009). Distance metric learning for large margin nearest neighbor classification. JMLR 10.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from sklearn.utils._param_validation import Interval

from arbora.core.chunks import split
from arbora.core.monitor import Monitor
from arbora.core.progress import Progress
from arbora.expand._common.transform import (
    Labelled,
    Learned,
    MetricTransform,
    require_groups,
    square_root,
    warn_unless_converged,
)
from arbora.expand.gaussian import psd

Matrix = NDArray[Any]
_SEARCH_EVERY = 10  # iterations between two searches of impostors
_MOST_IMPOSTORS = 50  # of a row in the active set
_ROWS_AT_ONCE = 512
_GROWTH = 1.05
_TINY = float(np.finfo(np.float64).tiny)


def target_neighbours(labelled: Labelled, k: int) -> Matrix:
    """Pairs (row, target neighbour): the k nearest rows of the same group, fewer where the group is small."""
    pairs = []
    for group in range(labelled.n_groups):
        rows = np.flatnonzero(labelled.codes == group)
        n_near = min(k, len(rows) - 1)
        if n_near > 0:
            near = NearestNeighbors(n_neighbors=n_near + 1).fit(labelled.Z[rows])
            found = near.kneighbors(labelled.Z[rows], return_distance=False)
            own = np.arange(len(rows))[:, None]
            # A row is usually its own nearest one; among equal rows it may not be.
            kept = np.argsort(found == own, axis=1, kind="stable")[:, :n_near]
            near_rows = np.take_along_axis(found, kept, axis=1)
            pairs.append(np.column_stack([np.repeat(rows, n_near), rows[near_rows.ravel()]]))
    return np.vstack(pairs) if pairs else np.empty((0, 2), np.int64)


def squared_distances(Z: Matrix, L: Matrix, pairs: Matrix) -> Matrix:
    """Squared distances of pairs of rows after the map."""
    mapped = Z @ L.T
    return np.asarray(np.sum((mapped[pairs[:, 0]] - mapped[pairs[:, 1]]) ** 2, axis=1))


def find_impostors(labelled: Labelled, L: Matrix, reach: Matrix) -> Matrix:
    """Pairs (row, row of another group) that are nearer than `reach` of the row, at most 50 a row, nearest first."""
    mapped = labelled.Z @ L.T
    square = np.sum(mapped**2, axis=1)
    found = []
    for rows in split(len(mapped), size=_ROWS_AT_ONCE):
        D = square[rows, None] + square - 2 * mapped[rows] @ mapped.T
        D[labelled.codes[rows, None] == labelled.codes] = np.inf
        most = min(_MOST_IMPOSTORS, D.shape[1])
        near = np.argpartition(D, most - 1, axis=1)[:, :most]
        inside = np.take_along_axis(D, near, axis=1) < reach[rows, None]
        first, at = np.nonzero(inside)
        found.append(np.column_stack([first + rows.start, near[first, at]]))
    return np.vstack(found)


class LargeMarginProblem:
    """Objective and gradient for fixed target neighbours and a set of candidate impostors."""

    def __init__(self, labelled: Labelled, targets: Matrix, mu: float) -> None:
        self.labelled, self.targets, self.mu = labelled, targets, mu
        self.share = labelled.row_weight / labelled.row_weight.sum()
        self.impostors = np.empty((0, 2), np.int64)
        self.triplets = np.empty((0, 2), np.int64)

    def search(self, L: Matrix) -> None:
        """Find the impostors within reach of the farthest target neighbour, with some slack for later steps."""
        distance = squared_distances(self.labelled.Z, L, self.targets)
        reach = np.zeros(len(self.labelled.Z))
        np.maximum.at(reach, self.targets[:, 0], distance)
        reach[reach > 0] = 1.1 * (reach[reach > 0] + 1.0)
        self.impostors = find_impostors(self.labelled, L, reach)
        # All triplets (target pair, impostor pair) of one row.
        n = len(self.labelled.Z)
        n_targets = np.bincount(self.targets[:, 0], minlength=n)
        first = np.concatenate([[0], np.cumsum(n_targets)])
        order = np.argsort(self.targets[:, 0], kind="stable")
        count = n_targets[self.impostors[:, 0]]
        impostor = np.repeat(np.arange(len(self.impostors)), count)
        within = np.arange(len(impostor)) - np.repeat(np.cumsum(count) - count, count)
        self.triplets = np.column_stack([order[first[self.impostors[impostor, 0]] + within], impostor])

    def value_and_gradient(self, L: Matrix) -> tuple[float, Matrix]:
        """Objective at A = L'L, and its gradient by A."""
        Z = self.labelled.Z
        pull = squared_distances(Z, L, self.targets)
        push = squared_distances(Z, L, self.impostors)
        weight = self.share[self.targets[:, 0]]
        hinge = 1 + pull[self.triplets[:, 0]] - push[self.triplets[:, 1]]
        active = hinge > 0
        by_triplet = self.mu * weight[self.triplets[:, 0]] * active
        value = (1 - self.mu) * float(weight @ pull) + float(by_triplet @ np.maximum(hinge, 0.0))
        on_targets = (1 - self.mu) * weight
        on_targets = on_targets + np.bincount(self.triplets[:, 0], by_triplet, minlength=len(self.targets))
        on_impostors = -np.bincount(self.triplets[:, 1], by_triplet, minlength=len(self.impostors))
        pairs = np.vstack([self.targets, self.impostors])
        weights = np.concatenate([on_targets, on_impostors])
        n = len(Z)
        W = sp.csr_array((weights, (pairs[:, 0], pairs[:, 1])), shape=(n, n))
        degree = np.asarray(W.sum(axis=1)).ravel() + np.asarray(W.sum(axis=0)).ravel()
        return value, np.asarray((Z * degree[:, None]).T @ Z - Z.T @ ((W + W.T) @ Z))


def learn_large_margin(
    labelled: Labelled,
    k: int,
    mu: float,
    *,
    tol: float = 1e-4,
    max_iter: int = 300,
    progress: Progress | None = None,
) -> Learned:
    """Projected gradient with active sets, from the identity."""
    targets = target_neighbours(labelled, k)
    A = L = np.eye(labelled.Z.shape[1])
    if not len(targets):
        return Learned(L)
    problem = LargeMarginProblem(labelled, targets, mu)
    problem.search(L)
    value, gradient = problem.value_and_gradient(L)
    step = 1.0 / max(float(np.linalg.norm(gradient)), _TINY)
    monitor, last = Monitor(tol, max_iter, progress), False
    while not last:
        new = psd(A - step * gradient)
        L_new = square_root(new)
        new_value, new_gradient = problem.value_and_gradient(L_new)
        if new_value > value and step > _TINY:
            step /= 2
            last = monitor.record(value, change=np.inf)
            continue
        change = float(np.linalg.norm(new - A)) / max(float(np.linalg.norm(A)), _TINY)
        A, L, value, gradient, step = new, L_new, new_value, new_gradient, step * _GROWTH
        settled = change <= tol
        if monitor.n_iter % _SEARCH_EVERY == _SEARCH_EVERY - 1 or settled:
            problem.search(L)
            before, (value, gradient) = value, problem.value_and_gradient(L)
            settled = settled and abs(value - before) <= tol * max(abs(value), _TINY)
        last = monitor.record(value, change=change, certified=settled)
    return Learned(square_root(A), monitor.trace, np.nan, monitor.n_iter, monitor.converged)


class LargeMarginTransform(MetricTransform):
    """Large margin nearest neighbours (LMNN).

    Parameters
    ----------
    n_neighbors : int
        Target neighbours of each row.
    mu : float
        Weight of the impostors against the pull of the target neighbours, from 0 to 1.
    tol : float
        Relative change of A at which to stop.
    max_iter : int
        Most gradient steps.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first; see `WithinClassTransform`.
    random_state : int, RandomState instance or None
        Seed of the randomised SVD.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_dims)
    A_ : ndarray of shape (n_dims, n_dims)
    trace_ : Trace
    classes_ : ndarray
    space_ : FeatureSpace
    n_iter_, n_features_in_ : int

    Examples
    --------
    >>> from arbora.expand import LargeMarginTransform
    >>> X = [[0.0, 5.0], [0.1, -5.0], [1.0, 5.0], [0.9, -5.0], [2.0, 0.0]]
    >>> transform = LargeMarginTransform().fit(X, ["a", "a", "b", "b", None])
    >>> bool(transform.A_[0, 0] > transform.A_[1, 1])
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "mu": [Interval(Real, 0, 1, closed="both")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        mu: float = 0.5,
        tol: float = 1e-4,
        max_iter: int = 500,
        n_dims: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mu = mu
        self.tol = tol
        self.max_iter = max_iter
        self.n_dims = n_dims
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, labelled: Labelled) -> Learned:
        require_groups(self, labelled, 2)
        with Progress(None, "steps", self.verbose) as progress:
            found = learn_large_margin(
                labelled, self.n_neighbors, self.mu, tol=self.tol, max_iter=self.max_iter, progress=progress
            )
        warn_unless_converged(self, found)
        return found
