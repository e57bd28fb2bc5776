"""Multinomial logistic regression by coordinate ascent in the dual, one row at a time.

The problem is that of `arbora.infer.softmax.problem`, the update of a row that of `kernels.linear.softmax`: one
product of the row with the weights, a few exponential functions per class, one update of the weights. That costs as
much as the share of the row in a gradient, and takes effect at once. Where rows have about unit length and few
features in common, as in text, a few sweeps close the relative gap to a thousandth.

The first distributions lie between the labels and the shares q of the classes, p_i = (1 - r) e_y + r q. Their weights
are r times a sparse matrix plus one of rank one, so that the best r is found before the first sweep.

Sweeps sum up an estimate of the gap at no cost. The exact gap is computed when the estimate is small enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import xlogy

from arbora.arrays import TINY, Matrix
from arbora.core.chunks import split
from arbora.core.engine import Engine, SerialEngine
from arbora.core.monitor import Monitor
from arbora.infer.softmax.problem import SoftmaxProblem, SoftmaxSolution, solution_of, squares
from arbora.kernels.linear.softmax import certify_softmax, sweep_softmax

_MAX_STEPS = 30  # of Newton's method for a row
# Mass that the last of these steps moves, over the root of the curvature of the row; the remaining error is about its
# square. Coarser steps save no time, and for large C they are no longer an ascent.
_ENOUGH, _FINE_ENOUGH = 0.1, 1e-3
_FINE = 1e-2  # relative gap below which steps are fine
_GAP_RATIO = 0.3  # first guess of the gap after a sweep over the gap that the sweep met
_MIN_NORM2 = 1e-30
_ROWS_PER_TASK, _FEATURES_PER_TASK = 1024, 4096
_PATIENCE, _WINDOW = 8, 4  # sweeps before the rate is estimated, and sweeps it is estimated from
_WORTH = 40  # expected remaining sweeps above which another method is faster


class Shares(NamedTuple):
    """Shares of every class in the parts, as CSR arrays, and the row sums of their covariance, which bound it."""

    indptr: Matrix
    parts: Matrix
    shares: Matrix
    bound: Matrix


def class_shares(problem: SoftmaxProblem) -> Shares:
    """List the shares of the classes in the parts; empty for flat classes.

    A part in which all classes have the same share moves all scores equally and is left out of the bound.

    >>> import numpy as np, scipy.sparse as sp
    >>> factor = sp.csr_array([[1.0, 1.0], [1.0, 0.0], [0.0, 2.0]])
    >>> problem = SoftmaxProblem(np.ones((1, 1)), np.array([0]), np.ones(1), 2, factor)
    >>> class_shares(problem).bound
    array([1., 4.])
    """
    dtype, factor = problem.dtype, problem.factor
    if factor is None:
        none = np.empty(0, np.int32)
        return Shares(none, none, np.empty(0, dtype), np.ones(problem.n_classes, dtype))
    shares = abs(sp.csr_array(factor))
    largest, mean = shares.max(axis=1).toarray().ravel(), shares.mean(axis=1).ravel()
    common = (factor.min(axis=1).toarray().ravel() > 0) & np.isclose(largest, mean, rtol=1e-12)
    local = shares[~common]
    by_class = sp.csr_array(sp.csc_array(factor).T)
    bound = local.T @ np.asarray(local.sum(axis=1)).ravel()
    return Shares(by_class.indptr, by_class.indices, by_class.data.astype(dtype), bound.astype(dtype))


def _start(problem: SoftmaxProblem) -> tuple[Matrix, Matrix]:
    """Best start between the labels and the shares of the classes: parts and log-distributions."""
    X, labels, cost, dtype = problem.X, problem.labels, problem.cost.astype(np.float64), problem.dtype
    count = np.bincount(labels, weights=cost, minlength=problem.n_classes)
    share = (count + 0.5 * cost.mean()) / (count.sum() + 0.5 * cost.mean() * problem.n_classes)
    at_labels = problem.indicator.astype(np.float64)
    at_labels.data *= cost
    U, of_all = sp.csr_array(X.T @ at_labels), share
    if problem.factor is not None:
        U, of_all = sp.csr_array(U @ problem.factor.T), problem.factor @ share
    Z, total = U.astype(dtype).toarray(), np.asarray(X.T @ cost).ravel()
    for rows in split(len(Z), size=_FEATURES_PER_TASK):
        Z[rows] -= np.outer(total[rows], of_all).astype(dtype)
    half, entropy = squares(Z) / 2, float(xlogy(share, share).sum())

    def minus_dual(r: float) -> float:
        probability = 1 - r + r * share  # of the label
        others = r * ((1 - share) * np.log(r) + entropy - xlogy(share, share))
        return float(r * r * half + count @ (xlogy(probability, probability) + others))

    r = float(minimize_scalar(minus_dual, bounds=(1e-6, 1.0), method="bounded").x)
    Z *= dtype.type(r)
    L = np.empty((len(labels), problem.n_classes), dtype)
    L[:] = np.log(r * share)
    L[np.arange(len(labels)), labels] = np.log(1 - r + r * share)[labels]
    return Z, L


def _is_slow(gaps: list[float], target: float) -> bool:
    """Whether too many sweeps remain at the rate of the last ones."""
    if len(gaps) < _PATIENCE or gaps[-1] <= target:
        return False
    rate = np.log(gaps[-1 - _WINDOW] / gaps[-1]) / _WINDOW
    return bool(np.log(gaps[-1] / target) > _WORTH * rate)


def solve_dual(
    problem: SoftmaxProblem,
    monitor: Monitor,
    engine: Engine | None = None,
    seed: int = 0,
    patient: bool = True,
) -> SoftmaxSolution:
    """Maximise the dual, one row at a time, in a random order from `seed`; certificates run on the engine.

    With `patient=False` the solver stops, not converged, when many sweeps remain.
    """
    problem = problem._replace(X=sp.csr_array(problem.X), cost=problem.cost.astype(problem.dtype))
    X, labels, cost, dtype = problem.X, problem.labels, problem.cost, problem.dtype
    engine = engine if engine is not None else SerialEngine()
    *shares, bound = class_shares(problem)
    norm2 = np.asarray((X.astype(np.float64) ** 2).sum(axis=1)).ravel()
    norm2 = np.maximum(norm2, _MIN_NORM2).astype(dtype)
    arrays = X.indptr, X.indices, X.data
    rng, gaps, gap_ratio, done = np.random.default_rng(seed), list[float](), _GAP_RATIO, False
    Z, L = _start(problem)
    while not done:
        fine = bool(gaps) and gaps[-1] <= _FINE * monitor.objective
        loss, half, gap = sweep_softmax(
            *arrays, norm2, cost, labels, *shares, bound, Z, L, rng.permutation(len(labels)),
            _MAX_STEPS, dtype.type(_FINE_ENOUGH if fine else _ENOUGH),
        )  # fmt: skip
        objective, gap = loss + half, max(gap, 0.0)
        gaps.append(gap)
        if gap * gap_ratio <= monitor.tol * objective or monitor.is_last:
            exact, objective = _certify(problem, shares, Z, L, engine)
            exact = gaps[-1] = max(exact, monitor.rounding * objective)
            gap_ratio = exact / max(gap, TINY)
            done = monitor.record(objective, gap=exact)
        else:
            done = monitor.record(objective, gap=gap, certified=False)
        if not patient and _is_slow(gaps, monitor.tol * objective):
            break
    return solution_of(monitor, Z)


def _certify(
    problem: SoftmaxProblem, shares: list[Any], Z: Matrix, L: Matrix, engine: Engine
) -> tuple[float, float]:
    """Duality gap and objective at Z and the distributions L."""
    X, cost, labels = problem.X, problem.cost, problem.labels

    def certify(rows: slice) -> Any:
        return certify_softmax(
            X.indptr, X.indices, X.data, cost, labels, *shares, Z, L, rows.start, rows.stop
        )

    sums = np.array(engine.map(certify, split(len(L), size=_ROWS_PER_TASK)))
    loss, gap = sums.sum(axis=0).tolist()
    return gap, loss + squares(Z) / 2
