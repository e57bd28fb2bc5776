"""Time of recursive training and prediction, compared with flat LIBLINEAR and local HiClass, one thread.

    python -m benchmarks.recursive_speed                       # everything; resumes an interrupted run
    python -m benchmarks.recursive_speed --only news20 --quick

On each data set the contestants alternate, and the best of several turns counts; the kernels are compiled beforehand.
The flat and the recursive objectives are different functions (equal for coupling 0), so each is reported: that of
LinearSVC from its weights in double precision, that of `RecursiveSVC` with its certified gap.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from arbora.classify import RecursiveSVC
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Table
from benchmarks._common.cells import DONE, Cells, forget_peak, one_thread, parse, peak_gib, summary
from benchmarks._common.contestants import CONTESTANTS, encoded
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, Task, take, task
from benchmarks._common.timing import timed
from benchmarks.flat import objective

N_TURNS = 3
C, COUPLINGS, TOL = 1.0, (0.0, 0.1, 0.3, 1.0), 0.01
PEER, LOCAL = "LinearSVC", "HiClass"
MILLION, QUICK_MILLION = 1_000_000, 20_000
NAMES = ("lshtc_small", "wordnet_gloss", "news20")
_WARM_UP = 300
SECTION = "Recursive: time of training and prediction"

EXPLANATION = f"""\
`python -m benchmarks.recursive_speed`: best of {N_TURNS} alternating turns; one thread; C = {C:g}; `fit` with
compiled kernels and `calibration=None`. `LinearSVC(loss="hinge")` has its default tolerance. `RecursiveSVC` stops at
a certified relative duality gap of {100 * TOL:g}%, with several couplings (0 is flat training with the objective of
LinearSVC) and as published (coupling 1). HiClass is `LocalClassifierPerParentNode` with the same
LinearSVC at every node. Target: at most 0.5 of the time of LinearSVC and at most that of HiClass.
"""
PREDICTION = """\
Prediction of one label for each of a million documents (the test part repeated) by the model with coupling 0.1, in
one call of `predict`. "Memory before" includes the model, the training data and the million documents; "peak" is the
peak memory during prediction.
"""


def recursive(work: Task, coupling: Any, n_jobs: int = 1, seed: int = 0, **params: Any) -> RecursiveSVC:
    return RecursiveSVC(
        C, loss="hinge", structure=work.structure, coupling=coupling, tol=TOL, calibration=None, n_jobs=n_jobs,
        random_state=seed, **params,
    )  # fmt: skip


def scored(work: Task, answer: Any) -> dict[str, float]:
    return {"micro": float(micro_f1(work.y_test, answer)), "macro": float(macro_f1(work.y_test, answer))}


def train_peer(work: Task, seed: int) -> dict[str, float]:
    model = LinearSVC(loss="hinge", C=C, random_state=seed)
    seconds = timed(lambda: model.fit(work.X, work.y))
    found = {"seconds": seconds, "objective": objective(model, work.X, work.y, C)}
    return found | scored(work, model.predict(work.X_test))


def train_local(work: Task, seed: int) -> dict[str, float]:
    targets = encoded(work)
    contestant = CONTESTANTS[LOCAL].make(work, targets, False)
    target = contestant.target(work.y)
    seconds = timed(lambda: contestant.fit(work.X, target, C, None))
    return {"seconds": seconds, **scored(work, targets.classes[contestant.answer(work.X_test)])}


def train_recursive(work: Task, seed: int, coupling: Any, **params: Any) -> dict[str, float]:
    model = recursive(work, coupling, seed=seed, **params)
    seconds = timed(lambda: model.fit(work.X, work.y))
    found = {
        "seconds": seconds,
        "objective": float(model.trace_["objective"][-1]),
        "gap": float(model.duality_gap_),
        "rounds": float(model.n_iter_),
    }
    return found | scored(work, model.predict(work.X_test))


def contestants(work: Task) -> dict[str, Callable[[int], dict[str, float]]]:
    """Contestants on a data set, by name."""
    found: dict[str, Callable[[int], dict[str, float]]] = {PEER: lambda seed: train_peer(work, seed)}
    if CONTESTANTS[LOCAL].refuses(work) is None:
        found[LOCAL] = lambda seed: train_local(work, seed)
    for coupling in COUPLINGS:
        found[f"RecursiveSVC, coupling {coupling:g}"] = lambda seed, c=coupling: train_recursive(
            work, seed, c
        )
    found["RecursiveSVC, as published"] = lambda seed: train_recursive(work, seed, [1.0])
    return found


def measure_training(work: Task, n_turns: int) -> dict[str, Any]:
    few = np.random.default_rng(0).permutation(work.X.shape[0])[:_WARM_UP]
    small = work._replace(X=work.X[few], y=take(work.y, few))
    for compile_kernels in contestants(small).values():
        compile_kernels(0)
    turns: dict[str, list[dict[str, float]]] = {}
    with threadpool_limits(1):
        for seed in range(n_turns):
            for name, train in contestants(work).items():
                turns.setdefault(name, []).append(train(seed))
    return {"turns": turns}


def measure_prediction(work: Task, n_documents: int) -> dict[str, Any]:
    model = recursive(work, "auto", n_jobs=2).fit(work.X, work.y)
    n_tiles = -(-n_documents // work.X_test.shape[0])
    X = sp.csr_matrix(sp.vstack([work.X_test] * n_tiles, format="csr")[:n_documents])
    model.predict(X[:_WARM_UP])
    found: dict[str, Any] = {"documents": n_documents}
    for n_jobs in (1, 2):
        model.set_params(n_jobs=n_jobs)
        gc.collect()
        forget_peak()
        before = peak_gib()
        seconds = timed(lambda: model.predict(X))
        found[str(n_jobs)] = {"seconds": seconds, "before_gib": before, "peak_gib": peak_gib()}
    return found


def training_rows(name: str, cell: dict[str, Any] | None) -> list[tuple[Any, ...]]:
    """Rows of one data set."""
    if cell is None or cell["status"] != DONE:
        return [(SOURCES[name].title, summary(cell), *[None] * 8)]
    turns = cell["turns"]
    best = {method: min(turn["seconds"] for turn in found) for method, found in turns.items()}
    rows = []
    for method, found in turns.items():
        mean = {key: float(np.mean([turn[key] for turn in found])) for key in found[0]}
        to_local = best[method] / best[LOCAL] if LOCAL in best and method not in (PEER, LOCAL) else None
        to_peer = None if method == PEER else best[method] / best[PEER]
        rows.append((
            SOURCES[name].title, method, best[method], to_peer, to_local, mean.get("objective"),
            None if "gap" not in mean else 100 * mean["gap"], mean.get("rounds"), mean["micro"], mean["macro"],
        ))  # fmt: skip
    return rows


def report(cells: Cells, options: argparse.Namespace) -> None:
    """Print both tables from the finished cells."""
    print(EXPLANATION)
    rows = [row for name in NAMES for row in training_rows(name, cells.kept(f"fit {name}"))]
    columns = (
        "data", "method", "seconds", "relative to LinearSVC", "relative to HiClass", "objective", "gap, %", "rounds",
        "micro-F1", "macro-F1",
    )  # fmt: skip
    formats = ("", "", ".2f", ".2f", ".2f", ".1f", ".2f", ".1f", "percent", "percent")
    print(Table(columns, rows, formats).to_markdown() + "\n")
    print(PREDICTION)
    rows = []
    for name in NAMES:
        cell = cells.kept(f"predict {name}")
        if cell is None or cell["status"] != DONE:
            rows.append((SOURCES[name].title, summary(cell), *[None] * 5))
            continue
        n_classes = len(encoded(task(name, options.cache, options.quick)).classes)
        for n_jobs in ("1", "2"):
            one = cell[n_jobs]
            speed = cell["documents"] / one["seconds"]
            title = SOURCES[name].title
            rows.append(
                (title, n_classes, int(n_jobs), one["seconds"], speed, one["before_gib"], one["peak_gib"])
            )
    columns = (
        "data",
        "classes",
        "threads",
        "seconds",
        "documents per second",
        "memory before, GiB",
        "peak, GiB",
    )
    print(Table(columns, rows, ("", ",d", "d", ".1f", ",.0f", ".2f", ".2f")).to_markdown())


def main() -> None:
    options = parse("Time of recursive training and prediction.", list(NAMES))
    cells = Cells("benchmarks.recursive_speed", options)
    if options.cell:
        what, _, name = options.cell.partition(" ")
        work = task(name, options.cache, options.quick)
        if what == "fit":
            cells.measure(lambda: measure_training(work, 1 if options.quick else N_TURNS))
        else:
            n_documents = QUICK_MILLION if options.quick else MILLION
            cells.measure(lambda: measure_prediction(work, n_documents))
        return
    if not options.table:
        for name in options.names:
            task(name, options.cache, options.quick)
            cells.run(f"fit {name}")
            cells.run(f"predict {name}")
    with published(SECTION, write=not options.quick):
        report(cells, options)


if __name__ == "__main__":
    one_thread()
    main()
