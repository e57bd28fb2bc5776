"""Scores and probabilities of the linear classifiers, and the constraints of the parameters that they share."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from arbora.arrays import Array, Ints, Matrix
from arbora.classify.decisions import Calibration, LearnedDecisions, class_probabilities
from arbora.classify.linear import LinearModel, PartsModel, by_chunks, linear_scores
from arbora.classify.nested import NestedLogit
from arbora.classify.thresholds import THRESHOLD_CONSTRAINT, Threshold, ZeroThreshold, top_columns
from arbora.classify.training import SETS, Targets, decode_sets, is_multilabel
from arbora.core.estimator import Explorable, RowEstimator
from arbora.core.trace import Trace
from arbora.core.validation import check_features, check_structure
from arbora.engine import ThreadEngine
from arbora.structure import Hierarchy
from arbora.structure.hierarchy import append_leaves, restrict

# --- Decisions of a top-down classifier: one score for each edge of the structure, one choice at each node ---
#
# All functions work on matrices of edge scores, with the edges of one parent side by side. Loops run over the
# levels of the structure, never over rows or nodes.


def build_routes(hierarchy: Hierarchy, class_nodes: Ints) -> tuple[Hierarchy, Ints]:
    """Build the structure that documents follow from the root to a class, and return it with the leaf of each class.

    An internal node that carries documents of its own gets a leaf for them, several roots get one above them, and
    nodes without documents are left out: the routes have a single root, and every leaf is a class.
    """
    internal = class_nodes[~hierarchy.is_leaf[class_nodes]]
    names, taken = hierarchy.names.tolist(), set(hierarchy)
    for name in hierarchy.decode(internal).tolist():
        names.append(_free_name(f"{name}/*", taken))  # 5 and "5" may both be nodes
        taken.add(names[-1])
    leaves = class_nodes.copy()
    leaves[~hierarchy.is_leaf[class_nodes]] = hierarchy.n_nodes + np.arange(len(internal))
    routes = Hierarchy(names, append_leaves(hierarchy.edges, hierarchy.n_nodes, internal))
    top = _free_name("root", taken)
    routes = routes.join_roots(top)  # old nodes keep their ids
    if routes.n_nodes == 1:  # a single class still needs a root
        routes = routes.with_edges([(top, routes.names[0])])
    seen = np.zeros(routes.n_nodes, dtype=bool)
    seen[routes.ancestor_matrix[leaves].indices] = True
    used = Hierarchy(*restrict(routes.names, routes.edges, seen))
    return used, (np.cumsum(seen) - 1)[leaves]


def _free_name(name: str, taken: Container[Any]) -> str:
    while name in taken:
        name += "*"
    return name


class Decisions:
    """Edges sorted by parent; the edges of a parent are a segment."""

    def __init__(self, routes: Hierarchy) -> None:
        self.routes = routes
        n_children = np.diff(routes.child_indptr)
        self.parents = np.flatnonzero(n_children)  # nodes with a choice, one segment each
        self.starts = routes.child_indptr[self.parents]
        self.child = routes.child_indices
        self.parent = np.repeat(np.arange(routes.n_nodes), n_children)
        self.segment = np.repeat(np.arange(len(self.parents)), n_children[self.parents])
        self.root = int(routes.root_ids[0])

    @property
    def n_edges(self) -> int:
        """Number of scores of a document."""
        return len(self.child)

    @cached_property
    def _segment_of(self) -> Ints:
        """Segment of the choice at each node, -1 for leaves."""
        segment = np.full(self.routes.n_nodes, -1)
        segment[self.parents] = np.arange(len(self.parents))
        return segment

    @cached_property
    def _edges_by_level(self) -> list[tuple[Matrix, Matrix, Matrix]]:
        """For each level below the root: edges into it sorted by child, starts of each child's run, children."""
        order = np.lexsort((self.child, self.routes.depth[self.child]))
        depth = self.routes.depth[self.child[order]]
        levels = []
        for edges in np.split(order, np.flatnonzero(np.diff(depth)) + 1):
            children, starts = np.unique(self.child[edges], return_index=True)
            levels.append((edges, starts, children))
        return levels

    def choose(self, scores: Matrix) -> Ints:
        """Follow the best edge at every node from the root down; return the leaf."""
        best = np.maximum.reduceat(scores, self.starts, axis=1)
        edge = np.where(scores == best[:, self.segment], np.arange(self.n_edges), self.n_edges)
        chosen = self.child[np.minimum.reduceat(edge, self.starts, axis=1)]
        node = np.full(len(scores), self.root)
        rows = np.arange(len(scores))
        for _ in range(self.routes.height):
            segment = self._segment_of[node]
            node = np.where(segment >= 0, chosen[rows, segment], node)
        return node

    def log_conditional(self, scores: Matrix) -> Matrix:
        """Logarithm of the softmax over the edges of each parent: the probability of the child given it."""
        shifted = scores - np.maximum.reduceat(scores, self.starts, axis=1)[:, self.segment]
        return shifted - np.log(np.add.reduceat(np.exp(shifted), self.starts, axis=1))[:, self.segment]

    def reach(self, conditional: Matrix, exclusive: bool = True) -> Matrix:
        """Probability of each node: products along paths.

        In a DAG with exclusive choices, the probabilities of several paths to a node add up; otherwise the paths are
        independent, and the node is reached if any of them is taken.
        """
        proba = np.zeros((len(conditional), self.routes.n_nodes))
        proba[:, self.root] = 1.0
        for edges, starts, children in self._edges_by_level:
            flow = proba[:, self.parent[edges]] * conditional[:, edges]
            if exclusive:
                proba[:, children] = np.add.reduceat(flow, starts, axis=1)
            else:
                proba[:, children] = 1 - np.multiply.reduceat(1 - flow, starts, axis=1)
        return proba

    def weakest(self, scores: Matrix) -> Matrix:
        """Smallest score on the path to each node (in a DAG: on the best path); that of the root is infinite."""
        worst = np.full((len(scores), self.routes.n_nodes), np.inf)
        for edges, starts, children in self._edges_by_level:
            flow = np.minimum(worst[:, self.parent[edges]], scores[:, edges])
            worst[:, children] = np.maximum.reduceat(flow, starts, axis=1)
        return worst


# --- Predictions over a label structure, shared by all classifiers: labels, paths, node probabilities, back-off ---
#
# A classifier computes probabilities of its classes; the mixin computes those of the nodes. One label per row: the
# probability of a node is the sum over the classes at or below it, so that a parent has the sum of its children (plus
# its own, if documents sit on an internal node); in a DAG a class counts once for each ancestor. Multilabel: the
# classes are independent, and a node is present if any class at or below it is.


def node_probabilities(class_proba: Matrix, closure: sp.csr_array, multilabel: bool) -> Matrix:
    """Probabilities (n_samples, n_nodes) of all nodes from those of the classes.

    They are the sum of p over the classes at or below the node, or 1 - prod(1 - p) for a multilabel model. `closure`
    (n_classes x n_nodes) marks the node of each class and all its ancestors.
    """
    if multilabel:
        with np.errstate(divide="ignore"):
            absent = np.log1p(-class_proba)
        return np.asarray(-np.expm1(absent @ closure.astype(np.float64)))
    return np.asarray(np.minimum(class_proba @ closure.astype(np.float64), 1.0))


def one_column(best: Ints, n_classes: int) -> sp.csr_array:
    """Mark one class in each row."""
    shape = (len(best), n_classes)
    return sp.csr_array((np.ones(len(best), bool), best, np.arange(len(best) + 1)), shape=shape)


def check_X(estimator: Any, X: Any) -> Any:
    """Check the rows that a fitted estimator predicts."""
    check_is_fitted(estimator)
    # Squares in the precision of the weights, as in fit: no score overflows.
    weights = vars(estimator).get("coef_", vars(estimator).get("differences_"))
    return check_features(estimator, X, reset=False, squares=getattr(weights, "dtype", np.float64))


class NodePredictor(Explorable):
    """Mixin: predictions of a classifier that implements `_scores` and `_class_proba`."""

    classes_: Matrix
    class_nodes_: Ints
    hierarchy_: Hierarchy
    nodes_: Matrix
    label_kind_: str
    sparse_labels_: bool
    threshold_: Threshold | None  # absent in models that cut at zero

    def _remember_targets(self, targets: Targets) -> None:
        self.classes_ = targets.classes
        self.class_nodes_ = targets.class_nodes
        self.hierarchy_ = targets.hierarchy
        self.nodes_ = targets.nodes
        self.label_kind_, self.sparse_labels_ = targets.kind, targets.sparse

    @property
    def _multilabel(self) -> bool:
        return is_multilabel(self.label_kind_)

    def _check_X(self, X: Any) -> Any:
        return check_X(self, X)

    def _scores(self, X: Any) -> Matrix:
        """Scores of the classes; the largest is predicted, unless the estimator settles close calls."""
        raise NotImplementedError

    def _class_proba(self, X: Any) -> Matrix:
        """Probabilities of the classes."""
        raise NotImplementedError

    def _ranking_values(self, X: Any) -> Matrix:
        """Values by which `predict_top_k` ranks the classes."""
        return self._class_proba(X)

    def predict_proba(self, X: Any) -> Matrix:
        """Probability of every class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`. With one label per row they sum to 1.
        """
        X = self._check_X(X)
        parts = by_chunks(X, len(self.classes_), self._class_proba)
        return np.vstack(parts or [np.empty((0, len(self.classes_)))])

    def predict_node_proba(self, X: Any) -> Matrix:
        """Probability of every node of the structure.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_nodes)
            Columns in the order of `nodes_`. With one label per row, the probability of a node is the sum over the
            classes at or below it. Without a structure the nodes are the classes.
        """
        X = self._check_X(X)
        closure = self.hierarchy_.ancestor_matrix[self.class_nodes_]
        parts = by_chunks(X, closure.shape[1], lambda rows: self._node_proba(rows, closure))
        return np.vstack(parts or [np.empty((0, closure.shape[1]))])

    def _node_proba(self, X: Any, closure: sp.csr_array) -> Matrix:
        return node_probabilities(self._class_proba(X), closure, self._multilabel)

    def predict_path(self, X: Any) -> list[Any]:
        """Path of names from a root to the predicted node, for each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        list of lists of names
            For a multilabel model, a list of such paths for each row.
        """
        nodes = self._predicted_nodes(X)
        paths = {node: self._path(node) for node in np.unique(nodes.indices)}
        rows = [
            [paths[node].copy() for node in nodes.indices[start:stop]]
            for start, stop in zip(nodes.indptr[:-1], nodes.indptr[1:], strict=True)
        ]
        return rows if self._multilabel else [path for (path,) in rows]

    def _path(self, node: int) -> list[Any]:
        names = self.hierarchy_.path(self.hierarchy_.names[node])
        return list(self.nodes_[self.hierarchy_.encode(names)].tolist())

    def _predicted_nodes(self, X: Any) -> sp.csr_array:
        """Predicted node ids as the columns of a CSR matrix: one per row, or any number if multilabel."""
        columns = self._predict_columns(self._check_X(X))
        nodes = self.class_nodes_[columns.indices]
        return sp.csr_array(
            (columns.data, nodes, columns.indptr), shape=(columns.shape[0], self.hierarchy_.n_nodes)
        )

    def predict_backoff(self, X: Any, threshold: float = 0.5) -> Matrix:
        """Deepest node whose probability reaches a threshold: a less detailed answer where the model is unsure.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        threshold : float in (0, 1]

        Returns
        -------
        ndarray of names of shape (n_samples,)
            The most probable one of several nodes of the same depth; None if no node reaches the threshold, which
            cannot happen with a single root and one label per row.
        """
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be in (0, 1], got {threshold!r}.")
        X = self._check_X(X)
        closure = self.hierarchy_.ancestor_matrix[self.class_nodes_]

        def deepest(rows: Any) -> Ints:
            proba = self._node_proba(rows, closure)
            # The probability of a single root is 1 up to rounding.
            rank = np.where(proba >= threshold * (1 - 1e-9), self.hierarchy_.depth + proba / 2, -1.0)
            best = rank.argmax(axis=1)
            return np.where(rank[np.arange(len(best)), best] < 0, -1, best)

        best = np.concatenate([np.empty(0, np.int64), *by_chunks(X, closure.shape[1], deepest)])
        names = np.array([*self.nodes_.tolist(), None], dtype=object)
        return np.asarray(names[best])  # the index -1 is None

    def predict(self, X: Any) -> Any:
        """Predict labels in the form in which they were given to `fit`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray, list of lists, or indicator matrix
            One label per row; or lists of labels; or an indicator over the nodes (without a structure: over the
            columns of y), sparse if y was.
        """
        check_is_fitted(self)
        X = self._check_X(X)
        columns = self._predict_columns(X)
        if not self._multilabel:
            return self.classes_[columns.indices]
        if self.label_kind_ == SETS:
            return decode_sets(columns, self.classes_)
        nodes = self.class_nodes_[columns.indices]
        Y = sp.csr_array(
            (np.ones(nodes.size, np.int64), nodes, columns.indptr),
            shape=(columns.shape[0], self.hierarchy_.n_nodes),
        )
        return Y if self.sparse_labels_ else Y.toarray()

    def predict_top_k(self, X: Any, k: int) -> tuple[Matrix, Matrix]:
        """Return the k most probable classes of each row, best first, with their probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        k : int
            From 1 to the number of `classes_`.

        Returns
        -------
        labels : ndarray of names of shape (n_samples, k)
            Classes, not the nodes above them; ties in the order of `classes_`.
        values : ndarray of shape (n_samples, k)
            Probabilities of the classes, or their scores if `calibration=None`.
        """
        X = self._check_X(X)
        n_classes = len(self.classes_)
        if not isinstance(k, int | np.integer) or not 1 <= k <= n_classes:
            raise ValueError(f"k must be an integer from 1 to the number of classes, {n_classes}; got {k!r}.")

        def best(rows: Any) -> tuple[Matrix, Matrix]:
            values = self._ranking_values(rows)
            columns = top_columns(values, int(k))
            return columns, np.take_along_axis(values, columns, axis=1)

        parts = by_chunks(X, n_classes, best)
        columns, values = (np.vstack(part) for part in zip(*parts, strict=True))
        return self.classes_.astype(object)[columns], values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: share of the rows whose label (or set of labels) is predicted exactly.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : labels in the form in which they were given to `fit`
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self)
        check_structure(y, "y")
        if self.label_kind_ != SETS:
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        answers = self.predict(X)
        check_consistent_length(answers, y, sample_weight)
        right = [set(a) == set(b) for a, b in zip(answers, y, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def _predict_columns(self, X: Any) -> sp.csr_array:
        """Columns of the predicted classes: the best one, or those above the threshold."""
        parts = by_chunks(X, len(self.classes_), lambda rows: self._choose(self._scores(rows)))
        if not parts:
            return sp.csr_array((0, len(self.classes_)), dtype=bool)
        columns: sp.csr_array = sp.vstack(parts, format="csr")
        return columns

    def _choose(self, scores: Matrix) -> sp.csr_array:
        if self._multilabel:
            return (vars(self).get("threshold_") or ZeroThreshold()).predict(scores)
        return one_column(scores.argmax(axis=1), scores.shape[1])


# --- Scores and probabilities of the linear classifiers, and the constraints of the parameters that they share ---


LINEAR_CONSTRAINTS: dict[str, Any] = {
    "C": [Interval(Real, 0, None, closed="neither")],
    "structure": "no_validation",  # encode_targets has the better error message
    "tol": [Interval(Real, 0, None, closed="neither")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "fit_intercept": ["boolean"],
    "calibration": [StrOptions({"holdout"}), Interval(Integral, 2, None, closed="left"), None],
    "class_weight": [StrOptions({"balanced"}), dict, None],
    "threshold": THRESHOLD_CONSTRAINT,
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
AUTO_COST_CONSTRAINT: list[Any] = [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})]
LEVELS_CONSTRAINT: list[Any] = [
    StrOptions({"holdout", "levels"}),
    Interval(Integral, 2, None, closed="left"),
    None,
]

_MAX_VALUES = 1 << 21  # rows times nodes of a calibration over a tree at a time


class LinearPredictor(RowEstimator, NodePredictor):
    """Mixin for classifiers with `coef_`, `intercept_` and `calibration_`."""

    calibration: Any
    n_jobs: int | None
    classes_: Matrix
    label_kind_: str
    coef_: Any
    differences_: Any  # of a pruned model, which has no coef_
    sharing_: Any
    intercept_: Matrix
    trace_: Trace
    n_iter_: int
    duality_gap_: float
    calibration_: Array
    threshold_: Threshold | None
    hierarchy_: Hierarchy
    class_nodes_: Ints
    level_calibration_: Array  # absent without a tree
    class_counts_: Ints

    _tags: ClassVar[Mapping[str, Any]] = {"classifier_tags.multi_label": True}

    def _remember(
        self,
        targets: Targets,
        model: LinearModel | PartsModel,
        trace: Trace,
        gap: float,
        decisions: LearnedDecisions | None = None,
    ) -> None:
        """Set the labels, the weights, the certified relative duality gap, and how scores become answers."""
        self._remember_targets(targets)
        self._forget("coef_", "differences_", "sharing_")
        if isinstance(model, PartsModel):
            self.differences_, self.intercept_, self.sharing_ = model
        else:
            self.coef_, self.intercept_ = model
        self.trace_, self.n_iter_, self.duality_gap_ = trace, max(1, len(trace)), gap
        if decisions is not None:
            self.calibration_, self.threshold_ = decisions.calibration, decisions.threshold
            self._forget("level_calibration_", "class_counts_")
            if decisions.levels is not None and decisions.class_counts is not None:
                self.level_calibration_, self.class_counts_ = decisions.levels, decisions.class_counts

    def _forget(self, *names: str) -> None:
        """Remove attributes that an earlier fit may have set."""
        for name in names:
            vars(self).pop(name, None)

    def _linear_model(self) -> LinearModel | PartsModel:
        return LinearModel(self.coef_, self.intercept_)

    def _linear_scores(self, X: Any) -> Matrix:
        return linear_scores(X, self._linear_model(), ThreadEngine(self.n_jobs))

    def _scores(self, X: Any) -> Matrix:
        """Scores of all classes; the two classes of a binary problem share one classifier."""
        scores = self._linear_scores(X)
        if scores.shape[1] == 1 and not is_multilabel(self.label_kind_):
            return np.hstack([-scores, scores])
        return scores

    def _class_proba(self, X: Any) -> Matrix:
        if "level_calibration_" in vars(self):
            return np.asarray(np.exp(self._tree_log_proba(X)))
        calibration = Calibration(*self.calibration_)
        return class_probabilities(self._scores(X), calibration, is_multilabel(self.label_kind_))

    def _tree_log_proba(self, X: Any) -> Matrix:
        tree, scores = NestedLogit(self.hierarchy_, self.class_nodes_, self.class_counts_), self._scores(X)
        step = max(1, _MAX_VALUES // len(tree.parent))
        return np.vstack(
            [
                tree.log_proba(scores[first : first + step], self.level_calibration_)
                for first in range(0, max(1, len(scores)), step)
            ]
        )

    def _predict_columns(self, X: Any) -> sp.csr_array:
        """Columns of the predicted classes; with a calibration over a tree, the most probable ones."""
        if "level_calibration_" not in vars(self):
            return super()._predict_columns(X)
        n_classes = len(self.classes_)
        best = by_chunks(X, n_classes, lambda rows: self._tree_log_proba(rows).argmax(axis=1))
        return one_column(np.concatenate([np.empty(0, np.int64), *best]), n_classes)

    def _ranking_values(self, X: Any) -> Matrix:
        # Without a calibration the probabilities have no meaning.
        return self._scores(X) if self.calibration is None else self._class_proba(X)

    def decision_function(self, X: Any) -> Matrix:
        """Score of every class, before close calls are settled (by a recursive classifier).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; for two classes, (n_samples,) with positive values for the second.
        """
        scores = self._scores(check_X(self, X))
        if len(self.classes_) == 2 and not is_multilabel(self.label_kind_):
            return np.asarray((scores[:, 1] - scores[:, 0]) / 2)
        return scores
