"""Positions of documents and nodes on the map: a linear layout, and one that keeps neighbours together.

The linear layout is a projection onto three directions, the principal directions of the centres of the leaves: these
separate classes and topics, which the principal directions of the documents rarely do. Rows have unit length, so that
all positions are in the unit ball. The layout of neighbours has two dimensions and starts from the linear one.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from arbora.arrays import Array, Ints, Matrix

# --- Positions of documents on the map such that neighbours stay neighbours: t-SNE on unit rows -------------
#
# Rows are reduced to 50 directions and scaled to unit length, so that distances rank as cosines do. t-SNE (van der
# Maaten and Hinton 2008) places a sample of the rows; it minimises
#
# .. math:: \sum_{i \ne j} p_{ij} \log \frac{p_{ij}}{q_{ij}}, \qquad q_{ij} \propto (1 + \|z_i - z_j\|^2)^{-1},
#
# where :math:`p_{ij}` is large for near neighbours among the rows. It starts from the linear layout, each document
# halfway between its own position and that of its class or topic, so that the large picture is that of the groups.
# The other rows are placed among their nearest neighbours of the sample.
#
# The optimisation runs in one thread: the same rows give the same map on every machine with the same libraries.
#
# L. van der Maaten and G. Hinton (2008). Visualizing data using t-SNE. JMLR 9.
# P. G. Policar, M. Strazar and B. Zupan (2024). openTSNE: a modular Python library for t-SNE dimensionality reduction
# and embedding. Journal of Statistical Software 109.


MODULE = "openTSNE"
FITTED = 5_000  # rows that t-SNE places together
MAX_FITTED = 10_000
MIN_ROWS = 30  # fewer rows have no neighbourhoods: their layout is linear
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
    """Place unit rows in the unit circle so that similar rows are near each other; zero rows at the origin.

    The layout begins at `start`, of which only the proportions matter, (n_samples, 2). `fitted` rows, at most 10,000,
    are placed together, and the others among them.
    """
    placed = np.zeros((rows.shape[0], 2))
    ids = np.flatnonzero(np.diff(rows.indptr))
    rng = np.random.default_rng(random_state)
    some = np.sort(rng.permutation(ids)[: min(fitted, MAX_FITTED)])
    if len(some) < MIN_ROWS:
        return placed
    others = np.setdiff1d(ids, some)
    # Small problems, many short calls: threads cost more than they give, and would change the last digits.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        basis = _unit_directions(rows[some], random_state)
        map_ = _fit(_reduced(rows[some], basis), start[some], random_state)
        placed[some] = map_
        for begin in range(0, len(others), _CHUNK):
            chunk = others[begin : begin + _CHUNK]
            placed[chunk] = _extend(map_, _reduced(rows[chunk], basis))
    centre = placed[some].mean(axis=0)
    placed[ids] -= centre
    return np.asarray(placed / max(float(np.linalg.norm(placed, axis=1).max()), 1e-12))


def _unit_directions(rows: sp.csr_array, random_state: int) -> Array:
    rank = min(_DIMENSIONS, min(rows.shape) - 1)
    if rank < 2:
        return np.eye(rows.shape[1])
    return np.asarray(randomized_svd(rows, rank, n_iter=3, random_state=random_state)[2].T)


def _reduced(rows: sp.csr_array, basis: Array) -> Array:
    reduced = np.asarray(rows @ basis)
    return np.asarray(reduced / np.maximum(np.linalg.norm(reduced, axis=1, keepdims=True), 1e-12))


def _fit(rows: Array, start: Array, random_state: int) -> Any:
    from openTSNE import TSNEEmbedding, affinity

    affinities = affinity.PerplexityBasedNN(
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
    embedding = TSNEEmbedding(
        start, affinities, negative_gradient_method="bh", n_jobs=1, random_state=random_state
    )
    early, late = _EXAGGERATION
    embedding = embedding.optimize(n_iter=_EARLY, exaggeration=early, momentum=0.8)
    return embedding.optimize(n_iter=_LATE, exaggeration=late, momentum=0.8)


def _extend(fitted: Any, rows: Array) -> Array:
    """Place new rows at the weighted mean of their nearest rows, then improve their positions a little."""
    k = min(_NEAREST, len(fitted) - 1)
    new = fitted.prepare_partial(rows, initialization="weighted", k=k, perplexity=min(5, (k - 1) / 3))
    options = {"learning_rate": 0.1, "momentum": 0.8, "max_grad_norm": 0.25, "exaggeration": _EXAGGERATION[1]}
    return np.asarray(new.optimize(n_iter=_NEW, **options))


# --- Positions of documents and nodes on the map: a linear layout, and one that keeps neighbours together ---


LAYOUTS = ("neighbours", "linear")
NO_LIBRARY = (
    "The map is linear because openTSNE, which keeps neighbours together, is not installed: "
    "pip install arbora[explore]"
)
N_DIRECTIONS = 3
_WIDTH, _ROUNDS = 10, 6  # of the subspace iteration
_ROWS = 5000  # documents used for directions when there are too few leaves


def unit_rows(X: Any) -> sp.csr_array:
    """Divide rows by their length; zero rows are unchanged.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).toarray()
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    X = sp.csr_array(X, dtype=np.float64)
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    return sp.csr_array(sp.diags_array(scale) @ X)


def place_documents(
    X: Any,
    leaves: Any,
    members: Any,
    sampled: Ints,
    *,
    layout: str = LAYOUTS[0],
    random_state: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.float32], list[str]]:
    """Compute the positions of a sample of documents, and of all nodes, (n, 3); and a message if openTSNE is missing.

    The layout "neighbours" needs openTSNE and at least 30 documents; otherwise it is "linear", that of `project`.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    linear, nodes = project(X, leaves, members, random_state)
    if layout == "linear" or len(sampled) < MIN_ROWS:
        return linear[sampled], nodes, []
    if not can_lay_out():
        return linear[sampled], nodes, [NO_LIBRARY]
    memberships = sp.csr_array(leaves, dtype=np.float64)
    centres = mean_positions(memberships, linear)
    n_own = np.maximum(np.asarray(memberships.sum(axis=1)).ravel(), 1.0)
    start = linear[:, :2] + (memberships @ np.nan_to_num(centres[:, :2])) / n_own[:, None]
    positions = np.zeros((len(sampled), N_DIRECTIONS), np.float32)
    positions[:, :2] = lay_out(unit_rows(X)[sampled], start[sampled], random_state=random_state)
    return positions, mean_positions(sp.csr_array(members, dtype=np.float64)[sampled], positions), []


def mean_positions(members: sp.csr_array, positions: Matrix) -> NDArray[np.float32]:
    """Return the mean position of the documents of each node, (n_nodes, 3); NaN for nodes without documents."""
    size = np.asarray(members.sum(axis=0)).ravel()
    nodes = np.full((members.shape[1], positions.shape[1]), np.nan)
    np.divide(members.T @ positions, size[:, None], out=nodes, where=size[:, None] > 0)
    return nodes.astype(np.float32)


def project(
    X: Any, leaves: Any, members: Any, random_state: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compute the positions of documents, and their means for each node, (n, 3); NaN for a node without documents.

    `leaves` and `members` are sparse indicators of the classes or topics of each document, and of its nodes,
    ancestors included.
    """
    if not X.shape[0]:
        return np.zeros((0, N_DIRECTIONS), np.float32), np.full(
            (members.shape[1], N_DIRECTIONS), np.nan, "f4"
        )
    X = unit_rows(X)
    directions = _directions(X, leaves, np.random.default_rng(random_state))
    positions = np.zeros((X.shape[0], N_DIRECTIONS))
    positions[:, : directions.shape[1]] = X @ directions
    return positions.astype(np.float32), mean_positions(sp.csr_array(members, dtype=np.float64), positions)


def _directions(X: sp.csr_array, leaves: Any, rng: np.random.Generator) -> Array:
    """At most three orthonormal directions as columns: first between leaves, then between documents."""
    leaves = sp.csr_array(leaves, dtype=np.float64)
    size = np.asarray(leaves.sum(axis=0)).ravel()
    centres = unit_rows(leaves.T @ X)[size > 0]
    # Weight by the square root of the size, so that small leaves still matter.
    directions = _principal(centres, np.sqrt(size[size > 0]), rng)
    if directions.shape[1] < N_DIRECTIONS:
        rows = rng.choice(X.shape[0], min(_ROWS, X.shape[0]), replace=False)
        of_rows = _principal(X[np.sort(rows)], np.ones(len(rows)), rng)
        basis, pivots = np.linalg.qr(np.hstack([directions, of_rows]))
        independent = np.abs(np.diag(pivots)) > 1e-6
        directions = (basis * np.sign(np.diag(pivots)))[:, independent][:, :N_DIRECTIONS]
    return directions


def _principal(rows: sp.csr_array, weight: Array, rng: np.random.Generator) -> Array:
    """Principal directions of weighted rows, by subspace iteration without a dense copy of the rows."""
    scale = np.sqrt(weight / weight.sum())
    mean = rows.T @ (scale**2)
    rank = min(N_DIRECTIONS, rows.shape[0] - 1, rows.shape[1])
    if rank < 1:
        return np.empty((rows.shape[1], 0))

    def times(V: Array) -> Array:
        return np.asarray(scale[:, None] * (rows @ V - mean @ V))

    basis = rng.standard_normal((rows.shape[1], min(_WIDTH, *rows.shape)))
    for _ in range(_ROUNDS):
        left = np.linalg.qr(times(basis))[0] * scale[:, None]
        basis = np.linalg.qr(rows.T @ left - np.outer(mean, left.sum(axis=0)))[0]
    _, values, within = np.linalg.svd(times(basis), full_matrices=False)
    vectors = (basis @ within.T)[:, :rank][:, values[:rank] > 1e-9]
    # The sign of a direction is arbitrary: make its largest entry positive, so that runs agree.
    return np.asarray(vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]))
