"""Predictions of a fitted mixture: components, probabilities and densities of rows, in double precision.

The functions take the mixture and rows in the form of its model (`Mixture._checked`). They work on chunks of rows, in
parallel, so that the scores of all rows are never in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from arbora.arrays import Array, Ints, Matrix
from arbora.core.engine import Engine
from arbora.core.products import csr_matmul
from arbora.discover.mixture.rows import chunks, iter_chunks
from arbora.engine import ThreadEngine
from arbora.infer.mixture.statistics import LinearScores

if TYPE_CHECKING:
    from arbora.discover.mixture.base import Mixture


# --- Weights of the components: logarithms, and shares without the part of a single row ---------------------


_LOG_TINY = -690.0  # logarithm used for a weight of zero; the kernels cannot handle infinity


def log_weights(weights: Array) -> Array:
    """Return the logarithms of weights, finite for a weight of zero.

    Examples
    --------
    >>> log_weights(np.array([1.0, 0.0]))
    array([   0., -690.])
    """
    return np.log(weights, out=np.full_like(weights, _LOG_TINY), where=weights > 0)


def own_parts(resp: Array, weight: Matrix) -> Array:
    """Return the parts of rows in components that leaving a row out removes: a row of weight 2 remains once."""
    parts: Array = resp * np.minimum(weight, 1.0)[:, None]
    return parts


def left_out_shares(counts: Array, part: Array) -> Array:
    """Return log-shares of the components without each row's own `part` in them (n_samples, n_components)."""
    rest = np.maximum(counts - part, 1e-300)
    shares: Array = np.log(rest) - np.log(rest.sum(axis=1, keepdims=True))
    return shares


# --- Predictions of a fitted mixture: components, probabilities and densities of rows, in double precision ---


UNKNOWN = -1  # label of a zero row
_LEVELS = np.linspace(0.0, 1.0, 1001)  # levels of the density quantiles that are kept for `is_novel`


def draw_seed(random_state: Any) -> int:
    """Draw the seed that determines all randomness of a call."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def linear_log_joint(scores: LinearScores, X: sp.csr_array) -> Array:
    """Return the log-joint of rows and components (n_samples, n_components).

    Examples
    --------
    >>> linear_log_joint(LinearScores(np.eye(2), np.array([1.0, 2.0])), sp.csr_array([[3.0, 0.0]]))
    array([[4., 2.]])
    """
    joint: Array = csr_matmul(X, scores.weights.astype(np.float64, copy=False))
    return np.asarray(joint * scores.scale + scores.offset)


def map_chunks(function: Callable[[sp.csr_array], Matrix], X: Any, engine: Engine) -> Matrix:
    """Apply a function to chunks of rows and concatenate the results."""
    return np.concatenate(engine.map(lambda part: function(X[part]), chunks(X)))


def _map_rows(mixture: Mixture, X: Any, function: Callable[[Any, sp.csr_array], Matrix]) -> Matrix:
    """Apply a function of parameters and rows to all rows, on the threads of the mixture."""
    params = mixture._params()
    return map_chunks(lambda part: function(params, part), X, ThreadEngine(mixture.n_jobs))


def most_probable(mixture: Mixture, X: Any) -> Ints:
    """Return the number of the most probable component of each row; `UNKNOWN` for zero rows."""

    def best(params: Any, part: sp.csr_array) -> Ints:
        labels: Ints = mixture._log_joint(params, part).argmax(axis=1)
        labels[mixture._zero_rows(part)] = UNKNOWN
        return labels

    return _map_rows(mixture, X, best)


def probabilities(mixture: Mixture, X: Any) -> Array:
    """Return the probability of each component given the row (n_samples, n_components); of zero rows, the prior's."""
    temperature = getattr(mixture, "calibration_temperature_", 1.0)

    def normalized(params: Any, part: sp.csr_array) -> Array:
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


def log_densities(mixture: Mixture, X: Any) -> Array:
    """Return the log-density of each row."""

    def density(params: Any, part: sp.csr_array) -> Array:
        found = mixture._density(params, part)
        found[mixture._zero_rows(part)] = mixture._zero_density()
        return found

    return _map_rows(mixture, X, density)


def are_zero(mixture: Mixture, X: Any) -> NDArray[np.bool_]:
    """Return which rows are zero."""
    return map_chunks(mixture._zero_rows, X, ThreadEngine(mixture.n_jobs))


def bayesian_criterion(scores: Array, n_parameters: int) -> float:
    """Return the Bayesian information criterion, given the log-densities of the rows."""
    return float(-2 * scores.sum() + n_parameters * np.log(len(scores)))


def akaike_criterion(scores: Array, n_parameters: int) -> float:
    """Return Akaike's information criterion, given the log-densities of the rows."""
    return float(-2 * scores.sum() + 2 * n_parameters)


def density_quantiles(densities: Array, weight: Matrix) -> Array:
    """Return quantiles of the log-densities of weighted rows, for `below_quantile`."""
    return np.quantile(densities, _LEVELS, weights=weight, method="inverted_cdf")


def below_quantile(densities: Array, quantiles: Array, level: float) -> NDArray[np.bool_]:
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


# --- Descriptions of clusters: their largest features and their most typical rows ---------------------------


Features = list[list[tuple[Any, float]]]


def check_count(n: Any) -> int:
    """Return `n` if it is a number of items to list."""
    if not isinstance(n, Integral) or int(n) < 0:
        raise ValueError(f"n must be an integer, 0 or more, got {n!r}.")
    return int(n)


def largest_features(estimator: Any, means: Matrix, feature_names: Any, n: int) -> Features:
    """List the n largest positive entries of each mean with their names, largest first.

    Parameters
    ----------
    estimator : fitted estimator
        Its `feature_names_in_` are the default names.
    means : ndarray of shape (n_means, n_features)
    feature_names : sequence of n_features names, or None
    n : int

    Returns
    -------
    list of lists of (name, weight)

    Examples
    --------
    >>> largest_features(None, np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]), ["a", "b", "c"], 2)
    [[('b', 0.8), ('a', 0.6)], [('c', 1.0)]]
    """
    n_features = means.shape[1]
    count = min(check_count(n), n_features)
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", range(n_features))
    if len(feature_names) != n_features:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but the model has {n_features} features: give one name "
            "for each feature."
        )
    listed = []
    for mean in means:
        top = np.argpartition(-mean, count - 1)[:count] if count else np.empty(0, np.int64)
        top = top[np.lexsort((top, -mean[top]))]
        listed.append([(feature_names[j], float(mean[j])) for j in top.tolist() if mean[j] > 0])
    return listed


def nearest_rows(X: Any, labels: Matrix, means: Matrix, n: int) -> list[Ints]:
    """Find the n rows of each label with the largest cosine to its mean, nearest first.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> X = sp.csr_array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    >>> nearest_rows(X, np.array([0, 0, 1]), np.eye(2), 1)
    [array([0]), array([2])]
    """
    direction, cosine = means / np.linalg.norm(means, axis=1, keepdims=True), np.empty(len(labels))
    for part, chunk in iter_chunks(X):
        length = np.sqrt(np.asarray(chunk.multiply(chunk).sum(axis=1)).ravel())
        for k, mean in enumerate(direction):
            members = np.flatnonzero(labels[part] == k)
            own = np.maximum(length[members], np.finfo(float).tiny)
            cosine[part.start + members] = (chunk[members] @ mean) / own
    found = []
    for k in range(len(means)):
        members = np.flatnonzero(labels == k)
        found.append(members[np.argsort(-cosine[members], kind="stable")[:n]])
    return found
