"""Subsets of the rows with renumbered features, for work that does not grow with the number of all features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.infer.linear.flat import LinearRows
from arbora.kernels.triples import take_rows

_FEW_FEATURES = 4096  # the weights of a block for these fit into the cache


class RowView(NamedTuple):
    """Some rows, with the features that occur in them."""

    ids: NDArray[np.int64]
    features: NDArray[np.int64]  # the last one is the bias
    rows: LinearRows


def view_all(rows: LinearRows) -> RowView:
    """Return a view of all rows, with all features."""
    return RowView(np.arange(rows.n_samples), np.arange(rows.n_features + 1), rows)


def view_by_frequency(rows: LinearRows) -> RowView:
    """Return a view of all rows with the features that occur, the most frequent ones first.

    The weights of frequent features then lie together in memory, and each row reads them in the order of memory:
    a sweep over rows with 400,000 features takes 0.7 of the time. Dense rows, and rows with few features, stay as
    they are.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from arbora.infer.linear.flat import prepare_rows
    >>> X = sp.csr_array((3, 5000))
    >>> X[[0, 1, 1], [70, 9, 70]] = 1.0
    >>> view_by_frequency(prepare_rows(sp.csr_array(X))).features
    array([  70,    9, 5000])
    """
    if rows.dense or rows.n_features <= _FEW_FEATURES:
        return view_all(rows)
    counts = np.bincount(rows.indices, minlength=rows.n_features)
    features = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    rank = np.zeros(rows.n_features, rows.indices.dtype)
    rank[features] = np.arange(len(features))
    shape = rows.n_samples, len(features)
    # The data are copied: they may be those of the caller, and are sorted in place.
    ranked = sp.csr_array((rows.data.copy(), rank[rows.indices], rows.indptr), shape=shape)
    ranked.sort_indices()
    view = rows._replace(indices=ranked.indices, data=ranked.data, n_features=len(features))
    return RowView(np.arange(rows.n_samples), np.append(features, rows.n_features), view)


def view_some(rows: LinearRows, ids: NDArray[np.int64]) -> RowView:
    """Copy some rows and renumber the features that occur in them."""
    if rows.dense:
        width = rows.n_features
        indptr = np.arange(len(ids) + 1, dtype=rows.indptr.dtype) * width
        data = rows.data.reshape(-1, width)[ids].ravel()
        indices, features = rows.indices[: data.size], np.arange(width)
    else:
        scratch = np.full(rows.n_features, -1, np.int32)
        indptr, indices, data, features = take_rows(rows.indptr, rows.indices, rows.data, ids, scratch)
    taken = LinearRows(indptr, indices, data, rows.norm2[ids], rows.bias, rows.dense, len(features))
    return RowView(ids, np.append(features, rows.n_features), taken)
