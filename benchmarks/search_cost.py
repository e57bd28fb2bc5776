"""Cost and choice of the search for C and coupling: the race beside the full grid.

    python -m benchmarks.search_cost                          # all sets; prints each as it is done
    python -m benchmarks.search_cost --only rcv1_dev2316 --quick

Training rows are drawn once (seed 0), at most MOST_ROWS; scores are on the official test part, which the searches
never see. Times are processor seconds of the whole `fit` with `calibration=None` in one thread.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.classify import RecursiveSVC
from arbora.classify.recursive import search
from arbora.classify.recursive.search import evidence, standard_error
from arbora.metrics.table import Table
from benchmarks._common.cells import one_thread
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, Task, take, task

TUNED = ("rcv1_dev2316", "enron_hmc", "imclef07a", "news20")
KEPT_ASIDE = ("lshtc_small", "imclef07d", "cellcycle_fun", "bibtex")
NAMES = TUNED + KEPT_ASIDE
MOST_ROWS, QUICK_ROWS = 2000, 300
GRID_CS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SECTION = "Search: cost and choice beside the full grid"
EXPLANATION = f"""\
`python -m benchmarks.search_cost`: `RecursiveSVC(C="cv", coupling="cv", calibration=None)` with its default
costs, couplings and three folds. "race" is the default; "full grid" tries every pair of the four couplings and
{len(GRID_CS)} costs ({GRID_CS[0]:g} to {GRID_CS[-1]:g}) on all folds to a gap of 3%, with warm-started paths that
end when the score has fallen twice. At most {MOST_ROWS:,} training rows of each set, drawn once (seed 0); F1 on
the official test part, which no search sees. Processor time of the whole `fit` in one thread, in the same
process: "default fits" in units of `RecursiveSVC()`, "fits at the choice" in units of a fit with the chosen cost
and coupling. "gain" is the F1 above that of the full grid, with the standard error of a paired comparison (over
classes for macro-F1, over documents for micro-F1). The constants of the race were chosen on the first four sets,
test scores included; those marked ∘ were set aside then. Later, test scores of all eight sets were seen before it was
decided that coarse solutions are not certified early, so that no row is independent of that decision. Target: at
most 10 default fits, and an F1 that is not lower beyond noise.
"""


class Outcome(NamedTuple):
    """A fitted model: processor seconds, number of fits on folds, choice, and labels of the test part."""

    seconds: float
    n_fits: int
    C: float
    coupling: float
    labels: sp.csr_array


def indicator(work: Task, labels: Any) -> sp.csr_array:
    """Return the 0/1 matrix of the labels of a task."""
    sets = labels if work.multilabel else [[label] for label in labels]
    return work.structure.indicator(sets).astype(np.int64)


def fitted(work: Task, **params: Any) -> Outcome:
    """Fit a model and predict the test part."""
    model = RecursiveSVC(structure=work.structure, calibration=None, n_jobs=1, random_state=0, **params)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # candidates that did not converge are part of the result
        model.fit(work.X, work.y)
    seconds = time.process_time() - start
    n_fits = int(np.isfinite(model.cv_results_["scores"]).sum()) if "cv" in params.values() else 1
    found = indicator(work, model.predict(work.X_test))
    return Outcome(seconds, n_fits, float(model.C_), float(model.coupling_), found)


def full_grid(work: Task) -> Outcome:
    """Try every candidate on all folds."""
    kept = search._FEW_CANDIDATES, search.COARSE_TOL, search.MAX_ROUNDS
    search._FEW_CANDIDATES, search.COARSE_TOL, search.MAX_ROUNDS = 10**9, 0.03, 10**9
    try:
        return fitted(work, C="cv", coupling="cv", search={"costs": GRID_CS})
    finally:
        search._FEW_CANDIDATES, search.COARSE_TOL, search.MAX_ROUNDS = kept


def measure(name: str, work: Task) -> list[tuple[Any, ...]]:
    """Rows of one data set."""
    truth = indicator(work, work.y_test)
    known = np.flatnonzero(np.asarray(truth.sum(axis=0)).ravel())  # classes of the test part
    one = min((fitted(work) for _ in range(2)), key=lambda outcome: outcome.seconds)
    race, grid = fitted(work, C="cv", coupling="cv"), full_grid(work)
    title, rows = SOURCES[name].title + (" ∘" if name in KEPT_ASIDE else ""), []

    def values(outcome: Outcome, macro: bool) -> Any:
        found = evidence(truth, outcome.labels, macro)
        return found[known] if macro else found

    for method, outcome in (("default fit", one), ("race", race), ("full grid", grid)):
        unit = fitted(work, C=outcome.C, coupling=outcome.coupling).seconds
        gains = []
        for macro in (False, True):
            a, b = values(outcome, macro), values(grid, macro)
            gains.append(f"{100 * (a.mean() - b.mean()):+.2f} ± {100 * standard_error(a, b):.2f}")
        rows.append(
            (
                title, method, outcome.seconds, outcome.seconds / one.seconds, outcome.seconds / unit, outcome.n_fits,
                outcome.C, outcome.coupling, values(outcome, False).mean(), values(outcome, True).mean(), *gains,
            )
        )  # fmt: skip
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
    parser.add_argument("--table", action="store_true", help="write the table of the sets that are done")
    options = parser.parse_args()
    done = options.cache / ("search_quick.json" if options.quick else "search.json")
    rows = json.loads(done.read_text()) if done.exists() else {}
    for name in () if options.table else options.only:
        work = drawn(task(name, options.cache), QUICK_ROWS if options.quick else MOST_ROWS)
        rows[name] = measure(name, work)
        print(*rows[name], sep="\n", flush=True)
        done.write_text(json.dumps(rows))
    columns = (
        "data", "method", "seconds", "default fits", "fits at the choice", "fold fits", "C", "coupling", "micro-F1",
        "macro-F1", "micro gain", "macro gain",
    )  # fmt: skip
    formats = ("", "", ".2f", ".1f", ".1f", "d", ".3g", "g", "percent", "percent", "", "")
    listed = [tuple(row) for name in NAMES for row in rows.get(name, ())]
    table = Table(columns, listed, formats).to_markdown()
    if options.quick:
        print(table)
        return
    missing = [SOURCES[name].title for name in NAMES if name not in rows]
    with published(SECTION):
        print(EXPLANATION)
        if missing:
            print(f"Set aside and not yet measured: {', '.join(missing)}.\n")
        print(table)


if __name__ == "__main__":
    one_thread()
    main()
