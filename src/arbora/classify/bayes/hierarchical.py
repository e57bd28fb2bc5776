"""Hierarchical Bayesian logistic regression (HBLR): every class learns how far it may stray from its parent.

The weights of a node lie around those of its parent, and how close is learned from the data (`infer.gaussian_tree`):

    w_root ~ N(0, s I),    w_n ~ N(w_parent(n), precision_n^-1),    precisions ~ Gamma(a, b),
    p(y = l | x) = exp(w_l.x) / sum_{leaves m} exp(w_m.x)              likelihood="softmax"
    p(y_l = 1 | x) = 1 / (1 + exp(-w_l.x)), classes independent        likelihood="logistic"

(S. Gopal, Y. Yang, B. Bai and A. Niculescu-Mizil 2012, Bayesian Models for Large-scale Hierarchical Classification,
NIPS; S. Gopal 2014, thesis, chapter 2.) The gamma priors come from the data (`_bayes_priors`). Nothing is left to
cross-validation.

The posterior is found by variational inference with full covariances (`infer.tree_variational`), or by partial MAP
(`_bayes_map`), for many features or classes. What the papers print wrongly is noted where it is computed.
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from arbora.classify._common.labels import encode_targets
from arbora.classify._common.linear_model import LinearModel, as_csr, linear_scores
from arbora.classify._common.node_predictor import NodePredictor
from arbora.classify.bayes.model_tree import model_tree
from arbora.classify.bayes.node_report import TreeReport
from arbora.classify.bayes.partial_map import MapFit, fit_partial_map
from arbora.classify.bayes.predictive import Scores, predictive_logits, score_variances
from arbora.classify.bayes.priors import check_scale, make_prior
from arbora.core.engine import require_shared_memory
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.core.validation import check_features
from arbora.engine import ENGINE_PARAMETER, ThreadEngine, choose_engine
from arbora.infer.tree.blocks import Marginals
from arbora.infer.tree.gaussian import Gammas, Root, share_precisions
from arbora.infer.tree.problem import TreeProblem
from arbora.infer.tree.variational import TreeFit, fit_tree
from arbora.structure import Hierarchy, LabelGraph

_TOL = {"variational": 1e-4, "map": 1e-2}
_OPTIONAL = ("coef_covariance_", "lower_bounds_", "marginal_covariance_", "difference_covariance_")


class HierarchicalBayesClassifier(TreeReport, NodePredictor, ClassifierMixin, BaseEstimator):
    """Hierarchical Bayesian logistic regression (HBLR) over a tree of classes.

    Parameters
    ----------
    structure : Hierarchy, optional
        Tree or forest whose nodes the labels name. Without one all classes are children of one root: the flat model.
    covariance : {"M3", "M1", "M2"}
        What a precision (how close to the parent) is common to. "M3": every node has its own. "M1": the children of
        a node share one. "M2": the children of a node share one for each feature.
    inference : {"map", "variational"}
        "map": most probable weights, with variances by a Laplace approximation; for any number of features.
        "variational": full posterior covariance of the weights of every class; for up to some hundreds of features.
    likelihood : {"softmax", "logistic"}
        "softmax": exactly one class is right. "logistic": every class is a yes or no of its own, needed for several
        labels a row.
    prior : "fisher" or (shape, rate)
        Gamma distributions of the precisions: from the Fisher information of the data, or the same for all.
    root_variance : float
        Prior variance of the weights of the root.
    prediction : {"auto", "mean", "predictive"}
        How probabilities are made: at the mean of the weights, or averaged over their posterior. "auto" is
        "predictive" for variational inference and "mean" for MAP.
    fit_intercept : bool
        Whether to learn a bias: the weight of a constant feature, with the same prior as all others.
    tol : float, optional
        When to stop: the relative change of the lower bound (variational; by default 1e-4), or that of the expected
        precisions, its root mean square (MAP; by default 0.01). A round of MAP comes much closer than the one before:
        on CLEF, 0.01 left precisions within 0.2% of those of 1e-4, and probabilities within 0.002.
    max_iter : int
        Most iterations; a `ConvergenceWarning` tells when they were not enough.
    n_jobs : int, optional
        Threads; the result does not depend on it.
    engine : None, "threads", "ray" or RayEngine
        Where the most probable weights are found: in this process, or in shards on the workers of a Ray cluster
        (extra `ray`; "ray" is one on this machine). For inference="map" with likelihood="logistic" and covariance
        "M1" or "M3". Variances, precisions and the weights of all nodes are made in this process.
    verbose : int
        1 shows progress on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function`.
    nodes_, hierarchy_, class_nodes_
        All nodes of the structure, the structure, and the nodes of the classes.
    coef_ : ndarray of shape (n_classes, n_features)
        Posterior means of the weights. Two classes have two rows.
    intercept_ : ndarray of shape (n_classes,)
    coef_std_, intercept_std_
        Posterior standard deviations, all other weights being uncertain too; with MAP and many features, given them.
    tree_ : Hierarchy
        The tree that was fitted: inner nodes first, then the classes. Classes with documents on an inner node are
        leaves below it.
    node_coef_, node_intercept_, node_coef_std_, node_intercept_std_
        The same for all nodes of `tree_`.
    precisions_ : ndarray of shape (n_tree_nodes,), or (n_tree_nodes, n_features [+ 1]) for M2
        Expected precision of every node around its parent; of the root, the prior's.
    coef_covariance_ : ndarray of shape (n_classes, n_features [+ 1], n_features [+ 1])
        Covariances of the weights of each class given its parent's, bias last: q's, where nodes are independent. The
        bound and the probabilities of a softmax use them. MAP has this and the next where features are few.
    marginal_covariance_ : ndarray of the same shape
        Posterior covariances with the uncertainty of all other nodes in them: those of `coef_std_` and of scores.
    difference_covariance_ : ndarray of shape (n_features [+ 1], n_features [+ 1]), for two classes only
        The same for the weights of the second class less those of the first.
    lower_bounds_ : ndarray, variational inference only
        Lower bound of the log evidence after each iteration.
    trace_, n_iter_, n_features_in_
        The iterations, and their number.

    Notes
    -----
    Classes without documents are not fitted: they have probability 0, and `node_weights` gives them the weights of
    the nearest node above that has documents below it.

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
        "structure": "no_validation",  # encode_targets says it better than a list of accepted types
        "covariance": [StrOptions({"M1", "M2", "M3"})],
        "inference": [StrOptions({"map", "variational"})],
        "likelihood": [StrOptions({"softmax", "logistic"})],
        "prior": [StrOptions({"fisher"}), tuple, list],
        "root_variance": [Interval(Real, 0, None, closed="neither")],
        "prediction": [StrOptions({"auto", "mean", "predictive"})],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "engine": ENGINE_PARAMETER,
        "verbose": ["verbose"],
    }

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
        n_jobs: int | None = None,
        engine: Any = None,
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
        self.n_jobs = n_jobs
        self.engine = engine
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = self.likelihood == "logistic"
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HierarchicalBayesClassifier:
        """Find the posterior of weights and precisions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of about unit variance, or rows of unit length: the prior of the root has one scale for all.
        y : one label a row; with likelihood="logistic" also a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            fit = self._fit(self._prepare(X, y, sample_weight))
        if not fit.converged:
            change, what = (
                fit.change,
                "lower bound" if self.inference == "variational" else "precisions",
            )
            warnings.warn(
                f"stopped at max_iter={self.max_iter} before the relative change of the {what} fell to "
                f"tol={self._tol:g}; it is {change:.2g}. Increase max_iter, or scale the features."
                if change > self._tol
                else f"the {what} rest, but the weights that go with them were not found to tol={self._tol:g}. Scale "
                "the features, or give a larger tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    @property
    def _tol(self) -> float:
        return _TOL[self.inference] if self.tol is None else self.tol

    def _training_engine(self) -> ThreadEngine:
        return choose_engine(self.engine, self.n_jobs)

    def _refuse_elsewhere(self) -> None:
        """Refuse what cannot be fitted in shards, before anything is."""
        splits = self.inference == "map" and self.likelihood == "logistic" and self.covariance != "M2"
        if not splits:
            option = f"inference={self.inference!r} with likelihood={self.likelihood!r}"
            advice = "use inference='map', likelihood='logistic' and covariance 'M1' or 'M3', or engine=None"
            require_shared_memory(
                self._training_engine(), f"{option} and covariance={self.covariance!r}", advice
            )

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> TreeProblem:
        """Check parameters and data, remember the labels, and state the problem."""
        self._validate_params()
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it learns from labels."
            )
        if isinstance(self.structure, LabelGraph):
            raise ValueError(
                "the structure is a LabelGraph, which has no parents: give a Hierarchy that is a tree, or use "
                "RecursiveLogisticRegression, which takes graphs."
            )
        self._refuse_elsewhere()
        X = check_features(self, X, reset=True)
        check_scale(X)
        check_consistent_length(X, y)
        targets = encode_targets(y, self.structure)
        if targets.multilabel and self.likelihood == "softmax":
            raise ValueError(
                "y holds sets of labels or an indicator, and likelihood='softmax' means exactly one class a row: "
                "give one label a row, or use likelihood='logistic'."
            )
        self._remember_targets(targets)
        self.sparse_labels_ = sp.issparse(y)
        self.tree_, tree = model_tree(targets.hierarchy, targets.class_nodes)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        X = as_csr(X) if sp.issparse(X) else np.asarray(X, np.float64)
        bias = 1.0 if self.fit_intercept else 0.0
        sharing = share_precisions(tree, self.covariance)
        root = Root(0.0, 1 / self.root_variance)
        problem = TreeProblem(
            X, targets.indicator.astype(np.float64), weight, tree, sharing, None, root, self.likelihood, bias
        )
        return problem._replace(prior=make_prior(self.prior, problem))

    def _fit(self, problem: TreeProblem) -> TreeFit | MapFit:
        """Find the posterior and keep it."""
        for name in _OPTIONAL:  # of a fit before, with other parameters
            self.__dict__.pop(name, None)
        with Progress(None, "iterations", self.verbose) as progress, self._training_engine() as engine:
            options = {"tol": self._tol, "max_iter": self.max_iter, "progress": progress}
            if self.inference == "variational":
                fit = fit_tree(problem, engine, **options)
                mean, _, covariance, gammas = fit.posterior
                self.lower_bounds_ = fit.lower_bounds
            else:
                fit = fit_partial_map(problem, engine, **options)
                mean, covariance, gammas = fit.mean, fit.marginals.given_parent, fit.gammas
        self._keep(problem, mean, fit.marginals._replace(given_parent=covariance), gammas)
        self.trace_, self.n_iter_ = fit.trace, len(fit.trace)
        return fit

    def _keep(self, problem: TreeProblem, mean: Any, marginals: Marginals, gammas: Gammas) -> None:
        """Leave the weights and the precisions."""
        d, n_nodes = problem.X.shape[1], problem.tree.n_nodes
        std = np.sqrt(marginals.variance)
        if marginals.covariance is not None:
            self.marginal_covariance_, self.coef_covariance_ = marginals.covariance, marginals.given_parent
        if marginals.contrast is not None:
            self.difference_covariance_ = marginals.contrast
        self.node_coef_, self.node_coef_std_ = np.ascontiguousarray(mean[:, :d]), std[:, :d]
        self.node_intercept_ = mean[:, d] if problem.bias else np.zeros(n_nodes)
        self.node_intercept_std_ = std[:, d] if problem.bias else np.zeros(n_nodes)
        inside = problem.sharing.group >= 0
        self.precisions_ = np.full((n_nodes, gammas.rate.shape[1]), problem.root.precision)
        self.precisions_[inside] = gammas.mean[problem.sharing.group[inside]]
        if not problem.sharing.by_weight:
            self.precisions_ = self.precisions_[:, 0]
        self.class_rows_ = np.asarray(problem.Y.T @ problem.row_weight).ravel()

    def _check_X(self, X: Any) -> Any:
        check_is_fitted(self)
        return check_features(self, X, reset=False)

    def _means(self, X: Any) -> NDArray[Any]:
        model = LinearModel(self.coef_, self.intercept_)
        return linear_scores(X, model, ThreadEngine(self.n_jobs)).astype(np.float64)

    def _scores(self, X: Any) -> NDArray[Any]:
        """Scores that predictions are made from: of the mean weights, or averaged over the posterior."""
        mean = self._means(X)
        bounded = hasattr(self, "lower_bounds_")  # what was fitted, not what is set for the next fit
        if self.prediction == "mean" or (self.prediction == "auto" and not bounded):
            return mean
        # A softmax compares classes: what is unknown of the nodes above them is common to them, and cancels.
        name = "coef_covariance_" if self.likelihood == "softmax" else "marginal_covariance_"
        variance = score_variances(X, self.coef_std_, self.intercept_std_, getattr(self, name, None))
        return predictive_logits(Scores(mean, variance), self.likelihood, bounded)

    def _class_proba(self, X: Any) -> NDArray[Any]:
        scores = self._scores(X)
        if self._multilabel:
            return expit(scores)
        logs = scores if self.likelihood == "softmax" else log_expit(scores)
        return np.exp(logs - logsumexp(logs, axis=1, keepdims=True))

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Score of every class, the largest of which is predicted; or its posterior mean and standard deviation.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        return_std : bool

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; for two classes, (n_samples,) with positive values for the second.
            What `predict_proba` is made from: with prediction="mean" the means w.x; with "predictive" the damped
            log-odds (logistic), or the logarithms of the probabilities up to a constant of the row (softmax).
            With `return_std=True` always the means of w.x.
        std : ndarray of the same shape
            Standard deviations of w.x; with `return_std=True` only.
        """
        X = self._check_X(X)
        scores = self._means(X) if return_std else self._scores(X)
        binary = len(self.classes_) == 2 and not self._multilabel
        scores = scores[:, 1] - scores[:, 0] if binary else scores
        return (scores, self._score_std(X, binary)) if return_std else scores

    def _score_std(self, X: Any, binary: bool) -> NDArray[Any]:
        covariance = getattr(self, "marginal_covariance_", None)
        if binary and covariance is not None:
            covariance = self.difference_covariance_[None]
            return np.sqrt(score_variances(X, None, None, covariance)[:, 0])
        variance = score_variances(X, self.coef_std_, self.intercept_std_, covariance)
        return np.sqrt(variance.sum(axis=1) if binary else variance)
