"""Train on the features that occur in X, then expand the weights to all features.

The weights of very many classes may fill the memory, so they are not copied if that can be avoided:

- if most features occur, all of them are trained, and the weights of the others stay zero;
- otherwise the weights are copied into a new matrix, whose pages of zeros take no memory;
- pruned weights become a sparse matrix of the entries that are large enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify._linear.linear_model import LinearModel
from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.infer.tree_sum import pruned

_DENSE_SHARE = 0.5  # share of non-zero entries above which X is made dense
_OCCURRING_SHARE = 0.5  # share of occurring features above which all features are trained
_WEIGHTS_PER_CHUNK = 1 << 24  # weights that are copied at a time


def design_matrix(X: sp.csr_array, bias: float, dtype: Any) -> tuple[Any, NDArray[np.int64]]:
    """Select the features to train on and append a constant one for the bias.

    The result is dense if most of its entries are non-zero.

    Returns
    -------
    rows : ndarray or CSR array of shape (n_samples, n_selected) or, with a bias, (n_samples, n_selected + 1)
    selected : ndarray of int of shape (n_selected,)
        Columns of X: the features that occur, or all features if most occur.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> design_matrix(sp.csr_array([[0.0, 3.0]]), 1.0, "float64")
    (array([[3., 1.]]), array([1]))
    """
    selected = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
    if len(selected) > _OCCURRING_SHARE * X.shape[1]:
        selected = np.arange(X.shape[1])
    X = X.astype(dtype) if len(selected) == X.shape[1] else sp.csr_array(X[:, selected]).astype(dtype)
    column = np.full((X.shape[0], 1 if bias else 0), bias, dtype)
    if X.nnz > _DENSE_SHARE * X.shape[0] * max(X.shape[1], 1):
        return np.hstack([X.toarray(), column]), selected
    return sp.csr_array(sp.hstack([X, sp.csr_array(column)], format="csr")), selected


def _chunks(n_rows: int, n_columns: int) -> list[slice]:
    return split(n_rows, size=max(1, _WEIGHTS_PER_CHUNK // max(1, n_columns)))


def needs_no_copy(n_selected: int, n_features: int, bias: float, engine: Engine) -> bool:
    """Whether the trained matrix has the shape of the final weights.

    A file of weights always has a row for the bias.
    """
    return n_selected == n_features and (bias > 0 or engine.shares_memory)


def dense_model(
    W: NDArray[Any],
    selected: NDArray[np.int64],
    n_features: int,
    bias: float,
    engine: Engine,
    position: NDArray[np.int64] | None = None,
) -> LinearModel:
    """Expand trained weights to all features, as dense arrays.

    Parameters
    ----------
    W : ndarray of shape (n_selected, n_classes) or, with a bias, (n_selected + 1, n_classes)
        Trained weights, the bias last. They may be overwritten.
    selected : ndarray of int of shape (n_selected,)
        Features of the rows of W.
    n_features : int
    bias : float
        Value of the constant feature; 0 without a bias.
    engine : Engine
    position : ndarray of int of shape (n_classes,), optional
        Column of W of each class; by default the columns are in the order of the classes.

    Returns
    -------
    LinearModel

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.core.engine import SerialEngine
    >>> W = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> dense_model(W, np.array([1, 2]), 3, 10.0, SerialEngine())
    LinearModel(coef=array([[0., 1., 3.],
           [0., 2., 4.]]), intercept=array([50., 60.]))
    """
    target = np.append(selected, n_features) if bias else selected
    chunks = _chunks(len(target), W.shape[1])
    if needs_no_copy(len(selected), n_features, bias, engine):
        for chunk in chunks if position is not None else []:
            W[chunk] = W[chunk][:, position]
            engine.settle(W)
        if not bias:
            return LinearModel(W.T, np.zeros(W.shape[1], W.dtype))
        return LinearModel(W[:-1].T, W[-1] * W.dtype.type(bias))
    weights = engine.zeros((n_features + 1, W.shape[1]), W.dtype)
    for chunk in chunks:
        weights[target[chunk]] = W[chunk] if position is None else W[chunk][:, position]
        engine.settle(W)
        engine.settle(weights)
    engine.discard(W)
    return LinearModel(weights[:-1].T, weights[-1] * weights.dtype.type(bias))


def pruning_limits(n_weights: int, prune_below: float, bias: float, dtype: Any) -> NDArray[Any]:
    """Return, for each row of the weights, the absolute value above which entries are kept; 0 for the bias."""
    limits = np.full(n_weights, prune_below, dtype)
    if bias:
        limits[-1] = 0
    return limits


def pruned_model(
    W: Any,
    selected: NDArray[np.int64],
    n_features: int,
    bias: float,
    limits: NDArray[Any],
    position: NDArray[np.int64] | None = None,
) -> LinearModel:
    """Expand trained weights to all features, as a sparse matrix of the entries above `limits`.

    Parameters
    ----------
    W : ndarray or CSR array of shape (n_selected, n_classes) or, with a bias, (n_selected + 1, n_classes)
        Trained weights, the bias last. A sparse W is pruned already.
    selected, n_features, bias, position
        As in `dense_model`.
    limits : ndarray of shape (len(W),)
        As `pruning_limits` returns them.

    Returns
    -------
    LinearModel

    Examples
    --------
    >>> import numpy as np
    >>> W = np.array([[1.0, 0.2], [0.3, 4.0], [0.1, 6.0]])
    >>> model = pruned_model(W, np.array([1, 2]), 3, 10.0, np.array([0.5, 0.5, 0.0]))
    >>> model.coef.toarray(), model.intercept
    (array([[0., 1., 0.],
           [0., 0., 4.]]), array([ 1., 60.]))
    """
    if not sp.issparse(W):
        chunks = _chunks(*W.shape) or [slice(0)]
        W = sp.csr_array(sp.vstack([pruned(W[chunk], limits[chunk, None]) for chunk in chunks], format="csr"))
    W = W if position is None else sp.csr_array(W[:, position])
    n_classes, dtype = W.shape[1], W.dtype
    intercept = W[[-1]].toarray().ravel() * dtype.type(bias) if bias else np.zeros(n_classes, dtype)
    indptr = np.zeros(n_features + 1, W.indptr.dtype)
    indptr[selected + 1] = np.diff(W.indptr)[: len(selected)]
    np.cumsum(indptr, out=indptr)
    entries = W.data[: indptr[-1]], W.indices[: indptr[-1]], indptr
    return LinearModel(sp.csc_array(entries, shape=(n_classes, n_features)), intercept)
