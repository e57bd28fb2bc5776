"""Documents as tokens: counts in, one entry for every occurrence of a word."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.core.chunks import require_memory
from arbora.core.validation import check_not_above, check_not_negative, check_rows, refuse_entries

_MOST = 2**30  # tokens of a document and of all documents that counts of 32 bits hold without care


class Corpus(NamedTuple):
    """Tokens of documents: those of document i are words[indptr[i]:indptr[i + 1]].

    `landmarks` has the cluster of each document whose cluster is known, and -1 for the others.
    """

    indptr: NDArray[np.int64]
    words: NDArray[np.int32]
    landmarks: NDArray[np.int64]
    n_words: int

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each document."""
        return np.diff(self.indptr)


def read_counts(estimator: Any, X: Any, *, reset: bool) -> sp.csr_array:
    """Check a matrix of counts.

    Parameters
    ----------
    estimator : estimator
        `estimator.fractions` says what to do with values that are not whole: "error" or "round".
    X : array-like or sparse matrix of shape (n_samples, n_features)
    reset : bool
        True in `fit`, False afterwards.

    Returns
    -------
    CSR array of float64 with whole numbers
    """
    name = type(estimator).__name__
    rows = check_rows(estimator, X, reset=reset)
    check_not_negative(rows, name, "Give counts of words")
    check_not_above(rows, _MOST, "Give counts of words: a document cannot have so many")
    if estimator.fractions == "round":
        rounded = rows.copy()
        rounded.data = np.rint(rows.data)
        return sp.csr_array(rounded)
    refuse_entries(
        rows,
        lambda values: values != np.rint(values),
        lambda value: f"contains {value:g}, which is not a count,",
        f"{name} draws a topic for every occurrence of a word: give counts (scikit-learn's CountVectorizer), or set "
        "fractions='round'",
    )
    return rows


def make_corpus(X: sp.csr_array, landmarks: NDArray[np.int64] | None = None) -> Corpus:
    """Repeat every word as often as it occurs.

    Examples
    --------
    >>> corpus = make_corpus(sp.csr_array([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    >>> corpus.indptr, corpus.words
    (array([0, 3, 4]), array([0, 0, 2, 1], dtype=int32))
    """
    counts = X.data.astype(np.int64)
    n_tokens = int(counts.sum())
    if n_tokens > _MOST:
        raise ValueError(
            f"X has {n_tokens:,} occurrences of words, but at most {_MOST:,} are possible: give fewer documents, or "
            "leave out the most frequent words."
        )
    require_memory(12 * n_tokens, f"A corpus of {n_tokens:,} tokens", "Give fewer documents or words.")
    owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    lengths = np.bincount(owner, weights=counts, minlength=X.shape[0]).astype(np.int64)
    indptr = np.append(0, np.cumsum(lengths)).astype(np.int64)
    words = np.repeat(X.indices.astype(np.int32), counts)
    known = np.full(X.shape[0], -1, np.int64) if landmarks is None else landmarks
    return Corpus(indptr, words, known, X.shape[1])
