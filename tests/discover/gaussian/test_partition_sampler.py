"""The samplers of partitions: enumeration of all partitions, Geweke's test, reductions.

`benchmarks/max_margin.py` runs the enumeration with 150,000 draws; here chains are short and the tolerance is wide.
"""

import numpy as np
import pytest
from scipy import stats

from arbora.discover.gaussian.normal_wishart import (
    FLOOR,
    Hyperparameters,
    HyperPrior,
    draw_components,
    prior_of,
    tabulate,
)
from arbora.discover.gaussian.sampler import _Table, canonical, draw_partition
from arbora.infer.mcmc.diagnostics import compare_simulations
from arbora.kernels.gibbs.normal_wishart import N_SCRATCH
from support.gaussian_problems import FORMS, exact_posterior, partitions, tiny_model

ROWS = np.array([[1.4], [1.1], [-0.2], [-0.9], [-1.6]])
N_DRAWS = 2000


def shares(model, state, X, n_draws, seed=0):
    """Share of each partition among the draws of a chain that starts from one cluster."""
    rng, counts = np.random.default_rng(seed), {}
    state = state._replace(labels=np.zeros(len(X), np.int64))
    for _ in range(n_draws):
        state, _ = model.sweep(state, X, rng)
        key = tuple(state.labels.tolist())
        counts[key] = counts.get(key, 0) + 1
    return {key: count / n_draws for key, count in counts.items()}


def test_there_are_52_partitions_of_five_rows():
    assert len(partitions(5)) == len(set(partitions(5))) == 52
    assert len(partitions(5, 2)) == 16


@pytest.mark.parametrize("c", [0.0, 0.7])
@pytest.mark.parametrize("n_components", [None, 3])
@pytest.mark.parametrize("n_moves", [0, 3])
def test_shares_of_partitions_are_those_of_the_enumeration(c, n_components, n_moves):
    n = 4 if c and n_components is None else 5  # a grid of four projections is large enough
    model, state = tiny_model(n_components=n_components, c=c, n_moves=n_moves, p=1)
    found, exact = exact_posterior(model, state, ROWS[:n], n_grid=11)
    drawn = shares(model, state, ROWS[:n], N_DRAWS)
    distance = 0.5 * sum(abs(drawn.get(one, 0.0) - p) for one, p in zip(found, exact, strict=True))
    # Independent draws are this far from their distribution, on average; those of a chain farther.
    expected = 0.5 * np.sum(np.sqrt(2 / np.pi * exact * (1 - exact) / N_DRAWS))
    assert distance < 3 * expected


@pytest.mark.parametrize("form", ["diag", "spherical"])
def test_other_forms_of_covariances(form):
    X = np.column_stack([ROWS, ROWS[::-1] ** 2])
    model, state = tiny_model(form)
    found, exact = exact_posterior(model, state, X)
    drawn = shares(model, state, X, N_DRAWS)
    distance = 0.5 * sum(abs(drawn.get(one, 0.0) - p) for one, p in zip(found, exact, strict=True))
    assert distance < 3 * 0.5 * np.sum(np.sqrt(2 / np.pi * exact * (1 - exact) / N_DRAWS))


def simulations(model, start, n, n_direct, n_sweeps, seed=0):
    """Statistics of direct draws of parameters and rows, and of chains that alternate sweeps and new rows."""
    rng = np.random.default_rng(seed)

    def direct():
        while True:  # the factor of the margin is not normalised: draws are accepted with it
            state = model.sample_prior_of(n, start, rng)
            X = model.propose_data(state, rng)
            if not model.has_margin(state):
                return state, X
            if np.log(rng.random()) < -2 * state.c * model.losses(state, X).sum():
                return state, X

    def statistics(state, X):
        sizes = np.bincount(state.labels)
        found = [len(sizes), sizes.max(), state.alpha, np.log(state.r), state.nu, np.log(state.scale[0, 0])]
        found += [X[0, 0], np.log(np.abs(X[0])).sum(), np.log(np.abs(X - X.mean(axis=0)).sum())]
        if model.has_margin(state):
            own = state.projections[state.labels]
            found += [np.log(np.mean(state.projections**2)), np.sum(own * X), model.losses(state, X).sum()]
        return found

    independent = [statistics(*direct()) for _ in range(n_direct)]
    chains = np.empty((4, n_sweeps, len(independent[0])))
    for chain in chains:
        state, X = direct()
        for row in chain:
            state, _ = model.sweep(state, X, rng)
            X = model.sample_data(state, rng)
            row[:] = statistics(state, X)
    return np.array(independent), chains


@pytest.mark.parametrize(
    ("form", "n_components", "c"),
    [("full", None, 0.0), ("diag", 3, 0.0), ("spherical", None, 0.3), ("full", 3, 0.3)],
)
def test_geweke(form, n_components, c):
    """All hyperparameters are sampled. The benchmark runs all twelve cases with longer chains."""
    model, start = tiny_model(form, n_components, c, fixed=())
    result = compare_simulations(*simulations(model, start, 4, 250, 120))
    assert result.p_value > 1e-4  # effective sample sizes of some tens are uncertain themselves


def test_geweke_finds_an_error():
    """A sampler of r with another rate."""

    class Wrong(HyperPrior):
        def draw(self, hyper, components, rng):
            drawn = super().draw(hyper, components, rng)
            return drawn._replace(r=2 * drawn.r)

    model, start = tiny_model("diag", None, 0.0, fixed=())
    model = model._replace(hyper_prior=Wrong(*model.hyper_prior))
    assert compare_simulations(*simulations(model, start, 4, 400, 200)).p_value < 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_the_scale_never_falls_below_its_floor(form):
    """Components of no width at all push the scale against the floor."""
    model, start = tiny_model(form, fixed=("alpha", "r", "nu"))
    hp, rng, K = model.hyper_prior, np.random.default_rng(0), 6
    tiny = np.tile(1e-12 * hp.scale0, (K, 1, 1))
    hyper = Hyperparameters(start.r, start.nu, start.scale)
    for _ in range(50):
        components = draw_components(np.zeros((K, 2)), tiny, np.full(K, start.r), np.full(K, 20.0), form, rng)
        hyper = hp.draw(hyper, components, rng)
        excess = hyper.scale - FLOOR * hp.scale0
        smallest = np.linalg.eigvalsh(excess).min() if form == "full" else excess.min()
        assert smallest >= -1e-12
    assert np.isfinite(hp.log_density(hyper))


@pytest.mark.parametrize("form", FORMS)
def test_components_have_the_moments_of_their_distribution(form):
    rng, n = np.random.default_rng(0), 4000
    scale = {"full": [[2.0, 0.6], [0.6, 1.0]], "diag": [[2.0, 1.0]], "spherical": [[2.0]]}[form]
    drawn = draw_components(
        np.zeros((n, 2)), np.tile(scale, (n, 1, 1)), np.full(n, 0.5), np.full(n, 9.0), form, rng
    )
    precision = drawn.roots @ drawn.roots.transpose(0, 2, 1) if form == "full" else drawn.roots**2
    known = 9.0 * np.linalg.inv(scale) if form == "full" else 9.0 / np.array(scale)
    np.testing.assert_allclose(precision.mean(axis=0), known, rtol=0.1, atol=0.1)
    logdet = np.linalg.slogdet(precision)[1] if form == "full" else np.log(precision).sum(axis=(1, 2))
    np.testing.assert_allclose(drawn.log_precisions, logdet)
    first = drawn.means[:, 0] * np.sqrt(0.5 * (9.0 - (1 if form == "full" else 0)) / 2.0)
    df = 9.0 - (1 if form == "full" else 0)
    assert stats.kstest(first, stats.t(df).cdf).pvalue > 1e-3


def test_partitions_of_the_prior():
    rng, n = np.random.default_rng(0), 3000
    numbers = [len(canonical(draw_partition(4, 1.0, None, rng))[1]) for _ in range(n)]
    known = np.array([6, 11, 6, 1]) / 24  # Stirling numbers of the first kind
    np.testing.assert_allclose(np.bincount(numbers, minlength=5)[1:] / n, known, atol=0.04)
    alike = np.mean([len(set(draw_partition(2, 2.0, 2, rng))) == 1 for _ in range(n)])
    assert alike == pytest.approx(2 / 3, abs=0.04)  # each of two weights has alpha / 2 = 1


def test_arrays_grow_with_the_clusters():
    """More clusters in one sweep than there were slots, with and without margins."""
    X = np.random.default_rng(0).normal(0.0, 100.0, (60, 1))
    for c in (0.0, 0.001):
        model, state = tiny_model(c=c, n_moves=0, p=1)
        state = state._replace(labels=np.zeros(60, np.int64), alpha=1e6)
        moved, _ = model.sweep(state, X, np.random.default_rng(1))
        assert moved.labels.max() > 25
        assert np.isfinite(model.log_joint(moved, X))


def test_statistics_are_right_in_slots_that_were_added():
    X, rng = np.random.default_rng(0).normal(0.0, 100.0, (60, 1)), np.random.default_rng(1)
    model, state = tiny_model(n_moves=0, p=1)
    state = state._replace(labels=np.zeros(60, np.int64), alpha=1e6)
    prior = prior_of(state.hyper, model.hyper_prior.mean, "full", len(X))
    table = _Table(model, state, X, prior, rng)
    n_slots = len(table.clusters.counts)
    table.sweep(rng)
    assert len(table.clusters.counts) > n_slots
    known = tabulate(X, table.labels, len(table.clusters.counts) - N_SCRATCH, prior, state.scale)
    for found, expected in zip(table.clusters, known, strict=True):
        np.testing.assert_allclose(found[:-N_SCRATCH], expected[:-N_SCRATCH], rtol=1e-9)
