"""Probabilities of classes over a tree from their scores, with a scale for each level: a nested logit.

A class c has the score V_c. At an inner node v with children u, in turn from the deepest level up,

    z_u = a_d V_u + b log(n_u / n_v),      p(u | v) = exp(z_u) / Z_v,      V_v = log(Z_v) / a_d,

where d is the depth of v, n_u the number of training documents at or below u, and Z_v the sum over the children. The
probability of a class is the product along its path (McFadden 1978). With one scale a and b = 0 this is the softmax
of a V over all classes. Choices near the root, among sums over many classes, are usually sharper than those at the
leaves, and one scale for all of them is a compromise.

The parameters maximise the likelihood of held-out labels, with a prior of the weight of a few observations around the
softmax. A scale of its own for every inner node, shrunk towards that of its parent, had a higher log loss on further
documents than one for each level, and so had scales fitted level by level. All of them need new documents that are
like the training documents: where they were not (LSHTC-small, trained on descriptions and tested on pages), F1 and
log loss were worse than with one scale, which is therefore the default.

A node of a DAG hangs below its first parent here. Classes at inner nodes are leaves below them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.training import n_effective
from arbora.structure import Hierarchy

_N_STEPS = 30
_SPREAD = 0.5  # standard deviation of the prior: of log(a) around that of the softmax, and of b
_MAX_VALUES = 1 << 20  # rows times nodes of a fit ...
_MIN_ROWS = 300  # ... but at least so many rows


class Level(NamedTuple):
    """Nodes of one depth, sorted by parent."""

    children: Ints
    parents: Ints  # without repetition
    starts: Ints  # first child of each parent
    segment: Ints  # position in `parents` of the parent of each child
    log_share: Array  # log(n_u / n_v) of the children


class NestedLogit:
    """A tree over classes, for scores with a column for each class.

    `class_counts` are the numbers of training documents of the classes (or their weights).
    """

    def __init__(self, hierarchy: Hierarchy, class_nodes: Ints, class_counts: Matrix) -> None:
        n_nodes, top = hierarchy.n_nodes, hierarchy.n_nodes
        parent = np.full(n_nodes, top)
        has_parent = np.diff(hierarchy.parent_indptr) > 0
        parent[has_parent] = hierarchy.parent_indices[hierarchy.parent_indptr[:-1][has_parent]]
        leaves = top + 1 + np.arange(len(class_nodes))  # a leaf for each class, below its node
        self.parent = np.concatenate([parent, [-1], class_nodes])
        self.leaves = leaves
        self.depth = _depths(self.parent)
        count = np.zeros(len(self.parent))
        count[leaves] = np.maximum(class_counts, np.finfo(np.float64).tiny)
        by_depth = np.argsort(-self.depth, kind="stable")
        ends = np.flatnonzero(np.diff(self.depth[by_depth])) + 1
        groups = np.split(by_depth, ends)[:-1]  # without the top
        for nodes in groups:
            np.add.at(count, self.parent[nodes], count[nodes])
        self.levels = [_level(nodes[count[nodes] > 0], self.parent, count) for nodes in groups]

    @property
    def n_levels(self) -> int:
        """Number of levels with choices of their own; 1 is a softmax over all classes."""
        return sum(
            bool((np.diff(level.starts, append=len(level.children)) > 1).any()) for level in self.levels
        )

    def log_proba(self, scores: Matrix, levels: Matrix) -> Array:
        """Logarithms of the class probabilities; row k of `levels` has a and b of the k-th level from below."""
        values = self._values(scores)
        conditional = np.zeros_like(values)
        for level, (a, b) in zip(self.levels, levels, strict=True):
            self._climb(values, level, a, b, conditional)
        for level in self.levels[::-1]:
            conditional[:, level.children] += conditional[:, level.parents[level.segment]]
        return np.asarray(conditional[:, self.leaves])

    def _values(self, scores: Matrix) -> Array:
        values = np.zeros((len(scores), len(self.parent)))
        values[:, self.leaves] = scores
        return values

    def _climb(self, values: Matrix, level: Level, a: float, b: float, conditional: Matrix | None) -> None:
        """Compute the values of the parents of a level, and the conditional log-probabilities of its nodes."""
        z = a * values[:, level.children] + b * level.log_share
        top = np.maximum.reduceat(z, level.starts, axis=1)
        total = top + np.log(np.add.reduceat(np.exp(z - top[:, level.segment]), level.starts, axis=1))
        if conditional is not None:
            conditional[:, level.children] = z - total[:, level.segment]
        values[:, level.parents] = total / a

    def fit(self, scores: Matrix, codes: Ints, weight: Matrix, scale: float) -> Array:
        """Fit the scales of the levels and the exponent of the shares to held-out scores, for `log_proba`.

        `codes` are the columns of the true classes, `scale` is that of the softmax over all classes. The result is
        (n_levels, 2).
        """
        max_rows = max(_MIN_ROWS, _MAX_VALUES // len(self.parent))
        scores, codes, weight = scores[:max_rows], codes[:max_rows], weight[:max_rows]
        n_rows = max(n_effective(weight), np.finfo(np.float64).tiny)
        weight = weight / max(float(weight.sum()), np.finfo(np.float64).tiny)
        truth = self._paths(codes)

        def objective(theta: Matrix) -> tuple[float, Matrix]:
            value, gradient = self._likelihood(scores, truth, weight, scale * np.exp(theta[:-1]), theta[-1])
            gradient[:-1] *= scale * np.exp(theta[:-1])
            prior = 1 / (_SPREAD**2 * n_rows)
            return prior * float(theta @ theta) / 2 - value, prior * theta - gradient

        start = np.zeros(len(self.levels) + 1)
        solution = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _N_STEPS}).x
        return np.column_stack([scale * np.exp(solution[:-1]), np.full(len(self.levels), solution[-1])])

    def _paths(self, codes: Ints) -> NDArray[np.bool_]:
        """Mark the nodes on the path to the true class of each row."""
        on_path, node = np.zeros((len(codes), len(self.parent)), bool), self.leaves[codes]
        for _ in range(int(self.depth.max()) + 1):
            inside = np.flatnonzero(node >= 0)
            on_path[inside, node[inside]] = True
            node = np.where(node >= 0, self.parent[node], -1)
        return on_path

    def _likelihood(
        self, scores: Matrix, truth: NDArray[np.bool_], weight: Matrix, a: Matrix, b: float
    ) -> tuple[float, Matrix]:
        """Mean log-likelihood of the true paths, and its gradient by the scales and the exponent."""
        values, conditional = self._values(scores), np.zeros((len(scores), len(self.parent)))
        for level, scale in zip(self.levels, a.tolist(), strict=True):
            self._climb(values, level, scale, b, conditional)
        gradient, by_value = np.zeros(len(a) + 1), np.zeros_like(values)
        total = 0.0
        for k in range(len(a) - 1, -1, -1):  # from the top down, by the chain rule
            level, scale = self.levels[k], float(a[k])
            taken = weight[:, None] * truth[:, level.children]
            log_p = conditional[:, level.children]
            total += float(np.sum(taken * log_p))
            of_sum = by_value[:, level.parents] / scale - np.add.reduceat(taken, level.starts, axis=1)
            by_z = taken + np.exp(log_p) * of_sum[:, level.segment]
            gradient[k] = np.sum(by_z * values[:, level.children])
            gradient[k] -= np.sum(by_value[:, level.parents] * values[:, level.parents]) / scale
            gradient[-1] += np.sum(by_z @ level.log_share)
            by_value[:, level.children] = scale * by_z
        return total, gradient


def _depths(parent: Ints) -> Ints:
    """Depth of every node; the top, with parent -1, has 0."""
    depth, above = np.zeros(len(parent), np.int64), parent.copy()
    while (inside := above >= 0).any():
        depth += inside
        above = np.where(inside, parent[above], -1)
    return depth


def _level(nodes: Ints, parent: Ints, count: Array) -> Level:
    children = nodes[np.argsort(parent[nodes], kind="stable")]
    parents, starts, segment = np.unique(parent[children], return_index=True, return_inverse=True)
    log_share = np.log(count[children]) - np.log(count[parent[children]])
    return Level(children, parents, starts, segment, log_share)
