"""Descriptions of clusters: their largest features and their most typical rows."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbora.discover.mixture.rows import iter_chunks

Features = list[list[tuple[Any, float]]]


def check_count(n: Any) -> int:
    """Return `n` if it is a number of items to list."""
    if not isinstance(n, Integral) or int(n) < 0:
        raise ValueError(f"n must be an integer, 0 or more, got {n!r}.")
    return int(n)


def largest_features(estimator: Any, means: NDArray[Any], feature_names: Any, n: int) -> Features:
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


def nearest_rows(X: Any, labels: NDArray[Any], means: NDArray[Any], n: int) -> list[NDArray[np.int64]]:
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
