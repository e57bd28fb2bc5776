"""Tables of `benchmarks.expand_thesis`."""

from __future__ import annotations

from typing import Any

import numpy as np

from arbora.metrics.table import Table
from benchmarks._common import expand_published as published_in
from benchmarks._common.cells import DONE, Cells
from benchmarks._common.expand_claims import claims
from benchmarks._common.expand_data import REDUCED_DIMS, SOURCES
from benchmarks._common.expand_found import NOTICEABLE, Found, domains, gain, verdict
from benchmarks._common.expand_methods import AUTO, GAMMA, METHODS, PRIOR

SHOWN = (
    "GM", "VM", "WithinClass", "WithinClass tuned", "TCS-GM", "TCS-CS", "TCS-GM-L2", "TCS-FS", "FD", "LMNN", "PCC",
    PRIOR, "TCS-MM", "TCS-VM", AUTO,
)  # fmt: skip
TESTED_ELSEWHERE = ("letter", "pendigits", "optdigits")  # no default is chosen by their classes
NON_NEGATIVE = "letter", "pendigits", "libras"  # sets whose features are not negative, for gamma mixtures
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
            n = len(found.scores[name][method][what])
            fewer = "" if n == found.splits else f", {n} splits"
            line.append(f"{mean:.3f} ± {spread:.2f}{fewer}" + ("" if known is None else f" ({known:.3f})"))
        lines.append(line)
    return Table(("set", *SHOWN), lines)


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
        '\n### Unlabelled rows (Table 6.9)\n\nNMI / ARI. `ExpandClusters(metric="gaussian", n_rounds=...)`: '
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
    lines, verdicts = [], []
    for name in SUPERVISED:
        one = kept(cells, f"supervision | {name} | {splits}")
        if one is None:
            continue
        for method, gains in one["gains"].items():
            shown = dict(zip(one["numbers"], gains, strict=True))
            lines.append((name, method, *(f"{shown[n]:+.3f}" if n in shown else "" for n in TRAINING)))
            if method == "TCS-GM":
                first, before, last = gains[0], gains[-2], gains[-1]
                verdicts.append(
                    f"{name}: none at {one['numbers'][0]} classes {verdict(first <= NOTICEABLE)}, growth "
                    f"{verdict(last > first + NOTICEABLE)}, saturation {verdict(last - before <= NOTICEABLE)}"
                )
    heads = ("set", "method", *(f"{n} classes" for n in TRAINING))
    print(
        f"\n### Number of training classes (Figure 6.2)\n\nNMI above GM on {N_TEST} test classes, means over "
        f"{splits} splits, default strengths. The thesis has one curve, of TCS-GM on WSJ, which is not at hand.\n\n"
        f"{Table(heads, lines).to_markdown()}"
    )
    if verdicts:
        print(
            "\nClaims about TCS-GM: with few classes there is no gain, then it grows with the classes, then it "
            f"saturates. {'; '.join(verdicts)}."
        )


def report_gamma(found: Found) -> None:
    methods = (GAMMA, "GM", "WithinClass", "TCS-GM", "TCS-CS")
    lines = [
        (title(name), *(f"{found.number(name, m):.3f} / {found.number(name, m, 'ari'):.3f}" for m in methods))
        for name in found.complete(list(NON_NEGATIVE), methods)
    ]
    if lines:
        usable = found.complete(list(NON_NEGATIVE), methods)
        print(
            "\n### Gamma mixtures (Appendix C)\n\nNMI / ARI of `GammaTransform` on sets whose features are not "
            "negative, followed by the same k-means. The thesis derives the method and does not measure it.\n\n"
            f"{Table(('set', *methods), lines).to_markdown()}\n\n{GAMMA} gains {gain(found, usable, GAMMA):+.3f} NMI "
            f"over GM, TCS-GM {gain(found, usable, 'TCS-GM'):+.3f}."
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
    report_gamma(found)
