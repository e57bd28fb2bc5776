r"""Sampler of the cluster topic model (CTM) and of its max-margin form (MMCTM).

Documents i of N_i tokens have a label y_i among K clusters; tokens have topics z_il among T, and words w_il among V:

    phi_t ~ Dir(beta 1_V),   mu_0 ~ Dir(alpha0 1_T),   mu_k ~ Dir(alpha1 mu_0),   gamma ~ Dir(omega 1_K),
    y_i ~ gamma,   theta_i ~ Dir(alpha mu_{y_i}),   z_il ~ theta_i,   w_il ~ phi_{z_il}.

MMCTM multiplies this by exp(-2 c h_i) for every document, where h_i is the hinge loss of the scores g_ik = eta_k.x_i
with the topic shares x_it = n_it / N_i and eta_k ~ N(0, v I) (`infer.mcmc.max_margin`). A document without tokens has
x_i = 0: its loss is the same for every label. The constant of the unnormalised density is not known.

phi, theta and gamma are integrated out. A sweep draws, each given all else,

1. z_il (`sweep_tokens` of `kernels.gibbs.topics`): from (n_it + alpha mu_{y_i t}) (n_tw + beta) / (n_t + V beta).
   With a margin this is a proposal, accepted with probability min(1, exp(-2 c (h_i(new) - h_i(old)))).
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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln

from arbora.arrays import Array, Ints, Matrix
from arbora.core.chunks import require_memory
from arbora.core.validation import check_not_above, check_not_negative, check_rows, refuse_entries
from arbora.discover.kmeans import split_rows
from arbora.infer.linear.flat import solve_block
from arbora.infer.linear.rows import class_blocks, prepare_rows
from arbora.infer.mcmc.hmc import slice_step
from arbora.infer.mcmc.max_margin import Margin, draw_projections, hinge_losses
from arbora.infer.mixture.statistics import WeightedRows
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
from arbora.text import LtcTransformer

# --- Documents as tokens: counts in, one entry for every occurrence of a word -------------------------------


_MAX_TOKENS = 2**30  # tokens of all documents together: counts fit into 32 bits


class Corpus(NamedTuple):
    """Tokens of documents: those of document i are words[indptr[i]:indptr[i + 1]].

    `landmarks` has the cluster of each document whose cluster is known, and -1 for the others.
    """

    indptr: Ints
    words: NDArray[np.int32]
    landmarks: Ints
    n_words: int

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> Ints:
        """Number of tokens of each document."""
        return np.diff(self.indptr)


def read_counts(estimator: Any, X: Any, fractions: str, *, reset: bool) -> sp.csr_array:
    """Check a matrix of counts; `fractions` says what happens to values that are not whole: "error" or "round".

    Messages name the estimator. With `reset`, as in `fit`, it remembers the features.
    """
    name = type(estimator).__name__
    rows = check_rows(estimator, X, reset=reset)
    check_not_negative(rows, name, "Give counts of words")
    check_not_above(rows, _MAX_TOKENS, "Give counts of words: a document cannot have so many")
    if fractions == "round":
        rounded = rows.copy()
        rounded.data = np.rint(rows.data)
        return sp.csr_array(rounded)
    refuse_entries(
        rows,
        lambda values: values != np.rint(values),
        lambda value: f"contains {value:g}, which is not a count,",
        f"{name} draws a topic for every occurrence of a word: give counts (scikit-learn's CountVectorizer), or set "
        "fractions='round'",
    )
    return rows


def make_corpus(X: sp.csr_array, landmarks: Ints | None = None) -> Corpus:
    """Repeat every word as often as it occurs; documents without `landmarks` have the label -1."""
    counts = X.data.astype(np.int64)
    n_tokens = int(counts.sum())
    if n_tokens > _MAX_TOKENS:
        raise ValueError(
            f"X has {n_tokens:,} occurrences of words, but at most {_MAX_TOKENS:,} are possible: give fewer "
            "documents, or leave out the most frequent words."
        )
    require_memory(12 * n_tokens, f"A corpus of {n_tokens:,} tokens", "Give fewer documents or words.")
    owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    lengths = np.bincount(owner, weights=counts, minlength=X.shape[0]).astype(np.int64)
    indptr = np.append(0, np.cumsum(lengths)).astype(np.int64)
    words = np.repeat(X.indices.astype(np.int32), counts)
    codes = np.full(X.shape[0], -1, np.int64) if landmarks is None else landmarks
    return Corpus(indptr, words, codes, X.shape[1])


# --- Concentrations of a cluster topic model: their priors, and their draws given table counts --------------
#
# Each has an exponential prior with a given mean. Conditional densities are one-dimensional and cheap, because equal
# counts are grouped; they are slice sampled on the logarithmic scale.


_WIDTH = 1.0  # first guess of the width of the density of a logarithm
_LIMIT = 50.0  # of the logarithms of the concentrations


class Concentrations(NamedTuple):
    """Concentrations of topics in documents, in clusters, in all clusters; of words; and of labels."""

    alpha: float
    alpha1: float
    alpha0: float
    beta: float
    omega: float


def log_prior(now: Concentrations, mean: Concentrations) -> float:
    """Log-density of the logarithms of concentrations with exponential priors."""
    value, scale = np.array(now), np.array(mean)
    return float(np.sum(np.log(value / scale) - value / scale))


def sample_prior(mean: Concentrations, rng: np.random.Generator) -> Concentrations:
    """Draw concentrations from their priors."""
    return Concentrations(*(np.array(mean) * rng.standard_exponential(len(mean))).tolist())


def log_table_density(a: float, n_tables: int, sizes: Matrix, counts: Matrix) -> float:
    """Log of a^n_tables prod (Gamma(a) / Gamma(a + size))^count: restaurants of customers, and all their tables."""
    return float(n_tables * np.log(a) + counts @ (gammaln(a) - gammaln(a + sizes)))


def log_symmetric_density(a: float, n: int, totals: Matrix, histogram: Matrix) -> float:
    """Log-density of counts of symmetric Dirichlet-multinomials with n categories.

    `totals` are their numbers of draws, `histogram[m]` is the number of categories with count m, over all of them.
    """
    value = len(totals) * gammaln(n * a) - gammaln(n * a + totals).sum()
    return float(value + histogram @ (gammaln(a + np.arange(len(histogram))) - gammaln(a)))


def draw_concentrations(
    now: Concentrations,
    mean: Concentrations,
    lengths: Matrix,
    tables: Ints,
    upper: Ints,
    histogram: Ints,
    totals: Ints,
    sizes: Ints,
    rng: np.random.Generator,
) -> Concentrations:
    """Draw all concentrations, each given all else but mu and mu_0; `mean` holds the means of their priors.

    `tables` (n_clusters, n_topics) are table counts of the documents of each cluster, `upper` those of the clusters.
    `lengths` and `sizes` are the tokens of each document and the documents of each cluster. `histogram` counts the
    pairs (word, topic) by their number of tokens; `totals` are the tokens of each topic, with zeros in the padding.
    """
    n_topics = tables.shape[1]
    n_words = int(histogram.sum()) // n_topics
    length, with_length = np.unique(lengths, return_counts=True)
    per_cluster, ones = tables.sum(axis=1), np.ones(len(tables))
    base = upper.sum(axis=0)
    n_tables, n_upper = int(tables.sum()), int(upper.sum())
    densities: tuple[Callable[[float], float], ...] = (
        lambda a: log_table_density(a, n_tables, length, with_length),
        lambda a: log_table_density(a, n_upper, per_cluster, ones),
        lambda a: log_symmetric_density(a, n_topics, np.array([n_upper]), np.bincount(base)),
        lambda a: log_symmetric_density(a, n_words, totals[:n_topics], histogram),
        lambda a: log_symmetric_density(a, len(sizes), np.array([sizes.sum()]), np.bincount(sizes)),
    )
    drawn = [
        _draw(value, scale, density, rng) for value, scale, density in zip(now, mean, densities, strict=True)
    ]
    return Concentrations(*drawn)


def _draw(
    value: float, scale: float, log_density: Callable[[float], float], rng: np.random.Generator
) -> float:
    def of_logarithm(log_a: float) -> float:
        if abs(log_a) > _LIMIT:
            return -np.inf
        a = float(np.exp(log_a))
        return log_a - a / scale + log_density(a)

    return float(np.exp(slice_step(of_logarithm, float(np.log(value)), _WIDTH, rng)))


# --- Sampler of the cluster topic model (CTM) and of its max-margin form (MMCTM) ----------------------------


_MIN_SHARE = 1e-300  # share of a topic that underflows
_TABLED = 64  # counts of a topic in a document up to which log-gamma ratios are tabled


class TopicState(NamedTuple):
    """Variables of a chain, and the counts that follow from them. A sweep changes the arrays in place."""

    topics: NDArray[np.int32]  # z, one for each token
    labels: Ints  # y, one for each document
    base: Array  # mu_0 (n_topics,)
    clusters: Array  # mu (n_clusters, n_topics)
    projections: Array  # eta (n_clusters, n_topics)
    concentrations: Array  # as in Concentrations
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


def padded_prior(clusters: Array, alpha: float) -> Array:
    """Return alpha mu with zeros in the padding."""
    prior = np.zeros((len(clusters), padded(clusters.shape[1])))
    prior[:, : clusters.shape[1]] = alpha * np.maximum(clusters, _MIN_SHARE)
    return prior


def log_rising_table(prior: Array, n_topics: int) -> Array:
    """Return log-gamma ratios of small counts, by topic, count and cluster."""
    table = np.empty((n_topics, _TABLED, len(prior)))
    fill_log_rising(prior, table)
    return table


def draw_dirichlet(parameters: Array, rng: np.random.Generator) -> Array:
    """Draw from Dirichlet distributions along the last axis; shares that underflow are `_MIN_SHARE`."""
    # log Gamma(a) = log Gamma(a + 1) + log(U) / a: gamma variates of tiny shapes underflow, their logarithms do not.
    logs = np.log(rng.standard_gamma(parameters + 1.0))
    logs += np.log1p(-rng.random(parameters.shape)) / np.maximum(parameters, _MIN_SHARE)
    logs -= logs.max(axis=-1, keepdims=True)
    shares = np.exp(logs)
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.asarray(np.maximum(shares, _MIN_SHARE))


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
        counts, cluster_ids = (
            np.zeros((self.n_clusters, padded(self.n_topics)), np.int32),
            np.arange(self.n_clusters),
        )
        counts[:, : self.n_topics] = tables
        base_prior = np.tile(padded_prior(state.base[None], now.alpha1), (self.n_clusters, 1))
        count_tables(counts, cluster_ids, base_prior, _seed(rng), upper)
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

    def _totals(self, state: TopicState) -> Ints:
        totals: Ints = state.doc_topics.sum(axis=0, dtype=np.int64)
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
        doc_topics[:, :T] = [np.bincount(tokens, minlength=T) for tokens in topics]
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


def word_histogram(word_topics: NDArray[np.int32], n_topics: int) -> Ints:
    """Return the number of pairs (word, topic) with each count, from 0 on."""
    histogram = np.zeros(int(word_topics.max(initial=0)) + 1, np.int64)
    count_histogram(word_topics, n_topics, histogram)
    return histogram


def topic_shares(state: TopicState, data: Corpus, n_topics: int) -> Array:
    """Return the shares x_it of the topics in the documents; zeros in a document without tokens."""
    lengths = np.maximum(data.lengths, 1).astype(np.float64)
    return np.asarray(state.doc_topics[:, :n_topics] / lengths[:, None])


def log_dirichlet(shares: Array, parameters: Array) -> float:
    """Return the log-density of the log-ratios of Dirichlet-distributed shares."""
    constant = gammaln(parameters.sum()) - gammaln(np.maximum(parameters, _MIN_SHARE)).sum()
    return float(constant + np.sum(parameters * np.log(shares)))


def _normalised(shares: Array) -> Array:
    return np.asarray(shares / shares.sum())


def _seed(rng: np.random.Generator) -> np.uint64:
    return np.uint64(rng.integers(2**63))


# --- Starts of the chains: labels from landmarks, topics from sweeps that keep these labels -----------------
#
# Chains of cluster topic models do not find good labels from random ones in any reasonable time. With landmarks of
# two clusters or more, a linear support vector machine of the landmarks labels the other documents. Clusters without
# landmarks, and corpora without any, start from spherical k-means. Documents are unit rows of ltc weights.


_K_MEANS_ITERATIONS = 20
START_SWEEPS = 10  # sweeps of the topics that keep the labels, without a margin


def weighted_rows(X: sp.csr_array) -> sp.csr_array:
    """Return unit rows of ltc weights; empty documents stay zero."""
    return sp.csr_array(LtcTransformer(smooth_idf=True).fit_transform(X))


def labels_of_svm(rows: sp.csr_array, landmarks: Ints, n_clusters: int) -> Ints:
    """Label documents by one-vs-rest support vector machines of the landmarks, which keep their labels."""
    labelled = np.flatnonzero(landmarks >= 0)
    prepared = prepare_rows(rows[labelled], np.float64)
    scores = np.empty((rows.shape[0], n_clusters))
    for block in class_blocks(n_clusters):
        cost = np.where(landmarks[labelled, None] == np.array(block), 1.0, -1.0)
        weights = solve_block(prepared, cost, tol=1e-3).weights
        scores[:, block.start : block.stop] = rows @ weights[:-1] + weights[-1]
    return np.where(landmarks >= 0, landmarks, scores.argmax(axis=1))


def labels_of_k_means(rows: sp.csr_array, landmarks: Ints, n_clusters: int, seed: int) -> Ints:
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
        weighted = WeightedRows(rows[full], np.ones(len(full)))
        labels[full] = split_rows(weighted, np.array(centres), _K_MEANS_ITERATIONS)
    return np.where(landmarks >= 0, landmarks, labels)


def starting_labels(X: sp.csr_array, landmarks: Ints, n_clusters: int, seed: int) -> Ints:
    """Return a label for each document: by support vector machines if every cluster has landmarks, else by k-means.

    `landmarks` are -1 for documents without a known label.
    """
    if n_clusters == 1:
        return np.zeros(X.shape[0], np.int64)
    rows = weighted_rows(X)
    if len(np.unique(landmarks[landmarks >= 0])) == n_clusters:
        return labels_of_svm(rows, landmarks, n_clusters)
    return labels_of_k_means(rows, landmarks, n_clusters, seed)


def starting_topics(
    labels: Ints, lengths: Ints, n_topics: int, n_clusters: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw topics of tokens: half of them from topics of the cluster of their document, half from common topics.

    The chains then start with topics that tell the clusters apart. Every cluster has the same number of own topics;
    with fewer topics than clusters, clusters share them.
    """
    owner = np.repeat(labels, lengths)
    n_special = max(1, n_topics // (n_clusters + 1))
    n_common = max(0, n_topics - n_special * n_clusters)
    cluster_topic = (owner * n_special + rng.integers(n_special, size=len(owner))) % n_topics
    if not n_common:
        return cluster_topic.astype(np.int32)
    common = n_topics - n_common + rng.integers(n_common, size=len(owner))
    return np.where(rng.random(len(owner)) < 0.5, cluster_topic, common).astype(np.int32)


def start_state(model: ClusterTopics, data: Corpus, labels: Ints, rng: np.random.Generator) -> TopicState:
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
