"""Verdicts of `benchmarks.expand_thesis` on the claims of chapters 6 and 7 of the thesis."""

from __future__ import annotations

import numpy as np

from benchmarks._common.expand_data import SOURCES
from benchmarks._common.expand_found import (
    NOTICEABLE,
    Found,
    among_best,
    domains,
    gain,
    measured,
    ranked,
    verdict,
)
from benchmarks._common.expand_methods import PRIOR

PROPOSED = ("TCS-GM", "TCS-CS", "TCS-GM-L2", "TCS-FS")
COMPARED = (*PROPOSED, "FD", "LMNN", "PCC", PRIOR, "GM")
HOG_SETS, STATISTICS_SETS = ("binalpha", "optdigits", "usps", "mnist"), ("letter", "pendigits")


def without(methods: tuple[str, ...]) -> str:
    """Name the compared methods that are missing."""
    absent = [m for m in COMPARED if m not in methods]
    return f"; without {', '.join(absent)}" if absent else ""


def improvement(result: Found, names: list[str], method: str) -> str:
    """Mean relative improvement over GM, as the thesis reports it."""
    parts = []
    for what, head in (("nmi", "NMI"), ("ari", "ARI")):
        ratio = [result.number(n, method, what) / result.number(n, "GM", what) - 1 for n in names]
        parts.append(f"{np.mean(ratio):+.0%} {head}")
    return f"{method} {', '.join(parts)}"


def claim_counts(result: Found, names: list[str]) -> str:
    methods = measured(result, names, COMPARED)
    won = sum(result.best(n, methods) in PROPOSED for n in names)
    besides = sum(result.best(n, (*methods, "WithinClass")) in PROPOSED for n in names)
    return (
        f"A proposed method ({', '.join(PROPOSED)}) is best on most sets (19 of 23): on {won} of {len(names)}; with "
        f"WithinClass among the baselines on {besides} of {len(names)}{without(methods)}."
    )


def claim_domain(
    found: Found, names: list[str], wanted: tuple[str, ...], text: str, published_gain: str
) -> str:
    methods = measured(found, names, COMPARED)
    return (
        f"{text}: {verdict(among_best(found, names, wanted, methods))} among the methods of the thesis; mean NMI "
        f"{ranked(found, names, (*methods, 'WithinClass'))}{without(methods)}. Improvement over GM: published "
        f"{published_gain}; here {'; '.join(improvement(found, names, m) for m in wanted)}."
    )


def claim_text(found: Found, names: list[str]) -> str:
    methods = measured(found, names, COMPARED)
    above = [m for m in methods if m != "GM" and gain(found, names, m) > NOTICEABLE]
    return (
        f"On text only TCS-GM and TCS-CS are above GM: {verdict(set(above) == {'TCS-GM', 'TCS-CS'})}; by .01: "
        f"{', '.join(above) or 'none'}; mean NMI {ranked(found, names, (*methods, 'WithinClass'))}{without(methods)}."
    )


def claim_features(result: Found, names: list[str]) -> str:
    groups = [[n for n in part if n in names] for part in (HOG_SETS, STATISTICS_SETS)]
    first, second = (gain(result, g, "TCS-GM") - gain(result, g, "TCS-GM-L2") for g in groups)
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


def claims(result: Found, names: list[str]) -> list[str]:
    """One line for each claim of the thesis; claims about sets that are not measured are left out."""
    by = domains(names)
    plain = [n for n in names if not SOURCES[n].unit]
    lines = [claim_counts(result, plain)]
    for domain, wanted, text, gained in (
        ("time series", ("TCS-CS", "TCS-GM-L2"), "TCS-CS or TCS-GM-L2 is best on time series", "+17% NMI, +32% ARI"),
        (
            "characters", ("TCS-GM", "TCS-GM-L2"), "TCS-GM or TCS-GM-L2 is best on handwritten characters",
            "TCS-GM +10% NMI, +20% ARI",
        ),
        ("faces", ("TCS-CS", "FD"), "TCS-CS or FD is best on faces", "+27% NMI, +47% ARI"),
        ("speech", ("TCS-CS",), "TCS-CS is best on speech", "TCS-CS +28% NMI, +50% ARI with WSJ, +5% NMI on Isolet"),
    ):  # fmt: skip
        if domain in by:
            lines.append(claim_domain(result, by[domain], wanted, text, gained))
    if "lfw" in names:
        lines.append(claim_domain(result, ["lfw"], ("TCS-CS",), "TCS-CS is best on LFW", "+36% NMI"))
    if "text" in by:
        lines.append(claim_text(result, by["text"]))
    if set(HOG_SETS) & set(names) and set(STATISTICS_SETS) & set(names):
        lines.append(claim_features(result, names))
    if "unit text" in by and measured(result, by["unit text"], ("TCS-VM",)):
        lines.append(claim_sphere(result, by["unit text"]))
    if result.complete(plain, ("LMNN",)):
        lines.append(claim_neighbours(result, plain))
    if result.complete(plain, ("TCS-MM",)):
        lines.append(claim_margin(result, plain))
    return lines
