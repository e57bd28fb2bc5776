r"""Discriminative clustering: clusters that are local in the features and tell as much as possible about a label.

Klami, *Regularized Discriminative Clustering* (2003). Rows z (standardised features) with labels c are divided into
cells. For counts :math:`n_{ji}` of label i in cell j, the parameters of the label distributions are integrated out
with a Dirichlet prior :math:`n^0`, and the partition is found by its log posterior (4.11),

.. math:: \sum_{ij} \log\Gamma(n^0 + n_{ji}) - \sum_j \log\Gamma(N^0 + N_j), \qquad N^0 = n^0 \, n_{classes},

which for many rows is the mutual information of cells and labels, times the number of rows, plus a constant. Gradient
methods smooth the counts (4.12): :math:`n_{ji} = \sum_{z: c = i} y_j(z)` with memberships y.

- Linear cells (the default): :math:`y = softmax(W z + b)`. They have no width to choose, and no cluster drifts
  away from the data. With at most n_features + 1 clusters they are the Voronoi cells of some prototypes.
- Prototypes (the thesis): :math:`y_j \propto \exp(-||z - m_j||^2 / \sigma^2)`.

Errata of the thesis, corrected here: (4.13), (A.2) and (B.4) lack a factor 2; across numbers of clusters (4.11) needs
the normaliser of the Dirichlet distributions (`log_evidence`). The equations are in `cost` (cost and
gradient, regularisers), `fitting` (optimisers, split-merge), `starts` and `choice` (evidence).
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from arbora.arrays import Ints, Matrix
from arbora.core.estimator import (
    Explorable,
    RowEstimator,
    all_or_nothing,
    draw_seed,
    read_options,
    require_y,
    warn_caller,
)
from arbora.core.monitor import Progress
from arbora.core.validation import check_features
from arbora.engine import ThreadEngine
from arbora.expand.discriminative.choice import choose
from arbora.expand.discriminative.cost import (
    Rows,
    Scaling,
    cells_of,
    fit_scaling,
    prototypes_of,
    standardised,
    totals,
)
from arbora.expand.discriminative.fitting import (
    GRADIENT_METHODS,
    Options,
    Prior,
    Solution,
    fit_cells,
    without_empty,
)
from arbora.expand.discriminative.labels import Labels, read_labels
from arbora.expand.discriminative.reports import ClusterReports
from arbora.expand.groups import LabelledClusterer

_STARTS, _ITERATIONS = 10, 300  # of gradient methods
_MANY_LABELS, _FEW_ROWS = 20, 5  # more labels, with fewer rows each on average, look like a measurement
_PRIOR_CONSTRAINTS = {name: [Interval(Real, 0, None, closed="neither")] for name in Prior._fields}


class DiscriminativeClustering(RowEstimator, LabelledClusterer, ClusterReports, Explorable, BaseEstimator):
    """Clusters of rows that explain a label.

    Parameters
    ----------
    n_clusters : int, "auto" or sequence of int
        A sequence: the candidate with the highest evidence on held-out rows; clusters without rows are dropped.
        "auto" tries 1, 2, ... up to 20.
    cells : {"linear", "prototype"}
        Shape of the clusters: cells of linear functions, or of the nearest prototype.
    optimizer : {"lbfgs", "cg", "annealing", "stochastic"}
        "annealing" is for prototypes. "stochastic" takes single rows for prototypes, and mini-batches for linear
        cells; its memory does not depend on the number of rows.
    regularizer : {"l2", "entropy", "vq", "mog"} or None
        "l2" penalises the weights, "entropy" clusters of unequal size, "vq" the squared distances within clusters,
        "mog" the negative log-likelihood of a mixture of Gaussians. "vq" and "mog" also use rows without labels.
    alpha : float, "auto" or "cv"
        Strength of the regulariser. For "vq" and "mog" it is divided by the distortion of k-means, so that it has no
        unit. "auto" is .3 for "l2" with up to 50 features and a choice among .3, 3 and 30 on held-out rows above,
        .1 for "entropy" and "vq", .3 for "mog". "cv" chooses from a wider grid on held-out rows.
    prior : dict, optional
        ``"labels"``, default 1: Dirichlet prior of the labels in a cluster, as rows of each label that are added to
        each cluster. ``"smoothing"``, default .09: squared width of the memberships of prototypes, in units of the
        distortion of k-means.
    scale : {"standard"} or None
        "standard" divides each feature by its deviation.
    init : {"auto", "posterior", "vq", "random"}
        Start: clusters of estimated label distributions, k-means, or random rows. "auto" is "posterior" for linear
        cells and "vq" for prototypes.
    n_init : int, optional
        Number of starts; the best objective wins. Default: 10 for gradient methods, which make short runs on at most
        5,000 rows from all starts and go on from the best three; otherwise 1.
    tol : float
        Gain of the objective per row at which gradient methods stop. Linear cells then leave local optima by merging
        two clusters and splitting a third.
    max_iter : int, optional
        Most iterations of gradient methods (default 300), or the steps of "annealing" (default 5,000 for each
        cluster; the thesis has 100,000) and "stochastic" (rows; default 100,000 for each cluster with prototypes, at
        least two passes over the rows with linear cells).
    n_jobs : int, optional
        Threads over starts and folds. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row.
    n_clusters_ : int
    classes_ : ndarray, or list of ndarrays for several label columns
        Labels of `y`.
    coef_ : ndarray of shape (n_clusters, n_features)
        Weights of the standardised features; the cluster of a row has the largest score.
    intercept_ : ndarray of shape (n_clusters,)
    mean_, scale_ : ndarray of shape (n_features,)
        Of the features. The scale of a constant feature is infinite: it is ignored.
    prototypes_ : ndarray of shape (n_clusters, n_features) or None
        Points in the original units whose Voronoi cells (of standardised features) are the clusters. None for linear
        cells with more than n_features + 1 clusters.
    label_counts_ : ndarray of shape (n_clusters, n_labels)
        Training rows by cluster and label; the labels of several columns stand side by side.
    label_proba_ : ndarray of shape (n_clusters, n_labels)
        Posterior mean of p(label | cluster).
    alpha_ : float
    prior_ : dict
        With all options.
    cv_results_ : dict
        Held-out evidence per row of the candidates of "cv" and "auto".
    start_objectives_ : list of float
        Objectives of all starts.
    trace_ : Trace
        Of the last run of the optimiser.
    n_iter_, n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from arbora.expand import DiscriminativeClustering
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) * [1, 5]  # only the first feature matters
    >>> y = np.where(X[:, 0] > 0, "buys", "leaves")
    >>> model = DiscriminativeClustering(2, random_state=0).fit(X, y)
    >>> print(model.contingency_table(X, y).to_table())
    cluster  rows  buys  leaves
    -------  ----  ----  ------
    0         164     0     164
    1         136   136       0
    """

    _tags: ClassVar[dict[str, Any]] = {"target_tags.required": True}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_clusters": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), "array-like"],
        "cells": [StrOptions({"linear", "prototype"})],
        "optimizer": [StrOptions({"lbfgs", "cg", "annealing", "stochastic"})],
        "regularizer": [StrOptions({"l2", "entropy", "vq", "mog"}), None],
        "alpha": [StrOptions({"auto", "cv"}), Interval(Real, 0, None, closed="left")],
        "prior": [dict, None],
        "scale": [StrOptions({"standard"}), None],
        "init": [StrOptions({"auto", "posterior", "vq", "random"})],
        "n_init": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters: Any = 5,
        *,
        cells: str = "linear",
        optimizer: str = "lbfgs",
        regularizer: str | None = "l2",
        alpha: Any = "auto",
        prior: dict[str, float] | None = None,
        scale: str | None = "standard",
        init: str = "auto",
        n_init: int | None = None,
        tol: float = 1e-5,
        max_iter: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.cells = cells
        self.optimizer = optimizer
        self.regularizer = regularizer
        self.alpha = alpha
        self.prior = prior
        self.scale = scale
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Find clusters.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            A memory-mapped array is read in blocks and never copied.
        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            Labels to explain, as integers or strings. -1, None and NaN mark rows without a label. With several
            columns the clusters explain all of them.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._validate_params()
            require_y(self, y, "give the labels to explain")
            options = self._options()
            X = check_features(self, X, reset=True)
            labels = read_labels(y, X.shape[0], type(self).__name__)
            self._refuse_pairings(labels)
            scaling = fit_scaling(X, self.scale)
            rows = standardised(X, scaling)
            with (
                warnings.catch_warnings(),
                ThreadEngine(self.n_jobs) as engine,
                Progress(None, type(self).__name__, self.verbose) as progress,
            ):
                warnings.simplefilter("ignore", ConvergenceWarning)  # of starts, which are short on purpose
                # Numbers and strengths that are to be chosen: trains each candidate on 3 folds (1 for "auto").
                choice = choose(rows, labels, self.n_clusters, self.alpha, options, engine)
                solution = fit_cells(rows, labels, choice.n_clusters, choice.alpha, options, engine, progress)
            if choice.is_chosen:
                solution = without_empty(solution, rows)
            self.alpha_, self.prior_ = choice.alpha, options.prior._asdict()
            self.__dict__.pop("cv_results_", None)  # of an earlier fit
            if choice.results:
                self.cv_results_ = choice.results
            self._assign(solution, rows, labels, scaling)
        self._warn(solution, labels, options, is_chosen=choice.is_chosen)
        return self

    def _refuse_pairings(self, labels: Labels) -> None:
        """Refuse combinations that do not exist, naming one that does."""
        linear, optimizer, regularizer = self.cells == "linear", self.optimizer, self.regularizer
        if linear and optimizer == "annealing":
            raise ValueError("optimizer='annealing' moves prototypes: set cells='prototype', or use 'lbfgs'.")
        if optimizer == "annealing" and regularizer == "l2":
            raise ValueError(
                "optimizer='annealing' has the regularizers 'entropy', 'vq', 'mog' and None, not 'l2'."
            )
        if optimizer == "stochastic" and not linear and regularizer is not None:
            raise ValueError("optimizer='stochastic' of prototypes has no regularizer: set regularizer=None.")
        if optimizer == "stochastic" and linear and regularizer in ("vq", "mog"):
            raise ValueError(
                f"optimizer='stochastic' has no regularizer={regularizer!r}: use 'l2', 'entropy' or None."
            )
        if optimizer == "stochastic" and not linear and len(labels.classes) > 1:
            raise ValueError("optimizer='stochastic' of prototypes takes one label column: use 'lbfgs'.")
        n_labelled = int(labels.labelled.sum())
        n_needed = int(self.n_clusters) if isinstance(self.n_clusters, Integral) else 2
        if n_labelled < n_needed:
            raise ValueError(
                f"X has {n_labelled} sample{'s' * (n_labelled != 1)} with a label, fewer than n_clusters="
                f"{self.n_clusters}: ask for fewer clusters, or label more rows."
            )

    def _options(self) -> Options:
        """Read the parameters of a fit; "auto" and None become numbers and names."""
        gradient = self.optimizer in GRADIENT_METHODS
        init = ("posterior" if self.cells == "linear" else "vq") if self.init == "auto" else self.init
        n_init = self.n_init or (_STARTS if gradient else 1)
        max_iter = self.max_iter or (_ITERATIONS if gradient else None)
        prior = read_options("prior", self.prior, Prior, _PRIOR_CONSTRAINTS)
        seed = draw_seed(self.random_state)
        return Options(
            self.cells, self.optimizer, self.regularizer, init, n_init, True, prior, self.tol, max_iter, seed
        )

    def _assign(self, solution: Solution, rows: Rows, labels: Labels, scaling: Scaling) -> None:
        with np.errstate(divide="ignore"):
            self.mean_, self.scale_ = scaling.mean, 1 / scaling.inverse
        self.coef_, self.intercept_, self.n_clusters_ = solution.W, solution.b, len(solution.W)
        self.prototypes_ = None
        M = solution.prototypes
        if M is None and len(solution.W) <= rows.n_features + 1:
            M = prototypes_of(solution.W, solution.b, 1.0)
        if M is not None:
            back = np.where(scaling.inverse > 0, self.scale_, 0.0)
            self.prototypes_ = M * back + self.mean_
        self.labels_, counts = cells_of(rows, solution.W, solution.b, labels)
        self.classes_ = labels.classes[0] if len(labels.classes) == 1 else labels.classes
        self.label_counts_ = counts.T
        size = totals(counts, labels.offsets)[labels.variable]
        n0 = self.prior_["labels"] * np.diff(labels.offsets)[labels.variable]
        self.label_proba_ = ((counts + self.prior_["labels"]) / (size + n0[:, None])).T
        self.trace_, self.n_iter_ = solution.monitor.trace, solution.monitor.n_iter
        self.start_objectives_ = [float(value) for value in solution.starts]

    def _warn(self, solution: Solution, labels: Labels, options: Options, *, is_chosen: bool) -> None:
        n_classes = max(len(names) for names in labels.classes)
        if n_classes > _MANY_LABELS and n_classes * _FEW_ROWS > int(labels.labelled.sum()):
            warn_caller(
                f"y has {n_classes} labels, fewer than {_FEW_ROWS} rows for each. If y is a measurement, bin it "
                "first, for example with numpy.digitize."
            )
        if not solution.monitor.converged:
            warn_caller(
                f"{type(self).__name__} stopped at max_iter={options.max_iter} before the gain per row fell below "
                f"tol={self.tol:g}. Increase max_iter or tol, or regularise more.",
                ConvergenceWarning,
            )
        if is_chosen and self.n_clusters_ == 1:
            warn_caller(
                "no number of clusters tells more about held-out labels than chance: n_clusters_ is 1. The features "
                "may not be related to the labels; set n_clusters to find clusters anyway."
            )

    def _rows(self, X: Any) -> tuple[Rows, Any]:
        """Rows of the model, and the checked X."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False, squares=np.float64)
        return standardised(X, Scaling(self.mean_, 1 / self.scale_)), X

    def predict(self, X: Any) -> Ints:
        """Cluster of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of int of shape (n_samples,)
        """
        return cells_of(self._rows(X)[0], self.coef_, self.intercept_)[0]

    def predict_proba(self, X: Any) -> Matrix:
        """Soft memberships of the clusters, as in the smoothed cost.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
        """
        rows = self._rows(X)[0]
        parts = [softmax(rows.scores(block, self.coef_, self.intercept_), axis=1) for block in rows.blocks()]
        return np.concatenate(parts)

    def predict_label_proba(self, X: Any) -> Any:
        """Probabilities of the labels: those of the cluster of each row, with the Dirichlet prior.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_labels), or a list of them for several label columns
            Columns in the order of `classes_`.
        """
        proba = self.label_proba_[self.predict(X)]
        if not isinstance(self.classes_, list):
            return proba
        ends = np.cumsum([len(names) for names in self.classes_])[:-1]
        return np.split(proba, ends, axis=1)
