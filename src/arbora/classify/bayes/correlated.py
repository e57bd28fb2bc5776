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

from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import TINY, Array, Ints, Matrix
from arbora.classify.bayes.correlated_sampler import LogitState, make_model
from arbora.classify.estimator import NodePredictor, build_routes
from arbora.classify.training import check_labelled_rows
from arbora.core.checkpoint import open_checkpoint
from arbora.core.chunks import CHUNK_ENTRIES, require_memory
from arbora.core.estimator import RowEstimator, all_or_nothing, draw_seed, read_options, warn_caller
from arbora.core.running import running_checkpoint
from arbora.infer.mcmc.chains import SAMPLING_CONSTRAINTS, Chains, ChainSchedule, mean_trace, run_chains
from arbora.infer.mcmc.diagnostics import ess_bulk, ess_tail, rhat
from arbora.structure import Hierarchy, LabelGraph

_RHAT_LIMIT = 1.05
_MAX_VALUE = 1e-6 * float(np.sqrt(np.finfo(np.float64).max))  # of a feature, times the root of their number


class Sampling(NamedTuple):
    """Options of the sampler, those of a `ChainSchedule`."""

    n_warmup: int = 200
    n_samples: int = 500
    thin: int = 1
    n_chains: int = 2


# Four draws are the least for R-hat; the sampler tunes itself in the warm-up.
_SAMPLING_CONSTRAINTS: dict[str, Any] = {
    **SAMPLING_CONSTRAINTS,
    "n_samples": [Interval(Integral, 4, None, closed="left")],
    "n_warmup": [Interval(Integral, 1, None, closed="left")],
}


class PrecisionPrior(NamedTuple):
    """Gamma prior of the precisions. With a shape of at most 1, weights of separable classes have no variance."""

    shape: float = 2.0
    rate: float = 1.0


_PRIOR_CONSTRAINTS = {name: [Interval(Real, 0, None, closed="neither")] for name in PrecisionPrior._fields}


class PosteriorMean(NamedTuple):
    """Mean and standard deviation of the weights and biases over all draws, and the mean precision of each node."""

    coef: Array
    intercept: Array
    coef_std: Array
    intercept_std: Array
    precision: Array  # NaN for the root


class Diagnostics(NamedTuple):
    """R-hat and effective sample size of each quantity."""

    rhat: dict[str, Array]
    effective_sample_size: dict[str, Array]


def mean_softmax(X: Array, draws: NDArray[np.float32]) -> Array:
    """Class probabilities (n_rows, n_classes), averaged over weights (n_draws, n_classes, n_features)."""
    n_draws, n_classes, n_features = draws.shape
    total = np.zeros((len(X), n_classes))
    step = max(1, CHUNK_ENTRIES // max(1, len(X) * n_classes))
    for first in range(0, n_draws, step):
        some = draws[first : first + step].reshape(-1, n_features).astype(np.float64)
        total += softmax((X @ some.T).reshape(len(X), -1, n_classes), axis=2).sum(axis=1)
    return np.asarray(total / n_draws)


def path_indicator(routes: Hierarchy, class_leaves: Ints, precision: str) -> tuple[Array, Ints]:
    """Mark the nodes on the path of each class, and group the nodes that share a precision.

    Returns the marks (n_classes, n_nodes - 1) and the group of each node. The root is left out, because its part
    would shift all classes alike.

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


def require_memory_of_chains(
    shape: tuple[int, int], n_classes: int, n_parts: int, sampling: Sampling
) -> None:
    """Refuse data of `shape` (n_samples, n_features) whose draws, scores or bases do not fit into memory."""
    (n_rows, n_features), n_chains = (shape[0], shape[1] + 1), sampling.n_chains
    draws = 4 * n_chains * sampling.n_samples * n_classes * n_features
    summary = 12 * draws  # diagnostics: ranks, normal scores and transforms in double precision
    scores = 8 * n_rows * (n_features + 3 * n_classes)
    dense = 8 * n_rows * n_features
    bases = 8 * (3 * n_features**2 + 6 * n_parts * (n_features + n_classes))
    require_memory(
        draws + max(summary, dense + n_chains * (scores + bases)),
        f"Sampling {n_chains} chains of {sampling.n_samples} draws of {n_classes} x {n_features} weights with "
        f"{n_rows} rows",
        "This model is for small data: use fewer draws or features (TruncatedSVD), or use "
        "RecursiveLogisticRegression.",
    )


def with_constant(X: Any, value: float) -> Array:
    """Return X as a dense array with a constant feature as its last column."""
    dense = X.toarray() if hasattr(X, "toarray") else X
    return np.column_stack([dense, np.full(len(dense), value)]).astype(np.float64)


def check_size(X: Array) -> None:
    """Refuse values whose squares overflow."""
    largest = np.abs(X).max()
    if largest > _MAX_VALUE / np.sqrt(X.size):
        raise ValueError(
            f"X holds a value as large as {largest:.2g}, whose square overflows: scale the features."
        )


def weights_of_state(paths: Array, state: LogitState) -> dict[str, Matrix]:
    """Return what is kept of a state: the weights of the classes and the precisions."""
    return {"coef": (paths @ state.parts).astype(np.float32), "precision": state.precision}


def average(chains: Chains, routes: Hierarchy, group: Ints, constant: float) -> PosteriorMean:
    """Average over the draws of all chains."""
    coef, precision = chains.draws["coef"], chains.draws["precision"]
    draws = coef.reshape(-1, *coef.shape[2:])
    mean, deviation = draws.mean(axis=0, dtype=np.float64), draws.std(axis=0, dtype=np.float64)
    of_nodes = np.full(routes.n_nodes, np.nan)
    of_nodes[routes.parent >= 0] = precision.mean(axis=(0, 1))[group]
    return PosteriorMean(
        mean[:, :-1], mean[:, -1] * constant, deviation[:, :-1], deviation[:, -1] * constant, of_nodes
    )


def diagnose(chains: Chains) -> Diagnostics:
    """Compare the chains with each other."""
    coef = chains.draws["coef"]
    quantities: dict[str, Matrix] = {
        "coef": coef[..., :-1],
        "intercept": coef[..., -1],
        "precision": chains.draws["precision"],
        "log_joint": chains.log_joint,
    }
    sizes = {name: np.minimum(ess_bulk(draws), ess_tail(draws)) for name, draws in quantities.items()}
    return Diagnostics({name: rhat(draws) for name, draws in quantities.items()}, sizes)


def warn_not_converged(diagnostics: Diagnostics) -> None:
    """Warn if R-hat shows that the chains differ."""
    worst = max(diagnostics.rhat, key=lambda name: diagnostics.rhat[name].max())
    if diagnostics.rhat[worst].max() > _RHAT_LIMIT:
        smallest = min(size.min() for size in diagnostics.effective_sample_size.values())
        warn_caller(
            f"the chains have not converged: R-hat of {worst} is up to {diagnostics.rhat[worst].max():.3g} (above "
            f"{_RHAT_LIMIT}), and the smallest effective sample size is {smallest:.0f}. Increase n_warmup and "
            "n_samples in sampling, or scale the features.",
            ConvergenceWarning,
        )


class CorrelatedMultinomialLogit(RowEstimator, NodePredictor, ClassifierMixin, BaseEstimator):
    """Bayesian multinomial logistic regression with parts along the paths of a tree, sampled (CorrMNL).

    Parameters
    ----------
    structure : Hierarchy, optional
        Tree whose nodes are the labels. Without one, all classes are children of a single root, and the model is
        Bayesian multinomial logistic regression.
    sampling : dict, optional
        Options of the sampler: n_samples=500 draws of each chain that are kept, at least 4; n_warmup=200 first sweeps
        of each chain, which are discarded and in which the sampler tunes itself; thin=1 sweeps for each draw that is
        kept; n_chains=2 independent chains. Two or more chains are needed to check convergence.
    precision : {"family", "node"}
        Whether the children of a node share the precision of their prior, or each node has its own.
    prior : dict, optional
        Gamma prior of the precisions: shape=2.0, rate=1.0. The default suits features of about unit variance. With a
        shape of at most 1 the weights of separable classes have no finite variance.
    fit_intercept : bool
        Whether to learn a bias: the weight of a constant feature, with the same prior as the other weights.
    n_jobs : int, optional
        Number of chains that run at the same time; it does not change the result.
    random_state : int, RandomState instance or None
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

    ``with arbora.running(checkpoint=folder):`` stores finished chains. An interrupted fit runs only the missing ones.

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
        "sampling": [dict, None],
        "precision": [StrOptions({"family", "node"})],
        "prior": [dict, None],
        "fit_intercept": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        structure: Hierarchy | None = None,
        *,
        sampling: dict[str, Any] | None = None,
        precision: str = "family",
        prior: dict[str, float] | None = None,
        fit_intercept: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.structure = structure
        self.sampling = sampling
        self.precision = precision
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

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
        name = type(self).__name__
        if isinstance(self.structure, LabelGraph):
            raise TypeError(f"{name} needs a tree, but structure is a LabelGraph: give a Hierarchy or None.")
        with all_or_nothing(self):
            X, targets = check_labelled_rows(self, X, y)
            if targets.multilabel:
                raise ValueError(
                    f"{name} needs one class per row, but y holds label sets or an indicator: give one label per "
                    "row, or use a multilabel classifier (OneVsRestLogistic, TopDownSVC)."
                )
            routes, leaves = build_routes(targets.hierarchy, targets.class_nodes)
            if not routes.is_tree:
                raise ValueError(
                    f"{name} needs a tree, but a node of the structure has several parents: remove edges or use "
                    "RecursiveLogisticRegression, which accepts a DAG."
                )
            sampling = read_options("sampling", self.sampling, Sampling, _SAMPLING_CONSTRAINTS)
            prior = read_options("prior", self.prior, PrecisionPrior, _PRIOR_CONSTRAINTS)
            require_memory_of_chains(X.shape, len(leaves), routes.n_nodes - 1, sampling)

            rows, codes = with_constant(X, self.fit_intercept), targets.indicator.indices.astype(np.int64)
            check_size(rows)
            paths, group = path_indicator(routes, leaves, self.precision)
            model = make_model(rows, codes, paths, group, *prior)
            seed = draw_seed(self.random_state, resumable=running_checkpoint() is not None)
            checkpoint = open_checkpoint(self, rows, codes, seed=seed)
            chains = run_chains(
                model, codes, ChainSchedule(*sampling), seed, keep=partial(weights_of_state, paths),
                n_jobs=self.n_jobs, verbose=self.verbose, checkpoint=checkpoint,
            )  # fmt: skip
            mean = average(chains, routes, group, float(self.fit_intercept))
            diagnostics = diagnose(chains)

            self._remember_targets(targets)
            self.routes_, self.class_leaves_ = routes, leaves
            draws = chains.draws["coef"]
            self.draws_, self.trace_ = draws.reshape(-1, *draws.shape[2:]), mean_trace(chains.traces)
            self.coef_, self.intercept_, self.coef_std_, self.intercept_std_, self.precision_ = mean
            self.rhat_, self.effective_sample_size_ = diagnostics
        warn_not_converged(diagnostics)
        return self

    def _class_proba(self, X: Any) -> Array:
        return mean_softmax(with_constant(X, self.fit_intercept), self.draws_)

    def _scores(self, X: Any) -> Array:
        return np.log(np.maximum(self._class_proba(X), TINY))

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
