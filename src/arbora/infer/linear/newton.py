"""Truncated Newton method for classes that share parts: logistic loss, dense rows, few features.

The problem is that of `arbora.infer.linear.coupled`. With the covariance of the classes factored as K = F'F = R'R (R
from a QR of the factor F, so that K is never formed) and weights W = offset + Z R, Z of shape (n_features + 1,
n_classes), it is

    min_Z  P(Z) = 1/2 ||Z||^2 + sum_il c_il log(1 + exp(-m_il)),        m_il = y_il w_l.x_i.

The slopes a_il = c_il sigmoid(-m_il) are a point of the dual, U = X'(a * y), and the gradient is Z - U R'. Since a
touches the conjugate of the loss, the duality gap at this point is known exactly and never negative:

    P(Z) - D(a) = 1/2 ||Z - U R'||^2.

A step of `arbora.infer.newton_cg` solves (I + curvature) E = -gradient; a product with the curvature,
X'(h * (X E R)) R', takes two products with X. If the curvatures h_il = a_il sigmoid(m_il) of a class were all equal
to their mean s_l, this would be the Kronecker product of X'X and R diag(s) R'. In their eigenbases, one for the
features, computed once, and one for the classes, the system is then diagonal: this is the preconditioner.

Rows are divided into chunks that depend on their number alone, and sums are made in their order, each on one thread
of the BLAS: the result does not depend on the number of threads.

Coordinate descent is slow where features are correlated, as dense features often are. Hinge losses are left to it:
most of their multipliers are at a bound, and the squared hinge has no second derivative at its kink.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from arbora.arrays import Array, Matrix
from arbora.core.checkpoint import Checkpoint
from arbora.core.chunks import require_memory
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.infer.linear.coupled import Certificate, Costs, Weights
from arbora.infer.linear.layout import Layout, lay_out
from arbora.infer.linear.rows import LinearRows
from arbora.infer.newton_cg import Expansion, Map, newton_cg

MAX_FEATURES, MAX_CLASSES = 1000, 1000
MAX_NUMBERS = 2**26  # entries of X plus pairs of rows and classes
_CHUNK = 1024  # rows whose scores fit into the cache


class Point(NamedTuple):
    """Objective, gradient and curvatures h_il at x = Z."""

    x: Array
    objective: float
    gradient: Array
    curvature: Array


class NewtonSolution(NamedTuple):
    """Multipliers summed over the rows, shared parts, certificate, and history."""

    multipliers: Array  # (n_features + 1) x n_classes: U, with W = offset + U F'F
    shared: Matrix  # n_shared x (n_features + 1), bias last
    certificate: Certificate
    trace: Trace
    converged: bool


def _losses(m: Array, c: Array) -> tuple[float, Array, Array]:
    """Sum of the losses, slopes and curvatures at the margins m, all times the costs c."""
    e = np.exp(-np.abs(m))
    near = 1.0 / (1.0 + e)
    far = e * near
    slope = c * np.where(m > 0, far, near)
    return float(np.sum(c * (np.maximum(-m, 0.0) + np.log1p(e)))), slope, c * (near * far)


def suits_newton(rows: LinearRows, n_classes: int, loss: str) -> bool:
    """Whether Newton's method is faster: logistic loss, dense rows, few features, pairs that fit into memory.

    The decision depends on sizes only, not on free memory, so that a fit is the same on any machine.
    """
    few = rows.n_features <= min(MAX_FEATURES, rows.n_samples) and n_classes <= MAX_CLASSES
    n_numbers = rows.n_samples * (rows.n_features + n_classes)
    return loss == "logistic" and rows.dense and few and n_numbers <= MAX_NUMBERS


class CoupledNewton:
    """Solver of a coupled problem with the logistic loss and dense rows, with the interface of `CoupledSolver`."""

    def __init__(
        self,
        rows: LinearRows,
        costs: Costs,
        factor: sp.csc_array,
        engine: Engine,
        offset: Weights | None = None,
    ) -> None:
        if not rows.dense:
            raise ValueError("the rows are sparse: Newton's method needs dense rows, use CoupledSolver.")
        self.rows, self.costs, self.engine, self.offset = rows, costs, engine, offset
        self.factor = sp.csr_array(factor)
        self.layout: Layout = lay_out(factor)
        self.classes = range(factor.shape[1])
        n = rows.n_samples
        self.chunks = [slice(first, min(first + _CHUNK, n)) for first in range(0, n, _CHUNK)]

    def weights(self, k: int, solution: NewtonSolution) -> Matrix:
        """Weights (n_features + 1, n_block) of block k, bias last."""
        block = self.layout.blocks[k]
        W = (self.factor.T @ (self.factor[:, block.start : block.stop])).T @ solution.multipliers.T
        return np.asarray(W.T + self._offset(block), self.rows.dtype)

    def parts(self, k: int, solution: NewtonSolution) -> Matrix:
        """Parts (n_owned, n_features + 1) that block k owns, bias last."""
        block = self.layout.blocks[k]
        parts = self.layout.shares[k] @ solution.multipliers[:, block.start : block.stop].T
        return np.asarray(parts, self.rows.dtype)

    def _offset(self, block: range) -> Array | float:
        return 0.0 if self.offset is None else np.asarray(self.offset(block), np.float64)

    def _prepare(self) -> None:
        """Make the dense arrays of a fit; `solve` deletes them at its end."""
        rows, n_classes = self.rows, len(self.classes)
        n_samples, width = rows.n_samples, rows.n_features + 1
        require_memory(
            8 * (n_samples * (width + 3 * n_classes) + 12 * width * n_classes + 4 * n_classes**2),
            f"Training {n_classes} classes together on {n_samples} dense rows with {width - 1} features",
            "Use fewer rows, or fewer features.",
        )
        self.X = np.empty((n_samples, width))
        self.X[:, :-1] = rows.data.reshape(n_samples, -1)
        self.X[:, -1] = rows.bias
        cost = np.asarray(self.costs(self.classes, np.arange(n_samples)), np.float64)
        self.sign, self.cost = np.where(cost < 0, -1.0, 1.0), np.abs(cost)
        self.R = np.asarray(np.linalg.qr(self.factor.toarray(), mode="r"), np.float64)
        self.spectrum = np.linalg.eigh(self._sum(lambda chunk: (self.X[chunk].T @ self.X[chunk],))[0])

    def _sum(self, function: Callable[[slice], tuple[Any, ...]]) -> list[Any]:
        """Sum the results of a function over the chunks of rows, in their order."""
        return [sum(values) for values in zip(*self.engine.map(function, self.chunks), strict=True)]

    def evaluate(self, Z: Array, near: Point | None = None) -> Point:
        """Objective, gradient and curvatures, in one pass over the rows."""
        W = Z @ self.R + self._offset(self.classes)
        curvature = np.empty_like(self.cost)

        def evaluate(chunk: slice) -> tuple[float, Array]:
            X, y = self.X[chunk], self.sign[chunk]
            loss, slope, curvature[chunk] = _losses(y * (X @ W), self.cost[chunk])
            return loss, X.T @ (slope * y)

        loss, U = self._sum(evaluate)
        return Point(Z, loss + float(np.vdot(Z, Z)) / 2, Z - U @ self.R.T, curvature)

    def expand(self, point: Point) -> Expansion:
        """Gradient and Hessian."""
        product = partial(self.hessian_product, point.curvature)
        return Expansion(point.gradient, product, partial(self.preconditioner, point.curvature))

    def hessian_product(self, curvature: Array, E: Array) -> Array:
        """Product of the Hessian with a change E of Z."""
        D = E @ self.R

        def product(chunk: slice) -> tuple[Array]:
            X = self.X[chunk]
            return (X.T @ (curvature[chunk] * (X @ D)),)

        return np.asarray(E + self._sum(product)[0] @ self.R.T)

    def preconditioner(self, curvature: Array) -> Map:
        """Inverse of the Hessian with the mean curvature of each class in place of its curvatures."""
        spread, A = self.spectrum
        steepness, B = np.linalg.eigh((self.R * curvature.mean(axis=0)) @ self.R.T)
        shrink = 1.0 / (1.0 + np.maximum(spread, 0.0)[:, None] * np.maximum(steepness, 0.0))
        return lambda E: A @ (shrink * (A.T @ E @ B)) @ B.T

    def solve(
        self,
        *,
        tol: float = 1e-2,
        max_iter: int = 200,
        seed: int = 0,
        multipliers: Array | None = None,
        checkpoint: Checkpoint | None = None,
        progress: Progress | None = None,
        key: str = "",
    ) -> NewtonSolution:
        """Take Newton steps, at least one, until the relative duality gap is at most `tol`.

        `multipliers` (n_features + 1, n_classes) are the start: those of another solution, possibly for other costs
        or another factor. `seed` is not used: the method is deterministic.
        """
        try:
            with ThreadpoolController().limit(limits=1, user_api="blas"):
                self._prepare()
                return self._minimise(
                    Monitor(tol, max_iter, progress, checkpoint), multipliers, f"{key}newton"
                )
        finally:  # also after an interrupt or a memory error
            for name in ("X", "sign", "cost", "R", "spectrum"):
                self.__dict__.pop(name, None)

    def _minimise(self, monitor: Monitor, multipliers: Array | None, name: str) -> NewtonSolution:
        Z = np.zeros((self.rows.n_features + 1, len(self.R)))
        if multipliers is not None:
            Z = multipliers @ self.R.T
        stored = monitor.resume(name)
        if stored is not None:
            Z = stored.arrays["Z"]

        def record(point: Point, gradient: Array) -> None:
            monitor.record(point.objective, gap=float(np.vdot(gradient, gradient)) / 2)
            monitor.keep(name, {"Z": point.x})

        def done(point: Point, gradient: Array, decrement: float) -> bool:
            if np.isfinite(decrement):  # the start is no iteration
                record(point, gradient)
            return monitor.done

        def target(point: Point) -> float:
            return float(np.sqrt(2 * monitor.tol * point.objective))  # the norm of a gradient at this gap

        point, gradient = newton_cg(self, self.evaluate(Z), done, target=target)
        if not monitor.n_iter:  # no step lowers the objective: the start is optimal up to rounding
            record(point, gradient)
        sums = np.asarray(np.linalg.lstsq(self.R, point.x.T, rcond=None)[0].T, np.float64)
        shared = np.asarray(self.factor[self.layout.shared] @ sums.T, self.rows.dtype)
        certificate = Certificate(1.0, point.objective, monitor.gap)
        return NewtonSolution(sums, shared, certificate, monitor.trace, monitor.converged)
