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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.arrays import Array, Ints, Matrix
from arbora.discover.vmf.concentration import (
    KappaLikelihood,
    KappaPosterior,
    point_posterior,
    prior_divergence,
)
from arbora.discover.vmf.posterior import (
    CERTAIN,
    Inference,
    Products,
    VMFPosterior,
    VMFPrior,
    dirichlet_gain,
    empirical_bayes,
    settle,
)
from arbora.infer.mixture.statistics import Stats
from arbora.special import bessel_ratio, kappa_mle, vmf_entropy, vmf_log_normalizer
from arbora.structure import Hierarchy

# --- Trees of clusters: as a `Hierarchy` with one root, and as the arrays of the updates --------------------


_ROOT = "root"


class Tree(NamedTuple):
    """The tree as arrays by node id."""

    parent: Ints  # -1 for the root
    levels: tuple[Ints, ...]  # nodes of each depth
    leaves: Ints
    children: sp.csr_array  # (n_nodes, n_nodes): 1 where the column is a child of the row
    counts: Array  # children and seeds of each node
    seeds: sp.csr_array  # (n_nodes, n_features): sums of the seeds

    @property
    def inner(self) -> NDArray[np.bool_]:
        """Whether each node has children."""
        return np.diff(self.children.indptr) > 0


def regular_tree(branching: Sequence[int]) -> Hierarchy:
    """Return a tree whose nodes at depth d have ``branching[d]`` children, named by their paths: 0, 0/0, 0/1, ..."""
    edges: list[tuple[str, str]] = []
    above = [_ROOT]
    for width in branching:
        level = [(name, f"{i}" if name == _ROOT else f"{name}/{i}") for name in above for i in range(width)]
        edges += level
        above = [child for _, child in level]
    return Hierarchy.from_edges(edges, nodes=[_ROOT])


def pruned_tree(tree: Hierarchy, positions: Sequence[int]) -> tuple[Hierarchy, Ints]:
    """Return a tree with some of the leaves: a node that has lost all children but one is replaced by that child.

    `positions` in `leaf_ids` are the leaves to keep, at least one. Nodes are named as in `regular_tree`. Also
    returns, for each leaf of the new tree in the order of its `leaf_ids`, its position among the old leaves.
    """
    place = {int(tree.leaf_ids[k]): k for k in positions}
    edges: list[tuple[str, str]] = []
    leaves: dict[str, int] = {}

    def survivors(node: int) -> list[int]:
        """Return the children of a node in the new tree."""
        children = tree.child_indices[tree.child_indptr[node] : tree.child_indptr[node + 1]].tolist()
        alive = [child for child in children if child in place or survivors(child)]
        if len(alive) == 1 < len(children):
            return survivors(alive[0]) or alive
        return [_only(child) for child in alive]

    def _only(node: int) -> int:
        below = survivors(node)
        return below[0] if len(below) == 1 and below[0] in place else node

    waiting = [(int(tree.root_ids[0]), _ROOT)]
    while waiting:
        node, name = waiting.pop(0)
        if node in place:
            leaves[name] = place[node]
            continue
        below = [
            (child, f"{i}" if name == _ROOT else f"{name}/{i}") for i, child in enumerate(survivors(node))
        ]
        edges += [(name, child) for _, child in below]
        waiting += below
    new = Hierarchy.from_edges(edges, nodes=[_ROOT])
    return new, np.array([leaves[name] for name in new.names[new.leaf_ids].tolist()])


def one_root(structure: Hierarchy) -> Hierarchy:
    """Return the tree, with a new root above several ones."""
    name = _ROOT
    while name in structure:
        name += "*"
    tree = structure.join_roots(name)
    tree.parent  # noqa: B018  raises an error that names the node, if the structure is not a tree
    return tree


def as_tree(structure: Hierarchy, seeds: sp.csr_array, seed_counts: Array, dtype: Any) -> Tree:
    """Return the arrays of a tree with one root and seeds at some nodes."""
    parent, children = np.asarray(structure.parent), structure.child_indices
    ones = np.ones(len(children), dtype)
    matrix = sp.csr_array((ones, children, structure.child_indptr), shape=(len(parent), len(parent)))
    counts = np.diff(structure.child_indptr) + seed_counts
    return Tree(
        parent, structure.levels, structure.leaf_ids, matrix, counts, sp.csr_array(seeds, dtype=dtype)
    )


# --- Joint update of the means of nodes and their concentrations --------------------------------------------
#
# The mean of a node has N children or rows with the sum S, distributed around it with its concentration
# :math:`\kappa`, and a term P from its parent. Then :math:`\gamma \psi = E[\kappa] S + P`. Given S and P, the mean
# and its concentration depend on each other only through :math:`\|S\|^2, S^\top P` and :math:`\|P\|^2`, and are
# iterated together at no cost.


class Links(NamedTuple):
    """Sums S of children or rows, and terms P of parents: both (n_means, n_features)."""

    around: Matrix
    above: Matrix


class UpdatedMeans(NamedTuple):
    """Directions and concentrations of means, and posteriors of the concentrations around them."""

    directions: Matrix
    mean_concentrations: Array
    kappa: KappaPosterior


def row_products(left: Matrix, right: Matrix) -> Array:
    """Return scalar products of the rows of two matrices, in double precision."""
    return np.asarray(np.einsum("nd,nd->n", left, right, dtype=np.float64))


def unit_vectors(vectors: Matrix, before: Matrix) -> tuple[Matrix, Array]:
    """Divide rows by their lengths and return both; a row of zeros becomes that of `before`.

    Examples
    --------
    >>> unit_vectors(np.array([[0.0, 4.0], [0.0, 0.0]]), np.eye(2))
    (array([[0., 1.],
           [0., 1.]]), array([4., 0.]))
    """
    lengths = np.sqrt(row_products(vectors, vectors))
    empty = lengths == 0
    directions = vectors / np.where(empty, 1.0, lengths).astype(vectors.dtype)[:, None]
    directions[empty] = before[empty]
    return directions, lengths


def joint_update(
    inference: Inference,
    likelihood: KappaLikelihood,
    links: Links,
    kappa: KappaPosterior,
    free: NDArray[np.bool_],
    before: Matrix,
) -> UpdatedMeans:
    """Update means and their concentrations, given all others; shared inference gives them one concentration.

    `likelihood` has the number of children or rows of each mean; its `pulls` are computed here. Only concentrations
    where `free` is True are updated. Means without children, rows or a parent's term keep the directions `before`
    (n_means, n_features).
    """
    around, above = links
    square, along = row_products(around, around), row_products(around, above)
    products = Products(square, along, row_products(above, above))

    def posterior(likelihood: KappaLikelihood, before: KappaPosterior) -> KappaPosterior:
        updated = (
            inference.posterior(likelihood, before)
            if inference.shared
            else inference.kappa_posterior(likelihood, before)
        )
        return KappaPosterior(*(np.where(free, new, old) for new, old in zip(updated, before, strict=True)))

    used, kappa = settle(posterior, likelihood, products, kappa)
    directions, mean_concentrations = unit_vectors(
        around * used.astype(around.dtype)[:, None] + above, before
    )
    return UpdatedMeans(directions, mean_concentrations, kappa)


# --- Variational inference of the hierarchical von Mises-Fisher mixture: factors, updates, bound ------------


# Limits of the concentration and the resultant of children at the start.
_MIN_KAPPA, _MAX_COSINE = 1e-3, 0.999


class Nodes(NamedTuple):
    """All nodes: directions (n_nodes, n_features) and concentrations of their means; concentrations of the rows."""

    directions: Matrix
    mean_concentrations: Array
    kappa: KappaPosterior


class TreePosterior(NamedTuple):
    """Factors of the posterior: those of the leaves, as in a `VMFPosterior`, and all nodes."""

    directions: Matrix
    mean_concentrations: Array
    dirichlet: Array
    kappa: KappaPosterior
    prior: VMFPrior
    nodes: Nodes


def free_nodes(tree: Tree, inference: Inference) -> NDArray[np.bool_]:
    """Return which nodes have a concentration that is learned."""
    return ~tree.inner if "node_concentration" in inference.fixed else np.ones(len(tree.parent), bool)


def different_nodes(tree: Tree, inference: Inference) -> NDArray[np.bool_]:
    """Return which nodes have a concentration that is learned, with one leaf if all share theirs."""
    nodes = free_nodes(tree, inference)
    if inference.shared:
        nodes[tree.leaves[1:]] = False
    return nodes


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
        resultant = np.clip(lengths / np.diff(tree.children.indptr)[ids], 0.0, _MAX_COSINE)
        node_kappa[ids] = np.maximum(kappa_mle(resultant, n_features), _MIN_KAPPA)
    if not np.isfinite(leaves.prior.concentration):
        directions[tree.levels[0]] = leaves.prior.direction
    if node_concentration is not None:
        node_kappa[tree.inner] = node_concentration
    kappa = point_posterior(node_kappa, n_features)
    for whole, part in zip(kappa, leaves.kappa, strict=True):
        whole[tree.leaves] = part
    nodes = Nodes(directions, mean_concentrations, kappa)
    return with_leaves(tree, nodes, leaves.dirichlet, leaves.prior)


def update_tree(tree: Tree, inference: Inference, q: TreePosterior, stats: Stats) -> TreePosterior:
    """Update means and concentrations up and down the tree, then the weights and the prior."""
    n_features = q.directions.shape[0]
    inner, free, prior = tree.inner, free_nodes(tree, inference), q.prior
    counts, sums = tree.counts.copy(), np.zeros((len(inner), n_features), stats.sums.dtype)
    counts[tree.leaves] += stats.counts
    sums[tree.leaves] = stats.sums.T
    directions, mean_concentrations = q.nodes.directions.copy(), q.nodes.mean_concentrations.copy()
    kappa = KappaPosterior(*(part.copy() for part in q.nodes.kappa))
    expected = expected_means(directions, mean_concentrations)

    def update(ids: Ints, inference: Inference) -> None:
        around = child_sums(tree, ids, expected) + sums[ids]
        above = parent_terms(tree, ids, expected, kappa.mean, prior)
        likelihood = KappaLikelihood(counts[ids], np.empty(0), prior.log_mean, prior.log_variance, n_features)
        before = KappaPosterior(*(part[ids] for part in kappa))
        new = joint_update(inference, likelihood, Links(around, above), before, free[ids], directions[ids])
        directions[ids], mean_concentrations[ids] = new.directions, new.mean_concentrations
        for whole, part in zip(kappa, new.kappa, strict=True):
            whole[ids] = part
        expected[ids] = expected_means(new.directions, new.mean_concentrations)

    separate = inference._replace(shared=False)
    if inference.shared:  # one concentration of all leaves, on whatever level they are
        update(tree.leaves, inference)
    for level in reversed(tree.levels):
        if level is tree.levels[0]:
            prior = root_prior(inference, prior, child_sums(tree, level, expected) + sums[level])
        ids = level[inner[level]] if inference.shared else level
        if len(ids):
            update(ids, separate)
    for level in tree.levels[1:]:
        if inner[level].any():
            update(level[inner[level]], separate)
    q = with_leaves(tree, Nodes(directions, mean_concentrations, kappa), prior.alpha + stats.counts, prior)
    return q._replace(prior=learned_prior(tree, inference, q))


def expected_means(directions: Matrix, mean_concentrations: Array) -> Matrix:
    """Return E[mu], which is shorter than 1 if the mean is uncertain."""
    lengths = bessel_ratio(directions.shape[1] / 2 - 1, mean_concentrations)
    return np.asarray(directions * lengths.astype(directions.dtype)[:, None])


def root_prior(inference: Inference, prior: VMFPrior, around: Matrix) -> VMFPrior:
    """Return the prior of the root; a point that is not given has the direction of the sum of the root."""
    if "direction" in inference.fixed or np.isfinite(prior.concentration):
        return prior
    total = around.sum(axis=0, dtype=np.float64)
    length = np.linalg.norm(total)
    return prior._replace(direction=total / length) if length > 0 else prior


def child_sums(tree: Tree, ids: Ints, expected: Matrix) -> Matrix:
    """Return the sums of the expected means of children, and of the seeds."""
    around = tree.children[ids] @ expected
    return np.asarray(around + tree.seeds[ids].toarray() if tree.seeds.nnz else around)


def parent_terms(tree: Tree, ids: Ints, expected: Matrix, kappa: Array, prior: VMFPrior) -> Matrix:
    """Return expected means of the parents times their expected concentrations; for the root, the prior."""
    parent = tree.parent[ids]
    pull = expected[parent] * kappa[parent].astype(expected.dtype)[:, None]
    pull[parent < 0] = min(prior.concentration, CERTAIN) * prior.direction
    return np.asarray(pull)


def learned_prior(tree: Tree, inference: Inference, q: TreePosterior) -> VMFPrior:
    """Return the prior after empirical Bayes for the weights and the concentrations.

    The prior of the root is the prior of a single mean: maximising the bound would make it a point, so it is not
    learned.
    """
    kappa = KappaPosterior(*(part[different_nodes(tree, inference)] for part in q.nodes.kappa))
    leaves = VMFPosterior(q.directions, q.mean_concentrations, q.dirichlet, kappa, q.prior)
    return empirical_bayes(leaves, inference.settled | {"direction", "concentration"})


def tree_extra(tree: Tree, inference: Inference, q: TreePosterior) -> float:
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
    divergence = prior_divergence(nodes.kappa, prior.log_mean, prior.log_variance)[
        different_nodes(tree, inference)
    ]
    return float(dirichlet_gain(q.dirichlet, prior.alpha) + means + entropy.sum() - divergence.sum())
