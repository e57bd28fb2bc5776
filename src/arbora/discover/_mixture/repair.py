"""No empty and no cloned components: what a fit found is pruned, filled up, and fitted again.

A fit assigns every row to its most probable component. A component is **empty** if no row is assigned to it. Two
components are **clones** if their rows have the same mean direction: with m the direction of the sum of the rows of a
component, and r their mean cosine with it,

    1 - m_j.m_k < 0.05 min(1 - r_j, 1 - r_k),

so that the distance of two means is compared with the spread of the rows around them, in any number of dimensions.
They are clones, too, if this holds for the means of the model and the spread around those, with 0.1 instead of 0.05:
components with few rows may have nearly the mean of their prior.

Empty components are dropped and clones are merged; what is left starts a fit with fewer components. If a number of
components was asked for, a second fit starts with that number: the components with the widest spread are split until
it is reached. It is kept if its bound is higher and it has neither empty nor cloned components: the data support that
many.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from arbora.core.engine import Engine
from arbora.discover._mixture.fitting import solve
from arbora.discover._mixture.initialization import label_sums, plus_plus, unit_directions
from arbora.discover._mixture.prediction import map_chunks
from arbora.infer.mixture.loop import MixtureFit
from arbora.infer.mixture.statistics import WeightedRows

if TYPE_CHECKING:
    from arbora.discover._mixture.base import Mixture

Labels = NDArray[np.int64]

_SAME_MEAN = 0.05  # distance of the means of clones, relative to the spread of their rows
_SAME_FITTED_MEAN = 0.1  # the same for the means of a model with a prior
_SPLIT_ITERATIONS = 5
_MOST_PRUNINGS = 3  # fits in which components may become empty again


class Clusters(NamedTuple):
    """Rows by label: number of rows, unit means (n_clusters, n_features), and spread 1 - r around them."""

    counts: NDArray[np.float64]
    means: NDArray[np.float64]
    spread: NDArray[np.float64]


def describe(rows: WeightedRows, labels: Labels, n_clusters: int) -> Clusters:
    """Return counts, means and spreads of clusters of unit rows.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rows = WeightedRows(sp.csr_array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), np.ones(3))
    >>> describe(rows, np.array([0, 0, 1]), 2).spread.round(3)
    array([0.106, 0.   ])
    """
    sums = label_sums(rows, labels, n_clusters)
    counts = np.bincount(labels, weights=rows.weight, minlength=n_clusters).astype(np.float64)
    length = np.linalg.norm(sums, axis=1)
    means = sums / np.where(length > 0, length, 1.0)[:, None]
    spread = 1 - np.divide(length, counts, out=np.zeros_like(length), where=counts > 0)
    return Clusters(counts, means, np.maximum(spread, 0.0))


def without_clones(
    rows: WeightedRows, labels: Labels, n_clusters: int, fitted: NDArray[Any] | None = None
) -> Labels:
    """Return labels 0, 1, ... without gaps, in which clusters with the same mean are one.

    `fitted` are the means of the model (n_features, n_clusters), if they differ from those of the rows.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rows = WeightedRows(sp.csr_array([[0.6, 0.8], [0.8, 0.6], [0.8, 0.6], [0.6, 0.8]]), np.ones(4))
    >>> without_clones(rows, np.array([1, 1, 3, 3]), 4)
    array([0, 0, 0, 0])
    """
    found, labels = np.unique(labels, return_inverse=True)
    clusters = describe(rows, labels, len(found))
    close = _same_mean(clusters.means, _SAME_MEAN * clusters.spread)
    if fitted is not None:
        means = fitted[:, found].T.astype(np.float64)
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        cosine = (1 - clusters.spread) * np.einsum("ij,ij->i", clusters.means, means)  # mean over the rows
        close |= _same_mean(means, _SAME_FITTED_MEAN * (1 - cosine))
    _, group = connected_components(close, directed=False)
    first = np.unique(group, return_index=True)[1]  # groups in the order of their first cluster
    merged: Labels = np.argsort(np.argsort(first))[group][labels]
    return merged


def _same_mean(means: NDArray[np.float64], distance: NDArray[np.float64]) -> NDArray[np.bool_]:
    close: NDArray[np.bool_] = 1 - means @ means.T < np.minimum.outer(distance, distance)
    return close


def fill_up(rows: WeightedRows, labels: Labels, n_clusters: int, rng: np.random.Generator) -> Labels | None:
    """Split the clusters with the widest spread until there are `n_clusters`; None if they cannot be split."""
    labels, n_found = labels.copy(), int(labels.max()) + 1
    whole: set[int] = set()  # clusters that cannot be split
    while n_found < n_clusters:
        clusters = describe(rows, labels, n_found)
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
        labels[ids[second]] = n_found
        n_found += 1
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
        centres = describe(rows, labels, 2).means
    halves = without_clones(rows, labels, 2)
    return halves == 1 if halves.max() == 1 else None


def assigned(mixture: Mixture, params: Any, rows: WeightedRows, engine: Engine) -> Labels:
    """Return the most probable component of each row of a fit."""
    return map_chunks(lambda part: mixture._log_joint(params, part).argmax(axis=1), rows.X, engine)


def without_annealing(mixture: Mixture) -> Mixture:
    """Return a copy of a mixture whose fits start from labels as they are."""
    again = copy(mixture)
    if getattr(again, "assignments", None) == "annealed":
        again.assignments = "soft"
    elif hasattr(again, "annealing_steps"):
        again.annealing_steps = 0
    return again


def repaired(
    mixture: Mixture,
    rows: WeightedRows,
    fit: MixtureFit,
    n_components: int,
    seed: int,
    engine: Engine,
) -> tuple[MixtureFit, int]:
    """Return a fit without empty and without cloned components, and their number.

    Parameters
    ----------
    mixture : Mixture
    rows : WeightedRows
    fit : MixtureFit
    n_components : int
        Number of components of the fit.
    seed : int
    engine : Engine

    Returns
    -------
    fit : MixtureFit
        The fit itself, if there is nothing to repair.
    n_components : int
    """
    plain = WeightedRows(unit_directions(mixture._plain_rows(rows.X)), rows.weight)
    again = without_annealing(mixture)

    def clusters(found: MixtureFit, n: int) -> Labels:
        labels = assigned(mixture, found.params, rows, engine)
        return without_clones(plain, labels, n, mixture._fitted_means(found.params))

    labels = clusters(fit, n_components)
    if labels.max() + 1 == n_components:
        return fit, n_components
    asked, pruned, n_found = n_components, fit, int(labels.max()) + 1
    for _ in range(_MOST_PRUNINGS):
        n_found = int(labels.max()) + 1
        pruned = solve(again, rows, labels, n_found, seed, engine)
        labels = clusters(pruned, n_found)
        if labels.max() + 1 == n_found:
            break
    if mixture._fills_up and mixture.n_components != "auto":  # a number that was selected is a maximum
        start = fill_up(plain, labels, asked, np.random.default_rng([seed, 1]))
        if start is not None:
            filled = solve(again, rows, start, asked, seed, engine)
            if filled.bounds[-1] > pruned.bounds[-1] and clusters(filled, asked).max() + 1 == asked:
                return filled, asked
    return pruned, n_found
