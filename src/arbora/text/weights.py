r"""Weights ``ltc``: counts to sparse rows of unit length.

The letters are those of the SMART system (Salton and Buckley, "Term-weighting approaches in automatic text
retrieval", 1988): **l**\ ogarithmic term frequency, inverse documen\ **t** frequency, **c**\ osine
normalisation. For term t in document d, in a training collection of N documents of which df_t contain t,

    w_dt = (1 + log tf_dt) * log(N / df_t),        x_d = w_d / ||w_d||.

A term that occurs in every training document has log(N / N) = 0: it keeps its column, but no row has an entry
there. A document without a weighted term is a zero row. Duplicating the collection leaves the rows unchanged,
because N / df_t is a ratio. With ``smooth_idf=True`` the second factor is scikit-learn's
log((1 + N) / (1 + df_t)) + 1, which is never zero.
"""

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.preprocessing import normalize


def inverse_document_frequency(
    df: npt.NDArray[np.integer], n_samples: int, smooth: bool = False
) -> npt.NDArray[np.float64]:
    """Return log(N / df), or log((1 + N) / (1 + df)) + 1 if `smooth`.

    A document frequency of 0, possible with a given vocabulary, counts as 1.

    Examples
    --------
    >>> inverse_document_frequency(np.array([4, 2, 0]), 4)
    array([0.        , 0.69314718, 1.38629436])
    """
    if smooth:
        return np.asarray(np.log((1 + n_samples) / (1 + df)) + 1)
    return np.asarray(np.log(n_samples / np.maximum(df, 1)))


def ltc_rows(
    counts: sparse.csr_matrix, idf: npt.NDArray[np.floating], sublinear: bool = True
) -> sparse.csr_matrix:
    """Return weighted rows of unit length, or zero rows; `counts` is overwritten.

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
    return normalize(counts, copy=False) if counts.shape[0] else counts  # normalize rejects an empty matrix


def side_by_side(blocks: list[sparse.csr_matrix]) -> sparse.csr_matrix:
    """Join blocks of columns, each with rows of unit length or zero; the rows of the result have unit length.

    Examples
    --------
    >>> side_by_side([sparse.csr_matrix([[1.0], [0.0]]), sparse.csr_matrix([[1.0], [1.0]])]).toarray().round(2)
    array([[0.71, 0.71],
           [0.  , 1.  ]])
    """
    if len(blocks) == 1:
        return blocks[0]
    joined = sparse.csr_matrix(sparse.hstack(blocks, format="csr"))
    return normalize(joined, copy=False) if joined.shape[0] else joined
