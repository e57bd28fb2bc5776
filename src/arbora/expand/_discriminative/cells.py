"""Two kinds of cells as functions of a flat vector of parameters: linear cells and cells of prototypes.

Linear cells are argmax_j (w_j'z + b_j). Cells of prototypes m_j are Voronoi cells, and their memberships
y_j ~ exp(-||z - m_j||^2 / width) are those of linear cells with

    w_j = 2 m_j / width,     b_j = -||m_j||^2 / width,

since ||z||^2 cancels; width is the sigma^2 of the thesis. The chain rule gives df/dm_j = (2 / width) (df/dw_j -
df/db_j m_j): the factor 2 is missing in (4.13) and (A.2). Memberships do not change when one vector is added to all
w_j and one number to all b_j. So for n_clusters <= n_features + 1 and clusters in general position every partition
into linear cells is one of prototypes (`prototypes_of`).

Regularisers, with strength a, and sums over all rows, labelled or not:

=========  =================================================  ===================================================
           prototypes                                         linear cells, with means mu and shares rho under y
=========  =================================================  ===================================================
l2         a/2 sum_j ||m_j||^2                                a/2 sum_j ||w_j||^2
entropy    (5.1), in the cost                                 the same
vq         a sum_z min_j ||z - m_j||^2                 (5.6)  a sum_zj y_j ||z - mu_j||^2
mog        -sum_z log sum_j rho_j exp(-a ||z - m_j||^2)       the same with mu_j for m_j
                                                       (5.7)
=========  =================================================  ===================================================

For linear cells mu and rho are functions of the memberships. In "vq" mu minimises the term, and adds nothing to its
gradient. For prototypes the rho of "mog" are parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from arbora.expand._discriminative.cost import Extra, Gradient, Memberships, Problem, evaluate
from arbora.expand._discriminative.rows import Rows
from arbora.kernels.discriminative import softmax_counts

Matrix = NDArray[Any]
_TINY = 1e-12


class LinearParts(NamedTuple):
    """Distortion, or mixture of Gaussians, of linear cells."""

    rows: Rows
    strength: float
    mixture: bool
    squares: float  # sum of ||z||^2

    def __call__(self, found: Memberships, W: Matrix, b: Matrix) -> Extra:
        """Value, and what it adds to v."""
        assert found.sums is not None
        assert found.sizes is not None
        sizes = np.maximum(found.sizes, _TINY)
        means = found.sums / sizes[:, None]
        slope = 2 * self.strength * means
        offset = -self.strength * (means**2).sum(axis=1)
        if not self.mixture:
            value = self.strength * (self.squares - float((found.sums * means).sum()))
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
    found = evaluate(problem, W, b, parts, with_moments=parts is not None)
    value, gradient = found.value, found.W
    if problem.regularizer == "l2":
        value += problem.strength / 2 * float((W**2).sum())
        gradient = gradient + problem.strength * W
    return value, np.column_stack([gradient, found.b]).ravel()


def unpack_linear(theta: Matrix, problem: Problem) -> tuple[Matrix, Matrix]:
    """W and b of flat parameters."""
    both = theta.reshape(problem.n_clusters, problem.rows.n_features + 1)
    return both[:, :-1], both[:, -1]


def prototype_scores(M: Matrix, width: float) -> tuple[Matrix, Matrix]:
    """W and b of prototypes.

    Examples
    --------
    >>> prototype_scores(np.array([[1.0, 2.0]]), 2.0)
    (array([[1., 2.]]), array([-2.5]))
    """
    return 2 * M / width, -(M**2).sum(axis=1) / width


def prototypes_of(W: Matrix, b: Matrix, width: float) -> Matrix:
    """Prototypes whose memberships are those of linear cells, where n_clusters <= n_features + 1.

    w_j = 2 m_j / width + u and b_j = -||m_j||^2 / width + v for some u and v. Differences of the second equation are
    linear in u; the smallest of its solutions is taken around the mean of w.

    Examples
    --------
    >>> M = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> W, b = prototype_scores(M, 0.5)
    >>> again = prototype_scores(prototypes_of(W + 3.0, b - 1.0, 0.5), 0.5)
    >>> np.allclose(again[0][1] - again[0][0], W[1] - W[0]), np.allclose(again[1][1] - again[1][0], b[1] - b[0])
    (True, True)
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

    def __call__(self, found: Memberships, W: Matrix, b: Matrix) -> Extra:
        value = self.strength * (self.squares - self.width * found.tops)
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
        found = evaluate(problem, W, b, direct=mixture)
        value = found.value + mixture.value + problem.strength * squares
        of_beta = problem.rows.n_rows * np.exp(mixture.log_rho) - mixture.parts  # (B.5)
        return value, np.concatenate([_chain(found, M, width).ravel(), of_beta])
    hard: Any = _Hard(problem.strength, width, squares) if problem.regularizer == "vq" else None
    found = evaluate(problem, W, b, hard)
    value, gradient = found.value, _chain(found, M, width)
    if problem.regularizer == "l2":
        value += problem.strength / 2 * float((M**2).sum())
        gradient = gradient + problem.strength * M
    return value, gradient.ravel()


def _chain(found: Gradient, M: Matrix, width: float) -> Matrix:
    return np.asarray(2 / width * (found.W - found.b[:, None] * M))
