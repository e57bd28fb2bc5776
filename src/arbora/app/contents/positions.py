"""Positions of documents and nodes on the map: a projection onto three directions.

The directions are the principal directions of the centres of the leaves: these separate classes and topics, which the
principal directions of the documents rarely do. Rows have unit length, so that all positions are in the unit ball.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

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
    members = sp.csr_array(members, dtype=np.float64)
    size = np.asarray(members.sum(axis=0)).ravel()
    nodes = np.full((members.shape[1], N_DIRECTIONS), np.nan)
    np.divide(members.T @ positions, size[:, None], out=nodes, where=size[:, None] > 0)
    return positions.astype(np.float32), nodes.astype(np.float32)


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
