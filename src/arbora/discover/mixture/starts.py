r"""Starts of mixtures, and the repair of fits with empty or equal components.

A fit assigns every row to its most probable component. A component is **empty** if no row is assigned to it. Two
components are **clones** if their rows have the same mean direction: with m the direction of the sum of the rows of a
component, and r their mean cosine with it,

    1 - m_j.m_k < 0.05 min(1 - r_j, 1 - r_k),

so that the distance of two means is compared with the spread of the rows around them, in any number of dimensions.
They are clones, too, if this holds for the means of the model and the spread around those, with 0.1 instead of 0.05:
components with few rows may have nearly the mean of their prior.

Empty components are dropped and clones are merged; what is left starts a fit with fewer components. If a number of
components was asked for, a second fit starts with that number: the components with the widest spread are split until
it is reached. It is chosen if its bound is higher and it has neither empty nor cloned components: the data support
that many.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.estimator import warn_caller
from arbora.core.products import csr_matmul
from arbora.discover.mixture.rows import UnitRows, iter_chunks
from arbora.infer.mixture.loop import MixtureFit
from arbora.infer.mixture.statistics import WeightedRows

# Parameters of all estimators that iterate from a start.
RUN_CONSTRAINTS: dict[str, Any] = {
    "init": [StrOptions({"k-means++", "random"}), "array-like"],
    "n_init": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left"), None],
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}

# --- Starts of mixtures: k-means++ with cosines, random labels, given labels or given means -----------------
#
# A start is a matrix of sums of rows, one for each component, from which a model makes its first parameters.
#
# k-means++ draws each further seed with probability proportional to its distance from the nearest seed. On the sphere
# ||x - s||^2 = 2 (1 - x.s), so the squared distance of the original algorithm is the cosine distance. Of a few draws,
# the one that leaves the smallest total distance is kept (greedy k-means++).
#
# References
# ----------
# D. Arthur and S. Vassilvitskii (2007). k-means++: the advantages of careful seeding. SODA.


Init = str | Matrix


def check_init(init: Any, weight: Matrix, n_features: int, n_components: int) -> Init:
    """Validate `init`: a name, an integer label for each row (-1: no label), or a mean for each component.

    Labels of rows of weight 0 are dropped, like these rows.
    """
    if isinstance(init, str):
        return init
    labels, n_samples = np.asarray(init), len(weight)
    if labels.shape == (n_components, n_features):
        means = labels.astype(np.float64)
        if not np.isfinite(means).all() or not means.any(axis=1).all():
            raise ValueError(
                "init has a mean that is zero, infinite or NaN: give a direction for every component."
            )
        return means
    if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"init must be the name of a start, such as 'k-means++', integer labels of shape ({n_samples},) or means "
            f"of shape ({n_components}, {n_features}); got shape {labels.shape} of {labels.dtype}."
        )
    if labels.min() < -1 or labels.max() >= n_components:
        raise ValueError(
            f"init has labels from {labels.min()} to {labels.max()}, but with n_components={n_components} labels "
            f"must be between 0 and {n_components - 1}, or -1 for a row without a label."
        )
    empty = np.setdiff1d(np.arange(n_components), labels)
    if len(empty):
        raise ValueError(
            f"no row of init has label {empty[0]}: label a row for every component, or decrease n_components."
        )
    return labels[weight > 0]


def starting_sums(
    rows: WeightedRows,
    init: Init,
    n_components: int,
    rng: np.random.Generator,
    engine: Engine,
    spherical: bool = True,
) -> Array:
    """Return sums of rows, (n_components, n_features), from which the first parameters are made.

    Without `spherical`, rows are compared by their cosines but summed with their lengths.
    """
    if not isinstance(init, str):
        return init if init.ndim == 2 else label_sums(rows, init, n_components)
    if init == "random":
        labels = rng.permutation(np.arange(rows.X.shape[0]) % n_components)  # every component has rows
        return label_sums(rows, labels, n_components)
    directions = rows.X if spherical else unit_directions(rows.X)
    seeds = plus_plus(WeightedRows(directions, rows.weight), n_components, rng, engine)
    sums: Array = rows.take(seeds).X.toarray().astype(np.float64)
    return sums


def label_sums(rows: WeightedRows, labels: Matrix, n_components: int) -> Array:
    """Sum the rows of each label."""
    ids = np.flatnonzero(labels >= 0)
    weight = rows.weight[ids].astype(np.float64)
    member = sp.csr_array((weight, (labels[ids], ids)), shape=(n_components, rows.X.shape[0]))
    sums = np.zeros((n_components, rows.X.shape[1]))
    for part, X in iter_chunks(rows.X):
        sums += (member[:, part] @ X).toarray()
    return sums


def plus_plus(
    rows: WeightedRows, n_components: int, rng: np.random.Generator, engine: Engine | None = None
) -> Ints:
    """Return the numbers of the rows that k-means++ chooses."""
    n_trials = 2 + int(np.log(n_components))
    seeds = np.empty(n_components, np.int64)
    weight = rows.weight.astype(np.float64)
    seeds[0] = _draw(weight, 1, rng)[0]
    nearest = _distances(rows.X, seeds[:1], engine)[:, 0]
    for k in range(1, n_components):
        trials = _draw(weight * nearest, n_trials, rng)
        distance = np.minimum(_distances(rows.X, trials, engine), nearest[:, None])
        best = int(np.argmin(weight @ distance))
        seeds[k], nearest = trials[best], distance[:, best]
    return seeds


def _draw(mass: Array, n: int, rng: np.random.Generator) -> Ints:
    """Draw positions with probability proportional to their mass; uniformly if all masses are zero."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=n)
    return np.asarray(
        np.minimum(np.searchsorted(total, rng.random(n) * total[-1], side="right"), len(mass) - 1)
    )


def _distances(X: Any, seeds: Ints, engine: Engine | None) -> Array:
    """Return cosine distances of all rows from some of them; the distance of a seed from itself is exactly zero."""
    columns = np.ascontiguousarray(X[seeds].toarray().T)
    cosine = np.concatenate([csr_matmul(chunk, columns, engine) for _, chunk in iter_chunks(X)])
    distance: Array = np.maximum(1.0 - cosine.astype(np.float64), 0.0)
    distance[distance < 4 * np.finfo(X.dtype).eps] = 0.0
    return distance


def unit_directions(X: Any) -> Any:
    """Return rows divided by their lengths, in their own precision; rows in a file have unit length already."""
    if isinstance(X, UnitRows):
        return X
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel())
    scale = np.repeat(1.0 / np.where(length > 0, length, 1.0), np.diff(X.indptr))
    return sp.csr_array(((X.data * scale).astype(X.dtype), X.indices, X.indptr), shape=X.shape)


def warn_unless_converged(name: str, fit: MixtureFit, tol: float, max_iter: int) -> None:
    """Warn about a run of an estimator that was stopped by `max_iter`, or by a bound that fell."""
    if fit.converged:
        return
    gain = fit.trace.last.get("gain", np.nan)
    if gain < 0:
        message = (
            f"{name} stopped after {len(fit.trace)} iterations: the bound fell by {-gain:.2g} per row. The "
            "parameters before the fall are used. Equal or nearly equal rows make concentrations too high for single "
            "precision: use a tol below 1e-6, which computes in double precision, drop repeated rows, or fix the "
            "prior."
        )
    else:
        message = (
            f"{name} stopped at max_iter={max_iter} before the gain per row fell below tol={tol:g}; the last gain "
            f"was {gain:.2g}. Increase max_iter or tol."
        )
    warn_caller(message, ConvergenceWarning)


# --- Labels without empty and without equal clusters, and with as many clusters as were asked for -----------


_SAME_MEAN = 0.05  # distance of the means of clones, relative to the spread of their rows
_SAME_FITTED_MEAN = 0.1  # the same for the means of a model with a prior
_SPLIT_ITERATIONS = 5
MAX_PRUNINGS = 3  # fits in which components may become empty again


class Clusters(NamedTuple):
    """Rows by label: number of rows, unit means (n_clusters, n_features), and spread 1 - r around them."""

    counts: Array
    means: Array
    spread: Array


def cluster_statistics(rows: WeightedRows, labels: Ints, n_clusters: int) -> Clusters:
    """Return counts, mean directions and spreads (1 - mean cosine) of clusters of unit rows."""
    sums = label_sums(rows, labels, n_clusters)
    counts = np.bincount(labels, weights=rows.weight, minlength=n_clusters).astype(np.float64)
    length = np.linalg.norm(sums, axis=1)
    means = sums / np.where(length > 0, length, 1.0)[:, None]
    spread = 1 - np.divide(length, counts, out=np.zeros_like(length), where=counts > 0)
    return Clusters(counts, means, np.maximum(spread, 0.0))


def without_clones(rows: WeightedRows, labels: Ints, n_clusters: int, fitted: Matrix | None = None) -> Ints:
    """Return labels 0, 1, ... without gaps, in which clusters with the same mean are one.

    `fitted` are the means of the model (n_features, n_clusters), if they differ from those of the rows.
    """
    numbers, labels = np.unique(labels, return_inverse=True)
    clusters = cluster_statistics(rows, labels, len(numbers))
    close = _same_mean(clusters.means, _SAME_MEAN * clusters.spread)
    if fitted is not None:
        means = fitted[:, numbers].T.astype(np.float64)
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), TINY)
        cosine = (1 - clusters.spread) * np.einsum("ij,ij->i", clusters.means, means)  # mean over the rows
        close |= _same_mean(means, _SAME_FITTED_MEAN * (1 - cosine))
    _, group = connected_components(close, directed=False)
    first = np.unique(group, return_index=True)[1]  # groups in the order of their first cluster
    merged: Ints = np.argsort(np.argsort(first))[group][labels]
    return merged


def _same_mean(means: Array, distance: Array) -> NDArray[np.bool_]:
    close: NDArray[np.bool_] = 1 - means @ means.T < np.minimum.outer(distance, distance)
    return close


def fill_up(rows: WeightedRows, labels: Ints, n_clusters: int, rng: np.random.Generator) -> Ints | None:
    """Split the clusters with the widest spread until there are `n_clusters`; None if they cannot be split."""
    labels, n_labels = labels.copy(), int(labels.max()) + 1
    whole: set[int] = set()  # clusters that cannot be split
    while n_labels < n_clusters:
        clusters = cluster_statistics(rows, labels, n_labels)
        scatter = clusters.counts * clusters.spread
        scatter[list(whole)] = -1.0
        worst = int(np.argmax(scatter))
        if scatter[worst] <= 0:
            return None
        ids = np.flatnonzero(labels == worst)
        second = _second_half(rows.take(ids), rng)
        if second is None:
            whole.add(worst)
            continue
        labels[ids[second]] = n_labels
        n_labels += 1
    return labels


def _second_half(rows: WeightedRows, rng: np.random.Generator) -> NDArray[np.bool_] | None:
    """Split unit rows in two by a few steps of spherical 2-means; None if the halves are clones."""
    if rows.X.shape[0] < 2:
        return None
    centres = rows.X[plus_plus(rows, 2, rng)].toarray().astype(np.float64)
    for _ in range(_SPLIT_ITERATIONS):
        labels = np.asarray(rows.X @ centres.T).argmax(axis=1)
        if labels.min() == labels.max():
            return None
        centres = cluster_statistics(rows, labels, 2).means
    halves = without_clones(rows, labels, 2)
    return halves == 1 if halves.max() == 1 else None
