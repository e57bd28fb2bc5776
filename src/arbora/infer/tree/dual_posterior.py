"""Posterior of a tree whose weights were found in the dual, block by block of classes.

A dense matrix of the weights of all nodes, or of their variances, may not fit into memory: a million features and
ten thousand classes are 10^10 numbers. Nothing here needs one.

- The parts v_n of a solution are the differences of the nodes from their parents times sqrt(a_n). For given weights
  of the classes they are those with the smallest prior, since v = F u for some u: the conditional means of all nodes.
- The precisions need, for every node, only sums over the weights: the squared difference, and the Laplace variances

      1 / (s_n + h_nj),    s_n = a_n + precisions of the children,    h_cj = sum_i r_i x_ij^2 p_ic (1 - p_ic),

  where h is zero for nodes without a class and for features that do not occur.
- The model is stored as sparse differences, and the variances as sparse reductions of 1 / s_n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from arbora.core.products import csr_matmul
from arbora.infer.linear.coupled import CoupledSolver
from arbora.infer.tree.dual import DualSolution, TreeDual
from arbora.infer.tree.gaussian import posterior_precisions
from arbora.infer.tree.problem import row_weights
from arbora.infer.tree_sum import pruned

LEAST_REDUCTION = 0.01  # smallest relative reduction of a variance that a sparse model stores

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """Sums over the weights of every node: squared differences from the parent, and Laplace variances."""

    squares: Array
    variances: Array


class SparseTree(NamedTuple):
    """Weights of all nodes as sparse differences from the parents, and variances as reductions of a common one.

    The Laplace variance of weight j of class c is `variance` of its node minus entry (c, j) of `reductions`; other
    nodes have `variance` for all weights. Biases are stored apart, and are not pruned.
    """

    differences: sp.csr_array  # (n_nodes, n_features); the root from the mean of the prior
    bias: Array  # (n_nodes,), differences too
    variance: Array  # (n_nodes,)
    reductions: sp.csr_array  # (n_classes, n_features)
    bias_variance: Array  # (n_nodes,)


class DualPosterior:
    """Moments and models from a solution in the dual.

    Parameters
    ----------
    dual : TreeDual

    Examples
    --------
    A root with two leaves:

    >>> from arbora.engine import ThreadEngine
    >>> from arbora.infer.tree.problem import MapProblem
    >>> X, Y = sp.csr_array([[2.0], [-1.0]]), sp.csr_array(np.eye(2))
    >>> problem = MapProblem(X, Y, None, np.array([-1, 0, 0]), np.array([1, 2]), np.ones(3), 0.0, "logistic", 0.0)
    >>> dual = TreeDual(problem, ThreadEngine())
    >>> found = dual.solve(np.ones(3), tol=1e-8)
    >>> DualPosterior(dual).moments(found).squares.round(2)
    array([0.  , 0.51, 0.51])
    """

    def __init__(self, dual: TreeDual) -> None:
        self.dual, rows = dual, dual.rows
        shape = rows.n_samples, rows.n_features
        self.X = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=shape)
        self.squares = sp.csr_array((self.X * self.X).T)
        self.weight = row_weights(dual.problem).astype(rows.dtype)[:, None]

    def _own(self, found: DualSolution) -> Array:
        """Precision of a weight of every node given those of its neighbours in the tree, without data."""
        return posterior_precisions(np.asarray(self.dual.problem.parent), found.precision[:, None])[:, 0]

    def _curvature(self, k: int, joint: CoupledSolver, found: DualSolution) -> NDArray[Any]:
        """Sum over the rows of r x^2 p (1 - p): (n_features + 1, n_block), bias last."""
        W, bias = joint.weights(k, found.coupled), self.dual.rows.bias
        P = csr_matmul(self.X, W[:-1])
        P += bias * W[-1]
        P = expit(P, out=P)
        P *= 1 - P
        P *= self.weight
        out = np.empty_like(W)
        csr_matmul(self.squares, P, out=out[:-1])
        out[-1] = bias**2 * P.sum(axis=0)
        return out

    def _classes(self, k: int, joint: CoupledSolver) -> NDArray[np.int64]:
        block = joint.layout.blocks[k]
        return self.dual.order[block.start : block.stop]

    def moments(self, found: DualSolution) -> Moments:
        """Sum over the weights of every node."""
        dual, problem = self.dual, self.dual.problem
        own, n_used = self._own(found), len(dual.seen) + bool(problem.bias)
        squares, variances = np.zeros(len(own)), problem.n_weights / own

        def of_block(k: int, joint: CoupledSolver) -> None:
            parts = joint.parts(k, found.coupled)
            owned = dual.nodes[joint.layout.owned[k]]
            squares[owned] = np.einsum("nj,nj->n", parts, parts, dtype=np.float64)
            del parts
            nodes = np.asarray(problem.class_node)[self._classes(k, joint)]
            curvature = self._curvature(k, joint, found)[:n_used]
            reduced = curvature / (own[nodes] * (own[nodes] + curvature)).astype(curvature.dtype)
            variances[nodes] -= reduced.sum(axis=0, dtype=np.float64)

        dual.each_block(of_block)
        joint = dual.joint
        assert joint is not None
        for p, part in enumerate(joint.layout.shared.tolist()):
            v = dual.shared_part(p, found)
            squares[dual.nodes[part]] = np.einsum("nj,nj->", v, v, dtype=np.float64)
        return Moments(squares / found.precision, variances)

    def variances(self, found: DualSolution) -> Array:
        """Laplace variances (n_nodes, n_weights) as a dense matrix, bias last."""
        dual, problem = self.dual, self.dual.problem
        own, n_features = self._own(found), problem.X.shape[1]
        columns = np.append(dual.seen, np.arange(n_features, problem.n_weights))
        out = np.repeat(1 / own[:, None], problem.n_weights, axis=1)

        def fill(k: int, joint: CoupledSolver) -> None:
            nodes = np.asarray(problem.class_node)[self._classes(k, joint)]
            curvature = self._curvature(k, joint, found)[: len(columns)]
            out[nodes[:, None], columns] = 1 / (own[nodes] + curvature).T

        dual.each_block(fill)
        return out

    def sparse(self, found: DualSolution, prune_below: float) -> SparseTree:
        """Differences with an absolute value above `prune_below`, and reductions of at least `LEAST_REDUCTION`."""
        dual, problem = self.dual, self.dual.problem
        own, scale = self._own(found), found.precision**-0.5
        shape = len(problem.parent), problem.X.shape[1]
        bias, bias_variance = np.zeros(len(own)), 1 / own

        def cut(V: NDArray[Any], nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], sp.csr_array]:
            bias[nodes] = V[:, -1] * scale[nodes]
            V = V[:, :-1] * scale[nodes][:, None].astype(V.dtype)
            return nodes, pruned(V, prune_below)

        def of_block(k: int, joint: CoupledSolver) -> Any:
            return cut(joint.parts(k, found.coupled), dual.nodes[joint.layout.owned[k]])

        def reductions(k: int, joint: CoupledSolver) -> tuple[NDArray[np.int64], sp.csr_array]:
            classes = self._classes(k, joint)
            nodes = np.asarray(problem.class_node)[classes]
            curvature = self._curvature(k, joint, found)
            share = curvature / (own[nodes].astype(curvature.dtype) + curvature)
            bias_variance[nodes] *= 1 - share[-1]
            kept = pruned(np.ascontiguousarray(share[:-1].T), LEAST_REDUCTION)
            return classes, sp.csr_array(sp.diags_array(1 / own[nodes]).astype(kept.dtype) @ kept)

        pieces = dual.each_block(of_block)
        joint = dual.joint
        assert joint is not None
        for p, part in enumerate(joint.layout.shared.tolist()):
            pieces.append(cut(dual.shared_part(p, found), dual.nodes[[part]]))
        drops = dual.each_block(reductions)
        return SparseTree(
            self._stack(pieces, shape),
            bias,
            1 / own,
            self._stack(drops, (len(problem.class_node), shape[1])),
            bias_variance,
        )

    def _stack(
        self, pieces: list[tuple[NDArray[np.int64], sp.csr_array]], shape: tuple[int, int]
    ) -> sp.csr_array:
        """Rows of the pieces in their places, with the features that do not occur."""
        rows = np.concatenate([rows for rows, _ in pieces])
        values = sp.csr_array(sp.vstack([values for _, values in pieces], format="csr"))
        empty = np.setdiff1d(np.arange(shape[0]), rows)
        place = np.argsort(np.concatenate([rows, empty]), kind="stable")
        indptr = np.append(values.indptr, np.full(len(empty), values.indptr[-1]))
        columns = self.dual.seen.astype(values.indices.dtype)[values.indices]
        stacked = sp.csr_array((values.data, columns, indptr), shape=shape)[place]
        stacked.sort_indices()  # the features of the dual are in the order of their frequency
        return stacked
