r"""Quality of node probabilities at each level of a hierarchy: log loss, Brier score and calibration error.

A row counts at a level if a node of the level lies at or above one of its labels. With one label per row, the nodes
of a level are alternatives: for the true node ``t`` of a row and the probabilities :math:`p_u` of the level,

.. math:: \mathrm{log\ loss} = -\log p_t, \qquad \mathrm{Brier} = \sum_u (p_u - [u = t])^2 .

With several labels, or in a DAG, where a label may have several nodes above it on one level, each node is a decision
of its own: both are sums over the nodes of the level. The expected calibration error is that of the most probable
node of the level. All values are means over rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbora.metrics.calibration import expected_calibration_error
from arbora.metrics.labels import to_node_indicators
from arbora.metrics.table import Table
from arbora.structure import Hierarchy

_SMALLEST = 1e-15  # probability in a logarithm


def calibration_by_level(y_true: Any, node_proba: ArrayLike, hierarchy: Hierarchy) -> Table:
    """Log loss, Brier score and expected calibration error of node probabilities at each level.

    Parameters
    ----------
    y_true : 1-d array of node names or ids, list of lists of them, or 0/1 matrix (n_samples, n_nodes)
    node_proba : array-like of shape (n_samples, n_nodes)
        As `predict_node_proba` returns them.
    hierarchy : Hierarchy

    Returns
    -------
    Table
        Columns ``Level, Log loss, Brier, Calibration error, # Rows``; level 1 holds the roots. Levels without rows
        are left out.

    Examples
    --------
    >>> from arbora.structure import Hierarchy
    >>> tree = Hierarchy.from_edges([("top", "art"), ("top", "law")])
    >>> print(calibration_by_level(["art", "law"], [[1.0, 0.5, 0.5], [1.0, 0.25, 0.75]], tree))
    Level  Log loss  Brier  Calibration error  # Rows
    -----  --------  -----  -----------------  ------
        1     0.000  0.000              0.000       2
        2     0.490  0.312              0.375       2
    """
    (truth,) = to_node_indicators({"y_true": y_true}, hierarchy)
    proba = np.asarray(node_proba, dtype=np.float64)
    if proba.shape != truth.shape:
        raise ValueError(
            f"node_proba has shape {proba.shape}, but there are {truth.shape[0]} rows and {truth.shape[1]} nodes: "
            "give one column for each node of the hierarchy."
        )
    proba, depth = np.clip(proba, 0.0, 1.0), np.asarray(hierarchy.depth)
    dense = truth.toarray() > 0
    rows = []
    for level in range(int(depth.max()) + 1):
        nodes = np.flatnonzero(depth == level)
        counted = np.flatnonzero(dense[:, nodes].any(axis=1))
        if counted.size:
            here = np.ix_(counted, nodes)
            rows.append((level + 1, *_scores(proba[here], dense[here]), len(counted)))
    columns = ("Level", "Log loss", "Brier", "Calibration error", "# Rows")
    return Table(columns, tuple(rows), ("d", ".3f", ".3f", ".3f", ",d"))


def _scores(proba: NDArray[Any], truth: NDArray[np.bool_]) -> tuple[float, float, float]:
    losses = -np.log(np.maximum(np.where(truth, proba, 1 - proba), _SMALLEST))
    exclusive = bool((truth.sum(axis=1) == 1).all())
    loss = losses[truth].mean() if exclusive else losses.sum(axis=1).mean()
    brier = np.square(proba - truth).sum(axis=1).mean()
    best = proba.argmax(axis=1)
    rows = np.arange(len(best))
    error = expected_calibration_error(truth[rows, best].astype(int), proba[rows, best])
    return float(loss), float(brier), error
