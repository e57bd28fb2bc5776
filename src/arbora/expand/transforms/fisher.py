"""Fisher discriminant analysis (FD) and its form over pairs of groups (TCS-FS), with a ridge.

The rows of the map are the leading solutions of the generalised eigenproblem (6.4)

    S_B e = lambda (S_W + r I) e,       e'(S_W + r I) e = 1,       r = ridge tr(S_W) / P.

For FD, S_B = sum_k w_k (m_k - m)(m_k - m)' over the groups with their shares w_k; for TCS-FS, S_B is the sum of
(m_i - m_j)(m_i - m_j)' over all pairs of groups. Both have the rank K - 1. With all K - 1 directions the two maps
span the same space and differ by a rotation, so that TCS-FS matters when fewer are kept.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Matrix
from arbora.core.estimator import warn_caller
from arbora.core.monitor import Progress
from arbora.expand.groups import GroupMoments, group_moments
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform

_FEW_GROUPS = 5


def between_groups(moments: GroupMoments) -> Matrix:
    """Scatter of the group means around the mean of all labelled rows, by share of the groups."""
    share = moments.weight / moments.weight.sum()
    deviation = moments.mean - share @ moments.mean
    return np.asarray(deviation.T @ (share[:, None] * deviation))


def between_pairs(moments: GroupMoments) -> Matrix:
    """Sum of (m_i - m_j)(m_i - m_j)' over pairs of groups: M'(K I - 11')M."""
    deviation = moments.mean - moments.mean.mean(axis=0)
    return np.asarray(len(deviation) * deviation.T @ deviation)


def discriminants(between: Matrix, within: Matrix, ridge: float, n_components: int) -> Matrix:
    """Leading generalised eigenvectors as rows, each of unit length in the metric of `within`."""
    width = len(within)
    level = float(np.trace(within)) / width
    floor = max(ridge * level, 1e-10 * level, TINY**0.5)
    _, vectors = eigh(between, within + floor * np.eye(width))
    return np.ascontiguousarray(vectors[:, ::-1][:, :n_components].T)


class FisherTransform(MetricTransform):
    """Fisher discriminant analysis with a ridge (FD).

    It keeps at most one direction less than there are labelled groups, which is little to find new groups in: with
    fewer than five groups it warns.

    Parameters
    ----------
    ridge : float, "cv" or sequence of floats
        Multiple of the identity that is added to the within-group covariance, in units of its mean variance. A
        sequence: the candidate with which hidden known groups are found again best; "cv" has four from .01 to 10.
    n_components : int, optional
        Directions to keep, at most the number of groups minus one, which is the default.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first; see `WithinClassTransform`.
    random_state : int, RandomState instance or None
        Seed of the randomised SVD and of the hidden groups.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_dims)
    A_ : ndarray of shape (n_dims, n_dims)
    ridge_ : float
    cv_results_ : dict
        After a choice: "ridge", "mean_score" and "scores" (by fold).
    duality_gap_ : float
        0: the solution is exact.
    trace_ : Trace
        The objective, scatter between groups in the learned space, in one row.
    classes_ : ndarray
    space_ : FeatureSpace
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import FisherTransform
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(6), 20)
    >>> X = rng.normal(size=(120, 4)) + 4 * rng.normal(size=(6, 4))[y]
    >>> FisherTransform(n_components=2).fit_transform(X, y).shape
    (120, 2)
    """

    _strength, _candidates = "ridge", (1e-2, 1e-1, 1.0, 10.0)
    _learns_in_single = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "ridge": [StrOptions({"cv"}), Interval(Real, 0, None, closed="left"), "array-like"],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
    }
    _between = staticmethod(between_groups)

    def __init__(
        self,
        ridge: Any = 0.1,
        *,
        n_components: int | None = None,
        n_dims: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.ridge = ridge
        self.n_components = n_components
        self.n_dims = n_dims
        self.random_state = random_state

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
        rank = min(labelled.n_groups - 1, labelled.Z.shape[1])
        n_components = max(1, rank if self.n_components is None else min(self.n_components, rank))
        between = self._between(moments)
        L = discriminants(between, moments.within, strength, n_components)
        return Learned(L, exact=float(np.einsum("cp,pq,cq->", L, between, L)))

    def _warn(self, labelled: Labelled, learned: Learned) -> None:
        if labelled.n_groups < _FEW_GROUPS:
            warn_caller(
                f"{type(self).__name__} keeps {labelled.n_groups - 1} directions, one less than there are labelled "
                "groups; new groups may differ in others. Label more groups, or use WithinClassTransform."
            )


class PairwiseFisherTransform(FisherTransform):
    """Fisher discriminant analysis over pairs of groups (TCS-FS).

    All pairs of groups count the same, whatever their sizes. With all directions kept it equals `FisherTransform` up
    to a rotation; give `n_components`.

    Parameters
    ----------
    ridge, n_components, n_dims, random_state
        As in `FisherTransform`.

    Attributes
    ----------
    components_, A_, ridge_, cv_results_, duality_gap_, trace_, classes_, space_, n_features_in_
        As in `FisherTransform`.

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import PairwiseFisherTransform
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(6), 20)
    >>> X = rng.normal(size=(120, 4)) + 4 * rng.normal(size=(6, 4))[y]
    >>> PairwiseFisherTransform(n_components=2).fit_transform(X, y).shape
    (120, 2)
    """

    _between = staticmethod(between_pairs)
