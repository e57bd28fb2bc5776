"""First contact, topics: `TopicModel` with no arguments beside NMF and LDA, on the same texts.

    python -m benchmarks.first_contact                  # everything; resumes an interrupted run
    python -m benchmarks.first_contact --only r8 docs --quick

The number of topics found, coherence (NPMI) and diversity of the words, agreement with known classes (NMI), empty and
cloned topics, time; whether one half of the words of a document predicts the topic of the other half as often as the
probabilities say; and whether topics in trees and over time are ever empty or clones of each other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from arbora import TopicModel
from arbora.app.answers import topic_means
from arbora.app.contents.words import typical_words
from arbora.app.text_rows import text_language
from arbora.datasets import load, load_python_docs
from arbora.discover import DirichletProcessVMFMixture
from arbora.discover._mixture.word_halves import draw_halves
from arbora.metrics import clustering_report
from arbora.metrics.table import Table
from arbora.text import LtcVectorizer
from benchmarks._common.cells import DONE, Cells, one_thread, parse, summary
from benchmarks._common.report import published

SECTION = "First contact: topics of texts with no arguments"
SEEDS, QUICK_ROWS = 2, 600
NUMBERS = 5, 10, 20, 40, 60  # fixed numbers of topics
METHODS = "TopicModel", "NMF", "LDA"
STRUCTURES = {
    "bayes, 20": {"n_topics": 20, "model": "bayes"},
    "tree, 4 x 4": {"n_topics": (4, 4)},
    "over time, 12": {"n_topics": 12, "over_time": 10},
    "Dirichlet process, 30": None,
}
STRUCTURED = "r8", "docs", "sotu", "nips"  # sets for these
WORDS, CLONES, BINS = 10, 0.95, 10
SET_ASIDE = "nips", "wap", "tr31"

EXPLANATION = f"""\
`python -m benchmarks.first_contact`: `TopicModel()` chooses the number of topics; NMF (tf-idf) and LDA (counts) of
scikit-learn, with English stop words and words of at least two documents, get that number. Means over {SEEDS} seeds
(LDA and fixed numbers: one); seconds are processor seconds. NPMI is that of the {WORDS} first words of a topic in the
documents themselves (stems; without phrases), diversity the share of these words that are different. "best K" is the
highest NMI with the classes among `TopicModel(K)`, K = {", ".join(map(str, NUMBERS))} and the number of classes, the
best of seven looks at the classes. The texts of the CLUTO sets are made of their counts. The start of the fits was
chosen on the other sets; {", ".join(SET_ASIDE)} were set aside, and measured once at the end.
A word of fewer than 5% of the documents of a topic is not listed, so that lists may be shorter than {WORDS} words;
"of {WORDS}" is the NPMI of {WORDS} words of every topic.
"""


class Collection(NamedTuple):
    """Texts, and classes if they are known."""

    texts: list[str]
    classes: np.ndarray | None


def from_counts(name: str) -> Collection:
    """Write the counts of a set as texts of made-up words."""
    data = load(name)
    X = sp.csr_array(data.X)
    words = np.array([f"w{column}x" for column in range(X.shape[1])])
    rng, texts = np.random.default_rng(0), []
    for row in range(X.shape[0]):
        part = slice(X.indptr[row], X.indptr[row + 1])
        tokens = np.repeat(words[X.indices[part]], X.data[part].astype(int))
        texts.append(" ".join(rng.permutation(tokens)))
    return Collection(texts, np.array([str(label) for label in data.y]))


def reuters(subset: str) -> Collection:
    data = load("reuters21578", subset=subset)
    return Collection(list(data.texts), np.array([str(label) for label in data.y]))


def python_docs() -> Collection:
    data = load_python_docs()
    return Collection(list(data.texts), np.array([str(label).split(".")[0] for label in data.y]))


def plain(name: str) -> Collection:
    return Collection(list(load(name).texts), None)


SETS: dict[str, tuple[str, Callable[[], Collection]]] = {
    "r8": ("Reuters R8", lambda: reuters("r8")),
    "r52": ("Reuters R52", lambda: reuters("r52")),
    "docs": ("Python docs", python_docs),
    "sotu": ("State of the Union", lambda: plain("sotu")),
    "classic": ("CLUTO classic", lambda: from_counts("cluto_classic")),
    "la1": ("CLUTO la1", lambda: from_counts("cluto_la1")),
    "re0": ("CLUTO re0", lambda: from_counts("cluto_re0")),
    "k9": ("K9", lambda: from_counts("k9_k1a_k1b")),
    "nips": ("NIPS (set aside)", lambda: plain("nips_1987_1999")),
    "wap": ("CLUTO wap (set aside)", lambda: from_counts("cluto_wap")),
    "tr31": ("CLUTO tr31 (set aside)", lambda: from_counts("cluto_tr31")),
}


def read(name: str, quick: bool) -> Collection:
    texts, classes = SETS[name][1]()
    if quick:
        ids = np.sort(np.random.default_rng(0).permutation(len(texts))[:QUICK_ROWS])
        texts = [texts[row] for row in ids.tolist()]
        classes = None if classes is None else classes[ids]
    return Collection(texts, classes)


class Judge:
    """Coherence and diversity of words, in the documents of a collection; words are compared by their stems."""

    def __init__(self, texts: list[str]) -> None:
        language = text_language(texts)
        vectorizer = LtcVectorizer(stem=None if language == "none" else language, min_df=2)
        self.seen = sp.csc_array(vectorizer.fit_transform(texts))
        self.analyze, self.columns = vectorizer.build_analyzer(), vectorizer.vocabulary_

    def stems(self, words: list[str]) -> list[int]:
        """Return the columns of words, each once."""
        found = [self.columns.get(term) for word in words for term in self.analyze(word)[:1]]
        return list(dict.fromkeys(column for column in found if column is not None))

    def coherence(self, topics: list[list[str]]) -> float:
        """Return the mean NPMI of the pairs of words of each topic."""
        return float(np.mean([self._npmi(self.stems(words)) for words in topics]))

    def _npmi(self, columns: list[int]) -> float:
        there = self.seen[:, columns].toarray() > 0
        values = []
        for i, j in combinations(range(len(columns)), 2):
            both, one, other = (there[:, i] & there[:, j]).mean(), there[:, i].mean(), there[:, j].mean()
            values.append(-1.0 if both == 0 else np.log(both / (one * other)) / -np.log(min(both, 1 - 1e-9)))
        return float(np.mean(values)) if values else 0.0

    def diversity(self, topics: list[list[str]]) -> float:
        """Return the share of the listed words that are different."""
        listed = [column for words in topics for column in self.stems(words)]
        return len(set(listed)) / max(1, len(listed))


def n_empty_and_clones(labels: np.ndarray, means: np.ndarray) -> tuple[int, int]:
    """Count topics without documents, and topics whose mean nearly is that of an earlier one."""
    n_empty = len(means) - len(np.unique(labels[labels >= 0]))
    unit = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    return n_empty, int((np.triu(unit @ unit.T, 1).max(axis=0) > CLONES).sum())


def nmi(classes: np.ndarray | None, labels: np.ndarray) -> float:
    return float("nan") if classes is None else float(clustering_report(classes, labels).nmi)


def measure_auto(name: str, quick: bool) -> dict[str, Any]:
    texts, classes = read(name, quick)
    judge, found = Judge(texts), []
    TopicModel().fit(texts[:500])  # compiles
    TopicModel(2).fit(texts[:500])
    for seed in range(SEEDS):
        start = time.process_time()
        model = TopicModel(random_state=seed, n_jobs=1).fit(texts)
        seconds = time.process_time() - start
        start = time.process_time()
        TopicModel(model.n_topics_, random_state=seed, n_jobs=1).fit(texts)
        fixed = time.process_time() - start
        words = model.top_words(WORDS, phrases=False)
        ten = typical_words(model.forms_, WORDS, phrases=False, least_share=0.0)
        all_words = [[word for word, _ in some] for some in ten]
        empty, clones = n_empty_and_clones(model.labels_, topic_means(model.estimator_))
        scores = judge.coherence(words), judge.diversity(words), nmi(classes, model.labels_)
        listed = float(np.mean([len(some) for some in words]))
        counts = empty, clones, seconds, seconds / fixed, listed, judge.coherence(all_words)
        found.append([model.n_topics_, *scores, *counts])
    names = [
        "n_topics",
        "npmi",
        "diversity",
        "nmi",
        "empty",
        "clones",
        "seconds",
        "ratio",
        "listed",
        "npmi_of_all",
    ]
    numbers = [float(value) for value in np.mean(found, axis=0)]
    chosen = [int(one[0]) for one in found]
    return {**dict(zip(names, numbers, strict=True)), "n_each": chosen, "words": model.top_words(6)}


def measure_other(name: str, method: str, n_each: list[int], quick: bool) -> dict[str, Any]:
    texts, classes = read(name, quick)
    judge, found = Judge(texts), []
    options = {"min_df": 2, "stop_words": "english"}
    for seed, n_topics in enumerate(n_each if method == "NMF" else n_each[:1]):
        start = time.process_time()
        if method == "NMF":
            vectorizer: Any = TfidfVectorizer(**options)
            model: Any = NMF(n_topics, random_state=seed, init="nndsvda", max_iter=300)
        else:
            vectorizer, model = (
                CountVectorizer(**options),
                LatentDirichletAllocation(n_topics, random_state=seed),
            )
        shares = model.fit_transform(vectorizer.fit_transform(texts))
        seconds = time.process_time() - start
        names = vectorizer.get_feature_names_out()
        words = [names[np.argsort(-row)[:WORDS]].tolist() for row in model.components_]
        labels = shares.argmax(axis=1)
        empty, clones = n_empty_and_clones(labels, model.components_)
        scores = judge.coherence(words), judge.diversity(words), nmi(classes, labels)
        found.append([n_topics, *scores, empty, clones, seconds])
    names = "n_topics", "npmi", "diversity", "nmi", "empty", "clones", "seconds"
    return dict(zip(names, [float(value) for value in np.mean(found, axis=0)], strict=True))


def measure_fixed(name: str, quick: bool) -> dict[str, Any]:
    """NMI of fixed numbers of topics."""
    texts, classes = read(name, quick)
    if classes is None:
        return {"nmi": float("nan"), "n_topics": 0}
    numbers = sorted({*NUMBERS, len(set(classes.tolist()))} & set(range(2, 101)))
    found = {k: nmi(classes, TopicModel(k, n_jobs=1).fit(texts).labels_) for k in numbers}
    best = max(found, key=lambda k: found[k])
    return {"nmi": found[best], "n_topics": best, "all": {str(k): value for k, value in found.items()}}


def measure_reliability(name: str, quick: bool) -> dict[str, Any]:
    """Distance of confidence and accuracy when half A predicts half B, for held-out documents; before and after."""
    texts, _ = read(name, quick)
    found = []
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(texts))
        train, test = np.split(order, [len(texts) // 2])
        model = TopicModel(random_state=seed, n_jobs=1).fit([texts[row] for row in train])
        mixture, rows = (
            model.estimator_,
            sp.csr_array(model.vectorizer_.transform([texts[row] for row in test])),
        )
        halves = draw_halves(rows, np.arange(rows.shape[0]), np.random.default_rng(seed))
        right = mixture.predict(halves.A) == mixture.predict(halves.B)
        errors = []
        for temperature in (1.0, mixture.calibration_temperature_):
            mixture.calibration_temperature_ = temperature
            confidence = mixture.predict_proba(halves.A).max(axis=1)
            bins = np.array_split(np.argsort(confidence), BINS)
            errors.append(np.mean([abs(confidence[ids].mean() - right[ids].mean()) for ids in bins]))
        found.append([temperature, *errors, right.mean(), confidence.mean()])
    names = "temperature", "before", "after", "accuracy", "confidence"
    return dict(zip(names, [float(value) for value in np.mean(found, axis=0)], strict=True))


def fit_structure(texts: list[str], structure: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the topic of each text and the means of the topics; times are the order of the texts."""
    options = STRUCTURES[structure]
    if options is None:
        rows = LtcVectorizer(stem="english", min_df=2).fit_transform(texts)
        mixture = DirichletProcessVMFMixture(30, random_state=seed, n_jobs=1).fit(rows)
        return mixture.predict(rows), mixture.means_
    model = TopicModel(n_jobs=1, random_state=seed, **options)
    model.fit(texts, times=np.arange(len(texts)) if model.over_time else None)
    means = topic_means(model.estimator_)
    means = means[model.estimator_.leaf_ids_] if hasattr(model.estimator_, "leaf_ids_") else means
    return model.labels_, means


def measure_structure(name: str, structure: str, quick: bool) -> dict[str, Any]:
    """Empty and cloned topics of other models: numbers found, and the worst of the seeds."""
    texts, _ = read(name, quick)
    found = []
    for seed in range(SEEDS):
        labels, means = fit_structure(texts, structure, seed)
        empty, clones = n_empty_and_clones(labels, means)
        unit = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        cosine = float(np.triu(unit @ unit.T, 1).max())
        found.append([len(means), empty, clones, cosine, np.bincount(labels[labels >= 0]).max() / len(texts)])
    numbers = [int(one[0]) for one in found]
    worst = [float(value) for value in np.max(found, axis=0)[1:]]
    return {"found": numbers, **dict(zip(("empty", "clones", "cosine", "largest"), worst, strict=True))}


def measure(cells: Cells, key: str, quick: bool) -> dict[str, Any]:
    kind, name, *rest = key.split(" | ")
    if kind == "fixed":
        return measure_fixed(name, quick)
    if kind == "reliability":
        return measure_reliability(name, quick)
    if kind == "structure":
        return measure_structure(name, rest[0], quick)
    if rest[0] == "TopicModel":
        return measure_auto(name, quick)
    n_each = (cells.kept(f"topics | {name} | TopicModel") or {})["n_each"]
    return measure_other(name, rest[0], n_each, quick)


def keys(names: list[str]) -> list[str]:
    found = [f"topics | {name} | {method}" for name in names for method in METHODS]
    found += [f"{kind} | {name}" for name in names for kind in ("fixed", "reliability")]
    structured = [name for name in names if name in STRUCTURED]
    return found + [f"structure | {name} | {one}" for name in structured for one in STRUCTURES]


def cell(cells: Cells, key: str, show: Callable[[dict[str, Any]], str]) -> str:
    found = cells.kept(key)
    return show(found) if found is not None and found["status"] == DONE else summary(found)


def number(name: str, digits: int = 3) -> Callable[[dict[str, Any]], str]:
    return lambda found: "" if np.isnan(found[name]) else f"{found[name]:.{digits}f}"


def npmi_of_all(found: dict[str, Any]) -> str:
    """Show the NPMI of ten words of every topic, and the mean number that is listed."""
    return f"{found['npmi_of_all']:.3f} ({found['listed']:.1f})" if "listed" in found else ""


def report(cells: Cells, names: list[str]) -> None:
    print(EXPLANATION)
    lines = []
    for name in names:
        for method in METHODS:
            key = f"topics | {name} | {method}"
            best = cell(
                cells,
                f"fixed | {name}",
                lambda f: "" if np.isnan(f["nmi"]) else f"{f['nmi']:.3f} ({f['n_topics']})",
            )
            lines.append(
                (
                    SETS[name][0] if method == METHODS[0] else "",
                    method,
                    cell(cells, key, number("n_topics", 1)),
                    cell(cells, key, number("npmi")),
                    cell(cells, key, npmi_of_all),
                    cell(cells, key, number("diversity")),
                    cell(cells, key, number("nmi")),
                    best if method == METHODS[0] else "",
                    cell(cells, key, lambda f: f"{f['empty']:.1f} / {f['clones']:.1f}"),
                    cell(cells, key, number("seconds", 1)),
                )
            )
    heads = (
        "set",
        "method",
        "topics",
        "NPMI",
        f"of {WORDS} (listed)",
        "diversity",
        "NMI",
        "best K: NMI (K)",
        "empty / clones",
        "seconds",
    )
    print(Table(heads, lines).to_markdown())
    lines = [
        (
            SETS[name][0],
            cell(cells, f"topics | {name} | TopicModel", number("ratio", 2)),
            *(
                cell(cells, f"reliability | {name}", number(what, digits))
                for what, digits in (
                    ("temperature", 0),
                    ("accuracy", 3),
                    ("confidence", 3),
                    ("before", 3),
                    ("after", 3),
                )
            ),
        )
        for name in names
    ]
    print(
        "\nTime of `TopicModel()` relative to that with the same number of topics given. Probabilities: temperature,"
    )
    print(
        "how often half A of the words of a held-out document has the topic of half B, mean confidence, and the"
    )
    print("mean distance of both in ten bins, before and after tempering:\n")
    heads = "set", "time", "temperature", "agreement", "confidence", "error before", "error after"
    print(Table(heads, lines).to_markdown())

    report_structures(cells, [name for name in names if name in STRUCTURED])


def report_structures(cells: Cells, names: list[str]) -> None:
    columns: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("found", lambda f: ", ".join(map(str, f["found"]))),
        ("empty", number("empty", 0)),
        ("clones", number("clones", 0)),
        ("largest cosine", number("cosine", 2)),
        ("largest share", number("largest", 2)),
    ]
    lines = [
        (SETS[name][0], one, *(cell(cells, f"structure | {name} | {one}", show) for _, show in columns))
        for name in names
        for one in STRUCTURES
    ]
    print(
        f"\nOther models and the number asked for; topics found with {SEEDS} seeds, and the worst of these:"
    )
    print("empty and cloned topics, the largest cosine of two means, the share of the largest topic.\n")
    print(Table(("set", "model", *(head for head, _ in columns)), lines).to_markdown())


def main() -> None:
    options: argparse.Namespace = parse("Topics of texts with no arguments.", list(SETS))
    cells = Cells("benchmarks.first_contact", options)
    if options.cell:
        cells.measure(lambda: measure(cells, options.cell, options.quick))
        return
    if not options.table:
        for key in keys(options.names):
            cells.run(key)
    if options.quick:
        report(cells, options.names)
    else:
        with published(SECTION):
            report(cells, list(SETS))


if __name__ == "__main__":
    one_thread()
    main()
