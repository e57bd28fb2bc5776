"""The feature space in which transformations are learned: centred, reduced if wide, one common scale.

All features are divided by one number, such that the mean squared distance of labelled rows from their group mean is
1. (Features scaled each by its own deviation lose what pixels or coordinates have in common.) Sparse rows, and dense
rows with more than `MOST_DIMS` features, are reduced by a truncated SVD first; reduced rows of text are divided by
their lengths, which helps more on text than supervision does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from arbora.expand._common.groups import Groups, group_moments

MOST_DIMS = 200  # features that are not reduced
REDUCED_DIMS = 30
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
    dtype: Any = np.float64,
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
    dtype : dtype
    """
    sparse, n_features = sp.issparse(X), int(X.shape[1])
    if n_dims == "auto":
        reduce = n_features > MOST_DIMS or (sparse and n_features > REDUCED_DIMS)
        n_dims = REDUCED_DIMS if reduce else None
    mean, gain = np.zeros(n_features), None
    if not sparse:
        mean = np.average(X, axis=0, weights=row_weight)
        if scale == "each":
            deviation = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=row_weight))
            gain = np.where(deviation > 0, 1 / np.maximum(deviation, _TINY), 0.0)
    basis = None
    if n_dims is not None and n_dims < min(X.shape):
        rows = X if sparse else (X - mean) * (1.0 if gain is None else gain)
        basis = randomized_svd(rows, int(n_dims), n_iter=4, random_state=seed)[2].T
    basis = None if basis is None else basis.astype(dtype)
    space = FeatureSpace(mean.astype(dtype), basis, bool(sparse), 1.0, gain)
    Z = to_space(space, X[groups.labelled], dtype)
    moments = group_moments(Z, groups.codes[groups.labelled], groups.n_groups, row_weight[groups.labelled])
    spread = float(np.trace(moments.within))
    if spread <= _TINY:  # groups of one row, or of equal rows: the distances between groups are all there is
        spread = float(np.trace(np.cov(Z, rowvar=False, ddof=0).reshape(space.n_dims, -1)))
    return space._replace(scale=float(np.sqrt(spread)) if spread > _TINY else 1.0)


def to_space(space: FeatureSpace, X: Any, dtype: Any = np.float64) -> Matrix:
    """Map rows to the space, as a dense array."""
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
