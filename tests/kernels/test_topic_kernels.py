"""Kernels of cluster topic models against plain Python with the same random numbers."""

import numpy as np
import pytest
from scipy.special import gammaln

from arbora.discover.topics.sampler import Corpus, log_rising_table, padded
from arbora.kernels.gibbs.topics import (
    count_histogram,
    count_tables,
    count_topics,
    fold_in,
    log_rising_sum,
    sweep_labels,
    sweep_tokens,
)
from arbora.kernels.random import draw_index, draw_tables, next_unit, seed_state
from support import topic_twins as twins

T, K, V, WIDTH = 11, 3, 6, 0.2


@pytest.fixture(params=[0.0, 4.0], ids=["plain", "margin"])
def problem(request):
    rng = np.random.default_rng(0)
    lengths = np.array([7, 0, 12, 1, 90, 5])  # 90 tokens: counts beyond the table of log-gamma ratios
    corpus = Corpus(
        np.append(0, np.cumsum(lengths)).astype(np.int64),
        np.concatenate([rng.integers(V, size=n) for n in lengths]).astype(np.int32),
        np.array([-1, -1, 1, -1, -1, 0]),
        V,
    )
    topics = rng.integers(T, size=len(corpus.words)).astype(np.int32)
    topics[20:100] = 3
    labels = np.array([0, 2, 1, 1, 2, 0])
    prior = rng.dirichlet(np.full(T, 0.5), K) * 5 + 1e-6
    return corpus, topics, labels, prior, rng.standard_normal((T, K)), request.param


def padded_columns(array):
    full = np.zeros((len(array), padded(T)), array.dtype)
    full[:, :T] = array
    return full


def counts_of(corpus, topics):
    doc_topics = np.zeros((corpus.n_documents, padded(T)), np.int32)
    word_topics = np.zeros((V, padded(T)), np.int32)
    count_topics(corpus.indptr, corpus.words, topics, doc_topics, word_topics)
    return doc_topics, word_topics


def test_random_numbers():
    state, twin = np.empty(4, np.uint64), twins.Twin(12345)
    seed_state(np.uint64(12345), state)
    drawn = [next_unit(state) for _ in range(1000)]
    np.testing.assert_array_equal(drawn, [twin.unit() for _ in range(1000)])
    assert abs(np.mean(drawn) - 0.5) < 0.05
    assert [draw_tables(20, 1.5, state) for _ in range(50)] == [twin.tables(20, 1.5) for _ in range(50)]
    weights = np.array([-1e4, 0.3, 0.0, 1.2])
    for _ in range(50):
        own = weights.copy()
        assert draw_index(own, state) == twin.index(np.exp(weights))
        np.testing.assert_allclose(own, np.exp(weights) / np.exp(weights).sum())


def test_counts(problem):
    corpus, topics, _, _, _, _ = problem
    doc_topics, word_topics = counts_of(corpus, topics)
    owner = np.repeat(np.arange(corpus.n_documents), corpus.lengths)
    known_docs, known_words = np.zeros((6, T), int), np.zeros((V, T), int)
    np.add.at(known_docs, (owner, topics), 1)
    np.add.at(known_words, (corpus.words, topics), 1)
    np.testing.assert_array_equal(doc_topics[:, :T], known_docs)
    np.testing.assert_array_equal(word_topics[:, :T], known_words)
    histogram = np.zeros(word_topics.max() + 1, np.int64)
    count_histogram(word_topics, T, histogram)
    np.testing.assert_array_equal(histogram, np.bincount(known_words.ravel()))


def test_token_sweep(problem):
    corpus, topics, labels, prior, eta, c = problem
    expected = twins.token_sweep(corpus, topics, labels, prior, 0.3, eta, c, WIDTH, 7)
    doc_topics, word_topics = counts_of(corpus, topics)
    totals = doc_topics.sum(axis=0).astype(np.int64)
    drawn = topics.copy()
    share = sweep_tokens(
        corpus.indptr, corpus.words, drawn, labels, doc_topics, word_topics, totals, padded_columns(prior), 0.3,
        eta, c, WIDTH, np.uint64(7),
    )  # fmt: skip
    np.testing.assert_array_equal(drawn, expected)
    assert (drawn != topics).any()
    assert share == 1.0 if c == 0 else 0 < share < 1
    for updated, known in zip((doc_topics, word_topics), counts_of(corpus, drawn), strict=True):
        np.testing.assert_array_equal(updated, known)
    np.testing.assert_array_equal(totals, doc_topics.sum(axis=0))


def test_label_sweep(problem):
    corpus, topics, labels, prior, eta, c = problem
    doc_topics, _ = counts_of(corpus, topics)
    known, known_proba = twins.label_sweep(
        doc_topics[:, :T], corpus.landmarks, labels, prior, 0.4, eta, c, WIDTH, 3
    )
    drawn, sizes, proba = labels.copy(), np.bincount(labels, minlength=K), np.zeros((6, K), np.float32)
    full = padded_columns(prior)
    sweep_labels(
        corpus.indptr, doc_topics, corpus.landmarks, drawn, sizes, full, log_rising_table(full, T), 0.4, eta, c,
        WIDTH, np.uint64(3), proba,
    )  # fmt: skip
    np.testing.assert_array_equal(drawn, known)
    np.testing.assert_allclose(proba, known_proba, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(sizes, np.bincount(drawn, minlength=K))


def test_log_rising_sum_and_tables(problem):
    corpus, topics, labels, prior, _, _ = problem
    doc_topics, _ = counts_of(corpus, topics)
    full, n, a = padded_columns(prior), doc_topics[:, :T], prior[labels]
    known = np.sum(gammaln(a + n) - gammaln(a))
    assert log_rising_sum(doc_topics, labels, full, log_rising_table(full, T)) == pytest.approx(known)
    tables, twin, expected = np.zeros((K, T), np.int64), twins.Twin(9), np.zeros((K, T), int)
    count_tables(doc_topics, labels, full, np.uint64(9), tables)
    for i, t in zip(*np.nonzero(n), strict=True):
        expected[labels[i], t] += twin.tables(n[i, t], prior[labels[i], t])
    np.testing.assert_array_equal(tables, expected)


def test_folding_in(problem):
    corpus, _, _, prior, eta, c = problem
    rng = np.random.default_rng(1)
    phi, base = rng.dirichlet(np.ones(V), T), rng.dirichlet(np.ones(T)) * 5
    full, log_shares = padded_columns(prior), np.log([0.5, 0.2, 0.3])
    proba, shares = np.zeros((6, K)), np.zeros((6, T))
    fold_in(
        corpus.indptr, corpus.words, padded_columns(phi.T.copy()), full, padded_columns(base[None])[0],
        log_rising_table(full, T), log_shares, eta, c, WIDTH, 4, 5, np.uint64(77), proba, shares,
    )  # fmt: skip
    for i in range(6):
        words = corpus.words[corpus.indptr[i] : corpus.indptr[i + 1]]
        known, known_shares = twins.folded(words, phi, prior, base, log_shares, eta, c, WIDTH, 4, 5, 77)
        np.testing.assert_allclose(proba[i], known, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(shares[i], known_shares, rtol=1e-6)
