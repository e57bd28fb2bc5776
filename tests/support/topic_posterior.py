"""Exact posterior of tiny cluster topic models with two topics and two clusters, by enumeration and quadrature."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from scipy.special import gammaln
from scipy.stats import beta as beta_distribution


def _cluster_factor(counts: list[Any], mu: Any, alpha: float) -> Any:
    """Probability of the topics of the documents of one cluster, for shares mu of the first topic."""
    value = np.zeros_like(mu)
    for first, second in counts:
        for n, share in ((first, mu), (second, 1 - mu)):
            value += gammaln(alpha * share + n) - gammaln(alpha * share)
        value += gammaln(alpha) - gammaln(alpha + first + second)
    return np.exp(value)


def _base_factors(counts: list[Any], mu: Any, alpha: float) -> Any:
    """The same with mu_k integrated out; row b of `mu` has its quantiles given share b of the base."""
    return _cluster_factor(counts, mu, alpha).mean(axis=1)


def _margin_factor(shares: Any, labels: Any, c: float, width: float, v: float) -> float:
    """Mean of prod exp(-2 c h_i) over the difference of two projections, N(0, 2 v I) in two dimensions."""
    nodes = np.linspace(-6.0, 6.0, 161)  # the hinge has a kink: equal steps are better than Gaussian nodes
    weights = np.exp(-0.5 * nodes**2)
    d = np.sqrt(2 * v) * np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1)
    total = np.zeros(d.shape[:2])
    for share, label in zip(shares, labels, strict=True):
        gap = d @ share * (1 if label == 0 else -1)
        total -= 2 * c * np.maximum(0.0, width - gap)
    return float(weights @ np.exp(total) @ weights / weights.sum() ** 2)


def exact_posterior(
    documents: list[list[int]], landmarks: list[int], n_words: int, prior: Any, margin: Any = None
) -> dict[tuple[Any, Any], float]:
    """Probabilities of all (topics of the tokens, labels of the documents)."""
    alpha, alpha1, alpha0, beta, omega = prior
    n_tokens = sum(map(len, documents))
    owner = np.repeat(np.arange(len(documents)), [len(one) for one in documents])
    words = np.concatenate([np.array(one, int) for one in documents])
    grid = (np.arange(80) + 0.5) / 80
    base = beta_distribution.ppf(grid, alpha0, alpha0)[:, None]
    mu = np.clip(beta_distribution.ppf(grid, alpha1 * base, alpha1 * (1 - base)), 1e-12, 1 - 1e-12)
    factors: dict[Any, Any] = {}
    weights = {}
    for z in product(range(2), repeat=n_tokens):
        topics = np.array(z, int)
        counts = np.zeros((len(documents), 2), int)
        np.add.at(counts, (owner, topics), 1)
        word_counts = np.zeros((2, n_words))
        np.add.at(word_counts, (topics, words), 1)
        log_words = np.sum(gammaln(beta + word_counts) - gammaln(beta))
        log_words -= np.sum(gammaln(n_words * beta + word_counts.sum(axis=1)))
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        for y in product(range(2), repeat=len(documents)):
            if any(landmark >= 0 and landmark != label for landmark, label in zip(landmarks, y, strict=True)):
                continue
            weight = np.exp(log_words + np.sum(gammaln(omega + np.bincount(y, minlength=2)) - gammaln(omega)))
            by_base = np.ones(len(mu))
            for k in range(2):
                topic_counts = tuple(sorted(tuple(counts[i]) for i, label in enumerate(y) if label == k))
                if topic_counts not in factors:
                    factors[topic_counts] = _base_factors(list(topic_counts), mu, alpha)
                by_base = by_base * factors[topic_counts]
            weight *= by_base.mean()
            if margin is not None:
                weight *= _margin_factor(shares, y, *margin)
            weights[z, y] = float(weight)
    total = sum(weights.values())
    return {key: value / total for key, value in weights.items()}
