"""Probabilities of known and new groups for rows of the learned space."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.expand._cluster.base import Clustering
from arbora.expand._cluster.kmeans import mean_scores

Matrix = NDArray[Any]


class GroupModel(NamedTuple):
    """A clustering of all groups, or of the new ones alone."""

    clustering: Clustering
    covers_known: bool  # whether the clusters include the known groups
    n_known: int
    new_columns: NDArray[
        np.int64
    ]  # clusters that are new groups, largest first, counted from the first new one
    means: Matrix  # of all groups
    variance: float  # of a feature around the means

    def proba(self, Z: Matrix) -> Matrix:
        """Probabilities (n_rows, n_groups): known groups, then new ones."""
        n_known, found = self.n_known, np.exp(self.clustering.log_proba(Z))
        if self.covers_known:
            columns = np.concatenate([np.arange(n_known), n_known + self.new_columns]).astype(np.int64)
            kept = found[:, columns]
        else:
            # The clusterer knows the new groups only. Known and new ones compete by the distance to their means.
            kept = np.exp(mean_scores(Z, self.means, self.variance))
            share = kept[:, n_known:].sum(axis=1, keepdims=True)
            kept[:, n_known:] = share * found[:, self.new_columns]
        return np.asarray(kept / kept.sum(axis=1, keepdims=True))
