r"""Variational inference of the hierarchical von Mises-Fisher mixture: factors, updates, bound.

Every node n has a mean :math:`\mu_n \sim \mathrm{vMF}(\mu_{pa(n)}, \kappa_{pa(n)})` and a concentration
:math:`\kappa_n`; the mean of the root has the prior :math:`(\mu_0, C_0)`. A leaf has rows, an inner node has
children, and both have the same update. With :math:`N_n` and :math:`S_n` the number and the sum of the rows (weighted
by their responsibilities) or of the expected means of the children, and :math:`P_n = E[\kappa_{pa(n)}]
E[\mu_{pa(n)}]` the term of the parent,

.. math:: \gamma_n \psi_n = E[\kappa_n] S_n + P_n, \qquad E[\mu_n] = A_D(\gamma_n) \psi_n,

and :math:`q(\kappa_n)` follows from :math:`N_n` and :math:`S_n^\top E[\mu_n]` (see `concentration`). Nodes of one
level are independent given all other nodes, so a level is updated at once: from the leaves up, then the inner nodes
down again. A concentration that all leaves share has one factor, from the sums over the leaves. Each step maximises
the bound over its factors, so the bound never decreases.

A seed is a direction that counts as a number of rows at a node: it adds to :math:`N_n` and :math:`S_n`. With
:math:`C_0 = \infty` the mean of the root is :math:`\mu_0`, which is given or, as in a Bayesian mixture, the direction
with the highest bound: that of :math:`S_{root}`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.discover.vmf.concentration import (
    KappaLikelihood,
    KappaPosterior,
    point_posterior,
    prior_divergence,
)
from arbora.discover.vmf.hierarchical.mean_update import Links, joint_update, row_products, unit_vectors
from arbora.discover.vmf.hierarchical.tree import Tree
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

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

_LEAST, _MOST_ALIKE = 1e-3, 0.999  # limits of the concentration and the resultant of children at the start


class Nodes(NamedTuple):
    """All nodes: directions (n_nodes, n_features) and concentrations of their means; concentrations of the rows."""

    directions: NDArray[Any]
    mean_concentrations: Array
    kappa: KappaPosterior


class TreePosterior(NamedTuple):
    """Factors of the posterior: those of the leaves, as in a `VMFPosterior`, and all nodes."""

    directions: NDArray[Any]
    mean_concentrations: Array
    dirichlet: Array
    kappa: KappaPosterior
    prior: VMFPrior
    nodes: Nodes


def free_nodes(tree: Tree, how: Inference) -> NDArray[np.bool_]:
    """Return which nodes have a concentration that is learned."""
    return ~tree.inner if "node_concentration" in how.fixed else np.ones(len(tree.parent), bool)


def different_nodes(tree: Tree, how: Inference) -> NDArray[np.bool_]:
    """Return which nodes have a concentration that is learned, with one leaf if all share theirs."""
    found = free_nodes(tree, how)
    if how.shared:
        found[tree.leaves[1:]] = False
    return found


def with_leaves(tree: Tree, nodes: Nodes, dirichlet: Array, prior: VMFPrior) -> TreePosterior:
    """Return the posterior of nodes with the factors of the leaves in the layout of the E-step."""
    leaves = tree.leaves
    directions = np.ascontiguousarray(nodes.directions[leaves].T)
    kappa = KappaPosterior(*(part[leaves] for part in nodes.kappa))
    return TreePosterior(directions, nodes.mean_concentrations[leaves], dirichlet, kappa, prior, nodes)


def leaf_posterior(q: TreePosterior) -> VMFPosterior:
    """Return the leaves as the components of a Bayesian mixture."""
    return VMFPosterior(q.directions, q.mean_concentrations, q.dirichlet, q.kappa, q.prior)


def start_tree(tree: Tree, leaves: VMFPosterior, node_concentration: float | None) -> TreePosterior:
    """Start from a Bayesian mixture: its components are the leaves; a parent has the mean direction of its children.

    If it is not given, the concentration of children around their parent is its maximum likelihood estimate.
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
    """Update means and concentrations up and down the tree, then the weights and the prior."""
    n_features = q.directions.shape[0]
    inner, free, prior = tree.inner, free_nodes(tree, how), q.prior
    counts, sums = tree.counts.copy(), np.zeros((len(inner), n_features), stats.sums.dtype)
    counts[tree.leaves] += stats.counts
    sums[tree.leaves] = stats.sums.T
    directions, mean_concentrations = q.nodes.directions.copy(), q.nodes.mean_concentrations.copy()
    kappa = KappaPosterior(*(part.copy() for part in q.nodes.kappa))
    expected = expected_means(directions, mean_concentrations)

    def update(ids: Ids, how: Inference) -> None:
        around = child_sums(tree, ids, expected) + sums[ids]
        above = parent_terms(tree, ids, expected, kappa.mean, prior)
        likelihood = KappaLikelihood(counts[ids], np.empty(0), prior.log_mean, prior.log_variance, n_features)
        before = KappaPosterior(*(part[ids] for part in kappa))
        new = joint_update(how, likelihood, Links(around, above), before, free[ids], directions[ids])
        directions[ids], mean_concentrations[ids] = new.directions, new.mean_concentrations
        for whole, part in zip(kappa, new.kappa, strict=True):
            whole[ids] = part
        expected[ids] = expected_means(new.directions, new.mean_concentrations)

    own = how._replace(shared=False)
    if how.shared:  # one concentration of all leaves, on whatever level they are
        update(tree.leaves, how)
    for level in reversed(tree.levels):
        if level is tree.levels[0]:
            prior = root_prior(how, prior, child_sums(tree, level, expected) + sums[level])
        ids = level[inner[level]] if how.shared else level
        if len(ids):
            update(ids, own)
    for level in tree.levels[1:]:
        if inner[level].any():
            update(level[inner[level]], own)
    q = with_leaves(tree, Nodes(directions, mean_concentrations, kappa), prior.alpha + stats.counts, prior)
    return q._replace(prior=learned_prior(tree, how, q))


def expected_means(directions: NDArray[Any], mean_concentrations: Array) -> NDArray[Any]:
    """Return E[mu], which is shorter than 1 if the mean is uncertain."""
    lengths = bessel_ratio(directions.shape[1] / 2 - 1, mean_concentrations)
    return np.asarray(directions * lengths.astype(directions.dtype)[:, None])


def root_prior(how: Inference, prior: VMFPrior, around: NDArray[Any]) -> VMFPrior:
    """Return the prior of the root; a point that is not given has the direction of the sum of the root."""
    if "direction" in how.fixed or np.isfinite(prior.concentration):
        return prior
    total = around.sum(axis=0, dtype=np.float64)
    length = np.linalg.norm(total)
    return prior._replace(direction=total / length) if length > 0 else prior


def child_sums(tree: Tree, ids: Ids, expected: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of the expected means of children, and of the seeds."""
    around = tree.children[ids] @ expected
    return np.asarray(around + tree.seeds[ids].toarray() if tree.seeds.nnz else around)


def parent_terms(tree: Tree, ids: Ids, expected: NDArray[Any], kappa: Array, prior: VMFPrior) -> NDArray[Any]:
    """Return expected means of the parents times their expected concentrations; for the root, the prior."""
    parent = tree.parent[ids]
    pull = expected[parent] * kappa[parent].astype(expected.dtype)[:, None]
    pull[parent < 0] = min(prior.concentration, CERTAIN) * prior.direction
    return np.asarray(pull)


def learned_prior(tree: Tree, how: Inference, q: TreePosterior) -> VMFPrior:
    """Return the prior after empirical Bayes for the weights and the concentrations.

    The prior of the root is the prior of a single mean: maximising the bound would make it a point, so it is not
    learned.
    """
    kappa = KappaPosterior(*(part[different_nodes(tree, how)] for part in q.nodes.kappa))
    leaves = VMFPosterior(q.directions, q.mean_concentrations, q.dirichlet, kappa, q.prior)
    return empirical_bayes(leaves, how.settled | {"direction", "concentration"})


def tree_extra(tree: Tree, how: Inference, q: TreePosterior) -> float:
    """Return the bound without the rows: weights, means around their parents, seeds, and concentrations."""
    nodes, prior = q.nodes, q.prior
    n_nodes, n_features = nodes.directions.shape
    expected = expected_means(nodes.directions, nodes.mean_concentrations)
    around = child_sums(tree, np.arange(n_nodes), expected)
    means = tree.counts @ nodes.kappa.log_normalizer + nodes.kappa.mean @ row_products(around, expected)
    entropy, root = vmf_entropy(nodes.mean_concentrations, n_features), tree.levels[0][0]
    if np.isfinite(prior.concentration):
        along = float(expected[root].astype(np.float64) @ prior.direction)
        means += float(vmf_log_normalizer(prior.concentration, n_features)) + prior.concentration * along
    else:
        entropy[root] = 0.0  # the mean and its prior are the same point
    divergence = prior_divergence(nodes.kappa, prior.log_mean, prior.log_variance)[different_nodes(tree, how)]
    return float(dirichlet_gain(q.dirichlet, prior.alpha) + means + entropy.sum() - divergence.sum())
