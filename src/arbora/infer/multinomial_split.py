"""Multinomial logistic regression by the log-concavity bound (LC), which splits over the classes.

The problem is that of `multinomial`. A number for every row takes the place of log sum_k exp(s_ik) and leaves the
weights of a class nothing to do with those of the others (S. Gopal 2014, thesis, chapter 4):

    log sum_k exp(s_k) <= xi - 1 + sum_k exp(s_k - xi),        equal at xi = log sum_k exp(s_k),

so that the minimum over the weights and all xi is that of the softmax itself. Given xi, all classes take a Newton
step, found by conjugate gradients and halved, class by class, until the class is better; then every xi is made exact
again. No iteration makes the objective worse. (In the thesis the condition of the weights of a class has a sum over
the classes: there is none.) An exponential function that overflows is an infinite value: the step is halved.

Blocks of classes are visited in parallel, and could live elsewhere: `visit` takes the weights of a block and a number
for every row, and leaves new weights and two numbers for every row, the largest score and the sum of the exponential
functions beside it (`partial_sums`), from which `join` makes the new xi. `multinomial_dm` shares all this.

Weights that all classes have in common change no probability, and only cost. Classes that step on their own pile them
up, and the penalty alone would take them off again, slowly: they are taken off after each round, as the mean of the
weights that the penalty is smallest without (of flat classes, the plain mean). That is the one vector of weights that
has to travel.

The gradient that a visit begins with is that of the softmax, since xi is exact there: it certifies the weights
that the visit found, and the bound it gives on the optimum holds for those that it leaves.

A label structure ties the classes together. With K = F'F and l its smallest eigenvalue, K = l I + S, and

    1/2 tr(W K^-1 W') = min_V  ||W - V||^2 / (2 l) + 1/2 tr(V S^+ V'),      V = W (I - l K^-1) at the minimum:

given V, which plays the part of the parents, classes are on their own again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from arbora.infer.multinomial import Matrix, Monitor, SoftmaxProblem, Solution, scores, squares
from arbora.infer.tree_likelihood import InOrder, slices

BLOCK = 64  # classes of a visit
_MOST_PRODUCTS = 25  # conjugate gradient steps of a Newton step
_FORCING = 0.1  # residual of a Newton step over its gradient
_ARMIJO = 1e-4
_MOST_HALVINGS = 40
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


class Rows(NamedTuple):
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


def prepare(problem: SoftmaxProblem) -> Rows:
    """Lay out the rows for visits."""
    X, cost = problem.X, problem.cost.astype(problem.dtype)
    turned: Any = X.T
    if sp.issparse(X):
        turned = sp.csr_array(turned)
    return Rows(X, turned, turned**2, problem.labels, cost, problem.free_bias)


def _gather(turned: Any, R: Matrix) -> Matrix:
    return scores(turned, R) if sp.issparse(turned) else np.asarray(turned @ R)


def rows_of(rows: Rows, columns: slice) -> NDArray[np.int64]:
    """Rows whose class is in a block."""
    return np.flatnonzero((rows.labels >= columns.start) & (rows.labels < columns.stop))


def _linear(rows: Rows, columns: slice) -> Matrix:
    """X' times the costs of the rows of every class of a block."""
    here = rows_of(rows, columns)
    shape = len(here), columns.stop - columns.start
    at = sp.csr_array(
        (rows.cost[here], (np.arange(len(here)), rows.labels[here] - columns.start)), shape=shape
    )
    X: Any = rows.X[here]
    return np.asarray((sp.csr_array(X.T) @ at).toarray() if sp.issparse(rows.X) else (at.T @ X).T)


def _newton_step(rows: Rows, ridge: Matrix, gradient: Matrix, bend: Matrix) -> Matrix:
    """Newton steps of all classes of a block by conjugate gradients, each with lengths of its own."""
    diagonal = np.maximum(ridge + _gather(rows.squared, bend), np.finfo(bend.dtype).tiny)
    step, residual, along = np.zeros_like(gradient), -gradient, np.zeros_like(gradient)
    enough = (_FORCING * np.linalg.norm(gradient, axis=0)) ** 2
    previous = np.full(gradient.shape[1], np.inf, gradient.dtype)
    for _ in range(_MOST_PRODUCTS):
        active = np.einsum("jb,jb->b", residual, residual) > enough
        if not active.any():
            break
        scaled = residual / diagonal
        now = np.einsum("jb,jb->b", residual, scaled)
        along = scaled + (now / previous) * along
        curved = ridge * along + _gather(rows.turned, bend * scores(rows.X, along))
        size = np.einsum("jb,jb->b", along, curved)
        length = np.where(active & (size > 0), now / np.where(size > 0, size, 1), 0)
        step += length * along
        residual -= length * curved
        previous = np.where(now > 0, now, np.inf)
    return step


def visit(
    rows: Rows, columns: slice, W: Matrix, shift: Matrix, curve: Curve, V: Matrix | None, weight: float
) -> Block:
    """Take a Newton step for every class of a block.

    Parameters
    ----------
    rows : Rows
    columns : slice
        Classes of the block.
    W : ndarray of shape (n_weights, n_block)
    shift : ndarray of shape (n_samples,)
        xi of LC, a of DM.
    curve : callable
        `exponential` or `softplus`.
    V : ndarray of shape (n_weights, n_block) or None
        Where the penalty pulls; None for zero.
    weight : float
        Of the penalty.
    """
    W = np.ascontiguousarray(W)
    deviation = W if V is None else W - V
    ridge = np.full((len(W), 1), weight, W.dtype)
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
    for _ in range(_MOST_HALVINGS):
        after = rows.cost @ curve(S[:, open_] + length[open_] * moved[:, open_] - shift[:, None])[0]
        t = length[open_]
        change = after - before[open_] + t * first[open_] + t * t * second[open_]
        open_[open_] = ~(change <= _ARMIJO * t * slope_along[open_] + rounding[open_])
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


def join(sums: list[Sums]) -> Matrix:
    """Logarithm of the sum of the exponential functions over all blocks, for every row.

    Examples
    --------
    >>> import numpy as np
    >>> join([Sums(np.array([1000.0]), np.array([1.0])), Sums(np.array([1000.0]), np.array([1.0]))])
    array([1000.69314718])
    """
    top = np.max([one.top for one in sums], axis=0)
    return np.asarray(top + np.log(sum(one.size * np.exp(one.top - top) for one in sums)))


class Penalty:
    """1/2 tr(W K^-1 W') as the sum of one for every class and of what V costs; flat classes have no V."""

    def __init__(self, problem: SoftmaxProblem) -> None:
        self.factor, self.weight, self.mixing = problem.factor, 1.0, None
        self.free_bias = problem.free_bias
        self.centre = np.full(problem.n_classes, 1 / problem.n_classes, problem.dtype)
        if problem.factor is not None:
            K = (problem.factor.T @ problem.factor).toarray()
            smallest = float(np.linalg.eigvalsh(K)[0])
            self.weight = 1 / smallest
            precision = np.linalg.inv(K)
            self.mixing = (np.eye(len(K)) - smallest * precision).astype(problem.dtype)
            self.centre = (precision.sum(axis=0) / precision.sum()).astype(problem.dtype)

    def parents(self, W: Matrix) -> Matrix | None:
        """V for given weights."""
        return None if self.mixing is None else W @ self.mixing

    def value(self, W: Matrix, V: Matrix | None) -> float:
        """Penalty of W, with V from `parents`."""
        last = len(W) - self.free_bias
        if V is None:
            return squares(W[:last]) / 2
        return self.weight * float(np.einsum("jk,jk->", W[:last], (W - V)[:last], dtype=np.float64)) / 2

    def square(self, gradients: list[Matrix]) -> float:
        """Square of the gradient by the parts, from the gradients by the weights of the blocks."""
        if self.factor is None:
            return sum(squares(gradient) for gradient in gradients)
        return squares((self.factor @ np.hstack(gradients).T).T)

    def parts(self, W: Matrix) -> Matrix:
        """Z of least norm with Z F = W."""
        if self.factor is None:
            return W
        K = (self.factor.T @ self.factor).toarray()
        return np.ascontiguousarray((self.factor @ np.linalg.solve(K, W.T)).T.astype(W.dtype))


class Told(NamedTuple):
    """What the blocks tell after a round."""

    of_rows: list[Any]  # what `summary` makes of the scores of each block
    at_labels: float  # sum of the scores of the labels, times their costs
    common: Matrix  # what all scores of a row have too much, by `of_rows` and `at_labels`
    gradient_square: float  # by the parts, at the weights before the round


class ClassBlocks:
    """Weights of all classes, visited block by block.

    Parameters
    ----------
    problem : SoftmaxProblem
    curve : callable
        What the bound makes of a score: value, slope, curvature.
    summary : callable
        What is kept of the scores of a block.
    engine : object with ``map(function, items)``, optional
    """

    def __init__(
        self,
        problem: SoftmaxProblem,
        curve: Curve,
        summary: Callable[[Matrix], Any],
        engine: Any = None,
    ) -> None:
        self.rows, self.penalty = prepare(problem), Penalty(problem)
        self.engine = engine if engine is not None else InOrder()
        self.curve, self.summary = curve, summary
        self.columns = slices(problem.n_classes, BLOCK)
        self.W = np.zeros((problem.shape[0], problem.n_classes), problem.dtype)
        self.V = self.penalty.parents(self.W)

    def _work(self, columns: slice, shift: Matrix) -> tuple[Any, float, Any]:
        rows, V = self.rows, None if self.V is None else self.V[:, columns]
        block = visit(rows, columns, self.W[:, columns], shift, self.curve, V, self.penalty.weight)
        self.W[:, columns] = block.weights
        here = rows_of(rows, columns)
        at_labels = block.scores[here, rows.labels[here] - columns.start]
        # Only a structure needs more of the gradient than its size.
        gradient = block.gradient if V is not None else np.sqrt([[squares(block.gradient)]])
        return self.summary(block.scores), float(rows.cost[here] @ at_labels), gradient

    def round(self, shift: Matrix) -> Told:
        """Visit all blocks."""
        found = self.engine.map(lambda columns: self._work(columns, shift), self.columns)
        of_rows, at_labels, gradients = zip(*found, strict=True)
        common = (self.W @ self.penalty.centre)[:, None]
        self.W -= common
        self.V = self.penalty.parents(self.W)
        lost = scores(self.rows.X, common, self.engine).ravel()
        return Told(list(of_rows), sum(at_labels), lost, self.penalty.square(list(gradients)))

    def penalised(self) -> float:
        """Penalty of the weights."""
        return self.penalty.value(self.W, self.V)

    def parts(self) -> Matrix:
        """Parts of the weights."""
        return self.penalty.parts(self.W)


def solve_lc(problem: SoftmaxProblem, monitor: Monitor, engine: Any = None) -> Solution:
    """Minimise through the log-concavity bound.

    Parameters
    ----------
    problem : SoftmaxProblem
    monitor : Monitor
    engine : object with ``map(function, items)``, optional

    Examples
    --------
    >>> import numpy as np
    >>> problem = SoftmaxProblem(np.array([[1.0], [-1.0]]), np.array([0, 1]), np.ones(2), 2)
    >>> solution = solve_lc(problem, Monitor(tol=1e-9, max_iter=100))
    >>> solution.Z.round(3), solution.converged
    (array([[ 0.521, -0.521]]), True)
    """
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        blocks = ClassBlocks(problem, exponential, partial_sums, engine)
        cost = blocks.rows.cost.astype(np.float64)
        xi = np.full(len(cost), np.log(problem.n_classes), problem.dtype)
        objective, done = float(cost @ xi), False
        while not done:
            told, before = blocks.round(xi), objective
            xi = join(told.of_rows)
            objective = blocks.penalised() + float(cost @ xi) - told.at_labels
            xi -= told.common
            done = record_round(monitor, problem, before, objective, told.gradient_square)
        return monitor.solution(blocks.parts())


def record_round(
    monitor: Monitor, problem: SoftmaxProblem, before: float, value: float, square: float, **extra: float
) -> bool:
    """Record what a round left; the gradient is the one it began with, and bounds the optimum all the same."""
    norm = float(np.sqrt(square))
    if not len(monitor.trace):
        monitor.scale = norm  # the weights were zero
    gap = np.nan
    if not problem.free_bias:
        gap = max(value - before + square / 2, monitor.rounding * abs(value))
    return monitor.record(value, gap, norm, certified=True, **extra)
