"""Multinomial logistic regression for very many classes, flat or over a label structure.

All solvers but "dm" minimise, with scores s_ik = w_k.x_i + b_k and row weights r_i,

    min_W  1/2 sum_k (||w_k||^2 + b_k^2) + C sum_i r_i (log sum_k exp(s_ik) - s_iy).

The bias is the weight of a constant feature of value 1 and is regularised like the others. Without a bias this is the
problem of scikit-learn's `LogisticRegression` with `fit_intercept=False`, for three or more classes. (With two
classes, scikit-learn has one vector of weights, and here there are two of opposite sign: its solution at 2 C equals
the one here at C.) The default cost is C = AUTO_COST / (mean squared norm of the rows).

With a label structure, the recursive penalty of `RecursiveLogisticRegression` replaces the sum of squares,

    1/2 tr(W K^-1 W'),        K = F'F the covariance of the classes (`recursive.coupling`):

classes that are near each other share weights and still compete in one softmax.

The solvers are those of S. Gopal (2014, thesis, chapter 4) and faster ones (`infer.softmax.solve`).
"""

from __future__ import annotations

import mmap
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.classify.cost_choice import mean_squared_norm
from arbora.classify.estimator import AUTO_COST_CONSTRAINT, LINEAR_CONSTRAINTS, NodePredictor
from arbora.classify.linear import LinearModel, linear_scores
from arbora.classify.recursive.coupling import DEFAULT_COUPLING, couple, node_weights, read_coupling
from arbora.classify.training import Targets, as_csr, check_labelled_rows
from arbora.core.chunks import require_memory, split
from arbora.core.engine import Engine, check_needs
from arbora.core.estimator import RowEstimator, all_or_nothing, draw_seed, warn_caller
from arbora.core.monitor import Monitor, Progress
from arbora.core.validation import check_squares, precision_for
from arbora.engine import ThreadEngine, engine_for
from arbora.infer.softmax.problem import SoftmaxProblem, SoftmaxSolution, class_weights
from arbora.infer.softmax.solve import SOLVERS, choose_solver, solve
from arbora.infer.tree_sum import pruned
from arbora.structure import Hierarchy, LabelGraph

AUTO_COST = 30.0  # in units of 1 / (mean squared norm of the rows): the slope of a softmax is never above 1
_DENSE_SHARE = 0.5  # share of non-zero entries above which X is made dense
_OCCURRING_SHARE = 0.5  # share of occurring features above which all features are trained
_WEIGHTS_PER_CHUNK = 1 << 24  # weights that are copied at a time


class Penalty(NamedTuple):
    """Factor F of the covariance of the classes (None: flat classes), and the class of each of its columns."""

    factor: sp.csr_array | None
    order: Ints


class LabelledRows(NamedTuple):
    """Rows of positive weight, the class of each, and its weight."""

    X: sp.csr_array
    labels: Ints
    weight: Array


class Design(NamedTuple):
    """The problem over the features that occur, and what makes weights of all features of its solution."""

    problem: SoftmaxProblem
    selected: Ints  # features of the problem
    n_features: int  # of the model
    bias: float  # value of the constant feature; 0 for none
    columns: Ints | None  # column of each class in the weights; None if they are in the order of the classes
    limits: Matrix | None  # of each feature: larger absolute weights are stored; None: dense weights


def label_rows(X: Any, targets: Targets, sample_weight: Any) -> LabelledRows:
    """Drop rows of weight 0; refuse label sets, and data without any row."""
    if targets.multilabel:
        raise ValueError(
            "y holds label sets or an indicator, but a softmax needs exactly one class per row: give one label "
            "per row, or use RecursiveLogisticRegression or OneVsRestLogistic."
        )
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    X, labels, rows = as_csr(X), targets.indicator.indices.astype(np.int64), np.flatnonzero(weight > 0)
    if not len(rows):
        raise ValueError("all rows have weight 0: give a positive sample_weight to some rows.")
    if len(rows) == len(weight):
        return LabelledRows(X, labels, weight)
    return LabelledRows(X[rows], labels[rows], weight[rows])


def penalty_of(structure: Hierarchy | LabelGraph | None, class_nodes: Ints, coupling: Any) -> Penalty:
    """Return the penalty of the classes of a structure; that of flat classes if none of them are coupled."""
    if structure is not None:
        factor, order = couple(structure, class_nodes, *read_coupling(coupling))
        flat = factor.shape[0] == factor.shape[1] == factor.nnz and (factor.data == 1).all()
        if not flat:
            return Penalty(sp.csr_array(factor), order)
    return Penalty(None, np.arange(len(class_nodes)))


def check_structure_on(engine: Engine, structure: Any, penalty: Penalty) -> None:
    """Refuse a structure other than a tree where each worker has some of the classes."""
    is_tree = isinstance(structure, Hierarchy) and structure.is_tree
    if penalty.factor is not None and not is_tree:
        advice = "use a tree, threads, or coupling=0; RecursiveLogisticRegression accepts all structures"
        what = "a DAG or label graph, whose classes depend on all others,"
        check_needs(what, engine, ["shares_memory"], advice)


def state_problem(
    rows: LabelledRows, penalty: Penalty, C: float, bias: float, dtype: Any, prune_below: float | None
) -> Design:
    """State the problem of the rows over the features that occur in them."""
    X, selected = design_matrix(rows.X, bias, dtype)
    columns = np.argsort(penalty.order)
    problem = SoftmaxProblem(X, columns[rows.labels], C * rows.weight, len(columns), penalty.factor)
    limits = None if prune_below is None else pruning_limits(X.shape[1], prune_below, bias, dtype)
    of_classes = None if penalty.factor is None else columns
    return Design(problem, selected, rows.X.shape[1], bias, of_classes, limits)


def require_memory_of_weights(design: Design, engine: Engine) -> None:
    """Refuse dense weights of all features that do not fit into memory."""
    if engine.keeps_weights_in_files or design.limits is not None:
        return
    n_classes, n_features, n_selected = design.problem.n_classes, design.n_features, len(design.selected)
    row = n_classes * design.problem.dtype.itemsize
    # Pages of a new matrix without a selected feature take no memory.
    n_new = n_selected if row >= mmap.PAGESIZE else min(n_features, n_selected * mmap.PAGESIZE // row)
    n_rows = n_features if needs_no_copy(n_selected, n_features, design.bias, engine) else n_selected + n_new
    require_memory(
        (n_rows + 1) * row,
        f"The dense weights of {n_classes} classes and {n_features} features",
        "Use prune_below, which stores the larger ones as a sparse matrix, fewer features (for text: a larger "
        "min_df), or RayEngine(weights=folder), which stores them in a file.",
    )


def expand(solution: SoftmaxSolution, design: Design, engine: Engine) -> LinearModel:
    """Return the weights of all features for the classes, those of the parts Z times F."""
    problem, selected, n_features, bias, columns, limits = design
    W = solution.Z if solution.of_classes else class_weights(problem.factor, solution.Z)
    W = W.astype(problem.dtype, copy=False)
    if limits is None:
        return dense_model(W, selected, n_features, bias, engine, columns)
    return pruned_model(W, selected, n_features, bias, limits, columns)


# Training uses the features that occur in X; its weights are then expanded to all features. The weights of very many
# classes may fill the memory, so they are not copied if that can be avoided:
#
# - if most features occur, all of them are trained, and the weights of the others stay zero;
# - otherwise the weights are copied into a new matrix, whose pages of zeros take no memory;
# - pruned weights become a sparse matrix of the entries that are large enough.


def design_matrix(X: sp.csr_array, bias: float, dtype: Any) -> tuple[Any, Ints]:
    """Select the features to train on and append a constant one for the bias, if there is any.

    The features are those that occur, or all if most occur; they are the second result. The rows are dense if most of
    their entries are non-zero.

    >>> design_matrix(sp.csr_array([[0.0, 3.0]]), 1.0, "float64")
    (array([[3., 1.]]), array([1]))
    """
    selected = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
    if len(selected) > _OCCURRING_SHARE * X.shape[1]:
        selected = np.arange(X.shape[1])
    X = X.astype(dtype) if len(selected) == X.shape[1] else sp.csr_array(X[:, selected]).astype(dtype)
    column = np.full((X.shape[0], 1 if bias else 0), bias, dtype)
    if X.nnz > _DENSE_SHARE * X.shape[0] * max(X.shape[1], 1):
        return np.hstack([X.toarray(), column]), selected
    return sp.csr_array(sp.hstack([X, sp.csr_array(column)], format="csr")), selected


def _chunks(n_rows: int, n_columns: int) -> list[slice]:
    return split(n_rows, size=max(1, _WEIGHTS_PER_CHUNK // max(1, n_columns)))


def needs_no_copy(n_selected: int, n_features: int, bias: float, engine: Engine) -> bool:
    """Whether the trained matrix has the shape of the final weights.

    A file of weights always has a row for the bias.
    """
    return n_selected == n_features and (bias > 0 or not engine.keeps_weights_in_files)


def dense_model(
    W: Matrix,
    selected: Ints,
    n_features: int,
    bias: float,
    engine: Engine,
    position: Ints | None = None,
) -> LinearModel:
    """Expand trained weights to all features, as dense arrays.

    W (n_selected rows, and one for a bias) has a row for each feature in `selected` and a column for each class; it
    may be overwritten. `bias` is the value of the constant feature; 0 without one. `position` is the column of each
    class; None if they are in the order of the classes.
    """
    target = np.append(selected, n_features) if bias else selected
    chunks = _chunks(len(target), W.shape[1])
    if needs_no_copy(len(selected), n_features, bias, engine):
        for chunk in chunks if position is not None else []:
            W[chunk] = W[chunk][:, position]
            engine.settle(W)
        if not bias:
            return LinearModel(W.T, np.zeros(W.shape[1], W.dtype))
        return LinearModel(W[:-1].T, W[-1] * W.dtype.type(bias))
    weights = engine.zeros((n_features + 1, W.shape[1]), W.dtype)
    for chunk in chunks:
        weights[target[chunk]] = W[chunk] if position is None else W[chunk][:, position]
        engine.settle(W)
        engine.settle(weights)
    engine.discard(W)
    return LinearModel(weights[:-1].T, weights[-1] * weights.dtype.type(bias))


def pruning_limits(n_weights: int, prune_below: float, bias: float, dtype: Any) -> Matrix:
    """Return, for each row of the weights, the absolute value above which entries are kept; 0 for the bias."""
    limits = np.full(n_weights, prune_below, dtype)
    if bias:
        limits[-1] = 0
    return limits


def pruned_model(
    W: Any,
    selected: Ints,
    n_features: int,
    bias: float,
    limits: Matrix,
    position: Ints | None = None,
) -> LinearModel:
    """Expand weights as `dense_model` does, but to a sparse matrix of the entries above `limits` (`pruning_limits`).

    A sparse W is pruned already.
    """
    if not sp.issparse(W):
        chunks = _chunks(*W.shape) or [slice(0)]
        W = sp.csr_array(sp.vstack([pruned(W[chunk], limits[chunk, None]) for chunk in chunks], format="csr"))
    W = W if position is None else sp.csr_array(W[:, position])
    n_classes, dtype = W.shape[1], W.dtype
    intercept = W[[-1]].toarray().ravel() * dtype.type(bias) if bias else np.zeros(n_classes, dtype)
    indptr = np.zeros(n_features + 1, W.indptr.dtype)
    indptr[selected + 1] = np.diff(W.indptr)[: len(selected)]
    np.cumsum(indptr, out=indptr)
    entries = W.data[: indptr[-1]], W.indices[: indptr[-1]], indptr
    return LinearModel(sp.csc_array(entries, shape=(n_classes, n_features)), intercept)


def why_not_converged(solver: str, monitor: Monitor, dtype: Any) -> str:
    """Explain why a fit stopped before its tolerance, and what to do."""
    if monitor.n_iter >= monitor.max_iter:
        why = f"stopped at max_iter={monitor.max_iter}"
    else:
        why = f"stopped after {monitor.n_iter} iterations, because the objective no longer decreased"
    advice = "use a tol below 1e-6 (double precision), " if dtype == np.float32 else ""
    return (
        f"solver={solver!r} {why}, before the relative duality gap reached tol={monitor.tol:g}; it is "
        f"{monitor.value:.2g}. Increase max_iter or tol, {advice}or scale the features."
    )


class MultinomialLogistic(RowEstimator, NodePredictor, ClassifierMixin, BaseEstimator):
    """Multinomial logistic regression (softmax), for a few classes or many thousands.

    Parameters
    ----------
    C : float or "auto"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" is 30 over the mean squared
        norm of the rows; its value is in `C_`.
    structure : Hierarchy or LabelGraph, optional
        Structure whose nodes are the labels. Classes that are near each other share weights, and
        `predict_node_proba`, `predict_path` and `predict_backoff` refer to all nodes.
    coupling : float, sequence of floats or dict, default=0.1
        How much classes share with neighbouring classes, as in `RecursiveSVC`: 0 is flat training, [1.0] the
        published strength; one number is less for nodes with more than 16 classes below them. Used only with a
        structure.
    solver : {"auto", "lc", "dm", "admm", "lbfgs"}
        "auto": the fastest one, coordinate ascent in the dual (sparse rows) or Newton's method (dense rows). "lc":
        the log-concavity bound, with classes in parallel; it needs the least memory, and is the only one that runs on
        a Ray cluster, where "auto" means "lc". "admm": alternating directions. "lbfgs": the reference. "dm": double
        majorisation, which minimises a bound; it is there for comparison.
    tol : float
        Certified relative duality gap at which to stop: the objective is at most this share above its optimum. Below
        1e-6 the fit computes in double precision.
    max_iter : int
        Maximum number of iterations (sweeps, Newton steps or rounds). A `ConvergenceWarning` is issued if it is
        reached.
    fit_intercept : bool
        Whether to learn a bias: the weight of a constant feature, regularised like the others.
    prune_below : float, optional
        Store the weights as a sparse matrix of the entries whose absolute value exceeds this, for models whose dense
        `coef_` is too large. 0.0 drops only zeros, of which a softmax has few. The bias is not pruned.
    n_jobs : int, optional
        Number of threads; it does not change the result. The sweeps of "auto" use one thread.
    random_state : int, RandomState instance or None
        Order in which "auto" visits sparse rows.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function` and `predict_proba`.
    coef_ : ndarray of shape (n_classes, n_features)
        Two classes have two rows. Sparse if `prune_below` is set.
    intercept_ : ndarray of shape (n_classes,)
    C_ : float
        The cost of the fit.
    nodes_ : ndarray
        Names of the columns of `predict_node_proba`.
    hierarchy_ : Hierarchy
        The structure, or one root for each class.
    class_nodes_ : ndarray of int
        Node of each class.
    objective_ : float
        Value of the objective.
    duality_gap_ : float
        Certified relative duality gap. For "dm", that of its bound.
    gradient_norm_ : float
        Norm of the gradient at the weights ("lc" and "dm": before the last step); NaN if the solver did not compute
        it.
    trace_ : Trace
        Objective, relative gap and seconds of each iteration. The sweeps of "auto" estimate the first two; the last
        values are exact. "admm" adds "primal", "dual" and "rho". For "dm" the objective is its bound, and "softmax"
        is the objective of the other solvers.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    ``with arbora.running(engine="ray"):`` trains the classes in shards on the workers of a Ray cluster (extra `ray`).
    The result is that of `solver="lc"` in this process (with a structure, up to `tol`).

    Classes of the structure without documents are not trained. They have probability 0, and `node_weights` gives the
    weights that the penalty implies.

    References
    ----------
    S. Gopal (2014). Large-scale Structured Learning. PhD thesis, Carnegie Mellon University, chapter 4.

    Examples
    --------
    >>> from arbora.classify import MultinomialLogistic
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> model = MultinomialLogistic(C=10.0).fit(X, ["a", "a", "b", "b", "c", "c"])
    >>> model.predict([[0.2], [4.8]])
    array(['a', 'c'], dtype='<U1')
    >>> model.duality_gap_ <= model.tol
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "C": AUTO_COST_CONSTRAINT,
        "coupling": [Interval(Real, 0, None, closed="left"), "array-like", dict],
        "solver": [StrOptions(set(SOLVERS))],
        "prune_below": [Interval(Real, 0, None, closed="left"), None],
    }

    def __init__(
        self,
        C: Any = "auto",
        *,
        structure: Hierarchy | LabelGraph | None = None,
        coupling: Any = DEFAULT_COUPLING,
        solver: str = "auto",
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        prune_below: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.structure = structure
        self.coupling = coupling
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.prune_below = prune_below
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MultinomialLogistic:
        """Train all classes together.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label per row
            With a structure, labels are names of its nodes.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C. Rows of weight 0 only define classes.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            X, targets = check_labelled_rows(self, X, y)
            dtype, bias = precision_for(self.tol), float(self.fit_intercept)
            check_squares(X, dtype)
            rows = label_rows(X, targets, sample_weight)
            C = AUTO_COST / mean_squared_norm(rows.X, rows.weight) if self.C == "auto" else float(self.C)
            penalty = penalty_of(self.structure, targets.class_nodes, self.coupling)
            engine = engine_for(self.n_jobs, type(self).__name__)
            check_structure_on(engine, self.structure, penalty)
            solver, seed = choose_solver(self.solver, engine), draw_seed(self.random_state)
            design = state_problem(rows, penalty, C, bias, dtype, self.prune_below)
            require_memory_of_weights(design, engine)
            with Progress(None, "iterations", self.verbose) as progress, engine:
                monitor = Monitor(self.tol, self.max_iter, progress, dtype=dtype)
                solution = solve(design.problem, solver, monitor, engine, seed, design.limits)
            model = expand(solution, design, engine)

            self._remember_targets(targets)
            self.coef_, self.intercept_ = model
            self.C_, self.structure_ = C, self.structure
            self.trace_, self.n_iter_ = monitor.trace, monitor.n_iter
            self.objective_, self.gradient_norm_ = solution.objective, solution.gradient_norm
            self.duality_gap_ = solution.gap / max(solution.objective, TINY)
        if not solution.converged:
            warn_caller(why_not_converged(solver, monitor, dtype), ConvergenceWarning)
        return self

    def _scores(self, X: Any) -> Matrix:
        return linear_scores(X, LinearModel(self.coef_, self.intercept_), ThreadEngine(self.n_jobs))

    def _class_proba(self, X: Any) -> Matrix:
        return np.asarray(softmax(self._scores(X).astype(np.float64), axis=1))

    def decision_function(self, X: Any) -> Matrix:
        """Score of every class; the softmax of the scores gives the probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; for two classes, (n_samples,) with the log-odds of the second.
        """
        scores = self._scores(self._check_X(X))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def node_weights(self, nodes: Any) -> tuple[Matrix, Matrix]:
        """Weights of any nodes of the structure, as the penalty implies them given the weights of the classes.

        Parameters
        ----------
        nodes : sequence of names

        Returns
        -------
        coef : ndarray of shape (n_nodes, n_features)
        intercept : ndarray of shape (n_nodes,)
        """
        check_is_fitted(self)
        if self.structure_ is None:
            raise ValueError("the model has no structure; the weights of its classes are in coef_.")
        coupling, fade = read_coupling(self.coupling)
        coef, intercept = node_weights(
            LinearModel(self.coef_, self.intercept_),
            self.structure_,
            self.class_nodes_,
            np.asarray(self.structure_.encode(list(nodes))),
            coupling=coupling,
            fade=fade,
            dtype=self.coef_.dtype,
        )
        return coef, intercept
