r"""Sampler of the cluster topic model (CTM) and of its max-margin form (MMCTM).

Documents i of N_i tokens have a label y_i among K clusters; tokens have topics z_il among T, and words w_il among V:

    phi_t ~ Dir(beta 1_V),   mu_0 ~ Dir(alpha0 1_T),   mu_k ~ Dir(alpha1 mu_0),   gamma ~ Dir(omega 1_K),
    y_i ~ gamma,   theta_i ~ Dir(alpha mu_{y_i}),   z_il ~ theta_i,   w_il ~ phi_{z_il}.

MMCTM multiplies this by exp(-2 c h_i) for every document, where h_i is the hinge loss of the scores g_ik = eta_k.x_i
with the topic shares x_it = n_it / N_i and eta_k ~ N(0, v I) (`infer.mcmc.max_margin`). A document without tokens has
x_i = 0: its loss is the same for every label. The constant of the unnormalised density is not known.

phi, theta and gamma are integrated out. A sweep draws, each given all else,

1. z_il (`kernels.topics.sweep_tokens`): from (n_it + alpha mu_{y_i t}) (n_tw + beta) / (n_t + V beta). With a margin
   this is a proposal, accepted with probability min(1, exp(-2 c (h_i(new) - h_i(old)))).
2. Table counts m_it ~ CRT(n_it, alpha mu_{y_i t}), M_kt = sum of m_it over the documents of k,
   M0_kt ~ CRT(M_kt, alpha1 mu_0t). Given them, with mu and mu_0 integrated out where they may be:

       alpha:   alpha^(sum M) prod_i Gamma(alpha) / Gamma(alpha + N_i)
       alpha1:  alpha1^(sum M0) prod_k Gamma(alpha1) / Gamma(alpha1 + M_k.)
       alpha0:  Dirichlet-multinomial of sum_k M0_kt
       mu_0 ~ Dir(alpha0 + sum_k M0_kt),   mu_k ~ Dir(alpha1 mu_0 + M_k).

   This is the direct-assignment sampler of Teh et al. (2006): no path of tables is assumed.
3. beta given the counts n_tw, omega given the sizes of the clusters.
4. eta (`max_margin.draw_projections`).
5. y_i, of documents that are no landmarks: (n_k + omega) prod_t Gamma(alpha mu_kt + n_it) / Gamma(alpha mu_kt)
   exp(-2 c h_i(k)).

The concentrations have exponential priors with given means when they are sampled, by slice sampling of their
logarithms.

References
----------
C. Chen, J. Zhu and X. Zhang (2014). Robust Bayesian max-margin clustering. NIPS.
H. Wallach (2008). Structured topic models for language. PhD thesis, University of Cambridge.
Y. W. Teh, M. Jordan, M. Beal and D. Blei (2006). Hierarchical Dirichlet processes. JASA 101(476).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from arbora.discover.topics.concentrations import (
    Concentrations,
    draw_concentrations,
    log_prior,
    sample_prior,
)
from arbora.discover.topics.corpus import Corpus
from arbora.infer.mcmc.max_margin import Margin, draw_projections, hinge_losses
from arbora.kernels.gibbs.topics import (
    BLOCK,
    count_histogram,
    count_tables,
    count_topics,
    fill_log_rising,
    log_rising_sum,
    sweep_labels,
    sweep_tokens,
)

Floats = NDArray[np.float64]

TINY = 1e-300  # a share of a topic that underflows
_TABLED = 64  # counts of a topic in a document up to which log-gamma ratios are tabled


class TopicState(NamedTuple):
    """Variables of a chain, and the counts that follow from them. A sweep changes the arrays in place."""

    topics: NDArray[np.int32]  # z, one for each token
    labels: NDArray[np.int64]  # y, one for each document
    base: Floats  # mu_0 (n_topics,)
    clusters: Floats  # mu (n_clusters, n_topics)
    projections: Floats  # eta (n_clusters, n_topics)
    concentrations: Floats  # as in Concentrations
    doc_topics: NDArray[np.int32]  # n_it (n_documents, n_padded)
    word_topics: NDArray[np.int32]  # n_tw (n_words, n_padded)
    proba: NDArray[np.float32]  # of the labels, given all else at their last draw


def padded(n_topics: int) -> int:
    """Return the number of columns of arrays of counts: `n_topics` and the padding."""
    return -(-n_topics // BLOCK) * BLOCK


def count_state(state: TopicState, data: Corpus) -> TopicState:
    """Count the topics of the tokens anew."""
    doc_topics, word_topics = np.zeros_like(state.doc_topics), np.zeros_like(state.word_topics)
    count_topics(data.indptr, data.words, state.topics, doc_topics, word_topics)
    return state._replace(doc_topics=doc_topics, word_topics=word_topics)


def padded_prior(clusters: Floats, alpha: float) -> Floats:
    """Return alpha mu with zeros in the padding."""
    prior = np.zeros((len(clusters), padded(clusters.shape[1])))
    prior[:, : clusters.shape[1]] = alpha * np.maximum(clusters, TINY)
    return prior


def log_rising_table(prior: Floats, n_topics: int) -> Floats:
    """Return log-gamma ratios of small counts, by topic, count and cluster."""
    table = np.empty((n_topics, _TABLED, len(prior)))
    fill_log_rising(prior, table)
    return table


def draw_dirichlet(parameters: Floats, rng: np.random.Generator) -> Floats:
    """Draw from Dirichlet distributions along the last axis; shares that underflow are `TINY`."""
    # log Gamma(a) = log Gamma(a + 1) + log(U) / a: gamma variates of tiny shapes underflow, their logarithms do not.
    logs = np.log(rng.standard_gamma(parameters + 1.0))
    logs += np.log1p(-rng.random(parameters.shape)) / np.maximum(parameters, TINY)
    logs -= logs.max(axis=-1, keepdims=True)
    shares = np.exp(logs)
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.asarray(np.maximum(shares, TINY))


@dataclass(frozen=True)
class ClusterTopics:
    """The model: numbers of topics and clusters, prior means of the concentrations, and the margin (None: CTM).

    `lengths` of documents and `n_words` are needed for simulations only.
    """

    n_topics: int
    n_clusters: int
    prior: Concentrations
    margin: Margin | None = None
    sample_concentrations: bool = False
    lengths: tuple[int, ...] = ()
    n_words: int = 1

    @property
    def strength(self) -> tuple[float, float]:
        """Weight and width of the margin; a weight of 0 without one."""
        return (0.0, 0.0) if self.margin is None else (self.margin.c, self.margin.width)

    def sweep(
        self, state: TopicState, data: Corpus, rng: np.random.Generator, *, labels: bool = True
    ) -> tuple[TopicState, Mapping[str, float]]:
        """Draw all variables once; without `labels`, all but the labels. Counts are updated in place."""
        c, width = self.strength
        prior, beta = padded_prior(state.clusters, state.concentrations[0]), state.concentrations[3]
        eta, totals = np.ascontiguousarray(state.projections.T), self._totals(state)
        accepted = sweep_tokens(
            data.indptr, data.words, state.topics, state.labels, state.doc_topics, state.word_topics,
            totals, prior, beta, eta, c, width, _seed(rng),
        )  # fmt: skip
        state = self._sweep_clusters(state, data, rng)
        if self.margin is not None:
            shares = topic_shares(state, data, self.n_topics)
            eta = draw_projections(state.projections, shares, state.labels, self.margin, rng)
            state = state._replace(projections=eta)
        if labels:
            self._sweep_labels(state, data, rng)
        largest = np.bincount(state.labels, minlength=self.n_clusters).max() / len(state.labels)
        return state, {"acceptance": float(accepted), "largest_cluster": float(largest)}

    def _sweep_clusters(self, state: TopicState, data: Corpus, rng: np.random.Generator) -> TopicState:
        """Draw table counts, then the concentrations, mu_0 and mu given them."""
        now = Concentrations(*state.concentrations.tolist())
        tables = np.zeros((self.n_clusters, self.n_topics), np.int64)
        prior = padded_prior(state.clusters, now.alpha)
        count_tables(state.doc_topics, state.labels, prior, _seed(rng), tables)
        upper = np.zeros_like(tables)
        counts, own = np.zeros((self.n_clusters, padded(self.n_topics)), np.int32), np.arange(self.n_clusters)
        counts[:, : self.n_topics] = tables
        base_prior = np.tile(padded_prior(state.base[None], now.alpha1), (self.n_clusters, 1))
        count_tables(counts, own, base_prior, _seed(rng), upper)
        if self.sample_concentrations:
            sizes = np.bincount(state.labels, minlength=self.n_clusters)
            histogram = word_histogram(state.word_topics, self.n_topics)
            now = draw_concentrations(
                now, self.prior, data.lengths, tables, upper, histogram, self._totals(state), sizes, rng
            )
        base = draw_dirichlet(now.alpha0 + upper.sum(axis=0), rng)
        clusters = draw_dirichlet(now.alpha1 * base + tables, rng)
        return state._replace(base=base, clusters=clusters, concentrations=np.array(now))

    def _sweep_labels(self, state: TopicState, data: Corpus, rng: np.random.Generator) -> None:
        prior = padded_prior(state.clusters, state.concentrations[0])
        c, width = self.strength
        sizes = np.bincount(state.labels, minlength=self.n_clusters)
        sweep_labels(
            data.indptr, state.doc_topics, data.landmarks, state.labels, sizes, prior,
            log_rising_table(prior, self.n_topics), state.concentrations[4],
            np.ascontiguousarray(state.projections.T), c, width, _seed(rng), state.proba,
        )  # fmt: skip

    def _totals(self, state: TopicState) -> NDArray[np.int64]:
        totals: NDArray[np.int64] = state.doc_topics.sum(axis=0, dtype=np.int64)
        return totals

    def sample_prior(self, rng: np.random.Generator) -> TopicState:
        """Draw all variables; with a margin by rejection, since its factor is not normalised."""
        while True:
            state = self._simulate(rng)
            if self.margin is None:
                return state
            scores = topic_shares(state, self.sample_data(state, rng), self.n_topics) @ state.projections.T
            losses = hinge_losses(scores, state.labels, self.margin.width)
            if rng.random() < np.exp(-2 * self.margin.c * losses.sum()):
                return state

    def _simulate(self, rng: np.random.Generator) -> TopicState:
        T, K, D = self.n_topics, self.n_clusters, len(self.lengths)
        now = sample_prior(self.prior, rng) if self.sample_concentrations else self.prior
        base = draw_dirichlet(np.full(T, now.alpha0), rng)
        clusters = draw_dirichlet(np.tile(now.alpha1 * base, (K, 1)), rng)
        labels = rng.choice(K, size=D, p=_normalised(draw_dirichlet(np.full(K, now.omega), rng)))
        theta = draw_dirichlet(now.alpha * clusters[labels], rng)
        topics = [
            rng.choice(T, size=n, p=_normalised(share)) for share, n in zip(theta, self.lengths, strict=True)
        ]
        scale = 0.0 if self.margin is None else np.sqrt(self.margin.variance)
        doc_topics = np.zeros((D, padded(T)), np.int32)
        doc_topics[:, :T] = [np.bincount(own, minlength=T) for own in topics]
        return TopicState(
            np.concatenate(topics).astype(np.int32),
            labels,
            base,
            clusters,
            scale * rng.standard_normal((K, T)),
            np.array(now),
            doc_topics,
            np.zeros((self.n_words, padded(T)), np.int32),
            np.eye(K, dtype=np.float32)[labels],
        )

    def sample_data(self, state: TopicState, rng: np.random.Generator) -> Corpus:
        """Draw the words given their topics. The counts of words in the state do not belong to them."""
        phi = draw_dirichlet(np.full((self.n_topics, self.n_words), state.concentrations[3]), rng)
        words = [rng.choice(self.n_words, p=_normalised(phi[t])) for t in state.topics.tolist()]
        indptr = np.append(0, np.cumsum(self.lengths)).astype(np.int64)
        return Corpus(
            indptr, np.array(words, np.int32), np.full(len(self.lengths), -1, np.int64), self.n_words
        )

    def log_joint(self, state: TopicState, data: Corpus) -> float:
        """Log-density of variables and words; without the unknown constant of a margin.

        Densities of mu are those of their log-ratios: the density of the shares themselves has poles.
        """
        now = Concentrations(*state.concentrations.tolist())
        V, T, K = data.n_words, self.n_topics, self.n_clusters
        histogram = word_histogram(state.word_topics, T)
        value = T * gammaln(V * now.beta) - gammaln(V * now.beta + self._totals(state)[:T]).sum()
        value += histogram @ (gammaln(now.beta + np.arange(len(histogram))) - gammaln(now.beta))
        prior = padded_prior(state.clusters, now.alpha)
        value += np.sum(gammaln(now.alpha) - gammaln(now.alpha + data.lengths))
        value += log_rising_sum(state.doc_topics, state.labels, prior, log_rising_table(prior, T))
        sizes = np.bincount(state.labels, minlength=K)
        value += gammaln(K * now.omega) - gammaln(K * now.omega + len(state.labels))
        value += np.sum(gammaln(now.omega + sizes) - gammaln(now.omega))
        value += log_dirichlet(state.base, np.full(T, now.alpha0))
        value += sum(log_dirichlet(share, now.alpha1 * state.base) for share in state.clusters)
        if self.sample_concentrations:
            value += log_prior(now, self.prior)
        if self.margin is not None:
            c, width, v = self.margin
            scores = topic_shares(state, data, T) @ state.projections.T
            value -= 2 * c * hinge_losses(scores, state.labels, width).sum()
            value -= 0.5 * np.sum(state.projections**2) / v + 0.5 * K * T * np.log(2 * np.pi * v)
        return float(value)


def word_histogram(word_topics: NDArray[np.int32], n_topics: int) -> NDArray[np.int64]:
    """Return the number of pairs (word, topic) with each count, from 0 on."""
    histogram = np.zeros(int(word_topics.max(initial=0)) + 1, np.int64)
    count_histogram(word_topics, n_topics, histogram)
    return histogram


def topic_shares(state: TopicState, data: Corpus, n_topics: int) -> Floats:
    """Return the shares x_it of the topics in the documents; zeros in a document without tokens."""
    lengths = np.maximum(data.lengths, 1).astype(np.float64)
    return np.asarray(state.doc_topics[:, :n_topics] / lengths[:, None])


def log_dirichlet(shares: Floats, parameters: Floats) -> float:
    """Log-density of the log-ratios of Dirichlet-distributed shares.

    Examples
    --------
    >>> round(log_dirichlet(np.array([0.5, 0.5]), np.ones(2)), 4)  # the logistic density at 0 is 1/4
    -1.3863
    """
    constant = gammaln(parameters.sum()) - gammaln(np.maximum(parameters, TINY)).sum()
    return float(constant + np.sum(parameters * np.log(shares)))


def _normalised(shares: Floats) -> Floats:
    return np.asarray(shares / shares.sum())


def _seed(rng: np.random.Generator) -> np.uint64:
    return np.uint64(rng.integers(2**63))
