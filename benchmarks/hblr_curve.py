"""Learning curves on CLEF: the benefit of a tree and of a learned prior with few training examples.

    python -m benchmarks.hblr_curve                # everything; resumes an interrupted run
    python -m benchmarks.hblr_curve --quick        # two repeats of two sizes on a small part

Each cell is a method. It trains on every size and repeat in its own process.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from arbora.classify import OneVsRestSVC, RecursiveSVC
from arbora.metrics import macro_f1
from arbora.metrics.table import Table
from benchmarks._common.cells import DONE, Cells, one_thread, parse, summary
from benchmarks._common.contestants import N_FOLDS, QUICK_CS, SEED
from benchmarks._common.hblr_models import CLEF, FLAT, METHODS, MOST_STEPS, PEER, Make
from benchmarks._common.report import published
from benchmarks._common.tasks import SOURCES, Task, task

SIZES, QUICK_SIZES = (1, 2, 3, 5, 10, 20), (1, 3)
N_REPEATS, QUICK_REPEATS = 20, 2
_WIDTH, _HEIGHT = 60, 18  # size of the figure in characters
SECTION = "HBLR: few training examples"


def flat_svc(C: float) -> Make:
    return lambda work, Cs, quick: OneVsRestSVC(
        C, loss="hinge", calibration=None, n_jobs=1, random_state=SEED
    )


def recursive_svc(work: Task, Cs: tuple[float, ...], quick: bool) -> RecursiveSVC:
    return RecursiveSVC(
        0.1,
        loss="hinge",
        structure=work.structure,
        coupling=1.0,
        calibration=None,
        n_jobs=1,
        random_state=SEED,
    )


CURVES: dict[str, Make] = {
    "M3 map": METHODS["M3 map"],
    FLAT: METHODS[FLAT],
    "LogisticRegression, C = 1": lambda work, Cs, quick: LogisticRegression(max_iter=MOST_STEPS),
    PEER: METHODS[PEER],
    "OneVsRestSVC, C = 1": flat_svc(1.0),
    "OneVsRestSVC, C = 0.1": flat_svc(0.1),
    "RecursiveSVC, C = 0.1, coupling 1": recursive_svc,
}
FEWEST = {PEER: N_FOLDS}  # examples per class: one for each fold
DRAWN = {  # methods in the figure, by mark
    "h": "M3 map",
    "f": FLAT,
    "l": "LogisticRegression, C = 1",
    "s": "OneVsRestSVC, C = 0.1",
    "r": "RecursiveSVC, C = 0.1, coupling 1",
}

EXPLANATION = f"""\
`python -m benchmarks.hblr_curve`. CLEF: {", ".join(map(str, SIZES))} training examples of each class, drawn from the
official training part {N_REPEATS} times. All methods use the same draws, smaller draws are subsets of larger ones,
and all examples of a class are used if it has fewer. Macro-F1 on the whole official test part, in per cent: mean ±
standard error over the draws (the test documents are the same). Features are standardised on the whole training part.
HBLR has no parameter to choose. The cost of the others is as stated, or chosen by {N_FOLDS}-fold cross-validation if
each class has that many examples.
"""


def draw(work: Task, size: int, repeat: int) -> Task:
    """Draw examples of every class; a smaller draw of the same repeat is a subset of a larger one."""
    order = np.random.default_rng(repeat).permutation(len(work.y))
    _, codes = np.unique(work.y[order], return_inverse=True)
    by_class = np.argsort(codes, kind="stable")
    first = np.searchsorted(codes[by_class], codes[by_class])
    rows = order[by_class[np.arange(len(order)) - first < size]]
    return work._replace(X=work.X[rows], y=work.y[rows])


def measure(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Macro-F1 of a method by size, one value for each repeat."""
    work = task(CLEF, options.cache, options.quick)
    sizes, n_repeats = (QUICK_SIZES, QUICK_REPEATS) if options.quick else (SIZES, N_REPEATS)
    Cs = QUICK_CS if options.quick else SOURCES[CLEF].Cs
    found: dict[str, list[float]] = {}
    for size in sizes:
        if size < FEWEST.get(method, 1):
            continue
        found[str(size)] = []
        for repeat in range(n_repeats):
            part = draw(work, size, repeat)
            model = CURVES[method](part, Cs, options.quick).fit(part.X, part.y)
            found[str(size)].append(float(macro_f1(work.y_test, model.predict(work.X_test))))
    return {"macro": found}


def text(values: NDArray[np.float64]) -> str:
    return f"{100 * values.mean():.2f} ± {100 * values.std(ddof=1) / np.sqrt(len(values)):.2f}"


def figure(curves: dict[str, dict[int, float]]) -> str:
    """Draw curves by their marks: sizes on a logarithmic axis, macro-F1 in per cent on the other."""
    points = [(size, value, mark) for mark, curve in curves.items() for size, value in curve.items()]
    sizes, values = sorted({size for size, _, _ in points}), [value for _, value, _ in points]
    low, high = min(values), max(values)
    grid = [[" "] * (_WIDTH + len(curves)) for _ in range(_HEIGHT)]
    for size, value, mark in points:
        column = round(np.log(size / sizes[0]) / np.log(sizes[-1] / sizes[0]) * (_WIDTH - 1))
        row = round((high - value) / max(high - low, 1e-9) * (_HEIGHT - 1))
        while grid[row][column] != " ":  # draw points that coincide side by side
            column += 1
        grid[row][column] = mark
    edges = {0: f"{100 * high:.1f}", _HEIGHT - 1: f"{100 * low:.1f}"}
    lines = [f"{edges.get(row, ''):>6} |{''.join(line).rstrip()}" for row, line in enumerate(grid)]
    axis = [" "] * (_WIDTH + 4)
    for size in sizes:
        column = round(np.log(size / sizes[0]) / np.log(sizes[-1] / sizes[0]) * (_WIDTH - 1))
        axis[column : column + len(str(size))] = str(size)
    legend = "; ".join(f"{mark} {DRAWN[mark]}" for mark in curves)
    foot = [" " * 7 + "+" + "-" * _WIDTH, " " * 8 + "".join(axis).rstrip() + " examples per class"]
    return "\n".join(["```text", *lines, *foot, f"{'':8}{legend}", "```"])


def report(cells: Cells, options: argparse.Namespace) -> None:
    """Print the table and the figure from the finished cells."""
    sizes = QUICK_SIZES if options.quick else SIZES
    rows, curves = [], {}
    marks = {method: mark for mark, method in DRAWN.items()}
    for method in CURVES:
        cell = cells.kept(method)
        if cell is None or cell["status"] != DONE:
            rows.append((method, summary(cell), *[None] * (len(sizes) - 1)))
            continue
        found = {size: np.array(cell["macro"].get(str(size), [])) for size in sizes}
        rows.append((method, *(text(values) if len(values) else None for values in found.values())))
        if method in marks:
            curves[marks[method]] = {size: float(values.mean()) for size, values in found.items()}
    print(EXPLANATION)
    print(Table(("examples per class", *map(str, sizes)), rows).to_markdown() + "\n")
    if curves:
        print(figure(curves))


def main() -> None:
    options = parse("Learning curves of HBLR and other models on CLEF.", list(CURVES))
    cells = Cells("benchmarks.hblr_curve", options)
    if options.cell:
        cells.measure(lambda: measure(options.cell, options))
        return
    task(CLEF, options.cache, options.quick)
    if not options.table:
        for method in options.names:
            cells.run(method)
    with published(SECTION, write=not options.quick):
        report(cells, options)


if __name__ == "__main__":
    one_thread()
    main()
