"""Rows as mixtures take them: directions of unit length, or counts; sparse, checked, weighted.

Only the direction of a row matters on the sphere, so rows of any length are taken and divided by it, as users of
cosine similarity expect. A zero row has no direction; there is no honest place for it in a model, and it is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, validate_data

from arbora.infer.mixture import Rows, squared_lengths

_SHOWN = 5  # rows that a message lists by number


def check_matrix(estimator: Any, X: Any, *, reset: bool, min_features: int) -> sp.csr_array:
    """Check X as scikit-learn does and return it as CSR of float32 or float64; dense rows keep no zeros."""
    X = validate_data(
        estimator,
        X,
        accept_sparse="csr",
        dtype=(np.float64, np.float32),
        ensure_all_finite=False,  # refused below, by row
        ensure_min_features=min_features if reset else 1,  # later, a wrong number is the better message
        reset=reset,
    )
    if sp.issparse(X):
        X = sp.csr_array(X)
        X.check_format(full_check=True)  # the kernels trust the indices
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    else:
        X = sp.csr_array(X)
    finite = np.isfinite(X.data)
    if not finite.all():
        _refuse(
            _rows_of(X, ~finite), "contain NaN or inf", "Impute or drop them (scikit-learn's SimpleImputer)"
        )
    return X


def unit_rows(X: sp.csr_array, weight: NDArray[Any] | None = None) -> sp.csr_array:
    """Divide every row by its length, in double precision.

    Rows of weight 0 may be zero; others are refused. Lengths are taken after division by the largest entry, so that
    neither huge nor tiny numbers overflow.
    """
    owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    size = np.abs(X.data.astype(np.float64))
    largest = np.zeros(X.shape[0])
    np.maximum.at(largest, owner, size)
    zero = largest == 0
    wrong = zero if weight is None else zero & (weight > 0)
    if wrong.any():
        advice = "Leave them out, e.g. X[abs(X).sum(axis=1) > 0] (documents that share no word with the vocabulary)"
        _refuse(np.flatnonzero(wrong), "are zero and have no direction", advice)
    data = X.data / np.where(zero, 1.0, largest)[owner]
    length = np.sqrt(np.bincount(owner, weights=data**2, minlength=X.shape[0]))
    data /= np.where(zero, 1.0, length)[owner]
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def unit_columns(sums: NDArray[Any], before: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Divide the columns of `sums` by their lengths, which are returned too; a column of zeros stays as `before`."""
    length = np.sqrt(squared_lengths(sums))
    empty = length == 0
    directions = sums / np.where(empty, 1.0, length).astype(sums.dtype)
    if empty.any():
        directions[:, empty] = before[:, empty]
    return directions, length


def count_rows(X: sp.csr_array) -> sp.csr_array:
    """Check that no entry is negative. A row of zeros is an empty document: it tells nothing, and does no harm."""
    negative = X.data < 0
    if negative.any():
        what = "have negative values (Negative values in data: a multinomial mixture is one of counts)"
        _refuse(_rows_of(X, negative), what, "Give counts or frequencies")
    return X


def check_weight(sample_weight: Any, X: Any) -> NDArray[np.float64]:
    """Check the weights of rows; not all of them may be zero."""
    weight: NDArray[np.float64] = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    if not weight.any():
        raise ValueError("all rows have weight 0: there is nothing to learn from.")
    return weight


def as_rows(X: sp.csr_array, weight: NDArray[Any], dtype: Any) -> Rows:
    """Rows that count, in the working precision."""
    if not weight.all():
        kept = np.flatnonzero(weight)
        X, weight = X[kept], weight[kept]
    return Rows(X.astype(dtype, copy=False), weight.astype(dtype, copy=False))


def _rows_of(X: sp.csr_array, entries: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.unique(np.searchsorted(X.indptr, np.flatnonzero(entries), side="right") - 1)


def _refuse(rows: NDArray[Any], what: str, advice: str) -> None:
    listed = ", ".join(str(row) for row in rows[:_SHOWN].tolist())
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    raise ValueError(f"X has rows that {what}: {listed}{more}. {advice}.")
