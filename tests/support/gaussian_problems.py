"""Slow, plain references for the sampled mixtures of Gaussians: densities, all partitions, losses."""

from itertools import product

import numpy as np
from scipy.special import gammaln, multigammaln

from arbora.discover.gaussian.normal_wishart import HyperPrior, scale_shape
from arbora.discover.gaussian.sampler import PartitionModel, PartitionState

FORMS = "full", "diag", "spherical"


def log_marginal(X, mean, r, nu, scale, form):
    """Log-density of the rows of a cluster, components integrated out, from the textbook formulas."""
    n, p = X.shape
    if form == "full":
        centre = X.mean(axis=0)
        scatter = (X - centre).T @ (X - centre)
        posterior = scale + scatter + r * n / (r + n) * np.outer(centre - mean, centre - mean)
        value = multigammaln((nu + n) / 2, p) - multigammaln(nu / 2, p) - n * p / 2 * np.log(np.pi)
        value += nu / 2 * np.linalg.slogdet(scale)[1] - (nu + n) / 2 * np.linalg.slogdet(posterior)[1]
        return value + p / 2 * np.log(r / (r + n))
    if form == "diag":
        columns = range(p)
        return sum(
            log_marginal(X[:, [j]], mean[[j]], r, nu, scale[:, [j]].reshape(1, 1), "full") for j in columns
        )
    centre = X.mean(axis=0)
    total = scale[0, 0] + np.sum((X - centre) ** 2) + r * n / (r + n) * np.sum((centre - mean) ** 2)
    value = gammaln((nu + n * p) / 2) - gammaln(nu / 2) - n * p / 2 * np.log(np.pi)
    value += nu / 2 * np.log(scale[0, 0]) - (nu + n * p) / 2 * np.log(total)
    return value + p / 2 * np.log(r / (r + n))


def log_student(x, X, mean, r, nu, scale, form):
    """Log-density of a row given the rows X of its cluster, as a ratio of marginal densities."""
    joint = log_marginal(np.vstack([X, x[None]]), mean, r, nu, scale, form)
    return joint - (log_marginal(X, mean, r, nu, scale, form) if len(X) else 0.0)


def random_scale(form, p, rng):
    if form == "full":
        A = rng.standard_normal((p, p))
        return A @ A.T + np.eye(p)
    return rng.uniform(0.5, 2.0, scale_shape(form, p))


def partitions(n, max_clusters=None):
    """All partitions of n rows, labels in the order of their first rows."""
    all_labels = [(0,)]
    for _ in range(n - 1):
        all_labels = [(*labels, k) for labels in all_labels for k in range(max(labels) + 2)]
    return [labels for labels in all_labels if max_clusters is None or max(labels) < max_clusters]


def loss(scores, labels, width):
    """Sum of the hinge losses, row by row."""
    total, K = 0.0, scores.shape[1]
    for row, label in zip(scores, labels, strict=True):
        others = [row[k] for k in range(K) if k != label]
        total += max(0.0, width + max(others) - row[label]) if others else 0.0
    return total


def grid_losses(X, eta, labels, width):
    """Sum of the hinge losses of one feature for many projections (n_points, n_clusters), as `loss` for each."""
    total, K = np.zeros(len(eta)), eta.shape[1]
    for x, label in zip(X[:, 0], labels, strict=True):
        others = np.delete(eta, label, axis=1) * x
        if K > 1:
            total += np.maximum(0.0, width + others.max(axis=1) - eta[:, label] * x)
    return total


def tiny_model(form="full", n_components=None, c=0.0, n_moves=3, fixed=("alpha", "r", "nu", "S"), p=2):
    """A model of p features, and a state of one cluster to start from."""
    shape = scale_shape(form, p)
    scale0 = 0.8 * np.eye(p) + 0.5 if form == "full" else np.full(shape, 1.3)
    hyper_prior = HyperPrior(np.zeros(p), scale0, form, frozenset(fixed))
    model = PartitionModel(
        hyper_prior, n_components, "alpha" in fixed, n_moves, variance=0.5 if c else None, n_pool=2
    )
    projections = np.zeros((n_components or 1, p)) if c else np.zeros((0, 0))
    nu = hyper_prior.d + 2.0
    return model, PartitionState(np.zeros(5, np.int64), 0.8, 0.3, nu, scale0, projections, c, 0.6, 0)


def exact_posterior(model, state, X, n_grid=21, reach=3.0):
    """Probabilities of all partitions: projections of one feature integrated over a grid."""
    result, log_density = partitions(len(X), model.n_components), []
    for one in result:
        labels = np.array(one)
        plain = model._replace(variance=None)
        value = plain.log_joint(state._replace(labels=labels), X)
        if model.variance is not None:
            K = model.n_components or labels.max() + 1
            axis = np.linspace(-reach, reach, n_grid)
            weight = np.exp(-(axis**2) / 2)
            weight /= weight.sum()
            total = 0.0
            rest = np.array(list(product(range(n_grid), repeat=K - 1)), np.int64).reshape(
                n_grid ** (K - 1), K - 1
            )
            for first in range(n_grid):
                place = np.column_stack([np.full(len(rest), first), rest])
                losses = grid_losses(X, np.sqrt(model.variance) * axis[place], labels, state.width)
                total += np.sum(np.exp(-2 * state.c * losses) * weight[place].prod(axis=1))
            value += np.log(total)
        log_density.append(value)
    density = np.exp(np.array(log_density) - max(log_density))
    return result, density / density.sum()
