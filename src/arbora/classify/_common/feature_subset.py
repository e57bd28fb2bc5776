"""Features that occur: where most do not, these are trained alone, and the others get their zeros in the end.

Weights of very many classes fill the memory, so that there is no room for a second copy. Where most features occur
all are trained, and the weights of those that do not stay zero; elsewhere a new matrix takes no memory for its zeros.
Of pruned weights, only those that are large enough are put together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify._common.linear_model import LinearModel
from arbora.core.chunks import split
from arbora.engine import ThreadEngine
from arbora.infer.prune import pruned

_DENSE = 0.5  # share of entries at which rows count as dense
_MOST = 0.5  # share of features that occur above which all are trained
_AT_ONCE = 1 << 24  # weights that are copied at a time


def with_bias(X: sp.csr_array, bias: float, dtype: Any) -> tuple[Any, NDArray[np.int64]]:
    """Features that occur (or all, if most do), a constant one behind them, dense if most entries are there.

    Also which of all features they are.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> with_bias(sp.csr_array([[0.0, 3.0]]), 1.0, "float64")
    (array([[3., 1.]]), array([1]))
    """
    seen = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
    if len(seen) > _MOST * X.shape[1]:
        seen = np.arange(X.shape[1])
    X = X.astype(dtype) if len(seen) == X.shape[1] else sp.csr_array(X[:, seen]).astype(dtype)
    column = np.full((X.shape[0], 1 if bias else 0), bias, dtype)
    if X.nnz > _DENSE * X.shape[0] * max(X.shape[1], 1):
        return np.hstack([X.toarray(), column]), seen
    return sp.csr_array(sp.hstack([X, sp.csr_array(column)], format="csr")), seen


def _parts(n_rows: int, n_columns: int) -> list[slice]:
    return split(n_rows, size=max(1, _AT_ONCE // max(1, n_columns)))


def is_final(n_seen: int, n_features: int, bias: float, engine: ThreadEngine) -> bool:
    """Whether the weights that were trained are those of the model: a file of them always has a row for the bias."""
    return n_seen == n_features and (bias > 0 or engine.shares_memory)


def all_weights(
    W: NDArray[Any],
    seen: NDArray[np.int64],
    n_features: int,
    bias: float,
    engine: ThreadEngine,
    position: NDArray[np.int64] | None = None,
) -> LinearModel:
    """Weights of all features, from those (n_seen, n_classes) that were trained, with the bias behind them.

    `W` may be written over; `position` is the column of each class, if they are not in order.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.engine import ThreadEngine
    >>> W = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> all_weights(W, np.array([1, 2]), 3, 10.0, ThreadEngine())
    LinearModel(coef=array([[0., 1., 3.],
           [0., 2., 4.]]), intercept=array([50., 60.]))
    """
    to = np.append(seen, n_features) if bias else seen
    parts = _parts(len(to), W.shape[1])
    if is_final(len(seen), n_features, bias, engine):
        for part in parts if position is not None else []:
            W[part] = W[part][:, position]
            engine.settle(W)
        if not bias:
            return LinearModel(W.T, np.zeros(W.shape[1], W.dtype))
        return LinearModel(W[:-1].T, W[-1] * W.dtype.type(bias))
    weights = engine.zeros((n_features + 1, W.shape[1]), W.dtype)
    for part in parts:
        weights[to[part]] = W[part] if position is None else W[part][:, position]
        engine.settle(W)
        engine.settle(weights)
    engine.discard(W)
    return LinearModel(weights[:-1].T, weights[-1] * weights.dtype.type(bias))


def sizes_to_keep(n_weights: int, below: float, bias: float, dtype: Any) -> NDArray[Any]:
    """Size above which a weight of each feature is kept: a bias always is."""
    sizes = np.full(n_weights, below, dtype)
    if bias:
        sizes[-1] = 0
    return sizes


def pruned_weights(
    W: Any,
    seen: NDArray[np.int64],
    n_features: int,
    bias: float,
    below: NDArray[Any],
    position: NDArray[np.int64] | None = None,
) -> LinearModel:
    """Weights of all features as a sparse matrix, without those that are no larger than `below`.

    `W` may have been pruned already, where it was trained; `position` is the column of each class, if they are not
    in order.

    Examples
    --------
    >>> import numpy as np
    >>> W = np.array([[1.0, 0.2], [0.3, 4.0], [0.1, 6.0]])
    >>> model = pruned_weights(W, np.array([1, 2]), 3, 10.0, np.array([0.5, 0.5, 0.0]))
    >>> model.coef.toarray(), model.intercept
    (array([[0., 1., 0.],
           [0., 0., 4.]]), array([ 1., 60.]))
    """
    if not sp.issparse(W):
        parts = _parts(*W.shape) or [slice(0)]
        W = sp.csr_array(sp.vstack([pruned(W[part], below[part, None]) for part in parts], format="csr"))
    W = W if position is None else sp.csr_array(W[:, position])
    n_classes, dtype = W.shape[1], W.dtype
    intercept = W[[-1]].toarray().ravel() * dtype.type(bias) if bias else np.zeros(n_classes, dtype)
    indptr = np.zeros(n_features + 1, W.indptr.dtype)
    indptr[seen + 1] = np.diff(W.indptr)[: len(seen)]
    np.cumsum(indptr, out=indptr)
    entries = W.data[: indptr[-1]], W.indices[: indptr[-1]], indptr
    return LinearModel(sp.csc_array(entries, shape=(n_classes, n_features)), intercept)
