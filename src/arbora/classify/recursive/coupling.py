"""Coupling of classes by a label structure: the regulariser of their weights as a sparse matrix of shares.

Recursive regularisation penalises the distance of the weights of a node from those of its neighbours,

    tree, DAG:  1/2 sum_{edges (p, n)} ||w_n - w_p||^2 / s_n + 1/2 sum_{roots} ||w_n||^2 / s_n,
    graph:      c/2 sum_{edges (m, n)} weight_mn ||w_m - w_n||^2 + max(1 - c, RIDGE)/2 sum_n ||w_n||^2.

In a tree or DAG the documents are on leaves: a class on an inner node is a leaf spawned below it. Leaves have s = 1;
the *coupling* c is s of the inner nodes: one number, one for each level, or one for each node. c = 1 is the model of
Gopal and Yang. As c tends to 0 the inner nodes tend to 0 and the classes become independent, as in flat training. (A
leaf with k parents has k such terms, each multiplied by k^(c-1), so that the limit is flat there too.) The penalty of
a graph does not change if all weights are shifted; the ridge makes it definite.

Nodes with no class at or below them are left out first (in a tree they cost nothing; in a DAG they would couple their
parents). Nodes without documents are eliminated exactly. The result is the covariance K of the weights of the
classes: the inverse of the precision above, restricted to the classes, with the regulariser 1/2 tr(W K^-1 W'). The
solver needs a factor K = F'F that is sparse if the structure is: in a tree, F holds the square root of s_n for every
class and every node above it, so that the parts that classes share are differences of nodes from their parents;
otherwise F comes from a sparse Cholesky factor of the precision (`covariance_factor`).
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import spilu, splu

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.linear import LinearModel, PartsModel
from arbora.core.chunks import require_memory
from arbora.kernels.tree import count_factor, depths, elimination_tree, inverse_columns, postorder
from arbora.structure import Hierarchy, LabelGraph
from arbora.structure.hierarchy import append_leaves

# --- Sparse factor of the covariance that a sparse precision gives to some of its nodes ---------------------
#
# A precision Q = L D L' gives its nodes the covariance Q^-1 = F'F with F = D^(-1/2) L^-1. Column c of F has an
# entry for every node on the path from c to the root of the elimination tree (`kernels.tree`): its size is
# the sum of the depths of the classes in this tree, which depends on the order of elimination. A narrow band, the
# aim of many orders, is the worst choice: its tree is a chain, and F is half full. Minimum degree gives low trees
# on sparse graphs of labels. In postorder, the classes below a node of the tree are consecutive, so that blocks of
# classes share few parts.
#
# The tree is known before any number is computed: the memory of the factors is computed first, and refused if it is
# not available.


_FACTOR_BYTES = 44  # per entry of L: SuperLU holds L and U, and each is copied
_INVERSE_BYTES = 24  # per entry of F: value, row, and the passes over them


class Precision(NamedTuple):
    """Precision of the weights of nodes, and which of them are classes."""

    matrix: sp.csc_array
    classes: Ints


class Elimination(NamedTuple):
    """Precision matrix in elimination order, and its elimination tree."""

    matrix: sp.csc_array
    parent: Ints  # of every column; -1 for a root
    position: Ints  # of every node in the order


def minimum_degree(matrix: sp.csc_array) -> Ints:
    """Position of every node in the order of minimum degree: the node with the fewest neighbours comes next.

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


def _permuted(matrix: sp.csc_array, position: Ints) -> sp.csc_array:
    entries = sp.coo_array(matrix)
    rows, columns = (position[index] for index in entries.coords)
    return sp.csc_array((entries.data, (rows, columns)), shape=matrix.shape)


def eliminate(matrix: sp.csc_array) -> Elimination:
    """Permute a symmetric matrix to an order with a low elimination tree, in postorder."""
    position = minimum_degree(matrix)
    ordered = _permuted(matrix, position)
    parent = elimination_tree(ordered.indptr, ordered.indices)
    post = postorder(parent)
    below = np.where(parent >= 0, post[parent], -1)
    renumbered = np.empty_like(parent)
    renumbered[post] = below
    return Elimination(_permuted(ordered, post), renumbered, post[position])


def covariance_factor(precision: Precision) -> tuple[sp.csc_array, Ints]:
    """Factor F (n_parts x n_classes) with F'F the covariance of the classes, and the class of each of its columns.

    The columns are in postorder; parts without a class are left out.
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


def _check_memory(matrix: sp.csc_array, parent: Ints, columns: Ints) -> None:
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


# --- Coupling of classes by a label structure: the regulariser of their weights as a sparse matrix of shares ---


DEFAULT_COUPLING = 0.1  # on texts better than 0 and 1 at nearly all costs (benchmarks/RESULTS.md)
# Nodes with more classes below them share less: thousands of classes have little in common, and a strong common root
# makes training slow.
FADE = 16.0
RIDGE = 0.01  # of a graph at full coupling
_MAX_COUPLING = 1e4  # coupling of a node
_MIN_COUPLING = 1e-8  # coupling of a node in a precision, where 0 would be an infinity


class Coupling(NamedTuple):
    """Shares of the classes in the parts."""

    factor: sp.csc_array  # n_parts x n_classes, columns in the order of `order`
    order: Ints  # class at each position


def _numbers(values: Any, coupling: Any) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"coupling={coupling!r}: give a number, a number for each level, or a dict of node names to numbers."
        ) from None


def read_coupling(coupling: Any) -> tuple[Any, float | None]:
    """Return the coupling and the fade that a value of the parameter `coupling` means.

    One number, and each candidate of "cv", fades at nodes with many classes. What is given for each level or by name
    is used as it is.
    """
    return coupling, FADE if isinstance(coupling, str | Real) else None


def node_couplings(
    hierarchy: Hierarchy, coupling: Any, n_below: Matrix | None = None, fade: float | None = None
) -> Array:
    """Coupling of every node: one number, a sequence by depth (the last value holds below), or a dict of names.

    A number is multiplied by fade / n_below for nodes with more than `fade` classes below them.
    """
    values = np.ones(hierarchy.n_nodes)
    if isinstance(coupling, Mapping):
        values[hierarchy.encode(list(coupling))] = _numbers(list(coupling.values()), coupling)
    elif isinstance(coupling, Real):
        values[:] = coupling
    else:
        levels = _numbers(coupling, coupling).ravel()
        if not levels.size:
            raise ValueError(
                "coupling is an empty sequence: give a number for each level, from the roots down."
            )
        values[:] = levels[np.minimum(hierarchy.depth, levels.size - 1)]
    if not ((values >= 0) & np.isfinite(values)).all():
        raise ValueError(f"coupling={coupling!r}: couplings are finite numbers, 0 or more (0 is flat).")
    if values.max(initial=0.0) > _MAX_COUPLING:
        raise ValueError(
            f"coupling={coupling!r}: couplings are at most {_MAX_COUPLING:.0f}; beyond, classes are nearly "
            "equal, and training does not converge."
        )
    if fade is not None and n_below is not None and not isinstance(coupling, Mapping):
        values *= np.minimum(1.0, fade / np.maximum(n_below, 1))
    return values


def preorder(hierarchy: Hierarchy) -> Ints:
    """Position of every node in preorder; a node of a DAG follows one of its deepest parents."""
    # The first of the deepest parents: then all nodes below one node are in one level.
    child = np.repeat(np.arange(hierarchy.n_nodes), np.diff(hierarchy.parent_indptr))
    deepest = hierarchy.depth[hierarchy.parent_indices] == hierarchy.depth[child] - 1
    nodes, places = np.unique(child[deepest], return_index=True)
    first = np.full(hierarchy.n_nodes, -1)
    first[nodes] = hierarchy.parent_indices[deepest][places]
    size = np.ones(hierarchy.n_nodes, np.int64)
    for level in hierarchy.levels[:0:-1]:
        np.add.at(size, first[level], size[level])
    position = np.zeros(hierarchy.n_nodes, np.int64)
    for level in hierarchy.levels:
        level = level[np.argsort(first[level], kind="stable")]
        before = np.cumsum(size[level]) - size[level]
        opens = np.ones(level.size, bool)
        opens[1:] = first[level][1:] != first[level][:-1]
        before -= before[opens][np.cumsum(opens) - 1]
        parent = first[level]
        position[level] = before + np.where(parent >= 0, position[parent] + 1, 0)
    return position


def _merged(factor: sp.csr_array) -> sp.csc_array:
    """Merge parts with equal shares of the same classes (the nodes of a chain): their squares add up."""
    factor = factor[np.diff(factor.indptr) > 0]
    rng = np.random.default_rng(0)
    ones = sp.csr_array((np.ones(factor.nnz), factor.indices, factor.indptr), shape=factor.shape)
    pattern = np.asarray(ones @ rng.random((factor.shape[1], 2)))
    _, first, group = np.unique(pattern, axis=0, return_index=True, return_inverse=True)
    variance = np.bincount(group.ravel(), weights=factor.max(axis=1).toarray().ravel() ** 2)
    shares = factor[first]
    shares.data = np.repeat(np.sqrt(variance), np.diff(shares.indptr))
    return sp.csc_array(shares)


def _tree_factor(hierarchy: Hierarchy, class_nodes: Ints, strength: Array) -> sp.csc_array:
    above = sp.csr_array(hierarchy.ancestor_matrix[class_nodes].astype(np.float64))
    n_classes = len(class_nodes)
    n_below = np.asarray(above.sum(axis=0)).ravel()
    is_leaf = np.zeros(hierarchy.n_nodes, bool)
    is_leaf[class_nodes] = n_below[class_nodes] == 1  # no other class below: the class is a leaf
    variance = np.where(is_leaf, 1.0, strength)
    spawned = np.flatnonzero(~is_leaf[class_nodes])
    leaves = sp.csr_array(
        (np.ones(spawned.size), (np.arange(spawned.size), spawned)), shape=(spawned.size, n_classes)
    )
    shares = sp.csr_array(sp.diags_array(np.sqrt(variance)) @ above.T)
    shares.eliminate_zeros()
    return _merged(sp.vstack([shares, leaves], format="csr"))


def _laplacian(n: int, a: Matrix, b: Matrix, weight: Matrix) -> sp.csr_array:
    rows, columns = np.concatenate([a, b, a, b]), np.concatenate([a, b, b, a])
    return sp.csr_array((np.concatenate([weight, weight, -weight, -weight]), (rows, columns)), shape=(n, n))


def hierarchy_precision(hierarchy: Hierarchy, class_nodes: Ints, strength: Array) -> Precision:
    """Precision of the weights of the nodes with a class at or below them, including spawned leaves."""
    above = hierarchy.ancestor_matrix[class_nodes]
    n_below = np.asarray(above.sum(axis=0)).ravel()
    alone = n_below[class_nodes] == 1
    n = hierarchy.n_nodes
    spawned = np.flatnonzero(~alone)
    leaves = class_nodes.copy()
    leaves[spawned] = n + np.arange(spawned.size)
    total = n + spawned.size
    is_leaf = np.zeros(total, bool)
    is_leaf[leaves] = True
    parent, child = append_leaves(hierarchy.edges, n, class_nodes[spawned]).T
    s = np.ones(total)
    s[:n] = np.maximum(strength, _MIN_COUPLING)
    n_parents = np.bincount(child, minlength=total)
    leaf_weight = n_parents[child] ** (np.minimum(s[parent], 1.0) - 1.0)
    weight = np.where(is_leaf[child], leaf_weight, 1.0 / s[child])
    roots = hierarchy.root_ids
    ridge = np.zeros(total)
    ridge[roots] = np.where(is_leaf[roots], 1.0, 1.0 / s[roots])
    useful = np.append(n_below > 0, np.ones(spawned.size, bool))
    ids = np.flatnonzero(useful)
    between = useful[parent] & useful[child]
    matrix = _laplacian(total, parent[between], child[between], weight[between]) + sp.diags_array(ridge)
    position = np.empty(total, np.int64)
    position[ids] = np.arange(ids.size)
    return Precision(sp.csc_array(matrix.tocsr()[ids][:, ids]), position[leaves])


def _graph_precision(graph: LabelGraph, class_nodes: Ints, coupling: float) -> Precision:
    a, b = graph.edges.T
    matrix = _laplacian(graph.n_nodes, a, b, coupling * graph.weights)
    matrix = matrix + sp.diags_array(np.full(graph.n_nodes, max(1.0 - coupling, RIDGE)))
    return Precision(sp.csc_array(matrix), class_nodes)


def couple(
    structure: Hierarchy | LabelGraph,
    class_nodes: Ints,
    coupling: Any,
    fade: float | None = None,
) -> Coupling:
    """Factor of the covariance of the weights of the classes, for a structure and a coupling.

    `class_nodes` carry documents. `coupling` is a number, a sequence of numbers by depth, or a dict from the names of
    nodes; for a graph a number in [0, 1]. The coupling of an inner node with more than `fade` classes below it is
    reduced; None reduces none.
    """
    class_nodes = np.asarray(class_nodes, np.int64)
    if isinstance(structure, LabelGraph):
        if _graph_coupling(coupling) == 0:
            return Coupling(sp.eye_array(len(class_nodes), format="csc"), np.arange(len(class_nodes)))
        return Coupling(*covariance_factor(_graph_precision(structure, class_nodes, float(coupling))))
    strength = _strengths(structure, class_nodes, coupling, fade)
    if not structure.is_tree and strength.any():
        return Coupling(*covariance_factor(hierarchy_precision(structure, class_nodes, strength)))
    order = np.argsort(preorder(structure)[class_nodes], kind="stable")
    factor = sp.csr_array(_tree_factor(structure, class_nodes, strength)[:, order])
    return Coupling(sp.csc_array(factor[np.diff(factor.indptr) > 0]), order)


def _graph_coupling(coupling: Any) -> float:
    if not isinstance(coupling, Real) or not 0 <= float(coupling) <= 1:
        raise ValueError(f"coupling={coupling!r}: for a label graph it is a number in [0, 1].")
    return float(coupling)


def _strengths(hierarchy: Hierarchy, class_nodes: Ints, coupling: Any, fade: float | None) -> Array:
    n_below = np.asarray(hierarchy.ancestor_matrix[class_nodes].sum(axis=0)).ravel()
    return node_couplings(hierarchy, coupling, n_below, fade)


def _given_classes(precision: Precision, nodes: Ints) -> Array:
    """Weights of nodes as mixtures of those of the classes: the minimiser of the quadratic form."""
    matrix, classes = sp.csr_array(precision.matrix), precision.classes
    column = np.full(matrix.shape[0], -1)
    column[classes] = np.arange(len(classes))
    mixtures = np.zeros((len(nodes), len(classes)))
    itself = column[nodes] >= 0
    mixtures[itself, column[nodes[itself]]] = 1.0
    free = np.flatnonzero(column < 0)
    if itself.all():
        return mixtures
    # With Q_ff w_f = -Q_fc w_c, the rows that are wanted are -(Q_ff^-1 e)' Q_fc.
    ordered, parent, position = eliminate(sp.csc_array(matrix[free][:, free]))
    n_entries = int(count_factor(ordered.indptr, ordered.indices, parent))
    n_numbers = (len(nodes) - itself.sum()) * (2 * len(free) + len(classes))
    require_memory(
        _FACTOR_BYTES * n_entries + 8 * int(n_numbers),
        f"The weights of {len(nodes)} nodes by those of {len(classes)} classes",
        "Ask for fewer nodes at a time.",
    )
    factor = splu(ordered, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    units = np.zeros((len(free), int((~itself).sum())))
    units[position[np.searchsorted(free, nodes[~itself])], np.arange(units.shape[1])] = 1.0
    solved = factor.solve(units)[position]
    mixtures[~itself] = -(sp.csr_array(matrix[free][:, classes]).T @ solved).T
    return mixtures


def _nearest_alive(hierarchy: Hierarchy, alive: NDArray[np.bool_], nodes: Ints) -> sp.csr_array:
    """Nodes as mixtures of the nodes with a class at or below them: any other node is the mean of its parents.

    This minimises its own terms, given its parents, which it does not influence. A root without classes is at 0.
    """
    child = np.repeat(np.arange(hierarchy.n_nodes), np.diff(hierarchy.parent_indptr))
    n_parents = np.diff(hierarchy.parent_indptr)[child]
    empty = ~alive[child]
    rows = np.concatenate([np.flatnonzero(alive), child[empty]])
    columns = np.concatenate([np.flatnonzero(alive), hierarchy.parent_indices[empty]])
    shares = np.concatenate([np.ones(alive.sum()), 1.0 / n_parents[empty]])
    step = sp.csr_array((shares, (rows, columns)), shape=(hierarchy.n_nodes,) * 2)
    shares_of_wanted = sp.csr_array(
        (np.ones(len(nodes)), nodes, np.arange(len(nodes) + 1)), shape=(len(nodes), hierarchy.n_nodes)
    )
    while not alive[shares_of_wanted.indices].all():  # one level up at a time
        shares_of_wanted = sp.csr_array(shares_of_wanted @ step)
    return shares_of_wanted


def expected_weights(
    structure: Hierarchy | LabelGraph,
    class_nodes: Ints,
    nodes: Ints,
    coupling: Any,
    fade: float | None = None,
) -> Array:
    """Matrix (n_nodes x n_classes) that gives the weights of other nodes from those of the classes.

    The result is the exact minimiser of the regulariser. `nodes` are inner nodes of a hierarchy, or nodes
    without documents, which depend on the nodes above them and not on each other; they do not count as classes for
    `fade`.
    """
    class_nodes, nodes = np.asarray(class_nodes, np.int64), np.asarray(nodes, np.int64)
    if isinstance(structure, LabelGraph):
        precision = _graph_precision(structure, class_nodes, _graph_coupling(coupling))
        return _given_classes(precision, nodes)
    strength = _strengths(structure, class_nodes, coupling, fade)
    alive = np.asarray(structure.ancestor_matrix[class_nodes].sum(axis=0)).ravel() > 0
    mixtures = _nearest_alive(structure, alive, nodes)
    used, columns = np.unique(mixtures.indices, return_inverse=True)
    mixtures = sp.csr_array((mixtures.data, columns, mixtures.indptr), shape=(len(nodes), len(used)))
    precision = hierarchy_precision(structure, class_nodes, strength)
    shares = _given_classes(precision, (np.cumsum(alive) - 1)[used])
    if not strength.any():
        shares[shares < 1] = 0.0  # inner nodes are exactly 0, not up to a large precision
    return np.asarray(mixtures @ shares)


# --- Weights of any nodes of a structure as mixtures of those of the classes --------------------------------


def node_weights(
    model: LinearModel | PartsModel,
    structure: Hierarchy | LabelGraph,
    class_nodes: Ints,
    nodes: Ints,
    *,
    coupling: Any,
    fade: float | None,
    dtype: Any,
) -> LinearModel:
    """Weights of `nodes`: the minimiser of the regulariser, given the weights of the classes.

    `class_nodes` is the node of each class in `model`; `coupling` and `fade` as for `couple`.
    """
    n_features = model[0].shape[1]
    require_memory(
        2 * len(nodes) * (n_features + 1) * np.dtype(dtype).itemsize,
        f"The weights of {len(nodes)} nodes and {n_features} features",
        "Ask for fewer nodes at a time.",
    )
    return mixed(model, mixing_of(structure, class_nodes, nodes, coupling, fade), dtype)


def mixing_of(
    structure: Any,
    class_nodes: Ints,
    nodes: Ints,
    coupling: Any,
    fade: float | None,
) -> sp.csr_array:
    """Weights of any nodes as mixtures of those of the classes (n_nodes x n_classes)."""
    column = {node: position for position, node in enumerate(class_nodes.tolist())}
    row = np.array([column.get(node, -1) for node in nodes.tolist()], dtype=np.int64)
    is_class = row >= 0
    other, place = np.unique(nodes[~is_class], return_inverse=True)
    rows = sp.csr_array(expected_weights(structure, class_nodes, other, coupling, fade))
    stacked = sp.vstack([sp.eye_array(len(class_nodes)), rows], format="csr")
    row[~is_class] = len(class_nodes) + place
    return sp.csr_array(stacked[row])


def mixed(model: LinearModel | PartsModel, mixing: sp.csr_array, dtype: Any) -> LinearModel:
    """Dense weights of mixtures of the classes of a model."""
    intercept = mixing @ model.intercept
    if isinstance(model, LinearModel):
        # Mixtures of few classes need few rows; a sparse product would copy all of them.
        used = np.unique(mixing.indices)
        few = 2 * len(used) < mixing.shape[1]
        coef = model.coef[used] if few else model.coef
        shares = (mixing[:, used] if few else mixing).toarray().astype(dtype)
        return LinearModel(np.asarray(shares @ coef, dtype), intercept)
    parts_shares = sp.csr_array(model.sharing @ mixing.T)
    return LinearModel((model.parts.T @ parts_shares).toarray().T.astype(dtype), intercept)
