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
from numpy.typing import ArrayLike

from arbora.metrics.ranking import align_truth, check_scores


class ReliabilityCurve(NamedTuple):
    """Mean confidence, accuracy and number of rows of each bin that holds rows; edges of all bins."""

    confidence: np.ndarray
    accuracy: np.ndarray
    n_rows: np.ndarray
    edges: np.ndarray


def _confidence_and_hit(
    y_true: Any, proba: ArrayLike, classes: Iterable[Any] | None
) -> tuple[np.ndarray, np.ndarray]:
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
