"""Likelihoods of softmax and independent logistic classes, with two derivatives, over chunks of rows.

With scores s_ic = w_c.x_i, weights r_i of the rows and indicators y_ic the negative log-likelihood is

    softmax:   sum_ic r_i y_ic (log sum_d exp(s_id) - s_ic),        p_ic = exp(s_ic) / sum_d exp(s_id)
    logistic:  sum_ic r_i (log(1 + exp(s_ic)) - y_ic s_ic),         p_ic = 1 / (1 + exp(-s_ic)).

In both the gradient by a score is t_i p_ic - r_i y_ic, where t_i is r_i (logistic), times the number of labels of the
row (softmax), and the curvature of a row is t_i (diag(p) - p p') or t_i diag(p (1 - p)).

Rows are divided into chunks that depend on the sizes alone, and sums are made in their order: the result does not
depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from arbora.arrays import Matrix
from arbora.core.chunks import split
from arbora.core.engine import Engine, SerialEngine
from arbora.core.products import csr_matmul
from arbora.kernels.products import csr_rows_times_dense

_PAIRS = 2**17  # pairs of rows and classes in a chunk; their scores fit into the cache
_MIN_ROWS, _MAX_ROWS = 16, 1024


class Chunk:
    """Labels and weights of consecutive rows, and the losses of their scores."""

    def __init__(self, rows: slice, Y: sp.csr_array, weight: Matrix, softmax: bool) -> None:
        self.rows, self.softmax = rows, softmax
        self.label_row = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        self.label = Y.indices
        self.label_weight = (Y.data * weight[self.label_row]).astype(weight.dtype, copy=False)
        labels = np.bincount(self.label_row, weights=self.label_weight, minlength=Y.shape[0])
        self.total = (labels if softmax else weight)[:, None].astype(weight.dtype, copy=False)

    def losses(self, S: Matrix) -> float:
        """Return the negative log-likelihood; replace the scores by probabilities, in place."""
        if self.softmax:
            np.subtract(S, S.max(axis=1, keepdims=True), out=S)  # differences keep their digits
            at_labels = S[self.label_row, self.label]
            size = np.exp(S, out=S).sum(axis=1, keepdims=True)
            S /= size
            losses = np.log(size.ravel())[self.label_row] - at_labels
            return float(np.sum(self.label_weight * losses, dtype=np.float64))
        at_labels = S[self.label_row, self.label]
        e = np.exp(-np.abs(S))
        norm = (np.maximum(S, 0) + np.log1p(e)).sum(axis=1)
        S[:] = np.where(S > 0, 1, e) / (1 + e)
        total, weight = self.total.ravel().astype(np.float64), self.label_weight.astype(np.float64)
        return float(total @ norm.astype(np.float64) - weight @ at_labels.astype(np.float64))

    def slopes(self, P: Matrix) -> Matrix:
        """Gradient by the scores."""
        R = self.total * P
        np.subtract.at(R, (self.label_row, self.label), self.label_weight)
        return R

    def curve(self, P: Matrix, T: Matrix) -> None:
        """Multiply a change T of the scores with the curvature, in place."""
        if self.softmax:
            T -= np.einsum("ic,ic->i", P, T)[:, None]
            T *= P
        else:
            T *= P * (1 - P)
        T *= self.total

    def diagonal(self, P: Matrix) -> Matrix:
        """Diagonal of the curvature."""
        return np.asarray(self.total * (P * (1 - P)))


class Likelihood:
    """Samples with their labels, and the negative log-likelihood of weights W (n_weights, n_classes).

    X has the constant feature of the bias; Y is (n_samples, n_classes). Without an engine everything runs in the
    calling thread.

    >>> import numpy as np, scipy.sparse as sp
    >>> likelihood = Likelihood(np.ones((2, 1)), sp.csr_array(np.eye(2)), np.ones(2), softmax=True)
    >>> loss, P = likelihood.evaluate(np.log([[1.0, 3.0]]))
    >>> P[0], likelihood.gradient(P)
    (array([0.25, 0.75]), array([[-0.5,  0.5]]))
    """

    def __init__(
        self, X: Any, Y: sp.csr_array, weight: Matrix, softmax: bool, engine: Engine | None = None
    ) -> None:
        self.X, self.shape, self.sparse = X, Y.shape, sp.issparse(X)
        self.engine = engine if engine is not None else SerialEngine()
        self.transposed: Any = X.T.tocsr() if self.sparse else None
        weight = np.asarray(weight, X.dtype)
        n_rows = max(_MIN_ROWS, min(_MAX_ROWS, _PAIRS // max(Y.shape[1], 1)))
        self.chunks = [Chunk(rows, Y[rows], weight[rows], softmax) for rows in split(Y.shape[0], size=n_rows)]

    def _score(self, W: Matrix, rows: slice, out: Matrix) -> None:
        """Write X W into some rows of `out`."""
        if self.sparse:
            csr_rows_times_dense(self.X.indptr, self.X.indices, self.X.data, W, rows.start, rows.stop, out)
        else:
            np.matmul(self.X[rows], W, out=out[rows])

    def _gather(self, R: Matrix, power: int = 1) -> Matrix:
        """X' R, or the product with the squares of X."""
        if self.sparse:
            return csr_matmul(self.transposed**power, R, self.engine)
        return np.asarray(
            sum(self.engine.map(lambda c: (self.X[c.rows] ** power).T @ R[c.rows], self.chunks))
        )

    def _each(self, function: Callable[[Chunk, Matrix], Matrix], P: Matrix) -> Matrix:
        R = np.empty_like(P)

        def fill(chunk: Chunk) -> None:
            R[chunk.rows] = function(chunk, P[chunk.rows])

        self.engine.map(fill, self.chunks)
        return R

    def evaluate(self, W: Matrix) -> tuple[float, Matrix]:
        """Value, and the probabilities P (n_samples, n_classes) that all derivatives need."""
        P = np.empty(self.shape, W.dtype)

        def losses(chunk: Chunk) -> float:
            self._score(W, chunk.rows, P)
            return chunk.losses(P[chunk.rows])

        return sum(self.engine.map(losses, self.chunks)), P

    def gradient(self, P: Matrix) -> Matrix:
        """First derivative by the weights."""
        return self._gather(self._each(Chunk.slopes, P))

    def curve(self, P: Matrix, E: Matrix) -> Matrix:
        """Product of the second derivative with a change E of the weights."""
        T = np.empty_like(P)

        def fill(chunk: Chunk) -> None:
            self._score(E, chunk.rows, T)
            chunk.curve(P[chunk.rows], T[chunk.rows])

        self.engine.map(fill, self.chunks)
        return self._gather(T)

    def curvature(self, P: Matrix) -> Matrix:
        """Second derivatives t_i p_ic (1 - p_ic) by the scores."""
        return self._each(Chunk.diagonal, P)

    def diagonal(self, P: Matrix) -> Matrix:
        """Diagonal (n_weights, n_classes) of the second derivative: sum_i x_ij^2 t_i p_ic (1 - p_ic)."""
        return self._gather(self.curvature(P), power=2)
