"""Classifiers at their defaults behind one interface, for `benchmarks.wild`.

A model is fitted to a `Task`. It predicts a class code for each row, or lists of codes if rows may have several
labels; classes are those with training documents, in the order of the nodes of the structure. HiClass and napkinXC
are imported only when they are used.
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
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from arbora.classify import (
    MultinomialLogistic,
    OneVsRestLogistic,
    OneVsRestSVC,
    RecursiveLogisticRegression,
    RecursiveSVC,
    TopDownSVC,
)
from arbora.classify.training import Targets
from arbora.structure import LabelGraph
from benchmarks._common.contestants import SEED, class_paths, indicator, spread
from benchmarks._common.tasks import Task


class Model:
    """Interface of a classifier at its defaults."""

    def __init__(self, task: Task, targets: Targets) -> None:
        self.task, self.targets, self.n_classes = task, targets, len(targets.classes)

    def fit(self, X: Any, y: Any) -> None:
        """Train on rows and labels by name."""
        raise NotImplementedError

    def predict(self, X: Any) -> Any:
        """Predict codes (single label), or a sparse indicator of the classes."""
        raise NotImplementedError

    def proba(self, X: Any) -> NDArray[Any] | None:
        """Probabilities of all classes, or None."""
        return None


class Ours(Model):
    """An estimator of Arbora."""

    def __init__(self, task: Task, targets: Targets, estimator: type, **params: Any) -> None:
        super().__init__(task, targets)
        self.model = estimator(structure=task.structure, n_jobs=1, random_state=SEED, **params)
        self.position = {name: code for code, name in enumerate(targets.classes.tolist())}

    def fit(self, X: Any, y: Any) -> None:
        self.model.fit(X, y)

    def _codes(self) -> NDArray[np.int64]:
        return np.array([self.position[name] for name in self.model.classes_.tolist()])

    def predict(self, X: Any) -> Any:
        answered = self.model.predict(X)
        if not self.task.multilabel:
            return np.array([self.position[name] for name in answered.tolist()])
        lengths = [len(names) for names in answered]
        codes = np.array([self.position[name] for names in answered for name in names], np.int64)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return sp.csr_array(
            (np.ones(len(codes), np.int64), codes, indptr), shape=(len(answered), self.n_classes)
        )

    def proba(self, X: Any) -> NDArray[Any] | None:
        proba = np.zeros((X.shape[0], self.n_classes))
        proba[:, self._codes()] = self.model.predict_proba(X)
        return proba


class Sklearn(Model):
    """A classifier of scikit-learn, one-vs-rest for several labels."""

    def __init__(self, task: Task, targets: Targets, estimator: Any) -> None:
        super().__init__(task, targets)
        self.model = OneVsRestClassifier(estimator, n_jobs=1) if task.multilabel else estimator

    def fit(self, X: Any, y: Any) -> None:
        Y = indicator(y, self.task.structure, self.targets)
        if not self.task.multilabel:
            self.model.fit(X, Y.indices)
            self.codes = self.model.classes_
            return
        self.codes = np.unique(Y.indices)
        self.model.fit(X, sp.csr_matrix(Y[:, self.codes]))

    def predict(self, X: Any) -> Any:
        answered = self.model.predict(X)
        if not self.task.multilabel:
            return answered
        Y = sp.coo_array(answered)
        entries = (np.ones(Y.nnz, np.int64), (Y.coords[0], self.codes[Y.coords[1]]))
        return sp.csr_array(entries, shape=(X.shape[0], self.n_classes))

    def proba(self, X: Any) -> NDArray[Any] | None:
        if not hasattr(self.model, "predict_proba"):
            return None
        proba = self.model.predict_proba(X)
        if self.task.multilabel:
            full = np.zeros((X.shape[0], self.n_classes))
            full[:, self.codes] = proba
            return full
        return np.maximum(spread(proba, self.codes, self.n_classes), 0)


class HiClass(Model):
    """Local classifiers per parent node of HiClass; of several parents the first is used."""

    def __init__(self, task: Task, targets: Targets, local: Any = None) -> None:
        from hiclass import LocalClassifierPerParentNode

        super().__init__(task, targets)
        self.paths = class_paths(task.structure, targets.class_nodes)
        self.model = LocalClassifierPerParentNode(local, n_jobs=1)
        depth = (self.paths != "").sum(axis=1)
        self.code = {self.paths[c, d - 1]: c for c, d in enumerate(depth.tolist())}

    def fit(self, X: Any, y: Any) -> None:
        self.model.fit(X, self.paths[indicator(y, self.task.structure, self.targets).indices])

    def predict(self, X: Any) -> Any:
        levels = self.model.predict(X).astype(str)
        names = levels[np.arange(len(levels)), (levels != "").sum(axis=1) - 1]
        return np.array([self.code[name] for name in names.tolist()])


class NapkinXC(Model):
    """Probabilistic label tree of napkinXC; several labels are those with a probability above one half."""

    def __init__(self, task: Task, targets: Targets) -> None:
        from napkinxc.models import PLT

        super().__init__(task, targets)
        self.folder = tempfile.mkdtemp(prefix="napkinxc-")
        self.model = PLT(self.folder, seed=SEED, threads=1)

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def fit(self, X: Any, y: Any) -> None:
        Y = indicator(y, self.task.structure, self.targets)
        sets = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]
        self.model.fit(sp.csr_matrix(X), sets)

    def predict(self, X: Any) -> Any:
        X = sp.csr_matrix(X)
        if not self.task.multilabel:
            return np.array([row[0] if row else 0 for row in self.model.predict(X, top_k=1)])
        sets = self.model.predict(X, threshold=0.5)
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in sets])])
        codes = np.array([code for row in sets for code in row], np.int64)
        return sp.csr_array(
            (np.ones(len(codes), np.int64), codes, indptr), shape=(X.shape[0], self.n_classes)
        )


class Entry(NamedTuple):
    """How to make a model at its defaults, and where it does not apply."""

    make: Callable[[Task, Targets], Model]
    several_labels: bool = True
    graph: bool = True
    package: str = "arbora"

    @property
    def peer(self) -> bool:
        """Whether the model is of another package."""
        return self.package != "arbora"

    def refuses(self, task: Task) -> str | None:
        """Return why the model cannot be used for a task, or None."""
        if importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed"
        if task.multilabel and not self.several_labels:
            return "one label"
        return "hierarchy" if isinstance(task.structure, LabelGraph) and not self.graph else None


def _ours(estimator: type, **params: Any) -> Callable[[Task, Targets], Model]:
    return lambda task, targets: Ours(task, targets, estimator, **params)


def _sklearn(make: Callable[[], Any]) -> Callable[[Task, Targets], Model]:
    return lambda task, targets: Sklearn(task, targets, make())


MODELS = {
    "OneVsRestSVC": Entry(_ours(OneVsRestSVC)),
    "OneVsRestLogistic": Entry(_ours(OneVsRestLogistic)),
    "RecursiveSVC": Entry(_ours(RecursiveSVC)),
    "RecursiveLogisticRegression": Entry(_ours(RecursiveLogisticRegression)),
    "TopDownSVC": Entry(_ours(TopDownSVC), graph=False),
    "MultinomialLogistic": Entry(_ours(MultinomialLogistic), several_labels=False),
    "LinearSVC": Entry(_sklearn(LinearSVC), package="sklearn"),
    "LinearSVC, calibrated": Entry(
        _sklearn(lambda: CalibratedClassifierCV(LinearSVC(), ensemble=False)),
        several_labels=False, package="sklearn",
    ),
    "LogisticRegression": Entry(_sklearn(LogisticRegression), package="sklearn"),
    "HiClass": Entry(HiClass, several_labels=False, graph=False, package="hiclass"),
    "HiClass, LinearSVC": Entry(
        lambda task, targets: HiClass(task, targets, LinearSVC()),
        several_labels=False, graph=False, package="hiclass",
    ),
    "napkinXC": Entry(NapkinXC, package="napkinxc"),
}  # fmt: skip
