"""Find the posterior of a tree of classes, by variational inference or by partial MAP."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.classify.bayes.map import fit_partial_map
from arbora.core.engine import Engine
from arbora.core.monitor import Progress
from arbora.core.trace import Trace
from arbora.infer.tree.blocks import Marginals
from arbora.infer.tree.dual import SparseTree
from arbora.infer.tree.gaussian import Gammas
from arbora.infer.tree.problem import TreeProblem
from arbora.infer.tree.variational import fit_tree


class TreeWeights(NamedTuple):
    """Posterior of the weights of all nodes and of the precisions, and how it was reached."""

    mean: NDArray[Any] | None  # (n_nodes, n_weights), the bias last; None if `sparse` has the weights
    marginals: Marginals | None
    gammas: Gammas
    lower_bounds: NDArray[np.float64] | None  # variational inference only
    trace: Trace
    change: float  # relative change in the last iteration
    converged: bool
    sparse: SparseTree | None = None


def find_posterior(
    problem: TreeProblem,
    inference: str,
    engine: Engine,
    *,
    tol: float,
    max_iter: int,
    prune_below: float | None = None,
    progress: Progress,
) -> TreeWeights:
    """Find the posterior of weights and precisions by variational inference or by partial MAP."""
    if inference == "variational":
        fit = fit_tree(problem, engine, tol=tol, max_iter=max_iter, progress=progress)
        mean, _, covariance, gammas = fit.posterior
        marginals = fit.marginals._replace(given_parent=covariance)
        return TreeWeights(mean, marginals, gammas, fit.lower_bounds, fit.trace, fit.change, fit.converged)
    found = fit_partial_map(
        problem, engine, tol=tol, max_iter=max_iter, prune_below=prune_below, progress=progress
    )
    (weights, spread, sparse), gammas, trace, change, converged = found
    return TreeWeights(weights, spread, gammas, None, trace, change, converged, sparse)


def expected_precisions(problem: TreeProblem, gammas: Gammas) -> NDArray[np.float64]:
    """Return the expected precision of every node around its parent; the root has the precision of its prior.

    The result has shape (n_nodes,), or (n_nodes, n_weights) if every weight has its own precision.
    """
    inside = problem.sharing.group >= 0
    precisions = np.full((problem.tree.n_nodes, gammas.rate.shape[1]), problem.root.precision)
    precisions[inside] = gammas.mean[problem.sharing.group[inside]]
    return precisions if problem.sharing.by_weight else precisions[:, 0]


def keep_dense(estimator: Any, problem: TreeProblem, posterior: TreeWeights) -> None:
    """Set the attributes of a classifier whose weights are dense."""
    mean, marginals = posterior.mean, posterior.marginals
    if mean is None or marginals is None:
        raise ValueError("the posterior has sparse weights: use keep_sparse.")
    d, n_nodes = problem.X.shape[1], problem.tree.n_nodes
    std = np.sqrt(marginals.variance)
    if marginals.covariance is not None:
        estimator.marginal_covariance_ = marginals.covariance
        estimator.coef_covariance_ = marginals.given_parent
    if marginals.contrast is not None:
        estimator.difference_covariance_ = marginals.contrast
    if posterior.lower_bounds is not None:
        estimator.lower_bounds_ = posterior.lower_bounds
    estimator.node_coef_, estimator.node_coef_std_ = np.ascontiguousarray(mean[:, :d]), std[:, :d]
    estimator.node_intercept_ = mean[:, d] if problem.bias else np.zeros(n_nodes)
    estimator.node_intercept_std_ = std[:, d] if problem.bias else np.zeros(n_nodes)
