"""The most probable class of a tree of linear choices, without the scores of all edges.

A best-first search from the root down (see `arbora.kernels.descent`). Its answer is exact: the probability of a node
bounds those of all nodes below it. A document opens a few nodes per level, so the time of a prediction grows with the
depth of the tree and not with the number of classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify.linear import LinearModel, as_csr
from arbora.classify.probabilities import Calibration
from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.core.products import is_small
from arbora.structure import Hierarchy

_CHUNK_ROWS = 512
_FEW_EDGES = 512  # the scores of so few edges take less time than a search


class Leaves(NamedTuple):
    """Most probable leaf of each row, the logarithm of its probability, and the number of nodes that were opened."""

    leaf: NDArray[np.int64]
    log_proba: NDArray[np.float64]
    n_opened: NDArray[np.int64]


def can_search(X: Any, model: Any, routes: Hierarchy) -> bool:
    """Whether a search applies: sparse weights of a tree with many edges, and more than a few sparse rows.

    In a DAG the probabilities of several paths to a node add up, and a node does not bound those below it.
    """
    if not hasattr(model.coef, "indptr") or not routes.is_tree or model.coef.shape[0] < _FEW_EDGES:
        return False
    return not (hasattr(X, "indptr") and is_small(X, model.coef.shape[0]))


def best_leaves(
    X: Any, model: LinearModel, calibration: Calibration, routes: Hierarchy, engine: Engine
) -> Leaves:
    """Find the most probable leaf of each row.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
    model : LinearModel
        Sparse weights, one row for each edge; the edges of a node are side by side.
    calibration : Calibration
        Scale and shift of the scores.
    routes : Hierarchy
        A tree with one root.
    engine : Engine
        Runs the chunks of rows.

    Returns
    -------
    Leaves
    """
    from arbora.kernels.descent import (
        find_best_leaves,
    )  # loaded when it is needed: compiled code takes time to load

    rows, weights = as_csr(X), sp.csc_array(model.coef)
    weights.sort_indices()
    found = Leaves(
        np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0]), np.zeros(rows.shape[0], np.int64)
    )
    data = rows.data.astype(weights.dtype, copy=False)
    arrays = rows.indptr, rows.indices, data, weights.indptr, weights.indices, weights.data

    def search(chunk: slice) -> None:
        find_best_leaves(
            *arrays, model.intercept, *map(float, calibration), routes.child_indptr, routes.child_indices,
            int(routes.root_ids[0]), chunk.start, chunk.stop, *found,
        )  # fmt: skip

    engine.map(search, split(rows.shape[0], size=_CHUNK_ROWS, even=False))
    return found
