"""The penalty of weights that classes share, as a sum over the classes.

A label structure couples the classes, 1/2 tr(W K^-1 W') with K = F'F. The parts of F that only one class has make up
the diagonal D of K, the others are shared, with shares S: K = D + S'S, and

    1/2 tr(W K^-1 W') = min_U  sum_k ||w_k - v_k||^2 / (2 D_k) + 1/2 ||U||^2,        V = U S.

Given the weights U of the shared parts (in a tree, differences of inner nodes from their parents) the classes are
independent; given the classes, U solves A U' = S D^-1 W', A = I + S D^-1 S'. If some class has no part of its own (in
a label graph), D is the smallest eigenvalue of K, and S a root of the rest.

Classes are divided into shards. A shared part is *local* to a shard that has all its classes; other parts *cross*. A
is zero between local parts of different shards, so that each shard eliminates its own. With B = S D^-1 W', its sum
over the classes of the shard, l for local and c for crossing parts,

    U_l = A_ll^-1 (B_l - A_lc U_c),
    (I + sum over shards of A_cc - A_cl A_ll^-1 A_lc) U_c = sum over shards of B_c - A_cl A_ll^-1 B_l,

and only rows of crossing parts are communicated: in a tree, those of the nodes above the first and the last class of
a shard.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import splu

from arbora.arrays import Array, Matrix
from arbora.core.chunks import split
from arbora.infer.softmax.problem import SoftmaxProblem, squares

_NUMBERS_PER_CHUNK = 1 << 23  # numbers in double precision of a solve
_MAX_DENSITY = 0.1  # share of entries below which a system is solved as a sparse one


class Shared(NamedTuple):
    """Own variance of each class, and shares of the classes in the shared parts."""

    variance: Array
    factor: Any  # n_shared x n_classes; CSR, or an ndarray if all classes share all parts


def split_factor(factor: Any) -> Shared | None:
    """Separate own and shared parts; None if some class has no part of its own.

    >>> import scipy.sparse as sp
    >>> shared = split_factor(sp.csr_array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]))
    >>> shared.variance, shared.factor.toarray()
    (array([1., 4., 9.]), array([[1., 1., 0.]]))
    """
    factor = sp.csr_array(factor, dtype=np.float64, copy=True)
    factor.eliminate_zeros()
    n_classes = np.diff(factor.indptr)
    variances = np.asarray((factor[n_classes == 1] ** 2).sum(axis=0)).ravel()
    return Shared(variances, factor[n_classes > 1]) if (variances > 0).all() else None


def _split_dense(factor: Any) -> Shared:
    """Make the smallest eigenvalue of the covariance the own variance of every class."""
    values, vectors = np.linalg.eigh((factor.T @ factor).toarray())
    left = np.sqrt(np.maximum(values[1:] - values[0], 0))
    return Shared(np.full(len(values), values[0]), left[:, None] * vectors.T[1:])


def _precision(shared: Shared) -> Any:
    """S D^-1 S', sparse or dense as S is."""
    product: Any = (shared.factor / shared.variance) @ shared.factor.T
    return product.tocsr() if hasattr(product, "tocsr") else product


def _dense(A: Any) -> Any:
    return A.toarray() if hasattr(A, "toarray") else A


class _System:
    """I + A, symmetric and positive definite, factored once."""

    def __init__(self, A: Any) -> None:
        n = A.shape[0]
        self.sparse = hasattr(A, "nnz") and A.nnz < _MAX_DENSITY * n * n
        self.factor: Any = None
        if n and self.sparse:
            symmetric: Any = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
            self.factor = splu(sp.csc_array(A + sp.eye_array(n)), diag_pivot_thresh=0.0, **symmetric)
        elif n:
            self.factor = cho_factor(_dense(A) + np.eye(n))

    def solve(self, B: Matrix) -> Matrix:
        """Solve for the columns of B, some at a time, in the precision of B."""
        U = np.empty_like(B)
        for some in split(B.shape[1], size=max(1, _NUMBERS_PER_CHUNK // max(1, len(B)))) if len(B) else []:
            part = np.ascontiguousarray(B[:, some], np.float64)
            U[:, some] = self.factor.solve(part) if self.sparse else cho_solve(self.factor, part)
        return U


class Penalty:
    """1/2 tr(W K^-1 W'); K is the identity for flat classes."""

    def __init__(self, problem: SoftmaxProblem) -> None:
        self.shared = None
        n_classes, dtype = problem.n_classes, problem.dtype
        self.total = float(n_classes)  # of the entries of K^-1
        self.centre = np.full(n_classes, 1 / n_classes, dtype)  # the common weights are W centre
        if problem.factor is not None:
            self.shared = split_factor(problem.factor) or _split_dense(problem.factor)
            variances, shares = self.shared
            system = _System(_precision(self.shared))
            ones = system.solve((shares @ (1 / variances))[:, None])  # U for weights of 1
            sums = (1 - (shares.T @ ones).ravel()) / variances
            self.total = float(sums.sum())
            self.centre = (sums / self.total).astype(dtype)
            self.lift = ones.astype(dtype)

    def strength(self, columns: slice) -> Any:
        """Weight of the penalty of some classes, given the shared parts."""
        return 1.0 if self.shared is None else 1 / self.shared.variance[columns]

    def value(self, W: Matrix, columns: slice) -> float:
        """Penalty of the weights of some classes for U = 0."""
        if self.shared is None:
            return squares(W) / 2
        return float(np.einsum("jk,jk->k", W, W, dtype=np.float64) @ (1 / self.shared.variance[columns])) / 2

    def of_common(self, common: Matrix) -> float:
        """Decrease of the penalty when the weights `common` are subtracted from all classes."""
        return self.total * squares(common[:, None]) / 2


class Tied(NamedTuple):
    """Contribution of a shard to shared parts after a round."""

    of_crossing: Matrix  # to the right-hand side of the crossing parts, one row each
    gradients: Matrix  # to the gradient by them
    penalty: float  # change of the penalty by U of its local parts
    square: float  # of the gradient by its local parts


class ShardParts:
    """Shared parts of the classes of one shard, the local ones first. The penalty has shared parts."""

    def __init__(self, penalty: Penalty, classes: slice) -> None:
        assert penalty.shared is not None
        variances, shares = penalty.shared
        here = shares[:, classes]
        n_here, n_all = np.asarray((here != 0).sum(axis=1)), np.asarray((shares != 0).sum(axis=1))
        local = np.flatnonzero((n_here > 0) & (n_here == n_all))
        self.crossing_ids = np.flatnonzero((n_here > 0) & (n_here < n_all))
        ids, self.n_local = np.concatenate([local, self.crossing_ids]), len(local)
        seen = Shared(variances[classes], here[ids])
        self.lift, self.n_seen = penalty.lift[ids], len(ids)
        A, n = _precision(seen), self.n_local
        self._system, across, crossing = _System(A[:n, :n]), A[:n, n:], A[n:, n:]
        self._across = _dense(across)
        self.pull = self._system.solve(self._across)  # effect of the crossing parts on the local ones
        self.schur = _dense(crossing) - self._across.T @ self.pull
        # Shares of the classes by column, and the same over D for the right-hand side.
        self.shares, scaled = seen.factor, seen.factor / seen.variance
        if sp.issparse(here):
            self.shares, scaled = sp.csc_array(self.shares), sp.csc_array(scaled)
        self._scaled = scaled

    def start(self, n_weights: int, dtype: Any) -> Matrix:
        """Local parts for zero weights, without the effect of the crossing ones."""
        return np.zeros((self.n_local, n_weights), dtype)

    def seen_weights(self, local: Matrix, crossing: Matrix | None, common: Matrix | None) -> Matrix:
        """U of all parts of the shard, without the common weights."""
        if crossing is None:
            crossing = np.zeros((len(self.crossing_ids), local.shape[1]), local.dtype)
        U = np.vstack([local - self.pull.astype(local.dtype) @ crossing, crossing])
        return U if common is None else U - self.lift * common

    def _block(self, shares: Any, columns: slice, dtype: Any) -> tuple[Any, Any]:
        """Parts in which a block of classes has shares, and these shares."""
        block: Any = shares[:, columns].astype(dtype)
        if not hasattr(block, "tocsr"):
            return slice(None), block
        rows = np.unique(block.indices)
        return rows, block.tocsr()[rows]

    def pulls(self, U: Matrix, columns: slice) -> Matrix:
        """V of a block of classes, counted from the first class of the shard."""
        rows, block = self._block(self.shares, columns, U.dtype)
        return np.ascontiguousarray((block.T @ U[rows]).T)

    def add(self, B: Matrix, H: Matrix, columns: slice, W: Matrix, gradient: Matrix) -> None:
        """Add the contributions of a block of classes to the right-hand side and to the gradient of the parts."""
        for total, shares, of_classes in ((B, self._scaled, W), (H, self.shares, gradient)):
            rows, block = self._block(shares, columns, W.dtype)
            total[rows] += block @ of_classes.T

    def eliminate(self, B: Matrix, H: Matrix) -> tuple[Matrix, Tied]:
        """Solve for the local parts; return them and the contribution to the crossing ones."""
        n = self.n_local
        local = self._system.solve(B[:n])
        rest = B[n:] - self._across.T.astype(B.dtype) @ local
        gain = float(np.einsum("aj,aj->", B[:n], local, dtype=np.float64))
        return local, Tied(rest, H[n:], -gain / 2, squares(H[:n]))


class CrossingParts:
    """Parts that several shards use, solved by the driver. The penalty has shared parts."""

    def __init__(self, penalty: Penalty, shard_classes: list[slice]) -> None:
        seen = [ShardParts(penalty, classes) for classes in shard_classes] if len(shard_classes) > 1 else []
        ids = [parts.crossing_ids for parts in seen] or [np.empty(0, np.int64)]
        self.ids = np.unique(np.concatenate(ids))
        self.rows = [np.searchsorted(self.ids, crossing) for crossing in ids]
        A = np.zeros((len(self.ids), len(self.ids)))
        for rows, parts in zip(self.rows, seen, strict=False):  # no part crosses if there is one shard
            A[np.ix_(rows, rows)] += parts.schur
        self._system = _System(A)

    def solve(self, tied: list[Tied]) -> tuple[list[Matrix], float, float]:
        """Weights of the crossing parts for each shard; penalty and squared gradient of all shared parts."""
        n_weights, dtype = tied[0].of_crossing.shape[1], tied[0].of_crossing.dtype
        R, H = np.zeros((2, len(self.ids), n_weights), dtype)
        for rows, of_shard in zip(self.rows, tied, strict=True):
            R[rows] += of_shard.of_crossing
            H[rows] += of_shard.gradients
        U = self._system.solve(R)
        gain = float(np.einsum("aj,aj->", R, U, dtype=np.float64))
        penalty = sum(of_shard.penalty for of_shard in tied) - gain / 2
        square = sum(of_shard.square for of_shard in tied) + squares(H)
        return [U[rows] for rows in self.rows], penalty, square
