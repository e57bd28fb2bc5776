"""Smoothed cost of discriminative clustering and its gradient, for any scores that are linear in the rows.

With memberships y_j(z) = softmax_j(w_j'z + b_j), smoothed counts n_ji = sum of y_j(z) over rows of class i, and
N_j = sum_i n_ji, the cost (4.12) of the thesis, with the sign of a loss and the factor of entropy (5.1), is

    f = -sum_ij log Gamma(n0 + n_ji) + (1 + e) sum_j log Gamma(N0 + N_j),     N0 = n0 n_classes.

With several auxiliary variables it is the sum over them. The gradient of a score of a row with class i is

    df/ds_j = -y_j (v_j - sum_l y_l v_l),     v_j = digamma(n0 + n_ji) - (1 + e) digamma(N0 + N_j),

so that a gradient takes two products, S = Z W' and Q'Z, and two passes over (n_rows, n_clusters); no array has a
column for each class and row. Regularisers that model p(x) add terms to v, or to the gradient of the scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import digamma, gammaln, logsumexp

from arbora.arrays import Ints, Matrix
from arbora.core.chunks import CHUNK_ROWS, split
from arbora.core.products import csr_matmul
from arbora.expand.discriminative.labels import Labels
from arbora.kernels.discriminative import count_cells, score_gradient, softmax_counts

# --- Standardised rows z = (x - mean) / scale, dense or sparse, in memory or in a file ----------------------
#
# Dense rows that fit in memory are standardised once. Sparse rows, and rows of a memory-mapped file, are never
# copied: z is linear in x, so products with z are products with x and a correction.


_MAX_COPIED = 1 << 30  # bytes of rows that are standardised in a copy


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix; unlike SciPy's function it leaves the static type of X as it is."""
    return bool(sp.issparse(X))


class Scaling(NamedTuple):
    """Mean and inverse scale of the features; the inverse scale of a constant feature is 0."""

    mean: Matrix
    inverse: Matrix


class Rows(NamedTuple):
    """Rows of features. Without `scaling` they are standardised already."""

    X: Any  # ndarray or CSR array
    scaling: Scaling | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def dtype(self) -> Any:
        """Precision of the scores."""
        return self.X.dtype

    def blocks(self) -> list[slice]:
        """Blocks of rows; sparse rows are one block, because a slice would copy them."""
        if is_sparse(self.X):
            return [slice(0, self.n_rows)]
        return split(self.n_rows, size=CHUNK_ROWS, even=False)

    def scores(self, block: slice, W: Matrix, b: Matrix) -> Matrix:
        """Z W' + b of a block, C-contiguous."""
        if self.scaling is not None:
            b = b - W @ (self.scaling.mean * self.scaling.inverse)
            W = W * self.scaling.inverse
        W = W.astype(self.dtype, copy=False)
        if is_sparse(self.X):
            S = csr_matmul(self.X, np.ascontiguousarray(W.T))
        else:
            S = np.asarray(self.X[block]) @ W.T
        S += b.astype(self.dtype, copy=False)
        return S

    def back(self, block: slice, Q: Matrix) -> Matrix:
        """Q' Z of a block, (n_columns, n_features), in float64."""
        X = self.X if is_sparse(self.X) else np.asarray(self.X[block])
        product = np.asarray((X.T @ Q).T if is_sparse(X) else Q.T @ X, np.float64)
        if self.scaling is None:
            return product
        total = column_sums(Q)
        corrected: Matrix = (product - total[:, None] * self.scaling.mean) * self.scaling.inverse
        return corrected

    def dense(self, rows: Any) -> Matrix:
        """Return some standardised rows as a dense array of float64."""
        X = self.X[rows]
        X = np.asarray(X.toarray() if is_sparse(X) else X, np.float64)
        if self.scaling is not None:
            X = (X - self.scaling.mean) * self.scaling.inverse
        return np.ascontiguousarray(X)

    def take(self, rows: Ints) -> Rows:
        """Return some rows, with the same scaling."""
        return self._replace(X=self.X[rows])

    def sample(self, rows: Ints) -> Rows:
        """Return some rows for the runs before the last one; standardised rows get single precision, for speed."""
        taken = self.take(rows)
        return taken if self.scaling is not None else Rows(taken.X.astype(np.float32, copy=False))

    def squares(self) -> float:
        """Sum of the squares of all entries of Z."""
        if self.scaling is None:
            return float(sum(np.sum(np.asarray(self.X[block], np.float64) ** 2) for block in self.blocks()))
        first, second = moments(self.X)
        n, (mean, inverse) = self.n_rows, self.scaling
        return float((inverse**2 * (second - 2 * mean * first + n * mean**2)).sum())


def column_sums(Q: Matrix) -> Matrix:
    """Add up the rows in float64, by products of blocks: a quarter of the time of `Q.sum(axis=0)`."""
    ones = np.ones(min(len(Q), CHUNK_ROWS), Q.dtype)
    sums = np.zeros(Q.shape[1])
    for block in split(len(Q), size=CHUNK_ROWS, even=False):
        part = Q[block]
        sums += ones[: len(part)] @ part
    return sums


def moments(X: Any) -> tuple[Matrix, Matrix]:
    """Add up the features and their squares, in float64."""
    if is_sparse(X):
        X = X.astype(np.float64)
        return np.asarray(X.sum(axis=0)).ravel(), np.asarray(X.multiply(X).sum(axis=0)).ravel()
    first, second = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for block in split(X.shape[0], size=CHUNK_ROWS, even=False):
        part = np.asarray(X[block], np.float64)
        first += part.sum(axis=0)
        second += np.einsum("ij,ij->j", part, part)
    return first, second


def fit_scaling(X: Any, scale: str | None) -> Scaling:
    """Mean and deviation of the features; `scale=None` centres the features only.

    Examples
    --------
    >>> fit_scaling(np.array([[1.0, 5.0], [3.0, 5.0]]), "standard")
    Scaling(mean=array([2., 5.]), inverse=array([1., 0.]))
    """
    n_rows = X.shape[0]
    first, second = moments(X)
    mean = first / n_rows
    if is_sparse(X):
        variance = np.maximum(second / n_rows - mean**2, 0.0)
    else:  # two passes: the difference of large moments would lose all digits of a small variance
        squares = np.zeros(X.shape[1])
        for block in split(n_rows, size=CHUNK_ROWS, even=False):
            part = np.asarray(X[block], np.float64) - mean
            squares += np.einsum("ij,ij->j", part, part)
        variance = squares / n_rows
    rounding = (10 * np.finfo(X.dtype).eps * np.abs(mean)) ** 2
    constant = variance <= rounding
    inverse = 1 / np.sqrt(np.where(constant, 1.0, variance)) if scale == "standard" else np.ones(len(mean))
    return Scaling(mean, np.where(constant, 0.0, inverse))


def standardised(X: Any, scaling: Scaling) -> Rows:
    """Rows of a feature matrix: a standardised copy; a view with its scaling if X is sparse, large or in a file."""
    if is_sparse(X):
        return Rows(sp.csr_array(X), scaling)
    if isinstance(X, np.memmap) or X.nbytes > _MAX_COPIED:
        return Rows(X, scaling)
    Z = (np.asarray(X, np.float64) - scaling.mean) * scaling.inverse
    return Rows(np.ascontiguousarray(Z, X.dtype))


# --- Smoothed cost of discriminative clustering and its gradient, for any scores that are linear in the rows ---


MAX_KEPT = 1 << 29  # bytes of memberships that are kept; above, they are computed twice


class Problem(NamedTuple):
    """What is fitted: rows, labels, number of clusters, prior counts n0, regulariser and its strength."""

    rows: Rows
    labels: Labels
    n_clusters: int
    prior: float
    regularizer: str | None
    strength: float = 0.0  # in the units of the equations

    @property
    def entropy(self) -> float:
        """Weight of the entropy regulariser; 0 without it."""
        return self.strength if self.regularizer == "entropy" else 0.0

    def take(self, rows: Ints) -> Problem:
        """Return the problem of some rows."""
        return self._replace(rows=self.rows.take(rows), labels=self.labels.take(rows))


class Memberships(NamedTuple):
    """Sums over all rows after the first pass."""

    counts: Matrix  # n_classes x n_clusters, smoothed
    tops: float  # sum of the largest scores
    norms: float  # sum of log sum_j exp(s_j)
    sums: Matrix | None  # n_clusters x n_features: Y'Z
    sizes: Matrix | None  # n_clusters: sums of memberships of all rows, labelled or not


class Extra(NamedTuple):
    """What a regulariser adds: its value, linear scores added to v, a constant at the largest membership."""

    value: float = 0.0
    W: Matrix | None = None
    b: Matrix | None = None
    hard: float = 0.0


Regularizer = Callable[[Memberships, Matrix, Matrix], Extra]


class Gradient(NamedTuple):
    """Cost and its gradient in the weights and offsets of the scores."""

    value: float
    W: Matrix
    b: Matrix


def totals(counts: Matrix, offsets: Ints) -> Matrix:
    """N_j of each variable, (n_variables, n_clusters)."""
    return np.asarray(np.add.reduceat(counts, offsets[:-1], axis=0))


def cost_of_counts(counts: Matrix, labels: Labels, prior: float, entropy: float = 0.0) -> float:
    """Cost f of hard or smoothed counts (n_classes, n_clusters)."""
    n0 = prior * np.diff(labels.offsets)[:, None]
    mass = gammaln(totals(counts, labels.offsets) + n0).sum()
    return float((1 + entropy) * mass - gammaln(counts + prior).sum())


def evaluate(
    problem: Problem,
    W: Matrix,
    b: Matrix,
    regularizer: Regularizer | None = None,
    direct: Callable[[slice, Matrix], Matrix] | None = None,
    with_moments: bool = False,
) -> Gradient:
    """Cost and gradient of scores z -> W z + b, with W (n_clusters, n_features) and b (n_clusters,).

    `regularizer` gives an `Extra` for the sums of the first pass; `with_moments` says that it reads the sums of
    memberships and of weighted rows. `direct` gives, for a block and its scores, an array that
    is added to -df/ds of the block.
    """
    rows, codes, n_clusters = problem.rows, problem.labels.codes, problem.n_clusters
    blocks = rows.blocks()
    keep = rows.n_rows * n_clusters * rows.dtype.itemsize <= MAX_KEPT
    counts = np.zeros((problem.labels.n_classes, n_clusters))
    sums, sizes = np.zeros(W.shape), np.zeros(n_clusters)
    tops, norms, memberships, added = 0.0, 0.0, [], []
    for block in blocks:
        S = rows.scores(block, W, b)
        if direct is not None:
            added.append(direct(block, S))
        top, norm = softmax_counts(S, codes[block], counts)
        tops, norms = tops + top, norms + norm
        if with_moments:
            sums += rows.back(block, S)
            sizes += column_sums(S)
        if keep:
            memberships.append(S)
    value = cost_of_counts(counts, problem.labels, problem.prior, problem.entropy)
    extra = Extra()
    if regularizer is not None:
        extra = regularizer(
            Memberships(counts, tops, norms, sums if with_moments else None, sizes if with_moments else None),
            W,
            b,
        )
    L = slopes(counts, problem)
    gradient, offset, scratch = np.zeros(W.shape), np.zeros(n_clusters), np.zeros_like(counts)
    nothing = np.empty((0, n_clusters), rows.dtype)
    for number, block in enumerate(blocks):
        if keep:
            Q = memberships[number]
        else:
            Q = rows.scores(block, W, b)
            softmax_counts(Q, codes[block], scratch)
        added_scores = nothing if extra.W is None or extra.b is None else rows.scores(block, extra.W, extra.b)
        score_gradient(Q, codes[block], L, added_scores, extra.hard)
        if direct is not None:
            Q += added[number]
        gradient -= rows.back(block, Q)
        offset -= column_sums(Q)
    return Gradient(value + extra.value, gradient, offset)


def slopes(counts: Matrix, problem: Problem) -> Matrix:
    """Compute the v of the gradient, (n_classes, n_clusters)."""
    labels, n0 = problem.labels, problem.prior
    of_sizes = digamma(totals(counts, labels.offsets) + n0 * np.diff(labels.offsets)[:, None])
    return np.asarray(digamma(counts + n0) - (1 + problem.entropy) * of_sizes[labels.variable])


def cells_of(rows: Rows, W: Matrix, b: Matrix, labels: Labels | None = None) -> tuple[Ints, Matrix]:
    """Cell of each row, and counts (n_classes, n_clusters) of the labels in them."""
    cells = np.empty(rows.n_rows, np.int64)
    codes = np.empty((rows.n_rows, 0), np.int32) if labels is None else labels.codes
    counts = np.zeros((0 if labels is None else labels.n_classes, len(W)))
    for block in rows.blocks():
        count_cells(rows.scores(block, W, b), codes[block], counts, cells[block])
    return cells, counts


# --- Two kinds of cells as functions of a flat vector of parameters: linear cells and cells of prototypes ---
#
# Linear cells are argmax_j (w_j'z + b_j). Cells of prototypes m_j are Voronoi cells, and their memberships
# y_j ~ exp(-||z - m_j||^2 / width) are those of linear cells with
#
#     w_j = 2 m_j / width,     b_j = -||m_j||^2 / width,
#
# since ||z||^2 cancels; width is the sigma^2 of the thesis. The chain rule gives df/dm_j = (2 / width) (df/dw_j -
# df/db_j m_j): the factor 2 is missing in (4.13) and (A.2). Memberships do not change when one vector is added to
# all w_j and one number to all b_j. So for n_clusters <= n_features + 1 and clusters in general position every
# partition into linear cells is one of prototypes (`prototypes_of`).
#
# Regularisers, with strength a, and sums over all rows, labelled or not:
#
# =========  =================================================  ===================================================
#            prototypes                                         linear cells, with means mu and shares rho under y
# =========  =================================================  ===================================================
# l2         a/2 sum_j ||m_j||^2                                a/2 sum_j ||w_j||^2
# entropy    (5.1), in the cost                                 the same
# vq         a sum_z min_j ||z - m_j||^2                 (5.6)  a sum_zj y_j ||z - mu_j||^2
# mog        -sum_z log sum_j rho_j exp(-a ||z - m_j||^2)       the same with mu_j for m_j
#                                                        (5.7)
# =========  =================================================  ===================================================
#
# For linear cells mu and rho are functions of the memberships. In "vq" mu minimises the term, and adds nothing to
# its gradient. For prototypes the rho of "mog" are parameters.


_TINY = 1e-12


class LinearParts(NamedTuple):
    """Distortion, or mixture of Gaussians, of linear cells."""

    rows: Rows
    strength: float
    mixture: bool
    squares: float  # sum of ||z||^2

    def __call__(self, memberships: Memberships, W: Matrix, b: Matrix) -> Extra:
        """Value, and what it adds to v."""
        assert memberships.sums is not None
        assert memberships.sizes is not None
        sizes = np.maximum(memberships.sizes, _TINY)
        means = memberships.sums / sizes[:, None]
        slope = 2 * self.strength * means
        offset = -self.strength * (means**2).sum(axis=1)
        if not self.mixture:
            value = self.strength * (self.squares - float((memberships.sums * means).sum()))
            return Extra(value, slope, offset)
        log_rho = np.log(sizes / self.rows.n_rows)
        norms, weighted, parts = 0.0, np.zeros(W.shape), np.zeros(len(W))
        for block in self.rows.blocks():
            R = self.rows.scores(block, slope, offset + log_rho)
            norms += softmax_counts(R, np.empty((len(R), 0), np.int32), np.zeros((0, len(W))))[1]
            weighted += self.rows.back(block, R)
            parts += R.sum(axis=0, dtype=np.float64)
        # d/dmu_j = -2 a sum_z r_j (z - mu_j), and dmu_j/dy_j(z) = (z - mu_j) / N_j
        pull = 2 * self.strength * (weighted - parts[:, None] * means) / sizes[:, None]
        return Extra(self.strength * self.squares - norms, pull, parts / sizes - (pull * means).sum(axis=1))


def linear_gradient(theta: Matrix, problem: Problem, squares: float) -> tuple[float, Matrix]:
    """Objective and gradient of flat parameters [W, b], (n_clusters, n_features + 1)."""
    W, b = unpack_linear(theta, problem)
    parts: Any = None
    if problem.regularizer in ("vq", "mog"):
        parts = LinearParts(problem.rows, problem.strength, problem.regularizer == "mog", squares)
    result = evaluate(problem, W, b, parts, with_moments=parts is not None)
    value, gradient = result.value, result.W
    if problem.regularizer == "l2":
        value += problem.strength / 2 * float((W**2).sum())
        gradient = gradient + problem.strength * W
    return value, np.column_stack([gradient, result.b]).ravel()


def unpack_linear(theta: Matrix, problem: Problem) -> tuple[Matrix, Matrix]:
    """W and b of flat parameters."""
    both = theta.reshape(problem.n_clusters, problem.rows.n_features + 1)
    return both[:, :-1], both[:, -1]


def prototype_scores(M: Matrix, width: float) -> tuple[Matrix, Matrix]:
    """W and b of prototypes: W = 2 M / width, b = -||m_j||^2 / width."""
    return 2 * M / width, -(M**2).sum(axis=1) / width


def prototypes_of(W: Matrix, b: Matrix, width: float) -> Matrix:
    """Prototypes whose memberships are those of linear cells, where n_clusters <= n_features + 1.

    w_j = 2 m_j / width + u and b_j = -||m_j||^2 / width + v for some u and v. Differences of the second equation are
    linear in u; the smallest of its solutions is taken around the mean of w.
    """
    if len(W) > W.shape[1] + 1:
        raise ValueError(
            f"{len(W)} linear cells of {W.shape[1]} features need not be cells of prototypes: at most "
            f"{W.shape[1] + 1} always are."
        )
    centred = W - W.mean(axis=0)
    # ||m_j||^2 = width^2/4 ||w_j - u||^2 = width (v - b_j)
    right = (centred[1:] ** 2).sum(axis=1) - (centred[0] ** 2).sum() + 4 / width * (b[1:] - b[0])
    u = np.linalg.lstsq(2 * (centred[1:] - centred[0]), right, rcond=None)[0] if len(W) > 1 else 0.0
    return np.asarray(width / 2 * (centred - u))


class _Hard(NamedTuple):
    """The distortion (5.6) of prototypes."""

    strength: float
    width: float
    squares: float

    def __call__(self, memberships: Memberships, W: Matrix, b: Matrix) -> Extra:
        value = self.strength * (self.squares - self.width * memberships.tops)
        return Extra(value, hard=self.strength * self.width)


class Mixture:
    """The mixture (5.7) of prototypes: its value and responsibilities, block by block."""

    def __init__(self, beta: Matrix, strength: float, width: float) -> None:
        self.log_rho = beta - logsumexp(beta)
        self.factor, self.value, self.parts = strength * width, 0.0, np.zeros(len(beta))

    def __call__(self, block: slice, S: Matrix) -> Matrix:
        """Add the value of a block; return -d/ds of its rows."""
        scores = self.factor * S + self.log_rho.astype(S.dtype)
        norm = logsumexp(scores, axis=1, keepdims=True)
        self.value -= float(norm.sum(dtype=np.float64))
        R = np.exp(scores - norm)
        self.parts += R.sum(axis=0, dtype=np.float64)
        return np.asarray(self.factor * R, S.dtype)


def prototype_gradient(theta: Matrix, problem: Problem, squares: float, width: float) -> tuple[float, Matrix]:
    """Objective and gradient of flat parameters: prototypes, then for "mog" the logits of the weights (B.2)."""
    n_clusters, n_features = problem.n_clusters, problem.rows.n_features
    M = theta[: n_clusters * n_features].reshape(n_clusters, n_features)
    W, b = prototype_scores(M, width)
    if problem.regularizer == "mog":
        mixture = Mixture(theta[M.size :], problem.strength, width)
        result = evaluate(problem, W, b, direct=mixture)
        value = result.value + mixture.value + problem.strength * squares
        of_beta = problem.rows.n_rows * np.exp(mixture.log_rho) - mixture.parts  # (B.5)
        return value, np.concatenate([_chain(result, M, width).ravel(), of_beta])
    hard: Any = _Hard(problem.strength, width, squares) if problem.regularizer == "vq" else None
    result = evaluate(problem, W, b, hard)
    value, gradient = result.value, _chain(result, M, width)
    if problem.regularizer == "l2":
        value += problem.strength / 2 * float((M**2).sum())
        gradient = gradient + problem.strength * M
    return value, gradient.ravel()


def _chain(result: Gradient, M: Matrix, width: float) -> Matrix:
    return np.asarray(2 / width * (result.W - result.b[:, None] * M))
