"""Large margin nearest neighbours (LMNN): a row's target neighbours are nearer than rows of other groups by a margin.

Weinberger and Saul (2009) minimise over A >= 0, with k target neighbours j of each row i (fixed, the nearest rows of
its group) and impostors l of other groups,

    F(A) = (1 - mu) sum_{i,j} d_A(i, j) + mu sum_{i,j} sum_l max(0, 1 + d_A(i, j) - d_A(i, l)),

here as a mean over the rows. With few rows its optimum overfits, and the published implementation stops early. Here
g ||A - I||^2 is added instead (`gamma`; 0 is the published problem).

The hinge is smoothed over a width that shrinks as the solution settles, and the smooth problem is solved by
accelerated projected gradient (`infer.proximal`). Impostors are searched among all rows when a solution is to be
certified and in a few iterations before; between two searches only rows near violation are looked at (active set).
The gradient is a weighted sum over pairs, computed as one product of matrices (`kernels.discriminative`).

Multipliers v_ijl in [0, mu] of the triplets, which the smoothed hinge gives, certify the solution. With
C = (1 - mu) sum_{i,j} (x_i - x_j)(x_i - x_j)' and the gradient G(v) = C + sum_ijl v_ijl (D_ij - D_il), D_ij the outer
product of a difference,

    F(A) >= sum v + <G(v), A>   for every A >= 0,    and    <C, A*> <= F(A*) <= F(A)    at the optimum A*,

so that F(A*) >= sum v + F(A) min(0, smallest eigenvalue of C^-1/2 G(v) C^-1/2). With g > 0 the bound is the minimum
of sum v + <G(v), A> + g ||A - I||^2 over A >= 0, at A = psd(I - G(v) / 2g).

Reference
---------
K. Weinberger and L. Saul (2009). Distance metric learning for large margin nearest neighbor classification. JMLR 10.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Ints, Matrix
from arbora.core.chunks import split_entries
from arbora.core.monitor import Monitor, Progress
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform, square_root
from arbora.expand.transforms.gaussian import identity_conjugate, psd
from arbora.infer.proximal import minimize_composite
from arbora.kernels.discriminative import margin_losses

_MAX_PAIRS = 20_000_000  # of rows and impostors in the active set
_MIN_IMPOSTORS = 50  # of a row, where that limit binds
_SLACK = 1.25  # distance up to which a row is in the active set, over that at which it is an impostor
_MAX_WIDTH, _SHRINK = 0.5, 0.25  # width of the smoothed hinge, and its factor when the solution settles
_SMALL_PART = 2.0  # gap over its part by smoothing, below which smoothing matters
_SINGULAR = 1e-8  # smallest eigenvalue of C over its largest one
_NEGLIGIBLE = 1e-9  # objective over that at the start, at which the optimum counts as 0


class Pairs(NamedTuple):
    """Rows that belong to each row, as in a CSR matrix without values."""

    first: Ints
    rows: NDArray[np.int32]


def as_pairs(left: Matrix, right: Matrix, n_rows: int) -> Pairs:
    """Pairs (left, right), sorted by the left row."""
    order = np.argsort(left, kind="stable")
    count = np.bincount(left, minlength=n_rows)
    return Pairs(np.concatenate([[0], np.cumsum(count)]), right[order].astype(np.int32))


def target_neighbours(labelled: Labelled, k: int) -> Matrix:
    """Pairs (row, target neighbour): the k nearest rows of the same group, fewer where the group is small."""
    pairs = []
    for group in range(labelled.n_groups):
        rows = np.flatnonzero(labelled.codes == group)
        n_near = min(k, len(rows) - 1)
        if n_near > 0:
            near = NearestNeighbors(n_neighbors=n_near + 1).fit(labelled.Z[rows])
            nearest = near.kneighbors(labelled.Z[rows], return_distance=False)
            self_rows = np.arange(len(rows))[:, None]
            # A row is usually its own nearest one; among equal rows it may not be.
            others = np.argsort(nearest == self_rows, axis=1, kind="stable")[:, :n_near]
            near_rows = np.take_along_axis(nearest, others, axis=1)
            pairs.append(np.column_stack([np.repeat(rows, n_near), rows[near_rows.ravel()]]))
    return np.vstack(pairs) if pairs else np.empty((0, 2), np.int64)


def find_impostors(Z: Matrix, A: Matrix, codes: Matrix, reach: Matrix) -> tuple[Pairs, bool]:
    """Rows of other groups nearer than `reach` of the row; the nearest ones if they are too many, and whether so."""
    n = len(Z)
    Y = Z @ A
    q = np.einsum("np,np->n", Y, Z)
    max_impostors, capped = max(_MIN_IMPOSTORS, _MAX_PAIRS // max(n, 1)), False
    left, right = [], []
    for rows in split_entries(n, n):
        D = Y[rows] @ Z.T
        D *= -2
        D += q
        near = np.less(D, (reach[rows] - q[rows])[:, None])
        near &= codes[rows, None] != codes
        for i in np.flatnonzero(near.sum(axis=1) > max_impostors):
            capped = True
            ids = np.flatnonzero(near[i])
            near[i, ids[np.argpartition(D[i, ids], max_impostors)[max_impostors:]]] = False
        rows_of_block, ids = np.nonzero(near)
        left.append(rows_of_block + rows.start)
        right.append(ids)
    return as_pairs(np.concatenate(left), np.concatenate(right), n), capped


class Losses(NamedTuple):
    """Results of one pass over the triplets."""

    smooth: float  # the objective with the smoothed hinge
    exact: float  # the objective
    multipliers: float  # their sum
    gradient: Matrix  # of the smoothed objective; zeros unless it was asked for


class LargeMarginProblem:
    """F(A) of the module docstring for an active set of impostors, as `infer.proximal` takes it."""

    def __init__(
        self, labelled: Labelled, targets: Matrix, mu: float, tol: float, gamma: float = 0.0
    ) -> None:
        self.Z, self.codes = np.ascontiguousarray(labelled.Z), labelled.codes
        self.mu, self.tol, self.gamma = mu, tol, gamma
        self.share = labelled.row_weight / labelled.row_weight.sum()
        n = len(self.Z)
        self.targets = as_pairs(targets[:, 0], targets[:, 1], n)
        self.impostors, self.capped = Pairs(np.zeros(n + 1, np.int64), np.empty(0, np.int32)), False
        difference = self.Z[targets[:, 0]] - self.Z[targets[:, 1]]
        self.pull = (1 - mu) * difference.T @ (self.share[targets[:, 0], None] * difference)
        values, vectors = np.linalg.eigh(self.pull)
        self.root = vectors / np.sqrt(values) if values[0] > _SINGULAR * values[-1] else None  # C^-1/2
        self.width, self.excess = _MAX_WIDTH, 0.0  # of the smoothed hinge; objective above the smoothed one
        self.n_certificates, self.next_search = 0, 2
        self.upper, self.bound, self.first = np.inf, 0.0, 0.0  # bounds of the optimum; objective at the start

    def search(self, A: Matrix) -> None:
        """Find the rows of other groups that are impostors at A, or nearly."""
        Y = self.Z @ A
        left = np.repeat(np.arange(len(self.Z)), np.diff(self.targets.first))
        difference = self.Z[left] - self.Z[self.targets.rows]
        distance = np.einsum("np,np->n", difference, Y[left] - Y[self.targets.rows])
        reach = np.zeros(len(self.Z))
        np.maximum.at(reach, left, _SLACK * (1 + np.maximum(distance, 0.0)))
        self.impostors, self.capped = find_impostors(self.Z, A, self.codes, reach)
        exact = self.losses(A).exact
        self.upper, self.first = min(self.upper, exact), exact if np.isinf(self.upper) else self.first

    def losses(self, A: Matrix, *, gradient: bool = False) -> Losses:
        """One pass over the triplets."""
        Z = self.Z
        Y = Z @ A
        shape = Z.shape if gradient else (0, Z.shape[1])
        sums, degree = np.zeros(shape), np.zeros(len(Z))
        smooth, exact, multipliers = margin_losses(
            Z, Y, np.einsum("np,np->n", Y, Z), self.share, *self.targets, *self.impostors, self.width, self.mu, sums,
            degree,
        )  # fmt: skip
        pulled = float(np.vdot(self.pull, A))
        G = np.zeros_like(A)
        if gradient:
            cross = Z.T @ sums
            G = self.pull + Z.T @ (degree[:, None] * Z) - cross - cross.T
        return Losses(pulled + self.mu * smooth, pulled + self.mu * exact, self.mu * multipliers, G)

    def value(self, A: Matrix) -> float:
        """Smoothed objective."""
        losses = self.losses(A)
        self.excess = losses.exact - losses.smooth
        return losses.smooth

    def value_and_gradient(self, A: Matrix) -> tuple[float, Matrix]:
        """Smoothed objective and its gradient."""
        losses = self.losses(A, gradient=True)
        return losses.smooth, losses.gradient

    def penalty(self, A: Matrix) -> float:
        """Regulariser, and the objective minus the smoothed one at the last point of `value`.

        So traces hold the objective.
        """
        return self.excess + self.regularizer(A)

    def regularizer(self, A: Matrix) -> float:
        """Strength times ||A - I||^2."""
        return self.gamma * float(np.sum((A - np.eye(len(A))) ** 2)) if self.gamma else 0.0

    def prox(self, B: Matrix, step: float) -> Matrix:
        """Prox of the regulariser on the cone."""
        t = 2 * step * self.gamma
        return psd((B + t * np.eye(len(B))) / (1 + t))

    def gap(self, A: Matrix) -> float:
        """Duality gap at A; narrows the hinge where smoothing is the larger part of the gap.

        The first certificates, and those that seem to meet the tolerance, search all impostors.
        """
        self.n_certificates += 1
        losses, extra = self.losses(A, gradient=True), self.regularizer(A)
        total = losses.exact + extra
        likely = total - max(self._bound(losses, losses.exact), self.bound)
        if self.n_certificates >= self.next_search or likely <= self.tol * total:
            self.next_search = 2 * self.n_certificates
            self.search(A)
            losses = self.losses(A, gradient=True)
            total, self.excess = losses.exact + extra, losses.exact - losses.smooth
        self.bound = max(self.bound, self._bound(losses, self.upper))
        gap = total - self.bound
        # What is lost by smoothing: at the smooth optimum this is the whole gap.
        by_smoothing = losses.exact - losses.multipliers - float(np.vdot(losses.gradient, A))
        if gap <= _SMALL_PART * by_smoothing:
            self.width *= _SHRINK
        if total <= _NEGLIGIBLE * self.first:  # F >= 0: the groups can be separated completely
            gap = 0.0
        return np.nan if self.capped else max(gap, 0.0)

    def _bound(self, losses: Losses, upper: float) -> float:
        """Lower bound of the optimum from the multipliers, for an upper bound of the optimum."""
        if self.gamma:
            return losses.multipliers - identity_conjugate(-losses.gradient, self.gamma)
        return losses.multipliers + upper * self._lowest(losses.gradient)

    def _lowest(self, gradient: Matrix) -> float:
        """Smallest eigenvalue of C^-1/2 G C^-1/2, at most 0; minus infinity where C is singular."""
        if self.root is None:
            return -np.inf
        return min(float(np.linalg.eigvalsh(self.root.T @ gradient @ self.root)[0]), 0.0)


def whitening(C: Matrix) -> tuple[Matrix, Matrix]:
    """Return R with R'CR = I, bounded in directions where C is nearly singular, and B with R B R' = I."""
    values, vectors = np.linalg.eigh(C)
    if values[-1] <= TINY:  # target neighbours are equal rows
        return np.eye(len(C)), np.eye(len(C))
    values = np.maximum(values, _SINGULAR * values[-1])
    return np.asarray(vectors / np.sqrt(values)), np.diag(values)


def row_space(Z: Matrix) -> Matrix:
    """Orthonormal basis (n_dims, rank) of the directions in which rows differ."""
    _, size, V = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
    return np.ascontiguousarray(V[size > _SINGULAR * max(float(size[0]), TINY)].T)


def learn_large_margin(
    labelled: Labelled,
    k: int,
    mu: float,
    gamma: float = 0.0,
    *,
    tol: float = 1e-3,
    max_iter: int = 500,
    progress: Progress | None = None,
) -> Learned:
    """Accelerated projected gradient with active sets, from the identity.

    It runs in the directions in which labelled rows differ; in all others A stays the identity. Without a regulariser
    coordinates are those in which the target neighbours have unit covariance: A >= 0 does not depend on coordinates,
    and the problem is better conditioned there.
    """
    targets = target_neighbours(labelled, k)
    eye, V = np.eye(labelled.Z.shape[1]), row_space(labelled.Z)
    if not len(targets) or not V.shape[1]:
        return Learned(eye)
    Z = labelled.Z @ V
    difference = Z[targets[:, 0]] - Z[targets[:, 1]]
    R = start = np.eye(V.shape[1])
    if not gamma:
        R, start = whitening(
            difference.T @ (labelled.row_weight[targets[:, 0], None] * difference) / len(targets)
        )
    problem = LargeMarginProblem(labelled._replace(Z=Z @ R), targets, mu, tol, gamma)
    monitor = Monitor(tol, max_iter, progress)
    problem.search(start)
    solution = minimize_composite(problem, start, monitor)
    A = V @ R @ solution.A @ R.T @ V.T + (eye - V @ V.T)
    relative = solution.gap / max(abs(solution.objective), TINY)
    return Learned(square_root(A), monitor.trace, relative, monitor.n_iter, solution.converged)


class LargeMarginTransform(MetricTransform):
    """Large margin nearest neighbours (LMNN).

    Parameters
    ----------
    n_neighbors : int
        Target neighbours of each row.
    mu : float
        Weight of the impostors against the pull of the target neighbours, from 0 to 1.
    gamma : float, "cv" or sequence of floats
        Strength of the regulariser ||A - I||^2. 0 is LMNN as published, whose optimum overfits where rows are few. A
        sequence: the candidate with which hidden known groups are found again best; "cv" has 0 and four from 1e-3 to
        1.
    tol : float
        Relative duality gap at which to stop. Without a regulariser, and with more features than the target
        neighbours span, the problem may have no finite solution; it then stops at `max_iter`.
    max_iter : int
        Most gradient steps.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first; see `WithinClassTransform`.
    random_state : int, RandomState instance or None
        Seed of the randomised SVD and of the hidden groups.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_dims)
    A_ : ndarray of shape (n_dims, n_dims)
    gamma_ : float
    cv_results_ : dict
        After a choice: "gamma", "mean_score" and "scores" (by fold).
    duality_gap_ : float
        Certified relative duality gap; absent if there were too many impostors to count them all.
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

    _strength, _candidates, _steps = "gamma", (0.0, 1e-3, 1e-2, 1e-1, 1.0), "steps"
    _while_choosing: ClassVar[dict[str, Any]] = {"tol": 1e-2, "max_iter": 100}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "mu": [Interval(Real, 0, 1, closed="both")],
        "gamma": [StrOptions({"cv"}), Interval(Real, 0, None, closed="left"), "array-like"],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        mu: float = 0.5,
        gamma: Any = 0.1,
        tol: float = 1e-3,
        max_iter: int = 500,
        n_dims: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mu = mu
        self.gamma = gamma
        self.tol = tol
        self.max_iter = max_iter
        self.n_dims = n_dims
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        return learn_large_margin(
            labelled,
            self.n_neighbors,
            self.mu,
            strength,
            tol=self.tol,
            max_iter=self.max_iter,
            progress=progress,
        )
