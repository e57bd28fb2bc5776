"""`LtcTransformer`: ``ltc`` weights for data that are term counts already."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from arbora.core.validation import check_not_negative, check_rows
from arbora.text.weights import inverse_document_frequency, ltc_rows


class LtcTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Weight term counts by ``(1 + log tf) * log(N / df)`` and scale rows to unit length.

    `LtcVectorizer` applies the same weights to raw text. Counts should be whole numbers: the logarithm of a value
    below 1 is negative.

    Parameters
    ----------
    sublinear_tf : bool
        Use ``1 + log tf`` instead of ``tf``.
    smooth_idf : bool
        Use scikit-learn's ``log((1 + N) / (1 + df)) + 1`` instead of ``log(N / df)``, which is zero for a term that
        occurs in all documents.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
    n_features_in_ : int

    Examples
    --------
    >>> from arbora.text import LtcTransformer
    >>> LtcTransformer().fit_transform([[3, 1, 0], [0, 1, 2]]).toarray()
    array([[1., 0., 0.],
           [0., 0., 1.]])
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "sublinear_tf": ["boolean"],
        "smooth_idf": ["boolean"],
    }

    def __init__(self, *, sublinear_tf: bool = True, smooth_idf: bool = False) -> None:
        self.sublinear_tf = sublinear_tf
        self.smooth_idf = smooth_idf

    def fit(self, X: Any, y: Any = None) -> LtcTransformer:
        """Learn the document frequency of each term.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Counts.
        y : ignored

        Returns
        -------
        self
        """
        self._validate_params()
        counts = self._counts(X, reset=True)
        df = np.bincount(counts.indices, minlength=counts.shape[1])
        self.idf_ = inverse_document_frequency(df, counts.shape[0], self.smooth_idf)
        return self

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Weight counts with the learned document frequencies.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Counts.

        Returns
        -------
        csr_matrix of shape (n_samples, n_features)
            Rows of unit length; a document without a weighted term is a zero row.
        """
        check_is_fitted(self)
        return ltc_rows(self._counts(X, reset=False), self.idf_, self.sublinear_tf)

    def _counts(self, X: Any, reset: bool) -> sparse.csr_matrix:
        """Validate counts and return a copy without stored zeros; float32 stays float32."""
        checked = check_rows(self, X, reset=reset)
        check_not_negative(checked, type(self).__name__, "Give term counts")
        counts = sparse.csr_matrix(checked, copy=True)
        counts.eliminate_zeros()
        return counts

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
