"""The classifiers of the comparison behind one interface, with the same costs to choose from.

A contestant is fitted with a cost (and a coupling, if it has one). It predicts a class for each row, or scores of all
classes if rows may have several labels. Classes are those with training documents, in the order of the nodes of the
structure. HiClass and napkinXC are imported only when they are used.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from arbora.classify import (
    HierarchicalCostClassifier,
    HierarchicalSVM,
    OneVsRestSVC,
    OrthogonalTransfer,
    RecursiveLogisticRegression,
    RecursiveSVC,
    TopDownSVC,
)
from arbora.classify.recursive.search import Search
from arbora.classify.training import Targets, encode_targets
from arbora.structure import Hierarchy, LabelGraph
from benchmarks._common.tasks import Task

SEED = 0
N_FOLDS = 3
QUICK_CS, QUICK_COUPLINGS = (0.1, 1.0), (0.0, 1.0)
SEARCH_TOL = 0.03  # certified gap of Arbora's models during the search for C, as in their own searches
COUPLINGS = Search().couplings  # the couplings that coupling="cv" tries
LOGISTIC = 10.0  # factor on the costs of the logistic loss, which regularises more than the hinge at equal C
_MOST_LABELS = 100  # labels per row that a model with sparse output predicts
FLAT, RECURSIVE = "OneVsRestSVC", "RecursiveSVC"


class Model:
    """Interface of a contestant."""

    def target(self, y: Any) -> Any:
        """Return labels in the form that `fit` accepts."""
        return y

    def fit(self, X: Any, target: Any, C: float | None, coupling: Any) -> None:
        """Train with a cost and a coupling; None if the contestant does not have the parameter."""
        raise NotImplementedError

    def answer(self, X: Any) -> NDArray[Any]:
        """Predict the class of each row, or scores of all classes for multilabel data."""
        raise NotImplementedError


class Arbora(Model):
    """An estimator of Arbora, without its own threshold and calibration."""

    def __init__(
        self, estimator: type, task: Task, targets: Targets, search: bool, fades: bool = True, **params: Any
    ) -> None:
        self.fades = fades  # whether nodes with many classes share less
        self.position = {name: code for code, name in enumerate(targets.classes.tolist())}
        self.multilabel = task.multilabel
        self.model = estimator(calibration=None, n_jobs=1, random_state=SEED, **params)
        if "threshold" in self.model.get_params():  # the benchmark has its own
            self.model.set_params(threshold="zero")
        if estimator is not OneVsRestSVC:
            self.model.set_params(structure=task.structure)
        if search:
            self.model.set_params(tol=SEARCH_TOL)

    def fit(self, X: Any, target: Any, C: float | None, coupling: Any) -> None:
        self.model.set_params(C=C)
        if coupling is not None:
            self.model.set_params(coupling=coupling if self.fades else [coupling])
        self.model.fit(X, target)

    def answer(self, X: Any) -> NDArray[Any]:
        codes = np.array([self.position[name] for name in self.model.classes_.tolist()])
        if self.multilabel:
            return spread(self.model.decision_function(X), codes, len(self.position))
        answered = self.model.predict(X)
        return np.array([self.position[name] for name in answered.tolist()])


class SklearnFlat(Model):
    """One-vs-rest with LIBLINEAR through scikit-learn."""

    def __init__(self, task: Task, targets: Targets, search: bool) -> None:
        self.task, self.targets = task, targets
        machine = LinearSVC(loss="hinge", random_state=SEED)
        self.model = OneVsRestClassifier(machine, n_jobs=1) if task.multilabel else machine

    def target(self, y: Any) -> Any:
        Y = indicator(y, self.task.structure, self.targets)
        if not self.task.multilabel:
            return Y.indices
        self.codes = np.unique(Y.indices)
        return sp.csr_matrix(Y[:, self.codes])

    def fit(self, X: Any, target: Any, C: float | None, coupling: Any) -> None:
        self.model.set_params(**{"estimator__C" if self.task.multilabel else "C": C})
        self.model.fit(X, target)

    def answer(self, X: Any) -> NDArray[Any]:
        if not self.task.multilabel:
            return self.model.predict(X)
        return spread(self.model.decision_function(X), self.codes, len(self.targets.classes))


class HiClass(Model):
    """LIBLINEAR at every node of a tree through HiClass; of several parents the first is used."""

    def __init__(self, task: Task, targets: Targets, search: bool) -> None:
        from hiclass import LocalClassifierPerParentNode

        self.task, self.targets = task, targets
        self.paths = class_paths(task.structure, targets.class_nodes)
        self.model = LocalClassifierPerParentNode(LinearSVC(loss="hinge", random_state=SEED), n_jobs=1)
        depth = (self.paths != "").sum(axis=1)
        self.code = {self.paths[c, d - 1]: c for c, d in enumerate(depth.tolist())}

    def target(self, y: Any) -> Any:
        return self.paths[indicator(y, self.task.structure, self.targets).indices]

    def fit(self, X: Any, target: Any, C: float | None, coupling: Any) -> None:
        self.model.set_params(local_classifier__C=C)
        self.model.fit(X, target)

    def answer(self, X: Any) -> NDArray[Any]:
        levels = self.model.predict(X).astype(str)
        last = (levels != "").sum(axis=1) - 1
        names = levels[np.arange(len(levels)), last]
        return np.array([self.code[name] for name in names.tolist()])


class NapkinXC(Model):
    """Probabilistic label tree of napkinXC, with its own label tree and its default cost."""

    def __init__(self, task: Task, targets: Targets, search: bool) -> None:
        from napkinxc.models import PLT

        self.task, self.targets = task, targets
        self.folder = tempfile.mkdtemp(prefix="napkinxc-")
        self.model = PLT(self.folder, seed=SEED, threads=1)

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def target(self, y: Any) -> Any:
        Y = indicator(y, self.task.structure, self.targets)
        return [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]

    def fit(self, X: Any, target: Any, C: float | None, coupling: Any) -> None:
        self.model.fit(sp.csr_matrix(X), target)

    def answer(self, X: Any) -> NDArray[Any]:
        X = sp.csr_matrix(X)
        if not self.task.multilabel:
            return np.array([row[0] if row else 0 for row in self.model.predict(X, top_k=1)])
        n_classes = len(self.targets.classes)
        scores = np.zeros((X.shape[0], n_classes), np.float32)
        for row, found in enumerate(self.model.predict_proba(X, top_k=min(_MOST_LABELS, n_classes))):
            for code, probability in found:
                scores[row, code] = probability
        return scores


def spread(scores: NDArray[Any], codes: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """Return scores with a column for every class; classes that were not trained get the lowest score."""
    full = np.full((len(scores), n_classes), scores.min() - 1, scores.dtype)
    full[:, codes] = scores
    return full


def indicator(y: Any, structure: Hierarchy | LabelGraph, targets: Targets) -> sp.csr_array:
    """Return an indicator of the labels over the classes with training documents; other labels are left out."""
    sets = [[name] for name in y.tolist()] if isinstance(y, np.ndarray) else y
    column = np.full(structure.n_nodes, -1)
    column[targets.class_nodes] = np.arange(len(targets.class_nodes))
    codes = column[structure.encode([name for names in sets for name in names])]
    row = np.repeat(np.arange(len(sets)), [len(names) for names in sets])
    known = codes >= 0
    entries = (np.ones(known.sum(), np.int64), (row[known], codes[known]))
    Y = sp.csr_array(entries, shape=(len(sets), len(targets.class_nodes)))
    Y.data[:] = 1
    Y.sort_indices()
    return Y


def class_paths(hierarchy: Hierarchy, nodes: NDArray[np.int64]) -> NDArray[Any]:
    """Return the path of node names of each class, without the root; an inner node gets its own leaf."""
    first = np.full(hierarchy.n_nodes, -1)
    has = np.diff(hierarchy.parent_indptr) > 0
    first[has] = hierarchy.parent_indices[hierarchy.parent_indptr[:-1][has]]
    inner, paths = set(first.tolist()), []
    for node in nodes.tolist():
        path = [str(node), f"{node}, itself"] if node in inner else [str(node)]
        while first[node] >= 0:
            node = int(first[node])
            path.insert(0, str(node))
        paths.append(path[1:] if len(hierarchy.root_ids) == 1 else path)
    width = max(map(len, paths))
    return np.array([path + [""] * (width - len(path)) for path in paths], dtype=str)


class Contestant(NamedTuple):
    """How to make a model, the parameters to choose from, and where it does not apply."""

    make: Callable[[Task, Targets, bool], Any]
    scale: float | None = 1.0  # factor on the costs to choose from; None if there is no cost
    couplings: tuple[Any, ...] = (None,)
    several_labels: bool = True
    graph: bool = False
    dag: bool = True
    package: str = "arbora"
    same_problem_as: str | None = None  # method with the same objective, whose C is used

    def refuses(self, task: Task) -> str | None:
        """Return why the contestant cannot be used for a task, or None."""
        if importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed"
        if task.multilabel and not self.several_labels:
            return "needs one label per row"
        if isinstance(task.structure, LabelGraph):
            return None if self.graph else "needs a hierarchy"
        return None if self.dag or task.structure.is_tree else "needs a tree"


def _of(estimator: type, **params: Any) -> Callable[[Task, Targets, bool], Any]:
    return lambda task, targets, search: Arbora(estimator, task, targets, search, **params)


CONTESTANTS = {
    FLAT: Contestant(_of(OneVsRestSVC, loss="hinge"), graph=True),
    RECURSIVE: Contestant(_of(RecursiveSVC, loss="hinge"), couplings=COUPLINGS, graph=True),
    "RecursiveSVC, as published": Contestant(
        _of(RecursiveSVC, loss="hinge", fades=False), couplings=(1.0,), graph=True
    ),
    "RecursiveLogisticRegression": Contestant(
        _of(RecursiveLogisticRegression), LOGISTIC, COUPLINGS, graph=True
    ),
    "TopDownSVC": Contestant(_of(TopDownSVC, loss="hinge", descent="greedy")),
    "HierarchicalSVM": Contestant(_of(HierarchicalSVM), several_labels=False),
    "OrthogonalTransfer": Contestant(_of(OrthogonalTransfer), several_labels=False, dag=False),
    "HierarchicalCostClassifier": Contestant(_of(HierarchicalCostClassifier), LOGISTIC),
    "LinearSVC": Contestant(SklearnFlat, graph=True, package="sklearn", same_problem_as=FLAT),
    "HiClass": Contestant(HiClass, several_labels=False, package="hiclass"),
    "napkinXC PLT": Contestant(NapkinXC, None, graph=True, package="napkinxc"),
}


def encoded(task: Task) -> Targets:
    """Encode the classes of the training part, in the order of the nodes."""
    return encode_targets(task.y, task.structure)
