"""Components of von Mises-Fisher mixtures: parameters, log-joint with rows, and where a fit starts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax

from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.discover.mixture.prediction import log_weights
from arbora.discover.mixture.rows import unit_columns
from arbora.discover.mixture.starts import Init, starting_sums
from arbora.infer.mixture.statistics import LinearScores, WeightedRows
from arbora.special import kappa_mle, vmf_log_normalizer

_RANDOM_START = 10.0  # initial concentration with random labels
LEAST_START = 1e-3  # smallest initial concentration, for labels whose rows cancel; it needs a logarithm
_SAMPLE = 1000  # rows from which the broad concentration is estimated


class VMFParams(NamedTuple):
    """Vectors in the direction of the means (n_features, n_components), their lengths, concentrations and weights."""

    vectors: NDArray[Any]
    lengths: NDArray[np.float64]
    concentrations: NDArray[np.float64]
    weights: NDArray[np.float64]


def vmf_scores(params: VMFParams) -> LinearScores:
    """Return the log-joint of rows and components."""
    n_features = params.vectors.shape[0]
    offset = vmf_log_normalizer(params.concentrations, n_features) + log_weights(params.weights)
    return LinearScores(params.vectors, offset, scale=params.concentrations / params.lengths)


def broad_concentration(rows: WeightedRows, directions: NDArray[Any], rng: np.random.Generator) -> float:
    """Return the concentration at which responsibilities have half the entropy of a uniform distribution.

    With such a broad start, rows can move to better components than the seeds they happen to be close to. A fixed
    number does not work for all dimensions: 10 is broad in 3 dimensions, but in 20,000 dimensions it gives all
    components the same responsibilities.
    """
    n_components = directions.shape[1]
    if n_components == 1:
        return 1.0
    ids = rng.choice(rows.X.shape[0], size=min(_SAMPLE, rows.X.shape[0]), replace=False)
    cosine = csr_matmul(rows.take(np.sort(ids)).X, directions).astype(np.float64)

    def excess(log_kappa: float) -> float:
        p = softmax(np.exp(log_kappa) * cosine, axis=1)
        entropy = -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1).mean()
        return float(entropy - 0.5 * np.log(n_components))

    low, high = np.log(1e-3), np.log(1e8)
    if excess(high) > 0:  # no concentration separates these rows and means
        return 1.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-3)))


def start_components(
    rows: WeightedRows,
    init: Init,
    n_components: int,
    kappa: float | None,
    rng: np.random.Generator,
    engine: Engine,
) -> VMFParams:
    """Return components to start from. If no concentration is given: a broad one, or the estimate from given labels.

    Random labels start at 10, as the papers advise. Their means hardly differ, so a high concentration would keep
    every row where it is.
    """
    sums = np.ascontiguousarray(starting_sums(rows, init, n_components, rng, engine).T).astype(rows.X.dtype)
    axis = np.zeros_like(sums)
    axis[0] = 1  # for rows that cancel
    directions, length = unit_columns(sums, axis)
    if kappa is None and isinstance(init, str) and init == "random":
        kappa = _RANDOM_START
    elif kappa is None and not isinstance(init, str) and init.ndim == 1:
        labelled = rows.weight[init >= 0].sum(dtype=np.float64)
        kappa = float(kappa_mle(min(length.sum() / (labelled + 1.0), 1.0), len(sums)))
        kappa = max(kappa, LEAST_START)
    elif kappa is None:
        kappa = broad_concentration(rows, directions, rng)
    one = np.ones(n_components)
    return VMFParams(directions, one, np.full(n_components, kappa), one / n_components)
