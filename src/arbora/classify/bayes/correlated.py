"""Correlated multinomial logit: a Bayesian softmax whose classes share the parts of their paths (CorrMNL).

Every node n below the root has a part phi_n. The weights of a class are the sum of the parts on its path (Shahbaba
and Neal 2007), so classes with common ancestors have correlated weights a priori:

    phi_n ~ N(0, I / tau_g(n)),   tau_g ~ Gamma(shape, rate),   w_k = sum_{n on the path of k} phi_n,
    p(y = k | x) = exp(w_k.x) / sum_l exp(w_l.x).

The posterior is sampled by Markov chain Monte Carlo (`correlated_sampler`), and predictions are averages over its
draws. The model is a Bayesian baseline for small data: draws of the weights are dense, and each costs about a dozen
passes over the data.
"""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.bayes.correlated_sampler import CorrelatedLogit, LogitState, make_model
from arbora.classify.estimator import NodePredictor, build_routes
from arbora.classify.training import check_labelled_rows
from arbora.core.checkpoint import Checkpoint, fingerprint
from arbora.core.chunks import require_memory
from arbora.core.estimator import all_or_nothing, draw_seed, warn_caller
from arbora.infer.mcmc.chains import ChainSchedule, mean_trace, run_chains
from arbora.infer.mcmc.diagnostics import ess_bulk, ess_tail, rhat
from arbora.structure import Hierarchy, LabelGraph

_RHAT_LIMIT = 1.05
_SCORES_PER_CHUNK = 1 << 22  # scores of rows under several draws that are in memory at a time
_NOT_PART_OF_THE_MODEL = ("n_jobs", "verbose", "checkpoint")  # parameters that do not change the result


def mean_softmax(X: Array, draws: NDArray[np.float32]) -> Array:
    """Class probabilities of rows, averaged over draws of the weights.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    draws : ndarray of shape (n_draws, n_classes, n_features)

    Returns
    -------
    ndarray of shape (n_samples, n_classes)

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.array([[[0.0], [np.log(3)]], [[np.log(3)], [0.0]]])
    >>> mean_softmax(np.array([[1.0], [0.0]]), draws)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    n_draws, n_classes, n_features = draws.shape
    total = np.zeros((len(X), n_classes))
    step = max(1, _SCORES_PER_CHUNK // max(1, len(X) * n_classes))
    for first in range(0, n_draws, step):
        some = draws[first : first + step].reshape(-1, n_features).astype(np.float64)
        total += softmax((X @ some.T).reshape(len(X), -1, n_classes), axis=2).sum(axis=1)
    return np.asarray(total / n_draws)


def path_indicator(routes: Hierarchy, class_leaves: Ints, precision: str) -> tuple[Array, Ints]:
    """Mark the nodes on the path of each class, and group the nodes that share a precision.

    The root is left out, because its part would shift all classes alike.

    Parameters
    ----------
    routes : Hierarchy
        Tree with one root.
    class_leaves : ndarray of int of shape (n_classes,)
    precision : {"family", "node"}

    Returns
    -------
    paths : ndarray of shape (n_classes, n_nodes - 1)
    group : ndarray of int of shape (n_nodes - 1,)

    Examples
    --------
    >>> tree = Hierarchy.from_edges([("top", "a"), ("top", "b"), ("a", "a1"), ("a", "a2")])
    >>> paths, group = path_indicator(tree, tree.encode(["a1", "b"]), "family")
    >>> paths.astype(int), group
    (array([[1, 0, 1, 0],
           [0, 1, 0, 0]]), array([0, 0, 1, 1]))
    """
    below = np.flatnonzero(routes.parent >= 0)
    paths = routes.ancestor_matrix[class_leaves][:, below].toarray().astype(np.float64)
    if precision == "family":
        return paths, np.unique(routes.parent[below], return_inverse=True)[1]
    return paths, np.arange(len(below))


class CorrelatedMultinomialLogit(NodePredictor, ClassifierMixin, BaseEstimator):
    """Bayesian multinomial logistic regression with parts along the paths of a tree, sampled (CorrMNL).

    Parameters
    ----------
    structure : Hierarchy, optional
        Tree whose nodes are the labels. Without one, all classes are children of a single root, and the model is
        Bayesian multinomial logistic regression.
    n_samples : int
        Number of draws of each chain that are kept, at least 4.
    n_warmup : int
        Number of first sweeps of each chain that are discarded. The sampler tunes itself during these.
    thin : int
        Number of sweeps for each draw that is kept.
    n_chains : int
        Number of independent chains. Two or more are needed to check convergence.
    precision : {"family", "node"}
        Whether the children of a node share the precision of their prior, or each node has its own.
    shape, rate : float
        Parameters of the gamma prior of the precisions. The default suits features of about unit variance. With a
        shape of at most 1 the weights of separable classes have no finite variance.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias. A larger value gives the bias a wider prior.
    n_jobs : int, optional
        Number of chains that run at the same time; it does not change the result.
    random_state : int, RandomState instance or None
    checkpoint : path, optional
        Folder that stores finished chains. An interrupted fit runs only the missing ones. The folder is removed at
        the end of the fit.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function` and `predict_proba`.
    coef_, coef_std_ : ndarray of shape (n_classes, n_features)
        Posterior mean and standard deviation of the weights of the classes.
    intercept_, intercept_std_ : ndarray of shape (n_classes,)
    draws_ : ndarray of float32 of shape (n_chains * n_samples, n_classes, n_features + 1)
        Draws of the weights, chain by chain. The last column belongs to the constant feature.
    routes_, class_leaves_
        The tree of the model (one root, without nodes that have no data) and the leaf of each class in it.
    precision_ : ndarray of shape (routes_.n_nodes,)
        Posterior mean of the precision of the part of each node; NaN for the root, which has none.
    rhat_, effective_sample_size_ : dict
        R-hat over the chains and effective sample size (the smaller of bulk and tail) for "coef", "intercept",
        "precision" (by group) and "log_joint".
    trace_ : Trace
        For each sweep: log joint density (as objective), acceptance, step size and number of steps, averaged over
        the chains.
    nodes_, hierarchy_, class_nodes_, n_features_in_
        As in `OneVsRestLogistic`.

    Notes
    -----
    The model needs one label per row, a tree and small data: X is made dense, and each sweep passes over it about a
    dozen times. `predict_proba` averages over the draws, and `predict` takes the class with the largest average.

    References
    ----------
    B. Shahbaba and R. M. Neal (2007). Improving Classification When a Class Hierarchy is Available Using a
    Hierarchy-Based Prior. Bayesian Analysis 2(1).

    Examples
    --------
    >>> from arbora.classify import CorrelatedMultinomialLogit
    >>> from arbora.structure import Hierarchy
    >>> X = [[2.0, 0.0], [1.5, 0.5], [0.0, 2.0], [0.5, 1.5], [-2.0, -2.0]]
    >>> y = ["animal/cat", "animal/cat", "animal/dog", "animal/dog", "plant"]
    >>> tree = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> model = CorrelatedMultinomialLogit(tree, random_state=0).fit(X, y)
    >>> model.predict([[3.0, -0.5], [-2.0, -1.0]])
    array(['animal/cat', 'plant'], dtype=object)
    >>> bool(model.rhat_["coef"].max() < 1.05)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "structure": "no_validation",  # checked by encode_targets, with a better message
        "n_samples": [Interval(Integral, 4, None, closed="left")],
        "n_warmup": [Interval(Integral, 1, None, closed="left")],
        "thin": [Interval(Integral, 1, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "precision": [StrOptions({"family", "node"})],
        "shape": [Interval(Real, 0, None, closed="neither")],
        "rate": [Interval(Real, 0, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "checkpoint": [str, os.PathLike, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        structure: Hierarchy | None = None,
        *,
        n_samples: int = 500,
        n_warmup: int = 200,
        thin: int = 1,
        n_chains: int = 2,
        precision: str = "family",
        shape: float = 2.0,
        rate: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.structure = structure
        self.n_samples = n_samples
        self.n_warmup = n_warmup
        self.thin = thin
        self.n_chains = n_chains
        self.precision = precision
        self.shape = shape
        self.rate = rate
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any) -> CorrelatedMultinomialLogit:
        """Sample the posterior.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label per row
            With a structure, names of its nodes.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._sample(*self._check_fit(X, y))
        self._warn_not_converged()
        return self

    def _check_fit(self, X: Any, y: Any) -> tuple[CorrelatedLogit, Ints]:
        """Check parameters and data, store the labels, and set up the model."""
        name = type(self).__name__
        if isinstance(self.structure, LabelGraph):
            raise TypeError(f"{name} needs a tree, but structure is a LabelGraph: give a Hierarchy or None.")
        X, targets = check_labelled_rows(self, X, y)
        self._remember_targets(targets)
        if targets.multilabel:
            raise ValueError(
                f"{name} needs one class per row, but y holds label sets or an indicator: give one label per row, or "
                "use a multilabel classifier (OneVsRestLogistic, TopDownSVC)."
            )
        self.routes_, self.class_leaves_ = build_routes(self.hierarchy_, self.class_nodes_)
        if not self.routes_.is_tree:
            raise ValueError(
                f"{name} needs a tree, but a node of the structure has several parents: remove edges or use "
                "RecursiveLogisticRegression, which accepts a DAG."
            )
        self._require_memory(X.shape)
        X = self._with_constant(X)
        largest = np.abs(X).max()
        if largest > np.sqrt(np.finfo(np.float64).max / X.size) / 1e6:
            raise ValueError(
                f"X holds a value as large as {largest:.2g}, whose square overflows: scale the features."
            )
        codes = targets.indicator.indices.astype(np.int64)
        paths, group = path_indicator(self.routes_, self.class_leaves_, self.precision)
        return make_model(X, codes, paths, group, self.shape, self.rate), codes

    def _sample(self, model: CorrelatedLogit, codes: Ints) -> None:
        """Run the chains and store the draws."""
        seed = draw_seed(self.random_state, resumable=self.checkpoint is not None)
        checkpoint = self._checkpoint(model.X, codes, seed)
        schedule = ChainSchedule(self.n_warmup, self.n_samples, self.thin, self.n_chains)

        def keep(state: LogitState) -> dict[str, Matrix]:
            return {"coef": (model.paths @ state.parts).astype(np.float32), "precision": state.precision}

        chains = run_chains(
            model, codes, schedule, seed, keep=keep, n_jobs=self.n_jobs, verbose=self.verbose,
            checkpoint=checkpoint,
        )  # fmt: skip
        self.trace_ = mean_trace(chains.traces)
        self._summarise(chains.draws["coef"], chains.draws["precision"], model.group, chains.log_joint)

    def _require_memory(self, shape: tuple[int, int]) -> None:
        """Refuse data whose draws, scores or bases do not fit into memory."""
        n_samples, n_features = shape[0], shape[1] + 1
        n_classes, n_parts = len(self.classes_), self.routes_.n_nodes - 1
        draws = 4 * self.n_chains * self.n_samples * n_classes * n_features
        summary = 12 * draws  # diagnostics: ranks, normal scores and transforms in double precision
        scores = 8 * n_samples * (n_features + 3 * n_classes)
        dense = 8 * n_samples * n_features
        bases = 8 * (3 * n_features**2 + 6 * n_parts * (n_features + n_classes))
        require_memory(
            draws + max(summary, dense + self.n_chains * (scores + bases)),
            f"Sampling {self.n_chains} chains of {self.n_samples} draws of {n_classes} x {n_features} weights with "
            f"{n_samples} rows",
            "This model is for small data: use fewer draws or features (TruncatedSVD), or use "
            "RecursiveLogisticRegression.",
        )

    def _with_constant(self, X: Any) -> Array:
        """Return X as a dense array with the constant feature as its last column."""
        value = self.intercept_scaling if self.fit_intercept else 0.0
        dense = X.toarray() if hasattr(X, "toarray") else X
        return np.column_stack([dense, np.full(len(dense), value)]).astype(np.float64)

    def _checkpoint(self, X: Array, codes: Ints, seed: int) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        params = {key: value for key, value in self.get_params().items() if key not in _NOT_PART_OF_THE_MODEL}
        params["random_state"] = seed
        return Checkpoint(self.checkpoint, fingerprint(type(self).__name__, params, X, codes))

    def _summarise(self, coef: NDArray[np.float32], precision: Array, group: Ints, log_joint: Array) -> None:
        """Store means, standard deviations and diagnostics of draws of shape (n_chains, n_samples, ...)."""
        self.draws_ = coef.reshape(-1, *coef.shape[2:])
        scale = self.intercept_scaling if self.fit_intercept else 0.0
        mean = self.draws_.mean(axis=0, dtype=np.float64)
        deviation = self.draws_.std(axis=0, dtype=np.float64)
        self.coef_, self.intercept_ = mean[:, :-1], mean[:, -1] * scale
        self.coef_std_, self.intercept_std_ = deviation[:, :-1], deviation[:, -1] * scale
        self.precision_ = np.full(self.routes_.n_nodes, np.nan)
        self.precision_[self.routes_.parent >= 0] = precision.mean(axis=(0, 1))[group]
        quantities: dict[str, Matrix] = {
            "coef": coef[..., :-1],
            "intercept": coef[..., -1],
            "precision": precision,
            "log_joint": log_joint,
        }
        self.rhat_ = {name: rhat(draws) for name, draws in quantities.items()}
        self.effective_sample_size_ = {
            name: np.minimum(ess_bulk(draws), ess_tail(draws)) for name, draws in quantities.items()
        }

    def _warn_not_converged(self) -> None:
        worst = max(self.rhat_, key=lambda name: self.rhat_[name].max())
        if self.rhat_[worst].max() > _RHAT_LIMIT:
            smallest = min(size.min() for size in self.effective_sample_size_.values())
            warn_caller(
                f"the chains have not converged: R-hat of {worst} is up to {self.rhat_[worst].max():.3g} (above "
                f"{_RHAT_LIMIT}), and the smallest effective sample size is {smallest:.0f}. Increase n_warmup and "
                "n_samples, or scale the features.",
                ConvergenceWarning,
            )

    def _class_proba(self, X: Any) -> Array:
        return mean_softmax(self._with_constant(X), self.draws_)

    def _scores(self, X: Any) -> Array:
        return np.log(np.maximum(self._class_proba(X), np.finfo(np.float64).tiny))

    def decision_function(self, X: Any) -> Array:
        """Log of the posterior predictive probability of every class.

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
