"""Bootstrap confidence intervals of a measure, or of its difference between two systems.

Rows are drawn with replacement. The percentile interval contains the middle of the resampled values. The basic
interval reflects it about the measured value, ``2 value - high`` to ``2 value - low``, which corrects a bias of
the resampling. Macro-F1 over many classes with one or two test rows has such a bias: a resample omits some of
these classes and doubles others. With a baseline, both systems are measured on the same draws, so most of the
bias and of the variance due to hard rows cancels.

Micro- and macro-F1 depend only on class counts. The counts of many resamples are one product of row
multiplicities with the sparse indicators, so the labels are read once. Any other measure is called once for
each resample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from arbora.metrics.classification import (
    ClassCounts,
    class_f1,
    macro_average,
    macro_f1,
    micro_average,
    micro_f1,
)
from arbora.metrics.labels import Indicators, object_array, to_indicators

_CELLS = 1 << 22  # largest number of weights or counts in memory at a time (32 MB of float64)

Metric = Callable[[Any, Any], float]


class Interval(NamedTuple):
    """Value of a measure (or of a difference), its confidence interval and the resampled values."""

    value: float
    low: float
    high: float
    samples: np.ndarray


def bootstrap_interval(
    metric: Metric,
    y_true: Any,
    y_pred: Any,
    *,
    baseline: Any = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: Literal["percentile", "basic"] = "percentile",
    random_state: int | np.random.Generator | None = None,
) -> Interval:
    """Confidence interval of a measure, or of its difference between two systems.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_pred) -> float``. :func:`micro_f1` and :func:`macro_f1` use a fast path. Use
        ``functools.partial`` to set the options of a measure.
    y_true, y_pred : array, list or sparse matrix of n_samples rows
        Any form that ``metric`` accepts.
    baseline : same form as ``y_pred``, optional
        Predictions of another system. The interval is then that of ``metric(y_true, y_pred) -
        metric(y_true, baseline)`` on the same resamples; the systems differ if it does not contain zero.
    n_resamples : int, default=1000
        Number of resamples.
    level : float, default=0.95
        Coverage, between 0 and 1.
    method : {"percentile", "basic"}, default="percentile"
        How the interval is computed from the resampled values. Use ``"basic"`` for macro-averages over many
        rare classes.
    random_state : int, Generator or None, default=None
        Seed of the draws.

    Returns
    -------
    Interval
        Named tuple ``value, low, high, samples``.

    Examples
    --------
    >>> truth = ["cat", "dog"] * 50
    >>> guess = ["cat"] * 60 + ["dog"] * 40
    >>> interval = bootstrap_interval(micro_f1, truth, guess, random_state=0)
    >>> interval.low < interval.value < interval.high
    True
    """
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if method not in ("percentile", "basic"):
        raise ValueError(f"method must be 'percentile' or 'basic', got {method!r}")
    rng = np.random.default_rng(random_state)
    systems = [y_pred] if baseline is None else [y_pred, baseline]
    value = [float(metric(y_true, system)) for system in systems]
    resample = _resample_f1 if metric in (micro_f1, macro_f1) else _resample_any
    samples = resample(metric, y_true, systems, n_resamples, rng)
    if baseline is None:
        point, draws = value[0], samples[0]
    else:
        point, draws = value[0] - value[1], samples[0] - samples[1]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    if method == "basic":
        low, high = 2 * point - high, 2 * point - low
    return Interval(point, float(low), float(high), draws)


def _draw(rng: np.random.Generator, n_samples: int) -> np.ndarray:
    return rng.integers(n_samples, size=n_samples)


def _resample_any(
    metric: Metric, y_true: Any, systems: list[Any], n_resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Values of each system (rows) on each resample (columns); calls the measure once for each value."""
    truth, *predictions = (_indexable(y) for y in (y_true, *systems))
    samples = np.empty((len(systems), n_resamples))
    for column in range(n_resamples):
        rows = _draw(rng, truth.shape[0])
        samples[:, column] = [metric(truth[rows], y[rows]) for y in predictions]
    return samples


def _indexable(y: Any) -> Any:
    """Return y in a form that an integer array can index: an array or CSR matrix."""
    as_csr: Any = getattr(y, "tocsr", None)
    if as_csr is not None:
        return as_csr()
    return y if isinstance(y, np.ndarray) else object_array(y)


def _resample_f1(
    metric: Metric, y_true: Any, systems: list[Any], n_resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Compute the values of `_resample_any` from class counts, many resamples at a time."""
    pairs = [to_indicators({"y_true": y_true, "y_pred": system}) for system in systems]
    n_samples = pairs[0].matrices[0].shape[0]
    step = max(1, _CELLS // max(n_samples, *(pair.matrices[0].shape[1] for pair in pairs)))
    samples = np.empty((len(systems), n_resamples))
    for start in range(0, n_resamples, step):
        n_draws = min(step, n_resamples - start)
        weights = np.stack(
            [np.bincount(_draw(rng, n_samples), minlength=n_samples) for _ in range(n_draws)]
        ).astype(np.float64)
        for row, pair in enumerate(pairs):
            samples[row, start : start + n_draws] = _weighted_f1(metric, pair, weights)
    return samples


def _weighted_f1(metric: Metric, pair: Indicators, weights: np.ndarray) -> np.ndarray:
    true, pred = pair.matrices
    hits: Any = true.multiply(pred)
    counts = ClassCounts(*(weights @ matrix.astype(np.float64) for matrix in (hits, true, pred)))
    if metric is micro_f1:
        return micro_average(counts)
    # A named class that does not occur in a resample is not averaged; a column of an indicator matrix is.
    return macro_average(class_f1(counts, np.nan if pair.named else 0.0))
