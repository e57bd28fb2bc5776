"""Predictions over a label structure, shared by all classifiers: labels, paths, node probabilities, back-off.

A classifier computes probabilities of its classes; the mixin computes those of the nodes. One label per row: the
probability of a node is the sum over the classes at or below it, so that a parent has the sum of its children (plus
its own, if documents sit on an internal node); in a DAG a class counts once for each ancestor. Multilabel: the
classes are independent, and a node is present if any class at or below it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from arbora.classify._linear.linear_model import by_chunks
from arbora.classify.thresholds import Threshold, ZeroThreshold, top_columns
from arbora.classify.training import SETS, Targets, decode_sets, is_multilabel
from arbora.core.estimator import Explorable
from arbora.core.validation import check_features, check_structure
from arbora.structure import Hierarchy


def node_probabilities(class_proba: NDArray[Any], closure: sp.csr_array, multilabel: bool) -> NDArray[Any]:
    """Probabilities of all nodes from those of the classes.

    Parameters
    ----------
    class_proba : ndarray of shape (n_samples, n_classes)
    closure : sparse matrix of shape (n_classes, n_nodes)
        Marks, for each class, its node and all ancestors.
    multilabel : bool

    Returns
    -------
    ndarray of shape (n_samples, n_nodes)

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> closure = sp.csr_array([[1, 1, 0], [1, 0, 1]])  # nodes: root, a, b
    >>> node_probabilities(np.array([[0.25, 0.5]]), closure, multilabel=True)
    array([[0.625, 0.25 , 0.5  ]])
    """
    if multilabel:
        with np.errstate(divide="ignore"):
            absent = np.log1p(-class_proba)
        return np.asarray(-np.expm1(absent @ closure.astype(np.float64)))
    return np.asarray(np.minimum(class_proba @ closure.astype(np.float64), 1.0))


def one_column(best: NDArray[np.int64], n_classes: int) -> sp.csr_array:
    """Mark one class in each row."""
    shape = (len(best), n_classes)
    return sp.csr_array((np.ones(len(best), bool), best, np.arange(len(best) + 1)), shape=shape)


def check_X(estimator: Any, X: Any) -> Any:
    """Check the rows that a fitted estimator predicts."""
    check_is_fitted(estimator)
    # Squares as in fit: no score overflows.
    return check_features(estimator, X, reset=False, squares=getattr(estimator, "dtype", np.float64))


class NodePredictor(Explorable):
    """Mixin: predictions of a classifier that implements `_scores` and `_class_proba`."""

    classes_: NDArray[Any]
    class_nodes_: NDArray[np.int64]
    hierarchy_: Hierarchy
    nodes_: NDArray[Any]
    label_kind_: str
    sparse_labels_: bool
    threshold_: Threshold | None  # absent in models that cut at zero

    def _remember_targets(self, targets: Targets) -> None:
        self.classes_ = targets.classes
        self.class_nodes_ = targets.class_nodes
        self.hierarchy_ = targets.hierarchy
        self.nodes_ = targets.nodes
        self.label_kind_ = targets.kind

    @property
    def _multilabel(self) -> bool:
        return is_multilabel(self.label_kind_)

    def _check_X(self, X: Any) -> Any:
        return check_X(self, X)

    def _scores(self, X: Any) -> NDArray[Any]:
        """Scores of the classes; the largest is predicted, unless the estimator settles close calls."""
        raise NotImplementedError

    def _class_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes."""
        raise NotImplementedError

    def _ranking_values(self, X: Any) -> NDArray[Any]:
        """Values by which `predict_top_k` ranks the classes."""
        return self._class_proba(X)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probability of every class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`. With one label per row they sum to 1.
        """
        X = self._check_X(X)
        found = by_chunks(X, len(self.classes_), self._class_proba)
        return np.vstack(found or [np.empty((0, len(self.classes_)))])

    def predict_node_proba(self, X: Any) -> NDArray[Any]:
        """Probability of every node of the structure.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_nodes)
            Columns in the order of `nodes_`. With one label per row, the probability of a node is the sum over the
            classes at or below it. Without a structure the nodes are the classes.
        """
        X = self._check_X(X)
        closure = self.hierarchy_.ancestor_matrix[self.class_nodes_]
        found = by_chunks(X, closure.shape[1], lambda rows: self._node_proba(rows, closure))
        return np.vstack(found or [np.empty((0, closure.shape[1]))])

    def _node_proba(self, X: Any, closure: sp.csr_array) -> NDArray[Any]:
        return node_probabilities(self._class_proba(X), closure, self._multilabel)

    def predict_path(self, X: Any) -> list[Any]:
        """Path of names from a root to the predicted node, for each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        list of lists of names
            For a multilabel model, a list of such paths for each row.
        """
        nodes = self._predicted_nodes(X)
        paths = {node: self._path(node) for node in np.unique(nodes.indices)}
        found = [
            [paths[node].copy() for node in nodes.indices[start:stop]]
            for start, stop in zip(nodes.indptr[:-1], nodes.indptr[1:], strict=True)
        ]
        return found if self._multilabel else [path for (path,) in found]

    def _path(self, node: int) -> list[Any]:
        names = self.hierarchy_.path(self.hierarchy_.names[node])
        return list(self.nodes_[self.hierarchy_.encode(names)].tolist())

    def _predicted_nodes(self, X: Any) -> sp.csr_array:
        """Predicted node ids as the columns of a CSR matrix: one per row, or any number if multilabel."""
        columns = self._predict_columns(self._check_X(X))
        nodes = self.class_nodes_[columns.indices]
        return sp.csr_array(
            (columns.data, nodes, columns.indptr), shape=(columns.shape[0], self.hierarchy_.n_nodes)
        )

    def predict_backoff(self, X: Any, threshold: float = 0.5) -> NDArray[Any]:
        """Deepest node whose probability reaches a threshold: a less detailed answer where the model is unsure.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        threshold : float in (0, 1]

        Returns
        -------
        ndarray of names of shape (n_samples,)
            The most probable one of several nodes of the same depth; None if no node reaches the threshold, which
            cannot happen with a single root and one label per row.
        """
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be in (0, 1], got {threshold!r}.")
        X = self._check_X(X)
        closure = self.hierarchy_.ancestor_matrix[self.class_nodes_]

        def deepest(rows: Any) -> NDArray[np.int64]:
            proba = self._node_proba(rows, closure)
            # The probability of a single root is 1 up to rounding.
            rank = np.where(proba >= threshold * (1 - 1e-9), self.hierarchy_.depth + proba / 2, -1.0)
            best = rank.argmax(axis=1)
            return np.where(rank[np.arange(len(best)), best] < 0, -1, best)

        best = np.concatenate([np.empty(0, np.int64), *by_chunks(X, closure.shape[1], deepest)])
        names = np.array([*self.nodes_.tolist(), None], dtype=object)
        return np.asarray(names[best])  # the index -1 is None

    def predict(self, X: Any) -> Any:
        """Predict labels in the form in which they were given to `fit`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray, list of lists, or indicator matrix
            One label per row; or lists of labels; or an indicator over the nodes (without a structure: over the
            columns of y), sparse if y was.
        """
        check_is_fitted(self)
        X = self._check_X(X)
        columns = self._predict_columns(X)
        if not self._multilabel:
            return self.classes_[columns.indices]
        if self.label_kind_ == SETS:
            return decode_sets(columns, self.classes_)
        nodes = self.class_nodes_[columns.indices]
        Y = sp.csr_array(
            (np.ones(nodes.size, np.int64), nodes, columns.indptr),
            shape=(columns.shape[0], self.hierarchy_.n_nodes),
        )
        return Y if self.sparse_labels_ else Y.toarray()

    def predict_top_k(self, X: Any, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the k most probable classes of each row, best first, with their probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        k : int
            From 1 to the number of `classes_`.

        Returns
        -------
        labels : ndarray of names of shape (n_samples, k)
            Classes, not the nodes above them; ties in the order of `classes_`.
        values : ndarray of shape (n_samples, k)
            Probabilities of the classes, or their scores if `calibration=None`.
        """
        X = self._check_X(X)
        n_classes = len(self.classes_)
        if not isinstance(k, int | np.integer) or not 1 <= k <= n_classes:
            raise ValueError(f"k must be an integer from 1 to the number of classes, {n_classes}; got {k!r}.")

        def best(rows: Any) -> tuple[NDArray[Any], NDArray[Any]]:
            values = self._ranking_values(rows)
            columns = top_columns(values, int(k))
            return columns, np.take_along_axis(values, columns, axis=1)

        parts = by_chunks(X, n_classes, best)
        columns, values = (np.vstack(part) for part in zip(*parts, strict=True))
        return self.classes_.astype(object)[columns], values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: share of the rows whose label (or set of labels) is predicted exactly.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : labels in the form in which they were given to `fit`
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self)
        check_structure(y, "y")
        if self.label_kind_ != SETS:
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        found = self.predict(X)
        check_consistent_length(found, y, sample_weight)
        right = [set(a) == set(b) for a, b in zip(found, y, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def _predict_columns(self, X: Any) -> sp.csr_array:
        """Columns of the predicted classes: the best one, or those above the threshold."""
        parts = by_chunks(X, len(self.classes_), lambda rows: self._choose(self._scores(rows)))
        if not parts:
            return sp.csr_array((0, len(self.classes_)), dtype=bool)
        columns: sp.csr_array = sp.vstack(parts, format="csr")
        return columns

    def _choose(self, scores: NDArray[Any]) -> sp.csr_array:
        if self._multilabel:
            return (vars(self).get("threshold_") or ZeroThreshold()).predict(scores)
        return one_column(scores.argmax(axis=1), scores.shape[1])
