"""Evidence that the samplers of partitions are exact: enumeration of all partitions, and Geweke's test."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from arbora.discover.gaussian.normal_wishart import HyperPrior, scale_shape
from arbora.discover.gaussian.sampler import PartitionModel, PartitionState
from arbora.infer.mcmc.diagnostics import compare_simulations
from arbora.infer.mcmc.max_margin import hinge_losses

ROWS = np.array([[1.4], [1.1], [-0.2], [-0.9], [-1.6]])
C, WIDTH, VARIANCE = 0.7, 0.6, 0.5
_POINTS = {2: 101, 3: 41, 4: 25, 5: 15}  # of the grid, by the number of projections


def make_model(
    form: str, p: int, n_components: int | None, has_margin: bool, n_moves: int, fixed: tuple[str, ...]
) -> tuple[PartitionModel, PartitionState]:
    """Return a model of p features and a state of one cluster."""
    shape = scale_shape(form, p)
    scale0 = 0.8 * np.eye(p) + 0.5 if form == "full" else np.full(shape, 1.3)
    hyper_prior = HyperPrior(np.zeros(p), scale0, form, frozenset(fixed))
    model = PartitionModel(
        hyper_prior, n_components, "alpha" in fixed, n_moves, VARIANCE if has_margin else None, n_pool=2
    )
    projections = np.zeros((n_components or 1, p)) if has_margin else np.zeros((0, 0))
    c = C if has_margin else 0.0
    labels = np.zeros(5, np.int64)
    return model, PartitionState(labels, 0.8, 0.3, hyper_prior.d + 2.0, scale0, projections, c, WIDTH, 0)


def partitions(n: int, most: int | None) -> list[tuple[int, ...]]:
    """Return all partitions of n rows, labels in the order of their first rows."""
    found: list[tuple[int, ...]] = [(0,)]
    for _ in range(n - 1):
        found = [(*one, k) for one in found for k in range(max(one) + 2)]
    return [one for one in found if most is None or max(one) < most]


def exact_posterior(model: PartitionModel, state: PartitionState, X: np.ndarray) -> dict[Any, float]:
    """Return the probability of each partition; projections are integrated over a grid."""
    found = {}
    for one in partitions(len(X), model.n_components):
        labels = np.array(one)
        value = model._replace(variance=None).log_joint(state._replace(labels=labels), X)
        K = model.n_components or int(labels.max()) + 1
        if model.variance is not None and K > 1:
            grid = np.stack(np.meshgrid(*[np.linspace(-3.6, 3.6, _POINTS[K])] * K), axis=-1).reshape(-1, K)
            eta, mass = np.sqrt(VARIANCE) * grid, np.exp(-0.5 * np.sum(grid**2, axis=1))
            total = sum(
                hinge_losses(eta * x, np.full(len(eta), label), WIDTH)
                for x, label in zip(X[:, 0], labels, strict=True)
            )
            value += float(np.log(mass @ np.exp(-2 * C * total) / mass.sum()))
        found[one] = value
    top = logsumexp(list(found.values()))
    return {one: float(np.exp(value - top)) for one, value in found.items()}


def total_variation(n_components: int | None, has_margin: bool, n_moves: int, n_draws: int) -> dict[str, Any]:
    """Return the distance of a chain from the enumeration."""
    X = ROWS
    model, state = make_model("full", 1, n_components, has_margin, n_moves, ("alpha", "r", "nu", "S"))
    exact, rng = exact_posterior(model, state, X), np.random.default_rng(0)
    counts = dict.fromkeys(exact, 0)
    state = state._replace(labels=np.zeros(len(X), np.int64))
    for _ in range(n_draws):
        state, _ = model.sweep(state, X, rng)
        counts[tuple(state.labels.tolist())] += 1
    distance = 0.5 * sum(abs(counts[one] / n_draws - p) for one, p in exact.items())
    p = np.array(list(exact.values()))
    chance = 0.5 * float(np.sum(np.sqrt(2 / np.pi * p * (1 - p) / n_draws)))
    return {"distance": distance, "independent": chance, "n_partitions": len(exact), "n_rows": len(X)}


def geweke(
    form: str, n_components: int | None, has_margin: bool, n_direct: int, n_sweeps: int
) -> dict[str, Any]:
    """Compare direct and successive simulation of parameters and rows, all hyperparameters sampled."""
    model, start = make_model(form, 2, n_components, has_margin, 2, ())
    rng, n = np.random.default_rng(0), 5

    def direct() -> tuple[PartitionState, np.ndarray]:
        while True:  # the factor of the margin is not normalised: draws are accepted with it
            state = model.sample_prior_of(n, start, rng)
            X = model.propose_data(state, rng)
            if not has_margin or np.log(rng.random()) < -2 * state.c * model.losses(state, X).sum():
                return state, X

    def statistics(state: PartitionState, X: np.ndarray) -> list[float]:
        sizes = np.bincount(state.labels)
        found = [len(sizes), sizes.max(), state.alpha, np.log(state.r), state.nu, np.log(state.scale[0, 0])]
        found += [X[0, 0], np.log(np.abs(X[0])).sum(), np.log(np.abs(X - X.mean(axis=0)).sum())]
        if has_margin:
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
    result = compare_simulations(independent, chains)
    worst = float(np.max(np.abs([result.location, result.spread])))
    return {
        "p_value": result.p_value,
        "largest_z": worst,
        "least_ess": float(result.effective_sample_size.min()),
    }
