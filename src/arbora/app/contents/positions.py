"""Positions of documents and nodes on the map: a linear layout, and one that keeps neighbours together.

The linear layout is a projection onto three directions, the principal directions of the centres of the leaves: these
separate classes and topics, which the principal directions of the documents rarely do. Rows have unit length, so that
all positions are in the unit ball. The layout of neighbours has two dimensions and starts from the linear one; see
`arbora.app.contents.neighbour_layout`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.app.contents.neighbour_layout import LEAST, can_lay_out, lay_out

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

    Examples
    --------
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
    sampled: NDArray[np.int64],
    *,
    layout: str = LAYOUTS[0],
    random_state: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.float32], list[str]]:
    """Compute the positions of a sample of documents, and of all nodes.

    Parameters
    ----------
    X, leaves, members, random_state
        See `project`.
    sampled : ndarray of int
        Row numbers of the documents to place.
    layout : {"neighbours", "linear"}
        "neighbours" needs openTSNE, and at least 30 documents; otherwise the layout is linear.

    Returns
    -------
    positions : ndarray of shape (n_sampled, 3)
    node_positions : ndarray of shape (n_nodes, 3)
    notices : list of str
        A message if openTSNE is missing.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    linear, nodes = project(X, leaves, members, random_state)
    if layout == "linear" or len(sampled) < LEAST:
        return linear[sampled], nodes, []
    if not can_lay_out():
        return linear[sampled], nodes, [NO_LIBRARY]
    own = sp.csr_array(leaves, dtype=np.float64)
    centres = mean_positions(own, linear)
    n_own = np.maximum(np.asarray(own.sum(axis=1)).ravel(), 1.0)
    start = linear[:, :2] + (own @ np.nan_to_num(centres[:, :2])) / n_own[:, None]
    positions = np.zeros((len(sampled), N_DIRECTIONS), np.float32)
    positions[:, :2] = lay_out(unit_rows(X)[sampled], start[sampled], random_state=random_state)
    return positions, mean_positions(sp.csr_array(members, dtype=np.float64)[sampled], positions), []


def mean_positions(members: sp.csr_array, positions: NDArray[Any]) -> NDArray[np.float32]:
    """Return the mean position of the documents of each node, (n_nodes, 3); NaN for nodes without documents."""
    size = np.asarray(members.sum(axis=0)).ravel()
    nodes = np.full((members.shape[1], positions.shape[1]), np.nan)
    np.divide(members.T @ positions, size[:, None], out=nodes, where=size[:, None] > 0)
    return nodes.astype(np.float32)


def project(
    X: Any, leaves: Any, members: Any, random_state: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compute the positions of documents and of nodes.

    Parameters
    ----------
    X : sparse matrix of shape (n_samples, n_features)
    leaves : sparse indicator of shape (n_samples, n_leaves)
        Classes or topics of each document.
    members : sparse indicator of shape (n_samples, n_nodes)
        Nodes of each document, ancestors included.
    random_state : int

    Returns
    -------
    positions : ndarray of shape (n_samples, 3)
    node_positions : ndarray of shape (n_nodes, 3)
        Means of the documents of each node; NaN for nodes without documents.

    Examples
    --------
    >>> X, y = np.eye(3)[[0, 0, 1, 2]], sp.csr_array(np.eye(3)[[0, 0, 1, 2]])
    >>> positions, nodes = project(X, y, y)
    >>> bool(np.allclose(positions[0], positions[1])), positions.shape, nodes.shape
    (True, (4, 3), (3, 3))
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


def _directions(X: sp.csr_array, leaves: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    """At most three orthonormal directions as columns: first between leaves, then between documents."""
    leaves = sp.csr_array(leaves, dtype=np.float64)
    size = np.asarray(leaves.sum(axis=0)).ravel()
    centres = unit_rows(leaves.T @ X)[size > 0]
    # Weight by the square root of the size, so that small leaves still matter.
    found = _principal(centres, np.sqrt(size[size > 0]), rng)
    if found.shape[1] < N_DIRECTIONS:
        rows = rng.choice(X.shape[0], min(_ROWS, X.shape[0]), replace=False)
        more = _principal(X[np.sort(rows)], np.ones(len(rows)), rng)
        basis, pivots = np.linalg.qr(np.hstack([found, more]))
        kept = np.abs(np.diag(pivots)) > 1e-6
        found = (basis * np.sign(np.diag(pivots)))[:, kept][:, :N_DIRECTIONS]
    return found


def _principal(
    rows: sp.csr_array, weight: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Principal directions of weighted rows, by subspace iteration without a dense copy of the rows."""
    scale = np.sqrt(weight / weight.sum())
    mean = rows.T @ (scale**2)
    rank = min(N_DIRECTIONS, rows.shape[0] - 1, rows.shape[1])
    if rank < 1:
        return np.empty((rows.shape[1], 0))

    def times(V: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(scale[:, None] * (rows @ V - mean @ V))

    basis = rng.standard_normal((rows.shape[1], min(_WIDTH, *rows.shape)))
    for _ in range(_ROUNDS):
        left = np.linalg.qr(times(basis))[0] * scale[:, None]
        basis = np.linalg.qr(rows.T @ left - np.outer(mean, left.sum(axis=0)))[0]
    _, values, within = np.linalg.svd(times(basis), full_matrices=False)
    vectors = (basis @ within.T)[:, :rank][:, values[:rank] > 1e-9]
    # The sign of a direction is arbitrary: make its largest entry positive, so that runs agree.
    return np.asarray(vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]))
