"""Some rows of a data set, for work that does not grow with all features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.infer.linear.flat import LinearRows
from arbora.kernels.triples import take_rows


class View(NamedTuple):
    """Some rows, with the features that occur in them."""

    ids: NDArray[np.int64]
    features: NDArray[np.int64]  # the last one is the bias
    rows: LinearRows


def view_all(rows: LinearRows) -> View:
    """All rows, with all features."""
    return View(np.arange(rows.n_samples), np.arange(rows.n_features + 1), rows)


def view_some(rows: LinearRows, ids: NDArray[np.int64]) -> View:
    """Take some rows, with their features counted anew, so that work on them does not grow with all features."""
    if rows.dense:
        width = rows.n_features
        indptr = np.arange(len(ids) + 1, dtype=rows.indptr.dtype) * width
        data = rows.data.reshape(-1, width)[ids].ravel()
        indices, features = rows.indices[: data.size], np.arange(width)
    else:
        scratch = np.full(rows.n_features, -1, np.int32)
        indptr, indices, data, features = take_rows(rows.indptr, rows.indices, rows.data, ids, scratch)
    part = LinearRows(indptr, indices, data, rows.norm2[ids], rows.bias, rows.dense, len(features))
    return View(ids, np.append(features, rows.n_features), part)
