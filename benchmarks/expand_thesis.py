"""Transformations learned from some classes, clustering of the others: Tables 6.2 to 6.10, 7.1 and D.1 to D.6.

    python -m benchmarks.expand_thesis                     # everything; resumes an interrupted run
    python -m benchmarks.expand_thesis --only orl vowel --splits 3
    python -m benchmarks.expand_thesis --quick

The protocol is that of section 6.6 of the thesis (`_common.expand_methods`), the features are those of section 6.6.2
(`_common.expand_data`). Further tables: two views of one set (Table 6.8), unlabelled rows (Table 6.9), the SVD
(Table 6.10), the number of training classes (Figure 6.2). Every cell is measured in its own process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from arbora.datasets import load
from arbora.expand import ExpandClusters
from arbora.metrics.table import Table
from benchmarks._common import expand_published as published_in
from benchmarks._common.cells import DONE, NOT_APPLICABLE, Cells, one_thread, parse, summary
from benchmarks._common.expand_data import MOST_ROWS, REDUCED_DIMS, SOURCES, Rows, reduced, rows_of
from benchmarks._common.expand_methods import (
    AUTO,
    GROUPS,
    METHODS,
    PRIOR,
    STARTS,
    Split,
    cluster,
    fitted,
    hidden,
    measure_group,
    run_labels,
    split_classes,
)
from benchmarks._common.report import published

SECTION = "Expand: learned transformations, classes found that were not labelled"
SPLITS, QUICK_SPLITS, QUICK_STARTS, QUICK_ROWS = 10, 2, 2, 400
SHOWN = (
    "GM", "VM", "WithinClass", "WithinClass tuned", "TCS-GM", "TCS-CS", "TCS-GM-L2", "TCS-FS", "FD", "LMNN", "PCC",
    PRIOR, "TCS-MM", "TCS-VM", AUTO,
)  # fmt: skip
PROPOSED = ("TCS-GM", "TCS-CS", "TCS-GM-L2", "TCS-FS")
BASELINES = ("FD", "LMNN", "PCC", PRIOR, "GM")
ROUNDS = 0, 1, 3
WITH_UNLABELLED = "auslan", "orl", "vowel", "k9", "isolet", "leaves100"
TRAINING, N_TEST = (3, 5, 8, 12, 18, 25), 25
SUPERVISED = "leaves100", "auslan", "isolet speakers"
VIEW_SPLITS, VIEWS, VIEW_METHODS = 3, ("letter", "speaker"), ("GM", "TCS-CS", "TCS-GM", "WithinClass")
VIEW_SHARE = 0.1  # of the letters or speakers that are labelled
NOTICEABLE = 0.01  # difference of NMI that a verdict counts as one

EXPLANATION = f"""\
`python -m benchmarks.expand_thesis`: classes are split at random into training, validation and test classes (a third
each). The transformation is learned from the training classes; strengths are chosen by the NMI of k-means on the
validation classes; the rows of the test classes are clustered with their true number. GM is k-means in the plain
space, and all transformations but the spherical one are followed by the same k-means: the best of {STARTS} k-means++
starts by objective. The thesis averages over 50 starts, which is a little lower; means over starts are in the last
table of the main part. `{AUTO}` labels training and validation classes, and chooses scale, transformation and
clusterer by hiding groups. "WithinClass" has its default shrinkage .1, "tuned" chooses it like the others. LMNN has 5
target neighbours (50 in the thesis) and at most 100 steps.

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
    """A part of the rows for --quick: all rows of some classes."""
    order = np.random.default_rng(0).permutation(int(rows.y.max()) + 1)
    kept = np.isin(rows.y, order[:9])
    ids = np.flatnonzero(kept)
    ids = np.sort(np.random.default_rng(0).permutation(ids)[:QUICK_ROWS])
    return Rows(rows.X[ids], np.unique(rows.y[ids], return_inverse=True)[1])


def rows_for(name: str, options: argparse.Namespace) -> Rows:
    rows = rows_of(name, options.cache)
    return small(rows) if options.quick else rows


def measure_classes(name: str, group: str, splits: int, options: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    starts = QUICK_STARTS if options.quick else STARTS
    found = measure_group(group, rows_for(name, options), SOURCES[name].unit, splits, starts)
    best = max(float(np.mean(one["nmi"])) for one in found.values())
    return {"methods": found, "best_nmi": best, "seconds": time.perf_counter() - started}


def isolet_rows(view: str, options: argparse.Namespace) -> Rows:
    """Isolet with letters or speakers as classes, in the dimensions of the SVD; all rows."""
    data = load("isolet")
    label = data.y if view == "letter" else data.extra["speaker"]
    y = np.unique(np.asarray(label).astype(str), return_inverse=True)[1]
    rows = Rows(reduced(np.asarray(data.X, np.float64), False), y)
    return small(rows) if options.quick else rows


def measure_view(view: str, splits: int, options: argparse.Namespace) -> dict[str, Any]:
    """A tenth of the classes is labelled (at least two); default strengths."""
    rows, found = isolet_rows(view, options), {}
    n_classes = int(rows.y.max()) + 1
    n_train = max(2, round(VIEW_SHARE * n_classes))
    for name in VIEW_METHODS:
        default = {"TCS-CS": 2.0, "TCS-GM": 1e-3}.get(name)
        scores = []
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(n_classes)
            train = np.isin(rows.y, order[:n_train])
            mapped = fitted(METHODS[name], default, rows.X[train], rows.y[train])(rows.X[~train])
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
            kept = np.concatenate([split.train, split.test])
            y, n_new = hidden(rows, split)
            started = time.perf_counter()
            model = ExpandClusters(
                "gaussian", "kmeans", n_new=n_new, pool="new", scale="common", n_init=STARTS, n_rounds=rounds,
                random_state=seed,
            ).fit(rows.X[kept], y[kept])  # fmt: skip
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


def has_prior() -> bool:
    import arbora.expand

    return hasattr(arbora.expand, "BayesianPriorMixture")


def keys(names: list[str], splits: int) -> list[str]:
    """Names of all cells: the main tables by group of methods, then the smaller tables."""
    found = []
    for group in GROUPS:
        for name in names:
            if group != "spherical" or SOURCES[name].unit:
                found.append(f"classes | {name} | {group} | {splits}")
    found += [f"view | {view} | {VIEW_SPLITS}" for view in VIEWS if "isolet" in names]
    found += [f"unlabelled | {name} | {splits}" for name in WITH_UNLABELLED if name in names]
    found += [
        f"reduced | {name} | {splits}"
        for name in names if SOURCES[name].published in published_in.REDUCED and not SOURCES[name].unit
    ]  # fmt: skip
    return found + [f"supervision | {name} | {splits}" for name in SUPERVISED if name.split()[0] in names]


# Reporting


class Found:
    """Finished cells of the main tables: scores by set and method."""

    def __init__(self, cells: Cells, splits: int) -> None:
        self.cells, self.splits = cells, splits
        self.scores: dict[str, dict[str, dict[str, Any]]] = {}
        for name in SOURCES:
            line: dict[str, dict[str, Any]] = {}
            for group in GROUPS:
                kept = cells.kept(f"classes | {name} | {group} | {splits}")
                if kept is not None and kept["status"] == DONE:
                    line.update(kept["methods"])
            self.scores[name] = line

    def mean(self, name: str, method: str, what: str = "nmi") -> float | None:
        one = self.scores[name].get(method)
        return None if one is None else float(np.mean(one[what]))

    def complete(self, names: list[str], methods: tuple[str, ...]) -> list[str]:
        """Sets for which all of the methods have been measured."""
        return [name for name in names if all(method in self.scores[name] for method in methods)]

    def best(self, name: str, methods: tuple[str, ...]) -> str:
        return max(methods, key=lambda method: self.mean(name, method) or 0.0)


def title(name: str) -> str:
    source = SOURCES[name]
    return f"{source.published or name} ({source.note})" if source.note else source.published or name


def main_table(found: Found, names: list[str], what: str, place: int) -> Table:
    lines = []
    for name in names:
        line = [title(name)]
        for method in SHOWN:
            mean = found.mean(name, method, what)
            if mean is None:
                line.append("")
                continue
            spread = float(np.std(found.scores[name][method][what]))
            known = published_in.figure(SOURCES[name].published, method, place)
            line.append(f"{mean:.3f} ± {spread:.2f}" + ("" if known is None else f" ({known:.3f})"))
        lines.append(line)
    return Table(("set", *SHOWN), lines)


def domains(names: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(SOURCES[name].domain, []).append(name)
    return found


def gains_table(found: Found, names: list[str]) -> Table:
    """Mean gain of NMI over GM by domain, of the best start and as a mean over starts; the worst set."""
    lines = []
    for method in SHOWN[1:]:
        line: list[Any] = [method]
        for members in [*domains(names).values(), names]:
            gains = [
                float(np.mean(found.scores[n][method]["nmi"])) - float(np.mean(found.scores[n]["GM"]["nmi"]))
                for n in found.complete(members, ("GM", method))
            ]
            line.append(f"{np.mean(gains):+.3f} ({len(gains)})" if gains else "")
        whole = found.complete(names, ("GM", method))
        gains = [found.mean(n, method) - found.mean(n, "GM") for n in whole]  # type: ignore[operator]
        by_starts = [found.mean(n, method, "mean_nmi") - found.mean(n, "GM", "mean_nmi") for n in whole]  # type: ignore[operator]
        line += [f"{np.mean(by_starts):+.3f}" if whole else "", f"{min(gains):+.3f}" if whole else ""]
        seconds = [found.mean(n, method, "seconds") for n in whole]
        lines.append([*line, f"{np.mean(seconds):.2f}" if whole else ""])  # type: ignore[arg-type]
    heads = ("method", *domains(names), "all", "all, mean over starts", "worst set", "seconds a split")
    return Table(heads, lines)


def strengths_table(found: Found, names: list[str]) -> Table:
    """Strengths that the validation classes chose, and their mean NMI there relative to the best one."""
    lines = []
    for method, how in METHODS.items():
        tried = [found.scores[n][method]["tried"] for n in names if method in found.scores[n]]
        if len(how.strengths) < 2 or not tried:
            continue
        # A mean over splits by set, then over sets, minus that of the best strength of each split.
        losses = np.array([np.mean(np.array(one) - np.max(one, axis=1, keepdims=True), axis=0) for one in tried])
        text = ", ".join(f"{s:g}: {loss:.3f}" for s, loss in zip(how.strengths, losses.mean(axis=0), strict=True))
        lines.append((method, text))
    return Table(("method", "strength: mean NMI below the best strength of the split"), lines)


def ranked(found: Found, names: list[str], methods: tuple[str, ...]) -> str:
    """Mean NMI over the sets that have all methods, best first."""
    usable = found.complete(names, methods)
    if not usable:
        return "not measured"
    means = {m: float(np.mean([found.mean(n, m) for n in usable])) for m in methods}  # type: ignore[misc]
    order = sorted(methods, key=lambda m: -means[m])
    return ", ".join(f"{m} {means[m]:.3f}" for m in order) + f" ({len(usable)} sets)"


def verdict(holds: bool | None) -> str:
    return {True: "holds", False: "does not hold", None: "not measured"}[holds]


def among_best(found: Found, names: list[str], wanted: tuple[str, ...], methods: tuple[str, ...]) -> bool | None:
    """Whether the best method by the mean over sets is one of those wanted."""
    usable = found.complete(names, methods)
    if not usable:
        return None
    means = {m: float(np.mean([found.mean(n, m) for n in usable])) for m in methods}  # type: ignore[misc]
    return max(methods, key=lambda m: means[m]) in wanted


def claims(found: Found, names: list[str]) -> list[str]:
    """One line for each claim of the thesis."""
    by = domains(names)
    compared = tuple(m for m in (*PROPOSED, *BASELINES) if m != PRIOR or has_prior())
    lines = []
    plain = [n for n in names if not SOURCES[n].unit]
    usable = found.complete(plain, compared)
    won = sum(found.best(n, compared) in PROPOSED for n in usable)
    with_within = sum(found.best(n, (*compared, "WithinClass")) in PROPOSED for n in usable)
    lines.append(
        f"A proposed method ({', '.join(PROPOSED)}) is best on most sets (19 of 23): on {won} of {len(usable)}; with "
        f"WithinClass among the baselines on {with_within} of {len(usable)}."
    )
    for domain, wanted, text in (
        ("time series", ("TCS-CS", "TCS-GM-L2"), "TCS-CS and TCS-GM-L2 are best on time series"),
        ("characters", ("TCS-GM", "TCS-GM-L2"), "TCS-GM and TCS-GM-L2 are best on handwritten characters"),
        ("faces", ("TCS-CS", "FD"), "TCS-CS and FD are best on faces"),
        ("speech", ("TCS-CS",), "TCS-CS is best on speech"),
    ):
        members = by.get(domain, [])
        lines.append(
            f"{text}: {verdict(among_best(found, members, wanted, compared))}; mean NMI "
            f"{ranked(found, members, (*compared, 'WithinClass'))}."
        )
    texts = found.complete(by.get("text", []), compared)
    if texts:
        above = [m for m in compared if m != "GM" and _gain(found, texts, m) > 0]
        lines.append(
            f"On text only TCS-GM and TCS-CS are above GM: {verdict(set(above) == {'TCS-GM', 'TCS-CS'})}; above GM "
            f"are {', '.join(above) or 'none'} ({ranked(found, texts, (*compared, 'WithinClass'))})."
        )
    hog = [n for n in ("binalpha", "optdigits", "usps", "mnist") if n in names]
    statistics = [n for n in ("letter", "pendigits") if n in names]
    pair = ("TCS-GM", "TCS-GM-L2")
    if found.complete(hog, pair) and found.complete(statistics, pair):
        first, second = (
            _gain(found, found.complete(g, pair), "TCS-GM") - _gain(found, found.complete(g, pair), "TCS-GM-L2")
            for g in (hog, statistics)
        )
        lines.append(
            "TCS-GM suits HOG features, TCS-GM-L2 statistics of pixels: "
            f"{verdict(first > 0 > second)}; TCS-GM minus TCS-GM-L2 is {first:+.3f} and {second:+.3f} NMI."
        )
    if found.complete(["lfw"], compared):
        best = found.best("lfw", compared)
        lines.append(f"TCS-CS is best on LFW: {verdict(best == 'TCS-CS')}; best is {best} ({ranked(found, ['lfw'], compared)}).")
    sphere = ("TCS-VM", "VM", "TCS-GM", "TCS-CS", "GM", "WithinClass")
    units = found.complete(by.get("unit text", []), sphere)
    if units:
        wins = sum(found.best(n, sphere[:-1]) == "TCS-VM" for n in units)
        lines.append(
            f"TCS-VM is best on all texts with unit rows: {verdict(wins == len(units))} ({wins} of {len(units)}); "
            f"{ranked(found, units, sphere)}."
        )
    everywhere = found.complete(plain, ("LMNN", "WithinClass", "FD"))
    if everywhere:
        better = sum(found.mean(n, "LMNN") > found.mean(n, "WithinClass") for n in everywhere)  # type: ignore[operator]
        lines.append(
            "LMNN is a stronger baseline than relevant component analysis (WithinClass here): "
            f"{verdict(_gain(found, everywhere, 'LMNN') > _gain(found, everywhere, 'WithinClass'))}; LMNN is above on "
            f"{better} of {len(everywhere)} sets ({ranked(found, everywhere, ('LMNN', 'WithinClass', 'FD', 'GM'))})."
        )
    others = tuple(m for m in compared if m != "GM")
    margin = found.complete(plain, (*compared, "TCS-MM"))
    if margin:
        wins = [n for n in margin if found.mean(n, "TCS-MM") > found.mean(n, found.best(n, others))]  # type: ignore[operator]
        lines.append(
            f"TCS-MM is mixed, best on some sets (6 of 20): best on {len(wins)} of {len(margin)}; "
            f"{_gain(found, margin, 'TCS-MM'):+.3f} NMI over GM in the mean."
        )
    return lines


def _gain(found: Found, names: list[str], method: str) -> float:
    return float(np.mean([found.mean(n, method) - found.mean(n, "GM") for n in names]))  # type: ignore[operator]


def kept(cells: Cells, key: str) -> dict[str, Any] | None:
    one = cells.kept(key)
    return one if one is not None and one["status"] == DONE else None


def pair_text(one: dict[str, Any], known: tuple[float, float] | None = None) -> str:
    text = f"{np.mean(one['nmi']):.3f} / {np.mean(one['ari']):.3f}"
    return text if known is None else f"{text} ({known[0]:.3f} / {known[1]:.3f})"


def report_views(cells: Cells) -> None:
    lines, kept_views = [], {view: kept(cells, f"view | {view} | {VIEW_SPLITS}") for view in VIEWS}
    for view, one in kept_views.items():
        if one is None:
            continue
        known = published_in.VIEWS[view]
        cells_of = [pair_text(one["methods"][m], known.get(m)) for m in VIEW_METHODS]
        lines.append((f"{view}s, {one['n_train']} of them labelled", *cells_of))
    print(
        f"\n### Two views of Isolet (Table 6.8)\n\nNMI / ARI, means over {VIEW_SPLITS} splits, {VIEW_SHARE:.0%} of the "
        f"classes are labelled, default strengths.\n\n{Table(('classes', *VIEW_METHODS), lines).to_markdown()}"
    )
    if all(kept_views.values()):
        gains = {
            view: np.mean(one["methods"]["TCS-CS"]["nmi"]) - np.mean(one["methods"]["GM"]["nmi"])
            for view, one in kept_views.items() if one is not None
        }  # fmt: skip
        print(
            "\nClaim, supervision decides which of two groupings is found: "
            f"{verdict(all(gain > 0 for gain in gains.values()))}; TCS-CS gains {gains['letter']:+.3f} NMI by letter, "
            f"{gains['speaker']:+.3f} by speaker."
        )


def report_unlabelled(cells: Cells, splits: int) -> None:
    lines, gains = [], []
    for name in WITH_UNLABELLED:
        one = kept(cells, f"unlabelled | {name} | {splits}")
        if one is None:
            continue
        known = published_in.UNLABELLED.get(SOURCES[name].published or "", (None, None, None))
        methods = one["methods"]
        gains.append(np.mean(methods["1"]["nmi"]) - np.mean(methods["0"]["nmi"]))
        lines.append(
            (title(name), pair_text(methods["GM"], known[0]), pair_text(methods["0"], known[1]),
             pair_text(methods["1"], known[2]), pair_text(methods["3"]))
        )  # fmt: skip
    heads = ("set", "GM", "TCS-GM", "one round", "three rounds")
    print(
        "\n### Unlabelled rows (Table 6.9)\n\nNMI / ARI. `ExpandClusters(transform=\"gaussian\", n_rounds=...)`: "
        "after clustering, confident rows of the pool count as labelled and TCS-GM is learned anew. Strength 1e-3.\n\n"
        f"{Table(heads, lines).to_markdown()}"
    )
    if gains:
        print(
            f"\nClaim, unlabelled rows improve TCS-GM: {verdict(all(g > 0 for g in gains))}; one round gains "
            f"{np.mean(gains):+.3f} NMI, from {min(gains):+.3f} to {max(gains):+.3f}."
        )


def report_reduced(cells: Cells, names: list[str], splits: int) -> None:
    lines, changes = [], []
    for name in names:
        one = kept(cells, f"reduced | {name} | {splits}")
        if one is None:
            continue
        known = published_in.REDUCED[SOURCES[name].published or ""]
        full, svd = one["methods"]["full"], one["methods"]["svd"]
        if one["n_features"] > 200:
            changes.append(svd["nmi"][0] - full["nmi"][0])
        lines.append((title(name), one["n_features"], pair_text(full, known[0]), pair_text(svd, known[1])))
    heads = ("set", "features", "all features", f"SVD to {REDUCED_DIMS}")
    print(
        f"\n### GM with all features and after the SVD (Table 6.10)\n\nNMI / ARI of all classes, means over {splits} "
        f"starts; sets with at most 200 features are not reduced.\n\n{Table(heads, lines).to_markdown()}"
    )
    if changes:
        print(
            "\nClaim, the SVD changes little: "
            f"{verdict(float(np.median(np.abs(changes))) <= 2 * NOTICEABLE)}; it changes NMI by {np.mean(changes):+.3f} "
            f"in the mean, from {min(changes):+.3f} to {max(changes):+.3f}, over {len(changes)} sets."
        )


def report_supervision(cells: Cells, splits: int) -> None:
    lines, rises = [], []
    for name in SUPERVISED:
        one = kept(cells, f"supervision | {name} | {splits}")
        if one is None:
            continue
        for method, gains in one["gains"].items():
            shown = dict(zip(one["numbers"], gains, strict=True))
            lines.append((name, method, *(f"{shown[n]:+.3f}" if n in shown else "" for n in TRAINING)))
            if method == "TCS-GM":
                rises.append((gains[0], gains[-2], gains[-1]))
    heads = ("set", "method", *(f"{n} classes" for n in TRAINING))
    print(
        f"\n### Number of training classes (Figure 6.2)\n\nNMI above GM on {N_TEST} test classes, means over {splits} "
        f"splits, default strengths.\n\n{Table(heads, lines).to_markdown()}"
    )
    if rises:
        grows = all(last > first for first, _, last in rises)
        settles = all(last - before <= 2 * NOTICEABLE for _, before, last in rises)
        print(f"\nClaim, the gain grows with the classes: {verdict(grows)}. It saturates at 25: {verdict(settles)}.")


def report(cells: Cells, names: list[str], splits: int) -> None:
    print(EXPLANATION)
    found = Found(cells, splits)
    shown = [name for name in names if found.scores[name]]
    for what, place, head in (("nmi", 0, "NMI"), ("ari", 1, "ARI")):
        print(
            f"### {head} on the test classes (Tables 6.2 to 6.7, 7.1, D.1 to D.6)\n\nMean ± deviation over {splits} "
            f"splits of the classes (published).\n\n{main_table(found, shown, what, place).to_markdown()}\n"
        )
    print(f"### NMI above GM by domain (number of sets)\n\n{gains_table(found, shown).to_markdown()}\n")
    print(f"### Strengths\n\n{strengths_table(found, shown).to_markdown()}\n")
    print("### Claims of the thesis\n")
    for line in claims(found, shown):
        print(f"- {line}")
    report_views(cells)
    report_unlabelled(cells, splits)
    report_reduced(cells, names, splits)
    report_supervision(cells, splits)
    open_cells = [k for k in keys(names, splits) if k.split(" | ")[2] != PRIOR and kept(cells, k) is None]
    if open_cells:
        print("\nNot measured: " + "; ".join(f"{k} ({summary(cells.kept(k))})" for k in open_cells) + ".")


def main() -> None:
    options = parse("Transformations learned from labelled classes.", list(SOURCES), list(GROUPS), SPLITS)
    options.splits = QUICK_SPLITS if options.quick else options.splits
    cells = Cells("benchmarks.expand_thesis", options)
    if options.cell:
        cells.measure(lambda: measure(options.cell, options))
        return
    if not options.table:
        for key in keys(options.names, options.splits):
            kind, _, group, *_ = key.split(" | ")
            if kind == "classes" and group not in options.methods:
                continue
            if kind == "classes" and group == PRIOR and not has_prior():
                cells.keep(key, {"status": NOT_APPLICABLE, "why": "BayesianPriorMixture is not available"})
                continue
            cells.run(key)
    if options.quick:
        report(cells, options.names, options.splits)
    else:
        with published(SECTION):
            report(cells, list(SOURCES), options.splits)


if __name__ == "__main__":
    one_thread()
    main()
