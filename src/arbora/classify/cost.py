"""HierCost: one classifier for each class, in which mistakes that are distant in the structure cost more.

For class n, with y_in = +1 for its documents and -1 for all others,

    min_w  1/2 ||w||^2 + C sum_i d_i f_in loss(y_in w.x_i).

The classes are trained separately, as in a flat model; the structure enters only through the cost f_in of a document
of class l in the problem of class n (Charuvaka and Rangwala 2015, HierCost: Improving Large Scale Hierarchical
Classification with Cost Sensitive Learning, ECML PKDD):

    cost=                 l != n                               l = n             in the paper
    "tree"                g(n, l)                              max_j g(n, j)     TrD
    "exponential"         base ** g(n, l)                      max_j of it       ExTrD
    "common_ancestors"    a(n, n) - a(n, l) + 1                a(n, n) + 1       NCA
    None                  1                                    1                 LR

g(n, l) counts the edges between two nodes, the maximum is over the classes with data, a(n, l) counts the ancestors
that two nodes share, not counting the nodes themselves. A document of a sibling is the cheapest negative; the
documents of the class itself cost most. With imbalance=True (IMB) the documents of small classes cost more in every
problem,

    d_i = 1 + 20 / (1 + exp(max(0, N - 10))),        N the number of documents of the class of i,

which is 11 for up to ten documents, and nearly 1 from twenty on; otherwise d_i is 1.

The paper leaves open the following choices. A document with several labels has the distance of the nearest of them,
and the size N of the rarest; one without a label costs as much as a positive. In a DAG the path between two nodes is
the shortest one over a common ancestor. Several roots count as children of one root above them. Two exclusive classes
share one classifier, in which a document costs as much as a positive of its own class (with "common_ancestors" the
two problems would otherwise differ). N is a sum of sample weights, so that a weight of 2 equals a repeated document.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.decisions import learn_decisions
from arbora.classify.estimator import LINEAR_CONSTRAINTS, LinearPredictor
from arbora.classify.linear import score_one_vs_rest, train_one_vs_rest
from arbora.classify.one_vs_rest import share_classifier
from arbora.classify.training import Targets, Training, check_training, drop_weightless_rows
from arbora.core.estimator import all_or_nothing
from arbora.core.monitor import Progress
from arbora.engine import ThreadEngine
from arbora.infer.linear.rows import class_blocks
from arbora.structure import Hierarchy

_FEW_DOCUMENTS = 10.0  # N_0 of the paper: classes up to this size are small
_MAX_EXTRA = 20.0  # L of the paper: twice what a document of a small class costs in addition

_CHUNK_ROWS = 1 << 12  # documents whose labels' costs are laid out at a time


class BlockCosts(NamedTuple):
    """Costs in the problems of a block of classes."""

    positive: Array  # (n_block,): of a document of the class itself
    other: Array  # (n_classes, n_block): of a document of each class; 0 for the class itself


def single_root(hierarchy: Hierarchy) -> Hierarchy:
    """Join the roots of a forest, so that any two nodes have a distance; node ids do not change."""
    top = "root"
    while top in hierarchy:
        top += "*"
    return hierarchy.join_roots(top)


def proper_ancestors(hierarchy: Hierarchy, nodes: Ints) -> sp.csr_array:
    """Mark the ancestors of each node, without the node itself; of shape (len(nodes), n_nodes)."""
    shape = (len(nodes), hierarchy.n_nodes)
    itself = sp.csr_array((np.ones(len(nodes)), nodes, np.arange(len(nodes) + 1)), shape=shape)
    return sp.csr_array(hierarchy.ancestor_matrix[nodes].astype(np.float64) - itself)


def block_costs(
    hierarchy: Hierarchy, class_nodes: Ints, columns: slice, cost: str, base: float
) -> BlockCosts:
    """Cost of a document of any class in the problems of the classes `columns`, in a hierarchy with a single root.

    `cost` is "tree", "exponential" (with the base `base`) or "common_ancestors".
    """
    block = class_nodes[columns]
    if cost == "common_ancestors":
        ancestors = proper_ancestors(hierarchy, block).toarray()
        positive = ancestors.sum(axis=1) + 1
        other = positive - proper_ancestors(hierarchy, class_nodes) @ ancestors.T
    else:
        distance = hierarchy.distance_ids(class_nodes[:, None], block).astype(np.float64)
        other = distance if cost == "tree" else base**distance
        positive = other.max(axis=0)
    other[class_nodes[:, None] == block] = 0
    return BlockCosts(positive, other)


def smallest_of_labels(positives: sp.csr_array, values: Matrix, empty: float) -> Matrix:
    """Smallest value (or row of values) among the classes of each document; `empty` without classes."""
    smallest = np.full((positives.shape[0], *values.shape[1:]), empty, values.dtype)
    labelled = np.diff(positives.indptr) > 0
    if labelled.any():
        starts = positives.indptr[:-1][labelled]
        smallest[labelled] = np.minimum.reduceat(values[positives.indices], starts, axis=0)
    return smallest


def pair_costs(positives: sp.csr_array, costs: BlockCosts, dtype: Any = np.float64) -> Matrix:
    """Costs (n_samples, n_block) of documents from those of their classes, which `positives` marks.

    They are the cost of the nearest class of the document; that of a positive if it has the class itself or no class.
    """
    n_samples = positives.shape[0]
    pairs = np.empty((n_samples, len(costs.positive)), dtype)
    positive, other = costs.positive.astype(dtype), costs.other.astype(dtype)
    for first in range(0, n_samples, _CHUNK_ROWS):
        rows = slice(first, first + _CHUNK_ROWS)
        nearest = smallest_of_labels(positives[rows], other, empty=0)
        pairs[rows] = np.where(nearest == 0, positive, nearest)
    return pairs


def imbalance_factors(positives: sp.csr_array, weight: Matrix) -> Array:
    """Extra cost of documents of small classes, by their rarest class; 1 for those without a label."""
    smallest = smallest_of_labels(positives, positives.T @ weight, empty=np.inf)
    return 1 + _MAX_EXTRA * expit(-np.maximum(smallest - _FEW_DOCUMENTS, 0))


def check_exponential(base: float, height: int, dtype: np.dtype[Any]) -> None:
    """Refuse an exponential cost whose square is infinite in the working precision."""
    longest = 2 * height
    max_cost = float(np.sqrt(np.finfo(dtype).max))
    if longest * np.log(base) > np.log(max_cost):
        raise ValueError(
            f"base={base:g} to the power of {longest} edges, the longest path in the structure, overflows in "
            f"{dtype.name}: use a base below {max_cost ** (1 / longest):.3g}."
        )


class HierarchicalCostClassifier(LinearPredictor, ClassifierMixin, BaseEstimator):
    """Linear classifiers, one for each class, in which distant mistakes in the structure cost more (HierCost).

    Parameters
    ----------
    C : float
        Cost of a unit of loss, before the factors of the structure. A larger value fits the training data more
        closely. The factors grow with the depth of the structure, so that the best C is smaller than that of a flat
        model.
    cost : {"tree", "exponential", "common_ancestors"} or None
        Cost of a document in the problem of a class. "tree" (TrD in the paper): number of edges between its class and
        that one. "exponential" (ExTrD): `base` to the power of this number. "common_ancestors" (NCA): one more than
        the number of ancestors of that class that its own class does not share. None: 1, as in a flat model.
    base : float
        Base of the exponential cost; 1 is a flat model.
    imbalance : bool
        Whether documents of classes with about ten documents or fewer cost eleven times as much (IMB).
    loss : {"logistic", "squared_hinge", "hinge"}
        The paper uses the logistic loss.
    structure : Hierarchy, optional
        Tree or DAG; the labels are names of its nodes. Without one, all classes have the same distance.
    threshold : {"zero", "global", "rcut", "scut", "instance"} or Threshold
        Multilabel only: where to cut the scores of a row (`arbora.classify.thresholds`). All but "zero" are learned
        on the rows that are held out for the calibration; `calibration=None` then holds out rows as "holdout" does.
    tol, max_iter, fit_intercept, calibration, n_jobs, random_state, verbose
        As in `OneVsRestSVC`.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data, sorted (label sets: in the order of the nodes). They are the columns of `predict_proba` and
        `decision_function`.
    coef_ : ndarray of shape (n_classes, n_features)
        A single row for two classes, as in scikit-learn.
    intercept_ : ndarray of shape (n_classes,)
    nodes_, hierarchy_, class_nodes_, duality_gap_, trace_, calibration_, threshold_, n_iter_, n_features_in_
        As in `OneVsRestLogistic`.

    References
    ----------
    A. Charuvaka and H. Rangwala (2015). HierCost: Improving Large Scale Hierarchical Classification with Cost
    Sensitive Learning. ECML PKDD.

    Examples
    --------
    >>> from arbora.classify import HierarchicalCostClassifier
    >>> from arbora.structure import Hierarchy
    >>> X = [[2.0, 0.0], [1.5, 0.5], [0.0, 2.0], [0.5, 1.5], [-2.0, -2.0]]
    >>> y = ["animal/cat", "animal/cat", "animal/dog", "animal/dog", "plant"]
    >>> tree = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> model = HierarchicalCostClassifier(structure=tree, imbalance=True, random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.2], [-1.0, -1.0]])
    array(['animal/cat', 'plant'], dtype=object)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "cost": [StrOptions({"tree", "exponential", "common_ancestors"}), None],
        "base": [Interval(Real, 1, None, closed="left")],
        "imbalance": ["boolean"],
        "loss": [StrOptions({"logistic", "squared_hinge", "hinge"})],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        cost: str | None = "tree",
        base: float = 1.25,
        imbalance: bool = False,
        loss: str = "logistic",
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        calibration: Any = "holdout",
        threshold: Any = "zero",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.cost = cost
        self.base = base
        self.imbalance = imbalance
        self.loss = loss
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.calibration = calibration
        self.threshold = threshold
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HierarchicalCostClassifier:
        """Train all classes.

        Parameters
        ----------
        X, y, sample_weight
            As for `OneVsRestSVC.fit`.

        Returns
        -------
        self

        Notes
        -----
        Two kinds of models are trained: the model, on all rows, and one without the held-out rows (one for each
        fold), for calibration and threshold, whose weights are not kept.
        """
        with all_or_nothing(self):
            engine = ThreadEngine(self.n_jobs)
            rows, targets = check_training(self, X, y, sample_weight, loss=self.loss)
            rows = drop_weightless_rows(rows)
            problem = self._with_structure(rows.with_cost(self.C), rows.row_cost, targets)
            n_blocks = len(class_blocks(problem.positives.shape[1]))
            with Progress(n_blocks, "blocks of classes", self.verbose) as progress:
                trained = train_one_vs_rest(problem, engine, progress=progress)

            def score(part: Training, X: sp.csr_array, key: str) -> Matrix:
                """Scores of other rows by a model of `part`, which starts from that of all rows."""
                return score_one_vs_rest(part, X, engine, start=trained.solutions)

            decisions = learn_decisions(
                problem,
                score,
                calibration=self.calibration,
                threshold=self.threshold,
                targets=targets,
                weight=rows.row_cost,
            )
            self._remember(targets, trained.model, trained.trace, trained.gap, decisions)
            trained.warn_if_open(problem.options)
        return self

    def _with_structure(self, training: Training, weight: Matrix, targets: Targets) -> Training:
        """Multiply the costs by the factors of the structure and of the sizes of the classes."""
        row_cost, dtype = training.row_cost, training.options.dtype
        if self.imbalance:
            row_cost = row_cost * imbalance_factors(training.positives, weight)
        training, scheme = training._replace(row_cost=row_cost), self.cost
        if scheme is None:
            return share_classifier(training)
        rooted = single_root(targets.hierarchy)
        if scheme == "exponential":
            check_exponential(self.base, rooted.height, dtype)

        def costs(columns: slice) -> BlockCosts:
            return block_costs(rooted, targets.class_nodes, columns, scheme, self.base)

        if len(targets.classes) == 2 and not targets.multilabel:  # they share one classifier
            row_cost = row_cost * (training.positives @ costs(slice(None)).positive)
            return share_classifier(training._replace(row_cost=row_cost))

        def pair_weight(positives: sp.csr_array, columns: slice) -> Matrix:
            return pair_costs(positives, costs(columns), dtype)

        return training._replace(pair_weight=pair_weight)
