"""Gibbs sweeps of cluster topic models: topics of tokens, labels of documents, table counts.

Counts of topics are integers in rows that are padded with zeros to a multiple of `BLOCK` topics, so that the loops
over topics run in whole vector registers. The topic of a token is drawn in two steps, a block of topics and then a
topic in it; this takes the place of a running sum over all topics, whose additions would wait for each other.
"""

import math

import numpy as np

from arbora.kernels import deferred as nb
from arbora.kernels.products import FAST
from arbora.kernels.random import draw_index, draw_tables, mix_bits, next_unit, seed_state

BLOCK = 8  # topics in a block
_NO_COMPETITOR = -1e30  # score of the own cluster among the competitors; infinity is not safe with fastmath


@nb.njit(inline="always", **FAST)
def draw_topic(row, beta, weight, sums, state):  # type: ignore[no-untyped-def]
    """Draw a topic with probability proportional to weight * (row + beta)."""
    n_blocks, total = len(sums), 0.0
    for b in range(n_blocks):
        part = 0.0
        for j in range(BLOCK):
            part += weight[b * BLOCK + j] * (row[b * BLOCK + j] + beta)
        total += part
        sums[b] = total
    u, b = next_unit(state) * total, 0
    for a in range(n_blocks - 1):
        b += sums[a] <= u
    if b > 0:
        u -= sums[b - 1]
    chosen = b * BLOCK
    for t in range(b * BLOCK, b * BLOCK + BLOCK):
        p = weight[t] * (row[t] + beta)
        if p > 0.0:
            chosen = t
            u -= p
            if u < 0.0:
                break
    return chosen


@nb.njit(inline="always", **FAST)
def largest_moved(competitors, eta, new, old, scale):  # type: ignore[no-untyped-def]
    """Return the largest score of a competitor after one token moves from topic `old` to `new`."""
    best = _NO_COMPETITOR
    for k in range(len(competitors)):
        best = max(best, competitors[k] + scale * (eta[new, k] - eta[old, k]))
    return best


@nb.njit(inline="always", **FAST)
def score_document(counts, eta, n_topics, label, scale, competitors):  # type: ignore[no-untyped-def]
    """Write the scores of a document into `competitors`, the lowest for its own label; return its own score."""
    competitors[:] = 0.0
    for t in range(n_topics):
        n = scale * counts[t]
        if n > 0.0:
            for k in range(len(competitors)):
                competitors[k] += n * eta[t, k]
    score = competitors[label]
    competitors[label] = _NO_COMPETITOR
    return score


@nb.njit(**FAST)
def sweep_tokens(  # type: ignore[no-untyped-def]
    indptr, words, topics, labels, doc_topics, word_topics, totals, prior, beta, eta, c, width, seed
):
    """Draw the topic of every token given all others; return the share of accepted changes of topic.

    The tokens of document i are words[indptr[i]:indptr[i + 1]]. `prior` (n_clusters, n_padded) is alpha mu, zero in
    the padding; `eta` is (n_topics, n_clusters). With c > 0 the topic is proposed from the model without margin, and
    accepted with probability min(1, exp(-2 c (change of the loss))). Topics and counts are updated in place.
    """
    n_words, n_padded = word_topics.shape
    n_topics, n_clusters = eta.shape
    state = np.empty(4, np.uint64)
    seed_state(seed, state)
    weight, inverse = np.zeros(n_padded), np.zeros(n_padded)
    sums, competitors = np.empty(n_padded // BLOCK), np.empty(n_clusters)
    for t in range(n_topics):
        inverse[t] = 1.0 / (totals[t] + n_words * beta)
    has_margin = c > 0.0 and n_clusters > 1
    n_proposed, n_accepted, loss, score, scale = 0, 0, 0.0, 0.0, 0.0
    for i in range(len(indptr) - 1):
        first, stop = indptr[i], indptr[i + 1]
        if first == stop:
            continue
        label, counts, own_prior = labels[i], doc_topics[i], prior[labels[i]]
        for t in range(n_padded):
            weight[t] = (counts[t] + own_prior[t]) * inverse[t]
        if has_margin:
            scale = 1.0 / (stop - first)
            score = score_document(counts, eta, n_topics, label, scale, competitors)
            best = _NO_COMPETITOR
            for k in range(n_clusters):
                best = max(best, competitors[k])
            loss = max(0.0, width + best - score)
        for q in range(first, stop):
            old, row = topics[q], word_topics[words[q]]
            counts[old] -= 1
            row[old] -= 1
            totals[old] -= 1
            inverse[old] = 1.0 / (totals[old] + n_words * beta)
            weight[old] = (counts[old] + own_prior[old]) * inverse[old]
            new = draw_topic(row, beta, weight, sums, state)
            if has_margin and new != old:
                n_proposed += 1
                score_moved = score + scale * (eta[new, label] - eta[old, label])
                best = largest_moved(competitors, eta, new, old, scale)
                moved = max(0.0, width + best - score_moved)
                if moved <= loss or next_unit(state) < math.exp(-2.0 * c * (moved - loss)):
                    n_accepted += 1
                    loss, score = moved, score_moved
                    for k in range(n_clusters):
                        competitors[k] += scale * (eta[new, k] - eta[old, k])
                else:
                    new = old
            topics[q] = new
            counts[new] += 1
            row[new] += 1
            totals[new] += 1
            inverse[new] = 1.0 / (totals[new] + n_words * beta)
            weight[new] = (counts[new] + own_prior[new]) * inverse[new]
    return n_accepted / n_proposed if n_proposed > 0 else 1.0


@nb.njit(**FAST)
def fill_log_rising(prior, table):  # type: ignore[no-untyped-def]
    """Write log(a (a + 1) ... (a + n)) for a = prior[k, t] into table[t, n, k]."""
    for t in range(table.shape[0]):
        for k in range(table.shape[2]):
            total = 0.0
            for n in range(table.shape[1]):
                total += math.log(prior[k, t] + n)
                table[t, n, k] = total


@nb.njit(inline="always", **FAST)
def add_log_rising(counts, prior, table, log_weights):  # type: ignore[no-untyped-def]
    """Add log Gamma(a_kt + n_t) - log Gamma(a_kt), summed over topics, to the weight of each cluster k."""
    n_topics, n_tabled, n_clusters = table.shape
    for t in range(n_topics):
        n = counts[t]
        if n > n_tabled:
            for k in range(n_clusters):
                log_weights[k] += math.lgamma(prior[k, t] + n) - math.lgamma(prior[k, t])
        elif n > 0:
            for k in range(n_clusters):
                log_weights[k] += table[t, n - 1, k]


@nb.njit(inline="always", **FAST)
def subtract_losses(counts, eta, scale, c, width, scores, log_weights):  # type: ignore[no-untyped-def]
    """Subtract 2 c times the loss that the document would have with each label."""
    n_topics, n_clusters = eta.shape
    scores[:] = 0.0
    for t in range(n_topics):
        n = scale * counts[t]
        if n > 0.0:
            for k in range(n_clusters):
                scores[k] += n * eta[t, k]
    best, second, leader = _NO_COMPETITOR, _NO_COMPETITOR, -1
    for k in range(n_clusters):
        if scores[k] > best:
            best, second, leader = scores[k], best, k
        elif scores[k] > second:
            second = scores[k]
    for k in range(n_clusters):
        competitor = second if k == leader else best
        log_weights[k] -= 2.0 * c * max(0.0, width + competitor - scores[k])


@nb.njit(**FAST)
def sweep_labels(  # type: ignore[no-untyped-def]
    indptr, doc_topics, landmarks, labels, sizes, prior, table, omega, eta, c, width, seed, proba
):
    """Draw the label of every document without a landmark given all others; write its probabilities.

    `sizes` are the numbers of documents of the clusters. `table` is from `fill_log_rising`; counts beyond it use
    log-gamma functions. `labels`, `sizes` and `proba` are updated in place.
    """
    n_clusters = len(sizes)
    state = np.empty(4, np.uint64)
    seed_state(seed, state)
    log_weights, scores = np.empty(n_clusters), np.empty(n_clusters)
    for i in range(len(labels)):
        if landmarks[i] >= 0:
            proba[i] = 0.0
            proba[i, landmarks[i]] = 1.0
            continue
        sizes[labels[i]] -= 1
        for k in range(n_clusters):
            log_weights[k] = math.log(sizes[k] + omega)
        add_log_rising(doc_topics[i], prior, table, log_weights)
        n_tokens = indptr[i + 1] - indptr[i]
        if c > 0.0 and n_clusters > 1 and n_tokens > 0:
            subtract_losses(doc_topics[i], eta, 1.0 / n_tokens, c, width, scores, log_weights)
        labels[i] = draw_index(log_weights, state)
        sizes[labels[i]] += 1
        for k in range(n_clusters):
            proba[i, k] = log_weights[k]


@nb.njit(**FAST)
def log_rising_sum(doc_topics, labels, prior, table):  # type: ignore[no-untyped-def]
    """Return the sum over documents and topics of log Gamma(a + n) - log Gamma(a), a = prior[label, topic]."""
    n_topics, n_tabled, _ = table.shape
    total = 0.0
    for i in range(len(labels)):
        k = labels[i]
        for t in range(n_topics):
            n = doc_topics[i, t]
            if n > n_tabled:
                total += math.lgamma(prior[k, t] + n) - math.lgamma(prior[k, t])
            elif n > 0:
                total += table[t, n - 1, k]
    return total


@nb.njit(**FAST)
def count_tables(doc_topics, labels, prior, seed, tables):  # type: ignore[no-untyped-def]
    """Draw the table counts of all documents and topics; add those of cluster k and topic t to tables[k, t]."""
    state = np.empty(4, np.uint64)
    seed_state(seed, state)
    n_topics = tables.shape[1]
    for i in range(len(labels)):
        k = labels[i]
        for t in range(n_topics):
            if doc_topics[i, t] > 0:
                tables[k, t] += draw_tables(doc_topics[i, t], prior[k, t], state)


@nb.njit(**FAST)
def count_topics(indptr, words, topics, doc_topics, word_topics):  # type: ignore[no-untyped-def]
    """Count the topics of the tokens by document and by word, into arrays of zeros."""
    for i in range(len(indptr) - 1):
        for q in range(indptr[i], indptr[i + 1]):
            doc_topics[i, topics[q]] += 1
            word_topics[words[q], topics[q]] += 1


@nb.njit(**FAST)
def count_histogram(counts, n_columns, histogram):  # type: ignore[no-untyped-def]
    """Add the number of entries of each value in the first columns of an array of counts."""
    for i in range(counts.shape[0]):
        for t in range(n_columns):
            histogram[counts[i, t]] += 1


@nb.njit(**FAST)
def fold_in(  # type: ignore[no-untyped-def]
    indptr,
    words,
    phi,
    prior,
    base_prior,
    table,
    log_shares,
    eta,
    c,
    width,
    n_burn,
    n_keep,
    seed,
    proba,
    shares,
):
    """Sample topics and labels of new documents given the parameters; write means of their distributions.

    The first half of the `n_burn` sweeps that are not used is neutral: all clusters have the topics of `base_prior`
    (n_padded,). `phi` (n_words, n_padded) has the probabilities of words. The draws of a document depend on its own
    words and on `seed` only, so that predictions do not depend on the other rows. `proba` (n_documents, n_clusters)
    and `shares` (n_documents, n_topics) are arrays of zeros.
    """
    n_topics, n_clusters = eta.shape
    n_padded = phi.shape[1]
    state = np.empty(4, np.uint64)
    counts, weight = np.empty(n_padded, np.int32), np.empty(n_padded)
    sums, scores, log_weights = np.empty(n_padded // BLOCK), np.empty(n_clusters), np.empty(n_clusters)
    competitors = np.empty(n_clusters)
    longest = 1
    for i in range(len(indptr) - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    topics = np.empty(longest, np.int32)
    has_margin = c > 0.0 and n_clusters > 1
    for i in range(len(indptr) - 1):
        first, n_tokens = indptr[i], indptr[i + 1] - indptr[i]
        code = np.uint64(seed)
        for q in range(first, first + n_tokens):
            code = mix_bits(code ^ np.uint64(words[q] + 1))
        seed_state(code, state)
        counts[:] = 0
        topics[:n_tokens] = -1
        label, scale = -1, 1.0 / max(n_tokens, 1)
        for sweep in range(n_burn + n_keep):
            neutral = label < 0
            for t in range(n_padded):
                weight[t] = counts[t] + (base_prior[t] if neutral else prior[label, t])
            score, loss = 0.0, 0.0
            if has_margin and not neutral:
                score = score_document(counts, eta, n_topics, label, scale, competitors)
                best = _NO_COMPETITOR
                for k in range(n_clusters):
                    best = max(best, competitors[k])
                loss = max(0.0, width + best - score)
            for q in range(n_tokens):
                old, row = topics[q], phi[words[first + q]]
                if old >= 0:
                    counts[old] -= 1
                    weight[old] -= 1.0
                new = draw_topic(row, 0.0, weight, sums, state)
                if has_margin and not neutral and new != old:
                    score_moved = score + scale * (eta[new, label] - eta[old, label])
                    moved = max(0.0, width + largest_moved(competitors, eta, new, old, scale) - score_moved)
                    if moved <= loss or next_unit(state) < math.exp(-2.0 * c * (moved - loss)):
                        loss, score = moved, score_moved
                        for k in range(n_clusters):
                            competitors[k] += scale * (eta[new, k] - eta[old, k])
                    else:
                        new = old
                topics[q] = new
                counts[new] += 1
                weight[new] += 1.0
            if 2 * (sweep + 1) < n_burn:
                continue
            for k in range(n_clusters):
                log_weights[k] = log_shares[k]
            add_log_rising(counts, prior, table, log_weights)
            if has_margin and n_tokens > 0:
                subtract_losses(counts, eta, scale, c, width, scores, log_weights)
            label = draw_index(log_weights, state)
            if sweep >= n_burn:
                for k in range(n_clusters):
                    proba[i, k] += log_weights[k] / n_keep
                for t in range(n_topics):
                    shares[i, t] += (counts[t] + prior[label, t]) / n_keep
        total = 0.0
        for t in range(n_topics):
            total += shares[i, t]
        for t in range(n_topics):
            shares[i, t] /= total
