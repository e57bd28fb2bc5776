"""Tables and verdicts of `benchmarks.expand_thesis`."""

from __future__ import annotations

from typing import Any

import numpy as np

from arbora.metrics.table import Table
from benchmarks._common import expand_published as published_in
from benchmarks._common.cells import DONE, Cells
from benchmarks._common.expand_data import REDUCED_DIMS, SOURCES
from benchmarks._common.expand_methods import AUTO, GROUPS, METHODS, PRIOR

SHOWN = (
    "GM", "VM", "WithinClass", "WithinClass tuned", "TCS-GM", "TCS-CS", "TCS-GM-L2", "TCS-FS", "FD", "LMNN", "PCC",
    PRIOR, "TCS-MM", "TCS-VM", AUTO,
)  # fmt: skip
PROPOSED = ("TCS-GM", "TCS-CS", "TCS-GM-L2", "TCS-FS")
COMPARED = (*PROPOSED, "FD", "LMNN", "PCC", PRIOR, "GM")
HOG_SETS, STATISTICS_SETS = ("binalpha", "optdigits", "usps", "mnist"), ("letter", "pendigits")
TESTED_ELSEWHERE = ("letter", "pendigits", "optdigits")  # no default is chosen by their classes
WITH_UNLABELLED = "auslan", "orl", "vowel", "k9", "isolet", "leaves100"
TRAINING, N_TEST = (3, 5, 8, 12, 18, 25), 25
SUPERVISED = "leaves100", "auslan", "isolet speakers"
WIDE = "WithinClass, all features"
VIEW_SPLITS, VIEWS, VIEW_METHODS = (
    3,
    ("letter", "speaker"),
    ("GM", "TCS-CS", "TCS-GM", "FD", "WithinClass", WIDE),
)
VIEW_SHARE = 0.1  # of the letters or speakers that are labelled
NOTICEABLE = 0.01  # difference of NMI that a verdict counts as one


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

    def number(self, name: str, method: str, what: str = "nmi") -> float:
        """Mean over the splits."""
        return float(np.mean(self.scores[name][method][what]))

    def complete(self, names: list[str], methods: tuple[str, ...]) -> list[str]:
        """Select the sets for which all of the methods have been measured."""
        return [name for name in names if all(method in self.scores[name] for method in methods)]

    def best(self, name: str, methods: tuple[str, ...]) -> str:
        return max(methods, key=lambda method: self.number(name, method))


def title(name: str) -> str:
    source = SOURCES[name]
    return f"{source.published or name} ({source.note})" if source.note else source.published or name


def main_table(found: Found, names: list[str], what: str, place: int) -> Table:
    lines = []
    for name in names:
        line = [title(name)]
        for method in SHOWN:
            if method not in found.scores[name]:
                line.append("")
                continue
            mean = found.number(name, method, what)
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
        usable = found.complete(names, ("GM", method))
        if not usable:
            continue
        line = [method]
        for members in [*domains(names).values(), names]:
            there = found.complete(members, ("GM", method))
            line.append(f"{gain(found, there, method):+.3f} ({len(there)})" if there else "")
        worst = min(gain(found, [n], method) for n in usable)
        by_starts = gain(found, usable, method, "mean_nmi")
        lines.append([*line, f"{by_starts:+.3f}", f"{worst:+.3f}"])
    heads = ("method", *domains(names), "all", "all, mean over starts", "worst set")
    return Table(heads, lines)


def strengths_table(found: Found, names: list[str]) -> Table:
    """Strengths that the validation classes chose, and their mean NMI there relative to the best one."""
    lines = []
    for method, how in METHODS.items():
        tried = [
            found.scores[n][method]["tried"]
            for n in names if method in found.scores[n] and n not in TESTED_ELSEWHERE
        ]  # fmt: skip
        if len(how.strengths) < 2 or not tried:
            continue
        # A mean over splits by set, then over sets, minus that of the best strength of each split.
        losses = np.array(
            [np.mean(np.array(one) - np.max(one, axis=1, keepdims=True), axis=0) for one in tried]
        )
        text = ", ".join(
            f"{s:g}: {loss:.3f}" for s, loss in zip(how.strengths, losses.mean(axis=0), strict=True)
        )
        lines.append((method, text))
    return Table(("method", "strength: mean NMI below the best strength of the split"), lines)


def ranked(found: Found, names: list[str], methods: tuple[str, ...]) -> str:
    """Mean NMI over the sets that have all methods, best first."""
    usable = found.complete(names, methods)
    if not usable:
        return "not measured"
    means = {m: float(np.mean([found.number(n, m) for n in usable])) for m in methods}
    order = sorted(methods, key=lambda m: -means[m])
    return ", ".join(f"{m} {means[m]:.3f}" for m in order) + f" ({len(usable)} sets)"


def verdict(holds: bool | None) -> str:
    return {True: "holds", False: "does not hold", None: "not measured"}[holds]


def among_best(
    found: Found, names: list[str], wanted: tuple[str, ...], methods: tuple[str, ...]
) -> bool | None:
    """Whether the best method by the mean over sets is one of those wanted."""
    usable = found.complete(names, methods)
    if not usable:
        return None
    means = {m: float(np.mean([found.number(n, m) for n in usable])) for m in methods}
    return max(methods, key=lambda m: means[m]) in wanted


def measured(found: Found, names: list[str], methods: tuple[str, ...]) -> tuple[str, ...]:
    """Methods that have been measured on all of the sets."""
    return tuple(m for m in methods if all(m in found.scores[n] for n in names))


def without(methods: tuple[str, ...]) -> str:
    """Name the compared methods that are missing."""
    absent = [m for m in COMPARED if m not in methods]
    return f"; without {', '.join(absent)}" if absent else ""


def claim_counts(found: Found, names: list[str]) -> str:
    methods = measured(found, names, COMPARED)
    won = sum(found.best(n, methods) in PROPOSED for n in names)
    besides = sum(found.best(n, (*methods, "WithinClass")) in PROPOSED for n in names)
    return (
        f"A proposed method ({', '.join(PROPOSED)}) is best on most sets (19 of 23): on {won} of {len(names)}; with "
        f"WithinClass among the baselines on {besides} of {len(names)}{without(methods)}."
    )


def claim_domain(found: Found, names: list[str], wanted: tuple[str, ...], text: str) -> str:
    methods = measured(found, names, COMPARED)
    return (
        f"{text}: {verdict(among_best(found, names, wanted, methods))} among the methods of the thesis; mean NMI "
        f"{ranked(found, names, (*methods, 'WithinClass'))}{without(methods)}."
    )


def claim_text(found: Found, names: list[str]) -> str:
    methods = measured(found, names, COMPARED)
    above = [m for m in methods if m != "GM" and gain(found, names, m) > NOTICEABLE]
    return (
        f"On text only TCS-GM and TCS-CS are above GM: {verdict(set(above) == {'TCS-GM', 'TCS-CS'})}; by .01: "
        f"{', '.join(above) or 'none'}; mean NMI {ranked(found, names, (*methods, 'WithinClass'))}{without(methods)}."
    )


def claim_features(found: Found, names: list[str]) -> str:
    groups = [[n for n in part if n in names] for part in (HOG_SETS, STATISTICS_SETS)]
    first, second = (gain(found, g, "TCS-GM") - gain(found, g, "TCS-GM-L2") for g in groups)
    return (
        "TCS-GM suits HOG features, TCS-GM-L2 statistics of pixels: "
        f"{verdict(first > 0 > second)}; TCS-GM minus TCS-GM-L2 is {first:+.3f} and {second:+.3f} NMI."
    )


def claim_sphere(found: Found, names: list[str]) -> str:
    sphere = ("TCS-VM", "VM", "TCS-GM", "TCS-CS", "GM")
    wins = sum(found.best(n, sphere) == "TCS-VM" for n in names)
    return (
        f"TCS-VM is best on all texts with unit rows: {verdict(wins == len(names))} ({wins} of {len(names)}); "
        f"{ranked(found, names, (*sphere, 'WithinClass'))}."
    )


def claim_neighbours(found: Found, names: list[str]) -> str:
    usable = found.complete(names, ("LMNN", "WithinClass", "FD", "GM"))
    better = sum(found.number(n, "LMNN") > found.number(n, "WithinClass") for n in usable)
    return (
        "LMNN is a stronger baseline than relevant component analysis (WithinClass here): "
        f"{verdict(gain(found, usable, 'LMNN') > gain(found, usable, 'WithinClass'))}; LMNN is above on {better} of "
        f"{len(usable)} sets; mean NMI {ranked(found, usable, ('LMNN', 'WithinClass', 'FD', 'GM'))}."
    )


def claim_margin(found: Found, names: list[str]) -> str:
    usable = found.complete(names, ("TCS-MM", "GM"))
    others = tuple(m for m in measured(found, usable, COMPARED) if m != "GM")
    wins = [n for n in usable if found.number(n, "TCS-MM") > found.number(n, found.best(n, others))]
    return (
        f"TCS-MM is mixed, best on some sets (6 of 20): best on {len(wins)} of {len(usable)}; "
        f"{gain(found, usable, 'TCS-MM'):+.3f} NMI over GM in the mean{without((*others, 'GM'))}."
    )


def claims(found: Found, names: list[str]) -> list[str]:
    """One line for each claim of the thesis; claims about sets that are not measured are left out."""
    by = domains(names)
    plain = [n for n in names if not SOURCES[n].unit]
    lines = [claim_counts(found, plain)]
    for domain, wanted, text in (
        ("time series", ("TCS-CS", "TCS-GM-L2"), "TCS-CS or TCS-GM-L2 is best on time series"),
        ("characters", ("TCS-GM", "TCS-GM-L2"), "TCS-GM or TCS-GM-L2 is best on handwritten characters"),
        ("faces", ("TCS-CS", "FD"), "TCS-CS or FD is best on faces"),
        ("speech", ("TCS-CS",), "TCS-CS is best on speech"),
    ):
        if domain in by:
            lines.append(claim_domain(found, by[domain], wanted, text))
    if "lfw" in names:
        lines.append(claim_domain(found, ["lfw"], ("TCS-CS",), "TCS-CS is best on LFW"))
    if "text" in by:
        lines.append(claim_text(found, by["text"]))
    if set(HOG_SETS) & set(names) and set(STATISTICS_SETS) & set(names):
        lines.append(claim_features(found, names))
    if "unit text" in by and measured(found, by["unit text"], ("TCS-VM",)):
        lines.append(claim_sphere(found, by["unit text"]))
    if found.complete(plain, ("LMNN",)):
        lines.append(claim_neighbours(found, plain))
    if found.complete(plain, ("TCS-MM",)):
        lines.append(claim_margin(found, plain))
    return lines


def gain(found: Found, names: list[str], method: str, what: str = "nmi") -> float:
    return float(np.mean([found.number(n, method, what) - found.number(n, "GM", what) for n in names]))


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
        f"\n### Two views of Isolet (Table 6.8)\n\nNMI / ARI, means over {VIEW_SPLITS} splits, {VIEW_SHARE:.0%} of "
        f"the classes are labelled, default strengths.\n\n{Table(('classes', *VIEW_METHODS), lines).to_markdown()}"
    )
    if all(kept_views.values()):
        best = []
        for view, one in kept_views.items():
            assert one is not None
            ari = {m: float(np.mean(scores["ari"])) for m, scores in one["methods"].items()}
            learned = max((m for m in ari if m != "GM"), key=lambda m: ari[m])
            shown = dict.fromkeys(("GM", "TCS-CS", learned))
            best.append(f"by {view}: " + ", ".join(f"{ari[m]:.3f} with {m}" for m in shown))
        print(f"\nClaim, supervision decides which of two groupings is found. ARI {'; '.join(best)}.")


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
        '\n### Unlabelled rows (Table 6.9)\n\nNMI / ARI. `ExpandClusters(transform="gaussian", n_rounds=...)`: '
        "after clustering, confident rows of the pool count as labelled and TCS-GM is fitted again (1e-3).\n\n"
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
            f"{verdict(float(np.median(np.abs(changes))) <= 2 * NOTICEABLE)}; it changes NMI by "
            f"{np.mean(changes):+.3f} in the mean, from {min(changes):+.3f} to {max(changes):+.3f}, over "
            f"{len(changes)} sets."
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
        f"\n### Number of training classes (Figure 6.2)\n\nNMI above GM on {N_TEST} test classes, means over "
        f"{splits} splits, default strengths.\n\n{Table(heads, lines).to_markdown()}"
    )
    if rises:
        grows = all(last > first for first, _, last in rises)
        settles = all(last - before <= 2 * NOTICEABLE for _, before, last in rises)
        print(
            f"\nClaim, the gain grows with the classes: {verdict(grows)}. It saturates at 25: {verdict(settles)}."
        )


def report_all(cells: Cells, names: list[str], splits: int) -> None:
    """Print all tables and verdicts of finished cells."""
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
