"""PCC: a metric from pairs that belong together and pairs that do not (Bilenko, Basu and Mooney 2004).

With squared distances the published objective (thesis 6.6.1, baseline 6) is linear in A and needs a barrier,

    min_A  <A, G> - log det A,       G = within + must - weight * cannot,

where `within` is the mean of (x - m)(x - m)' over labelled rows, and `must` and `cannot` are means of (x - x')(x -
x')' over the pairs of rows of equal and of different groups, and over the pairs that were given. The solution is A =
G^-1 where G is positive definite; otherwise the smallest multiple of the identity that makes it so is added to G, as
its authors do. Means over pairs of groups follow from the moments of the groups: no pair of rows is visited.

Reference
---------
M. Bilenko, S. Basu and R. Mooney (2004). Integrating constraints and metric learning in semi-supervised clustering.
ICML.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _num_samples

from arbora.core.validation import check_features
from arbora.expand._common.groups import GroupMoments, group_covariances, group_moments
from arbora.expand._common.space import to_space
from arbora.expand._common.transform import Labelled, Learned, MetricTransform, square_root

Matrix = NDArray[Any]
_SMALLEST = 1e-6  # the same where nothing is subtracted from G
_FLOOR = 0.5  # smallest eigenvalue of G over its mean absolute one


def pair_scatters(moments: GroupMoments, covariance: Matrix) -> tuple[Matrix, Matrix]:
    """Mean of (x - x')(x - x')' over pairs of rows of one group, and over pairs of rows of different groups.

    Both follow from the moments of the groups: the sum over all pairs is twice the total covariance, and pairs of one
    group have twice its own. Pairs of a row with itself count among those of one group.

    Examples
    --------
    >>> import numpy as np
    >>> moments = GroupMoments(np.ones(2), np.array([[0.0], [2.0]]), np.array([[1.0]]))
    >>> must, cannot = pair_scatters(moments, np.ones((2, 1, 1)))
    >>> must.item(), cannot.item()
    (2.0, 6.0)
    """
    share = moments.weight / moments.weight.sum()
    away = moments.mean - share @ moments.mean
    total = moments.within + away.T @ (share[:, None] * away)
    same = float(share @ share)
    inside = 2 * np.einsum("k,kpq->pq", share**2, covariance)
    apart = max(1 - same, np.finfo(np.float64).tiny)
    return inside / same, (2 * total - inside) / apart


def scatter_of(ends: Matrix) -> Matrix:
    """Mean of (x - x')(x - x')' over pairs of rows, given as an array of shape (n_pairs, 2, n_dims)."""
    away = ends[:, 0] - ends[:, 1]
    return np.asarray(away.T @ away / len(away))


def check_pairs(pairs: Any, name: str, n_samples: int) -> NDArray[np.int64]:
    """Check pairs of row numbers.

    Examples
    --------
    >>> check_pairs([(0, 2)], "must_link", 3)
    array([[0, 2]])
    """
    if pairs is None or len(pairs) == 0:
        return np.empty((0, 2), np.int64)
    found = np.asarray(pairs)
    if found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold pairs of row numbers; its shape is {found.shape}.")
    if found.min() < 0 or found.max() >= n_samples:
        wrong = found[(found < 0) | (found >= n_samples)][0]
        raise ValueError(f"{name} names row {wrong}, but X has the rows 0 to {n_samples - 1}.")
    return found.astype(np.int64)


def invert_shifted(G: Matrix, floor: float = _FLOOR) -> Matrix:
    """Inverse of G, shifted by the smallest multiple of the identity that makes it positive definite."""
    values = np.linalg.eigvalsh(G)
    level = float(np.abs(values).mean())
    shift = max(0.0, floor * level - float(values[0]))
    return np.linalg.inv(G + (shift if level > 0 else 1.0) * np.eye(len(G)))


class PairwiseConstraintTransform(MetricTransform):
    """Metric that draws must-link pairs together and pushes cannot-link pairs apart (PCC).

    Labelled rows of one group are must-link pairs, those of different groups cannot-link pairs; further pairs may be
    given to `fit`.

    Parameters
    ----------
    cannot_weight : float
        Weight of the cannot-link pairs; their mean is compared with that of the must-link pairs.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first; see `WithinClassTransform`.
    random_state : int, RandomState instance or None
        Seed of the randomised SVD.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_dims)
    A_ : ndarray of shape (n_dims, n_dims)
    classes_ : ndarray
    space_ : FeatureSpace
    n_features_in_ : int

    Examples
    --------
    >>> from arbora.expand import PairwiseConstraintTransform
    >>> X = [[0.0, 5.0], [0.1, -5.0], [1.0, 5.0], [0.9, -5.0], [2.0, 0.0]]
    >>> y = ["a", "a", "b", "b", None]
    >>> transform = PairwiseConstraintTransform().fit(X, y, cannot_link=[(0, 4)])
    >>> bool(transform.A_[0, 0] > transform.A_[1, 1])
    True
    """

    _learns_in_single = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "cannot_weight": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, cannot_weight: float = 0.1, *, n_dims: Any = "auto", random_state: Any = None) -> None:
        self.cannot_weight = cannot_weight
        self.n_dims = n_dims
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, must_link: Any = None, cannot_link: Any = None
    ) -> Self:
        """Learn the metric from labelled rows and from pairs.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Groups as integers or strings; -1, None and NaN mark unlabelled rows.
        sample_weight : array-like of shape (n_samples,), optional
            A weight counts like repetitions of the row.
        must_link, cannot_link : array-like of shape (n_pairs, 2), optional
            Pairs of row numbers that belong together, or do not. Their mean counts as much as that of the pairs
            that follow from the labels.

        Returns
        -------
        self
        """
        must, cannot = (
            check_pairs(pairs, name, _num_samples(X))
            for pairs, name in ((must_link, "must_link"), (cannot_link, "cannot_link"))
        )

        def learn(labelled: Labelled) -> Learned:
            moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
            covariance = group_covariances(labelled.Z, labelled.codes, moments, labelled.row_weight)
            together, apart = pair_scatters(moments, covariance)
            if labelled.n_groups == 1:
                apart = np.zeros_like(apart)
            rows = check_features(self, X, reset=False)
            for pairs, scatter in ((must, together), (cannot, apart)):
                if len(pairs):
                    ends = to_space(self.space_, rows[pairs.ravel()]).reshape(len(pairs), 2, -1)
                    scatter += scatter_of(ends)
            G = moments.within + together - self.cannot_weight * apart
            floor = _FLOOR if self.cannot_weight > 0 and apart.any() else _SMALLEST
            return Learned(square_root(invert_shifted(G, floor)), gap=0.0)

        return self._fit(X, y, sample_weight, learn)
