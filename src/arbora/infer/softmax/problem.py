"""Multinomial logistic regression: the problem that all softmax solvers solve, and its certificate.

With rows x_i of class y_i and cost c_i (C times the weight of the row), scores s_ik = w_k.x_i and W = Z F,

    min_Z  P(Z) = 1/2 ||Z||^2 + sum_i c_i (log sum_k exp(s_ik) - s_iy).

F holds the shares of the classes in the parts Z of a label structure, so that 1/2 ||Z||^2, minimised over all Z with
the same W, is the recursive penalty 1/2 tr(W (F'F)^-1 W'). Without a structure F is the identity, and this is the
problem of scikit-learn's `LogisticRegression` without a bias. A bias is the weight of a constant feature, the last
one, and regularised like the other weights.

The dual is a problem in a distribution p_i over the classes for every row,

    max_p  D(p) = -1/2 ||U(p) F'||^2 + sum_i c_i H(p_i),        U(p) = sum_i c_i x_i (e_y - p_i)',

where H is the entropy. For *any* Z, the distributions softmax(s_i) are a point of the dual at which the losses touch
their conjugates. The duality gap there is known exactly and is never negative: half the square of the gradient,

    P(Z) - D(softmax(s)) = 1/2 ||Z - U F'||^2 = 1/2 ||gradient||^2.

The solvers: `dual` (coordinate ascent in the dual), `newton`, `lc` and `dm` (bounds that split over the classes, run
by `shards`), `admm` and `lbfgs`; `solve` chooses one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import Matrix
from arbora.core.chunks import split
from arbora.core.engine import Engine, SerialEngine
from arbora.core.monitor import Monitor
from arbora.core.products import csr_matmul
from arbora.infer.likelihood import Likelihood
from arbora.infer.newton_cg import Expansion, Map

_ROWS_PER_CHUNK = 1024  # dense rows of a product


class SoftmaxProblem(NamedTuple):
    """Rows with one class each, and the shares of the classes in common parts."""

    # CSR or dense, (n_samples, n_weights), in the working precision; the last column is the constant feature of the
    # bias, if there is a bias.
    X: Any
    labels: NDArray[np.integer[Any]]
    cost: Matrix  # (n_samples,), positive
    n_classes: int
    factor: sp.csr_array | None = None  # (n_parts, n_classes): shares of the classes; None for flat classes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""
        dtype: np.dtype[Any] = np.dtype(self.X.dtype)
        return dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of Z: weights, parts."""
        return int(self.X.shape[1]), self.n_classes if self.factor is None else int(self.factor.shape[0])

    @property
    def indicator(self) -> sp.csr_array:
        """Classes of the rows, as a matrix of zeros and ones."""
        n = len(self.labels)
        ones = np.ones(n, self.dtype)
        return sp.csr_array((ones, self.labels, np.arange(n + 1)), shape=(n, self.n_classes))


class SoftmaxSolution(NamedTuple):
    """Parts, objective, absolute duality gap, and norm of the gradient (NaN if the solver did not compute it).

    With `of_classes`, `Z` holds the weights of the classes, Z F, instead of the parts.
    """

    Z: Any
    objective: float
    gap: float
    gradient_norm: float
    converged: bool
    of_classes: bool = False


def squares(Z: Matrix) -> float:
    """Sum of squares in double precision."""
    return float(np.einsum("jk,jk->", Z, Z, dtype=np.float64))


def scores(X: Any, W: Matrix, engine: Engine | None = None) -> Matrix:
    """Product of sparse or dense rows with the weights. It does not depend on the number of threads."""
    if sp.issparse(X):
        rows: Any = X
        return csr_matmul(rows, np.ascontiguousarray(W), engine)
    parts = (engine or SerialEngine()).map(lambda rows: X[rows] @ W, split(X.shape[0], size=_ROWS_PER_CHUNK))
    return np.vstack(parts) if parts else np.empty((0, W.shape[1]), W.dtype)


def class_weights(factor: sp.csr_array | None, Z: Matrix) -> Matrix:
    """Weights (n_weights, n_classes) of the classes: Z F, or Z itself without a factor."""
    if factor is None:
        return Z
    return np.ascontiguousarray((sp.csr_array(factor.T).astype(Z.dtype) @ Z.T).T)


class Point(NamedTuple):
    """Parts x = Z, their objective, and the probabilities of all classes for all rows."""

    x: Matrix
    objective: float
    P: Matrix


class Objective:
    """P(Z) with its derivatives."""

    def __init__(self, problem: SoftmaxProblem, engine: Engine | None = None) -> None:
        self.problem, self.engine = problem, engine if engine is not None else SerialEngine()
        self.rows = Likelihood(problem.X, problem.indicator, problem.cost, True, engine)
        self._factor: Any = None if problem.factor is None else problem.factor.astype(problem.dtype)

    def weights(self, Z: Matrix) -> Matrix:
        """Weights (n_weights, n_classes) of the classes."""
        return class_weights(self._factor, Z)

    def share(self, G: Matrix) -> Matrix:
        """Convert derivatives by the weights of the classes to derivatives by the parts."""
        return G if self._factor is None else np.ascontiguousarray((self._factor @ G.T).T)

    def gather(self, R: Matrix) -> Matrix:
        """X' R, as a derivative by the parts."""
        X = self.problem.X
        if sp.issparse(X):
            return self.share(csr_matmul(self.rows.transposed, R, self.engine))
        chunks = split(len(R), size=_ROWS_PER_CHUNK)
        return self.share(np.asarray(sum(self.engine.map(lambda rows: X[rows].T @ R[rows], chunks))))

    def evaluate(self, Z: Matrix, near: Point | None = None) -> Point:
        """Objective and probabilities."""
        loss, P = self.rows.evaluate(self.weights(Z))
        return Point(Z, loss + squares(Z) / 2, P)

    def gradient(self, point: Point) -> Matrix:
        """First derivative by the parts."""
        G = self.share(self.rows.gradient(point.P))
        G += point.x
        return G

    def expand(self, point: Point) -> Expansion:
        """Gradient and Hessian; the preconditioner is the diagonal of the Hessian."""

        def preconditioner() -> Map:
            diagonal = self.diagonal(point)
            return lambda R: R / diagonal

        return Expansion(self.gradient(point), partial(self.hessian_product, point), preconditioner)

    def hessian_product(self, point: Point, E: Matrix) -> Matrix:
        """Product of the Hessian with a change E of the parts."""
        G = self.share(self.rows.curve(point.P, self.weights(E)))
        G += E
        return G

    def diagonal(self, point: Point) -> Matrix:
        """Diagonal of the Hessian without the terms that couple the classes of a row."""
        D = self.rows.diagonal(point.P)
        if self._factor is not None:
            D = np.ascontiguousarray((self._factor**2 @ D.T).T)
        D += 1
        return D


def record_gradient(monitor: Monitor, value: float, gradient: Matrix, **extra: Any) -> bool:
    """Record an iteration by its gradient, which certifies the duality gap ||gradient||^2 / 2."""
    square = squares(gradient)
    return monitor.record(value, gap=square / 2, gradient_norm=float(np.sqrt(square)), **extra)


def solution_of(monitor: Monitor, Z: Any, of_classes: bool = False) -> SoftmaxSolution:
    """Return the solution with the certificate of the last recorded iteration."""
    norm = monitor.trace.last.get("gradient_norm", np.nan)
    return SoftmaxSolution(Z, monitor.objective, monitor.gap, norm, monitor.converged, of_classes)
