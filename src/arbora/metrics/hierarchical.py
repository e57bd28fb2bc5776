r"""Measures over a hierarchy: F1 by level, hierarchical F1 and tree-induced error.

Every label set is first closed under ancestors. With :math:`\hat T_i, \hat P_i` the closed sets of true and
predicted nodes of row ``i``, without the root,

.. math::
    hP = \frac{\sum_i |\hat T_i \cap \hat P_i|}{\sum_i |\hat P_i|}, \qquad
    hR = \frac{\sum_i |\hat T_i \cap \hat P_i|}{\sum_i |\hat T_i|}, \qquad
    hF = \frac{2\,hP\,hR}{hP + hR}

(Kiritchenko et al. 2006). The tree-induced error (Dekel et al. 2004) is the number of edges between the true
and the predicted node; in a tree that is the size of the symmetric difference of the closed sets, which also
defines it for DAGs and for several labels per row. F1 by level is Table 3.6 of Gopal's thesis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from arbora.metrics.classification import (
    Average,
    ClassCounts,
    Counted,
    GroupedF1,
    average_groups,
    choose_baseline,
    choose_classes,
    count_classes,
    count_ratios,
    named_arguments,
    side_by_side,
    single_table,
)
from arbora.metrics.labels import to_node_indicators
from arbora.metrics.table import Table

if TYPE_CHECKING:
    from arbora.structure import Hierarchy


class HierarchicalScores(NamedTuple):
    """Micro-averaged precision, recall and F1 of label sets closed under ancestors."""

    precision: float
    recall: float
    f1: float


def _by_level(matrices: tuple[sparse.csr_array, ...], hierarchy: Hierarchy, nodes: str) -> GroupedF1:
    """F1 by level of each system; the first matrix is the truth, the others are the systems."""
    counts = [count_classes(matrices[0], system) for system in matrices[1:]]
    depth = np.asarray(hierarchy.depth)
    groups = np.where(choose_classes(counts, nodes, "nodes"), depth, -1)
    return average_groups(counts, groups, int(depth.max()) + 1)


def f1_by_level(y_true: Any, y_pred: Any, hierarchy: Hierarchy, *, nodes: Counted = "seen") -> Table:
    """Micro- and macro-F1 at each level of a hierarchy.

    Truth and predictions are closed under ancestors, and each node of a level is a class.

    Parameters
    ----------
    y_true, y_pred : 1-d array of node names or ids, list of lists of them, or 0/1 matrix (n_samples, n_nodes)
        Truth and predictions. Any node may be a label. Integers are node ids, unless some node names are
        integers.
    hierarchy : Hierarchy
        Tree, forest or DAG. Level 1 holds the roots. In a DAG the depth of a node is that of its longest path.
    nodes : {"seen", "true", "all"}, default="seen"
        Nodes to average: those true or predicted in some row, those true in some row, or all nodes of the
        hierarchy (a node neither true nor predicted has F1 zero).

    Returns
    -------
    Table
        Columns ``Level, Micro-F1, Macro-F1, # Nodes`` (number of nodes averaged).

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> tree = Hierarchy.from_edges([("top", "art"), ("top", "law"), ("art", "film"), ("art", "song")])
    >>> print(f1_by_level(["film", "song", "law"], ["film", "film", "law"], tree))
    Level  Micro-F1  Macro-F1  # Nodes
    -----  --------  --------  -------
        1    100.00    100.00        1
        2    100.00    100.00        2
        3     50.00     33.33        2
    """
    matrices = to_node_indicators({"y_true": y_true, "y_pred": y_pred}, hierarchy)
    scores = _by_level(matrices, hierarchy, nodes)
    return single_table("Level", range(1, len(scores.n_classes) + 1), scores, "# Nodes")


def compare_by_level(
    y_true: Any,
    predictions: Mapping[str, Any],
    hierarchy: Hierarchy,
    *,
    average: Average = "macro",
    baseline: str | None = None,
    nodes: Counted = "seen",
) -> Table:
    """F1 by level of several systems, with gains over a baseline, as in Table 3.6 of the thesis.

    Parameters
    ----------
    y_true, hierarchy
        As in :func:`f1_by_level`.
    predictions : mapping of str to labels
        Name of each system and its predictions.
    average : {"macro", "micro"}, default="macro"
        Which F1 to show.
    baseline : str, optional
        System that gains are relative to; by default the first.
    nodes : {"seen", "true", "all"}, default="seen"
        As in :func:`f1_by_level`, but seen in the truth or in **any** prediction, so that all systems are
        averaged over the same nodes.

    Returns
    -------
    Table

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> tree = Hierarchy.from_edges([("top", "art"), ("top", "law"), ("art", "film"), ("art", "song")])
    >>> truth, flat = ["film", "song", "law"], ["film", "film", "law"]
    >>> print(compare_by_level(truth, {"flat": flat, "tree": truth}, tree))
    Level  flat Macro-F1  tree Macro-F1   tree gain  # Nodes
    -----  -------------  -------------  ----------  -------
        1         100.00         100.00    (+0.00%)        1
        2         100.00         100.00    (+0.00%)        2
        3          33.33         100.00  (+200.00%)        2
    gain: relative to flat
    """
    baseline = choose_baseline(predictions, baseline)
    matrices = to_node_indicators(named_arguments(y_true, predictions), hierarchy)
    scores = _by_level(matrices, hierarchy, nodes)
    levels = range(1, len(scores.n_classes) + 1)
    return side_by_side(
        "Level", levels, list(predictions), scores, "# Nodes", average=average, baseline=baseline
    )


def hierarchical_precision_recall_f1(y_true: Any, y_pred: Any, hierarchy: Hierarchy) -> HierarchicalScores:
    """Hierarchical precision, recall and F1, which give partial credit to predictions near the truth.

    A single root is left out, since every closed set contains it. The roots of a forest count like other
    nodes. A ratio with denominator zero is 0.

    Parameters
    ----------
    y_true, y_pred, hierarchy
        As in :func:`f1_by_level`.

    Returns
    -------
    HierarchicalScores
        Named tuple ``precision, recall, f1``.

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> tree = Hierarchy.from_edges([("top", "art"), ("top", "law"), ("art", "film"), ("art", "song")])
    >>> hierarchical_precision_recall_f1(["film"], ["song"], tree)
    HierarchicalScores(precision=0.5, recall=0.5, f1=0.5)
    >>> hierarchical_precision_recall_f1(["film"], ["art"], tree)
    HierarchicalScores(precision=1.0, recall=0.5, f1=0.666...)
    """
    matrices = to_node_indicators({"y_true": y_true, "y_pred": y_pred}, hierarchy)
    roots = np.asarray(hierarchy.root_ids)
    counted = np.ones(hierarchy.n_nodes, dtype=bool)
    if len(roots) == 1:
        counted[roots] = False
    pooled = ClassCounts(*(count[counted].sum() for count in count_classes(*matrices)))
    return HierarchicalScores(*map(float, count_ratios(pooled)))


def hierarchical_f1(y_true: Any, y_pred: Any, hierarchy: Hierarchy) -> float:
    """Hierarchical F1; see :func:`hierarchical_precision_recall_f1`.

    Parameters
    ----------
    y_true, y_pred, hierarchy
        As in :func:`f1_by_level`.

    Returns
    -------
    float

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> tree = Hierarchy.from_edges([("top", "art"), ("top", "law"), ("art", "film"), ("art", "song")])
    >>> hierarchical_f1(["film"], ["song"], tree)
    0.5
    """
    return hierarchical_precision_recall_f1(y_true, y_pred, hierarchy).f1


def tree_induced_error(y_true: Any, y_pred: Any, hierarchy: Hierarchy) -> float:
    """Mean number of edges between truth and prediction.

    For one label per row in a tree it is the length of the path between the two nodes; the trees of a forest
    are joined under one additional root. In general it is the mean size of the symmetric difference of the
    label sets closed under ancestors: the nodes wrongly predicted plus the nodes missed.

    Parameters
    ----------
    y_true, y_pred, hierarchy
        As in :func:`f1_by_level`.

    Returns
    -------
    float
        Zero if all label sets, closed under ancestors, are equal.

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> tree = Hierarchy.from_edges([("top", "art"), ("top", "law"), ("art", "film"), ("art", "song")])
    >>> tree_induced_error(["film", "film"], ["song", "law"], tree)
    2.5
    """
    true, pred = to_node_indicators({"y_true": y_true, "y_pred": y_pred}, hierarchy)
    shared = true.multiply(pred).nnz
    return float((true.nnz + pred.nnz - 2 * shared) / true.shape[0])
