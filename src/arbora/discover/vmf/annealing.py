r"""Deterministic annealing, the start of the Bayesian mixtures; means are pulled towards the mean of all rows.

The bound of a von Mises-Fisher mixture has many maxima, and in many dimensions its responsibilities are hard from the
first iteration on, so the start determines the result. Deterministic annealing (Rose 1998) smooths responsibilities
by a temperature T,

.. math:: r_{ik} \propto \bigl(\pi_k C_D(\kappa) e^{\kappa \mu_k^\top x_i}\bigr)^{1/T},

that decreases to 1. Around a single cluster of all rows, deviations of the means grow if T is below

.. math:: T_c = \kappa \lambda / \bar r,

where :math:`\lambda` is the largest eigenvalue of the covariance of the rows orthogonal to their mean, :math:`\bar r`
the length of the mean and :math:`\kappa` their concentration. Above it all seeds become equal. Annealing starts
somewhat below it, which suits any number of features.

Means are :math:`\mu_k \propto s_k + n_0 (1 - 1/T) \mu_0`, with :math:`n_0` additional rows at the mean direction of
all rows. They slow down components with few rows, so components with many rows grow at their expense. With half of
the rows of an average component (`EMPTYING`) this empties superfluous components, which suits a number of components
that is a maximum. If rows follow the model, :math:`T_c` is near 1, and none is emptied. The evidence does not do
this: rows of texts have far fewer degrees of freedom than dimensions, so splitting a cluster nearly always raises it.
With a few hundredths (`FILLING`) the components keep rows, as a number of components that was asked for demands. A
number that was selected is between both (`SORTING`): components that the data do not support are left empty. All
components share one concentration during annealing; otherwise the broadest component collects the rows that are rare
in all others.

References
----------
K. Rose (1998). Deterministic annealing for clustering, compression, classification, regression, and related
optimization problems. Proceedings of the IEEE 86(11).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.core.engine import Engine
from arbora.discover.mixture.rows import iter_chunks, unit_columns
from arbora.discover.vmf.components import LEAST_START, VMFParams, vmf_scores
from arbora.discover.vmf.posterior import expected_log_weights
from arbora.infer.mixture.statistics import Stats, WeightedRows, e_step
from arbora.special import kappa_mle

_BELOW = 0.4  # first temperature, relative to the critical one; 0.3 to 0.5 give the same results
ANNEALING_STEPS = 25
EMPTYING, SORTING, FILLING = 0.5, 0.2, 0.03  # n_0, relative to the rows of an average component
_ROWS_PER_COMPONENT = 50  # rows for annealing, if rows come in mini-batches
_POWER_STEPS = 20
_MOST_RESULTANT = 1 - 1e-9
_TINY = float(np.finfo(np.float64).tiny)


def mean_row(rows: WeightedRows) -> NDArray[np.float64]:
    """Return the weighted mean of the rows."""
    total = np.zeros(rows.X.shape[1])
    for part, X in iter_chunks(rows.X):
        total += X.T @ rows.weight[part]
    return total / rows.total


def critical_temperature(rows: WeightedRows, rng: np.random.Generator) -> float:
    """Return the temperature below which a single cluster of all rows separates.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rows = WeightedRows(sp.csr_array([[0.6, 0.8], [0.8, 0.6]]), np.ones(2))
    >>> found = critical_temperature(rows, np.random.default_rng(0))
    >>> bool(np.isclose(found, kappa_mle(np.sqrt(0.98), 2) * 0.02 / np.sqrt(0.98)))
    True
    """
    mean, weight = mean_row(rows), rows.weight.astype(np.float64) / rows.total
    X = rows.X.astype(np.float64, copy=False)
    length = float(np.linalg.norm(mean))
    centre = mean / max(length, _TINY)
    v, value = rng.standard_normal(X.shape[1]), 0.0
    for _ in range(_POWER_STEPS):
        before, v, total = v, np.zeros_like(v), 0.0
        for part, chunk in iter_chunks(X):
            along = (chunk @ before - mean @ before) * weight[part]
            v += chunk.T @ along
            total += along.sum()
        v -= mean * total
        v -= centre * (centre @ v)
        value = float(np.linalg.norm(v))
        if value == 0:  # all rows are equal
            return 0.0
        v /= value
    return float(kappa_mle(min(length, _MOST_RESULTANT), X.shape[1])) * value / max(length, _TINY)


def held_back_update(centre: NDArray[Any], n_rows: float, params: VMFParams, stats: Stats) -> VMFParams:
    """Update means with `n_rows` more rows at the centre, one concentration, and weights under a sparse prior."""
    n_features, n_components = stats.sums.shape
    sums = stats.sums + (n_rows * centre).astype(stats.sums.dtype)[:, None]
    directions, _ = unit_columns(sums, params.vectors)
    along = np.einsum("jk,jk->", stats.sums, directions, dtype=np.float64)
    resultant = np.clip(along / stats.counts.sum(), 0.0, _MOST_RESULTANT)
    kappa = np.full(n_components, float(kappa_mle(resultant, n_features)))
    weights = np.exp(expected_log_weights(1 / n_components + stats.counts))
    return VMFParams(directions, np.ones(n_components), kappa, weights)


def anneal(
    rows: WeightedRows,
    start: VMFParams,
    n_steps: int,
    rng: np.random.Generator,
    engine: Engine,
    held_back: float = FILLING,
) -> VMFParams:
    """Anneal the components of a start.

    Parameters
    ----------
    rows : WeightedRows
    start : VMFParams
    n_steps : int
        Iterations in which the temperature decreases.
    rng : numpy.random.Generator
    engine : Engine
    held_back : float
        Rows at the mean of all rows that are added to each component, relative to the rows of an average component.

    Returns
    -------
    VMFParams
        Components with the same concentration.
    """
    n_components, params = len(start.weights), start
    mean = mean_row(rows)
    centre = mean / max(float(np.linalg.norm(mean)), _TINY)
    most = held_back * rows.total / n_components
    hottest = max(1.0, _BELOW * critical_temperature(rows, rng))
    for temperature in np.geomspace(hottest, 1.0, n_steps):
        scores = vmf_scores(params)._replace(temperature=float(temperature))
        stats, _ = e_step(scores, rows, engine)
        params = held_back_update(centre, most * (1 - 1 / temperature), params, stats)
    kappa = np.maximum(params.concentrations, LEAST_START)
    return params._replace(weights=params.weights / params.weights.sum(), concentrations=kappa)


def annealed(
    estimator: Any,
    rows: WeightedRows,
    start: VMFParams,
    n_steps: int,
    rng: np.random.Generator,
    engine: Engine,
) -> VMFParams:
    """Return the components of a start after annealing, or as they are if `n_steps` is 0.

    The number of components of the estimator determines how many of them may become empty. If the rows come in
    mini-batches, a sample of them is used.
    """
    if n_steps == 0 or len(start.weights) == 1:
        return start
    if estimator.batch_size is not None and estimator.batch_size < rows.X.shape[0]:
        least = _ROWS_PER_COMPONENT * len(start.weights)
        size = min(max(estimator.batch_size, least), rows.X.shape[0])
        rows = rows.take(np.sort(rng.choice(rows.X.shape[0], size, replace=False)))
    if estimator.keep_empty or not estimator._fills_up:
        held_back = EMPTYING
    else:
        held_back = SORTING if estimator.n_components == "auto" else FILLING
    return anneal(rows, start, n_steps, rng, engine, held_back)
