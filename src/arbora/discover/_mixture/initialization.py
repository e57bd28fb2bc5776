"""Where a mixture begins: seeds by k-means++ with cosines, random labels, labels or means that are given.

A start is a matrix of sums of rows, one for each component; what a model makes of them is its own affair.

k-means++ draws each further seed with probability proportional to its distance from the nearest seed. On the sphere
||x - s||^2 = 2 (1 - x.s), so that the squared distance of the original is the cosine distance. Of a few draws the one
is kept that leaves the least distance (greedy k-means++).

References
----------
D. Arthur and S. Vassilvitskii (2007). k-means++: the advantages of careful seeding. SODA.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core.products import csr_matmul
from arbora.discover._mixture.memory_mapped import pieces
from arbora.infer.mixture.statistics import WeightedRows

Init = str | NDArray[Any]


def check_init(init: Any, n_samples: int, n_features: int, n_components: int) -> Init:
    """Check where to begin: a name, labels of all rows (-1: none), or a row for each component."""
    if isinstance(init, str):
        return init
    given = np.asarray(init)
    if given.shape == (n_components, n_features) and given.ndim == 2:
        means = given.astype(np.float64)
        if not np.isfinite(means).all() or not means.any(axis=1).all():
            raise ValueError(
                "init holds a mean that is zero, infinite or NaN: give a direction for every component."
            )
        return means
    if given.shape != (n_samples,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"init must be 'k-means++', 'random', integer labels of shape ({n_samples},) or means of shape "
            f"({n_components}, {n_features}); got shape {given.shape} of {given.dtype}."
        )
    if given.min() < -1 or given.max() >= n_components:
        raise ValueError(
            f"init holds labels from {given.min()} to {given.max()}, but with n_components={n_components} they must "
            f"lie between 0 and {n_components - 1} (-1 where there is none)."
        )
    empty = np.setdiff1d(np.arange(n_components), given)
    if len(empty):
        raise ValueError(
            f"no row of init has label {empty[0]}: every component needs one, or fewer n_components."
        )
    return given


def starting_sums(
    rows: WeightedRows,
    init: Init,
    n_components: int,
    rng: np.random.Generator,
    engine: Any,
    spherical: bool = True,
) -> NDArray[np.float64]:
    """Return sums of rows, (n_components, n_features), from which the first parameters are made.

    Without `spherical`, rows are compared by their cosines but summed as they are.
    """
    if not isinstance(init, str):
        return init if init.ndim == 2 else label_sums(rows, init, n_components)
    if init == "random":
        labels = rng.permutation(np.arange(rows.X.shape[0]) % n_components)  # every component has rows
        return label_sums(rows, labels, n_components)
    directions = rows.X if spherical else _directions(rows.X)
    seeds = plus_plus(WeightedRows(directions, rows.weight), n_components, rng, engine)
    return rows.take(seeds).X.toarray().astype(np.float64)


def label_sums(rows: WeightedRows, labels: NDArray[Any], n_components: int) -> NDArray[np.float64]:
    """Add up the rows of each label."""
    known = np.flatnonzero(labels >= 0)
    weight = rows.weight[known].astype(np.float64)
    member = sp.csr_array((weight, (labels[known], known)), shape=(n_components, rows.X.shape[0]))
    sums = np.zeros((n_components, rows.X.shape[1]))
    for part, X in pieces(rows.X):
        sums += (member[:, part] @ X).toarray()
    return sums


def plus_plus(
    rows: WeightedRows, n_components: int, rng: np.random.Generator, engine: Any = None
) -> NDArray[np.int64]:
    """Numbers of the rows that k-means++ chooses."""
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
    """Draw positions with probability proportional to their mass; any, where none has mass."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=n)
    return np.minimum(np.searchsorted(total, rng.random(n) * total[-1], side="right"), len(mass) - 1)


def _distances(X: Any, seeds: NDArray[np.int64], engine: Any) -> NDArray[np.float64]:
    """Cosine distances of all rows from some of them; those of a seed from itself are exactly zero."""
    columns = np.ascontiguousarray(X[seeds].toarray().T)
    cosine = np.concatenate([csr_matmul(piece, columns, engine) for _, piece in pieces(X)])
    distance = np.maximum(1.0 - cosine.astype(np.float64), 0.0)
    distance[distance < 4 * np.finfo(X.dtype).eps] = 0.0
    return distance


def _directions(X: sp.csr_array) -> sp.csr_array:
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel())
    scale = np.repeat(1.0 / np.where(length > 0, length, 1.0), np.diff(X.indptr))
    return sp.csr_array(((X.data * scale).astype(X.dtype), X.indices, X.indptr), shape=X.shape)
