"""Smoothed cost of discriminative clustering and its gradient, for any scores that are linear in the rows.

With memberships y_j(z) = softmax_j(w_j'z + b_j), smoothed counts n_ji = sum of y_j(z) over rows of class i, and
N_j = sum_i n_ji, the cost (4.12) of the thesis, with the sign of a loss and the factor of entropy (5.1), is

    f = -sum_ij log Gamma(n0 + n_ji) + (1 + e) sum_j log Gamma(N0 + N_j),     N0 = n0 n_classes.

With several auxiliary variables it is the sum over them. The gradient of a score of a row with class i is

    df/ds_j = -y_j (v_j - sum_l y_l v_l),     v_j = digamma(n0 + n_ji) - (1 + e) digamma(N0 + N_j),

so that a gradient takes two products, S = Z W' and Q'Z, and two passes over (n_rows, n_clusters); no array has a
column for each class and row. Regularisers that model p(x) add terms to v, or to the gradient of the scores
(`regularizers`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from arbora.expand._discriminative.rows import Rows, column_sums
from arbora.expand.discriminative.labels import Labels
from arbora.kernels.discriminative import count_cells, score_gradient, softmax_counts

Matrix = NDArray[Any]
MOST_KEPT = 1 << 29  # bytes of memberships that are kept; above, they are computed twice


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
        """The e of the cost."""
        return self.strength if self.regularizer == "entropy" else 0.0

    def take(self, rows: NDArray[np.int64]) -> Problem:
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


def totals(counts: Matrix, offsets: NDArray[np.int64]) -> Matrix:
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
    """Cost and gradient of scores z -> W z + b.

    Parameters
    ----------
    problem : Problem
    W : ndarray of shape (n_clusters, n_features)
    b : ndarray of shape (n_clusters,)
    regularizer : callable, optional
        Gives an `Extra` for the sums of the first pass.
    direct : callable, optional
        Gives, for a block and its scores, an array that is added to -df/ds of the block.
    with_moments : bool
        Whether the regulariser needs the sums of memberships and of weighted rows.
    """
    rows, codes, n_clusters = problem.rows, problem.labels.codes, problem.n_clusters
    blocks = rows.blocks()
    keep = rows.n_rows * n_clusters * rows.dtype.itemsize <= MOST_KEPT
    counts = np.zeros((problem.labels.n_classes, n_clusters))
    sums, sizes = np.zeros(W.shape), np.zeros(n_clusters)
    tops, norms, kept, added = 0.0, 0.0, [], []
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
            kept.append(S)
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
            Q = kept[number]
        else:
            Q = rows.scores(block, W, b)
            softmax_counts(Q, codes[block], scratch)
        more = nothing if extra.W is None or extra.b is None else rows.scores(block, extra.W, extra.b)
        score_gradient(Q, codes[block], L, more, extra.hard)
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


def cells_of(
    rows: Rows, W: Matrix, b: Matrix, labels: Labels | None = None
) -> tuple[NDArray[np.int64], Matrix]:
    """Cell of each row, and counts (n_classes, n_clusters) of the labels in them."""
    cells = np.empty(rows.n_rows, np.int64)
    codes = np.empty((rows.n_rows, 0), np.int32) if labels is None else labels.codes
    counts = np.zeros((0 if labels is None else labels.n_classes, len(W)))
    for block in rows.blocks():
        count_cells(rows.scores(block, W, b), codes[block], counts, cells[block])
    return cells, counts
