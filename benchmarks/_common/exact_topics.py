"""Evidence that the samplers of cluster topic models are exact: enumeration of a tiny corpus, and Geweke's test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from arbora.discover.topics.sampler import (
    ClusterTopics,
    Concentrations,
    Corpus,
    count_state,
    start_state,
    topic_shares,
)
from arbora.infer.mcmc.diagnostics import ess_bulk, geweke_test
from arbora.infer.mcmc.max_margin import Margin, hinge_losses

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from support.topic_posterior import exact_posterior

DOCUMENTS = [[0, 1], [1]]
PRIOR = Concentrations(1.5, 2.0, 0.8, 0.6, 0.7)


def without_names(key: tuple[Any, Any], landmark: int) -> tuple[Any, ...]:
    """Rename topics, and without a landmark clusters too, by the order in which they occur."""
    topics, labels = key
    named = [topics, labels] if landmark < 0 else [topics]
    codes = [tuple(sorted(set(one), key=one.index).index(name) for name in one) for one in named]
    return (*codes, *([] if landmark < 0 else [labels]))


def draw_states(keys: list[Any], margin: Margin | None, landmark: int, n_draws: int, seed: int) -> np.ndarray:
    """Run the chain of the tiny corpus; return the position of each draw among the states."""
    landmarks = np.array([landmark, *[-1] * (len(DOCUMENTS) - 1)])
    indptr = np.append(0, np.cumsum([len(one) for one in DOCUMENTS])).astype(np.int64)
    data = Corpus(indptr, np.concatenate(DOCUMENTS).astype(np.int32), landmarks, 3)
    model, rng = ClusterTopics(2, 2, PRIOR, margin), np.random.default_rng(seed)
    state = start_state(model, data, np.maximum(data.landmarks, 0), rng)
    place, drawn = {key: i for i, key in enumerate(keys)}, np.empty(n_draws, np.int64)
    for i in range(n_draws):
        state, _info = model.sweep(state, data, rng)
        drawn[i] = place[tuple(state.topics.tolist()), tuple(state.labels.tolist())]
    return drawn


def distance(drawn: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """Return the total variation, and what to expect of independent draws and of these correlated ones.

    The share of a state has the standard error of as many independent draws as its effective sample size.
    """
    n, counts = len(drawn), np.bincount(drawn, minlength=len(exact))
    indicators = (drawn[:, None] == np.arange(len(exact))).astype(np.float64)
    sizes = np.minimum(ess_bulk(indicators[None]), n)
    spread = np.sqrt(2 / np.pi * exact * (1 - exact))
    return {
        "tv": float(0.5 * np.abs(counts / n - exact).sum()),
        "noise": float(0.5 * np.sum(spread / np.sqrt(n))),
        "expected": float(0.5 * np.sum(spread / np.sqrt(sizes))),
        "ess": float(np.sum(exact * sizes)),
    }


def total_variation(margin: Margin | None, landmark: int, n_draws: int, seed: int = 0) -> dict[str, Any]:
    """Total variation between the chain and the exact posterior: of all states, and of states without names.

    Names of topics, and without a landmark those of clusters, can be exchanged without changing the posterior. A
    chain that moves slowly between such copies of a state may still move fast between states without names.
    """
    landmarks = [landmark, *[-1] * (len(DOCUMENTS) - 1)]
    exact = exact_posterior(DOCUMENTS, landmarks, 3, PRIOR, margin)
    keys, p = list(exact), np.array(list(exact.values()))
    drawn = draw_states(keys, margin, landmark, n_draws, seed)
    classes = [without_names(key, landmark) for key in keys]
    names = sorted(set(classes))
    codes = np.array([names.index(one) for one in classes])
    unnamed = distance(codes[drawn], np.bincount(codes, weights=p))
    named = distance(drawn, p)
    return {**named, **{f"unnamed_{name}": value for name, value in unnamed.items()}, "states": len(p)}


class Recounting(ClusterTopics):
    """For Geweke's test: the words change between sweeps."""

    def sweep(self, state: Any, data: Any, rng: Any) -> Any:
        """Count the words first."""
        return super().sweep(count_state(state, data), data, rng)

    def statistics(self, state: Any, data: Any) -> np.ndarray:
        """Return the quantities to compare."""
        x, sizes = (
            topic_shares(state, data, self.n_topics),
            np.bincount(state.labels, minlength=self.n_clusters),
        )
        losses = hinge_losses(x @ state.projections.T, state.labels, 0.4)
        words = count_state(state, data).word_topics
        return np.array(
            [
                *np.log(state.concentrations), state.base[0], state.base.max(), state.clusters[0, 0],
                state.clusters.max(), np.sum(state.clusters**2), sizes.max(), sizes[0], np.sum(x**2), x[0, 0],
                losses.sum(), state.projections[0, 0], np.sum(state.projections**2), np.sum(words**2),
                np.mean(data.words == 0), state.topics[0] == state.topics[1], data.words[0] == data.words[1],
            ]
        )  # fmt: skip


def geweke(method: str, n: int, seed: int) -> dict[str, Any]:
    """Geweke's test with all concentrations sampled."""
    margin = None if method == "CTM" else Margin(0.6, 0.3, 0.8)
    prior = Concentrations(2.0, 2.0, 1.0, 0.7, 0.8)
    model = Recounting(3, 3, prior, margin, sample_concentrations=True, lengths=(3, 2, 4, 1, 0), n_words=3)
    result = geweke_test(model, model.statistics, np.random.default_rng(seed), n_direct=n, n_sweeps=n)
    largest = max(np.abs(result.location).max(), np.abs(result.spread).max())
    ess = float(result.effective_sample_size.min())
    return {"p_value": result.p_value, "largest_z": float(largest), "effective_sample_size": ess}
