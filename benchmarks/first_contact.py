"""First contact, topics: `TopicModel` with no arguments beside NMF and LDA, on the same texts.

    python -m benchmarks.first_contact                  # everything; resumes an interrupted run
    python -m benchmarks.first_contact --only r8 docs --quick
    python -m benchmarks.first_contact --bertopic PYTHON ENCODER    # with BERTopic of another environment

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
from arbora.discover.mixture.selection import draw_halves
from arbora.metrics import clustering_report
from arbora.text import LtcVectorizer
from benchmarks._common import bertopic_peer, topic_tables
from benchmarks._common.cells import Cells, one_thread, parse
from benchmarks._common.report import published
from benchmarks._common.topic_tables import METHODS, NUMBERS, SEEDS, WORDS

SECTION = "First contact: topics of texts with no arguments"
QUICK_ROWS = 600
STRUCTURES = {
    "bayes, 20": {"n_topics": 20, "model": "bayes"},
    "tree, 4 x 4": {"n_topics": (4, 4)},
    "over time, 12": {"n_topics": 12, "over_time": 10},
    "Dirichlet process, 30": None,
}
STRUCTURED = "r8", "docs", "sotu", "nips"  # sets for these
CLONES, BINS = 0.95, 10
SET_ASIDE = "nips", "wap", "tr31"
CURVE = "n_topics", "score"
BERTOPIC, BERTOPIC_ROWS = ("r8", "docs", "sotu"), 1000  # sets and texts for it

EXPLANATION = f"""\
`python -m benchmarks.first_contact`: `TopicModel()` chooses the number of topics; NMF (tf-idf) and LDA (counts) of
scikit-learn, with English stop words and words of at least two documents, get that number. Means over {SEEDS} seeds
(LDA and fixed numbers: one); seconds are processor seconds. NPMI is that of the {WORDS} first words of a topic in the
documents themselves (stems; without phrases), diversity the share of these words that are different. "best K" is the
highest NMI with the classes among `TopicModel(K)`, K = {", ".join(map(str, NUMBERS))} and the number of classes, the
best of seven looks at the classes. The texts of the CLUTO sets are made of their counts. The start of the fits
and the rule for words were chosen on the other sets; {", ".join(SET_ASIDE)} were set aside (nips was measured before
with an older rule for words, the others once). That topics in trees and over time share a concentration was chosen
on R8 and the Python docs. NPMI and diversity of NMF and LDA are those of {WORDS} words. Words of fewer than 5% of the
documents of a topic, and of fewer than half of those with its commonest word, are not listed, so that lists of
`TopicModel` may be shorter; "of {WORDS}" is the NPMI of {WORDS}
words of every topic, in brackets the number of words that are listed.
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
    collection = SETS[name][1]()
    return sample(collection, QUICK_ROWS) if quick else collection


def sample(collection: Collection, n_texts: int) -> Collection:
    """Return at most so many of the texts, at random."""
    ids = np.sort(np.random.default_rng(0).permutation(len(collection.texts))[:n_texts])
    classes = None if collection.classes is None else collection.classes[ids]
    return Collection([collection.texts[row] for row in ids.tolist()], classes)


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
        ten = typical_words(model.forms_, WORDS, phrases=False, min_share=0.0)
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
    curve = {str(k): float(score) for k, score in zip(*map(model.n_topics_curve_.get, CURVE), strict=True)}
    found_here = {"n_each": chosen, "words": model.top_words(6), "curve": curve}
    return {**dict(zip(names, numbers, strict=True)), **found_here}


def fit_other(
    method: str, texts: list[str], n_topics: int, seed: int
) -> tuple[list[list[str]], np.ndarray, np.ndarray]:
    """Return the words of the topics of NMF or LDA, the topic of each text, and the components."""
    options = {"min_df": 2, "stop_words": "english"}
    if method == "NMF":
        vectorizer: Any = TfidfVectorizer(**options)
        model: Any = NMF(n_topics, random_state=seed, init="nndsvda", max_iter=300)
    else:
        vectorizer = CountVectorizer(**options)
        model = LatentDirichletAllocation(n_topics, random_state=seed)
    shares = model.fit_transform(vectorizer.fit_transform(texts))
    names = vectorizer.get_feature_names_out()
    words = [names[np.argsort(-row)[:WORDS]].tolist() for row in model.components_]
    return words, shares.argmax(axis=1), model.components_


def measure_other(name: str, method: str, n_each: list[int], quick: bool) -> dict[str, Any]:
    texts, classes = read(name, quick)
    judge, found = Judge(texts), []
    for seed, n_topics in enumerate(n_each if method == "NMF" else n_each[:1]):
        start = time.process_time()
        words, labels, components = fit_other(method, texts, n_topics, seed)
        seconds = time.process_time() - start
        empty, clones = n_empty_and_clones(labels, components)
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


def measure_bertopic(name: str, quick: bool) -> dict[str, Any]:
    """BERTopic, `TopicModel()` and NMF on a sample of the texts."""
    texts, classes = sample(read(name, quick), BERTOPIC_ROWS)
    judge = Judge(texts)

    def row(method: str, words: list[list[str]], labels: np.ndarray, seconds: float) -> dict[str, Any]:
        scores = {
            "npmi": judge.coherence(words),
            "diversity": judge.diversity(words),
            "nmi": nmi(classes, labels),
        }
        outliers = float((labels < 0).mean())
        return {"method": method, "n_topics": len(words), **scores, "outliers": outliers, "seconds": seconds}

    TopicModel().fit(texts[:500])  # compiles
    start = time.process_time()
    model = TopicModel(random_state=0, n_jobs=1).fit(texts)
    seconds = time.process_time() - start
    rows = [row("TopicModel", model.top_words(WORDS, phrases=False), model.labels_, seconds)]
    start = time.process_time()
    words, labels, _ = fit_other("NMF", texts, model.n_topics_, 0)
    rows.append(row("NMF", words, labels, time.process_time() - start))
    versions: dict[str, str] = {}
    for n_topics in (None, model.n_topics_):
        found = bertopic_peer.run(name, texts, n_topics, seed=0)
        title = "BERTopic" if n_topics is None else f"BERTopic, {n_topics} topics"
        rows.append(
            row(title, found["words"], np.array(found["labels"]), found["encoding"] + found["seconds"])
        )
        versions = found["versions"]
    return {"rows": rows, "versions": versions, "n_texts": len(texts)}


def measure(cells: Cells, key: str, quick: bool) -> dict[str, Any]:
    kind, name, *rest = key.split(" | ")
    if kind == "fixed":
        return measure_fixed(name, quick)
    if kind == "reliability":
        return measure_reliability(name, quick)
    if kind == "bertopic":
        return measure_bertopic(name, quick)
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
    found += [f"structure | {name} | {one}" for name in structured for one in STRUCTURES]
    return found + [f"bertopic | {name}" for name in names if name in BERTOPIC and bertopic_peer.is_there()]


def report(cells: Cells, names: list[str]) -> None:
    titles = {name: SETS[name][0] for name in names}
    print(EXPLANATION)
    topic_tables.report_methods(cells, titles)
    topic_tables.report_probabilities(cells, titles)
    topic_tables.report_numbers(cells, titles)
    structured = {name: title for name, title in titles.items() if name in STRUCTURED}
    topic_tables.report_structures(cells, structured, STRUCTURES)
    topic_tables.report_bertopic(cells, titles)


def main() -> None:
    bertopic_peer.take_option()
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
