"""Data sets of the classification benchmarks: features, labels and label structure.

Texts get `ltc` weights learned on the training part. Measurements are standardised with the mean and standard
deviation of the training part, and missing values are replaced by the mean. Labels are those of the data set; no
ancestors are added, neither for training nor for evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from arbora.datasets import load
from arbora.datasets.base import Dataset
from arbora.structure import Hierarchy, LabelGraph
from arbora.text import LtcTransformer, LtcVectorizer

FEWEST_TOGETHER = 5  # documents with both labels that make an edge
TEXT_CS = 0.3, 1.0, 3.0, 10.0, 30.0, 100.0
MEASUREMENT_CS = 0.01, 0.03, 0.1, 0.3, 1.0, 3.0
_QUICK = 800, 300  # training and test rows with --quick


class Task(NamedTuple):
    """A data set: rows, labels by name, and the structure of the labels."""

    X: Any
    y: Any  # one name per row, or a list of names per row
    X_test: Any
    y_test: Any
    structure: Hierarchy | LabelGraph

    @property
    def multilabel(self) -> bool:
        """Whether a row may have several labels."""
        return not isinstance(self.y, np.ndarray)


class Source(NamedTuple):
    """How to load a data set, notes, and limits of the search."""

    title: str
    name: str
    features: Callable[[Dataset], tuple[Any, Any]]
    note: str = ""
    options: tuple[tuple[str, Any], ...] = ()  # arguments of `load`
    first_label: bool = False  # use one label per row, although a few rows have more
    most_searched: int | None = None  # rows for the choice of C, if all rows would take a day
    flat_cost: tuple[str, ...] = ()  # methods that use the cost of flat training
    # Methods that use the choice of others, because a search would take hours
    unsearched: tuple[str, ...] = ()

    @property
    def Cs(self) -> tuple[float, ...]:
        """Costs to choose from; texts of unit length need larger costs than standardised measurements."""
        return MEASUREMENT_CS if self.features is standardised else TEXT_CS


def weighted_counts(data: Dataset) -> tuple[Any, Any]:
    ltc = LtcTransformer().fit(data.X_train)
    return ltc.transform(data.X_train), ltc.transform(data.X_test)


def weighted_texts(data: Dataset) -> tuple[Any, Any]:
    ltc = LtcVectorizer(min_df=2)
    return ltc.fit_transform(data.texts_train), ltc.transform(data.texts_test)


def standardised(data: Dataset) -> tuple[Any, Any]:
    X, X_test = (X.toarray() if sp.issparse(X) else X for X in (data.X_train, data.X_test))
    scale = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler()).fit(X)
    return scale.transform(X).astype(np.float32), scale.transform(X_test).astype(np.float32)


def cosine_graph(graph: LabelGraph, y: list[list[str]]) -> LabelGraph:
    """Scale the co-occurrence counts of a label graph.

    An edge between labels a and b that occur together in n_ab training documents has the weight n_ab / sqrt(n_a n_b).
    All weights are then divided by the mean weighted degree, so that the edges of an average node weigh as much as
    the ridge.
    """
    size = dict.fromkeys(graph.names.tolist(), 0)
    for names in y:
        for name in names:
            size[name] += 1
    count = np.array([size[name] for name in graph.names.tolist()], dtype=np.float64)
    kept = graph.weights >= FEWEST_TOGETHER
    edges = graph.edges[kept]
    weights = graph.weights[kept] / np.sqrt(count[edges].prod(axis=1))
    return LabelGraph(graph.names, edges, weights * len(graph.names) / (2 * weights.sum()))


_YEAST = "trained on the official training and validation parts together"
_OWN_GRAPH = (
    f"label graph: an edge joins labels with at least {FEWEST_TOGETHER} common training documents, weighted by the "
    "cosine of their documents and scaled to a mean degree of one"
)
_SHARE = "C and coupling chosen on a third of the training documents with one fold held out"
SOURCES = {
    "imclef07a": Source("CLEF (imclef07a)", "imclef07a", standardised, "the published data set"),
    "imclef07d": Source("imclef07d", "imclef07d", standardised),
    "news20": Source(
        "NEWS20", "news20", weighted_counts,
        "published results use a subset (11,260 / 7,505 documents)", (("texts", False),),
    ),
    "lshtc_small": Source(
        "LSHTC-small, task 2", "lshtc_small", weighted_counts,
        "published results are for task 1 (trained on crawled pages), whose training file is not available; tree, "
        "classes and test documents are the same, but the training documents here are descriptions of pages",
    ),
    "rcv1_dev2316": Source(
        "RCV1 subset", "rcv1_dev2316", weighted_counts,
        "1,544 training documents; published results use 23,149",
    ),
    "eurlex57k": Source(
        "EURLEX57K", "eurlex57k", weighted_texts,
        f"DAG; {_SHARE}; recursive models and HierarchicalCostClassifier use the cost of OneVsRestSVC (ten times "
        "as much for the logistic loss) and choose only coupling and threshold", most_searched=15_000,
        flat_cost=(
            "RecursiveSVC", "RecursiveSVC, as published", "RecursiveLogisticRegression", "HierarchicalCostClassifier",
        ),
    ),
    "wordnet_gloss": Source(
        "WordNet glosses", "wordnet_gloss", weighted_texts,
        "DAG, labels at inner nodes; only the first label of a document is used (4% of the documents have another, "
        "which is dropped in both parts), so that single-label classifiers apply; "
        f"{_SHARE}; ◦: not searched; trained with the cost of OneVsRestSVC (ten times as much for the logistic loss) "
        "and the coupling of RecursiveSVC",
        first_label=True, most_searched=17_000,
        unsearched=(
            "RecursiveLogisticRegression", "HierarchicalSVM", "HierarchicalCostClassifier", "HiClass",
        ),
    ),
    "enron_hmc": Source("Enron", "enron_hmc", weighted_counts),
    "cellcycle_fun": Source("Yeast cellcycle, FunCat", "yeast_funcat_go/cellcycle_fun", standardised, _YEAST),
    "seq_fun": Source("Yeast seq, FunCat", "yeast_funcat_go/seq_fun", standardised, _YEAST),
    "cellcycle_go": Source("Yeast cellcycle, GO", "yeast_funcat_go/cellcycle_go", standardised, f"DAG; {_YEAST}"),
    "bibtex": Source("Bibtex", "bibtex", weighted_counts, _OWN_GRAPH),
    "delicious": Source("Delicious", "delicious", weighted_counts, f"{_OWN_GRAPH}; {_SHARE}", most_searched=4_300),
}  # fmt: skip


def _with_validation(data: Dataset) -> Dataset:
    part = data.splits["validation"]
    data.X_train = np.vstack([data.X_train, part.X])
    data.y_train = [*data.y_train, *part.y]
    return data


def take(y: Any, rows: np.ndarray) -> Any:
    """Select the labels of some rows."""
    return y[rows] if isinstance(y, np.ndarray) else [y[row] for row in rows.tolist()]


def _make(source: Source, quick: bool) -> Task:
    data = load(source.name, **dict(source.options))
    if source.name.startswith("yeast"):
        data = _with_validation(data)
    X, X_test = source.features(data)
    y, y_test = data.y_train, data.y_test
    if source.first_label:
        y, y_test = (np.array([names[0] for names in part], dtype=object) for part in (y, y_test))
    structure = data.hierarchy if data.hierarchy is not None else cosine_graph(data.graph, y)
    if quick:
        rng = np.random.default_rng(0)
        seen, unseen = (
            np.sort(rng.permutation(X.shape[0])[:most]) for X, most in zip((X, X_test), _QUICK, strict=True)
        )
        X, y, X_test, y_test = X[seen], take(y, seen), X_test[unseen], take(y_test, unseen)
    return Task(X, y, X_test, y_test, structure)


def task(name: str, folder: Path, quick: bool = False) -> Task:
    """Return a data set with its features; they are cached in a folder."""
    path = folder / "tasks" / f"{name}.joblib"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        joblib.dump(_make(SOURCES[name], quick), partial)
        partial.replace(path)
    return joblib.load(path)
