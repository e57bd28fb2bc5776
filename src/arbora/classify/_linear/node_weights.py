"""Weights of any nodes of a structure as mixtures of those of the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify._linear.coupling import expected_weights
from arbora.classify._linear.linear_model import LinearModel, PartsModel
from arbora.core.chunks import require_memory
from arbora.structure import Hierarchy, LabelGraph


def node_weights(
    model: LinearModel | PartsModel,
    structure: Hierarchy | LabelGraph,
    class_nodes: NDArray[np.int64],
    wanted: NDArray[np.int64],
    *,
    coupling: Any,
    fade: float | None,
    dtype: Any,
) -> LinearModel:
    """Weights of the nodes `wanted`: the minimiser of the regulariser, given the weights of the classes.

    Parameters
    ----------
    model : LinearModel or PartsModel
        Weights of the classes.
    structure : Hierarchy or LabelGraph
    class_nodes : ndarray of int
        Node of each class.
    wanted : ndarray of int
    coupling, fade
        See `coupling.couple`.
    dtype : dtype
    """
    n_features = model[0].shape[1]
    require_memory(
        2 * len(wanted) * (n_features + 1) * np.dtype(dtype).itemsize,
        f"The weights of {len(wanted)} nodes and {n_features} features",
        "Ask for fewer nodes at a time.",
    )
    return mixed(model, mixing_of(structure, class_nodes, wanted, coupling, fade), dtype)


def mixing_of(
    structure: Any,
    class_nodes: NDArray[np.int64],
    wanted: NDArray[np.int64],
    coupling: Any,
    fade: float | None,
) -> sp.csr_array:
    """Weights of any nodes as mixtures of those of the classes (n_wanted x n_classes)."""
    column = {node: position for position, node in enumerate(class_nodes.tolist())}
    known = np.array([column.get(node, -1) for node in wanted.tolist()], dtype=np.int64)
    is_class = known >= 0
    other, which = np.unique(wanted[~is_class], return_inverse=True)
    rows = sp.csr_array(expected_weights(structure, class_nodes, other, coupling, fade))
    stacked = sp.vstack([sp.eye_array(len(class_nodes)), rows], format="csr")
    known[~is_class] = len(class_nodes) + which
    return sp.csr_array(stacked[known])


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
