"""The feature space in which transformations are learned: centred, reduced if wide, one common scale.

All features are divided by one number, such that the mean squared distance of labelled rows from their group mean is
1. (Features scaled each by its own deviation lose what pixels or coordinates have in common.) Sparse rows, and dense
rows with more than `MOST_DIMS` features, are reduced by a truncated SVD first; reduced rows of text are divided by
their lengths, which helps more on text than supervision does. Rows of single precision stay in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from arbora.core.chunks import split
from arbora.expand._common.groups import Groups, group_moments

MOST_DIMS = 200  # features that are not reduced
REDUCED_DIMS = 30
_ROWS_AT_ONCE = 4096
Matrix = NDArray[Any]
_TINY = float(np.finfo(np.float64).tiny)


class FeatureSpace(NamedTuple):
    """Maps rows to the space: z = unit((x - mean) * gain basis) / scale, without `unit` for dense rows."""

    mean: Matrix  # n_features: zeros for sparse rows
    basis: Matrix | None  # n_features x n_dims: None keeps all features
    unit: bool  # whether reduced rows are divided by their lengths
    scale: float
    gain: Matrix | None = None  # n_features: factors of single features, where each has its own

    @property
    def n_dims(self) -> int:
        """Dimensions of the space."""
        return len(self.mean) if self.basis is None else int(self.basis.shape[1])


def fit_space(
    X: Any,
    groups: Groups,
    row_weight: Matrix,
    *,
    n_dims: Any,
    seed: int,
    scale: str = "common",
) -> FeatureSpace:
    """Learn the space from all rows, labelled or not; the scale from the labelled ones.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features)
    groups : Groups
    row_weight : ndarray of shape (n_samples,)
    n_dims : int, "auto" or None
        Dimensions after the SVD. "auto" reduces sparse rows and those with more than 200 features to 30; None
        keeps all features, as dense rows.
    seed : int
        Of the randomised SVD.
    scale : {"common", "each"}
        "each" divides dense features by their own deviations first.

    Returns
    -------
    FeatureSpace
        In the precision of X.
    """
    sparse, n_features = sp.issparse(X), int(X.shape[1])
    if n_dims == "auto":
        reduce = n_features > MOST_DIMS or (sparse and n_features > REDUCED_DIMS)
        n_dims = REDUCED_DIMS if reduce else None
    mean, gain, dtype = np.zeros(n_features), None, X.dtype
    if not sparse:
        mean, variance = column_moments(X, row_weight)
        if scale == "each":
            gain = np.where(variance > 0, 1 / np.sqrt(np.maximum(variance, _TINY)), 0.0).astype(dtype)
    mean, basis = mean.astype(dtype), None
    if n_dims is not None and n_dims < min(X.shape):
        rows = X if sparse else (X - mean) * (1.0 if gain is None else gain)
        basis = randomized_svd(rows, int(n_dims), n_iter=4, random_state=seed)[2].T
    basis = None if basis is None else basis.astype(dtype)
    space = FeatureSpace(mean, basis, bool(sparse), 1.0, gain)
    Z = to_space(space, X[groups.labelled])
    moments = group_moments(Z, groups.codes[groups.labelled], groups.n_groups, row_weight[groups.labelled])
    spread = float(np.trace(moments.within))
    if spread <= _TINY:  # groups of one row, or of equal rows: the distances between groups are all there is
        spread = float(np.trace(np.cov(Z, rowvar=False, ddof=0).reshape(space.n_dims, -1)))
    return space._replace(scale=float(np.sqrt(spread)) if spread > _TINY else 1.0)


def column_moments(X: Matrix, row_weight: Matrix) -> tuple[Matrix, Matrix]:
    """Weighted mean and variance of dense columns, in double precision, without a copy of X.

    Examples
    --------
    >>> import numpy as np
    >>> column_moments(np.array([[0.0], [4.0]], np.float32), np.array([3.0, 1.0]))
    (array([1.]), array([3.]))
    """
    total, sums, squares = float(row_weight.sum()), np.zeros(X.shape[1]), np.zeros(X.shape[1])
    chunks = split(len(X), size=_ROWS_AT_ONCE)
    for rows in chunks:
        sums += row_weight[rows] @ np.asarray(X[rows], np.float64)
    mean = sums / total
    for rows in chunks:
        squares += row_weight[rows] @ (X[rows] - mean) ** 2
    return mean, squares / total


def to_space(space: FeatureSpace, X: Any) -> Matrix:
    """Map rows to the space, as a dense array in the precision of the space."""
    dtype = space.mean.dtype
    if bool(sp.issparse(X)) and space.basis is not None:
        basis = space.basis if space.gain is None else space.gain[:, None] * space.basis
        Z = np.asarray(X @ basis, dtype) - np.asarray(space.mean @ basis, dtype)
    else:
        rows: Any = X.toarray() if hasattr(X, "toarray") else X
        Z = np.asarray(rows, dtype) - space.mean
        Z = Z if space.gain is None else Z * space.gain
        Z = Z if space.basis is None else Z @ space.basis
    if space.unit:
        length = np.linalg.norm(Z, axis=1, keepdims=True)
        Z = Z / np.where(length > 0, length, 1)
    return np.ascontiguousarray(Z / Z.dtype.type(space.scale))
