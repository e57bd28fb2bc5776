"""Which classifier, which label tree, which documents to evaluate on: what arguments of ``arbora classify`` mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.app.documents import Documents
from arbora.app.label_trees import check_labels, tree_of_labels
from arbora.classify import (
    HierarchicalBayesClassifier,
    MultinomialLogistic,
    OneVsRestLogistic,
    OneVsRestSVC,
    RecursiveLogisticRegression,
    RecursiveSVC,
    TopDownSVC,
)
from arbora.datasets.base import label_names
from arbora.structure import Hierarchy

# What cross-validation chooses for text with small classes; at equal cost the logistic loss regularises more.
COST = {"recursive-svm": 3.0, "recursive-lr": 30.0, "multinomial": 30.0, "flat": 3.0, "top-down": 3.0}
COUPLED = ("recursive-svm", "recursive-lr", "multinomial")
_LEAST = 2  # documents of a class of which one may be held out


class Wish(NamedTuple):
    """Which classifier is wanted."""

    model: str
    C: float | None
    coupling: float | None
    jobs: int
    seed: int

    @classmethod
    def from_arguments(cls, given: Mapping[str, Any]) -> Wish:
        """Pick what belongs here from all arguments."""
        return cls(*(given.get(name) for name in cls._fields))


def make_classifier(wish: Wish, structure: Hierarchy | None, multilabel: bool) -> Any:
    """Make the estimator that the arguments ask for; what it cannot do is told before any work.

    Examples
    --------
    >>> make_classifier(Wish("flat", None, None, 1, 0), None, False).C
    3.0
    """
    common: dict[str, Any] = {"structure": structure, "n_jobs": wish.jobs, "verbose": 1}
    if wish.model == "bayes":
        if wish.C is not None:
            raise ValueError(
                "--model bayes has no C: it learns from the documents how far classes may differ"
            )
        return HierarchicalBayesClassifier(likelihood="logistic" if multilabel else "softmax", **common)
    if wish.model == "multinomial" and multilabel:
        raise ValueError(
            "--model multinomial means one label a document, and there are several: use another model"
        )
    common["random_state"] = wish.seed
    C = COST[wish.model] if wish.C is None else wish.C
    if wish.coupling is not None:
        if wish.model not in COUPLED:
            raise ValueError(f"--model {wish.model} has no coupling; {', '.join(COUPLED)} have one")
        common["coupling"] = wish.coupling
    makers: dict[str, Callable[..., Any]] = {
        "recursive-svm": RecursiveSVC,
        "recursive-lr": RecursiveLogisticRegression,
        "multinomial": MultinomialLogistic,
        "flat": OneVsRestSVC,
        "top-down": TopDownSVC,
    }
    return makers[wish.model](C, **common)


def make_baseline(wish: Wish, structure: Hierarchy | None, multilabel: bool) -> Any:
    """Make a flat model of the same kind and cost; None where the model is flat itself.

    Examples
    --------
    >>> tree = Hierarchy.from_paths(["a/b", "a/c"])
    >>> type(make_baseline(Wish("top-down", 3.0, None, 1, 0), tree, False)).__name__
    'OneVsRestSVC'
    """
    if structure is None or wish.model == "flat":
        return None
    common: dict[str, Any] = {"n_jobs": wish.jobs, "random_state": wish.seed, "verbose": 1}
    C = COST.get(wish.model, 30.0) if wish.C is None else wish.C
    if wish.model in ("bayes", "multinomial") and not multilabel:
        return MultinomialLogistic(C, **common)
    logistic = wish.model in ("recursive-lr", "bayes")
    return (OneVsRestLogistic if logistic else OneVsRestSVC)(C, **common)


def find_hierarchy(documents: Documents, hierarchy: str, format: str) -> Hierarchy | None:
    """Hierarchy of the labels: from a file, from folders or from labels that are paths; None for flat labels."""
    labels = label_names(documents.y)
    if len(labels) < 2 and not documents.multilabel:
        raise ValueError(f"all documents of {documents.name} are labelled {labels[0]!r}: give two classes")
    if hierarchy == "none":
        return None
    if hierarchy != "auto":
        tree = Hierarchy.read(hierarchy, format=format)
    elif documents.hierarchy is not None:
        tree = documents.hierarchy
    else:
        return tree_of_labels(documents.y)
    check_labels(documents, tree)
    return tree


def hold_out(y: Any, part: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mark a part of the documents of every class, never a whole class; fractions of a document are drawn by lot.

    Documents with several labels are drawn without regard to them.

    Examples
    --------
    >>> y = np.array(["a"] * 10 + ["b"] * 5 + ["c"], dtype=object)
    >>> marked = hold_out(y, 0.2, np.random.default_rng(0))
    >>> [int(marked[y == name].sum()) for name in "abc"]
    [2, 1, 0]
    """
    n = len(y)
    if isinstance(y, list):
        return np.asarray(rng.permutation(n) < int(part * n))
    codes = np.unique(y.astype(str), return_inverse=True)[1]
    counts = np.bincount(codes)
    wanted = np.minimum(np.floor(part * counts + rng.random(len(counts))), counts - 1).astype(np.int64)
    if not wanted.any():
        wanted = np.where(counts >= _LEAST, 1, 0)
    order = rng.permutation(n)
    order = order[np.argsort(codes[order], kind="stable")]
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(rank < wanted[codes])
