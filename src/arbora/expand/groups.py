"""Partial labels: which rows carry a group, which are unlabelled, and the statistics of the groups."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import _check_sample_weight

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.core import labels as partial_labels
from arbora.core.chunks import split
from arbora.core.labels import UNLABELLED, kind_of
from arbora.core.labels import Groups as Groups

_ROWS_AT_ONCE = 4096

_NONE_LABELLED = (
    "no row of y carries a label: a transformation is learned from labelled groups. To find groups without any "
    "labels use arbora.discover."
)


def read_groups(y: Any, n_samples: int, *, require: bool = True) -> Groups:
    """Read labels in which -1, None or NaN means unlabelled; with `require` at least one row must carry a label."""
    return partial_labels.read_groups(y, n_samples, none_labelled=_NONE_LABELLED if require else "")


def read_further(y: Any, n_samples: int, known: Matrix) -> Groups:
    """Read labels of further rows: all may be missing, and they must be of the type of the known ones."""
    if y is None:
        return Groups(np.full(n_samples, UNLABELLED, np.int64), known[:0])
    groups = read_groups(y, n_samples, require=False)
    kinds = {kind_of(label) for label in [*groups.classes.tolist(), *known.tolist()]}
    if len(kinds) > 1:
        raise ValueError(
            f"y mixes labels of several types ({', '.join(sorted(kinds))}) with those of the fit: use labels of one "
            "type."
        )
    return groups


def check_row_weight(sample_weight: Any, X: Any) -> Array:
    """Weights of rows as float64; a weight counts like repetitions of a row."""
    weight: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    return weight


class LabelledClusterer:
    """Mixin of the clusterers that need labels."""

    def fit_predict(self, X: Any, y: Any) -> Matrix:
        """Fit, and return the group or cluster of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like
            As for `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return np.asarray(self.fit(X, y).labels_)  # type: ignore[attr-defined]


class GroupMoments(NamedTuple):
    """Weight, mean and pooled within-group covariance of labelled rows."""

    weight: Array  # n_groups
    mean: Matrix  # n_groups x n_features
    within: Matrix  # n_features x n_features: mean over all rows of (x - m)(x - m)'


def group_moments(Z: Matrix, codes: Ints, n_groups: int, row_weight: Matrix) -> GroupMoments:
    """Moments of the groups, in double precision; all rows of Z are labelled."""
    width, tiny = Z.shape[1], np.finfo(np.float64).tiny
    weight = np.bincount(codes, weights=row_weight, minlength=n_groups).astype(np.float64)
    sums, within = np.zeros((n_groups, width)), np.zeros((width, width))
    chunks = split(len(Z), size=_ROWS_AT_ONCE)
    for rows in chunks:
        indicator = sp.csr_array(
            (row_weight[rows], (codes[rows], np.arange(rows.stop - rows.start))),
            shape=(n_groups, rows.stop - rows.start),
        )
        sums += indicator @ Z[rows]
    mean = sums / np.maximum(weight, tiny)[:, None]
    near = mean.astype(Z.dtype, copy=False)
    for rows in chunks:
        deviation = (Z[rows] - near[codes[rows]]) * np.sqrt(row_weight[rows]).astype(Z.dtype)[:, None]
        within += deviation.T @ deviation
    return GroupMoments(weight, mean, within / max(float(row_weight.sum()), tiny))


def group_covariances(Z: Matrix, codes: Ints, moments: GroupMoments, row_weight: Matrix) -> Array:
    """Covariance of each group, n_groups x n_features x n_features, divided by the weight of the group."""
    n_groups, width = moments.mean.shape
    covariances = np.empty((n_groups, width, width))
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(n_groups + 1))
    for group in range(n_groups):  # one product of matrices each; groups are few
        rows = order[bounds[group] : bounds[group + 1]]
        deviation = (Z[rows] - moments.mean[group]) * np.sqrt(row_weight[rows])[:, None]
        covariances[group] = deviation.T @ deviation / max(moments.weight[group], np.finfo(np.float64).tiny)
    return covariances


# --- The feature space in which transformations are learned: centred, reduced if wide, one common scale -----
#
# All features are divided by one number, such that the mean squared distance of labelled rows from their group mean
# is 1. (Features scaled each by its own deviation lose what pixels or coordinates have in common.) Sparse rows, and
# dense rows with more than `MAX_DIMS` features, are reduced by a truncated SVD first; reduced rows of text are
# divided by their lengths, which helps more on text than supervision does. Rows of single precision stay in it.


MAX_DIMS = 200  # features that are not reduced
REDUCED_DIMS = 30


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
    """Learn the space from all rows, labelled or not, in the precision of X; the scale from the labelled rows.

    `n_dims` are the dimensions after a randomised SVD with the given seed: "auto" reduces sparse rows and those with
    more than 200 features to 30; None keeps all features, as dense rows. ``scale="each"`` divides dense features by
    their own deviations first.
    """
    sparse, n_features = sp.issparse(X), int(X.shape[1])
    if n_dims == "auto":
        reduce = n_features > MAX_DIMS or (sparse and n_features > REDUCED_DIMS)
        n_dims = REDUCED_DIMS if reduce else None
    mean, gain, dtype = np.zeros(n_features), None, X.dtype
    if not sparse:
        mean, variance = column_moments(X, row_weight)
        if scale == "each":
            gain = np.where(variance > 0, 1 / np.sqrt(np.maximum(variance, TINY)), 0.0).astype(dtype)
    mean, basis = mean.astype(dtype), None
    if n_dims is not None and n_dims < min(X.shape):
        rows = X if sparse else (X - mean) * (1.0 if gain is None else gain)
        basis = randomized_svd(rows, int(n_dims), n_iter=4, random_state=seed)[2].T
    basis = None if basis is None else basis.astype(dtype)
    space = FeatureSpace(mean, basis, bool(sparse), 1.0, gain)
    Z = to_space(space, X[groups.labelled])
    moments = group_moments(Z, groups.codes[groups.labelled], groups.n_groups, row_weight[groups.labelled])
    spread = float(np.trace(moments.within))
    if spread <= TINY:  # groups of one row, or of equal rows: the distances between groups are all there is
        spread = float(np.trace(np.cov(Z, rowvar=False, ddof=0).reshape(space.n_dims, -1)))
    return space._replace(scale=float(np.sqrt(spread)) if spread > TINY else 1.0)


def column_moments(X: Matrix, row_weight: Matrix) -> tuple[Matrix, Matrix]:
    """Weighted mean and variance of dense columns, in double precision, without a copy of X."""
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
