"""Plain Python twins of the kernels of cluster topic models, with the same random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln

_MASK = 2**64 - 1


class Twin:
    """xoshiro256+ seeded by SplitMix64."""

    def __init__(self, seed: int) -> None:
        self.s = []
        x = seed
        for _ in range(4):
            x = (x + 0x9E3779B97F4A7C15) & _MASK
            self.s.append(mixed(x))

    def unit(self) -> float:
        s = self.s
        result = (s[0] + s[3]) & _MASK
        t = (s[1] << 17) & _MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = ((s[3] << 45) | (s[3] >> 19)) & _MASK
        return (result >> 11) * 2.0**-53

    def index(self, weights: Any) -> int:
        """Draw from weights by their cumulative sum."""
        return int(np.searchsorted(np.cumsum(weights), self.unit() * np.sum(weights), side="right"))

    def tables(self, n: int, a: float) -> int:
        return sum(1 if j == 0 else self.unit() * (a + j) < a for j in range(n))


def mixed(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def loss(scores: Any, label: int, width: float) -> float:
    others = np.delete(scores, label)
    return max(0.0, width + others.max() - scores[label]) if len(others) else 0.0


def token_sweep(
    corpus: Any,
    topics: Any,
    labels: Any,
    prior: Any,
    beta: float,
    eta: Any,
    c: float,
    width: float,
    seed: int,
) -> Any:
    """New topics of all tokens; `eta` is (n_topics, n_clusters), `prior` has no padding."""
    rng, z, T = Twin(seed), topics.copy(), len(eta)
    owner = np.repeat(np.arange(corpus.n_documents), corpus.lengths)
    for i in range(corpus.n_documents):
        mine = np.flatnonzero(owner == i)
        for q in mine.tolist():
            rest = np.arange(len(z)) != q
            n_it = np.bincount(z[rest & (owner == i)], minlength=T)
            n_tw = np.bincount(z[rest & (corpus.words == corpus.words[q])], minlength=T)
            n_t = np.bincount(z[rest], minlength=T)
            p = (n_it + prior[labels[i]]) * (n_tw + beta) / (n_t + corpus.n_words * beta)
            new, old = rng.index(p), int(z[q])
            if c > 0 and new != old and eta.shape[1] > 1:
                before, after = (
                    loss((n_it + np.eye(T)[t]) @ eta / len(mine), labels[i], width) for t in (old, new)
                )
                if after > before and rng.unit() >= np.exp(-2 * c * (after - before)):
                    new = old
            z[q] = new
    return z


def label_weights(counts: Any, prior: Any, log_base: Any, eta: Any, c: float, width: float) -> Any:
    """Unnormalised log-probabilities of the labels of one document."""
    value = log_base + np.sum(gammaln(prior + counts) - gammaln(prior), axis=1)
    if c > 0 and counts.sum() > 0:
        scores = counts @ eta / counts.sum()
        value = value - 2 * c * np.array([loss(scores, k, width) for k in range(len(prior))])
    return value


def label_sweep(
    counts: Any,
    landmarks: Any,
    labels: Any,
    prior: Any,
    omega: float,
    eta: Any,
    c: float,
    width: float,
    seed: int,
) -> tuple[Any, Any]:
    """New labels of all documents, and their probabilities."""
    rng, y, proba = Twin(seed), labels.copy(), np.zeros((len(labels), len(prior)))
    for i in range(len(y)):
        if landmarks[i] >= 0:
            proba[i, landmarks[i]] = 1.0
            continue
        sizes = np.bincount(np.delete(y, i), minlength=len(prior))
        value = label_weights(counts[i], prior, np.log(sizes + omega), eta, c, width)
        proba[i] = np.exp(value - value.max()) / np.exp(value - value.max()).sum()
        y[i] = rng.index(np.exp(value - value.max()))
    return y, proba


def folded(
    words: Any, phi: Any, prior: Any, base: Any, log_shares: Any, eta: Any, c: float, width: float,
    n_burn: int, n_keep: int, seed: int,
) -> tuple[Any, Any]:  # fmt: skip
    """Probabilities of the clusters and shares of the topics of one new document; `phi` is (n_topics, n_words)."""
    code = seed
    for word in words:
        code = mixed(code ^ (int(word) + 1))
    rng, T = Twin(code), len(phi)
    z, label, n = np.full(len(words), -1), -1, max(len(words), 1)
    proba, shares = np.zeros(len(prior)), np.zeros(T)
    for sweep in range(n_burn + n_keep):
        for q, word in enumerate(words):
            counts = np.bincount(z[(np.arange(len(z)) != q) & (z >= 0)], minlength=T)
            new, old = rng.index((counts + (base if label < 0 else prior[label])) * phi[:, word]), z[q]
            if c > 0 and label >= 0 and new != old and len(prior) > 1:
                before, after = (loss((counts + np.eye(T)[t]) @ eta / n, label, width) for t in (old, new))
                if after > before and rng.unit() >= np.exp(-2 * c * (after - before)):
                    new = old
            z[q] = new
        if 2 * (sweep + 1) < n_burn:
            continue
        counts = np.bincount(z, minlength=T)
        value = label_weights(counts, prior, log_shares, eta, c, width)
        weights = np.exp(value - value.max())
        label = rng.index(weights)
        if sweep >= n_burn:
            proba += weights / weights.sum() / n_keep
            shares += (counts + prior[label]) / n_keep
    return proba, shares / shares.sum()
