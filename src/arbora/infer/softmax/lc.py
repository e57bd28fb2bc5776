"""Multinomial logistic regression by the log-concavity bound (LC), which splits over the classes.

The problem is that of `arbora.infer.softmax.problem`. One number xi per row replaces log sum_k exp(s_ik), and given
xi the weights of the classes are independent (S. Gopal 2014, thesis, chapter 4):

    log sum_k exp(s_k) <= xi - 1 + sum_k exp(s_k - xi),        equal at xi = log sum_k exp(s_k),

so that the minimum over the weights and all xi is that of the softmax itself. Given xi, every class takes a Newton
step, found by conjugate gradients and halved, class by class, until its part of the bound has fallen; then every xi
is made exact again. No iteration raises the objective. **Erratum**: the thesis has a sum over the classes in the
optimality condition of the weights of a class; there is none. An exponential that overflows counts as an infinite
value, and the step is halved.

Blocks of classes are visited in parallel and live in shards (`arbora.infer.softmax.shards`), in this process or on a
cluster. A visit takes the weights of a block and one number per row. It returns new weights and two numbers per row,
the largest score and the sum of exponentials relative to it (`partial_sums`), from which `log_total` computes the new
xi. `arbora.infer.softmax.dm` uses the same visits.

The gradient at the start of a visit is that of the softmax, since xi is exact there. It certifies the weights before
the visit, and its bound on the optimum also holds for the weights after it.

Conjugate gradients and the Armijo constant are those of `arbora.infer.newton_cg`, with one step length per class. The
line search is separate for two reasons: each class has its own length, and along the step the penalty and the linear
term are a known parabola, so that only the sums over the rows are computed again, for the classes that still need it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import Ints, Matrix
from arbora.infer.newton_cg import ARMIJO, conjugate_gradients, inner_of_columns
from arbora.infer.softmax.problem import SoftmaxProblem, scores

BLOCK = 64  # classes of a visit
_MAX_PRODUCTS = 25  # conjugate gradient steps of a Newton step
_FORCING = 0.1  # residual of a Newton step over its gradient
_MAX_HALVINGS = 40
_ROUNDING = 20.0  # error of a sum over rows, in units of the working precision

Curve = Callable[[Matrix], tuple[Matrix, Matrix, Matrix]]


def exponential(r: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Value, slope and curvature of the term of a score in the bound."""
    with np.errstate(over="ignore"):
        e = np.exp(r)
    return e, e, e


class BlockRows(NamedTuple):
    """Rows as visits read them; no visit changes them."""

    X: Any
    transposed: Any  # X', CSR for sparse rows
    squared: Any  # X' with squared entries
    labels: NDArray[np.integer[Any]]
    cost: Matrix


class Block(NamedTuple):
    """Result of a visit: new weights, their scores, and the gradient by the weights before the visit."""

    weights: Matrix
    scores: Matrix
    gradient: Matrix


class Sums(NamedTuple):
    """Largest score of every row over some classes, and the sum of exp(score - largest)."""

    top: Matrix
    size: Matrix


def prepare(problem: SoftmaxProblem) -> BlockRows:
    """Prepare the rows for visits."""
    X, cost = problem.X, problem.cost.astype(problem.dtype)
    transposed: Any = X.T
    if sp.issparse(X):
        transposed = sp.csr_array(transposed)
    return BlockRows(X, transposed, transposed**2, problem.labels, cost)


def _gather(transposed: Any, R: Matrix) -> Matrix:
    return scores(transposed, R) if sp.issparse(transposed) else np.asarray(transposed @ R)


def rows_of(rows: BlockRows, columns: slice) -> Ints:
    """Rows whose class is in a block."""
    return np.flatnonzero((rows.labels >= columns.start) & (rows.labels < columns.stop))


def _linear(rows: BlockRows, columns: slice) -> Matrix:
    """Linear term of every class of a block: the sum of its rows times their costs."""
    here = rows_of(rows, columns)
    shape = len(here), columns.stop - columns.start
    entries = rows.cost[here], (np.arange(len(here)), rows.labels[here] - columns.start)
    indicator = sp.csr_array(entries, shape=shape)
    X: Any = rows.X[here]
    return np.asarray(
        (sp.csr_array(X.T) @ indicator).toarray() if sp.issparse(rows.X) else (indicator.T @ X).T
    )


def _newton_step(rows: BlockRows, ridge: Matrix, gradient: Matrix, bend: Matrix) -> Matrix:
    """Newton steps of all classes of a block by conjugate gradients, with step lengths of each class."""
    diagonal = np.maximum(ridge + _gather(rows.squared, bend), np.finfo(bend.dtype).tiny)

    def product(E: Matrix) -> Matrix:
        return ridge * E + _gather(rows.transposed, bend * scores(rows.X, E))

    enough = _FORCING * np.linalg.norm(gradient, axis=0)
    return conjugate_gradients(
        product, -gradient, lambda R: R / diagonal, enough, _MAX_PRODUCTS, inner_of_columns
    )


def visit(
    rows: BlockRows, columns: slice, W: Matrix, shift: Matrix, curve: Curve, V: Matrix | None, weight: Any
) -> Block:
    """Take a Newton step for every class of a block, at the weights W (n_weights, n_block).

    `shift` (n_samples,) is xi of LC or a of DM, and `curve` is `exponential` or `softplus`. V holds the weights at
    which the penalty is zero, None for zero weights; `weight` is that of the penalty, a number or one for each class.
    """
    W = np.ascontiguousarray(W)
    deviation = W if V is None else W - V
    ridge = np.full((len(W), np.size(weight)), weight, W.dtype)
    cost, linear, S = rows.cost[:, None], _linear(rows, columns), scores(rows.X, W)
    value, slope, bend = curve(S - shift[:, None])
    gradient = ridge * deviation - linear + _gather(rows.transposed, cost * slope)
    before = rows.cost @ value
    step = _newton_step(rows, ridge, gradient, cost * bend)
    # The penalty and the linear term are a parabola along the step: only the sums over rows are computed again.
    moved = scores(rows.X, step)
    first = np.einsum("jb,jb->b", ridge * deviation - linear, step)
    second = np.einsum("jb,jb->b", ridge * step, step) / 2
    slope_along = np.einsum("jb,jb->b", gradient, step)
    length, open_ = np.ones(W.shape[1], W.dtype), np.ones(W.shape[1], bool)
    rounding = _ROUNDING * np.finfo(W.dtype).eps * np.abs(before)
    for _ in range(_MAX_HALVINGS):
        after = rows.cost @ curve(S[:, open_] + length[open_] * moved[:, open_] - shift[:, None])[0]
        t = length[open_]
        change = after - before[open_] + t * first[open_] + t * t * second[open_]
        open_[open_] = ~(change <= ARMIJO * t * slope_along[open_] + rounding[open_])
        if not open_.any():
            break
        length[open_] /= 2
    length[open_] = 0
    return Block(W + length * step, S + length * moved, gradient)


def partial_sums(S: Matrix) -> Sums:
    """Largest score of every row, and the sum of exponentials relative to it."""
    top = S.max(axis=1)
    return Sums(top, np.exp(S - top[:, None]).sum(axis=1))


def merge(left: Sums, right: Sums) -> Sums:
    """Merge the sums of two blocks."""
    top = np.maximum(left.top, right.top)
    return Sums(top, left.size * np.exp(left.top - top) + right.size * np.exp(right.top - top))


def log_total(sums: Sums) -> Matrix:
    """Logarithm of the sum of exponentials, for every row."""
    return np.asarray(sums.top + np.log(sums.size))
