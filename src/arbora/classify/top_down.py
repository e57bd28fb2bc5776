"""Top-down baseline: at every node of the structure, a linear choice among its children.

At node p, for each child c, on the documents under p alone,

    min_w  1/2 ||w||^2 + C sum_{i under p} loss(y_ic w.x_i),       y_ic = +1 if document i lies under c, else -1.

A document starts at the root and follows the best score until it reaches a leaf (multilabel: it follows every
positive score). The probability of a node is the product of the calibrated choices on the way to it, so that a
parent's is the sum of its children's. Training is cheap, since every choice sees its own documents and their
features only; an error near the root cannot be mended further down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils._param_validation import StrOptions

from arbora.classify._common.calibration import (
    Calibration,
    fit_scale,
    fit_sigmoid,
    n_effective,
    smoothed_targets,
)
from arbora.classify._common.held_out import HeldOut, held_out_scores, stacked
from arbora.classify._common.linear_classifier import LinearClassifier
from arbora.classify._common.linear_model import LinearModel, by_chunks
from arbora.classify._common.one_vs_rest import Training, train_one_vs_rest
from arbora.classify._common.routes import Decisions, build_routes
from arbora.core.checkpoint import Checkpoint
from arbora.core.progress import Progress
from arbora.core.rollback import all_or_nothing
from arbora.engine import ThreadEngine
from arbora.infer.linear.flat import BLOCK, BlockSolution
from arbora.structure import Hierarchy


class Choice(NamedTuple):
    """One node's weights, on the features that its documents have."""

    features: NDArray[Any]
    coef: NDArray[Any]  # n_children x len(features)
    intercept: NDArray[Any]
    solutions: list[BlockSolution]


def train_choice(training: Training, exclusive: bool, engine: ThreadEngine, **keep: Any) -> Choice:
    """Train the choice among the columns of `positives`; all rows lie under the node that chooses."""
    features, local = np.unique(training.X.indices, return_inverse=True)
    shape = (training.X.shape[0], len(features))
    local = local.astype(training.X.indices.dtype)  # kernels are compiled for each type of index
    training = training._replace(X=sp.csr_array((training.X.data, local, training.X.indptr), shape=shape))
    # In a DAG a document may lie under both of two children: then neither is the other with its sign changed.
    if exclusive and training.positives.shape[1] == 2 and training.positives.nnz == shape[0]:
        trained = train_one_vs_rest(training.with_columns(slice(1, None)), engine, **keep)
        coef, intercept = trained.model
        coef, intercept = np.vstack([-coef, coef]), np.concatenate([-intercept, intercept])
    else:
        trained = train_one_vs_rest(training, engine, **keep)
        coef, intercept = trained.model
    return Choice(features, coef, intercept, trained.solutions)


def train_choices(
    training: Training,
    decisions: Decisions,
    exclusive: bool,
    engine: ThreadEngine,
    checkpoint: Checkpoint | None = None,
    verbose: int = 0,
    key: str = "",
) -> tuple[LinearModel, list[BlockSolution]]:
    """Train every node that has a choice; `positives` has a column for each node of the routes.

    `key` is put before the names of the pieces in the checkpoint.

    Returns one row of weights for each edge. An only child needs none: its score is infinite where documents may
    stop at any node (multilabel), and any constant where they must go on.
    """
    by_node = sp.csc_array(training.positives)
    child_indptr, children = decisions.routes.child_indptr, decisions.child

    def train(parent: int) -> Choice:
        rows = by_node.indices[by_node.indptr[parent] : by_node.indptr[parent + 1]]
        columns = children[child_indptr[parent] : child_indptr[parent + 1]]
        under = training.with_rows(rows).with_columns(columns)
        return train_choice(under, exclusive, engine, checkpoint=checkpoint, key=f"{key}node-{parent}-")

    n_children, n_rows = np.diff(child_indptr), np.diff(by_node.indptr)
    choice_needed = n_children > 1
    if not exclusive:  # under a root with an only child there may be documents without any label
        only = np.flatnonzero(n_children == 1)
        choice_needed[only] = n_rows[children[child_indptr[only]]] < n_rows[only]
    choosing = np.flatnonzero(choice_needed & (n_rows > 0))
    # A node with many children shares its blocks among the threads; small nodes are shared out whole.
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
    return LinearModel(coef, intercept), [solution for choice in trained for solution in choice.solutions]


def _assemble(
    trained: list[Choice], first_edge: NDArray[Any], shape: tuple[int, int]
) -> tuple[sp.csc_array, NDArray[Any]]:
    """Put the weights of all choices into one sparse matrix with a row for each edge."""
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
    # By columns: a document asks for the weights of its own features.
    coef = sp.csc_array((np.concatenate(values), coordinates), shape=shape)
    return coef, intercept


def fit_choices(held_out: HeldOut, decisions: Decisions, multilabel: bool) -> Calibration:
    """Fit one scale to all choices that held-out documents pass on their true paths."""
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


class TopDownSVC(LinearClassifier):
    """Linear support vector machines at every node of a structure, followed from the root down.

    Parameters
    ----------
    C : float
        Cost of a unit of loss: the larger, the closer the fit to the training data.
    loss : {"hinge", "squared_hinge"}
    structure : Hierarchy, optional
        Tree or DAG whose nodes the labels name; without one all classes hang under a single root, and the model
        is a flat one.
    tol : float
        Relative duality gap at which training stops; it is certified, so that the objective is at most this
        share above its optimum.
    max_iter : int
        Most sweeps over the data; a `ConvergenceWarning` tells when they were not enough.
    fit_intercept : bool
        Whether to learn a bias.
    intercept_scaling : float
        Value of the constant feature whose weight is the bias; the larger, the less the bias is regularised.
    calibration : "holdout", int or None
        How scores become probabilities: the scale is learned on a fifth of the rows with a coarse model of the
        others, on that many folds in turn (slower, finer), or is 1.
    dtype : "float32" or "float64"
        Precision of training and weights; float32 halves time and memory and suffices for `tol` down to 1e-5.
    n_jobs : int, optional
        Threads; the result does not depend on it.
    random_state : int, RandomState instance or None
        Order in which rows are visited.
    checkpoint : path, optional
        Folder where finished nodes and blocks are kept: a fit that was interrupted goes on from there, and the
        folder is cleared at the end.
    verbose : int
        1 shows a progress bar on a terminal, 2 everywhere.

    Attributes
    ----------
    classes_ : ndarray
        Labels with data: the columns of `decision_function`.
    coef_ : sparse CSC array of shape (n_edges, n_features)
        Weights of each edge of `routes_`, parents in order and children within them.
    intercept_ : ndarray of shape (n_edges,)
    routes_ : Hierarchy
        The structure that documents are routed through: nodes with data only, a leaf for the documents of an
        internal node, a single root.
    class_leaves_ : ndarray of int
        Node of `routes_` at which each class sits.
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
        **LinearClassifier._parameter_constraints,
        "loss": [StrOptions({"hinge", "squared_hinge"})],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "hinge",
        structure: Hierarchy | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        calibration: Any = "holdout",
        dtype: str = "float32",
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.structure = structure
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.calibration = calibration
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TopDownSVC:
        """Train the choice at every node.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : one label a row, a list of label lists, or an indicator matrix
            With a structure, labels are names of its nodes and an indicator has a column for each node.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on C; rows of weight 0 only say which classes there are.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            training = self._check_fit(X, y, sample_weight, self.loss)
            checkpoint = self._checkpoint(training)
            self.routes_, self.class_leaves_ = build_routes(self.hierarchy_, self.class_nodes_)
            decisions = Decisions(self.routes_)
            training = self._over_nodes(training, decisions)
            common = decisions, not self._multilabel, self._engine(), checkpoint
            model, solutions = train_choices(training, *common, self.verbose)
            self._keep(model, solutions)
            self._calibrate(training, decisions, lambda seen, key: train_choices(seen, *common, key=key)[0])
            if checkpoint is not None:
                checkpoint.clear()
        return self

    def _over_nodes(self, training: Training, decisions: Decisions) -> Training:
        """Say of each document which nodes it lies under; all lie under the root, with or without labels."""
        closure = self.routes_.ancestor_matrix[self.class_leaves_].astype(np.float32)
        n_samples = training.X.shape[0]
        at_root = (
            np.ones(n_samples, np.float32),
            np.full(n_samples, decisions.root),
            np.arange(n_samples + 1),
        )
        under = training.positives @ closure + sp.csr_array(at_root, shape=(n_samples, self.routes_.n_nodes))
        under.data[:] = 1
        return training._replace(positives=under, positive_weight=np.ones(self.routes_.n_nodes))

    def _calibrate(
        self, training: Training, decisions: Decisions, train: Callable[[Training, str], LinearModel]
    ) -> None:
        """Leave `calibration_`, learned on rows that `train` has not seen; it also gets a key for a checkpoint."""
        parts = held_out_scores(training, self.calibration, train, self._engine(), n_scores=decisions.n_edges)
        fitted = fit_choices(stacked(parts), decisions, self._multilabel) if parts else Calibration(1.0)
        self.calibration_ = np.array(fitted)

    def _edge_scores(self, X: Any) -> NDArray[Any]:
        return self._linear_scores(X).astype(np.float64)

    def _class_proba(self, X: Any) -> NDArray[Any]:
        decisions, (scale, shift) = Decisions(self.routes_), self.calibration_
        scores = self._edge_scores(X) * scale + shift
        conditional = expit(scores) if self._multilabel else np.exp(decisions.log_conditional(scores))
        return decisions.reach(conditional, not self._multilabel)[:, self.class_leaves_]

    def _scores(self, X: Any) -> NDArray[Any]:
        """Logarithms of the class probabilities; for several labels, the weakest score on the way."""
        if self._multilabel:
            return Decisions(self.routes_).weakest(self._edge_scores(X))[:, self.class_leaves_]
        return np.log(np.maximum(self._class_proba(X), np.finfo(np.float64).tiny))

    def _predict_columns(self, X: Any) -> sp.csr_array:
        if self._multilabel:
            return super()._predict_columns(X)
        decisions = Decisions(self.routes_)
        column = np.full(self.routes_.n_nodes, -1)
        column[self.class_leaves_] = np.arange(len(self.class_leaves_))
        leaves = by_chunks(X, decisions.n_edges, lambda rows: decisions.choose(self._linear_scores(rows)))
        best = column[np.concatenate(leaves)]
        shape = (len(best), len(self.classes_))
        return sp.csr_array((np.ones(len(best), bool), best, np.arange(len(best) + 1)), shape=shape)
