"""Starts of mixtures: k-means++ with cosines, random labels, given labels or given means.

A start is a matrix of sums of rows, one for each component, from which a model makes its first parameters.

k-means++ draws each further seed with probability proportional to its distance from the nearest seed. On the sphere
||x - s||^2 = 2 (1 - x.s), so the squared distance of the original algorithm is the cosine distance. Of a few draws,
the one that leaves the smallest total distance is kept (greedy k-means++).

References
----------
D. Arthur and S. Vassilvitskii (2007). k-means++: the advantages of careful seeding. SODA.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.discover.mixture.rows import UnitRows, iter_chunks
from arbora.infer.mixture.statistics import WeightedRows

Init = str | NDArray[Any]


def check_init(init: Any, weight: NDArray[Any], n_features: int, n_components: int) -> Init:
    """Validate the parameter `init`.

    Parameters
    ----------
    init : str, labels or means
        A name; an integer label for each row (-1: no label); or a mean for each component.
    weight : ndarray of shape (n_samples,)
        Labels of rows of weight 0 are dropped, like these rows.
    n_features, n_components : int

    Returns
    -------
    str, labels or means
    """
    if isinstance(init, str):
        return init
    given, n_samples = np.asarray(init), len(weight)
    if given.shape == (n_components, n_features) and given.ndim == 2:
        means = given.astype(np.float64)
        if not np.isfinite(means).all() or not means.any(axis=1).all():
            raise ValueError(
                "init has a mean that is zero, infinite or NaN: give a direction for every component."
            )
        return means
    if given.shape != (n_samples,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"init must be 'k-means++', 'random', integer labels of shape ({n_samples},) or means of shape "
            f"({n_components}, {n_features}); got shape {given.shape} of {given.dtype}."
        )
    if given.min() < -1 or given.max() >= n_components:
        raise ValueError(
            f"init has labels from {given.min()} to {given.max()}, but with n_components={n_components} labels must "
            f"be between 0 and {n_components - 1}, or -1 for a row without a label."
        )
    empty = np.setdiff1d(np.arange(n_components), given)
    if len(empty):
        raise ValueError(
            f"no row of init has label {empty[0]}: label a row for every component, or decrease n_components."
        )
    return given[weight > 0]


def starting_sums(
    rows: WeightedRows,
    init: Init,
    n_components: int,
    rng: np.random.Generator,
    engine: Engine,
    spherical: bool = True,
) -> NDArray[np.float64]:
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
    sums: NDArray[np.float64] = rows.take(seeds).X.toarray().astype(np.float64)
    return sums


def label_sums(rows: WeightedRows, labels: NDArray[Any], n_components: int) -> NDArray[np.float64]:
    """Sum the rows of each label."""
    known = np.flatnonzero(labels >= 0)
    weight = rows.weight[known].astype(np.float64)
    member = sp.csr_array((weight, (labels[known], known)), shape=(n_components, rows.X.shape[0]))
    sums = np.zeros((n_components, rows.X.shape[1]))
    for part, X in iter_chunks(rows.X):
        sums += (member[:, part] @ X).toarray()
    return sums


def plus_plus(
    rows: WeightedRows, n_components: int, rng: np.random.Generator, engine: Engine | None = None
) -> NDArray[np.int64]:
    """Return the numbers of the rows that k-means++ chooses."""
    n_trials = 2 + int(np.log(n_components))
    seeds = np.empty(n_components, np.int64)
    weight = rows.weight.astype(np.float64)
    seeds[0] = _draw(weight, 1, rng)[0]
    nearest = _distances(rows.X, seeds[:1], engine)[:, 0]
    for k in range(1, n_components):
        tried = _draw(weight * nearest, n_trials, rng)
        distance = np.minimum(_distances(rows.X, tried, engine), nearest[:, None])
        best = int(np.argmin(weight @ distance))
        seeds[k], nearest = tried[best], distance[:, best]
    return seeds


def _draw(mass: NDArray[np.float64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw positions with probability proportional to their mass; uniformly if all masses are zero."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=n)
    return np.asarray(
        np.minimum(np.searchsorted(total, rng.random(n) * total[-1], side="right"), len(mass) - 1)
    )


def _distances(X: Any, seeds: NDArray[np.int64], engine: Engine | None) -> NDArray[np.float64]:
    """Return cosine distances of all rows from some of them; the distance of a seed from itself is exactly zero."""
    columns = np.ascontiguousarray(X[seeds].toarray().T)
    cosine = np.concatenate([csr_matmul(chunk, columns, engine) for _, chunk in iter_chunks(X)])
    distance: NDArray[np.float64] = np.maximum(1.0 - cosine.astype(np.float64), 0.0)
    distance[distance < 4 * np.finfo(X.dtype).eps] = 0.0
    return distance


def unit_directions(X: Any) -> Any:
    """Return rows divided by their lengths, in their own precision; rows in a file have unit length already."""
    if isinstance(X, UnitRows):
        return X
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel())
    scale = np.repeat(1.0 / np.where(length > 0, length, 1.0), np.diff(X.indptr))
    return sp.csr_array(((X.data * scale).astype(X.dtype), X.indices, X.indptr), shape=X.shape)
