"""The prior over a tree: eliminations against dense systems, bounds against their definitions and against draws."""

import numpy as np
import pytest
from scipy import stats

from arbora.infer.tree import gaussian as gt
from arbora.infer.tree.blocks import TreeBlocks
from support.tree_models import LEAVES, PARENT

CHAIN = [-1, 0, 1, 2, 3], [4]
STAR = [-1, 0, 0, 0], [3, 1, 2]
FOREST = [-1, -1, 0, 1, 1], [2, 3, 4]
PAIR = [-1, 0, 1, 0, 3], [4, 2]


@pytest.mark.parametrize(("parent", "leaves"), [(PARENT, LEAVES), CHAIN, STAR, FOREST, PAIR], ids=str)
def test_means_solve_the_dense_system(parent, leaves):
    rng = np.random.default_rng(0)
    tree, d = gt.make_tree(parent, leaves), 3
    n = tree.n_nodes
    precision = rng.uniform(0.5, 2, (n, d))
    grams = rng.normal(size=(len(leaves), d, d))
    grams = grams @ grams.transpose(0, 2, 1)
    linear = rng.normal(size=(len(leaves), d))
    root = gt.Root(rng.normal(size=d), 2.0)
    precision[~tree.has_parent] = root.precision
    H, h = np.zeros((n, d, n, d)), np.zeros((n, d))
    for k, up in enumerate(tree.parent):
        H[k, :, k, :] += np.diag(precision[k])
        if up < 0:
            h[k] += precision[k] * root.mean
        else:
            H[up, :, up, :] += np.diag(precision[k])
            H[k, :, up, :] -= np.diag(precision[k])
            H[up, :, k, :] -= np.diag(precision[k])
    for j, leaf in enumerate(leaves):
        H[leaf, :, leaf, :] += grams[j]
        h[leaf] += linear[j]
    factor = TreeBlocks(tree.parent, tree.leaves, precision, grams)
    found = factor.all_nodes(h)
    np.testing.assert_allclose(found.ravel(), np.linalg.solve(H.reshape(n * d, n * d), h.ravel()), rtol=1e-9)
    given_parent = np.linalg.inv(grams + np.eye(d) * precision[leaves][:, None])
    covariance, log_determinants = factor.covariances()
    np.testing.assert_allclose(covariance, given_parent, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(log_determinants, np.linalg.slogdet(given_parent)[1], rtol=1e-9)
    V = np.linalg.inv(H.reshape(n * d, n * d)).reshape(n, d, n, d)
    joint = factor.marginals()
    np.testing.assert_allclose(joint.variance.ravel(), np.diag(V.reshape(n * d, n * d)), rtol=1e-9)
    np.testing.assert_allclose(joint.covariance, [V[leaf, :, leaf] for leaf in leaves], rtol=1e-8, atol=1e-12)
    assert (joint.contrast is None) == (len(leaves) != 2)
    if joint.contrast is not None:
        first, second = leaves
        between = V[first, :, second] + V[second, :, first]
        difference = V[first, :, first] + V[second, :, second] - between
        np.testing.assert_allclose(joint.contrast, difference, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("precision", [1e-12, 1e12, 1e20])
def test_no_digits_are_lost_to_precisions_of_any_size(precision):
    """One weight, where the solution is known: the mean of a leaf after the root's variance and its own."""
    tree = gt.make_tree([-1, 0], [1])
    a, gram = np.array([[1.0], [precision]]), np.array([[[0.5]]])
    factor = TreeBlocks(tree.parent, tree.leaves, a, gram)
    leaf = 1 / (0.5 + 1 / (1 + 1 / precision))
    np.testing.assert_allclose(
        factor.all_nodes(np.array([[0.0], [1.0]])).ravel(), [leaf / (1 + 1 / precision), leaf], rtol=1e-14
    )
    np.testing.assert_allclose(factor.covariances()[0].ravel(), 1 / (0.5 + precision), rtol=1e-14)
    np.testing.assert_allclose(
        factor.marginals().variance.ravel(), [leaf * (0.5 + precision) / (1 + precision), leaf], rtol=1e-12
    )


@pytest.mark.parametrize("model", ["M1", "M2", "M3"])
def test_bounds_are_expectations(model):
    """Expected log prior and entropies against means over draws of q, within five standard errors."""
    rng = np.random.default_rng(1)
    tree, d, n_draws = gt.make_tree(PARENT, LEAVES), 2, 100_000
    sharing = gt.share_precisions(tree, model)
    shape = (len(sharing.owner), d if sharing.by_weight else 1)
    prior = gt.Gammas(*rng.uniform(1, 3, (2, *shape)))
    q = gt.Gammas(*rng.uniform(2, 4, (2, *shape)))
    root = gt.Root(rng.normal(size=d), rng.uniform(0.5, 2, d))
    mean, variance = rng.normal(size=(tree.n_nodes, d)), rng.uniform(0.2, 1, (tree.n_nodes, d))
    W = mean + np.sqrt(variance) * rng.normal(size=(n_draws, *mean.shape))
    A = rng.gamma(q.shape, 1 / q.rate, (n_draws, *shape))
    log_prior = stats.norm.logpdf(W[:, 0], root.mean, root.precision**-0.5).sum(axis=1)
    for k in range(1, tree.n_nodes):
        scale = np.broadcast_to(A[:, sharing.group[k]] ** -0.5, (n_draws, d))
        log_prior += stats.norm.logpdf(W[:, k], W[:, tree.parent[k]], scale).sum(axis=1)
    log_ratio = stats.gamma.logpdf(A, prior.shape, scale=1 / prior.rate)
    log_ratio = (log_ratio - stats.gamma.logpdf(A, q.shape, scale=1 / q.rate)).sum(axis=(1, 2))
    log_q = stats.norm.logpdf(W, mean, np.sqrt(variance)).sum(axis=(1, 2))
    for draws, value in [
        (log_prior, gt.prior_bound(tree, sharing, q, root, mean, variance)),
        (log_ratio, gt.gamma_bound(prior, q)),
        (-log_q, gt.gaussian_entropy(float(np.log(variance).sum()), mean.size)),
    ]:
        assert abs(draws.mean() - value) < 5 * draws.std() / np.sqrt(n_draws)


@pytest.mark.parametrize("model", ["M1", "M2", "M3"])
def test_gamma_update_is_where_the_bound_is_highest(model):
    rng = np.random.default_rng(2)
    tree, d = gt.make_tree(PARENT, LEAVES), 3
    sharing = gt.share_precisions(tree, model)
    prior = gt.Gammas(*rng.uniform(0.5, 2, (2, len(sharing.owner), d if sharing.by_weight else 1)))
    mean, variance = rng.normal(size=(tree.n_nodes, d)), rng.uniform(0.2, 1, (tree.n_nodes, d))
    best = gt.update_gammas(sharing, prior, gt.squared_deviations(tree, sharing, mean, variance), d)

    def bound(tau, nu):
        q = gt.Gammas(tau, nu)
        return gt.prior_bound(tree, sharing, q, gt.Root(), mean, variance) + gt.gamma_bound(prior, q)

    h = 1e-4
    for g, k in np.ndindex(best.shape.shape):
        for which in (0, 1):
            step = np.zeros(best.shape.shape)
            step[g, k] = h
            moved = [
                [value * (1 + sign * step * (i == which)) for i, value in enumerate(best)] for sign in (1, -1)
            ]
            up, down = bound(*moved[0]), bound(*moved[1])
            assert abs(up - down) / (2 * h) < 1e-5
            assert max(up, down) <= bound(*best)


def test_precisions_of_the_models():
    tree, d = gt.make_tree(PARENT, LEAVES), 2
    sharing = gt.share_precisions(tree, "M1")
    gammas = gt.Gammas(np.array([[1.0], [2.0], [3.0]]), np.ones((3, 1)))
    precision = gt.node_precisions(sharing, gammas, gt.Root(0.0, 7.0), d)
    np.testing.assert_array_equal(precision[:, 0], [7, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(
        gt.posterior_precisions(tree.parent, precision)[:, 1], [9, 5, 7, 2, 2, 3, 3]
    )
    assert sorted(gt.share_precisions(tree, "M3").owner) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("parent", "leaves", "message"),
    [
        ([0], [0], "parents before children"),
        ([-1, 0, 0], [1], "must be the same"),
        ([1, -1], [0], "before children"),
    ],
)
def test_bad_trees_are_refused(parent, leaves, message):
    with pytest.raises(ValueError, match=message):
        gt.make_tree(parent, leaves)


def test_unknown_model_is_refused():
    with pytest.raises(ValueError, match="'M1', 'M2' or 'M3'"):
        gt.share_precisions(gt.make_tree(*STAR), "M4")
