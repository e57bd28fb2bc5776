"""A non-negative map under which gamma mixtures predict the labelled groups (thesis, Appendix C.2).

For non-negative data. A row x becomes v = L x with L >= 0; in group k the entries of v are independent gamma
variables with shapes a_kp and rates b_kp = a_kp / (L_p.m_k), the maximum likelihood rate for the mean m_k of the
group. The shapes satisfy (erratum: the thesis states it for the rate)

    log a - digamma(a) = log mean(v) - mean(log v)       over the rows of the group.

Given the shapes, L maximises sum_i r_i log p(t_i | v_i) - g ||L - I||^2 over L >= 0 by L-BFGS-B; the two steps
alternate. With E_ik = r_i (y_ik - p_ik), V = X L', T_kp = L_p.m_k, the derivatives are (errata: the sign of the first
term of the thesis, and a missing factor a in its last)

    dJ/dV = (E (a - 1)) / V - E (a / T),       dJ/dT = -(a / T) sum_i E_ik + (a / T^2) (E'V),

and dJ/dL = (dJ/dV)'X + (dJ/dT)'M. The problem is not convex; the objective rises in every step.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import digamma, gammaln, polygamma
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Matrix
from arbora.core.monitor import Monitor, Progress
from arbora.expand.groups import FeatureSpace, Groups, group_moments
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform, lbfgs

_STEPS = 20  # of L-BFGS-B between two updates of the shapes
_FLOOR = 1e-6  # added to every feature, in units of the mean: a gamma variable is positive
_MAX_FEATURES = 2000
_MAX_SHAPE = 1e4
_MIN_ENTRY = 1e-100  # of a mapped entry: its square can still be divided by


def shapes(difference: Matrix) -> Matrix:
    """Solve log a - digamma(a) = difference by Newton's method, from Minka's start."""
    d = np.maximum(difference, 0.5 / _MAX_SHAPE)
    a = (3 - d + np.sqrt((d - 3) ** 2 + 24 * d)) / (12 * d)
    for _ in range(20):
        step = (np.log(a) - digamma(a) - d) / (1 / a - polygamma(1, a))
        a = np.clip(a - step, a / 2, 2 * a)
    return np.asarray(np.minimum(a, _MAX_SHAPE))


class GammaProblem:
    """J(L) with its gradient, for given shapes."""

    def __init__(self, labelled: Labelled, gamma: float) -> None:
        self.X, self.gamma, self.codes = labelled.Z, gamma, labelled.codes
        self.share = labelled.row_weight / labelled.row_weight.sum()
        moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
        self.mean, self.weight = moments.mean, moments.weight
        self.row_weight, self.n_groups = labelled.row_weight, labelled.n_groups
        self._at = np.arange(len(self.X)), labelled.codes

    def best_shapes(self, L: Matrix) -> Matrix:
        """Maximum likelihood shapes (n_groups, n_dims) under a map."""
        V = np.maximum(self.X @ L.T, _MIN_ENTRY)
        logs = np.zeros((self.n_groups, V.shape[1]))
        np.add.at(logs, self.codes, self.row_weight[:, None] * np.log(V))
        mean_log = logs / self.weight[:, None]
        return shapes(np.log(np.maximum(self.mean @ L.T, _MIN_ENTRY)) - mean_log)

    def negative(self, flat: Matrix, a: Matrix) -> tuple[float, Matrix]:
        """-J(L) and its gradient."""
        L = flat.reshape(a.shape[1], -1)
        V = np.maximum(self.X @ L.T, _MIN_ENTRY)
        T = np.maximum(self.mean @ L.T, _MIN_ENTRY)
        rate = a / T
        constant = (a * np.log(rate) - gammaln(a)).sum(axis=1)
        S = np.log(V) @ (a - 1).T - V @ rate.T + constant
        top = S.max(axis=1, keepdims=True)
        P = np.exp(S - top)
        total = P.sum(axis=1, keepdims=True)
        fit = float(self.share @ (S[self._at] - (top + np.log(total)).ravel()))
        E = -P / total
        E[self._at] += 1
        E *= self.share[:, None]
        by_V = E @ (a - 1) / V - E @ rate
        by_T = -rate * E.sum(axis=0)[:, None] + rate / T * (E.T @ V)
        difference = L - np.eye(len(L))
        value = fit - self.gamma * float(np.sum(difference**2))
        gradient = by_V.T @ self.X + by_T.T @ self.mean - 2 * self.gamma * difference
        return -value, -gradient.ravel()


def learn_gamma(
    labelled: Labelled,
    gamma: float,
    *,
    tol: float = 1e-5,
    max_iter: int = 50,
    progress: Progress | None = None,
) -> Learned:
    """Alternate between shapes and the map until the objective gains little."""
    problem, width = GammaProblem(labelled, gamma), labelled.Z.shape[1]
    L, monitor, before, last = np.eye(width), Monitor(tol, max_iter, progress), -np.inf, False
    while not last:
        a = problem.best_shapes(L)
        minimum = lbfgs(problem.negative, L, a, bounds=(0.0, None), max_iter=_STEPS)
        value, L = -minimum.value, minimum.x.reshape(width, width)
        last = monitor.record(value, change=abs(value - before) / max(abs(value), TINY))
        before = value
    return Learned(L, monitor.trace, None, monitor.n_iter, monitor.converged)


class GammaTransform(MetricTransform):
    """Non-negative map for non-negative data, under which the labelled groups are gamma clusters.

    Parameters
    ----------
    gamma : float, "cv" or sequence of floats
        Strength of the regulariser ||L - I||^2. A sequence: the candidate with which hidden known groups are found
        again best; "cv" has four from 1e-3 to 1.
    tol : float
        Relative gain of the objective at which to stop.
    max_iter : int
        Most alternations between shapes and map.
    random_state : int, RandomState instance or None
        Seed of the hidden groups.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        The map L, with non-negative entries.
    A_ : ndarray of shape (n_features, n_features)
    gamma_ : float
    cv_results_ : dict
    trace_ : Trace
    classes_ : ndarray
    space_ : FeatureSpace
    n_iter_, n_features_in_ : int

    Examples
    --------
    >>> from arbora.expand import GammaTransform
    >>> X = [[1.0, 9.0], [1.2, 0.5], [3.0, 8.0], [2.9, 0.4], [5.0, 4.0]]
    >>> transform = GammaTransform().fit(X, ["a", "a", "b", "b", None])
    >>> bool((transform.components_ >= 0).all())
    True
    """

    _strength, _candidates, _steps = "gamma", (1e-3, 1e-2, 1e-1, 1.0), "alternations"
    _while_choosing: ClassVar[dict[str, Any]] = {"tol": 1e-3, "max_iter": 50}
    _tags: ClassVar[dict[str, Any]] = {"input_tags.positive_only": True}
    n_dims = None  # no SVD: its directions have negative entries
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "gamma": [StrOptions({"cv"}), Interval(Real, 0, None, closed="left"), "array-like"],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        gamma: Any = 1e-2,
        *,
        tol: float = 1e-5,
        max_iter: int = 50,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.gamma = gamma
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _fit_space(
        self, X: Any, groups: Groups, row_weight: Matrix, *, n_dims: Any, seed: int, scale: str = "common"
    ) -> FeatureSpace:
        smallest = X.data.min(initial=0.0) if hasattr(X, "indptr") else X.min()
        if smallest < 0:
            raise ValueError(
                f"Negative values in data passed to {type(self).__name__}: the smallest entry of X is {smallest:g}, "
                "but gamma variables are positive. Use GaussianTransform."
            )
        if X.shape[1] > _MAX_FEATURES:
            raise ValueError(
                f"X has {X.shape[1]:,} features, and {type(self).__name__} learns a matrix over all pairs of them, "
                f"without an SVD: select features (at most {_MAX_FEATURES:,}), or use GaussianTransform."
            )
        level = float(np.asarray(X.mean()))
        level = level if level > 0 else 1.0
        return FeatureSpace(np.full(X.shape[1], -_FLOOR * level, X.dtype), None, False, level)

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        return learn_gamma(labelled, strength, tol=self.tol, max_iter=self.max_iter, progress=progress)
