"""The E-step for dense rows: products of matrices over blocks of rows that stay in the cache.

Rows are an array, or an object whose slices are arrays: it has `shape`, `dtype`, `dense = True` and `about`, which
identifies it, and makes its rows on request (rows of a file, rows after a map). Blocks are computed in the precision
of the rows and added in double precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.core.chunks import split

Matrix = NDArray[Any]

ROWS_AT_ONCE = 4096
_MOST_CHUNKS = 64


class Counted(NamedTuple):
    """Sums over rows: responsibilities, rows weighted by them (n_features, n_components), value of the bound."""

    counts: Matrix
    sums: Matrix
    value: float


def is_dense(X: Any) -> bool:
    """Whether rows are dense: an array, or an object that makes arrays.

    Examples
    --------
    >>> is_dense(np.eye(2))
    True
    """
    return isinstance(X, np.ndarray) or bool(getattr(X, "dense", False))


def dense_chunks(n_rows: int) -> list[slice]:
    """Cut dense rows into at most 64 chunks for threads or shards; the cut depends on their number alone.

    Examples
    --------
    >>> dense_chunks(10_000)
    [slice(0, 5000, None), slice(5000, 10000, None)]
    """
    return split(n_rows, max(1, min(_MOST_CHUNKS, n_rows // ROWS_AT_ONCE)))


def blocks(chunk: slice) -> list[slice]:
    """Cut a chunk into blocks of at most `ROWS_AT_ONCE` rows."""
    return [
        slice(chunk.start + part.start, chunk.start + part.stop)
        for part in split(chunk.stop - chunk.start, size=ROWS_AT_ONCE)
    ]


def block_scores(Z: Matrix, weights: Matrix, scale: Matrix, offset: Matrix) -> Matrix:
    """Scores (n_rows, n_components) of rows in memory."""
    S = Z @ weights
    if np.any(scale != 1):
        S *= scale
    S += offset
    return np.asarray(S)


def share_block(S: Matrix, weight: Matrix) -> tuple[Matrix, Matrix]:
    """Replace scores by responsibilities times weights; return them and the log-sum-exp of each row.

    Examples
    --------
    >>> shares, total = share_block(np.log([[1.0, 3.0]]), np.array([2.0]))
    >>> shares.round(6), total.round(6)
    (array([[0.5, 1.5]]), array([1.386294]))
    """
    top = S.max(axis=1)
    S -= top[:, None]
    np.exp(S, out=S)
    total = S.sum(axis=1)
    S *= (weight / total)[:, None]
    return S, top + np.log(total)


def count_dense(
    X: Any,
    weight: Matrix,
    chunk: slice,
    weights: Matrix,
    scale: Matrix,
    offset: Matrix,
    temperature: float,
) -> Counted:
    """Statistics of a chunk of dense rows; the scores are divided by the temperature if it is not 0.

    At temperature 0 only the best component of a row counts, of equal ones the first.
    """
    n_components = weights.shape[1]
    counts, sums, value = np.zeros(n_components), np.zeros((X.shape[1], n_components)), 0.0
    for block in blocks(chunk):
        Z, row_weight = X[block], weight[block]
        S = block_scores(Z, weights, scale, offset)
        if temperature == 0:
            best = S.argmax(axis=1)
            at = np.arange(len(S)), best
            value += float(row_weight @ S[at])
            S[:] = 0
            S[at] = row_weight
            counts += np.bincount(best, row_weight, n_components)
        else:
            S, total = share_block(S, row_weight)
            value += temperature * float(row_weight @ total)
            counts += S.sum(axis=0)
        sums += Z.T @ S
    return Counted(counts, sums, value)
