"""New documents in a fitted cluster topic model: their topics and labels are sampled given the parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.discover.topics.sampler import Corpus, log_rising_table, padded, padded_prior
from arbora.kernels.gibbs.topics import fold_in

Floats = NDArray[np.float64]

_DOCUMENTS = 256  # documents of a task


class TopicParameters(NamedTuple):
    """Posterior means of one chain: words of topics, topics of clusters, sizes of clusters, projections."""

    components: Floats  # (n_topics, n_words)
    base: Floats  # (n_topics,)
    clusters: Floats  # (n_clusters, n_topics)
    shares: Floats  # (n_clusters,)
    projections: Floats  # (n_clusters, n_topics)
    alpha: float


class Folded(NamedTuple):
    """Probabilities of the clusters, and shares of the topics, of documents."""

    proba: Floats
    topics: Floats


def fold_documents(
    parameters: TopicParameters,
    data: Corpus,
    strength: tuple[float, float],
    n_sweeps: int,
    seed: int,
    engine: Engine,
) -> Folded:
    """Sample topics and labels of documents, and average over the last two thirds of the sweeps.

    Parameters
    ----------
    parameters : TopicParameters
    data : Corpus
    strength : tuple of float
        Weight c and width of the margin.
    n_sweeps : int
    seed : int
    engine : Engine
        Runs chunks of documents at the same time. The draws of a document depend on its words and the seed only.

    Returns
    -------
    Folded
    """
    n_clusters, n_topics = parameters.clusters.shape
    phi = np.zeros((data.n_words, padded(n_topics)))
    phi[:, :n_topics] = parameters.components.T
    prior = padded_prior(parameters.clusters, parameters.alpha)
    base = padded_prior(parameters.base[None], parameters.alpha)[0]
    table, eta = log_rising_table(prior, n_topics), np.ascontiguousarray(parameters.projections.T)
    proba, topics = np.zeros((data.n_documents, n_clusters)), np.zeros((data.n_documents, n_topics))
    n_burn = n_sweeps // 3

    def fold(part: slice) -> None:
        fold_in(
            data.indptr[part.start : part.stop + 1], data.words, phi, prior, base, table,
            np.log(parameters.shares), eta, *strength, n_burn, n_sweeps - n_burn, np.uint64(seed),
            proba[part], topics[part],
        )  # fmt: skip

    engine.map(fold, split(data.n_documents, size=_DOCUMENTS))
    proba /= proba.sum(axis=1, keepdims=True)
    return Folded(proba, topics)


def mean_parameters(draws: dict[str, Any], means: dict[str, Any], chain: int) -> TopicParameters:
    """Return the posterior means of a chain from its draws and averages."""
    alpha, _, _, beta, omega = draws["concentrations"][chain].mean(axis=0).tolist()
    clusters = draws["clusters"][chain].mean(axis=0)
    counts = means["word_topics"][chain, :, : clusters.shape[1]].T + beta
    sizes = draws["sizes"][chain].mean(axis=0) + omega
    return TopicParameters(
        counts / counts.sum(axis=1, keepdims=True),
        draws["base"][chain].mean(axis=0),
        clusters,
        sizes / sizes.sum(),
        draws["projections"][chain].mean(axis=0),
        alpha,
    )
