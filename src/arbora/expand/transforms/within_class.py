"""Within-class whitening: directions in which the rows of a group differ count little.

With S_W the covariance of labelled rows around the means of their groups and P features,

    A = ((1 - s) S_W + s tr(S_W)/P I)^-1,

s the shrinkage: the minimiser of tr(S A) - log det A, where S is the shrunk covariance. This is relevant component
analysis (Shental et al. 2002) with shrinkage: the maximum likelihood metric of groups that share one Gaussian
covariance. It takes milliseconds and needs as little as one group. On the data sets of the thesis it is comparable
to the discriminative transformations (`benchmarks/expand_thesis.py`).

Reference
---------
N. Shental, T. Hertz, D. Weinshall and M. Pavel (2002). Adjustment learning and relevant component analysis. ECCV.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Matrix
from arbora.core.monitor import Progress
from arbora.expand.groups import group_moments
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform


def whitening(within: Matrix, shrinkage: float) -> Matrix:
    """Return L with L'L the inverse of the shrunk covariance, symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> whitening(np.diag([4.0, 1.0]), 0.0)
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    width = len(within)
    level = float(np.trace(within)) / width
    if level <= TINY:  # no group has two different rows: nothing is known of the spread
        return np.eye(width)
    values, vectors = np.linalg.eigh((1 - shrinkage) * within + shrinkage * level * np.eye(width))
    values = np.maximum(values, np.finfo(np.float64).eps * values[-1])
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)


class WithinClassTransform(MetricTransform):
    """Shrunk within-class whitening (relevant component analysis).

    Parameters
    ----------
    shrinkage : float, "cv" or sequence of floats
        Share of the covariance that is replaced by a multiple of the identity, from 0 to 1. 1 gives the identity up
        to a factor. A sequence: the candidate with which hidden known groups are found again best; "cv" has six from
        .01 to 1.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first. "auto" reduces sparse rows and rows with more than 200
        features to 30. None keeps all features.
    random_state : int, RandomState instance or None
        Seed of the randomised SVD and of the hidden groups.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_dims)
        The map L in the feature space.
    A_ : ndarray of shape (n_dims, n_dims)
        The metric L'L.
    shrinkage_ : float
    cv_results_ : dict
        After a choice: "shrinkage", "mean_score" and "scores" (by fold).
    duality_gap_ : float
        0: the solution is exact.
    trace_ : Trace
        The objective, in one row.
    classes_ : ndarray
        The labelled groups.
    space_ : FeatureSpace
        Centre, SVD and common scale of the features.
    n_features_in_ : int

    Examples
    --------
    The groups differ in the first feature alone; the second one varies inside of the groups:

    >>> import numpy as np
    >>> from arbora.expand import WithinClassTransform
    >>> X = [[0.0, 5.0], [0.1, -5.0], [1.0, 5.0], [0.9, -5.0], [2.0, 0.0]]
    >>> transform = WithinClassTransform().fit(X, ["a", "a", "b", "b", None])
    >>> bool(transform.A_[0, 0] > transform.A_[1, 1])
    True
    """

    _strength, _candidates = "shrinkage", (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
    _min_groups, _learns_in_single = 1, True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "shrinkage": [StrOptions({"cv"}), Interval(Real, 0, 1, closed="both"), "array-like"],
    }

    def __init__(
        self,
        shrinkage: Any = 0.1,
        *,
        n_dims: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.shrinkage = shrinkage
        self.n_dims = n_dims
        self.random_state = random_state

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
        L = whitening(moments.within, strength)
        return Learned(L, exact=len(L) - 2 * float(np.linalg.slogdet(L)[1]))
