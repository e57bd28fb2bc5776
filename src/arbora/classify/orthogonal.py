"""Orthogonal transfer: a top-down classifier whose nodes use other features than their ancestors.

Every node i below the root has weights w_i, and the choice among the children of a node is a large-margin one, on
the documents under it. The regulariser encourages the weights of a node to be orthogonal to those of its ancestors
(Zhou, Xiao and Wu 2011),

    min_W  1/2 sum_ij K_ij |w_i.w_j| + C sum_{p, i under p} max_{c child of p} [1[c != c_i] + w_c.x_i - w_{c_i}.x_i],

with K_ij > 0 only for i = j and for pairs of a node and its ancestor. It is convex if the comparison matrix (K_ii on
the diagonal, -K_ij off it) is positive semidefinite (their condition). Here K_ii = 1 and K_ij = coupling / sqrt(r_i
r_j), where r_i is the number of nodes that i is paired with: a normalised adjacency matrix has no eigenvalue above 1,
so that every coupling below 1 gives a strongly convex problem. With coupling 0 every choice is trained separately.

Since |t| = max_{|s| <= 1} s t, the problem is a saddle point over W and signs S with the positive definite matrix
M(S)_ij = K_ij s_ij. For fixed S it is a machine of `kernels.linear.path_margin`; its paths P are a factor, M(S)^-1 =
P P': the Cholesky factor of M with the deepest nodes first has entries between a node and its ancestors only. Its
dual value, (linear in m) - 1/2 tr U(m)' M(S)^-1 U(m), U the weighted sums of rows for each node, is concave and
smooth in multipliers m and signs together, with separate constraints: maximising it alternately over m (coordinate
descent) and S (projected quasi-Newton; the derivative with respect to s_ij is K_ij w_i.w_j) converges to the optimum,
and the gap to the primal objective at W = M(S)^-1 U is a certificate:

    gap = sum of the gaps of the choices + sum_{i < j} K_ij (|w_i.w_j| - s_ij w_i.w_j).

The original method is regularised dual averaging, a stochastic subgradient method on the same objective. Two things
differ from the paper: the values of K, and one hinge for each choice on the path of a document, so that choices
without a coupling are independent. The bias is the weight of a constant feature and is part of the inner products.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval
from threadpoolctl import ThreadpoolController

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.classify.estimator import LINEAR_CONSTRAINTS, Decisions, build_routes
from arbora.classify.linear import LinearModel, linear_scores, single_precision, warn_open_gap
from arbora.classify.top_down import RoutePredictor, calibrate_choices, mark_nodes
from arbora.classify.training import Training, check_training, drop_weightless_rows, refuse_label_sets
from arbora.core.chunks import require_memory
from arbora.core.estimator import all_or_nothing
from arbora.core.monitor import Monitor, Progress
from arbora.engine import ThreadEngine
from arbora.infer.linear.path_margin import (
    FIRST_CAPACITY,
    PathState,
    as_paths,
    certify,
    half_square,
    improve,
    start,
)
from arbora.infer.linear.rows import LinearRows, prepare_rows
from arbora.kernels.linear.path_margin import Choices
from arbora.structure import Hierarchy

# --- The regulariser: pairs of nodes and their ancestors, and the signs of their inner products ---
#
# With K_ii = 1, K_ij = coupling / sqrt(r_i r_j) for a node and its ancestor (r_i the number of nodes that i is paired
# with) and |t| = max_{|s| <= 1} s t,
#
#     1/2 sum_ij K_ij |w_i.w_j| = max_S 1/2 tr W' M(S) W,        M(S)_ij = K_ij s_ij, positive definite.
#
# For given signs the nodes are sums of parts with independent weights, W = P V with P P' = M(S)^-1. For given sums
# U of rows (W = M^-1 U) a projected quasi-Newton method maximises the dual over the signs. See `orthogonal`.


_SIGN_STEPS = 15  # quasi-Newton steps on the signs for each sweep over the rows


class Kin(NamedTuple):
    """Nodes that are connected by pairs of a node and its ancestor, the deepest first, and these pairs."""

    nodes: Ints
    lower: Ints  # positions in `nodes`
    upper: Ints
    strength: Array  # K of each pair

    def matrix(self, signs: Matrix) -> Array:
        """M(S), positive definite for signs in [-1, 1]."""
        M = np.eye(len(self.nodes))
        M[self.lower, self.upper] = M[self.upper, self.lower] = self.strength * signs
        return M


def find_kin(above: sp.csr_array, depth: Matrix, coupling: float) -> list[Kin]:
    """Group the nodes that are connected by pairs, directly or not; `above` marks the ancestors of each node."""
    if coupling == 0 or not above.nnz:
        return []
    lower, upper = above.nonzero()
    n_pairs = np.bincount(np.concatenate([lower, upper]), minlength=len(depth))
    strength = coupling / np.sqrt(n_pairs[lower] * n_pairs[upper])
    _, group = sp.csgraph.connected_components(above, directed=False)
    order = np.lexsort((-depth, group))
    sizes = np.bincount(group)
    position = np.empty(len(depth), np.int64)
    position[order] = np.arange(len(depth)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members = np.split(order, np.cumsum(sizes)[:-1])
    by_group = np.argsort(group[lower], kind="stable")
    pairs = np.split(by_group, np.cumsum(np.bincount(group[lower], minlength=len(sizes)))[:-1])
    return [
        Kin(nodes, position[lower[pair]], position[upper[pair]], strength[pair])
        for nodes, pair in zip(members, pairs, strict=True)
        if len(nodes) > 1
    ]


def path_factor(M: Array) -> Array:
    """P with P P' the inverse of M. With the deepest nodes first, P has entries between nodes and ancestors only."""
    factor: Array = solve_triangular(np.linalg.cholesky(M), np.eye(len(M)), lower=True).T
    return factor


def assemble_paths(kins: list[Kin], factors: list[Matrix], n_nodes: int) -> sp.csr_array:
    """Assemble the factors of all kin in one sparse matrix; a node without kin is a part of its own."""
    alone = np.ones(n_nodes, bool)
    for kin in kins:
        alone[kin.nodes] = False
    rows, columns, values = [np.flatnonzero(alone)], [np.flatnonzero(alone)], [np.ones(alone.sum())]
    for kin, factor in zip(kins, factors, strict=True):
        node, part = np.nonzero(factor)
        rows.append(kin.nodes[node])
        columns.append(kin.nodes[part])
        values.append(factor[node, part])
    coordinates = np.concatenate(rows), np.concatenate(columns)
    P = sp.csr_array((np.concatenate(values), coordinates), shape=(n_nodes, n_nodes))
    P.sort_indices()
    return P


def best_signs(kin: Kin, signs: Matrix, gram: Array) -> Array:
    """Minimise 1/2 tr(M(S)^-1 G) over the signs, G = U'U: the dual for given multipliers."""

    def value_and_gradient(s: Matrix) -> tuple[float, Matrix]:
        inverse, _ = lapack.dpotri(np.linalg.cholesky(kin.matrix(s)), lower=True)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        products = inverse @ gram @ inverse  # w_i.w_j
        return float(np.sum(inverse * gram)) / 2, -kin.strength * products[kin.lower, kin.upper]

    scale = max(float(np.trace(gram)), TINY)

    def scaled(s: Matrix) -> tuple[float, Matrix]:
        value, gradient = value_and_gradient(s)
        return value / scale, gradient / scale

    solution = minimize(
        scaled,
        signs, jac=True, method="L-BFGS-B", bounds=[(-1.0, 1.0)] * len(signs),
        options={"maxiter": _SIGN_STEPS, "ftol": 0.0, "gtol": 1e-16},
    )  # fmt: skip
    return np.asarray(np.clip(solution.x, -1.0, 1.0))


def inner_products(kin: Kin, factor: Matrix, weights: Matrix) -> Array:
    """w_i.w_j of all pairs of nodes of a kin, from the weights of their parts."""
    parts = weights[:, kin.nodes].astype(np.float64)
    return np.asarray(factor @ (parts.T @ parts) @ factor.T)


def sign_gap(kin: Kin, signs: Matrix, products: Matrix) -> float:
    """Share of the signs in the duality gap: sum K (|w_i.w_j| - s w_i.w_j)."""
    pair = products[kin.lower, kin.upper]
    return float(np.sum(kin.strength * (np.abs(pair) - signs * pair)))


class Signs:
    """Signs of all pairs, and the paths that follow from them."""

    def __init__(self, kins: list[Kin], n_nodes: int) -> None:
        self.kins = kins
        self.n_nodes = n_nodes
        self._set([np.zeros(len(kin.lower)) for kin in kins])

    def _set(self, signs: list[Matrix]) -> None:
        self.signs = signs
        self.factors = [path_factor(kin.matrix(s)) for kin, s in zip(self.kins, signs, strict=True)]
        self.P = assemble_paths(self.kins, self.factors, self.n_nodes)

    def gap(self, weights: Matrix) -> float:
        """Share of the signs in the duality gap."""
        each = zip(self.kins, self.signs, self.factors, strict=True)
        return sum(sign_gap(kin, s, inner_products(kin, factor, weights)) for kin, s, factor in each)

    def improve(self, weights: Matrix) -> None:
        """Improve the dual over the signs; convert the weights of the parts to the new paths, in place."""
        new = []
        for kin, s, factor in zip(self.kins, self.signs, self.factors, strict=True):
            M = kin.matrix(s)
            new.append(best_signs(kin, s, M @ inner_products(kin, factor, weights) @ M))
        old = self.signs, self.factors
        self._set(new)
        for kin, s, before, after in zip(self.kins, *old, self.factors, strict=True):
            change = before.T @ kin.matrix(s) @ after  # parts -> nodes -> sums of rows -> new parts
            weights[:, kin.nodes] = weights[:, kin.nodes] @ change.astype(weights.dtype)


# --- Orthogonal transfer: a top-down classifier whose nodes use other features than their ancestors ---------


_SIGN_SHARE = 0.1  # signs are improved when their part of the gap is above this share of that of the choices


class OrthogonalSolution(NamedTuple):
    """Weights (n_features + 1, n_nodes), certified relative duality gap, and the monitor of the iterations."""

    weights: Matrix
    gap: float
    monitor: Monitor


def solve_orthogonal(
    rows: LinearRows,
    choices: Choices,
    kins: list[Kin],
    n_nodes: int,
    *,
    tol: float = 1e-3,
    max_iter: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> OrthogonalSolution:
    """Train all choices jointly to a certified relative duality gap, as `infer.linear.path_margin.solve_paths` does.

    The classes of the choices are the nodes.
    """
    signs, rng = Signs(kins, n_nodes), np.random.default_rng(seed)
    state = start(rows, n_nodes, choices)
    monitor, share, done = Monitor(tol, max_iter, progress, dtype=rows.dtype), 1.0, False
    paths = as_paths(signs.P, 0.0, 1.0, rows.dtype)
    while not done:
        state, loss, gap = improve(rows, paths, choices, state, rng)
        of_signs = signs.gap(state.weights)
        objective = loss + half_square(state.weights) + of_signs
        certified = gap * share + of_signs <= tol * objective or monitor.is_last
        if certified:
            estimate = gap
            weights, loss, gap = certify(rows, signs.P, paths, choices, state.masses)
            state, of_signs = PathState(weights, state.masses), signs.gap(weights)
            objective = loss + half_square(weights) + of_signs
            share = gap / max(estimate, TINY)
        total = gap + of_signs
        done = monitor.record(
            objective, gap=total, certified=certified, converged=certified and total <= tol * objective
        )
        if not done and of_signs > _SIGN_SHARE * gap:
            signs.improve(state.weights)
            paths = as_paths(signs.P, 0.0, 1.0, rows.dtype)
    weights = np.ascontiguousarray(state.weights @ signs.P.T.astype(rows.dtype))
    return OrthogonalSolution(weights, total / max(objective, TINY), monitor)


def child_choices(training: Training, decisions: Decisions, deciding: Matrix) -> Choices:
    """Choices on the path of every document, in the numbering of the edges with siblings."""
    n_edges = len(deciding)
    edge_into = np.full(decisions.routes.n_nodes, -1)
    edge_into[decisions.child[deciding]] = np.arange(n_edges)
    taken = edge_into[training.positives.indices]
    row = np.repeat(np.arange(training.X.shape[0]), np.diff(training.positives.indptr))[taken >= 0]
    right = taken[taken >= 0].astype(np.int32)
    parent = decisions.parent[deciding]
    first, stop = np.searchsorted(parent, parent, "left"), np.searchsorted(parent, parent, "right")
    return Choices(
        np.concatenate([[0], np.cumsum(np.bincount(row, minlength=training.X.shape[0]))]),
        right,
        first[right].astype(np.int32),
        stop[right].astype(np.int32),
        training.row_cost[row].astype(training.options.dtype),
    )


def train_orthogonal(
    training: Training, decisions: Decisions, coupling: float, verbose: int = 0
) -> tuple[LinearModel, OrthogonalSolution]:
    """Train all nodes; `positives` has a column for each node of the routes, which are a tree.

    The model has one row of weights for each edge; the edge to an only child gets zeros.
    """
    options, routes = training.options, decisions.routes
    deciding = np.flatnonzero(np.diff(routes.child_indptr)[decisions.parent] > 1)
    check_memory(training.X.shape, len(deciding), decisions.n_edges, options.dtype)
    rows = prepare_rows(training.X, options.dtype, options.bias)
    parent, child = decisions.parent[deciding], decisions.child[deciding]
    above = sp.csr_array(routes.ancestor_matrix[parent][:, child])
    # Thousands of tiny factorisations: starting BLAS threads would take longer than the work.
    one_thread = ThreadpoolController().limit(limits=1, user_api="blas")
    with one_thread, Progress(None, "sweeps", verbose) as progress:
        solution = solve_orthogonal(
            rows,
            child_choices(training, decisions, deciding),
            find_kin(above, routes.depth[child], coupling),
            len(deciding),
            tol=options.tol,
            max_iter=options.max_iter,
            seed=options.seed,
            progress=progress,
        )
    by_edge = np.zeros((len(solution.weights), decisions.n_edges), rows.dtype)
    by_edge[:, deciding] = solution.weights
    return LinearModel(by_edge[:-1].T, by_edge[-1] * rows.bias), solution


def check_memory(shape: tuple[int, int], n_nodes: int, n_edges: int, dtype: Any) -> None:
    """Refuse a fit whose weights do not fit in memory."""
    n_samples, n_features = shape
    size = np.dtype(dtype).itemsize
    weights = (n_features + 1) * (2 * n_nodes + n_edges) * size
    lists = 4 * n_samples * FIRST_CAPACITY * (size + 4)
    require_memory(
        weights + lists,
        f"Training {n_nodes} nodes on {n_samples} rows with {n_features} features ({np.dtype(dtype).name})",
        f"Use {single_precision(dtype)}fewer features (for text: a larger min_df), or TopDownSVC, whose weights are "
        "sparse.",
    )


class OrthogonalTransfer(RoutePredictor, ClassifierMixin, BaseEstimator):
    """Top-down support vector machines with weights that are nearly orthogonal to those of their ancestors.

    Parameters
    ----------
    C : float
        Cost of a unit of loss. A larger value fits the training data more closely.
    coupling : float in [0, 1)
        Cost of the inner product of the weights of a node and its ancestor; 0 trains every choice separately.
    structure : Hierarchy, optional
        Tree; the labels are names of its nodes. Without one, all classes are children of one root, and the model is
        the multiclass machine of Crammer and Singer.
    calibration : "holdout", int or None
        How scores become probabilities. "holdout" learns the scale on a fifth of the rows, with a coarse model of the
        others; an integer learns it on that many folds (slower, more precise); None sets it to 1.
    n_jobs : int, optional
        Number of threads for scores; training uses one. The result does not depend on it.
    tol, max_iter, fit_intercept, random_state, verbose
        As in `OneVsRestSVC`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_edges, n_features)
        Weights of each edge of `routes_`, ordered by parent and then by child; zero for an only child.
    intercept_ : ndarray of shape (n_edges,)
    routes_, class_leaves_
        As in `TopDownSVC`.
    classes_, nodes_, hierarchy_, class_nodes_, duality_gap_, trace_, calibration_, n_iter_, n_features_in_
        As in `OneVsRestSVC`.

    Notes
    -----
    One label per row, trees only. The weights are dense and trained jointly: for data of medium size.

    Examples
    --------
    >>> from arbora.classify import OrthogonalTransfer
    >>> from arbora.structure import Hierarchy
    >>> X = [[2.0, 0.0], [1.5, 0.5], [0.0, 2.0], [0.5, 1.5], [-2.0, -2.0]]
    >>> y = ["animal/cat", "animal/cat", "animal/dog", "animal/dog", "plant"]
    >>> tree = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> model = OrthogonalTransfer(structure=tree, random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.2], [-1.0, -1.0]])
    array(['animal/cat', 'plant'], dtype=object)
    >>> model.duality_gap_ <= model.tol
    True
    """

    _tags: ClassVar[Mapping[str, Any]] = {"classifier_tags.multi_label": False}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "coupling": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        coupling: float = 0.5,
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        calibration: Any = "holdout",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.coupling = coupling
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OrthogonalTransfer:
        """Train the choices of all nodes jointly.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label per row
            With a structure, names of its nodes.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C.

        Returns
        -------
        self

        Notes
        -----
        Two kinds of models are trained: the model, on all rows, and one without the held-out rows (one for each
        fold), for the calibration, whose weights are not kept.
        """
        with all_or_nothing(self):
            engine = ThreadEngine(self.n_jobs)
            rows, targets = check_training(self, X, y, sample_weight, loss="hinge")
            refuse_label_sets(type(self).__name__, targets)
            routes, class_leaves = build_routes(targets.hierarchy, targets.class_nodes)
            if not routes.is_tree:
                raise ValueError(
                    "OrthogonalTransfer needs a tree, but a node of the structure has several parents: remove edges, "
                    "or use TopDownSVC or HierarchicalSVM, which accept a DAG."
                )
            decisions = Decisions(routes)
            problem = drop_weightless_rows(rows).with_cost(self.C)
            problem = mark_nodes(problem, routes, class_leaves, decisions.root)
            model, solution = train_orthogonal(problem, decisions, self.coupling, self.verbose)

            def score(part: Training, X: sp.csr_array, key: str) -> Matrix:
                """Scores of the edges for other rows, by a model of `part`."""
                return linear_scores(X, train_orthogonal(part, decisions, self.coupling)[0], engine)

            calibration = calibrate_choices(problem, decisions, self.calibration, False, score)
            self._remember(targets, model, solution.monitor.trace, solution.gap)
            self.routes_, self.class_leaves_, self.calibration_ = routes, class_leaves, calibration
            if not solution.monitor.converged:
                warn_open_gap(solution.gap, problem.options)
        return self
