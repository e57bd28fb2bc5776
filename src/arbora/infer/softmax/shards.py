"""Classes in shards: rounds of the bounds of `multinomial_split` and `multinomial_dm` over all blocks of classes.

Every block is visited, wherever it lives; what blocks tell is added up along a fixed tree over them (`fold`), inside
of a shard as far as it goes: sums, and with them all else, have the same bits for any number of shards.

Weights that all classes have in common change no probability, and only cost. Classes that step on their own pile them
up, and the penalty alone would take them off again, slowly: they are taken off after each round, as the mean c of the
weights that the penalty is smallest without (of flat classes, the plain mean). That is the one vector of weights that
has to travel. It goes with the next round, since what it changes is known: with s the sum over K^-1,

    1/2 tr((W - c 1') K^-1 (W - c 1')') = 1/2 tr(W K^-1 W') - s/2 ||c||^2,        c = W K^-1 1 / s.

A label structure ties the classes together, through the weights U of parts that they share (`multinomial_penalty`):
given U, classes are on their own again. Each shard keeps those of its own classes; parts that cross are solved for by
whoever asks for the rounds, and go out with the next one, too. Sums over shared parts are made shard by shard: with a
structure the bits depend on the number of shards, and the optimum does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from arbora.core.checkpoint import Piece
from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor
from arbora.infer.prune import pruned
from arbora.infer.softmax.lc import (
    BLOCK,
    Block,
    BlockRows,
    Curve,
    exponential,
    log_total,
    merge,
    partial_sums,
    prepare,
    rows_of,
    visit,
)
from arbora.infer.softmax.penalty import CrossingParts, Penalty, ShardParts, Tied
from arbora.infer.softmax.problem import Matrix, SoftmaxProblem, SoftmaxSolution, scores, solution_of, squares
from arbora.infer.tree_sum import add_leaves, add_nodes, cut_leaves, largest_nodes

_AT_ONCE = 1 << 26  # weights that are gathered at a time


class Bound(NamedTuple):
    """What a bound makes of the scores of a block: value, slope and curvature; and what is told of them."""

    curve: Curve
    summary: Callable[[Matrix], Any]
    merge: Callable[[Any, Any], Any]


LC = Bound(exponential, partial_sums, merge)


class Told(NamedTuple):
    """What blocks tell after a round."""

    of_rows: Any  # what the bound's `summary` makes of their scores
    at_labels: float  # sum of the scores of the labels, times their costs
    common: Matrix  # share of these blocks in what all classes have in common
    penalty: float  # of these classes by themselves
    square: float  # of the gradient, by what classes have for themselves, at the weights before the round


def add_told(left: Told, right: Told, bound: Bound) -> Told:
    """Put together what two runs of blocks told, in their order."""
    return Told(
        bound.merge(left.of_rows, right.of_rows),
        left.at_labels + right.at_labels,
        left.common + right.common,
        left.penalty + right.penalty,
        left.square + right.square,
    )


class Common(NamedTuple):
    """What all shards read."""

    rows: BlockRows
    penalty: Penalty
    bound: Bound
    n_classes: int


class ClassShard:
    """Weights of consecutive blocks of classes, visited together.

    Parameters
    ----------
    common : Common
    blocks : range
        Numbers of the blocks.
    engine : Engine
    """

    def __init__(self, common: Common, blocks: range, engine: Engine) -> None:
        self.rows, self.penalty, self.bound, _ = common
        self.engine, self.blocks, self.blas = engine, blocks, ThreadpoolController()
        self.all_columns = split(common.n_classes, size=BLOCK, even=False)
        self.columns = self.all_columns[blocks.start : blocks.stop]
        self.first = self.columns[0].start
        shape = self.rows.X.shape[1], self.columns[-1].stop - self.first
        self.W = np.zeros(shape, self.rows.X.dtype)
        self.parts: ShardParts | None = None
        self.local: Matrix | None = None  # of the shared parts, those that no other shard sees
        if self.penalty.shared is not None:
            self.parts = ShardParts(self.penalty, slice(self.first, self.columns[-1].stop))
            self.local = self.parts.start(shape[0], self.W.dtype)

    def round(
        self, shift: Matrix, common: Matrix | None, crossing: Matrix | None = None
    ) -> tuple[list[tuple[range, Told]], Tied | None]:
        """Take off what all classes have in common, visit all blocks, and tell of the parts of the tree over them.

        With a structure, `crossing` are the weights of the shared parts that other shards see, too.
        """
        with self.blas.limit(limits=1, user_api="blas"):
            U = sums = None
            if self.parts is not None and self.local is not None:
                U = self.parts.seen_weights(self.local, crossing, common)
                sums = np.zeros_like(U), np.zeros_like(U)
            if common is not None:
                self.W -= common[:, None]
            visits = self.engine.imap(lambda columns: self._visit(columns, shift, U), self.columns)
            found = self._added(visits, sums)
            told = [
                (part, add_leaves(part, found, partial(add_told, bound=self.bound)))
                for part in largest_nodes(range(len(self.all_columns)), self.blocks)
            ]
            if self.parts is None or sums is None:
                return told, None
            self.local, tied = self.parts.tell(*sums)
            return told, tied

    def _here(self, columns: slice) -> slice:
        """Classes, counted from the first of the shard."""
        return slice(columns.start - self.first, columns.stop - self.first)

    def _visit(self, columns: slice, shift: Matrix, U: Matrix | None) -> tuple[Told, slice, Block | None]:
        rows, here, penalty = self.rows, self._here(columns), self.penalty
        V = None if U is None or self.parts is None else self.parts.pulls(U, here)
        weight = penalty.strength(columns)
        block = visit(rows, columns, self.W[:, here], shift, self.bound.curve, V, weight)
        self.W[:, here] = block.weights
        labelled = rows_of(rows, columns)
        at_labels = block.scores[labelled, rows.labels[labelled] - columns.start]
        told = Told(
            self.bound.summary(block.scores),
            float(rows.cost[labelled] @ at_labels),
            block.weights @ penalty.centre[columns],
            penalty.value(block.weights, columns),
            squares(block.gradient if V is None else block.gradient / np.sqrt(weight, dtype=shift.dtype)),
        )
        return told, here, None if V is None else block._replace(scores=np.empty(0))

    def _added(
        self, visits: Iterable[tuple[Told, slice, Block | None]], sums: tuple[Matrix, Matrix] | None
    ) -> Iterator[Told]:
        """Add what blocks have in shared parts, in the order of the blocks, and pass on what they tell."""
        for told, here, block in visits:
            if self.parts is not None and block is not None and sums is not None:
                self.parts.add(*sums, here, block.weights, block.gradient)
            yield told

    def weights(self, features: slice, common: Matrix, below: Matrix | None = None) -> Any:
        """Weights of some features and all classes of this shard, without what all classes have in common.

        With `below`, a size for every feature, as a sparse matrix of the weights that are larger.
        """
        W = np.asarray(self.W[features] - common[features, None])
        return W if below is None else pruned(W, below[features, None])

    def hand_over(self, common: Matrix) -> Matrix:
        """Give the weights of all classes away, without what they have in common: the last step of a shard."""
        self.W -= common[:, None]
        return self.W

    def state(self) -> tuple[Matrix, Matrix | None]:
        """Return what a shard has to find again when it is restarted."""
        return self.W, self.local

    def restore(self, state: tuple[Matrix, Matrix | None]) -> None:
        """Go on from a state."""
        W, self.local = state
        self.W = W if W.flags.writeable else np.array(W)


class ClassBlocks:
    """Weights of all classes, in shards.

    Parameters
    ----------
    problem : SoftmaxProblem
    bound : Bound
    engine : Engine
    """

    def __init__(self, problem: SoftmaxProblem, bound: Bound, engine: Engine) -> None:
        self.rows, self.penalty, self.bound, self.engine = (
            prepare(problem), Penalty(problem), bound, engine,
        )  # fmt: skip
        self.all_blocks = range(-(-problem.n_classes // BLOCK))
        self.pieces = cut_leaves(len(self.all_blocks), engine.n_shards)
        self.columns = [
            slice(piece.start * BLOCK, min(piece.stop * BLOCK, problem.n_classes)) for piece in self.pieces
        ]
        common = Common(self.rows, self.penalty, bound, problem.n_classes)
        self.shards = engine.shards(ClassShard, common, self.pieces)
        self.n_classes = problem.n_classes
        self.common: Matrix | None = None
        self.parts = None if self.penalty.shared is None else CrossingParts(self.penalty, self.columns)
        self.crossing: list[Matrix] | None = None
        self.alone = (
            engine.shares_memory and len(self.pieces) == 1
        )  # one shard has all classes, in this process

    def round(self, shift: Matrix) -> tuple[Told, Matrix]:
        """Visit all blocks; return what they told, and what all scores of a row have too much after it."""
        each = None if self.crossing is None else [(one,) for one in self.crossing]
        answers = self.shards.step("round", shift, self.common, each=each)
        nodes = dict(chain.from_iterable(told for told, _ in answers))
        told = add_nodes(self.all_blocks, nodes, partial(add_told, bound=self.bound))
        self.common = told.common
        penalty, square = told.penalty - self.penalty.of_common(told.common), told.square
        if self.parts is not None:
            self.crossing, of_shared, more = self.parts.solve([tied for _, tied in answers])
            penalty, square = penalty + of_shared, square + more
        lost = scores(self.rows.X, told.common[:, None], self.engine).ravel()
        return told._replace(penalty=penalty, square=square), lost

    def weights(self, below: Matrix | None = None) -> Any:
        """Weights of all classes: those of the only shard here, or copies that come some features at a time.

        They lie feature by feature, so that a file is written from its beginning to its end. With `below`, a size for
        every feature, copies are sparse, of the weights that are larger.
        """
        assert self.common is not None
        if self.alone:
            return np.asarray(self.shards.step("hand_over", self.common)[0])
        n_weights = self.rows.X.shape[1]
        parts = split(n_weights, size=max(1, _AT_ONCE // self.n_classes))
        if below is not None:
            rows: Any = [sp.hstack(list(self._ask(part, below)), format="csr") for part in parts]
            return sp.csr_array(sp.vstack(rows, format="csr"))
        W: Matrix = self.engine.zeros((n_weights, self.n_classes), self.rows.X.dtype)
        for part in parts:
            for columns, weights in zip(self.columns, self._ask(part), strict=True):
                W[part, columns] = weights
            self.engine.settle(W)
        return W

    def _ask(self, features: slice, *below: Matrix) -> Iterator[Any]:
        """Ask the shards for their weights of some features, one after the other."""
        return (self.shards.ask(k, "weights", features, self.common, *below) for k in range(len(self.pieces)))

    def solution(self, monitor: Monitor, below: Matrix | None = None) -> SoftmaxSolution:
        """Close with the weights of the classes."""
        return solution_of(monitor, self.weights(below), of_classes=True)

    def resume(self, monitor: Monitor, solver: str) -> Piece | None:
        """Take up the weights that `keep` saved; None if there are none."""
        kept = monitor.resume(solver)
        if kept is not None:
            self.shards.step("restore", (kept.arrays.pop("W"), kept.arrays.pop("local", None)))
            self.common = kept.arrays.pop("common")
        return kept

    def keep(self, monitor: Monitor, solver: str, arrays: dict[str, Matrix], **meta: float) -> None:
        """Let the monitor save the weights, of all classes here, and what the solver has beside them."""
        if self.alone and self.common is not None:
            W, local = self.shards.ask(0, "state")
            shared = {} if local is None else {"local": local}  # nothing crosses
            monitor.keep(solver, {"W": W, "common": self.common, **shared, **arrays}, **meta)

    def __enter__(self) -> ClassBlocks:
        return self

    def __exit__(self, *_: object) -> None:
        self.shards.close()


def solve_lc(
    problem: SoftmaxProblem, monitor: Monitor, engine: Engine, below: Matrix | None = None
) -> SoftmaxSolution:
    """Minimise through the log-concavity bound.

    Parameters
    ----------
    problem : SoftmaxProblem
    monitor : Monitor
    engine : Engine
        Its shards hold the weights; the result does not depend on their number.
    below : ndarray of shape (n_weights,), optional
        Weights of classes elsewhere that are no larger stay there: the solution is sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.engine import ThreadEngine
    >>> problem = SoftmaxProblem(np.array([[1.0], [-1.0]]), np.array([0, 1]), np.ones(2), 2)
    >>> solution = solve_lc(problem, Monitor(tol=1e-9, max_iter=100), ThreadEngine())
    >>> solution.Z.round(3), solution.converged
    (array([[ 0.521, -0.521]]), True)
    """
    with ThreadpoolController().limit(limits=1, user_api="blas"), ClassBlocks(problem, LC, engine) as blocks:
        cost = blocks.rows.cost.astype(np.float64)
        xi = np.full(len(cost), np.log(problem.n_classes), problem.dtype)
        objective, done = float(cost @ xi), False
        kept = blocks.resume(monitor, "lc")
        if kept is not None:
            xi, objective = kept.arrays["xi"], kept.meta["objective"]
        while not done:
            before = objective
            told, lost = blocks.round(xi)
            xi = log_total(told.of_rows)
            objective = told.penalty + float(cost @ xi) - told.at_labels
            xi -= lost
            done = record_round(monitor, problem, before, objective, told.square)
            if not done:
                blocks.keep(monitor, "lc", {"xi": xi}, objective=objective)
        return blocks.solution(monitor, below)


def record_round(
    monitor: Monitor, problem: SoftmaxProblem, before: float, value: float, square: float, **extra: Any
) -> bool:
    """Record what a round left; the gradient is the one it began with, and bounds the optimum all the same."""
    norm = float(np.sqrt(square))
    if problem.free_bias:
        first = monitor.trace["gradient_norm"][0] if monitor.n_iter else norm  # there the weights are zero
        change = norm / max(float(first), np.finfo(np.float64).tiny)
        return monitor.record(value, change=change, gradient_norm=norm, **extra)
    gap = max(value - before + square / 2, monitor.rounding * abs(value))
    return monitor.record(value, gap=gap, gradient_norm=norm, **extra)
