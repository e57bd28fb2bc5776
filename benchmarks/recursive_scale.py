"""Recursive training at the size of DMOZ-2010: time, memory, and growth of the cost of a round.

    python -m benchmarks.recursive_scale                # everything; resumes an interrupted run
    python -m benchmarks.recursive_scale --quick        # at a fortieth of the size

DMOZ-2010 itself is not available. `datasets.make_hierarchical_text` makes a text with as many documents, leaves and
features and a tree of the same depth. Each cell is measured in its own process, so that peak memory is that of the
cell.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np

from arbora.classify import RecursiveSVC
from arbora.datasets import make_hierarchical_text
from arbora.metrics import macro_f1, micro_f1
from arbora.metrics.table import Table
from arbora.text import LtcTransformer
from benchmarks._common.cells import DONE, Cells, one_thread, parse, peak_gib, summary
from benchmarks._common.report import published

DOCUMENTS, TEST, LEAVES, FEATURES, DEPTH = 128_710, 34_880, 12_294, 381_580, 6
C, TOL, PRUNE_BELOW, N_JOBS = 1.0, 0.01, 0.01, 2
N_ROUNDS = 4  # rounds of the fits that measure the growth of the cost
_QUICK = 40  # divisor of the sizes
_WIDTH, _HEIGHT = 48, 14  # size of a plot in characters
SECTION = "Recursive: at the size of DMOZ-2010"
GROWTH_SECTION = "Recursive: growth of the cost of a round"

MODELS = {
    "recursive": ("RecursiveSVC, coupling 0.3", {"coupling": 0.3}),
    "published": ("RecursiveSVC, as published (coupling 1)", {"coupling": 1.0, "fades": False}),
    "pruned": ("RecursiveSVC, coupling 0 (flat, pruned)", {"coupling": 0.0}),
}
SHARES, OF_DOCUMENTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2), 1 / 4
GROWTH = {
    "documents": [(f"documents {share:g}", share, 1.0) for share in SHARES[1:]],  # one per class
    "classes": [(f"classes {share:g}", OF_DOCUMENTS, share) for share in SHARES],
}
NAMES = [*MODELS, *GROWTH]

_TEXT = f"make_hierarchical_text({DOCUMENTS:_}, {FEATURES:_}, n_leaves={LEAVES:_}, depth={DEPTH}, n_test={TEST:_})"
EXPLANATION = f"""\
`python -m benchmarks.recursive_scale`: text made by `{_TEXT}`,
seed 0, with `ltc` weights; C = {C:g}, a certified gap of {100 * TOL:g}%, `prune_below={PRUNE_BELOW:g}`,
`calibration=None`, {N_JOBS} threads. Other work may share the cores: processor minutes are those of both threads
together. "Before" is the peak memory before `fit` (making the text),
"peak" that after all test documents were predicted. Target: under 8 minutes and under 10 GiB. On DMOZ-2010 itself
the thesis took 8.23 minutes on a cluster for RR-SVM and 5.12 for BSVM (Table 3.5).
"""
GROWTH_NOTE = f"""\
Growth of the cost of a round: seconds of the first round over all documents, and of the last of {N_ROUNDS} with its
certificate, coupling 0.3. Documents grow with all {LEAVES:,} classes, classes with {OF_DOCUMENTS:g} of the documents.
The growth is the slope of the line through the points on logarithmic axes; 1 is linear.
"""


class Size(NamedTuple):
    """Size of a synthetic text."""

    documents: int
    leaves: int
    features: int
    test: int


def size(quick: bool, documents: float = 1.0, classes: float = 1.0) -> Size:
    shrink = _QUICK if quick else 1
    return Size(
        round(DOCUMENTS * documents / shrink), round(LEAVES * classes / shrink), FEATURES // shrink, TEST // shrink
    )  # fmt: skip


def make(wanted: Size) -> tuple[Any, ...]:
    """Make a weighted text with its tree."""
    data = make_hierarchical_text(
        wanted.documents, wanted.features, n_leaves=wanted.leaves, depth=DEPTH, n_test=wanted.test, random_state=0
    )  # fmt: skip
    ltc = LtcTransformer().fit(data.X_train)
    X, X_test = ltc.transform(data.X_train), ltc.transform(data.X_test)
    return X, data.y_train, X_test, data.y_test, data.hierarchy


def warm_up() -> None:
    """Compile the kernels."""
    X, y, X_test, _, tree = make(Size(200, 20, 1000, 50))
    recursive(tree, coupling=0.3).fit(X, y).predict(X_test)


def recursive(tree: Any, coupling: float, fades: bool = True, **params: Any) -> RecursiveSVC:
    return RecursiveSVC(
        C, loss="hinge", structure=tree, coupling=coupling if fades else [coupling], tol=TOL,
        prune_below=PRUNE_BELOW, calibration=None, n_jobs=N_JOBS, random_state=0, **params,
    )  # fmt: skip


def measure_model(name: str, quick: bool) -> dict[str, Any]:
    """Train one model at full size and predict."""
    warm_up()
    X, y, X_test, y_test, tree = make(size(quick))
    model = recursive(tree, **MODELS[name][1])
    before, started, processor = peak_gib(), time.perf_counter(), time.process_time()
    model.fit(X, y)
    trained, processor = time.perf_counter(), time.process_time() - processor
    answer = model.predict(X_test)
    answered = time.perf_counter()
    return {
        "seconds": trained - started,
        "processor_seconds": processor,
        "predict_seconds": answered - trained,
        "before_gib": before,
        "gap": float(model.duality_gap_),
        "rounds": float(model.n_iter_),
        "weights": float(model.differences_.nnz),
        "micro": float(micro_f1(y_test, answer)),
        "macro": float(macro_f1(y_test, answer)),
    }


def measure_round(documents: float, classes: float, quick: bool) -> dict[str, Any]:
    """Time the rounds of a short fit."""
    warm_up()
    X, y, _, _, tree = make(size(quick, documents, classes))
    model = recursive(tree, coupling=0.3, max_iter=N_ROUNDS).fit(X, y)
    seconds = np.asarray(model.trace_["seconds"])
    return {
        "documents": X.shape[0],
        "classes": len(model.classes_),
        "nonzeros": int(X.nnz),
        "first": float(seconds[0]),
        "last": float(seconds[-1] - seconds[-2]),
    }


def slope(x: list[float], y: list[float]) -> float:
    """Slope of the line through points on logarithmic axes."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def plot(x: list[float], series: dict[str, list[float]], label: str) -> str:
    """Draw points on logarithmic axes, marked by the first letter of the series, and dots of slope one."""
    xs, ys = np.log(x), {name: np.log(values) for name, values in series.items()}
    every = np.concatenate(list(ys.values()))
    low, high = float(every.min()), float(every.max())
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def put(at_x: float, at_y: float, mark: str) -> None:
        column = round((at_x - xs[0]) / (xs[-1] - xs[0]) * (_WIDTH - 1))
        row = round((high - at_y) / max(high - low, 1e-9) * (_HEIGHT - 1))
        if 0 <= row < _HEIGHT and (grid[row][column] == " " or mark != "."):
            grid[row][column] = mark

    for name, values in ys.items():
        for at in np.linspace(xs[0], xs[-1], _WIDTH):
            put(at, values[-1] + at - xs[-1], ".")
        for point in zip(xs, values, strict=True):
            put(*point, name[0])
    edges = {0: f"{np.exp(high):.3g} s", _HEIGHT - 1: f"{np.exp(low):.3g} s"}
    lines = [f"{edges.get(row, ''):>9} |{''.join(line).rstrip()}" for row, line in enumerate(grid)]
    left, right = f"{x[0]:,.0f}", f"{x[-1]:,.0f} {label}"
    axis = [" " * 10 + "+" + "-" * _WIDTH, " " * 11 + left + right.rjust(_WIDTH - len(left))]
    legend = ", ".join(f"{name[0]} = {name}" for name in series)
    return "\n".join(["```text", *lines, *axis, f"{'':11}{legend}; dots: linear growth", "```"])


def _minutes(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 60


def report(cells: Cells) -> None:
    """Print the table of the models from the finished cells."""
    print(EXPLANATION)
    rows = []
    for name, (title, _) in MODELS.items():
        cell = cells.kept(f"model {name}")
        if cell is None or cell["status"] != DONE:
            rows.append((title, summary(cell), *[None] * 9))
            continue
        rows.append((
            title, cell["seconds"] / 60, _minutes(cell.get("processor_seconds")), 100 * cell["gap"],
            int(cell["rounds"]), cell["before_gib"], cell["peak_gib"],
            cell["weights"] / 1e6, cell["predict_seconds"], cell["micro"], cell["macro"],
        ))  # fmt: skip
    columns = (
        "model", "fit, minutes", "processor minutes", "gap, %", "rounds", "before, GiB", "peak, GiB",
        "weights, millions", "predict, s",
        "micro-F1", "macro-F1",
    )  # fmt: skip
    formats = ("", ".1f", ".1f", ".2f", "d", ".2f", ".2f", ".1f", ".1f", "percent", "percent")
    print(Table(columns, rows, formats).to_markdown())


def report_growth(cells: Cells) -> None:
    """Print the tables and plots of the growth."""
    print(GROWTH_NOTE)
    for label, points in GROWTH.items():
        growth(cells, label, points)


def growth(cells: Cells, label: str, points: list[tuple[str, float, float]]) -> None:
    """Print the table and the plot of one kind of growth."""
    found = [cells.kept(f"round {name}") for name, _, _ in points]
    rows, x, series = [], [], {"first": [], "later": []}
    for (name, _, _), cell in zip(points, found, strict=True):
        if cell is None or cell["status"] != DONE:
            rows.append((f"{name}: {summary(cell)}", *[None] * 4))
            continue
        rows.append((cell["documents"], cell["classes"], cell["nonzeros"], cell["first"], cell["last"]))
        x.append(float(cell[label]))
        series["first"].append(cell["first"])
        series["later"].append(cell["last"])
    columns = ("documents", "classes", "non-zeros", "first round, s", "later round and certificate, s")
    print(Table(columns, rows, (",d", ",d", ",d", ".2f", ".2f")).to_markdown() + "\n")
    if len(x) > 1:
        slopes = ", ".join(f"{name} round {slope(x, values):.2f}" for name, values in series.items())
        print(f"Growth with {label}: {slopes}.\n\n{plot(x, series, label)}\n")


def measure(key: str, options: argparse.Namespace) -> dict[str, Any]:
    what, _, name = key.partition(" ")
    if what == "model":
        return measure_model(name, options.quick)
    shares = {name: shares for points in GROWTH.values() for name, *shares in points}
    return measure_round(*shares[name], options.quick)


def main() -> None:
    options = parse("Recursive training at the size of DMOZ-2010.", NAMES)
    cells = Cells("benchmarks.recursive_scale", options)
    if options.cell:
        cells.measure(lambda: measure(options.cell, options))
        return
    if not options.table:
        for name in options.names:
            if name in GROWTH:
                for point, _, _ in GROWTH[name]:
                    cells.run(f"round {point}")
            else:
                cells.run(f"model {name}")
    with published(SECTION, write=not options.quick):
        report(cells)
    if any(cells.kept(f"round {name}") for points in GROWTH.values() for name, _, _ in points):
        with published(GROWTH_SECTION, write=not options.quick):
            report_growth(cells)


if __name__ == "__main__":
    one_thread()
    main()
