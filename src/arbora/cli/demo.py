"""``arbora demo``: the whole way from raw text to filed sentences, on a corpus that every installation has.

The docstrings of the installed Python packages are filed into the tree of their modules by a flat, a top-down and a
recursive classifier, the one whose classes learn from their neighbours in the tree. The cost C of each, and how much
the recursive one shares, are chosen on a fifth of the training documents; the test documents are looked at once. A
Bayesian model of one branch, which has nothing to choose, tells which families of modules are of one kind.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from arbora._version import __version__
from arbora.classify import (
    HierarchicalBayesClassifier,
    OneVsRestSVC,
    RecursiveSVC,
    TopDownSVC,
    deciding_words,
)
from arbora.datasets import Dataset, load_python_docs
from arbora.infer import Progress
from arbora.metrics import compare, compare_by_class_size, compare_by_level, macro_f1, sign_test
from arbora.metrics.table import Table
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer

SENTENCES = (
    "Solve a large sparse system of linear equations by iteration",
    "Run the k-means algorithm from several random centroids",
    "Compose an email message with attachments and encode its headers",
)
COSTS = (1.0, 3.0, 10.0)
COUPLINGS = (0.1, 0.3)
# Of each model the versions that are tried, with every cost.
MODELS: dict[str, dict[str, Callable[..., Any]]] = {
    "flat": {"flat": OneVsRestSVC},
    "top-down": {"top-down": TopDownSVC},
    "recursive": {f"recursive, coupling {c:g}": partial(RecursiveSVC, coupling=c) for c in COUPLINGS},
}
BRANCH_WORDS, BRANCH_TOL = 60, 1e-2  # of the Bayesian model
FEWEST_MODULES = 3  # of a family that is shown
STRAYS = 2.0  # distance from the family over the median of the siblings from which on a module is named
HELD_OUT = 0.2
SMALL = 5  # documents: the first row of the table by class size
SURE = 0.5
SIGNIFICANT = 0.05
_COARSE = 0.05  # gap at which scores of different C can be told apart
_WIDTH = 88
_BAR = 24


class Choice(NamedTuple):
    """The version of a model and the cost that did best on the held-out documents."""

    make: Callable[..., Any]
    C: float


def documents_below(hierarchy: Hierarchy, labels: Sequence[Any]) -> NDArray[np.int64]:
    """Count the documents at or below each node.

    Examples
    --------
    >>> tree = Hierarchy.from_paths(["a/b", "a/c"])
    >>> documents_below(tree, ["a", "a/b", "a/b"])
    array([3, 2, 0])
    """
    closed = hierarchy.close(hierarchy.indicator([[label] for label in labels]))
    return np.asarray(closed.sum(axis=0), dtype=np.int64).ravel()


def draw_top(hierarchy: Hierarchy, counts: NDArray[np.int64], depth: int, children: int) -> str:
    """Draw the upper levels of a tree, the branches with the most documents first.

    Examples
    --------
    >>> tree = Hierarchy.from_paths(["a/b", "a/c", "a/c/d"])
    >>> print(draw_top(tree, np.array([5, 1, 4, 2]), depth=1, children=2))
    a (5)
    ├── a/c (4)
    └── a/b (1)
    """
    edges = hierarchy.edges[hierarchy.depth[hierarchy.edges[:, 1]] <= depth]
    edges = edges[np.argsort(-counts[edges[:, 1]], kind="stable")]
    roots = hierarchy.root_ids[np.argsort(-counts[hierarchy.root_ids], kind="stable")]
    names = hierarchy.names
    pairs = zip(names[edges[:, 0]].tolist(), names[edges[:, 1]].tolist(), strict=True)
    top = Hierarchy.from_edges(list(pairs), nodes=names[roots].tolist())
    return top.format_tree(
        max_children=children, counts=dict(zip(names.tolist(), counts.tolist(), strict=True))
    )


def score_costs(
    make: Callable[..., Any],
    hierarchy: Hierarchy,
    X: Any,
    y: NDArray[Any],
    held_out: NDArray[np.bool_],
    progress: Progress,
) -> list[float]:
    """Macro-F1 on the held-out documents for each of `COSTS`, with coarse training on the others."""
    scores = []
    for C in COSTS:
        model = make(C, structure=hierarchy, tol=_COARSE, calibration=None, n_jobs=-1, random_state=0)
        model.fit(X[~held_out], y[~held_out])
        scores.append(macro_f1(y[held_out], model.predict(X[held_out])))
        progress.update()
    return scores


def smallest_branch(hierarchy: Hierarchy, counts: NDArray[np.int64]) -> str | None:
    """Child of a root with the fewest documents, of those with families below them; None without one.

    Examples
    --------
    >>> tree = Hierarchy.from_paths(["top/a/f/1", "top/a/f/2", "top/a/f/3", "top/b/4"])
    >>> smallest_branch(tree, documents_below(tree, ["top/a/f/1", "top/a/f/2", "top/b/4"]))
    'top/a'
    """

    def is_wide(name: Any) -> bool:
        return any(len(hierarchy.children(child)) >= FEWEST_MODULES for child in hierarchy.children(name))

    top = np.flatnonzero((hierarchy.depth == 1) & (counts > 0))
    wide = [node for node in top.tolist() if is_wide(hierarchy.names[node])]
    return str(hierarchy.names[min(wide, key=lambda node: counts[node])]) if wide else None


def families(summary: Table) -> list[tuple[Any, ...]]:
    """Families of a node summary: name, documents, members, shared part, members that stray; most shared first.

    Parameters
    ----------
    summary : Table
        Of `HierarchicalBayesClassifier.node_summary`.

    Examples
    --------
    >>> rows = [("f", "top", 9.0, 1.0, 0.8), ("a", "f", 4.0, 1.0, np.nan), ("b", "f", 4.0, 3.0, np.nan),
    ...         ("c", "f", 1.0, 0.9, np.nan)]
    >>> families(Table(("Node", "Parent", "Rows", "Against siblings", "Shared"), rows))
    [('f', 9, 3, 0.8, 'b')]
    """
    names = ("Node", "Parent", "Rows", "Against siblings", "Shared")
    nodes, parents, rows, ratio, shared = (np.array(summary.column(name), object) for name in names)
    found = []
    for i in np.argsort(-shared.astype(float), kind="stable").tolist():
        members = np.flatnonzero(parents == nodes[i])
        if len(members) >= FEWEST_MODULES:
            strays = [str(nodes[member]) for member in members if ratio[member] > STRAYS]
            found.append((nodes[i], int(rows[i]), len(members), shared[i], ", ".join(strays)))
    return found


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def _heading(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}", flush=True)


def _say(text: str) -> None:
    print(textwrap.fill(text, _WIDTH), flush=True)


def _show_corpus(data: Dataset, seconds: float) -> None:
    hierarchy = data.hierarchy
    n_train, n_test = len(data.texts_train), len(data.texts_test)
    levels = ", ".join(str(len(nodes)) for nodes in hierarchy.levels)
    _say(
        f"{n_train + n_test:,} docstrings of the Python standard library and of the installed numpy, scipy and "
        f"scikit-learn, each labelled by the path of its module: {n_train:,} to train on, {n_test:,} to test. "
        f"{len(set(data.y)):,} classes in a tree of {hierarchy.n_nodes:,} nodes ({levels} by level). "
        f"Read in {seconds:.1f} s."
    )
    counts = documents_below(hierarchy, data.y)
    print(f"\n{draw_top(hierarchy, counts, depth=2, children=4)}", flush=True)


def _choose(data: Dataset, X: Any) -> dict[str, Choice]:
    """Choose the version and C of each model on a fifth of the training documents, and show the scores."""
    held_out = np.random.default_rng(0).permutation(X.shape[0]) < HELD_OUT * X.shape[0]
    start = time.perf_counter()
    makers = {label: make for versions in MODELS.values() for label, make in versions.items()}
    with Progress(len(makers) * len(COSTS), "choosing C", verbose=1) as progress:
        scores = {
            label: score_costs(make, data.hierarchy, X, data.y_train, held_out, progress)
            for label, make in makers.items()
        }
    columns = ("macro-F1", *(f"C = {C:g}" for C in COSTS))
    rows = tuple((label, *values) for label, values in scores.items())
    print(Table(columns, rows, ("", *["percent"] * len(COSTS))))
    _say(
        f"Measured on {held_out.sum():,} of the training documents after training on the others, in "
        f"{time.perf_counter() - start:.1f} s."
    )
    best = {name: max(versions, key=lambda label: max(scores[label])) for name, versions in MODELS.items()}
    return {name: Choice(makers[label], COSTS[int(np.argmax(scores[label]))]) for name, label in best.items()}


def _train(data: Dataset, X: Any, choices: Mapping[str, Choice]) -> dict[str, Any]:
    """Train every model as chosen, and show its certificate and its time."""
    models: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name, choice in choices.items():
        with _timed(seconds, name):
            model = choice.make(choice.C, structure=data.hierarchy, n_jobs=-1, random_state=0, verbose=1)
            models[name] = model.fit(X, data.y_train)
    rows = tuple(
        (name, model.C, getattr(model, "coupling", None), model.n_iter_, model.duality_gap_, seconds[name])
        for name, model in models.items()
    )
    columns = ("model", "C", "coupling", "sweeps", "duality gap", "seconds")
    print(Table(columns, rows, ("", "g", "g", "d", ".1e", ".1f")))
    _say("The gap is certified: the objective is at most this share above its smallest value.")
    return models


def _evaluate(data: Dataset, predictions: Mapping[str, Any]) -> None:
    for average in ("micro", "macro"):
        table = compare_by_level(data.y_test, predictions, data.hierarchy, average=average)
        print(replace(table, rows=table.rows[1:], note=""), end="\n\n")
    print(compare(data.y_test, predictions, baseline="flat"))
    _say("By level, a document counts at its own node and at all above; level 1, the root, is left out.")


def _show_gain(data: Dataset, flat: NDArray[Any], recursive: NDArray[Any]) -> None:
    """Show what classes of each size gain from the tree, and on how many documents that rests."""
    table = compare_by_class_size(data.y_test, {"flat": flat, "recursive": recursive}, data.y_train)
    print(replace(table, note=""))
    names, n_train = np.unique(data.y_train, return_counts=True)
    n_small = np.isin(data.y_test, names[n_train <= SMALL]).sum()
    test = sign_test(data.y_test, recursive, flat)
    n_won, n_lost = int(test.statistic), int(test.n_pairs - test.statistic)
    verdict = "more than luck" if test.p_value < SIGNIFICANT else "no more than luck"
    _say(
        f"Recursive alone is right on {n_won:,} test documents, flat alone on {n_lost:,}: {verdict} (sign test, "
        f"p = {test.p_value:.2g}). The classes of the first row have {n_small:,} test documents in all: a few "
        "of them move it."
    )


def _show_families(data: Dataset, X: Any, branch: str) -> None:
    """Fit a Bayesian model to one branch and show what it has learned about its families."""
    start = time.perf_counter()
    y = np.asarray(data.y_train, object)
    below = np.isin(y, [branch, *data.hierarchy.descendants(branch)])
    X = X[below]
    common = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")[:BRANCH_WORDS]
    X = StandardScaler().fit_transform(X[:, np.sort(common)].toarray())
    model = HierarchicalBayesClassifier(data.hierarchy, tol=BRANCH_TOL, n_jobs=-1).fit(X, y[below])
    columns = ("family", "documents", "modules", "shared", "far from its family")
    # What the whole branch has in common cancels in a softmax over its modules alone: it is left out.
    lines = [line for line in families(model.node_summary()) if line[0] != branch]
    print(Table(columns, lines, ("", ",d", "d", ".2f", "")))
    _say(
        f"Learned from {X.shape[0]:,} training documents by their {X.shape[1]} most frequent stems, in "
        f"{time.perf_counter() - start:.1f} s; there is nothing to choose. Shared: the part of the squared weights "
        f"of its modules that is the family's. Far: more than {STRAYS:g} times as far from the family as half of "
        "the modules."
    )


def _file(sentences: Sequence[str], vectorizer: LtcVectorizer, model: RecursiveSVC) -> None:
    """Show for each sentence its path with probabilities, the node that is sure enough, and the words."""
    X = vectorizer.transform(sentences)
    names, hierarchy = vectorizer.get_feature_names_out(), model.hierarchy_
    best = model.decision_function(X).argmax(axis=1)
    paths, sure, proba = model.predict_path(X), model.predict_backoff(X, SURE), model.predict_proba(X)
    for i, sentence in enumerate(sentences):
        print(textwrap.fill(f'"{sentence}"', _WIDTH))
        if not X[i].nnz:
            print("  none of its words is in the corpus\n")
            continue
        steps = paths[i][1:]  # the root says nothing
        room = max(len(str(node)) + 2 * depth for depth, node in enumerate(steps))
        for depth, (node, p) in enumerate(zip(steps, proba[i, hierarchy.encode(steps)], strict=True)):
            print(f"  {'  ' * depth + str(node):{room}}  {p:.2f}  {'#' * round(_BAR * p)}")
        print(f"  back-off at {SURE:g}: {sure[i]}")
        words = [
            f"{word} {c:+.2f}" for word, c in deciding_words(X[i], model.coef_[best[i]], names) if c >= 0.01
        ]
        print(textwrap.fill("  decided by: " + (", ".join(words) or "no single word"), _WIDTH), end="\n\n")


def run(sentences: Sequence[str] = ()) -> None:
    """Run the demonstration and print what happens.

    Parameters
    ----------
    sentences : sequence of str
        What is filed into the tree at the end; by default three examples.
    """
    start = time.perf_counter()
    seconds: dict[str, float] = {}
    print(f"Arbora {__version__}: file documentation into the tree of modules it comes from")

    _heading("Read the corpus")
    with _timed(seconds, "read"):
        data = load_python_docs()
    _show_corpus(data, seconds["read"])

    _heading("Turn text into numbers")
    with _timed(seconds, "vectorise"):
        vectorizer = LtcVectorizer(min_df=2)
        X_train = vectorizer.fit_transform(data.texts_train)
        X_test = vectorizer.transform(data.texts_test)
    _say(
        f"{X_train.shape[1]:,} stems that occur in at least 2 training documents, ltc weights, rows of length 1. "
        f"Done in {seconds['vectorise']:.1f} s."
    )

    _heading("Choose cost and coupling, without looking at test documents")
    choices = _choose(data, X_train)

    _heading(f"Train on all {X_train.shape[0]:,} training documents")
    models = _train(data, X_train, choices)

    _heading(f"Evaluate on {X_test.shape[0]:,} test documents")
    predictions = {name: model.predict(X_test) for name, model in models.items()}
    _evaluate(data, predictions)

    _heading("Where did the tree help? By the number of training documents of a class")
    _show_gain(data, predictions["flat"], predictions["recursive"])

    branch = smallest_branch(data.hierarchy, documents_below(data.hierarchy, data.y_train))
    if branch is not None:
        _heading(f"Which families share? What a Bayesian model learns about the branch {branch}")
        _show_families(data, X_train, branch)

    _heading("File new sentences (recursive model)")
    _file(sentences or SENTENCES, vectorizer, models["recursive"])
    print(f'All in {time.perf_counter() - start:.0f} s. File your own: arbora demo "a sentence" ...')
