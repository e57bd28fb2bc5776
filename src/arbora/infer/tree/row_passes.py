"""Passes over the rows for variational inference in a tree of classes.

Rows are divided into chunks that depend on their number alone, and sums are made in their order, each on one thread
of the BLAS: the result does not depend on the number of threads. A chunk is made dense, with the bias as its last
feature, when it is visited, for dense and sparse rows alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.infer.tree import bouchard
from arbora.infer.tree.problem import TreeProblem

Array = NDArray[np.float64]

_CHUNK = 256  # rows whose pairs of features fit into the cache
_TINY = np.finfo(np.float64).tiny


class Local(NamedTuple):
    """Local parameters of all rows: means and variances of their scores, and shifts b."""

    mean: Array
    variance: Array
    shift: Array


class Quadratic(NamedTuple):
    """Sum over the rows at fixed local parameters: sum_n (-1/2 w'G_n w + h_n.w) + constant bounds the likelihood."""

    grams: Array  # (n_classes, d, d)
    linear: Array  # (n_classes, d)
    constant: float


class RowPasses:
    """The rows in chunks, transposed, with the bias as the last feature.

    Parameters
    ----------
    problem : TreeProblem
    engine : Engine
    """

    def __init__(self, problem: TreeProblem, engine: Engine) -> None:
        self.X, self.Y, self.weight, self.engine = problem.X, problem.Y, problem.row_weight, engine
        self.bias, self.softmax = problem.bias, problem.likelihood == "softmax"
        self.n_weights, self.chunks = problem.n_weights, split(self.X.shape[0], size=_CHUNK)
        # Linear term of the labels, which never changes: (n_classes, d).
        self.label_sums = self.sum(
            lambda chunk: (
                (self.weight[chunk, None] * (self.Y[chunk].toarray() - 0.5)).T @ self.columns(chunk).T,
            )
        )[0]

    def columns(self, chunk: slice) -> Array:
        """Features of a chunk of rows: (n_weights, n_rows)."""
        X: Any = self.X[chunk]
        out = np.full((self.n_weights, X.shape[0]), self.bias, np.float64)
        out[: X.shape[1]] = (X.toarray() if hasattr(X, "toarray") else X).T
        return out

    def sum(self, function: Callable[[slice], tuple[Any, ...]]) -> list[Any]:
        """Sum the results of a function over the chunks, in their order."""
        return [sum(values) for values in zip(*self.engine.map(function, self.chunks), strict=True)]

    def fill(self, function: Callable[[Array], Array], out: Array) -> Array:
        """Write a function of the features of every chunk into the rows of `out`."""

        def task(chunk: slice) -> None:
            out[chunk] = function(self.columns(chunk))

        self.engine.map(task, self.chunks)
        return out

    def scores(self, weights: Array) -> Array:
        """Products of all rows with the weights (n_classes, d) of the leaves."""
        return self.fill(lambda columns: columns.T @ weights.T, np.empty((self.X.shape[0], len(weights))))

    def variances(self, covariance: Array) -> Array:
        """Variances of all scores."""
        packed = bouchard.pack_symmetric(covariance)
        out = np.empty((self.X.shape[0], len(covariance)))
        return self.fill(lambda columns: bouchard.quadratic_forms(columns, packed), out)

    def tighten(self, local: Local, n_steps: int) -> tuple[Local, float]:
        """Improve the shifts; return them and the bound of the likelihood without the term of the labels."""
        shift = np.empty_like(local.shift)

        def task(chunk: slice) -> tuple[float]:
            found = self._step(local, chunk, n_steps)
            shift[chunk] = found.shift
            return (float(self.weight[chunk] @ found.value),)

        value = self.sum(task)[0]
        return local._replace(shift=shift), value

    def _step(self, local: Local, chunk: slice, n_steps: int) -> bouchard.Local:
        start = local.shift[chunk] if self.softmax else None
        return bouchard.local_step(local.mean[chunk], local.variance[chunk], start, n_steps)

    def quadratic(self, local: Local) -> Quadratic:
        """Sum the quadratic bounds of all rows."""

        def task(chunk: slice) -> tuple[Any, ...]:
            mean, shift = local.mean[chunk], local.shift[chunk]
            found = self._step(local, chunk, 0)
            columns = self.columns(chunk)
            c = self.weight[chunk, None] * bouchard.curvature(found.width)
            # The bound touches -f(x) at the local parameters: subtract the value of the quadratic there.
            inner = c * (local.variance[chunk] + mean * mean - 2 * shift[:, None] * mean) / 2
            constant = float(self.weight[chunk] @ found.value + inner.sum())
            return bouchard.weighted_grams(columns, c), (columns @ (c * shift[:, None])).T, constant

        packed, pull, constant = self.sum(task)
        grams = bouchard.unpack_symmetric(packed, self.n_weights)
        return Quadratic(grams, self.label_sums + pull, constant)

    def slopes(self, local: Local) -> tuple[Array, Array]:
        """Gradient (n_classes, d) of the bound in the weights of the leaves, and the curvature of every score."""
        bend = np.empty_like(local.mean)

        def task(chunk: slice) -> tuple[Array]:
            mean, found, weight = local.mean[chunk], self._step(local, chunk, 0), self.weight[chunk, None]
            bend[chunk] = weight * bouchard.collapsed_curvature(mean, local.variance[chunk], found)
            pull = weight * bouchard.curvature(found.width) * (mean - local.shift[chunk, None])
            return ((self.columns(chunk) @ pull).T,)

        return self.label_sums - self.sum(task)[0], bend

    def curve(self, direction: Array, bend: Array) -> Array:
        """Product of minus the Hessian in the weights of the leaves with a direction (n_classes, d)."""

        def task(chunk: slice) -> tuple[Array]:
            columns, b = self.columns(chunk), bend[chunk]
            change = columns.T @ direction.T
            if self.softmax:  # the optimal shift moves with the scores
                change -= ((b * change).sum(axis=1) / np.maximum(b.sum(axis=1), _TINY))[:, None]
            return ((columns @ (b * change)).T,)

        return np.asarray(self.sum(task)[0])
