"""The loop of chains, and the moves that samplers are made of."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import kstest

from arbora.core.checkpoint import Checkpoint
from arbora.core.monitor import Progress
from arbora.engine import ThreadEngine
from arbora.infer.mcmc.chains import ChainSchedule, mean_trace, sample_chains
from arbora.infer.mcmc.diagnostics import compare_simulations
from arbora.infer.mcmc.hmc import hamiltonian_step, slice_step, start_step_size, update_step_size


class Point(NamedTuple):
    x: float
    path: np.ndarray


class Walk:
    """Adds a normal number a sweep; remembers what it was told in the warm-up."""

    def __init__(self, step=1.0, log=None):
        self.step, self.log = step, log if log is not None else []

    def sample_prior(self, rng):
        return Point(rng.standard_normal(), np.zeros(2))

    def sample_data(self, state, rng):
        return None

    def log_joint(self, state, data):
        return data * state.x

    def sweep(self, state, data, rng):
        x = state.x + self.step * rng.standard_normal()
        return Point(x, np.array([x, -x])), {"step": self.step}


class TunedWalk(Walk):
    def adapt(self, state, info, data, step, n_warmup):
        self.log.append((step, n_warmup, info["step"], data))
        return TunedWalk(self.step / 2, self.log)


def test_a_chain_keeps_what_it_should():
    schedule = ChainSchedule(n_warmup=3, n_samples=4, thin=5, n_chains=3)
    assert schedule.n_sweeps == 23
    chains = sample_chains(Walk(), 2.0, schedule, seed=1)
    assert chains.draws["x"].shape == (3, 4)
    assert chains.draws["path"].shape == (3, 4, 2)
    for number, trace in enumerate(chains.traces):
        assert len(trace) == 23
        # Sweeps 8, 13, 18, 23: five apart, after the warm-up
        chosen = trace["objective"][[7, 12, 17, 22]] / 2
        np.testing.assert_allclose(chains.draws["x"][number], chosen)
    np.testing.assert_array_equal(chains.draws["path"][..., 0], chains.draws["x"])


def test_adaptation_ends_with_the_warm_up():
    model = TunedWalk()
    chains = sample_chains(model, 0.5, ChainSchedule(3, 2, n_chains=1), seed=0)
    assert model.log == [(0, 3, 1.0, 0.5), (1, 3, 0.5, 0.5), (2, 3, 0.25, 0.5)]
    np.testing.assert_array_equal(chains.traces[0]["step"], [1, 0.5, 0.25, 0.125, 0.125])


def test_starts_and_what_is_kept_can_be_chosen():
    chains = sample_chains(
        Walk(step=0.0), 1.0, ChainSchedule(0, 3), 0, start=lambda rng: Point(7.0, np.zeros(2)),
        keep=lambda state: {"square": state.x**2},
    )  # fmt: skip
    assert list(chains.draws) == ["square"]
    np.testing.assert_array_equal(chains.draws["square"], np.full((2, 3), 49.0))


def test_chains_differ_from_each_other_and_not_by_who_runs_them():
    schedule = ChainSchedule(2, 10, n_chains=4)
    plain = sample_chains(Walk(), 1.0, schedule, seed=5).draws["x"]
    threads = sample_chains(Walk(), 1.0, schedule, seed=5, engine=ThreadEngine(3)).draws["x"]
    np.testing.assert_array_equal(plain, threads)
    assert len(np.unique(plain[:, 0])) == 4
    fewer = sample_chains(Walk(), 1.0, schedule._replace(n_chains=2), seed=5).draws["x"]
    np.testing.assert_array_equal(plain[:2], fewer)
    assert not np.isin(sample_chains(Walk(), 1.0, schedule, seed=6).draws["x"], plain).any()


def test_progress_counts_sweeps():
    with Progress(total=24, verbose=0) as progress:
        sample_chains(Walk(), 1.0, ChainSchedule(2, 5, 2), 0, progress=progress)
    assert progress.n == 24


def test_finished_chains_are_not_run_again(tmp_path):
    class Interrupted(Walk):
        sweeps = 0

        def sweep(self, state, data, rng):
            Interrupted.sweeps += 1
            if Interrupted.sweeps == 25:
                raise KeyboardInterrupt
            return super().sweep(state, data, rng)

    schedule = ChainSchedule(4, 6, n_chains=3)
    expected = sample_chains(Walk(), 1.0, schedule, 3)
    with pytest.raises(KeyboardInterrupt):
        sample_chains(Interrupted(), 1.0, schedule, 3, checkpoint=Checkpoint(tmp_path, "a fit"))
    with Progress(total=30, verbose=0) as progress:
        resumed = sample_chains(
            Interrupted(), 1.0, schedule, 3, progress=progress,
            checkpoint=Checkpoint(tmp_path, "a fit"),
        )  # fmt: skip
    assert Interrupted.sweeps < 25 + 10  # two chains were done, and the third had begun
    assert progress.n == 30
    for name in ("x", "path"):
        np.testing.assert_array_equal(resumed.draws[name], expected.draws[name])
    np.testing.assert_array_equal(resumed.traces[0]["objective"], expected.traces[0]["objective"])


@pytest.mark.parametrize("stop", [2, 7, 9])
def test_an_interrupted_chain_continues_with_the_same_draws(tmp_path, stop):
    class Interrupted(Walk):
        sweeps = 0

        def sweep(self, state, data, rng):
            Interrupted.sweeps += 1
            if Interrupted.sweeps == stop:
                raise KeyboardInterrupt
            return super().sweep(state, data, rng)

    schedule, options = ChainSchedule(4, 3, 2, 1), {"average": lambda state: {"square": state.x**2}}
    expected = sample_chains(Walk(), 1.0, schedule, 3, **options)
    np.testing.assert_allclose(expected.means["square"], (expected.draws["x"] ** 2).mean(axis=1))
    with pytest.raises(KeyboardInterrupt):
        sample_chains(Interrupted(), 1.0, schedule, 3, checkpoint=Checkpoint(tmp_path, "a fit"), **options)
    resumed = sample_chains(
        Interrupted(), 1.0, schedule, 3, checkpoint=Checkpoint(tmp_path, "a fit"), **options
    )
    for name in ("x", "path"):
        np.testing.assert_array_equal(resumed.draws[name], expected.draws[name])
    np.testing.assert_array_equal(resumed.means["square"], expected.means["square"])
    np.testing.assert_array_equal(resumed.traces[0]["objective"], expected.traces[0]["objective"])


class Growing(NamedTuple):
    values: np.ndarray


class Growth(Walk):
    """States whose array has another length in every sweep."""

    def sample_prior(self, rng):
        return Growing(np.ones(1))

    def log_joint(self, state, data):
        return float(len(state.values))

    def sweep(self, state, data, rng):
        return Growing(np.full(1 + len(state.values) % 3, rng.random())), {}


def test_arrays_of_different_lengths_are_padded_and_resumed(tmp_path):
    class Interrupted(Growth):
        sweeps = 0

        def sweep(self, state, data, rng):
            Interrupted.sweeps += 1
            if Interrupted.sweeps == 6:
                raise KeyboardInterrupt
            return super().sweep(state, data, rng)

    expected = sample_chains(Growth(), None, ChainSchedule(1, 8, n_chains=1), 0).draws["values"]
    assert expected.shape == (1, 8, 3)
    assert ((expected != 0).sum(axis=2)[0] == [3, 1, 2, 3, 1, 2, 3, 1]).all()
    for _ in range(2):
        try:
            chains = sample_chains(
                Interrupted(),
                None,
                ChainSchedule(1, 8, n_chains=1),
                0,
                checkpoint=Checkpoint(tmp_path, "fit"),
            )
        except KeyboardInterrupt:
            continue
    np.testing.assert_array_equal(chains.draws["values"], expected)


def test_mean_trace_adds_up_the_work():
    traces = sample_chains(Walk(), 1.0, ChainSchedule(1, 3, n_chains=3), 0).traces
    trace = mean_trace(traces)
    np.testing.assert_allclose(trace["objective"], np.mean([t["objective"] for t in traces], axis=0))
    np.testing.assert_allclose(trace["seconds"], np.sum([t["seconds"] for t in traces], axis=0))


PRECISION = np.array([[2.0, 0.9], [0.9, 1.0]])


def gaussian(z):
    return 0.5 * float(z @ PRECISION @ z), PRECISION @ z


def gaussian_draws(size, n_steps, seed, n_chains=4, n_draws=2000):
    rng = np.random.default_rng(seed)
    factor = np.linalg.cholesky(np.linalg.inv(PRECISION))
    draws, rates = np.empty((n_chains, n_draws, 2)), []
    for chain in draws:
        z = factor @ rng.standard_normal(2)
        for t in range(n_draws):
            z, acceptance, _ = hamiltonian_step(gaussian, z, size, n_steps, rng)
            rates.append(acceptance)
            chain[t] = z
    return draws, np.mean(rates), (factor @ rng.standard_normal((2, 10_000))).T


@pytest.mark.parametrize(("size", "n_steps"), [(0.3, 4), (0.9, 2), (1.2, 1)])
def test_hamiltonian_steps_leave_a_gaussian_invariant(size, n_steps):
    """At the larger sizes the leapfrog alone would be far off: the Metropolis correction makes up for it."""
    draws, rate, known = gaussian_draws(size, n_steps, seed=0)
    assert compare_simulations(known, draws).p_value > 0.01
    assert rate < 0.99 or size < 0.5


def test_without_the_correction_the_gaussian_is_not_left_invariant():
    class AcceptsAll:
        def __init__(self, rng):
            self.rng = rng

        def standard_normal(self, shape):
            return self.rng.standard_normal(shape)

        def standard_exponential(self):
            return np.inf

    rng = np.random.default_rng(0)
    z, draws = np.zeros(2), []
    for _ in range(6000):
        z, _, accepted = hamiltonian_step(gaussian, z, 1.2, 1, AcceptsAll(rng))
        assert accepted
        draws.append(z)
    known = np.linalg.cholesky(np.linalg.inv(PRECISION)) @ rng.standard_normal((2, 10_000))
    assert compare_simulations(known.T, np.array(draws)[None]).p_value < 1e-4


def test_hamiltonian_steps_can_be_reversed():
    """With the momentum turned round, leapfrog leads back: that and constant volume are what makes HMC exact."""

    class Fixed:
        def __init__(self, momentum):
            self.momentum = momentum

        def standard_normal(self, shape):
            return self.momentum

        def standard_exponential(self):
            return np.inf

    start, momentum, size = np.array([0.3, -1.0]), np.array([0.7, 0.2]), 0.4
    end = hamiltonian_step(gaussian, start, size, 5, Fixed(momentum)).position
    # The momentum at the end, from the middle of the last step: z5 = z4 + size * m.
    before = hamiltonian_step(gaussian, start, size, 4, Fixed(momentum)).position
    last = (end - before) / size - 0.5 * size * gaussian(end)[1]
    np.testing.assert_allclose(
        hamiltonian_step(gaussian, end, size, 5, Fixed(-last)).position, start, atol=1e-12
    )


@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_ways_that_leave_the_domain_are_rejected(wrong):
    def potential(z):
        return (float(z @ z), 2 * z) if np.abs(z).max() < 1 else (wrong, np.full_like(z, wrong))

    rng = np.random.default_rng(0)
    z = np.zeros(3)
    for _ in range(50):
        z, acceptance, _ = hamiltonian_step(potential, z, 1.0, 3, rng)
        assert np.abs(z).max() < 1
        assert 0 <= acceptance <= 1


def test_dual_averaging_finds_the_acceptance_it_is_asked_for():
    def potential(z):
        return 0.5 * float(z @ z), z

    for target in (0.6, 0.9):
        rng = np.random.default_rng(1)
        step, z, rates = start_step_size(1e-3), rng.standard_normal(100), []
        for _ in range(600):
            z, acceptance, _ = hamiltonian_step(potential, z, step.size, 2, rng)
            step = update_step_size(step, acceptance, target)
        for _ in range(1000):
            z, acceptance, _ = hamiltonian_step(potential, z, step.averaged, 2, rng)
            rates.append(acceptance)
        assert np.mean(rates) == pytest.approx(target, abs=0.06)


def slice_draws(log_density, width, n, seed):
    rng = np.random.default_rng(seed)
    x, draws = 0.0, np.empty(n)
    for t in range(n):
        draws[t] = x = slice_step(log_density, x, width, rng)
    return draws.reshape(4, -1, 1)


@pytest.mark.parametrize("width", [0.1, 2.0, 50.0])
def test_slices_of_a_normal_density_whatever_the_first_width(width):
    known = np.random.default_rng(3).standard_normal((6000, 1))
    assert compare_simulations(known, slice_draws(lambda x: -0.5 * x**2, width, 4000, 2)).p_value > 0.01


def test_slices_of_two_bumps():
    """N(-2, 1/4) and N(2, 1) in equal shares."""
    draws = slice_draws(
        lambda x: np.logaddexp(-2 * (x + 2) ** 2 + np.log(2), -0.5 * (x - 2) ** 2), 5.0, 8000, 5
    )
    rng = np.random.default_rng(6)
    normal = rng.standard_normal(6000)
    known = np.where(rng.random(6000) < 0.5, -2 + normal / 2, 2 + normal)
    assert compare_simulations(known[:, None], draws).p_value > 0.01


def test_slices_of_a_bounded_density():
    rng = np.random.default_rng(4)
    x, draws = 0.5, []
    for _ in range(4000):
        x = slice_step(lambda x: 0.0 if 0 < x < 1 else -np.inf, x, 0.4, rng)
        draws.append(x)
    assert kstest(draws[::4], "uniform").pvalue > 0.01
