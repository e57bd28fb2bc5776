"""Weights of the components: logarithms, and shares without the part of a single row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LOG_TINY = -690.0  # logarithm used for a weight of zero; the kernels cannot handle infinity


def log_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithms of weights, finite for a weight of zero.

    Examples
    --------
    >>> log_weights(np.array([1.0, 0.0]))
    array([   0., -690.])
    """
    return np.log(weights, out=np.full_like(weights, _LOG_TINY), where=weights > 0)


def own_parts(resp: NDArray[np.float64], weight: NDArray[Any]) -> NDArray[np.float64]:
    """Return the parts of rows in components that leaving a row out removes: a row of weight 2 remains once."""
    parts: NDArray[np.float64] = resp * np.minimum(weight, 1.0)[:, None]
    return parts


def left_out_shares(counts: NDArray[np.float64], part: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log-shares of the components without each row's own `part` in them (n_samples, n_components)."""
    rest = np.maximum(counts - part, 1e-300)
    shares: NDArray[np.float64] = np.log(rest) - np.log(rest.sum(axis=1, keepdims=True))
    return shares
