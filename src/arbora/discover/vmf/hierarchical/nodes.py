"""What a mixture in a tree tells of rows and of its nodes: leaves by name, paths, probabilities of all nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.discover._mixture.top_features import check_count, largest_features
from arbora.structure import Hierarchy


class TreeLook:
    """Mixin, before a mixture whose components are the leaves of `hierarchy_`."""

    hierarchy_: Hierarchy
    nodes_: NDArray[Any]
    leaf_ids_: NDArray[np.int64]
    means_: NDArray[np.float64]
    feature_names: Any

    def _carried(self, leaf_proba: NDArray[np.float64]) -> NDArray[np.float64]:
        """Carry probabilities of leaves up the tree."""
        closure = self.hierarchy_.ancestor_matrix[self.leaf_ids_].astype(np.float64)
        return np.minimum(leaf_proba @ closure, 1.0)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable leaf of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Names of leaves.
        """
        columns = super().predict(X)
        return self._names(self.leaf_ids_[columns])

    def _names(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Names of nodes, as numbers if all of them are."""
        names = self.hierarchy_.decode(ids)
        return names.astype(np.int64) if all(isinstance(name, int) for name in self.hierarchy_) else names

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Draw rows from the posterior predictive distribution.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        leaves : ndarray of shape (n_samples,)
            Name of the leaf that each row was drawn from.
        """
        X, columns = super().sample(n_samples)
        return X, self._names(self.leaf_ids_[columns])

    def predict_node_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every node given the row. The probability of a parent is the sum of its children.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_nodes)
            Columns in the order of `nodes_`. `predict_proba` has the columns ``nodes_[leaf_ids_]``.
        """
        return self._carried(self.predict_proba(X))

    def predict_path(self, X: Any) -> list[list[Any]]:
        """Return the names from the root to the most probable leaf of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        list of lists of names
        """
        leaves = self.predict(X).tolist()
        paths = {leaf: self.hierarchy_.path(leaf) for leaf in dict.fromkeys(leaves)}
        return [paths[leaf].copy() for leaf in leaves]

    def top_features(self, feature_names: Any = None, n: int = 10) -> list[list[tuple[Any, float]]]:
        """List the largest features of the mean of each node.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            Names of the columns; by default the parameter `feature_names`, the column names of the data frame of the
            fit, or column numbers.
        n : int
            Number of features in each list.

        Returns
        -------
        list of lists of (name, weight)
            One list for each node, in the order of `nodes_`; largest weights first. Only positive weights are listed.
        """
        check_is_fitted(self)
        names = self.feature_names if feature_names is None else feature_names
        return largest_features(self, self.means_, names, n)

    def representatives(self, X: Any, n: int = 5) -> list[NDArray[np.int64]]:
        """Find the most typical rows of each node: of the rows in leaves at or below it, those nearest to its mean.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        n : int
            Number of rows for each node; fewer if the node has fewer.

        Returns
        -------
        list of ndarray of int
            Row numbers for each node, in the order of `nodes_`; nearest rows first.
        """
        check_count(n)
        leaves = self.hierarchy_.encode(self.predict(X))
        checked, above = self._checked(X), self.hierarchy_.ancestor_matrix.tocsc()
        found = []
        for node in range(self.hierarchy_.n_nodes):
            below = above.indices[above.indptr[node] : above.indptr[node + 1]]
            members = np.flatnonzero(np.isin(leaves, below))
            cosine = checked[members] @ self.means_[node]
            found.append(members[np.argsort(-cosine, kind="stable")[:n]])
        return found
