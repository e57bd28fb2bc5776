"""Classifiers of the demo: choose, train, compare by level and by class size, file sentences."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbora.arrays import Ints, Matrix
from arbora.classify import (
    HierarchicalBayesClassifier,
    OneVsRestSVC,
    RecursiveSVC,
    TopDownSVC,
    deciding_words,
)
from arbora.cli.demo.printing import WIDTH, print_paragraph, timed
from arbora.core.monitor import Progress
from arbora.datasets import Dataset
from arbora.metrics import compare, compare_by_class_size, compare_by_level, macro_f1, sign_test
from arbora.metrics.table import Table
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer


def recursive(C: float, *, structure: Hierarchy, coupling: float, **params: Any) -> RecursiveSVC:
    """Make a recursive classifier."""
    return RecursiveSVC(C, structure=structure, coupling=coupling, **params)


COSTS = (1.0, 3.0, 10.0)
COUPLINGS = (0.1, 0.3)
# The versions of each model; each is tried with every cost.
MODELS: dict[str, dict[str, Callable[..., Any]]] = {
    "flat": {"flat": OneVsRestSVC},
    "top-down": {"top-down": TopDownSVC},
    "recursive": {f"recursive, coupling {c:g}": partial(recursive, coupling=c) for c in COUPLINGS},
}
BAYES = "HBLR"
MAX_IN_BRANCH = 2000  # largest number of training documents of a branch that is hidden
MIN_MODULES = 3  # smallest family to show
MAX_FAMILIES = 8
FAR = 2.0  # a module is far if its distance from the family exceeds this multiple of the siblings' median
HELD_OUT = 0.2
SMALL = 5  # documents; the first row of the table by class size
SURE = 0.5
SIGNIFICANT = 0.05
_COARSE = 0.05  # duality gap that is small enough to compare scores
_BAR = 24


class Choice(NamedTuple):
    """The version of a model and the cost with the best score on the held-out documents."""

    make: Callable[..., Any]
    C: float


def score_costs(
    make: Callable[..., Any],
    hierarchy: Hierarchy,
    X: Any,
    y: Matrix,
    held_out: NDArray[np.bool_],
    progress: Progress,
) -> list[float]:
    """Return the macro-F1 on the held-out documents for each of `COSTS`, with coarse training on the others."""
    scores = []
    for C in COSTS:
        model = make(C, structure=hierarchy, tol=_COARSE, calibration=None, n_jobs=-1, random_state=0)
        model.fit(X[~held_out], y[~held_out])
        scores.append(macro_f1(y[held_out], model.predict(X[held_out])))
        progress.update()
    return scores


def choose(data: Dataset, X: Any) -> dict[str, Choice]:
    """Choose the version and C of each model on a fifth of the training documents, and print the scores."""
    held_out = np.random.default_rng(0).permutation(X.shape[0]) < HELD_OUT * X.shape[0]
    start = time.perf_counter()
    assert data.hierarchy is not None
    hierarchy = data.hierarchy
    makers = {label: make for versions in MODELS.values() for label, make in versions.items()}
    with Progress(len(makers) * len(COSTS), "choosing C", verbose=1) as progress:
        scores = {
            label: score_costs(make, hierarchy, X, data.y_train, held_out, progress)
            for label, make in makers.items()
        }
    columns = ("macro-F1", *(f"C = {C:g}" for C in COSTS))
    rows = tuple((label, *values) for label, values in scores.items())
    print(Table(columns, rows, ("", *["percent"] * len(COSTS))))
    print_paragraph(
        f"Measured on {held_out.sum():,} of the training documents after training on the others, in "
        f"{time.perf_counter() - start:.1f} s."
    )
    best = {name: max(versions, key=lambda label: max(scores[label])) for name, versions in MODELS.items()}
    return {name: Choice(makers[label], COSTS[int(np.argmax(scores[label]))]) for name, label in best.items()}


def largest_branch(hierarchy: Hierarchy, counts: Ints, max_documents: int) -> str:
    """Return the child of the root with the most documents up to a limit; if all exceed it, the smallest child.

    >>> tree = Hierarchy.from_paths(["top/a/1", "top/b/2", "top/c/3"])
    >>> largest_branch(tree, np.array([12, 5, 5, 4, 4, 3, 3]), max_documents=4)
    'top/b'
    """
    top = [node for node in np.flatnonzero(hierarchy.depth == 1).tolist() if counts[node]]
    small = [node for node in top if counts[node] <= max_documents]
    best = max(small, key=lambda node: counts[node]) if small else min(top, key=lambda node: counts[node])
    return str(hierarchy.names[best])


def train(data: Dataset, X: Any, choices: Mapping[str, Choice]) -> dict[str, Any]:
    """Train the chosen models; print duality gaps and times."""
    models: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name, choice in choices.items():
        with timed(seconds, name):
            model = choice.make(choice.C, structure=data.hierarchy, n_jobs=-1, random_state=0, verbose=1)
            models[name] = model.fit(X, data.y_train)
    couplings = {
        name: getattr(choice.make, "keywords", {}).get("coupling") for name, choice in choices.items()
    }
    rows = [
        (name, model.C, couplings[name], model.n_iter_, model.duality_gap_, seconds[name])
        for name, model in models.items()
    ]
    columns = ("model", "C", "coupling", "rounds", "duality gap", "seconds")
    print(Table(columns, tuple(rows), ("", "g", "g", "d", ".1e", ".1f")))
    return models


def train_bayes(data: Dataset, X: Any) -> HierarchicalBayesClassifier:
    """Train the Bayesian model, with a softmax over all classes; print its time."""
    seconds: dict[str, float] = {}
    with timed(seconds, BAYES):
        model = HierarchicalBayesClassifier(data.hierarchy, n_jobs=-1, verbose=1).fit(X, data.y_train)
    print_paragraph(
        f"HBLR, hierarchical Bayesian logistic regression, has no cost to choose. It estimated the precisions of "
        f"{len(model.tree_.names):,} nodes in {model.n_iter_} rounds and {seconds[BAYES]:.1f} seconds."
    )
    return model


def evaluate(data: Dataset, predictions: Mapping[str, Any]) -> None:
    """Print micro- and macro-F1 by level and over the classes."""
    assert data.hierarchy is not None
    for average in ("micro", "macro"):
        table = compare_by_level(data.y_test, predictions, data.hierarchy, average=average)
        shown = ("Level", "# Nodes", *(f"{name} {average.capitalize()}-F1" for name in predictions))
        rows = tuple(zip(*map(table.column, shown), strict=True))[1:]
        columns = (f"{average.capitalize()}-F1 at level", "nodes", *predictions)
        print(Table(columns, rows, ("d", ",d", *["percent"] * len(predictions))), end="\n\n")
    print(compare(data.y_test, predictions, baseline="flat"))


def show_gain(data: Dataset, flat: Matrix, recursive: Matrix) -> None:
    """Print the gain from the tree by class size, and a sign test."""
    table = compare_by_class_size(data.y_test, {"flat": flat, "recursive": recursive}, data.y_train)
    print(replace(table, note=""))
    names, n_train = np.unique(data.y_train, return_counts=True)
    n_small = np.isin(data.y_test, names[n_train <= SMALL]).sum()
    test = sign_test(data.y_test, recursive, flat)
    n_won, n_lost = int(test.statistic), int(test.n_pairs - test.statistic)
    verdict = "a significant difference" if test.p_value < SIGNIFICANT else "not a significant difference"
    print_paragraph(
        f"Only the recursive model is right on {n_won:,} test documents, only the flat model on {n_lost:,}: "
        f"{verdict} (sign test, p = {test.p_value:.2g}). The classes of the first row have only {n_small:,} test "
        "documents."
    )


def families(summary: Table) -> list[tuple[Any, ...]]:
    """Return the families of `node_summary`: name, documents, members, shared part, far members; most shared first.

    >>> rows = [("f", "top", 9.0, 1.0, 0.8), ("a", "f", 4.0, 1.0, np.nan), ("f/b", "f", 4.0, 3.0, np.nan),
    ...         ("c", "f", 1.0, 0.9, np.nan)]
    >>> families(Table(("Node", "Parent", "Rows", "Against siblings", "Shared"), rows))
    [('f', 9, 3, 0.8, 'b')]
    """
    names = ("Node", "Parent", "Rows", "Against siblings", "Shared")
    nodes, parents, rows, ratio, shared = (np.array(summary.column(name), object) for name in names)
    selected = []
    for i in np.argsort(-shared.astype(float), kind="stable").tolist():
        members = np.flatnonzero(parents == nodes[i])
        if len(members) >= MIN_MODULES:
            far = [str(nodes[k]).removeprefix(f"{nodes[i]}/") for k in members if ratio[k] > FAR]
            selected.append((nodes[i], int(rows[i]), len(members), shared[i], ", ".join(far)))
    return selected


def show_families(model: HierarchicalBayesClassifier) -> None:
    """Print what the Bayesian model has learned about the largest families."""
    shown = families(model.node_summary())
    largest = sorted(shown, key=lambda line: -line[1])[:MAX_FAMILIES]
    columns = ("family", "documents", "modules", "shared", "far from its family")
    lines = [line for line in shown if line in largest]
    print(Table(columns, tuple(lines), ("", ",d", "d", ".2f", "")))
    print_paragraph(
        f"The {len(lines)} largest families with {MIN_MODULES} modules or more. Shared: the part of the squared "
        f"weights of the modules that comes from the family. Far: the distance from the family is more than {FAR:g} "
        "times the median of its modules."
    )


def file_sentences(sentences: Sequence[str], vectorizer: LtcVectorizer, model: RecursiveSVC) -> None:
    """Print for each sentence its path with probabilities, the back-off node, and the deciding words."""
    X = vectorizer.transform(sentences)
    names, hierarchy = vectorizer.get_feature_names_out(), model.hierarchy_
    place = {name: i for i, name in enumerate(model.classes_.tolist())}
    best = [place[name] for name in model.predict(X).tolist()]
    paths, sure, proba = model.predict_path(X), model.predict_backoff(X, SURE), model.predict_node_proba(X)
    for i, sentence in enumerate(sentences):
        print(textwrap.fill(f'"{sentence}"', WIDTH, initial_indent="\n" if i else ""))
        if not X[i].nnz:
            print("  none of its words is in the corpus")
            continue
        steps = paths[i][1:]  # without the root
        room = max(len(str(node)) + 2 * depth for depth, node in enumerate(steps))
        for depth, (node, p) in enumerate(zip(steps, proba[i, hierarchy.encode(steps)], strict=True)):
            print(f"  {'  ' * depth + str(node):{room}}  {p:.2f}  {'#' * round(_BAR * p)}")
        print(f"  back-off at {SURE:g}: {sure[i]}")
        words = [
            f"{word} {c:+.2f}" for word, c in deciding_words(X[i], model.coef_[best[i]], names) if c >= 0.01
        ]
        print(textwrap.fill("  decided by: " + (", ".join(words) or "no single word"), WIDTH))
