r"""Variational inference of the hierarchical von Mises-Fisher mixture: factors, updates, bound.

Every node n has a mean :math:`\mu_n \sim \mathrm{vMF}(\mu_{pa(n)}, \kappa_{pa(n)})` and a concentration
:math:`\kappa_n`; that of the root has the prior :math:`(\mu_0, C_0)`. A leaf has rows, an inner node has children,
and the update is one and the same. With :math:`N_n` and :math:`S_n` the number and the sum of what lies around a node
(rows weighted by their responsibilities; expected means of children) and :math:`P_n = E[\kappa_{pa(n)}]
E[\mu_{pa(n)}]` what its parent says,

.. math:: \gamma_n \psi_n = E[\kappa_n] S_n + P_n, \qquad E[\mu_n] = A_D(\gamma_n) \psi_n,

and :math:`q(\kappa_n)` follows from :math:`N_n` and :math:`S_n^\top E[\mu_n]` (see `_concentration`). Nodes of one
level do not depend on each other given the others, so that a level is updated at once: from the leaves up, then the
inner nodes down again. Each step maximises the bound over its factors, which therefore never falls.

A seed is a direction that was seen a number of times at a node: it adds to :math:`N_n` and :math:`S_n`. With
:math:`C_0 = \infty` the mean of the root is :math:`\mu_0`, which is known or, as in a Bayesian mixture, the direction
with the highest bound: that of :math:`S_{root}`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.discover.vmf.concentration import (
    KappaLikelihood,
    KappaPosterior,
    point_posterior,
    prior_divergence,
)
from arbora.discover.vmf.neighbours import Links, joint_update, row_products, unit_vectors
from arbora.discover.vmf.posterior import (
    CERTAIN,
    Inference,
    VMFPosterior,
    VMFPrior,
    dirichlet_gain,
    empirical_bayes,
)
from arbora.infer.mixture.statistics import Stats
from arbora.special import bessel_ratio, kappa_mle, vmf_entropy, vmf_log_normalizer
from arbora.structure import Hierarchy

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

_LEAST, _MOST_ALIKE = 1e-3, 0.999  # concentration of children at the start, and their resultant


class Tree(NamedTuple):
    """A tree as the updates need it: arrays by node id.

    Attributes
    ----------
    parent : ndarray of shape (n_nodes,)
        -1 for the root.
    levels : tuple of ndarray
        Nodes of each depth.
    leaves : ndarray of shape (n_leaves,)
    children : sparse array of shape (n_nodes, n_nodes)
        1 where the column is a child of the row.
    counts : ndarray of shape (n_nodes,)
        Children and seeds of each node.
    seeds : sparse array of shape (n_nodes, n_features)
        Sums of the seeds.
    """

    parent: Ids
    levels: tuple[Ids, ...]
    leaves: Ids
    children: sp.csr_array
    counts: Array
    seeds: sp.csr_array

    @property
    def inner(self) -> NDArray[np.bool_]:
        """Whether each node has children."""
        return np.diff(self.children.indptr) > 0


class Nodes(NamedTuple):
    """All nodes: directions (n_nodes, n_features) and concentrations of their means; concentrations of the rows."""

    directions: NDArray[Any]
    mean_concentrations: Array
    kappa: KappaPosterior


class TreePosterior(NamedTuple):
    """Factors of the posterior. The first five are the leaves, as components of a `VMFPosterior`; then all nodes."""

    directions: NDArray[Any]
    mean_concentrations: Array
    dirichlet: Array
    kappa: KappaPosterior
    prior: VMFPrior
    nodes: Nodes


def as_tree(structure: Hierarchy, seeds: sp.csr_array, seed_counts: Array, dtype: Any) -> Tree:
    """Arrays of a tree with one root, with seeds at some nodes."""
    parent, children = np.asarray(structure.parent), structure.child_indices
    ones = np.ones(len(children), dtype)
    matrix = sp.csr_array((ones, children, structure.child_indptr), shape=(len(parent), len(parent)))
    counts = np.diff(structure.child_indptr) + seed_counts
    return Tree(
        parent, structure.levels, structure.leaf_ids, matrix, counts, sp.csr_array(seeds, dtype=dtype)
    )


def free_nodes(tree: Tree, how: Inference) -> NDArray[np.bool_]:
    """Tell the nodes whose concentration is not given."""
    return ~tree.inner if "node_concentration" in how.fixed else np.ones(len(tree.parent), bool)


def with_leaves(tree: Tree, nodes: Nodes, dirichlet: Array, prior: VMFPrior) -> TreePosterior:
    """Put the leaves beside the nodes, in the layout of the E-step."""
    leaves = tree.leaves
    directions = np.ascontiguousarray(nodes.directions[leaves].T)
    kappa = KappaPosterior(*(part[leaves] for part in nodes.kappa))
    return TreePosterior(directions, nodes.mean_concentrations[leaves], dirichlet, kappa, prior, nodes)


def start_tree(tree: Tree, leaves: VMFPosterior, node_concentration: float | None) -> TreePosterior:
    """Begin with a Bayesian mixture: its components are the leaves; a parent has the mean direction of its children.

    Where it is not given, the concentration of children around their parent is the most likely one.
    """
    n_nodes, (n_features, _) = len(tree.parent), leaves.directions.shape
    directions = np.zeros((n_nodes, n_features), leaves.directions.dtype)
    directions[tree.leaves] = leaves.directions.T
    mean_concentrations, node_kappa = np.full(n_nodes, CERTAIN), np.ones(n_nodes)
    mean_concentrations[tree.leaves] = leaves.mean_concentrations
    for level in reversed(tree.levels):
        ids = level[tree.inner[level]]
        sums = tree.children[ids] @ directions
        directions[ids], lengths = unit_vectors(sums, np.eye(1, n_features)[np.zeros(len(ids), int)])
        resultant = np.clip(lengths / np.diff(tree.children.indptr)[ids], 0.0, _MOST_ALIKE)
        node_kappa[ids] = np.maximum(kappa_mle(resultant, n_features), _LEAST)
    if not np.isfinite(leaves.prior.concentration):
        directions[tree.levels[0]] = leaves.prior.direction
    if node_concentration is not None:
        node_kappa[tree.inner] = node_concentration
    kappa = point_posterior(node_kappa, n_features)
    for whole, part in zip(kappa, leaves.kappa, strict=True):
        whole[tree.leaves] = part
    nodes = Nodes(directions, mean_concentrations, kappa)
    return with_leaves(tree, nodes, leaves.dirichlet, leaves.prior)


def update_tree(tree: Tree, how: Inference, q: TreePosterior, stats: Stats) -> TreePosterior:
    """One pass up and one down over the means and concentrations, then the weights and the prior."""
    n_features = q.directions.shape[0]
    inner, free, prior = tree.inner, free_nodes(tree, how), q.prior
    counts, sums = tree.counts.copy(), np.zeros((len(inner), n_features), stats.sums.dtype)
    counts[tree.leaves] += stats.counts
    sums[tree.leaves] = stats.sums.T
    directions, mean_concentrations = q.nodes.directions.copy(), q.nodes.mean_concentrations.copy()
    kappa = KappaPosterior(*(part.copy() for part in q.nodes.kappa))
    expected = expected_means(directions, mean_concentrations)

    def update(ids: Ids) -> None:
        around = surroundings(tree, ids, expected) + sums[ids]
        above = pull_from_above(tree, ids, expected, kappa.mean, prior)
        likelihood = KappaLikelihood(counts[ids], np.empty(0), prior.log_mean, prior.log_variance, n_features)
        before = KappaPosterior(*(part[ids] for part in kappa))
        new = joint_update(how, likelihood, Links(around, above), before, free[ids], directions[ids])
        directions[ids], mean_concentrations[ids] = new.directions, new.mean_concentrations
        for whole, part in zip(kappa, new.kappa, strict=True):
            whole[ids] = part
        expected[ids] = expected_means(new.directions, new.mean_concentrations)

    for level in reversed(tree.levels):
        if level is tree.levels[0]:
            prior = root_prior(how, prior, surroundings(tree, level, expected) + sums[level])
        update(level)
    for level in tree.levels[1:]:
        if inner[level].any():
            update(level[inner[level]])
    q = with_leaves(tree, Nodes(directions, mean_concentrations, kappa), prior.alpha + stats.counts, prior)
    return q._replace(prior=learned_prior(tree, how, q))


def expected_means(directions: NDArray[Any], mean_concentrations: Array) -> NDArray[Any]:
    """E[mu], shorter than 1 by what is not certain."""
    lengths = bessel_ratio(directions.shape[1] / 2 - 1, mean_concentrations)
    return directions * lengths.astype(directions.dtype)[:, None]


def root_prior(how: Inference, prior: VMFPrior, around: NDArray[Any]) -> VMFPrior:
    """Prior of the root; where it is a point that is not given, the direction of what lies around the root."""
    if "direction" in how.fixed or np.isfinite(prior.concentration):
        return prior
    total = around.sum(axis=0, dtype=np.float64)
    length = np.linalg.norm(total)
    return prior._replace(direction=total / length) if length > 0 else prior


def surroundings(tree: Tree, ids: Ids, expected: NDArray[Any]) -> NDArray[Any]:
    """Add up the expected means of children, and the seeds."""
    around = tree.children[ids] @ expected
    return around + tree.seeds[ids].toarray() if tree.seeds.nnz else around


def pull_from_above(
    tree: Tree, ids: Ids, expected: NDArray[Any], kappa: Array, prior: VMFPrior
) -> NDArray[Any]:
    """Return what parents say of nodes: expected means times expected concentrations; of the root, the prior."""
    parent = tree.parent[ids]
    pull = expected[parent] * kappa[parent].astype(expected.dtype)[:, None]
    pull[parent < 0] = min(prior.concentration, CERTAIN) * prior.direction
    return pull


def learned_prior(tree: Tree, how: Inference, q: TreePosterior) -> VMFPrior:
    """Empirical Bayes of the weights and of the law of the concentrations that are not given.

    The prior of the root is that of one mean: the highest bound would make it a point, so it stays as it is.
    """
    kappa = KappaPosterior(*(part[free_nodes(tree, how)] for part in q.nodes.kappa))
    leaves = VMFPosterior(q.directions, q.mean_concentrations, q.dirichlet, kappa, q.prior)
    return empirical_bayes(leaves, how.fixed | {"direction", "concentration"})


def tree_extra(tree: Tree, how: Inference, q: TreePosterior) -> float:
    """Bound without the rows: weights, means around their parents, seeds, and concentrations."""
    nodes, prior = q.nodes, q.prior
    n_nodes, n_features = nodes.directions.shape
    expected = expected_means(nodes.directions, nodes.mean_concentrations)
    around = surroundings(tree, np.arange(n_nodes), expected)
    means = tree.counts @ nodes.kappa.log_normalizer + nodes.kappa.mean @ row_products(around, expected)
    entropy, root = vmf_entropy(nodes.mean_concentrations, n_features), tree.levels[0][0]
    if np.isfinite(prior.concentration):
        along = float(expected[root].astype(np.float64) @ prior.direction)
        means += float(vmf_log_normalizer(prior.concentration, n_features)) + prior.concentration * along
    else:
        entropy[root] = 0.0  # a point, and its prior is the same point
    divergence = prior_divergence(nodes.kappa, prior.log_mean, prior.log_variance)[free_nodes(tree, how)]
    return float(dirichlet_gain(q.dirichlet, prior.alpha) + means + entropy.sum() - divergence.sum())
