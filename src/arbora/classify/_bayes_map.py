"""Partial maximum a posteriori: weights by their mode, precisions by their distribution.

Where a full covariance of the weights is out of reach, q(w_n) becomes a Gaussian around the most probable weights of
all nodes given the expected precisions, its covariance the diagonal of a Laplace approximation; q of the precisions
is updated as ever. The two take turns, the weights starting from those before, until the precisions rest (S. Gopal et
al. 2012, section 3.2).

A round is a fixed-point step, not an ascent: there is no bound to watch. What is watched is the relative change of
the expected precisions, its root mean square. (Not the largest: in M2 the precision of a weight that no child needs
grows without end, and that changes nothing.) Plain rounds close in slowly; Anderson's method (1965) mixes the last
few of them, in the logarithms of the precisions, and begins anew when a mixture was no better than what it came from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.infer import Progress, Trace
from arbora.infer.gaussian_tree import Gammas, node_precisions, spreads, update_gammas
from arbora.infer.tree_map import laplace_diagonal, solve_map
from arbora.infer.tree_problem import TreeProblem

_INNER_STEPS = 100
_INNER_SHARE = 0.01  # tolerance of the weights over the last change of the precisions
_MEMORY = 5  # rounds that are mixed
_RCOND = 1e-8


class MapFit(NamedTuple):
    """Most probable weights, Laplace variances, distributions of the precisions, and the rounds on the way."""

    mean: NDArray[Any]
    variance: NDArray[Any]
    gammas: Gammas
    trace: Trace
    converged: bool


def node_scalars(problem: TreeProblem, gammas: Gammas) -> NDArray[np.float64]:
    """Compute the expected precision of each node: one number, or with M2 one for each weight."""
    if problem.sharing.by_weight:
        return node_precisions(problem.sharing, gammas, problem.root, problem.n_weights)
    return node_precisions(problem.sharing, gammas, problem.root, 1)[:, 0]


class Mixture:
    """Anderson's acceleration of a fixed-point iteration x <- g(x).

    Parameters
    ----------
    memory : int
        How many rounds are mixed.

    Examples
    --------
    >>> mixture, x = Mixture(3), np.array([1.0, 1.0])
    >>> for _ in range(4):
    ...     x = mixture.next(x, np.array([0.9, -0.5]) * x)  # a linear map of two rates: two rounds tell all
    >>> bool(np.abs(x).max() < 1e-12)
    True
    """

    def __init__(self, memory: int = _MEMORY) -> None:
        self.memory = memory
        self.rounds: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def next(self, x: NDArray[Any], image: NDArray[Any]) -> NDArray[Any]:
        """Where to go from x, of which the image g(x) is given."""
        step = image - x
        if self.rounds and np.linalg.norm(step) > np.linalg.norm(self.rounds[-1][1]):
            self.rounds.clear()
        self.rounds = [*self.rounds, (image, step)][-self.memory - 1 :]
        images, steps = (np.diff(np.array(values), axis=0) for values in zip(*self.rounds, strict=True))
        if not len(steps):
            return image
        share = np.linalg.lstsq(steps.T, step, rcond=_RCOND)[0]
        return image - share @ images


def fit_partial_map(
    problem: TreeProblem, engine: Any, *, tol: float, max_iter: int, progress: Progress | None = None
) -> MapFit:
    """Take turns between weights and precisions until these rest.

    Parameters
    ----------
    problem : TreeProblem
        Root precision a number.
    engine : object with ``map(function, items)``
    tol : float
        Relative change of the expected precisions, its root mean square, at which to stop.
    max_iter : int
        Most rounds.
    """
    tree, sharing, prior, n_weights = problem.tree, problem.sharing, problem.prior, problem.n_weights
    nothing = np.zeros((tree.n_nodes, n_weights if sharing.by_weight else 1))
    shape = update_gammas(sharing, prior, nothing, n_weights).shape
    rate = np.log(shape * prior.rate / prior.shape)  # the precisions that the prior expects
    trace, mixture, start, change, inner = Trace(), Mixture(), None, np.inf, np.inf
    while len(trace) < max_iter and (change > tol or inner > _INNER_SHARE * tol):
        weights = problem.given(node_scalars(problem, Gammas(shape, np.exp(rate))))
        inner = _INNER_SHARE * max(min(change, 1.0), tol)
        solution = solve_map(weights, start, tol=inner, max_iter=_INNER_STEPS, engine=engine)
        start, variance = solution.weights, laplace_diagonal(weights, solution, engine=engine)
        gammas = update_gammas(sharing, prior, spreads(tree, sharing, start, variance), n_weights)
        image = np.log(gammas.rate)
        change = float(np.sqrt(np.mean((image - rate) ** 2))) if rate.size else 0.0
        rate = mixture.next(rate.ravel(), image.ravel()).reshape(rate.shape)
        trace.append(objective=solution.objective, gap=change, steps=len(solution.history))
        if progress is not None:
            progress.update(objective=solution.objective, gap=change)
    return MapFit(start, variance, gammas, trace, change <= tol and inner <= _INNER_SHARE * tol)
