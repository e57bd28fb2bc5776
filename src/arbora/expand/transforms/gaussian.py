"""TCS-GM: the metric under which a Gaussian mixture would predict the labelled groups (thesis 6.4.1).

Rows of a group are drawn from a Gaussian of unit variance around the mean of the group in the transformed space. With
A = L'L, group means m_k and d_A(a, b) = (a - b)'A(a - b), the metric minimises, over A >= 0,

    F(A) = g R(A) + sum_i r_i [1/2 d_A(x_i, m_{t_i}) + log sum_k exp(-d_A(x_i, m_k) / 2)],      sum_i r_i = 1,

so that the strength g does not depend on the number of rows. The terms x'Ax cancel: with scores
s_ik = x_i'A m_k - m_k'A m_k / 2 it is a softmax regression that is linear in A, with the gradient

    g R'(A) + sym((X'E) M) - M' diag(E'1) M / 2,       E_ik = r_i (p_ik - y_ik),

two products of matrices (errata: the density of the thesis lacks the factor 1/2 in its exponent, its gradient the
1/2, and its momentum should be (b_t - 1) / b_{t+1}). Five regularisers, each with its exact prox on the cone A >= 0:

    "identity"  ||A - I||_F^2        A = psd((B + 2 s g I) / (1 + 2 s g))
    "ridge"     ||A||_F^2            A = psd(B) / (1 + 2 s g)
    "nuclear"   tr A                 A = psd(B - s g I)
    "logdet"    tr A - log det A     eigenvalues (b - s g + sqrt((b - s g)^2 + 4 s g)) / 2
    "l1"        sum_ij |A - I|_ij    soft thresholding and psd by Dykstra's alternation

The dual certifies the solution. For any distributions q_i over the groups, one for each row, the value

    D(q) = - sum_i r_i sum_k q_ik log q_ik - h*(-G(q)),       h = g R + indicator(A >= 0),

is a lower bound of F, where G(q) is the gradient above without R at E = r (q - y). Where h* is infinite ("nuclear",
"logdet", "l1"), q moves towards the labels until it is finite; G shrinks by the same factor. For "l1" an upper
bound of h* is used, which is exact where the cone is not active.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Matrix
from arbora.core.chunks import split
from arbora.core.monitor import Monitor, Progress
from arbora.expand.groups import group_moments
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform, square_root
from arbora.infer.proximal import minimize_composite

_ALTERNATIONS = 200  # of Dykstra's algorithm
_SETTLED = 1e-10
_ROWS_AT_ONCE = 1024
_INSIDE = 1 - 1e-9  # of the way to the boundary of the domain of a conjugate


def psd(B: Matrix) -> Matrix:
    """Nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((B + B.T) / 2)
    positive = np.maximum(values, 0.0)
    return np.asarray((vectors * positive) @ vectors.T)


class Regularizer(NamedTuple):
    """R(A), the prox of ``t R`` on the cone, and the conjugate of ``g R`` on the cone (infinite outside its domain).

    `shrink(V, g)` is the largest factor c <= 1 for which the conjugate of c V is finite.
    """

    value: Callable[[Matrix], float]
    prox: Callable[[Matrix, float], Matrix]
    conjugate: Callable[[Matrix, float], float]
    shrink: Callable[[Matrix, float], float]


def identity_conjugate(V: Matrix, g: float) -> float:
    """Maximum of <V, A> - g ||A - I||^2 over A >= 0."""
    eye = np.eye(len(V))
    A = psd(eye + V / (2 * g))
    return float(np.vdot(V, A)) - g * float(np.sum((A - eye) ** 2))


def _ridge_conjugate(V: Matrix, g: float) -> float:
    return float(np.sum(psd(V) ** 2)) / (4 * g)


def _log_det(A: Matrix) -> float:
    values = np.linalg.eigvalsh(A)
    return -np.inf if values[0] <= 0 else float(np.log(values).sum())


def _log_det_prox(B: Matrix, t: float) -> Matrix:
    values, vectors = np.linalg.eigh((B + B.T) / 2)
    moved = values - t
    root = np.sqrt(moved**2 + 4 * t)
    # The second form avoids cancellation where `moved` is negative.
    positive = np.where(moved > 0, (moved + root) / 2, 2 * t / (root - moved))
    return np.asarray((vectors * positive) @ vectors.T)


def _log_det_conjugate(V: Matrix, g: float) -> float:
    values = 1 - np.linalg.eigvalsh(V) / g
    return np.inf if values[0] <= 0 or values[-1] <= 0 else -g * len(V) - g * float(np.log(values).sum())


def _below_identity(V: Matrix, g: float) -> float:
    """Largest c <= 1 with c V <= g I (strictly, up to rounding)."""
    top = float(np.linalg.eigvalsh(V)[-1])
    return 1.0 if top < _INSIDE * g else _INSIDE * g / top


def _soft_identity(B: Matrix, t: float) -> Matrix:
    """Prox of t ||A - I||_1 without the cone."""
    eye = np.eye(len(B))
    difference = B - eye
    return np.asarray(eye + np.sign(difference) * np.maximum(np.abs(difference) - t, 0.0))


def _l1_prox(B: Matrix, t: float) -> Matrix:
    """Prox of t ||A - I||_1 on the cone: Dykstra's alternation of the two proximal maps."""
    A, left, right = (B + B.T) / 2, np.zeros_like(B), np.zeros_like(B)
    for _ in range(_ALTERNATIONS):
        sparse = _soft_identity(A + left, t)
        left = A + left - sparse
        A = psd(sparse + right)
        right = sparse + right - A
        if np.linalg.norm(A - sparse) <= _SETTLED * max(float(np.linalg.norm(A)), 1.0):
            break
    return A


def _l1_conjugate(V: Matrix, g: float) -> float:
    """Upper bound of sup over A >= 0 of <V, A> - g ||A - I||_1: tr(V) where all entries of V are at most g."""
    return float(np.trace(V)) if np.abs(V).max(initial=0.0) <= g else np.inf


def _entries_below(V: Matrix, g: float) -> float:
    top = float(np.abs(V).max(initial=0.0))
    return 1.0 if top <= g else g / top


REGULARIZERS = {
    "identity": Regularizer(
        lambda A: float(np.sum((A - np.eye(len(A))) ** 2)),
        lambda B, t: psd((B + 2 * t * np.eye(len(B))) / (1 + 2 * t)),
        identity_conjugate,
        lambda V, g: 1.0,
    ),
    "ridge": Regularizer(
        lambda A: float(np.sum(A**2)), lambda B, t: psd(B) / (1 + 2 * t), _ridge_conjugate, lambda V, g: 1.0
    ),
    "nuclear": Regularizer(
        lambda A: float(np.trace(A)),
        lambda B, t: psd(B - t * np.eye(len(B))),
        lambda V, g: 0.0 if np.linalg.eigvalsh(V)[-1] <= g else np.inf,
        _below_identity,
    ),
    "logdet": Regularizer(
        lambda A: float(np.trace(A)) - _log_det(A), _log_det_prox, _log_det_conjugate, _below_identity
    ),
    "l1": Regularizer(
        lambda A: float(np.abs(A - np.eye(len(A))).sum()), _l1_prox, _l1_conjugate, _entries_below
    ),
}


class Pass(NamedTuple):
    """Results of one pass over the rows."""

    loss: float
    gradient: Matrix  # of the loss; zeros unless it was asked for
    entropy: float  # of the distributions over the groups, mean over rows; NaN unless it was asked for


class GaussianProblem:
    """F(A) of the module docstring, as `infer.proximal` takes it.

    A pass goes over chunks of rows that stay in the cache, in double precision: in single precision some regularisers
    do not reach a gap of 1e-6. Rows of single precision are converted chunk by chunk.
    """

    def __init__(
        self,
        X: Matrix,
        codes: Matrix,
        means: Matrix,
        row_weight: Matrix,
        gamma: float,
        regularizer: str,
    ) -> None:
        self.X, self.codes, self.means, self.gamma = X, codes, means, gamma
        self.share = row_weight / row_weight.sum()
        self.regularizer = REGULARIZERS[regularizer]

    def _pass(self, A: Matrix, *, gradient: bool = False, towards_labels: float | None = None) -> Pass:
        """Loss at A, with its gradient on request.

        `towards_labels` = c asks for the entropy of the distributions c p + (1 - c) y.
        """
        n_groups, width = self.means.shape
        towards = A @ self.means.T
        offset = np.einsum("kp,pk->k", self.means, towards) / 2
        loss, entropy = 0.0, np.nan if towards_labels is None else 0.0
        XE, total_E = np.zeros((width, n_groups)), np.zeros(n_groups)
        for rows in split(len(self.X), size=_ROWS_AT_ONCE):
            X, share = self.X[rows].astype(np.float64, copy=False), self.share[rows]
            labels = np.arange(len(X)), self.codes[rows]
            S = X @ towards
            S -= offset
            S -= S.max(axis=1, keepdims=True)
            at_label = S[labels]
            P = np.exp(S)
            total = P.sum(axis=1)
            loss += float(share @ (np.log(total) - at_label))
            if towards_labels is not None:
                entropy += self._entropy(S, P, total, labels, share, towards_labels)
            if gradient:
                P *= (share / total)[:, None]
                P[labels] -= share
                XE += X.T @ P
                total_E += P.sum(axis=0)
        G = XE @ self.means
        pull = self.means.T @ (total_E[:, None] * self.means)
        return Pass(loss, np.asarray((G + G.T - pull) / 2), entropy)

    @staticmethod
    def _entropy(S: Matrix, P: Matrix, total: Matrix, labels: Any, share: Matrix, c: float) -> float:
        if c == 1:  # log p = s - log total: no further logarithms
            return float(share @ (np.log(total) - np.einsum("nk,nk->n", P, S) / total))
        Q = P * (c / total)[:, None]
        Q[labels] += 1 - c
        return -float(share @ np.sum(Q * np.log(np.maximum(Q, np.finfo(Q.dtype).tiny)), axis=1))

    def value(self, A: Matrix) -> float:
        """Loss of the labels."""
        return self._pass(A).loss

    def value_and_gradient(self, A: Matrix) -> tuple[float, Matrix]:
        """Loss of the labels and its gradient."""
        result = self._pass(A, gradient=True)
        return result.loss, result.gradient

    def penalty(self, A: Matrix) -> float:
        """Regulariser times its strength."""
        return self.gamma * self.regularizer.value(A)

    def prox(self, B: Matrix, step: float) -> Matrix:
        """Proximal map of the penalty on the cone."""
        return self.regularizer.prox(B, step * self.gamma)

    def gap(self, A: Matrix) -> float:
        """Duality gap at A, from the distributions that A gives to the rows."""
        result = self._pass(A, gradient=True, towards_labels=1.0)
        V = -result.gradient
        c = self.regularizer.shrink(V, self.gamma)
        entropy = result.entropy if c == 1 else self._pass(A, towards_labels=c).entropy
        bound = entropy - self.regularizer.conjugate(c * V, self.gamma)
        return max(result.loss + self.penalty(A) - bound, 0.0)


def learn_gaussian(
    labelled: Labelled,
    gamma: float,
    regularizer: str = "identity",
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    progress: Progress | None = None,
) -> Learned:
    """Find the metric of TCS-GM, with its certificate."""
    moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
    problem = GaussianProblem(
        labelled.Z, labelled.codes, moments.mean, labelled.row_weight, gamma, regularizer
    )
    monitor = Monitor(tol, max_iter, progress)
    solution = minimize_composite(problem, np.eye(labelled.Z.shape[1]), monitor)
    gap = solution.gap / max(solution.objective, TINY)
    return Learned(square_root(solution.A), monitor.trace, gap, len(monitor.trace), solution.converged)


class GaussianTransform(MetricTransform):
    """Metric under which a Gaussian mixture predicts the labelled groups (TCS-GM).

    Parameters
    ----------
    gamma : float, "cv" or sequence of floats
        Strength of the regulariser; it does not depend on the number of rows. A sequence: the candidate with which
        hidden known groups are found again best (the transformation is learned from the others, the rows of the
        hidden ones are clustered, and the clusters are compared with the labels). "cv" has six from 1e-5 to 1.
    regularizer : {"identity", "ridge", "nuclear", "logdet", "l1"}
        ||A - I||^2, ||A||^2, tr A, tr A - log det A or the sum of |A - I|. "ridge" and "nuclear" give fewer
        dimensions; "logdet" keeps all.
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
        Most iterations of the accelerated proximal gradient method.
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first. "auto" reduces sparse rows and rows with more than 200
        features to 30. None keeps all features.
    random_state : int, RandomState instance or None
        Seed of the SVD and of the hidden groups.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_dims)
        The map L in the feature space, rows by falling weight.
    A_ : ndarray of shape (n_dims, n_dims)
        The metric L'L.
    gamma_ : float
        Strength in use.
    cv_results_ : dict
        After a choice: "gamma", "mean_score" and "scores" (by fold).
    duality_gap_ : float
        Certified relative duality gap.
    trace_ : Trace
        Objective, gap, change of A and seconds by iteration.
    classes_ : ndarray
        The labelled groups.
    space_ : FeatureSpace
    n_iter_ : int
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import GaussianTransform
    >>> X = [[0.0, 5.0], [0.1, -5.0], [1.0, 5.0], [0.9, -5.0], [2.0, 0.0]]
    >>> transform = GaussianTransform().fit(X, ["a", "a", "b", "b", None])
    >>> bool(transform.A_[0, 0] > transform.A_[1, 1]), transform.duality_gap_ < 1e-6
    (True, True)
    """

    _strength, _candidates = "gamma", (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    _while_choosing: ClassVar[dict[str, Any]] = {"tol": 1e-3, "max_iter": 1000}
    _learns_in_single = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "gamma": [StrOptions({"cv"}), Interval(Real, 0, None, closed="neither"), "array-like"],
        "regularizer": [StrOptions(set(REGULARIZERS))],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        gamma: Any = 1e-3,
        *,
        regularizer: str = "identity",
        tol: float = 1e-6,
        max_iter: int = 1000,
        n_dims: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.gamma = gamma
        self.regularizer = regularizer
        self.tol = tol
        self.max_iter = max_iter
        self.n_dims = n_dims
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        return learn_gaussian(
            labelled, strength, self.regularizer, tol=self.tol, max_iter=self.max_iter, progress=progress
        )
