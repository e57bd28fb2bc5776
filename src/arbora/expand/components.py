"""Informative components: the linear projection in which a kernel estimate predicts the labels best (Klami 7.1.2).

With references r_j, a random subset of the labelled rows, and S_ij = -||A (x_i - r_j)||^2,

    p_i = (1 - d) sum_{j: c_j = c_i} exp(S_ij) / sum_j exp(S_ij) + d / K,          j without row i itself,
    f(A) = -sum_i w_i log p_i + alpha ||A||^2,                                                            (7.1)

w_i the shares of the rows, K the number of labels and d = 0.01 the share of labels that nothing explains, which
bounds the loss of an outlier. The width of the kernel is the scale of A. Asymptotically f is minus the mutual
information of labels and projections. Rows are whitened by their within-group covariance first, so that alpha has
the same meaning for all data. A starts at the discriminants of Fisher, at the best of a few scales; L-BFGS does the
rest. With g_ij = w_i d log p_i / dS_ij,

    df/dA = 2 A sum_ij g_ij (x_i - r_j)(x_i - r_j)' + 2 alpha A,

which takes products of matrices only. The thesis calls the method relevant component analysis; that name now means
`WithinClassTransform`.

Reference
---------
J. Peltonen and S. Kaski (2005). Discriminative components of data. IEEE Transactions on Neural Networks 16.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from arbora.arrays import Ints, Matrix
from arbora.core.chunks import split_entries
from arbora.core.monitor import Monitor, Progress
from arbora.expand.groups import group_moments
from arbora.expand.transforms.base import Labelled, Learned, MetricTransform, lbfgs
from arbora.expand.transforms.fisher import between_groups, discriminants
from arbora.expand.transforms.within_class import whitening

_UNEXPLAINED = 0.01
_SHRINKAGE = 0.1  # of the within-group covariance
_SCALES = (0.5, 1.0, 2.0, 4.0)  # of the start, in units of the within-group deviation
_FAR = 1e30  # squared distance of a row from itself as a reference


class ComponentsProblem(NamedTuple):
    """Whitened rows with labels, and the rows among them that are references."""

    X: Matrix  # n_rows x n_dims
    codes: Ints
    share: Matrix  # n_rows: sums to 1
    references: Ints  # row numbers
    n_groups: int
    alpha: float

    def value_and_gradient(self, flat: Matrix) -> tuple[float, Matrix]:
        """f(A) and its gradient; A is n_components x n_dims, flattened."""
        A = flat.reshape(-1, self.X.shape[1])
        R, labels = self.X[self.references], self.codes[self.references]
        B, value = np.zeros((A.shape[1],) * 2), 0.0
        of_reference, RA = np.zeros(len(R)), R @ A.T
        for rows in split_entries(len(self.X), len(R)):
            X = self.X[rows]
            XA = X @ A.T
            S = 2 * XA @ RA.T - np.sum(XA**2, axis=1)[:, None] - np.sum(RA**2, axis=1)
            S[np.arange(rows.start, rows.stop)[:, None] == self.references] = -_FAR
            E = np.exp(S - S.max(axis=1, keepdims=True))
            E /= E.sum(axis=1, keepdims=True)
            same = self.codes[rows, None] == labels
            right = np.sum(E * same, axis=1)
            p = (1 - _UNEXPLAINED) * right + _UNEXPLAINED / self.n_groups
            value -= float(self.share[rows] @ np.log(p))
            g = (self.share[rows] * (1 - _UNEXPLAINED) / p)[:, None] * E * (same - right[:, None])
            # sum g (x - r)(x - r)'; the sums of g over references are zero.
            cross = X.T @ (g @ R)
            B -= cross + cross.T
            of_reference += g.sum(axis=0)
        B += R.T @ (of_reference[:, None] * R)
        value += self.alpha * float(np.sum(A**2))
        return value, (2 * A @ B + 2 * self.alpha * A).ravel()


def start_components(labelled: Labelled, n_components: int) -> Matrix:
    """Directions of Fisher, of unit length in whitened rows."""
    moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
    return discriminants(between_groups(moments), moments.within, 0.0, n_components)


def learn_components(
    labelled: Labelled, n_components: int, n_references: int, alpha: float, tol: float, max_iter: int
) -> Learned:
    """Find the projection of the rows of the feature space."""
    rng = np.random.default_rng(labelled.seed)
    moments = group_moments(labelled.Z, labelled.codes, labelled.n_groups, labelled.row_weight)
    white = whitening(moments.within, _SHRINKAGE)
    rows = labelled._replace(Z=labelled.Z @ white.T)
    n_rows = len(rows.Z)
    references = np.sort(rng.choice(n_rows, min(n_references, n_rows), replace=False))
    share = rows.row_weight / rows.row_weight.sum()
    problem = ComponentsProblem(rows.Z, rows.codes, share, references, rows.n_groups, alpha)
    directions = start_components(rows, n_components)
    starts = [scale * directions for scale in _SCALES]
    start = min(starts, key=lambda A: problem.value_and_gradient(A.ravel())[0])
    monitor = Monitor(tol, max_iter)
    before = problem.value_and_gradient(start.ravel())[0]
    evaluated, best = (start.ravel(), before), start.ravel()

    def evaluate(flat: Matrix) -> tuple[float, Matrix]:
        nonlocal evaluated
        value, gradient = problem.value_and_gradient(flat)
        evaluated = flat.copy(), value
        return value, gradient

    def record(flat: Matrix) -> None:
        nonlocal before, best
        is_evaluated = np.array_equal(flat, evaluated[0])  # the line search ends at its last point
        value = evaluated[1] if is_evaluated else problem.value_and_gradient(flat)[0]
        gain, before, best = before - value, value, flat.copy()
        if monitor.record(value, gain=gain):
            raise StopIteration

    try:
        best = lbfgs(evaluate, start, max_iter=max_iter, callback=record, exact=True).x
        converged = monitor.n_iter < max_iter  # no step improves the value
    except StopIteration:
        converged = monitor.converged
    if not monitor.n_iter:
        monitor.record(before, converged=True)
    A = best.reshape(-1, rows.Z.shape[1]) @ white
    return Learned(A, monitor.trace, None, monitor.n_iter, converged, attributes={"references_": references})


class InformativeComponents(MetricTransform):
    """Linear projection that keeps the most information about the labels.

    Unlike `FisherTransform`, it assumes no form of the groups: a group may consist of several clouds. It maximises
    the leave-one-out likelihood of the labels under a kernel estimate in the projected space.

    Parameters
    ----------
    n_components : int
        Dimensions of the projection.
    n_references : int
        Labelled rows at which kernels are placed, drawn at random. Time is proportional to it.
    alpha : float
        Weight of the penalty on the squared entries of the projection. A larger value gives wider kernels.
    tol : float
        Gain of the mean log-likelihood in an iteration at which to stop, in nats.
    max_iter : int
    n_dims : int, "auto" or None
        Dimensions of the truncated SVD that comes first; see `WithinClassTransform`.
    random_state : int, RandomState instance or None
        Seed of the references and of the SVD.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_dims)
        The projection, in the feature space. Its scale is the inverse width of the kernel.
    A_ : ndarray of shape (n_dims, n_dims)
    references_ : ndarray of int
        Numbers of the references among the labelled rows.
    classes_ : ndarray
    space_ : FeatureSpace
    trace_ : Trace
        The objective is the penalised mean negative log-likelihood.
    n_iter_, n_features_in_ : int

    Examples
    --------
    The label is a circle in the first two features, whose group means are equal:

    >>> import numpy as np
    >>> from arbora.expand import InformativeComponents
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 4))
    >>> y = np.hypot(X[:, 0], X[:, 1]) < 1.2
    >>> model = InformativeComponents(2, random_state=0).fit(X, y)
    >>> weight = np.abs(model.components_).sum(axis=0)
    >>> bool(weight[:2].min() > 5 * weight[2:].max())
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MetricTransform._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_references": [Interval(Integral, 2, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_references: int = 300,
        alpha: float = 1e-2,
        tol: float = 1e-5,
        max_iter: int = 200,
        n_dims: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_references = n_references
        self.alpha = alpha
        self.tol = tol
        self.max_iter = max_iter
        self.n_dims = n_dims
        self.random_state = random_state

    def _learn(self, labelled: Labelled, strength: float, progress: Progress | None = None) -> Learned:
        n_components = min(self.n_components, labelled.Z.shape[1])
        return learn_components(
            labelled, n_components, self.n_references, self.alpha, self.tol, self.max_iter
        )
