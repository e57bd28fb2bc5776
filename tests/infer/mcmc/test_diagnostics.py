"""R-hat, effective sample sizes and Geweke's test, against what is known of them."""

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from arbora.infer.mcmc.diagnostics import compare_simulations, ess_bulk, ess_tail, geweke_test, rhat


def autoregression(rho, n_chains, n_draws, n_series, seed):
    """Stationary AR(1) series with unit variance: the autocorrelation at lag t is rho^t."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n_chains, n_draws, n_series)) * np.sqrt(1 - rho**2)
    x = np.empty_like(noise)
    x[:, 0] = rng.standard_normal((n_chains, n_series))
    for t in range(1, n_draws):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    return x


def plain_rhat(draws):
    """Split R-hat of one quantity with rank-normalisation, spelled out from the paper."""

    def split_rhat(chains):
        z = norm.ppf((rankdata(chains).reshape(chains.shape) - 0.375) / (chains.size + 0.25))
        n = z.shape[1]
        between = n / (len(z) - 1) * sum((chain.mean() - z.mean()) ** 2 for chain in z)
        within = sum(((chain - chain.mean()) ** 2).sum() / (n - 1) for chain in z) / len(z)
        return np.sqrt(((n - 1) / n * within + between / n) / within)

    n = draws.shape[1] // 2
    halves = np.array([half for chain in draws for half in (chain[:n], chain[-n:])])
    return max(split_rhat(halves), split_rhat(np.abs(halves - np.median(halves))))


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.8, 0.95])
def test_effective_sample_size_of_autoregressions(rho):
    x = autoregression(rho, n_chains=4, n_draws=4000, n_series=40, seed=1)
    expected = x.shape[0] * x.shape[1] * (1 - rho) / (1 + rho)
    found = ess_bulk(x)
    assert found.shape == (40,)
    assert np.mean(found) == pytest.approx(expected, rel=0.06)
    assert np.abs(found / expected - 1).max() < 0.4


def test_antithetic_chains_are_worth_more_than_independent_draws():
    x = autoregression(-0.5, n_chains=4, n_draws=4000, n_series=20, seed=2)
    assert np.mean(ess_bulk(x)) == pytest.approx(16_000 * 3, rel=0.1)


def test_tail_size_is_that_of_the_indicator_of_a_quantile():
    """An indicator with P(stay) known: a slow two-state chain of whether the draw lies in the upper tail."""
    rng = np.random.default_rng(3)
    stay = 0.9  # in the tail; such a chain has the autocorrelation (stay - leave)^t
    enter = 0.1 * (1 - stay) / 0.9
    tail = np.zeros((4, 20_000), bool)
    uniform = rng.random(tail.shape)
    tail[:, 0] = uniform[:, 0] < 0.1
    for t in range(1, tail.shape[1]):
        tail[:, t] = uniform[:, t] < np.where(tail[:, t - 1], stay, enter)
    x = np.where(tail, 3.0, 0.0) + 0.1 * rng.standard_normal(tail.shape)
    rho = stay - enter
    # At the 95% quantile half of the tail's draws are told apart, independently: correlations shrink by a factor.
    cut = 0.1 * 0.5
    covariance = 0.25 * 0.1 * 0.9
    inflation = 1 + 2 * covariance / (cut * (1 - cut)) * rho / (1 - rho)
    assert ess_tail(x) == pytest.approx(tail.size / inflation, rel=0.15)
    assert ess_tail(x) < 0.5 * tail.size


def test_ranks_make_sizes_and_rhat_invariant_to_monotone_maps():
    x = autoregression(0.5, 3, 301, 5, seed=4)
    np.testing.assert_allclose(ess_bulk(np.exp(3 * x)), ess_bulk(x))
    np.testing.assert_allclose(ess_tail(np.exp(3 * x)), ess_tail(x))
    np.testing.assert_allclose(rhat(-5 * x + 7), rhat(x))


@pytest.mark.parametrize("n_draws", [4, 101, 500])
def test_rhat_is_what_the_paper_says(n_draws):
    x = autoregression(0.7, 3, n_draws, 6, seed=5) ** 3 + np.arange(3)[:, None, None] * 0.3
    expected = [plain_rhat(x[:, :, k]) for k in range(6)]
    np.testing.assert_allclose(rhat(x.reshape(3, n_draws, 2, 3)).ravel(), expected, rtol=1e-12)


def test_rhat_sees_chains_apart_in_place_in_spread_and_on_the_move():
    x = np.random.default_rng(6).standard_normal((4, 500))
    assert rhat(x) < 1.01
    assert rhat(x + np.arange(4)[:, None]) > 1.2
    assert rhat(x * np.array([1, 1, 1, 4])[:, None]) > 1.1
    assert rhat(x + np.linspace(0, 3, 500)) > 1.2


def test_quantities_that_do_not_move_or_are_not_finite():
    x = np.random.default_rng(7).standard_normal((2, 50, 4))
    x[:, :, 1] = 3.0
    x[1, 7, 2] = np.nan
    x[0, 0, 3] = np.inf
    for function in (rhat, ess_bulk, ess_tail):
        assert np.isnan(function(x)).tolist() == [False, False, True, True]
    assert rhat(x)[1] == 1
    stuck = np.repeat([[0.0], [1.0]], 50, axis=1)  # each chain at a point of its own
    assert rhat(stuck) == np.inf


def test_too_few_draws_are_refused():
    for function in (rhat, ess_bulk, ess_tail):
        with pytest.raises(ValueError, match=r"at least 4 draws, got \(2, 3\)"):
            function(np.zeros((2, 3)))


def test_agrees_with_arviz_where_it_is_installed():
    arviz = pytest.importorskip("arviz")
    x = autoregression(0.6, 4, 500, 1, seed=8)[:, :, 0]
    assert rhat(x) == pytest.approx(float(arviz.rhat(x)), rel=1e-6)
    assert ess_bulk(x) == pytest.approx(float(arviz.ess(x, method="bulk")), rel=0.02)
    assert ess_tail(x) == pytest.approx(float(arviz.ess(x, method="tail")), rel=0.05)


class Conjugate:
    """x_i ~ N(mu, 1 / tau), mu ~ N(0, 1), tau ~ Gamma(3, 3), by Gibbs sampling; `slip` spoils one conditional."""

    n = 5

    def __init__(self, slip=None):
        self.slip = slip

    def sample_prior(self, rng):
        return rng.standard_normal(), rng.gamma(3) / 3

    def sample_data(self, state, rng):
        return rng.normal(state[0], state[1] ** -0.5, size=self.n)

    def log_joint(self, state, x):
        raise NotImplementedError

    def sweep(self, state, x, rng):
        mu, tau = state
        precision = 1 + self.n * tau
        mu = rng.normal(tau * x.sum() / precision, precision**-0.5)
        n = self.n - 1 if self.slip == "shape" else self.n
        half = 1.0 if self.slip == "half" else 0.5
        return (mu, rng.gamma(3 + n / 2) / (3 + half * np.sum((x - mu) ** 2))), {}


def moments(state, x):
    return [state[0], np.log(state[1]), x.mean(), state[0] * x.mean()]


def test_geweke_passes_a_right_sampler_and_convicts_wrong_ones():
    right = geweke_test(Conjugate(), moments, np.random.default_rng(0))
    assert right.p_value > 0.01
    assert right.location.shape == right.spread.shape == (4,)
    assert right.effective_sample_size.min() > 300
    for slip in ("shape", "half"):
        assert geweke_test(Conjugate(slip), moments, np.random.default_rng(0)).p_value < 1e-4


def test_geweke_p_values_of_a_right_sampler_are_not_too_small():
    """A bound over many seeds: the share below 5% is not above 5% by more than chance."""
    options = {"n_direct": 400, "n_sweeps": 200, "n_chains": 2}
    found = [
        geweke_test(Conjugate(), moments, np.random.default_rng(seed), **options).p_value
        for seed in range(60)
    ]
    assert np.mean(np.array(found) < 0.05) < 0.15
    assert min(found) > 1e-4


def test_geweke_thins():
    result = geweke_test(
        Conjugate(), moments, np.random.default_rng(1), n_direct=50, n_sweeps=50, n_chains=2, thin=5
    )
    assert np.all(np.isfinite(result.location))


def test_simulations_that_break_down_are_told():
    draws = np.zeros((10, 2))
    chains = np.zeros((2, 10, 2))
    chains[1, 3, 1] = np.nan
    with pytest.raises(ValueError, match=r"statistics \[1\] are not always finite"):
        compare_simulations(draws, chains)
    assert compare_simulations(draws, np.zeros((2, 10, 2))).p_value == 1
    assert compare_simulations(draws, np.ones((2, 10, 2))).p_value == 0
