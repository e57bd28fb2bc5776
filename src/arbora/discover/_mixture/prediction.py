"""Predictions of a fitted mixture: components, probabilities and densities of rows, in double precision.

The functions take the mixture and rows in the form of its model (`Mixture._checked`). They work on chunks of rows, in
parallel, so that the scores of all rows are never in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.discover.mixture.rows import chunks
from arbora.engine import ThreadEngine
from arbora.infer.mixture.statistics import LinearScores

if TYPE_CHECKING:
    from arbora.discover._mixture.base import Mixture

UNKNOWN = -1  # label of a zero row
_LEVELS = np.linspace(0.0, 1.0, 1001)  # levels of the density quantiles that are kept for `is_novel`


def draw_seed(random_state: Any) -> int:
    """Draw the seed that determines all randomness of a call."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def linear_log_joint(scores: LinearScores, X: sp.csr_array) -> NDArray[np.float64]:
    """Return the log-joint of rows and components (n_samples, n_components).

    Examples
    --------
    >>> linear_log_joint(LinearScores(np.eye(2), np.array([1.0, 2.0])), sp.csr_array([[3.0, 0.0]]))
    array([[4., 2.]])
    """
    joint: NDArray[np.float64] = csr_matmul(X, scores.weights.astype(np.float64, copy=False))
    return np.asarray(joint * scores.scale + scores.offset)


def map_chunks(function: Callable[[sp.csr_array], NDArray[Any]], X: Any, engine: Engine) -> NDArray[Any]:
    """Apply a function to chunks of rows and concatenate the results."""
    return np.concatenate(engine.map(lambda part: function(X[part]), chunks(X)))


def _map_rows(
    mixture: Mixture, X: Any, function: Callable[[Any, sp.csr_array], NDArray[Any]]
) -> NDArray[Any]:
    """Apply a function of parameters and rows to all rows, on the threads of the mixture."""
    params = mixture._params()
    return map_chunks(lambda part: function(params, part), X, ThreadEngine(mixture.n_jobs))


def most_probable(mixture: Mixture, X: Any) -> NDArray[np.int64]:
    """Return the number of the most probable component of each row; `UNKNOWN` for zero rows."""

    def best(params: Any, part: sp.csr_array) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = mixture._log_joint(params, part).argmax(axis=1)
        labels[mixture._zero_rows(part)] = UNKNOWN
        return labels

    return _map_rows(mixture, X, best)


def probabilities(mixture: Mixture, X: Any) -> NDArray[np.float64]:
    """Return the probability of each component given the row (n_samples, n_components); of zero rows, the prior's."""
    temperature = getattr(mixture, "calibration_temperature_", 1.0)

    def normalized(params: Any, part: sp.csr_array) -> NDArray[np.float64]:
        joint = mixture._log_joint(params, part)
        zero = mixture._zero_rows(part)
        if zero.any():
            joint[zero] = temperature * mixture._log_prior(part[np.flatnonzero(zero)])
        joint -= joint.max(axis=1, keepdims=True)
        if temperature != 1:
            joint /= temperature
        np.exp(joint, out=joint)
        joint /= joint.sum(axis=1, keepdims=True)
        return joint

    return _map_rows(mixture, X, normalized)


def log_densities(mixture: Mixture, X: Any) -> NDArray[np.float64]:
    """Return the log-density of each row."""

    def density(params: Any, part: sp.csr_array) -> NDArray[np.float64]:
        found = mixture._density(params, part)
        found[mixture._zero_rows(part)] = mixture._zero_density()
        return found

    return _map_rows(mixture, X, density)


def are_zero(mixture: Mixture, X: Any) -> NDArray[np.bool_]:
    """Return which rows are zero."""
    return map_chunks(mixture._zero_rows, X, ThreadEngine(mixture.n_jobs))


def bayesian_criterion(scores: NDArray[np.float64], n_parameters: int) -> float:
    """Return the Bayesian information criterion, given the log-densities of the rows."""
    return float(-2 * scores.sum() + n_parameters * np.log(len(scores)))


def akaike_criterion(scores: NDArray[np.float64], n_parameters: int) -> float:
    """Return Akaike's information criterion, given the log-densities of the rows."""
    return float(-2 * scores.sum() + 2 * n_parameters)


def density_quantiles(densities: NDArray[np.float64], weight: NDArray[Any]) -> NDArray[np.float64]:
    """Return quantiles of the log-densities of weighted rows, for `below_quantile`."""
    return np.quantile(densities, _LEVELS, weights=weight, method="inverted_cdf")


def below_quantile(
    densities: NDArray[np.float64], quantiles: NDArray[np.float64], level: float
) -> NDArray[np.bool_]:
    """Return whether densities are below a quantile of the training data.

    Examples
    --------
    >>> quantiles = density_quantiles(np.arange(10.0), np.ones(10))
    >>> below_quantile(np.array([0.5, 7.0]), quantiles, 0.2)
    array([ True, False])
    """
    if not 0 <= level <= 1:
        raise ValueError(f"level must be between 0 and 1, got {level}: it is the share of false alarms.")
    below: NDArray[np.bool_] = densities < np.interp(level, _LEVELS, quantiles)
    return below
