"""Held-out likelihood of structured von Mises-Fisher mixtures: trees and time.

    python -m benchmarks.vmf_structure                       # everything; resumes an interrupted run
    python -m benchmarks.vmf_structure --only cnae9 --quick

Trees (Figure 5.2 of the thesis): models are fitted on a random half of the documents and scored on the other half,
for five hierarchies, by `HierarchicalVMFMixture` and by flat mixtures with as many components as the hierarchy has
leaves. Time (Figure 5.3): the documents of each time point are scored by models of all earlier documents. Every cell
is measured in its own process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from arbora.datasets import load
from arbora.discover import BayesianVMFMixture, HierarchicalVMFMixture, TemporalVMFMixture, VMFMixture
from arbora.discover.vmf.temporal import make_timeline, points_of, read_times
from arbora.metrics.table import Table
from arbora.text import LtcTransformer, LtcVectorizer
from benchmarks._common.cells import DONE, Cells, one_thread, parse, summary
from benchmarks._common.report import published

SECTION = "von Mises-Fisher mixtures in a tree and over time: held-out likelihood"
TREES = {
    "h=3, b=3": (3,) * 3,
    "h=3, b=4": (4,) * 3,
    "h=4, b=3": (3,) * 4,
    "h=2, b=10": (10,) * 2,
    "h=3, b=5": (5,) * 3,
}
RUNS, K = 3, 30  # starts of a cell; clusters over time
MIN_PAST = 2  # time points before the first prediction
QUICK_ROWS, QUICK_K, QUICK_POINTS = 300, 4, 3

EXPLANATION = f"""\
`python -m benchmarks.vmf_structure`: mean log-density of a held-out document, in nats, with respect to the surface of
the sphere; ltc weights, one thread. Only differences are meaningful. The thesis shows figures without numbers; it
claims that H-vMF and T-vMF are above B-vMF, and B-vMF above vMF. vMF: EM with one concentration for all components.
B-vMF: one for each component, as in the structured models. Tree: half of the documents are held out, mean of {RUNS}
starts. Time: {K} clusters; every time point is scored by a model of all earlier points (means over the points; "best
at": share of the points at which T-vMF with constant weights is above B-vMF).
"""


class Source(NamedTuple):
    """A collection and its use."""

    title: str
    read: Callable[[], tuple[Any, Any]]
    tree: bool
    bins: Any = None


def counts(name: str, stamp: str | None = None) -> tuple[Any, Any]:
    data = load(name)
    return LtcTransformer().fit_transform(data.X), None if stamp is None else data.extra[stamp]


def texts(name: str) -> tuple[Any, Any]:
    data = load(name)
    X = LtcVectorizer(min_df=5, max_df=0.5).fit_transform(data.texts)
    return X, data.extra["time"]


SOURCES = {
    "cnae9": Source("CNAE", lambda: counts("cnae9"), True),
    "k9_k1a_k1b": Source("K9", lambda: counts("k9_k1a_k1b"), True),
    "tdt2_30": Source("TDT2", lambda: counts("tdt2_30", "date"), True, "week"),
    "nips_1987_1999": Source("NIPS", lambda: texts("nips_1987_1999"), True, np.arange(1987, 2001)),
    "reuters21578": Source("Reuters", lambda: texts("reuters21578"), False, "week"),
    "sotu": Source("State of the Union", lambda: texts("sotu"), False, np.arange(1790, 2031, 10)),
}
FLAT = {
    "vMF": lambda k, **options: VMFMixture(k, **options),
    "B-vMF": lambda k, **options: BayesianVMFMixture(k, concentration="own", **options),
}
TEMPORAL = {
    "T-vMF": lambda k, **options: TemporalVMFMixture(k, **options),
    "T-vMF, evolving": lambda k, **options: TemporalVMFMixture(k, weights="evolving", **options),
}


def prepared(name: str, cache: Path, quick: bool) -> tuple[sp.csr_matrix, Any]:
    """Weighted rows and times (or None) of a collection, without empty rows; cached."""
    file = cache / f"vmf_structure_{name}.npz"
    if not file.exists():
        X, stamps = SOURCES[name].read()
        X = sp.csr_matrix(X)
        filled = np.diff(X.indptr) > 0
        file.parent.mkdir(parents=True, exist_ok=True)
        times = np.array([]) if stamps is None else np.asarray(stamps)[filled]
        part = X[filled]
        np.savez(
            file,
            data=part.data,
            indices=part.indices,
            indptr=part.indptr,
            shape=part.shape,
            times=times.astype(str),
        )
    arrays = np.load(file)
    X = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=arrays["shape"])
    times = arrays["times"] if arrays["times"].size else None
    if times is not None and not isinstance(SOURCES[name].bins, str):
        times = times.astype(float)
    if quick:
        ids = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:QUICK_ROWS])
        X, times = X[ids], None if times is None else times[ids]
        X = X[:, np.asarray(abs(X).sum(axis=0)).ravel() > 0]
    return X, times


def measure_tree(name: str, tree: str, method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Held-out likelihood of one method for one hierarchy."""
    X, _ = prepared(name, options.cache, options.quick)
    order = np.random.default_rng(0).permutation(X.shape[0])
    train, test = np.split(order, [X.shape[0] // 2])
    scores, started = [], time.perf_counter()
    for seed in range(1 if options.quick else RUNS):
        if method == "H-vMF":
            model: Any = HierarchicalVMFMixture(TREES[tree], random_state=seed)
        else:
            model = FLAT[method](int(np.prod(TREES[tree])), random_state=seed)
        scores.append(model.fit(X[train]).score(X[test]))
    seconds = (time.perf_counter() - started) / len(scores)
    return {"score": float(np.mean(scores)), "deviation": float(np.std(scores)), "seconds": seconds}


def measure_time(name: str, method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Likelihood of each time point under a model of the earlier ones."""
    X, times = prepared(name, options.cache, options.quick)
    read = read_times(times, X.shape[0])
    points = points_of(make_timeline(read, SOURCES[name].bins), read)
    seen = np.unique(points)
    targets = seen[MIN_PAST:][-QUICK_POINTS:] if options.quick else seen[MIN_PAST:]
    k, curve, started = QUICK_K if options.quick else K, [], time.perf_counter()
    for point in targets.tolist():
        past, now = np.flatnonzero(points < point), np.flatnonzero(points == point)
        n_components = min(k, len(past) // 2)
        if method in TEMPORAL:
            model: Any = TEMPORAL[method](n_components, random_state=0).fit(X[past], points[past])
            score = model.score_next(X[now])
        else:
            score = FLAT[method](n_components, random_state=0).fit(X[past]).score(X[now])
        curve.append([point, len(now), score])
    return {"curve": curve, "seconds": time.perf_counter() - started}


def tree_rows(name: str, cells: Cells) -> list[tuple[Any, ...]]:
    rows = []
    for tree, branching in TREES.items():
        results = {method: cells.kept(f"tree | {name} | {tree} | {method}") for method in (*FLAT, "H-vMF")}
        score = {method: cell["score"] for method, cell in results.items() if cell and cell["status"] == DONE}
        missing = {method: summary(cell) for method, cell in results.items() if method not in score}
        if len(missing) == len(results):
            continue
        gain = score["H-vMF"] - score["B-vMF"] if {"H-vMF", "B-vMF"} <= set(score) else None
        cells_of = [score.get(method, missing.get(method)) for method in results]
        shown = [value if isinstance(value, str) else f"{value:,.1f}" for value in cells_of]
        rows.append((SOURCES[name].title, tree, int(np.prod(branching)), *shown, gain))
    return rows


def time_row(name: str, cells: Cells) -> tuple[Any, ...] | None:
    results = {method: cells.kept(f"time | {name} | {method}") for method in (*FLAT, *TEMPORAL)}
    done = {m: np.array(cell["curve"]) for m, cell in results.items() if cell and cell["status"] == DONE}
    if "vMF" not in done:
        return None
    gains = [
        f"{np.mean(done[m][:, 2] - done['vMF'][:, 2]):+.1f}" if m in done else summary(results[m])
        for m in results
    ]
    both = {"B-vMF", "T-vMF"} <= set(done)
    best = float(np.mean(done["T-vMF"][:, 2] > done["B-vMF"][:, 2])) if both else None
    return (SOURCES[name].title, len(done["vMF"]), f"{done['vMF'][:, 2].mean():,.1f}", *gains[1:], best)


def report(cells: Cells) -> None:
    """Print the tables from the finished cells."""
    print(EXPLANATION)
    rows = [row for name, source in SOURCES.items() if source.tree for row in tree_rows(name, cells)]
    columns = ("data", "hierarchy", "leaves", *FLAT, "H-vMF", "H-vMF over B-vMF")
    print(Table(columns, rows, ("", "", "d", "", "", "", "+.1f")).to_markdown() + "\n")
    rows = [row for name in SOURCES if (row := time_row(name, cells)) is not None]
    columns = ("data", "points", "vMF", *(f"{m} over vMF" for m in ("B-vMF", *TEMPORAL)), "best at")
    print(Table(columns, rows, ("", "d", "", "", "", "", "percent")).to_markdown())


def keys(options: argparse.Namespace) -> list[str]:
    """Names of the selected cells."""
    trees = list(TREES)[:2] if options.quick else list(TREES)
    chosen = {name: SOURCES[name] for name in options.names}
    tree = [
        f"tree | {name} | {tree} | {method}"
        for name, source in chosen.items()
        if source.tree
        for tree in trees
        for method in (*FLAT, "H-vMF")
    ]
    times = [name for name, source in chosen.items() if source.bins is not None]
    return tree + [f"time | {name} | {method}" for name in times for method in (*FLAT, *TEMPORAL)]


def run_cell(cells: Cells, options: argparse.Namespace) -> None:
    """Measure the cell of this process."""
    kind, name, *rest = options.cell.split(" | ")
    measure = {"tree": measure_tree, "time": measure_time}[kind]
    cells.measure(lambda: measure(name, *rest, options))


def main() -> None:
    options = parse("Held-out likelihood of structured von Mises-Fisher mixtures.", list(SOURCES))
    cells = Cells("benchmarks.vmf_structure", options)
    if options.cell:
        run_cell(cells, options)
        return
    if not options.table:
        for name in options.names:
            prepared(name, options.cache, options.quick)
        for key in keys(options):
            cells.run(key)
    with published(SECTION, write=not options.quick):
        report(cells)


if __name__ == "__main__":
    one_thread()
    main()
