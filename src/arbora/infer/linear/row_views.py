"""Subsets of the rows with renumbered features, for work that does not grow with the number of all features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.infer.linear.flat import LinearRows
from arbora.kernels.triples import take_rows


class RowView(NamedTuple):
    """Some rows, with the features that occur in them."""

    ids: NDArray[np.int64]
    features: NDArray[np.int64]  # the last one is the bias
    rows: LinearRows


def view_all(rows: LinearRows) -> RowView:
    """Return a view of all rows, with all features."""
    return RowView(np.arange(rows.n_samples), np.arange(rows.n_features + 1), rows)


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
