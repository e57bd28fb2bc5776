"""TCS-VM: a map to the sphere under which a von Mises-Fisher mixture predicts the labelled groups (thesis 6.4.2).

Rows become unit vectors n_i = L x_i / ||L x_i||. With mean directions mu_k and one concentration kappa, the map
maximises

    J(L) = sum_i r_i [kappa n_i.mu_{t_i} - log sum_k exp(kappa n_i.mu_k)] - g ||L - I||^2,       sum_i r_i = 1,

alternating between mu_k = the direction of sum_{i in k} r_i n_i and L by L-BFGS (Algorithm 4; errata: its sign is
that of a maximum, and its second norm is ||L x||). The problem is not convex: J rises in every step, and the solution
is a local one. With E_ik = kappa r_i (y_ik - p_ik), U = E mu and a_i = ||L x_i||, the gradient of the first part is

    sum_i (1 / a_i) (u_i - (u_i.n_i) n_i) x_i'.

The concentration is 1 in the thesis; a larger one makes the predictions sharper. Without a regulariser (g = 0) the
map overfits.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Matrix
from arbora.core.monitor import Monitor, Progress
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform, lbfgs, unit_rows

_STEPS = 20  # of L-BFGS between two updates of the mean directions


class SphericalProblem:
    """J(L) with its gradient, for given mean directions."""

    def __init__(self, labelled: Labelled, gamma: float, concentration: float) -> None:
        self.X, self.gamma, self.kappa = labelled.Z, gamma, concentration
        self.share = labelled.row_weight / labelled.row_weight.sum()
        self.Y = np.zeros((len(self.X), labelled.n_groups))
        self.Y[np.arange(len(self.X)), labelled.codes] = 1.0

    def directions(self, L: Matrix) -> Matrix:
        """Mean directions of the groups under a map."""
        N, _ = unit_rows(self.X @ L.T)
        return unit_rows(self.Y.T @ (self.share[:, None] * N))[0]

    def negative(self, flat: Matrix, mu: Matrix) -> tuple[float, Matrix]:
        """-J(L) and its gradient."""
        width = self.X.shape[1]
        L = flat.reshape(-1, width)
        N, length = unit_rows(self.X @ L.T)
        S = self.kappa * (N @ mu.T)
        top = S.max(axis=1, keepdims=True)
        P = np.exp(S - top)
        total = P.sum(axis=1, keepdims=True)
        log_likelihood = float(self.share @ ((self.Y * S).sum(axis=1) - (top + np.log(total)).ravel()))
        E = self.kappa * self.share[:, None] * (self.Y - P / total)
        U = E @ mu
        along = U - (U * N).sum(axis=1, keepdims=True) * N
        difference = L - np.eye(len(L), width)
        value = log_likelihood - self.gamma * float(np.sum(difference**2))
        gradient = (along / length).T @ self.X - 2 * self.gamma * difference
        return -value, -gradient.ravel()


def learn_spherical(
    labelled: Labelled,
    gamma: float,
    concentration: float = 10.0,
    *,
    tol: float = 1e-5,
    max_iter: int = 50,
    progress: Progress | None = None,
) -> Learned:
    """Alternate between mean directions and the map until J gains little."""
    problem = SphericalProblem(labelled, gamma, concentration)
    width = labelled.Z.shape[1]
    L, monitor, before, last = np.eye(width), Monitor(tol, max_iter, progress), -np.inf, False
    while not last:
        mu = problem.directions(L)
        minimum = lbfgs(problem.negative, L, mu, max_iter=_STEPS)
        value = -minimum.value
        L = minimum.x.reshape(width, width)
        last = monitor.record(value, change=abs(value - before) / max(abs(value), TINY))
        before = value
    return Learned(L, monitor.trace, None, monitor.n_iter, monitor.converged)


class SphericalTransform(MetricTransform):
    """Map to the unit sphere under which the labelled groups are von Mises-Fisher clusters (TCS-VM).

    Parameters
    ----------
    gamma : float, "cv" or sequence of floats
        Strength of the regulariser ||L - I||^2. A sequence: the candidate with which hidden known groups are found
        again best; "cv" has four from 1e-3 to 1.
    concentration : float
        Concentration of the groups; 1 in the thesis.
    tol : float
        Relative gain of the objective at which to stop.
    max_iter : int
        Most alternations between mean directions and map.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first; see `WithinClassTransform`.
    random_state : int, RandomState instance or None
        Seed of the SVD and of the hidden groups.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    components_ : ndarray of shape (n_dims, n_dims)
        The map L; `transform` divides its results by their lengths.
    A_ : ndarray of shape (n_dims, n_dims)
    gamma_ : float
    cv_results_ : dict
    trace_ : Trace
    classes_ : ndarray
    space_ : FeatureSpace
    n_iter_, n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import SphericalTransform
    >>> X = [[1.0, 5.0], [1.1, -5.0], [-1.0, 5.0], [-0.9, -5.0], [2.0, 0.0]]
    >>> Z = SphericalTransform().fit_transform(X, ["a", "a", "b", "b", None])
    >>> np.linalg.norm(Z, axis=1).round(6)
    array([1., 1., 1., 1., 1.])
    """

    _strength, _candidates, _steps = "gamma", (1e-3, 1e-2, 1e-1, 1.0), "alternations"
    _while_choosing: ClassVar[dict[str, Any]] = {"tol": 1e-3, "max_iter": 50}
    _unit_rows = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "gamma": [StrOptions({"cv"}), Interval(Real, 0, None, closed="left"), "array-like"],
        "concentration": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        gamma: Any = 1e-2,
        *,
        concentration: float = 10.0,
        tol: float = 1e-5,
        max_iter: int = 50,
        n_dims: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.gamma = gamma
        self.concentration = concentration
        self.tol = tol
        self.max_iter = max_iter
        self.n_dims = n_dims
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        return learn_spherical(
            labelled, strength, self.concentration, tol=self.tol, max_iter=self.max_iter, progress=progress
        )
