"""The max-margin step: the augmentation, the losses, and the projections against integration over a grid."""

import numpy as np
import pytest
from scipy import integrate, stats

from arbora.infer.mcmc.max_margin import (
    Margin,
    all_hinge_losses,
    draw_inverse_lambda,
    draw_projections,
    gaussian_terms,
    hinge_losses,
)


def slow_loss(scores, label, width):
    others = [score for k, score in enumerate(scores) if k != label]
    return max(0.0, width + max(others) - scores[label]) if others else 0.0


@pytest.mark.parametrize("n_clusters", [1, 2, 5])
def test_losses_are_the_hinge_of_the_best_competitor(n_clusters):
    rng = np.random.default_rng(n_clusters)
    scores, labels = rng.standard_normal((30, n_clusters)), rng.integers(n_clusters, size=30)
    slow = [[slow_loss(row, k, 0.7) for k in range(n_clusters)] for row in scores]
    np.testing.assert_allclose(all_hinge_losses(scores, 0.7), slow)
    np.testing.assert_allclose(hinge_losses(scores, labels, 0.7), np.array(slow)[np.arange(30), labels])


@pytest.mark.parametrize("z", [-1.3, 0.0, 0.4])
def test_the_factor_is_a_mixture_of_gaussians(z):
    def integrand(root):  # lambda = root^2 removes the pole at zero
        return 2 / np.sqrt(2 * np.pi) * np.exp(-((root**2 + 0.8 * z) ** 2) / (2 * root**2))

    mass = integrate.quad(integrand, 1e-9, 20, limit=200)[0]
    assert mass == pytest.approx(np.exp(-2 * 0.8 * max(0.0, z)), rel=1e-6)


@pytest.mark.parametrize("u", [1e-8, 0.05, 1.0, 30.0])
def test_inverse_lambda_is_inverse_gaussian(u):
    draws = draw_inverse_lambda(np.full(20_000, u), np.random.default_rng(0))
    expected = stats.invgauss(mu=1 / u) if u > 1e-6 else stats.invgamma(0.5, scale=0.5)  # 1 / chi^2 at zero
    assert stats.kstest(draws, expected.cdf).pvalue > 1e-3


def test_inverse_lambda_is_finite_at_the_extremes():
    draws = draw_inverse_lambda(np.array([0.0, 1e-300, 1e300] * 1000), np.random.default_rng(0))
    assert np.isfinite(draws).all()
    assert (draws >= 0).all()


def test_one_cluster_has_no_terms():
    terms = gaussian_terms(
        np.ones((3, 1)), np.zeros(3, np.int64), 0, Margin(1.0, 1.0, 1.0), np.random.default_rng(0)
    )
    assert not terms.weight.any()
    assert not terms.linear.any()


@pytest.mark.parametrize("n_clusters", [1, 2, 3])
def test_projections_have_the_density_of_the_model(n_clusters):
    """Means and second moments of one-dimensional projections against a grid."""
    rng = np.random.default_rng(n_clusters)
    X, margin = np.array([[0.6], [-1.0], [1.4], [0.0]]), Margin(c=0.8, width=0.5, variance=0.7)
    labels = np.array([0, n_clusters - 1, min(1, n_clusters - 1), 0])
    axis = np.linspace(-4.5, 4.5, 91)
    grid = np.stack(np.meshgrid(*[axis] * n_clusters, indexing="ij"), axis=-1).reshape(-1, n_clusters)
    log_density = -0.5 * (grid**2).sum(axis=1) / margin.variance
    for x, label in zip(X[:, 0], labels, strict=True):
        log_density -= 2 * margin.c * hinge_losses(grid * x, np.full(len(grid), label), margin.width)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    eta, draws = np.zeros((n_clusters, 1)), []
    for _ in range(4000):
        eta = draw_projections(eta, X, labels, margin, rng)
        draws.append(eta[:, 0])
    drawn = np.array(draws)[100:]
    for power in (1, 2):
        expected = density @ grid**power
        error = np.std(drawn**power, axis=0) / np.sqrt(len(drawn) / 12)  # the chain is correlated
        assert (np.abs((drawn**power).mean(axis=0) - expected) < 4 * error).all()
    expected = density @ (grid[:, 0] * grid[:, -1])
    product = drawn[:, 0] * drawn[:, -1]
    assert abs(product.mean() - expected) < 4 * product.std() / np.sqrt(len(drawn) / 12)
