"""Cost and choice of the search for C and coupling: the race beside the full grid.

    python -m benchmarks.search_cost                          # all sets; prints each as it is done
    python -m benchmarks.search_cost --only rcv1_dev2316 --quick

Training rows are drawn once (seed 0), at most MOST_ROWS; scores are on the official test part, which the searches
never see. Times are processor seconds of the whole `fit` with `calibration=None` in one thread, in units of one fit
with the default parameters in the same process.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from arbora.classify import RecursiveSVC
from arbora.classify.recursive import search
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Table
from benchmarks._common.cells import one_thread
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, Task, take, task

NAMES = ("rcv1_dev2316", "enron_hmc", "imclef07a", "news20", "lshtc_small")
MOST_ROWS, QUICK_ROWS, N_SEEDS = 2000, 300, 1
SECTION = "Recursive: cost of the search for C and coupling"
EXPLANATION = f"""\
`python -m benchmarks.search_cost`: `RecursiveSVC(C="cv", coupling="cv", calibration=None)` with its default costs,
couplings and folds. "race" is the default; "full grid" tries every pair on all folds, with the same warm-started
paths, their early end and their extension. At most {MOST_ROWS:,} training rows of each set, drawn once; F1 on the
official test part. "fits" is processor time in units of one fit with the default parameters, in the same process.
"""


def fitted(work: Task, **params: Any) -> tuple[RecursiveSVC, float]:
    """Return a fitted model and its processor seconds."""
    model = RecursiveSVC(structure=work.structure, calibration=None, n_jobs=1, random_state=0, **params)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # candidates that did not converge are part of the result
        model.fit(work.X, work.y)
    return model, time.process_time() - start


def scores(work: Task, model: RecursiveSVC) -> tuple[float, float]:
    """Micro- and macro-F1 on the test part."""
    answer, truth = model.predict(work.X_test), work.y_test
    if work.multilabel:
        known = work.structure
        truth, answer = (known.indicator(labels).astype(np.int64) for labels in (truth, answer))
    return float(micro_f1(truth, answer)), float(macro_f1(truth, answer))


def measure(name: str, work: Task) -> list[tuple[Any, ...]]:
    """Rows of one data set."""
    one, unit = fitted(work)
    one, again = fitted(work)
    unit = min(unit, again)
    rows: list[tuple[Any, ...]] = [
        (SOURCES[name].title, "one fit", 1.0, 1, one.C, one.coupling, *scores(work, one))
    ]
    few = search._FEW_CANDIDATES
    for method, limit in (("race", few), ("full grid", 10**9)):
        search._FEW_CANDIDATES = limit
        try:
            model, seconds = fitted(work, C="cv", coupling="cv")
        finally:
            search._FEW_CANDIDATES = few
        n_fits = int(np.isfinite(model.cv_results_["scores"]).sum())
        rows.append(
            (
                SOURCES[name].title,
                method,
                seconds / unit,
                n_fits,
                model.C_,
                model.coupling_,
                *scores(work, model),
            )
        )
    return rows


def drawn(work: Task, most: int) -> Task:
    """Return a task with at most this many training rows."""
    n_rows = work.X.shape[0]
    kept = np.sort(np.random.default_rng(0).permutation(n_rows)[:most])
    return work._replace(X=work.X[kept], y=take(work.y, kept))


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost and choice of the search for C and coupling.")
    parser.add_argument("--only", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cache", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    rows = []
    for name in options.only:
        work = drawn(task(name, options.cache), QUICK_ROWS if options.quick else MOST_ROWS)
        rows += measure(name, work)
        print(*rows[-3:], sep="\n", flush=True)
    columns = ("data", "method", "fits", "fold fits", "C", "coupling", "micro-F1", "macro-F1")
    table = Table(columns, rows, ("", "", ".1f", "d", "g", "g", "percent", "percent")).to_markdown()
    if options.quick:
        print(table)
        return
    with published(SECTION):
        print(EXPLANATION)
        print(table)


if __name__ == "__main__":
    one_thread()
    main()
