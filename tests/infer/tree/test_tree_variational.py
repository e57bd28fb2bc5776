"""Variational inference over a tree: against the textbook updates, its definition, draws, and the truth."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from arbora.engine import ThreadEngine
from arbora.infer.tree.gaussian import Gammas, Root, make_tree, share_precisions
from arbora.infer.tree.problem import TreeProblem
from arbora.infer.tree.variational import VariationalTree, fit_tree
from support.tree_models import elbo, likelihood_bound, problem, rows_of, textbook

cases = pytest.mark.parametrize("likelihood", ["softmax", "logistic"])
models = pytest.mark.parametrize("model", ["M1", "M2", "M3"])


def fit(p, **options):
    return fit_tree(p, ThreadEngine(), **{"tol": 1e-13, "max_iter": 300, **options})


def full(p, posterior):
    cov = np.array([np.diag(v) for v in posterior.variance])
    cov[p.tree.leaves] = posterior.covariance
    return cov


def locals_of(p, posterior):
    """Local parameters that are best for a posterior, by the textbook formulas."""
    X, leaves = rows_of(p), p.tree.leaves
    m = X @ posterior.mean[leaves].T
    v = np.einsum("id,kde,ie->ik", X, posterior.covariance, X)
    b = np.zeros(len(X))
    for _ in range(2000 if p.likelihood == "softmax" else 0):
        x = np.sqrt(v + (m - b[:, None]) ** 2)
        weight = np.tanh(x / 2) / x
        b = ((m.shape[1] - 2) + (weight * m).sum(axis=1)) / weight.sum(axis=1)
    return b, np.sqrt(v + (m - b[:, None]) ** 2)


@cases
@models
@pytest.mark.parametrize("sparse", [False, True])
def test_bound_never_falls_and_is_the_definition(model, likelihood, sparse):
    p = problem(model, likelihood, sparse=sparse, n=300 if model == "M3" else 40)  # more rows than a chunk
    found = fit(p, tol=1e-10)
    assert found.converged
    assert (np.diff(found.lower_bounds) >= -1e-11 * np.abs(found.lower_bounds[1:])).all()
    b, x = locals_of(p, found.posterior)
    value = elbo(p, found.posterior.mean, full(p, found.posterior), *found.posterior.gammas, b, x)
    np.testing.assert_allclose(found.lower_bounds[-1], value, rtol=1e-10)


def assert_fixed_point(p, posterior):
    """A round of the textbook updates moves nothing."""
    b, x = locals_of(p, posterior)
    before = posterior.mean, full(p, posterior), *posterior.gammas, b, x
    for old, new in zip(before, textbook(p, 1, before), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


@cases
@models
def test_fixed_point_of_the_textbook_updates(model, likelihood):
    p = problem(model, likelihood)
    assert_fixed_point(p, fit(p).posterior)


@models
def test_same_end_as_the_textbook_updates(model):
    """From nothing; with a softmax they would take thousands of rounds."""
    p = problem(model, "logistic", n=25)
    mean, cov, tau, nu, _, _ = textbook(p, 300)
    found = fit(p).posterior
    np.testing.assert_allclose(found.mean, mean, atol=1e-4)
    np.testing.assert_allclose(full(p, found), cov, atol=1e-4)
    np.testing.assert_allclose(found.gammas.mean, tau / nu, rtol=1e-3)


@cases
@models
def test_every_block_is_stationary(model, likelihood):
    """Finite differences of the definition in every parameter of q, at the end of a fit."""
    p = problem(model, likelihood, n=20)
    posterior = fit(p).posterior
    b, x = locals_of(p, posterior)
    blocks = [posterior.mean, full(p, posterior), *posterior.gammas, b, x]
    blocks = [np.array(block) for block in blocks]
    n_inner = p.tree.n_nodes - len(p.tree.leaves)
    h = 1e-4
    for which, block in enumerate(blocks):
        if which == 4 and likelihood == "logistic":
            continue  # it has no shifts
        rng = np.random.default_rng(which)
        for _ in range(6):
            direction = rng.normal(size=block.shape)
            if which == 1:
                direction[:n_inner] = [np.diag(np.diag(d)) for d in direction[:n_inner]]
                direction = (
                    0.1
                    * (direction + direction.transpose(0, 2, 1))
                    * np.abs(block).max(axis=(1, 2))[:, None, None]
                )
            elif which > 1:
                direction = direction * block
            sides = [
                elbo(p, *blocks[:which], block + s * h * direction, *blocks[which + 1 :]) for s in (1, -1)
            ]
            assert abs(sides[0] - sides[1]) / (2 * h) < 2e-4
            assert (sides[0] + sides[1]) / 2 <= elbo(p, *blocks) + 1e-9


@cases
def test_definition_is_an_expectation_under_q(likelihood):
    """All constants: the definition against a mean over draws of log of (bounded joint density over q)."""
    p = problem("M3", likelihood, n=6, d=1, bias=0.0, parent=[-1, 0, 0, 0], leaves=[1, 2, 3])
    posterior = fit(p).posterior
    b, x = locals_of(p, posterior)
    rng, n_draws = np.random.default_rng(0), 100_000
    mean, sd = posterior.mean[:, 0], np.sqrt(posterior.variance[:, 0])
    W = mean + sd * rng.normal(size=(n_draws, 4))
    tau, nu = (value[:, 0] for value in posterior.gammas)
    A = rng.gamma(tau, 1 / nu, (n_draws, 3))
    a, r = (value[:, 0] for value in p.prior)
    log_ratio = stats.norm.logpdf(W[:, 0], p.root.mean[0], p.root.precision[0] ** -0.5)
    log_ratio = log_ratio + stats.norm.logpdf(W[:, 1:], W[:, :1], A**-0.5).sum(axis=1)
    log_ratio += (stats.gamma.logpdf(A, a, scale=1 / r) - stats.gamma.logpdf(A, tau, scale=1 / nu)).sum(
        axis=1
    )
    log_ratio -= stats.norm.logpdf(W, mean, sd).sum(axis=1)
    X, Y = rows_of(p), p.Y.toarray()
    for i in range(len(X)):
        g = (W[:, 1:] * X[i]).T
        log_ratio += p.row_weight[i] * (Y[i] @ g + likelihood_bound(p, g, b[i], x[i]))
    value = elbo(p, posterior.mean, full(p, posterior), *posterior.gammas, b, x)
    assert abs(log_ratio.mean() - value) < 5 * log_ratio.std() / np.sqrt(n_draws)


def test_bound_is_below_the_evidence():
    """One weight a node: the evidence by quadrature over the leaves and the root, precisions integrated out."""
    p = problem("M3", "logistic", n=4, d=1, bias=0.0, parent=[-1, 0, 0], leaves=[1, 2])
    p = p._replace(row_weight=np.ones(4))
    grid = np.linspace(-20, 20, 801)
    step = grid[1] - grid[0]
    X, Y = rows_of(p)[:, 0], p.Y.toarray()
    evidence = stats.norm.pdf(grid, p.root.mean[0], p.root.precision[0] ** -0.5)
    for k in range(2):
        a, r = p.prior.shape[k, 0], p.prior.rate[k, 0]
        away = stats.t.pdf(grid[:, None] - grid, 2 * a, scale=np.sqrt(r / a))
        g = grid[:, None] * X
        likelihood = np.exp((Y[:, k] * g - np.logaddexp(0, g)).sum(axis=1))
        evidence = evidence * (away @ likelihood) * step
    log_evidence = np.log(evidence.sum() * step)
    bound = fit(p).lower_bounds[-1]
    assert log_evidence - 1.5 < bound < log_evidence


def test_leaves_that_are_roots_are_flat_bayesian_regression():
    """No precision to learn, no parent: multinomial regression with the prior N(w0, S0) on every class."""
    p = problem("M3", "softmax", parent=[-1, -1, -1], leaves=[0, 1, 2])
    assert p.prior.shape.size == 0
    found = fit(p)
    assert_fixed_point(p, found.posterior)
    # What a softmax cannot see stays at the prior: with one mean for all, the classes lie around it.
    np.testing.assert_allclose(found.posterior.mean.mean(axis=0), p.root.mean, atol=1e-6)


@pytest.mark.parametrize(
    ("parent", "leaves"),
    [([-1, 0, 1, 2, 0], [3, 4]), ([-1, -1, 0, 0, 1], [4, 2, 3]), ([-1, 0, 0], [2, 1])],
    ids=str,
)
@cases
def test_other_shapes_of_trees(parent, leaves, likelihood):
    p = problem("M1", likelihood, parent=parent, leaves=leaves)
    assert_fixed_point(p, fit(p).posterior)


def test_any_number_of_threads_same_bits():
    p = problem(n=900)
    results = [fit_tree(p, ThreadEngine(n), tol=1e-6).posterior.mean for n in (1, 2, 3)]
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_weights_are_copies_and_zero_weights_are_absences():
    p = problem(n=30)
    p = p._replace(row_weight=np.tile([2.0, 0.0, 1.0], 10))
    times = p.row_weight.astype(int)
    copied = p._replace(
        X=np.repeat(p.X, times, axis=0), Y=p.Y[np.repeat(np.arange(30), times)], row_weight=np.ones(30)
    )
    np.testing.assert_allclose(fit(p).posterior.mean, fit(copied).posterior.mean, atol=1e-6)


def test_few_iterations_are_enough():
    """Newton steps on the means: what takes coordinate ascent hundreds of rounds takes ten."""
    p = problem("M3", "softmax", n=400, d=6)
    end = fit(p).lower_bounds[-1]
    early = fit(p, max_iter=10).lower_bounds[-1]
    assert abs(end - early) < 1e-4 * abs(end)


def test_posterior_covers_weak_effects_at_the_stated_rate():
    """Where scores are small the bound's curvature 1/4 is the likelihood's, and intervals are honest.

    Independent logistic classes, each a root of its own with a known prior: no mean-field factorisation and no
    learned precision is in the way. The interval of a weight must cover the truth, drawn from the prior, as often as
    it says.
    """
    rng, hits = np.random.default_rng(0), []
    tree = make_tree([-1] * 20, range(20))
    sharing = share_precisions(tree, "M3")
    for _ in range(6):
        X = rng.normal(size=(150, 4)) * 0.5
        W = rng.normal(size=(20, 4)) * 0.3
        Y = sp.csr_array((rng.random((150, 20)) < 1 / (1 + np.exp(-X @ W.T))).astype(float))
        prior = Gammas(np.empty((0, 1)), np.empty((0, 1)))
        p = TreeProblem(X, Y, np.ones(150), tree, sharing, prior, Root(0.0, 0.3**-2), "logistic", 0.0)
        posterior = fit(p, tol=1e-8).posterior
        hits.append(np.abs(W - posterior.mean) < 1.645 * np.sqrt(posterior.variance))
    n = np.size(hits)
    assert abs(np.mean(hits) - 0.9) < 3 * np.sqrt(0.9 * 0.1 / n)


def test_intervals_of_strong_effects_are_too_narrow_never_too_wide():
    """The bound's curvature exceeds the likelihood's where scores are large: coverage below the stated rate."""
    rng, hits = np.random.default_rng(1), []
    tree = make_tree([-1] * 20, range(20))
    sharing = share_precisions(tree, "M3")
    for _ in range(4):
        X = rng.normal(size=(150, 4))
        W = rng.normal(size=(20, 4)) * 3
        Y = sp.csr_array((rng.random((150, 20)) < 1 / (1 + np.exp(-X @ W.T))).astype(float))
        prior = Gammas(np.empty((0, 1)), np.empty((0, 1)))
        p = TreeProblem(X, Y, np.ones(150), tree, sharing, prior, Root(0.0, 1 / 9), "logistic", 0.0)
        posterior = fit(p, tol=1e-8).posterior
        hits.append(np.abs(W - posterior.mean) < 1.645 * np.sqrt(posterior.variance))
    assert 0.5 < np.mean(hits) < 0.9


@models
def test_coverage_on_data_of_the_model_itself(model):
    """Precisions, weights and labels drawn from the whole model, four families of twelve classes.

    Under q nodes are independent, and the doubt about a parent is missing in its children. The marginals of the joint
    Gaussian have it: intervals of 90% cover what they say, up to the uncertainty of the precisions (M2 and M3, which
    have many of them, are a little too sure).
    """
    rng, hits, of_q, d = np.random.default_rng(0), [], [], 4
    tree = make_tree([-1, *[0] * 4, *np.repeat([1, 2, 3, 4], 12)], range(5, 53))
    sharing = share_precisions(tree, model)
    size = len(sharing.owner), d if sharing.by_weight else 1
    prior = Gammas(np.full(size, 6.0), np.full(size, 0.5))
    for _ in range(4):
        precision = (rng.gamma(prior.shape) / prior.rate)[sharing.group]
        precision[0] = 1.0
        W = rng.normal(size=(tree.n_nodes, d)) / np.sqrt(precision)
        for n in range(1, tree.n_nodes):
            W[n] += W[tree.parent[n]]
        X = rng.normal(size=(150, d)) * 0.5
        Y = sp.csr_array((rng.random((150, 48)) < 1 / (1 + np.exp(-X @ W[5:].T))).astype(float))
        p = TreeProblem(X, Y, np.ones(150), tree, sharing, prior, Root(), "logistic", 0.0)
        found = fit(p, tol=1e-6)
        away = np.abs(W - found.posterior.mean) / 1.645
        hits.append(away < np.sqrt(found.marginals.variance))
        of_q.append(away < np.sqrt(found.posterior.variance))
    inner, leaves = np.mean([hit[:5] for hit in hits]), np.mean([hit[5:] for hit in hits])
    assert 0.86 < leaves < 0.93
    assert 0.8 < inner < 0.97
    assert np.mean(of_q) < np.mean(hits) - 0.02


def test_progress_counts_iterations():
    state = VariationalTree(problem(), ThreadEngine())
    bounds = [state.iterate(1e-6) for _ in range(4)]
    assert bounds == sorted(bounds)
