"""Prediction and description by nodes, for a mixture whose components are the leaves of a tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.discover.mixture.base import Mixture
from arbora.discover.mixture.prediction import (
    UNKNOWN,
    Features,
    check_count,
    draw_seed,
    largest_features,
    log_weights,
    most_probable,
)
from arbora.structure import Hierarchy


def node_probabilities(
    tree: Hierarchy, leaf_ids: NDArray[np.int64], leaf_proba: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add the probabilities of leaves (n_samples, n_leaves) up the tree, to (n_samples, n_nodes).

    Examples
    --------
    >>> tree = Hierarchy.from_edges([("root", "a"), ("root", "b")])
    >>> node_probabilities(tree, tree.leaf_ids, np.array([[0.25, 0.75]]))
    array([[1.  , 0.25, 0.75]])
    """
    closure = tree.ancestor_matrix[leaf_ids].astype(np.float64)
    return np.asarray(np.minimum(leaf_proba @ closure, 1.0))


class NodePredictionMixture(Mixture):
    """Base class of mixtures whose components are the leaves of `hierarchy_`; see `HierarchicalVMFMixture`."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable leaf of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Names of leaves; -1 for a zero row.
        """
        columns = most_probable(self, self._checked(X))
        names = self._names(self.leaf_ids_[columns])
        names[columns == UNKNOWN] = UNKNOWN
        return names

    def _names(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return names of nodes, as an array of integers if all names are integers."""
        names = self.hierarchy_.decode(ids)
        return np.asarray(
            names.astype(np.int64) if all(isinstance(name, int) for name in self.hierarchy_) else names
        )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each leaf given the row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_leaves)
            Columns in the order of ``nodes_[leaf_ids_]``.
        """
        return super().predict_proba(X)

    def predict_node_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every node given the row. The probability of a parent is the sum of its children.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_nodes)
            Columns in the order of `nodes_`.
        """
        proba = self.predict_proba(X)
        return node_probabilities(self.hierarchy_, self.leaf_ids_, proba)

    def predict_path(self, X: Any) -> list[list[Any]]:
        """Return the names from the root to the most probable leaf of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        list of lists of names
            Empty for a zero row.
        """
        columns = most_probable(self, self._checked(X)).tolist()
        names = self._names(self.leaf_ids_)
        paths = {k: self.hierarchy_.path(names[k]) if k >= 0 else [] for k in dict.fromkeys(columns)}
        return [paths[k].copy() for k in columns]

    def _log_prior(self, X: Any) -> NDArray[np.float64]:
        return np.tile(log_weights(self.weights_[self.leaf_ids_]), (X.shape[0], 1))

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Draw rows from the posterior predictive distribution.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        leaves : ndarray of shape (n_samples,)
            Name of the leaf of each row.
        """
        check_is_fitted(self)
        rng, shares = np.random.default_rng(draw_seed(self.random_state)), self.weights_[self.leaf_ids_]
        labels = rng.choice(len(shares), size=n_samples, p=shares)
        return self._draw(labels, rng), self._names(self.leaf_ids_[labels])

    def top_features(self, feature_names: Any = None, n: int = 10) -> Features:
        """List the largest features of the mean of each node.

        Parameters
        ----------
        feature_names : sequence of n_features names, optional
            By default the parameter `feature_names`, the column names of the data frame of the fit, or column
            numbers.
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
        checked = self._checked(X)
        columns = most_probable(self, checked)
        leaves = np.where(columns == UNKNOWN, UNKNOWN, self.leaf_ids_[columns])
        above = self.hierarchy_.ancestor_matrix.tocsc()
        found = []
        for node in range(self.hierarchy_.n_nodes):
            below = above.indices[above.indptr[node] : above.indptr[node + 1]]
            members = np.flatnonzero(np.isin(leaves, below))
            cosine = checked[members] @ self.means_[node]
            found.append(members[np.argsort(-cosine, kind="stable")[:n]])
        return found
