"""Fits of cluster topic models: landmarks, chains, posterior means and diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from arbora.arrays import Array, Ints, Matrix
from arbora.core.checkpoint import Checkpoint, fingerprint
from arbora.core.chunks import require_memory, split
from arbora.core.engine import Engine
from arbora.core.labels import Groups, read_groups
from arbora.core.monitor import Progress
from arbora.discover.mixture.prediction import UNKNOWN, draw_seed
from arbora.discover.topics.sampler import (
    ClusterTopics,
    Corpus,
    TopicState,
    log_rising_table,
    make_corpus,
    padded,
    padded_prior,
    start_state,
    starting_labels,
)
from arbora.engine import ThreadEngine
from arbora.infer.mcmc.chains import Chains, ChainSchedule, sample_chains
from arbora.infer.mcmc.diagnostics import ess_bulk, ess_tail, rhat
from arbora.kernels.gibbs.topics import fold_in

# --- New documents in a fitted cluster topic model: their topics and labels are sampled given the parameters ---


_DOCUMENTS = 256  # documents of a task


class TopicParameters(NamedTuple):
    """Posterior means of one chain: words of topics, topics of clusters, sizes of clusters, projections."""

    components: Array  # (n_topics, n_words)
    base: Array  # (n_topics,)
    clusters: Array  # (n_clusters, n_topics)
    shares: Array  # (n_clusters,)
    projections: Array  # (n_clusters, n_topics)
    alpha: float


class Folded(NamedTuple):
    """Probabilities of the clusters, and shares of the topics, of documents."""

    proba: Array
    topics: Array


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


# --- Fits of cluster topic models: landmarks, chains, posterior means and diagnostics -----------------------


DEFAULT_CLUSTERS = 8  # without landmarks
_NOT_PART_OF_THE_MODEL = (
    "n_jobs",
    "verbose",
    "checkpoint",
    "n_fold_in",
)  # parameters that do not change a chain


class Landmarks(NamedTuple):
    """Cluster of each document or -1, names of the clusters, and the number of clusters with landmarks."""

    codes: Ints
    names: Matrix
    n_named: int


def read_landmarks(y: Any, n_documents: int, n_clusters: int | None) -> Landmarks:
    """Read the known clusters of documents; clusters without landmarks get names of their own.

    Parameters
    ----------
    y : array-like of shape (n_documents,) or None
        Integers or strings; -1, None or NaN for an unknown cluster.
    n_documents : int
    n_clusters : int or None
        Labels of y have clusters of their own, also if there are more of them. None: one for each label, or 8
        without any.

    Returns
    -------
    Landmarks

    Examples
    --------
    >>> read_landmarks(["sea", None, "land"], 3, 3).names.tolist()
    ['land', 'sea', 'cluster 2']
    >>> read_landmarks([5, -1], 2, 2).names
    array([5, 6])
    """
    nobody = Groups(np.full(n_documents, -1, np.int64), np.empty(0, np.int64))
    groups = nobody if y is None else read_groups(y, n_documents, none_labelled="")
    n_named = groups.n_groups
    if n_clusters is None and n_named == 1:
        label = groups.classes.tolist()[0]
        raise ValueError(
            f"all landmarks in y have the label {label!r}: give landmarks of at least two clusters, or "
            "set n_clusters to find others."
        )
    n_clusters = max(n_clusters or 0, n_named) or DEFAULT_CLUSTERS
    rest = range(n_named, n_clusters)
    if groups.classes.dtype.kind in "iu":
        above = int(groups.classes.max(initial=-1)) + 1
        names: Matrix = np.append(groups.classes, np.arange(above, above + len(rest)))
    else:
        dtype = object if groups.classes.dtype.kind == "O" else None  # None: strings as long as the longest
        names = np.array([*groups.classes.tolist(), *(f"cluster {k}" for k in rest)], dtype)
    return Landmarks(groups.codes, names, n_named)


def run_chains(estimator: Any, model: ClusterTopics, X: sp.csr_array, landmarks: Ints) -> Chains:
    """Sample the posterior of a cluster topic model by several chains."""
    _require_memory(X, model, estimator.n_chains)
    data = make_corpus(X, landmarks)
    if not len(data.words):
        raise ValueError("X has no words: all its entries are zero. Give documents with words.")
    resumable = estimator.checkpoint is not None
    seed = 0 if estimator.random_state is None and resumable else draw_seed(estimator.random_state)
    labels = starting_labels(X, landmarks, model.n_clusters, seed)
    schedule = ChainSchedule(estimator.n_warmup, estimator.n_samples, estimator.thin)
    checkpoint = _checkpoint(estimator, data, seed)
    total = estimator.n_chains * schedule.n_sweeps

    def start(rng: np.random.Generator) -> TopicState:
        return start_state(model, data, labels, rng)

    def keep(state: TopicState) -> Mapping[str, Matrix]:
        sizes = np.bincount(state.labels, minlength=model.n_clusters)
        return {
            "base": state.base,
            "clusters": state.clusters,
            "projections": state.projections,
            "concentrations": state.concentrations,
            "sizes": sizes,
        }

    # One BLAS thread per chain: chains amplify the different rounding of multithreaded sums.
    with (
        ThreadpoolController().limit(limits=1, user_api="blas"),
        Progress(total, "sweeps", estimator.verbose) as progress,
        ThreadEngine(estimator.n_jobs) as engine,
    ):
        chains = sample_chains(
            model, data, schedule, seed, n_chains=estimator.n_chains, start=start, keep=keep, average=averages,
            engine=engine, progress=progress, checkpoint=checkpoint,
        )  # fmt: skip
    if checkpoint is not None:
        checkpoint.clear()
    return chains


def averages(state: TopicState) -> Mapping[str, Matrix]:
    """Return the arrays of a state that are averaged over the draws."""
    return {"word_topics": state.word_topics, "proba": state.proba}


def diagnose(
    chains: Chains, schedule: ChainSchedule, *, aligned: bool, sampled: bool
) -> tuple[dict[str, Matrix], dict[str, Matrix]]:
    """Return R-hat and effective sample sizes of quantities that mean the same in all chains.

    Topics are numbered differently in each chain. So are clusters without landmarks (`aligned` is False): their sizes
    are then compared in descending order.
    """
    every = slice(schedule.n_warmup + schedule.thin - 1, None, schedule.thin)
    sizes = chains.draws["sizes"].astype(np.float64)
    quantities = {
        "log_joint": np.array([trace["objective"][every] for trace in chains.traces]),
        "cluster_sizes": sizes if aligned else -np.sort(-sizes, axis=2),
    }
    if sampled:
        quantities["concentrations"] = chains.draws["concentrations"]
    return (
        {name: rhat(draws) for name, draws in quantities.items()},
        {name: np.minimum(ess_bulk(draws), ess_tail(draws)) for name, draws in quantities.items()},
    )


def agreement(labels: Ints) -> float:
    """Return the share of equal labels over all pairs of rows; 1 for one row."""
    pairs = [(a, b) for a in range(len(labels)) for b in range(a)]
    return float(np.mean([np.mean(labels[a] == labels[b]) for a, b in pairs])) if pairs else 1.0


def named(names: Matrix, clusters: Matrix, unknown: NDArray[np.bool_]) -> Matrix:
    """Return names of clusters; -1 where they are unknown, in an array of objects if names are strings.

    Examples
    --------
    >>> named(np.array(["sea", "land"]), np.array([1, 0]), np.array([False, True]))
    array(['land', -1], dtype=object)
    """
    found: Matrix = names[clusters]
    if unknown.any():
        found = found if found.dtype.kind in "iu" else found.astype(object)
        found[unknown] = UNKNOWN
    return found


def _require_memory(X: sp.csr_array, model: ClusterTopics, n_chains: int) -> None:
    n_documents, n_words = X.shape
    width = padded(model.n_topics)
    per_chain = 4 * width * (n_documents + 4 * n_words) + 8 * model.n_topics * n_documents
    per_chain += 16 * model.n_clusters * n_documents + 4 * int(X.data.sum())
    require_memory(
        n_chains * per_chain,
        f"Sampling {n_chains} chains with {model.n_topics} topics of {n_documents} documents and {n_words} words",
        "Use fewer chains or topics, or fewer words (a larger min_df).",
    )


def _checkpoint(estimator: Any, data: Corpus, seed: int) -> Checkpoint | None:
    if estimator.checkpoint is None:
        return None
    params = estimator.get_params()
    params = {key: value for key, value in params.items() if key not in _NOT_PART_OF_THE_MODEL}
    params["random_state"] = seed
    return Checkpoint(estimator.checkpoint, fingerprint(type(estimator).__name__, params, *data))
