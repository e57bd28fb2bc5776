"""Hierarchical Bayesian logistic regression on many classes: processor time beside RecursiveLogisticRegression.

    python -m benchmarks.hblr_scale                     # everything, one process after another
    python -m benchmarks.hblr_scale --only python_docs  # one data set
    python -m benchmarks.hblr_scale --table             # write finished cells to RESULTS.md
    python -m benchmarks.hblr_scale --quick             # small parts of the data

A cell is a data set and a model, in its own process. With independent classes both classifiers are fitted in the same
process, one after the other. On made text, which has up to a million features and 10,000 classes, each classifier has
its own process, so that peak memory is its own.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from arbora.classify import HierarchicalBayesClassifier, RecursiveLogisticRegression
from arbora.datasets import make_hierarchical_text
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Table
from arbora.text import LtcTransformer
from benchmarks._common.cells import DONE, Cells, one_thread, parse, peak_gib, summary
from benchmarks._common.contestants import SEED
from benchmarks._common.report import published
from benchmarks._common.tasks import Task
from benchmarks._common.wild_sets import PYTHON_DOCS, title, wild_task

SECTION = "HBLR: time on many classes"
CELLS = {
    "imclef07a": ("logistic",),
    "news20": ("logistic",),
    PYTHON_DOCS: ("logistic", "softmax"),
    "lshtc_small": ("softmax",),
}
TARGET_RATIO = 5.0
TEXTS = {
    "text_1000": (5_000, 100_000, 1_000),
    "text_10000": (12_000, 1_000_000, 10_000),
}  # documents, features, leaves
TEXT_TEST, TEXT_DEPTH, TEXT_LENGTH = 2_000, 6, 50.0
TEXT_OPTIONS = {"prune_below": 0.01, "tol": 0.03}  # of both classifiers
MOST_GIB = 10.0
_QUICK = 20  # divisor of the sizes of made text
HBLR, PEER = "HBLR, M3 map", "RecursiveLogisticRegression"
_WARM_UP = 300  # rows

EXPLANATION = f"""\
`python -m benchmarks.hblr_scale`: processor seconds of one `fit` on one thread, after a fit on {_WARM_UP} rows that
compiles the kernels. Other work on the machine is not excluded; it makes processor seconds longer, too, because
caches are shared. Both classifiers have their default parameters and are fitted one after the other in one process;
`{PEER}` includes its calibration on held-out rows. F1 in per cent on the official test part; NLL is the mean
negative log-probability of the true class, over test documents whose class has training documents. Peak memory is
that of the process, with data, in GiB. Targets: independent classes at most {TARGET_RATIO:g} times `{PEER}`; softmax
on the Python documentation under 30 s, on LSHTC-small under 300 s.
"""

TEXT_NOTE = f"""\
Made text: `make_hierarchical_text(documents, features, n_leaves=classes, depth={TEXT_DEPTH}, n_test={TEXT_TEST:_},
mean_length={TEXT_LENGTH:g})`, seed 0, with `ltc` weights. Both classifiers have `prune_below=0.01`, which stores
weights as sparse differences of the nodes from their parents, and `tol=0.03` (a certified gap of 3%); other
parameters have their defaults, and HBLR is logistic. Each classifier has its own process, on one thread. "Occurring"
features have at least one training document; "dense" is the size of the weights of all nodes as a matrix in single
precision. "Before" is the peak memory before `fit`. Target: at most {MOST_GIB:g} GiB.
"""


def fit_and_score(model: Any, work: Task) -> dict[str, Any]:
    """Fit a model after a small fit; return processor seconds and scores."""
    few = np.random.default_rng(SEED).permutation(work.X.shape[0])[:_WARM_UP]
    model.fit(work.X[few], work.y[few])
    started = time.process_time()
    model.fit(work.X, work.y)
    seconds = time.process_time() - started
    proba, answer = model.predict_proba(work.X_test), model.predict(work.X_test)
    column = {name: k for k, name in enumerate(model.classes_.tolist())}
    truth = np.array([column.get(name, -1) for name in work.y_test.tolist()])
    known = np.flatnonzero(truth >= 0)
    likelihood = np.maximum(proba[known, truth[known]], np.finfo(np.float64).eps)
    return {
        "seconds": seconds,
        "iterations": int(model.n_iter_),
        "micro": float(micro_f1(work.y_test, answer)),
        "macro": float(macro_f1(work.y_test, answer)),
        "nll": float(-np.log(likelihood).mean()),
    }


def make_text(name: str, quick: bool) -> Task:
    """Make a text with `ltc` weights."""
    documents, features, leaves = (n // (_QUICK if quick else 1) for n in TEXTS[name])
    data = make_hierarchical_text(
        documents, features, n_leaves=leaves, depth=TEXT_DEPTH, n_test=TEXT_TEST, mean_length=TEXT_LENGTH,
        random_state=0,
    )  # fmt: skip
    ltc = LtcTransformer().fit(data.X_train)
    assert data.hierarchy is not None
    return Task(
        ltc.transform(data.X_train), data.y_train, ltc.transform(data.X_test), data.y_test, data.hierarchy
    )


def measure_text(name: str, method: str, quick: bool) -> dict[str, Any]:
    """Fit one pruned classifier on made text."""
    work = make_text(name, quick)
    before = peak_gib()
    model: Any = RecursiveLogisticRegression(
        structure=work.structure, n_jobs=1, random_state=SEED, **TEXT_OPTIONS
    )
    if method == HBLR:
        model = HierarchicalBayesClassifier(work.structure, likelihood="logistic", n_jobs=1, **TEXT_OPTIONS)
    found = fit_and_score(model, work)
    n_features, n_nodes = work.X.shape[1], model.differences_.shape[0]
    return {
        **found,
        "sizes": [*work.X.shape, len(np.unique(work.X.indices)), len(model.classes_)],
        "weights": int(model.differences_.nnz),
        "dense_gib": 4 * n_nodes * n_features / 2**30,
        "before_gib": before,
    }


def measure(key: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fit the models of a cell."""
    data, likelihood = key.split(maxsplit=1)
    if data in TEXTS:
        return measure_text(data, likelihood, options.quick)
    work = wild_task(data, options.cache, options.quick)
    found = {
        HBLR: fit_and_score(
            HierarchicalBayesClassifier(work.structure, likelihood=likelihood, n_jobs=1), work
        )
    }
    if likelihood == "logistic":
        peer = RecursiveLogisticRegression(structure=work.structure, n_jobs=1, random_state=SEED)
        found[PEER] = fit_and_score(peer, work)
    classes = len(np.unique(work.y))
    return {"models": found, "sizes": [*work.X.shape, classes]}


def rows_of(data: str, likelihood: str, cells: Cells) -> list[tuple[Any, ...]]:
    """Rows of the table for one cell."""
    cell = cells.kept(f"{data} {likelihood}")
    if cell is None or cell["status"] != DONE:
        return [(title(data), likelihood, summary(cell), *[None] * 10)]
    base = cell["models"].get(PEER, {}).get("seconds")
    rows = []
    for name, found in cell["models"].items():
        ratio = None if base is None else found["seconds"] / base
        scores = found["micro"], found["macro"], found["nll"]
        rows.append((
            title(data), likelihood, name, *cell["sizes"], found["iterations"], found["seconds"], ratio, *scores,
            cell["peak_gib"],
        ))  # fmt: skip
    return rows


def report(cells: Cells) -> None:
    """Print the table from the finished cells."""
    print(EXPLANATION)
    rows = [row for data, kinds in CELLS.items() for kind in kinds for row in rows_of(data, kind, cells)]
    columns = (
        "data", "likelihood", "method", "rows", "features", "classes", "rounds", "CPU seconds", f"relative to {PEER}",
        "micro-F1", "macro-F1", "NLL", "peak GiB",
    )  # fmt: skip
    forms = ("", "", "", ",d", ",d", ",d", "d", ".1f", ".2f", "percent", "percent", ".3f", ".2f")
    print(Table(columns, rows, forms).to_markdown())


def report_texts(cells: Cells) -> None:
    """Print the table of made text."""
    print("\n" + TEXT_NOTE)
    rows = []
    for name in TEXTS:
        found = {method: cells.kept(f"{name} {method}") for method in (HBLR, PEER)}
        peer = found[PEER]
        base = peer["seconds"] if peer is not None and peer["status"] == DONE else None
        for method, cell in found.items():
            if cell is None or cell["status"] != DONE:
                rows.append((f"{method}: {summary(cell)}", *[None] * 13))
                continue
            ratio = None if base is None else cell["seconds"] / base
            rows.append((
                method, *cell["sizes"], cell["iterations"], cell["seconds"], ratio, cell["micro"], cell["macro"],
                cell["weights"] / 1e6, cell["dense_gib"], cell["before_gib"], cell["peak_gib"],
            ))  # fmt: skip
    columns = (
        "method", "documents", "features", "occurring", "classes", "rounds", "CPU seconds", f"relative to {PEER}",
        "micro-F1", "macro-F1", "weights, millions", "dense, GiB", "before, GiB", "peak, GiB",
    )  # fmt: skip
    forms = ("", ",d", ",d", ",d", ",d", "d", ".0f", ".2f", "percent", "percent", ".1f", ".1f", ".2f", ".2f")
    print(Table(columns, rows, forms).to_markdown())


def main() -> None:
    options = parse("Time of hierarchical Bayesian logistic regression on many classes.", [*CELLS, *TEXTS])
    cells = Cells("benchmarks.hblr_scale", options)
    if options.cell:
        cells.measure(lambda: measure(options.cell, options))
        return
    if not options.table:
        for data in options.names:
            if data in TEXTS:
                for method in (HBLR, PEER):
                    cells.run(f"{data} {method}")
                continue
            wild_task(data, options.cache, options.quick)
            for likelihood in CELLS[data]:
                cells.run(f"{data} {likelihood}")
    with published(SECTION, write=not options.quick):
        report(cells)
        report_texts(cells)


if __name__ == "__main__":
    one_thread()
    main()
