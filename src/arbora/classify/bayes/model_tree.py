"""The tree that a hierarchical Bayesian model fits, made from the one its user gives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.classify._common.routes import build_routes
from arbora.infer.tree.gaussian import Tree, make_tree
from arbora.structure import Hierarchy


class ModelTree(NamedTuple):
    """The tree that is fitted: inner nodes first, then the classes in their order, all of them leaves."""

    hierarchy: Hierarchy  # node ids are rows of the weights
    tree: Tree


def model_tree(hierarchy: Hierarchy, class_nodes: NDArray[np.int64]) -> ModelTree:
    """Make the tree of the model from the user's.

    A class on an inner node becomes a leaf below it, several roots get one above them, and nodes without documents
    below them are left out.

    Examples
    --------
    >>> made = model_tree(Hierarchy.from_paths(["a/b", "c"]), np.array([0, 1, 2]))
    >>> made.hierarchy.names
    array(['root', 'a', 'a/*', 'a/b', 'c'], dtype=object)
    >>> made.tree.parent
    array([-1,  0,  1,  1,  0])
    """
    if not hierarchy.is_tree:
        raise ValueError(
            "the structure is a DAG: a node has several parents, but its weights can lie around those of one only. "
            "Give a tree (Hierarchy.from_edges with one parent for each node), or use RecursiveLogisticRegression, "
            "which takes DAGs and graphs."
        )
    routes, leaves = build_routes(hierarchy, class_nodes)
    inner = np.setdiff1d(routes.order, leaves, assume_unique=True)
    inner = inner[np.argsort(routes.depth[inner], kind="stable")]
    order = np.concatenate([inner, leaves])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    above = routes.parent[order]
    parent = np.where(above >= 0, place[above], -1)
    named = Hierarchy(routes.names[order], np.column_stack([parent, np.arange(len(order))])[parent >= 0])
    return ModelTree(named, make_tree(parent, np.arange(len(inner), len(order))))
