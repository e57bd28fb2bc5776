"""The regulariser of orthogonal transfer: pairs of nodes and their ancestors, and the signs of their inner products.

With K_ii = 1, K_ij = coupling / sqrt(r_i r_j) for a node and its ancestor (r_i the number of nodes that i is paired
with) and |t| = max_{|s| <= 1} s t,

    1/2 sum_ij K_ij |w_i.w_j| = max_S 1/2 tr W' M(S) W,        M(S)_ij = K_ij s_ij, positive definite.

For given signs the nodes are sums of parts with independent weights, W = P V with P P' = M(S)^-1. For given sums U of
rows (W = M^-1 U) a projected quasi-Newton method maximises the dual over the signs. See `orthogonal`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize

_SIGN_STEPS = 15  # quasi-Newton steps on the signs for each sweep over the rows
_TINY = float(np.finfo(np.float64).tiny)


class Kin(NamedTuple):
    """Nodes that are connected by pairs of a node and its ancestor, the deepest first, and these pairs."""

    nodes: NDArray[np.int64]
    lower: NDArray[np.int64]  # positions in `nodes`
    upper: NDArray[np.int64]
    strength: NDArray[np.float64]  # K of each pair

    def matrix(self, signs: NDArray[Any]) -> NDArray[np.float64]:
        """M(S), positive definite for signs in [-1, 1]."""
        M = np.eye(len(self.nodes))
        M[self.lower, self.upper] = M[self.upper, self.lower] = self.strength * signs
        return M


def find_kin(above: sp.csr_array, depth: NDArray[Any], coupling: float) -> list[Kin]:
    """Group the nodes that are connected by pairs, directly or not.

    Parameters
    ----------
    above : sparse CSR of shape (n, n)
        Marks the ancestors of each node.
    depth : ndarray of shape (n,)
    coupling : float in [0, 1)

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> above = sp.csr_array([[0, 0, 0], [1, 0, 0], [0, 0, 0]])
    >>> [kin.nodes.tolist() for kin in find_kin(above, np.array([1, 2, 1]), 0.5)]
    [[1, 0]]
    """
    if coupling == 0 or not above.nnz:
        return []
    lower, upper = above.nonzero()
    n_pairs = np.bincount(np.concatenate([lower, upper]), minlength=len(depth))
    strength = coupling / np.sqrt(n_pairs[lower] * n_pairs[upper])
    _, group = sp.csgraph.connected_components(above, directed=False)
    order = np.lexsort((-depth, group))
    sizes = np.bincount(group)
    position = np.empty(len(depth), np.int64)
    position[order] = np.arange(len(depth)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members = np.split(order, np.cumsum(sizes)[:-1])
    by_group = np.argsort(group[lower], kind="stable")
    pairs = np.split(by_group, np.cumsum(np.bincount(group[lower], minlength=len(sizes)))[:-1])
    return [
        Kin(nodes, position[lower[pair]], position[upper[pair]], strength[pair])
        for nodes, pair in zip(members, pairs, strict=True)
        if len(nodes) > 1
    ]


def path_factor(M: NDArray[np.float64]) -> NDArray[np.float64]:
    """P with P P' the inverse of M. With the deepest nodes first, P has entries between nodes and ancestors only."""
    factor: NDArray[np.float64] = solve_triangular(np.linalg.cholesky(M), np.eye(len(M)), lower=True).T
    return factor


def assemble_paths(kins: list[Kin], factors: list[NDArray[Any]], n_nodes: int) -> sp.csr_array:
    """Assemble the factors of all kin in one sparse matrix; a node without kin is a part of its own."""
    alone = np.ones(n_nodes, bool)
    for kin in kins:
        alone[kin.nodes] = False
    rows, columns, values = [np.flatnonzero(alone)], [np.flatnonzero(alone)], [np.ones(alone.sum())]
    for kin, factor in zip(kins, factors, strict=True):
        node, part = np.nonzero(factor)
        rows.append(kin.nodes[node])
        columns.append(kin.nodes[part])
        values.append(factor[node, part])
    coordinates = np.concatenate(rows), np.concatenate(columns)
    P = sp.csr_array((np.concatenate(values), coordinates), shape=(n_nodes, n_nodes))
    P.sort_indices()
    return P


def best_signs(kin: Kin, signs: NDArray[Any], gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimise 1/2 tr(M(S)^-1 G) over the signs, G = U'U: the dual for given multipliers."""

    def value_and_gradient(s: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        inverse, _ = lapack.dpotri(np.linalg.cholesky(kin.matrix(s)), lower=True)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        products = inverse @ gram @ inverse  # w_i.w_j
        return float(np.sum(inverse * gram)) / 2, -kin.strength * products[kin.lower, kin.upper]

    scale = max(float(np.trace(gram)), _TINY)

    def scaled(s: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        value, gradient = value_and_gradient(s)
        return value / scale, gradient / scale

    found = minimize(
        scaled,
        signs, jac=True, method="L-BFGS-B", bounds=[(-1.0, 1.0)] * len(signs),
        options={"maxiter": _SIGN_STEPS, "ftol": 0.0, "gtol": 1e-16},
    )  # fmt: skip
    return np.asarray(np.clip(found.x, -1.0, 1.0))


def inner_products(kin: Kin, factor: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    """w_i.w_j of all pairs of nodes of a kin, from the weights of their parts."""
    parts = weights[:, kin.nodes].astype(np.float64)
    return np.asarray(factor @ (parts.T @ parts) @ factor.T)


def sign_gap(kin: Kin, signs: NDArray[Any], products: NDArray[Any]) -> float:
    """Share of the signs in the duality gap: sum K (|w_i.w_j| - s w_i.w_j)."""
    pair = products[kin.lower, kin.upper]
    return float(np.sum(kin.strength * (np.abs(pair) - signs * pair)))


class Signs:
    """Signs of all pairs, and the paths that follow from them."""

    def __init__(self, kins: list[Kin], n_nodes: int) -> None:
        self.kins = kins
        self.n_nodes = n_nodes
        self._set([np.zeros(len(kin.lower)) for kin in kins])

    def _set(self, signs: list[NDArray[Any]]) -> None:
        self.signs = signs
        self.factors = [path_factor(kin.matrix(s)) for kin, s in zip(self.kins, signs, strict=True)]
        self.P = assemble_paths(self.kins, self.factors, self.n_nodes)

    def gap(self, weights: NDArray[Any]) -> float:
        """Share of the signs in the duality gap."""
        each = zip(self.kins, self.signs, self.factors, strict=True)
        return sum(sign_gap(kin, s, inner_products(kin, factor, weights)) for kin, s, factor in each)

    def improve(self, weights: NDArray[Any]) -> None:
        """Improve the dual over the signs; convert the weights of the parts to the new paths, in place."""
        new = []
        for kin, s, factor in zip(self.kins, self.signs, self.factors, strict=True):
            M = kin.matrix(s)
            new.append(best_signs(kin, s, M @ inner_products(kin, factor, weights) @ M))
        old = self.signs, self.factors
        self._set(new)
        for kin, s, before, after in zip(self.kins, *old, self.factors, strict=True):
            change = before.T @ kin.matrix(s) @ after  # parts -> nodes -> sums of rows -> new parts
            weights[:, kin.nodes] = weights[:, kin.nodes] @ change.astype(weights.dtype)
