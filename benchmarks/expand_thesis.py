"""Transformations learned from some classes, clustering of the others: Tables 6.2 to 6.10, 7.1 and D.1 to D.6.

    python -m benchmarks.expand_thesis                     # everything; resumes an interrupted run
    python -m benchmarks.expand_thesis --only orl vowel --splits 3
    python -m benchmarks.expand_thesis --methods ExpandClusters     # one column; the other cells are stored
    python -m benchmarks.expand_thesis --table                      # the tables of stored cells
    python -m benchmarks.expand_thesis --quick

The protocol is that of section 6.6 of the thesis (`_common.expand_methods`), the features are those of section 6.6.2
(`_common.expand_data`). Further tables: two views of one set (Table 6.8), unlabelled rows (Table 6.9), the SVD
(Table 6.10), the number of training classes (Figure 6.2). Every cell is measured in its own process.
Finished cells are kept in `benchmarks/cells/expand_thesis.json`. A cell with fewer splits than 10 (`--splits`) is
shown with their number until it is measured with 10.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from arbora.datasets import load
from arbora.expand import ExpandClusters, WithinClassTransform
from benchmarks._common import expand_published as published_in
from benchmarks._common.cells import DONE, Cells, one_thread, parse, summary
from benchmarks._common.expand_data import MOST_ROWS, REDUCED_DIMS, SOURCES, Rows, reduced, rows_of
from benchmarks._common.expand_methods import (
    AUTO,
    GAMMA,
    GROUPS,
    METHODS,
    STARTS,
    Split,
    cluster,
    fitted,
    hidden,
    measure_group,
    run_labels,
    split_classes,
)
from benchmarks._common.expand_report import (
    N_TEST,
    NON_NEGATIVE,
    SUPERVISED,
    TRAINING,
    VIEW_METHODS,
    VIEW_SHARE,
    VIEW_SPLITS,
    VIEWS,
    WIDE,
    WITH_UNLABELLED,
    report_all,
)
from benchmarks._common.report import published

SECTION = "Expand: learned transformations, classes found that were not labelled"
SPLITS, QUICK_SPLITS, QUICK_STARTS, QUICK_ROWS = 10, 2, 2, 400
ROUNDS = 0, 1, 3
ARCHIVE = Path(__file__).parent / "cells" / "expand_thesis.json"

EXPLANATION = f"""\
`python -m benchmarks.expand_thesis`: classes are split at random into training, validation and test classes (a third
each). The transformation is learned from the training classes; strengths are chosen by the NMI of k-means on the
validation classes; the rows of the test classes are clustered with their true number. GM is k-means in the plain
space, and all transformations but the spherical one are followed by the same k-means: the best of {STARTS} k-means++
starts by objective. The thesis averages over 50 starts; the table of gains has means over the starts as well.
`{AUTO}` labels training and validation classes, and chooses scale, transformation and clusterer by hiding groups.
"WithinClass" has its default shrinkage .1, "tuned" chooses it like the others. LMNN has 5 target neighbours (50 in
the thesis) and stops at a certified duality gap of 1%, or after 200 steps; among its strengths is 0, the published
problem. BP learns from the training classes, its pool holds the test classes; it clusters by itself and has no
strength.

Features: HOG for images, Fourier coefficients for Auslan and Character Trajectories, ltc for text, each feature by
its own deviation for Image and Leaves, all others as they are; SVD to {REDUCED_DIMS} dimensions above 200. "unit" are
texts whose rows have unit length after the SVD (Table 6.7). At most {MOST_ROWS:,} rows of a set, drawn at random
(Isolet, Letter, Penbased, Optrec, USPS, MNIST, Auslan, TDT2). Not the sets of the thesis: Auslan (another recording:
five signers, Nintendo glove), Character Trajectories (100 of 2,858 rows), LFW (62 people with at least 20 pictures),
TDT2 for TDT4. HOG cells are larger than in the thesis. So the published figures in brackets show the order of the
methods, not a target.
"""


# Measuring


def small(rows: Rows) -> Rows:
    """Take a part of the rows for --quick: some rows of nine classes."""
    order = np.random.default_rng(0).permutation(int(rows.y.max()) + 1)
    rest = np.isin(rows.y, order[:9])
    ids = np.flatnonzero(rest)
    ids = np.sort(np.random.default_rng(0).permutation(ids)[:QUICK_ROWS])
    full = None if rows.full is None else rows.full[ids]
    return Rows(rows.X[ids], np.unique(rows.y[ids], return_inverse=True)[1], full)


def rows_for(name: str, options: argparse.Namespace) -> Rows:
    rows = rows_of(name, options.cache)
    return small(rows) if options.quick else rows


def measure_classes(name: str, group: str, splits: int, options: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    starts = QUICK_STARTS if options.quick else STARTS
    found = measure_group(group, rows_for(name, options), SOURCES[name].unit, splits, starts)
    best = max(float(np.mean(first["nmi"])) for first in found.values())
    return {"methods": found, "best_nmi": best, "seconds": time.perf_counter() - started}


def isolet_rows(view: str, options: argparse.Namespace) -> Rows:
    """Isolet with letters or speakers as classes, in the dimensions of the SVD; all rows."""
    data = load("isolet")
    label = data.y if view == "letter" else data.extra["speaker"]
    y = np.unique(np.asarray(label).astype(str), return_inverse=True)[1]
    X = np.asarray(data.X, np.float64)
    rows = Rows(reduced(X, False), y, X)
    return small(rows) if options.quick else rows


def measure_view(view: str, splits: int, options: argparse.Namespace) -> dict[str, Any]:
    """Label a tenth of the classes (at least two), with default strengths."""
    rows, found = isolet_rows(view, options), {}
    n_classes = int(rows.y.max()) + 1
    n_train = max(2, round(VIEW_SHARE * n_classes))
    for name in VIEW_METHODS:
        default = {"TCS-CS": 2.0, "TCS-GM": 1e-3}.get(name)
        X, scores = rows.full if name == WIDE else rows.X, []
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(n_classes)
            train = np.isin(rows.y, order[:n_train])
            if name == WIDE:
                mapped = WithinClassTransform(n_dims=None).fit(X[train], rows.y[train]).transform(X[~train])
            else:
                mapped = fitted(METHODS[name], default, X[train], rows.y[train])(X[~train])
            scores.append(cluster(mapped, rows.y[~train], 3, seed))
        found[name] = {"nmi": [one.nmi for one in scores], "ari": [one.ari for one in scores]}
    return {"methods": found, "n_train": n_train}


def measure_unlabelled(name: str, splits: int, options: argparse.Namespace) -> dict[str, Any]:
    """TCS-GM, then further rounds with confident pool rows as labels; default strength, training classes alone."""
    rows, found = rows_for(name, options), {}
    for rounds in ROUNDS:
        lines = []
        for seed in range(splits):
            split = split_classes(rows.y, seed)
            ids = np.concatenate([split.train, split.test])
            y, n_new = hidden(rows, split)
            started = time.perf_counter()
            model = ExpandClusters(
                "gaussian", "kmeans", n_new=n_new, pool="new", scale="common", n_init=STARTS, n_rounds=rounds,
                random_state=seed,
            ).fit(rows.X[ids], y[ids])  # fmt: skip
            labels = model.labels_[len(split.train) :].astype(str)
            lines.append(run_labels(labels, rows.y[split.test], time.perf_counter() - started))
        found[str(rounds)] = {key: [line[key] for line in lines] for key in lines[0]}
    plain = [cluster(rows.X[s.test], rows.y[s.test], STARTS, seed) for seed, s in splits_of(rows, splits)]
    found["GM"] = {"nmi": [one.nmi for one in plain], "ari": [one.ari for one in plain]}
    return {"methods": found}


def splits_of(rows: Rows, splits: int) -> list[tuple[int, Split]]:
    return [(seed, split_classes(rows.y, seed)) for seed in range(splits)]


def measure_reduced(name: str, splits: int, options: argparse.Namespace) -> dict[str, Any]:
    """K-means of all classes with all features and after the SVD: means over starts."""
    rows = rows_of(name, options.cache, full=True)
    starts = QUICK_STARTS if options.quick else splits
    found = {}
    for what, X in (("full", rows.full), ("svd", rows.X)):
        scores = cluster(X, rows.y, starts, 0)
        found[what] = {"nmi": [scores.mean_nmi], "ari": [scores.mean_ari]}
    return {"methods": found, "n_features": int(rows.full.shape[1])}


def measure_supervision(name: str, splits: int, options: argparse.Namespace) -> dict[str, Any]:
    """NMI above GM on 25 test classes by the number of training classes; default strengths."""
    rows = isolet_rows("speaker", options) if name == "isolet speakers" else rows_for(name, options)
    n_classes, found = int(rows.y.max()) + 1, {}
    n_test = min(N_TEST, n_classes // 2)
    numbers = [number for number in TRAINING if number <= n_classes - n_test]
    for method, default in (("TCS-GM", 1e-3), ("WithinClass", None), ("TCS-CS", 2.0)):
        gains = []
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(n_classes)
            test = np.isin(rows.y, order[:n_test])
            plain = cluster(rows.X[test], rows.y[test], STARTS, seed).nmi
            line = []
            for number in numbers:
                train = np.isin(rows.y, order[n_test : n_test + number])
                mapped = fitted(METHODS[method], default, rows.X[train], rows.y[train])
                line.append(cluster(mapped(rows.X[test]), rows.y[test], STARTS, seed).nmi - plain)
            gains.append(line)
        found[method] = np.mean(gains, axis=0).tolist()
    return {"numbers": numbers, "gains": found}


def measure(key: str, options: argparse.Namespace) -> dict[str, Any]:
    kind, name, *rest, splits = key.split(" | ")
    if kind == "classes":
        return measure_classes(name, rest[0], int(splits), options)
    works: dict[str, Callable[[str, int, argparse.Namespace], dict[str, Any]]] = {
        "view": measure_view, "unlabelled": measure_unlabelled, "reduced": measure_reduced,
        "supervision": measure_supervision,
    }  # fmt: skip
    return works[kind](name, int(splits), options)


def keys(names: list[str], splits: int) -> list[str]:
    """Names of all cells: the main tables by group of methods, then the smaller tables."""
    result = []
    for group in GROUPS:
        for name in names:
            applies = {"spherical": SOURCES[name].unit, GAMMA: name in NON_NEGATIVE}
            if applies.get(group, True):
                result.append(f"classes | {name} | {group} | {splits}")
    result += [f"view | {view} | {VIEW_SPLITS}" for view in VIEWS if "isolet" in names]
    result += [f"unlabelled | {name} | {splits}" for name in WITH_UNLABELLED if name in names]
    result += [
        f"reduced | {name} | {splits}"
        for name in names if SOURCES[name].published in published_in.REDUCED and not SOURCES[name].unit
    ]  # fmt: skip
    return result + [f"supervision | {name} | {splits}" for name in SUPERVISED if name.split()[0] in names]


def report(cells: Cells, names: list[str], splits: int) -> None:
    print(EXPLANATION)
    report_all(cells, names, splits)
    missing: dict[str, list[str]] = {}
    for key in keys(names, splits):
        kind, name, group, *_ = key.split(" | ")
        found = cells.kept(key)
        if found is None or found["status"] != DONE:
            stem = key.rpartition(" | ")[0]
            fewer = [
                n
                for n in range(1, splits)
                if (first := cells.kept(f"{stem} | {n}")) and first["status"] == DONE
            ]
            why = "" if found is None else f" ({summary(found)})"
            why = f" ({max(fewer)} splits so far)" if fewer else why
            missing.setdefault(group if kind == "classes" else kind, []).append(f"{name}{why}")
    if missing:
        lines = (f"{what}: {', '.join(absent)}" for what, absent in missing.items())
        print(f"\nNot measured yet with {splits} splits. {'; '.join(lines)}.")


def main() -> None:
    options = parse("Transformations learned from labelled classes.", list(SOURCES), list(GROUPS), SPLITS)
    options.splits = QUICK_SPLITS if options.quick else options.splits
    cells = Cells("benchmarks.expand_thesis", options, ARCHIVE)
    if options.cell:
        cells.measure(lambda: measure(options.cell, options))
        return
    if not options.table:
        for key in keys(options.names, options.splits):
            kind, _, group, *_ = key.split(" | ")
            if kind != "classes" or group in options.methods:
                cells.run(key)
    if options.quick:
        report(cells, options.names, options.splits)
    else:
        cells.write_archive([key for n in range(1, SPLITS + 1) for key in keys(list(SOURCES), n)])
        with published(SECTION):
            report(cells, list(SOURCES), SPLITS)


if __name__ == "__main__":
    one_thread()
    main()
