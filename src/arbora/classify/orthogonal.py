"""Orthogonal transfer: a top-down classifier whose choices look at other features than those above them.

Every node i below the root has weights w_i, and the choice among the children of a node is a large-margin one, on
the documents under it. The regulariser asks the weights of a node to be orthogonal to those of its ancestors (Zhou,
Xiao and Wu 2011),

    min_W  1/2 sum_ij K_ij |w_i.w_j| + C sum_{p, i under p} max_{c child of p} [1[c != c_i] + w_c.x_i - w_{c_i}.x_i],

with K_ij > 0 only for i = j and for pairs of a node and its ancestor. It is convex if the comparison matrix (K_ii on
the diagonal, -K_ij off it) is positive semidefinite, their condition. Here K_ii = 1 and K_ij = coupling / sqrt(r_i
r_j), r_i the number of nodes that i is paired with: a normalised adjacency matrix has no eigenvalue beyond 1, so that
every coupling below 1 gives a strongly convex problem. With coupling 0 every choice is trained on its own.

Since |t| = max_{|s| <= 1} s t, the problem is a saddle point over W and signs S with the positive definite matrix
M(S)_ij = K_ij s_ij. For fixed S it is a machine of `kernels.path_margin`, whose paths P are a factor, M(S)^-1 = P P':
the Cholesky factor of M with the deepest nodes first has entries between a node and its ancestors only. Its dual
value, (linear in m) - 1/2 tr U(m)' M(S)^-1 U(m), U the weighted sums of rows for each node, is concave and smooth in
multipliers m and signs together, with constraints that do not mix them: raising it in turns over m (coordinate
descent) and S (projected quasi-Newton, the derivative by s_ij is K_ij w_i.w_j) leads to the optimum, and the gap to
the primal objective at W = M(S)^-1 U is a certificate:

    gap = sum of the gaps of the choices + sum_{i < j} K_ij (|w_i.w_j| - s_ij w_i.w_j).

The original method is regularised dual averaging, a stochastic subgradient method on the same objective. Two choices
are ours: the values of K, and one hinge for each choice on the way of a document, so that choices without a coupling
are independent. The bias is the weight of a constant feature, and is part of the inner products.
"""

from __future__ import annotations

from numbers import Real
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval
from threadpoolctl import ThreadpoolController

from arbora.classify._common.linear_model import LinearModel
from arbora.classify._common.one_vs_rest import Training
from arbora.classify._common.routes import Decisions, build_routes
from arbora.classify.hierarchical_svm import SingleLabelClassifier
from arbora.classify.orthogonality import Kin, Signs, find_kin
from arbora.classify.top_down import TopDownSVC
from arbora.core.memory import require_memory
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.infer.linear.flat import BlockSolution, LinearRows, prepare_rows
from arbora.infer.linear.path_margin import (
    FIRST_CAPACITY,
    PathState,
    as_paths,
    certify,
    half_square,
    improve,
    start,
)
from arbora.kernels.path_margin import Choices
from arbora.structure import Hierarchy

_SIGN_SHARE = 0.1  # signs are moved when their share of the gap is at least this part of that of the choices
_TINY = np.finfo(np.float64).tiny


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
) -> tuple[NDArray[Any], BlockSolution]:
    """Train all choices jointly to a certified relative duality gap.

    Parameters
    ----------
    rows, choices, tol, max_iter, seed, progress
        As in `infer.path_margin.solve_paths`; the classes of the choices are the nodes.
    kins : list of Kin
    n_nodes : int

    Returns
    -------
    weights : ndarray of shape (n_features + 1, n_nodes)
    solution : BlockSolution
        Without its weights and multipliers.
    """
    signs, rng = Signs(kins, n_nodes), np.random.default_rng(seed)
    state = start(rows, n_nodes, choices)
    history: list[tuple[float, float, float]] = []
    started, share, converged = perf_counter(), 1.0, False
    paths = as_paths(signs.P, 0.0, 1.0, rows.dtype)
    for iteration in range(max_iter):
        state, loss, gap = improve(rows, paths, choices, state, rng)
        of_signs = signs.gap(state.weights)
        objective = loss + half_square(state.weights) + of_signs
        if gap * share + of_signs <= tol * objective or iteration == max_iter - 1:
            estimate = gap
            weights, loss, gap = certify(rows, signs.P, paths, choices, state.masses)
            state, of_signs = PathState(weights, state.masses), signs.gap(weights)
            objective = loss + half_square(weights) + of_signs
            converged = gap + of_signs <= tol * objective
            share = gap / max(estimate, _TINY)
        signs_lag = of_signs > _SIGN_SHARE * gap
        gap += of_signs
        history.append((objective, gap, perf_counter() - started))
        if progress is not None:
            progress.update(objective=objective, gap=gap / max(objective, _TINY))
        if converged:
            break
        if signs_lag and iteration < max_iter - 1:
            signs.improve(state.weights)
            paths = as_paths(signs.P, 0.0, 1.0, rows.dtype)
    weights = np.ascontiguousarray(state.weights @ signs.P.T.astype(rows.dtype))
    certificate = np.array([objective]), np.array([gap]), np.array(history)
    return weights, BlockSolution(np.empty(0), np.empty(0), *certificate, converged)


def child_choices(training: Training, decisions: Decisions, deciding: NDArray[Any]) -> Choices:
    """List the choices on the way of every document, in the numbering of the edges with siblings."""
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
) -> tuple[LinearModel, BlockSolution]:
    """Train all nodes; `positives` has a column for each node of the routes, which are a tree.

    Returns one row of weights for each edge; an only child needs none, and gets zeros.
    """
    options, routes = training.options, decisions.routes
    deciding = np.flatnonzero(np.diff(routes.child_indptr)[decisions.parent] > 1)
    check_memory(training.X.shape, len(deciding), decisions.n_edges, options.dtype)
    rows = prepare_rows(training.X, options.dtype, options.bias)
    parent, child = decisions.parent[deciding], decisions.child[deciding]
    above = sp.csr_array(routes.ancestor_matrix[parent][:, child])
    # Thousands of tiny factorisations: waking the threads of the BLAS would take longer than the work.
    one_thread = ThreadpoolController().limit(limits=1, user_api="blas")
    with one_thread, Progress(None, "sweeps", verbose) as progress:
        weights, solution = solve_orthogonal(
            rows,
            child_choices(training, decisions, deciding),
            find_kin(above, routes.depth[child], coupling),
            len(deciding),
            tol=options.tol,
            max_iter=options.max_iter,
            seed=options.seed,
            progress=progress,
        )
    by_edge = np.zeros((len(weights), decisions.n_edges), rows.dtype)
    by_edge[:, deciding] = weights
    return LinearModel(by_edge[:-1].T, by_edge[-1] * rows.bias), solution


def check_memory(shape: tuple[int, int], n_nodes: int, n_edges: int, dtype: Any) -> None:
    """Refuse a fit whose weights cannot fit."""
    n_samples, n_features = shape
    size = np.dtype(dtype).itemsize
    weights = (n_features + 1) * (2 * n_nodes + n_edges) * size
    lists = 4 * n_samples * FIRST_CAPACITY * (size + 4)
    require_memory(
        weights + lists,
        f"Training {n_nodes} nodes on {n_samples} rows with {n_features} features ({np.dtype(dtype).name})",
        "Use dtype='float32', fewer features (for text: a larger min_df), or TopDownSVC, whose weights are sparse.",
    )


class OrthogonalTransfer(SingleLabelClassifier, TopDownSVC):
    """Top-down support vector machines whose weights are drawn to be orthogonal to those of their ancestors.

    Parameters
    ----------
    C : float
        Cost of a unit of loss: the larger, the closer the fit to the training data.
    coupling : float in [0, 1)
        How much the inner product of the weights of a node and its ancestor costs; 0 trains every choice on its own.
    structure : Hierarchy, optional
        Tree whose nodes the labels name; without one all classes hang under a single root, and the model is the
        multiclass machine of Crammer and Singer.
    tol : float
        Relative duality gap at which training stops; it is certified, so that the objective is at most this
        share above its optimum.
    max_iter : int
        Most sweeps over the data; a `ConvergenceWarning` tells when they were not enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias; the larger, the less the bias is regularised.
    calibration : "holdout", int or None
        How scores become probabilities: the scale is learned on a fifth of the rows with a coarse model of the
        others, on that many folds in turn (slower, finer), or is 1.
    dtype : "float32" or "float64"
        Precision of training and weights; float32 halves time and memory and suffices for `tol` down to 1e-5.
    n_jobs : int, optional
        Threads for scores; training uses one. The result does not depend on it.
    random_state : int, RandomState instance or None
        Order in which rows are visited.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    coef_ : ndarray of shape (n_edges, n_features)
        Weights of each edge of `routes_`, parents in order and children within them; zero for an only child.
    intercept_ : ndarray of shape (n_edges,)
    routes_, class_leaves_
        As in `TopDownSVC`.
    classes_, nodes_, hierarchy_, class_nodes_, duality_gap_, trace_, calibration_, n_iter_, n_features_in_
        As in `OneVsRestSVC`.

    Notes
    -----
    One label a row, trees only. The weights are dense and trained jointly: for data of medium size.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SingleLabelClassifier._parameter_constraints,
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
        intercept_scaling: float = 1.0,
        calibration: Any = "holdout",
        dtype: str = "float32",
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
        self.intercept_scaling = intercept_scaling
        self.calibration = calibration
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OrthogonalTransfer:
        """Train the choices of all nodes jointly.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label a row
            With a structure, names of its nodes.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            training = self._check_fit(X, y, sample_weight, "hinge")
            self.routes_, self.class_leaves_ = build_routes(self.hierarchy_, self.class_nodes_)
            if not self.routes_.is_tree:
                raise ValueError(
                    "OrthogonalTransfer needs a tree, but a node of the structure has several parents: remove edges, "
                    "or use TopDownSVC or HierarchicalSVM, which accept a DAG."
                )
            decisions = Decisions(self.routes_)
            training = self._over_nodes(training, decisions)
            model, solution = train_orthogonal(training, decisions, self.coupling, self.verbose)
            self._keep(model, [solution])
            self._calibrate(
                training, decisions, lambda seen, key: train_orthogonal(seen, decisions, self.coupling)[0]
            )
        return self
