"""The samplers of cluster topic models: enumeration, Geweke's test, and the joint density."""

from collections import Counter

import numpy as np
import pytest
from scipy.special import gammaln

from arbora.discover.topics.sampler import (
    ClusterTopics,
    Concentrations,
    Corpus,
    count_state,
    draw_dirichlet,
    log_dirichlet,
    start_state,
    topic_shares,
)
from arbora.infer.mcmc.diagnostics import geweke_test
from arbora.infer.mcmc.max_margin import Margin, hinge_losses
from support.topic_posterior import exact_posterior

PRIOR = Concentrations(1.5, 2.0, 0.8, 0.6, 0.7)
margins = pytest.mark.parametrize("margin", [None, Margin(1.2, 0.5, 0.8)], ids=["CTM", "MMCTM"])


class Recounting(ClusterTopics):
    """The words change between sweeps in Geweke's test."""

    def sweep(self, state, data, rng):
        return super().sweep(count_state(state, data), data, rng)


def corpus_of(documents, landmarks, n_words):
    indptr = np.append(0, np.cumsum([len(one) for one in documents])).astype(np.int64)
    return Corpus(indptr, np.concatenate(documents).astype(np.int32), np.array(landmarks), n_words)


def summaries(topics, labels):
    """Events of a draw of three documents of 2, 2 and 1 tokens."""
    return (
        *(labels[i] == labels[j] for i, j in ((0, 1), (0, 2), (1, 2))),
        *(labels[i] == 0 for i in range(3)),
        *(topics[i] == topics[j] for i, j in ((0, 1), (1, 2), (3, 4))),
        topics[0] == topics[1] and labels[0] == labels[1],
        topics[1] == topics[2] and labels[0] != labels[1],
    )


@margins
@pytest.mark.parametrize("landmark", [-1, 0])
def test_chain_has_the_exact_posterior(margin, landmark):
    """Probabilities of events by enumeration of all topics and labels of a tiny corpus."""
    documents, landmarks = [[0, 1], [1, 2], [2]], [landmark, -1, -1]
    exact = exact_posterior(documents, landmarks, 3, PRIOR, margin)
    expected = sum(p * np.array(summaries(*key), float) for key, p in exact.items())
    data, rng = corpus_of(documents, landmarks, 3), np.random.default_rng(1)
    model = ClusterTopics(2, 2, PRIOR, margin)
    state = start_state(model, data, np.maximum(data.landmarks, 0), rng)
    events = []
    for _ in range(3000):
        state, _ = model.sweep(state, data, rng)
        events.append(summaries(state.topics.tolist(), state.labels.tolist()))
    drawn = np.array(events, float)
    batches = drawn.reshape(30, 100, -1).mean(axis=1)
    error = np.maximum(batches.std(axis=0) / np.sqrt(len(batches)), 1e-3)
    assert np.abs(drawn.mean(axis=0) - expected).max() < 0.08
    assert (np.abs(drawn.mean(axis=0) - expected) < 4.5 * error).all()


@pytest.mark.parametrize("margin", [None, Margin(0.6, 0.3, 0.8)], ids=["CTM", "MMCTM"])
def test_geweke(margin):
    """Prior, words and sweep belong to one model, with all concentrations sampled."""
    model = Recounting(2, 2, PRIOR, margin, sample_concentrations=True, lengths=(3, 2, 0, 1), n_words=3)

    def statistics(state, data):
        x = topic_shares(state, data, 2)
        scores = x @ state.projections.T
        return np.array(
            [
                *np.log(state.concentrations), state.base.max(), np.sum(state.clusters**2), np.sum(x**2),
                np.bincount(state.labels).max(), hinge_losses(scores, state.labels, 0.5).sum(),
                np.sum(state.projections**2), np.sum(count_state(state, data).word_topics ** 2),
                data.words[0] == data.words[1],
            ]
        )  # fmt: skip

    result = geweke_test(model, statistics, np.random.default_rng(0), n_direct=600, n_sweeps=600, n_chains=2)
    assert result.p_value > 1e-3


def test_geweke_finds_a_wrong_sweep():
    class Wrong(Recounting):
        def sweep(self, state, data, rng):
            state, info = super().sweep(state, data, rng)
            return state._replace(base=draw_dirichlet(np.full(2, 3.0), rng)), info

    model = Wrong(2, 2, PRIOR, None, lengths=(3, 2), n_words=3)
    result = geweke_test(
        model, lambda state, data: [state.base.max()], np.random.default_rng(0), n_direct=300, n_sweeps=200
    )
    assert result.p_value < 1e-3


@margins
def test_log_joint_is_the_density(margin):
    """Term by term, with phi, theta and gamma integrated out by sequential predictive probabilities."""
    rng = np.random.default_rng(0)
    model = ClusterTopics(3, 2, PRIOR, margin, True, (4, 3, 0), 5)
    state = model.sample_prior(rng)
    data = model.sample_data(state, rng)
    state = count_state(state, data)
    alpha, alpha1, alpha0, beta, omega = state.concentrations
    value, seen, words = 0.0, np.zeros((3, 5)), iter(zip(state.topics, data.words, strict=True))
    for i, label in enumerate(state.labels):
        sizes = np.bincount(state.labels[:i], minlength=2)
        value += np.log((sizes[label] + omega) / (i + 2 * omega))
        own = np.zeros(3)
        for _ in range(data.lengths[i]):
            t, w = next(words)
            value += np.log((own[t] + alpha * state.clusters[label, t]) / (own.sum() + alpha))
            value += np.log((seen[t, w] + beta) / (seen[t].sum() + 5 * beta))
            own[t] += 1
            seen[t, w] += 1
    for share, a in [(state.base, np.full(3, alpha0)), *((mu, alpha1 * state.base) for mu in state.clusters)]:
        value += gammaln(a.sum()) - gammaln(a).sum() + np.sum((a - 1) * np.log(share)) + np.log(share).sum()
    value += np.sum(np.log(state.concentrations / PRIOR) - state.concentrations / PRIOR)
    if margin is not None:
        scores = topic_shares(state, data, 3) @ state.projections.T
        value -= 2 * margin.c * hinge_losses(scores, state.labels, margin.width).sum()
        value += np.sum(
            -0.5 * state.projections**2 / margin.variance - 0.5 * np.log(2 * np.pi * margin.variance)
        )
    assert model.log_joint(state, data) == pytest.approx(value)


def test_dirichlet_of_tiny_parameters():
    """Shares of tiny parameters are nearly one-hot, never NaN, and choose each topic with its probability."""
    rng = np.random.default_rng(0)
    shares = draw_dirichlet(np.tile([1e-5, 3e-5], (4000, 1)), rng)
    assert np.isfinite(np.log(shares)).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert abs(np.mean(shares[:, 1] > 0.5) - 0.75) < 0.03
    many = draw_dirichlet(np.tile([2.0, 1.0, 3.0], (8000, 1)), rng)
    np.testing.assert_allclose(many.mean(axis=0), [1 / 3, 1 / 6, 1 / 2], atol=0.01)
    assert np.isfinite(log_dirichlet(shares[0], np.array([1e-5, 3e-5])))


def test_counts_follow_the_topics():
    rng = np.random.default_rng(0)
    data = corpus_of([[0, 1, 2, 2], [3, 3, 1]], [-1, 1], 4)
    model = ClusterTopics(5, 2, PRIOR, Margin(9.0, 0.1, 0.1))
    state = start_state(model, data, np.array([0, 1]), rng)
    for _ in range(5):
        state, info = model.sweep(state, data, rng)
    again = count_state(state, data)
    np.testing.assert_array_equal(again.doc_topics, state.doc_topics)
    np.testing.assert_array_equal(again.word_topics, state.word_topics)
    assert state.labels[1] == 1
    assert 0 <= info["acceptance"] <= 1
    assert Counter(state.labels.tolist())[1] >= 1
