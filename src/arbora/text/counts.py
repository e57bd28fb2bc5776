"""``ltc`` weighting of counts that exist already: for collections that come as term counts, not as text."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from arbora.text.weights import inverse_document_frequency, ltc_rows


class LtcTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Weigh term counts by ``(1 + log tf) * log(N / df)`` and scale rows to unit length.

    The second half of `LtcVectorizer`. Counts are meant to be whole numbers: below 1 the logarithm is negative.

    Parameters
    ----------
    sublinear_tf : bool
        Whether to take ``1 + log tf`` instead of ``tf``.
    smooth_idf : bool
        Whether to take scikit-learn's ``log((1 + N) / (1 + df)) + 1`` instead of ``log(N / df)``, which is zero for
        a term that all documents have.

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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "sublinear_tf": ["boolean"],
        "smooth_idf": ["boolean"],
    }

    def __init__(self, *, sublinear_tf: bool = True, smooth_idf: bool = False) -> None:
        self.sublinear_tf = sublinear_tf
        self.smooth_idf = smooth_idf

    def fit(self, X: Any, y: Any = None) -> LtcTransformer:
        """Learn in how many documents each term occurs.

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
        """Weigh counts with what `fit` learned.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Counts.

        Returns
        -------
        csr_matrix of shape (n_samples, n_features)
            Rows of length one, or of zeros where a document has no weighted term.
        """
        check_is_fitted(self)
        return ltc_rows(self._counts(X, reset=False), self.idf_, self.sublinear_tf)

    def _counts(self, X: Any, reset: bool) -> sparse.csr_matrix:
        """Check counts and return a copy without zeros, in the floating precision they came in."""
        dtypes = (np.float64, np.float32)
        X = validate_data(self, X, accept_sparse="csr", dtype=dtypes, ensure_non_negative=True, reset=reset)
        counts = sparse.csr_matrix(X, copy=True)
        counts.sum_duplicates()
        counts.eliminate_zeros()
        return counts

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
