"""Classifiers at their defaults on fourteen data sets: accuracy, probabilities, time and memory beside their peers.

    python -m benchmarks.wild                     # everything; resumes an interrupted run
    python -m benchmarks.wild --methods LinearSVC # one method
    python -m benchmarks.wild --table             # write finished cells to RESULTS.md
    python -m benchmarks.wild --quick             # small parts of the data

A cell is a data set and a method, measured in its own process (`benchmarks._common.cells`) with a limit of processor
time. Nobody tunes anything: every estimator has the defaults of its package.
"""

from __future__ import annotations

import argparse
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from arbora.metrics import expected_calibration_error, hierarchical_f1, macro_f1, micro_f1
from arbora.metrics.table import Table
from arbora.structure import Hierarchy
from benchmarks._common.cells import (
    DONE,
    FAILED,
    NOT_APPLICABLE,
    OVER,
    Cells,
    forget_peak,
    one_thread,
    parse,
    peak_gib,
)
from benchmarks._common.contestants import encoded, indicator
from benchmarks._common.report import published
from benchmarks._common.tasks import Task, take
from benchmarks._common.wild_models import MODELS, Model
from benchmarks._common.wild_sets import KEPT_ASIDE, MOST_ROWS, NAMES, title, wild_task

SECTION = "Classifiers at their defaults"
ARCHIVE = Path(__file__).parent / "cells" / "wild.json"
LIMIT = 120  # processor seconds of a cell
_WARM_UP = 64  # rows of a first fit, which loads or compiles kernels
_LEAST_TIMED = 0.2  # seconds of repeated predictions: the clock of a process is coarse
_SMALLEST = 1e-15  # of a probability, in the log loss

_NEAR = 0.01  # F1 of methods whose times are compared
OURS = (  # the first of these that is measured is the default choice
    "RecursiveSVC", "OneVsRestSVC", "TopDownSVC", "RecursiveLogisticRegression", "OneVsRestLogistic",
    "MultinomialLogistic",
)  # fmt: skip
VERDICT = """\
Points of F1 of the default choice, `RecursiveSVC`, above or below the best method of the other packages and the first
of all methods; then the best estimator of Arbora, which is chosen by these test scores. Times of a fit are relative
to the fastest method within one point of micro-F1 of the first, and last to the fastest of other packages; empty if
there is none. Aims: at most 0.3 points below, at most 2.0 times. Methods of which a cell is missing below were not
measured or not done in time.
"""
_REDUCED = ", ".join(f"{title(name)}: {a:,} and {b:,} random documents" for name, (a, b) in MOST_ROWS.items())
EXPLANATION = f"""\
`python -m benchmarks.wild`. Every estimator at the defaults of its package; official splits ({_REDUCED}; Python docs:
a quarter of each class). Texts have `ltc` weights, measurements are standardised. One thread; seconds are processor
time of one fit (with calibration and threshold) and of `predict` on the test part, after a first fit of {_WARM_UP}
rows; memory is the peak of fit and prediction above that of the data. A cell has {LIMIT} s of processor time. Log
loss: nats per document, over test documents whose class has training documents; for several labels the sum of the
binary log losses of all classes. Hierarchical F1 counts the ancestors of labels. scikit-learn trains several labels
one-vs-rest; napkinXC then returns labels with a probability above one half. HiClass uses the first parent in a DAG,
and is measured with its default local classifier (logistic regression) and with `LinearSVC`. Sets marked ∘ were kept
aside while the defaults of Arbora were chosen (`benchmarks.classify_study`).
"""


def log_loss(Y: sp.csr_array, proba: NDArray[Any], multilabel: bool) -> float:
    """Mean negative logarithm of the probability of the truth, in nats per document."""
    if not multilabel:
        known = np.flatnonzero(np.diff(Y.indptr))
        own = proba[known, Y[known].indices]
        return float(-np.log(np.maximum(own, _SMALLEST)).mean())
    total = -np.log(np.maximum(1 - proba, _SMALLEST)).sum()
    rows, columns = Y.nonzero()
    own = proba[rows, columns]
    total += (np.log(np.maximum(1 - own, _SMALLEST)) - np.log(np.maximum(own, _SMALLEST))).sum()
    return float(total / Y.shape[0])


def scores(task: Task, model: Model, predicted: Any, proba: NDArray[Any] | None) -> dict[str, float]:
    """F1 of the predictions, and log loss and calibration error of the probabilities."""
    targets = model.targets
    if task.multilabel:
        named: Any = [
            targets.classes[predicted.indices[a:b]].tolist()
            for a, b in zip(predicted.indptr[:-1], predicted.indptr[1:], strict=True)
        ]
    else:
        named = targets.classes[predicted]
    found = {"micro": float(micro_f1(task.y_test, named)), "macro": float(macro_f1(task.y_test, named))}
    if isinstance(task.structure, Hierarchy):
        found["hierarchical"] = float(hierarchical_f1(task.y_test, named, task.structure))
    if proba is not None:
        Y = indicator(task.y_test, task.structure, targets)
        found["log_loss"] = log_loss(Y, proba, task.multilabel)
        if not task.multilabel:
            known = np.flatnonzero(np.diff(Y.indptr))
            best = proba[known].argmax(axis=1)
            confidence = np.clip(proba[known].max(axis=1), 0, 1)
            found["ece"] = float(expected_calibration_error(best == Y[known].indices, confidence))
    return found


def measure(data: str, method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fit a model at its defaults and predict the test part."""
    work, entry = wild_task(data, options.cache, options.quick), MODELS[method]
    why = entry.refuses(work)
    if why:
        return {"status": NOT_APPLICABLE, "why": why}
    targets = encoded(work)
    few = np.random.default_rng(0).permutation(work.X.shape[0])[:_WARM_UP]
    with suppress(ValueError):  # too few rows for the folds of a calibration
        entry.make(work, targets).fit(work.X[few], take(work.y, few))
    model = entry.make(work, targets)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + LIMIT, resource.RLIM_INFINITY))
    forget_peak()
    before, started = peak_gib(), time.process_time()
    model.fit(work.X, work.y)
    fitted = time.process_time()
    predicted, n_times = model.predict(work.X_test), 1
    while (spent := time.process_time() - fitted) < _LEAST_TIMED:
        model.predict(work.X_test)
        n_times += 1
    memory = peak_gib() - before
    return {
        **scores(work, model, predicted, model.proba(work.X_test)),
        "fit": fitted - started,
        "predict": spent / n_times,
        "memory": memory,
    }


def run(cells: Cells, key: str) -> None:
    """Measure a cell; a process that used up its processor time is recorded as such."""
    found = cells.run(key)
    if found["status"] == FAILED and found["why"] == f"ended with code {-signal.SIGXCPU}":
        cells.keep(key, {"status": OVER, "budget": cells.options.budget})


def _cell(found: dict[str, Any] | None, name: str) -> Any:
    if found is None:
        return None
    return found.get(name) if found["status"] == DONE else None


def _name(method: str, found: dict[str, Any]) -> str:
    if found["status"] == OVER:
        return f"{method} (not done in {LIMIT} s)"
    return method if found["status"] == DONE else f"{method} ({found['why']})"


def set_table(found: dict[str, dict[str, Any]]) -> Table:
    """Table of one data set."""
    fields = ("micro", "macro", "hierarchical", "log_loss", "ece", "fit", "predict", "memory")
    rows = [
        (_name(method, cell), *(_cell(cell, field) for field in fields))
        for method, cell in found.items()
        if cell["status"] != NOT_APPLICABLE
    ]
    columns = (
        "method", "micro-F1", "macro-F1", "hierarchical F1", "log loss", "calibration error", "fit (s)",
        "predict (s)", "memory (GiB)",
    )  # fmt: skip
    forms = ("", "percent", "percent", "percent", ".2f", ".3f", ".2f", ".3f", ".2f")
    return Table(columns, rows, forms)


def summary_table(found: dict[str, dict[str, dict[str, Any]]], field: str, form: str) -> Table:
    """Table of one measure: data sets by methods."""
    rows = []
    for data, row in found.items():
        mark = " ∘" if data in KEPT_ASIDE else ""
        rows.append((title(data) + mark, *(_cell(row.get(method), field) for method in MODELS)))
    return Table(("data", *MODELS), rows, ("", *[form] * len(MODELS)))


def verdict_table(found: dict[str, dict[str, dict[str, Any]]]) -> Table:
    """Table of distances from the first method of each data set: the default choice, and the best of Arbora."""
    rows: list[tuple[Any, ...]] = []
    for data, row in found.items():
        done = {method: cell for method, cell in row.items() if cell["status"] == DONE}
        ours = [method for method in OURS if method in done]
        if not ours:
            continue
        mark = " ∘" if data in KEPT_ASIDE else ""
        line: list[Any] = [title(data) + mark]
        for field in ("micro", "hierarchical"):
            known = {method: cell[field] for method, cell in done.items() if field in cell}
            if not known:
                line += [None] * 4
                continue
            best, first = max(ours, key=lambda method: known[method]), max(known.values())
            peers = max(value for method, value in known.items() if method not in OURS)
            own = known[ours[0]]
            line += [100 * (own - peers), 100 * (own - first), 100 * (known[best] - first), best]
        near = {m: cell["fit"] for m, cell in done.items() if cell["micro"] >= _first(done) - _NEAR}
        quickest = min(near, key=lambda method: near[method])
        times = [near[method] for method in ours if method in near]
        line += [quickest, near.get(ours[0]) and near[ours[0]] / near[quickest]]
        others = [seconds for method, seconds in near.items() if method not in OURS]
        beside = near[ours[0]] / min(others) if others and ours[0] in near else None
        rows.append((*line, min(times) / near[quickest] if times else None, beside))
    columns = (
        "data", "micro: beside others", "micro: default", "micro: best", "best in micro",
        "hierarchical: beside others", "hierarchical: default", "hierarchical: best", "best in hierarchical",
        "fastest within 1 point", "time: default", "time: fastest of Arbora", "time: beside others",
    )  # fmt: skip
    scores = ("+.2f", "+.2f", "+.2f", "")
    forms = ("", *scores, *scores, "", ".1f", ".1f", ".1f")
    return Table(columns, rows, forms)


def _first(done: dict[str, dict[str, Any]]) -> float:
    return float(max(cell["micro"] for cell in done.values()))


def report(cells: Cells) -> None:
    """Print the summaries and a table for each data set from the finished cells."""
    found = {data: {method: cells.kept(f"{data} {method}") for method in MODELS} for data in NAMES}
    known = {data: {m: cell for m, cell in row.items() if cell} for data, row in found.items()}
    known = {data: row for data, row in known.items() if row}
    print(EXPLANATION)
    print(f"### Beside the first\n\n{VERDICT}\n{verdict_table(known).to_markdown()}\n")
    for name, field, form in (
        ("Micro-F1", "micro", "percent"),
        ("Hierarchical F1", "hierarchical", "percent"),
        ("Log loss (nats per document)", "log_loss", ".2f"),
        ("Processor seconds of a fit", "fit", ".1f"),
    ):
        print(f"### {name}\n\n{summary_table(known, field, form).to_markdown()}\n")
    for data, row in known.items():
        print(f"### {title(data)}, at defaults\n\n{set_table(row).to_markdown()}\n")


def main() -> None:
    options = parse("Classifiers at their defaults.", NAMES, list(MODELS))
    cells = Cells("benchmarks.wild", options, ARCHIVE)
    if options.cell:
        data, _, method = options.cell.partition(" ")
        cells.measure(lambda: measure(data, method, options))
        return
    if not options.table:
        for data in options.names:
            wild_task(data, options.cache, options.quick)  # loaded before the cells are timed
            for method in options.methods:
                run(cells, f"{data} {method}")
    if options.quick:
        report(cells)
    else:
        cells.write_archive([f"{data} {method}" for data in NAMES for method in MODELS])
        with published(SECTION):
            report(cells)


if __name__ == "__main__":
    one_thread()
    main()
