"""The penalty of weights that classes share, as a sum over the classes.

A label structure ties the classes together, 1/2 tr(W K^-1 W') with K = F'F. Parts of F that one class has for itself
make up the diagonal D of K, the others are shared, with shares S: K = D + S'S, and

    1/2 tr(W K^-1 W') = min_U  sum_k ||w_k - v_k||^2 / (2 D_k) + 1/2 ||U||^2,        V = U S.

Given the weights U of the shared parts (in a tree, differences of inner nodes from their parents) classes are on
their own again; given the classes, U solves A U' = S D^-1 W', A = I + S D^-1 S'. Where a class has nothing for itself
(in a label graph), D is the smallest eigenvalue of K, and S a root of what is left.

Classes are cut into shards. A shared part is *local* to a shard that has all its classes; others *cross*. A is zero
between local parts of different shards, so that each shard eliminates its own. With B = S D^-1 W', its sum over the
classes of the shard, l for local and c for crossing parts,

    U_l = A_ll^-1 (B_l - A_lc U_c),
    (I + sum over shards of A_cc - A_cl A_ll^-1 A_lc) U_c = sum over shards of B_c - A_cl A_ll^-1 B_l,

and only rows of crossing parts travel: in a tree, those of the nodes above the first and the last class of a shard.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import splu

from arbora.infer.multinomial import Matrix, SoftmaxProblem, squares
from arbora.infer.tree_likelihood import slices

_AT_ONCE = 1 << 23  # numbers in double precision of a solve
_SPARSE = 0.1  # share of entries below which a system is solved as a sparse one


class Shared(NamedTuple):
    """Variance that each class has for itself, and shares of the classes in the parts that they share."""

    own: NDArray[np.float64]
    factor: sp.csr_array  # n_shared x n_classes


def split_factor(factor: Any) -> Shared | None:
    """Tell apart what a class has for itself and what it shares; None if some class has nothing for itself.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> shared = split_factor(sp.csr_array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]))
    >>> shared.own, shared.factor.toarray()
    (array([1., 4., 9.]), array([[1., 1., 0.]]))
    """
    factor = sp.csr_array(factor, dtype=np.float64, copy=True)
    factor.eliminate_zeros()
    alone = np.diff(factor.indptr) == 1
    own = np.asarray((factor[alone] ** 2).sum(axis=0)).ravel()
    if not (own > 0).all():
        return None
    return Shared(own, sp.csr_array(factor[np.diff(factor.indptr) > 1]))


def _split_dense(factor: Any) -> Shared:
    """Give every class the smallest eigenvalue of the covariance for itself."""
    K = (factor.T @ factor).toarray()
    values, vectors = np.linalg.eigh(K)
    shares = np.sqrt(np.maximum(values - values[0], 0))[:, None] * vectors.T
    return Shared(np.full(len(K), values[0]), sp.csr_array(shares[shares.any(axis=1)]))


class _System:
    """A symmetric system of equations, factored once."""

    def __init__(self, A: Any) -> None:
        n = A.shape[0]
        self.sparse = A.nnz < _SPARSE * n * n
        self.factor: Any = None
        if n:
            self.factor = splu(sp.csc_array(A)) if self.sparse else cho_factor(A.toarray())

    def solve(self, B: Matrix) -> Matrix:
        """Solve for many right-hand sides, the columns of B, some at a time; in the precision of B."""
        if not len(B):
            return B.copy()
        U = np.empty_like(B)
        for some in slices(B.shape[1], max(1, _AT_ONCE // len(B))):
            part = np.ascontiguousarray(B[:, some], np.float64)
            U[:, some] = self.factor.solve(part) if self.sparse else cho_solve(self.factor, part)
        return U


def _precision(shared: Shared) -> sp.csr_array:
    """S D^-1 S'."""
    return sp.csr_array((shared.factor / shared.own) @ shared.factor.T)


class Penalty:
    """1/2 tr(W K^-1 W'); flat classes share nothing, and K is the identity.

    Parameters
    ----------
    problem : SoftmaxProblem

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> factor = sp.csr_array([[1.0, 1.0], [1.0, 0.0], [0.0, 2.0]])  # K = [[2, 1], [1, 5]]
    >>> problem = SoftmaxProblem(np.ones((1, 1)), np.array([0]), np.ones(1), 2, factor)
    >>> penalty = Penalty(problem)
    >>> bool(np.isclose(penalty.total, np.linalg.inv([[2, 1], [1, 5]]).sum()))
    True
    """

    def __init__(self, problem: SoftmaxProblem) -> None:
        self.factor, self.free_bias = problem.factor, problem.free_bias
        self.shared: Shared | None = None
        n_classes, dtype = problem.n_classes, problem.dtype
        self.total = float(n_classes)  # of the entries of K^-1
        self.centre = np.full(n_classes, 1 / n_classes, dtype)  # what all classes have in common is W centre
        if problem.factor is not None:
            self.shared = split_factor(problem.factor) or _split_dense(problem.factor)
            own, shares = self.shared
            self._system = _System(sp.eye_array(shares.shape[0]) + _precision(self.shared))
            ones = self._system.solve((shares @ (1 / own))[:, None])  # U of weights that are all 1
            sums = (1 - (shares.T @ ones).ravel()) / own
            self.total = float(sums.sum())
            self.centre = (sums / self.total).astype(dtype)
            self.lift = ones.astype(dtype)

    def regularised(self, W: Matrix) -> Matrix:
        """Rows of W, one a feature, that the penalty sees."""
        return W[: len(W) - self.free_bias]

    def weights(self, columns: slice) -> Any:
        """Weight of the penalty of some classes, given the shared parts."""
        return 1.0 if self.shared is None else 1 / self.shared.own[columns]

    def value(self, W: Matrix, columns: slice) -> float:
        """Penalty of the weights of some classes by themselves: U = 0."""
        W = self.regularised(W)
        if self.shared is None:
            return squares(W) / 2
        return float(np.einsum("jk,jk->k", W, W, dtype=np.float64) @ (1 / self.shared.own[columns])) / 2

    def of_common(self, common: Matrix) -> float:
        """Part of the penalty that goes with the weights `common`, taken off all classes."""
        return self.total * squares(self.regularised(common[:, None])) / 2

    def parts(self, W: Matrix) -> Matrix:
        """Z of least norm with Z F = W."""
        if self.shared is None or self.factor is None:
            return W
        own, shares = self.shared
        Z = np.empty((len(W), self.factor.shape[0]), W.dtype)
        for some in slices(len(W), max(1, _AT_ONCE // W.shape[1])):
            scaled = W[some].T / own[:, None]
            U = self._system.solve(np.asarray(shares @ scaled))
            Z[some] = (self.factor @ (scaled - (shares.T @ U) / own[:, None])).T
        return Z

    def __getstate__(self) -> dict[str, Any]:
        """Leave what cannot be sent behind: only the driver puts the parts together."""
        return {name: value for name, value in self.__dict__.items() if name != "_system"}


class Tied(NamedTuple):
    """What a shard tells of shared parts after a round."""

    of_crossing: Matrix  # its share in the right-hand side of the crossing parts, one row each
    gradients: Matrix  # and in the gradient by them
    penalty: float  # what U of its local parts takes off the penalty
    square: float  # of the gradient by its local parts


class ShardParts:
    """Shared parts as a shard sees them, the local ones first.

    Parameters
    ----------
    penalty : Penalty
        With shared parts.
    classes : slice
        Those of the shard.
    """

    def __init__(self, penalty: Penalty, classes: slice) -> None:
        assert penalty.shared is not None
        self.penalty, (own, shares) = penalty, penalty.shared
        here = sp.csr_array(shares[:, classes])
        n_here, n_all = np.diff(here.indptr), np.diff(shares.indptr)
        local, self.crossing = (
            np.flatnonzero((n_here > 0) & (n_here == n_all)),
            np.flatnonzero((n_here > 0) & (n_here < n_all)),
        )
        ids, self.n_local = np.concatenate([local, self.crossing]), len(local)
        seen = Shared(own[classes], sp.csr_array(here[ids]))
        self.shares, self.lift = sp.csc_array(seen.factor), penalty.lift[ids]
        A, n = _precision(seen), self.n_local
        self._system = _System(sp.eye_array(n) + A[:n, :n])
        self._across = A[:n, n:].toarray()
        self.pull = self._system.solve(self._across)  # what the crossing parts take off the local ones
        self.schur = A[n:, n:].toarray() - self._across.T @ self.pull
        self.by_class = sp.csr_array((seen.factor / seen.own).T)

    def start(self, n_weights: int, dtype: Any) -> Matrix:
        """Local parts of zero weights, before the crossing ones are taken off."""
        return np.zeros((self.n_local, n_weights), dtype)

    def weights(self, local: Matrix, crossing: Matrix | None, common: Matrix | None) -> Matrix:
        """U of all parts that the shard sees, without what all classes have in common."""
        if crossing is None:
            crossing = np.zeros((len(self.crossing), local.shape[1]), local.dtype)
        U = np.vstack([local - self.pull.astype(local.dtype) @ crossing, crossing])
        return U if common is None else U - self.lift * common

    def pulls(self, U: Matrix, columns: slice) -> Matrix:
        """V of a block of classes, counted from the first of the shard: where the penalty pulls them."""
        shares = self.shares[:, columns]
        rows = np.unique(shares.indices)
        block: Any = sp.csr_array(sp.csr_array(shares)[rows].T).astype(U.dtype)
        return np.ascontiguousarray((block @ U[rows]).T)

    def add(self, B: Matrix, H: Matrix, columns: slice, W: Matrix, gradient: Matrix) -> None:
        """Add what a block of classes has in the right-hand side and in the gradient of the parts."""
        shares = sp.csr_array(self.shares[:, columns])
        rows = np.flatnonzero(np.diff(shares.indptr))
        scaled: Any = sp.csr_array(sp.csc_array(self.by_class[columns]).T)[rows]
        B[rows] += scaled.astype(W.dtype) @ W.T
        H[rows] += shares[rows].astype(W.dtype) @ gradient.T

    def tell(self, B: Matrix, H: Matrix) -> tuple[Matrix, Tied]:
        """Solve for the local parts, and tell what that leaves of the crossing ones."""
        n = self.n_local
        local = self._system.solve(B[:n])
        rest = B[n:] - self._across.T.astype(B.dtype) @ local
        last = B.shape[1] - self.penalty.free_bias
        taken = float(np.einsum("aj,aj->", B[:n, :last], local[:, :last], dtype=np.float64))
        return local, Tied(rest, H[n:], -taken / 2, squares(H[:n]))


class CrossingParts:
    """Parts that several shards see, put together by the driver.

    Parameters
    ----------
    penalty : Penalty
        With shared parts.
    pieces : list of slices
        Classes of each shard.
    """

    def __init__(self, penalty: Penalty, pieces: list[slice]) -> None:
        self.penalty = penalty
        seen = [ShardParts(penalty, classes) for classes in pieces]
        self.ids = np.unique(np.concatenate([one.crossing for one in seen]))
        self.rows = [np.searchsorted(self.ids, one.crossing) for one in seen]
        A = np.eye(len(self.ids))
        for rows, one in zip(self.rows, seen, strict=True):
            A[np.ix_(rows, rows)] += one.schur
        self._system = _System(sp.csr_array(A))

    def solve(self, told: list[Tied]) -> tuple[list[Matrix], float, float]:
        """Weights of the crossing parts for each shard; penalty and squared gradient of all shared parts."""
        n_weights, dtype = told[0].of_crossing.shape[1], told[0].of_crossing.dtype
        R, H = np.zeros((2, len(self.ids), n_weights), dtype)
        for rows, one in zip(self.rows, told, strict=True):
            R[rows] += one.of_crossing
            H[rows] += one.gradients
        U, last = self._system.solve(R), n_weights - self.penalty.free_bias
        taken = float(np.einsum("aj,aj->", R[:, :last], U[:, :last], dtype=np.float64))
        penalty = sum(one.penalty for one in told) - taken / 2
        return [U[rows] for rows in self.rows], penalty, sum(one.square for one in told) + squares(H)
