"""Predictions of a fitted `TextClassifier`: labels, probabilities, paths and scores of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from arbora.app.documents import as_documents
from arbora.app.text_rows import transform_rows
from arbora.structure import Hierarchy


class TextPrediction:
    """Methods of `TextClassifier` that answer for new texts, by the classifier of rows."""

    vectorizer_: Any
    estimator_: Any

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted."""
        return np.asarray(self._fitted().classes_)

    @property
    def nodes_(self) -> NDArray[Any]:
        """Names of the nodes of the structure."""
        return np.asarray(self._fitted().nodes_)

    @property
    def hierarchy_(self) -> Hierarchy:
        """The structure; without one, a root for each class."""
        tree: Hierarchy = self._fitted().hierarchy_
        return tree

    def _fitted(self) -> Any:
        if "estimator_" not in vars(self):  # a property must not hide that the model is not fitted
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit(texts, y)")
        return self.estimator_

    def _rows(self, texts: Any) -> Any:
        check_is_fitted(self)
        return transform_rows(as_documents(texts), self.vectorizer_, self.estimator_.n_features_in_)

    def _ask(self, method: str, texts: Any, *arguments: Any) -> Any:
        """Call a method of the classifier of rows."""
        X = self._rows(texts)
        return getattr(self.estimator_, method)(X, *arguments)

    def predict(self, texts: Any) -> Any:
        """Predict labels in the form in which they were given to `fit`.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray, list of lists, or indicator matrix
        """
        return self._ask("predict", texts)

    def predict_proba(self, texts: Any) -> NDArray[np.float64]:
        """Return the probability of every class; with one label per text they sum to 1.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of shape (n_texts, n_classes)
        """
        return np.asarray(self._ask("predict_proba", texts))

    def predict_node_proba(self, texts: Any) -> NDArray[np.float64]:
        """Return the probability of every node of the structure; that of a parent covers its children.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of shape (n_texts, n_nodes)
            Columns in the order of `nodes_`.
        """
        return np.asarray(self._ask("predict_node_proba", texts))

    def predict_path(self, texts: Any) -> list[Any]:
        """Return the path of names from a root to the predicted node, for each text.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        list of lists of names
            For several labels, a list of such paths for each text.
        """
        found: list[Any] = self._ask("predict_path", texts)
        return found

    def predict_backoff(self, texts: Any, threshold: float = 0.5) -> NDArray[Any]:
        """Return the deepest node whose probability reaches a threshold: a broader answer where the model is unsure.

        Parameters
        ----------
        texts : sequence of str
        threshold : float in (0, 1]

        Returns
        -------
        ndarray of names of shape (n_texts,)
        """
        return np.asarray(self._ask("predict_backoff", texts, threshold))

    def predict_top_k(self, texts: Any, k: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return the k most probable classes of each text, best first, and their probabilities.

        Parameters
        ----------
        texts : sequence of str
        k : int

        Returns
        -------
        labels, probabilities : ndarrays of shape (n_texts, k)
        """
        labels, values = self._ask("predict_top_k", texts, k)
        return np.asarray(labels), np.asarray(values)

    def decision_function(self, texts: Any) -> NDArray[np.float64]:
        """Return the scores of the classes, as scikit-learn's linear classifiers do.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of shape (n_texts, n_classes), or (n_texts,) for two classes
        """
        return np.asarray(self._ask("decision_function", texts))

    def score(self, texts: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of the texts whose label, or set of labels, is predicted exactly.

        Parameters
        ----------
        texts : sequence of str
        y : labels in the form in which they were given to `fit`
        sample_weight : array-like of shape (n_texts,), optional

        Returns
        -------
        float
        """
        return float(self._ask("score", texts, y, sample_weight))
