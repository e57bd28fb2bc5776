"""Variational inference of the Dirichlet-process mixture: factors, updates, bound, merges and batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.discover.vmf.concentration import KappaPosterior
from arbora.discover.vmf.dirichlet_process.stick_breaking import (
    Sticks,
    stick_extra,
    stick_log_weights,
    stick_weights,
    update_sticks,
)
from arbora.discover.vmf.posterior import (
    Inference,
    VMFPosterior,
    component_extra,
    expected_log_weights,
    posterior_scores,
    update_posterior,
)
from arbora.infer.mixture.loop import MixtureFit, MixtureModel, Schedule, run
from arbora.infer.mixture.statistics import LinearScores, Stats, WeightedRows, e_step

Array = NDArray[np.float64]

_TURNS = 3  # E-steps and updates for each batch of `partial_fit`
LEAST_ROWS = 0.5  # number of rows above which a component counts as a cluster
_MERGE_ITERATIONS = 4  # iterations after which a merge must have raised the bound
_MOST_BIRTHS = 3  # new components for each batch of `partial_fit`
_MOST_FAILURES = 3  # consecutive merges without success that end the search


class DPPosterior(NamedTuple):
    """Factors of the posterior, and the statistics from which they were computed."""

    components: VMFPosterior
    sticks: Sticks
    stats: Stats


def dp_scores(params: DPPosterior) -> LinearScores:
    """Return the expected log-joint of rows and components."""
    scores = posterior_scores(params.components)
    dirichlet = params.components.dirichlet
    return scores._replace(
        offset=scores.offset - expected_log_weights(dirichlet) + stick_log_weights(params.sticks)
    )


def dp_update(how: Inference, learn: bool, params: DPPosterior, stats: Stats) -> DPPosterior:
    """Sort the components, largest first, and update all factors."""
    q, order = params.components, np.argsort(-stats.counts, kind="stable")
    if np.any(np.diff(order) < 0):
        stats = Stats(stats.counts[order], np.ascontiguousarray(stats.sums[:, order]))
        kappa = KappaPosterior(*(value[order] for value in q.kappa))
        q = q._replace(
            directions=np.ascontiguousarray(q.directions[:, order]),
            mean_concentrations=q.mean_concentrations[order],
            kappa=kappa,
        )
    sticks = update_sticks(params.sticks, stats.counts, learn)
    q = update_posterior(how, q, stats)
    shares = stick_weights(sticks) * (stats.counts.sum() + sticks.eta)
    return DPPosterior(q._replace(dirichlet=shares), sticks, stats)


def dp_extra(shared: bool, params: DPPosterior) -> float:
    """Return minus the divergences of the factors from their priors."""
    return component_extra(params.components, shared) + stick_extra(params.sticks)


def similar_pairs(params: DPPosterior) -> list[tuple[int, int]]:
    """Return pairs of components that have rows, the most similar means first."""
    used = np.flatnonzero(params.stats.counts > LEAST_ROWS)
    directions = params.components.directions[:, used]
    first, second = np.triu_indices(len(used), 1)
    cosine = (directions.T @ directions)[first, second]
    order = np.argsort(-cosine, kind="stable")
    return list(zip(used[first[order]].tolist(), used[second[order]].tolist(), strict=True))


def merged_stats(stats: Stats, keep: int, drop: int) -> Stats:
    """Return the statistics after moving the rows of one component to another."""
    counts, sums = stats.counts.copy(), stats.sums.copy()
    counts[keep] += counts[drop]
    sums[:, keep] += sums[:, drop]
    counts[drop], sums[:, drop] = 0.0, 0.0
    return Stats(counts, sums)


def resized(model: MixtureModel, params: DPPosterior, n_components: int) -> DPPosterior:
    """Return the posterior truncated at another number: empty components are appended, or the last ones dropped."""
    q, (counts, sums) = params.components, params.stats
    n_more = n_components - len(counts)
    if n_more == 0:
        return params
    kept = min(n_components, len(counts))
    more = max(n_more, 0)

    def fit(values: Array, fill: float) -> Array:
        return np.append(values[:kept], np.full(more, fill))

    centre = np.repeat(q.prior.direction[:, None], more, axis=1).astype(q.directions.dtype)
    components = VMFPosterior(
        np.hstack([q.directions[:, :kept], centre]),
        fit(q.mean_concentrations, q.prior.concentration),
        fit(q.dirichlet, 1.0),
        KappaPosterior(*(fit(value, float(value[0])) for value in q.kappa)),
        q.prior,
    )
    stats = Stats(fit(counts, 0.0), np.hstack([sums[:, :kept], np.zeros((len(sums), more), sums.dtype)]))
    sticks = Sticks(np.empty((2, n_components - 1)), params.sticks.eta)
    sticks = update_sticks(sticks, stats.counts, learn=False)
    resized: DPPosterior = model.update(DPPosterior(components, sticks, stats), stats)
    return resized


def known_fit(scores: LinearScores, known: Stats) -> float:
    """Return the bound of rows that are known only by their statistics, up to a constant."""
    along = np.einsum("jk,jk->k", scores.weights, known.sums, dtype=np.float64)
    return float(known.counts @ scores.offset + np.sum(scores.scale * along))


def with_births(params: DPPosterior, rows: WeightedRows) -> DPPosterior:
    """Move components without rows to rows that are far from all means, and from each other."""
    empty = np.flatnonzero(params.stats.counts <= LEAST_ROWS)
    directions, mean_concentrations = (
        params.components.directions.copy(),
        params.components.mean_concentrations.copy(),
    )
    used = np.setdiff1d(np.arange(len(mean_concentrations)), empty)
    if not len(used):  # the rows have so little weight that there is no cluster yet
        return params
    nearest = csr_matmul(rows.X, np.ascontiguousarray(directions[:, used], rows.X.dtype)).max(axis=1)
    for k in empty[:_MOST_BIRTHS]:
        seed = rows.X[[int(np.argmin(nearest))]].toarray()[0]
        directions[:, k], mean_concentrations[k] = seed, mean_concentrations[used].max()
        nearest = np.maximum(nearest, rows.X @ seed)
    return params._replace(
        components=params.components._replace(directions=directions, mean_concentrations=mean_concentrations)
    )


def batch_turns(
    model: MixtureModel, params: DPPosterior, known: Stats, rows: WeightedRows, engine: Engine
) -> tuple[DPPosterior, float]:
    """Return the posterior after some iterations with a batch, and its bound up to a constant of the known rows."""
    stats, _ = e_step(model.scores(params), rows, engine)
    bound = 0.0
    for _ in range(_TURNS):
        both = Stats(known.counts + stats.counts, known.sums + stats.sums)
        order = np.argsort(-both.counts, kind="stable")
        params = model.update(params, both)
        known = Stats(known.counts[order], known.sums[:, order])  # in the new order of the components
        stats, bound = e_step(model.scores(params), rows, engine)
    return params, bound + known_fit(model.scores(params), known) + model.extra(params)


def merged_fit(
    model: MixtureModel, found: MixtureFit, rows: WeightedRows, schedule: Schedule, engine: Engine
) -> MixtureFit:
    """Merge similar components as long as the bound rises.

    Parameters
    ----------
    model : MixtureModel
    found : MixtureFit
        A fit that has converged.
    rows : WeightedRows
    schedule : Schedule
    engine : Engine

    Returns
    -------
    MixtureFit
    """
    trial = schedule._replace(max_iter=min(_MERGE_ITERATIONS, schedule.max_iter))
    failures, pairs = 0, similar_pairs(found.params)
    while pairs and failures < _MOST_FAILURES:
        stats = merged_stats(found.params.stats, *pairs.pop(0))
        start = model.update(found.params, stats)
        better = run(model, rows, start, trial, engine)
        if better.bounds[-1] <= found.bounds[-1]:
            failures += 1
            continue
        better = run(model, rows, better.params, schedule, engine)
        risen = better.bounds[better.bounds > found.bounds[-1]]
        found = better._replace(bounds=np.concatenate([found.bounds, risen]))
        failures, pairs = 0, similar_pairs(found.params)
    return found
