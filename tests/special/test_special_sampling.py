"""The von Mises-Fisher sampler against closed forms, SciPy and its symmetries."""

import numpy as np
import pytest
from scipy import special, stats

from arbora.special import sample_vmf


def random_unit(n_features, seed):
    mu = np.random.default_rng(seed).standard_normal(n_features)
    return mu / np.linalg.norm(mu)


def cosines(n_features, kappa, size, seed=0):
    mu = random_unit(n_features, seed + 1)
    return sample_vmf(mu, kappa, size, random_state=seed) @ mu


@pytest.mark.parametrize("n_features", [2, 3, 8, 50, 200])
@pytest.mark.parametrize("kappa", [0.0, 0.3, 5.0, 80.0, 500.0])
def test_mean_resultant_length_is_the_bessel_ratio(n_features, kappa):
    order = n_features / 2 - 1
    expected = special.ive(order + 1, kappa) / special.ive(order, kappa) if kappa else 0.0
    draws = cosines(n_features, kappa, 8_000)
    assert abs(draws.mean() - expected) < 4.5 * draws.std() / np.sqrt(draws.size)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 4.0, 1e3, 1e8])
def test_two_dimensions_agree_with_scipy_vonmises(kappa):
    x = sample_vmf([0.6, -0.8], kappa, 5_000, random_state=3)
    angle = np.arctan2(x[:, 1] * 0.6 + x[:, 0] * 0.8, x[:, 0] * 0.6 - x[:, 1] * 0.8)
    if kappa == 0.0:
        reference = stats.uniform(-np.pi, 2 * np.pi)
    elif kappa < 1e6:
        reference = stats.vonmises(kappa)
    else:  # the tangent law is normal to within 1/kappa there
        reference = stats.norm(scale=kappa**-0.5)
    assert stats.kstest(angle, reference.cdf).pvalue > 1e-3


@pytest.mark.parametrize("kappa", [1e-6, 1.0, 40.0, 1e4, 1e8])
def test_three_dimensions_agree_with_the_closed_form(kappa):
    # D = 3: kappa (1 - w) is an exponential variate cut at 2 kappa.
    mu = np.array([0.0, 0.0, 1.0])
    x = sample_vmf(mu, kappa, 5_000, random_state=5)
    one_minus_w = 0.5 * ((x - mu) ** 2).sum(axis=1)  # exact where 1 - x.mu would cancel
    cdf = np.expm1(-kappa * one_minus_w) / np.expm1(-2 * kappa)
    assert stats.kstest(cdf, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("n_features", [2, 3, 7])
def test_uniform_when_kappa_is_zero(n_features):
    x = sample_vmf(random_unit(n_features, 2), 0.0, 8_000, random_state=0)
    w = x[:, -1]  # on the sphere, (w + 1)/2 is Beta((D-1)/2, (D-1)/2) along every axis
    a = (n_features - 1) / 2
    assert stats.kstest((w + 1) / 2, stats.beta(a, a).cdf).pvalue > 1e-3


@pytest.mark.parametrize("n_features", [2, 3, 40, 2_000])
def test_large_concentration_gives_the_tangent_normal(n_features):
    kappa = 1e8
    mu = random_unit(n_features, 4)
    x = sample_vmf(mu, kappa, 2_000, random_state=1)
    chi2 = kappa * ((x - mu) ** 2).sum(axis=1)
    assert stats.kstest(chi2, stats.chi2(n_features - 1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("kappa", [0.0, 1.0, 1e6, 1e8])
@pytest.mark.parametrize("n_features", [2, 1_000_000])
def test_unit_length_and_finite_at_the_ends_of_the_range(n_features, kappa):
    x = sample_vmf(random_unit(n_features, 0), kappa, 3, random_state=0)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, atol=1e-13)


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_means_on_the_reflection_axis(first):
    mu = np.array([first, 0.0, 0.0, 0.0])
    x = sample_vmf(mu, 1e6, 500, random_state=0)
    assert (x @ mu).min() > 0.9999
    assert np.abs(x[:, 1:].mean(axis=0)).max() < 4.5 / np.sqrt(500 * 1e6)


def test_tangent_part_has_no_preferred_direction():
    mu = random_unit(4, 9)
    x = sample_vmf(mu, 10.0, 20_000, random_state=2)
    tangent = x - (x @ mu)[:, None] * mu
    tangent /= np.linalg.norm(tangent, axis=1)[:, None]
    expected = (np.eye(4) - np.outer(mu, mu)) / 3
    np.testing.assert_allclose(tangent.T @ tangent / len(x), expected, atol=0.01)


def test_rows_of_means_with_their_own_concentrations():
    means = np.repeat([random_unit(5, 0), random_unit(5, 1)], 5_000, axis=0)
    kappa = np.repeat([2.0, 300.0], 5_000)
    w = np.einsum("ij,ij->i", sample_vmf(means, kappa, random_state=0), means)
    for half, k in ((w[:5_000], 2.0), (w[5_000:], 300.0)):
        expected = special.ive(2.5, k) / special.ive(1.5, k)
        assert abs(half.mean() - expected) < 4.5 * half.std() / np.sqrt(half.size)


def test_seeds_and_generators():
    mu = random_unit(6, 0)
    np.testing.assert_array_equal(sample_vmf(mu, 3.0, 4, 7), sample_vmf(mu, 3.0, 4, np.random.default_rng(7)))
    rng = np.random.default_rng(7)
    assert not np.array_equal(sample_vmf(mu, 3.0, 4, rng), sample_vmf(mu, 3.0, 4, rng))
    assert sample_vmf(mu, 3.0, random_state=0).shape == (6,)
    assert sample_vmf(mu, 3.0, 0, random_state=0).shape == (0, 6)


@pytest.mark.parametrize(
    ("mu", "kappa", "size", "message"),
    [
        ([1.0, 1.0], 1.0, 2, "unit length"),
        ([np.nan, 1.0], 1.0, 2, "unit length"),
        ([1.0], 1.0, 2, "shape"),
        ([1.0, 0.0], -1.0, 2, "kappa"),
        ([1.0, 0.0], np.inf, 2, "kappa"),
        ([1.0, 0.0], [1.0, 2.0, 3.0], 2, "one value per draw"),
        ([[1.0, 0.0]], 1.0, 2, "size must be None when mu is 2-d"),
        ([1.0, 0.0], 1.0, -1, "negative"),
    ],
)
def test_invalid_input(mu, kappa, size, message):
    with pytest.raises(ValueError, match=message):
        sample_vmf(mu, kappa, size, random_state=0)
