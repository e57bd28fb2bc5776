"""Top-down baseline: at every node of the structure, linear classifiers choose among its children.

At node p, for each child c, on the documents under p alone,

    min_w  1/2 ||w||^2 + C sum_{i under p} loss(y_ic w.x_i),       y_ic = +1 if document i lies under c, else -1.

The probability of a node is the product of the calibrated choices on the path to it, so that a parent has the sum of
its children. The class with the most probable path is predicted (multilabel: every class whose path has positive
scores only). The literature follows the best score at each node instead (``descent="greedy"``): an error near the
root then cannot be corrected further down. Training is cheap: each choice is trained only on the documents under its
node and on their features.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.cost_choice import choose_cost
from arbora.classify.decisions import (
    Calibration,
    HeldOut,
    Score,
    fit_scale,
    fit_sigmoid,
    held_out_scores,
    smoothed_targets,
    stacked,
)
from arbora.classify.estimator import (
    AUTO_COST_CONSTRAINT,
    LINEAR_CONSTRAINTS,
    Decisions,
    LinearPredictor,
    build_routes,
    one_column,
)
from arbora.classify.linear import LinearModel, Trained, by_chunks, linear_scores, train_one_vs_rest
from arbora.classify.training import (
    Training,
    as_csr,
    check_training,
    drop_weightless_rows,
    is_multilabel,
    n_effective,
)
from arbora.core.chunks import split
from arbora.core.engine import Engine
from arbora.core.estimator import all_or_nothing
from arbora.core.monitor import Progress
from arbora.core.products import is_small
from arbora.engine import ThreadEngine
from arbora.infer.linear.flat import BlockSolution
from arbora.infer.linear.rows import BLOCK
from arbora.structure import Hierarchy

# --- The most probable class of a tree of linear choices, without the scores of all edges -------------------
#
# A best-first search from the root down (see `arbora.kernels.descent`). Its answer is exact: the probability of a
# node bounds those of all nodes below it. A document opens a few nodes per level, so the time of a prediction grows
# with the depth of the tree and not with the number of classes.


_CHUNK_ROWS = 512
_FEW_EDGES = 512  # the scores of so few edges take less time than a search


class Leaves(NamedTuple):
    """Most probable leaf of each row, the logarithm of its probability, and the number of nodes that were opened."""

    leaf: Ints
    log_proba: Array
    n_opened: Ints


def can_search(X: Any, model: Any, routes: Hierarchy) -> bool:
    """Whether a search applies: sparse weights of a tree with many edges, and more than a few sparse rows.

    In a DAG the probabilities of several paths to a node add up, and a node does not bound those below it.
    """
    if not hasattr(model.coef, "indptr") or not routes.is_tree or model.coef.shape[0] < _FEW_EDGES:
        return False
    return not (hasattr(X, "indptr") and is_small(X, model.coef.shape[0]))


def best_leaves(
    X: Any, model: LinearModel, calibration: Calibration, routes: Hierarchy, engine: Engine
) -> Leaves:
    """Find the most probable leaf of each row, in a tree with one root.

    The sparse weights have one row for each edge; the edges of a node are side by side. `engine` runs the chunks of
    rows.
    """
    # Loaded when it is needed: compiled code takes time to load.
    from arbora.kernels.descent import find_best_leaves

    rows, weights = as_csr(X), sp.csc_array(model.coef)
    weights.sort_indices()
    leaves = Leaves(
        np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0]), np.zeros(rows.shape[0], np.int64)
    )
    data = rows.data.astype(weights.dtype, copy=False)
    arrays = rows.indptr, rows.indices, data, weights.indptr, weights.indices, weights.data

    def search(chunk: slice) -> None:
        find_best_leaves(
            *arrays, model.intercept, *map(float, calibration), routes.child_indptr, routes.child_indices,
            int(routes.root_ids[0]), chunk.start, chunk.stop, *leaves,
        )  # fmt: skip

    engine.map(search, split(rows.shape[0], size=_CHUNK_ROWS, even=False))
    return leaves


# --- Top-down baseline: at every node of the structure, linear classifiers choose among its children --------


class Choice(NamedTuple):
    """Weights of one node, on the features that occur in its documents."""

    features: Matrix
    coef: Matrix  # n_children x len(features)
    intercept: Matrix
    solutions: list[BlockSolution]


def train_choice(training: Training, exclusive: bool, engine: Engine) -> Choice:
    """Train the choice among the columns of `positives`; all rows are under the node of the choice."""
    features, local = np.unique(training.X.indices, return_inverse=True)
    shape = (training.X.shape[0], len(features))
    local = local.astype(training.X.indices.dtype)  # kernels are compiled for each type of index
    training = training._replace(X=sp.csr_array((training.X.data, local, training.X.indptr), shape=shape))
    # In a DAG a document may be under both children: then they cannot share one classifier.
    if exclusive and training.positives.shape[1] == 2 and training.positives.nnz == shape[0]:
        trained = train_one_vs_rest(training.with_columns(slice(1, None)), engine)
        coef, intercept = trained.model
        coef, intercept = np.vstack([-coef, coef]), np.concatenate([-intercept, intercept])
    else:
        trained = train_one_vs_rest(training, engine)
        coef, intercept = trained.model
    return Choice(features, coef, intercept, trained.solutions)


def train_choices(
    training: Training,
    decisions: Decisions,
    exclusive: bool,
    engine: Engine,
    verbose: int = 0,
) -> Trained:
    """Train every node that has a choice; `positives` has a column for each node of the routes.

    The model has one row of weights for each edge. The edge to an only child needs none: its score is infinite if
    documents may stop at any node (multilabel), else any constant.
    """
    by_node = sp.csc_array(training.positives)
    child_indptr, children = decisions.routes.child_indptr, decisions.child

    def train(parent: int) -> Choice:
        rows = by_node.indices[by_node.indptr[parent] : by_node.indptr[parent + 1]]
        columns = children[child_indptr[parent] : child_indptr[parent + 1]]
        under = training.with_rows(rows).with_columns(columns)
        return train_choice(under, exclusive, engine)

    n_children, n_rows = np.diff(child_indptr), np.diff(by_node.indptr)
    choice_needed = n_children > 1
    if not exclusive:  # a root with an only child may have documents without labels
        only = np.flatnonzero(n_children == 1)
        choice_needed[only] = n_rows[children[child_indptr[only]]] < n_rows[only]
    choosing = np.flatnonzero(choice_needed & (n_rows > 0))
    # A node with many children is trained by all threads, block by block; small nodes are trained one per thread.
    large, small = choosing[n_children[choosing] > BLOCK], choosing[n_children[choosing] <= BLOCK]
    with Progress(len(choosing), "nodes", verbose) as progress:
        trained = []
        for parent in large.tolist():
            trained.append(train(parent))
            progress.update()
        trained += engine.map(train, small.tolist(), progress=progress)
    coef, intercept = _assemble(
        trained, child_indptr[np.concatenate([large, small])], (decisions.n_edges, training.X.shape[1])
    )
    if not exclusive:
        intercept[child_indptr[np.flatnonzero(~choice_needed & (n_children == 1))]] = np.inf
    solutions = [solution for choice in trained for solution in choice.solutions]
    return Trained(LinearModel(coef, intercept), solutions)


def _assemble(
    trained: list[Choice], first_edge: Matrix, shape: tuple[int, int]
) -> tuple[sp.csc_array, Matrix]:
    """Assemble the weights of all choices in one sparse matrix with a row for each edge."""
    dtype = trained[0].coef.dtype if trained else np.dtype(np.float32)
    intercept = np.zeros(shape[0], dtype)
    rows, columns, values = [np.empty(0, int)], [np.empty(0, int)], [np.empty(0, dtype)]
    for first, choice in zip(first_edge.tolist(), trained, strict=True):
        intercept[first : first + len(choice.intercept)] = choice.intercept
        child, feature = np.nonzero(choice.coef)
        rows.append(first + child)
        columns.append(choice.features[feature])
        values.append(choice.coef[child, feature])
    coordinates = (np.concatenate(rows), np.concatenate(columns))
    # By columns: a prediction reads the weights of the features that occur.
    coef = sp.csc_array((np.concatenate(values), coordinates), shape=shape)
    return coef, intercept


def fit_choices(held_out: HeldOut, decisions: Decisions, multilabel: bool) -> Calibration:
    """Fit one scale to all choices on the true paths of the held-out documents."""
    s, node = held_out.scores.astype(np.float64), held_out.truth.toarray()
    passed, taken = node[:, decisions.parent], node[:, decisions.child]
    weight = np.broadcast_to(held_out.weight[:, None], s.shape)
    if multilabel:
        real = passed & np.isfinite(s)
        return fit_sigmoid(s[real], taken[real], weight[real])
    n_ways = np.diff(decisions.routes.child_indptr)[decisions.parent]
    high, low = smoothed_targets(n_effective(weight[taken & (n_ways > 1)]), n_ways)
    target = weight * passed * np.where(taken, high, low) / held_out.weight.sum()

    def mean_log_likelihood(scale: float) -> float:
        return float(np.sum(target * decisions.log_conditional(scale * s)))

    return fit_scale(mean_log_likelihood)


def mark_nodes(training: Training, routes: Hierarchy, class_leaves: Ints, root: int) -> Training:
    """Replace the classes of each row by all nodes above them; every row is under the root, even without labels."""
    closure = routes.ancestor_matrix[class_leaves].astype(np.float32)
    n_samples = training.X.shape[0]
    at_root = np.ones(n_samples, np.float32), np.full(n_samples, root), np.arange(n_samples + 1)
    under = training.positives @ closure + sp.csr_array(at_root, shape=(n_samples, routes.n_nodes))
    under.data[:] = 1
    return training._replace(positives=under, positive_weight=np.ones(routes.n_nodes))


def calibrate_choices(
    training: Training, decisions: Decisions, calibration: Any, multilabel: bool, score: Score
) -> Array:
    """Learn the scale and the shift of all choices on held-out rows (see `decisions.learn_decisions`)."""
    parts = held_out_scores(training, calibration, score, n_scores=decisions.n_edges)
    fitted = fit_choices(stacked(parts), decisions, multilabel) if parts else Calibration(1.0)
    return np.array(fitted)


class RoutePredictor(LinearPredictor):
    """Mixin for classifiers with a score for each edge of `routes_`."""

    routes_: Hierarchy
    class_leaves_: Ints
    descent_: str  # absent in models that follow the best score at each node

    def _edge_scores(self, X: Any) -> Matrix:
        return self._linear_scores(X).astype(np.float64)

    def _class_proba(self, X: Any) -> Matrix:
        decisions, (scale, shift) = Decisions(self.routes_), self.calibration_
        scores, exclusive = self._edge_scores(X) * scale + shift, not is_multilabel(self.label_kind_)
        conditional = np.exp(decisions.log_conditional(scores)) if exclusive else expit(scores)
        return decisions.reach(conditional, exclusive)[:, self.class_leaves_]

    def _scores(self, X: Any) -> Matrix:
        """Logarithms of the class probabilities; multilabel: the smallest score on the path."""
        if is_multilabel(self.label_kind_):
            return Decisions(self.routes_).weakest(self._edge_scores(X))[:, self.class_leaves_]
        return np.asarray(np.log(np.maximum(self._class_proba(X), np.finfo(np.float64).tiny)))

    def _predict_columns(self, X: Any) -> sp.csr_array:
        greedy, model = vars(self).get("descent_") != "path", LinearModel(self.coef_, self.intercept_)
        if is_multilabel(self.label_kind_) or not (greedy or can_search(X, model, self.routes_)):
            return super()._predict_columns(X)
        if greedy:
            decisions = Decisions(self.routes_)
            chosen = by_chunks(X, decisions.n_edges, lambda rows: decisions.choose(self._linear_scores(rows)))
            leaves = np.concatenate(chosen)
        else:
            calibration = Calibration(*self.calibration_)
            leaves = best_leaves(X, model, calibration, self.routes_, ThreadEngine(self.n_jobs)).leaf
        column = np.full(self.routes_.n_nodes, -1)
        column[self.class_leaves_] = np.arange(len(self.class_leaves_))
        return one_column(column[leaves], len(self.classes_))


class TopDownSVC(RoutePredictor, ClassifierMixin, BaseEstimator):
    """Linear support vector machines at every node of a structure, followed from the root down.

    Parameters
    ----------
    C : float or "auto"
        Cost of a unit of loss. A larger value fits the training data more closely. "auto" starts from 1 over the
        mean squared norm of the rows and chooses among six costs by the likelihood of held-out labels, on a sample
        of rows and classes; the choice is in `C_`.
    loss : {"squared_hinge", "hinge"}
    structure : Hierarchy, optional
        Tree or DAG; the labels are names of its nodes. Without one, all classes are children of one root, and the
        model is flat.
    descent : {"path", "greedy"}
        One label per row: "path" predicts the class with the highest probability, that of its whole path. "greedy"
        follows the best score at each node, as in the literature, and does not use the calibration.
    calibration : "holdout", int or None
        How scores become probabilities. "holdout" learns the scale on a fifth of the rows, with a coarse model of the
        others; an integer learns it on that many folds (slower, more precise); None sets it to 1.
    tol, max_iter, fit_intercept, n_jobs, random_state, verbose
        As in `OneVsRestSVC`.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data, sorted (label sets: in the order of the nodes). They are the columns of `predict_proba` and
        `decision_function`.
    coef_ : sparse CSC array of shape (n_edges, n_features)
        Weights of each edge of `routes_`, ordered by parent and then by child.
    intercept_ : ndarray of shape (n_edges,)
    routes_ : Hierarchy
        The structure that documents follow: only nodes with data, a leaf for the documents of an internal node, a
        single root.
    class_leaves_ : ndarray of int
        Node of `routes_` of each class.
    C_ : float
        The cost of the fit.
    descent_ : str
        Value of `descent` in `fit`.
    nodes_, hierarchy_, class_nodes_, duality_gap_, trace_, calibration_, n_iter_, n_features_in_
        As in `OneVsRestSVC`.

    Examples
    --------
    >>> from arbora.classify import TopDownSVC
    >>> from arbora.structure import Hierarchy
    >>> X = [[2.0, 0.0], [1.5, 0.5], [0.0, 2.0], [0.5, 1.5], [-2.0, -2.0]]
    >>> y = ["animal/cat", "animal/cat", "animal/dog", "animal/dog", "plant"]
    >>> tree = Hierarchy.from_paths(["animal/cat", "animal/dog", "plant"])
    >>> model = TopDownSVC(structure=tree, random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.2], [-1.0, -1.0]])
    array(['animal/cat', 'plant'], dtype=object)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LINEAR_CONSTRAINTS,
        "C": AUTO_COST_CONSTRAINT,
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        "descent": [StrOptions({"path", "greedy"})],
    }

    def __init__(
        self,
        C: Any = "auto",
        *,
        loss: str = "squared_hinge",
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        descent: str = "path",
        calibration: Any = "holdout",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.descent = descent
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TopDownSVC:
        """Train the choice at every node.

        Parameters
        ----------
        X, y, sample_weight
            As for `OneVsRestSVC.fit`.

        Returns
        -------
        self

        Notes
        -----
        Three kinds of models are trained: small ones to choose the cost (``C="auto"``), on a sample of rows and
        classes; the model, on all rows; and one without the held-out rows (one for each fold), for the calibration.
        """
        with all_or_nothing(self):
            engine = ThreadEngine(self.n_jobs)
            rows, targets = check_training(self, X, y, sample_weight, loss=self.loss)
            rows = drop_weightless_rows(rows)
            C = choose_cost(rows, engine) if self.C == "auto" else float(self.C)
            routes, class_leaves = build_routes(targets.hierarchy, targets.class_nodes)
            decisions, exclusive = Decisions(routes), not targets.multilabel
            problem = mark_nodes(rows.with_cost(C), routes, class_leaves, decisions.root)
            trained = train_choices(problem, decisions, exclusive, engine, self.verbose)

            def score(part: Training, X: sp.csr_array, key: str) -> Matrix:
                """Scores of the edges for other rows, by a model of `part`."""
                return linear_scores(X, train_choices(part, decisions, exclusive, engine).model, engine)

            calibration = calibrate_choices(problem, decisions, self.calibration, targets.multilabel, score)
            self._remember(targets, trained.model, trained.trace, trained.gap)
            self.C_, self.descent_, self.calibration_ = C, self.descent, calibration
            self.routes_, self.class_leaves_ = routes, class_leaves
            trained.warn_if_open(problem.options)
        return self
