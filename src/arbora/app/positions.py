"""Where documents and nodes are on the map: three directions in which the centres of the leaves differ most.

Rows of unit length stay in the unit ball, so that what is drawn is a shadow of the sphere they lie on. Directions
between the centres show classes and topics apart; those in which documents differ most rarely do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

N_DIRECTIONS = 3
_WIDTH, _ROUNDS = 10, 6  # of the subspace in which directions are found
_ROWS = 5000  # documents by which directions are found where the leaves are too few


def unit_rows(X: Any) -> sp.csr_array:
    """Divide rows by their length; rows of zeros stay.

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
    """Positions of documents and of nodes.

    Parameters
    ----------
    X : sparse matrix of shape (n_samples, n_features)
    leaves : sparse indicator of shape (n_samples, n_leaves)
        Which classes or topics a document is in.
    members : sparse indicator of shape (n_samples, n_nodes)
        Which nodes it is in or below.
    random_state : int

    Returns
    -------
    positions : ndarray of shape (n_samples, 3)
    node_positions : ndarray of shape (n_nodes, 3)
        Means of the documents of each node; NaN for nodes without any.

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
    """Orthonormal directions, at most three, as columns: first those between leaves, then those between documents."""
    leaves = sp.csr_array(leaves, dtype=np.float64)
    size = np.asarray(leaves.sum(axis=0)).ravel()
    centres = unit_rows(leaves.T @ X)[size > 0]
    # Large leaves count for more, but not in proportion: the small ones are to be seen too.
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
    """Directions of most weighted variance around the mean, by subspace iteration; rows are never made dense."""
    scale = np.sqrt(weight / weight.sum())
    mean = rows.T @ (scale**2)
    rank = min(N_DIRECTIONS, rows.shape[0] - 1, rows.shape[1])
    if rank < 1:
        return np.empty((rows.shape[1], 0))

    def times(V: NDArray[np.float64]) -> NDArray[np.float64]:
        return scale[:, None] * (rows @ V - mean @ V)

    basis = rng.standard_normal((rows.shape[1], min(_WIDTH, *rows.shape)))
    for _ in range(_ROUNDS):
        left = np.linalg.qr(times(basis))[0] * scale[:, None]
        basis = np.linalg.qr(rows.T @ left - np.outer(mean, left.sum(axis=0)))[0]
    _, values, within = np.linalg.svd(times(basis), full_matrices=False)
    vectors = (basis @ within.T)[:, :rank][:, values[:rank] > 1e-9]
    # The sign of a direction is free: its largest entry is made positive, the same in every run.
    return vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
