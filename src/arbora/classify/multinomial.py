"""Multinomial logistic regression for very many classes, flat or over a label structure.

All solvers but "dm" minimise, with scores s_ik = w_k.x_i + b_k and row weights r_i,

    min_W  1/2 sum_k ||w_k||^2 + C sum_i r_i (log sum_k exp(s_ik) - s_iy).

The bias is the weight of a constant feature of value `intercept_scaling` and is regularised like the others. With
``intercept_scaling=None`` it is not regularised; for three or more classes this is the problem of scikit-learn's
`LogisticRegression`. (With two classes, scikit-learn has one vector of weights, and here there are two of opposite
sign: its solution at 2 C equals the one here at C.)

With a label structure, the recursive penalty of `RecursiveLogisticRegression` with the same `coupling` and `fade`
replaces the sum of squares (`_linear.coupling`): classes that are near each other share weights and still compete in
one softmax.

The solvers are those of S. Gopal (2014, thesis, chapter 4) and faster ones (`infer.softmax.solve`).
"""

from __future__ import annotations

import mmap
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Ints, Matrix
from arbora.classify.cost_choice import mean_squared_norm
from arbora.classify.estimator import (
    AUTO_COST_CONSTRAINT,
    CHECKPOINT_CONSTRAINT,
    LINEAR_CONSTRAINTS,
    NodePredictor,
)
from arbora.classify.linear import (
    LinearModel,
    dense_model,
    design_matrix,
    linear_scores,
    needs_no_copy,
    pruned_model,
    pruning_limits,
)
from arbora.classify.recursive.coupling import couple, node_weights
from arbora.classify.training import Training, check_training, drop_weightless_rows, open_checkpoint
from arbora.core.chunks import require_memory
from arbora.core.engine import Engine, require_shared_memory
from arbora.core.estimator import all_or_nothing, warn_caller
from arbora.core.monitor import Monitor, Progress
from arbora.engine import ENGINE_PARAMETER, ThreadEngine, choose_engine
from arbora.infer.softmax.problem import SoftmaxProblem, class_weights
from arbora.infer.softmax.solve import SOLVERS, solve
from arbora.structure import Hierarchy, LabelGraph

AUTO_COST = 30.0  # in units of 1 / (mean squared norm of the rows): the slope of a softmax is never above 1


class MultinomialLogistic(NodePredictor, ClassifierMixin, BaseEstimator):
    """Multinomial logistic regression (softmax), for a few classes or many thousands.

    Parameters
    ----------
    C : float or "auto"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" is 30 over the mean squared
        norm of the rows; its value is in `C_`.
    structure : Hierarchy or LabelGraph, optional
        Structure whose nodes are the labels. Classes that are near each other share weights, and
        `predict_node_proba`, `predict_path` and `predict_backoff` refer to all nodes.
    coupling : float, sequence of floats or dict
        How much classes share with neighbouring classes, as in `RecursiveSVC`. 0 is flat training. Used only with a
        structure.
    fade : float, optional
        Number of classes below a node above which its coupling fades, as in `RecursiveSVC`.
    solver : {"auto", "lc", "dm", "admm", "lbfgs"}
        "auto": the fastest one, coordinate ascent in the dual (sparse rows) or Newton's method (dense rows). "lc":
        the log-concavity bound, with classes in parallel; it needs the least memory. "admm": alternating directions.
        "lbfgs": the reference. "dm": double majorisation, which minimises a bound; it is there for comparison.
    tol : float
        Certified relative duality gap at which to stop: the objective is at most this share above its optimum. If the
        bias is not regularised, there is no such gap, and `tol` is the norm of the gradient relative to that at zero.
    max_iter : int
        Maximum number of iterations (sweeps, Newton steps or rounds). A `ConvergenceWarning` is issued if it is
        reached.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float or None
        Value of the constant feature whose weight is the bias. A larger value regularises the bias less. None does
        not regularise it, as in scikit-learn's `LogisticRegression`.
    prune_below : float, optional
        Store the weights as a sparse matrix of the entries whose absolute value exceeds this, for models whose dense
        `coef_` is too large. 0.0 drops only zeros, of which a softmax has few. The bias is not pruned.
    dtype : "float32" or "float64"
        Precision of training and weights. float32 suffices for `tol` down to about 1e-5.
    n_jobs : int, optional
        Number of threads; it does not change the result. The sweeps of "auto" use one thread.
    engine : None, "threads", "ray" or RayEngine
        Where the weights are trained: in this process, or in shards on the workers of a Ray cluster (extra `ray`;
        "ray" starts one on this machine). On a cluster "auto" means "lc", the only solver that runs there. Its result
        does not depend on the engine (with a structure, up to `tol`). Predictions use `n_jobs` threads of this
        process.
    random_state : int, RandomState instance or None
        Order in which "auto" visits sparse rows.
    checkpoint : path, optional
        Folder for the state of the solver. An interrupted fit resumes from it and gives the same model. The folder is
        removed at the end. "lbfgs" cannot be checkpointed; on a cluster use `RayEngine(resume=True)`.
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
        Certified relative duality gap; NaN if there is none. For "dm", that of its bound.
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
        "engine": ENGINE_PARAMETER,
        "checkpoint": CHECKPOINT_CONSTRAINT,
        "coupling": [Interval(Real, 0, None, closed="left"), "array-like", dict],
        "fade": [Interval(Real, 0, None, closed="neither"), None],
        "solver": [StrOptions(set(SOLVERS))],
        "prune_below": [Interval(Real, 0, None, closed="left"), None],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        C: Any = "auto",
        *,
        structure: Hierarchy | LabelGraph | None = None,
        coupling: Any = 0.1,
        fade: float | None = 16.0,
        solver: str = "auto",
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        intercept_scaling: float | None = 1.0,
        prune_below: float | None = None,
        dtype: str = "float32",
        n_jobs: int | None = None,
        engine: Engine | str | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.structure = structure
        self.coupling = coupling
        self.fade = fade
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.prune_below = prune_below
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.engine = engine
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

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
            resumable = self.checkpoint is not None
            training, targets = check_training(self, X, y, sample_weight, loss="softmax", resumable=resumable)
            self._remember_targets(targets)
            bias = (self.intercept_scaling or 0.0) if self.fit_intercept else 0.0
            options = training.options._replace(bias=bias, dtype=np.dtype(self.dtype))
            training = training._replace(options=options)
            training = drop_weightless_rows(training)
            self._refuse_unsolvable(training)
            self.C_ = (
                AUTO_COST / mean_squared_norm(training.X, training.row_cost)
                if self.C == "auto"
                else float(self.C)
            )
            training = training.with_cost(self.C_)
            self._refuse_options()
            return self._fit(training)

    def _refuse_options(self) -> None:
        """Refuse options that do not work in shards or with a checkpoint, before anything is trained."""
        if self.checkpoint is not None and self.solver == "lbfgs":
            raise ValueError("solver='lbfgs' cannot be checkpointed: use another solver, or checkpoint=None.")
        engine = self._training_engine()
        if self.checkpoint is not None:
            advice = "use engine=None; RayEngine(folder=..., resume=True) resumes a fit that was interrupted"
            require_shared_memory(engine, f"checkpoint={self.checkpoint!r}", advice)
        if self.solver not in ("auto", "lc"):
            require_shared_memory(engine, f"solver={self.solver!r}", "use solver='lc', or engine=None")
        tree = isinstance(self.structure, Hierarchy) and self.structure.is_tree
        if self.structure is not None and not tree and self._penalty()[0] is not None:
            advice = (
                "use a tree, engine=None, or coupling=0; RecursiveLogisticRegression accepts all structures"
            )
            require_shared_memory(engine, "a DAG or label graph, whose classes depend on all others,", advice)

    def _refuse_unsolvable(self, training: Training) -> None:
        """Refuse label sets and problems without an optimum."""
        if self._multilabel:
            raise ValueError(
                "y holds label sets or an indicator, but a softmax needs exactly one class per row: give one label "
                "per row, or use RecursiveLogisticRegression or OneVsRestLogistic."
            )
        count = np.bincount(training.positives.indices, minlength=len(self.classes_))
        if not count.any():
            raise ValueError("all rows have weight 0: give a positive sample_weight to some rows.")
        if self.fit_intercept and self.intercept_scaling is None and not count.all():
            name = self.classes_[count == 0].tolist()[0]
            raise ValueError(
                f"all rows of class {name!r} have weight 0, so its unregularised bias would be minus infinity. Leave "
                "these rows out, or set intercept_scaling to a number."
            )

    def _fit(self, training: Training) -> MultinomialLogistic:
        free_bias = self.fit_intercept and self.intercept_scaling is None
        bias = 1.0 if free_bias else training.options.bias
        n_features, dtype = training.X.shape[1], training.options.dtype
        X, selected = design_matrix(training.X, bias, dtype)
        factor, order = self._penalty()
        position = np.argsort(order)
        labels = position[training.positives.indices]
        problem = SoftmaxProblem(X, labels, training.row_cost, len(order), factor, free_bias)
        limits = None
        if self.prune_below is None:
            self._require_memory(len(selected), n_features, bias)
        else:
            limits = pruning_limits(X.shape[1], self.prune_below, bias, dtype)
        checkpoint = open_checkpoint(self, training)
        with Progress(None, "iterations", self.verbose) as progress, self._training_engine() as engine:
            monitor = Monitor(self.tol, self.max_iter, progress, checkpoint, dtype)
            try:
                solution = solve(problem, self.solver, monitor, engine, training.options.seed, limits)
            except MemoryError:
                if checkpoint is not None and not checkpoint.keys():
                    checkpoint.clear()  # the fit never started
                raise
        W = solution.Z if solution.of_classes else class_weights(factor, solution.Z)
        W, columns = W.astype(dtype, copy=False), None if factor is None else position
        if limits is None:
            self.coef_, self.intercept_ = dense_model(W, selected, n_features, bias, engine, columns)
        else:
            self.coef_, self.intercept_ = pruned_model(W, selected, n_features, bias, limits, columns)
        self.structure_, self.trace_, self.n_iter_ = self.structure, monitor.trace, len(monitor.trace)
        self.objective_, self.gradient_norm_ = solution.objective, solution.gradient_norm
        self.duality_gap_ = solution.gap / max(solution.objective, np.finfo(np.float64).tiny)
        if not solution.converged:
            self._warn_not_converged(monitor)
        if checkpoint is not None:
            checkpoint.clear()
        return self

    def _require_memory(self, n_selected: int, n_features: int, bias: float) -> None:
        """Refuse dense weights of all features that do not fit into memory."""
        engine, n_classes = self._training_engine(), len(self.classes_)
        if engine.keeps_weights_in_files:
            return
        row = n_classes * np.dtype(self.dtype).itemsize
        # Pages of a new matrix without a selected feature take no memory.
        n_new = n_selected if row >= mmap.PAGESIZE else min(n_features, n_selected * mmap.PAGESIZE // row)
        n_rows = n_features if needs_no_copy(n_selected, n_features, bias, engine) else n_selected + n_new
        require_memory(
            (n_rows + 1) * row,
            f"The dense weights of {n_classes} classes and {n_features} features",
            "Use prune_below, which stores the larger ones as a sparse matrix, fewer features (for text: a larger "
            "min_df), or RayEngine(weights=folder), which stores them in a file.",
        )

    def _penalty(self) -> tuple[sp.csr_array | None, Ints]:
        """Return the factor of the recursive penalty and the class of each of its columns; None for flat classes."""
        if self.structure is not None:
            factor, order = couple(self.structure, self.class_nodes_, self.coupling, self.fade)
            flat = factor.shape[0] == factor.shape[1] == factor.nnz and (factor.data == 1).all()
            if not flat:
                return sp.csr_array(factor), order
        return None, np.arange(len(self.classes_))

    def _warn_not_converged(self, monitor: Monitor) -> None:
        what = "norm of the gradient" if monitor.criterion == "change" else "duality gap"
        why = (
            f"stopped at max_iter={self.max_iter}"
            if self.n_iter_ >= self.max_iter
            else f"stopped after {self.n_iter_} iterations, because the objective no longer decreased"
        )
        warn_caller(
            f"solver={self.solver!r} {why}, before the relative {what} reached tol={self.tol:g}; it is "
            f"{monitor.value:.2g}. Increase max_iter or tol, "
            + ("use dtype='float64', " if self.dtype == "float32" else "")
            + "or scale the features.",
            ConvergenceWarning,
        )

    def _training_engine(self) -> Engine:
        return choose_engine(self.engine, self.n_jobs)

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
        coef, intercept = node_weights(
            LinearModel(self.coef_, self.intercept_),
            self.structure_,
            self.class_nodes_,
            np.asarray(self.structure_.encode(list(nodes))),
            coupling=self.coupling,
            fade=self.fade,
            dtype=np.dtype(self.dtype),
        )
        return coef, intercept
