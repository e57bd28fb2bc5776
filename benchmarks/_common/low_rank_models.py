"""RecursiveSVC with a low-rank transformation that the children of a node share: the models of `benchmarks.low_rank`.

Future work of S. Gopal's thesis (7.1, second idea): a linear transformation of each node that is common to its
children, of low rank deep in the hierarchy and of full rank above. `RecursiveSVC` has the weights W = F'Z with a part
for each node. A *family* is the classes below one node, and D_n (n_children, n_features) are their own parts, the
differences from their parent. Inner nodes keep their full rank.

    min over Z:  1/2 sum_{inner nodes} ||z_p||^2 + sum_n penalty(D_n) + C sum_il max(0, 1 - y_il w_l.x_i)^2

    RecursiveSVC  penalty(D) = 1/2 ||D||_F^2
    low rank      the same with D = V U', where the children share U (n_features, r): D is the best approximation of
                  rank r in the fit of RecursiveSVC (0 alternations), then everything but U is trained again (1),
                  then everything but V and again everything but U (2), and so on
    nuclear       penalty(D) = (1 - rho)/2 ||D||_F^2 + rho sigma_n ||D||_*, convex

||D||_* is the minimum over A of 1/2 tr(D A^-1 D' + A): a covariance A, learned for each node and common to its
children, in place of the identity. sigma_n is the root mean square of the singular values of D_n in the fit of
RecursiveSVC: where all of them are equal, the optimum does not change with rho, so that C keeps its meaning. All
problems are solved by `minimize_composite` from the solution of RecursiveSVC; a fixed U or V is a projection. None of
them changes if the features are rotated: texts are rotated into the span of the training rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.classify import RecursiveSVC
from arbora.classify.recursive.coupling import FADE, couple
from arbora.classify.training import Targets, encode_targets
from arbora.core.monitor import Monitor
from arbora.infer.proximal import minimize_composite
from arbora.structure import Hierarchy
from benchmarks._common.contestants import SEED, spread
from benchmarks._common.tasks import Task

# Training stops when the gradient mapping is this share of the norm of Z (the distance of the nuclear form to its
# optimum is then at most this share / (1 - rho) of the norm), or after this many steps.
_PRECISION, _MOST_STEPS = 0.01, 150

Matrix = NDArray[Any]
Shrink = Callable[[int, Matrix, float], Matrix]  # family, its parts, step: proximal map of its penalty


class Form(NamedTuple):
    """A model: its kind, its rank (below 1: a share of the children) or rho, and the number of alternations."""

    kind: str
    strength: float = 0.0
    n_alternations: int = 0

    def __str__(self) -> str:
        if self.kind == "nuclear":
            return f"nuclear, rho = {self.strength:g}"
        rank = f"rank {self.strength:g}" if self.strength >= 1 else f"rank {self.strength:g} n_children"
        return f"{rank}, {self.n_alternations} alternations" if self.kind == "rank" else self.kind


PLAIN = Form("RecursiveSVC")
FORMS = [
    *(Form("rank", r, n) for r, n in ((2, 0), (2, 1), (2, 2), (0.5, 0), (0.5, 1))),
    *(Form("nuclear", rho) for rho in (0.3, 0.6, 0.9)),
]


class Shared(NamedTuple):
    """Classes over their parts: W = factor.T @ Z; `families` are the own parts of the classes below one node."""

    factor: sp.csr_array  # n_parts x n_classes
    families: list[NDArray[np.int64]]


def shared_parts(hierarchy: Hierarchy, class_nodes: NDArray[np.int64], coupling: float) -> Shared:
    """Parts of RecursiveSVC with its default fade, and the families of two classes or more."""
    factor, order = couple(hierarchy, class_nodes, coupling, FADE)
    factor = sp.csr_array(sp.csc_array(factor)[:, np.argsort(order)])
    alone = np.flatnonzero(np.diff(factor.indptr) == 1)  # parts of a single class
    own = np.empty(len(class_nodes), np.int64)
    own[factor[alone].indices] = alone
    above = sp.csr_array(hierarchy.ancestor_matrix[class_nodes].astype(np.float64))
    n_below = np.asarray(above.sum(axis=0)).ravel()
    home: dict[int, list[int]] = {}
    for code in range(len(class_nodes)):
        nodes = above.indices[above.indptr[code] : above.indptr[code + 1]]
        nodes = nodes[n_below[nodes] > 1]
        nearest = int(nodes[np.lexsort((nodes, n_below[nodes]))[0]]) if len(nodes) else -1
        home.setdefault(nearest, []).append(code)
    return Shared(factor, [own[codes] for codes in home.values() if len(codes) > 1])


class LowRank:
    """The problem above, as `minimize_composite` reads it."""

    def __init__(
        self, X: Matrix, signs: Matrix, C: float, shared: Shared, rho: float, shrink: Shrink
    ) -> None:
        self.X, self.signs, self.C, self.shared, self.shrink = X, signs, C, shared, shrink
        self.up = sp.csr_array(shared.factor.T)
        self.ridge = np.ones((shared.factor.shape[0], 1))
        for family in shared.families:
            self.ridge[family] = 1.0 - rho

    def _slack(self, Z: Matrix) -> Matrix:
        scores = self.X @ (self.up @ Z).T
        return np.asarray(np.maximum(0.0, 1.0 - self.signs * scores))

    def _smooth(self, Z: Matrix, slack: Matrix) -> float:
        return float(0.5 * np.vdot(self.ridge * Z, Z) + self.C * np.vdot(slack, slack))

    def value(self, Z: Matrix) -> float:
        return self._smooth(Z, self._slack(Z))

    def value_and_gradient(self, Z: Matrix) -> tuple[float, Matrix]:
        slack = self._slack(Z)
        pull = (self.signs * slack).T @ self.X
        return self._smooth(Z, slack), self.ridge * Z - 2 * self.C * (self.shared.factor @ pull)

    def penalty(self, Z: Matrix) -> float:
        """Left out: the loop needs it for its trace only."""
        return 0.0

    def prox(self, B: Matrix, step: float) -> Matrix:
        new = B.copy()
        for f, family in enumerate(self.shared.families):
            new[family] = self.shrink(f, B[family], step)
        return new

    def gap(self, Z: Matrix) -> float:
        return float("nan")


def left_singular(D: Matrix) -> tuple[Matrix, Matrix]:
    """Singular values and left singular vectors of a family, largest first."""
    squares, vectors = np.linalg.eigh(D @ D.T)
    return np.sqrt(np.maximum(squares[::-1], 0.0)), vectors[:, ::-1]


def left_bases(Z: Matrix, families: list[NDArray[np.int64]], strength: float) -> list[Matrix]:
    """Left singular vectors of each family, as many as its rank."""
    ranks = [int(strength) if strength >= 1 else int(np.ceil(strength * len(family))) for family in families]
    return [left_singular(Z[family])[1][:, :r] for family, r in zip(families, ranks, strict=True)]


def onto_left(Z: Matrix, families: list[NDArray[np.int64]], strength: float) -> Shrink:
    """Projection that keeps V, so that U is free."""
    bases = left_bases(Z, families, strength)
    return lambda f, D, step: bases[f] @ (bases[f].T @ D)


def onto_right(Z: Matrix, families: list[NDArray[np.int64]], strength: float) -> Shrink:
    """Projection that keeps U, so that V is free."""
    bases = [
        np.linalg.qr(Z[family].T @ V)[0]
        for family, V in zip(families, left_bases(Z, families, strength), strict=True)
    ]
    return lambda f, D, step: (D @ bases[f]) @ bases[f].T


def spectrum(Z: Matrix, families: list[NDArray[np.int64]]) -> Matrix:
    """Singular values of all families, in units of their root mean square in the family."""
    values = [left_singular(Z[family])[0] for family in families]
    return np.concatenate([one / np.sqrt(np.mean(one**2)) for one in values])


def soft(Z: Matrix, families: list[NDArray[np.int64]], rho: float) -> Shrink:
    """Proximal map of rho sigma_n ||D||_*: singular values are reduced by a constant."""
    sigma = [np.sqrt(np.mean(left_singular(Z[family])[0] ** 2)) for family in families]

    def shrink(f: int, D: Matrix, step: float) -> Matrix:
        values, V = left_singular(D)
        kept = np.maximum(0.0, 1.0 - step * rho * sigma[f] / np.maximum(values, 1e-300))
        return np.asarray((V * kept) @ (V.T @ D))

    return shrink


class Start(NamedTuple):
    """RecursiveSVC on some rows, and what the other forms start from."""

    X: Matrix  # rotated rows with a constant feature for the bias
    signs: Matrix
    shared: Shared
    Z: Matrix
    targets: Targets
    rotate: Callable[[Any], Matrix]  # other rows in the same way
    curvature: float  # of half the squared scores of all classes
    seconds: float  # processor time of RecursiveSVC


def with_bias(X: Any) -> sp.csr_array:
    return sp.csr_array(sp.hstack([sp.csr_array(X), np.ones((X.shape[0], 1))]), dtype=np.float64)


def recursive(work: Task, C: Any, coupling: Any) -> RecursiveSVC:
    model = RecursiveSVC(
        C, coupling=coupling, structure=work.structure, calibration=None, threshold="zero", n_jobs=1,
        random_state=SEED,
    )  # fmt: skip
    return model.fit(work.X, work.y)


def rotation(X: sp.csr_array) -> sp.csr_array | Matrix:
    """Orthonormal basis of the span of the rows, in columns; the identity where there are few features."""
    if X.shape[1] <= X.shape[0]:
        return sp.eye_array(X.shape[1], format="csr")
    values, vectors = np.linalg.eigh((X @ X.T).toarray())
    kept = values > 1e-10 * values[-1]
    return np.asarray(X.T @ (vectors[:, kept] / np.sqrt(values[kept])))


def start_from(work: Task, C: float, coupling: float) -> Start:
    """Fit RecursiveSVC and divide its weights into parts: those of least norm."""
    began = time.process_time()
    model = recursive(work, C, coupling)
    seconds = time.process_time() - began
    targets = encode_targets(work.y, work.structure)
    shared = shared_parts(work.structure, targets.class_nodes, coupling)
    X = with_bias(work.X)
    basis = rotation(X)
    W = np.column_stack([model.coef_, model.intercept_]).astype(np.float64) @ basis
    covariance = (shared.factor.T @ shared.factor).toarray()
    Z = np.asarray(shared.factor @ np.linalg.solve(covariance, W))
    signs = 2.0 * targets.indicator.toarray() - 1.0

    def rotate(rows: Any) -> Matrix:
        rotated = with_bias(rows) @ basis
        return np.asarray(rotated.toarray() if sp.issparse(rotated) else rotated)

    rows = rotate(work.X)
    curvature = float(np.linalg.norm(rows.T @ rows, 2) * np.linalg.norm(covariance, 2))
    return Start(rows, signs, shared, Z, targets, rotate, curvature, seconds)


def retrained(start: Start, C: float, form: Form, done: dict[Form, Matrix]) -> Matrix:
    """Train a form from the parts of RecursiveSVC; `done` keeps the forms that others continue from."""

    def solve(Z: Matrix, shrink: Shrink, rho: float = 0.0) -> Matrix:
        problem = LowRank(start.X, start.signs, C, start.shared, rho, shrink)
        step = 1 / (1 + 2 * C * start.curvature)
        monitor = Monitor(_PRECISION * step, _MOST_STEPS)
        return minimize_composite(problem, problem.prox(Z, 0.0), monitor, step=step).A

    families, n = start.shared.families, form.n_alternations
    if form in done:
        return done[form]
    if form == PLAIN:
        Z = start.Z
    elif form.kind == "nuclear":
        Z = solve(start.Z, soft(start.Z, families, form.strength), form.strength)
    elif n == 0:
        problem = LowRank(
            start.X, start.signs, C, start.shared, 0.0, onto_left(start.Z, families, form.strength)
        )
        Z = problem.prox(start.Z, 0.0)
    else:
        Z = retrained(start, C, form._replace(n_alternations=n - 1), done)
        if n > 1:
            Z = solve(Z, onto_left(Z, families, form.strength))
        Z = solve(Z, onto_right(Z, families, form.strength))
    done[form] = Z
    return Z


def scores_of(start: Start, Z: Matrix, X_new: Any, everything: Targets) -> Matrix:
    """Scores of all classes of a set; classes that were not trained get the lowest one."""
    W = sp.csr_array(start.shared.factor.T) @ Z
    place = {node: code for code, node in enumerate(everything.class_nodes.tolist())}
    codes = np.array([place[node] for node in start.targets.class_nodes.tolist()])
    return spread(start.rotate(X_new) @ W.T, codes, len(place))
