r"""Calibration of probabilities: of the predictions with confidence 0.8, 8 in 10 should be right.

Rows are binned by confidence. With the accuracy and mean confidence of bin ``b``, which holds :math:`n_b` rows,

.. math:: ECE = \sum_b \frac{n_b}{N} \left| \mathrm{accuracy}_b - \mathrm{confidence}_b \right|

(Naeini et al. 2015, Guo et al. 2017). The estimate depends on the bins, so the result includes them.
For log-loss and Brier score use ``sklearn.metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbora.arrays import Matrix
from arbora.metrics.labels import to_node_indicators
from arbora.metrics.ranking import align_truth, check_scores
from arbora.metrics.table import Table
from arbora.structure import Hierarchy


class ReliabilityCurve(NamedTuple):
    """Mean confidence, accuracy and number of rows of each bin that holds rows; edges of all bins."""

    confidence: Matrix
    accuracy: Matrix
    n_rows: Matrix
    edges: Matrix


def _confidence_and_hit(
    y_true: Any, proba: ArrayLike, classes: Iterable[Any] | None
) -> tuple[Matrix, Matrix]:
    table = np.asarray(proba)
    binary = table.ndim == 1
    table = check_scores(table[:, None] if binary else table, "proba")
    if table.min() < 0 or table.max() > 1:
        raise ValueError(f"proba must lie between 0 and 1, found {table.min()} to {table.max()}")
    if binary:
        outcome = np.asarray(y_true)
        if outcome.shape != (len(table),):
            raise ValueError(f"y_true has shape {outcome.shape} but proba has {len(table)} rows")
        if not np.isin(outcome, (0, 1)).all():
            raise ValueError("for one probability per row, y_true must hold 0 and 1 (or False and True)")
        return table[:, 0], outcome.astype(bool)
    truth, _ = align_truth(y_true, table, classes)
    best = table.argmax(axis=1)
    rows = np.arange(len(table))
    return table[rows, best], np.asarray(truth[rows, best]).ravel().astype(bool)


def reliability_curve(
    y_true: Any,
    proba: ArrayLike,
    *,
    classes: Iterable[Any] | None = None,
    n_bins: int = 15,
    strategy: Literal["uniform", "quantile"] = "uniform",
) -> ReliabilityCurve:
    """Accuracy against confidence, bin by bin.

    Parameters
    ----------
    y_true : labels as for :func:`arbora.metrics.precision_at_k`; 0 and 1 when ``proba`` is 1-d
        Truth. A multilabel row is right if its most probable class is one of its labels.
    proba : array of shape (n_samples, n_classes) or (n_samples,)
        Probabilities; the confidence of a row is its largest one. A 1-d array holds the probability of
        outcome 1. For independent labels, pass ``indicator.ravel(), proba.ravel()``.
    classes : iterable, optional
        Names of the columns of ``proba``.
    n_bins : int, default=15
        Number of bins.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or with equal numbers of rows.

    Returns
    -------
    ReliabilityCurve
        Named tuple ``confidence, accuracy, n_rows, edges``. Empty bins are omitted from the first three.

    Examples
    --------
    >>> curve = reliability_curve([1, 0, 1, 1], [0.9, 0.2, 0.8, 0.3], n_bins=2)
    >>> curve.accuracy, curve.n_rows
    (array([0.5, 1. ]), array([2, 2]))
    """
    if not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, got {n_bins!r}")
    confidence, hit = _confidence_and_hit(y_true, proba, classes)
    grid = np.linspace(0, 1, n_bins + 1)
    if strategy == "quantile":
        grid = np.quantile(confidence, grid)
    elif strategy != "uniform":
        raise ValueError(f"strategy must be 'uniform' or 'quantile', got {strategy!r}")
    # Compare with the inner edges only, so that 0 and 1 fall into the outermost bins.
    place = np.searchsorted(grid[1:-1], confidence)
    count = np.bincount(place)
    filled = count > 0
    mean_confidence, accuracy = (
        np.bincount(place, weights=values)[filled] / count[filled] for values in (confidence, hit)
    )
    return ReliabilityCurve(mean_confidence, accuracy, count[filled], grid)


def expected_calibration_error(
    y_true: Any,
    proba: ArrayLike,
    *,
    classes: Iterable[Any] | None = None,
    n_bins: int = 15,
    strategy: Literal["uniform", "quantile"] = "uniform",
) -> float:
    """Mean absolute difference of accuracy and confidence over the bins of a reliability curve.

    Parameters
    ----------
    y_true, proba, classes, n_bins, strategy
        As in :func:`reliability_curve`.

    Returns
    -------
    float
        Between 0 (calibrated) and 1.

    Examples
    --------
    >>> expected_calibration_error([1, 0, 1, 1], [0.75, 0.75, 0.75, 0.75])
    0.0
    """
    curve = reliability_curve(y_true, proba, classes=classes, n_bins=n_bins, strategy=strategy)
    return float(np.average(np.abs(curve.accuracy - curve.confidence), weights=curve.n_rows))


# --- Quality of node probabilities at each level of a hierarchy: log loss, Brier score and calibration error ---
#
# A row counts at a level if a node of the level lies at or above one of its labels. With one label per row, the nodes
# of a level are alternatives: for the true node ``t`` of a row and the probabilities :math:`p_u` of the level,
#
# .. math:: \mathrm{log\ loss} = -\log p_t, \qquad \mathrm{Brier} = \sum_u (p_u - [u = t])^2 .
#
# With several labels, or in a DAG, where a label may have several nodes above it on one level, each node is a
# decision of its own: both are sums over the nodes of the level. The expected calibration error is that of the most
# probable node of the level. All values are means over rows.


_MIN_PROBABILITY = 1e-15  # probability in a logarithm


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


def _scores(proba: Matrix, truth: NDArray[np.bool_]) -> tuple[float, float, float]:
    losses = -np.log(np.maximum(np.where(truth, proba, 1 - proba), _MIN_PROBABILITY))
    exclusive = bool((truth.sum(axis=1) == 1).all())
    loss = losses[truth].mean() if exclusive else losses.sum(axis=1).mean()
    brier = np.square(proba - truth).sum(axis=1).mean()
    best = proba.argmax(axis=1)
    rows = np.arange(len(best))
    error = expected_calibration_error(truth[rows, best].astype(int), proba[rows, best])
    return float(loss), float(brier), error
