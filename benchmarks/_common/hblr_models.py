"""Models and data of the HBLR benchmarks: model makers, data sets and other splits of CLEF."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from arbora.classify import (
    CorrelatedMultinomialLogit,
    HierarchicalBayesClassifier,
    RecursiveLogisticRegression,
    RecursiveSVC,
)
from arbora.core.folds import stratified_folds
from benchmarks._common.contestants import LOGISTIC, N_FOLDS, QUICK_COUPLINGS, SEED, encoded
from benchmarks._common.tasks import Task, task

CLEF = "imclef07a"
FLAT, PEER, SAMPLED = "M3 flat", "LogisticRegression, C by cv", "CorrelatedMultinomialLogit"
QUICK_TEXTS = 100
QUICK_STEPS = 2  # iterations of HBLR with --quick
MOST_STEPS = 1000  # iterations of L-BFGS; the default of 100 stops before its tolerance

# Arguments: a task, the costs to choose from, and whether to run quickly.
Make = Callable[[Task, tuple[float, ...], bool], Any]


def bayes(flat: bool = False, **params: Any) -> Make:
    """Make HBLR with or without the tree of the task."""

    def make(work: Task, Cs: tuple[float, ...], quick: bool) -> HierarchicalBayesClassifier:
        few = {"max_iter": QUICK_STEPS} if quick else {}
        return HierarchicalBayesClassifier(None if flat else work.structure, n_jobs=1, **params, **few)

    return make


def recursive(estimator: type, scale: float) -> Make:
    """Make a recursive model that chooses its cost and coupling by cross-validation."""
    published = {"loss": "hinge"} if estimator is RecursiveSVC else {}

    def make(work: Task, Cs: tuple[float, ...], quick: bool) -> Any:
        search = {"costs": [scale * C for C in Cs], "cv": N_FOLDS}
        search |= {"couplings": QUICK_COUPLINGS} if quick else {}
        return estimator(
            "cv",
            structure=work.structure,
            coupling="cv",
            search=search,
            n_jobs=1,
            random_state=SEED,
            **published,
        )

    return make


def logistic(work: Task, Cs: tuple[float, ...], quick: bool) -> GridSearchCV:
    """Make scikit-learn's multinomial logistic regression, cross-validated on the folds of the recursive models."""
    fold = stratified_folds(encoded(work).indicator, N_FOLDS, SEED)
    splits = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(N_FOLDS)]
    grid = {"C": [LOGISTIC * C for C in Cs]}
    return GridSearchCV(LogisticRegression(max_iter=MOST_STEPS), grid, scoring="f1_macro", cv=splits)


def sampled(work: Task, Cs: tuple[float, ...], quick: bool) -> CorrelatedMultinomialLogit:
    length = {"n_samples": 20, "n_warmup": 20} if quick else None
    return CorrelatedMultinomialLogit(work.structure, sampling=length, n_jobs=1, random_state=SEED)


METHODS: dict[str, Make] = {
    **{f"{m} variational": bayes(covariance=m, inference="variational") for m in ("M1", "M2", "M3")},
    **{f"{m} map": bayes(covariance=m) for m in ("M1", "M2", "M3")},
    **{f"{m} flat": bayes(flat=True, covariance=m) for m in ("M1", "M2", "M3")},
    **{f"{m} map, logistic": bayes(covariance=m, likelihood="logistic") for m in ("M1", "M3")},
    "M3 flat, logistic": bayes(flat=True, covariance="M3", likelihood="logistic"),
    SAMPLED: sampled,
    PEER: logistic,
    "RecursiveSVC, cv": recursive(RecursiveSVC, 1.0),
    "RecursiveLogisticRegression, cv": recursive(RecursiveLogisticRegression, LOGISTIC),
}


def resplit(work: Task, number: int) -> Task:
    """Split all documents of a set again, stratified by class, with a random order within each class."""
    X, y = np.vstack([work.X, work.X_test]), np.concatenate([work.y, work.y_test])
    rng = np.random.default_rng(number)
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    n_test = len(work.y_test)
    unseen = np.zeros(len(y), bool)
    unseen[order[((np.arange(n_test) + rng.random()) * len(y) / n_test).astype(np.int64)]] = True
    scale = StandardScaler().fit(X[~unseen])  # standardise on the new training part
    X = scale.transform(X)
    return Task(X[~unseen], y[~unseen], X[unseen], y[unseen], work.structure)


def ready(data: str, options: argparse.Namespace) -> Task:
    """Return a data set; with --quick only some documents of texts, which have many classes."""
    work = task(data, options.cache, options.quick)
    if not options.quick or isinstance(work.X, np.ndarray):
        return work
    return work._replace(X=work.X[:QUICK_TEXTS], y=work.y[:QUICK_TEXTS])
