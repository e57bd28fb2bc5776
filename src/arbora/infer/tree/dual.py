"""Maximum a posteriori weights of a tree by dual coordinate descent: logistic likelihood, sparse rows.

The problem is that of `arbora.infer.tree.map`, with one precision for all weights of a node. For text its Newton
steps are expensive: every product passes over dense matrices of features by classes. In the dual there is a
multiplier for every row and class, and the weights of class c are a sum of parts, the differences of the nodes above
it from their parents,

    w_c = m + sum_{n above or at c} v_n / sqrt(a_n),        1/2 sum_n ||v_n||^2 the prior.

This is the problem of `arbora.infer.linear.coupled`, solved block by block of classes to a certified duality gap.
Multipliers are feasible for any precisions: those of one solution are a good start for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.chunks import require_memory
from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.core.trace import Trace
from arbora.infer.linear.coupled import CoupledSolution, CoupledSolver, Feasible, Multipliers
from arbora.infer.linear.layout import lay_out
from arbora.infer.linear.rows import prepare_rows, view_by_frequency
from arbora.infer.linear.shards import Resident, ShardedCoupledSolver, coupled_solver
from arbora.infer.tree.blocks import suits_blocks
from arbora.infer.tree.gaussian import posterior_precisions
from arbora.infer.tree.problem import MapProblem, TreePrior, root_means, row_weights
from arbora.infer.tree_sum import pruned

T = TypeVar("T")


@dataclass(frozen=True)
class TreeCosts:
    """Weights of rows with the signs of their labels, for a block of classes."""

    positives: sp.csc_array
    weight: Matrix

    def __call__(self, block: range, ids: Ints) -> Matrix:
        """Signs times weights, len(ids) x len(block)."""
        positive = self.positives[:, block.start : block.stop]
        positive = positive if len(ids) == positive.shape[0] else sp.csc_array(positive[ids])
        cost = np.repeat(-self.weight[ids][:, None], len(block), axis=1)
        column = np.repeat(np.arange(len(block)), np.diff(positive.indptr))
        cost[positive.indices, column] *= -1
        return cost


@dataclass(frozen=True)
class SameForAll:
    """The same weights for all classes."""

    weights: Matrix

    def __call__(self, block: range) -> Matrix:
        """Weights, len(weights) x len(block)."""
        return np.repeat(self.weights[:, None], len(block), axis=1)


class DualSolution(NamedTuple):
    """Solution for given precisions: certified relative gap, history, and multipliers for a restart."""

    precision: Array  # of the nodes
    objective: float
    gap: float
    trace: Trace
    converged: bool
    coupled: CoupledSolution

    @property
    def multipliers(self) -> list[Multipliers]:
        """Multipliers of all blocks: a start for other precisions. The next solution may change the list."""
        blocks = self.coupled.multipliers
        return blocks if isinstance(blocks, Resident | Feasible) else Feasible(blocks)


def dual_memory(problem: MapProblem, n_seen: int, itemsize: int, engine: Engine) -> int:
    """Bytes of a fit in the dual for `n_seen` features that occur, without rows and results."""
    n_samples, n_classes = problem.X.shape[0], len(problem.class_node)
    paths = paths_up(problem.parent, problem.class_node)
    layout = lay_out(_factor(paths[:, order_of_tree(paths)], np.ones(len(problem.parent))))
    n_block, width = max(map(len, layout.blocks)), n_seen + 1
    triple = itemsize + 5  # a multiplier with its row and column
    # The multipliers of a wave are kept beside those before it until the shared parts are updated.
    n_bytes = len(layout.shared) * width * itemsize
    n_bytes += engine.bytes_here(triple * n_samples * (n_classes + n_block * max(map(len, layout.waves))))
    visit = n_block * (n_samples * (2 * itemsize + triple) + 2 * width * itemsize)
    return int(n_bytes + min(engine.n_workers, len(layout.blocks)) * visit)


def suits_dual(problem: MapProblem) -> bool:
    """Whether a problem suits dual coordinate descent: sparse rows, many features, independent classes."""
    few = suits_blocks(len(problem.parent), problem.n_weights)
    return (
        problem.likelihood == "logistic"
        and np.ndim(problem.precision) == 1
        and sp.issparse(problem.X)
        and not few
    )


def paths_up(parent: Matrix, class_node: Matrix) -> Ints:
    """Nodes above each class, itself first, one column per class; -1 above the roots.

    >>> paths_up(np.array([-1, 0, 0, 2]), np.array([1, 3]))
    array([[ 1,  3],
           [ 0,  2],
           [-1,  0]])
    """
    rows, nodes = [], np.asarray(class_node, np.int64)
    while (nodes >= 0).any():
        rows.append(nodes)
        nodes = np.where(nodes >= 0, np.asarray(parent)[nodes], -1)
    return np.array(rows)


def order_of_tree(paths: Ints) -> Ints:
    """Order of the classes in which the classes below any node are consecutive."""
    depth = (paths >= 0).sum(axis=0) - 1
    from_root = np.full_like(paths, -1)
    steps, classes = np.nonzero(paths >= 0)
    from_root[depth[classes] - steps, classes] = paths[steps, classes]
    return np.lexsort(from_root[::-1])


def _factor(paths: Ints, precision: Matrix) -> sp.csc_array:
    """Shares of the classes in the parts, a_n^-1/2; the parts are the nodes on the paths, sorted."""
    steps, classes = np.nonzero(paths >= 0)
    nodes = paths[steps, classes]
    return sp.csc_array((precision[nodes] ** -0.5, (np.unique(nodes, return_inverse=True)[1], classes)))


class TreeDual:
    """A problem that `suits_dual`, solved for several precisions of its nodes; its own precisions are not used."""

    def __init__(self, problem: MapProblem, engine: Engine, dtype: Any = np.float64) -> None:
        self.problem, self.engine = problem, engine
        X = sp.csr_array(problem.X)
        self.seen = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
        self._require_memory(np.dtype(dtype).itemsize)
        X = X if len(self.seen) == X.shape[1] else sp.csr_array(X[:, self.seen])
        _, ranked, self.rows = view_by_frequency(prepare_rows(X, dtype, problem.bias))
        self.seen = self.seen[ranked[:-1]]
        self.paths = paths_up(problem.parent, problem.class_node)
        self.order = order_of_tree(self.paths)
        self.nodes = np.unique(self.paths[self.paths >= 0])  # those with a class at or below them: the parts
        positives = sp.csc_array(problem.Y, dtype=dtype)[:, self.order]
        self.costs = TreeCosts(positives, row_weights(problem).astype(dtype))
        self.mean = root_means(problem)
        at_seen = np.append(self.mean[self.seen], self.mean[problem.X.shape[1] :] if problem.bias else 0.0)
        self.offset = SameForAll(at_seen) if at_seen.any() else None
        self.joint: CoupledSolver | None = None

    def _require_memory(self, itemsize: int) -> None:
        problem = self.problem
        n_samples, n_classes, n_nodes = problem.X.shape[0], len(problem.class_node), len(problem.parent)
        require_memory(
            dual_memory(problem, len(self.seen), itemsize, self.engine),
            f"Training {n_classes} classes in a tree of {n_nodes} nodes on {n_samples} rows with {len(self.seen)} "
            "features",
            "Use fewer rows, or fewer features (for text: a larger min_df).",
        )

    def _joint(self, factor: sp.csc_array) -> CoupledSolver:
        """Return the solver with these shares; shards are made once and keep their multipliers."""
        if self.joint is None:
            problem = self.rows, self.costs, factor, "logistic", self.engine, self.offset
            # Weights are fetched after every solution.
            self.joint = coupled_solver(*problem, asked_between=True)
        else:
            self.joint.couple(factor)
        return self.joint

    def close(self) -> None:
        """Free the remote shards."""
        if self.joint is not None:
            self.joint.close()

    def solve(
        self,
        precision: Matrix,
        start: list[Multipliers] | None = None,
        *,
        tol: float = 1e-3,
        max_iter: int = 1000,
    ) -> DualSolution:
        """Find the maximum a posteriori weights for given precisions of the nodes, to the relative duality gap `tol`.

        `start` holds the multipliers of a solution for other precisions, which is not used any more. A round visits
        all rows and classes.
        """
        factor = _factor(self.paths[:, self.order], precision)
        coupled = self._joint(factor).solve(tol=tol, max_iter=max_iter, multipliers=start)
        objective, gap = coupled.certificate.objective, coupled.certificate.gap
        relative = gap / max(objective, TINY)
        of_nodes = np.asarray(precision, np.float64)
        return DualSolution(of_nodes, objective, relative, coupled.trace, coupled.converged, coupled)

    def each_block(self, function: Callable[[int, CoupledSolver], T]) -> list[T]:
        """Call a function with the number of every block and the solver."""
        joint = self.joint
        assert joint is not None, "solve first"
        return self.engine.map(lambda k: function(k, joint), range(len(joint.layout.blocks)))

    def shared_part(self, p: int, solution: DualSolution) -> Matrix:
        """Part p that several blocks share, as a row (1, n_seen + 1), bias last."""
        if isinstance(self.joint, ShardedCoupledSolver):
            return self.joint.shared_part(p)
        return solution.coupled.shared[p : p + 1]

    def weights(self, solution: DualSolution) -> Matrix:
        """Weights (n_nodes, n_weights) of all nodes, bias last."""
        n_weights = self.problem.n_weights
        features = np.append(self.seen, np.arange(self.problem.X.shape[1], n_weights))
        W = np.repeat(np.array(self.mean, np.float64)[:, None], len(self.order), axis=1)

        def fill(k: int, joint: CoupledSolver) -> None:
            block = joint.layout.blocks[k]
            columns = self.order[block.start : block.stop]
            W[features[:, None], columns] = joint.weights(k, solution.coupled)[: len(features)]

        self.each_block(fill)
        prior = TreePrior(self.problem.parent, self.problem.class_node, solution.precision, self.engine)
        return prior.all_nodes(W - self.mean[:, None]) + self.mean


# --- Posterior of a tree whose weights were found in the dual, block by block of classes --------------------
#
# A dense matrix of the weights of all nodes, or of their variances, may not fit into memory: a million features and
# ten thousand classes are 10^10 numbers. Nothing here needs one.
#
# - The parts v_n of a solution are the differences of the nodes from their parents times sqrt(a_n). For given weights
# of the classes they are those with the smallest prior, since v = F u for some u: the conditional means of all
# nodes.
# - The precisions need, for every node, only sums over the weights: the squared difference, and the Laplace variances
#
#       1 / (s_n + h_nj),    s_n = a_n + precisions of the children,    h_cj = sum_i r_i x_ij^2 p_ic (1 - p_ic),
#
#   where h is zero for nodes without a class and for features that do not occur.
# - The model is stored as sparse differences, and the variances as sparse reductions of 1 / s_n.


MIN_REDUCTION = 0.01  # smallest relative reduction of a variance that a sparse model stores


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
    """Moments and models from a solution in the dual."""

    def __init__(self, dual: TreeDual) -> None:
        self.dual, rows = dual, dual.rows
        shape = rows.n_samples, rows.n_features
        self.X = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=shape)
        self.squares = sp.csr_array((self.X * self.X).T)
        self.weight = row_weights(dual.problem).astype(rows.dtype)[:, None]

    def _precisions(self, solution: DualSolution) -> Array:
        """Precision of a weight of every node given those of its neighbours in the tree, without data."""
        return posterior_precisions(np.asarray(self.dual.problem.parent), solution.precision[:, None])[:, 0]

    def _curvature(self, k: int, joint: CoupledSolver, solution: DualSolution) -> Matrix:
        """Sum over the rows of r x^2 p (1 - p): (n_features + 1, n_block), bias last."""
        W, bias = joint.weights(k, solution.coupled), self.dual.rows.bias
        P = csr_matmul(self.X, W[:-1])
        P += bias * W[-1]
        P = expit(P, out=P)
        P *= 1 - P
        P *= self.weight
        out = np.empty_like(W)
        csr_matmul(self.squares, P, out=out[:-1])
        out[-1] = bias**2 * P.sum(axis=0)
        return out

    def _classes(self, k: int, joint: CoupledSolver) -> Ints:
        block = joint.layout.blocks[k]
        return self.dual.order[block.start : block.stop]

    def moments(self, solution: DualSolution) -> Moments:
        """Sum over the weights of every node."""
        dual, problem = self.dual, self.dual.problem
        precisions, n_used = self._precisions(solution), len(dual.seen) + bool(problem.bias)
        squares, variances = np.zeros(len(precisions)), problem.n_weights / precisions

        def of_block(k: int, joint: CoupledSolver) -> None:
            parts = joint.parts(k, solution.coupled)
            owned = dual.nodes[joint.layout.owned[k]]
            squares[owned] = np.einsum("nj,nj->n", parts, parts, dtype=np.float64)
            del parts
            nodes = np.asarray(problem.class_node)[self._classes(k, joint)]
            curvature = self._curvature(k, joint, solution)[:n_used]
            reduced = curvature / (precisions[nodes] * (precisions[nodes] + curvature)).astype(
                curvature.dtype
            )
            variances[nodes] -= reduced.sum(axis=0, dtype=np.float64)

        dual.each_block(of_block)
        joint = dual.joint
        assert joint is not None
        for p, part in enumerate(joint.layout.shared.tolist()):
            v = dual.shared_part(p, solution)
            squares[dual.nodes[part]] = np.einsum("nj,nj->", v, v, dtype=np.float64)
        return Moments(squares / solution.precision, variances)

    def variances(self, solution: DualSolution) -> Array:
        """Laplace variances (n_nodes, n_weights) as a dense matrix, bias last."""
        dual, problem = self.dual, self.dual.problem
        precisions, n_features = self._precisions(solution), problem.X.shape[1]
        columns = np.append(dual.seen, np.arange(n_features, problem.n_weights))
        out = np.repeat(1 / precisions[:, None], problem.n_weights, axis=1)

        def fill(k: int, joint: CoupledSolver) -> None:
            nodes = np.asarray(problem.class_node)[self._classes(k, joint)]
            curvature = self._curvature(k, joint, solution)[: len(columns)]
            out[nodes[:, None], columns] = 1 / (precisions[nodes] + curvature).T

        dual.each_block(fill)
        return out

    def sparse(self, solution: DualSolution, prune_below: float) -> SparseTree:
        """Differences with an absolute value above `prune_below`, and reductions of at least `MIN_REDUCTION`."""
        dual, problem = self.dual, self.dual.problem
        precisions, scale = self._precisions(solution), solution.precision**-0.5
        shape = len(problem.parent), problem.X.shape[1]
        bias, bias_variance = np.zeros(len(precisions)), 1 / precisions

        def cut(V: Matrix, nodes: Ints) -> tuple[Ints, sp.csr_array]:
            bias[nodes] = V[:, -1] * scale[nodes]
            V = V[:, :-1] * scale[nodes][:, None].astype(V.dtype)
            return nodes, pruned(V, prune_below)

        def of_block(k: int, joint: CoupledSolver) -> Any:
            return cut(joint.parts(k, solution.coupled), dual.nodes[joint.layout.owned[k]])

        def reductions(k: int, joint: CoupledSolver) -> tuple[Ints, sp.csr_array]:
            classes = self._classes(k, joint)
            nodes = np.asarray(problem.class_node)[classes]
            curvature = self._curvature(k, joint, solution)
            share = curvature / (precisions[nodes].astype(curvature.dtype) + curvature)
            bias_variance[nodes] *= 1 - share[-1]
            entries = pruned(np.ascontiguousarray(share[:-1].T), MIN_REDUCTION)
            return classes, sp.csr_array(
                sp.diags_array(1 / precisions[nodes]).astype(entries.dtype) @ entries
            )

        pieces = dual.each_block(of_block)
        joint = dual.joint
        assert joint is not None
        for p, part in enumerate(joint.layout.shared.tolist()):
            pieces.append(cut(dual.shared_part(p, solution), dual.nodes[[part]]))
        drops = dual.each_block(reductions)
        return SparseTree(
            self._stack(pieces, shape),
            bias,
            1 / precisions,
            self._stack(drops, (len(problem.class_node), shape[1])),
            bias_variance,
        )

    def _stack(self, pieces: list[tuple[Ints, sp.csr_array]], shape: tuple[int, int]) -> sp.csr_array:
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
