"""Sparse factor of the covariance that a sparse precision gives to some of its nodes.

A precision Q = L D L' gives its nodes the covariance Q^-1 = F'F with F = D^(-1/2) L^-1. Column c of F has an entry
for every node on the path from c to the root of the elimination tree (`kernels.elimination`): its size is the sum of
the depths of the classes in this tree, which depends on the order of elimination. A narrow band, the aim of many
orders, is the worst choice: its tree is a chain, and F is half full. Minimum degree gives low trees on sparse graphs
of labels. In postorder, the classes below a node of the tree are consecutive, so that blocks of classes share few
parts.

The tree is known before any number is computed: the memory of the factors is computed first, and refused if it is not
available.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import spilu, splu

from arbora.core.chunks import require_memory
from arbora.kernels.tree import count_factor, depths, elimination_tree, inverse_columns, postorder

_FACTOR_BYTES = 44  # per entry of L: SuperLU holds L and U, and each is copied
_INVERSE_BYTES = 24  # per entry of F: value, row, and the passes over them


class Precision(NamedTuple):
    """Precision of the weights of nodes, and which of them are classes."""

    matrix: sp.csc_array
    classes: NDArray[np.int64]


class Elimination(NamedTuple):
    """A precision in the order of its elimination, and the tree of it."""

    matrix: sp.csc_array
    parent: NDArray[np.int64]  # of every column; -1 for a root
    position: NDArray[np.int64]  # of every node in the order


def minimum_degree(matrix: sp.csc_array) -> NDArray[np.int64]:
    """Position of every node in the order of minimum degree: the node with the fewest neighbours comes next.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> star = sp.csc_array([[4.0, -1, -1, -1], [-1, 2, 0, 0], [-1, 0, 2, 0], [-1, 0, 0, 2]])
    >>> bool(minimum_degree(star)[0] >= 2)  # the hub comes when at most one neighbour is left
    True
    """
    # SuperLU computes the order; an incomplete factorisation that drops all but the diagonal is cheap.
    incomplete = spilu(
        matrix, drop_tol=1.0, fill_factor=1.0, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )  # fmt: skip
    return np.asarray(incomplete.perm_c, np.int64)


def _permuted(matrix: sp.csc_array, position: NDArray[np.int64]) -> sp.csc_array:
    entries = sp.coo_array(matrix)
    rows, columns = (position[index] for index in entries.coords)
    return sp.csc_array((entries.data, (rows, columns)), shape=matrix.shape)


def eliminate(matrix: sp.csc_array) -> Elimination:
    """Permute a symmetric matrix to an order with a low elimination tree, in postorder.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> star = sp.csc_array([[4.0, -1, -1, -1], [-1, 2, 0, 0], [-1, 0, 2, 0], [-1, 0, 0, 2]])
    >>> eliminate(star).parent  # a chain of two, and two leaves beside it
    array([ 3,  3,  3, -1])
    """
    position = minimum_degree(matrix)
    ordered = _permuted(matrix, position)
    parent = elimination_tree(ordered.indptr, ordered.indices)
    post = postorder(parent)
    below = np.where(parent >= 0, post[parent], -1)
    renumbered = np.empty_like(parent)
    renumbered[post] = below
    return Elimination(_permuted(ordered, post), renumbered, post[position])


def covariance_factor(precision: Precision) -> tuple[sp.csc_array, NDArray[np.int64]]:
    """Factor F with F'F the covariance of the classes, and the class of each of its columns.

    Parameters
    ----------
    precision : Precision

    Returns
    -------
    factor : sparse matrix of shape (n_parts, n_classes)
        Its columns in postorder; parts without a class are left out.
    order : ndarray of int
        Class at each column.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> pair = Precision(sp.csc_array([[2.0, -1.0], [-1.0, 2.0]]), np.array([0, 1]))
    >>> factor, order = covariance_factor(pair)
    >>> (factor.T @ factor).toarray() * 3
    array([[2., 1.],
           [1., 2.]])
    """
    matrix, parent, position = eliminate(precision.matrix)
    order = np.argsort(position[precision.classes], kind="stable")
    columns = position[precision.classes][order]
    _check_memory(matrix, parent, columns)
    lu = splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    lower, pivots = sp.csc_array(lu.L), lu.U.diagonal()
    del lu
    indptr, rows, data = inverse_columns(lower.indptr, lower.indices, lower.data, parent, columns)
    data /= np.sqrt(pivots)[rows]
    used = np.zeros(len(parent), bool)
    used[rows] = True
    rows = (np.cumsum(used, dtype=np.int32) - 1)[rows]
    factor = sp.csc_array((data, rows, indptr), shape=(int(used.sum()), len(columns)))
    return factor, order


def _check_memory(matrix: sp.csc_array, parent: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
    """Refuse a structure whose factors do not fit in memory; the cheaper count comes first."""
    what = f"The covariance of {len(columns)} classes in a structure of {len(parent)} nodes"
    advice = "Leave out weak edges, or use a tree, or coupling=0.0, which is flat training."
    depth = depths(parent)[columns]
    n_inverse = int(depth.sum())
    need = _INVERSE_BYTES * n_inverse + 4 * int(depth.max()) ** 2  # of a class, and of those above it
    require_memory(need, f"{what}, {n_inverse} shares of classes in parts,", advice)
    n_factor = int(count_factor(matrix.indptr, matrix.indices, parent))
    require_memory(
        need + _FACTOR_BYTES * n_factor,
        f"{what}, {n_inverse} shares of classes in parts and {n_factor} entries of a Cholesky factor,",
        advice,
    )
