"""The predictive density of new rows: a mixture of Student distributions, over the clusters of many draws.

Given one draw, a new row joins a cluster with probability proportional to n_k (alpha / K + n_k for a fixed number K)
and a new one with probability proportional to alpha. The average over the draws is again a mixture,

    p(x) = sum_j weight_j exp(constant_j - power_j L_j(x)),

L_j(x) the change of log|S_n| that x makes (see `arbora.kernels.gibbs.normal_wishart`), for the clusters j of all
draws. A training row is scored by the draws of the other rows: the density without it is the harmonic mean, over the
draws, of its density given the other rows and their labels (the conditional predictive ordinate).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from arbora.arrays import Array, Ints
from arbora.discover.gaussian.normal_wishart import prior_of, tabulate
from arbora.discover.gaussian.sampler import PartitionModel, PartitionState
from arbora.infer.mcmc.max_margin import all_hinge_losses
from arbora.kernels.gibbs.normal_wishart import (
    N_SCRATCH,
    Clusters,
    Prior,
    left_out_student,
    student_components,
    student_matrix,
)


class Predictive(NamedTuple):
    """Student components of all draws; the last of each draw is a new cluster."""

    log_weights: Array  # (n,): their exponentials sum to 1 over all draws
    constants: Array  # (n,)
    powers: Array  # (n,)
    shares: Array  # (n,): f = r_n / (r_n + 1)
    means: Array  # (n, n_features)
    factors: Array  # (n, a, b)
    members: Array  # (n, n_clusters): shares of the rows of a component that each cluster of the estimate has
    starts: Ints  # (n_draws + 1,): components of each draw
    projections: Array  # (n, n_margin_features); without columns if there are no margins
    margins: Array  # (n_draws, 2): c and margin of each draw


def slice_weights(model: PartitionModel, counts: Ints, alpha: float) -> Array:
    """Return log-weights of the clusters and of a new one (minus infinity if their number is fixed)."""
    K = model.n_components
    if K is None:
        return np.asarray(np.log(np.append(counts, alpha) / (counts.sum() + alpha)))
    # Clusters without rows are alike: one component stands for all of them.
    empty = alpha * (K - len(counts)) / K
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.append(counts + alpha / K, empty) / (counts.sum() + alpha)))


def make_predictive(
    model: PartitionModel, states: list[PartitionState], X: Array, estimate: Ints, sample: Ints
) -> tuple[Predictive, Array]:
    """Return the components of all draws, and the left-out log-densities of the rows `sample`."""
    hp, K = model.hyper_prior, int(estimate.max()) + 1
    parts: list[list[Array]] = []
    inverse_density = np.full(len(sample), -np.inf)
    for state in states:
        prior = prior_of(state.hyper, hp.mean, hp.covariance, len(X))
        counts = np.bincount(state.labels)
        n_clusters = len(counts)
        clusters = tabulate(X, state.labels, n_clusters, prior, state.scale)
        table = np.zeros((n_clusters + 1, K))
        np.add.at(table, (state.labels, estimate), 1.0)
        table[:-1] /= counts[:, None]
        sizes = np.append(counts, 0)
        logdets = np.append(clusters.logdets[:n_clusters], prior.logdet)
        power = prior.half[sizes + 1]
        rn = prior.r + sizes
        parts.append([
            slice_weights(model, counts, float(state.alpha)) - np.log(len(states)),
            prior.table[sizes] - (power - prior.half[sizes]) * logdets,
            power,
            rn / (rn + 1),
            np.vstack([clusters.means[:n_clusters], prior.mean]),
            np.concatenate([clusters.factors[:n_clusters], prior.factor[None]]),
            table,
            _projections_of(model, state, n_clusters),
        ])  # fmt: skip
        left_out = left_out_densities(model, state, X[sample], sample, clusters, prior)
        inverse_density = np.logaddexp(inverse_density, -left_out)
    starts = np.concatenate([[0], np.cumsum([len(part[0]) for part in parts])])
    margins = np.array([[float(state.c), float(state.width)] for state in states])
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    predictive = Predictive._make([*joined[:-1], starts.astype(np.int64), joined[-1], margins])
    return predictive, np.log(len(states)) - inverse_density


def _projections_of(model: PartitionModel, state: PartitionState, n_clusters: int) -> Array:
    if not model.has_margin(state):
        return np.zeros((n_clusters + 1, 0))
    return np.vstack([state.projections[:n_clusters], np.zeros((1, state.projections.shape[1]))])


def left_out_densities(
    model: PartitionModel, state: PartitionState, X: Array, ids: Ints, clusters: Clusters, prior: Prior
) -> Array:
    """Return log-densities of training rows given the other rows and their labels."""
    counts = clusters.counts[:-N_SCRATCH]
    n, labels, alpha, K = int(counts.sum()), state.labels[ids], float(state.alpha), model.n_components
    joint, left_out = np.empty((len(X), len(clusters.counts))), np.empty(len(X))
    student_matrix(X, clusters, prior, joint)
    left_out_student(X, labels, clusters, prior, left_out)
    offset = 0.0 if K is None else alpha / K
    joint[:, : len(counts)] += np.log(counts + offset)
    rest = counts[labels] - 1 + offset
    log_rest = np.log(rest, where=rest > 0, out=np.full(len(rest), -np.inf))
    joint[np.arange(len(X)), labels] = log_rest + left_out
    empty = alpha if K is None else alpha * (K - len(counts)) / K
    joint[:, len(counts)] = _new_cluster(X, prior) + (np.log(empty) if empty > 0 else -np.inf)
    return np.asarray(logsumexp(joint[:, : len(counts) + 1], axis=1) - np.log(n - 1 + alpha))


def _new_cluster(X: Array, prior: Prior) -> Array:
    out = np.empty((len(X), 1))
    constant = prior.table[0] - (prior.half[1] - prior.half[0]) * prior.logdet
    student_components(
        X, np.array([constant]), prior.half[1:2].copy(), np.array([prior.r / (prior.r + 1)]),
        prior.mean[None].copy(), prior.factor[None].copy(), out,
    )  # fmt: skip
    return out[:, 0]


def component_densities(predictive: Predictive, X: Array) -> Array:
    """Return the log-joint of rows and components (n_rows, n)."""
    out = np.empty((len(X), len(predictive.constants)))
    student_components(
        X,
        predictive.constants,
        predictive.powers,
        predictive.shares,
        predictive.means,
        predictive.factors,
        out,
    )
    return np.asarray(out + predictive.log_weights)


def log_density(predictive: Predictive, X: Array) -> Array:
    """Return the log-density of each row."""
    return np.asarray(logsumexp(component_densities(predictive, X), axis=1))


def cluster_probabilities(predictive: Predictive, X: Array, margin_rows: Array | None) -> Array:
    """Return the probability of each cluster of the estimate, given that the row is in one of them."""
    joint = component_densities(predictive, X)
    if margin_rows is not None:
        for s, (c, width) in enumerate(predictive.margins):
            part = slice(predictive.starts[s], predictive.starts[s + 1] - 1)
            scores = margin_rows @ predictive.projections[part].T
            joint[:, part] -= 2 * c * all_hinge_losses(scores, float(width))
    new = predictive.starts[1:] - 1  # a new cluster is none of the estimate
    joint[:, new] = -np.inf
    joint -= joint.max(axis=1, keepdims=True)
    proba = np.exp(joint) @ predictive.members
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def draw_rows(predictive: Predictive, chosen: Ints, covariance: str, rng: np.random.Generator) -> Array:
    """Draw a row from each of the chosen components."""
    p = predictive.means.shape[1]
    df = 2 * predictive.powers[chosen] - (1 if covariance == "diag" else p)
    noise, factors = rng.standard_normal((len(chosen), p)), predictive.factors[chosen]
    if factors.shape[1] > 1:
        D = np.einsum("njj->nj", factors)
        R = np.triu(factors, 1) + np.eye(p)
        noise = np.einsum("nja,nj->na", R, np.sqrt(D) * noise)
    else:
        noise = np.sqrt(factors[:, 0]) * noise
    shape = (len(chosen), p) if covariance == "diag" else (len(chosen), 1)
    spread = rng.chisquare(np.broadcast_to(df[:, None], shape))
    return np.asarray(predictive.means[chosen] + noise / np.sqrt(predictive.shares[chosen, None] * spread))
