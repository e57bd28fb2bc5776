"""Elimination of a tree with a block of features at every node, for few features.

(T + H) z = r is solved for the weights z of all nodes, where T is the precision of the tree and H has a block H_c for
each class on its diagonal: one pass up and one pass down the tree, with a matrix at every node.

In variational inference H_c is the curvature of the bound, and the solution is exact. In a Newton step of MAP, H_c =
sum_i h_ic x_i x_i', with h_ic the curvatures of the rows. For independent classes (logistic) this is the whole second
derivative of the loss. For softmax it ignores the terms that couple classes that compete for a row: the elimination
is then a preconditioner, and a few conjugate gradient steps correct it.

In MAP most rows matter to few classes: those with a curvature above `_MATTERS` times the mean of the class enter H_c
one by one, the others together, as if their curvatures were equal and their features those of all rows.

The inverse itself is the covariance of a Gaussian over the weights of all nodes. One more pass down gives the blocks
on its diagonal, the marginal covariances of the nodes (`TreeBlocks.marginals`).

Blocks are scaled by the roots of the precisions a of their node: with R the sum of the contributions of the class
and the children of a node to its precision and L = a^-1/2 R a^-1/2, only I + L is inverted. Its eigenvalues are 1 or
more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbora.arrays import Ints, Matrix
from arbora.core.engine import Engine
from arbora.infer.tree.gaussian import posterior_precisions, tree_levels

_MATTERS = 2.0
_MAX_FEATURES, _MAX_NODES = 256, 4096
_MAX_NUMBERS = 2**23  # in the blocks of all nodes


class Marginals(NamedTuple):
    """Marginal variances and covariances of the weights of each node.

    `variance` of every weight, `covariance` of the weights of every class, `given_parent` the same given the nodes
    above, `contrast` the covariance of the difference of the classes if there are two. All but the variances are None
    if there are too many features.
    """

    variance: Matrix  # (n_nodes, n_weights)
    covariance: Matrix | None = None  # (n_classes, n_weights, n_weights)
    given_parent: Matrix | None = None  # of the same shape
    contrast: Matrix | None = None  # (n_weights, n_weights)


def suits_blocks(n_nodes: int, n_weights: int) -> bool:
    """Whether the blocks of all nodes are small enough to be efficient."""
    few = n_weights <= _MAX_FEATURES and n_nodes <= _MAX_NODES
    return few and n_nodes * n_weights**2 <= _MAX_NUMBERS


def class_blocks(
    X: Matrix, curvature: Matrix, products: Matrix, engine: Engine, matters: float = _MATTERS
) -> Matrix:
    """H_c of all classes, (n_classes, n_weights, n_weights), for the curvature of each row and class.

    `products` is the mean of x x' over the rows. Rows with more than `matters` times the mean curvature of a class
    enter one by one; 0 for all rows.
    """

    def block(c: int) -> Matrix:
        h = curvature[:, c]
        alone = np.flatnonzero(h > matters * h.mean())
        scaled = X[alone] * np.sqrt(h[alone])[:, None]
        return np.asarray(scaled.T @ scaled + (h.sum() - h[alone].sum()) * products)

    return np.stack(engine.map(block, range(curvature.shape[1])))


class TreeBlocks:
    """The inverse of T + H with blocks (n_classes, n_weights, n_weights) of the classes on the diagonal of H.

    Parents come before their children; `precision` is (n_nodes, 1) or (n_nodes, n_weights).

    >>> blocks = TreeBlocks(np.array([-1, 0]), np.array([1]), np.ones((2, 1)), np.full((1, 1, 1), 0.5))
    >>> blocks.solve(np.array([[1.0]]))  # 1 / (1/2 + 1/2), since K is 2
    array([[1.]])
    >>> blocks.all_nodes(np.array([[0.0], [1.0]]))
    array([[0.5],
           [1. ]])
    >>> blocks.marginals().variance  # inverse of [[2, -1], [-1, 3/2]]
    array([[0.75],
           [1.  ]])
    """

    def __init__(self, parent: Ints, class_node: Matrix, precision: Matrix, blocks: Matrix) -> None:
        n_nodes, width = len(parent), blocks.shape[1]
        self.parent, self.class_node = parent, class_node
        self.levels = tree_levels(parent)
        self.root = np.sqrt(np.broadcast_to(precision, (n_nodes, width)))
        self.of_data = np.diagonal(blocks, axis1=1, axis2=2).copy()
        self.inverse = np.zeros((n_nodes, width, width))  # of I + L
        rest = self.inverse  # additions to the precision of a node, overwritten by the inverse
        rest[class_node] = blocks
        for level in self.levels[::-1]:
            scale = self.root[level][:, :, None] * self.root[level][:, None, :]
            L = rest[level] / scale
            inverse = np.linalg.inv(np.eye(width) + L)
            if self.parent[level[0]] >= 0:
                up = scale * (inverse @ L)
                np.add.at(rest, self.parent[level], (up + up.swapaxes(1, 2)) / 2)
            self.inverse[level] = (inverse + inverse.swapaxes(1, 2)) / 2

    def covariances(self) -> tuple[Matrix, Matrix]:
        """Covariances (a + H_c)^-1 of the classes given their parents, without children, and log-determinants."""
        root, inverse = self.root[self.class_node], self.inverse[self.class_node]
        log_determinants = np.linalg.slogdet(inverse)[1] - 2 * np.log(root).sum(axis=1)
        return inverse / (root[:, :, None] * root[:, None, :]), log_determinants

    def marginals(self) -> Marginals:
        """Diagonal blocks of (T + H)^-1.

        Given its parent a node has the covariance C = a^-1/2 (I + L)^-1 a^-1/2 and follows the parent by C a: its
        covariance is C + C a V a C, V that of the parent. A variance is at least the conditional one, given all other
        weights. This keeps it positive where features of very different scale lose all digits.
        """
        covariance = np.empty_like(self.inverse)
        for level in self.levels:
            scale = self.root[level][:, :, None] * self.root[level][:, None, :]
            scaled = self.inverse[level]
            if self.parent[level[0]] >= 0:
                scaled = scaled + scaled @ (scale * covariance[self.parent[level]]) @ scaled
            covariance[level] = scaled / scale
        precisions = posterior_precisions(self.parent, self.root**2)
        precisions[self.class_node] += self.of_data
        variance = np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 1 / precisions)
        contrast = self._contrast() if len(self.class_node) == 2 else None
        return Marginals(variance, covariance[self.class_node], self.covariances()[0], contrast)

    def _contrast(self) -> Matrix:
        """Covariance of the weights of the second class minus those of the first."""
        first, second = self.class_node
        right, columns = np.zeros(self.root.shape), []
        for unit in np.eye(self.root.shape[1]):
            right[first], right[second] = -unit, unit
            z = self.all_nodes(right)
            columns.append(z[second] - z[first])
        return np.column_stack(columns)

    def all_nodes(self, right: Matrix) -> Matrix:
        """Weights (n_nodes, n_weights) of all nodes for a right-hand side of the same shape."""
        z = right.copy()
        for level in self.levels[::-1]:
            root = self.root[level]
            z[level] = (self.inverse[level] @ (z[level] / root)[:, :, None])[:, :, 0]
            if self.parent[level[0]] >= 0:
                np.add.at(z, self.parent[level], root * z[level])
        for level in self.levels:
            root = self.root[level]
            if self.parent[level[0]] >= 0:
                above = root * z[self.parent[level]]
                z[level] += (self.inverse[level] @ above[:, :, None])[:, :, 0]
            z[level] /= root
        return z

    def solve(self, R: Matrix) -> Matrix:
        """Weights (n_weights, n_classes) of the classes for a right-hand side of the same shape."""
        right = np.zeros(self.root.shape)
        right[self.class_node] = R.T
        return np.ascontiguousarray(self.all_nodes(right)[self.class_node].T)
