"""A Gaussian prior for the weights of the nodes of a tree, with gamma-distributed precisions.

    w_root ~ N(w0, S0),    w_n ~ N(w_parent(n), diag(a_n)^-1),    each precision ~ Gamma(shape a, rate b)

(S. Gopal, Y. Yang, B. Bai and A. Niculescu-Mizil 2012, Bayesian Models for Large-scale Hierarchical Classification).
The precision a_n of a node is one number or one for each weight, and several nodes may share it:

    M1   one number for all children of a parent
    M2   one number for each weight, common to all children of a parent
    M3   one number for each node but the roots, leaves included

The posterior is approximated by q(W, a) = prod_n N(w_n | mu_n, Psi_n) prod_g Gamma(a_g | tau_g, nu_g). With the
expected squared deviations d_n = (mu_n - mu_parent)^2 + diag Psi_n + diag Psi_parent, the lower bound is highest at

    tau_g = a_g + 1/2 #{numbers with precision a_g},    nu_g = b_g + 1/2 sum of their d_n.

**Errata**: equations (2.9) and (A.11) of the thesis (S. Gopal 2014) and (4) of the paper lack the 1/2 in nu; in M3
leaves have precisions too, although the text gives them to inner nodes only.

Given a quadratic log-likelihood of the leaves, -1/2 w_n' G_n w_n + h_n.w_n, the means of all nodes solve one linear
system, block-sparse like the tree: `arbora.infer.tree.blocks` eliminates leaves towards the roots and substitutes
back. The block of a leaf on the way, (G_n + diag(a_n))^-1, is the covariance Psi_n of its posterior.

All lower bounds include every constant: their sum with that of the likelihood bounds log p(data).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammaln

from arbora.arrays import Array, Ints, Matrix
from arbora.core.chunks import CHUNK_ENTRIES

_LOG_2PI = float(np.log(2 * np.pi))


class Tree(NamedTuple):
    """Parents before children; -1 is the parent of a root. `leaves` are the nodes of the classes, in their order."""

    parent: Ints
    leaves: Ints
    levels: tuple[Ints, ...]  # nodes by depth, roots first

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.parent)

    @property
    def has_parent(self) -> NDArray[np.bool_]:
        """Marks the nodes that are not roots."""
        return self.parent >= 0


class Root(NamedTuple):
    """Mean w0 and precision (the inverse of a diagonal S0) of the roots; numbers or one for each weight."""

    mean: Any = 0.0
    precision: Any = 1.0


class Sharing(NamedTuple):
    """Which nodes share a precision.

    `group` is the index of the precision of each node (-1 for roots), `owner` the node under which a precision is
    reported: the parent (M1, M2) or the node itself (M3).
    """

    group: Ints
    owner: Ints
    by_weight: bool


class Gammas(NamedTuple):
    """Shapes and rates of the precisions: (n_groups, 1), or (n_groups, n_weights) if there is one per weight."""

    shape: Array
    rate: Array

    @property
    def mean(self) -> Array:
        """Expected precisions."""
        return np.asarray(self.shape / self.rate)

    @property
    def mean_log(self) -> Array:
        """Expected logarithms of the precisions."""
        return np.asarray(digamma(self.shape) - np.log(self.rate))


def tree_levels(parent: Ints) -> tuple[Ints, ...]:
    """Nodes by depth, roots first. In `parent`, parents come before their children.

    >>> tree_levels(np.array([-1, 0, 0, 1]))
    (array([0]), array([1, 2]), array([3]))
    """
    depth = np.zeros(len(parent), np.int64)
    for node in np.flatnonzero(parent >= 0).tolist():
        depth[node] = depth[parent[node]] + 1
    order = np.argsort(depth, kind="stable")
    return tuple(np.split(order, np.cumsum(np.bincount(depth))[:-1]))


def make_tree(parent: ArrayLike, leaves: ArrayLike) -> Tree:
    """Validate parents and leaves, and compute the levels.

    In `parent`, parents come before their children, and roots have -1. `leaves` are the nodes of the classes: exactly
    those without children.
    """
    up, ends = np.asarray(parent, np.int64), np.asarray(leaves, np.int64)
    if up.ndim != 1 or not up.size or (up >= np.arange(up.size)).any() or (up < -1).any():
        raise ValueError("parent must list the parent of every node, parents before children, -1 for roots.")
    childless = np.setdiff1d(np.arange(up.size), up)
    if not np.array_equal(np.sort(ends), childless):
        raise ValueError(
            f"the classes are nodes {np.sort(ends)[:9]}..., the leaves {childless[:9]}...: they must be the same."
        )
    return Tree(up, ends, tree_levels(up))


def share_precisions(tree: Tree, model: str) -> Sharing:
    """Assign a precision to every node but the roots, as in the models M1, M2 and M3.

    >>> tree = make_tree([-1, 0, 0, 1, 1], [2, 3, 4])
    >>> share_precisions(tree, "M1").group, share_precisions(tree, "M3").group
    (array([-1,  0,  0,  1,  1]), array([-1,  0,  1,  2,  3]))
    """
    if model not in ("M1", "M2", "M3"):
        raise ValueError(f"model={model!r}: use 'M1', 'M2' or 'M3'.")
    owner_of = np.arange(tree.n_nodes) if model == "M3" else tree.parent
    group = np.full(tree.n_nodes, -1)
    owner, group[tree.has_parent] = np.unique(owner_of[tree.has_parent], return_inverse=True)
    return Sharing(group, owner, model == "M2")


def sum_to_groups(sharing: Sharing, values: Array) -> Array:
    """Add up values (n_nodes, k) of the nodes of each group."""
    inside = sharing.group >= 0
    total = np.zeros((len(sharing.owner), values.shape[1]))
    np.add.at(total, sharing.group[inside], values[inside])
    return total


def node_precisions(sharing: Sharing, gammas: Gammas, root: Root, n_weights: int) -> Array:
    """Compute the expected precision (n_nodes, n_weights) of a weight around its parent's, around w0 for roots."""
    inside = sharing.group >= 0
    precision = np.empty((len(inside), n_weights))
    precision[inside] = gammas.mean[sharing.group[inside]]
    precision[~inside] = root.precision
    return precision


def posterior_precisions(parent: Ints, precision: Array) -> Array:
    """Add the precisions of the children to those of each node: the prior's part of every Psi_n^-1."""
    total = precision.copy()
    inside = parent >= 0
    np.add.at(total, parent[inside], precision[inside])
    return total


def squared_deviations(tree: Tree, sharing: Sharing, mu: Matrix, variance: Matrix) -> Array:
    """Compute the expected squared deviations of weights from those of the parents, zero for roots.

    `mu` and `variance` (n_nodes, n_weights) are means and diagonals of the covariances. The result has the same
    shape, or (n_nodes, 1), the sums over the weights, unless there is a precision for each weight.
    """
    n_weights = mu.shape[1]
    deviation = np.zeros((tree.n_nodes, n_weights if sharing.by_weight else 1))
    inside = np.flatnonzero(tree.has_parent)
    n_nodes_per_chunk = max(1, CHUNK_ENTRIES // n_weights)
    for first in range(0, len(inside), n_nodes_per_chunk):
        nodes = inside[first : first + n_nodes_per_chunk]
        up = tree.parent[nodes]
        distance = (mu[nodes] - mu[up]) ** 2 + variance[nodes] + variance[up]
        deviation[nodes] = (
            distance if sharing.by_weight else distance.sum(axis=1, keepdims=True, dtype=np.float64)
        )
    return deviation


def update_gammas(sharing: Sharing, prior: Gammas, deviation: Array, n_weights: int) -> Gammas:
    """Distributions of the precisions that maximise the bound, given the squared deviations."""
    n_nodes = np.bincount(sharing.group[sharing.group >= 0], minlength=len(sharing.owner))
    shape = prior.shape + (n_nodes * (1 if sharing.by_weight else n_weights) / 2)[:, None]
    return Gammas(
        np.broadcast_to(shape, prior.rate.shape), prior.rate + sum_to_groups(sharing, deviation) / 2
    )


def prior_bound(
    tree: Tree, sharing: Sharing, gammas: Gammas, root: Root, mu: Array, variance: Array
) -> float:
    """Compute the expectation of log p(W | a) under q, with its constants.

    `mu` and `variance` (n_nodes, n_weights) are means and diagonals of the covariances.
    """
    inside = tree.has_parent
    n_weights = mu.shape[1]
    of_group = sharing.group[inside]
    logs = (1 if sharing.by_weight else n_weights) * gammas.mean_log[of_group]
    value = np.sum(logs - gammas.mean[of_group] * squared_deviations(tree, sharing, mu, variance)[inside])
    precision = np.broadcast_to(np.asarray(root.precision, np.float64), (n_weights,))
    distance = (mu[~inside] - root.mean) ** 2 + variance[~inside]
    value += np.sum(np.log(precision) - precision * distance)
    return float(value - mu.size * _LOG_2PI) / 2


def gamma_bound(prior: Gammas, gammas: Gammas) -> float:
    """Compute the expectation of log p(a) under q plus the entropy of q(a): minus their KL divergence."""
    a, b = np.broadcast_arrays(prior.shape, prior.rate)
    tau, nu = gammas
    expected = a * np.log(b) - gammaln(a) + (a - 1) * gammas.mean_log - b * gammas.mean
    entropy = tau - np.log(nu) + gammaln(tau) + (1 - tau) * digamma(tau)
    return float(np.sum(expected + entropy))


def gaussian_entropy(log_determinants: float, n_numbers: int) -> float:
    """Entropy of Gaussians over n_numbers weights with the given sum of log |Psi_n|."""
    return (n_numbers * (1 + _LOG_2PI) + log_determinants) / 2
