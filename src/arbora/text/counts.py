"""`LtcTransformer`: ``ltc`` weights for data that are term counts already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Array, Matrix
from arbora.core.estimator import RowEstimator
from arbora.core.validation import check_not_negative, check_rows

# --- Weights ``ltc``: counts to sparse rows of unit length --------------------------------------------------
#
# The letters are those of the SMART system (Salton and Buckley, "Term-weighting approaches in automatic text
# retrieval", 1988): **l**\ ogarithmic term frequency, inverse documen\ **t** frequency, **c**\ osine
# normalisation. For term t in document d, in a training collection of N documents of which df_t contain t,
#
#     w_dt = (1 + log tf_dt) * log(N / df_t),        x_d = w_d / ||w_d||.
#
# A term that occurs in every training document has log(N / N) = 0: it keeps its column, but no row has an entry
# there. A document without a weighted term is a zero row. Duplicating the collection leaves the rows unchanged,
# because N / df_t is a ratio. With ``smooth_idf=True`` the second factor is scikit-learn's
# log((1 + N) / (1 + df_t)) + 1, which is never zero.


def inverse_document_frequency(df: Matrix, n_samples: int, smooth: bool = False) -> Array:
    """Return log(N / df), or log((1 + N) / (1 + df)) + 1 if `smooth`.

    A document frequency of 0, possible with a given vocabulary, counts as 1.
    """
    if smooth:
        return np.asarray(np.log((1 + n_samples) / (1 + df)) + 1)
    return np.asarray(np.log(n_samples / np.maximum(df, 1)))


def ltc_rows(counts: sparse.csr_matrix, idf: Matrix, sublinear: bool = True) -> sparse.csr_matrix:
    """Return weighted rows of unit length, or zero rows; `counts` is overwritten."""
    if sublinear:
        np.log(counts.data, out=counts.data)
        counts.data += 1
    counts.data *= idf[counts.indices]
    if not idf.all():
        counts.eliminate_zeros()
    return normalize(counts, copy=False) if counts.shape[0] else counts  # normalize rejects an empty matrix


def side_by_side(blocks: list[sparse.csr_matrix]) -> sparse.csr_matrix:
    """Join blocks of columns, each with rows of unit length or zero; the rows of the result have unit length."""
    if len(blocks) == 1:
        return blocks[0]
    joined = sparse.csr_matrix(sparse.hstack(blocks, format="csr"))
    return normalize(joined, copy=False) if joined.shape[0] else joined


# --- `LtcTransformer`: ``ltc`` weights for data that are term counts already --------------------------------


class LtcTransformer(RowEstimator, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
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

    _tags: ClassVar[Mapping[str, Any]] = {
        "input_tags.positive_only": True,
        "transformer_tags.preserves_dtype": ["float64", "float32"],
    }
    _parameter_constraints: ClassVar[dict[str, Any]] = {
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
