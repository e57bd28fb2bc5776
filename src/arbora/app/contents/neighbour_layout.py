r"""Positions of documents on the map such that neighbours stay neighbours: t-SNE on unit rows.

Rows are reduced to 50 directions and scaled to unit length, so that distances rank as cosines do. t-SNE (van der
Maaten and Hinton 2008) places a sample of the rows; it minimises

.. math:: \sum_{i \ne j} p_{ij} \log \frac{p_{ij}}{q_{ij}}, \qquad q_{ij} \propto (1 + \|z_i - z_j\|^2)^{-1},

where :math:`p_{ij}` is large for near neighbours among the rows. It starts from the linear layout, each document
halfway between its own position and that of its class or topic, so that the large picture is that of the groups.
The other rows are placed among their nearest neighbours of the sample.

The optimisation runs in one thread: the same rows give the same map on every machine with the same libraries.

References
----------
L. van der Maaten and G. Hinton (2008). Visualizing data using t-SNE. JMLR 9.
P. G. Policar, M. Strazar and B. Zupan (2024). openTSNE: a modular Python library for t-SNE dimensionality reduction
and embedding. Journal of Statistical Software 109.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Array = NDArray[np.float64]

MODULE = "openTSNE"
FITTED = 5_000  # rows that t-SNE places together
MOST_FITTED = 10_000
LEAST = 30  # fewer rows have no neighbourhoods: their layout is linear
_DIMENSIONS = 50
_PERPLEXITY = 20
_EARLY, _LATE, _NEW = 60, 140, 25  # iterations: groups, neighbours, rows outside the sample
_EXAGGERATION = 12.0, 1.5  # a little in the end keeps groups apart
_NEAREST = 15  # rows of the sample around a new one
_CHUNK = 10_000  # new rows at a time


def can_lay_out() -> bool:
    """Return whether the library of the layout is installed."""
    return importlib.util.find_spec(MODULE) is not None


def lay_out(rows: sp.csr_array, start: Array, *, fitted: int = FITTED, random_state: int = 0) -> Array:
    """Place rows in the plane so that similar rows are near each other.

    Parameters
    ----------
    rows : CSR array of shape (n_samples, n_features)
        Unit rows; zero rows are placed at the origin.
    start : ndarray of shape (n_samples, 2)
        Positions to start from; only their proportions matter.
    fitted : int
        Number of rows that are placed together, at most 10,000; the others are placed among them.
    random_state : int

    Returns
    -------
    ndarray of shape (n_samples, 2)
        In the unit circle.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = sp.csr_array(np.repeat(np.eye(2), 30, axis=0) + rng.uniform(0, 0.1, (60, 2)))
    >>> lay_out(rows, rng.normal(size=(60, 2))).shape
    (60, 2)
    """
    placed = np.zeros((rows.shape[0], 2))
    known = np.flatnonzero(np.diff(rows.indptr))
    rng = np.random.default_rng(random_state)
    some = np.sort(rng.permutation(known)[: min(fitted, MOST_FITTED)])
    if len(some) < LEAST:
        return placed
    others = np.setdiff1d(known, some)
    # Small problems, many short calls: threads cost more than they give, and would change the last digits.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        basis = _directions(rows[some], random_state)
        map_ = _fit(_reduced(rows[some], basis), start[some], random_state)
        placed[some] = map_
        for at in range(0, len(others), _CHUNK):
            chunk = others[at : at + _CHUNK]
            placed[chunk] = _extend(map_, _reduced(rows[chunk], basis))
    centre = placed[some].mean(axis=0)
    placed[known] -= centre
    return np.asarray(placed / max(float(np.linalg.norm(placed, axis=1).max()), 1e-12))


def _directions(rows: sp.csr_array, random_state: int) -> Array:
    rank = min(_DIMENSIONS, min(rows.shape) - 1)
    if rank < 2:
        return np.eye(rows.shape[1])
    return np.asarray(randomized_svd(rows, rank, n_iter=3, random_state=random_state)[2].T)


def _reduced(rows: sp.csr_array, basis: Array) -> Array:
    found = np.asarray(rows @ basis)
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))


def _fit(rows: Array, start: Array, random_state: int) -> Any:
    from openTSNE import TSNEEmbedding, affinity

    given = affinity.PerplexityBasedNN(
        rows,
        perplexity=min(_PERPLEXITY, (len(rows) - 1) / 3),
        method="exact",
        n_jobs=1,
        random_state=random_state,
    )
    start = start - start.mean(axis=0)
    # Equal rows must not start at one point: they would never part.
    spread = max(float(start.std()), 1e-12)
    start = start / spread * 1e-2 + np.random.default_rng(random_state).normal(0, 1e-4, start.shape)
    found = TSNEEmbedding(start, given, negative_gradient_method="bh", n_jobs=1, random_state=random_state)
    early, late = _EXAGGERATION
    found = found.optimize(n_iter=_EARLY, exaggeration=early, momentum=0.8)
    return found.optimize(n_iter=_LATE, exaggeration=late, momentum=0.8)


def _extend(fitted: Any, rows: Array) -> Array:
    """Place new rows at the weighted mean of their nearest rows, then improve their positions a little."""
    k = min(_NEAREST, len(fitted) - 1)
    new = fitted.prepare_partial(rows, initialization="weighted", k=k, perplexity=min(5, (k - 1) / 3))
    options = {"learning_rate": 0.1, "momentum": 0.8, "max_grad_norm": 0.25, "exaggeration": _EXAGGERATION[1]}
    return np.asarray(new.optimize(n_iter=_NEW, **options))
