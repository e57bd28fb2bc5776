"""Growth of time and memory with documents and classes: classifiers at their defaults beside their peers.

    python -m benchmarks.classify_growth             # everything; resumes an interrupted run
    python -m benchmarks.classify_growth --picture docs/images/classify-growth.png
    python -m benchmarks.classify_growth --table     # write finished cells to RESULTS.md
    python -m benchmarks.classify_growth --quick     # the three smallest sizes

A cell is a size and a method, measured in its own process with a limit of processor time.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from arbora.datasets import make_hierarchical_text
from arbora.metrics import micro_f1
from arbora.metrics.table import Table
from arbora.text import LtcTransformer
from benchmarks._common.cells import DONE, FAILED, OVER, Cells, forget_peak, one_thread, parse, peak_gib
from benchmarks._common.contestants import encoded
from benchmarks._common.picture import BLUE, GREEN, ORANGE, RED, save, style
from benchmarks._common.report import published
from benchmarks._common.tasks import Task, take
from benchmarks._common.wild_models import MODELS

SECTION = "Classifiers at their defaults: growth"
ARCHIVE = Path(__file__).parent / "cells" / "classify_growth.json"
SIZES = tuple(2_000 * 2**k for k in range(6))  # documents
PER_CLASS, N_FEATURES, DEPTH, N_TEST, LENGTH = 10, 50_000, 4, 2_000, 50.0
METHODS = {"RecursiveSVC": BLUE, "OneVsRestSVC": GREEN, "napkinXC": ORANGE, "LinearSVC": RED}
MEASURES = (
    ("seconds of a fit", "fit", ".2f"),
    ("memory, GiB", "memory", ".2f"),
    ("micro-F1", "micro", "percent"),
)
LIMIT = 120  # processor seconds of a cell
_WARM_UP = 64  # rows of a first fit, which loads or compiles kernels
EXPLANATION = f"""\
`python -m benchmarks.classify_growth`. Made text: `make_hierarchical_text(documents, {N_FEATURES:_}, depth={DEPTH},
mean_length={LENGTH:g}, n_test={N_TEST:_})`, seed 0, with one class for {PER_CLASS} documents and `ltc` weights. Every
estimator at the defaults of its package, one thread; processor seconds of a fit (Arbora's include the choice of the
cost and the calibration), after a first fit of {_WARM_UP} rows; memory is the peak of fit and prediction above that
of the data. A cell has {LIMIT} s. With twice the documents there are twice the classes, so that one-vs-rest training
has four times as many pairs of a document and a class. The growth is the slope of the line through the last three
points on logarithmic axes: 1 is linear in the documents, 2 linear in the pairs.
"""


def make(n_documents: int) -> Task:
    """Make the text of a size."""
    n_classes = n_documents // PER_CLASS
    data = make_hierarchical_text(
        n_documents,
        N_FEATURES,
        n_leaves=n_classes,
        depth=DEPTH,
        n_test=N_TEST,
        mean_length=LENGTH,
        random_state=0,
    )
    tf_idf = LtcTransformer().fit(data.X_train)
    return Task(
        tf_idf.transform(data.X_train),
        data.y_train,
        tf_idf.transform(data.X_test),
        data.y_test,
        data.hierarchy,
    )


def measure(n_documents: int, method: str) -> dict[str, Any]:
    """Fit a model at its defaults and predict the test part."""
    work = make(n_documents)
    targets, entry = encoded(work), MODELS[method]
    few = np.random.default_rng(0).permutation(n_documents)[:_WARM_UP]
    entry.make(work, targets).fit(work.X[few], take(work.y, few))
    model = entry.make(work, targets)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + LIMIT, resource.RLIM_INFINITY))
    forget_peak()
    before, started = peak_gib(), time.process_time()
    model.fit(work.X, work.y)
    seconds = time.process_time() - started
    answer = np.asarray(targets.classes, object)[model.predict(work.X_test)]
    return {
        "classes": len(targets.classes),
        "fit": seconds,
        "memory": peak_gib() - before,
        "micro": float(micro_f1(work.y_test, answer)),
    }


def run(cells: Cells, key: str) -> None:
    """Measure a cell; a process that used up its processor time is recorded as such."""
    found = cells.run(key)
    if found["status"] == FAILED and found["why"] == f"ended with code {-signal.SIGXCPU}":
        cells.keep(key, {"status": OVER, "budget": cells.options.budget})


def curve(cells: Cells, method: str) -> dict[int, dict[str, Any]]:
    """Finished cells of a method by the number of documents."""
    found = {n: cells.kept(f"{n} {method}") for n in SIZES}
    return {n: cell for n, cell in found.items() if cell is not None and cell["status"] == DONE}


def slope(points: dict[int, dict[str, Any]], field: str) -> float | None:
    """Slope of the line through the last three points on logarithmic axes."""
    last = list(points.items())[-3:]
    if len(last) < 3:
        return None
    return float(np.polyfit([np.log(n) for n, _ in last], [np.log(cell[field]) for _, cell in last], 1)[0])


def report(cells: Cells) -> None:
    """Print a table for each measure, from the finished cells."""
    print(EXPLANATION)
    curves = {method: curve(cells, method) for method in METHODS}
    for label, field, form in MEASURES:
        grows = field != "micro"
        rows = [
            (method, *(points[n][field] if n in points else None for n in SIZES))
            + ((slope(points, field),) if grows else ())
            for method, points in curves.items()
        ]
        columns = (label, *(f"{n:,} / {n // PER_CLASS:,}" for n in SIZES), *(("growth",) if grows else ()))
        print(
            Table(columns, rows, ("", *[form] * len(SIZES), *([".2f"] if grows else []))).to_markdown() + "\n"
        )
    print("Columns: documents / classes. Empty: not done in time.\n")


def draw(cells: Cells, png: Path) -> None:
    """Draw seconds and memory against documents, on logarithmic axes."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    titles = ("<b>Time of a fit</b>", "<b>Memory above that of the data</b>")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.1)
    for column, (field, unit) in enumerate((("fit", "s"), ("memory", "GiB")), start=1):
        for method, color in METHODS.items():
            points = curve(cells, method)
            figure.add_trace(
                Scatter(
                    x=list(points), y=[max(cell[field], 1e-3) for cell in points.values()], name=method,
                    mode="lines+markers", line={"color": color, "width": 3}, marker={"size": 10},
                    showlegend=column == 1,
                ),
                row=1, col=column,
            )  # fmt: skip
        ticks = [t * 10.0**k for k in range(-3, 3) for t in (1, 3)]
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{t:g} {unit}" for t in ticks], col=column)
        figure.update_xaxes(
            type="log", tickvals=list(SIZES), ticktext=[f"{n:,}<br>{n // PER_CLASS:,}" for n in SIZES],
            title_text="documents, and classes below", col=column,
        )  # fmt: skip
    style(figure, 1320, 560)
    save(figure, png)


def main() -> None:
    picture = argparse.ArgumentParser(add_help=False)
    picture.add_argument(
        "--picture", type=Path, metavar="PNG", help="draw the growth (needs plotly and chromium)"
    )
    chosen, sys.argv[1:] = picture.parse_known_args()
    options = parse("Growth of classifiers at their defaults.", [str(n) for n in SIZES], list(METHODS))
    cells = Cells("benchmarks.classify_growth", options, ARCHIVE)
    if options.cell:
        n_documents, _, method = options.cell.partition(" ")
        cells.measure(lambda: measure(int(n_documents), method))
        return
    names = options.names[:3] if options.quick else options.names
    if not options.table:
        for method in options.methods:
            for name in names:
                run(cells, f"{name} {method}")
                if cells.kept(f"{name} {method}")["status"] != DONE:  # larger sizes take longer
                    break
    cells.write_archive([f"{n} {method}" for n in SIZES for method in METHODS])
    with published(SECTION, write=not options.quick):
        report(cells)
    if chosen.picture is not None:
        draw(cells, chosen.picture)


if __name__ == "__main__":
    one_thread()
    main()
