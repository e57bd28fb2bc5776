"""Multinomial logistic regression by double majorisation (DM), a looser bound that splits over the classes.

With one number a_i for every row (G. Bouchard 2007, Efficient bounds for the softmax function),

    log sum_k exp(s_k) <= a + sum_k log(1 + exp(s_k - a)),        tightest where sum_k sigmoid(s_k - a) = 1,

the bound is that of one logistic regression for every class, with a common shift. It is minimised over weights and
shifts in turn, in the blocks of `arbora.infer.softmax.lc`. The bound is never tight for three or more classes, so its
minimiser is not that of the softmax: the solver serves for comparison. It stores the scores of all pairs of rows and
classes, to find the shifts.

The bound is minimised and certified. The objective of the softmax is an additional column of the trace.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
from scipy.special import expit
from threadpoolctl import ThreadpoolController

from arbora.arrays import Matrix
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor
from arbora.infer.softmax.lc import log_total, merge, partial_sums
from arbora.infer.softmax.problem import SoftmaxProblem, SoftmaxSolution
from arbora.infer.softmax.shards import Bound, ClassBlocks, record_round

_MAX_STEPS = 100


def softplus(r: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Value, slope and curvature of the term of a score in the bound."""
    slope = expit(r)
    return np.logaddexp(r, r.dtype.type(0)), slope, slope * (1 - slope)


def tighten(blocks: list[Matrix], a: Matrix) -> Matrix:
    """Solve sum_k sigmoid(s_ik - a_i) = 1 for every row, by safeguarded Newton steps.

    At a = log sum_k exp(s_ik) the sum is below 1, at the smallest score it is not.
    """
    low = np.min([S.min(axis=1) for S in blocks], axis=0)
    high = log_total(reduce(merge, map(partial_sums, blocks)))
    a = np.clip(a, low, high)
    for _ in range(_MAX_STEPS):
        total, steep = np.full_like(a, -1), np.zeros_like(a)
        for S in blocks:
            p = expit(S - a[:, None])
            total += p.sum(axis=1)
            steep += (p * (1 - p)).sum(axis=1)
        low, high = np.where(total >= 0, a, low), np.where(total <= 0, a, high)
        # Where the sum is flat, the step is too long and replaced by a bisection.
        with np.errstate(over="ignore"):
            new = a + total / np.maximum(steep, np.finfo(a.dtype).tiny)
        new = np.where((new >= low) & (new <= high), new, (low + high) / 2)
        done = np.abs(new - a) <= 4 * np.finfo(a.dtype).eps * np.maximum(np.abs(a), 1)
        a = new
        if done.all():
            break
    return a


def as_list(S: Matrix) -> list[Matrix]:
    """All scores of a block, which the shifts need."""
    return [S]


DM = Bound(softplus, as_list, add)


def _bound(cost: Matrix, blocks: list[Matrix], a: Matrix) -> float:
    """Sum over the rows of the bound of log sum_k exp(s_ik)."""
    return float(cost @ (a + sum(softplus(S - a[:, None])[0].sum(axis=1) for S in blocks)))


def solve_dm(problem: SoftmaxProblem, monitor: Monitor, engine: Engine) -> SoftmaxSolution:
    """Minimise Bouchard's bound of the softmax; the column "softmax" of the trace is the objective of the softmax."""
    with ThreadpoolController().limit(limits=1, user_api="blas"), ClassBlocks(problem, DM, engine) as blocks:
        cost = blocks.rows.cost.astype(np.float64)
        S = [np.zeros((len(cost), problem.n_classes), problem.dtype)]
        a = tighten(S, np.zeros(len(cost), problem.dtype))
        bound, done = _bound(cost, S, a), False
        while not done:
            before = bound
            result, lost = blocks.round(a)
            S = [scores - lost[:, None] for scores in result.of_rows]
            a = tighten(S, a - lost)
            rest = result.penalty - result.at_labels + float(cost @ lost)
            bound = rest + _bound(cost, S, a)
            softmax = rest + float(cost @ log_total(reduce(merge, map(partial_sums, S))))
            done = record_round(monitor, before, bound, result.square, softmax=softmax)
        return blocks.solution(monitor)
