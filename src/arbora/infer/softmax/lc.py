"""Multinomial logistic regression by the log-concavity bound (LC), which splits over the classes.

The problem is that of `multinomial`. A number for every row takes the place of log sum_k exp(s_ik) and leaves the
weights of a class nothing to do with those of the others (S. Gopal 2014, thesis, chapter 4):

    log sum_k exp(s_k) <= xi - 1 + sum_k exp(s_k - xi),        equal at xi = log sum_k exp(s_k),

so that the minimum over the weights and all xi is that of the softmax itself. Given xi, all classes take a Newton
step, found by conjugate gradients and halved, class by class, until the class is better; then every xi is made exact
again. No iteration makes the objective worse. (In the thesis the condition of the weights of a class has a sum over
the classes: there is none.) An exponential function that overflows is an infinite value: the step is halved.

Blocks of classes are visited in parallel, and live in shards (`multinomial_shards`), in this process or on a cluster.
A visit takes the weights of a block and a number for every row, and leaves new weights and two numbers for every row,
the largest score and the sum of the exponential functions beside it (`partial_sums`), from which `log_total` makes
the new xi. `multinomial_dm` shares all this.

The gradient that a visit begins with is that of the softmax, since xi is exact there: it certifies the weights
that the visit found, and the bound it gives on the optimum holds for those that it leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.infer.newton_cg import ARMIJO, conjugate_gradients, inner_of_columns
from arbora.infer.softmax.problem import Matrix, SoftmaxProblem, scores

BLOCK = 64  # classes of a visit
_MAX_PRODUCTS = 25  # conjugate gradient steps of a Newton step
_FORCING = 0.1  # residual of a Newton step over its gradient
_MAX_HALVINGS = 40
_ROUNDING = 20.0  # error of a sum over rows, in units of the working precision

Curve = Callable[[Matrix], tuple[Matrix, Matrix, Matrix]]


def exponential(r: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Value, slope and curvature of what LC makes of a score.

    Examples
    --------
    >>> import numpy as np
    >>> exponential(np.zeros(1))
    (array([1.]), array([1.]), array([1.]))
    """
    with np.errstate(over="ignore"):
        e = np.exp(r)
    return e, e, e


class BlockRows(NamedTuple):
    """What every visit reads, and none writes."""

    X: Any
    turned: Any  # X' as CSR, for sparse rows
    squared: Any  # X' with squared entries
    labels: NDArray[np.integer[Any]]
    cost: Matrix
    free_bias: bool


class Block(NamedTuple):
    """What a visit leaves: weights, their scores, and the gradient that it found, by the weights of the block."""

    weights: Matrix
    scores: Matrix
    gradient: Matrix


class Sums(NamedTuple):
    """What a block tells of every row: its largest score, and the sum of exp(score - largest)."""

    top: Matrix
    size: Matrix


def prepare(problem: SoftmaxProblem) -> BlockRows:
    """Lay out the rows for visits."""
    X, cost = problem.X, problem.cost.astype(problem.dtype)
    turned: Any = X.T
    if sp.issparse(X):
        turned = sp.csr_array(turned)
    return BlockRows(X, turned, turned**2, problem.labels, cost, problem.free_bias)


def _gather(turned: Any, R: Matrix) -> Matrix:
    return scores(turned, R) if sp.issparse(turned) else np.asarray(turned @ R)


def rows_of(rows: BlockRows, columns: slice) -> NDArray[np.int64]:
    """BlockRows whose class is in a block."""
    return np.flatnonzero((rows.labels >= columns.start) & (rows.labels < columns.stop))


def _linear(rows: BlockRows, columns: slice) -> Matrix:
    """X' times the costs of the rows of every class of a block."""
    here = rows_of(rows, columns)
    shape = len(here), columns.stop - columns.start
    at = sp.csr_array(
        (rows.cost[here], (np.arange(len(here)), rows.labels[here] - columns.start)), shape=shape
    )
    X: Any = rows.X[here]
    return np.asarray((sp.csr_array(X.T) @ at).toarray() if sp.issparse(rows.X) else (at.T @ X).T)


def _newton_step(rows: BlockRows, ridge: Matrix, gradient: Matrix, bend: Matrix) -> Matrix:
    """Newton steps of all classes of a block by conjugate gradients, with step lengths of each class."""
    diagonal = np.maximum(ridge + _gather(rows.squared, bend), np.finfo(bend.dtype).tiny)

    def product(E: Matrix) -> Matrix:
        return ridge * E + _gather(rows.turned, bend * scores(rows.X, E))

    enough = _FORCING * np.linalg.norm(gradient, axis=0)
    return conjugate_gradients(
        product, -gradient, lambda R: R / diagonal, enough, _MAX_PRODUCTS, inner_of_columns
    )


def visit(
    rows: BlockRows, columns: slice, W: Matrix, shift: Matrix, curve: Curve, V: Matrix | None, weight: Any
) -> Block:
    """Take a Newton step for every class of a block.

    Parameters
    ----------
    rows : BlockRows
    columns : slice
        Classes of the block.
    W : ndarray of shape (n_weights, n_block)
    shift : ndarray of shape (n_samples,)
        xi of LC, a of DM.
    curve : callable
        `exponential` or `softplus`.
    V : ndarray of shape (n_weights, n_block) or None
        Where the penalty pulls; None for zero.
    weight : float, or ndarray of shape (n_block,)
        Of the penalty.
    """
    W = np.ascontiguousarray(W)
    deviation = W if V is None else W - V
    ridge = np.full((len(W), np.size(weight)), weight, W.dtype)
    if rows.free_bias:
        ridge[-1] = 0
    cost, linear, S = rows.cost[:, None], _linear(rows, columns), scores(rows.X, W)
    value, slope, bend = curve(S - shift[:, None])
    gradient = ridge * deviation - linear + _gather(rows.turned, cost * slope)
    before = rows.cost @ value
    step = _newton_step(rows, ridge, gradient, cost * bend)
    # The penalty and the linear term are a parabola along the step, so that only the sums over rows are made again.
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
    """Largest score of every row and the sum of the exponential functions beside it.

    Examples
    --------
    >>> import numpy as np
    >>> partial_sums(np.array([[5.0, 5.0, -np.inf]]))
    Sums(top=array([5.]), size=array([2.]))
    """
    top = S.max(axis=1)
    return Sums(top, np.exp(S - top[:, None]).sum(axis=1))


def merge(left: Sums, right: Sums) -> Sums:
    """Put two blocks together.

    Examples
    --------
    >>> import numpy as np
    >>> merge(Sums(np.array([1000.0]), np.array([1.0])), Sums(np.array([1000.0]), np.array([2.0])))
    Sums(top=array([1000.]), size=array([3.]))
    """
    top = np.maximum(left.top, right.top)
    return Sums(top, left.size * np.exp(left.top - top) + right.size * np.exp(right.top - top))


def log_total(sums: Sums) -> Matrix:
    """Logarithm of the sum of the exponential functions, for every row.

    Examples
    --------
    >>> import numpy as np
    >>> log_total(Sums(np.array([1000.0]), np.array([2.0])))
    array([1000.69314718])
    """
    return np.asarray(sums.top + np.log(sums.size))
