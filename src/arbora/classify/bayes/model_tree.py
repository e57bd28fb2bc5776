"""The tree that a hierarchical Bayesian model fits, derived from the structure of the user."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.classify.estimator import build_routes
from arbora.infer.tree.gaussian import Tree, make_tree
from arbora.structure import Hierarchy


class ModelTree(NamedTuple):
    """The fitted tree: inner nodes first, then the classes in their order. All classes are leaves."""

    hierarchy: Hierarchy  # node ids are rows of the weights
    tree: Tree


def model_tree(hierarchy: Hierarchy, class_nodes: NDArray[np.int64]) -> ModelTree:
    """Derive the tree of the model from the structure.

    A class on an inner node becomes a leaf below it, several roots get a common parent, and nodes without documents
    at or below them are left out.

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
            "the structure is a DAG, in which a node has several parents, but the model needs a tree. Give each node "
            "one parent, or use RecursiveLogisticRegression, which accepts DAGs and graphs."
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
