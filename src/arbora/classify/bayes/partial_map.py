"""Partial maximum a posteriori inference: the mode of the weights, the distribution of the precisions.

Where a full covariance of the weights is too large, q(w_n) is a Gaussian around the maximum a posteriori weights of
all nodes given the expected precisions, with the diagonal of a Laplace approximation as covariance; q of the
precisions is updated as in variational inference. The two updates alternate, with warm starts of the weights, until
the precisions converge (S. Gopal et al. 2012, section 3.2).

A round is a fixed-point step, not an ascent: there is no bound to monitor. The criterion is the relative change of
the expected precisions, its root mean square. (Not the largest change: in M2 the precision of a weight that no child
needs grows without limit, and this changes nothing.) Plain rounds converge slowly. Anderson's method (1965) mixes the
last few of them, in the logarithms of the precisions, and restarts when a mixed step was no better than the one
before. A mixed step is an extrapolation, and under a vague prior the rounds are far from linear: it stays within
`_FARTHEST` of the plain round, a factor of twenty in a precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.classify.bayes.map_solver import MapPosterior, make_solver
from arbora.classify.bayes.priors import MOST_PRECISION
from arbora.core.engine import Engine
from arbora.core.monitor import Monitor, Progress
from arbora.core.trace import Trace
from arbora.infer.tree.gaussian import Gammas, node_precisions, update_gammas
from arbora.infer.tree.problem import TreeProblem

_MEMORY = 5  # number of rounds that are mixed
_RCOND = 1e-8
_FARTHEST = 3.0  # largest distance of a mixed step from the plain round: the logarithm of a factor
_LOG_PRECISION = float(np.log(MOST_PRECISION))  # precisions stay between this and its inverse


class MapFit(NamedTuple):
    """Most probable weights with their variances, distributions of the precisions, and history."""

    posterior: MapPosterior
    gammas: Gammas
    trace: Trace
    change: float  # relative change of the precisions in the last round
    converged: bool


def node_scalars(problem: TreeProblem, gammas: Gammas) -> NDArray[np.float64]:
    """Compute the expected precision of each node: one number, or with M2 one for each weight."""
    if problem.sharing.by_weight:
        return node_precisions(problem.sharing, gammas, problem.root, problem.n_weights)
    return node_precisions(problem.sharing, gammas, problem.root, 1)[:, 0]


class AndersonMixing:
    """Anderson acceleration of a fixed-point iteration x <- g(x).

    Parameters
    ----------
    memory : int
        Number of rounds that are mixed.

    Examples
    --------
    >>> mixing, x = AndersonMixing(3), np.array([1.0, 1.0])
    >>> for _ in range(4):
    ...     x = mixing.next(x, np.array([0.9, -0.5]) * x)  # a linear map with two rates: two rounds suffice
    >>> bool(np.abs(x).max() < 1e-12)
    True
    """

    def __init__(self, memory: int = _MEMORY) -> None:
        self.memory = memory
        self.rounds: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def next(self, x: NDArray[Any], image: NDArray[Any]) -> NDArray[Any]:
        """Next iterate after x, given the image g(x)."""
        step = image - x
        if self.rounds and np.linalg.norm(step) > np.linalg.norm(self.rounds[-1][1]):
            self.rounds.clear()
        self.rounds = [*self.rounds, (image, step)][-self.memory - 1 :]
        images, steps = (np.diff(np.array(values), axis=0) for values in zip(*self.rounds, strict=True))
        if not len(steps):
            return image
        share = np.linalg.lstsq(steps.T, step, rcond=_RCOND)[0]
        away = share @ images
        return image - np.clip(away, -_FARTHEST, _FARTHEST) if np.isfinite(away).all() else image


def fit_partial_map(
    problem: TreeProblem,
    engine: Engine,
    *,
    tol: float,
    max_iter: int,
    prune_below: float | None = None,
    progress: Progress | None = None,
) -> MapFit:
    """Alternate between weights and precisions until the precisions converge.

    Parameters
    ----------
    problem : TreeProblem
        The precision of the roots is a single number.
    engine : Engine
        With remote shards the problem must suit the dual: logistic, with one precision per node.
    tol : float
        Relative change of the expected precisions, its root mean square, at which to stop.
    max_iter : int
        Maximum number of rounds.
    prune_below : float, optional
        Keep only differences from the parents above this value, as a sparse matrix. No dense matrix of all weights is
        made. The problem must be logistic, with one precision per node.
    """
    tree, sharing, prior, n_weights = problem.tree, problem.sharing, problem.prior, problem.n_weights
    nothing = np.zeros((tree.n_nodes, n_weights if sharing.by_weight else 1))
    shape = update_gammas(sharing, prior, nothing, n_weights).shape
    low, high = np.log(shape) - _LOG_PRECISION, np.log(shape) + _LOG_PRECISION
    rate = np.log(shape) + np.log(prior.rate) - np.log(prior.shape)  # the precisions that the prior expects
    monitor, mixing, change, done = Monitor(tol, max_iter, progress), AndersonMixing(), np.inf, False
    first = problem.given(node_scalars(problem, Gammas(shape, np.exp(rate))))
    inner = make_solver(first, tree, sharing, engine, tol, prune_below)
    try:
        while not done:
            given = problem.given(node_scalars(problem, Gammas(shape, np.exp(rate))))
            reached = inner.tolerance(change, tol)
            objective, deviation, n_steps, settled = inner.solve(given, reached)
            gammas = update_gammas(sharing, prior, deviation, n_weights)
            image = np.clip(np.log(gammas.rate), low, high)
            change = float(np.sqrt(np.mean((image - rate) ** 2))) if rate.size else 0.0
            rate = np.clip(mixing.next(rate.ravel(), image.ravel()).reshape(rate.shape), low, high)
            tight = reached <= inner.tolerance(0.0, tol)
            done = monitor.record(objective, change=change, certified=tight, steps=n_steps)
        posterior = inner.posterior()
    finally:
        inner.close()
    return MapFit(posterior, gammas, monitor.trace, change, settled and monitor.converged)
