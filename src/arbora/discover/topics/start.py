"""Starts of the chains: labels from landmarks, topics from sweeps that keep these labels.

Chains of cluster topic models do not find good labels from random ones in any reasonable time. With landmarks of two
clusters or more, a linear support vector machine of the landmarks labels the other documents. Clusters without
landmarks, and corpora without any, start from spherical k-means. Documents are unit rows of ltc weights.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.discover.kmeans import split_rows
from arbora.discover.topics.corpus import Corpus
from arbora.discover.topics.sampler import ClusterTopics, TopicState, count_state, padded
from arbora.infer.linear.flat import solve_block
from arbora.infer.linear.rows import class_blocks, prepare_rows
from arbora.infer.mixture.statistics import WeightedRows
from arbora.text import LtcTransformer

Labels = NDArray[np.int64]

_K_MEANS_ITERATIONS = 20
START_SWEEPS = 10  # sweeps of the topics that keep the labels, without a margin


def weighted_rows(X: sp.csr_array) -> sp.csr_array:
    """Return unit rows of ltc weights; empty documents stay zero.

    Examples
    --------
    >>> weighted_rows(sp.csr_array([[3.0, 0.0], [0.0, 0.0]])).toarray()
    array([[1., 0.],
           [0., 0.]])
    """
    return sp.csr_array(LtcTransformer(smooth_idf=True).fit_transform(X))


def labels_of_svm(rows: sp.csr_array, landmarks: Labels, n_clusters: int) -> Labels:
    """Label documents by one-vs-rest support vector machines of the landmarks, which keep their labels."""
    known = np.flatnonzero(landmarks >= 0)
    prepared = prepare_rows(rows[known], np.float64)
    scores = np.empty((rows.shape[0], n_clusters))
    for block in class_blocks(n_clusters):
        cost = np.where(landmarks[known, None] == np.array(block), 1.0, -1.0)
        weights = solve_block(prepared, cost, tol=1e-3).weights
        scores[:, block.start : block.stop] = rows @ weights[:-1] + weights[-1]
    return np.where(landmarks >= 0, landmarks, scores.argmax(axis=1))


def labels_of_k_means(rows: sp.csr_array, landmarks: Labels, n_clusters: int, seed: int) -> Labels:
    """Label documents by spherical k-means from the centres of the landmarks and rows far from all centres."""
    rng = np.random.default_rng(seed)
    full = np.flatnonzero(np.diff(rows.indptr) > 0)
    labels = rng.integers(n_clusters, size=rows.shape[0])
    if len(full) >= n_clusters and rows.shape[1] > 1:
        centres = [rows[landmarks == k].sum(axis=0) for k in range(n_clusters) if (landmarks == k).any()]
        nearest = np.zeros(len(full))
        for centre in centres:
            nearest = np.maximum(nearest, rows[full] @ centre / max(float(np.linalg.norm(centre)), 1e-300))
        while len(centres) < n_clusters:
            distance = np.maximum(1.0 - nearest, 0.0) + 1e-12
            chosen = rows[[full[rng.choice(len(full), p=distance / distance.sum())]]].toarray()[0]
            nearest = np.maximum(nearest, rows[full] @ chosen)
            centres.append(chosen)
        own = WeightedRows(rows[full], np.ones(len(full)))
        labels[full] = split_rows(own, np.array(centres), _K_MEANS_ITERATIONS)
    return np.where(landmarks >= 0, landmarks, labels)


def starting_labels(X: sp.csr_array, landmarks: Labels, n_clusters: int, seed: int) -> Labels:
    """Return a label for each document: by support vector machines if every cluster has landmarks, else by k-means.

    Parameters
    ----------
    X : CSR array of shape (n_documents, n_words)
    landmarks : ndarray of shape (n_documents,)
        Known labels, -1 for the others.
    n_clusters : int
    seed : int

    Returns
    -------
    ndarray of shape (n_documents,)
    """
    if n_clusters == 1:
        return np.zeros(X.shape[0], np.int64)
    rows = weighted_rows(X)
    if len(np.unique(landmarks[landmarks >= 0])) == n_clusters:
        return labels_of_svm(rows, landmarks, n_clusters)
    return labels_of_k_means(rows, landmarks, n_clusters, seed)


def starting_topics(
    labels: Labels, lengths: Labels, n_topics: int, n_clusters: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw topics of tokens: half of them from topics of the cluster of their document, half from common topics.

    The chains then start with topics that tell the clusters apart. Every cluster has the same number of own topics;
    with fewer topics than clusters, clusters share them.
    """
    owner = np.repeat(labels, lengths)
    n_own = max(1, n_topics // (n_clusters + 1))
    n_common = max(0, n_topics - n_own * n_clusters)
    own = (owner * n_own + rng.integers(n_own, size=len(owner))) % n_topics
    if not n_common:
        return own.astype(np.int32)
    common = n_topics - n_common + rng.integers(n_common, size=len(owner))
    return np.where(rng.random(len(owner)) < 0.5, own, common).astype(np.int32)


def start_state(model: ClusterTopics, data: Corpus, labels: Labels, rng: np.random.Generator) -> TopicState:
    """Return the state of a chain after some sweeps that keep the labels."""
    T, K, D = model.n_topics, model.n_clusters, data.n_documents
    state = TopicState(
        topics=starting_topics(labels, data.lengths, T, K, rng),
        labels=labels.copy(),
        base=np.full(T, 1 / T),
        clusters=np.full((K, T), 1 / T),
        projections=np.zeros((K, T)),
        concentrations=np.array(model.prior),
        doc_topics=np.zeros((D, padded(T)), np.int32),
        word_topics=np.zeros((data.n_words, padded(T)), np.int32),
        proba=np.eye(K, dtype=np.float32)[labels],
    )
    state = count_state(state, data)
    plain = ClusterTopics(T, K, model.prior)
    for _ in range(START_SWEEPS):
        state, _ = plain.sweep(state, data, rng, labels=False)
    return state
