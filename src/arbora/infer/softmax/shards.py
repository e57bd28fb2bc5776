"""Classes in shards: rounds of the bounds LC and DM over all blocks of classes.

A round visits every block of classes, in the shard that holds it. The results of the blocks are added along a fixed
binary tree over the blocks (`arbora.infer.tree_sum`), inside a shard as far as possible: sums, and with them all
results, have the same bits for any number of shards.

Weights that all classes have in common change no probability but are penalised. Classes that step independently
accumulate them, and the penalty alone would remove them only slowly. They are therefore removed after each round, as
the mean c of the weights for which the penalty of the difference is smallest (for flat classes, the plain mean). It
is the only vector of weights that is communicated, together with the next round, since its effect is known: with s
the sum of the entries of K^-1,

    1/2 tr((W - c 1') K^-1 (W - c 1')') = 1/2 tr(W K^-1 W') - s/2 ||c||^2,        c = W K^-1 1 / s.

A label structure couples the classes through the weights U of shared parts (`arbora.infer.softmax.penalty`). Given U,
the classes are independent again. Each shard holds the parts that only its own classes share. The driver solves for
the parts that cross shards and sends them with the next round. Sums over shared parts are made shard by shard: with a
structure the bits depend on the number of shards, the optimum does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from arbora.arrays import Matrix
from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor
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
from arbora.infer.softmax.problem import SoftmaxProblem, SoftmaxSolution, scores, solution_of, squares
from arbora.infer.tree_sum import add_leaves, add_nodes, cut_leaves, largest_nodes, pruned

_WEIGHTS_PER_STEP = 1 << 26  # that are gathered from the shards


class Bound(NamedTuple):
    """A bound: value, slope and curvature of the term of a score, and the summary of a block's scores per row."""

    curve: Curve
    summary: Callable[[Matrix], Any]
    merge: Callable[[Any, Any], Any]


LC = Bound(exponential, partial_sums, merge)


class RoundSums(NamedTuple):
    """Result of a round over some blocks."""

    of_rows: Any  # the bound's `summary` of their scores
    at_labels: float  # sum of the scores of the labels, times their costs
    common: Matrix  # contribution of these blocks to the weights that all classes have in common
    penalty: float  # of the own weights of these classes
    square: float  # of the gradient by the own weights of these classes, before the round


def add_sums(left: RoundSums, right: RoundSums, bound: Bound) -> RoundSums:
    """Merge the results of two consecutive runs of blocks."""
    return RoundSums(
        bound.merge(left.of_rows, right.of_rows),
        left.at_labels + right.at_labels,
        left.common + right.common,
        left.penalty + right.penalty,
        left.square + right.square,
    )


class Common(NamedTuple):
    """Data that all shards read."""

    rows: BlockRows
    penalty: Penalty
    bound: Bound
    n_classes: int


class ClassShard:
    """Weights of consecutive blocks of classes; `blocks` are their numbers."""

    def __init__(self, common: Common, blocks: range, engine: Engine) -> None:
        self.rows, self.penalty, self.bound, _ = common
        self.engine, self.blocks, self.blas = engine, blocks, ThreadpoolController()
        self.all_columns = split(common.n_classes, size=BLOCK, even=False)
        self.columns = self.all_columns[blocks.start : blocks.stop]
        self.first = self.columns[0].start
        shape = self.rows.X.shape[1], self.columns[-1].stop - self.first
        self.W = np.zeros(shape, self.rows.X.dtype)
        self.parts: ShardParts | None = None
        self.local: Matrix | None = None  # weights of the shared parts that no other shard uses
        if self.penalty.shared is not None:
            self.parts = ShardParts(self.penalty, slice(self.first, self.columns[-1].stop))
            self.local = self.parts.start(shape[0], self.W.dtype)

    def round(
        self, shift: Matrix, common: Matrix | None, crossing: Matrix | None = None
    ) -> tuple[list[tuple[range, RoundSums]], Tied | None]:
        """Remove the common weights, visit all blocks, and return the sums over subtrees of blocks.

        With a structure, `crossing` are the weights of the shared parts that other shards use too.
        """
        with self.blas.limit(limits=1, user_api="blas"):
            U = sums = None
            if self.parts is not None and self.local is not None:
                U = self.parts.seen_weights(self.local, crossing, common)
                sums = np.zeros_like(U), np.zeros_like(U)
            if common is not None:
                self.W -= common[:, None]
            visits = self.engine.imap(lambda columns: self._visit(columns, shift, U), self.columns)
            block_sums = self._added(visits, sums)
            result = [
                (part, add_leaves(part, block_sums, partial(add_sums, bound=self.bound)))
                for part in largest_nodes(range(len(self.all_columns)), self.blocks)
            ]
            if self.parts is None or sums is None:
                return result, None
            self.local, tied = self.parts.eliminate(*sums)
            return result, tied

    def _here(self, columns: slice) -> slice:
        """Classes, counted from the first class of the shard."""
        return slice(columns.start - self.first, columns.stop - self.first)

    def _visit(
        self, columns: slice, shift: Matrix, U: Matrix | None
    ) -> tuple[RoundSums, slice, Block | None]:
        rows, here, penalty = self.rows, self._here(columns), self.penalty
        V = None if U is None or self.parts is None else self.parts.pulls(U, here)
        weight = penalty.strength(columns)
        block = visit(rows, columns, self.W[:, here], shift, self.bound.curve, V, weight)
        self.W[:, here] = block.weights
        labelled = rows_of(rows, columns)
        at_labels = block.scores[labelled, rows.labels[labelled] - columns.start]
        result = RoundSums(
            self.bound.summary(block.scores),
            float(rows.cost[labelled] @ at_labels),
            block.weights @ penalty.centre[columns],
            penalty.value(block.weights, columns),
            squares(block.gradient if V is None else block.gradient / np.sqrt(weight, dtype=shift.dtype)),
        )
        return result, here, None if V is None else block._replace(scores=np.empty(0))

    def _added(
        self, visits: Iterable[tuple[RoundSums, slice, Block | None]], sums: tuple[Matrix, Matrix] | None
    ) -> Iterator[RoundSums]:
        """Add the contributions of the blocks to shared parts, in their order, and pass on the results."""
        for result, here, block in visits:
            if self.parts is not None and block is not None and sums is not None:
                self.parts.add(*sums, here, block.weights, block.gradient)
            yield result

    def weights(self, features: slice, common: Matrix, below: Matrix | None = None) -> Any:
        """Weights of some features and all classes of this shard, without the common weights.

        With `below`, a threshold per feature, return a sparse matrix of the weights that are larger.
        """
        W = np.asarray(self.W[features] - common[features, None])
        return W if below is None else pruned(W, below[features, None])

    def hand_over(self, common: Matrix) -> Matrix:
        """Return the weights themselves, without the common ones. The shard cannot be used afterwards."""
        self.W -= common[:, None]
        return self.W

    def state(self) -> tuple[Matrix, Matrix | None]:
        """State from which the shard can be restarted."""
        return self.W, self.local

    def restore(self, state: tuple[Matrix, Matrix | None]) -> None:
        """Continue from a state."""
        W, self.local = state
        self.W = W if W.flags.writeable else np.array(W)


class ClassBlocks:
    """Weights of all classes, in shards."""

    def __init__(self, problem: SoftmaxProblem, bound: Bound, engine: Engine) -> None:
        self.rows, self.penalty, self.bound, self.engine = (
            prepare(problem), Penalty(problem), bound, engine,
        )  # fmt: skip
        self.all_blocks = range(-(-problem.n_classes // BLOCK))
        self.block_ranges = cut_leaves(len(self.all_blocks), engine.n_shards)
        self.columns = [
            slice(blocks.start * BLOCK, min(blocks.stop * BLOCK, problem.n_classes))
            for blocks in self.block_ranges
        ]
        common = Common(self.rows, self.penalty, bound, problem.n_classes)
        self.shards = engine.shards(ClassShard, common, self.block_ranges)
        self.n_classes = problem.n_classes
        self.common: Matrix | None = None
        self.parts = None if self.penalty.shared is None else CrossingParts(self.penalty, self.columns)
        self.crossing: list[Matrix] | None = None

    def round(self, shift: Matrix) -> tuple[RoundSums, Matrix]:
        """Visit all blocks; return their sums, and per row the score of the common weights, to be subtracted."""
        each = None if self.crossing is None else [(weights,) for weights in self.crossing]
        answers = self.shards.step("round", shift, self.common, each=each)
        nodes = dict(chain.from_iterable(result for result, _ in answers))
        result = add_nodes(self.all_blocks, nodes, partial(add_sums, bound=self.bound))
        self.common = result.common
        penalty, square = result.penalty - self.penalty.of_common(result.common), result.square
        if self.parts is not None:
            self.crossing, of_shared, shared_square = self.parts.solve([tied for _, tied in answers])
            penalty, square = penalty + of_shared, square + shared_square
        lost = scores(self.rows.X, result.common[:, None], self.engine).ravel()
        return result._replace(penalty=penalty, square=square), lost

    def weights(self, below: Matrix | None = None) -> Any:
        """Weights of all classes: the array of the only shard of this process, or copies, some features at a time.

        Copies are written feature by feature, so that a file is written sequentially. With `below`, a threshold per
        feature, the copies are sparse and hold the weights that are larger.
        """
        assert self.common is not None
        shard = self.shards.only()
        if shard is not None:
            return shard.hand_over(self.common)
        n_weights = self.rows.X.shape[1]
        parts = split(n_weights, size=max(1, _WEIGHTS_PER_STEP // self.n_classes))
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
        """Fetch the weights of some features from the shards, one shard after the other."""
        return (
            self.shards.ask(k, "weights", features, self.common, *below)
            for k in range(len(self.block_ranges))
        )

    def solution(self, monitor: Monitor, below: Matrix | None = None) -> SoftmaxSolution:
        """Return the solution with the weights of the classes."""
        return solution_of(monitor, self.weights(below), of_classes=True)

    def __enter__(self) -> ClassBlocks:
        return self

    def __exit__(self, *_: object) -> None:
        self.shards.close()


def solve_lc(
    problem: SoftmaxProblem, monitor: Monitor, engine: Engine, below: Matrix | None = None
) -> SoftmaxSolution:
    """Minimise through the log-concavity bound; the weights live in the shards of the engine.

    The result does not depend on their number. With `below`, a threshold per feature, only larger weights are
    gathered from remote shards, as a sparse matrix.
    """
    with ThreadpoolController().limit(limits=1, user_api="blas"), ClassBlocks(problem, LC, engine) as blocks:
        cost = blocks.rows.cost.astype(np.float64)
        xi = np.full(len(cost), np.log(problem.n_classes), problem.dtype)
        objective, done = float(cost @ xi), False
        while not done:
            before = objective
            result, lost = blocks.round(xi)
            xi = log_total(result.of_rows)
            objective = result.penalty + float(cost @ xi) - result.at_labels
            xi -= lost
            done = record_round(monitor, before, objective, result.square)
        return blocks.solution(monitor, below)


def record_round(monitor: Monitor, before: float, value: float, square: float, **extra: Any) -> bool:
    """Record a round by the gradient at its start, which bounds the optimum for the weights at its end too."""
    gap = max(value - before + square / 2, monitor.rounding * abs(value))
    return monitor.record(value, gap=gap, gradient_norm=float(np.sqrt(square)), **extra)
