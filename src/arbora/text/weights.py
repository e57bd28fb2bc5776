r"""Counts to sparse rows of unit length with ``ltc`` weights.

The letters are those of the SMART system (Salton and Buckley, "Term-weighting approaches in automatic text
retrieval", 1988): **l**\ ogarithmic term frequency, inverse documen\ **t** frequency, **c**\ osine
normalisation. For term t in document d, in a training collection of N documents of which df_t hold t,

    w_dt = (1 + log tf_dt) * log(N / df_t),        x_d = w_d / ||w_d||.

A term that occurs in every training document has log(N / N) = 0: it keeps its column, and no row has an entry
there. A document without a weighted term is a row of zeros. Both weights are ratios of counts, so a
collection given twice has the same rows. With ``smooth_idf=True`` the middle factor is log((1 + N) / (1 +
df_t)) + 1, never zero: scikit-learn's.
"""

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.preprocessing import normalize


def inverse_document_frequency(
    df: npt.NDArray[np.integer], n_samples: int, smooth: bool = False
) -> npt.NDArray[np.float64]:
    """Return log(N / df), or log((1 + N) / (1 + df)) + 1 if `smooth`.

    A column of a given vocabulary that no training document has counts as if one had it.

    Examples
    --------
    >>> inverse_document_frequency(np.array([4, 2, 0]), 4)
    array([0.        , 0.69314718, 1.38629436])
    """
    if smooth:
        return np.log((1 + n_samples) / (1 + df)) + 1
    return np.log(n_samples / np.maximum(df, 1))


def ltc_rows(
    counts: sparse.csr_matrix, idf: npt.NDArray[np.floating], sublinear: bool = True
) -> sparse.csr_matrix:
    """Turn counts into weighted rows of length one, or zero; `counts` is used up.

    Examples
    --------
    >>> counts = sparse.csr_matrix([[1.0, 1.0], [0.0, 1.0]])
    >>> ltc_rows(counts, np.array([0.7, 0.0])).toarray()
    array([[1., 0.],
           [0., 0.]])
    """
    if sublinear:
        np.log(counts.data, out=counts.data)
        counts.data += 1
    counts.data *= idf[counts.indices]
    if not idf.all():
        counts.eliminate_zeros()
    return normalize(counts, copy=False) if counts.shape[0] else counts  # normalize refuses no rows
