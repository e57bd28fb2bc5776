"""Hierarchical support vector machine: one large-margin choice among all classes, each scored along its path.

Every node a of the structure has weights v_a, and a class is scored by the sum over its node and all ancestors
(Cai and Hofmann 2004; Tsochantaridis et al. 2005),

    f_y(x) = sum_{a above or at y} v_a.x,
    min_V  1/2 sum_a ||v_a||^2 + C sum_i max_y [D(y_i, y) + f_y(x_i) - f_{y_i}(x_i)],

so that related classes share weights, and the margin of a mistake grows with its distance D in the structure: half
the number of edges between the classes (siblings: 1), or 1 for every mistake (`margin="zero_one"`). In a DAG the
ancestors of a class are a set, and D is half the number of ancestors that two classes do not share. If all classes
are children of one root, this is the multiclass machine of Crammer and Singer.

The dual is solved row by row (`kernels.linear.path_margin`), as Keerthi et al. (2008) do for the flat machine: each
visit searches all classes for the worst violator and moves multipliers among the few classes that have any. The
duality gap is the certificate. Two nodes with the same classes below them have the same weights at every point of the
dual and are stored once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from arbora.arrays import TINY, Ints, Matrix
from arbora.classify.decisions import learn_decisions
from arbora.classify.estimator import LINEAR_CONSTRAINTS, LinearPredictor, build_routes
from arbora.classify.linear import LinearModel, linear_scores, single_precision, warn_open_gap
from arbora.classify.training import Training, check_training, drop_weightless_rows, refuse_label_sets
from arbora.core.chunks import require_memory
from arbora.core.estimator import all_or_nothing
from arbora.core.monitor import Progress
from arbora.engine import ThreadEngine
from arbora.infer.linear.path_margin import FIRST_CAPACITY, PathSolution, solve_paths
from arbora.infer.linear.rows import prepare_rows
from arbora.kernels.linear.path_margin import Choices
from arbora.structure import Hierarchy


def shared_paths(routes: Hierarchy, class_leaves: Ints) -> sp.csr_array:
    """P (n_classes x n_parts): P P' counts the nodes that two classes share, apart from those above all classes.

    A node above all classes changes no choice and is left out. A chain of nodes with the same classes below is one
    part, whose entry is the square root of the number of nodes.
    """
    closure = sp.csr_array(routes.ancestor_matrix[class_leaves].astype(np.float64))
    n_below = np.bincount(closure.indices, minlength=routes.n_nodes)
    parent, child = routes.edges.T
    same = n_below[parent] == n_below[child]  # the classes below a child are below its parent too
    links = sp.coo_array((np.ones(same.sum()), (parent[same], child[same])), shape=(routes.n_nodes,) * 2)
    _, part = sp.csgraph.connected_components(links, directed=False)
    separates = (n_below > 0) & (n_below < len(class_leaves))
    _, column = np.unique(part[separates], return_inverse=True)
    merge = sp.csr_array(
        (np.ones(column.size), (np.flatnonzero(separates), column)),
        shape=(routes.n_nodes, int(column.max(initial=-1)) + 1),
    )
    P = sp.csr_array(closure @ merge)
    P.data = np.sqrt(P.data)
    P.sort_indices()
    return P


def train_paths(
    training: Training, P: sp.csr_array, margin: str, verbose: int = 0
) -> tuple[LinearModel, PathSolution]:
    """Train on one label per row; return the weights of the classes."""
    options, n_classes = training.options, P.shape[0]
    check_memory(training.X.shape, P, options.dtype)
    rows = prepare_rows(training.X, options.dtype, options.bias)
    ends = np.zeros(rows.n_samples, np.int32), np.full(rows.n_samples, n_classes, np.int32)
    right = training.positives.indices.astype(np.int32)
    choices = Choices(np.arange(rows.n_samples + 1), right, *ends, training.row_cost.astype(rows.dtype))
    mu, unit = (1.0, 0.0) if margin == "distance" else (0.0, 1.0)
    with Progress(None, "sweeps", verbose) as progress:
        solution = solve_paths(
            rows, P, choices, mu=mu, unit=unit, tol=options.tol, max_iter=options.max_iter,
            seed=options.seed, progress=progress,
        )  # fmt: skip
    weights = solution.weights @ P.T.astype(rows.dtype)
    weights = np.ascontiguousarray(weights)
    return LinearModel(weights[:-1].T, weights[-1] * rows.bias), solution


def check_memory(shape: tuple[int, int], P: sp.csr_array, dtype: Any) -> None:
    """Refuse a fit whose weights do not fit in memory."""
    n_samples, n_features = shape
    size = np.dtype(dtype).itemsize
    weights = (n_features + 1) * (2 * P.shape[1] + P.shape[0]) * size
    lists = 4 * n_samples * FIRST_CAPACITY * (size + 4)
    require_memory(
        weights + lists,
        f"Training {P.shape[0]} classes with {P.shape[1]} parts on {n_samples} rows with {n_features} features "
        f"({np.dtype(dtype).name})",
        f"Use {single_precision(dtype)}fewer features (for text: a larger min_df), or TopDownSVC, whose weights are "
        "sparse.",
    )


class HierarchicalSVM(LinearPredictor, ClassifierMixin, BaseEstimator):
    """Path-dependent support vector machine with margins scaled by the distance in the structure.

    Parameters
    ----------
    C : float
        Cost of a unit of loss. A larger value fits the training data more closely.
    margin : {"distance", "zero_one"}
        Required margin over a wrong class: half the number of edges between it and the right class, or 1.
    structure : Hierarchy, optional
        Tree or DAG; the labels are names of its nodes. Without one, the model is the multiclass machine of Crammer
        and Singer.
    calibration : "holdout", int or None
        How scores become probabilities. "holdout" learns the scale on a fifth of the rows, with a coarse model of the
        others; an integer learns it on that many folds (slower, more precise); None sets it to 1.
    n_jobs : int, optional
        Number of threads for scores; training uses one. The result does not depend on it.
    tol, max_iter, fit_intercept, random_state, verbose
        As in `OneVsRestSVC`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        Weights of the classes: sums of the weights of the nodes on their paths.
    intercept_ : ndarray of shape (n_classes,)
    classes_, nodes_, hierarchy_, class_nodes_, duality_gap_, trace_, calibration_, n_iter_, n_features_in_
        As in `OneVsRestSVC`.

    Notes
    -----
    Documents on an internal node form a leaf under that node, as in `TopDownSVC`. One label per row only.

    Examples
    --------
    >>> from arbora.classify import HierarchicalSVM
    >>> from arbora.structure import Hierarchy
    >>> X = [[2.0, 0.0], [1.5, 0.5], [0.0, 2.0], [0.5, 1.5], [-2.0, -2.0]]
    >>> y = ["animal/cat", "animal/cat", "animal/dog", "animal/dog", "plant"]
    >>> tree = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> model = HierarchicalSVM(structure=tree, random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.2], [-1.0, -1.0]])
    array(['animal/cat', 'plant'], dtype=object)
    >>> model.duality_gap_ <= model.tol
    True
    """

    _tags: ClassVar[Mapping[str, Any]] = {"classifier_tags.multi_label": False}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "margin": [StrOptions({"distance", "zero_one"})],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        margin: str = "distance",
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
        self.margin = margin
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HierarchicalSVM:
        """Train all nodes jointly.

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
            problem = drop_weightless_rows(rows).with_cost(self.C)
            P = shared_paths(*build_routes(targets.hierarchy, targets.class_nodes))
            model, solution = train_paths(problem, P, self.margin, self.verbose)

            def score(part: Training, X: sp.csr_array, key: str) -> Matrix:
                """Scores of other rows by a model of `part`."""
                return linear_scores(X, train_paths(part, P, self.margin)[0], engine)

            decisions = learn_decisions(
                problem, score, calibration=self.calibration, threshold=None, targets=targets, relative=True
            )
            self._remember(targets, model, solution.trace, solution.gap / max(solution.objective, TINY))
            self.calibration_ = decisions.calibration
            if not solution.converged:
                warn_open_gap(self.duality_gap_, problem.options)
        return self
