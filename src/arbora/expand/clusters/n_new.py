"""How many new groups: several rules, calibrated together on sets of known groups.

Rules that see only unlabelled rows disagree about the size of a group. Here the known groups calibrate them. Sets of
h known groups are drawn, with h from 1 or 2 up to all of them, and every rule is applied to their rows as if they had
no labels. That gives a regression of what the rules say on what is true,

    log rule_j(h groups) = a_j + b_j log h + noise,      cov(noise) = S,

with a weak prior b_j ~ 1. The same rules applied to the pool give log n_new by generalised least squares with the
weights S^-1, and its standard error. The prior of log n_new is the logarithm of the number of known groups, give or
take a factor of e.

The rules (`RULES`) read curves of k-means and of spectral clustering over the number of clusters K:

- "bic": K that maximises the BIC of spherical Gaussians;
- "variance": K at which the variance falls to the share that the known groups leave unexplained;
- "seven tenths": K at which it falls to seven tenths;
- "modularity": K that maximises the modularity of the spectral clustering in the graph of nearest neighbours;
- "near modularity": the smallest K within 3% of that maximum;
- "eigenvalues .95", "eigenvalues .9": eigenvalues of the graph above these values.

On vowel, segment, libras, binaryalphadigs, glass, umist, usps and isolet, on which the rules were chosen, the mean
absolute error of log n_new was .19 over 32 splits of the classes, with 22 within 25% of the truth. A trial of 31
splits gave .33 for the best single rule, and .30 for "as many as are known". The common rate of the rows came later:
segment, usps and isolet then had .21 over 12 splits, 7 within 25%. No rule is reliable: the answer comes with a range
and the curve, never a number alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbora.arrays import TINY, Ints, Matrix
from arbora.expand.clusters.clusterers import fit_kmeans, leading_eigenvectors
from arbora.expand.clusters.neighbours import N_NEIGHBORS, Neighbours, neighbour_graph
from arbora.expand.clusters.pool import Pool, cluster_means

RULES = (
    "bic",
    "variance",
    "seven tenths",
    "modularity",
    "near modularity",
    "eigenvalues .95",
    "eigenvalues .9",
)
_STARTS = 3
_MAX_ROWS = 1000  # of the pool that rules are applied to; twice as many of the known groups
_MAX_RATIO = 3  # of the largest number tried over the number of known groups
_MIN_TRIED = 16
_N_SETS = 20
_SIZES = 6  # different sizes of the sets
_NEAR = 0.97
_SLOPE_WEIGHT = 2.0  # observations that the prior slope of 1 is worth
_MIN_NOISE = 0.05
_MIN_SETS, _UNKNOWN_NOISE = 3, 0.7
_SHRINKAGE = 0.5  # of the correlations of the noise
_PRIOR_DEVIATION = 1.0  # of log n_new around the logarithm of the number of known groups
_MODEL_DEVIATION = 0.2  # of log n_new: new groups are not quite like known ones
_RANGE = 1.3  # deviations on each side of the estimate


class NumberOfGroups(NamedTuple):
    """Estimate with its range, the calibrated answers of the rules and the curve of the pool."""

    value: int
    low: int
    high: int
    rules: dict[str, float]
    curve: dict[str, list[float]]  # "n_new", "variance", "bic", "modularity"


class Curve(NamedTuple):
    """Measures of k-means and of spectral clustering of some rows, by number of clusters."""

    K: Ints
    variance: Matrix  # mean squared distance of a feature to the centres
    bic: Matrix
    modularity: Matrix
    eigenvalues: Matrix  # of the normalised graph of neighbours, falling
    total: float  # variance of a feature over all rows


class Calibration(NamedTuple):
    """Regression of the logarithms of the rules on the logarithm of the number of groups."""

    intercept: Matrix
    slope: Matrix
    noise: Matrix  # covariance


def tried_numbers(n_max: int) -> Ints:
    """Numbers of clusters to try, from 1 to `n_max`, dense at first.

    Examples
    --------
    >>> tried_numbers(30)
    array([ 1,  2,  3,  4,  5,  6,  7,  8,  9, 11, 15, 19, 24, 30])
    """
    if n_max <= 9:
        return np.arange(1, max(n_max, 1) + 1)
    n_steps = max(2, int(np.ceil(np.log(n_max / 9) / np.log(1.28))))
    sparse = np.round(np.geomspace(9, n_max, n_steps + 1)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(1, 10), sparse]))


def trace_curve(Z: Matrix, n_max: int, rate: float, rng: np.random.Generator) -> Curve:
    """Cluster a share of the rows with every number of clusters."""
    Z = Z[np.sort(rng.permutation(len(Z))[: max(int(np.ceil(rate * len(Z))), 1)])]
    n, width = Z.shape
    K = tried_numbers(min(n_max, max(n // 3, 1)))
    pool = Pool(Z, np.full(n, -1, np.int64), 0, np.ones(n))
    graph = neighbour_graph(Neighbours(Z, 0), N_NEIGHBORS)
    values, vectors = leading_eigenvectors(graph, int(K[-1]), 0)
    links, total = np.asarray(graph.sum(axis=1)).ravel(), float(graph.sum())
    variance, bic, modularity = np.empty(len(K)), np.empty(len(K)), np.zeros(len(K))
    for number, k in enumerate(K.tolist()):
        clustering = fit_kmeans(pool, k, rng, _STARTS if k > 1 else 1)
        variance[number] = max(clustering.variance, TINY)
        share = np.maximum(clustering.size, TINY) / n
        fit = -n * width / 2 * (np.log(2 * np.pi * variance[number]) + 1) + n * float(share @ np.log(share))
        bic[number] = fit - k * (width + 1) / 2 * np.log(n)
        if k > 1 and total > 0:
            E = vectors[:, :k]
            E = E / np.maximum(np.linalg.norm(E, axis=1, keepdims=True), TINY)
            labels = fit_kmeans(pool._replace(Z=E), k, rng, _STARTS).labels
            inside = float(graph.data @ (np.repeat(labels, np.diff(graph.indptr)) == labels[graph.indices]))
            degree = np.bincount(labels, weights=links, minlength=k)
            modularity[number] = inside / total - float(np.sum((degree / total) ** 2))
    return Curve(K, variance, bic, modularity, values, max(float(Z.var(axis=0).mean()), TINY))


def crossing(K: Ints, values: Matrix, target: float) -> float:
    """First number at which falling values reach the target, between two tried ones on a logarithmic scale.

    Examples
    --------
    >>> import numpy as np
    >>> crossing(np.array([1, 2, 4]), np.array([8.0, 4.0, 2.0]), 4.0)
    2.0
    """
    below = np.flatnonzero(values <= target)
    if not len(below):
        return float(K[-1])
    first = int(below[0])
    if first == 0:
        return float(K[0])
    fraction = (values[first - 1] - target) / max(values[first - 1] - values[first], TINY)
    return float(np.exp(np.log(K[first - 1]) + fraction * (np.log(K[first]) - np.log(K[first - 1]))))


def apply_rules(curve: Curve, unexplained: float) -> Matrix:
    """Logarithms of what the rules say; `unexplained` is the share of the variance inside of the known groups."""
    K, share = curve.K, curve.variance / curve.total
    near = np.flatnonzero(curve.modularity >= _NEAR * curve.modularity.max())[0]
    answers = (
        K[curve.bic.argmax()],
        crossing(K, share, unexplained),
        crossing(K, share, 0.7),
        K[curve.modularity.argmax()],
        K[near],
        np.sum(curve.eigenvalues > 0.95),
        np.sum(curve.eigenvalues > 0.9),
    )
    return np.log(np.maximum(np.asarray(answers, np.float64), 1.0))


def set_sizes(n_known: int, n_sets: int = _N_SETS) -> list[int]:
    """Numbers of known groups in the sets that calibrate, from 2 (1 for fewer than three groups) to all.

    Examples
    --------
    >>> set_sizes(10, 6)
    [2, 3, 4, 5, 7, 10]
    """
    least = 2 if n_known > 2 else 1
    sizes = np.unique(np.round(np.geomspace(least, n_known, _SIZES)).astype(np.int64))
    return np.resize(sizes, n_sets).tolist() if n_known > 1 else [1]


def regress_on_sizes(log_size: Matrix, answers: Matrix) -> Calibration:
    """Regress answers (n_sets, n_rules) on the logarithms of the sizes, with slopes near 1."""
    A = np.column_stack([np.ones(len(log_size)), log_size])
    prior = np.diag([0.0, _SLOPE_WEIGHT])
    slopes = np.vstack([np.zeros(answers.shape[1]), np.ones(answers.shape[1])])
    intercept, slope = np.linalg.solve(A.T @ A + prior, A.T @ answers + prior @ slopes)
    residuals = answers - A @ np.vstack([intercept, slope])
    noise = residuals.T @ residuals / len(residuals)
    if len(residuals) < _MIN_SETS:  # they say nothing about the noise
        noise = noise + _UNKNOWN_NOISE**2 * np.eye(len(noise))
    noise = (1 - _SHRINKAGE) * noise + _SHRINKAGE * np.diag(np.diag(noise))
    return Calibration(intercept, slope, noise + _MIN_NOISE**2 * np.eye(len(noise)))


def combine(calibration: Calibration, answers: Matrix, centre: float) -> tuple[float, float]:
    """Mean and deviation of log n_new by generalised least squares, with a prior around `centre`."""
    weights = np.linalg.solve(calibration.noise, calibration.slope)
    precision = float(weights @ calibration.slope) + 1 / _PRIOR_DEVIATION**2
    linear = float(weights @ (answers - calibration.intercept)) + centre / _PRIOR_DEVIATION**2
    return linear / precision, float(np.sqrt(1 / precision + _MODEL_DEVIATION**2))


def estimate_n_new(
    known: Matrix, codes: Ints, n_known: int, pool: Matrix, rng: np.random.Generator
) -> NumberOfGroups:
    """Estimate the number of new groups in a pool of rows without known ones.

    `known` and `pool` are rows (n_rows, n_dims) of the learned space; `codes` are the groups of the known rows.
    """
    n_max = max(_MIN_TRIED, _MAX_RATIO * n_known)
    means = cluster_means(known, codes, np.ones(len(codes)), n_known)[1]
    within = float(np.mean((known - means[codes]) ** 2))
    unexplained = min(max(within / max(float(known.var(axis=0).mean()), TINY), 1e-6), 1.0)
    # One rate for all: a group has as many rows in the pool as in any set of known groups.
    rate = min(1.0, _MAX_ROWS / len(pool), 2 * _MAX_ROWS / len(known))
    pool_curve = trace_curve(pool, n_max, rate, rng)
    sizes, answers = set_sizes(n_known), []
    for size in sizes:
        rows = np.isin(codes, rng.permutation(n_known)[:size])
        answers.append(apply_rules(trace_curve(known[rows], n_max, rate, rng), unexplained))
    calibration = regress_on_sizes(np.log(sizes), np.array(answers))
    pool_answers = apply_rules(pool_curve, unexplained)
    log_value, deviation = combine(calibration, pool_answers, float(np.log(n_known)))
    low, value, high = np.exp(log_value + deviation * np.array([-_RANGE, 0.0, _RANGE]))
    value = min(max(1, round(value)), len(pool))
    usable = np.maximum(calibration.slope, 0.1)
    single = np.exp(np.clip((pool_answers - calibration.intercept) / usable, 0.0, np.log(len(pool))))
    return NumberOfGroups(
        value,
        min(max(1, int(np.floor(low))), value),
        max(min(int(np.ceil(high)), len(pool)), value),
        dict(zip(RULES, single.tolist(), strict=True)),
        {
            "n_new": pool_curve.K.tolist(),
            "variance": pool_curve.variance.tolist(),
            "bic": pool_curve.bic.tolist(),
            "modularity": pool_curve.modularity.tolist(),
        },
    )
