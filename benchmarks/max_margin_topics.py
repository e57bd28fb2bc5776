"""Cluster topic models against support vector machines with few labels, and the exactness and speed of the samplers.

    python -m benchmarks.max_margin_topics                       # everything; resumes an interrupted run
    python -m benchmarks.max_margin_topics --only r8 --quick

Table 2 and Figure 4 of Chen, Zhu and Zhang (2014): 20 Newsgroups and Reuters R8, L landmarks in each class, 80% of
the documents for training and 20% for testing. Every cell is measured in its own process.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from arbora.classify import OneVsRestSVC, SemiSupervisedSVC
from arbora.datasets import load
from arbora.discover import ClusterTopicModel, MaxMarginClusterTopicModel
from arbora.discover.topics.sampler import ClusterTopics, Concentrations, make_corpus, start_state
from arbora.infer.mcmc.max_margin import Margin
from arbora.metrics.table import Table
from arbora.text import LtcTransformer
from benchmarks._common.cells import DONE, Cells, one_thread, parse
from benchmarks._common.exact_topics import geweke, total_variation
from benchmarks._common.report import published

SECTION = "Cluster topic models and semi-supervised support vector machines: few labels"
R8 = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
TITLES = {"news20": "20 Newsgroups", "r8": "Reuters R8"}
LANDMARKS, RUNS = (5, 10, 15, 20, 25), 5
TOPICS = (10, 20, 30, 50, 70, 100)  # Figure 4, with 20 landmarks
METHODS = ("CTM", "SVM, counts", "S3VM, counts", "MMCTM", "SVM, ltc", "S3VM, ltc")
SAMPLING = {"n_chains": 1, "n_warmup": 20, "n_samples": 10}
PUBLISHED = {  # Table 2: CTM, SVM, S3VM, MMCTM
    "news20": {
        5: (17.22, 37.13, 39.36, 56.70),
        10: (24.50, 46.99, 47.91, 54.92),
        15: (22.76, 52.80, 52.49, 55.06),
        20: (26.07, 56.10, 54.44, 56.62),
        25: (27.20, 59.15, 57.45, 55.70),
    },
    "r8": {
        5: (41.27, 78.12, 78.51, 79.18),
        10: (42.63, 80.69, 79.15, 80.04),
        15: (39.67, 83.25, 81.87, 85.48),
        20: (58.24, 85.66, 73.95, 82.92),
        25: (51.93, 84.95, 82.39, 86.56),
    },
}
ARCHIVE = Path(__file__).parent / "cells" / "max_margin_topics.json"
DRAWS = 150_000  # of the enumeration
SEEDS = 0, 1, 2  # of Geweke's test
MODELS = {"CTM": None, "MMCTM": Margin(1.2, 0.5, 0.8)}
EXPLANATION = f"""\
`python -m benchmarks.max_margin_topics`: one thread. Accuracy in percent on the 20% of the documents that are not in
the training set; mean and standard deviation of up to {RUNS} random splits (column "runs"), the same for all methods.
20 Newsgroups: the 18,846 messages with headers, all words that occur in two training documents of the usual split;
the paper has another version (18,772 documents, 61,188 words). R8: the 7,674 documents with one of eight topics, and
words of two documents. T = 50 topics, and the concentrations, c = 9, v = 0.1 and margin = 0.1 of the paper; one chain
of 30 sweeps, which starts from the labels of a support vector machine on ltc weights. SVM and S3VM: C by five folds
of the landmarks; on counts as in the paper (B), and on ltc weights. The paper's MMCTM* takes the best c by the test
labels and is not repeated.
"""

SAMPLERS = f"""\
Samplers: million tokens a second of whole sweeps over 20 Newsgroups (5.0 million tokens, T = 50, K = 20). Total
variation (TV) between {DRAWS:,} correlated draws and the exact posterior of a corpus of two documents, by
enumeration, without and with a landmark; in parentheses what to expect of these draws by their effective sample
sizes, and of as many independent draws. States are compared without the names of topics (and of clusters, without a
landmark), as partitions are; "names" compares them with names. Chains move slowly between copies of a state that
differ in names only: a chain of 50,000 draws of MMCTM without a landmark has a TV of 0.0271 with names (0.0176
expected, 0.0074 of independent draws), and of 0.0027 without them (0.0046, 0.0031). Geweke's test of all variables
and concentrations, with up to three seeds ({", ".join(map(str, SEEDS))}).
"""


def prepared(name: str, cache: Path) -> tuple[sp.csr_array, np.ndarray]:
    """Return counts and class numbers of a collection; cached."""
    kept = cache / f"max_margin_topics_{name}.npz"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        X, y = read_news() if name == "news20" else read_r8()
        np.savez(kept, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)
    arrays = np.load(kept)
    X = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=arrays["shape"])
    return X.astype(np.float64), arrays["y"]


def read_news() -> tuple[Any, Any]:
    data = load("news20")
    names = np.concatenate([np.asarray(data.y_train, str), np.asarray(data.y_test, str)])
    X = sp.vstack([data.X_train, data.X_test], format="csr")
    return X, np.unique(names, return_inverse=True)[1]


def read_r8() -> tuple[Any, Any]:
    data = load("reuters21578")
    texts = [*data.texts_train, *data.texts_test]
    labels = [*data.y_train, *data.y_test]
    chosen = [i for i, topics in enumerate(labels) if len(topics) == 1 and topics[0] in R8]
    counter = CountVectorizer(token_pattern="[a-z][a-z]+", min_df=2)
    X = counter.fit_transform([texts[i] for i in chosen])
    return X, np.array([R8.index(labels[i][0]) for i in chosen])


class Split:
    """Training and test rows of a run, and landmarks (-1 for the pool)."""

    def __init__(self, name: str, n_landmarks: int, run: int, options: argparse.Namespace) -> None:
        X, y = prepared(name, options.cache)
        rng = np.random.default_rng([run, 0])
        order = rng.permutation(len(y))
        if options.quick:
            order = order[:600]
        n_train = int(0.8 * len(order))
        train, test = order[:n_train], order[n_train:]
        self.X, self.y, self.X_test, self.y_test = X[train], y[train], X[test], y[test]
        self.landmarks = np.full(n_train, -1)
        for k in range(y.max() + 1):  # more landmarks contain fewer
            own = np.flatnonzero(self.y == k)
            self.landmarks[own[:n_landmarks]] = k

    def accuracy(self, model: Any, X_test: Any = None) -> float:
        """Return the percentage of test rows that a model gets right."""
        labels = model.predict(self.X_test if X_test is None else X_test)
        return 100 * float(np.mean(labels == self.y_test))


def measure_linear(split: Split) -> dict[str, Any]:
    """Accuracy of support vector machines with and without the pool."""
    result: dict[str, Any] = {}
    labelled = split.landmarks >= 0
    ltc = LtcTransformer(smooth_idf=True).fit(split.X)
    features = {
        "counts": (split.X, split.X_test, 10.0 ** np.arange(-5, 1)),
        "ltc": (ltc.transform(split.X), ltc.transform(split.X_test), (0.1, 1.0, 10.0)),
    }
    for name, (X, X_test, grid) in features.items():
        options = {"calibration": None, "random_state": 0, "tol": 1e-2}
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        search = GridSearchCV(OneVsRestSVC(loss="hinge", **options), {"C": list(grid)}, cv=folds)
        C = search.fit(sp.csr_matrix(X)[labelled], split.landmarks[labelled]).best_params_["C"]
        models = {"SVM": search.best_estimator_}
        started = time.perf_counter()
        models["S3VM"] = SemiSupervisedSVC(C=C, **options).fit(X, split.landmarks)
        result[f"seconds of S3VM, {name}"] = time.perf_counter() - started
        for method, model in models.items():
            result[f"{method}, {name}"] = split.accuracy(model, X_test)
    return result


def measure_topics(method: str, split: Split, n_topics: int, options: argparse.Namespace) -> dict[str, Any]:
    """Accuracy of a cluster topic model."""
    cls = MaxMarginClusterTopicModel if method == "MMCTM" else ClusterTopicModel
    sampling = {**SAMPLING, "n_warmup": 5, "n_samples": 5} if options.quick else SAMPLING
    started = time.perf_counter()
    model = cls(n_topics, random_state=0, sampling=sampling, n_fold_in=30).fit(split.X, split.landmarks)
    pool = split.landmarks < 0
    inside = 100 * float(np.mean(model.labels_[pool] == split.y[pool]))
    seconds = time.perf_counter() - started
    return {method: split.accuracy(model), "pool": inside, "seconds": seconds}


def measure_speed(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of whole sweeps, T = 50, K = 20, on one thread."""
    X, y = prepared("news20", options.cache)
    data, rng = make_corpus(X), np.random.default_rng(0)
    margin = Margin(9.0, 0.1, 0.1) if method == "MMCTM" else None
    model = ClusterTopics(50, 20, Concentrations(10.0, 10.0, 10.0, 0.01, 0.1), margin)
    state = start_state(model, data, y.astype(np.int64), rng)
    seconds = []
    for _ in range(12):
        started = time.process_time()
        state, _info = model.sweep(state, data, rng)
        seconds.append(time.process_time() - started)
    rates = len(data.words) / np.array(seconds[2:]) / 1e6
    return {
        "million_tokens": float(np.median(rates)),
        "slowest": float(rates.min()),
        "tokens": len(data.words),
    }


def measure_enumeration(method: str, landmark: str, options: argparse.Namespace) -> dict[str, Any]:
    """Total variation between the chain and the exact posterior of a tiny corpus."""
    return total_variation(MODELS[method], int(landmark), 2000 if options.quick else DRAWS)


def measure_geweke(method: str, seed: str, options: argparse.Namespace) -> dict[str, Any]:
    """Geweke's test with all concentrations sampled."""
    return geweke(method, 500 if options.quick else 3000, int(seed))


def run_cell(cells: Cells, options: argparse.Namespace) -> None:
    """Measure the cell of this process."""
    kind, *rest = options.cell.split(" | ")
    if kind == "accuracy":
        name, n_landmarks, method, n_topics, run = rest
        split = Split(name, int(n_landmarks), int(run), options)
        if method == "linear":
            cells.measure(lambda: measure_linear(split))
        else:
            cells.measure(lambda: measure_topics(method, split, int(n_topics), options))
    else:
        work = {"speed": measure_speed, "enumeration": measure_enumeration, "geweke": measure_geweke}[kind]
        cells.measure(lambda: work(*rest, options))


def keys(options: argparse.Namespace) -> list[str]:
    """Names of the selected cells; the first runs of all come first."""
    listed = [f"speed | {method}" for method in MODELS] if "news20" in options.names else []
    exact = [f"enumeration | {method} | {landmark}" for method in MODELS for landmark in (-1, 0)]
    exact += [f"geweke | {method} | {seed}" for method in MODELS for seed in SEEDS]
    landmarks = (5,) if options.quick else LANDMARKS
    for run in range(1 if options.quick else RUNS):
        for name in reversed(options.names):
            for method in ("linear", "CTM", "MMCTM"):
                listed += [f"accuracy | {name} | {n} | {method} | 50 | {run}" for n in landmarks]
            if run == 0 and not options.quick:
                more = [n for n in TOPICS if n != 50]
                listed += [f"accuracy | {name} | 20 | MMCTM | {n} | 0" for n in more]
        listed += exact if run == 0 else []
    return listed


def accuracies(
    cells: Cells, name: str, n_landmarks: int, method: str, n_topics: int = 50
) -> dict[int, float]:
    """Return the accuracies of the finished runs."""
    cell = method if method.endswith("CTM") else "linear"
    key = f"accuracy | {name} | {n_landmarks} | {cell} | {n_topics}"
    result = {run: cells.kept(f"{key} | {run}") for run in range(RUNS)}
    return {run: one[method] for run, one in result.items() if one is not None and one["status"] == DONE}


def accuracy_rows(cells: Cells, name: str) -> list[tuple[Any, ...]]:
    rows = []
    for n in LANDMARKS:
        result = {method: accuracies(cells, name, n, method) for method in METHODS}
        runs = [len(values) for values in result.values()]
        if not max(runs):
            continue
        values = [list(by_run.values()) for by_run in result.values()]
        shown = [f"{np.mean(one):.1f} ± {np.std(one):.1f}" if one else "" for one in values]
        published_row = [f"{value:.1f}" for value in PUBLISHED[name][n]]
        rows.append((TITLES[name], n, f"{min(runs)} to {max(runs)}" if min(runs) < max(runs) else runs[0], *shown,
                     *published_row))  # fmt: skip
    return rows


def verdict(cells: Cells) -> str:
    """Count the cells in which S3VM is above MMCTM, and MMCTM above CTM."""
    measured = {
        (name, n, method): accuracies(cells, name, n, method)
        for name in TITLES
        for n in LANDMARKS
        for method in METHODS
    }

    def wins(one: str, other: str) -> str:
        """Compare means over the runs that both have."""
        n_cells, n_wins = 0, 0
        for name in TITLES:
            for n in LANDMARKS:
                left, right = measured[name, n, one], measured[name, n, other]
                runs = left.keys() & right.keys()
                n_cells += bool(runs)
                n_wins += sum(left[run] for run in runs) > sum(right[run] for run in runs)
        return f"{n_wins} of {n_cells}"

    return (
        f"MMCTM is above CTM in {wins('MMCTM', 'CTM')} cells. S3VM is above MMCTM in {wins('S3VM, ltc', 'MMCTM')} "
        f"cells on ltc weights, and in {wins('S3VM, counts', 'MMCTM')} on counts. SVM on ltc weights, the start of "
        f"the chains, is above MMCTM in {wins('SVM, ltc', 'MMCTM')}. S3VM is above SVM in "
        f"{wins('S3VM, ltc', 'SVM, ltc')} cells on ltc weights, and in {wins('S3VM, counts', 'SVM, counts')} on "
        "counts."
    )


def done(cells: Cells, key: str) -> dict[str, Any] | None:
    """Return a finished cell."""
    result = cells.kept(key)
    return result if result is not None and result["status"] == DONE else None


def sampler_rows(cells: Cells) -> list[tuple[Any, ...]]:
    rows = []
    for method in MODELS:
        speed, shown = done(cells, f"speed | {method}"), []
        for landmark in (-1, 0):
            result = done(cells, f"enumeration | {method} | {landmark}") or {}
            for start in ("unnamed_", ""):
                values = [result.get(start + name) for name in ("tv", "expected", "noise")]
                numbers = ["" if value is None else f"{value:.4f}" for value in values]
                shown.append(f"{numbers[0]} ({', '.join(filter(None, numbers[1:]))})" if numbers[0] else "")
        tests = [result for seed in SEEDS if (result := done(cells, f"geweke | {method} | {seed}"))]
        p_values = ", ".join(f"{one['p_value']:.2f}" for one in tests)
        largest = ", ".join(f"{one['largest_z']:.1f}" for one in tests)
        rows.append((method, None if speed is None else speed["million_tokens"], *shown, p_values, largest))
    return rows


def report(cells: Cells) -> None:
    """Print the tables from the finished cells."""
    print(EXPLANATION)
    columns = ("data", "L", "runs", *METHODS, "CTM of B", "SVM of B", "S3VM of B", "MMCTM of B")
    rows = [row for name in TITLES for row in accuracy_rows(cells, name)]
    print(Table(columns, rows, ("",) * len(columns)).to_markdown() + "\n")
    print(verdict(cells) + "\n")
    print("MMCTM with other numbers of topics, 20 landmarks, one run (Figure 4):\n")
    rows = [
        (TITLES[name], *(f"{result[0]:.1f}" if 0 in (result := accuracies(cells, name, 20, "MMCTM", t)) else ""
                         for t in TOPICS))
        for name in TITLES
    ]  # fmt: skip
    columns = ("data", *(f"T = {t}" for t in TOPICS))
    print(Table(columns, rows, ("",) * len(columns)).to_markdown() + "\n")
    print(SAMPLERS)
    exact = ("TV", "TV, names", "TV, a landmark", "TV, a landmark, names")
    columns = ("model", "million tokens / s", *exact, "Geweke p", "largest z")
    print(Table(columns, sampler_rows(cells), ("", ".1f", *[""] * 6)).to_markdown())


def main() -> None:
    options = parse("Cluster topic models with few labels.", list(TITLES))
    cells = Cells("benchmarks.max_margin_topics", options, ARCHIVE)
    if options.cell:
        run_cell(cells, options)
        return
    if not options.table:
        for name in options.names:
            prepared(name, options.cache)
        for key in keys(options):
            cells.run(key)
    if options.quick:
        report(cells)
    else:
        cells.write_archive(keys(options))
        with published(SECTION):
            report(cells)


if __name__ == "__main__":
    one_thread()
    main()
