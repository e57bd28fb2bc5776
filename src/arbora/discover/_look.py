"""What is in a cluster: the features and the rows that stand for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def largest_features(
    estimator: Any, means: NDArray[Any], feature_names: Any, n: int
) -> list[list[tuple[Any, float]]]:
    """List the n largest positive entries of each mean with their names, largest first."""
    n_features = means.shape[1]
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", range(n_features))
    if len(feature_names) != n_features:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but the model has {n_features} features."
        )
    count = min(n, n_features)
    listed = []
    for mean in means:
        top = np.argpartition(-mean, count - 1)[:count] if count else np.empty(0, np.int64)
        top = top[np.lexsort((top, -mean[top]))]
        listed.append([(feature_names[j], float(mean[j])) for j in top.tolist() if mean[j] > 0])
    return listed


def nearest_rows(
    X: sp.csr_array, labels: NDArray[Any], means: NDArray[Any], n: int
) -> list[NDArray[np.int64]]:
    """Find the n rows of each label with the largest cosine to its mean, nearest first."""
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    direction = means / np.linalg.norm(means, axis=1, keepdims=True)
    found = []
    for k, mean in enumerate(direction):
        members = np.flatnonzero(labels == k)
        cosine = (X[members] @ mean) / np.maximum(length[members], np.finfo(float).tiny)
        found.append(members[np.argsort(-cosine, kind="stable")[:n]])
    return found
