"""Hierarchical Bayesian logistic regression (HBLR): every class learns how far it may be from its parent.

The weights of a node are normally distributed around those of its parent, with a precision that is learned
(`infer.tree.gaussian`):

    w_root ~ N(0, s I),    w_n ~ N(w_parent(n), precision_n^-1),    precisions ~ Gamma(a, b),
    p(y = l | x) = exp(w_l.x) / sum_{leaves m} exp(w_m.x)              likelihood="softmax"
    p(y_l = 1 | x) = 1 / (1 + exp(-w_l.x)), classes independent        likelihood="logistic"

(S. Gopal, Y. Yang, B. Bai and A. Niculescu-Mizil 2012, Bayesian Models for Large-scale Hierarchical Classification,
NIPS; S. Gopal 2014, thesis, chapter 2.) The gamma priors are computed from the data (`priors`), so no parameter needs
cross-validation.

The posterior is found by variational inference with full covariances (`infer.tree.variational`) or, for many features
or classes, by partial MAP (`map`). Errata of the papers are noted where the formulas are computed.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit, logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.classify.bayes.map import (
    MapPosterior,
    ScoreVariances,
    ancestors,
    fit_partial_map,
    weights_of_nodes,
)
from arbora.classify.bayes.map import squared_norms as sparse_norms
from arbora.classify.bayes.predictive import ScorePosterior, predictive_logits, score_variances
from arbora.classify.bayes.priors import check_scale, constant_prior, fisher_prior, model_tree, read_gamma
from arbora.classify.estimator import NodePredictor
from arbora.classify.linear import LinearModel, PartsModel, full_weights, linear_scores
from arbora.classify.training import Targets, as_csr, check_labelled_rows
from arbora.core.engine import Engine, check_needs, missing
from arbora.core.estimator import RowEstimator, all_or_nothing, warn_caller
from arbora.core.monitor import Progress
from arbora.core.trace import Trace
from arbora.engine import ThreadEngine, engine_for
from arbora.infer.tree.blocks import Marginals
from arbora.infer.tree.dual import SparseTree
from arbora.infer.tree.gaussian import Gammas, Root, Tree, share_precisions
from arbora.infer.tree.problem import TreeProblem
from arbora.infer.tree.variational import fit_tree
from arbora.metrics.table import Marked, Table
from arbora.structure import Hierarchy, LabelGraph

# --- The problem of hierarchical Bayesian logistic regression, from the parameters and data of a classifier ---


class Model(NamedTuple):
    """The parameters that say which solvers of the weights apply."""

    inference: str
    likelihood: str
    covariance: str

    @property
    def finds_modes(self) -> bool:
        """Whether the most probable weights are found, not their distribution."""
        return self.inference == "map"

    @property
    def has_independent_classes(self) -> bool:
        """Whether the likelihood is a product over the classes."""
        return self.likelihood == "logistic"

    @property
    def has_node_precisions(self) -> bool:
        """Whether all weights of a node share their precision."""
        return self.covariance != "M2"


# What the dual needs of the model: the only solver that runs in shards, and that prunes.
DUAL_NEEDS = ("finds_modes", "has_independent_classes", "has_node_precisions")


def engine_of_fit(model: Model, prune_below: float | None, n_jobs: int | None) -> Engine:
    """Return the engine of a fit, if the model can be fitted there and its weights pruned."""
    if prune_below is not None:
        check_needs(f"prune_below={prune_below:g}", model, DUAL_NEEDS, "change that, or use prune_below=None")
    needs = ["shares_memory"] if missing(model, DUAL_NEEDS) else []
    advice = "use inference='map', likelihood='logistic' and covariance 'M1' or 'M3', or threads"
    return engine_for(n_jobs, f"{model!r}", needs, advice)


def state_problem(
    X: Any,
    targets: Targets,
    row_weight: Array,
    tree: Tree,
    model: Model,
    prior: Any,
    root_variance: float,
    bias: float,
) -> TreeProblem:
    """State the problem of a tree whose leaves are the classes; `prior` is "fisher" or a dict of shape and rate."""
    if targets.multilabel and not model.has_independent_classes:
        raise ValueError(
            "y holds label sets or an indicator, but likelihood='softmax' needs exactly one class per row: "
            "give one label per row, or use likelihood='logistic'."
        )
    check_scale(X)
    Y = targets.indicator.astype(np.float64)
    sharing = share_precisions(tree, model.covariance)
    if isinstance(prior, str):
        same_rate = model.has_independent_classes
        gammas = fisher_prior(X, Y, row_weight, bias, tree, sharing, same_rate=same_rate)
    else:
        gammas = constant_prior(read_gamma(prior), sharing, X.shape[1] + bool(bias))
    root = Root(0.0, 1 / root_variance)
    return TreeProblem(X, Y, row_weight, tree, sharing, gammas, root, model.likelihood, bias)


# --- Find the posterior of a tree of classes, by variational inference or by partial MAP --------------------


class PosteriorFit(NamedTuple):
    """Posterior of the weights of all nodes and of the precisions, and how it was reached."""

    weights: MapPosterior
    gammas: Gammas
    lower_bounds: Array | None  # variational inference only
    trace: Trace
    change: float  # relative change in the last iteration
    converged: bool


def find_posterior(
    problem: TreeProblem,
    inference: str,
    engine: Engine,
    *,
    tol: float,
    max_iter: int,
    prune_below: float | None = None,
    progress: Progress,
) -> PosteriorFit:
    """Find the posterior of weights and precisions by variational inference or by partial MAP."""
    if inference == "map":
        modes = fit_partial_map(
            problem, engine, tol=tol, max_iter=max_iter, prune_below=prune_below, progress=progress
        )
        return PosteriorFit(modes.posterior, modes.gammas, None, *modes[2:])
    fit = fit_tree(problem, engine, tol=tol, max_iter=max_iter, progress=progress)
    mean, _, covariance, gammas = fit.posterior
    weights = MapPosterior(mean, fit.marginals._replace(given_parent=covariance))
    return PosteriorFit(weights, gammas, fit.lower_bounds, fit.trace, fit.change, fit.converged)


def expected_precisions(problem: TreeProblem, gammas: Gammas) -> Array:
    """Return the expected precision of every node around its parent; the root has the precision of its prior.

    The result has shape (n_nodes,), or (n_nodes, n_weights) if every weight has its own precision.
    """
    inside = problem.sharing.group >= 0
    precisions = np.full((problem.tree.n_nodes, gammas.rate.shape[1]), problem.root.precision)
    precisions[inside] = gammas.mean[problem.sharing.group[inside]]
    return precisions if problem.sharing.by_weight else precisions[:, 0]


class DenseNodes(NamedTuple):
    """Dense weights of all nodes: attributes of the classifier, those that are None left out."""

    node_coef: Matrix
    node_intercept: Matrix
    node_coef_std: Matrix
    node_intercept_std: Matrix
    coef_covariance: Matrix | None
    marginal_covariance: Matrix | None
    difference_covariance: Matrix | None


class SparseNodes(NamedTuple):
    """Sparse differences of all nodes from their parents: attributes of the classifier."""

    differences: sp.csc_array
    sharing: sp.csc_array
    node_intercept: Matrix
    node_intercept_std: Matrix
    node_variances: Array
    variance_reductions: sp.csr_array


# Attributes that depend on the parameters of a fit.
_OPTIONAL = {f"{name}_" for name in (*DenseNodes._fields, *SparseNodes._fields, "lower_bounds")}


def dense_nodes(mean: Matrix, marginals: Marginals, n_features: int) -> DenseNodes:
    """Separate the biases, if there are any, from the weights; standard deviations from variances."""
    std, has_bias = np.sqrt(marginals.variance), mean.shape[1] > n_features
    bias, bias_std = (values[:, n_features] if has_bias else np.zeros(len(mean)) for values in (mean, std))
    coef, given_parent = np.ascontiguousarray(mean[:, :n_features]), marginals.given_parent
    covariances = None if marginals.covariance is None else given_parent, marginals.covariance
    return DenseNodes(coef, bias, std[:, :n_features], bias_std, *covariances, marginals.contrast)


def sparse_nodes(sparse: SparseTree, tree: Tree) -> SparseNodes:
    """Sum the biases along the paths; `sharing` marks the nodes at or above each class."""
    above = ancestors(tree.parent, np.arange(tree.n_nodes))
    differences = sp.csc_array(sparse.differences)
    sharing = sp.csc_array(above[tree.leaves].T, dtype=differences.dtype)
    bias_std = np.sqrt(sparse.bias_variance)
    return SparseNodes(
        differences, sharing, above @ sparse.bias, bias_std, sparse.variance, sparse.reductions
    )


def weights_of_tree(weights: MapPosterior, tree: Tree, n_features: int) -> DenseNodes | SparseNodes:
    """Return the weights of all nodes, dense or as sparse differences."""
    if weights.sparse is not None:
        return sparse_nodes(weights.sparse, tree)
    assert weights.mean is not None
    assert weights.marginals is not None
    return dense_nodes(weights.mean, weights.marginals, n_features)


# --- Reports on the nodes of a fitted hierarchical Bayesian model -------------------------------------------


_MARK_ABOVE = 2.0  # a node is marked if its distance over the median of its siblings exceeds this


def fitted_ancestor(tree: Hierarchy, hierarchy: Hierarchy, name: Any) -> int:
    """Id in the fitted tree of a node of the structure, or of its nearest ancestor that was fitted.

    >>> tree, hierarchy = Hierarchy.from_paths(["a/b"]), Hierarchy.from_paths(["a/b", "a/c"])
    >>> tree.names[fitted_ancestor(tree, hierarchy, "a/c")]
    'a'
    """
    for candidate in reversed(hierarchy.path(name)):
        if candidate in tree:
            return int(tree.id_of(candidate))
    return 0  # a tree of a forest without documents: the root of the model


def squared_norms(parent: Ints, weights: Matrix) -> tuple[Array, Array]:
    """Squared distance of every node from its parent, of a root from zero; and squared norm of its weights."""
    squares = np.empty(len(parent))
    for node, up in enumerate(parent.tolist()):  # one node at a time, because the weights may fill the memory
        difference = weights[node] - weights[up] if up >= 0 else weights[node]
        squares[node] = np.dot(difference, difference)
    return squares, np.array([np.dot(row, row) for row in weights])


def _sums_to_parents(parent: Ints, values: Array) -> Array:
    inside = parent >= 0
    return np.asarray(np.bincount(parent[inside], values[inside], minlength=len(parent)), np.float64)


def against_siblings(parent: Ints, distance: Array) -> Array:
    """Distance of every node over the median of its family (siblings and itself); NaN for roots and only children.

    >>> against_siblings(np.array([-1, 0, 0, 0]), np.array([0.0, 1.0, 1.0, 3.0]))
    array([nan,  1.,  1.,  3.])
    """
    ratio = np.full(len(parent), np.nan)
    order = np.argsort(parent, kind="stable")
    for family in np.split(order, np.flatnonzero(np.diff(parent[order])) + 1):
        if parent[family[0]] >= 0 and len(family) > 1:
            ratio[family] = distance[family] / max(float(np.median(distance[family])), TINY)
    return ratio


def summarise_nodes(
    parent: Ints,
    names: Matrix,
    class_rows: Array,
    precisions: Array,
    norms: tuple[Array, Array],
    n_features: int,
) -> Table:
    """Make the table of `HierarchicalBayesClassifier.node_summary`.

    Parents come before their children, and the classes come last. `norms` are those of `squared_norms`.
    """
    n_nodes = len(parent)
    rows = np.zeros(n_nodes)
    rows[n_nodes - len(class_rows) :] = class_rows
    for node in range(n_nodes - 1, 0, -1):
        if parent[node] >= 0:
            rows[parent[node]] += rows[node]
    squares, of_weights = norms
    distance = np.sqrt(squares / max(n_features, 1))
    ratio = against_siblings(parent, distance)
    n_children = np.bincount(parent[parent >= 0], minlength=n_nodes)
    of_children = _sums_to_parents(parent, squares) / np.maximum(n_children, 1)
    shared = np.where(n_children > 0, of_weights / np.maximum(of_weights + of_children, TINY), np.nan)
    precision = precisions if precisions.ndim == 1 else np.exp(np.log(precisions).mean(axis=1))
    lines = [
        (
            str(names[node]),
            str(names[parent[node]]),
            float(rows[node]),
            float(precision[node]),
            float(distance[node]),
            Marked(ratio[node], "*" if ratio[node] > _MARK_ABOVE else ""),
            float(shared[node]),
        )
        for node in np.flatnonzero(parent >= 0).tolist()
    ]
    columns = ("Node", "Parent", "Rows", "Precision", "Distance", "Against siblings", "Shared")
    note = f"* more than {_MARK_ABOVE:g} times the median distance of the siblings"
    return Table(columns, tuple(lines), ("", "", ",.0f", ".3g", ".3f", ".2f", ".2f"), note=note)


# --- Hierarchical Bayesian logistic regression (HBLR): every class learns how far it may be from its parent ---


_DEFAULT_TOL = {"variational": 1e-4, "map": 1e-2}


class HierarchicalBayesClassifier(RowEstimator, NodePredictor, ClassifierMixin, BaseEstimator):
    """Hierarchical Bayesian logistic regression (HBLR) over a tree of classes.

    Parameters
    ----------
    structure : Hierarchy, optional
        Tree or forest whose nodes are the labels. Without one, all classes are children of one root (a flat model).
    covariance : {"M3", "M1", "M2"}
        Which weights share a precision around the parent. "M3": the weights of a node. "M1": the weights of all
        children of a node. "M2": all children of a node, with one precision for each feature.
    inference : {"map", "variational"}
        "map": most probable weights, with variances by a Laplace approximation; for any number of features.
        "variational": full posterior covariance of the weights of every class; for up to some hundreds of features.
    likelihood : {"softmax", "logistic"}
        "softmax": every row has exactly one class. "logistic": the classes are independent; required for multilabel
        data.
    prior : "fisher" or dict
        Gamma distributions of the precisions: from the Fisher information of the data, or the same for all, with the
        keys "shape" and "rate" (1 by default).
    root_variance : float
        Prior variance of the weights of the root.
    prediction : {"auto", "mean", "predictive"}
        Compute probabilities with the posterior mean of the weights, or average them over the posterior. "auto" is
        "predictive" for variational inference and "mean" for MAP.
    fit_intercept : bool
        Whether to learn a bias: the weight of a constant feature, with the same prior as the other weights.
    tol : float, optional
        Stop when the relative change of the lower bound (variational; default 1e-4), or the root mean square of the
        relative changes of the expected precisions (MAP; default 0.01), is below it. A round of MAP reduces the
        error strongly: on CLEF, 0.01 left precisions within 0.2% of those of 1e-4, and probabilities within 0.002.
    max_iter : int
        Maximum number of iterations. A `ConvergenceWarning` is issued if it is reached. With MAP on sparse rows, the
        first iterations (at most 10) only approximate the weights by dual sweeps; if training stops there, Newton's
        method does not refine them.
    prune_below : float, optional
        Store the weights as sparse differences of the nodes from their parents, and drop those whose absolute value
        is not above it; for more features and classes than a dense matrix of weights can hold. Needs
        inference="map", likelihood="logistic" and covariance "M1" or "M3". The dual is solved to
        a relative gap of `tol`; nothing is dropped on the way, and biases are not pruned.
    n_jobs : int, optional
        Number of threads; it does not change the result.
    verbose : int
        1 shows progress on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function` and `predict_proba`.
    nodes_, hierarchy_, class_nodes_
        All nodes of the structure, the structure, and the nodes of the classes.
    coef_ : ndarray of shape (n_classes, n_features)
        Posterior means of the weights. Two classes have two rows.
    intercept_ : ndarray of shape (n_classes,)
    coef_std_, intercept_std_
        Marginal posterior standard deviations. With MAP and many features they are conditional on all other weights.
    tree_ : Hierarchy
        The fitted tree: inner nodes first, then the classes. A class with documents on an inner node is a leaf
        below it.
    node_coef_, node_intercept_, node_coef_std_, node_intercept_std_
        The same for all nodes of `tree_`. With `prune_below` only the intercepts.
    differences_, sharing_ : sparse matrices of shape (n_tree_nodes, n_features) and (n_tree_nodes, n_classes)
        With `prune_below`: differences of the nodes from their parents, and the nodes at or above each class. `coef_`
        is computed from them, as a sparse matrix.
    node_variances_, variance_reductions_ : ndarray of shape (n_tree_nodes,), sparse (n_classes, n_features)
        With `prune_below`: variances of the weights of all nodes without data, and how much the data reduce those
        of the classes. Reductions below 1% are not stored.
    precisions_ : ndarray of shape (n_tree_nodes,), or (n_tree_nodes, n_features [+ 1]) for M2
        Expected precision of every node around its parent. The root has the precision of its prior.
    coef_covariance_ : ndarray of shape (n_classes, n_features [+ 1], n_features [+ 1])
        Covariances of the weights of each class given those of its parent, bias last; those of the variational
        distribution, in which nodes are independent. The lower bound and the probabilities of a softmax use them. MAP
        computes this and the next two only if there are few features.
    marginal_covariance_ : ndarray of the same shape
        Marginal posterior covariances, which include the uncertainty of all other nodes. `coef_std_` and the
        standard deviations of scores come from them.
    difference_covariance_ : ndarray of shape (n_features [+ 1], n_features [+ 1]), for two classes only
        Marginal covariance of the weights of the second class minus those of the first.
    lower_bounds_ : ndarray, variational inference only
        Lower bound of the log evidence after each iteration.
    trace_ : Trace
    n_iter_, n_features_in_ : int

    Notes
    -----
    ``with arbora.running(engine="ray"):`` computes the most probable weights in shards on the workers of a Ray
    cluster (extra `ray`). It needs inference="map", likelihood="logistic" and covariance "M1" or "M3". Variances,
    precisions and the weights of all nodes are computed in this process.

    Classes without documents are not fitted. They have probability 0, and `node_weights` gives them the weights of
    the nearest ancestor with documents below it.

    References
    ----------
    S. Gopal, Y. Yang, B. Bai and A. Niculescu-Mizil (2012). Bayesian Models for Large-scale Hierarchical
    Classification. NIPS.

    Examples
    --------
    >>> from arbora.classify import HierarchicalBayesClassifier
    >>> from arbora.structure import Hierarchy
    >>> X = [[2.0, 0.0], [1.5, 0.5], [0.0, 2.0], [0.5, 1.5], [-2.0, -2.0]]
    >>> y = ["animal/cat", "animal/cat", "animal/dog", "animal/dog", "plant"]
    >>> tree = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> model = HierarchicalBayesClassifier(structure=tree).fit(X, y)
    >>> model.predict([[2.0, 0.2], [-1.0, -1.0]])
    array(['animal/cat', 'plant'], dtype=object)
    >>> scores, std = model.decision_function([[2.0, 0.2]], return_std=True)
    >>> scores.shape, bool((std > 0).all())
    ((1, 3), True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "structure": "no_validation",  # checked by encode_targets, with a better message
        "covariance": [StrOptions({"M1", "M2", "M3"})],
        "inference": [StrOptions({"map", "variational"})],
        "likelihood": [StrOptions({"softmax", "logistic"})],
        "prior": [StrOptions({"fisher"}), dict],
        "root_variance": [Interval(Real, 0, None, closed="neither")],
        "prediction": [StrOptions({"auto", "mean", "predictive"})],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "prune_below": [Interval(Real, 0, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    node_coef_: Matrix  # these are fields of DenseNodes or SparseNodes
    node_coef_std_: Matrix
    node_intercept_: Matrix
    node_intercept_std_: Matrix

    def __init__(
        self,
        structure: Hierarchy | None = None,
        *,
        covariance: str = "M3",
        inference: str = "map",
        likelihood: str = "softmax",
        prior: Any = "fisher",
        root_variance: float = 1.0,
        prediction: str = "auto",
        fit_intercept: bool = True,
        tol: float | None = None,
        max_iter: int = 200,
        prune_below: float | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.structure = structure
        self.covariance = covariance
        self.inference = inference
        self.likelihood = likelihood
        self.prior = prior
        self.root_variance = root_variance
        self.prediction = prediction
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.prune_below = prune_below
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.likelihood == "logistic"
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HierarchicalBayesClassifier:
        """Find the posterior of the weights and precisions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Use features of about unit variance or rows of unit length: the prior of the root has one scale for all
            features.
        y : one label per row; with likelihood="logistic" also a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        if isinstance(self.structure, LabelGraph):
            raise ValueError(
                "structure is a LabelGraph, but the model needs parents: give a Hierarchy that is a tree, or use "
                "RecursiveLogisticRegression, which accepts graphs."
            )
        with all_or_nothing(self):
            X, targets = check_labelled_rows(self, X, y)
            row_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            X = as_csr(X) if sp.issparse(X) or self.prune_below is not None else np.asarray(X, np.float64)
            model = Model(self.inference, self.likelihood, self.covariance)
            engine = engine_of_fit(model, self.prune_below, self.n_jobs)
            hierarchy, tree = model_tree(targets.hierarchy, targets.class_nodes)
            problem = state_problem(
                X, targets, row_weight, tree, model, self.prior, self.root_variance, float(self.fit_intercept)
            )
            tol = _DEFAULT_TOL[self.inference] if self.tol is None else self.tol
            with Progress(None, "iterations", self.verbose) as progress, engine:
                posterior = find_posterior(
                    problem, self.inference, engine, tol=tol, max_iter=self.max_iter,
                    prune_below=self.prune_below, progress=progress,
                )  # fmt: skip
            nodes = weights_of_tree(posterior.weights, tree, X.shape[1])
            self._remember_targets(targets)
            for name in _OPTIONAL:  # of an earlier fit with other parameters
                self.__dict__.pop(name, None)
            for name, value in {**nodes._asdict(), "lower_bounds": posterior.lower_bounds}.items():
                if value is not None:
                    setattr(self, f"{name}_", value)
            self.tree_, self.precisions_ = hierarchy, expected_precisions(problem, posterior.gammas)
            self.class_rows_ = np.asarray(problem.Y.T @ problem.row_weight).ravel()
            self.trace_, self.n_iter_ = posterior.trace, len(posterior.trace)
        if not posterior.converged:
            warn_caller(self._why_not_converged(posterior.change, tol), ConvergenceWarning)
        return self

    def _why_not_converged(self, change: float, tol: float) -> str:
        what = "lower bound" if self.inference == "variational" else "precisions"
        if change > tol:
            return (
                f"stopped at max_iter={self.max_iter} before the relative change of the {what} fell to "
                f"tol={tol:g}; it is {change:.2g}. Increase max_iter, or scale the features."
            )
        return (
            f"the {what} converged, but the weights did not reach tol={tol:g}. Scale the features, or "
            "increase tol."
        )

    @property
    def _sparse(self) -> bool:
        """Whether the last fit stored sparse differences."""
        return "differences_" in self.__dict__

    @property
    def coef_(self) -> Any:
        """Posterior means of the weights of the classes; a sparse matrix with `prune_below`."""
        if self._sparse:
            return full_weights(self.differences_, self.sharing_)
        return self.node_coef_[-len(self.classes_) :]

    @property
    def intercept_(self) -> Matrix:
        """Posterior means of the biases of the classes."""
        return self.node_intercept_[-len(self.classes_) :]

    @property
    def coef_std_(self) -> Matrix:
        """Posterior standard deviations of the weights of the classes."""
        if self._sparse:
            return self._variances.std()
        return self.node_coef_std_[-len(self.classes_) :]

    @property
    def intercept_std_(self) -> Matrix:
        """Posterior standard deviations of the biases of the classes."""
        return self.node_intercept_std_[-len(self.classes_) :]

    @property
    def _variances(self) -> ScoreVariances:
        """Variances of the weights of the classes, of a model with sparse differences."""
        n_classes = len(self.classes_)
        bias = self.node_intercept_std_[-n_classes:] ** 2
        return ScoreVariances(self.node_variances_[-n_classes:], self.variance_reductions_, bias)

    def _means(self, X: Any) -> Matrix:
        if self._sparse:
            model: Any = PartsModel(self.differences_, self.intercept_, self.sharing_)
        else:
            model = LinearModel(self.coef_, self.intercept_)
        return linear_scores(X, model, ThreadEngine(self.n_jobs)).astype(np.float64)

    def _scores(self, X: Any) -> Matrix:
        """Scores for predictions: of the mean weights, or averaged over the posterior."""
        mean = self._means(X)
        # The inference of the last fit: the parameter may have changed.
        bounded = hasattr(self, "lower_bounds_")
        if self.prediction == "mean" or (self.prediction == "auto" and not bounded):
            return mean
        # In a softmax, the uncertainty of common ancestors shifts all scores alike and cancels.
        name = "coef_covariance_" if self.likelihood == "softmax" else "marginal_covariance_"
        variance = self._score_variances(X, getattr(self, name, None))
        return predictive_logits(ScorePosterior(mean, variance), self.likelihood, bounded)

    def _score_variances(self, X: Any, covariance: Matrix | None) -> Matrix:
        if self._sparse:
            return self._variances.of_scores(X)
        return score_variances(X, self.coef_std_, self.intercept_std_, covariance)

    def _class_proba(self, X: Any) -> Matrix:
        scores = self._scores(X)
        if self._multilabel:
            return np.asarray(expit(scores))
        logs = scores if self.likelihood == "softmax" else log_expit(scores)
        return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Score of every class, or its posterior mean and standard deviation.

        `predict` returns the class with the largest score.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        return_std : bool

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; for two classes, (n_samples,) with positive values for the second.
            `predict_proba` is computed from them. With prediction="mean" they are the means w.x; with "predictive"
            the damped log-odds (logistic) or the log-probabilities up to a constant for each row (softmax). With
            `return_std=True` they are always the means of w.x.
        std : ndarray of the same shape
            Standard deviations of w.x; with `return_std=True` only.
        """
        X = self._check_X(X)
        scores = self._means(X) if return_std else self._scores(X)
        binary = len(self.classes_) == 2 and not self._multilabel
        scores = scores[:, 1] - scores[:, 0] if binary else scores
        return (scores, self._score_std(X, binary)) if return_std else scores

    def _score_std(self, X: Any, binary: bool) -> Matrix:
        covariance = getattr(self, "marginal_covariance_", None)
        if binary and covariance is not None:
            covariance = self.difference_covariance_[None]
            return np.sqrt(score_variances(X, None, None, covariance)[:, 0])
        variance = self._score_variances(X, covariance)
        return np.asarray(np.sqrt(variance.sum(axis=1) if binary else variance))

    def node_weights(self, nodes: Any) -> tuple[Matrix, Matrix]:
        """Weights of any nodes. A node without documents has those of its nearest ancestor with documents.

        Parameters
        ----------
        nodes : sequence of names

        Returns
        -------
        coef : ndarray of shape (n_nodes, n_features)
        intercept : ndarray of shape (n_nodes,)
        """
        check_is_fitted(self)
        if self.structure is not None:
            ids = np.array([fitted_ancestor(self.tree_, self.hierarchy_, name) for name in nodes], np.int64)
        else:
            column = {name: i for i, name in enumerate(self.nodes_.tolist())}
            unknown = [name for name in nodes if name not in column]
            if unknown:
                raise ValueError(f"{unknown[0]!r} is not a class of the model, which has no structure.")
            ids = np.array([self.tree_.id_of(column[name]) for name in nodes], np.int64)
        if self._sparse:
            coef = weights_of_nodes(self.differences_, self.tree_.parent, ids)
            return np.asarray(coef.toarray()), self.node_intercept_[ids]
        return self.node_coef_[ids], self.node_intercept_[ids]

    def node_summary(self) -> Table:
        """Summarise the nodes: which families are similar, and which nodes differ from their siblings.

        Returns
        -------
        Table
            A row for each node of `tree_` except the root, with the columns

            - Node, Parent, Rows: number of documents at or below the node; a document with several labels there
              counts once for each;
            - Precision: expected precision around the parent (M2: geometric mean over the features);
            - Distance: root mean square of the differences between the weights of the node and of its parent;
            - Against siblings: that distance divided by the median over the siblings, including the node; marked *
              above 2;
            - Shared: for an inner node, its share of the squared weights of its children. Near 1 the children are
              similar, near 0 they have little in common.
        """
        check_is_fitted(self)
        parent, n_features = self.tree_.parent, self.n_features_in_
        if self._sparse:
            norms = sparse_norms(self.differences_, parent)
        else:
            norms = squared_norms(parent, self.node_coef_)
        names = self.tree_.names.astype(object)
        if self.structure is None:  # the leaves have the names of the classes
            columns = range(len(self.nodes_))
            names = np.array([self.nodes_[name] if name in columns else name for name in names], object)
        return summarise_nodes(parent, names, self.class_rows_, self.precisions_, norms, n_features)
