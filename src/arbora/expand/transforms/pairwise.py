"""PCC: a metric from pairs that belong together and pairs that do not (Bilenko, Basu and Mooney 2004).

With squared distances the published objective (thesis 6.6.1, baseline 6) is linear in A and needs a barrier,

    min_A  <A, G> - log det A,       G = within + must - weight * cannot,

where `within` is the mean of (x - m)(x - m)' over labelled rows, and `must` and `cannot` are means of (x - x')(x -
x')' over the pairs of rows of equal and of different groups, and over the pairs that were given. Without labels,
`within` is half of `must`, shrunk towards a multiple of the identity by a tenth. The solution is A =
G^-1 where G is positive definite; otherwise the smallest multiple of the identity that makes it so is added to G, as
its authors do. Means over pairs of groups follow from the moments of the groups: no pair of rows is visited.

Reference
---------
M. Bilenko, S. Basu and R. Mooney (2004). Integrating constraints and metric learning in semi-supervised clustering.
ICML.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _num_samples

from arbora.arrays import Ints, Matrix
from arbora.core.estimator import all_or_nothing
from arbora.core.monitor import Progress
from arbora.core.validation import check_features
from arbora.expand.groups import FeatureSpace, GroupMoments, group_covariances, group_moments, to_space
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform, square_root

_MIN_SHIFT = 1e-6  # the same where nothing is subtracted from G
_SHRINKAGE = 0.1
_FLOOR = 0.5  # smallest eigenvalue of G over its mean absolute one


def pair_scatters(moments: GroupMoments, covariance: Matrix) -> tuple[Matrix, Matrix]:
    """Mean of (x - x')(x - x')' over pairs of rows of one group, and over pairs of rows of different groups.

    Both follow from the moments of the groups: the sum over all pairs is twice the total covariance, and pairs of one
    group have twice its own. Pairs of a row with itself count among those of one group.
    """
    share = moments.weight / moments.weight.sum()
    deviation = moments.mean - share @ moments.mean
    total = moments.within + deviation.T @ (share[:, None] * deviation)
    same = float(share @ share)
    inside = 2 * np.einsum("k,kpq->pq", share**2, covariance)
    other = max(1 - same, np.finfo(np.float64).tiny)
    return inside / same, (2 * total - inside) / other


def scatter_of(X: Any, pairs: Ints, space: FeatureSpace) -> Matrix:
    """Mean of (x - x')(x - x')' over pairs of rows, in a feature space; 0 without pairs."""
    ends = to_space(space, X[pairs.ravel()]).reshape(len(pairs), 2, space.n_dims)
    difference = ends[:, 0] - ends[:, 1]
    return np.asarray(difference.T @ difference / max(len(pairs), 1))


def shrunk(S: Matrix) -> Matrix:
    """Covariance moved towards a multiple of the identity: a few pairs say nothing of most directions."""
    return np.asarray((1 - _SHRINKAGE) * S + _SHRINKAGE * np.trace(S) / len(S) * np.eye(len(S)))


def check_pairs(pairs: Any, name: str, n_samples: int) -> Ints:
    """Pairs of row numbers (n_pairs, 2); numbers outside of the rows are refused."""
    if pairs is None or len(pairs) == 0:
        return np.empty((0, 2), np.int64)
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold pairs of row numbers; its shape is {rows.shape}.")
    if rows.min() < 0 or rows.max() >= n_samples:
        wrong = rows[(rows < 0) | (rows >= n_samples)][0]
        raise ValueError(f"{name} names row {wrong}, but X has the rows 0 to {n_samples - 1}.")
    return rows.astype(np.int64)


def invert_shifted(G: Matrix, floor: float = _FLOOR) -> Matrix:
    """Inverse of G, shifted by the smallest multiple of the identity that makes it positive definite."""
    values = np.linalg.eigvalsh(G)
    level = float(np.abs(values).mean())
    shift = max(0.0, floor * level - float(values[0]))
    return np.linalg.inv(G + (shift if level > 0 else 1.0) * np.eye(len(G)))


class PairScatters(NamedTuple):
    """Covariance inside of the groups, and scatters of must-link and of cannot-link pairs."""

    within: Matrix
    must: Matrix
    cannot: Matrix


def label_scatters(labelled: Labelled) -> PairScatters:
    """Scatters of the pairs that follow from the labels; a single group has no cannot-link pairs."""
    moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
    covariance = group_covariances(labelled.Z, labelled.codes, moments, labelled.row_weight)
    must, cannot = pair_scatters(moments, covariance)
    return PairScatters(moments.within, must, cannot if labelled.n_groups > 1 else np.zeros_like(cannot))


def metric_of_pairs(scatters: PairScatters, cannot_weight: float) -> Learned:
    """Map L whose A = L'L has the best objective."""
    G = scatters.within + scatters.must - cannot_weight * scatters.cannot
    floor = _FLOOR if cannot_weight > 0 and scatters.cannot.any() else _MIN_SHIFT
    inverse = invert_shifted(G, floor)
    return Learned(square_root(inverse), exact=len(G) - float(np.linalg.slogdet(inverse)[1]))


def linked_sets(must: Ints, n_samples: int) -> Ints:
    """Return the set of each row among those that must-link pairs connect, -1 for a row without such a pair.

    Examples
    --------
    >>> linked_sets(np.array([[0, 2], [2, 4]]), 5)
    array([ 0, -1,  0, -1,  0])
    """
    links = sp.coo_array((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(n_samples, n_samples))
    sets = connected_components(links, directed=False)[1]
    set_of_row = np.full(n_samples, -1, np.int64)
    rows = np.unique(must)
    set_of_row[rows] = np.unique(sets[rows], return_inverse=True)[1]
    return set_of_row


class PairwiseConstraintTransform(MetricTransform):
    """Metric that draws must-link pairs together and pushes cannot-link pairs apart (PCC).

    Labelled rows of one group are must-link pairs, those of different groups cannot-link pairs; further pairs may be
    given to `fit`.

    Parameters
    ----------
    cannot_weight : float, "cv" or sequence of floats
        Weight of the cannot-link pairs; their mean is compared with that of the must-link pairs. A sequence: the
        candidate with which hidden known groups are found again best, without the pairs of rows; "cv" has four from
        0 to .3.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first; see `WithinClassTransform`.
    random_state : int, RandomState instance or None
        Seed of the randomised SVD and of the hidden groups.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_dims)
    A_ : ndarray of shape (n_dims, n_dims)
    cannot_weight_ : float
    cv_results_ : dict
        After a choice: "cannot_weight", "mean_score" and "scores" (by fold).
    duality_gap_ : float
        0: the solution is exact.
    trace_ : Trace
        The objective, in one row.
    classes_ : ndarray
        The labelled groups; without labels, numbers of the sets of rows that must-link pairs connect.
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

    Pairs alone are enough:

    >>> pairs = PairwiseConstraintTransform().fit(X, must_link=[(0, 1), (2, 3)], cannot_link=[(1, 3)])
    >>> bool(pairs.A_[0, 0] > pairs.A_[1, 1])
    True
    """

    _strength, _candidates = "cannot_weight", (0.0, 0.03, 0.1, 0.3)
    _min_groups, _learns_in_single = 1, True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "cannot_weight": [StrOptions({"cv"}), Interval(Real, 0, None, closed="left"), "array-like"],
    }

    def __init__(
        self,
        cannot_weight: Any = 0.1,
        *,
        n_dims: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.cannot_weight = cannot_weight
        self.n_dims = n_dims
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        must_link: Any = None,
        cannot_link: Any = None,
    ) -> Self:
        """Learn the metric from labelled rows, from pairs, or from both.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Groups as integers or strings; -1, None and NaN mark unlabelled rows. May be left out if there are
            must-link pairs.
        sample_weight : array-like of shape (n_samples,), optional
            A weight counts like repetitions of the row.
        must_link, cannot_link : array-like of shape (n_pairs, 2), optional
            Pairs of row numbers that belong together, or do not. Their mean counts as much as that of the pairs
            that follow from the labels.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            n_samples = _num_samples(X)
            must = check_pairs(must_link, "must_link", n_samples)
            cannot = check_pairs(cannot_link, "cannot_link", n_samples)
            by_pairs = y is None and len(must) > 0
            rows = self._read(X, linked_sets(must, n_samples) if by_pairs else y, sample_weight)
            strength = self._choose_strength(rows.labelled)
            X = check_features(self, X, reset=False)
            must_scatter = scatter_of(X, must, rows.space)
            cannot_scatter = scatter_of(X, cannot, rows.space)
            if by_pairs:
                scatters = PairScatters(shrunk(must_scatter / 2), must_scatter, cannot_scatter)
            else:
                labels = label_scatters(rows.labelled)
                scatters = PairScatters(
                    labels.within, labels.must + must_scatter, labels.cannot + cannot_scatter
                )
            self._assign(rows, strength, metric_of_pairs(scatters, strength.value))
        return self

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        return metric_of_pairs(label_scatters(labelled), strength)
